/* The index: rows are read as they were written, numbers are given once, walks are sorted, and indexes of
 * other formats are refused. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache_test.h"
#include "index/index.h"
#include "index/index_private.h"
#include "tests/cache/index_refuses.h"

static struct ps_index *open_index(const char *dir)
{
	struct ps_index *index = NULL;
	struct ps_error err = {0};

	if (ps_index_open_at_boot(dir, 0, "boot-a", &index, &err) < 0)
		fail_msg("%s", err.text);
	return index;
}

static void commit(struct ps_index *index, struct ps_index_batch *batch)
{
	assert_int_equal(ps_index_batch_commit(index, batch), 0);
}

static char some_source[] = "https://h/p/", some_url[] = "https://h/p/a.tar", some_name[] = "a.tar",
            no_name[] = "";
static const struct ps_remote some_remote = {.size = 123456789, .mtime_s = -1, .etag = "W/\"a b\""};
static const struct ps_id some_id = {{1, 2, 3, 255, 254, 0, 7, 8, 9, 10, 11, 12, 13, 14, 255, 255}};

static void rows_are_read_as_written_also_after_a_reopen(void **state)
{
	struct ps_index *index = open_index(*state);
	struct ps_dataset_row d = {.id = some_id,
	        .number = 7,
	        .source = some_source,
	        .root = 1024,
	        .listed_ms = 55,
	        .nfiles = 3,
	        .generation = UINT64_MAX};
	struct ps_node_row n = {.node = 1025,
	        .ino = 1024,
	        .parent = 1,
	        .dataset = 7,
	        .kind = PS_NODE_FILE,
	        .superseded = true,
	        .generation = 9,
	        .checked_ms = -5,
	        .remote = some_remote,
	        .name = some_name,
	        .url = some_url};
	struct ps_object_row o = {.id = some_id,
	        .url = some_url,
	        .remote = some_remote,
	        .dataset = 7,
	        .nblocks_present = 2,
	        .partial_nbytes = 65537,
	        .allocated_nbytes = 4096,
	        .created_s = 1,
	        .opened_s = 2,
	        .data_mtime_ns = -3,
	        .data_ctime_ns = -4,
	        .data_ino = 44};
	struct ps_extent_row x = {
	        .present = UINT64_C(1) << 63 | 5, .unverified = 4, .used_s = INT64_C(1) << 33};
	x.crc[0] = 0xdeadbeef;
	x.crc[2] = 1;
	x.crc[63] = 0xffffffff;
	struct ps_extent_row parts = {
	        .present = 1, .partial = UINT64_C(1) << 62 | 8, .unverified = UINT64_C(1) << 62};
	parts.chunks[3] = 0x8001;
	parts.chunk_crc[3][0] = 0xdeadbeef;
	parts.chunk_crc[3][15] = 7;
	parts.chunks[62] = 0x10;
	parts.chunk_crc[62][4] = 0xffffffff;

	struct ps_index_batch *b = ps_index_batch_new();
	ps_index_batch_put_dataset(b, &d);
	ps_index_batch_put_node(b, &n);
	ps_index_batch_put_child(b, 1, "a.tar", 1025);
	ps_index_batch_put_object(b, &o);
	ps_index_batch_put_extent(index, b, &some_id, 3, &x);
	ps_index_batch_put_extent(index, b, &some_id, 5, &parts);
	commit(index, b);

	for (int pass = 0; pass < 2; pass++) {
		struct ps_dataset_row d2;
		struct ps_node_row n2;
		struct ps_object_row o2;
		struct ps_extent_row x2;
		uint64_t child = 0;

		assert_int_equal(ps_index_get_dataset(index, &some_id, &d2), 0);
		assert_string_equal(d2.source, d.source);
		assert_int_equal(d2.number, 7);
		assert_int_equal(d2.generation, UINT64_MAX);
		ps_dataset_row_fini(&d2);
		assert_int_equal(ps_index_get_node(index, 1025, &n2), 0);
		assert_string_equal(n2.name, n.name);
		assert_string_equal(n2.url, n.url);
		assert_int_equal(n2.checked_ms, -5);
		assert_true(n2.superseded);
		assert_string_equal(n2.remote.etag, some_remote.etag);
		assert_int_equal(n2.remote.size, some_remote.size);
		ps_node_row_fini(&n2);
		assert_int_equal(ps_index_get_child(index, 1, "a.tar", &child), 0);
		assert_int_equal(child, 1025);
		assert_int_equal(ps_index_get_object(index, &some_id, &o2), 0);
		assert_string_equal(o2.url, o.url);
		assert_int_equal(o2.data_mtime_ns, -3);
		assert_int_equal(o2.data_ctime_ns, -4);
		assert_int_equal(o2.data_ino, 44);
		assert_int_equal(o2.partial_nbytes, 65537);
		ps_object_row_fini(&o2);
		assert_int_equal(index_get_extent(index, &some_id, 3, &x2), 0);
		assert_memory_equal(&x2, &x, sizeof(x));
		assert_int_equal(index_get_extent(index, &some_id, 5, &x2), 0);
		assert_memory_equal(&x2, &parts, sizeof(x));
		assert_int_equal(index_get_extent(index, &some_id, 4, &x2), -ENOENT);
		ps_index_close(index);
		index = open_index(*state);
	}
	ps_index_close(index);
}

static void a_directory_has_no_url_and_a_deleted_row_is_gone(void **state)
{
	struct ps_index *index = open_index(*state);
	struct ps_node_row n = {
	        .node = 2000, .kind = PS_NODE_DIR, .remote = PS_REMOTE_UNKNOWN, .name = no_name};
	struct ps_node_row got;
	uint64_t child;

	struct ps_index_batch *b = ps_index_batch_new();
	ps_index_batch_put_node(b, &n);
	ps_index_batch_put_child(b, 2000, "x", 5);
	commit(index, b);
	assert_int_equal(ps_index_get_node(index, 2000, &got), 0);
	assert_null(got.url);
	assert_string_equal(got.name, "");
	assert_int_equal(got.remote.size, PS_SIZE_UNKNOWN);
	ps_node_row_fini(&got);

	b = ps_index_batch_new();
	ps_index_batch_del_node(b, 2000);
	ps_index_batch_del_child(b, 2000, "x");
	commit(index, b);
	assert_int_equal(ps_index_get_node(index, 2000, &got), -ENOENT);
	assert_int_equal(ps_index_get_child(index, 2000, "x", &child), -ENOENT);
	ps_index_close(index);
}

static void children_are_in_name_order_and_of_one_parent_only(void **state)
{
	static const char *const names[] = {"b", "a", "c-2", "c-10", "\xff\xfe", "z"};
	static const char *const sorted[] = {"a", "b", "c-10", "c-2", "z", "\xff\xfe"};
	struct ps_index *index = open_index(*state);
	struct ps_index_batch *b = ps_index_batch_new();

	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
		ps_index_batch_put_child(b, 0x1ff, names[i], i);
	ps_index_batch_put_child(b, 0x1fe, "other", 1);
	ps_index_batch_put_child(b, 0x200, "other", 1);
	commit(index, b);

	struct ps_index_children *it = NULL;
	assert_int_equal(ps_index_children_open(index, 0x1ff, &it), 0);
	/* The walk sees a snapshot: a row added now is not in it. */
	b = ps_index_batch_new();
	ps_index_batch_put_child(b, 0x1ff, "aa", 9);
	commit(index, b);
	const char *name;
	uint64_t node;
	for (size_t i = 0; i < PS_ARRAY_LEN(sorted); i++) {
		assert_true(ps_index_children_next(it, &name, &node));
		assert_string_equal(name, sorted[i]);
		assert_string_equal(names[node], name);
	}
	assert_false(ps_index_children_next(it, &name, &node));
	/* The index is not closed while a walk is open. */
	assert_int_equal(ps_index_reopen(index, NULL), 0); /* nothing to do */
	assert_int_equal(index_break(index), -EIO);
	assert_int_equal(ps_index_sync(index), -EIO);
	assert_int_equal(ps_index_reopen(index, NULL), -EBUSY);
	ps_index_children_close(it);
	assert_int_equal(ps_index_reopen(index, NULL), 0);
	assert_int_equal(ps_index_sync(index), 0);
	assert_int_equal(ps_index_get_child(index, 0x1ff, "aa", &node), 0);
	ps_index_close(index);
}

