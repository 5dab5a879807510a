/* libpenstock: WebDataset tar shards in, batches out.
 *
 * A loader reads shards: tar files, plain or compressed by zstd, gzip or lz4, in which the members of a
 * sample share a key (at most 1024 members a sample). It decodes their fields on its own threads straight
 * into batches. It hands the batches out in an order that is a pure function of the options: the same seed
 * gives the same bytes for any number of threads.
 *
 *   struct penstock_options options;
 *   penstock_options_init(&options, sizeof(options));
 *   options.batch = 256;
 *   const char *shards[] = {"/data/train-{000000..001281}.tar"};
 *   struct penstock_loader *loader;
 *   struct penstock_error error;
 *   if (penstock_loader_open(&options, shards, 1, &loader, &error) < 0)
 *           errx(1, "%s", error.text);
 *   struct penstock_batch *batch;
 *   int r;
 *   while ((r = penstock_loader_next(loader, &batch, &error)) == 1) {
 *           struct penstock_tensor images, labels;
 *           penstock_batch_field(batch, "jpg", &images, &error);
 *           penstock_batch_field(batch, "cls", &labels, &error);
 *           ...
 *           penstock_batch_release(batch);
 *   }                                          (r == 0: the epoch is over; next begins the one after it)
 *   penstock_loader_close(loader);
 *
 * Ownership: each function describes who owns what it returns through ret_ arguments. Options, shard names
 * and fields are copied by penstock_loader_open(). Lifetime of a batch: from penstock_loader_next() until
 * penstock_batch_release() or penstock_loader_close(), whichever is first; tensors point into the batch.
 * There are `depth` batches, and they are reused. If the caller holds all of them, penstock_loader_next()
 * fails with -EBUSY, since it never waits for its own caller; penstock_loader_wait_released() waits for a
 * release, and penstock_loader_add_batch() makes one more batch. Threads: functions on different loaders may
 * run at the same time. On one loader, only one thread at a time may be in penstock_loader_next(), _wait(),
 * _wait_released(), _add_batch(), _set_epoch(), _state_save(), _state_load(), _length() and _close();
 * penstock_batch_*() and penstock_loader_stats() may be called on any thread. Loader threads block all
 * signals.
 *
 * Fork: a loader works in the process that opened it. In another process
 *   penstock_loader_close()       frees the memory of batches and touches no thread
 *   other penstock_loader_*()     fail with -ECHILD
 *   penstock_batch_release()      does nothing
 *   penstock_batch_use(), _sync() fail with -ECHILD where batches are on a device
 * and a batch that was held at the fork may still be read if it is in host memory.
 *
 * Errors: 0 or a positive result, or a negative errno with a line of text for a person in *error (NULL: no
 * text). Nothing is printed, no state is global. Units: bytes, seconds, counts. */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 4
#define PENSTOCK_VERSION_PATCH 0

/* The version of the library that runs, such as "0.4.0"; it may be newer than this header. */
const char *penstock_version(void);

/* The libraries that decode images, with versions: "libjpeg-turbo 2.1.5 (compiled with), libpng 1.6.39".
 * Any thread. Since 0.3. */
const char *penstock_libraries(void);

#define PENSTOCK_ERROR_TEXT_LEN 1024

struct penstock_error {
	int code; /* a positive errno; 0: none */
	char text[PENSTOCK_ERROR_TEXT_LEN];
};

/* What an error is about. Since 0.4. */
enum penstock_cause {
	PENSTOCK_CAUSE_OTHER = 0,   /* none of these: `code` says it */
	PENSTOCK_CAUSE_SAMPLE = 1,  /* a sample is damaged, or does not fit the kind of its field */
	PENSTOCK_CAUSE_FIELD = 2,   /* a sample lacks a field */
	PENSTOCK_CAUSE_SHARD = 3,   /* a shard is missing or cannot be read */
	PENSTOCK_CAUSE_CHANGED = 4, /* a shard was replaced */
	PENSTOCK_CAUSE_OPTIONS = 5, /* an option is wrong, or contradicts another one or the shards */
};

struct penstock_error_detail {
	uint32_t cause; /* enum penstock_cause */
	/* A positive errno. PENSTOCK_CAUSE_SHARD: the storage's. For a file on a penstock mount whose read
	 * failed with EIO it is the origin's, if the mount knows it: ETIMEDOUT, ECONNREFUSED. Other causes: as
	 * in struct penstock_error. */
	int32_t code;
	const char *shard; /* path of the shard; NULL: the error is about no shard */
	const char *key;   /* key of the sample; NULL: the error is about no sample; cut at 1023 bytes */
	uint64_t offset;   /* with `key`: of the sample in the shard, decompressed */
};

/* Describes the newest error that a function of this library returned on the calling thread. The texts are
 * valid until the next error on this thread. `size` is sizeof(struct penstock_error_detail). -ENODATA: there
 * was no error. Since 0.4. */
int penstock_error_detail(struct penstock_error_detail *ret_detail, size_t size);

/* Options ------------------------------------------------------------------------------------------------ */

/* How a field's bytes become part of a batch. */
enum penstock_kind {
	/* a JPEG, PNG, WebP, PGM or PPM, cropped and resized: rows of image_height x image_width x 3; with
	 * `views`, a row has that many images */
	PENSTOCK_IMAGE = 0,
	PENSTOCK_INT64 = 1, /* an integer in decimal digits, as in .cls files: one int64 a row */
	PENSTOCK_BYTES = 2, /* the member's bytes (txt, json, anything): values and offsets */
	PENSTOCK_NPY = 3,   /* an array of a .npy file */
	/* JSON, which is checked: its text as bytes. With a path in the name ("json:meta.height"), the value
	 * at that path: with dtype U8 (default) a string's characters, or the JSON text of another value;
	 * with another dtype a number, or an array of numbers */
	PENSTOCK_JSON = 4,
	PENSTOCK_TEXT = 5, /* bytes, checked to be UTF-8 */
	/* A label image (PNG, PGM, gray JPEG) that follows an image field: the same crop, resize, flips and
	 * affine map, each pixel one label; rows of image_height x image_width (of that field), views first.
	 * dtype: U8, U16, I16, I32 or I64 (default). */
	PENSTOCK_MASK = 6,
	/* Boxes that follow an image field: an array of n x 4 numbers (a .npy, a JSON value by its path, or
	 * text: four numbers a line) becomes n x 4 floats, x0 y0 x1 y1 in pixels of the result, clipped at
	 * its edges; a box outside the result stays in the list, without area. Ragged, or padded. */
	PENSTOCK_BOXES = 7,
	PENSTOCK_TOKENS = 8,  /* n + 1 tokens, raw or as a .npy: NAME has the first n, NAME:y the last n */
	PENSTOCK_FLOAT = 9,   /* a number as text: one element a row, rounded to dtype */
	PENSTOCK_OUTPUT = 10, /* what options.transform writes; no member of the shard */
};

enum penstock_dtype {
	PENSTOCK_U8 = 0,
	PENSTOCK_F32 = 1,
	PENSTOCK_F16 = 2,
	PENSTOCK_BF16 = 3,
	PENSTOCK_I32 = 4,
	PENSTOCK_I64 = 5,
	PENSTOCK_F64 = 6,
	PENSTOCK_U16 = 7,
	PENSTOCK_U32 = 8,
	PENSTOCK_U64 = 9,
	PENSTOCK_I8 = 10,
	PENSTOCK_I16 = 11,
	PENSTOCK_BOOL = 12, /* a byte, 0 or 1 */
	/* As source_dtype alone: PENSTOCK_U8, whose number means there that no type is given. Since 0.4. */
	PENSTOCK_SOURCE_U8 = 13,
};

enum penstock_layout {
	PENSTOCK_NCHW = 0,
	PENSTOCK_NHWC = 1,
};

enum penstock_channels {
	PENSTOCK_CHANNELS_RGB = 0,
	PENSTOCK_CHANNELS_RGBA = 1, /* RGB and alpha: 1 (255, 65535) where a file has none */
	PENSTOCK_CHANNELS_GRAY = 2, /* one channel: 0.299 r + 0.587 g + 0.114 b; alpha is dropped */
};

