/* A request: its attempts, curl's callbacks, what their results mean. */
#include "http/http_private.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "base/url.h"

#define RECEIVE_NBYTES 524288L
#define DRAIN_NBYTES \
	(64 * PS_KIB) /* an unwanted body up to this length is read, so that the connection can be kept */

static void request_free(struct ps_http_request *rq)
{
	if (!rq)
		return;
	curl_slist_free_all(rq->slist);
	ps_strbuf_fini(&rq->refusal);
	if (rq->key)
		rq->client->dialect->forget(rq);
	free(rq->location);
	free(rq->elsewhere);
	free(rq->away);
	free(rq->url);
	free(rq);
}

/* Callbacks of curl -------------------------------------------------------------------------------------- */

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
	struct ps_http_request *rq = arg;

	n *= size;
	if (!rq->turn.tier)
		ps_transfer_touch(&rq->work->transfer);
	if (!rq->first_byte_ns) {
		rq->first_byte_ns = PS_MAX(ps_clock_mono_ns() - rq->work->submitted_ns, 1u);
		uint64_t ns = rq->first_byte_ns, least = atomic_load(&rq->client->answer_ns);
		while ((!least || ns < least) &&
		        !atomic_compare_exchange_weak(&rq->client->answer_ns, &least, ns))
			;
	}
	if (rq->header_done)
		return n; /* trailers, after the body */
	/* Curl ends the header at any line that begins so. */
	if (n && line[0] != '\r' && line[0] != '\n') {
		ps_http_response_line(&rq->response, line, n);
		if (rq->kind->line)
			rq->kind->line(rq, line, n);
		return n;
	}
	if (n > 2)
		ps_http_response_line(&rq->response, line, n);
	if (rq->response.status < 200)
		return n; /* 100 Continue and the like: the real header follows */
	rq->header_done = true;
	if (rq->turn.tier)
		ps_tier_attempt_header(rq);
	else
		rq->work->key_expires_s = rq->key_expires_s;
	if (rq->client->as_stored && !rq->want_listing)
		rq->response.encoded = false;
	/* Curl goes on if accept() refuses a status: a short body is read to its end, and the connection can
	 * be kept. */
	if (!ps_http_is_redirect(rq))
		rq->kind->accept(rq);
	if (rq->client->look && !rq->turn.tier)
		rq->client->look(rq->client->look_arg, rq);
	if (rq->kind->tiered && !rq->turn.tier && !rq->error.err)
		atomic_store(&rq->client->unsized, !ps_http_response_is_sized(&rq->response));
	/* What follows an answer that contradicts itself may not be its body: the connection is closed. */
	bool lies = rq->error.err == EPROTO && (rq->response.status == 200 || rq->response.status == 206);
	return lies ? PS_HTTP_END_TRANSFER : n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
	struct ps_http_request *rq = arg;

	n *= size;
	if (rq->turn.tier)
		return ps_tier_attempt_body(rq, bytes, n);
	ps_transfer_touch(&rq->work->transfer);
	if (!rq->header_done) {
		ps_error_set(&rq->error, EPROTO, "a body without a header");
		rq->error.retryable = true;
		return PS_HTTP_END_TRANSFER;
	}
	rq->work->kept_here = false;
	if (rq->kind->tiered && !rq->pace.since_ns)
		ps_http_pace_begin(&rq->pace, rq->work->transfer.touched_ns, rq->wire_nbytes);
	rq->wire_nbytes += n;
	if (rq->error.err || rq->wanted_enough || ps_http_is_redirect(rq)) {
		if (rq->client->dialect && rq->error.err)
			ps_strbuf_addn(
			        &rq->refusal, bytes, PS_MIN(n, PS_HTTP_REFUSAL_MAX_NBYTES - rq->refusal.len));
		rq->thrown_nbytes += n;
		if (rq->thrown_nbytes > DRAIN_NBYTES || (rq->response.content_length != PS_SIZE_UNKNOWN &&
		                                                rq->response.content_length > DRAIN_NBYTES))
			return PS_HTTP_END_TRANSFER;
		return n;
	}
	rq->body_nbytes += n;
	return rq->kind->body(rq, bytes, n) == 0 ? n : PS_HTTP_END_TRANSFER;
}

