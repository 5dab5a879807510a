/* uthash with two settings: a failed allocation leaves the item out (item->hh.tbl is then NULL) instead of
 * ending the process; and a hash function of our own, since clang warns of fall-through cases in uthash's
 * own. */
#ifndef PS_BASE_HASHTABLE_H
#define PS_BASE_HASHTABLE_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a. Keys are identities, which are SHA-256 already, small numbers, and names. */
static inline unsigned ps_hash_key(const void *key, size_t n)
{
	const unsigned char *p = key;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 16777619u;
	return h ^ h >> 15;
}

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = ps_hash_key((keyptr), (keylen)))
#include <uthash.h>

#endif
