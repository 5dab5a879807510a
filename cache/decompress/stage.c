#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "base/thread.h"
#include "decompress/decompress_private.h"

/* Who serves a get ----------------------------------------------------------------------------------- */

/* Who serves which get: a decompressor that is on its way there, the data file (another decompressor may have
 * written meanwhile what the engine asked for before), or a new decompressor. */

/* What stays in the buffer of a decompressor that does not run. */
static void give_kept(struct ps_decompressing *inflater, struct ps_part *part)
{
	for (struct ps_list *l = inflater->decompressors.next; l != &inflater->decompressors; l = l->next) {
		struct ps_decompressor *decompressor = PS_CONTAINER_OF(l, struct ps_decompressor, link);
		const struct ps_out *out = &decompressor->out;
		uint64_t from = PS_MAX(out->from, out->base);

		if (decompressor->sizes)
			continue;
		if (decompressor->state == PS_DECOMPRESSOR_RUNNING)
			decompressor->asked = true;
		else if (from < out->safe)
			ps_part_give(part, from, out->safe, out->data + (from - out->base));
	}
}

/* A decompressor that has the byte, or comes to it without passing a better place to begin. */
static struct ps_decompressor *on_its_way(struct ps_decompressing *inflater, uint64_t plain, uint64_t start)
{
	for (struct ps_list *l = inflater->decompressors.next; l != &inflater->decompressors; l = l->next) {
		struct ps_decompressor *decompressor = PS_CONTAINER_OF(l, struct ps_decompressor, link);
		const struct ps_out *out = &decompressor->out;

		if (decompressor->kill || decompressor->state == PS_DECOMPRESSOR_ENDING ||
		        plain < PS_MAX(out->from, out->base) || plain >= decompressor->end)
			continue;
		if (decompressor->spans || start <= PS_MAX(out->pos, out->from))
			return decompressor;
	}
	return NULL;
}

static unsigned count_decompressors(const struct ps_decompressing *inflater)
{
	unsigned n = 0;

	for (const struct ps_list *l = inflater->decompressors.next; l != &inflater->decompressors; l = l->next)
		n += PS_CONTAINER_OF(l, struct ps_decompressor, link)->state != PS_DECOMPRESSOR_ENDING;
	return n;
}

/* False: not now. */
static bool begin_decompressor(struct ps_decompressing *inflater, const struct ps_range *gap)
{
	struct ps_decompress *inflate = inflater->inflate;
	struct ps_frame_map *map = &inflater->map;
	struct ps_decompressor *decompressor = NULL;

	if (map->n == 0)
		ps_frame_map_add(map, 0, 0);
	if (map->n == 0)
		return false;
	if (count_decompressors(inflater) > inflate->nthreads) {
		ps_decompress_make_room(inflate, NULL);
		return false;
	}
	size_t i = ps_frame_map_find(map, gap->from), e = i + 1;
	if (e == map->n) {
		decompressor = ps_decompressor_new(inflater, map->points[i], inflater->source.size, UINT64_MAX);
	} else {
		while (e + 1 < map->n && map->points[e].plain < gap->end &&
		        map->points[e].plain - map->points[i].plain < PS_SPAN_NBYTES &&
		        !on_its_way(inflater, map->points[e].plain, map->points[e].plain))
			e++;
		decompressor = ps_decompressor_new(
		        inflater, map->points[i], map->points[e].packed, map->points[e].plain);
		/* A long frame is decoded to its end if the cache takes the file; else only as far as
		 * somebody reads. */
		if (decompressor)
			decompressor->spans =
			        inflater->caches || decompressor->end - map->points[i].plain <= PS_HOLD_NBYTES;
	}
	if (!decompressor)
		ps_decompress_make_room(inflate, NULL);
	return decompressor != NULL;
}

/* The chunk at `plain`, if the store has it. The lock is dropped meanwhile. */
static bool read_stored(struct ps_decompressing *inflater, uint64_t plain, uint8_t *buf, size_t *ret_n)
{
	struct ps_object *object = ps_decompressing_hold(inflater);
	uint64_t chunk = plain / PS_CHUNK_SIZE, offset = chunk * PS_CHUNK_SIZE;
	size_t n = (size_t)PS_MIN(PS_CHUNK_SIZE, inflater->size - offset);
	struct ps_hold hold;
	bool good = false;

	pthread_mutex_unlock(&inflater->inflate->lock);
	if (ps_object_hold(object, offset, n, &hold) == 0) {
		good = ps_object_chunks(object, chunk / PS_BLOCK_CHUNKS) >> (chunk % PS_BLOCK_CHUNKS) & 1 &&
		       pread(ps_object_fd(object), buf, n, (off_t)offset) == (ssize_t)n;
		ps_object_release(&hold);
	}
	ps_object_put(object);
	pthread_mutex_lock(&inflater->inflate->lock);
	*ret_n = n;
	return good;
}

