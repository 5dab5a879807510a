/* The overlay has the rows that a full disk refuses: they are kept in memory, whole batches or nothing, are
 * read and walked as if they were in the index, and are written later. With --wrap, this file replaces
 * malloc() and reallocarray(), which fail where a test wants it. */
#include <errno.h>

#include "base/strbuf.h"
#include "cache_test.h"
#include "index/index_private.h"
#include "tests/cache/index_refuses.h"

static unsigned nleft; /* calls for memory until one fails; 0: none does */

static bool fails(void)
{
	return nleft && --nleft == 0;
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

/* Rows --------------------------------------------------------------------------------------------------- */

/* value NULL: deleted. */
static void put(struct ps_overlay_rows *rows, const char *key, const char *value)
{
	ps_overlay_rows_put(rows, key, strlen(key), value, value ? strlen(value) : 0);
}

static void add(struct ps_overlay *overlay, const char *key, const char *value)
{
	struct ps_overlay_rows rows = {0};

	put(&rows, key, value);
	assert_int_equal(ps_overlay_add(overlay, &rows), 0);
	ps_overlay_rows_fini(&rows);
}

/* Adds a row to the text: "key=value ", or "key- " if it is deleted. */
static void add_text(void *arg, const struct ps_overlay_row *row)
{
	struct ps_strbuf *b = arg;

	ps_strbuf_addn(b, row->bytes, row->nkey);
	ps_strbuf_addc(b, row->deleted ? '-' : '=');
	ps_strbuf_addn(b, row->bytes + row->nkey, row->nvalue);
	ps_strbuf_addc(b, ' ');
}

static void holds(struct ps_overlay *overlay, const char *rows)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_overlay_each(overlay, add_text, &b);
	assert_string_equal(ps_strbuf_peek(&b), rows);
}

static void the_newest_row_of_a_key_counts(void **state)
{
	struct ps_overlay *overlay = ps_overlay_new();
	ps_autostrbuf struct ps_strbuf value = {0};
	struct ps_overlay_rows rows = {0};

	(void)state;
	assert_true(ps_overlay_is_empty(overlay));
	assert_int_equal(ps_overlay_get(overlay, "b", 1, &value), -ENODATA);
	put(&rows, "b", "1");
	put(&rows, "ab", "2");
	put(&rows, "b", "3");
	put(&rows, "c", NULL);
	put(&rows, "a", "");
	assert_int_equal(ps_overlay_add(overlay, &rows), 0);
	ps_overlay_rows_fini(&rows);
	holds(overlay, "a= ab=2 b=3 c- ");
	assert_int_equal(ps_overlay_get(overlay, "b", 1, &value), 0);
	assert_string_equal(value.s, "3");
	assert_int_equal(ps_overlay_get(overlay, "c", 1, &value), -ENOENT);
	assert_int_equal(ps_overlay_get(overlay, "bb", 2, &value), -ENODATA);
	size_t before = ps_overlay_nbytes(overlay);
	add(overlay, "c", "back");
	add(overlay, "b", NULL);
	holds(overlay, "a= ab=2 b- c=back ");
	assert_int_equal(ps_overlay_nbytes(overlay), before + 3);
	ps_overlay_clear(overlay);
	assert_true(ps_overlay_is_empty(overlay));
	assert_int_equal(ps_overlay_nbytes(overlay), 0);
	ps_overlay_free(overlay);
}

static void without_memory_nothing_changes(void **state)
{
	struct ps_overlay *overlay = ps_overlay_new();
	unsigned n = 0;
	int rc;

	(void)state;
	add(overlay, "a", "old");
	add(overlay, "c", "old");
	do {
		struct ps_overlay_rows rows = {0};

		nleft = ++n;
		put(&rows, "a", "new");
		for (char key[] = "da"; key[1] <= 'z'; key[1]++)
			put(&rows, key, "new");
		put(&rows, "c", NULL);
		rc = ps_overlay_add(overlay, &rows);
		nleft = 0;
		ps_overlay_rows_fini(&rows);
		if (rc) {
			assert_int_equal(rc, -ENOMEM);
			holds(overlay, "a=old c=old ");
		}
	} while (rc);
	assert_true(n > 28); /* rows, and the array for them */
	ps_autostrbuf struct ps_strbuf value = {0};
	assert_int_equal(ps_overlay_get(overlay, "a", 1, &value), 0);
	assert_string_equal(value.s, "new");
	assert_int_equal(ps_overlay_get(overlay, "c", 1, &value), -ENOENT);
	ps_overlay_free(overlay);
}

