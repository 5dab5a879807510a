/* Known tables: where they are, their rows in memory, their entries. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "members/members_private.h"

#define DEPTH_MAX 64 /* of nested folders; a listing's own limit is lower */
#define ROW_SLOTS 2048
#define ROW_LOCKS 16
#define ROW_KEPT_NBYTES 32768 /* larger rows are decoded at each use; a usual one has 3 KiB */

bool ps_members_is_shard(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && strcmp(name + n - 4, ".tar") == 0;
}

/* Rows --------------------------------------------------------------------------------------------------- */

struct ps_member_rows {
	pthread_mutex_t locks[ROW_LOCKS];
	struct {
		uint64_t shard;
		uint32_t number;
		struct ps_member_row *row;
	} slots[ROW_SLOTS];
};

struct ps_member_rows *ps_member_rows_new(void)
{
	struct ps_member_rows *rows = calloc(1, sizeof(*rows));

	for (size_t i = 0; rows && i < ROW_LOCKS; i++)
		pthread_mutex_init(&rows->locks[i], NULL);
	return rows;
}

void ps_member_row_put(struct ps_member_row *row)
{
	if (row && atomic_fetch_sub(&row->refs, 1) == 1)
		free(row);
}

void ps_member_rows_free(struct ps_member_rows *rows)
{
	for (size_t i = 0; rows && i < ROW_SLOTS; i++)
		ps_member_row_put(rows->slots[i].row);
	for (size_t i = 0; rows && i < ROW_LOCKS; i++)
		pthread_mutex_destroy(&rows->locks[i]);
	free(rows);
}

int ps_member_row_get(struct ps_members *m, const struct ps_member_table *table, uint32_t ordinal,
        struct ps_member_row **ret)
{
	ps_autostrbuf struct ps_strbuf bytes = {0};
	struct ps_member_row *row = NULL, *old;
	uint32_t number = ordinal / PS_MEMBER_ROW;
	size_t i = (table->shard * UINT64_C(0x9e3779b97f4a7c15) + number) % ROW_SLOTS;
	pthread_mutex_t *lock = &m->rows->locks[i % ROW_LOCKS];

	if (ordinal >= table->n)
		return -ENOENT;
	{
		PS_LOCK_SCOPE(lock);
		if (m->rows->slots[i].shard == table->shard && m->rows->slots[i].number == number &&
		        m->rows->slots[i].row) {
			row = m->rows->slots[i].row;
			atomic_fetch_add(&row->refs, 1);
			*ret = row;
			return 0;
		}
	}
	int rc = ps_index_get_members(m->index, table->shard, number, &bytes);
	if (rc == 0)
		rc = ps_member_row_decode(bytes.s, bytes.len, table, number * PS_MEMBER_ROW, &row);
	if (rc < 0) {
		ps_log_error("members: row %u of shard %llu cannot be read: %s", number,
		        (unsigned long long)table->shard, strerror(-rc));
		return rc == -ENOMEM ? rc : -EIO;
	}
	if (bytes.len > ROW_KEPT_NBYTES) {
		*ret = row;
		return 0;
	}
	atomic_fetch_add(&row->refs, 1);
	{
		PS_LOCK_SCOPE(lock);
		old = m->rows->slots[i].row;
		m->rows->slots[i].shard = table->shard;
		m->rows->slots[i].number = number;
		m->rows->slots[i].row = row;
	}
	ps_member_row_put(old);
	*ret = row;
	return 0;
}

/* Finding tables ----------------------------------------------------------------------------------------- */

void ps_table_free(struct table *table)
{
	free(table->t.hidden);
	free(table->t.damage);
	free(table->error);
	free(table);
}

/* The lock is held for the next three functions. */

struct table *ps_table_find(struct ps_members *m, uint64_t shard)
{
	struct ps_tree_item *item = ps_tree_from(&m->by_shard, shard);

	return item && item->key == shard ? PS_CONTAINER_OF(item, struct table, by_shard) : NULL;
}

struct table *ps_table_find_or_add(struct ps_members *m, uint64_t shard)
{
	struct table *table = ps_table_find(m, shard);

