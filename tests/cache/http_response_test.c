/* What an answer to a range may look like, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/size.h"
#include "origin/http_response.h"

#define SIZE 1000
#define OFFSET 100
#define NBYTES 50

static int check(const char *const *lines, uint64_t offset, uint64_t nbytes)
{
	const struct ps_remote expect = {.size = SIZE, .mtime_s = -1, .etag = "\"v1\""};
	struct ps_http_response r;
	struct ps_error err = {0};

	memset(&r, 0, sizeof r);
	for (; *lines; lines++)
		ps_http_response_line(&r, *lines, strlen(*lines));
	int rc = ps_http_response_check_range(&r, &expect, offset, nbytes, &err);
	assert_int_equal(rc, -err.err);
	return rc;
}
#define CHECK(offset, nbytes, ...) \
	check((const char *const[]){__VA_ARGS__, "ETag: \"v1\"", NULL}, offset, nbytes)

static void partial_answers(void **state)
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

/* RFC 9110, 15.3.7: a server may answer with a part of the range. From its beginning, and enough of it. */
static void beginnings_of_a_range(void **state)
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
		const char *lines[] = {
		        "HTTP/1.1 206 Partial", "ETag: \"v1\"", rows[i].range, rows[i].nbytes};
		struct ps_http_response r = {0};
		struct ps_error err = {0};

		for (size_t j = 0; j < PS_ARRAY_LEN(lines); j++)
			ps_http_response_line(&r, lines[j], strlen(lines[j]));
		int rc = ps_http_response_check_range(&r, &expect, 100, 200000, &err);
		if (rc != rows[i].rc)
			fail_msg("%s: %d: %s", rows[i].range, rc, err.text);
	}
}

static void whole_answers(void **state)
{
	(void)state;
	assert_int_equal(CHECK(0, SIZE, "HTTP/1.1 200 OK", "Content-Length: 1000"), 0);
	assert_int_equal(CHECK(0, NBYTES, "HTTP/1.1 200 OK", "Content-Length: 1000"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 200 OK", "Content-Length: 1000"), -EPROTO);
	assert_int_equal(CHECK(OFFSET, NBYTES, "HTTP/1.1 200 OK", "Content-Length: 50"), -ESTALE);
}

/* Stores that stand on gofakes3 say 200 where they mean 206: believed where all else is as it must be. */
static void a_range_with_the_wrong_status(void **state)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(partial_answers),
	        cmocka_unit_test(beginnings_of_a_range),
	        cmocka_unit_test(whole_answers),
	        cmocka_unit_test(a_range_with_the_wrong_status),
	};

	return cmocka_run_group_tests_name("http_response", tests, NULL, NULL);
}
