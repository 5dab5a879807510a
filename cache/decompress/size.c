#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"
#include "decompress/frame.h"

/* By headers ----------------------------------------------------------------------------------------- */

/* How long it is what a shard holds, as far as headers tell: those of a small file, the seek table at the
 * end, the header of the only frame; and of a file on this machine those of all its frames and blocks, from
 * one to the next: reading it twice costs little there, and decoding it ahead of the first read costs much.
 */

#define HEAD_NBYTES \
	(144 * UINT64_C(1024)) /* a whole block of 128 KiB that could not be compressed, and its headers */
#define TABLE_MAX_NBYTES (16 * PS_MIB)
#define ATTEMPTS 5                    /* further ones, of an origin that breaks the protocol */
#define RETRY_NS (300 * PS_NS_PER_MS) /* before the first of them; doubled for each that follows, */
#define RETRY_MAX_DOUBLED 5u          /* but no more often */

enum step { STEP_HEAD, STEP_FOOTER, STEP_TABLE, STEP_WALK };

struct ps_sizing {
	struct ps_origin_get get; /* first */
	struct iovec iov;
	struct ps_decompressing *inflater;
	enum step step;
	bool pending, done;
	bool walks, waits; /* has one of PS_WALKS_MAX places; waits for one */
	struct ps_error err;
	unsigned attempts;
	uint64_t retry_ns;
	uint8_t *head, *data; /* data: of this step */
	size_t nhead, cap;    /* cap: data's */
	struct ps_frame_walk walk;
};

static void sizing_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct ps_sizing *sizing = (struct ps_sizing *)get;
	struct ps_decompressing *inflater = sizing->inflater;
	struct ps_decompress *inflate = inflater->inflate;

	ps_fill_count_bytes(inflate->fill, get->wire_nbytes);
	ps_fill_count_request(inflate->fill, err->err && err->err != ECANCELED);
	ps_fill_count_answer(inflate->fill, get->first_byte_ns);
	ps_decompressing_proved(inflater, get);
	PS_LOCK_SCOPE(&inflate->lock);
	sizing->err = *err;
	sizing->pending = false;
	sizing->done = true;
	if (!inflater->expect.etag[0])
		memcpy(inflater->expect.etag, get->seen.etag, sizeof inflater->expect.etag);
	ps_decompressing_wake(inflater);
	ps_decompressing_unref(inflater); /* the work queue has one */
}

static void sizing_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	(void)get;
	(void)nbytes_so_far;
}

static int submit(struct ps_sizing *sizing, enum step step, uint64_t offset, uint64_t nbytes)
{
	struct ps_decompressing *inflater = sizing->inflater;

	if (!sizing->data || sizing->cap < nbytes) {
		free(sizing->data);
		sizing->cap = nbytes;
		sizing->data = malloc(nbytes);
	}
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
	sizing->get.progress = sizing_progress;
	sizing->get.done = sizing_done;
	ps_decompressing_ref(inflater);
	inflater->base->ops->get(inflater->base, &sizing->get);
	return 0;
}

static void wake_next_walk(struct ps_decompress *inflate)
{
	for (struct ps_list *l = inflate->inflaters.next; l != &inflate->inflaters; l = l->next) {
		struct ps_decompressing *inflater = PS_CONTAINER_OF(l, struct ps_decompressing, link);

		if (inflater->refs > 0 && inflater->headers && inflater->headers->waits) {
			ps_decompressing_wake(inflater);
			return;
		}
	}
}

void ps_headers_free(struct ps_decompressing *inflater)
{
	struct ps_sizing *sizing = inflater->headers;

	if (!sizing || sizing->pending)
		return;
	inflater->headers = NULL;
	if (sizing->walks)
		inflater->inflate->nwalks--;
	if (sizing->walks || sizing->waits)
		wake_next_walk(inflater->inflate);
	ps_frame_walk_fini(&sizing->walk);
	free(sizing->head);
	free(sizing->data);
	free(sizing);
}

void ps_headers_cancel(struct ps_decompressing *inflater)
{
	struct ps_sizing *sizing = inflater->headers;

	if (sizing && sizing->pending)
		inflater->base->ops->cancel(inflater->base, &sizing->get);
}

