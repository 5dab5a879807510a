#include "http/http.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "base/url.h"

/* Targets of redirects ----------------------------------------------------------------------------------- */

static void redirects_init(struct ps_redirects *all)
{
	memset(all->places, 0, sizeof(all->places));
	pthread_mutex_init(&all->lock, NULL);
}

static void empty(struct ps_redirect *place)
{
	free(place->url);
	free(place->target);
	*place = (struct ps_redirect){0};
}

static void redirects_fini(struct ps_redirects *all)
{
	for (size_t i = 0; i < PS_REDIRECTS; i++)
		empty(&all->places[i]);
	pthread_mutex_destroy(&all->lock);
}

/* FNV-1a */
static struct ps_redirect *place_of(struct ps_redirects *all, const char *url)
{
	uint32_t hash = 2166136261u;

	for (const char *p = url; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 16777619u;
	return &all->places[hash % PS_REDIRECTS];
}

void ps_redirects_note(struct ps_redirects *all, const char *url, const char *target, uint64_t now_ns)
{
	char *own_url = strdup(url), *own_target = strdup(target);
	{
		PS_LOCK_SCOPE(&all->lock);
		struct ps_redirect *place = place_of(all, url);

		empty(place);
		if (own_url && own_target)
			*place = (struct ps_redirect){.url = ps_steal_ptr(&own_url),
			        .target = ps_steal_ptr(&own_target),
			        .until_ns = now_ns + PS_REDIRECT_MS * PS_NS_PER_MS};
	}
	free(own_url);
	free(own_target);
}

char *ps_redirects_find(struct ps_redirects *all, const char *url, uint64_t now_ns)
{
	PS_LOCK_SCOPE(&all->lock);
	const struct ps_redirect *place = place_of(all, url);

	if (!place->url || strcmp(place->url, url) != 0 || now_ns >= place->until_ns)
		return NULL;
	return strdup(place->target);
}

void ps_redirects_forget(struct ps_redirects *all, const char *url)
{
	PS_LOCK_SCOPE(&all->lock);
	struct ps_redirect *place = place_of(all, url);

	if (place->url && strcmp(place->url, url) == 0)
		empty(place);
}

/* Clients ------------------------------------------------------------------------------------------------ */

#define CONNECT_TIMEOUT_MS 10000
#define STALL_TIMEOUT_MS 15000
#define ATTEMPT_MIN_MS UINT64_C(1000)

struct signature {
	char *url, *parameters;
};

static int signature_cmp(const void *a, const void *b)
{
	return strcmp(((const struct signature *)a)->url, ((const struct signature *)b)->url);
}

static void signature_free(void *p)
{
	struct signature *s = p;

	if (!s)
		return;
	free(s->url);
	free(s->parameters);
	free(s);
}

int ps_http_client_sign(struct ps_http_client *c, const char *url, const char *parameters)
{
	struct signature *s = calloc(1, sizeof(*s));

	if (!s || !(s->url = strdup(url)) || !(s->parameters = strdup(parameters))) {
		signature_free(s);
		return -ENOMEM;
	}
	pthread_rwlock_wrlock(&c->signatures_lock);
	struct signature **found = tsearch(s, &c->signatures, signature_cmp);
	if (found && *found != s) {
		/* A newer listing brings newer signatures, which replace the older ones. */
		struct signature *old = *found;

		*found = s;
		s = old;
	} else if (found) {
		s = NULL;
	}
	pthread_rwlock_unlock(&c->signatures_lock);
	signature_free(s);
	return found ? 0 : -ENOMEM;
}

/* Refuses a user's header that would conflict with one of ours or smuggle in another. */
static int check_header(const char *header, struct ps_error *err)
{
	static const char *const ours[] = {"range", "if-match", "if-none-match", "if-modified-since",
	        "if-unmodified-since", "if-range", "accept-encoding", "content-length", "transfer-encoding",
	        "connection", "host"};
	size_t n = strcspn(header, ":");

	if (n == 0 || header[n] != ':' || strpbrk(header, "\r\n"))
		return ps_error_set(err, EINVAL, "header option: not of the form \"Name: value\"");
	for (size_t i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!#$%&'*+^`|~",
		            header[i]))
			return ps_error_set(err, EINVAL, "header option: \"%.*s\" is not a header name",
			        (int)PS_MIN(n, 40u), header);
	for (size_t i = 0; i < PS_ARRAY_LEN(ours); i++)
		if (n == strlen(ours[i]) && strncasecmp(header, ours[i], n) == 0)
			return ps_error_set(err, EINVAL, "header option: %.*s is set by the mount itself",
			        (int)n, header);
	return 0;
}

