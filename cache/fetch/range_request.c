/* Runs: requests for contiguous missing chunks. Claiming chunks, handing the request to the origin, and what
 * becomes of the bytes as they come. */
#include "fetch/fill_private.h"

#include <string.h>

static void run_progress(struct ps_get *get, size_t nbytes_so_far);

/* Starting --------------------------------------------------------------------------------------- */

static void set_iovecs(struct ps_run *run)
{
	uint64_t from = ps_run_offset(run) + run->base, end = ps_run_offset(run) + run->nbytes;
	uint64_t block = run->first / PS_BLOCK_CHUNKS;

	run->get.niov = 0;
	for (unsigned i = 0; i < run->nbufs; i++) {
		uint64_t start = (block + i) * PS_BLOCK_SIZE;
		uint64_t lo = PS_MAX(from, start), hi = PS_MIN(end, start + PS_BLOCK_SIZE);

		if (lo < hi)
			run->iov[run->get.niov++] = (struct iovec){
			        .iov_base = run->bufs[i]->data + (lo - start), .iov_len = hi - lo};
	}
}

void ps_run_submit(struct ps_run *run)
{
	struct ps_fill_file *file = run->file;
	bool sum_asked;

	run->get.url = ps_object_url(file->object);
	run->get.offset = ps_run_offset(run) + run->base;
	run->get.nbytes = run->nbytes - run->base;
	run->get.progress = run_progress;
	run->get.done = ps_run_done;
	run->checked = run->other_version = false;
	run->counted = 0;
	run->get.iov = run->iov;
	set_iovecs(run);
	{
		PS_LOCK_SCOPE(&file->lock);
		run->get.expect = file->remote;
		sum_asked = file->sum_asked;
		file->sum_asked = true;
	}
	if (!sum_asked)
		ps_fill_ask_sum(file);
	atomic_store(&run->touched_ns, ps_clock_mono_ns());
	atomic_fetch_add(&file->fill->origin_requests, 1);
	file->origin->ops->get(file->origin, &run->get);
}

void ps_run_count(struct ps_fill_file *file, int more)
{
	bool was_busy = file->nruns > 0;

	file->nruns += (unsigned)more;
	file->fill->nbusy_files += (unsigned)(file->nruns > 0) - (unsigned)was_busy;
}

void ps_run_free(struct ps_run *run)
{
	{
		PS_LOCK_SCOPE(&run->file->fill->lock);
		ps_run_count(run->file, -1);
	}
	for (unsigned i = 0; i < run->nbufs; i++)
		ps_buf_unref(run->bufs[i]);
	ps_fill_file_put(run->file);
	free(run);
}

/* The block's slot with a buffer; *unused is taken if it had none. NULL: there is nothing to take. */
static struct ps_slot *slot_with_buffer(struct ps_fill_file *file, uint64_t block, struct ps_buf **unused)
{
	struct ps_slot *slot = file->slots[block];

	if (slot && slot->buf)
		return slot;
	if (!*unused)
		return NULL;
	if (!slot)
		slot = ps_slot_new(file, block);
	if (slot)
		slot->buf = ps_steal_ptr(unused);
	return slot;
}

struct ps_run *ps_run_claim(struct ps_fill_file *file, uint64_t first, uint64_t end, struct ps_buf **bufs,
        size_t nbufs, size_t *nused)
{
	struct ps_run *run = calloc(1, sizeof *run);
	struct ps_slot *slot = NULL;

	*nused = 0;
	if (!run)
		return NULL;
	run->file = file;
	run->first = first;
	run->started_ns = ps_clock_mono_ns();
	ps_list_init(&run->link);
	for (uint64_t c = first; c < end; c++) {
		if (!slot || c % PS_BLOCK_CHUNKS == 0) {
			struct ps_buf *none = NULL, **unused = *nused < nbufs ? &bufs[*nused] : &none;
			bool had_one = !*unused;

			slot = run->nbufs < PS_RUN_MAX_BLOCKS
			               ? slot_with_buffer(file, c / PS_BLOCK_CHUNKS, unused)
			               : NULL;
			*nused += !had_one && !*unused;
			if (!slot)
				break;
			run->bufs[run->nbufs++] = ps_buf_ref(slot->buf);
		}
		slot->flight |= (uint16_t)(1u << c % PS_BLOCK_CHUNKS);
		run->nchunks++;
	}
	if (run->nchunks == 0) {
		free(run);
		return NULL;
	}
	run->nbytes = PS_MIN((first + run->nchunks) * PS_CHUNK_SIZE, ps_object_size(file->object)) -
	              first * PS_CHUNK_SIZE;
	return run;
}

/* Progress --------------------------------------------------------------------------------------- */

