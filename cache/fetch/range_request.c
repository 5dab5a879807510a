/* Range requests for contiguous missing chunks, from the claim to the end: submitting, progress, retries
 * with back-off, and failing the chunks that did not come. Functions return the outcome of an event (struct
 * ps_outcome), which the engine carries out. */
#include "fetch/fill_private.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_MIN_BYTES (8 << 20)
/* after this many HEADs in a row without a checksum, the origin is not asked any more */
#define ASK_IN_VAIN 8

/* Limits of attempts without progress. While a reader waits, attempts go on until its deadline, unless the
 * answers are invalid. */
#define REQUEST_LIES_ATTEMPTS 8
#define REQUEST_AHEAD_ATTEMPTS 4 /* if no reader waits */
/* If the answer is the whole body. Usually the origin ignores ranges; but several servers may have the same
 * name, and perhaps only one of them ignores ranges. */
#define REQUEST_UNRANGED_ATTEMPTS 3
#define REFUSED_MAX_MS 60000u /* limit of a Retry-After, if no reader waits */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS 10000

/* Checksums ---------------------------------------------------------------------------------------------- */

/* A checksum request: a HEAD for an object whose listing had no checksum, if the origin's answers to HEAD
 * have checksums (struct ps_origin). It is sent with the first request for the object's bytes, so that the
 * checksum is known once all bytes are there. Without an answer, or if the answer has none, the object is
 * not compared. No HEAD is sent for small objects, for which HEADs would be most of the requests, nor to an
 * origin that gives no checksums. */
struct ask {
	struct ps_origin_head head; /* first member: done() finds the struct by it */
	struct ps_fill_file *file;  /* a reference */
	struct ps_remote expect;
};

static void asked(struct ps_origin_head *head, const struct ps_error *err)
{
	struct ask *ask = (struct ask *)head;
	struct ps_origin *origin = ask->file->origin;

	if (!err->err && ps_remote_same_version(&ask->expect, &head->seen))
		ps_object_expect(ask->file->object, head->seen.checksum, false);
	if (!err->err)
		atomic_store(&origin->sumless_heads,
		        head->seen.checksum[0] ? 0 : atomic_load(&origin->sumless_heads) + 1);
	ps_fill_file_put(ask->file);
	free(ask);
}

static void ask_checksum(struct ps_fill_file *file)
{
	struct ps_origin *origin = file->origin;
	struct ask *ask;

	if (!origin->heads_tell_sums || atomic_load(&origin->sumless_heads) >= ASK_IN_VAIN ||
	        ps_object_size(file->object) < ASK_MIN_BYTES || ps_object_sum(file->object) != PS_SUM_NONE)
		return;
	ask = calloc(1, sizeof(*ask));
	if (!ask)
		return;
	ask->file = ps_fill_file_ref(file);
	{
		PS_LOCK_SCOPE(&file->lock);
		ask->expect = file->remote;
	}
	ask->head = (struct ps_origin_head){
	        .url = ps_object_url(file->object), .done = asked, .seen = PS_REMOTE_UNKNOWN};
	atomic_fetch_add(&file->fill->origin.requests, 1);
	origin->ops->head(origin, &ask->head);
}

/* Starting ----------------------------------------------------------------------------------------------- */

static void set_iovecs(struct ps_range_request *request)
{
	uint64_t from = ps_range_request_offset(request) + request->base,
	         end = ps_range_request_offset(request) + request->nbytes;
	uint64_t block = request->first / PS_BLOCK_CHUNKS;

	request->get.niov = 0;
	for (unsigned i = 0; i < request->nbufs; i++) {
		uint64_t start = (block + i) * PS_BLOCK_SIZE;
		uint64_t lo = PS_MAX(from, start), hi = PS_MIN(end, start + PS_BLOCK_SIZE);

		if (lo < hi)
			request->iov[request->get.niov++] = (struct iovec){
			        .iov_base = request->bufs[i]->data + (lo - start), .iov_len = hi - lo};
	}
}

