/* Listings into the index: names that several files want, and files that come under other URLs. */
#include <errno.h>

#include "tests/cache/dataset_fixture.h"

#define MANY 10000

/* What stats say of the files, once the listing is over. */
static unsigned listed_files(struct fixture *f)
{
	for (;;) {
		json_t *stats = ps_dataset_stats(f->dataset);
		bool listing = json_is_true(json_object_get(stats, "listing"));
		unsigned n = (unsigned)json_integer_value(json_object_get(stats, "files"));

		json_decref(stats);
		if (!listing)
			return n;
		usleep(1000);
	}
}

/* "name name/ ": what a folder shows, in order. */
static void shows(struct fixture *f, uint64_t dir_node, const char *names)
{
	char text[1024] = "";
	struct ps_attr attr;
	struct ps_dir *dir;
	const char *name;
	int rc;

	assert_int_equal(ps_dir_open(f->dataset, dir_node, &dir), 0);
	for (uint64_t pos = 0; (rc = ps_dir_read(dir, pos, true, &name, &attr)) > 0; pos++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s ", name,
		        attr.is_dir ? "/" : "");
	assert_int_equal(rc, 0);
	ps_dir_close(dir);
	assert_string_equal(text, names);
}

/* A file with the name that a shard's contents would have keeps it, whichever is listed first; the shard is
 * shown as it is. */
static void a_shard_gives_way(void **state)
{
	static const struct {
		const char *first, *second, *shown;
	} rows[] = {
	        {"s.tar.gz", "s.tar", "s.tar s.tar.gz "},
	        {"s.tar", "s.tar.gz", "s.tar s.tar.gz "},
	        {"s.tar.gz", "s.tar/x", "s.tar/ s.tar.gz "},
	        {"s.tar/x", "s.tar.gz", "s.tar/ s.tar.gz "},
	        {"s.tgz", "s.tar/x", "s.tar/ s.tgz "},
	        {"s.tar.gz", "s.tgz", "s.tar s.tgz "},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_attr attr;

		ps_names_origin_set(f->origin, rows[i].first, 1000, 1);
		ps_names_origin_set(f->origin, rows[i].second, 1000, 1);
		/* And what was there before makes no difference: */
		for (int again = 0; again < 2; again++) {
			assert_int_equal(attach(f), 0);
			assert_int_equal(listed_files(f), 2);
			shows(f, ps_dataset_root(f->dataset), rows[i].shown);
			if (strchr(rows[i].shown, '/')) {
				assert_int_equal(lookup(f, "s.tar", &attr), 0);
				assert_true(attr.is_dir);
				shows(f, attr.node, "x ");
			}
			detach(f);
		}
		ps_names_origin_set(f->origin, rows[i].first, PS_SIZE_UNKNOWN, 1);
		ps_names_origin_set(f->origin, rows[i].second, PS_SIZE_UNKNOWN, 1);
	}
}

static void count_many(struct fixture *f)
{
	struct ps_attr dir, attr;
	struct ps_dir *d;
	const char *name;
	uint64_t n = 0;
	int rc;

	assert_int_equal(lookup(f, "many", &dir), 0);
	assert_int_equal(ps_dir_open(f->dataset, dir.node, &d), 0);
	for (; (rc = ps_dir_read(d, n, false, &name, &attr)) > 0; n++) {
		char want[32];

		snprintf(want, sizeof want, "%07u.tar", (unsigned)n);
		assert_string_equal(name, want);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(n, MANY);
	ps_dir_close(d);
}

/* Each of them looks at first as if another file had its name. */
static void all_files_may_move(void **state)
{
	struct fixture *f = *state;

	atomic_store(&f->origin->list_many, MANY);
	for (int i = 0; i < 3; i++) {
		atomic_store(&f->origin->list_elsewhere, i % 2);
		assert_int_equal(attach(f), 0);
		assert_int_equal(listed_files(f), MANY);
		count_many(f);
		detach(f);
		atomic_store(&f->origin->list_many, MANY);
	}
}

/* A size alone says too little of the version: two of one size would be one. */
static void a_size_without_a_date_or_an_etag_is_asked_for(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	atomic_store(&f->origin->list_no_etags, true);
	atomic_store(&f->origin->list_no_dates, true);
	ps_names_origin_set(f->origin, "a", SIZE, 5);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.size, SIZE);
	assert_int_equal(attr.mtime_s, 5); /* as the origin told when it was asked */
}

/* A listing of names alone does not say that what is known of them still holds. */
static void a_listing_that_tells_no_version_confirms_none(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(atomic_load(&f->origin->nheads), 0);
	detach(f);
	atomic_store(&f->origin->list_sizes, false);
	assert_int_equal(attach(f), 0);
	assert_int_equal(listed_files(f), 1);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(atomic_load(&f->origin->nheads), 1);
}

/* What may not be listed for a while has not gone. */
static void a_folder_that_could_not_be_read_keeps_its_names(void **state)
{
	struct fixture *f = *state;
	struct ps_attr dir;

	ps_names_origin_set(f->origin, "d/x", SIZE, 1);
	ps_names_origin_set(f->origin, "d/e/y", SIZE, 1);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(listed_files(f), 3);
	detach(f);
	ps_names_origin_set(f->origin, "d/x", PS_SIZE_UNKNOWN, 1);
	ps_names_origin_set(f->origin, "d/e/y", PS_SIZE_UNKNOWN, 1);
	ps_names_origin_set(f->origin, "d", SIZE, 1);
	for (size_t i = 0; i < TEST_NAMES; i++)
		f->origin->entries[i].unread = strcmp(f->origin->entries[i].path, "d") == 0;
	assert_int_equal(attach(f), 0);
	assert_int_equal(listed_files(f), 3);
	assert_int_equal(lookup(f, "d", &dir), 0);
	shows(f, dir.node, "e/ x ");
	shows(f, ps_dataset_root(f->dataset), "a d/ ");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_shard_gives_way),
	        TEST(all_files_may_move),
	        TEST(a_size_without_a_date_or_an_etag_is_asked_for),
	        TEST(a_listing_that_tells_no_version_confirms_none),
	        TEST(a_folder_that_could_not_be_read_keeps_its_names),
	};

	return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