static int take_headers(struct ps_http_client *c, const char *const *headers, struct ps_error *err)
{
	for (; headers && *headers; headers++) {
		int rc = check_header(*headers, err);

		if (rc)
			return rc;
		struct curl_slist *more = curl_slist_append(c->headers, *headers);
		if (!more)
			return ps_error_set(err, ENOMEM, "out of memory");
		c->headers = more;
	}
	return 0;
}

static int take_credentials(
        struct ps_http_client *c, struct ps_url *u, const char *user_password, struct ps_error *err)
{
	if (!user_password) {
		c->user = ps_steal_ptr(&u->user);
		c->password = ps_steal_ptr(&u->password);
		return 0;
	}
	size_t n = strcspn(user_password, ":");
	c->user = strndup(user_password, n);
	c->password = strdup(user_password + n + (user_password[n] == ':'));
	return c->user && c->password ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

/* Tiers are on the site's own network: they are asked without a proxy. Their certificates are always
 * verified, even if the origin's are not, because secrets may be sent to tiers. */
static int init_tiers(struct ps_http_client *c, const struct ps_http_options *options, struct ps_error *err)
{
	const struct ps_tier_options *tiers = &options->tiers;
	const struct ps_http_options access = {.proxy = "none",
	        .ca_file = tiers->ca_file,
	        .client_cert = tiers->cert,
	        .client_key = tiers->key,
	        .env = options->env};

	if (!tiers->list)
		return 0;
	int rc = ps_http_access_init(&c->tier_access, &access, err);
	return rc ? rc : ps_tiers_new(tiers, &c->tiers, err);
}

static int init_parts(struct ps_http_client *c, const char *source_url, const struct ps_http_options *options,
        struct ps_error *err)
{
	ps_autourl struct ps_url u = {0};
	int rc = ps_url_parse(source_url, &u, err);

	if (!rc)
		rc = take_headers(c, options->headers, err);
	if (!rc)
		rc = take_credentials(c, &u, options->user_password, err);
	if (rc)
		return rc;
	c->own = ps_url_authority(&u);
	c->signature = ps_steal_ptr(&u.signature);
	if (!c->own)
		return ps_error_set(err, ENOMEM, "out of memory");
	rc = ps_http_access_init(&c->access, options, err);
	return rc ? rc : init_tiers(c, options, err);
}

int ps_http_client_init(struct ps_http_client *c, const char *source_url,
        const struct ps_http_options *options, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];

	*c = (struct ps_http_client){0};
	pthread_rwlock_init(&c->signatures_lock, NULL);
	redirects_init(&c->redirects);
	ps_http_paces_init(&c->paces);
	c->connect_timeout_ms =
	        options->connect_timeout_ms ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
	uint64_t stall_ms = options->stall_timeout_ms ? options->stall_timeout_ms : STALL_TIMEOUT_MS;
	/* Limits the time, so that adding it to the clock cannot overflow. */
	c->stall_ns = PS_MIN(stall_ms, UINT64_MAX / 2 / PS_NS_PER_MS) * PS_NS_PER_MS;
	uint64_t share_ms = PS_MAX(options->reader_timeout_ms / 3, ATTEMPT_MIN_MS);
	c->attempt_ns = c->stall_ns;
	c->page_ns = PS_PAGE_SLOW_MS * PS_NS_PER_MS;
	if (options->reader_timeout_ms)
		c->page_ns = PS_MIN(c->page_ns,
		        PS_MAX(options->reader_timeout_ms, UINT64_C(0) + PS_PAGE_MAX_MS) * PS_NS_PER_MS);
	if (options->reader_timeout_ms) {
		c->attempt_ns = PS_MIN(c->attempt_ns, share_ms * PS_NS_PER_MS);
		c->connect_timeout_ms = PS_MIN(c->connect_timeout_ms, share_ms);
	}
	int rc = init_parts(c, source_url, options, err);
	if (!rc)
		rc = ps_transfers_new("ps-http", options->max_connections, &c->transfers, err);
	if (rc) {
		ps_http_client_fini(c);
		return rc;
	}
	if (c->access.insecure)
		ps_log_warning("origin: %s: TLS certificates are not verified", ps_url_redact(c->own, safe));
	return 0;
}

void ps_http_client_fini(struct ps_http_client *c)
{
	ps_transfers_free(c->transfers);
	curl_slist_free_all(c->headers);
	tdestroy(c->signatures, signature_free);
	pthread_rwlock_destroy(&c->signatures_lock);
	redirects_fini(&c->redirects);
	ps_http_paces_fini(&c->paces);
	free(c->own);
	free(c->signature);
	free(c->user);
	free(c->password);
	ps_http_access_fini(&c->access);
	ps_http_access_fini(&c->tier_access);
	ps_tiers_free(c->tiers);
}

