/* GPUs that decode images and run out of memory, are lost, or are interrupted; with the mocks. */
#include "config.h"

#include <errno.h>

#include "nvjpeg_fixture.h"

/* The CPU does not take over: its pixels differ, so that runs would depend on the memory that is free. */
static void a_run_without_gpu_memory_fails(void **state)
{
	(void)state;
	for (int no_hardware = 0; no_hardware < 2; no_hardware++) {
		struct penstock_loader *l;
		struct penstock_batch *b;
		struct penstock_error e;
		struct setting s;

		gpu.set(no_hardware, 0, -1, 0);
		setting_init(&s, "photos.tar", "cuda", 0.5);
		l = loader_open(&s);
		assert_int_equal(penstock_loader_next(l, &b, &e), -ENOMEM);
		penstock_loader_close(l);
	}
}

static void a_lost_device_ends_in_an_error(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_error e;
	int r;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 1);
	s.o.epochs = 0;
	l = loader_open(&s);
	assert_int_equal(penstock_loader_next(l, &b, &e), 1);
	penstock_batch_release(b);
	gpu.lose();
	while ((r = penstock_loader_next(l, &b, &e)) >= 0)
		if (r == 1)
			penstock_batch_release(b);
	assert_true(r == -EIO || r == -ENOMEM);
	penstock_loader_close(l);
}

/* Batches are half made when the epoch is set or the loader is closed. */
static void set_epoch_and_close_wait_for_work_under_way(void **state)
{
	struct setting s;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 1);
	s.o.epochs = 0;
	s.o.end = PENSTOCK_END_DROP_LAST;
	for (int i = 0; i < 12; i++) {
		struct penstock_loader *l = loader_open(&s);
		struct record r = {0};

		if (i % 2)
			gpu.set(i % 4 == 1, 0, 0, 0);
		for (int k = 0; k < i % 3; k++)
			(void)batch_record(l, "cls", &r);
		if (i % 4 == 2)
			assert_int_equal(penstock_loader_set_epoch(l, 7, NULL), 0);
		if (i % 4 == 3)
			(void)batch_record(l, "cls", &r);
		penstock_loader_close(l);
		free(r.p);
	}
}

/* Opens a loader and holds both of its batches, so that its threads are idle. */
static struct penstock_loader *loader_at_rest(const struct setting *s, struct penstock_batch *held[2])
{
	struct penstock_loader *l = loader_open(s);

	for (int i = 0; i < 2; i++) {
		int rc = penstock_loader_next(l, &held[i], NULL);

		if (rc == 0) /* the end of an epoch */
			rc = penstock_loader_next(l, &held[i], NULL);
		assert_int_equal(rc, 1);
		assert_int_equal(penstock_batch_sync(held[i], NULL), 0);
	}
	return l;
}

/* The GPU finishes the work that it has from before the error; only then is the memory freed. */
static void an_error_in_a_batch_leaves_no_work_under_way(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *held[2], *b;
	struct penstock_error e;
	int r;

	(void)state;
	setting_init(&s, "photos.tar", "cuda", 1);
	s.o.epochs = 0;
	s.o.depth = 2;
	s.o.threads = 1;
	l = loader_at_rest(&s, held);
	gpu_hold(300);
	gpu.fail_launches(1);
	penstock_batch_release(held[0]);
	while ((r = penstock_loader_next(l, &b, &e)) == 0)
		;
	assert_int_equal(r, -EIO);
	penstock_loader_close(l);
}

/* The GPU may still be decoding rows of a dropped last batch when the next epoch needs their memory. */
static void a_dropped_batch_is_filled_again_only_after_its_work(void **state)
{
	struct setting s;
	struct penstock_loader *l;
	struct penstock_batch *held[2];
	struct record r = {0};

	(void)state;
	gpu.set(1, 0, 0, 0);
	setting_init(&s, "photos.tar", "cuda", 1);
	s.o.epochs = 0;
	s.o.depth = 2;
	s.o.take = BATCH + 1;
	s.o.end = PENSTOCK_END_DROP_LAST;
	l = loader_at_rest(&s, held);
	gpu_hold(300);
	for (int i = 0; i < 2; i++)
		penstock_batch_release(held[i]);
	for (int i = 0; i < 4; i++)
		(void)batch_record(l, NULL, &r);
	penstock_loader_close(l);
	free(r.p);
}

int main(void)
{
	const struct CMUnitTest with_mocks[] = {
	        TEST(a_run_without_gpu_memory_fails), TEST(set_epoch_and_close_wait_for_work_under_way),
	        TEST(an_error_in_a_batch_leaves_no_work_under_way),
	        TEST(a_dropped_batch_is_filled_again_only_after_its_work),
	        TEST(a_lost_device_ends_in_an_error), /* last: the device stays lost */
	};
	int failed = 0;

	gpu_open();
	if (gpu.set)
		failed += cmocka_run_group_tests(with_mocks, shards_make, shards_remove);
	return failed;
}
