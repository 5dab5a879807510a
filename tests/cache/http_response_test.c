/* Answers to range requests: which are accepted and which are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "http/http.h"

#define SIZE 1000
#define OFFSET 100
#define NBYTES 50

static int check(const char *const *lines, uint64_t offset, uint64_t nbytes)
{
	const struct ps_remote expect = {.size = SIZE, .mtime_s = -1, .etag = "\"v1\""};
	struct ps_http_response r;
	struct ps_error err = {0};

	memset(&r, 0, sizeof(r));
	for (; *lines; lines++)
		ps_http_response_line(&r, *lines, strlen(*lines));
	int rc = ps_http_response_check_range(&r, &expect, offset, nbytes, &err);
	assert_int_equal(rc, -err.err);
	return rc;
}
#define CHECK(offset, nbytes, ...) \
	check((const char *const[]){__VA_ARGS__, "ETag: \"v1\"", NULL}, offset, nbytes)

static void partial_answers_are_checked(void **state)
{
	(void)state;
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 206 Partial", "Content-Range: bytes 100-149/1000",
	                         "Content-Length: 50"),
	        0);
	assert_int_equal(
	        CHECK(OFFSET, NBYTES, "HTTP/1.1 206 Partial", "Content-Range: bytes 100-149/1000"), 0);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 206 Partial", "Content-Range: bytes 100-149/*"), 0);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 206 Partial", "Content-Length: 50"), -EPROTO);
	assert_int_equal(
	        CHECK(OFFSET, NBYTES, "HTTP/1.1 206 Partial", "Content-Range: bytes 101-150/1000"), -EPROTO);
	assert_int_equal(
	        CHECK(OFFSET, NBYTES, "HTTP/1.1 206 Partial", "Content-Range: bytes 100-149/1001"), -ESTALE);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 206 Partial", "Content-Range: bytes 100-149/1000",
	                         "Content-Length: 51"),
	        -EPROTO);
}

/* RFC 9110, 15.3.7: a server may answer with a part of the range. The part must begin where the range does,
 * and must be long enough. */
static void the_beginning_of_a_range_is_accepted(void **state)
{
	static const struct ps_remote expect = {.size = 1 << 20, .mtime_s = -1, .etag = "\"v1\""};
	static const struct {
		const char *range, *nbytes;
		int rc;
	} rows[] = {
	        {"Content-Range: bytes 100-65635/1048576", "Content-Length: 65536", 0},
	        {"Content-Range: bytes 100-65635/1048576", "Content-Length: 65535", -EPROTO},
	        {"Content-Range: bytes 100-65635/1048577", "Content-Length: 65536", -ESTALE},
	        {"Content-Range: bytes 100-65634/1048576", "Content-Length: 65535", -EPROTO},
	        {"Content-Range: bytes 101-65636/1048576", "Content-Length: 65536", -EPROTO},
	        {"Content-Range: bytes 100-300000/1048576", "Content-Length: 299901", -EPROTO},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		const char *lines[] = {"HTTP/1.1 206 Partial", "ETag: \"v1\"", rows[i].range, rows[i].nbytes};
		struct ps_http_response r = {0};
		struct ps_error err = {0};

		for (size_t j = 0; j < PS_ARRAY_LEN(lines); j++)
			ps_http_response_line(&r, lines[j], strlen(lines[j]));
		int rc = ps_http_response_check_range(&r, &expect, 100, 200000, &err);
		if (rc != rows[i].rc)
			fail_msg("%s: %d: %s", rows[i].range, rc, err.text);
	}
}

static void whole_answers_are_accepted_for_whole_objects(void **state)
{
	(void)state;
	assert_int_equal(CHECK(0, SIZE, "HTTP/1.1 200 OK", "Content-Length: 1000"), 0);
	assert_int_equal(CHECK(0, NBYTES, "HTTP/1.1 200 OK", "Content-Length: 1000"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 200 OK", "Content-Length: 1000"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 200 OK", "Content-Length: 50"), -ESTALE);
}

/* Stores based on gofakes3 send 200 where they mean 206: accepted if everything else is right. */
static void a_range_with_status_200_is_accepted_if_all_else_is_right(void **state)
{
	static const char ok[] = "HTTP/1.1 200 OK";

	(void)state;
	assert_int_equal(
	        CHECK(OFFSET, NBYTES, ok, "Content-Range: bytes 100-149/1000", "Content-Length: 50"), 0);
	assert_int_equal(CHECK(0, SIZE, ok, "Content-Range: bytes 0-999/1000", "Content-Length: 1000"), 0);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, "Content-Range: bytes 100-149/1000"), -EPROTO);
	assert_int_equal(
	        CHECK(OFFSET, NBYTES, ok, "Content-Range: bytes 100-149/1000", "Content-Length: 1000"),
	        -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, "Content-Range: bytes 0-999/1000", "Content-Length: 1000"),
	        -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, "Content-Range: bytes 100-149/1001", "Content-Length: 50"),
	        -ESTALE);
}

