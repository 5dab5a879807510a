/* Bad samples and shards, and too little memory: what is skipped, which error is reported, and when a loader
 * fails. */
#include "config.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "loader_fixture.h"
#include "shard/shard.h"

/* A shard of six samples, of which 1 and 4 cannot be decoded. */
static void bad_shard_make(const char *path)
{
	struct tar t = {0};

	sample_add(&t, 0, 0);
	tar_add_text(&t, "bad/1.jpg", "no image");
	tar_add_text(&t, "bad/1.cls", "1");
	tar_add_text(&t, "bad/1.txt", "");
	sample_add(&t, 0, 2);
	sample_add(&t, 0, 3);
	tar_add(&t, "bad/4.jpg", photos[0].data, photos[0].len);
	tar_add_text(&t, "bad/4.cls", "four");
	tar_add_text(&t, "bad/4.txt", "");
	sample_add(&t, 0, 5);
	tar_end(&t);
	tar_save(&t, path);
}

static void a_bad_row_repeats_the_next_good_one(void **state)
{
	static const char *const shards[] = {"bad.tar"};
	static const int64_t want[] = {0, 2, 2, 3, 5, 5};
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_batch_info info;
	struct penstock_bad bad;
	struct penstock_tensor t;
	struct penstock_stats stats;

	(void)state;
	bad_shard_make("bad.tar");
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	s.o.on_error = PENSTOCK_SKIP;
	l = open_ok(&s.o, shards, 1);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	penstock_batch_info(b, &info);
	assert_int_equal(info.rows, 6);
	assert_int_equal(info.bad, 2);
	t = field(b, "cls");
	assert_memory_equal(t.data, want, sizeof(want));
	t = field(b, "__valid__");
	assert_memory_equal(t.data, "\1\0\1\1\0\1", 6);
	t = field(b, "jpg");
	assert_memory_equal((const char *)t.data + 1152, (const char *)t.data + 2 * 1152, 1152);
	assert_int_equal(penstock_batch_bad(b, 0, &bad), 0);
	assert_int_equal(bad.row, 1);
	assert_string_equal(bad.shard, "bad.tar");
	assert_string_equal(bad.key, "bad/1");
	assert_true(bad.offset > 0 && bad.offset % 512 == 0);
	assert_non_null(strstr(bad.reason, "jpg"));
	assert_int_equal(penstock_batch_bad(b, 1, &bad), 0);
	assert_non_null(strstr(bad.reason, "cls"));
	assert_int_equal(penstock_batch_bad(b, 2, &bad), -ENOENT);
	penstock_batch_release(b);
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	assert_int_equal(stats.bad, 2);
	assert_int_equal(stats.samples, 6);
	penstock_loader_close(l);
}

static void on_error_and_max_bad_decide_when_bad_samples_fail(void **state)
{
	struct setting s;
	struct penstock_error e;
	struct tar t = {0};

	(void)state;
	bad_shard_make("bad.tar");
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	assert_int_equal(first_failure(&s.o, "bad.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "bad.tar: sample \"bad/1\" at offset "));

	sample_add(&t, 0, 0);
	for (int i = 0; i < 5; i++)
		tar_add_text(&t, (char[]){'x', (char)('0' + i), '.', 'j', 'p', 'g', 0}, "");
	tar_end(&t);
	tar_save(&t, "many.tar");
	s.o.on_error = PENSTOCK_SKIP;
	for (uint32_t batch = 1; batch <= 16; batch += 15) { /* with 1, bad rows are in blank batches */
		s.o.batch = batch;
		s.o.max_bad = 4;
		assert_int_equal(first_failure(&s.o, "many.tar", &e), -EBADMSG);
		assert_non_null(strstr(e.text, "more than 4 bad samples in a row (max_bad: raise it"));
		s.o.max_bad = 5;
		assert_int_equal(first_failure(&s.o, "many.tar", &e), 0);
	}
}

