/* Overflow-checked arithmetic for sizes that come from outside. Each returns true and sets *ret if the exact
 * result fits; else false, and *ret is untouched. Threads: any. */
#ifndef PS_BASE_OVERFLOW_H
#define PS_BASE_OVERFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

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
