/* Shared by tests of fields other than images: a shard f.tar in a folder of its own, whose samples are
 * numbered, and settings that read it.
 *
 * Threads: one.   Errors: a test fails. */
#ifndef PS_TESTS_LOADER_FIELDS_FIXTURE_H
#define PS_TESTS_LOADER_FIELDS_FIXTURE_H

#include <stdbool.h>

#include "make_tar.h"

#include "penstock.h"

extern const char *const pattern[1];

/* Setup and teardown of a test group: enter and remove the folder. */
int setup(void **state);
int teardown(void **state);

struct setting {
	struct penstock_options o;
	struct penstock_field f[4];
};

/* n fields; samples come in the order of the shard. */
struct penstock_field *setting_init(struct setting *s, uint32_t n);

void field_set(struct penstock_field *f, const char *name, uint32_t kind);

/* Adds a member `suffix` of sample `i` to the tar. */
void member(struct tar *t, int i, const char *suffix, const void *data, size_t n);
void member_text(struct tar *t, int i, const char *suffix, const char *text);

/* Adds a .npy of version 1, with its header as NumPy writes it. */
void member_npy(struct tar *t, int i, const char *suffix, const char *descr, bool fortran, const char *shape,
        const void *data, size_t n);

/* Ends the tar and makes it the shard. */
void shard_end(struct tar *t);

/* Writes the shard with one sample of one member. */
void one_text(const char *suffix, const char *text);

struct penstock_batch *next_ok(struct penstock_loader *l);
struct penstock_tensor tensor(const struct penstock_batch *b, const char *name);

/* Asserts that the shard's only sample is bad, and that the error contains `says`. */
void bad_because(const struct penstock_options *o, const char *says);

#define SHAPE(t, ...)                                                       \
	do {                                                                \
		const uint64_t want_[] = {__VA_ARGS__};                     \
		assert_int_equal((t).ndim, sizeof(want_) / sizeof(*want_)); \
		for (uint32_t d_ = 0; d_ < (t).ndim; d_++)                  \
			assert_int_equal((t).shape[d_], want_[d_]);         \
	} while (0)

#define HOLDS(t, type, ...)                                          \
	do {                                                         \
		const type want_[] = {__VA_ARGS__};                  \
		assert_int_equal((t).nbytes, sizeof(want_));         \
		assert_memory_equal((t).data, want_, sizeof(want_)); \
	} while (0)

#endif
