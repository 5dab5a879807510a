/* Space in the cache: the quota holds at every moment, the policy decides what is evicted, holders keep
 * their bytes, and reads are streamed while the disk is full. */
#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "cache_test.h"
#include "index/index.h"

#define MIB TEST_MIB

static int put_whole(struct ps_store *store, unsigned i, uint64_t size)
{
	struct ps_object *o = test_object(store, i, size);
	int rc = test_write_all(o);

	ps_object_put(o);
	return rc;
}

static bool cached(struct ps_store *store, unsigned i, uint64_t size)
{
	struct ps_remote remote = {.size = size, .mtime_s = 1000, .etag = "\"v1\""};
	struct ps_object *o = NULL;
	char url[64];

	snprintf(url, sizeof(url), "http://h/p/%06u.tar", i);
	assert_int_equal(ps_object_get(store, url, &remote, 1, false, &o), 0);
	bool complete = ps_object_complete(o);
	ps_object_put(o);
	return complete;
}

static void lru_evicts_the_least_recently_used(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, "lru");

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(put_whole(store, i, 3 * MIB), 0);
	assert_int_equal(test_stat(store, "used_bytes"), 12 * MIB);
	struct ps_object *o = test_object(store, 0, 3 * MIB); /* opened again: now the most recently used */
	ps_object_put(o);
	assert_int_equal(put_whole(store, 4, 3 * MIB), 0);
	assert_true(cached(store, 0, 3 * MIB));
	assert_false(cached(store, 1, 3 * MIB));
	assert_true(cached(store, 2, 3 * MIB));
	assert_true(cached(store, 4, 3 * MIB));
	assert_int_equal(test_stat(store, "evicted_objects"), 1);
	assert_int_equal(test_stat(store, "evicted_bytes"), 3 * MIB);
	ps_store_close(store);
}

static void scan_streams_rather_than_evict_recently_used_objects(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, NULL);

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(put_whole(store, i, 3 * MIB), 0);
	assert_int_equal(put_whole(store, 4, 3 * MIB), -ENOSPC);
	for (unsigned i = 0; i < 4; i++)
		assert_true(cached(store, i, 3 * MIB));
	assert_int_equal(test_stat(store, "objects"), 4);
	ps_store_close(store);
}

static void space_is_reserved_for_the_whole_object_until_the_last_put(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, "lru");
	struct ps_object *a = test_object(store, 0, 10 * MIB), *b = test_object(store, 1, 4 * MIB);

	assert_int_equal(ps_object_admit(a), 0);
	assert_int_equal(test_write(a, 0), 0);
	assert_int_equal(ps_object_admit(b), -ENOSPC); /* a is held and may still grow */
	/* used and reserved bytes count apart */
	assert_int_equal(test_stat(store, "used_bytes"), MIB);
	assert_true(test_stat(store, "reserved_bytes") >= 9 * MIB);
	assert_int_equal(ps_store_dataset_nbytes(store, 1), MIB);
	ps_object_put(a);
	assert_int_equal(ps_store_dataset_nbytes(store, 1), MIB);
	assert_int_equal(test_stat(store, "reserved_bytes"), 0);
	assert_int_equal(test_stat(store, "used_bytes"), MIB);
	ps_object_put(b);
	b = test_object(store, 1, 4 * MIB);
	assert_int_equal(ps_object_admit(b), 0);
	ps_object_put(b);
	ps_store_close(store);
}