/* Makes the URL to send from a canonical URL: adds the signature parameters of that URL or, if it has none
 * and is_own, those of the source. -ENOMEM. */
static int http_client_url(struct ps_http_client *c, const char *url, bool is_own, char **ret)
{
	struct signature key = {.url = (char *)url};
	struct ps_strbuf b = {0};

	pthread_rwlock_rdlock(&c->signatures_lock);
	struct signature **found = c->signatures ? tfind(&key, &c->signatures, signature_cmp) : NULL;
	const char *parameters = found ? (*found)->parameters : is_own ? c->signature : NULL;
	ps_strbuf_add(&b, url);
	if (parameters) {
		ps_strbuf_addc(&b, strchr(url, '?') ? '&' : '?');
		ps_strbuf_add(&b, parameters);
	}
	pthread_rwlock_unlock(&c->signatures_lock);
	char *whole = ps_strbuf_take(&b);
	if (!whole)
		return -ENOMEM;
	*ret = whole;
	return 0;
}

bool ps_http_client_owns(const struct ps_http_client *c, const char *url)
{
	ps_autourl struct ps_url u = {0};

	if (ps_url_parse(url, &u, NULL) < 0)
		return false;
	ps_autofree char *authority = ps_url_authority(&u);
	if (!authority)
		return false;
	if (strcmp(authority, c->own) == 0)
		return true;
	/* With default ports on both sides, https on the same host may see credentials that were given for
	 * http. */
	return !u.port && strcmp(u.scheme, "https") == 0 && strncmp(c->own, "http://", 7) == 0 &&
	       strcmp(c->own + 7, u.host) == 0;
}

/* Requests ----------------------------------------------------------------------------------------------- */

#define RECEIVE_NBYTES 524288L
#define DRAIN_NBYTES \
	(64 * PS_KIB) /* an unwanted body up to this length is read, so that the connection can be kept */

/* Returned from a write callback. Curl never offers this length, so it ends the transfer. */
#define END_TRANSFER ((size_t)0xfffffff)

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

/* True for a redirect that must be followed. */
static bool is_redirect(const struct ps_http_request *rq)
{
	int status = rq->response.status;

	return !rq->client->dialect && !rq->turn.tier &&
	       (status == 301 || status == 302 || status == 303 || status == 307 || status == 308);
}

static void note_answer(struct ps_http_client *c, uint64_t ns)
{
	uint64_t least = atomic_load(&c->answer_ns);

	while ((!least || ns < least) && !atomic_compare_exchange_weak(&c->answer_ns, &least, ns))
		;
}

/* The whole header is there. Only this counts as an answer: a tier that sends header lines slowly, or one 103
 * after another, is late. */
