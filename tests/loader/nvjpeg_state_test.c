/* States of runs whose images the GPU decodes: a state has the GPU's share, and is refused by a run with
 * another share. */
#include "config.h"

#include <errno.h>

#include "batch/batch.h"
#include "nvjpeg_fixture.h"

/* Whether the share is frozen: then bit 32 of the first of the state's last four words is 0. */
static bool is_frozen(struct penstock_loader *l, uint8_t saved[static 512], int *ret_n)
{
	*ret_n = penstock_loader_state_save(l, saved, 512, NULL);
	assert_true(*ret_n > 208);
	return !(saved[*ret_n - 32 + 4] & 1);
}

/* A run that is resumed from a state with a frozen share has the same batches as the run that saved it. */
static void a_state_keeps_the_frozen_share(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct record want = {0}, got = {0}, skipped = {0};
	uint8_t saved[512];
	int n;

	(void)state;
	gpu.set(0, 0, 0, 5);
	setting_init(&s, "photos.tar", "cuda", PENSTOCK_GPU_DECODE_AUTO);
	s.o.epochs = 0;
	l = loader_open(&s);
	assert_false(is_frozen(l, saved, &n));
	for (int i = 0; i < 2 * (int)PS_OFFLOAD_MOST && !is_frozen(l, saved, &n); i++)
		(void)batch_record(l, "cls", &skipped);
	assert_true(is_frozen(l, saved, &n));
	for (int i = 0; i < 20; i++)
		(void)batch_record(l, NULL, &want);
	penstock_loader_close(l);
	s.o.state = saved;
	s.o.state_nbytes = (size_t)n;
	s.o.threads = 1;
	l = loader_open(&s);
	for (int i = 0; i < 20; i++)
		(void)batch_record(l, NULL, &got);
	same(&want, &got);
	free(skipped.p);
	penstock_loader_close(l);
}

static void loads(const struct setting *s, const void *state, int n, int want, const char *text)
{
	struct penstock_loader *l = loader_open(s);
	struct penstock_error e = {0};

	assert_int_equal(penstock_loader_state_load(l, state, (size_t)n, &e), want);
	if (text && !strstr(e.text, text))
		fail_msg("\"%s\" does not contain \"%s\"", e.text, text);
	penstock_loader_close(l);
}

static void states_with_another_share_are_refused(void **state)
{
	uint8_t of_half[512], of_cpu[512];
	struct penstock_loader *l;
	struct setting half, cpu, automatic, less;
	int nhalf, ncpu;

	(void)state;
	setting_init(&half, "photos.tar", "cuda", 0.5);
	setting_init(&less, "photos.tar", "cuda", 0.25);
	setting_init(&cpu, "photos.tar", "cpu", 0);
	setting_init(&automatic, "photos.tar", "cuda", PENSTOCK_GPU_DECODE_AUTO);
	l = loader_open(&half);
	nhalf = penstock_loader_state_save(l, of_half, sizeof(of_half), NULL);
	penstock_loader_close(l);
	l = loader_open(&cpu);
	ncpu = penstock_loader_state_save(l, of_cpu, sizeof(of_cpu), NULL);
	penstock_loader_close(l);
	assert_int_equal(nhalf, ncpu + 32);
	loads(&half, of_half, nhalf, 0, NULL);
	loads(&automatic, of_half, nhalf, 0, NULL);
	loads(&automatic, of_cpu, ncpu, 0, NULL);
	loads(&less, of_half, nhalf, -ESTALE, "gpu_decode 0.5");
	loads(&cpu, of_half, nhalf, -ESTALE, "gpu_decode 0.5");
	loads(&half, of_cpu, ncpu, -ESTALE, "gpu_decode 0");
	of_half[nhalf - 1] ^= 1;
	loads(&half, of_half, nhalf, -EINVAL, "damaged");
}

int main(void)
{
	const struct CMUnitTest with_any[] = {
	        TEST(states_with_another_share_are_refused),
	};
	const struct CMUnitTest with_mocks[] = {
	        TEST(a_state_keeps_the_frozen_share),
	};
	int failed = 0;

	gpu_open();
	failed += cmocka_run_group_tests(with_any, shards_make, shards_remove);
	if (gpu.set)
		failed += cmocka_run_group_tests(with_mocks, shards_make, shards_remove);
	return failed;
}
