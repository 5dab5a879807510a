/* Demands: what should be fetched, by class; queued here, turned into requests by schedule.c. */
#include "fetch/fill_private.h"

#define WARM_REQUEST_BLOCKS 8

void ps_demand_unqueue(struct ps_demand *demand)
{
	ps_list_remove(&demand->link);
	demand->queued = false;
	if (demand->cls == PS_DEMAND_READ)
		demand->file->ndemands--;
	if (demand->on_heap)
		free(demand);
}

bool ps_demand_extend(struct ps_demand *demand, uint64_t from, uint64_t end, unsigned request_blocks)
{
	struct ps_fill *fill = demand->file->fill;

	end = PS_MIN(end, ps_object_nblocks(demand->file->object)) * PS_BLOCK_CHUNKS;
	from *= PS_BLOCK_CHUNKS;
	PS_LOCK_SCOPE(&fill->lock);
	if (demand->file->draining)
		return false;
	/* The beginning of a demand that is queued does not move: a read at the end of the file would move
	 * it past the demand's end, and blocks that the file does not have would be asked for. */
	if (!demand->queued)
		demand->next = PS_MAX(demand->next, from);
	demand->end = PS_MAX(demand->end, end);
	demand->request_blocks = request_blocks;
	if (demand->queued || demand->next >= demand->end)
		return false;
	demand->queued = true;
	demand->file->refs++;
	ps_list_append(&fill->demands[demand->cls], &demand->link);
	return true;
}

void ps_demand_cancel(struct ps_demand *demand)
{
	struct ps_fill *fill = demand->file->fill;
	{
		PS_LOCK_SCOPE(&fill->lock);
		demand->next = demand->end = 0;
		if (!demand->queued)
			return;
		ps_demand_unqueue(demand);
	}
	ps_fill_file_put(demand->file);
}

bool ps_demand_is_vain(enum ps_demand_class cls, struct ps_fill_file *file)
{
	return cls >= PS_DEMAND_NEXT && ps_object_gone(file->object);
}

/* Returns what they referred to, for a put without the lock. */
static size_t take_vain(struct ps_fill *fill, enum ps_demand_class cls, struct ps_fill_file **ret, size_t cap)
{
	size_t n = 0;

	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_list *l = fill->demands[cls].next, *next; l != &fill->demands[cls] && n < cap;
	        l = next) {
		struct ps_demand *demand = PS_CONTAINER_OF(l, struct ps_demand, link);

		next = l->next;
		if (!ps_demand_is_vain(cls, demand->file))
			continue;
		ret[n++] = demand->file;
		ps_demand_unqueue(demand);
	}
	return n;
}

/* Demands of evicted files are dropped: they would wait for memory whose holders wait in turn for the room
 * that the evicted files still take. */
void ps_demand_drop_vain(struct ps_fill *fill)
{
	struct ps_fill_file *unref[64];
	size_t n;

	for (int cls = PS_DEMAND_NEXT; cls < PS_DEMAND_CLASSES; cls++) {
		do {
			n = take_vain(fill, (enum ps_demand_class)cls, unref, PS_ARRAY_LEN(unref));
			for (size_t i = 0; i < n; i++)
				ps_fill_file_put(unref[i]);
		} while (n == PS_ARRAY_LEN(unref));
	}
}

/* Chunks that a reader lacks beside a queued demand join it, and become one request. The engine's lock is
 * held. */
static bool join_demand(struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	struct ps_list *queue = &file->fill->demands[PS_DEMAND_READ];

	for (struct ps_list *l = queue->prev; file->ndemands && l != queue; l = l->prev) {
		struct ps_demand *demand = PS_CONTAINER_OF(l, struct ps_demand, link);
		uint64_t first = PS_MIN(from, demand->next), last = PS_MAX(end, demand->end);

		if (demand->file != file)
			continue;
		if (from > demand->end + PS_REQUEST_BRIDGE_CHUNKS ||
		        demand->next > end + PS_REQUEST_BRIDGE_CHUNKS ||
		        (last - 1) / PS_BLOCK_CHUNKS - first / PS_BLOCK_CHUNKS >= PS_REQUEST_MAX_BLOCKS)
			continue;
		demand->next = first;
		demand->end = last;
		return true;
	}
	return false;
}

void ps_fill_demand(struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	struct ps_demand *demand = malloc(sizeof *demand);
	bool on_heap = demand;

	PS_LOCK_SCOPE(&file->fill->lock);
	if (file->draining || join_demand(file, from, end)) {
		free(demand);
		return;
	}
	if (!demand && file->spare.queued) {
		/* No memory for a second one either: of what is between them only that is requested for
		 * which a reader waits, a stretch at a time. */
		file->spare.next = PS_MIN(file->spare.next, from);
		file->spare.end = PS_MAX(file->spare.end, end);
		return;
	}
	if (!demand)
		demand = &file->spare;
	ps_demand_init(demand, file, PS_DEMAND_READ);
	demand->next = from;
	demand->end = end;
	demand->request_blocks = PS_REQUEST_MAX_BLOCKS;
	demand->on_heap = on_heap;
	demand->queued = true;
	demand->queued_ns = ps_clock_mono_ns();
	file->refs++;
	file->ndemands++;
	ps_list_append(&file->fill->demands[PS_DEMAND_READ], &demand->link);
}

bool ps_demand_warm(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->fill->lock);
	/* Asked for again, it begins again: what failed meanwhile is tried once more. */
	file->warm.next = 0;
	file->warm.end = ps_object_nblocks(file->object) * PS_BLOCK_CHUNKS;
	file->warm.request_blocks = WARM_REQUEST_BLOCKS;
	if (file->draining || file->warm.queued || file->warm.end == 0)
		return false;
	file->warm.queued = true;
	file->refs++;
	ps_list_append(&file->fill->demands[PS_DEMAND_WARM], &file->warm.link);
	return true;
}

/* Demands of this origin go; what they referred to is returned for a put without the lock. */
static size_t take_of_origin(
        struct ps_fill *fill, struct ps_origin *origin, struct ps_fill_file **ret, size_t cap)
{
	size_t n = 0;

	PS_LOCK_SCOPE(&fill->lock);
	for (size_t c = 0; c < PS_ARRAY_LEN(fill->demands); c++) {
		for (struct ps_list *l = fill->demands[c].next, *next; l != &fill->demands[c] && n < cap;
		        l = next) {
			struct ps_demand *demand = PS_CONTAINER_OF(l, struct ps_demand, link);

			next = l->next;
			if (!ps_origin_is(demand->file->origin, origin))
				continue;
			ret[n++] = demand->file;
			ps_demand_unqueue(demand);
		}
	}
	return n;
}

void ps_demand_drop_of_origin(struct ps_fill *fill, struct ps_origin *origin)
{
	struct ps_fill_file *unref[64];
	size_t n;

	do {
		n = take_of_origin(fill, origin, unref, PS_ARRAY_LEN(unref));
		for (size_t i = 0; i < n; i++)
			ps_fill_file_put(unref[i]);
	} while (n > 0);
}
