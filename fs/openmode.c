#include "openmode.h"

#include <errno.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* uthash's hash function falls through its cases without a word that clang knows. */
#pragma GCC diagnostic ignored "-Wimplicit-fallthrough"

#include "base/cleanup.h"

struct ps_openmode {
	uint64_t node;
	unsigned nhandles;
	enum ps_open_mode mode;
	int backing_id;
	UT_hash_handle hh;
};

void ps_openmode_init(struct ps_openmode_table *table)
{
	pthread_mutex_init(&table->lock, NULL);
	table->nodes = NULL;
}

void ps_openmode_fini(struct ps_openmode_table *table)
{
	struct ps_openmode *m, *next;

	/* Handles the kernel never released: the connection is gone, and the backing ids with it. */
	HASH_ITER (hh, table->nodes, m, next) {
		HASH_DEL(table->nodes, m);
		free(m);
	}
	pthread_mutex_destroy(&table->lock);
}

static struct ps_openmode *find_or_add(struct ps_openmode_table *table, uint64_t node)
{
	struct ps_openmode *m;

	HASH_FIND(hh, table->nodes, &node, sizeof node, m);
	if (m)
		return m;
	m = calloc(1, sizeof *m);
	if (!m)
		return NULL;
	m->node = node;
	HASH_ADD(hh, table->nodes, node, sizeof m->node, m);
	if (!m->hh.tbl) { /* out of memory inside uthash */
		free(m);
		return NULL;
	}
	return m;
}

int ps_openmode_enter(struct ps_openmode_table *table, struct ps_passthrough *pt, uint64_t node,
        int complete_fd, enum ps_open_mode *ret_mode, int *ret_backing_id)
{
	PS_LOCK_SCOPE(&table->lock);
	struct ps_openmode *m = find_or_add(table, node);

	if (!m)
		return -ENOMEM;
	if (m->nhandles == 0) {
		int id = complete_fd >= 0 && ps_passthrough_active(pt)
		                 ? ps_passthrough_backing_open(pt, complete_fd)
		                 : 0;

		m->mode = id > 0 ? PS_MODE_PASSED : PS_MODE_CACHED;
		m->backing_id = id > 0 ? id : 0;
	}
	m->nhandles++;
	if (m->mode == PS_MODE_PASSED) {
		atomic_fetch_add(&pt->nopens, 1);
		atomic_fetch_add(&pt->nopen, 1);
	}
	*ret_mode = m->mode;
	*ret_backing_id = m->backing_id;
	return 0;
}

void ps_openmode_leave(struct ps_openmode_table *table, struct ps_passthrough *pt, uint64_t node)
{
	struct ps_openmode *m;

	PS_LOCK_SCOPE(&table->lock);
	HASH_FIND(hh, table->nodes, &node, sizeof node, m);
	if (!m)
		return;
	if (m->mode == PS_MODE_PASSED)
		atomic_fetch_sub(&pt->nopen, 1);
	if (--m->nhandles > 0)
		return;
	if (m->mode == PS_MODE_PASSED)
		ps_passthrough_backing_close(pt, m->backing_id);
	HASH_DEL(table->nodes, m);
	free(m);
}
