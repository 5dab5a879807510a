#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "catalog/catalog_private.h"

/* Names and nodes ---------------------------------------------------------------------------------------- */

/* Finds the attributes of a name or a node: in the index if it has them and they are recent enough, else at
 * the origin. */

/* An open of a file without cached bytes needs the origin anyway, so it also revalidates a version that was
 * last confirmed more than COLD_AGE_MS ago. Files smaller than COLD_MIN_NBYTES are exempt, because another
 * round trip would matter for them. */
#define COLD_AGE_MS 60000
#define COLD_MIN_NBYTES (UINT64_C(4) << 20)

/* When the origin last confirmed this version. */
static int64_t confirmed_ms(struct ps_dataset *ds, const struct ps_node_row *row)
{
	if (row->checked_ms != 0)
		return row->checked_ms;
	/* the version is the listing's, and each listing confirms it */
	PS_LOCK_SCOPE(&ds->catalog->lock);
	return ds->catalog->row.listed_ms;
}

bool ps_dataset_confirmed(struct ps_dataset *ds, const struct ps_node_row *row, uint64_t max_age_ms)
{
	if (row->remote.size == PS_SIZE_UNKNOWN || row->checked_ms == PS_CHECKED_DOUBTFUL)
		return false;
	if (ds->revalidate_ms == UINT64_MAX)
		return true;
	int64_t when = confirmed_ms(ds, row);
	int64_t now = ps_clock_real_ms(), attached_ms;
	{
		PS_LOCK_SCOPE(&ds->catalog->lock);
		attached_ms = ps_catalog_attached(ds->catalog, now);
	}
	/* Confirmations of earlier mounts do not count: a new mount shows the origin's present version. */
	if (when < attached_ms || ps_catalog_is_ahead(when, now))
		return false;
	return max_age_ms == UINT64_MAX || (uint64_t)PS_MAX(now - when, 0) < max_age_ms;
}

bool ps_dataset_settled(struct ps_dataset *ds, const struct ps_node_row *row)
{
	int64_t when = confirmed_ms(ds, row);
	bool evicted = when <= atomic_load(&ds->catalog->evicted_ms);
	bool old = ds->revalidate_ms != UINT64_MAX && row->remote.size >= COLD_MIN_NBYTES &&
	           !ps_remote_versionless(&row->remote) && ps_clock_real_ms() - when >= COLD_AGE_MS;

	return (!evicted && !old) || ps_view_cached_nbytes(ds, row) > 0;
}

void ps_dataset_doubt(struct ps_dataset *ds, uint64_t node)
{
	struct ps_index_batch *batch = NULL;
	struct ps_node_row row;

	PS_LOCK_SCOPE(&ds->catalog->names_lock);
	(void)ps_merge_flush(ds);
	if (ps_index_get_node(ds->index, node, &row) < 0)
		return;
	if (!row.superseded && row.checked_ms != PS_CHECKED_DOUBTFUL && (batch = ps_index_batch_new())) {
		row.checked_ms = PS_CHECKED_DOUBTFUL;
		ps_index_batch_put_node(batch, &row);
		if (ps_index_batch_commit_or_keep(ds->index, batch) < 0)
			ps_log_warning("index: %s: cannot be marked as changed", row.url);
	}
	ps_node_row_fini(&row);
}

int ps_dataset_renew(struct ps_dataset *ds, const struct ps_node_row *row)
{
	struct ps_index_batch *batch = ps_index_batch_new();
	struct ps_node_row next = *row, old = *row;
	uint64_t current;

	PS_LOCK_SCOPE(&ds->catalog->names_lock);
	(void)ps_merge_flush(ds);
	int rc = batch ? 0 : -ENOMEM;
	if (rc == 0)
		rc = ps_index_get_child(ds->index, row->parent, row->name, &current);
	if (rc == -ENOENT || (rc == 0 && current != row->node))
		rc = -ESTALE;
	if (rc == 0)
		rc = ps_index_new_node(ds->index, &next.node);
	if (rc < 0) {
		ps_index_batch_free(batch);
		return rc;
	}
	old.superseded = true;
	next.checked_ms = ps_clock_real_ms();
	ps_index_batch_put_node(batch, &old);
	ps_index_batch_put_node(batch, &next);
	ps_index_batch_put_child(batch, next.parent, next.name, next.node);
	ps_catalog_changed(ds->catalog, row->node);
	return ps_index_batch_commit_or_keep(ds->index, batch);
}

