#include "origin/bucket_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/url.h"
#include "base/xml.h"

/* Refusals ----------------------------------------------------------------------------------------------- */

static void put(char *to, size_t cap, const char *text)
{
	size_t n = 0;

	for (; *text && n + 1 < cap; text++)
		to[n++] = (unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text;
	to[n] = '\0';
}

static int error_end(void *arg, const char *path, const char *text)
{
	struct ps_s3_refusal *refusal = arg;

	if (strcmp(path, "Error/Code") == 0)
		put(refusal->code, sizeof(refusal->code), text);
	else if (strcmp(path, "Error/Message") == 0)
		put(refusal->message, sizeof(refusal->message), text);
	else if (strcmp(path, "Error/Region") == 0)
		put(refusal->region, sizeof(refusal->region), text);
	return 0;
}

void ps_s3_refusal_parse(const char *text, size_t nbytes, struct ps_s3_refusal *ret)
{
	static const struct ps_xml_reader reader = {.end = error_end};

	*ret = (struct ps_s3_refusal){0};
	/* A truncated or broken document is used as far as it can be parsed. */
	(void)!ps_xml_parse(text, nbytes, &reader, ret, NULL);
}

static const struct ps_s3_code codes[] = {
        {"AccessDenied", EACCES, false,
                "permission denied: these credentials may not do this (reading needs s3:GetObject, listing "
                "s3:ListBucket); if readers pay for this bucket, give --request-payer"},
        {"AllAccessDisabled", EACCES, false, "permission denied: the bucket is disabled"},
        {"AccountProblem", EACCES, false, "permission denied: a problem with the account"},
        {"InvalidAccessKeyId", EACCES, false,
                "permission denied: the store does not know this access key; check it, and --endpoint",
                PS_S3_OTHER_KEY},
        {"SignatureDoesNotMatch", EACCES, false,
                "permission denied: the secret key does not belong to the access key"},
        {"InvalidToken", EACCES, false, "permission denied: the session token is not valid", PS_S3_OTHER_KEY},
        {"ExpiredToken", EACCES, false,
                "permission denied: the session token has expired; get new credentials", PS_S3_OTHER_KEY},
        {"TokenRefreshRequired", EACCES, false,
                "permission denied: the session token has expired; get new credentials", PS_S3_OTHER_KEY},
        {"AuthenticationRequired", EACCES, false, "permission denied: credentials are needed",
                PS_S3_OTHER_KEY},
        {"RequestTimeTooSkewed", EACCES, false, "permission denied: the clock of this machine is wrong",
                PS_S3_OTHER_CLOCK},
        {"InvalidObjectState", EACCES, false, "permission denied: the object is archived; restore it first"},
        {"NoSuchBucket", ENOENT, false, "there is no bucket of that name; check it, and --endpoint"},
        {"NoSuchKey", ENOENT, false, "there is no such object"},
        {"NoSuchVersion", ENOENT, false, "there is no such version of the object"},
        {"InvalidBucketName", EINVAL, false, "that is not the name of a bucket"},
        {"PreconditionFailed", ESTALE, false, "the object has changed at the origin"},
        {"PermanentRedirect", EIO, false, "the bucket is elsewhere", PS_S3_OTHER_REGION},
        {"TemporaryRedirect", EIO, true, "the bucket is elsewhere, for now", PS_S3_OTHER_REGION},
        {"IllegalLocationConstraintException", EIO, false, "the bucket is in another region; give --region",
                PS_S3_OTHER_REGION},
        {"AuthorizationHeaderMalformed", EACCES, false,
                "permission denied: the access key, or the region, is not one that the store accepts; give "
                "--region",
                PS_S3_OTHER_REGION},
        {"SlowDown", EAGAIN, true, "the store asks to slow down"},
        {"ServiceUnavailable", EAGAIN, true, "the store is busy"},
        {"RequestLimitExceeded", EAGAIN, true, "the store asks to slow down"},
        {"TooManyRequests", EAGAIN, true, "the store asks to slow down"},
        {"Throttling", EAGAIN, true, "the store asks to slow down"},
        {"RequestTimeout", EIO, true, "the store has waited too long for the request"},
        {"InternalError", EIO, true, "an error inside the store"},
};

/* Judges responses without a document: those to a HEAD, and those of proxies in front of the store. */
static enum ps_s3_remedy judge_status(int status, bool listing, struct ps_error *err)
{
	if (status == 301 || status == 307) {
		ps_error_set(
		        err, EIO, "HTTP %d: the bucket is elsewhere; give --region or --endpoint", status);
		return PS_S3_OTHER_REGION;
	}
	if (status == 401 || status == 403)
		ps_error_set(err, EACCES,
		        "HTTP %d: permission denied; check the credentials, or give --no-sign-request for a "
		        "public bucket",
		        status);
	else if (status == 404 && listing)
		ps_error_set(
		        err, ENOENT, "HTTP 404: there is no such bucket; check its name, and --endpoint");
	else if (status >= 300 && status < 400)
		ps_error_set(err, EPROTO,
		        "HTTP %d: a redirect, which S3 itself does not send: give --follow-redirects for a "
		        "gateway whose objects are elsewhere, such as the Hub's, or check --endpoint",
		        status);
	return status == 401 ? PS_S3_OTHER_KEY : PS_S3_NO_REMEDY;
}

enum ps_s3_remedy ps_s3_codes_judge(const struct ps_s3_code *codes_of_store, size_t n, ps_s3_judge by_status,
        const struct ps_s3_refusal *refusal, int status, bool listing, struct ps_error *err)
{
	const struct ps_s3_code *row = codes_of_store, *end = row + n;
	enum ps_s3_remedy remedy = PS_S3_NO_REMEDY;
	const struct ps_error old = *err;

	while (row < end && strcmp(row->code, refusal->code) != 0)
		row++;
	if (!refusal->code[0]) {
		remedy = by_status(status, listing, err);
	} else if (row < end) {
		ps_error_set(err, row->errnum, "HTTP %d %s: %s", status, refusal->code, row->text);
		err->retryable = row->retryable;
		remedy = row->remedy;
	} else {
		ps_error_set(err, old.err ? old.err : EIO, "%.200s (%s%s%s)", old.text, refusal->code,
		        refusal->message[0] ? ": " : "", refusal->message);
		err->retryable = old.retryable;
	}
	err->http_status = status;
	err->retry_after_ms = old.retry_after_ms;
	return remedy;
}

enum ps_s3_remedy ps_s3_refusal_judge(
        const struct ps_s3_refusal *refusal, int status, bool listing, struct ps_error *err)
{
	return ps_s3_codes_judge(codes, PS_ARRAY_LEN(codes), judge_status, refusal, status, listing, err);
}

/* Requests ----------------------------------------------------------------------------------------------- */

#define SKEW_MAX_S 300      /* stores refuse requests that are 15 minutes off */
#define REFRESH_WAIT_MS 500 /* time for newer credentials to arrive */
#define HEADERS_MAX 8

int ps_s3_target_parse(const char *text, bool has_account, struct ps_s3_target *ret, struct ps_error *err)
{
	const char *bucket = has_account ? strchr(text + 5, '/') : text + 4;
	const char *query = bucket ? strchr(bucket, '?') : NULL,
	           *slash = bucket ? strchr(bucket + 1, '/') : NULL;

	*ret = (struct ps_s3_target){0};
	if (!query || (slash && slash < query))
		return ps_s3_url_parse(text, &ret->url, err);
	ps_autofree char *bare = strndup(text, (size_t)(query - text));
	if (!bare)
		return ps_no_memory(err);
	ret->list = query + 1;
	return ps_s3_url_parse(bare, &ret->url, err);
}

/* Signing ------------------------------------------------------------------------------------------------ */

/* The signed headers, in order. */
struct headers {
	struct ps_sigv4_pair v[HEADERS_MAX];
	size_t n;
};

static void s3_request_put(struct headers *h, const char *name, const char *value)
{
	if (value)
		h->v[h->n++] = (struct ps_sigv4_pair){name, value};
}

int ps_s3_out_of_memory(struct ps_http_request *rq)
{
	return ps_no_memory(&rq->error);
}

int ps_s3_send_header(struct ps_http_request *rq, const char *name, const char *value)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "%s: %s", name, value);
	int rc = b.failed ? -ENOMEM : ps_http_request_header(rq, b.s);
	if (b.s)
		explicit_bzero(b.s, b.len);
	return rc ? ps_s3_out_of_memory(rq) : 0;
}

