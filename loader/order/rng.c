#include "order/rng.h"

#include <assert.h>

/* The paper's multipliers and Weyl constants. */
#define MUL_A UINT64_C(0xD2511F53)
#define MUL_B UINT64_C(0xCD9E8D57)
#define WEYL_A UINT32_C(0x9E3779B9)
#define WEYL_B UINT32_C(0xBB67AE85)
#define ROUNDS 10

void ps_rng_philox4x32(uint32_t counter[static 4], const uint32_t key[static 2])
{
	uint32_t k0 = key[0], k1 = key[1];
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t a = MUL_A * counter[0], b = MUL_B * counter[2];
		uint32_t c1 = counter[1], c3 = counter[3];
		counter[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
		counter[1] = (uint32_t)b;
		counter[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
		counter[3] = (uint32_t)a;
		k0 += WEYL_A;
		k1 += WEYL_B;
	}
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
	ps_rng_philox4x32(a, (uint32_t[2]){lo(k->seed), hi(k->seed)});
	uint32_t b[4] = {lo(k->sample) ^ a[2], hi(k->sample) ^ a[3], k->draw, k->view};
	ps_rng_philox4x32(b, a);
	uint32_t n[4] = {op, index, b[2], b[3]};
	ps_rng_philox4x32(n, (uint32_t[2]){b[0], b[1] ^ attempt});
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
