/* Values of fields other than images: how members of a tar become elements. */
#include "config.h"

#include "fields_fixture.h"

#include <errno.h>
#include <math.h>

#include "batches.h"

static void int64_fields_convert_to_any_dtype(void **state)
{
	static const struct {
		uint32_t dtype;
		const char *text;
		uint64_t bits;
		size_t size;
		const char *refused;
	} rows[] = {
	        {PENSTOCK_I64, "-9223372036854775808\n", UINT64_C(1) << 63, 8, "9223372036854775808"},
	        {PENSTOCK_U64, "18446744073709551615", UINT64_MAX, 8, "-1"},
	        {PENSTOCK_U8, " 255 ", 255, 1, "256"},
	        {PENSTOCK_I8, "-128", 0x80, 1, "128"},
	        {PENSTOCK_U16, "65535", 65535, 2, "65536"},
	        {PENSTOCK_I16, "+32767", 32767, 2, "32768"},
	        {PENSTOCK_U32, "4294967295", UINT32_MAX, 4, "4294967296"},
	        {PENSTOCK_I32, "-1", UINT32_MAX, 4, "2147483648"},
	        {PENSTOCK_BOOL, "1", 1, 1, "2"},
	        {PENSTOCK_F32, "16777216", 0x4b800000, 4, "16777217"},
	        {PENSTOCK_F16, "2048", 0x6800, 2, "2049"},
	        {PENSTOCK_BF16, "256", 0x4380, 2, "257"},
	        {PENSTOCK_F64, "-3", UINT64_C(0xc008000000000000), 8, "9007199254740993"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct setting s;
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_tensor n;

		field_set(setting_init(&s, 1), "cls", PENSTOCK_INT64);
		s.f[0].dtype = rows[i].dtype;
		one_text("cls", rows[i].text);
		l = open_ok(&s.o, pattern, 1);
		b = next_ok(l);
		n = tensor(b, "cls");
		SHAPE(n, 1);
		assert_int_equal(n.nbytes, rows[i].size);
		assert_memory_equal(n.data, &rows[i].bits, rows[i].size);
		penstock_loader_close(l);
		one_text("cls", rows[i].refused);
		bad_because(&s.o, rows[i].dtype == PENSTOCK_I64 ? "i64 cannot hold" : "cannot hold");
	}
}

static void errors_show_the_text_that_is_no_integer(void **state)
{
	static const char *const rows[][2] = {
	        {" photo 1\n", "not an integer (digits, with or without a sign): \"photo 1\""},
	        {"1_000", ": \"1_000\""}, {"+", "it has no digits: \"+\""}, {"3.0", ": \"3.0\""},
	        {"a123456789b123456789c123456789d123456789e",
	                ": \"a123456789b123456789c123456789d123456789...\""},
	        {"99999999999999999999", "an integer beyond 64 bits: \"99999999999999999999\""}};
	struct setting s;

	(void)state;
	setting_init(&s, 1);
	field_set(&s.f[0], "num", PENSTOCK_INT64);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		one_text("num", rows[i][0]);
		bad_because(&s.o, rows[i][1]);
	}
}

static void floats_are_rounded_to_their_type(void **state)
{
	static const struct {
		uint32_t dtype;
		const char *text;
		uint64_t bits;
		size_t size;
	} rows[] = {
	        {PENSTOCK_F64, "0.1\n", UINT64_C(0x3fb999999999999a), 8}, {PENSTOCK_F64, "1e-400", 0, 8},
	        {PENSTOCK_F64, "123456789012345678901234567890", UINT64_C(0x45f8ee90ff6c373e), 8},
	        {PENSTOCK_F32, "0.1", 0x3dcccccd, 4}, {PENSTOCK_F32, "-Infinity", 0xff800000, 4},
	        {PENSTOCK_F16, "65504", 0x7bff, 2}, {PENSTOCK_F16, "65520", 0x7c00, 2},
	        {PENSTOCK_F16, "6e-8", 0x0001, 2}, {PENSTOCK_F16, "-0", 0x8000, 2},
	        {PENSTOCK_BF16, "3.140625", 0x4049, 2},
	        {PENSTOCK_BF16, "1.00390625", 0x3f80, 2},            /* a tie goes to even */
	        {PENSTOCK_BF16, "1.0039062500000000001", 0x3f80, 2}, /* the same tie as a double */
	        {PENSTOCK_BF16, "1.00390625000001", 0x3f81, 2},      /* no tie, though one as a float */
	};
	static const char *const refused[] = {"", "x", "0x10", "1 2", "1_000", "nan(1)", "--1", "1e"};
	struct setting s;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct penstock_loader *l;
		struct penstock_tensor n;

		field_set(setting_init(&s, 1), "num", PENSTOCK_FLOAT);
		s.f[0].dtype = rows[i].dtype;
		one_text("num", rows[i].text);
		l = open_ok(&s.o, pattern, 1);
		n = tensor(next_ok(l), "num");
		assert_int_equal(n.nbytes, rows[i].size);
		if (memcmp(n.data, &rows[i].bits, rows[i].size) != 0)
			fail_msg("%s as dtype %u", rows[i].text, rows[i].dtype);
		penstock_loader_close(l);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		one_text("num", refused[i]);
		bad_because(&s.o, "not a number");
	}
}

