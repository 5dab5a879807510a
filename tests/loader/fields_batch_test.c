/* Rows of fields other than images in a batch: padding, limits, offsets, outputs of a transform, and refused
 * options. */
#include "config.h"

#include "fields_fixture.h"

#include <errno.h>
#include <math.h>

#include "batch/batch.h"
#include "batches.h"

static void padded_fields_have_lengths_and_a_mask(void **state)
{
	static const struct {
		uint32_t pad_to, multiple, width;
	} rows[] = {{6, 0, 6}, {PENSTOCK_PAD_LONGEST, 0, 5}, {PENSTOCK_PAD_LONGEST, 4, 8}};
	struct setting s;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint32_t w = rows[i].width;
		struct tar t = {0};
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_tensor a, n, m;

		member_text(&t, 0, "txt", "abc");
		member_text(&t, 1, "txt", "");
		member_text(&t, 2, "txt", "12345");
		shard_end(&t);
		field_set(setting_init(&s, 1), "txt", PENSTOCK_TEXT);
		s.f[0].pad_to = rows[i].pad_to;
		s.f[0].pad_multiple = rows[i].multiple;
		s.f[0].pad_value = '_';
		s.o.batch = 4;
		s.o.end = PENSTOCK_END_PAD;
		l = open_ok(&s.o, pattern, 1);
		b = next_ok(l);
		a = tensor(b, "txt");
		n = tensor(b, "txt:lengths");
		m = tensor(b, "txt:mask");
		SHAPE(a, 4, w);
		SHAPE(m, 4, w);
		assert_int_equal(m.dtype, PENSTOCK_BOOL);
		HOLDS(n, int64_t, 3, 0, 5, 3);
		assert_memory_equal(a.data, "abc_____", w);
		assert_memory_equal((const char *)a.data + w, "________", w);
		assert_memory_equal((const char *)a.data + 2 * w, "12345___", w);
		assert_memory_equal((const char *)a.data + 3 * w, "abc_____", w); /* fills up the batch */
		assert_memory_equal(m.data, "\1\1\1\0\0\0\0\0", w);
		assert_memory_equal((const char *)m.data + 2 * w, "\1\1\1\1\1\0\0\0", w);
		penstock_loader_close(l);
	}
}

static void values_over_the_limit_are_errors_or_bad_or_truncated(void **state)
{
	struct setting s;
	struct tar t = {0};
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_batch_info info;
	struct penstock_tensor a;
	struct penstock_error e;

	(void)state;
	member_text(&t, 0, "txt", "okay"); /* as long as the limit */
	member_text(
	        &t, 1, "txt", "abc\xc3\xa9"); /* cut after 4 bytes, the text would end in half a character */
	shard_end(&t);
	for (int form = 0; form < 2; form++) {
		field_set(setting_init(&s, 1), "txt", PENSTOCK_TEXT);
		s.f[0].max_bytes = form == 0 ? 4 : 0;
		s.f[0].pad_to = form == 1 ? 4 : 0;
		s.o.on_error = PENSTOCK_SKIP;
		l = open_ok(&s.o, pattern,
		        1); /* by default overflow is an error, even if bad samples are skipped */
		assert_int_equal(penstock_loader_next(l, &b, &e), -E2BIG);
		assert_non_null(strstr(e.text, "sample \"01\""));
		assert_non_null(strstr(e.text, "5 items, but at most 4"));
		penstock_loader_close(l);

		s.f[0].overflow = PENSTOCK_OVERFLOW_BAD;
		l = open_ok(&s.o, pattern, 1);
		b = next_ok(l);
		penstock_batch_info(b, &info);
		assert_int_equal(info.bad, 1);
		penstock_loader_close(l);

		s.f[0].overflow = PENSTOCK_OVERFLOW_TRUNCATE;
		l = open_ok(&s.o, pattern, 1);
		b = next_ok(l);
		a = tensor(b, "txt");
		if (form == 0) {
			assert_memory_equal(a.offsets, ((uint64_t[]){0, 4, 7}), 24);
			assert_memory_equal(a.data, "okayabc", 7);
		} else {
			assert_memory_equal(a.data, "okayabc\0", 8);
			HOLDS(tensor(b, "txt:lengths"), int64_t, 4, 3);
		}
		penstock_loader_close(l);
	}
}

