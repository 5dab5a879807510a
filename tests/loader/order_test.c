#include "config.h"

#include "order/order.h"

#include <errno.h>

#include "make_tar.h"
#include "random/random.h"

/* A naive order of an epoch, written in the simplest way from the contract in order.h: whole lists, no
 * blocks ahead, no turns. A sample is shard * 1000 + its place in the shard. */

#define MAX_SAMPLES 20000
#define MAX_SHARDS 200

struct naive {
	const struct ps_order_options *o;
	uint64_t epoch;
	const uint32_t *counts; /* of samples, by shard */
};

static void naive_permute(uint32_t *v, uint32_t n, struct ps_rng_key key, uint32_t op)
{
	for (uint32_t i = n; i-- > 1;) {
		uint32_t j = (uint32_t)ps_rng_below(&key, op, i, i + 1u);
		uint32_t t = v[i];

		v[i] = v[j];
		v[j] = t;
	}
}

/* The end of the block that begins at `at`: the first `block` samples are cut at a half, a quarter, ...
 * a 16th, in epoch 0 ... a 128th. */
static uint32_t naive_block_end(uint64_t epoch, uint32_t at, uint32_t block)
{
	for (uint32_t part = epoch ? 16 : 128; part > 1; part /= 2)
		if (block / part > at)
			return block / part;
	return at + block - at % block;
}

/* All samples of lane `lane` (of all ranks' lanes), in order. */
static uint32_t naive_lane(const struct naive *n, uint32_t lane, uint32_t lanes, uint32_t *ret_samples)
{
	uint32_t shards[MAX_SHARDS];
	uint32_t total = 0, block = n->o->window;
	uint32_t active = lanes < n->o->nshards ? lanes : n->o->nshards;
	struct ps_rng_key key = {.seed = n->o->seed, .epoch = n->epoch};

	for (uint32_t i = 0; i < n->o->nshards; i++)
		shards[i] = i;
	if (n->o->mode != PS_ORDER_NONE)
		naive_permute(shards, n->o->nshards, key, PS_RNG_SHARD_ORDER);
	for (uint32_t i = lane; i < n->o->nshards; i += lanes)
		for (uint32_t j = 0; j < n->counts[shards[i]]; j++)
			ret_samples[total++] = shards[i] * 1000 + j;
	if (n->o->mode != PS_ORDER_WINDOW)
		return total;
	block = (block + active - 1) / active;
	for (uint32_t at = 0, b = 0, end; at < total; at = end, b++) {
		end = naive_block_end(n->epoch, at, block);
		key.shard = lane;
		key.sample = b;
		naive_permute(ret_samples + at, (end < total ? end : total) - at, key, PS_RNG_SAMPLE_ORDER);
	}
	return total;
}

/* The rank's epoch in the naive order. */
static uint32_t naive_epoch(const struct naive *n, uint32_t *ret_samples)
{
	static uint32_t lane_samples[64][MAX_SAMPLES];
	uint32_t lens[64] = {0}, total = 0;
	uint32_t lanes = n->o->mode == PS_ORDER_NONE ? n->o->world : n->o->lanes;

	for (uint32_t l = n->o->rank; l < lanes; l += n->o->world)
		lens[l] = naive_lane(n, l, lanes, lane_samples[l]);
	for (uint32_t round = 0; round < MAX_SAMPLES; round++)
		for (uint32_t l = n->o->rank; l < lanes; l += n->o->world)
			if (round < lens[l])
				ret_samples[total++] = lane_samples[l][round];
	return total;
}

