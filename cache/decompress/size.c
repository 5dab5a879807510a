/* Finds the size of a shard's content, once for all waiters: from headers if they have it, else by decoding
 * everything. The steps run on the threads of stage.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "decompress/decompress_private.h"
#include "decompress/frame.h"

/* Waiters ------------------------------------------------------------------------------------------------ */

/* Answers a list of waiters. The lock is held, and dropped meanwhile. */
static void answer(struct ps_decompressing *shard, struct ps_size_waiter *waiters, int errnum, uint64_t size,
        const char *text)
{
	struct ps_decompress *stage = shard->stage;

	while (waiters) {
		struct ps_size_waiter *next = waiters->next;

		stage->nwaiters--;
		pthread_mutex_unlock(&stage->lock);
		waiters->fn(waiters->arg, errnum, size, text);
		free(waiters);
		pthread_mutex_lock(&stage->lock);
		ps_decompressing_unref(shard);
		waiters = next;
	}
}

static void answer_all(struct ps_decompressing *shard, int errnum, const char *text)
{
	shard->sizing = PS_SIZING_NO;
	answer(shard, ps_steal_ptr(&shard->waiters), errnum, shard->size, text);
}

void ps_size_fail(struct ps_decompressing *shard, const struct ps_error *err)
{
	answer_all(shard, err->err, err->text);
}

void ps_decompressing_size(struct ps_decompressing *shard, ps_decompress_size_fn fn, void *arg)
{
	struct ps_decompress *stage = shard->stage;
	struct ps_size_waiter *waiter = calloc(1, sizeof(*waiter));
	struct ps_error err = {0};
	uint64_t size, now = ps_clock_mono_ns();
	{
		PS_LOCK_SCOPE(&stage->lock);
		size = shard->size;
		if (!waiter)
			ps_error_set(&err, ENOMEM, "out of memory");
		else if (shard->aborted)
			ps_error_set(&err, ECANCELED, "cancelled");
		else if (size == PS_SIZE_UNKNOWN && shard->bad.err && now < shard->bad_until_ns)
			err = shard->bad;
		if (size == PS_SIZE_UNKNOWN && !err.err) {
			*waiter = (struct ps_size_waiter){.next = shard->waiters,
			        .fn = fn,
			        .arg = arg,
			        .expires_ns = now + ps_fill_timeout_ns(stage->fill)};
			shard->waiters = waiter;
			ps_decompress_watch(stage, &stage->nwaiters);
			shard->refs++;
			if (shard->sizing == PS_SIZING_NO)
				shard->sizing = shard->coding == PS_CODING_ZSTD && !shard->nodes_below
				                        ? PS_SIZING_HEADERS
				                        : PS_SIZING_ALL;
			ps_decompressing_wake(shard);
			return;
		}
	}
	free(waiter);
	fn(arg, err.err, size, err.text);
}

bool ps_decompressing_damaged(struct ps_decompressing *shard)
{
	PS_LOCK_SCOPE(&shard->stage->lock);
	return shard->bad.err && ps_clock_mono_ns() < shard->bad_until_ns;
}

/* By headers: requests ----------------------------------------------------------------------------------- */

/* These headers are read: all of a small file; the seek table at the end; the header of the only frame. In a
 * file on this machine the headers of all frames and blocks are walked over: reading twice costs little
 * there, while decoding before the first read costs much. */

/* Enough for one block of 128 KiB that could not be compressed, with its headers. */
#define HEAD_NBYTES (144 * UINT64_C(1024))
#define TABLE_MAX_NBYTES (16 * PS_MIB)
#define ATTEMPTS 5 /* further attempts after an origin broke the protocol */
/* pause before the first further attempt; doubled for each later one */
#define RETRY_NS (300 * PS_NS_PER_MS)
#define RETRY_MAX_DOUBLED 5u /* how often the pause is doubled at most */

