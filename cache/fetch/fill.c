#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"

#define TELL_EVERY_NS (10 * PS_NS_PER_S)
#define DRAIN_TICK_NS (50 * PS_NS_PER_MS)

/* Files ------------------------------------------------------------------------------------------ */

int ps_fill_file_get(
        struct ps_fill *fill, struct ps_object *object, struct ps_origin *origin, struct ps_fill_file **ret)
{
	uint64_t nblocks = ps_object_nblocks(object);
	struct ps_refusal refusal;

	if (ps_object_refusal(object, &refusal) && refusal.now)
		return -EIO;
	struct ps_fill_file *file = calloc(1, sizeof *file);
	struct ps_slot **slots = calloc(nblocks ? nblocks : 1, sizeof *slots);
	if (!file || !slots) {
		free(file);
		free(slots);
		return -ENOMEM;
	}
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
			struct ps_fill_file *old = PS_CONTAINER_OF(l, struct ps_fill_file, link);

			if (old->refs > 0 && old->object == object && old->origin == origin &&
			        !old->draining) {
				old->refs++;
				*ret = old;
				goto found;
			}
		}
		file->fill = fill;
		file->object = ps_object_ref(object);
		file->origin = origin;
		atomic_init(&file->allowed, !(origin->base ? origin->base : origin)->proved);
		file->refs = 1;
		file->slots = slots;
		if (origin->ops->ref)
			origin->ops->ref(origin);
		file->remote = *ps_object_remote(object);
		if (!file->remote.etag[0])
			ps_object_learned_etag(object, file->remote.etag);
		ps_list_init(&file->waiters);
		ps_want_init(&file->warm, file, PS_WANT_WARM);
		pthread_mutex_init(&file->lock, NULL);
		ps_list_append(&fill->files, &file->link);
	}
	*ret = file;
	return 0;
found:
	free(file);
	free(slots);
	return 0;
}

struct ps_fill_file *ps_fill_file_ref(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->fill->lock);
	file->refs++;
	return file;
}

void ps_fill_file_put(struct ps_fill_file *file)
{
	if (!file)
		return;
	struct ps_fill *fill = file->fill;
	struct ps_origin *origin = file->origin;
	/* Looked at now: one that nobody refers to may be closed as soon as the file is off the list. */
	void (*unref)(struct ps_origin *) = origin->ops->unref;
	uint64_t nblocks = ps_object_nblocks(file->object);
	{
		PS_LOCK_SCOPE(&fill->lock);
		if (--file->refs > 0)
			return;
		ps_keep_drop(fill, file);
	}
	/* With no reference nobody can get it again, but it stays on the list until the store has its object
	 * back: that is what ps_fill_drain() waits for. */
	ps_object_put(file->object);
	{
		PS_LOCK_SCOPE(&fill->lock);
		ps_list_remove(&file->link);
		pthread_cond_broadcast(&fill->files_cond);
	}
	for (uint64_t b = 0; b < nblocks; b++)
		if (file->slots[b])
			ps_slot_free(file->slots[b]); /* of these, only failed ones are left */
	pthread_mutex_destroy(&file->lock);
	free(file->slots);
	free(file);
	if (unref)
		unref(origin);
}

struct ps_object *ps_fill_file_object(struct ps_fill_file *file)
{
	return file->object;
}

void ps_fill_file_allow(struct ps_fill_file *file)
{
	atomic_store(&file->allowed, true);
}

bool ps_fill_file_allowed(struct ps_fill_file *file)
{
	return atomic_load(&file->allowed);
}

struct ps_fill *ps_fill_file_engine(struct ps_fill_file *file)
{
	return file->fill;
}

bool ps_fill_may_tell(struct ps_fill_file *file, uint64_t now_ns)
{
	if (file->told_ns && now_ns - file->told_ns < TELL_EVERY_NS)
		return false;
	file->told_ns = now_ns;
	return true;
}

bool ps_fill_file_doubted(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->lock);
	return file->doubted;
}

void ps_fill_file_doubt(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->lock);
	file->changed = file->doubted = true;
}

void ps_fill_file_trust(struct ps_fill_file *file)
{
	PS_LOCK_SCOPE(&file->lock);
	file->changed = file->doubted = false;
	if (!ps_object_remote(file->object)->etag[0])
		ps_object_learned_etag(file->object, file->remote.etag);
}

void ps_fill_file_error(struct ps_fill_file *file, char *ret_text, size_t cap)
{
	PS_LOCK_SCOPE(&file->lock);
	snprintf(ret_text, cap, "%s", file->error);
}

void ps_fill_object_doubt(struct ps_fill *fill, const struct ps_object *object)
{
	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
		struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_fill_file, link);

		if (file->object == object)
			ps_fill_file_doubt(file);
	}
}

