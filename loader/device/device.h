/* Devices that hold batches: the host, or a device that batches are copied to, which may also decode and
 * finish images.
 *
 * From the top down; each file uses those below it:
 *
 *   nvjpeg.c, nvjpeg_decode.c        JPEG files decoded by a GPU: rows, engine trial; choice of decoder
 *   nvjpeg_library.c                 finding and opening nvJPEG's library
 *   cuda.c                           NVIDIA GPUs: memory, mirrors, fields that GPUs make
 *   kernels/                         loading and launching kernels; opening the driver
 *   device.c                         devices by name; the host as a device
 *   host.c                           host memory
 *
 * Ownership, threads, locks, errors, blocking: as each section says. */
#ifndef PS_DEVICE_DEVICE_H
#define PS_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "base/error.h"
#include "image/image.h"
#include "image/pixel/pixel.h"

/* Fields that a device makes ----------------------------------------------------------------------------- */

/* Image fields that the device finishes. The slot has planes of bytes and a table of each image's
 * operations. After the copy, kernels compute the batch's elements from them, in separate memory of the
 * mirror.
 *
 *   slot's copy: u8 planes, ops ─▶ affine ─▶ colours ─▶ blur ─▶ noise ─▶ erase ─▶ mix, normalise, lay out
 *                                  └───── for images that have it; launched ─┘         │
 *                                         only if an image has it                      └─▶ mirror's `made`
 *
 * The elements are bit for bit those that the CPU computes.
 *
 * Threads: any.   Blocks: never.   Errors: of the driver. */

#define PS_MAKE_NO_OPS SIZE_MAX

struct ps_nvjpeg_rows;

struct ps_make {
	/* images that are moved into the planes first (ps_nvjpeg_place()); NULL: none */
	struct ps_nvjpeg_rows *decoded;
	const uint32_t *sources; /* with `decoded`: the row that each image comes from */
	size_t planes;           /* offset in the slot: three planes of bytes for each image */
	size_t ops;    /* offset in the slot: a struct ps_image_ops for each; PS_MAKE_NO_OPS: no operations */
	size_t to;     /* offset in the mirror's made part */
	uint32_t what; /* the PS_IMAGE_ bits of all images */
	uint32_t nimages, width, height;
	uint32_t nviews; /* images per row */
	enum ps_dtype dtype;
	enum ps_layout layout;
	float scale[3], bias[3]; /* as in image/picture.h, not for PS_U8; both 0: all elements become 0 */
	enum ps_mix_kind mix;
	uint32_t weight;
	uint32_t box[4]; /* x0, y0, x1, y1 */
};

/* Scratch of a field whose images have the bits `what`: first the images that the affine step moves
 * (ps_make_moved_nbytes()), then the values between the blur's passes. */
static inline size_t ps_make_moved_nbytes(uint32_t what, uint64_t nimages, uint32_t width, uint32_t height)
{
	return what & PS_IMAGE_AFFINE ? ((size_t)nimages * 3 * width * height + 255) & ~(size_t)255 : 0;
}

static inline size_t ps_make_scratch_nbytes(uint32_t what, uint64_t nimages, uint32_t width, uint32_t height)
{
	size_t between = what & PS_IMAGE_BLUR ? (size_t)nimages * 3 * width * height * sizeof(int16_t) : 0;

	return ps_make_moved_nbytes(what, nimages, width, height) + between;
}

/* Devices ------------------------------------------------------------------------------------------------ */

/* Memory of batches. A slot (batch/batch.h) is host memory that decoding writes to. On a device with memory
 * of its own each slot has a mirror there, to which the slot is sent: in one copy, or only the needed
 * stretches. Offsets are the same in both.
 *
 *   alloc, mirror_new                            once for each batch of the pipeline
 *   send ──▶ use(stream)... ──▶ leave ──▶ send   for each batch that uses the memory
 *            └─ the slot may be written again once arrived() is 1
 *
 * send() starts the copy and returns. use() makes a stream of the consumer wait for the copy. leave() marks
 * the end of the streams' work on the batch. The next send() waits for that mark on the device: a CPU thread
 * waits only if the mirror must grow.
 *
 * Ownership: a device belongs to the caller that opened it, who must free memory and mirrors before closing
 * it.
 * Threads: any; for one mirror send, leave and mirror_free one at a time, use() concurrently with use().
 * Locks: a mirror's own, then one of the device's.   Errors: 0 or -errno with a text; -ENODEV: no such
 * device; -ENOMEM; -EIO: the device is lost, or refuses.   Blocks: wait until copies have ended; mirror_free,
 * and send if the mirror must grow, also until the streams have left the mirror; the rest only on the driver
 * and the operating system's kernel. */

#define PS_DEVICE_PAGE 4096 /* minimum alignment of alloc() */

struct ps_device {
	const struct ps_device_ops *ops;
	uint32_t ordinal; /* among the devices of its kind */
};