static void an_evicted_object_stays_readable_and_counted_until_it_is_put(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, "lru");
	struct ps_object *old = test_object(store, 0, 3 * MIB);
	uint64_t nbytes = 0;

	assert_int_equal(test_write_all(old), 0);
	assert_int_equal(ps_object_evict(old, &nbytes), 0);
	assert_int_equal(nbytes, 3 * MIB);
	assert_int_equal(test_stat(store, "used_bytes"), 3 * MIB);
	assert_int_equal(test_on_disk(*state), 0);
	assert_true(test_right(old, 2));
	assert_int_equal(ps_object_block(old, 2), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_admit(old), 0 - ENOSPC);

	/* A new object of the same id starts empty, in addition to the old one. */
	struct ps_object *new = test_object(store, 0, 3 * MIB);
	assert_ptr_not_equal(new, old);
	assert_int_equal(ps_object_block(new, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_admit(new), 0);
	assert_int_equal(test_write(new, 1), 0);
	assert_true(test_right(old, 0));
	assert_int_equal(test_charged(store), 6 * MIB);
	assert_int_equal(test_stat(store, "held_bytes"), 3 * MIB);
	assert_int_equal(ps_object_evict(old, &nbytes), 0);
	assert_int_equal(nbytes, 0);
	ps_object_put(old);
	assert_int_equal(test_charged(store), 3 * MIB);
	assert_int_equal(test_stat(store, "held_bytes"), 0);
	ps_object_put(new);
	assert_int_equal(test_stat(store, "used_bytes"), MIB);
	ps_store_close(store);
	store = test_store_open(*state, 12 * MIB, "lru");
	new = test_object(store, 0, 3 * MIB);
	assert_int_equal(ps_object_block(new, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_block(new, 1), PS_BLOCK_PRESENT);
	ps_object_put(new);
	ps_store_close(store);
}

/* An unlink waits for the kernel's reads, and these may wait for this process. */
static void a_file_that_was_passed_through_keeps_its_name_until_it_is_put(void **state)
{
	struct ps_store *store = test_store_open(*state, 12 * MIB, "lru");
	struct ps_object *old = test_object(store, 0, 3 * MIB);
	uint64_t nbytes = 0;

	assert_int_equal(test_write_all(old), 0);
	assert_true(ps_object_pass_fd(old) >= 0);
	assert_int_equal(ps_object_evict(old, &nbytes), 0);
	assert_int_equal(nbytes, 3 * MIB);
	assert_int_equal(test_on_disk(*state), 3 * MIB);
	assert_int_equal(ps_object_pass_fd(old), -1);

	/* Until the old object is put, a new one of the same id has no file. */
	struct ps_object *new = test_object(store, 0, 3 * MIB);
	assert_ptr_not_equal(new, old);
	assert_int_equal(ps_object_block(new, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_admit(new), -ENOSPC);
	assert_true(test_right(old, 0));
	ps_object_put(old);
	assert_int_equal(test_on_disk(*state), 0);
	assert_int_equal(test_stat(store, "used_bytes"), 0);
	assert_int_equal(ps_object_admit(new), 0);
	assert_int_equal(test_write_all(new), 0);
	assert_int_equal(test_on_disk(*state), 3 * MIB);
	ps_object_put(new);
	ps_store_close(store);
}

static void a_held_object_is_never_evicted(void **state)
{
	struct ps_store *store = test_store_open(*state, 9 * MIB, "lru");
	struct ps_object *held = test_object(store, 0, 3 * MIB);

	assert_int_equal(test_write_all(held), 0);
	for (unsigned i = 1; i < 8; i++)
		assert_int_equal(put_whole(store, i, 3 * MIB), 0);
	assert_true(test_right(held, 0));
	assert_true(cached(store, 0, 3 * MIB));
	ps_object_put(held);
	ps_store_close(store);
}

static void a_lowered_limit_holds_from_the_start(void **state)
{
	struct ps_store *store = test_store_open(*state, 30 * MIB, NULL);

	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(put_whole(store, i, 3 * MIB), 0);
	ps_store_close(store);
	store = test_store_open(*state, 10 * MIB, NULL);
	assert_int_equal(test_stat(store, "used_bytes"), 9 * MIB);
	assert_int_equal(test_on_disk(*state), 9 * MIB);
	ps_store_close(store);
}

static void min_free_bytes_stops_admission(void **state)
{
	struct ps_error err = {0};
	struct ps_store *store = NULL;
	char path[4096];
	struct ps_store_options options = {
	        .dir = path, .limit_bytes = 100 * MIB, .min_free_bytes = INT64_MAX};

	snprintf(path, sizeof(path), "%s/cache", (char *)*state);
	assert_int_equal(ps_store_open(&options, &store, &err), 0);
	assert_int_equal(put_whole(store, 0, 3 * MIB), -ENOSPC);
	assert_int_equal(test_on_disk(*state), 0);
	ps_store_close(store);
}

/* --cache-size limits all that is in the folder, including the index. */
static void the_index_counts_against_the_size_of_the_folder(void **state)
{
	struct ps_error err = {0};
	struct ps_store *store = NULL;
	char path[4096];
	struct ps_store_options options = {
	        .dir = path, .folder_bytes = 64 * MIB, .min_free_bytes = 1, .policy = "lru"};

	snprintf(path, sizeof(path), "%s/cache", (char *)*state);
	if (ps_store_open(&options, &store, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(test_stat(store, "index_bytes") > 3 * MIB);
	for (unsigned i = 0; i < 24; i++) {
		assert_int_equal(put_whole(store, i, 3 * MIB), 0);
		assert_true(test_charged(store) <= 64 * MIB);
	}
	assert_true(test_stat(store, "evicted_objects") > 3);
	ps_store_close(store);
}

/* The quota is larger than the disk: an object is admitted only if min_free_bytes stay free. */
static void an_object_that_would_leave_too_little_free_space_is_not_admitted(void **state)
{
	struct ps_error err = {0};
	struct ps_store *store = NULL;
	char path[4096];
	struct statvfs st;

	assert_int_equal(statvfs(*state, &st), 0);
	uint64_t avail = st.f_bavail * st.f_frsize;
	struct ps_store_options options = {
	        .dir = path, .limit_bytes = 8 * avail, .min_free_bytes = avail / 2};

	snprintf(path, sizeof(path), "%s/cache", (char *)*state);
	assert_int_equal(ps_store_open(&options, &store, &err), 0);
	struct ps_object *o = test_object(store, 0, PS_MIN(avail / 4 * 3, PS_OBJECT_MAX_NBYTES));
	assert_int_equal(ps_object_admit(o), -ENOSPC);
	ps_object_put(o);
	o = test_object(store, 1, PS_MIN(avail / 4, PS_OBJECT_MAX_NBYTES));
	assert_int_equal(ps_object_admit(o), 0);
	ps_object_put(o);
	ps_store_close(store);
}

static void evicting_by_glob_takes_matching_objects_that_are_not_held(void **state)
{
	static const char *const globs[] = {"00000[12].tar", "http://h/p/000003.*"};
	struct ps_store *store = test_store_open(*state, 0, NULL);
	uint64_t nobjects, nbytes;

	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(put_whole(store, i, MIB), 0);
	struct ps_object *held = test_object(store, 2, MIB);
	assert_int_equal(ps_store_evict(store, globs, 2, &nobjects, &nbytes), 0);
	assert_int_equal(nobjects, 2);
	assert_int_equal(nbytes, 2 * MIB);
	assert_false(cached(store, 1, MIB));
	assert_true(cached(store, 2, MIB));
	ps_object_put(held);
	assert_int_equal(ps_store_evict(store, NULL, 0, &nobjects, &nbytes), 0);
	assert_int_equal(nobjects, 3);
	assert_int_equal(test_on_disk(*state), 0);
	assert_int_equal(test_stat(store, "used_bytes"), 0);
	ps_store_close(store);
}

/* Eight threads fill, read and evict far more than fits, while another watches the disk. ----------------- */

struct crowd {
	const char *dir;
	struct ps_store *store;
	uint64_t limit;
	int data_fd; /* of a file system with data files only, or -1 */
	_Atomic bool stop, over, told_over, wrong;
	_Atomic unsigned seed, admitted, streamed;
};

static void *watch(void *arg)
{
	struct crowd *c = arg;

	while (!c->stop) {
		struct statvfs st;

		/* On a file system with data files only, this counts unlinked files, too, and all files at
		 * one moment. */
		if (c->data_fd >= 0 && fstatvfs(c->data_fd, &st) == 0 &&
		        (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize > c->limit)
			c->over = true;
		if (test_charged(c->store) > c->limit)
			c->told_over = true;
		usleep(50);
	}
	return NULL;
}

static void *crowd_member(void *arg)
{
	struct crowd *c = arg;
	unsigned rng = ++c->seed;

	for (int round = 0; round < 60; round++) {
		rng = rng * 1103515245 + 12345;
		unsigned i = rng >> 16 & 31;
		struct ps_object *o = test_object(c->store, i, (1 + i % 7) * MIB - i);
		int rc = ps_object_admit(o);
		rc == 0 ? c->admitted++ : c->streamed++;
		for (uint64_t b = 0; rc == 0 && b < ps_object_nblocks(o); b++)
			if (ps_object_block(o, b) == PS_BLOCK_ABSENT)
				rc = test_write(o, b);
		for (uint64_t b = 0; b < ps_object_nblocks(o); b++)
			if (ps_object_block(o, b) == PS_BLOCK_PRESENT && !test_right(o, b))
				c->wrong = true;
		if (round % 16 == 15 && ps_object_evict(o, NULL) < 0)
			c->wrong = true;
		ps_object_put(o);
	}
	return NULL;
}

static void the_quota_holds_with_eight_threads_writing_and_evicting(void **state)
{
	struct crowd c = {.dir = *state, .limit = 40 * MIB, .data_fd = -1};
	pthread_t watcher, members[8];
	char data[4096];

	ps_store_close(test_store_open(*state, c.limit, "lru"));
	snprintf(data, sizeof(data), "%s/cache/data", (char *)*state);
	bool mounted = mount("penstock-test", data, "tmpfs", 0, "size=200m") == 0;
	if (mounted)
		c.data_fd = open(data, O_RDONLY | O_DIRECTORY);
	c.store = test_store_open(*state, c.limit, "lru");
	pthread_create(&watcher, NULL, watch, &c);
	for (int i = 0; i < 8; i++)
		pthread_create(&members[i], NULL, crowd_member, &c);
	for (int i = 0; i < 8; i++)
		pthread_join(members[i], NULL);
	c.stop = true;
	pthread_join(watcher, NULL);
	assert_false(c.over);
	assert_false(c.told_over);
	assert_false(c.wrong);
	assert_true(c.admitted > 100);
	assert_int_equal(test_stat(c.store, "used_bytes"), test_on_disk(*state));
	ps_store_close(c.store);

	/* The index's rows match all files. */
	c.store = test_store_open(*state, c.limit, "lru");
	struct ps_verify_result result;
	assert_int_equal(ps_store_verify(c.store, NULL, NULL, NULL, &result), 0);
	assert_int_equal(result.bad_blocks + result.missing_files, 0);
	assert_true(result.blocks > 0);
	assert_int_equal(test_stat(c.store, "used_bytes"), test_on_disk(*state));
	ps_store_close(c.store);
	if (mounted)
		close(c.data_fd);
}

/* A small disk ------------------------------------------------------------------------------------------- */

static bool mount_small(const char *dir)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/cache", dir);
	return mkdir(path, 0700) == 0 && mount("penstock-test", path, "tmpfs", 0, "size=24m,mode=700") == 0;
}

static void eat(const char *dir, uint64_t nbytes)
{
	char path[4096];
	static char zeros[4096];

	snprintf(path, sizeof(path), "%s/cache/eaten", dir);
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	while (nbytes > 0) {
		ssize_t n = write(fd, zeros, PS_MIN(nbytes, sizeof(zeros)));
		if (n <= 0)
			break;
		nbytes -= (uint64_t)n;
	}
	close(fd);
}

static void reads_are_streamed_while_the_disk_is_full_and_cached_afterwards(void **state)
{
	char path[4096];
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 6 * MIB);

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(ps_store_commit(store), 0);
	eat(*state, UINT64_MAX); /* no byte is left, not even for the index */
	assert_int_equal(test_write(o, 1), -ENOSPC);
	assert_int_equal(ps_object_block(o, 1), PS_BLOCK_ABSENT);
	assert_int_equal(test_write(o, 2), -ENOSPC);
	assert_int_equal(ps_object_admit(o), -ENOSPC);
	assert_true(test_stat(store, "write_errors") >= 1);
	assert_true(test_right(o, 0)); /* present blocks are served */
	struct ps_object *p = test_object(store, 2, 6 * MIB);
	assert_int_equal(ps_object_admit(p), -ENOSPC);
	/* The index has to note the open but cannot write: the commit reports that. */
	ps_object_put(o);
	o = test_object(store, 1, 6 * MIB);
	int committed = ps_store_commit(store);

	snprintf(path, sizeof(path), "%s/cache/eaten", (char *)*state);
	assert_int_equal(unlink(path), 0);
	uint64_t start_ns = ps_clock_mono_ns();
	int rc = -ENOSPC;
	while (rc < 0 && ps_clock_mono_ns() - start_ns < 20 * PS_NS_PER_S) {
		usleep(100000);
		rc = ps_object_admit(o);
	}
	print_message("# full: commit returned %d; admitted again after %llu ms\n", committed,
	        (unsigned long long)((ps_clock_mono_ns() - start_ns) / PS_NS_PER_MS));
	assert_int_equal(rc, 0);
	assert_int_equal(test_write_all(o), 0);
	assert_true(ps_object_complete(o));
	ps_object_put(o);
	ps_object_put(p);
	assert_int_equal(ps_store_commit(store), 0);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	assert_true(cached(store, 1, 6 * MIB));
	ps_store_close(store);
}

static int write_nodes_until_full(struct ps_store *store)
{
	enum { NNODES = 200000 };
	static char name[] = "a name of a file that is listed",
	            url[] = "https://host/path/to/a name of a file that is listed";
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < NNODES; i++) {
		struct ps_node_row node = {.node = i, .kind = PS_NODE_FILE, .name = name, .url = url};
		struct ps_index_batch *batch = ps_index_batch_new();
		ps_index_batch_put_node(batch, &node);
		rc = ps_index_batch_commit(ps_store_index(store), batch);
	}
	return rc;
}

static void an_index_on_a_full_disk_stops_caching_until_there_is_space(void **state)
{
	char path[4096];
	struct ps_store *store = test_store_open(*state, 0, NULL);
	struct ps_object *o = test_object(store, 1, 6 * MIB);
	int e = 0;

	assert_int_equal(ps_object_admit(o), 0);
	assert_int_equal(test_write(o, 0), 0);
	assert_int_equal(ps_store_commit(store), 0);
	eat(*state, UINT64_MAX);
	assert_int_equal(write_nodes_until_full(store), -ENOSPC);
	struct ps_object *p = test_object(store, 2, MIB);
	assert_int_equal(ps_object_admit(p), -ENOSPC);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_PRESENT);
	assert_int_equal(ps_object_evict(o, NULL), 0); /* its rows are deleted later */
	ps_object_put(o);
	o = test_object(store, 1, 6 * MIB);
	assert_int_equal(ps_object_block(o, 0), PS_BLOCK_ABSENT);
	assert_int_equal(ps_object_admit(o), -ENOSPC);
	ps_object_put(o);

	snprintf(path, sizeof(path), "%s/cache/eaten", (char *)*state);
	assert_int_equal(unlink(path), 0);
	for (int i = 0; i < 200 && (e = ps_object_admit(p)) < 0; i++)
		usleep(100000);
	assert_int_equal(e, 0);
	assert_int_equal(test_write_all(p), 0);
	ps_object_put(p);
	ps_store_close(store);
	store = test_store_open(*state, 0, NULL);
	assert_true(cached(store, 2, MIB));
	assert_int_equal(test_stat(store, "objects"), 1);
	ps_store_close(store);
}

static void an_index_that_refused_rows_recovers_by_itself(void **state)
{
	char path[4096];
	struct ps_store *store = test_store_open(*state, 0, NULL);
	static char name[] = "n";
	int rc = -ENOSPC;

	eat(*state, UINT64_MAX);
	assert_int_equal(write_nodes_until_full(store), -ENOSPC);
	snprintf(path, sizeof(path), "%s/cache/eaten", (char *)*state);
	assert_int_equal(unlink(path), 0);
	/* The store itself has nothing to write: only these writes reach the index. */
	for (int i = 0; i < 200 && rc < 0; i++) {
		struct ps_node_row node = {.node = 1, .kind = PS_NODE_DIR, .name = name};
		struct ps_index_batch *batch = ps_index_batch_new();

		usleep(50000);
		ps_index_batch_put_node(batch, &node);
		rc = ps_index_batch_commit(ps_store_index(store), batch);
	}
	assert_int_equal(rc, 0);
	ps_store_close(store);
}

static void an_index_on_a_full_disk_opens_with_its_reserve(void **state)
{
	char path[4096];

	/* The disk is large enough for a reserve. */
	snprintf(path, sizeof(path), "%s/cache", (char *)*state);
	assert_int_equal(mount("penstock-test", path, "tmpfs", MS_REMOUNT, "size=80m"), 0);
	struct ps_store *store = test_store_open(*state, 0, NULL);
	assert_int_equal(put_whole(store, 1, 2 * MIB), 0);
	ps_store_close(store);
	for (int full = 0; full < 2; full++) {
		/* The second time the reserve has been used. */
		eat(*state, UINT64_MAX);
		struct ps_store_options options = {.dir = path, .limit_bytes = 1 << 30, .min_free_bytes = 1};
		struct ps_error err = {0};
		int rc = ps_store_open(&options, &store, &err);
		if (full && rc == -ENOSPC)
			break;
		if (rc < 0)
			fail_msg("%s", err.text);
		assert_true(cached(store, 1, 2 * MIB));
		ps_store_close(store);
	}
	snprintf(path, sizeof(path), "%s/cache/index.broken-1", (char *)*state);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(path, sizeof(path), "%s/cache/eaten", (char *)*state);
	assert_int_equal(unlink(path), 0);
	store = test_store_open(*state, 0, NULL);
	assert_true(cached(store, 1, 2 * MIB));
	ps_store_close(store);
	snprintf(path, sizeof(path), "%s/cache/reserve", (char *)*state);
	assert_int_equal(access(path, F_OK), 0);
}

static int small_disk_setup(void **state)
{
	if (test_dir_setup(state) < 0)
		return -1;
	return mount_small(*state) ? 0 : -1;
}

static int small_disk_teardown(void **state)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/cache", (char *)*state);
	if (umount2(path, MNT_DETACH) < 0)
		return -1;
	return test_dir_teardown(state);
}