static void note_tier_header(struct ps_http_request *rq)
{
	ps_transfer_touch(&rq->work->transfer);
	rq->tier_first_ns = rq->work->transfer.touched_ns - rq->turn.began_ns;
	ps_tiers_heard(rq->turn.tier, rq->work->transfer.touched_ns);
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
	struct ps_http_request *rq = arg;

	n *= size;
	if (!rq->turn.tier)
		ps_transfer_touch(&rq->work->transfer);
	if (!rq->first_byte_ns) {
		rq->first_byte_ns = PS_MAX(ps_clock_mono_ns() - rq->work->submitted_ns, 1u);
		note_answer(rq->client, rq->first_byte_ns);
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
		note_tier_header(rq);
	else
		rq->work->key_expires_s = rq->key_expires_s;
	if (rq->client->as_stored && !rq->want_listing)
		rq->response.encoded = false;
	/* Curl goes on if accept() refuses a status: a short body is read to its end, and the connection can
	 * be kept. */
	if (!is_redirect(rq))
		rq->kind->accept(rq);
	if (rq->client->look && !rq->turn.tier)
		rq->client->look(rq->client->look_arg, rq);
	if (rq->kind->tiered && !rq->turn.tier && !rq->error.err)
		atomic_store(&rq->client->unsized, !ps_http_response_is_sized(&rq->response));
	/* What follows an answer that contradicts itself may not be its body: the connection is closed. */
	bool lies = rq->error.err == EPROTO && (rq->response.status == 200 || rq->response.status == 206);
	return lies ? END_TRANSFER : n;
}

static size_t take_from_tier(struct ps_http_request *rq, const char *bytes, size_t n)
{
	/* After a failure the origin is asked instead, and the rest of the tier's body is not read. */
	if (rq->error.err || !rq->header_done)
		return END_TRANSFER;
	rq->work->from_tier = rq->work->from_tier || !rq->wire_nbytes;
	rq->work->kept_here = ps_tier_is_here(rq->turn.tier);
	rq->wire_nbytes += n;
	rq->work->tier_nbytes += n;
	rq->body_nbytes += n;
	if (rq->kind->body(rq, bytes, n) < 0) {
		rq->wire_nbytes -= n;
		rq->work->tier_nbytes -= n;
		return END_TRANSFER;
	}
	/* Only each PS_TIER_PACE_NBYTES count as progress: a tier that sends fewer bytes in time is late,
	 * too. */
	if ((rq->tier_nbytes + n) / PS_TIER_PACE_NBYTES != rq->tier_nbytes / PS_TIER_PACE_NBYTES) {
		ps_transfer_touch(&rq->work->transfer);
		ps_tiers_paced(rq->turn.tier, rq->work->transfer.touched_ns);
	}
	rq->tier_nbytes += n;
	return n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
	struct ps_http_request *rq = arg;

	n *= size;
	if (rq->turn.tier)
		return take_from_tier(rq, bytes, n);
	ps_transfer_touch(&rq->work->transfer);
	if (!rq->header_done) {
		ps_error_set(&rq->error, EPROTO, "a body without a header");
		rq->error.retryable = true;
		return END_TRANSFER;
	}
	rq->work->kept_here = false;
	if (rq->kind->tiered && !rq->pace.since_ns)
		ps_http_pace_begin(&rq->pace, rq->work->transfer.touched_ns, rq->wire_nbytes);
	rq->wire_nbytes += n;
	if (rq->error.err || rq->wanted_enough || is_redirect(rq)) {
		if (rq->client->dialect && rq->error.err)
			ps_strbuf_addn(
			        &rq->refusal, bytes, PS_MIN(n, PS_HTTP_REFUSAL_MAX_NBYTES - rq->refusal.len));
		rq->thrown_nbytes += n;
		if (rq->thrown_nbytes > DRAIN_NBYTES || (rq->response.content_length != PS_SIZE_UNKNOWN &&
		                                                rq->response.content_length > DRAIN_NBYTES))
			return END_TRANSFER;
		return n;
	}
	rq->body_nbytes += n;
	return rq->kind->body(rq, bytes, n) == 0 ? n : END_TRANSFER;
}

/* Setting up --------------------------------------------------------------------------------------------- */

int ps_http_request_header(struct ps_http_request *rq, const char *header)
{
	struct curl_slist *more = curl_slist_append(rq->slist, header);

	if (!more)
		return -ENOMEM;
	rq->slist = more;
	return 0;
}

bool ps_http_request_condition(
        const struct ps_http_request *rq, const char **ret_name, char ret_value[static PS_HTTP_CONDITION_LEN])
{
	time_t t = rq->expect ? (time_t)rq->expect->mtime_s : 0;
	struct tm tm;

	if (!rq->expect || ps_remote_is_by_size(rq->expect))
		return false;
	if (ps_etag_is_strong(rq->expect->etag)) {
		*ret_name = "If-Match";
		snprintf(ret_value, PS_HTTP_CONDITION_LEN, "%s", rq->expect->etag);
	} else if (rq->expect->mtime_s >= 0 && gmtime_r(&t, &tm)) {
		/* Not strftime: its names of days and months depend on the locale. */
		static const char days[] = "SunMonTueWedThuFriSat",
		                  months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

		*ret_name = "If-Unmodified-Since";
		snprintf(ret_value, PS_HTTP_CONDITION_LEN, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
		        days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900,
		        tm.tm_hour, tm.tm_min, tm.tm_sec);
	} else {
		return false;
	}
	return true;
}

/* Asks the server to refuse another version, if it can. The answer's version is compared in any case. */
static int add_condition(struct ps_http_request *rq)
{
	char value[PS_HTTP_CONDITION_LEN], header[PS_HTTP_CONDITION_LEN + 32];
	const char *name;

	if (!ps_http_request_condition(rq, &name, value))
		return 0;
	snprintf(header, sizeof(header), "%s: %s", name, value);
	return ps_http_request_header(rq, header);
}

static int add_headers(struct ps_http_request *rq, bool is_own)
{
	char header[64];
	const char *encoding = rq->client->accept_encoding;

	snprintf(header, sizeof(header), "Accept-Encoding: %s",
	        encoding && !rq->want_listing ? encoding : "identity");
	int rc = ps_http_request_header(rq, header);

	if (!rc && rq->want_listing)
		rc = ps_http_request_header(rq, "Accept: application/json, text/html;q=0.9, */*;q=0.5");
	if (!rc && rq->ranged) {
		snprintf(header, sizeof(header), "Range: bytes=%" PRIu64 "-%" PRIu64, rq->range_first,
		        rq->range_last);
		rc = ps_http_request_header(rq, header);
	}
	if (!rc && rq->expect)
		rc = add_condition(rq);
	for (const struct curl_slist *h = rq->client->headers; !rc && is_own && h; h = h->next)
		rc = ps_http_request_header(rq, h->data);
	return rc;
}

static int set_access(const struct ps_http_request *rq, CURL *curl, const char *url, bool is_own)
{
	const struct ps_http_client *c = rq->client;

	if (is_own && c->user) {
		curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
		curl_easy_setopt(curl, CURLOPT_USERNAME, c->user);
		curl_easy_setopt(curl, CURLOPT_PASSWORD, c->password ? c->password : "");
	}
	return rq->turn.tier ? ps_http_access_set(&c->tier_access, curl, url, true)
	                     : ps_http_access_set(&c->access, curl, url, is_own);
}

/* Tiers ------------------------------------------------------------------------------------------------ */

/* If a tier is to be asked instead of the origin, sets *whole (to free()) to the tier's URL: it has the path
 * and query of `url`; the header Host names the origin. The attempt's range then ends with its slice. */
static int turn_to_tier(struct ps_http_request *rq, const char *url, bool is_own, char **whole)
{
	struct ps_http_client *c = rq->client;
	const char *authority = strstr(url, "://");
	ps_autostrbuf struct ps_strbuf to = {0}, host = {0};
	ps_autourl struct ps_url u = {0};

	if ((!is_own && !rq->kind->tiered_away) || (is_own && c->access.cert) || rq->away || !authority ||
	        ps_url_parse(url, &u, NULL) < 0)
		return 0;
	authority += 3;
	size_t n = strcspn(authority, "/?#");
	ps_strbuf_addn(&host, authority, n);
	if (host.failed)
		return -ENOMEM;
	bool secret = rq->secret || u.signature || u.user || (is_own && (c->headers || c->user));
	ps_tiers_pick(c->tiers, ps_tier_object(host.s, u.path, u.query), rq->range_first, secret, &rq->turn);
	if (!rq->turn.tier)
		return 0;
	rq->range_last = PS_MIN(
	        rq->range_last, (rq->range_first / PS_TIER_SLICE_NBYTES + 1) * PS_TIER_SLICE_NBYTES - 1);
	ps_strbuf_addf(
	        &to, "%s%s%s", ps_tier_url(rq->turn.tier), authority[n] == '/' ? "" : "/", authority + n);
	ps_strbuf_reset(&host);
	ps_strbuf_addf(&host, "Host: %.*s", (int)n, authority);
	char *there = ps_strbuf_take(&to);
	if (!there || host.failed || ps_http_request_header(rq, host.s) < 0) {
		free(there);
		return -ENOMEM;
	}
	free(*whole);
	*whole = there;
	return 0;
}

/* Decides whether this attempt asks the origin or a tier, and for which part of the range. */
static int take_turn(struct ps_http_request *rq, const char *url, bool is_own, char **whole)
{
	if (!rq->client->tiers || !rq->kind->tiered)
		return 0;
	rq->range_last = rq->range_end;
	/* A trial: the tier was late, but the origin may not be faster. As long as it seems faster, it is
	 * asked for larger and larger parts of the range that the tier was asked for. */
	if (rq->failed.tier && rq->failure == PS_TIER_LATE) {
		uint64_t ndone = rq->range_first - rq->failed_first;

		rq->range_last = PS_MIN(
		        rq->failed_last, rq->range_first + PS_MAX(3 * ndone, PS_TIER_TRIAL_NBYTES) - 1);
	}
	if (rq->direct)
		return 0;
	if (rq->asks && rq->range_end - rq->range_first < PS_HTTP_SHORT_NBYTES) {
		rq->direct = true; /* not worth two requests */
		return 0;
	}
	if (!rq->asks)
		return turn_to_tier(rq, url, is_own, whole);
	rq->is_asking = true;
	rq->range_last = rq->range_first;
	return 0;
}

/* A tier's attempt is looked at sooner: see stalled(). */
static void set_patience(struct ps_http_request *rq)
{
	const struct ps_http_client *c = rq->client;

	rq->work->transfer.stall_ns = rq->turn.tier       ? PS_TIER_PING_MS * PS_NS_PER_MS
	                              : rq->kind->awaited ? c->attempt_ns
	                                                  : c->stall_ns;
}

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
		rc = http_client_url(c, rq->url, is_own, &whole);
	if (!rc)
		rc = take_turn(rq, whole ? whole : rq->url, is_own, &whole);
	if (rq->kind->tiered && atomic_load(&c->unsized))
		rq->range_last = PS_MIN(rq->range_last, rq->range_first + PS_HTTP_UNSIZED_NBYTES - 1);
	if (!rc)
		rc = add_headers(rq, is_own);
	if (rc)
		return rc;
	set_patience(rq);
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
	return set_access(rq, curl, whole ? whole : rq->url, is_own);
}

