/* Image files decoded to pixels in their places; labels and boxes that follow an image; mixing.
 *
 * From the top down; each file uses those below it:
 *
 *   image.c                   decode, crop, resize, flip, transform, normalise
 *   wide.c                    resize of RGBA, gray and 16-bit pictures
 *   mask.c                    labels and boxes that follow an image
 *   crop.c                    which part of an image becomes a picture; padding around it
 *   spec.c                    the options of a field, checked
 *   transform.c               operations on pixels: random choices, execution
 *   choice.c                  which operations are applied
 *   mix.c                     CutMix and MixUp
 *   resize.c, resize_*.c      crop, resize and flip in one pass, for each vector unit
 *   reader.c                  any file as rows, upright
 *   jpeg.c, png.c, webp.c, pnm.c             the formats (format.h)
 *   jpeg_entropy.c, huffman.c                the entropy decoder of JPEG
 *   orientation.c             the orientation in EXIF and XMP
 *   limits.c                  limits of one image; memory limit of all decoders
 *   encode.c                  pixels as a JPEG or PNG file
 *   pixel/                    pixel arithmetic for the CPU and for GPU kernels
 *
 * This folder is compiled without contraction of multiply and add, so that pixels are the same on every
 * machine.
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

/* A limit on the memory that all decoders of a loader together hold for images that need much memory:
 * progressive and interlaced files, WebP, and images that must be turned. When the limit is reached, a
 * decoder waits until another one is done. One image alone is always admitted, whatever its size.
 *
 * Ownership: a gate belongs to its creator and outlives its tickets; a ticket belongs to one thread.
 * Threads: any; a ticket one at a time.   Locks: the gate's own, a leaf.
 * Blocks: ps_format_take_memory() (format.h) waits for other threads' decodes, which never wait while they hold memory
 * of the gate. */

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

/* Gives back all that was taken, after the image is done. */
void ps_image_ticket_give(struct ps_image_ticket *ticket);

/* Rows of an image --------------------------------------------------------------------------------------- */

/* The format of pixels in decoded rows. */
enum ps_pixels {
	PS_PIXELS_RGB = 0,    /* three uint8_t; alpha is dropped, 16 bits lose their lower eight */
	PS_PIXELS_LABELS = 1, /* one uint16_t: the number as stored (gray value or palette index) */
	PS_PIXELS_RGBA16 = 2, /* four uint16_t: values of 8 bits times 257; alpha 65535 where there is none */
};

static inline size_t ps_pixels_nbytes(enum ps_pixels pixels)
{
	return pixels == PS_PIXELS_RGB ? 3 : sizeof(uint16_t) * (pixels == PS_PIXELS_RGBA16 ? 4 : 1);
}

/* 0: the defaults below. */
struct ps_image_limits {
	uint64_t max_pixels; /* by the header; checked before decoding */
	uint32_t max_scans;  /* most scans of a progressive JPEG */
	/* bytes that one image may need beyond a few rows: a progressive JPEG's coefficients, an interlaced
	 * PNG, a WebP, an image that must be turned */
	uint64_t max_memory;
	/* ticket that such memory is taken with, until the image is done; NULL: no limit */
	struct ps_image_ticket *ticket;
	/* JPEG and PNG files without an end are decoded, with the pixels that Pillow gives them with
	 * LOAD_TRUNCATED_IMAGES; false: they are refused */
	bool truncated;
};

/* A region of an image before the resize, in pixels of the decoded image; never empty. */
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

/* Reads image files of any format as upright rows: the format is chosen by the first bytes, and the image is
 * turned by its orientation (in EXIF or XMP) if requested. A region of a turned image equals the same part of the whole
 * turned image.
 *
 * Ownership: a reader belongs to its creator, and creates the decoder of a format on first use. The
 * contract of open, start, rows and close is in format.h; where the image is turned, rows may wait for
 * memory, too. */

struct ps_image_reader;

/* NULL: out of memory. With `orient` images are turned by the orientation in their EXIF or XMP. */
struct ps_image_reader *ps_image_reader_new(
        enum ps_pixels pixels, bool orient, const struct ps_image_limits *limits);
void ps_image_reader_free(struct ps_image_reader *s);

/* *ret_size: the size of the upright image. */
int ps_image_reader_open(struct ps_image_reader *s, const void *data, size_t nbytes,
        struct ps_image_size *ret_size, struct ps_error *err) PS_MUST_USE;

/* Writes the formats' libraries with their versions, separated by commas. */
void ps_image_libraries(char *buf, size_t n);

