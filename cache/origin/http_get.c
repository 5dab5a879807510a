#include "origin/origin_private.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/size.h"
#include "base/url.h"

/* progress() is called after this many bytes, or when curl has no more at hand. A TLS record has 16 KiB;
 * the search for waiters after each record would cost more than its decryption. */
#define TELL_NBYTES ((size_t)128 * PS_KIB)

static int take_url(struct ps_http_request *rq, const char *url)
{
	rq->url = strdup(url);
	return rq->url ? 0 : ps_no_memory(&rq->error);
}

/* GET of a range ----------------------------------------------------------------------------------------- */

static struct ps_origin_get *get_of(struct ps_transfer_work *work)
{
	return PS_CONTAINER_OF(work, struct ps_origin_get, work);
}

static int get_prepare(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);

	rq->ranged = true;
	rq->range_first = get->offset;
	rq->range_last = get->offset + get->nbytes - 1;
	rq->expect = &get->expect;
	rq->fresh = get->fresh;
	rq->direct = get->direct || ps_remote_is_marked(&get->expect);
	rq->asks = get->asks || !ps_etag_is_strong(get->expect.etag);
	rq->url = ps_redirects_find(&rq->client->redirects, get->url, ps_clock_mono_ns());
	rq->remembered = rq->url;
	rq->redirects = rq->remembered;
	return rq->url ? 0 : take_url(rq, get->url);
}

/* Several servers may have the same name, and perhaps only one of them ignores ranges: then the request is worth
 * another attempt. If no answer ever had a part of an object, it is not. */
static void learn_ranges(struct ps_http_request *rq, int rc)
{
	struct ps_http_client *c = rq->client;

	if (rc == 0 && rq->response.has_range) {
		atomic_store(&c->ranged, true);
		atomic_store(&c->unranged, false);
	} else if (rc == -EPROTO && rq->response.status == 200 && !rq->response.bad_framing &&
	           !atomic_load(&c->ranged)) {
		atomic_store(&c->unranged, true);
		rq->error.retryable = false;
	}
}

int ps_http_get_check_range(struct ps_http_request *rq, const struct ps_remote *expect)
{
	uint64_t nbytes = rq->range_last + 1 - rq->range_first;
	int rc = ps_http_response_check_range(&rq->response, expect, rq->range_first, nbytes, &rq->error);

	if (rc == 0 && rq->response.has_range)
		rq->range_last = rq->range_first + rq->response.range_nbytes - 1;
	if (!rq->turn.tier)
		learn_ranges(rq, rc);
	return rc;
}

/* The origin's answer to the first byte names the version that tiers are asked for. */
static void learn_version(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);

	if (!get->expect.etag[0] && ps_etag_is_strong(get->seen.etag))
		memcpy(get->expect.etag, get->seen.etag, sizeof(get->expect.etag));
	rq->direct = rq->direct || !ps_etag_is_strong(get->expect.etag);
}

static int get_accept(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);

	ps_http_response_remote(&rq->response, &get->seen);
	get->first_byte_ns = rq->first_byte_ns;
	int rc = ps_http_get_check_range(rq, &get->expect);
	/* An origin may leave the ETag out; a tier may not. */
	if (!rc && rq->turn.tier && strcmp(rq->response.etag, get->expect.etag) != 0)
		rc = ps_error_set(&rq->error, EPROTO, "HTTP %d: no ETag", rq->response.status);
	if (!rc && rq->is_asking)
		learn_version(rq);
	return rc;
}

/* Where the origin reports no versions, a mark (base/remote.h) stands for the version: a checksum of the
 * object's first bytes. Returns how many of the get's first bytes are compared with the expected mark; 0:
 * no mark is expected, or the get does not have all of these bytes. */
static size_t marked_nbytes(const struct ps_origin_get *get)
{
	size_t n = (size_t)PS_MIN((uint64_t)PS_MARKED_NBYTES, get->expect.size);

	return get->offset == 0 && get->nbytes >= n && ps_remote_is_marked(&get->expect) ? n : 0;
}

