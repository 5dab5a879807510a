/* Objects: ids, sizes, admission; written blocks are present, also after a restart or a kill. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

#include "cache_test.h"

static void ids_differ_with_url_version_and_view(void **state)
{
	(void)state;
	struct ps_remote r = {.size = 5, .mtime_s = 7, .etag = "\"a\""}, s = r;
	struct ps_id a, b;

	ps_object_id("u", &r, "raw", &a);
	s.mtime_s = 8; /* with a strong ETag the time does not count */
	ps_object_id("u", &s, "raw", &b);
	assert_int_equal(ps_id_cmp(&a, &b), 0);
	ps_object_id("u", &s, "decoded", &b);
	assert_int_not_equal(ps_id_cmp(&a, &b), 0);
	ps_object_id("v", &r, "raw", &b);
	assert_int_not_equal(ps_id_cmp(&a, &b), 0);
	s.size = 6;
	ps_object_id("u", &s, "raw", &b);
	assert_int_not_equal(ps_id_cmp(&a, &b), 0);
	s = r;
	strcpy(s.etag, "\"b\"");
	ps_object_id("u", &s, "raw", &b);
	assert_int_not_equal(ps_id_cmp(&a, &b), 0);
	strcpy(r.etag, "W/\"a\"");
	s = r;
	ps_object_id("u", &r, "raw", &a);
	ps_object_id("u", &s, "raw", &b);
	assert_int_equal(ps_id_cmp(&a, &b), 0);
	s.mtime_s = 9;
	ps_object_id("u", &s, "raw", &b);
	assert_int_not_equal(ps_id_cmp(&a, &b), 0);
}

static void an_unknown_or_excessive_size_is_refused(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_remote r = PS_REMOTE_UNKNOWN;
	struct ps_object *o = NULL;

	assert_int_equal(ps_object_get(store, "u", &r, 1, true, &o), -EINVAL);
	r.size = PS_OBJECT_MAX_NBYTES + 1;
	assert_int_equal(ps_object_get(store, "u", &r, 1, true, &o), -EFBIG);
	r.size = PS_OBJECT_MAX_NBYTES;
	assert_int_equal(ps_object_get(store, "u", &r, 1, true, &o), 0);
	assert_int_equal(ps_object_admit(o), -ENOSPC);
	assert_int_equal(ps_object_block(o, UINT64_MAX), PS_BLOCK_ABSENT);
	ps_object_put(o);
	ps_store_close(store);
}

static void an_empty_object_is_complete_and_has_no_file(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 0);

	assert_int_equal(ps_object_nblocks(o), 0);
	assert_true(ps_object_complete(o));
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(ps_object_fd(o), -1);
	assert_int_equal(ps_object_cached_nbytes(o), 0);
	ps_object_put(o);
	ps_store_close(store);
}

static void nothing_is_written_without_admission(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 3 * TEST_MIB);

	assert_int_equal(test_write(o, 0), -ENOSPC);
	assert_int_equal(ps_object_fd(o), -1);
	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(ps_object_write_block(o, 3, "x"), -EINVAL);
	ps_object_put(o);
	ps_store_close(store);
}

static void blocks_are_present_once_written_and_after_a_restart(void **state)
{
	uint64_t size = 130 * TEST_MIB + 12345; /* three extents, a short last block */
	static const uint64_t written[] = {0, 63, 64, 127, 130};
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, size);

	assert_int_equal(ps_object_admit(o), 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(written); i++) {
		assert_int_equal(ps_object_block(o, written[i]), PS_BLOCK_ABSENT);
		assert_int_equal(test_write(o, written[i]), 0);
		assert_int_equal(ps_object_block(o, written[i]), PS_BLOCK_PRESENT);
	}
	for (int pass = 0; pass < 3; pass++) {
		unsigned npresent = 0;
		for (uint64_t b = 0; b < ps_object_nblocks(o); b++)
			npresent += ps_object_block(o, b) == PS_BLOCK_PRESENT;
		assert_int_equal(npresent, PS_ARRAY_LEN(written));
		for (size_t i = 0; i < PS_ARRAY_LEN(written); i++)
			assert_true(test_right(o, written[i]));
		assert_int_equal(ps_object_cached_nbytes(o), 4 * TEST_MIB + 12345);
		assert_false(ps_object_complete(o));
		ps_object_put(o);
		if (pass == 1) {
			ps_store_close(store);
			store = test_store_open(*state, 0, NULL);
			assert_int_equal(test_stat(store, "objects"), 1);
		}
		o = test_object(store, 1, size);
	}
	ps_object_put(o);
	ps_store_close(store);
}

static void an_object_is_complete_when_its_last_block_is_written(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 2 * TEST_MIB + 1);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 2), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_false(ps_object_complete(o));
	assert_int_equal(test_write(o, 1), 0);
	assert_true(ps_object_complete(o));
	assert_int_equal(ps_object_cached_nbytes(o), 2 * TEST_MIB + 1);
	ps_object_put(o);
	ps_store_close(store);
}

