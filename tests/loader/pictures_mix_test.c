/* MixUp and CutMix, through the public interface. */
#include "config.h"

#include "pictures_fixture.h"

#include <math.h>

static void mixing_init(struct setting *s, double mixup, double cutmix)
{
	setting_init(s);
	field_add(s, "ppm", PENSTOCK_IMAGE)->dtype = PENSTOCK_F32;
	field_add(s, "cls", PENSTOCK_INT64);
	s->o.mixup_alpha = mixup;
	s->o.cutmix_alpha = cutmix;
}

static void mixed_rows_check(const struct setting *s, float **ret_lambda, int64_t **ret_rows)
{
	size_t n;
	int64_t *own = (int64_t *)(void *)epoch_of(s, "cls", &n);
	int64_t *other = (int64_t *)(void *)epoch_of(s, "cls:mix", &n);

	*ret_rows = (int64_t *)(void *)epoch_of(s, "__mix_row__", &n);
	*ret_lambda = (float *)(void *)epoch_of(s, "__mix_lambda__", &n);
	assert_int_equal(n, SAMPLES * sizeof(float));
	for (size_t i = 0; i < SAMPLES; i++) {
		size_t first = i / BATCH * BATCH;

		assert_int_equal((*ret_rows)[i], i == first ? BATCH - 1 : i - first - 1);
		assert_int_equal(other[i], own[first + (size_t)(*ret_rows)[i]]);
		assert_true((*ret_lambda)[i] >= 0 && (*ret_lambda)[i] <= 1 &&
		            (*ret_lambda)[i] == (*ret_lambda)[first]);
	}
	free(own);
	free(other);
}

static void mixup_is_the_weighted_sum_of_two_images(void **state)
{
	struct setting plain, s;
	size_t n, row = OUT_W * OUT_H * 3;
	float *a, *b, *lambda;
	int64_t *rows;

	(void)state;
	mixing_init(&plain, 0, 0);
	mixing_init(&s, 0.8, 0);
	mixed_rows_check(&s, &lambda, &rows);
	a = (float *)(void *)epoch_of(&plain, "ppm", &n);
	b = (float *)(void *)epoch_of(&s, "ppm", &n);
	for (size_t i = 0; i < SAMPLES; i++) {
		const float *own = a + i * row, *other = a + (i / BATCH * BATCH + (size_t)rows[i]) * row;

		for (size_t k = 0; k < row; k++)
			assert_true(fabsf(b[i * row + k] -
			                    (own[k] * lambda[i] + other[k] * (1 - lambda[i]))) < 1e-5f);
	}
	assert_true(lambda[0] != lambda[BATCH]);
	free(a);
	free(b);
	free(lambda);
	free(rows);
}

static void cutmix_replaces_pixels_by_the_other_images(void **state)
{
	struct setting plain, s;
	size_t n, row = OUT_W * OUT_H * 3;
	float *a, *b, *lambda;
	int64_t *rows;

	(void)state;
	mixing_init(&plain, 0, 0);
	mixing_init(&s, 0, 1);
	mixed_rows_check(&s, &lambda, &rows);
	a = (float *)(void *)epoch_of(&plain, "ppm", &n);
	b = (float *)(void *)epoch_of(&s, "ppm", &n);
	for (size_t i = 0; i < SAMPLES; i++) {
		const float *own = a + i * row, *other = a + (i / BATCH * BATCH + (size_t)rows[i]) * row;
		size_t from_other = 0, most = (size_t)lroundf((1 - lambda[i]) * (float)row);

		for (size_t k = 0; k < row; k++) {
			assert_true(b[i * row + k] == own[k] || b[i * row + k] == other[k]);
			from_other += b[i * row + k] != own[k];
		}
		assert_true(from_other <= most); /* values that are equal in both images are not counted */
		assert_true(from_other > 0 || most == 0 || memcmp(own, other, row * sizeof(float)) == 0 ||
		            lambda[i] > 0.9f);
	}
	free(a);
	free(b);
	free(lambda);
	free(rows);
}

static void mixing_is_the_same_for_any_threads_and_off_at_probability_0(void **state)
{
	struct setting s, other;

	(void)state;
	mixing_init(&s, 0.2, 1);
	mixing_init(&other, 0.2, 1);
	other.o.threads = 7;
	same_epoch(&s, "ppm", &other, "ppm", true);
	same_epoch(&s, "__mix_lambda__", &other, "__mix_lambda__", true);
	mixing_init(&other, 0, 0);
	s.o.mix_probability = 0;
	same_epoch(&s, "ppm", &other, "ppm", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(mixup_is_the_weighted_sum_of_two_images),
	        cmocka_unit_test(cutmix_replaces_pixels_by_the_other_images),
	        cmocka_unit_test(mixing_is_the_same_for_any_threads_and_off_at_probability_0),
	};

	return cmocka_run_group_tests_name("pictures-mix", tests, setup, teardown);
}