enum penstock_crop {
	/* RandomResizedCrop: a part of scale_min..scale_max of the area, whose width / height is in
	 * ratio_min..ratio_max */
	PENSTOCK_CROP_RANDOM = 0,
	/* the shorter side is resized to resize_shorter, then the middle is taken */
	PENSTOCK_CROP_CENTER = 1,
	/* the whole image, stretched to the size */
	PENSTOCK_CROP_NONE = 2,
	/* RandomCrop: a random part of image_width x image_height pixels. The image is taken as it is, or
	 * resized to resize_width x resize_height, or resized so that its shorter side is resize_shorter.
	 * Padding is added around it, and more of it if the image is still smaller than the part */
	PENSTOCK_CROP_RANDOM_CROP = 3,
	/* the whole image with its aspect ratio, as large as fits into the size, centred, with padding
	 * around it. One side fills the size; the other is scaled by the same factor and rounded, halves up.
	 * If the padding is odd, right and below have one pixel more */
	PENSTOCK_CROP_LETTERBOX = 4,
};

/* What a RANDOM_CROP or LETTERBOX shows outside of the image. */
enum penstock_padding {
	PENSTOCK_PADDING_CONSTANT = 0,  /* the level `fill`; a MASK field has its own `fill` */
	PENSTOCK_PADDING_EDGE = 1,      /* the pixels at the edge: aaa|abcd|ddd */
	PENSTOCK_PADDING_REFLECT = 2,   /* mirrored: dcb|abcd|cba */
	PENSTOCK_PADDING_SYMMETRIC = 3, /* mirrored with the edge: cba|abcd|dcb */
};

/* What is written over an erased part. */
enum penstock_erase_fill {
	PENSTOCK_ERASE_MEAN = 0,   /* the field's mean, which is 0 when normalised */
	PENSTOCK_ERASE_RANDOM = 1, /* noise of the field's mean and std */
	PENSTOCK_ERASE_LEVELS = 2, /* erase_levels */
};

enum penstock_jitter_order {
	PENSTOCK_JITTER_FIXED = 0,  /* brightness, contrast, saturation, hue */
	PENSTOCK_JITTER_RANDOM = 1, /* in a random order, as torchvision's ColorJitter */
};

/* How boxes are given. */
enum penstock_box_format {
	PENSTOCK_BOX_XYXY = 0,
	PENSTOCK_BOX_XYWH = 1,   /* left, top, width, height: COCO */
	PENSTOCK_BOX_CXCYWH = 2, /* middle, width, height: YOLO */
};

enum penstock_interpolation {
	PENSTOCK_BILINEAR = 0, /* both antialiased, as PIL's */
	PENSTOCK_BICUBIC = 1,
};

/* What happens to a value of more than max_bytes, or of more than pad_to items. */
enum penstock_overflow {
	PENSTOCK_OVERFLOW_ERROR = 0,    /* penstock_loader_next() fails, whatever on_error is (default) */
	PENSTOCK_OVERFLOW_BAD = 1,      /* the sample is bad */
	PENSTOCK_OVERFLOW_TRUNCATE = 2, /* the value is cut to whole items; a text between two characters */
};

#define PENSTOCK_PAD_LONGEST UINT32_MAX

#define PENSTOCK_MAX_DIMS 8

/* penstock_field.ndim of NPY: arrays without dimensions, of shape (), as numpy.float32(3). */
#define PENSTOCK_NDIM_SCALAR UINT32_MAX

/* What happens to a number that a float type cannot hold exactly. */
enum penstock_rounding {
	PENSTOCK_ROUNDING_EXACT = 0,   /* the sample is bad */
	PENSTOCK_ROUNDING_NEAREST = 1, /* rounded, ties to even; beyond the type's range the sample is
	                                * bad */
};

/* One field of a batch. Fill it by penstock_field_init(), then change members. A member's comment ends with
 * its default. The members below `kind` are for images, unless the comment says otherwise. A member that
 * would have no effect is refused (a member of another kind, noise_sigma without noise, scale_min with
 * another crop); the error's text names what it needs. */
struct penstock_field {
	size_t size; /* set by init: lets libraries of other versions read the struct */
	/* Suffix of the member, or alternatives separated by ';', of which the first that a sample has is
	 * taken: "jpg;jpeg". After a ':' the path of a value in a JSON member: "json:meta.height",
	 * "json:boxes.0" (kinds INT64, FLOAT, TEXT, JSON, TOKENS and NPY; a dot within a name as "\\."). */
	const char *name;
	uint32_t kind; /* enum penstock_kind */

	uint32_t image_width, image_height; /* pixels, 1 to 16384; 224 */
	/* Type of the elements. Images: U8, U16, F32 (default), F16 or BF16. INT64: any (I64). FLOAT: a
	 * float (F32). NPY: any (F32). JSON with a path: any (U8: texts). TOKENS: an integer (I64). OUTPUT:
	 * any (F32). A number that the type cannot hold exactly makes the sample bad; only FLOAT and JSON
	 * round, and NPY with `rounding` NEAREST. */
	uint32_t dtype;
	uint32_t layout;        /* PENSTOCK_NCHW (default) or PENSTOCK_NHWC */
	uint32_t crop;          /* enum penstock_crop; PENSTOCK_CROP_RANDOM */
	uint32_t interpolation; /* enum penstock_interpolation; PENSTOCK_BILINEAR */
	/* CROP_CENTER: pixels; 0 (default): 8/7 of the longer side of the result, so 256 for 224.
	 * CROP_RANDOM_CROP: likewise; 0 (default): the image is not resized. */
	uint32_t resize_shorter;
	double scale_min, scale_max; /* CROP_RANDOM: share of the image's area; 0.08, 1 */
	double ratio_min, ratio_max; /* CROP_RANDOM: width / height; 3/4, 4/3 */
	double hflip;                /* probability of a horizontal flip, with any crop; 0.5 */
	float mean[3], std[3];       /* not for U8 and U16: (value / 255 - mean) / std; ImageNet's */
	uint64_t max_pixels;         /* a larger image is a bad sample; 0 (default): 2^27 */

	/* All kinds except IMAGE and MASK: 1: a sample without the field (or without the value at its path)
	 * is sound; 0 (default): it is bad. */
	uint32_t optional;
	/* Optional fields of a fixed shape: the value of all elements of a row without the field; -1
	 * (FLOAT: NaN). In other optional fields such a row is empty. */
	int64_t missing_value;

	/* -- From here on: since 0.2. -- */

	/* NPY, JSON with a path, TOKENS, OUTPUT: the shape of a row, `ndim` dimensions of `shape`, at most 7;
	 * a sample's data must have that shape. shape[0] = 0: as many items as the sample has: the field is
	 * ragged, and an item has the shape of the rest. ndim 0: one element (a JSON number); for NPY,
	 * TOKENS, and OUTPUT with pad_to or max_bytes, the same as {0}. NPY: PENSTOCK_NDIM_SCALAR is for
	 * arrays of shape (), which other fields take as {1}. */
	uint32_t ndim;
	/* Ragged fields (BYTES, TEXT, JSON texts; the above with shape[0] = 0). 0 (default): values and
	 * offsets, one row after the other. N: each row padded to N items. PENSTOCK_PAD_LONGEST: to the
	 * longest row of the batch. Padded fields come with NAME:lengths (int64, a row's items) and NAME:mask
	 * (bool, rows x items, 1 where an item is). */
	uint32_t pad_to;
	uint64_t shape[PENSTOCK_MAX_DIMS - 1];
	uint32_t pad_multiple; /* PAD_LONGEST: the length becomes a multiple of this; 0 (default), 1:
                                * unchanged */
	uint32_t overflow;     /* enum penstock_overflow */
	int64_t pad_value;     /* of the elements of padding; 0 */
	uint64_t max_bytes;    /* ragged fields: limit of a row in the batch; 0 (default): no limit */
	/* Ragged fields of integers: the name of another ragged field. To each number of a row is added how
	 * many items the other field has in all rows before it. So the numbers index the items of the whole
	 * batch: for edges of graphs, which are numbers of nodes. A number that is not the index of an item
	 * of the other field in the same row makes the sample bad. NULL: nothing is added. */
	const char *add_offset_of;
	/* TOKENS: the type of tokens in members that are not .npy: PENSTOCK_SOURCE_U8 (not PENSTOCK_U8, which
	 * is 0), PENSTOCK_U16, U32, I32 or I64, little-endian. 0 (default): as the index NAME.idx beside a shard NAME.bin says, in Megatron's format;
	 * without one u16. An index that says another type than the field is an error. */
	uint32_t source_dtype;

