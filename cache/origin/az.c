#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/url.h"
#include "base/clock.h"
#include "base/secret.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "credentials/credentials.h"
#include "http/http.h"
#include "origin/bucket_private.h"
#include "origin/origin_private.h"

/* The storage account ------------------------------------------------------------------------------------ */

#define SAS_FILE_MAX_NBYTES 8192
/* The account of the storage emulators; not a secret. */
#define EMULATOR "devstoreaccount1"
#define EMULATOR_KEY \
	"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

/* All variables that are read here begin with this, and so does what ps_az_inputs() reports. */
#define VARIABLES "AZURE_STORAGE_"

/* Account and credentials from the environment. The strings are secret. */
struct given {
	char *account, *key, *sas, *endpoint, *suffix, *protocol;
};

static void given_fini(struct given *g)
{
	free(g->account);
	ps_secret_free(g->key);
	ps_secret_free(g->sas);
	free(g->endpoint);
	free(g->suffix);
	free(g->protocol);
}

#define autogiven __attribute__((cleanup(given_fini))) struct given

/* Takes "Name=value"; the value may contain "=". */
static int take_part(struct given *g, const char *part, size_t n)
{
	const struct {
		const char *name;
		char **to;
	} names[] = {{"AccountName=", &g->account}, {"AccountKey=", &g->key},
	        {"SharedAccessSignature=", &g->sas}, {"BlobEndpoint=", &g->endpoint},
	        {"EndpointSuffix=", &g->suffix}, {"DefaultEndpointsProtocol=", &g->protocol}};

	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
		size_t len = strlen(names[i].name);

		if (n <= len || strncmp(part, names[i].name, len) != 0)
			continue;
		ps_secret_free(*names[i].to);
		*names[i].to = strndup(part + len, n - len);
		return *names[i].to ? 0 : -ENOMEM;
	}
	return 0;
}

static int copy(char **to, const char *value)
{
	if (!value || *to)
		return 0;
	*to = strdup(value);
	return *to ? 0 : -ENOMEM;
}

static int read_environment(const struct ps_origin_options *options, struct given *ret)
{
	static const char emulator[] = "AccountName=" EMULATOR ";AccountKey=" EMULATOR_KEY
	                               ";BlobEndpoint=http://127.0.0.1:10000/" EMULATOR;
	const char *string = ps_env_get(options->http.env, VARIABLES "CONNECTION_STRING");
	int rc = 0;

	if (string && strstr(string, "UseDevelopmentStorage=true"))
		string = emulator;
	for (const char *s = string; rc == 0 && s && *s; s += strcspn(s, ";"), s += *s == ';')
		rc = take_part(ret, s, strcspn(s, ";"));

	/* The variables with a key or a SAS count only if the connection string has neither. */
	if (rc == 0 && !ret->key && !ret->sas) {
		rc = copy(&ret->key, ps_env_get(options->http.env, VARIABLES "KEY"));
		if (rc == 0 && !ret->key)
			rc = copy(&ret->sas, ps_env_get(options->http.env, VARIABLES "SAS_TOKEN"));
	}
	return rc == 0 ? copy(&ret->account, ps_env_get(options->http.env, VARIABLES "ACCOUNT")) : rc;
}

int ps_az_inputs(const struct ps_origin_options *options, ps_input_fn add, void *arg)
{
	int rc = ps_input_env(options->http.env, VARIABLES, add, arg);

	return rc == 0 && options->credentials ? ps_input_file(options->credentials, add, arg) : rc;
}

static char *account_of(const char *url)
{
	const char *account = strstr(url, "://") + 3;

	return strndup(account, strcspn(account, "/"));
}

/* Makes the root for an endpoint that the user chose: the account is in its host name, or becomes a part of
 * its path. */