/* The length of the body must be beyond doubt, however a proxy or a library reads the same lines. */
static void answers_whose_length_is_in_doubt_are_refused(void **state)
{
	static const char ok[] = "HTTP/1.1 206 Partial", range[] = "Content-Range: bytes 100-149/1000",
	                  length[] = "Content-Length: 50", chunked[] = "Transfer-Encoding: chunked";
	char longer[700];

	(void)state;
	memset(longer, ' ', sizeof(longer));
	memcpy(longer, "Content-Length: 5", 17);
	memcpy(longer + sizeof(longer) - 3, "50", 3);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, chunked), 0);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, length, length), 0);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 100 Continue", chunked, ok, range, length), 0);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, length, " folded", "X: y"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, length, "X: y", " folded"), 0);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, length, chunked), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, chunked, length), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, chunked, chunked), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.0 206 Partial", range, chunked), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, "Transfer-Encoding: gzip, chunked"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, "Transfer-Encoding: identity"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, length, "Content-Length: 51"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, "Content-Length: 51", length), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, "Content-Length: 50, 50"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, "Content-Length: +50"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, "Content-Length:"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, "Content-Length: 18446744073709551615"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, "Content-Length : 50"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, length, "Transfer-Encoding\t: chunked"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, range, longer), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, chunked, "HTTP/1.1 206 Again", range, length), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, ok, "Content-Range: x", range, length), -EPROTO);
	assert_int_equal(CHECK(0, SIZE, "HTTP/1.1 200 OK", "Content-Length: 1000", chunked), -EPROTO);
}

static void read_lines(struct ps_http_response *r, const char *const *lines)
{
	for (memset(r, 0, sizeof(*r)); *lines; lines++)
		ps_http_response_line(r, *lines, strlen(*lines));
}
#define READ_LINES(r, ...) read_lines(r, (const char *const[]){__VA_ARGS__, NULL})

/* The checksum of an answer with a range is that of the sent bytes, not of the stored object: compared with
 * the object, it would be wrong. */
static void a_checksum_with_a_range_is_not_the_object_s(void **state)
{
	static const char sum[] = "x-amz-checksum-crc32c: yZRlqg==",
	                  type[] = "x-amz-checksum-type: COMPOSITE",
	                  range[] = "Content-Range: bytes 0-49/1000";
	struct ps_http_response r;
	struct ps_remote remote;

	(void)state;
	READ_LINES(&r, "HTTP/1.1 200 OK", "Content-Length: 1000", sum);
	ps_http_response_remote(&r, &remote);
	assert_string_not_equal(remote.checksum, "");
	READ_LINES(&r, "HTTP/1.1 200 OK", "Content-Length: 50", range, sum);
	ps_http_response_remote(&r, &remote);
	assert_string_equal(remote.checksum, "");
	READ_LINES(&r, "HTTP/1.1 206 Partial", "Content-Length: 50", range, sum);
	ps_http_response_remote(&r, &remote);
	assert_string_equal(remote.checksum, "");
	READ_LINES(&r, "HTTP/1.1 200 OK", "Content-Length: 1000", sum, type);
	ps_http_response_remote(&r, &remote);
	assert_string_equal(remote.checksum, "");
	/* An ETag of parts, without a word about the checksum's type: it may be one of parts. */
	READ_LINES(&r, "HTTP/1.1 200 OK", "Content-Length: 1000", "ETag: \"0a1b-3\"", sum);
	ps_http_response_remote(&r, &remote);
	assert_string_equal(remote.checksum, "");
	READ_LINES(&r, "HTTP/1.1 200 OK", "Content-Length: 1000", "ETag: \"0a1b-3\"", sum,
	        "x-amz-checksum-type: FULL_OBJECT");
	ps_http_response_remote(&r, &remote);
	assert_string_not_equal(remote.checksum, "");
	READ_LINES(&r, "HTTP/1.1 200 OK", "Content-Length: 1000", "ETag: \"0a1b-3c\"", sum);
	ps_http_response_remote(&r, &remote);
	assert_string_not_equal(remote.checksum, "");
	/* Google's checksum is of the stored object, whatever range was requested. */
	READ_LINES(&r, "HTTP/1.1 206 Partial", range,
	        "x-goog-hash: crc32c=yZRlqg==,md5=1B2M2Y8AsgTpgAmY7PhCfg==");
	ps_http_response_remote(&r, &remote);
	assert_string_not_equal(remote.checksum, "");
}

static uint32_t pause_of(const char *const *lines)
{
	struct ps_http_response r;
	struct ps_error err = {0};

	read_lines(&r, lines);
	assert_int_equal(ps_http_response_status(&r, NULL, &err), -EAGAIN);
	assert_true(err.retryable);
	return err.retry_after_ms;
}
#define PAUSE(...) pause_of((const char *const[]){__VA_ARGS__, NULL})

