#include "config.h"

#include "shard/inflate.h"

#include <errno.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>
#ifdef HAVE_LISAL
#include <isa-l/igzip_lib.h>
#endif
#ifdef HAVE_LZ4
#include <lz4frame.h>
#endif

/* A piece of compressed bytes and where its decompressed ones go. */
struct step {
	const uint8_t *in;
	size_t in_n;
	uint8_t *out;
	size_t out_n;
	size_t taken, made;
	bool ended; /* a frame (member) ended with `taken` */
};

struct ps_inflate {
	struct ps_stream *in;
	enum ps_codec codec;
	bool inside;              /* a frame: the input must not end here */
	bool any, garbage;        /* a frame has ended; what follows is none */
	struct ps_budget *budget; /* NULL: not counted */
	size_t held;              /* and counted */
	union {
		ZSTD_DCtx *zstd;
#ifdef HAVE_LISAL
		struct inflate_state *gzip;
#endif
#ifdef HAVE_LZ4
		LZ4F_dctx *lz4;
#endif
	};
};

static const char *const names[] = {"", "zstd", "gzip", "lz4", "lz4 (legacy format)"};

static bool is_lz4_legacy(const uint8_t *p)
{
	return p[0] == 0x02 && p[1] == 0x21 && p[2] == 0x4c && p[3] == 0x18;
}

static bool is_skippable(const uint8_t *p)
{
	return (p[0] & 0xf0) == 0x50 && p[1] == 0x2a && p[2] == 0x4d && p[3] == 0x18;
}

bool ps_codec_skippable(const uint8_t head[static PS_INFLATE_SKIPPABLE], uint64_t *ret_nbytes)
{
	*ret_nbytes = PS_INFLATE_SKIPPABLE + ((uint64_t)head[4] | (uint64_t)head[5] << 8 |
	                                             (uint64_t)head[6] << 16 | (uint64_t)head[7] << 24);
	return is_skippable(head);
}

enum ps_codec ps_codec_detect(const uint8_t *p, size_t n)
{
	if (n < PS_INFLATE_MAGIC)
		return PS_CODEC_NONE;
	if (p[0] == 0x1f && p[1] == 0x8b && p[2] == 8)
		return PS_CODEC_GZIP;
	if (p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f && p[3] == 0xfd)
		return PS_CODEC_ZSTD;
	if (p[0] == 0x04 && p[1] == 0x22 && p[2] == 0x4d && p[3] == 0x18)
		return PS_CODEC_LZ4;
	if (is_lz4_legacy(p))
		return PS_CODEC_LZ4_LEGACY;
	return is_skippable(p) ? PS_CODEC_ZSTD : PS_CODEC_NONE;
}

/* -- zstd ---------------------------------------------------------------------------------------------- */

static int zstd_new(struct ps_inflate *f, struct ps_load_error *err)
{
	f->zstd = ZSTD_createDCtx();
	if (!f->zstd)
		return ps_load_error_set(err, ENOMEM, "no memory for decompression");
	(void)ZSTD_DCtx_setParameter(f->zstd, ZSTD_d_windowLogMax, PS_INFLATE_MAX_WINDOW_LOG);
	return 0;
}

static int zstd_step(struct ps_inflate *f, struct step *s, struct ps_load_error *err)
{
	ZSTD_inBuffer in = {.src = s->in, .size = s->in_n};
	ZSTD_outBuffer out = {.dst = s->out, .size = s->out_n};
	size_t left = ZSTD_decompressStream(f->zstd, &out, &in);

	if (ZSTD_isError(left)) {
		uint64_t at = ps_stream_offset(f->in);

		if (ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge)
			return ps_load_error_set(err, EFBIG,
			        "zstd data with a window of more than 128 MiB; compress it without --long=28 "
			        "or more");
		if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
			return ps_load_error_set(err, ENOMEM, "no memory for decompression");
		return ps_load_error_set(err, EBADMSG, "damaged zstd data near byte %ju of the file: %s",
		        (uintmax_t)at, ZSTD_getErrorName(left));
	}
	s->taken = in.pos;
	s->made = out.pos;
	s->ended = left == 0;
	return 0;
}

/* -- gzip ---------------------------------------------------------------------------------------------- */

#ifdef HAVE_LISAL
static void gzip_begin(struct ps_inflate *f)
{
	isal_inflate_init(f->gzip);
	f->gzip->crc_flag = ISAL_GZIP;
}

static int gzip_new(struct ps_inflate *f, struct ps_load_error *err)
{
	f->gzip = malloc(sizeof(*f->gzip));
	if (!f->gzip)
		return ps_load_error_set(err, ENOMEM, "no memory for decompression");
	gzip_begin(f);
	return 0;
}