static bool is_stored(struct ps_decompressing *inflater, uint64_t plain)
{
	uint64_t chunk = plain / PS_CHUNK_SIZE;

	return inflater->object &&
	       ps_object_chunks(inflater->object, chunk / PS_BLOCK_CHUNKS) >> (chunk % PS_BLOCK_CHUNKS) & 1;
}

static bool is_bad(const struct ps_decompressing *inflater, const struct ps_range *gap)
{
	return inflater->bad.err && gap->from >= inflater->bad_range.from &&
	       gap->from < inflater->bad_range.end && ps_clock_mono_ns() < inflater->bad_until_ns;
}

/* The cache takes it, or does not: asked once for all that comes to be decoded now. The lock is dropped
 * meanwhile. */
static void admit(struct ps_decompressing *inflater)
{
	if (!inflater->object || inflater->caches || !ps_list_empty(&inflater->decompressors))
		return;
	struct ps_object *object = ps_decompressing_hold(inflater);

	pthread_mutex_unlock(&inflater->inflate->lock);
	bool takes = ps_object_fits(object) && ps_object_admit(object) == 0;
	ps_object_put(object);
	pthread_mutex_lock(&inflater->inflate->lock);
	inflater->caches = takes;
}

enum found { FOUND_SERVED, FOUND_STORED, FOUND_NO_ROOM };

/* One gap after the other of a part; *ret_stored: of which the store has the beginning. */
static enum found plan_part(
        struct ps_decompressing *inflater, struct ps_part *part, bool look, uint64_t *ret_stored)
{
	struct ps_range gap;
	uint64_t at = part->get->offset;

	give_kept(inflater, part);
	while (ps_part_gap(part, at, &gap)) {
		size_t i = inflater->map.n ? ps_frame_map_find(&inflater->map, gap.from) : 0;
		uint64_t start = inflater->map.n ? inflater->map.points[i].plain : 0;
		struct ps_decompressor *decompressor = on_its_way(inflater, gap.from, start);

		if (is_bad(inflater, &gap)) {
			part->err = inflater->bad;
			return FOUND_SERVED;
		}
		if (!decompressor && look && is_stored(inflater, gap.from)) {
			*ret_stored = gap.from;
			return FOUND_STORED;
		}
		if (decompressor) {
			if (decompressor->state == PS_DECOMPRESSOR_IDLE)
				ps_decompressor_wake(decompressor);
			at = decompressor->end;
		} else if (!begin_decompressor(inflater, &gap)) {
			if (inflater->inflate->ndecompressors > 0)
				return FOUND_NO_ROOM; /* whoever ends wakes us */
			ps_error_set(&part->err, ENOMEM, "out of memory");
			return FOUND_SERVED;
		}
	}
	return FOUND_SERVED;
}

/* Finds or makes decompressors for what is missing; may drop the lock to read the disk. */
static void ps_decompressing_plan(struct ps_decompressing *inflater)
{
	ps_autofree uint8_t *buf = NULL;
	bool look = true;
again:
	if (inflater->aborted || ps_list_empty(&inflater->parts))
		return;
	admit(inflater);
	for (struct ps_list *l = inflater->parts.next; l != &inflater->parts; l = l->next) {
		uint64_t stored = 0;
		size_t n;
		enum found found =
		        plan_part(inflater, PS_CONTAINER_OF(l, struct ps_part, link), look, &stored);

		if (found == FOUND_NO_ROOM)
			return;
		if (found != FOUND_STORED)
			continue;
		if (!buf && !(buf = malloc(PS_CHUNK_SIZE))) {
			look = false;
			goto again;
		}
		look = read_stored(inflater, stored, buf, &n);
		uint64_t offset = stored / PS_CHUNK_SIZE * PS_CHUNK_SIZE;
		/* Whatever has become of the parts meanwhile. */
		for (struct ps_list *p = inflater->parts.next; look && p != &inflater->parts; p = p->next)
			ps_part_give(PS_CONTAINER_OF(p, struct ps_part, link), offset, offset + n, buf);
		goto again;
	}
}

/* Memory, places, threads ---------------------------------------------------------------------------- */

/* The stage: its memory, its places for decompressors, its threads. */

#define TICK_NS (100 * PS_NS_PER_MS)

