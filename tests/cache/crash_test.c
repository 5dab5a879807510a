/* kill -9 and power cuts at every step of a fill.
 *
 * A child process fills, evicts and refills a store, and dies at its n-th call that changes the disk: once
 * just before the call, once just after it. With --wrap, this file replaces those calls, so that each of
 * them, even one that is added to the store later, is a step at which the child dies; a call of RocksDB is
 * one step. For a power cut the child first undoes what it has not synced: bytes of data files become zeros,
 * and the index's log loses half of its unsynced end. In memory that it shares with the parent, the child
 * lists the blocks that must survive. The parent then opens the store and checks every block. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <rocksdb/c.h>

#include "base/clock.h"
#include "cache_test.h"
#include "index/index_private.h"

enum { NOBJECTS = 3, NBLOCKS = 4, STEPS_MAX = 1000 };
#define LIMIT (9 * TEST_MIB) /* two objects: the third evicts one */

struct shared {
	_Atomic bool committed[NOBJECTS][NBLOCKS]; /* ps_store_commit() has returned */
	_Atomic bool synced[NOBJECTS][NBLOCKS];    /* fdatasync() and ps_index_sync() have returned */
	_Atomic unsigned nevicted;                 /* to make room, by a child that lives to its end */
};
static struct shared *shared;

/* The child's death -------------------------------------------------------------------------------------- */

/* The child dies at step die_at (0: never), after the step if die_after is 1. */
static unsigned die_at, die_after, steps; /* steps: so far */
static bool cut;                          /* a power cut, not a kill */
static char index_dir[256];

/* Bytes written and not synced. */
static struct unsynced {
	int fd; /* a duplicate */
	ino_t ino;
	off_t offset;
	size_t nbytes;
} unsynced[256];
static size_t nunsynced;
static off_t log_synced; /* synced bytes of the index's newest log */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void newest_log(char ret[static 4096])
{
	DIR *dir = opendir(index_dir);
	unsigned long newest = 0;

	ret[0] = '\0';
	for (struct dirent *d; dir && (d = readdir(dir));) {
		unsigned long n = strtoul(d->d_name, NULL, 10);
		if (n <= newest || !strstr(d->d_name, ".log"))
			continue;
		newest = n;
		snprintf(ret, 4096, "%s/%.64s", index_dir, d->d_name);
	}
	if (dir)
		closedir(dir);
}

static void lose_what_is_not_synced(void)
{
	char path[4096];
	struct stat st;

	for (size_t i = 0; i < nunsynced; i++)
		if (fallocate(unsynced[i].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, unsynced[i].offset,
		            (off_t)unsynced[i].nbytes) < 0)
			_exit(9);
	newest_log(path);
	/* Half of the unsynced end stays: this leaves a torn record. */
	if (path[0] && stat(path, &st) == 0 && st.st_size > log_synced &&
	        truncate(path, log_synced + (st.st_size - log_synced) / 2) < 0)
		_exit(9);
}

static void die(void)
{
	if (cut)
		lose_what_is_not_synced();
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

/* One step: steps of other threads wait. */
#define STEP(type, call)                                     \
	({                                                   \
		if (die_at) {                                \
			pthread_mutex_lock(&lock);           \
			if (++steps == die_at && !die_after) \
				die();                       \
		}                                            \
		type rc_ = call;                             \
		int errno_ = errno;                          \
		if (die_at) {                                \
			if (steps == die_at)                 \
				die();                       \
			pthread_mutex_unlock(&lock);         \
		}                                            \
		errno = errno_;                              \
		rc_;                                         \
	})

/* The replacements of the calls -------------------------------------------------------------------------- */

ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
	if (cut && die_at && n >= PS_CHUNK_SIZE) {
		struct stat st;

		pthread_mutex_lock(&lock);
		if (fstat(fd, &st) < 0 || nunsynced == PS_ARRAY_LEN(unsynced))
			_exit(9);
		unsynced[nunsynced++] = (struct unsynced){dup(fd), st.st_ino, offset, n};
		pthread_mutex_unlock(&lock);
	}
	return STEP(ssize_t, __real_pwrite(fd, bytes, n, offset));
}

int __real_mkdirat(int dir, const char *name, mode_t mode);
int __wrap_mkdirat(int dir, const char *name, mode_t mode);
int __wrap_mkdirat(int dir, const char *name, mode_t mode)
{
	return STEP(int, __real_mkdirat(dir, name, mode));
}

int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size)
{
	return STEP(int, __real_ftruncate(fd, size));
}

int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags)
{
	return STEP(int, __real_unlinkat(dir, name, flags));
}

int __real_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name)
{
	return STEP(int, __real_renameat(from, name, to, new_name));
}

