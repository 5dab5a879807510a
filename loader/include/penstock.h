/* libpenstock: reads WebDataset tar shards, and returns decoded, shuffled batches.
 *
 * A loader reads shards: tar files, plain or compressed by zstd, gzip or lz4, in which consecutive members
 * with the same key are one sample. It decodes the fields of the samples on its own threads, straight into
 * batches. The order of the samples is a pure function of the options: the same seed gives the same bytes
 * for any number of threads.
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
 *   }                                          (r == 0: the epoch is over; next() then begins the next one)
 *   penstock_loader_close(loader);
 *
 * This header is the contract of each function and member: what it does, its range and default, and its
 * errors. The man pages explain how they work together, with examples and remedies: libpenstock(3) is the
 * overview, and each function has a page (man penstock_loader_next).
 *
 * Ownership: each function says who owns what it returns through ret_ arguments. penstock_loader_open()
 * copies options, shard names and fields. A batch belongs to the caller from penstock_loader_next() until
 * penstock_batch_release() or penstock_loader_close(), whichever comes first; tensors point into their
 * batch. The loader has `depth` batches and reuses their memory.
 *
 * Threads: calls on different loaders are independent. On one loader, only one thread at a time may be in
 * penstock_loader_next(), _wait(), _wait_released(), _add_batch(), _set_epoch(), _state_save(),
 * _state_load(), _length(), _total() and _close(). penstock_batch_*() and penstock_loader_stats() may be
 * called on any thread. The loader's threads block all signals.
 *
 * Fork: a loader works only in the process that opened it. In another process
 *   penstock_loader_close()       frees the memory of batches and touches no thread
 *   other penstock_loader_*()     fail with -ECHILD
 *   penstock_batch_release()      does nothing
 *   penstock_batch_use(), _sync() fail with -ECHILD if batches are on a device
 * The other process may still read a batch that was held at the fork, if the batch is in host memory.
 *
 * Errors: functions return 0 or a positive result, or a negative errno. On failure they also write a line
 * of text for a person into *error, unless it is NULL. They print nothing and have no global state.
 *
 * Units: bytes, seconds and counts, unless a comment says otherwise. */
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

/* The version of the library that is running, such as "0.4.0". It may be newer than this header. */
const char *penstock_version(void);

/* The libraries that decode images, with versions: "libjpeg-turbo 2.1.5 (compiled with), libpng 1.6.39".
 * Any thread. Since 0.3. */
const char *penstock_libraries(void);

#define PENSTOCK_ERROR_TEXT_LEN 1024

struct penstock_error {
	int code; /* a positive errno; 0: no error */
	char text[PENSTOCK_ERROR_TEXT_LEN];
};

/* What an error is about. Since 0.4. */
enum penstock_cause {
	PENSTOCK_CAUSE_OTHER = 0,   /* none of the causes below; see `code` */
	PENSTOCK_CAUSE_SAMPLE = 1,  /* a sample is damaged, or does not fit the kind of its field */
	PENSTOCK_CAUSE_FIELD = 2,   /* a sample lacks a field */
	PENSTOCK_CAUSE_SHARD = 3,   /* a shard is missing or cannot be read */
	PENSTOCK_CAUSE_CHANGED = 4, /* a shard was replaced */
	PENSTOCK_CAUSE_OPTIONS = 5, /* an option is wrong, or contradicts another one or the shards */
};

struct penstock_error_detail {
	uint32_t cause; /* enum penstock_cause */
	/* A positive errno. For PENSTOCK_CAUSE_SHARD it is the error of the storage. For a file on a Penstock
	 * mount whose read failed with EIO, it is the error of the origin, if the mount knows it, such as
	 * ETIMEDOUT or ECONNREFUSED. For other causes it is the code of struct penstock_error. */
	int32_t code;
	const char *shard; /* path of the shard; NULL: the error is not about a shard */
	const char *key;   /* key of the sample, at most 1023 bytes; NULL: the error is not about a sample */
	uint64_t offset;   /* with `key`: place of the sample in the decompressed shard */
};

/* Describes the newest error that a function of this library returned on the calling thread. The strings are
 * valid until the next error on this thread. `size` is sizeof(struct penstock_error_detail). -ENODATA: no
 * function has failed. Since 0.4. */
int penstock_error_detail(struct penstock_error_detail *ret_detail, size_t size);

/* Options ------------------------------------------------------------------------------------------------ */

/* How the bytes of a field become part of a batch. */
enum penstock_kind {
	/* A JPEG, PNG, WebP, PGM or PPM, cropped and resized. A row has image_height x image_width x 3
	 * values; with `views`, it has that many images. */
	PENSTOCK_IMAGE = 0,
	PENSTOCK_INT64 = 1, /* an integer in decimal digits, as in .cls files: one int64 per row */
	PENSTOCK_BYTES = 2, /* the bytes of the member (txt, json, anything): values and offsets */
	PENSTOCK_NPY = 3,   /* an array of a .npy file */
	/* JSON, which is checked: its text as bytes. With a path in the name ("json:meta.height") the value
	 * at that path: with dtype U8 (default) the characters of a string, or the JSON text of another
	 * value; with another dtype a number, or an array of numbers. */
	PENSTOCK_JSON = 4,
	PENSTOCK_TEXT = 5, /* bytes, checked to be UTF-8 */
	/* A label image (PNG, PGM, gray JPEG) that follows an image field: it gets the same crop, resize,
	 * flips and affine map, and each pixel is one label. A row has image_height x image_width values
	 * (of that field), with views first. dtype: U8, U16, I16, I32 or I64 (default). */
	PENSTOCK_MASK = 6,
	/* Boxes that follow an image field. An array of n x 4 numbers (a .npy, a JSON value, or text with
	 * four numbers per line) becomes n x 4 floats, x0 y0 x1 y1, in pixels of the result and clipped at
	 * its edges. A box outside the result stays in the list, without area. Ragged, or padded. */
	PENSTOCK_BOXES = 7,
	PENSTOCK_TOKENS = 8,  /* n + 1 tokens, raw or as a .npy: NAME has the first n, NAME:y the last n */
	PENSTOCK_FLOAT = 9,   /* a number as text: one element per row, rounded to dtype */
	PENSTOCK_OUTPUT = 10, /* what options.transform writes; it reads no member of the shard */
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
	/* Only for source_dtype, where 0 means that no type is given: PENSTOCK_U8. Since 0.4. */
	PENSTOCK_SOURCE_U8 = 13,
};

enum penstock_layout {
	PENSTOCK_NCHW = 0,
	PENSTOCK_NHWC = 1,
};

enum penstock_channels {
	PENSTOCK_CHANNELS_RGB = 0,
	PENSTOCK_CHANNELS_RGBA = 1, /* RGB and alpha; alpha is 1 (255, 65535) if a file has none */
	PENSTOCK_CHANNELS_GRAY = 2, /* one channel: 0.299 r + 0.587 g + 0.114 b; alpha is dropped */
};

enum penstock_crop {
	/* RandomResizedCrop: a part of scale_min..scale_max of the area, whose width / height is in
	 * ratio_min..ratio_max */
	PENSTOCK_CROP_RANDOM = 0,
	/* The shorter side is resized to resize_shorter, and the middle is used. */
	PENSTOCK_CROP_CENTER = 1,
	/* The complete image, stretched to the size. */
	PENSTOCK_CROP_NONE = 2,
	/* RandomCrop: a random part of image_width x image_height pixels. The image is unchanged, or
	 * resized to resize_width x resize_height, or resized so that its shorter side is resize_shorter.
	 * Padding is added around it, and more of it if the image is still smaller than the part. */
	PENSTOCK_CROP_RANDOM_CROP = 3,
	/* The complete image with its aspect ratio, as large as fits, in the middle of padding. One side
	 * fills the size; the other is scaled by the same factor and rounded, halves up. If the padding is
	 * odd, the right and lower edge have one pixel more. */
	PENSTOCK_CROP_LETTERBOX = 4,
};

/* What a RANDOM_CROP or LETTERBOX contains outside of the image. */
enum penstock_padding {
	PENSTOCK_PADDING_CONSTANT = 0,  /* the level `fill`; a MASK field has its own `fill` */
	PENSTOCK_PADDING_EDGE = 1,      /* the pixels at the edge: aaa|abcd|ddd */
	PENSTOCK_PADDING_REFLECT = 2,   /* mirrored: dcb|abcd|cba */
	PENSTOCK_PADDING_SYMMETRIC = 3, /* mirrored with the edge: cba|abcd|dcb */
};

/* What happens to an image file that lacks its end. */
enum penstock_truncated {
	PENSTOCK_TRUNCATED_REFUSE = 0, /* the sample is bad */
	/* JPEG and PNG files are decoded as far as they reach. Pixels are those of Pillow with
	 * LOAD_TRUNCATED_IMAGES: what a JPEG lacks is filled in by libjpeg (usually gray), and rows that a PNG
	 * lacks are 0. stats.truncated counts these images. Other formats are refused. */
	PENSTOCK_TRUNCATED_ALLOW = 1,
};

/* What an erased rectangle contains. */
enum penstock_erase_fill {
	PENSTOCK_ERASE_MEAN = 0,   /* the field's mean, which is 0 once normalised */
	PENSTOCK_ERASE_RANDOM = 1, /* noise of the field's mean and std */
	PENSTOCK_ERASE_LEVELS = 2, /* erase_levels */
};

