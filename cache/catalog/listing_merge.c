#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/hashtable.h"
#include "base/log.h"
#include "catalog/catalog_private.h"

/* Static functions are called with the catalog's names_lock held, unless they take it themselves, their
 * comment says otherwise, or ps_merge_new() or ps_merge_free() calls them: no other thread has the merge
 * then. */

#define PS_MERGE_BATCHED_BITS 65536

/* A compressed shard that is put off to the end of the listing: the index has another file under its shown
 * name, and this listing may still contain that file. */
struct merge_later {
	struct merge_later *next;
	uint64_t parent;
	char *name, *url; /* as listed */
	struct ps_remote remote;
};

struct ps_merge_dir {
	char *path; /* below the root; "" is the root */
	uint64_t node;
	UT_hash_handle hh;
};

/* A set of node numbers: a hash table of runs of 64 numbers. Nodes that were made one after another take at
 * most 1 byte each, scattered nodes at most 64. */
struct seen {
	struct seen_run {
		uint64_t number; /* of the run */
		uint64_t nodes;  /* a bit each; 0: the slot is free */
	} * runs;
	size_t nused, nslots; /* nslots: a power of two */
};

struct ps_merge {
	struct ps_dataset *dataset;
	struct ps_merge_dir *dirs; /* by path */
	struct ps_index_batch *batch;
	size_t nbatched;
	struct seen seen; /* nodes of this listing */
	uint64_t nfiles, first_unsized;
	bool relists;               /* the catalog was listed before: new names are reported */
	uint64_t nadded, nvanished; /* files */
	struct seen changed;        /* directories in which names came or went */
	uint64_t first_number;      /* nodes that were made since this merge began have higher numbers */
	int64_t begun_ms;
	int failed; /* a commit failed, on any thread */
	uint8_t batched[PS_MERGE_BATCHED_BITS /
	                8]; /* bit set of hashes: names that are in the batch, and not in the index yet */
	struct merge_later *later;
	bool told_clash;
};

#define BATCH_ROWS 2000

static struct merge_later *take_later(struct ps_merge *m)
{
	struct merge_later *later = m->later;

	m->later = later->next;
	return later;
}

static void free_later(struct merge_later *later)
{
	free(later->name);
	free(later->url);
	free(later);
}

static struct ps_merge_dir *dir_remember(struct ps_merge *m, const char *path, size_t len, uint64_t node)
{
	struct ps_merge_dir *dir = calloc(1, sizeof(*dir));

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
	struct ps_merge *m = calloc(1, sizeof(*m));

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
	while (m->later)
		free_later(take_later(m));
	if (m->batch)
		ps_index_batch_free(m->batch);
	free(m->seen.runs);
	free(m->changed.runs);
	free(m);
}

/* Writes the batch. A failure is kept in m->failed: the listing has failed. */
static int commit(struct ps_merge *m)
{
	int rc = m->nbatched ? ps_index_batch_commit(m->dataset->index, ps_steal_ptr(&m->batch)) : 0;

	m->nbatched = 0;
	memset(m->batched, 0, sizeof(m->batched));
	if (!m->batch && !(m->batch = ps_index_batch_new()))
		rc = -ENOMEM;
	if (rc < 0)
		m->failed = rc;
	return m->failed;
}

/* Writes the batch if it is large enough. */
static int merge_commit_full(struct ps_merge *m)
{
	return m->nbatched >= BATCH_ROWS ? commit(m) : 0;
}

int ps_merge_flush(struct ps_dataset *dataset)
{
	return dataset->catalog->merge ? commit(dataset->catalog->merge) : 0;
}

