/* The eviction policies with simulated datasets: the code that the store runs, without a disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "policy/policy.h"
#include "policy/policy_private.h"

#define MAX_ITEMS 1024
#define DAY_S (24 * 3600)

/* A cache of objects of size 1. */
struct sim {
	const struct ps_policy_ops *ops;
	struct ps_plans *plans;
	struct ps_policy *policy;
	size_t capacity, n;
	struct ps_policy_item items[MAX_ITEMS];
	int64_t now_s;
	uint64_t seq;
	unsigned rng;
};

static struct sim *sim_new(const char *policy, size_t capacity)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	sim->ops = ps_policy_find(policy);
	sim->plans = ps_plans_new();
	sim->policy = sim->ops->new (sim->plans);
	sim->capacity = capacity;
	sim->now_s = 1000000000;
	sim->rng = 1;
	return sim;
}

static void sim_free(struct sim *sim)
{
	sim->ops->free(sim->policy);
	ps_plans_free(sim->plans);
	free(sim);
}

static struct ps_id id_of(uint32_t dataset, unsigned i)
{
	struct ps_id id = {{0}};

	memcpy(id.bytes, &dataset, sizeof(dataset));
	memcpy(id.bytes + 4, &i, sizeof(i));
	return id;
}

static int by_slot_desc(const void *a, const void *b)
{
	return *(const size_t *)a < *(const size_t *)b ? 1 : -1;
}

static size_t sim_choose(
        struct sim *sim, const struct ps_id *id, uint32_t dataset, size_t need, size_t *victims)
{
	const struct ps_policy_query query = {.items = sim->items,
	        .n = sim->n,
	        .need_nbytes = need,
	        .now_s = sim->now_s,
	        .id = id,
	        .dataset = dataset};

	return sim->ops->choose(sim->policy, &query, victims);
}

/* One open as the store does it. True: a hit. */
static bool sim_open(struct sim *sim, uint32_t dataset, unsigned i)
{
	struct ps_id id = id_of(dataset, i);
	size_t victims[MAX_ITEMS];

	for (size_t k = 0; k < sim->n; k++) {
		if (ps_id_cmp(&sim->items[k].id, &id) != 0)
			continue;
		sim->ops->opened(sim->policy, dataset, &id, sim->items[k].opened_s, sim->now_s);
		sim->items[k].opened_s = sim->now_s;
		sim->items[k].seq = sim->seq++;
		return true;
	}
	sim->ops->opened(sim->policy, dataset, &id, 0, sim->now_s);
	if (sim->n >= sim->capacity) {
		size_t n = sim_choose(sim, &id, dataset, sim->n + 1 - sim->capacity, victims);
		if (n == 0)
			return false;
		qsort(victims, n, sizeof(victims[0]), by_slot_desc);
		for (size_t k = 0; k < n; k++)
			sim->items[victims[k]] = sim->items[--sim->n];
	}
	sim->items[sim->n++] = (struct ps_policy_item){
	        .id = id, .dataset = dataset, .nbytes = 1, .opened_s = sim->now_s, .seq = sim->seq++};
	return false;
}

/* Simulates an epoch over n objects in a new order, with `step_s` between them; `nworkers` open each at
 * about the same time. Returns the share of hits. */
static double sim_epoch(struct sim *sim, uint32_t dataset, unsigned n, int64_t step_s, unsigned nworkers)
{
	unsigned order[MAX_ITEMS], hits = 0;

	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n; i > 1; i--) {
		sim->rng = sim->rng * 1103515245 + 12345;
		unsigned j = (sim->rng >> 8) % i, t = order[i - 1];
		order[i - 1] = order[j];
		order[j] = t;
	}
	for (unsigned i = 0; i < n; i++) {
		sim->now_s += step_s;
		hits += sim_open(sim, dataset, order[i]);
		for (unsigned w = 1; w < nworkers; w++) {
			sim->now_s += w == 1;
			sim_open(sim, dataset, order[i]);
		}
	}
	return (double)hits / n;
}

