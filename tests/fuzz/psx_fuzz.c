/* Any bytes as an index: it is refused, or every question to it has an answer or an error.
 *
 * The lowest bit of the first byte chooses whether the checksums are made right: otherwise hardly any input
 * passes them. */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard/index/format.h"
#include "shard/index/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sums_mend(uint8_t *p, size_t n)
{
	size_t nsections;

	if (n < PS_PSX_HEAD)
		return;
	nsections = ps_get_u16(p + PS_PSX_AT_NSECTIONS);
	if (n < PS_PSX_HEAD + nsections * PS_PSX_SECTION)
		return;
	for (size_t i = 0; i < nsections; i++) {
		uint8_t *entry = p + PS_PSX_HEAD + i * PS_PSX_SECTION;
		uint64_t at = ps_get_u64(entry + 8), len = ps_get_u64(entry + 16);

		if (at <= n && len <= n - at)
			ps_put_u64(entry + 24, ps_psx_sum(0, p + at, (size_t)len));
	}
	memcpy(p, PS_PSX_MAGIC, 8);
	/* else it is refused as one of an older version */
	ps_put_u16(p + PS_PSX_AT_NOTES, (uint16_t)(ps_get_u16(p + PS_PSX_AT_NOTES) | PS_PSX_NOTE_LINKS));
	ps_put_u64(p + PS_PSX_AT_SUM, ps_psx_head_sum(p, nsections));
}

static void sample_ask(struct ps_shard_index *x, uint64_t i)
{
	struct ps_shard_index_member members[PS_PSX_MAX_MEMBERS];
	struct ps_shard_index_place place;
	struct ps_column_value v;
	const char *text;
	size_t len, all = 0;

	if (ps_shard_index_place(x, i, &place, members, NULL) == 0) {
		assert(place.nmembers <= PS_PSX_MAX_MEMBERS);
		for (uint32_t m = 0; m < place.nmembers; m++)
			all += strlen(members[m].suffix) + (members[m].offset >= place.offset);
	}
	if (ps_shard_index_key(x, i, &text, &len, NULL) == 0)
		for (size_t k = 0; k < len; k++)
			all += (uint8_t)text[k];
	for (int c = 0; c < PS_INDEX_MAX_COLUMNS && c < ps_shard_index_ncolumns(x); c++)
		if (ps_shard_index_value(x, c, i, &v, NULL) == 0 && !v.missing && v.type == PS_COLUMN_TEXT)
			for (size_t k = 0; k < v.text_len; k++)
				all += (uint8_t)v.text[k];
	for (int c = 0; c < ps_shard_index_ncolumns(x); c++)
		all += ps_shard_index_column_is(x, c, "cls");
	(void)all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_shard_index *x;
	uint8_t *copy;

	if (size == 0 || !(copy = malloc(size)))
		return 0;
	memcpy(copy, data + 1, size - 1);
	if (data[0] & 1)
		sums_mend(copy, size - 1);
	if (ps_shard_index_open_mem(copy, size - 1, &x, NULL) == 0) {
		uint64_t n = ps_shard_index_samples(x);
		struct ps_shard_index_walk walk = {0};

		assert(ps_shard_index_bad(x) <= n);
		for (uint64_t i = 0; i < n && i < 200; i++)
			sample_ask(x, i);
		for (uint64_t i = 0; i < n && i < 200; i += 1 + i % 3) /* in steps of 1 to 3 */
			(void)!ps_shard_index_check(x, &walk, i, 0, "k", 1, NULL, 0, NULL);
		if (n > 0)
			sample_ask(x, n - 1);
		ps_shard_index_close(x);
	}
	free(copy);
	return 0;
}
