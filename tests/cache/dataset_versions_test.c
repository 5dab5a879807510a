/* Datasets with the names origin: versions that listings, HEADs and reads find. */
#include <errno.h>

#include "base/clock.h"
#include "catalog/catalog_private.h"
#include "tests/cache/dataset_fixture.h"
#include "tests/faults.h"

/* Versions ----------------------------------------------------------------------------------------------- */

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

/* A read finds version 2 and fails. The next open of the node fails, too, and the name then has another
 * node. */
static void read_finds_version_2(struct fixture *f, bool close_first)
{
	struct ps_handle *handle, *again;
	struct ps_attr old, new;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &old), 0);
	assert_int_equal(open_node(f, old.node, &handle), 0);
	/* Not the file's head: after a read of the head, all of the old version would be read ahead. */
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

/* Two requests are under way before the first answer brings an ETag. */
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

/* The file gets other bytes and another ETag, but keeps size and time: no listing shows the change. New
 * opens read the new bytes, and an older handle reads the old bytes or none. */
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
		int rc = read_at(old, at, 1000, 1);
		stale = rc == ESTALE;
		assert_true(rc == 0 || stale);
	}
	/* If all of the file was cached before the change, no read notices it. */
	if (!stale)
		return;
	assert_int_equal(open_node(f, before.node, &new), ESTALE);
	assert_int_equal(lookup(f, "a", &after), 0);
	assert_int_not_equal(after.node, before.node);
	assert_int_equal(after.ino, before.ino);
	assert_int_equal(open_node(f, after.node, &new), 0);
	for (uint64_t at = 0; at < 20 * TEST_MIB; at += TEST_MIB / 2) {
		assert_int_equal(read_at(new, at, TEST_MIB / 2, 2), 0);
		int rc = read_at(old, at, TEST_MIB / 2, 1);
		assert_true(rc == 0 || rc == ESTALE);
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

/* Once the checksum was found wrong, the reader gets EIO. Opens fail with EIO for a while; after that,
 * another node may fetch the file again. */
static void data_that_do_not_match_their_checksum_are_dropped(void **state)
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

	/* The file has one byte; in version 9 this is ps_pattern_byte(0) + 9. */
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

static void a_read_that_finds_no_file_removes_the_name(void **state)
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

/* A listing that is older than a HEAD -------------------------------------------------------------------- */

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

static void a_listing_does_not_restore_an_older_version(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;
	pthread_t thread;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	assert_int_equal(attach(f), 0);
	detach(f);
	during = f;
	/* A HEAD finds version 2; then the listing, which began before, brings version 1. */
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

/* A HEAD that is older than a listing -------------------------------------------------------------------- */

static uint64_t doubt(struct fixture *f, const char *name)
{
	struct ps_attr attr;

	assert_int_equal(lookup(f, name, &attr), 0);
	ps_dataset_doubt(f->dataset, attr.node);
	return attr.node;
}

static void a_head_does_not_restore_an_older_version(void **state)
{
	struct fixture *f = *state;
	struct answer late = ANSWER_INIT;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	(void)doubt(f, "a");
	atomic_store(&f->origin->heads_stall, true);
	ps_dataset_lookup(f->dataset, ps_dataset_root(f->dataset), "a", attr_done, &late);
	ps_names_origin_set(f->origin, "a", SIZE, 3);
	assert_int_equal(refresh(f, NULL), 0);
	/* The answer to the HEAD has version 2, which is older than the listing's. */
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	atomic_store(&f->origin->heads_stall, false);
	assert_int_equal(wait_for(&late), 0);
	assert_int_equal(late.attr.mtime_s, 3);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 3);
	assert_int_equal(attr.node, late.attr.node);
}

/* A lookup of an unknown version waits as long as a reader does. */
static void a_lookup_waits_five_seconds_for_a_known_version(void **state)
{
	struct fixture *f = *state;
	struct answer known = ANSWER_INIT, unknown = ANSWER_INIT;
	char text[PS_ERROR_TEXT_LEN];

	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	f->origin->entries[1].size = PS_SIZE_UNKNOWN; /* no answer has the size */
	assert_int_equal(attach(f), 0);
	assert_int_equal(ps_dataset_missing(f->dataset, UINT64_MAX, NULL, text), 1); /* waits for all HEADs */
	uint64_t node = doubt(f, "a");
	atomic_store(&f->origin->heads_stall, true);
	ps_dataset_lookup(f->dataset, ps_dataset_root(f->dataset), "b", attr_done, &unknown);
	uint64_t before_ns = ps_clock_mono_ns();
	ps_dataset_lookup(f->dataset, ps_dataset_root(f->dataset), "a", attr_done, &known);
	uint64_t after_ns = ps_clock_mono_ns();
	(void)ps_revalidate_tick(f->dataset, before_ns + 4999 * PS_NS_PER_MS);
	assert_false(is_answered(&known));
	(void)ps_revalidate_tick(f->dataset, after_ns + 5001 * PS_NS_PER_MS);
	assert_true(is_answered(&known));
	assert_int_equal(wait_for(&known), 0);
	assert_int_equal(known.attr.node, node);
	(void)ps_revalidate_tick(f->dataset, before_ns + (PATIENT_MS - 2000) * PS_NS_PER_MS);
	assert_false(is_answered(&unknown));
	(void)ps_revalidate_tick(f->dataset, after_ns + (PATIENT_MS + 1) * PS_NS_PER_MS);
	assert_true(is_answered(&unknown));
	assert_int_equal(wait_for(&unknown), ETIMEDOUT);
}

/* If the HEAD of one object fails, other objects still get theirs, and the first one gets another HEAD after
 * a while. */
static void an_error_of_one_object_does_not_affect_another(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	assert_int_equal(attach(f), 0);
	(void)doubt(f, "a");
	(void)doubt(f, "b");
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	ps_names_origin_set(f->origin, "b", SIZE, 2);
	atomic_store(&f->origin->head_status, 500);
	atomic_store(&f->origin->head_errno, EIO);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 1); /* the known version */
	atomic_store(&f->origin->head_errno, 0);
	unsigned nheads = atomic_load(&f->origin->nheads);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 1);
	assert_int_equal(atomic_load(&f->origin->nheads), nheads);
	assert_int_equal(lookup(f, "b", &attr), 0);
	assert_int_equal(attr.mtime_s, 2);
}

