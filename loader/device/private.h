/* Private to this folder: what the files of the CUDA device and of its JPEG decoder share. */
#ifndef PS_DEVICE_PRIVATE_H
#define PS_DEVICE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"
#include "device/kernels/kernels.h"
#include "device/nvjpeg_library.h"

/* The CUDA device ---------------------------------------------------------------------------------------- */

/* Locks: a mirror's, then one of the device's; both are leaves to all other code. */

struct ps_cuda_device {
	struct ps_device base;
	const struct ps_cuda_driver *cu;
	ps_cu_device device;
	ps_cu_context context;
	ps_cu_stream stream; /* of copies, and of the kernels after them */
	int node;            /* -1: not known */
	struct ps_kernels kernels;
	bool has_kernels;
	struct ps_load_error no_kernels; /* why not */
	ps_cu_pointer scratch;           /* of kernels: one batch at a time, as the stream orders them; ... */
	size_t scratch_nbytes;           /* ... as large as the mirror that needs most */
	pthread_mutex_t lock;            /* the order of what is given to the stream */
	pthread_mutex_t copies_lock;     /* never held over a call of the driver's: a consumer takes it */
	struct ps_device_copies copies;
};

static inline struct ps_cuda_device *ps_cuda_of(struct ps_device *d)
{
	return PS_CONTAINER_OF(d, struct ps_cuda_device, base);
}

static inline int PS_MUST_USE ps_cuda_enter(struct ps_cuda_device *d, struct ps_load_error *err)
{
	return ps_cuda_context_enter(d->cu, d->context, err);
}

static inline void ps_cuda_leave(struct ps_cuda_device *d)
{
	ps_cuda_context_leave(d->cu);
}

/* The device's functions for mirrors, as device.h has them. */
int ps_cuda_mirror_new(struct ps_device *device, const struct ps_mirror_size *size,
        struct ps_mirror **ret_mirror, struct ps_load_error *err);
void ps_cuda_mirror_free(struct ps_mirror *mirror);
int ps_cuda_send(struct ps_mirror *mirror, const struct ps_sending *sending, struct ps_load_error *err);
int ps_cuda_arrived(struct ps_mirror *mirror, struct ps_load_error *err);
int ps_cuda_wait(struct ps_mirror *mirror, struct ps_load_error *err);
int ps_cuda_use(struct ps_mirror *mirror, void *stream, struct ps_load_error *err);
int ps_cuda_unuse(struct ps_mirror *mirror, struct ps_load_error *err); /* leave() */
void *ps_cuda_event(struct ps_mirror *mirror);

struct ps_nvjpeg_rows;

/* Makes `stream` put the images where `planes` has image i, for each i of n whose row sources[i] the GPU
 * decodes; the device's context is entered. */
ps_cu_result ps_nvjpeg_place(struct ps_nvjpeg_rows *rows, const uint32_t *sources, uint32_t n,
        uint8_t *planes, ps_cu_stream stream) PS_MUST_USE;

/* Making fields ------------------------------------------------------------------------------------------ */

/* Fields made on an NVIDIA GPU: which kernels a field takes. The context is entered.
 *
 * Threads: those of a stream one at a time: they share its scratch.   Errors: of the driver.   Blocks: never.
 */

/* Addresses of the device's. */
struct ps_make_places {
	uint8_t *slot, *made, *scratch;
};

/* Gives the kernels of one field to the stream, after what it has. */
ps_cu_result ps_make_launch(const struct ps_kernels *kernels, const struct ps_make *make,
        const struct ps_make_places *places, ps_cu_stream stream) PS_MUST_USE;

/* JPEG decoders ------------------------------------------------------------------------------------------ */

/* What nvjpeg.c (made and freed; the memory of a batch's rows; the trial) and nvjpeg_decode.c (which
 * decoder, and how) share. */

#define PS_NVJ_IMAGE_MAX (256UL << 20)   /* bytes of pixels; larger images are the processor's */
#define PS_NVJ_SCRATCH (64UL << 20)      /* of a turn of the engine's: its pixels, at first ... */
#define PS_NVJ_SCRATCH_MAX (256UL << 20) /* ... and at most: batches with more are decoded in parts */
#define PS_NVJ_FILES (128UL << 10)       /* of a row's file, where memory for files is taken */
#define PS_NVJ_PITCH 64u                 /* rows of pixels begin at multiples of this */
#define PS_NVJ_TURNS 2u
#define PS_NVJ_ENGINE_TURNS 3u /* so that the thread that submits a batch seldom waits */

/* Device memory for pixels. */
struct ps_nvj_scratch {
	ps_cu_pointer p;
	size_t nbytes;
};

/* What the engine decodes with, and to. It begins with a batch when it is given one, whatever its stream has
 * to do before, and so do nvJPEG's own copies: only a wait on the processor comes before it. So these are
 * taken in turn, and once `read` is over. */
