/* Image files to pixels in their places, and what follows an image: labels, boxes, mixing.
 *
 * From the top down; each file uses those below it:
 *
 *   image.c                   decode, crop, resize, flip, transform, normalise
 *   wide.c                    the resize of RGBA, gray and 16-bit pictures
 *   mask.c                    labels and boxes that follow an image
 *   crop.c                    which part of an image becomes a picture, and what is around it
 *   spec.c                    the options of a field, checked
 *   transform.c               operations on pixels, drawn and done
 *   choice.c                  which operations happen
 *   mix.c                     CutMix and MixUp
 *   resize.c, resize_*.c      crop, resize and flip in one pass, for each kind of processor
 *   reader.c                  any file as rows, upright
 *   jpeg.c, png.c, webp.c, pnm.c             the formats (format.h)
 *   jpeg_entropy.c, huffman.c                the entropy decoder of JPEG
 *   limits.c                  what an image may cost; the memory of all decoders
 *   pixel/                    pixels for the processor and for kernels of GPUs
 *
 * The library of this folder is built without contracted arithmetic: pixels are the same on every machine.
 * Ownership, threads, locks, errors, blocking: as each section says. */
#ifndef PS_IMAGE_IMAGE_H
#define PS_IMAGE_IMAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "base/error.h"
#include "image/pixel/pixel.h"
#include "random/random.h"

/* Memory of all decoders --------------------------------------------------------------------------------- */

/* A limit on what all decoders of a loader together hold for images that need much memory: progressive and
 * interlaced files, those that must be turned. Who comes when it is reached waits until another is done; one
 * image is always let through, however large.
 *
 * Ownership: a gate belongs to its creator and outlives its tickets; a ticket belongs to one thread.
 * Threads: any; a ticket one at a time.   Locks: the gate's own, a leaf.
 * Blocks: taking waits for other threads' decodes, which never wait themselves while they hold something. */

struct ps_image_gate {
	pthread_mutex_t lock;
	pthread_cond_t room;
	uint64_t limit, used;
};

struct ps_image_ticket {
	struct ps_image_gate *gate; /* NULL: no limit */
	uint64_t held;
};

void ps_image_gate_init(struct ps_image_gate *gate, uint64_t limit);
void ps_image_gate_fini(struct ps_image_gate *gate);

void ps_image_ticket_take(struct ps_image_ticket *ticket, uint64_t nbytes); /* NULL is allowed: no limit */

/* Gives back all that was taken: the image is done. */
void ps_image_ticket_give(struct ps_image_ticket *ticket);

/* Rows of an image --------------------------------------------------------------------------------------- */

/* What a pixel is in the rows handed out. */
enum ps_pixels {
	PS_PIXELS_RGB = 0,    /* three uint8_t; alpha is dropped, 16 bits lose their lower eight */
	PS_PIXELS_LABELS = 1, /* one uint16_t: the number as stored (gray value or place in the palette) */
	PS_PIXELS_RGBA16 = 2, /* four uint16_t: values of 8 bits times 257; alpha 65535 where there is none */
};

static inline size_t ps_pixels_nbytes(enum ps_pixels pixels)
{
	return pixels == PS_PIXELS_RGB ? 3 : sizeof(uint16_t) * (pixels == PS_PIXELS_RGBA16 ? 4 : 1);
}

struct ps_image_limits {
	uint64_t max_pixels; /* by the header: checked before anything is decoded */
	uint32_t max_scans;  /* of a progressive JPEG */
	uint64_t max_memory; /* bytes that one image may need beyond a few rows: a progressive JPEG's
	                      * coefficients, an interlaced PNG, a WebP, an image that must be turned */
	/* that such memory is taken by, until the image is done; NULL: none */
	struct ps_image_ticket *ticket;
};

/* As stored; never empty. */
struct ps_region {
	uint32_t x, y, width, height;
};

/* Rows of the region, top down: row i at first + i * stride. */
struct ps_image_rows {
	const uint8_t *first;
	size_t stride;
	uint32_t n; /* 1 or more */
};

struct ps_image_size {
	uint32_t width, height;
};

/* Files as rows ------------------------------------------------------------------------------------------ */

/* Any image file as rows, upright: chooses the format by the first bytes, and turns the image as its EXIF
 * data says where that is wanted. A region of a turned image is the same as that part of the whole, turned.
 *
 * Ownership: a source belongs to its creator, and makes the decoder of a format when it first meets one.
 * Otherwise as format.h, which has the contract of open, start, rows and close. */

struct ps_image_reader;

