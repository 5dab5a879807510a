/* Names, headers, seek tables and maps of compressed shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/size.h"
#include "decompress/frame.h"
#include "decompress/decompress_private.h"

static void names_give_the_coding_and_the_stem(void **state)
{
	static const struct {
		const char *name;
		enum ps_coding coding;
		const char *stem; /* and ".tar" if tar */
		bool tar;
	} cases[] = {
	        {"x.tar.zst", PS_CODING_ZSTD, "x.tar", false},
	        {"x.TAR.ZST", PS_CODING_ZSTD, "x.TAR", false},
	        {"a.b.tar.gz", PS_CODING_GZIP, "a.b.tar", false},
	        {"x.tar.lz4", PS_CODING_LZ4, "x.tar", false},
	        {"x.tgz", PS_CODING_GZIP, "x", true},
	        {"x.tzst", PS_CODING_ZSTD, "x", true},
	        {"x.tar", PS_CODING_NONE, NULL, false},
	        {"x.json.gz", PS_CODING_NONE, NULL, false}, /* readers expect the compressed file */
	        {"x.zst", PS_CODING_NONE, NULL, false},
	        {".tar.gz", PS_CODING_NONE, NULL, false}, /* no name would be left */
	        {".tgz", PS_CODING_NONE, NULL, false},
	        {"gz", PS_CODING_NONE, NULL, false},
	        {"", PS_CODING_NONE, NULL, false},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		size_t len = 0;
		bool tar = false;

		assert_int_equal(ps_coding_of_name(cases[i].name, &len, &tar), cases[i].coding);
		if (!cases[i].stem)
			continue;
		assert_int_equal(len, strlen(cases[i].stem));
		assert_memory_equal(cases[i].name, cases[i].stem, len);
		assert_int_equal(tar, cases[i].tar);
	}
}

static void frame_headers_are_parsed(void **state)
{
	static const uint8_t single[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x07};
	/* a size in 2 bytes counts from 256 */
	static const uint8_t two[] = {0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x01, 0x00};
	static const uint8_t window[] = {
	        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x59}; /* window of 2 MiB + 256 KiB, with a checksum */
	static const uint8_t skip[] = {0x5e, 0x2a, 0x4d, 0x18, 0x03, 0x00, 0x00, 0x00};
	struct ps_frame_header h;

	(void)state;
	assert_int_equal(ps_frame_header_parse(single, sizeof(single), &h), 0);
	assert_int_equal(h.content_nbytes, 7);
	assert_int_equal(h.window_nbytes, 7);
	assert_int_equal(ps_frame_header_parse(two, sizeof(two), &h), 0);
	assert_int_equal(h.content_nbytes, 257);
	assert_int_equal(ps_frame_header_parse(window, sizeof(window), &h), 0);
	assert_true(h.content_nbytes == UINT64_MAX && h.checksum);
	assert_int_equal(h.window_nbytes, (UINT64_C(1) << 21) + (UINT64_C(1) << 18));
	assert_int_equal(ps_frame_header_parse(skip, sizeof(skip), &h), 0);
	assert_true(h.skippable && h.content_nbytes == 3);
	for (size_t n = 0; n < sizeof(two); n++)
		assert_int_equal(ps_frame_header_parse(two, n, &h), -EAGAIN);
	assert_int_equal(ps_frame_header_parse((const uint8_t *)"\x1f\x8b\x08\x00", 4, &h), -EBADMSG);
	/* The reserved bit is refused: it may get a meaning. */
	uint8_t reserved[sizeof(single)];
	memcpy(reserved, single, sizeof(single));
	reserved[4] |= 8;
	assert_int_equal(ps_frame_header_parse(reserved, sizeof(reserved), &h), -EBADMSG);
}

static void a_frame_that_needs_a_dictionary_is_an_error(void **state)
{
	static const uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x21, 7, 3, 0x19, 0, 0, 'a', 'b', 'c'};
	struct ps_decoder *d = ps_decoder_new(PS_CODING_ZSTD);
	enum ps_decode_event event;
	struct ps_error err = {0};
	uint8_t out[16];
	size_t used, made;

	(void)state;
	assert_non_null(d);
	assert_int_equal(
	        ps_decoder_step(d, frame, sizeof(frame), out, sizeof(out), &used, &made, &event, &err),
	        -EBADMSG);
	assert_non_null(strstr(err.text, "dictionary"));
	ps_decoder_free(d);
}