enum penstock_jitter_order {
	PENSTOCK_JITTER_FIXED = 0,  /* brightness, contrast, saturation, hue */
	PENSTOCK_JITTER_RANDOM = 1, /* a random order, as in torchvision's ColorJitter */
};

/* The format of boxes in the shards. */
enum penstock_box_format {
	PENSTOCK_BOX_XYXY = 0,
	PENSTOCK_BOX_XYWH = 1,   /* left, top, width, height: COCO */
	PENSTOCK_BOX_CXCYWH = 2, /* middle, width, height: YOLO */
};

/* Both are antialiased, as in PIL. */
enum penstock_interpolation {
	PENSTOCK_BILINEAR = 0,
	PENSTOCK_BICUBIC = 1,
};

/* What happens to a value of more than max_bytes, or of more than pad_to items. */
enum penstock_overflow {
	PENSTOCK_OVERFLOW_ERROR = 0,    /* penstock_loader_next() fails, whatever on_error is (default) */
	PENSTOCK_OVERFLOW_BAD = 1,      /* the sample is bad */
	PENSTOCK_OVERFLOW_TRUNCATE = 2, /* cut to complete items; a text is cut between two characters */
};

#define PENSTOCK_PAD_LONGEST UINT32_MAX

#define PENSTOCK_MAX_DIMS 8

/* penstock_field.ndim of NPY: arrays without dimensions, of shape (), such as numpy.float32(3). */
#define PENSTOCK_NDIM_SCALAR UINT32_MAX

/* What happens to a number that a float type cannot hold exactly. */
enum penstock_rounding {
	PENSTOCK_ROUNDING_EXACT = 0,   /* the sample is bad */
	PENSTOCK_ROUNDING_NEAREST = 1, /* rounded, ties to even; bad only beyond the range of the type */
};

/* One field of a batch. Fill it by penstock_field_init(), then change members. The comment of a member ends
 * with its default. The members below `kind` are for images, unless the comment says otherwise. A member
 * that would have no effect is refused (a member of another kind, noise_sigma without noise, scale_min with
 * another crop); the text of the error names what it needs. */
struct penstock_field {
	size_t size; /* set by init, so that libraries of other versions can read the struct */
	/* Suffix of the member, or several separated by ';', of which the first that a sample has is used:
	 * "jpg;jpeg". After a ':' the path of a value in a JSON member: "json:meta.height", "json:boxes.0"
	 * (kinds INT64, FLOAT, TEXT, JSON, TOKENS and NPY; a dot within a key is written as "\\."). */
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
	/* The shorter side before the crop, in pixels. CROP_CENTER: 0 (default) means 8/7 of the longer
	 * side of the result, so 256 for 224. CROP_RANDOM_CROP: 0 (default) means that the image is not
	 * resized. */
	uint32_t resize_shorter;
	double scale_min, scale_max; /* CROP_RANDOM: share of the image's area; 0.08, 1 */
	double ratio_min, ratio_max; /* CROP_RANDOM: width / height; 3/4, 4/3 */
	double hflip;                /* probability of a horizontal flip, with any crop; 0.5 */
	float mean[3], std[3];       /* not for U8 and U16: (value / 255 - mean) / std; ImageNet's */
	uint64_t max_pixels;         /* a larger image is a bad sample; 0 (default): 2^27 */

	/* All kinds except IMAGE and MASK. 1: a sample without the field (or without a value at its path) is
	 * good; 0 (default): it is bad. */
	uint32_t optional;
	/* Optional fields of a fixed shape: the value of all elements of a row without the field; -1
	 * (FLOAT: NaN). In other optional fields such a row is empty. */
	int64_t missing_value;

	/* -- The following members exist since 0.2. -- */

	/* NPY, JSON with a path, TOKENS, OUTPUT: the shape of a row, `ndim` dimensions of `shape`, at most
	 * 7. The data of each sample must have that shape. shape[0] = 0: a row has as many items as the
	 * sample has, and the field is ragged; an item has the shape of the other dimensions. ndim 0: one
	 * element (a JSON number); for NPY, TOKENS, and OUTPUT with pad_to or max_bytes, it is the same as
	 * {0}. NPY: PENSTOCK_NDIM_SCALAR is for arrays of shape (), which other fields read as {1}. */
	uint32_t ndim;
	/* Ragged fields (BYTES, TEXT, JSON texts; the above with shape[0] = 0). 0 (default): values and
	 * offsets, one row after the other. N: each row is padded to N items. PENSTOCK_PAD_LONGEST: each
	 * row is padded to the longest row of the batch. A padded field also has NAME:lengths (int64, the
	 * number of items of each row) and NAME:mask (bool, rows x items, 1 where an item is). */
	uint32_t pad_to;
	uint64_t shape[PENSTOCK_MAX_DIMS - 1];
	uint32_t pad_multiple; /* PAD_LONGEST: pad to a multiple of this; 0 (default), 1: no rounding */
	uint32_t overflow;     /* enum penstock_overflow; ERROR */
	int64_t pad_value;     /* value of padding elements; 0 */
	uint64_t max_bytes;    /* ragged fields: maximum size of a row in the batch; 0 (default): no limit */
	/* Ragged fields of integers: the name of another ragged field. The loader adds to each number how
	 * many items the other field has in all earlier rows, so that the numbers index the items of the
	 * complete batch. This is for edges of graphs, which are numbers of nodes. A number that is not the
	 * index of an item of the other field in the same row makes the sample bad. NULL (default): nothing
	 * is added. */
	const char *add_offset_of;
	/* TOKENS: the type of tokens in members that are not .npy: PENSTOCK_SOURCE_U8 (not PENSTOCK_U8,
	 * which is 0), PENSTOCK_U16, U32, I32 or I64, little-endian. 0 (default): the type that the index
	 * NAME.idx next to a shard NAME.bin says, in Megatron's format, and u16 if there is none. A type
	 * that contradicts such an index is an error. */
	uint32_t source_dtype;

	/* IMAGE and MASK. 1: rotated as the orientation in the file's EXIF or XMP says, as by Pillow's
	 * exif_transpose(); 0 (default): as stored. */
	uint32_t orient;

	/* The member that the field is read from, in the form of `name`, for a field whose name is not that
	 * of its member. NULL (default): `name` is also the member. Image fields of one member are decoded
	 * once, each with its own random choices: multi-crop. */
	const char *member;
	/* IMAGE: the name of an earlier image field, whose crop, flips and affine map this field shares
	 * (frames, pairs). In a sample, the images of both fields must have the same size; image_width,
	 * image_height and views are those of the earlier field. MASK and BOXES: the image field that they
	 * belong to. NULL (default): none; for MASK and BOXES, the first image field. */
	const char *follow;
	/* IMAGE: pictures made from one decoded image, each with its own random choices, at most 64. Rows
	 * get a dimension for them. 0 (default): one picture, without that dimension. */
	uint32_t views;
	/* IMAGE. 1: a JPEG that is shrunk to 1/2 or less is decoded at 1/2, 1/4 or 1/8 of its size, which is
	 * faster for large ones and gives other pixels. 0 (default): always at full size. */
	uint32_t dct_scale;
	/* No longer exists: must be 0. An image may need 256 MiB in addition to a few rows (progressive and
	 * interlaced files, WebP, rotated ones), or 8 bytes for each of max_pixels if that is set and gives
	 * more; an image that needs more is bad. */
	uint64_t max_memory;
	uint32_t max_scans; /* no longer exists: 0. Progressive JPEGs of more than 100 scans are bad */

	/* -- IMAGE: operations after crop, resize and flips, in this order. Each has a probability; 0
	 * (default): never. Members that were added later are at the end of the struct. The arithmetic is
	 * in image/image.h of the library's source. -- */
	uint32_t fill;      /* affine, padding: level (MASK: label) of pixels outside the image; 0 */
	double vflip;       /* probability of a vertical flip */
	double affine;      /* probability of an affine map, which these set: */
	double degrees;     /* maximum rotation each way, 0 to 180 */
	double translate_x; /* maximum shift each way, as a share of the width, 0 to 1 */
	double translate_y; /* the same, of the height */
	double zoom_min;    /* zoom factor zoom_min..zoom_max, 0.01 to 100; both 0: 1 */
	double zoom_max;
	double shear_x, shear_y;               /* maximum shear each way, 0 to 80 degrees */
	double jitter;                         /* probability of a colour jitter, in these steps: */
	double brightness;                     /* b: a factor of 1 - b .. 1 + b, 0 to 7 */
	double contrast;                       /* the same, about the mean gray of the image */
	double saturation;                     /* the same, about the gray of each pixel */
	double hue;                            /* maximum shift each way, share of the circle, 0 to 0.5 */
	double gray;                           /* probability of conversion to gray */
	double blur;                           /* probability of a Gaussian blur: */
	double blur_sigma_min, blur_sigma_max; /* pixels, 0.01 to 100; both 0: 0.1 to 2 */
	double noise;                          /* probability of Gaussian noise: */
	double noise_sigma;                    /* standard deviation of the noise in levels, 0 to 255 */
	uint32_t blur_size; /* size of the blur kernel along each axis, odd, up to 255; 0: width / 10 */