void ps_range_request_submit(struct ps_range_request *request)
{
	struct ps_fill_file *file = request->file;
	bool sum_asked;

	request->get.url = ps_object_url(file->object);
	request->get.offset = ps_range_request_offset(request) + request->base;
	request->get.nbytes = request->nbytes - request->base;
	request->get.progress = file->fill->events.progress;
	request->get.done = file->fill->events.done;
	request->get.asks = !atomic_load(&file->allowed);
	request->checked = request->other_version = false;
	request->counted = request->counted_of_tiers = 0;
	request->get.iov = request->iov;
	set_iovecs(request);
	{
		PS_LOCK_SCOPE(&file->lock);
		request->get.expect = file->remote;
		sum_asked = file->sum_asked;
		file->sum_asked = true;
	}
	if (!sum_asked)
		ask_checksum(file);
	atomic_store(&request->touched_ns, ps_clock_mono_ns());
	atomic_fetch_add(&file->fill->origin.requests, 1);
	file->origin->ops->get(file->origin, &request->get);
}

void ps_range_request_count(struct ps_fill_file *file, int more)
{
	bool was_busy = file->nrequests > 0;

	file->nrequests += (unsigned)more;
	file->fill->nbusy_files += (unsigned)(file->nrequests > 0) - (unsigned)was_busy;
	ps_demand_requeue(file);
}

void ps_range_request_free(struct ps_range_request *request)
{
	{
		PS_LOCK_SCOPE(&request->file->fill->lock);
		ps_range_request_count(request->file, -1);
	}
	for (unsigned i = 0; i < request->nbufs; i++)
		ps_block_memory_unref(request->bufs[i]);
	ps_fill_file_put(request->file);
	free(request);
}

void ps_range_requests_overdue(struct ps_fill_file *file, uint64_t from, uint64_t end)
{
	struct ps_fill *fill = file->fill;

	PS_LOCK_SCOPE(&fill->lock);
	PS_LIST_EACH (struct ps_range_request, request, &fill->running, link) {
		uint64_t first = ps_range_request_offset(request);

		if (request->file == file && first < end && from < first + request->nbytes)
			atomic_store(&request->get.work.overdue, true);
	}
}

/* Returns the block's buffer, with memory: if it had none, it takes the next one of `bufs`, and *nused counts
 * that. NULL: they are used up, or the struct could not be allocated. */
static struct ps_block_buffer *buffer_with_memory(struct ps_fill_file *file, uint64_t block,
        struct ps_block_memory *const *bufs, size_t nbufs, size_t *nused)
{
	struct ps_block_buffer *buffer = file->buffers[block];

	if (buffer && buffer->memory)
		return buffer;
	if (*nused == nbufs)
		return NULL;
	if (!buffer)
		buffer = ps_block_buffer_new(file, block);
	if (buffer)
		buffer->memory = bufs[(*nused)++];
	return buffer;
}

struct ps_range_request *ps_range_request_claim(struct ps_fill_file *file, uint64_t first, uint64_t end,
        struct ps_block_memory *const *bufs, size_t nbufs, size_t *nused)
{
	struct ps_range_request *request = calloc(1, sizeof(*request));
	uint64_t c = first;

	*nused = 0;
	if (!request)
		return NULL;
	request->file = file;
	request->first = first;
	request->started_ns = ps_clock_mono_ns();
	atomic_init(&request->touched_ns, request->started_ns); /* it cannot be late before it is submitted */
	ps_list_init(&request->link);
	while (c < end && request->nbufs < PS_REQUEST_MAX_BLOCKS) {
		uint64_t block = c / PS_BLOCK_CHUNKS, stop = PS_MIN(end, (block + 1) * PS_BLOCK_CHUNKS);
		struct ps_block_buffer *buffer = buffer_with_memory(file, block, bufs, nbufs, nused);

		if (!buffer)
			break;
		request->bufs[request->nbufs++] = ps_block_memory_ref(buffer->memory);
		for (; c < stop; c++)
			buffer->flight |= (uint16_t)(1u << c % PS_BLOCK_CHUNKS);
	}
	if (c == first) {
		free(request);
		return NULL;
	}
	request->nchunks = (unsigned)(c - first);
	request->nbytes = PS_MIN(c * PS_CHUNK_SIZE, ps_object_size(file->object)) - first * PS_CHUNK_SIZE;
	return request;
}

