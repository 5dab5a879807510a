#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "origin/hub_private.h"

int ps_hf_file_ask(struct ps_http_request *rq, const char *url, unsigned n)
{
	struct ps_hf *hf = ps_hf_of_client(rq->client);
	ps_autofree char *path = ps_hf_path_of_object(&hf->source, url);
	char rev[256];

	if (!path || !ps_hf_revision(hf, n, rev))
		return ps_error_set(&rq->error, EINVAL, "not a file of %s", hf->source.canonical);
	char *ask = ps_hf_url_resolve(&hf->source, hf->endpoint, rev, path);
	if (!ask)
		return ps_error_set(&rq->error, ENOMEM, "out of memory");
	free(rq->url);
	rq->url = ask;
	rq->redirects = 0;
	return 0;
}

bool ps_hf_file_is_away(struct ps_http_request *rq, const char *location)
{
	return !ps_http_client_owns(rq->client, location);
}

/* The Hub's ETags are oids, quoted, some of them weak for no reason of theirs. */
static void normalise(const char *etag, char ret[static PS_ETAG_LEN])
{
	size_t n;

	etag += strncmp(etag, "W/", 2) == 0 ? 2 : 0;
	etag += *etag == '"';
	n = strcspn(etag, "\"");
	if (n && n < PS_ETAG_LEN - 2)
		snprintf(ret, PS_ETAG_LEN, "\"%.*s\"", (int)n, etag);
}

void ps_hf_file_answer(const struct ps_http_response *r, struct ps_remote *ret)
{
	*ret = PS_REMOTE_UNKNOWN;
	ret->size = r->linked_size != PS_SIZE_UNKNOWN ? r->linked_size : ps_http_response_size(r);
	normalise(r->linked_etag[0] ? r->linked_etag : r->status < 300 ? r->etag : "", ret->etag);
}

/* HEAD -------------------------------------------------------------------------------------------- */

static struct ps_head *head_of(struct ps_transfer_work *work)
{
	return PS_CONTAINER_OF(work, struct ps_head, work);
}

static int take_turn(struct ps_http_request *rq)
{
	struct ps_hf *hf = ps_hf_of_client(rq->client);
	uint32_t wait_ms = ps_hf_limit_take(&hf->limit, PS_HF_RESOLVERS, ps_clock_mono_ns());

	if (!wait_ms) {
		rq->work->turn = 1;
		return 0;
	}
	ps_error_set(&rq->error, EAGAIN, "the Hub's limit of requests is used up for %u s", wait_ms / 1000);
	rq->error.retryable = true;
	rq->error.retry_after_ms = wait_ms;
	return -EAGAIN;
}

static int head_prepare(struct ps_http_request *rq)
{
	int rc = ps_hf_file_ask(rq, head_of(rq->work)->url, 0);

	return rc ? rc : take_turn(rq);
}

static void take_answer(struct ps_http_request *rq)
{
	struct ps_head *head = head_of(rq->work);

	ps_hf_file_answer(&rq->response, &head->seen);
	if (head->seen.size == PS_SIZE_UNKNOWN) {
		ps_error_set(&rq->error, EPROTO, "HTTP %d: the server does not tell the size", rq->response.status);
		rq->error.retryable = true;
	}
}

static bool head_redirected(struct ps_http_request *rq, const char *location)
{
	if (!ps_hf_file_is_away(rq, location))
		return false;
	take_answer(rq);
	return true;
}

static int head_accept(struct ps_http_request *rq)
{
	int rc = ps_http_response_status(&rq->response, NULL, &rq->error);

	rq->wanted_enough = true;
	if (!rc)
		take_answer(rq);
	return -rq->error.err;
}

static int head_body(struct ps_http_request *rq, const char *bytes, size_t n)
{
	(void)rq, (void)bytes, (void)n;
	return 0;
}

static void head_done(struct ps_transfer_work *work, const struct ps_error *err)
{
	struct ps_head *head = head_of(work);
	struct ps_http_client *client = work->owner;

	if (work->turn)
		ps_hf_limit_put(&ps_hf_of_client(client)->limit, PS_HF_RESOLVERS);
	head->done(head, err);
}

static const struct ps_http_kind head_kind = {
        .method = "HEAD",
        .awaited = true,
        .prepare = head_prepare,
        .redirected = head_redirected,
        .accept = head_accept,
        .body = head_body,
        .done = head_done,
};

void ps_hf_head(struct ps_origin *o, struct ps_head *head)
{
	head->seen = PS_REMOTE_UNKNOWN;
	head->work.turn = 0;
	ps_http_submit(&ps_hf_of(o)->client, &head_kind, &head->work);
}
