#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/secret.h"
#include "base/log.h"
#include "base/url.h"
#include "credentials/credentials.h"
#include "http/http.h"
#include "listing/listing.h"
#include "origin/origin_private.h"
#include "origin/hub_private.h"

/* Listing ------------------------------------------------------------------------------------------------ */

/* Resolves a revision to its commit, lists the commit's tree page by page, and gives each file a name below
 * the requested path. */

#define STOP_LOOK_MS 50
#define MAX_PAGES 100000 /* of a thousand entries each; more must be a loop */

struct tree {
	struct ps_hf *hf;
	struct ps_names *names;
	const char *base; /* the folder that becomes the mount's root; names are relative to it */
	const char *only; /* the one path that is requested; NULL: all */
	struct ps_strbuf path;
	struct ps_glob *glob;
	uint64_t nfiles;
};

/* Pages -------------------------------------------------------------------------------------------------- */

/* Waits until the limit allows one more request. */
static int wait_turn(struct ps_hf *hf, struct ps_names *names)
{
	uint32_t wait_ms;
	bool logged = false;

	while ((wait_ms = ps_hf_limit_take(&hf->limit, PS_HF_API, ps_clock_mono_ns()))) {
		int rc = ps_names_stopped(names);

		if (rc)
			return rc;
		if (!logged && wait_ms > 1000)
			ps_log_info("list: %s: waiting %u s, as the Hub's limit of requests is used up",
			        hf->source.canonical, wait_ms / 1000);
		logged = true;
		nanosleep(&(struct timespec){.tv_nsec = (long)(STOP_LOOK_MS * PS_NS_PER_MS)}, NULL);
	}
	return 0;
}

/* Fetches a page, which is the caller's. NULL: failed, with *names->err. */
static struct ps_http_page *fetch(
        struct ps_hf *hf, struct ps_names *names, const char *url, struct ps_page_body *ret_body)
{
	if (!url) {
		ps_names_no_memory(names);
		return NULL;
	}
	if (wait_turn(hf, names) < 0)
		return NULL;
	struct ps_http_page *page = ps_http_page_start(&hf->client, url, PS_LIST_MAX_PAGE_NBYTES, false);
	int rc =
	        page ? ps_http_page_wait(page, names->stop, ret_body, names->err) : ps_names_no_memory(names);

	ps_hf_limit_put(&hf->limit, PS_HF_API);
	if (!rc)
		return page;
	ps_http_page_free(page);
	return NULL;
}

/* If the Hub has no such dataset but a model of that name, or the other way round, the error says so. */
static void name_other_kind(struct ps_hf *hf, struct ps_names *names)
{
	struct ps_hf_source other = hf->source;
	struct ps_error err = *names->err;
	struct ps_page_body body;
	struct ps_http_page *page = NULL;

	other.is_model = !other.is_model;
	ps_autofree char *url = ps_hf_url_revision(&other, hf->endpoint);
	if ((err.http_status == 401 || err.http_status == 404) && url)
		page = fetch(hf, names, url, &body);
	*names->err = err;
	if (!page)
		return;
	ps_http_page_free(page);
	ps_error_set(names->err, err.err, "%s; there is a %s of that name: hf://%s/%s", err.text,
	        other.is_model ? "model" : "dataset", other.is_model ? "models" : "datasets", other.repo);
	names->err->http_status = err.http_status;
}

static int find_commit(struct ps_hf *hf, struct ps_names *names, char ret[static 41])
{
	struct ps_page_body body;
	json_error_t je;

	if (ps_hf_is_commit(hf->source.rev)) {
		memcpy(ret, hf->source.rev, 41);
		return 0;
	}
	ps_autofree char *url = ps_hf_url_revision(&hf->source, hf->endpoint);
	struct ps_http_page *page = fetch(hf, names, url, &body);
	if (!page) {
		name_other_kind(hf, names);
		return -names->err->err;
	}
	json_t *j = json_loadb(body.text, body.nbytes, 0, &je);
	const char *sha = json_string_value(json_object_get(j, "sha"));
	int rc = 0;
	if (sha && ps_hf_is_commit(sha))
		memcpy(ret, sha, 41);
	else
		rc = ps_error_set(
		        names->err, EPROTO, "%s: gives no commit: is that a Hugging Face Hub?", url);
	json_decref(j);
	ps_http_page_free(page);
	return rc;
}

