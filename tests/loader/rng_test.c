/* Random numbers: known answers, independence of the order of calls, different keys, exact bounds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "random/random.h"

static const struct ps_rng_key key = {
        .seed = 7, .epoch = 3, .shard = 11, .sample = 1234, .draw = 1, .view = 2};

/* The vectors published with the Random123 library. */
static void philox_gives_the_published_answers(void **state)
{
	static const struct {
		uint32_t counter[4], key[2], want[4];
	} cases[] = {
	        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
	                {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
	        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
	                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
		uint32_t block[4];
		for (int w = 0; w < 4; w++)
			block[w] = cases[i].counter[w];
		ps_rng_philox4x32(block, cases[i].key);
		assert_memory_equal(block, cases[i].want, sizeof(block));
	}
}

/* The chain of three blocks, written a second time from the header's definition. */
static void numbers_follow_the_written_definition(void **state)
{
	(void)state;
	uint32_t a[4] = {(uint32_t)key.epoch, 0, (uint32_t)key.shard, 0}, seed[2] = {(uint32_t)key.seed, 0};
	ps_rng_philox4x32(a, seed);
	uint32_t b[4] = {(uint32_t)key.sample ^ a[2], a[3], key.draw, key.view};
	ps_rng_philox4x32(b, a);
	uint32_t n[4] = {PS_RNG_CROP, 5, b[2], b[3]};
	ps_rng_philox4x32(n, b);
	assert_true(ps_rng_u64(&key, PS_RNG_CROP, 5) == (n[0] | (uint64_t)n[1] << 32));
}

/* Saved states depend on these numbers. */
static void numbers_never_change_between_versions(void **state)
{
	(void)state;
	assert_true(ps_rng_u64(&key, PS_RNG_CROP, 0) == UINT64_C(0x90a7527471b8df5a));
	assert_true(ps_rng_u64(&(struct ps_rng_key){0}, 0, 0) == UINT64_C(0x265981e1ada8ef5d));
	assert_true(ps_rng_below(&key, PS_RNG_SHARD_ORDER, 9, 1000) == 844);
}

static void order_of_calls_does_not_matter(void **state)
{
	uint64_t forward[64];
	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		forward[i] = ps_rng_u64(&key, PS_RNG_CROP, i);
	for (uint32_t i = 64; i-- > 0;) {
		ps_rng_unit(&key, PS_RNG_HFLIP, i);
		assert_true(ps_rng_u64(&key, PS_RNG_CROP, i) == forward[i]);
	}
}

static void every_part_of_the_key_matters(void **state)
{
	struct ps_rng_key keys[11];
	uint64_t got[PS_ARRAY_LEN(keys) + 2];
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(keys); i++)
		keys[i] = key;
	keys[1].seed++;
	keys[2].seed ^= UINT64_C(1) << 63;
	keys[3].epoch++;
	keys[4].epoch ^= UINT64_C(1) << 40;
	keys[5].shard++;
	keys[6].shard ^= UINT64_C(1) << 50;
	keys[7].sample++;
	keys[8].sample ^= UINT64_C(1) << 33;
	keys[9].draw++;
	keys[10].view++;
	for (size_t i = 0; i < PS_ARRAY_LEN(keys); i++)
		got[i] = ps_rng_u64(&keys[i], PS_RNG_CROP, 0);
	got[11] = ps_rng_u64(&key, PS_RNG_HFLIP, 0);
	got[12] = ps_rng_u64(&key, PS_RNG_CROP, 1);
	for (size_t i = 0; i < PS_ARRAY_LEN(got); i++) {
		for (size_t j = 0; j < i; j++)
			assert_true(got[i] != got[j]);
	}
}

static void below_stays_below_its_bound_and_is_uniform(void **state)
{
	static const uint64_t bounds[] = {1, 2, 3, 7, 1000, (UINT64_C(1) << 63) + 1, UINT64_MAX};
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(bounds); i++) {
		for (uint32_t n = 0; n < 2000; n++)
			assert_true(ps_rng_below(&key, PS_RNG_SAMPLE_ORDER, n, bounds[i]) < bounds[i]);
	}
	enum { CELLS = 7, DRAWS = 70000 };
	double count[CELLS] = {0}, chi = 0;
	for (uint32_t n = 0; n < DRAWS; n++)
		count[ps_rng_below(&key, PS_RNG_SAMPLE_ORDER, n, CELLS)]++;
	for (int c = 0; c < CELLS; c++)
		chi += pow(count[c] - DRAWS / CELLS, 2) / (DRAWS / CELLS);
	assert_true(chi < 22.5); /* 6 degrees of freedom: 0.1 % */
}