/* NULL: no memory. With `orient` images are turned by their EXIF orientation. */
struct ps_image_reader *ps_image_reader_new(
        enum ps_pixels pixels, bool orient, const struct ps_image_limits *limits);
void ps_image_reader_free(struct ps_image_reader *s);

/* *ret_size is that of the upright image. */
int ps_image_reader_open(struct ps_image_reader *s, const void *data, size_t nbytes,
        struct ps_image_size *ret_size, struct ps_load_error *err) PS_MUST_USE;

/* The libraries of the formats with their versions, a comma between them. */
void ps_image_libraries(char *buf, size_t n);

/* Between open and start: an image 1/by as wide and high (sizes rounded up), by 1, 2, 4 or 8, if the format
 * can do that at less cost; else nothing. Returns what it will be, 1 for no change: regions and rows are of
 * that size from now on. */
uint32_t ps_image_reader_shrink(struct ps_image_reader *s, uint32_t by);

/* Between open and start: a JPEG whose orientation is as stored, and its colours are YCbCr or gray. */
bool ps_image_reader_is_plain_jpeg(const struct ps_image_reader *s);

int ps_image_reader_start(struct ps_image_reader *s, const struct ps_region *region, size_t slack_nbytes,
        struct ps_load_error *err) PS_MUST_USE;
int ps_image_reader_rows(
        struct ps_image_reader *s, struct ps_image_rows *ret_rows, struct ps_load_error *err) PS_MUST_USE;
void ps_image_reader_close(struct ps_image_reader *s);

/* What is around an image -------------------------------------------------------------------------------- */

enum ps_pad_mode {
	PS_PAD_FILL = 0, /* one level */
	PS_PAD_EDGE = 1, /* the pixel at the edge: aaa|abcd|ddd */
	PS_PAD_REFLECT =
	        2, /* mirrored, the edge not repeated: dcb|abcd|cba; again where that is too little */
	PS_PAD_SYMMETRIC = 3, /* mirrored, the edge repeated: cba|abcd|dcb */
};

struct ps_pad {
	uint32_t width, height; /* of the picture; 0: the crop lies inside, and nothing is added */
	int64_t x, y;           /* its left and upper edge, in pixels of the scaled image */
	enum ps_pad_mode mode;
};

/* Which operations happen -------------------------------------------------------------------------------- */

/* Which operations happen to an image: each by a probability of its own, or in a group with others.
 *
 * An operation without a group happens if PS_RNG_<op>, index 0, unit < its probability. Of a group g (they
 * are counted from 0):
 *   apply   nothing happens unless PS_RNG_GROUP, index g, unit < the group's probability; then each
 *           operation as it would without: torchvision's RandomApply
 *   one     likewise; then one happens: that in whose share PS_RNG_GROUP, index 64 + g, unit falls, where
 *           shares are as the operations' probabilities are to each other, in the order below:
 *           Albumentations' OneOf
 * The order in which they are done is fixed all the same (below).
 *
 * Groups as text: KIND:PROBABILITY=NAME,NAME...;...  as "apply:0.8=jitter,gray;one:0.5=blur,noise".
 *
 * Ownership: none.   Threads: any.   Errors: -EINVAL with a text.   Blocks: never. */

enum ps_choice_op {
	PS_CHOICE_HFLIP,
	PS_CHOICE_VFLIP,
	PS_CHOICE_AFFINE,
	PS_CHOICE_JITTER,
	PS_CHOICE_GRAY,
	PS_CHOICE_BLUR,
	PS_CHOICE_NOISE,
	PS_CHOICE_ERASE,
	PS_CHOICE_NOPS,
};

/* All zero: there are no groups. */
struct ps_choice_groups {
	uint32_t n;
	struct ps_choice_group {
		bool one;
		double probability;
		uint32_t ops; /* bits: 1 << enum ps_choice_op */
	} groups[PS_CHOICE_NOPS];
};

/* NULL: none. */
int ps_choice_parse(
        const char *text, struct ps_choice_groups *ret_groups, struct ps_load_error *err) PS_MUST_USE;

struct ps_image_spec;

/* Each operation of a group must have a probability. */
int ps_choice_check(const struct ps_image_spec *spec, struct ps_load_error *err) PS_MUST_USE;

bool ps_choice_happens(const struct ps_image_spec *spec, enum ps_choice_op op, const struct ps_rng_key *key);

/* Operations --------------------------------------------------------------------------------------------- */

