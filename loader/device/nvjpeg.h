/* JPEG files decoded by a GPU, cropped and resized there: what ps_image_sketch() drew comes out as planes of
 * bytes on the device, in the arithmetic of image/resize.h; only the decoder's own pixels are others than
 * libjpeg-turbo's.
 *
 *   worker, a row at a time:
 *      ps_nvjpeg_take() ──┬─▶ the engine can: bytes are kept ──┐
 *                         ├─▶ hybrid: Huffman codes here, the rest on the worker's stream ──▶ planes of the rows
 *                         └─▶ neither: the caller decodes      │                                         ▲
 *   once all rows are there:                                   ▼                                         │
 *      ps_nvjpeg_submit() ────────────────────────▶ one batched decode and one resize ───────────────────┘
 *   behind the batch's copy:
 *      ps_nvjpeg_place() ──▶ from the planes to the rows' places in the batch
 *
 * Who decodes a file is a function of the file, what is cut out of it, the library and the GPU: not of time.
 *
 * Ownership: rows and workers are freed before their ps_nvjpeg, and that before its device.
 * Threads: take: any, each with its own worker and row; the others: one at a time for the same rows.
 * Locks: one, a leaf, over what is given to the engine.   Errors: -EIO: the device is lost, or refuses;
 * -ENOMEM. Blocks: new; take on Huffman codes and, rarely, on an earlier transfer; submit on the library's
 * parsing, and until the engine is through with the third batch before. Memory is taken at the beginning, and
 * rarely later: for larger images, and for files that are longer than most. */
#ifndef PS_DEVICE_NVJPEG_H
#define PS_DEVICE_NVJPEG_H

#include "device/cuda_driver.h"
#include "device/device.h"
#include "image/image.h"

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

/* A number of library and engines: with another one pixels may be others. */
uint64_t ps_nvjpeg_print(const struct ps_nvjpeg *nvjpeg);

/* The library's file. Valid for ever. */
const char *ps_nvjpeg_path(const struct ps_nvjpeg *nvjpeg);

struct ps_nvjpeg_stats {
	uint64_t hardware, hybrid, refused; /* images: decoded so, and those that it was asked for in vain */
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
 * by the caller: ps_nvjpeg_refused() tells them. */
int ps_nvjpeg_submit(struct ps_nvjpeg_rows *rows, struct ps_load_error *err) PS_MUST_USE;
bool ps_nvjpeg_refused(
        const struct ps_nvjpeg_rows *rows, uint32_t row, const uint8_t **ret_data, size_t *ret_nbytes);

/* The row's image comes from the GPU: nobody else need bring its pixels. Once submitted it stays so. */
bool ps_nvjpeg_has(const struct ps_nvjpeg_rows *rows, uint32_t row);

/* Makes `stream` put the images where `planes` has image i, for each i of n whose row sources[i] the GPU
 * decodes; the device's context is entered. */
ps_cu_result ps_nvjpeg_place(struct ps_nvjpeg_rows *rows, const uint32_t *sources, uint32_t n,
        uint8_t *planes, ps_cu_stream stream) PS_MUST_USE;

/* Forgets the rows, also those that were not placed; waits for work on those. */
void ps_nvjpeg_rows_clear(struct ps_nvjpeg_rows *rows);

#endif
