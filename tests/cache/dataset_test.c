/* Datasets with the names origin: attaching, listings and stored names, refreshes, and what attaches
 * share. */
#include <errno.h>

#include "base/clock.h"
#include "tests/cache/dataset_fixture.h"
#include "tests/cache/index_refuses.h"

/* Attaching ---------------------------------------------------------------------------------------------- */

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

static void a_missing_source_is_missing_at_the_second_attach_too(void **state)
{
	struct fixture *f = *state;

	/* as with braces: names are listed whether the origin has them or not */
	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	f->origin->entries[0].gone = true;
	for (int i = 0; i < 2; i++)
		assert_int_equal(attach_fails(f), -ENOENT);
	f->origin->entries[0].gone = false;
	assert_int_equal(attach(f), 0);
}

static void an_empty_listing_removes_no_names(void **state)
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

static void a_listing_that_fails_midway_removes_no_names(void **state)
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

static void without_the_origin_the_stored_listing_is_used(void **state)
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
	usleep(300000); /* until the bytes are written */
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

/* A refusal is an answer of the origin, unlike an error without an answer. */
static void stored_names_are_hidden_after_a_refused_listing(void **state)
{
	static const struct {
		int errnum, rc;
	} rows[] = {{EACCES, -EACCES}, {ENOENT, -ENOENT}, {EHOSTUNREACH, 0}, {EIO, 0}};
	struct fixture *f = *state;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		assert_int_equal(attach(f), 0);
		detach(f);
		atomic_store(&f->origin->list_fails_at, 0);
		atomic_store(&f->origin->list_errno, rows[i].errnum);
		if (rows[i].rc < 0) {
			assert_int_equal(attach_fails(f), rows[i].rc);
		} else {
			assert_int_equal(attach(f), 0);
			detach(f);
		}
	}
	/* The names stay hidden while the origin does not answer after a refusal. */
	for (size_t i = 0; i < 2; i++) {
		atomic_store(&f->origin->list_fails_at, 0);
		atomic_store(&f->origin->list_errno, i ? EHOSTUNREACH : EACCES);
		assert_int_equal(attach_fails(f), i ? -EHOSTUNREACH : -EACCES);
	}
}

/* The lookup fails at once, with the EIO that stands for the origin's error. */
static void a_lookup_does_not_wait_for_a_retry_that_comes_too_late(void **state)
{
	struct fixture *f = *state;
	char text[PS_ERROR_TEXT_LEN];
	struct ps_attr attr;

	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	f->origin->entries[1].size = PS_SIZE_UNKNOWN; /* no answer has the size */
	assert_int_equal(attach(f), 0);
	assert_int_equal(ps_dataset_missing(f->dataset, UINT64_MAX, NULL, text), 1); /* waits for all HEADs */
	atomic_store(&f->origin->head_errno, EHOSTUNREACH);
	atomic_store(&f->origin->head_retry_after_ms, 3600 * 1000);
	uint64_t start = ps_clock_mono_ns();
	assert_int_equal(lookup(f, "b", &attr), EIO);
	assert_true((ps_clock_mono_ns() - start) / PS_NS_PER_MS < TIMEOUT_MS);
}

static void lookups_time_out_while_a_listing_stalls(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 3);
	ps_names_origin_set(f->origin, "b", SIZE, 3);
	f->origin->entries[1].size = PS_SIZE_UNKNOWN; /* no answer has the size */
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

static void detaching_ends_heads_that_stall(void **state)
{
	struct fixture *f = *state;
	char name[32];

	atomic_store(&f->origin->list_sizes, false);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "n%02d", i);
		ps_names_origin_set(f->origin, name, SIZE, 3);
	}
	assert_int_equal(attach(f), 0);
	detach(f);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "m%02d", i);
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

static bool is_any_in(struct fixture *f, uint64_t node)
{
	struct ps_attr attr;
	struct ps_dir *dir;
	const char *name;

	assert_int_equal(ps_dir_open(f->dataset, node, &dir), 0);
	int rc = ps_dir_read(dir, 0, false, &name, &attr);
	ps_dir_close(dir);
	assert_true(rc >= 0);
	return rc;
}

