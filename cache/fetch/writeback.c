/* The disk side of the fill engine: what arrived of a block is written, unverified ones are checked, by a few
 * threads of their own, so that neither a transfer nor a reader waits for the disk. What the disk does not
 * take is held in memory. */
#include "fetch/fill_private.h"

#include <errno.h>

/* Writes the given chunks: the block as one if that is all of it, else what of it came. */
static int write_chunks(struct ps_slot *slot, const struct ps_block_memory *buf, uint16_t set)
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

/* False: the slot is held, and with it its reference of the file. */
static bool write_slot(struct ps_fill *fill, struct ps_slot *slot)
{
	struct ps_fill_file *file = slot->file;
	struct ps_block_memory *buf = slot->memory; /* stays while the slot is here */
	struct ps_list again;
	bool whole = false;
	uint16_t set;

	ps_list_init(&again);
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
			ps_slot_settle(slot, &again); /* more came meanwhile; else it is gone, or in flight */
		} else {
			slot->place = PS_PLACE_HELD;
		}
	}
	if (rc < 0) {
		ps_keep_held(fill, slot);
		return false;
	}
	if (whole)
		ps_keep_written(fill, slot);
	ps_writeback_queue(fill, &again);
	return true;
}

static void verify_block(struct ps_slot *slot, void *scratch, struct ps_outcome *outcome)
{
	struct ps_fill_file *file = slot->file;
	uint64_t block = slot->block;

	int rc = ps_object_verify_block(file->object, block, scratch);
	{
		PS_LOCK_SCOPE(&file->lock);
		ps_slot_free(slot);
		ps_waiters_look(file, block * PS_BLOCK_SIZE, (block + 1) * PS_BLOCK_SIZE, outcome);
	}
	if (rc < 0) /* the store has told why */
		ps_log_debug("verify: %s: block %llu: what was bad is missing now",
		        ps_object_url(file->object), (unsigned long long)block);
}

struct ps_slot *ps_writeback_next(struct ps_fill *fill)
{
	PS_LOCK_SCOPE(&fill->lock);
	while (ps_list_empty(&fill->disk_queue) && !fill->stopping)
		pthread_cond_wait(&fill->disk_cond, &fill->lock);
	if (ps_list_empty(&fill->disk_queue))
		return NULL;
	struct ps_slot *slot = PS_CONTAINER_OF(fill->disk_queue.next, struct ps_slot, link);

	ps_list_remove(&slot->link);
	fill->ndisk_busy++;
	return slot;
}

struct ps_fill_file *ps_writeback_do(
        struct ps_fill *fill, struct ps_slot *slot, void *scratch, struct ps_outcome *outcome)
{
	struct ps_fill_file *file = slot->file;
	bool referenced = true;

	/* A slot stays in its place once it is queued here. */
	if (slot->memory)
		referenced = write_slot(fill, slot);
	else
		verify_block(slot, scratch, outcome);
	PS_LOCK_SCOPE(&fill->lock);
	fill->ndisk_busy--;
	if (referenced)
		file->nparked--;
	return referenced ? file : NULL;
}

void ps_writeback_queue(struct ps_fill *fill, struct ps_list *slots)
{
	if (ps_list_empty(slots))
		return;
	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_list *l = slots->next; l != slots; l = l->next) {
		struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_slot, link)->file;

		file->refs++;
		file->nparked++;
		pthread_cond_signal(&fill->disk_cond);
	}
	ps_list_splice(&fill->disk_queue, slots);
}
