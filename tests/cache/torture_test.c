/* The store under faults of the machine: each allocation fails once, reads and writes are short or
 * interrupted, syncs fail, the wall clock steps. Whatever happens, blocks that count as present have the
 * right bytes, the quota counts what is on disk, and the store works again once the faults are over. */
#include <errno.h>

#include "base/clock.h"
#include "cache_test.h"
#include "tests/faults.h"

#define SIZE (TEST_MIB + 70000) /* a block, and two chunks of another */
#define LIMIT (3 * TEST_MIB)    /* room for two such objects */

static struct ps_store *try_open(const char *dir, int *ret_errno)
{
	char path[4096];
	struct ps_store *store = NULL;
	struct ps_error err = {0};
	const struct ps_store_options options = {
	        .dir = path, .limit_bytes = LIMIT, .min_free_bytes = 1, .policy = "lru"};

	snprintf(path, sizeof(path), "%s/cache", dir);
	*ret_errno = -ps_store_open(&options, &store, &err);
	if (*ret_errno && (err.err != *ret_errno || !err.text[0]))
		fail_msg("%d, but the error is %d, \"%s\"", *ret_errno, err.err, err.text);
	return store;
}

/* NULL: out of memory. */
static struct ps_object *try_get(struct ps_store *store, unsigned i)
{
	struct ps_remote remote = {.size = SIZE, .mtime_s = 1000, .etag = "\"v1\""};
	struct ps_object *o = NULL;
	char url[64];

	snprintf(url, sizeof(url), "http://h/p/%06u.tar", i);
	int rc = ps_object_get(store, url, &remote, 1, true, &o);
	if (rc < 0)
		assert_int_equal(rc, -ENOMEM);
	return rc < 0 ? NULL : o;
}

/* Does everything that adds or removes cached bytes: writes the first block whole and the second by chunks,
 * commits, evicts. */
static void use_store(struct ps_store *store, char *buf)
{
	for (unsigned i = 0; i < 4; i++) {
		struct ps_object *o = try_get(store, i);

		if (!o)
			continue;
		if (ps_object_admit(o) == 0) {
			test_fill(o, 0, buf);
			bool wrote = ps_object_write_block(o, 0, buf) == 0;
			test_fill(o, 1, buf);
			wrote &= ps_object_write_chunks(o, 1, 1, 1, buf + PS_CHUNK_SIZE) == 0;
			if (i != 2)
				wrote &= ps_object_write_chunks(o, 1, 0, 1, buf) == 0;
			/* What a successful write took is present, fault or not. */
			if (wrote && i != 2)
				assert_int_equal(ps_object_block(o, 1), PS_BLOCK_PRESENT);
			(void)ps_store_commit(store);
		}
		if (i == 1)
			(void)ps_object_evict(o, NULL);
		ps_object_put(o);
	}
}

/* Counts the present blocks and checks the bytes of each. Faults hit the store's own reads, not the
 * test's. */
static unsigned count_present(struct ps_store *store, char *buf, bool trickles)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct ps_object *o = test_object_look(store, i, SIZE);

		for (unsigned b = 0; b < 2; b++) {
			faults_trickle(trickles);
			enum ps_block_state state = ps_object_block(o, b);

			if (state == PS_BLOCK_UNVERIFIED && ps_object_verify_block(o, b, buf) == 0)
				/* PARTIAL if only some chunks are cached */
				state = ps_object_block(o, b);
			faults_trickle(false);
			if (state != PS_BLOCK_PRESENT)
				continue;
			assert_true(test_right(o, b));
			n++;
		}
		ps_object_put(o);
	}
	return n;
}

static void store_works(const char *dir, char *buf)
{
	int e;
	struct ps_store *store = try_open(dir, &e);

	assert_int_equal(e, 0);
	assert_true(test_charged(store) <= LIMIT);
	assert_int_equal(test_stat(store, "used_bytes"), test_on_disk(dir));
	count_present(store, buf, false);
	struct ps_object *o = test_object(store, 7, SIZE);
	assert_int_equal(test_write_all(o), 0);
	assert_true(ps_object_complete(o) && test_right(o, 0) && test_right(o, 1));
	ps_object_put(o);
	ps_store_close(store);
}