static struct ps_index_batch *sized(uint64_t node, uint64_t size)
{
	struct ps_index_batch *b = ps_index_batch_new();
	struct ps_node_row row = {.kind = PS_NODE_FILE,
	        .node = node,
	        .ino = node,
	        .parent = 1,
	        .remote = PS_REMOTE_UNKNOWN,
	        .name = (char *)"x",
	        .url = (char *)"http://h/x"};

	row.remote.size = size;
	ps_index_batch_put_node(b, &row);
	ps_index_batch_del_child(b, 1, "gone");
	return b;
}

static uint64_t size_of(struct ps_index *index, uint64_t node)
{
	struct ps_node_row row;

	assert_int_equal(ps_index_get_node(index, node, &row), 0);
	uint64_t size = row.remote.size;
	ps_node_row_fini(&row);
	return size;
}

static void rows_that_the_disk_refuses_are_kept_until_it_accepts_them(void **state)
{
	struct ps_index *index = open_index(*state);
	struct ps_index_batch *b = ps_index_batch_new();
	uint64_t node;

	ps_index_batch_put_child(b, 1, "gone", 7);
	commit(index, b);
	commit(index, sized(2000, 1));
	assert_int_equal(index_break(index), -EIO);
	assert_int_equal(ps_index_batch_commit(index, sized(2000, 2)), -EIO);
	assert_int_equal(size_of(index, 2000), 1);
	b = ps_index_batch_new();
	ps_index_batch_put_child(b, 1, "gone", 8);
	assert_int_equal(ps_index_batch_commit_or_keep(index, b), 0);
	assert_int_equal(ps_index_get_child(index, 1, "gone", &node), 0);
	assert_int_equal(node, 8);
	assert_int_equal(ps_index_batch_commit_or_keep(index, sized(2000, 3)), 0);
	assert_int_equal(ps_index_batch_commit_or_keep(index, sized(2001, 4)), 0);
	assert_int_equal(size_of(index, 2000), 3);
	assert_int_equal(size_of(index, 2001), 4);
	assert_int_equal(ps_index_get_child(index, 1, "gone", &node), -ENOENT);
	assert_int_equal(ps_index_reopen(index, NULL), 0);
	/* A later row replaces a kept one. */
	commit(index, sized(2001, 5));
	ps_index_close(index);
	index = open_index(*state);
	assert_int_equal(size_of(index, 2000), 3);
	assert_int_equal(size_of(index, 2001), 5);
	assert_int_equal(ps_index_get_child(index, 1, "gone", &node), -ENOENT);
	ps_index_close(index);
}