/* The EXIF orientation of a file, 1 (upright) to 8; 0: its format has none, or is not known. The file's
 * beginning suffices, if that holds the complete EXIF data: a JPEG's first 128 KiB do. */
uint32_t ps_image_orientation(const void *data, size_t nbytes);

/* Between open and start: asks for an image 1/by as wide and high (sizes rounded up; `by` is 1, 2, 4 or 8).
 * Only a format with a cheaper way to decode at such a size does that (JPEG). Returns the divisor in
 * effect, 1 for no change; regions and rows refer to that size from now on. */
uint32_t ps_image_reader_shrink(struct ps_image_reader *s, uint32_t by);

/* Between open and start: true for a JPEG in YCbCr or gray that need not be turned. */
bool ps_image_reader_is_plain_jpeg(const struct ps_image_reader *s);

int ps_image_reader_start(struct ps_image_reader *s, const struct ps_region *region, size_t slack_nbytes,
        struct ps_error *err) PS_MUST_USE;
int ps_image_reader_rows(
        struct ps_image_reader *s, struct ps_image_rows *ret_rows, struct ps_error *err) PS_MUST_USE;

/* Between the last rows and close: true if the file was truncated (limits->truncated). */
bool ps_image_reader_is_truncated(const struct ps_image_reader *s);
void ps_image_reader_close(struct ps_image_reader *s);

/* Pixels as files ---------------------------------------------------------------------------------------- */

/* Encodes rows of pixels, without padding between them, as a JPEG of that quality (1 to 100), or as a PNG of
 * 3 channels (RGB) or 1 (gray). The same pixels and libraries give the same bytes.
 *
 * *ret_out must be NULL, and gets memory that the caller frees by free(), also after an error.
 * Threads: any.   Errors: -EINVAL (too large for the format), -ENOMEM, -ENOTSUP (a build without libpng).
 * Blocks: on the processor. */
int ps_jpeg_encode(const uint8_t *rgb, struct ps_image_size size, int quality, uint8_t **ret_out,
        size_t *ret_nbytes, struct ps_error *err) PS_MUST_USE;
int ps_png_encode(const uint8_t *pixels, struct ps_image_size size, unsigned channels, uint8_t **ret_out,
        size_t *ret_nbytes, struct ps_error *err) PS_MUST_USE;

/* Padding ------------------------------------------------------------------------------------------------ */

enum ps_pad_mode {
	PS_PAD_FILL = 0,      /* a constant level */
	PS_PAD_EDGE = 1,      /* the edge pixel repeated: aaa|abcd|ddd */
	PS_PAD_REFLECT = 2,   /* mirrored, the edge not repeated: dcb|abcd|cba; mirrored again if needed */
	PS_PAD_SYMMETRIC = 3, /* mirrored, the edge repeated: cba|abcd|dcb */
};

struct ps_pad {
	uint32_t width, height; /* size of the picture; 0: the crop is inside the image, no padding */
	int64_t x, y;           /* the picture's left and upper edge, in pixels of the scaled image */
	enum ps_pad_mode mode;
};

/* Choice of operations ----------------------------------------------------------------------------------- */

/* Which operations are applied to an image: each with its own probability, or in a group with others.
 *
 * U(op, n) is the random number ps_rng_unit() of purpose PS_RNG_<op> and index n, uniform in [0, 1). An
 * operation without a group is applied if U(its op, 0) < its probability. For group g (counted from 0):
 *   apply   nothing is applied unless U(GROUP, g) < the group's probability; then each operation with its
 *           own probability, as torchvision's RandomApply
 *   one     likewise, but then exactly one is applied: [0, 1) is divided into shares proportional to the
 *           operations' probabilities, in the order below, and the operation whose share contains
 *           U(GROUP, 64 + g) is applied, as Albumentations' OneOf
 * The order of operations is fixed (below) and does not depend on groups.
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

/* All zero: no groups. */
struct ps_choice_groups {
	uint32_t n;
	struct ps_choice_group {
		bool one;
		double probability;
		uint32_t ops; /* bits: 1 << enum ps_choice_op */
	} groups[PS_CHOICE_NOPS];
};

/* NULL: none. */
int ps_choice_parse(const char *text, struct ps_choice_groups *ret_groups, struct ps_error *err) PS_MUST_USE;

struct ps_image_spec;

/* Each operation of a group must have a probability. */
int ps_choice_check(const struct ps_image_spec *spec, struct ps_error *err) PS_MUST_USE;

