/* A shard that is read from the middle on, as by a resumed run. */
#include "config.h"

#include <errno.h>

#include "make_tar.h"
#include "shard/shard.h"

#define SAMPLES 8

static char folder[64];

static int enter(void **state)
{
	(void)state;
	folder_enter(folder);
	return 0;
}

static int leave(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

/* Writes s.tar with SAMPLES samples; returns the offset where the fifth begins. */
static uint64_t shard_write(void)
{
	const struct ps_shard_options options = {.stream = {.wake_fd = -1}};
	struct tar t = {0};
	struct ps_shard *shard;
	struct ps_sample *s;
	uint64_t offset = 0;

	for (int i = 0; i < SAMPLES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%d.txt", i);
		tar_add_text(&t, name, name);
	}
	tar_end(&t);
	tar_save(&t, "s.tar");
	shard = ps_shard_new("s.tar", 0, &options, NULL);
	assert_non_null(shard);
	while (ps_shard_next(shard, &s, NULL) == 1) {
		if (s->ordinal == 4)
			offset = s->resume_offset;
		ps_sample_free(s);
	}
	ps_shard_free(shard);
	assert_true(offset > 0);
	return offset;
}

/* Asserts that reading from the fifth sample on gives one bad sample with number 4, and no more. */
static void one_bad_from(uint64_t offset, int errnum)
{
	const struct ps_shard_options options = {.stream = {.wake_fd = -1}};
	struct ps_shard *shard = ps_shard_new("s.tar", 0, &options, NULL);
	struct ps_sample *s;

	assert_non_null(shard);
	ps_shard_start_at(shard, 4, offset);
	assert_int_equal(ps_shard_next(shard, &s, NULL), 1);
	assert_int_equal(s->ordinal, 4);
	assert_int_equal(s->bad, errnum);
	ps_sample_free(s);
	assert_int_equal(ps_shard_next(shard, &s, NULL), 0);
	ps_shard_free(shard);
}

static void a_resume_in_a_cut_or_missing_shard_gives_one_bad_sample(void **state)
{
	uint64_t offset = shard_write();

	(void)state;
	assert_int_equal(truncate("s.tar", (off_t)offset - 1024), 0); /* before the fourth sample */
	one_bad_from(offset, EBADMSG);
	one_bad_from(0, EBADMSG);
	assert_int_equal(unlink("s.tar"), 0);
	one_bad_from(offset, ENOENT);
	one_bad_from(0, ENOENT);
}

/* Writes a shard of many samples, each the text `text`, and then one that is a hard link to the first. */
static void linked_write(const char *path, const char *first, const char *text)
{
	struct tar t = {0};

	tar_add_text(&t, first, text);
	for (int i = 0; i < 2000; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%d.txt", i);
		tar_add_text(&t, name, text);
	}
	tar_add_header(&t, "link.txt", 0, '1', "7.txt");
	tar_end(&t);
	tar_save(&t, path);
}

static void a_hard_link_of_a_replaced_shard_has_no_bytes_of_another_place(void **state)
{
	const struct ps_shard_options options = {.stream = {.wake_fd = -1}};

	(void)state;
	for (int replace = 0; replace < 2; replace++) {
		struct ps_shard *shard;
		struct ps_sample *s;
		int bad = -1, rc;

		linked_write("l.tar", "x.txt", "before");
		linked_write("new.tar", "a-longer-one.txt", "after");
		shard = ps_shard_new("l.tar", 0, &options, NULL);
		assert_non_null(shard);
		assert_int_equal(ps_shard_next(shard, &s, NULL), 1);
		ps_sample_free(s);
		if (replace)
			assert_int_equal(rename("new.tar", "l.tar"), 0);
		while ((rc = ps_shard_next(shard, &s, NULL)) == 1) {
			bad = s->bad;
			ps_sample_free(s);
		}
		assert_int_equal(rc, 0);
		assert_int_equal(bad, replace ? ESTALE : 0);
		ps_shard_free(shard);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_resume_in_a_cut_or_missing_shard_gives_one_bad_sample),
	        cmocka_unit_test(a_hard_link_of_a_replaced_shard_has_no_bytes_of_another_place)};

	return cmocka_run_group_tests_name("shard", tests, enter, leave);
}
