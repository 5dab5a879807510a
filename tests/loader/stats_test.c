/* Statistics and profiles of a loader, and budgets that loaders share. */
#include "config.h"

#include "loader.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>

#include "make_tar.h"
#include "batches.h"

#define SAMPLES 200

static char folder[64];
static const char *const shards[] = {"s.tar"};
static struct photo photos[MAX_PHOTOS];
static int nphotos;

static int setup(void **state)
{
	struct tar t = {0};

	(void)state;
	nphotos = photos_load(photos);
	folder_enter(folder);
	for (int i = 0; i < SAMPLES; i++) {
		char name[32], text[32];

		snprintf(name, sizeof(name), "%03d.jpg", i);
		tar_add(&t, name, photos[i % nphotos].data, photos[i % nphotos].len);
		snprintf(name, sizeof(name), "%03d.cls", i);
		snprintf(text, sizeof(text), "%d", i % 10 == 0 ? -5 : i % 2);
		tar_add_text(&t, name, text);
		snprintf(name, sizeof(name), "%03d.txt", i);
		tar_add_text(&t, name, "12345" + i % 5);
	}
	tar_end(&t);
	tar_save(&t, "s.tar");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	for (int i = 0; i < nphotos; i++)
		free(photos[i].data);
	return 0;
}

struct setting {
	struct penstock_options o;
	struct penstock_field f[3];
};

static void setting_init(struct setting *s)
{
	penstock_options_init(&s->o, sizeof(s->o));
	penstock_field_init(&s->f[0], sizeof(s->f[0]), "jpg", PENSTOCK_IMAGE);
	s->f[0].image_width = s->f[0].image_height = 64;
	s->f[0].crop = PENSTOCK_CROP_NONE;
	penstock_field_init(&s->f[1], sizeof(s->f[1]), "cls", PENSTOCK_INT64);
	penstock_field_init(&s->f[2], sizeof(s->f[2]), "txt", PENSTOCK_BYTES);
	s->o.fields = s->f;
	s->o.nfields = 3;
	s->o.batch = 20;
	s->o.epochs = 1;
	s->o.threads = 2;
	s->o.lanes = 1;
	s->o.memory_budget = 64 << 20;
}

/* Runs an epoch; returns the mean of the images' values, if they are f32. */
static double run(struct penstock_loader *l)
{
	struct penstock_batch *b;
	struct penstock_error e;
	double sum = 0, n = 0;
	int rc;

	while ((rc = penstock_loader_next(l, &b, &e)) == 1) {
		struct penstock_tensor t;

		if (penstock_batch_field(b, "jpg", &t, NULL) < 0)
			t = (struct penstock_tensor){0};
		for (uint64_t i = 0; i < t.nbytes / 4 && t.dtype == PENSTOCK_F32; i++)
			sum += (double)((const float *)t.data)[i];
		n += (double)t.nbytes / 4;
		penstock_batch_release(b);
	}
	if (rc < 0)
		fail_msg("%s", e.text);
	return sum / n;
}

static void no_profile(struct penstock_loader *l)
{
	struct penstock_error e;

	assert_int_equal(penstock_loader_profile(l, NULL, 0, &e), -ENODATA);
	assert_string_equal(e.text, "the loader was opened without options.profile");
}

static json_t *profile(struct penstock_loader *l)
{
	int n = penstock_loader_profile(l, NULL, 0, NULL);
	struct penstock_error e;
	json_error_t why;
	json_t *root;
	char *text;

	assert_true(n > 0);
	text = malloc((size_t)n + 1);
	assert_int_equal(penstock_loader_profile(l, text, (size_t)n, &e), -ENOBUFS);
	assert_int_equal(penstock_loader_profile(l, text, (size_t)n + 1, NULL), n);
	root = json_loads(text, 0, &why);
	if (!root)
		fail_msg("%s: %s", why.text, text);
	free(text);
	return root;
}

static double number(const json_t *root, const char *column, const char *what, const char *which)
{
	json_t *v = json_object_get(root, "fields");

	v = json_object_get(json_object_get(json_object_get(v, column), what), which);
	assert_true(json_is_number(v));
	return json_number_value(v);
}

