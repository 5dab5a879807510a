/* Directory contents by position, over a snapshot of the index. */
#include "catalog/dataset.h"

#include <errno.h>

struct ps_dir {
	struct ps_dataset *dataset;
	uint64_t node;
	pthread_mutex_t lock; /* protects what follows: a program may read one directory from two threads */
	struct ps_index_children *it; /* NULL, like nodes: not begun, or read to its end */
	struct ps_index_nodes *nodes; /* over a snapshot younger than it: every child is there */
	uint64_t pos;                 /* of the entry below, once there is one */
	bool have, end;
	const char *name;
	uint64_t child;
};

/* While a snapshot is held, an index that a full disk has broken cannot be opened anew. So who keeps a
 * folder open that has been read to its end keeps no snapshot. */
static void drop(struct ps_dir *dir)
{
	ps_index_children_close(ps_steal_ptr(&dir->it));
	ps_index_nodes_close(ps_steal_ptr(&dir->nodes));
}

/* New snapshots, at the first entry. */
static int begin(struct ps_dir *dir)
{
	drop(dir);
	dir->have = dir->end = false;
	dir->pos = 0;
	int rc = ps_index_children_open(dir->dataset->index, dir->node, &dir->it);

	if (rc == 0)
		rc = ps_index_nodes_open(dir->dataset->index, &dir->nodes);
	if (rc < 0)
		drop(dir);
	return rc;
}

int ps_dir_open(struct ps_dataset *dataset, uint64_t node, struct ps_dir **ret)
{
	struct ps_dir *dir = calloc(1, sizeof *dir);

	if (!dir)
		return -ENOMEM;
	dir->dataset = dataset;
	dir->node = node;
	int rc = begin(dir);
	if (rc < 0) {
		free(dir);
		return rc;
	}
	pthread_mutex_init(&dir->lock, NULL);
	*ret = dir;
	return 0;
}

static int step(struct ps_dir *dir)
{
	dir->pos = dir->have ? dir->pos + 1 : 0;
	dir->have = ps_index_children_next(dir->it, &dir->name, &dir->child);
	if (dir->have)
		return 0;
	int rc = ps_index_children_status(dir->it);

	dir->end = rc == 0;
	drop(dir);
	return rc;
}

/* Makes the iterator stand on the entry at `pos`, or at the end. Going back begins anew, over new
 * snapshots; so does going on after an error. */
static int seek(struct ps_dir *dir, uint64_t pos)
{
	int rc = 0;

	if (dir->end ? pos < dir->pos : !dir->it || (dir->have && pos < dir->pos))
		rc = begin(dir);
	while (rc == 0 && !dir->end && (!dir->have || dir->pos < pos))
		rc = step(dir);
	return rc;
}

int ps_dir_read(
        struct ps_dir *dir, uint64_t pos, bool want_attr, const char **ret_name, struct ps_attr *ret_attr)
{
	struct ps_node_row row = {0};

	PS_LOCK_SCOPE(&dir->lock);
	int rc = seek(dir, pos);
	if (rc < 0 || dir->end)
		return rc;
	/* The kind of an entry is part of every directory read, so the row is needed either way. */
	if (ps_index_nodes_get(dir->nodes, dir->child, &row) == 0)
		ps_attr_of_row(dir->dataset, &row, ret_attr);
	else
		*ret_attr = (struct ps_attr){.node = dir->child, .ino = dir->child};
	if (!want_attr)
		ret_attr->complete_attr = false;
	ps_node_row_fini(&row);
	*ret_name = dir->name;
	return 1;
}

void ps_dir_close(struct ps_dir *dir)
{
	if (!dir)
		return;
	drop(dir);
	pthread_mutex_destroy(&dir->lock);
	free(dir);
}