enum step { STEP_HEAD, STEP_FOOTER, STEP_TABLE, STEP_WALK };

struct ps_headers {
	struct ps_origin_get get; /* first */
	struct iovec iov;
	struct ps_decompressing *shard; /* a reference */
	enum step step;
	bool pending;
	struct ps_error err;
	unsigned attempts;
	uint64_t retry_ns;    /* when the step is requested again; 0: it is not */
	uint8_t *head, *data; /* data: of the present step */
	size_t nhead, cap;    /* cap: data's */
	struct ps_frame_walk walk;
};

static void on_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct ps_headers *headers = (struct ps_headers *)get;
	struct ps_decompressing *shard = headers->shard;
	struct ps_decompress *stage = shard->stage;

	ps_fill_count_bytes(stage->fill, get->wire_nbytes - get->work.tier_nbytes, get->work.tier_nbytes);
	ps_fill_count_request(stage->fill, err->err && err->err != ECANCELED);
	ps_fill_count_answer(stage->fill, get->first_byte_ns);
	ps_decompressing_proved(shard, get);
	ps_decompressing_note(shard, err);
	PS_LOCK_SCOPE(&stage->lock);
	headers->err = *err;
	headers->pending = false;
	if (!shard->expect.etag[0])
		memcpy(shard->expect.etag, get->seen.etag, sizeof(shard->expect.etag));
	ps_decompressing_wake(shard);
}

static void on_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	(void)get;
	(void)nbytes_so_far;
}

/* Requests the bytes of a step. False: out of memory. True: the lock was dropped, and `headers` may be
 * gone. */
static bool request(struct ps_headers *headers, enum step step, uint64_t offset, uint64_t nbytes)
{
	struct ps_decompressing *shard = headers->shard;

	if (!headers->data || headers->cap < nbytes) {
		free(headers->data);
		headers->cap = nbytes;
		headers->data = malloc(nbytes);
	}
	if (!headers->data)
		return false;
	headers->step = step;
	headers->pending = true;
	headers->iov = (struct iovec){.iov_base = headers->data, .iov_len = nbytes};
	headers->get = (struct ps_origin_get){.url = shard->url,
	        .expect = shard->expect,
	        .asks = true,
	        .offset = offset,
	        .nbytes = nbytes,
	        .iov = &headers->iov,
	        .niov = 1,
	        .progress = on_progress,
	        .done = on_done};
	pthread_mutex_unlock(&shard->stage->lock);
	shard->base->ops->get(shard->base, &headers->get);
	pthread_mutex_lock(&shard->stage->lock);
	if (shard->aborted)
		ps_size_cancel(shard); /* an abort while the lock was dropped may have missed the request */
	return true;
}

void ps_size_cancel(struct ps_decompressing *shard)
{
	if (shard->headers && shard->headers->pending)
		shard->base->ops->cancel(shard->base, &shard->headers->get);
}

/* No request is pending; the caller has a reference to the shard. */
static void headers_free(struct ps_decompressing *shard)
{
	struct ps_headers *headers = ps_steal_ptr(&shard->headers);

	ps_frame_map_fini(&headers->walk.map);
	free(headers->head);
	free(headers->data);
	free(headers);
	ps_decompressing_unref(shard);
}

/* By headers: parsing ------------------------------------------------------------------------------------ */