	/* IMAGE: 1: turned as the file's EXIF orientation says. 0 (default): as stored. MASK: likewise. */
	uint32_t orient;

	/* The member that the field is read from, in the form of `name`, for a field with another name than
	 * its member; NULL: `name` is also the member's. Image fields of one member are decoded once, each
	 * with its own random choices: multi-crop. */
	const char *member;
	/* IMAGE: the name of an earlier image field, whose crop, flips and map this field shares (frames,
	 * pairs). In a sample the images of both fields must have the same size. image_width, image_height
	 * and views are those of the earlier field. MASK and BOXES: the image field they belong to; NULL: the
	 * first image field. */
	const char *follow;
	/* IMAGE: pictures made of one decode, each with random choices of its own; rows get a dimension for
	 * them. 0 (default): one, without that dimension; at most 64. */
	uint32_t views;
	/* IMAGE: 1: a JPEG that is shrunk to 1/2 or less is decoded at 1/2, 1/4 or 1/8 of its size, which is
	 * faster for large ones and gives other pixels. 0 (default): always in full. */
	uint32_t dct_scale;
	uint64_t
	        max_memory; /* has gone: 0. An image may need 256 MiB besides a few rows (progressive and interlaced
	                      * files, WebP, turned ones), or 8 bytes for each of max_pixels if that is set and
	                      * gives more; one that needs more is bad */
	uint32_t max_scans; /* has gone: 0. A progressive JPEG of more than 100 scans is bad */

	/* -- IMAGE: operations after crop, resize and flips, in this order. Each has a probability; 0
	 * (default): never. Members added later are at the end of the struct. The arithmetic is in the
	 * library's image/image.h. -- */
	uint32_t fill;      /* affine, padding: level (MASK: label) of pixels outside the image; 0 */
	double vflip;       /* probability of turning the picture upside down */
	double affine;      /* probability of an affine map: */
	double degrees;     /* turned by up to this each way, 0 to 180 */
	double translate_x; /* shifted by up to this share of the width, 0 to 1, ... */
	double translate_y; /* ... and of the height */
	double zoom_min;    /* enlarged by zoom_min..zoom_max, 0.01 to 100; both 0: 1 */
	double zoom_max;
	double shear_x, shear_y;               /* by up to this many degrees each way, 0 to 80 */
	double jitter;                         /* probability of a colour jitter, in these steps: */
	double brightness;                     /* times 1 - b .. 1 + b, 0 to 7 */
	double contrast;                       /* likewise, about the mean gray */
	double saturation;                     /* likewise, about the pixel's gray */
	double hue;                            /* turned by up to this share of the circle, 0 to 0.5 */
	double gray;                           /* probability of losing colour */
	double blur;                           /* probability of a Gaussian blur: */
	double blur_sigma_min, blur_sigma_max; /* pixels, 0.01 to 100; both 0: 0.1 to 2 */
	double noise;                          /* probability of Gaussian noise: */
	double noise_sigma;                    /* standard deviation of the noise in levels, 0 to 255 */
	uint32_t blur_size; /* weights of the blur along each axis, odd, up to 255; 0: a tenth of the width */

	uint32_t box_format; /* BOXES: enum penstock_box_format; XYXY */
	uint32_t box_shares; /* BOXES: 1: given as shares of the image's sides; 0 (default): in pixels */
	/* CENTER, RANDOM_CROP: the image is stretched to this size first; both 0 (default): see
	 * resize_shorter. */
	uint32_t resize_width, resize_height;
	uint32_t padding_x,
	        padding_y;     /* RANDOM_CROP: pixels added left and right, above and below; less than the
	                                * result's sides; 0 */
	uint32_t padding_mode; /* RANDOM_CROP, LETTERBOX: enum penstock_padding; CONSTANT */
	uint32_t jitter_order; /* enum penstock_jitter_order; FIXED */
	/* A random odd size of the blur from blur_size (0: 3) to this; 0 (default): blur_size. */
	uint32_t blur_size_max;
	double noise_sigma_max; /* a random sigma from noise_sigma to this; 0 (default): noise_sigma */
	/* After the noise: probability of writing over a rectangle, as torchvision's RandomErasing. Boxes and
	 * masks stay as they are. */
	double erase;
	double erase_scale_min, erase_scale_max; /* rectangle's share of the picture; both 0: 0.02 to 0.33 */
	double erase_ratio_min, erase_ratio_max; /* its height / width, 0.001 to 1000; both 0: 0.3 to 3.3 */
	uint32_t erase_fill;                     /* enum penstock_erase_fill; MEAN */
	uint32_t erase_levels;                   /* ERASE_LEVELS: 0xRRGGBB */
	/* Operations under one probability, as "apply:0.8=jitter,gray;one:0.5=blur,noise". apply
	 * (RandomApply): with the group's probability, each operation is applied with its own probability;
	 * else none is. one (OneOf): with the group's probability, one operation is applied, chosen in
	 * proportion to the operations' probabilities. Names: hflip, vflip, affine, jitter, gray, blur,
	 * noise, erase, each in one group at most. The order of operations does not change. NULL (default):
	 * each on its own. */
	const char *groups;
	/* 1: the field is for transforms alone, and not part of batches. 0 (default): it is part of
	 * batches. */
	uint32_t hidden;
	uint32_t rounding; /* NPY with a float dtype: enum penstock_rounding; EXACT */
	/* IMAGE: enum penstock_channels; RGB. Pictures with other channels than RGB, or of dtype U16 (0 to
	 * 65535; 8-bit files times 257), are decoded and resized in 16 bits; crops, flips and padding apply
	 * to them, the later operations do not. GRAY takes mean[0] and std[0]; alpha stays 0 to 1. */
	uint32_t channels;
};

enum penstock_order {
	PENSTOCK_ORDER_NONE = 0,   /* as in the list; with end UNEVEN ranks take shards in turn */
	PENSTOCK_ORDER_SHARDS = 1, /* shards shuffled, samples as in them */
	PENSTOCK_ORDER_WINDOW = 2, /* shards shuffled, and samples within shuffle_window (default) */
	/* All samples are shuffled with each other, and each is read from its place in its shard. Every
	 * shard needs an index, and should be a file with fast random access (see permute_remote). */
	PENSTOCK_ORDER_PERMUTATION = 3,
	/* The sample numbers of `numbers`, or those that penstock_loader_feed() gives; otherwise as
	 * PERMUTATION. The numbers are for this rank alone, and are not split among ranks. */
	PENSTOCK_ORDER_NUMBERS = 4,
};

/* How an epoch ends. With world > 1 all ends except UNEVEN need the number of samples of every shard, from
 * its index (`penstock-loader index`), or `steps`; without either, penstock_loader_open() fails. */
enum penstock_end {
	/* Every sample once. The last batch may be short, and ranks may have different numbers of batches:
	 * synchronous training (DDP) hangs at the end of the epoch, unless the training loop itself limits
	 * the steps of an epoch. */
	PENSTOCK_END_UNEVEN = 0,
	/* Samples that do not fill a global batch are left out: fewer than global_batch in each epoch. */
	PENSTOCK_END_DROP_LAST = 1,
	/* Every sample once. The last batch is filled by repeated rows with valid = 0, fewer than global_batch in
	 * each epoch. */
	PENSTOCK_END_PAD = 2,
	/* Every sample once, and the same number of batches on all ranks: the ranks' last batches differ by
	 * at most one row (default; with one rank this is UNEVEN). If that is impossible (batch 1, or fewer
	 * samples than ranks), the last batch of a rank without a sample is one repeated row, valid = 0.
	 *
	 * SPLIT and PAD: rank r without a sample in a step of n samples repeats the one of rank r mod n, with
	 * the same random choices. stats.repeats counts such rows. */
	PENSTOCK_END_SPLIT = 3,
	/* As PAD, but the samples of the last step are dealt to the lowest ranks first, a batch to each, so that
	 * all rows with valid = 0 come after them: what is gathered from rank 0 on begins with the samples of the
	 * step, as Accelerate's gather_for_metrics() needs it. Ranks may be left with none. */
	PENSTOCK_END_GATHER = 4,
};

enum penstock_mix_end {
	PENSTOCK_MIX_FIRST = 0,   /* the epoch ends when a dataset is due that has no more samples
	                         * (default) */
	PENSTOCK_MIX_LONGEST = 1, /* the epoch ends with the longest dataset; the others are read again
	                           * until then */
};