static struct seen_run *seen_run_of(const struct seen *seen, uint64_t number)
{
	size_t i = (size_t)(number * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (seen->nslots - 1);

	while (seen->runs[i].nodes && seen->runs[i].number != number)
		i = (i + 1) & (seen->nslots - 1);
	return &seen->runs[i];
}

static int seen_add(struct seen *seen, uint64_t node)
{
	if (seen->nused * 2 >= seen->nslots) {
		struct seen grown = {.nused = seen->nused, .nslots = seen->nslots ? seen->nslots * 2 : 64};

		grown.runs = calloc(grown.nslots, sizeof(*grown.runs));
		if (!grown.runs)
			return -ENOMEM;
		for (size_t i = 0; i < seen->nslots; i++)
			if (seen->runs[i].nodes)
				*seen_run_of(&grown, seen->runs[i].number) = seen->runs[i];
		free(seen->runs);
		*seen = grown;
	}
	struct seen_run *run = seen_run_of(seen, node / 64);
	seen->nused += !run->nodes;
	run->number = node / 64;
	run->nodes |= UINT64_C(1) << node % 64;
	return 0;
}

static bool seen_has(const struct seen *seen, uint64_t node)
{
	return seen->nslots && seen_run_of(seen, node / 64)->nodes >> node % 64 & 1;
}

/* The bit of a name in m->batched. */
static unsigned batched_bit(uint64_t parent, const char *name)
{
	uint64_t h = parent * UINT64_C(0x9E3779B97F4A7C15);

	for (const char *s = name; *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001B3);
	return (unsigned)(h >> 40) % PS_MERGE_BATCHED_BITS;
}

/* Gets the name's present node, even if its row is still in the batch; -ENOENT: there is none. */
static int merge_get_named(struct ps_merge *m, uint64_t parent, const char *name, struct ps_node_row *ret)
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

	if (rc == 0 && !same_ino)
		rc = seen_add(&m->changed, row->parent);
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

static void merge_supersede(struct ps_merge *m, struct ps_node_row *row)
{
	row->superseded = true;
	ps_index_batch_put_node(m->batch, row);
	m->nbatched++;
	ps_catalog_changed(m->dataset->catalog, row->node);
}

static int merge_remove_children(struct ps_merge *m, uint64_t dir, int depth) PS_MUST_USE;

static int remove_name(struct ps_merge *m, uint64_t parent, const char *name, uint64_t node, int depth)
{
	struct ps_node_row row = {0};
	int rc = ps_index_get_node(m->dataset->index, node, &row);

	if (rc == 0) {
		merge_supersede(m, &row);
		m->nvanished += row.kind == PS_NODE_FILE;
		if (row.kind == PS_NODE_DIR)
			rc = merge_remove_children(m, node, depth);
		ps_node_row_fini(&row);
	}
	ps_index_batch_del_child(m->batch, parent, name);
	m->nbatched++;
	if (rc == 0)
		rc = seen_add(&m->changed, parent);
	if (rc == -ENOENT || rc == -EBADMSG) /* without a valid row the name is removed all the same */
		rc = 0;
	return rc == 0 ? merge_commit_full(m) : rc;
}

static int merge_remove_children(struct ps_merge *m, uint64_t dir, int depth)
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

/* True if the name's present row still matches the listed file. */
static bool row_still_right(const struct ps_merge *m, const struct ps_node_row *row,
        const struct ps_listed *listed, enum ps_coding coding)
{
	if (row->kind != PS_NODE_FILE || row->coding != coding || strcmp(row->url, listed->url) != 0)
		return false;
	if (row->remote.size != PS_SIZE_UNKNOWN && row->checked_ms >= m->begun_ms)
		return true; /* a HEAD has confirmed this version since the listing began */
	if (listed->remote.size == PS_SIZE_UNKNOWN) { /* the listing has no version; a HEAD will give it */
		uint64_t stated = ps_remote_stated_size(&listed->remote);

		return row->remote.size == PS_SIZE_UNKNOWN
		               ? stated == ps_remote_stated_size(&row->remote)
		               : stated == PS_SIZE_UNKNOWN || stated == row->remote.size;
	}
	return row->remote.size != PS_SIZE_UNKNOWN && ps_remote_same_version(&row->remote, &listed->remote);
}

/* Takes the listing's checksum for a version that the index has already. */
static bool take_checksum(struct ps_node_row *row, const struct ps_listed *listed)
{
	const char *sum = listed->remote.checksum;
	bool of_name = listed->remote.size == PS_SIZE_UNKNOWN;

	if (!sum[0] || (strcmp(sum, row->remote.checksum) == 0 && of_name == row->sum_of_name))
		return false;
	memcpy(row->remote.checksum, sum, sizeof(row->remote.checksum));
	row->sum_of_name = of_name;
	return true;
}

/* Sets the name to the listed file; old: the result of merge_get_named(), or NULL. */
static int merge_file(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed,
        enum ps_coding coding, struct ps_node_row *old)
{
	uint64_t node = old ? old->node : 0;
	int rc = 0;
	bool unsized = listed->remote.size == PS_SIZE_UNKNOWN;