static int own_root(const char *account, const char *endpoint, char **ret, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];
	ps_autourl struct ps_url u = {0};
	struct ps_strbuf b = {0};
	size_t n = strlen(account);
	int rc = ps_url_parse(endpoint, &u, err);

	if (rc)
		return ps_error_prefix(err, rc, "endpoint");
	if (strncmp(u.scheme, "http", 4) != 0 || u.user || u.query || u.signature)
		return ps_error_set(err, EINVAL, "endpoint %s: not of the form https://HOST[:PORT]",
		        ps_url_redact(endpoint, safe));
	size_t npath = strlen(u.path);
	while (npath && u.path[npath - 1] == '/')
		u.path[--npath] = '\0';
	ps_autofree char *authority = ps_url_authority(&u);
	if (!authority)
		return ps_no_memory(err);
	bool in_host = strncmp(u.host, account, n) == 0 && u.host[n] == '.';
	bool in_path = npath > n && u.path[npath - n - 1] == '/' && strcmp(u.path + npath - n, account) == 0;
	ps_strbuf_addf(&b, "%s%s", authority, u.path);
	if (!in_host && !in_path)
		ps_strbuf_addf(&b, "/%s", account);
	*ret = ps_strbuf_take(&b);
	return *ret ? 0 : ps_no_memory(err);
}

/* Finds the endpoint's URL; *ret is NULL for the public cloud. */
static int find_root(const char *account, const struct given *given, const struct ps_origin_options *options,
        char **ret, struct ps_error *err)
{
	bool ours = !given->account || strcmp(given->account, account) == 0;
	struct ps_strbuf b = {0};

	*ret = NULL;
	if (options->endpoint)
		return own_root(account, options->endpoint, ret, err);
	if (ours && given->endpoint)
		return own_root(account, given->endpoint, ret, err);
	if (!given->suffix || strcmp(given->suffix, "core.windows.net") == 0)
		return 0;
	ps_strbuf_addf(
	        &b, "%s://%s.blob.%s", given->protocol ? given->protocol : "https", account, given->suffix);
	ps_autofree char *endpoint = ps_strbuf_take(&b);
	return endpoint ? own_root(account, endpoint, ret, err) : ps_no_memory(err);
}

char *ps_az_endpoint(const char *canonical, const struct ps_origin_options *options)
{
	autogiven given = {0};
	ps_autofree char *account = account_of(canonical);
	char *root = NULL;

	if (!account || read_environment(options, &given) < 0 ||
	        find_root(account, &given, options, &root, NULL) < 0)
		return NULL; /* opening the origin reports what is wrong */
	return root;
}

/* Portals hand out signatures with a leading question mark; it is skipped. */
static int take_sas(struct ps_az_store *store, const char *text, struct ps_error *err)
{
	char *sas = NULL;
	int rc = ps_secret_token(text[0] == '?' ? text + 1 : text, &sas);

	if (rc == -ENOMEM)
		return ps_no_memory(err);
	if (rc < 0 || !sas || strpbrk(sas, "#?/\"<>") || !strstr(sas, "sig=")) {
		ps_secret_free(sas);
		return ps_error_set(err, EINVAL, "this is not a shared access signature (sv=...&sig=...)");
	}
	PS_LOCK_SCOPE(&store->lock);
	ps_secret_free(store->sas);
	store->sas = sas;
	return 0;
}

static int read_file(const char *path, char **ret, struct ps_error *err)
{
	static const struct ps_secret_file kind = {.what = "SAS file", .max_nbytes = SAS_FILE_MAX_NBYTES};

	return ps_secret_file_line(path, &kind, ret, err);
}

static int take_file(struct ps_az_store *store, const char *path, struct ps_error *err)
{
	ps_autosecret char *text = NULL;
	int rc = read_file(path, &text, err);

	if (rc == 0) {
		rc = take_sas(store, text, err);
		if (rc < 0)
			ps_error_prefix(err, rc, "SAS file %s", path);
	}
	if (rc == 0 && !(store->sas_file = strdup(path)))
		rc = ps_no_memory(err);
	return rc;
}

