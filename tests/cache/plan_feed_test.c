/* Lines of plans as a loader writes them, cut anywhere: which of their names are found and fetched, and
 * which lines are refused. */
#include <errno.h>

#include "policy/policy.h"
#include "prefetch/prefetch.h"
#include "tests/cache/dataset_fixture.h"

#define LINE_MAX_NBYTES (16 * TEST_MIB)
#define GUARD 64

/* The memory of a line, with bytes after it that must not change. */
static _Thread_local bool guarding; /* of this thread, which calls the feed */
static uint8_t *guarded;
static size_t guarded_nbytes;

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
	if (!guarding)
		return __real_realloc(p, n);
	guarded = __real_realloc(p, n + GUARD);
	guarded_nbytes = n;
	memset(guarded + n, 0xa5, GUARD);
	return guarded;
}

static struct ps_plan_feed *feed;

static int setup_feed(void **state)
{
	int rc = setup(state);
	struct fixture *f = *state;

	if (rc < 0)
		return rc;
	ps_names_origin_set(f->origin, "a", 0, 1);
	ps_names_origin_set(f->origin, "d/b", 0, 1);
	rc = attach(f);
	if (rc < 0)
		return rc;
	const struct ps_plan_source sources[] = {{"", f->dataset}};
	return ps_plan_feed_new(sources, 1, false, &feed);
}

static int teardown_feed(void **state)
{
	ps_plan_feed_free(ps_steal_ptr(&feed));
	return teardown(state);
}

static int64_t plan_stat(struct fixture *f, const char *what)
{
	json_t *stats = ps_plans_stats(ps_store_plans(ps_cache_store(f->cache)), 0);
	json_t *rank = json_array_get(json_object_get(stats, "ranks"), 0);
	json_t *value = json_object_get(stats, what);
	int64_t n = json_integer_value(value ? value : json_object_get(rank, what));

	json_decref(stats);
	return n;
}

static int send_text(const char *text)
{
	return ps_plan_feed_write(feed, text, strlen(text));
}

/* Sends a plan with one file. */
static int send_name(const char *name)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "{\"penstock_plan\": 1, \"job\": \"j\", \"rank\": 0, \"epoch\": 1, ");
	ps_strbuf_addf(&b, "\"files\": [\"%s\"]}\n", name);
	return send_text(ps_strbuf_peek(&b));
}

/* Names -------------------------------------------------------------------------------------------------- */

static void existing_names_are_found_and_others_are_ignored(void **state)
{
	static const struct {
		const char *before;
		size_t nlong; /* the number of letters "x" in between */
		const char *after;
		int nfound;
	} rows[] = {
	        {"a", 0, "", 1}, {"d/b", 0, "", 1}, {"x/b", 0, "", 0}, {"d/b", 0, "", 1}, {"b", 0, "", 0},
	        {"d/a", 0, "", 0}, {"d", 0, "/", 0}, {"", 0, "", 0}, {"/a", 0, "", 0}, {"d//b", 0, "", 1},
	        {"a/b", 0, "", 0}, {"", 255, "", 0}, {"", 256, "", 0}, {"", 100000, "", 0},
	        {"d/", 100000, "", 0}, {"", 255, "/b", 0}, {"", 256, "/b", 0}, {"", 4000, "/b", 0},
	        {"", 4096, "/b", 0}, {"", 100000, "/b", 0}, {"d/b", 0, "", 1}, /* the feed still works */
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		ps_autostrbuf struct ps_strbuf name = {0};

		ps_strbuf_add(&name, rows[i].before);
		for (size_t k = 0; k < rows[i].nlong; k++)
			ps_strbuf_addn(&name, "x", 1);
		ps_strbuf_add(&name, rows[i].after);
		assert_int_equal(send_name(ps_strbuf_peek(&name)), 0);
		if (plan_stat(f, "files") != rows[i].nfound)
			fail_msg("row %zu", i);
	}
}

/* A name that is longer than any path may exist in the index, below the folder of a mount. */
static void a_folder_deeper_than_a_path_is_ignored(void **state)
{
	enum { DEPTH = 40, FIRST_NODE = 1000000 };
	struct fixture *f = *state;
	struct ps_index_batch *batch = ps_index_batch_new();
	ps_autostrbuf struct ps_strbuf path = {0};
	uint64_t parent = ps_dataset_root(f->dataset);
	char name[256];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (uint64_t i = 0; i < DEPTH; i++) {
		ps_index_batch_put_child(batch, parent, name, FIRST_NODE + i);
		ps_strbuf_addf(&path, "%s/", name);
		parent = FIRST_NODE + i;
	}
	ps_index_batch_put_child(batch, parent, "b", FIRST_NODE + DEPTH);
	assert_int_equal(ps_index_batch_commit(ps_store_index(ps_cache_store(f->cache)), batch), 0);
	ps_strbuf_add(&path, "b");
	assert_int_equal(send_name(ps_strbuf_peek(&path)), 0);
	assert_int_equal(plan_stat(f, "files"), 0);
	assert_int_equal(send_name("d/b"), 0);
	assert_int_equal(plan_stat(f, "files"), 1);
}

