/* Wants: what should be fetched, by class; queued here, turned into requests by schedule.c. */
#include "fetch/fill_private.h"

#define WARM_RUN_BLOCKS 8

void ps_want_unqueue(struct ps_want *want)
{
	ps_list_remove(&want->link);
	want->queued = false;
	if (want->cls == PS_WANT_DEMAND)
		want->file->ndemands--;
	if (want->on_heap)
		free(want);
}

bool ps_want_extend(struct ps_want *want, uint64_t from, uint64_t end, unsigned run_blocks)
{
	struct ps_fill *fill = want->file->fill;

	end = PS_MIN(end, ps_object_nblocks(want->file->object)) * PS_BLOCK_CHUNKS;
	from *= PS_BLOCK_CHUNKS;
	PS_LOCK_SCOPE(&fill->lock);
	if (want->file->draining)
		return false;
	/* The beginning of a want that is queued does not move: a read at the end of the file would move
	 * it past the want's end, and blocks that the file does not have would be asked for. */
	if (!want->queued)
		want->next = PS_MAX(want->next, from);
	want->end = PS_MAX(want->end, end);
	want->run_blocks = run_blocks;
	if (want->queued || want->next >= want->end)
		return false;
	want->queued = true;
	want->file->refs++;
	ps_list_append(&fill->wants[want->cls], &want->link);
	return true;
}

void ps_want_cancel(struct ps_want *want)
{
	struct ps_fill *fill = want->file->fill;
	{
		PS_LOCK_SCOPE(&fill->lock);
		want->next = want->end = 0;
		if (!want->queued)
			return;
		ps_want_unqueue(want);
	}
	ps_fill_file_put(want->file);
}

bool ps_want_is_vain(enum ps_want_class cls, struct ps_fill_file *file)
{
	return cls >= PS_WANT_NEXT && ps_object_gone(file->object);
}

/* Returns what they referred to, for a put without the lock. */
static size_t take_vain(struct ps_fill *fill, enum ps_want_class cls, struct ps_fill_file **ret, size_t cap)
{
	size_t n = 0;

	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_list *l = fill->wants[cls].next, *next; l != &fill->wants[cls] && n < cap; l = next) {
		struct ps_want *want = PS_CONTAINER_OF(l, struct ps_want, link);

		next = l->next;
		if (!ps_want_is_vain(cls, want->file))
			continue;
		ret[n++] = want->file;
		ps_want_unqueue(want);
	}
	return n;
}

/* Wants of evicted files are dropped: they would wait for memory whose holders wait in turn for the room
 * that the evicted files still take. */
void ps_want_drop_vain(struct ps_fill *fill)
{
	struct ps_fill_file *unref[64];
	size_t n;

	for (int cls = PS_WANT_NEXT; cls < PS_WANT_CLASSES; cls++) {
		do {
			n = take_vain(fill, (enum ps_want_class)cls, unref, PS_ARRAY_LEN(unref));
			for (size_t i = 0; i < n; i++)
				ps_fill_file_put(unref[i]);
		} while (n == PS_ARRAY_LEN(unref));
	}
}

/* What a reader wants beside what is queued already becomes one request with it. The engine's lock is held.
 */
static bool join_demand(struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	struct ps_list *queue = &file->fill->wants[PS_WANT_DEMAND];

	for (struct ps_list *l = queue->prev; file->ndemands && l != queue; l = l->prev) {
		struct ps_want *want = PS_CONTAINER_OF(l, struct ps_want, link);
		uint64_t first = PS_MIN(from, want->next), last = PS_MAX(end, want->end);

		if (want->file != file)
			continue;
		if (from > want->end + PS_RUN_BRIDGE_CHUNKS || want->next > end + PS_RUN_BRIDGE_CHUNKS ||
		        (last - 1) / PS_BLOCK_CHUNKS - first / PS_BLOCK_CHUNKS >= PS_RUN_MAX_BLOCKS)
			continue;
		want->next = first;
		want->end = last;
		return true;
	}
	return false;
}

void ps_fill_demand(struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	struct ps_want *want = malloc(sizeof *want);
	bool on_heap = want;

	PS_LOCK_SCOPE(&file->fill->lock);
	if (file->draining || join_demand(file, from, end)) {
		free(want);
		return;
	}
	if (!want && file->spare.queued) {
		/* No memory for a second one either: of what is between them only that is requested for
		 * which a reader waits, a stretch at a time. */
		file->spare.next = PS_MIN(file->spare.next, from);
		file->spare.end = PS_MAX(file->spare.end, end);
		return;
	}
	if (!want)
		want = &file->spare;
	ps_want_init(want, file, PS_WANT_DEMAND);
	want->next = from;
	want->end = end;
	want->run_blocks = PS_RUN_MAX_BLOCKS;
	want->on_heap = on_heap;
	want->queued = true;
	want->queued_ns = ps_clock_mono_ns();
	file->refs++;
	file->ndemands++;
	ps_list_append(&file->fill->wants[PS_WANT_DEMAND], &want->link);
}

bool ps_want_warm(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->fill->lock);
	/* Asked for again, it begins again: what failed meanwhile is tried once more. */
	file->warm.next = 0;
	file->warm.end = ps_object_nblocks(file->object) * PS_BLOCK_CHUNKS;
	file->warm.run_blocks = WARM_RUN_BLOCKS;
	if (file->draining || file->warm.queued || file->warm.end == 0)
		return false;
	file->warm.queued = true;
	file->refs++;
	ps_list_append(&file->fill->wants[PS_WANT_WARM], &file->warm.link);
	return true;
}

/* Wants of this origin go; what they referred to is returned for a put without the lock. */
static size_t take_of_origin(
        struct ps_fill *fill, struct ps_origin *origin, struct ps_fill_file **ret, size_t cap)
{
	size_t n = 0;

	PS_LOCK_SCOPE(&fill->lock);
	for (size_t c = 0; c < PS_ARRAY_LEN(fill->wants); c++) {
		for (struct ps_list *l = fill->wants[c].next, *next; l != &fill->wants[c] && n < cap;
		        l = next) {
			struct ps_want *want = PS_CONTAINER_OF(l, struct ps_want, link);

			next = l->next;
			if (!ps_origin_is(want->file->origin, origin))
				continue;
			ret[n++] = want->file;
			ps_want_unqueue(want);
		}
	}
	return n;
}

void ps_want_drop_of_origin(struct ps_fill *fill, struct ps_origin *origin)
{
	struct ps_fill_file *unref[64];
	size_t n;

	do {
		n = take_of_origin(fill, origin, unref, PS_ARRAY_LEN(unref));
		for (size_t i = 0; i < n; i++)
			ps_fill_file_put(unref[i]);
	} while (n > 0);
}