static void forget_unsynced(int fd)
{
	struct stat st = {0};

	pthread_mutex_lock(&lock);
	if (fd >= 0 && fstat(fd, &st) < 0)
		_exit(9);
	for (size_t i = 0; i < nunsynced;) {
		if (fd >= 0 && unsynced[i].ino != st.st_ino) {
			i++;
			continue;
		}
		close(unsynced[i].fd);
		unsynced[i] = unsynced[--nunsynced];
	}
	pthread_mutex_unlock(&lock);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	/* A real sync would be slow: what counts is that the store asked for one. */
	int rc = STEP(int, 0);

	forget_unsynced(fd);
	return rc;
}

int __real_syncfs(int fd);
int __wrap_syncfs(int fd);
int __wrap_syncfs(int fd)
{
	int rc = STEP(int, 0);

	(void)fd;
	forget_unsynced(-1);
	return rc;
}

void __real_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *batch, char **text);
void __wrap_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *batch, char **text);
void __wrap_rocksdb_write(
        rocksdb_t *db, const rocksdb_writeoptions_t *options, rocksdb_writebatch_t *batch, char **text)
{
	STEP(int, (__real_rocksdb_write(db, options, batch, text), 0));
}

void __real_rocksdb_flush_wal(rocksdb_t *db, unsigned char sync, char **text);
void __wrap_rocksdb_flush_wal(rocksdb_t *db, unsigned char sync, char **text);
void __wrap_rocksdb_flush_wal(rocksdb_t *db, unsigned char sync, char **text)
{
	char path[4096];
	struct stat st;

	STEP(int, (__real_rocksdb_flush_wal(db, sync, text), 0));
	newest_log(path);
	if (path[0] && stat(path, &st) == 0)
		log_synced = st.st_size;
}

rocksdb_t *__real_rocksdb_open(const rocksdb_options_t *options, const char *dir, char **text);
rocksdb_t *__wrap_rocksdb_open(const rocksdb_options_t *options, const char *dir, char **text);
rocksdb_t *__wrap_rocksdb_open(const rocksdb_options_t *options, const char *dir, char **text)
{
	return STEP(rocksdb_t *, __real_rocksdb_open(options, dir, text));
}

/* If its power is cut, the child has another boot id than the parent. */
void __real_ps_clock_boot_id(char ret[static 37]);
void __wrap_ps_clock_boot_id(char ret[static 37]);
void __wrap_ps_clock_boot_id(char ret[static 37])
{
	__real_ps_clock_boot_id(ret);
	if (cut && die_at)
		ret[0] = ret[0] == 'a' ? 'b' : 'a';
}

/* The child ---------------------------------------------------------------------------------------------- */

static void now_safe(_Atomic bool safe[NOBJECTS][NBLOCKS], unsigned o, unsigned end)
{
	for (unsigned b = 0; b < end; b++)
		safe[o][b] = true;
}

static void fill(struct ps_store *store, unsigned number, unsigned end)
{
	struct ps_object *o = test_object(store, number, NBLOCKS * TEST_MIB - 5);

	if (ps_object_admit(o) < 0)
		exit(3);
	for (unsigned b = 0; b < end; b++)
		if (test_write(o, b) < 0)
			exit(4);
	if (ps_store_commit(store) < 0)
		exit(5);
	now_safe(shared->committed, number, end);
	if (fdatasync(ps_object_fd(o)) < 0 || ps_index_sync(ps_store_index(store)) < 0)
		exit(6);
	now_safe(shared->synced, number, end);
	ps_object_put(o);
}

static void evict(struct ps_store *store, unsigned number)
{
	struct ps_object *o = test_object(store, number, NBLOCKS * TEST_MIB - 5);

	for (unsigned b = 0; b < NBLOCKS; b++)
		shared->committed[number][b] = shared->synced[number][b] = false;
	if (ps_object_evict(o, NULL) < 0)
		exit(7);
	ps_object_put(o);
}

static int live_and_die(const char *dir)
{
	struct ps_store *store = test_store_open(dir, LIMIT, "lru");

	fill(store, 0, 2);
	fill(store, 1, NBLOCKS);
	fill(store, 0, NBLOCKS);
	evict(store, 1);
	fill(store, 1, 3);
	/* Object 2 evicts one of the others. */
	uint64_t before = test_stat(store, "evicted_objects");
	for (unsigned o = 0; o < 2; o++)
		for (unsigned b = 0; b < NBLOCKS; b++)
			shared->committed[o][b] = shared->synced[o][b] = false;
	fill(store, 2, 3);
	shared->nevicted = (unsigned)(test_stat(store, "evicted_objects") - before);
	ps_store_close(store);
	return 0;
}

