/* Sizes: units, overflow-checked arithmetic, and sizes, shares and times in human-readable form. Threads:
 * any. */
#ifndef PS_BASE_SIZE_H
#define PS_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define PS_KIB (UINT64_C(1) << 10)
#define PS_MIB (UINT64_C(1) << 20)
#define PS_GIB (UINT64_C(1) << 30)

/* "512", "64K", "1.5G", "200GB", "1TiB": powers of 1024 for every suffix, case ignored. 0; -EINVAL:
 * malformed (also negative, empty, or with trailing text); -ERANGE: beyond 2^63-1. */
int ps_size_parse(const char *text, uint64_t *ret_nbytes);

/* As ps_size_parse(), or "80%" of whole_nbytes (0 < share <= 100). */
int ps_size_parse_share(const char *text, uint64_t whole_nbytes, uint64_t *ret_nbytes);

/* "30", "30s", "500ms", "10m", "2h", "7d"; a bare number is seconds. Errors as of ps_size_parse(). */
int ps_time_parse(const char *text, uint64_t *ret_ms);

#define PS_SIZE_TEXT_LEN 24
/* "0 B", "1023 B", "1.5 KiB", "12.0 GiB". Returns buf. */
const char *ps_size_format(uint64_t nbytes, char buf[static PS_SIZE_TEXT_LEN]);

/* Overflow-checked arithmetic for sizes that come from outside. Each returns true and sets *ret if the exact
 * result fits; else false, and *ret is untouched. */
PS_MUST_USE static inline bool ps_size_add(size_t a, size_t b, size_t *ret)
{
	size_t r;
	if (__builtin_add_overflow(a, b, &r))
		return false;
	*ret = r;
	return true;
}

PS_MUST_USE static inline bool ps_size_mul(size_t a, size_t b, size_t *ret)
{
	size_t r;
	if (__builtin_mul_overflow(a, b, &r))
		return false;
	*ret = r;
	return true;
}

/* Makes room for another element in an array of n elements. array: the address of its pointer; *cap: how many
 * elements it has room for. False: out of memory; nothing has changed. */
PS_MUST_USE static inline bool ps_grow(void *array, size_t n, size_t *cap, size_t nbytes_each)
{
	size_t more = 2 * n + 64;
	void *old, *grown;

	if (n < *cap)
		return true;
	memcpy(&old, array, sizeof(old));
	grown = reallocarray(old, more, nbytes_each);
	if (!grown)
		return false;
	memcpy(array, &grown, sizeof(grown));
	*cap = more;
	return true;
}

/* n rounded up to a multiple of `unit`, a power of two. */
PS_MUST_USE static inline bool ps_size_round_up(size_t n, size_t unit, size_t *ret)
{
	size_t r;
	if (__builtin_add_overflow(n, unit - 1, &r))
		return false;
	*ret = r & ~(unit - 1);
	return true;
}

PS_MUST_USE static inline bool ps_u64_add(uint64_t a, uint64_t b, uint64_t *ret)
{
	uint64_t r;
	if (__builtin_add_overflow(a, b, &r))
		return false;
	*ret = r;
	return true;
}

PS_MUST_USE static inline bool ps_u64_mul(uint64_t a, uint64_t b, uint64_t *ret)
{
	uint64_t r;
	if (__builtin_mul_overflow(a, b, &r))
		return false;
	*ret = r;
	return true;
}

#endif
