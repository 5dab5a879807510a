/* Demands: ranges to be fetched, by class. They are queued here, and schedule.c turns them into requests. */
#include "fetch/fill_private.h"

/* A queue's key: pre-empted or not, then the number of requests. */
#define PREEMPTED_KEY (UINT64_C(1) << 32)

static uint64_t key_of(const struct ps_fill_file *file)
{
	return (file->npreempted ? PREEMPTED_KEY : 0) + file->nrequests;
}

static void take_place(struct ps_file_demands *demands, enum ps_demand_class cls)
{
	demands->since_ns = ps_clock_mono_ns();
	ps_tree_insert(&demands->file->fill->queues[cls], &demands->place, key_of(demands->file));
}

void ps_demand_requeue(struct ps_fill_file *file)
{
	for (int cls = 0; cls < PS_DEMAND_CLASSES; cls++) {
		struct ps_file_demands *demands = &file->demands[cls];

		if (!ps_tree_is_linked(&demands->place) || demands->place.key == key_of(file))
			continue;
		ps_tree_remove(&file->fill->queues[cls], &demands->place);
		take_place(demands, (enum ps_demand_class)cls);
	}
}

/* Takes a reference of the file for the demand. */
static void enqueue(struct ps_demand *demand)
{
	struct ps_fill_file *file = demand->file;
	struct ps_file_demands *demands = &file->demands[demand->cls];

	demand->queued = true;
	file->refs++;
	ps_list_append(&demands->demands, &demand->link);
	if (demand->cls == PS_DEMAND_READ) {
		file->nread_demands++;
		ps_tree_insert(&file->read_demands, &demand->place, demand->next);
	}
	if (!ps_tree_is_linked(&demands->place))
		take_place(demands, demand->cls);
}

void ps_demand_unqueue(struct ps_demand *demand)
{
	struct ps_fill_file *file = demand->file;
	struct ps_file_demands *demands = &file->demands[demand->cls];

	ps_list_remove(&demand->link);
	demand->queued = false;
	if (demand->cls == PS_DEMAND_READ) {
		file->nread_demands--;
		ps_tree_remove(&file->read_demands, &demand->place);
	}
	if (ps_list_empty(&demands->demands))
		ps_tree_remove(&file->fill->queues[demand->cls], &demands->place);
	if (demand->on_heap)
		free(demand);
}

/* Sets the first chunk of a queued demand. */
static void set_next(struct ps_demand *demand, uint64_t next)
{
	if (demand->cls == PS_DEMAND_READ && demand->next != next) {
		ps_tree_remove(&demand->file->read_demands, &demand->place);
		ps_tree_insert(&demand->file->read_demands, &demand->place, next);
	}
	demand->next = next;
}

void ps_demand_take(struct ps_demand *demand, uint64_t next)
{
	if (next >= demand->end) {
		demand->next = next;
		ps_demand_unqueue(demand); /* the turn takes over its reference */
		return;
	}
	set_next(demand, next);
	ps_list_remove(&demand->link);
	ps_list_append(&demand->file->demands[demand->cls].demands, &demand->link);
	demand->file->refs++;
}

static struct ps_fill_file *file_of(const struct ps_tree_item *place)
{
	return place ? PS_CONTAINER_OF(place, struct ps_file_demands, place)->file : NULL;
}

struct ps_fill_file *ps_demand_first_file(
        const struct ps_fill *fill, enum ps_demand_class cls, bool preempted)
{
	struct ps_fill_file *file = file_of(ps_tree_from(&fill->queues[cls], preempted ? PREEMPTED_KEY : 0));

	return file && !preempted && file->npreempted ? NULL : file;
}

unsigned ps_demand_count_starving(const struct ps_fill *fill, uint64_t since_ns, unsigned cap)
{
	const uint64_t none[] = {0, PREEMPTED_KEY}; /* keys of files without a request */
	unsigned n = 0;

	for (size_t i = 0; i < PS_ARRAY_LEN(none); i++) {
		const struct ps_tree_item *item = ps_tree_from(&fill->queues[PS_DEMAND_READ], none[i]);

		/* Files with the same key are in the order of their arrival. */
		for (; item && item->key == none[i] && n < cap; item = ps_tree_next(item)) {
			const struct ps_file_demands *demands =
			        PS_CONTAINER_OF(item, struct ps_file_demands, place);

			if (demands->since_ns > since_ns)
				break;
			n += demands->file->nread_demands;
		}
	}
	return PS_MIN(n, cap);
}

