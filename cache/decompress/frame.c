#include "decompress/frame.h"

#include <errno.h>
#include <lz4frame.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zstd.h>

#include <isa-l/igzip_lib.h>

#include "base/size.h"

/* Frames and maps of them -------------------------------------------------------------------------------- */

#define ZSTD_MAGIC 0xFD2FB528u
#define SKIP_MAGIC 0x184D2A50u /* and the next 15 values */
#define SKIP_MASK 0xFFFFFFF0u
#define SKIP_HEADER_NBYTES 8
#define SEEK_MAGIC 0x8F92EAB1u
#define SEEK_CHECKSUMS 0x80u
#define SEEK_RESERVED 0x7Cu
#define MAP_FORMAT 1
#define FLAG_WHOLE 1u

static uint64_t le(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* Names -------------------------------------------------------------------------------------------------- */

enum ps_coding ps_coding_of_name(const char *name, size_t *ret_len, bool *ret_tar)
{
	static const struct {
		const char *suffix, *inner; /* inner must precede the suffix, and stays in the name */
		enum ps_coding coding;
	} known[] = {
	        {".zst", ".tar", PS_CODING_ZSTD},
	        {".gz", ".tar", PS_CODING_GZIP},
	        {".lz4", ".tar", PS_CODING_LZ4},
	        {".tzst", "", PS_CODING_ZSTD},
	        {".tgz", "", PS_CODING_GZIP},
	};
	size_t len = strlen(name);

	for (size_t i = 0; i < PS_ARRAY_LEN(known); i++) {
		size_t suffix = strlen(known[i].suffix), inner = strlen(known[i].inner);

		/* Something must precede the suffixes: ".tar.zst" would be shown as ".tar", a hidden
		 * file. */
		if (len <= suffix + inner || strcasecmp(name + len - suffix, known[i].suffix) != 0 ||
		        strncasecmp(name + len - suffix - inner, known[i].inner, inner) != 0 ||
		        name[len - suffix - inner - 1] == '/')
			continue;
		*ret_len = len - suffix;
		*ret_tar = inner == 0;
		return known[i].coding;
	}
	return PS_CODING_NONE;
}

const char *ps_coding_name(enum ps_coding coding)
{
	static const char *const names[] = {"", "zstd", "gzip", "lz4"};

	return names[coding];
}

/* Headers ------------------------------------------------------------------------------------------------ */

int ps_frame_header_parse(const uint8_t *p, size_t n, struct ps_frame_header *ret)
{
	static const uint8_t content_len[] = {0, 2, 4, 8}, dictionary_len[] = {0, 1, 2, 4};

	if (n < 4)
		return -EAGAIN;
	uint32_t magic = (uint32_t)le(p, 4);
	if ((magic & SKIP_MASK) == SKIP_MAGIC) {
		if (n < SKIP_HEADER_NBYTES)
			return -EAGAIN;
		*ret = (struct ps_frame_header){.skippable = true,
		        .header_nbytes = SKIP_HEADER_NBYTES,
		        .content_nbytes = le(p + 4, 4)};
		return 0;
	}
	if (magic != ZSTD_MAGIC)
		return -EBADMSG;
	if (n < 6)
		return -EAGAIN;
	uint8_t flags = p[4];
	bool single = flags >> 5 & 1;
	size_t ndict = dictionary_len[flags & 3], ncontent = content_len[flags >> 6];
	if (single && ncontent == 0)
		ncontent = 1;
	if (flags & 8)
		return -EBADMSG; /* reserved */
	size_t at = 5 + !single;
	if (n < at + ndict + ncontent)
		return -EAGAIN;
	struct ps_frame_header h = {.checksum = flags & 4,
	        .dictionary = le(p + at, ndict) != 0,
	        .content_nbytes =
	                ncontent ? le(p + at + ndict, ncontent) + (ncontent == 2 ? 256 : 0) : UINT64_MAX,
	        .header_nbytes = at + ndict + ncontent};
	if (single) {
		h.window_nbytes = h.content_nbytes;
	} else {
		uint64_t base = UINT64_C(1) << (10 + (p[5] >> 3));
		h.window_nbytes = base + base / 8 * (p[5] & 7);
	}
	*ret = h;
	return 0;
}

/* Maps --------------------------------------------------------------------------------------------------- */

void ps_frame_map_fini(struct ps_frame_map *map)
{
	free(map->points);
	*map = (struct ps_frame_map){0};
}

void ps_frame_map_add(struct ps_frame_map *map, uint64_t packed, uint64_t plain)
{
	const struct ps_frame_point *last = map->n ? &map->points[map->n - 1] : NULL;

	if (map->n >= PS_FRAME_MAP_MAX || map->whole || map->gap ||
	        (last && (packed <= last->packed || plain < last->plain)))
		return;
	if (map->n == map->cap) {
		size_t cap = map->cap ? 2 * map->cap : 16;
		struct ps_frame_point *points = reallocarray(map->points, cap, sizeof(*points));

		if (!points) {
			map->gap = true;
			return;
		}
		map->points = points;
		map->cap = cap;
	}
	map->points[map->n++] = (struct ps_frame_point){.packed = packed, .plain = plain};
}

size_t ps_frame_map_find(const struct ps_frame_map *map, uint64_t plain)
{
	size_t lo = 0, hi = map->n;

	while (hi - lo > 1) {
		size_t mid = (lo + hi) / 2;

		if (map->points[mid].plain <= plain)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static void put_number(struct ps_strbuf *b, uint64_t v)
{
	do {
		uint8_t byte = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));

		ps_strbuf_addn(b, &byte, 1);
		v >>= 7;
	} while (v);
}

static bool get_number(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 63; shift += 7) {
		if (*p == end)
			return false;
		uint8_t byte = *(*p)++;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

void ps_frame_map_encode(const struct ps_frame_map *map, struct ps_strbuf *b)
{
	uint8_t head[2] = {MAP_FORMAT, map->whole ? FLAG_WHOLE : 0};
	struct ps_frame_point last = {0};

	ps_strbuf_addn(b, head, sizeof(head));
	for (size_t i = 0; i < map->n; i++) {
		put_number(b, map->points[i].packed - last.packed);
		put_number(b, map->points[i].plain - last.plain);
		last = map->points[i];
	}
}

int ps_frame_map_decode(const void *bytes, size_t n, struct ps_frame_map *ret)
{
	const uint8_t *p = bytes, *end = p + n;
	struct ps_frame_map map = {0};
	struct ps_frame_point at = {0};

	if (n < 2 || p[0] != MAP_FORMAT || p[1] & ~FLAG_WHOLE)
		return -EBADMSG;
	bool whole = p[1] & FLAG_WHOLE;
	for (p += 2; p < end;) {
		uint64_t packed, plain;

		if (!get_number(&p, end, &packed) || !get_number(&p, end, &plain) || (map.n && packed == 0) ||
		        (!map.n && (packed || plain)) ||
		        __builtin_add_overflow(at.packed, packed, &at.packed) ||
		        __builtin_add_overflow(at.plain, plain, &at.plain)) {
			ps_frame_map_fini(&map);
			return -EBADMSG;
		}
		size_t before = map.n;
		ps_frame_map_add(&map, at.packed, at.plain);
		if (map.n == before) {
			ps_frame_map_fini(&map);
			return before < PS_FRAME_MAP_MAX ? -ENOMEM : -EBADMSG;
		}
	}
	map.whole = whole;
	if (whole && map.n < 2) {
		ps_frame_map_fini(&map);
		return -EBADMSG;
	}
	*ret = map;
	return 0;
}

/* Seek tables -------------------------------------------------------------------------------------------- */

static size_t entry_nbytes(uint8_t descriptor)
{
	return descriptor & SEEK_CHECKSUMS ? 12 : 8;
}

uint64_t ps_seek_footer_parse(const uint8_t p[static PS_SEEK_FOOTER_NBYTES], uint64_t file_nbytes)
{
	uint64_t n = le(p, 4);

	if ((uint32_t)le(p + 5, 4) != SEEK_MAGIC || p[4] & SEEK_RESERVED || n == 0 || n >= PS_FRAME_MAP_MAX)
		return 0;
	uint64_t nbytes = SKIP_HEADER_NBYTES + n * entry_nbytes(p[4]) + PS_SEEK_FOOTER_NBYTES;
	return nbytes < file_nbytes ? nbytes : 0;
}

int ps_seek_table_parse(const uint8_t *p, size_t n, uint64_t file_nbytes, struct ps_frame_map *ret)
{
	struct ps_frame_map map = {0};
	uint64_t packed = 0, plain = 0;

	if (n < SKIP_HEADER_NBYTES + PS_SEEK_FOOTER_NBYTES ||
	        ps_seek_footer_parse(p + n - PS_SEEK_FOOTER_NBYTES, file_nbytes) != n ||
	        ((uint32_t)le(p, 4) & SKIP_MASK) != SKIP_MAGIC || le(p + 4, 4) != n - SKIP_HEADER_NBYTES)
		return -EBADMSG;
	size_t step = entry_nbytes(p[n - 5]);
	const uint8_t *end = p + n - PS_SEEK_FOOTER_NBYTES;
	for (p += SKIP_HEADER_NBYTES; p < end; p += step) {
		uint64_t frame = le(p, 4);

		/* A frame without content (also a skippable one) is a point of its own. */
		if (frame == 0) {
			ps_frame_map_fini(&map);
			return -EBADMSG;
		}
		ps_frame_map_add(&map, packed, plain);
		packed += frame;
		plain += le(p + 4, 4);
	}
	size_t expect = map.n + 1;
	ps_frame_map_add(&map, packed, plain);
	if (packed != file_nbytes - n || map.n != expect) {
		int rc = packed != file_nbytes - n ? -EBADMSG : -ENOMEM;

		ps_frame_map_fini(&map);
		return rc;
	}
	map.whole = true;
	*ret = map;
	return 0;
}

/* Walks -------------------------------------------------------------------------------------------------- */

#define BLOCK_MAX_NBYTES (128 * UINT64_C(1024)) /* RFC 8878, 3.1.1.2.4 */
#define BLOCK_HEADER_NBYTES 3
#define CHECKSUM_NBYTES 4

enum block { BLOCK_RAW, BLOCK_REPEATED, BLOCK_COMPRESSED, BLOCK_RESERVED };

/* True if the file has this many more bytes. */
static bool fits(const struct ps_frame_walk *walk, uint64_t nbytes)
{
	return nbytes <= walk->file_nbytes - walk->at;
}

static int begin_frame(struct ps_frame_walk *walk, const uint8_t *p, size_t n)
{
	struct ps_frame_header header;
	int rc = ps_frame_header_parse(p, n, &header);

	if (rc == -EAGAIN && n == walk->file_nbytes - walk->at)
		return -EBADMSG;
	if (rc < 0)
		return rc;
	if (!fits(walk, header.header_nbytes))
		return -EBADMSG;
	ps_frame_map_add(&walk->map, walk->at, walk->plain);
	walk->at += header.header_nbytes;
	if (header.skippable) {
		if (!fits(walk, header.content_nbytes))
			return -EBADMSG;
		walk->at += header.content_nbytes;
		return 0;
	}
	if (header.content_nbytes == UINT64_MAX)
		return -ENODATA;
	walk->in_frame = true;
	walk->checksum = header.checksum;
	walk->content = header.content_nbytes;
	walk->least = walk->most = 0;
	return 0;
}

static int end_frame(struct ps_frame_walk *walk)
{
	walk->in_frame = false;
	if (walk->checksum && !fits(walk, CHECKSUM_NBYTES))
		return -EBADMSG;
	walk->at += walk->checksum ? CHECKSUM_NBYTES : 0;
	if (walk->content < walk->least || walk->content > walk->most ||
	        __builtin_add_overflow(walk->plain, walk->content, &walk->plain) || walk->plain > INT64_MAX)
		return -EBADMSG;
	return 0;
}

static int pass_block(struct ps_frame_walk *walk, const uint8_t *p, size_t n)
{
	if (!fits(walk, BLOCK_HEADER_NBYTES))
		return -EBADMSG;
	if (n < BLOCK_HEADER_NBYTES)
		return -EAGAIN;
	uint32_t header = (uint32_t)le(p, BLOCK_HEADER_NBYTES), nbytes = header >> 3;
	enum block kind = (enum block)(header >> 1 & 3);
	bool last = header & 1;

	if (kind == BLOCK_RESERVED)
		return -EBADMSG;
	walk->at += BLOCK_HEADER_NBYTES;
	if (!fits(walk, kind == BLOCK_REPEATED ? 1 : nbytes))
		return -EBADMSG;
	walk->at += kind == BLOCK_REPEATED ? 1 : nbytes;
	walk->least += kind == BLOCK_COMPRESSED ? 0 : nbytes;
	walk->most += kind == BLOCK_COMPRESSED ? BLOCK_MAX_NBYTES : nbytes;
	return last ? end_frame(walk) : 0;
}

int ps_frame_walk_step(struct ps_frame_walk *walk, const uint8_t *bytes, size_t n, uint64_t offset)
{
	struct ps_frame_map *map = &walk->map;

	while (walk->in_frame || walk->at < walk->file_nbytes) {
		size_t skip = (size_t)PS_MIN(walk->at - offset, (uint64_t)n);
		int rc = walk->in_frame ? pass_block(walk, bytes + skip, n - skip)
		         : n == skip    ? -EAGAIN
		                        : begin_frame(walk, bytes + skip, n - skip);

		if (rc < 0)
			return rc;
	}
	if (walk->at == 0)
		return -EBADMSG;
	ps_frame_map_add(map, walk->at, walk->plain);
	map->whole = map->n >= 2 && map->points[map->n - 1].packed == walk->at;
	return 0;
}

/* Decoders ----------------------------------------------------------------------------------------------- */

#define ZSTD_OVERHEAD_NBYTES (512 * UINT64_C(1024)) /* in addition to the window */
#define LZ4_NBYTES (9 * PS_MIB)                     /* two blocks of 4 MiB, and the window */
#define WINDOW_LOG_MAX 31                           /* the caller has limited the memory before */
/* ZSTD_d_stableOutBuffer under its name in the library's stable header. A library without it decodes all
 * frames through a window. */
#if ZSTD_VERSION_NUMBER >= 10500
#define STABLE_OUT ZSTD_d_experimentalParam2
#else
#define STABLE_OUT ((ZSTD_dParameter)0)
#endif

enum state {
	STATE_BETWEEN, /* no byte of the next frame has been consumed */
	STATE_HEADER,  /* head[] has a part of the header */
	STATE_BODY,
	STATE_SKIP,
	STATE_PADDING, /* zeros after a gzip file */
};

struct ps_decoder {
	enum ps_coding coding;
	enum state state;
	bool any;      /* a frame has ended */
	bool in_place; /* this frame's output buffer does not move, and serves as the window */
	uint8_t head[PS_FRAME_HEADER_MAX];
	size_t nhead, nfed; /* bytes in head, and how many of them the library has consumed */
	struct ps_frame_header frame;
	uint64_t left;  /* bytes left of a skippable frame */
	uint64_t plain; /* bytes of this frame so far */
	ZSTD_DCtx *zstd;
	struct inflate_state *gzip;
	LZ4F_dctx *lz4;
};

/* Prepares for the next frame. */
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
	struct ps_decoder *d = calloc(1, sizeof(*d));

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
	} else if ((d->gzip = malloc(sizeof(*d->gzip)))) {
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
		return sizeof(*d->gzip);
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

/* Collects a frame's header. 0: complete; -EAGAIN: more input is needed. */
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
		        d->any ? "what follows is not a zstd frame (garbage at the end?)"
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
	/* A frame with more content than its header declares fails before its end. */
	if (d->frame.content_nbytes != UINT64_MAX &&
	        (d->plain > d->frame.content_nbytes || (rc == 0 && d->plain < d->frame.content_nbytes)))
		return ps_error_set(err, EBADMSG, "its header declares %llu bytes, but it holds %llu%s",
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
		/* tar pads tapes with zeros; gzip accepts zeros after the end, too. */
		d->state = d->any && in[0] == 0 ? STATE_PADDING : STATE_BODY;
		if (d->state == STATE_BODY && (in[0] != 0x1f || (nin > 1 && in[1] != 0x8b)))
			return ps_error_set(
			        err, EBADMSG, d->any ? "garbage after its end" : "not in the gzip format");
		d->frame = (struct ps_frame_header){.content_nbytes = UINT64_MAX, .checksum = true};
		if (d->state == STATE_BODY) {
			*ret_event = PS_DECODE_HEADER;
			return 0;
		}
	}
	if (d->state == STATE_PADDING) {
		for (; *ret_in < nin; (*ret_in)++)
			if (in[*ret_in] != 0)
				return ps_error_set(err, EBADMSG, "garbage after its end");
		return 0;
	}
	if (d->state != STATE_BODY)
		return 0;
	size_t gave = PS_MIN(nin, (size_t)1 << 30), room = PS_MIN(nout, (size_t)1 << 30);
	d->gzip->next_in = (uint8_t *)(uintptr_t)in; /* the library does not write to it */
	d->gzip->avail_in = (uint32_t)gave;
	d->gzip->next_out = out;
	d->gzip->avail_out = (uint32_t)room;
	int rc = isal_inflate(d->gzip);
	*ret_in = gave - d->gzip->avail_in;
	*ret_out = room - d->gzip->avail_out;
	if (rc == ISAL_INCORRECT_CHECKSUM)
		return ps_error_set(err, EBADMSG, "damaged: its checksum does not match");
	if (rc < 0 || rc == ISAL_NEED_DICT)
		return ps_error_set(err, EBADMSG,
		        d->any ? "damaged, or garbage after its end: not valid gzip data"
		               : "damaged: not valid gzip data");
	if (d->gzip->block_state == ISAL_BLOCK_FINISH) {
		*ret_event = PS_DECODE_END;
		begin(d);
		d->any = true;
	}
	return 0;
}

/* liblz4 handles skippable frames: they are frames without content. */
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
	if (LZ4F_isError(rc)) {
		bool garbage = d->any && d->plain == 0;

		return ps_error_set(err, EBADMSG, "%s: %s",
		        garbage ? "garbage after its end" : "damaged, or not in the lz4 frame format",
		        LZ4F_getErrorName(rc));
	}
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
	return (d->zstd  ? zstd_step
	        : d->lz4 ? lz4_step
	                 : gzip_step)(d, in, nin, out, nout, ret_in, ret_out, ret_event, err);
}
