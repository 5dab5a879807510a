/* What the files of the index share, and what the store's own tests may do to it besides index.h. */
#ifndef PS_INDEX_INDEX_PRIVATE_H
#define PS_INDEX_INDEX_PRIVATE_H

#include <pthread.h>

#include "index/index.h"
#include "index/rocksdb.h"
#include "index/rows.h"

struct ps_numbers {
	const char *meta; /* its row: the first number not reserved */
	uint64_t next, end;
};

struct ps_index {
	struct ps_kv *kv;
	void (*failed)(void *arg, int e);
	void *failed_arg;
	int (*room)(void *arg, size_t nbytes);
	void *room_arg;
	size_t memtable_nbytes;
	bool was_clean, same_boot, kept;
	struct ps_stop_row stop; /* as it stands in the index since open */

	/* Over next and end, also while more are reserved: whoever waits wants exactly that. */
	pthread_mutex_t numbers_lock;
	struct ps_numbers nodes, datasets;
};

/* ps_index_open() as if the kernel's boot id were boot_id ("": unknown), on the mount that it was last on. */
int ps_index_open_at_boot(
        const char *dir, const char *boot_id, struct ps_index **ret, struct ps_error *err) PS_MUST_USE;

/* Overwrites the schema number, for the test of a directory from the future. */
int ps_index_set_schema(struct ps_index *index, uint64_t schema) PS_MUST_USE;

#endif