/* Attaches a source with names without sizes; the attach does not wait for the sizes. */
static void attach_with_many(struct fixture *f, unsigned n, bool heads_stall)
{
	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 3);
	assert_int_equal(attach(f), 0);
	detach(f);
	atomic_store(&f->origin->list_sizes, false);
	atomic_store(&f->origin->list_many, n);
	atomic_store(&f->origin->heads_stall, heads_stall);
	assert_int_equal(attach(f), 0);
}

/* There are more names than are taken from the index at a time. Each of them gets one HEAD, and the origin
 * has none of them. */
static void each_name_without_a_size_gets_one_head(void **state)
{
	struct fixture *f = *state;
	struct ps_attr dir;

	attach_with_many(f, 600, false);
	while (lookup(f, "many", &dir) != 0 || is_any_in(f, dir.node))
		usleep(1000);
	assert_int_equal(atomic_load(&f->origin->nheads), 600);
}

/* While the HEADs wait for the origin, an index whose disk refused writes can be opened again. */
static void heads_under_way_hold_nothing_of_the_index(void **state)
{
	struct fixture *f = *state;
	struct ps_index *index = ps_store_index(ps_cache_store(f->cache));
	struct ps_error err = {0};

	attach_with_many(f, 600, true);
	while (atomic_load(&f->origin->nheads) < 16)
		usleep(1000);
	assert_int_equal(index_break(index), -EIO);
	if (ps_index_reopen(index, &err) < 0)
		fail_msg("%s", err.text);
	detach(f);
}

