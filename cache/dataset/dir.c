/* Directory contents by position, over a snapshot of the index. */
#include "dataset/dataset.h"

#include <errno.h>

struct ps_dir {
	struct ps_dataset *dataset;
	uint64_t node;
	pthread_mutex_t lock; /* protects what follows: a program may read one directory from two threads */
	struct ps_index_children *it;
	struct ps_index_nodes *nodes; /* over a snapshot younger than it: every child is there */
	uint64_t pos;                 /* of the entry below, once there is one */
	bool have, end;
	const char *name;
	uint64_t child;
};

/* New snapshots; the old ones stay on error. */
static int begin(struct ps_dir *dir)
{
	struct ps_index_children *it;
	struct ps_index_nodes *nodes;
	int rc = ps_index_children_open(dir->dataset->index, dir->node, &it);

	if (rc < 0)
		return rc;
	rc = ps_index_nodes_open(dir->dataset->index, &nodes);
	if (rc < 0) {
		ps_index_children_close(it);
		return rc;
	}
	ps_index_children_close(dir->it);
	ps_index_nodes_close(dir->nodes);
	dir->it = it;
	dir->nodes = nodes;
	dir->have = dir->end = false;
	return 0;
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

static bool step(struct ps_dir *dir)
{
	dir->pos = dir->have ? dir->pos + 1 : 0;
	dir->have = ps_index_children_next(dir->it, &dir->name, &dir->child);
	dir->end = !dir->have;
	return dir->have;
}

/* Stands on the entry at `pos`; going back begins anew, over new snapshots. */
static bool seek(struct ps_dir *dir, uint64_t pos)
{
	if ((dir->have || dir->end) && pos < dir->pos && begin(dir) < 0)
		return false;
	while (!dir->end && (!dir->have || dir->pos < pos))
		step(dir);
	return dir->have;
}

bool ps_dir_read(
        struct ps_dir *dir, uint64_t pos, bool want_attr, const char **ret_name, struct ps_attr *ret_attr)
{
	struct ps_node_row row = {0};

	PS_LOCK_SCOPE(&dir->lock);
	if (!seek(dir, pos))
		return false;
	/* The kind of an entry is part of every directory read, so the row is needed either way. */
	if (ps_index_nodes_get(dir->nodes, dir->child, &row) == 0)
		ps_attr_of_row(dir->dataset, &row, ret_attr);
	else
		*ret_attr = (struct ps_attr){.node = dir->child, .ino = dir->child};
	if (!want_attr)
		ret_attr->complete_attr = false;
	ps_node_row_fini(&row);
	*ret_name = dir->name;
	return true;
}

void ps_dir_close(struct ps_dir *dir)
{
	if (!dir)
		return;
	ps_index_children_close(dir->it);
	ps_index_nodes_close(dir->nodes);
	pthread_mutex_destroy(&dir->lock);
	free(dir);
}
