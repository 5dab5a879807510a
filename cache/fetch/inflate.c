/* The stage: its threads, and inflaters as they come and go. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "fetch/inflate_private.h"

#define TICK_NS (100 * PS_NS_PER_MS)
#define VIEW "decoded"

/* Memory ----------------------------------------------------------------------------------------- */

bool ps_inflate_reserve(struct ps_inflate *inflate, uint64_t nbytes)
{
	if (inflate->used + nbytes > inflate->limit)
		return false;
	inflate->used += nbytes;
	return true;
}

void ps_inflate_release(struct ps_inflate *inflate, uint64_t nbytes)
{
	inflate->used -= nbytes;
}

/* A third of the engine's, from now on: the engine's buffers wait for unpackers, so these must not wait for
 * buffers. */
static void take_memory(struct ps_inflate *inflate)
{
	struct ps_budget *budget = ps_fill_budget(inflate->fill);

	if (inflate->limit)
		return;
	uint64_t least = 4 * PS_UNPACKER_NBYTES;
	inflate->limit = PS_MAX(ps_budget_limit_bytes(budget) / 3, least);
	ps_budget_give_up(budget, inflate->limit);
	inflate->max_unpackers = (unsigned)PS_MIN(
	        PS_MAX(inflate->limit / 2 / PS_UNPACKER_NBYTES, UINT64_C(1)), 2 * inflate->nthreads + 2);
}

/* Waking ----------------------------------------------------------------------------------------- */

void ps_inflater_wake(struct ps_inflater *inflater)
{
	struct ps_inflate *inflate = inflater->inflate;

	if (!ps_list_empty(&inflater->work_link))
		return;
	inflater->refs++;
	ps_list_append(&inflate->work, &inflater->work_link);
	pthread_cond_signal(&inflate->cond);
}

void ps_unpacker_wake(struct ps_unpacker *unpacker)
{
	struct ps_inflate *inflate = unpacker->inflater->inflate;

	if (unpacker->state == PS_UNPACKER_READY || unpacker->state == PS_UNPACKER_RUNNING ||
	        unpacker->state == PS_UNPACKER_ENDING)
		return;
	unpacker->state = PS_UNPACKER_READY;
	ps_list_append(&inflate->ready, &unpacker->run_link);
	pthread_cond_signal(&inflate->cond);
}

void ps_inflate_wake_all(struct ps_inflate *inflate)
{
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_inflater *inflater = PS_CONTAINER_OF(l, struct ps_inflater, link);

		if (!ps_list_empty(&inflater->parts) || inflater->sizing != PS_SIZING_NO)
			ps_inflater_wake(inflater);
		for (struct ps_list *s = inflater->unpackers.next; s != &inflater->unpackers; s = s->next) {
			struct ps_unpacker *unpacker = PS_CONTAINER_OF(s, struct ps_unpacker, link);

			if (unpacker->state == PS_UNPACKER_MEMORY)
				ps_unpacker_wake(unpacker);
		}
	}
}

/* Threads ---------------------------------------------------------------------------------------- */

static void tick_unpacker(struct ps_unpacker *unpacker, uint64_t now_ns)
{
	if (unpacker->state == PS_UNPACKER_RETRY && now_ns >= unpacker->retry_ns && unpacker->npending == 0) {
		ps_input_again(unpacker);
		ps_unpacker_wake(unpacker);
	} else if (unpacker->state == PS_UNPACKER_IDLE && now_ns - unpacker->idle_ns > PS_INFLATE_IDLE_NS) {
		ps_unpacker_kill(unpacker);
	}
}

/* The lock is held; it may be dropped by answering those whose time is up. */
static void tick(struct ps_inflate *inflate, uint64_t now_ns)
{
	inflate->next_tick_ns = now_ns + TICK_NS;
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_inflater *inflater = PS_CONTAINER_OF(l, struct ps_inflater, link);

		for (struct ps_list *s = inflater->unpackers.next, *next; s != &inflater->unpackers;
		        s = next) {
			next = s->next;
			tick_unpacker(PS_CONTAINER_OF(s, struct ps_unpacker, link), now_ns);
		}
	}
	ps_size_expire(inflate, now_ns);
}

static void serve(struct ps_inflater *inflater)
{
	ps_list_remove(&inflater->work_link);
	ps_unpackers_reap(inflater);
	ps_size_step(inflater);
	ps_parts_settle(inflater);
	ps_inflater_plan(inflater);
	ps_parts_settle(inflater); /* what the plan found on disk, or could not have */
	ps_inflater_unref(inflater);
}

