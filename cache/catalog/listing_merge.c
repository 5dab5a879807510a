#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "catalog/listing_merge_private.h"

#define BATCH_ROWS 2000

static struct ps_merge_dir *dir_remember(struct ps_merge *m, const char *path, size_t len, uint64_t node)
{
	struct ps_merge_dir *dir = calloc(1, sizeof *dir);

	if (!dir || !(dir->path = strndup(path, len))) {
		free(dir);
		return NULL;
	}
	dir->node = node;
	HASH_ADD_KEYPTR(hh, m->dirs, dir->path, len, dir);
	if (!dir->hh.tbl) { /* out of memory inside uthash */
		free(dir->path);
		free(dir);
		return NULL;
	}
	return dir;
}

struct ps_merge *ps_merge_new(struct ps_dataset *dataset)
{
	struct ps_merge *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	m->dataset = dataset;
	m->begun_ms = ps_clock_real_ms();
	{
		PS_LOCK_SCOPE(&dataset->catalog->lock);
		m->relists = dataset->catalog->row.listed_ms != 0;
	}
	m->batch = ps_index_batch_new();
	if (!m->batch || ps_index_new_node(dataset->index, &m->first_number) < 0 ||
	        !dir_remember(m, "", 0, dataset->catalog->row.root)) {
		ps_merge_free(m);
		return NULL;
	}
	PS_LOCK_SCOPE(&dataset->catalog->names_lock);
	dataset->catalog->merge = m;
	return m;
}

void ps_merge_free(struct ps_merge *m)
{
	struct ps_merge_dir *dir, *next;

	if (!m)
		return;
	{
		PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
		if (m->dataset->catalog->merge == m)
			m->dataset->catalog->merge = NULL;
	}
	HASH_ITER (hh, m->dirs, dir, next) {
		HASH_DEL(m->dirs, dir);
		free(dir->path);
		free(dir);
	}
	ps_merge_forget_later(m);
	if (m->batch)
		ps_index_batch_free(m->batch);
	free(m->seen);
	free(m);
}

/* Writes the batch. A failure stays: the listing has failed. */
static int commit(struct ps_merge *m)
{
	int rc = m->nbatched ? ps_index_batch_commit(m->dataset->index, ps_steal_ptr(&m->batch)) : 0;

	m->nbatched = 0;
	memset(m->batched, 0, sizeof m->batched);
	if (!m->batch && !(m->batch = ps_index_batch_new()))
		rc = -ENOMEM;
	if (rc < 0)
		m->failed = rc;
	return m->failed;
}

int ps_merge_commit_full(struct ps_merge *m)
{
	return m->nbatched >= BATCH_ROWS ? commit(m) : 0;
}

int ps_merge_flush(struct ps_dataset *dataset)
{
	return dataset->catalog->merge ? commit(dataset->catalog->merge) : 0;
}

static int merge_seen(struct ps_merge *m, uint64_t node)
{
	if (m->nseen == m->seen_cap) {
		size_t cap = m->seen_cap ? m->seen_cap * 2 : 1024;
		uint64_t *seen = realloc(m->seen, cap * sizeof *seen);

		if (!seen)
			return -ENOMEM;
		m->seen = seen;
		m->seen_cap = cap;
	}
	m->seen[m->nseen++] = node;
	return 0;
}

/* The bit of a name in m->batched. */
static unsigned batched_bit(uint64_t parent, const char *name)
{
	uint64_t h = parent * UINT64_C(0x9E3779B97F4A7C15);

	for (const char *s = name; *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001B3);
	return (unsigned)(h >> 40) % PS_MERGE_BATCHED_BITS;
}

int ps_merge_get_named(struct ps_merge *m, uint64_t parent, const char *name, struct ps_node_row *ret)
{
	unsigned bit = batched_bit(parent, name);
	uint64_t node;
	int rc = m->batched[bit / 8] >> bit % 8 & 1 ? commit(m) : 0;

	if (rc == 0)
		rc = ps_index_get_child(m->dataset->index, parent, name, &node);
	if (rc == 0)
		rc = ps_index_get_node(m->dataset->index, node, ret);
	return rc == -EBADMSG ? -ENOENT : rc;
}

