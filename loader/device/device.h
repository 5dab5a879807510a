/* Where batches are: in host memory, or on a device that they are sent to, which may decode and finish
 * images.
 *
 * From the top down; each file uses those below it:
 *
 *   nvjpeg.c, nvjpeg_decode.c        JPEG files decoded by a GPU: rows and trial; which decoder, and how
 *   nvjpeg_library.c                 the library, looked for and opened
 *   cuda.c                           an NVIDIA GPU: memory, mirrors, fields made there
 *   kernels/                         the kernels, loaded and launched; the driver, opened
 *   device.c                         devices by name; the host as one
 *   fake.c                           a device for tests
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

/* Fields of images that the device finishes. The slot has planes of bytes and a table of each image's random
 * draws. After the copy kernels make the batch's elements of them, in memory of the mirror's own.
 *
 *   slot's copy: u8 planes, ops ─▶ affine ─▶ colours ─▶ blur ─▶ noise ─▶ erase ─▶ mix, normalise, lay out ─▶ mirror's
 * `made` └─ images that have it, and kernels only where an image has it ─┘
 *
 * The elements are bit for bit those of the processor.
 *
 * Threads: any.   Blocks: never.   Errors: of the driver. */

#define PS_MAKE_NO_OPS SIZE_MAX

struct ps_nvjpeg_rows;

struct ps_make {
	/* images that are put among the planes first (ps_nvjpeg_place()); NULL: none */
	struct ps_nvjpeg_rows *decoded;
	const uint32_t *sources; /* with it: the row that each image comes from */
	size_t planes;           /* in the slot: three planes of bytes an image */
	size_t ops;    /* in the slot: struct ps_image_ops of each; PS_MAKE_NO_OPS: nothing is done to any */
	size_t to;     /* in the mirror's made part */
	uint32_t what; /* the PS_IMAGE_ bits of all images */
	uint32_t nimages, width, height;
	uint32_t nviews; /* images of a row */
	enum ps_dtype dtype;
	enum ps_layout layout;
	float scale[3], bias[3]; /* as image/picture.h has them; 0: all elements are 0 */
	enum ps_mix_kind mix;
	uint32_t weight;
	uint32_t box[4]; /* x0, y0, x1, y1 */
};

/* Scratch of a field whose images have those bits: first memory for images that the affine step moves, then
 * for the values between the blur's passes. */
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

/* Memory of batches. A slot (batch/batch.h) is host memory that decoding writes to; on a device with memory
 * of its own each slot has a mirror there, to which the slot is sent: in one copy, or the stretches of it
 * that are needed. The same places hold in both.
 *
 *   alloc, mirror_new                            once a batch of the pipeline
 *   send ──▶ use(stream)... ──▶ leave ──▶ send   of each batch that uses the memory
 *            └─ the slot may be written again once arrived() says so
 *
 * send() starts the copy and returns. use() makes a stream of the consumer wait for the copy. leave() marks
 * the end of the streams' work on the batch, and the next send() waits for that mark on the device: no thread
 * of the processor waits.
 *
 * Ownership: a device belongs to its opener, which frees memory and mirrors before.
 * Threads: any; one mirror: send, leave and mirror_free one at a time, use beside use.   Locks: a mirror's
 * own, a leaf.   Errors: 0 or -errno with a text; -ENODEV: there is no such device; -ENOMEM; -EIO: it is
 * lost, or refuses.   Blocks: wait and mirror_free until copies are over; the rest on driver and kernel
 * only. */

#define PS_DEVICE_PAGE 4096 /* what alloc aligns to, at least */

struct ps_device {
	const struct ps_device_ops *ops;
	uint32_t ordinal; /* among the devices of its kind */
};

struct ps_mirror {
	struct ps_device *device;
	uint8_t *data; /* of the slot's copy: an address of the device's; send() may move it, and `made` */
	size_t nbytes;
	uint8_t *made; /* of the fields that the device makes */
};

struct ps_mirror_size {
	size_t slot;    /* what slots have at first; more is made room for when it is sent */
	size_t made;    /* of the fields that the device makes; fixed */
	size_t scratch; /* that making them needs */
};

struct ps_stretch {
	size_t at, nbytes; /* in the slot, and in the mirror */
};

/* What is sent of a slot. */
struct ps_sending {
	const void *slot;
	size_t nbytes; /* that the mirror is to have room for: stretches end before */
	/* to be copied: at least one, none empty, apart from each other */
	const struct ps_stretch *stretches;
	uint32_t nstretches;
	uint32_t nmakes; /* fields to be made of the copy */
	const struct ps_make *makes;
};

/* Of all copies that are over. */
struct ps_device_copies {
	uint64_t nbytes; /* that went over, not those between stretches */
	double seconds;  /* as the device measured, one copy after the other */
};