/* Memory ----------------------------------------------------------------------------------------- */

/* What is there, wanted or spare. */
static uint64_t held(const struct ps_decompress *inflate)
{
	return inflate->used + inflate->spare_nbytes + inflate->nfree_pieces * PS_PIECE_NBYTES;
}

bool ps_decompress_reserve(struct ps_decompress *inflate, uint64_t nbytes)
{
	if (inflate->used + nbytes > inflate->limit)
		return false;
	inflate->used += nbytes;
	if (held(inflate) > inflate->limit)
		ps_spares_drop(inflate, 0);
	return true;
}

void ps_decompress_release(struct ps_decompress *inflate, uint64_t nbytes)
{
	inflate->used -= nbytes;
}

uint8_t *ps_spare_take(struct ps_decompress *inflate, size_t cap)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->spares); i++) {
		struct ps_spare *spare = &inflate->spares[i];

		if (spare->data && spare->cap == cap) {
			inflate->spare_nbytes -= cap;
			return ps_steal_ptr(&spare->data);
		}
	}
	return NULL;
}

void ps_spare_put(struct ps_decompress *inflate, uint8_t *data, size_t cap)
{
	struct ps_spare *place = NULL;

	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->spares) && !place; i++)
		if (!inflate->spares[i].data)
			place = &inflate->spares[i];
	if (!data || !place || held(inflate) + cap > inflate->limit) {
		free(data);
		return;
	}
	*place = (struct ps_spare){.data = data, .cap = cap};
	inflate->spare_nbytes += cap;
}

void ps_spares_drop(struct ps_decompress *inflate, size_t keep)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->spares); i++) {
		struct ps_spare *spare = &inflate->spares[i];

		if (!spare->data || spare->cap <= keep)
			continue;
		inflate->spare_nbytes -= spare->cap;
		free(ps_steal_ptr(&spare->data));
	}
	while (keep < PS_PIECE_NBYTES && inflate->free_pieces) {
		struct ps_packed_piece *piece = inflate->free_pieces;

		inflate->free_pieces = piece->next_free;
		inflate->nfree_pieces--;
		free(piece->data);
		free(piece);
	}
}

void ps_decompress_make_room(struct ps_decompress *inflate, const struct ps_decompressor *decompressor)
{
	bool works = false;

	inflate->wanting = true;
	for (int round = 0; round < 2; round++) {
		for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
			struct ps_decompressing *inflater = PS_CONTAINER_OF(l, struct ps_decompressing, link);

			for (struct ps_list *s = inflater->decompressors.next; s != &inflater->decompressors;
			        s = s->next) {
				struct ps_decompressor *other = PS_CONTAINER_OF(s, struct ps_decompressor, link);
				bool waits = other->state == PS_DECOMPRESSOR_MEMORY;

				if (other == decompressor)
					continue;
				works = works || (!waits && other->state != PS_DECOMPRESSOR_IDLE);
				/* Unpackers that wait for memory themselves are ended only where nobody
				 * else is at work who would give some back. */
				if (other->state == PS_DECOMPRESSOR_IDLE ||
				        (waits && decompressor && round == 1 && !works))
					ps_decompressor_kill(other);
			}
		}
	}
}

void ps_decompress_take_memory(struct ps_decompress *inflate)
{
	struct ps_budget *budget = ps_fill_budget(inflate->fill);

	if (inflate->limit)
		return;
	uint64_t least = 4 * PS_DECOMPRESSOR_NBYTES;
	inflate->limit = PS_MAX(ps_budget_limit_bytes(budget) / 3, least);
	ps_budget_give_up(
	        budget, inflate->limit + PS_WRITES_MAX * PS_BLOCK_SIZE + PS_WALKS_MAX * PS_WALK_NBYTES);
	inflate->max_decompressors = (unsigned)PS_MIN(
	        PS_MAX(inflate->limit / 2 / PS_DECOMPRESSOR_NBYTES, UINT64_C(1)), 2 * inflate->nthreads + 2);
}

void ps_decompress_watch(struct ps_decompress *inflate, unsigned *count)
{
	/* Threads sleep without a limit while there is nothing to watch, and now there is something. All
	 * are woken: the one that is signalled for other work may go and decode for long. */
	if (inflate->ndecompressors + inflate->nwaiters == 0) {
		inflate->next_tick_ns = ps_clock_mono_ns() + TICK_NS;
		pthread_cond_broadcast(&inflate->cond);
	}
	(*count)++;
}

/* Waking ----------------------------------------------------------------------------------------- */

