/* libpenstock: WebDataset tar shards in, batches out.
 *
 * A loader reads shards (tar files whose members share a key), decodes their fields on its own threads
 * straight into batches, and hands the batches out in an order that is a pure function of the options: the
 * same seed gives the same bytes for any number of threads.
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
 * Ownership: what a function returns through a ret_ argument is described with it. Options, shard names and
 * fields are copied by penstock_loader_open(). Lifetime of a batch: from penstock_loader_next() until
 * penstock_batch_release() or penstock_loader_close(), whichever is first; tensors point into it. Batches are
 * reused: there are `depth` of them, and holding all makes penstock_loader_next() fail with -EBUSY; it never
 * waits for its own caller. Threads: any functions on different loaders. On one loader, one thread at a time
 * in penstock_loader_next(), _wait(), _set_epoch(), _state_save(), _state_load(), _length() and _close();
 * penstock_batch_*() and penstock_loader_stats() on any thread. Loader threads block all signals. Fork: a
 * loader works in the process that opened it. In another one every function but penstock_loader_close() and
 * penstock_batch_release() fails with -ECHILD, and penstock_loader_close() gives the memory back and touches
 * no thread. Errors: 0 or a positive result, or a negative errno with a line of text for a person in *error
 * (NULL: no text). Nothing is printed, no state is global. Units: bytes, seconds, counts. */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0

/* "0.1.0": of the library that runs, which may be newer than this header. */
const char *penstock_version(void);

#define PENSTOCK_ERROR_TEXT_LEN 1024

struct penstock_error {
	int code; /* a positive errno; 0: none */
	char text[PENSTOCK_ERROR_TEXT_LEN];
};

/* -- Options ------------------------------------------------------------------------------------------ */

/* How a field's bytes become part of a batch. */
enum penstock_kind {
	PENSTOCK_IMAGE = 0, /* a JPEG, cropped and resized: rows of image_height x image_width x 3 */
	PENSTOCK_INT64 = 1, /* an integer in decimal digits, as in .cls files: one int64 a row */
	PENSTOCK_BYTES = 2, /* as they are (txt, json, anything): values and offsets */
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
};

enum penstock_layout {
	PENSTOCK_NCHW = 0,
	PENSTOCK_NHWC = 1,
};

enum penstock_crop {
	/* RandomResizedCrop: a part of scale_min..scale_max of the area, of shape ratio_min..ratio_max */
	PENSTOCK_CROP_RANDOM = 0,
	/* the shorter side to resize_shorter, then the middle */
	PENSTOCK_CROP_CENTER = 1,
	/* the whole image, stretched to the size */
	PENSTOCK_CROP_NONE = 2,
};

enum penstock_interpolation {
	PENSTOCK_BILINEAR = 0, /* both antialiased, as PIL's */
	PENSTOCK_BICUBIC = 1,
};

/* One field of a batch. Fill by penstock_field_init(), then change. Defaults are those of both crops; the
 * members below `kind` are for images where nothing else is said. */
struct penstock_field {
	size_t size; /* set by init: lets a newer library read an older struct */
	/* Suffix of the member; alternatives by ';', the first that a sample has counts: "jpg;jpeg". */
	const char *name;
	uint32_t kind; /* enum penstock_kind */

	uint32_t image_width, image_height; /* pixels, 1 to 16384; 224 */
	uint32_t dtype;                     /* PENSTOCK_U8 or PENSTOCK_F32 (default) */
	uint32_t layout;                    /* PENSTOCK_NCHW (default) or PENSTOCK_NHWC */
	uint32_t crop;                      /* enum penstock_crop; PENSTOCK_CROP_RANDOM */
	uint32_t interpolation;             /* enum penstock_interpolation; PENSTOCK_BILINEAR */
	/* CROP_CENTER: pixels; 0 (default): 8/7 of the longer side of the result, so 256 for 224. */
	uint32_t resize_shorter;
	double scale_min, scale_max; /* CROP_RANDOM: share of the image's area; 0.08, 1 */
	double ratio_min, ratio_max; /* CROP_RANDOM: width / height; 3/4, 4/3 */
	double hflip;                /* probability of a horizontal flip, with any crop; 0.5 */
	float mean[3], std[3];       /* F32: (value / 255 - mean) / std; ImageNet's */
	uint64_t max_pixels;         /* a larger image is a bad sample; 0 (default): 2^27 */