static void npy_arrays_need_the_fields_shape_and_exact_values(void **state)
{
	static const float c[] = {1, 2, 3, 4, 5, 6};
	static const double d[] = {1, 4, 2, 5, 3, 6}; /* Fortran order: the first index changes fastest */
	static const uint8_t big[] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6};
	struct tar t = {0};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_tensor a;

	(void)state;
	member_npy(&t, 0, "npy", "<f4", false, "(2, 3)", c, sizeof(c));
	member_npy(&t, 1, "npy", "<f8", true, "(2, 3)", d, sizeof(d));
	member_npy(&t, 2, "npy", ">i2", false, "(2, 3)", big, sizeof(big));
	shard_end(&t);
	field_set(setting_init(&s, 1), "npy", PENSTOCK_NPY);
	s.f[0].ndim = 2;
	s.f[0].shape[0] = 2;
	s.f[0].shape[1] = 3;
	l = open_ok(&s.o, pattern, 1);
	a = tensor(next_ok(l), "npy");
	SHAPE(a, 3, 2, 3);
	HOLDS(a, float, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6);
	penstock_loader_close(l);

	member_npy(&t, 0, "npy", "<f4", false, "(3, 2)", c, sizeof(c));
	shard_end(&t);
	bad_because(&s.o, "the array has shape (3, 2), but the field has (2, 3)");
	member_npy(&t, 0, "npy", "<f4", false, "(1, 3)", c, 12);
	shard_end(&t);
	bad_because(&s.o,
	        "the array has shape (1, 3), but the field has (2, 3); a first dimension of 0 takes "
	        "any length");
	member_npy(&t, 0, "npy", "<f8", false, "(2, 3)", (double[]){1, 2, 3, 4, 5, 0.1}, 48);
	shard_end(&t);
	bad_because(&s.o, "element 5, a f64, has no exact value in f32; choose another dtype, or for "
	                  "rounding nearest");
	s.f[0].rounding = PENSTOCK_ROUNDING_NEAREST;
	l = open_ok(&s.o, pattern, 1);
	a = tensor(next_ok(l), "npy");
	HOLDS(a, float, 1, 2, 3, 4, 5, 0.1f);
	penstock_loader_close(l);
	member_npy(&t, 0, "npy", "<f8", false, "(2, 3)", (double[]){1, 2, 3, 4, 5, 1e300}, 48);
	shard_end(&t);
	bad_because(&s.o, "element 5, a f64, has no finite value in f32");
	s.f[0].rounding = PENSTOCK_ROUNDING_EXACT;
	member_npy(&t, 0, "npy", "<f4", false, "(2, 3)", c, sizeof(c) - 1);
	shard_end(&t);
	bad_because(&s.o, "truncated");
	member_npy(&t, 0, "npy", "|O", false, "(2, 3)", c, sizeof(c));
	shard_end(&t);
	bad_because(&s.o, "elements \"|O\"");
}

static void ragged_arrays_are_values_and_offsets(void **state)
{
	static const int32_t v[] = {1, 2, 3, 4, 5, 6};
	struct tar t = {0};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_tensor a;

	(void)state;
	member_npy(&t, 0, "npy", "<i4", false, "(2, 2)", v, 16);
	member_npy(&t, 1, "npy", "<i4", false, "(0, 2)", v, 0);
	member_npy(&t, 2, "npy", "<i4", false, "(1, 2)", v + 4, 8);
	shard_end(&t);
	field_set(setting_init(&s, 1), "npy", PENSTOCK_NPY);
	s.f[0].dtype = PENSTOCK_I64;
	s.f[0].ndim = 2;
	s.f[0].shape[1] = 2;
	l = open_ok(&s.o, pattern, 1);
	a = tensor(next_ok(l), "npy");
	SHAPE(a, 3, 2);
	HOLDS(a, int64_t, 1, 2, 3, 4, 5, 6);
	assert_memory_equal(a.offsets, ((uint64_t[]){0, 2, 2, 3}), 32);
	penstock_loader_close(l);
}

