/* The errors of both programs, ps_error and ps_error, follow one contract. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

static void test_without_an_error_the_code_is_returned(void **state)
{
	(void)state;
	assert_int_equal(ps_error_set(NULL, ENOENT, "x"), -ENOENT);
	assert_int_equal(ps_error_prefix(NULL, -ENOENT, "x"), -ENOENT);
}

static void test_a_prefix_keeps_the_text_and_the_codes(void **state)
{
	struct ps_error err = {.err = EACCES, .http_status = 403, .retryable = true, .text = "refused"};

	(void)state;
	assert_int_equal(ps_error_prefix(&err, -EACCES, "GET %d", 7), -EACCES);
	assert_string_equal(err.text, "GET 7: refused");
	assert_true(err.err == EACCES && err.http_status == 403 && err.retryable);
}

static void test_a_prefix_of_no_error_is_the_error(void **state)
{
	struct ps_error err = {.text = "a note"};

	(void)state;
	assert_int_equal(ps_error_prefix(&err, -EPROTO, "page %d", 7), -EPROTO);
	assert_string_equal(err.text, "page 7");
	assert_int_equal(err.err, EPROTO);
}

static void test_a_prefix_is_not_put_before_a_text_of_another_cause(void **state)
{
	struct ps_error err = {.err = EAGAIN, .retryable = true, .text = "the credentials are being fetched"};

	(void)state;
	assert_int_equal(ps_error_prefix(&err, -EPROTO, "not the listing of a bucket"), -EPROTO);
	assert_string_equal(err.text, "not the listing of a bucket: Protocol error");
	assert_true(err.err == EPROTO && !err.retryable);
}

static void test_arguments_may_point_into_the_text(void **state)
{
	struct ps_error err = {.err = EIO, .http_status = 500, .text = "one"};

	(void)state;
	assert_int_equal(ps_error_set(&err, EINVAL, "%s, two", err.text), -EINVAL);
	assert_string_equal(err.text, "one, two");
	assert_true(err.err == EINVAL && err.http_status == 0);
}

/* "é" has two bytes in UTF-8; one of them alone is invalid. */
static void test_long_texts_are_cut_between_characters(void **state)
{
	char text[2 * PS_ERROR_TEXT_LEN];
	struct ps_error err = {0};

	(void)state;
	for (size_t shift = 0; shift < 2; shift++) {
		memset(text, 'x', sizeof(text));
		for (size_t i = shift; i + 2 < sizeof(text); i += 2)
			memcpy(text + i, "\xc3\xa9", 2);
		text[sizeof(text) - 1] = '\0';
		ps_error_set(&err, EINVAL, "%s", text);
		assert_int_equal(strlen(err.text), PS_ERROR_TEXT_LEN - 2 + (shift == 1));
		ps_error_prefix(&err, -EINVAL, "%s", text);
		assert_int_equal(strlen(err.text), PS_ERROR_TEXT_LEN - 2 + (shift == 1));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_without_an_error_the_code_is_returned),
	        cmocka_unit_test(test_a_prefix_keeps_the_text_and_the_codes),
	        cmocka_unit_test(test_a_prefix_of_no_error_is_the_error),
	        cmocka_unit_test(test_a_prefix_is_not_put_before_a_text_of_another_cause),
	        cmocka_unit_test(test_arguments_may_point_into_the_text),
	        cmocka_unit_test(test_long_texts_are_cut_between_characters),
	};

	return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
