/* Brace expansion, compared with results of Python's braceexpand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/braces.h"

static const struct {
	const char *text, *expanded; /* joined by blanks */
} sound[] = {
        {"", ""},
        {"plain.tar", "plain.tar"},
        {"x-{000..003}.tar", "x-000.tar x-001.tar x-002.tar x-003.tar"},
        {"{07..10}", "07 08 09 10"},
        {"{9..11}", "9 10 11"},
        {"{001..2}", "001 002"},
        {"{4..1}", "4 3 2 1"},
        {"{2..-1}", "2 1 0 -1"},
        {"{-01..1}", "-01 000 001"},
        {"{0..10..5}", "0 5 10"},
        {"{10..0..-5}", "10 5 0"},
        {"{0..10..0}", "0 1 2 3 4 5 6 7 8 9 10"},
        {"{5..5}", "5"},
        {"{a..c}", "a b c"},
        {"{a..g..3}", "a d g"},
        {"{c..a}", "c b a"},
        {"{Y..b}", "Y Z a b"},
        {"{C..A}", "C B A"},
        {"{a,b}", "a b"},
        {"x{,y}", "x xy"},
        {"{a,b}{1,2}", "a1 a2 b1 b2"},
        {"p{2.{5..7},3.{2,3}}", "p2.5 p2.6 p2.7 p3.2 p3.3"},
        {"{x}", "{x}"},
        {"{}", "{}"},
        {"{a{b,c}}", "{ab} {ac}"},
        {"{1..}", "{1..}"},
        {"{1..a}", "{1..a}"},
        {"{1..2..}", "{1..2..}"},
        {"{a..bb}", "{a..bb}"},
        {"\\{a,b\\}", "{a,b}"},
        {"{a\\,b,c}", "a,b c"},
        {"a\\\\b", "a\\b"},
        {"a,b", "a,b"},
        {"{1{2,3},4}", "12 13 4"},
        {"{-9223372036854775808..-9223372036854775807}", "-9223372036854775808 -9223372036854775807"},
        {"{-9223372036854775808..9223372036854775807..9223372036854775807}",
                "-9223372036854775808 -1 9223372036854775806"},
};

static void patterns_expand_as_with_braceexpand(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(sound); i++) {
		struct ps_braces *b = NULL;
		ps_autostrbuf struct ps_strbuf out = {0};

		assert_int_equal(ps_braces_parse(sound[i].text, 1000, &b, NULL), 0);
		for (uint64_t k = 0; k < ps_braces_count(b); k++) {
			if (k)
				ps_strbuf_addc(&out, ' ');
			ps_braces_add(b, k, &out);
		}
		assert_string_equal(ps_strbuf_peek(&out), sound[i].expanded);
		ps_braces_free(b);
	}
}

static void invalid_patterns_are_refused(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *says;
	} bad[] = {
	        {"{a", -EINVAL, "a \"{\" without its \"}\" (write \\{ for the character)"},
	        {"a}", -EINVAL, "a \"}\" without its \"{\" (write \\} for the character)"},
	        {"{1{2,3}", -EINVAL, "a \"{\" without"},
	        {"}{", -EINVAL, "a \"}\" without"},
	        {"{0..1000}", -E2BIG, "stands for more than 1000 names"},
	        {"{0..99}{0..99}", -E2BIG, "stands for more than 1000 names"},
	        {"{0..9223372036854775807}{0..9223372036854775807}", -E2BIG, "names"},
	        {"{-9223372036854775808..9223372036854775807}", -E2BIG, "names"},
	        {"{0..99999999999999999999}", -ERANGE, "a number is too large"},
	        {"{0..9..9223372036854775808}", -ERANGE, "a number is too large"},
	        {"{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{a,b}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}", -EINVAL,
	                "braces nested too deep"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
		struct ps_braces *b = NULL;
		struct ps_error err = {0};

		assert_int_equal(ps_braces_parse(bad[i].text, 1000, &b, &err), bad[i].rc);
		if (strncmp(err.text, "brace expansion: ", 17) != 0 || !strstr(err.text, bad[i].says))
			fail_msg("%s: \"%s\", not \"%s\"", bad[i].text, err.text, bad[i].says);
		assert_null(b);
	}
}

static void results_are_available_by_number(void **state)
{
	struct ps_braces *b = NULL;
	ps_autostrbuf struct ps_strbuf out = {0};

	(void)state;
	assert_int_equal(ps_braces_parse("x-{000000..999999}-{a,b}", 2000000, &b, NULL), 0);
	assert_int_equal(ps_braces_count(b), 2000000);
	ps_braces_add(b, 1234567, &out);
	assert_string_equal(ps_strbuf_peek(&out), "x-617283-b");
	ps_braces_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(patterns_expand_as_with_braceexpand),
	        cmocka_unit_test(invalid_patterns_are_refused),
	        cmocka_unit_test(results_are_available_by_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