/* Takes batches to the end of the epoch, or to a failure. */
static int epoch_run(struct penstock_loader *l, uint32_t *ret_batches, struct penstock_error *e)
{
	struct penstock_batch *b;
	int rc;

	for (*ret_batches = 0; (rc = penstock_loader_next(l, &b, e)) == 1; ++*ret_batches)
		penstock_batch_release(b);
	return rc;
}

/* A mistyped path, and a folder on which nothing is mounted: without an error each epoch would be one of blank
 * batches. */
static void an_epoch_without_a_good_sample_fails_whatever_on_error_says(void **state)
{
	static const char *const lists[] = {"nothere/x-{0..3}.tar", "unmounted/x-{0..3}.tar", "all-bad.tar"};
	static const char *const why[] = {
	        "nothere/x-0.tar", "unmounted/x-0.tar", "all-bad.tar: sample \"b/0\""};
	struct tar t = {0};

	(void)state;
	mkdir("unmounted", 0700);
	tar_add_text(&t, "b/0.cls", "no number");
	tar_add_text(&t, "b/1.cls", "no number");
	tar_end(&t);
	tar_save(&t, "all-bad.tar");
	for (size_t i = 0; i < PS_ARRAY_LEN(lists); i++) {
		struct setting s;
		struct penstock_loader *l;
		struct penstock_error e;
		uint32_t batches;

		setting_init(&s);
		s.o.order = PENSTOCK_ORDER_NONE;
		s.o.on_error = PENSTOCK_SKIP;
		s.o.epochs = 0;
		s.o.batch = 2;
		l = open_ok(&s.o, &lists[i], 1);
		for (int epoch = 0; epoch < 3; epoch++) {
			char begins[64];

			snprintf(begins, sizeof(begins), "epoch %d had no good sample on this rank", epoch);
			assert_int_equal(epoch_run(l, &batches, &e), -EBADMSG);
			assert_int_equal(batches, i < 2 ? 2 : 1);
			assert_non_null(strstr(e.text, begins));
			assert_non_null(strstr(e.text, why[i]));
			if (i < 2)
				assert_non_null(strstr(e.text, "No such file or directory; check the path"));
			assert_int_equal(epoch_run(l, &batches, &e), -EBADMSG); /* it stays failed ... */
			assert_int_equal(batches, 0);
			assert_int_equal(
			        penstock_loader_set_epoch(l, (uint64_t)epoch + 1, &e), 0); /* ... till then */
		}
		penstock_loader_close(l);
	}
	rmdir("unmounted");
}

/* The good sample may come before or after a place where the run was interrupted. */
static void a_resumed_epoch_counts_what_was_good_before(void **state)
{
	for (int good = 0; good < 4; good++) { /* the place of the good sample; 3: there is none */
		static const char *const shards[] = {"one-good.tar"};
		struct setting s;
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_error e;
		struct tar t = {0};
		uint32_t batches;
		char bytes[4096];
		int n;

		(void)state;
		for (int i = 0; i < 3; i++)
			tar_add_text(
			        &t, (char[]){(char)('a' + i), '.', 'c', 'l', 's', 0}, i == good ? "1" : "x");
		tar_end(&t);
		tar_save(&t, shards[0]);
		setting_init(&s);
		s.o.fields = &s.f[1];
		s.o.nfields = 1;
		s.o.order = PENSTOCK_ORDER_NONE;
		s.o.on_error = PENSTOCK_SKIP;
		s.o.batch = 1;
		l = open_ok(&s.o, shards, 1);
		assert_int_equal(penstock_loader_next(l, &b, &e), 1);
		penstock_batch_release(b);
		n = penstock_loader_state_save(l, bytes, sizeof(bytes), &e);
		assert_true(n > 0);
		assert_int_equal(epoch_run(l, &batches, &e), good < 3 ? 0 : -EBADMSG);
		assert_int_equal(penstock_loader_state_load(l, bytes, (size_t)n, &e), 0);
		assert_int_equal(epoch_run(l, &batches, &e), good < 3 ? 0 : -EBADMSG);
		assert_int_equal(batches, 2);
		penstock_loader_close(l);
		s.o.state = bytes;
		s.o.state_nbytes = (size_t)n;
		l = open_ok(&s.o, shards, 1);
		assert_int_equal(epoch_run(l, &batches, &e), good < 3 ? 0 : -EBADMSG);
		penstock_loader_close(l);
	}
}