static int add_headers(struct ps_http_request *rq, struct ps_s3_signer *signer,
        const struct ps_s3_place *place, const char *query)
{
	char time[PS_SIGV4_TIME_LEN];
	struct headers h = {.n = 0};
	const struct ps_key *key = rq->key;
	bool sign = key && !key->bearer;
	int rc = 0;

	rq->secret = key && (key->bearer || key->session_token);

	ps_sigv4_time(ps_clock_real_s() + atomic_load(&signer->clock_off_s), time);
	s3_request_put(&h, "host", ps_strbuf_peek(&place->host));
	s3_request_put(&h, "x-amz-checksum-mode", rq->head ? "ENABLED" : NULL);
	s3_request_put(&h, "x-amz-content-sha256", sign ? PS_SIGV4_UNSIGNED : NULL);
	s3_request_put(&h, "x-amz-date", sign ? time : NULL);
	s3_request_put(&h, "x-amz-request-payer", signer->request_payer ? "requester" : NULL);
	s3_request_put(&h, "x-amz-security-token", sign ? key->session_token : NULL);
	for (size_t i = 1; !rc && i < h.n; i++)
		rc = ps_s3_send_header(rq, h.v[i].name, h.v[i].value);
	if (rc || !key)
		return rc;
	if (!sign) {
		ps_autostrbuf struct ps_strbuf bearer = {0};

		ps_strbuf_addf(&bearer, "Bearer %s", key->bearer);
		return bearer.failed ? ps_s3_out_of_memory(rq)
		                     : ps_s3_send_header(rq, "Authorization", bearer.s);
	}
	struct ps_sigv4_request signing = {.method = rq->head ? "HEAD" : "GET",
	        .path = ps_strbuf_peek(&place->path),
	        .query = query,
	        .headers = h.v,
	        .nheaders = h.n,
	        .payload = PS_SIGV4_UNSIGNED,
	        .time = time,
	        .region = place->region,
	        .service = "s3"};
	ps_autostrbuf struct ps_strbuf value = {0};
	uint8_t day[PS_SIGV4_KEY_LEN];
	rc = ps_sigv4_keys_get(&signer->keys, rq->key, &signing, day);
	if (rc == 0)
		rc = ps_sigv4_sign(&signing, rq->key->access_key, day, &value);
	explicit_bzero(day, sizeof(day));
	return rc ? ps_s3_out_of_memory(rq) : ps_s3_send_header(rq, "Authorization", ps_strbuf_peek(&value));
}