/* Progress ----------------------------------------------------------------------------------------------- */

/* Bytes [from, end) of the file, within the buffer's block, have arrived in its memory. */
static void buffer_arrived(struct ps_block_buffer *buffer, uint64_t from, uint64_t end)
{
	uint64_t base = buffer->block * PS_BLOCK_SIZE;
	uint64_t size = ps_object_size(buffer->file->object);

	for (uint64_t at = from; at < end;) {
		unsigned c = (unsigned)((at - base) / PS_CHUNK_SIZE);
		uint64_t start = base + c * PS_CHUNK_SIZE, stop = PS_MIN(start + PS_CHUNK_SIZE, size);
		uint16_t bit = (uint16_t)(1u << c);

		at = PS_MIN(end, stop);
		buffer->have[c] = (uint32_t)(at - start);
		if (at < stop)
			break;
		buffer->flight &= (uint16_t)~bit;
		buffer->failed &= (uint16_t)~bit;
		buffer->whole |= bit;
	}
}

void ps_range_request_advance(struct ps_range_request *request, size_t filled, struct ps_outcome *outcome)
{
	struct ps_fill_file *file = request->file;
	uint64_t from = ps_range_request_offset(request) + request->filled,
	         end = ps_range_request_offset(request) + filled;

	if (filled <= request->filled)
		return;
	atomic_fetch_add(&file->fill->arrived_bytes, filled - request->filled);
	atomic_store(&request->touched_ns, ps_clock_mono_ns());
	PS_LOCK_SCOPE(&file->lock);
	for (uint64_t at = from; at < end;) {
		struct ps_block_buffer *buffer = file->buffers[at / PS_BLOCK_SIZE];
		uint64_t stop = PS_MIN(end, (at / PS_BLOCK_SIZE + 1) * PS_BLOCK_SIZE);

		buffer_arrived(buffer, at, stop);
		buffer->from_afar = buffer->from_afar || !request->get.work.kept_here;
		if (buffer->awaited)
			atomic_fetch_add(&file->fill->hits.fetched_bytes, stop - at);
		at = stop;
	}
	/* Called before ps_block_buffer_settle(), which may free the buffers. */
	ps_waiters_look(file, from, end, outcome);
	for (uint64_t b = from / PS_BLOCK_SIZE; b * PS_BLOCK_SIZE < end; b++)
		ps_block_buffer_settle(file->buffers[b], &outcome->disk);
	request->filled = filled;
}

/* If the listing had no ETag, the first response's ETag becomes the version. Requests that were in flight
 * then could not send it as a condition, so their responses are compared here, before their bytes are
 * used. */
bool ps_range_request_same_version(struct ps_fill_file *file, const struct ps_remote *seen)
{
	{
		PS_LOCK_SCOPE(&file->lock);
		if (!file->remote.etag[0]) {
			memcpy(file->remote.etag, seen->etag, sizeof(file->remote.etag));
			if (seen->etag[0] == '"')
				ps_object_learn_etag(file->object, seen->etag);
		} else if (seen->etag[0] == '"' && file->remote.etag[0] == '"' &&
		           strcmp(seen->etag, file->remote.etag) != 0) {
			return false;
		}
	}
	/* Only after the comparison: another version has another checksum. */
	ps_object_expect(file->object, seen->checksum, false);
	return true;
}

void ps_range_request_check_version(struct ps_range_request *request)
{
	if (request->checked)
		return;
	request->checked = true;
	request->other_version = !ps_range_request_same_version(request->file, &request->get.seen);
	/* A decompressing origin may answer from the cache: only answers of its base are a proof. */
	struct ps_origin *origin = request->file->origin;
	if (request->other_version || !origin->proved || request->get.work.from_tier)
		return;
	origin->proved(origin->proved_arg, request->get.url, ps_object_remote(request->file->object),
	        request->get.work.key_expires_s);
	ps_fill_file_allow(request->file);
}