/* What the shards are. In a shard that is not a tar, each sample has one member; its key is the file's name
 * (without .zst, .gz or .lz4, and up to its last dot) and the sample's number: "train-007-12". */
enum penstock_source {
	/* The name decides, without .zst, .gz or .lz4 at its end: .jsonl and .txt are lines; .bin are tokens,
	 * if a field is of kind TOKENS; all other shards are tars. */
	PENSTOCK_SOURCE_AUTO = 0,
	PENSTOCK_SOURCE_TAR = 1,
	/* Lines of text: member "json" in .jsonl files, whose blank lines are left out, else "txt"; "line"
	 * means either. */
	PENSTOCK_SOURCE_LINES = 2,
	/* A file of tokens alone: windows of n + 1 of them, for the first field of kind TOKENS, whose shape
	 * is {n} and whose source_dtype is their type. The number of windows follows from the file's size,
	 * so no index is needed. */
	PENSTOCK_SOURCE_TOKENS = 3,
};

enum penstock_on_error {
	/* penstock_loader_next() fails, and names the first bad sample's shard, key, offset and reason
	   (default). */
	PENSTOCK_FAIL = 0,
	/* A bad sample's row repeats the next good row of its batch (cyclic), valid = 0; the sample is
	 * counted. A batch without any good row (most likely a batch of one or a few rows) is blank: rows of
	 * zeros; nothing in ragged fields, padding in padded ones; missing_value in integer fields that are
	 * optional or whose missing_value was set; valid = 0, shard and sample -1. max_bad ends the run, and so
	 * does an epoch without any good sample on this rank (a wrong path, a mount that is gone): next() fails
	 * at its end. Other ranks may have good samples and go on. */
	PENSTOCK_SKIP = 1,
};

/* A limit of the bytes that several loaders hold together: pass it to each in options.budget. */
struct penstock_budget;

/* A sample for which a transform is called; see below. */
struct penstock_sample;

/* Returns 0, or a negative errno: the sample is bad then (-ENOMEM: next() fails), for the reason that
 * penstock_sample_fail() was given. Runs on the decoding threads, on several at once; must not call the
 * loader, and must be a pure function of the sample if batches are to be the same for any number of threads.
 */
typedef int (*penstock_transform)(void *ctx, struct penstock_sample *sample);

/* The same for the sound samples of a unit of rows at once: for callers whose calls are expensive, such as
 * an interpreter with a lock. Samples for which penstock_sample_fail() is called are bad. Returns 0, or a
 * negative errno: the batch fails in its turn, whatever on_error is (-ENOMEM; any other errno is reported
 * as -ECANCELED, with the text that penstock_sample_fail() got for the first sample). May block, but must
 * not wait for the thread that calls the loader. Since 0.3. */
typedef int (*penstock_transform_unit)(void *ctx, struct penstock_sample *const *samples, uint32_t n);

/* Fill by penstock_options_init(), then change. */
struct penstock_options {
	size_t size; /* set by init: lets libraries of other versions read the struct */

	/* What a batch holds. NULL: an image from "jpg;jpeg", and an int64 from "cls", optional. */
	const struct penstock_field *fields;
	uint32_t nfields; /* at most 1024 */

	/* Rows of a batch on this rank; 1 to 65536; 64. */
	uint32_t batch;
	/* Batches in the loader; 2 to 64; 0 (default): 4, or 3 or 2 if 4 would take more than half of the
	 * budget. */
	uint32_t depth;

	/* Threads that decode; 1 to 1024; 0 (default): the CPUs that this process may use, and one more
	 * with transform_unit, whose code may wait for locks. */
	uint32_t threads;
	uint32_t readers; /* threads that read shards; 1 to 64; 0 (default): as many as `threads`, but at
                           * least 2 and at most 8; 8 on a mount that takes plans */

	/* Bytes of batches, read buffers, decompressors and the samples of the shuffle window; 512 MiB. The
	 * ragged fields of one batch may take memory_budget / (2 * depth). Samples that do not fit are read
	 * again from their file when they are due. Samples of pipes and of compressed shards cannot be read
	 * again: they are held, even beyond the budget; a smaller shuffle_window holds fewer. Example: 4096
	 * samples of 110 kB are 430 MiB; beside 4 batches of 64 x 3 x 224 x 224 floats (149 MiB) and 64 read
	 * buffers (64 MiB), about two thirds of these samples are held. Images that need much memory while
	 * they are decoded (progressive, interlaced) share a quarter of what batches and read buffers leave,
	 * at most 64 MiB, and 24 MiB beyond the budget; they wait for each other. The process takes at most
	 * the budget and 64 MiB more (these 24 MiB included), apart from the decoders' own memory, a few MiB
	 * a thread. */
	uint64_t memory_budget;

	/* The order: a pure function of these and of the shards' contents. */
	uint64_t seed;   /* 0 */
	uint64_t epoch;  /* the first epoch; 0 */
	uint64_t epochs; /* after this many, next() always returns 0; 0 (default): no end */
	uint32_t order;  /* enum penstock_order; PENSTOCK_ORDER_WINDOW */
	/* Samples that are shuffled with each other, over all ranks; 1 to 2^24; 0 (default): 4096, or 16
	 * global batches where that is more. The window is divided among the lanes: each lane shuffles
	 * blocks of its share, which is 64 samples with 64 lanes. An epoch begins with shorter blocks (1/16
	 * of the share, then 1/16, 1/8, 1/4 and 1/2; in epoch 0 from 1/128 on), so that its first batch does
	 * not wait for a whole window; not with `bucket`. */
	uint32_t shuffle_window;
	/* The epoch is read as this many interleaved sequences of shards; 1 to 16384; 0 (default): chosen
	 * from the number of shards and from G, which is the global batch or its first multiple that is at
	 * least 64. With at least 2 G shards there are G lanes; with fewer, G / 2, but at least 64, and at
	 * most one for each shard. A list with compressed shards, which stay open, has at most 256 lanes (or
	 * `world`, if that is more). So as long as no lane has ended, a rank's batch of b samples comes from
	 * b shards, from b / 2, or from all that the rank reads (shards / world). The same lanes, seed and
	 * global batch give the same samples in each global batch for any world. Lane l belongs to rank l mod
	 * world (with ranks_per_node to another rank, see there): each rank gets the samples of its own lanes
	 * in a global batch, up to its share; the surplus goes to ranks that lack samples, those of the same
	 * node first. If lengths are not known (end UNEVEN without `steps`), a rank reads only its own lanes.
	 * Then other worlds give other global batches after the first lane has ended (from the beginning, if
	 * world does not divide the lanes), and there must be at least as many lanes and shards as ranks. */
	uint32_t lanes;
	uint32_t rank, world; /* this is rank (from 0) of world ranks; 0 of 1 */
	uint32_t end;         /* enum penstock_end; PENSTOCK_END_SPLIT */

	uint32_t on_error; /* enum penstock_on_error; PENSTOCK_FAIL */
	uint32_t max_bad;  /* SKIP: more consecutive bad samples than this end the run; 100 */

	/* Memory of batches. NULL or "cpu": page-aligned memory of this process. "cuda", "cuda:N": memory of
	 * that NVIDIA GPU, in its primary context, which CUDA's runtime and torch use, too; each batch is
	 * filled in page-locked host memory (within memory_budget) and copied from there; see
	 * penstock_batch_use(). The driver is opened only for such a device: -ENODEV if there is none. */
	const char *device;

	/* Folder of the shards' indexes (`penstock-loader index --dir`). An index that is not in the folder
	 * is looked for beside its shard. NULL (default): all indexes are looked for beside their shards. A
	 * catalogue beside the shards (`pack --index`) may have the counts of all of them. An index never
	 * changes an order. */
	const char *index_dir;

	/* A saved state to begin with, as penstock_loader_state_load() does, with the same errors; the
	 * beginning of the epoch is not read. NULL (default): begin at the beginning of `epoch`. Borrowed
	 * during penstock_loader_open(). */
	const void *state;
	size_t state_nbytes;

	/* -- From here on: since 0.2. -- */

	/* Called for each sound sample with its decoded fields, to fill fields of kind OUTPUT. NULL: none. */
	penstock_transform transform;
	void *transform_ctx; /* the first argument */
	/* A state is refused by a loader whose transform has another version: raise it when the transform's
	 * results change. */
	uint64_t transform_version;