bool ps_choice_happens(const struct ps_image_spec *spec, enum ps_choice_op op, const struct ps_rng_key *key);

/* Operations --------------------------------------------------------------------------------------------- */

/* The operations after crop, resize and flip, always in this order: affine, jitter, gray, blur, noise,
 * erase.
 *
 * Each operation has a probability, and may be in a group (see above). It works on the resized u8 pixels and
 * rounds to u8 once. Its arithmetic is in integers and defined here, so that every processor gives the same
 * bits. Normalising follows the last operation.
 *
 * [n] is the index of a random number under PS_RNG_<op>, uniform() in the given range. F(x, n) = floor(x *
 * 2^n + 0.5).
 *
 * Affine, as torchvision's RandomAffine does to PIL images, bilinear:
 *   angle      [1] -degrees .. degrees;  zoom [4];  shears [5, 6] in degrees
 *   shifts     [2, 3] rint() of -translate * side .. translate * side, pixels
 *   source     X = a x + b y + c,  Y = d x + e y + f, of the centre of output pixel (x, y), in 2^-32 pixels
 *              and 64 bits; the six coefficients are rounded from doubles
 *   outside    0 <= X < width, 0 <= Y < height:  `fill`
 *   else       u = X - 1/2,  x0 = floor(u),  fx = the upper 10 bits of its fraction, likewise y:
 *              (p00 (1024 - fx) (1024 - fy) + p01 fx (1024 - fy) + p10 (1024 - fx) fy + p11 fx fy + 2^19)
 *              >> 20;  pixels beyond the edge are those at the edge
 *   labels     the label at floor(X), floor(Y)
 *
 * Gray value, as PIL:  L = (19595 r + 38470 g + 7471 b + 32768) >> 16
 *
 * Jitter, as torchvision's ColorJitter, in this order, or with jitter_random in one of the 24 orders; k =
 * F(factor, 12):
 *   factors    max(0, 1 - s) .. 1 + s:  [1] brightness, [2] contrast, [3] saturation;  [4] turn -h .. h
 *   brightness clamp((k v + 2048) >> 12)
 *   contrast   clamp((k v + (4096 - k) m + 2048) >> 12),  m = mean of all L, rounded
 *   saturation clamp((k v + (4096 - k) L + 2048) >> 12)
 *   hue        the pixel's position on the six edges of the colour hexagon, in units of 2^-16 edges. c is the
 *              number of the largest channel (the first of equals), `next` and `last` are the values of the
 *              two channels after it, in the order r, g, b, r, g:
 *                131072 c + ((next - last) * F(1 / (max - min), 24) >> 8), the product rounded towards zero
 *              The position is moved by F(6 turn, 16). The largest and the smallest value are kept; the
 *              middle channel becomes min + (((max - min) * fraction + 32768) >> 16), with the new position's
 *              fraction of an edge, or 65536 - fraction on odd edges.
 *   A step with strength 0 is skipped.
 *   order      r = below(24) [5]: the (r / 6)th of the four, the (r / 2 % 3)th of the other three,
 *              the (r % 2)th of the other two, and the last
 *
 * Gray: all three channels become L.
 *
 * Blur, as torchvision's GaussianBlur:
 *   sigma      [1] blur_sigma_min .. blur_sigma_max
 *   size       blur_size, or blur_size + 2 below((blur_size_max - blur_size) / 2 + 1) [2]
 *   weights    blur_size of them, F(w, 14), for both passes; the middle one is 2^14 less the others
 *   horizontal t = (sum q v + 128) >> 8, then vertical: (sum q t + 2^19) >> 20
 *   edges      mirrored, the edge pixel itself not repeated
 *
 * Noise:  clamp(v + ((n * F(sigma / 147.80054127, 16) + 32768) >> 16))
 *   sigma      noise_sigma, or [2] noise_sigma .. noise_sigma_max
 *   n          sum of four random bytes, less 510: nearly Gaussian, with a standard deviation of 147.8
 *   bytes      Philox, key u64 [1], counter {i, 0, 0, 0}: value 4i + j takes the bytes of word j
 *   value      number (c * height + y) * width + x
 *
 * Erase, as torchvision's RandomErasing: up to ten times draw an area [4t + 1] (erase_scale, share of the
 *   picture's) and a ratio [4t + 2] (erase_ratio, uniform in its logarithm).
 *   height = round(sqrt(area * ratio)), width = round(sqrt(area / ratio)), halves to even. The first attempt
 *   with both sides less than the picture's is placed uniformly: top below(height' - height + 1) [4t + 3],
 *   left likewise [4t + 4]. If no attempt fits, nothing is erased.
 *   fill       a level for each channel; or, with erase_random, noise as above with key u64 [64], about the
 *              channel's mean: clamp(mean + ((n * F(sigma / 147.80054127, 16) + 32768) >> 16))
 *
 * Threads: any, on different images.   Errors: with a text.   Blocks: never. */

