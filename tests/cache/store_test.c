/* The cache directory: which directories are accepted, what a start does with the files that it finds, and
 * the errors of a refused start. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "cache_test.h"
#include "index/index.h"
#include "index/index_private.h"

#define SIZE (3 * TEST_MIB)

static int try_open(const char *dir, const char *name, bool must_exist, struct ps_error *err)
{
	char path[4096];
	struct ps_store *store = NULL;
	struct ps_store_options options = {.dir = path, .must_exist = must_exist};

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int rc = ps_store_open(&options, &store, err);
	if (rc == 0)
		ps_store_close(store);
	return rc;
}

static void path_in(const char *dir, const char *name, char ret[static 4096])
{
	snprintf(ret, 4096, "%s/%s", dir, name);
}

static bool exists(const char *dir, const char *name)
{
	char path[4096];
	struct stat st;

	path_in(dir, name, path);
	return lstat(path, &st) == 0;
}

/* Makes a store that has all of object 1, and closes it. */
static void make_store(const char *dir)
{
	struct ps_store *store = test_store_open(dir, 0, NULL);
	struct ps_object *o = test_object(store, 1, SIZE);

	assert_int_equal(test_write_all(o), 0);
	ps_object_put(o);
	ps_store_close(store);
}

static void a_new_directory_is_private_marked_and_salted_once(void **state)
{
	char path[4096];
	struct stat st;
	struct ps_id a, b, c;

	struct ps_store *store = test_store_open(*state, 0, NULL);
	path_in(*state, "cache", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	path_in(*state, "cache/salt", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(st.st_size, 32);
	assert_true(exists(*state, "cache/penstock-cache"));
	ps_store_fingerprint(store, "secret", &a);
	ps_store_fingerprint(store, "secres", &b);
	assert_int_not_equal(ps_id_cmp(&a, &b), 0);
	ps_store_close(store);

	store = test_store_open(*state, 0, NULL);
	ps_store_fingerprint(store, "secret", &c);
	assert_int_equal(ps_id_cmp(&a, &c), 0);
	ps_store_close(store);
}

static void a_directory_with_other_files_is_refused_and_left_as_it_was(void **state)
{
	struct ps_error err = {0};
	char path[4096];

	path_in(*state, "mine", path);
	assert_int_equal(mkdir(path, 0755), 0);
	test_write_file(*state, "mine/thesis.txt", "years of work");
	assert_int_equal(try_open(*state, "mine", false, &err), -ENOTEMPTY);
	assert_non_null(strstr(err.text, "not empty"));
	assert_true(exists(*state, "mine/thesis.txt"));
	assert_false(exists(*state, "mine/lock"));
	/* A marker file with other text does not make the directory ours. */
	test_write_file(*state, "mine/penstock-cache", "shopping list");
	assert_int_equal(try_open(*state, "mine", false, &err), -ENOTEMPTY);
	assert_false(exists(*state, "mine/lock"));
}

static void an_empty_directory_and_a_fresh_file_system_are_accepted(void **state)
{
	struct ps_error err = {0};
	char path[4096];

	path_in(*state, "new", path);
	assert_int_equal(mkdir(path, 0755), 0);
	path_in(*state, "new/lost+found", path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(try_open(*state, "new", true, &err), -ENOENT);
	assert_false(exists(*state, "new/lock"));
	assert_int_equal(try_open(*state, "new", false, &err), 0);
	assert_int_equal(try_open(*state, "new", true, &err), 0);
}

static void a_missing_directory_is_enoent_and_not_created(void **state)
{
	struct ps_error err = {0};

	assert_int_equal(try_open(*state, "none", true, &err), -ENOENT);
	assert_false(exists(*state, "none"));
	assert_int_equal(try_open(*state, "none/below", false, &err), -ENOENT);
	test_write_file(*state, "file", "");
	assert_int_equal(try_open(*state, "file", false, &err), -ENOTDIR);
}

static void an_unwritable_directory_is_reported(void **state)
{
	/* In a child process with another user: root may write anywhere. */
	struct ps_error err = {0};
	char path[4096];

	path_in(*state, "ro", path);
	assert_int_equal(mkdir(path, 0555), 0);
	assert_int_equal(chmod(*state, 0755), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(3);
		int e = try_open(*state, "ro", false, &err);
		_exit(e == -EACCES && strstr(err.text, "cannot be written") ? 0 : 1);
	}
	int status;
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
}

static void another_format_or_a_newer_schema_is_refused_and_left_alone(void **state)
{
	struct ps_error err = {0};
	struct ps_index *index = NULL;
	char path[4096];

	make_store(*state);
	test_write_file(*state, "cache/penstock-cache", "penstock cache 3\n");
	assert_int_equal(try_open(*state, "cache", false, &err), -EPROTO);
	assert_non_null(strstr(err.text, "newer"));
	test_write_file(*state, "cache/penstock-cache", "penstock cache 1\n");
	assert_int_equal(try_open(*state, "cache", false, &err), -EPROTO);
	assert_non_null(strstr(err.text, "before 0.3.0"));
	assert_non_null(strstr(err.text, "rm -r"));
	assert_true(exists(*state, "cache/index"));
	test_write_file(*state, "cache/penstock-cache", "penstock cache 2\n");

	path_in(*state, "cache/index", path);
	assert_int_equal(ps_index_open(path, 0, &index, &err), 0);
	assert_int_equal(index_set_schema(index, PS_INDEX_SCHEMA + 1), 0);
	ps_index_close(index);
	assert_int_equal(try_open(*state, "cache", false, &err), -EPROTO);
	assert_false(exists(*state, "cache/index.broken-1"));
	assert_int_equal(ps_index_open_at_boot(path, 0, "", &index, &err), -EPROTO);
}

static void a_directory_in_use_is_busy_and_names_the_process(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_error err = {0};
	char pid[32];

	assert_int_equal(try_open(*state, "cache", false, &err), -EBUSY);
	snprintf(pid, sizeof(pid), "process %d;", (int)getpid());
	assert_non_null(strstr(err.text, pid));
	ps_store_close(store);
	assert_int_equal(try_open(*state, "cache", false, &err), 0);
}

static void a_damaged_index_is_set_aside_and_the_cache_starts_empty(void **state)
{
	char path[4096];

	make_store(*state);
	test_write_file(*state, "cache/index/CURRENT", "rubbish");
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, SIZE);

	assert_true(exists(*state, "cache/index.broken-1"));
	assert_int_equal(test_stat(store, "used_bytes"), 0);
	test_data_path(o, *state, path, sizeof(path));
	assert_int_equal(access(path, F_OK), -1);
	/* The cache works. */
	assert_int_equal(test_write_all(o), 0);
	assert_true(test_right(o, 2));
	ps_object_put(o);
	ps_store_close(store);
}

/* Overwrites a file of a new store's index with this text, and opens the store. */
static void damage_index(const char *dir, const char *text)
{
	make_store(dir);
	test_write_file(dir, "cache/index/CURRENT", text);
	ps_store_close(test_store_open(dir, 0, NULL));
}

static bool has_text(const char *dir, const char *name, const char *text)
{
	char path[4096], found[64] = "";

	path_in(dir, name, path);
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, found, sizeof(found) - 1) > 0 && strcmp(found, text) == 0;
}

static void the_two_newest_damaged_indexes_are_kept(void **state)
{
	char path[4096];

	damage_index(*state, "first");
	/* An earlier version left more such directories. A file that only looks like one belongs to the
	 * user. */
	path_in(*state, "cache/index.broken-17", path);
	assert_int_equal(mkdir(path, 0700), 0);
	path_in(*state, "cache/index.broken-17/archive", path);
	assert_int_equal(mkdir(path, 0700), 0);
	test_write_file(*state, "cache/index.broken-17/archive/000001.log", "old");
	test_write_file(*state, "cache/index.broken-17x", "mine");
	damage_index(*state, "second");
	assert_false(exists(*state, "cache/index.broken-17"));
	assert_true(has_text(*state, "cache/index.broken-2/CURRENT", "first"));
	damage_index(*state, "third");
	assert_true(has_text(*state, "cache/index.broken-1/CURRENT", "third"));
	assert_true(has_text(*state, "cache/index.broken-2/CURRENT", "second"));
	assert_false(exists(*state, "cache/index.broken-3"));
	assert_true(exists(*state, "cache/index.broken-17x"));
}

static void only_files_named_like_data_files_are_cleaned_up(void **state)
{
	make_store(*state);
	char path[4096];
	path_in(*state, "cache/data/00", path);
	mkdir(path, 0700);
	test_write_file(*state, "cache/data/00/notes.txt", "mine");
	test_write_file(*state, "cache/data/00/00112233445566778899aabbccddeeff", "an orphan");
	test_write_file(*state, "cache/data/00/ff112233445566778899aabbccddeeff", "in the wrong folder");
	struct ps_store *store = test_store_open(*state, 0, NULL);
	assert_true(exists(*state, "cache/data/00/notes.txt"));
	assert_false(exists(*state, "cache/data/00/00112233445566778899aabbccddeeff"));
	assert_true(exists(*state, "cache/data/00/ff112233445566778899aabbccddeeff"));
	assert_int_equal(test_stat(store, "objects"), 1);
	ps_store_close(store);
}

/* Changes the file of object 1 between two runs, and returns the state of the object's first block. */
static enum ps_block_state block_after(const char *dir, void (*change)(const char *path))
{
	char path[4096];
	struct ps_store *store;
	struct ps_object *o;

	make_store(dir);
	store = test_store_open(dir, 0, NULL);
	o = test_object(store, 1, SIZE);
	test_data_path(o, dir, path, sizeof(path));
	ps_object_put(o);
	ps_store_close(store);
	change(path);
	store = test_store_open(dir, 0, NULL);
	if (access(path, F_OK) < 0)
		assert_int_equal(test_stat(store, "objects"), 0);
	o = test_object_look(store, 1, SIZE);
	enum ps_block_state block = ps_object_block(o, 0);
	if (block == PS_BLOCK_ABSENT) {
		/* A lost block can be written again. */
		assert_int_equal(ps_object_fd(o), -1);
		assert_int_equal(test_write_all(o), 0);
		assert_true(test_right(o, 0));
	}
	ps_object_put(o);
	ps_store_close(store);
	return block;
}

static void leave(const char *path)
{
	(void)path;
}

static void delete (const char *path)
{
	assert_int_equal(unlink(path), 0);
}

static void cut(const char *path)
{
	assert_int_equal(truncate(path, SIZE - 1), 0);
}

static void make_older(const char *path)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};

	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void touch(const char *path)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = ps_clock_real_s() + 5}};

	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void chmod_back_and_forth(const char *path)
{
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(chmod(path, 0600), 0);
}

