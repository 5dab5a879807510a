/* Private to this folder: data and functions shared by the files of the CUDA device and its JPEG decoder. */
#ifndef PS_DEVICE_PRIVATE_H
#define PS_DEVICE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"
#include "device/kernels/kernels.h"
#include "device/nvjpeg_library.h"

/* The CUDA device ---------------------------------------------------------------------------------------- */

/* Lock order: a mirror's lock, then one of the device's, then the workers' lock of a ps_nvjpeg. */

struct ps_cuda_device {
	struct ps_device base;
	const struct ps_cuda_driver *cu;
	ps_cu_device device;
	ps_cu_context context;
	ps_cu_stream stream; /* for copies, and for the kernels after them */
	int node;            /* -1: not known */
	struct ps_kernels kernels;
	bool has_kernels;
	struct ps_error no_kernels; /* reason if has_kernels is false */
	/* for kernels: used by one batch at a time, in the stream's order; ... */
	ps_cu_pointer scratch;
	size_t scratch_nbytes; /* ... as large as the largest need of any mirror */
	pthread_mutex_t lock;  /* orders the work given to the stream */
	/* guards `copies`; never held over a driver call, since consumers take it */
	pthread_mutex_t copies_lock;
	struct ps_device_copies copies;
};

static inline struct ps_cuda_device *ps_cuda_of(struct ps_device *d)
{
	return PS_CONTAINER_OF(d, struct ps_cuda_device, base);
}

static inline int PS_MUST_USE ps_cuda_enter(struct ps_cuda_device *d, struct ps_error *err)
{
	return ps_cuda_context_enter(d->cu, d->context, err);
}

static inline void ps_cuda_leave(struct ps_cuda_device *d)
{
	ps_cuda_context_leave(d->cu);
}

struct ps_nvjpeg_rows;

/* Makes `stream` copy the decoded image of row sources[i] to image i of `planes`, for each i < n whose row
 * the GPU decodes. The device's context must be entered. */
ps_cu_result ps_nvjpeg_place(struct ps_nvjpeg_rows *rows, const uint32_t *sources, uint32_t n,
        uint8_t *planes, ps_cu_stream stream) PS_MUST_USE;

/* Making fields ------------------------------------------------------------------------------------------ */

/* Launches the kernels that make a field on an NVIDIA GPU. The context must be entered.
 *
 * Threads: calls for one stream must not overlap, as they share its scratch.   Errors: of the driver.
 * Blocks: never. */

/* Device addresses. */
struct ps_make_places {
	uint8_t *slot, *made, *scratch;
};

/* Launches the kernels of one field on the stream. */
ps_cu_result ps_make_launch(const struct ps_kernels *kernels, const struct ps_make *make,
        const struct ps_make_places *places, ps_cu_stream stream) PS_MUST_USE;

/* JPEG decoders ------------------------------------------------------------------------------------------ */

/* Shared by nvjpeg.c (creation, destruction; the memory of a batch's rows; the trial) and nvjpeg_decode.c
 * (choice of the decoder; decoding). */

#define PS_NVJ_IMAGE_MAX (256UL << 20)   /* bytes of pixels; larger images are decoded by the CPU */
#define PS_NVJ_SCRATCH (64UL << 20)      /* bytes of pixels of a turn of the engine, initially ... */
#define PS_NVJ_SCRATCH_MAX (256UL << 20) /* ... and at most; larger batches are decoded in parts */
#define PS_NVJ_FILES (128UL << 10)       /* least bytes per row of an allocation for files */
#define PS_NVJ_PITCH 64u                 /* rows of pixels begin at multiples of this */
#define PS_NVJ_TURNS 2u
#define PS_NVJ_ENGINE_TURNS 3u /* so that the submitting thread rarely waits */

/* Device memory for pixels. */
struct ps_nvj_scratch {
	ps_cu_pointer p;
	size_t nbytes;
};

/* State and destination of one decode of the engine. The engine, and nvJPEG's own copies, begin at once
 * when they are given a batch, without regard to earlier work of the stream; only a wait on the CPU can
 * delay them. So turns are used in rotation, each only after its event `read` has happened. */
struct ps_nvj_turn {
	ps_nvj_state state; /* for batched decodes */
	struct ps_nvj_scratch scratch;
	ps_cu_event read; /* recorded after the work that reads the scratch */
};

struct ps_nvjpeg {
	struct ps_device *device;
	struct ps_cuda_device *cuda; /* `device`, as a CUDA device */
	const struct ps_nvjpeg_library *lib;
	ps_nvj_handle handle;
	bool hardware; /* the handle's batched decode uses the engine, and the engine works */
	ps_nvj_decoder hybrid;
	unsigned flags;

