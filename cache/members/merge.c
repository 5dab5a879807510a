/* The members of all shards in one tree. The tree is stored in the index like a listing: as children of
 * folders, which have their own numbers. A tree belongs to a dataset; all mounts of the dataset show the
 * same tree.
 *
 * The head says which tables the tree was made of, which tree was shown before it (the previous tree), and
 * which tree's rows are to be deleted. While a tree is being made, these are its own rows; once it is
 * complete, they are those of the tree before the previous one. So after a kill at any time one tree is
 * complete, and no rows are left over. The previous tree is kept for programs that still walk through it; a
 * folder of an older tree gives -ESTALE. The folders of a tree have greater numbers than all folders of
 * earlier trees. */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/hashtable.h"
#include "base/log.h"
#include "base/size.h"
#include "members/members_private.h"

#define PUTS_PER_BATCH 4096
#define LOCK_POLL_MS 50

struct head {
	uint64_t root;   /* 0: no tree is complete */
	uint64_t tables; /* hash of the tables that it was made of */
	uint64_t before; /* the tree that was complete before it; 0: none */
	uint64_t doomed; /* the top folder of a tree that is to be deleted; 0: none */
};

/* The head ----------------------------------------------------------------------------------------------- */

uint32_t ps_merged_head_row(const struct ps_members *m)
{
	const uint8_t *id = m->dataset->access.bytes;

	return (uint32_t)id[0] | (uint32_t)id[1] << 8 | (uint32_t)id[2] << 16 |
	       (uint32_t)(id[3] & 0x7f) << 24;
}

static int get_head(struct ps_members *m, struct head *ret)
{
	ps_autostrbuf struct ps_strbuf bytes = {0};
	uint64_t v[4];
	int rc = ps_index_get_members(m->index, ps_dataset_root(m->dataset), ps_merged_head_row(m), &bytes);

	*ret = (struct head){0};
	if (rc == -ENOENT || (rc == 0 && bytes.len != sizeof(v)))
		return 0;
	if (rc < 0)
		return rc;
	memcpy(v, bytes.s, sizeof(v));
	*ret = (struct head){le64toh(v[0]), le64toh(v[1]), le64toh(v[2]), le64toh(v[3])};
	return 0;
}

static int put_head(struct ps_members *m, struct ps_index_batch *batch, const struct head *head)
{
	const uint64_t v[4] = {
	        htole64(head->root), htole64(head->tables), htole64(head->before), htole64(head->doomed)};

	if (!batch)
		batch = ps_index_batch_new();
	ps_index_batch_put_members(batch, ps_dataset_root(m->dataset), ps_merged_head_row(m), v, sizeof(v));
	return ps_index_batch_commit(m->index, batch);
}

/* Deleting a tree ---------------------------------------------------------------------------------------- */

struct stack {
	uint64_t *v;
	size_t n, cap;
};

static int push(struct stack *stack, uint64_t folder)
{
	if (!ps_grow(&stack->v, stack->n, &stack->cap, sizeof(*stack->v)))
		return -ENOMEM;
	stack->v[stack->n++] = folder;
	return 0;
}

static int delete_children(struct ps_members *m, uint64_t folder)
{
	struct ps_index_children *it;
	struct ps_index_batch *batch = NULL;
	const char *name;
	uint64_t node;
	int rc = ps_index_children_open(m->index, folder, &it);

	if (rc < 0)
		return rc;
	for (size_t n = 1; rc == 0 && ps_index_children_next(it, &name, &node); n++) {
		if (!batch && !(batch = ps_index_batch_new()))
			rc = -ENOMEM;
		ps_index_batch_del_child(batch, folder, name);
		if (rc == 0 && n % PUTS_PER_BATCH == 0)
			rc = ps_index_batch_commit(m->index, ps_steal_ptr(&batch));
		if (rc == 0 && atomic_load(&m->stopping))
			rc = -ECANCELED;
	}
	if (rc == 0)
		rc = ps_index_children_status(it);
	ps_index_children_close(it);
	if (rc == 0 && batch)
		return ps_index_batch_commit(m->index, batch);
	ps_index_batch_free(batch);
	return rc;
}

