/* Helpers that the store's tests share: a private directory for each test (*state is its path), files in it,
 * stores and objects. */
#ifndef PS_TESTS_CACHE_TEST_H
#define PS_TESTS_CACHE_TEST_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "index/index_private.h"
#include "store/store.h"

static inline int test_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void test_remove_tree(const char *dir)
{
	nftw(dir, test_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline int test_dir_setup(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char *dir = NULL;

	if (asprintf(&dir, "%s/penstock-test-XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0 || !mkdtemp(dir))
		return -1;
	*state = dir;
	return 0;
}

static inline int test_dir_teardown(void **state)
{
	test_remove_tree(*state);
	free(*state);
	return 0;
}

/* Writes the file DIR/name; `text` is its whole content. */
static inline void test_write_file(const char *dir, const char *name, const char *text)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		abort();
}

/* The row of an extent. -ENOENT: there is none. */
static inline int index_get_extent(
        struct ps_index *index, const struct ps_id *id, uint32_t extent, struct ps_extent_row *ret)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct ps_index_key key;

	ps_index_key_extent(&key, id, extent);
	int rc = ps_kv_get(index->kv, key.bytes, key.n, &value);
	return rc < 0 ? rc : ps_extent_row_decode(value.s, value.len, index->stop.trust, ret);
}

/* Overwrites the schema number, as if another version had made the index. */
static inline int index_set_schema(struct ps_index *index, uint64_t schema)
{
	ps_autostrbuf struct ps_strbuf value = {0};
	struct ps_index_batch *batch = ps_index_batch_new();
	struct ps_index_key key;

	ps_index_key_meta(&key, "schema");
	ps_row_encode('C', &schema, &value);
	ps_kv_batch_put(batch, key.bytes, key.n, value.s, value.len);
	int rc = ps_kv_write(index->kv, batch, 0, NULL);
	ps_index_batch_free(batch);
	return rc;
}

/* Runs this program again, as a child with the arguments `what` (which main() must handle) and `dir`, and
 * waits for the child's end. For tests of processes that die midway. The child calls exec because
 * ThreadSanitizer does not support new threads after a mere fork(). Returns the wait status, or -1. */
static inline int test_run_self(const char *what, const char *dir)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		execl("/proc/self/exe", "test", what, dir, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return status;
}

/* Stores and objects with known bytes -------------------------------------------------------------------- */

#define TEST_MIB (UINT64_C(1) << 20)

/* Fails the test if the store does not open. limit 0: 1 GiB. The directory is DIR/cache. */
static inline struct ps_store *test_store_open(const char *dir, uint64_t limit, const char *policy)
{
	char path[4096];
	struct ps_store *store = NULL;
	struct ps_error err = {0};
	struct ps_store_options options = {.dir = path,
	        .limit_bytes = limit ? limit : 1024 * TEST_MIB,
	        .min_free_bytes = 1,
	        .policy = policy};

	snprintf(path, sizeof(path), "%s/cache", dir);
	if (ps_store_open(&options, &store, &err) < 0)
		fail_msg("%s", err.text);
	return store;
}

static inline struct ps_object *test_object_get(
        struct ps_store *store, unsigned i, uint64_t size, bool opened)
{
	char url[64];
	struct ps_remote remote = {.size = size, .mtime_s = 1000, .etag = "\"v1\""};
	struct ps_object *object = NULL;

	snprintf(url, sizeof(url), "http://h/p/%06u.tar", i);
	if (ps_object_get(store, url, &remote, 1, opened, &object) < 0)
		fail_msg("cannot get object %u", i);
	return object;
}

/* Object number i, of this size. */
static inline struct ps_object *test_object(struct ps_store *store, unsigned i, uint64_t size)
{
	return test_object_get(store, i, size, true);
}

/* The same without an open: an open would start a check in the background. */
static inline struct ps_object *test_object_look(struct ps_store *store, unsigned i, uint64_t size)
{
	return test_object_get(store, i, size, false);
}

/* Fills `ret` with the bytes of one block of the object. No other block has the same bytes. */
static inline void test_fill(struct ps_object *object, uint64_t block, void *ret)
{
	const char *url = ps_object_url(object);
	uint64_t x = block + 1, n = ps_object_block_nbytes(object, block);

	for (; *url; url++)
		x = x * 1000003 + (unsigned char)*url;
	for (uint64_t i = 0; i < n; i += 8) { // a word at a time: these tests spend most of their time here
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		uint64_t word = x ^ x >> 29;
		memcpy((unsigned char *)ret + i, &word, n - i < 8 ? n - i : 8);
	}
}

static inline int test_write(struct ps_object *object, uint64_t block)
{
	char *buf = malloc(TEST_MIB);

	test_fill(object, block, buf);
	int rc = ps_object_write_block(object, block, buf);
	free(buf);
	return rc;
}

/* Admits the object and writes all its blocks; 0 on success. */
static inline int test_write_all(struct ps_object *object)
{
	int rc = ps_object_admit(object);

	for (uint64_t i = 0; rc == 0 && i < ps_object_nblocks(object); i++)
		rc = test_write(object, i);
	return rc;
}

/* True if the data file has the right bytes of the block. */
static inline bool test_right(struct ps_object *object, uint64_t block)
{
	uint64_t n = ps_object_block_nbytes(object, block);
	char *want = malloc(TEST_MIB), *got = malloc(TEST_MIB);

	test_fill(object, block, want);
	bool right = pread(ps_object_fd(object), got, n, (off_t)(block * TEST_MIB)) == (ssize_t)n &&
	             memcmp(want, got, n) == 0;
	free(want);
	free(got);
	return right;
}

/* Bytes that the data files occupy on disk. */
static inline uint64_t test_on_disk(const char *dir)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < 256; i++) {
		char path[4096];
		struct stat st;

		snprintf(path, sizeof(path), "%s/cache/data/%02x", dir, i);
		DIR *d = opendir(path);
		if (!d)
			continue;
		for (struct dirent *e; (e = readdir(d));)
			if (e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &st, 0) == 0)
				sum += (uint64_t)st.st_blocks * 512;
		closedir(d);
	}
	return sum;
}