/* Takes a newer key than the last attempt's, if there is one. */
static int take_key(struct ps_http_request *rq, struct ps_s3_signer *signer)
{
	struct ps_key *key = NULL;
	int rc = ps_credentials_get(signer->credentials, &key, &rq->error);

	if (rc) {
		rq->error.retryable = rq->error.retryable || rc == -EAGAIN;
		return rc;
	}
	ps_key_unref(rq->key);
	rq->key = key;
	rq->key_expires_s = key ? key->expires_s : 0;
	return 0;
}

static void forget(struct ps_http_request *rq)
{
	ps_key_unref(rq->key);
}

static int address(void *arg, struct ps_http_request *rq, char **ret_url)
{
	struct ps_s3_signer *signer = arg;
	ps_autos3target struct ps_s3_target target = {0};
	struct ps_s3_place place = {0};
	ps_autostrbuf struct ps_strbuf query = {0}, url = {0};
	int rc = ps_s3_target_parse(rq->url, false, &target, &rq->error);

	if (rc == 0)
		rc = take_key(rq, signer);
	if (rc == 0 && rq->elsewhere)
		rc = ps_s3_temporary_redirect(
		        &signer->store, target.url.bucket, rq->elsewhere, &place, &query);
	else if (rc == 0)
		rc = ps_s3_store_place(&signer->store, target.url.bucket, target.url.key, &place);
	if (rc == -ENOMEM)
		rc = ps_s3_out_of_memory(rq);
	if (rc == 0 && rq->elsewhere) {
		/* the redirect's Location has the query */
	} else if (rc == 0 && target.list) {
		ps_strbuf_add(&query, target.list);
	} else if (rc == 0 && target.url.version) {
		struct ps_sigv4_pair version = {"versionId", target.url.version};

		ps_sigv4_query(&version, 1, &query);
	}
	if (rc == 0)
		rc = query.failed ? ps_s3_out_of_memory(rq)
		                  : add_headers(rq, signer, &place, ps_strbuf_peek(&query));
	if (rc == 0) {
		ps_strbuf_addf(&url, "%s://", signer->store.scheme ? signer->store.scheme : "https");
		ps_strbuf_add(&url, ps_strbuf_peek(&place.host));
		ps_strbuf_add(&url, ps_strbuf_peek(&place.path));
		if (query.len) {
			ps_strbuf_addc(&url, '?');
			ps_strbuf_add(&url, query.s);
		}
		*ret_url = ps_strbuf_take(&url);
		rc = *ret_url ? 0 : ps_s3_out_of_memory(rq);
	}
	ps_s3_place_fini(&place);
	return rc;
}

