/* The state of a run as bytes: where it stands, and a print of all that its order and its pixels come from.
 *
 *   64-bit words, little endian: the head (see state.c), then eight for each lane it has, then, where a GPU
 *   decodes, four of that
 *
 * The print is kept as separate words, so that a state which does not fit is refused with what differs. Rank
 * and world are not of it: a state says how many steps were made, which is the same on all ranks. Lanes spare
 * the search for their places (resume.h).
 *
 * Ownership: a state owns its lanes.   Threads: any.   Locks: none.   Blocks: never.
 * Errors: -EINVAL: no state, or damaged; -ESTALE: of another run; the text says which; -ENOMEM. */
#ifndef PS_STATE_H
#define PS_STATE_H

#include <stddef.h>
#include <stdio.h>

#include "batch/batch.h"
#include "options.h"
#include "order/order.h"

#define PS_STATE_NPRINT 18
#define PS_STATE_MAX_BATCHES (UINT64_C(1) << 40) /* more is damage */

struct ps_state_print {
	uint64_t words[PS_STATE_NPRINT];
	uint32_t world; /* not of the print: for what a refusal advises */
};

struct ps_state_lane {
	uint32_t lane; /* among those of all ranks */
	struct ps_lane_position at;
};

struct ps_state {
	uint64_t epoch;
	uint64_t batches; /* of the epoch that were delivered, on each rank */
	uint32_t bad_run; /* consecutive bad samples */
	uint32_t turn;    /* where lengths were not known: the place among the rank's lanes of the next */
	uint32_t rank, world;
	bool known; /* lengths were */
	uint32_t nlanes;
	struct ps_state_lane *lanes;
	bool decodes; /* a GPU decodes, or may: */
	struct ps_offload offload;
	uint64_t decoder; /* what decodes there, as it numbers itself: another one may give other pixels */
};

/* Makes the print of options that are whole; does nothing if it was made already. Reads all shard names: of
 * the list it has the count, and the shortest ends of the names that distinguish them, so that a run may go
 * on where the same files are stored elsewhere. That they are the same files, the sizes say of the shards
 * that a state's lanes stand in, when those are opened. */
int ps_state_print_make(struct ps_state_print *print, const struct ps_options *options,
        struct ps_load_error *err) PS_MUST_USE;

/* Prints the words as members of a JSON object, with their names; NULL: prints nothing. Returns a hash of
 * all. */
uint64_t ps_state_print_show(const struct ps_state_print *print, FILE *out);

size_t ps_state_nbytes(uint32_t nlanes, bool decodes);

/* Writes ps_state_nbytes(state->nlanes, state->decodes) bytes. */
void ps_state_write(const struct ps_state_print *print, const struct ps_state *state, void *ret_bytes);

int ps_state_read(const struct ps_state_print *print, const void *bytes, size_t nbytes,
        struct ps_state *ret_state, struct ps_load_error *err) PS_MUST_USE;
void ps_state_fini(struct ps_state *state);

#endif
