/* Datasets over an origin of a few names: attaching, listings against what is stored, probes, versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "base/clock.h"
#include "cache.h"
#include "tests/cache/cache_test.h"
#include "tests/cache/names_origin.h"
#include "tests/cache/pattern_origin.h"

#define TIMEOUT_MS 2000
#define SIZE (3 * TEST_MIB + 5)

struct fixture {
	char *dir;
	struct ps_cache *cache;
	struct ps_dataset *dataset;
	struct ps_names_origin *origin; /* of the dataset, or for the next attach */
	struct ps_error err;
	struct ps_handle *handles[8]; /* open: a test that fails leaves them to the teardown */
};

/* What attach gets in the place of a real origin. */
static struct ps_names_origin *next_origin;

int __wrap_ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err);
int __wrap_ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err)
{
	(void)source, (void)options, (void)err;
	*ret = &next_origin->origin;
	return 0;
}

static int setup_limited(void **state, uint64_t limit_bytes)
{
	struct fixture *f = calloc(1, sizeof *f);
	char path[4096];

	if (!f || test_dir_setup((void **)&f->dir) < 0)
		return -1;
	snprintf(path, sizeof path, "%s/cache", f->dir);
	struct ps_cache_options options = {
	        .store = {.dir = path, .limit_bytes = limit_bytes, .min_free_bytes = 1, .checksum_retry_ms = 300},
	        .memory_bytes = 32 * TEST_MIB,
	        .timeout_ms = TIMEOUT_MS};
	if (ps_cache_open(&options, &f->cache, &f->err) < 0)
		return -1;
	f->origin = next_origin = ps_names_origin_new();
	*state = f;
	return 0;
}

static int attach(struct fixture *f)
{
	struct ps_dataset_options options = {0};

	f->err = (struct ps_error){0};
	return ps_dataset_attach(f->cache, "http://names/", &options, &f->dataset, &f->err);
}

static int setup(void **state)
{
	return setup_limited(state, 1024 * TEST_MIB);
}

/* Files of more than that are cached by extents. */
static int setup_small(void **state)
{
	return setup_limited(state, 16 * TEST_MIB);
}

/* The origin goes with its dataset; the next has the same names. */
static void take_origin(struct fixture *f)
{
	struct ps_names_origin *old = f->origin, *o = ps_names_origin_new();

	memcpy(o->entries, old->entries, sizeof o->entries);
	atomic_store(&o->list_sizes, atomic_load(&old->list_sizes));
	f->origin = next_origin = o;
}

static void detach(struct fixture *f)
{
	take_origin(f);
	ps_dataset_detach(f->dataset);
	f->dataset = NULL;
}

static int attach_fails(struct fixture *f)
{
	struct ps_names_origin *o = ps_names_origin_new(), *old = f->origin;

	memcpy(o->entries, old->entries, sizeof o->entries);
	atomic_store(&o->list_sizes, atomic_load(&old->list_sizes));
	int rc = attach(f);
	f->origin = next_origin = o;
	return rc;
}

static void close_handle(struct fixture *f, struct ps_handle *handle)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(f->handles); i++) {
		if (f->handles[i] == handle) {
			f->handles[i] = NULL;
			break;
		}
	}
	ps_handle_close(handle);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < PS_ARRAY_LEN(f->handles); i++)
		ps_handle_close(f->handles[i]);
	if (f->dataset)
		ps_dataset_detach(f->dataset);
	else
		f->origin->origin.ops->close(&f->origin->origin);
	ps_cache_close(f->cache);
	test_dir_teardown((void **)&f->dir);
	free(f);
	return 0;
}

/* Calls that one can wait for. */
struct answer {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done, right;
	int errnum;
	struct ps_attr attr;
	struct ps_handle *handle;
	struct ps_read read;
};

#define ANSWER_INIT                                                                 \
	{                                                                           \
		.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER \
	}

static int wait_for(struct answer *a)
{
	PS_LOCK_SCOPE(&a->lock);
	while (!a->done)
		pthread_cond_wait(&a->cond, &a->lock);
	return a->errnum;
}