static void the_number_of_kept_rows_is_bounded(void **state)
{
	struct ps_index *index = open_index(*state);
	int rc = 0;
	uint64_t n = 0;

	atomic_store(&index_disk_is_full, true);
	for (; rc == 0 && n < 1000000; n++)
		rc = ps_index_batch_commit_or_keep(index, sized(2000 + n, n));
	assert_int_equal(rc, -ENOSPC);
	assert_true(n > 10000 && n < 200000);
	assert_int_equal(size_of(index, 2000), 0);
	atomic_store(&index_disk_is_full, false);
	ps_index_close(index);
}

/* The rows that exist, and the nodes that are requested: runs, jumps in both directions, repetitions, holes,
 * the ends. */
static void nodes_in_any_order_are_those_asked_for(void **state)
{
	static const uint64_t there[] = {1024, 1025, 1026, 1029, 1040, 1041, 5000, 5001, UINT64_C(1) << 40};
	static const uint64_t asked[] = {1024, 1025, 1026, 1027, 1029, 1030, 1031, 1040, 1041, 1041, 1025,
	        1026, 5001, 5002, 5000, 5001, 1023, 1024, 1025, UINT64_C(1) << 40, (UINT64_C(1) << 40) + 1,
	        (UINT64_C(1) << 40) + 2, 1040, 1041, 0, 1, UINT64_MAX, 1025, 1026};
	struct ps_index *index = open_index(*state);
	struct ps_index_batch *b = ps_index_batch_new();
	struct ps_index_nodes *nodes = NULL;
	struct ps_node_row row = {.kind = PS_NODE_DIR, .parent = 1024, .name = (char *)"x"};

	for (size_t i = 0; i < PS_ARRAY_LEN(there); i++) {
		row.node = row.ino = there[i];
		row.generation = there[i] * 7;
		ps_index_batch_put_node(b, &row);
	}
	commit(index, b);
	assert_int_equal(ps_index_nodes_open(index, &nodes), 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(asked); i++) {
		bool is_there = false;

		for (size_t k = 0; k < PS_ARRAY_LEN(there); k++)
			is_there = is_there || there[k] == asked[i];
		assert_int_equal(ps_index_nodes_get(nodes, asked[i], &row), is_there ? 0 : -ENOENT);
		if (!is_there)
			continue;
		assert_int_equal(row.node, asked[i]);
		assert_int_equal(row.generation, asked[i] * 7);
		ps_node_row_fini(&row);
	}
	assert_int_equal(index_break(index), -EIO);
	assert_int_equal(ps_index_reopen(index, NULL), -EBUSY);
	ps_index_nodes_close(nodes);
	ps_index_close(index);
}

static int count_extent(void *arg, uint32_t extent, const struct ps_extent_row *row)
{
	uint32_t *next = arg;

	assert_int_equal(extent, *next);
	assert_int_equal(row->present, extent + 1);
	++*next;
	return 0;
}

static int count_object(void *arg, const struct ps_object_row *row)
{
	int *n = arg;

	assert_non_null(row->url);
	++*n;
	return 0;
}

