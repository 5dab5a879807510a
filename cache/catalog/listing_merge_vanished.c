/* What an earlier listing had and this one has not goes. */
#include <errno.h>
#include <stdlib.h>

#include "catalog/listing_merge_private.h"

int ps_merge_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int remove_name(struct ps_merge *m, uint64_t parent, const char *name, uint64_t node, int depth)
{
	struct ps_node_row row = {0};
	int rc = ps_index_get_node(m->dataset->index, node, &row);

	if (rc == 0) {
		ps_merge_supersede(m, &row);
		m->nvanished += row.kind == PS_NODE_FILE;
		if (row.kind == PS_NODE_DIR)
			rc = ps_merge_remove_children(m, node, depth);
		ps_node_row_fini(&row);
	}
	ps_index_batch_del_child(m->batch, parent, name);
	m->nbatched++;
	if (rc == 0)
		rc = ps_merge_commit_full(m);
	return rc == -ENOENT ? 0 : rc;
}

int ps_merge_remove_children(struct ps_merge *m, uint64_t dir, int depth)
{
	struct ps_index_children *it;
	const char *name;
	uint64_t node;

	if (depth >= PS_LIST_MAX_DEPTH)
		return 0;
	int rc = ps_index_children_open(m->dataset->index, dir, &it);
	if (rc < 0)
		return rc;
	while (rc == 0 && ps_index_children_next(it, &name, &node))
		rc = remove_name(m, dir, name, node, depth + 1);
	if (rc == 0)
		rc = ps_index_children_status(it);
	ps_index_children_close(it);
	return rc;
}

/* A HEAD has found the name since the listing began. */
static bool was_seen_since(struct ps_merge *m, uint64_t parent, const char *name, uint64_t node)
{
	struct ps_node_row row;
	uint64_t current;

	if (ps_index_get_child(m->dataset->index, parent, name, &current) < 0 || current != node)
		return true; /* another node stands for it by now, or none */
	if (ps_index_get_node(m->dataset->index, node, &row) < 0)
		return false;
	bool seen = row.kind == PS_NODE_FILE && row.checked_ms >= m->begun_ms;
	ps_node_row_fini(&row);
	return seen;
}

/* Not under names_lock. */
static int remove_in(struct ps_merge *m, uint64_t parent)
{
	struct ps_index *index = m->dataset->index;
	struct ps_index_children *it;
	const char *name;
	uint64_t node;
	int rc = ps_index_children_open(index, parent, &it);

	if (rc < 0)
		return rc;
	while (rc == 0 && ps_index_children_next(it, &name, &node)) {
		/* A later number is a version that a probe found while the listing ran. */
		if (node > m->first_number ||
		        bsearch(&node, m->seen, m->nseen, sizeof node, ps_merge_compare))
			continue;
		PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
		if (!was_seen_since(m, parent, name, node))
			rc = remove_name(m, parent, name, node, 0);
	}
	if (rc == 0)
		rc = ps_index_children_status(it);
	ps_index_children_close(it);
	return rc;
}

int ps_merge_remove_vanished(struct ps_merge *m)
{
	struct ps_merge_dir *dir, *next;
	int rc = 0;

	qsort(m->seen, m->nseen, sizeof *m->seen, ps_merge_compare);
	HASH_ITER (hh, m->dirs, dir, next) {
		if (rc == 0)
			rc = remove_in(m, dir->node);
	}
	return rc;
}