static void a_profile_has_statistics_of_each_field(void **state)
{
	static const uint32_t dtypes[] = {PENSTOCK_F32, PENSTOCK_U8};
	double means[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct setting s;
		struct penstock_loader *l;
		json_t *root, *channels;

		setting_init(&s);
		if (i == 0) {
			l = open_ok(&s.o, shards, 1);
			no_profile(l);
			penstock_loader_close(l);
		}
		s.o.profile = 1;
		s.f[0].dtype = dtypes[i];
		for (int k = 0; k < 3; k++) {
			s.f[0].mean[k] = i == 0 ? 0.5f : s.f[0].mean[k]; /* u8 is not normalised */
			s.f[0].std[k] = i == 0 ? 2 : s.f[0].std[k];
		}
		l = open_ok(&s.o, shards, 1);
		means[i] = run(l) * 2 + 0.5;
		root = profile(l);
		assert_int_equal(json_integer_value(json_object_get(root, "samples")), SAMPLES);
		assert_true(fabs(number(root, "cls", "labels", "-5") - 20) < 0.1);
		assert_true(fabs(number(root, "cls", "labels", "1") - 100) < 0.1);
		assert_true(fabs(number(root, "cls", "values", "min") + 5) < 1e-9);
		assert_true(fabs(number(root, "cls", "values", "mean") - 0.0) < 1e-6);
		assert_true(fabs(number(root, "txt", "items", "mean") - 3) < 1e-6);
		assert_true(fabs(number(root, "txt", "items", "std") - sqrt(2)) < 1e-6);
		assert_true(number(root, "jpg", "bytes", "max") > number(root, "jpg", "bytes", "min"));
		channels =
		        json_object_get(json_object_get(json_object_get(root, "fields"), "jpg"), "channels");
		assert_int_equal(json_array_size(channels), 3);
		if (i == 0) { /* a part of the pixels has about the mean of all */
			double sum = 0;

			for (size_t k = 0; k < 3; k++)
				sum += json_number_value(
				        json_object_get(json_array_get(channels, k), "mean"));
			assert_true(fabs(sum / 3 - means[0]) < 0.02);
			means[0] = sum;
		} else {
			double sum = 0;

			for (size_t k = 0; k < 3; k++)
				sum += json_number_value(
				        json_object_get(json_array_get(channels, k), "mean"));
			assert_true(fabs(sum - means[0]) < 1e-3); /* the same for each dtype */
		}
		json_decref(root);
		penstock_loader_close(l);
	}
}

static void a_profile_counts_the_smallest_label_of_int64(void **state)
{
	static const char *const path[] = {"least.tar"};
	struct tar t = {0};
	struct setting s;
	struct penstock_loader *l;
	json_t *root;

	(void)state;
	tar_add_text(&t, "0.cls", "-9223372036854775808");
	tar_end(&t);
	tar_save(&t, path[0]);
	setting_init(&s);
	s.o.profile = 1;
	s.o.fields = &s.f[1];
	s.o.nfields = 1;
	l = open_ok(&s.o, path, 1);
	run(l);
	root = profile(l);
	assert_true(fabs(number(root, "cls", "labels", "-9223372036854775808") - 1) < 0.1);
	json_decref(root);
	penstock_loader_close(l);
}

static void without_the_option_there_is_no_profile(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_error e;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, shards, 1);
	assert_int_equal(penstock_loader_profile(l, NULL, 0, &e), -ENODATA);
	assert_non_null(strstr(e.text, "options.profile"));
	penstock_loader_close(l);
}

static void the_consumers_waits_add_up_to_its_waiting_time(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_stats stats;
	double parts;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, shards, 1);
	run(l);
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	parts = stats.wait_storage + stats.wait_read + stats.wait_decode;
	assert_true(stats.wait_storage >= 0 && stats.wait_read >= 0 && stats.wait_decode >= 0);
	assert_true(fabs(parts - stats.stages[2].waiting_input) < 1e-6 + 1e-3 * parts);
	assert_non_null(stats.bottleneck);
	assert_true(strlen(stats.advice) > 0);
	penstock_loader_close(l);
}