static int take_key(struct ps_az_store *store, const char *text, struct ps_error *err)
{
	size_t n = strlen(text), pad = 0;

	while (pad < n && text[n - 1 - pad] == '=')
		pad++;
	if (n == 0 || n % 4 || pad > 2 || n / 4 * 3 > sizeof(store->key))
		n = 0;
	int len = n ? EVP_DecodeBlock(store->key, (const unsigned char *)text, (int)n) : -1;
	if (len < (int)pad)
		return ps_error_set(
		        err, EINVAL, "the account key of %s is not valid: it must be base64", store->account);
	store->nkey = (size_t)len - pad;
	return 0;
}

static int find_right(struct ps_az_store *store, const struct ps_origin_source *source,
        const struct given *given, const struct ps_origin_options *options, struct ps_error *err)
{
	if (options->no_sign_request)
		return 0;
	if (source->sas)
		return take_sas(store, source->sas, err);
	if (options->credentials)
		return take_file(store, options->credentials, err);
	if ((given->key || given->sas) && given->account && strcmp(given->account, store->account) != 0)
		return ps_error_set(err, EACCES,
		        "az://%s: the credentials of the environment are for the account %.24s; give "
		        "--credentials, or "
		        "--no-sign-request for a public container",
		        store->account, given->account);
	if (given->key)
		return take_key(store, given->key, err);
	if (given->sas)
		return take_sas(store, given->sas, err);
	return ps_error_set(err, EACCES,
	        "az://%s: no credentials: set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or "
	        "AZURE_STORAGE_CONNECTION_STRING, give "
	        "--credentials, or --no-sign-request for a public container",
	        store->account);
}

static int az_store_init(struct ps_az_store *store, const struct ps_origin_source *source,
        const struct ps_origin_options *options, struct ps_error *err)
{
	autogiven given = {0};

	*store = (struct ps_az_store){.account = account_of(source->first)};
	pthread_mutex_init(&store->lock, NULL);
	if (!store->account || read_environment(options, &given) < 0)
		return ps_no_memory(err);
	int rc = find_root(store->account, &given, options, &store->identity, err);
	if (rc == 0) {
		struct ps_strbuf b = {0};

		if (store->identity)
			ps_strbuf_add(&b, store->identity);
		else
			ps_strbuf_addf(&b, "https://%s.blob.core.windows.net", store->account);
		store->root = ps_strbuf_take(&b);
		rc = store->root ? 0 : ps_no_memory(err);
	}
	return rc == 0 ? find_right(store, source, &given, options, err) : rc;
}

/* A copy, for ps_secret_free(). NULL: there is none, or no memory (then *ret_rc is -ENOMEM). */
static char *az_store_sas(struct ps_az_store *store, int *ret_rc)
{
	PS_LOCK_SCOPE(&store->lock);
	char *sas = store->sas ? strdup(store->sas) : NULL;

	*ret_rc = store->sas && !sas ? -ENOMEM : 0;
	return sas;
}

/* The server refused `sas`: reads the file again. True: `store` now has another signature. */
static bool az_store_refused(struct ps_az_store *store, const char *sas)
{
	ps_autosecret char *text = NULL, *now = NULL;
	struct ps_error err = {0};
	int rc;

	if (!store->sas_file || !sas)
		return false;
	rc = read_file(store->sas_file, &text, &err);
	if (rc == 0)
		rc = take_sas(store, text, &err);
	if (rc < 0)
		ps_log_warning("credentials: %s: %s", store->sas_file, err.text);
	now = az_store_sas(store, &rc);
	return now && strcmp(now, sas) != 0;
}

/* Requests ----------------------------------------------------------------------------------------------- */

/* Later versions list some names encoded, and mark them by an attribute. */
#define VERSION "2020-12-06"
enum { OTHER_CLOCK = 1, OTHER_SAS = 2 }; /* ps_http_request.remedies */

/* "/account/path", then "\nname:value" for each parameter, in the order into which ps_sigv4_query() has put
 * them. */