/* The size that the first frame's header declares. PS_SIZE_UNKNOWN: it declares none, or the file is longer
 * than that frame alone is likely to be. That no other frame follows is known only at the end of the frame;
 * until then its last bytes are not handed out. */
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
				break; /* too much memory for a guess */
		}
		if (event == PS_DECODE_END && !frame->skippable) {
			content = PS_SIZE_UNKNOWN; /* another frame most likely follows */
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

/* The size was found: saves it and answers the waiters. Drops the lock for the index. */
static void found(struct ps_decompressing *shard, uint64_t size, bool declared)
{
	shard->size = size;
	shard->declared = declared;
	shard->sizing = PS_SIZING_NO;
	ps_decompressing_untell(shard);
	headers_free(shard);
	ps_decompressing_save(shard);
	answer_all(shard, 0, "");
}

/* Walks over the headers in these bytes, and requests those that follow. It needs no more memory than the first
 * step, since a thousand shards may be looked up at once. Returns as look() does. */
static bool walk(struct ps_headers *headers, const uint8_t *bytes, size_t n, uint64_t offset)
{
	struct ps_decompressing *shard = headers->shard;
	int rc = ps_frame_walk_step(&headers->walk, bytes, n, offset);
	uint64_t at = headers->walk.at, plain = headers->walk.plain;

	if (rc == -EAGAIN) {
		free(ps_steal_ptr(&headers->head));
		return request(headers, STEP_WALK, at, PS_MIN(HEAD_NBYTES, shard->source.size - at));
	}
	if (rc < 0 || plain > PS_OBJECT_MAX_NBYTES)
		return false; /* decoding reports the damage */
	ps_frame_map_fini(&shard->map);
	shard->map = headers->walk.map;
	headers->walk.map = (struct ps_frame_map){0};
	found(shard, plain, false);
	return true;
}

static bool begin_walk(struct ps_headers *headers)
{
	headers->walk.file_nbytes = headers->shard->source.size;
	return walk(headers, headers->head, headers->nhead, 0);
}

static bool take_seek_table(struct ps_headers *headers)
{
	struct ps_decompressing *shard = headers->shard;
	struct ps_frame_map *map = &shard->map;

	if (ps_seek_table_parse(headers->data, headers->get.nbytes, shard->source.size, map) < 0)
		return false;
	if (map->points[map->n - 1].plain > PS_OBJECT_MAX_NBYTES) {
		ps_frame_map_fini(map);
		return false;
	}
	found(shard, map->points[map->n - 1].plain, false);
	return true;
}

/* Evaluates the present step's bytes. True: more were requested, or the size is known; `headers` may be
 * gone. False: the headers do not have the size. */
static bool look(struct ps_headers *headers)
{
	struct ps_decompressing *shard = headers->shard;
	uint64_t size = shard->source.size, table;

	switch (headers->step) {
	case STEP_HEAD:
		headers->nhead = headers->get.nbytes;
		headers->head = ps_steal_ptr(&headers->data);
		if (headers->nhead == size)
			return begin_walk(headers);
		return request(headers, STEP_FOOTER, size - PS_SEEK_FOOTER_NBYTES, PS_SEEK_FOOTER_NBYTES);
	case STEP_FOOTER:
		table = ps_seek_footer_parse(headers->data, size);
		if (table && table <= TABLE_MAX_NBYTES)
			return request(headers, STEP_TABLE, size - table, table);
		size = judge_head(headers->head, headers->nhead, size);
		if (size == PS_SIZE_UNKNOWN)
			return shard->base->local && begin_walk(headers);
		found(shard, size, true);
		return true;
	case STEP_TABLE:
		if (take_seek_table(headers))
			return true;
		ps_log_warning("decompress: %s: its seek table does not fit it, and is not used", shard->url);
		return shard->base->local && begin_walk(headers);
	case STEP_WALK:
		return walk(headers, headers->data, headers->get.nbytes, headers->get.offset);
	}
	return false;
}

/* By headers: steps -------------------------------------------------------------------------------------- */

/* Headers do not have the size: it is found by decoding. */
static void give_up(struct ps_decompressing *shard)
{
	if (shard->headers)
		headers_free(shard);
	shard->sizing = PS_SIZING_ALL;
}

/* Schedules another attempt or, if none makes sense, answers the waiters. */
static void retry_or_fail(struct ps_decompressing *shard, uint64_t now_ns)
{
	struct ps_headers *headers = shard->headers;
	struct ps_error err = headers->err;

	if (err.retryable && shard->waiters && (headers->attempts < ATTEMPTS || err.err != EPROTO)) {
		headers->retry_ns = now_ns + (RETRY_NS << PS_MIN(headers->attempts, RETRY_MAX_DOUBLED));
		headers->attempts++;
		return;
	}
	headers_free(shard);
	ps_size_fail(shard, &err);
}

/* Evaluates the bytes of headers that have arrived. At the end of all steps the waiters are answered, or
 * the size must be found by decoding (PS_SIZING_ALL). The lock is held, and dropped meanwhile. */
static void headers_step(struct ps_decompressing *shard)
{
	struct ps_headers *headers = shard->headers;
	uint64_t now_ns = ps_clock_mono_ns(), size = shard->source.size;

	if (!headers) {
		headers = size ? calloc(1, sizeof(*headers)) : NULL;
		if (headers) {
			headers->shard = shard;
			shard->headers = headers;
			shard->refs++;
		}
		if (!headers || !request(headers, STEP_HEAD, 0, PS_MIN(HEAD_NBYTES, size)))
			give_up(shard);
	} else if (headers->pending) {
		return;
	} else if (headers->retry_ns && shard->waiters) {
		if (now_ns < headers->retry_ns)
			return;
		headers->retry_ns = 0;
		if (!request(headers, headers->step, headers->get.offset, headers->get.nbytes))
			give_up(shard);
	} else if (headers->err.err) {
		retry_or_fail(shard, now_ns);
	} else {
		headers->attempts = 0;
		if (!look(headers))
			give_up(shard);
	}
}

void ps_size_expire(struct ps_decompress *stage, uint64_t now_ns)
{
again:
	PS_LIST_EACH (struct ps_decompressing, shard, &stage->shards, link) {
		const struct ps_headers *headers = shard->headers;
		struct ps_size_waiter **at = &shard->waiters;

		while (*at && now_ns < (*at)->expires_ns)
			at = &(*at)->next;
		struct ps_size_waiter *expired = *at;
		if (expired) {
			*at = expired->next;
			expired->next = NULL;
		}
		/* A further attempt is due, or not needed because no reader waits for the size any more. */
		if (headers && headers->retry_ns && (now_ns >= headers->retry_ns || !shard->waiters))
			ps_decompressing_wake(shard);
		if (!expired)
			continue;
		struct ps_error trouble = shard->trouble;
		answer(shard, expired, trouble.err ? trouble.err : ETIMEDOUT, PS_SIZE_UNKNOWN,
		        trouble.err ? trouble.text
		                    : "its size is not known yet: it is being decompressed; ask again");
		goto again; /* the list may have changed */
	}
}

/* By decoding -------------------------------------------------------------------------------------------- */

/* If headers do not have the size (gzip, zstd from a pipe, many frames without a table at an origin across a
 * network), everything is decoded into the cache. At the end the file has its size and all of its bytes. */

static bool has_sizing_decompressor(const struct ps_decompressing *shard)
{
	PS_LIST_EACH (const struct ps_decompressor, decompressor, &shard->decompressors, link)
		if (decompressor->sizes && decompressor->state != PS_DECOMPRESSOR_ENDING)
			return true;
	return false;
}

/* Opens an object of unknown size for the decoded bytes. The lock is dropped meanwhile. */
static void open_provisional(struct ps_decompressing *shard)
{
	struct ps_decompress *stage = shard->stage;
	struct ps_object *object = NULL;

	if (shard->object)
		return;
	shard->sizing = PS_SIZING_OPENS;
	pthread_mutex_unlock(&stage->lock);
	int rc = ps_object_get_unsized(stage->store, shard->object_url, &shard->source, &shard->id, &object);
	bool takes = rc == 0 && ps_object_admit(object) == 0;
	pthread_mutex_lock(&stage->lock);
	shard->object = object;
	shard->caches = takes;
	shard->sizing = PS_SIZING_ALL;
}

/* Starts the decompressor that finds the size. True: a place or memory is lacking. */
static bool decode_all(struct ps_decompressing *shard)
{
	if (has_sizing_decompressor(shard))
		return false;
	open_provisional(shard);
	if (shard->aborted || has_sizing_decompressor(shard))
		return false;
	if (shard->map.n == 0)
		ps_frame_map_add(&shard->map, 0, 0);
	struct ps_decompressor *decompressor =
	        ps_decompressor_new(shard, (struct ps_frame_point){0}, shard->source.size, UINT64_MAX);
	if (decompressor) {
		decompressor->sizes = true; /* no thread has the decompressor yet, since the lock is held */
		return false;
	}
	if (shard->stage->ndecompressors > 0)
		return true;
	answer_all(shard, ENOMEM, "out of memory"); /* no decompressor is left that could free memory */
	return false;
}

bool ps_size_step(struct ps_decompressing *shard)
{
	if (shard->aborted) {
		if (shard->headers && !shard->headers->pending)
			headers_free(shard);
		answer_all(shard, ECANCELED, "cancelled");
		return false;
	}
	if (shard->sizing == PS_SIZING_HEADERS)
		headers_step(shard);
	return shard->sizing == PS_SIZING_ALL && decode_all(shard);
}

/* Writes the last block, which had to wait for the size. The lock is not held. */
static void write_tail(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *shard = decompressor->shard;
	const struct ps_out *out = &decompressor->out;
	uint64_t block = (out->pos - 1) / PS_BLOCK_SIZE;
	struct ps_object *object;

	if (ps_decompressing_object(shard, 0, false, &object) < 0)
		return;
	if (ps_object_admit(object) == 0 && block * PS_BLOCK_SIZE >= out->base &&
	        ps_object_write_block(object, block, out->data + (block * PS_BLOCK_SIZE - out->base)) < 0)
		ps_log_debug("decompress: %s: its end is not cached", shard->url);
	ps_fill_stored(shard->stage->fill, object, block * PS_BLOCK_SIZE, UINT64_MAX);
	ps_object_put(object);
}

/* Gives the object its size. False: the cache does not have the shard. The lock is not held. */
static bool object_ends(struct ps_decompressing *shard, struct ps_object *object, uint64_t size)
{
	bool caches = object && size > 0 && shard->caches;

	/* If the cache does not have the shard, the object cannot get this size, and is retired. */
	if (object && !caches && (size == 0 || ps_object_size(object) != size) &&
	        ps_object_retire(object) < 0)
		ps_log_debug(
		        "decompress: %s: what was decoded to find its size cannot be dropped", shard->url);
	ps_object_put(object);
	if (caches && ps_store_set_size(shard->stage->store, &shard->id, size) < 0)
		ps_log_warning(
		        "decompress: %s: what was decoded to find its size cannot be kept", shard->url);
	return caches;
}

void ps_size_decoded(struct ps_decompressor *decompressor)
{
	struct ps_decompressing *shard = decompressor->shard;
	struct ps_decompress *stage = shard->stage;
	uint64_t size = decompressor->out.pos;

	pthread_mutex_unlock(&stage->lock);
	ps_out_flush(decompressor, false);
	ps_writes_wait(shard);
	pthread_mutex_lock(&stage->lock);
	struct ps_object *object = ps_steal_ptr(&shard->object);
	pthread_mutex_unlock(&stage->lock);
	bool caches = object_ends(shard, object, size);
	pthread_mutex_lock(&stage->lock);
	shard->size = size;
	ps_decompressing_untell(shard);
	shard->declared = false;
	shard->caches = false; /* admission is decided again, for the file of known size */
	if (caches) {
		pthread_mutex_unlock(&stage->lock);
		write_tail(decompressor);
		pthread_mutex_lock(&stage->lock);
	}
	ps_decompressing_save(shard);
	answer_all(shard, 0, "");
}
