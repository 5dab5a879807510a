/* Large objects, cached and evicted by extents: the quota holds, readers keep the bytes that they read, no
 * wrong byte counts as present after a kill, and a file that was passed through is never punched. */
#include <errno.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "cache_test.h"
#include "index/index.h"

#define MIB TEST_MIB
#define EXTENT (64 * MIB)
#define LIMIT (160 * MIB)
#define LARGE (3 * LIMIT + 12345) /* 8 extents */
#define NBLOCKS 481
#define MAP_NBYTES 16384 /* what an extent's part of the file system's block map counts as */

static int test_pin(struct ps_object *o)
{
	uint64_t nbytes;

	return ps_object_pin(o, &nbytes);
}

static int test_unpin(struct ps_object *o)
{
	uint64_t nbytes;

	return ps_object_unpin(o, &nbytes);
}

static bool there(struct ps_object *o, uint64_t block)
{
	return ps_object_block(o, block) == PS_BLOCK_PRESENT;
}

/* Writes blocks [first, end) as far as there is room. Returns how many were written. */
static uint64_t write_range(struct ps_object *o, uint64_t first, uint64_t end)
{
	uint64_t n = 0;

	for (uint64_t b = first; b < end; b++)
		n += test_write(o, b) == 0;
	return n;
}

static bool all_right(struct ps_object *o)
{
	bool right = true;

	for (uint64_t b = 0; b < ps_object_nblocks(o); b++) {
		struct ps_hold hold;
		if (ps_object_hold(o, b * MIB, 1, &hold) < 0)
			return false;
		right = right && (!there(o, b) || test_right(o, b));
		ps_object_release(&hold);
	}
	return right;
}

static void a_sequential_writer_of_three_times_the_quota_never_exceeds_it(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);

	assert_int_equal(ps_object_nblocks(o), NBLOCKS);
	assert_int_equal(ps_object_admit(o), 0);
	for (uint64_t b = 0; b < NBLOCKS; b++) {
		assert_int_equal(test_write(o, b), 0);
		assert_true(test_charged(store) <= LIMIT);
		if (b % 16 == 0)
			assert_true(test_on_disk(*state) <= LIMIT);
	}
	/* The oldest extents were evicted one by one; the newest are left. */
	assert_false(there(o, 0));
	assert_true(there(o, NBLOCKS - 1));
	assert_true(ps_object_cached_nbytes(o) > 64 * MIB);
	assert_true(test_stat(store, "evicted_extents") >= 5);
	assert_true(all_right(o));
	assert_true(test_stat(store, "used_bytes") >= test_on_disk(*state));
	assert_int_equal(ps_object_pass_fd(o), -1);
	ps_object_put(o);
	ps_store_close(store);

	store = test_store_open(*state, LIMIT, "lru");
	o = test_object(store, 0, LARGE);
	assert_true(there(o, NBLOCKS - 1));
	assert_true(all_right(o));
	assert_true(test_stat(store, "used_bytes") >= test_on_disk(*state));
	ps_object_put(o);
	struct ps_verify_result result;
	assert_int_equal(ps_store_verify(store, NULL, NULL, NULL, &result), 0);
	assert_true(result.blocks > 64);
	assert_int_equal(result.bad_blocks + result.missing_files, 0);
	ps_store_close(store);
}

static void a_sequential_scan_keeps_the_blocks_that_came_first(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, NULL);
	struct ps_object *o = test_object(store, 0, LARGE);

	assert_int_equal(ps_object_admit(o), 0);
	uint64_t n = write_range(o, 0, NBLOCKS);
	assert_true(n >= 158 && n <= 160);
	assert_int_equal(write_range(o, 0, NBLOCKS), n); /* present blocks stay */
	assert_true(there(o, 0));
	assert_true(all_right(o));
	assert_int_equal(test_stat(store, "evicted_extents"), 0);
	ps_object_put(o);
	ps_store_close(store);
}