static void note_batched(struct ps_merge *m, uint64_t parent, const char *name)
{
	unsigned bit = batched_bit(parent, name);

	m->batched[bit / 8] |= (uint8_t)(1u << bit % 8);
}

static int put_new(struct ps_merge *m, struct ps_node_row *row, uint64_t same_ino)
{
	int rc = ps_index_new_node(m->dataset->index, &row->node);

	if (rc < 0)
		return rc;
	row->ino = same_ino ? same_ino : row->node;
	row->dataset = m->dataset->catalog->row.number;
	row->generation = m->dataset->catalog->row.generation;
	ps_index_batch_put_node(m->batch, row);
	ps_index_batch_put_child(m->batch, row->parent, row->name, row->node);
	note_batched(m, row->parent, row->name);
	m->nbatched += 2;
	if (m->relists)
		ps_catalog_changed(m->dataset->catalog, row->node);
	return 0;
}

void ps_merge_supersede(struct ps_merge *m, struct ps_node_row *row)
{
	row->superseded = true;
	ps_index_batch_put_node(m->batch, row);
	m->nbatched++;
	ps_catalog_changed(m->dataset->catalog, row->node);
}

/* The directory `name` of parent, made where there is none. A file that was called so goes; a shard that is
 * shown so, and was listed, is shown as it is. */
static int make_dir(struct ps_merge *m, uint64_t parent, char *name, uint64_t *ret_node)
{
	struct ps_node_row made = {
	        .parent = parent, .kind = PS_NODE_DIR, .remote = PS_REMOTE_UNKNOWN, .name = name};
	struct ps_node_row old = {0};
	int rc = ps_merge_get_named(m, parent, name, &old);
	bool any = rc == 0;

	if (any && old.kind == PS_NODE_DIR) {
		*ret_node = old.node;
		ps_node_row_fini(&old);
		return 0;
	}
	if (rc == -ENOENT)
		rc = 0;
	if (any)
		ps_merge_supersede(m, &old);
	if (rc == 0)
		rc = put_new(m, &made, 0);
	if (rc == 0 && any)
		rc = ps_merge_give_way(m, &old);
	ps_node_row_fini(&old);
	*ret_node = made.node;
	return rc;
}

/* The node of the directory `path[0..len)`, made with its parents where missing. */
static int dir_node(struct ps_merge *m, const char *path, size_t len, uint64_t *ret_node)
{
	struct ps_merge_dir *dir;
	uint64_t parent, node;

	HASH_FIND(hh, m->dirs, path, len, dir);
	if (dir) {
		*ret_node = dir->node;
		return 0;
	}
	size_t cut = len;
	while (cut > 0 && path[cut - 1] != '/')
		cut--;
	int rc = dir_node(m, path, cut ? cut - 1 : 0, &parent);
	if (rc < 0)
		return rc;
	ps_autofree char *name = strndup(path + cut, len - cut);
	if (!name)
		return -ENOMEM;
	rc = make_dir(m, parent, name, &node);
	if (rc < 0)
		return rc;
	if (!dir_remember(m, path, len, node))
		return -ENOMEM;
	*ret_node = node;
	return merge_seen(m, node);
}

/* What a listed file means for the row that its name has now. */
static bool row_still_right(const struct ps_merge *m, const struct ps_node_row *row,
        const struct ps_listed *listed, enum ps_coding coding)
{
	if (row->kind != PS_NODE_FILE || row->coding != coding || strcmp(row->url, listed->url) != 0)
		return false;
	if (row->remote.size != PS_SIZE_UNKNOWN && row->checked_ms >= m->begun_ms)
		return true; /* the origin said so since */
	if (listed->remote.size == PS_SIZE_UNKNOWN)
		return true; /* the listing does not tell; a HEAD will */
	return row->remote.size != PS_SIZE_UNKNOWN && ps_remote_same_version(&row->remote, &listed->remote);
}

