#include "dataset/merge.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* uthash's hash function falls through its cases without a word that clang knows. */
#pragma GCC diagnostic ignored "-Wimplicit-fallthrough"

#include "base/clock.h"
#include "base/log.h"

#define BATCH_ROWS 2000
#define BATCHED_BITS 65536

/* A compressed shard whose shown name is another file's, of which the listing has not told yet. */
struct later {
	struct later *next;
	uint64_t parent;
	char *name, *url; /* as it is listed */
	struct ps_remote remote;
};

struct merge_dir {
	char *path; /* below the root; "" is the root */
	uint64_t node;
	UT_hash_handle hh;
};

struct ps_merge {
	struct ps_dataset *dataset;
	struct merge_dir *dirs; /* by path */
	struct ps_index_batch *batch;
	size_t nbatched;
	uint64_t *seen; /* nodes of this listing; sorted by finish */
	size_t nseen, seen_cap;
	uint64_t nfiles, first_unsized;
	uint64_t first_number; /* nodes made since this merge began have higher ones */
	int64_t begun_ms;
	int failed; /* a commit, by whomever */
	uint8_t batched[BATCHED_BITS / 8]; /* hashes of the names that the batch has, and the index not yet */
	struct later *later;
	bool told_clash;
};

static struct merge_dir *dir_remember(struct ps_merge *m, const char *path, size_t len, uint64_t node)
{
	struct merge_dir *dir = calloc(1, sizeof *dir);

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

static struct later *later_take(struct ps_merge *m)
{
	struct later *later = m->later;