static void a_small_object_and_extents_make_room_for_each_other(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_range(o, 0, 158), 158);
	struct ps_object *small = test_object(store, 1, 30 * MIB);
	/* evicts the oldest extent, although the object is held */
	assert_int_equal(test_write_all(small), 0);
	assert_false(there(o, 0));
	assert_true(there(o, 100));
	ps_object_put(small);
	assert_int_equal(write_range(o, 158, 480), 322);
	small = test_object(store, 1, 30 * MIB);
	assert_false(ps_object_complete(small));
	ps_object_put(small);
	assert_true(all_right(o));
	ps_object_put(o);
	/* The object is not open. Its extents are still evicted one by one, and the file with the last of
	 * them. */
	for (unsigned i = 2; i < 7; i++) {
		small = test_object(store, i, 30 * MIB);
		assert_int_equal(test_write_all(small), 0);
		ps_object_put(small);
		assert_true(test_charged(store) <= LIMIT);
		assert_true(test_on_disk(*state) <= LIMIT);
	}
	assert_int_equal(test_stat(store, "objects"), 5);
	ps_store_close(store);
	store = test_store_open(*state, LIMIT, "lru");
	assert_int_equal(test_stat(store, "objects"), 5);
	ps_store_close(store);
}

/* Sets the times at which the extents of object 0 were last used. */
static void set_used(const char *dir, const int64_t *used_s, uint32_t n)
{
	char path[512];
	struct ps_index *index = NULL;
	struct ps_remote remote = {.size = LARGE, .mtime_s = 1000, .etag = "\"v1\""};
	struct ps_id id;

	snprintf(path, sizeof(path), "%s/cache/index", dir);
	assert_int_equal(ps_index_open(path, 0, &index, NULL), 0);
	ps_object_id("http://h/p/000000.tar", &remote, "raw", &id);
	struct ps_index_batch *b = ps_index_batch_new();
	for (uint32_t i = 0; i < n; i++) {
		struct ps_extent_row row;
		assert_int_equal(index_get_extent(index, &id, i, &row), 0);
		assert_true(ps_clock_real_s() - row.used_s < 600); /* the time of the write */
		row.used_s = used_s[i];
		ps_index_batch_put_extent(index, b, &id, i, &row);
	}
	assert_int_equal(ps_index_batch_commit(index, b), 0);
	ps_index_close(index);
}

static void a_restart_remembers_which_extent_was_used_last(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);

	assert_int_equal(ps_object_admit(o), 0);
	for (uint64_t extent = 0; extent < 3; extent++)
		assert_int_equal(write_range(o, 64 * extent, 64 * extent + 10), 10);
	ps_object_put(o);
	ps_store_close(store);
	set_used(*state, (const int64_t[]){3000, 1000, 2000}, 3);
	store = test_store_open(*state, LIMIT, "lru");
	for (unsigned i = 1; i <= 5; i++) { /* with the extents' 30 MiB, 165: one extent must be evicted */
		struct ps_object *small = test_object(store, i, 27 * MIB);
		assert_int_equal(test_write_all(small), 0);
		ps_object_put(small);
	}
	o = test_object_look(store, 0, LARGE);
	assert_true(there(o, 0));
	assert_false(there(o, 64));
	assert_true(there(o, 128));
	ps_object_put(o);
	ps_store_close(store);
}

static void partial_blocks_count_the_bytes_that_they_take(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);
	char *buf = malloc(MIB);

	assert_int_equal(ps_object_admit(o), 0);
	for (uint64_t b = 0; b < NBLOCKS - 1; b++) {
		test_fill(o, b, buf);
		assert_int_equal(ps_object_write_chunks(o, b, 3, 1, buf + 3 * PS_CHUNK_SIZE), 0);
	}
	free(buf);
	assert_int_equal(test_stat(store, "evicted_extents"), 0);
	assert_true(test_stat(store, "used_bytes") >= test_on_disk(*state));
	assert_true(test_stat(store, "used_bytes") < 40 * MIB);
	uint64_t used = test_stat(store, "used_bytes");
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, LIMIT, "lru");
	assert_int_equal(test_stat(store, "used_bytes"), used);
	ps_store_close(store);
}

/* A disk allocates blocks of 4 KiB. If these did not count, a cache of many large objects would exceed its
 * quota. */
