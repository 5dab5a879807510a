/* The stage: its memory, its places for unpackers, its threads. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "base/thread.h"
#include "decompress/decompress_private.h"

#define TICK_NS (100 * PS_NS_PER_MS)

/* Memory ----------------------------------------------------------------------------------------- */

/* What is there, wanted or spare. */
static uint64_t held(const struct ps_inflate *inflate)
{
	return inflate->used + inflate->spare_nbytes + inflate->nfree_pieces * PS_PIECE_NBYTES;
}

bool ps_inflate_reserve(struct ps_inflate *inflate, uint64_t nbytes)
{
	if (inflate->used + nbytes > inflate->limit)
		return false;
	inflate->used += nbytes;
	if (held(inflate) > inflate->limit)
		ps_spares_drop(inflate, 0);
	return true;
}

void ps_inflate_release(struct ps_inflate *inflate, uint64_t nbytes)
{
	inflate->used -= nbytes;
}

uint8_t *ps_spare_take(struct ps_inflate *inflate, size_t cap)
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

void ps_spare_put(struct ps_inflate *inflate, uint8_t *data, size_t cap)
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

void ps_spares_drop(struct ps_inflate *inflate, size_t keep)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(inflate->spares); i++) {
		struct ps_spare *spare = &inflate->spares[i];

		if (!spare->data || spare->cap <= keep)
			continue;
		inflate->spare_nbytes -= spare->cap;
		free(ps_steal_ptr(&spare->data));
	}
	while (keep < PS_PIECE_NBYTES && inflate->free_pieces) {
		struct ps_piece *piece = inflate->free_pieces;

		inflate->free_pieces = piece->next_free;
		inflate->nfree_pieces--;
		free(piece->data);
		free(piece);
	}
}

void ps_inflate_make_room(struct ps_inflate *inflate, const struct ps_unpacker *unpacker)
{
	bool works = false;

	inflate->wanting = true;
	for (int round = 0; round < 2; round++) {
		for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
			struct ps_inflater *inflater = PS_CONTAINER_OF(l, struct ps_inflater, link);

			for (struct ps_list *s = inflater->unpackers.next; s != &inflater->unpackers;
			        s = s->next) {
				struct ps_unpacker *other = PS_CONTAINER_OF(s, struct ps_unpacker, link);
				bool waits = other->state == PS_UNPACKER_MEMORY;

				if (other == unpacker)
					continue;
				works = works || (!waits && other->state != PS_UNPACKER_IDLE);
				/* Unpackers that wait for memory themselves are ended only where nobody
				 * else is at work who would give some back. */
				if (other->state == PS_UNPACKER_IDLE ||
				        (waits && unpacker && round == 1 && !works))
					ps_unpacker_kill(other);
			}
		}
	}
}

void ps_inflate_take_memory(struct ps_inflate *inflate)
{
	struct ps_budget *budget = ps_fill_budget(inflate->fill);

	if (inflate->limit)
		return;
	uint64_t least = 4 * PS_UNPACKER_NBYTES;
	inflate->limit = PS_MAX(ps_budget_limit_bytes(budget) / 3, least);
	ps_budget_give_up(
	        budget, inflate->limit + PS_WRITES_MAX * PS_BLOCK_SIZE + PS_WALKS_MAX * PS_WALK_NBYTES);
	inflate->max_unpackers = (unsigned)PS_MIN(
	        PS_MAX(inflate->limit / 2 / PS_UNPACKER_NBYTES, UINT64_C(1)), 2 * inflate->nthreads + 2);
}

void ps_inflate_watch(struct ps_inflate *inflate, unsigned *count)
{
	/* Threads sleep without a limit while there is nothing to watch, and now there is something. All
	 * are woken: the one that is signalled for other work may go and decode for long. */
	if (inflate->nunpackers + inflate->nwaiters == 0) {
		inflate->next_tick_ns = ps_clock_mono_ns() + TICK_NS;
		pthread_cond_broadcast(&inflate->cond);
	}
	(*count)++;
}

/* Waking ----------------------------------------------------------------------------------------- */

void ps_inflater_wake(struct ps_inflater *inflater)
{
	struct ps_inflate *inflate = inflater->inflate;

	/* One whose last user is gone is being freed, though it may be in the list until the lock is had again. */
	if (inflater->refs == 0 || !ps_list_empty(&inflater->work_link))
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
	inflate->wanting = false; /* who finds no room this time says so */
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
	ps_cond_wait_until(&inflate->cond, &inflate->lock,
	        PS_MAX(inflate->next_tick_ns, ps_clock_mono_ns() + PS_NS_PER_MS));
}

bool ps_inflate_is_due(const struct ps_inflate *inflate)
{
	return inflate->stopping || !ps_list_empty(&inflate->work) || !ps_list_empty(&inflate->ready) ||
	       ps_clock_mono_ns() >= inflate->next_tick_ns;
}

static void *inflate_main(void *arg)
{
	struct ps_inflate *inflate = arg;

	PS_LOCK_SCOPE(&inflate->lock);
	while (!inflate->stopping) {
		uint64_t now = ps_clock_mono_ns();

		if ((inflate->nunpackers || inflate->nwaiters) && now >= inflate->next_tick_ns) {
			tick(inflate, now);
		} else if (!ps_list_empty(&inflate->work)) {
			serve(PS_CONTAINER_OF(inflate->work.next, struct ps_inflater, work_link));
		} else if (!ps_list_empty(&inflate->writes)) {
			ps_write_run(inflate, inflate->writes.next);
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
	ps_headers_cancel(inflater);
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
	ps_spares_drop(inflate, 0);
	pthread_cond_destroy(&inflate->cond);
	ps_writes_fini(inflate);
	pthread_cond_destroy(&inflate->gone);
	pthread_cond_destroy(&inflate->written);
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
