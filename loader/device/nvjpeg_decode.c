/* Chooses the decoder of a row, and decodes. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "device/private.h"

static size_t pitch_of(uint32_t width)
{
	return ((size_t)width * 3 + PS_NVJ_PITCH - 1) & ~(size_t)(PS_NVJ_PITCH - 1);
}

static uint64_t resize_blocks(const struct ps_nvjpeg_rows *rows, uint32_t n)
{
	return (uint64_t)n * ps_tile_blocks(rows->width, rows->height);
}

static struct ps_tile_args resize_args(const struct ps_nvjpeg_rows *rows, size_t sheet, uint32_t n)
{
	return (struct ps_tile_args){
	        .images = (const struct ps_tile_image *)(uintptr_t)(rows->device_sheet + sheet),
	        .to = (uint8_t *)(uintptr_t)rows->planes,
	        .nimages = n,
	        .width = rows->width,
	        .height = rows->height};
}

/* Hybrid decoding, a row at a time ---------------------------------------------------------------------- */

static struct ps_tile_image *piece_of(struct ps_nvjpeg_rows *rows, const struct ps_nvj_entry *e)
{
	return (struct ps_tile_image *)(void *)(rows->sheet + e->sheet);
}

/* The GPU's half: decodes the region into the worker's scratch, and resizes it into the row's place. */
static ps_nvj_status hybrid_gpu(struct ps_nvjpeg_worker *w, struct ps_nvjpeg_rows *rows,
        const struct ps_nvj_entry *e, size_t piece_nbytes)
{
	const struct ps_nvjpeg_library *lib = w->n->lib;
	const struct ps_cuda_device *cuda = w->n->cuda;
	struct ps_tile_args args = resize_args(rows, e->sheet, 1);
	size_t pitch = pitch_of(e->region.width);
	const ps_nvj_stream file = w->files[w->turn];
	ps_nvj_image to = {.pitch = {pitch}};
	ps_nvj_status s;
	ps_cu_result r = ps_nvj_scratch_reserve(
	        w->n, &w->scratch, pitch * e->region.height + PS_TILE_SLACK, w->stream);

	if (r != 0)
		return r == PS_CU_OUT_OF_MEMORY ? PS_NVJ_ALLOCATOR_FAILURE : PS_NVJ_EXECUTION_FAILED;
	to.channel[0] = (unsigned char *)(uintptr_t)w->scratch.p;
	piece_of(rows, e)->from = to.channel[0];
	piece_of(rows, e)->pitch = pitch;
	/* The state and its buffer hold one image at a time. */
	if (cuda->cu->event_sync(w->last) != 0)
		return PS_NVJ_EXECUTION_FAILED;
	s = lib->decode_transfer(w->n->handle, w->n->hybrid, w->state, file, w->stream);
	if (s != 0)
		return s;
	w->turn = (w->turn + 1) % PS_NVJ_TURNS;
	s = lib->decode_device(w->n->handle, w->n->hybrid, w->state, &to, w->stream);
	if (s == 0)
		r = cuda->cu->copy_to_device(
		        rows->device_sheet + e->sheet, rows->sheet + e->sheet, piece_nbytes, w->stream);
	if (s == 0 && r == 0)
		r = ps_kernel_launch(
		        &cuda->kernels, PS_KERNEL_resize_tile, resize_blocks(rows, 1), &args, w->stream);
	if (cuda->cu->event_record(w->last, w->stream) != 0 || r != 0)
		return PS_NVJ_EXECUTION_FAILED;
	return s;
}