/* Goes on with what has come; drops the lock for the index. Either it is answered in the end, or what is left
 * to do is PS_SIZING_ALL. */
static void ps_headers_tick(struct ps_decompressing *inflater, uint64_t now_ns)
{
	struct ps_sizing *sizing = inflater->headers;

	if (!sizing || !sizing->retry_ns || now_ns < sizing->retry_ns)
		return;
	sizing->retry_ns = 0;
	ps_decompressing_wake(inflater);
}

/* What they tell --------------------------------------------------------------------------------- */

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

/* Drops the lock for the index. */
static void found(struct ps_decompressing *inflater, uint64_t size, bool declared)
{
	inflater->size = size;
	inflater->declared = declared;
	inflater->sizing = PS_SIZING_NO;
	ps_headers_free(inflater);
	ps_decompressing_save(inflater);
	ps_size_answer(inflater, 0, "");
}

/* As `look` returns. */
static bool walk(struct ps_sizing *sizing, const uint8_t *bytes, size_t n, uint64_t offset)
{
	struct ps_decompressing *inflater = sizing->inflater;
	int rc = ps_frame_walk_step(&sizing->walk, bytes, n, offset);
	uint64_t at = sizing->walk.at;

	if (rc == -EAGAIN)
		return submit(sizing, STEP_WALK, at, PS_MIN(PS_WALK_NBYTES, inflater->source.size - at)) == 0;
	if (rc < 0 || sizing->walk.plain > PS_OBJECT_MAX_NBYTES)
		return false; /* whatever is wrong with it, decoding it tells */
	ps_frame_map_fini(&inflater->map);
	inflater->map = sizing->walk.map;
	sizing->walk.map = (struct ps_frame_map){0};
	found(inflater, sizing->walk.plain, false);
	return true;
}

static bool begin_walk(struct ps_sizing *sizing)
{
	struct ps_decompress *inflate = sizing->inflater->inflate;
	uint64_t size = sizing->inflater->source.size;

	ps_frame_walk_fini(&sizing->walk);
	sizing->walk = (struct ps_frame_walk){.file_nbytes = size};
	if (sizing->nhead == size)
		return walk(sizing, sizing->head, sizing->nhead, 0);
	/* A thousand shards may be looked up at once. */
	free(ps_steal_ptr(&sizing->head));
	sizing->waits = inflate->nwalks == PS_WALKS_MAX;
	if (sizing->waits)
		return true;
	sizing->walks = true;
	inflate->nwalks++;
	return submit(sizing, STEP_WALK, 0, PS_MIN(PS_WALK_NBYTES, size)) == 0;
}

static bool take_seek_table(struct ps_decompressing *inflater, const struct ps_sizing *sizing)
{
	struct ps_frame_map *map = &inflater->map;

	if (ps_seek_table_parse(sizing->data, sizing->get.nbytes, inflater->source.size, map) < 0)
		return false;
	if (map->points[map->n - 1].plain > PS_OBJECT_MAX_NBYTES) {
		ps_frame_map_fini(map);
		return false;
	}
	found(inflater, map->points[map->n - 1].plain, false);
	return true;
}

/* What this step's bytes tell; true: asked for more, or the size is known. False: the headers do not tell it.
 */
static bool look(struct ps_decompressing *inflater, struct ps_sizing *sizing)
{
	uint64_t size = inflater->source.size;
	uint64_t table;

	switch (sizing->step) {
	case STEP_HEAD:
		sizing->nhead = sizing->get.nbytes;
		sizing->head = ps_steal_ptr(&sizing->data);
		if (sizing->nhead == size)
			return begin_walk(sizing);
		return submit(sizing, STEP_FOOTER, size - PS_SEEK_FOOTER_NBYTES, PS_SEEK_FOOTER_NBYTES) == 0;
	case STEP_FOOTER:
		table = ps_seek_footer_parse(sizing->data, size);
		if (table && table <= TABLE_MAX_NBYTES)
			return submit(sizing, STEP_TABLE, size - table, table) == 0;
		size = judge_head(sizing->head, sizing->nhead, size);
		if (size == PS_SIZE_UNKNOWN)
			return inflater->base->local && begin_walk(sizing);
		found(inflater, size, true);
		return true;
	case STEP_TABLE:
		if (!take_seek_table(inflater, sizing)) {
			ps_log_warning("inflate: %s: its seek table does not fit it, and is not used",
			        inflater->url);
			return inflater->base->local && begin_walk(sizing);
		}
		return true;
	case STEP_WALK:
		return walk(sizing, sizing->data, sizing->get.nbytes, sizing->get.offset);
	}
	return false;
}

