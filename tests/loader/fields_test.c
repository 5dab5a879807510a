/* Fields that are no images: from members of a tar into batches. */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>

#include "make_tar.h"
#include "batches.h"

static char folder[64];
static const char *const shards[] = {"f.tar"};

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

struct setting {
	struct penstock_options o;
	struct penstock_field f[4];
};

/* n fields in the order of the shard, which has up to 64 samples. */
static struct penstock_field *setting_init(struct setting *s, uint32_t n)
{
	penstock_options_init(&s->o, sizeof(s->o));
	s->o.fields = s->f;
	s->o.nfields = n;
	s->o.order = PENSTOCK_ORDER_NONE;
	s->o.epochs = 1;
	s->o.threads = 2;
	s->o.memory_budget = 32 << 20;
	return s->f;
}

static void field_set(struct penstock_field *f, const char *name, uint32_t kind)
{
	penstock_field_init(f, sizeof(*f), name, kind);
}

/* A member `suffix` of sample `i` of the tar. */
static void member(struct tar *t, int i, const char *suffix, const void *data, size_t n)
{
	char name[64];

	snprintf(name, sizeof(name), "%02d.%s", i, suffix);
	tar_add(t, name, data, n);
}

static void member_text(struct tar *t, int i, const char *suffix, const char *text)
{
	member(t, i, suffix, text, strlen(text));
}

/* A .npy of version 1; its head as NumPy writes it. */
static void member_npy(struct tar *t, int i, const char *suffix, const char *descr, bool fortran,
        const char *shape, const void *data, size_t n)
{
	char head[256], file[4096];
	int len = snprintf(head, sizeof(head), "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr,
	        fortran ? "True" : "False", shape);
	int all = (10 + len + 1 + 63) / 64 * 64;

	memset(file, ' ', sizeof(file));
	memcpy(file, "\x93NUMPY\1", 8);
	file[8] = (char)(all - 10);
	file[9] = 0;
	memcpy(file + 10, head, (size_t)len);
	file[all - 1] = '\n';
	memcpy(file + all, data, n);
	member(t, i, suffix, file, (size_t)all + n);
}

static void shard_end(struct tar *t)
{
	tar_end(t);
	tar_save(t, "f.tar");
}

static struct penstock_batch *next_ok(struct penstock_loader *l)
{
	struct penstock_batch *b = NULL;
	struct penstock_error e;
	int r = penstock_loader_next(l, &b, &e);

	if (r < 0)
		fail_msg("%s", e.text);
	assert_int_equal(r, 1);
	return b;
}

static struct penstock_tensor tensor(const struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;
	struct penstock_error e;

	if (penstock_batch_field(b, name, &t, &e) < 0)
		fail_msg("%s", e.text);
	return t;
}

#define SHAPE(t, ...)                                                       \
	do {                                                                \
		const uint64_t want_[] = {__VA_ARGS__};                     \
		assert_int_equal((t).ndim, sizeof(want_) / sizeof(*want_)); \
		for (uint32_t d_ = 0; d_ < (t).ndim; d_++)                  \
			assert_int_equal((t).shape[d_], want_[d_]);         \
	} while (0)

#define HOLDS(t, type, ...)                                          \
	do {                                                         \
		const type want_[] = {__VA_ARGS__};                  \
		assert_int_equal((t).nbytes, sizeof(want_));         \
		assert_memory_equal((t).data, want_, sizeof(want_)); \
	} while (0)

/* The reason for which the shard's only sample is bad. */
static void bad_because(const struct penstock_options *o, const char *says)
{
	struct penstock_loader *l = open_ok(o, shards, 1);
	struct penstock_batch *b;
	struct penstock_error e;
	int r = penstock_loader_next(l, &b, &e);

	assert_int_equal(r, -EBADMSG);
	if (!strstr(e.text, says))
		fail_msg("\"%s\" says nothing of \"%s\"", e.text, says);
	penstock_loader_close(l);
}

static void one_text(const char *suffix, const char *text)
{
	struct tar t = {0};

	member_text(&t, 0, suffix, text);
	shard_end(&t);
}

static void integers_of_any_type(void **state)
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
		l = open_ok(&s.o, shards, 1);
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
	        {PENSTOCK_BF16, "1.00390625", 0x3f80, 2}, /* a tie goes to even */
	        {PENSTOCK_BF16, "1.0039062500000000001", 0x3f80,
	                2},                                     /* what a double cannot tell from it, too */
	        {PENSTOCK_BF16, "1.00390625000001", 0x3f81, 2}, /* no tie, though a float takes it for one */
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
		l = open_ok(&s.o, shards, 1);
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