/* The lock is held. */
static void wait_for_work(struct ps_inflate *inflate)
{
	if (inflate->nunpackers == 0 && inflate->nwaiters == 0) {
		pthread_cond_wait(&inflate->cond, &inflate->lock);
		return;
	}
	uint64_t wake = PS_MAX(inflate->next_tick_ns, ps_clock_mono_ns() + PS_NS_PER_MS);
	struct timespec ts = {.tv_sec = (time_t)(wake / PS_NS_PER_S), .tv_nsec = (long)(wake % PS_NS_PER_S)};

	pthread_cond_timedwait(&inflate->cond, &inflate->lock, &ts);
}

static void *inflate_main(void *arg)
{
	struct ps_inflate *inflate = arg;

	pthread_setname_np(pthread_self(), "inflate");
	PS_LOCK_SCOPE(&inflate->lock);
	while (!inflate->stopping) {
		uint64_t now = ps_clock_mono_ns();

		if ((inflate->nunpackers || inflate->nwaiters) && now >= inflate->next_tick_ns) {
			tick(inflate, now);
		} else if (!ps_list_empty(&inflate->work)) {
			serve(PS_CONTAINER_OF(inflate->work.next, struct ps_inflater, work_link));
		} else if (!ps_list_empty(&inflate->ready)) {
			struct ps_unpacker *unpacker =
			        PS_CONTAINER_OF(inflate->ready.next, struct ps_unpacker, run_link);

			ps_list_remove(&unpacker->run_link);
			unpacker->state = PS_UNPACKER_RUNNING;
			pthread_mutex_unlock(&inflate->lock);
			ps_unpacker_run(unpacker);
			pthread_mutex_lock(&inflate->lock);
		} else {
			wait_for_work(inflate);
		}
	}
	return NULL;
}

/* The index -------------------------------------------------------------------------------------- */

static void id_of(const char *url, const struct ps_remote *source, struct ps_id *ret)
{
	ps_object_id(url, source, VIEW, ret);
}

uint64_t ps_inflate_known_size(
        struct ps_store *store, const char *url, const struct ps_remote *source, uint64_t *ret_nodes_below)
{
	struct ps_view_row row;
	struct ps_id id;

	id_of(url, source, &id);
	*ret_nodes_below = 0;
	if (ps_index_get_view(ps_store_index(store), &id, &row) < 0)
		return PS_SIZE_UNKNOWN;
	*ret_nodes_below = row.nodes_below;
	return row.size;
}

void ps_inflate_forget(struct ps_index_batch *batch, const char *url, const struct ps_remote *source)
{
	struct ps_id id;

	id_of(url, source, &id);
	ps_index_batch_del_view(batch, &id);
}

static int load(struct ps_inflater *inflater)
{
	struct ps_index *index = ps_store_index(inflater->inflate->store);
	ps_autostrbuf struct ps_strbuf bytes = {0};
	struct ps_view_row row;
	int rc = ps_index_get_view(index, &inflater->id, &row);

	if (rc < 0)
		return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
	inflater->size = row.size;
	inflater->declared = row.declared;
	inflater->nodes_below = row.nodes_below;
	if (ps_index_get_frames(index, &inflater->id, &bytes) == 0 &&
	        ps_frame_map_decode(bytes.s, bytes.len, &inflater->map) == 0)
		inflater->nsaved = inflater->map.n;
	return 0;
}

static void save(struct ps_inflater *inflater, const struct ps_view_row *row)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_index_batch *batch = ps_index_batch_new();
	ps_autostrbuf struct ps_strbuf bytes = {0};

	if (inflater->map.n > inflater->nsaved)
		ps_frame_map_encode(&inflater->map, &bytes);
	inflater->nsaved = inflater->map.n;
	ps_index_batch_put_view(batch, &inflater->id, row);
	if (bytes.len && !bytes.failed)
		ps_index_batch_put_frames(batch, &inflater->id, bytes.s, bytes.len);
	pthread_mutex_unlock(&inflate->lock);
	if (ps_index_batch_commit(ps_store_index(inflate->store), batch) < 0)
		ps_log_warning("index: %s: what was found out of it cannot be kept", inflater->url);
	pthread_mutex_lock(&inflate->lock);
}

void ps_inflater_save(struct ps_inflater *inflater)
{
	const struct ps_view_row row = {
	        .size = inflater->size, .declared = inflater->declared, .nodes_below = inflater->nodes_below};

	save(inflater, &row);
}

void ps_inflater_save_disproved(struct ps_inflater *inflater)
{
	const struct ps_view_row row = {.size = PS_SIZE_UNKNOWN, .nodes_below = inflater->nodes_below};

	inflater->disproved = true;
	save(inflater, &row);
}

/* Inflaters -------------------------------------------------------------------------------------- */