static void copy(const char *path)
{
	char command[3 * 4096];

	snprintf(command, sizeof(command), "cp -p %s %s.copy && mv %s.copy %s", path, path, path, path);
	assert_int_equal(system(command), 0);
}

/* As after a kill in the same boot: no clean stop is recorded. */
static void kill_it(const char *path)
{
	struct ps_index *index = NULL;
	char dir[4096];

	snprintf(dir, sizeof(dir), "%.*s/index", (int)(strstr(path, "/data/") - path), path);
	assert_int_equal(ps_index_open(dir, 0, &index, NULL), 0);
	ps_index_close(index);
}

static void kill_it_and_copy(const char *path)
{
	kill_it(path);
	copy(path);
}

static void an_untouched_file_keeps_its_blocks(void **state)
{
	assert_int_equal(block_after(*state, leave), PS_BLOCK_PRESENT);
}

static void after_a_kill_an_untouched_file_keeps_its_blocks(void **state)
{
	assert_int_equal(block_after(*state, kill_it), PS_BLOCK_PRESENT);
}

/* After a kill, a newer time may come from our own writes; another inode cannot. */
static void after_a_kill_a_copied_file_is_checked(void **state)
{
	assert_int_equal(block_after(*state, kill_it_and_copy), PS_BLOCK_UNVERIFIED);
}