/* What may follow crop, resize and flip, in this order and no other: affine, jitter, gray, blur, noise,
 * erase.
 *
 * Each has a probability, and may be in a group (see above). It works on the finished u8 pixels and rounds to
 * u8 once. Its arithmetic is integers, defined here, so that every processor gives the same bits. Normalising
 * comes after the last.
 *
 * [n] is the index of a number drawn for it under PS_RNG_<op>, uniform() in the range given.
 * F(x, n) = floor(x * 2^n + 0.5).
 *
 * Affine, as torchvision's RandomAffine does to PIL images, bilinear:
 *   angle      [1] -degrees .. degrees;  zoom [4];  shears [5, 6] in degrees
 *   shifts     [2, 3] rint() of -translate * side .. translate * side, pixels
 *   source     X = a x + b y + c,  Y = d x + e y + f, of the centre of output pixel (x, y), in 2^-32 pixels
 *              and 64 bits; the six coefficients are rounded from doubles
 *   outside    0 <= X < width, 0 <= Y < height:  `fill`
 *   else       u = X - 1/2,  x0 = floor(u),  fx = the upper 10 bits of its fraction, likewise y:
 *              (p00 (1024 - fx) (1024 - fy) + p01 fx (1024 - fy) + p10 (1024 - fx) fy + p11 fx fy + 2^19)
 *              >> 20;  pixels beyond the edge are those of the edge
 *   labels     the one at floor(X), floor(Y)
 *
 * Gray value, as PIL:  L = (19595 r + 38470 g + 7471 b + 32768) >> 16
 *
 * Jitter, as torchvision's ColorJitter, in this order, or with jitter_random in one of the 24; k = F(factor,
 * 12):
 *   factors    max(0, 1 - s) .. 1 + s:  [1] brightness, [2] contrast, [3] saturation;  [4] turn -h .. h
 *   brightness clamp((k v + 2048) >> 12)
 *   contrast   clamp((k v + (4096 - k) m + 2048) >> 12),  m = mean of all L, rounded
 *   saturation clamp((k v + (4096 - k) L + 2048) >> 12)
 *   hue        position on the six edges of the colour hexagon, in 2^-16 edges, by the largest channel c and
 *              the two after it:  131072 c + ((next - last) * F(1 / (max - min), 24) >> 8), towards zero;
 *              moved by F(6 turn, 16). Largest and smallest values stay; the middle channel becomes
 *              min + (((max - min) * fraction + 32768) >> 16), on odd edges with 65536 - fraction.
 *   A step whose strength is 0 is left out.
 *   order      r = below(24) [5]: the (r / 6)th of the four, the (r / 2 % 3)th of the other three,
 *              the (r % 2)th of the other two, and the last
 *
 * Gray: all three channels become L.
 *
 * Blur, as torchvision's GaussianBlur:
 *   sigma      [1] blur_sigma_min .. blur_sigma_max
 *   size       blur_size, or blur_size + 2 below((blur_size_max - blur_size) / 2 + 1) [2]
 *   weights    blur_size of F(w, 14) each way, the middle one taking the rest of 2^14
 *   across     t = (sum q v + 128) >> 8, then down: (sum q t + 2^19) >> 20
 *   edges      mirrored, the edge pixel itself not repeated
 *
 * Noise:  clamp(v + ((n * F(sigma / 147.80054127, 16) + 32768) >> 16))
 *   sigma      noise_sigma, or [2] noise_sigma .. noise_sigma_max
 *   n          sum of four random bytes, less 510: near to Gaussian, with a standard deviation of 147.8
 *   bytes      Philox, key u64 [1], counter {i, 0, 0, 0}: value 4i + j takes those of word j
 *   value      number (c * height + y) * width + x
 *
 * Erase, as torchvision's RandomErasing: up to ten times draw an area [4t + 1] (erase_scale, share of the
 *   picture's) and a ratio [4t + 2] (erase_ratio, uniform in its logarithm).
 *   height = round(sqrt(area * ratio)), width = round(sqrt(area / ratio)), halves to even. The first of both
 *   less than the picture's is placed uniformly: top below(height' - height + 1) [4t + 3], left likewise
 *   [4t + 4]. If there is none, nothing is erased.
 *   fill       a level of each channel, or as noise of key u64 [64] and a sigma of each channel about its
 *              mean; level: clamp(mean + ((n * F(sigma / 147.8, 16) + 32768) >> 16))
 *
 * Threads: any, on different images.   Errors: with a text.   Blocks: never. */

struct ps_image_spec;

