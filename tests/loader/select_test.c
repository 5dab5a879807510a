/* Selections: an exact number of draws, which all ways to count and to find draws agree on; weights of a
 * column; balance of classes. */
#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <math.h>

#include "make_tar.h"
#include "random/random.h"
#include "shard/index/index.h"
#include "shard/shard.h"

#define SHARDS 4
static const int counts[SHARDS] = {5, 256, 1, 600}; /* sums are stored for every 256th sample of a shard */
#define ALL (5 + 256 + 1 + 600)

static char folder[64];
static char names[SHARDS][16];
static char *shards[SHARDS];

#define LARGE 1 /* number, in its shard, of a sample whose weight is over PS_SELECT_MAX_TIMES */

/* One of four samples is of class 0, the others are of class 1. */
static int class_of(int i)
{
	return i % 4 > 0;
}

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++) {
		struct ps_column_spec columns[2];
		struct ps_shard_index_result result;
		struct ps_error err;
		struct tar t = {0};
		char name[64];

		for (int i = 0; i < counts[s]; i++) {
			snprintf(name, sizeof(name), "%d.cls", i);
			tar_add_text(&t, name, class_of(i) ? "1" : "0");
			snprintf(name, sizeof(name), "%d.w", i);
			tar_add_text(&t, name, i == LARGE ? "1e10" : "0.5");
		}
		tar_end(&t);
		snprintf(names[s], sizeof(names[s]), "s-%d.tar", s);
		shards[s] = names[s];
		tar_save(&t, names[s]);
		assert_int_equal(ps_column_spec_parse("label=cls", &columns[0], &err), 0);
		assert_int_equal(ps_column_spec_parse("w", &columns[1], &err), 0);
		assert_int_equal(ps_shard_index_make(names[s], NULL, columns, 2, NULL, &result, &err), 0);
		ps_column_spec_fini(&columns[0]);
		ps_column_spec_fini(&columns[1]);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

static struct ps_select *select_of(struct ps_shard_indexes *indexes, const double *weights, uint64_t draws)
{
	struct ps_error err = {0};
	struct ps_select *s;

	assert_int_equal(ps_select_new(&(struct ps_select_options){.list = weights,
	                                       .nlist = ALL,
	                                       .draws = draws,
	                                       .seed = 3,
	                                       .indexes = indexes,
	                                       .nshards = SHARDS},
	                         &s, &err),
	        0);
	assert_true(ps_select_is_exact(s));
	return s;
}

/* Stores how often each sample comes, and returns the sum. */
static uint64_t times_take(struct ps_select *s, uint64_t epoch, uint64_t pass, int *ret_times)
{
	struct ps_error err;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < SHARDS; i++) {
		struct ps_select_view *v;

		assert_int_equal(ps_select_open(s, i, epoch, pass, &v, &err), 0);
		for (int k = 0; k < counts[i]; k++, ret_times++) {
			*ret_times = ps_select_times(v, (uint64_t)k, &err);
			assert_true(*ret_times >= 0);
			sum += (uint64_t)*ret_times;
		}
		ps_select_close(v);
	}
	return sum;
}

static void weights_make(uint32_t n, double *ret_weights)
{
	struct ps_rng_key key = {.seed = n};

	for (uint32_t i = 0; i < ALL; i++)
		ret_weights[i] =
		        n == 0 ? 1 : pow(ps_rng_unit(&key, PS_RNG_SAMPLE_DRAW, i), n * 3) * (i % 5 > 0);
}

static void totals_are_exact_and_shares_are_rounded(void **state)
{
	static const uint64_t draws[] = {1, 17, ALL, 5000, 100000};
	struct ps_shard_indexes *indexes = ps_shard_indexes_new(shards, SHARDS, NULL);
	static double weights[ALL];
	static int times[ALL];

	(void)state;
	for (uint32_t n = 0; n < 4; n++) {
		double sum = 0;

		weights_make(n, weights);
		for (int i = 0; i < ALL; i++)
			sum += weights[i];
		for (size_t d = 0; d < PS_ARRAY_LEN(draws); d++) {
			struct ps_select *s = select_of(indexes, weights, draws[d]);

			for (uint64_t epoch = 0; epoch < 3; epoch++) {
				assert_int_equal(times_take(s, epoch, epoch, times), draws[d]);
				for (int i = 0; i < ALL; i++) {
					double share = (double)draws[d] * weights[i] / sum;

					assert_true(times[i] >= floor(share - 1e-6) &&
					            times[i] <= ceil(share + 1e-6));
				}
			}
			ps_select_free(s);
		}
	}
	ps_shard_indexes_free(indexes);
}