/* 90 bytes of frames, then a seek table of three frames: 40 + 20 + 30 bytes, which decode to 100 + 0 +
 * 50. */
static void make_table(uint8_t file[static 140])
{
	static const uint32_t words[] = {0x184D2A5E, 33, 40, 100, 20, 0, 30, 50, 3};

	memset(file, 1, 140);
	for (size_t i = 0; i < PS_ARRAY_LEN(words); i++)
		for (int b = 0; b < 4; b++)
			file[90 + 4 * i + b] = (uint8_t)(words[i] >> (8 * b));
	memcpy(file + 90 + 36, "\x00\xb1\xea\x92\x8f", 5);
}

/* Decodes n bytes. Returns 0 and whether the file may end there, or the decoder's error. */
static int gunzip(const uint8_t *in, size_t n, bool *ret_may_end, struct ps_error *err)
{
	struct ps_decoder *d = ps_decoder_new(PS_CODING_GZIP);
	enum ps_decode_event event;
	uint8_t out[16];
	size_t used, made, at = 0;
	int rc = 0;

	assert_non_null(d);
	do {
		rc = ps_decoder_step(d, in + at, n - at, out, sizeof(out), &used, &made, &event, err);
		at += used;
	} while (rc == 0 && (used > 0 || made > 0 || event != PS_DECODE_MORE));
	*ret_may_end = ps_decoder_may_end(d);
	ps_decoder_free(d);
	return rc;
}

static void gzip_files_end_where_they_may(void **state)
{
	/* A member: "abc", its checksum and its length. The file: two of these, two zeros as padding, and
	 * garbage. */
	static const uint8_t member[] = {0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0x02, 0x03, 0x4b, 0x4c, 0x4a, 0x06,
	        0, 0xc2, 0x41, 0x24, 0x35, 0x03, 0, 0, 0};
	enum { N = sizeof(member) };
	uint8_t file[2 * N + 3] = {0};
	struct ps_error err = {0};
	bool may_end;

	(void)state;
	memcpy(file, member, N);
	memcpy(file + N, member, N);
	file[2 * N + 2] = 'x';
	for (size_t n = 1; n < sizeof(file); n++) {
		assert_int_equal(gunzip(file, n, &may_end, &err), 0);
		assert_int_equal(may_end, n == N || n >= 2 * N);
	}
	assert_int_equal(gunzip(file, sizeof(file), &may_end, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "garbage after its end"));
	file[N - 8] ^= 1;
	assert_int_equal(gunzip(file, N, &may_end, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "checksum"));
}

/* Decompressors deliver bytes in any order, and some of them twice. */
static void a_get_takes_each_byte_once_and_to_its_place(void **state)
{
	enum { OFFSET = 1000, FIRST = 100, N = 4 * PS_WAITING_GET_RANGES + FIRST };
	uint8_t plain[OFFSET + N + 100], got[N], other[OFFSET + N + 100] = {0};
	struct iovec iov[] = {{got, FIRST}, {got + FIRST, N - FIRST}};
	struct ps_origin_get get = {.offset = OFFSET, .nbytes = N, .iov = iov, .niov = 2};
	struct ps_waiting_get waiting = {.get = &get};
	struct ps_range gap;

	(void)state;
	for (size_t i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)(i * 7 + i / 200 + 1);
	memset(got, 0, sizeof(got));
	/* The first copy goes over the end of the first buffer. A copy of the same range with other bytes
	 * changes nothing. */
	assert_true(ps_waiting_get_copy(&waiting, OFFSET + 90, OFFSET + 130, plain + OFFSET + 90));
	assert_true(ps_waiting_get_copy(&waiting, OFFSET + 80, OFFSET + 90, plain + OFFSET + 80));
	assert_false(ps_waiting_get_copy(&waiting, OFFSET + 80, OFFSET + 130, other));
	memcpy(other + OFFSET + 70, plain + OFFSET + 70, 10);
	assert_true(ps_waiting_get_copy(&waiting, OFFSET + 70, OFFSET + 130, other + OFFSET + 70));
	assert_memory_equal(got + 70, plain + OFFSET + 70, 60);
	assert_int_equal(waiting.nhave, 1);
	assert_true(ps_waiting_get_gap(&waiting, 0, &gap));
	assert_int_equal(gap.from, OFFSET);
	assert_int_equal(gap.end, OFFSET + 70);
	/* A get remembers a limited number of ranges; bytes of further ranges are requested again. */
	for (size_t i = 0; i < PS_WAITING_GET_RANGES + 4; i++) {
		uint64_t at = OFFSET + 140 + 3 * i;

		assert_int_equal(
		        ps_waiting_get_copy(&waiting, at, at + 1, plain + at), i + 1 < PS_WAITING_GET_RANGES);
	}
	assert_int_equal(waiting.nhave, PS_WAITING_GET_RANGES);
	assert_true(ps_waiting_get_copy(&waiting, 0, sizeof(plain), plain));
	assert_false(ps_waiting_get_gap(&waiting, 0, &gap));
	assert_memory_equal(got, plain + OFFSET, N);
}