static double mean_after_first(const char *policy, unsigned nworkers)
{
	struct sim *sim = sim_new(policy, 100);
	double sum = 0;

	sim_epoch(sim, 1, 200, 5, nworkers);
	for (int i = 0; i < 8; i++)
		sum += sim_epoch(sim, 1, 200, 5, nworkers);
	sim_free(sim);
	print_message("# %s, dataset twice the cache, %u workers: %.3f hits\n", policy, nworkers, sum / 8);
	return sum / 8;
}

/* The policy whose cache one pass over a large dataset must not flush, also while there is no plan. */
static const char *const proof[] = {"plan"};

static void a_dataset_twice_the_cache_hits_half_the_time(void **state)
{
	(void)state;
	for (size_t p = 0; p < PS_ARRAY_LEN(proof); p++) {
		double one = mean_after_first(proof[p], 1), eight = mean_after_first(proof[p], 8);

		assert_true(one > 0.48 && one <= 0.501);
		assert_true(eight > 0.48 && eight <= 0.501);
	}
}

static void lru_hits_far_less_often(void **state)
{
	(void)state;
	double lru = mean_after_first("lru", 1);

	assert_true(lru > 0.10 && lru < 0.22);
}

static void check_an_abandoned_dataset_is_evicted_after_three_of_its_epochs(const char *policy)
{
	struct sim *sim = sim_new(policy, 100);

	for (int i = 0; i < 5; i++)
		sim_epoch(sim, 1, 100, 10, 1); /* epochs of 1000 s; the whole dataset is cached */
	assert_true(sim_epoch(sim, 1, 100, 10, 1) == 1.0);
	int64_t left_s = sim->now_s;
	double hits = 0;
	int64_t changed_s = 0;
	for (int i = 0; i < 20 && hits < 0.99; i++) {
		hits = sim_epoch(sim, 2, 50, 10, 1);
		if (hits > 0 && !changed_s)
			changed_s = sim->now_s;
	}
	print_message("# the new dataset first hit %lld s after the old was left\n",
	        (long long)(changed_s - left_s));
	assert_true(hits >= 0.99);
	assert_true(changed_s - left_s > 2000); /* not at once: the old run may go on */
	assert_true(changed_s - left_s < 4500);
	sim_free(sim);
}

static void an_abandoned_dataset_is_evicted_after_three_of_its_epochs(void **state)
{
	(void)state;
	for (size_t p = 0; p < PS_ARRAY_LEN(proof); p++)
		check_an_abandoned_dataset_is_evicted_after_three_of_its_epochs(proof[p]);
}

static void check_without_a_known_epoch_time_a_dataset_is_in_use_for_a_day(const char *policy)
{
	struct sim *sim = sim_new(policy, 10);

	for (unsigned i = 0; i < 10; i++)
		sim_open(sim, 1, i);
	sim->now_s += DAY_S - 60;
	assert_false(sim_open(sim, 2, 0));
	assert_false(sim_open(sim, 2, 0)); /* was streamed */
	sim->now_s += 120;
	assert_false(sim_open(sim, 2, 0));
	assert_true(sim_open(sim, 2, 0));
	sim_free(sim);
}

static void without_a_known_epoch_time_a_dataset_is_in_use_for_a_day(void **state)
{
	(void)state;
	for (size_t p = 0; p < PS_ARRAY_LEN(proof); p++)
		check_without_a_known_epoch_time_a_dataset_is_in_use_for_a_day(proof[p]);
}

static void check_concurrent_opens_of_workers_are_not_taken_for_epochs(const char *policy)
{
	struct sim *sim = sim_new(policy, 10);

	/* Eight workers open two shards in turn for some seconds; then nothing is opened for hours. */
	for (int i = 0; i < 40; i++) {
		sim_open(sim, 1, i % 2);
		sim->now_s += i % 5 == 0;
	}
	for (unsigned i = 2; i < 10; i++)
		sim_open(sim, 1, i);
	sim->now_s += 6 * 3600;
	assert_false(sim_open(sim, 2, 0));
	assert_false(sim_open(sim, 2, 0));
	sim_free(sim);
}

