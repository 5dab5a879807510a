/* What tests against the model of epochs share: its shards on the disk, with indexes and, in the folder
 * `bare`, without; loaders of its settings, and their courses.
 *
 * Threads: one.   Errors: a test fails. */
#ifndef PS_TESTS_LOADER_EPOCH_FIXTURE_H
#define PS_TESTS_LOADER_EPOCH_FIXTURE_H

#include "make_tar.h"

#include "epoch_model.h"
#include "penstock.h"

/* Of random settings: a third of n, n by scripts/check --all. */
#ifdef __SANITIZE_THREAD__ /* many times slower */
#define TRIES(n) ((n) / 6)
#else
#define TRIES(n) (getenv("PENSTOCK_TEST_LONG") ? (n) : (n) / 3)
#endif

/* In a folder of their own, shard i with i * 5 % 13 samples (some have none); for a group. */
int shards_make(void **state);
int shards_remove(void **state);

/* NULL: it was refused, and the text printed. */
struct penstock_loader *open_setting(
        const struct setting *s, uint32_t rank, bool bare, const void *state, size_t nbytes);

/* The next batch, added to a course; false at the end of the epoch, or (ret_stale may be NULL: that fails)
 * after a state that was of no use. */
bool batch_take_or_stale(struct penstock_loader *l, struct course *c, bool *ret_stale);
bool batch_take(struct penstock_loader *l, struct course *c);

void setting_print(const struct setting *s);

/* Or the test fails, and says where they part. */
void same(const struct setting *s, uint32_t rank, const struct course *have, const struct course *want);

#endif
