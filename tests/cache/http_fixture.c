#include "http_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENTINEL 0xa5

struct ps_web_server server;
struct ps_origin *origin;
struct ps_remote version;

static void on_progress(struct ps_origin_get *get, size_t n)
{
	struct call *c = (struct call *)((char *)get - offsetof(struct call, get));

	assert_true(n > c->nbytes_reported && n <= get->nbytes);
	c->nbytes_reported = n;
}

void on_get(struct ps_origin_get *get, const struct ps_error *err)
{
	struct call *c = (struct call *)((char *)get - offsetof(struct call, get));

	c->err = *err;
	sem_post(&c->done);
}

void on_head(struct ps_origin_head *head, const struct ps_error *err)
{
	struct call *c = (struct call *)((char *)head - offsetof(struct call, head));

	c->err = *err;
	sem_post(&c->done);
}

void call_start(struct ps_origin *o, struct call *c, const char *url, uint64_t offset, size_t n)
{
	memset(c, 0, sizeof(*c));
	sem_init(&c->done, 0, 0);
	snprintf(c->url, sizeof(c->url), "%s", url);
	c->bytes = malloc(n);
	assert_non_null(c->bytes);
	memset(c->bytes, SENTINEL, n);
	/* Three vectors of unequal length: their boundaries are in the middle of the data. */
	c->iov[0] = (struct iovec){c->bytes, n / 3};
	c->iov[1] = (struct iovec){c->bytes + n / 3, n / 3 ? 1 : 0};
	c->iov[2] = (struct iovec){c->bytes + n / 3 + c->iov[1].iov_len, n - n / 3 - c->iov[1].iov_len};
	c->get = (struct ps_origin_get){.url = c->url,
	        .expect = version,
	        .offset = offset,
	        .nbytes = n,
	        .iov = c->iov,
	        .niov = 3,
	        .progress = on_progress,
	        .done = on_get};
	o->ops->get(o, &c->get);
}

/* Whatever the result, the first nbytes_done bytes are right, and the rest was not written. */
void call_check_bytes(struct call *c)
{
	assert_true(c->get.nbytes_done <= c->get.nbytes);
	assert_int_equal(c->nbytes_reported, c->get.nbytes_done);
	for (size_t i = 0; i < c->get.nbytes_done; i++)
		if (c->bytes[i] != ps_web_server_byte(c->get.offset + i))
			fail_msg("byte %zu is wrong", i);
	for (size_t i = c->get.nbytes_done; !c->dropped && i < c->get.nbytes; i++)
		if (c->bytes[i] != SENTINEL)
			fail_msg("byte %zu was touched, %zu are done", i, c->get.nbytes_done);
	if (!c->err.err)
		assert_int_equal(c->get.nbytes_done, c->get.nbytes);
}

void call_end(struct call *c)
{
	call_check_bytes(c);
	free(c->bytes);
	sem_destroy(&c->done);
}

void fetch(struct ps_origin *o, struct call *c, const char *url, uint64_t offset, size_t n)
{
	call_start(o, c, url, offset, n);
	sem_wait(&c->done);
}

void fetch_path(struct call *c, const char *path, uint64_t offset, size_t n)
{
	char url[256];

	snprintf(url, sizeof(url), "%s%s", server.http, path);
	fetch(origin, c, url, offset, n);
}

void ask_head(struct ps_origin *o, struct call *c, const char *base, const char *path)
{
	memset(c, 0, sizeof(*c));
	sem_init(&c->done, 0, 0);
	snprintf(c->url, sizeof(c->url), "%s%s", base, path);
	c->head = (struct ps_origin_head){.url = c->url, .done = on_head};
	o->ops->head(o, &c->head);
	sem_wait(&c->done);
	sem_destroy(&c->done);
}

struct ps_origin *open_origin(const char *base, const char *path, const struct ps_origin_options *more)
{
	struct ps_origin_options options = more ? *more : (struct ps_origin_options){0};
	struct ps_origin *o = NULL;
	struct ps_error err = {0};
	char source[256];

	snprintf(source, sizeof(source), "%s%s", base, path);
	options.http.stall_timeout_ms = STALL_MS;
	options.http.connect_timeout_ms = 2000;
	if (ps_origin_open(source, &options, &o, &err) < 0)
		fail_msg("%s", err.text);
	return o;
}

static int set_up(void **state)
{
	struct call c;

	(void)state;
	ps_web_server_put(&server, "empty.bin", "", 0);
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

int http_tests_run(const struct CMUnitTest *tests, size_t n, void (*prepare)(void))
{
	setenv("no_proxy", "*", 1);
	if (!ps_web_server_start(&server)) {
		printf("1..0 # SKIP nginx with its lua module, or openssl, is not installed\n");
		return 0;
	}
	if (prepare)
		prepare();
	int failed = _cmocka_run_group_tests("http", tests, n, set_up, tear_down);
	ps_web_server_stop(&server);
	return failed;
}
