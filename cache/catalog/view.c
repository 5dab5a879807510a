/* Views: the content that a file of the dataset shows. A compressed shard shows its decoded content, whose
 * size may have to be found first. All other files are shown raw. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "catalog/catalog_private.h"

void ps_view_raw_id(const struct ps_dataset *ds, const struct ps_node_row *row, struct ps_id *ret)
{
	char view[8 + PS_ID_HEX_LEN];

	snprintf(view, sizeof(view), "raw%s", ds->catalog->route);
	ps_object_id(row->url, &row->remote, view, ret);
}

uint64_t ps_view_size(struct ps_dataset *ds, const struct ps_node_row *row)
{
	uint64_t below;

	if (!row->coding || row->remote.size == PS_SIZE_UNKNOWN)
		return row->remote.size;
	uint64_t size = ps_decompress_known_size(
	        ds->cache->store, ds->catalog->route, row->url, &row->remote, &below);
	return row->node < below ? PS_SIZE_UNKNOWN : size;
}

void ps_attr_of_row(struct ps_dataset *ds, const struct ps_node_row *row, struct ps_attr *ret_attr)
{
	bool is_dir = row->kind == PS_NODE_DIR;
	uint64_t size = ps_view_size(ds, row);

	*ret_attr = (struct ps_attr){
	        .node = row->node,
	        .ino = row->ino,
	        .is_dir = is_dir,
	        .complete_attr = is_dir || size != PS_SIZE_UNKNOWN,
	        .size = is_dir || size == PS_SIZE_UNKNOWN ? 0 : size,
	        .mtime_s = row->remote.mtime_s < 0 ? 0 : row->remote.mtime_s,
	};
}

bool ps_view_disproved(struct ps_dataset *ds, const struct ps_node_row *row)
{
	uint64_t below;

	if (!row->coding || row->remote.size == PS_SIZE_UNKNOWN)
		return false;
	(void)ps_decompress_known_size(ds->cache->store, ds->catalog->route, row->url, &row->remote, &below);
	return row->node < below;
}

static int get_decompressing(
        struct ps_dataset *ds, const struct ps_node_row *row, struct ps_decompressing **ret)
{
	return ps_decompressing_get(ds->cache->decompress, ds->origin, row->url, row->name, &row->remote,
	        (enum ps_coding)row->coding, ret);
}

int ps_view_object(struct ps_dataset *ds, const struct ps_node_row *row, bool opened, struct ps_object **ret)
{
	struct ps_decompressing *decompressing;
	struct ps_id id;
	int rc;

	if (!row->coding && !ds->catalog->route[0]) {
		rc = ps_object_get(
		        ds->cache->store, row->url, &row->remote, ds->catalog->row.number, opened, ret);
		if (rc == 0)
			ps_object_checksum_policy(*ret, ds->checksums);
		return rc;
	}
	if (!row->coding) {
		ps_view_raw_id(ds, row, &id);
		rc = ps_object_get_view(ds->cache->store, row->url, &row->remote, &id, row->remote.size,
		        ds->catalog->row.number, opened, ret);
		if (rc == 0) {
			ps_object_checksum_policy(*ret, ds->checksums);
			ps_object_expect(*ret, row->remote.checksum, true);
		}
		return rc;
	}
	rc = get_decompressing(ds, row, &decompressing);
	if (rc < 0)
		return rc;
	rc = ps_decompressing_known_size(decompressing) == PS_SIZE_UNKNOWN
	             ? -EAGAIN
	             : ps_decompressing_object(decompressing, ds->catalog->row.number, opened, ret);
	ps_decompressing_put(decompressing);
	return rc;
}

uint64_t ps_view_cached_nbytes(struct ps_dataset *ds, const struct ps_node_row *row)
{
	struct ps_object *object;

	if (ps_view_object(ds, row, false, &object) < 0)
		return 0;
	uint64_t nbytes = ps_object_cached_nbytes(object);
	ps_object_put(object);
	return nbytes;
}

int ps_view_file(struct ps_dataset *ds, const struct ps_node_row *row, bool opened, bool granted,
        struct ps_fill_file **ret)
{
	struct ps_decompressing *decompressing = NULL;
	struct ps_origin *origin = ds->origin;
	struct ps_object *object;
	int rc = row->coding ? get_decompressing(ds, row, &decompressing) : 0;

	if (rc == 0)
		rc = ps_view_object(ds, row, opened, &object);
	if (decompressing)
		origin = ps_decompressing_as_origin(decompressing);
	if (rc == 0) {
		rc = ps_fill_file_get(ds->cache->fill, object, origin, ret);
		ps_object_put(object); /* the file holds a reference */
	}
	/* the file holds a reference of the decompressing origin, too */
	ps_decompressing_put(decompressing);
	if (rc == 0 && granted)
		ps_fill_file_allow(*ret);
	return rc;
}

/* Asking ------------------------------------------------------------------------------------------------- */

struct question {
	struct ps_dataset *dataset;
	struct ps_decompressing *decompressing;
	uint64_t node;
	bool shows;
	ps_attr_fn fn;
	void *arg;
};

static void sized(void *arg, int errnum, uint64_t size, const char *text)
{
	struct question *q = arg;
	struct ps_node_row row = {0};
	struct ps_attr attr;

	if (errnum && errnum != ECANCELED) {
		ps_dataset_note_error(q->dataset, q->node, errnum, text);
		ps_fill_note_error(q->dataset->cache->fill, text);
	}
	bool gone = errnum == 0;
	bool damaged = errnum && q->shows && ps_decompressing_damaged(q->decompressing);
	if (!errnum || damaged)
		errnum = -ps_index_get_node(q->dataset->index, q->node, &row);
	if (!errnum) {
		ps_attr_of_row(q->dataset, &row, &attr);
		/* the size is not taken from the index, which may have refused to store it */
		attr.size = damaged ? 0 : size;
		attr.complete_attr = !damaged;
	}
	if (errnum == EAGAIN || errnum == EPROTO || errnum == EHOSTUNREACH)
		errnum = EIO;
	/* The row of a node may have gone meanwhile. A missing object is the origin's answer. */
	q->fn(q->arg, errnum == ENOENT && gone ? ESTALE : errnum, errnum ? NULL : &attr);
	ps_node_row_fini(&row);
	ps_decompressing_put(q->decompressing);
	free(q);
}

void ps_view_ask(struct ps_dataset *ds, const struct ps_node_row *row, bool shows, ps_attr_fn fn, void *arg)
{
	struct question *q = calloc(1, sizeof(*q));
	int rc = q ? get_decompressing(ds, row, &q->decompressing) : -ENOMEM;

	if (rc < 0) {
		free(q);
		fn(arg, -rc, NULL);
		return;
	}
	q->dataset = ds;
	q->node = row->node;
	q->shows = shows;
	q->fn = fn;
	q->arg = arg;
	ps_decompressing_size(q->decompressing, sized, q);
}
