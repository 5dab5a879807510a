/* Conversion of elements between any two types, in either byte order: an exact value is converted, the first
 * inexact one stops the conversion. The oracle here computes in long double. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "batch/fields.h"

/* Bits of elements; a type uses the low bits. They include the limits of all integer types and, for the float
 * types, 1, the limits and other values. */
static const uint64_t patterns[] = {0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0x102, 0x7fff, 0x8000, 0xffff, 0x10000,
        0x01020304, 0xff7f, 0xff80, 0xffffff7f, 0xffff7fff, 0xffff8000, UINT64_C(0xffffffff7fffffff),
        0x7fffffff, 0x80000000, 0xffffffff, UINT64_C(0x100000000), UINT64_C(0x0102030405060708), INT64_MAX,
        UINT64_C(1) << 63, UINT64_MAX, UINT64_C(1) << 53, (UINT64_C(1) << 53) + 1, 0x3c00, 0xbc00, 0x7bff,
        0x7c00, 0x7e00, 0x0001, 0x3f80, 0x4049, 0x3f800000, 0xbf800000, 0x40490fdb, 0x4f000000, 0x4f7fffff,
        0x5f000000, 0x5f800000, 0x7f800000, 0x7fc00000, 0x42fe0000, 0x47000000, UINT64_C(0x3ff0000000000000),
        UINT64_C(0x400921fb54442d18), UINT64_C(0xc3e0000000000000), UINT64_C(0x43e0000000000000),
        UINT64_C(0x43f0000000000000), UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff8000000000000),
        UINT64_C(0x4330000000000001), UINT64_C(0xbff8000000000000), UINT64_C(0x8000000000000000)};

static long double value_of(enum ps_dtype t, const uint8_t *p)
{
	union {
		uint8_t bytes[8];
		uint16_t u16;
		uint32_t u32;
		uint64_t u64;
		int8_t i8;
		int16_t i16;
		int32_t i32;
		int64_t i64;
		float f;
		double d;
	} v = {{0}};

	memcpy(v.bytes, p, ps_dtype_nbytes(t));
	switch (t) {
	case PS_U8:
		return v.bytes[0];
	case PS_BOOL:
		return v.bytes[0] != 0;
	case PS_I8:
		return v.i8;
	case PS_U16:
		return v.u16;
	case PS_I16:
		return v.i16;
	case PS_U32:
		return v.u32;
	case PS_I32:
		return v.i32;
	case PS_U64:
		return v.u64;
	case PS_I64:
		return v.i64;
	case PS_F32:
		return (long double)v.f;
	case PS_F64:
		return (long double)v.d;
	case PS_BF16:
		v.u32 = (uint32_t)v.u16 << 16;
		return (long double)v.f;
	case PS_F16: {
		int e = v.u16 >> 10 & 31;
		long double m = v.u16 & 1023;
		long double x = e == 31 ? (m > 0 ? (long double)NAN : (long double)INFINITY)
		                        : ldexpl(e ? m + 1024 : m, e ? e - 25 : -24);

		return v.u16 & 0x8000 ? -x : x;
	}
	case PS_NDTYPES:
		break;
	}
	return 0;
}

/* Whether type t holds x exactly. */
static bool fits(long double x, enum ps_dtype t)
{
	static const struct {
		long double low, high;
	} range[PS_NDTYPES] = {
	        [PS_U8] = {0, 255},
	        [PS_BOOL] = {0, 1},
	        [PS_I8] = {-128, 127},
	        [PS_U16] = {0, 65535},
	        [PS_I16] = {-32768, 32767},
	        [PS_U32] = {0, 4294967295.0L},
	        [PS_I32] = {-2147483648.0L, 2147483647.0L},
	        [PS_U64] = {0, 18446744073709551615.0L},
	        [PS_I64] = {-9223372036854775808.0L, 9223372036854775807.0L},
	};
	int e, digits = t == PS_F16 ? 11 : t == PS_BF16 ? 8 : t == PS_F32 ? 24 : 53;
	int low = t == PS_F16 ? -24 : t == PS_BF16 ? -133 : t == PS_F32 ? -149 : -1074;
	int high = t == PS_F16 ? 16 : t == PS_F64 ? 1024 : 128;

	if (range[t].high > 0)
		return isfinite(x) && x == truncl(x) && x >= range[t].low && x <= range[t].high;
	if (!isfinite(x) || x == 0)
		return true;
	long double m = ldexpl(frexpl(x, &e), digits); /* an integer, if the type has enough digits */
	return m == truncl(m) && e <= high && ldexpl(x, -low) == truncl(ldexpl(x, -low));
}