static void add_offset_of_numbers_items_in_the_whole_batch(void **state)
{
	static const float nodes[10];
	static const int64_t edges[] = {0, 1, 2, 0}, wrong[] = {0, 2};
	struct setting s;
	struct tar t = {0};
	struct penstock_loader *l;
	struct penstock_batch *b;

	(void)state;
	member_npy(&t, 0, "x", "<f4", false, "(3, 2)", nodes, 24);
	member_npy(&t, 0, "edge", "<i8", false, "(2, 2)", edges, 32);
	member_npy(&t, 1, "x", "<f4", false, "(2, 2)", nodes, 16);
	member_npy(&t, 1, "edge", "<i8", false, "(1, 2)", edges, 16);
	member_npy(&t, 2, "x", "<f4", false, "(2, 2)", nodes, 16);
	member_npy(&t, 2, "edge", "<i8", false, "(1, 2)", wrong, 16);
	shard_end(&t);
	setting_init(&s, 2);
	field_set(&s.f[0], "edge", PENSTOCK_NPY); /* before the field that its numbers refer to */
	s.f[0].dtype = PENSTOCK_I64;
	field_set(&s.f[1], "x", PENSTOCK_NPY);
	s.f[0].ndim = s.f[1].ndim = 2;
	s.f[0].shape[1] = s.f[1].shape[1] = 2;
	s.f[0].add_offset_of = "x";
	s.o.on_error = PENSTOCK_SKIP;
	l = open_ok(&s.o, pattern, 1);
	b = next_ok(l);
	SHAPE(tensor(b, "x"), 8, 2);
	/* The third sample is bad (2 names none of its 2 nodes); a copy of the first replaces it. */
	HOLDS(tensor(b, "edge"), int64_t, 0, 1, 2, 0, 3, 4, 5, 6, 7, 5);
	penstock_loader_close(l);
	s.o.on_error = PENSTOCK_FAIL;
	bad_because(&s.o, "2 names none of the 2 items of x");
}

/* Writes the text in upper case, and its length plus 100 times the key; a sample with an empty text is
 * bad. */
static int shout(void *ctx, struct penstock_sample *sample)
{
	struct penstock_sample_info info;
	struct penstock_tensor txt;
	uint64_t room;
	char *out = penstock_sample_output(sample, "loud", &room);
	int32_t *n = penstock_sample_output(sample, "n", NULL);

	(*(_Atomic int *)ctx)++;
	penstock_sample_info(sample, &info);
	if (!out || !n || penstock_sample_field(sample, "txt", &txt) < 0 || txt.shape[0] > room)
		return -EINVAL;
	if (txt.shape[0] == 0)
		return penstock_sample_fail(sample, "no text at all");
	for (uint64_t i = 0; i < txt.shape[0]; i++)
		out[i] = (char)(((const char *)txt.data)[i] & ~0x20);
	*n = atoi(info.key) * 100 + (int)txt.shape[0];
	return penstock_sample_set_items(sample, "loud", txt.shape[0]);
}

static void a_transform_fills_outputs(void **state)
{
	static const uint32_t pads[] = {0, 6, PENSTOCK_PAD_LONGEST};
	struct setting s;
	_Atomic int calls;

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct tar t = {0};
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_bad bad;

		member_text(&t, 1, "txt", "abc");
		member_text(&t, 2, "txt", "");
		member_text(&t, 3, "txt", "hello");
		shard_end(&t);
		setting_init(&s, 3);
		field_set(&s.f[0], "loud", PENSTOCK_OUTPUT);
		s.f[0].dtype = PENSTOCK_U8;
		s.f[0].pad_to = pads[i];
		s.f[0].max_bytes = 6;
		field_set(&s.f[1], "txt", PENSTOCK_BYTES);
		field_set(&s.f[2], "n", PENSTOCK_OUTPUT);
		s.f[2].dtype = PENSTOCK_I32;
		s.o.on_error = PENSTOCK_SKIP;
		s.o.transform = shout;
		s.o.transform_ctx = &calls;
		calls = 0;
		l = open_ok(&s.o, pattern, 1);
		b = next_ok(l);
		HOLDS(tensor(b, "n"), int32_t, 103, 305, 305);
		assert_int_equal(calls, 3);
		assert_int_equal(penstock_batch_bad(b, 0, &bad), 0);
		assert_string_equal(bad.reason, "transform: no text at all");
		if (i == 0)
			assert_memory_equal(tensor(b, "loud").data, "ABCHELLOHELLO", 13);
		else
			assert_memory_equal(
			        (const char *)tensor(b, "loud").data + (i == 1 ? 6 : 5), "HELLO", 5);
		penstock_loader_close(l);
	}
}

