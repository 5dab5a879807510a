#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/secret.h"
#include "base/log.h"
#include "base/url.h"
#include "http/http.h"
#include "listing/listing.h"
#include "origin/origin_private.h"
#include "origin/bucket_private.h"

/* Listing ------------------------------------------------------------------------------------------------ */

struct walk {
	struct ps_http_client *client;
	struct ps_names *names;
	const char *endpoint; /* the source's */
	bool azure;
	struct ps_s3_url bucket; /* the source, with its prefix as key; borrowed */
	size_t nshown;           /* length of the key prefix that becomes the mount's root and is not shown */
	bool pin;
	const char *only; /* the only key that is wanted; NULL: all */
	uint64_t nkeys, nmarkers;
	struct ps_strbuf url, key, path;
	struct ps_strbuf dir, shown; /* the folder of the last object, and its name in the mount */
};

static int out_of_memory(struct ps_names *names)
{
	return ps_error_set(names->err, ENOMEM, "listing: out of memory");
}

/* Pages -------------------------------------------------------------------------------------------------- */

/* Requests the page that follows `after` (NULL: the first), as bucket_private.h describes. */
static struct ps_http_page *ask(struct walk *walk, const struct ps_s3_page *after)
{
	struct ps_sigv4_pair pairs[6];
	size_t n = 0;
	ps_autostrbuf struct ps_strbuf b = {0};

	if (walk->azure) {
		pairs[n++] = (struct ps_sigv4_pair){"comp", "list"};
		pairs[n++] = (struct ps_sigv4_pair){"restype", "container"};
		pairs[n++] = (struct ps_sigv4_pair){"prefix", walk->bucket.key};
		if (after)
			pairs[n++] = (struct ps_sigv4_pair){"marker", after->token};
		ps_strbuf_addf(&b, "%s://%s?", walk->bucket.scheme, walk->bucket.bucket);
		ps_sigv4_query(pairs, n, &b);
		return b.failed ? NULL : ps_http_page_start(walk->client, b.s, PS_S3_PAGE_MAX_NBYTES);
	}
	if (walk->pin)
		pairs[n++] = (struct ps_sigv4_pair){"versions", ""};
	else
		pairs[n++] = (struct ps_sigv4_pair){"list-type", "2"};
	pairs[n++] = (struct ps_sigv4_pair){"encoding-type", "url"};
	pairs[n++] = (struct ps_sigv4_pair){"prefix", walk->bucket.key};
	if (walk->only)
		pairs[n++] = (struct ps_sigv4_pair){"max-keys", "1"};
	if (after && after->token) {
		pairs[n++] = (struct ps_sigv4_pair){"continuation-token", after->token};
	} else if (after) {
		pairs[n++] = (struct ps_sigv4_pair){"key-marker", after->key_marker};
		if (after->version_marker)
			pairs[n++] = (struct ps_sigv4_pair){"version-id-marker", after->version_marker};
	}
	ps_strbuf_addf(&b, "%s://%s?", walk->bucket.scheme, walk->bucket.bucket);
	ps_sigv4_query(pairs, n, &b);
	return b.failed ? NULL : ps_http_page_start(walk->client, b.s, PS_S3_PAGE_MAX_NBYTES);
}

/* In a bucket "a" and "a/b" may both be objects, but in the mount "a" cannot be both a file and a folder.
 * "a" is listed first and keeps its name; the folder is shown as "a%00", which cannot be a key. */