/* A program may go back to an earlier position, and to the beginning after it has seen the end. */
static void a_folder_is_read_again_from_anywhere(void **state)
{
	static const struct {
		uint64_t pos;
		const char *name; /* NULL: the end */
	} steps[] = {{0, "a"}, {1, "b"}, {2, "c"}, {1, "b"}, {2, "c"}, {0, "a"}, {2, "c"}, {3, NULL},
	        {3, NULL}, {7, NULL}, {2, "c"}, {3, NULL}, {0, "a"}, {1, "b"}};
	struct fixture *f = *state;
	struct ps_attr attr;
	struct ps_dir *dir;
	const char *name;

	for (int i = 0; i < 3; i++)
		ps_names_origin_set(f->origin, (const char *[]){"c", "a", "b"}[i], SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(ps_dir_open(f->dataset, ps_dataset_root(f->dataset), &dir), 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(steps); i++) {
		assert_int_equal(ps_dir_read(dir, steps[i].pos, true, &name, &attr), steps[i].name != NULL);
		if (steps[i].name)
			assert_string_equal(name, steps[i].name);
	}
	ps_dir_close(dir);
}

/* Refreshes ---------------------------------------------------------------------------------------------- */

static int64_t next_listing_in_s(struct fixture *f)
{
	json_t *stats = ps_dataset_stats(f->dataset);
	int64_t at_s = json_integer_value(json_object_get(stats, "next_listing_at"));

	json_decref(stats);
	return at_s - ps_clock_real_s();
}

static void count_change(void *arg, uint64_t parent, const char *name)
{
	(void)parent, (void)name;
	atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

/* The pause doubles with each failure but the first, up to an hour, and is up to a tenth shorter at
 * random. */
static void an_origin_that_fails_is_listed_less_and_less_often(void **state)
{
	static const int64_t next_s[] = {300, 300, 600, 1200, 2400, 3600, 3600};
	struct fixture *f = *state;
	_Atomic unsigned nchanges = 0;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	struct ps_watch watch = {.dataset = f->dataset,
	        .changed = count_change,
	        .arg = (void *)&nchanges,
	        .refresh_ms = 300 * 1000};
	ps_dataset_watch(&watch);
	for (size_t i = 0; i < PS_ARRAY_LEN(next_s); i++) {
		assert_in_range(next_listing_in_s(f), next_s[i] * 9 / 10 - 2, next_s[i] + 1);
		atomic_store(&f->origin->list_fails_at, 0);
		assert_int_equal(refresh(f, NULL), EHOSTUNREACH);
	}
	atomic_store(&f->origin->list_fails_at, -1);
	assert_int_equal(refresh(f, NULL), 0);
	assert_in_range(next_listing_in_s(f), 268, 301);
	ps_dataset_unwatch(&watch);
	assert_int_equal(nchanges, 0);
}

static struct fixture *stalling;
static void (*refreshed)(struct ps_refresh *refresh, int errnum, const struct ps_refreshed *result);

/* Makes the next listing stall, so that the test sees it while it runs. */
static void stall_the_next(struct ps_refresh *refresh, int errnum, const struct ps_refreshed *result)
{
	atomic_store(&stalling->origin->list_stalls, true);
	refreshed(refresh, errnum, result);
}

/* A name may have appeared after the listing under way had passed its place. */
static void a_refresh_is_answered_by_a_listing_that_began_after_it(void **state)
{
	struct fixture *f = stalling = *state;
	struct refreshing first, second, third;
	_Atomic unsigned nchanges = 0;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	struct ps_watch watch = {.dataset = f->dataset, .changed = count_change, .arg = (void *)&nchanges};
	ps_dataset_watch(&watch);
	unsigned nlists = atomic_load(&f->origin->nlists);
	atomic_store(&f->origin->list_stalls, true);
	refresh_begin(&first, &watch);
	refreshed = first.refresh.done;
	first.refresh.done = stall_the_next;
	while (atomic_load(&f->origin->nlists) < nlists + 1)
		usleep(1000);
	refresh_begin(&second, &watch);
	refresh_begin(&third, &watch);
	atomic_store(&f->origin->list_stalls, false);
	assert_int_equal(wait_for(&first.answer), 0);
	while (atomic_load(&f->origin->nlists) < nlists + 2)
		usleep(1000);
	assert_false(is_answered(&second.answer));
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	atomic_store(&f->origin->list_stalls, false);
	assert_int_equal(wait_for(&second.answer), 0);
	assert_int_equal(second.result.nadded, 1);
	assert_int_equal(wait_for(&third.answer), 0); /* the second and the third share one listing */
	assert_int_equal(atomic_load(&f->origin->nlists), nlists + 2);
	assert_int_equal(nchanges, 1);
	ps_dataset_unwatch(&watch);
}

static void a_later_watch_receives_later_changes_only(void **state)
{
	struct fixture *f = *state;
	_Atomic unsigned nfirst = 0, nsecond = 0;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	struct ps_watch first = {.dataset = f->dataset, .changed = count_change, .arg = (void *)&nfirst};
	struct ps_watch second = {.dataset = f->dataset, .changed = count_change, .arg = (void *)&nsecond};
	ps_dataset_watch(&first);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	assert_int_equal(refresh(f, NULL), 0);
	assert_int_equal(nfirst, 1);
	ps_dataset_watch(&second);
	assert_int_equal(refresh(f, NULL), 0);
	assert_int_equal(nsecond, 0);
	ps_names_origin_set(f->origin, "c", SIZE, 1);
	assert_int_equal(refresh(f, NULL), 0);
	assert_int_equal(nfirst, 2);
	assert_int_equal(nsecond, 1);
	ps_dataset_unwatch(&first);
	ps_dataset_unwatch(&second);
}

static void each_of_many_changes_is_announced(void **state)
{
	struct fixture *f = *state;
	_Atomic unsigned nchanges = 0;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	struct ps_watch watch = {.dataset = f->dataset, .changed = count_change, .arg = (void *)&nchanges};
	ps_dataset_watch(&watch);
	atomic_store(&f->origin->list_many, 200);
	assert_int_equal(refresh(f, NULL), 0);
	assert_int_equal(nchanges, 201); /* 200 files and their folder */
	ps_dataset_unwatch(&watch);
}

/* The refresh also supersedes a version, which is deleted at the detach: the new names must stay. */
static void names_found_by_a_refresh_are_there_at_the_next_attach(void **state)
{
	struct fixture *f = *state;
	struct ps_refreshed result;
	struct ps_attr before, after, old;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "c", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "c", &old), 0);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	ps_names_origin_set(f->origin, "c", SIZE, 2);
	assert_int_equal(refresh(f, &result), 0);
	assert_int_equal(result.nfiles, 3);
	assert_int_equal(result.nadded, 1);
	assert_int_equal(result.nvanished, 0);
	assert_int_equal(lookup(f, "b", &before), 0);
	assert_int_equal(getattr(f, old.node, &after), 0); /* a holder of the node's number may still ask */
	detach(f);
	atomic_store(&f->origin->list_fails_at, 0);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "b", &after), 0);
	assert_int_equal(after.node, before.node);
	assert_int_equal(getattr(f, old.node, &after), ESTALE);
}