/* All zero: nothing happens. */
struct ps_transform_spec {
	double affine;                   /* probability, as are jitter, gray, blur and noise */
	double degrees;                  /* 0 to 180 */
	double translate_x, translate_y; /* share of width and height, 0 to 1 */
	double zoom_min, zoom_max;       /* 0.01 to 100; both 0: 1 */
	double shear_x, shear_y;         /* degrees, 0 to 80 */
	uint32_t fill;                   /* level of what comes from outside, 0 to 255 */
	double jitter;
	double brightness, contrast, saturation; /* 0 to 7 */
	double hue;                              /* 0 to 0.5 */
	double gray;
	double blur;
	uint32_t blur_size;                    /* odd, to 255; 0: a tenth of the width, at least 3 */
	double blur_sigma_min, blur_sigma_max; /* pixels, 0.01 to 100; both 0: 0.1 to 2 */
	double noise;
	double noise_sigma;     /* levels, 0 to 255 */
	double noise_sigma_max; /* 0: noise_sigma; else drawn from there to here */
	bool jitter_random;     /* its steps come in a random order */
	uint32_t blur_size_max; /* 0: blur_size; else one is drawn from there to here; odd */
	double erase;
	double erase_scale_min,
	        erase_scale_max; /* share of the picture, above 0 to 1; both 0: 0.02 to 0.33 */
	double erase_ratio_min, erase_ratio_max; /* height / width, 0.001 to 1000; both 0: 0.3 to 3.3 */
	bool erase_random;
	uint8_t erase_level[3]; /* or the mean, where it is random, ... */
	double erase_sigma[3];  /* ... and its standard deviation in levels, to 1000 */
	struct ps_choice_groups groups;
};

int ps_transform_check(const struct ps_transform_spec *spec, uint32_t width, uint32_t height,
        struct ps_load_error *err) PS_MUST_USE;

/* Where the output's pixels come from. */
struct ps_affine {
	double inverse[6]; /* output to input, in pixels: x = i[0] x + i[1] y + i[2], y = i[3] x + ... */
};

/* What is to be done to one image: every random choice made. */
struct ps_transform {
	bool affine, jitter, gray, blur, noise, erase;
	struct ps_affine map;
	uint32_t brightness, contrast, saturation; /* F(factor, 12) */
	int32_t turn;                              /* of the hue, in 2^-16 edges of the hexagon */
	uint32_t order;                            /* of the jitter's steps: ops.h */
	double sigma;
	uint32_t blur_size;
	double noise_sigma;
	uint64_t noise_key;
	struct ps_erase erased; /* ops.h */
};

void ps_transform_draw(
        const struct ps_image_spec *spec, const struct ps_rng_key *key, struct ps_transform *ret_transform);

/* True if pixels change. */
bool ps_transform_acts(const struct ps_transform *transform);

/* Three planes of width * height bytes. */
struct ps_planes {
	uint8_t *p;
	uint32_t width, height;
};

/* In place, with `spare` (three planes as well) as a second buffer: the result is in planes->p, and the two
 * may have changed places. */
void ps_transform_apply(const struct ps_transform *transform, const struct ps_transform_spec *spec,
        struct ps_planes *planes, uint8_t **spare);

#define PS_BLUR_SIZE_MAX 255u
#define PS_BLUR_REACH_MAX (PS_BLUR_SIZE_MAX / 2)

/* For a device that does it itself: a, b, c, d, e, f of the source's coordinates; the blur's weights from the
 * middle outwards, how many follow the middle one; the noise's factor; all of a transform. */
void ps_affine_fixed(const struct ps_affine *map, int64_t ret_fixed[static 6]);
uint32_t ps_blur_weights(double sigma, uint32_t size, int32_t ret_weights[static PS_BLUR_REACH_MAX + 1]);
int32_t ps_noise_factor(double sigma);
void ps_transform_ops(const struct ps_transform *transform, const struct ps_transform_spec *spec,
        struct ps_image_ops *ret_ops);

/* What becomes of an image ------------------------------------------------------------------------------- */

/* What is to become of an image: the options of one field, checked.
 * Threads: any.   Errors: -EINVAL with a text that names the member, its value and its range. */

enum ps_crop {
	PS_CROP_RANDOM_RESIZED = 0, /* as torchvision's RandomResizedCrop */
	PS_CROP_CENTER = 1,         /* as Resize(resize_shorter), then CenterCrop: for evaluation */
	PS_CROP_NONE = 2,           /* the whole image, whatever its shape */
	PS_CROP_RANDOM =
	        3, /* as Resize (if one is asked for), then RandomCrop with padding, and pad_if_needed */
	PS_CROP_LETTERBOX = 4, /* resized to fit within the output, then padded to it */
};