/* The beginning of an attempt ---------------------------------------------------------------------------- */

static int set_up(struct ps_http_request *rq, CURL *curl)
{
	struct ps_http_client *c = rq->client;
	bool is_own = c->dialect ? !rq->away : ps_http_client_owns(c, rq->url);
	ps_autofree char *whole = NULL;
	int rc = 0;

	/* A redirect's target already has all of its parameters. */
	if (rq->away)
		rc = (whole = strdup(rq->away)) ? 0 : -ENOMEM;
	else if (c->dialect)
		rc = c->dialect->address(c->dialect_arg, rq, &whole);
	else if (!rq->redirects)
		rc = ps_http_client_url(c, rq->url, is_own, &whole);
	if (!rc)
		rc = ps_tier_attempt_begin(rq, whole ? whole : rq->url, is_own, &whole);
	if (rq->kind->tiered && atomic_load(&c->unsized))
		rq->range_last = PS_MIN(rq->range_last, rq->range_first + PS_HTTP_UNSIZED_NBYTES - 1);
	if (!rc)
		rc = ps_http_request_headers(rq, is_own);
	if (rc)
		return rc;
	/* A tier's attempt is looked at sooner: see stalled(). */
	rq->work->transfer.stall_ns = rq->turn.tier       ? PS_TIER_PING_MS * PS_NS_PER_MS
	                              : rq->kind->awaited ? c->attempt_ns
	                                                  : c->stall_ns;
	if (curl_easy_setopt(curl, CURLOPT_URL, whole ? whole : rq->url) != CURLE_OK)
		return -ENOMEM;
	if (c->dialect)
		curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
	curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, RECEIVE_NBYTES);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
	        (long)(rq->turn.tier ? PS_TIER_CONNECT_MS : PS_MIN(c->connect_timeout_ms, 3600u * 1000)));
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, rq->slist);
	curl_easy_setopt(curl, CURLOPT_NOBODY, rq->head ? 1L : 0L);
	curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, rq->fresh && !rq->turn.tier ? 1L : 0L);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, rq);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, rq);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, rq->curl_text);
	if (is_own && c->user) {
		curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
		curl_easy_setopt(curl, CURLOPT_USERNAME, c->user);
		curl_easy_setopt(curl, CURLOPT_PASSWORD, c->password ? c->password : "");
	}
	return ps_http_access_set(rq->turn.tier ? &c->tier_access : &c->access, curl, whole ? whole : rq->url,
	        rq->turn.tier || is_own);
}

static int begin(struct ps_transfer *t, void *curl)
{
	struct ps_transfer_work *work = PS_CONTAINER_OF(t, struct ps_transfer_work, transfer);
	struct ps_http_request *rq = work->request;

	if (!rq) {
		rq = calloc(1, sizeof(*rq));
		if (!rq)
			return -ENOMEM;
		rq->work = work;
		rq->kind = work->kind;
		rq->client = work->owner;
		work->request = rq;
		rq->head = strcmp(rq->kind->method, "HEAD") == 0;
		int rc = rq->kind->prepare(rq);
		rq->range_end = rq->range_last;
		if (rc)
			return rc;
	}
	curl_slist_free_all(ps_steal_ptr(&rq->slist));
	rq->response = (struct ps_http_response){0};
	rq->error = (struct ps_error){0};
	rq->header_done = rq->wanted_enough = rq->is_asking = rq->secret = false;
	rq->body_nbytes = rq->thrown_nbytes = rq->untold_nbytes = 0;
	rq->turn = (struct ps_tier_turn){0};
	rq->tier_nbytes = rq->tier_first_ns = 0;
	rq->curl_text[0] = '\0';
	ps_strbuf_reset(&rq->refusal);
	rq->began_ns = ps_clock_mono_ns();
	return set_up(rq, curl);
}