static void keep_apart(struct walk *walk, const char *path)
{
	const char *name = strrchr(path, '/');
	size_t n = name ? (size_t)(name - path) : 0;

	if (name && (walk->dir.len != n || memcmp(ps_strbuf_peek(&walk->dir), path, n) != 0)) {
		ps_strbuf_reset(&walk->dir);
		ps_strbuf_addn(&walk->dir, path, n);
		ps_strbuf_reset(&walk->shown);
		for (const char *s = path, *end; s <= name; s = end + 1) {
			end = s + strcspn(s, "/");
			ps_strbuf_addn(&walk->shown, s, (size_t)(end - s));
			if (ps_names_is_file(walk->names, ps_strbuf_peek(&walk->shown), walk->shown.len))
				ps_strbuf_add(&walk->shown, "%00");
			ps_strbuf_addc(&walk->shown, '/');
		}
	}
	ps_strbuf_reset(&walk->path);
	if (name)
		ps_strbuf_add(&walk->path, ps_strbuf_peek(&walk->shown));
	ps_strbuf_add(&walk->path, name ? name + 1 : path);
}

static int take_object(void *arg, const struct ps_s3_object *object)
{
	struct walk *walk = arg;
	struct ps_s3_url url = walk->bucket;
	size_t n = strlen(object->key);

	if (walk->only && strcmp(object->key, walk->only) != 0)
		return 0;
	if (strncmp(object->key, walk->bucket.key, strlen(walk->bucket.key)) != 0)
		return ps_error_set(walk->names->err, EPROTO, "the store lists keys without the prefix");
	walk->nkeys++;
	/* Consoles make "folders": empty objects whose names end in a slash. */
	if (n && object->key[n - 1] == '/' && object->remote.size == 0) {
		walk->nmarkers++;
		return 0;
	}
	url.key = (char *)object->key;
	url.version = *object->version ? (char *)object->version : NULL;
	url.endpoint = (char *)walk->endpoint;
	ps_strbuf_reset(&walk->url);
	ps_s3_url_compose(&url, &walk->url);
	ps_strbuf_reset(&walk->key);
	ps_s3_path(object->key + walk->nshown, &walk->key);
	keep_apart(walk, ps_strbuf_peek(&walk->key));
	if (walk->url.failed || walk->key.failed || walk->path.failed || walk->dir.failed ||
	        walk->shown.failed)
		return out_of_memory(walk->names);
	struct ps_listed listed = {.path = walk->path.s, .url = walk->url.s, .remote = object->remote};
	return ps_names_add(walk->names, &listed);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* True if this page names the same next page as the page before it did: the store ignores these parameters,
 * and would be listed forever. */
static bool leads_nowhere(const struct ps_s3_page *before, const struct ps_s3_page *page)
{
	return page->truncated && same_text(before->token, page->token) &&
	       same_text(before->key_marker, page->key_marker) &&
	       same_text(before->version_marker, page->version_marker);
}

/* Requests the next page while this one is merged into the index. */
static int take_page(struct walk *walk, struct ps_http_page **page, struct ps_s3_page *at)
{
	struct ps_names *names = walk->names;
	struct ps_http_page *next = NULL;
	struct ps_page_body body;
	struct ps_s3_page seen = {0};
	uint64_t nskipped = 0;
	int rc = ps_http_page_wait(*page, names->stop, &body, names->err);

	if (rc == 0)
		rc = ps_s3_page_parse(body.text, body.nbytes, &seen, names->err);
	if (rc)
		return rc;
	if (leads_nowhere(at, &seen))
		rc = ps_error_set(names->err, EPROTO, "the store lists the same page again and again");
	else if (seen.truncated && (!walk->only || (walk->azure && seen.nkeys == 0)) &&
	         !(next = ask(walk, &seen)))
		rc = out_of_memory(names);
	if (rc == 0)
		rc = ps_s3_page_objects(
		        body.text, body.nbytes, &seen, take_object, walk, &nskipped, names->err);
	if (nskipped)
		ps_names_warn(names, walk->bucket.bucket, "skipped: keys that are no text");
	ps_http_page_free(*page);
	*page = next;
	ps_s3_page_fini(at);
	*at = seen;
	return rc;
}

static int walk_pages(struct walk *walk)
{
	struct ps_http_page *page = ask(walk, NULL);
	struct ps_s3_page at = {0};
	int rc = page ? 0 : out_of_memory(walk->names);

	while (rc == 0 && page) {
		rc = take_page(walk, &page, &at);
		if (rc == 0)
			rc = ps_names_stopped(walk->names);
	}
	ps_http_page_free(page);
	ps_s3_page_fini(&at);
	ps_strbuf_fini(&walk->url);
	ps_strbuf_fini(&walk->key);
	ps_strbuf_fini(&walk->path);
	ps_strbuf_fini(&walk->dir);
	ps_strbuf_fini(&walk->shown);
	return rc;
}

/* Sources ------------------------------------------------------------------------------------------------ */

static int list_prefix(struct walk *walk)
{
	walk->nshown = strlen(walk->bucket.key);
	int rc = walk_pages(walk);

	if (rc == 0 && walk->nkeys == 0)
		rc = ps_error_set(walk->names->err, ENOENT, "%s://%s/%s: there is no key that begins so",
		        walk->bucket.scheme, walk->bucket.bucket, walk->bucket.key);
	if (rc == 0 && walk->nkeys == walk->nmarkers)
		rc = ps_error_set(walk->names->err, ENOENT,
		        "%s://%s/%s: nothing but empty objects that stand for folders", walk->bucket.scheme,
		        walk->bucket.bucket, walk->bucket.key);
	return rc;
}

/* Lists a name without a trailing slash: an object if that key exists, otherwise a prefix whose slash was
 * left out. If listing is denied, the name is taken for an object. */
static int list_name(struct walk *walk, const struct ps_origin_source *source)
{
	const char *slash = strrchr(walk->bucket.key, '/');
	ps_autostrbuf struct ps_strbuf dir = {0};

	walk->only = walk->bucket.key;
	walk->nshown = slash ? (size_t)(slash + 1 - walk->bucket.key) : 0;
	int rc = walk_pages(walk);
	if (rc == -EACCES) {
		ps_log_debug("list: %s", walk->names->err->text);
		*walk->names->err = (struct ps_error){0};
		return ps_source_expand(source, NULL, NULL, NULL, walk->names);
	}
	if (rc || walk->nkeys)
		return rc;
	ps_strbuf_addf(&dir, "%s/", walk->bucket.key);
	if (dir.failed)
		return out_of_memory(walk->names);
	walk->only = NULL;
	walk->bucket.key = dir.s;
	rc = list_prefix(walk);
	if (rc == -ENOENT && walk->nkeys == 0)
		ps_error_set(walk->names->err, ENOENT,
		        "%s: there is neither such an object nor a key that begins with it and a slash%s",
		        source->canonical,
		        strstr(source->canonical, "%2A") ? "; wildcards do not work here: write {000..127} "
		                                           "braces, or a prefix with a / at its end"
		                                         : "");
	return rc;
}

static int list(struct walk *walk, const struct ps_origin_source *source)
{
	if (source->kind == PS_SOURCE_DIR)
		return list_prefix(walk);
	if (source->kind == PS_SOURCE_MANIFEST)
		return ps_http_manifest_list(walk->client, source, NULL, NULL, walk->names);
	if (source->is_pattern || walk->bucket.version)
		return ps_source_expand(source, NULL, NULL, NULL, walk->names);
	return list_name(walk, source);
}

int ps_s3_list(struct ps_origin *o, struct ps_http_client *c, struct ps_credentials *credentials,
        const struct ps_origin_source *source, bool pin, ps_list_fn fn, void *arg, const _Atomic bool *stop,
        struct ps_error *err)
{
	struct ps_names names;
	struct ps_error mine = {0};
	struct ps_s3_url url = {0};
	struct walk walk = {.client = c, .names = &names, .pin = pin, .endpoint = source->endpoint};

	if (!err)
		err = &mine;
	ps_names_init(&names, &o->lister, fn, arg, stop, err);
	int rc = credentials ? ps_credentials_wait(credentials, stop, err) : 0;
	if (rc == 0)
		rc = ps_s3_url_parse(source->first, &url, err);
	if (rc == 0) {
		walk.bucket = url;
		walk.azure = strcmp(url.scheme, "az") == 0;
		rc = list(&walk, source);
	}
	ps_s3_url_fini(&url);
	ps_names_fini(&names);
	return rc;
}

/* The origin --------------------------------------------------------------------------------------------- */

struct ps_s3 {
	struct ps_origin origin; /* first */
	struct ps_http_client client;
	struct ps_s3_signer signer;
	struct ps_origin_source source;
	bool pin_versions;
};

static struct ps_s3 *s3_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_s3, origin);
}

