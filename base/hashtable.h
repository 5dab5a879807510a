/* uthash with two settings: a failed allocation leaves the item out (item->hh.tbl is then NULL) instead of
 * ending the process; and a hash function of our own, since clang warns of fall-through cases in uthash's
 * own. */
#ifndef PS_BASE_HASHTABLE_H
#define PS_BASE_HASHTABLE_H

#include <stddef.h>
#include <stdint.h>

/* The value of the polynomial whose coefficients are the key's bytes, 7 each, at a point that the process has
 * drawn by chance, modulo 2^61 - 1, mixed. Names come from origins, which therefore cannot choose many that
 * collide: these would make a table a list. */
unsigned ps_hash_key(const void *key, size_t n);

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = ps_hash_key((keyptr), (keylen)))
#include <uthash.h>

#endif