/* Files -------------------------------------------------------------------------------------------------- */

static bool is_hex(const char *s, size_t n)
{
	return s && strlen(s) == n && s[strspn(s, "0123456789abcdef")] == '\0';
}

/* {"type": "file", "path", "size", "oid", "lfs": {"oid", "size"}} */
static int take_entry(void *arg, const json_t *j)
{
	struct tree *tree = arg;
	const char *type = json_string_value(json_object_get(j, "type"));
	const char *path = json_string_value(json_object_get(j, "path"));
	const json_t *lfs = json_object_get(j, "lfs");
	const json_t *size = json_object_get(json_is_object(lfs) ? lfs : j, "size");
	const char *oid = json_string_value(json_object_get(json_is_object(lfs) ? lfs : j, "oid"));
	size_t nbase = strlen(tree->base);
	char checksum[PS_CHECKSUM_LEN];

	if (json_is_string(j))
		ps_names_warn(tree->names, json_string_value(j), PS_NOT_UNICODE);
	if (!type || strcmp(type, "file") != 0 || !path)
		return 0;
	if (nbase && (strncmp(path, tree->base, nbase) != 0 || path[nbase] != '/'))
		return 0;
	if ((tree->only && strcmp(path, tree->only) != 0) || (tree->glob && !ps_glob_match(tree->glob, path)))
		return 0;
	bool is_sha256 = is_hex(oid, 64);
	if ((!is_sha256 && !is_hex(oid, 40)) || !json_is_integer(size) || json_integer_value(size) < 0) {
		ps_names_warn(tree->names, path, "skipped: the listing gives no size or no oid");
		return 0;
	}
	ps_autofree char *url = ps_hf_url_object(&tree->hf->source, tree->hf->endpoint, path);
	ps_strbuf_reset(&tree->path);
	ps_s3_path(path + (nbase ? nbase + 1 : 0), &tree->path);
	if (!url || tree->path.failed)
		return ps_names_no_memory(tree->names);
	struct ps_listed listed = {
	        .path = tree->path.s, .url = url, .remote = PS_REMOTE_UNKNOWN, .checksum = checksum};
	listed.remote.size = (uint64_t)json_integer_value(size);
	snprintf(listed.remote.etag, sizeof(listed.remote.etag), "\"%s\"", oid);
	snprintf(checksum, sizeof(checksum), "%s:%s", is_sha256 ? "sha256" : "gitblob", oid);
	tree->nfiles++;
	return ps_names_add(tree->names, &listed);
}

static int list_tree(struct tree *tree, const char *commit, const char *dir, bool recursive)
{
	struct ps_hf *hf = tree->hf;
	ps_autofree char *url = ps_hf_url_tree(&hf->source, hf->endpoint, commit, dir, recursive);
	char safe[PS_URL_TEXT_LEN];
	struct ps_names *names = tree->names;
	int rc = 0;

	for (unsigned n = 0; !rc && n < MAX_PAGES; n++) {
		struct ps_page_body body;
		struct ps_http_page *page = fetch(hf, names, url, &body);

		if (!page)
			return -names->err->err;
		rc = ps_json_array_parse(
		        body.text, body.nbytes, "not a tree of the Hub", take_entry, tree, names->err);
		if (rc == -EPROTO)
			ps_error_prefix(names->err, rc, "%s", ps_url_redact(url, safe));
		bool more = body.next;
		if (!rc && more) {
			ps_autofree char *next = NULL;

			rc = ps_url_join(url, body.next, &next, names->err);
			/* The next page must be on the endpoint's own host, since the token is sent there. */
			bool away = rc == 0 && !ps_http_client_owns(&hf->client, next);
			if (away || (rc == 0 && strcmp(next, url) == 0))
				rc = ps_error_set(names->err, EPROTO, "%s: the next page would be %s",
				        ps_url_redact(url, safe),
				        away ? "on another host: refused" : "the same one");
			free(url);
			url = ps_steal_ptr(&next);
		}
		ps_http_page_free(page);
		if (rc || !more)
			return rc;
	}
	return rc ? rc : ps_error_set(names->err, E2BIG, "listing: more than %d pages", MAX_PAGES);
}