/* ps_select_count() from any copy of any sample, and ps_select_skip() over any number of draws, agree with
 * draws that are counted one by one. */
static void count_and_skip_agree_with_single_draws(void **state)
{
	struct ps_shard_indexes *indexes = ps_shard_indexes_new(shards, SHARDS, NULL);
	struct ps_error err;
	static double weights[ALL];
	static int times[ALL];
	struct ps_select *s;
	const int *of = times;

	(void)state;
	weights_make(2, weights);
	s = select_of(indexes, weights, 3000);
	assert_int_equal(times_take(s, 1, 0, times), 3000);
	for (uint32_t i = 0; i < SHARDS; of += counts[i++]) {
		struct ps_select_view *v;
		uint64_t left = 0, all;

		assert_int_equal(ps_select_open(s, i, 1, 0, &v, &err), 0);
		for (int k = counts[i] - 1; k >= 0;
		        k--) { /* backwards: no call can use the last one's result */
			uint64_t sample = (uint64_t)k, at = (uint64_t)k;
			uint32_t copy = 0;

			left += (uint64_t)of[k];
			assert_int_equal(ps_select_count(v, sample, 0, &all, &err), 0);
			assert_int_equal(all, left);
			for (int c = 1; c <= of[k]; c++) {
				assert_int_equal(ps_select_count(v, sample, (uint32_t)c, &all, &err), 0);
				assert_int_equal(all, left - (uint64_t)c);
			}
			for (uint64_t n = 1; n < PS_MIN(left, 40u); n++) { /* draw n of those that are left */
				uint64_t to = n, want = at;

				while (to >= (uint64_t)of[want])
					to -= (uint64_t)of[want++];
				sample = at;
				copy = 0;
				assert_int_equal(ps_select_skip(v, &sample, &copy, n, &err), 0);
				assert_int_equal(sample, want);
				assert_int_equal(copy, to);
			}
			sample = at;
			copy = 0;
			assert_int_equal(ps_select_skip(v, &sample, &copy, left, &err), 0);
			assert_true(left == 0 || sample == (uint64_t)counts[i]);
		}
		ps_select_close(v);
	}
	ps_select_free(s);
	ps_shard_indexes_free(indexes);
}

static struct ps_select *column_select(struct ps_shard_indexes *indexes, bool weights)
{
	struct ps_error err = {0};
	struct ps_select *s;

	assert_int_equal(ps_select_new(&(struct ps_select_options){.weights = weights ? "w" : NULL,
	                                       .balance = weights ? NULL : "label",
	                                       .replacement = weights,
	                                       .seed = 3,
	                                       .indexes = indexes,
	                                       .nshards = SHARDS},
	                         &s, &err),
	        0);
	return s;
}

/* On average a sample comes as often as its weight, but at most PS_SELECT_MAX_TIMES times. */
static void each_epoch_draws_again_by_the_weights_of_a_column(void **state)
{
	struct ps_shard_indexes *indexes = ps_shard_indexes_new(shards, SHARDS, NULL);
	struct ps_select *s = column_select(indexes, true);
	static int times[2][ALL];
	struct ps_select_view *v;
	struct ps_error err;
	uint64_t left, all = 0;

	(void)state;
	for (uint64_t epoch = 0; epoch < 2; epoch++)
		(void)times_take(s, epoch, 0, times[epoch]);
	assert_memory_not_equal(times[0], times[1], sizeof(times[0]));
	assert_int_equal(times[0][LARGE], PS_SELECT_MAX_TIMES);
	for (int k = LARGE; k < counts[0]; k++)
		all += (uint64_t)times[0][k];
	assert_int_equal(ps_select_open(s, 0, 0, 0, &v, &err), 0);
	for (uint32_t copy = 0; copy < 4; copy++) {
		assert_int_equal(ps_select_count(v, LARGE, copy, &left, &err), 0);
		assert_int_equal(left, all - copy);
	}
	uint64_t sample = LARGE;
	uint32_t copy = 100;
	assert_int_equal(ps_select_skip(v, &sample, &copy, 50, &err), 0);
	assert_int_equal(sample, LARGE);
	assert_int_equal(copy, 150);
	ps_select_close(v);
	ps_select_free(s);
	ps_shard_indexes_free(indexes);
}