enum ps_channels {
	PS_CHANNELS_RGB = 0,
	PS_CHANNELS_RGBA = 1,
	PS_CHANNELS_GRAY = 2,
};

enum ps_interpolation {
	PS_BILINEAR = 0, /* both antialiased when shrinking, as PIL does */
	PS_BICUBIC = 1,  /* a = -0.5 */
};

#define PS_IMAGE_SIDE_MAX 16384u /* of out_width, out_height, resize_shorter */
#define PS_IMAGE_VIEWS_MAX 64u
#define PS_IMAGE_MAX_PIXELS_DEFAULT (UINT64_C(1) << 27)   /* 11585 squared */
#define PS_IMAGE_MAX_SCANS_DEFAULT 100u                   /* usual progressive files have about 10 */
#define PS_IMAGE_MAX_MEMORY_DEFAULT (UINT64_C(256) << 20) /* a progressive JPEG of 89 megapixels 4:2:0 */

struct ps_image_spec {
	uint32_t out_width, out_height;
	enum ps_crop crop;
	/* Before PS_CROP_CENTER and PS_CROP_RANDOM: to a size, or the shorter side to this. Both 0: not
	 * resized (PS_CROP_RANDOM only). Before PS_CROP_CENTER not below out_width, out_height. */
	uint32_t resize_width, resize_height, resize_shorter;
	uint32_t padding_x,
	        padding_y; /* PS_CROP_RANDOM only: pixels added on each side; less than the output's */
	enum ps_pad_mode padding;
	double scale_min, scale_max; /* PS_CROP_RANDOM_RESIZED only: share of the image's area, */
	double ratio_min, ratio_max; /* ... and width / height of the crop */
	double hflip_probability;    /* 0 to 1, with any crop */
	double vflip_probability;
	enum ps_interpolation interpolation;
	enum ps_channels channels;
	enum ps_dtype dtype; /* PS_U8, PS_U16, PS_F32, PS_F16 or PS_BF16 */
	enum ps_layout layout;
	/* Not for PS_U8 and PS_U16: (value / 255 - mean) / std, in the form of picture.h. */
	float mean[3], std[3];
	bool orient;    /* as EXIF says; else as stored, as in torchvision's default loader */
	bool dct_scale; /* a JPEG that is shrunk to half or less is decoded at 1/2, 1/4 or 1/8: other pixels
	                 */
	uint32_t views; /* 0 and 1: one */
	uint32_t first_view; /* the number of the first in keys: what other decoders of the file do not use */
	struct ps_transform_spec transforms;
	bool deferred;                  /* transforms are drawn, and done by the caller: u8 and NCHW only */
	uint64_t max_pixels;            /* larger images are refused by their header; 0: the default above */
	uint32_t max_scans;             /* of a progressive file; 0: the default above */
	uint64_t max_memory;            /* see format.h; 0: the default above */
	struct ps_image_ticket *ticket; /* see format.h; borrowed by decoders */
};

/* What training on ImageNet usually takes: size x size, RandomResizedCrop(0.08..1, 3/4..4/3), flip 0.5,
 * bilinear, f32 NCHW, ImageNet's mean and standard deviation, default limits. */
struct ps_image_spec ps_image_spec_imagenet(uint32_t size);

int ps_image_spec_check(const struct ps_image_spec *spec, struct ps_load_error *err) PS_MUST_USE;

/* Bytes of one decoded image with all its views: channels * out_width * out_height elements each. 0 if the
 * spec is not sound. */
size_t ps_image_nbytes(const struct ps_image_spec *spec);

uint32_t ps_image_channels(const struct ps_image_spec *spec);

/* Its pixels are decoded as PS_PIXELS_RGBA16 and resized in 16 bits, and no transforms apply to it: others
 * than RGB, and PS_U16. */
bool ps_image_is_wide(const struct ps_image_spec *spec);

uint32_t ps_image_views(const struct ps_image_spec *spec);

/* Where a picture was cut out ---------------------------------------------------------------------------- */

/* What becomes of an image. Box and window must lie inside; no size is 0. */
struct ps_resize_geometry {
	uint32_t box_x, box_y, box_w, box_h; /* of the source, in pixels */
	uint32_t scaled_w, scaled_h;         /* the size that the box is resized to */
	uint32_t window_x, window_y;         /* the part of the scaled image that is wanted, ... */
	uint32_t window_w, window_h;         /* ... before the flip */
	bool flip;                           /* left to right */
	bool flip_v;                         /* upside down */
	struct ps_pad pad; /* what is around the window in the picture: not the resize's (picture.h) */
	uint32_t shrunk; /* the source is given 1 / shrunk as wide and high, sizes rounded up; 0 and 1: as is
	                  */
};

