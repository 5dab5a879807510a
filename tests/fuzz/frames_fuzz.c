/* Tests frame headers, seek tables, maps of frames and the decoders with any bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decompress/frame.h"

#define OUT_MAX ((size_t)1 << 22)
#define ROOM ((size_t)4096) /* output space of a frame that is decoded through a window */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The points of an accepted map must rise, and the map must stay the same when it is encoded and decoded. */
static void check_map(struct ps_frame_map *map)
{
	ps_autostrbuf struct ps_strbuf bytes = {0};
	struct ps_frame_map again = {0};

	if (!map->whole || map->n < 2)
		abort();
	for (size_t i = 1; i < map->n; i++)
		if (map->points[i].packed <= map->points[i - 1].packed ||
		        map->points[i].plain < map->points[i - 1].plain)
			abort();
	for (size_t i = 0; i < map->n; i++) {
		size_t at = ps_frame_map_find(map, map->points[i].plain);

		if (map->points[at].plain != map->points[i].plain)
			abort();
	}
	ps_frame_map_encode(map, &bytes);
	if (!bytes.failed && (ps_frame_map_decode(bytes.s, bytes.len, &again) < 0 || again.n != map->n ||
	                             memcmp(again.points, map->points, map->n * sizeof(*map->points)) != 0))
		abort();
	ps_frame_map_fini(&again);
	ps_frame_map_fini(map);
}

/* Decodes the data. in_place: frames that declare their size are decoded into a buffer of that size, as in
 * the decompressing stage. */
static void decode(
        enum ps_coding coding, bool in_place, const uint8_t *data, size_t size, struct ps_strbuf *ret)
{
	struct ps_decoder *decoder = ps_decoder_new(coding);
	static uint8_t out[OUT_MAX];
	size_t at = 0, from = 0, room = ROOM, used, made;
	enum ps_decode_event event = PS_DECODE_MORE;
	struct ps_error err;

	if (!decoder)
		return;
	do {
		/* The input comes in small pieces, as from a network. */
		size_t bite = size - at < 61 ? size - at : 61;

		if (ps_decoder_step(decoder, data + at, bite, out + from, room - from, &used, &made, &event,
		            &err) < 0)
			break;
		if (used > bite || made > room - from)
			abort();
		at += used;
		ps_strbuf_addn(ret, out + from, made);
		from += made;
		if (event == PS_DECODE_HEADER) {
			uint64_t content = ps_decoder_frame(decoder)->content_nbytes;

			if (ps_decoder_nbytes(decoder) > OUT_MAX)
				break; /* the stage refuses it, too */
			if (in_place && !ps_decoder_frame(decoder)->skippable && content < OUT_MAX) {
				from = 0;
				room = (size_t)content + 1;
				ps_decoder_in_place(decoder);
			}
		} else if (event == PS_DECODE_END || room == ROOM) {
			from = 0;
			room = ROOM;
		} else if (from == room) {
			abort(); /* more than the frame declared, and not refused */
		}
	} while ((used || made || event != PS_DECODE_MORE) && ret->len < OUT_MAX);
	ps_decoder_free(decoder);
}

/* Where the output is written must not change the output. */
static void decode_both_ways(enum ps_coding coding, const uint8_t *data, size_t size)
{
	ps_autostrbuf struct ps_strbuf through = {0}, in_place = {0};

	decode(coding, false, data, size, &through);
	decode(coding, true, data, size, &in_place);
	size_t n = PS_MIN(through.len, in_place.len); /* how much comes before damage is found may differ */
	if (!through.failed && !in_place.failed && n > 0 && memcmp(through.s, in_place.s, n) != 0)
		abort();
}

/* A walk over all bytes at once and one over the least possible windows must have the same result. */
static void walk(const uint8_t *data, size_t size)
{
	struct ps_frame_walk whole = {.file_nbytes = size}, bites = {.file_nbytes = size};
	int rc = ps_frame_walk_step(&whole, data, size, 0), rc_bites;

	do {
		uint64_t at = bites.at;
		size_t n = PS_MIN(size - (size_t)at, (size_t)PS_FRAME_HEADER_MAX);

		rc_bites = ps_frame_walk_step(&bites, data + at, n, at);
		if (rc_bites == -EAGAIN && bites.at == at)
			abort();
	} while (rc_bites == -EAGAIN);
	if (rc == -EAGAIN || rc != rc_bites ||
	        (rc == 0 && (whole.plain != bites.plain || whole.map.n != bites.map.n)))
		abort();
	if (rc == 0)
		check_map(&whole.map);
	ps_frame_map_fini(&whole.map);
	ps_frame_map_fini(&bites.map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_frame_map map = {0};
	struct ps_frame_header header;

	if (ps_frame_header_parse(data, size, &header) == 0 && header.header_nbytes > size)
		abort();
	walk(data, size);
	if (size >= PS_SEEK_FOOTER_NBYTES) {
		uint64_t table = ps_seek_footer_parse(data + size - PS_SEEK_FOOTER_NBYTES, size);

		if (table && ps_seek_table_parse(data + size - table, table, size, &map) == 0)
			check_map(&map);
	}
	if (ps_frame_map_decode(data, size, &map) == 0)
		ps_frame_map_fini(&map);
	decode_both_ways(PS_CODING_ZSTD, data, size);
	decode_both_ways(PS_CODING_GZIP, data, size);
	decode_both_ways(PS_CODING_LZ4, data, size);
	return 0;
}