/* The dates are long ago by our clock: what counts is the time between Date and Retry-After. */
static void a_date_to_retry_at_counts_from_the_server_s_own_clock(void **state)
{
	static const char busy[] = "HTTP/1.1 503 Slow Down", date[] = "Date: Thu, 01 Jan 2015 10:00:00 GMT";

	(void)state;
	assert_int_equal(PAUSE(busy, date, "Retry-After: Thu, 01 Jan 2015 10:00:07 GMT"), 7000);
	assert_int_equal(PAUSE(busy, "Retry-After: Thu, 01 Jan 2015 10:00:07 GMT", date), 7000);
	assert_int_equal(PAUSE(busy, date, "Retry-After: Thu, 01 Jan 2015 09:59:59 GMT"), 0);
	assert_int_equal(PAUSE(busy, date, "Retry-After: 3"), 3000);
	assert_int_equal(PAUSE(busy, date), 0);
	assert_int_equal(PAUSE(busy, date, "Retry-After: 99999999"), PS_RETRY_AFTER_MAX_MS);
	assert_int_equal(
	        PAUSE(busy, date, "Retry-After: Mon, 01 Jan 2035 10:00:00 GMT"), PS_RETRY_AFTER_MAX_MS);
	/* Without a Date our own clock counts. */
	assert_int_equal(PAUSE(busy, "Retry-After: Thu, 01 Jan 2015 10:00:07 GMT"), 0);
}

/* Names and values of any length, from any server. */
static void headers_that_are_too_long_are_ignored(void **state)
{
	enum { LONG = 1 << 20 };
	struct ps_http_response r;
	char *line = malloc(LONG + 64);

	(void)state;
	READ_LINES(&r, "HTTP/1.1 200 OK", "ETag: \"v1\"");
	memset(line, 'x', LONG);
	memcpy(line + LONG, ": y", 3);
	ps_http_response_line(&r, line, LONG + 3);
	memcpy(line, "ETag: \"", 7);
	line[LONG - 1] = '"';
	ps_http_response_line(&r, line, LONG);
	assert_string_equal(r.etag, "\"v1\"");
	/* All lengths up to 5000, since a buffer may have any of these. */
	for (size_t n = 1; n < 5000; n++) {
		memset(line, 'y', n);
		memcpy(line + n, ": z", 3);
		ps_http_response_line(&r, line, n + 3);
		memcpy(line, "X: ", 3);
		ps_http_response_line(&r, line, n + 3);
	}
	assert_string_equal(r.etag, "\"v1\"");
	assert_int_equal(r.status, 200);
	free(line);
}

/* Each refusal, with the text that a user reads. */
/* Words that we write where an ETag is missing mean something only if we have written them. */
static void an_etag_that_reads_like_a_mark_is_none(void **state)
{
	static const char *const etags[] = {
	        "ETag: first64k:0123456789abcdef", "ETag: by-size", "ETag: stated-size:7"};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(etags); i++) {
		struct ps_http_response r = {0};
		struct ps_remote remote;

		read_lines(&r, (const char *const[]){"HTTP/1.1 200 OK", "Content-Length: 9", etags[i], NULL});
		ps_http_response_remote(&r, &remote);
		assert_string_equal(remote.etag, "");
		assert_int_equal(remote.size, 9);
	}
}