static void beyond_the_limit_nothing_changes(void **state)
{
	struct ps_overlay *overlay = ps_overlay_new();
	struct ps_overlay_rows rows = {0};
	static char value[1 << 20];

	(void)state;
	add(overlay, "a", "old");
	put(&rows, "a", "new");
	for (char key[] = "b0"; key[1] < '8'; key[1]++)
		ps_overlay_rows_put(&rows, key, 2, value, sizeof(value));
	assert_int_equal(ps_overlay_add(overlay, &rows), -ENOSPC);
	ps_overlay_rows_fini(&rows);
	holds(overlay, "a=old ");
	ps_overlay_free(overlay);
}

static void a_range_is_a_snapshot(void **state)
{
	struct ps_overlay *overlay = ps_overlay_new();
	struct ps_overlay_rows rows = {0};
	ps_autostrbuf struct ps_strbuf b = {0};

	(void)state;
	for (const char *key = "bcade"; *key; key++)
		ps_overlay_rows_put(&rows, key, 1, key, 1);
	assert_int_equal(ps_overlay_add(overlay, &rows), 0);
	ps_overlay_rows_fini(&rows);
	assert_int_equal(ps_overlay_range(overlay, "b", 1, "e", 1, &rows), 0);
	add(overlay, "c", "new");
	add(overlay, "bb", "new");
	ps_overlay_clear(overlay);
	assert_int_equal(ps_overlay_rows_find(&rows, "bb", 2), 1);
	assert_int_equal(ps_overlay_rows_find(&rows, "d", 1), 2);
	assert_int_equal(ps_overlay_rows_find(&rows, "x", 1), 3);
	for (size_t i = 0; i < rows.n; i++)
		add_text(&b, rows.v[i]);
	assert_string_equal(ps_strbuf_peek(&b), "b=b c=c d=d ");
	ps_overlay_rows_fini(&rows);
	ps_overlay_free(overlay);
}

/* The index ---------------------------------------------------------------------------------------------- */

enum { DIR_NODE = 2000, OTHER_DIR = 2001 };

static struct ps_index *open_index(const char *dir)
{
	struct ps_index *index = NULL;
	struct ps_error err = {0};

	atomic_store(&index_disk_is_full, false);
	if (ps_index_open_at_boot(dir, 0, "boot-a", &index, &err) < 0)
		fail_msg("%s", err.text);
	return index;
}

/* Checks a walk, which begins after a name if that is not NULL: "name:node name:node ". */
static void lists(struct ps_index *index, const char *after, const char *names)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_index_children *it;
	const char *name;
	uint64_t node;

	assert_int_equal(ps_index_children_open(index, DIR_NODE, &it), 0);
	if (after)
		ps_index_children_seek_after(it, after);
	while (ps_index_children_next(it, &name, &node))
		ps_strbuf_addf(&b, "%s:%u ", name, (unsigned)node);
	assert_int_equal(ps_index_children_status(it), 0);
	ps_index_children_close(it);
	assert_string_equal(ps_strbuf_peek(&b), names);
}

static void put_some(struct ps_index_batch *batch, const char *names, unsigned first)
{
	for (; *names; names++, first++) {
		char name[2] = {*names};
		struct ps_node_row row = {.node = first,
		        .ino = first,
		        .parent = DIR_NODE,
		        .dataset = 1,
		        .kind = PS_NODE_FILE,
		        .name = name,
		        .url = name};

		ps_index_batch_put_child(batch, DIR_NODE, name, first);
		ps_index_batch_put_node(batch, &row);
	}
	ps_index_batch_put_child(batch, OTHER_DIR, "other", first);
}

#define BEFORE "b:3000 d:3001 f:3002 h:3003 "
#define AFTER "a:4000 b:3000 c:4001 d:4002 h:3003 i:4003 "

/* Four names are in the index. The disk refuses the next batch: new names before, between and after them,
 * one name with another node, and the deletion of one. */
static struct ps_index *refused_index(const char *dir)
{
	struct ps_index *index = open_index(dir);
	struct ps_index_batch *batch = ps_index_batch_new();

	put_some(batch, "bdfh", 3000);
	assert_int_equal(ps_index_batch_commit(index, batch), 0);
	lists(index, NULL, BEFORE);
	atomic_store(&index_disk_is_full, true);
	batch = ps_index_batch_new();
	put_some(batch, "acdi", 4000);
	ps_index_batch_del_child(batch, DIR_NODE, "f");
	assert_int_equal(ps_index_batch_commit_or_keep(index, batch), 0);
	return index;
}

