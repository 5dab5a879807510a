/* The HTTP origin with an nginx that misbehaves: every fault gives its errno and no wrong byte. */
#include "http_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* Faults ------------------------------------------------------------------------------------------------- */

static const struct fault {
	const char *path;
	int errnum, status;
	bool retryable;
	unsigned retry_after_min_ms, retry_after_max_ms;
	const char *says;
} faults[] = {
        {"/s401/x", EACCES, 401, false, 0, 0, NULL},
        {"/s403/x", EACCES, 403, false, 0, 0, NULL},
        {"/s404/x", ENOENT, 404, false, 0, 0, NULL},
        {"/s410/x", ENOENT, 410, false, 0, 0, NULL},
        {"/s412/x", ESTALE, 412, false, 0, 0, NULL},
        {"/s416/x", ESTALE, 416, false, 0, 0, NULL},
        {"/s429/x", EAGAIN, 429, true, 3000, 5000, NULL},
        {"/s500/x", EIO, 500, true, 0, 0, NULL},
        {"/s501/x", EIO, 501, false, 0, 0, NULL},
        {"/s502/x", EIO, 502, true, 0, 0, NULL},
        {"/s503/x", EAGAIN, 503, true, 2000, 2000, NULL},
        {"/s204/x", EPROTO, 204, false, 0, 0, NULL},
        {"/s304/x", EPROTO, 304, false, 0, 0, NULL},
        {"/basic/object.bin", EACCES, 401, false, 0, 0, NULL},
        {"/drop/x", EIO, 0, true, 0, 0, NULL},
        {"/garbage/x", EPROTO, 0, true, 0, 0, NULL},
        {"/hugeheader/x", EIO, 0, true, 0, 0, NULL},
        {"/silent/x", ETIMEDOUT, 0, true, 0, 0, "no byte came for "},
        {"/loop/", EIO, 0, false, 0, 0, NULL},
        {"/redirfile/x", EPROTO, 0, false, 0, 0, NULL},
        {"/redirnowhere/x", EPROTO, 302, false, 0, 0, NULL},
        {"/norange/object.bin", EPROTO, 200, false, 0, 0, NULL},
        {"/other/object.bin", ESTALE, 206, false, 0, 0, NULL},
        {"/shifted/object.bin", EPROTO, 206, true, 0, 0, NULL},
        {"/shorter/object.bin", EPROTO, 206, true, 0, 0, NULL},
        {"/grown/object.bin", ESTALE, 206, false, 0, 0, NULL},
        {"/bare206/object.bin", EPROTO, 206, true, 0, 0, NULL},
        {"/nonsense/object.bin", EPROTO, 206, true, 0, 0, NULL},
        {"/multipart/object.bin", EPROTO, 206, false, 0, 0, NULL},
        {"/lengthlie/object.bin", EPROTO, 206, true, 0, 0, NULL},
        {"/shortbody/object.bin", EIO, 206, true, 0, 0, NULL},
        {"/stall/object.bin", ETIMEDOUT, 206, true, 0, 0, NULL},
};

static void every_fault_gives_its_errno_and_no_wrong_byte(void **state)
{
	struct call c;

	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		const struct fault *f = &faults[i];

		fetch_path(&c, f->path, 1000, 60000);
		if (c.err.err != f->errnum || c.err.retryable != f->retryable ||
		        (f->status && c.err.http_status != f->status))
			fail_msg("%s: errno %d, status %d, retryable %d: %s", f->path, c.err.err,
			        c.err.http_status, c.err.retryable, c.err.text);
		if (c.err.retry_after_ms < f->retry_after_min_ms ||
		        c.err.retry_after_ms > f->retry_after_max_ms)
			fail_msg("%s: Retry-After %u", f->path, c.err.retry_after_ms);
		assert_non_null(strstr(c.err.text, "GET http://127.0.0.1:"));
		if (f->says && !strstr(c.err.text, f->says))
			fail_msg("%s: \"%s\" does not contain \"%s\"", f->path, c.err.text, f->says);
		call_end(&c);
	}
}

/* Answers that do not say, or contradict themselves in, where their body ends. If the connection was cut, the
 * bytes that came are used; otherwise none is, and none was reported to the reader before. */
static const struct {
	const char *path, *says;
	int errnum;
	size_t nbytes_used;
} framings[] = {
        {"/bothlengths/object.bin", "Transfer-Encoding and Content-Length in one answer", EPROTO, 0},
        {"/twolengths/object.bin", "two Content-Lengths that differ", EPROTO, 0},
        {"/twocodings/object.bin", "a Transfer-Encoding other than chunked", EPROTO, 0},
        {"/chunked10/object.bin", "a Transfer-Encoding in an answer of HTTP/1.0", EPROTO, 0},
        {"/badchunk/object.bin", "", EIO, 0},
        {"/shortchunked/object.bin", "the chunked body ends 30000 bytes early", EPROTO, 0},
        {"/longchunked/object.bin", "more bytes than the range has", EPROTO, 0},
        {"/closelong/object.bin", "more bytes than the range has", EPROTO, 0},
        {"/cutchunk/object.bin", "", EIO, 4196},
        {"/closecut/object.bin", "the connection ended after 30000 of 60000 bytes", EIO, 30000},
        {"/shortbody/object.bin", "", EIO, 30000},
        {"/chunked/object.bin", "", 0, 60000},
        {"/closed/object.bin", "", 0, 60000},
};

