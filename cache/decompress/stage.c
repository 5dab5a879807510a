/* The stage: its threads, and what they decide. They choose what serves a get, what follows a
 * decompressor's turn, and which decompressors end to make room. The ladder of the files is in
 * decompress_private.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "base/thread.h"
#include "decompress/decompress_private.h"

/* The lock is held in all functions up to "Beginning and end". */

/* Room --------------------------------------------------------------------------------------------------- */

static void kill_decompressor(struct ps_decompressor *decompressor)
{
	decompressor->kill = true;
	ps_decompressor_wake(decompressor);
}

/* Ends less useful decompressors, because `decompressor` (NULL: a new one) found no memory or no place. They
 * end soon, and then wake_all() is called. */
static void make_room(struct ps_decompress *stage, const struct ps_decompressor *decompressor)
{
	bool works = false;

	stage->wanting = true;
	for (int round = 0; round < 2; round++) {
		PS_LIST_EACH (struct ps_decompressing, shard, &stage->shards, link) {
			PS_LIST_EACH (struct ps_decompressor, other, &shard->decompressors, link) {
				bool idles = other->state == PS_DECOMPRESSOR_IDLE;
				bool waits = other->state == PS_DECOMPRESSOR_MEMORY;

				if (other == decompressor)
					continue;
				works = works || (!waits && !idles);
				/* A decompressor that waits for memory, too, is ended only if no
				 * decompressor is at work that would give memory back. */
				if (idles || (waits && decompressor && round == 1 && !works))
					kill_decompressor(other);
			}
		}
	}
}

/* A place and memory became free. */
static void wake_all(struct ps_decompress *stage)
{
	stage->wanting = false; /* until a decompressor finds no room again */
	PS_LIST_EACH (struct ps_decompressing, shard, &stage->shards, link) {
		if (!ps_list_empty(&shard->gets) || shard->sizing != PS_SIZING_NO)
			ps_decompressing_wake(shard);
		PS_LIST_EACH (struct ps_decompressor, decompressor, &shard->decompressors, link) {
			if (decompressor->state == PS_DECOMPRESSOR_MEMORY)
				ps_decompressor_wake(decompressor);
		}
	}
}

/* What serves a get -------------------------------------------------------------------------------------- */

/* Three things may serve a get: a decompressor that is on its way to the get's bytes, the data file (a
 * decompressor may have written these bytes since the engine submitted the get), or a new decompressor. */

/* Copies from the buffers of decompressors that are not RUNNING. A RUNNING one copies at its next step. */
static void copy_from_buffers(struct ps_decompressing *shard, struct ps_waiting_get *waiting)
{
	PS_LIST_EACH (struct ps_decompressor, decompressor, &shard->decompressors, link) {
		const struct ps_out *out = &decompressor->out;
		uint64_t from = PS_MAX(out->from, out->base);

		if (decompressor->sizes)
			continue;
		if (decompressor->state == PS_DECOMPRESSOR_RUNNING)
			decompressor->asked = true;
		else if (from < out->safe)
			ps_waiting_get_copy(waiting, from, out->safe, out->data + (from - out->base));
	}
}

/* A decompressor that has the byte at `plain`, or is on its way to it: it decodes its whole stretch
 * (spans), or it has reached `start`, the last known beginning of a frame at or before the byte. */
static struct ps_decompressor *on_its_way(struct ps_decompressing *shard, uint64_t plain, uint64_t start)
{
	PS_LIST_EACH (struct ps_decompressor, decompressor, &shard->decompressors, link) {
		const struct ps_out *out = &decompressor->out;

		if (decompressor->kill || decompressor->state == PS_DECOMPRESSOR_ENDING ||
		        plain < PS_MAX(out->from, out->base) || plain >= decompressor->end)
			continue;
		if (decompressor->spans || start <= PS_MAX(out->pos, out->from))
			return decompressor;
	}
	return NULL;
}