/* Deletes the tree `doomed` of the head, from the lowest folders up: after a kill the next start still
 * reaches the remaining folders from the top. */
static int delete_doomed(struct ps_members *m, struct head *head)
{
	struct stack stack = {0};
	int rc = head->doomed ? push(&stack, head->doomed) : 0;

	for (size_t i = 0; rc == 0 && i < stack.n; i++) {
		struct ps_index_children *it;
		const char *name;
		uint64_t node;

		rc = ps_index_children_open(m->index, stack.v[i], &it);
		if (rc < 0)
			break;
		while (rc == 0 && ps_index_children_next(it, &name, &node))
			if (node & PS_MERGED_FOLDER)
				rc = push(&stack, node);
		ps_index_children_close(it);
	}
	while (rc == 0 && stack.n > 0)
		rc = delete_children(m, stack.v[--stack.n]);
	free(stack.v);
	if (rc < 0 || !head->doomed)
		return rc;
	head->doomed = 0;
	return put_head(m, NULL, head);
}

/* Making a tree ------------------------------------------------------------------------------------------ */

/* The shards whose members are merged, in the order of their paths. */
struct shards {
	struct ps_members *members;
	const struct ps_member_table **v;
	size_t n, cap;
	bool unknown;
};

static int add_shard(void *arg, uint64_t node, uint64_t size)
{
	struct shards *shards = arg;
	const struct ps_member_table *table = ps_members_known(shards->members, node);

	(void)size;
	if (!table) {
		shards->unknown |= !ps_members_has_failed(shards->members, node);
		return 0;
	}
	if (!ps_grow(&shards->v, shards->n, &shards->cap, sizeof(*shards->v)))
		return -ENOMEM;
	shards->v[shards->n++] = table;
	return 0;
}

/* The folders of the tree that is being made, by parent and name. */
struct key {
	uint64_t parent;
	char name[PS_MEMBER_NAME_MAX + 1]; /* in a struct folder: only as long as the name */
};

struct folder {
	UT_hash_handle hh;
	uint64_t number;
	struct key key; /* last */
};

struct maker {
	struct ps_members *members;
	struct folder *folders;
	struct ps_index_batch *batch;
	size_t nputs;
};

static size_t key_len(size_t name_len)
{
	return sizeof(uint64_t) + name_len;
}

static struct folder *find_folder(const struct maker *k, uint64_t parent, const char *name, size_t name_len)
{
	struct folder *found;
	struct key key;

	key.parent = parent;
	memcpy(key.name, name, name_len);
	HASH_FIND(hh, k->folders, &key, key_len(name_len), found);
	return found;
}

static int put(struct maker *k, uint64_t parent, const char *name, uint64_t node)
{
	if (!k->batch && !(k->batch = ps_index_batch_new()))
		return -ENOMEM;
	ps_index_batch_put_child(k->batch, parent, name, node);
	if (++k->nputs % PUTS_PER_BATCH)
		return 0;
	if (atomic_load(&k->members->stopping))
		return -ECANCELED;
	return ps_index_batch_commit(k->members->index, ps_steal_ptr(&k->batch));
}

/* The number of a folder, which is made if it is missing. */
static int make_folder(
        struct maker *k, uint64_t parent, const char *name, size_t name_len, uint64_t *ret_number)
{
	struct folder *folder = find_folder(k, parent, name, name_len);

	if (folder) {
		*ret_number = folder->number;
		return 0;
	}
	folder = calloc(1, offsetof(struct folder, key) + key_len(name_len));
	int rc = folder ? ps_index_new_node(k->members->index, &folder->number) : -ENOMEM;
	if (rc < 0) {
		free(folder);
		return rc;
	}
	folder->number |= PS_MERGED_FOLDER;
	folder->key.parent = parent;
	memcpy(folder->key.name, name, name_len);
	HASH_ADD(hh, k->folders, key, key_len(name_len), folder);
	if (!folder->hh.tbl) {
		free(folder);
		return -ENOMEM;
	}
	*ret_number = folder->number;
	return put(k, parent, name, folder->number);
}