/* Its pace ----------------------------------------------------------------------------------------------- */

static bool stalled(struct ps_transfer *t)
{
	struct ps_transfer_work *work = PS_CONTAINER_OF(t, struct ps_transfer_work, transfer);
	struct ps_http_request *rq = work->request;

	return !rq || !rq->turn.tier || ps_tier_attempt_stalled(rq, ps_clock_mono_ns() - t->touched_ns);
}

/* True: a new connection should be faster than the attempt's. Each tier has its own pace. */
static bool slow(struct ps_transfer *t, uint64_t now_ns)
{
	struct ps_transfer_work *work = PS_CONTAINER_OF(t, struct ps_transfer_work, transfer);
	struct ps_http_request *rq = work->request;

	if (rq && rq->want_listing) {
		uint64_t ns = now_ns - PS_MIN(rq->began_ns, now_ns);

		work->resend =
		        ns > rq->client->page_ns && rq->body_nbytes < ns / PS_NS_PER_S * PS_PAGE_MIN_RATE;
		return work->resend;
	}
	if (!rq || !rq->kind->tiered || rq->turn.tier)
		return false;
	work->resend = ps_http_pace_is_slow(&rq->pace, &rq->client->paces, now_ns, rq->wire_nbytes);
	if (atomic_exchange(&work->overdue, false) && !work->resend)
		work->resend = ps_http_paces_try(&rq->client->paces, now_ns);
	return work->resend;
}

static void flush(struct ps_transfer *t)
{
	struct ps_transfer_work *work = PS_CONTAINER_OF(t, struct ps_transfer_work, transfer);
	struct ps_http_request *rq = work->request;

	rq->kind->report(rq);
}

/* Its end ------------------------------------------------------------------------------------------------ */

/* What curl's errors mean; those not listed are EIO and retryable. */
static const struct curl_row {
	int code, errnum;
	bool retryable;
	const char *advice;
} curl_rows[] = {
        {CURLE_COULDNT_RESOLVE_HOST, EHOSTUNREACH, true, NULL},
        {CURLE_COULDNT_CONNECT, EHOSTUNREACH, true, NULL},
        {CURLE_SSL_CONNECT_ERROR, EHOSTUNREACH, true, "does the server speak TLS at this port?"},
        {CURLE_OPERATION_TIMEDOUT, ETIMEDOUT, true, NULL},
        {CURLE_PEER_FAILED_VERIFICATION, EHOSTUNREACH, false,
                "give the certificate's CA by --cacert, if you trust that CA"},
        {CURLE_SSL_CACERT_BADFILE, EHOSTUNREACH, false, "the CA file must hold PEM certificates"},
        {CURLE_SSL_CERTPROBLEM, EHOSTUNREACH, false,
                "the client's certificate, or its key, which must not have a password"},
        {CURLE_COULDNT_RESOLVE_PROXY, EHOSTUNREACH, true, "the proxy of --proxy, or of the environment"},
        {CURLE_URL_MALFORMAT, EINVAL, false, NULL},
        /* Not the scheme of the URL, which was checked before: a longer body than announced leaves bytes on
         * the connection, and curl takes these for an HTTP/0.9 response. */
        {CURLE_UNSUPPORTED_PROTOCOL, EPROTO, true, "not an HTTP server?"},
        {CURLE_WEIRD_SERVER_REPLY, EPROTO, true, "not an HTTP server?"},
        {CURLE_OUT_OF_MEMORY, EIO, true, "or the server's header is too long"},
        {CURLE_GOT_NOTHING, EIO, true, NULL},
        {CURLE_PARTIAL_FILE, EIO, true, NULL},
};

static struct curl_row row_of(int code)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(curl_rows); i++)
		if (curl_rows[i].code == code)
			return curl_rows[i];
	return (struct curl_row){.errnum = EIO, .retryable = true};
}

int ps_http_curl_errnum(int code)
{
	return row_of(code).errnum;
}