static void walks_see_all_rows_and_deleting_an_object_deletes_its_extents(void **state)
{
	struct ps_index *index = open_index(*state);
	struct ps_index_batch *b = ps_index_batch_new();
	struct ps_id next_id = some_id;

	next_id.bytes[15] = 0; /* its neighbour */
	next_id.bytes[13] = 15;
	for (uint32_t i = 0; i < 300; i++) {
		struct ps_extent_row x = {.present = i + 1};
		ps_index_batch_put_extent(index, b, &some_id, i, &x);
	}
	struct ps_extent_row other = {.present = 77};
	ps_index_batch_put_extent(index, b, &next_id, 0, &other);
	struct ps_object_row o = {.id = some_id, .url = some_url, .remote = some_remote};
	ps_index_batch_put_object(b, &o);
	o.id = next_id;
	ps_index_batch_put_object(b, &o);
	commit(index, b);

	uint32_t next = 0;
	assert_int_equal(ps_index_each_extent(index, &some_id, count_extent, &next), 0);
	assert_int_equal(next, 300);
	int n = 0;
	assert_int_equal(ps_index_each_object(index, count_object, NULL, &n), 0);
	assert_int_equal(n, 2);

	b = ps_index_batch_new();
	ps_index_batch_del_object(b, &some_id, 300);
	commit(index, b);
	next = 0;
	assert_int_equal(ps_index_each_extent(index, &some_id, count_extent, &next), 0);
	assert_int_equal(next, 0);
	assert_int_equal(index_get_extent(index, &next_id, 0, &other), 0);
	ps_index_close(index);
}

/* The child process: takes numbers, writes the lowest and the last ones to DIR/numbers, and exits without
 * closing the index. */
static int take_numbers_and_die(const char *dir, int n)
{
	struct ps_index *index = open_index(dir);
	unsigned long long lowest = 0;
	uint64_t node = 0;
	uint32_t dataset = 0;
	char text[128];

	for (int i = 0; i < n; i++) {
		if (ps_index_new_node(index, &node) < 0 || ps_index_new_dataset(index, &dataset) < 0)
			_exit(1);
		lowest = i == 0 ? node : lowest;
	}
	snprintf(text, sizeof(text), "%llu %llu %u", lowest, (unsigned long long)node, dataset);
	test_write_file(dir, "numbers", text);
	_exit(0);
}

static void numbers_are_never_given_twice_even_after_a_kill(void **state)
{
	unsigned long long highest = PS_NODE_FIRST - 1;
	unsigned highest_dataset = 0;
	char path[4096];

	snprintf(path, sizeof(path), "%s/numbers", (char *)*state);
	for (int round = 0; round < 4; round++) {
		unsigned long long lowest, node;
		unsigned dataset;

		assert_int_equal(test_run_self(round == 2 ? "take-many" : "take-few", *state), 0);
		FILE *f = fopen(path, "r");
		assert_int_equal(fscanf(f, "%llu %llu %u", &lowest, &node, &dataset), 3);
		fclose(f);
		assert_true(lowest > highest);
		assert_true(dataset > highest_dataset);
		assert_true(node >= lowest);
		highest = node;
		highest_dataset = dataset;
	}
	assert_true(highest < PS_NODE_FIRST + 10 * 65536);
}

/* Opens the index after a stop, and returns the unverified blocks of the extent. */
static uint64_t unverified_after(const char *dir, const char *boot, bool mark_clean)
{
	struct ps_index *index = NULL;
	struct ps_extent_row x;

	assert_int_equal(ps_index_open_at_boot(dir, 0, boot, &index, NULL), 0);
	assert_int_equal(index_get_extent(index, &some_id, 0, &x), 0);
	assert_int_equal(x.present, 0xff);
	if (mark_clean)
		assert_int_equal(ps_index_mark_clean(index), 0);
	ps_index_close(index);
	return x.unverified;
}

static void blocks_are_unverified_after_an_unclean_stop_in_another_boot(void **state)
{
	struct ps_index *index = open_index(*state);
	struct ps_extent_row x = {.present = 0xff};

	struct ps_index_batch *b = ps_index_batch_new();
	ps_index_batch_put_extent(index, b, &some_id, 0, &x);
	commit(index, b);
	ps_index_close(index);

	assert_int_equal(unverified_after(*state, "boot-a", true), 0);  /* killed, same boot */
	assert_int_equal(unverified_after(*state, "boot-b", false), 0); /* clean, then another boot */
	assert_int_equal(unverified_after(*state, "boot-c", false), 0xff);
	/* a kill does not make them verified */
	assert_int_equal(unverified_after(*state, "boot-c", false), 0xff);
	assert_int_equal(unverified_after(*state, "boot-c", true), 0xff);
	assert_int_equal(unverified_after(*state, "boot-c", false), 0xff); /* nor does a clean stop */

	assert_int_equal(ps_index_open_at_boot(*state, 0, "boot-c", &index, NULL), 0);
	x.unverified = 0xf0;
	b = ps_index_batch_new();
	ps_index_batch_put_extent(index, b, &some_id, 0, &x);
	commit(index, b);
	ps_index_close(index);
	assert_int_equal(unverified_after(*state, "boot-c", false), 0xf0);
	/* An empty boot id never counts as the same boot. */
	assert_int_equal(unverified_after(*state, "", false), 0xff);
	assert_int_equal(unverified_after(*state, "", false), 0xff);
}