static void the_end_of_an_object_counts_in_whole_disk_blocks(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);
	uint64_t before = test_stat(store, "used_bytes");
	char *buf = malloc(MIB);

	assert_int_equal(ps_object_admit(o), 0);
	test_fill(o, NBLOCKS - 1, buf);
	assert_int_equal(ps_object_write_chunks(o, NBLOCKS - 1, 0, 1, buf), 0);
	free(buf);
	/* 12345 bytes in whole disk blocks, and the file system's block map. */
	assert_int_equal(test_stat(store, "used_bytes") - before, 4 * 4096 + MAP_NBYTES);
	assert_true(test_stat(store, "used_bytes") >= test_on_disk(*state));
	ps_object_put(o);
	ps_store_close(store);
}

/* The data file was removed: its bytes do not count any more after the start. */
static void a_large_object_whose_file_is_gone_counts_nothing(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);
	char path[4096];

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_range(o, 60, 70), 10);
	test_data_path(o, *state, path, sizeof(path));
	ps_object_put(o);
	ps_store_close(store);
	assert_int_equal(unlink(path), 0);
	store = test_store_open(*state, LIMIT, "lru");
	assert_int_equal(test_stat(store, "used_bytes"), 0);
	assert_int_equal(test_stat(store, "objects"), 0);
	ps_store_close(store);
}

/* Holds -------------------------------------------------------------------------------------------------- */

struct filler {
	struct ps_object *object;
	uint64_t first, end;
	_Atomic bool done;
};

static void *fill(void *arg)
{
	struct filler *f = arg;

	write_range(f->object, f->first, f->end);
	f->done = true;
	return NULL;
}

/* A hold that takes no lock, because the extent's use was already noted in this second. */
static int hold_without_lock(struct ps_object *o, uint64_t offset, uint64_t nbytes, struct ps_hold *ret)
{
	for (int i = 0; i < 100; i++) {
		int rc = ps_object_hold_borrowed(o, offset, nbytes, ret);

		if (rc < 0 || ret->borrowed)
			return rc;
		ps_object_release(ret);
	}
	return -ETIMEDOUT;
}

typedef int (*hold_fn)(struct ps_object *object, uint64_t offset, uint64_t nbytes, struct ps_hold *ret);

static void evicted_when_it_has_been_read(void **state, hold_fn hold_it)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);
	struct filler f = {.object = o, .first = 128, .end = 300};
	struct ps_hold hold, second;
	pthread_t thread;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_range(o, 0, 128), 128);
	assert_int_equal(hold_it(o, 5 * MIB, 4096, &hold), 0);
	assert_true(there(o, 5));
	pthread_create(&thread, NULL, fill, &f);
	while (there(o, 5))
		usleep(1000);
	usleep(100000);
	/* The extent is being evicted: new readers find it absent, earlier readers keep their bytes. */
	assert_true(test_right(o, 5));
	assert_false(f.done);
	assert_int_equal(ps_object_hold_borrowed(o, 5 * MIB, 4096, &second), 0);
	assert_false(there(o, 5));
	ps_object_release(&second);
	ps_object_release(&hold);
	pthread_join(thread, NULL);
	assert_false(there(o, 5));
	assert_int_equal(test_write(o, 5), 0); /* the block can be cached again */
	assert_true(test_right(o, 5));
	ps_object_put(o);
	ps_store_close(store);
}

static void an_extent_that_is_being_read_is_evicted_after_the_read(void **state)
{
	evicted_when_it_has_been_read(state, ps_object_hold);
}

static void an_extent_that_is_read_without_a_lock_is_evicted_after_the_read(void **state)
{
	evicted_when_it_has_been_read(state, hold_without_lock);
}

static void evicting_an_open_large_object_empties_its_file_in_place(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);
	uint64_t nbytes = 0;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_range(o, 60, 70), 10);
	assert_int_equal(ps_object_evict(o, &nbytes), 0);
	assert_true(nbytes >= 10 * MIB);
	assert_int_equal(ps_object_cached_nbytes(o), 0);
	assert_int_equal(test_stat(store, "used_bytes"), 0);
	assert_true(test_on_disk(*state) < 64 * 1024);
	assert_int_equal(test_write(o, 65), 0);
	assert_true(test_right(o, 65));
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, LIMIT, "lru");
	o = test_object(store, 0, LARGE);
	assert_true(there(o, 65));
	assert_false(there(o, 64));
	ps_object_put(o);
	ps_store_close(store);
}