struct ps_image_spec;

/* All zero: no operations. */
struct ps_transform_spec {
	double affine;                   /* probability, as are jitter, gray, blur, noise and erase */
	double degrees;                  /* 0 to 180 */
	double translate_x, translate_y; /* share of width and height, 0 to 1 */
	double zoom_min, zoom_max;       /* 0.01 to 100; both 0: 1 */
	double shear_x, shear_y;         /* degrees, 0 to 80 */
	uint32_t fill;                   /* level of pixels from outside the image, 0 to 255 */
	double jitter;
	double brightness, contrast, saturation; /* 0 to 7 */
	double hue;                              /* 0 to 0.5 */
	double gray;
	double blur;
	/* odd, to 255; 0: 3 with blur_size_max, else a tenth of the width, at least 3 */
	uint32_t blur_size;
	double blur_sigma_min, blur_sigma_max; /* pixels, 0.01 to 100; both 0: 0.1 to 2 */
	double noise;
	double noise_sigma;     /* levels, 0 to 255 */
	double noise_sigma_max; /* 0: noise_sigma; else sigma is drawn from noise_sigma to this */
	bool jitter_random;     /* jitter's steps are in a random order */
	uint32_t blur_size_max; /* 0: blur_size; else the size is drawn from blur_size to this; odd */
	double erase;
	double erase_scale_min,
	        erase_scale_max; /* share of the picture, above 0 to 1; both 0: 0.02 to 0.33 */
	double erase_ratio_min, erase_ratio_max; /* height / width, 0.001 to 1000; both 0: 0.3 to 3.3 */
	bool erase_random;
	uint8_t erase_level[3]; /* with erase_random the mean, ... */
	double erase_sigma[3];  /* ... and its standard deviation in levels, to 1000 */
	struct ps_choice_groups groups;
};

int ps_transform_check(const struct ps_transform_spec *spec, uint32_t width, uint32_t height,
        struct ps_error *err) PS_MUST_USE;

/* The point of the input that each output pixel shows. */
struct ps_affine {
	double inverse[6]; /* output to input, in pixels: x = i[0] x + i[1] y + i[2], y = i[3] x + ... */
};

/* The operations for one image, with all random choices made. */
struct ps_transform {
	bool affine, jitter, gray, blur, noise, erase;
	struct ps_affine map;
	uint32_t brightness, contrast, saturation; /* F(factor, 12) */
	int32_t turn;                              /* shift of the hue, in 2^-16 edges of the hexagon */
	uint32_t order;                            /* order of the jitter's steps: pixel/pixel.h */
	double sigma;
	uint32_t blur_size;
	double noise_sigma;
	uint64_t noise_key;
	struct ps_erase erased; /* pixel/pixel.h */
};

void ps_transform_draw(
        const struct ps_image_spec *spec, const struct ps_rng_key *key, struct ps_transform *ret_transform);

/* True if the transform changes pixels. */
bool ps_transform_acts(const struct ps_transform *transform);

/* Three planes of width * height bytes. */
struct ps_planes {
	uint8_t *p;
	uint32_t width, height;
};

/* Works in place, with `spare` (also three planes) as a second buffer. The result is in planes->p;
 * planes->p and *spare may have been swapped. */
void ps_transform_apply(const struct ps_transform *transform, const struct ps_transform_spec *spec,
        struct ps_planes *planes, uint8_t **spare);

#define PS_BLUR_SIZE_MAX 255u
#define PS_BLUR_REACH_MAX (PS_BLUR_SIZE_MAX / 2)

/* All operations of a transform, for devices that apply them themselves. */
void ps_transform_ops(const struct ps_transform *transform, const struct ps_transform_spec *spec,
        struct ps_image_ops *ret_ops);

/* Options of an image field ------------------------------------------------------------------------------ */

/* The processing of an image: the options of one field, checked. Threads: any.   Errors: -EINVAL with a
 * text that names the member, its value and its range. */

