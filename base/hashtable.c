#include "base/hashtable.h"

#include <stdint.h>
#include <sys/random.h>
#include <time.h>

__extension__ typedef unsigned __int128 u128;

#define PRIME ((UINT64_C(1) << 61) - 1)
#define CHUNK 7 /* bytes that are below PRIME as a number */

static uint64_t point;

__attribute__((constructor)) static void draw_point(void)
{
	if (getrandom(&point, sizeof(point), GRND_NONBLOCK) != (ssize_t)sizeof(point))
		point = (uint64_t)time(NULL) * UINT64_C(0x9e3779b97f4a7c15); /* early in a boot */
	point = point % (PRIME - 1) + 1;
}

/* The values of the polynomial are a lattice where names differ in few bytes: at some points a list would get
 * many of them. This is the finalizer of MurmurHash3, a bijection. */
static uint64_t mix(uint64_t h)
{
	h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
	h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 33;
}

unsigned ps_hash_key(const void *key, size_t n)
{
	const unsigned char *at = key;
	uint64_t h = n;

	while (n > 0) {
		size_t step = n < CHUNK ? n : CHUNK;
		uint64_t chunk = 0;

		for (size_t i = 0; i < step; i++)
			chunk = chunk << 8 | at[i];
		u128 product = (u128)h * point + chunk;
		h = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);
		h = (h & PRIME) + (h >> 61);
		at += step;
		n -= step;
	}
	return (unsigned)mix(h);
}