struct crowd {
	struct ps_store *store;
	int data_fd; /* of a file system with data files only, or -1 */
	_Atomic bool stop, over, wrong;
	_Atomic unsigned seed;
	_Atomic uint64_t nreads, nwrites;
};

static void *watch(void *arg)
{
	struct crowd *c = arg;

	while (!c->stop) {
		struct statvfs st;

		if (c->data_fd >= 0 && fstatvfs(c->data_fd, &st) == 0 &&
		        (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize > LIMIT)
			c->over = true;
		if (test_charged(c->store) > LIMIT)
			c->over = true;
		usleep(50);
	}
	return NULL;
}

/* Opens and closes two large objects in turn; reads present blocks and writes absent ones at random. */
static void *crowd_member(void *arg)
{
	struct crowd *c = arg;
	unsigned rng = ++c->seed * 7919;

	for (int round = 0; round < 25; round++) {
		struct ps_object *o = test_object(c->store, round % 2, LARGE);

		if (ps_object_admit(o) < 0)
			c->wrong = true;
		for (int i = 0; i < 16; i++) {
			struct ps_hold hold;

			rng = rng * 1103515245 + 12345;
			uint64_t b = (rng >> 12) % NBLOCKS;
			if ((b % 2 ? ps_object_hold_borrowed : ps_object_hold)(o, b * MIB, MIB / 2, &hold) <
			        0)
				c->wrong = true;
			bool present = there(o, b);
			if (present && !test_right(o, b))
				c->wrong = true;
			ps_object_release(&hold);
			c->nreads += present;
			if (!present)
				c->nwrites += test_write(o, b) == 0;
		}
		if (round % 8 == 7 && ps_object_evict(o, NULL) < 0)
			c->wrong = true;
		ps_object_put(o);
	}
	return NULL;
}

static void eight_random_threads_get_right_bytes_within_the_quota(void **state)
{
	struct crowd c = {.data_fd = -1};
	pthread_t watcher, members[8];
	char data[4096];

	ps_store_close(test_store_open(*state, LIMIT, "lru"));
	snprintf(data, sizeof(data), "%s/cache/data", (char *)*state);
	bool mounted = mount("penstock-test", data, "tmpfs", 0, "size=400m") == 0;
	if (mounted)
		c.data_fd = open(data, O_RDONLY | O_DIRECTORY);
	c.store = test_store_open(*state, LIMIT, "lru");
	pthread_create(&watcher, NULL, watch, &c);
	for (int i = 0; i < 8; i++)
		pthread_create(&members[i], NULL, crowd_member, &c);
	for (int i = 0; i < 8; i++)
		pthread_join(members[i], NULL);
	c.stop = true;
	pthread_join(watcher, NULL);
	print_message("# %llu reads, %llu writes, %llu extents evicted\n", (unsigned long long)c.nreads,
	        (unsigned long long)c.nwrites, (unsigned long long)test_stat(c.store, "evicted_extents"));
	assert_false(c.wrong);
	assert_false(c.over);
	assert_true(c.nreads > 100);
	assert_true(test_stat(c.store, "evicted_extents") > 10);
	assert_true(test_stat(c.store, "used_bytes") >= test_on_disk(*state));
	ps_store_close(c.store);
	c.store = test_store_open(*state, LIMIT, "lru");
	struct ps_verify_result result;
	assert_int_equal(ps_store_verify(c.store, NULL, NULL, NULL, &result), 0);
	assert_int_equal(result.bad_blocks + result.missing_files, 0);
	ps_store_close(c.store);
	if (mounted)
		close(c.data_fd);
}

static int data_disk_teardown(void **state)
{
	char data[4096];

	snprintf(data, sizeof(data), "%s/cache/data", (char *)*state);
	umount2(data, MNT_DETACH);
	return test_dir_teardown(state);
}

/* Kills -------------------------------------------------------------------------------------------------- */

static void *killer(void *arg)
{
	usleep(*(useconds_t *)arg);
	kill(getpid(), SIGKILL);
	return NULL;
}

/* The child process: fills the object again and again until it is killed. */
static int fill_and_die(const char *dir)
{
	struct ps_store *store = test_store_open(dir, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);
	useconds_t when = 150000 + (useconds_t)(ps_clock_mono_ns() % 900000);
	pthread_t thread;

	pthread_create(&thread, NULL, killer, &when);
	if (ps_object_admit(o) < 0)
		return 1;
	for (;;)
		write_range(o, 0, NBLOCKS);
}

static void after_kills_present_blocks_are_right_and_within_the_quota(void **state)
{
	for (int i = 0; i < 3; i++) {
		int status = test_run_self("fill-and-die", *state);

		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		struct ps_store *store = test_store_open(*state, LIMIT, "lru");
		assert_true(test_charged(store) <= LIMIT);
		assert_true(test_on_disk(*state) <= test_stat(store, "used_bytes"));
		struct ps_object *o = test_object(store, 0, LARGE);
		assert_true(all_right(o));
		ps_object_put(o);
		ps_store_close(store);
	}
}

static void bytes_without_a_row_are_punched_at_the_start(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, LARGE);
	struct ps_id id;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(write_range(o, 0, 128), 128);
	ps_object_id(ps_object_url(o), ps_object_remote(o), "raw", &id);
	ps_object_put(o);
	assert_int_equal(ps_store_commit(store), 0);
	/* As after a kill between the deletion of the row and the punching of the hole. */
	struct ps_index_batch *batch = ps_index_batch_new();
	ps_index_batch_del_extent(batch, &id, 1);
	assert_int_equal(ps_index_batch_commit(ps_store_index(store), batch), 0);
	ps_store_close(store);
	assert_true(test_on_disk(*state) >= 128 * MIB);

	store = test_store_open(*state, LIMIT, "lru");
	assert_true(test_on_disk(*state) < 66 * MIB);
	o = test_object(store, 0, LARGE);
	assert_int_not_equal(ps_object_block(o, 63), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_block(o, 64), PS_BLOCK_ABSENT);
	assert_true(test_right(o, 63));
	ps_object_put(o);
	ps_store_close(store);
}

