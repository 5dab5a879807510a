/* The HTTP origin against a real nginx that misbehaves: every fault has its errno, and never a wrong byte. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "origin/origin.h"
#include "web_server.h"

#define SENTINEL 0xa5
/* Under a sanitizer the reading of the system's CA bundle alone takes a second. */
#ifdef PS_SANITIZERS
#define STALL_MS 5000
#else
#define STALL_MS 700
#endif

static struct ps_web_server server;
static struct ps_origin *origin; /* of server.http, short timeouts */
static struct ps_remote version; /* of object.bin */

/* One read, and its waiter ------------------------------------------------------------------------ */

struct call {
	struct ps_get get;
	struct ps_head head;
	struct ps_error err;
	sem_t done;
	char url[512];
	uint8_t *bytes;
	size_t told; /* by progress */
	struct iovec iov[3];
};

static void on_progress(struct ps_get *get, size_t n)
{
	struct call *c = (struct call *)((char *)get - offsetof(struct call, get));

	assert_true(n > c->told && n <= get->nbytes);
	c->told = n;
}

static void on_get(struct ps_get *get, const struct ps_error *err)
{
	struct call *c = (struct call *)((char *)get - offsetof(struct call, get));

	c->err = *err;
	sem_post(&c->done);
}

static void on_head(struct ps_head *head, const struct ps_error *err)
{
	struct call *c = (struct call *)((char *)head - offsetof(struct call, head));

	c->err = *err;
	sem_post(&c->done);
}

static void call_start(struct ps_origin *o, struct call *c, const char *url, uint64_t offset, size_t n)
{
	memset(c, 0, sizeof *c);
	sem_init(&c->done, 0, 0);
	snprintf(c->url, sizeof c->url, "%s", url);
	c->bytes = malloc(n);
	assert_non_null(c->bytes);
	memset(c->bytes, SENTINEL, n);
	/* Three uneven vectors, so that every boundary is crossed. */
	c->iov[0] = (struct iovec){c->bytes, n / 3};
	c->iov[1] = (struct iovec){c->bytes + n / 3, n / 3 ? 1 : 0};
	c->iov[2] = (struct iovec){c->bytes + n / 3 + c->iov[1].iov_len, n - n / 3 - c->iov[1].iov_len};
	c->get = (struct ps_get){.url = c->url,
	        .expect = version,
	        .offset = offset,
	        .nbytes = n,
	        .iov = c->iov,
	        .niov = 3,
	        .progress = on_progress,
	        .done = on_get};
	o->ops->get(o, &c->get);
}

/* Whatever happened: the first nbytes_done are right, nothing behind them was touched. */
static void call_check_bytes(struct call *c)
{
	assert_true(c->get.nbytes_done <= c->get.nbytes);
	assert_int_equal(c->told, c->get.nbytes_done);
	for (size_t i = 0; i < c->get.nbytes_done; i++)
		if (c->bytes[i] != ps_web_server_byte(c->get.offset + i))
			fail_msg("byte %zu is wrong", i);
	for (size_t i = c->get.nbytes_done; i < c->get.nbytes; i++)
		if (c->bytes[i] != SENTINEL)
			fail_msg("byte %zu was touched, %zu are done", i, c->get.nbytes_done);
	if (!c->err.err)
		assert_int_equal(c->get.nbytes_done, c->get.nbytes);
}

static void call_end(struct call *c)
{
	call_check_bytes(c);
	free(c->bytes);
	sem_destroy(&c->done);
}

static void fetch(struct ps_origin *o, struct call *c, const char *url, uint64_t offset, size_t n)
{
	call_start(o, c, url, offset, n);
	sem_wait(&c->done);
}

static void fetch_path(struct call *c, const char *path, uint64_t offset, size_t n)
{
	char url[256];

	snprintf(url, sizeof url, "%s%s", server.http, path);
	fetch(origin, c, url, offset, n);
}

static void ask_head(struct ps_origin *o, struct call *c, const char *base, const char *path)
{
	memset(c, 0, sizeof *c);
	sem_init(&c->done, 0, 0);
	snprintf(c->url, sizeof c->url, "%s%s", base, path);
	c->head = (struct ps_head){.url = c->url, .done = on_head};
	o->ops->head(o, &c->head);
	sem_wait(&c->done);
	sem_destroy(&c->done);
}

