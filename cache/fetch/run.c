/* Runs: requests for contiguous missing blocks. Claiming blocks, handing the request to the origin, and what
 * becomes of the bytes as they come. */
#include "fetch/fill_private.h"

#include <string.h>

/* Starting --------------------------------------------------------------------------------------- */

void ps_run_submit(struct ps_run *run)
{
	struct ps_fill_file *file = run->file;
	size_t skip = run->base;

	run->get.url = ps_object_url(file->object);
	run->get.offset = run->first * PS_BLOCK_SIZE + run->base;
	run->get.nbytes = run->nbytes - run->base;
	run->get.progress = ps_run_progress;
	run->get.done = ps_run_done;
	run->checked = run->other_version = false;
	run->get.iov = run->iov;
	run->get.niov = 0;
	for (unsigned i = 0; i < run->nblocks; i++) {
		size_t len = ps_object_block_nbytes(file->object, run->first + i);

		if (skip >= len) {
			skip -= len;
			continue;
		}
		run->iov[run->get.niov++] =
		        (struct iovec){.iov_base = run->bufs[i]->data + skip, .iov_len = len - skip};
		skip = 0;
	}
	{
		PS_LOCK_SCOPE(&file->lock);
		run->get.expect = file->remote;
	}
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
	for (unsigned i = 0; i < run->nblocks; i++)
		ps_buf_unref(run->bufs[i]);
	ps_fill_file_put(run->file);
	free(run);
}

struct ps_run *ps_run_claim(struct ps_fill_file *file, uint64_t first, unsigned n, struct ps_buf **bufs)
{
	struct ps_run *run = calloc(1, sizeof *run);

	if (!run)
		return NULL;
	run->file = file;
	run->first = first;
	run->started_ns = ps_clock_mono_ns();
	ps_list_init(&run->link);
	for (unsigned i = 0; i < n; i++) {
		struct ps_slot *slot = ps_slot_new(file, first + i, PS_SLOT_FETCHING);

		if (!slot)
			break;
		slot->buf = ps_buf_ref(bufs[i]);
		run->bufs[run->nblocks++] = bufs[i];
		run->nbytes += ps_object_block_nbytes(file->object, first + i);
	}
	if (run->nblocks == 0) {
		free(run);
		return NULL;
	}
	return run;
}

/* Progress --------------------------------------------------------------------------------------- */

void ps_run_advance(struct ps_run *run, size_t filled)
{
	struct ps_fill_file *file = run->file;
	struct ps_slot *whole[PS_RUN_MAX_BLOCKS];
	unsigned nwhole = 0;
	struct ps_list ready;
	size_t start = 0;

	if (filled <= run->filled)
		return;
	atomic_fetch_add(&file->fill->arrived_bytes, filled - run->filled);
	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&file->lock);
		for (unsigned i = 0; i < run->nblocks && start < filled; i++) {
			size_t len = ps_object_block_nbytes(file->object, run->first + i);

			if (start + len > run->filled) {
				struct ps_slot *slot = file->slots[run->first + i];

				slot->filled = PS_MIN(len, filled - start);
				if (slot->filled == len) {
					slot->state = PS_SLOT_WRITING;
					whole[nwhole++] = slot;
				}
			}
			start += len;
		}
		ps_fill_collect(file, run->first + run->filled / PS_BLOCK_SIZE,
		        run->first + (filled + PS_BLOCK_SIZE - 1) / PS_BLOCK_SIZE, &ready);
		run->filled = filled;
	}
	ps_fill_answer(file->fill, &ready);
	for (unsigned i = 0; i < nwhole; i++) {
		ps_fill_file_ref(file);
		ps_writeback_queue(file->fill, whole[i]);
	}
}

/* Where the listing told no ETag, the first response of all does. Those that were under way with it could not
 * ask for it, so they are compared here, before anything of them is used. */
void ps_run_check_version(struct ps_run *run)
{
	struct ps_fill_file *file = run->file;
	const char *seen = run->get.seen.etag;

	if (run->checked)
		return;
	run->checked = true;
	PS_LOCK_SCOPE(&file->lock);
	if (!file->remote.etag[0])
		memcpy(file->remote.etag, seen, sizeof file->remote.etag);
	else if (seen[0] == '"' && file->remote.etag[0] == '"')
		run->other_version = strcmp(seen, file->remote.etag) != 0;
}

void ps_run_progress(struct ps_get *get, size_t nbytes_so_far)
{
	struct ps_run *run = (struct ps_run *)get;

	ps_run_check_version(run);
	if (!run->other_version)
		ps_run_advance(run, run->base + nbytes_so_far);
}