static void add_resource(struct ps_strbuf *out, const char *account, const char *path, const char *query)
{
	ps_strbuf_addf(out, "/%s%s", account, path);
	for (const char *s = query; s && *s; s += strcspn(s, "&"), s += *s == '&') {
		size_t n = strcspn(s, "&"), name = strcspn(s, "=");

		ps_strbuf_addc(out, '\n');
		ps_strbuf_addn(out, s, PS_MIN(name, n));
		ps_strbuf_addc(out, ':');
		for (size_t i = name + 1; i < n; i++) {
			bool escaped = s[i] == '%' && n - i > 2;
			char hex[3] = {0};

			memcpy(hex, s + i + escaped, escaped ? 2 : 0);
			ps_strbuf_addc(out, escaped ? (char)strtoul(hex, NULL, 16) : s[i]);
			i += escaped ? 2 : 0;
		}
	}
}

/* SharedKey as of version 2015-02-21: a Content-Length of zero is signed as an empty string. */
static void string_to_sign(const struct ps_http_request *rq, const struct ps_az_store *store,
        const char *date, const char *path, const char *query, struct ps_strbuf *out)
{
	char condition[PS_HTTP_CONDITION_LEN], range[64] = "";
	const char *name = "";

	if (!ps_http_request_condition(rq, &name, condition))
		condition[0] = '\0';
	if (rq->ranged)
		snprintf(range, sizeof(range), "bytes=%llu-%llu", (unsigned long long)rq->range_first,
		        (unsigned long long)rq->range_last);
	/* Content-Encoding, -Language, -Length, -MD5, -Type, Date (x-ms-date replaces it),
	 * If-Modified-Since */
	ps_strbuf_addf(out, "%s\n\n\n\n\n\n\n\n", rq->head ? "HEAD" : "GET");
	ps_strbuf_addf(out, "%s\n\n", strcmp(name, "If-Match") == 0 ? condition : "");
	ps_strbuf_addf(out, "%s\n%s\n", strcmp(name, "If-Unmodified-Since") == 0 ? condition : "", range);
	ps_strbuf_addf(out, "x-ms-date:%s\nx-ms-version:%s\n", date, VERSION);
	add_resource(out, store->account, path, query);
}

static int authorize(struct ps_http_request *rq, const struct ps_az_store *store, const char *date,
        const char *path, const char *query)
{
	unsigned char mac[EVP_MAX_MD_SIZE], text[EVP_MAX_MD_SIZE * 2];
	ps_autostrbuf struct ps_strbuf to_sign = {0}, value = {0};
	unsigned n = 0;

	string_to_sign(rq, store, date, path, query, &to_sign);
	if (to_sign.failed || !HMAC(EVP_sha256(), store->key, (int)store->nkey,
	                              (const unsigned char *)to_sign.s, to_sign.len, mac, &n))
		return ps_s3_out_of_memory(rq);
	EVP_EncodeBlock(text, mac, (int)n);
	ps_strbuf_addf(&value, "SharedKey %s:%s", store->account, (const char *)text);
	return value.failed ? ps_s3_out_of_memory(rq) : ps_s3_send_header(rq, "Authorization", value.s);
}

static int address(void *arg, struct ps_http_request *rq, char **ret_url)
{
	struct ps_az_store *store = arg;
	ps_autos3target struct ps_s3_target target = {0};
	char date[PS_HTTP_DATE_LEN] = "";
	ps_autosecret char *sas = NULL;
	struct ps_strbuf url = {0};
	int rc = ps_s3_target_parse(rq->url, true, &target, &rq->error);

	if (rc)
		return rc;
	const char *container = strchr(target.url.bucket, '/') + 1;
	size_t naccount = (size_t)(container - target.url.bucket) - 1;
	/* A manifest given for one account must not make us send its credentials to another. */
	if (strlen(store->account) != naccount || strncmp(store->account, target.url.bucket, naccount) != 0)
		rc = ps_error_set(&rq->error, EACCES,
		        "the blob is in another account; the credentials are for %s", store->account);
	if (rc == 0 && !(sas = az_store_sas(store, &rc)) && rc < 0)
		rc = ps_s3_out_of_memory(rq);
	ps_http_date(ps_clock_real_s() + atomic_load(&store->clock_off_s), date);
	if (rc == 0)
		rc = ps_s3_send_header(rq, "x-ms-date", date);
	if (rc == 0)
		rc = ps_s3_send_header(rq, "x-ms-version", VERSION);
	if (rc == 0) {
		ps_strbuf_addf(&url, "%s/%s", store->root, container);
		if (!target.list) {
			ps_strbuf_addc(&url, '/');
			ps_url_encode_strict(target.url.key, strlen(target.url.key), true, &url);
		}
		rc = url.failed ? ps_s3_out_of_memory(rq) : 0;
	}
	if (rc == 0 && store->nkey && !sas)
		rc = authorize(rq, store, date, strchr(strstr(url.s, "://") + 3, '/'), target.list);
	if (rc == 0 && (target.list || sas))
		ps_strbuf_addf(&url, "?%s%s%s", target.list ? target.list : "", target.list && sas ? "&" : "",
		        sas ? sas : "");
	ps_autosecret char *whole = ps_strbuf_take(&url);
	if (rc == 0 && !whole)
		return ps_s3_out_of_memory(rq);
	if (rc == 0)
		*ret_url = ps_steal_ptr(&whole);
	return rc;
}