static void concurrent_opens_of_workers_are_not_taken_for_epochs(void **state)
{
	(void)state;
	for (size_t p = 0; p < PS_ARRAY_LEN(proof); p++)
		check_concurrent_opens_of_workers_are_not_taken_for_epochs(proof[p]);
}

static void check_two_datasets_in_turn_keep_their_own_epoch_times(const char *policy)
{
	struct sim *sim = sim_new(policy, 100);
	double fast = 0, slow = 0;

	/* A small dataset is read often, a large one slowly: both fit and both stay. */
	for (int i = 0; i < 6; i++) {
		for (int k = 0; k < 4; k++)
			fast = sim_epoch(sim, 1, 20, 5, 1);
		slow = sim_epoch(sim, 2, 80, 50, 1);
	}
	assert_true(fast == 1.0);
	assert_true(slow == 1.0);
	sim_free(sim);
}

static void two_datasets_in_turn_keep_their_own_epoch_times(void **state)
{
	(void)state;
	for (size_t p = 0; p < PS_ARRAY_LEN(proof); p++)
		check_two_datasets_in_turn_keep_their_own_epoch_times(proof[p]);
}

/* Otherwise the objects read last would be evicted, and objects to which no reader seems to come back would
 * stay. */
static void the_longer_an_object_is_overdue_the_later_it_is_expected(void **state)
{
	struct sim *sim = sim_new("plan", 100);
	struct ps_plan_file file = {.node = 1, .dataset = 1, .id = id_of(1, 5000)};
	const struct ps_plan_teller teller = {.feed = 1, .datasets = (uint32_t[]){1}, .ndatasets = 1};
	const struct ps_plan_who who = {.job = "job", .world = 1};
	size_t victims[MAX_ITEMS];
	int64_t oldest_s = INT64_MAX;

	(void)state;
	for (int i = 0; i < 5; i++)
		sim_epoch(sim, 1, 100, 10, 1); /* epochs of 1000 s */
	/* Another 800 s later the first object is overdue by 800 s, and the last one is due in 200 s. */
	sim->now_s += 800;
	for (size_t i = 0; i < sim->n; i++)
		oldest_s = oldest_s < sim->items[i].opened_s ? oldest_s : sim->items[i].opened_s;
	assert_int_equal(ps_plans_tell(sim->plans, &teller, &who, &file, 1, (double)sim->now_s), 0);
	assert_int_equal(sim_choose(sim, &file.id, 1, 1, victims), 1);
	assert_int_equal(sim->items[victims[0]].opened_s, oldest_s);
	sim_free(sim);
}

static void a_held_object_is_never_evicted(void **state)
{
	(void)state;
	for (size_t p = 0; ps_policies[p]; p++) {
		struct sim *sim = sim_new(ps_policies[p]->name, 4);
		size_t victims[MAX_ITEMS];

		for (unsigned i = 0; i < 4; i++)
			sim_open(sim, 1, i);
		sim->items[0].busy = sim->items[2].busy = true;
		sim->now_s += 10 * DAY_S;
		struct ps_id id = id_of(1, 9);
		size_t n = sim_choose(sim, &id, 1, 2, victims);
		assert_int_equal(n, 2);
		assert_int_equal(victims[0], 1);
		assert_int_equal(victims[1], 3);
		assert_int_equal(sim_choose(sim, &id, 1, 3, victims), 0);
		sim_free(sim);
	}
}

