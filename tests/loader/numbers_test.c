/* Order NUMBERS: the places of numbers given as an array, and numbers that are fed batch by batch. */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <sys/xattr.h>

#include "make_tar.h"
#include "order/order.h"
#include "shard/index/index.h"
#include "shard/shard.h"

#define SHARDS 3
#define EACH 7

static char folder[64];

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++) {
		struct ps_shard_index_result result;
		struct ps_error err;
		struct tar t = {0};
		char name[64], text[64];

		for (int i = 0; i < EACH; i++) {
			snprintf(name, sizeof(name), "%d.cls", i);
			snprintf(text, sizeof(text), "%d", s * EACH + i);
			tar_add_text(&t, name, text);
		}
		tar_end(&t);
		snprintf(name, sizeof(name), "s-%d.tar", s);
		tar_save(&t, name);
		assert_int_equal(ps_shard_index_make(name, NULL, NULL, 0, NULL, &result, &err), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	folder_leave(folder);
	return 0;
}

/* Arithmetic --------------------------------------------------------------------------------------------- */

static void an_array_fills_batches_of_equal_length(void **state)
{
	static const int64_t values[] = {9, 2, 2, 7, 5, 1, 3};
	struct ps_numbers *a;
	struct ps_error err;

	(void)state;
	assert_int_equal(ps_numbers_array(3, values, 7, NULL, 0, &a, &err), 0);
	assert_int_equal(ps_numbers_places(a), 7);
	for (uint64_t p = 0; p < 7; p++)
		assert_int_equal(ps_numbers_at(a, p), values[p]);
	assert_int_equal(ps_numbers_rows(a, 0), 3);
	assert_int_equal(ps_numbers_rows(a, 2), 1);
	assert_int_equal(ps_numbers_rows(a, 3), 0);
	assert_int_equal(ps_numbers_before(a, 0), 0);
	assert_int_equal(ps_numbers_before(a, 2), 6);
	assert_int_equal(ps_numbers_before(a, 3), 7);
	assert_int_equal(ps_numbers_before(a, UINT64_MAX), 7);
	ps_numbers_free(a);
	assert_int_equal(ps_numbers_array(3, values, 0, NULL, 0, &a, &err), -EINVAL);
	assert_int_equal(ps_numbers_array(3, values, (UINT64_C(1) << 40) + 1, NULL, 0, &a, &err), -EINVAL);
	assert_string_equal(err.text, "order: more than 2^40 numbers");
}

static void short_batches_leave_empty_places(void **state)
{
	static const int64_t values[] = {9, 2, 2, 7, 5, 1, 3};
	static const int64_t want[] = {9, 2, 2, 7, 5, -1, -1, -1, 1, 3, -1, -1};
	static const uint64_t ends[] = {4, 5, 7}, empty[] = {4, 4, 7}, less[] = {4, 5};
	struct ps_numbers *a;
	struct ps_error err;

	(void)state;
	assert_int_equal(ps_numbers_array(4, values, 7, ends, 3, &a, &err), 0);
	assert_int_equal(ps_numbers_places(a), 12);
	for (uint64_t p = 0; p < 12; p++)
		assert_int_equal(ps_numbers_at(a, p), want[p]);
	assert_int_equal(ps_numbers_rows(a, 1), 1);
	assert_int_equal(ps_numbers_before(a, 2), 5);
	assert_int_equal(ps_numbers_before(a, 9), 7);
	ps_numbers_free(a);
	assert_int_equal(ps_numbers_array(4, values, 7, empty, 3, &a, &err), -EINVAL);
	assert_non_null(strstr(err.text, "batch 1 has no numbers"));
	assert_int_equal(ps_numbers_array(4, values, 7, less, 2, &a, &err), -EINVAL);
	assert_string_equal(err.text, "order: batch_ends cover 5 numbers, but there are 7");
	assert_int_equal(ps_numbers_array(3, values, 7, ends, 3, &a, &err), -EINVAL);
	assert_non_null(
	        strstr(err.text, "batch 0 has 4 numbers, but batches have 3 rows at most; raise batch"));
}

static void different_arrays_have_different_hashes(void **state)
{
	static const int64_t values[] = {1, 2, 3, 4}, swapped[] = {1, 3, 2, 4}, longer[] = {1, 2, 3, 4, 0};
	static const uint64_t ends[] = {2, 4}, others[] = {1, 4};
	struct ps_numbers *a[5];
	struct ps_error err;

	(void)state;
	assert_int_equal(ps_numbers_array(4, values, 4, NULL, 0, &a[0], &err), 0);
	assert_int_equal(ps_numbers_array(4, swapped, 4, NULL, 0, &a[1], &err), 0);
	assert_int_equal(ps_numbers_array(4, longer, 5, NULL, 0, &a[2], &err), 0);
	assert_int_equal(ps_numbers_array(4, values, 4, ends, 2, &a[3], &err), 0);
	assert_int_equal(ps_numbers_array(4, values, 4, others, 2, &a[4], &err), 0);
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < i; j++)
			assert_true(a[i]->hash != a[j]->hash);
	for (int i = 0; i < 5; i++)
		ps_numbers_free(a[i]);
}