	uint32_t box_format; /* BOXES: enum penstock_box_format; XYXY */
	uint32_t box_shares; /* BOXES: 1: coordinates are shares of the image's sides; 0 (default): pixels */
	/* CENTER, RANDOM_CROP: the image is stretched to this size first; both 0 (default): see
	 * resize_shorter. */
	uint32_t resize_width, resize_height;
	/* RANDOM_CROP: pixels added on the left and right, and at the top and bottom; less than the sides
	 * of the result; 0 */
	uint32_t padding_x, padding_y;
	uint32_t padding_mode; /* RANDOM_CROP, LETTERBOX: enum penstock_padding; CONSTANT */
	uint32_t jitter_order; /* enum penstock_jitter_order; FIXED */
	/* The blur has a random odd size from blur_size (0: 3) to this; 0 (default): blur_size. */
	uint32_t blur_size_max;
	double noise_sigma_max; /* the sigma is random, from noise_sigma to this; 0 (default): noise_sigma */
	/* Probability of erasing a rectangle after the noise, as in torchvision's RandomErasing. Boxes and
	 * masks do not change. */
	double erase;
	double erase_scale_min, erase_scale_max; /* its share of the picture; both 0: 0.02 to 0.33 */
	double erase_ratio_min, erase_ratio_max; /* its height / width, 0.001 to 1000; both 0: 0.3 to 3.3 */
	uint32_t erase_fill;                     /* enum penstock_erase_fill; MEAN */
	uint32_t erase_levels;                   /* ERASE_LEVELS: 0xRRGGBB */
	/* Operations under one probability, such as "apply:0.8=jitter,gray;one:0.5=blur,noise". apply
	 * (RandomApply): with the probability of the group, each operation applies with its own
	 * probability; otherwise none does. one (OneOf): with the probability of the group, one operation
	 * applies, chosen in proportion to the probabilities of the operations. Names: hflip, vflip,
	 * affine, jitter, gray, blur, noise, erase, each in at most one group. The order of operations does
	 * not change. NULL (default): each operation on its own. */
	const char *groups;
	/* 1: the field is only for transforms, not part of batches. 0 (default): it is part of batches. */
	uint32_t hidden;
	uint32_t rounding; /* NPY with a float dtype: enum penstock_rounding; EXACT */
	/* IMAGE: enum penstock_channels; RGB. Pictures with channels other than RGB, or of dtype U16 (0 to
	 * 65535; 8-bit files times 257), are decoded and resized in 16 bits. Crops, flips and padding apply
	 * to them, the later operations do not. GRAY uses mean[0] and std[0]; alpha stays 0 to 1. */
	uint32_t channels;

	/* -- The following members exist since 0.4. -- */

	/* TOKENS of token files (source TOKENS): how the documents of a file become rows of shape[0] tokens.
	 * penstock_field_init(3) describes the rows and their parts. enum penstock_pack; NONE */
	uint32_t pack;
	/* With `pack`: further tensors, separated by ',': "positions,segments,mask,cu,document". "cu" also
	 * gives NAME:longest. NULL (default): none. */
	const char *parts;
	/* WHOLE: what happens to documents of more than shape[0] tokens, which must be said: enum
	 * penstock_long_documents. */
	uint32_t long_documents;
	/* "cu": each batch has this many parts, of which the last may be empty, for CUDA graphs; a batch with
	 * more is an error. 0 (default): as many as there are. */
	uint32_t cu_pad;
	/* The token at the end of each document, for files without an index of their documents; -1 (default):
	 * none. */
	int64_t end_token;
	uint64_t vocab;     /* a row with a token of this or more is a bad sample; 0 (default): not checked */
	uint32_t truncated; /* IMAGE: enum penstock_truncated; REFUSE */
	/* BOXES. Boxes are dropped whose area in the result is below min_area square pixels, or of whose area
	 * less than min_visible (a share, 0 to 1) is within the result. If one of them is set, boxes without
	 * area are dropped, too. A field of kind NPY or JSON with one item for each box, such as their
	 * labels, names the boxes by `follow`: it drops the items of the same boxes. 0 (default): no box is
	 * dropped. */
	double min_area, min_visible;
};

/* How the documents of a token file become rows. */
enum penstock_pack {
	PENSTOCK_PACK_NONE = 0,   /* windows of the file, whatever documents there are */
	PENSTOCK_PACK_CONCAT = 1, /* shuffled documents one after the other, cut into full rows */
	/* Documents are placed where they fit, so few are cut; about 0.1 % of the rows is padding. */
	PENSTOCK_PACK_FIT = 2,
	/* No document is cut that fits in a row; the rest of each row is padding. */
	PENSTOCK_PACK_WHOLE = 3,
};

/* Documents that are longer than a row, with PENSTOCK_PACK_WHOLE. */
enum penstock_long_documents {
	PENSTOCK_LONG_UNSET = 0,
	PENSTOCK_LONG_SPLIT = 1,    /* full rows, and a part for the rest */
	PENSTOCK_LONG_TRUNCATE = 2, /* the first shape[0] tokens */
	PENSTOCK_LONG_DROP = 3,     /* left out */
};

enum penstock_order {
	PENSTOCK_ORDER_NONE = 0,   /* the order of the list; with end UNEVEN, ranks take shards in turn */
	PENSTOCK_ORDER_SHARDS = 1, /* shards are shuffled, samples stay in the order of their shard */
	PENSTOCK_ORDER_WINDOW = 2, /* shards are shuffled, and samples within shuffle_window (default) */
	/* All samples are shuffled with each other, and each is read on its own. Every shard needs an
	 * index, and should be a file with fast random access (see permute_remote). */
	PENSTOCK_ORDER_PERMUTATION = 3,
	/* The samples of `numbers`, or those that penstock_loader_feed() gives; otherwise like PERMUTATION.
	 * The numbers are for this rank alone, and are not split among ranks. */
	PENSTOCK_ORDER_NUMBERS = 4,
};

/* How an epoch ends. With world > 1, all values except UNEVEN need the number of samples of every shard, from
 * its index (`penstock-loader index`), or `steps`. Without either, penstock_loader_open() fails. */
enum penstock_end {
	/* Every sample once. The last batch may be short, and ranks may have different numbers of batches:
	 * synchronous training (DDP) then hangs at the end of the epoch, unless the training loop itself
	 * limits the steps of an epoch. */
	PENSTOCK_END_UNEVEN = 0,
	/* Samples that do not fill a global batch are left out: fewer than global_batch per epoch. */
	PENSTOCK_END_DROP_LAST = 1,
	/* Every sample once. Repeated rows with valid = 0 fill the last batch, fewer than global_batch per
	 * epoch. */
	PENSTOCK_END_PAD = 2,
	/* Every sample once, and the same number of batches on all ranks. The last batches of the ranks
	 * differ by at most one row (default; with one rank this is UNEVEN). If that is impossible (batch
	 * 1, or fewer samples than ranks), the last batch of a rank without a sample is one repeated row,
	 * valid = 0.
	 *
	 * SPLIT and PAD: a rank r without a sample in a step of n samples repeats the one of rank r mod n,
	 * with the same random choices. stats.repeats counts such rows. */
	PENSTOCK_END_SPLIT = 3,
	/* Like PAD, but the lowest ranks get the samples of the last step, a batch each, so that all rows
	 * with valid = 0 come after them. What is gathered from the ranks in order then begins with the
	 * samples, as Accelerate's gather_for_metrics() needs it. Ranks may be left without a sample. */
	PENSTOCK_END_GATHER = 4,
};

/* Which dataset of a mix ends the epoch. */
enum penstock_mix_end {
	PENSTOCK_MIX_FIRST = 0,   /* the first that is due but has no more samples (default) */
	PENSTOCK_MIX_LONGEST = 1, /* the longest; the others are read again until then */
};

/* A stage of a mix whose weights change. */
struct penstock_mix_stage {
	/* The first stage begins at 0. In steps, or with PENSTOCK_STAGE_ROWS in rows. */
	uint64_t start;
	uint32_t flags; /* PENSTOCK_STAGE_* */
	/* one for each dataset, 0 or more, and not all 0; a dataset of weight 0 waits for a later stage */
	const double *weights;
};

enum {
	/* From the beginning of the stage before it, the weights change linearly to those of this stage,
	 * which they have reached at `start`. Without it they change at `start`, at once. */
	PENSTOCK_STAGE_LINEAR = 1,
	PENSTOCK_STAGE_ROWS = 2, /* `start` counts rows of the epoch, over all ranks */
};

/* Exceptions for a state that is resumed: options.state_flags, and penstock_loader_state_load_as(). */
enum {
	/* The mix may differ from that of the state: its first stage begins at the saved place. Each dataset
	 * goes on after the samples that it has given. Datasets are matched by name: one that the state does
	 * not have begins at its first sample, and one that the loader does not have is left out. */
	PENSTOCK_STATE_NEW_MIX = 1,
	/* Fields, MixUp and CutMix, and transform_version may differ from those of the state. */
	PENSTOCK_STATE_OTHER_FIELDS = 2,
};

/* What the shards contain. In a shard that is not a tar, each sample has one member. Its key is the name of
 * the file (without .zst, .gz or .lz4, and up to its last dot) and the number of the sample:
 * "train-007-12". */