static bool has_mark(const struct ps_origin_get *get, size_t nbytes)
{
	struct ps_remote seen = PS_REMOTE_UNKNOWN;
	uint64_t crc = 0;

	for (int i = 0; nbytes; i++) {
		size_t n = PS_MIN(nbytes, get->iov[i].iov_len);

		crc = ps_crc64nvme(crc, get->iov[i].iov_base, n);
		nbytes -= n;
	}
	ps_remote_mark(&seen, crc);
	return strcmp(seen.etag, get->expect.etag) == 0;
}

/* Copies bytes to their place, after those that have arrived. There is one vector a block, so the search is
 * short. */
static void scatter(const struct ps_origin_get *get, const char *bytes, size_t n)
{
	size_t skip = get->nbytes_done;

	for (int i = 0; n && i < get->niov; i++) {
		size_t len = get->iov[i].iov_len;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		size_t part = PS_MIN(n, len - skip);
		memcpy((char *)get->iov[i].iov_base + skip, bytes, part);
		bytes += part;
		n -= part;
		skip = 0;
	}
}

void ps_http_get_report(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);

	if (!rq->untold_nbytes)
		return; /* reported since the flush was requested */
	rq->untold_nbytes = 0;
	if (get->progress)
		get->progress(get, get->nbytes_done);
}

int ps_http_get_body(struct ps_http_request *rq, const char *bytes, size_t n)
{
	struct ps_origin_get *get = get_of(rq->work);

	if (n > rq->range_last + 1 - get->offset - get->nbytes_done) {
		ps_error_set(
		        &rq->error, EPROTO, "HTTP %d: more bytes than the range has", rq->response.status);
		rq->error.retryable = true;
		rq->error.http_status = rq->response.status;
		return -EPROTO;
	}
	scatter(get, bytes, n);
	get->nbytes_done += n;
	size_t marked = marked_nbytes(get);
	if (get->nbytes_done < marked)
		return 0;
	if (get->nbytes_done - n < marked && !has_mark(get, marked)) {
		get->nbytes_done = 0;
		ps_error_set(&rq->error, ESTALE,
		        "the object has changed at the origin: its first %zu bytes differ", marked);
		rq->error.http_status = rq->response.status;
		return -ESTALE;
	}
	rq->untold_nbytes += n;
	/* Whether the bytes of such an answer are right is known only once it has ended. */
	if (!ps_http_response_is_sized(&rq->response))
		return 0;
	if (rq->untold_nbytes >= TELL_NBYTES)
		ps_http_get_report(rq);
	else
		ps_transfer_later(&rq->work->transfer);
	return 0;
}

void ps_http_get_drop(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);

	get->nbytes_done = (size_t)(rq->range_first - get->offset);
	rq->untold_nbytes = 0;
}

void ps_http_get_finish(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);

	if (rq->untold_nbytes)
		ps_http_get_report(rq);
	if (get->nbytes_done < marked_nbytes(get))
		get->nbytes_done = 0; /* their version was not confirmed */
	ps_tier_compare(rq, get);
	get->wire_nbytes = rq->wire_nbytes;
	get->first_byte_ns = rq->first_byte_ns;
}

static void get_finish(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);

	if (!rq->error.err && rq->redirects && !rq->remembered)
		ps_redirects_note(&rq->client->redirects, get->url, rq->url, ps_clock_mono_ns());
	ps_http_get_finish(rq);
}

/* If a remembered redirect target refuses a request, the object may have moved: asks at its own URL again. */
static bool ask_anew(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);
	int status = rq->response.status;

	if (!rq->error.err || !rq->remembered)
		return false;
	ps_redirects_forget(&rq->client->redirects, get->url);
	if (!rq->header_done || status < 400 || status >= 500 || status == 429)
		return false; /* the caller tries again */
	free(ps_steal_ptr(&rq->url));
	rq->remembered = false;
	rq->redirects = 0;
	return take_url(rq, get->url) == 0;
}

bool ps_http_get_again(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);

	if (rq->error.err || get->nbytes_done == get->nbytes)
		return false;
	if (get->offset + get->nbytes_done <= rq->range_last) {
		ps_error_set(&rq->error, EIO, "the connection ended after %zu of %zu bytes", get->nbytes_done,
		        get->nbytes);
		rq->error.retryable = true;
		rq->error.http_status = rq->response.status;
		return false;
	}
	ps_http_get_report(rq);
	rq->range_first = rq->range_last + 1;
	rq->range_last = get->offset + get->nbytes - 1;
	return true;
}

