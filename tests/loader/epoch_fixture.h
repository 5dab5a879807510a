/* Shared by tests that compare with the model of epochs (epoch_model.h): the model's shards on disk, with
 * indexes and, in the folder `bare`, without; loaders with the model's settings, and their courses.
 *
 * Threads: one.   Errors: a test fails. */
#ifndef PS_TESTS_LOADER_EPOCH_FIXTURE_H
#define PS_TESTS_LOADER_EPOCH_FIXTURE_H

#include "make_tar.h"

#include "epoch_model.h"
#include "penstock.h"

/* How many random settings a test tries: n / 3, or n with scripts/check --all. */
#ifdef __SANITIZE_THREAD__ /* is many times slower */
#define TRIES(n) ((n) / 6)
#else
#define TRIES(n) (getenv("PENSTOCK_TEST_LONG") ? (n) : (n) / 3)
#endif

/* Setup and teardown of a test group: shards in a folder of their own. Shard i has i * 5 % 13 samples,
 * shard 0 none. */
int shards_make(void **state);
int shards_remove(void **state);

/* NULL: the options were refused, and the error was printed. */
struct penstock_loader *open_setting(
        const struct setting *s, uint32_t rank, bool bare, const void *state, size_t nbytes);

/* Adds the next batch to a course. False at the end of the epoch, or if the state is stale: then *ret_stale
 * is true; without ret_stale the test fails. */
bool batch_take_or_stale(struct penstock_loader *l, struct course *c, bool *ret_stale);
bool batch_take(struct penstock_loader *l, struct course *c);

void setting_print(const struct setting *s);

/* Asserts that two courses are the same; a failure prints the first difference. */
void same(const struct setting *s, uint32_t rank, const struct course *have, const struct course *want);

#endif