	/* INT64 and BYTES: 1: a sample without the field is sound; 0 (default): it is bad. */
	uint32_t optional;
	/* INT64, optional: what such a row holds; -1. A BYTES row is empty then. */
	int64_t missing_value;
};

enum penstock_order {
	PENSTOCK_ORDER_NONE = 0,   /* as in the list; ranks take shards in turn */
	PENSTOCK_ORDER_SHARDS = 1, /* shards shuffled, samples as in them */
	PENSTOCK_ORDER_WINDOW = 2, /* shards shuffled, and samples within shuffle_window (default) */
};

enum penstock_end {
	/* Every sample once (default). The last batch is as short as it comes, and ranks may have different
	 * numbers of batches: synchronous training must stop each epoch after a number of steps of its own.
	 */
	PENSTOCK_END_UNEVEN = 0,
	/* A short last batch is left out. world = 1 only. */
	PENSTOCK_END_DROP_LAST = 1,
	/* A short last batch is filled by repeating rows, valid = 0. world = 1 only. */
	PENSTOCK_END_PAD = 2,
};

enum penstock_on_error {
	/* penstock_loader_next() fails, and names the first bad sample's shard, key, offset and reason
	   (default). */
	PENSTOCK_FAIL = 0,
	/* A bad sample's row repeats the next good row of its batch (cyclic), valid = 0; it is counted. */
	PENSTOCK_SKIP = 1,
};

/* Fill by penstock_options_init(), then change. */
struct penstock_options {
	size_t size; /* set by init: lets a newer library read an older struct */

	/* What a batch holds. NULL: an image from "jpg;jpeg", and an int64 from "cls", optional. */
	const struct penstock_field *fields;
	uint32_t nfields; /* at most 64 */

	/* Rows of a batch on this rank; 1 to 65536; 64. */
	uint32_t batch;
	/* Batches in the loader; 2 to 64; 0 (default): 4, or 3 or 2 where 4 took more than half of the
	 * budget. */
	uint32_t depth;

	uint32_t threads; /* that decode; 1 to 1024; 0 (default): the CPUs that this process may use */
	uint32_t readers; /* that read shards; 1 to 64; 0 (default): as threads, but 2 to 8 */

	/* Bytes of batches, read buffers and the samples of the shuffle window; 512 MiB. The ragged fields of
	 * one batch may have half of it / depth. Samples that do not
	 * fit are read again from their file when their turn comes: 4096 of 110 kB are 430 MiB; beside 4
	 * batches of 64 x 3 x 224 x 224 floats (149 MiB) and 64 read buffers (64 MiB) about two thirds of
	 * them are held. The decoders' own memory, a few MiB a thread, comes on top. */
	uint64_t memory_budget;

	/* The order: a pure function of these and of the shards' contents. */
	uint64_t seed;   /* 0 */
	uint64_t epoch;  /* the first epoch; 0 */
	uint64_t epochs; /* after so many next() gives 0 for ever; 0 (default): no end */
	uint32_t order;  /* enum penstock_order; PENSTOCK_ORDER_WINDOW */
	/* Samples that are shuffled with each other; 1 to 2^24; 4096. Shared out to the lanes: each shuffles
	 * blocks of its share, with 64 lanes 64 samples. */
	uint32_t shuffle_window;
	/* The epoch is read as so many interleaved sequences of shards; 1 to 4096; 64. Must be a multiple of
	 * world. The same lanes and seed give the same samples in each global batch for any world, until the
	 * first lane ends (at once, where there are fewer shards than lanes). */
	uint32_t lanes;
	/* This is rank (from 0) of world ranks; 0 of 1. It takes the lanes rank, rank + world, ... . Each
	 * rank needs a shard of its own. */
	uint32_t rank, world;
	uint32_t end; /* enum penstock_end; PENSTOCK_END_UNEVEN */