/* Lists a folder or, if none has that name, a file. */
static int list_path(struct tree *tree, const char *commit)
{
	const char *path = tree->hf->source.path, *slash = strrchr(path, '/');
	ps_autofree char *parent = strndup(path, slash ? (size_t)(slash - path) : 0);
	struct ps_error none = {0};

	if (!parent)
		return ps_names_no_memory(tree->names);
	tree->base = path;
	int rc = list_tree(tree, commit, path, true);
	if (rc != -ENOENT || !*path)
		return rc;
	struct ps_error first = *tree->names->err;
	*tree->names->err = none;
	tree->base = parent;
	tree->only = path;
	rc = list_tree(tree, commit, parent, false);
	if (rc == -ENOENT || (!rc && !tree->nfiles)) {
		*tree->names->err = first;
		rc = -first.err;
	}
	return rc;
}

static int list_pattern(struct tree *tree, const char *commit)
{
	int rc = ps_glob_new(tree->hf->source.path, &tree->glob, tree->names->err);

	if (rc)
		return rc;
	tree->base = ps_glob_dir(tree->glob);
	rc = list_tree(tree, commit, tree->base, ps_glob_is_deep(tree->glob));
	if (rc)
		return rc;
	ps_autofree char *first = NULL;
	uint64_t n = ps_glob_unmatched(tree->glob, &first);
	if (n)
		ps_log_warning("list: %s: %llu of the names that the braces expand to do not exist, the "
		               "first is %.300s",
		        tree->hf->source.canonical, (unsigned long long)n, first ? first : "?");
	return 0;
}

static int hf_list(
        struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_hf *hf = ps_hf_of(o);
	struct ps_error mine = {0};
	struct ps_names names;
	struct tree tree = {.hf = hf, .names = &names};
	char commit[41];

	ps_names_init(&names, &o->lister, fn, arg, stop, err ? err : &mine);
	int rc = find_commit(hf, &names, commit);
	if (!rc) {
		ps_log_debug("list: %s: commit %s", hf->source.canonical, commit);
		ps_hf_note_commit(hf, commit);
		rc = hf->source.is_pattern ? list_pattern(&tree, commit) : list_path(&tree, commit);
	}
	ps_glob_free(tree.glob);
	ps_strbuf_fini(&tree.path);
	ps_names_fini(&names);
	return rc;
}

/* The origin --------------------------------------------------------------------------------------------- */

#define TOKEN_HEADER "Authorization: Bearer "
#define MAX_HEADERS 65

/* Errors of the Hub -------------------------------------------------------------------------------------- */