static void arrays_of_a_shape(void **state)
{
	static const float c[] = {1, 2, 3, 4, 5, 6};
	static const double d[] = {1, 4, 2, 5, 3, 6}; /* the first index fastest */
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
	l = open_ok(&s.o, shards, 1);
	a = tensor(next_ok(l), "npy");
	SHAPE(a, 3, 2, 3);
	HOLDS(a, float, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6);
	penstock_loader_close(l);

	member_npy(&t, 0, "npy", "<f4", false, "(3, 2)", c, sizeof(c));
	shard_end(&t);
	bad_because(&s.o, "an array of shape (3, 2) where the field has (2, 3)");
	member_npy(&t, 0, "npy", "<f8", false, "(2, 3)", (double[]){1, 2, 3, 4, 5, 0.1}, 48);
	shard_end(&t);
	bad_because(&s.o, "element 5, a f64, has no exact value in f32");
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
	l = open_ok(&s.o, shards, 1);
	a = tensor(next_ok(l), "npy");
	SHAPE(a, 3, 2);
	HOLDS(a, int64_t, 1, 2, 3, 4, 5, 6);
	assert_memory_equal(a.offsets, ((uint64_t[]){0, 2, 2, 3}), 32);
	penstock_loader_close(l);
}

static void padding_comes_with_lengths_and_a_mask(void **state)
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
		l = open_ok(&s.o, shards, 1);
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
		assert_memory_equal((const char *)a.data + 3 * w, "abc_____", w); /* a row that fills up */
		assert_memory_equal(m.data, "\1\1\1\0\0\0\0\0", w);
		assert_memory_equal((const char *)m.data + 2 * w, "\1\1\1\1\1\0\0\0", w);
		penstock_loader_close(l);
	}
}

static void values_that_are_too_long(void **state)
{
	struct setting s;
	struct tar t = {0};
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_batch_info info;
	struct penstock_tensor a;
	struct penstock_error e;

	(void)state;
	member_text(&t, 0, "txt", "ok");
	member_text(&t, 1, "txt", "abc\xc3\xa9"); /* cut at 4 bytes, half of the last character would stay */
	shard_end(&t);
	for (int form = 0; form < 2; form++) {
		field_set(setting_init(&s, 1), "txt", PENSTOCK_TEXT);
		s.f[0].max_bytes = form == 0 ? 4 : 0;
		s.f[0].pad_to = form == 1 ? 4 : 0;
		s.o.on_error = PENSTOCK_SKIP;
		l = open_ok(&s.o, shards, 1); /* overflow error: though bad samples are passed over */
		assert_int_equal(penstock_loader_next(l, &b, &e), -E2BIG);
		assert_non_null(strstr(e.text, "sample \"01\""));
		assert_non_null(strstr(e.text, "5 items where at most 4"));
		penstock_loader_close(l);

		s.f[0].overflow = PENSTOCK_OVERFLOW_BAD;
		l = open_ok(&s.o, shards, 1);
		b = next_ok(l);
		penstock_batch_info(b, &info);
		assert_int_equal(info.bad, 1);
		penstock_loader_close(l);

		s.f[0].overflow = PENSTOCK_OVERFLOW_TRUNCATE;
		l = open_ok(&s.o, shards, 1);
		b = next_ok(l);
		a = tensor(b, "txt");
		if (form == 0) {
			assert_memory_equal(a.offsets, ((uint64_t[]){0, 2, 5}), 24);
			assert_memory_equal(a.data, "okabc", 5);
		} else {
			assert_memory_equal(a.data, "ok\0\0abc\0", 8);
			HOLDS(tensor(b, "txt:lengths"), int64_t, 2, 3);
		}
		penstock_loader_close(l);
	}
}

static void values_of_json(void **state)
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
	l = open_ok(&s.o, shards, 1);
	b = next_ok(l);
	HOLDS(tensor(b, "json:meta.h"), int64_t, 481, 7); /* of equal names the last */
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
	bad_because(&s.o, "has no value .json:meta.h");
	one_text("json", "{\"meta\": {\"h\": \"480\"}}");
	bad_because(&s.o, "not a number");
	one_text("json", "{\"meta\": {\"h\": 480},}");
	bad_because(&s.o, "not JSON: at byte 20");
	s.f[0].optional = 1;
	one_text("json", "{\"meta\": {\"h\": null}}");
	l = open_ok(&s.o, shards, 1);
	a = tensor(next_ok(l), "json:meta.h");
	assert_true(isnan(*(const float *)a.data));
	penstock_loader_close(l);
}

static void texts_are_checked(void **state)
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

static void tokens_are_x_and_y(void **state)
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
		l = open_ok(&s.o, shards, 1);
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
	bad_because(&s.o, "3 tokens where 4 must be");
	member(&t, 0, "bin", raw, 7);
	shard_end(&t);
	bad_because(&s.o, "7 bytes are no whole tokens of 2 bytes");
}

static void edges_count_in_the_whole_batch(void **state)
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
	field_set(&s.f[0], "edge", PENSTOCK_NPY); /* before the field that it counts */
	s.f[0].dtype = PENSTOCK_I64;
	field_set(&s.f[1], "x", PENSTOCK_NPY);
	s.f[0].ndim = s.f[1].ndim = 2;
	s.f[0].shape[1] = s.f[1].shape[1] = 2;
	s.f[0].add_offset_of = "x";
	s.o.on_error = PENSTOCK_SKIP;
	l = open_ok(&s.o, shards, 1);
	b = next_ok(l);
	SHAPE(tensor(b, "x"), 8, 2);
	/* the third is bad (2 names none of its 2 nodes), and the first stands for it */
	HOLDS(tensor(b, "edge"), int64_t, 0, 1, 2, 0, 3, 4, 5, 6, 7, 5);
	penstock_loader_close(l);
	s.o.on_error = PENSTOCK_FAIL;
	bad_because(&s.o, "2 names none of the 2 items of x");
}