void ps_decompressing_wake(struct ps_decompressing *inflater)
{
	struct ps_decompress *inflate = inflater->inflate;

	/* One whose last user is gone is being freed, though it may be in the list until the lock is had again. */
	if (inflater->refs == 0 || !ps_list_empty(&inflater->work_link))
		return;
	inflater->refs++;
	ps_list_append(&inflate->work, &inflater->work_link);
	pthread_cond_signal(&inflate->cond);
}

void ps_decompressor_wake(struct ps_decompressor *decompressor)
{
	struct ps_decompress *inflate = decompressor->inflater->inflate;

	if (decompressor->state == PS_DECOMPRESSOR_READY || decompressor->state == PS_DECOMPRESSOR_RUNNING ||
	        decompressor->state == PS_DECOMPRESSOR_ENDING)
		return;
	decompressor->state = PS_DECOMPRESSOR_READY;
	ps_list_append(&inflate->ready, &decompressor->run_link);
	pthread_cond_signal(&inflate->cond);
}

void ps_decompress_wake_all(struct ps_decompress *inflate)
{
	inflate->wanting = false; /* who finds no room this time says so */
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_decompressing *inflater = PS_CONTAINER_OF(l, struct ps_decompressing, link);

		if (!ps_list_empty(&inflater->parts) || inflater->sizing != PS_SIZING_NO)
			ps_decompressing_wake(inflater);
		for (struct ps_list *s = inflater->decompressors.next; s != &inflater->decompressors; s = s->next) {
			struct ps_decompressor *decompressor = PS_CONTAINER_OF(s, struct ps_decompressor, link);

			if (decompressor->state == PS_DECOMPRESSOR_MEMORY)
				ps_decompressor_wake(decompressor);
		}
	}
}

/* Threads ---------------------------------------------------------------------------------------- */

static void tick_decompressor(struct ps_decompressor *decompressor, uint64_t now_ns)
{
	if (decompressor->state == PS_DECOMPRESSOR_RETRY && now_ns >= decompressor->retry_ns &&
	        decompressor->npending == 0) {
		ps_input_again(decompressor);
		ps_decompressor_wake(decompressor);
	} else if (decompressor->state == PS_DECOMPRESSOR_IDLE &&
	        now_ns - decompressor->idle_ns > PS_DECOMPRESS_IDLE_NS) {
		ps_decompressor_kill(decompressor);
	}
}

/* The lock is held; it may be dropped by answering those whose time is up. */
static void tick(struct ps_decompress *inflate, uint64_t now_ns)
{
	inflate->next_tick_ns = now_ns + TICK_NS;
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_decompressing *inflater = PS_CONTAINER_OF(l, struct ps_decompressing, link);

		for (struct ps_list *s = inflater->decompressors.next, *next; s != &inflater->decompressors;
		        s = next) {
			next = s->next;
			tick_decompressor(PS_CONTAINER_OF(s, struct ps_decompressor, link), now_ns);
		}
	}
	ps_size_expire(inflate, now_ns);
}

static void serve(struct ps_decompressing *inflater)
{
	ps_list_remove(&inflater->work_link);
	ps_decompressors_reap(inflater);
	ps_size_step(inflater);
	ps_parts_settle(inflater);
	ps_decompressing_plan(inflater);
	ps_parts_settle(inflater); /* what the plan found on disk, or could not have */
	ps_decompressing_unref(inflater);
}

/* The lock is held. */
static void wait_for_work(struct ps_decompress *inflate)
{
	if (inflate->ndecompressors == 0 && inflate->nwaiters == 0) {
		pthread_cond_wait(&inflate->cond, &inflate->lock);
		return;
	}
	ps_cond_wait_until(&inflate->cond, &inflate->lock,
	        PS_MAX(inflate->next_tick_ns, ps_clock_mono_ns() + PS_NS_PER_MS));
}

bool ps_decompress_is_due(const struct ps_decompress *inflate)
{
	return inflate->stopping || !ps_list_empty(&inflate->work) || !ps_list_empty(&inflate->ready) ||
	       ps_clock_mono_ns() >= inflate->next_tick_ns;
}