struct ps_nvj_turn {
	ps_nvj_state state; /* of batched decodes */
	struct ps_nvj_scratch scratch;
	ps_cu_event read; /* after what reads the scratch */
};

struct ps_nvjpeg {
	struct ps_device *device;
	struct ps_cuda_device *cuda; /* the same */
	const struct ps_nvjpeg_library *lib;
	ps_nvj_handle handle;
	bool hardware; /* the handle's batched decode is the engine's, and it decodes */
	ps_nvj_decoder hybrid;
	unsigned flags;

	_Atomic uint64_t nhybrid; /* relaxed: a count */

	pthread_mutex_t lock; /* the rest */
	ps_cu_stream stream;
	struct ps_nvj_turn turns[PS_NVJ_ENGINE_TURNS];
	uint32_t turn;
	uint32_t most_rows;
	const unsigned char **files; /* arguments of a batched decode: most_rows each */
	size_t *lengths;
	ps_nvj_image *images;
	ps_cu_event begin, end; /* of the decode whose time is measured: */
	uint64_t timing;        /* its images; 0: none is */
	struct ps_nvjpeg_stats stats;

	pthread_mutex_t workers_lock; /* a leaf, never held while the library parses */
	struct ps_nvjpeg_worker **workers;
	uint32_t nworkers, most_workers;
};

struct ps_nvjpeg_worker {
	struct ps_nvjpeg *n;
	ps_nvj_params params;
	ps_nvj_state state;
	ps_nvj_buffer buffer;
	/* An image is parsed and its Huffman codes are decoded to these while the GPU still reads the
	 * other's. */
	ps_nvj_stream files[PS_NVJ_TURNS];
	ps_nvj_pinned pinned[PS_NVJ_TURNS];
	uint32_t turn;
	ps_cu_stream stream;
	ps_cu_event last; /* after all that the stream was given */
	struct ps_nvj_scratch scratch;
};

enum ps_nvj_who {
	PS_NVJ_NOBODY, /* the processor */
	PS_NVJ_ENGINE,
	PS_NVJ_HYBRID,
	PS_NVJ_REFUSED, /* the engine did not want it after all */
};

struct ps_nvj_entry {
	enum ps_nvj_who who;
	const uint8_t *data; /* ENGINE, REFUSED: the file, in `files` */
	size_t nbytes;
	uint32_t width, height; /* of the whole image */
	struct ps_region region;
	size_t sheet; /* where its struct ps_tile_image stands, weights after it */
};

/* Memory for files, page-locked. */
struct ps_nvj_files {
	struct ps_nvj_files *next;
	uint8_t *p;
	size_t nbytes, used;
};

/* The sheet: page-locked memory with a mirror on the device. Images of the engine's decode, moves, then of
 * each row that was taken its image (for a resize of its own) and weights. */
struct ps_nvjpeg_rows {
	struct ps_nvjpeg *n;
	uint32_t nrows, width, height;
	size_t image_nbytes;  /* of a result */
	ps_cu_pointer planes; /* results, by row */
	uint8_t *sheet;
	ps_cu_pointer device_sheet;
	size_t sheet_nbytes, moves, pieces; /* where moves and pieces begin */
	_Atomic size_t used;                /* of the sheet */
	struct ps_nvj_entry *entries;
	_Atomic bool hybrid; /* some row is */
	bool engine;         /* submitted: some row is; `decoded` was recorded */
	ps_cu_event decoded;
	pthread_mutex_t lock; /* files */
	struct ps_nvj_files *files;
};

/* -ENOMEM or -EIO with the library's words. */
int ps_nvj_error(ps_nvj_status status, struct ps_load_error *err, const char *what);

/* At least nbytes; what it held is lost, when the stream's work is over. The context is entered. */
ps_cu_result ps_nvj_scratch_reserve(
        struct ps_nvjpeg *n, struct ps_nvj_scratch *scratch, size_t nbytes, ps_cu_stream stream);

/* Decodes a small picture with the engine and waits for it: what *ret_broken says then is why it cannot be
 * used, "" if it can. -EIO: the device is lost. The context is entered; the turns are there. */
int ps_nvj_engine_try(struct ps_nvjpeg *n, struct ps_load_error *ret_broken, struct ps_load_error *err);

/* Copies a file to memory that stays until the rows are cleared; NULL: there is none. */
const uint8_t *ps_nvj_file_keep(struct ps_nvjpeg_rows *rows, const void *data, size_t nbytes);

/* Writes the row's image and weights to the sheet. False: no place, or weights that kernels do not take: a
 * function of the outline alone. */
bool ps_nvj_sheet_add(struct ps_nvjpeg_rows *rows, uint32_t row, const struct ps_image_outline *outline,
        size_t *ret_nbytes);

/* Makes the stream wait for all that workers gave to theirs. */
ps_cu_result ps_nvj_wait_workers(struct ps_nvjpeg *n, ps_cu_stream stream);

#endif