/* Two readers that find changed data need one new node, not two. */
static void only_the_present_node_of_a_name_renews_it(void **state)
{
	struct fixture *f = *state;
	struct ps_node_row row;
	struct ps_attr first, second;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	row_of(f, "a", &row);
	assert_int_equal(ps_dataset_renew(f->dataset, &row), 0);
	assert_int_equal(lookup(f, "a", &first), 0);
	assert_int_not_equal(first.node, row.node);
	assert_int_equal(ps_dataset_renew(f->dataset, &row), -ESTALE);
	assert_int_equal(lookup(f, "a", &second), 0);
	assert_int_equal(second.node, first.node);
	ps_node_row_fini(&row);
}

/* While a HEAD asks for a file's unknown size, a listing gives the name another URL, also without a size. */
static void a_name_that_moves_during_its_head_gets_another_head(void **state)
{
	struct fixture *f = *state;
	struct answer asked = ANSWER_INIT;

	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	detach(f);
	atomic_store(&f->origin->heads_stall, true);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	assert_int_equal(attach(f), 0);
	while (atomic_load(&f->origin->nheads) < 1) /* b is listed */
		usleep(1000);
	detach(f);
	atomic_store(&f->origin->heads_stall, true);
	atomic_store(&f->origin->list_stalls, true);
	assert_int_equal(attach(f), 0);
	ps_dataset_lookup(f->dataset, ps_dataset_root(f->dataset), "b", attr_done, &asked);
	while (atomic_load(&f->origin->nheads) < 1)
		usleep(1000);
	atomic_store(&f->origin->list_elsewhere, true);
	atomic_store(&f->origin->list_stalls, false);
	while (atomic_load(&f->origin->nheads) < 3) /* both names have moved and get HEADs */
		usleep(1000);
	ps_names_origin_set(f->origin, "elsewhere/b", SIZE + 1, 2);
	atomic_store(&f->origin->heads_stall, false);
	assert_int_equal(wait_for(&asked), 0);
	assert_int_equal(asked.attr.size, SIZE + 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* The earlier listing's time may be later than now, because the clock was a little ahead then. */
static void a_listing_of_an_earlier_attach_confirms_nothing(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	faults_step_clock(1);
	assert_int_equal(attach(f), 0);
	detach(f);
	faults_step_clock(0);
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	atomic_store(&f->origin->list_stalls, true);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 2);
	faults_end();
}

/* A machine without a clock battery reaches its time server late. A version that was confirmed by the wrong
 * clock is revalidated once, and not at every open until the right clock has caught up. */
static void steps(struct fixture *f, int64_t first_s, bool while_attached)
{
	struct ps_handle *handle;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	faults_step_clock(first_s);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	close_handle(f, handle);
	if (!while_attached)
		detach(f);
	faults_step_clock(0);
	if (!while_attached)
		assert_int_equal(attach(f), 0);
	unsigned before = atomic_load(&f->origin->nheads);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(lookup(f, "a", &attr), 0);
		assert_int_equal(open_node(f, attr.node, &handle), 0);
		close_handle(f, handle);
	}
	assert_in_range(atomic_load(&f->origin->nheads) - before, 0, 1);
	/* The origin is asked, and the version is its present one. */
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	detach(f);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	assert_int_equal(read_at(handle, 0, 1000, 2), 0);
	close_handle(f, handle);
	faults_end();
}