static void attempt_reset(struct ps_http_request *rq)
{
	curl_slist_free_all(rq->slist);
	rq->slist = NULL;
	rq->response = (struct ps_http_response){0};
	rq->error = (struct ps_error){0};
	rq->header_done = rq->wanted_enough = false;
	rq->body_nbytes = rq->thrown_nbytes = 0;
	rq->untold_nbytes = 0;
	rq->turn = (struct ps_tier_turn){0};
	rq->tier_nbytes = rq->tier_first_ns = 0;
	rq->is_asking = false;
	rq->secret = false;
	rq->curl_text[0] = '\0';
	ps_strbuf_reset(&rq->refusal);
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
	attempt_reset(rq);
	rq->began_ns = ps_clock_mono_ns();
	return set_up(rq, curl);
}

/* Pings -------------------------------------------------------------------------------------------------- */

/* A request to a tier itself, which the tier does not pass on to an origin: it has no Host header, and a
 * server of HTTP/1.1 must refuse such a request (RFC 9112, 3.2). The answer shows that the tier is alive,
 * even while its other answers wait for the origin. */
struct ping {
	struct ps_transfer transfer;
	struct ps_http_client *client;
	struct ps_tier *tier;
	struct curl_slist *slist;
	struct ps_http_response response;
	bool answered;
};

