/* Image files to pixels in place: decode what the crop shows, resize, flip, transform, normalise, straight
 * into the caller's memory (a sample's place in a batch slot).
 *
 * Formats, told by the first bytes: JPEG (jpeg.h), PNG, WebP, PGM and PPM (png.c, webp.c, pnm.c); the latter
 * two where the build has their libraries.
 * Order of operations, which is fixed: EXIF orientation, crop and resize and flips (resize.h, augment.h),
 * affine, jitter, gray, blur, noise, erase (transform.h), normalise (resize.h).
 * Views: one decode may give several pictures of its own random choices each, side by side in dst; several
 * decoders may share a decode (ps_image_decode_shared); a decoder that follows another one places its image
 * as that one placed its own (frames; see mask.h and boxes.h for labels).
 *
 * Ownership: a decoder belongs to its creator, who keeps nothing of the spec's; the file's bytes and dst are
 *   borrowed for the call. A decoder keeps its buffers between calls.
 * Threads: one decoder a thread; different decoders never meet, but a leader and its followers share a
 * thread. Locks: none. Errors: 0 or -errno with a text; a damaged image is -EBADMSG, and what dst then holds
 * is not defined. Blocks: on the processor only. Pixels are a pure function of (bytes, spec, key): the same
 * for any thread, vector unit and machine (with one version of the format's library). */
#ifndef PS_LOADER_IMAGE_IMAGE_H
#define PS_LOADER_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "base/load_error.h"
#include "image/resize.h"
#include "image/spec.h"
#include "order/rng.h"

struct ps_image_view; /* view.h */

/* How the decoder placed its last image, for those that follow. */
struct ps_image_placement {
	uint32_t width, height; /* of the upright image; 0: there is none */
	uint32_t nviews;
	const struct ps_image_view *views;
};

struct ps_image_decoder;

/* NULL with err filled: -EINVAL (the spec) or -ENOMEM. */
struct ps_image_decoder *ps_image_decoder_new(const struct ps_image_spec *spec, struct ps_load_error *err);

/* NULL is allowed. */
void ps_image_decoder_free(struct ps_image_decoder *decoder);

/* From now on crops and maps are those of the leader's last image, whose views and output size must be the
 * decoder's own. Where their limits are the same, too, it gives its memory back and works in the leader's. The
 * leader must outlive the decoder's last decode. */
void ps_image_decoder_follow(struct ps_image_decoder *decoder, const struct ps_image_decoder *leader);

/* Decodes one image into dst (ps_image_nbytes() bytes, any alignment that its element type takes).
 *
 * 0; -EBADMSG: no image of a known format, truncated, damaged, of an unsupported kind, over a limit, or not
 * of the size of the one it follows (the text says which); -ENOMEM. A decoder stays usable after any error.
 *
 * Truncation and damage are errors wherever they are seen: a file without its end always, damage inside the
 * compressed pixels if it lies in or above the crop (what lies below is not decoded). */
int ps_image_decode(struct ps_image_decoder *decoder, const void *data, size_t nbytes,
        const struct ps_rng_key *key, void *dst, struct ps_load_error *err) PS_MUST_USE;

/* The same file into several decoders' places, decoded once; the limits and orientation are those of the
 * first. None of them may follow another one of them. */
int ps_image_decode_shared(struct ps_image_decoder *const *decoders, void *const *dsts, uint32_t n,
        const void *data, size_t nbytes, const struct ps_rng_key *key, struct ps_load_error *err) PS_MUST_USE;

/* What normalises the spec's channels; not for PS_U8. */
void ps_image_levels(const struct ps_image_spec *spec, float ret_scale[static 3], float ret_bias[static 3]);

/* What decoding an image would do, for devices that decode themselves. */
struct ps_image_outline {
	bool plain_jpeg; /* a JPEG of YCbCr or gray that need not be turned, and a crop inside of it; of others
	                  * nothing else is told */
	struct ps_image_size stored;
	struct ps_region region; /* of it, that has a weight in the result */
	struct ps_resize_tables
	        resize; /* from the region to the result; borrowed until the decoder's next call */
};

/* Reads the head of a file and draws what ps_image_decode() would, of a decoder that makes one view and
 * follows nobody; the placement is that of this image from now on, for those that follow. Errors as there, as
 * far as the head tells. */
int ps_image_sketch(struct ps_image_decoder *decoder, const void *data, size_t nbytes,
        const struct ps_rng_key *key, struct ps_image_outline *ret_outline,
        struct ps_load_error *err) PS_MUST_USE;

struct ps_image_placement ps_image_decoder_placement(const struct ps_image_decoder *decoder);

#endif