	m->later = later->next;
	return later;
}

static void later_free(struct later *later)
{
	free(later->name);
	free(later->url);
	free(later);
}

struct ps_merge *ps_merge_new(struct ps_dataset *dataset)
{
	struct ps_merge *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	m->dataset = dataset;
	m->begun_ms = ps_clock_real_ms();
	m->batch = ps_index_batch_new();
	if (!m->batch || ps_index_new_node(dataset->index, &m->first_number) < 0 ||
	        !dir_remember(m, "", 0, dataset->row.root)) {
		ps_merge_free(m);
		return NULL;
	}
	PS_LOCK_SCOPE(&dataset->names_lock);
	dataset->merge = m;
	return m;
}

void ps_merge_free(struct ps_merge *m)
{
	struct merge_dir *dir, *next;

	if (!m)
		return;
	{
		PS_LOCK_SCOPE(&m->dataset->names_lock);
		if (m->dataset->merge == m)
			m->dataset->merge = NULL;
	}
	HASH_ITER (hh, m->dirs, dir, next) {
		HASH_DEL(m->dirs, dir);
		free(dir->path);
		free(dir);
	}
	while (m->later)
		later_free(later_take(m));
	if (m->batch)
		ps_index_batch_free(m->batch);
	free(m->seen);
	free(m);
}

/* names_lock is held, here and wherever something is put into the batch. */
static int merge_commit(struct ps_merge *m)
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

int ps_merge_flush(struct ps_dataset *dataset)
{
	return dataset->merge ? merge_commit(dataset->merge) : 0;
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

static int put_new(struct ps_merge *m, struct ps_node_row *row, uint64_t same_ino)
{
	int rc = ps_index_new_node(m->dataset->index, &row->node);

	if (rc < 0)
		return rc;
	row->ino = same_ino ? same_ino : row->node;
	row->dataset = m->dataset->row.number;
	row->generation = m->dataset->row.generation;
	ps_index_batch_put_node(m->batch, row);
	ps_index_batch_put_child(m->batch, row->parent, row->name, row->node);
	m->nbatched += 2;
	return 0;
}

static void supersede(struct ps_merge *m, struct ps_node_row *row)
{
	row->superseded = true;
	ps_index_batch_put_node(m->batch, row);
	m->nbatched++;
	ps_dataset_retire(m->dataset, row->node);
}

/* The node of the directory `path[0..len)`, made with its parents where missing. */
static int dir_node(struct ps_merge *m, const char *path, size_t len, uint64_t *ret_node)
{
	struct ps_index *index = m->dataset->index;
	struct merge_dir *dir;
	struct ps_node_row row = {0};
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
	rc = ps_index_get_child(index, parent, name, &node);
	if (rc == 0)
		rc = ps_index_get_node(index, node, &row);
	bool is_dir = rc == 0 && row.kind == PS_NODE_DIR;
	if (rc == 0 && !is_dir)
		supersede(m, &row);
	ps_node_row_fini(&row);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	if (!is_dir) {
		struct ps_node_row made = {
		        .parent = parent, .kind = PS_NODE_DIR, .remote = PS_REMOTE_UNKNOWN, .name = name};

		rc = put_new(m, &made, 0);
		if (rc < 0)
			return rc;
		node = made.node;
	}
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

/* Without a date or an ETag a size says too little of the version: as if the listing had told nothing. */
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

static int remove_children(struct ps_merge *m, uint64_t dir, int depth);

/* The bit of a name in m->batched. */
static unsigned batched_bit(uint64_t parent, const char *name)
{
	uint64_t h = parent * UINT64_C(0x9E3779B97F4A7C15);

	for (const char *s = name; *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001B3);
	return (unsigned)(h >> 40) % BATCHED_BITS;
}

/* What stands for the name now, in this listing too; -ENOENT: nothing. */
static int get_named(struct ps_merge *m, uint64_t parent, const char *name, struct ps_node_row *ret)
{
	unsigned bit = batched_bit(parent, name);
	uint64_t node;
	int rc = m->batched[bit / 8] >> bit % 8 & 1 ? merge_commit(m) : 0;

	if (rc == 0)
		rc = ps_index_get_child(m->dataset->index, parent, name, &node);
	if (rc == 0)
		rc = ps_index_get_node(m->dataset->index, node, ret);
	return rc == -EBADMSG ? -ENOENT : rc;
}

static bool was_listed(const struct ps_merge *m, uint64_t node)
{
	for (size_t i = m->nseen; i > 0; i--)
		if (m->seen[i - 1] == node)
			return true;
	return false;
}

static int merge_file(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed,
        enum ps_coding coding)
{
	struct ps_node_row old = {0};
	unsigned bit = batched_bit(parent, name);
	int rc = get_named(m, parent, name, &old);
	bool have_old = rc == 0;

	if (rc < 0 && rc != -ENOENT)
		return rc;
	rc = 0;
	uint64_t node = old.node;
	bool unsized = listed->remote.size == PS_SIZE_UNKNOWN;
	m->batched[bit / 8] |= (uint8_t)(1u << bit % 8);
	if (have_old && row_still_right(m, &old, listed, coding)) {
		/* 0: confirmed by the listing from now on. One that told no version confirms none. */
		int64_t checked_ms = old.checked_ms >= m->begun_ms ? old.checked_ms
		                     : unsized && !old.checked_ms  ? PS_CHECKED_DOUBTFUL
		                     : unsized                     ? old.checked_ms
		                                                   : 0;

		bool news = take_checksum(&old, listed);

		unsized = old.remote.size == PS_SIZE_UNKNOWN;
		if (news || (!unsized && old.checked_ms != checked_ms)) {
			old.checked_ms = unsized ? old.checked_ms : checked_ms;
			ps_index_batch_put_node(m->batch, &old);
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

		if (have_old) {
			supersede(m, &old);
			if (old.kind == PS_NODE_DIR)
				rc = remove_children(m, old.node, 0);
		}
		if (rc == 0)
			rc = put_new(m, &row, have_old && old.kind == PS_NODE_FILE ? old.ino : 0);
		node = row.node;
	}
	ps_node_row_fini(&old);
	if (rc < 0)
		return rc;
	m->nfiles++;
	if (unsized && !m->first_unsized)
		m->first_unsized = node;
	return merge_seen(m, node);
}

/* Names of compressed shards --------------------------------------------------------------------- */

static int merge_as_it_is(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed)
{
	if (!m->told_clash)
		ps_log_info("list: %s: shown as it is: another file has the name that its contents would have",
		        listed->url);
	m->told_clash = true;
	return merge_file(m, parent, name, listed, PS_CODING_NONE);
}

/* The name under which a compressed shard is listed, by its URL, of which a view is shown as `shown`. */
static char *listed_name(const char *shown, const char *url, enum ps_coding coding)
{
	static const char *const shorts[] = {"", ".tzst", ".tgz"}, *const longs[] = {"", ".zst", ".gz"};
	size_t len = strcspn(url, "?"), n = strlen(shorts[coding]), stem = strlen(shown) - strlen(".tar");
	bool is_short = len > n && strncasecmp(url + len - n, shorts[coding], n) == 0;
	char *name;

	if (asprintf(&name, "%.*s%s", (int)(is_short ? stem : strlen(shown)), shown,
	            is_short ? shorts[coding] : longs[coding]) < 0)
		return NULL;
	return name;
}

/* A file has the name that a compressed shard of this listing was shown by. */
static int give_way(struct ps_merge *m, const struct ps_node_row *view)
{
	ps_autofree char *name = listed_name(view->name, view->url, (enum ps_coding)view->coding);
	const struct ps_listed listed = {.url = view->url, .remote = view->remote};

	return name ? merge_as_it_is(m, view->parent, name, &listed) : -ENOMEM;
}

static int put_off(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed)
{
	struct later *later = calloc(1, sizeof *later);

	if (!later)
		return -ENOMEM;
	*later = (struct later){.next = m->later,
	        .parent = parent,
	        .name = strdup(name),
	        .url = strdup(listed->url),
	        .remote = listed->remote};
	m->later = later;
	return later->name && later->url ? 0 : -ENOMEM;
}

/* Under what name and as what a listed file is shown; `last`: the listing is over. */
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
	int rc = get_named(m, parent, shown, &old);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	bool other = rc == 0 && (old.kind == PS_NODE_DIR || strcmp(old.url, listed->url) != 0);
	bool now = other && was_listed(m, old.node);
	if (!coding) {
		rc = merge_file(m, parent, name, listed, coding);
		if (rc == 0 && now && old.coding)
			rc = give_way(m, &old);
	} else if (now) {
		rc = merge_as_it_is(m, parent, name, listed);
	} else if (other && old.coding == PS_CODING_NONE && !last) {
		rc = put_off(m, parent, name, listed);
	} else {
		rc = merge_file(m, parent, shown, listed, coding);
	}
	ps_node_row_fini(&old);
	return rc;
}

static int merge_later(struct ps_merge *m)
{
	int rc = 0;

	PS_LOCK_SCOPE(&m->dataset->names_lock);
	while (m->later && rc == 0) {
		struct later *later = later_take(m);
		const struct ps_listed listed = {.url = later->url, .remote = later->remote};

		rc = merge_named(m, later->parent, later->name, &listed, true);
		later_free(later);
	}
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
	PS_LOCK_SCOPE(&m->dataset->names_lock);
	if (m->failed)
		return m->failed;
	int rc = dir_node(m, listed->path, slash ? (size_t)(slash - listed->path) : 0, &parent);
	if (rc == 0)
		rc = merge_named(m, parent, slash ? slash + 1 : listed->path, &copy, false);
	if (rc == 0 && m->nbatched >= BATCH_ROWS)
		rc = merge_commit(m);
	atomic_fetch_add_explicit(&m->dataset->nlisted, 1, memory_order_relaxed);
	return rc;
}

/* Vanished names -------------------------------------------------------------------------------- */

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* names_lock is held. */
static int remove_name(struct ps_merge *m, uint64_t parent, const char *name, uint64_t node, int depth)
{
	struct ps_node_row row = {0};
	int rc = ps_index_get_node(m->dataset->index, node, &row);

	if (rc == 0) {
		supersede(m, &row);
		if (row.kind == PS_NODE_DIR)
			rc = remove_children(m, node, depth);
		ps_node_row_fini(&row);
	}
	ps_index_batch_del_child(m->batch, parent, name);
	m->nbatched++;
	if (rc == 0 && m->nbatched >= BATCH_ROWS)
		rc = merge_commit(m);
	return rc == -ENOENT ? 0 : rc;
}

/* names_lock is held. */
static int remove_children(struct ps_merge *m, uint64_t dir, int depth)
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
	ps_index_children_close(it);
	return rc;
}

/* A HEAD has found the name since the listing began. names_lock is held. */
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

static int remove_vanished(struct ps_merge *m, uint64_t parent)
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
		if (node > m->first_number || bsearch(&node, m->seen, m->nseen, sizeof node, cmp_u64))
			continue;
		PS_LOCK_SCOPE(&m->dataset->names_lock);
		if (!was_seen_since(m, parent, name, node))
			rc = remove_name(m, parent, name, node, 0);
	}
	ps_index_children_close(it);
	return rc;
}