static struct ps_origin *open_origin(const char *base, const char *path, const struct ps_origin_options *more)
{
	struct ps_origin_options options = more ? *more : (struct ps_origin_options){0};
	struct ps_origin *o = NULL;
	struct ps_error err = {0};
	char source[256];

	snprintf(source, sizeof source, "%s%s", base, path);
	options.stall_timeout_ms = STALL_MS;
	options.connect_timeout_ms = 2000;
	if (ps_origin_open(source, &options, &o, &err) < 0)
		fail_msg("%s", err.text);
	return o;
}

/* Reads that succeed ------------------------------------------------------------------------------- */

static void range_is_read_into_its_vectors(void **state)
{
	static const struct {
		uint64_t offset;
		size_t n;
	} ranges[] = {{0, 1}, {0, 2}, {0, 100}, {1, 7}, {4095, 70000}, {PS_TEST_OBJECT_NBYTES - 1, 1},
	        {0, PS_TEST_OBJECT_NBYTES}, {1000000, 2000000}};
	struct call c;

	(void)state;
	for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
		fetch_path(&c, "/object.bin", ranges[i].offset, ranges[i].n);
		assert_int_equal(c.err.err, 0);
		assert_int_equal(c.get.wire_nbytes, ranges[i].n);
		assert_true(c.get.first_byte_ns > 0);
		assert_string_equal(c.get.seen.etag, version.etag);
		assert_int_equal(c.get.seen.size, PS_TEST_OBJECT_NBYTES);
		call_end(&c);
	}
}

static void good_though_odd_answers_are_read(void **state)
{
	static const char *const paths[] = {"/nolength/object.bin", "/gz/object.bin",
	        "/redir/object.bin", "/redirother/object.bin", "/nohead/object.bin"};
	struct call c;

	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		fetch_path(&c, paths[i], 100, 5000);
		if (c.err.err)
			fail_msg("%s: %s", paths[i], c.err.text);
		call_end(&c);
	}
}

static void whole_object_may_come_as_a_200(void **state)
{
	struct call c;

	(void)state;
	fetch_path(&c, "/norange/object.bin", 0, PS_TEST_OBJECT_NBYTES);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
}

static void parallel_gets_all_succeed(void **state)
{
	enum { N = 64 };
	struct call *calls = calloc(N, sizeof *calls);
	char url[256];

	(void)state;
	snprintf(url, sizeof url, "%s/object.bin", server.http);
	for (int i = 0; i < N; i++)
		call_start(origin, &calls[i], url, (uint64_t)i * 40000, 100000 + (size_t)i);
	for (int i = 0; i < N; i++)
		sem_wait(&calls[i].done);
	for (int i = 0; i < N; i++) {
		assert_int_equal(calls[i].err.err, 0);
		call_end(&calls[i]);
	}
	free(calls);
}

static void connections_are_kept(void **state)
{
	struct call c;
	int before = ps_web_server_seen(&server, "connection=", "/object.bin");

	(void)state;
	for (int i = 0; i < 20; i++) {
		fetch_path(&c, "/s503/x", 0, 10);
		call_end(&c);
		fetch_path(&c, "/object.bin", 0, 10);
		assert_int_equal(c.err.err, 0);
		call_end(&c);
	}
	/* All over one connection, whose number is in the last line and in those before it. */
	char path[128], line[4096] = "";
	snprintf(path, sizeof path, "%s/access.log", server.dir);
	usleep(50000);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		;
	fclose(f);
	char *connection = strstr(line, "connection=");
	assert_non_null(connection);
	assert_true(ps_web_server_seen(&server, connection, "") >= 40);
	(void)before;
}

