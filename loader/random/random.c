#include "config.h"

#include "random/random.h"

#include <assert.h>

#include "base/philox.h"

void ps_rng_philox4x32(uint32_t counter[static 4], const uint32_t key[static 2])
{
	ps_philox4x32(counter, key);
}

static uint32_t lo(uint64_t v)
{
	return (uint32_t)v;
}

static uint32_t hi(uint64_t v)
{
	return (uint32_t)(v >> 32);
}

static uint64_t draw(const struct ps_rng_key *k, uint32_t op, uint32_t index, uint32_t attempt)
{
	uint32_t a[4] = {lo(k->epoch), hi(k->epoch), lo(k->shard), hi(k->shard)};
	ps_philox4x32(a, (uint32_t[2]){lo(k->seed), hi(k->seed)});
	uint32_t b[4] = {lo(k->sample) ^ a[2], hi(k->sample) ^ a[3], k->draw, k->view};
	ps_philox4x32(b, a);
	uint32_t n[4] = {op, index, b[2], b[3]};
	ps_philox4x32(n, (uint32_t[2]){b[0], b[1] ^ attempt});
	return n[0] | (uint64_t)n[1] << 32;
}

uint64_t ps_rng_u64(const struct ps_rng_key *key, uint32_t op, uint32_t index)
{
	return draw(key, op, index, 0);
}

uint64_t ps_rng_below(const struct ps_rng_key *key, uint32_t op, uint32_t index, uint64_t bound)
{
	assert(bound > 0);
	uint64_t biased = -bound % bound; /* 2^64 mod bound */
	for (uint32_t attempt = 0;; attempt++) {
		unsigned __int128 m = (unsigned __int128)draw(key, op, index, attempt) * bound;
		if ((uint64_t)m >= biased)
			return (uint64_t)(m >> 64);
	}
}

double ps_rng_unit(const struct ps_rng_key *key, uint32_t op, uint32_t index)
{
	return (double)(ps_rng_u64(key, op, index) >> 11) * 0x1p-53;
}

/* Permutations ------------------------------------------------------------------------------------------- */

#define ROUNDS 8

static uint64_t root_ceil(uint64_t n)
{
	uint64_t low = 0, high = UINT64_C(1) << 32;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;

		if ((unsigned __int128)mid * mid < n)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void ps_permutation_init(struct ps_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch, uint32_t pass)
{
	uint32_t a[4] = {(uint32_t)epoch, (uint32_t)(epoch >> 32), PS_RNG_PERMUTATION, 0};

	ps_rng_philox4x32(a, (uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)});
	*p = (struct ps_permutation){.n = n, .key = {a[0], a[1]}, .pass = pass};
	p->a = n > 0 ? root_ceil(n) : 1;
	p->b = n > 0 ? n / p->a + (n % p->a > 0) : 1;
}

static uint64_t mix(const struct ps_permutation *p, uint32_t round, uint64_t v)
{
	uint32_t c[4] = {(uint32_t)v, (uint32_t)(v >> 32), round, p->pass};

	ps_rng_philox4x32(c, p->key);
	return c[0] | (uint64_t)c[1] << 32;
}

uint64_t ps_permutation_at(const struct ps_permutation *p, uint64_t x)
{
	do {
		uint64_t first = x / p->b, second = x % p->b;

		for (uint32_t i = 0; i < ROUNDS; i += 2) {
			first = (first + mix(p, i, second) % p->a) % p->a;
			second = (second + mix(p, i + 1, first) % p->b) % p->b;
		}
		x = first * p->b + second;
	} while (x >= p->n);
	return x;
}