static void answered(struct answer *a, int errnum)
{
	PS_LOCK_SCOPE(&a->lock);
	a->errnum = errnum;
	a->done = true;
	pthread_cond_signal(&a->cond);
}

static void attr_done(void *arg, int errnum, const struct ps_attr *attr)
{
	struct answer *a = arg;

	if (attr)
		a->attr = *attr;
	answered(a, errnum);
}

static int lookup_in(struct fixture *f, uint64_t dir, const char *name, struct ps_attr *ret)
{
	struct answer a = ANSWER_INIT;

	ps_dataset_lookup(f->dataset, dir, name, attr_done, &a);
	int errnum = wait_for(&a);
	*ret = a.attr;
	return errnum;
}

static int lookup(struct fixture *f, const char *name, struct ps_attr *ret)
{
	return lookup_in(f, ps_dataset_root(f->dataset), name, ret);
}

static void open_done(void *arg, int errnum, struct ps_handle *handle)
{
	struct answer *a = arg;

	a->handle = handle;
	answered(a, errnum);
}

static int open_node(struct fixture *f, uint64_t node, struct ps_handle **ret)
{
	struct answer a = ANSWER_INIT;

	ps_handle_open(f->dataset, node, open_done, &a);
	int errnum = wait_for(&a);
	*ret = a.handle;
	for (size_t i = 0; a.handle && i < PS_ARRAY_LEN(f->handles); i++) {
		if (!f->handles[i]) {
			f->handles[i] = a.handle;
			break;
		}
	}
	return errnum;
}

static uint8_t expected_add;

static void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct answer *a = PS_CONTAINER_OF(read, struct answer, read);
	uint64_t at = read->offset;

	a->right = true;
	for (size_t i = 0; i < nsegs; i++) {
		uint8_t *copy = malloc(segs[i].nbytes);

		if (segs[i].data)
			memcpy(copy, segs[i].data, segs[i].nbytes);
		else if (pread(segs[i].fd, copy, segs[i].nbytes, (off_t)segs[i].pos) !=
		         (ssize_t)segs[i].nbytes)
			a->right = false;
		for (size_t k = 0; k < segs[i].nbytes; k++, at++)
			a->right = a->right && copy[k] == (uint8_t)(ps_pattern_byte(at) + expected_add);
		free(copy);
	}
	answered(a, errnum);
}

/* Bytes of version `version`. */
static int read_at(struct ps_handle *handle, uint64_t offset, size_t nbytes, uint64_t version)
{
	struct answer a = ANSWER_INIT;

	expected_add = (uint8_t)version;
	a.read = (struct ps_read){.handle = handle, .offset = offset, .nbytes = nbytes, .done = read_done};
	ps_handle_read(&a.read);
	int errnum = wait_for(&a);
	if (!errnum)
		assert_true(a.right);
	return errnum;
}

/* Attaching --------------------------------------------------------------------------------------- */

static void a_listed_file_is_found_and_read(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr, dir;
	struct ps_handle *handle;

	ps_names_origin_set(f->origin, "a", SIZE, 7);
	ps_names_origin_set(f->origin, "d/e/b", 0, 8);
	ps_names_origin_set(f->origin, "d/one", 1, 9);
	ps_names_origin_set(f->origin, "d/mib", 2 * TEST_MIB, 9);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.size, SIZE);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	assert_int_equal(read_at(handle, 2 * TEST_MIB - 10, TEST_MIB, 7), 0);
	assert_int_equal(read_at(handle, SIZE - 1, 100, 7), 0);
	assert_int_equal(read_at(handle, SIZE, 100, 7), 0);
	close_handle(f, handle);
	assert_int_equal(lookup(f, "d", &dir), 0);
	assert_true(dir.is_dir);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(lookup_in(f, dir.node, i ? "mib" : "one", &attr), 0);
		assert_int_equal(open_node(f, attr.node, &handle), 0);
		assert_int_equal(read_at(handle, attr.size - 1, 100, 9), 0);
		assert_int_equal(read_at(handle, attr.size, 100, 9), 0);
		close_handle(f, handle);
	}
	assert_int_equal(lookup_in(f, dir.node, "e", &dir), 0);
	assert_int_equal(lookup_in(f, dir.node, "b", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	assert_int_equal(read_at(handle, 0, 100, 8), 0);
	assert_int_equal(ps_handle_complete_fd(handle), -1);
	assert_int_equal(ps_handle_warm(handle), 0);
	close_handle(f, handle);
	assert_int_equal(lookup(f, "none", &attr), ENOENT);
	assert_int_equal(atomic_load(&f->origin->nheads), 0);
}

static void a_source_that_was_not_there_is_not_there_the_second_time(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->list_sizes, false); /* as braces do: names, whatever the origin has */
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	f->origin->entries[0].gone = true;
	for (int i = 0; i < 2; i++)
		assert_int_equal(attach_fails(f), -ENOENT);
	f->origin->entries[0].gone = false;
	assert_int_equal(attach(f), 0);
}