void ps_range_request_count_bytes(struct ps_range_request *request, uint64_t nbytes)
{
	uint64_t of_tiers = request->get.work.tier_nbytes, of_origin = nbytes - PS_MIN(nbytes, of_tiers);

	of_origin = PS_MAX(of_origin, request->counted);
	of_tiers = PS_MAX(of_tiers, request->counted_of_tiers);
	ps_fill_count_bytes(
	        request->file->fill, of_origin - request->counted, of_tiers - request->counted_of_tiers);
	request->counted = of_origin;
	request->counted_of_tiers = of_tiers;
}

/* Ending ------------------------------------------------------------------------------------------------- */

static uint64_t backoff_ns(unsigned attempts, uint32_t retry_after_ms)
{
	uint64_t ms = PS_MAX(ps_clock_backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS, attempts), retry_after_ms);

	/* Jitter is added, so that no retry comes before the time that the server asked for. */
	return (ms + ps_clock_jitter(ms / 2)) * PS_NS_PER_MS;
}

/* Queues a failed request among the retries, if another attempt is allowed. */
static bool request_retry(struct ps_range_request *request, const struct ps_error *err)
{
	struct ps_fill *fill = request->file->fill;
	uint64_t offset = ps_range_request_offset(request);
	bool waited;

	if (!err->retryable)
		return false;
	{
		PS_LOCK_SCOPE(&request->file->lock);
		waited = ps_waiters_first(request->file, offset, offset + request->nbytes);
	}
	request->attempts = request->filled > request->base ? 1 : request->attempts + 1;
	request->base = request->filled;
	request->get.fresh = err->err == ETIMEDOUT || !err->http_status;
	request->get.priv = NULL; /* cancel() may come before the next submission */
	unsigned most = !waited              ? REQUEST_AHEAD_ATTEMPTS
	                : err->err == EPROTO ? REQUEST_LIES_ATTEMPTS
	                                     : UINT_MAX;

	if (err->err == EPROTO && err->http_status == 200)
		most = REQUEST_UNRANGED_ATTEMPTS;
	/* If the server asks for a pause longer than any reader waits, the request fails at once, so that
	 * later readers do not wait for it, either. */
	if (err->retry_after_ms * PS_NS_PER_MS > fill->timeout_ns)
		most = 0;
	if (request->attempts > most)
		return false;
	request->retry_ns = ps_clock_mono_ns();
	if (!request->get.work.resend)
		request->retry_ns += backoff_ns(request->attempts, err->retry_after_ms);
	{
		PS_LOCK_SCOPE(&request->file->lock);
		request->file->attempt_errnum = err->err;
		snprintf(request->file->attempt, sizeof(request->file->attempt), "%s", err->text);
	}
	PS_LOCK_SCOPE(&fill->lock);
	if (request->file->draining)
		return false;
	atomic_fetch_add(&fill->origin.retries, 1);
	ps_tree_insert(&fill->retries, &request->retry, request->retry_ns);
	pthread_cond_signal(&fill->timer_cond);
	return true;
}

/* Gives up the chunks of a block that the request has not received: failed if a reader waits for them, else
 * released. The file's lock is held. */
static void give_up_block(struct ps_range_request *request, uint64_t block, int errnum, uint64_t until_ns,
        struct ps_outcome *outcome)
{
	struct ps_block_buffer *buffer = request->file->buffers[block];
	uint64_t end = ps_range_request_offset(request) + request->nbytes;
	uint16_t mine = ps_chunks_touched(block, ps_range_request_offset(request) + request->filled, end);

	for (unsigned c = 0; c < PS_BLOCK_CHUNKS; c++) {
		uint64_t start = block * PS_BLOCK_SIZE + c * PS_CHUNK_SIZE;

		if (!(mine >> c & 1))
			continue;
		/* A request that failed midway leaves `have` in the middle of a chunk. The next request
		 * fetches that chunk from its beginning. */
		buffer->flight &= (uint16_t) ~(1u << c);
		buffer->have[c] = 0;
		if (errnum && ps_waiters_first(request->file, start, PS_MIN(start + PS_CHUNK_SIZE, end)))
			ps_block_buffer_fail(buffer, (uint16_t)(1u << c), errnum, until_ns);
	}
	ps_block_buffer_settle(buffer, &outcome->disk);
}

