/* Slots: what of a block is in memory or on its way, chunk by chunk. The file's lock is held in all of this.
 */
#include "fetch/fill_private.h"

#include <string.h>

struct ps_slot *ps_slot_new(struct ps_fill_file *file, uint64_t block)
{
	struct ps_slot *slot = calloc(1, sizeof *slot);

	if (!slot)
		return NULL;
	slot->file = file;
	slot->block = block;
	ps_list_init(&slot->link);
	file->slots[block] = slot;
	return slot;
}

void ps_slot_free(struct ps_slot *slot)
{
	slot->file->slots[slot->block] = NULL;
	ps_buf_unref(slot->buf);
	free(slot);
}

/* Nothing of it is in memory any more. */
static void drop_memory(struct ps_slot *slot)
{
	ps_buf_unref(slot->buf);
	slot->buf = NULL;
	slot->whole = slot->stored = 0;
	memset(slot->have, 0, sizeof slot->have);
}

struct ps_slot *ps_slot_find(struct ps_fill_file *file, uint64_t block, uint64_t now_ns)
{
	struct ps_slot *slot = file->slots[block];

	if (!slot || !slot->failed || slot->failed_until_ns > now_ns)
		return slot;
	slot->failed = 0;
	if (slot->buf || slot->place != PS_PLACE_NONE)
		return slot;
	ps_slot_free(slot);
	return NULL;
}

uint16_t ps_slot_missing(struct ps_fill_file *file, uint64_t block, uint64_t now_ns)
{
	const struct ps_slot *slot = ps_slot_find(file, block, now_ns);
	enum ps_block_state state = ps_file_block(file, block);

	if (state == PS_BLOCK_PRESENT || state == PS_BLOCK_UNVERIFIED ||
	        (slot && slot->place == PS_PLACE_VERIFY))
		return 0;
	uint16_t missing = ps_chunks_of_block(file, block) & (uint16_t)~ps_file_chunks(file, block);
	return slot ? missing & (uint16_t) ~(slot->flight | slot->whole | slot->failed) : missing;
}

bool ps_slot_settle(struct ps_slot *slot)
{
	if (slot->flight)
		return false;
	if (slot->whole & ~slot->stored) {
		if (slot->place != PS_PLACE_NONE)
			return false; /* it is looked at again when the disk threads are through with it */
		slot->place = PS_PLACE_DISK;
		return true;
	}
	if (slot->place == PS_PLACE_NONE && slot->failed)
		drop_memory(slot);
	else if (slot->place == PS_PLACE_NONE)
		ps_slot_free(slot);
	return false;
}

/* A request that failed part of the way, or whose end nobody waited for, leaves `have` in the middle of a
 * chunk; the next one begins that chunk anew. */
void ps_slot_release(struct ps_slot *slot, unsigned chunk)
{
	slot->flight &= (uint16_t) ~(1u << chunk);
	slot->have[chunk] = 0;
}

void ps_slot_fail(struct ps_slot *slot, uint16_t chunks, int errnum, uint64_t until_ns)
{
	slot->failed |= chunks;
	slot->errnum = errnum;
	slot->failed_until_ns = until_ns;
}