/* Bytes [from, end) of the file, all of the slot's block, are in its buffer. */
static void slot_arrived(struct ps_slot *slot, uint64_t from, uint64_t end)
{
	uint64_t base = slot->block * PS_BLOCK_SIZE;
	uint64_t size = ps_object_size(slot->file->object);

	for (uint64_t at = from; at < end;) {
		unsigned c = (unsigned)((at - base) / PS_CHUNK_SIZE);
		uint64_t start = base + c * PS_CHUNK_SIZE, stop = PS_MIN(start + PS_CHUNK_SIZE, size);
		uint16_t bit = (uint16_t)(1u << c);

		at = PS_MIN(end, stop);
		slot->have[c] = (uint32_t)(at - start);
		if (at < stop)
			break;
		slot->flight &= (uint16_t)~bit;
		slot->failed &= (uint16_t)~bit;
		slot->whole |= bit;
	}
}

void ps_run_advance(struct ps_run *run, size_t filled)
{
	struct ps_fill_file *file = run->file;
	uint64_t from = ps_run_offset(run) + run->filled, end = ps_run_offset(run) + filled;
	struct ps_slot *whole[PS_RUN_MAX_BLOCKS];
	unsigned nwhole = 0;
	struct ps_list ready;

	if (filled <= run->filled)
		return;
	atomic_fetch_add(&file->fill->arrived_bytes, filled - run->filled);
	atomic_store(&run->touched_ns, ps_clock_mono_ns());
	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&file->lock);
		for (uint64_t at = from; at < end;) {
			struct ps_slot *slot = file->slots[at / PS_BLOCK_SIZE];
			uint64_t stop = PS_MIN(end, (at / PS_BLOCK_SIZE + 1) * PS_BLOCK_SIZE);

			slot_arrived(slot, at, stop);
			if (slot->awaited)
				atomic_fetch_add(&file->fill->fetched_bytes, stop - at);
			at = stop;
		}
		/* Before the slots may go. */
		ps_fill_collect(file, from, end, &ready);
		for (uint64_t b = from / PS_BLOCK_SIZE; b * PS_BLOCK_SIZE < end; b++)
			if (ps_slot_settle(file->slots[b]))
				whole[nwhole++] = file->slots[b];
		run->filled = filled;
	}
	ps_fill_answer(file->fill, &ready);
	for (unsigned i = 0; i < nwhole; i++)
		ps_writeback_queue(file->fill, whole[i]);
}

/* Where the listing told no ETag, the first response of all does. Those that were under way with it could not
 * ask for it, so they are compared here, before anything of them is used. */
bool ps_run_same_version(struct ps_fill_file *file, const struct ps_remote *seen)
{
	{
		PS_LOCK_SCOPE(&file->lock);
		if (!file->remote.etag[0]) {
			memcpy(file->remote.etag, seen->etag, sizeof file->remote.etag);
			if (seen->etag[0] == '"')
				ps_object_learn_etag(file->object, seen->etag);
		} else if (seen->etag[0] == '"' && file->remote.etag[0] == '"' &&
		           strcmp(seen->etag, file->remote.etag) != 0) {
			return false;
		}
	}
	/* Only now: the checksum of another version is not this one's. */
	ps_object_expect(file->object, seen->checksum, false);
	return true;
}

void ps_run_check_version(struct ps_run *run)
{
	if (run->checked)
		return;
	run->checked = true;
	run->other_version = !ps_run_same_version(run->file, &run->get.seen);
	/* Of an inflater's answers those of its base tell: it may answer from the cache. */
	struct ps_origin *origin = run->file->origin;
	if (run->other_version || !origin->proved)
		return;
	origin->proved(origin->proved_arg, run->get.url, ps_object_remote(run->file->object), run->get.work.key_expires_s);
	ps_fill_file_allow(run->file);
}

/* The first answer tells how far away the origin is. True: more connections may be used now. */
static bool learn_distance(struct ps_run *run, uint64_t first_byte_ns)
{
	struct ps_fill *fill = run->file->fill;

	PS_LOCK_SCOPE(&fill->lock);
	unsigned before = fill->concurrency.limit;

	ps_hedge_answered(fill, run->file->origin, ps_clock_mono_ns() - atomic_load(&run->touched_ns));

	ps_concurrency_first_byte(&fill->concurrency, first_byte_ns);
	atomic_store(&fill->connections, fill->concurrency.limit);
	return fill->concurrency.limit > before;
}

void ps_run_count_bytes(struct ps_run *run, uint64_t nbytes)
{
	if (nbytes <= run->counted)
		return;
	ps_fill_count_bytes(run->file->fill, nbytes - run->counted);
	run->counted = nbytes;
}

static void run_progress(struct ps_get *get, size_t nbytes_so_far)
{
	struct ps_run *run = (struct ps_run *)get;
	bool more = !run->checked && learn_distance(run, get->first_byte_ns);

	/* What is decoded here came from the base's origin, and was counted then. */
	if (!run->file->origin->base)
		ps_run_count_bytes(run, nbytes_so_far);
	ps_run_check_version(run);
	if (!run->other_version)
		ps_run_advance(run, run->base + nbytes_so_far);
	if (more)
		ps_fill_pump(run->file->fill);
}