static void explain(struct ps_hf *hf, const struct ps_http_response *r, struct ps_error *err)
{
	ps_autofree char *page = ps_hf_url_page(&hf->source, hf->endpoint);
	const char *code = r->error_code, *where = page ? page : "the Hub";

	if (strcmp(code, "GatedRepo") == 0 && hf->has_token)
		ps_error_set(err, EACCES,
		        "HTTP %d: a gated repository: ask for access at %s with the account of your token",
		        r->status, where);
	else if (strcmp(code, "GatedRepo") == 0)
		ps_error_set(err, EACCES,
		        "HTTP %d: a gated repository: ask for access at %s, then log in (hf auth login, "
		        "HF_TOKEN or "
		        "--credentials)",
		        r->status, where);
	else if (r->status == 401 && hf->has_token)
		ps_error_set(err, EACCES,
		        "HTTP 401: the Hub does not accept your token, or %s does not exist or is closed to "
		        "you",
		        where);
	else if (r->status == 401)
		ps_error_set(err, EACCES,
		        "HTTP 401: %s is not there, or is private: check the name, or log in (hf auth login, "
		        "HF_TOKEN or "
		        "--credentials)",
		        where);
	else if (r->status == 403)
		ps_error_set(err, EACCES,
		        "HTTP 403: your token may not read %s: permit that, or use another token", where);
	else if (strcmp(code, "RevisionNotFound") == 0)
		ps_error_set(err, ENOENT, "HTTP %d: no branch, tag or commit \"%.100s\" in %s", r->status,
		        hf->source.rev, where);
	else if (strcmp(code, "EntryNotFound") == 0)
		ps_error_set(err, ENOENT, "HTTP %d: not in %s", r->status, where);
	else if (strcmp(code, "RepoNotFound") == 0)
		ps_error_set(
		        err, ENOENT, "HTTP %d: there is no %s, or it is closed to you", r->status, where);
	else
		return;
	err->http_status = r->status;
}

static void answer_note(void *arg, struct ps_http_request *rq)
{
	struct ps_hf *hf = arg;
	const struct ps_http_response *r = &rq->response;
	uint32_t wait_ms = 0;

	if (!r->limit_class[0] && r->status < 400)
		return;
	if (!ps_http_client_owns(&hf->client, rq->url))
		return; /* a CDN's headers do not describe the Hub */
	if (r->limit_class[0])
		wait_ms = ps_hf_limit_told(&hf->limit, r->limit_class, r->limit_left, r->limit_reset_s,
		        r->status == 429, ps_clock_mono_ns());
	if (r->status == 429 && rq->error.err)
		rq->error.retry_after_ms = PS_MAX(rq->error.retry_after_ms, wait_ms);
	else if (rq->error.err && r->status >= 400 && r->status < 500)
		explain(hf, r, &rq->error);
}

/* The table ---------------------------------------------------------------------------------------------- */

static void hf_abort(struct ps_origin *o)
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
        .list = hf_list,
        .head = ps_hf_head,
        .get = ps_hf_get,
        .cancel = ps_hf_cancel,
        .abort = hf_abort,
        .close = hf_close,
};

/* Sends the user's headers, and the token unless one of these headers authenticates. */
static int init_client(struct ps_hf *hf, const struct ps_origin_options *options, struct ps_error *err)
{
	struct ps_origin_options mine = *options;
	ps_autostrbuf struct ps_strbuf token = {0};
	ps_autosecret char *found = NULL;
	const char *headers[MAX_HEADERS + 1];
	size_t n = 0;
	int rc = ps_hf_token_find(options->http.env, options->credentials, &found, err);

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
	rc = token.failed ? ps_no_memory(err)
	                  : ps_http_client_init(&hf->client, hf->endpoint, &mine.http, err);
	if (token.s)
		explicit_bzero(token.s, token.len);
	return rc;
}

int ps_hf_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	struct ps_hf *hf = calloc(1, sizeof(*hf));

	if (!hf)
		return ps_no_memory(err);
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
	/* a HEAD needs the same right as a GET: the Hub answers it with the place of the file's bytes */
	hf->origin.heads_prove = true;
	hf->origin.proves_all = true; /* access is granted by repository */
	ps_origin_has_tiers(&hf->origin, &hf->client);
	hf->client.patient = true;
	hf->client.look = answer_note;
	hf->client.look_arg = hf;
	if (ps_hf_is_commit(hf->source.rev))
		ps_hf_note_commit(hf, hf->source.rev);
	*ret = &hf->origin;
	return 0;
}