struct ps_mirror {
	struct ps_device *device;
	uint8_t *data; /* the slot's copy, a device address; send() may move it, and `made` */
	size_t nbytes;
	uint8_t *made; /* the fields that the device makes */
};

struct ps_mirror_size {
	size_t slot;    /* initial size of slots; send() makes room for more */
	size_t made;    /* size of the fields that the device makes; fixed */
	size_t scratch; /* scratch needed to make them */
};

struct ps_stretch {
	size_t at, nbytes; /* offset in the slot and in the mirror, and size */
};

/* The parts of a slot that are sent. */
struct ps_sending {
	const void *slot;
	size_t nbytes; /* size that the mirror must have room for; all stretches end below it */
	/* stretches to copy: at least one, none empty, disjoint */
	const struct ps_stretch *stretches;
	uint32_t nstretches;
	uint32_t nmakes; /* fields to be made from the copy */
	const struct ps_make *makes;
};

/* Totals of all copies that have ended. */
struct ps_device_copies {
	uint64_t nbytes; /* bytes copied, without those between stretches */
	double seconds;  /* sum of the copies' times, measured by the device */
};

struct ps_device_ops {
	const char *name;
	uint32_t type; /* DLPack's number of the device type */
	int (*open)(uint32_t ordinal, struct ps_device **ret_device, struct ps_error *err);
	void (*close)(struct ps_device *device);

	/* Host memory that copies may read from, zeroed, aligned to PS_DEVICE_PAGE. NULL on error, with err
	 * filled. */
	void *(*alloc)(struct ps_device *device, size_t nbytes, struct ps_error *err);
	/* Enlarges the memory and keeps its contents; it may move. NULL: error; the memory is unchanged. */
	void *(*resize)(struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes,
	        struct ps_error *err);
	void (*free)(struct ps_device *device, void *p, size_t nbytes);

	/* The functions below are NULL where batches stay in host memory. */

	int (*mirror_new)(struct ps_device *device, const struct ps_mirror_size *size,
	        struct ps_mirror **ret_mirror, struct ps_error *err);
	void (*mirror_free)(struct ps_mirror *mirror); /* NULL is allowed */
	/* Copies the stretches of the slot, then makes the fields; after that the batch has arrived. The
	 * slot must not change until then. Bytes between stretches are undefined in the mirror. */
	int (*send)(struct ps_mirror *mirror, const struct ps_sending *sending, struct ps_error *err);
	/* 1: the last send has ended, or there was none; 0: not yet; -EIO. */
	int (*arrived)(struct ps_mirror *mirror, struct ps_error *err);
	int (*wait)(struct ps_mirror *mirror, struct ps_error *err); /* waits until it has arrived */
	int (*use)(struct ps_mirror *mirror, void *stream, struct ps_error *err);
	int (*leave)(struct ps_mirror *mirror, struct ps_error *err);
	/* The event that the last send records, of the device interface's own type; NULL: none. */
	void *(*event)(struct ps_mirror *mirror);
	void (*copies)(struct ps_device *device, struct ps_device_copies *ret_copies);
	/* Returns NULL if the device makes image fields; else a text with the reason why it cannot. A
	 * device without this function makes none. */
	const char *(*cannot_make)(struct ps_device *device);
};

/* Whether a name denotes a device (cpu, cuda, cuda:1), present or not. */
bool ps_device_is_named(const char *name);

/* Opens a device by its name: "cpu" (also NULL), "cuda", "cuda:N". */
int ps_device_open(const char *name, struct ps_device **ret_device, struct ps_error *err) PS_MUST_USE;
void ps_device_close(struct ps_device *device); /* NULL is allowed */

/* The device for host memory; it need not be closed. */
struct ps_device *ps_device_host(void);

extern const struct ps_device_ops ps_device_cuda;

/* Host memory -------------------------------------------------------------------------------------------- */

/* Plain host memory, zeroed, in whole pages. The slots of all devices are made of it.
 *
 * Threads: any.   Errors: NULL: out of memory.   Blocks: on the operating system only. */

void ps_host_free(void *p, size_t nbytes);

/* alloc, free and resize of devices whose slots are not page-locked. ps_host_slot_copy() is the resize of devices
 * whose memory cannot be resized in place: it copies to new memory of the device's alloc. */
void *ps_host_slot_alloc(struct ps_device *device, size_t nbytes, struct ps_error *err);
void ps_host_slot_free(struct ps_device *device, void *p, size_t nbytes);
void *ps_host_slot_resize(
        struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes, struct ps_error *err);
void *ps_host_slot_copy(
        struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes, struct ps_error *err);

/* Asks that untouched pages are allocated on a NUMA node. Best effort: no error is reported. */
void ps_host_prefer_node(void *p, size_t nbytes, int node);

/* JPEG files decoded by a GPU ---------------------------------------------------------------------------- */