enum { DERIVED_ROWS = 12000, DERIVED_NBYTES = 700 };

static uint64_t derived_number(unsigned i)
{
	return 5000 + i;
}

static void derived_name(unsigned i, char *ret, size_t n)
{
	for (size_t k = 0; k + 1 < n; k++)
		ret[k] = (char)('a' + (i * 2654435761u + k * 40503u * (i | 1)) % 23);
	snprintf(ret, 9, "%08u", i);
	ret[8] = 'x';
	ret[n - 1] = '\0';
}

#define LISTED_FOLDER UINT64_C(7)
#define MERGED_FOLDER (UINT64_C(1) << 39 | 7)

/* Fills an index with tables of members (folder 0), or with names in a folder, and damages the largest file
 * of it. */
static void make_damaged(const char *dir, uint64_t folder)
{
	char name[201], bytes[DERIVED_NBYTES];
	struct dirent *d;
	off_t largest = 0;
	char path[512], victim[512] = "";
	struct stat st;

	for (unsigned part = 0; part < 4; part++) {
		struct ps_index *index = open_index(dir);
		struct ps_index_batch *b = ps_index_batch_new();

		for (unsigned i = part; i < DERIVED_ROWS; i += 4) {
			derived_name(i, bytes, sizeof(bytes));
			derived_name(i, name, sizeof(name));
			if (!folder)
				ps_index_batch_put_members(b, derived_number(i), 0, bytes, sizeof(bytes));
			else
				ps_index_batch_put_child(b, folder, name, i + 1);
		}
		commit(index, b);
		ps_index_close(index);
	}
	ps_index_close(open_index(dir)); /* moves the rows of the log to sorted files */
	DIR *files = opendir(dir);
	assert_non_null(files);
	while ((d = readdir(files))) {
		snprintf(path, sizeof(path), "%s/%s", dir, d->d_name);
		if (strstr(d->d_name, ".sst") && stat(path, &st) == 0 && st.st_size > largest) {
			largest = st.st_size;
			strcpy(victim, path);
		}
	}
	closedir(files);
	assert_true(largest > 0);
	int fd = open(victim, O_RDWR);
	unsigned char c;
	assert_int_equal(pread(fd, &c, 1, largest / 3), 1);
	c ^= 16;
	assert_int_equal(pwrite(fd, &c, 1, largest / 3), 1);
	close(fd);
}

static unsigned unreadable(struct ps_index *index, uint64_t folder)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	unsigned n = 0;

	for (unsigned i = 0; i < DERIVED_ROWS; i++) {
		char name[201], bytes[DERIVED_NBYTES];
		uint64_t node = 0;

		derived_name(i, bytes, sizeof(bytes));
		derived_name(i, name, sizeof(name));
		int rc = folder ? ps_index_get_child(index, folder, name, &node)
		                : ps_index_get_members(index, derived_number(i), 0, &value);
		if (rc == 0 && !folder)
			assert_true(value.len == sizeof(bytes) && memcmp(value.s, bytes, value.len) == 0);
		else if (rc == 0)
			assert_int_equal(node, i + 1);
		n += rc < 0;
	}
	return n;
}

/* Rows that can be made again are not read at a start, unless there may have been a power cut: an index of
 * ten million members has half a gigabyte of them. A call that reads a damaged row fails, and the next
 * start fails with EIO, so that the store sets the index aside. */
static void damaged_tables_and_merged_trees_are_found_when_read(void **state)
{
	for (int tables = 0; tables < 2; tables++) {
		struct ps_index *index = NULL;
		char dir[300];

		snprintf(dir, sizeof(dir), "%s/%d", (char *)*state, tables);
		make_damaged(dir, tables ? 0 : MERGED_FOLDER);
		assert_int_equal(ps_index_open_at_boot(dir, 0, "boot-a", &index, NULL), 0);
		assert_in_range(unreadable(index, tables ? 0 : MERGED_FOLDER), 1, DERIVED_ROWS / 2);
		ps_index_close(index);
		assert_int_equal(ps_index_open_at_boot(dir, 0, "boot-a", &index, NULL), -EIO);

		snprintf(dir, sizeof(dir), "%s/%d-cut", (char *)*state, tables);
		make_damaged(dir, tables ? 0 : MERGED_FOLDER);
		assert_int_equal(ps_index_open_at_boot(dir, 0, "boot-b", &index, NULL), -EIO);
	}
}

/* A daemon that takes mounts over (PS_INDEX_WAS_CHECKED) does not read all names at its start, because the
 * previous daemon read them in this boot. So damage is found when the name is read. After another boot all
 * names are read. */