/* The origin ----------------------------------------------------------------------------------------- */

/* Decoding has to tell. */
static void give_up(struct ps_decompressing *inflater)
{
	ps_headers_free(inflater);
	inflater->sizing = PS_SIZING_ALL;
}

static void begin(struct ps_decompressing *inflater)
{
	uint64_t size = inflater->source.size;
	struct ps_sizing *sizing = calloc(1, sizeof *sizing);

	if (!sizing || size == 0) {
		free(sizing);
		inflater->sizing = PS_SIZING_ALL;
		return;
	}
	sizing->inflater = inflater;
	inflater->headers = sizing;
	if (submit(sizing, STEP_HEAD, 0, PS_MIN(HEAD_NBYTES, size)) < 0)
		give_up(inflater);
}

/* The same again, after a while. */
static void again(struct ps_decompressing *inflater, struct ps_sizing *sizing)
{
	if (sizing->done) {
		sizing->done = false;
		sizing->retry_ns =
		        ps_clock_mono_ns() + (RETRY_NS << PS_MIN(sizing->attempts, RETRY_MAX_DOUBLED));
		sizing->attempts++;
	} else if (submit(sizing, sizing->step, sizing->get.offset, sizing->get.nbytes) < 0) {
		give_up(inflater);
	}
}

/* As for reads: while somebody waits, until his time is up. */
static bool may_try_again(const struct ps_decompressing *inflater, const struct ps_sizing *sizing)
{
	return sizing->err.retryable &&
	       (sizing->attempts < ATTEMPTS || (inflater->waiters && sizing->err.err != EPROTO));
}

static void fail(struct ps_decompressing *inflater, const struct ps_error *of)
{
	struct ps_error err = *of; /* what it is in is freed */

	ps_headers_free(inflater);
	ps_log_warning("inflate: %s: %s", inflater->url, err.text);
	ps_size_answer(inflater,
	        err.err == EAGAIN || err.err == EPROTO || err.err == EHOSTUNREACH ? EIO : err.err, err.text);
}

/* Goes on with what has come; drops the lock for the index. Either it is answered in the end, or what is left
 * to do is PS_SIZING_ALL. */
static void ps_headers_step(struct ps_decompressing *inflater)
{
	struct ps_sizing *sizing = inflater->headers;

	if (!sizing) {
		begin(inflater);
		return;
	}
	if (sizing->pending || sizing->retry_ns)
		return;
	if (sizing->waits) {
		if (!begin_walk(sizing))
			give_up(inflater);
		return;
	}
	if (!sizing->done || (sizing->err.err && may_try_again(inflater, sizing))) {
		again(inflater, sizing);
		return;
	}
	if (sizing->err.err) {
		fail(inflater, &sizing->err);
		return;
	}
	sizing->attempts = 0;
	if (!look(inflater, sizing))
		give_up(inflater);
}

/* By decoding ---------------------------------------------------------------------------------------- */

/* How long it is what a shard holds, found out once for all who ask. What headers do not tell (gzip, zstd
 * from a pipe, many frames without a table at an origin across a network) takes decoding all of it, which
 * goes into the cache on the way: the file has its size at the end, and by then all of its bytes. */

/* Waiters ---------------------------------------------------------------------------------------- */

/* The lock is held, and dropped meanwhile. */
static void answer(
        struct ps_decompressing *inflater, struct ps_waiter *waiters, int errnum, uint64_t size, const char *text)
{
	struct ps_decompress *inflate = inflater->inflate;

	while (waiters) {
		struct ps_waiter *next = waiters->next;

		inflate->nwaiters--;
		pthread_mutex_unlock(&inflate->lock);
		waiters->fn(waiters->arg, errnum, size, text);
		free(waiters);
		pthread_mutex_lock(&inflate->lock);
		ps_decompressing_unref(inflater);
		waiters = next;
	}
}