static void seek_tables_are_parsed(void **state)
{
	enum { SIZE = 90 + 41, TABLE = 41 };
	struct ps_frame_map map = {0};
	uint8_t file[140];

	(void)state;
	make_table(file);
	assert_int_equal(ps_seek_footer_parse(file + SIZE - 9, SIZE), TABLE);
	assert_int_equal(ps_seek_table_parse(file + 90, TABLE, SIZE, &map), 0);
	assert_int_equal(map.n, 4);
	assert_true(map.whole);
	assert_int_equal(map.points[3].packed, 90);
	assert_int_equal(map.points[3].plain, 150);
	/* Of frames that begin at the same place, the one that is not empty is found. */
	assert_int_equal(ps_frame_map_find(&map, 99), 0);
	assert_int_equal(ps_frame_map_find(&map, 100), 2);
	assert_int_equal(ps_frame_map_find(&map, 149), 2);
	ps_frame_map_fini(&map);

	assert_int_equal(
	        ps_seek_table_parse(file + 90, TABLE, SIZE + 1, &map), -EBADMSG); /* frames are missing */
	file[90 + 8] = 0;                                                         /* a frame of 0 bytes */
	assert_int_equal(ps_seek_table_parse(file + 90, TABLE, SIZE, &map), -EBADMSG);
	make_table(file);
	assert_int_equal(ps_seek_table_parse(file + 90, TABLE, SIZE, &map), 0);
	ps_frame_map_fini(&map);
	file[90 + 4]++; /* decoders would skip more than the table */
	assert_int_equal(ps_seek_table_parse(file + 90, TABLE, SIZE, &map), -EBADMSG);
	file[SIZE - 8] = 0xff; /* many frames */
	assert_int_equal(ps_seek_footer_parse(file + SIZE - 9, SIZE), 0);
	/* PS_FRAME_MAP_MAX frames are too many, one fewer are not; the file is large enough for both. */
	for (unsigned less = 0; less < 2; less++) {
		for (int b = 0; b < 4; b++)
			file[SIZE - 9 + b] = (uint8_t)((PS_FRAME_MAP_MAX - less) >> (8 * b));
		assert_int_equal(ps_seek_footer_parse(file + SIZE - 9, UINT64_C(1) << 40),
		        less ? 8 + 8 * (uint64_t)(PS_FRAME_MAP_MAX - 1) + 9 : 0);
	}
	make_table(file);
	file[SIZE - 5] = 0x80; /* with checksums */
	assert_int_equal(ps_seek_footer_parse(file + SIZE - 9, SIZE), TABLE + 3 * 4);
	file[SIZE - 1] = 0;
	assert_int_equal(ps_seek_footer_parse(file + SIZE - 9, SIZE), 0);
}