void ps_fill_object_error(struct ps_fill *fill, const struct ps_object *object, const struct ps_origin *origin,
        char *ret_text, size_t cap)
{
	PS_LOCK_SCOPE(&fill->lock);
	for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
		struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_fill_file, link);

		if (file->object != object || !ps_origin_is(file->origin, origin))
			continue;
		PS_LOCK_SCOPE(&file->lock);
		if (file->error[0])
			snprintf(ret_text, cap, "%s", file->error);
	}
}

/* The engine ------------------------------------------------------------------------------------- */

int ps_fill_new(const struct ps_fill_options *options, struct ps_fill **ret)
{
	struct ps_fill *fill = calloc(1, sizeof *fill);

	if (!fill)
		return -ENOMEM;
	fill->budget =
	        ps_budget_new(options->memory_bytes ? options->memory_bytes : ps_budget_default_bytes());
	ps_concurrency_init(&fill->concurrency,
	        options->max_connections ? options->max_connections : PS_FILL_CONNECTIONS);
	atomic_init(&fill->connections, fill->concurrency.limit);
	fill->max_bytes_per_s = options->max_bytes_per_s;
	fill->timeout_ns = (options->timeout_ms ? options->timeout_ms : PS_FILL_TIMEOUT_MS) * PS_NS_PER_MS;
	struct ps_list *lists[] = {&fill->files, &fill->wants[0], &fill->wants[1], &fill->wants[2], &fill->wants[3],
	        &fill->running, &fill->retries, &fill->hedges, &fill->tails, &fill->disk_queue, &fill->kept, &fill->held};
	for (size_t i = 0; i < PS_ARRAY_LEN(lists); i++)
		ps_list_init(lists[i]);
	pthread_mutex_init(&fill->lock, NULL);
	ps_read_stats_init(&fill->reads);
	ps_cond_init(&fill->disk_cond);
	ps_cond_init(&fill->timer_cond);
	ps_cond_init(&fill->files_cond);

	int rc = fill->budget ? ps_writeback_start(fill) : -ENOMEM;
	if (rc == 0)
		rc = ps_timer_start(fill);
	if (rc < 0) {
		ps_fill_free(fill);
		return rc;
	}
	*ret = fill;
	return 0;
}

void ps_fill_free(struct ps_fill *fill)
{
	if (!fill)
		return;
	ps_writeback_stop(fill);
	ps_timer_stop(fill);
	ps_hedge_forget(fill, NULL);
	pthread_cond_destroy(&fill->disk_cond);
	pthread_cond_destroy(&fill->timer_cond);
	pthread_cond_destroy(&fill->files_cond);
	ps_read_stats_fini(&fill->reads);
	pthread_mutex_destroy(&fill->lock);
	ps_budget_free(fill->budget);
	free(fill);
}

uint64_t ps_fill_timeout_ns(const struct ps_fill *fill)
{
	return fill->timeout_ns;
}

unsigned ps_fill_connections(const struct ps_fill *fill)
{
	return atomic_load(&fill->connections);
}

unsigned ps_fill_max_connections(const struct ps_fill *fill)
{
	return fill->concurrency.max;
}

struct ps_budget *ps_fill_budget(struct ps_fill *fill)
{
	return fill->budget;
}

/* Wants of this origin go; what they referred to is returned for a put without the lock. */
static size_t take_wants(
        struct ps_fill *fill, struct ps_origin *origin, struct ps_fill_file **ret, size_t cap)
{
	size_t n = 0;

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

void ps_fill_drain(struct ps_fill *fill, struct ps_origin *origin)
{
	struct ps_fill_file *unref[64];
	struct ps_list ready;
	size_t n;

	ps_list_init(&ready);
	{
		PS_LOCK_SCOPE(&fill->lock);
		for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next) {
			struct ps_fill_file *file = PS_CONTAINER_OF(l, struct ps_fill_file, link);

			if (!ps_origin_is(file->origin, origin))
				continue;
			file->draining = true;
			PS_LOCK_SCOPE(&file->lock);
			(void)ps_fill_expire_file(file, 0, true, &ready, NULL);
		}
	}
	ps_fill_answer(fill, &ready);
	do {
		{
			PS_LOCK_SCOPE(&fill->lock);
			n = take_wants(fill, origin, unref, PS_ARRAY_LEN(unref));
		}
		for (size_t i = 0; i < n; i++)
			ps_fill_file_put(unref[i]);
	} while (n > 0);
	for (;;) {
		/* Again and again, until none is left: a run that was claimed but not submitted yet is not
		 * reached by a cancel. */
		ps_run_cancel_all(fill, origin);
		ps_keep_drop_held(fill, origin);
		PS_LOCK_SCOPE(&fill->lock);
		bool left = fill->nending > 0;
		for (struct ps_list *l = fill->files.next; l != &fill->files; l = l->next)
			left = left || ps_origin_is(PS_CONTAINER_OF(l, struct ps_fill_file, link)->origin, origin);
		if (!left) {
			ps_hedge_forget(fill, origin);
			return;
		}
		ps_cond_wait_until(&fill->files_cond, &fill->lock, ps_clock_mono_ns() + DRAIN_TICK_NS);
	}
}
