/* Directory contents by position, over a snapshot of the index. */
#include "dataset/dataset.h"

#include <errno.h>

struct ps_dir {
	struct ps_dataset *dataset;
	uint64_t node;
	pthread_mutex_t lock; /* protects what follows: a program may read one directory from two threads */
	struct ps_index_children *it;
	uint64_t pos; /* of the entry below, once there is one */
	bool have, end;
	const char *name;
	uint64_t child;
};

int ps_dir_open(struct ps_dataset *dataset, uint64_t node, struct ps_dir **ret)
{
	struct ps_dir *dir = calloc(1, sizeof *dir);

	if (!dir)
		return -ENOMEM;
	dir->dataset = dataset;
	dir->node = node;
	int rc = ps_index_children_open(dataset->index, node, &dir->it);
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

/* Stands on the entry at `pos`; going back begins anew, over a new snapshot. */
static bool seek(struct ps_dir *dir, uint64_t pos)
{
	if ((dir->have || dir->end) && pos < dir->pos) {
		struct ps_index_children *it;

		if (ps_index_children_open(dir->dataset->index, dir->node, &it) < 0)
			return false;
		ps_index_children_close(dir->it);
		dir->it = it;
		dir->have = dir->end = false;
	}
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
	if (ps_index_get_node(dir->dataset->index, dir->child, &row) == 0)
		ps_attr_of_row(&row, ret_attr);
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
	pthread_mutex_destroy(&dir->lock);
	free(dir);
}
