/* Shared by tests of whole loaders: opening a loader, a batch's tensors, and a hash of their bytes. Include
 * after cmocka.h. */
#ifndef PS_TESTS_LOADER_BATCHES_H
#define PS_TESTS_LOADER_BATCHES_H

#include <stdint.h>

#include "penstock.h"

/* Opens a loader, or the test fails. */
static inline struct penstock_loader *open_ok(
        const struct penstock_options *o, const char *const *shards, size_t n)
{
	struct penstock_loader *l;
	struct penstock_error e;

	if (penstock_loader_open(o, shards, n, &l, &e) < 0)
		fail_msg("%s", e.text);
	return l;
}

/* A tensor of the batch, or the test fails. */
static inline struct penstock_tensor field(const struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;
	struct penstock_error e;

	if (penstock_batch_field(b, name, &t, &e) < 0)
		fail_msg("%s", e.text);
	return t;
}

/* FNV-1a, continued from h. */
static inline uint64_t hash(uint64_t h, const void *p, size_t n)
{
	const uint8_t *s = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 0x100000001b3u;
	return h;
}

#endif