static void a_failed_allocation_leaves_only_right_bytes_present(void **state)
{
	char *buf = malloc(TEST_MIB);
	long n = 1;
	bool hit = true;
	int e;

	/* The folder, its marker file and the index exist before the first fault. */
	struct ps_store *store = try_open(*state, &e);
	assert_int_equal(e, 0);
	ps_store_close(store);
	for (; hit && n < 1000; n = faults_next(n)) {
		hit = true;
		faults_fail(FAULTS_ALLOCATION, n, ENOMEM);
		store = try_open(*state, &e);
		if (store) {
			use_store(store, buf);
			hit = faults_hit(FAULTS_ALLOCATION);
			faults_end();
			count_present(store, buf, false);
			ps_store_close(store);
		} else {
			assert_int_equal(e, ENOMEM);
		}
		faults_end();
		if (n % 8 == 1)
			store_works(*state, buf);
	}
	store_works(*state, buf);
	print_message("# %ld places\n", n - 1);
	assert_true(n > 40);
	free(buf);
}

/* Even if memory ran out, the nodes of an object whose checksum was wrong must be renewed: the kernel may
 * have pages of it. */
static void a_failed_allocation_forgets_no_refused_object(void **state)
{
	static const char wrong[] = "crc64nvme:0000000000000000";
	struct ps_refusal refusal;
	unsigned nforgotten = 0;
	bool hit = true;
	int e;

	for (long n = 1; hit && n < 1000; n = faults_next(n)) {
		struct ps_store *store = try_open(*state, &e);
		struct ps_object *o = test_object(store, 100 + (unsigned)n, SIZE);

		assert_int_equal(test_write_all(o), 0);
		faults_fail(FAULTS_ALLOCATION, n, ENOMEM);
		ps_object_expect(o, wrong, true);
		for (int i = 0; i < 100 && ps_object_sum(o) == PS_SUM_PENDING; i++)
			usleep(5000);
		hit = faults_hit(FAULTS_ALLOCATION);
		faults_end();
		if (ps_object_corrupt(o)) {
			for (int i = 0; i < 1000 && !ps_object_refusal(o, &refusal); i++)
				usleep(5000);
			assert_true(ps_object_refusal(o, &refusal));
			assert_true(refusal.nodes_below > 1);
			nforgotten += !refusal.text[0];
		}
		ps_object_put(o);
		ps_store_close(store);
	}
	assert_true(nforgotten > 0);
}

/* A pin that could not be stored does not count; a pin that was stored before stays. */
static void a_failed_allocation_removes_no_pin(void **state)
{
	uint64_t nbytes;
	bool hit = true;
	int rc;
	struct ps_store *store = try_open(*state, &rc);
	struct ps_object *o = test_object(store, 0, SIZE);

	for (int before = 0; before < 2; before++, hit = true) {
		for (long n = 1; hit; n++) {
			assert_int_equal(before ? ps_object_pin(o, &nbytes) : ps_object_unpin(o, &nbytes), 0);
			faults_fail(FAULTS_ALLOCATION, n, ENOMEM);
			rc = ps_object_pin(o, &nbytes);
			hit = faults_hit(FAULTS_ALLOCATION);
			faults_end();
			if (rc)
				assert_int_equal(rc, -ENOMEM);
			assert_int_equal(ps_object_pinned(o), rc == 0 || before);
		}
	}
	ps_object_put(o);
	ps_store_close(store);
	store = try_open(*state, &rc);
	o = test_object(store, 0, SIZE);
	assert_true(ps_object_pinned(o));
	ps_object_put(o);
	ps_store_close(store);
}

/* The folder's marker file has exactly the expected text. */
static void the_marker_is_complete(const char *dir)
{
	char path[4096], text[512];
	size_t n;

	snprintf(path, sizeof(path), "%s/cache/penstock-cache", dir);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	assert_string_equal(text, "penstock cache 2\n");
}

/* Of three writes one is cut and one is interrupted (faults_trickle()). The additional write shifts these
 * turns, so that some folder's marker is written in pieces. */
static void a_marker_written_in_pieces_is_complete(void **state)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), e;
	char sub[256];

	for (unsigned i = 0; i < 6; i++) {
		snprintf(sub, sizeof(sub), "%s/%u", (const char *)*state, i);
		assert_int_equal(mkdir(sub, 0700), 0);
		faults_trickle(true);
		if (i < 3)
			(void)!write(null, "ab", 2);
		struct ps_store *store = try_open(sub, &e);
		faults_end();
		assert_int_equal(e, 0);
		the_marker_is_complete(sub);
		ps_store_close(store);
	}
	close(null);
}