static void an_empty_listing_takes_no_names_away(void **state)
{
	struct fixture *f = *state;
	struct ps_attr before, after;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &before), 0);
	detach(f);
	ps_names_origin_set(f->origin, "a", PS_SIZE_UNKNOWN, 1);
	assert_int_equal(attach_fails(f), -ENOENT);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &after), 0);
	assert_int_equal(after.node, before.node);
}

static void a_listing_that_fails_half_way_takes_no_names_away(void **state)
{
	struct fixture *f = *state;
	struct ps_attr a, b;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	assert_int_equal(attach(f), 0);
	detach(f);
	atomic_store(&f->origin->list_fails_at, 1);
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &a), 0);
	assert_int_equal(a.mtime_s, 2);
	assert_int_equal(lookup(f, "b", &b), 0);
}

static void without_the_origin_the_stored_listing_serves(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 3);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	assert_int_equal(read_at(handle, 0, 1000, 3), 0);
	close_handle(f, handle);
	usleep(300000); /* written */
	detach(f);
	atomic_store(&f->origin->list_fails_at, 0);
	atomic_store(&f->origin->head_errno, EHOSTUNREACH);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	assert_int_equal(read_at(handle, 0, 1000, 3), 0);
	assert_int_equal(atomic_load(&f->origin->ngets), 0);
	close_handle(f, handle);
}

static void lookups_time_out_while_a_listing_stalls(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 3);
	ps_names_origin_set(f->origin, "b", SIZE, 3);
	f->origin->entries[1].size = PS_SIZE_UNKNOWN; /* never told */
	assert_int_equal(attach(f), 0);
	detach(f);
	atomic_store(&f->origin->list_stalls, true);
	atomic_store(&f->origin->heads_stall, true);
	assert_int_equal(attach(f), 0);
	uint64_t start = ps_clock_mono_ns();
	assert_int_equal(lookup(f, "b", &attr), ETIMEDOUT);
	assert_true((ps_clock_mono_ns() - start) / PS_NS_PER_MS < TIMEOUT_MS + 1000);
	start = ps_clock_mono_ns();
	ps_dataset_detach(f->dataset);
	f->dataset = NULL;
	f->origin = ps_names_origin_new();
	assert_true((ps_clock_mono_ns() - start) / PS_NS_PER_MS < 1000);
}

static void detaching_ends_a_sweep_that_stalls(void **state)
{
	struct fixture *f = *state;
	char name[32];

	atomic_store(&f->origin->list_sizes, false);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "n%02d", i);
		ps_names_origin_set(f->origin, name, SIZE, 3);
	}
	assert_int_equal(attach(f), 0);
	detach(f);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "m%02d", i);
		ps_names_origin_set(f->origin, f->origin->entries[i].path, PS_SIZE_UNKNOWN, 3);
		ps_names_origin_set(f->origin, name, SIZE, 3);
	}
	atomic_store(&f->origin->heads_stall, true);
	assert_int_equal(attach(f), 0);
	while (atomic_load(&f->origin->nheads) < 16)
		usleep(10000);
	uint64_t start = ps_clock_mono_ns();
	ps_dataset_detach(f->dataset);
	f->dataset = NULL;
	f->origin = ps_names_origin_new();
	assert_true((ps_clock_mono_ns() - start) / PS_NS_PER_MS < 1000);
}