static bool can_mount(void)
{
	void *dir = NULL;

	if (test_dir_setup(&dir) < 0)
		return false;
	bool can = mount_small(dir);
	if (can) {
		small_disk_teardown(&dir);
	} else {
		test_dir_teardown(&dir);
	}
	return can;
}

/* Unmounts the data disk, also after a failure midway. */
static int data_disk_teardown(void **state)
{
	char data[4096];

	snprintf(data, sizeof(data), "%s/cache/data", (char *)*state);
	umount2(data, MNT_DETACH);
	return test_dir_teardown(state);
}

/* A folder that shares the limit grows until nothing but open objects is left: these stay. */
static void open_objects_stay_when_a_folder_that_shares_the_limit_grows(void **state)
{
	char dir[300], beside[300], file[310];
	struct ps_store_options options = {
	        .dir = dir, .beside = beside, .limit_bytes = 64 * MIB, .min_free_bytes = 1};
	struct ps_store *store = NULL;

	snprintf(dir, sizeof(dir), "%s/cache", (char *)*state);
	snprintf(beside, sizeof(beside), "%s/beside", (char *)*state);
	snprintf(file, sizeof(file), "%s/file", beside);
	assert_int_equal(mkdir(beside, 0700), 0);
	assert_int_equal(ps_store_open(&options, &store, NULL), 0);
	struct ps_object *o = test_object(store, 0, 8 * MIB);
	assert_int_equal(test_write_all(o), 0);
	assert_int_equal(put_whole(store, 1, 8 * MIB), 0);
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(posix_fallocate(fd, 0, 62 * MIB), 0);
	close(fd);
	for (int i = 0; i < 100 && test_stat(store, "evicted_objects") == 0; i++)
		usleep(100000);
	usleep(300000); /* the next victim would go in the same turn */
	assert_int_equal(test_stat(store, "evicted_objects"), 1);
	assert_true(ps_object_complete(o));
	ps_object_put(o);
	for (int i = 0; i < 100 && test_stat(store, "evicted_objects") == 1; i++)
		usleep(100000);
	assert_int_equal(test_stat(store, "evicted_objects"), 2);
	ps_store_close(store);
}