static void shards_are_listed_by_first_use(void **state)
{
	static const int64_t values[] = {12, 3, 13, 12, 0, 4};
	static const uint64_t ends[] = {3, 3, 10, 20}; /* shard 1 is empty */
	struct ps_numbers *a;
	struct ps_uses u;
	struct ps_error err;

	(void)state;
	assert_int_equal(ps_shard_of_number(ends, 4, 2), 0);
	assert_int_equal(ps_shard_of_number(ends, 4, 3), 2);
	assert_int_equal(ps_shard_of_number(ends, 4, 19), 3);
	assert_int_equal(ps_numbers_array(2, values, 6, NULL, 0, &a, &err), 0);
	assert_int_equal(ps_numbers_check(a, 13, &err), -ERANGE);
	assert_non_null(strstr(err.text, "number 2 is sample 13"));
	assert_int_equal(ps_numbers_check(a, 20, &err), 0);
	assert_int_equal(ps_numbers_uses(a, UINT64_MAX, ends, 4, &u), 0);
	assert_int_equal(u.n, 3);
	assert_int_equal(u.shards[0], 3);
	assert_int_equal(u.shards[1], 2);
	assert_int_equal(u.shards[2], 0);
	assert_int_equal(ps_uses_over(&u, 3), 0);
	assert_int_equal(ps_uses_over(&u, 4), 1); /* shard 3; shard 2 is used again */
	assert_int_equal(ps_uses_over(&u, 5), 1); /* shard 0 is over, but follows shard 2 in the list */
	assert_int_equal(ps_uses_over(&u, 6), 3);
	ps_uses_fini(&u);
	assert_int_equal(ps_numbers_uses(a, 4, ends, 4, &u), 0);
	assert_int_equal(u.n, 2);
	ps_uses_fini(&u);
	ps_numbers_free(a);
	assert_int_equal(ps_numbers_array(2, (const int64_t[]){0, 12, 0}, 3, NULL, 0, &a, &err), 0);
	assert_int_equal(ps_numbers_uses(a, UINT64_MAX, ends, 4, &u), 0);
	assert_int_equal(ps_uses_over(&u, 2), 0); /* the first shard is used after the second one is over */
	assert_int_equal(ps_uses_over(&u, 3), 2);
	ps_uses_fini(&u);
	ps_numbers_free(a);
}