static void short_and_interrupted_calls_give_whole_blocks(void **state)
{
	char *buf = malloc(TEST_MIB);
	int e;

	faults_trickle(true);
	struct ps_store *store = try_open(*state, &e);
	assert_int_equal(e, 0);
	use_store(store, buf);
	unsigned there = count_present(store, buf, true);
	ps_store_close(store);
	faults_end();
	/* objects 2 and 3; only one chunk of object 2's second block is written */
	assert_true(there >= 3);
	test_cut_the_power(*state);
	/* Each block is read, and its checksum is compared. */
	faults_trickle(true);
	store = try_open(*state, &e);
	assert_int_equal(e, 0);
	assert_int_equal(count_present(store, buf, true), there);
	ps_store_close(store);
	faults_end();
	store_works(*state, buf);
	free(buf);
}

static bool was_clean(const char *dir)
{
	struct ps_index *index = NULL;
	char path[4096];

	snprintf(path, sizeof(path), "%s/cache/index", dir);
	assert_int_equal(ps_index_open(path, 0, &index, NULL), 0);
	bool clean = ps_index_was_clean(index);
	ps_index_close(index);
	return clean;
}

/* After a clean stop the next start verifies no checksums: a stop whose sync failed must not count as
 * clean. */
static void a_stop_whose_sync_fails_is_not_clean(void **state)
{
	char *buf = malloc(TEST_MIB);
	int e;
	struct ps_store *store = try_open(*state, &e);

	use_store(store, buf);
	ps_store_close(store);
	assert_true(was_clean(*state));
	store = try_open(*state, &e);
	use_store(store, buf);
	faults_fail_from(FAULTS_SYNC, 1, EIO);
	ps_store_close(store);
	assert_true(faults_count(FAULTS_SYNC) > 0);
	faults_end();
	assert_false(was_clean(*state));
	store_works(*state, buf);
	free(buf);
}

static void a_failed_sync_of_a_file_keeps_a_later_stop_from_being_clean(void **state)
{
	char *buf = malloc(TEST_MIB);
	int e;
	struct ps_store *store = try_open(*state, &e);

	faults_fail_from(FAULTS_SYNC, 1, EIO);
	use_store(store, buf);
	for (int i = 0; i < 2000 && faults_count(FAULTS_SYNC) == 0; i++)
		usleep(10000);
	assert_true(faults_count(FAULTS_SYNC) > 0);
	faults_end();
	ps_store_close(store);
	assert_false(was_clean(*state));
	store_works(*state, buf);
	free(buf);
}

/* The wall clock steps by hours or more in both directions, as on a machine without a clock battery that
 * reaches a time server. Cached blocks stay right, the quota holds, and no thread waits for a time that does
 * not come. */
static void a_wall_clock_step_leaves_only_right_bytes_present(void **state)
{
	static const int64_t steps[] = {0, 7200, -7200, 400 * 86400, -400 * 86400, 0};
	char *buf = malloc(TEST_MIB);
	uint64_t start = ps_clock_mono_ns();
	int e;

	for (size_t i = 0; i < PS_ARRAY_LEN(steps); i++) {
		faults_step_clock(steps[i]);
		struct ps_store *store = try_open(*state, &e);
		assert_int_equal(e, 0);
		use_store(store, buf);
		faults_step_clock(-steps[i]);
		use_store(store, buf);
		assert_true(count_present(store, buf, false) > 0);
		assert_true(test_charged(store) <= LIMIT);
		ps_store_close(store);
		faults_end();
		store_works(*state, buf);
	}
	assert_true(ps_clock_mono_ns() - start < 60 * PS_NS_PER_S);
	free(buf);
}

static int tear_down(void **state)
{
	faults_end();
	return test_dir_teardown(state);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, tear_down)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(a_failed_allocation_leaves_only_right_bytes_present),
	        TEST(a_failed_allocation_forgets_no_refused_object),
	        TEST(a_failed_allocation_removes_no_pin),
	        TEST(a_marker_written_in_pieces_is_complete),
	        TEST(short_and_interrupted_calls_give_whole_blocks),
	        TEST(a_stop_whose_sync_fails_is_not_clean),
	        TEST(a_failed_sync_of_a_file_keeps_a_later_stop_from_being_clean),
	        TEST(a_wall_clock_step_leaves_only_right_bytes_present),
	};

	return cmocka_run_group_tests_name("torture", tests, NULL, NULL);
}