enum ps_crop {
	PS_CROP_RANDOM_RESIZED = 0, /* as torchvision's RandomResizedCrop */
	PS_CROP_CENTER = 1,         /* as Resize(resize_shorter), then CenterCrop: for evaluation */
	PS_CROP_NONE = 2,           /* the whole image, whatever its shape */
	PS_CROP_RANDOM = 3,         /* as Resize (if set), then RandomCrop with padding, and pad_if_needed */
	PS_CROP_LETTERBOX = 4,      /* resized to fit within the output, then padded to it */
};

enum ps_channels {
	PS_CHANNELS_RGB = 0,
	PS_CHANNELS_RGBA = 1,
	PS_CHANNELS_GRAY = 2,
};

enum ps_interpolation {
	PS_BILINEAR = 0, /* antialiased when shrinking, as in PIL; bicubic likewise */
	PS_BICUBIC = 1,  /* a = -0.5 */
};

#define PS_IMAGE_SIDE_MAX 16384u /* limit of out_width, out_height, resize_shorter */
#define PS_IMAGE_VIEWS_MAX 64u
#define PS_IMAGE_MAX_PIXELS_DEFAULT (UINT64_C(1) << 27)   /* 11585 squared */
#define PS_IMAGE_MAX_SCANS_DEFAULT 100u                   /* usual progressive files have about 10 */
#define PS_IMAGE_MAX_MEMORY_DEFAULT (UINT64_C(256) << 20) /* a progressive JPEG of 89 megapixels 4:2:0 */

struct ps_image_spec {
	uint32_t out_width, out_height;
	enum ps_crop crop;
	/* The resize before PS_CROP_CENTER and PS_CROP_RANDOM: to a size, or of the shorter side. All 0: no
	 * resize (PS_CROP_RANDOM only). For PS_CROP_CENTER not below out_width, out_height. */
	uint32_t resize_width, resize_height, resize_shorter;
	uint32_t padding_x,
	        padding_y; /* PS_CROP_RANDOM only: pixels added on each side; less than the output's side */
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
	/* turn images by the orientation in their EXIF or XMP; else as stored, as in torchvision's default
	 * loader */
	bool orient;
	/* a JPEG that is shrunk to half or less is decoded at 1/2, 1/4 or 1/8, which changes pixels */
	bool dct_scale;
	bool truncated; /* as in struct ps_image_limits */
	uint32_t views; /* 0 and 1: one */
	/* number of the first view in keys; must differ from those of other decoders of the file */
	uint32_t first_view;
	struct ps_transform_spec transforms;
	/* the decoder draws transforms, and the caller applies them: u8 and NCHW only */
	bool deferred;
	/* larger images (by their header) are refused; 0: the default above */
	uint64_t max_pixels;
	uint64_t max_memory;            /* as in struct ps_image_limits; 0: the default above */
	struct ps_image_ticket *ticket; /* as in struct ps_image_limits; borrowed by decoders */
};

/* The usual options for training on ImageNet: size x size, RandomResizedCrop(0.08..1, 3/4..4/3), flip 0.5,
 * bilinear, f32 NCHW, ImageNet's mean and standard deviation, default limits. */
struct ps_image_spec ps_image_spec_imagenet(uint32_t size);

int ps_image_spec_check(const struct ps_image_spec *spec, struct ps_error *err) PS_MUST_USE;

/* Bytes of one decoded image with all its views: channels * out_width * out_height elements each. 0 if the
 * spec is not valid. */
size_t ps_image_nbytes(const struct ps_image_spec *spec);

uint32_t ps_image_channels(const struct ps_image_spec *spec);

/* True for images that are decoded as PS_PIXELS_RGBA16, resized in 16 bits and not transformed: those with
 * channels other than RGB, or dtype PS_U16. */
bool ps_image_is_wide(const struct ps_image_spec *spec);

uint32_t ps_image_views(const struct ps_image_spec *spec);

/* Geometry of a picture ---------------------------------------------------------------------------------- */

/* Crop, resize and flip of an image. The box must be inside the image, the window inside the scaled image;
 * no size is 0. */
struct ps_resize_geometry {
	uint32_t box_x, box_y, box_w, box_h; /* part of the source, in pixels */
	uint32_t scaled_w, scaled_h;         /* the size that the box is resized to */
	uint32_t window_x, window_y;         /* the part of the scaled image that is computed, ... */
	uint32_t window_w, window_h;         /* ... before the flip */
	bool flip;                           /* left to right */
	bool flip_v;                         /* upside down */
	struct ps_pad pad; /* padding around the window in the picture; not done by the resize (picture.h) */
	uint32_t shrunk; /* the source is 1 / shrunk as wide and high, sizes rounded up; 0 and 1: full size */
};

