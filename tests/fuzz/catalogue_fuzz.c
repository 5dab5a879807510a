/* Any bytes as a catalogue of shards: it is refused, or every entry is found by its name and has consistent
 * counts.
 *
 * The lowest bit of the first byte chooses whether a right checksum is appended: otherwise hardly any input
 * passes it. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard/index/catalogue.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_catalogue *c;
	char *copy;
	size_t n;

	if (size == 0 || !(copy = malloc(size + 32)))
		return 0;
	n = size - 1;
	memcpy(copy, data + 1, n);
	if (data[0] & 1)
		n += (size_t)sprintf(copy + n, "sum %016jx\n", (uintmax_t)ps_psx_sum(0, copy, n));
	copy[n] = 0;
	if (text_parse("(memory)", copy, n, &c, NULL) == 0) {
		for (size_t i = 0; i < c->n; i++) {
			const struct ps_catalogue_entry *e = &c->entries[i];

			assert(ps_catalogue_find(c, e->name) == e && e->bad <= e->samples);
			assert(strlen(e->name) > 0 && !strchr(e->name, '/'));
			(void)ps_catalogue_match(c, "x.tar", e->plain_nbytes);
		}
		ps_catalogue_free(c);
	}
	return 0;
}