static void check_one(enum ps_dtype from, bool swapped, enum ps_dtype to, uint64_t bits)
{
	size_t in = ps_dtype_nbytes(from), out = ps_dtype_nbytes(to);
	uint8_t plain[8], src[3 * 8 + 1];
	uint64_t dst[3] = {0};

	for (size_t i = 0; i < in; i++)
		plain[i] = (uint8_t)(bits >> 8 * i);
	long double x = value_of(from, plain);
	bool exact = fits(x, to);

	memset(src, 0, sizeof(src));
	for (size_t i = 0; i < in; i++) /* zero, the element, zero; at an odd address */
		src[1 + in + i] = plain[swapped ? in - 1 - i : i];
	size_t n = ps_convert(from, swapped, src + 1, to, dst, 3);
	if (n != (exact ? 3u : 1u))
		fail_msg("%s%s to %s of %#jx (%Lg): %zu elements", swapped ? "swapped " : "",
		        ps_dtype_name(from), ps_dtype_name(to), (uintmax_t)bits, x, n);
	if (!exact)
		return;
	long double y = value_of(to, (const uint8_t *)dst + out);
	bool lost_sign = ps_dtype_is_float(from) && ps_dtype_is_float(to) && signbit(x) != signbit(y);
	if (!(isnan(x) && isnan(y)) && (x != y || lost_sign))
		fail_msg("%s%s to %s of %#jx: %Lg is not %Lg", swapped ? "swapped " : "", ps_dtype_name(from),
		        ps_dtype_name(to), (uintmax_t)bits, y, x);
	assert_true(
	        value_of(to, (const uint8_t *)dst) == 0 && value_of(to, (const uint8_t *)dst + 2 * out) == 0);
}

/* Float targets are rounded as ps_number_store_rounded() does, but no finite number becomes infinite. */
static void check_rounded(enum ps_dtype from, bool swapped, enum ps_dtype to, uint64_t bits)
{
	size_t in = ps_dtype_nbytes(from), out = ps_dtype_nbytes(to);
	uint8_t plain[8], src[8], want[8] = {0};
	uint64_t dst = 0;

	for (size_t i = 0; i < in; i++)
		src[swapped ? in - 1 - i : i] = plain[i] = (uint8_t)(bits >> 8 * i);
	long double x = value_of(from, plain);
	struct ps_number number = ps_number_load(from, false, plain);
	bool stored = ps_number_store_rounded(&number, to, want);
	size_t n = ps_convert_rounded(from, swapped, src, to, &dst, 1);

	if (!ps_dtype_is_float(to)) {
		assert_true(n == (fits(x, to) ? 1u : 0u));
		return;
	}
	assert_true(stored);
	if (isfinite(x) && !isfinite(value_of(to, want))) {
		assert_int_equal(n, 0);
		return;
	}
	assert_int_equal(n, 1);
	if (memcmp(&dst, want, out) != 0 && !(isnan(x) && isnan(value_of(to, (const uint8_t *)&dst))))
		fail_msg("%s%s to %s of %#jx", swapped ? "swapped " : "", ps_dtype_name(from),
		        ps_dtype_name(to), (uintmax_t)bits);
}

static void every_type_converts_to_every_type_in_either_byte_order(void **state)
{
	(void)state;
	for (int from = 0; from < PS_NDTYPES; from++)
		for (int to = 0; to < PS_NDTYPES; to++)
			for (size_t i = 0; i < PS_ARRAY_LEN(patterns); i++)
				for (int swapped = 0; swapped < 2; swapped++) {
					check_one(
					        (enum ps_dtype)from, swapped, (enum ps_dtype)to, patterns[i]);
					check_rounded(
					        (enum ps_dtype)from, swapped, (enum ps_dtype)to, patterns[i]);
				}
}

