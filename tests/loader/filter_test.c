/* Filters: for which values an expression holds, and which expressions are invalid. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "order/filter.h"

static struct ps_column_value integer(int64_t v)
{
	return (struct ps_column_value){.type = PS_COLUMN_INT, .integer = v, .number = (double)v};
}

static struct ps_column_value real(double v)
{
	return (struct ps_column_value){.type = PS_COLUMN_FLOAT, .number = v};
}

static struct ps_column_value word(const char *v)
{
	return (struct ps_column_value){.type = PS_COLUMN_TEXT, .text = v, .text_len = strlen(v)};
}

/* Whether an expression holds for its one column's value: 1 or 0. -EINVAL if it is invalid, or for this
 * value. */
static int says(const char *text, struct ps_column_value value)
{
	struct ps_column_value values[PS_FILTER_MAX_COLUMNS] = {value};
	struct ps_error err = {0};
	struct ps_filter *f;
	int rc = ps_filter_new(text, &f, &err);

	if (rc == 0) {
		rc = ps_filter_test(f, values, &err);
		ps_filter_free(f);
	}
	if (rc < 0)
		assert_true(err.text[0]);
	return rc;
}

static void numbers_are_parsed_to_the_nearest_double(void **state)
{
	static const struct {
		const char *text;
		double v;
	} equal[] = {{"0.1", 0.1}, {"+.5", 0.5}, {"5.", 5}, {"-2.5e-3", -2.5e-3}, {"1e23", 1e23},
	        {"4.9e-324", 4.9e-324}, {"1.7976931348623157e308", 1.7976931348623157e308},
	        {"0e999", 0}, /* not zero times infinity */
	        {"1e999", (double)INFINITY}, {"1e-99999999999999999999", 0}};
	char filter[64];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(equal); i++) {
		snprintf(filter, sizeof(filter), "a == %s", equal[i].text);
		assert_int_equal(says(filter, real(equal[i].v)), 1);
		assert_int_equal(says(filter, real(equal[i].v - 1e300)), isinf(equal[i].v));
	}
}

static void large_integers_are_compared_exactly(void **state)
{
	(void)state;
	assert_int_equal(says("a == 9007199254740993", integer(9007199254740993)), 1);
	assert_int_equal(says("a == 9007199254740993", integer(9007199254740992)), 0);
	assert_int_equal(says("a > -9007199254740993", integer(-9007199254740992)), 1);
	assert_int_equal(says("a < 99999999999999999999", integer(INT64_MAX)), 1);
	assert_int_equal(says("a > -99999999999999999999", integer(INT64_MIN)), 1);
}

static void texts_are_compared_byte_by_byte(void **state)
{
	(void)state;
	assert_int_equal(says("a == 'cat'", word("cat")), 1);
	assert_int_equal(says("a == 'cat'", word("cats")), 0);
	assert_int_equal(says("a < \"it's\"", word("it")), 1);
	assert_int_equal(says("a >= ''", word("")), 1);
}

static void comparisons_with_missing_values_are_false(void **state)
{
	const struct ps_column_value missing = {.missing = true};

	(void)state;
	assert_int_equal(says("a == 1", missing), 0);
	assert_int_equal(says("a != 1", missing), 0);
	assert_int_equal(says("!(a == 1)", missing), 1);
	assert_int_equal(says("a == 1 || a != 'x'", missing), 0);
	assert_int_equal(says("a != 1", real((double)NAN)), 1);
	assert_int_equal(says("a <= 1 || a >= 1", real((double)NAN)), 0);
}

static void and_binds_stronger_than_or(void **state)
{
	(void)state;
	assert_int_equal(says("a == 1 || a == 2 && a == 3", integer(1)), 1);
	assert_int_equal(says("(a == 1 || a == 2) && a == 3", integer(1)), 0);
	assert_int_equal(says("!a == 1 && a == 2", integer(2)), 1);
}

static void comparing_a_number_with_a_text_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(says("a == 3", word("3")), -EINVAL);
	assert_int_equal(says("a == '3'", integer(3)), -EINVAL);
	struct ps_column_value values[PS_FILTER_MAX_COLUMNS] = {word("3")};
	struct ps_error err = {0};
	struct ps_filter *f;
	assert_int_equal(ps_filter_new("a == 3", &f, &err), 0);
	assert_int_equal(ps_filter_test(f, values, &err), -EINVAL);
	assert_non_null(strstr(err.text, "filter \"a == 3\": column \"a\" holds texts, which "));
	ps_filter_free(f);
}

#define EIGHT(c) c c c c c c c c
#define BRACKETS(c) EIGHT(EIGHT(c)) EIGHT(c)

static void invalid_filters_are_refused(void **state)
{
	static const char *const texts[] = {"", " ", "a", "a ==", "a == 1.2.3", "a == -", "a == .",
	        "a == nan", "a == 0x10", "a == 'x", "a = 1", "(a == 1", "a == 1)", "a == 1 b",
	        "a == 1 & b == 2", "a == 1 ||", "1 == a", "a == 12b"};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++)
		assert_int_equal(says(texts[i], integer(1)), -EINVAL);
	for (int depth = PS_FILTER_MAX_DEPTH - 2; depth < PS_FILTER_MAX_DEPTH + 3; depth++) {
		char text[2 * PS_FILTER_MAX_DEPTH + 32];

		snprintf(text, sizeof(text), "%.*s a == 1 %.*s", depth, BRACKETS("("), depth, BRACKETS(")"));
		assert_int_equal(says(text, integer(1)), depth < PS_FILTER_MAX_DEPTH ? 1 : -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(numbers_are_parsed_to_the_nearest_double),
	        cmocka_unit_test(large_integers_are_compared_exactly),
	        cmocka_unit_test(texts_are_compared_byte_by_byte),
	        cmocka_unit_test(comparisons_with_missing_values_are_false),
	        cmocka_unit_test(and_binds_stronger_than_or),
	        cmocka_unit_test(comparing_a_number_with_a_text_is_an_error),
	        cmocka_unit_test(invalid_filters_are_refused),
	};

	return cmocka_run_group_tests_name("filter", tests, NULL, NULL);
}