/* Starts a decompressor at the frame in which the gap begins. False: impossible now. */
static bool begin_decompressor(struct ps_decompressing *shard, const struct ps_range *gap)
{
	struct ps_decompress *stage = shard->stage;
	struct ps_frame_map *map = &shard->map;
	struct ps_decompressor *decompressor = NULL;
	unsigned n = 0;

	if (map->n == 0)
		ps_frame_map_add(map, 0, 0);
	if (map->n == 0)
		return false;
	PS_LIST_EACH (struct ps_decompressor, other, &shard->decompressors, link)
		n += other->state != PS_DECOMPRESSOR_ENDING;
	if (n > stage->nthreads) {
		make_room(stage, NULL);
		return false;
	}
	size_t i = ps_frame_map_find(map, gap->from), e = i + 1;
	if (e == map->n) {
		decompressor = ps_decompressor_new(shard, map->points[i], shard->source.size, UINT64_MAX);
	} else {
		while (e + 1 < map->n && map->points[e].plain < gap->end &&
		        map->points[e].plain - map->points[i].plain < PS_SPAN_NBYTES &&
		        !on_its_way(shard, map->points[e].plain, map->points[e].plain))
			e++;
		decompressor = ps_decompressor_new(
		        shard, map->points[i], map->points[e].packed, map->points[e].plain);
		/* A long frame is decoded to its end if the cache admits the file; otherwise only as far as
		 * a get needs it. */
		if (decompressor)
			decompressor->spans =
			        shard->caches || decompressor->end - map->points[i].plain <= PS_HOLD_NBYTES;
	}
	if (!decompressor)
		make_room(stage, NULL);
	return decompressor != NULL;
}

static bool is_stored(struct ps_object *object, uint64_t plain)
{
	uint64_t chunk = plain / PS_CHUNK_SIZE;

	return object && ps_object_chunks(object, chunk / PS_BLOCK_CHUNKS) >> (chunk % PS_BLOCK_CHUNKS) & 1;
}

/* Copies the chunk at `plain` from the store to all gets of the shard. False: the store lacks it or cannot
 * read it. The lock is dropped meanwhile. */
static bool copy_from_store(struct ps_decompressing *shard, uint64_t plain, uint8_t *buf)
{
	struct ps_object *object = ps_decompressing_hold(shard);
	uint64_t offset = plain / PS_CHUNK_SIZE * PS_CHUNK_SIZE;
	size_t n = (size_t)PS_MIN(PS_CHUNK_SIZE, shard->size - offset);
	struct ps_hold hold;
	bool good = false;

	pthread_mutex_unlock(&shard->stage->lock);
	if (ps_object_hold(object, offset, n, &hold) == 0) {
		good = is_stored(object, offset) &&
		       pread(ps_object_fd(object), buf, n, (off_t)offset) == (ssize_t)n;
		ps_object_release(&hold);
	}
	ps_object_put(object);
	pthread_mutex_lock(&shard->stage->lock);
	if (good)
		PS_LIST_EACH (struct ps_waiting_get, waiting, &shard->gets, link)
			ps_waiting_get_copy(waiting, offset, offset + n, buf);
	return good;
}

/* Decides whether the cache admits what is decoded from now on. The lock is dropped meanwhile. */
static void admit(struct ps_decompressing *shard)
{
	if (!shard->object || shard->caches || !ps_list_empty(&shard->decompressors))
		return;
	struct ps_object *object = ps_decompressing_hold(shard);

	pthread_mutex_unlock(&shard->stage->lock);
	bool takes = ps_object_fits(object) && ps_object_admit(object) == 0;
	ps_object_put(object);
	pthread_mutex_lock(&shard->stage->lock);
	shard->caches = takes;
}

enum assigned { ASSIGNED, ASSIGNED_STORE, ASSIGNED_NO_ROOM };

/* Finds or makes a decompressor for each gap of a get. `look`: also looks into the store; for a gap whose
 * first bytes are there, returns ASSIGNED_STORE with their offset in *ret_stored. */
static enum assigned assign_get(
        struct ps_decompressing *shard, struct ps_waiting_get *waiting, bool look, uint64_t *ret_stored)
{
	struct ps_range gap;
	uint64_t at = waiting->get->offset;