static void origin_ref(struct ps_origin *origin)
{
	struct ps_inflater *inflater = (struct ps_inflater *)origin;

	PS_LOCK_SCOPE(&inflater->inflate->lock);
	ps_inflater_ref(inflater);
}

static void origin_unref(struct ps_origin *origin)
{
	ps_inflater_put((struct ps_inflater *)origin);
}

static const struct ps_origin_ops inflater_ops = {
        .name = "inflate",
        .get = ps_inflater_get_bytes,
        .cancel = ps_inflater_cancel,
        .ref = origin_ref,
        .unref = origin_unref,
};

void ps_inflater_ref(struct ps_inflater *inflater)
{
	inflater->refs++;
}

struct ps_object *ps_inflater_hold(struct ps_inflater *inflater)
{
	return inflater->object ? ps_object_ref(inflater->object) : NULL;
}

static void inflater_free(struct ps_inflater *inflater)
{
	if (!inflater)
		return;
	ps_object_put(inflater->object);
	ps_frame_map_fini(&inflater->map);
	free(inflater->headers);
	free(inflater->url);
	free(inflater->object_url);
	free(inflater);
}

void ps_inflater_unref(struct ps_inflater *inflater)
{
	struct ps_inflate *inflate = inflater->inflate;

	if (--inflater->refs > 0)
		return;
	/* Still on the list: a drain waits until the object is back, too. Nobody gets it any more. */
	pthread_mutex_unlock(&inflate->lock);
	ps_object_put(ps_steal_ptr(&inflater->object));
	pthread_mutex_lock(&inflate->lock);
	ps_list_remove(&inflater->link);
	pthread_cond_broadcast(&inflate->gone);
	inflater_free(inflater);
}

void ps_inflater_put(struct ps_inflater *inflater)
{
	if (!inflater)
		return;
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	ps_inflater_unref(inflater);
}

uint64_t ps_inflater_known_size(struct ps_inflater *inflater)
{
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	return inflater->size;
}

struct ps_origin *ps_inflater_origin(struct ps_inflater *inflater)
{
	return &inflater->origin;
}

/* The lock is held. */
static struct ps_inflater *find(
        struct ps_inflate *inflate, const struct ps_origin *base, const struct ps_id *id)
{
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_inflater *inflater = PS_CONTAINER_OF(l, struct ps_inflater, link);

		if (inflater->refs > 0 && !inflater->disproved && inflater->base == base &&
		        memcmp(&inflater->id, id, sizeof *id) == 0)
			return inflater;
	}
	return NULL;
}

static struct ps_inflater *inflater_new(struct ps_inflate *inflate, struct ps_origin *base, const char *url,
        const char *name, const struct ps_remote *source, enum ps_coding coding)
{
	struct ps_inflater *inflater = calloc(1, sizeof *inflater);

	if (!inflater)
		return NULL;
	inflater->origin = (struct ps_origin){.ops = &inflater_ops, .base = base};
	inflater->inflate = inflate;
	inflater->base = base;
	inflater->refs = 1;
	inflater->coding = coding;
	inflater->source = inflater->expect = *source;
	inflater->size = PS_SIZE_UNKNOWN;
	inflater->url = strdup(url);
	/* No URL of an origin has a fragment, so this is nobody else's. */
	if (asprintf(&inflater->object_url, "%s#%s", url, name) < 0)
		inflater->object_url = NULL;
	struct ps_list *lists[] = {
	        &inflater->link, &inflater->work_link, &inflater->parts, &inflater->unpackers};
	for (size_t i = 0; i < PS_ARRAY_LEN(lists); i++)
		ps_list_init(lists[i]);
	id_of(url, source, &inflater->id);
	if (inflater->url && inflater->object_url)
		return inflater;
	inflater_free(inflater);
	return NULL;
}

int ps_inflater_get(struct ps_inflate *inflate, struct ps_origin *base, const char *url, const char *name,
        const struct ps_remote *source, enum ps_coding coding, struct ps_inflater **ret)
{
	struct ps_inflater *made = inflater_new(inflate, base, url, name, source, coding);
	int rc = made ? load(made) : -ENOMEM;

	if (rc < 0) {
		inflater_free(made);
		return rc;
	}
	pthread_mutex_lock(&inflate->lock);
	take_memory(inflate);
	struct ps_inflater *found = find(inflate, base, &made->id);
	if (found) {
		found->refs++;
	} else {
		ps_list_append(&inflate->inflaters, &made->link);
		found = ps_steal_ptr(&made);
	}
	pthread_mutex_unlock(&inflate->lock);
	inflater_free(made);
	*ret = found;
	return 0;
}

