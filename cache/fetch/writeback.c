/* The disk side of the fill engine: what arrived of a block is written, unverified ones are checked, by a few
 * threads of their own, so that neither a transfer nor a reader waits for the disk. What the disk does not
 * take is held in memory. */
#include "base/thread.h"
#include "fetch/fill_private.h"

#include <errno.h>

/* Writes the given chunks: the block as one if that is all of it, else what of it came. */
static int write_chunks(struct ps_slot *slot, const struct ps_buf *buf, uint16_t set)
{
	struct ps_object *object = slot->file->object;
	int rc = ps_object_admit(object);

	if (rc == 0 && set == ps_chunks_of_block(slot->file, slot->block))
		return ps_object_write_block(object, slot->block, buf->data);
	for (unsigned c = 0, n; rc == 0 && c < PS_BLOCK_CHUNKS; c += n) {
		for (n = 0; c + n < PS_BLOCK_CHUNKS && set >> (c + n) & 1; n++)
			;
		if (n > 0)
			rc = ps_object_write_chunks(object, slot->block, c, n, buf->data + c * PS_CHUNK_SIZE);
		else
			n = 1;
	}
	return rc;
}

/* Gives the reference back that a queued slot has. No lock held. */
static void put_file(struct ps_fill_file *file)
{
	{
		PS_LOCK_SCOPE(&file->fill->lock);
		file->nparked--;
	}
	ps_fill_file_put(file);
}

static void write_slot(struct ps_fill *fill, struct ps_slot *slot)
{
	struct ps_fill_file *file = slot->file;
	struct ps_buf *buf = slot->buf; /* stays while the slot is here */
	bool again = false, whole = false;
	uint16_t set;
	{
		PS_LOCK_SCOPE(&file->lock);
		set = slot->whole & (uint16_t)~slot->stored;
	}
	int rc = write_chunks(slot, buf, set);
	{
		PS_LOCK_SCOPE(&file->lock);
		if (rc == 0) {
			slot->stored |= set;
			whole = slot->stored == ps_chunks_of_block(file, slot->block);
			slot->place = whole ? PS_PLACE_KEPT : PS_PLACE_NONE;
			again = ps_slot_settle(slot); /* more came meanwhile; else it is gone, or in flight */
		} else {
			slot->place = PS_PLACE_HELD;
		}
	}
	if (rc < 0) {
		ps_keep_held(fill, slot);
		return;
	}
	if (whole)
		ps_keep_written(fill, slot);
	if (again)
		ps_writeback_queue(fill, slot);
	put_file(file);
}

/* What readers want of the block; false: nobody waits. The file's lock is held. */
static bool wanted_range(struct ps_fill_file *file, uint64_t block, uint64_t *ret_from, uint64_t *ret_end)
{
	uint64_t first = block * PS_BLOCK_CHUNKS, from = UINT64_MAX, end = 0;

	for (struct ps_list *l = file->waiters.next; l != &file->waiters; l = l->next) {
		struct ps_read *read = PS_CONTAINER_OF(l, struct ps_read, priv.link);
		uint64_t lo = PS_MAX(read->offset / PS_CHUNK_SIZE, first);
		uint64_t hi = PS_MIN(
		        (read->offset + read->nbytes - 1) / PS_CHUNK_SIZE + 1, first + PS_BLOCK_CHUNKS);

		if (lo < hi) {
			from = PS_MIN(from, lo);
			end = PS_MAX(end, hi);
		}
	}
	if (from >= end)
		return false;
	*ret_from = from;
	*ret_end = end;
	return true;
}

static void verify_block(struct ps_fill *fill, struct ps_slot *slot, void *scratch)
{
	struct ps_fill_file *file = slot->file;
	uint64_t block = slot->block, from, end;
	struct ps_list ready;
	bool wanted;

	ps_list_init(&ready);
	int rc = ps_object_verify_block(file->object, block, scratch);
	{
		PS_LOCK_SCOPE(&file->lock);
		ps_slot_free(slot);
		ps_fill_collect(file, block * PS_BLOCK_SIZE, (block + 1) * PS_BLOCK_SIZE, &ready);
		wanted = wanted_range(file, block, &from, &end);
	}
	if (rc < 0) /* the store has told why */
		ps_log_debug("verify: %s: block %llu: what was bad is missing now",
		        ps_object_url(file->object), (unsigned long long)block);
	ps_fill_answer(fill, &ready);
	if (wanted)
		ps_fill_demand(file, from, end);
	put_file(file);
}

static void *disk_main(void *arg)
{
	struct ps_fill *fill = arg;
	void *scratch = NULL;

	{
		PS_LOCK_SCOPE(&fill->lock);
		for (unsigned i = 0; i < PS_DISK_THREADS && !scratch; i++)
			scratch = ps_steal_ptr(&fill->disk_scratch[i]);
	}
	for (;;) {
		struct ps_slot *slot;
		{
			PS_LOCK_SCOPE(&fill->lock);
			while (ps_list_empty(&fill->disk_queue) && !fill->stopping)
				pthread_cond_wait(&fill->disk_cond, &fill->lock);
			if (ps_list_empty(&fill->disk_queue))
				break;
			slot = PS_CONTAINER_OF(fill->disk_queue.next, struct ps_slot, link);
			ps_list_remove(&slot->link);
			fill->ndisk_busy++;
		}
		/* A slot stays in its place once it is queued here. */
		if (slot->buf)
			write_slot(fill, slot);
		else
			verify_block(fill, slot, scratch);
		{
			PS_LOCK_SCOPE(&fill->lock);
			fill->ndisk_busy--;
		}
		ps_fill_pump(fill); /* a buffer may have come back */
	}
	free(scratch);
	return NULL;
}

void ps_writeback_queue(struct ps_fill *fill, struct ps_slot *slot)
{
	PS_LOCK_SCOPE(&fill->lock);
	slot->file->refs++;
	slot->file->nparked++;
	ps_list_append(&fill->disk_queue, &slot->link);
	pthread_cond_signal(&fill->disk_cond);
}

int ps_writeback_start(struct ps_fill *fill)
{
	for (; fill->ndisk_threads < PS_DISK_THREADS; fill->ndisk_threads++) {
		void **scratch = &fill->disk_scratch[fill->ndisk_threads];

		if (posix_memalign(scratch, 4096, PS_BLOCK_SIZE) != 0)
			return -ENOMEM;
		int rc = ps_thread_start(&fill->disk_threads[fill->ndisk_threads], "fill-disk", disk_main, fill);
		if (rc < 0) {
			free(ps_steal_ptr(scratch));
			return rc;
		}
	}
	return 0;
}

void ps_writeback_stop(struct ps_fill *fill)
{
	{
		PS_LOCK_SCOPE(&fill->lock);
		fill->stopping = true;
		pthread_cond_broadcast(&fill->disk_cond);
	}
	for (unsigned i = 0; i < fill->ndisk_threads; i++)
		pthread_join(fill->disk_threads[i], NULL);
	fill->ndisk_threads = 0;
}
