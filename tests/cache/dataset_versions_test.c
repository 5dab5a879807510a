/* Datasets over an origin of a few names: versions that listings, HEADs and reads find. */
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

/* Two requests are under way before the first answer has an ETag. */
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

/* Other bytes and another ETag of the same size and time, which no listing shows: new opens read the new
 * bytes, an older handle old ones or none. */
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
	/* The origin answers version 2 when asked, and then the listing, begun before, version 1. */
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

static void a_head_does_not_bring_an_older_version_back(void **state)
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
	/* Its answer was written down before. */
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	atomic_store(&f->origin->heads_stall, false);
	assert_int_equal(wait_for(&late), 0);
	assert_int_equal(late.attr.mtime_s, 3);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 3);
	assert_int_equal(attr.node, late.attr.node);
}

/* So long an open waits for the word on a version that is known; on one that is not, as long as its reader
 * waits. */
static void a_known_version_is_waited_for_five_seconds(void **state)
{
	struct fixture *f = *state;
	struct answer known = ANSWER_INIT, unknown = ANSWER_INIT;
	char text[PS_ERROR_TEXT_LEN];

	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	f->origin->entries[1].size = PS_SIZE_UNKNOWN; /* never told */
	assert_int_equal(attach(f), 0);
	assert_int_equal(ps_dataset_missing(f->dataset, UINT64_MAX, NULL, text), 1); /* all were asked for */
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

/* Where one object cannot be asked about, others are, and that one again after a while. */
static void one_object_s_error_is_not_another_s(void **state)
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
	assert_int_equal(attr.mtime_s, 1); /* as it is known */
	atomic_store(&f->origin->head_errno, 0);
	unsigned nheads = atomic_load(&f->origin->nheads);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 1);
	assert_int_equal(atomic_load(&f->origin->nheads), nheads);
	assert_int_equal(lookup(f, "b", &attr), 0);
	assert_int_equal(attr.mtime_s, 2);
}

/* Two who meet data that are not what they were need one new node, not two. */
static void a_name_is_renewed_by_its_present_node_alone(void **state)
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

/* While a file of unknown size is asked for, a listing says that the name is another file, of unknown size,
 * too. */
static void a_name_that_moves_while_it_is_asked_for_is_asked_for_again(void **state)
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
	while (atomic_load(&f->origin->nheads) < 1) /* it is listed */
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
	while (atomic_load(&f->origin->nheads) < 3) /* both have moved, and are asked for */
		usleep(1000);
	ps_names_origin_set(f->origin, "elsewhere/b", SIZE + 1, 2);
	atomic_store(&f->origin->heads_stall, false);
	assert_int_equal(wait_for(&asked), 0);
	assert_int_equal(asked.attr.size, SIZE + 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* The last listing may have been a moment ago, and by a clock that was a little ahead since. */
static void what_an_earlier_mount_listed_confirms_nothing(void **state)
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

/* A machine without a battery that finds its time server late: what was confirmed by the clock that was wrong
 * is asked for once more, and not at every open until the right one has caught up. */
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
	/* And it is asked for: the version is the origin's. */
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	detach(f);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(open_node(f, attr.node, &handle), 0);
	assert_int_equal(read_at(handle, 0, 1000, 2), 0);
	close_handle(f, handle);
	faults_end();
}

static void a_clock_that_went_back_between_mounts_costs_one_question(void **state)
{
	steps(*state, 3650 * 86400, false);
}

static void a_clock_that_goes_back_costs_one_question(void **state)
{
	steps(*state, 10 * 3600, true);
}

static void a_clock_that_goes_forward_costs_one_question(void **state)
{
	steps(*state, -10 * 3600, true);
}

/* Of a file of which nothing is cached an open asks again after a minute, if it is large, or after an evict,
 * though the version counts for an hour: its first read would be too late. */
static void of_what_is_not_cached_an_open_asks_sooner(void **state)
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
	for (unsigned i = 0; i < 5; i++) /* all of it: nothing more is fetched of the version that goes */
		assert_int_equal(read_at(handle, i * TEST_MIB, TEST_MIB, 2), 0);
	close_handle(f, handle);
	/* What is cached counts as long as it is said to. */
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
	        TEST(data_that_do_not_match_their_checksum_go),
	        TEST(data_that_match_their_checksum_may_be_passed_through),
	        TEST(a_name_found_gone_by_a_read_is_gone),
	        TEST(a_file_becomes_a_directory_and_a_file_again),
	        TEST(a_listing_does_not_bring_an_older_version_back),
	        TEST(a_name_that_moves_while_it_is_asked_for_is_asked_for_again),
	        cmocka_unit_test_setup_teardown(
	                a_head_does_not_bring_an_older_version_back, setup_patient, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_known_version_is_waited_for_five_seconds, setup_patient, teardown),
	        TEST(one_object_s_error_is_not_another_s),
	        TEST(a_name_is_renewed_by_its_present_node_alone),
	        TEST(what_an_earlier_mount_listed_confirms_nothing),
	        cmocka_unit_test_setup_teardown(of_what_is_not_cached_an_open_asks_sooner, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_clock_that_went_back_between_mounts_costs_one_question, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_clock_that_goes_back_costs_one_question, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_clock_that_goes_forward_costs_one_question, setup, teardown),
	};

	return cmocka_run_group_tests_name("dataset-versions", tests, NULL, NULL);
}