static size_t ping_header(char *line, size_t size, size_t n, void *arg)
{
	struct ping *p = arg;

	n *= size;
	if (n > 2 || (n && line[0] != '\r' && line[0] != '\n'))
		ps_http_response_line(&p->response, line, n);
	else if (p->response.status >= 200 && !p->answered) {
		p->answered = true;
		ps_tiers_heard(p->tier, ps_clock_mono_ns());
	}
	return n;
}

static size_t ping_body(char *bytes, size_t size, size_t n, void *arg)
{
	(void)bytes;
	(void)size;
	(void)n;
	(void)arg;
	return END_TRANSFER;
}

static int ping_begin(struct ps_transfer *t, void *curl)
{
	struct ping *p = PS_CONTAINER_OF(t, struct ping, transfer);
	const char *url = ps_tier_url(p->tier);

	p->slist = curl_slist_append(NULL, "Host:");
	if (!p->slist || curl_easy_setopt(curl, CURLOPT_URL, url) != CURLE_OK)
		return -ENOMEM;
	curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)PS_TIER_CONNECT_MS);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, p->slist);
	curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
	curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, ping_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, p);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ping_body);
	ps_tiers_asked(p->tier, ps_clock_mono_ns());
	return ps_http_access_set(&p->client->tier_access, curl, url, true);
}

static bool ping_end(struct ps_transfer *t, void *curl, int rc)
{
	(void)t;
	(void)curl;
	(void)rc;
	return false;
}

static void ping_done(struct ps_transfer *t)
{
	struct ping *p = PS_CONTAINER_OF(t, struct ping, transfer);

	ps_tiers_pinged(p->tier);
	curl_slist_free_all(p->slist);
	free(p);
}

static void ping(struct ps_http_client *c, struct ps_tier *tier)
{
	static const struct ps_transfer_ops ops = {.begin = ping_begin, .end = ping_end, .done = ping_done};
	struct ping *p = calloc(1, sizeof(*p));

	if (!p) {
		ps_tiers_asked(tier, 0);
		ps_tiers_pinged(tier);
		return;
	}
	p->transfer = (struct ps_transfer){.ops = &ops, .stall_ns = PS_NS_PER_S, .beyond = true};
	p->client = c;
	p->tier = tier;
	ps_transfer_submit(c->transfers, &p->transfer);
}

/* No byte, or too few, came within stall_ns. True: the attempt ends. An attempt at a tier is looked at again
 * and again: it ends when ps_tiers_waits() advises to ask the origin instead, or after attempt_ns. */
static bool stalled(struct ps_transfer *t)
{
	struct ps_transfer_work *work = PS_CONTAINER_OF(t, struct ps_transfer_work, transfer);
	struct ps_http_request *rq = work->request;
	uint64_t idle_ns = ps_clock_mono_ns() - t->touched_ns;

	if (!rq || !rq->turn.tier)
		return true;
	enum ps_tier_advice advice = ps_tiers_waits(rq->client->tiers, &rq->turn, idle_ns);
	if (advice == PS_TIER_PING)
		ping(rq->client, rq->turn.tier);
	return advice == PS_TIER_LEAVE || idle_ns > rq->client->attempt_ns;
}