/* Fields of all kinds. The last one makes a sample bad after the others were written. */
enum { PPM, SEG, BOX, OPT, DEF, GIV, FLT, VEC, TXT, PAD, LNG, TOK, OUT, VAR, CLS, NKINDS };

static int outputs_write(void *ctx, struct penstock_sample *sample)
{
	(void)ctx;
	memset(penstock_sample_output(sample, "out", NULL), 0x55, 3 * sizeof(float));
	memset(penstock_sample_output(sample, "var", NULL), 0x55, 2 * sizeof(float));
	return penstock_sample_set_items(sample, "var", 2);
}

static void kinds_init(struct penstock_options *o, struct penstock_field f[static NKINDS])
{
	static const struct {
		const char *name;
		uint32_t kind;
	} kinds[NKINDS] = {[PPM] = {"ppm", PENSTOCK_IMAGE},
	        [SEG] = {"seg", PENSTOCK_MASK},
	        [BOX] = {"box", PENSTOCK_BOXES},
	        [OPT] = {"opt", PENSTOCK_INT64},
	        [DEF] = {"def", PENSTOCK_INT64},
	        [GIV] = {"giv", PENSTOCK_INT64},
	        [FLT] = {"flt", PENSTOCK_FLOAT},
	        [VEC] = {"json:v", PENSTOCK_JSON},
	        [TXT] = {"txt", PENSTOCK_BYTES},
	        [PAD] = {"pad", PENSTOCK_BYTES},
	        [LNG] = {"lng", PENSTOCK_TEXT},
	        [TOK] = {"tok", PENSTOCK_TOKENS},
	        [OUT] = {"out", PENSTOCK_OUTPUT},
	        [VAR] = {"var", PENSTOCK_OUTPUT},
	        [CLS] = {"cls", PENSTOCK_INT64}};

	penstock_options_init(o, sizeof(*o));
	for (int i = 0; i < NKINDS; i++)
		penstock_field_init(&f[i], sizeof(f[i]), kinds[i].name, kinds[i].kind);
	f[PPM].image_width = f[PPM].image_height = 8;
	f[SEG].dtype = PENSTOCK_U8;
	f[SEG].missing_value = 255;
	f[OPT].optional = f[DEF].optional = f[FLT].optional = 1;
	f[OPT].missing_value = -7;
	f[GIV].missing_value = -100;
	f[VEC].dtype = PENSTOCK_I32;
	f[VEC].ndim = f[TOK].ndim = f[OUT].ndim = f[VAR].ndim = 1;
	f[VEC].shape[0] = f[TOK].shape[0] = 2;
	f[OUT].shape[0] = 3;
	f[VAR].max_bytes = 64;
	f[PAD].pad_to = 4;
	f[PAD].pad_value = 9;
	f[LNG].pad_to = PENSTOCK_PAD_LONGEST;
	o->fields = f;
	o->nfields = NKINDS;
	o->transform = outputs_write;
	o->order = PENSTOCK_ORDER_NONE;
	o->batch = 2;
	o->epochs = 2;
	o->depth = 2;
	o->on_error = PENSTOCK_SKIP;
	o->memory_budget = 64 << 20;
}