/* Shared ------------------------------------------------------------------------------------------------- */

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
	/* With other credentials the source is another dataset. */
	const char *const headers[] = {"Authorization: other", NULL};
	const struct ps_dataset_options others = {.origin = {.http.headers = headers}};
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

	int rc =
	        ps_dataset_attach(f->cache, "http://names/", &(struct ps_dataset_options){0}, &dataset, &err);
	return rc < 0 ? NULL : dataset;
}

static void concurrent_attaches_wait_for_the_same_dataset(void **state)
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
	usleep(20000);
	atomic_store(&not_wanted, true);
	ps_cache_wake(arg);
	return NULL;
}

static void a_cancelled_attach_ends(void **state)
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
		assert_int_equal(pthread_create(&thread, NULL, change_mind, f->cache), 0);
		struct ps_dataset *dataset = NULL;
		int rc = ps_dataset_attach(f->cache, "http://names/", &options, &dataset, &f->err);
		pthread_join(thread, NULL);
		assert_int_equal(rc, -ECANCELED);
		/* The attach closed the origin. */
		f->origin = next_origin = ps_names_origin_new();
		ps_names_origin_set(f->origin, "a", SIZE, 1);
	}
	assert_int_equal(attach(f), 0);
}

static void *attach_alone(void *arg)
{
	static const struct ps_dataset_options options;
	struct fixture *f = arg;

	return (void *)(intptr_t)ps_dataset_attach(f->cache, "http://names/", &options, &f->dataset, NULL);
}

/* Two mounts of one source: the second waits for the first one's attach, and is cancelled. */
static void a_cancelled_attach_that_waits_for_another_ends(void **state)
{
	struct fixture *f = *state;
	const struct ps_dataset_options options = {.cancelled = &not_wanted};
	struct ps_dataset *dataset = NULL;
	pthread_t first, thread;
	void *rc = NULL;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	atomic_store(&f->origin->list_stalls, true);
	assert_int_equal(pthread_create(&first, NULL, attach_alone, f), 0);
	while (atomic_load(&f->origin->nlists) == 0)
		usleep(1000);
	atomic_store(&not_wanted, false);
	assert_int_equal(pthread_create(&thread, NULL, change_mind, f->cache), 0);
	assert_int_equal(
	        ps_dataset_attach(f->cache, "http://names/", &options, &dataset, &f->err), -ECANCELED);
	assert_non_null(strstr(f->err.text, "interrupted"));
	pthread_join(thread, NULL);
	atomic_store(&f->origin->list_stalls, false);
	pthread_join(first, &rc);
	assert_int_equal((intptr_t)rc, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_listed_file_is_found_and_read),
	        TEST(a_missing_source_is_missing_at_the_second_attach_too),
	        TEST(an_empty_listing_removes_no_names),
	        TEST(a_listing_that_fails_midway_removes_no_names),
	        TEST(without_the_origin_the_stored_listing_is_used),
	        TEST(stored_names_are_hidden_after_a_refused_listing),
	        TEST(a_lookup_does_not_wait_for_a_retry_that_comes_too_late),
	        TEST(lookups_time_out_while_a_listing_stalls),
	        TEST(detaching_ends_heads_that_stall),
	        TEST(each_name_without_a_size_gets_one_head),
	        TEST(heads_under_way_hold_nothing_of_the_index),
	        TEST(a_folder_is_read_again_from_anywhere),
	        TEST(an_origin_that_fails_is_listed_less_and_less_often),
	        TEST(a_refresh_is_answered_by_a_listing_that_began_after_it),
	        TEST(a_later_watch_receives_later_changes_only),
	        TEST(each_of_many_changes_is_announced),
	        TEST(names_found_by_a_refresh_are_there_at_the_next_attach),
	        TEST(two_attaches_of_a_source_share_a_dataset),
	        TEST(concurrent_attaches_wait_for_the_same_dataset),
	        TEST(a_cancelled_attach_ends),
	        TEST(a_cancelled_attach_that_waits_for_another_ends),
	};

	return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
