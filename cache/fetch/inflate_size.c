/* How long it is what a shard holds. Cheap ways first: a small file's headers, the seek table at the end, the
 * header of the only frame. What these do not tell (gzip, zstd from a pipe, many frames without a table)
 * takes decoding all of it, which goes into the cache on the way: the file has its size at the end, and by
 * then all of its bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "fetch/inflate_private.h"

#define HEAD_NBYTES \
	(144 * UINT64_C(1024)) /* a whole block of 128 KiB that could not be compressed, and its headers */
#define TABLE_MAX_NBYTES (16 * PS_MIB)
#define HEADERS_ATTEMPTS 5
#define HEADERS_RETRY_NS (300 * PS_NS_PER_MS)

enum step { STEP_HEAD, STEP_FOOTER, STEP_TABLE };

struct ps_sizing {
	struct ps_get get; /* first */
	struct iovec iov;
	struct ps_inflater *inflater;
	enum step step;
	bool pending, done;
	struct ps_error err;
	unsigned attempts;
	uint64_t retry_ns;
	uint8_t *head, *data; /* data: of this step */
	size_t nhead;
};

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

void ps_size_abort(struct ps_inflater *inflater)
{
	struct ps_sizing *sizing = inflater->headers;

	if (sizing && sizing->pending)
		inflater->base->ops->cancel(inflater->base, &sizing->get);
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

		if (inflater->headers && inflater->headers->retry_ns &&
		        now_ns >= inflater->headers->retry_ns) {
			inflater->headers->retry_ns = 0;
			ps_inflater_wake(inflater);
		}
		l = l->next;
		if (!expired)
			continue;
		answer(inflater, expired, ETIMEDOUT, PS_SIZE_UNKNOWN,
		        "its size is not known yet: it is being decompressed; ask again");
		l = head->next; /* the list may be another one by now */
	}
}

/* Headers ---------------------------------------------------------------------------------------- */

static void headers_done(struct ps_get *get, const struct ps_error *err)
{
	struct ps_sizing *sizing = (struct ps_sizing *)get;
	struct ps_inflater *inflater = sizing->inflater;
	struct ps_inflate *inflate = inflater->inflate;

	ps_fill_count_bytes(inflate->fill, get->wire_nbytes);
	ps_fill_count_request(inflate->fill, err->err && err->err != ECANCELED);
	PS_LOCK_SCOPE(&inflate->lock);
	sizing->err = *err;
	sizing->pending = false;
	sizing->done = true;
	if (!inflater->expect.etag[0])
		memcpy(inflater->expect.etag, get->seen.etag, sizeof inflater->expect.etag);
	ps_inflater_wake(inflater);
	ps_inflater_unref(inflater); /* the work queue has one */
}

static void headers_progress(struct ps_get *get, size_t nbytes_so_far)
{
	(void)get;
	(void)nbytes_so_far;
}

/* The lock is held. */
static int headers_submit(struct ps_sizing *sizing, enum step step, uint64_t offset, uint64_t nbytes)
{
	struct ps_inflater *inflater = sizing->inflater;

	free(sizing->data);
	sizing->data = malloc(nbytes);
	if (!sizing->data)
		return -ENOMEM;
	sizing->step = step;
	sizing->done = false;
	sizing->pending = true;
	sizing->iov = (struct iovec){.iov_base = sizing->data, .iov_len = nbytes};
	memset(&sizing->get, 0, sizeof sizing->get);
	sizing->get.url = inflater->url;
	sizing->get.expect = inflater->expect;
	sizing->get.offset = offset;
	sizing->get.nbytes = nbytes;
	sizing->get.iov = &sizing->iov;
	sizing->get.niov = 1;
	sizing->get.progress = headers_progress;
	sizing->get.done = headers_done;
	ps_inflater_ref(inflater);
	inflater->base->ops->get(inflater->base, &sizing->get);
	return 0;
}

static void headers_free(struct ps_inflater *inflater)
{
	struct ps_sizing *sizing = ps_steal_ptr(&inflater->headers);

	if (!sizing)
		return;
	free(sizing->head);
	free(sizing->data);
	free(sizing);
}

/* The size that the only frame's header declares; PS_SIZE_UNKNOWN: it is not declared, or the file is longer
 * than such a frame is likely to be. That it is the only one shows for certain at its end, before whose last
 * bytes are handed out. */