static void reasons_name_the_fault_in_images_masks_and_boxes(void **state)
{
	static const char ppm[] = "P6 2 2 255\nabcdefghijkl", seg[] = "P5 2 2 255\n1234", box[] = "0 0 1 1";
	static const struct {
		int at;
		const char *data;
		size_t nbytes;
		const char *says;
	} bad[] = {
	        {SEG, "P5 2 2 65535\n\1\1\1\1\1\1\1\1", 21,
	                "mask: has labels that u8 cannot hold; choose another dtype"},
	        {BOX, "0 0 x 1", 7, "boxes: number 3: "},
	        {PPM, "RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\2\0\0\0\1\0\0\1\0\0", 30,
	                "WebP: truncated: the animation has no whole frame"},
	};
	struct penstock_field f[NKINDS];
	struct penstock_options o;
	struct penstock_error e;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct tar t = {0};

		kinds_init(&o, f);
		o.nfields = BOX + 1;
		o.transform = NULL;
		o.on_error = PENSTOCK_FAIL;
		tar_add(&t, "x.ppm", bad[i].at == PPM ? bad[i].data : ppm,
		        bad[i].at == PPM ? bad[i].nbytes : sizeof(ppm) - 1);
		tar_add(&t, "x.seg", bad[i].at == SEG ? bad[i].data : seg,
		        bad[i].at == SEG ? bad[i].nbytes : sizeof(seg) - 1);
		tar_add(&t, "x.box", bad[i].at == BOX ? bad[i].data : box,
		        bad[i].at == BOX ? bad[i].nbytes : sizeof(box) - 1);
		tar_end(&t);
		tar_save(&t, "held.tar");
		assert_int_equal(first_failure(&o, "held.tar", &e), -EBADMSG);
		if (!strstr(e.text, bad[i].says))
			fail_msg("\"%s\" does not contain \"%s\"", e.text, bad[i].says);
	}
}

/* Four samples, of which the last two are bad in .cls alone, and a fifth that has nothing but a
 * bad image. */
static void kinds_shard_make(void)
{
	static const struct {
		const char *suffix, *text;
	} members[] = {{"ppm", "P6 2 2 255\nabcdefghijkl"}, {"seg", "P5 2 2 255\n1234"}, {"box", "0 0 1 1"},
	        {"opt", "1"}, {"def", "2"}, {"giv", "3"}, {"flt", "0.5"}, {"json", "{\"v\": [6, 7]}"},
	        {"txt", "text"}, {"pad", "pad"}, {"lng", "long"}, {"tok", "aabbcc"}};
	struct tar t = {0};
	char name[16];

	for (int i = 0; i < 4; i++) {
		for (size_t k = 0; k < sizeof(members) / sizeof(*members); k++) {
			snprintf(name, sizeof(name), "%d.%s", i, members[k].suffix);
			tar_add_text(&t, name, members[k].text);
		}
		snprintf(name, sizeof(name), "%d.cls", i);
		tar_add_text(&t, name, i < 2 ? "8" : "photo 8");
	}
	tar_add_text(&t, "4.ppm", "no picture");
	tar_end(&t);
	tar_save(&t, "kinds.tar");
}

#define ALL_ARE(b, name, type, value)                                                        \
	do {                                                                                 \
		struct penstock_tensor all_t = field(b, name);                               \
		const type *all_p = all_t.data;                                              \
		assert_true(all_t.nbytes > 0);                                               \
		for (uint64_t all_i = 0; all_i < all_t.nbytes / sizeof(type); all_i++)       \
			if (all_p[all_i] != (value))                                         \
				fail_msg("%s: element %ju differs", name, (uintmax_t)all_i); \
	} while (0)

