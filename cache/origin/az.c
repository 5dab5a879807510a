#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/bucket_url.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/url.h"
#include "credentials/sigv4.h"
#include "http/request.h"
#include "origin/az_store.h"
#include "origin/http_get.h"
#include "origin/kinds.h"
#include "origin/s3_error.h"
#include "origin/s3_list.h"

/* arg of the client is the struct ps_az_store. A container's listing is asked for as the page
 * "az://ACCOUNT/CONTAINER?QUERY". */
extern const struct ps_http_dialect ps_az_dialect;

struct ps_az {
	struct ps_origin origin; /* first */
	struct ps_http_client client;
	struct ps_az_store store;
	struct ps_source source;
};

static struct ps_az *az_of(struct ps_origin *o)
{
	return PS_CONTAINER_OF(o, struct ps_az, origin);
}

static int list(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	return ps_s3_list(o, &az_of(o)->client, NULL, &az_of(o)->source, false, fn, arg, stop, err);
}

static void head(struct ps_origin *o, struct ps_head *h)
{
	ps_http_head(&az_of(o)->client, h);
}

static void get(struct ps_origin *o, struct ps_get *g)
{
	ps_http_get(&az_of(o)->client, g);
}

static void cancel(struct ps_origin *o, struct ps_get *g)
{
	ps_http_cancel(&az_of(o)->client, &g->work);
}

static void abort_all(struct ps_origin *o)
{
	ps_transfers_abort(az_of(o)->client.transfers);
}

static void az_free(struct ps_az *az)
{
	ps_az_store_fini(&az->store);
	ps_source_fini(&az->source);
	free(az);
}

static void az_close(struct ps_origin *o)
{
	ps_http_client_fini(&az_of(o)->client);
	az_free(az_of(o));
}

static const struct ps_origin_ops az_ops = {
        .name = "az",
        .list = list,
        .head = head,
        .get = get,
        .cancel = cancel,
        .abort = abort_all,
        .close = az_close,
};

/* What goes into the signature is ours. */
static int check_headers(const struct ps_origin_options *options, struct ps_error *err)
{
	for (const char *const *h = options->http.headers; h && *h; h++)
		if (strncasecmp(*h, "x-ms-", 5) == 0 || strncasecmp(*h, "content-", 8) == 0 || strncasecmp(*h, "date:", 5) == 0)
			return ps_error_set(err, EINVAL, "header option: %.*s is set by the mount itself",
			        (int)strcspn(*h, ":"), *h);
	return 0;
}

int ps_az_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	struct ps_az *az = calloc(1, sizeof *az);
	int rc;

	if (!az) {
		ps_source_fini(source);
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	az->origin.ops = &az_ops;
	az->source = *source;
	*source = (struct ps_source){0};
	rc = ps_az_store_init(&az->store, &az->source, options, err);
	if (rc == 0)
		rc = check_headers(options, err);
	if (rc == 0)
		rc = ps_http_client_init(&az->client, az->store.root, &options->http, err);
	if (rc) {
		az_free(az);
		return rc;
	}
	az->client.as_stored = true;
	az->client.dialect = &ps_az_dialect;
	az->client.dialect_arg = &az->store;
	az->origin.heads_prove = true; /* both need Read */
	az->source.endpoint = az->store.identity;
	*ret = &az->origin;
	return 0;
}

/* Requests ---------------------------------------------------------------------------------------- */

/* Later ones list some names with an attribute that says they are encoded. */
#define VERSION "2020-12-06"
#define SKEW_MAX_S 300 /* requests 15 minutes off are refused */
#define DATE_LEN 64
enum { OTHER_CLOCK = 1, OTHER_SAS = 2 }; /* ps_http_request.remedies */

struct target {
	struct ps_s3_url url;
	const char *list; /* the query of a listing; NULL: of an object */
};