/* Does the CPU's half, then the GPU's. */
static ps_nvj_status hybrid_decode(struct ps_nvjpeg_worker *w, struct ps_nvjpeg_rows *rows,
        const struct ps_nvj_entry *e, size_t piece_nbytes)
{
	const struct ps_nvjpeg_library *lib = w->n->lib;
	const struct ps_region *r = &e->region;
	const ps_nvj_stream file = w->files[w->turn];
	int is_not = 1;
	ps_nvj_status s = lib->params_region(w->params, (int)r->x, (int)r->y, (int)r->width, (int)r->height);

	if (s == 0)
		s = lib->decoder_supported(w->n->hybrid, file, w->params, &is_not);
	if (s == 0 && is_not)
		s = PS_NVJ_NOT_SUPPORTED;
	if (s == 0)
		s = lib->pinned_attach(w->state, w->pinned[w->turn]);
	if (s == 0)
		s = lib->decode_host(w->n->handle, w->n->hybrid, w->state, w->params, file);
	if (s != 0)
		return s;
	atomic_store(&rows->hybrid, true);
	return hybrid_gpu(w, rows, e, piece_nbytes);
}

/* A row -------------------------------------------------------------------------------------------------- */

/* True if the library finds the size `stored` in the file. */
static bool file_parse(
        struct ps_nvjpeg_worker *w, const void *data, size_t nbytes, struct ps_image_size stored)
{
	const ps_nvj_stream file = w->files[w->turn];
	unsigned width = 0, height = 0;

	return w->n->lib->stream_parse(w->n->handle, data, nbytes, 0, 0, file) == 0 &&
	       w->n->lib->stream_size(file, &width, &height) == 0 && width == stored.width &&
	       height == stored.height;
}

/* Takes a row: 1, 0 (the CPU decodes it), or -ENOMEM. The context must be entered. */
static int row_take(struct ps_nvjpeg_worker *w, struct ps_nvjpeg_rows *rows, uint32_t row, const void *data,
        size_t nbytes, const struct ps_image_outline *o, struct ps_error *err)
{
	struct ps_nvj_entry *e = &rows->entries[row];
	size_t piece_nbytes;
	int is_not = 1;
	ps_nvj_status s;

	if (pitch_of(o->stored.width) * o->stored.height > PS_NVJ_IMAGE_MAX ||
	        !file_parse(w, data, nbytes, o->stored) || !ps_nvj_sheet_add(rows, row, o, &piece_nbytes))
		return 0;
	e->width = o->stored.width;
	e->height = o->stored.height;
	e->region = o->region;
	if (w->n->hardware && w->n->lib->batched_supported(w->n->handle, w->files[w->turn], &is_not) == 0 &&
	        !is_not) {
		e->data = ps_nvj_file_keep(rows, data, nbytes);
		e->nbytes = nbytes;
		if (!e->data)
			return ps_error_set(err, ENOMEM, "no memory for %zu bytes of a file", nbytes);
		e->who = PS_NVJ_ENGINE;
		return 1;
	}
	s = hybrid_decode(w, rows, e, piece_nbytes);
	/* Without memory the batch fails, since another decoder would give other pixels. Other errors are about
	 * the file, or the device is lost, which the batch's copy will report. */
	if (s == PS_NVJ_ALLOCATOR_FAILURE)
		return ps_nvj_error(s, err, "cannot decode an image");
	if (s != 0)
		return 0;
	atomic_fetch_add_explicit(&w->n->nhybrid, 1, memory_order_relaxed);
	e->who = PS_NVJ_HYBRID;
	return 1;
}

int ps_nvjpeg_take(struct ps_nvjpeg_worker *w, struct ps_nvjpeg_rows *rows, uint32_t row, const void *data,
        size_t nbytes, const struct ps_image_outline *outline, struct ps_error *err)
{
	int rc;

	/* A lost device is reported by the batch's copy. */
	if (!outline->plain_jpeg || ps_cuda_enter(w->n->cuda, NULL) < 0)
		return 0;
	rc = row_take(w, rows, row, data, nbytes, outline, err);
	ps_cuda_leave(w->n->cuda);
	return rc;
}