/* The mount has two sources, each in a folder of its own. */
static void a_name_is_looked_up_in_its_source_s_folder(void **state)
{
	static const struct {
		const char *name;
		int nfound;
	} rows[] = {{"x/a", 1}, {"xy/a", 1}, {"a", 0}, {"y/a", 0}, {"xa", 0}, {"x", 0}, {"x/d/b", 1},
	        {"xy/d/b", 1}, {"x/x/a", 0}, {"xyz/a", 0}};
	struct fixture *f = *state;
	const struct ps_plan_source sources[] = {{"x", f->dataset}, {"xy", f->dataset}};

	ps_plan_feed_free(feed);
	assert_int_equal(ps_plan_feed_new(sources, 2, false, &feed), 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		assert_int_equal(send_name(rows[i].name), 0);
		if (plan_stat(f, "files") != rows[i].nfound)
			fail_msg("%s", rows[i].name);
	}
}

/* Lines -------------------------------------------------------------------------------------------------- */

static void lines_may_be_cut_anywhere(void **state)
{
	static const char text[] = "{\"penstock_plan\": 1, \"job\": \"j\", \"rank\": 0, \"epoch\": 1, "
	                           "\"files\": [\"a\", \"d/b\", \"none\"]}\n"
	                           "\n \t\r\n{\"penstock_other\": 1}\n";
	struct fixture *f = *state;

	for (size_t piece = 1; piece < sizeof(text); piece += piece < 8 ? 1 : 13) {
		for (size_t at = 0; at < sizeof(text) - 1; at += piece) {
			size_t n = PS_MIN(piece, sizeof(text) - 1 - at);

			assert_int_equal(ps_plan_feed_write(feed, text + at, n), 0);
		}
		assert_int_equal(plan_stat(f, "files"), 2);
		ps_plan_feed_free(feed);
		assert_int_equal(plan_stat(f, "active"), 0);
		assert_int_equal(plan_stat(f, "memory_bytes"), 0);
		const struct ps_plan_source sources[] = {{"", f->dataset}};
		assert_int_equal(ps_plan_feed_new(sources, 1, false, &feed), 0);
	}
}

static void after_a_refused_line_the_next_is_accepted(void **state)
{
	static const char *const bad[] = {"hello\n", "{\"penstock_plan\": 1}\n", "\x01\n", "{}}\n"};
	struct fixture *f = *state;

	for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
		assert_int_equal(send_text(bad[i]), -EINVAL);
		assert_int_equal(send_name(i % 2 ? "a" : "none"), 0);
		assert_int_equal(plan_stat(f, "files"), i % 2);
	}
	assert_int_equal(ps_plan_feed_write(feed, "{\0}\n", 4), -EINVAL);
	assert_int_equal(ps_plan_feed_write(feed, "\0\n", 2), -EINVAL);
	assert_int_equal(send_name("d/b"), 0);
}

/* The line takes no more memory than the longest permitted line; its rest is ignored. */
static void a_line_without_an_end_is_refused_once(void **state)
{
	struct fixture *f = *state;
	char *piece = malloc(TEST_MIB);

	memset(piece, 'x', TEST_MIB);
	for (unsigned i = 1; i <= 20; i++) {
		int e = ps_plan_feed_write(feed, piece, TEST_MIB);

		assert_int_equal(e, i == LINE_MAX_NBYTES / TEST_MIB + 1 ? -E2BIG : 0);
		assert_in_range(plan_stat(f, "memory_bytes"), TEST_MIB, LINE_MAX_NBYTES);
	}
	free(piece);
	assert_int_equal(send_text("{}\n"), 0); /* the line's end */
	assert_int_equal(plan_stat(f, "memory_bytes"), 0);
	assert_int_equal(send_name("a"), 0);
	assert_int_equal(plan_stat(f, "files"), 1);
}

static void a_line_stays_within_its_memory(void **state)
{
	static const uint8_t untouched[GUARD] = {[0 ... GUARD - 1] = 0xa5};
	static const char many[] = "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";
	bool right = true;

	(void)state;
	for (size_t first = 1; first < 40; first++) {
		int rc = 0;

		guarding = true;
		for (size_t n = 0; n < 100 && rc == 0; n += n ? 1 : first) {
			rc = n ? send_text("x") : ps_plan_feed_write(feed, many, first);
			right = right && memcmp(guarded + guarded_nbytes, untouched, GUARD) == 0;
		}
		int end = send_text("\n");
		right = right && memcmp(guarded + guarded_nbytes, untouched, GUARD) == 0;
		guarding = false;
		assert_int_equal(rc, 0);
		assert_int_equal(end, -EINVAL);
		assert_true(right);
		struct ps_plan_source source = {"", ((struct fixture *)*state)->dataset};
		ps_plan_feed_free(feed);
		assert_int_equal(ps_plan_feed_new(&source, 1, false, &feed), 0);
	}
}