static void a_deleted_file_loses_its_blocks(void **state)
{
	assert_int_equal(block_after(*state, delete), PS_BLOCK_ABSENT);
}

static void a_cut_file_loses_its_blocks(void **state)
{
	assert_int_equal(block_after(*state, cut), PS_BLOCK_ABSENT);
}

static void an_older_file_is_checked(void **state)
{
	assert_int_equal(block_after(*state, make_older), PS_BLOCK_UNVERIFIED);
}

static void a_file_written_to_by_others_is_checked(void **state)
{
	assert_int_equal(block_after(*state, touch), PS_BLOCK_UNVERIFIED);
	/* A start that sees the file does not verify it. */
	for (int i = 0; i < 2; i++) {
		struct ps_store *store = test_store_open(*state, 0, NULL);
		struct ps_object *o = test_object_look(store, 1, SIZE);
		assert_int_equal(ps_object_block(o, 0), PS_BLOCK_UNVERIFIED);
		ps_object_put(o);
		ps_store_close(store);
	}
}

static void a_file_whose_inode_was_changed_is_checked(void **state)
{
	assert_int_equal(block_after(*state, chmod_back_and_forth), PS_BLOCK_UNVERIFIED);
}

static void a_copied_file_is_checked(void **state)
{
	assert_int_equal(block_after(*state, copy), PS_BLOCK_UNVERIFIED);
}