static int parse_target(const char *text, struct target *ret, struct ps_error *err)
{
	const char *container = strchr(text + 5, '/');
	const char *query = container ? strchr(container, '?') : NULL;
	const char *slash = container ? strchr(container + 1, '/') : NULL;

	*ret = (struct target){0};
	if (!query || (slash && slash < query))
		return ps_s3_url_parse(text, &ret->url, err);
	ps_autofree char *bare = strndup(text, (size_t)(query - text));
	if (!bare)
		return ps_error_set(err, ENOMEM, "out of memory");
	ret->list = query + 1;
	return ps_s3_url_parse(bare, &ret->url, err);
}

static int out_of_memory(struct ps_http_request *rq)
{
	return ps_error_set(&rq->error, ENOMEM, "out of memory");
}

/* Signing ----------------------------------------------------------------------------------------- */

/* Not strftime: its names are the locale's. */
static void http_date(int64_t now_s, char ret[static DATE_LEN])
{
	static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t t = (time_t)now_s;
	struct tm tm = {0};

	gmtime_r(&t, &tm);
	snprintf(ret, DATE_LEN, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * tm.tm_wday, tm.tm_mday % 32,
	        months + 3 * tm.tm_mon, (tm.tm_year + 1900) % 10000, tm.tm_hour % 24, tm.tm_min % 60, tm.tm_sec % 61);
}

static void add_decoded(struct ps_strbuf *out, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char hex[3] = {0};

		if (text[i] != '%' || n - i < 3) {
			ps_strbuf_addc(out, text[i]);
			continue;
		}
		memcpy(hex, text + i + 1, 2);
		ps_strbuf_addc(out, (char)strtoul(hex, NULL, 16));
		i += 2;
	}
}

/* "/account/path", then each parameter, "\nname:value" as they are in order: ps_sigv4_query() has put them so. */
static void add_resource(struct ps_strbuf *out, const char *account, const char *path, const char *query)
{
	ps_strbuf_addf(out, "/%s%s", account, path);
	for (const char *s = query; s && *s; s += strcspn(s, "&"), s += *s == '&') {
		size_t n = strcspn(s, "&"), name = strcspn(s, "=");

		ps_strbuf_addc(out, '\n');
		ps_strbuf_addn(out, s, PS_MIN(name, n));
		ps_strbuf_addc(out, ':');
		if (name < n)
			add_decoded(out, s + name + 1, n - name - 1);
	}
}

/* The version 2015-02-21 and later of SharedKey: a length of nothing is empty. */
static void string_to_sign(const struct ps_http_request *rq, const struct ps_az_store *store, const char *date,
        const char *path, const char *query, struct ps_strbuf *out)
{
	char condition[PS_HTTP_CONDITION_LEN], range[64] = "";
	const char *name = "";

	if (!ps_http_request_condition(rq, &name, condition))
		condition[0] = '\0';
	if (rq->ranged)
		snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)rq->range_first,
		        (unsigned long long)rq->range_last);
	/* Content-Encoding, -Language, -Length, -MD5, -Type, Date (x-ms-date has it), If-Modified-Since */
	ps_strbuf_addf(out, "%s\n\n\n\n\n\n\n\n", rq->head ? "HEAD" : "GET");
	ps_strbuf_addf(out, "%s\n\n", strcmp(name, "If-Match") == 0 ? condition : "");
	ps_strbuf_addf(out, "%s\n%s\n", strcmp(name, "If-Unmodified-Since") == 0 ? condition : "", range);
	ps_strbuf_addf(out, "x-ms-date:%s\nx-ms-version:%s\n", date, VERSION);
	add_resource(out, store->account, path, query);
}

static int send_header(struct ps_http_request *rq, const char *name, const char *value)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "%s: %s", name, value);
	int rc = b.failed ? -ENOMEM : ps_http_request_header(rq, b.s);
	if (b.s)
		explicit_bzero(b.s, b.len);
	return rc ? out_of_memory(rq) : 0;
}