/* Weights for the window's outputs only. */
struct ps_resize_axis {
	uint32_t n;           /* outputs */
	uint32_t taps;        /* weights stored for each: max_count rounded up to 4, the rest 0 */
	uint32_t max_count;   /* most weights of an output */
	uint32_t source;      /* first source pixel with a weight, in the box */
	uint32_t source_size; /* source pixels from there on that have one */
	int bits;             /* weights are in units of 2^-bits */
	uint32_t *first;      /* [n]: first source pixel of an output, counted from `source` */
	uint32_t *count;      /* [n]: weights of an output */
	int16_t *weights;     /* [n][taps] */
	double *exact;        /* scratch: the weights before rounding */
	size_t cap_n, cap_weights, cap_exact;
};

/* What a plan comes to, for devices that do it themselves; borrowed until the next plan. The horizontal pass
 * shifts by h->bits - fraction and clamps to 255 << fraction, the vertical one shifts by v->bits + fraction.
 * Rows of a flip_v come last first. */
struct ps_resize_tables {
	const struct ps_resize_axis *h, *v; /* picture.h */
	int fraction;
	bool flip_v;
};

/* One picture made of an image: where it was cut out and what was done to it. Random choices made, so that
 * masks and boxes can follow. */
struct ps_image_view {
	struct ps_resize_geometry geometry;
	struct ps_transform transform;
};

/* Images to pixels --------------------------------------------------------------------------------------- */

/* Image files to pixels in place: decode what the crop shows, resize, flip, transform, normalise, straight
 * into the caller's memory (a sample's place in a batch slot).
 *
 * Formats, known by the first bytes: JPEG (below), PNG, WebP, PGM and PPM (png.c, webp.c, pnm.c); the latter
 * two where the build has their libraries.
 * Order of operations, which is fixed: EXIF orientation, crop and resize and flips (picture.h),
 * affine, jitter, gray, blur, noise, erase (above), normalise (picture.h).
 * Views: one decode may give several pictures of its own random choices each, side by side in dst; several
 * decoders may share a decode (ps_image_decode_shared); a decoder that follows another one places its image
 * as that one placed its own (frames of a clip, and labels: see below).
 *
 * Ownership: a decoder belongs to its creator, who keeps nothing of the spec's; the file's bytes and dst are
 *   borrowed for the call. A decoder keeps its buffers between calls.
 * Threads: one decoder a thread; different decoders never meet, but a leader and its followers share a
 * thread. Locks: none. Errors: 0 or -errno with a text; a damaged image is -EBADMSG, and what dst then holds
 * is not defined. Blocks: on the processor only. Pixels are a pure function of (bytes, spec, key): the same
 * for any thread, vector unit and machine (with one version of the format's library). */

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
 * decoder's own. Where their limits are the same, too, it gives its memory back and works in the leader's.
 * The leader must outlive the decoder's last decode. */
void ps_image_decoder_follow(struct ps_image_decoder *decoder, const struct ps_image_decoder *leader);

/* Decodes one image into dst (ps_image_nbytes() bytes, any alignment that its element type takes).
 *
 * 0; -EBADMSG: no image of a known format, truncated, damaged, of an unsupported kind, over a limit, or not
 * of the size of the one it follows (the text says which); -ENOMEM. A decoder stays usable after any error.
 *
 * Truncation and damage are errors wherever they are seen: a file without its end always, damage inside the
 * compressed pixels if it is in or above the crop (what is below is not decoded). */
int ps_image_decode(struct ps_image_decoder *decoder, const void *data, size_t nbytes,
        const struct ps_rng_key *key, void *dst, struct ps_load_error *err) PS_MUST_USE;

/* The same file into several decoders' places, decoded once; the limits and orientation are those of the
 * first. All of them are wide or none; none may follow another one of them. */
int ps_image_decode_shared(struct ps_image_decoder *const *decoders, void *const *dsts, uint32_t n,
        const void *data, size_t nbytes, const struct ps_rng_key *key, struct ps_load_error *err) PS_MUST_USE;

/* What normalises the spec's channels, of u8 values; not for PS_U8 and PS_U16. */
void ps_image_levels(const struct ps_image_spec *spec, float ret_scale[static 3], float ret_bias[static 3]);

