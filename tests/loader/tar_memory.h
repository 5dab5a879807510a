/* A tar's bytes in memory, as a source of base/tar.h. */
#ifndef PS_TESTS_LOADER_TAR_MEMORY_H
#define PS_TESTS_LOADER_TAR_MEMORY_H

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/tar.h"

struct tar_memory {
	const uint8_t *p;
	uint64_t n, at;
};

static inline int tar_memory_peek(
        void *arg, size_t n, const uint8_t **ret_p, size_t *ret_n, struct ps_error *err)
{
	struct tar_memory *s = arg;

	(void)err;
	assert(n <= PS_TAR_PEEK_MAX);
	*ret_p = s->p + s->at;
	*ret_n = PS_MIN(n, s->n - s->at);
	return 0;
}

static inline void tar_memory_take(void *arg, size_t n)
{
	struct tar_memory *s = arg;

	assert(n <= s->n - s->at);
	s->at += n;
}

static inline int tar_memory_skip(void *arg, uint64_t n, struct ps_error *err)
{
	struct tar_memory *s = arg;
	uint64_t got = PS_MIN(n, s->n - s->at);

	(void)err;
	assert(n <= INT64_MAX - s->at);
	s->at += got;
	return got < n ? -ENODATA : 0;
}

static inline int tar_memory_read(void *arg, void *dst, size_t n, struct ps_error *err)
{
	struct tar_memory *s = arg;

	if (n > s->n - s->at)
		return -ENODATA;
	memcpy(dst, s->p + s->at, n);
	return tar_memory_skip(s, n, err);
}

static inline uint64_t tar_memory_offset(void *arg)
{
	struct tar_memory *s = arg;

	return s->at;
}

static const struct ps_tar_source tar_memory_source = {.peek = tar_memory_peek,
        .take = tar_memory_take,
        .read = tar_memory_read,
        .skip = tar_memory_skip,
        .offset = tar_memory_offset};

#endif