/* Versions ---------------------------------------------------------------------------------------- */

static void a_new_version_in_a_listing_supersedes_the_old(void **state)
{
	struct fixture *f = *state;
	struct ps_attr old, new;
	struct ps_handle *handle;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &old), 0);
	detach(f);
	ps_names_origin_set(f->origin, "a", SIZE + 1, 2);
	ps_names_origin_set(f->origin, "b", PS_SIZE_UNKNOWN, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &new), 0);
	assert_int_not_equal(new.node, old.node);
	assert_int_equal(new.ino, old.ino);
	assert_int_equal(open_node(f, old.node, &handle), ESTALE);
	assert_int_equal(lookup(f, "b", &old), ENOENT);
}

/* The read fails; the next open of the node does, too, and the name then has another one. */
static void read_finds_version_2(struct fixture *f, bool close_first)
{
	struct ps_handle *handle, *again;
	struct ps_attr old, new;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &old), 0);
	assert_int_equal(open_node(f, old.node, &handle), 0);
	/* Not the head, after which all of the file would be read ahead while it is still the old one. */
	assert_int_equal(read_at(handle, TEST_MIB, 1000, 1), 0);
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	assert_int_equal(read_at(handle, 3 * TEST_MIB, 5, 1), ESTALE);
	if (close_first)
		close_handle(f, handle);
	assert_int_equal(open_node(f, old.node, &again), ESTALE);
	assert_int_equal(lookup(f, "a", &new), 0);
	assert_int_not_equal(new.node, old.node);
	assert_int_equal(open_node(f, new.node, &again), 0);
	assert_int_equal(read_at(again, 0, SIZE, 2), 0);
	close_handle(f, again);
	if (!close_first) {
		assert_int_equal(read_at(handle, TEST_MIB, 1000, 1), 0);
		close_handle(f, handle);
	}
}

static void a_version_found_by_a_read_is_there_at_the_next_open(void **state)
{
	read_finds_version_2(*state, false);
}

static void a_version_found_by_a_read_is_remembered_after_its_close(void **state)
{
	read_finds_version_2(*state, true);
}

/* Two requests are under way before the first answer tells an ETag. */
static void answers_with_two_etags_are_not_mixed(void **state)
{
	struct fixture *f = *state;
	struct answer a = ANSWER_INIT, b = ANSWER_INIT;
	struct ps_handle *handle;
	struct ps_attr attr;

	atomic_store(&f->origin->list_no_etags, true);
	atomic_store(&f->origin->etag_changes, true);
	atomic_store(&f->origin->gets_stall, true);
	ps_names_origin_set(f->origin, "a", 40 * TEST_MIB, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	expected_add = 1;
	a.read = (struct ps_read){.handle = handle, .offset = 20 * TEST_MIB, .nbytes = 10, .done = read_done};
	b.read = (struct ps_read){.handle = handle, .offset = 30 * TEST_MIB, .nbytes = 10, .done = read_done};
	ps_handle_read(&a.read);
	ps_handle_read(&b.read);
	while (atomic_load(&f->origin->ngets) < 2)
		usleep(1000);
	atomic_store(&f->origin->gets_stall, false);
	int first = wait_for(&a), second = wait_for(&b);
	assert_true((first == 0 && second == ESTALE) || (first == ESTALE && second == 0));
	close_handle(f, handle);
}

/* Other bytes and another ETag of the same size and time, which no listing tells: new opens read the new bytes, an
 * older handle old ones or none. */
static void rewritten_in_place(struct fixture *f, bool by_extent)
{
	struct ps_handle *old, *new;
	struct ps_attr before, after;
	bool stale = false;

	atomic_store(&f->origin->list_no_etags, true);
	ps_names_origin_set(f->origin, "a", 20 * TEST_MIB, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &before), 0);
	assert_int_equal(open_node(f, before.node, &old), 0);
	assert_int_equal(ps_handle_warm(old), by_extent ? -ENOSPC : 0);
	assert_int_equal(read_at(old, 0, 1000, 1), 0);
	{
		PS_LOCK_SCOPE(&f->origin->lock);
		f->origin->entries[0].rewritten = 1;
	}
	for (uint64_t at = 0; at < 20 * TEST_MIB && !stale; at += TEST_MIB / 2) {
		int e = read_at(old, at, 1000, 1);
		stale = e == ESTALE;
		assert_true(e == 0 || stale);
	}
	/* Where all of it was here before the change, there is nothing to see. */
	if (!stale)
		return;
	assert_int_equal(open_node(f, before.node, &new), ESTALE);
	assert_int_equal(lookup(f, "a", &after), 0);
	assert_int_not_equal(after.node, before.node);
	assert_int_equal(after.ino, before.ino);
	assert_int_equal(open_node(f, after.node, &new), 0);
	for (uint64_t at = 0; at < 20 * TEST_MIB; at += TEST_MIB / 2) {
		assert_int_equal(read_at(new, at, TEST_MIB / 2, 2), 0);
		int e = read_at(old, at, TEST_MIB / 2, 1);
		assert_true(e == 0 || e == ESTALE);
	}
	assert_int_equal(open_node(f, before.node, &new), ESTALE);
}