	_Atomic uint64_t nhybrid; /* relaxed atomic: a counter */

	pthread_mutex_t lock; /* guards all below, except the workers */
	ps_cu_stream stream;
	struct ps_nvj_turn turns[PS_NVJ_ENGINE_TURNS];
	uint32_t turn;
	uint32_t most_rows;
	const unsigned char **files; /* arguments of a batched decode: most_rows each */
	size_t *lengths;
	ps_nvj_image *images;
	ps_cu_event begin, end; /* events of the decode that is being timed */
	uint64_t timing;        /* images of that decode; 0: none is timed */
	struct ps_nvjpeg_stats stats;

	pthread_mutex_t workers_lock; /* guards the workers; a leaf, never held while the library parses */
	struct ps_nvjpeg_worker **workers;
	uint32_t nworkers, most_workers;
};

struct ps_nvjpeg_worker {
	struct ps_nvjpeg *n;
	ps_nvj_params params;
	ps_nvj_state state;
	ps_nvj_buffer buffer;
	/* Two of each: an image is parsed and its Huffman codes are decoded into one while the GPU still
	 * reads the other. */
	ps_nvj_stream files[PS_NVJ_TURNS];
	ps_nvj_pinned pinned[PS_NVJ_TURNS];
	uint32_t turn;
	ps_cu_stream stream;
	ps_cu_event last; /* recorded after all work of the stream */
	struct ps_nvj_scratch scratch;
};

enum ps_nvj_who {
	PS_NVJ_NOBODY, /* no GPU decoder: the CPU decodes the row */
	PS_NVJ_ENGINE,
	PS_NVJ_HYBRID,
	PS_NVJ_REFUSED, /* refused by the engine when submitted */
};

struct ps_nvj_entry {
	enum ps_nvj_who who;
	const uint8_t *data; /* ENGINE, REFUSED: the file, in `files` */
	size_t nbytes;
	uint32_t width, height; /* size of the whole image */
	struct ps_region region;
	size_t sheet; /* offset of its piece in the sheet */
};

/* Memory for files, page-locked. */
struct ps_nvj_files {
	struct ps_nvj_files *next;
	uint8_t *p;
	size_t nbytes, used;
};

/* Rows of a batch. Their sheet is page-locked memory with a copy on the device. It has three parts:
 *
 *   a struct ps_tile_image for each image that the engine decodes
 *   a struct ps_move for each row that ps_nvjpeg_place() copies
 *   the pieces: for each row that was taken its own struct ps_tile_image, then the weights
 *
 * Hybrid decoding resizes each row by its piece; the engine's images are resized together, by the first
 * part. */
struct ps_nvjpeg_rows {
	struct ps_nvjpeg *n;
	uint32_t nrows, width, height;
	size_t image_nbytes;  /* bytes of a result */
	ps_cu_pointer planes; /* results, by row */
	uint8_t *sheet;
	ps_cu_pointer device_sheet;
	size_t sheet_nbytes, moves, pieces; /* `moves`, `pieces`: offsets where they begin */
	_Atomic size_t used;                /* used bytes of the sheet */
	struct ps_nvj_entry *entries;
	_Atomic bool hybrid; /* a row is decoded by hybrid */
	bool engine;         /* after submit: a row is decoded by the engine, and `decoded` was recorded */
	ps_cu_event decoded;
	pthread_mutex_t lock; /* guards `files` */
	struct ps_nvj_files *files;
};

/* Converts a status to -ENOMEM or -EIO, with the status's meaning and number in the text. */
int ps_nvj_error(ps_nvj_status status, struct ps_error *err, const char *what);

/* Makes the scratch at least nbytes long. If it must grow, waits for the stream's work first, and drops the
 * contents. The context must be entered. */
ps_cu_result ps_nvj_scratch_reserve(
        struct ps_nvjpeg *n, struct ps_nvj_scratch *scratch, size_t nbytes, ps_cu_stream stream);

/* Copies a file to memory that is kept until the rows are cleared; NULL: out of memory. */
const uint8_t *ps_nvj_file_keep(struct ps_nvjpeg_rows *rows, const void *data, size_t nbytes);

/* Writes the row's piece to the sheet. False: the outline's output has another size than the rows, or more
 * weights than the kernels support. The result depends on the outline alone. */
bool ps_nvj_sheet_add(struct ps_nvjpeg_rows *rows, uint32_t row, const struct ps_image_outline *outline,
        size_t *ret_nbytes);

/* Makes the stream wait for all work of the workers' streams. */
ps_cu_result ps_nvj_wait_workers(struct ps_nvjpeg *n, ps_cu_stream stream);

#endif