/* What decoding an image would do, for devices that decode themselves. */
struct ps_image_outline {
	/* a JPEG of YCbCr or gray that need not be turned, and a crop inside of it; of others nothing else is
	 * known */
	bool plain_jpeg;
	struct ps_image_size stored;
	struct ps_region region; /* of it, that has a weight in the result */
	/* from the region to the result; borrowed until the decoder's next call */
	struct ps_resize_tables resize;
};

/* Reads the head of a file and draws what ps_image_decode() would, of a decoder that makes one view and
 * follows no other; the placement is that of this image from now on, for those that follow. Errors as there,
 * as far as the head says. */
int ps_image_sketch(struct ps_image_decoder *decoder, const void *data, size_t nbytes,
        const struct ps_rng_key *key, struct ps_image_outline *ret_outline,
        struct ps_load_error *err) PS_MUST_USE;

struct ps_image_placement ps_image_decoder_placement(const struct ps_image_decoder *decoder);

/* Labels that follow an image ---------------------------------------------------------------------------- */

/* Label images (segmentation masks) that follow an image: the same crop, resize, flips and affine map, each
 * output pixel taking one label: that of the source pixel under its centre.
 *
 *   output column i (before the flip) of a box of `box` pixels made into `scaled`:
 *     box_x + floor((2 * (window_x + i) + 1) * box / (2 * scaled)),  rows likewise; affine as above
 *
 * What a crop shows outside of the image is padded as the image is, with `fill` for its level.
 *
 * Labels are numbers as stored: PNG (gray of 1 to 16 bits, palettes: the place in the palette), PGM, gray
 * JPEG.
 *
 * Ownership: a decoder belongs to its creator; bytes, placement and dst are borrowed for the call.
 * Threads: one at a time.   Locks: none.   Blocks: on the processor only.
 * Errors: -EBADMSG (as for images; another size than the image's; a label that the type cannot hold),
 * -ENOMEM; with a text. */

struct ps_mask_spec {
	enum ps_dtype dtype; /* PS_U8, PS_U16, PS_I16, PS_I32, PS_I64 */
	uint32_t fill;       /* label of what an affine map or a crop takes from outside */
	bool orient;
	uint64_t max_pixels, max_memory; /* as of images; 0: the defaults */
	struct ps_image_ticket *ticket;  /* as of images */
};

struct ps_mask_decoder;

/* 0, or -EINVAL with a text. */
int ps_mask_spec_check(const struct ps_mask_spec *spec, struct ps_load_error *err) PS_MUST_USE;

/* NULL: no memory. The spec must be sound. */
struct ps_mask_decoder *ps_mask_decoder_new(const struct ps_mask_spec *spec);
void ps_mask_decoder_free(struct ps_mask_decoder *m);

/* Into dst: for each view of the placement window_h * window_w labels. */
int ps_mask_decode(struct ps_mask_decoder *m, const struct ps_image_placement *placement, const void *data,
        size_t nbytes, void *dst, struct ps_load_error *err) PS_MUST_USE;

/* Boxes that follow an image ----------------------------------------------------------------------------- */

/* Boxes that follow an image: corners through the same crop, resize, flips and affine map as its pixels.
 *
 * In: x0 y0 x1 y1, or another form, in pixels of the upright image or in shares of its sides. Out: x0 y0 x1
 * y1 in pixels of the picture made, cut at its edges; a box that lies outside is left with no area at the
 * nearest edge, so that boxes and their labels stay side by side. A turned box is the upright one around its
 * corners. Arithmetic in double, the result rounded to float. Ownership: none.   Threads: any.   Errors:
 * none.   Blocks: never. */

enum ps_box_format {
	PS_BOX_XYXY = 0,
	PS_BOX_XYWH = 1,   /* left, top, width, height, as COCO */
	PS_BOX_CXCYWH = 2, /* centre, width, height, as YOLO */
};

/* Where points of the image come to lie: x' = m[0] x + m[1] y + m[2], y' = m[3] x + m[4] y + m[5]. */
struct ps_boxes_map {
	double m[6];
	double width, height; /* of the picture made */
};

/* Of one view; with `shares` boxes are in shares of the image's sides. */
struct ps_boxes_map ps_boxes_map_of(const struct ps_image_placement *placement, uint32_t view, bool shares);

/* In place: n boxes of four floats. */
void ps_boxes_place(const struct ps_boxes_map *map, enum ps_box_format format, float *boxes, size_t n);

/* Mixing a batch ----------------------------------------------------------------------------------------- */

