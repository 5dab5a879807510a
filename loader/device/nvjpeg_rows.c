/* The memory of a batch's rows: files, what is told of each image, results. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "device/nvjpeg_private.h"
#include "image/resize_axis.h"

#define ALIGN 64u

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* Bytes of a row's image and weights, at most. */
static size_t piece_most(uint32_t width, uint32_t height)
{
	return aligned(sizeof(struct ps_tile_image) +
	               ((size_t)width + height) * (sizeof(uint32_t) + PS_TILE_TAPS_MAX * sizeof(int16_t)) +
	               ALIGN);
}

static int gpu_make(struct ps_nvjpeg_rows *rows, struct ps_load_error *err)
{
	const struct ps_cuda_driver *cu = rows->n->cuda->cu;
	ps_cu_result r = cu->memory_alloc(&rows->planes, rows->nrows * rows->image_nbytes);

	if (r == 0)
		r = cu->memory_alloc(&rows->device_sheet, rows->sheet_nbytes);
	if (r == 0)
		r = cu->event_create(&rows->decoded, PS_CU_EVENT_DISABLE_TIMING | PS_CU_EVENT_BLOCKING_SYNC);
	return r == 0 ? 0 : ps_cuda_error(cu, r, err, "nvJPEG: the GPU has no memory for a batch");
}

int ps_nvjpeg_rows_new(struct ps_nvjpeg *n, uint32_t nrows, uint32_t width, uint32_t height,
        struct ps_nvjpeg_rows **ret_rows, struct ps_load_error *err)
{
	struct ps_nvjpeg_rows *rows = calloc(1, sizeof(*rows));
	int r;

	if (!rows)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	*rows = (struct ps_nvjpeg_rows){.n = n, .nrows = nrows, .width = width, .height = height};
	rows->image_nbytes = (size_t)width * height * 3;
	rows->moves = aligned(nrows * sizeof(struct ps_tile_image));
	rows->pieces = rows->moves + aligned(nrows * sizeof(struct ps_move));
	rows->sheet_nbytes = rows->pieces + nrows * piece_most(width, height);
	rows->used = rows->pieces;
	pthread_mutex_init(&rows->lock, NULL);
	rows->entries = calloc(nrows, sizeof(*rows->entries));
	rows->sheet = n->device->ops->alloc(n->device, rows->sheet_nbytes, err);
	if (!rows->entries || !rows->sheet)
		r = ps_load_error_set(err, ENOMEM, "no memory for what the GPU is told of a batch");
	else
		r = ps_cuda_enter(n->cuda, err);
	if (r == 0) {
		r = gpu_make(rows, err);
		ps_cuda_leave(n->cuda);
	}
	if (r < 0) {
		ps_nvjpeg_rows_free(rows);
		return r;
	}
	*ret_rows = rows;
	return 0;
}

void ps_nvjpeg_rows_free(struct ps_nvjpeg_rows *rows)
{
	struct ps_nvjpeg *n;

	if (!rows)
		return;
	n = rows->n;
	if (rows->entries)
		ps_nvjpeg_rows_clear(rows);
	if (ps_cuda_enter(n->cuda, NULL) == 0) {
		if (rows->planes)
			(void)n->cuda->cu->memory_free(rows->planes);
		if (rows->device_sheet)
			(void)n->cuda->cu->memory_free(rows->device_sheet);
		if (rows->decoded)
			(void)n->cuda->cu->event_destroy(rows->decoded);
		ps_cuda_leave(n->cuda);
	}
	while (rows->files) {
		struct ps_nvj_files *f = rows->files;

		rows->files = f->next;
		n->device->ops->free(n->device, f->p, f->nbytes);
		free(f);
	}
	if (rows->sheet)
		n->device->ops->free(n->device, rows->sheet, rows->sheet_nbytes);
	pthread_mutex_destroy(&rows->lock);
	free(rows->entries);
	free(rows);
}

/* Waits for what was given to the GPU and did not lead to a batch. */
static void unplaced_wait(struct ps_nvjpeg_rows *rows)
{
	struct ps_nvjpeg *n = rows->n;

	if (ps_cuda_enter(n->cuda, NULL) < 0)
		return;
	if (rows->engine)
		(void)n->cuda->cu->event_sync(rows->decoded);
	pthread_mutex_lock(&n->workers_lock);
	for (uint32_t i = 0; i < n->nworkers && atomic_load(&rows->hybrid); i++)
		(void)n->cuda->cu->event_sync(n->workers[i]->last);
	pthread_mutex_unlock(&n->workers_lock);
	ps_cuda_leave(n->cuda);
}

void ps_nvjpeg_rows_clear(struct ps_nvjpeg_rows *rows)
{
	if (rows->engine || atomic_load(&rows->hybrid))
		unplaced_wait(rows);
	rows->engine = false;
	atomic_store(&rows->hybrid, false);
	atomic_store(&rows->used, rows->pieces);
	memset(rows->entries, 0, rows->nrows * sizeof(*rows->entries));
	for (struct ps_nvj_files *f = rows->files; f; f = f->next)
		f->used = 0;
}

/* -- Files ---------------------------------------------------------------------------------------------- */

static struct ps_nvj_files *files_new(struct ps_nvjpeg_rows *rows, size_t nbytes)
{
	struct ps_device *device = rows->n->device;
	struct ps_nvj_files *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->nbytes = PS_MAX(nbytes, rows->nrows * PS_NVJ_FILES);
	f->p = device->ops->alloc(device, f->nbytes, NULL);
	if (!f->p) {
		free(f);
		return NULL;
	}
	f->next = rows->files;
	return f;
}

