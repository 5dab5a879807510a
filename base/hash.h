/* Hashes: 128-bit identities; FNV-1a where deliberate collisions do no harm. Threads: any. Blocks:
 * never. */
#ifndef PS_BASE_HASH_H
#define PS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define PS_ID_LEN 16
#define PS_ID_HEX_LEN (2 * PS_ID_LEN) /* without NUL */

/* SHA-256 cut to 16 bytes. Collision-resistant, since an adversary may name objects in a shared cache. */
struct ps_id {
	uint8_t bytes[PS_ID_LEN];
};

/* Hashes n strings with their lengths, so that ("ab","c") and ("a","bc") differ. NULL counts as "". */
void ps_id_of_strings(const char *const *strings, size_t n, struct ps_id *ret_id);

void ps_id_hex(const struct ps_id *id, char ret_hex[static PS_ID_HEX_LEN + 1]);

/* 0, or -EINVAL if the text is not exactly PS_ID_HEX_LEN lower-case hex digits. */
int ps_id_parse(const char *hex, struct ps_id *ret_id);

int ps_id_cmp(const struct ps_id *a, const struct ps_id *b);

/* 64-bit FNV-1a: detects accidental changes, and gives stable names; no defence against deliberate
 * collisions. */
#define PS_HASH_BEGIN UINT64_C(0xcbf29ce484222325)

/* Continues from h. */
static inline uint64_t ps_hash(uint64_t h, const void *p, size_t n)
{
	const uint8_t *s = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * UINT64_C(0x100000001b3);
	return h;
}

#endif
