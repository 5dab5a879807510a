/* Frames of compressed shards: reading headers without decoding, and decoders.
 *
 *   zstd   frame | skippable frame | frame ... | [seek table: a skippable frame, its footer last in the file]
 *   gzip   member | member ... | [zeros]        neither header nor trailer has a reliable size
 *   lz4    frame | skippable frame | frame ...  treated like gzip
 *
 * No input is trusted: every length in it is checked.
 *
 * Ownership: see each section. Threads: the caller's, one at a time. Never blocks. Errors: see each
 * function. */
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

/* What the header of a zstd frame declares. */
#define PS_FRAME_HEADER_MAX 18
struct ps_frame_header {
	bool skippable;
	size_t header_nbytes;
	/* declared size, or UINT64_MAX; for a skippable frame, the size of what follows its header */
	uint64_t content_nbytes;
	uint64_t window_nbytes; /* memory that decoding takes */
	bool checksum;
	bool dictionary; /* the frame needs a dictionary, and there is none */
};
/* 0; -EAGAIN: more bytes are needed (never with PS_FRAME_HEADER_MAX of them); -EBADMSG: neither a frame nor
 * a skippable frame. */
int ps_frame_header_parse(const uint8_t *bytes, size_t n, struct ps_frame_header *ret) PS_MUST_USE;

/* Maps --------------------------------------------------------------------------------------------------- */

/* Where frames begin, in order. Once all are known (`whole`), the last point is the end of the file, or the
 * beginning of the seek table from which the map was made. A map owns its array. */
struct ps_frame_point {
	uint64_t packed, plain; /* offsets in the compressed file and in the decoded content */
};
struct ps_frame_map {
	struct ps_frame_point *points;
	size_t n, cap;
	bool whole;
	bool gap; /* there was no memory for a point: no later one is added */
};
#define PS_FRAME_MAP_MAX (UINT32_C(1) << 20) /* points; frames after them are left out */
void ps_frame_map_fini(struct ps_frame_map *map);
/* Adds a point after all others. A point that is not after them is left out, and so is one for which the map
 * has no room or no memory. */
void ps_frame_map_add(struct ps_frame_map *map, uint64_t packed, uint64_t plain);
/* The last point at or before `plain`. Precondition: the map has one. */
size_t ps_frame_map_find(const struct ps_frame_map *map, uint64_t plain);

/* The footer of a seek table is the last PS_SEEK_FOOTER_NBYTES of a file. Returns the length of the table's
 * frame at the end of the file; 0: there is no table, or an impossible one. */
#define PS_SEEK_FOOTER_NBYTES 9
uint64_t ps_seek_footer_parse(const uint8_t bytes[static PS_SEEK_FOOTER_NBYTES], uint64_t file_nbytes);
/* Parses the table's frame, footer included. 0: *ret is a whole map. -EBADMSG: it does not fit the file.
 * -ENOMEM. */
int ps_seek_table_parse(
        const uint8_t *bytes, size_t n, uint64_t file_nbytes, struct ps_frame_map *ret) PS_MUST_USE;

/* Encode and decode a map in the format of the index: each offset as its difference to the one before, in
 * bytes that hold 7 bits each. Decoding checks that the offsets rise; else -EBADMSG. */
void ps_frame_map_encode(const struct ps_frame_map *map, struct ps_strbuf *b);
int ps_frame_map_decode(const void *bytes, size_t n, struct ps_frame_map *ret) PS_MUST_USE;

/* A walk over the headers of a zstd file's frames and blocks, without decoding. It finds where frames begin
 * and their decoded sizes, if their headers declare them. A declared size is accepted if the frame's blocks
 * can hold it; decoding later compares it with the real one. A walk owns its map until the caller takes
 * it. */
struct ps_frame_walk {
	uint64_t file_nbytes; /* set by the caller; all other members begin as zero */
	uint64_t at;          /* offset of the next byte to parse */
	uint64_t plain;       /* decoded size of the frames before it */
	/* points of these frames; the map is `whole` after the last step, if there was memory and room for
	 * all */
	struct ps_frame_map map;
	/* The frame whose blocks come next. */
	bool in_frame, checksum;
	/* its declared size, and the bounds for the decoded size of its blocks so far */
	uint64_t content, least, most;
};
/* Parses bytes [offset, offset + n) of the file; `at` is in them or after them. 0: the walk is complete.
 * -EAGAIN: continue with the bytes from `at` on; PS_FRAME_HEADER_MAX of them, or all to the end of the
 * file, are enough. -ENODATA: a frame does not declare its size. -EBADMSG: damaged, or not a zstd file. */
int ps_frame_walk_step(
        struct ps_frame_walk *walk, const uint8_t *bytes, size_t n, uint64_t offset) PS_MUST_USE;

/* Decoders ----------------------------------------------------------------------------------------------- */

/* Compressed bytes in, plain bytes out, frame by frame. A frame is a zstd frame, an lz4 frame, a skippable
 * frame, or a member of a gzip file. Any damage, and garbage after the last frame, is an error with a text.
 * Ownership: the caller's. Memory: ps_decoder_nbytes(). */

struct ps_decoder;

/* NULL: out of memory. */
struct ps_decoder *ps_decoder_new(enum ps_coding coding);
void ps_decoder_free(struct ps_decoder *decoder);

enum ps_decode_event {
	PS_DECODE_MORE,   /* all input was taken, or the output is full */
	PS_DECODE_HEADER, /* a frame begins, described by ps_decoder_frame(); none of it was decoded yet */
	PS_DECODE_END,    /* a frame has ended, and its checksum, if it has one, matched */
};

/* Decodes from in[0..nin) to out[0..nout) until the next event, which is stored in *ret_event. *ret_in and
 * *ret_out: the bytes taken and written. -EBADMSG: damaged (the text has the cause). -ENOMEM. An event may
 * come without input being taken. */
int ps_decoder_step(struct ps_decoder *decoder, const uint8_t *in, size_t nin, uint8_t *out, size_t nout,
        size_t *ret_in, size_t *ret_out, enum ps_decode_event *ret_event, struct ps_error *err) PS_MUST_USE;

/* The frame that began last. */
const struct ps_frame_header *ps_decoder_frame(const struct ps_decoder *decoder);
/* Memory that decoding this frame takes; the caller reserves it before the step after PS_DECODE_HEADER. */
uint64_t ps_decoder_nbytes(const struct ps_decoder *decoder);
/* Decodes the frame that has begun into one buffer with room for all of it, which saves a copy. The caller
 * promises that `out` of each step follows the output of the previous step, with the same end, and that
 * written bytes neither change nor move. Call it before the step after PS_DECODE_HEADER. */
void ps_decoder_in_place(struct ps_decoder *decoder);
/* True if the file may end here. */
bool ps_decoder_may_end(const struct ps_decoder *decoder);

#endif