static void refusals_say_why(void **state)
{
	static const struct ps_remote expect = {.size = SIZE, .mtime_s = -1, .etag = "\"v1\""};
	static const struct {
		const char *lines[4];
		int errnum;
		bool retryable;
		const char *text;
	} rows[] = {
	        {{"HTTP/1.1 304 x"}, EPROTO, false,
	                "HTTP 304: not modified, though the request had no condition"},
	        {{"HTTP/1.1 302 x"}, EPROTO, false, "HTTP 302: a redirect without a usable target"},
	        {{"HTTP/1.1 400 x"}, EIO, false,
	                "the server refuses the request (is this http:// where it expects https://?)"},
	        {{"HTTP/1.1 401 x"}, EACCES, false,
	                "HTTP 401: not authorised: credentials are missing or wrong"},
	        {{"HTTP/1.1 403 x"}, EACCES, false, "HTTP 403: forbidden: wrong credentials"},
	        {{"HTTP/1.1 404 x"}, ENOENT, false, "HTTP 404: not found"},
	        {{"HTTP/1.1 407 x"}, EACCES, false, "HTTP 407: the proxy requires credentials"},
	        {{"HTTP/1.1 408 x"}, EIO, true, "HTTP 408: the server has waited too long for the request"},
	        {{"HTTP/1.1 410 x"}, ENOENT, false, "HTTP 410: gone"},
	        {{"HTTP/1.1 412 x"}, ESTALE, false, "HTTP 412: the object has changed at the origin"},
	        {{"HTTP/1.1 418 x"}, EIO, false, "HTTP 418: the server refuses the request"},
	        {{"HTTP/1.1 425 x"}, EAGAIN, true, "HTTP 425: too early"},
	        {{"HTTP/1.1 429 x"}, EAGAIN, true, "HTTP 429: too many requests: the server asks to wait"},
	        {{"HTTP/1.1 500 x"}, EIO, true, "HTTP 500: server error"},
	        {{"HTTP/1.1 501 x"}, EIO, false, "HTTP 501: the server does not support this request"},
	        {{"HTTP/1.1 503 x"}, EAGAIN, true, "HTTP 503: the server is busy and asks to wait"},
	        {{"HTTP/1.1 505 x"}, EIO, false, "HTTP 505: the server does not speak HTTP/1.1"},
	        {{"HTTP/1.1 599 x"}, EIO, true, "HTTP 599: server error"},
	        {{"HTTP/1.1 204 x"}, EPROTO, false, "HTTP 204: unexpected status"},
	        {{"HTTP/1.1 600 x"}, EPROTO, false, "HTTP 600: unexpected status"},
	        {{"HTTP/1.1 416 x", "Content-Range: bytes */100"}, ESTALE, false, "the range is outside"},
	        {{"HTTP/1.1 416 x", "Content-Range: bytes */1000"}, EPROTO, false,
	                "the server refuses a range that is inside the object"},
	        {{"HTTP/1.1 200 x", "Content-Encoding: gzip", "Content-Length: 1000"}, EPROTO, false,
	                "the answer has a Content-Encoding, though identity was requested"},
	        {{"HTTP/1.1 206 x", "Content-Type: multipart/byteranges; boundary=x"}, EPROTO, false,
	                "multipart/byteranges in answer to one range"},
	        {{"HTTP/1.1 206 x", "Content-Range: bytes 100-149"}, EPROTO, true,
	                "the partial answer has no valid Content-Range"},
	        {{"HTTP/1.1 206 x", "Content-Range: bytes 100-149/1000", "Content-Range: bytes 100-149/1000"},
	                EPROTO, true, "the partial answer has no valid Content-Range"},
	        {{"HTTP/1.1 206 x", "Content-Range: bytes 100-149/999"}, ESTALE, false,
	                "the object has changed at the origin"},
	        {{"HTTP/1.1 206 x", "Content-Range: bytes 99-148/1000"}, EPROTO, true,
	                "Content-Range is not the range that was asked for"},
	        {{"HTTP/1.1 206 x", "Content-Range: bytes 100-148/1000"}, EPROTO, true,
	                "the range in the answer is too short to continue from"},
	        {{"HTTP/1.1 206 x", "Content-Range: bytes 100-149/1000", "Content-Length: 49"}, EPROTO, true,
	                "Content-Length does not fit the range"},
	        {{"HTTP/1.1 200 x", "Content-Length: 1000"}, EPROTO, true,
	                "the server ignores Range requests"},
	        {{"HTTP/1.1 200 x", "Content-Length: 999"}, ESTALE, false,
	                "the object has changed at the origin"},
	        {{"HTTP/1.1 206 x", "Content-Range: bytes 100-149/1000", "ETag: \"v2\""}, ESTALE, false,
	                "the object has changed at the origin"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_http_response r;
		struct ps_error err = {0};

		read_lines(&r, rows[i].lines);
		int rc = ps_http_response_check_range(&r, &expect, OFFSET, NBYTES, &err);
		if (rc != -rows[i].errnum || err.err != rows[i].errnum ||
		        err.retryable != rows[i].retryable || err.http_status != r.status ||
		        !strstr(err.text, rows[i].text))
			fail_msg("%s: %d, %d, \"%s\"", rows[i].lines[0], rc, err.retryable, err.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_checksum_with_a_range_is_not_the_object_s),
	        cmocka_unit_test(a_date_to_retry_at_counts_from_the_server_s_own_clock),
	        cmocka_unit_test(headers_that_are_too_long_are_ignored),
	        cmocka_unit_test(an_etag_that_reads_like_a_mark_is_none),
	        cmocka_unit_test(refusals_say_why),
	        cmocka_unit_test(answers_whose_length_is_in_doubt_are_refused),
	        cmocka_unit_test(partial_answers_are_checked),
	        cmocka_unit_test(the_beginning_of_a_range_is_accepted),
	        cmocka_unit_test(whole_answers_are_accepted_for_whole_objects),
	        cmocka_unit_test(a_range_with_status_200_is_accepted_if_all_else_is_right),
	};

	return cmocka_run_group_tests_name("http_response", tests, NULL, NULL);
}
