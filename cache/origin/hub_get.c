#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hashtable.h"
#include "base/size.h"
#include "origin/origin_private.h"
#include "origin/hub_private.h"

/* Limits ------------------------------------------------------------------------------------------------- */

void ps_hf_limit_init(struct ps_hf_limit *limit)
{
	memset(limit->windows, 0, sizeof(limit->windows));
	pthread_mutex_init(&limit->lock, NULL);
}

void ps_hf_limit_fini(struct ps_hf_limit *limit)
{
	pthread_mutex_destroy(&limit->lock);
}

#define MAX_RESET_S (24 * 3600) /* bound on what a server may announce */

/* One second is added, since the server rounds the reset time. */
static uint32_t wait_ms(const struct ps_hf_window *w, uint64_t now_ns)
{
	return (uint32_t)((w->until_ns - now_ns) / PS_NS_PER_MS + 1000);
}

uint32_t ps_hf_limit_take(struct ps_hf_limit *limit, enum ps_hf_class class, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&limit->lock);
	struct ps_hf_window *w = &limit->windows[class];

	if (w->until_ns && now_ns > w->until_ns + PS_NS_PER_S)
		w->until_ns = 0;
	if (w->until_ns && w->left <= (int64_t)w->inflight)
		return w->left <= 0 && w->until_ns > now_ns ? wait_ms(w, now_ns) : 1000;
	w->inflight++;
	return 0;
}

void ps_hf_limit_put(struct ps_hf_limit *limit, enum ps_hf_class class)
{
	PS_LOCK_SCOPE(&limit->lock);
	limit->windows[class].inflight--;
}

uint32_t ps_hf_limit_told(struct ps_hf_limit *limit, const char *class, int64_t left, int64_t reset_s,
        bool refused, uint64_t now_ns)
{
	static const char *const names[PS_HF_CLASSES] = {"api", "resolvers"};
	reset_s = PS_MIN(PS_MAX(reset_s, 0), MAX_RESET_S);
	uint64_t until_ns = now_ns + (uint64_t)reset_s * PS_NS_PER_S;

	PS_LOCK_SCOPE(&limit->lock);
	for (unsigned i = 0; i < PS_HF_CLASSES; i++) {
		struct ps_hf_window *w = &limit->windows[i];

		if (strcmp(class, names[i]) != 0)
			continue;
		/* Answers may arrive out of order: within one window the smallest number counts. */
		bool same = w->until_ns && until_ns < w->until_ns + 5 * PS_NS_PER_S;
		w->left = refused ? 0 : same && w->left < left ? w->left : left;
		if (!same)
			w->until_ns = until_ns;
		return w->left ? 0 : wait_ms(w, now_ns < w->until_ns ? now_ns : w->until_ns);
	}
	return refused ? (uint32_t)(reset_s * 1000 + 1000) : 0;
}

/* Commits ------------------------------------------------------------------------------------------------ */

/* The n-th revision to ask for a file: of the listed commits or, if there are none, the source's own. False:
 * there are no more. */
static bool hf_revision(struct ps_hf *hf, unsigned n, char ret[static 256])
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
	memmove(hf->commits[1], hf->commits[0], at * sizeof(hf->commits[0]));
	memcpy(hf->commits[0], commit, sizeof(hf->commits[0]));
}

/* HEAD of a file ----------------------------------------------------------------------------------------- */

/* Puts the URL of the n-th revision of url's file into rq->url. -EINVAL with rq->error: there is no such
 * revision, or this is not a file of the source. -ENOMEM with rq->error. */
static int hf_file_ask(struct ps_http_request *rq, const char *url, unsigned n)
{
	struct ps_hf *hf = ps_hf_of_client(rq->client);
	ps_autofree char *path = ps_hf_path_of_object(&hf->source, url);
	char rev[256];

	if (!path || !hf_revision(hf, n, rev))
		return ps_error_set(&rq->error, EINVAL, "not a file of %s", hf->source.canonical);
	char *ask = ps_hf_url_resolve(&hf->source, hf->endpoint, rev, path);
	if (!ask)
		return ps_no_memory(&rq->error);
	free(rq->url);
	rq->url = ask;
	rq->redirects = 0;
	return 0;
}