int ps_inflater_object(struct ps_inflater *inflater, uint32_t dataset, bool opened, struct ps_object **ret)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_id id = inflater->id;
	char view[64];
	uint64_t size;
	{
		PS_LOCK_SCOPE(&inflate->lock);
		size = inflater->size;
		/* Where the size turns out to be another one, so is the object. */
		if (inflater->declared) {
			snprintf(view, sizeof view, VIEW " %llu", (unsigned long long)size);
			ps_object_id(inflater->url, &inflater->source, view, &id);
		}
	}
	int rc = ps_object_get_view(
	        inflate->store, inflater->object_url, &inflater->source, &id, size, dataset, opened, ret);
	if (rc < 0)
		return rc;
	/* An evicted one lives on with those who have it open; what is decoded from now on goes into the new
	 * one. */
	struct ps_object *spare = ps_object_ref(*ret);
	{
		PS_LOCK_SCOPE(&inflate->lock);
		struct ps_object *old = inflater->object;

		inflater->caches = inflater->caches && old == spare;
		inflater->object = spare;
		spare = old;
		if (!inflater->expect.etag[0])
			ps_object_learned_etag(*ret, inflater->expect.etag);
	}
	ps_object_put(spare);
	return 0;
}

/* Beginning and end ------------------------------------------------------------------------------ */

/* The lock is held. */
static void abort_one(struct ps_inflater *inflater)
{
	const struct ps_error cancelled = {.err = ECANCELED, .text = "cancelled"};

	inflater->aborted = true;
	ps_parts_fail(inflater, 0, UINT64_MAX, &cancelled);
	for (struct ps_list *s = inflater->unpackers.next, *next; s != &inflater->unpackers; s = next) {
		next = s->next;
		ps_unpacker_kill(PS_CONTAINER_OF(s, struct ps_unpacker, link));
	}
	ps_size_abort(inflater);
	ps_inflater_wake(inflater);
}

void ps_inflate_abort(struct ps_inflate *inflate, struct ps_origin *base)
{
	PS_LOCK_SCOPE(&inflate->lock);
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_inflater *inflater = PS_CONTAINER_OF(l, struct ps_inflater, link);

		if (inflater->base == base && inflater->refs > 0)
			abort_one(inflater);
	}
}

void ps_inflate_drain(struct ps_inflate *inflate, struct ps_origin *base)
{
	PS_LOCK_SCOPE(&inflate->lock);
	for (;;) {
		bool left = false;

		for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next)
			left = left || PS_CONTAINER_OF(l, struct ps_inflater, link)->base == base;
		if (!left)
			return;
		pthread_cond_wait(&inflate->gone, &inflate->lock);
	}
}

int ps_inflate_new(struct ps_store *store, struct ps_fill *fill, struct ps_inflate **ret)
{
	struct ps_inflate *inflate = calloc(1, sizeof *inflate);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_condattr_t attr;

	if (!inflate)
		return -ENOMEM;
	inflate->store = store;
	inflate->fill = fill;
	ps_list_init(&inflate->inflaters);
	ps_list_init(&inflate->work);
	ps_list_init(&inflate->ready);
	pthread_mutex_init(&inflate->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&inflate->cond, &attr);
	pthread_cond_init(&inflate->gone, &attr);
	pthread_condattr_destroy(&attr);
	unsigned want = (unsigned)PS_MIN(PS_MAX(cpus, 2L), (long)PS_ARRAY_LEN(inflate->threads));
	int rc = 0;
	while (inflate->nthreads < want && rc == 0) {
		rc = -pthread_create(&inflate->threads[inflate->nthreads], NULL, inflate_main, inflate);
		inflate->nthreads += rc == 0;
	}
	if (rc < 0) {
		ps_inflate_free(inflate);
		return rc;
	}
	*ret = inflate;
	return 0;
}

void ps_inflate_free(struct ps_inflate *inflate)
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
	while (inflate->free_pieces) {
		struct ps_piece *piece = inflate->free_pieces;

		inflate->free_pieces = piece->next_free;
		free(piece->data);
		free(piece);
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->free_out); i++)
		free(inflate->free_out[i]);
	pthread_cond_destroy(&inflate->cond);
	pthread_cond_destroy(&inflate->gone);
	pthread_mutex_destroy(&inflate->lock);
	free(inflate);
}

json_t *ps_inflate_stats(struct ps_inflate *inflate)
{
	PS_LOCK_SCOPE(&inflate->lock);
	return json_pack("{s:I,s:I,s:I,s:I,s:I}", "unpackers", (json_int_t)inflate->nunpackers,
	        "memory_bytes", (json_int_t)inflate->used, "plain_bytes",
	        (json_int_t)atomic_load(&inflate->plain_bytes), "packed_bytes",
	        (json_int_t)atomic_load(&inflate->packed_bytes), "errors",
	        (json_int_t)atomic_load(&inflate->errors));
}