/* A caller that waits for the probe of a compressed shard. The decoded size may still be unknown when the
 * probe ends. */
struct pending_size {
	struct ps_dataset *dataset;
	ps_attr_fn fn;
	void *arg;
};

static void probed(void *arg, int errnum, const struct ps_attr *attr)
{
	struct pending_size pending = *(struct pending_size *)arg;
	struct ps_node_row row = {0};

	free(arg);
	if (errnum || attr->complete_attr) {
		pending.fn(pending.arg, errnum, attr);
		return;
	}
	int rc = ps_index_get_node(pending.dataset->index, attr->node, &row);
	if (rc < 0)
		pending.fn(pending.arg, rc == -ENOENT ? ESTALE : -rc, NULL);
	else
		ps_view_ask(pending.dataset, &row, true, pending.fn, pending.arg);
	ps_node_row_fini(&row);
}

static void attr_or_probe(
        struct ps_dataset *ds, const struct ps_node_row *row, bool confirm, ps_attr_fn fn, void *arg)
{
	bool asks =
	        row->kind == PS_NODE_FILE && (row->remote.size == PS_SIZE_UNKNOWN ||
	                                             (confirm && !ps_dataset_confirmed(ds, row, UINT64_MAX)));
	struct pending_size *pending = asks && row->coding ? malloc(sizeof(*pending)) : NULL;
	struct ps_attr attr;

	if (asks && !row->coding) {
		ps_revalidate(ds, row, false, fn, arg);
	} else if (pending) {
		*pending = (struct pending_size){.dataset = ds, .fn = fn, .arg = arg};
		ps_revalidate(ds, row, false, probed, pending);
	} else if (asks) {
		fn(arg, ENOMEM, NULL);
	} else {
		ps_attr_of_row(ds, row, &attr);
		if (attr.complete_attr)
			fn(arg, 0, &attr);
		else
			ps_view_ask(ds, row, true, fn, arg);
	}
}

static int get_named(struct ps_dataset *ds, uint64_t parent, const char *name, struct ps_node_row *ret)
{
	uint64_t node;
	int rc = ps_index_get_child(ds->index, parent, name, &node);

	return rc < 0 ? rc : ps_index_get_node(ds->index, node, ret);
}

void ps_dataset_lookup(struct ps_dataset *ds, uint64_t parent, const char *name, ps_attr_fn fn, void *arg)
{
	struct ps_node_row row = {0};
	int rc = get_named(ds, parent, name, &row);

	if (rc == 0 && ps_view_disproved(ds, &row)) {
		rc = ps_dataset_renew(ds, &row);
		ps_node_row_fini(&row);
		/* -ESTALE: another thread was faster, and has given the name another node. */
		if (rc == 0 || rc == -ESTALE)
			rc = get_named(ds, parent, name, &row);
	}
	if (rc == 0)
		attr_or_probe(ds, &row, true, fn, arg);
	else
		fn(arg, -rc, NULL);
	ps_node_row_fini(&row);
}

bool ps_dataset_has(struct ps_dataset *ds, uint64_t parent, const char *name)
{
	uint64_t node;

	return ps_index_get_child(ds->index, parent, name, &node) == 0;
}

void ps_dataset_getattr(struct ps_dataset *ds, uint64_t node, ps_attr_fn fn, void *arg)
{
	struct ps_node_row row = {0};
	int rc = ps_index_get_node(ds->index, node, &row);

	/* A node is one version forever: its attributes need no confirmation. */
	if (rc == 0)
		attr_or_probe(ds, &row, false, fn, arg);
	else
		fn(arg, rc == -ENOENT ? ESTALE : -rc, NULL);
	ps_node_row_fini(&row);
}