static int authorize(struct ps_http_request *rq, const struct ps_az_store *store, const char *date, const char *path,
        const char *query)
{
	unsigned char mac[EVP_MAX_MD_SIZE], text[EVP_MAX_MD_SIZE * 2];
	ps_autostrbuf struct ps_strbuf to_sign = {0}, value = {0};
	unsigned n = 0;

	string_to_sign(rq, store, date, path, query, &to_sign);
	if (to_sign.failed || !HMAC(EVP_sha256(), store->key, (int)store->nkey, (const unsigned char *)to_sign.s,
	                              to_sign.len, mac, &n))
		return out_of_memory(rq);
	EVP_EncodeBlock(text, mac, (int)n);
	ps_strbuf_addf(&value, "SharedKey %s:%s", store->account, (const char *)text);
	return value.failed ? out_of_memory(rq) : send_header(rq, "Authorization", value.s);
}

/* The path of a URL. */
static const char *path_of(const char *url)
{
	const char *host = strstr(url, "://") + 3;

	return host + strcspn(host, "/");
}

static int address(void *arg, struct ps_http_request *rq, char **ret_url)
{
	struct ps_az_store *store = arg;
	struct target target;
	char date[DATE_LEN];
	ps_autosecret char *sas = NULL;
	struct ps_strbuf url = {0};
	int rc = parse_target(rq->url, &target, &rq->error);

	if (rc)
		return rc;
	const char *container = strchr(target.url.bucket, '/') + 1;
	size_t naccount = (size_t)(container - target.url.bucket) - 1;
	/* A list of one account's may not have what is for it sent to another's. */
	if (strlen(store->account) != naccount || strncmp(store->account, target.url.bucket, naccount) != 0)
		rc = ps_error_set(&rq->error, EACCES, "a blob of another account than %s, whose credentials these are",
		        store->account);
	if (rc == 0 && !(sas = ps_az_store_sas(store, &rc)) && rc < 0)
		rc = out_of_memory(rq);
	http_date(ps_clock_real_s() + atomic_load(&store->clock_off_s), date);
	if (rc == 0)
		rc = send_header(rq, "x-ms-date", date);
	if (rc == 0)
		rc = send_header(rq, "x-ms-version", VERSION);
	if (rc == 0) {
		ps_strbuf_addf(&url, "%s/%s", store->root, container);
		if (!target.list) {
			ps_strbuf_addc(&url, '/');
			ps_url_encode_strict(target.url.key, strlen(target.url.key), true, &url);
		}
		rc = url.failed ? out_of_memory(rq) : 0;
	}
	if (rc == 0 && store->nkey && !sas)
		rc = authorize(rq, store, date, path_of(url.s), target.list);
	ps_s3_url_fini(&target.url);
	if (rc == 0 && (target.list || sas))
		ps_strbuf_addf(&url, "?%s%s%s", target.list ? target.list : "", target.list && sas ? "&" : "",
		        sas ? sas : "");
	char *whole = ps_strbuf_take(&url);
	if (rc == 0 && !whole)
		rc = out_of_memory(rq);
	if (rc < 0)
		ps_secret_free(whole);
	else
		*ret_url = whole;
	return rc;
}

/* Refusals ---------------------------------------------------------------------------------------- */