/* Pins and passthrough ----------------------------------------------------------------------------------- */

#define HALF (80 * MIB + 777) /* large, and fits into the quota */

static void only_a_pinned_large_object_is_passed_through_and_then_never_punched(void **state)
{
	struct ps_store *store = test_store_open(*state, LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, HALF);
	char path[4096];

	assert_int_equal(test_write_all(o), 0);
	assert_true(ps_object_complete(o));
	assert_int_equal(ps_object_pass_fd(o), -1);
	assert_int_equal(test_pin(o), 0);
	int fd = ps_object_pass_fd(o);
	assert_true(fd >= 0);
	ps_object_put(o);
	ps_store_close(store);

	/* A reader may outlive the daemon. The next daemon knows that the file was passed through. */
	store = test_store_open(*state, LIMIT, "lru");
	o = test_object(store, 0, HALF);
	assert_true(ps_object_complete(o));
	assert_true(ps_object_pinned(o));
	test_data_path(o, *state, path, sizeof(path));
	int reader = open(path, O_RDONLY);
	assert_true(reader >= 0);
	assert_true(ps_object_pass_fd(o) >= 0);
	assert_int_equal(test_unpin(o), 0);
	ps_object_put(o);
	struct ps_object *other = test_object(store, 1, LARGE);
	assert_int_equal(ps_object_admit(other), 0);
	assert_int_equal(write_range(other, 0, 120), 120);
	assert_int_equal(access(path, F_OK), -1); /* evicted as a whole */
	char zeros[512] = {0}, bytes[512];
	for (uint64_t b = 0; b < 80; b++) {
		assert_int_equal(pread(reader, bytes, sizeof(bytes), (off_t)(b * MIB)), sizeof(bytes));
		assert_memory_not_equal(bytes, zeros, sizeof(bytes));
	}
	close(reader);
	/* The object is cached again, by extents. */
	o = test_object(store, 0, HALF);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(test_write_all(o), 0);
	assert_int_equal(ps_object_pass_fd(o), -1);
	ps_object_put(o);
	ps_object_put(other);
	ps_store_close(store);
}