/* Distinct connections of the lines of the access log that contain `mark`. */
static unsigned connections_of(const char *mark)
{
	char path[128], line[4096], seen[32][32];
	unsigned n = 0;

	snprintf(path, sizeof path, "%s/access.log", server.dir);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		const char *connection = strstr(line, "connection=");
		unsigned i = 0;

		if (!strstr(line, mark) || !connection)
			continue;
		size_t len = PS_MIN(strcspn(connection, " \n"), sizeof seen[0] - 1);
		while (i < n && (strncmp(seen[i], connection, len) != 0 || seen[i][len]))
			i++;
		if (i == n) {
			assert_true(n < PS_ARRAY_LEN(seen));
			memcpy(seen[n], connection, len);
			seen[n++][len] = '\0';
		}
	}
	fclose(f);
	return n;
}

static void no_more_connections_than_allowed(void **state)
{
	const struct ps_origin_options options = {.max_connections = 2};
	struct ps_origin *limited;
	struct ps_error err = {0};
	struct call gets[6], heads[6];
	char url[256];

	(void)state;
	snprintf(url, sizeof url, "%s/", server.http);
	assert_int_equal(ps_origin_open(url, &options, &limited, &err), 0);
	for (int i = 0; i < 6; i++) {
		snprintf(url, sizeof url, "%s/late/object.bin", server.http);
		call_start(limited, &gets[i], url, 0, 100);
		memset(&heads[i], 0, sizeof heads[i]);
		sem_init(&heads[i].done, 0, 0);
		snprintf(heads[i].url, sizeof heads[i].url, "%s", url);
		heads[i].head = (struct ps_head){.url = heads[i].url, .done = on_head};
		limited->ops->head(limited, &heads[i].head);
	}
	for (int i = 0; i < 6; i++) {
		sem_wait(&gets[i].done);
		assert_int_equal(gets[i].err.err, 0);
		call_end(&gets[i]);
		sem_wait(&heads[i].done);
		assert_int_equal(heads[i].err.err, 0);
		sem_destroy(&heads[i].done);
	}
	limited->ops->close(limited);
	usleep(50000);
	assert_in_range(connections_of("/late/object.bin"), 1, 2);
}

static void a_transfer_that_waits_for_its_place_is_cancelled_at_once(void **state)
{
	const struct ps_origin_options options = {.max_connections = 1};
	struct ps_origin *limited;
	struct ps_error err = {0};
	struct call first, second;
	char url[256];

	(void)state;
	snprintf(url, sizeof url, "%s/", server.http);
	assert_int_equal(ps_origin_open(url, &options, &limited, &err), 0);
	snprintf(url, sizeof url, "%s/later/object.bin", server.http);
	call_start(limited, &first, url, 0, 100);
	call_start(limited, &second, url, 0, 100);
	limited->ops->cancel(limited, &second.get);
	sem_wait(&second.done);
	assert_int_equal(second.err.err, ECANCELED);
	call_end(&second);
	limited->ops->close(limited); /* does not wait either */
	assert_int_equal(first.err.err, ECANCELED);
	call_end(&first);
}

/* Faults ------------------------------------------------------------------------------------------ */