static void the_oldest_are_chosen_first_and_no_more_than_needed(void **state)
{
	(void)state;
	struct ps_policy_item items[500] = {0};
	unsigned rng = 7;

	for (size_t n = 0; n <= PS_ARRAY_LEN(items); n += n < 20 ? 1 : 97) {
		struct ps_policy_query query = {.items = items, .n = n};
		size_t indexes[500];
		uint64_t total = 0;

		for (size_t i = 0; i < n; i++) {
			rng = rng * 1103515245 + 12345;
			items[i] = (struct ps_policy_item){.id = id_of(1, (unsigned)i),
			        .nbytes = 1 + (rng >> 9) % 5,
			        .opened_s = (rng >> 16) % 50,
			        .seq = (rng >> 20) * 1000 + i};
			total += items[i].nbytes;
		}
		uint64_t need = query.need_nbytes = 1 + total / 2;
		size_t k = ps_policy_oldest(&query, indexes);
		uint64_t sum = 0;
		for (size_t i = 0; i < k; i++) {
			assert_true(sum < need);
			sum += items[indexes[i]].nbytes;
			if (i > 0)
				assert_true(items[indexes[i]].opened_s >= items[indexes[i - 1]].opened_s);
			items[indexes[i]].busy = true;
		}
		for (size_t i = 0; k > 0 && i < n; i++)
			assert_true(items[i].busy || items[i].opened_s >= items[indexes[k - 1]].opened_s);
		assert_true(n == 0 ? k == 0 : sum >= need);
		for (size_t i = 0; i < n; i++)
			items[i].busy = false;
		query.need_nbytes = total + 1;
		assert_int_equal(ps_policy_oldest(&query, indexes), 0);
	}
}

/* Beyond PS_VICTIMS_EXACT items the heap is kept between calls: at a later call it must still give one of the
 * oldest items. */
static void the_oldest_of_many_items_are_chosen_too(void **state)
{
	(void)state;
	enum { N = 16 * PS_VICTIMS_EXACT };
	struct ps_policy_item *items = calloc(N, sizeof(*items));
	struct ps_policy_query query = {.items = items, .need_nbytes = 1, .now_s = 1000000};
	size_t *victims = calloc(N, sizeof(*victims)), n = N;
	struct ps_policy *lru = ps_policy_find("lru")->new (NULL);
	uint64_t seq = 0;
	unsigned rng = 3;

	for (size_t i = 0; i < N; i++)
		items[i] = (struct ps_policy_item){
		        .id = id_of(1, (unsigned)i), .nbytes = 1, .opened_s = (int64_t)i, .seq = seq++};
	for (int round = 0; round < 3000; round++) {
		rng = rng * 1103515245 + 12345;
		size_t opened = (rng >> 8) % n;

		/* One item is opened, one is held for good, one is evicted, and the last item takes the
		 * evicted one's slot. */
		items[opened].opened_s = 2 * N + round;
		items[opened].seq = seq++;
		if (round % 7 == 0)
			items[(rng >> 4) % n].busy = true;
		query.n = n;
		query.now_s += round % 500 == 0;
		assert_int_equal(ps_policy_find("lru")->choose(lru, &query, victims), 1);
		const struct ps_policy_item *gone = &items[victims[0]];
		assert_false(gone->busy);
		for (size_t i = 0; i < n; i += 13)
			if (!items[i].busy && items[i].opened_s < gone->opened_s)
				assert_true(gone->opened_s - items[i].opened_s < N / 8);
		assert_true(gone->opened_s < 2 * N);
		items[victims[0]] = items[--n];
	}
	ps_policy_find("lru")->free(lru);
	free(items);
	free(victims);
}

static void policies_are_found_by_name(void **state)
{
	(void)state;
	assert_string_equal(ps_policy_find("plan")->name, "plan");
	assert_null(ps_policy_find("scan"));
	assert_string_equal(ps_policy_find("lru")->name, "lru");
	assert_null(ps_policy_find("belady"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_dataset_twice_the_cache_hits_half_the_time),
	        cmocka_unit_test(lru_hits_far_less_often),
	        cmocka_unit_test(an_abandoned_dataset_is_evicted_after_three_of_its_epochs),
	        cmocka_unit_test(without_a_known_epoch_time_a_dataset_is_in_use_for_a_day),
	        cmocka_unit_test(concurrent_opens_of_workers_are_not_taken_for_epochs),
	        cmocka_unit_test(two_datasets_in_turn_keep_their_own_epoch_times),
	        cmocka_unit_test(the_longer_an_object_is_overdue_the_later_it_is_expected),
	        cmocka_unit_test(a_held_object_is_never_evicted),
	        cmocka_unit_test(the_oldest_are_chosen_first_and_no_more_than_needed),
	        cmocka_unit_test(the_oldest_of_many_items_are_chosen_too),
	        cmocka_unit_test(policies_are_found_by_name),
	};

	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
