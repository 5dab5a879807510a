/* Merging listings into the index: names for which several files compete, and files whose URLs change. */
#include <errno.h>

#include "tests/cache/dataset_fixture.h"

#define MANY 10000

/* Makes walks of the index fail, as with a damaged index. */
static _Atomic bool walks_fail;

int __real_ps_index_children_open(struct ps_index *index, uint64_t parent, struct ps_index_children **ret);
int __wrap_ps_index_children_open(struct ps_index *index, uint64_t parent, struct ps_index_children **ret);
int __wrap_ps_index_children_open(struct ps_index *index, uint64_t parent, struct ps_index_children **ret)
{
	return atomic_load(&walks_fail) ? -EIO : __real_ps_index_children_open(index, parent, ret);
}

/* Waits until the listing has ended, and returns the number of files in the statistics. */
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

/* Checks what a folder shows, in order: "name name/ ", with a slash for folders. */
static void shows(struct fixture *f, uint64_t dir_node, const char *names)
{
	char text[1024] = "";
	struct ps_attr attr;
	struct ps_dir *dir;
	const char *name;
	int rc;

	assert_int_equal(ps_dir_open(f->dataset, dir_node, &dir), 0);
	for (uint64_t pos = 0; (rc = ps_dir_read(dir, pos, true, &name, &attr)) > 0; pos++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s ", name,
		        attr.is_dir ? "/" : "");
	assert_int_equal(rc, 0);
	ps_dir_close(dir);
	assert_string_equal(text, names);
}

/* The node that the root folder shows for a name. */
static uint64_t node_of(struct fixture *f, const char *name)
{
	struct ps_attr attr;
	struct ps_dir *dir;
	const char *found = "";

	assert_int_equal(ps_dir_open(f->dataset, ps_dataset_root(f->dataset), &dir), 0);
	for (uint64_t pos = 0; strcmp(found, name) != 0; pos++)
		assert_int_equal(ps_dir_read(dir, pos, false, &found, &attr), 1);
	ps_dir_close(dir);
	return attr.node;
}

/* A file keeps its name if a shard's decoded view would have the same one, whichever is listed first; the
 * shard is then shown raw. A listing without changes changes no node number. */
static void a_decoded_view_gives_way_to_a_file_of_the_same_name(void **state)
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
		uint64_t plain = 0, packed = 0;
		struct ps_attr attr;

		ps_names_origin_set(f->origin, rows[i].first, 1000, 1);
		ps_names_origin_set(f->origin, rows[i].second, 1000, 1);
		/* Rows of an earlier listing make no difference. */
		for (int again = 0; again < 2; again++) {
			assert_int_equal(attach(f), 0);
			assert_int_equal(listed_files(f), 2);
			shows(f, ps_dataset_root(f->dataset), rows[i].shown);
			const char *other = strstr(rows[i].shown, ".gz") ? "s.tar.gz" : "s.tgz";
			assert_true(!again || (node_of(f, "s.tar") == plain && node_of(f, other) == packed));
			plain = node_of(f, "s.tar");
			packed = node_of(f, other);
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

		snprintf(want, sizeof(want), "%07u.tar", (unsigned)n);
		assert_string_equal(name, want);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(n, MANY);
	ps_dir_close(d);
}

/* In the second and third listing another file seems to have each file's name: the index has the name with
 * another URL. */
static void all_files_may_change_their_urls(void **state)
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

/* Of two shards whose decoded views have the same name, the second is shown raw, even if thousands of other
 * files are listed in between and all URLs have changed. */
static void a_name_stays_taken_however_many_urls_change(void **state)
{
	struct fixture *f = *state;
	char last[32];

	snprintf(last, sizeof(last), "many/%07d.tgz", MANY - 1);
	for (int i = 0; i < 2; i++) {
		ps_names_origin_set(f->origin, last, 1000, 1);
		atomic_store(&f->origin->list_many, MANY);
		atomic_store(&f->origin->list_elsewhere, i);
		assert_int_equal(attach(f), 0);
		assert_int_equal(listed_files(f), MANY + 1);
		struct ps_attr dir, attr;
		assert_int_equal(lookup(f, "many", &dir), 0);
		snprintf(last, sizeof(last), "%07d.tar.gz", MANY - 1);
		assert_int_equal(lookup_in(f, dir.node, last, &attr), 0);
		snprintf(last, sizeof(last), "many/%07d.tgz", MANY - 1);
		detach(f);
	}
}