/* errnum 0: what the status says stays. */
static const struct row {
	const char *code;
	int errnum;
	bool retryable;
	const char *text;
} rows[] = {
        {"AuthenticationFailed", EACCES, false,
                "permission denied: the account key does not belong to the account, the shared access signature has "
                "expired or is not right, or a clock is wrong"},
        {"AuthorizationFailure", EACCES, false,
                "permission denied: the account's firewall or the shared access signature does not let this request in"},
        {"AuthorizationPermissionMismatch", EACCES, false,
                "permission denied: the shared access signature lacks a permission (reading needs r, listing l)"},
        {"AuthorizationResourceTypeMismatch", EACCES, false,
                "permission denied: the shared access signature is not for that kind of resource (listing needs the "
                "container)"},
        {"AuthorizationServiceMismatch", EACCES, false,
                "permission denied: the shared access signature is not for blobs"},
        {"AuthorizationProtocolMismatch", EACCES, false,
                "permission denied: the shared access signature is for https only"},
        {"AuthorizationSourceIPMismatch", EACCES, false,
                "permission denied: the shared access signature is for other addresses"},
        {"InsufficientAccountPermissions", EACCES, false, "permission denied: the account may not do this"},
        {"AccountIsDisabled", EACCES, false, "permission denied: the account is disabled"},
        {"NoAuthenticationInformation", EACCES, false, "permission denied: credentials are needed"},
        {"PublicAccessNotPermitted", EACCES, false, "permission denied: the account has no public containers"},
        {"KeyBasedAuthenticationNotPermitted", EACCES, false, "permission denied: the account takes no account keys"},
        {"BlobArchived", EACCES, false, "permission denied: the blob is archived; restore it first"},
        {"ResourceNotFound", ENOENT, false, "there is no such container or blob, or it is not public"},
        {"ContainerNotFound", ENOENT, false, "there is no container of that name"},
        {"BlobNotFound", ENOENT, false, "there is no such blob"},
        {"ServerBusy", EAGAIN, true, "the store asks to slow down"},
        {"OperationTimedOut", EIO, true, "the store timed out"},
        {"InternalError", EIO, true, "an error inside the store"},
};

static void judge_status(int status, struct ps_error *err)
{
	if (status == 401 || status == 403)
		ps_error_set(err, EACCES,
		        "HTTP %d: permission denied; check the credentials, or give --no-sign-request for a public container",
		        status);
	else if (status == 404) /* of a HEAD nothing more is told */
		ps_error_set(err, ENOENT, "not found (404): there is no such blob, or no container of that name");
	else if (status >= 300 && status < 400)
		ps_error_set(err, EPROTO, "HTTP %d: a redirect, which is not followed; check --endpoint", status);
}

/* The message is not shown: it may repeat what was signed. */
static void judge(const char *code, int status, struct ps_error *err)
{
	uint32_t retry_after_ms = err->retry_after_ms;
	const struct row *row = rows, *end = rows + PS_ARRAY_LEN(rows);

	while (row < end && strcmp(row->code, code) != 0)
		row++;
	if (row < end) {
		ps_error_set(err, row->errnum, "HTTP %d %s: %s", status, code, row->text);
		err->retryable = row->retryable;
	} else if (*code) {
		struct ps_error old = *err;

		ps_error_set(err, old.err ? old.err : EIO, "%.200s (%s)", old.text, code);
		err->retryable = old.retryable;
	} else {
		judge_status(status, err);
	}
	err->http_status = status;
	err->retry_after_ms = retry_after_ms;
}

/* Off by more than is taken? Then with the store's clock, once. */
static bool set_clock(struct ps_az_store *store, struct ps_http_request *rq)
{
	int64_t before = atomic_load(&store->clock_off_s), off = rq->response.date_s - ps_clock_real_s();
	int64_t news = off > before ? off - before : before - off;

	if (rq->response.date_s < 0 || news <= SKEW_MAX_S || !store->nkey || rq->remedies & OTHER_CLOCK)
		return false;
	rq->remedies |= OTHER_CLOCK;
	atomic_store(&store->clock_off_s, off);
	ps_log_warning("origin: this machine's clock is %lld s off the store's; requests are signed with the store's",
	        (long long)-off);
	return true;
}

static bool refused(void *arg, struct ps_http_request *rq)
{
	struct ps_az_store *store = arg;
	int status = rq->response.status, rc = 0;
	struct ps_s3_refusal refusal;

	if (status < 300 || status == 412 || status == 416)
		return false;
	ps_s3_refusal_parse(ps_strbuf_peek(&rq->refusal), rq->refusal.len, &refusal);
	judge(refusal.code, status, &rq->error);
	if (status != 401 && status != 403)
		return false;
	if (set_clock(store, rq))
		return true;
	ps_autosecret char *sas = ps_az_store_sas(store, &rc);
	if (rq->remedies & OTHER_SAS || !ps_az_store_refused(store, sas))
		return false;
	rq->remedies |= OTHER_SAS;
	return true;
}

const struct ps_http_dialect ps_az_dialect = {.address = address, .refused = refused};