static void judge_curl(struct ps_http_request *rq, int code)
{
	struct curl_row row = row_of(code);
	const char *text = rq->curl_text[0] ? rq->curl_text : curl_easy_strerror((CURLcode)code);

	if (rq->turn.tier && code == CURLE_PEER_FAILED_VERIFICATION)
		row.advice = "give the certificate's CA by --tier-cacert, if you trust that CA";
	if (row.advice)
		ps_error_set(&rq->error, row.errnum, "%s (%s)", text, row.advice);
	else
		ps_error_set(&rq->error, row.errnum, "%s", text);
	rq->error.retryable = row.retryable;
	rq->error.http_status = rq->header_done ? rq->response.status : 0;
}

/* Curl reports a proxy that refused CONNECT like a broken connection; the proxy's status says why. */
static void judge_proxy(struct ps_http_request *rq, CURL *curl)
{
	long status = 0;

	if (!curl || rq->header_done ||
	        curl_easy_getinfo(curl, CURLINFO_HTTP_CONNECTCODE, &status) != CURLE_OK || status < 300)
		return;
	bool refused = status == 401 || status == 403 || status == 407;
	ps_error_set(&rq->error, refused ? EACCES : EHOSTUNREACH, "HTTP %ld from the proxy: %s", status,
	        status == 403 ? "it refuses to connect to that host"
	        : refused     ? "it requires credentials, or others than these (http://USER:PASSWORD@PROXY)"
	                      : "it cannot connect to that host");
	rq->error.http_status = (int)status;
	rq->error.retryable = !refused;
}

/* Puts the attempt's outcome into rq->error. */
static void judge(struct ps_http_request *rq, CURL *curl, int rc)
{
	if (rc == -ECANCELED) {
		ps_error_set(&rq->error, ECANCELED, "cancelled");
	} else if (rc == -ETIMEDOUT) {
		if (rq->work->resend)
			ps_error_set(&rq->error, ETIMEDOUT, "only %llu bytes came in %.1f s",
			        (unsigned long long)rq->body_nbytes,
			        (double)(ps_clock_mono_ns() - rq->began_ns) / 1e9);
		else
			ps_error_set(&rq->error, ETIMEDOUT, "no byte came for %.1f s",
			        (double)(ps_clock_mono_ns() - rq->work->transfer.touched_ns) / 1e9);
		rq->error.http_status = rq->header_done ? rq->response.status : 0;
		rq->error.retryable = true;
	} else if (rc < 0) {
		if (!rq->error.err)
			ps_error_set(&rq->error, -rc, "%s", strerror(-rc));
		rq->error.retryable = rq->error.retryable || rc == -ENOMEM;
	} else if (rq->error.err || rq->wanted_enough) {
		/* accept() or body() has set the outcome, and has stopped curl because of it: curl's error
		 * says no more. */
	} else if (rc != CURLE_OK) {
		judge_curl(rq, rc);
		judge_proxy(rq, curl);
	} else if (!rq->header_done) {
		judge_curl(rq, CURLE_GOT_NOTHING);
	}
}

/* True if the body of an answer that is not sized did not end where it should: it has more bytes than the
 * range, its chunks are malformed, or they are complete, but fewer. All of its bytes are in doubt then. A body
 * that was cut, by the network or by us, is not: it is continued after its last byte. */
static bool is_misframed(struct ps_http_request *rq, int rc)
{
	if (!rq->header_done || !rq->kind->drop || ps_http_response_is_sized(&rq->response))
		return false;
	if (rq->error.err == EPROTO)
		return true;
	if (!rq->response.chunked || rc < 0 || rc == CURLE_PARTIAL_FILE || (rc == CURLE_OK && rq->error.err))
		return false;
	if (rc == CURLE_OK && ps_http_request_lacking(rq) == 0)
		return false;
	if (rc == CURLE_OK) {
		ps_error_set(&rq->error, EPROTO, "HTTP %d: the chunked body ends %llu bytes early",
		        rq->response.status, (unsigned long long)ps_http_request_lacking(rq));
		rq->error.retryable = true;
		rq->error.http_status = rq->response.status;
	}
	return true;
}

