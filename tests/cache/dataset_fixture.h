/* For tests of datasets: a cache; a dataset of that cache, with a names origin (names_origin.h), which
 * --wrap puts in the place of real origins; calls that a test can wait for. */
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
#define PATIENT_MS 60000
#define SIZE (3 * TEST_MIB + 5)

struct fixture {
	char *dir;
	struct ps_cache *cache;
	struct ps_dataset *dataset;
	struct ps_names_origin *origin; /* of the dataset, or for the next attach */
	struct ps_error err;
	struct ps_handle *handles[8]; /* open handles: the teardown closes those that a failed test leaves */
};

/* The origin that the next open of an origin returns, and, unless NULL, the one that follows. */
extern struct ps_names_origin *next_origin, *origin_after_next;

/* *state is the fixture. */
int setup(void **state);
int setup_small(void **state);   /* the cache is so small that files of 20 MiB are cached by extents */
int setup_patient(void **state); /* readers wait PATIENT_MS, not TIMEOUT_MS */
int teardown(void **state);

int attach(struct fixture *f);
/* An attach that should fail, after which its origin is closed; the next origin has the same names. Returns
 * the attach's result. */
int attach_fails(struct fixture *f);
void detach(struct fixture *f);
/* Called before the dataset closes its origin: the next attach gets a new origin with the same names. */
void take_origin(struct fixture *f);

/* A call that a test can wait for. */
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
bool is_answered(struct answer *a);

/* The done callbacks of lookups and getattrs, and of opens; `arg` is the answer. */
void attr_done(void *arg, int errnum, const struct ps_attr *attr);
void open_done(void *arg, int errnum, struct ps_handle *handle);

struct refreshing {
	struct ps_refresh refresh;
	struct ps_refreshed result;
	struct answer answer;
};

/* Starts a refresh for a watch; wait_for(&r->answer) gives the errno. */
void refresh_begin(struct refreshing *r, struct ps_watch *watch);
/* Refreshes with a watch of its own, and waits. */
int refresh(struct fixture *f, struct ps_refreshed *ret);

/* These wait and return the errno. */
int lookup(struct fixture *f, const char *name, struct ps_attr *ret);
int lookup_in(struct fixture *f, uint64_t dir, const char *name, struct ps_attr *ret);
int getattr(struct fixture *f, uint64_t node, struct ps_attr *ret);
/* The row of a name of the root. The caller calls ps_node_row_fini(). */
void row_of(struct fixture *f, const char *name, struct ps_node_row *ret);
int open_node(struct fixture *f, uint64_t node, struct ps_handle **ret);
/* Fails the test if the bytes are not those of this version. */
int read_at(struct ps_handle *handle, uint64_t offset, size_t nbytes, uint64_t version);
void close_handle(struct fixture *f, struct ps_handle *handle);

/* The parts of read_at(). read_done() expects bytes of version expected_add and sets answer->right. */
extern uint8_t expected_add;
void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs);

#endif
