/* Any bytes as a shard: the walker and the grouping end, keep within memory, and give whole samples or bad
 * ones. */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "shard/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_budget budget = {.limit = 1 << 20};
	struct ps_shard_options options = {
	        .stream = {.wake_fd = -1}, .budget = &budget, .max_sample_nbytes = 4 << 20};
	struct ps_stream *stream = ps_stream_mem(data, size);
	struct ps_shard *shard = stream ? ps_shard_new_stream(stream, &options) : NULL;
	struct ps_load_error err = {0};
	struct ps_sample *s;
	uint64_t ordinal = 0;
	int r = 0;

	while (shard && (r = ps_shard_next(shard, &s, &err)) == 1) {
		assert(s->ordinal == ordinal++);
		assert((s->bad != 0) == (s->reason != NULL));
		assert(strlen(s->key) == s->key_len && s->offset <= size);
		for (uint32_t i = 0; i < s->nfields; i++) {
			const struct ps_sample_field *f = &s->fields[i];

			assert(f->offset <= size && f->size <= size - f->offset);
			assert(ps_sample_find(s, f->suffix, strlen(f->suffix)) == f);
			if (f->data)
				assert(memcmp(f->data, data + f->offset, (size_t)f->size) == 0);
		}
		ps_sample_free(s);
	}
	assert(!shard || r == 0 || r == -ENOMEM);
	ps_shard_free(shard);
	assert(budget.used == 0);
	return 0;
}