/* Refusals ----------------------------------------------------------------------------------------------- */

static const struct ps_s3_code codes[] = {
        {"AuthenticationFailed", EACCES, false,
                "permission denied: the account key does not belong to the account, the shared access "
                "signature has "
                "expired or is not right, or a clock is wrong"},
        {"AuthorizationFailure", EACCES, false,
                "permission denied: the account's firewall or the shared access signature does not let this "
                "request in"},
        {"AuthorizationPermissionMismatch", EACCES, false,
                "permission denied: the shared access signature lacks a permission (reading needs r, listing "
                "l)"},
        {"AuthorizationResourceTypeMismatch", EACCES, false,
                "permission denied: the shared access signature is not for that kind of resource (listing "
                "needs the "
                "container)"},
        {"AuthorizationServiceMismatch", EACCES, false,
                "permission denied: the shared access signature is not for blobs"},
        {"AuthorizationProtocolMismatch", EACCES, false,
                "permission denied: the shared access signature is for https only"},
        {"AuthorizationSourceIPMismatch", EACCES, false,
                "permission denied: the shared access signature is for other addresses"},
        {"InsufficientAccountPermissions", EACCES, false,
                "permission denied: the account lacks a permission for this request"},
        {"AccountIsDisabled", EACCES, false, "permission denied: the account is disabled"},
        {"NoAuthenticationInformation", EACCES, false, "permission denied: credentials are needed"},
        {"PublicAccessNotPermitted", EACCES, false,
                "permission denied: the account has no public containers"},
        {"KeyBasedAuthenticationNotPermitted", EACCES, false,
                "permission denied: the account does not accept account keys"},
        {"BlobArchived", EACCES, false, "permission denied: the blob is archived; restore it first"},
        {"ResourceNotFound", ENOENT, false, "there is no such container or blob, or it is not public"},
        {"ContainerNotFound", ENOENT, false, "there is no container of that name"},
        {"BlobNotFound", ENOENT, false, "there is no such blob"},
        {"ServerBusy", EAGAIN, true, "the store asks to slow down"},
        {"OperationTimedOut", EIO, true, "the store timed out"},
        {"InternalError", EIO, true, "an error inside the store"},
};

static enum ps_s3_remedy judge_status(int status, bool listing, struct ps_error *err)
{
	(void)listing;
	if (status == 401 || status == 403)
		ps_error_set(err, EACCES,
		        "HTTP %d: permission denied; check the credentials, or give --no-sign-request for a "
		        "public container",
		        status);
	else if (status == 404) /* a HEAD's response has no document */
		ps_error_set(
		        err, ENOENT, "not found (404): there is no such blob, or no container of that name");
	else if (status >= 300 && status < 400)
		ps_error_set(
		        err, EPROTO, "HTTP %d: a redirect, which is not followed; check --endpoint", status);
	return PS_S3_NO_REMEDY;
}

