#include "http/http.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <curl/curl.h>
#include <openssl/evp.h>

#define HEADER_VALUE_LEN 512 /* of headers that are parsed; a longer value counts as absent */

/* Framing ------------------------------------------------------------------------------------------------ */

/* The first reason is kept. */
static void refuse_framing(struct ps_http_response *r, const char *why)
{
	if (!r->bad_framing)
		r->bad_framing = why;
}

bool ps_etag_is_strong(const char *etag)
{
	size_t n = strlen(etag);

	return n >= 2 && etag[0] == '"' && etag[n - 1] == '"';
}

/* Parses digits without a sign; an overflow is an error. Returns the first character after them, or NULL. */
static const char *parse_u64(const char *s, uint64_t *ret)
{
	uint64_t v = 0;

	if (!isdigit((unsigned char)*s))
		return NULL;
	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return NULL;
	*ret = v;
	return s;
}

/* "bytes 0-9/100"; an asterisk may replace the range 0-9 or the size 100. */
static bool parse_content_range(const char *s, struct ps_http_response *r)
{
	uint64_t first = 0, last = 0, total = PS_SIZE_UNKNOWN, nbytes = 0;

	if (strncasecmp(s, "bytes", 5) != 0 || !isspace((unsigned char)s[5]))
		return false;
	for (s += 5; isspace((unsigned char)*s);)
		s++;
	if (*s == '*') {
		s++;
	} else {
		s = parse_u64(s, &first);
		if (!s || *s != '-' || !(s = parse_u64(s + 1, &last)) || last < first ||
		        __builtin_add_overflow(last - first, 1, &nbytes))
			return false;
	}
	if (*s++ != '/')
		return false;
	if (*s == '*')
		s++;
	else if (!(s = parse_u64(s, &total)) || total == PS_SIZE_UNKNOWN)
		return false;
	if (*s || (nbytes && total <= last))
		return false;
	r->has_range = true;
	r->range_first = first;
	r->range_nbytes = nbytes;
	r->range_total = total;
	return true;
}

static int64_t parse_date(const char *s)
{
	time_t t = curl_getdate(s, NULL);

	return t < 0 ? -1 : (int64_t)t;
}