static void frame_maps_are_encoded_and_decoded(void **state)
{
	struct ps_frame_map map = {0}, back = {0};
	ps_autostrbuf struct ps_strbuf bytes = {0};

	(void)state;
	for (uint64_t i = 0; i < 1000; i++)
		ps_frame_map_add(&map, i * 12345, i * i * 1000003);
	assert_int_equal(map.n, 1000);
	ps_frame_map_add(&map, 999 * 12345, 0); /* not after the others: left out */
	assert_int_equal(map.n, 1000);
	ps_frame_map_encode(&map, &bytes);
	assert_int_equal(ps_frame_map_decode(bytes.s, bytes.len, &back), 0);
	assert_int_equal(back.n, 1000);
	assert_false(back.whole);
	assert_memory_equal(back.points, map.points, 1000 * sizeof(*map.points));
	ps_frame_map_fini(&back);
	/* The first point is 0, 0. Then come a point that is cut, a number without an end, and a number that
	 * is too large. */
	static const uint8_t half[] = {1, 0, 0, 0, 5, 3}, endless[] = {1, 0, 0, 0, 0x80, 0x80, 0x80, 0x80,
	                                                          0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 1};
	uint8_t beyond[4 + 3 * 10] = {1, 0, 0, 0};
	for (size_t i = 0; i < 3; i++) {
		memset(beyond + 4 + 10 * i, 0xff, 10);
		beyond[4 + 10 * i] = 1;
		beyond[4 + 10 * i + 9] = 0x7f;
	}
	assert_int_equal(ps_frame_map_decode(half, sizeof(half), &back), 0);
	ps_frame_map_fini(&back);
	assert_int_equal(ps_frame_map_decode(half, sizeof(half) - 1, &back), -EBADMSG);
	assert_int_equal(ps_frame_map_decode(endless, sizeof(endless), &back), -EBADMSG);
	assert_int_equal(ps_frame_map_decode(beyond, sizeof(beyond) - 10, &back), 0);
	ps_frame_map_fini(&back);
	assert_int_equal(ps_frame_map_decode(beyond, sizeof(beyond), &back), -EBADMSG);
	for (size_t n = 0; n < 20; n++) {
		struct ps_frame_map cut = {0};

		if (ps_frame_map_decode(bytes.s, n, &cut) == 0)
			ps_frame_map_fini(&cut);
	}
	ps_frame_map_fini(&map);
	ps_frame_map_fini(&back);
}

/* Adds the frame that zstd makes of n bytes. sized: the frame's header has n; false: it has no size, as when
 * zstd compresses a pipe. */
static void add_frame(struct ps_strbuf *file, size_t n, bool sized, bool checksum)
{
	ps_autofree char *plain = malloc(n + 1), *packed = malloc(ZSTD_compressBound(n) + 64);
	ZSTD_CCtx *cctx = ZSTD_createCCtx();
	ZSTD_inBuffer in = {.src = plain, .size = n};
	ZSTD_outBuffer out = {.dst = packed, .size = ZSTD_compressBound(n) + 64};
	uint32_t x = (uint32_t)n;

	assert_non_null(cctx);
	for (size_t i = 0; i < n; i++) {
		x = x * 1664525 + 1013904223;
		plain[i] = (char)(i % 100000 < 30000 ? x >> 24 : 'a' + (x >> 30)); /* raw blocks and others */
	}
	ZSTD_CCtx_setParameter(cctx, ZSTD_c_checksumFlag, checksum);
	if (sized)
		ZSTD_CCtx_setPledgedSrcSize(cctx, n);
	assert_false(ZSTD_isError(ZSTD_compressStream2(cctx, &out, &in, ZSTD_e_flush)));
	assert_int_equal(ZSTD_compressStream2(cctx, &out, &in, ZSTD_e_end), 0);
	ps_strbuf_addn(file, packed, out.pos);
	ZSTD_freeCCtx(cctx);
}

/* Walks over the file. Each step gets `window` bytes, or fewer at the file's end, from the place that the
 * walk asks for. */
static int walk_in(const struct ps_strbuf *file, size_t window, struct ps_frame_walk *walk)
{
	int rc;

	*walk = (struct ps_frame_walk){.file_nbytes = file->len};
	do {
		uint64_t at = walk->at;

		rc = ps_frame_walk_step(
		        walk, (const uint8_t *)file->s + at, PS_MIN(window, file->len - (size_t)at), at);
		assert_true(rc != -EAGAIN || walk->at > at);
	} while (rc == -EAGAIN);
	return rc;
}

