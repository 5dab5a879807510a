#include "origin/kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/secret.h"
#include "credentials/credentials.h"
#include "origin/hub_private.h"
#include "credentials/hub_token.h"

#define TOKEN_HEADER "Authorization: Bearer "
#define MAX_HEADERS 65

/* Commits ----------------------------------------------------------------------------------------- */

bool ps_hf_revision(struct ps_hf *hf, unsigned n, char ret[static 256])
{
	PS_LOCK_SCOPE(&hf->lock);
	if (n >= PS_MAX(hf->ncommits, 1u))
		return false;
	const char *rev = hf->ncommits ? hf->commits[n] : hf->source.rev;
	if (strlen(rev) >= 256)
		return false;
	memcpy(ret, rev, strlen(rev) + 1);
	return true;
}

void ps_hf_note_commit(struct ps_hf *hf, const char *commit)
{
	PS_LOCK_SCOPE(&hf->lock);
	unsigned at = 0;

	while (at < hf->ncommits && strcmp(hf->commits[at], commit) != 0)
		at++;
	if (at == hf->ncommits)
		at = hf->ncommits < PS_HF_COMMITS ? hf->ncommits++ : PS_HF_COMMITS - 1;
	memmove(hf->commits[1], hf->commits[0], at * sizeof hf->commits[0]);
	memcpy(hf->commits[0], commit, sizeof hf->commits[0]);
}

/* What the Hub says beyond HTTP ------------------------------------------------------------------- */

static void explain(struct ps_hf *hf, const struct ps_http_response *r, struct ps_error *err)
{
	ps_autofree char *page = ps_hf_url_page(&hf->source, hf->endpoint);
	const char *code = r->error_code, *where = page ? page : "the Hub";

	if (strcmp(code, "GatedRepo") == 0 && hf->has_token)
		ps_error_set(err, EACCES,
		        "HTTP %d: a gated repository: ask for access at %s with the account of your token", r->status,
		        where);
	else if (strcmp(code, "GatedRepo") == 0)
		ps_error_set(err, EACCES,
		        "HTTP %d: a gated repository: ask for access at %s, then log in (hf auth login, HF_TOKEN or "
		        "--hf-token-file)",
		        r->status, where);
	else if (r->status == 401 && hf->has_token)
		ps_error_set(err, EACCES,
		        "HTTP 401: the Hub does not take your token, or %s is not there or not for you", where);
	else if (r->status == 401)
		ps_error_set(err, EACCES,
		        "HTTP 401: %s is not there, or is private: check the name, or log in (hf auth login, HF_TOKEN or "
		        "--hf-token-file)",
		        where);
	else if (r->status == 403)
		ps_error_set(err, EACCES, "HTTP 403: your token may not read %s: give it the permission, or another",
		        where);
	else if (strcmp(code, "RevisionNotFound") == 0)
		ps_error_set(err, ENOENT, "HTTP %d: no branch, tag or commit \"%.100s\" in %s", r->status,
		        hf->source.rev, where);
	else if (strcmp(code, "EntryNotFound") == 0)
		ps_error_set(err, ENOENT, "HTTP %d: not in %s", r->status, where);
	else if (strcmp(code, "RepoNotFound") == 0)
		ps_error_set(err, ENOENT, "HTTP %d: there is no %s, or it is not for you", r->status, where);
	else
		return;
	err->http_status = r->status;
}

static void look(void *arg, struct ps_http_request *rq)
{
	struct ps_hf *hf = arg;
	const struct ps_http_response *r = &rq->response;
	uint32_t wait_ms = 0;

	if (!r->limit_class[0] && r->status < 400)
		return;
	if (!ps_http_client_owns(&hf->client, rq->url))
		return; /* a CDN's words are about something else */
	if (r->limit_class[0])
		wait_ms = ps_hf_limit_told(&hf->limit, r->limit_class, r->limit_left, r->limit_reset_s,
		        r->status == 429, ps_clock_mono_ns());
	if (r->status == 429 && rq->error.err)
		rq->error.retry_after_ms = PS_MAX(rq->error.retry_after_ms, wait_ms);
	else if (rq->error.err && r->status >= 400 && r->status < 500)
		explain(hf, r, &rq->error);
}

/* The table --------------------------------------------------------------------------------------- */

static void abort_all(struct ps_origin *o)
{
	ps_transfers_abort(ps_hf_of(o)->client.transfers);
}

static void hf_free(struct ps_hf *hf)
{
	ps_hf_places_free(hf);
	ps_hf_limit_fini(&hf->limit);
	pthread_mutex_destroy(&hf->lock);
	ps_hf_source_fini(&hf->source);
	free(hf->endpoint);
	free(hf);
}

static void hf_close(struct ps_origin *o)
{
	struct ps_hf *hf = ps_hf_of(o);
	{
		PS_LOCK_SCOPE(&hf->lock);
		hf->closing = true;
	}
	ps_http_client_fini(&hf->client);
	hf_free(hf);
}

static const struct ps_origin_ops hf_ops = {
        .name = "hf",
        .list = ps_hf_list,
        .head = ps_hf_head,
        .get = ps_hf_get,
        .cancel = ps_hf_cancel,
        .abort = abort_all,
        .close = hf_close,
};

/* The user's headers, and the token, unless one of them says who it is. */
static int init_client(struct ps_hf *hf, const struct ps_origin_options *options, struct ps_error *err)
{
	struct ps_origin_options mine = *options;
	ps_autostrbuf struct ps_strbuf token = {0};
	ps_autosecret char *found = NULL;
	const char *headers[MAX_HEADERS + 1];
	size_t n = 0;
	int rc = ps_hf_token_find(options->http.env, options->hf_token_file, &found, err);

	if (rc)
		return rc;
	for (const char *const *h = options->http.headers; h && *h && n < MAX_HEADERS - 1; h++) {
		headers[n++] = *h;
		hf->has_token = hf->has_token || strncasecmp(*h, "authorization:", 14) == 0;
	}
	if (found && !hf->has_token) {
		ps_strbuf_addf(&token, TOKEN_HEADER "%s", found);
		headers[n++] = ps_strbuf_peek(&token);
		hf->has_token = true;
	}
	headers[n] = NULL;
	mine.http.headers = headers;
	rc = token.failed ? ps_error_set(err, ENOMEM, "out of memory")
	                      : ps_http_client_init(&hf->client, hf->endpoint, &mine.http, err);
	if (token.s)
		explicit_bzero(token.s, token.len);
	return rc;
}

int ps_hf_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	struct ps_hf *hf = calloc(1, sizeof *hf);

	if (!hf)
		return ps_error_set(err, ENOMEM, "out of memory");
	hf->origin.ops = &hf_ops;
	pthread_mutex_init(&hf->lock, NULL);
	ps_list_init(&hf->idle);
	ps_hf_limit_init(&hf->limit);
	int rc = ps_hf_source_parse(source, &hf->source, err);
	if (!rc)
		rc = ps_hf_endpoint_parse(ps_env_get(options->http.env, "HF_ENDPOINT"), &hf->endpoint, err);
	if (!rc)
		rc = init_client(hf, options, err);
	if (rc) {
		hf_free(hf);
		return rc;
	}
	hf->origin.heads_prove = true; /* it is the way to the bytes */
	hf->origin.proves_all = true;  /* one decides by repository */
	hf->client.patient = true;
	hf->client.look = look;
	hf->client.look_arg = hf;
	if (ps_hf_is_commit(hf->source.rev))
		ps_hf_note_commit(hf, hf->source.rev);
	*ret = &hf->origin;
	return 0;
}
