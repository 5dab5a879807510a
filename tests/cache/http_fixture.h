/* Tests of the HTTP origin: a real nginx that misbehaves (web_server.h), an origin of it, and calls that one
 * can wait for, whose bytes are checked. For tests only. */
#ifndef PS_TESTS_HTTP_FIXTURE_H
#define PS_TESTS_HTTP_FIXTURE_H

#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>

#include "origin/origin.h"
#include "web_server.h"

/* Under a sanitizer the reading of the system's CA bundle alone takes a second. */
#ifdef PS_SANITIZERS
#define STALL_MS 5000
#else
#define STALL_MS 700
#endif

extern struct ps_web_server server;
extern struct ps_origin *origin; /* of server.http, short timeouts */
extern struct ps_remote version; /* of object.bin */

/* One read, or one HEAD, and its waiter. */
struct call {
	struct ps_origin_get get;
	struct ps_origin_head head;
	struct ps_error err;
	sem_t done;
	char url[512];
	uint8_t *bytes;
	size_t told; /* by progress */
	struct iovec iov[3];
};

/* Asks for so many bytes, into three uneven vectors. The end checks that what came is right and that nothing
 * else was touched, whatever the error. */
void call_start(struct ps_origin *o, struct call *c, const char *url, uint64_t offset, size_t n);
void call_end(struct call *c);
void call_check_bytes(struct call *c);

/* The ends of both, which wake the waiter. */
void on_get(struct ps_origin_get *get, const struct ps_error *err);
void on_head(struct ps_origin_head *head, const struct ps_error *err);

/* Starts one and waits for it; the end is the caller's. */
void fetch(struct ps_origin *o, struct call *c, const char *url, uint64_t offset, size_t n);
void fetch_path(struct call *c, const char *path, uint64_t offset, size_t n);

/* A HEAD of base and path, until it is answered. */
void ask_head(struct ps_origin *o, struct call *c, const char *base, const char *path);

/* Fails the test if it cannot be opened. */
struct ps_origin *open_origin(const char *base, const char *path, const struct ps_origin_options *more);

/* Runs the tests; what main() returns. prepare: puts what they need on the server that runs then; or NULL. */
int http_tests_run(const struct CMUnitTest *tests, size_t n, void (*prepare)(void));

#endif