/* Asserts that no row is valid, and that each field has its missing value, its pad value or zeros. */
static void is_blank(const struct penstock_batch *b, uint32_t rows, uint32_t bad)
{
	static const char *const ragged[] = {"box", "txt", "var", "__key__"};
	struct penstock_batch_info info;
	struct penstock_bad told;

	penstock_batch_info(b, &info);
	assert_int_equal(info.rows, rows);
	assert_int_equal(info.bad, bad);
	assert_int_equal(info.valid, 0);
	ALL_ARE(b, "ppm", float, 0);
	ALL_ARE(b, "seg", uint8_t, 255);
	ALL_ARE(b, "opt", int64_t, -7);
	ALL_ARE(b, "def", int64_t, -1);
	ALL_ARE(b, "giv", int64_t, -100);
	ALL_ARE(b, "cls", int64_t, 0);
	ALL_ARE(b, "flt", float, 0);
	ALL_ARE(b, "json:v", int32_t, 0);
	ALL_ARE(b, "pad", uint8_t, 9);
	ALL_ARE(b, "pad:lengths", int64_t, 0);
	ALL_ARE(b, "pad:mask", uint8_t, 0);
	ALL_ARE(b, "lng:lengths", int64_t, 0);
	ALL_ARE(b, "tok", int64_t, 0);
	ALL_ARE(b, "tok:y", int64_t, 0);
	ALL_ARE(b, "out", float, 0);
	ALL_ARE(b, "__valid__", uint8_t, 0);
	ALL_ARE(b, "__shard__", int64_t, -1);
	ALL_ARE(b, "__sample__", int64_t, -1);
	assert_int_equal(field(b, "lng").nbytes, 0);
	for (int i = 0; i < 4; i++) {
		struct penstock_tensor t = field(b, ragged[i]);

		assert_int_equal(t.nbytes, 0);
		for (uint32_t row = 0; row <= rows; row++)
			assert_int_equal(t.offsets[row], 0);
	}
	for (uint32_t i = 0; i < bad; i++) {
		assert_int_equal(penstock_batch_bad(b, i, &told), 0);
		assert_int_equal(told.row, i);
		assert_string_equal(told.shard, "kinds.tar");
	}
}

static void a_batch_without_a_good_row_is_blank(void **state)
{
	static const char *const shards[] = {"kinds.tar"};

	(void)state;
	kinds_shard_make();
	for (int i = 0; i < 4; i++) {
		bool pads = i & 1, mixes = i & 2;
		struct penstock_field f[NKINDS];
		struct penstock_options o;
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_batch_info info;
		struct penstock_stats stats;

		kinds_init(&o, f);
		o.depth = 2; /* blank batches reuse the memory of good rows */
		o.end = pads ? PENSTOCK_END_PAD : PENSTOCK_END_UNEVEN;
		o.mixup_alpha = o.cutmix_alpha = mixes;
		l = open_ok(&o, shards, 1);
		for (int epoch = 0; epoch < 2; epoch++) {
			assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
			penstock_batch_info(b, &info);
			assert_int_equal(info.valid, 2);
			ALL_ARE(b, "cls", int64_t, 8);
			if (mixes)
				ALL_ARE(b, "cls:mix", int64_t, 8);
			penstock_batch_release(b);
			assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
			is_blank(b, 2, 2);
			if (mixes)
				ALL_ARE(b, "opt:mix", int64_t, -7);
			penstock_batch_release(b);
			assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
			is_blank(b, pads ? 2 : 1, 1);
			penstock_batch_release(b);
			assert_int_equal(penstock_loader_next(l, &b, NULL), 0);
		}
		assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
		assert_int_equal(stats.samples, 10);
		assert_int_equal(stats.bad, 6);
		assert_int_equal(stats.blank_batches, 4);
		assert_int_equal(stats.empty_epochs, 0);
		penstock_loader_close(l);
	}
}