static void a_file_deleted_while_we_run_is_noticed_at_the_next_get(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, SIZE);
	char path[4096];

	assert_int_equal(test_write_all(o), 0);
	test_data_path(o, *state, path, sizeof(path));
	assert_int_equal(ps_store_commit(store), 0);
	ps_object_put(o);
	unlink(path);
	o = test_object(store, 1, SIZE);
	/* The get does not notice it while the file is being synced. */
	for (int i = 0; i < 300 && ps_object_block(o, 0) == PS_BLOCK_PRESENT; i++) {
		assert_true(test_right(o, 0));
		ps_object_put(o);
		usleep(100000);
		o = test_object(store, 1, SIZE);
	}
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(test_stat(store, "used_bytes"), 0);
	assert_int_equal(test_write_all(o), 0);
	ps_object_put(o);
	ps_store_close(store);
}

static void an_unknown_policy_is_refused(void **state)
{
	char path[4096];
	struct ps_store *store = NULL;
	struct ps_error err = {0};
	struct ps_store_options options = {.dir = path, .policy = "fifo"};

	path_in(*state, "cache", path);
	assert_int_equal(ps_store_open(&options, &store, &err), -EINVAL);
	assert_non_null(strstr(err.text, "fifo"));
	assert_false(exists(*state, "cache"));
}

/* Makes an index with n shards of 150 MiB, all blocks present, and the rows of their names. The data files
 * are holes. */