static int merge_table(struct maker *k, const struct ps_member_table *table, uint64_t root)
{
	uint64_t *folders = calloc(table->n, sizeof(*folders)); /* by ordinal; 0: no folder */
	struct ps_member_row *row = NULL;
	int rc = folders ? 0 : -ENOMEM;

	if (rc == 0)
		folders[0] = root;
	for (uint32_t i = 0; rc == 0 && i < table->n; i++) {
		if (i % PS_MEMBER_ROW == 0) {
			ps_member_row_put(ps_steal_ptr(&row));
			rc = ps_member_row_get(k->members, table, i, &row);
		}
		if (rc < 0 || i == 0)
			continue;
		const struct ps_member_entry *e = &row->v[i % PS_MEMBER_ROW];
		const char *name = row->text + e->name;
		uint64_t parent = folders[e->parent];

		if (!parent)
			rc = -EIO; /* the row is damaged */
		else if (e->kind == PS_MEMBER_FOLDER)
			rc = make_folder(k, parent, name, e->name_len, &folders[i]);
		else if (!find_folder(k, parent, name, e->name_len))
			rc = put(k, parent, name, table->first + i);
	}
	ps_member_row_put(row);
	free(folders);
	return rc;
}

static int make_tree(struct ps_members *m, const struct shards *shards, uint64_t root)
{
	struct maker k = {.members = m};
	struct folder *folder, *next;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < shards->n; i++)
		rc = merge_table(&k, shards->v[i], root);
	if (rc == 0 && k.batch)
		rc = ps_index_batch_commit(m->index, ps_steal_ptr(&k.batch));
	ps_index_batch_free(k.batch);
	HASH_ITER (hh, k.folders, folder, next) {
		HASH_DEL(k.folders, folder);
		free(folder);
	}
	return rc;
}

/* Reports the names in one top folder that the other does not have; other 0: all. */
static void report(struct ps_members *m, uint64_t root, uint64_t other)
{
	struct ps_index_children *it;
	const char *name;
	uint64_t node;

	if (ps_index_children_open(m->index, root, &it) < 0)
		return;
	while (!atomic_load(&m->stopping) && ps_index_children_next(it, &name, &node))
		if (!other || ps_index_get_child(m->index, other, name, &node) == -ENOENT)
			m->merged_changed(m->merged_arg, name);
	ps_index_children_close(it);
}

/* Shows the tree of the head, and reports the names that may have changed in its top folder. */
static void show(struct ps_members *m, const struct head *head)
{
	uint64_t shown = atomic_exchange(&m->merged_root, head->root);

	if (!shown && head->root) {
		/* The kernel has no name of an earlier tree, but may have an empty listing. */
		m->merged_changed(m->merged_arg, "");
	} else if (shown != head->root) {
		report(m, shown, 0);
		report(m, head->root, shown);
	}
}

static int make_anew(struct ps_members *m, const struct shards *shards, uint64_t tables, struct head *head)
{
	uint64_t root;
	int rc = ps_index_new_node(m->index, &root);

	if (rc < 0)
		return rc;
	root |= PS_MERGED_FOLDER;
	head->doomed = root;
	rc = put_head(m, NULL, head);
	if (rc == 0)
		rc = make_tree(m, shards, root);
	if (rc < 0)
		return rc;
	*head = (struct head){.root = root, .tables = tables, .before = head->root, .doomed = head->before};
	rc = put_head(m, NULL, head);
	if (rc < 0)
		return rc;
	atomic_store(&m->dataset->merged_oldest, head->before ? head->before : head->root);
	show(m, head);
	return delete_doomed(m, head);
}

/* Takes merge_lock. Another mount may hold it for minutes, while it makes the tree. */
static int lock(struct ps_members *m)
{
	while (pthread_mutex_trylock(&m->dataset->merge_lock) != 0) {
		if (atomic_load(&m->stopping))
			return -ECANCELED;
		poll(NULL, 0, LOCK_POLL_MS);
	}
	return 0;
}