static void a_walk_over_frames_gives_size_and_map(void **state)
{
	static const uint8_t skippable[] = {0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'};
	static const size_t sizes[] = {0, 1, 700, 130000, 131072, 131073, 500000, 2000000};
	static const size_t windows[] = {PS_FRAME_HEADER_MAX, 4096, PS_MIB, SIZE_MAX};
	ps_autostrbuf struct ps_strbuf file = {0};
	uint64_t begins[2 * PS_ARRAY_LEN(sizes)];
	struct ps_frame_walk walk;
	uint64_t plain = 0;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
		begins[2 * i] = file.len;
		add_frame(&file, sizes[i], true, i % 2);
		begins[2 * i + 1] = file.len;
		ps_strbuf_addn(&file, skippable, sizeof(skippable));
		plain += sizes[i];
	}
	for (size_t w = 0; w < PS_ARRAY_LEN(windows); w++) {
		assert_int_equal(walk_in(&file, windows[w], &walk), 0);
		assert_int_equal(walk.plain, plain);
		assert_true(walk.map.whole);
		assert_int_equal(walk.map.n, PS_ARRAY_LEN(begins) + 1);
		for (size_t i = 0; i < PS_ARRAY_LEN(begins); i++)
			assert_int_equal(walk.map.points[i].packed, begins[i]);
		ps_frame_map_fini(&walk.map);
	}

	size_t whole = file.len;
	for (size_t cut = 1; cut < 200; cut++) { /* one of these ends with a frame */
		file.len = whole - cut;
		bool at_end = cut == sizeof(skippable);
		assert_int_equal(walk_in(&file, 4096, &walk), at_end ? 0 : -EBADMSG);
		ps_frame_map_fini(&walk.map);
	}
	file.len = whole;
	ps_strbuf_add(&file, "trailing");
	assert_int_equal(walk_in(&file, 4096, &walk), -EBADMSG);
	ps_frame_map_fini(&walk.map);
	file.len = whole;
	add_frame(&file, 70000, false, false);
	assert_int_equal(walk_in(&file, 4096, &walk), -ENODATA);
	ps_frame_map_fini(&walk.map);
	file.len = 0;
	assert_int_equal(walk_in(&file, 4096, &walk), -EBADMSG);
	ps_frame_map_fini(&walk.map);
}

/* A frame's content cannot be longer than its blocks allow, nor shorter than those blocks that are not
 * compressed. */
static void a_walk_refuses_sizes_that_contradict_the_blocks(void **state)
{
	/* A size in 8 bytes, then one block: "abc", not compressed, or 5 times "a". */
	uint8_t raw[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0, 3, 0, 0, 0, 0, 0, 0, 0, 0x19, 0, 0, 'a', 'b', 'c'};
	uint8_t repeated[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0, 5, 0, 0, 0, 0, 0, 0, 0, 0x2b, 0, 0, 'a'};
	static const struct {
		uint8_t size[8];
		int raw, repeated;
	} cases[] = {
	        {{3}, 0, -EBADMSG},
	        {{5}, -EBADMSG, 0},
	        {{4}, -EBADMSG, -EBADMSG},
	        {{0}, -EBADMSG, -EBADMSG},
	        {{3, 0, 0, 0, 0, 0, 0, 1}, -EBADMSG, -EBADMSG},
	        {{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -EBADMSG, -EBADMSG},
	};
	struct ps_frame_walk walk;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		memcpy(raw + 5, cases[i].size, 8);
		memcpy(repeated + 5, cases[i].size, 8);
		walk = (struct ps_frame_walk){.file_nbytes = sizeof(raw)};
		assert_int_equal(ps_frame_walk_step(&walk, raw, sizeof(raw), 0), cases[i].raw);
		ps_frame_map_fini(&walk.map);
		walk = (struct ps_frame_walk){.file_nbytes = sizeof(repeated)};
		assert_int_equal(ps_frame_walk_step(&walk, repeated, sizeof(repeated), 0), cases[i].repeated);
		ps_frame_map_fini(&walk.map);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_give_the_coding_and_the_stem),
	        cmocka_unit_test(frame_headers_are_parsed),
	        cmocka_unit_test(a_frame_that_needs_a_dictionary_is_an_error),
	        cmocka_unit_test(gzip_files_end_where_they_may),
	        cmocka_unit_test(a_get_takes_each_byte_once_and_to_its_place),
	        cmocka_unit_test(seek_tables_are_parsed),
	        cmocka_unit_test(frame_maps_are_encoded_and_decoded),
	        cmocka_unit_test(a_walk_over_frames_gives_size_and_map),
	        cmocka_unit_test(a_walk_refuses_sizes_that_contradict_the_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