static void make_a_large_index(const char *dir, unsigned n)
{
	static char url[128], name[32];
	struct ps_index *index = NULL;
	char path[4096], hex[PS_ID_HEX_LEN + 1];
	struct ps_extent_row extent = {.present = UINT64_MAX};

	path_in(dir, "cache/index", path);
	assert_int_equal(ps_index_open(path, 0, &index, NULL), 0);
	for (unsigned i = 0; i < PS_EXTENT_BLOCKS; i++)
		extent.crc[i] = i * 2654435761u;
	for (unsigned i = 0; i < 256; i++) {
		snprintf(path, sizeof(path), "%s/cache/data/%02x", dir, i);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	for (unsigned i = 0; i < n;) {
		struct ps_index_batch *b = ps_index_batch_new();

		for (unsigned end = i + 1000; i < end; i++) {
			struct ps_remote remote = {
			        .size = 150 * TEST_MIB, .mtime_s = i, .etag = "\"65a0c0b1-9600000\""};
			struct ps_object_row row = {.url = url, .remote = remote, .nblocks_present = 150};
			struct ps_node_row node = {.node = 2000 + i,
			        .kind = PS_NODE_FILE,
			        .remote = remote,
			        .name = name,
			        .url = url};

			snprintf(name, sizeof(name), "shard-%06u.tar", i);
			snprintf(url, sizeof(url), "https://data.example.org/sets/pictures-2026/%s", name);
			ps_object_id(url, &row.remote, "raw", &row.id);
			ps_index_batch_put_node(b, &node);
			ps_index_batch_put_child(b, 1024, name, node.node);
			ps_index_batch_put_object(b, &row);
			for (unsigned e = 0; e < 3; e++) {
				extent.crc[7] += i;
				ps_index_batch_put_extent(index, b, &row.id, e, &extent);
			}
			ps_id_hex(&row.id, hex);
			snprintf(path, sizeof(path), "%s/cache/data/%.2s/%s", dir, hex, hex);
			int fd = open(path, O_CREAT | O_WRONLY, 0600);
			assert_true(fd >= 0 && ftruncate(fd, (off_t)remote.size) == 0);
			close(fd);
		}
		assert_int_equal(ps_index_batch_commit(index, b), 0);
	}
	ps_index_close(index);
}

static void a_start_with_many_objects_is_timed(void **state)
{
	const unsigned nobjects = getenv("PENSTOCK_TEST_LONG") ? 100000 : 10000;

	ps_store_close(test_store_open(*state, 0, NULL));
	make_a_large_index(*state, nobjects);
	for (int pass = 0; pass < 3; pass++) {
		uint64_t start_ns = ps_clock_mono_ns();
		struct ps_store *store = test_store_open(*state, 0, NULL);
		print_message("# start with %u objects: %llu ms\n", nobjects,
		        (unsigned long long)((ps_clock_mono_ns() - start_ns) / PS_NS_PER_MS));
		assert_int_equal(test_stat(store, "objects"), nobjects);
		ps_store_close(store);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(a_new_directory_is_private_marked_and_salted_once),
	        TEST(a_directory_with_other_files_is_refused_and_left_as_it_was),
	        TEST(an_empty_directory_and_a_fresh_file_system_are_accepted),
	        TEST(a_missing_directory_is_enoent_and_not_created),
	        TEST(an_unwritable_directory_is_reported),
	        TEST(another_format_or_a_newer_schema_is_refused_and_left_alone),
	        TEST(a_directory_in_use_is_busy_and_names_the_process),
	        TEST(a_damaged_index_is_set_aside_and_the_cache_starts_empty),
	        TEST(the_two_newest_damaged_indexes_are_kept),
	        TEST(only_files_named_like_data_files_are_cleaned_up),
	        TEST(an_untouched_file_keeps_its_blocks),
	        TEST(after_a_kill_an_untouched_file_keeps_its_blocks),
	        TEST(after_a_kill_a_copied_file_is_checked),
	        TEST(a_deleted_file_loses_its_blocks),
	        TEST(a_cut_file_loses_its_blocks),
	        TEST(an_older_file_is_checked),
	        TEST(a_file_written_to_by_others_is_checked),
	        TEST(a_file_whose_inode_was_changed_is_checked),
	        TEST(a_copied_file_is_checked),
	        TEST(a_file_deleted_while_we_run_is_noticed_at_the_next_get),
	        TEST(an_unknown_policy_is_refused),
	        TEST(a_start_with_many_objects_is_timed),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
