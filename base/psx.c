#include "config.h"

#include "base/psx.h"

uint64_t ps_psx_sum(uint64_t sum, const void *p, size_t n)
{
	const uint64_t prime = UINT64_C(0x9e3779b97f4a7c15);
	const uint8_t *s = p;
	uint8_t rest[8] = {0};

	sum = (sum ^ n) * prime;
	for (; n >= 8; n -= 8, s += 8) {
		sum = (sum ^ ps_get_u64(s)) * prime;
		sum ^= sum >> 29;
	}
	if (n > 0)
		memcpy(rest, s, n);
	sum = (sum ^ ps_get_u64(rest)) * prime;
	return sum ^ sum >> 32;
}
