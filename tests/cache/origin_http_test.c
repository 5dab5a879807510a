/* The HTTP origin: reads and HEADs that succeed, and gets that are cancelled or aborted. */
#include "http_fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* Reads that succeed ------------------------------------------------------------------------------------- */

static void range_is_read_into_its_vectors(void **state)
{
	static const struct {
		uint64_t offset;
		size_t n;
	} ranges[] = {{0, 1}, {0, 2}, {0, 100}, {1, 7}, {4095, 70000}, {PS_TEST_OBJECT_NBYTES - 1, 1},
	        {0, PS_TEST_OBJECT_NBYTES}, {1000000, 2000000}};
	struct call c;

	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		fetch_path(&c, "/object.bin", ranges[i].offset, ranges[i].n);
		assert_int_equal(c.err.err, 0);
		assert_int_equal(c.get.wire_nbytes, ranges[i].n);
		assert_true(c.get.first_byte_ns > 0);
		assert_string_equal(c.get.seen.etag, version.etag);
		assert_int_equal(c.get.seen.size, PS_TEST_OBJECT_NBYTES);
		call_end(&c);
	}
}

static void unusual_but_valid_answers_are_read(void **state)
{
	static const char *const paths[] = {"/nolength/object.bin", "/gz/object.bin", "/redir/object.bin",
	        "/redirother/object.bin", "/nohead/object.bin"};
	struct call c;

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
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
	struct call *calls = calloc(N, sizeof(*calls));
	char url[256];

	(void)state;
	snprintf(url, sizeof(url), "%s/object.bin", server.http);
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

static void connections_are_reused(void **state)
{
	struct call c;

	(void)state;
	for (int i = 0; i < 20; i++) {
		fetch_path(&c, "/s503/x", 0, 10);
		call_end(&c);
		fetch_path(&c, "/object.bin", 0, 10);
		assert_int_equal(c.err.err, 0);
		call_end(&c);
	}
	/* All requests used one connection, whose number is in the log's last line and in those before
	 * it. */
	char path[128], line[4096] = "";
	snprintf(path, sizeof(path), "%s/access.log", server.dir);
	usleep(50000);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		;
	fclose(f);
	char *connection = strstr(line, "connection=");
	assert_non_null(connection);
	assert_true(ps_web_server_seen(&server, connection, "") >= 40);
}

/* Distinct connections of the lines of the access log that contain `mark`. */
static unsigned connections_of(const char *mark)
{
	char path[128], line[4096], seen[32][32];
	unsigned n = 0;

	snprintf(path, sizeof(path), "%s/access.log", server.dir);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		const char *connection = strstr(line, "connection=");
		unsigned i = 0;

		if (!strstr(line, mark) || !connection)
			continue;
		size_t len = PS_MIN(strcspn(connection, " \n"), sizeof(seen[0]) - 1);
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
	const struct ps_origin_options options = {.http.max_connections = 2};
	struct ps_origin *limited;
	struct ps_error err = {0};
	struct call gets[6], heads[6];
	char url[256];

	(void)state;
	snprintf(url, sizeof(url), "%s/", server.http);
	assert_int_equal(ps_origin_open(url, &options, &limited, &err), 0);
	for (int i = 0; i < 6; i++) {
		snprintf(url, sizeof(url), "%s/late/object.bin", server.http);
		call_start(limited, &gets[i], url, 0, 100);
		memset(&heads[i], 0, sizeof(heads[i]));
		sem_init(&heads[i].done, 0, 0);
		snprintf(heads[i].url, sizeof(heads[i].url), "%s", url);
		heads[i].head = (struct ps_origin_head){.url = heads[i].url, .done = on_head};
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

static void a_transfer_that_waits_for_a_connection_is_cancelled_at_once(void **state)
{
	const struct ps_origin_options options = {.http.max_connections = 1};
	struct ps_origin *limited;
	struct ps_error err = {0};
	struct call first, second;
	char url[256];

	(void)state;
	snprintf(url, sizeof(url), "%s/", server.http);
	assert_int_equal(ps_origin_open(url, &options, &limited, &err), 0);
	snprintf(url, sizeof(url), "%s/later/object.bin", server.http);
	call_start(limited, &first, url, 0, 100);
	call_start(limited, &second, url, 0, 100);
	limited->ops->cancel(limited, &second.get);
	sem_wait(&second.done);
	assert_int_equal(second.err.err, ECANCELED);
	call_end(&second);
	limited->ops->close(limited); /* the close does not wait either */
	assert_int_equal(first.err.err, ECANCELED);
	call_end(&first);
}

/* HEAD --------------------------------------------------------------------------------------------------- */

static void a_head_gives_size_and_version(void **state)
{
	static const char *const paths[] = {"/object.bin", "/nohead/object.bin", "/redir/object.bin"};
	struct call c;

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
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

static void a_head_fails_as_a_get_does(void **state)
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

static void without_a_version_the_first_bytes_mark_it(void **state)
{
	static const char *const paths[] = {"/noversion/", "/noversionnohead/"};
	static char small[2][1000];
	char marks[2][PS_ETAG_LEN];
	struct call c;

	(void)state;
	small[1][999] = 1;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct ps_origin *o = open_origin(server.http, paths[i], NULL);
		char path[64];

		/* In the second round the bytes differ, and so must the mark. */
		for (int j = 0; j < 2; j++) {
			snprintf(path, sizeof(path), "%ssmall.bin", paths[i]);
			ps_web_server_put(&server, "small.bin", small[j], sizeof(small[j]));
			ask_head(o, &c, server.http, path);
			assert_int_equal(c.err.err, 0);
			assert_int_equal(c.head.seen.size, sizeof(small[j]));
			assert_true(ps_remote_is_marked(&c.head.seen));
			assert_true(ps_remote_versionless(&c.head.seen));
			strcpy(marks[j], c.head.seen.etag);
		}
		assert_string_not_equal(marks[0], marks[1]);
		snprintf(path, sizeof(path), "%sempty.bin", paths[i]);
		ask_head(o, &c, server.http, path);
		assert_int_equal(c.err.err, 0);
		assert_int_equal(c.head.seen.size, 0);
		snprintf(path, sizeof(path), "%sobject.bin", paths[i]);
		ask_head(o, &c, server.http, path);
		assert_int_equal(c.head.seen.size, PS_TEST_OBJECT_NBYTES);
		assert_true(ps_remote_is_marked(&c.head.seen));
		o->ops->close(o);
	}

	struct call cut;
	struct ps_origin *o = open_origin(server.http, "/noversioncut/", NULL);
	ask_head(o, &cut, server.http, "/noversioncut/object.bin");
	assert_int_equal(cut.err.err, EIO);
	assert_true(cut.err.retryable);
	if (!strstr(cut.err.text, "the connection ended ") || !strstr(cut.err.text, " bytes early"))
		fail_msg("%s", cut.err.text);
	o->ops->close(o);

	struct ps_remote kept = version;
	version = c.head.seen;
	fetch_path(&c, "/noversion/object.bin", 0, 300000);
	assert_int_equal(c.err.err, 0);
	call_end(&c);

	ps_remote_mark(&version, 0);
	fetch_path(&c, "/noversion/object.bin", 0, 300000);
	assert_int_equal(c.err.err, ESTALE);
	assert_false(c.err.retryable);
	assert_int_equal(c.get.nbytes_done, 0);
	assert_int_equal(c.nbytes_reported, 0);
	free(c.bytes);
	sem_destroy(&c.done);
	fetch_path(&c, "/noversion/object.bin", PS_MARKED_NBYTES, 300000);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	version = kept;
}

/* Ends --------------------------------------------------------------------------------------------------- */

static void a_cancel_in_mid_body_ends_the_get(void **state)
{
	struct call c;
	char url[128];

	(void)state;
	snprintf(url, sizeof(url), "%s/slow/object.bin", server.http);
	call_start(origin, &c, url, 0, PS_TEST_OBJECT_NBYTES);
	usleep(200000);
	uint64_t start = ps_clock_mono_ns();
	origin->ops->cancel(origin, &c.get);
	origin->ops->cancel(origin, &c.get);
	sem_wait(&c.done);
	assert_true(ps_clock_mono_ns() - start < PS_NS_PER_S / 2);
	assert_int_equal(c.err.err, ECANCELED);
	assert_true(c.get.nbytes_done > 0 && c.get.nbytes_done < PS_TEST_OBJECT_NBYTES);
	origin->ops->cancel(origin, &c.get); /* no effect after the end */
	call_end(&c);
}

static void a_get_may_be_cancelled_at_once(void **state)
{
	struct call c;
	char url[128];

	(void)state;
	snprintf(url, sizeof(url), "%s/silent/x", server.http);
	for (int i = 0; i < 50; i++) {
		call_start(origin, &c, url, 0, 100);
		origin->ops->cancel(origin, &c.get);
		sem_wait(&c.done);
		assert_int_equal(c.err.err, ECANCELED);
		call_end(&c);
	}
}

static void close_ends_transfers_in_flight(void **state)
{
	enum { N = 24 };
	static const char *const paths[] = {
	        "/slow/object.bin", "/silent/x", "/object.bin", "/stall/object.bin"};
	struct call *calls = calloc(N, sizeof(*calls));
	char url[128];

	(void)state;
	struct ps_origin *o = open_origin(server.http, "/", NULL);
	for (int i = 0; i < N; i++) {
		snprintf(url, sizeof(url), "%s%s", server.http, paths[i % 4]);
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

static void abort_ends_present_and_later_gets(void **state)
{
	struct ps_origin *o = open_origin(server.http, "/", NULL);
	struct call c, d;
	char url[128];

	(void)state;
	snprintf(url, sizeof(url), "%s/silent/x", server.http);
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

static void on_again(struct ps_origin_get *get, const struct ps_error *err)
{
	struct again *a = (struct again *)((char *)get - offsetof(struct again, call.get));

	if (!err->err && a->left-- > 0) {
		a->call.nbytes_reported = 0;
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
	snprintf(url, sizeof(url), "%s/object.bin", server.http);
	call_start(origin, &a.call, url, 5, 1000);
	sem_wait(&a.call.done);
	a.left = 30;
	a.origin = origin;
	a.call.get.done = on_again;
	a.call.nbytes_reported = 0;
	origin->ops->get(origin, &a.call.get);
	sem_wait(&a.call.done);
	assert_int_equal(a.left, -1);
	assert_int_equal(a.call.err.err, 0);
	call_end(&a.call);
}

/* Threads of transfers ----------------------------------------------------------------------------------- */

/* A thread that cannot be woken would let its requests wait for a minute. */
static void without_a_descriptor_left_no_origin_opens(void **state)
{
	struct ps_origin *none = NULL;
	struct ps_error err = {0};
	struct rlimit was, few;
	int next = dup(STDERR_FILENO);

	(void)state;
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	int rc = ps_origin_open(server.http, NULL, &none, &err);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_true(rc < 0);
	assert_non_null(strstr(err.text, "cannot start a thread for transfers"));
}

static _Atomic unsigned npolls;

/* Instead of the C library's: curl asks by this function which sockets are ready. */
__attribute__((visibility("default"))) int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	const struct timespec timeout = {
	        .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};

	npolls++;
	return ppoll(fds, n, timeout_ms < 0 ? NULL : &timeout, NULL);
}

/* A round of curl asks about each transfer's socket, so a piece of a body must not cost two. */
static void a_piece_of_a_body_costs_one_round_over_all_transfers(void **state)
{
	enum { IDLE = 3, PIECES = 40 };
	struct ps_origin *o = open_origin(server.http, "/", NULL);
	struct call idle[IDLE], c;
	char url[128];

	(void)state;
	for (int i = 0; i < IDLE; i++) {
		snprintf(url, sizeof(url), "%s/silent/x", server.http);
		call_start(o, &idle[i], url, 0, 100);
	}
	usleep(100000); /* their requests have been sent */
	unsigned before = npolls;
	snprintf(url, sizeof(url), "%s/pieces/object.bin", server.http);
	fetch(o, &c, url, 0, PIECES * 1000);
	unsigned each = (npolls - before) / PIECES;
	print_message("# %u polls for a piece, %u in all\n", each, npolls);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	o->ops->abort(o);
	for (int i = 0; i < IDLE; i++) {
		sem_wait(&idle[i].done);
		call_end(&idle[i]);
	}
	o->ops->close(o);
	/* A wait for the piece, a question about each transfer, a look whether there is more; and some ticks. */
	assert_in_range(each, 1, 2 * (IDLE + 1));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(without_a_descriptor_left_no_origin_opens),
	        cmocka_unit_test(range_is_read_into_its_vectors),
	        cmocka_unit_test(unusual_but_valid_answers_are_read),
	        cmocka_unit_test(whole_object_may_come_as_a_200),
	        cmocka_unit_test(parallel_gets_all_succeed),
	        cmocka_unit_test(connections_are_reused),
	        cmocka_unit_test(no_more_connections_than_allowed),
	        cmocka_unit_test(a_transfer_that_waits_for_a_connection_is_cancelled_at_once),
	        cmocka_unit_test(a_head_gives_size_and_version),
	        cmocka_unit_test(a_head_fails_as_a_get_does),
	        cmocka_unit_test(without_a_version_the_first_bytes_mark_it),
	        cmocka_unit_test(a_cancel_in_mid_body_ends_the_get),
	        cmocka_unit_test(a_get_may_be_cancelled_at_once),
	        cmocka_unit_test(close_ends_transfers_in_flight),
	        cmocka_unit_test(abort_ends_present_and_later_gets),
	        cmocka_unit_test(get_may_be_submitted_again_inside_done),
	        cmocka_unit_test(a_piece_of_a_body_costs_one_round_over_all_transfers),
	};

	return http_tests_run(tests, PS_ARRAY_LEN(tests), NULL);
}
