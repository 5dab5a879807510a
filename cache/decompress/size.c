/* How long it is what a shard holds, found out once for all who ask. What headers do not tell (gzip, zstd
 * from a pipe, many frames without a table at an origin across a network) takes decoding all of it, which
 * goes into the cache on the way: the file has its size at the end, and by then all of its bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"

/* Waiters ---------------------------------------------------------------------------------------- */

/* The lock is held, and dropped meanwhile. */
static void answer(
        struct ps_inflater *inflater, struct ps_waiter *waiters, int errnum, uint64_t size, const char *text)
{
	struct ps_inflate *inflate = inflater->inflate;

	while (waiters) {
		struct ps_waiter *next = waiters->next;

		inflate->nwaiters--;
		pthread_mutex_unlock(&inflate->lock);
		waiters->fn(waiters->arg, errnum, size, text);
		free(waiters);
		pthread_mutex_lock(&inflate->lock);
		ps_inflater_unref(inflater);
		waiters = next;
	}
}

void ps_size_answer(struct ps_inflater *inflater, int errnum, const char *text)
{
	inflater->sizing = PS_SIZING_NO;
	answer(inflater, ps_steal_ptr(&inflater->waiters), errnum, inflater->size, text);
}

void ps_inflater_size(struct ps_inflater *inflater, ps_inflate_size_fn fn, void *arg)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_waiter *waiter = calloc(1, sizeof *waiter);
	struct ps_error err = {0};
	uint64_t size, now = ps_clock_mono_ns();
	{
		PS_LOCK_SCOPE(&inflate->lock);
		size = inflater->size;
		if (!waiter)
			ps_error_set(&err, ENOMEM, "out of memory");
		else if (inflater->aborted)
			ps_error_set(&err, ECANCELED, "cancelled");
		else if (size == PS_SIZE_UNKNOWN && inflater->bad.err && now < inflater->bad_until_ns)
			err = inflater->bad;
		if (size == PS_SIZE_UNKNOWN && !err.err) {
			*waiter = (struct ps_waiter){.next = inflater->waiters,
			        .fn = fn,
			        .arg = arg,
			        .expires_ns = now + ps_fill_timeout_ns(inflate->fill)};
			inflater->waiters = waiter;
			ps_inflate_watch(inflate, &inflate->nwaiters);
			ps_inflater_ref(inflater);
			if (inflater->sizing == PS_SIZING_NO)
				inflater->sizing =
				        inflater->coding == PS_CODING_ZSTD && !inflater->nodes_below
				                ? PS_SIZING_HEADERS
				                : PS_SIZING_ALL;
			ps_inflater_wake(inflater);
			return;
		}
	}
	free(waiter);
	fn(arg, err.err, size, err.text);
}

bool ps_inflater_damaged(struct ps_inflater *inflater)
{
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	return inflater->bad.err && ps_clock_mono_ns() < inflater->bad_until_ns;
}

/* Takes one waiter whose time is up. */
static struct ps_waiter *take_expired(struct ps_inflater *inflater, uint64_t now_ns)
{
	for (struct ps_waiter **w = &inflater->waiters; *w; w = &(*w)->next) {
		struct ps_waiter *expired = *w;

		if (now_ns < expired->expires_ns)
			continue;
		*w = expired->next;
		expired->next = NULL;
		return expired;
	}
	return NULL;
}

void ps_size_expire(struct ps_inflate *inflate, uint64_t now_ns)
{
	const struct ps_list *head = &inflate->inflaters;

	for (const struct ps_list *l = head->next; l != head;) {
		struct ps_inflater *inflater = PS_CONTAINER_OF(l, struct ps_inflater, link);
		struct ps_waiter *expired = take_expired(inflater, now_ns);

		ps_headers_tick(inflater, now_ns);
		l = l->next;
		if (!expired)
			continue;
		answer(inflater, expired, ETIMEDOUT, PS_SIZE_UNKNOWN,
		        "its size is not known yet: it is being decompressed; ask again");
		l = head->next; /* the list may be another one by now */
	}
}

/* All of it -------------------------------------------------------------------------------------- */

