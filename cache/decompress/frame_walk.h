/* Walks over a zstd file from header to header, of frames and of blocks, and decodes nothing: where its frames
 * begin and how much they hold, as far as their headers declare it. Parsing only, of bytes that nobody vouches
 * for; what a frame declares is believed as far as its blocks could hold it, and decoding tells in the end.
 *
 * Ownership: the walk owns its map until the caller takes it. Threads: the caller's. Blocks: never. */
#ifndef PS_DECOMPRESS_FRAME_WALK_H
#define PS_DECOMPRESS_FRAME_WALK_H

#include "decompress/frame.h"

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

#endif