struct ps_device_ops {
	const char *name;
	uint32_t type; /* as DLPack numbers them */
	int (*open)(uint32_t ordinal, struct ps_device **ret_device, struct ps_load_error *err);
	void (*close)(struct ps_device *device);

	/* Host memory that copies may come from, zeroed, aligned to PS_DEVICE_PAGE. NULL with err. */
	void *(*alloc)(struct ps_device *device, size_t nbytes, struct ps_load_error *err);
	/* Makes it longer, keeping what it holds; it may move. NULL: it is as it was. */
	void *(*resize)(struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes,
	        struct ps_load_error *err);
	void (*free)(struct ps_device *device, void *p, size_t nbytes);

	/* From here on NULL where batches stay in host memory. */

	int (*mirror_new)(struct ps_device *device, const struct ps_mirror_size *size,
	        struct ps_mirror **ret_mirror, struct ps_load_error *err);
	void (*mirror_free)(struct ps_mirror *mirror); /* NULL is allowed */
	/* Copies the stretches of the slot, which must stay as it is until it has arrived, and makes what is
	 * to be made of the copy: then it has arrived. What is between stretches has any value there. */
	int (*send)(struct ps_mirror *mirror, const struct ps_sending *sending, struct ps_load_error *err);
	/* 1: the last send is over, or there was none; 0: not yet; -EIO. */
	int (*arrived)(struct ps_mirror *mirror, struct ps_load_error *err);
	int (*wait)(struct ps_mirror *mirror, struct ps_load_error *err); /* until it has */
	int (*use)(struct ps_mirror *mirror, void *stream, struct ps_load_error *err);
	int (*leave)(struct ps_mirror *mirror, struct ps_load_error *err);
	/* The event that the last send records, as the device's interface has it; NULL: none. */
	void *(*event)(struct ps_mirror *mirror);
	void (*copies)(struct ps_device *device, struct ps_device_copies *ret_copies);
	/* NULL: it makes fields of images; else the reason why not, a text. The function may be NULL:
	 * it cannot. */
	const char *(*cannot_make)(struct ps_device *device);
};

/* Whether the name is that of a kind of device, present or not: cpu, cuda, cuda:1. */
bool ps_device_is_named(const char *name);

/* "cpu" (NULL means it too), "cuda", "cuda:N". */
int ps_device_open(const char *name, struct ps_device **ret_device, struct ps_load_error *err) PS_MUST_USE;
void ps_device_close(struct ps_device *device); /* NULL is allowed */

/* The device whose memory is the host's; needs no closing. */
struct ps_device *ps_device_host(void);

extern const struct ps_device_ops ps_device_cuda, ps_device_fake;

/* Host memory -------------------------------------------------------------------------------------------- */

/* Plain host memory, zeroed, in whole pages: what slots of every device are made of.
 *
 * Threads: any.   Errors: NULL: no memory.   Blocks: on the kernel only. */

void *ps_host_alloc(size_t nbytes);
/* Keeps what it holds, and may move; NULL: it is as it was. */
void *ps_host_resize(void *p, size_t old_nbytes, size_t new_nbytes);
void ps_host_free(void *p, size_t nbytes);

/* alloc and free of devices without memory of their own, and resize of those whose memory cannot move: to
 * other memory of the device's alloc. */
void *ps_host_slot_alloc(struct ps_device *device, size_t nbytes, struct ps_load_error *err);
void ps_host_slot_free(struct ps_device *device, void *p, size_t nbytes);
void *ps_host_slot_copy(
        struct ps_device *device, void *p, size_t old_nbytes, size_t new_nbytes, struct ps_load_error *err);

/* Asks that untouched pages come from that NUMA node. A wish: there is no error. */
void ps_host_prefer_node(void *p, size_t nbytes, int node);

/* JPEG files decoded by a GPU ---------------------------------------------------------------------------- */

/* JPEG files decoded by a GPU, cropped and resized there: what ps_image_sketch() drew becomes planes of
 * bytes on the device, in the arithmetic of image/picture.h. Only the decoder's pixels differ from
 * libjpeg-turbo's.
 *
 *   worker, a row at a time:
 *      ps_nvjpeg_take() ──┬─▶ the engine can: bytes are kept ──┐
 *                         ├─▶ hybrid: Huffman codes here, the rest on the worker's stream ──▶ planes of the rows
 *                         └─▶ neither: the caller decodes      │                                         ▲
 *   once all rows are there:                                   ▼                                         │
 *      ps_nvjpeg_submit() ────────────────────────▶ one batched decode and one resize ───────────────────┘
 *   after the batch's copy:
 *      ps_nvjpeg_place() ──▶ from the planes to the rows' places in the batch
 *
 * Which decoder takes a file depends on the file, the crop, the library and the GPU: never on time.
 *
 * Ownership: rows and workers are freed before their ps_nvjpeg, and that before its device.
 * Threads: take: any, each with its own worker and row; the others: one at a time for the same rows.
 * Locks: one, a leaf, over what is given to the engine.   Errors: -EIO: the device is lost, or refuses;
 * -ENOMEM. Blocks: new; take on Huffman codes and, rarely, on an earlier transfer; submit on the library's
 * parsing, and until the engine is through with the third batch before. Memory is taken at the beginning, and
 * rarely later: for larger images, and for files that are longer than most. */