/* The weights of one axis of a resize, for the window's outputs only. */
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

/* The weights of one image's resize, for devices that resize themselves; borrowed until the next image. The
 * horizontal pass shifts by h->bits - fraction and clamps to 255 << fraction, the vertical one shifts by
 * v->bits + fraction. With flip_v rows are in reverse order. */
struct ps_resize_tables {
	const struct ps_resize_axis *h, *v; /* picture.h */
	int fraction;
	bool flip_v;
};

/* One picture made of an image: its crop and its operations, with all random choices made, so that masks
 * and boxes can follow. */
struct ps_image_view {
	struct ps_resize_geometry geometry;
	struct ps_transform transform;
};

/* Images to pixels --------------------------------------------------------------------------------------- */

/* Decodes image files in place: decodes the part that the crop shows, resizes, flips, transforms and
 * normalises, straight into the caller's memory (a sample's place in a batch slot).
 *
 * Formats, known by the first bytes: JPEG (below), PNG, WebP, PGM and PPM (png.c, webp.c, pnm.c); PNG and
 * WebP where the build has their libraries.
 * Order of operations, which is fixed: orientation, crop and resize and flips (picture.h), affine,
 * jitter, gray, blur, noise, erase (above), normalise (picture.h).
 * Views: one decode may give several pictures, each with its own random choices, one after the other in dst.
 * Several decoders may share a decode (ps_image_decode_shared()). A decoder that follows another one places
 * its image as that one placed its own (frames of a clip, and labels: see below).
 *
 * Ownership: a decoder belongs to its creator and copies the spec; the file's bytes and dst are borrowed
 * for the call. A decoder keeps its buffers between calls.
 * Threads: a decoder one at a time; different decoders are independent, but a leader and its followers must
 * share a thread. Locks: none. Errors: 0 or -errno with a text; a damaged image is -EBADMSG, and what dst
 * then holds is not defined. Blocks: on the processor, and with a ticket as ps_format_take_memory() does.
 * Pixels are a pure function of (bytes, spec, key): the same for any thread, vector unit and machine (with
 * one version of the format's library). */

/* How the decoder placed its last image, for decoders that follow it. */
struct ps_image_placement {
	uint32_t width, height; /* size of the upright image; 0: no image yet */
	uint32_t nviews;
	const struct ps_image_view *views;
};

struct ps_image_decoder;

/* NULL with err filled: -EINVAL (the spec) or -ENOMEM. */
struct ps_image_decoder *ps_image_decoder_new(const struct ps_image_spec *spec, struct ps_error *err);

/* NULL is allowed. */
void ps_image_decoder_free(struct ps_image_decoder *decoder);

/* From now on the decoder takes crops and maps from the leader's last image. Both must have the same
 * views and output size. If their limits, tickets, orientation and form of pixels are the same, too, the
 * decoder frees its own memory and works in the leader's. The leader must outlive the decoder's last
 * decode. */
void ps_image_decoder_follow(struct ps_image_decoder *decoder, const struct ps_image_decoder *leader);

/* Decodes one image into dst (ps_image_nbytes() bytes, any alignment that its element type takes).
 *
 * 0; -EBADMSG: not an image of a known format, truncated, damaged, of an unsupported kind, over a limit, or
 * of another size than the leader's image (the text says which); -ENOMEM. A decoder stays usable after any
 * error.
 *
 * Truncation is an error, unless the spec allows it. Damage inside the compressed pixels is an error if it is in or above the
 * crop (rows below the crop are not decoded). */
int ps_image_decode(struct ps_image_decoder *decoder, const void *data, size_t nbytes,
        const struct ps_rng_key *key, void *dst, struct ps_error *err) PS_MUST_USE;

/* Decodes one file once, for several decoders with a dst each, with the limits, orientation and dct_scale of
 * the first. The decoders must be all wide or all not wide, and none may follow another one of them. */
int ps_image_decode_shared(struct ps_image_decoder *const *decoders, void *const *dsts, uint32_t n,
        const void *data, size_t nbytes, const struct ps_rng_key *key, struct ps_error *err) PS_MUST_USE;

/* For each channel the scale and bias that normalise u8 values. The spec's dtype must be a float. */
void ps_image_levels(const struct ps_image_spec *spec, float ret_scale[static 3], float ret_bias[static 3]);

/* How an image is decoded, for devices that decode themselves. */
struct ps_image_outline {
	/* true for a JPEG in YCbCr or gray that need not be turned, with a crop inside it; for others the
	 * fields below are not valid */
	bool plain_jpeg;
	struct ps_image_size stored;
	struct ps_region region; /* pixels of the stored image that have a weight in the result */
	/* from the region to the result; borrowed until the decoder's next call */
	struct ps_resize_tables resize;
};

