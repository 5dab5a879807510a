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
#define PATIENT_MS 60000
#define SIZE (3 * TEST_MIB + 5)

struct fixture {
	char *dir;
	struct ps_cache *cache;
	struct ps_dataset *dataset;
	struct ps_names_origin *origin; /* of the dataset, or for the next attach */
	struct ps_error err;
	struct ps_handle *handles[8]; /* open: a test that fails leaves them to the teardown */
};

/* What attach gets, and, if it is not NULL, what comes next then. */
extern struct ps_names_origin *next_origin, *origin_after_next;

/* *state is the fixture. */
int setup(void **state);
int setup_small(void **state);   /* so small a cache that files of 20 MiB are cached by extents */
int setup_patient(void **state); /* its readers wait PATIENT_MS, not TIMEOUT_MS */
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
bool is_answered(struct answer *a);

/* Callbacks that answer: of lookups and the like, of opens. */
void attr_done(void *arg, int errnum, const struct ps_attr *attr);
void open_done(void *arg, int errnum, struct ps_handle *handle);

struct refreshing {
	struct ps_refresh refresh;
	struct ps_refreshed result;
	struct answer answer;
};

/* Lists again on behalf of a watch; wait_for(&r->answer) gives the errno. */
void refresh_begin(struct refreshing *r, struct ps_watch *watch);
/* Lists again and waits, without a watch of the caller's. */
int refresh(struct fixture *f, struct ps_refreshed *ret);

/* These wait, and give the errno. */
int lookup(struct fixture *f, const char *name, struct ps_attr *ret);
int lookup_in(struct fixture *f, uint64_t dir, const char *name, struct ps_attr *ret);
int getattr(struct fixture *f, uint64_t node, struct ps_attr *ret);
/* The row of a name of the root. The caller ends it. */
void row_of(struct fixture *f, const char *name, struct ps_node_row *ret);
int open_node(struct fixture *f, uint64_t node, struct ps_handle **ret);
/* The bytes are those of this version, or the test fails. */
int read_at(struct ps_handle *handle, uint64_t offset, size_t nbytes, uint64_t version);
void close_handle(struct fixture *f, struct ps_handle *handle);

/* What read_at() consists of: answer->right: the bytes are of the version. */
extern uint8_t expected_add;
void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs);

#endif