/* The rank's epoch from the functions of order.h, block by block, as in the pipeline. */
static uint32_t real_epoch(const struct naive *n, uint32_t *ret_samples)
{
	struct ps_error err;
	struct ps_order *order = ps_order_new(n->o, &err);
	uint32_t nlanes, len, total = 0;
	struct lane {
		uint32_t shard, in_shard, block, at, n, *samples;
		uint64_t k;
		bool open, last;
	} * lanes;
	uint32_t *from, nsets;
	const struct ps_lane_set *sets;
	struct ps_turns turns;
	uint64_t pass;

	assert_non_null(order);
	nlanes = ps_order_nlanes(order);
	lanes = calloc(nlanes, sizeof(*lanes));
	from = malloc(ps_order_block_len(order) * sizeof(*from));
	sets = ps_order_sets(order, &nsets);
	assert_int_equal(ps_turns_init(&turns, sets, nsets), 0);
	ps_turns_reset(&turns, NULL, NULL);
	while (!turns.over) {
		struct lane *l = &lanes[turns.lane];

		if (l->at < l->n) {
			ret_samples[total++] = l->samples[l->at++];
			ps_turns_advance(&turns);
			continue;
		}
		if (l->last) {
			ps_turns_finish(&turns, false);
			continue;
		}
		free(l->samples);
		len = (uint32_t)(ps_order_block_begin(order, n->epoch, l->block + 1) -
		                 ps_order_block_begin(order, n->epoch, l->block));
		assert_true(len > 0 && len <= ps_order_block_len(order));
		l->samples = malloc(len * sizeof(uint32_t));
		uint32_t *plain = malloc(len * sizeof(uint32_t));
		l->n = l->at = 0;
		while (l->n < len) {
			if (!l->open &&
			        ps_order_shard(order, n->epoch, turns.lane, l->k++, &l->shard, &pass) == 0) {
				l->last = true;
				break;
			}
			l->in_shard = l->open ? l->in_shard : 0;
			l->open = l->in_shard < n->counts[l->shard];
			if (l->open)
				plain[l->n++] = l->shard * 1000 + l->in_shard++;
		}
		assert_int_equal(
		        ps_order_block(order, n->epoch, turns.lane, l->block++, l->n, NULL, from), 0);
		for (uint32_t i = 0; i < l->n; i++)
			l->samples[i] = plain[from[i]];
		free(plain);
	}
	for (uint32_t i = 0; i < nlanes; i++)
		free(lanes[i].samples);
	free(lanes);
	free(from);
	ps_turns_fini(&turns);
	ps_order_free(order);
	return total;
}

static const struct ps_order_options table[] = {
        {PS_ORDER_WINDOW, 1, 100, 64, 0, 1, 7},
        {PS_ORDER_WINDOW, 10, 64, 4, 0, 1, 1},
        {PS_ORDER_WINDOW, 10, 1, 2, 1, 2, 1},
        {PS_ORDER_WINDOW, 37, 300, 8, 3, 4, 99},
        {PS_ORDER_WINDOW, 5, 4096, 64, 2, 4, 5},
        {PS_ORDER_SHARDS, 23, 1, 6, 1, 3, 0},
        {PS_ORDER_SHARDS, 5, 1, 64, 0, 1, UINT64_MAX},
        {PS_ORDER_NONE, 11, 1, 64, 0, 1, 3},
        {PS_ORDER_NONE, 11, 1, 64, 2, 3, 3},
};

static void counts_fill(uint32_t counts[static MAX_SHARDS])
{
	for (uint32_t i = 0; i < MAX_SHARDS; i++)
		counts[i] = i % 5 == 3 ? 0 : i * 7 % 41;
}

static void order_equals_the_naive_order(void **state)
{
	static uint32_t have[MAX_SAMPLES], want[MAX_SAMPLES];
	uint32_t counts[MAX_SHARDS];

	(void)state;
	counts_fill(counts);
	for (size_t i = 0; i < PS_ARRAY_LEN(table); i++) {
		for (uint64_t epoch = 0; epoch < 3; epoch++) {
			struct naive n = {&table[i], epoch, counts};
			uint32_t len = naive_epoch(&n, want);

			assert_int_equal(real_epoch(&n, have), len);
			assert_memory_equal(have, want, len * sizeof(*have));
		}
	}
}