static void a_file_rewritten_in_place_is_not_mixed(void **state)
{
	rewritten_in_place(*state, false);
}

static void a_large_file_rewritten_in_place_is_not_mixed(void **state)
{
	rewritten_in_place(*state, true);
}

/* Its reader gets EIO from then on, so do opens for a while, and then another node may fetch it again. */
static void data_that_do_not_match_their_checksum_go(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle, *again;
	struct ps_attr old, new;
	int rc = 0;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	snprintf(f->origin->entries[0].checksum, PS_CHECKSUM_LEN, "crc32c:00000000");
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &old), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(open_node(f, old.node, &handle), 0);
		for (int k = 0; k < 2000 && (rc = read_at(handle, 0, SIZE, 1)) == 0; k++) {
			assert_int_equal(ps_handle_complete_fd(handle), -1);
			usleep(5000);
		}
		assert_int_equal(rc, EIO);
		assert_int_equal(open_node(f, old.node, &again), EIO);
		unsigned before = atomic_load(&f->origin->ngets);
		for (int k = 0; k < 2000 && (rc = open_node(f, old.node, &again)) == EIO; k++)
			usleep(5000);
		assert_int_equal(rc, ESTALE);
		assert_int_equal(atomic_load(&f->origin->ngets), before);
		assert_int_equal(read_at(handle, 0, 1, 1), EIO);
		close_handle(f, handle);
		assert_int_equal(lookup(f, "a", &new), 0);
		assert_int_not_equal(new.node, old.node);
		assert_int_equal(new.ino, old.ino);
		old = new;
	}
}

static void data_that_match_their_checksum_may_be_passed_through(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle;
	struct ps_attr attr;
	int fd = -1;

	/* Of nothing but version 0's first byte, ps_pattern_byte(0) + 9. */
	ps_names_origin_set(f->origin, "a", 1, 9);
	uint8_t byte = (uint8_t)(ps_pattern_byte(0) + 9);
	struct ps_checksum sum;
	assert_int_equal(ps_checksum_init(&sum, "crc32c:00000000", 1), 0);
	ps_checksum_update(&sum, &byte, 1);
	(void)ps_checksum_final(&sum, f->origin->entries[0].checksum);
	ps_checksum_fini(&sum);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	assert_int_equal(read_at(handle, 0, 1, 9), 0);
	for (int k = 0; k < 2000 && (fd = ps_handle_complete_fd(handle)) < 0; k++)
		usleep(5000);
	assert_true(fd >= 0);
}