/* CutMix and MixUp: what is drawn for a batch, and the arithmetic on its pixels.
 *
 * Keys: {seed, epoch, sample = number of the batch in its epoch}, the rest 0: all ranks of a step draw the
 * same. Numbers of PS_RNG_MIX: 0 whether the batch is mixed (unit < probability), 1 whether by CutMix (unit <
 *   cutmix_share, where both have an alpha), 2 and 3 the middle of the box, 4 and on pairs for the weight.
 * Weight: lambda ~ Beta(alpha, alpha), by Joehnk's method where alpha <= 1, else Cheng's BB; with exp and log
 * of transform.c; then F(lambda, 16) / 65536. MixUp, of a row and its partner: f32 a * lambda + b * (1 -
 * lambda), rounded after each step; f16 and bf16 that, rounded; u8 (F a + (65536 - F) b + 32768) >> 16.
 * CutMix: the partner's pixels in a box with half sides floor(0.5 sqrt(1 - lambda) * side) about the middle
 *   floor(unit * side), cut at the edges; lambda is then 1 - the box's share of the image.
 *
 * Ownership: none.   Threads: any.   Errors: none.   Blocks: never. */

struct ps_mix_spec {
	double mixup_alpha, cutmix_alpha; /* 0: not that one; else 0.01 to 100 */
	double probability;               /* that a batch is mixed */
	double cutmix_share;              /* where both may be */
};

struct ps_mix {
	enum ps_mix_kind kind;
	uint32_t weight; /* lambda * 65536, of a row's own */
	double middle_x, middle_y;
};

struct ps_mix_box {
	uint32_t x0, y0, x1, y1; /* x1, y1 after the last */
};

void ps_mix_draw(const struct ps_mix_spec *spec, const struct ps_rng_key *key, struct ps_mix *ret_mix);

/* The box in an image of that size. */
struct ps_mix_box ps_mix_box_of(const struct ps_mix *mix, uint32_t width, uint32_t height);

/* own = own * weight + other * (1 - weight), n elements. */
void ps_mix_blend(enum ps_dtype dtype, void *own, const void *other, size_t n, uint32_t weight);

/* The box of `planes` planes of width * height pixels of pixel_nbytes each. */
void ps_mix_paste(const struct ps_mix_box *box, void *own, const void *other, uint32_t planes, uint32_t width,
        uint32_t height, size_t pixel_nbytes);

/* JPEG --------------------------------------------------------------------------------------------------- */

/* A JPEG file as RGB rows, of a region only: libjpeg-turbo with limits and a strict idea of damage.
 *
 * Decoding: accurate integer IDCT, fancy upsampling, as PIL and torchvision do. A region is decoded alone
 * (whole blocks around it, and one pixel of margin, which the upsampling of chroma needs), and equals the
 * same pixels of the whole image to the bit.
 *
 * Colours: YCbCr, RGB and gray become RGB. CMYK and YCCK are taken as inverted, as Adobe writes them and PIL
 * reads them: with the file's c, m, y, k (0 is full ink), red = k - div255(k * (255 - c)), div255 rounded.
 * Refused: other colour spaces, lossless, more than 8 bits.
 *
 * libjpeg's warnings:
 *   tolerated  unknown JFIF revision, unknown Adobe transform code, odd spectral selection in a sequential
 *              file, a damaged ICC profile, bytes between segments (in front of a restart marker, where
 *              MJPEG cameras write a few, 64 at most: more are codes that were not decoded)
 *   refused    all others: premature end of file or segment, bad Huffman or arithmetic code, lost restart
 *              markers, inconsistent progression. They mean that pixels are missing or wrong.
 * Refused besides, since the library would fill in gray: a file without an end-of-image marker after its
 * first scan header, and one with fewer bits than its first scan has blocks.
 *
 * The contract of ps_format_jpeg is in format.h. */

/* Of the library that is loaded, whatever header this was compiled with: a hash of its messages, with its
 * version and the years of its copyright, of pixels that it makes, and of whose entropy decoder runs
 * (huffman.h: ours refuses damage that the library's does not see). Another one may give other pixels. Any
 * thread; the first call decodes a few small files. */
uint32_t ps_jpeg_version(void);

/* What decodes entropy: "penstock", or "libjpeg: " and why (huffman.h). Static text; as
 * ps_jpeg_version(). */
const char *ps_jpeg_decoder(void);

/* For comparison: a decoder made by ps_format_jpeg leaves entropy decoding to libjpeg, or (the default) does
 * it itself where it can, with the same result (huffman.h). */
void ps_jpeg_library_only(void *decoder, bool on);

#endif