/* JPEG files decoded, cropped and resized by a GPU, into planes of bytes on the device, by the geometry of
 * ps_image_sketch() and the arithmetic of image/picture.h. Only the decoder's pixels differ from
 * libjpeg-turbo's.
 *
 *   worker, a row at a time:
 *      ps_nvjpeg_take() ──┬─▶ the engine can: file is kept ────┐
 *                         ├─▶ hybrid: Huffman codes here, the rest on the worker's stream ──▶ planes of rows
 *                         └─▶ neither: the caller decodes      │                                     ▲
 *   once all rows were offered:                                ▼                                     │
 *      ps_nvjpeg_submit() ────────────────────────▶ one batched decode and one resize ───────────────┘
 *   after the batch's copy:
 *      ps_nvjpeg_place() ──▶ from the planes to the rows' places in the batch
 *
 * Which decoder takes a file depends on the file, the crop, the library and the GPU, never on timing.
 *
 * Ownership: rows and workers must be freed before their ps_nvjpeg, and the ps_nvjpeg before its device.
 * Threads: ps_nvjpeg_take() any, each with its own worker and row; the others one at a time for the same
 * rows.
 * Locks: its own; one of them is held while work is given to the engine.   Errors: -EIO: the device is lost,
 * or refuses; -ENOMEM.
 * Blocks: ps_nvjpeg_new(); ps_nvjpeg_take() while it decodes Huffman codes and, rarely, on an earlier
 * transfer; ps_nvjpeg_submit() while the library parses, and until the engine has finished the third batch
 * before this one. Memory is allocated on creation, and rarely later: for larger images, and for unusually
 * long files. */

struct ps_nvjpeg;
struct ps_nvjpeg_worker;
struct ps_nvjpeg_rows;

/* A decoder for a CUDA device with kernels. -ENODEV: no library starts on it; the text says what to do.
 * `most_rows`: the largest batch; `most_workers`: the largest number of workers. *ret_refused, which is also
 * set on failure, lists the libraries that were not used, with reasons (nvjpeg_library.h), and reports an
 * engine that does not decode. */
int ps_nvjpeg_new(struct ps_device *device, uint32_t most_rows, uint32_t most_workers,
        struct ps_nvjpeg **ret_nvjpeg, struct ps_error *ret_refused, struct ps_error *err) PS_MUST_USE;
void ps_nvjpeg_free(struct ps_nvjpeg *nvjpeg); /* NULL is allowed */

/* A fingerprint of library and engines: if it differs, pixels may differ. */
uint64_t ps_nvjpeg_print(const struct ps_nvjpeg *nvjpeg);

/* The path of the library. Never freed. */
const char *ps_nvjpeg_path(const struct ps_nvjpeg *nvjpeg);

struct ps_nvjpeg_stats {
	/* images decoded by the engine and by hybrid; images that the engine refused */
	uint64_t hardware, hybrid, refused;
	uint64_t timed; /* images of `hardware` whose time ... */
	double seconds; /* ... on the GPU is known */
};
void ps_nvjpeg_stats(struct ps_nvjpeg *nvjpeg, struct ps_nvjpeg_stats *ret_stats);

int ps_nvjpeg_worker_new(
        struct ps_nvjpeg *nvjpeg, struct ps_nvjpeg_worker **ret_worker, struct ps_error *err) PS_MUST_USE;
void ps_nvjpeg_worker_free(struct ps_nvjpeg_worker *worker); /* NULL is allowed */

/* Memory for n rows, each with one image of width x height. */
int ps_nvjpeg_rows_new(struct ps_nvjpeg *nvjpeg, uint32_t n, uint32_t width, uint32_t height,
        struct ps_nvjpeg_rows **ret_rows, struct ps_error *err) PS_MUST_USE;
void ps_nvjpeg_rows_free(struct ps_nvjpeg_rows *rows); /* NULL is allowed */

/* 1: the GPU decodes the row's image, and `data` is no longer needed; 0: the caller must decode it. */
int ps_nvjpeg_take(struct ps_nvjpeg_worker *worker, struct ps_nvjpeg_rows *rows, uint32_t row,
        const void *data, size_t nbytes, const struct ps_image_outline *outline,
        struct ps_error *err) PS_MUST_USE;

/* After all rows were offered: gives the kept files to the engine. Images that it refuses now must be
 * decoded by the caller; ps_nvjpeg_refused() lists them. */
int ps_nvjpeg_submit(struct ps_nvjpeg_rows *rows, struct ps_error *err) PS_MUST_USE;
bool ps_nvjpeg_refused(
        const struct ps_nvjpeg_rows *rows, uint32_t row, const uint8_t **ret_data, size_t *ret_nbytes);

/* True if the GPU decodes the row's image. Does not change after ps_nvjpeg_submit(). */
bool ps_nvjpeg_has(const struct ps_nvjpeg_rows *rows, uint32_t row);

/* Drops the rows, also those that were not placed; waits for the GPU's work on those. */
void ps_nvjpeg_rows_clear(struct ps_nvjpeg_rows *rows);

#endif