static int finish_row(struct ps_merge *m)
{
	struct ps_dataset *ds = m->dataset;

	PS_LOCK_SCOPE(&ds->names_lock);
	{
		PS_LOCK_SCOPE(&ds->lock);
		ds->row.listed_ms = PS_MAX(ps_clock_real_ms(), ds->attached_ms);
		ds->row.nfiles = m->nfiles;
		ds->row.generation++;
		ps_index_batch_put_dataset(m->batch, &ds->row);
		m->nbatched++;
	}
	return merge_commit(m);
}

int ps_merge_finish(struct ps_merge *m, uint64_t *ret_nfiles, uint64_t *ret_first_unsized)
{
	struct merge_dir *dir, *next;
	int rc = merge_later(m);

	*ret_nfiles = m->nfiles;
	*ret_first_unsized = m->first_unsized;
	if (rc < 0)
		return rc;
	if (m->nfiles == 0)
		return 0;
	{
		PS_LOCK_SCOPE(&m->dataset->names_lock);
		rc = merge_commit(m);
	}
	qsort(m->seen, m->nseen, sizeof *m->seen, cmp_u64);
	HASH_ITER (hh, m->dirs, dir, next) {
		if (rc == 0)
			rc = remove_vanished(m, dir->node);
	}
	return rc < 0 ? rc : finish_row(m);
}
