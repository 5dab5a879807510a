#include "base/packed.h"

#include <errno.h>
#include <string.h>

#include <zstd.h>

#include "base/size.h"

#define LEVEL 1

void ps_packed_fini(struct ps_packed *p)
{
	ps_strbuf_fini(&p->tail);
	ps_strbuf_fini(&p->frames);
	ZSTD_freeCCtx(p->compressor);
	*p = (struct ps_packed){0};
}

void ps_packed_reset(struct ps_packed *p)
{
	ps_strbuf_reset(&p->tail);
	ps_strbuf_reset(&p->frames);
	p->nbytes = 0;
	p->failed = false;
}

/* Compresses the tail, which is one block, into a frame. */
static void pack(struct ps_packed *p)
{
	char frame[ZSTD_COMPRESSBOUND(PS_PACKED_BLOCK_NBYTES)];

	if (!p->compressor && !(p->compressor = ZSTD_createCCtx())) {
		p->failed = true;
		return;
	}
	size_t n = ZSTD_compressCCtx(p->compressor, frame, sizeof(frame), p->tail.s, p->tail.len, LEVEL);
	if (ZSTD_isError(n)) { /* `frame` has room for any output, so the cause is lack of memory */
		p->failed = true;
		return;
	}
	ps_strbuf_addn(&p->frames, frame, n);
	ps_strbuf_reset(&p->tail);
	p->failed = p->frames.failed;
}

void ps_packed_add(struct ps_packed *p, const void *bytes, size_t n)
{
	const char *s = bytes;

	while (n > 0 && !p->failed) {
		size_t part = PS_MIN(n, PS_PACKED_BLOCK_NBYTES - p->tail.len);

		ps_strbuf_addn(&p->tail, s, part);
		p->failed = p->tail.failed;
		p->nbytes += part;
		s += part;
		n -= part;
		if (p->tail.len == PS_PACKED_BLOCK_NBYTES)
			pack(p);
	}
}

void ps_packed_settle(struct ps_packed *p)
{
	ZSTD_freeCCtx(p->compressor);
	p->compressor = NULL;
}

static int give(struct ps_strbuf *window, bool more, ps_window_fn fn, void *arg)
{
	size_t used = 0;
	int rc = fn(arg, ps_strbuf_peek(window), window->len, more, &used);

	if (rc == 0 && used > 0) {
		memmove(window->s, window->s + used, window->len - used + 1);
		window->len -= used;
	}
	return rc;
}

static void free_decompressor(ZSTD_DCtx **d)
{
	ZSTD_freeDCtx(*d);
}

int ps_packed_each(const struct ps_packed *p, ps_window_fn fn, void *arg)
{
	ps_autostrbuf struct ps_strbuf window = {0};
	ps_autofree char *block = NULL;
	ZSTD_DCtx *d __attribute__((cleanup(free_decompressor))) = NULL;
	int rc = p->failed ? -ENOMEM : 0;

	if (rc == 0 && p->frames.len &&
	        (!(d = ZSTD_createDCtx()) || !(block = malloc(PS_PACKED_BLOCK_NBYTES))))
		rc = -ENOMEM;
	for (size_t at = 0; rc == 0 && at < p->frames.len;) {
		size_t nframe = ZSTD_findFrameCompressedSize(p->frames.s + at, p->frames.len - at);
		size_t n = ZSTD_decompressDCtx(d, block, PS_PACKED_BLOCK_NBYTES, p->frames.s + at, nframe);

		if (ZSTD_isError(n))
			return -ENOMEM;
		at += nframe;
		ps_strbuf_addn(&window, block, n);
		rc = window.failed ? -ENOMEM : give(&window, true, fn, arg);
	}
	if (rc == 0)
		ps_strbuf_addn(&window, ps_strbuf_peek(&p->tail), p->tail.len);
	if (rc == 0)
		rc = window.failed ? -ENOMEM : give(&window, false, fn, arg);
	return rc;
}