	/* Rows of a batch over all ranks; must be a multiple of world, and sets `batch` to global_batch /
	 * world. 0 (default): batch * world. A state depends on this number, not on world: a run may continue
	 * with another world. */
	uint32_t global_batch;
	/* Length buckets, at most 256: samples of similar length (bytes of the wanted fields) come
	 * together. Each lane's share of shuffle_window is sorted by length and cut into this many runs,
	 * which come in the same order in all lanes. So shuffle_window / bucket consecutive samples are of
	 * similar length; this quotient should be a multiple of global_batch. 0 (default), 1: none. order
	 * WINDOW only. */
	uint32_t bucket;
	/* Batches of an epoch on each rank. The shards are read again as often as that takes (each lane for
	 * itself), or `repeat` times at most. 0 (default): as many as the samples give. */
	uint64_t steps;
	uint64_t repeat;  /* each sample comes this many times an epoch, in `repeat` passes; 0 (default): see
	                     steps */
	uint64_t skip;    /* samples of the epoch's order that are left out at its beginning; 0 */
	uint64_t take;    /* samples that the epoch has at most, after `skip`; 0 (default): all */
	uint32_t mix_end; /* enum penstock_mix_end; FIRST */
	uint32_t nmix;
	/* Several datasets: weights, one for each string of `shards` given to open, whose shards are a
	 * dataset. From the beginning of an epoch's order to any place in it, each dataset has samples in
	 * proportion to its weight, at most 4 more or less with up to 64 datasets; in a stretch in the middle,
	 * at most 6. `nmix` is the number of weights; NULL (default): all strings are one dataset. With
	 * world > 1 counts or `steps` are needed. */
	const double *mix;

	/* PERMUTATION, NUMBERS: 1: shards that are not resident (on a penstock mount, not yet in its cache)
	 * are allowed: every sample of theirs is a request of its own to the origin. 0 (default): such
	 * shards are refused. */
	uint32_t permute_remote;
	/* 1: samples are counted for penstock_loader_profile(), which costs less than 1 %. 0 (default):
	 * they are not counted. */
	uint32_t profile;
	/* MixUp and CutMix of finished batches: each row is mixed with the row before it. The alphas of the
	 * weights' beta distributions: 0 (default): off, else 0.01 to 100. Every image field is mixed; masks
	 * follow CutMix. Batches then have the tensors "__mix_lambda__" (f32, the share of a row's own
	 * label), "__mix_row__" (int64, the row that has the other label) and for each INT64 or FLOAT field
	 * NAME:mix, the other row's label. In a step all ranks draw the same weight and box. */
	double mixup_alpha, cutmix_alpha;
	double mix_probability; /* that a batch is mixed; 1 */
	double cutmix_share;    /* with both alphas: the share of mixed batches that take CutMix; 0.5 */

	/* A limit that this loader shares with others (training and validation): its batches and read buffers
	 * are taken from the limit as long as the loader is open, its window and ragged fields as needed.
	 * If windows have filled the limit, they shrink for a loader that is opened later, as their samples
	 * are delivered. memory_budget is the most that this loader takes. NULL (default): memory_budget
	 * alone. */
	struct penstock_budget *budget;

	/* What the shards are: enum penstock_source; AUTO. */
	uint32_t source;
	/* Has gone: 0. PENSTOCK_INDEX_MAKE makes missing indexes, and so does penstock-loader index. */
	uint32_t write_index;
	/* Token streams: tokens from one window's beginning to the next one's; 0 (default): as many as the
	 * field has, so that each token except the first is once a target. */
	uint64_t token_stride;
	/* Fields by other names than their members: "image=jpg;png label=cls": words NAME=SUFFIXES with white
	 * space between; a field called NAME is made of these. NULL (default): fields are called as their
	 * members. */
	const char *rename;

	/* Which samples come, by the columns of the shards' indexes (`penstock-loader index --column`). A
	 * filter: "label == 3 && (h >= 256 || kind != 'gray')"; comparisons of a column with a number or a
	 * text, with && || ! and parentheses; false where the sample has no such value. NULL (default):
	 * all. */
	const char *filter;
	/* How often samples come: `weights` is the name of a column of weights, 0 or more (a missing weight
	 * is 0), `balance` that of a column whose values are to come equally often. With `replacement` a
	 * sample of weight w comes w times on average, its copies one after the other in the window; without
	 * (0, default) it comes with probability w, once at most. Without replacement `balance` thins all
	 * classes to the smallest. NULL (default): each once. */
	const char *weights, *balance;
	uint32_t replacement;

	/* Where shards are on a penstock mount, the mount receives (through its .penstock/plan) the run's
	 * progress, and which of these shards come in this epoch and in the next ones. `job` names the run,
	 * the same on all ranks; NULL (default): "loader". 8 epochs are announced, this one included; `plan_epochs`
	 * has gone: 0. */
	const char *job;
	uint32_t plan_epochs;

	/* What finishes images (transforms, MixUp and CutMix, normalising, layout): enum
	 * penstock_device_pixels; AUTO: the device, if it can and if that saves bytes or work: images of f32,
	 * f16 and bf16 are sent as bytes, and come out the same to the bit. Such tensors are on the device
	 * alone (`host` is NULL). */
	uint32_t device_pixels;

	/* Device cuda: the share of JPEGs that the GPU decodes (nvJPEG: its engine for JPEG where it has one,
	 * else the processor's threads and the GPU together), 0 to 1. PENSTOCK_GPU_DECODE_AUTO: the share
	 * with which both are busy, measured in the first batches and then frozen; 0 if there is no nvJPEG. A
	 * sample's hash decides which of the two decodes it, so runs are the same for any number of threads
	 * and ranks; a state keeps the share. The GPU's pixels differ slightly from those of the processor,
	 * which are the same everywhere; libpenstock(3) has the bounds. Images that the GPU does not take are
	 * decoded by the processor one by one. The GPU may miss damage inside compressed pixels, so which
	 * samples are bad can differ with the share. Takes page-locked memory in addition to memory_budget,
	 * 128 KiB and more for each row of each batch of `depth`. 0 (default): the processor decodes all.
	 * -ENODEV: a share is given, and there is no nvJPEG. */
	double gpu_decode;

	/* -- From here on: since 0.3. -- */

	/* What is done about shards without an index: enum penstock_index; TAKE. */
	uint32_t index;

	/* Ranks that run on one machine and have consecutive numbers; must divide world; 0 (default), 1:
	 * each rank counts as a machine of its own. The samples of a global batch do not depend on this
	 * number: the ranks of a machine have the lanes l with the same l mod (world / ranks_per_node), and
	 * a rank's surplus goes to others of its machine first. */
	uint32_t ranks_per_node;
	/* Orders WINDOW and SHARDS: 0 (default), 1: each epoch deals all shards again. H: the seed gives each
	 * shard one of H homes for the whole run, and each epoch deals a home's shards to the lanes l with l
	 * mod H = home only; H must divide the lanes. So where the number of machines (or of ranks) divides
	 * H, each machine (or rank) reads the same shards in every epoch, and its cache stays warm; but it
	 * never sees the other machines' samples, and shards of different homes never share a lane. */
	uint32_t homes;

	/* Order NUMBERS: the samples of each epoch, by their place in the list of shards (as
	 * penstock_loader_get() counts), in the order in which this rank gets them; they may repeat. Copied:
	 * 8 bytes a number. Not with filter, weights, balance, mix, skip, take and repeat; `steps` ends an
	 * epoch early. A state has a hash of them, and belongs to this rank and world. `batch_ends`: where
	 * each batch ends in `numbers` (each of at most `batch` samples); these batches are delivered
	 * unchanged, whatever `end` is; NULL (default): every `batch` numbers are a batch.
	 * `numbers` NULL (default): penstock_loader_feed() gives them. */
	const int64_t *numbers;
	uint64_t nnumbers;
	const uint64_t *batch_ends;
	uint64_t nbatch_ends;

	/* Weights of all samples, by their place in the list of shards, instead of the column `weights`.
	 * Copied: 8 bytes a sample. NULL (default): none. Every shard needs an index. */
	const double *sample_weights;
	uint64_t nsample_weights;
	/* The exact number of samples that a pass of an epoch draws over all ranks. 0 (default): with
	 * sample_weights, as many as pass the filter; with a column of `weights`, or `balance`, as
	 * `replacement` says. A sample of weight w comes draws * w / (sum of all weights) times, rounded up
	 * or down (systematic resampling: one random offset an epoch and pass), its copies one after the
	 * other in its place of the order; at most 65535 times. With order PERMUTATION each draw is
	 * independent of all others instead. The same for any world. */
	uint64_t draws;