static void an_index_that_was_checked_is_not_read_again_in_the_same_boot(void **state)
{
	struct ps_index *index = NULL;
	char dir[300];

	snprintf(dir, sizeof(dir), "%s/same", (char *)*state);
	make_damaged(dir, LISTED_FOLDER);
	assert_int_equal(ps_index_open_at_boot(dir, PS_INDEX_WAS_CHECKED, "boot-a", &index, NULL), 0);
	assert_in_range(unreadable(index, LISTED_FOLDER), 1, DERIVED_ROWS / 2);
	ps_index_close(index);
	assert_int_equal(ps_index_open_at_boot(dir, PS_INDEX_WAS_CHECKED, "boot-a", &index, NULL), -EIO);

	snprintf(dir, sizeof(dir), "%s/another", (char *)*state);
	make_damaged(dir, LISTED_FOLDER);
	assert_int_equal(ps_index_open_at_boot(dir, PS_INDEX_WAS_CHECKED, "boot-b", &index, NULL), -EIO);
}

/* Names of a large index are read by a thread after the start, unless there may have been a power cut. */
static void damaged_names_of_a_large_index_are_found_after_the_start(void **state)
{
	struct ps_index *index = NULL;
	char dir[300], mark[310];

	snprintf(dir, sizeof(dir), "%s/kept", (char *)*state);
	snprintf(mark, sizeof(mark), "%s/DAMAGED", dir);
	make_damaged(dir, LISTED_FOLDER);
	assert_int_equal(ps_index_open_at_boot(dir, PS_INDEX_LARGE, "boot-a", &index, NULL), 0);
	for (unsigned i = 0; i < 6000 && access(mark, F_OK) != 0; i++)
		usleep(10000);
	assert_int_equal(access(mark, F_OK), 0);
	ps_index_close(index);
	assert_int_equal(ps_index_open_at_boot(dir, PS_INDEX_LARGE, "boot-a", &index, NULL), -EIO);

	snprintf(dir, sizeof(dir), "%s/cut", (char *)*state);
	make_damaged(dir, LISTED_FOLDER);
	assert_int_equal(ps_index_open_at_boot(dir, PS_INDEX_LARGE, "boot-b", &index, NULL), -EIO);

	snprintf(dir, sizeof(dir), "%s/small", (char *)*state);
	make_damaged(dir, LISTED_FOLDER);
	assert_int_equal(ps_index_open_at_boot(dir, 0, "boot-a", &index, NULL), -EIO);
}

static void a_newer_schema_is_refused_and_left_alone(void **state)
{
	struct ps_index *index = open_index(*state);
	struct ps_error err = {0};

	assert_int_equal(index_set_schema(index, PS_INDEX_SCHEMA + 1), 0);
	ps_index_close(index);
	assert_int_equal(ps_index_open(*state, 0, &index, &err), -EPROTO);
	assert_non_null(strstr(err.text, "newer penstock"));
	assert_int_equal(ps_index_open(*state, 0, &index, &err), -EPROTO);
}

static void a_schema_of_zero_counts_as_damage(void **state)
{
	struct ps_index *index = open_index(*state);
	struct ps_error err = {0};

	assert_int_equal(index_set_schema(index, 0), 0);
	ps_index_close(index);
	assert_int_equal(ps_index_open(*state, 0, &index, &err), -EIO);
	assert_non_null(strstr(err.text, "index: 0 is not a schema number"));
}

static void rows_without_a_schema_count_as_damage(void **state)
{
	struct ps_index *index = open_index(*state);
	struct ps_index_batch *batch = ps_index_batch_new();
	struct ps_error err = {0};
	struct ps_kv *kv;

	ps_index_close(index);
	assert_int_equal(ps_kv_open(*state, 1 << 20, &kv, &err), 0);
	ps_kv_batch_del(batch, "Mschema", 7);
	assert_int_equal(ps_kv_write(kv, batch, 0, NULL), 0);
	ps_index_batch_free(batch);
	ps_kv_close(kv);
	assert_int_equal(ps_index_open(*state, 0, &index, &err), -EIO);
	assert_non_null(strstr(err.text, "index: it has rows, but no schema number"));
}

static void an_index_in_use_is_busy_and_a_damaged_one_is_eio(void **state)
{
	struct ps_index *index = open_index(*state), *second = NULL;
	struct ps_error err = {0};

	assert_int_equal(ps_index_open(*state, 0, &second, &err), -EBUSY);
	ps_index_close(index);
	test_write_file(*state, "CURRENT", "rubbish");
	assert_int_equal(ps_index_open(*state, 0, &second, &err), -EIO);
	assert_true(err.text[0] != '\0');
}