	copy_from_buffers(shard, waiting);
	while (ps_waiting_get_gap(waiting, at, &gap)) {
		size_t i = shard->map.n ? ps_frame_map_find(&shard->map, gap.from) : 0;
		uint64_t start = shard->map.n ? shard->map.points[i].plain : 0;
		struct ps_decompressor *decompressor = on_its_way(shard, gap.from, start);

		if (shard->bad.err && gap.from >= shard->bad_range.from && gap.from < shard->bad_range.end &&
		        ps_clock_mono_ns() < shard->bad_until_ns) {
			waiting->err = shard->bad;
			return ASSIGNED;
		}
		if (!decompressor && look && is_stored(shard->object, gap.from)) {
			*ret_stored = gap.from;
			return ASSIGNED_STORE;
		}
		if (decompressor) {
			if (decompressor->state == PS_DECOMPRESSOR_IDLE)
				ps_decompressor_wake(decompressor);
			at = decompressor->end;
		} else if (!begin_decompressor(shard, &gap)) {
			if (shard->stage->ndecompressors > 0)
				return ASSIGNED_NO_ROOM; /* a decompressor that ends wakes the shard */
			ps_error_set(&waiting->err, ENOMEM, "out of memory");
			return ASSIGNED;
		}
	}
	return ASSIGNED;
}

/* Finds or makes decompressors for missing bytes; may drop the lock to read the disk. */
static void assign(struct ps_decompressing *shard)
{
	ps_autofree uint8_t *buf = NULL;
	bool look = true;
again:
	if (shard->aborted || ps_list_empty(&shard->gets))
		return;
	admit(shard);
	PS_LIST_EACH (struct ps_waiting_get, waiting, &shard->gets, link) {
		uint64_t stored = 0;
		enum assigned assigned = assign_get(shard, waiting, look, &stored);

		if (assigned == ASSIGNED_NO_ROOM)
			return;
		if (assigned == ASSIGNED)
			continue;
		look = (buf || (buf = malloc(PS_CHUNK_SIZE))) && copy_from_store(shard, stored, buf);
		goto again; /* the list of gets may have changed */
	}
}

/* What the threads do ------------------------------------------------------------------------------------ */

/* Does a shard's work: frees ended decompressors, continues finding the size, serves gets. */
static void serve(struct ps_decompressing *shard)
{
	struct ps_decompress *stage = shard->stage;

	ps_list_remove(&shard->work_link); /* this function takes over the list's reference */
	if (ps_decompressors_reap(shard))
		wake_all(stage);
	if (ps_size_step(shard))
		make_room(stage, NULL);
	ps_waiting_gets_answer(shard);
	assign(shard);
	ps_waiting_gets_answer(shard); /* gets served from the data file, and failures */
	ps_decompressing_unref(shard);
}

/* A turn of a decompressor, and its consequences. */
static void run(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_decompress *stage = shard->stage;
	struct ps_failure failure = {0};

	ps_list_remove(&decompressor->ready_link);
	decompressor->state = PS_DECOMPRESSOR_RUNNING;
	switch (ps_decompressor_run(decompressor, &failure)) {
	case PS_TURN_GOES_ON:
	case PS_TURN_PARKED:
		return;
	case PS_TURN_NO_ROOM:
		make_room(stage, decompressor);
		return;
	case PS_TURN_KILLED:
		break;
	case PS_TURN_DECODED:
		if (decompressor->sizes)
			ps_size_decoded(decompressor);
		break;
	case PS_TURN_FAILED:
		if (decompressor->sizes)
			ps_size_fail(shard, &failure.err);
		ps_waiting_gets_fail(shard, decompressor->out.safe, failure.end, &failure.err);
		ps_waiting_gets_answer(shard);
		break;
	}
	if (ps_decompressor_end(decompressor))
		wake_all(stage);
}

/* May drop the lock at its end. */
static void tick(struct ps_decompress *stage, uint64_t now_ns)
{
	stage->next_tick_ns = now_ns + PS_DECOMPRESS_TICK_NS;
	PS_LIST_EACH (struct ps_decompressing, shard, &stage->shards, link) {
		PS_LIST_EACH (struct ps_decompressor, decompressor, &shard->decompressors, link) {
			if (decompressor->state == PS_DECOMPRESSOR_RETRY &&
			        now_ns >= decompressor->retry_ns && decompressor->npending == 0)
				ps_decompressor_wake(decompressor);
			else if (decompressor->state == PS_DECOMPRESSOR_IDLE &&
			         now_ns - decompressor->idle_ns > PS_DECOMPRESS_IDLE_NS)
				kill_decompressor(decompressor);
		}
	}
	ps_size_expire(stage, now_ns);
}