static inline uint64_t test_stat(struct ps_store *store, const char *name)
{
	json_t *stats = ps_store_stats(store);
	uint64_t value = (uint64_t)json_integer_value(json_object_get(stats, name));

	json_decref(stats);
	return value;
}

/* The bytes that count against the limit: used and reserved. */
static inline uint64_t test_charged(struct ps_store *store)
{
	uint64_t limit, used, reserved;

	ps_store_room(store, &limit, &used, &reserved);
	return used + reserved;
}

static inline void test_data_path(struct ps_object *object, const char *dir, char *ret, size_t cap)
{
	struct ps_id id;
	char hex[PS_ID_HEX_LEN + 1];

	ps_object_id(ps_object_url(object), ps_object_remote(object), "raw", &id);
	ps_id_hex(&id, hex);
	snprintf(ret, cap, "%s/cache/data/%.2s/%s", dir, hex, hex);
}

/* Flips one bit of the object's data file and restores the file's times. */
static inline void test_flip(const char *dir, struct ps_object *o, uint64_t at)
{
	char path[4096];
	unsigned char c;
	struct stat st;

	test_data_path(o, dir, path, sizeof(path));
	int fd = open(path, O_RDWR);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pread(fd, &c, 1, (off_t)at), 1);
	c ^= 4;
	assert_int_equal(pwrite(fd, &c, 1, (off_t)at), 1);
	struct timespec times[2] = {st.st_atim, st.st_mtim};
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

/* Makes the index look as after a power cut and a new boot of the machine. */
static inline void test_cut_the_power(const char *dir)
{
	char path[4096];
	struct ps_index *index = NULL;

	snprintf(path, sizeof(path), "%s/cache/index", dir);
	assert_int_equal(ps_index_open_at_boot(path, 0, "another boot", &index, NULL), 0);
	ps_index_close(index);
}

#endif