/* The same for the whole request. Chunks that have come completely are not given up: they do not belong to the
 * request any more, and are written to the disk. */
static void give_up(
        struct ps_range_request *request, int errnum, uint64_t until_ns, struct ps_outcome *outcome)
{
	uint64_t from = ps_range_request_offset(request) + request->filled,
	         end = ps_range_request_offset(request) + request->nbytes;

	for (uint64_t b = from / PS_BLOCK_SIZE; b * PS_BLOCK_SIZE < end; b++)
		give_up_block(request, b, errnum, until_ns, outcome);
	/* a changed file also fails readers of chunks that are not requested yet */
	if (request->file->changed)
		ps_waiters_look(request->file, 0, UINT64_MAX, outcome);
	else
		ps_waiters_look(request->file, from, end, outcome);
}

void ps_range_request_fail(
        struct ps_range_request *request, const struct ps_error *err, struct ps_outcome *outcome)
{
	struct ps_fill_file *file = request->file;
	uint64_t now = ps_clock_mono_ns(), until = now + PS_FILL_FAILED_MS * PS_NS_PER_MS;
	uint64_t from = ps_range_request_offset(request) + request->filled,
	         end = ps_range_request_offset(request) + request->nbytes;
	bool tell;
	int errnum = err->err == EAGAIN || err->err == EPROTO || err->err == EHOSTUNREACH ? EIO : err->err;

	{
		PS_LOCK_SCOPE(&file->lock);
		file->errnum = err->err;
		snprintf(file->error, sizeof(file->error), "%s", err->text);
		file->error_is_timeout = false;
		if (err->err == ESTALE)
			file->changed = true;
		if (err->err == ESTALE || err->err == ENOENT)
			file->doubted = true;
		/* The origin refuses this object. For a while only demand reads are requested: read-ahead
		 * and warming would be refused again and again. */
		if (err->err == ENOENT || err->err == EACCES)
			file->refused_until_ns = until;
		if (err->err == EAGAIN)
			file->refused_until_ns = now + PS_MAX(PS_MIN(err->retry_after_ms, REFUSED_MAX_MS),
			                                       (uint64_t)PS_FILL_FAILED_MS) *
			                                       PS_NS_PER_MS;
		tell = err->err != ECANCELED && ps_fill_may_log(file, now);
		give_up(request, errnum, until, outcome);
	}
	if (err->err != ECANCELED)
		ps_fill_note_error(file->fill, err->text);
	if (tell)
		ps_log_warning("fetch: %s: bytes %" PRIu64 "-%" PRIu64 ": %s", ps_object_url(file->object),
		        from, end - 1, err->text);
}

bool ps_range_request_end(struct ps_range_request *request, const struct ps_error *err, bool gives_way,
        struct ps_outcome *outcome)
{
	struct ps_fill *fill = request->file->fill;

	if (!err->err) {
		PS_LOCK_SCOPE(&request->file->lock);
		request->file->attempt[0] = '\0';
		return true;
	}
	if (gives_way) {
		/* Received chunks stay. The whole rest is demanded again if a reader waits for any of it. */
		uint64_t from = ps_range_request_offset(request) + request->filled,
		         end = ps_range_request_offset(request) + request->nbytes;

		PS_LOCK_SCOPE(&request->file->lock);
		if (ps_waiters_first(request->file, from, end))
			ps_outcome_demand(
			        outcome, from / PS_CHUNK_SIZE, (end + PS_CHUNK_SIZE - 1) / PS_CHUNK_SIZE);
		give_up(request, 0, 0, outcome);
		return true;
	}
	if (err->err != ECANCELED)
		atomic_fetch_add(&fill->origin.errors, 1);
	ps_log_debug("fetch: %s: attempt failed: %s", ps_object_url(request->file->object), err->text);
	if (request_retry(request, err))
		return false;
	ps_range_request_fail(request, err, outcome);
	return true;
}