	uint32_t on_error; /* enum penstock_on_error; PENSTOCK_FAIL */
	uint32_t max_bad;  /* SKIP: more bad samples than this behind each other fail; 100 */

	const char *device; /* where batches lie; NULL or "cpu": page-aligned memory of this process */

	/* Folder of the shards' indexes (`penstock-loader index --dir`); NULL (default): beside the shards.
	 * Indexes tell counts; they never change an order. */
	const char *index_dir;

	/* Begin where a state was saved, as penstock_loader_state_load() does, and with its errors; so
	 * nothing is read of the epoch's beginning. NULL (default): at the beginning of `epoch`. Borrowed
	 * until open. */
	const void *state;
	size_t state_nbytes;
};

/* Fills in the defaults. `size` is sizeof(struct penstock_options), so that new members can be added at its
 * end. */
void penstock_options_init(struct penstock_options *options, size_t size);

/* The defaults of a field of that kind. `size` is sizeof(struct penstock_field); `name` is borrowed until
 * penstock_loader_open(). */
void penstock_field_init(struct penstock_field *field, size_t size, const char *name, uint32_t kind);

/* -- Loader ------------------------------------------------------------------------------------------- */

struct penstock_loader;
struct penstock_batch;

/* Expands the shard patterns (brace expansion as WebDataset's, "a::b", "@list.txt"), allocates all batches,
 * and starts reading. Missing shards are found when they are read. Blocks: on reading @lists only. -EINVAL:
 * options; -ENOMEM: the memory; -E2BIG: the budget is too small, or the list too long; -ENODEV: the device.
 */
int penstock_loader_open(const struct penstock_options *options, const char *const *shards, size_t nshards,
        struct penstock_loader **ret_loader, struct penstock_error *error);

/* 1: the next batch, which the caller holds now. 0: the epoch is over; the next call begins the one after it.
 * -EBUSY: the caller holds all `depth` batches. -EBADMSG: a bad sample (on_error FAIL), a batch without a
 * good one, or more than max_bad in a row. After an error but -EBUSY and -ECHILD the loader stays failed
 * until set_epoch or close. Blocks: until a batch is ready: on disk, network and decoding. */
int penstock_loader_next(
        struct penstock_loader *loader, struct penstock_batch **ret_batch, struct penstock_error *error);

/* 1: penstock_loader_next() would answer at once (also with an error, or the end of the epoch); 0: not after so
 * many milliseconds. For callers that must look after other things meanwhile, as Python after Ctrl-C. */
int penstock_loader_wait(struct penstock_loader *loader, uint32_t timeout_ms, struct penstock_error *error);

/* Goes to the beginning of an epoch, also of one that was resumed. Cheap if that is where the loader stands;
 * else it drops what was read ahead. Batches that are held stay valid. Blocks: until reads and decodes under
 * way are done. */
int penstock_loader_set_epoch(struct penstock_loader *loader, uint64_t epoch, struct penstock_error *error);

/* How many samples and batches this rank's epoch has. Known where every shard of the rank has an index that
 * is up to date; -ENODATA: one has not, the text names it and says what to do. Samples count with the bad
 * ones. Which shards a rank reads changes with the epoch where world > 1. Blocks: on reading the heads of the
 * indexes, at the first call. */
int penstock_loader_length(struct penstock_loader *loader, uint64_t epoch, uint64_t *ret_samples,
        uint64_t *ret_batches, struct penstock_error *error);

