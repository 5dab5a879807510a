/* Any bytes as the index of a shard: it is refused, or has members that are in the shard, one after another.
 *
 * Bits of the first byte: 1: the checksums are corrected, since otherwise hardly any input passes them; 2,
 * only with 1: the index says that it has all members; 4: the shard is shown decoded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/psx.h"
#include "members/members_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mend(uint8_t *p, size_t n, bool all)
{
	size_t nsections;

	if (n < PS_PSX_HEAD)
		return;
	nsections = ps_get_u16(p + PS_PSX_AT_NSECTIONS);
	if ((n - PS_PSX_HEAD) / PS_PSX_SECTION < nsections)
		return;
	for (size_t i = 0; i < nsections; i++) {
		uint8_t *entry = p + PS_PSX_HEAD + i * PS_PSX_SECTION;
		uint64_t at = ps_get_u64(entry + 8), len = ps_get_u64(entry + 16);

		if (at <= n && len <= n - at)
			ps_put_u64(entry + 24, ps_psx_sum(0, p + at, (size_t)len));
	}
	memcpy(p, PS_PSX_MAGIC, 8);
	if (all)
		ps_put_u16(p + PS_PSX_AT_NOTES, PS_PSX_NOTE_ALL);
	ps_put_u64(p + PS_PSX_AT_SUM, ps_psx_head_sum(p, nsections));
}

struct seen {
	uint64_t end, nbytes;
	unsigned n;
};

static int see(void *arg, const struct ps_tar_member *m)
{
	struct seen *s = arg;

	if (strlen(m->name) != m->name_len || m->header_offset < s->end || m->offset <= m->header_offset ||
	        m->offset > s->nbytes || m->size > s->nbytes - m->offset)
		abort();
	s->end = m->offset + m->size;
	return ++s->n < 10000 ? 0 : -E2BIG;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_psx_shard shard = {.stored_nbytes = PS_SIZE_UNKNOWN};
	struct ps_psx_end end = {0};
	struct seen seen = {0};
	uint8_t *copy;

	if (size == 0 || !(copy = malloc(size)))
		return 0;
	memcpy(copy, data + 1, size - 1);
	if (data[0] & 1)
		mend(copy, size - 1, data[0] & 2);
	shard.coded = data[0] & 4;
	if (size > PS_PSX_HEAD)
		shard.nbytes = ps_get_u64(copy + PS_PSX_AT_PLAIN);
	seen.nbytes = shard.nbytes;
	if (ps_psx_members(copy, size - 1, &shard, see, &seen, &end, NULL) == 0) {
		if (end.any && seen.n > 0 && end.offset + end.size != seen.end)
			abort();
		free(end.name);
	}
	free(copy);
	return 0;
}
