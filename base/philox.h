/* The block function of Philox4x32-10 (loader/random/random.h), for the CPU and for GPU kernels: replaces
 * the counter by four random words, a function of counter and key. Threads: any. */
#ifndef PS_BASE_PHILOX_H
#define PS_BASE_PHILOX_H

#include <stdint.h>

#include "base/dtype.h"

/* Multipliers, Weyl constants and number of rounds are the paper's. */
PS_BOTH void ps_philox4x32(uint32_t counter[4], const uint32_t key[2])
{
	const uint64_t mul_a = 0xD2511F53, mul_b = 0xCD9E8D57;
	uint32_t k0 = key[0], k1 = key[1];

	for (int i = 0; i < 10; i++) {
		uint64_t a = mul_a * counter[0], b = mul_b * counter[2];
		uint32_t c1 = counter[1], c3 = counter[3];

		counter[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
		counter[1] = (uint32_t)b;
		counter[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
		counter[3] = (uint32_t)a;
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
}

#endif