static bool refused(void *arg, struct ps_http_request *rq)
{
	struct ps_az_store *store = arg;
	int status = rq->response.status, rc = 0;
	struct ps_s3_refusal refusal;

	if (status < 300 || status == 412 || status == 416)
		return false;
	ps_s3_refusal_parse(ps_strbuf_peek(&rq->refusal), rq->refusal.len, &refusal);
	/* The store's message is not shown: it may repeat the string that was signed. */
	refusal.message[0] = '\0';
	ps_s3_codes_judge(codes, PS_ARRAY_LEN(codes), judge_status, &refusal, status, false, &rq->error);
	if (status != 401 && status != 403)
		return false;
	/* If our clock is off the store's, one more attempt uses the store's clock. */
	if (store->nkey && !(rq->remedies & OTHER_CLOCK) &&
	        ps_s3_clock_is_off(&store->clock_off_s, &rq->response)) {
		rq->remedies |= OTHER_CLOCK;
		if (ps_s3_clock_set(&store->clock_off_s, &rq->response))
			return true;
	}
	ps_autosecret char *sas = az_store_sas(store, &rc);
	if (rq->remedies & OTHER_SAS || !az_store_refused(store, sas))
		return false;
	rq->remedies |= OTHER_SAS;
	return true;
}

/* The client's dialect_arg is the struct ps_az_store. A listing of a container is requested as the page
 * "az://ACCOUNT/CONTAINER?QUERY". */
static const struct ps_http_dialect az_dialect = {.address = address, .refused = refused};

/* The origin --------------------------------------------------------------------------------------------- */

struct ps_az {
	struct ps_http_origin http; /* first */
	struct ps_az_store store;
};

static struct ps_az *az_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_az, http.origin);
}

static int list(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	return ps_s3_list(o, &az_of(o)->http.client, NULL, &az_of(o)->http.source, false, fn, arg, stop, err);
}

static void az_free(struct ps_az *az)
{
	struct ps_az_store *store = &az->store;

	OPENSSL_cleanse(store->key, sizeof(store->key));
	ps_secret_free(store->sas);
	free(store->sas_file);
	free(store->account);
	free(store->root);
	free(store->identity);
	pthread_mutex_destroy(&store->lock);
	ps_source_fini(&az->http.source);
	free(az);
}

static void az_close(struct ps_origin *o)
{
	ps_http_client_fini(&az_of(o)->http.client);
	az_free(az_of(o));
}

static const struct ps_origin_ops az_ops = {
        .name = "az",
        .list = list,
        .close = az_close,
        PS_HTTP_ORIGIN_OPS,
};

/* Refuses a user's header that would change what is signed. */
static int check_headers(const struct ps_origin_options *options, struct ps_error *err)
{
	for (const char *const *h = options->http.headers; h && *h; h++)
		if (strncasecmp(*h, "x-ms-", 5) == 0 || strncasecmp(*h, "content-", 8) == 0 ||
		        strncasecmp(*h, "date:", 5) == 0)
			return ps_error_set(err, EINVAL, "header option: %.*s is set by the mount itself",
			        (int)strcspn(*h, ":"), *h);
	return 0;
}

int ps_az_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err)
{
	struct ps_az *az = ps_http_origin_new(sizeof(*az), &az_ops, source, err);
	struct ps_http_options http = options->http;

	if (!az)
		return -ENOMEM;
	http.tiers.list =
	        NULL; /* Azure's requests use no tiers: the option is for other sources of the mount */
	int rc = az_store_init(&az->store, &az->http.source, options, err);
	if (rc == 0)
		rc = check_headers(options, err);
	if (rc == 0)
		rc = ps_http_client_init(&az->http.client, az->store.root, &http, err);
	if (rc) {
		az_free(az);
		return rc;
	}
	az->http.client.as_stored = true;
	az->http.client.dialect = &az_dialect;
	az->http.client.dialect_arg = &az->store;
	az->http.origin.heads_prove = true; /* HEAD and GET both need the permission Read */
	az->http.source.endpoint = az->store.identity;
	*ret = &az->http.origin;
	return 0;
}