/* Appends keys and values of one kind, in hex. */
static void dump(struct ps_index *index, char letter, struct ps_strbuf *out)
{
	struct ps_kv_iter *it = NULL;
	const void *key, *value;
	size_t nkey, nvalue;

	assert_int_equal(ps_kv_iter_open(index->kv, &letter, 1, &it), 0);
	while (ps_kv_iter_next(it, &key, &nkey, &value, &nvalue)) {
		ps_strbuf_addf(out, "%c ", letter);
		for (size_t i = 1; i < nkey; i++)
			ps_strbuf_addf(out, "%02x", ((const uint8_t *)key)[i]);
		ps_strbuf_addc(out, ' ');
		for (size_t i = 0; i < nvalue; i++)
			ps_strbuf_addf(out, "%02x", ((const uint8_t *)value)[i]);
		ps_strbuf_addc(out, '\n');
	}
	ps_kv_iter_close(it);
}

/* Caches of earlier versions have these bytes. */
static void every_kind_of_row_keeps_its_bytes(void **state)
{
	static const char
	        kinds[] = "DNCOBPVFGT",
	        expected[] = "D f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff "
	                     "0103000000000400000000000063000000000000000200000000000"
	                     "00005000000000000000f00000068747470733a2f2f682f612e746172\n"
	                     "N 0000000000000401 "
	                     "01010003000000010400000000000000040000000000000500000000000000000000000"
	                     "0000000000000000000000000000000000000000005000000612e746172\n"
	                     "N 0000000000000402 "
	                     "01022f030000000104000000000000000400000000000006000000000000004d0000000"
	                     "00000000504030201000000feffffffffffffff042276312205000000612e7461720f0000006874"
	                     "7470733a2f2"
	                     "f682f612e746172246d64353a303031313232333334343535363637373838393961616262636364"
	                     "6465656666\n"
	                     "C 0000000000000400612e746172 010204000000000000\n"
	                     "O f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff "
	                     "0103000000010000000000000003000000000000000400000000000"
	                     "0000500000000000000060000000000000008000000000000000504030201000000feffffffffff"
	                     "ffff0422763"
	                     "1220f00000068747470733a2f2f682f612e74617202000000000000000704227632220f63726333"
	                     "32633a30313"
	                     "032303330340700000000000000\n"
	                     "B f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff00000009 "
	                     "01070000000000000000000000000000000500000000000"
	                     "00004000000000000004433221188776655020000000000000001800a0000000b000000\n"
	                     "P f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff "
	                     "01f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0b000000000000000f000"
	                     "00068747470733a2f2f682f612e746172\n"
	                     "V f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff 010c00000000000000010d00000000000000\n"
	                     "F f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff 6672616d6573\n"
	                     "G f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff "
	                     "0102f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0e00000000000000100"
	                     "0000000000000f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff0f000000000000001100000000000000\n"
	                     "T 0000000000000402 68656164\n"
	                     "T 000000000000040200000001 726f77\n";
	struct ps_index *index = open_index(*state);
	struct ps_index_batch *batch = ps_index_batch_new();
	ps_autostrbuf struct ps_strbuf got = {0};
	struct ps_id id;
	char url[] = "https://h/a.tar", name[] = "a.tar";
	struct ps_remote remote = {.size = 0x0102030405, .mtime_s = -2, .etag = "\"v1\""};
	struct ps_extent_row extent = {.present = 5, .partial = 2, .unverified = 4, .used_s = 7};
	struct ps_grants_row grants = {.n = 2};

	for (size_t i = 0; i < sizeof(id.bytes); i++)
		id.bytes[i] = (uint8_t)(0xf0 + i);
	ps_index_batch_put_dataset(batch, &(struct ps_dataset_row){.id = id,
	                                          .number = 3,
	                                          .source = url,
	                                          .root = 1024,
	                                          .listed_ms = 99,
	                                          .nfiles = 2,
	                                          .generation = 5});
	struct ps_node_row node = {.node = 1025,
	        .ino = 1025,
	        .parent = 1024,
	        .dataset = 3,
	        .kind = PS_NODE_DIR,
	        .generation = 5,
	        .name = name};
	ps_index_batch_put_node(batch, &node);
	node = (struct ps_node_row){.node = 1026,
	        .ino = 1025,
	        .parent = 1024,
	        .dataset = 3,
	        .kind = PS_NODE_FILE,
	        .superseded = true,
	        .generation = 6,
	        .checked_ms = 77,
	        .remote = remote,
	        .coding = 2,
	        .sum_of_name = true,
	        .name = name,
	        .url = url};
	snprintf(node.remote.checksum, sizeof(node.remote.checksum), "md5:00112233445566778899aabbccddeeff");
	ps_index_batch_put_node(batch, &node);
	ps_index_batch_put_child(batch, 1024, "a.tar", 1026);
	struct ps_object_row object = {.id = id,
	        .url = url,
	        .remote = remote,
	        .dataset = 3,
	        .nblocks_present = 1,
	        .partial_nbytes = 2,
	        .allocated_nbytes = 3,
	        .created_s = 4,
	        .opened_s = 5,
	        .data_mtime_ns = 6,
	        .data_ctime_ns = 7,
	        .data_ino = 8,
	        .by_extent = true,
	        .learned_etag = "\"v2\"",
	        .checksum = "crc32c:01020304",
	        .sum_matched = true};
	ps_index_batch_put_object(batch, &object);
	extent.crc[0] = 0x11223344, extent.crc[2] = 0x55667788;
	extent.chunks[1] = 0x8001, extent.chunk_crc[1][0] = 0xa, extent.chunk_crc[1][15] = 0xb;
	ps_index_batch_put_extent(index, batch, &id, 9, &extent);
	ps_index_batch_put_pin(
	        batch, &(struct ps_pin_row){.url_id = id, .object_id = id, .nbytes = 11, .url = url});
	ps_index_batch_put_view(
	        batch, &id, &(struct ps_view_row){.size = 12, .declared = true, .nodes_below = 13});
	ps_index_batch_put_frames(batch, &id, "frames", 6);
	for (unsigned i = 0; i < grants.n; i++) {
		grants.v[i].access = id;
		grants.v[i].given_ms = 14 + i;
		grants.v[i].expires_ms = 16 + i;
	}
	ps_index_batch_put_grants(batch, &id, &grants);
	ps_index_batch_put_members(batch, 1026, PS_MEMBERS_HEAD, "head", 4);
	ps_index_batch_put_members(batch, 1026, 1, "row", 3);
	assert_int_equal(ps_index_batch_commit(index, batch), 0);
	for (const char *kind = kinds; *kind; kind++)
		dump(index, *kind, &got);
	assert_string_equal(ps_strbuf_peek(&got), expected);
	ps_index_close(index);
}

