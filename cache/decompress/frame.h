/* Frames of compressed shards: what is read of them without decoding, and decoders.
 *
 *   zstd   frame | skippable frame | frame ... | [seek table: a skippable frame, its footer last in the file]
 *   gzip   member | member ... | [zeros]        neither header nor trailer has a size that can be believed
 *   lz4    frame | skippable frame | frame ...  treated as gzip is
 *
 * All input is foreign, and every length in it is checked.
 *
 * Ownership: as each part says. Threads: the caller's, one at a time. Blocks: never. Errors: as each function
 * says. */
#ifndef PS_DECOMPRESS_FRAME_H
#define PS_DECOMPRESS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

/* Names and headers -------------------------------------------------------------------------------------- */

enum ps_coding { PS_CODING_NONE, PS_CODING_ZSTD, PS_CODING_GZIP, PS_CODING_LZ4 };

/* The coding of a shard by its name: x.tar.zst, x.tar.gz, x.tgz (in any case of letters). It is shown as
 * the first *ret_len bytes of the name, with ".tar" appended if *ret_tar. Other names are
 * PS_CODING_NONE: readers of a dataset whose members are compressed one by one (x.json.gz) expect them
 * as they are. */
enum ps_coding ps_coding_of_name(const char *name, size_t *ret_len, bool *ret_tar);
const char *ps_coding_name(enum ps_coding coding); /* "", "zstd", "gzip", "lz4" */

/* A zstd frame by its header. */
#define PS_FRAME_HEADER_MAX 18
struct ps_frame_header {
	bool skippable;
	size_t header_nbytes;
	uint64_t content_nbytes; /* declared, or UINT64_MAX; of a skippable frame what follows its header */
	uint64_t window_nbytes;  /* of memory that decoding takes */
	bool checksum;
	bool dictionary; /* it needs one, and there is none */
};
/* 0; -EAGAIN: more bytes are needed (never of PS_FRAME_HEADER_MAX); -EBADMSG: neither frame nor skippable
 * frame. */
int ps_frame_header_parse(const uint8_t *bytes, size_t n, struct ps_frame_header *ret) PS_MUST_USE;

/* Maps --------------------------------------------------------------------------------------------------- */

/* Where frames begin, in order; the last point is the end of the file, once that is known (whole). A map owns
 * its array. */
struct ps_frame_point {
	uint64_t packed, plain; /* offsets in the compressed file and in what it holds */
};
struct ps_frame_map {
	struct ps_frame_point *points;
	size_t n, cap;
	bool whole;
	bool gap; /* there was no memory for a point: no later one is added */
};
#define PS_FRAME_MAP_MAX (UINT32_C(1) << 20) /* points; frames after these are not remembered */
void ps_frame_map_fini(struct ps_frame_map *map);
/* A point after all others; one that is not is left out. Out of memory: left out, too. */
void ps_frame_map_add(struct ps_frame_map *map, uint64_t packed, uint64_t plain);
/* The last point at or before `plain`; the map has one. */
size_t ps_frame_map_find(const struct ps_frame_map *map, uint64_t plain);

/* The footer of a seek table is the last PS_SEEK_FOOTER_NBYTES of a file. Returns the length of the table's
 * frame at the end of the file; 0: there is none, or one that cannot be. */
#define PS_SEEK_FOOTER_NBYTES 9
uint64_t ps_seek_footer_parse(const uint8_t bytes[static PS_SEEK_FOOTER_NBYTES], uint64_t file_nbytes);
/* The table's frame, footer included. 0 and a whole map; -EBADMSG: it does not fit the file; -ENOMEM. */
int ps_seek_table_parse(
        const uint8_t *bytes, size_t n, uint64_t file_nbytes, struct ps_frame_map *ret) PS_MUST_USE;

/* A map as the index stores it, and back: differences as numbers of 7 bits a byte. Decoding checks that it
 * rises; -EBADMSG. */
void ps_frame_map_encode(const struct ps_frame_map *map, struct ps_strbuf *b);
int ps_frame_map_decode(const void *bytes, size_t n, struct ps_frame_map *ret) PS_MUST_USE;

/* A walk over a zstd file from header to header, of frames and of blocks, that decodes nothing: where frames
 * begin and how much they hold, as far as their headers declare it. What a frame declares is believed if its
 * blocks can hold it; decoding compares it with what they do hold. A walk owns its map until the caller takes
 * it. */
struct ps_frame_walk {
	uint64_t file_nbytes;    /* the caller sets it; all else is zero at first */
	uint64_t at;             /* offset of the byte that is looked at next */
	uint64_t plain;          /* what the frames before it hold */
	struct ps_frame_map map; /* of these; whole at the end, if there was memory and room for all of it */
	/* The frame whose blocks come next. */
	bool in_frame, checksum;
	uint64_t content, least, most; /* what it declares, and what its blocks so far can hold */
};
/* Bytes [offset, offset + n) of the file, with `at` in them or after them. 0: that was all. -EAGAIN: go
 * on with those from `at` on; PS_FRAME_HEADER_MAX of them, or all to the end of the file, are enough.
 * -ENODATA: a frame does not declare its size. -EBADMSG: damaged, or no such file. */
int ps_frame_walk_step(
        struct ps_frame_walk *walk, const uint8_t *bytes, size_t n, uint64_t offset) PS_MUST_USE;
void ps_frame_walk_fini(struct ps_frame_walk *walk);

/* Decoders ----------------------------------------------------------------------------------------------- */

/* Compressed bytes in, plain bytes out, frame by frame. A frame is a zstd frame, an lz4 frame, a skippable
 * frame, or a member of a gzip file. Damage of any kind, and garbage after the last frame, is an error with a
 * text. Ownership: the caller's. Memory: what ps_decoder_nbytes() says. */

struct ps_decoder;

/* NULL: out of memory. */
struct ps_decoder *ps_decoder_new(enum ps_coding coding);
void ps_decoder_free(struct ps_decoder *decoder);

enum ps_decode_event {
	PS_DECODE_MORE,   /* all input was taken, or all room for output */
	PS_DECODE_HEADER, /* a frame begins, as ps_decoder_frame() describes; nothing of it was decoded yet */
	PS_DECODE_END,    /* a frame has ended, and its checksum, if it has one, was right */
};

/* Takes from in[0..nin) and writes to out[0..nout), until the next event. *ret_in and *ret_out: how much;
 * *ret_event. -EBADMSG: damaged (the text says how); -ENOMEM. An event may come without input taken. */
int ps_decoder_step(struct ps_decoder *decoder, const uint8_t *in, size_t nin, uint8_t *out, size_t nout,
        size_t *ret_in, size_t *ret_out, enum ps_decode_event *ret_event, struct ps_error *err) PS_MUST_USE;

/* The frame that began last. */
const struct ps_frame_header *ps_decoder_frame(const struct ps_decoder *decoder);
/* Memory that decoding this frame takes; to be reserved before the step after PS_DECODE_HEADER. */
uint64_t ps_decoder_nbytes(const struct ps_decoder *decoder);
/* All output of the frame that has begun goes to one buffer with room for it: `out` of each step follows that
 * of the one before, with the same end, and what was written neither changes nor moves. Saves a copy. To be
 * called before the step after PS_DECODE_HEADER. */
void ps_decoder_in_place(struct ps_decoder *decoder);
/* May the file end here? */
bool ps_decoder_may_end(const struct ps_decoder *decoder);

#endif