static void an_object_without_blocks_leaves_no_file(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 5 * TEST_MIB);
	char path[4096];
	struct stat st;

	assert_int_equal(ps_object_admit(o), 0);
	test_data_path(o, *state, path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	assert_true(test_charged(store) >= 5 * TEST_MIB);
	ps_object_put(o);
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(test_stat(store, "used_bytes"), 0);
	assert_int_equal(test_stat(store, "objects"), 0);
	ps_store_close(store);
}

/* A cut ETag would match no answer as long as the object exists. */
static void an_etag_that_is_too_long_is_not_learned(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, TEST_MIB);
	char etag[PS_ETAG_LEN + 1], learned[PS_ETAG_LEN];

	memset(etag, 'e', sizeof(etag));
	for (size_t len = PS_ETAG_LEN - 1; len <= PS_ETAG_LEN; len++) {
		etag[len] = '\0';
		ps_object_learn_etag(o, "\"short\"");
		ps_object_learn_etag(o, etag);
		ps_object_learned_etag(o, learned);
		assert_string_equal(learned, len < PS_ETAG_LEN ? etag : "\"short\"");
		etag[len] = 'e';
	}
	ps_object_put(o);
	ps_store_close(store);
}

static void the_same_id_is_one_object(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *a = test_object(store, 1, TEST_MIB), *b = test_object(store, 1, TEST_MIB);

	assert_ptr_equal(a, b);
	assert_ptr_equal(ps_object_ref(a), a);
	ps_object_put(a);
	ps_object_put(a);
	ps_object_put(a);
	ps_store_close(store);
}

/* The child process: fills an object, commits midway if requested, and exits without closing the store. */
static int fill_and_die(const char *dir, uint64_t nblocks, bool commit)
{
	struct ps_store *store = test_store_open(dir, 0, NULL);
	struct ps_object *o = test_object(store, 1, nblocks * TEST_MIB);
	int rc = ps_object_admit(o);

	for (uint64_t i = 0; rc == 0 && i < nblocks; i++) {
		rc = test_write(o, i);
		if (rc == 0 && commit && i == nblocks / 2)
			rc = ps_store_commit(store);
	}
	_exit(rc == 0 ? 0 : 1);
}

static void a_size_set_at_the_end_keeps_blocks_present(void **state)
{
	const char *url = "http://h/p/x.tar.zst";
	const struct ps_remote source = {.size = 5 * TEST_MIB / 2, .etag = "\"v1\""};
	const uint64_t size = 3 * TEST_MIB + 1000;
	struct ps_object *o = NULL;
	struct ps_id id;

	struct ps_store *store = test_store_open(*state, 0, NULL);
	ps_object_id(url, &source, "decoded", &id);
	int rc = ps_object_get_unsized(store, url, &source, &id, &o);
	if (rc == -ENOTSUP) {
		ps_store_close(store);
		return;
	}
	assert_int_equal(rc, 0);
	assert_int_equal(ps_object_admit(o), 0);
	for (uint64_t b = 0; b < 3; b++)
		assert_int_equal(test_write(o, b), 0);
	ps_object_put(o);
	assert_int_equal(ps_store_set_size(store, &id, size), 0);
	assert_int_equal(ps_object_get_view(store, url, &source, &id, size, 1, true, &o), 0);
	for (uint64_t b = 0; b < 3; b++) {
		assert_int_equal(ps_object_block(o, b), PS_BLOCK_PRESENT);
		assert_true(test_right(o, b));
	}
	assert_int_equal(ps_object_block(o, 3), PS_BLOCK_ABSENT);
	ps_object_put(o);
	ps_store_close(store);
}