static bool has_sizing_unpacker(const struct ps_inflater *inflater)
{
	for (const struct ps_list *l = inflater->unpackers.next; l != &inflater->unpackers; l = l->next)
		if (PS_CONTAINER_OF(l, struct ps_unpacker, link)->sizes &&
		        PS_CONTAINER_OF(l, struct ps_unpacker, link)->state != PS_UNPACKER_ENDING)
			return true;
	return false;
}

/* A file whose end is not known yet, for what is decoded on the way. The lock is dropped meanwhile. */
static void open_provisional(struct ps_inflater *inflater)
{
	struct ps_inflate *inflate = inflater->inflate;
	struct ps_object *object = NULL;

	if (inflater->object)
		return;
	inflater->sizing = PS_SIZING_OPENS;
	pthread_mutex_unlock(&inflate->lock);
	int rc = ps_object_get_unsized(
	        inflate->store, inflater->object_url, &inflater->source, &inflater->id, &object);
	bool takes = rc == 0 && ps_object_admit(object) == 0;
	pthread_mutex_lock(&inflate->lock);
	inflater->object = object;
	inflater->caches = takes;
	inflater->sizing = PS_SIZING_ALL;
}

static void decode_all(struct ps_inflater *inflater)
{
	struct ps_inflate *inflate = inflater->inflate;

	if (has_sizing_unpacker(inflater))
		return;
	open_provisional(inflater);
	if (inflater->aborted || has_sizing_unpacker(inflater))
		return;
	if (inflater->map.n == 0)
		ps_frame_map_add(&inflater->map, 0, 0);
	struct ps_unpacker *unpacker =
	        ps_unpacker_new(inflater, (struct ps_frame_point){0}, inflater->source.size, UINT64_MAX);
	if (unpacker)
		unpacker->sizes = true; /* before a thread takes it: the lock is held */
	else if (inflate->nunpackers > 0)
		ps_inflate_make_room(inflate, NULL);
	else
		ps_size_answer(inflater, ENOMEM, "out of memory"); /* nobody will give any back */
}

void ps_size_step(struct ps_inflater *inflater)
{
	if (inflater->aborted) {
		ps_headers_free(inflater);
		ps_size_answer(inflater, ECANCELED, "cancelled");
		return;
	}
	if (inflater->sizing == PS_SIZING_HEADERS)
		ps_headers_step(inflater);
	if (inflater->sizing == PS_SIZING_ALL)
		decode_all(inflater);
}

/* The last block was kept back until its length was known. */
static void write_tail(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	const struct ps_out *out = &unpacker->out;
	uint64_t block = (out->pos - 1) / PS_BLOCK_SIZE;
	struct ps_object *object;

	if (ps_inflater_object(inflater, 0, false, &object) < 0)
		return;
	if (ps_object_admit(object) == 0 && block * PS_BLOCK_SIZE >= out->base &&
	        ps_object_write_block(object, block, out->data + (block * PS_BLOCK_SIZE - out->base)) < 0)
		ps_log_debug("inflate: %s: its end is not cached", inflater->url);
	ps_object_put(object);
}

int ps_size_found(struct ps_unpacker *unpacker)
{
	struct ps_inflater *inflater = unpacker->inflater;
	struct ps_inflate *inflate = inflater->inflate;
	uint64_t size = unpacker->out.pos;
	struct ps_object *object;

	(void)ps_out_flush(unpacker, false);
	ps_writes_wait(inflater);
	{
		PS_LOCK_SCOPE(&inflate->lock);
		object = ps_steal_ptr(&inflater->object);
	}
	bool caches = object && inflater->caches;
	/* An object that cannot be made as long as the shard turned out to be is of no use to anybody. */
	if (object && (size == 0 || (!caches && ps_object_size(object) != size)) &&
	        ps_object_retire(object) < 0)
		ps_log_debug("inflate: %s: what was decoded to learn its size stays", inflater->url);
	ps_object_put(object);
	if (caches && size > 0 && ps_store_set_size(inflate->store, &inflater->id, size) < 0)
		ps_log_warning(
		        "inflate: %s: what was decoded to learn its size cannot be kept", inflater->url);
	{
		PS_LOCK_SCOPE(&inflate->lock);
		inflater->size = size;
		inflater->declared = false;
		inflater->caches = false; /* asked again for the file as it is now */
	}
	if (caches && size > 0)
		write_tail(unpacker);
	PS_LOCK_SCOPE(&inflate->lock);
	ps_inflater_save(inflater);
	return 0;
}
