#include "decompress/codec.h"

#include <errno.h>
#include <string.h>

#include <isa-l/igzip_lib.h>
#include <lz4frame.h>
#include <zstd.h>

#include "base/size.h"

#define ZSTD_OVERHEAD_NBYTES (512 * UINT64_C(1024)) /* beside the window */
#define LZ4_NBYTES (9 * PS_MIB) /* two blocks of 4 MiB, and the window */
#define WINDOW_LOG_MAX 31                           /* what the memory allows is decided before */
/* ZSTD_d_stableOutBuffer by its name in the library's stable header; a library that does not know it decodes
 * all frames through a window. */
#if ZSTD_VERSION_NUMBER >= 10500
#define STABLE_OUT ZSTD_d_experimentalParam2
#else
#define STABLE_OUT ((ZSTD_dParameter)0)
#endif

enum state {
	STATE_BETWEEN, /* no byte of the next frame was taken */
	STATE_HEADER,  /* head[] has some of it */
	STATE_BODY,
	STATE_SKIP,
	STATE_PADDING, /* zeros behind a gzip file */
};

struct ps_decoder {
	enum ps_coding coding;
	enum state state;
	bool any;      /* a frame has ended */
	bool in_place; /* this frame's output stays where it is: it is its own window */
	uint8_t head[PS_FRAME_HEADER_MAX];
	size_t nhead, nfed; /* of head: what is there, and what the library has taken */
	struct ps_frame_header frame;
	uint64_t left;  /* of a skippable frame */
	uint64_t plain; /* of this frame */
	ZSTD_DCtx *zstd;
	struct inflate_state *gzip;
	LZ4F_dctx *lz4;
};

/* For the next frame. */
static void begin(struct ps_decoder *d)
{
	if (d->zstd) {
		ZSTD_DCtx_reset(d->zstd, ZSTD_reset_session_only);
		if (d->in_place)
			(void)ZSTD_DCtx_setParameter(d->zstd, STABLE_OUT, 0);
	} else if (d->lz4) {
		LZ4F_resetDecompressionContext(d->lz4);
	} else {
		isal_inflate_init(d->gzip);
		d->gzip->crc_flag = ISAL_GZIP;
	}
	d->state = STATE_BETWEEN;
	d->nhead = d->nfed = 0;
	d->plain = 0;
	d->in_place = false;
}