static void shorter_statistics_of_an_older_caller_are_not_overrun(void **state)
{
	enum { OLD = offsetof(struct penstock_stats, wait_storage) };
	struct setting s;
	struct penstock_loader *l;
	union {
		struct penstock_stats stats;
		uint8_t bytes[sizeof(struct penstock_stats)];
	} u;

	(void)state;
	setting_init(&s);
	l = open_ok(&s.o, shards, 1);
	run(l);
	memset(&u, 0x77, sizeof(u));
	assert_int_equal(penstock_loader_stats(l, &u.stats, OLD, NULL), 0);
	assert_int_equal(u.stats.samples, SAMPLES);
	for (size_t i = OLD; i < sizeof(u); i++)
		assert_int_equal(u.bytes[i], 0x77);
	penstock_loader_close(l);
}

/* The bytes of each of the last four epochs are known. */
static void bytes_are_counted_by_epoch(void **state)
{
	enum { EPOCHS = 7 };
	struct setting s;
	struct penstock_loader *l;
	struct penstock_stats stats;

	(void)state;
	setting_init(&s);
	s.o.epochs = EPOCHS;
	l = open_ok(&s.o, shards, 1);
	for (int i = 0; i < EPOCHS; i++)
		run(l);
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	assert_int_equal(stats.reread, 0);
	for (uint64_t epoch = EPOCHS - 4; epoch < EPOCHS; epoch++)
		assert_int_equal(ps_pipeline_epoch_nbytes(l->pipeline, epoch), stats.bytes_read / EPOCHS);
	assert_int_equal(ps_pipeline_epoch_nbytes(l->pipeline, EPOCHS - 5), 0);
	penstock_loader_close(l);
}

static void loaders_share_a_budget(void **state)
{
	struct penstock_budget *budget = penstock_budget_new(12 << 20);
	struct setting s;
	struct penstock_loader *train, *val, *third;
	struct penstock_batch *b;
	struct penstock_error e;
	struct penstock_stats stats;

	(void)state;
	assert_non_null(budget);
	setting_init(&s);
	s.o.budget = budget;
	s.o.depth = 2;
	train = open_ok(&s.o, shards, 1);
	s.o.shuffle_window = 1;
	val = open_ok(&s.o, shards, 1);
	assert_true(penstock_budget_used(budget) > 4 << 20); /* 20 x 64 x 64 x 3 floats, twice in each */
	while (penstock_loader_next(val, &b, NULL) == 1) {
		penstock_batch_release(b);
	}
	assert_true(penstock_budget_used(budget) <= 18 << 20); /* train's shuffle window gets smaller */
	run(train); /* neither loader starves: samples that do not fit are read again */
	assert_int_equal(penstock_loader_stats(train, &stats, sizeof(stats), NULL), 0);
	s.o.batch = 60;
	assert_int_equal(penstock_loader_open(&s.o, shards, 1, &third, &e), -E2BIG);
	assert_non_null(strstr(e.text, "shared with other loaders"));
	penstock_loader_close(train);
	s.o.batch = 20;
	third = open_ok(&s.o, shards, 1); /* there is room again */
	penstock_budget_free(budget);
	run(third);
	penstock_loader_close(val);
	penstock_loader_close(third);
}

static void close_returns_all_memory_to_the_budget(void **state)
{
	struct penstock_budget *budget = penstock_budget_new(32 << 20);
	struct setting s;
	struct penstock_batch *b;

	(void)state;
	setting_init(&s);
	s.o.budget = budget;
	for (int i = 0; i < 4; i++) {
		struct penstock_loader *l = open_ok(&s.o, shards, 1);

		for (int k = 0; k < i; k++)
			assert_int_equal(penstock_loader_next(l, &b, NULL), 1);
		penstock_loader_close(l);
		assert_int_equal(penstock_budget_used(budget), 0);
	}
	penstock_budget_free(budget);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_profile_has_statistics_of_each_field),
	        cmocka_unit_test(a_profile_counts_the_smallest_label_of_int64),
	        cmocka_unit_test(without_the_option_there_is_no_profile),
	        cmocka_unit_test(the_consumers_waits_add_up_to_its_waiting_time),
	        cmocka_unit_test(shorter_statistics_of_an_older_caller_are_not_overrun),
	        cmocka_unit_test(bytes_are_counted_by_epoch),
	        cmocka_unit_test(loaders_share_a_budget),
	        cmocka_unit_test(close_returns_all_memory_to_the_budget),
	};

	return cmocka_run_group_tests_name("stats", tests, setup, teardown);
}
