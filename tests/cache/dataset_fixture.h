/* Tests of datasets: a cache, and a dataset of it over an origin of a few names (names_origin.h), which
 * --wrap puts in the place of real ones; calls that one can wait for. For tests only. */
#ifndef PS_TESTS_DATASET_FIXTURE_H
#define PS_TESTS_DATASET_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "cache.h"
#include "tests/cache/cache_test.h"
#include "tests/cache/names_origin.h"
#include "tests/cache/pattern_origin.h"

#define TIMEOUT_MS 2000
#define SIZE (3 * TEST_MIB + 5)

struct fixture {
	char *dir;
	struct ps_cache *cache;
	struct ps_dataset *dataset;
	struct ps_names_origin *origin; /* of the dataset, or for the next attach */
	struct ps_error err;
	struct ps_handle *handles[8]; /* open: a test that fails leaves them to the teardown */
};

/* What attach gets. */
extern struct ps_names_origin *next_origin;

/* *state is the fixture. */
int setup(void **state);
int setup_small(void **state); /* so small a cache that files of 20 MiB are cached by extents */
int teardown(void **state);

int attach(struct fixture *f);
/* An attach to an origin that the cache closes; the next one has the same names. */
int attach_fails(struct fixture *f);
void detach(struct fixture *f);
/* The origin is about to go with its dataset: the next attach gets one of the same names. */
void take_origin(struct fixture *f);

/* Calls that one can wait for. */
struct answer {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done, right;
	int errnum;
	struct ps_attr attr;
	struct ps_handle *handle;
	struct ps_read read;
};

#define ANSWER_INIT                                                                 \
	{                                                                           \
		.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER \
	}

int wait_for(struct answer *a);

/* These wait, and give the errno. */
int lookup(struct fixture *f, const char *name, struct ps_attr *ret);
int lookup_in(struct fixture *f, uint64_t dir, const char *name, struct ps_attr *ret);
int open_node(struct fixture *f, uint64_t node, struct ps_handle **ret);
/* The bytes are those of this version, or the test fails. */
int read_at(struct ps_handle *handle, uint64_t offset, size_t nbytes, uint64_t version);
void close_handle(struct fixture *f, struct ps_handle *handle);

/* What read_at() consists of: answer->right: the bytes are of the version. */
extern uint8_t expected_add;
void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs);

#endif