static void *inflate_main(void *arg)
{
	struct ps_decompress *inflate = arg;

	PS_LOCK_SCOPE(&inflate->lock);
	while (!inflate->stopping) {
		uint64_t now = ps_clock_mono_ns();

		if ((inflate->ndecompressors || inflate->nwaiters) && now >= inflate->next_tick_ns) {
			tick(inflate, now);
		} else if (!ps_list_empty(&inflate->work)) {
			serve(PS_CONTAINER_OF(inflate->work.next, struct ps_decompressing, work_link));
		} else if (!ps_list_empty(&inflate->writes)) {
			ps_write_run(inflate, inflate->writes.next);
		} else if (!ps_list_empty(&inflate->ready)) {
			struct ps_decompressor *decompressor =
			        PS_CONTAINER_OF(inflate->ready.next, struct ps_decompressor, run_link);

			ps_list_remove(&decompressor->run_link);
			decompressor->state = PS_DECOMPRESSOR_RUNNING;
			pthread_mutex_unlock(&inflate->lock);
			ps_decompressor_run(decompressor);
			pthread_mutex_lock(&inflate->lock);
		} else {
			wait_for_work(inflate);
		}
	}
	return NULL;
}

/* Beginning and end ------------------------------------------------------------------------------ */

/* The lock is held. */
static void abort_one(struct ps_decompressing *inflater)
{
	const struct ps_error cancelled = {.err = ECANCELED, .text = "cancelled"};

	inflater->aborted = true;
	ps_parts_fail(inflater, 0, UINT64_MAX, &cancelled);
	for (struct ps_list *s = inflater->decompressors.next, *next; s != &inflater->decompressors; s = next) {
		next = s->next;
		ps_decompressor_kill(PS_CONTAINER_OF(s, struct ps_decompressor, link));
	}
	ps_headers_cancel(inflater);
	ps_decompressing_wake(inflater);
}

void ps_decompress_abort(struct ps_decompress *inflate, struct ps_origin *base)
{
	PS_LOCK_SCOPE(&inflate->lock);
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_decompressing *inflater = PS_CONTAINER_OF(l, struct ps_decompressing, link);

		if (inflater->base == base && inflater->refs > 0)
			abort_one(inflater);
	}
}

void ps_decompress_drain(struct ps_decompress *inflate, struct ps_origin *base)
{
	PS_LOCK_SCOPE(&inflate->lock);
	for (;;) {
		bool left = false;

		for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next)
			left = left || PS_CONTAINER_OF(l, struct ps_decompressing, link)->base == base;
		if (!left)
			return;
		pthread_cond_wait(&inflate->gone, &inflate->lock);
	}
}

int ps_decompress_new(struct ps_store *store, struct ps_fill *fill, struct ps_decompress **ret)
{
	struct ps_decompress *inflate = calloc(1, sizeof *inflate);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!inflate)
		return -ENOMEM;
	inflate->store = store;
	inflate->fill = fill;
	ps_list_init(&inflate->inflaters);
	ps_list_init(&inflate->work);
	ps_list_init(&inflate->ready);
	ps_list_init(&inflate->writes);
	pthread_mutex_init(&inflate->lock, NULL);
	ps_cond_init(&inflate->cond);
	ps_cond_init(&inflate->gone);
	ps_cond_init(&inflate->written);
	unsigned want = (unsigned)PS_MIN(PS_MAX(cpus, 2L), (long)PS_ARRAY_LEN(inflate->threads));
	int rc = 0;
	while (inflate->nthreads < want && rc == 0) {
		rc = ps_thread_start(&inflate->threads[inflate->nthreads], "inflate", inflate_main, inflate);
		inflate->nthreads += rc == 0;
	}
	if (rc < 0) {
		ps_decompress_free(inflate);
		return rc;
	}
	*ret = inflate;
	return 0;
}

void ps_decompress_free(struct ps_decompress *inflate)
{
	if (!inflate)
		return;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		inflate->stopping = true;
		pthread_cond_broadcast(&inflate->cond);
	}
	for (unsigned i = 0; i < inflate->nthreads; i++)
		pthread_join(inflate->threads[i], NULL);
	ps_spares_drop(inflate, 0);
	pthread_cond_destroy(&inflate->cond);
	ps_writes_fini(inflate);
	pthread_cond_destroy(&inflate->gone);
	pthread_cond_destroy(&inflate->written);
	pthread_mutex_destroy(&inflate->lock);
	free(inflate);
}

json_t *ps_decompress_stats(struct ps_decompress *inflate)
{
	PS_LOCK_SCOPE(&inflate->lock);
	return json_pack("{s:I,s:I,s:I,s:I,s:I}", "unpackers", (json_int_t)inflate->ndecompressors,
	        "memory_bytes", (json_int_t)inflate->used, "plain_bytes",
	        (json_int_t)atomic_load(&inflate->plain_bytes), "packed_bytes",
	        (json_int_t)atomic_load(&inflate->packed_bytes), "errors",
	        (json_int_t)atomic_load(&inflate->errors));
}
