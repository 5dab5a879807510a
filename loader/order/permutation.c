#include "config.h"

#include "order/permutation.h"

#include "order/rng.h"

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
