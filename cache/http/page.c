#include "http/http.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/url.h"

#define BACKOFF_FIRST_MS 200
/* The longest pause between two attempts. Also limits the Retry-After that is obeyed, because a user waits
 * for the mount; a patient client obeys any Retry-After. */
#define BACKOFF_MAX_MS 10000
#define STOP_LOOK_MS 50

struct ps_http_page {
	struct ps_http_client *client;
	char *asked;
	uint64_t max_nbytes, started_ns;
	struct ps_transfer_work work;

	/* Written by the transfer's thread until `done` is set; afterwards the caller's. */
	struct ps_strbuf body;
	bool is_packed; /* then the body is in `packed` */
	struct ps_packed packed;
	char *url, *next;
	bool is_json;
	bool next_lost; /* no memory for `next` */
	struct ps_error error;

	pthread_mutex_t lock; /* guards `done` */
	pthread_cond_t cond;
	bool done;
};

static struct ps_http_page *page_of(struct ps_transfer_work *work)
{
	return PS_CONTAINER_OF(work, struct ps_http_page, work);
}

static int page_prepare(struct ps_http_request *rq)
{
	rq->want_listing = true;
	rq->url = strdup(page_of(rq->work)->asked);
	return rq->url ? 0 : ps_no_memory(&rq->error);
}

/* Takes the next page's URL from a header line. Servers send it as Link: <URL>; rel="next"; the line may
 * have other links, too. */
static void page_line(struct ps_http_request *rq, const char *line, size_t n)
{
	struct ps_http_page *page = page_of(rq->work);
	const char *end = line + n, *url;

	if (n >= 5 && memcmp(line, "HTTP/", 5) == 0) { /* the lines before it were those of a redirect */
		free(ps_steal_ptr(&page->next));
		page->next_lost = false;
	}
	if (n < 5 || strncasecmp(line, "link:", 5) != 0)
		return;
	for (line += 5; (url = memchr(line, '<', (size_t)(end - line)));) {
		const char *close = memchr(url, '>', (size_t)(end - url));

		if (!close)
			return;
		const char *comma = memchr(close, ',', (size_t)(end - close));
		line = comma ? comma : end;
		if (!memmem(close, (size_t)(line - close), "rel=\"next\"", 10) ||
		        close - url > PS_URL_MAX_LEN)
			continue;
		free(page->next);
		page->next = strndup(url + 1, (size_t)(close - url - 1));
		page->next_lost = !page->next;
		return;
	}
}

static int too_long(struct ps_http_request *rq)
{
	return ps_error_set(&rq->error, EFBIG, "longer than %llu bytes",
	        (unsigned long long)page_of(rq->work)->max_nbytes);
}

static int page_accept(struct ps_http_request *rq)
{
	const struct ps_http_response *r = &rq->response;
	int rc = ps_http_response_status(r, NULL, &rq->error);

	if (rc)
		return rc;
	ps_strbuf_reset(&page_of(rq->work)->body);
	ps_packed_reset(&page_of(rq->work)->packed);
	if (page_of(rq->work)->next_lost)
		return ps_no_memory(&rq->error);
	if (r->encoded)
		return ps_error_set(&rq->error, EPROTO,
		        "the answer has a Content-Encoding, though identity was requested");
	if (r->content_length != PS_SIZE_UNKNOWN && r->content_length > page_of(rq->work)->max_nbytes)
		return too_long(rq);
	return 0;
}

static int page_body(struct ps_http_request *rq, const char *bytes, size_t n)
{
	struct ps_http_page *page = page_of(rq->work);

	if (n > page->max_nbytes - page->body.len - page->packed.nbytes)
		return too_long(rq);
	if (page->is_packed)
		ps_packed_add(&page->packed, bytes, n);
	else
		ps_strbuf_addn(&page->body, bytes, n);
	return page->body.failed || page->packed.failed ? ps_no_memory(&rq->error) : 0;
}

static void page_finish(struct ps_http_request *rq)
{
	struct ps_http_page *page = page_of(rq->work);

	page->is_json = rq->response.is_json;
	page->url = ps_steal_ptr(&rq->url);
}

static void page_done(struct ps_transfer_work *work, const struct ps_error *err)
{
	struct ps_http_page *page = page_of(work);

	PS_LOCK_SCOPE(&page->lock);
	page->error = *err;
	page->done = true;
	pthread_cond_signal(&page->cond);
}

static const struct ps_http_kind page_kind = {
        .method = "GET",
        .prepare = page_prepare,
        .line = page_line,
        .accept = page_accept,
        .body = page_body,
        .finish = page_finish,
        .done = page_done,
};

static void submit(struct ps_http_page *page)
{
	free(ps_steal_ptr(&page->url));
	free(ps_steal_ptr(&page->next));
	page->next_lost = false;
	page->done = false;
	page->error = (struct ps_error){0};
	ps_strbuf_reset(&page->body);
	ps_packed_reset(&page->packed);
	ps_http_submit(page->client, &page_kind, &page->work);
}