/* True: a new connection should be faster than the attempt's. Tiers have a pace of their own. */
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

/* The end ------------------------------------------------------------------------------------------------ */

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
                "the client's certificate, its key, or the key's password"},
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

static void judge_curl(struct ps_http_request *rq, int code)
{
	struct curl_row row = {.errnum = EIO, .retryable = true};
	const char *text = rq->curl_text[0] ? rq->curl_text : curl_easy_strerror((CURLcode)code);

	for (size_t i = 0; i < PS_ARRAY_LEN(curl_rows); i++)
		if (curl_rows[i].code == code)
			row = curl_rows[i];
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
	} else if (rc == -ETIMEDOUT && rq->work->resend) {
		ps_error_set(&rq->error, ETIMEDOUT, "only %llu bytes came in %.1f s",
		        (unsigned long long)rq->body_nbytes,
		        (double)(ps_clock_mono_ns() - rq->began_ns) / 1e9);
		rq->error.http_status = rq->header_done ? rq->response.status : 0;
		rq->error.retryable = true;
	} else if (rc == -ETIMEDOUT) {
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

/* The bytes of the attempt's range that have not come. */
static uint64_t lacking_nbytes(const struct ps_http_request *rq)
{
	return rq->range_last + 1 - rq->range_first - rq->body_nbytes;
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
	if (rc == CURLE_OK && lacking_nbytes(rq) == 0)
		return false;
	if (rc == CURLE_OK) {
		ps_error_set(&rq->error, EPROTO, "HTTP %d: the chunked body ends %llu bytes early",
		        rq->response.status, (unsigned long long)lacking_nbytes(rq));
		rq->error.retryable = true;
		rq->error.http_status = rq->response.status;
	}
	return true;
}

/* Takes the URL to which the response redirects. 0: that URL must be requested; 1: no request is needed. */
static int follow(struct ps_http_request *rq, CURL *curl)
{
	ps_autourl struct ps_url u = {0};
	char *location = NULL;

	curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
	if (!location)
		return ps_http_response_status(&rq->response, NULL, &rq->error);
	rq->sets_cookie = rq->sets_cookie || rq->response.sets_cookie;
	/* Cookies are not kept: this would be repeated without end. */
	bool again = strcmp(location, rq->url) == 0 || rq->redirects >= PS_HTTP_MAX_REDIRECTS;
	if (rq->sets_cookie && again)
		return ps_error_set(&rq->error, EPROTO,
		        "redirected to where it was, with a cookie: the server wants a cookie, such as that "
		        "of a "
		        "login; use --header 'Cookie: NAME=VALUE'");
	if (++rq->redirects > PS_HTTP_MAX_REDIRECTS)
		return ps_error_set(
		        &rq->error, EIO, "more than %d redirects: a loop?", PS_HTTP_MAX_REDIRECTS);
	/* Only raw characters are escaped; the rest stays as the server wrote it, since the order of
	 * parameters may be signed. */
	ps_autofree char *next = ps_url_escape_raw(location);
	if (!next)
		return ps_error_set(&rq->error, ENOMEM, "out of memory");
	if (ps_url_parse(next, &u, NULL) < 0 || strcmp(u.scheme, "file") == 0)
		return ps_error_set(&rq->error, EPROTO, "redirected to a URL that is not http or https");
	if (strncmp(rq->url, "https:", 6) == 0 && strcmp(u.scheme, "https") != 0)
		return ps_error_set(&rq->error, EPROTO, "redirected from https to http: refused");
	if (rq->kind->redirected && rq->kind->redirected(rq, next)) {
		rq->wanted_enough = !rq->error.err;
		return 1;
	}
	free(rq->url);
	rq->url = ps_steal_ptr(&next);
	return 0;
}

static void note_location(struct ps_http_request *rq, CURL *curl)
{
	char *location = NULL;

	free(ps_steal_ptr(&rq->location));
	curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
	if (location && strlen(location) <= PS_URL_MAX_LEN)
		rq->location = strdup(location);
}

/* A late request whose tier is set aside goes on at the next tier. All nodes then ask that one, so the origin
 * is asked once; without this, each node would ask the origin. */
static bool may_move(const struct ps_http_request *rq, const struct ps_tier_turn *turn)
{
	return !rq->moved && ps_tiers_is_aside(rq->client->tiers, turn->tier);
}

/* Judges a tier's failure by the origin's answer that followed it. This request asks tiers again only if the
 * failed one was late, but is alive. */
static void judge_tier(struct ps_http_request *rq)
{
	uint64_t next = rq->range_last + 1;
	const struct ps_tier_trial trial = {.answered = !rq->error.err,
	        .ns = ps_clock_mono_ns() - rq->failed_ns,
	        .nbytes = next - rq->range_first,
	        .ndone = next - rq->failed_first,
	        .nmissing = rq->failed_last + 1 - PS_MIN(next, rq->failed_last + 1)};

	if (ps_tiers_judged(rq->client->tiers, &rq->failed, rq->failure, &trial))
		return;
	bool moves = may_move(rq, &rq->failed);
	rq->direct = rq->failure != PS_TIER_LATE || (!moves && (rq->moved || !ps_tiers_answers(&rq->failed)));
	rq->moved = rq->moved || moves;
	rq->failed.tier = NULL;
}

/* Judges a tier's attempt. True: the request goes on, at the origin or with the next slice. */
static bool tier_end(struct ps_http_request *rq, int rc)
{
	struct ps_tiers *tiers = rq->client->tiers;
	struct ps_tier_turn turn = rq->turn;
	int status = rq->header_done ? rq->response.status : 0;

	rq->turn.tier = NULL;
	if (rc == -ECANCELED) {
		ps_tiers_left(tiers, &turn);
		return false;
	}
	if (!rq->error.err && lacking_nbytes(rq) > 0)
		ps_error_set(&rq->error, EIO, "the body was cut %llu bytes early",
		        (unsigned long long)lacking_nbytes(rq));
	if (!rq->error.err) {
		ps_tiers_answered(tiers, &turn, rq->tier_nbytes, rq->tier_first_ns);
		rq->sample_tier = turn.tier;
		rq->sample_first = rq->range_first;
		rq->sample_nbytes = rq->tier_nbytes;
		return rq->kind->again(rq);
	}
	uint64_t next = rq->range_first + rq->tier_nbytes;
	if (rc == -ETIMEDOUT && !turn.probe && next <= rq->range_end && may_move(rq, &turn)) {
		ps_tiers_left(tiers, &turn);
		rq->kind->report(rq);
		rq->moved = true;
		rq->range_first = next;
		rq->range_last = rq->range_end;
		rq->error = (struct ps_error){0};
		return true;
	}
	rq->failure = rc == -ETIMEDOUT                                                  ? PS_TIER_LATE
	              : rq->error.err == EHOSTUNREACH || rc == CURLE_OPERATION_TIMEDOUT ? PS_TIER_DOWN
	              : status >= 300 && status < 400                                   ? PS_TIER_REDIRECTED
	                                                                                : PS_TIER_WRONG;
	rq->failed = turn;
	ps_tiers_failed(tiers, &turn, rq->failure, rq->tier_nbytes, rq->error.text);
	/* What came is good: its header was checked. The origin is asked for the rest of the range. */
	rq->kind->report(rq);
	rq->range_first += rq->tier_nbytes;
	rq->failed_first = rq->range_first;
	rq->failed_last = PS_MAX(rq->range_last, rq->range_first);
	rq->range_last = rq->range_end;
	rq->direct = true;
	rq->failed_ns = ps_clock_mono_ns();
	rq->error = (struct ps_error){0};
	if (rq->range_first <= rq->range_end)
		return true;
	judge_tier(rq); /* more bytes came than were requested */
	return false;
}

/* Ends an attempt that asked the origin for the first byte only. True: the origin ignores ranges; the next
 * attempt asks it for the whole range. */
static bool asked(struct ps_http_request *rq)
{
	rq->asks = rq->error.err;
	rq->direct = rq->direct || (rq->error.err == EPROTO && rq->header_done && rq->response.status == 200);
	return rq->error.err && rq->direct;
}

static bool end(struct ps_transfer *t, void *curl, int rc)
{
	struct ps_transfer_work *work = PS_CONTAINER_OF(t, struct ps_transfer_work, transfer);
	struct ps_http_request *rq = work->request;

	if (!rq) {
		work->rc = rc;
		return false;
	}
	bool redirected = rq->header_done && is_redirect(rq);
	if (redirected && rc >= 0 && follow(rq, curl) == 0)
		return true;
	ps_http_pace_end(&rq->pace, &rq->client->paces, ps_clock_mono_ns(), rq->wire_nbytes, rc == CURLE_OK);
	judge(rq, curl, rc);
	if (is_misframed(rq, rc)) {
		rq->kind->drop(rq);
		rq->tier_nbytes = 0;
	}
	if (rq->turn.tier)
		return tier_end(rq, rc);
	/* A cancelled attempt says nothing about the origin. */
	if (rq->failed.tier && rc != -ECANCELED)
		judge_tier(rq);
	if (rq->is_asking && asked(rq))
		return true;
	if (rq->client->dialect)
		note_location(rq, curl);
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