static void only_a_cut_answer_keeps_its_bytes(void **state)
{
	struct call c;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(framings); i++) {
		fetch_path(&c, framings[i].path, 1000, 60000);
		if (c.err.err != framings[i].errnum || c.get.nbytes_done != framings[i].nbytes_used ||
		        !strstr(c.err.text, framings[i].says) || (c.err.err && !c.err.retryable))
			fail_msg("%s: errno %d, %zu bytes used, retryable %d: %s", framings[i].path,
			        c.err.err, c.get.nbytes_done, c.err.retryable, c.err.text);
		c.dropped = c.get.nbytes_done == 0;
		call_end(&c);
	}
}

/* The bytes of such an answer are used once it has ended, so a long range is requested in parts. */
static void answers_of_unknown_length_are_requested_in_parts(void **state)
{
	struct call c;

	(void)state;
	fetch_path(&c, "/chunked/object.bin", 0, 60000);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	int before = ps_web_server_seen(&server, "GET", " /chunked/");
	fetch_path(&c, "/chunked/object.bin", 0, PS_TEST_OBJECT_NBYTES);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	assert_int_equal(ps_web_server_seen(&server, "GET", " /chunked/") - before, 3);
	fetch_path(&c, "/object.bin", 0, 60000);
	call_end(&c);
	before = ps_web_server_seen(&server, "GET", " /object.bin range=bytes=0-2999999");
	fetch_path(&c, "/object.bin", 0, PS_TEST_OBJECT_NBYTES);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	assert_int_equal(
	        ps_web_server_seen(&server, "GET", " /object.bin range=bytes=0-2999999") - before, 1);
}

static void faults_in_parallel_do_not_mix(void **state)
{
	enum { N = sizeof(faults) / sizeof(faults[0]) };
	struct call *calls = calloc(2 * N, sizeof(*calls));
	char url[256];

	(void)state;
	for (size_t i = 0; i < 2 * N; i++) {
		snprintf(url, sizeof(url), "%s%s", server.http, i % 2 ? "/object.bin" : faults[i / 2].path);
		call_start(origin, &calls[i], url, 1000, 60000);
	}
	for (size_t i = 0; i < 2 * N; i++) {
		sem_wait(&calls[i].done);
		assert_int_equal(calls[i].err.err, i % 2 ? 0 : faults[i / 2].errnum);
		call_end(&calls[i]);
	}
	free(calls);
}

static void another_version_is_stale(void **state)
{
	struct ps_remote kept = version;
	struct call c;

	(void)state;
	snprintf(version.etag, sizeof(version.etag), "\"not-this-one\"");
	fetch_path(&c, "/object.bin", 0, 100);
	assert_int_equal(c.err.err, ESTALE);
	assert_int_equal(c.err.http_status, 412);
	call_end(&c);

	version = kept;
	version.etag[0] = '\0';
	version.mtime_s -= 3600;
	fetch_path(&c, "/noetag/object.bin", 0, 100);
	assert_int_equal(c.err.err, ESTALE);
	assert_int_equal(c.err.http_status, 412);
	call_end(&c);

	version = kept;
	version.size--;
	fetch_path(&c, "/object.bin", 0, 100);
	assert_int_equal(c.err.err, ESTALE);
	call_end(&c);

	version = kept;
	snprintf(version.etag, sizeof(version.etag), "W/\"other\"");
	fetch_path(&c, "/weak/object.bin", 0, 100);
	assert_int_equal(c.err.err, ESTALE);
	call_end(&c);
	version = kept;
}

static void a_stall_is_noticed_in_time(void **state)
{
	struct call c;
	uint64_t start = ps_clock_mono_ns();

	(void)state;
	fetch_path(&c, "/stall/object.bin", 0, 60000);
	uint64_t ms = (ps_clock_mono_ns() - start) / PS_NS_PER_MS;
	assert_int_equal(c.err.err, ETIMEDOUT);
	assert_int_equal(c.get.nbytes_done, 30000);
	assert_true(ms >= STALL_MS && ms < STALL_MS + 1500);
	call_end(&c);
}

static void a_port_without_a_server_is_unreachable(void **state)
{
	struct ps_origin *o = open_origin("http://127.0.0.1:1", "/x.tar", NULL);
	struct call c;

	(void)state;
	fetch(o, &c, "http://127.0.0.1:1/x.tar", 0, 10);
	assert_int_equal(c.err.err, EHOSTUNREACH);
	assert_true(c.err.retryable);
	call_end(&c);
	o->ops->close(o);
}

static void an_unknown_host_is_a_retryable_error(void **state)
{
	struct ps_origin *o = open_origin("http://no-such-host.invalid", "/x.tar", NULL);
	struct call c;

	(void)state;
	fetch(o, &c, "http://no-such-host.invalid/x.tar", 0, 10);
	assert_true(c.err.err == EHOSTUNREACH || c.err.err == ETIMEDOUT);
	assert_true(c.err.retryable);
	call_end(&c);
	o->ops->close(o);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_fault_gives_its_errno_and_no_wrong_byte),
	        cmocka_unit_test(only_a_cut_answer_keeps_its_bytes),
	        cmocka_unit_test(answers_of_unknown_length_are_requested_in_parts),
	        cmocka_unit_test(faults_in_parallel_do_not_mix),
	        cmocka_unit_test(another_version_is_stale),
	        cmocka_unit_test(a_stall_is_noticed_in_time),
	        cmocka_unit_test(a_port_without_a_server_is_unreachable),
	        cmocka_unit_test(an_unknown_host_is_a_retryable_error),
	};

	return http_tests_run(tests, PS_ARRAY_LEN(tests), NULL);
}