static void each_sample_comes_once_over_all_ranks(void **state)
{
	static uint32_t have[MAX_SAMPLES];
	static unsigned char seen[MAX_SHARDS * 1000];
	uint32_t counts[MAX_SHARDS];

	(void)state;
	counts_fill(counts);
	for (uint32_t world = 1; world <= 8; world *= 2) {
		memset(seen, 0, sizeof(seen));
		for (uint32_t rank = 0; rank < world; rank++) {
			struct ps_order_options o = {
			        PS_ORDER_WINDOW, 50, 128, 16, rank, world, 11, .repeat = 1};
			struct naive n = {&o, 4, counts};
			uint32_t len = real_epoch(&n, have);

			for (uint32_t i = 0; i < len; i++)
				seen[have[i]]++;
		}
		for (uint32_t s = 0; s < MAX_SHARDS; s++)
			for (uint32_t j = 0; j < 1000; j++)
				assert_int_equal(seen[s * 1000 + j], s < 50 && j < counts[s]);
	}
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void global_batches_are_the_same_for_any_world_size(void **state)
{
	enum { SHARDS = 32, PER_SHARD = 40, GLOBAL = 48, STEPS = SHARDS * PER_SHARD / GLOBAL };
	static uint32_t first[STEPS][GLOBAL], have[MAX_SAMPLES];
	uint32_t counts[MAX_SHARDS];

	(void)state;
	for (int i = 0; i < MAX_SHARDS; i++)
		counts[i] = PER_SHARD;
	for (uint32_t world = 1; world <= 8; world *= 2) {
		static uint32_t steps[STEPS][GLOBAL];

		for (uint32_t rank = 0; rank < world; rank++) {
			struct ps_order_options o = {
			        PS_ORDER_WINDOW, SHARDS, 200, 16, rank, world, 3, .repeat = 1};
			struct naive n = {&o, 9, counts};
			uint32_t local = GLOBAL / world;

			assert_int_equal(real_epoch(&n, have), SHARDS * PER_SHARD / world);
			for (uint32_t s = 0; s < STEPS; s++)
				memcpy(&steps[s][rank * local], &have[s * local], local * sizeof(uint32_t));
		}
		for (uint32_t s = 0; s < STEPS; s++)
			qsort(steps[s], GLOBAL, sizeof(uint32_t), compare);
		if (world == 1)
			memcpy(first, steps, sizeof(first));
		assert_memory_equal(steps, first, sizeof(first));
	}
}

static void epochs_and_seeds_give_other_orders(void **state)
{
	static uint32_t a[MAX_SAMPLES], b[MAX_SAMPLES];
	uint32_t counts[MAX_SHARDS];
	struct ps_order_options o = {PS_ORDER_WINDOW, 20, 64, 4, 0, 1, 1}, other = o;
	struct naive n = {&o, 0, counts}, next = {&o, 1, counts}, seed = {&other, 0, counts};
	uint32_t len;

	(void)state;
	counts_fill(counts);
	other.seed = 2;
	len = real_epoch(&n, a);
	assert_int_equal(real_epoch(&next, b), len);
	assert_memory_not_equal(a, b, len * sizeof(*a));
	assert_int_equal(real_epoch(&seed, b), len);
	assert_memory_not_equal(a, b, len * sizeof(*a));
}

static void bad_options_are_refused_with_a_reason(void **state)
{
	static const struct {
		struct ps_order_options o;
		const char *says;
	} rows[] = {
	        {{PS_ORDER_WINDOW, 0, 1, 1, 0, 1, 0}, "no shards"},
	        {{PS_ORDER_WINDOW, 4, 1, 1, 1, 1, 0}, "rank 1 of world 1"},
	        {{PS_ORDER_WINDOW, 4, 1, 1, 0, 0, 0}, "rank 0 of world 0"},
	        {{PS_ORDER_WINDOW, 4, 1, 8, 0, 8, 0}, "each rank needs a shard"},
	        {{PS_ORDER_WINDOW, 4, 1, 5, 0, 5, 0}, "each rank needs a shard"},
	        {{PS_ORDER_WINDOW, 4, 1, 2, 0, 3, 0}, "lanes 2: fewer than world 3"},
	        {{PS_ORDER_WINDOW, 4, 1, 4, 0, 1, 0, .homes = 3},
	                "homes 3: must divide the number of lanes, which is 4"},
	        {{PS_ORDER_WINDOW, 4, 1, 0, 0, 1, 0}, "lanes 0"},
	        {{PS_ORDER_WINDOW, 4, 1, 16385, 0, 1, 0}, "lanes 16385"},
	        {{PS_ORDER_WINDOW, 4, 0, 1, 0, 1, 0}, "shuffle window 0"},
	        {{PS_ORDER_WINDOW, 4, 1u << 25, 1, 0, 1, 0}, "shuffle window"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_error err = {0};

		assert_null(ps_order_new(&rows[i].o, &err));
		assert_int_equal(err.err, EINVAL);
		if (!strstr(err.text, rows[i].says))
			fail_msg("\"%s\" does not contain \"%s\"", err.text, rows[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(order_equals_the_naive_order),
	        cmocka_unit_test(each_sample_comes_once_over_all_ranks),
	        cmocka_unit_test(global_batches_are_the_same_for_any_world_size),
	        cmocka_unit_test(epochs_and_seeds_give_other_orders),
	        cmocka_unit_test(bad_options_are_refused_with_a_reason),
	};
	return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
