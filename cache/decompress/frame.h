#ifndef PS_DECOMPRESS_FRAME_H
#define PS_DECOMPRESS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

/* Frames --------------------------------------------------------------------------------------------- */

/* The outside of compressed files: which coding a name tells of, frame headers, skippable frames, seek
 * tables. Parsing only, of bytes that nobody vouches for; frame.h decodes.
 *
 *   zstd   frame | skippable frame | frame ... | [seek table: a skippable frame, its footer last in the file]
 *   gzip   member | member ... | [zeros]        neither header nor trailer tells a size that can be believed
 *   lz4    frame | skippable frame | frame ...   treated as gzip is
 *
 * Ownership: a frame map owns its array. Threads: the caller's. Blocks: never. Errors: as each function says.
 */

enum ps_coding { PS_CODING_NONE, PS_CODING_ZSTD, PS_CODING_GZIP, PS_CODING_LZ4 };

/* What a shard of this name is coded with: x.tar.zst, x.tar.gz, x.tgz (in any case of letters). *ret_len: so
 * much of the name stays, to which ".tar" comes where *ret_tar. Other names are PS_CODING_NONE: a member of a
 * dataset that is compressed by itself (x.json.gz) is what its readers expect. */
enum ps_coding ps_coding_of_name(const char *name, size_t *ret_len, bool *ret_tar);
const char *ps_coding_name(enum ps_coding coding); /* "", "zstd", "gzip", "lz4" */

/* A zstd frame by its header. */
#define PS_FRAME_HEADER_MAX 18
struct ps_frame_header {
	bool skippable;
	size_t header_nbytes;
	uint64_t content_nbytes; /* declared; UINT64_MAX: not. Of a skippable one: what follows its header */
	uint64_t window_nbytes;  /* of memory that decoding takes */
	bool checksum;
	bool dictionary; /* needs one, which nobody has */
};
/* 0; -EAGAIN: more bytes are needed (never of PS_FRAME_HEADER_MAX); -EBADMSG: neither frame nor skippable
 * frame. */
int ps_frame_header_parse(const uint8_t *bytes, size_t n, struct ps_frame_header *ret) PS_MUST_USE;

/* Where frames begin, in order; the last point is where all ends, once that is known (whole). */
struct ps_frame_point {
	uint64_t packed, plain; /* offsets in the compressed file and in what it holds */
};
struct ps_frame_map {
	struct ps_frame_point *points;
	size_t n, cap;
	bool whole;
	bool gap; /* there was no memory for a point: none comes behind it */
};
#define PS_FRAME_MAP_MAX (UINT32_C(1) << 20) /* points; of longer files those behind are not remembered */
void ps_frame_map_fini(struct ps_frame_map *map);
/* A point behind all others; one that is not is left out. Out of memory: left out, too. */
void ps_frame_map_add(struct ps_frame_map *map, uint64_t packed, uint64_t plain);
/* The last point at or before `plain`; the map has one. */
size_t ps_frame_map_find(const struct ps_frame_map *map, uint64_t plain);

/* The footer of a seek table is the last PS_SEEK_FOOTER_NBYTES of a file. Returns how many bytes the table's
 * whole frame takes at the end of the file; 0: there is none, or one that cannot be. */
#define PS_SEEK_FOOTER_NBYTES 9
uint64_t ps_seek_footer_parse(const uint8_t bytes[static PS_SEEK_FOOTER_NBYTES], uint64_t file_nbytes);
/* The table's whole frame, footer included. 0 and a whole map; -EBADMSG: it does not fit the file; -ENOMEM.
 */
int ps_seek_table_parse(
        const uint8_t *bytes, size_t n, uint64_t file_nbytes, struct ps_frame_map *ret) PS_MUST_USE;

/* A map as the index keeps it, and back: differences as numbers of 7 bits a byte. Decoding checks that it
 * rises; -EBADMSG. */
void ps_frame_map_encode(const struct ps_frame_map *map, struct ps_strbuf *b);
int ps_frame_map_decode(const void *bytes, size_t n, struct ps_frame_map *ret) PS_MUST_USE;

/* Walks over a zstd file from header to header, of frames and of blocks, and decodes nothing: where its frames
 * begin and how much they hold, as far as their headers declare it. Parsing only, of bytes that nobody vouches
 * for; what a frame declares is believed as far as its blocks could hold it, and decoding tells in the end.
 *
 * Ownership: the walk owns its map until the caller takes it. Threads: the caller's. Blocks: never. */
struct ps_frame_walk {
	uint64_t file_nbytes;    /* the caller sets it; all else is zero at first */
	uint64_t at;             /* offset of the byte that is looked at next */
	uint64_t plain;          /* what the frames hold that lie before it */
	struct ps_frame_map map; /* of these; whole at the end, if there was memory and room for all of it */
	/* The frame whose blocks come next. */
	bool in_frame, checksum;
	uint64_t content, least, most; /* what it declares, and what its blocks so far can hold */
};
/* The bytes [offset, offset + n) of the file; `at` is in there or behind. 0: that was all. -EAGAIN: go on with
 * those from `at` on (PS_FRAME_HEADER_MAX of them, or to the end of the file, are enough to get on). -ENODATA: a
 * frame does not tell its size. -EBADMSG: damaged, or no such file. */
int ps_frame_walk_step(struct ps_frame_walk *walk, const uint8_t *bytes, size_t n, uint64_t offset) PS_MUST_USE;
void ps_frame_walk_fini(struct ps_frame_walk *walk);

/* Decoders ------------------------------------------------------------------------------------------- */

/* Decoders: compressed bytes in, plain bytes out, frame by frame. A frame is a zstd frame, a skippable frame,
 * or a member of a gzip file; damage of any kind, and what follows the last frame and is none, is an error
 * with a text.
 *
 * Ownership: the caller's. Threads: one at a time. Blocks: never. Memory: what ps_decoder_nbytes() says. */

struct ps_decoder;

/* NULL: out of memory. */
struct ps_decoder *ps_decoder_new(enum ps_coding coding);
void ps_decoder_free(struct ps_decoder *decoder);

enum ps_decode_event {
	PS_DECODE_MORE,   /* all input was taken, or all room for output */
	PS_DECODE_HEADER, /* a frame begins: ps_decoder_frame() tells of it, and nothing of it was decoded yet
	                   */
	PS_DECODE_END,    /* a frame has ended, and its checksum, if it has one, was right */
};

/* Takes from in[0..nin) and gives to out[0..nout), until the next event. *ret_in and *ret_out: how much;
 * *ret_event. -EBADMSG: damaged (text says how); -ENOMEM. An event may come without input taken. */
int ps_decoder_step(struct ps_decoder *decoder, const uint8_t *in, size_t nin, uint8_t *out, size_t nout,
        size_t *ret_in, size_t *ret_out, enum ps_decode_event *ret_event, struct ps_error *err) PS_MUST_USE;

/* The frame that began last. */
const struct ps_frame_header *ps_decoder_frame(const struct ps_decoder *decoder);
/* Memory that decoding this frame takes; to be had before the step after PS_DECODE_HEADER. */
uint64_t ps_decoder_nbytes(const struct ps_decoder *decoder);
/* All output of the frame that has begun goes to one buffer with room for it: the next steps' `out` follow
 * each other, with the same end, and nothing before them changes or moves. Saves a copy. To be called before
 * the step after PS_DECODE_HEADER. */
void ps_decoder_in_place(struct ps_decoder *decoder);
/* May the file end here? */
bool ps_decoder_may_end(const struct ps_decoder *decoder);

#endif
