#include "origin/origin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/url.h"
#include "base/secret.h"
#include "base/strbuf.h"
#include "credentials/credentials.h"
#include "origin/bucket_private.h"
#include "origin/hub_private.h"
#include "origin/origin_private.h"

/* Opening ------------------------------------------------------------------------------------------------ */

int ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	static const struct ps_origin_options defaults = {0};
	struct ps_origin_source parsed;

	if (ps_hf_is_source(source))
		return ps_hf_open(source, options ? options : &defaults, ret, err);
	int rc = ps_source_parse(source, &parsed, err);
	if (rc)
		return rc;
	if (parsed.origin == PS_SOURCE_FILE)
		return ps_file_open(&parsed, ret, err);
	if (parsed.origin == PS_SOURCE_S3 && ps_s3_url_is_azure(parsed.first))
		return ps_az_open(&parsed, options ? options : &defaults, ret, err);
	if (parsed.origin == PS_SOURCE_S3)
		return ps_s3_open(&parsed, options ? options : &defaults, ret, err);
	return ps_http_open(&parsed, options ? options : &defaults, ret, err);
}

char *ps_source_canonical(const char *source, struct ps_error *err)
{
	struct ps_origin_source parsed;

	if (ps_hf_is_source(source)) {
		struct ps_hf_source hub;

		if (ps_hf_source_parse(source, &hub, err) < 0)
			return NULL;
		char *spelled = ps_steal_ptr(&hub.canonical);
		ps_hf_source_fini(&hub);
		return spelled;
	}
	if (ps_source_parse(source, &parsed, err) < 0)
		return NULL;
	char *canonical = ps_steal_ptr(&parsed.canonical);
	ps_source_fini(&parsed);
	return canonical;
}

/* Access and route --------------------------------------------------------------------------------------- */

/* A digest of (name, value) pairs. Secrets are not collected in memory. */
struct digest {
	EVP_MD_CTX *ctx;
	bool any;
};

static void digest_fini(struct digest *d)
{
	EVP_MD_CTX_free(d->ctx);
}

#define autodigest __attribute__((cleanup(digest_fini))) struct digest

static int digest_init(struct digest *d)
{
	*d = (struct digest){.ctx = EVP_MD_CTX_new()};
	return d->ctx && EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

static void add_bytes(struct digest *d, const void *bytes, size_t n)
{
	uint64_t len = n;

	EVP_DigestUpdate(d->ctx, &len, sizeof(len));
	EVP_DigestUpdate(d->ctx, bytes, n);
}

/* For ps_input_fn. */
static void add_input(void *arg, const char *name, const void *bytes, size_t n)
{
	struct digest *d = arg;

	d->any = true;
	if (name)
		add_bytes(d, name, strlen(name));
	add_bytes(d, bytes, n);
}

/* Adds nothing if value is NULL. */
static void add(struct digest *d, const char *name, const char *value)
{
	if (value)
		add_input(d, name, value, strlen(value));
}

static void digest_take(struct digest *d, struct ps_id *ret)
{
	unsigned char digest[EVP_MAX_MD_SIZE];

	/* With a valid context this cannot fail, and a wrong digest must never be returned. */
	if (EVP_DigestFinal_ex(d->ctx, digest, NULL) != 1)
		abort();
	memcpy(ret->bytes, digest, PS_ID_LEN);
}

/* Adds a list of words, separated by commas and blanks, whose order and repetitions mean nothing. */
static int add_words(struct digest *d, const char *name, const char *list)
{
	if (!list)
		return 0;
	ps_autofree char *copy = strdup(list);
	ps_autofree char **words = calloc(strlen(list) / 2 + 1, sizeof(*words));
	size_t n = 0;

	if (!copy || !words)
		return -ENOMEM;
	for (char *rest = copy, *word; (word = strsep(&rest, ", \t"));)
		if (*word)
			words[n++] = word;
	qsort(words, n, sizeof(*words), ps_text_compare);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(words[i], words[i - 1]) != 0)
			add(d, name, words[i]);
	return 0;
}

/* Headers of one name keep their order; the order of different names means nothing. */
static int compare_header(const void *a, const void *b)
{
	const char *const *x = *(const char *const *const *)a, *const *y = *(const char *const *const *)b;
	size_t n = strcspn(*x, ":"), m = strcspn(*y, ":");
	int c = strncasecmp(*x, *y, PS_MIN(n, m));

	return c ? c : n != m ? (n > m) - (n < m) : (x > y) - (x < y);
}