	if (table || !(table = calloc(1, sizeof(*table))))
		return table;
	table->of = m;
	table->t.shard = shard;
	ps_list_init(&table->link);
	ps_list_init(&table->waiters);
	ps_tree_insert(&m->by_shard, &table->by_shard, shard);
	return table;
}

/* A table's run of node numbers is found by its last number: of the runs that end at a number or after it,
 * only the first can contain the number. */
void ps_table_set_known(struct ps_members *m, struct table *table, struct ps_member_table *t)
{
	table->t = *t;
	t->hidden = t->damage = NULL;
	table->state = KNOWN;
	ps_tree_insert(&m->by_last, &table->by_last, table->t.first + table->t.n - 1);
}

int ps_table_load(struct ps_members *m, uint64_t shard, struct ps_member_table *ret)
{
	ps_autostrbuf struct ps_strbuf bytes = {0};
	int rc = ps_index_get_members(m->index, shard, PS_MEMBERS_HEAD, &bytes);

	*ret = (struct ps_member_table){.shard = shard};
	if (rc == 0)
		rc = ps_member_head_decode(bytes.s, bytes.len, ret);
	if (rc == -EBADMSG)
		ps_log_error("members: the table of shard %llu is damaged; it is made again",
		        (unsigned long long)shard);
	return rc == -EBADMSG ? -ENOENT : rc;
}

const struct ps_member_table *ps_members_known(struct ps_members *m, uint64_t shard)
{
	struct ps_member_table t;
	struct ps_node_row row;

	{
		PS_LOCK_SCOPE(&m->lock);
		struct table *table = ps_table_find(m, shard);

		if (table && table->state != UNKNOWN)
			return table->state == KNOWN ? &table->t : NULL;
	}
	/* A table reveals what is in a shard. So it is shown only to credentials that have proved that they
	 * may read the shard. */
	if (ps_index_get_node(m->index, shard, &row) < 0)
		return NULL;
	bool may_know = ps_grant_of_row(m->dataset, &row) != PS_GRANT_NONE;
	ps_node_row_fini(&row);
	if (!may_know || ps_table_load(m, shard, &t) < 0)
		return NULL;
	PS_LOCK_SCOPE(&m->lock);
	struct table *table = ps_table_find_or_add(m, shard);
	if (table && table->state == UNKNOWN)
		ps_table_set_known(m, table, &t);
	free(t.hidden);
	free(t.damage);
	return table && table->state == KNOWN ? &table->t : NULL;
}

const struct ps_member_table *ps_members_of(struct ps_members *m, uint64_t node)
{
	PS_LOCK_SCOPE(&m->lock);
	struct ps_tree_item *item = ps_tree_from(&m->by_last, node);
	const struct table *table = item ? PS_CONTAINER_OF(item, struct table, by_last) : NULL;

	return table && node >= table->t.first ? &table->t : NULL;
}

bool ps_members_has_failed(struct ps_members *m, uint64_t shard)
{
	PS_LOCK_SCOPE(&m->lock);
	const struct table *table = ps_table_find(m, shard);

	return table && table->state == FAILED;
}

void ps_members_error(struct ps_members *m, uint64_t shard, char ret_text[static PS_ERROR_TEXT_LEN])
{
	PS_LOCK_SCOPE(&m->lock);
	const struct table *table = ps_table_find(m, shard);

	const char *text = table && table->state == KNOWN ? table->t.damage : table ? table->error : NULL;

	snprintf(ret_text, PS_ERROR_TEXT_LEN, "%s", text ? text : "");
}

/* Shards ---------------------------------------------------------------------------------- */

struct walk {
	struct ps_members *members;
	int (*fn)(void *arg, uint64_t node, uint64_t size);
	void *arg;
};

static int walk_folder(const struct walk *w, uint64_t folder, int depth)
{
	struct ps_attr attr;
	struct ps_dir *dir;
	const char *name;
	int found = 0, rc = depth > DEPTH_MAX ? -ELOOP : ps_dir_open(w->members->dataset, folder, &dir);

	if (rc < 0)
		return rc;
	for (uint64_t pos = 0; rc == 0 && (found = ps_dir_read(dir, pos, true, &name, &attr)) > 0; pos++) {
		if (attr.is_dir)
			rc = walk_folder(w, attr.node, depth + 1);
		else if (ps_members_is_shard(name))
			rc = w->fn(w->arg, attr.node, attr.complete_attr ? attr.size : 0);
		if (rc == 0 && atomic_load(&w->members->stopping))
			rc = -ECANCELED;
	}
	ps_dir_close(dir);
	return rc ? rc : PS_MIN(found, 0);
}