static void a_feed_keeps_its_last_batches(void **state)
{
	static const int64_t values[] = {1, 2, 3, 9};
	struct ps_numbers *f;
	struct ps_error err;

	(void)state;
	assert_int_equal(ps_numbers_feed(3, &f, &err), 0);
	assert_true(ps_numbers_is_feed(f));
	assert_int_equal(ps_numbers_places(f), PS_ENDLESS);
	assert_int_equal(ps_numbers_feed_keep(f, 2, &err), 0);
	assert_int_equal(ps_numbers_check(f, 9, &err), 0);
	ps_numbers_begin(f, 4, 10);
	assert_int_equal(ps_numbers_give(f, 10, values, 3, &err), 0);
	assert_int_equal(ps_numbers_give(f, 10, values + 1, 1, &err), 0);
	assert_int_equal(ps_numbers_give(f, 10, values, 1, &err), -EBUSY);
	assert_string_equal(err.text, "feed: 2 batches are ahead; take one first");
	assert_int_equal(ps_numbers_at(f, 31), 2);
	assert_int_equal(ps_numbers_at(f, 33), 2);
	assert_int_equal(ps_numbers_at(f, 34), -1);
	assert_int_equal(ps_numbers_give(f, 11, values + 2, 1, &err), 0);
	assert_int_equal(ps_numbers_at(f, 36), 3);
	assert_int_equal(ps_numbers_give(f, 12, values, 4, &err), -EINVAL);
	assert_int_equal(ps_numbers_give(f, 12, values + 3, 1, &err), -ERANGE);
	assert_int_equal(f->fed, 13);
	assert_int_equal(ps_numbers_give(f, 13, NULL, 0, &err), 0);
	assert_int_equal(ps_numbers_give(f, 13, values, 1, &err), -EINVAL); /* the epoch is over */
	assert_string_equal(err.text, "feed: epoch 4 was ended; next() must return its end first");
	ps_numbers_begin(f, 5, 0);
	assert_int_equal(ps_numbers_give(f, 0, values, 1, &err), 0);
	ps_numbers_free(f);
}

/* A loader ----------------------------------------------------------------------------------------------- */

static struct penstock_loader *open_with(struct penstock_options *o, struct penstock_error *e)
{
	static const char *const shards[] = {"s-{0..2}.tar"};
	static struct penstock_field field;
	struct penstock_loader *l;

	penstock_field_init(&field, sizeof(field), "cls", PENSTOCK_INT64);
	o->fields = &field;
	o->nfields = 1;
	o->order = PENSTOCK_ORDER_NUMBERS;
	return penstock_loader_open(o, shards, 1, &l, e) < 0 ? NULL : l;
}

/* Asserts that the next batch has these numbers; n 0: that the epoch is over. */
static void expect(struct penstock_loader *l, const int64_t *numbers, uint32_t n)
{
	struct penstock_batch_info info;
	struct penstock_tensor t;
	struct penstock_batch *b;
	struct penstock_error e;

	assert_int_equal(penstock_loader_next(l, &b, &e), n > 0);
	if (n == 0)
		return;
	penstock_batch_info(b, &info);
	assert_int_equal(info.rows, n);
	assert_int_equal(penstock_batch_field(b, "cls", &t, NULL), 0);
	assert_memory_equal(t.data, numbers, n * sizeof(*numbers));
	penstock_batch_release(b);
}

static void an_array_is_copied_and_may_repeat_numbers(void **state)
{
	int64_t numbers[] = {20, 0, 7, 7, 6};
	struct penstock_options o;
	struct penstock_error e;
	uint64_t samples, batches;

	(void)state;
	penstock_options_init(&o, sizeof(o));
	o.batch = 2;
	o.world = 5; /* the array is not split among ranks */
	o.rank = 3;
	o.numbers = numbers;
	o.nnumbers = 5;
	struct penstock_loader *l = open_with(&o, &e);
	assert_non_null(l);
	memset(numbers, 0xff, sizeof(numbers));
	for (int epoch = 0; epoch < 2; epoch++) {
		expect(l, (int64_t[]){20, 0}, 2);
		expect(l, (int64_t[]){7, 7}, 2);
		expect(l, (int64_t[]){6}, 1);
		expect(l, NULL, 0);
	}
	assert_int_equal(penstock_loader_length(l, 0, &samples, &batches, &e), 0);
	assert_int_equal(samples, 5);
	assert_int_equal(batches, 3);
	assert_int_equal(penstock_loader_feed(l, numbers, 1, &e), -EINVAL);
	penstock_loader_close(l);
	assert_null(open_with(&o, &e));
	assert_int_equal(e.code, ERANGE);
}