static void a_name_found_gone_by_a_read_is_gone(void **state)
{
	struct fixture *f = *state;
	struct ps_handle *handle;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	ps_names_origin_set(f->origin, "a", PS_SIZE_UNKNOWN, 1);
	assert_int_equal(read_at(handle, 0, 5, 1), ENOENT);
	close_handle(f, handle);
	assert_int_equal(open_node(f, attr.node, &handle), ESTALE);
	assert_int_equal(lookup(f, "a", &attr), ENOENT);
}

static void a_file_becomes_a_directory_and_a_file_again(void **state)
{
	struct fixture *f = *state;
	struct ps_attr file, dir, inside, again;
	struct ps_handle *handle;

	ps_names_origin_set(f->origin, "x", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "x", &file), 0);
	detach(f);
	ps_names_origin_set(f->origin, "x", PS_SIZE_UNKNOWN, 1);
	ps_names_origin_set(f->origin, "x/y", SIZE, 2);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "x", &dir), 0);
	assert_true(dir.is_dir);
	assert_int_equal(open_node(f, file.node, &handle), ESTALE);
	assert_int_equal(lookup_in(f, dir.node, "y", &inside), 0);
	detach(f);
	ps_names_origin_set(f->origin, "x/y", PS_SIZE_UNKNOWN, 2);
	ps_names_origin_set(f->origin, "x", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "x", &again), 0);
	assert_false(again.is_dir);
	assert_int_equal(open_node(f, inside.node, &handle), ESTALE);
	assert_int_equal(lookup_in(f, dir.node, "y", &inside), ENOENT);
}

/* A listing that is older than a HEAD ------------------------------------------------------------- */

static struct fixture *during;

static void *look_at_b(void *arg)
{
	struct ps_attr attr;

	(void)arg;
	while (!during->dataset)
		usleep(1000);
	assert_int_equal(lookup(during, "b", &attr), 0);
	return NULL;
}

static void a_listing_does_not_bring_an_older_version_back(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;
	pthread_t thread;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	assert_int_equal(attach(f), 0);
	detach(f);
	during = f;
	/* The origin tells version 2 when asked, and then the listing, begun before, version 1. */
	atomic_store(&f->origin->list_stalls, true);
	ps_names_origin_set(f->origin, "b", SIZE, 2);
	assert_int_equal(attach(f), 0);
	assert_int_equal(pthread_create(&thread, NULL, look_at_b, NULL), 0);
	pthread_join(thread, NULL);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	atomic_store(&f->origin->list_stalls, false);
	for (int i = 0; i < 200; i++) {
		json_t *stats = ps_dataset_stats(f->dataset);
		bool listing = json_is_true(json_object_get(stats, "listing"));

		json_decref(stats);
		if (!listing)
			break;
		usleep(10000);
	}
	assert_int_equal(lookup(f, "b", &attr), 0);
	assert_int_equal(attr.mtime_s, 2);
}

static void two_attaches_of_a_source_share_a_dataset(void **state)
{
	struct fixture *f = *state;
	const struct ps_dataset_options options = {.revalidate_ms = 1};
	struct ps_dataset *second = NULL, *third = NULL;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(ps_dataset_attach(f->cache, "http://names/", &options, &second, &f->err), 0);
	assert_ptr_equal(second, f->dataset);
	assert_int_not_equal(ps_dataset_revalidate_ms(second), 1);
	ps_dataset_detach(second);
	assert_int_equal(lookup(f, "a", &attr), 0);
	/* With other credentials it is another one. */
	const char *const headers[] = {"Authorization: other", NULL};
	const struct ps_dataset_options others = {.origin = {.headers = headers}};
	struct ps_names_origin *own = ps_names_origin_new();
	ps_names_origin_set(own, "b", SIZE, 1);
	next_origin = own;
	assert_int_equal(ps_dataset_attach(f->cache, "http://names/", &others, &third, &f->err), 0);
	assert_ptr_not_equal(third, f->dataset);
	assert_int_not_equal(ps_dataset_root(third), ps_dataset_root(f->dataset));
	assert_int_equal(lookup(f, "b", &attr), ENOENT);
	ps_dataset_detach(third);
	next_origin = f->origin;
}

