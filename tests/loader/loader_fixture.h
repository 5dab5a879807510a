/* Shared by the tests of the public interface: six shards of twenty photographs with a label and a text each,
 * settings that read them, and runs over them.
 *
 * Threads: one.   Errors: a test fails. */
#ifndef PS_TESTS_LOADER_FIXTURE_H
#define PS_TESTS_LOADER_FIXTURE_H

#include <errno.h>

#include "make_tar.h"

#include "batches.h"

#define SHARDS 6
#define PER_SHARD 20

extern struct photo photos[MAX_PHOTOS];
extern int nphotos;
extern const char *const pattern[1]; /* of the shards: t-N.tar */

/* Adds sample i of a shard: a photograph, the label shard * 1000 + i, and the first i % 7 letters of
 * "caption". */
void sample_add(struct tar *t, int shard, int i);

/* Setup and teardown of a test group: the shards in a folder of their own. */
int shards_make(void **state);
int shards_remove(void **state);

/* Small images, cls and txt; a shuffle window that is smaller than the data. */
struct setting {
	struct penstock_options o;
	struct penstock_field f[3];
};

void setting_init(struct setting *s);

/* A hash of everything in a batch, continued from h. */
uint64_t batch_hash(uint64_t h, const struct penstock_batch *b);

extern struct penstock_stats last_stats; /* of the last run_hash() */

/* A hash of all batches until the epochs end; *ret_rows: the number of rows (ret_rows may be NULL). */
uint64_t run_hash(const struct penstock_options *o, const char *const *shards, size_t n, uint64_t *ret_rows);

/* Calls next() to the end or to the first failure, and returns its code and text; asserts that the next call
 * returns the same code. */
int first_failure(const struct penstock_options *o, const char *shard, struct penstock_error *e);

#endif
