/* FNV-1a of 64 bits: finds accidental change, and names that must stay the same; no defence against intent.
 * Threads: any. */
#ifndef PS_BASE_FNV_H
#define PS_BASE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define PS_HASH_BEGIN UINT64_C(0xcbf29ce484222325)

/* Goes on from h. */
static inline uint64_t ps_hash(uint64_t h, const void *p, size_t n)
{
	const uint8_t *s = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * UINT64_C(0x100000001b3);
	return h;
}

#endif