enum penstock_source {
	/* Decided by the name, without .zst, .gz or .lz4 at its end: .jsonl and .txt are lines, .bin are
	 * tokens if a field is of kind TOKENS, and all other shards are tars. If a field has `pack`, all must be
	 * tokens: .bin, .ds or .npy. */
	PENSTOCK_SOURCE_AUTO = 0,
	PENSTOCK_SOURCE_TAR = 1,
	/* Lines of text. The member is "json" in .jsonl files, whose blank lines are left out, and "txt" in
	 * others; "line" means either. */
	PENSTOCK_SOURCE_LINES = 2,
	/* Files of tokens: windows of n + 1 tokens for the first field of kind TOKENS, whose shape is {n}
	 * and whose source_dtype is the type of the tokens. No index is needed, because the number of
	 * windows follows from the size of the file. */
	PENSTOCK_SOURCE_TOKENS = 3,
};

enum penstock_on_error {
	/* penstock_loader_next() fails, and names shard, key, offset and reason of the first bad sample
	 * (default). */
	PENSTOCK_FAIL = 0,
	/* The row of a bad sample repeats the next good row of its batch (cyclic), valid = 0, and the
	 * sample is counted. A batch without any good row (most likely a batch of one or a few rows) is
	 * blank: zeros; nothing in ragged fields; padding in padded ones; missing_value in integer fields
	 * that are optional or whose missing_value was set; valid = 0; shard and sample -1. More than
	 * max_bad bad samples in a row end the run, and so does an epoch without any good sample on this
	 * rank (a wrong path, a lost mount): next() fails at the end of the epoch. Other ranks may have
	 * good samples and continue. */
	PENSTOCK_SKIP = 1,
};

/* A limit of the memory that several loaders use together: pass it to each in options.budget. */
struct penstock_budget;

/* A sample for which a transform is called; see below. */
struct penstock_sample;

/* Returns 0, or a negative errno if the sample is bad, for the reason that was passed to
 * penstock_sample_fail() (-ENOMEM: next() fails). Several decoding threads call it at the same time. It
 * must not call the loader, and must be a pure function of the sample if batches are to be the same for any
 * number of threads. */
typedef int (*penstock_transform)(void *ctx, struct penstock_sample *sample);

/* The same for the good samples of a unit of rows at once, for callers whose calls are expensive, such as
 * an interpreter with a lock. Samples for which penstock_sample_fail() is called are bad. Returns 0, or a
 * negative errno: the batch then fails in its turn, whatever on_error is. The error is -ENOMEM, or for any
 * other errno
 * -ECANCELED with the text that penstock_sample_fail() got for the first sample. The function may block,
 * but must not wait for the thread that calls the loader. Since 0.3. */
typedef int (*penstock_transform_unit)(void *ctx, struct penstock_sample *const *samples, uint32_t n);

/* Sources of columns: rows of Parquet files, tables and databases (since 0.4) -----------------------------
 * */

/* The structs of Arrow's C data interface, a stable ABI: https://arrow.apache.org/docs/format/CDataInterface
 * */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
struct ArrowSchema {
	const char *format, *name, *metadata;
	int64_t flags, n_children;
	struct ArrowSchema **children, *dictionary;
	void (*release)(struct ArrowSchema *);
	void *private_data;
};
struct ArrowArray {
	int64_t length, null_count, offset, n_buffers, n_children;
	const void **buffers;
	struct ArrowArray **children, *dictionary;
	void (*release)(struct ArrowArray *);
	void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
	int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
	int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
	const char *(*get_last_error)(struct ArrowArrayStream *);
	void (*release)(struct ArrowArrayStream *);
	void *private_data;
};
#endif

/* With options.columns the strings passed to open are names of units instead of patterns, one per line. A
 * unit is a shard whose samples are rows, such as a row group of a Parquet file. A column is a member of each
 * sample, named like the column; a column inside a struct is named with dots, as "image.bytes". Values become
 * members like this:
 *
 *   text, binary                     their bytes
 *   integers, floats, booleans       as text; booleans are 0 and 1
 *   lists of numbers or booleans     a .npy file of one dimension, for fields of kind NPY and TOKENS
 *   dictionaries                     the values
 *   null                             no member
 *
 * A column of another type that a field reads is an error, which names column and type.
 *
 * Both functions must be pure: the same unit always has the same rows. The loader calls them on its own
 * threads, at most one call at a time for one stream, without a lock of its own; this also holds for the
 * functions of the stream, its schema and its arrays. They may block, but must not call the loader. They
 * return 0 or a negative errno, with a text in *error: -EBADMSG: the unit is damaged. */
struct penstock_columns {
	size_t size; /* sizeof(struct penstock_columns) */
	void *ctx;   /* the first argument */
	/* Counts the rows of a unit. */
	int (*count)(void *ctx, const char *unit, uint64_t *ret_rows, struct penstock_error *error);
	/* Opens a stream of the rows of a unit from `row` on. It must have the columns `members`, named as
	 * above but in lower case, as far as the unit has them; others are ignored. *ret_nbytes: bytes that
	 * the stream holds until it is released, besides the arrays; they count in memory_budget. */
	int (*read)(void *ctx, const char *unit, uint64_t row, const char *const *members, uint32_t nmembers,
	        struct ArrowArrayStream *ret_stream, uint64_t *ret_nbytes, struct penstock_error *error);
	/* 1: a unit is a part of a file: its name is the file's path, "#" and the part's name. Such files are
	 * looked for at open and named in the plans of Penstock mounts. 0: units are not files. */
	uint32_t files;
	uint32_t reserved;
	/* With `files`: where the units are in their files, in the order of their names: for each the offsets of
	 * its first byte and of the byte after its last. Copied at open; `nranges` is the number of units. NULL:
	 * not known. */
	const uint64_t *ranges;
	uint64_t nranges;
};

/* Fill by penstock_options_init(), then change. penstock_options_init(3) describes how the options work
 * together: the order, ranks, sample numbers and memory. */
struct penstock_options {
	size_t size; /* set by init, so that libraries of other versions can read the struct */

	/* The fields of a batch. NULL (default): an image from "jpg;jpeg", and an optional int64 from
	 * "cls". */
	const struct penstock_field *fields;
	uint32_t nfields; /* at most 1024 */

	/* Samples per batch on this rank; 1 to 65536; 64. */
	uint32_t batch;
	/* Batches in the loader; 2 to 64; 0 (default): 4, or 3 or 2 if 4 would take more than half of the
	 * budget. */
	uint32_t depth;

	/* Decoding threads; 1 to 1024; 0 (default): one per CPU that this process may use, plus one with
	 * transform_unit, whose code may wait for locks. */
	uint32_t threads;
	/* Reading threads; 1 to 64; 0 (default): as many as `threads`, but at least 2 and at most 8; 8 on a
	 * Penstock mount. */
	uint32_t readers;

	/* Memory for batches, read buffers, decompressors and the samples of the shuffle window; 512 MiB.
	 * The ragged fields of one batch may take memory_budget / (2 * depth). Samples that do not fit are
	 * read again from their file when they are due. Samples of pipes and of compressed shards cannot be
	 * read again, so they are held even beyond the budget; a smaller shuffle_window holds fewer. Images
	 * that need much memory to decode (progressive, interlaced) share a quarter of what batches and
	 * read buffers leave, at most 64 MiB, and 24 MiB beyond the budget; they wait for each other. The
	 * process takes at most the budget and 64 MiB more (including these 24 MiB), apart from the
	 * decoders' own memory, a few MiB per thread. */
	uint64_t memory_budget;

	/* The order: a pure function of these options and of the contents of the shards. */
	uint64_t seed;   /* 0 */
	uint64_t epoch;  /* the first epoch; 0 */
	uint64_t epochs; /* after this many, next() always returns 0; 0 (default): no end */
	uint32_t order;  /* enum penstock_order; PENSTOCK_ORDER_WINDOW */
	/* Samples that are shuffled with each other, over all ranks; 1 to 2^24; 0 (default): 4096, or 16
	 * global batches if that is more. The window is divided among the lanes: each lane shuffles blocks
	 * of its share, which is 64 samples with 64 lanes. An epoch begins with shorter blocks (1/16 of the
	 * share, then 1/16, 1/8, 1/4 and 1/2; in epoch 0 from 1/128 on), so that its first batch does not
	 * wait for a complete window; not with `bucket`. */
	uint32_t shuffle_window;
	/* Interleaved sequences of shards in an epoch; 1 to 16384; 0 (default): chosen from the number of
	 * shards and the global batch. The lanes, the seed and the global batch determine the samples of
	 * each global batch, for any world. A rank reads the lanes l with l mod world = rank (with
	 * ranks_per_node others, see there), and its surplus goes to ranks that lack samples. If lengths
	 * are not known (end UNEVEN without `steps`), a rank reads only its own lanes; then there must be
	 * at least as many lanes and shards as ranks, and other worlds have other global batches once the
	 * first lane has ended (from the beginning, if world does not divide the lanes).
	 * penstock_options_init(3) has the rules. */
	uint32_t lanes;
	uint32_t rank, world; /* number of this rank, from 0, and number of ranks; 0 of 1 */
	uint32_t end;         /* enum penstock_end; PENSTOCK_END_SPLIT */