/* Such a folder may take the room of some pinned objects. Once it is small again, the others are still
 * protected. */
static void pins_that_were_spared_hold_after_the_limit_was_lowered(void **state)
{
	char dir[300], beside[300], file[310];
	struct ps_store_options options = {
	        .dir = dir, .beside = beside, .limit_bytes = 64 * MIB, .min_free_bytes = 1, .policy = "lru"};
	struct ps_store *store = NULL;
	uint64_t nbytes;

	snprintf(dir, sizeof(dir), "%s/cache", (char *)*state);
	snprintf(beside, sizeof(beside), "%s/beside", (char *)*state);
	snprintf(file, sizeof(file), "%s/file", beside);
	assert_int_equal(mkdir(beside, 0700), 0);
	assert_int_equal(ps_store_open(&options, &store, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct ps_object *o = test_object(store, i, 8 * MIB);
		assert_int_equal(test_write_all(o), 0);
		assert_int_equal(ps_object_pin(o, &nbytes), 0);
		ps_object_put(o);
	}
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(posix_fallocate(fd, 0, 50 * MIB), 0);
	close(fd);
	for (int i = 0; i < 100 && test_stat(store, "evicted_objects") == 0; i++)
		usleep(100000);
	usleep(300000);
	assert_int_equal(test_stat(store, "evicted_objects"), 1);
	bool first = cached(store, 0, 8 * MIB);
	assert_int_equal(unlink(file), 0);
	for (int i = 0; i < 100 && test_stat(store, "limit_bytes") < 64 * MIB; i++)
		usleep(100000);
	for (unsigned i = 2; i < 12; i++)
		assert_int_equal(put_whole(store, i, 8 * MIB), 0);
	assert_true(cached(store, first ? 0 : 1, 8 * MIB));
	ps_store_close(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)
#define DISK_TEST(f) cmocka_unit_test_setup_teardown(f, small_disk_setup, small_disk_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(lru_evicts_the_least_recently_used),
	        TEST(scan_streams_rather_than_evict_recently_used_objects),
	        TEST(space_is_reserved_for_the_whole_object_until_the_last_put),
	        TEST(an_evicted_object_stays_readable_and_counted_until_it_is_put),
	        TEST(a_file_that_was_passed_through_keeps_its_name_until_it_is_put),
	        TEST(a_held_object_is_never_evicted),
	        TEST(a_lowered_limit_holds_from_the_start),
	        TEST(open_objects_stay_when_a_folder_that_shares_the_limit_grows),
	        TEST(pins_that_were_spared_hold_after_the_limit_was_lowered),
	        TEST(min_free_bytes_stops_admission),
	        TEST(the_index_counts_against_the_size_of_the_folder),
	        TEST(an_object_that_would_leave_too_little_free_space_is_not_admitted),
	        TEST(evicting_by_glob_takes_matching_objects_that_are_not_held),
	        cmocka_unit_test_setup_teardown(the_quota_holds_with_eight_threads_writing_and_evicting,
	                test_dir_setup, data_disk_teardown),
	        /* These mount a small tmpfs and are left out where that is not permitted. */
	        DISK_TEST(reads_are_streamed_while_the_disk_is_full_and_cached_afterwards),
	        DISK_TEST(an_index_on_a_full_disk_stops_caching_until_there_is_space),
	        DISK_TEST(an_index_that_refused_rows_recovers_by_itself),
	        DISK_TEST(an_index_on_a_full_disk_opens_with_its_reserve),
	};
	size_t n = PS_ARRAY_LEN(tests) - (can_mount() ? 0 : 4);

	return _cmocka_run_group_tests("evict", tests, n, NULL, NULL);
}