static const struct fault {
	const char *path;
	int errnum, status;
	bool retryable;
	unsigned retry_after_min_ms, retry_after_max_ms;
} faults[] = {
        {"/s401/x", EACCES, 401, false, 0, 0},
        {"/s403/x", EACCES, 403, false, 0, 0},
        {"/s404/x", ENOENT, 404, false, 0, 0},
        {"/s410/x", ENOENT, 410, false, 0, 0},
        {"/s412/x", ESTALE, 412, false, 0, 0},
        {"/s416/x", ESTALE, 416, false, 0, 0},
        {"/s429/x", EAGAIN, 429, true, 3000, 5000},
        {"/s500/x", EIO, 500, true, 0, 0},
        {"/s501/x", EIO, 501, false, 0, 0},
        {"/s502/x", EIO, 502, true, 0, 0},
        {"/s503/x", EAGAIN, 503, true, 2000, 2000},
        {"/s204/x", EPROTO, 204, false, 0, 0},
        {"/s304/x", EPROTO, 304, false, 0, 0},
        {"/basic/object.bin", EACCES, 401, false, 0, 0},
        {"/drop/x", EIO, 0, true, 0, 0},
        {"/garbage/x", EPROTO, 0, true, 0, 0},
        {"/hugeheader/x", EIO, 0, true, 0, 0},
        {"/silent/x", ETIMEDOUT, 0, true, 0, 0},
        {"/loop/", EIO, 0, false, 0, 0},
        {"/redirfile/x", EPROTO, 0, false, 0, 0},
        {"/redirnowhere/x", EPROTO, 302, false, 0, 0},
        {"/norange/object.bin", EPROTO, 200, true, 0, 0},
        {"/other/object.bin", ESTALE, 206, false, 0, 0},
        {"/encoded/object.bin", EPROTO, 206, true, 0, 0},
        {"/shifted/object.bin", EPROTO, 206, true, 0, 0},
        {"/shorter/object.bin", EPROTO, 206, true, 0, 0},
        {"/grown/object.bin", ESTALE, 206, false, 0, 0},
        {"/bare206/object.bin", EPROTO, 206, true, 0, 0},
        {"/nonsense/object.bin", EPROTO, 206, true, 0, 0},
        {"/multipart/object.bin", EPROTO, 206, true, 0, 0},
        {"/lengthlie/object.bin", EPROTO, 206, true, 0, 0},
        {"/longchunked/object.bin", EPROTO, 206, true, 0, 0},
        {"/shortchunked/object.bin", EIO, 206, true, 0, 0},
        {"/shortbody/object.bin", EIO, 206, true, 0, 0},
        {"/stall/object.bin", ETIMEDOUT, 206, true, 0, 0},
};

static void every_fault_has_its_errno_and_no_wrong_byte(void **state)
{
	struct call c;

	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
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
		call_end(&c);
	}
}

static void faults_in_parallel_do_not_mix(void **state)
{
	enum { N = sizeof faults / sizeof faults[0] };
	struct call *calls = calloc(2 * N, sizeof *calls);
	char url[256];

	(void)state;
	for (size_t i = 0; i < 2 * N; i++) {
		snprintf(url, sizeof url, "%s%s", server.http, i % 2 ? "/object.bin" : faults[i / 2].path);
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
	snprintf(version.etag, sizeof version.etag, "\"not-this-one\"");
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
	snprintf(version.etag, sizeof version.etag, "W/\"other\"");
	fetch_path(&c, "/weak/object.bin", 0, 100);
	assert_int_equal(c.err.err, ESTALE);
	call_end(&c);
	version = kept;
}

static void stall_is_found_in_time(void **state)
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

static void nobody_listens(void **state)
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

static void unknown_host(void **state)
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

/* HEAD -------------------------------------------------------------------------------------------- */

static void head_tells_size_and_version(void **state)
{
	static const char *const paths[] = {"/object.bin", "/nohead/object.bin", "/redir/object.bin"};
	struct call c;

	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		ask_head(origin, &c, server.http, paths[i]);
		assert_int_equal(c.err.err, 0);
		assert_int_equal(c.head.seen.size, PS_TEST_OBJECT_NBYTES);
		assert_int_equal(c.head.seen.mtime_s, version.mtime_s);
		assert_string_equal(c.head.seen.etag, version.etag);
	}
	ask_head(origin, &c, server.http, "/nolength/object.bin");
	assert_int_equal(c.err.err, 0);
	assert_int_equal(c.head.seen.size, PS_TEST_OBJECT_NBYTES);
	ask_head(origin, &c, server.http, "/empty.bin");
	assert_int_equal(c.err.err, 0);
	assert_int_equal(c.head.seen.size, 0);
}

static void head_fails_as_get_does(void **state)
{
	struct call c;

	(void)state;
	ask_head(origin, &c, server.http, "/s404/x");
	assert_int_equal(c.err.err, ENOENT);
	ask_head(origin, &c, server.http, "/s403/x");
	assert_int_equal(c.err.err, EACCES);
	ask_head(origin, &c, server.http, "/s503/x");
	assert_int_equal(c.err.err, EAGAIN);
	assert_int_equal(c.err.retry_after_ms, 2000);
}

/* Secrets ----------------------------------------------------------------------------------------- */