	uint32_t on_error; /* enum penstock_on_error; PENSTOCK_FAIL */
	uint32_t max_bad;  /* SKIP: more consecutive bad samples than this end the run; 100 */

	/* Where batches are stored. NULL (default) or "cpu": page-aligned memory of this process. "cuda",
	 * "cuda:N": memory of that NVIDIA GPU, in its primary context, which CUDA's runtime and torch also
	 * use. Each batch is filled in page-locked host memory (within memory_budget) and copied from
	 * there; see penstock_batch_use(). The driver is opened only for such a device: -ENODEV if there is
	 * none. */
	const char *device;

	/* Folder of the shards' indexes (`penstock-loader index --dir`). Indexes that are not in it are
	 * searched next to the shards. A catalogue next to the shards (`pack --index`) may have the counts
	 * of all of them. An index never changes an order. NULL (default): next to the shards. */
	const char *index_dir;

	/* A saved state to resume from, as with penstock_loader_state_load(), with the same errors; the
	 * beginning of the epoch is not read. NULL (default): start at the beginning of `epoch`. Borrowed
	 * during penstock_loader_open(). */
	const void *state;
	size_t state_nbytes;

	/* -- The following members exist since 0.2. -- */

	/* Called for each good sample with its decoded fields, to fill fields of kind OUTPUT. NULL (default):
	 * none. */
	penstock_transform transform;
	void *transform_ctx; /* the first argument */
	/* A state is refused by a loader whose transform has another version. Raise it when the results of
	 * the transform change. 0 */
	uint64_t transform_version;

	/* Samples per batch over all ranks. Must be a multiple of world, and sets `batch` to global_batch /
	 * world. 0 (default): batch * world. The order depends on the number of the run's first opening,
	 * which a state keeps, so a run can continue with another world, and with another global batch. */
	uint32_t global_batch;
	/* Length buckets, at most 256: samples of similar length (bytes of the wanted fields) come
	 * together. Each lane's share of shuffle_window is sorted by length and cut into this many runs,
	 * which have the same order in all lanes. shuffle_window / bucket consecutive samples are then of
	 * similar length; this quotient should be a multiple of global_batch. 0 (default), 1: none. Order
	 * WINDOW only. */
	uint32_t bucket;
	/* Batches per epoch on each rank. The shards are read again as often as necessary (each lane on its
	 * own), or at most `repeat` times. 0 (default): as many as the samples fill. */
	uint64_t steps;
	uint64_t repeat;  /* each sample is delivered this many times per epoch; 0 (default): see steps */
	uint64_t skip;    /* samples of the epoch's order that are left out at its beginning; 0 */
	uint64_t take;    /* maximum number of samples per epoch, after `skip`; 0 (default): all */
	uint32_t mix_end; /* enum penstock_mix_end; FIRST */
	uint32_t nmix;
	/* Several datasets: weights, one for each string of `shards` passed to open, whose shards are a
	 * dataset. From the beginning of an epoch's order to any place in it, each dataset has samples in
	 * proportion to its weight, give or take 3. `nmix` is the number of weights; NULL (default): all
	 * strings are one dataset. With world > 1, this needs counts or `steps`. For weights that change, see
	 * `mix_stages`. */
	const double *mix;

	/* PERMUTATION, NUMBERS. 1: shards that are not resident (on a Penstock mount, not yet in its cache)
	 * are allowed; every sample of such a shard is a request of its own to the origin. 0 (default):
	 * such shards are refused. */
	uint32_t permute_remote;
	/* 1: statistics are collected for penstock_loader_profile(), which costs less than 1 %. 0
	 * (default): they are not. */
	uint32_t profile;
	/* MixUp and CutMix of finished batches: each row is mixed with the row before it. The alphas of the
	 * weights' beta distributions; 0 (default): off; otherwise 0.01 to 100. Every image field is mixed;
	 * masks follow CutMix. Batches then have the tensors "__mix_lambda__" (f32, the share of a row's
	 * own label), "__mix_row__" (int64, the row with the other label) and for each INT64 or FLOAT field
	 * NAME:mix, the other row's label. In a step all ranks draw the same weight and box. */
	double mixup_alpha, cutmix_alpha;
	double mix_probability; /* that a batch is mixed; 1 */
	double cutmix_share;    /* with both alphas: the share of mixed batches that use CutMix; 0.5 */

	/* A limit that this loader shares with others (training and validation). Its batches and read
	 * buffers are taken from the limit as long as the loader is open, its window and ragged fields as
	 * needed. If windows have filled the limit, they shrink for a loader that is opened later, as their
	 * samples are delivered. memory_budget is the most that this loader takes. NULL (default):
	 * memory_budget alone. */
	struct penstock_budget *budget;

	/* What the shards contain: enum penstock_source; AUTO. */
	uint32_t source;
	/* No longer exists: must be 0. PENSTOCK_INDEX_MAKE creates missing indexes, and so does
	 * penstock-loader index. */
	uint32_t write_index;
	/* Token files: distance between the starts of two windows, in tokens; 0 (default): the length of
	 * the field, so that each token except the first is once a target. */
	uint64_t token_stride;
	/* Field names that differ from the member names: "image=jpg;png label=cls". Words NAME=SUFFIXES,
	 * separated by white space; a field called NAME is read from these members. NULL (default): fields
	 * are called like their members. */
	const char *rename;

	/* Selects samples by columns of the shards' indexes (`penstock-loader index --column`): "label == 3
	 * && (h >= 256 || kind != 'gray')". It compares columns with numbers or texts, with && || ! and
	 * parentheses. A comparison is false if the sample has no such value. NULL (default): all samples. */
	const char *filter;
	/* How often samples are delivered. `weights` is the name of a column with weights, 0 or more (a
	 * missing weight is 0). `balance` is the name of a column whose values are to appear equally often.
	 * With `replacement`, a sample of weight w appears w times on average, its copies one after the
	 * other in the window. Without (0, default), it appears with probability w, at most once, and
	 * `balance` thins all classes to the smallest. NULL (default): each sample once. */
	const char *weights, *balance;
	uint32_t replacement;

	/* The name of the run for Penstock mounts, the same on all ranks; NULL (default): "loader". If
	 * shards are on a Penstock mount, the loader announces there (through .penstock/plan) its progress
	 * and the shards that it needs in this epoch and in the next 7. */
	const char *job;
	uint32_t plan_epochs; /* no longer exists: must be 0 */

	/* What finishes images (transforms, MixUp and CutMix, normalising, layout): enum
	 * penstock_device_pixels. AUTO (default): the device, if it can and if that saves bytes or work:
	 * images of f32, f16 and bf16 are then sent as bytes, and the result is bit-identical. Such tensors
	 * are on the device only (`host` is NULL). */
	uint32_t device_pixels;

	/* Device cuda: the share of JPEGs that the GPU decodes with nvJPEG, 0 to 1.
	 * PENSTOCK_GPU_DECODE_AUTO: the share with which GPU and threads are busy, measured in the first
	 * batches and then fixed; 0 if there is no nvJPEG. A hash of the sample decides which of the two
	 * decodes it, so runs are the same for any number of threads and ranks; a state keeps the share.
	 * The GPU's pixels differ slightly from those of the processor; penstock_batch_use(3) has the
	 * bounds, and the images that the processor still decodes. The GPU may miss damage inside
	 * compressed pixels, so which samples are bad can depend on the share. Takes page-locked memory in
	 * addition to memory_budget, 128 KiB or more for each row of each batch of `depth`. 0 (default):
	 * the processor decodes all. -ENODEV: a share is given, and there is no nvJPEG. */
	double gpu_decode;

	/* -- The following members exist since 0.3. -- */

	/* What to do about shards without an index: enum penstock_index; TAKE. */
	uint32_t index;

	/* Ranks that run on one machine and have consecutive numbers; must divide world; 0 (default), 1:
	 * each rank counts as a machine. The samples of a global batch do not depend on this number: the
	 * ranks of a machine have the lanes l with the same l mod (world / ranks_per_node), and the surplus
	 * of a rank goes to others of its machine first. */
	uint32_t ranks_per_node;
	/* Orders WINDOW and SHARDS. 0 (default), 1: each epoch deals all shards again. H: the seed assigns
	 * each shard to one of H homes for the complete run, and each epoch deals the shards of a home only
	 * to the lanes l with l mod H = home; H must divide the lanes. If the number of machines (or of
	 * ranks) divides H, each of them reads the same shards in every epoch, and its cache stays warm. It
	 * then never sees the samples of the other machines, and shards of different homes never share a
	 * lane. */
	uint32_t homes;

	/* Order NUMBERS: the samples of each epoch, by their place in the list of shards (as
	 * penstock_loader_get() counts), in the order in which this rank gets them; they may repeat.
	 * Copied: 8 bytes per number. Not with filter, weights, balance, draws, mix, skip, take and repeat;
	 * `steps` ends an epoch early. A state has a hash of them, and belongs to this rank and world. NULL
	 * (default): penstock_loader_feed() gives them. `batch_ends`: where each batch ends in `numbers`
	 * (each of at most `batch` samples); these batches are delivered unchanged, whatever `end` is; NULL
	 * (default): every `batch` numbers are a batch. */
	const int64_t *numbers;
	uint64_t nnumbers;
	const uint64_t *batch_ends;
	uint64_t nbatch_ends;

