/* Missing shards are reported when the loader is opened: those that this rank reads, from the place where it
 * begins. */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "make_tar.h"
#include "shard_errors.h"

#define MANY (PS_MISSING_LIST + 200)
#define BATCH 16
#define SAMPLES (4 * BATCH) /* of a shard: more than one block of samples */

static char folder[64];

static void shard_write(const char *path)
{
	struct tar t = {0};
	char name[16];

	for (int i = 0; i < SAMPLES; i++) {
		snprintf(name, sizeof(name), "%02d.cls", i);
		tar_add_text(&t, name, "1");
	}
	tar_end(&t);
	tar_save(&t, path);
}

static int setup(void **state)
{
	char name[64];

	(void)state;
	folder_enter(folder);
	assert_int_equal(mkdir("many", 0700), 0);
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "t-%d.tar", i);
		shard_write(name);
	}
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many/%04d.tar", i);
		file_write(name, "", 0);
	}
	return 0;
}

static int teardown(void **state)
{
	char name[64];

	(void)state;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "many/%04d.tar", i);
		(void)unlink(name);
	}
	assert_int_equal(rmdir("many"), 0);
	folder_leave(folder);
	return 0;
}

struct setting {
	struct penstock_options o;
	struct penstock_field f;
};

static void setting_init(struct setting *s)
{
	memset(s, 0, sizeof(*s));
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f, sizeof(s->f), "cls", PENSTOCK_INT64);
	s->o.fields = &s->f;
	s->o.nfields = 1;
	s->o.batch = BATCH;
	s->o.epochs = 1;
	s->o.threads = 1;
	s->o.memory_budget = 64 << 20;
}

static int opens(const struct setting *s, const char *const *shards, size_t n, struct penstock_error *e)
{
	struct penstock_loader *l;
	int rc = penstock_loader_open(&s->o, shards, n, &l, e);

	if (rc == 0)
		penstock_loader_close(l);
	return rc;
}

static void refused(const struct setting *s, const char *shards, const char *want)
{
	struct penstock_error e = {0};

	assert_int_equal(opens(s, &shards, 1, &e), -ENOENT);
	assert_int_equal(e.code, ENOENT);
	if (strncmp(e.text, want, strlen(want)) != 0)
		fail_msg("\"%s\" does not begin with \"%s\"", e.text, want);
}

static void accepted(const struct setting *s, const char *shards)
{
	struct penstock_error e = {0};

	if (opens(s, &shards, 1, &e) != 0)
		fail_msg("%s", e.text);
}

static void a_missing_shard_is_named(void **state)
{
	struct setting s;

	(void)state;
	setting_init(&s);
	accepted(&s, "t-{0..3}.tar");
	refused(&s, "t-{0..4}.tar", "t-4.tar: No such file or directory; check the path");
	refused(&s, "gone.tar::t-{2..6}.tar",
	        "gone.tar: No such file or directory (and 3 more of the shards); ");
	refused(&s, "t-0.tar::no-folder/x.tar", "no-folder/x.tar: No such file");
	refused(&s, "t-0.tar::t-1.tar/x.tar", "t-1.tar/x.tar: No such file");
	assert_int_equal(symlink("nowhere", "dangling.tar"), 0);
	refused(&s, "dangling.tar", "dangling.tar: No such file");
	assert_int_equal(unlink("dangling.tar"), 0);
}

static void missing_shards_are_accepted_with_on_error_skip(void **state)
{
	struct setting s;

	(void)state;
	setting_init(&s);
	s.o.on_error = PENSTOCK_SKIP;
	accepted(&s, "t-{0..4}.tar");
}

/* A folder of many shards is listed: a missing file is found, and a symbolic link is accepted. */
static void a_missing_shard_is_named_among_many(void **state)
{
	struct setting s;
	char all[64];

	(void)state;
	setting_init(&s);
	snprintf(all, sizeof(all), "many/{0000..%04d}.tar", MANY - 1);
	accepted(&s, all);
	assert_int_equal(rename("many/0300.tar", "moved.tar"), 0);
	refused(&s, all, "many/0300.tar: No such file or directory; ");
	assert_int_equal(symlink("../moved.tar", "many/0300.tar"), 0);
	accepted(&s, all);
	assert_int_equal(unlink("many/0300.tar"), 0);
	assert_int_equal(rename("moved.tar", "many/0300.tar"), 0);
	snprintf(all, sizeof(all), "many/{0000..%04d}.tar::many/0001.tar", MANY + 9);
	refused(&s, all, "many/0712.tar: No such file or directory (and 9 more of the shards); ");
}

/* The folder has many more files than shards: the listing is stopped, and names are looked up one by one. */
static void a_missing_shard_is_named_in_a_folder_too_large_to_list(void **state)
{
	struct setting s;
	char name[64], all[64];

	(void)state;
	setting_init(&s);
	for (int i = 0; i < 5 * MANY; i++) {
		snprintf(name, sizeof(name), "many/other-%d", i);
		file_write(name, "", 0);
	}
	snprintf(all, sizeof(all), "many/{0000..%04d}.tar", MANY - 1);
	accepted(&s, all);
	assert_int_equal(rename("many/0711.tar", "moved.tar"), 0);
	refused(&s, all, "many/0711.tar: No such file");
	assert_int_equal(rename("moved.tar", "many/0711.tar"), 0);
	for (int i = 0; i < 5 * MANY; i++) {
		snprintf(name, sizeof(name), "many/other-%d", i);
		assert_int_equal(unlink(name), 0);
	}
}

/* With order none each rank has its own shards, which may be on its own disk only. */
static void shards_of_another_rank_may_be_missing(void **state)
{
	static const char *const pattern = "t-0.tar::gone-1.tar::t-2.tar::gone-3.tar";
	struct setting s;

	(void)state;
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	s.o.world = 2;
	s.o.end = PENSTOCK_END_UNEVEN;
	s.o.rank = 0;
	accepted(&s, pattern);
	s.o.rank = 1;
	refused(&s, pattern, "gone-1.tar: No such file or directory (and 1 more of the shards); ");
}

/* A shard that a state has passed may be missing. */
static void shards_before_a_state_may_be_missing(void **state)
{
	static const char *const shards[] = {"first.tar", "t-0.tar"};
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct setting s;
	uint8_t saved[4096];
	int n = 0;

	(void)state;
	shard_write("first.tar");
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	assert_int_equal(penstock_loader_open(&s.o, shards, 2, &l, &e), 0);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(penstock_loader_next(l, &b, &e), 1);
		penstock_batch_release(b);
		n = penstock_loader_state_save(l, saved, sizeof(saved), &e);
		assert_true(n > 0);
	}
	penstock_loader_close(l);
	assert_int_equal(unlink("first.tar"), 0);
	assert_int_equal(opens(&s, shards, 2, &e), -ENOENT);
	s.o.state = saved;
	s.o.state_nbytes = (size_t)n;
	assert_int_equal(opens(&s, shards, 2, &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_missing_shard_is_named),
	        cmocka_unit_test(missing_shards_are_accepted_with_on_error_skip),
	        cmocka_unit_test(a_missing_shard_is_named_among_many),
	        cmocka_unit_test(a_missing_shard_is_named_in_a_folder_too_large_to_list),
	        cmocka_unit_test(shards_of_another_rank_may_be_missing),
	        cmocka_unit_test(shards_before_a_state_may_be_missing),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