/* The parent --------------------------------------------------------------------------------------------- */

static unsigned check_object(struct ps_store *store, unsigned number)
{
	struct ps_object *o = test_object_look(store, number, NBLOCKS * TEST_MIB - 5);
	char *buf = malloc(TEST_MIB);
	unsigned n = 0;

	for (unsigned b = 0; b < NBLOCKS; b++) {
		enum ps_block_state state = ps_object_block(o, b);

		/* After a kill no block needs a check; after a power cut every block does. */
		if (state == PS_BLOCK_UNVERIFIED) {
			assert_true(cut);
			state = ps_object_verify_block(o, b, buf) == 0 ? PS_BLOCK_PRESENT : PS_BLOCK_ABSENT;
		} else if (state == PS_BLOCK_PRESENT) {
			assert_false(cut);
		}
		if (state == PS_BLOCK_PRESENT)
			assert_true(test_right(o, b));
		bool safe = cut ? shared->synced[number][b] : shared->committed[number][b];
		if (safe)
			assert_int_equal(state, PS_BLOCK_PRESENT);
		n += state == PS_BLOCK_PRESENT;
	}
	free(buf);
	ps_object_put(o);
	return n;
}

static void check_and_use(const char *dir)
{
	struct ps_store *store = test_store_open(dir, LIMIT, "lru");
	uint64_t used = test_stat(store, "used_bytes");

	/* The quota counts what is on disk: no file is without a row, and no row without a file. */
	assert_true(used <= LIMIT);
	assert_int_equal(used, test_on_disk(dir));
	for (unsigned o = 0; o < NOBJECTS; o++)
		check_object(store, o);
	/* The store works. */
	struct ps_object *o = test_object(store, 2, NBLOCKS * TEST_MIB - 5);
	assert_int_equal(test_write_all(o), 0);
	assert_true(ps_object_complete(o));
	assert_true(test_right(o, 0) && test_right(o, NBLOCKS - 1));
	ps_object_put(o);
	ps_store_close(store);
}

/* Runs the child, which dies at step n. False: the child ended before that step. */
static bool dies_at(const char *dir, unsigned n, unsigned after)
{
	char number[16], sub[256];

	memset(shared, 0, sizeof(*shared));
	snprintf(sub, sizeof(sub), "%s/%u-%u", dir, n, after);
	assert_int_equal(mkdir(sub, 0700), 0);
	snprintf(number, sizeof(number), "%u", n);
	setenv("CRASH_STEP", number, 1);
	setenv("CRASH_AFTER", after ? "1" : "0", 1);
	setenv("CRASH_CUT", cut ? "1" : "0", 1);
	int status = test_run_self("live-and-die", sub);
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	if (!killed)
		assert_int_equal(status, 0);
	if (killed)
		check_and_use(sub);
	test_remove_tree(sub);
	return killed;
}

static void die_everywhere(const char *dir)
{
	unsigned n = 1;

	while (dies_at(dir, n, 0) && dies_at(dir, n, 1) && n < STEPS_MAX)
		n++;
	assert_int_equal(shared->nevicted, 1);
	print_message("# died at %u steps, before and after each\n", n - 1);
	assert_in_range(n, 30, STEPS_MAX - 1);
}

static void after_a_kill_committed_blocks_are_present_and_no_block_is_wrong(void **state)
{
	cut = false;
	die_everywhere(*state);
}

static void after_a_power_cut_synced_blocks_are_present_and_no_block_is_wrong(void **state)
{
	cut = true;
	die_everywhere(*state);
}

#define SHARED_FD_ENV "CRASH_SHARED_FD"

static bool share(int fd)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return shared != MAP_FAILED;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
	        TEST(after_a_kill_committed_blocks_are_present_and_no_block_is_wrong),
	        TEST(after_a_power_cut_synced_blocks_are_present_and_no_block_is_wrong),
	};

	if (argc == 3 && strcmp(argv[1], "live-and-die") == 0) {
		die_at = (unsigned)atoi(getenv("CRASH_STEP"));
		die_after = (unsigned)atoi(getenv("CRASH_AFTER"));
		cut = atoi(getenv("CRASH_CUT"));
		snprintf(index_dir, sizeof(index_dir), "%s/cache/index", argv[2]);
		return share(atoi(getenv(SHARED_FD_ENV))) ? live_and_die(argv[2]) : 2;
	}
	char number[16];
	int fd = memfd_create("shared", 0);
	if (fd < 0 || ftruncate(fd, sizeof(*shared)) < 0 || !share(fd))
		return 1;
	snprintf(number, sizeof(number), "%d", fd);
	setenv(SHARED_FD_ENV, number, 1);
	return cmocka_run_group_tests_name("crash", tests, NULL, NULL);
}