	/* Weights of all samples, by their place in the list of shards, instead of the column `weights`.
	 * Copied: 8 bytes per sample. NULL (default): none. Every shard needs an index. */
	const double *sample_weights;
	uint64_t nsample_weights;
	/* The exact number of samples that each pass of an epoch draws over all ranks. 0 (default): with
	 * sample_weights, as many as pass the filter; with a column of `weights`, or `balance`, as
	 * `replacement` says. A sample of weight w appears draws * w / (sum of all weights) times, rounded
	 * up or down (systematic resampling: one random offset per epoch and pass), its copies one after
	 * the other at its place in the order, and at most 65535 times. With order PERMUTATION each draw is
	 * independent of all others instead. The draws are the same for any world. */
	uint64_t draws;

	/* In place of `transform`: gets a unit of rows in each call, 1 to 256 rows of one batch, as many as
	 * took some milliseconds to decode. It also gets transform_ctx. NULL (default): none. */
	penstock_transform_unit transform_unit;
	/* Called by each decoding thread when it ends, after its last call of transform_unit. It must not
	 * call the loader. NULL (default): nothing is called. */
	void (*transform_leave)(void *ctx);

	/* -- The following members exist since 0.4. -- */

	/* Reads the rows of columns instead of files; see struct penstock_columns. Borrowed until the loader
	 * is closed. Not with `source`, nor with filters and weights by columns of an index. NULL (default):
	 * shards are files. */
	const struct penstock_columns *columns;
	/* Instead of `mix`: stages of a mix of `nmix` datasets, whose weights change in the course of an
	 * epoch. Each epoch begins with the first stage. A start in steps is converted to rows with the
	 * global batch of the run's first opening, so a run that is resumed with another one keeps the
	 * stages. Copied. NULL (default): none. */
	const struct penstock_mix_stage *mix_stages;
	uint32_t nmix_stages;
	uint32_t state_flags; /* for `state`: PENSTOCK_STATE_* */
	/* Names of the `nmix` datasets, each another one. A state matches datasets by them, and the order of
	 * a dataset with a name does not depend on its place in the list. Copied. NULL (default): their
	 * numbers from 0. */
	const char *const *mix_names;
};

enum penstock_index {
	/* Existing indexes and catalogues are used. */
	PENSTOCK_INDEX_TAKE,
	/* Missing ones are also created at open, in index_dir or next to the shards, if all these shards
	 * are local or in the cache of their mount, and if creating the indexes takes less than 10 s by
	 * estimate. Otherwise open fails (-EINVAL), and the text says how much would have to be read and
	 * how long that takes. In each folder one process creates the indexes, and the others wait. */
	PENSTOCK_INDEX_MAKE,
};

#define PENSTOCK_GPU_DECODE_AUTO (-1.0)

/* Fills in the defaults. `size` is sizeof(struct penstock_options), so that new members can be added at the
 * end of the struct. */
void penstock_options_init(struct penstock_options *options, size_t size);

/* Creates a budget. It may be freed at any time, because a loader keeps a reference to its budget until it is
 * closed. Returns NULL if memory ran out. */
struct penstock_budget *penstock_budget_new(uint64_t bytes);
uint64_t penstock_budget_used(const struct penstock_budget *budget);
void penstock_budget_free(struct penstock_budget *budget); /* NULL is allowed */

/* Fills in the defaults of a field of that kind. `size` is sizeof(struct penstock_field); `name` is borrowed
 * until penstock_loader_open(). */
void penstock_field_init(struct penstock_field *field, size_t size, const char *name, uint32_t kind);

/* Loader ------------------------------------------------------------------------------------------------- */

struct penstock_loader;
struct penstock_batch;

/* Expands the shard patterns (brace expansion as in WebDataset, "a::b", "@list.txt", wildcards, and a
 * folder for the tar shards in it, in the order of their names' bytes), allocates all batches, and starts
 * to read.
 * Blocks: while it reads @lists and folders, and looks for the shards: about a second at most.
 * -EINVAL: an option is wrong. -ENOMEM: memory ran out. -E2BIG: the budget is too small, the list is too
 * long, or a member is set that only a newer library knows (a larger struct is accepted if its unknown
 * members are 0).
 * -ENODEV: there is no such device. -ENODATA: lengths are known (from indexes), and the epoch has no sample
 * on any rank. -ENOENT: nothing matches a pattern, or with on_error FAIL a shard is missing
 * (penstock_loader_open(3) says which shards are looked for; other missing shards are found when they are
 * read). -ESTALE: `state` cannot be resumed. */
int penstock_loader_open(const struct penstock_options *options, const char *const *shards, size_t nshards,
        struct penstock_loader **ret_loader, struct penstock_error *error);

/* Expands a pattern of shards as open does. *ret_names: the names, each zero-terminated, in memory from
 * malloc(), which the caller frees; *ret_nbytes: their bytes. Blocks on folders. Errors are those of open.
 * Since 0.4. */
int penstock_shards_expand(
        const char *pattern, char **ret_names, size_t *ret_nbytes, struct penstock_error *error);

/* Returns 1 with the next batch, which the caller then holds, or 0 at the end of the epoch; the next call
 * begins the next epoch.
 * Blocks: until a batch is ready: on disk, network and decoding.
 * -EBUSY: the caller holds all batches; this function never waits for its own caller. -EAGAIN: everything
 * that penstock_loader_feed() gave was delivered. -EBADMSG: a bad sample (on_error FAIL), more than max_bad
 * bad samples in a row, or an epoch without a good one (SKIP). -ESTALE: the same, in a shard that was
 * replaced since it was indexed or opened. After an error other than -EBUSY, -EAGAIN and -ECHILD the loader
 * stays failed until set_epoch, state_load or close. */
int penstock_loader_next(
        struct penstock_loader *loader, struct penstock_batch **ret_batch, struct penstock_error *error);

/* Waits until penstock_loader_next() would return at once (with a batch, an error, or the end of the
 * epoch), or until timeout_ms have passed. Returns 1 if it would, 0 if not. For callers that must also
 * handle other events, such as Ctrl-C in Python. */
int penstock_loader_wait(struct penstock_loader *loader, uint32_t timeout_ms, struct penstock_error *error);

/* While the caller holds all batches, waits until one is released on another thread, or until timeout_ms have
 * passed. Returns 1 if not all are held, 0 if all still are. */
int penstock_loader_wait_released(
        struct penstock_loader *loader, uint32_t timeout_ms, struct penstock_error *error);

/* Adds a batch to the loader, for a caller that holds all of them; it stays until close. Its memory counts
 * in memory_budget (and `budget`): it is taken from the memory for samples that are read ahead, at most
 * half of it.
 * -ENOBUFS: there is no room for another batch. */
int penstock_loader_add_batch(struct penstock_loader *loader, struct penstock_error *error);

/* Moves to the beginning of an epoch, even if a loaded state is in the middle of it. Cheap if the loader is
 * already there; otherwise samples and batches that were read ahead are dropped. Batches that are held stay
 * valid.
 * Blocks: until reads and decodes in progress are finished. */
int penstock_loader_set_epoch(struct penstock_loader *loader, uint64_t epoch, struct penstock_error *error);

/* Order NUMBERS without `numbers`: feeds the samples of the epoch's next batch, 1 to `batch` of them, which
 * are copied. With n 0 the epoch ends after the batches that were fed before. Call it on the thread that
 * calls next(). After open, set_epoch, state_load and at the end of an epoch, nothing is fed; after
 * state_load, feed the batches that follow those that were delivered. Returns 1 if there is room for
 * another batch, and 0 if `depth` batches are ahead of the one that next() returned last, or if the epoch
 * was ended. Never blocks.
 * -EBUSY: there was no room. -ERANGE: there is no such sample. */
int penstock_loader_feed(
        struct penstock_loader *loader, const int64_t *numbers, uint32_t n, struct penstock_error *error);

/* How many samples and batches this rank has in an epoch. This is known if every shard of the rank has an
 * index, or is in a catalogue, or if `steps` is set. Bad samples are counted. With world > 1, the shards of
 * a rank change with the epoch. Blocks: at the first call, while it reads the heads of the indexes.
 * -ENODATA: a shard has no index and is in no catalogue; the text names the shard and the remedy. */
int penstock_loader_length(struct penstock_loader *loader, uint64_t epoch, uint64_t *ret_samples,
        uint64_t *ret_batches, struct penstock_error *error);

/* How many samples all ranks together have in an epoch; with an order of sample numbers, those of this
 * rank. Errors and blocking are those of penstock_loader_length(). Since 0.4. */
int penstock_loader_total(
        struct penstock_loader *loader, uint64_t epoch, uint64_t *ret_samples, struct penstock_error *error);

/* Reads samples by number into a batch of n rows, 1 to 65536; row k is the sample numbers[k]. Number i is
 * the i-th sample of the list of shards, whatever the order and the filter are. Reads and decodes on the
 * calling thread. Random choices are those of the epoch that the loader was opened with. The batch is not
 * one of `depth`; release it before the loader is closed. May run while the loader's threads work: one call
 * at a time, and not during calls that are limited to one thread. Blocks: on disk and decoding. Since 0.2.
 * -ENODATA: a shard has no index; the text names the shard. -ERANGE: there is no such sample. -EBADMSG: a
 * bad sample (on_error FAIL). -ESTALE: the shard was replaced since it was indexed. */