/* Every tensor has a name, is in the slot, and begins at a multiple of 256 bytes. */
static void all_tensors_of_a_batch_are_in_its_slot(void **state)
{
	struct setting s;
	struct tar t = {0};
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_batch_info info;
	const char *name, *last = NULL;
	uint32_t n = 0;

	(void)state;
	for (int i = 0; i < 20; i++) {
		char text[16];

		member_text(&t, i, "txt", "0123456789" + i % 10);
		snprintf(text, sizeof(text), "%d", i);
		member_text(&t, i, "cls", text);
	}
	shard_end(&t);
	setting_init(&s, 3);
	field_set(&s.f[0], "txt", PENSTOCK_TEXT);
	s.f[0].pad_to = PENSTOCK_PAD_LONGEST;
	field_set(&s.f[1], "cls", PENSTOCK_INT64);
	field_set(&s.f[2], "TXT;txt", PENSTOCK_BYTES);
	s.o.batch = 7;
	l = open_ok(&s.o, pattern, 1);
	b = next_ok(l);
	penstock_batch_info(b, &info);
	for (; (name = penstock_batch_name(b, n)); n++) {
		struct penstock_tensor a = tensor(b, name);
		size_t at = (size_t)((const char *)a.data - (const char *)info.slot);

		assert_int_equal(at % 256, 0);
		assert_true(at + a.nbytes <= info.slot_nbytes);
		if (a.offsets)
			assert_true((const char *)(a.offsets + info.rows + 1) <=
			            (const char *)info.slot + info.slot_nbytes);
		last = name;
	}
	assert_int_equal(n, 3 + 2 + 4);
	assert_string_equal(last, "__sample__");
	penstock_loader_close(l);
}