/* Users other than the mount's owner and root get a part of the memory. */
static void lines_of_other_users_are_bounded_by_their_share(void **state)
{
	struct fixture *f = *state;
	const struct ps_plan_source source = {"", f->dataset};
	struct ps_plan_feed *feeds[4] = {0};
	char *piece = malloc(TEST_MIB);
	unsigned nrefused = 0;

	memset(piece, 'x', TEST_MIB);
	for (size_t i = 0; i < PS_ARRAY_LEN(feeds); i++) {
		assert_int_equal(ps_plan_feed_new(&source, 1, true, &feeds[i]), 0);
		for (unsigned k = 0; k < 12; k++) {
			int rc = ps_plan_feed_write(feeds[i], piece, TEST_MIB);

			assert_true(rc == 0 || rc == -ENOSPC);
			nrefused += rc != 0;
		}
		assert_in_range(
		        plan_stat(f, "memory_bytes"), 0, PS_PLANS_MAX_NBYTES / PS_PLANS_OTHER_USERS_SHARE);
	}
	assert_true(nrefused >= 2);
	free(piece);
	for (size_t i = 0; i < PS_ARRAY_LEN(feeds); i++)
		ps_plan_feed_free(feeds[i]);
	assert_int_equal(plan_stat(f, "memory_bytes"), 0);
}

/* What is fetched ---------------------------------------------------------------------------------------- */

static bool is_cached(struct fixture *f, uint64_t node)
{
	struct ps_node_info info = {0};

	assert_int_equal(ps_node_info_get(f->dataset, node, &info), 0);
	bool cached = strcmp(info.state, "cached") == 0;
	ps_node_info_fini(&info);
	return cached;
}

/* The file's head, its last block, and everything between. */
static void a_planned_file_is_fetched_whole(void **state)
{
	static const uint64_t sizes[] = {
	        1, TEST_MIB, 2 * TEST_MIB, 2 * TEST_MIB + 1, 3 * TEST_MIB, 9 * TEST_MIB + 5};
	struct fixture *f = *state;
	struct ps_attr attrs[PS_ARRAY_LEN(sizes)];
	ps_autostrbuf struct ps_strbuf names = {0};
	char name[8];

	for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
		snprintf(name, sizeof(name), "f%zu", i);
		ps_names_origin_set(f->origin, name, sizes[i], 1);
		ps_strbuf_addf(&names, "%s%s", i ? "\", \"" : "", name);
	}
	assert_int_equal(refresh(f, NULL), 0);
	assert_int_equal(send_name(ps_strbuf_peek(&names)), 0);
	assert_int_equal(plan_stat(f, "files"), PS_ARRAY_LEN(sizes));
	for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
		snprintf(name, sizeof(name), "f%zu", i);
		assert_int_equal(lookup(f, name, &attrs[i]), 0);
		for (int k = 0; k < 1000 && !is_cached(f, attrs[i].node); k++)
			usleep(10000);
		if (!is_cached(f, attrs[i].node))
			fail_msg("a file of %llu bytes is not cached", (unsigned long long)sizes[i]);
	}
}

/* The version that an earlier attach found may be old: it is revalidated first, with at most one get. */
static void a_planned_version_is_revalidated_before_it_is_fetched(void **state)
{
	struct fixture *f = *state;
	struct ps_attr attr;

	ps_plan_feed_free(feed);
	ps_names_origin_set(f->origin, "a", SIZE, 1);
	assert_int_equal(refresh(f, NULL), 0);
	detach(f);
	ps_names_origin_set(f->origin, "a", SIZE, 2);
	atomic_store(&f->origin->list_stalls, true);
	assert_int_equal(attach(f), 0);
	const struct ps_plan_source source = {"", f->dataset};
	assert_int_equal(ps_plan_feed_new(&source, 1, false, &feed), 0);
	assert_int_equal(send_name("a"), 0);
	for (int k = 0; k < 1000 && atomic_load(&f->origin->nheads) == 0; k++)
		usleep(10000);
	assert_int_equal(atomic_load(&f->origin->nheads), 1);
	assert_in_range(atomic_load(&f->origin->ngets), 0, 1);
	assert_int_equal(lookup(f, "a", &attr), 0);
	assert_int_equal(attr.mtime_s, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_feed, teardown_feed)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(existing_names_are_found_and_others_are_ignored),
	        TEST(a_folder_deeper_than_a_path_is_ignored),
	        TEST(a_name_is_looked_up_in_its_source_s_folder),
	        TEST(lines_may_be_cut_anywhere),
	        TEST(after_a_refused_line_the_next_is_accepted),
	        TEST(a_line_without_an_end_is_refused_once),
	        TEST(a_line_stays_within_its_memory),
	        TEST(lines_of_other_users_are_bounded_by_their_share),
	        TEST(a_planned_file_is_fetched_whole),
	        TEST(a_planned_version_is_revalidated_before_it_is_fetched),
	};

	return cmocka_run_group_tests_name("plan-feed", tests, NULL, NULL);
}