static bool get_again(struct ps_http_request *rq)
{
	return ask_anew(rq) || ps_http_get_again(rq);
}

static void get_done(struct ps_transfer_work *work, const struct ps_error *err)
{
	struct ps_origin_get *get = get_of(work);

	get->done(get, err);
}

static const struct ps_http_kind get_kind = {
        .method = "GET",
        .awaited = true,
        .tiered = true,
        .prepare = get_prepare,
        .accept = get_accept,
        .body = ps_http_get_body,
        .report = ps_http_get_report,
        .drop = ps_http_get_drop,
        .again = get_again,
        .finish = get_finish,
        .done = get_done,
};

void ps_http_get(struct ps_http_client *c, struct ps_origin_get *get)
{
	get->nbytes_done = 0;
	get->wire_nbytes = get->first_byte_ns = 0;
	get->seen = PS_REMOTE_UNKNOWN;
	ps_http_submit(c, &get_kind, &get->work);
}

/* HEAD --------------------------------------------------------------------------------------------------- */

static struct ps_origin_head *head_of(struct ps_transfer_work *work)
{
	return PS_CONTAINER_OF(work, struct ps_origin_head, work);
}

/* For an object without a version: its first bytes are checksummed into a mark. */
static void ask_first_bytes(struct ps_http_request *rq)
{
	rq->head = false;
	rq->ranged = true;
	rq->range_first = 0;
	rq->range_last = PS_MARKED_NBYTES - 1;
}

static int head_prepare(struct ps_http_request *rq)
{
	if (atomic_load(&rq->client->versionless))
		ask_first_bytes(rq);
	rq->fresh = head_of(rq->work)->fresh;
	return take_url(rq, head_of(rq->work)->url);
}

/* Warns of an HTML page where data is expected: a folder that a listing shows as a file, or a login page.
 * Each origin is warned of once only, because HTML files may be intended. */
static void warn_of_page(struct ps_http_request *rq)
{
	static const char *const pages[] = {".html", ".htm", ".xhtml", ".php"};
	size_t n = strcspn(rq->url, "?#");
	char safe[PS_URL_TEXT_LEN];

	if (!rq->response.html || (rq->response.status != 200 && rq->response.status != 206))
		return;
	for (size_t i = 0; i < PS_ARRAY_LEN(pages); i++)
		if (n >= strlen(pages[i]) &&
		        strncasecmp(rq->url + n - strlen(pages[i]), pages[i], strlen(pages[i])) == 0)
			return;
	if (!atomic_exchange(&rq->client->warned_of_page, true))
		ps_log_warning("%s: the server sends an HTML page; this may be a folder, or a login page",
		        ps_url_redact(rq->url, safe));
}

/* How many bytes of this response's body are checksummed into a mark; 0: it is no request for a mark, or
 * its response does not fit. */
static size_t mark_nbytes(const struct ps_http_request *rq, const struct ps_remote *seen)
{
	const struct ps_http_response *r = &rq->response;
	uint64_t n = PS_MIN((uint64_t)PS_MARKED_NBYTES, seen->size);
	bool asked = !rq->head && rq->range_last == PS_MARKED_NBYTES - 1;
	bool fits = r->has_range ? r->range_first == 0 && r->range_nbytes == n : r->status == 200;

	return asked && fits && !r->encoded && seen->size != PS_SIZE_UNKNOWN && ps_remote_versionless(seen)
	               ? (size_t)n
	               : 0;
}

static int head_accept(struct ps_http_request *rq)
{
	const struct ps_http_response *r = &rq->response;
	struct ps_origin_head *head = head_of(rq->work);

	rq->wanted_enough = true;
	rq->mark_left = 0;
	ps_http_response_remote(r, &head->seen);
	warn_of_page(rq);
	if (!rq->head && r->status == 416 && r->has_range && r->range_total == 0)
		return 0; /* no range fits an empty object */
	int rc = ps_http_response_status(r, NULL, &rq->error);
	if (rc == 0 && rq->head && r->is_http10 && !r->offers_ranges && !atomic_load(&rq->client->ranged))
		atomic_store(&rq->client->unranged, true);
	if (rc == 0)
		rq->mark_left = mark_nbytes(rq, &head->seen);
	rq->mark_crc = 0;
	rq->wanted_enough = rq->mark_left == 0;
	return rc;
}

