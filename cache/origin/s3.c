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

/* The origin --------------------------------------------------------------------------------------------- */

struct ps_s3 {
	struct ps_http_origin http; /* first */
	struct ps_s3_signer signer;
	bool pin_versions;
};

static struct ps_s3 *s3_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_s3, http.origin);
}

static int s3_list(
        struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_s3 *s3 = s3_of(o);

	return ps_s3_list(o, &s3->http.client, s3->signer.credentials, &s3->http.source, s3->pin_versions, fn,
	        arg, stop, err);
}

static void s3_free(struct ps_s3 *s3)
{
	ps_s3_store_fini(&s3->signer.store);
	ps_sigv4_keys_fini(&s3->signer.keys);
	ps_credentials_free(s3->signer.credentials);
	ps_source_fini(&s3->http.source);
	free(s3);
}

static void s3_close(struct ps_origin *o)
{
	ps_http_client_fini(&s3_of(o)->http.client);
	s3_free(s3_of(o));
}

static const struct ps_origin_ops s3_ops = {
        .name = "s3",
        .list = s3_list,
        .close = s3_close,
        PS_HTTP_ORIGIN_OPS,
};

/* The schemes, and in what they differ. */
static const struct scheme {
	enum ps_credentials_kind credentials;
	const char *endpoint, *region; /* NULL: Amazon's */
	const char *endpoints[3];      /* environment variables that name another endpoint */
	/* Google decompresses objects stored with Content-Encoding: gzip for clients that do not accept it,
	 * and then answers a range with the whole object. */
	const char *accept_encoding;
} schemes[] = {
        {PS_CREDENTIALS_AWS, NULL, NULL, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, NULL},
        {PS_CREDENTIALS_GOOGLE, "https://storage.googleapis.com", "auto", {"STORAGE_EMULATOR_HOST"}, "gzip"},
};

static const struct scheme *scheme_of(const char *url)
{
	return &schemes[strncasecmp(url, "gs", 2) == 0];
}

static const char *first_set(
        const struct ps_origin_options *options, const char *given, const char *const *names)
{
	for (; !given && *names; names++)
		given = ps_credentials_env(options->http.env, *names);
	return given;
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
	return ps_s3_store_init(&s3->signer.store, first_set(options, options->endpoint, scheme->endpoints),
	        region, scheme->endpoint, options->addressing, err);
}

struct ps_http_options ps_s3_http_options(const struct ps_origin_options *options)
{
	struct ps_http_options http = options->http;

	if (!http.ca_file)
		http.ca_file = ps_env_get(http.env, "AWS_CA_BUNDLE");
	return http;
}

struct ps_credentials_options ps_s3_credentials(const struct ps_origin_options *options)
{
	return (struct ps_credentials_options){.no_sign_request = options->no_sign_request,
	        .profile = options->profile,
	        .region = options->region,
	        .env = options->http.env,
	        .google_file = options->credentials,
	        .proxy = options->http.proxy,
	        .ca_file = options->http.ca_file};
}

static int open_parts(struct ps_s3 *s3, const struct ps_origin_options *options, struct ps_error *err)
{
	const struct scheme *scheme = scheme_of(s3->http.source.first);
	struct ps_credentials_options credentials = ps_s3_credentials(options);
	const struct ps_http_options http = ps_s3_http_options(options);
	const struct ps_s3_store *store = &s3->signer.store;
	bool is_google = scheme->credentials == PS_CREDENTIALS_GOOGLE;
	ps_autostrbuf struct ps_strbuf own = {0};

	if (is_google && options->pin_versions)
		return ps_error_set(
		        err, EINVAL, "gs://: versions cannot be pinned there; leave --pin-versions out");
	if (is_google && options->request_payer)
		return ps_error_set(err, EINVAL,
		        "gs://: the payer is a project; give --header 'x-goog-user-project: PROJECT' instead "
		        "of "
		        "--request-payer");
	credentials.kind = scheme->credentials;
	int rc = ps_credentials_new(&credentials, &s3->signer.credentials, err);
	if (rc == 0)
		rc = open_store(s3, options, scheme, err);
	if (rc)
		return rc;
	ps_strbuf_addf(&own, "%s://%s/", store->scheme ? store->scheme : "https",
	        store->host ? store->host : "s3.amazonaws.com");
	rc = own.failed ? ps_no_memory(err) : ps_http_client_init(&s3->http.client, own.s, &http, err);
	if (rc)
		return rc;
	ps_origin_has_tiers(&s3->http.origin, &s3->http.client);
	s3->http.client.as_stored = true;
	s3->http.client.accept_encoding = scheme->accept_encoding;
	s3->http.client.dialect = &ps_s3_dialect;
	s3->http.client.dialect_arg = &s3->signer;
	/* Google's stores send checksums with every response. */
	s3->http.origin.heads_tell_sums = !is_google;
	s3->http.origin.heads_prove = true; /* HEAD and GET both need s3:GetObject */
	s3->http.source.endpoint = s3->signer.store.identity;
	return 0;
}

int ps_s3_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err)
{
	struct ps_s3 *s3 = ps_http_origin_new(sizeof(*s3), &s3_ops, source, err);

	if (!s3)
		return -ENOMEM;
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
	*ret = &s3->http.origin;
	return 0;
}

const char *ps_s3_endpoint(const struct ps_origin_options *options, const char *url)
{
	return first_set(options, options->endpoint, scheme_of(url)->endpoints);
}