static void a_state_after_the_last_batch_resumes_at_the_end(void **state)
{
	struct penstock_options o;
	struct penstock_error e;
	uint8_t saved[8192];

	(void)state;
	penstock_options_init(&o, sizeof(o));
	o.batch = 2;
	o.epochs = 1;
	o.numbers = (const int64_t[]){20, 0, 7};
	o.nnumbers = 3;
	struct penstock_loader *l = open_with(&o, &e);
	assert_non_null(l);
	expect(l, (int64_t[]){20, 0}, 2);
	expect(l, (int64_t[]){7}, 1);
	int n = penstock_loader_state_save(l, saved, sizeof(saved), &e);
	assert_true(n > 0);
	penstock_loader_close(l);
	l = open_with(&o, &e);
	assert_non_null(l);
	if (penstock_loader_state_load(l, saved, (size_t)n, &e) < 0)
		fail_msg("%s", e.text);
	expect(l, NULL, 0);
	penstock_loader_close(l);
}

static void fed_batches_come_in_order_until_the_epoch_is_ended(void **state)
{
	static const int64_t numbers[] = {20, 0, 7, 7, 6, 21};
	struct penstock_options o;
	struct penstock_batch *b;
	struct penstock_error e;
	uint64_t samples, batches;
	uint8_t saved[8192];

	(void)state;
	penstock_options_init(&o, sizeof(o));
	o.batch = 3;
	o.depth = 2;
	struct penstock_loader *l = open_with(&o, &e);
	assert_non_null(l);
	assert_int_equal(penstock_loader_length(l, 0, &samples, &batches, &e), -ENODATA);
	assert_int_equal(penstock_loader_next(l, &b, &e), -EAGAIN); /* next() does not hang */
	assert_non_null(strstr(e.text, "no batch was fed"));
	assert_int_equal(penstock_loader_wait(l, 1, &e), 1);
	assert_int_equal(penstock_loader_feed(l, numbers, 3, &e), 1);
	assert_int_equal(penstock_loader_feed(l, numbers + 3, 1, &e), 0);
	assert_int_equal(penstock_loader_feed(l, numbers + 4, 1, &e), -EBUSY);
	expect(l, numbers, 3);
	assert_int_equal(penstock_loader_feed(l, numbers + 5, 1, &e), -ERANGE);
	assert_non_null(strstr(e.text, "sample 21"));
	assert_int_equal(penstock_loader_feed(l, numbers + 4, 1, &e), 0);
	int n = penstock_loader_state_save(l, saved, sizeof(saved), &e);
	assert_true(n > 0);
	expect(l, numbers + 3, 1);
	assert_int_equal(penstock_loader_feed(l, NULL, 0, &e), 0);
	expect(l, numbers + 4, 1);
	expect(l, NULL, 0);
	assert_int_equal(penstock_loader_next(l, &b, &e), -EAGAIN);
	assert_int_equal(penstock_loader_feed(l, numbers + 1, 2, &e), 1);
	expect(l, numbers + 1, 2);
	assert_int_equal(penstock_loader_feed(l, numbers + 1, 2, &e), 1);
	assert_int_equal(penstock_loader_set_epoch(l, 9, &e), 0); /* drops the batch that was fed */
	assert_int_equal(penstock_loader_next(l, &b, &e), -EAGAIN);
	assert_int_equal(penstock_loader_state_load(l, saved, (size_t)n, &e), 0);
	assert_int_equal(penstock_loader_feed(l, numbers + 3, 1, &e), 1);
	assert_int_equal(penstock_loader_feed(l, NULL, 0, &e), 0);
	assert_int_equal(penstock_loader_next(l, &b, &e), 1);
	struct penstock_batch_info info;
	penstock_batch_info(b, &info);
	assert_int_equal(info.epoch, 0);
	assert_int_equal(info.index, 1);
	penstock_batch_release(b);
	expect(l, NULL, 0);
	penstock_loader_close(l);
}

/* Short batches leave empty places. While readers skip these places, the feed overwrites batches that were
 * delivered. */
