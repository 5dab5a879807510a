/* Compares whole epochs of all ranks with a model (epoch_model.h), for many small random settings. */
#include "config.h"

#include "epoch_fixture.h"

#include <sys/resource.h>

static void settings_run(int n)
{
	static struct course want, have;
	int tried = 0, nempty = 0;

	for (int i = 0; i < n; i++) {
		struct setting s;

		setting_random(&s);
		if (!setting_wanted(&s))
			continue;
		tried++;
		for (uint32_t rank = 0; rank < s.world; rank++) {
			struct penstock_loader *l = open_setting(&s, rank, false, NULL, 0);
			struct setting at = s;

			if (!l && is_empty(&s)) {
				nempty += rank == 0;
				continue;
			}
			if (!l)
				setting_print(&s);
			assert_non_null(l);
			for (int epoch = 0; epoch < 2; epoch++, at.epoch++) {
				uint64_t samples, batches, rows = 0;
				struct penstock_error e;

				course_model(&at, rank, &want);
				have.rows.n = have.sizes.n = 0;
				while (batch_take(l, &have))
					;
				same(&at, rank, &have, &want);
				if (penstock_loader_length(l, at.epoch, &samples, &batches, &e) < 0)
					fail_msg("%s", e.text);
				for (uint32_t k = 0; k < have.rows.n; k++)
					rows += have.rows.v[k] < 100000;
				if (batches != have.sizes.n || samples != rows) {
					setting_print(&at);
					fail_msg("length %ju, %ju of %ju, %u", (uintmax_t)samples,
					        (uintmax_t)batches, (uintmax_t)rows, have.sizes.n);
				}
			}
			penstock_loader_close(l);
		}
	}
	assert_true(tried > n / 5 && nempty < tried / 4);
}

static void epochs_equal_the_model(void **state)
{
	(void)state;
	settings_run(TRIES(1500));
}

/* Open shards may use a quarter of the descriptors: with more lanes, shards are closed and opened again. */
static void epochs_equal_the_model_with_few_descriptors(void **state)
{
	struct rlimit was, few;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 18;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	settings_run(TRIES(450));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(epochs_equal_the_model),
	        cmocka_unit_test(epochs_equal_the_model_with_few_descriptors),
	};

	return cmocka_run_group_tests_name("epoch", tests, shards_make, shards_remove);
}