static void credentials_stay_with_their_host(void **state)
{
	const char *const headers[] = {"X-Secret: sesame", NULL};
	struct ps_origin_options options = {.headers = headers, .user_password = "user:pass:word"};
	struct ps_origin *o = open_origin(server.http, "/", &options);
	char url[128];
	struct call c;

	(void)state;
	snprintf(url, sizeof url, "%s/basic/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	snprintf(url, sizeof url, "%s/secret/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	/* By a redirect, and by a URL that a manifest may have brought. */
	snprintf(url, sizeof url, "%s/redirother/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	snprintf(url, sizeof url, "http://localhost:%d/object.bin", server.port);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	assert_true(ps_web_server_seen(&server, "GET localhost /object.bin", "") >= 2);
	assert_int_equal(ps_web_server_seen(&server, " localhost ", "auth=Basic"), 0);
	assert_int_equal(ps_web_server_seen(&server, " localhost ", "secret=sesame"), 0);
	assert_true(ps_web_server_seen(&server, " 127.0.0.1 /basic/", "auth=Basic") >= 1);
	/* Back home by a redirect they go along. */
	snprintf(url, sizeof url, "%s/redir/secret/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	o->ops->close(o);
}

static void url_may_bring_user_and_password(void **state)
{
	char base[128], url[128];
	struct call c;

	(void)state;
	snprintf(base, sizeof base, "http://user:pass%%3aword@127.0.0.1:%d", server.port);
	struct ps_origin *o = open_origin(base, "/basic/object.bin", NULL);
	snprintf(url, sizeof url, "%s/basic/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	o->ops->close(o);
}

static void errors_tell_no_secret(void **state)
{
	char base[160], url[160];
	struct call c;

	(void)state;
	snprintf(base, sizeof base, "http://user:hunter2@127.0.0.1:%d", server.port);
	struct ps_origin *o = open_origin(base, "/signed/object.bin?sig=hunter3&v=1", NULL);
	snprintf(url, sizeof url, "%s/signed/object.bin?v=1", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, EACCES);
	assert_null(strstr(c.err.text, "hunter"));
	call_end(&c);
	o->ops->close(o);
}

static void signature_is_kept_aside_and_sent(void **state)
{
	struct ps_origin *o = open_origin(server.http, "/signed/object.bin?sig=good", NULL);
	char url[128];
	struct call c;

	(void)state;
	snprintf(url, sizeof url, "%s/signed/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	ask_head(o, &c, server.http, "/signed/object.bin");
	assert_int_equal(c.err.err, 0);
	o->ops->close(o);
}

static void header_options_are_checked(void **state)
{
	static const char *const bad[] = {
	        "no colon", "Range: bytes=0-1", "X: a\r\nY: b", ": x", "Sp ace: x", "host: evil"};
	struct ps_origin *o;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const char *const headers[] = {bad[i], NULL};
		struct ps_origin_options options = {.headers = headers};
		struct ps_error err = {0};

		assert_int_equal(ps_origin_open("http://127.0.0.1/x", &options, &o, &err), -EINVAL);
		assert_null(strstr(err.text, "evil"));
	}
}

/* TLS --------------------------------------------------------------------------------------------- */

static void tls_needs_a_known_ca(void **state)
{
	struct ps_origin_options with_ca = {.ca_file = server.ca}, insecure = {.insecure = true};
	const struct {
		const struct ps_origin_options *options;
		int errnum;
	} cases[] = {{&with_ca, 0}, {&insecure, 0}, {NULL, EHOSTUNREACH}};
	char url[128];
	struct call c;

	(void)state;
	snprintf(url, sizeof url, "%s/object.bin", server.https);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ps_origin *o = open_origin(server.https, "/", cases[i].options);

		fetch(o, &c, url, 0, 1000);
		if (c.err.err != cases[i].errnum)
			fail_msg("case %zu: %s", i, c.err.text);
		if (c.err.err) {
			assert_false(c.err.retryable);
			assert_non_null(strstr(c.err.text, "certificate"));
			assert_non_null(strstr(c.err.text, "CA"));
		}
		call_end(&c);
		o->ops->close(o);
	}
}

static void tls_name_must_fit(void **state)
{
	struct ps_origin_options options = {.ca_file = server.ca};
	char base[64], url[128];
	struct call c;

	(void)state;
	snprintf(base, sizeof base, "https://127.0.0.1:%d", server.tls_port);
	snprintf(url, sizeof url, "%s/object.bin", base);
	struct ps_origin *o = open_origin(base, "/", &options);
	fetch(o, &c, url, 0, 1000);
	assert_int_equal(c.err.err, EHOSTUNREACH);
	call_end(&c);
	o->ops->close(o);
}

static void tls_is_never_left_by_redirect(void **state)
{
	struct ps_origin_options options = {.ca_file = server.ca};
	struct ps_origin *o = open_origin(server.https, "/", &options);
	char url[128];
	struct call c;

	(void)state;
	snprintf(url, sizeof url, "%s/redirplain/object.bin", server.https);
	fetch(o, &c, url, 0, 1000);
	assert_int_equal(c.err.err, EPROTO);
	call_end(&c);
	/* The other way is fine. */
	snprintf(url, sizeof url, "%s/redirtls/object.bin", server.http);
	fetch(o, &c, url, 0, 1000);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	o->ops->close(o);
}

static void ca_file_must_be_there(void **state)
{
	struct ps_origin_options options = {.ca_file = "/no/such/file.pem"};
	struct ps_origin *o;
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(ps_origin_open("https://localhost/x", &options, &o, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/no/such/file.pem"));
}

/* Ends -------------------------------------------------------------------------------------------- */

static void cancel_in_mid_body(void **state)
{
	struct call c;
	char url[128];

	(void)state;
	snprintf(url, sizeof url, "%s/slow/object.bin", server.http);
	call_start(origin, &c, url, 0, PS_TEST_OBJECT_NBYTES);
	usleep(200000);
	uint64_t start = ps_clock_mono_ns();
	origin->ops->cancel(origin, &c.get);
	origin->ops->cancel(origin, &c.get);
	sem_wait(&c.done);
	assert_true(ps_clock_mono_ns() - start < PS_NS_PER_S / 2);
	assert_int_equal(c.err.err, ECANCELED);
	assert_true(c.get.nbytes_done > 0 && c.get.nbytes_done < PS_TEST_OBJECT_NBYTES);
	origin->ops->cancel(origin, &c.get); /* no effect any more */
	call_end(&c);
}

static void cancel_at_once(void **state)
{
	struct call c;
	char url[128];

	(void)state;
	snprintf(url, sizeof url, "%s/silent/x", server.http);
	for (int i = 0; i < 50; i++) {
		call_start(origin, &c, url, 0, 100);
		origin->ops->cancel(origin, &c.get);
		sem_wait(&c.done);
		assert_int_equal(c.err.err, ECANCELED);
		call_end(&c);
	}
}

static void close_with_transfers_in_flight(void **state)
{
	enum { N = 24 };
	static const char *const paths[] = {
	        "/slow/object.bin", "/silent/x", "/object.bin", "/stall/object.bin"};
	struct call *calls = calloc(N, sizeof *calls);
	char url[128];

	(void)state;
	struct ps_origin *o = open_origin(server.http, "/", NULL);
	for (int i = 0; i < N; i++) {
		snprintf(url, sizeof url, "%s%s", server.http, paths[i % 4]);
		call_start(o, &calls[i], url, 0, 1000000);
	}
	usleep(100000);
	uint64_t start = ps_clock_mono_ns();
	o->ops->close(o);
	assert_true(ps_clock_mono_ns() - start < PS_NS_PER_S);
	for (int i = 0; i < N; i++) {
		assert_int_equal(sem_trywait(&calls[i].done), 0);
		assert_true(calls[i].err.err == 0 || calls[i].err.err == ECANCELED);
		call_end(&calls[i]);
	}
	free(calls);
}

static void abort_ends_all_that_is_and_will_be(void **state)
{
	struct ps_origin *o = open_origin(server.http, "/", NULL);
	struct call c, d;
	char url[128];

	(void)state;
	snprintf(url, sizeof url, "%s/silent/x", server.http);
	call_start(o, &c, url, 0, 100);
	o->ops->abort(o);
	sem_wait(&c.done);
	assert_int_equal(c.err.err, ECANCELED);
	call_end(&c);
	fetch(o, &d, url, 0, 100);
	assert_int_equal(d.err.err, ECANCELED);
	call_end(&d);
	o->ops->close(o);
}

struct again {
	struct call call;
	int left;
	struct ps_origin *origin;
};

static void on_again(struct ps_get *get, const struct ps_error *err)
{
	struct again *a = (struct again *)((char *)get - offsetof(struct again, call.get));

	if (!err->err && a->left-- > 0) {
		a->call.told = 0;
		a->origin->ops->get(a->origin, get);
		return;
	}
	on_get(get, err);
}

static void get_may_be_submitted_again_inside_done(void **state)
{
	struct again a = {.left = 0};
	char url[128];

	(void)state;
	snprintf(url, sizeof url, "%s/object.bin", server.http);
	call_start(origin, &a.call, url, 5, 1000);
	sem_wait(&a.call.done);
	a.left = 30;
	a.origin = origin;
	a.call.get.done = on_again;
	a.call.told = 0;
	origin->ops->get(origin, &a.call.get);
	sem_wait(&a.call.done);
	assert_int_equal(a.left, -1);
	assert_int_equal(a.call.err.err, 0);
	call_end(&a.call);
}

/* Listings ---------------------------------------------------------------------------------------- */

struct names {
	char text[4096];
	int n;
	uint64_t known; /* sizes told, summed up */
};

static int collect(void *arg, const struct ps_listed *listed)
{
	struct names *names = arg;

	assert_int_equal(ps_path_check(listed->path), 0);
	assert_null(strchr(listed->url, '@'));
	snprintf(names->text + strlen(names->text), sizeof names->text - strlen(names->text), "%s\n",
	        listed->path);
	names->n++;
	if (listed->remote.size != PS_SIZE_UNKNOWN)
		names->known += listed->remote.size;
	return 0;
}

static int list(
        const char *path, const struct ps_origin_options *options, struct names *names, struct ps_error *err)
{
	struct ps_origin *o = open_origin(server.http, path, options);
	int rc = o->ops->list(o, collect, names, NULL, err);

	o->ops->close(o);
	return rc;
}

static void directory_is_listed_with_what_is_below(void **state)
{
	static const char *const paths[] = {"/tree/", "/json/tree/", "/flaky/tree/", "/redir/tree/", "/tree"};

	(void)state;
	for (size_t i = 0; i + 1 < sizeof paths / sizeof paths[0]; i++) {
		struct names names = {0};
		struct ps_error err = {0};

		if (list(paths[i], NULL, &names, &err) < 0)
			fail_msg("%s: %s", paths[i], err.text);
		assert_int_equal(names.n, 4);
		assert_int_equal(names.known, 7);
		assert_non_null(strstr(names.text, "a b&c'<>.tar\n"));
		assert_non_null(strstr(names.text, "sub/deep/x.tar\n"));
		assert_non_null(strstr(names.text, "sub/%41#?.tar\n"));
		assert_non_null(strstr(names.text, "\xc3\xa4.tar\n"));
	}
}

static void listed_urls_are_readable(void **state)
{
	struct call c;

	(void)state;
	ask_head(origin, &c, server.http, "/tree/sub/%2541%23%3F.tar");
	assert_int_equal(c.err.err, 0);
	assert_int_equal(c.head.seen.size, 2);
}

static void listing_that_is_none_is_refused(void **state)
{
	struct names names = {0};
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(list("/none/", NULL, &names, &err), -ENOENT);
	assert_int_equal(list("/basic/", NULL, &names, &err), -EACCES);
	assert_int_equal(list("/index/", NULL, &names, &err), -EPROTO);
	assert_int_equal(names.n, 0);
}

static void manifest_is_fetched_and_read(void **state)
{
	struct names names = {0};
	struct ps_error err = {0};

	(void)state;
	if (list("/lists/list.txt", NULL, &names, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(names.text, "one.tar\nsub/two-0.tar\nsub/two-1.tar\n");
	assert_int_equal(names.known, 11);
	assert_int_equal(list("/lists/bad.txt", NULL, &names, &err), -EINVAL);
	assert_non_null(strstr(err.text, "line 2"));
}

static void stopped_listing_ends_soon(void **state)
{
	struct ps_origin *o = open_origin(server.http, "/silent/", NULL);
	_Atomic bool stop = true;
	struct names names = {0};
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(o->ops->list(o, collect, &names, &stop, &err), -ECANCELED);
	o->ops->close(o);
}

static int set_up(void **state)
{
	struct call c;

	(void)state;
	ps_web_server_put(&server, "empty.bin", "", 0);
	ps_web_server_put(&server, "tree/a b&c'<>.tar", "1", 1);
	ps_web_server_put(&server, "tree/\xc3\xa4.tar", "333", 3);
	ps_web_server_put(&server, "tree/sub/%41#?.tar", "22", 2);
	ps_web_server_put(&server, "tree/sub/deep/x.tar", "1", 1);
	ps_web_server_put(&server, "index/index.html", "no markup here", 14);
	const char *list_text = "# shards\none.tar 11\r\n\nsub/two-{0,1}.tar\none.tar 11\n";
	ps_web_server_put(&server, "lists/list.txt", list_text, strlen(list_text));
	ps_web_server_put(&server, "lists/bad.txt", "one.tar\ntwo.tar twelve\n", 23);
	origin = open_origin(server.http, "/", NULL);
	ask_head(origin, &c, server.http, "/object.bin");
	version = c.head.seen;
	return c.err.err;
}

static int tear_down(void **state)
{
	(void)state;
	origin->ops->close(origin);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(range_is_read_into_its_vectors),
	        cmocka_unit_test(good_though_odd_answers_are_read),
	        cmocka_unit_test(whole_object_may_come_as_a_200),
	        cmocka_unit_test(parallel_gets_all_succeed),
	        cmocka_unit_test(connections_are_kept),
	        cmocka_unit_test(no_more_connections_than_allowed),
	        cmocka_unit_test(a_transfer_that_waits_for_its_place_is_cancelled_at_once),
	        cmocka_unit_test(every_fault_has_its_errno_and_no_wrong_byte),
	        cmocka_unit_test(faults_in_parallel_do_not_mix),
	        cmocka_unit_test(another_version_is_stale),
	        cmocka_unit_test(stall_is_found_in_time),
	        cmocka_unit_test(nobody_listens),
	        cmocka_unit_test(unknown_host),
	        cmocka_unit_test(head_tells_size_and_version),
	        cmocka_unit_test(head_fails_as_get_does),
	        cmocka_unit_test(credentials_stay_with_their_host),
	        cmocka_unit_test(url_may_bring_user_and_password),
	        cmocka_unit_test(errors_tell_no_secret),
	        cmocka_unit_test(signature_is_kept_aside_and_sent),
	        cmocka_unit_test(header_options_are_checked),
	        cmocka_unit_test(tls_needs_a_known_ca),
	        cmocka_unit_test(tls_name_must_fit),
	        cmocka_unit_test(tls_is_never_left_by_redirect),
	        cmocka_unit_test(ca_file_must_be_there),
	        cmocka_unit_test(cancel_in_mid_body),
	        cmocka_unit_test(cancel_at_once),
	        cmocka_unit_test(close_with_transfers_in_flight),
	        cmocka_unit_test(abort_ends_all_that_is_and_will_be),
	        cmocka_unit_test(get_may_be_submitted_again_inside_done),
	        cmocka_unit_test(directory_is_listed_with_what_is_below),
	        cmocka_unit_test(listed_urls_are_readable),
	        cmocka_unit_test(listing_that_is_none_is_refused),
	        cmocka_unit_test(manifest_is_fetched_and_read),
	        cmocka_unit_test(stopped_listing_ends_soon),
	};

	setenv("no_proxy", "*", 1);
	if (!ps_web_server_start(&server)) {
		printf("1..0 # SKIP nginx with its lua module, or openssl, is not installed\n");
		return 0;
	}
	int failed = cmocka_run_group_tests(tests, set_up, tear_down);
	ps_web_server_stop(&server);
	return failed;
}