	/* In place of `transform`: takes a unit of rows in each call: 1 to 256 rows of one batch, so many
	 * that decoding them took some milliseconds. It gets transform_ctx, too. NULL (default): none. */
	penstock_transform_unit transform_unit;
	/* Called by each decoding thread that ends, after its last call of transform_unit; no loader function
	 * may be called. NULL (default): nothing is called. */
	void (*transform_leave)(void *ctx);
};

enum penstock_index {
	/* Existing indexes and catalogues are used. */
	PENSTOCK_INDEX_TAKE,
	/* Missing ones are made at open, in index_dir or beside the shards, if all these shards are local
	 * or in the cache of their mount, and making the indexes takes less than 10 s by estimate; else
	 * open fails (-EINVAL), and the text says how much must be read and how long that takes. In each
	 * folder one process makes the indexes, and the others wait. */
	PENSTOCK_INDEX_MAKE,
};

#define PENSTOCK_GPU_DECODE_AUTO (-1.0)

/* Fills in the defaults. `size` is sizeof(struct penstock_options), so that new members can be added at its
 * end. */
void penstock_options_init(struct penstock_options *options, size_t size);

/* NULL: no memory. May be freed at any time: a loader keeps a reference to its budget until it is
 * closed. */
struct penstock_budget *penstock_budget_new(uint64_t bytes);
uint64_t penstock_budget_used(const struct penstock_budget *budget);
void penstock_budget_free(struct penstock_budget *budget); /* NULL is allowed */

/* The defaults of a field of that kind. `size` is sizeof(struct penstock_field); `name` is borrowed until
 * penstock_loader_open(). */
void penstock_field_init(struct penstock_field *field, size_t size, const char *name, uint32_t kind);

/* Loader ------------------------------------------------------------------------------------------------- */

struct penstock_loader;
struct penstock_batch;

/* Expands the shard patterns (brace expansion as WebDataset's, "a::b", "@list.txt"; wildcards, and a folder
 * for the tar shards in it, in the order of their names' bytes), allocates all batches, and starts reading.
 * Blocks: on reading @lists and folders, and on looking for the shards: about a second at most. -EINVAL: an
 * option is wrong; -ENOMEM: out of memory; -E2BIG: the budget is too small, the list too long, or a member is
 * set that only a newer library knows (a larger struct is accepted if its unknown members are 0); -ENODEV:
 * there is no such device; -ENODATA: lengths are known (from indexes), and the epoch has no sample on any
 * rank; -ENOENT: nothing matches a pattern, or a shard is not there (on_error FAIL; libpenstock(3) says which
 * shards are looked for; other missing shards are found when they are read). */
int penstock_loader_open(const struct penstock_options *options, const char *const *shards, size_t nshards,
        struct penstock_loader **ret_loader, struct penstock_error *error);

/* 1: the next batch, which the caller holds now. 0: the epoch is over; the next call begins the one after it.
 * -EBUSY: the caller holds all batches. -EAGAIN: all that penstock_loader_feed() gave is delivered. -EBADMSG:
 * a bad sample (on_error FAIL), or more than max_bad bad samples in a row (SKIP). -ESTALE: the same, in a
 * shard that was replaced since it was indexed or opened. After an error other than -EBUSY, -EAGAIN and
 * -ECHILD the loader stays failed until set_epoch, state_load or close. Blocks: until a batch is ready: on
 * disk, network and decoding. */
int penstock_loader_next(
        struct penstock_loader *loader, struct penstock_batch **ret_batch, struct penstock_error *error);

/* Waits until penstock_loader_next() would return at once (with a batch, an error, or the end of the epoch),
 * or until timeout_ms have passed. 1: it would return at once; 0: not yet. For callers that must handle other
 * events meanwhile, such as Ctrl-C in Python. */
int penstock_loader_wait(struct penstock_loader *loader, uint32_t timeout_ms, struct penstock_error *error);

/* While the caller holds all batches, waits until one is released on another thread, or until timeout_ms
 * have passed. 1: not all are held; 0: all are still held. */
int penstock_loader_wait_released(
        struct penstock_loader *loader, uint32_t timeout_ms, struct penstock_error *error);

/* Makes another batch, for a caller that holds all of them; it remains until close. Its memory counts in
 * memory_budget (and `budget`): it is taken from the memory for samples that are read ahead, of which such
 * batches take at most half. -ENOBUFS: there is no room for the batch. */
int penstock_loader_add_batch(struct penstock_loader *loader, struct penstock_error *error);

/* Moves to the beginning of an epoch, even if a loaded state is in the middle of it. Cheap if the loader is
 * already there; else samples and batches that were read ahead are dropped. Batches that are held stay valid.
 * Blocks: until reads and decodes under way are done. */
int penstock_loader_set_epoch(struct penstock_loader *loader, uint64_t epoch, struct penstock_error *error);

/* Order NUMBERS without `numbers`: feeds the samples of the epoch's next batch, 1 to `batch` of them, which
 * are copied; n 0: the epoch ends after the batches that were fed before. Returns 1: there is room for
 * another batch; 0: `depth` batches are ahead of the one that next() returned last, or the epoch was ended.
 * Call it on the thread that calls next(). Open, set_epoch, state_load and the end of an epoch leave
 * nothing fed; after state_load, feed what comes after the batches that were delivered. When all that was
 * fed is delivered, next() fails with -EAGAIN. -EBUSY: there was no room; -ERANGE: no such sample. Blocks:
 * never. */
int penstock_loader_feed(
        struct penstock_loader *loader, const int64_t *numbers, uint32_t n, struct penstock_error *error);

/* How many samples and batches this rank's epoch has. Known if every shard of the rank has an index, or is
 * in a catalogue; -ENODATA: a shard has neither; the text names the shard and the remedy. Bad samples are
 * counted. Which shards a rank reads changes with the epoch where world > 1. Blocks: on reading the heads
 * of the indexes, at the first call. */
int penstock_loader_length(struct penstock_loader *loader, uint64_t epoch, uint64_t *ret_samples,
        uint64_t *ret_batches, struct penstock_error *error);

/* How many samples all ranks together have in an epoch; with an order of sample numbers, those of this rank.
 * Errors and blocking as for penstock_loader_length(). Since 0.4. */
int penstock_loader_total(
        struct penstock_loader *loader, uint64_t epoch, uint64_t *ret_samples, struct penstock_error *error);

/* Samples by number: number i is the i-th of the list, shard by shard, whatever the order and the filter are.
 * Reads and decodes them on the calling thread into a batch of n rows, row k being numbers[k]; n is 1 to
 * 65536. Random numbers are those of the epoch that the loader was opened with. The batch is not one of
 * `depth`; it must be released before the loader is closed. May run while the loader's threads work: one
 * call at a time, and not during calls that are limited to one thread. -ENODATA: a shard has no index; the
 * text names the shard; -ERANGE: there is no such sample; -EBADMSG: a bad sample (on_error FAIL); -ESTALE:
 * the shard was replaced since it was indexed. Blocks: on disk and decoding. Since 0.2. */
int penstock_loader_get(struct penstock_loader *loader, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct penstock_error *error);

/* Writes the loader's position as bytes for any machine: the position after the last batch that
 * penstock_loader_next() returned (batches that were read ahead do not count). The state has 224 bytes (32
 * more with gpu_decode), and 64 for each lane of this rank (if lengths are known, only for lanes that gave a
 * row; none with order permutation). Returns the number of bytes; with `buf` NULL, only a number that
 * suffices for any state of this loader. -ENOBUFS: `size` is less. Blocks: never. */
int penstock_loader_state_save(
        struct penstock_loader *loader, void *buf, size_t size, struct penstock_error *error);

