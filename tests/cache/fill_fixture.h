/* A fetch engine with a real store and the pattern origin, and reads whose end a test can wait for. */
#ifndef PS_TESTS_FILL_FIXTURE_H
#define PS_TESTS_FILL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "base/clock.h"
#include "base/size.h"
#include "fetch/fill.h"
#include "tests/cache/pattern_origin.h"

/* Sanitizers make the origin, which computes its bytes, ten times slower. */
#ifdef PS_SANITIZERS
#define TIMEOUT_MS 10000
#else
#define TIMEOUT_MS 1500
#endif

struct fixture {
	char dir[64];
	struct ps_store *store;
	struct ps_fill *fill;
	struct ps_pattern_origin *origin;
	struct ps_object *object;
	struct ps_fill_file *file;
	uint64_t nbytes; /* of the file */
};

/* Where a value is 0, the default holds. */
struct fixture_options {
	uint64_t cache_bytes, file_nbytes, memory_bytes, max_bytes_per_s, timeout_ms;
	unsigned max_connections;
};
#define FIXTURE_FILE_NBYTES (40 * PS_MIB + 12345)

struct fixture *fixture_new(const struct fixture_options *options);
/* Stops everything, keeps the directory, and starts again in it. */
void fixture_restart(struct fixture *f, const struct fixture_options *options);
/* The two halves of fixture_restart(). */
void fixture_stop(struct fixture *f);
void fixture_start(struct fixture *f, const struct fixture_options *options);
void fixture_free(struct fixture *f);

/* For cmocka: a fixture with all defaults. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* Another file of the same origin and size; the caller puts it. */
struct ps_fill_file *another_file(struct fixture *f, const char *url);

struct waited {
	struct ps_read read;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done, right, in_memory;
	int errnum;
	uint64_t answered_ns;
};

/* Starts a read of [offset, offset + nbytes), cut at the file's end. True: the read has to wait. */
bool begin_of(struct fixture *f, struct ps_fill_file *file, struct waited *w, enum ps_access access,
        uint64_t offset, size_t nbytes);
bool begin(struct fixture *f, struct waited *w, uint64_t offset, size_t nbytes); /* of a stream */
int end(struct waited *w);                                                       /* waits; the read's errno */
/* True if the segments are the bytes [from, end) of the file, in order. */
bool segments_right(
        const struct ps_segment *segs, size_t nsegs, uint64_t from, uint64_t end, bool *ret_in_memory);
/* These two read, wait, and return the read's errno. Wrong bytes fail the test. */
int read_once(struct fixture *f, uint64_t offset, size_t nbytes);
int read_random(struct fixture *f, uint64_t offset, size_t nbytes);

#endif