static void a_file_that_may_have_been_passed_through_stays_whole_under_a_lowered_quota(void **state)
{
	struct ps_store *store = test_store_open(*state, 4 * LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, HALF);

	assert_int_equal(test_write_all(o), 0);
	assert_true(ps_object_pass_fd(o) >= 0); /* not large under this quota */
	ps_object_put(o);
	ps_store_close(store);
	store = test_store_open(*state, LIMIT, "lru");
	o = test_object(store, 0, HALF);
	assert_true(ps_object_pass_fd(o) >= 0);
	ps_object_put(o);
	struct ps_object *other = test_object(store, 1, LARGE);
	assert_int_equal(ps_object_admit(other), 0);
	assert_int_equal(write_range(other, 0, 120), 120);
	ps_object_put(other);
	assert_int_equal(test_stat(store, "evicted_objects"), 1);
	ps_store_close(store);
}

/* After a reboot no passthrough reader is left: the file may be evicted by extents again, not only as one
 * piece of half the quota. */
static void after_a_reboot_a_passed_through_file_is_evicted_by_extents(void **state)
{
	struct ps_store *store = test_store_open(*state, 4 * LIMIT, "lru");
	struct ps_object *o = test_object(store, 0, HALF);

	assert_int_equal(test_write_all(o), 0);
	assert_true(ps_object_pass_fd(o) >= 0);
	ps_object_put(o);
	ps_store_close(store);
	test_cut_the_power(*state);
	store = test_store_open(*state, LIMIT, "lru");
	o = test_object_look(store, 0, HALF);
	assert_int_not_equal(ps_object_block(o, 79), PS_BLOCK_ABSENT);
	ps_object_put(o);
	struct ps_object *other = test_object(store, 1, LARGE);
	assert_int_equal(ps_object_admit(other), 0);
	assert_int_equal(write_range(other, 0, 90), 90);
	ps_object_put(other);
	assert_int_equal(test_stat(store, "evicted_objects"), 0);
	assert_true(test_stat(store, "evicted_extents") > 0);
	ps_store_close(store);
}

static void a_pinned_object_stays_over_restarts_until_it_is_unpinned(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, "lru");
	struct ps_object *o = test_object(store, 0, 3 * MIB), *p = test_object(store, 1, 10 * MIB);

	assert_int_equal(test_pin(o), 0); /* before any of its bytes is cached */
	assert_int_equal(test_pin(o), 0);
	assert_int_equal(test_pin(p), -ENOSPC);
	assert_int_equal(test_stat(store, "pinned_objects"), 1);
	assert_int_equal(test_stat(store, "pinned_bytes"), 3 * MIB);
	assert_int_equal(test_write_all(o), 0);
	ps_object_put(o);
	ps_object_put(p);
	for (int run = 0; run < 2; run++) {
		for (unsigned i = 2; i < 9; i++) {
			p = test_object(store, i, 3 * MIB);
			assert_int_equal(test_write_all(p), 0);
			ps_object_put(p);
		}
		uint64_t nobjects, nbytes;
		assert_int_equal(ps_store_evict(store, NULL, 0, &nobjects, &nbytes), 0);
		assert_int_equal(nobjects, 3);
		ps_store_close(store);
		store = test_store_open(*state, 12 * MIB, "lru");
		o = test_object(store, 0, 3 * MIB);
		assert_true(ps_object_complete(o));
		assert_true(ps_object_pinned(o));
		ps_object_put(o);
	}
	uint64_t nobjects, nbytes;
	assert_int_equal(ps_store_pin(store, NULL, 0, false, &nobjects, &nbytes), 0);
	assert_int_equal(nobjects, 1);
	assert_int_equal(test_stat(store, "pinned_bytes"), 0);
	assert_int_equal(ps_store_evict(store, NULL, 0, &nobjects, &nbytes), 0);
	assert_int_equal(nobjects, 1);
	ps_store_close(store);
}