/* If such a listing counted as a success, names that are gone would count as confirmed. */
static void a_listing_whose_end_fails_has_failed(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	assert_int_equal(attach(f), 0);
	ps_names_origin_set(f->origin, "b", PS_SIZE_UNKNOWN, 1);
	atomic_store(&walks_fail, true);
	int errnum = refresh(f, NULL);
	atomic_store(&walks_fail, false);
	assert_int_equal(errnum, EIO);
	assert_int_equal(lookup(f, "b", &attr), 0);
	assert_int_equal(refresh(f, NULL), 0);
	assert_int_equal(lookup(f, "b", &attr), ENOENT);
}

/* A HEAD has found the file since the listing began. */
static void a_file_that_a_listing_missed_and_a_head_found_stays(void **state)
{
	struct fixture *f = *state;
	struct ps_attr before, after;

	ps_names_origin_set(f->origin, "a", SIZE, 1);
	ps_names_origin_set(f->origin, "b", SIZE, 1);
	ps_names_origin_set(f->origin, "c", SIZE, 1);
	assert_int_equal(attach(f), 0);
	detach(f);
	atomic_store(&f->origin->list_stalls, true);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "b", &before), 0);
	assert_int_equal(atomic_load(&f->origin->nheads), 1);
	{
		PS_LOCK_SCOPE(&f->origin->lock);
		f->origin->entries[1].unlisted = f->origin->entries[2].unlisted = true;
	}
	atomic_store(&f->origin->list_stalls, false);
	assert_int_equal(listed_files(f), 1);
	assert_int_equal(lookup(f, "b", &after), 0);
	assert_int_equal(after.node, before.node);
	assert_int_equal(lookup(f, "c", &after), ENOENT); /* there was no HEAD for c */
}

/* A size alone does not identify a version. */
static void a_size_without_a_date_or_an_etag_needs_a_head(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	atomic_store(&f->origin->list_no_etags, true);
	atomic_store(&f->origin->list_no_dates, true);
	ps_names_origin_set(f->origin, "a", SIZE, 5);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.size, SIZE);
	assert_int_equal(attr.mtime_s, 5); /* from the answer to the HEAD */
}

/* A listing without versions does not confirm the known versions. */
static void a_listing_without_versions_confirms_none(void **state)
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

/* Nor does such a listing confirm what a HEAD found for an earlier attach. */
static void a_listing_without_versions_confirms_no_earlier_head(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	atomic_store(&f->origin->list_sizes, false);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(attach(f), 0);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 1);
	detach(f);
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	assert_int_equal(attach(f), 0);
	assert_int_equal(listed_files(f), 1);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 2);
}

static void damage(struct fixture *f, uint64_t node)
{
	struct ps_index *index = ps_store_index(ps_cache_store(f->cache));
	struct ps_index_batch *batch = ps_index_batch_new();
	struct ps_index_key key;

	ps_index_key_node(&key, 'N', node);
	ps_kv_batch_put(batch, key.bytes, key.n, "?", 1);
	assert_int_equal(ps_kv_write(index->kv, batch, 0, NULL), 0);
	ps_index_batch_free(batch);
}

/* The damaged rows are those of a name that still exists, of one that is gone, and of a folder. */
static void a_listing_repairs_damaged_rows(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	for (int i = 0; i < 4; i++)
		ps_names_origin_set(f->origin, (const char *[]){"a", "b", "c", "d/e"}[i], SIZE, 1);
	assert_int_equal(attach(f), 0);
	for (int i = 1; i < 4; i++)
		damage(f, node_of(f, (const char *[]){"a", "b", "c", "d"}[i]));
	ps_names_origin_set(f->origin, "c", PS_SIZE_UNKNOWN, 1);
	assert_int_equal(refresh(f, NULL), 0);
	shows(f, ps_dataset_root(f->dataset), "a b d/ ");
	assert_int_equal(lookup(f, "b", &attr), 0);
	assert_int_equal(lookup(f, "c", &attr), ENOENT);
	assert_int_equal(lookup(f, "d", &attr), 0);
	shows(f, attr.node, "e ");
}

/* A folder that cannot be listed for a while is not gone. */
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
	        TEST(a_decoded_view_gives_way_to_a_file_of_the_same_name),
	        TEST(all_files_may_change_their_urls),
	        TEST(a_name_stays_taken_however_many_urls_change),
	        TEST(a_listing_whose_end_fails_has_failed),
	        TEST(a_file_that_a_listing_missed_and_a_head_found_stays),
	        TEST(a_size_without_a_date_or_an_etag_needs_a_head),
	        TEST(a_listing_without_versions_confirms_none),
	        TEST(a_listing_without_versions_confirms_no_earlier_head),
	        TEST(a_listing_repairs_damaged_rows),
	        TEST(a_folder_that_could_not_be_read_keeps_its_names),
	};

	return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
