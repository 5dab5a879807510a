/* What the store's own tests may do to an index besides index.h. */
#ifndef PS_STORE_INDEX_PRIVATE_H
#define PS_STORE_INDEX_PRIVATE_H

#include "store/index.h"

/* ps_index_open() as if the kernel's boot id were boot_id ("": unknown). */
int ps_index_open_at_boot(
        const char *dir, const char *boot_id, struct ps_index **ret, struct ps_error *err) PS_MUST_USE;

/* Overwrites the schema number, for the test of a directory from the future. */
int ps_index_set_schema(struct ps_index *index, uint64_t schema) PS_MUST_USE;

#endif