static int head_body(struct ps_http_request *rq, const char *bytes, size_t n)
{
	n = PS_MIN(n, rq->mark_left);
	rq->mark_crc = ps_crc64nvme(rq->mark_crc, bytes, n);
	rq->mark_left -= n;
	rq->wanted_enough = rq->mark_left == 0;
	if (rq->wanted_enough)
		ps_remote_mark(&head_of(rq->work)->seen, rq->mark_crc);
	return 0;
}

/* Called when the response has given the object's size. If it has given no version, requests the object's
 * first bytes for a mark, unless this response had them. True: send another request. */
static bool again_for_mark(struct ps_http_request *rq)
{
	struct ps_origin_head *head = head_of(rq->work);
	bool versionless = ps_remote_versionless(&head->seen) && !rq->client->dialect;

	atomic_store(&rq->client->versionless, versionless);
	if (rq->mark_left) {
		ps_error_set(&rq->error, EIO, "the connection ended %zu bytes early", rq->mark_left);
		rq->error.retryable = true;
		rq->error.http_status = rq->response.status;
		return false;
	}
	if (!versionless || head->seen.size == 0 || (!rq->head && rq->range_last == PS_MARKED_NBYTES - 1))
		return false;
	ask_first_bytes(rq);
	return true;
}

/* If a server refuses HEAD, or its answer gives no size, the first byte is requested with GET. (A URL that
 * is signed for GET answers HEAD with 403.) */
static bool head_again(struct ps_http_request *rq)
{
	struct ps_origin_head *head = head_of(rq->work);
	int status = rq->response.status;
	bool known = !rq->error.err && head->seen.size != PS_SIZE_UNKNOWN;

	if (known)
		return again_for_mark(rq);
	/* An object store gives the reason for a refusal in the body, and the response to a HEAD has no
	 * body: the GET gets the reason. */
	bool unclear = rq->client->dialect && status >= 300 && status < 500 && status != 404;
	if (rq->head && (!rq->error.err || unclear || status == 403 || status == 405 || status == 500 ||
	                        status == 501)) {
		rq->head = false;
		rq->ranged = true;
		rq->range_first = rq->range_last = 0;
		return true;
	}
	if (!rq->error.err)
		ps_error_set(&rq->error, EPROTO, "the server gives no size; a folder's URL ends with /");
	return false;
}

static void head_done(struct ps_transfer_work *work, const struct ps_error *err)
{
	struct ps_origin_head *head = head_of(work);

	head->done(head, err);
}

static const struct ps_http_kind head_kind = {
        .method = "HEAD",
        .awaited = true,
        .prepare = head_prepare,
        .accept = head_accept,
        .body = head_body,
        .again = head_again,
        .done = head_done,
};

void ps_http_head(struct ps_http_client *c, struct ps_origin_head *head)
{
	head->seen = PS_REMOTE_UNKNOWN;
	ps_http_submit(c, &head_kind, &head->work);
}

/* Origins with one client -------------------------------------------------------------------------------- */

static struct ps_http_origin *http_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_http_origin, origin);
}

void ps_http_origin_head(struct ps_origin *o, struct ps_origin_head *head)
{
	ps_http_head(&http_of(o)->client, head);
}

void ps_http_origin_get(struct ps_origin *o, struct ps_origin_get *get)
{
	ps_http_get(&http_of(o)->client, get);
}

void ps_http_origin_cancel(struct ps_origin *o, struct ps_origin_get *get)
{
	ps_http_cancel(&http_of(o)->client, &get->work);
}

void ps_http_origin_abort(struct ps_origin *o)
{
	ps_transfers_abort(http_of(o)->client.transfers);
}

void *ps_http_origin_new(
        size_t nbytes, const struct ps_origin_ops *ops, struct ps_origin_source *source, struct ps_error *err)
{
	struct ps_http_origin *http = calloc(1, nbytes);

	if (!http) {
		ps_source_fini(source);
		ps_no_memory(err);
		return NULL;
	}
	http->origin.ops = ops;
	http->origin.answer_ns = &http->client.answer_ns;
	http->origin.unranged = &http->client.unranged;
	http->source = *source;
	*source = (struct ps_origin_source){0};
	return http;
}