static void a_feed_may_have_batches_of_any_lengths(void **state)
{
	static int64_t numbers[64];
	uint32_t lens[2000], given = 0, fed = 0;
	struct penstock_options o;
	struct penstock_error e;

	(void)state;
	penstock_options_init(&o, sizeof(o));
	o.batch = 64;
	o.depth = 2;
	o.readers = 8;
	o.threads = 4;
	struct penstock_loader *l = open_with(&o, &e);
	assert_non_null(l);
	for (uint32_t i = 0; i < 2000; i++)
		lens[i] = i % 7 == 0 ? 64 : 1 + i * 31 % 5;
	while (given < 2000) {
		for (int r = 1; r == 1 && fed < 2000; fed++) {
			for (uint32_t k = 0; k < lens[fed]; k++)
				numbers[k] = (fed * 5 + k) % (SHARDS * EACH);
			r = penstock_loader_feed(l, numbers, lens[fed], &e);
			assert_true(r >= 0);
		}
		for (uint32_t k = 0; k < lens[given]; k++)
			numbers[k] = (given * 5 + k) % (SHARDS * EACH);
		expect(l, numbers, lens[given++]);
	}
	assert_int_equal(penstock_loader_feed(l, NULL, 0, &e), 0);
	expect(l, NULL, 0);
	penstock_loader_close(l);
}

static void steps_end_the_epoch_of_a_feed(void **state)
{
	static const int64_t number = 3;
	struct penstock_options o;
	struct penstock_error e;

	(void)state;
	penstock_options_init(&o, sizeof(o));
	o.steps = 2;
	struct penstock_loader *l = open_with(&o, &e);
	assert_non_null(l);
	for (int epoch = 0; epoch < 3; epoch++) {
		assert_int_equal(penstock_loader_feed(l, &number, 1, &e), 1);
		assert_int_equal(penstock_loader_feed(l, &number, 1, &e), 0);
		assert_int_equal(penstock_loader_feed(l, &number, 1, &e), -EINVAL);
		assert_non_null(strstr(e.text, "feed: the epoch has 2 steps, and all were fed"));
		expect(l, &number, 1);
		expect(l, &number, 1);
		expect(l, NULL, 0);
	}
	penstock_loader_close(l);
	o.numbers = &number;
	o.nnumbers = 1;
	o.steps = 0;
	l = open_with(&o, &e);
	assert_non_null(l);
	assert_int_equal(penstock_loader_feed(l, &number, 1, &e), -EINVAL);
	assert_non_null(strstr(e.text, "feed: needs order NUMBERS, without `numbers`"));
	penstock_loader_close(l);
}

static void numbers_in_shards_outside_the_cache_are_refused(void **state)
{
	static const int64_t here[] = {0, 20}, away[] = {0, 20, 7};
	struct penstock_options o;
	struct penstock_error e;

	(void)state;
	if (setxattr("s-1.tar", "user.penstock.state", "partial", 7, 0) < 0)
		return; /* the file system has no attributes */
	penstock_options_init(&o, sizeof(o));
	assert_null(open_with(&o, &e)); /* a feed may name samples of any shard */
	assert_non_null(strstr(e.text, "1 of 3 shards are not in the cache"));
	o.numbers = away;
	o.nnumbers = 3;
	assert_null(open_with(&o, &e));
	assert_non_null(strstr(e.text, "permute_remote"));
	o.numbers = here;
	o.nnumbers = 2;
	struct penstock_loader *l = open_with(&o, &e);
	assert_non_null(l); /* no number is in the shard that is not cached */
	penstock_loader_close(l);
	o.numbers = away;
	o.nnumbers = 3;
	o.permute_remote = 1;
	l = open_with(&o, &e);
	assert_non_null(l);
	expect(l, away, 3);
	penstock_loader_close(l);
	assert_int_equal(removexattr("s-1.tar", "user.penstock.state"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(an_array_fills_batches_of_equal_length),
	        cmocka_unit_test(short_batches_leave_empty_places),
	        cmocka_unit_test(different_arrays_have_different_hashes),
	        cmocka_unit_test(shards_are_listed_by_first_use),
	        cmocka_unit_test(a_feed_keeps_its_last_batches),
	        cmocka_unit_test(an_array_is_copied_and_may_repeat_numbers),
	        cmocka_unit_test(a_state_after_the_last_batch_resumes_at_the_end),
	        cmocka_unit_test(fed_batches_come_in_order_until_the_epoch_is_ended),
	        cmocka_unit_test(a_feed_may_have_batches_of_any_lengths),
	        cmocka_unit_test(steps_end_the_epoch_of_a_feed),
	        cmocka_unit_test(numbers_in_shards_outside_the_cache_are_refused),
	};

	return cmocka_run_group_tests_name("numbers", tests, setup, teardown);
}