static int s3_list(
        struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_s3 *s3 = s3_of(o);

	return ps_s3_list(
	        o, &s3->client, s3->signer.credentials, &s3->source, s3->pin_versions, fn, arg, stop, err);
}

static void head(struct ps_origin *o, struct ps_origin_head *h)
{
	ps_http_head(&s3_of(o)->client, h);
}

static void get(struct ps_origin *o, struct ps_origin_get *g)
{
	ps_http_get(&s3_of(o)->client, g);
}

static void cancel(struct ps_origin *o, struct ps_origin_get *g)
{
	ps_http_cancel(&s3_of(o)->client, &g->work);
}

static void abort_all(struct ps_origin *o)
{
	ps_transfers_abort(s3_of(o)->client.transfers);
}

static void s3_free(struct ps_s3 *s3)
{
	ps_s3_store_fini(&s3->signer.store);
	ps_sigv4_keys_fini(&s3->signer.keys);
	ps_credentials_free(s3->signer.credentials);
	ps_source_fini(&s3->source);
	free(s3);
}

static void s3_close(struct ps_origin *o)
{
	ps_http_client_fini(&s3_of(o)->client);
	s3_free(s3_of(o));
}

static const struct ps_origin_ops s3_ops = {
        .name = "s3",
        .list = s3_list,
        .head = head,
        .get = get,
        .cancel = cancel,
        .abort = abort_all,
        .close = s3_close,
};