static int gzip_step(struct ps_inflate *f, struct step *s, struct ps_load_error *err)
{
	size_t in_n = PS_MIN(s->in_n, (size_t)1 << 30), out_n = PS_MIN(s->out_n, (size_t)1 << 30);
	int r;

	if (!f->inside) {
		size_t zeros = 0;

		while (zeros < s->in_n && s->in[zeros] == 0) /* what tapes and block devices leave behind */
			zeros++;
		if (zeros > 0) {
			s->taken = zeros;
			s->ended = true;
			return 0;
		}
		gzip_begin(f);
	}
	f->gzip->next_in = (uint8_t *)(uintptr_t)s->in; /* it is not written to */
	f->gzip->avail_in = (uint32_t)in_n;
	f->gzip->next_out = s->out;
	f->gzip->avail_out = (uint32_t)out_n;
	r = isal_inflate(f->gzip);
	if (r < 0 || r == ISAL_NEED_DICT)
		return ps_load_error_set(err, EBADMSG, "damaged gzip data near byte %ju of the file: %s",
		        (uintmax_t)ps_stream_offset(f->in),
		        r == ISAL_INCORRECT_CHECKSUM ? "its checksum does not fit" : "not as gzip has it");
	s->taken = in_n - f->gzip->avail_in;
	s->made = out_n - f->gzip->avail_out;
	s->ended = f->gzip->block_state == ISAL_BLOCK_FINISH;
	return 0;
}
#endif

/* -- lz4 ----------------------------------------------------------------------------------------------- */

#ifdef HAVE_LZ4
static int lz4_new(struct ps_inflate *f, struct ps_load_error *err)
{
	if (LZ4F_isError(LZ4F_createDecompressionContext(&f->lz4, LZ4F_VERSION)))
		return ps_load_error_set(err, ENOMEM, "no memory for decompression");
	return 0;
}

static int lz4_step(struct ps_inflate *f, struct step *s, struct ps_load_error *err)
{
	size_t in_n = s->in_n, out_n = s->out_n,
	       left = LZ4F_decompress(f->lz4, s->out, &out_n, s->in, &in_n, NULL);

	if (LZ4F_isError(left))
		return ps_load_error_set(err, EBADMSG, "damaged lz4 data near byte %ju of the file: %s",
		        (uintmax_t)ps_stream_offset(f->in), LZ4F_getErrorName(left));
	s->taken = in_n;
	s->made = out_n;
	s->ended = left == 0;
	return 0;
}

/* The library does not tell: two blocks, and what its output may refer back to. */
static size_t lz4_nbytes(const struct ps_inflate *f)
{
	static const size_t blocks[] = {[LZ4F_max64KB] = 64UL << 10,
	        [LZ4F_max256KB] = 256UL << 10,
	        [LZ4F_max1MB] = 1UL << 20,
	        [LZ4F_max4MB] = 4UL << 20};
	LZ4F_frameInfo_t info;
	size_t none = 0;

	if (!f->inside || LZ4F_isError(LZ4F_getFrameInfo(f->lz4, &info, NULL, &none)) ||
	        (size_t)info.blockSizeID >= PS_ARRAY_LEN(blocks))
		return f->held;
	return 2 * blocks[info.blockSizeID] + (128UL << 10);
}
#endif

/* -- All ----------------------------------------------------------------------------------------------- */

static int unsupported(enum ps_codec codec, const char *library, struct ps_load_error *err)
{
	return ps_load_error_set(err, ENOSYS,
	        "is compressed by %s, which this build cannot read: install %s and build it anew",
	        names[codec], library);
}

static int legacy_refuse(struct ps_load_error *err)
{
	return ps_load_error_set(err, ENOSYS,
	        "is compressed in lz4's legacy format, which is not read; compress it again with lz4 without "
	        "-l");
}

static int codec_new(struct ps_inflate *f, struct ps_load_error *err)
{
	switch (f->codec) {
	case PS_CODEC_ZSTD:
		return zstd_new(f, err);
	case PS_CODEC_GZIP:
#ifdef HAVE_LISAL
		return gzip_new(f, err);
#else
		return unsupported(f->codec, "libisal-dev", err);
#endif
	case PS_CODEC_LZ4:
#ifdef HAVE_LZ4
		return lz4_new(f, err);
#else
		return unsupported(f->codec, "liblz4-dev", err);
#endif
	case PS_CODEC_LZ4_LEGACY:
		return legacy_refuse(err);
	case PS_CODEC_NONE:
		break;
	}
	return unsupported(PS_CODEC_NONE, "", err);
}

/* Counts what the decoder holds now. It cannot be left out, so the window gets what is left. */
static void held_count(struct ps_inflate *f)
{
	size_t held = f->held;

	if (!f->budget)
		return;
	if (f->codec == PS_CODEC_ZSTD)
		held = ZSTD_sizeof_DCtx(f->zstd);
#ifdef HAVE_LISAL
	if (f->codec == PS_CODEC_GZIP)
		held = sizeof(*f->gzip);
#endif
#ifdef HAVE_LZ4
	if (f->codec == PS_CODEC_LZ4)
		held = lz4_nbytes(f);
#endif
	if (held > f->held)
		ps_budget_force(f->budget, held - f->held);
	else if (held < f->held)
		ps_budget_give(f->budget, f->held - held);
	f->held = held;
}