bool ps_nvjpeg_refused(
        const struct ps_nvjpeg_rows *rows, uint32_t row, const uint8_t **ret_data, size_t *ret_nbytes)
{
	const struct ps_nvj_entry *e = &rows->entries[row];

	*ret_data = e->data;
	*ret_nbytes = e->nbytes;
	return e->who == PS_NVJ_REFUSED;
}

/* The engine, a batch at a time; the lock is held ------------------------------------------------------- */

static size_t pixels_of(const struct ps_nvj_entry *e)
{
	return pitch_of(e->width) * e->height;
}

/* The end of the rows from `from` on whose pixels fit in the scratch together, at least one row. */
static uint32_t part_end(const struct ps_nvjpeg_rows *rows, uint32_t from, size_t *ret_nbytes)
{
	uint32_t to = from;

	*ret_nbytes = 0;
	for (; to < rows->nrows; to++) {
		const struct ps_nvj_entry *e = &rows->entries[to];

		if (e->who != PS_NVJ_ENGINE)
			continue;
		if (*ret_nbytes > 0 && *ret_nbytes + pixels_of(e) > PS_NVJ_SCRATCH_MAX)
			break;
		*ret_nbytes += pixels_of(e);
	}
	return to;
}

static ps_nvj_status images_decode(
        struct ps_nvjpeg *n, const struct ps_nvj_turn *t, uint32_t first, uint32_t count)
{
	ps_nvj_status s = n->lib->batched_init(n->handle, t->state, (int)count, 1, PS_NVJ_OUTPUT_RGBI);

	return s != 0 ? s
	              : n->lib->batched(n->handle, t->state, n->files + first, n->lengths + first,
	                        n->images + first, n->stream);
}

/* Decodes all images of a part at once. If that fails, decodes one by one: rows that fail are refused, and
 * removed from `images`. */
static ps_cu_result part_decode(struct ps_nvjpeg *n, const struct ps_nvj_turn *t, struct ps_nvjpeg_rows *rows,
        struct ps_tile_image *images, uint32_t *count)
{
	uint32_t left = 0;

	if (images_decode(n, t, 0, *count) == 0)
		return 0;
	for (uint32_t i = 0; i < *count; i++) {
		ps_cu_result r =
		        n->cuda->cu->stream_sync(n->stream); /* the state holds one decode at a time */
		ps_nvj_status s = r == 0 ? images_decode(n, t, i, 1) : 0;

		if (r != 0)
			return r;
		if (s == PS_NVJ_ALLOCATOR_FAILURE)
			return PS_CU_OUT_OF_MEMORY;
		if (s == 0) {
			images[left++] = images[i];
			continue;
		}
		rows->entries[images[i].place].who = PS_NVJ_REFUSED;
		n->stats.refused++;
	}
	*count = left;
	return 0;
}

/* Fills in the parameters of the library and of the resize for the images of a part; returns their number. */
static uint32_t part_list(struct ps_nvjpeg *n, const struct ps_nvj_turn *t, struct ps_nvjpeg_rows *rows,
        uint32_t from, uint32_t to, struct ps_tile_image *images)
{
	uint8_t *pixels = (uint8_t *)(uintptr_t)t->scratch.p;
	uint32_t count = 0;

	for (uint32_t row = from; row < to; row++) {
		const struct ps_nvj_entry *e = &rows->entries[row];
		size_t pitch = pitch_of(e->width);

		if (e->who != PS_NVJ_ENGINE)
			continue;
		n->files[count] = e->data;
		n->lengths[count] = e->nbytes;
		n->images[count] = (ps_nvj_image){.channel = {pixels}, .pitch = {pitch}};
		images[count] = *piece_of(rows, e);
		images[count].from = pixels + e->region.y * pitch + (size_t)e->region.x * 3;
		images[count++].pitch = pitch;
		pixels += pixels_of(e);
	}
	return count;
}

/* Decodes and resizes rows [from, to), whose pixels have nbytes, with the next turn's memory, once that is free.
 * *at: number of the sheet's images that are in use. */