int ps_members_each_shard(struct ps_members *m, int (*fn)(void *arg, uint64_t node, uint64_t size), void *arg)
{
	const struct walk w = {.members = m, .fn = fn, .arg = arg};

	return walk_folder(&w, ps_dataset_root(m->dataset), 0);
}

/* Entries ------------------------------------------------------------------------------------------------ */

static void member_of(const struct ps_member_row *row, uint32_t ordinal, struct ps_member *ret)
{
	const struct ps_member_entry *e = &row->v[ordinal % PS_MEMBER_ROW];

	ret->kind = e->kind;
	ret->ordinal = ordinal;
	ret->parent = e->parent;
	ret->name_len = e->name_len;
	memcpy(ret->name, row->text + e->name, e->name_len + 1);
	ret->offset = e->offset;
	ret->size = e->size;
	ret->mtime_s = e->mtime_s;
	ret->child = e->child;
	ret->nchildren = e->nchildren;
}

int ps_member_get(
        struct ps_members *m, const struct ps_member_table *table, uint32_t ordinal, struct ps_member *ret)
{
	struct ps_member_row *row;
	int rc = ps_member_row_get(m, table, ordinal, &row);

	if (rc < 0)
		return rc;
	member_of(row, ordinal, ret);
	ps_member_row_put(row);
	return 0;
}

int ps_member_find(struct ps_members *m, const struct ps_member_table *table, uint32_t folder,
        const char *name, struct ps_member *ret)
{
	struct ps_member_row *row = NULL;
	struct ps_member dir;
	size_t n = strlen(name);
	int rc = ps_member_get(m, table, folder, &dir);

	if (rc == 0 && dir.kind != PS_MEMBER_FOLDER)
		rc = -ENOTDIR;
	if (rc < 0)
		return rc;
	uint32_t from = dir.child, end = dir.child + dir.nchildren;
	while (from < end) {
		uint32_t mid = from + (end - from) / 2;

		rc = ps_member_row_get(m, table, mid, &row);
		if (rc < 0)
			return rc;
		/* As strcmp(); the name of an entry contains no NUL. */
		const struct ps_member_entry *e = &row->v[mid % PS_MEMBER_ROW];
		int c = memcmp(name, row->text + e->name, PS_MIN(n, (size_t)e->name_len));
		if (c == 0)
			c = (n > e->name_len) - (n < e->name_len);
		if (c == 0)
			member_of(row, mid, ret);
		ps_member_row_put(row);
		if (c == 0)
			return 0;
		if (c < 0)
			end = mid;
		else
			from = mid + 1;
	}
	return -ENOENT;
}

int ps_member_link(
        struct ps_members *m, const struct ps_member_table *table, uint32_t ordinal, char **ret_target)
{
	struct ps_member_row *row;
	int rc = ps_member_row_get(m, table, ordinal, &row);

	if (rc < 0)
		return rc;
	const struct ps_member_entry *e = &row->v[ordinal % PS_MEMBER_ROW];
	char *target = e->kind == PS_MEMBER_LINK ? strdup(row->text + e->link) : NULL;
	rc = target ? 0 : e->kind == PS_MEMBER_LINK ? -ENOMEM : -EINVAL;
	ps_member_row_put(row);
	if (rc == 0)
		*ret_target = target;
	return rc;
}

int ps_member_path(
        struct ps_members *m, const struct ps_member_table *table, uint32_t ordinal, char **ret_path)
{
	char *path = strdup("");
	int rc = path ? 0 : -ENOMEM;

	while (rc == 0 && ordinal) {
		struct ps_member member;
		char *longer;

		rc = ps_member_get(m, table, ordinal, &member);
		if (rc == 0 && asprintf(&longer, "%s%s%s", member.name, path[0] ? "/" : "", path) < 0)
			rc = -ENOMEM;
		if (rc == 0) {
			free(path);
			path = longer;
			ordinal = member.parent;
		}
	}
	if (rc < 0)
		free(path);
	else
		*ret_path = path;
	return rc;
}