static bool end(struct ps_transfer *t, void *curl, int rc)
{
	struct ps_transfer_work *work = PS_CONTAINER_OF(t, struct ps_transfer_work, transfer);
	struct ps_http_request *rq = work->request;

	if (!rq) {
		work->rc = rc;
		return false;
	}
	bool redirected = rq->header_done && ps_http_is_redirect(rq);
	if (redirected && rc >= 0 && ps_http_follow(rq, curl) == 0)
		return true;
	ps_http_pace_end(&rq->pace, &rq->client->paces, ps_clock_mono_ns(), rq->wire_nbytes, rc == CURLE_OK);
	judge(rq, curl, rc);
	if (is_misframed(rq, rc)) {
		rq->kind->drop(rq);
		rq->tier_nbytes = 0;
	}
	if (rq->turn.tier)
		return ps_tier_attempt_end(rq, rc);
	/* A cancelled attempt says nothing about the origin. */
	if (rq->failed.tier && rc != -ECANCELED)
		ps_tier_attempt_judge(rq);
	if (rq->is_asking) { /* the attempt asked the origin for the first byte only */
		rq->asks = rq->error.err;
		rq->direct = rq->direct ||
		             (rq->error.err == EPROTO && rq->header_done && rq->response.status == 200);
		if (rq->asks && rq->direct)
			return true; /* the origin ignores ranges: it is asked for the whole range */
	}
	if (rq->client->dialect)
		ps_http_note_location(rq, curl);
	if (rc >= 0 && rq->client->dialect && rq->header_done && rq->error.err &&
	        rq->client->dialect->refused(rq->client->dialect_arg, rq))
		return true;
	return rc != -ECANCELED && rq->kind->again && rq->kind->again(rq);
}

static void done(struct ps_transfer *t)
{
	struct ps_transfer_work *work = PS_CONTAINER_OF(t, struct ps_transfer_work, transfer);
	const struct ps_http_kind *kind = work->kind;
	struct ps_http_request *rq = work->request;
	struct ps_error err = {0};

	if (!rq) {
		/* Cancelled in the queue, or no memory for the request. */
		ps_error_set(&err, -work->rc, "%s: %s", kind->method,
		        work->rc == -ECANCELED ? "cancelled" : "out of memory");
		err.retryable = work->rc == -ENOMEM;
	} else {
		char safe[PS_URL_TEXT_LEN];

		err = rq->error;
		if (err.err)
			ps_error_prefix(&err, -err.err, "%s %s", rq->head ? "HEAD" : "GET",
			        rq->url ? ps_url_redact(rq->url, safe) : "");
		if (kind->finish)
			kind->finish(rq);
		/* No answer of the origin has judged the tier's turn, so it ends here. If the tier was down,
		 * its turn has ended before. */
		if (rq->failed.tier && rq->failure != PS_TIER_DOWN)
			ps_tiers_left(rq->client->tiers, &rq->failed);
		work->request = NULL;
		request_free(rq);
	}
	kind->done(work, &err);
}

static const struct ps_transfer_ops transfer_ops = {
        .begin = begin, .flush = flush, .stalled = stalled, .slow = slow, .end = end, .done = done};

void ps_http_submit(struct ps_http_client *c, const struct ps_http_kind *kind, struct ps_transfer_work *work)
{
	work->transfer.ops = &transfer_ops;
	work->transfer.stall_ns = kind->awaited ? c->attempt_ns : c->stall_ns;
	work->owner = c;
	work->kind = kind;
	work->request = NULL;
	work->key_expires_s = 0;
	work->from_tier = false;
	work->tier_nbytes = 0;
	work->kept_here = false;
	atomic_store(&work->overdue, false);
	work->resend = false;
	work->submitted_ns = ps_clock_mono_ns();
	ps_transfer_submit(c->transfers, &work->transfer);
}

void ps_http_cancel(struct ps_http_client *c, struct ps_transfer_work *work)
{
	ps_transfer_cancel(c->transfers, &work->transfer);
}