/* Moves to the position of a saved state: the batches from there on are the same to the byte as without the
 * interruption, whatever threads, depth and memory_budget are. Shards that were used up are not read; the
 * others are read only from the current block of samples on (from the shard's beginning if the shard is a
 * pipe, or has global pax headers). Batches that are held stay valid.
 *
 * The state of any rank, also of another world, can be loaded if global_batch (and lanes) are the same:
 * every rank continues with its part of the next global batch. If the shards have no index, the positions
 * of other ranks' lanes are found by walking over the headers of the samples that those lanes have given.
 * With end UNEVEN that is refused once lanes have begun to end: then a rank can load only its own state.
 *
 * The shards may be stored elsewhere: a state is bound to the number of shards, to their order, and to the
 * shortest ends of their paths that distinguish all of them (0.tar and 1.tar of any folder; a/0.tar and
 * b/0.tar). Shards in which the state's lanes are must have the same size as before: otherwise
 * penstock_loader_next() fails with -ESTALE when the shard is opened.
 *
 * -EINVAL: not a state, or damaged; -ESTALE: the state is of other shards, of other options, or of a
 * library that makes other batches, or the run cannot be continued exactly; the text says which. After one
 * of these errors the loader's position is unchanged. Blocks: as penstock_loader_set_epoch(). */
int penstock_loader_state_load(
        struct penstock_loader *loader, const void *state, size_t size, struct penstock_error *error);

/* Stops the threads and frees everything, batches included. NULL is allowed.
 * Blocks: until reads and decodes under way are done. */
void penstock_loader_close(struct penstock_loader *loader);

/* Batches ------------------------------------------------------------------------------------------------ */

/* As DLPack numbers them. */
enum penstock_memory {
	PENSTOCK_MEMORY_HOST = 1,
	PENSTOCK_MEMORY_CUDA = 2,
};

/* Values of options.device_pixels. AUTO is OFF for loaders with a `transform` or a `profile`, which look at
 * pixels, and on devices without kernels: a library built without nvcc, or a driver that cannot run them;
 * see penstock_stats.pixels. */
enum penstock_device_pixels {
	PENSTOCK_PIXELS_AUTO,
	PENSTOCK_PIXELS_OFF,
};

struct penstock_tensor {
	const void *data; /* borrowed from the batch; an address in the memory below */
	uint32_t dtype;   /* enum penstock_dtype */
	uint32_t ndim;
	uint64_t shape[PENSTOCK_MAX_DIMS]; /* shape[0]: the number of rows; if ragged, of items in all rows */
	uint64_t nbytes;
	/* Ragged fields: rows + 1 positions in data; row i is [offsets[i], offsets[i + 1]). Else NULL. */
	const uint64_t *offsets;
	/* The same elements and positions in host memory, as long as the batch is held. If batches are on a
	 * device, they are in the slot that was copied there (NULL: images that the device finished, see
	 * options.device_pixels); else this is `data` itself. Since 0.2. */
	const void *host;
	const uint64_t *host_offsets;
	uint32_t memory;      /* enum penstock_memory: where data and offsets are */
	int32_t device;       /* the number of the device that has this memory */
	uint64_t reserved[1]; /* 0; room for what a later library reports, as in the structs below */
};

struct penstock_batch_info {
	uint64_t epoch;
	uint64_t index; /* of the batch in its epoch, on this rank */
	uint32_t rows;
	uint32_t bad; /* rows whose sample was bad; padding is not counted */
	/* All tensors of a batch are in one piece of memory, each at a multiple of 256 bytes from its
	 * beginning: one copy of that piece copies the whole batch (except tensors without `host`, which are
	 * not in it). Since 0.2. */
	const void *slot;
	uint64_t slot_nbytes;
	/* Rows whose __valid__ is 1; 0: a blank batch (PENSTOCK_SKIP), or a repeated row (PENSTOCK_END_SPLIT).
	 * Since 0.2. */
	uint32_t valid;
	uint32_t reserved1;
	uint64_t reserved[1];
};

void penstock_batch_info(const struct penstock_batch *batch, struct penstock_batch_info *ret_info);

/* A field by the name given in the options, or by one of its alternatives. Padded fields and tokens have
 * further tensors (NAME:lengths, NAME:mask, NAME:y). Besides them every batch has:
 *   "__key__"     ragged bytes: the samples' keys
 *   "__valid__"   u8: 1, or 0 for a row that repeats another (a bad sample, padding, a rank without one)
 *   "__shard__"   int64: the shard's place in the list
 *   "__sample__"  int64: the sample's place in its shard
 * -ENOENT: no such field. */
int penstock_batch_field(const struct penstock_batch *batch, const char *name,
        struct penstock_tensor *ret_tensor, struct penstock_error *error);

/* The name of the nth tensor of a batch (from 0; the same for all batches of a loader): each field with its
 * NAME: tensors, then the four above, and with MixUp or CutMix "__mix_lambda__" and "__mix_row__"; NULL:
 * there are fewer. Valid as long as the loader. Since 0.2. */
const char *penstock_batch_name(const struct penstock_batch *batch, uint32_t n);

struct penstock_bad {
	uint32_t row;
	const char *shard; /* borrowed from the batch, as the other texts */
	const char *key;   /* empty where the damage hides it */
	uint64_t offset;   /* in the shard, of the sample */
	const char *reason;
	uint64_t reserved[4];
};

/* The nth bad sample of the batch, n < info.bad. -ENOENT: there are fewer. */
int penstock_batch_bad(const struct penstock_batch *batch, uint32_t n, struct penstock_bad *ret_bad);

/* Draws the batch's images for a person: a PNG of at most `most` rows (1 to 64; 0: 64), each with all its image
 * fields and views, its numbers and texts, and its key. Images are as they were before they were normalised. Those
 * of more than 256 pixels a side are shrunk, and those of at most 64 are enlarged, by whole numbers. A class in a
 * member .cls is also named, if CLASSES.txt is beside the shard. Returns the number of rows shown; *ret_png has
 * memory from malloc(), which the caller frees. -EINVAL: no field of images; -ENOTSUP: the images are on a device
 * alone (options.device_pixels), or the library was built without libpng; -ENOMEM. Since 0.4. */
int penstock_batch_sheet(const struct penstock_batch *batch, uint32_t most, void **ret_png,
        size_t *ret_nbytes, struct penstock_error *error);

/* Gives the batch back to its loader. NULL is allowed. */
void penstock_batch_release(struct penstock_batch *batch);

/* Batches on a device (since 0.2) ---------------------------------------------------------------------------
 *
 * penstock_loader_next() gives a batch whose copy to the device has begun; no thread waits for the copy.
 * Each stream that works with the batch is named once:
 *
 *   penstock_loader_next(loader, &batch, &error);
 *   penstock_batch_use(batch, stream, &error);
 *   ... give kernels that read the tensors to `stream` ...
 *   penstock_batch_release(batch);
 *
 * Work that was queued on the stream before the release may still read the batch: its memory is written
 * again only after that work. penstock_loader_close() waits for such work. */

/* Makes later work on `stream` (a CUstream or cudaStream_t; NULL: the legacy default stream) wait until the
 * batch has arrived. Where batches stay in host memory it does nothing, without an error. -EIO: the device
 * failed; the text says how. Any thread. Blocks: never. */
int penstock_batch_use(struct penstock_batch *batch, void *stream, struct penstock_error *error);

/* The event that marks the batch's arrival (a CUevent), for callers that wait on it themselves; valid until
 * the batch is released. NULL: none is needed, the batch has arrived. */
void *penstock_batch_event(const struct penstock_batch *batch);

/* Waits on the processor until the batch has arrived. -EIO: the device failed. */
int penstock_batch_sync(struct penstock_batch *batch, struct penstock_error *error);

/* Transforms: what options.transform may call (since 0.2) ------------------------------------------------ */

struct penstock_sample_info {
	const char *key;   /* borrowed until the transform returns, as all that these functions give */
	const char *shard; /* its path */
	uint64_t epoch;
	uint64_t shard_index;  /* the shard's place in the list */
	uint64_t sample_index; /* the sample's place in its shard */
	/* for repeatable choices: a function of seed, epoch, shard, sample and, where a sample may come more
	 * than once in an epoch, of which of its draws this is */
	uint64_t random;
	uint64_t reserved[4];
};

void penstock_sample_info(const struct penstock_sample *sample, struct penstock_sample_info *ret_info);

/* A field of the sample as it will be in the batch, without the dimension of rows: of shape [] for a number,
 * [3, height, width] for an image, [items, ...] for ragged and padded fields (no padding, no added offsets).
 * Elements of ragged fields are valid until the next call for the same field, for any sample of the unit.
 * -ENOENT: no such field, or an output; -ENOMEM. */
int penstock_sample_field(
        struct penstock_sample *sample, const char *name, struct penstock_tensor *ret_tensor);