static void json_fields_take_values_by_path(void **state)
{
	struct setting s;
	struct tar t = {0};
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_tensor a;

	(void)state;
	member_text(&t, 0, "json",
	        "{\"h\": 1, \"meta\": {\"h\": 480, \"name\": \"x\\u00e9\\n\"}, \"box\": [[1, 2.5], [3, "
	        "-4e0]], "
	        "\"meta\": {\"h\": 481, \"name\": \"\\ud83d\\ude00!\"}}");
	member_text(&t, 1, "json", "\xef\xbb\xbf{\"meta\": {\"h\": 7, \"name\": \"\"}, \"box\": []}");
	shard_end(&t);
	setting_init(&s, 4);
	field_set(&s.f[0], "json:meta.h", PENSTOCK_INT64);
	field_set(&s.f[1], "json:meta.name", PENSTOCK_TEXT);
	field_set(&s.f[2], "json:box", PENSTOCK_JSON);
	s.f[2].dtype = PENSTOCK_F32;
	s.f[2].ndim = 2;
	s.f[2].shape[1] = 2;
	field_set(&s.f[3], "json:meta", PENSTOCK_JSON);
	l = open_ok(&s.o, pattern, 1);
	b = next_ok(l);
	HOLDS(tensor(b, "json:meta.h"), int64_t, 481, 7); /* the last of equal names counts */
	a = tensor(b, "json:meta.name");
	assert_int_equal(a.offsets[1], 5);
	assert_memory_equal(a.data, "\xf0\x9f\x98\x80!", 5);
	a = tensor(b, "json:box");
	SHAPE(a, 2, 2);
	HOLDS(a, float, 1, 2.5f, 3, -4);
	assert_int_equal(a.offsets[1], 2);
	a = tensor(b, "json:meta");
	assert_memory_equal(a.data, "{\"h\": 481", 9);
	penstock_loader_close(l);

	setting_init(&s, 1);
	field_set(&s.f[0], "json:meta.h", PENSTOCK_FLOAT);
	one_text("json", "{\"meta\": {}}");
	bad_because(&s.o, "has no value .json:meta.h; it has .json");
	one_text("json", "{\"meta\": {\"h\": \"480\"}}");
	bad_because(&s.o, "not a number");
	one_text("json", "{\"meta\": {\"h\": 480},}");
	bad_because(&s.o, "not JSON: at byte 20");
	field_set(setting_init(&s, 1), "json:meta.h", PENSTOCK_TEXT);
	one_text("json", "{\"meta\": {\"h\": 480}}");
	bad_because(&s.o, "the value at meta.h is not a string");
	field_set(setting_init(&s, 1), "json:meta.h", PENSTOCK_JSON);
	s.f[0].dtype = PENSTOCK_F32;
	s.f[0].ndim = 1;
	s.f[0].shape[0] = 2;
	bad_because(&s.o, "at meta.h: not an array of 1 dimensions");
	setting_init(&s, 1);
	field_set(&s.f[0], "json:meta.h", PENSTOCK_FLOAT);
	s.f[0].optional = 1;
	one_text("json", "{\"meta\": {\"h\": null}}");
	l = open_ok(&s.o, pattern, 1);
	a = tensor(next_ok(l), "json:meta.h");
	assert_true(isnan(*(const float *)a.data));
	penstock_loader_close(l);
}

static void text_and_json_are_validated(void **state)
{
	struct setting s;

	(void)state;
	field_set(setting_init(&s, 1), "txt", PENSTOCK_TEXT);
	one_text("txt", "caf\xe9");
	bad_because(&s.o, "not UTF-8: byte 3 is 0xe9");
	field_set(setting_init(&s, 1), "json", PENSTOCK_JSON);
	one_text("json", "[1,");
	bad_because(&s.o, "not JSON: at byte 3");
}

static void tokens_fields_give_x_and_y_shifted_by_one(void **state)
{
	static const uint16_t raw[] = {1, 2, 3, 65535};
	static const uint32_t npy[] = {9, 8, 7, 6};
	struct setting s;
	struct tar t = {0};
	struct penstock_loader *l;
	struct penstock_batch *b;

	(void)state;
	member(&t, 0, "bin", raw, sizeof(raw));
	member_npy(&t, 1, "bin", "<u4", false, "(4,)", npy, sizeof(npy));
	shard_end(&t);
	for (int ragged = 0; ragged < 2; ragged++) {
		field_set(setting_init(&s, 1), "bin", PENSTOCK_TOKENS);
		s.f[0].ndim = 1;
		s.f[0].shape[0] = ragged ? 0 : 3;
		l = open_ok(&s.o, pattern, 1);
		b = next_ok(l);
		if (ragged)
			SHAPE(tensor(b, "bin"), 6);
		else
			SHAPE(tensor(b, "bin"), 2, 3);
		HOLDS(tensor(b, "bin"), int64_t, 1, 2, 3, 9, 8, 7);
		HOLDS(tensor(b, "bin:y"), int64_t, 2, 3, 65535, 8, 7, 6);
		penstock_loader_close(l);
	}
	member(&t, 0, "bin", raw, 6);
	shard_end(&t);
	s.f[0].shape[0] = 3;
	bad_because(&s.o, "3 tokens, but the field needs 4");
	member(&t, 0, "bin", raw, 7);
	shard_end(&t);
	bad_because(&s.o, "7 bytes are not a whole number of 2-byte tokens");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(int64_fields_convert_to_any_dtype),
	        cmocka_unit_test(errors_show_the_text_that_is_no_integer),
	        cmocka_unit_test(floats_are_rounded_to_their_type),
	        cmocka_unit_test(npy_arrays_need_the_fields_shape_and_exact_values),
	        cmocka_unit_test(ragged_arrays_are_values_and_offsets),
	        cmocka_unit_test(json_fields_take_values_by_path),
	        cmocka_unit_test(text_and_json_are_validated),
	        cmocka_unit_test(tokens_fields_give_x_and_y_shifted_by_one),
	};

	return cmocka_run_group_tests_name("fields", tests, setup, teardown);
}
