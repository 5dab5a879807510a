/* Decoders: compressed bytes in, plain bytes out, frame by frame. A frame is a zstd frame, a skippable frame,
 * or a member of a gzip file; damage of any kind, and what follows the last frame and is none, is an error
 * with a text.
 *
 * Ownership: the caller's. Threads: one at a time. Blocks: never. Memory: what ps_decoder_nbytes() says. */
#ifndef PS_DECOMPRESS_CODEC_H
#define PS_DECOMPRESS_CODEC_H

#include "decompress/frame.h"

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