static void *stage_main(void *arg)
{
	struct ps_decompress *stage = arg;

	PS_LOCK_SCOPE(&stage->lock);
	while (!stage->stopping) {
		uint64_t now = ps_clock_mono_ns();

		if ((stage->ndecompressors || stage->nwaiters) && now >= stage->next_tick_ns)
			tick(stage, now);
		else if (!ps_list_empty(&stage->work))
			serve(PS_CONTAINER_OF(stage->work.next, struct ps_decompressing, work_link));
		else if (!ps_list_empty(&stage->writes))
			ps_write_run(stage, stage->writes.next);
		else if (!ps_list_empty(&stage->ready))
			run(PS_CONTAINER_OF(stage->ready.next, struct ps_decompressor, ready_link));
		else if (stage->ndecompressors == 0 && stage->nwaiters == 0)
			pthread_cond_wait(&stage->cond, &stage->lock);
		else
			ps_cond_wait_until(&stage->cond, &stage->lock,
			        PS_MAX(stage->next_tick_ns, ps_clock_mono_ns() + PS_NS_PER_MS));
	}
	return NULL;
}

/* Beginning and end -------------------------------------------------------------------------------------- */

void ps_decompress_abort(struct ps_decompress *stage, struct ps_origin *base)
{
	const struct ps_error cancelled = {.err = ECANCELED, .text = "cancelled"};

	PS_LOCK_SCOPE(&stage->lock);
	PS_LIST_EACH (struct ps_decompressing, shard, &stage->shards, link) {
		if (shard->base != base || shard->refs == 0)
			continue;
		shard->aborted = true;
		ps_waiting_gets_fail(shard, 0, UINT64_MAX, &cancelled);
		PS_LIST_EACH (struct ps_decompressor, decompressor, &shard->decompressors, link)
			kill_decompressor(decompressor);
		ps_size_cancel(shard);
		ps_decompressing_wake(shard);
	}
}

void ps_decompress_drain(struct ps_decompress *stage, struct ps_origin *base)
{
	PS_LOCK_SCOPE(&stage->lock);
	for (;;) {
		bool left = false;

		PS_LIST_EACH (struct ps_decompressing, shard, &stage->shards, link)
			left = left || shard->base == base;
		if (!left)
			return;
		pthread_cond_wait(&stage->gone, &stage->lock);
	}
}

int ps_decompress_new(struct ps_store *store, struct ps_fill *fill, struct ps_decompress **ret)
{
	struct ps_decompress *stage = calloc(1, sizeof(*stage));
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!stage)
		return -ENOMEM;
	stage->store = store;
	stage->fill = fill;
	ps_list_init(&stage->shards);
	ps_list_init(&stage->work);
	ps_list_init(&stage->ready);
	ps_list_init(&stage->writes);
	pthread_mutex_init(&stage->lock, NULL);
	ps_cond_init(&stage->cond);
	ps_cond_init(&stage->gone);
	ps_cond_init(&stage->written);
	unsigned nthreads = (unsigned)PS_MIN(PS_MAX(cpus, 2L), (long)PS_ARRAY_LEN(stage->threads));
	int rc = 0;
	while (stage->nthreads < nthreads && rc == 0) {
		rc = ps_thread_start(&stage->threads[stage->nthreads], "decompress", stage_main, stage);
		stage->nthreads += rc == 0;
	}
	if (rc < 0) {
		ps_decompress_free(stage);
		return rc;
	}
	*ret = stage;
	return 0;
}

void ps_decompress_free(struct ps_decompress *stage)
{
	if (!stage)
		return;
	{
		PS_LOCK_SCOPE(&stage->lock);
		stage->stopping = true;
		pthread_cond_broadcast(&stage->cond);
	}
	for (unsigned i = 0; i < stage->nthreads; i++)
		pthread_join(stage->threads[i], NULL);
	ps_spares_drop(stage, 0);
	for (size_t i = 0; i < PS_WRITES_MAX; i++)
		free(stage->write_places[i].data);
	pthread_cond_destroy(&stage->cond);
	pthread_cond_destroy(&stage->gone);
	pthread_cond_destroy(&stage->written);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
}

json_t *ps_decompress_stats(struct ps_decompress *stage)
{
	PS_LOCK_SCOPE(&stage->lock);
	return ps_figures_json(PS_SECTION_inflate, &stage->counters, "{s:I,s:I}", "unpackers",
	        (json_int_t)stage->ndecompressors, "memory_bytes", (json_int_t)stage->used);
}