const uint8_t *ps_nvj_file_keep(struct ps_nvjpeg_rows *rows, const void *data, size_t nbytes)
{
	struct ps_nvj_files *f;
	uint8_t *p;

	pthread_mutex_lock(&rows->lock);
	for (f = rows->files; f && f->nbytes - f->used < nbytes; f = f->next)
		;
	if (!f && (f = files_new(rows, nbytes)))
		rows->files = f;
	p = f ? f->p + f->used : NULL;
	if (f)
		f->used = PS_MIN(f->used + aligned(nbytes), f->nbytes);
	pthread_mutex_unlock(&rows->lock);
	if (p)
		memcpy(p, data, nbytes);
	return p;
}

/* -- What the resize is told ---------------------------------------------------------------------------- */

/* Writes an axis to the sheet at *at, as the device will see it. */
static struct ps_tile_axis axis_put(
        struct ps_nvjpeg_rows *rows, const struct ps_resize_axis *axis, int shift, size_t *at)
{
	size_t first = *at, weights = (first + axis->n * sizeof(uint32_t) + 7) & ~(size_t)7;
	uintptr_t device = (uintptr_t)rows->device_sheet;

	memcpy(rows->sheet + first, axis->first, axis->n * sizeof(uint32_t));
	memcpy(rows->sheet + weights, axis->weights, (size_t)axis->n * axis->taps * sizeof(int16_t));
	*at = (weights + (size_t)axis->n * axis->taps * sizeof(int16_t) + 7) & ~(size_t)7;
	return (struct ps_tile_axis){.first = (const uint32_t *)(device + first),
	        .weights = (const int16_t *)(device + weights),
	        .taps = axis->taps,
	        .shift = shift};
}

bool ps_nvj_sheet_add(
        struct ps_nvjpeg_rows *rows, uint32_t row, const struct ps_image_outline *o, size_t *ret_nbytes)
{
	const struct ps_resize_axis *h = o->resize.h, *v = o->resize.v;
	struct ps_nvj_entry *e = &rows->entries[row];
	struct ps_tile_image *im;
	size_t at;

	if (h->n != rows->width || v->n != rows->height || h->taps > PS_TILE_TAPS_MAX ||
	        v->taps > PS_TILE_TAPS_MAX)
		return false;
	*ret_nbytes = aligned(sizeof(*im) + ((size_t)h->n + v->n) * sizeof(uint32_t) +
	                      ((size_t)h->n * h->taps + (size_t)v->n * v->taps) * sizeof(int16_t) + 32);
	at = atomic_fetch_add(&rows->used, *ret_nbytes);
	e->sheet = at;
	im = (struct ps_tile_image *)(void *)(rows->sheet + at);
	at += sizeof(*im);
	*im = (struct ps_tile_image){.nrows = o->region.height,
	        .rows = ps_tile_rows(v->first, v->taps, v->n),
	        .place = row,
	        .flip_v = o->resize.flip_v,
	        .most = 255 << o->resize.fraction};
	im->h = axis_put(rows, h, h->bits - o->resize.fraction, &at);
	im->v = axis_put(rows, v, v->bits + o->resize.fraction, &at);
	return true;
}

/* -- To the batch --------------------------------------------------------------------------------------- */

bool ps_nvjpeg_has(const struct ps_nvjpeg_rows *rows, uint32_t row)
{
	enum ps_nvj_who who = rows->entries[row].who;

	return who == PS_NVJ_ENGINE || who == PS_NVJ_HYBRID;
}

static uint32_t moves_make(struct ps_nvjpeg_rows *rows, const uint32_t *sources, uint32_t n, uint8_t *planes)
{
	struct ps_move *moves = (struct ps_move *)(void *)(rows->sheet + rows->moves);
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!ps_nvjpeg_has(rows, sources[i]))
			continue;
		moves[count++] = (struct ps_move){
		        .from = (const uint8_t *)(uintptr_t)rows->planes + sources[i] * rows->image_nbytes,
		        .to = planes + i * rows->image_nbytes};
	}
	return count;
}

ps_cu_result ps_nvjpeg_place(struct ps_nvjpeg_rows *rows, const uint32_t *sources, uint32_t n,
        uint8_t *planes, ps_cu_stream stream)
{
	const struct ps_cuda_device *cuda = rows->n->cuda;
	uint32_t count = moves_make(rows, sources, n, planes);
	struct ps_move_args args = {
	        .moves = (const struct ps_move *)(uintptr_t)(rows->device_sheet + rows->moves),
	        .n = count,
	        .nbytes = (uint32_t)rows->image_nbytes};
	ps_cu_result r = 0;

	if (rows->engine)
		r = cuda->cu->stream_wait(stream, rows->decoded, 0);
	if (r == 0 && atomic_load(&rows->hybrid))
		r = ps_nvj_wait_workers(rows->n, stream);
	if (r == 0 && count > 0)
		r = cuda->cu->copy_to_device(rows->device_sheet + rows->moves, rows->sheet + rows->moves,
		        count * sizeof(struct ps_move), stream);
	if (r == 0 && count > 0)
		r = ps_kernel_launch(&cuda->kernels, PS_KERNEL_move,
		        (uint64_t)count * ps_move_blocks(args.nbytes), &args, stream);
	if (r != 0)
		return r;
	rows->engine = false; /* the batch's copy waits for them from now on */
	atomic_store(&rows->hybrid, false);
	return 0;
}
