#include "origin/s3_error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/xml.h"

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
		put(refusal->code, sizeof refusal->code, text);
	else if (strcmp(path, "Error/Message") == 0)
		put(refusal->message, sizeof refusal->message, text);
	else if (strcmp(path, "Error/Region") == 0)
		put(refusal->region, sizeof refusal->region, text);
	return 0;
}

void ps_s3_refusal_parse(const char *text, size_t nbytes, struct ps_s3_refusal *ret)
{
	static const struct ps_xml_reader reader = {.end = error_end};

	*ret = (struct ps_s3_refusal){0};
	/* A cut or broken one is taken as far as it goes. */
	(void)!ps_xml_parse(text, nbytes, &reader, ret, NULL);
}

/* errnum 0: what the status alone says stays. */
static const struct row {
	const char *code;
	int errnum;
	bool retryable;
	enum ps_s3_remedy remedy;
	const char *text;
} rows[] = {
        {"AccessDenied", EACCES, false, PS_S3_NO_REMEDY,
                "permission denied: these credentials may not do this (reading needs s3:GetObject, listing "
                "s3:ListBucket); of a bucket whose readers pay: --request-payer"},
        {"AllAccessDisabled", EACCES, false, PS_S3_NO_REMEDY, "permission denied: the bucket is disabled"},
        {"AccountProblem", EACCES, false, PS_S3_NO_REMEDY, "permission denied: a problem with the account"},
        {"InvalidAccessKeyId", EACCES, false, PS_S3_OTHER_KEY,
                "permission denied: the store does not know this access key; check it, and --endpoint"},
        {"SignatureDoesNotMatch", EACCES, false, PS_S3_NO_REMEDY,
                "permission denied: the secret key does not belong to the access key"},
        {"InvalidToken", EACCES, false, PS_S3_OTHER_KEY, "permission denied: the session token is not valid"},
        {"ExpiredToken", EACCES, false, PS_S3_OTHER_KEY,
                "permission denied: the session token has expired; get new credentials"},
        {"TokenRefreshRequired", EACCES, false, PS_S3_OTHER_KEY,
                "permission denied: the session token has expired; get new credentials"},
        {"AuthenticationRequired", EACCES, false, PS_S3_OTHER_KEY,
                "permission denied: credentials are needed"},
        {"RequestTimeTooSkewed", EACCES, false, PS_S3_OTHER_CLOCK,
                "permission denied: the clock of this machine is wrong"},
        {"InvalidObjectState", EACCES, false, PS_S3_NO_REMEDY,
                "permission denied: the object is archived; restore it first"},
        {"NoSuchBucket", ENOENT, false, PS_S3_NO_REMEDY,
                "there is no bucket of that name; check it, and --endpoint"},
        {"NoSuchKey", ENOENT, false, PS_S3_NO_REMEDY, "there is no such object"},
        {"NoSuchVersion", ENOENT, false, PS_S3_NO_REMEDY, "there is no such version of the object"},
        {"InvalidBucketName", EINVAL, false, PS_S3_NO_REMEDY, "that is no name of a bucket"},
        {"PreconditionFailed", ESTALE, false, PS_S3_NO_REMEDY, "the object has changed at the origin"},
        {"PermanentRedirect", EIO, false, PS_S3_OTHER_REGION, "the bucket is elsewhere"},
        {"TemporaryRedirect", EIO, true, PS_S3_OTHER_REGION, "the bucket is elsewhere, for now"},
        {"IllegalLocationConstraintException", EIO, false, PS_S3_OTHER_REGION,
                "the bucket is in another region; give --region"},
        {"AuthorizationHeaderMalformed", EACCES, false, PS_S3_OTHER_REGION,
                "permission denied: the access key, or the region, is not one that the store takes; give "
                "--region"},
        {"SlowDown", EAGAIN, true, PS_S3_NO_REMEDY, "the store asks to slow down"},
        {"ServiceUnavailable", EAGAIN, true, PS_S3_NO_REMEDY, "the store is busy"},
        {"RequestLimitExceeded", EAGAIN, true, PS_S3_NO_REMEDY, "the store asks to slow down"},
        {"TooManyRequests", EAGAIN, true, PS_S3_NO_REMEDY, "the store asks to slow down"},
        {"Throttling", EAGAIN, true, PS_S3_NO_REMEDY, "the store asks to slow down"},
        {"RequestTimeout", EIO, true, PS_S3_NO_REMEDY, "the store tired of waiting for the request"},
        {"InternalError", EIO, true, PS_S3_NO_REMEDY, "an error inside the store"},
};

/* Answers without a document: those to a HEAD, and those of what stands before the store. */
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
		ps_error_set(err, EPROTO, "HTTP %d: a redirect, which no S3 store sends; check --endpoint",
		        status);
	return status == 401 ? PS_S3_OTHER_KEY : PS_S3_NO_REMEDY;
}

static enum ps_s3_remedy judge(
        const struct ps_s3_refusal *refusal, int status, bool listing, struct ps_error *err)
{
	const struct row *row = rows, *end = rows + PS_ARRAY_LEN(rows);
	struct ps_error old = *err;

	if (!refusal->code[0])
		return judge_status(status, listing, err);
	while (row < end && strcmp(row->code, refusal->code) != 0)
		row++;
	if (row < end) {
		ps_error_set(err, row->errnum, "HTTP %d %s: %s", status, refusal->code, row->text);
		err->retryable = row->retryable;
		return row->remedy;
	}
	ps_error_set(err, old.err ? old.err : EIO, "%.200s (%s%s%s)", old.text, refusal->code,
	        refusal->message[0] ? ": " : "", refusal->message);
	err->retryable = old.retryable;
	return PS_S3_NO_REMEDY;
}

enum ps_s3_remedy ps_s3_refusal_judge(
        const struct ps_s3_refusal *refusal, int status, bool listing, struct ps_error *err)
{
	uint32_t retry_after_ms = err->retry_after_ms;
	enum ps_s3_remedy remedy = judge(refusal, status, listing, err);

	err->http_status = status;
	err->retry_after_ms = retry_after_ms;
	return remedy;
}