static void a_damaged_row_is_an_error(void **state)
{
	(void)state;
	struct ps_object_row o = {.id = some_id, .url = some_url, .remote = some_remote}, back;
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_index_key key;

	ps_index_key_id(&key, 'O', &some_id);
	ps_row_encode('O', &o, &b);
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(ps_row_decode(key.bytes, b.s, n, &back), -EBADMSG);
	ps_strbuf_addc(&b, 'x');
	assert_int_equal(ps_row_decode(key.bytes, b.s, b.len, &back), -EBADMSG);
	b.s[0]++;
	assert_int_equal(ps_row_decode(key.bytes, b.s, b.len - 1, &back), -EBADMSG);
}

static void a_row_that_could_not_be_read_back_is_not_written(void **state)
{
	struct ps_index *index = open_index(*state);
	char *long_url = malloc(PS_ROW_STRING_MAX_LEN + 2);
	struct ps_object_row o = {.id = some_id, .url = long_url, .remote = some_remote};

	memset(long_url, 'u', PS_ROW_STRING_MAX_LEN + 1);
	long_url[PS_ROW_STRING_MAX_LEN + 1] = '\0';
	struct ps_index_batch *b = ps_index_batch_new();
	ps_index_batch_put_object(b, &o);
	assert_int_equal(ps_index_batch_commit(index, b), -ENOMEM);
	assert_int_equal(ps_index_batch_commit(index, NULL), -ENOMEM);
	free(long_url);
	ps_index_close(index);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
	        TEST(rows_are_read_as_written_also_after_a_reopen),
	        TEST(a_directory_has_no_url_and_a_deleted_row_is_gone),
	        TEST(children_are_in_name_order_and_of_one_parent_only),
	        TEST(nodes_in_any_order_are_those_asked_for),
	        TEST(rows_that_the_disk_refuses_are_kept_until_it_accepts_them),
	        TEST(the_number_of_kept_rows_is_bounded),
	        TEST(walks_see_all_rows_and_deleting_an_object_deletes_its_extents),
	        TEST(numbers_are_never_given_twice_even_after_a_kill),
	        TEST(blocks_are_unverified_after_an_unclean_stop_in_another_boot),
	        TEST(damaged_tables_and_merged_trees_are_found_when_read),
	        TEST(an_index_that_was_checked_is_not_read_again_in_the_same_boot),
	        TEST(damaged_names_of_a_large_index_are_found_after_the_start),
	        TEST(a_newer_schema_is_refused_and_left_alone),
	        TEST(a_schema_of_zero_counts_as_damage),
	        TEST(rows_without_a_schema_count_as_damage),
	        TEST(an_index_in_use_is_busy_and_a_damaged_one_is_eio),
	        TEST(every_kind_of_row_keeps_its_bytes),
	        TEST(a_damaged_row_is_an_error),
	        TEST(a_row_that_could_not_be_read_back_is_not_written),
	};

	if (argc == 3 && strcmp(argv[1], "take-many") == 0)
		return take_numbers_and_die(argv[2], 70010);
	if (argc == 3 && strcmp(argv[1], "take-few") == 0)
		return take_numbers_and_die(argv[2], 10);
	return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