int penstock_loader_get(struct penstock_loader *loader, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct penstock_error *error);

/* Writes the loader's position, for any machine: the position after the last batch that
 * penstock_loader_next() returned (batches that were read ahead do not count). A state has 224 bytes (32
 * more with gpu_decode), and 64 for each lane of this rank (if lengths are known, only for lanes that
 * delivered a row; none with order permutation and with sample numbers). Returns the number of bytes; with
 * `buf` NULL it writes nothing and returns a number that suffices for any state of this loader. Never
 * blocks.
 * -ENOBUFS: `size` is too small. */
int penstock_loader_state_save(
        struct penstock_loader *loader, void *buf, size_t size, struct penstock_error *error);

/* Moves to the position of a saved state. The batches from there on are bit-identical to those without the
 * interruption, whatever threads, depth and memory_budget are. Shards that were used up are not read; the
 * others are read only from the current block of samples on (a pipe, a compressed shard, and a shard with
 * global pax headers from the beginning). Batches that are held stay valid. Blocks: like
 * penstock_loader_set_epoch().
 *
 * The state of any rank, even of another world, can be loaded if global_batch and lanes are the same: every
 * rank continues with its part of the next global batch. If the shards have no index, the positions of
 * other ranks' lanes are found by reading the headers of the samples that those lanes have delivered. With
 * end UNEVEN, once lanes have begun to end, a rank can load only its own state.
 *
 * The shards may be stored elsewhere: a state is bound to the number of shards, to their order, and to the
 * shortest ends of their paths that distinguish all of them (0.tar and 1.tar of any folder; a/0.tar and
 * b/0.tar). Shards that the lanes of the state are in must have the same size as before; otherwise
 * penstock_loader_next() fails with
 * -ESTALE when the shard is opened.
 *
 * -EINVAL: not a state, or damaged. -ESTALE: the state belongs to other shards, to other options, or to a
 * library that makes other batches, or the run cannot be continued exactly; the text says which. After one
 * of these errors the position of the loader is unchanged. */
int penstock_loader_state_load(
        struct penstock_loader *loader, const void *state, size_t size, struct penstock_error *error);

/* The same with exceptions, `flags` of PENSTOCK_STATE_*. -EINVAL, too: an unknown flag. */
int penstock_loader_state_load_as(struct penstock_loader *loader, const void *state, size_t size,
        uint32_t flags, struct penstock_error *error);

/* Stops the threads and frees everything, including batches. NULL is allowed.
 * Blocks: until reads and decodes in progress are finished. */
void penstock_loader_close(struct penstock_loader *loader);

/* Batches ------------------------------------------------------------------------------------------------ */

/* Numbered as in DLPack. */
enum penstock_memory {
	PENSTOCK_MEMORY_HOST = 1,
	PENSTOCK_MEMORY_CUDA = 2,
};

/* Values of options.device_pixels. AUTO is OFF for loaders with a `transform` or a `profile`, which look at
 * pixels, and on devices without kernels: a library that was built without nvcc, or a driver that cannot
 * run them; see penstock_stats.pixels. */
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
	 * options.device_pixels); otherwise this is `data` itself. Since 0.2. */
	const void *host;
	const uint64_t *host_offsets;
	uint32_t memory;      /* enum penstock_memory: where data and offsets are */
	int32_t device;       /* the number of the device that has this memory */
	uint64_t reserved[1]; /* 0; for what a later library reports, as in the structs below */
};

struct penstock_batch_info {
	uint64_t epoch;
	uint64_t index; /* number of the batch in its epoch, on this rank */
	uint32_t rows;
	uint32_t bad; /* rows whose sample was bad; padding is not counted */
	/* All tensors of a batch are in one piece of memory, each at a multiple of 256 bytes from its
	 * beginning: one copy of that piece copies the complete batch (except tensors without `host`, which
	 * are not in it). Since 0.2. */
	const void *slot;
	uint64_t slot_nbytes;
	/* Rows whose __valid__ is 1. 0: the batch is blank (PENSTOCK_SKIP), or one repeated row
	 * (PENSTOCK_END_SPLIT). Since 0.2. */
	uint32_t valid;
	uint32_t reserved1;
	uint64_t reserved[1];
};

/* The position and the size of a batch. */
void penstock_batch_info(const struct penstock_batch *batch, struct penstock_batch_info *ret_info);

/* A field by the name given in the options, or by one of its alternatives. Padded fields and tokens have
 * further tensors (NAME:lengths, NAME:mask, NAME:y, and those of penstock_field.parts). NAME:longest has no
 * dimension, and is in host memory whatever the device is. Every batch also has:
 *   "__key__"     ragged bytes: the keys of the samples
 *   "__valid__"   u8: 1, or 0 for a row that repeats another (a bad sample, padding, a rank without a sample)
 *   "__shard__"   int64: the place of the shard in the list
 *   "__sample__"  int64: the place of the sample in its shard
 * -ENOENT: there is no such field. */
int penstock_batch_field(const struct penstock_batch *batch, const char *name,
        struct penstock_tensor *ret_tensor, struct penstock_error *error);

/* The name of the nth tensor of a batch, from 0, which is the same for all batches of a loader: each field
 * with its NAME: tensors, then the four above, and with MixUp or CutMix "__mix_lambda__" and "__mix_row__".
 * NULL: there are fewer. Valid as long as the loader. Since 0.2. */
const char *penstock_batch_name(const struct penstock_batch *batch, uint32_t n);

struct penstock_bad {
	uint32_t row;
	const char *shard; /* borrowed from the batch, like the other strings */
	const char *key;   /* empty if the damage hides it */
	uint64_t offset;   /* place of the sample in the shard */
	const char *reason;
	uint64_t reserved[4];
};

/* The nth bad sample of the batch, n < info.bad. -ENOENT: there are fewer. */
int penstock_batch_bad(const struct penstock_batch *batch, uint32_t n, struct penstock_bad *ret_bad);

/* Draws the images of the batch for a person: a PNG of at most `most` rows (1 to 64; 0: 64). It shows each
 * row with all its image fields and views, its numbers and texts, and its key. Images appear as they were
 * before they were normalised. Those of more than 256 pixels on a side are shrunk, and those of at most 64
 * are enlarged, by whole numbers. A class in a member .cls is also named, if CLASSES.txt is next to the
 * shard. Returns the number of rows shown. *ret_png has memory from malloc(), which the caller frees. Since
 * 0.4.
 * -EINVAL: the batch has no field of images. -ENOTSUP: the images are only on a device
 * (options.device_pixels), or the library was built without libpng. -ENOMEM. */
int penstock_batch_sheet(const struct penstock_batch *batch, uint32_t most, void **ret_png,
        size_t *ret_nbytes, struct penstock_error *error);

/* Returns the batch to its loader. NULL is allowed. */
void penstock_batch_release(struct penstock_batch *batch);

/* Batches on a device (since 0.2)
 * ---------------------------------------------------------------------------
 *
 * penstock_loader_next() returns a batch as soon as its copy to the device has begun; no thread waits for
 * the copy. Name each stream that works with the batch once:
 *
 *   penstock_loader_next(loader, &batch, &error);
 *   penstock_batch_use(batch, stream, &error);
 *   ... queue kernels on `stream` that read the tensors ...
 *   penstock_batch_release(batch);
 *
 * Work that was queued on the stream before the release may still read the batch: the loader overwrites its
 * memory only after that work. penstock_loader_close() waits for such work. */

/* Makes later work on `stream` (a CUstream or cudaStream_t; NULL: the legacy default stream) wait until the
 * batch has arrived. Does nothing if batches are in host memory. Any thread. Never blocks.
 * -EIO: the device failed; the text says how. */
int penstock_batch_use(struct penstock_batch *batch, void *stream, struct penstock_error *error);

/* The event that marks the arrival of the batch (a CUevent), for callers that wait for it themselves; valid
 * until the batch is released. NULL: the batch has arrived. */
void *penstock_batch_event(const struct penstock_batch *batch);

/* Waits on the processor until the batch has arrived. -EIO: the device failed. */
int penstock_batch_sync(struct penstock_batch *batch, struct penstock_error *error);

/* Transforms: what options.transform may call (since 0.2) ------------------------------------------------ */

struct penstock_sample_info {
	const char
	        *key; /* borrowed until the transform returns, like everything that these functions return */
	const char *shard; /* its path */
	uint64_t epoch;
	uint64_t shard_index;  /* place of the shard in the list */
	uint64_t sample_index; /* place of the sample in its shard */
	/* For repeatable choices: a function of seed, epoch, shard and sample, and of which of its draws
	 * this is, if a sample may appear more than once in an epoch. */
	uint64_t random;
	uint64_t reserved[4];
};

/* Where the sample comes from. */
void penstock_sample_info(const struct penstock_sample *sample, struct penstock_sample_info *ret_info);