/* Refusals ----------------------------------------------------------------------------------------------- */

/* True the first time: each remedy is tried once a request. */
static bool first_time(struct ps_http_request *rq, enum ps_s3_remedy remedy)
{
	bool first = !(rq->remedies & 1u << remedy);

	rq->remedies |= 1u << remedy;
	return first;
}

bool ps_s3_clock_set(_Atomic int64_t *off_s, const struct ps_http_response *response)
{
	if (response->date_s < 0)
		return false;
	int64_t off = response->date_s - ps_clock_real_s();
	int64_t before = atomic_exchange(off_s, off);
	int64_t news = off > before ? off - before : before - off;

	if (news > SKEW_MAX_S)
		ps_log_warning(
		        "origin: this machine's clock is %lld s off the store's; requests are signed with "
		        "the store's",
		        (long long)-off);
	return true;
}

bool ps_s3_clock_is_off(const _Atomic int64_t *off_s, const struct ps_http_response *response)
{
	int64_t ours = ps_clock_real_s() + atomic_load(off_s);
	int64_t off = response->date_s < 0 ? 0 : response->date_s - ours;

	return off > SKEW_MAX_S || off < -SKEW_MAX_S;
}

static bool take_new_key(struct ps_http_request *rq, struct ps_s3_signer *signer)
{
	ps_autokey struct ps_key *now = NULL;

	if (!rq->key || !ps_credentials_refused(signer->credentials, rq->key))
		return false;
	if (ps_credentials_get(signer->credentials, &now, NULL) == 0 && now && now != rq->key)
		return true;
	/* No newer key has come yet: the request is repeated later. */
	rq->error.err = EAGAIN;
	rq->error.retryable = true;
	rq->error.retry_after_ms = PS_MAX(rq->error.retry_after_ms, REFRESH_WAIT_MS);
	return false;
}

/* Sends this request (and no other) to the target of a 307 that names no region. */
static bool go_elsewhere(struct ps_http_request *rq, struct ps_s3_signer *signer, const char *bucket)
{
	char safe[PS_URL_TEXT_LEN];
	struct ps_s3_place place = {0};
	ps_autostrbuf struct ps_strbuf query = {0};
	int rc = ps_s3_temporary_redirect(&signer->store, bucket, rq->location, &place, &query);

	ps_s3_place_fini(&place);
	if (rc == -EACCES) {
		ps_error_set(&rq->error, EPROTO,
		        "HTTP 307: redirected to %s, which is not of this store: not followed without "
		        "--follow-redirects",
		        ps_url_redact(rq->location, safe));
		return false;
	}
	if (rc) {
		ps_error_set(&rq->error, -rc, "HTTP 307: the redirect cannot be followed: %s", strerror(-rc));
		return false;
	}
	free(rq->elsewhere);
	rq->elsewhere = ps_steal_ptr(&rq->location);
	return true;
}