static void the_detail_of_an_error_has_cause_shard_and_key(void **state)
{
	struct penstock_error_detail d;
	struct penstock_loader *l;
	struct penstock_options o;
	struct penstock_error e;
	struct penstock_field f;
	struct tar t = {0};

	(void)state;
	tar_add_text(&t, "a.txt", "\xff");
	tar_end(&t);
	tar_save(&t, "detail.tar");
	penstock_options_init(&o, sizeof(o));
	o.fields = &f;
	o.nfields = 1;
	penstock_field_init(&f, sizeof(f), "txt", PENSTOCK_TEXT);
	assert_int_equal(first_failure(&o, "detail.tar", &e), -EBADMSG);
	assert_int_equal(penstock_error_detail(&d, sizeof(d)), 0);
	assert_int_equal(d.cause, PENSTOCK_CAUSE_SAMPLE);
	assert_int_equal(d.code, EBADMSG);
	assert_string_equal(d.shard, "detail.tar");
	assert_string_equal(d.key, "a");
	f.name = "text";
	assert_int_equal(first_failure(&o, "detail.tar", &e), -EBADMSG);
	assert_int_equal(penstock_error_detail(&d, sizeof(d)), 0);
	assert_int_equal(d.cause, PENSTOCK_CAUSE_FIELD);
	assert_non_null(strstr(e.text, "did you mean \"txt\"?"));
	/* found missing at open, and while reading */
	assert_int_equal(penstock_loader_open(&o, &(const char *){"nosuch.tar"}, 1, &l, &e), -ENOENT);
	assert_int_equal(penstock_error_detail(&d, sizeof(d)), 0);
	assert_true(d.cause == PENSTOCK_CAUSE_SHARD && d.code == ENOENT && !d.key);
	assert_string_equal(d.shard, "nosuch.tar");
	assert_int_equal(symlink("loop.tar", "loop.tar"), 0);
	assert_int_equal(first_failure(&o, "loop.tar", &e), -EBADMSG);
	assert_int_equal(penstock_error_detail(&d, sizeof(d)), 0);
	assert_true(d.cause == PENSTOCK_CAUSE_SHARD && d.code == ELOOP);
	o.batch = 0;
	assert_int_equal(penstock_loader_open(&o, &(const char *){"detail.tar"}, 1, &l, &e), -EINVAL);
	assert_int_equal(penstock_error_detail(&d, sizeof(d)), 0);
	assert_true(d.cause == PENSTOCK_CAUSE_OPTIONS && !d.shard);
}

static void an_error_names_the_missing_field_and_those_present(void **state)
{
	struct penstock_options o;
	struct penstock_field f;
	struct penstock_error e;
	struct tar t = {0};
	char name[64], *told;

	(void)state;
	tar_add_text(&t, "a.png", "");
	tar_add_text(&t, "a.JSON", "");
	tar_end(&t);
	tar_save(&t, "other.tar");
	penstock_options_init(&o, sizeof(o));
	assert_int_equal(first_failure(&o, "other.tar", &e), -EBADMSG);
	assert_non_null(strstr(
	        e.text, "has no field .jpg;jpeg; it has .png, .json; jpg;jpeg and cls are the default"));
	penstock_field_init(&f, sizeof(f), "txt", PENSTOCK_BYTES);
	o.fields = &f;
	o.nfields = 1;
	assert_int_equal(first_failure(&o, "other.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "has no field .txt; it has .png, .json; make the field optional"));
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "a.suffix-%d", i);
		tar_add_text(&t, name, "");
	}
	tar_end(&t);
	tar_save(&t, "other.tar");
	assert_int_equal(first_failure(&o, "other.tar", &e), -EBADMSG);
	told = strstr(e.text, "it has .suffix-0, .suffix-1");
	assert_non_null(told);
	assert_true(strstr(told, "...; ") && strstr(told, "...; ") - told < 220);
}