/* The memory of an output's row, which the transform fills, or of the row of another field of fixed shape,
 * which the transform may overwrite (not of TOKENS, nor of the labels of mixed batches, which have two
 * tensors). It has room for *ret_items items (ret_items may be NULL). The row of an output of fixed shape is
 * zeroed before the call. NULL: there is no such field of that name. */
void *penstock_sample_output(struct penstock_sample *sample, const char *name, uint64_t *ret_items);

/* Sets how many items of a ragged or padded output were written; 0 until this is called. -ENOENT; -EINVAL:
 * more than there is room for. */
int penstock_sample_set_items(struct penstock_sample *sample, const char *name, uint64_t items);

/* Says why the sample is bad, in 255 bytes at most; returns -EBADMSG, which a penstock_transform returns. */
int penstock_sample_fail(struct penstock_sample *sample, const char *text);

/* Statistics --------------------------------------------------------------------------------------------- */

/* The time of a stage's threads together, in seconds: working, waiting for input, waiting for room for
 * their output. */
struct penstock_stage {
	const char *name; /* "read", "decode", "consumer" */
	uint32_t threads;
	double busy, waiting_input, waiting_output;
};

#define PENSTOCK_NSTAGES 3

struct penstock_stats {
	uint64_t samples;    /* delivered, bad ones included */
	uint64_t batches;    /* delivered */
	uint64_t bad;        /* samples delivered as bad */
	uint64_t bytes_read; /* from shards, front to back, decompressed; without samples read again */
	uint64_t reread;     /* samples read a second time, because the window did not fit in the budget */
	double seconds;      /* since the loader was opened */
	struct penstock_stage stages[PENSTOCK_NSTAGES];

	/* -- From here on: since 0.2. -- */

	/* The causes of the consumer's waiting (stages[2].waiting_input), in seconds that add up to it:
	 * storage (workers waited for readers, and readers for the disk or the network), reading (workers
	 * waited for readers, which were busy), decoding. */
	double wait_storage, wait_read, wait_decode;
	/* "storage", "read", "decode", "consumer" (the loader is not the limit) or "none" (no samples yet),
	 * and what would help. */
	const char *bottleneck;
	char advice[160];
	/* Bytes of finished copies of batches to the device, and the time that the copies took; 0 if batches
	 * stay in host memory. Images that the GPU decoded itself are not copied, and their files are not
	 * counted.
	 */
	uint64_t copied_bytes;
	double copy_seconds;
	/* What finishes images: "cpu" or the device's kind; "cpu: " and the reason, if
	 * options.device_pixels is AUTO and the device cannot finish them. */
	char pixels[192];
	/* options.gpu_decode. Images of the fields that the GPU may decode: those that the GPU decoded (by
	 * its engine, and together with the processor's threads), and those that the processor decoded. The
	 * share in force, 0 to 1. The images a second that the GPU and the processor could each decode alone;
	 * 0: not known. Why the GPU decodes nothing although gpu_decode asks for it; "": it decodes, or was
	 * not asked to. */
	uint64_t gpu_engine_images, gpu_hybrid_images, cpu_images;
	double gpu_share;
	double gpu_images_per_second, cpu_images_per_second;
	char gpu_decode_why[160];
	/* shards that could not be opened or read, each counted once; penstock_loader_lost() lists them */
	uint64_t shards_lost;
	/* The file of the nvJPEG that decodes ("": none), and those that were found but cannot be used here,
	 * each with its reason. */
	char gpu_library[256], gpu_refused[512];
	uint64_t blank_batches; /* delivered without a good row: all samples were bad */
	/* Epochs without a batch on this rank, from their beginning to their end: no shard held a sample, or
	 * (end DROP_LAST) too few for a global batch. */
	uint64_t empty_epochs;
	/* The entropy decoder of JPEGs: "penstock", or "libjpeg: " and the reason (a build without our own
	 * decoder, or a loaded libjpeg with which our decoder does not give the same pixels, which is
	 * tested once a process). Static text. */
	const char *jpeg_decoder;
	/* Rows of steps in which this rank had no sample: each repeats a sample of another rank, valid = 0, and is
	 * not counted in `samples`; see END_SPLIT. */
	uint64_t repeats;
};

/* Takes a snapshot. `size` is sizeof(struct penstock_stats). */
int penstock_loader_stats(struct penstock_loader *loader, struct penstock_stats *ret_stats, size_t size,
        struct penstock_error *error);

/* A shard that could not be opened, or not be read to its end, because of its storage: the file is gone,
 * or a mount, disk or origin did not answer. Its samples are missing from the epoch; at least one row
 * reports the loss as a bad sample. Since 0.2. */
struct penstock_lost {
	const char *shard; /* valid as long as the loader, as is the other text */
	const char *reason;
	uint64_t reserved[4];
};

#define PENSTOCK_LOST_KEPT 64 /* lost shards that are listed; stats.shards_lost counts all */

/* The nth shard lost, in the order of the batches that next() gave. -ENOENT: there are fewer; -ECHILD.
 * Any thread. */
int penstock_loader_lost(struct penstock_loader *loader, uint64_t n, struct penstock_lost *ret_lost);

/* The profile of a loader with options.profile, as JSON. It covers the batches made so far. For each field it
 * has the bytes or items of a row; for images also the mean and deviation of each channel (of values 0 to 1
 * after the crop); for numbers the range, mean and deviation; for integers the counts of the first 4096
 * different values. Returns the length in bytes without the final NUL; with `buf` NULL nothing is written.
 * -ENOBUFS: `size` is not larger than the length, which may have grown since the last call; -ENODATA: opened
 * without options.profile. */
int penstock_loader_profile(
        struct penstock_loader *loader, char *buf, size_t size, struct penstock_error *error);

/* The differences between two such profiles, `was` and `now`: a line for each difference that is worth a
 * warning (labels that are new or moved, means and deviations), ended by a newline. Returns the length in
 * bytes without the final NUL, 0: nothing differs; with `buf` NULL nothing is written. -EINVAL: not a
 * profile; -ENOBUFS. Any thread. Since 0.3. */
int penstock_profile_drift(
        const char *was, const char *now, char *buf, size_t size, struct penstock_error *error);

/* A fingerprint of a run's data and order, as JSON, for an experiment's log. `digest` is a hash of the
 * shards' names, the order's options, the fields and their transforms (with transform_version); it is the
 * same for any number of ranks with the same global batch. The hashed values are in the JSON one by one.
 * `samples` and `counts` (a hash) are null if not all shards have an index. Reads no shard. Equal digests and
 * counts mean equal batches, as long as the shards are the same. Returns the length in bytes without the
 * final NUL; with `buf` NULL nothing is written. -ENOBUFS. Since 0.3. */
int penstock_loader_fingerprint(
        struct penstock_loader *loader, char *buf, size_t size, struct penstock_error *error);

/* Writing shards ----------------------------------------------------------------------------------------- */

/* A tar as penstock-loader pack writes it: the same members give the same bytes. With a level it is
 * compressed, in zstd's seekable format.
 *
 *   open, add ..., finish | abort
 *
 * The file is written beside its name, PATH.tmp-PID, and gets that name in _finish(), when the file is
 * complete and on the disk. Threads: one at a time for one writer. Blocks on the disk. Since 0.3. */
struct penstock_shard_writer;

/* level: 1 to 19; 0: not compressed. */
int penstock_shard_writer_open(
        const char *path, int level, struct penstock_shard_writer **ret_writer, struct penstock_error *error);

/* Adds a file named KEY.SUFFIX. Consecutive files of one key are a sample. -EINVAL: the name has another
 * form; nothing was written. After other errors only _abort() may be called. */
int penstock_shard_writer_add(struct penstock_shard_writer *writer, const char *name, const void *data,
        size_t nbytes, struct penstock_error *error);

/* The bytes that a file of that name and size takes in the tar, headers and padding included. */
uint64_t penstock_shard_writer_member_nbytes(const char *name, uint64_t nbytes);

/* Ends the shard and, with `index` not 0, writes its index beside it, as `penstock-loader index` does. Frees
 * the writer, also when it fails. */
int penstock_shard_writer_finish(
        struct penstock_shard_writer *writer, int index, struct penstock_error *error);

/* Removes what was written. NULL is allowed. */
void penstock_shard_writer_abort(struct penstock_shard_writer *writer);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
