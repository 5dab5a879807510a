/* The disk side of the fill engine: whole blocks are written, unverified ones checked, by a few threads of
 * their own, so that neither a transfer nor a reader waits for the disk. What the disk does not take is held
 * in memory. */
#include "fetch/fill_private.h"

#include <errno.h>

/* A kept block has no reference of its file: it goes with the last one. The engine's lock is held, the file's
 * taken below it. */
static void drop_kept(struct ps_fill *fill, struct ps_slot *slot)
{
	struct ps_fill_file *file = slot->file;

	ps_list_remove(&slot->link);
	fill->nkept--;
	PS_LOCK_SCOPE(&file->lock);
	ps_slot_free(slot);
}

void ps_writeback_drop_kept(struct ps_fill *fill, struct ps_fill_file *file)
{
	for (struct ps_list *l = fill->kept.next, *next; l != &fill->kept; l = next) {
		struct ps_slot *slot = PS_CONTAINER_OF(l, struct ps_slot, link);

		next = l->next;
		if (!file || slot->file == file)
			drop_kept(fill, slot);
	}
}

static bool was_read(struct ps_slot *slot)
{
	PS_LOCK_SCOPE(&slot->file->lock);
	return slot->read;
}

/* A block that is on disk now stays in memory for a reader who is behind, a quarter of the budget at most. The
 * caller has a reference of the file. */
static void keep(struct ps_fill *fill, struct ps_slot *slot)
{
	uint64_t max_kept = ps_budget_limit_bytes(fill->budget) / PS_BLOCK_SIZE / 4;

	PS_LOCK_SCOPE(&fill->lock);
	{
		PS_LOCK_SCOPE(&slot->file->lock);
		slot->state = PS_SLOT_KEPT;
	}
	ps_list_append(&fill->kept, &slot->link);
	fill->nkept++;
	for (struct ps_list *l = fill->kept.next, *next; l != &fill->kept; l = next) {
		struct ps_slot *old = PS_CONTAINER_OF(l, struct ps_slot, link);

		next = l->next;
		if (fill->nkept > max_kept || was_read(old))
			drop_kept(fill, old);
	}
}

/* The same for a block that is not on disk, whose file is to be put without the lock. */
static bool drop_held(struct ps_fill *fill, struct ps_fill_file **ret_unref)
{
	if (ps_list_empty(&fill->held))
		return false;
	struct ps_slot *slot = PS_CONTAINER_OF(fill->held.next, struct ps_slot, link);
	struct ps_fill_file *file = slot->file;

	ps_list_remove(&slot->link);
	fill->nheld--;
	{
		PS_LOCK_SCOPE(&file->lock);
		ps_slot_free(slot);
	}
	*ret_unref = file;
	return true;
}

bool ps_writeback_reclaim(struct ps_fill *fill, struct ps_fill_file **ret_unref)
{
	*ret_unref = NULL;
	if (ps_list_empty(&fill->kept))
		return drop_held(fill, ret_unref);
	drop_kept(fill, PS_CONTAINER_OF(fill->kept.next, struct ps_slot, link));
	return true;
}

/* Keeps a whole block that is not on disk. Half of the budget at most: the rest is for what still comes. */
static void hold(struct ps_fill *fill, struct ps_slot *slot)
{
	uint64_t max_held = ps_budget_limit_bytes(fill->budget) / PS_BLOCK_SIZE / 2;

	for (;;) {
		struct ps_fill_file *unref = NULL;
		{
			PS_LOCK_SCOPE(&fill->lock);
			if (slot) {
				ps_list_append(&fill->held, &slot->link);
				fill->nheld++;
				if (slot->file->draining)
					pthread_cond_broadcast(&fill->files_cond);
				slot = NULL;
			}
			if (fill->nheld <= max_held || !drop_held(fill, &unref))
				return;
		}
		ps_fill_file_put(unref);
	}
}

static void write_block(struct ps_fill *fill, struct ps_slot *slot)
{
	struct ps_fill_file *file = slot->file;
	int rc = ps_object_admit(file->object);

	if (rc == 0)
		rc = ps_object_write_block(file->object, slot->block, slot->buf->data);
	if (rc == 0) {
		keep(fill, slot);
		ps_fill_file_put(file);
		return;
	}
	{
		PS_LOCK_SCOPE(&file->lock);
		slot->state = PS_SLOT_HELD;
	}
	hold(fill, slot);
}

static void verify_block(struct ps_fill *fill, struct ps_slot *slot, void *scratch)
{
	struct ps_fill_file *file = slot->file;
	uint64_t block = slot->block;
	struct ps_list ready;
	bool wanted;

	ps_list_init(&ready);
	int rc = ps_object_verify_block(file->object, block, scratch);
	{
		PS_LOCK_SCOPE(&file->lock);
		ps_slot_free(slot);
		ps_fill_collect(file, block, block + 1, &ready);
		wanted = ps_fill_has_waiter(file, block);
	}
	if (rc < 0)
		ps_log_warning("verify: %s: block %llu is damaged on disk; fetching it again",
		        ps_object_url(file->object), (unsigned long long)block);
	ps_fill_answer(fill, &ready);
	if (wanted && ps_object_block(file->object, block) == PS_BLOCK_ABSENT)
		ps_fill_demand(file, block);
	ps_fill_file_put(file);
}

static void *disk_main(void *arg)
{
	struct ps_fill *fill = arg;
	void *scratch = NULL;

	pthread_setname_np(pthread_self(), "fill-disk");
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
		/* A slot's state changes no more once it is queued here. */
		if (slot->buf)
			write_block(fill, slot);
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
	ps_list_append(&fill->disk_queue, &slot->link);
	pthread_cond_signal(&fill->disk_cond);
}

void ps_writeback_drop_held(struct ps_fill *fill, struct ps_origin *origin)
{
	for (;;) {
		struct ps_fill_file *file = NULL;
		{
			PS_LOCK_SCOPE(&fill->lock);
			for (struct ps_list *l = fill->held.next; l != &fill->held && !file; l = l->next) {
				struct ps_slot *slot = PS_CONTAINER_OF(l, struct ps_slot, link);

				if (origin && slot->file->origin != origin)
					continue;
				file = slot->file;
				ps_list_remove(l);
				fill->nheld--;
				PS_LOCK_SCOPE(&file->lock);
				ps_slot_free(slot);
				break;
			}
		}
		if (!file)
			return;
		ps_fill_file_put(file);
	}
}

int ps_writeback_start(struct ps_fill *fill)
{
	for (; fill->ndisk_threads < PS_DISK_THREADS; fill->ndisk_threads++) {
		void **scratch = &fill->disk_scratch[fill->ndisk_threads];

		if (posix_memalign(scratch, 4096, PS_BLOCK_SIZE) != 0)
			return -ENOMEM;
		int rc = pthread_create(&fill->disk_threads[fill->ndisk_threads], NULL, disk_main, fill);

		if (rc != 0) {
			free(ps_steal_ptr(scratch));
			return -rc;
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