static void invalid_field_options_are_refused_with_a_reason(void **state)
{
	struct penstock_loader *l;
	struct penstock_error e;
	struct setting s;

	(void)state;
#define REFUSED(kind_, name_, says, ...)                                                   \
	do {                                                                               \
		field_set(setting_init(&s, 1), name_, kind_);                              \
		__VA_ARGS__;                                                               \
		assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &l, &e), -EINVAL); \
		if (!strstr(e.text, says))                                                 \
			fail_msg("\"%s\" does not contain \"%s\"", e.text, says);          \
	} while (0)
	REFUSED(PENSTOCK_INT64, "cls", "dtype ? (99)", s.f[0].dtype = 99);
	REFUSED(PENSTOCK_FLOAT, "x", "must be a float for float fields", s.f[0].dtype = PENSTOCK_I64);
	REFUSED(PENSTOCK_TOKENS, "x", "must be an integer for tokens fields", s.f[0].dtype = PENSTOCK_F32);
	REFUSED(PENSTOCK_TOKENS, "x", "source_dtype 1", s.f[0].source_dtype = PENSTOCK_F32);
	REFUSED(PENSTOCK_TOKENS, "x", "field x: ndim 2: tokens have 1", s.f[0].ndim = 2);
	REFUSED(PENSTOCK_NPY, "x", "ndim 8: must be 0 to 7", s.f[0].ndim = 8);
	REFUSED(PENSTOCK_NPY, "x", "shape[1] 0", s.f[0].ndim = 2);
	REFUSED(PENSTOCK_NPY, "x", "larger than the address space", s.f[0].ndim = 2,
	        s.f[0].shape[1] = UINT64_MAX / 2);
	REFUSED(PENSTOCK_INT64, "x", "for ragged fields", s.f[0].pad_to = 3);
	REFUSED(PENSTOCK_BYTES, "x", "overflow 3", s.f[0].overflow = 3);
	REFUSED(PENSTOCK_BYTES, "x", "needs pad_to longest", s.f[0].pad_multiple = 3);
	REFUSED(PENSTOCK_JSON, "x", "JSON cannot be cut", s.f[0].max_bytes = 3,
	        s.f[0].overflow = PENSTOCK_OVERFLOW_TRUNCATE);
	REFUSED(PENSTOCK_NPY, "x", "max_bytes 3: must be at least 4, the size of an item",
	        s.f[0].max_bytes = 3);
	REFUSED(PENSTOCK_BYTES, "x", "pad_value 256: u8 cannot hold it", s.f[0].pad_to = 3,
	        s.f[0].pad_value = 256);
	REFUSED(PENSTOCK_INT64, "x", "missing_value -1: u8", s.f[0].dtype = PENSTOCK_U8, s.f[0].optional = 1);
	REFUSED(PENSTOCK_NPY, "x", "add_offset_of y: must name", s.f[0].add_offset_of = "y",
	        s.f[0].dtype = PENSTOCK_I64);
	REFUSED(PENSTOCK_NPY, "x", "integers of 4 or 8 bytes", s.f[0].add_offset_of = "x");
	REFUSED(PENSTOCK_NPY, "json:a", "not for npy", (void)0);
	REFUSED(PENSTOCK_INT64, "json:a..b", "names and array indexes, separated by dots", (void)0);
	REFUSED(PENSTOCK_OUTPUT, "x", "an output needs options.transform or transform_unit", (void)0);
	REFUSED(PENSTOCK_OUTPUT, "x", "field x: a ragged output needs max_bytes", s.f[0].ndim = 1,
	        s.o.transform = shout);
#undef REFUSED
}

static void slot_places_beyond_the_address_space_are_refused(void **state)
{
	static const struct {
		size_t used, n, nbytes;
	} rows[] = {{0, SIZE_MAX / 2, 4}, {0, (size_t)1 << 32, (size_t)1 << 32}, {64, SIZE_MAX - 64, 1},
	        {SIZE_MAX, 1, 1}, {0, (size_t)PTRDIFF_MAX + 1, 1}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		size_t used = rows[i].used, at = 7;

		assert_false(ps_slot_place(&used, rows[i].n, rows[i].nbytes, &at));
		assert_true(used == rows[i].used && at == 7);
	}
}

static void a_batch_larger_than_memory_can_be_is_refused(void **state)
{
	struct penstock_loader *l;
	struct penstock_error e;
	struct setting s;

	(void)state;
	field_set(setting_init(&s, 1), "x", PENSTOCK_NPY);
	s.f[0].ndim = 2;
	s.f[0].shape[0] = s.f[0].shape[1] = UINT64_C(1) << 30;
	s.o.batch = 64;
	assert_int_equal(penstock_loader_open(&s.o, pattern, 1, &l, &e), -E2BIG);
	assert_string_equal(e.text, "a batch of 64 rows is larger than the address space");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(padded_fields_have_lengths_and_a_mask),
	        cmocka_unit_test(values_over_the_limit_are_errors_or_bad_or_truncated),
	        cmocka_unit_test(add_offset_of_numbers_items_in_the_whole_batch),
	        cmocka_unit_test(a_transform_fills_outputs),
	        cmocka_unit_test(all_tensors_of_a_batch_are_in_its_slot),
	        cmocka_unit_test(invalid_field_options_are_refused_with_a_reason),
	        cmocka_unit_test(slot_places_beyond_the_address_space_are_refused),
	        cmocka_unit_test(a_batch_larger_than_memory_can_be_is_refused),
	};

	return cmocka_run_group_tests_name("fields-batch", tests, setup, teardown);
}