int ps_inflate_new(enum ps_codec codec, struct ps_stream *in, struct ps_budget *budget,
        struct ps_inflate **ret_inflate, struct ps_load_error *err)
{
	struct ps_inflate *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	f->codec = codec;
	r = codec_new(f, err);
	if (r < 0) {
		free(f);
		return r;
	}
	f->in = in;
	f->budget = budget;
	*ret_inflate = f;
	return 0;
}

void ps_inflate_free(struct ps_inflate *f)
{
	if (!f)
		return;
	if (f->held > 0)
		ps_budget_give(f->budget, f->held);
	switch (f->codec) {
	case PS_CODEC_ZSTD:
		ZSTD_freeDCtx(f->zstd);
		break;
	case PS_CODEC_GZIP:
#ifdef HAVE_LISAL
		free(f->gzip);
#endif
		break;
	case PS_CODEC_LZ4:
#ifdef HAVE_LZ4
		LZ4F_freeDecompressionContext(f->lz4);
#endif
		break;
	case PS_CODEC_LZ4_LEGACY:
	case PS_CODEC_NONE:
		break;
	}
	ps_stream_free(f->in);
	free(f);
}

static int step_make(struct ps_inflate *f, struct step *s, struct ps_load_error *err)
{
	switch (f->codec) {
	case PS_CODEC_ZSTD:
		return zstd_step(f, s, err);
#ifdef HAVE_LISAL
	case PS_CODEC_GZIP:
		return gzip_step(f, s, err);
#endif
#ifdef HAVE_LZ4
	case PS_CODEC_LZ4:
		return lz4_step(f, s, err);
#endif
	default:
		return -ENOSYS;
	}
}

/* Whether what follows a frame may be another one, by as much of it as there is. */
static bool may_begin(enum ps_codec codec, const uint8_t *p, size_t n)
{
	static const uint8_t magics[][4] = {[PS_CODEC_ZSTD] = {0x28, 0xb5, 0x2f, 0xfd},
	        [PS_CODEC_GZIP] = {0x1f, 0x8b, 8},
	        [PS_CODEC_LZ4] = {0x04, 0x22, 0x4d, 0x18}};

	if (codec == PS_CODEC_GZIP)
		return p[0] == 0 || memcmp(p, magics[codec], PS_MIN(n, (size_t)3)) == 0;
	return memcmp(p, magics[codec], PS_MIN(n, (size_t)4)) == 0 ||
	       ((p[0] & 0xf0) == 0x50 && memcmp(p + 1, "\x2a\x4d\x18", PS_MIN(n - 1, (size_t)3)) == 0);
}

bool ps_inflate_has_garbage(const struct ps_inflate *f)
{
	return f->garbage;
}

int ps_inflate_read(struct ps_inflate *f, void *dst, size_t n, size_t *ret_got, struct ps_load_error *err)
{
	struct step s = {.out = dst, .out_n = n};

	*ret_got = 0;
	while (s.made == 0) {
		bool at_end;
		int r = ps_stream_peek_some(f->in, &s.in, &s.in_n, err);

		if (r < 0)
			return r;
		at_end = s.in_n == 0;
		if (at_end && !f->inside)
			return 0;
		f->garbage = !f->inside && f->any && !may_begin(f->codec, s.in, s.in_n);
		if (f->garbage && s.in_n >= PS_INFLATE_MAGIC && is_lz4_legacy(s.in))
			return legacy_refuse(err);
		if (f->garbage)
			return ps_load_error_set(err, EBADMSG,
			        "garbage behind the end of the %s data, at byte %ju of the file; write it "
			        "anew without",
			        names[f->codec], (uintmax_t)ps_stream_offset(f->in));
		s.taken = 0;
		s.ended = false;
		/* at the end, too: what is inside of the decoder may not have had room yet */
		r = step_make(f, &s, err);
		if (r < 0)
			return r;
		ps_stream_take(f->in, s.taken);
		f->inside = !s.ended;
		f->any = f->any || s.ended;
		held_count(f);
		if (at_end && s.made == 0 && f->inside)
			return ps_load_error_set(err, EBADMSG,
			        "truncated: the %s data end inside of a frame, at byte %ju of the file",
			        names[f->codec], (uintmax_t)ps_stream_offset(f->in));
		if (!at_end && s.taken == 0 && s.made == 0)
			return ps_load_error_set(err, EBADMSG,
			        "damaged %s data at byte %ju of the file: no progress", names[f->codec],
			        (uintmax_t)ps_stream_offset(f->in));
	}
	*ret_got = s.made;
	return 0;
}