static void a_pinned_object_evicts_recently_used_objects(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, NULL);

	for (unsigned i = 1; i < 5; i++) {
		struct ps_object *p = test_object(store, i, 3 * MIB);
		assert_int_equal(test_write_all(p), 0);
		ps_object_put(p);
	}
	struct ps_object *o = test_object(store, 0, 3 * MIB);
	assert_int_equal(ps_object_admit(o), -ENOSPC);
	ps_object_put(o);
	o = test_object(store, 5, 3 * MIB);
	assert_int_equal(test_pin(o), 0);
	assert_int_equal(test_write_all(o), 0);
	ps_object_put(o);
	ps_store_close(store);
}

static void a_pin_follows_the_version_that_is_opened(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, "lru");
	struct ps_remote remote = {.size = 2 * MIB, .mtime_s = 2000, .etag = "\"v2\""};
	struct ps_object *old = test_object(store, 0, 3 * MIB), *new = NULL;

	assert_int_equal(test_write_all(old), 0);
	assert_int_equal(test_pin(old), 0);
	assert_int_equal(ps_object_get(store, ps_object_url(old), &remote, 1, true, &new), 0);
	assert_false(ps_object_pinned(old));
	assert_true(ps_object_pinned(new));
	assert_int_equal(test_stat(store, "pinned_bytes"), 2 * MIB);
	ps_object_put(old);
	ps_object_put(new);
	/* The old version may be evicted. */
	uint64_t nobjects = 0, nbytes = 0;
	assert_int_equal(ps_store_evict(store, NULL, 0, &nobjects, &nbytes), 0);
	assert_int_equal(nobjects, 1);
	assert_int_equal(nbytes, 3 * MIB);
	ps_store_close(store);
	store = test_store_open(*state, 12 * MIB, "lru");
	assert_int_equal(test_stat(store, "pinned_bytes"), 2 * MIB);
	ps_store_close(store);
}

static void a_quota_below_the_pinned_bytes_still_holds(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, "lru");

	for (unsigned i = 0; i < 3; i++) {
		struct ps_object *o = test_object(store, i, 3 * MIB);
		assert_int_equal(test_pin(o), 0);
		assert_int_equal(test_write_all(o), 0);
		ps_object_put(o);
	}
	ps_store_close(store);
	store = test_store_open(*state, 7 * MIB, "lru");
	assert_true(test_stat(store, "used_bytes") <= 7 * MIB);
	assert_true(test_on_disk(*state) <= 7 * MIB);
	ps_store_close(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
	        TEST(a_sequential_writer_of_three_times_the_quota_never_exceeds_it),
	        TEST(a_sequential_scan_keeps_the_blocks_that_came_first),
	        TEST(a_small_object_and_extents_make_room_for_each_other),
	        TEST(a_restart_remembers_which_extent_was_used_last),
	        TEST(partial_blocks_count_the_bytes_that_they_take),
	        TEST(the_end_of_an_object_counts_in_whole_disk_blocks),
	        TEST(a_large_object_whose_file_is_gone_counts_nothing),
	        TEST(an_extent_that_is_being_read_is_evicted_after_the_read),
	        TEST(an_extent_that_is_read_without_a_lock_is_evicted_after_the_read),
	        TEST(evicting_an_open_large_object_empties_its_file_in_place),
	        cmocka_unit_test_setup_teardown(eight_random_threads_get_right_bytes_within_the_quota,
	                test_dir_setup, data_disk_teardown),
	        TEST(after_kills_present_blocks_are_right_and_within_the_quota),
	        TEST(bytes_without_a_row_are_punched_at_the_start),
	        TEST(only_a_pinned_large_object_is_passed_through_and_then_never_punched),
	        TEST(a_file_that_may_have_been_passed_through_stays_whole_under_a_lowered_quota),
	        TEST(after_a_reboot_a_passed_through_file_is_evicted_by_extents),
	        TEST(a_pinned_object_stays_over_restarts_until_it_is_unpinned),
	        TEST(a_pinned_object_evicts_recently_used_objects),
	        TEST(a_pin_follows_the_version_that_is_opened),
	        TEST(a_quota_below_the_pinned_bytes_still_holds),
	};

	if (argc == 3 && strcmp(argv[1], "fill-and-die") == 0)
		return fill_and_die(argv[2]);
	return cmocka_run_group_tests_name("extent", tests, NULL, NULL);
}
