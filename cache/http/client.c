/* The client of one origin: its options, the signatures of URLs, and who may see credentials. */
#include "http/http_private.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/size.h"
#include "base/url.h"

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

	for (const char *const *h = options->headers; !rc && h && *h; h++) {
		rc = check_header(*h, err);
		if (!rc && ps_slist_add(&c->headers, *h) < 0)
			rc = ps_no_memory(err);
	}
	if (rc)
		return rc;
	const char *given = options->user_password;
	size_t n = given ? strcspn(given, ":") : 0;
	c->user = given ? strndup(given, n) : ps_steal_ptr(&u.user);
	c->password = given ? strdup(given + n + (given[n] == ':')) : ps_steal_ptr(&u.password);
	c->own = ps_url_authority(&u);
	c->signature = ps_steal_ptr(&u.signature);
	if (!c->own || (given && (!c->user || !c->password)))
		return ps_no_memory(err);
	rc = ps_http_access_init(&c->access, options, err);
	return rc ? rc : init_tiers(c, options, err);
}

int ps_http_client_init(struct ps_http_client *c, const char *source_url,
        const struct ps_http_options *options, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];

	*c = (struct ps_http_client){0};
	pthread_rwlock_init(&c->signatures_lock, NULL);
	ps_redirects_init(&c->redirects);
	ps_http_paces_init(&c->paces);
	c->connect_timeout_ms =
	        options->connect_timeout_ms ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
	uint64_t stall_ms = options->stall_timeout_ms ? options->stall_timeout_ms : STALL_TIMEOUT_MS;
	/* Limits the time, so that adding it to the clock cannot overflow. */
	c->stall_ns = PS_MIN(stall_ms, UINT64_MAX / 2 / PS_NS_PER_MS) * PS_NS_PER_MS;
	uint64_t share_ms = PS_MAX(options->reader_timeout_ms / 3, ATTEMPT_MIN_MS);
	c->attempt_ns = c->stall_ns;
	c->page_ns = PS_PAGE_SLOW_MS * PS_NS_PER_MS;
	if (options->reader_timeout_ms) {
		c->page_ns = PS_MIN(c->page_ns,
		        PS_MAX(options->reader_timeout_ms, UINT64_C(0) + PS_PAGE_MAX_MS) * PS_NS_PER_MS);
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
	ps_redirects_fini(&c->redirects);
	ps_http_paces_fini(&c->paces);
	free(c->own);
	free(c->signature);
	free(c->user);
	free(c->password);
	ps_http_access_fini(&c->access);
	ps_http_access_fini(&c->tier_access);
	ps_tiers_free(c->tiers);
}

int ps_http_client_url(struct ps_http_client *c, const char *url, bool is_own, char **ret)
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
	*ret = ps_strbuf_take(&b);
	return *ret ? 0 : -ENOMEM;
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
