#include "config.h"

#include "shard/file/file.h"

#include <errno.h>

_Static_assert(PS_TAR_PEEK_MAX == PS_STREAM_BUF_MIN, "a walk may peek at as much as a stream shows");

static int tar_peek(void *arg, size_t n, const uint8_t **ret_p, size_t *ret_n, struct ps_error *err)
{
	return ps_stream_peek(arg, n, ret_p, ret_n, err);
}

static void tar_take(void *arg, size_t n)
{
	ps_stream_take(arg, n);
}

static int tar_read(void *arg, void *dst, size_t n, struct ps_error *err)
{
	return ps_stream_read(arg, dst, n, err);
}

static int tar_skip(void *arg, uint64_t n, struct ps_error *err)
{
	return ps_stream_skip(arg, n, err);
}

static uint64_t tar_offset(void *arg)
{
	return ps_stream_offset(arg);
}

static int tar_foreign(void *arg, const uint8_t *p, size_t n, struct ps_error *err)
{
	const char *foreign = ps_foreign_of_bytes(p, n);

	if (foreign)
		return ps_error_set(err, EBADMSG, "%s", foreign);
	return ps_error_set(err, EBADMSG, "damaged tar at offset 0: %s",
	        ps_stream_is_inflated(arg) ? "no tar header" : "no tar header, nor gzip, zstd or lz4 data");
}

struct ps_tar *ps_stream_tar(struct ps_stream *stream)
{
	static const struct ps_tar_source source = {.peek = tar_peek,
	        .take = tar_take,
	        .read = tar_read,
	        .skip = tar_skip,
	        .offset = tar_offset,
	        .foreign = tar_foreign};

	return ps_tar_new(&source, stream, false);
}