/* Reads the header of a file and makes the random choices of ps_image_decode(). The decoder must make one
 * view and follow no other. Afterwards the decoder's placement is that of this image, for decoders that
 * follow. Errors as in ps_image_decode(), as far as the header shows them. */
int ps_image_sketch(struct ps_image_decoder *decoder, const void *data, size_t nbytes,
        const struct ps_rng_key *key, struct ps_image_outline *ret_outline, struct ps_error *err) PS_MUST_USE;

struct ps_image_placement ps_image_decoder_placement(const struct ps_image_decoder *decoder);

/* True if the file that was decoded last was truncated (spec.truncated). In a shared decode, the first decoder
 * knows. */
bool ps_image_decoder_is_truncated(const struct ps_image_decoder *decoder);

/* Labels that follow an image ---------------------------------------------------------------------------- */

/* Label images (segmentation masks) that follow an image: the same crop, resize, flips and affine map. Each
 * output pixel takes the label of the source pixel under its centre.
 *
 *   output column i (before the flip) of a box of `box` pixels made into `scaled`:
 *     box_x + floor((2 * (window_x + i) + 1) * box / (2 * scaled)),  rows likewise; affine as above
 *
 * The part of a crop outside the image is padded as the image is, with `fill` as the level.
 *
 * Labels are numbers as stored: PNG (gray of 1 to 16 bits; with a palette, the palette index), PGM, gray
 * JPEG.
 *
 * Ownership: a decoder belongs to its creator; bytes, placement and dst are borrowed for the call.
 * Threads: one at a time.   Locks: none.   Blocks: as ps_image_decode() does.
 * Errors: -EBADMSG (as for images; another size than the image's; a label that the type cannot hold),
 * -ENOMEM; with a text. */

struct ps_mask_spec {
	enum ps_dtype dtype; /* PS_U8, PS_U16, PS_I16, PS_I32, PS_I64 */
	uint32_t fill;       /* label of pixels from outside the image, for affine maps and crops */
	bool orient;
	uint64_t max_pixels, max_memory; /* as in struct ps_image_spec; 0: the defaults */
	struct ps_image_ticket *ticket;  /* as in struct ps_image_spec */
};

struct ps_mask_decoder;

/* 0, or -EINVAL with a text. */
int ps_mask_spec_check(const struct ps_mask_spec *spec, struct ps_error *err) PS_MUST_USE;

/* NULL: out of memory. The spec must be valid. */
struct ps_mask_decoder *ps_mask_decoder_new(const struct ps_mask_spec *spec);
void ps_mask_decoder_free(struct ps_mask_decoder *m);

/* Decodes labels into dst: for each view of the placement, one for each pixel of its picture. */
int ps_mask_decode(struct ps_mask_decoder *m, const struct ps_image_placement *placement, const void *data,
        size_t nbytes, void *dst, struct ps_error *err) PS_MUST_USE;

/* Boxes that follow an image ----------------------------------------------------------------------------- */

/* Boxes that follow an image: corners are mapped through the same crop, resize, flips and affine map as its
 * pixels.
 *
 * In: x0 y0 x1 y1, or another form, in pixels of the upright image or in shares of its sides. Out: x0 y0 x1
 * y1 in pixels of the output picture, cut at its edges. A box outside the picture becomes a box without
 * area at the nearest edge, so that boxes and labels keep the same order. A turned box becomes the upright
 * box around its corners. Arithmetic is in double, the result is rounded to float.
 * Ownership: none.   Threads: any.   Errors: none.   Blocks: never. */

enum ps_box_format {
	PS_BOX_XYXY = 0,
	PS_BOX_XYWH = 1,   /* left, top, width, height, as COCO */
	PS_BOX_CXCYWH = 2, /* centre, width, height, as YOLO */
};

/* The map of points of the image to the picture: x' = m[0] x + m[1] y + m[2], y' = m[3] x + m[4] y + m[5]. */
struct ps_boxes_map {
	double m[6];
	double width, height; /* size of the output picture */
};

/* The map of one view; `shares`: boxes are in shares of the image's sides. */
struct ps_boxes_map ps_boxes_map_of(const struct ps_image_placement *placement, uint32_t view, bool shares);

/* In place: n boxes of four floats. */
void ps_boxes_place(const struct ps_boxes_map *map, enum ps_box_format format, float *boxes, size_t n);