/* A field of the sample as it will be in the batch, without the dimension of rows: of shape [] for a
 * number, [3, height, width] for an image, [items, ...] for ragged and padded fields (without padding and
 * added offsets). Elements of ragged fields are valid until the next call for the same field, for any
 * sample of the unit.
 * -ENOENT: there is no such field, or it is an output. -ENOMEM. */
int penstock_sample_field(
        struct penstock_sample *sample, const char *name, struct penstock_tensor *ret_tensor);

/* The memory of an output's row, which the transform fills, or of the row of another field of fixed shape,
 * which the transform may overwrite (except TOKENS, and the labels of mixed batches, which have two
 * tensors). It has room for *ret_items items (ret_items may be NULL). The row of an output of fixed shape
 * is zeroed before the call. NULL: there is no such field. */
void *penstock_sample_output(struct penstock_sample *sample, const char *name, uint64_t *ret_items);

/* Sets how many items of a ragged or padded output were written; 0 until this is called. -ENOENT: there is
 * no such output. -EINVAL: more than there is room for. */
int penstock_sample_set_items(struct penstock_sample *sample, const char *name, uint64_t items);

/* Records why the sample is bad, in at most 255 bytes. Returns -EBADMSG, which a penstock_transform can
 * return. */
int penstock_sample_fail(struct penstock_sample *sample, const char *text);

/* Statistics --------------------------------------------------------------------------------------------- */

/* The time of all threads of a stage together, in seconds: working, waiting for input, waiting for room for
 * their output. */
struct penstock_stage {
	const char *name; /* "read", "decode", "consumer" */
	uint32_t threads;
	double busy, waiting_input, waiting_output;
};

#define PENSTOCK_NSTAGES 3

struct penstock_stats {
	uint64_t samples;    /* delivered, including bad ones */
	uint64_t batches;    /* delivered */
	uint64_t bad;        /* samples delivered as bad */
	uint64_t bytes_read; /* from shards, front to back, decompressed; without second reads */
	uint64_t reread;     /* samples read a second time, because the window did not fit in the budget */
	double seconds;      /* since the loader was opened */
	struct penstock_stage stages[PENSTOCK_NSTAGES];

	/* -- The following members exist since 0.2. -- */

	/* What the consumer waited for, in seconds that add up to stages[2].waiting_input: storage (workers
	 * waited for readers, and readers for the disk or the network), reading (workers waited for
	 * readers, which were busy), decoding. */
	double wait_storage, wait_read, wait_decode;
	/* "storage", "read", "decode", "consumer" (the loader is not the limit) or "none" (no samples yet),
	 * and what would help. */
	const char *bottleneck;
	char advice[160];
	/* Bytes of finished copies of batches to the device, and the time that the copies took; 0 if
	 * batches stay in host memory. Images that the GPU decoded are not copied, and their files are not
	 * counted. */
	uint64_t copied_bytes;
	double copy_seconds;
	/* What finishes images: "cpu" or the kind of the device; "cpu: " and the reason, if
	 * options.device_pixels is AUTO and the device cannot finish them. */
	char pixels[192];
	/* options.gpu_decode. Of the images of fields that the GPU may decode: those that its engine
	 * decoded, those that the GPU and the processor's threads decoded together, and those that the
	 * processor decoded. The share in force, 0 to 1. The images per second that the GPU and the
	 * processor could each decode alone; 0: not known. Why the GPU decodes nothing although gpu_decode
	 * asks for it; "": it decodes, or was not asked to. */
	uint64_t gpu_engine_images, gpu_hybrid_images, cpu_images;
	double gpu_share;
	double gpu_images_per_second, cpu_images_per_second;
	char gpu_decode_why[160];
	/* Shards that could not be opened or read, each counted once; penstock_loader_lost() lists them. */
	uint64_t shards_lost;
	/* The file of the nvJPEG that decodes ("": none), and those that were found but cannot be used,
	 * each with its reason. */
	char gpu_library[256], gpu_refused[512];
	uint64_t blank_batches; /* delivered without a good row: all samples were bad */
	/* Epochs without a batch on this rank, from their beginning to their end: no shard held a sample,
	 * or (end DROP_LAST) too few for a global batch. */
	uint64_t empty_epochs;
	/* The decoder of JPEGs' entropy-coded data: "penstock", or "libjpeg: " and the reason (a build
	 * without our own decoder, or a loaded libjpeg with which our decoder gives other pixels, which is
	 * tested once per process). Static string. */
	const char *jpeg_decoder;
	/* Rows of steps in which this rank had no sample: each repeats a sample of another rank, valid = 0,
	 * and is not counted in `samples`; see END_SPLIT. */
	uint64_t repeats;
	/* Packed rows of token files: the tokens of all files, and those of them that are in no row (less
	 * than a row at the end of each file; documents that were truncated or dropped). */
	uint64_t tokens, tokens_left_out;
	/* Of the pieces of these files that were read, those read again included: documents of more than a
	 * row, and empty ones, which are in no row. */
	uint64_t long_documents, empty_documents;
	/* What is wrong with a set of token files of which more than 1 % is left out; "": nothing. */
	char tokens_warning[256];
	/* Image files of delivered batches that were decoded although they lack their end (TRUNCATED_ALLOW). */
	uint64_t truncated;
};

/* Takes a snapshot. `size` is sizeof(struct penstock_stats). */
int penstock_loader_stats(struct penstock_loader *loader, struct penstock_stats *ret_stats, size_t size,
        struct penstock_error *error);

/* A shard that could not be opened, or not be read to its end, because of its storage: the file is gone, or
 * a mount, disk or origin did not answer. Its samples are missing from the epoch; at least one row reports
 * the loss as a bad sample. Since 0.2. */
struct penstock_lost {
	const char *shard; /* valid as long as the loader, like the other string */
	const char *reason;
	uint64_t reserved[4];
};

#define PENSTOCK_LOST_KEPT 64 /* lost shards that are listed; stats.shards_lost counts all */

/* The nth lost shard, in the order of the batches that next() returned. Any thread. -ENOENT: there are fewer.
 * -ECHILD. */
int penstock_loader_lost(struct penstock_loader *loader, uint64_t n, struct penstock_lost *ret_lost);

/* The profile of a loader with options.profile, as JSON. It covers the batches made so far. It has for each
 * field the bytes or items per row; for images also the mean and deviation of each channel (of values 0 to
 * 1 after the crop); for numbers the range, mean and deviation; for integers the counts of the first 4096
 * different values. Returns the length in bytes without the final NUL; with `buf` NULL nothing is written.
 * -ENOBUFS: `size` is not larger than the length, which may have grown since the last call. -ENODATA:
 * opened without options.profile. */
int penstock_loader_profile(
        struct penstock_loader *loader, char *buf, size_t size, struct penstock_error *error);

/* The differences between two such profiles, `was` and `now`: one line, ended by a newline, for each
 * difference that is worth a warning (labels that are new or have another frequency, means and deviations).
 * Returns the length in bytes without the final NUL, 0 if nothing differs; with `buf` NULL nothing is
 * written. Any thread. Since 0.3.
 * -EINVAL: not a profile. -ENOBUFS. */
int penstock_profile_drift(
        const char *was, const char *now, char *buf, size_t size, struct penstock_error *error);

/* A fingerprint of a run's data and order, as JSON, for the log of an experiment. `digest` is a hash of the
 * names of the shards, the options that determine the order, and the fields and their transforms (with
 * transform_version); it is the same for any number of ranks with the same global batch. The JSON also has
 * each of the hashed values. `samples` and `counts` (a hash) are null if a shard has no index. Reads no
 * shard. Equal digests and counts mean equal batches, as long as the shards are the same. Returns the
 * length in bytes without the final NUL; with `buf` NULL nothing is written. -ENOBUFS. Since 0.3. */
int penstock_loader_fingerprint(
        struct penstock_loader *loader, char *buf, size_t size, struct penstock_error *error);

/* Writing shards ----------------------------------------------------------------------------------------- */

/* A tar as penstock-loader pack writes it: the same members give the same bytes. With a level it is
 * compressed, in zstd's seekable format.
 *
 *   open, add ..., finish | abort
 *
 * The file is written as PATH.tmp-PID, and _finish() renames it when it is complete and on the disk. Only
 * one thread at a time may use a writer. Blocks on the disk. Since 0.3. */
struct penstock_shard_writer;

/* level: 1 to 19; 0: not compressed. */
int penstock_shard_writer_open(
        const char *path, int level, struct penstock_shard_writer **ret_writer, struct penstock_error *error);

/* Adds a file named KEY.SUFFIX. Consecutive files of one key are a sample. -EINVAL: the name has another
 * form; nothing was written. After other errors only _abort() may be called. */
int penstock_shard_writer_add(struct penstock_shard_writer *writer, const char *name, const void *data,
        size_t nbytes, struct penstock_error *error);

/* The bytes that a file of that name and size occupies in the tar, including headers and padding. */
uint64_t penstock_shard_writer_member_nbytes(const char *name, uint64_t nbytes);

/* Completes the shard and, with `index` not 0, writes its index next to it, as `penstock-loader index`
 * does. Frees the writer, even if it fails. */
int penstock_shard_writer_finish(
        struct penstock_shard_writer *writer, int index, struct penstock_error *error);

/* Removes what was written, and frees the writer. NULL is allowed. */
void penstock_shard_writer_abort(struct penstock_shard_writer *writer);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