/* The bytes of the index's files. */
static uint64_t index_nbytes(const char *dir)
{
	char path[4096];
	uint64_t sum = 0;
	struct dirent *entry;
	struct stat st;

	snprintf(path, sizeof(path), "%s/cache/index", dir);
	DIR *d = opendir(path);
	assert_non_null(d);
	while ((entry = readdir(d)))
		if (fstatat(dirfd(d), entry->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
			sum += (uint64_t)st.st_size;
	closedir(d);
	return sum;
}

/* A file of unknown size may become very long: the cost of its eviction must not depend on that. */
static void evicting_an_object_of_unknown_size_costs_what_was_written(void **state)
{
	static const uint64_t blocks[] = {0, 1, 70 * PS_EXTENT_BLOCKS + 3};
	const char *url = "http://h/p/x.tar.zst";
	const struct ps_remote source = {.size = 5 * TEST_MIB / 2, .etag = "\"v1\""};
	struct ps_object *o = NULL;
	struct ps_id id;

	ps_object_id(url, &source, "decoded", &id);
	for (int restarted = 0; restarted < 2; restarted++) {
		struct ps_store *store = test_store_open(*state, 0, NULL);
		int rc = ps_object_get_unsized(store, url, &source, &id, &o);
		if (rc == -ENOTSUP) {
			ps_store_close(store);
			return;
		}
		assert_int_equal(rc, 0);
		assert_int_equal(ps_object_admit(o), 0);
		for (size_t i = 0; i < PS_ARRAY_LEN(blocks); i++)
			assert_int_equal(test_write(o, blocks[i]), 0);
		if (restarted) {
			ps_object_put(o);
			ps_store_close(store);
			store = test_store_open(*state, 0, NULL);
			assert_int_equal(ps_object_get_unsized(store, url, &source, &id, &o), 0);
		}
		assert_int_equal(ps_store_commit(store), 0);
		for (size_t i = 0; i < PS_ARRAY_LEN(blocks); i++)
			assert_int_equal(ps_object_block(o, blocks[i]), PS_BLOCK_PRESENT);

		uint64_t before = index_nbytes(*state);
		assert_int_equal(ps_object_evict(o, NULL), 0);
		ps_object_put(o);
		assert_true(index_nbytes(*state) < before + 64 * 1024);
		assert_int_equal(ps_object_get_unsized(store, url, &source, &id, &o), 0);
		for (size_t i = 0; i < PS_ARRAY_LEN(blocks); i++)
			assert_int_equal(ps_object_block(o, blocks[i]), PS_BLOCK_ABSENT);
		ps_object_put(o);
		ps_store_close(store);
		store = test_store_open(*state, 0, NULL);
		assert_int_equal(test_stat(store, "used_bytes"), 0);
		ps_store_close(store);
	}
}

static void committed_blocks_survive_a_kill_and_are_served_at_once(void **state)
{
	assert_int_equal(test_run_self("commit-and-die", *state), 0);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 100 * TEST_MIB);

	for (uint64_t i = 0; i <= 50; i++) {
		assert_int_equal(ps_object_block(o, i), PS_BLOCK_PRESENT);
		assert_true(test_right(o, i));
	}
	/* The fill can go on. */
	assert_int_equal(test_write_all(o), 0);
	assert_true(ps_object_complete(o));
	ps_object_put(o);
	ps_store_close(store);
}

static void a_file_without_a_row_is_deleted_at_the_next_start(void **state)
{
	assert_int_equal(test_run_self("write-and-die", *state), 0);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 2 * TEST_MIB);
	char path[4096];
	struct stat st;

	test_data_path(o, *state, path, sizeof(path));
	/* The child died before a commit or just after one: the block is present and right, or there is no
	 * file. */
	if (ps_object_block(o, 0) == PS_BLOCK_PRESENT) {
		assert_true(test_right(o, 0));
	} else {
		assert_int_equal(stat(path, &st), -1);
		assert_int_equal(test_stat(store, "used_bytes"), 0);
	}
	ps_object_put(o);
	ps_store_close(store);
}

struct writer {
	struct ps_object *object;
	uint64_t first;
	pthread_t thread;
};

static void *write_every_eighth(void *arg)
{
	struct writer *w = arg;

	for (uint64_t i = w->first; i < ps_object_nblocks(w->object); i += 8)
		if (test_write(w->object, i) < 0 || ps_object_block(w->object, i) != PS_BLOCK_PRESENT)
			return w;
	return NULL;
}

static void concurrent_writers_of_one_object_lose_nothing(void **state)
{
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 200 * TEST_MIB - 5);
	struct writer writers[8];

	assert_int_equal(ps_object_admit(o), 0);
	for (uint64_t i = 0; i < 8; i++) {
		writers[i] = (struct writer){.object = o, .first = i};
		pthread_create(&writers[i].thread, NULL, write_every_eighth, &writers[i]);
	}
	for (int i = 0; i < 8; i++) {
		void *failed;
		pthread_join(writers[i].thread, &failed);
		assert_null(failed);
	}
	assert_true(ps_object_complete(o));
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	o = test_object(store, 1, 200 * TEST_MIB - 5);
	assert_true(ps_object_complete(o));
	for (uint64_t i = 0; i < ps_object_nblocks(o); i++)
		assert_true(test_right(o, i));
	ps_object_put(o);
	ps_store_close(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
	        TEST(ids_differ_with_url_version_and_view),
	        TEST(an_unknown_or_excessive_size_is_refused),
	        TEST(an_empty_object_is_complete_and_has_no_file),
	        TEST(nothing_is_written_without_admission),
	        TEST(blocks_are_present_once_written_and_after_a_restart),
	        TEST(an_object_is_complete_when_its_last_block_is_written),
	        TEST(an_object_without_blocks_leaves_no_file),
	        TEST(an_etag_that_is_too_long_is_not_learned),
	        TEST(the_same_id_is_one_object),
	        TEST(a_size_set_at_the_end_keeps_blocks_present),
	        TEST(evicting_an_object_of_unknown_size_costs_what_was_written),
	        TEST(committed_blocks_survive_a_kill_and_are_served_at_once),
	        TEST(a_file_without_a_row_is_deleted_at_the_next_start),
	        TEST(concurrent_writers_of_one_object_lose_nothing),
	};

	if (argc == 3 && strcmp(argv[1], "commit-and-die") == 0)
		return fill_and_die(argv[2], 100, true);
	if (argc == 3 && strcmp(argv[1], "write-and-die") == 0)
		return fill_and_die(argv[2], 2, false);
	return cmocka_run_group_tests_name("object", tests, NULL, NULL);
}