struct ps_decoder *ps_decoder_new(enum ps_coding coding)
{
	struct ps_decoder *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->coding = coding;
	if (coding == PS_CODING_ZSTD) {
		d->zstd = ZSTD_createDCtx();
		if (d->zstd &&
		        !ZSTD_isError(ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
			return d;
	} else if (coding == PS_CODING_LZ4) {
		if (!LZ4F_isError(LZ4F_createDecompressionContext(&d->lz4, LZ4F_VERSION)))
			return d;
	} else if ((d->gzip = malloc(sizeof *d->gzip))) {
		begin(d);
		return d;
	}
	ps_decoder_free(d);
	return NULL;
}

void ps_decoder_free(struct ps_decoder *d)
{
	if (!d)
		return;
	ZSTD_freeDCtx(d->zstd);
	free(d->gzip);
	LZ4F_freeDecompressionContext(d->lz4);
	free(d);
}

const struct ps_frame_header *ps_decoder_frame(const struct ps_decoder *d)
{
	return &d->frame;
}

uint64_t ps_decoder_nbytes(const struct ps_decoder *d)
{
	if (d->coding == PS_CODING_GZIP)
		return sizeof *d->gzip;
	if (d->coding == PS_CODING_LZ4)
		return LZ4_NBYTES;
	return d->frame.skippable ? ZSTD_OVERHEAD_NBYTES : d->frame.window_nbytes + ZSTD_OVERHEAD_NBYTES;
}

void ps_decoder_in_place(struct ps_decoder *d)
{
	d->in_place = d->zstd && d->state == STATE_BODY && d->plain == 0 &&
	              !ZSTD_isError(ZSTD_DCtx_setParameter(d->zstd, STABLE_OUT, 1));
}

bool ps_decoder_may_end(const struct ps_decoder *d)
{
	return d->any && (d->state == STATE_BETWEEN || d->state == STATE_PADDING);
}

/* Collects a header; 0: it is there, with the event; -EAGAIN: more is needed. */
static int take_header(
        struct ps_decoder *d, const uint8_t *in, size_t nin, size_t *ret_in, struct ps_error *err)
{
	size_t used = 0;
	int rc = d->nhead ? ps_frame_header_parse(d->head, d->nhead, &d->frame) : -EAGAIN;

	while (rc == -EAGAIN && used < nin) {
		d->state = STATE_HEADER;
		d->head[d->nhead++] = in[used++];
		rc = ps_frame_header_parse(d->head, d->nhead, &d->frame);
	}
	*ret_in = used;
	if (rc == -EBADMSG)
		return ps_error_set(err, EBADMSG,
		        d->any ? "what follows is no zstd frame (garbage at the end?)"
		               : "not in the zstd format");
	if (rc == 0 && d->frame.dictionary)
		return ps_error_set(
		        err, EBADMSG, "it was compressed with a dictionary, without which it cannot be read");
	if (rc == 0) {
		d->state = d->frame.skippable ? STATE_SKIP : STATE_BODY;
		d->left = d->frame.content_nbytes;
	}
	return rc;
}

static int zstd_body(struct ps_decoder *d, const uint8_t *in, size_t nin, uint8_t *out, size_t nout,
        size_t *ret_in, size_t *ret_out, enum ps_decode_event *ret_event, struct ps_error *err)
{
	size_t before = d->in_place ? (size_t)d->plain : 0;
	ZSTD_outBuffer o = {.dst = out - before, .size = before + nout, .pos = before};
	size_t rc = 1;

	if (d->nfed < d->nhead) {
		ZSTD_inBuffer h = {.src = d->head, .size = d->nhead, .pos = d->nfed};

		rc = ZSTD_decompressStream(d->zstd, &o, &h);
		d->nfed = h.pos;
	}
	ZSTD_inBuffer i = {.src = in, .size = nin};
	if (!ZSTD_isError(rc) && d->nfed == d->nhead)
		rc = ZSTD_decompressStream(d->zstd, &o, &i);
	*ret_in = i.pos;
	*ret_out = o.pos - before;
	d->plain += *ret_out;
	if (ZSTD_isError(rc))
		return ps_error_set(err, EBADMSG, "damaged: %s", ZSTD_getErrorName(rc));
	/* Of one that goes on past what it tells there is no need to see the end. */
	if (d->frame.content_nbytes != UINT64_MAX &&
	        (d->plain > d->frame.content_nbytes || (rc == 0 && d->plain < d->frame.content_nbytes)))
		return ps_error_set(err, EBADMSG, "its header tells of %llu bytes, it holds %llu%s",
		        (unsigned long long)d->frame.content_nbytes, (unsigned long long)d->plain,
		        rc != 0 ? " at least" : "");
	if (rc != 0)
		return 0;
	*ret_event = PS_DECODE_END;
	begin(d);
	d->any = true;
	return 0;
}

static int zstd_step(struct ps_decoder *d, const uint8_t *in, size_t nin, uint8_t *out, size_t nout,
        size_t *ret_in, size_t *ret_out, enum ps_decode_event *ret_event, struct ps_error *err)
{
	if (d->state == STATE_BETWEEN || d->state == STATE_HEADER) {
		int rc = take_header(d, in, nin, ret_in, err);

		if (rc == 0)
			*ret_event = PS_DECODE_HEADER;
		return rc == -EAGAIN ? 0 : rc;
	}
	if (d->state == STATE_BODY)
		return zstd_body(d, in, nin, out, nout, ret_in, ret_out, ret_event, err);
	*ret_in = (size_t)PS_MIN((uint64_t)nin, d->left);
	d->left -= *ret_in;
	if (d->left == 0) {
		*ret_event = PS_DECODE_END;
		begin(d);
		d->any = true;
	}
	return 0;
}

static int gzip_step(struct ps_decoder *d, const uint8_t *in, size_t nin, uint8_t *out, size_t nout,
        size_t *ret_in, size_t *ret_out, enum ps_decode_event *ret_event, struct ps_error *err)
{
	if (d->state == STATE_BETWEEN && nin > 0) {
		/* tar pads with zeros what it writes to tapes, and gzip lets them pass. */
		d->state = d->any && in[0] == 0 ? STATE_PADDING : STATE_BODY;
		if (d->state == STATE_BODY && (in[0] != 0x1f || (nin > 1 && in[1] != 0x8b)))
			return ps_error_set(
			        err, EBADMSG, d->any ? "garbage behind its end" : "not in the gzip format");
		d->frame = (struct ps_frame_header){.content_nbytes = UINT64_MAX, .checksum = true};
		if (d->state == STATE_BODY) {
			*ret_event = PS_DECODE_HEADER;
			return 0;
		}
	}
	if (d->state == STATE_PADDING) {
		for (; *ret_in < nin; (*ret_in)++)
			if (in[*ret_in] != 0)
				return ps_error_set(err, EBADMSG, "garbage behind its end");
		return 0;
	}
	if (d->state != STATE_BODY)
		return 0;
	size_t gave = PS_MIN(nin, (size_t)1 << 30), room = PS_MIN(nout, (size_t)1 << 30);
	d->gzip->next_in = (uint8_t *)(uintptr_t)in; /* it is not written to */
	d->gzip->avail_in = (uint32_t)gave;
	d->gzip->next_out = out;
	d->gzip->avail_out = (uint32_t)room;
	int rc = isal_inflate(d->gzip);
	*ret_in = gave - d->gzip->avail_in;
	*ret_out = room - d->gzip->avail_out;
	if (rc == ISAL_INCORRECT_CHECKSUM)
		return ps_error_set(err, EBADMSG, "damaged: its checksum does not fit");
	if (rc < 0 || rc == ISAL_NEED_DICT)
		return ps_error_set(err, EBADMSG,
		        d->any ? "damaged, or garbage behind its end: not as gzip has it"
		               : "damaged: not as gzip has it");
	if (d->gzip->block_state == ISAL_BLOCK_FINISH) {
		*ret_event = PS_DECODE_END;
		begin(d);
		d->any = true;
	}
	return 0;
}

/* Skippable frames are frames that hold nothing. */
static int lz4_step(struct ps_decoder *d, const uint8_t *in, size_t nin, uint8_t *out, size_t nout,
        size_t *ret_in, size_t *ret_out, enum ps_decode_event *ret_event, struct ps_error *err)
{
	if (d->state == STATE_BETWEEN && nin > 0) {
		d->state = STATE_BODY;
		d->frame = (struct ps_frame_header){.content_nbytes = UINT64_MAX, .checksum = true};
		*ret_event = PS_DECODE_HEADER;
		return 0;
	}
	if (d->state != STATE_BODY)
		return 0;
	size_t gave = nin, room = nout;
	size_t rc = LZ4F_decompress(d->lz4, out, &room, in, &gave, NULL);
	*ret_in = gave;
	*ret_out = room;
	d->plain += room;
	if (LZ4F_isError(rc))
		return ps_error_set(err, EBADMSG, "%s: %s",
		        d->any && d->plain == 0 ? "garbage behind its end" : "damaged, or not in the lz4 frame format",
		        LZ4F_getErrorName(rc));
	if (rc == 0) {
		*ret_event = PS_DECODE_END;
		begin(d);
		d->any = true;
	}
	return 0;
}

int ps_decoder_step(struct ps_decoder *d, const uint8_t *in, size_t nin, uint8_t *out, size_t nout,
        size_t *ret_in, size_t *ret_out, enum ps_decode_event *ret_event, struct ps_error *err)
{
	*ret_in = *ret_out = 0;
	*ret_event = PS_DECODE_MORE;
	return (d->zstd ? zstd_step : d->lz4 ? lz4_step : gzip_step)(d, in, nin, out, nout, ret_in, ret_out, ret_event, err);
}