static void a_truncated_shard_is_one_bad_sample_in_its_place(void **state)
{
	static const char *const shards[] = {"cut.tar", "t-1.tar"};
	struct setting s;
	struct tar t = {0};
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	struct penstock_bad bad;
	struct penstock_tensor cls;
	size_t cut;

	(void)state;
	sample_add(&t, 0, 0);
	sample_add(&t, 0, 1);
	cut = t.len + 4000;
	sample_add(&t, 0, 2);
	t.len = cut;
	file_write("cut.tar", t.data, cut);
	tar_free(&t);
	setting_init(&s);
	s.o.order = PENSTOCK_ORDER_NONE;
	s.o.lanes = 1;
	assert_int_equal(first_failure(&s.o, "cut.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "truncated"));
	s.o.on_error = PENSTOCK_SKIP;
	s.o.batch = 64;
	l = open_ok(&s.o, shards, 2);
	assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
	cls = field(b, "cls");
	assert_int_equal(cls.shape[0], 3 + PER_SHARD);
	assert_int_equal(((const int64_t *)cls.data)[1], 1);
	assert_int_equal(((const int64_t *)cls.data)[2], 1000); /* the bad row repeats the next good one */
	assert_int_equal(((const int64_t *)cls.data)[3], 1000);
	assert_int_equal(penstock_batch_bad(b, 0, &bad), 0);
	assert_string_equal(bad.key, "s0/002");
	assert_non_null(strstr(bad.reason, "truncated"));
	penstock_loader_close(l); /* with a batch held */
}

static void a_folder_is_refused_as_a_shard(void **state)
{
	struct setting s;
	struct penstock_error e;

	(void)state;
	setting_init(&s);
	assert_int_equal(mkdir("folder.tar", 0755), 0);
	assert_int_equal(first_failure(&s.o, "folder.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "is a folder, not a tar file"));
	assert_int_equal(rmdir("folder.tar"), 0);
}

static void a_sample_larger_than_the_budget_is_bad(void **state)
{
	struct tar t = {0};
	struct setting s;
	struct penstock_error e;
	char *big = calloc(1, 3 << 20);

	(void)state;
	assert_non_null(big);
	tar_add(&t, "a.txt", big, 3 << 20);
	sample_add(&t, 0, 0);
	tar_end(&t);
	tar_save(&t, "big.tar");
	free(big);
	setting_init(&s);
	s.o.depth = 2;
	s.o.memory_budget = 4 << 20;
	assert_int_equal(first_failure(&s.o, "big.tar", &e), -EBADMSG);
	assert_non_null(strstr(e.text, "raise memory_budget"));
}

static void ragged_fields_stay_within_the_memory_budget(void **state)
{
	struct tar t = {0};
	struct setting s;
	struct penstock_error e;
	char *big = calloc(1, 1 << 20);

	(void)state;
	assert_non_null(big);
	for (int i = 0; i < 24; i++)
		tar_add(&t, (char[]){(char)('a' + i), '.', 't', 'x', 't', 0}, big, 1 << 20);
	tar_end(&t);
	tar_save(&t, "ragged.tar");
	free(big);
	setting_init(&s);
	s.o.fields = &s.f[2];
	s.o.nfields = 1;
	s.o.batch = 24;
	s.o.depth = 2;
	s.o.memory_budget = 64 << 20; /* 16 MiB a batch */
	assert_int_equal(first_failure(&s.o, "ragged.tar", &e), -E2BIG);
	assert_non_null(strstr(e.text, "memory_budget"));
	s.o.batch = 12;
	assert_int_equal(first_failure(&s.o, "ragged.tar", &e), 0);
}

/* An end mark overwrites the last sample that the index has. The tar's size and date are unchanged. */
static void a_missing_indexed_sample_is_an_error_in_any_order(void **state)
{
	static const uint32_t orders[] = {PENSTOCK_ORDER_PERMUTATION, PENSTOCK_ORDER_NONE};
	static const uint8_t zeros[1024];
	struct ps_shard_index_result result;
	struct setting s;
	struct tar t = {0};
	struct stat st;
	struct penstock_error e;
	off_t end = 0;
	int fd;

	(void)state;
	for (int i = 0; i < 4; i++) {
		end = (off_t)t.len;
		sample_add(&t, 0, i);
	}
	tar_end(&t);
	tar_save(&t, "gone.tar");
	assert_int_equal(stat("gone.tar", &st), 0);
	assert_int_equal(ps_shard_index_make("gone.tar", NULL, NULL, 0, NULL, &result, NULL), 0);
	fd = open("gone.tar", O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), end), sizeof(zeros));
	assert_int_equal(futimens(fd, (struct timespec[2]){st.st_atim, st.st_mtim}), 0);
	close(fd);
	for (size_t i = 0; i < PS_ARRAY_LEN(orders); i++) {
		setting_init(&s);
		s.o.order = orders[i];
		s.o.steps = 4; /* with steps, counts are used */
		s.o.batch = 1;
		s.o.lanes = 1;
		assert_int_equal(first_failure(&s.o, "gone.tar", &e), -ESTALE);
		assert_non_null(strstr(e.text, "gone.tar: it holds "));
		assert_non_null(strstr(e.text, "index it again"));
	}
	assert_int_equal(unlink("gone.tar.psx"), 0);
}

/* A shard is repeated as often as steps= needs, but not if it is empty. */
static void shards_are_repeated_unless_they_are_empty(void **state)
{
	enum { STEPS = 1500 }; /* a lane counts as empty after fewer empty shards in a row */
	static const char *const one[] = {"one.tar"};
	struct setting s;
	struct tar t = {0};
	struct penstock_error e;
	struct penstock_loader *l;
	struct penstock_batch *b;
	int n = 0;

	(void)state;
	tar_add_text(&t, "a.txt", "text");
	tar_end(&t);
	tar_save(&t, one[0]);
	tar_end(&t);
	tar_save(&t, "none.tar");
	setting_init(&s);
	s.o.fields = &s.f[2];
	s.o.nfields = 1;
	s.o.batch = 1;
	s.o.lanes = 1;
	s.o.steps = STEPS;
	l = open_ok(&s.o, one, 1);
	for (; penstock_loader_next(l, &b, &e) == 1; n++)
		penstock_batch_release(b);
	penstock_loader_close(l);
	assert_int_equal(n, STEPS);
	assert_int_equal(first_failure(&s.o, "none.tar", &e), -ENODATA);
	assert_non_null(strstr(e.text, "none.tar and the other shards of its lane give no sample"));
}

static void too_few_descriptors_are_an_error_not_bad_shards(void **state)
{
	struct setting s;
	struct penstock_error e;
	struct rlimit was, few;
	int first = dup(0);

	(void)state;
	setting_init(&s);
	s.o.on_error = PENSTOCK_SKIP;
	s.o.lanes = SHARDS;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = (struct rlimit){.rlim_cur = (rlim_t)first + 1, .rlim_max = was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	close(first);
	assert_int_equal(first_failure(&s.o, *pattern, &e), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_non_null(strstr(e.text, ".tar: "));
	assert_non_null(strstr(e.text, "ulimit -n"));
}

static void errors_name_the_end_of_a_long_path(void **state)
{
	char path[600] = "";
	struct setting s;
	struct penstock_error e;

	(void)state;
	for (int i = 0; i < 100; i++)
		strcat(path, i % 2 ? "no/" : "\xc3\xa9/");
	strcat(path, "the-shard.tar");
	setting_init(&s);
	s.o.on_error = PENSTOCK_SKIP; /* else opening the loader fails */
	s.o.max_bad = 0;
	assert_int_equal(first_failure(&s.o, path, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "/the-shard.tar: at offset 0: cannot open"));
	assert_non_null(strstr(e.text, "check the path"));
	assert_null(strstr(e.text, "sample \""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_bad_row_repeats_the_next_good_one),
	        cmocka_unit_test(reasons_name_the_fault_in_images_masks_and_boxes),
	        cmocka_unit_test(on_error_and_max_bad_decide_when_bad_samples_fail),
	        cmocka_unit_test(an_epoch_without_a_good_sample_fails_whatever_on_error_says),
	        cmocka_unit_test(a_resumed_epoch_counts_what_was_good_before),
	        cmocka_unit_test(a_batch_without_a_good_row_is_blank),
	        cmocka_unit_test(the_detail_of_an_error_has_cause_shard_and_key),
	        cmocka_unit_test(an_error_names_the_missing_field_and_those_present),
	        cmocka_unit_test(a_truncated_shard_is_one_bad_sample_in_its_place),
	        cmocka_unit_test(a_folder_is_refused_as_a_shard),
	        cmocka_unit_test(a_sample_larger_than_the_budget_is_bad),
	        cmocka_unit_test(ragged_fields_stay_within_the_memory_budget),
	        cmocka_unit_test(a_missing_indexed_sample_is_an_error_in_any_order),
	        cmocka_unit_test(shards_are_repeated_unless_they_are_empty),
	        cmocka_unit_test(too_few_descriptors_are_an_error_not_bad_shards),
	        cmocka_unit_test(errors_name_the_end_of_a_long_path),
	};

	return cmocka_run_group_tests_name("loader_bad", tests, shards_make, shards_remove);
}