/* An index may come from anywhere: its weights are trusted no more than members of a shard. */
static void invalid_weights_in_an_index_are_refused(void **state)
{
	static const double wrong[] = {(double)NAN, -1, -1e-300};
	char *const shard[] = {(char *)(uintptr_t) "wrong.tar"};
	struct tar t = {0};

	(void)state;
	tar_add_text(&t, "0.txt", "");
	tar_end(&t);
	tar_save(&t, *shard);
	for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++) {
		const struct ps_column_value value = {.type = PS_COLUMN_FLOAT, .number = wrong[i]};
		struct ps_shard_indexes *indexes = ps_shard_indexes_new(shard, 1, NULL);
		struct ps_shard_index_writer *w = ps_shard_index_writer_new();
		struct ps_shard_index_version version;
		struct ps_error err = {0};
		struct ps_select *s;
		int column;

		assert_true(indexes && w);
		column = ps_shard_index_writer_column(w, "w", "w");
		assert_true(column >= 0);
		assert_int_equal(ps_shard_index_writer_add(w, 0, false, "0", 1, NULL, 0), 0);
		assert_int_equal(ps_shard_index_writer_value(w, column, &value), 0);
		assert_int_equal(ps_shard_index_version_read(*shard, &version, NULL), 0);
		assert_int_equal(ps_shard_index_writer_save(w, *shard, NULL, &version, 1024, NULL), 0);
		ps_shard_index_writer_free(w);
		assert_int_equal(ps_select_new(&(struct ps_select_options){.weights = "w",
		                                       .replacement = true,
		                                       .indexes = indexes,
		                                       .nshards = 1},
		                         &s, &err),
		        -EINVAL);
		assert_non_null(strstr(err.text, "the weight of sample 0 of shard 0"));
		ps_shard_indexes_free(indexes);
	}
}

/* All samples of the smallest class come, and about as many of the other class. */
static void balance_cuts_larger_classes_to_the_smallest(void **state)
{
	struct ps_shard_indexes *indexes = ps_shard_indexes_new(shards, SHARDS, NULL);
	struct ps_select *s = column_select(indexes, false);
	static int times[ALL];
	int all[2] = {0}, come[2] = {0};
	const int *of = times;

	(void)state;
	(void)times_take(s, 0, 0, times);
	for (int i = 0; i < SHARDS; of += counts[i++])
		for (int k = 0; k < counts[i]; k++) {
			all[class_of(k)]++;
			come[class_of(k)] += of[k];
		}
	assert_int_equal(come[0], all[0]);
	assert_in_range(come[1], all[0] * 3 / 4, all[0] * 5 / 4);
	ps_select_free(s);
	ps_shard_indexes_free(indexes);
}

static void independent_draws_are_proportional_to_the_weights(void **state)
{
	struct ps_shard_indexes *indexes = ps_shard_indexes_new(shards, SHARDS, NULL);
	struct ps_error err;
	static double weights[ALL];
	static int seen[ALL];
	double sum = 0, chi2 = 0;
	int classes = 0;
	struct ps_select *s;

	(void)state;
	weights_make(1, weights);
	s = select_of(indexes, weights, 10);
	for (uint64_t n = 0; n < 50000; n++) {
		uint32_t shard;
		uint64_t sample;

		assert_int_equal(ps_select_draw(s, 2, n, &shard, &sample, &err), 0);
		assert_true(shard < SHARDS && sample < (uint64_t)counts[shard]);
		for (uint32_t i = 0; i < shard; i++)
			sample += (uint64_t)counts[i];
		seen[sample]++;
	}
	for (int i = 0; i < ALL; i++)
		sum += weights[i];
	for (int i = 0; i < ALL; i++) {
		double want = 50000 * weights[i] / sum;

		assert_true(weights[i] > 0 || seen[i] == 0);
		if (want < 5)
			continue;
		chi2 += (seen[i] - want) * (seen[i] - want) / want;
		classes++;
	}
	assert_true(classes > 100 && fabs(chi2 - classes) < 6 * sqrt(2.0 * classes));
	ps_select_free(s);
	ps_shard_indexes_free(indexes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(totals_are_exact_and_shares_are_rounded),
	        cmocka_unit_test(count_and_skip_agree_with_single_draws),
	        cmocka_unit_test(each_epoch_draws_again_by_the_weights_of_a_column),
	        cmocka_unit_test(invalid_weights_in_an_index_are_refused),
	        cmocka_unit_test(balance_cuts_larger_classes_to_the_smallest),
	        cmocka_unit_test(independent_draws_are_proportional_to_the_weights),
	};

	return cmocka_run_group_tests_name("select", tests, setup, teardown);
}