/* The Hub's ETags are quoted oids; some are marked weak without need. */
static void normalise(const char *etag, char ret[static PS_ETAG_LEN])
{
	size_t n;

	etag += strncmp(etag, "W/", 2) == 0 ? 2 : 0;
	etag += *etag == '"';
	n = strcspn(etag, "\"");
	if (n && n < PS_ETAG_LEN - 2)
		snprintf(ret, PS_ETAG_LEN, "\"%.*s\"", (int)n, etag);
}

/* Takes the file's size and version from an answer, which may be a redirect. */
static void hf_file_answer(const struct ps_http_response *r, struct ps_remote *ret)
{
	*ret = PS_REMOTE_UNKNOWN;
	ret->size = r->linked_size != PS_SIZE_UNKNOWN ? r->linked_size : ps_http_response_size(r);
	normalise(r->linked_etag[0] ? r->linked_etag : r->status < 300 ? r->etag : "", ret->etag);
}

/* HEAD --------------------------------------------------------------------------------------------------- */

static struct ps_origin_head *head_of(struct ps_transfer_work *work)
{
	return PS_CONTAINER_OF(work, struct ps_origin_head, work);
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
	int rc = hf_file_ask(rq, head_of(rq->work)->url, 0);

	return rc ? rc : take_turn(rq);
}

static void take_answer(struct ps_http_request *rq)
{
	struct ps_origin_head *head = head_of(rq->work);

	hf_file_answer(&rq->response, &head->seen);
	if (head->seen.size == PS_SIZE_UNKNOWN) {
		ps_error_set(&rq->error, EPROTO, "HTTP %d: the server gives no size", rq->response.status);
		rq->error.retryable = true;
	}
}

