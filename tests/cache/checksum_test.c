/* Checksums of whole objects, compared with values from elsewhere. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/size.h"

/* The checksums of "123456789". The CRCs are the check values of the CRC catalogue; the others are from
 * md5sum, sha*sum and git hash-object. */
static const char *const known[] = {
        "md5:25f9e794323b453885f5181f1b624d0b",
        "sha1:f7c3bc1d808e04732adf679965ccc34ca7ae3441",
        "sha256:15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
        "sha512:"
        "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274ad27fcd5811b313d681f7e55ec02d73d499c9"
        "5455b6b5bb503acf574fba8ffe85",
        "gitblob:e2e107ac61ac259b87c544f6e7a4eb03422c6c21",
        "crc32:cbf43926",
        "crc32c:e3069283",
        "crc64nvme:ae8b14860a799888",
};

static bool matches(const char *expected, const char *bytes, size_t n, size_t step, char *seen)
{
	struct ps_checksum sum;

	assert_int_equal(ps_checksum_init(&sum, expected, n), 0);
	for (size_t at = 0; at < n; at += step)
		ps_checksum_update(&sum, bytes + at, PS_MIN(step, n - at));
	bool same = ps_checksum_final(&sum, seen);
	ps_checksum_fini(&sum);
	return same;
}

static void each_algorithm_gives_its_known_value(void **state)
{
	char seen[PS_CHECKSUM_LEN];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(known); i++)
		for (size_t step = 1; step <= 9; step++) {
			(void)matches(known[i], "123456789", 9, step, seen);
			assert_string_equal(seen, known[i]);
		}
}

static void a_changed_byte_does_not_match(void **state)
{
	char seen[PS_CHECKSUM_LEN];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(known); i++) {
		assert_true(matches(known[i], "123456789", 9, 9, seen));
		assert_false(matches(known[i], "123456780", 9, 9, seen));
		assert_false(matches(known[i], "12345678", 8, 8, seen));
	}
}

static void only_known_forms_are_accepted(void **state)
{
	static const char *const bad[] = {"", ":", "sha256", "sha256:", "sha256:12",
	        "md4:25f9e794323b453885f5181f1b624d0b", "crc32c:e306928g", "crc32c:e30692833",
	        "crc32c:e3069283-2", " crc32c:e3069283", "crc32c e3069283"};
	char text[PS_CHECKSUM_LEN] = "untouched";

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
		struct ps_checksum sum;

		assert_false(ps_checksum_parse(bad[i], text));
		assert_int_equal(ps_checksum_init(&sum, bad[i], 9), -EINVAL);
	}
	assert_string_equal(text, "untouched");
	assert_true(ps_checksum_parse("CRC32C:E3069283", text));
	assert_string_equal(text, "crc32c:e3069283");
}

static void raw_bytes_become_hex_digits(void **state)
{
	char text[PS_CHECKSUM_LEN];

	(void)state;
	assert_true(ps_checksum_from_raw("CRC32C", (const uint8_t *)"\xe3\x06\x92\x83", 4, text));
	assert_string_equal(text, "crc32c:e3069283");
	assert_false(ps_checksum_from_raw("crc32c", (const uint8_t *)"\xe3\x06\x92", 3, text));
	assert_false(ps_checksum_from_raw("crc16", (const uint8_t *)"\xe3\x06", 2, text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_algorithm_gives_its_known_value),
	        cmocka_unit_test(a_changed_byte_does_not_match),
	        cmocka_unit_test(only_known_forms_are_accepted),
	        cmocka_unit_test(raw_bytes_become_hex_digits),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