/* Upper case of the text, and its length; a sample without a text is bad. */
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
		l = open_ok(&s.o, shards, 1);
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

/* Every tensor has a name, lies in the slot, and begins where its type (and CUDA) wants it. */
static void a_batch_is_one_piece_of_memory(void **state)
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
	l = open_ok(&s.o, shards, 1);
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

static void options_that_make_no_sense_are_refused(void **state)
{
	struct penstock_loader *l;
	struct penstock_error e;
	struct setting s;

	(void)state;
#define REFUSED(kind_, name_, says, ...)                                                  \
	do {                                                                              \
		field_set(setting_init(&s, 1), name_, kind_);                             \
		__VA_ARGS__;                                                              \
		assert_int_equal(penstock_loader_open(&s.o, shards, 1, &l, &e), -EINVAL); \
		if (!strstr(e.text, says))                                                \
			fail_msg("\"%s\" says nothing of \"%s\"", e.text, says);          \
	} while (0)
	REFUSED(PENSTOCK_INT64, "cls", "dtype ? (99)", s.f[0].dtype = 99);
	REFUSED(PENSTOCK_FLOAT, "x", "must be a float for float fields", s.f[0].dtype = PENSTOCK_I64);
	REFUSED(PENSTOCK_TOKENS, "x", "must be an integer for tokens fields", s.f[0].dtype = PENSTOCK_F32);
	REFUSED(PENSTOCK_TOKENS, "x", "source_dtype 1", s.f[0].source_dtype = PENSTOCK_F32);
	REFUSED(PENSTOCK_NPY, "x", "ndim 8: must be 0 to 7", s.f[0].ndim = 8);
	REFUSED(PENSTOCK_NPY, "x", "shape[1] 0", s.f[0].ndim = 2);
	REFUSED(PENSTOCK_NPY, "x", "larger than memory", s.f[0].ndim = 2, s.f[0].shape[1] = UINT64_MAX / 2);
	REFUSED(PENSTOCK_INT64, "x", "for ragged fields", s.f[0].pad_to = 3);
	REFUSED(PENSTOCK_BYTES, "x", "overflow 3", s.f[0].overflow = 3);
	REFUSED(PENSTOCK_BYTES, "x", "needs pad_to longest", s.f[0].pad_multiple = 3);
	REFUSED(PENSTOCK_JSON, "x", "JSON cannot be cut", s.f[0].max_bytes = 3,
	        s.f[0].overflow = PENSTOCK_OVERFLOW_TRUNCATE);
	REFUSED(PENSTOCK_NPY, "x", "max_bytes 3: must be at least an item's 4", s.f[0].max_bytes = 3);
	REFUSED(PENSTOCK_BYTES, "x", "pad_value 256: u8 cannot hold it", s.f[0].pad_to = 3,
	        s.f[0].pad_value = 256);
	REFUSED(PENSTOCK_INT64, "x", "missing_value -1: u8", s.f[0].dtype = PENSTOCK_U8, s.f[0].optional = 1);
	REFUSED(PENSTOCK_NPY, "x", "add_offset_of y: must name", s.f[0].add_offset_of = "y",
	        s.f[0].dtype = PENSTOCK_I64);
	REFUSED(PENSTOCK_NPY, "x", "integers of 4 or 8 bytes", s.f[0].add_offset_of = "x");
	REFUSED(PENSTOCK_NPY, "json:a", "not for npy", (void)0);
	REFUSED(PENSTOCK_INT64, "json:a..b", "names and places with dots", (void)0);
	REFUSED(PENSTOCK_OUTPUT, "x", "needs options.transform", (void)0);
	REFUSED(PENSTOCK_OUTPUT, "x", "needs max_bytes", s.f[0].ndim = 1, s.o.transform = shout);
#undef REFUSED
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(integers_of_any_type),
	        cmocka_unit_test(floats_are_rounded_to_their_type),
	        cmocka_unit_test(arrays_of_a_shape),
	        cmocka_unit_test(ragged_arrays_are_values_and_offsets),
	        cmocka_unit_test(padding_comes_with_lengths_and_a_mask),
	        cmocka_unit_test(values_that_are_too_long),
	        cmocka_unit_test(values_of_json),
	        cmocka_unit_test(texts_are_checked),
	        cmocka_unit_test(tokens_are_x_and_y),
	        cmocka_unit_test(edges_count_in_the_whole_batch),
	        cmocka_unit_test(a_transform_fills_outputs),
	        cmocka_unit_test(a_batch_is_one_piece_of_memory),
	        cmocka_unit_test(options_that_make_no_sense_are_refused),
	};

	return cmocka_run_group_tests_name("fields", tests, setup, teardown);
}