static int add_headers(struct digest *d, const char *const *headers)
{
	size_t n = 0;

	while (headers && headers[n])
		n++;
	ps_autofree const char *const **sorted = calloc(n + 1, sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		sorted[i] = &headers[i];
	qsort(sorted, n, sizeof(*sorted), compare_header);
	for (size_t i = 0; i < n; i++)
		add(d, "header", *sorted[i]);
	return 0;
}

static int add_netrc(struct digest *d, const struct ps_origin_options *options)
{
	ps_autofree char *path = NULL;
	int rc = ps_netrc_path(&options->http, &path);

	return path ? ps_input_file(path, add_input, d) : rc;
}

static int add_hub(struct digest *d, const struct ps_origin_options *options)
{
	ps_autosecret char *token = NULL;
	int rc = ps_hf_token_find(options->http.env, options->credentials, &token, NULL);

	add(d, "token", token);
	add(d, "hub", ps_env_get(options->http.env, "HF_ENDPOINT"));
	return rc == -ENOMEM ? rc : 0; /* opening the origin reports what is wrong */
}

/* Adds a proxy without its user and password: the route is the same for every access. */
static void add_proxy(struct digest *d, const char *name, const char *proxy, struct ps_strbuf *text)
{
	const char *at = strrchr(proxy, '@'), *scheme = strstr(proxy, "://");
	const char *host = at ? at + 1 : scheme ? scheme + 3 : proxy;

	add(d, name, host);
	add_bytes(d, proxy, scheme ? (size_t)(scheme - proxy) : 0);
	ps_strbuf_addf(text, "%s%s %s", text->len ? ", " : "", name, host);
}

/* True for a list of URLs, local or on a web server. */
static bool is_list(const char *canonical)
{
	size_t n = strlen(canonical);

	return canonical[0] == '@' || (n > 4 && strcasecmp(canonical + n - 4, ".txt") == 0);
}

/* True if requests to the origin are never encrypted, so that no CA vouches for its host. A list may name
 * hosts of both kinds. */
static bool is_cleartext(const char *canonical, const struct ps_origin_options *options)
{
	const char *url = canonical;
	ps_autofree char *azure = NULL;

	if (strncmp(canonical, "hf:", 3) == 0)
		url = ps_env_get(options->http.env, "HF_ENDPOINT");
	else if (ps_s3_url_is_azure(canonical))
		url = azure = ps_az_endpoint(canonical, options);
	else if (ps_s3_url_is(canonical))
		url = ps_s3_endpoint(options, canonical);
	return url && strncasecmp(url, "http://", 7) == 0 && !is_list(canonical);
}

/* Adds the route to the origin as requests will take it: the proxy, the CAs that may vouch for a host's name,
 * and the tiers. */
static int add_route(struct digest *d, const char *canonical, const struct ps_origin_options *options,
        struct ps_strbuf *text)
{
	bool is_s3 = ps_s3_url_is(canonical) && !ps_s3_url_is_azure(canonical);
	const struct ps_http_options http = is_s3 ? ps_s3_http_options(options) : options->http;
	struct ps_http_route route;
	int rc = 0;

	ps_http_route_of(&http, &route);
	bool one = route.proxy && route.tls_proxy && strcmp(route.proxy, route.tls_proxy) == 0;
	if (route.proxy)
		add_proxy(d, one ? "proxy" : "http proxy", route.proxy, text);
	if (route.tls_proxy && !one)
		add_proxy(d, "https proxy", route.tls_proxy, text);
	if (d->any)
		rc = add_words(d, "no proxy", route.no_proxy);
	if (!is_cleartext(canonical, options)) {
		const char *ca = route.ca_file ? route.ca_file : route.ca_dir;

		add(d, "CA", route.ca_file);
		add(d, "CAs", route.ca_dir);
		add(d, "TLS", http.insecure ? "not verified" : NULL);
		if (ca)
			ps_strbuf_addf(text, "%scertificates of %s", text->len ? ", " : "", ca);
		if (http.insecure)
			ps_strbuf_addf(text, "%sTLS not verified", text->len ? ", " : "");
	}
	if (http.tiers.list)
		ps_strbuf_addf(text, "%stiers", text->len ? ", " : "");
	if (rc == 0)
		rc = add_words(d, "tier", http.tiers.list);
	add(d, "tier CA", http.tiers.ca_file);
	return rc;
}

static int add_access(
        struct digest *d, const char *source, const char *canonical, const struct ps_origin_options *options)
{
	const char *const files[] = {
	        options->http.client_cert, options->http.client_key, options->http.client_key_password_file};
	bool is_store = ps_s3_url_is(canonical), is_hub = strncmp(canonical, "hf:", 3) == 0;
	int rc = 0;

	if (strncmp(canonical, "file:", 5) == 0)
		return 0;
	/* The source is added as the user wrote it, since it may have a user name or a signature. */
	bool is_azure = ps_s3_url_is_azure(canonical);
	add(d, "source", (is_store && !(is_azure && strchr(source, '?'))) || is_hub ? NULL : source);
	rc = add_headers(d, options->http.headers);
	for (size_t i = 0; i < PS_ARRAY_LEN(files) && rc == 0; i++)
		rc = files[i] ? ps_input_file(files[i], add_input, d) : 0;
	struct ps_http_route route;
	ps_http_route_of(&options->http, &route);
	add(d, "proxy", route.proxy);
	add(d, "https proxy", route.tls_proxy);
	add(d, "anonymous", options->no_sign_request ? "yes" : NULL);
	add(d, "payer", options->request_payer ? "yes" : NULL);
	add(d, "redirects", options->follow_redirects ? "followed" : NULL);
	if (rc == 0 && is_azure && !options->no_sign_request) {
		rc = ps_az_inputs(options, add_input, d);
	} else if (rc == 0 && is_store && !options->no_sign_request) {
		const struct ps_credentials_options keys = ps_s3_credentials(options);

		rc = ps_credentials_inputs(&keys, add_input, d);
	}
	if (rc == 0 && is_hub)
		rc = add_hub(d, options);
	if (is_store || is_hub)
		return rc;
	add(d, "user", options->http.user_password);
	return rc == 0 ? add_netrc(d, options) : rc;
}

/* True if requests to the origin do not depend on who sends them. Everything that may have a secret counts
 * as a credential: any header, a query, a manifest, a netrc file. */
static bool is_anonymous(const char *source, const char *canonical, const struct ps_origin_options *options)
{
	ps_autofree char *netrc = NULL;

	if ((options->http.headers && options->http.headers[0]) || options->http.client_cert ||
	        options->http.proxy)
		return false;
	if (ps_s3_url_is(canonical))
		return options->no_sign_request;
	if (strncmp(canonical, "http", 4) != 0 || strpbrk(source, "@?") || options->http.user_password)
		return false;
	if (is_list(canonical))
		return false;
	return ps_netrc_path(&options->http, &netrc) == 0 && !(netrc && access(netrc, F_OK) == 0);
}

/* True for "s3://bucket" and "s3://bucket/dir/": each access that may list them sees the same names. */
static bool is_bucket_listing(const char *canonical)
{
	return ps_s3_url_is(canonical) && !strchr(canonical, '?') && !strchr(canonical, '{') &&
	       (canonical[strlen(canonical) - 1] == '/' || !strchr(strstr(canonical, "://") + 3, '/'));
}

int ps_identity_of(const char *source, const char *canonical, const struct ps_origin_options *options,
        struct ps_identity *ret)
{
	autodigest route = {0}, access = {0}, names = {0};
	ps_autostrbuf struct ps_strbuf text = {0};
	bool is_store = ps_s3_url_is(canonical);
	char hex[PS_ID_HEX_LEN + 1];

	*ret = (struct ps_identity){.names_for_all = is_bucket_listing(canonical)};
	int rc = digest_init(&route);
	if (rc == 0)
		rc = digest_init(&access);
	if (rc == 0)
		rc = digest_init(&names);
	if (rc < 0)
		return rc;
	if (strncmp(canonical, "file:", 5) != 0)
		rc = add_route(&route, canonical, options, &text);
	if (rc < 0)
		return rc;
	ret->has_route = route.any;
	snprintf(ret->route_text, sizeof(ret->route_text), "%s", text.len ? ps_strbuf_peek(&text) : "");
	ret->anonymous = !route.any && is_anonymous(source, canonical, options);
	digest_take(&route, &ret->route);

	ps_id_hex(&ret->route, hex);
	add(&access, "route", hex);
	rc = add_access(&access, source, canonical, options);
	digest_take(&access, &ret->access);

	ps_id_hex(ret->names_for_all ? &ret->route : &ret->access, hex);
	add(&names, "for", hex);
	bool is_azure = ps_s3_url_is_azure(canonical);
	ps_autofree char *azure = is_azure ? ps_az_endpoint(canonical, options) : NULL;
	const char *endpoint = is_azure ? azure : is_store ? ps_s3_endpoint(options, canonical) : NULL;
	ret->has_endpoint = endpoint;
	add(&names, "endpoint", endpoint);
	add(&names, "versions", options->pin_versions ? "pinned" : NULL);
	add(&names, "versions", options->by_size ? "by size" : NULL);
	digest_take(&names, &ret->names);
	return rc;
}