int ps_merged_make(struct ps_members *m)
{
	struct shards shards = {.members = m};
	uint64_t tables = PS_HASH_BEGIN;
	struct head head;
	int rc = ps_members_each_shard(m, add_shard, &shards);

	if (rc == 0 && shards.unknown)
		rc = -EAGAIN;
	for (size_t i = 0; rc == 0 && i < shards.n; i++) {
		tables = ps_hash(tables, &shards.v[i]->shard, sizeof(shards.v[i]->shard));
		tables = ps_hash(tables, &shards.v[i]->first, sizeof(shards.v[i]->first));
	}
	if (rc == 0)
		rc = lock(m);
	if (rc < 0) {
		free(shards.v);
		return rc;
	}
	rc = get_head(m, &head);
	if (rc == 0)
		rc = delete_doomed(m, &head);
	if (rc == 0 && head.root && head.tables == tables) {
		atomic_store(&m->dataset->merged_oldest, head.before ? head.before : head.root);
		show(m, &head);
	} else if (rc == 0) {
		rc = make_anew(m, &shards, tables, &head);
	}
	pthread_mutex_unlock(&m->dataset->merge_lock);
	free(shards.v);
	return rc;
}

/* Showing it --------------------------------------------------------------------------------------------- */

int ps_merged_root(struct ps_members *m, uint64_t *ret_folder)
{
	*ret_folder = atomic_load(&m->merged_root);
	return *ret_folder ? 0 : -EAGAIN;
}

/* -ESTALE: the folder belongs to a tree whose rows may be deleted. */
static int check_folder(const struct ps_members *m, uint64_t folder)
{
	return folder < atomic_load(&m->dataset->merged_oldest) ? -ESTALE : 0;
}

int ps_merged_find(struct ps_members *m, uint64_t folder, const char *name, uint64_t *ret_node)
{
	int rc = check_folder(m, folder);

	return rc < 0 ? rc : ps_index_get_child(m->index, folder, name, ret_node);
}

struct ps_merged_dir {
	struct ps_members *members;
	uint64_t folder;
	struct ps_index_children *it;
	uint64_t pos; /* of the entry that the iterator is at; at the end: the number of entries */
	bool have, end;
	const char *name;
	uint64_t node;
};

int ps_merged_dir_open(struct ps_members *m, uint64_t folder, struct ps_merged_dir **ret)
{
	struct ps_merged_dir *dir = calloc(1, sizeof(*dir));

	if (!dir)
		return -ENOMEM;
	dir->members = m;
	dir->folder = folder;
	*ret = dir;
	return 0;
}

int ps_merged_dir_read(struct ps_merged_dir *dir, uint64_t pos, const char **ret_name, uint64_t *ret_node)
{
	int rc = check_folder(dir->members, dir->folder);

	if (rc < 0)
		return rc;
	if (!dir->it && dir->end && pos >= dir->pos)
		return 0;
	if (!dir->it || pos < dir->pos) {
		ps_index_children_close(ps_steal_ptr(&dir->it));
		dir->have = dir->end = false;
		dir->pos = 0;
		rc = ps_index_children_open(dir->members->index, dir->folder, &dir->it);
	}
	while (rc == 0 && !dir->end && (!dir->have || dir->pos < pos)) {
		dir->pos = dir->have ? dir->pos + 1 : 0;
		dir->have = ps_index_children_next(dir->it, &dir->name, &dir->node);
		dir->end = !dir->have;
		if (dir->end)
			rc = ps_index_children_status(dir->it);
	}
	if (dir->end) /* the iterator's snapshot is not needed any more */
		ps_index_children_close(ps_steal_ptr(&dir->it));
	if (rc < 0 || dir->end)
		return rc;
	*ret_name = dir->name;
	*ret_node = dir->node;
	return 1;
}

void ps_merged_dir_close(struct ps_merged_dir *dir)
{
	if (!dir)
		return;
	ps_index_children_close(dir->it);
	free(dir);
}
