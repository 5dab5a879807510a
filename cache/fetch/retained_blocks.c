/* Blocks that stay in memory behind the disk threads. KEPT: they are on disk, but a reader is on its way to
 * them, and the disk has enough to do with writing. HELD: the disk did not take them, and is asked again
 * every second. Both go when memory is needed. */
#include "fetch/fill_private.h"

#define RETRY_NS PS_NS_PER_S /* cheap where nothing has changed: the store remembers a refusal as long */
#define STALE_NS (10 * PS_NS_PER_S) /* a reader who has not come by then is not on its way */

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

void ps_keep_drop(struct ps_fill *fill, struct ps_fill_file *file)
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

void ps_keep_drop_stale(struct ps_fill *fill, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&fill->lock);
	while (!ps_list_empty(&fill->kept)) {
		struct ps_slot *slot = PS_CONTAINER_OF(fill->kept.next, struct ps_slot, link);

		if (now_ns < slot->kept_ns + STALE_NS)
			return;
		drop_kept(fill, slot);
	}
}

/* No more than a stream's window: half of the budget. Beyond that the newest goes, which its reader reaches
 * last: the oldest is the one that it needs next. */
void ps_keep_written(struct ps_fill *fill, struct ps_slot *slot)
{
	uint64_t max_kept = ps_budget_limit_bytes(fill->budget) / PS_BLOCK_SIZE / 2;

	PS_LOCK_SCOPE(&fill->lock);
	slot->kept_ns = ps_clock_mono_ns();
	ps_list_append(&fill->kept, &slot->link);
	fill->nkept++;
	for (struct ps_list *l = fill->kept.next, *next; l != &fill->kept; l = next) {
		struct ps_slot *old = PS_CONTAINER_OF(l, struct ps_slot, link);

		next = l->next;
		if (was_read(old) || (old == slot && (fill->nkept > max_kept || !old->awaited)))
			drop_kept(fill, old);
	}
}

/* Takes a block off the list of those that are held; its memory goes, unless more of it is in flight: then
 * the disk is asked again when that is over. The engine's lock is held; the slot's reference is the caller's.
 */
static struct ps_fill_file *drop_held(struct ps_fill *fill, struct ps_slot *slot)
{
	struct ps_fill_file *file = slot->file;

	ps_list_remove(&slot->link);
	fill->nheld--;
	file->nparked--;
	PS_LOCK_SCOPE(&file->lock);
	if (slot->flight)
		slot->place = PS_PLACE_NONE;
	else
		ps_slot_free(slot);
	return file;
}

bool ps_keep_reclaim(struct ps_fill *fill, struct ps_fill_file **ret_unref)
{
	*ret_unref = NULL;
	if (!ps_list_empty(&fill->kept))
		drop_kept(fill, PS_CONTAINER_OF(fill->kept.prev, struct ps_slot, link));
	else if (!ps_list_empty(&fill->held))
		*ret_unref = drop_held(fill, PS_CONTAINER_OF(fill->held.next, struct ps_slot, link));
	else
		return false;
	return true;
}

/* Blocks of an evicted object that nobody reads any more: no disk will take them, and no other file serves
 * them, while the object that they keep takes its room in the cache. The engine's lock is held. */
static bool is_vain(struct ps_fill_file *file)
{
	return file->refs == file->nparked && ps_object_gone(file->object);
}

/* Half of the budget at most: the rest is for what still comes. */
void ps_keep_held(struct ps_fill *fill, struct ps_slot *slot)
{
	uint64_t max_held = ps_budget_limit_bytes(fill->budget) / PS_BLOCK_SIZE / 2;
	struct ps_fill_file *unref;
	bool full;
	{
		PS_LOCK_SCOPE(&fill->lock);
		ps_list_append(&fill->held, &slot->link);
		fill->nheld++;
		if (slot->file->draining)
			pthread_cond_broadcast(&fill->files_cond);
		unref = is_vain(slot->file) ? drop_held(fill, slot) : NULL;
	}
	do {
		ps_fill_file_put(unref);
		unref = NULL;
		PS_LOCK_SCOPE(&fill->lock);
		full = fill->nheld > max_held;
		if (full)
			unref = drop_held(fill, PS_CONTAINER_OF(fill->held.next, struct ps_slot, link));
	} while (full);
}

bool ps_keep_retry_held(struct ps_fill *fill, uint64_t now_ns)
{
	bool any = false;

	PS_LOCK_SCOPE(&fill->lock);
	if (fill->stopping || now_ns < fill->held_retry_ns)
		return false;
	fill->held_retry_ns = now_ns + RETRY_NS;
	for (struct ps_list *l = fill->held.next, *next; l != &fill->held; l = next) {
		struct ps_slot *slot = PS_CONTAINER_OF(l, struct ps_slot, link);

		next = l->next;
		if (slot->file->draining)
			continue;
		ps_list_remove(&slot->link);
		fill->nheld--;
		{
			PS_LOCK_SCOPE(&slot->file->lock);
			slot->place = PS_PLACE_DISK;
		}
		ps_list_append(&fill->disk_queue, &slot->link); /* with its reference of the file */
		any = true;
	}
	if (any)
		pthread_cond_broadcast(&fill->disk_cond);
	return any;
}

void ps_keep_drop_held(struct ps_fill *fill, struct ps_origin *origin)
{
	for (;;) {
		struct ps_fill_file *file = NULL;
		{
			PS_LOCK_SCOPE(&fill->lock);
			for (struct ps_list *l = fill->held.next; l != &fill->held && !file; l = l->next) {
				struct ps_slot *slot = PS_CONTAINER_OF(l, struct ps_slot, link);

				if (origin && !ps_origin_is(slot->file->origin, origin))
					continue;
				file = drop_held(fill, slot);
				break;
			}
		}
		if (!file)
			return;
		ps_fill_file_put(file);
	}
}