static ps_cu_result part_give(struct ps_nvjpeg *n, struct ps_nvjpeg_rows *rows, uint32_t from, uint32_t to,
        size_t nbytes, uint32_t *at)
{
	const struct ps_cuda_driver *cu = n->cuda->cu;
	struct ps_tile_image *images = (struct ps_tile_image *)(void *)rows->sheet + *at;
	struct ps_nvj_turn *t = &n->turns[n->turn];
	size_t sheet = *at * sizeof(*images);
	struct ps_tile_args args;
	uint32_t count;
	ps_cu_result r = cu->event_sync(t->read), recorded;

	if (r == 0)
		r = ps_nvj_scratch_reserve(n, &t->scratch, nbytes + PS_TILE_SLACK, n->stream);
	if (r != 0)
		return r;
	n->turn = (n->turn + 1) % PS_NVJ_ENGINE_TURNS;
	count = part_list(n, t, rows, from, to, images);
	r = part_decode(n, t, rows, images, &count);
	if (r == 0 && count > 0) {
		*at += count;
		n->stats.hardware += count;
		args = resize_args(rows, sheet, count);
		r = cu->copy_to_device(
		        rows->device_sheet + sheet, rows->sheet + sheet, count * sizeof(*images), n->stream);
		if (r == 0)
			r = ps_kernel_launch(&n->cuda->kernels, PS_KERNEL_resize_tile,
			        resize_blocks(rows, count), &args, n->stream);
	}
	recorded = cu->event_record(t->read, n->stream);
	return r != 0 ? r : recorded;
}

static ps_cu_result rows_give(struct ps_nvjpeg *n, struct ps_nvjpeg_rows *rows)
{
	const struct ps_cuda_driver *cu = n->cuda->cu;
	size_t used = atomic_load(&rows->used), nbytes;
	ps_cu_result r = 0;
	uint32_t at = 0;
	bool timed;
	float ms = 0;

	/* takes the time of the timed decode, if the decode has ended */
	if (n->timing > 0 && cu->event_query(n->end) == 0) {
		if (cu->event_elapsed(&ms, n->begin, n->end) == 0) {
			n->stats.timed += n->timing;
			n->stats.seconds += (double)ms / 1e3;
		}
		n->timing = 0;
	}
	timed = n->timing == 0 && cu->event_record(n->begin, n->stream) == 0;
	if (atomic_load(&rows->hybrid))
		r = ps_nvj_wait_workers(n, n->stream); /* their kernels read parts of the device's sheet */
	if (r == 0)
		r = cu->copy_to_device(rows->device_sheet + rows->pieces, rows->sheet + rows->pieces,
		        used - rows->pieces, n->stream);
	for (uint32_t from = 0, to; from < rows->nrows && r == 0; from = to) {
		to = part_end(rows, from, &nbytes);
		if (nbytes == 0)
			break;
		r = part_give(n, rows, from, to, nbytes, &at);
	}
	if (r == 0 && timed && cu->event_record(n->end, n->stream) == 0)
		n->timing = at;
	return r != 0 ? r : cu->event_record(rows->decoded, n->stream);
}

int ps_nvjpeg_submit(struct ps_nvjpeg_rows *rows, struct ps_error *err)
{
	struct ps_nvjpeg *n = rows->n;
	ps_cu_result result;
	uint32_t first = 0;
	int rc;

	while (first < rows->nrows && rows->entries[first].who != PS_NVJ_ENGINE)
		first++;
	if (first == rows->nrows)
		return 0;
	rc = ps_cuda_enter(n->cuda, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&n->lock);
	result = rows_give(n, rows);
	rows->engine = result == 0;
	if (result != 0)
		(void)n->cuda->cu->stream_sync(n->stream); /* queued work still reads the rows */
	pthread_mutex_unlock(&n->lock);
	ps_cuda_leave(n->cuda);
	return result == 0 ? 0 : ps_cuda_error(n->cuda->cu, result, err, "nvJPEG: the GPU refuses a batch");
}