static void walks_see_kept_rows(void **state)
{
	struct ps_index *index = refused_index(*state);

	lists(index, NULL, AFTER);
	lists(index, "b", "c:4001 d:4002 h:3003 i:4003 ");
	lists(index, "bb", "c:4001 d:4002 h:3003 i:4003 ");
	lists(index, "e", "h:3003 i:4003 ");
	lists(index, "i", "");
	lists(index, "x", "");
	/* The same once the rows are on disk. */
	atomic_store(&index_disk_is_full, false);
	assert_int_equal(ps_kv_write_kept(index->kv), 0);
	lists(index, NULL, AFTER);
	ps_index_close(index);
	index = open_index(*state);
	lists(index, NULL, AFTER);
	ps_index_close(index);
}

static void a_walk_is_a_snapshot(void **state)
{
	struct ps_index *index = refused_index(*state);
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_index_children *it;
	const char *name;
	uint64_t node;

	assert_int_equal(ps_index_children_open(index, DIR_NODE, &it), 0);
	for (int i = 0; ps_index_children_next(it, &name, &node); i++) {
		ps_strbuf_addf(&b, "%s:%u ", name, (unsigned)node);
		if (i == 1) { /* the kept rows are written to the disk, and change there */
			struct ps_index_batch *batch = ps_index_batch_new();

			atomic_store(&index_disk_is_full, false);
			ps_index_batch_del_child(batch, DIR_NODE, "c");
			put_some(batch, "dfz", 5000);
			assert_int_equal(ps_index_batch_commit(index, batch), 0);
		}
	}
	ps_index_children_close(it);
	assert_string_equal(ps_strbuf_peek(&b), AFTER);
	lists(index, NULL, "a:4000 b:3000 d:5000 f:5001 h:3003 i:4003 z:5002 ");
	ps_index_close(index);
}

static void rows_of_nodes_are_the_newest(void **state)
{
	struct ps_index *index = refused_index(*state);
	struct ps_index_batch *batch = ps_index_batch_new();
	struct ps_index_nodes *nodes;
	char name[] = "new";

	/* A node of the index gets another row, and one is deleted. */
	struct ps_node_row row = {.node = 3001,
	        .parent = DIR_NODE,
	        .kind = PS_NODE_FILE,
	        .generation = 77,
	        .name = name,
	        .url = name};
	ps_index_batch_put_node(batch, &row);
	ps_index_batch_del_node(batch, 3002);
	assert_int_equal(ps_index_batch_commit_or_keep(index, batch), 0);
	assert_int_equal(ps_index_nodes_open(index, &nodes), 0);
	for (unsigned node = 2999; node <= 4004; node++) {
		bool there = (node >= 3000 && node <= 3003 && node != 3002) || (node >= 4000 && node <= 4003);

		assert_int_equal(ps_index_nodes_get(nodes, node, &row), there ? 0 : -ENOENT);
		if (there) {
			assert_int_equal(row.generation, node == 3001 ? 77 : 0);
			ps_node_row_fini(&row);
		}
	}
	ps_index_nodes_close(nodes);
	ps_index_close(index);
}

/* If memory runs out, the whole batch is refused, and the rows that were kept before stay. */
static void a_batch_is_kept_whole_or_not_at_all(void **state)
{
	struct ps_index *index = refused_index(*state);
	unsigned n = 0;
	int rc;

	do {
		struct ps_index_batch *batch = ps_index_batch_new();

		put_some(batch, "acz", 6000);
		nleft = ++n;
		rc = ps_index_batch_commit_or_keep(index, batch);
		nleft = 0;
		if (rc) {
			assert_int_equal(rc, -ENOMEM);
			lists(index, NULL, AFTER);
		}
	} while (rc);
	assert_true(n > 7);
	lists(index, NULL, "a:6000 b:3000 c:6001 d:4002 h:3003 i:4003 z:6002 ");
	ps_index_close(index);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_newest_row_of_a_key_counts),
	        cmocka_unit_test(without_memory_nothing_changes),
	        cmocka_unit_test(beyond_the_limit_nothing_changes),
	        cmocka_unit_test(a_range_is_a_snapshot),
	        TEST(walks_see_kept_rows),
	        TEST(a_walk_is_a_snapshot),
	        TEST(rows_of_nodes_are_the_newest),
	        TEST(a_batch_is_kept_whole_or_not_at_all),
	};

	return cmocka_run_group_tests_name("overlay", tests, NULL, NULL);
}
