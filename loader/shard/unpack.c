#include "config.h"

#include "shard/unpack.h"

#include <errno.h>
#include <zstd.h>

#include "shard/inflate.h"

#define FIRST_GUESS 4 /* times the compressed bytes, where the frame does not say */

static int damaged(const char *what, struct ps_load_error *err)
{
	return ps_load_error_set(err, EBADMSG, "damaged zstd data: %s", what);
}

static int unpack(
        ZSTD_DCtx *d, ZSTD_inBuffer *in, uint64_t max, struct ps_buf *out, struct ps_load_error *err)
{
	size_t left = 1;

	while (in->pos < in->size || left > 0) {
		ZSTD_outBuffer room = {.dst = out->p, .size = out->cap, .pos = out->n};
		size_t before = in->pos;

		left = ZSTD_decompressStream(d, &room, in);
		if (ZSTD_isError(left))
			return damaged(ZSTD_getErrorName(left), err);
		if (left > 0 && in->pos == in->size && room.pos == out->n && before == in->pos &&
		        room.pos < room.size)
			return damaged("cut", err);
		out->n = room.pos;
		if (out->n > max)
			return ps_load_error_set(err, EFBIG,
			        "larger than the memory a sample may take (%ju bytes) when decompressed",
			        (uintmax_t)max);
		if (out->n == out->cap && (in->pos < in->size || left > 0) &&
		        ps_buf_reserve(out, out->n + 1) < 0)
			return ps_load_error_set(err, ENOMEM, "no memory to decompress %zu bytes", in->size);
	}
	return 0;
}

int ps_unpack(
        const uint8_t *data, size_t n, uint64_t max, struct ps_buf *ret_bytes, struct ps_load_error *err)
{
	ZSTD_inBuffer in = {.src = data, .size = n};
	unsigned long long size = ZSTD_getFrameContentSize(data, n);
	ZSTD_DCtx *d;
	int r;

	if (size == ZSTD_CONTENTSIZE_ERROR)
		return damaged("it does not begin as zstd data do", err);
	if (size == ZSTD_CONTENTSIZE_UNKNOWN || size > max)
		size = n <= max / FIRST_GUESS ? n * FIRST_GUESS : max;
	d = ZSTD_createDCtx();
	if (!d || ps_buf_reserve(ret_bytes, (size_t)size + 1) < 0) {
		ZSTD_freeDCtx(d);
		return ps_load_error_set(err, ENOMEM, "no memory to decompress %zu bytes", n);
	}
	(void)ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, PS_INFLATE_MAX_WINDOW_LOG);
	r = unpack(d, &in, max, ret_bytes, err);
	ZSTD_freeDCtx(d);
	return r;
}