	note_batched(m, parent, name);
	if (old && row_still_right(m, old, listed, coding)) {
		/* 0: from now on listings confirm the node. A listing without a version does not confirm
		 * it. */
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
			merge_supersede(m, old);
			if (old->kind == PS_NODE_DIR)
				rc = merge_remove_children(m, old->node, 0);
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
	return seen_add(&m->seen, node);
}

/* Names of compressed shards ----------------------------------------------------------------------------- */

/* Names of compressed shards: x.tar.zst is shown as x.tar, unless another file has that name. */

static int merge_as_it_is(
        struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed)
{
	struct ps_node_row old = {0};

	if (!m->told_clash)
		ps_log_info(
		        "list: %s: shown as it is: another file has the name that its contents would have",
		        listed->url);
	m->told_clash = true;
	int rc = merge_get_named(m, parent, name, &old);
	if (rc == 0 || rc == -ENOENT)
		rc = merge_file(m, parent, name, listed, PS_CODING_NONE, rc == 0 ? &old : NULL);
	ps_node_row_fini(&old);
	return rc;
}

/* The listed name of a compressed shard that is shown as `shown`, from its URL. */
static char *listed_name(const char *shown, const char *url, enum ps_coding coding)
{
	static const char *const shorts[] = {"", ".tzst", ".tgz", ".lz4"}, *const longs[] = {
	                                                                           "", ".zst", ".gz", ".lz4"};
	size_t len = strcspn(url, "?"), n = strlen(shorts[coding]), stem = strlen(shown) - strlen(".tar");
	bool is_short =
	        coding != PS_CODING_LZ4 && len > n && strncasecmp(url + len - n, shorts[coding], n) == 0;
	char *name;

	if (asprintf(&name, "%.*s%s", (int)(is_short ? stem : strlen(shown)), shown,
	            is_short ? shorts[coding] : longs[coding]) < 0)
		return NULL;
	return name;
}

/* Another file or directory takes the name under which the shard `view` is shown. If this listing has the
 * shard, the shard is shown raw, under its listed name. */
static int merge_give_way(struct ps_merge *m, const struct ps_node_row *view)
{
	if (!view->coding || !seen_has(&m->seen, view->node))
		return 0;
	ps_autofree char *name = listed_name(view->name, view->url, (enum ps_coding)view->coding);
	const struct ps_listed listed = {.url = view->url, .remote = view->remote};

	m->nfiles--; /* merge_as_it_is() counts it again */
	return name ? merge_as_it_is(m, view->parent, name, &listed) : -ENOMEM;
}

static int put_off(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed)
{
	struct merge_later *later = calloc(1, sizeof(*later));

	if (!later)
		return -ENOMEM;
	*later = (struct merge_later){.next = m->later,
	        .parent = parent,
	        .name = strdup(name),
	        .url = strdup(listed->url),
	        .remote = listed->remote};
	m->later = later;
	return later->name && later->url ? 0 : -ENOMEM;
}

/* Decides the name and the view of a listed file; `last`: the listing is complete. */
static int merge_named(
        struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed, bool last)
{
	size_t len = 0;
	bool tar = false;
	enum ps_coding coding = m->dataset->raw ? PS_CODING_NONE : ps_coding_of_name(name, &len, &tar);
	ps_autofree char *shown = NULL;
	struct ps_node_row old = {0};

	if (asprintf(&shown, "%.*s%s", coding ? (int)len : (int)strlen(name), name, tar ? ".tar" : "") < 0) {
		shown = NULL;
		return -ENOMEM;
	}
	int rc = merge_get_named(m, parent, shown, &old);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	struct ps_node_row *found = rc == 0 ? &old : NULL;
	bool other = found && (old.kind == PS_NODE_DIR || strcmp(old.url, listed->url) != 0);
	bool now = other && coding && seen_has(&m->seen, old.node);
	if (!coding) {
		rc = merge_file(m, parent, name, listed, coding, found);
		if (rc == 0 && other)
			rc = merge_give_way(m, &old);
	} else if (now) {
		rc = merge_as_it_is(m, parent, name, listed);
	} else if (other && old.coding == PS_CODING_NONE && !last) {
		rc = put_off(m, parent, name, listed);
	} else {
		rc = merge_file(m, parent, shown, listed, coding, found);
	}
	ps_node_row_fini(&old);
	return rc;
}

/* Merges the shards that were put off to the end. Takes names_lock. */
static int merge_later(struct ps_merge *m)
{
	int rc = 0;

	PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
	/* In the order of the listing: if two shards have the same shown name, the first always gets it. */
	for (struct merge_later *later, *rest = ps_steal_ptr(&m->later); (later = rest);) {
		rest = later->next;
		later->next = m->later;
		m->later = later;
	}
	while (m->later && rc == 0) {
		struct merge_later *later = take_later(m);
		const struct ps_listed listed = {.url = later->url, .remote = later->remote};

		rc = merge_named(m, later->parent, later->name, &listed, true);
		free_later(later);
	}
	return rc;
}

/* What a listing has ------------------------------------------------------------------------------------ */

/* Finds or makes the directory `name` of parent. A file of that name is superseded; if it is a listed shard
 * with that shown name, the shard is shown raw. */
static int make_dir(struct ps_merge *m, uint64_t parent, char *name, uint64_t *ret_node)
{
	struct ps_node_row made = {
	        .parent = parent, .kind = PS_NODE_DIR, .remote = PS_REMOTE_UNKNOWN, .name = name};
	made.remote.mtime_s = m->begun_ms / 1000;
	struct ps_node_row old = {0};
	int rc = merge_get_named(m, parent, name, &old);
	bool any = rc == 0;

	if (any && old.kind == PS_NODE_DIR) {
		*ret_node = old.node;
		ps_node_row_fini(&old);
		return 0;
	}
	if (rc == -ENOENT)
		rc = 0;
	if (any)
		merge_supersede(m, &old);
	if (rc == 0)
		rc = put_new(m, &made, 0);
	if (rc == 0 && any)
		rc = merge_give_way(m, &old);
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
	return seen_add(&m->seen, node);
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

/* The node of a known path; -ENOENT: none. */
static int find_path(struct ps_merge *m, const char *path, struct ps_node_row *ret)
{
	uint64_t parent = m->dataset->catalog->row.root;

	for (const char *slash;; path = slash + 1) {
		slash = strchrnul(path, '/');
		ps_autofree char *name = strndup(path, (size_t)(slash - path));
		int rc = name ? merge_get_named(m, parent, name, ret) : -ENOMEM;
		if (rc < 0 || !*slash)
			return rc;
		bool is_dir = ret->kind == PS_NODE_DIR;
		parent = ret->node;
		ps_node_row_fini(ret);
		if (!is_dir)
			return -ENOENT;
	}
}

/* The origin could not list this path: all known names in it count as listed. Names vanish only from folders
 * that were listed. */
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
		rc = seen_add(&m->seen, row.node);
	ps_node_row_fini(&row);
	return rc;
}

int ps_merge_add(void *arg, const struct ps_listed *listed)
{
	struct ps_merge *m = arg;
	const char *slash = strrchr(listed->path, '/');
	struct ps_listed copy = *listed;
	uint64_t parent;

	if (m->dataset->by_size && copy.remote.size != PS_SIZE_UNKNOWN && !listed->stated)
		ps_remote_by_size(&copy.remote);
	else if (listed->stated)
		ps_remote_state_size(&copy.remote, copy.remote.size);
	/* A size without a date or an ETag does not identify a version: the listing's size is ignored then. */
	if (copy.remote.mtime_s < 0 && !copy.remote.etag[0]) {
		copy.remote = PS_REMOTE_UNKNOWN;
		memcpy(copy.remote.checksum, listed->remote.checksum, sizeof(copy.remote.checksum));
	}
	if (!listed->checksum || !ps_checksum_parse(listed->checksum, copy.remote.checksum))
		(void)ps_checksum_parse(listed->remote.checksum, copy.remote.checksum);
	PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
	if (m->failed)
		return m->failed;
	if (listed->unread)
		return keep_path(m, listed->path);
	if (listed->is_dir) {
		int rc = dir_node(m, listed->path, strlen(listed->path), &parent);

		return rc ? rc : merge_commit_full(m);
	}
	int rc = dir_node(m, listed->path, slash ? (size_t)(slash - listed->path) : 0, &parent);
	if (rc == 0)
		rc = merge_named(m, parent, slash ? slash + 1 : listed->path, &copy, false);
	if (rc == 0)
		rc = merge_commit_full(m);
	atomic_fetch_add_explicit(&m->dataset->nlisted, 1, memory_order_relaxed);
	return rc;
}

/* Names that an earlier listing had, and this one has not ------------------------------------------------- */

/* names_lock is not held. */
static int remove_in(struct ps_merge *m, uint64_t parent)
{
	struct ps_index *index = m->dataset->index;
	struct ps_index_children *it;
	struct ps_node_row row;
	const char *name;
	uint64_t node, current;
	int rc = ps_index_children_open(index, parent, &it);

	if (rc < 0)
		return rc;
	while (rc == 0 && ps_index_children_next(it, &name, &node)) {
		/* A node with a higher number was made after the listing began, by this listing or by a
		 * probe. */
		if (node > m->first_number || seen_has(&m->seen, node))
			continue;
		PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
		if (ps_index_get_child(index, parent, name, &current) < 0 || current != node)
			continue; /* the name has another node by now, or none */
		bool found = ps_index_get_node(index, node, &row) == 0;
		/* A HEAD has found the name since the listing began. */
		bool seen = found && row.kind == PS_NODE_FILE && row.checked_ms >= m->begun_ms;
		if (found)
			ps_node_row_fini(&row);
		if (!seen)
			rc = remove_name(m, parent, name, node, 0);
	}
	if (rc == 0)
		rc = ps_index_children_status(it);
	ps_index_children_close(it);
	return rc;
}

/* The end ------------------------------------------------------------------------------------------------ */

/* A directory's time is that of the listing that last changed its names. Directories that this listing made have
 * it already. */
static int set_times(struct ps_merge *m)
{
	struct ps_merge_dir *dir, *next;
	int rc = 0;

	HASH_ITER (hh, m->dirs, dir, next) {
		struct ps_node_row row = {0};

		if (rc < 0 || dir->node > m->first_number || !seen_has(&m->changed, dir->node))
			continue;
		PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
		if (ps_index_get_node(m->dataset->index, dir->node, &row) < 0)
			continue;
		row.remote.mtime_s = m->begun_ms / 1000;
		ps_index_batch_put_node(m->batch, &row);
		m->nbatched++;
		ps_node_row_fini(&row);
		rc = merge_commit_full(m);
	}
	return rc;
}

int ps_merge_finish(struct ps_merge *m, uint64_t *ret_nfiles, uint64_t *ret_first_unsized)
{
	struct ps_dataset *ds = m->dataset;
	struct ps_merge_dir *dir, *next;
	int rc = merge_later(m);

	*ret_nfiles = m->nfiles;
	*ret_first_unsized = m->first_unsized;
	if (rc < 0)
		return rc;
	if (m->nfiles == 0)
		return 0;
	{
		PS_LOCK_SCOPE(&ds->catalog->names_lock);
		rc = commit(m);
	}
	/* Names that are in directories of this listing, but not in the listing. */
	HASH_ITER (hh, m->dirs, dir, next) {
		if (rc == 0)
			rc = remove_in(m, dir->node);
	}
	if (rc == 0)
		rc = set_times(m);
	if (rc < 0)
		return rc;
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