/* As ps_boxes_place(), but drops boxes without area in the picture, with less than min_area square pixels in it, or
 * with less than min_visible of their area in it. kept[i]: the place of the i-th box that is left among the n.
 * Returns the number of boxes that are left. */
size_t ps_boxes_place_some(const struct ps_boxes_map *map, enum ps_box_format format, double min_area,
        double min_visible, float *boxes, size_t n, uint32_t *kept);

/* Mixing a batch ----------------------------------------------------------------------------------------- */

/* CutMix and MixUp: the random choices for a batch, and the arithmetic on its pixels.
 *
 * Keys: {seed, epoch, sample = number of the batch in its epoch}, the rest 0: all ranks of a step make the
 * same choices. Numbers of PS_RNG_MIX: 0: whether the batch is mixed (unit < probability); 1: whether by
 * CutMix (unit < cutmix_share, where both have an alpha); 2 and 3: the middle of the box; from 4 on: pairs
 * for the weight.
 * Weight: lambda ~ Beta(alpha, alpha), by Joehnk's method where alpha <= 1, else Cheng's BB; with exp and log
 * of transform.c; then F(lambda, 16) / 65536. MixUp, of a row and its partner: f32 a * lambda + b * (1 -
 * lambda), rounded after each step; f16 and bf16 are computed as f32, and the result is rounded; u8 (F a +
 * (65536 - F) b + 32768) >> 16, with F = F(lambda, 16).
 * CutMix: the partner's pixels in a box with half sides floor(0.5 sqrt(1 - lambda) * side) about the middle
 *   floor(unit * side), cut at the edges; lambda is then 1 - the box's share of the image.
 *
 * Ownership: none.   Threads: any.   Errors: none.   Blocks: never. */

struct ps_mix_spec {
	double mixup_alpha, cutmix_alpha; /* 0: not used; else 0.01 to 100 */
	double probability;               /* that a batch is mixed */
	double cutmix_share;              /* probability of CutMix, where both are used */
};

struct ps_mix {
	enum ps_mix_kind kind;
	uint32_t weight; /* lambda * 65536: weight of the row's own pixels */
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

/* Copies the box from `other` to `own`, in `planes` planes of width * height pixels of pixel_nbytes each. */
void ps_mix_paste(const struct ps_mix_box *box, void *own, const void *other, uint32_t planes, uint32_t width,
        uint32_t height, size_t pixel_nbytes);

/* JPEG --------------------------------------------------------------------------------------------------- */

/* Reads JPEG files as RGB rows, of a region only, by libjpeg-turbo, with limits and strict checks for damage.
 *
 * Decoding: accurate integer IDCT, fancy upsampling, as PIL and torchvision do. A region is decoded alone
 * (whole blocks around it, and one pixel of margin, which the upsampling of chroma needs), and equals the
 * same pixels of the whole image to the bit.
 *
 * Colours: YCbCr, RGB and gray become RGB. CMYK and YCCK are read as inverted, as Adobe writes them and PIL
 * reads them: with the file's c, m, y, k (0 is full ink), red = k - div255(k * (255 - c)), div255 rounded.
 * Refused: other colour spaces, lossless, more than 8 bits.
 *
 * libjpeg's warnings:
 *   tolerated  unknown JFIF revision, unknown Adobe transform code, odd spectral selection in a sequential
 *              file, a damaged ICC profile, bytes between segments (before a restart marker 64 at most: MJPEG
 *              cameras write a few, but more are codes that were not decoded)
 *   refused    all others: premature end of file or segment, bad Huffman or arithmetic code, lost restart
 *              markers, inconsistent progression. They mean that pixels are missing or wrong.
 * Also refused, since the library would fill in gray (unless limits.truncated allows it): a file without an end-of-image marker after its first
 * scan header, and a file with fewer bits than its first scan has blocks.
 *
 * The contract of ps_format_jpeg is in format.h. */

/* A hash that identifies the loaded JPEG library, whatever header Penstock was compiled with. It covers the
 * library's messages (which include its version and the years of its copyright), pixels that it decodes, and
 * the entropy decoder in use (huffman.h: ours refuses damage that the library's does not see). A library with
 * another hash may give other pixels. Any thread; the first call decodes a few small files. */
uint32_t ps_jpeg_version(void);

/* The entropy decoder in use: "penstock", or "libjpeg: " and the reason (huffman.h). Static text; threads
 * as ps_jpeg_version(). */
const char *ps_jpeg_decoder(void);

#endif