/* Without a date or an ETag a size tells too little of the version: it counts as if the listing had told
 * nothing. */
static struct ps_remote usable(const struct ps_remote *remote)
{
	struct ps_remote none = PS_REMOTE_UNKNOWN;

	if (remote->mtime_s >= 0 || remote->etag[0])
		return *remote;
	memcpy(none.checksum, remote->checksum, sizeof none.checksum);
	return none;
}

/* The listing tells the checksum of a version that the index knows already. */
static bool take_checksum(struct ps_node_row *row, const struct ps_listed *listed)
{
	const char *sum = listed->remote.checksum;
	bool of_name = listed->remote.size == PS_SIZE_UNKNOWN;

	if (!sum[0] || (strcmp(sum, row->remote.checksum) == 0 && of_name == row->sum_of_name))
		return false;
	memcpy(row->remote.checksum, sum, sizeof row->remote.checksum);
	row->sum_of_name = of_name;
	return true;
}

int ps_merge_file(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed,
        enum ps_coding coding, struct ps_node_row *old)
{
	uint64_t node = old ? old->node : 0;
	int rc = 0;
	bool unsized = listed->remote.size == PS_SIZE_UNKNOWN;

	note_batched(m, parent, name);
	if (old && row_still_right(m, old, listed, coding)) {
		/* 0: the listing confirms the node from now on. A listing that told no version confirms
		 * none. */
		int64_t checked_ms = old->checked_ms >= m->begun_ms ? old->checked_ms
		                     : unsized && !old->checked_ms  ? PS_CHECKED_DOUBTFUL
		                     : unsized                      ? old->checked_ms
		                                                    : 0;

		bool news = take_checksum(old, listed);

		ps_catalog_note_remote(m->dataset->catalog, &old->remote);
		unsized = old->remote.size == PS_SIZE_UNKNOWN;
		if (news || (!unsized && old->checked_ms != checked_ms)) {
			old->checked_ms = unsized ? old->checked_ms : checked_ms;
			ps_index_batch_put_node(m->batch, old);
			m->nbatched++;
		}
	} else {
		struct ps_node_row row = {.parent = parent,
		        .kind = PS_NODE_FILE,
		        .remote = listed->remote,
		        .sum_of_name = unsized && listed->remote.checksum[0],
		        .coding = (uint8_t)coding,
		        .name = (char *)name,
		        .url = (char *)listed->url};

		if (old) {
			ps_merge_supersede(m, old);
			if (old->kind == PS_NODE_DIR)
				rc = ps_merge_remove_children(m, old->node, 0);
		}
		if (rc == 0)
			rc = put_new(m, &row, old && old->kind == PS_NODE_FILE ? old->ino : 0);
		node = row.node;
		m->nadded += !old;
	}
	if (rc < 0)
		return rc;
	m->nfiles++;
	if (unsized && !m->first_unsized)
		m->first_unsized = node;
	return merge_seen(m, node);
}

static int keep_folder(struct ps_merge *m, uint64_t dir, int depth)
{
	struct ps_index_children *it;
	const char *name;
	uint64_t node;
	int rc = depth > PS_LIST_MAX_DEPTH ? -ELOOP : ps_index_children_open(m->dataset->index, dir, &it);

	if (rc < 0)
		return rc;
	while (rc == 0 && ps_index_children_next(it, &name, &node)) {
		struct ps_node_row row;

		if (ps_index_get_node(m->dataset->index, node, &row) < 0)
			continue;
		m->nfiles += row.kind == PS_NODE_FILE;
		if (row.kind == PS_NODE_DIR)
			rc = keep_folder(m, node, depth + 1);
		ps_node_row_fini(&row);
	}
	if (rc == 0)
		rc = ps_index_children_status(it);
	ps_index_children_close(it);
	return rc;
}