struct ps_nvjpeg;
struct ps_nvjpeg_worker;
struct ps_nvjpeg_rows;

/* Of a CUDA device with kernels. -ENODEV: no library that starts there; the text says what to do.
 * `most_rows`: of any batch. *ret_refused gets a text of libraries that were not taken and why
 * (nvjpeg_library.h), also where none was, and of an engine that does not decode. */
int ps_nvjpeg_new(struct ps_device *device, uint32_t most_rows, uint32_t most_workers,
        struct ps_nvjpeg **ret_nvjpeg, struct ps_load_error *ret_refused,
        struct ps_load_error *err) PS_MUST_USE;
void ps_nvjpeg_free(struct ps_nvjpeg *nvjpeg); /* NULL is allowed */

/* A number for library and engines: where it differs, pixels may differ. */
uint64_t ps_nvjpeg_print(const struct ps_nvjpeg *nvjpeg);

/* The library's file. Valid for ever. */
const char *ps_nvjpeg_path(const struct ps_nvjpeg *nvjpeg);

struct ps_nvjpeg_stats {
	uint64_t hardware, hybrid, refused; /* images: decoded so, and those that the engine refused */
	uint64_t timed;                     /* images of hardware whose time ... */
	double seconds;                     /* ... on the GPU is known */
};
void ps_nvjpeg_stats(struct ps_nvjpeg *nvjpeg, struct ps_nvjpeg_stats *ret_stats);

int ps_nvjpeg_worker_new(struct ps_nvjpeg *nvjpeg, struct ps_nvjpeg_worker **ret_worker,
        struct ps_load_error *err) PS_MUST_USE;
void ps_nvjpeg_worker_free(struct ps_nvjpeg_worker *worker); /* NULL is allowed */

/* Images of width x height, one a row. */
int ps_nvjpeg_rows_new(struct ps_nvjpeg *nvjpeg, uint32_t n, uint32_t width, uint32_t height,
        struct ps_nvjpeg_rows **ret_rows, struct ps_load_error *err) PS_MUST_USE;
void ps_nvjpeg_rows_free(struct ps_nvjpeg_rows *rows); /* NULL is allowed */

/* 1: the row's image comes from the GPU, and `data` is needed no more; 0: not this one; the caller decodes
 * it. */
int ps_nvjpeg_take(struct ps_nvjpeg_worker *worker, struct ps_nvjpeg_rows *rows, uint32_t row,
        const void *data, size_t nbytes, const struct ps_image_outline *outline,
        struct ps_load_error *err) PS_MUST_USE;

/* All rows were offered: gives the engine what was kept for it. Images that it refuses after all are decoded
 * by the caller: ps_nvjpeg_refused() lists them. */
int ps_nvjpeg_submit(struct ps_nvjpeg_rows *rows, struct ps_load_error *err) PS_MUST_USE;
bool ps_nvjpeg_refused(
        const struct ps_nvjpeg_rows *rows, uint32_t row, const uint8_t **ret_data, size_t *ret_nbytes);

/* True: the row's image comes from the GPU, and no other decoder is needed. Once submitted it stays so. */
bool ps_nvjpeg_has(const struct ps_nvjpeg_rows *rows, uint32_t row);

/* Forgets the rows, also those that were not placed; waits for work on those. */
void ps_nvjpeg_rows_clear(struct ps_nvjpeg_rows *rows);

/* A device for tests ------------------------------------------------------------------------------------- */

/* A device for tests: host memory stands for the device's, and a thread executes the streams late, in any
 * order that the streams allow. A missing wait shows: a copy is done at its turn, not when it was asked for.
 *
 * Each mirror has a stream of its own for its copies, so that they arrive in any order: on real devices only
 * some of that can happen.
 *
 * Ownership: streams belong to their maker, freed before the last device is closed.
 * Threads: any.   Locks: one, a leaf.   Blocks: ps_fake_stream_sync() and _free() until all that the stream
 * was given is done.   Errors: NULL: no memory. */

struct ps_fake_stream;

/* One needs an open device. It is what ops->use() takes. */
struct ps_fake_stream *ps_fake_stream_new(void);
void ps_fake_stream_free(struct ps_fake_stream *stream);

/* fn(arg) is called when the stream comes to it, on the device's thread. */
int ps_fake_stream_call(struct ps_fake_stream *stream, void (*fn)(void *arg), void *arg);
void ps_fake_stream_sync(struct ps_fake_stream *stream);

/* From now on, until the last device is closed, every call fails with -EIO, pending work is dropped and waits
 * end. */
void ps_fake_lose(void);

#endif