static bool head_redirected(struct ps_http_request *rq, const char *location)
{
	if (ps_http_client_owns(rq->client, location))
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

static void head_done(struct ps_transfer_work *work, const struct ps_error *err)
{
	struct ps_origin_head *head = head_of(work);
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
        .done = head_done,
};

void ps_hf_head(struct ps_origin *o, struct ps_origin_head *head)
{
	head->seen = PS_REMOTE_UNKNOWN;
	head->work.turn = 0;
	ps_http_submit(&ps_hf_of(o)->client, &head_kind, &head->work);
}

/* Ranges ------------------------------------------------------------------------------------------------- */

/* Where the bytes of one version of a file are.
 *
 *             first get                answered                refused (400, 401, 403, 404, 410), once a get
 *   (nothing) ─────────▶ asking ──────────────────▶ known ──────────────────────────────────────▶ asking
 *                          │ failed: all waiting gets fail      │ idle; PS_HF_PLACES others were used later
 *                          └────────▶ (nothing)                 └────────▶ (nothing)
 */
struct ps_hf_place {
	struct ps_transfer_work work; /* the HEAD that resolves the place */
	struct ps_hf *hf;
	char *key; /* URL, a line end, and the version */
	char *url;
	const char *etag; /* part of key */
	uint64_t size;
	UT_hash_handle hh;

	/* hf->lock: */
	struct ps_list idle;
	unsigned nusers; /* waiting and running gets, and the HEAD */
	bool asking;
	struct ps_list waiting; /* gets, by work.transfer.link */
	char *target;           /* NULL: unknown */
	uint64_t known_ns;      /* when target was learned */
	char cdn_etag[PS_ETAG_LEN];

	/* Owned by the HEAD: */
	unsigned nth; /* the revision that is asked for */
	char *found;
};

static const struct ps_http_kind ask_kind, get_kind, wait_kind;

static struct ps_origin_get *get_of(struct ps_transfer_work *work)
{
	return PS_CONTAINER_OF(work, struct ps_origin_get, work);
}

static struct ps_hf_place *place_of(struct ps_transfer_work *work)
{
	return PS_CONTAINER_OF(work, struct ps_hf_place, work);
}

static struct ps_origin_get *get_of_link(struct ps_list *link)
{
	struct ps_transfer *t = PS_CONTAINER_OF(link, struct ps_transfer, link);

	return get_of(PS_CONTAINER_OF(t, struct ps_transfer_work, transfer));
}

/* Places; under hf->lock --------------------------------------------------------------------------------- */

static void place_free(struct ps_hf *hf, struct ps_hf_place *place)
{
	HASH_DEL(hf->places, place);
	if (!ps_list_empty(&place->idle)) {
		ps_list_remove(&place->idle);
		hf->nidle--;
	}
	free(place->key);
	free(place->url);
	free(place->target);
	free(place);
}

static void place_put(struct ps_hf *hf, struct ps_hf_place *place)
{
	if (--place->nusers)
		return;
	ps_list_append(&hf->idle, &place->idle);
	hf->nidle++;
	if (!place->target)
		place_free(hf, place);
	else if (hf->nidle > PS_HF_PLACES)
		place_free(hf, PS_CONTAINER_OF(hf->idle.next, struct ps_hf_place, idle));
}

/* Finds or makes a place and adds a user to it. NULL: out of memory. */
static struct ps_hf_place *place_get(struct ps_hf *hf, const char *url, const struct ps_remote *expect)
{
	ps_autostrbuf struct ps_strbuf key = {0};
	struct ps_hf_place *place = NULL;

	ps_strbuf_addf(&key, "%s\n%s", url, expect->etag);
	if (key.failed)
		return NULL;
	HASH_FIND(hh, hf->places, key.s, key.len, place);
	if (!place) {
		place = calloc(1, sizeof(*place));
		if (!place || !(place->url = strdup(url))) {
			free(place);
			return NULL;
		}
		place->hf = hf;
		size_t len = key.len;
		place->key = ps_strbuf_take(&key);
		place->etag = place->key + strlen(url) + 1;
		place->size = expect->size;
		ps_list_init(&place->idle);
		ps_list_init(&place->waiting);
		HASH_ADD_KEYPTR(hh, hf->places, place->key, len, place);
		if (!place->hh.tbl) {
			free(place->key);
			free(place->url);
			free(place);
			return NULL;
		}
	}
	if (!ps_list_empty(&place->idle)) {
		ps_list_remove(&place->idle);
		hf->nidle--;
	}
	place->nusers++;
	return place;
}

static void submit(struct ps_hf *hf, struct ps_origin_get *get)
{
	get->nbytes_done = 0;
	get->wire_nbytes = get->first_byte_ns = 0;
	get->seen = PS_REMOTE_UNKNOWN;
	get->work.refused = false;
	ps_http_submit(&hf->client, &get_kind, &get->work);
}

/* Submits the get if the place is known; otherwise queues it and resolves the place. */
static void hand_over(struct ps_hf *hf, struct ps_hf_place *place, struct ps_origin_get *get)
{
	if (place->target) {
		submit(hf, get);
		return;
	}
	get->work.kind = &wait_kind;
	ps_list_append(&place->waiting, &get->work.transfer.link);
	if (place->asking)
		return;
	place->asking = true;
	place->nusers++;
	place->nth = 0;
	place->work.turn = 0;
	ps_http_submit(&hf->client, &ask_kind, &place->work);
}

void ps_hf_places_free(struct ps_hf *hf)
{
	struct ps_hf_place *place, *next;

	HASH_ITER (hh, hf->places, place, next)
		place_free(hf, place);
}

/* Resolving places --------------------------------------------------------------------------------------- */

static int ask_prepare(struct ps_http_request *rq)
{
	struct ps_hf_place *place = place_of(rq->work);
	int rc = hf_file_ask(rq, place->url, place->nth);

	return rc ? rc : take_turn(rq);
}

/* Takes url as the place if this revision still has the expected version. */
static void take_place(struct ps_http_request *rq, const char *url)
{
	struct ps_hf_place *place = place_of(rq->work);
	struct ps_remote seen, want = PS_REMOTE_UNKNOWN;

	hf_file_answer(&rq->response, &seen);
	want.size = place->size;
	memcpy(want.etag, place->etag, strlen(place->etag) + 1);
	if (!ps_remote_same_version(&want, &seen)) {
		ps_error_set(&rq->error, ESTALE, "the file has changed at the Hub");
		return;
	}
	free(place->found);
	place->found = strdup(url);
	if (!place->found)
		ps_no_memory(&rq->error);
}

static bool ask_redirected(struct ps_http_request *rq, const char *location)
{
	if (ps_http_client_owns(rq->client, location))
		return false;
	take_place(rq, location);
	return true;
}

static int ask_accept(struct ps_http_request *rq)
{
	rq->wanted_enough = true;
	if (!ps_http_response_status(&rq->response, NULL, &rq->error))
		take_place(rq, rq->url);
	return -rq->error.err;
}

/* If this revision has another version of the file, or lacks it, the commit of an earlier listing is asked:
 * the reader may want a file of that listing. */
static bool ask_again(struct ps_http_request *rq)
{
	struct ps_hf_place *place = place_of(rq->work);
	struct ps_error first = rq->error;

	if (first.err != ESTALE && first.err != ENOENT)
		return false;
	if (hf_file_ask(rq, place->url, place->nth + 1) < 0) {
		rq->error = first;
		return false;
	}
	place->nth++;
	return true;
}

static void ask_done(struct ps_transfer_work *work, const struct ps_error *err)
{
	struct ps_hf_place *place = place_of(work);
	struct ps_hf *hf = place->hf;
	struct ps_error failed = *err;
	struct ps_list unlucky;

	if (work->turn)
		ps_hf_limit_put(&hf->limit, PS_HF_RESOLVERS);
	ps_list_init(&unlucky);
	{
		PS_LOCK_SCOPE(&hf->lock);
		char *found = ps_steal_ptr(&place->found);

		place->asking = false;
		if (hf->closing && !failed.err)
			ps_error_set(&failed, ECANCELED, "the origin is being closed");
		if (failed.err) {
			free(found);
			ps_list_splice(&unlucky, &place->waiting);
		} else {
			free(place->target);
			place->target = found;
			place->known_ns = ps_clock_mono_ns();
			place->cdn_etag[0] = '\0';
		}
		while (!ps_list_empty(&place->waiting)) {
			struct ps_origin_get *get = get_of_link(place->waiting.next);

			ps_list_remove(&get->work.transfer.link);
			submit(hf, get);
		}
		for (struct ps_list *l = unlucky.next; l != &unlucky; l = l->next)
			get_of_link(l)->work.kind = &get_kind; /* the get no longer waits for its place */
	}
	while (!ps_list_empty(&unlucky)) {
		struct ps_origin_get *get = get_of_link(unlucky.next);

		ps_list_remove(&get->work.transfer.link);
		{
			PS_LOCK_SCOPE(&hf->lock);
			get->priv = NULL;
			place->nusers--; /* the HEAD itself is still counted as a user of the place */
		}
		get->done(get, &failed);
	}
	PS_LOCK_SCOPE(&hf->lock);
	place_put(hf, place);
}

static const struct ps_http_kind ask_kind = {
        .method = "HEAD",
        .awaited = true,
        .prepare = ask_prepare,
        .redirected = ask_redirected,
        .accept = ask_accept,
        .again = ask_again,
        .done = ask_done,
};

/* Ranges ------------------------------------------------------------------------------------------------- */

/* Sends no condition: the place belongs to this version, and the CDN's ETag differs from the Hub's. */
static int get_prepare(struct ps_http_request *rq)
{
	struct ps_hf *hf = ps_hf_of_client(rq->client);
	const struct ps_origin_get *get = get_of(rq->work);
	struct ps_hf_place *place = get->priv;

	if (!place)
		return ps_no_memory(&rq->error);
	{
		PS_LOCK_SCOPE(&hf->lock);
		rq->direct = get->direct;
		rq->asks = get->asks || !place->cdn_etag[0];
		if (place->target)
			rq->url = strdup(place->target);
		else
			/* another get was refused meanwhile, and the place was forgotten */
			rq->work->refused = true;
	}
	if (!rq->url)
		return ps_error_set(&rq->error, rq->work->refused ? EACCES : ENOMEM,
		        "%s: the place of its bytes is not known", get->url);
	rq->redirects = 1; /* counts as a redirect's target: no signature is added to the URL */
	rq->fresh = get->fresh;
	rq->ranged = true;
	rq->range_first = get->offset;
	rq->range_last = get->offset + get->nbytes - 1;
	return 0;
}

/* All answers from one place must have the same ETag, whatever it is. The first answer of the CDN itself, not
 * of a tier, decides which. */
static int check_etag(struct ps_http_request *rq)
{
	struct ps_hf *hf = ps_hf_of_client(rq->client);
	struct ps_hf_place *place = get_of(rq->work)->priv;
	const char *etag = rq->response.etag;

	if (rq->turn.tier && !ps_etag_is_strong(etag))
		return ps_error_set(&rq->error, EPROTO, "HTTP %d: no ETag", rq->response.status);
	rq->direct = rq->direct || !ps_etag_is_strong(etag);
	if (!ps_etag_is_strong(etag))
		return 0;
	PS_LOCK_SCOPE(&hf->lock);
	if (!rq->turn.tier && !place->cdn_etag[0])
		memcpy(place->cdn_etag, etag, strlen(etag) + 1);
	if (strcmp(place->cdn_etag, etag) == 0)
		return 0;
	if (rq->turn.tier)
		return ps_error_set(&rq->error, EPROTO, "HTTP %d: not the CDN's ETag", rq->response.status);
	place->cdn_etag[0] = '\0';
	ps_error_set(&rq->error, EPROTO, "HTTP %d: the CDN has another file there than before",
	        rq->response.status);
	rq->error.retryable = true;
	rq->work->refused = true;
	return -EPROTO;
}

static int get_accept(struct ps_http_request *rq)
{
	struct ps_origin_get *get = get_of(rq->work);
	struct ps_remote expect = PS_REMOTE_UNKNOWN;
	int status = rq->response.status;

	expect.size = get->expect.size;
	get->first_byte_ns = rq->first_byte_ns;
	int rc = ps_http_get_check_range(rq, &expect);
	/* Signed URLs expire; CDNs report that by different statuses. */
	if (!rq->turn.tier)
		rq->work->refused =
		        status == 400 || status == 401 || status == 403 || status == 404 || status == 410;
	if (rc)
		return rc;
	get->seen = get->expect;
	return check_etag(rq);
}

static void get_done(struct ps_transfer_work *work, const struct ps_error *err)
{
	struct ps_origin_get *get = get_of(work);
	struct ps_http_client *client = work->owner;
	struct ps_hf *hf = ps_hf_of_client(client);
	struct ps_hf_place *place = get->priv;
	{
		PS_LOCK_SCOPE(&hf->lock);
		/* A get that is cancelled after its refusal needs no other attempt. */
		bool refused = err->err && err->err != ECANCELED && work->refused && place;

		if (refused && place->target && place->known_ns <= work->submitted_ns)
			free(ps_steal_ptr(&place->target));
		if (refused && !hf->closing && work->turn++ == 0) {
			hand_over(hf, place, get);
			return;
		}
		get->priv = NULL;
		if (place)
			place_put(hf, place);
	}
	get->done(get, err);
}

static const struct ps_http_kind get_kind = {
        .method = "GET",
        .awaited = true,
        .tiered = true,
        .tiered_away = true,
        .prepare = get_prepare,
        .accept = get_accept,
        .body = ps_http_get_body,
        .report = ps_http_get_report,
        .drop = ps_http_get_drop,
        .again = ps_http_get_again,
        .finish = ps_http_get_finish,
        .done = get_done,
};

/* Marks a get that waits for its place: no transfer of it is under way. */
static const struct ps_http_kind wait_kind = {.method = "GET"};

void ps_hf_get(struct ps_origin *o, struct ps_origin_get *get)
{
	struct ps_hf *hf = ps_hf_of(o);

	get->work.turn = 0;
	PS_LOCK_SCOPE(&hf->lock);
	struct ps_hf_place *place = place_get(hf, get->url, &get->expect);

	get->priv = place;
	if (place)
		hand_over(hf, place, get);
	else
		submit(hf, get); /* submit fails it with ENOMEM */
}

/* A waiting get is submitted and cancelled at once, so that the engine calls done(). */
void ps_hf_cancel(struct ps_origin *o, struct ps_origin_get *get)
{
	struct ps_hf *hf = ps_hf_of(o);

	PS_LOCK_SCOPE(&hf->lock);
	if (get->work.kind == &wait_kind) {
		ps_list_remove(&get->work.transfer.link);
		get->work.turn = 1; /* it may start before it is cancelled: then it must not wait again */
		submit(hf, get);
	}
	ps_http_cancel(&hf->client, &get->work);
}