struct ps_http_page *ps_http_page_start(
        struct ps_http_client *c, const char *url, uint64_t max_nbytes, bool packed)
{
	struct ps_http_page *page = calloc(1, sizeof(*page));

	if (!page || !(page->asked = strdup(url))) {
		free(page);
		return NULL;
	}
	page->client = c;
	page->max_nbytes = max_nbytes;
	page->is_packed = packed;
	page->started_ns = ps_clock_mono_ns();
	pthread_mutex_init(&page->lock, NULL);
	ps_cond_init(&page->cond);
	submit(page);
	return page;
}

static bool is_stopped(const _Atomic bool *stop)
{
	return stop && atomic_load(stop);
}

/* Waits until the page is done; cancels it when *stop is set. */
static void wait_done(struct ps_http_page *page, const _Atomic bool *stop)
{
	bool cancelled = false;

	pthread_mutex_lock(&page->lock);
	while (!page->done) {
		if (!cancelled && is_stopped(stop)) {
			cancelled = true;
			pthread_mutex_unlock(&page->lock);
			ps_http_cancel(page->client, &page->work);
			pthread_mutex_lock(&page->lock);
		} else {
			ps_cond_wait_until(
			        &page->cond, &page->lock, ps_clock_mono_ns() + STOP_LOOK_MS * PS_NS_PER_MS);
		}
	}
	pthread_mutex_unlock(&page->lock);
}

static void back_off(
        const struct ps_http_page *page, unsigned tries, const struct ps_error *err, const _Atomic bool *stop)
{
	uint64_t ms = ps_clock_backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS, tries + 1);

	ms -= ps_clock_jitter(ms / 2);
	ms = PS_MAX(ms,
	        page->client->patient ? err->retry_after_ms : PS_MIN(err->retry_after_ms, BACKOFF_MAX_MS));
	if (ms > BACKOFF_MAX_MS)
		ps_log_info("list: %s: trying again in %llu s", err->text, (unsigned long long)(ms / 1000));
	for (uint64_t waited = 0; waited < ms && !is_stopped(stop); waited += STOP_LOOK_MS) {
		uint64_t part = PS_MIN(ms - waited, STOP_LOOK_MS);

		nanosleep(&(struct timespec){.tv_nsec = (long)(part * PS_NS_PER_MS)}, NULL);
	}
}

static bool worth_another(const struct ps_http_page *page, unsigned tries)
{
	unsigned max = page->error.err == EHOSTUNREACH ? PS_PAGE_UNREACHABLE_TRIES : PS_PAGE_MAX_TRIES;

	/* A server that sends Retry-After is reachable: for such an answer PS_PAGE_MAX_MS does not apply to
	 * a patient client. */
	bool named = page->client->patient && page->error.retry_after_ms;
	return page->error.err && page->error.retryable && tries < max &&
	       (named || ps_clock_mono_ns() - page->started_ns < PS_PAGE_MAX_MS * PS_NS_PER_MS);
}

int ps_http_page_wait(
        struct ps_http_page *page, const _Atomic bool *stop, struct ps_page_body *ret, struct ps_error *err)
{
	for (unsigned tries = 0;; tries++) {
		wait_done(page, stop);
		if (!worth_another(page, tries + 1) || is_stopped(stop))
			break;
		ps_log_debug("list: %s: trying again", page->error.text);
		back_off(page, tries, &page->error, stop);
		if (is_stopped(stop))
			return ps_error_set(err, ECANCELED, "the listing was stopped");
		submit(page);
	}
	if (page->error.err) {
		if (err)
			*err = page->error;
		/* A web server also answers 403 for a folder without an index page. */
		if (err && err->http_status == 403 && !page->client->dialect)
			ps_error_set(err, err->err,
			        "%s; or this server does not list folders: give a pattern "
			        "(name-{000..127}.tar) or a manifest",
			        page->error.text);
		return -page->error.err;
	}
	*ret = (struct ps_page_body){.text = page->is_packed ? NULL : ps_strbuf_peek(&page->body),
	        .nbytes = page->body.len + page->packed.nbytes,
	        .packed = page->is_packed ? &page->packed : NULL,
	        .url = page->url,
	        .is_json = page->is_json,
	        .next = page->next};
	return 0;
}

bool ps_http_page_is_done(struct ps_http_page *page)
{
	PS_LOCK_SCOPE(&page->lock);
	return page->done;
}

void ps_http_page_free(struct ps_http_page *page)
{
	if (!page)
		return;
	_Atomic bool stop = true;
	wait_done(page, &stop);
	pthread_cond_destroy(&page->cond);
	pthread_mutex_destroy(&page->lock);
	ps_strbuf_fini(&page->body);
	ps_packed_fini(&page->packed);
	free(page->url);
	free(page->next);
	free(page->asked);
	free(page);
}