/* The schemes, and in what they differ. */
static const struct scheme {
	const char *name;
	enum ps_credentials_kind credentials;
	const char *endpoint, *region; /* NULL: Amazon's */
	const char *endpoints[3];      /* environment variables that name another endpoint */
	/* Google decompresses objects stored with Content-Encoding: gzip for clients that do not accept it,
	 * and then answers a range with the whole object. */
	const char *accept_encoding;
} schemes[] = {
        {"s3", PS_CREDENTIALS_AWS, NULL, NULL, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, NULL},
        {"gs", PS_CREDENTIALS_GOOGLE, "https://storage.googleapis.com", "auto", {"STORAGE_EMULATOR_HOST"},
                "gzip"},
};

static const struct scheme *scheme_of(const char *url)
{
	return &schemes[strncasecmp(url, "gs", 2) == 0];
}

static const char *first_set(
        const struct ps_origin_options *options, const char *given, const char *const *names)
{
	for (; !given && *names; names++)
		given = ps_env_get(options->http.env, *names);
	return given;
}

static const char *endpoint_of(const struct ps_origin_options *options, const struct scheme *scheme)
{
	return first_set(options, options->endpoint, scheme->endpoints);
}

static int open_store(struct ps_s3 *s3, const struct ps_origin_options *options, const struct scheme *scheme,
        struct ps_error *err)
{
	static const char *const names[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
	const char *region = first_set(options, options->region, scheme->region ? names + 2 : names);
	ps_autofree char *of_profile =
	        region || scheme->region ? NULL : ps_credentials_region(s3->signer.credentials);

	if (!region)
		region = of_profile ? of_profile : scheme->region;
	return ps_s3_store_init(&s3->signer.store, endpoint_of(options, scheme), region, scheme->endpoint,
	        options->addressing, err);
}

/* Like Amazon's own tools, takes the CA of a store from the environment. */
static int open_client(struct ps_s3 *s3, const struct ps_origin_options *options, struct ps_error *err)
{
	const struct ps_s3_store *store = &s3->signer.store;
	struct ps_origin_options with_ca = *options;
	ps_autostrbuf struct ps_strbuf own = {0};

	if (!with_ca.http.ca_file)
		with_ca.http.ca_file = ps_env_get(options->http.env, "AWS_CA_BUNDLE");
	ps_strbuf_addf(&own, "%s://%s/", store->scheme ? store->scheme : "https",
	        store->host ? store->host : "s3.amazonaws.com");
	if (own.failed)
		return ps_error_set(err, ENOMEM, "out of memory");
	return ps_http_client_init(&s3->client, own.s, &with_ca.http, err);
}

/* Refuses options of Amazon's stores that Google's do not have. */
static int check_options(
        const struct scheme *scheme, const struct ps_origin_options *options, struct ps_error *err)
{
	if (strcmp(scheme->name, "gs") != 0)
		return 0;
	if (options->pin_versions)
		return ps_error_set(
		        err, EINVAL, "gs://: versions cannot be pinned there; leave --pin-versions out");
	if (options->request_payer)
		return ps_error_set(err, EINVAL,
		        "gs://: the payer is a project; give --header 'x-goog-user-project: PROJECT' instead "
		        "of "
		        "--request-payer");
	return 0;
}

static int open_parts(struct ps_s3 *s3, const struct ps_origin_options *options, struct ps_error *err)
{
	const struct scheme *scheme = scheme_of(s3->source.first);
	const struct ps_credentials_options credentials = {.kind = scheme->credentials,
	        .no_sign_request = options->no_sign_request,
	        .profile = options->profile,
	        .region = options->region,
	        .env = options->http.env,
	        .google_file = options->gs_credentials,
	        .proxy = options->http.proxy,
	        .ca_file = options->http.ca_file};
	int rc = check_options(scheme, options, err);

	if (rc == 0)
		rc = ps_credentials_new(&credentials, &s3->signer.credentials, err);
	if (rc == 0)
		rc = open_store(s3, options, scheme, err);
	if (rc == 0)
		rc = open_client(s3, options, err);
	if (rc)
		return rc;
	ps_origin_has_tiers(&s3->origin, &s3->client);
	s3->client.as_stored = true;
	s3->client.accept_encoding = scheme->accept_encoding;
	s3->client.dialect = &ps_s3_dialect;
	s3->client.dialect_arg = &s3->signer;
	/* Google's stores send checksums with every response. */
	s3->origin.heads_tell_sums = strcmp(scheme->name, "s3") == 0;
	s3->origin.heads_prove = true; /* HEAD and GET both need s3:GetObject */
	s3->source.endpoint = s3->signer.store.identity;
	return 0;
}

int ps_s3_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err)
{
	struct ps_s3 *s3 = calloc(1, sizeof(*s3));

	if (!s3) {
		ps_source_fini(source);
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	s3->origin.ops = &s3_ops;
	s3->origin.answer_ns = &s3->client.answer_ns;
	s3->source = *source;
	*source = (struct ps_origin_source){0};
	s3->signer.request_payer = options->request_payer;
	s3->signer.follow_redirects = options->follow_redirects;
	s3->pin_versions = options->pin_versions;
	pthread_mutex_init(&s3->signer.store.lock, NULL);
	ps_sigv4_keys_init(&s3->signer.keys);
	int rc = open_parts(s3, options, err);
	if (rc) {
		s3_free(s3);
		return rc;
	}
	*ret = &s3->origin;
	return 0;
}

const char *ps_s3_endpoint(const struct ps_origin_options *options, const char *url)
{
	return endpoint_of(options, scheme_of(url));
}
