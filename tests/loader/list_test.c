#include "config.h"

#include "shard/shard.h"

#include <errno.h>
#include <sys/stat.h>

#include "make_tar.h"

/* The names that a pattern expands to, separated by spaces; or NULL and an errno. */
struct row {
	const char *pattern;
	const char *names;
	int err;
};

static void check_row(const struct row *row)
{
	struct ps_shard_list list = {0};
	struct ps_error err = {0};
	char have[4096] = "";
	int rc = ps_shard_list_add(&list, row->pattern, &err);

	if (!row->names) {
		if (rc != -row->err)
			fail_msg("%s: %d, not %d", row->pattern, rc, -row->err);
		assert_int_equal(list.n, 0);
		assert_true(err.text[0] && !strchr(err.text, '\n'));
	} else {
		if (rc < 0)
			fail_msg("%s: %s", row->pattern, err.text);
		for (size_t i = 0; i < list.n; i++) {
			strcat(have, i ? " " : "");
			strcat(have, list.names[i]);
		}
		assert_string_equal(have, row->names);
	}
	ps_shard_list_fini(&list);
}

static void braces_expand_as_in_webdataset(void **state)
{
	static const struct row rows[] = {
	        {"plain.tar", "plain.tar", 0},
	        {"s-{000..003}.tar", "s-000.tar s-001.tar s-002.tar s-003.tar", 0},
	        {"{8..11}", "8 9 10 11", 0},
	        {"{08..11}", "08 09 10 11", 0},
	        {"{0..2}", "0 1 2", 0},
	        {"{3..1}", "3 2 1", 0},
	        {"{2..-1}", "2 1 0 -1", 0},
	        {"{-01..1}", "-01 000 001", 0},
	        {"{1..10..4}", "1 5 9", 0},
	        {"{1..5..-2}", "1 3 5", 0},
	        {"{1..3..0}", "1 2 3", 0},
	        {"{5..5}", "5", 0},
	        {"{a..e}", "a b c d e", 0},
	        {"{a..g..3}", "a d g", 0},
	        {"{e..a..2}", "e c a", 0},
	        {"{Y..b}", "Y Z a b", 0},
	        {"{b..A..30}", "b", 0},
	        {"{a,b}{1,2}", "a1 a2 b1 b2", 0},
	        {"x{,.b}", "x x.b", 0},
	        {"python{2.{5..7},3.{2,3}}", "python2.5 python2.6 python2.7 python3.2 python3.3", 0},
	        {"{a,{b,c}d}", "a bd cd", 0},
	        {"{a}", "{a}", 0},
	        {"{}", "{}", 0},
	        {"{a{1,2}}", "{a1} {a2}", 0},
	        {"{1..a}", "{1..a}", 0},
	        {"{1..2..3..4}", "{1..2..3..4}", 0},
	        {"{1\\{2,3}", "1{2 3", 0},
	        {"a\\{0..2\\}", "a{0..2}", 0},
	        {"{a\\,b,c}", "a,b c", 0},
	        {"{a,b\\}}", "a b}", 0},
	        {"a\\\\b", "a\\b", 0},
	        {"a\\", "a\\", 0},
	        {"a::b{1,2}", "a b1 b2", 0},
	        {"{a,b", NULL, EINVAL},
	        {"a}", NULL, EINVAL},
	        {"}{", NULL, EINVAL},
	        {"{1{2,3}", NULL, EINVAL},
	        {"", NULL, EINVAL},
	        {"a::", NULL, EINVAL},
	        {"x{,}"
	         "",
	                "x x", 0},
	        {"{,}", NULL, EINVAL},
	        {"{0..99999999}", NULL, E2BIG},
	        {"{0..9999}{0..9999}", NULL, E2BIG},
	        {"{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{a}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}", NULL, EINVAL},
	        {"@no/such/list", NULL, ENOENT},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++)
		check_row(&rows[i]);
	struct ps_shard_list list = {0};
	struct ps_error err = {0};
	assert_int_equal(
	        ps_shard_list_add(&list,
	                "{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{a,b}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}", &err),
	        -EINVAL);
	assert_non_null(strstr(err.text, "braces nested too deep"));
}

static void list_files_have_one_pattern_per_line(void **state)
{
	static const char text[] = "# shards\n\n  a-{0..1}.tar \t\r\nb.tar\nlast.tar";
	static const char bad[] = "a.tar\nb{.tar\n";
	char folder[64];
	struct ps_shard_list list = {0};
	struct ps_error err = {0};

	(void)state;
	folder_enter(folder);
	file_write("list", text, sizeof(text) - 1);
	file_write("bad", bad, sizeof(bad) - 1);
	file_write("none", "#\n", 2);
	assert_int_equal(ps_shard_list_add(&list, "first.tar", &err), 0);
	assert_int_equal(ps_shard_list_add(&list, "@list", &err), 0);
	assert_int_equal(list.n, 5);
	assert_string_equal(list.names[1], "a-0.tar");
	assert_string_equal(list.names[4], "last.tar");
	assert_int_equal(ps_shard_list_add(&list, "@bad", &err), -EINVAL);
	assert_non_null(strstr(err.text, "bad:2: "));
	assert_int_equal(ps_shard_list_add(&list, "@none", &err), -EINVAL);
	assert_int_equal(list.n, 5); /* an error leaves the list as it was */
	ps_shard_list_fini(&list);
	folder_leave(folder);
}

static void folders_and_wildcards_expand_to_existing_files(void **state)
{
	static const struct row rows[] = {
	        {"d", "d/a.tar.zst d/b.tar d/b[1].tar d/z.tgz", 0},
	        {"d/", "d/a.tar.zst d/b.tar d/b[1].tar d/z.tgz", 0},
	        {"d/*.tar", "d/b.tar d/b[1].tar d/folder.tar", 0}, /* wildcards match folders, too */
	        {"d/b*.tar::d/[az].*", "d/b.tar d/b[1].tar d/a.tar.zst d/a.txt d/z.tgz", 0},
	        {"d/{z,a,b}.t*", "d/z.tgz d/a.tar.zst d/a.txt d/b.tar", 0}, /* sorted for each of z, a, b */
	        {"d/b[1].tar", "d/b[1].tar", 0},                            /* a file has this very name */
	        {"{d,d/b.tar}", "d d/b.tar", 0}, /* a folder among other names is an error when it is read */
	        {"https://host/a.tar?x=1", "https://host/a.tar?x=1", 0},
	        {"d/*.webm", NULL, ENOENT},
	        {"d/b.tar::d/*.webm", NULL, ENOENT},
	        {"d/empty", NULL, ENOENT},
	};
	static const char *const files[] = {
	        "d/z.tgz", "d/b.tar", "d/b[1].tar", "d/a.tar.zst", "d/a.txt", "d/.hidden.tar", "d/.tar"};
	char folder[64];

	(void)state;
	folder_enter(folder);
	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(mkdir("d/empty", 0755), 0);
	assert_int_equal(mkdir("d/folder.tar", 0755), 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(files); i++)
		file_write(files[i], "", 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++)
		check_row(&rows[i]);
	folder_leave(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(braces_expand_as_in_webdataset),
	        cmocka_unit_test(list_files_have_one_pattern_per_line),
	        cmocka_unit_test(folders_and_wildcards_expand_to_existing_files),
	};
	return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
