/* Rendezvous hashing: each tier has a score for each stripe of each object, and the highest one is asked. A
 * tier that joins takes over stripes from all others in equal parts, and moves nothing else. */
#include <string.h>

#include "base/hash.h"
#include "tier/tier_private.h"

/* The finalizer of splitmix64: a bijection in which each output bit depends on all input bits. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint64_t ps_rendezvous_name(const char *url)
{
	return mix(ps_hash(PS_HASH_BEGIN, url, strlen(url)));
}

uint64_t ps_tier_object(const char *authority, const char *path, const char *query)
{
	uint64_t h = ps_hash(PS_HASH_BEGIN, authority, strlen(authority));

	h = ps_hash(h, path, strlen(path));
	if (query) {
		h = ps_hash(h, "?", 1);
		h = ps_hash(h, query, strlen(query));
	}
	return mix(h);
}

uint64_t ps_rendezvous_score(uint64_t name, uint64_t object, uint64_t stripe)
{
	return mix(name ^ mix(object + stripe * UINT64_C(0x9e3779b97f4a7c15)));
}

size_t ps_rendezvous_choose(
        const uint64_t *names, size_t n, const bool *out, uint64_t object, uint64_t stripe)
{
	size_t best = n;
	uint64_t most = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t score = ps_rendezvous_score(names[i], object, stripe);

		if (out && out[i])
			continue;
		if (best == n || score > most || (score == most && names[i] > names[best])) {
			best = i;
			most = score;
		}
	}
	return best;
}
