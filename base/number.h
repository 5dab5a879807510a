/* Numbers and arrays of them: from text, from one element type to another. Exact, unless a function says
 * otherwise.
 *
 * Threads: any.   Locks: none.   Blocks: never.   Independent of the program's locale. */
#ifndef PS_BASE_NUMBER_H
#define PS_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"

struct ps_number {
	bool is_float;
	bool negative;      /* integers: sign and ... */
	uint64_t magnitude; /* ... size; never a negative 0 */
	double value;       /* is_float */
};

/* Decimal digits with an optional sign. NULL: read; else what is wrong with it. */
PS_MUST_USE const char *ps_number_integer(const uint8_t *p, size_t n, struct ps_number *ret_number);

/* A number as Python's float() takes it, underscores apart: digits, point, exponent, inf, nan; rounded to
 * the nearest double. NULL, or what is wrong. */
PS_MUST_USE const char *ps_number_float(const uint8_t *p, size_t n, struct ps_number *ret_number);

/* The text without the white space around it. */
void ps_number_trim(const uint8_t **p, size_t *n);

/* Writes the number as one element. False: it cannot be held exactly, and dst is untouched. */
PS_MUST_USE bool ps_number_store(const struct ps_number *number, enum ps_dtype dtype, void *dst);

/* The same, but floats are rounded to the nearest that the type has. False: the type is an integer and does
 * not have the number. */
PS_MUST_USE bool ps_number_store_rounded(const struct ps_number *number, enum ps_dtype dtype, void *dst);

/* Reads one element, at any alignment; `swapped`: its bytes stand in the other order than this machine's. */
struct ps_number ps_number_load(enum ps_dtype dtype, bool swapped, const void *src);

bool ps_dtype_is_float(enum ps_dtype dtype);

/* Arrays ------------------------------------------------------------------------------------------------- */

/* Arrays from one element type to another, exactly or not at all: a value that the other type does not have
 * stops the conversion. Threads: any.   Locks: none.   Blocks: never. */

/* Converts n elements; src may be at any address, dst as its type wants. Returns how many were converted:
 * n, or the place of the first that is not exact. */
PS_MUST_USE size_t ps_convert(
        enum ps_dtype from, bool swapped, const void *src, enum ps_dtype to, void *dst, size_t n);

/* The same, but into floats to the nearest, ties to even: a finite number beyond the type's range stops it. */
PS_MUST_USE size_t ps_convert_rounded(
        enum ps_dtype from, bool swapped, const void *src, enum ps_dtype to, void *dst, size_t n);

/* Writes the element at `value` n times. */
void ps_fill(enum ps_dtype dtype, const void *value, void *dst, size_t n);

#endif