/* With 3 * 2^62 as bound, multiply-and-shift alone would give a third of the cells double weight. */
static void below_is_not_biased_at_a_large_bound(void **state)
{
	const uint64_t bound = UINT64_C(3) << 62;
	int residue[3] = {0};
	(void)state;
	for (uint32_t n = 0; n < 30000; n++)
		residue[ps_rng_below(&key, PS_RNG_SAMPLE_DRAW, n, bound) % 3]++;
	for (int r = 0; r < 3; r++)
		assert_in_range(residue[r], 9600, 10400);
}

static void unit_is_uniform_from_0_to_1(void **state)
{
	double sum = 0, squares = 0;
	const int draws = 100000;
	(void)state;
	for (int n = 0; n < draws; n++) {
		double u = ps_rng_unit(&key, PS_RNG_CROP, (uint32_t)n);
		assert_true(u >= 0 && u < 1);
		sum += u;
		squares += u * u;
	}
	assert_true(fabs(sum / draws - 0.5) < 0.005);
	assert_true(fabs(squares / draws - 1.0 / 3) < 0.005);
}

/* Neighbouring samples are the usual keys: each bit of the difference must be random. */
static void neighbouring_samples_are_unrelated(void **state)
{
	int ones[64] = {0};
	const int pairs = 10000;
	(void)state;
	for (int n = 0; n < pairs; n++) {
		struct ps_rng_key k = key;
		k.sample = (uint64_t)n;
		uint64_t a = ps_rng_u64(&k, PS_RNG_CROP, 0);
		k.sample++;
		uint64_t difference = a ^ ps_rng_u64(&k, PS_RNG_CROP, 0);
		for (int b = 0; b < 64; b++)
			ones[b] += (int)(difference >> b & 1);
	}
	for (int b = 0; b < 64; b++)
		assert_in_range(ones[b], pairs / 2 - 250, pairs / 2 + 250);
}

static void a_permutation_has_each_number_once(void **state)
{
	static const uint64_t sizes[] = {1, 2, 3, 10, 99, 1000, 4097};
	static bool seen[4097];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++)
		for (uint32_t pass = 0; pass < 3; pass++) {
			struct ps_permutation p;

			ps_permutation_init(&p, sizes[i], 5, 2, pass);
			memset(seen, 0, sizeof(seen));
			for (uint64_t x = 0; x < sizes[i]; x++) {
				uint64_t y = ps_permutation_at(&p, x);

				assert_true(y < sizes[i] && !seen[y]);
				seen[y] = true;
			}
		}
}

/* The expected numbers are from a second implementation of random/random.h's definition, in another
 * language. */
static void permutations_follow_the_written_definition(void **state)
{
	static const struct {
		uint64_t n, seed, epoch;
		uint32_t pass;
		uint64_t images[6];
	} rows[] = {
	        {10, 1, 0, 0, {0, 2, 5, 3, 4, 1}},
	        {10, 1, 1, 0, {0, 2, 9, 5, 6, 1}},
	        {10, 1, 0, 1, {7, 6, 1, 9, 3, 4}},
	        {UINT64_C(1) << 40, 7, 3, 2,
	                {715207477131, 23361667767, 422175711255, 695292687436, 692208826918, 918609051702}},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_permutation p;

		ps_permutation_init(&p, rows[i].n, rows[i].seed, rows[i].epoch, rows[i].pass);
		for (uint64_t x = 0; x < PS_ARRAY_LEN(rows[i].images); x++)
			assert_true(ps_permutation_at(&p, x) == rows[i].images[x]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(philox_gives_the_published_answers),
	        cmocka_unit_test(numbers_follow_the_written_definition),
	        cmocka_unit_test(numbers_never_change_between_versions),
	        cmocka_unit_test(order_of_calls_does_not_matter),
	        cmocka_unit_test(every_part_of_the_key_matters),
	        cmocka_unit_test(below_stays_below_its_bound_and_is_uniform),
	        cmocka_unit_test(below_is_not_biased_at_a_large_bound),
	        cmocka_unit_test(unit_is_uniform_from_0_to_1),
	        cmocka_unit_test(neighbouring_samples_are_unrelated),
	        cmocka_unit_test(a_permutation_has_each_number_once),
	        cmocka_unit_test(permutations_follow_the_written_definition),
	};
	return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