/* The node of a path that is known, -ENOENT if none is. */
static int find_path(struct ps_merge *m, const char *path, struct ps_node_row *ret)
{
	uint64_t parent = m->dataset->catalog->row.root;

	for (const char *slash;; path = slash + 1) {
		slash = strchrnul(path, '/');
		ps_autofree char *name = strndup(path, (size_t)(slash - path));
		int rc = name ? ps_merge_get_named(m, parent, name, ret) : -ENOMEM;
		if (rc < 0 || !*slash)
			return rc;
		bool is_dir = ret->kind == PS_NODE_DIR;
		parent = ret->node;
		ps_node_row_fini(ret);
		if (!is_dir)
			return -ENOENT;
	}
}

/* What lies there was not shown: all that is known of it counts as listed. Only folders that were listed lose names. */
static int keep_path(struct ps_merge *m, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct ps_node_row row = {0};
	size_t len = 0;
	bool tar = false;
	uint64_t parent;
	int rc = find_path(m, path, &row);

	if (rc == -ENOENT && !m->dataset->raw && ps_coding_of_name(path, &len, &tar)) {
		ps_autofree char *shown = NULL;

		if (asprintf(&shown, "%.*s%s", (int)len, path, tar ? ".tar" : "") < 0)
			shown = NULL;
		rc = shown ? find_path(m, shown, &row) : -ENOMEM;
	}
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	rc = dir_node(m, path, slash ? (size_t)(slash - path) : 0, &parent);
	if (rc == 0 && row.kind == PS_NODE_DIR)
		rc = keep_folder(m, row.node, 0);
	else
		m->nfiles++;
	if (rc == 0)
		rc = merge_seen(m, row.node);
	ps_node_row_fini(&row);
	return rc;
}

int ps_merge_add(void *arg, const struct ps_listed *listed)
{
	struct ps_merge *m = arg;
	const char *slash = strrchr(listed->path, '/');
	struct ps_listed copy = *listed;
	uint64_t parent;

	copy.remote = usable(&listed->remote);
	if (!listed->checksum || !ps_checksum_parse(listed->checksum, copy.remote.checksum))
		(void)ps_checksum_parse(listed->remote.checksum, copy.remote.checksum);
	PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
	if (m->failed)
		return m->failed;
	if (listed->unread)
		return keep_path(m, listed->path);
	int rc = dir_node(m, listed->path, slash ? (size_t)(slash - listed->path) : 0, &parent);
	if (rc == 0)
		rc = ps_merge_named(m, parent, slash ? slash + 1 : listed->path, &copy, false);
	if (rc == 0)
		rc = ps_merge_commit_full(m);
	atomic_fetch_add_explicit(&m->dataset->nlisted, 1, memory_order_relaxed);
	return rc;
}

/* The end ---------------------------------------------------------------------------------------- */

static int finish_row(struct ps_merge *m)
{
	struct ps_dataset *ds = m->dataset;

	PS_LOCK_SCOPE(&ds->catalog->names_lock);
	{
		PS_LOCK_SCOPE(&ds->catalog->lock);
		int64_t now_ms = ps_clock_real_ms();
		ds->catalog->row.listed_ms = PS_MAX(now_ms, ps_catalog_attached(ds->catalog, now_ms));
		ds->catalog->row.nfiles = m->nfiles;
		ds->catalog->nadded = m->nadded;
		ds->catalog->nvanished = m->nvanished;
		ds->catalog->row.generation++;
		ps_index_batch_put_dataset(m->batch, &ds->catalog->row);
		m->nbatched++;
	}
	return commit(m);
}

int ps_merge_finish(struct ps_merge *m, uint64_t *ret_nfiles, uint64_t *ret_first_unsized)
{
	int rc = ps_merge_later(m);

	*ret_nfiles = m->nfiles;
	*ret_first_unsized = m->first_unsized;
	if (rc < 0)
		return rc;
	if (m->nfiles == 0)
		return 0;
	{
		PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
		rc = commit(m);
	}
	if (rc == 0)
		rc = ps_merge_remove_vanished(m);
	return rc < 0 ? rc : finish_row(m);
}
