/* The disk refuses STEPS operations in a row, beginning at each step of a fill in turn. Whatever the error:
 * no wrong byte counts as present, earlier data stays, and the store caches again once the disk accepts
 * writes. With --wrap, this file replaces calls by which the store changes the disk, and rocksdb_open() and
 * rocksdb_write(). */
#include <errno.h>
#include <stdatomic.h>

#include <rocksdb/c.h>

#include "cache_test.h"

#define SIZE (3 * TEST_MIB - 5)
enum { STEPS = 7, STEPS_MAX = 500 };

static _Atomic unsigned step, refused_from; /* 0: nothing is refused */
static int refused_errno;

static bool refuses(void)
{
	unsigned from = refused_from;

	if (!from)
		return false;
	unsigned now = ++step;
	return now >= from && now < from + STEPS;
}

#define WRAP(type, name, parameters, arguments)         \
	type __real_##name parameters;                  \
	type __wrap_##name parameters;                  \
	type __wrap_##name parameters                   \
	{                                               \
		if (!refuses())                         \
			return __real_##name arguments; \
		errno = refused_errno;                  \
		return -1;                              \
	}

WRAP(ssize_t, pwrite, (int fd, const void *bytes, size_t n, off_t at), (fd, bytes, n, at))
WRAP(int, mkdirat, (int dir, const char *name, mode_t mode), (dir, name, mode))
WRAP(int, ftruncate, (int fd, off_t size), (fd, size))
WRAP(int, unlinkat, (int dir, const char *name, int flags), (dir, name, flags))
WRAP(int, fdatasync, (int fd), (fd))

static bool folders_fail;

struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir)
{
	if (!folders_fail)
		return __real_readdir(dir);
	errno = EIO;
	return NULL;
}

static void refuse(char **text)
{
	if (asprintf(text, "IO error: While appending to file: %s", strerror(refused_errno)) < 0)
		abort();
}

void __real_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *b, char **text);
void __wrap_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *b, char **text);
void __wrap_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *b, char **text)
{
	if (refuses())
		refuse(text);
	else
		__real_rocksdb_write(db, options, b, text);
}

rocksdb_t *__real_rocksdb_open(const rocksdb_options_t *options, const char *dir, char **text);
rocksdb_t *__wrap_rocksdb_open(const rocksdb_options_t *options, const char *dir, char **text);
rocksdb_t *__wrap_rocksdb_open(const rocksdb_options_t *options, const char *dir, char **text)
{
	if (!refuses())
		return __real_rocksdb_open(options, dir, text);
	refuse(text);
	return NULL;
}

static unsigned nright(struct ps_object *o)
{
	unsigned n = 0;

	for (unsigned b = 0; b < ps_object_nblocks(o); b++) {
		if (ps_object_block(o, b) != PS_BLOCK_PRESENT)
			continue;
		assert_true(test_right(o, b));
		n++;
	}
	return n;
}

/* Fills and evicts, as far as the disk allows. */
static void fill_and_evict(struct ps_store *store, unsigned first)
{
	for (unsigned i = first; i < first + 3; i++) {
		struct ps_object *o = test_object(store, i, SIZE);
		if (ps_object_admit(o) == 0)
			for (unsigned b = 0; b < ps_object_nblocks(o); b++)
				if (test_write(o, b) == 0)
					assert_int_equal(ps_object_block(o, b), PS_BLOCK_PRESENT);
		(void)ps_store_commit(store);
		nright(o);
		ps_object_put(o);
	}
	struct ps_object *o = test_object(store, first, SIZE);
	(void)ps_object_evict(o, NULL);
	ps_object_put(o);
}

static void check_object(struct ps_store *store, unsigned i, bool whole)
{
	struct ps_object *o = test_object(store, i, SIZE);
	unsigned n = nright(o);

	if (whole)
		assert_int_equal(n, ps_object_nblocks(o));
	ps_object_put(o);
}

/* Lets the disk refuse STEPS operations from the nth step on. False: there are fewer than n steps. */
static bool refused_at(const char *dir, unsigned n)
{
	struct ps_store *store = test_store_open(dir, 0, NULL);
	struct ps_object *o = test_object(store, 0, SIZE);

	assert_int_equal(test_write_all(o), 0);
	ps_object_put(o);
	assert_int_equal(ps_store_commit(store), 0);
	step = 0;
	refused_from = n;
	fill_and_evict(store, 1);
	check_object(store, 0, true);
	refused_from = 0;

	int e = -EIO;
	for (int i = 0; i < 200 && (e = ps_store_commit(store)) < 0; i++)
		usleep(20000);
	assert_int_equal(e, 0);
	o = test_object(store, 9, SIZE);
	assert_int_equal(test_write_all(o), 0);
	ps_object_put(o);
	ps_store_close(store);

	store = test_store_open(dir, 0, NULL);
	for (unsigned i = 0; i < 4; i++)
		check_object(store, i, i == 0);
	check_object(store, 9, true);
	assert_int_equal(test_stat(store, "used_bytes"), test_on_disk(dir));
	ps_store_close(store);
	return step >= n;
}

static void refused_everywhere(const char *dir, int errnum)
{
	unsigned n = 1;
	char sub[256];
	bool more = true;

	refused_errno = errnum;
	for (; more && n < STEPS_MAX; n++) {
		snprintf(sub, sizeof(sub), "%s/%u", dir, n);
		assert_int_equal(mkdir(sub, 0700), 0);
		more = refused_at(sub, n);
		test_remove_tree(sub);
	}
	print_message("# %s at each of %u steps\n", strerror(errnum), n - 2);
	assert_in_range(n, 15, STEPS_MAX - 1);
}

static void a_disk_quota_loses_no_cached_data(void **state)
{
	refused_everywhere(*state, EDQUOT);
}

static void a_disk_that_fails_for_a_while_loses_no_cached_data(void **state)
{
	refused_everywhere(*state, EIO);
}

/* A start that cannot list the data files fails: it must not treat them as lost. */
static void an_unreadable_data_folder_loses_no_cached_data(void **state)
{
	const char *dir = *state;
	char path[4096];
	struct ps_store *store = test_store_open(dir, 0, NULL);
	struct ps_store_options options = {.dir = path, .limit_bytes = 1024 * TEST_MIB, .min_free_bytes = 1};
	struct ps_error err = {0};

	snprintf(path, sizeof(path), "%s/cache", dir);
	for (unsigned i = 0; i < 4; i++) {
		struct ps_object *o = test_object(store, i, SIZE);

		assert_int_equal(test_write_all(o), 0);
		ps_object_put(o);
	}
	ps_store_close(store);
	folders_fail = true;
	int e = ps_store_open(&options, &store, &err);
	folders_fail = false;
	assert_int_equal(e, -EIO);
	store = test_store_open(dir, 0, NULL);
	for (unsigned i = 0; i < 4; i++)
		check_object(store, i, true);
	ps_store_close(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(a_disk_quota_loses_no_cached_data),
	        TEST(a_disk_that_fails_for_a_while_loses_no_cached_data),
	        TEST(an_unreadable_data_folder_loses_no_cached_data),
	};

	return cmocka_run_group_tests_name("refused", tests, NULL, NULL);
}