void ps_size_answer(struct ps_decompressing *inflater, int errnum, const char *text)
{
	inflater->sizing = PS_SIZING_NO;
	answer(inflater, ps_steal_ptr(&inflater->waiters), errnum, inflater->size, text);
}

void ps_decompressing_size(struct ps_decompressing *inflater, ps_decompress_size_fn fn, void *arg)
{
	struct ps_decompress *inflate = inflater->inflate;
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
			ps_decompress_watch(inflate, &inflate->nwaiters);
			ps_decompressing_ref(inflater);
			if (inflater->sizing == PS_SIZING_NO)
				inflater->sizing =
				        inflater->coding == PS_CODING_ZSTD && !inflater->nodes_below
				                ? PS_SIZING_HEADERS
				                : PS_SIZING_ALL;
			ps_decompressing_wake(inflater);
			return;
		}
	}
	free(waiter);
	fn(arg, err.err, size, err.text);
}

bool ps_decompressing_damaged(struct ps_decompressing *inflater)
{
	PS_LOCK_SCOPE(&inflater->inflate->lock);
	return inflater->bad.err && ps_clock_mono_ns() < inflater->bad_until_ns;
}

/* Takes one waiter whose time is up. */
static struct ps_waiter *take_expired(struct ps_decompressing *inflater, uint64_t now_ns)
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

void ps_size_expire(struct ps_decompress *inflate, uint64_t now_ns)
{
	const struct ps_list *head = &inflate->inflaters;

	for (const struct ps_list *l = head->next; l != head;) {
		struct ps_decompressing *inflater = PS_CONTAINER_OF(l, struct ps_decompressing, link);
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

static bool has_sizing_decompressor(const struct ps_decompressing *inflater)
{
	for (const struct ps_list *l = inflater->decompressors.next; l != &inflater->decompressors; l = l->next)
		if (PS_CONTAINER_OF(l, struct ps_decompressor, link)->sizes &&
		        PS_CONTAINER_OF(l, struct ps_decompressor, link)->state != PS_DECOMPRESSOR_ENDING)
			return true;
	return false;
}

/* A file whose end is not known yet, for what is decoded on the way. The lock is dropped meanwhile. */
static void open_provisional(struct ps_decompressing *inflater)
{
	struct ps_decompress *inflate = inflater->inflate;
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

static void decode_all(struct ps_decompressing *inflater)
{
	struct ps_decompress *inflate = inflater->inflate;

	if (has_sizing_decompressor(inflater))
		return;
	open_provisional(inflater);
	if (inflater->aborted || has_sizing_decompressor(inflater))
		return;
	if (inflater->map.n == 0)
		ps_frame_map_add(&inflater->map, 0, 0);
	struct ps_decompressor *decompressor =
	        ps_decompressor_new(inflater, (struct ps_frame_point){0}, inflater->source.size, UINT64_MAX);
	if (decompressor)
		decompressor->sizes = true; /* before a thread takes it: the lock is held */
	else if (inflate->ndecompressors > 0)
		ps_decompress_make_room(inflate, NULL);
	else
		ps_size_answer(inflater, ENOMEM, "out of memory"); /* nobody will give any back */
}

void ps_size_step(struct ps_decompressing *inflater)
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
static void write_tail(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	const struct ps_out *out = &decompressor->out;
	uint64_t block = (out->pos - 1) / PS_BLOCK_SIZE;
	struct ps_object *object;

	if (ps_decompressing_object(inflater, 0, false, &object) < 0)
		return;
	if (ps_object_admit(object) == 0 && block * PS_BLOCK_SIZE >= out->base &&
	        ps_object_write_block(object, block, out->data + (block * PS_BLOCK_SIZE - out->base)) < 0)
		ps_log_debug("inflate: %s: its end is not cached", inflater->url);
	ps_object_put(object);
}

int ps_size_found(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *inflater = decompressor->inflater;
	struct ps_decompress *inflate = inflater->inflate;
	uint64_t size = decompressor->out.pos;
	struct ps_object *object;

	(void)ps_out_flush(decompressor, false);
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
		write_tail(decompressor);
	PS_LOCK_SCOPE(&inflate->lock);
	ps_decompressing_save(inflater);
	return 0;
}