static uint64_t judge_head(const uint8_t *head, size_t nhead, uint64_t file_nbytes)
{
	struct ps_decoder *decoder = ps_decoder_new(PS_CODING_ZSTD);
	ps_autofree uint8_t *scratch = malloc(PS_CHUNK_SIZE);
	uint64_t content = PS_SIZE_UNKNOWN, plain = 0;
	size_t at = 0, body = 0, used, made;
	enum ps_decode_event event;
	struct ps_error err;

	while (decoder && scratch) {
		if (ps_decoder_step(decoder, head + at, nhead - at, scratch, PS_CHUNK_SIZE, &used, &made,
		            &event, &err) < 0)
			break;
		at += used;
		plain += made;
		const struct ps_frame_header *frame = ps_decoder_frame(decoder);
		if (event == PS_DECODE_HEADER && !frame->skippable) {
			content = frame->content_nbytes;
			body = at;
			if (ps_decoder_nbytes(decoder) > 256 * PS_MIB)
				break; /* not worth it here */
		}
		if (event == PS_DECODE_END && !frame->skippable) {
			content = PS_SIZE_UNKNOWN; /* and something follows: another frame, mostly */
			break;
		}
		if (!used && !made && event == PS_DECODE_MORE)
			break;
	}
	ps_decoder_free(decoder);
	if (content == PS_SIZE_UNKNOWN || plain == 0 || content > PS_OBJECT_MAX_NBYTES)
		return PS_SIZE_UNKNOWN;
	double expected = (double)content * (double)(at - body) / (double)plain;
	return (double)file_nbytes <= expected * 1.25 + 512.0 * 1024 ? content : PS_SIZE_UNKNOWN;
}

/* The lock is held, and dropped for the index. */
static void found(struct ps_inflater *inflater, uint64_t size, bool declared)
{
	inflater->size = size;
	inflater->declared = declared;
	inflater->sizing = PS_SIZING_NO;
	headers_free(inflater);
	ps_inflater_save(inflater);
	ps_size_answer(inflater, 0, "");
}

/* What this step's bytes tell; true: asked for more, or the size is known. False: the headers do not tell it.
 */
static bool headers_look(struct ps_inflater *inflater, struct ps_sizing *sizing)
{
	uint64_t size = inflater->source.size;
	uint64_t table;

	switch (sizing->step) {
	case STEP_HEAD:
		sizing->nhead = sizing->get.nbytes;
		sizing->head = ps_steal_ptr(&sizing->data);
		if (sizing->nhead == size) {
			if (ps_frames_walk(sizing->head, sizing->nhead, &inflater->map) < 0)
				return false;
			found(inflater, inflater->map.points[inflater->map.n - 1].plain, false);
			return true;
		}
		return headers_submit(
		               sizing, STEP_FOOTER, size - PS_SEEK_FOOTER_NBYTES, PS_SEEK_FOOTER_NBYTES) == 0;
	case STEP_FOOTER:
		table = ps_seek_footer_parse(sizing->data, size);
		if (table && table <= TABLE_MAX_NBYTES)
			return headers_submit(sizing, STEP_TABLE, size - table, table) == 0;
		size = judge_head(sizing->head, sizing->nhead, size);
		if (size == PS_SIZE_UNKNOWN)
			return false;
		found(inflater, size, true);
		return true;
	case STEP_TABLE:
		if (ps_seek_table_parse(sizing->data, sizing->get.nbytes, size, &inflater->map) < 0) {
			ps_log_warning("inflate: %s: its seek table does not fit it, and is not used",
			        inflater->url);
			return false;
		}
		found(inflater, inflater->map.points[inflater->map.n - 1].plain, false);
		return true;
	}
	return false;
}

/* The lock is held. */
static void headers_step(struct ps_inflater *inflater)
{
	struct ps_sizing *sizing = inflater->headers;

	if (!sizing) {
		sizing = calloc(1, sizeof *sizing);
		if (!sizing || inflater->source.size == 0) {
			free(sizing);
			inflater->sizing = PS_SIZING_ALL;
			return;
		}
		sizing->inflater = inflater;
		inflater->headers = sizing;
		if (headers_submit(sizing, STEP_HEAD, 0, PS_MIN(HEAD_NBYTES, inflater->source.size)) < 0)
			inflater->sizing = PS_SIZING_ALL;
		return;
	}
	if (sizing->pending || sizing->retry_ns)
		return;
	if (!sizing->done ||
	        (sizing->err.err && sizing->err.retryable && sizing->attempts < HEADERS_ATTEMPTS)) {
		sizing->attempts++;
		if (sizing->done) {
			sizing->done = false;
			sizing->retry_ns = ps_clock_mono_ns() + (HEADERS_RETRY_NS << sizing->attempts);
		} else if (headers_submit(sizing, sizing->step, sizing->get.offset, sizing->get.nbytes) < 0) {
			inflater->sizing = PS_SIZING_ALL;
		}
		return;
	}
	if (sizing->err.err) {
		struct ps_error err = sizing->err;

		headers_free(inflater);
		ps_log_warning("inflate: %s: %s", inflater->url, err.text);
		ps_size_answer(inflater,
		        err.err == EAGAIN || err.err == EPROTO || err.err == EHOSTUNREACH ? EIO : err.err,
		        err.text);
		return;
	}
	if (headers_look(inflater, sizing))
		return;
	headers_free(inflater);
	inflater->sizing = PS_SIZING_ALL;
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
		if (inflater->headers && !inflater->headers->pending)
			headers_free(inflater);
		ps_size_answer(inflater, ECANCELED, "cancelled");
		return;
	}
	if (inflater->sizing == PS_SIZING_HEADERS)
		headers_step(inflater);
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
	if (object && size == 0)
		(void)ps_object_evict(object, NULL);
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