bool ps_demand_extend(struct ps_demand *demand, uint64_t from, uint64_t end, uint64_t together)
{
	struct ps_fill *fill = demand->file->fill;

	end = PS_MIN(end, ps_object_nblocks(demand->file->object) * PS_BLOCK_CHUNKS);
	PS_LOCK_SCOPE(&fill->lock);
	if (demand->file->draining)
		return false;
	/* The beginning of a queued demand does not move: a read at the end of the file would move it past
	 * the demand's end, and blocks beyond the file would be requested. */
	if (!demand->queued)
		demand->next = PS_MAX(demand->next, from);
	demand->end = PS_MAX(demand->end, end);
	demand->together = together;
	if (demand->queued || demand->next >= demand->end)
		return false;
	enqueue(demand);
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

bool ps_demand_is_queued(struct ps_demand *demand)
{
	PS_LOCK_SCOPE(&demand->file->fill->lock);
	return demand->queued;
}

bool ps_demand_is_vain(enum ps_demand_class cls, struct ps_fill_file *file)
{
	return cls >= PS_DEMAND_NEXT && ps_object_gone(file->object);
}

/* Takes demands of this origin, or (NULL) vain ones, off the queue of a class, at most `cap`. ret[] gets their
 * references of files, which the caller puts without the lock. */
static size_t take_of(struct ps_fill *fill, enum ps_demand_class cls, const struct ps_origin *origin,
        struct ps_fill_file **ret, size_t cap)
{
	size_t n = 0;

	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_tree_item *item = ps_tree_first(&fill->queues[cls]), *next; item; item = next) {
		struct ps_fill_file *file = file_of(item);
		const struct ps_list *demands = &file->demands[cls].demands;

		next = ps_tree_next(item);
		if (!(origin ? ps_origin_is(file->origin, origin) : ps_demand_is_vain(cls, file)))
			continue;
		for (; n < cap && !ps_list_empty(demands); n++) {
			ret[n] = file;
			ps_demand_unqueue(PS_CONTAINER_OF(demands->next, struct ps_demand, link));
		}
	}
	return n;
}

void ps_demand_drop(struct ps_fill *fill, const struct ps_origin *origin)
{
	struct ps_fill_file *unref[64];
	size_t n;

	for (int cls = origin ? 0 : PS_DEMAND_NEXT; cls < PS_DEMAND_CLASSES; cls++) {
		do {
			n = take_of(fill, (enum ps_demand_class)cls, origin, unref, PS_ARRAY_LEN(unref));
			for (size_t i = 0; i < n; i++)
				ps_fill_file_put(unref[i]);
		} while (n == PS_ARRAY_LEN(unref));
	}
}

/* Joins the chunks that a reader lacks with a queued demand beside them, so that they become one request.
 * The engine's lock is held. */
static bool join_demand(struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	/* A demand that begins before `soonest` is too short to reach the range. */
	uint64_t soonest = from - PS_MIN(from, (uint64_t)PS_REQUEST_MAX_CHUNKS + PS_REQUEST_BRIDGE_CHUNKS);

	for (struct ps_tree_item *item = ps_tree_from(&file->read_demands, soonest);
	        item && item->key <= end + PS_REQUEST_BRIDGE_CHUNKS; item = ps_tree_next(item)) {
		struct ps_demand *demand = PS_CONTAINER_OF(item, struct ps_demand, place);
		uint64_t first = PS_MIN(from, demand->next), last = PS_MAX(end, demand->end);

		if (from > demand->end + PS_REQUEST_BRIDGE_CHUNKS ||
		        (last - 1) / PS_BLOCK_CHUNKS - first / PS_BLOCK_CHUNKS >= PS_REQUEST_MAX_BLOCKS)
			continue;
		set_next(demand, first);
		demand->end = last;
		return true;
	}
	return false;
}

void ps_fill_demand(struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	struct ps_demand *demand = malloc(sizeof(*demand));
	bool on_heap = demand;

	PS_LOCK_SCOPE(&file->fill->lock);
	if (file->draining || join_demand(file, from, end)) {
		free(demand);
		return;
	}
	if (!demand && file->spare.queued) {
		/* There is no memory for another demand, and the spare one is in use: it is extended to
		 * cover both ranges. Of the chunks between them, only those that a reader waits for are
		 * requested. */
		set_next(&file->spare, PS_MIN(file->spare.next, from));
		file->spare.end = PS_MAX(file->spare.end, end);
		return;
	}
	if (!demand)
		demand = &file->spare;
	ps_demand_init(demand, file, PS_DEMAND_READ);
	demand->next = from;
	demand->end = end;
	demand->on_heap = on_heap;
	enqueue(demand);
}

bool ps_demand_warm(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->fill->lock);
	/* A repeated call begins again at chunk 0, so that failed chunks are tried once more. */
	file->warm.next = 0;
	file->warm.end = ps_object_nblocks(file->object) * PS_BLOCK_CHUNKS;
	if (file->draining || file->warm.queued || file->warm.end == 0)
		return false;
	enqueue(&file->warm);
	return true;
}
