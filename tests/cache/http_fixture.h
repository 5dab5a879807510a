/* For tests of the HTTP origin: an nginx with faults (web_server.h), an origin on it, and calls that a test
 * can wait for and whose bytes are checked. */
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

/* Under a sanitizer, reading the system's CA bundle alone takes a second. */
#ifdef PS_SANITIZERS
#define STALL_MS 5000
#else
#define STALL_MS 700
#endif

extern struct ps_web_server server;
extern struct ps_origin *origin; /* of server.http, with short timeouts */
extern struct ps_remote version; /* of object.bin */

/* One read, or one HEAD, and its waiter. */
struct call {
	struct ps_origin_get get;
	struct ps_origin_head head;
	struct ps_error err;
	sem_t done;
	char url[512];
	uint8_t *bytes;
	size_t nbytes_reported; /* by progress() */
	bool dropped;           /* bytes came that were dropped: set by the test; they may be in the memory */
	struct iovec iov[3];
};

/* Requests n bytes into three vectors of unequal length. call_end() checks that the received bytes are right
 * and that no other byte was written, whatever the error. */
void call_start(struct ps_origin *o, struct call *c, const char *url, uint64_t offset, size_t n);
void call_end(struct call *c);
void call_check_bytes(struct call *c);

/* The done callbacks of gets and HEADs: wake the waiter. */
void on_get(struct ps_origin_get *get, const struct ps_error *err);
void on_head(struct ps_origin_head *head, const struct ps_error *err);

/* call_start(), and wait; the caller calls call_end(). */
void fetch(struct ps_origin *o, struct call *c, const char *url, uint64_t offset, size_t n);
void fetch_path(struct call *c, const char *path, uint64_t offset, size_t n);

/* Sends a HEAD for base and path, and waits for its answer. */
void ask_head(struct ps_origin *o, struct call *c, const char *base, const char *path);

/* Fails the test if the origin does not open. */
struct ps_origin *open_origin(const char *base, const char *path, const struct ps_origin_options *more);

/* Runs the tests and returns what main() should return. prepare: NULL, or puts the files that the tests need
 * on the server, which runs by then. */
int http_tests_run(const struct CMUnitTest *tests, size_t n, void (*prepare)(void));

#endif
