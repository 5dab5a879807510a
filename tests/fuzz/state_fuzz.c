/* Any bytes as a loader's state: they are refused, or the state stays the same when it is written and read
 * again.
 *
 * The bytes are read as they are, and then as the words that follow the fingerprint in a state whose magic,
 * fingerprint and checksum are right: such a state must be checked, too. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define HEAD ((2 + PS_STATE_NPRINT) * sizeof(uint64_t)) /* magic, sum, print */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct ps_options options;
static const struct ps_state_print print = {.words = {1, 2, 3, 4}, .world = 1};

/* Stores the checksum, computed as in state.c. */
static void sum_put(uint8_t *state, size_t nbytes)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 2 * sizeof(h); i < nbytes; i++)
		h = (h ^ state[i]) * UINT64_C(0x100000001b3);
	h = htole64(h);
	memcpy(state + sizeof(h), &h, sizeof(h));
}

static int read_checked(const uint8_t *bytes, size_t nbytes, struct ps_state *ret_state)
{
	struct ps_error err = {0};
	int rc = ps_state_read(&print, &options, bytes, nbytes, 0, ret_state, &err);

	if (rc < 0 ? !err.text[0] : rc > 0 || ret_state->rank >= ret_state->world)
		abort();
	return rc;
}

static void round_trip(const struct ps_state *s)
{
	size_t nbytes = ps_state_nbytes(s->nlanes, s->nsets, s->decodes);
	uint8_t *bytes = malloc(nbytes), *again = malloc(nbytes);
	struct ps_state back;

	if (!bytes || !again)
		abort();
	ps_state_write(&print, s, bytes);
	if (read_checked(bytes, nbytes, &back) < 0)
		abort();
	ps_state_write(&print, &back, again);
	if (memcmp(bytes, again, nbytes) != 0)
		abort();
	ps_state_fini(&back);
	free(again);
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes = malloc(PS_MAX(HEAD + size, ps_state_nbytes(0, 0, false)));
	struct ps_state s;

	if (!bytes)
		abort();
	if (read_checked(data, size, &s) == 0)
		ps_state_fini(&s);
	ps_state_write(&print, &(struct ps_state){0}, bytes);
	if (size > 0)
		memcpy(bytes + HEAD, data, size);
	sum_put(bytes, HEAD + size);
	if (read_checked(bytes, HEAD + size, &s) == 0) {
		if (ps_state_nbytes(s.nlanes, s.nsets, s.decodes) != HEAD + size)
			abort();
		round_trip(&s);
		ps_state_fini(&s);
	}
	free(bytes);
	return 0;
}
