/* Any bytes as a shard, a tar (compressed or not) or lines: the walk and the grouping end, stay within
 * memory, and give whole samples or bad ones. A walk that drops long names gives the same members as one that
 * does not, up to the first long name. */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../loader/shard_memory.h"
#include "../loader/tar_memory.h"
#include "mend_tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sample_verify(struct ps_sample *s, const uint8_t *data, size_t size)
{
	assert((s->bad != 0) == (s->reason != NULL));
	assert(strlen(s->key) == s->key_len);
	if (ps_codec_detect(data, size) != PS_CODEC_NONE)
		return; /* the sample's offsets are of the decompressed bytes */
	assert(s->offset <= size);
	for (uint32_t i = 0; i < s->nfields; i++) {
		const struct ps_sample_field *f = &s->fields[i];

		assert(f->offset <= size && f->size <= size - f->offset);
		assert(ps_sample_find(s, f->suffix, strlen(f->suffix)) == f);
		if (f->data)
			assert(memcmp(f->data, data + f->offset, (size_t)f->size) == 0);
	}
}

static void shard_read(uint8_t *data, size_t size, enum ps_shard_kind source)
{
	struct ps_byte_budget budget = {.limit = 1 << 20};
	struct ps_shard_options options = {
	        .stream = {.wake_fd = -1}, .source = source, .budget = &budget, .max_sample_nbytes = 4 << 20};
	struct ps_shard *shard;
	struct ps_error err = {0};
	struct ps_sample *s;
	uint64_t ordinal = 0;
	int rc;

	shard = shard_of_memory(data, size, &options);
	if (!shard)
		return;
	while ((rc = ps_shard_next(shard, &s, &err)) == 1) {
		assert(s->ordinal == ordinal++);
		sample_verify(s, data, size);
		ps_sample_free(s);
	}
	assert(rc == 0 || rc == -ENOMEM);
	ps_shard_free(shard);
	assert(budget.used == 0);
}

static void member_check(const struct ps_tar_member *m, size_t size)
{
	bool is_link = m->kind == PS_TAR_HARDLINK || m->kind == PS_TAR_SYMLINK;

	assert(strlen(m->name) == m->name_len && m->name_len <= PS_TAR_MAX_NAME);
	assert(strlen(m->link) == m->link_len && m->link_len <= PS_TAR_MAX_NAME);
	assert(m->link_len == 0 || is_link);
	assert(m->size == 0 || m->kind == PS_TAR_OTHER || ps_tar_is_data(m->kind));
	assert(m->mtime_s >= 0);
	assert(m->header_offset < m->offset && m->offset <= size);
	assert(!m->name_too_long || (m->name_len == 0 && m->link_len == 0));
}

/* In the strict walk a long link in a pax header is no damage, but becomes "". The other walk then drops the
 * name, too. */
static void members_compare(const struct ps_tar_member *strict, const struct ps_tar_member *m)
{
	assert(strict->kind == m->kind && strict->size == m->size && strict->mtime_s == m->mtime_s);
	assert(strict->offset == m->offset && strict->header_offset == m->header_offset);
	assert(strcmp(strict->link, m->link) == 0);
	assert(!strict->name_too_long && (m->name_too_long || strcmp(strict->name, m->name) == 0));
}

static void tar_walk(const uint8_t *data, size_t size)
{
	struct tar_memory memories[2] = {{.p = data, .n = size}, {.p = data, .n = size}};
	struct ps_tar *strict = ps_tar_new(&tar_memory_source, &memories[0], false);
	struct ps_tar *tar = ps_tar_new(&tar_memory_source, &memories[1], true);
	struct ps_tar_member a, b;
	int rc = 1, rc_strict = 1;

	while (strict && tar && rc == 1) {
		rc = ps_tar_next(tar, &b, NULL);
		assert(rc == 1 || rc == 0 || rc == -EBADMSG || rc == -ENOMEM);
		if (rc == 1)
			member_check(&b, size);
		if (rc_strict == 1)
			rc_strict = ps_tar_next(strict, &a, NULL);
		assert(rc_strict == rc || rc_strict == -EBADMSG || rc_strict == -ENOMEM || rc == -ENOMEM);
		if (rc == 1 && rc_strict == 1)
			members_compare(&a, &b);
	}
	ps_tar_free(strict);
	ps_tar_free(tar);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	ps_autofree uint8_t *data = malloc(size + 1);

	if (!data)
		return 0;
	memcpy(data, input, size);
	checksums_mend(data, size);
	tar_walk(data, size);
	shard_read(data, size, PS_SHARD_KIND_TAR);
	shard_read(data, size, PS_SHARD_KIND_LINES);
	return 0;
}