int ps_node_info_get(struct ps_dataset *ds, uint64_t node, struct ps_node_info *ret)
{
	struct ps_node_info info = {.state = "remote"};
	struct ps_node_row row = {0};
	char error[PS_ERROR_TEXT_LEN] = "";
	int rc = ps_index_get_node(ds->index, node, &row);

	if (rc < 0)
		return rc;
	info.encoding = ps_coding_name((enum ps_coding)row.coding);
	uint64_t size = row.kind == PS_NODE_FILE ? ps_view_size(ds, &row) : PS_SIZE_UNKNOWN;
	if (size != PS_SIZE_UNKNOWN) {
		struct ps_object *object;

		info.size = size;
		rc = ps_view_object(ds, &row, false, &object);
		if (rc == 0) {
			info.cached_nbytes = ps_object_cached_nbytes(object);
			if (ps_object_complete(object))
				info.state = "cached";
			else if (info.cached_nbytes > 0)
				info.state = "partial";
			info.pinned = ps_object_url_pinned(object);
			struct ps_refusal refusal;

			info.errnum = ps_fill_object_error(
			        ds->cache->fill, object, ds->origin, error, sizeof(error));
			if (ps_object_refusal(object, &refusal) && refusal.text[0]) {
				info.errnum = EILSEQ;
				snprintf(error, sizeof(error), "%s", refusal.text);
			}
			ps_object_put(object);
		}
	}
	if (row.url)
		ps_dataset_alternation(ds, row.url, error, sizeof(error));
	info.url = ps_steal_ptr(&row.url);
	info.etag = strdup(row.remote.etag);
	{
		PS_LOCK_SCOPE(&ds->lock);
		for (size_t i = 0; i < PS_DATASET_ERRORS; i++) {
			if (error[0] || !ds->errors[i].text || ds->errors[i].node != node)
				continue;
			info.errnum = ds->errors[i].errnum;
			snprintf(error, sizeof(error), "%s", ds->errors[i].text);
		}
		info.error = strdup(error);
	}
	ps_node_row_fini(&row);
	if (rc == 0 && (!info.etag || !info.error))
		rc = -ENOMEM;
	if (rc < 0)
		ps_node_info_fini(&info);
	else
		*ret = info;
	return rc;
}

void ps_node_info_fini(struct ps_node_info *info)
{
	free(info->url);
	free(info->etag);
	free(info->error);
	*info = (struct ps_node_info){0};
}

/* Directories -------------------------------------------------------------------------------------------- */

/* Directory contents by position, over a snapshot of the index. */

struct ps_dir {
	struct ps_dataset *dataset;
	uint64_t node;
	pthread_mutex_t lock; /* protects what follows: a program may read one directory from two threads */
	struct ps_index_children *it; /* NULL, as is `nodes`: not begun, or read to the end */
	/* rows, from a snapshot that was taken after the snapshot of `it` and thus has the row of every
	 * child */
	struct ps_index_nodes *nodes;
	uint64_t pos; /* position of the entry in `name` and `child`, if `have` */
	bool have, end;
	const char *name;
	uint64_t child;
};

/* While a snapshot is held, the index cannot be opened again after a full disk. So a folder that was read
 * to its end holds no snapshot, even if a reader keeps it open. */
static void drop(struct ps_dir *dir)
{
	ps_index_children_close(ps_steal_ptr(&dir->it));
	ps_index_nodes_close(ps_steal_ptr(&dir->nodes));
}

/* Takes new snapshots, and starts at the first entry. */
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
	struct ps_dir *dir = calloc(1, sizeof(*dir));

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

/* Moves the iterator to the entry at `pos`, or to the end. Going back, or going on after an error, begins
 * again with new snapshots. */
static int seek(struct ps_dir *dir, uint64_t pos)
{
	int rc = 0;

	if (dir->end ? pos < dir->pos : !dir->it || (dir->have && pos < dir->pos))
		rc = begin(dir);
	while (rc == 0 && !dir->end && (!dir->have || dir->pos < pos)) {
		dir->pos = dir->have ? dir->pos + 1 : 0;
		dir->have = ps_index_children_next(dir->it, &dir->name, &dir->child);
		if (dir->have)
			continue;
		rc = ps_index_children_status(dir->it);
		dir->end = rc == 0;
		drop(dir);
	}
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
	/* The row is needed in any case, because every directory entry includes its kind. */
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
