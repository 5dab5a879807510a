/* Whole epochs of all ranks against a model (epoch_model.h). Many small random settings. */
#include "config.h"

#include "epoch_fixture.h"

static void epochs_are_those_of_the_model(void **state)
{
	static struct course want, have;
	int tried = 0, nempty = 0;

	(void)state;
	for (int i = 0; i < TRIES(1500); i++) {
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
	assert_true(tried > TRIES(300) && nempty < tried / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(epochs_are_those_of_the_model),
	};

	return cmocka_run_group_tests_name("epoch", tests, shards_make, shards_remove);
}