/* Follows a redirect to another host, as some stores serve their objects that way. That host gets the
 * request with its range and condition but without credentials. The next attempt starts at the store
 * again. */
static bool go_away(struct ps_http_request *rq, const struct ps_s3_signer *signer)
{
	const char *to = rq->location;
	bool from_https = strncmp(rq->away               ? rq->away
	                          : signer->store.scheme ? signer->store.scheme
	                                                 : "https",
	                          "https", 5) == 0;
	bool is_https = to && strncmp(to, "https://", 8) == 0;

	if (!to) {
		ps_error_set(&rq->error, EPROTO, "HTTP %d: a redirect whose target is missing, or cut off",
		        rq->response.status);
		return false;
	}
	if ((!is_https && strncmp(to, "http://", 7) != 0) || ps_url_has_user(to)) {
		ps_error_set(&rq->error, EPROTO, "HTTP %d: redirected to a URL that is not http or https",
		        rq->response.status);
		return false;
	}
	if (from_https && !is_https) {
		ps_error_set(&rq->error, EPROTO, "HTTP %d: redirected from https to http: refused",
		        rq->response.status);
		return false;
	}
	if (++rq->redirects > PS_HTTP_MAX_REDIRECTS) {
		ps_error_set(&rq->error, EIO, "more than %d redirects: a loop?", PS_HTTP_MAX_REDIRECTS);
		return false;
	}
	free(rq->away);
	rq->away = ps_steal_ptr(&rq->location);
	return true;
}

static bool is_redirect(int status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool refused(void *arg, struct ps_http_request *rq)
{
	struct ps_s3_signer *signer = arg;
	const struct ps_http_response *response = &rq->response;
	struct ps_s3_refusal refusal;
	ps_autos3target struct ps_s3_target target = {0};

	if (response->status < 300 || response->status == 412 || response->status == 416)
		return false; /* not a refusal, or one that http/http.h handles */
	if (ps_s3_target_parse(rq->url, false, &target, NULL))
		return false;
	ps_s3_refusal_parse(ps_strbuf_peek(&rq->refusal), rq->refusal.len, &refusal);
	if (rq->key && rq->key->session_token && strstr(refusal.message, rq->key->session_token))
		refusal.message[0] = '\0';
	enum ps_s3_remedy remedy =
	        ps_s3_refusal_judge(&refusal, response->status, target.list != NULL, &rq->error);
	const char *region = response->bucket_region[0] ? response->bucket_region : refusal.region;
	bool again = false;

	if (signer->follow_redirects && is_redirect(response->status) && !*region)
		return go_away(rq, signer);
	if (rq->away)
		return false; /* the response is not the store's */
	/* A refusal of a HEAD has no document that names the clock as its cause. */
	if (remedy == PS_S3_NO_REMEDY && !refusal.code[0] && response->status == 403 &&
	        ps_s3_clock_is_off(&signer->clock_off_s, response))
		remedy = PS_S3_OTHER_CLOCK;
	if (remedy == PS_S3_NO_REMEDY && response->status == 400 && *region)
		remedy = PS_S3_OTHER_REGION;
	if (remedy == PS_S3_OTHER_REGION && response->status == 307 && !*region && rq->location)
		remedy = PS_S3_OTHER_PLACE;
	if (remedy == PS_S3_OTHER_PLACE) {
		again = first_time(rq, remedy) && go_elsewhere(rq, signer, target.url.bucket);
	} else if (remedy == PS_S3_OTHER_REGION && *region) {
		again = first_time(rq, remedy);
		if (again && ps_s3_store_learn(&signer->store, target.url.bucket, region))
			ps_log_info("origin: %s://%s is in region %s", target.url.scheme, target.url.bucket,
			        region);
	} else if (remedy == PS_S3_OTHER_CLOCK) {
		again = ps_s3_clock_set(&signer->clock_off_s, response) && first_time(rq, remedy);
	} else if (remedy == PS_S3_OTHER_KEY) {
		again = take_new_key(rq, signer) && first_time(rq, remedy);
	}
	return again;
}

const struct ps_http_dialect ps_s3_dialect = {.address = address, .refused = refused, .forget = forget};