static void large_integers_are_rounded_once(void **state)
{
	static const struct {
		uint64_t v;
		float want;
	} cases[] = {{(UINT64_C(1) << 60) + (UINT64_C(1) << 36) + 1, 0x1.000002p60f}, /* past a tie */
	        {(UINT64_C(1) << 60) + (UINT64_C(1) << 36), 0x1p60f},                 /* a tie, to even */
	        {(UINT64_C(1) << 60) + (UINT64_C(3) << 36), 0x1.000004p60f},
	        {(UINT64_C(1) << 60) + (UINT64_C(3) << 36) - 1, 0x1.000002p60f}, {UINT64_MAX, 0x1p64f},
	        {(UINT64_C(1) << 53) + 1, 0x1p53f}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		struct ps_number number = ps_number_load(PS_U64, false, (const uint8_t *)&cases[i].v);
		uint16_t bf16;
		float got;

		assert_true(ps_number_store_rounded(&number, PS_F32, &got));
		assert_true(got == cases[i].want);
		assert_true(ps_number_store_rounded(&number, PS_BF16, &bf16));
		assert_true(ps_float_of_bf16(bf16) ==
		            (cases[i].v == UINT64_MAX ? 0x1p64f : ldexpf(1, ilogbf(got))));
	}
}

static void minus_zero_is_zero_where_no_sign_is_allowed(void **state)
{
	struct ps_number number;
	uint8_t byte = 9;

	(void)state;
	assert_null(ps_number_integer((const uint8_t *)"-0", 2, &number));
	assert_true(ps_number_store(&number, PS_U8, &byte));
	assert_int_equal(byte, 0);
	assert_null(ps_number_integer((const uint8_t *)"-1", 2, &number));
	assert_false(ps_number_store(&number, PS_U8, &byte));
}

/* Lengths, dimensions and types in an npy header are untrusted. A file is parsed in memory of exactly its
 * length. */
static void npy_headers_are_accepted_or_refused_with_a_reason(void **state)
{
	static const struct {
		const char *head;
		size_t nbytes;    /* after the header */
		const char *says; /* the error's text; NULL: accepted */
	} heads[] = {
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }", 12, NULL},
	        {"{'shape': (), 'descr': '|u1', 'fortran_order': False}", 1, NULL},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (2L, 3L)}", 12, NULL},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }", 11,
	                "the npy file is truncated: its array has 6 elements"},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }", 13,
	                "the npy file has 1 bytes after its array"},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 0,
	                "2^64 elements or more"},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (9223372036854775808,), }", 0,
	                "the npy file is truncated"},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (18446744073709551616,), }", 0,
	                "header is damaged"},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': "
	         "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
	                2, "header is damaged"},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (2,), 'shape': (3,)}", 12,
	                "header is damaged"},
	        {"{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (2,)}", 4,
	                "header is damaged"},
	        {"{'descr': '<i2', 'shape': (2,)}", 4, "header is damaged"},
	        {"{'descr': '<i2', 'fortran_order': Perhaps, 'shape': (2,)}", 4, "header is damaged"},
	        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}", 16,
	                "the npy file has elements \"c8\""},
	        {"{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (2,)}", 4,
	                "the npy file holds structures"},
	        {"{'descr': '<i2', 'fortran_order': False, 'shape': (2,)} x", 4, "header is damaged"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(heads); i++) {
		for (int version = 1; version <= 3; version++) {
			size_t len = strlen(heads[i].head), at = version == 1 ? 10 : 12,
			       n = at + len + heads[i].nbytes;
			uint8_t *file = calloc(n, 1);
			struct ps_error err = {0};
			struct ps_npy npy;

			memcpy(file, "\x93NUMPY", 6);
			file[6] = (uint8_t)version;
			file[8] = (uint8_t)len;
			memcpy(file + at, heads[i].head, len);
			int rc = ps_npy_parse(file, n, &npy, &err);
			if (heads[i].says ? rc != -EBADMSG || !strstr(err.text, heads[i].says) : rc != 0)
				fail_msg("%s: %d, \"%s\"", heads[i].head, rc, err.text);
			/* Truncated at any byte, and with a header longer than the file. */
			for (size_t cut = 0; cut < n && !heads[i].says; cut++) {
				uint8_t *exact = malloc(cut ? cut : 1);

				memcpy(exact, file, cut);
				assert_int_equal(ps_npy_parse(exact, cut, &npy, &err), -EBADMSG);
				free(exact);
			}
			for (size_t more = 1; more < 200 && !heads[i].says; more++) {
				file[8] = (uint8_t)PS_MIN(len + heads[i].nbytes + more, 255u);
				assert_int_equal(ps_npy_parse(file, n, &npy, &err), -EBADMSG);
				assert_string_equal(err.text, "the npy file is truncated in its header");
			}
			free(file);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_type_converts_to_every_type_in_either_byte_order),
	        cmocka_unit_test(large_integers_are_rounded_once),
	        cmocka_unit_test(minus_zero_is_zero_where_no_sign_is_allowed),
	        cmocka_unit_test(npy_headers_are_accepted_or_refused_with_a_reason),
	};

	return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