/* Writes where the loader stands, behind the last batch that penstock_loader_next() gave (batches that were
 * read ahead do not count), as bytes for any machine: 152, and 40 a lane of this rank. Returns how many; with
 * `buf` NULL that is all it does. -ENOBUFS: `size` is less. Blocks: never. */
int penstock_loader_state_save(
        struct penstock_loader *loader, void *buf, size_t size, struct penstock_error *error);

/* Goes to where a state was saved: the batches from there on are the same to the byte as without the
 * interruption, whatever threads, depth and memory_budget are. Reads no shard that was used up, and of the
 * others only from the block of samples under way (from its beginning where a shard is a pipe, or has global
 * pax headers). Batches that are held stay valid. -EINVAL: no state, or damaged; -ESTALE: the state is of
 * other shards, options or a library that makes other batches, the text says what differs. The loader is then
 * where it was. Blocks: as penstock_loader_set_epoch(). */
int penstock_loader_state_load(
        struct penstock_loader *loader, const void *state, size_t size, struct penstock_error *error);

/* Stops the threads and frees everything, batches included. NULL is allowed.
 * Blocks: until reads and decodes under way are done. */
void penstock_loader_close(struct penstock_loader *loader);

/* -- Batches ------------------------------------------------------------------------------------------ */

#define PENSTOCK_MAX_DIMS 8

struct penstock_tensor {
	const void *data; /* borrowed from the batch */
	uint32_t dtype;   /* enum penstock_dtype */
	uint32_t ndim;
	uint64_t shape[PENSTOCK_MAX_DIMS]; /* shape[0] is the number of rows; of bytes for a ragged field */
	uint64_t nbytes;
	/* Ragged fields: rows + 1 positions in data; row i is [offsets[i], offsets[i + 1]). Else NULL. */
	const uint64_t *offsets;
	uint64_t reserved[4]; /* 0; room for what a later library tells, as in the structs below */
};

struct penstock_batch_info {
	uint64_t epoch;
	uint64_t index; /* of the batch in its epoch, on this rank */
	uint32_t rows;
	uint32_t bad; /* rows whose sample was bad; padding is not counted */
	uint64_t reserved[4];
};

void penstock_batch_info(const struct penstock_batch *batch, struct penstock_batch_info *ret_info);

/* A field by the name given in the options, or by one of its alternatives. Besides them every batch has:
 *   "__key__"     ragged bytes: the samples' keys
 *   "__valid__"   u8: 1, or 0 for a row that repeats another (a bad sample, padding)
 *   "__shard__"   int64: the shard's place in the list
 *   "__sample__"  int64: the sample's place in its shard
 * -ENOENT: no such field. */
int penstock_batch_field(const struct penstock_batch *batch, const char *name,
        struct penstock_tensor *ret_tensor, struct penstock_error *error);

struct penstock_bad {
	uint32_t row;
	const char *shard; /* borrowed from the batch, as the other texts */
	const char *key;   /* empty where the damage hides it */
	uint64_t offset;   /* in the shard, of the sample */
	const char *reason;
	uint64_t reserved[4];
};

/* The nth bad sample of the batch, n < info.bad. -ENOENT: there are not so many. */
int penstock_batch_bad(const struct penstock_batch *batch, uint32_t n, struct penstock_bad *ret_bad);

/* Gives the batch back to its loader. NULL is allowed. */
void penstock_batch_release(struct penstock_batch *batch);

/* -- Statistics --------------------------------------------------------------------------------------- */

/* Seconds of a stage's threads together: they work, wait for what they need, or wait for room for what they
 * made. */
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
	uint64_t bytes_read; /* from shards, front to back; what is read again is not in it */
	uint64_t reread;     /* samples read a second time, because the window did not fit in the budget */
	double seconds;      /* since the loader was opened */
	struct penstock_stage stages[PENSTOCK_NSTAGES];
};

/* Takes a snapshot. `size` is sizeof(struct penstock_stats). */
int penstock_loader_stats(struct penstock_loader *loader, struct penstock_stats *ret_stats, size_t size,
        struct penstock_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