static void *attach_it(void *arg)
{
	struct fixture *f = arg;
	struct ps_dataset *dataset = NULL;
	struct ps_error err = {0};

	int rc = ps_dataset_attach(f->cache, "http://names/", &(struct ps_dataset_options){0}, &dataset, &err);
	return rc < 0 ? NULL : dataset;
}

static void who_attaches_meanwhile_waits_for_the_same(void **state)
{
	struct fixture *f = *state;
	pthread_t threads[8];
	void *got;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	atomic_store(&f->origin->list_stalls, true);
	for (size_t i = 0; i < PS_ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, attach_it, f), 0);
	usleep(20000);
	atomic_store(&f->origin->list_stalls, false);
	for (size_t i = 0; i < PS_ARRAY_LEN(threads); i++) {
		pthread_join(threads[i], &got);
		assert_non_null(got);
		if (i == 0)
			f->dataset = got;
		assert_ptr_equal(got, f->dataset);
	}
	assert_int_equal(atomic_load(&f->origin->nlists), 1);
	for (size_t i = 1; i < PS_ARRAY_LEN(threads); i++)
		ps_dataset_detach(f->dataset);
}

static _Atomic bool not_wanted;

static void *change_mind(void *arg)
{
	(void)arg;
	usleep(20000);
	atomic_store(&not_wanted, true);
	return NULL;
}

static void an_attach_that_nobody_wants_ends(void **state)
{
	struct fixture *f = *state;
	const struct ps_dataset_options options = {.cancelled = &not_wanted};
	pthread_t thread;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	for (int listing = 0; listing < 2; listing++) {
		atomic_store(&not_wanted, false);
		atomic_store(&f->origin->list_stalls, listing);
		atomic_store(&f->origin->list_sizes, false);
		atomic_store(&f->origin->heads_stall, true);
		assert_int_equal(pthread_create(&thread, NULL, change_mind, NULL), 0);
		struct ps_dataset *dataset = NULL;
		int rc = ps_dataset_attach(f->cache, "http://names/", &options, &dataset, &f->err);
		pthread_join(thread, NULL);
		assert_int_equal(rc, -ECANCELED);
		/* The origin went with it. */
		f->origin = next_origin = ps_names_origin_new();
		ps_names_origin_set(f->origin, "a", SIZE, 1);
	}
	assert_int_equal(attach(f), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_listed_file_is_found_and_read),
	        TEST(a_source_that_was_not_there_is_not_there_the_second_time),
	        TEST(an_empty_listing_takes_no_names_away),
	        TEST(a_listing_that_fails_half_way_takes_no_names_away),
	        TEST(without_the_origin_the_stored_listing_serves),
	        TEST(lookups_time_out_while_a_listing_stalls),
	        TEST(detaching_ends_a_sweep_that_stalls),
	        TEST(a_new_version_in_a_listing_supersedes_the_old),
	        TEST(a_version_found_by_a_read_is_there_at_the_next_open),
	        TEST(a_version_found_by_a_read_is_remembered_after_its_close),
	        TEST(answers_with_two_etags_are_not_mixed),
	        TEST(a_file_rewritten_in_place_is_not_mixed),
	        cmocka_unit_test_setup_teardown(
	                a_large_file_rewritten_in_place_is_not_mixed, setup_small, teardown),
	        TEST(data_that_do_not_match_their_checksum_go),
	        TEST(data_that_match_their_checksum_may_be_passed_through),
	        TEST(a_name_found_gone_by_a_read_is_gone),
	        TEST(a_file_becomes_a_directory_and_a_file_again),
	        TEST(a_listing_does_not_bring_an_older_version_back),
	        TEST(two_attaches_of_a_source_share_a_dataset),
	        TEST(who_attaches_meanwhile_waits_for_the_same),
	        TEST(an_attach_that_nobody_wants_ends),
	};

	return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