static void a_clock_that_went_back_between_attaches_costs_one_head(void **state)
{
	steps(*state, 3650 * 86400, false);
}

static void a_clock_that_goes_back_costs_one_head(void **state)
{
	steps(*state, 10 * 3600, true);
}

static void a_clock_that_goes_forward_costs_one_head(void **state)
{
	steps(*state, -10 * 3600, true);
}

/* If nothing of a file is cached, an open revalidates after a minute (large files) or after an eviction,
 * although a version counts as valid for an hour: the first read would find a change too late. */
static void an_open_of_an_uncached_file_revalidates_sooner(void **state)
{
	struct fixture *f = *state;
	struct ps_attr large, small, new;
	struct ps_handle *handle;
	uint64_t nbytes;

	ps_names_origin_set(f->origin, "large", 5 * TEST_MIB, 1);
	ps_names_origin_set(f->origin, "small", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "large", &large), 0);
	assert_int_equal(lookup(f, "small", &small), 0);
	ps_names_origin_set(f->origin, "large", 5 * TEST_MIB, 2);
	ps_names_origin_set(f->origin, "small", SIZE, 2);
	unsigned before = atomic_load(&f->origin->nheads);
	faults_step_clock(50);
	assert_int_equal(open_node(f, large.node, &handle), 0);
	close_handle(f, handle);
	faults_step_clock(70);
	assert_int_equal(open_node(f, small.node, &handle), 0);
	close_handle(f, handle);
	assert_int_equal(atomic_load(&f->origin->nheads), before);
	assert_int_equal(open_node(f, large.node, &handle), ESTALE);
	assert_int_equal(lookup(f, "large", &new), 0);
	assert_int_equal(open_node(f, new.node, &handle), 0);
	for (unsigned i = 0; i < 5; i++) /* reads all: nothing more of this version is fetched later */
		assert_int_equal(read_at(handle, i * TEST_MIB, TEST_MIB, 2), 0);
	close_handle(f, handle);
	/* The version of a cached file counts as valid for the full hour. */
	before = atomic_load(&f->origin->nheads);
	faults_step_clock(200);
	ps_names_origin_set(f->origin, "large", 5 * TEST_MIB, 3);
	assert_int_equal(open_node(f, new.node, &handle), 0);
	assert_int_equal(atomic_load(&f->origin->nheads), before);
	assert_int_equal(ps_handle_evict(handle, &nbytes), 0);
	close_handle(f, handle);
	assert_int_equal(open_node(f, new.node, &handle), ESTALE);
	assert_int_equal(open_node(f, small.node, &handle), ESTALE);
	assert_int_equal(lookup(f, "small", &new), 0);
	assert_int_equal(open_node(f, new.node, &handle), 0);
	assert_int_equal(read_at(handle, 0, 1000, 2), 0);
	close_handle(f, handle);
	faults_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_new_version_in_a_listing_supersedes_the_old),
	        TEST(a_version_found_by_a_read_is_there_at_the_next_open),
	        TEST(a_version_found_by_a_read_is_remembered_after_its_close),
	        TEST(answers_with_two_etags_are_not_mixed),
	        TEST(a_file_rewritten_in_place_is_not_mixed),
	        cmocka_unit_test_setup_teardown(
	                a_large_file_rewritten_in_place_is_not_mixed, setup_small, teardown),
	        TEST(data_that_do_not_match_their_checksum_are_dropped),
	        TEST(data_that_match_their_checksum_may_be_passed_through),
	        TEST(a_read_that_finds_no_file_removes_the_name),
	        TEST(a_file_becomes_a_directory_and_a_file_again),
	        TEST(a_listing_does_not_restore_an_older_version),
	        TEST(a_name_that_moves_during_its_head_gets_another_head),
	        cmocka_unit_test_setup_teardown(
	                a_head_does_not_restore_an_older_version, setup_patient, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_lookup_waits_five_seconds_for_a_known_version, setup_patient, teardown),
	        TEST(an_error_of_one_object_does_not_affect_another),
	        TEST(only_the_present_node_of_a_name_renews_it),
	        TEST(a_listing_of_an_earlier_attach_confirms_nothing),
	        cmocka_unit_test_setup_teardown(
	                an_open_of_an_uncached_file_revalidates_sooner, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_clock_that_went_back_between_attaches_costs_one_head, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_clock_that_goes_back_costs_one_head, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_clock_that_goes_forward_costs_one_head, setup, teardown),
	};

	return cmocka_run_group_tests_name("dataset-versions", tests, NULL, NULL);
}