/* A value that does not fit, or has control characters (they would garble a log), counts as absent. */
static void take_word(char *to, size_t size, const char *value)
{
	size_t len = strlen(value);

	if (len >= size)
		return;
	for (const char *p = value; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return;
	memcpy(to, value, len + 1);
}

/* The value of ";NAME=" in a list of parameters, or -1. */
static int64_t limit_parameter(const char *s, char name)
{
	for (const char *p = strchr(s, ';'); p; p = strchr(p, ';')) {
		uint64_t v;

		for (p++; *p == ' ';)
			p++;
		if (p[0] == name && p[1] == '=' && parse_u64(p + 2, &v))
			return (int64_t)PS_MIN(v, (uint64_t)INT32_MAX);
	}
	return -1;
}

/* Parses "api";r=0;t=55. Of several limits the first counts. */
static void take_limit(struct ps_http_response *r, const char *value)
{
	char first[HEADER_VALUE_LEN], *end;

	snprintf(first, sizeof(first), "%.*s", (int)strcspn(value, ","), value);
	if (first[0] != '"' || !(end = strchr(first + 1, '"')))
		return;
	*end = '\0';
	r->limit_left = limit_parameter(end + 1, 'r');
	r->limit_reset_s = limit_parameter(end + 1, 't');
	if (r->limit_left >= 0 && r->limit_reset_s >= 0)
		take_word(r->limit_class, sizeof(r->limit_class), first + 1);
}

static void take_hub_header(struct ps_http_response *r, const char *name, const char *value)
{
	uint64_t n;
	const char *rest;

	if (strcasecmp(name, "x-linked-size") == 0) {
		if ((rest = parse_u64(value, &n)) && !*rest)
			r->linked_size = n;
	} else if (strcasecmp(name, "x-linked-etag") == 0) {
		take_word(r->linked_etag, sizeof(r->linked_etag), value);
	} else if (strcasecmp(name, "x-error-code") == 0) {
		take_word(r->error_code, sizeof(r->error_code), value);
	} else if (strcasecmp(name, "ratelimit") == 0) {
		take_limit(r, value);
	}
}

/* The ETag of an object that was uploaded in parts ends in "-" and the number of parts. */
static bool is_etag_of_parts(const char *etag)
{
	const char *dash = strrchr(etag, '-');

	return dash && isdigit((unsigned char)dash[1]) && strspn(dash + 1, "0123456789") + 2 == strlen(dash);
}

/* x-amz-checksum-sha256 and similar headers hold a checksum in base64. A checksum of parts ends in "-" and
 * the number of parts; it is ignored. */
static void take_store_header(struct ps_http_response *r, const char *name, const char *value)
{
	static const char *const known[] = {"sha256", "crc64nvme", "crc32c", "crc32", "sha1"};
	const char *algorithm = name + strlen("x-amz-checksum-");
	uint8_t raw[HEADER_VALUE_LEN];
	size_t n = strlen(value);

	if (strcasecmp(name, "x-amz-bucket-region") == 0) {
		take_word(r->bucket_region, sizeof(r->bucket_region), value);
		return;
	}
	if (strncasecmp(name, "x-amz-checksum-", strlen("x-amz-checksum-")) != 0)
		return;
	if (strcasecmp(algorithm, "type") == 0) {
		r->checksum_of_parts = strcasecmp(value, "FULL_OBJECT") != 0;
		r->checksum_of_whole = !r->checksum_of_parts;
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(known); i++) {
		if (strcasecmp(algorithm, known[i]) != 0 || n < 4 || n % 4)
			continue;
		int nraw = EVP_DecodeBlock(raw, (const unsigned char *)value, (int)n);
		size_t padding = (size_t)(value[n - 1] == '=') + (value[n - 2] == '=');
		if (nraw > 0)
			(void)ps_checksum_from_raw(known[i], raw, (size_t)nraw - padding, r->checksum);
	}
}

/* "crc32c=BASE64,md5=BASE64". The checksum covers the stored bytes, whatever range or encoding was
 * requested. */
static void take_google_hash(struct ps_http_response *r, const char *value)
{
	static const char name[] = "crc32c=";
	const char *at = strstr(value, name);
	uint8_t raw[8];

	/* CRC-32C: eight base64 characters for four bytes. */
	if (!at || strcspn(at += strlen(name), ", ") != 8 ||
	        EVP_DecodeBlock(raw, (const unsigned char *)at, 8) != 6)
		return;
	r->checksum_is_google = ps_checksum_from_raw("crc32c", raw, 4, r->checksum);
}

static void take_header(struct ps_http_response *r, const char *name, const char *value)
{
	const char *rest;
	uint64_t n;

	if (strcasecmp(name, "content-length") == 0) {
		rest = parse_u64(value, &n);
		if (!rest || *rest || n > INT64_MAX)
			refuse_framing(r, "Content-Length is not a number");
		else if (r->content_length != PS_SIZE_UNKNOWN && r->content_length != n)
			refuse_framing(r, "two Content-Lengths that differ");
		else
			r->content_length = n;
	} else if (strcasecmp(name, "transfer-encoding") == 0) {
		if (r->chunked || strcasecmp(value, "chunked") != 0)
			refuse_framing(r, "a Transfer-Encoding other than chunked");
		if (r->is_http10)
			refuse_framing(r, "a Transfer-Encoding in an answer of HTTP/1.0");
		r->chunked = true;
	} else if (strcasecmp(name, "content-range") == 0) {
		r->bad_range = r->bad_range || r->has_range || !parse_content_range(value, r);
	} else if (strcasecmp(name, "content-encoding") == 0) {
		r->encoded = r->encoded || (*value && strcasecmp(value, "identity") != 0);
	} else if (strcasecmp(name, "content-type") == 0) {
		r->multipart = strncasecmp(value, "multipart/byteranges", 20) == 0;
		r->html = strncasecmp(value, "text/html", 9) == 0;
		r->is_json = strncasecmp(value, "application/json", 16) == 0;
	} else if (strcasecmp(name, "accept-ranges") == 0) {
		r->offers_ranges = strcasecmp(value, "bytes") == 0;
	} else if (strcasecmp(name, "set-cookie") == 0) {
		r->sets_cookie = true;
	} else if (strcasecmp(name, "etag") == 0) {
		take_word(r->etag, sizeof(r->etag), value);
	} else if (strcasecmp(name, "last-modified") == 0) {
		r->mtime_s = parse_date(value);
	} else if (strcasecmp(name, "date") == 0) {
		r->date_s = parse_date(value);
	} else if (strcasecmp(name, "retry-after") == 0) {
		rest = parse_u64(value, &n);
		if (rest && !*rest)
			r->retry_after_s = (int64_t)PS_MIN(n, PS_RETRY_AFTER_MAX_MS / 1000);
		else
			r->retry_at_s = parse_date(value);
	} else if (strcasecmp(name, "x-goog-hash") == 0) {
		take_google_hash(r, value);
	} else {
		take_hub_header(r, name, value);
		take_store_header(r, name, value);
	}
}

static void take_status_line(struct ps_http_response *r, const char *line, size_t n)
{
	const char *space = memchr(line, ' ', n);
	uint64_t status = 0;

	*r = (struct ps_http_response){.content_length = PS_SIZE_UNKNOWN,
	        .range_total = PS_SIZE_UNKNOWN,
	        .mtime_s = -1,
	        .date_s = -1,
	        .retry_at_s = -1,
	        .retry_after_s = -1,
	        .linked_size = PS_SIZE_UNKNOWN,
	        .limit_left = -1,
	        .limit_reset_s = -1,
	        .is_http10 = n >= 8 && memcmp(line, "HTTP/1.0", 8) == 0};
	for (const char *p = space ? space + 1 : line + n; p < line + n && isdigit((unsigned char)*p); p++)
		status = PS_MIN(status * 10 + (uint64_t)(*p - '0'), 999u);
	r->status = (int)status;
}

void ps_http_response_line(struct ps_http_response *r, const char *line, size_t n)
{
	char name[40], value[HEADER_VALUE_LEN];
	bool folded = n && (line[0] == ' ' || line[0] == '\t'), ends = n > 2 && line[0] == '\r';

	while (n && isspace((unsigned char)line[n - 1]))
		n--;
	if (n >= 5 && memcmp(line, "HTTP/", 5) == 0) {
		if (r->status < 200)
			take_status_line(r, line, n);
		else
			refuse_framing(r, "a second status line");
		return;
	}
	if (ends || memchr(line, '\r', n))
		refuse_framing(r, "a line of the header has a carriage return within it");
	/* Programs disagree about a line that continues the one before it. */
	if (folded && r->framing_line)
		refuse_framing(r, "a header about the length has two lines");
	r->framing_line = false;
	const char *colon = memchr(line, ':', n);
	size_t nname = colon ? (size_t)(colon - line) : 0;
	while (nname && isspace((unsigned char)line[nname - 1]))
		nname--; /* spaces that must not be there, but may be */
	if (!colon || nname >= sizeof(name))
		return;
	memcpy(name, line, nname);
	name[nname] = '\0';
	/* The headers that say where the body ends. If they are unclear, two programs that read the same answer
	 * may disagree about which bytes are the body (RFC 9112, 6.3), so the whole answer is refused. */
	r->framing_line = strcasecmp(name, "content-length") == 0 ||
	                  strcasecmp(name, "transfer-encoding") == 0 ||
	                  strcasecmp(name, "content-range") == 0;
	const char *v = colon + 1;
	while (v < line + n && isspace((unsigned char)*v))
		v++;
	size_t vn = (size_t)(line + n - v);
	bool fits = vn < sizeof(value) && !memchr(v, '\0', vn) && colon > line &&
	            !isspace((unsigned char)colon[-1]);
	if (!fits && r->framing_line)
		refuse_framing(r, "a header about the length is malformed");
	if (!fits)
		return;
	memcpy(value, v, vn);
	value[vn] = '\0';
	take_header(r, name, value);
}

bool ps_http_response_is_sized(const struct ps_http_response *r)
{
	return r->content_length != PS_SIZE_UNKNOWN && !r->chunked;
}

uint64_t ps_http_response_size(const struct ps_http_response *r)
{
	if (r->has_range)
		return r->range_total;
	return r->status == 200 && !r->encoded ? r->content_length : PS_SIZE_UNKNOWN;
}

void ps_http_response_remote(const struct ps_http_response *r, struct ps_remote *ret)
{
	*ret = PS_REMOTE_UNKNOWN;
	ret->size = ps_http_response_size(r);
	ret->mtime_s = r->mtime_s;
	memcpy(ret->etag, r->etag, sizeof(ret->etag));
	/* Not valid ETags (those are quoted), and they must not count as marks. */
	if (ps_remote_is_marked(ret) || ps_remote_is_by_size(ret) ||
	        ps_remote_stated_size(ret) != PS_SIZE_UNKNOWN)
		ret->etag[0] = '\0';
	/* In answer to a range the checksum may be that of the range. Some stores leave out that a checksum is
	 * one of parts, so an object that was uploaded in parts has one only if the answer says so. */
	bool of_whole = r->checksum_of_whole || (!r->checksum_of_parts && !is_etag_of_parts(r->etag));
	if (r->checksum_is_google || (r->status == 200 && !r->has_range && of_whole))
		memcpy(ret->checksum, r->checksum, sizeof(ret->checksum));
}

static uint32_t retry_after_ms(const struct ps_http_response *r)
{
	int64_t s = r->retry_after_s;

	if (s < 0 && r->retry_at_s >= 0)
		s = r->retry_at_s - (r->date_s >= 0 ? r->date_s : (int64_t)time(NULL));
	if (s <= 0)
		return 0;
	return (uint32_t)PS_MIN((uint64_t)s * 1000, (uint64_t)PS_RETRY_AFTER_MAX_MS);
}

/* What each status means; the first row that matches counts. */
static const struct status_row {
	int from, to, errnum;
	bool retryable;
	const char *text;
} status_rows[] = {
        {304, 304, EPROTO, false, "not modified, though the request had no condition"},
        {300, 399, EPROTO, false, "a redirect without a usable target"},
        {401, 401, EACCES, false,
                "not authorised: credentials are missing or wrong (--user, --header, --netrc-file)"},
        {403, 403, EACCES, false, "forbidden: wrong credentials, or a signed URL that has expired"},
        {404, 404, ENOENT, false, "not found"},
        {407, 407, EACCES, false, "the proxy requires credentials"},
        {408, 408, EIO, true, "the server has waited too long for the request"},
        {410, 410, ENOENT, false, "gone"},
        {412, 412, ESTALE, false, "the object has changed at the origin"},
        {425, 425, EAGAIN, true, "too early"},
        {429, 429, EAGAIN, true, "too many requests: the server asks to wait"},
        {400, 400, EIO, false, "the server refuses the request (is this http:// where it expects https://?)"},
        {400, 499, EIO, false, "the server refuses the request"},
        {501, 501, EIO, false, "the server does not support this request"},
        {503, 503, EAGAIN, true, "the server is busy and asks to wait"},
        {505, 505, EIO, false, "the server does not speak HTTP/1.1"},
        {500, 599, EIO, true, "server error"},
        {0, 999, EPROTO, false, "unexpected status"},
};

/* A response that contradicts itself or the request. Retryable: a proxy on the way may answer otherwise next
 * time. */
static int lie(struct ps_error *err, const struct ps_http_response *r, const char *what)
{
	int rc = ps_error_set(err, EPROTO, "HTTP %d: %s", r->status, what);

	if (err) {
		err->http_status = r->status;
		err->retryable = true;
	}
	return rc;
}

/* A response that will not change: another attempt is useless. */
static int refuse(struct ps_error *err, const struct ps_http_response *r, const char *what)
{
	int rc = lie(err, r, what);

	if (err)
		err->retryable = false;
	return rc;
}

static int check_framing(const struct ps_http_response *r, struct ps_error *err)
{
	if (r->bad_framing)
		return lie(err, r, r->bad_framing);
	if (r->chunked && r->content_length != PS_SIZE_UNKNOWN)
		return lie(err, r, "Transfer-Encoding and Content-Length in one answer");
	if (r->has_range && r->content_length != PS_SIZE_UNKNOWN && r->content_length != r->range_nbytes)
		return lie(err, r, "Content-Length does not fit the range");
	return 0;
}

int ps_http_response_status(
        const struct ps_http_response *r, const struct ps_remote *expect, struct ps_error *err)
{
	const struct status_row *row = status_rows;
	int rc;

	if (r->status == 200 || r->status == 206)
		return check_framing(r, err);
	if (r->status == 416) {
		bool shrunk = expect && !(r->has_range && r->range_total == expect->size);

		rc = ps_error_set(err, shrunk ? ESTALE : EPROTO, "HTTP 416: %s",
		        shrunk ? "the object has changed at the origin: the range is outside of it"
		               : "the server refuses a range that is inside the object");
	} else {
		while (r->status < row->from || r->status > row->to)
			row++;
		rc = ps_error_set(err, row->errnum, "HTTP %d: %s", r->status, row->text);
		if (err)
			err->retryable = row->retryable;
	}
	if (err) {
		err->http_status = r->status;
		err->retry_after_ms = retry_after_ms(r);
	}
	return rc;
}

/* Some stores (those on gofakes3) answer a range with status 200 but with the headers of a 206. */
static bool is_partial(const struct ps_http_response *r, uint64_t offset, uint64_t nbytes)
{
	return r->status == 206 || (r->has_range && !r->bad_range && r->range_first == offset &&
	                                   r->range_nbytes == nbytes && r->content_length == nbytes);
}

static int check_partial(const struct ps_http_response *r, const struct ps_remote *expect, uint64_t offset,
        uint64_t nbytes, struct ps_error *err)
{
	if (r->multipart)
		return refuse(err, r, "multipart/byteranges in answer to one range");
	if (!r->has_range || r->bad_range)
		return lie(err, r, "the partial answer has no valid Content-Range");
	if (r->range_total != PS_SIZE_UNKNOWN && r->range_total != expect->size) {
		int rc = ps_error_set(err, ESTALE,
		        "the object has changed at the origin: %" PRIu64 " bytes, %" PRIu64 " expected",
		        r->range_total, expect->size);
		if (err)
			err->http_status = r->status;
		return rc;
	}
	if (r->range_first != offset || r->range_nbytes > nbytes)
		return lie(err, r, "Content-Range is not the range that was asked for");
	if (r->range_nbytes < PS_MIN(nbytes, (uint64_t)PS_HTTP_SHORT_NBYTES))
		return lie(err, r, "the range in the answer is too short to continue from");
	return 0;
}

int ps_http_response_check_range(const struct ps_http_response *r, const struct ps_remote *expect,
        uint64_t offset, uint64_t nbytes, struct ps_error *err)
{
	struct ps_remote seen;
	int rc = ps_http_response_status(r, expect, err);

	if (rc)
		return rc;
	/* An encoded part of known place and length is a part of the stored bytes: a server that encodes as it
	 * answers does not know its length. */
	if (r->encoded && (!is_partial(r, offset, nbytes) || r->content_length == PS_SIZE_UNKNOWN))
		return refuse(err, r, "the answer has a Content-Encoding, though identity was requested");
	ps_http_response_remote(r, &seen);
	/* The version is compared first: a 200 with another size probably is a new version, and is reported
	 * as that, not as a server that ignores ranges. */
	if (!ps_remote_same_version(expect, &seen)) {
		rc = ps_error_set(err, ESTALE, "the object has changed at the origin");
		if (err)
			err->http_status = r->status;
		return rc;
	}
	if (is_partial(r, offset, nbytes))
		return check_partial(r, expect, offset, nbytes, err);
	if (offset || nbytes != expect->size)
		return lie(err, r, "the server ignores Range requests");
	if (r->content_length != nbytes)
		return lie(err, r, "Content-Length does not fit the object");
	return 0;
}
