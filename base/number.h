/* Conversion of numbers and arrays: from text, and between element types. Conversions are exact unless a
 * function's comment says otherwise.
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
	bool negative;      /* integers: sign */
	uint64_t magnitude; /* integers: absolute value; 0 is never negative */
	double value;       /* is_float */
};

/* Parses decimal digits with an optional sign. Returns NULL, or a text that says what is wrong. */
PS_MUST_USE const char *ps_number_integer(const uint8_t *p, size_t n, struct ps_number *ret_number);

/* Parses a number as Python's float() does, but accepts no underscores or white space: digits, point,
 * exponent, inf, nan; rounded to the nearest double. Returns NULL, or a text that says what is wrong. */
PS_MUST_USE const char *ps_number_float(const uint8_t *p, size_t n, struct ps_number *ret_number);

/* Removes surrounding white space. */
void ps_number_trim(const uint8_t **p, size_t *n);

/* Writes the number as one element. False: the type cannot hold it exactly; dst is untouched. */
PS_MUST_USE bool ps_number_store(const struct ps_number *number, enum ps_dtype dtype, void *dst);

/* The same, but rounds to the nearest value of a float type. False: the type is an integer type that cannot
 * hold the number. */
PS_MUST_USE bool ps_number_store_rounded(const struct ps_number *number, enum ps_dtype dtype, void *dst);

/* Reads one element, at any alignment; `swapped`: not in this machine's byte order. */
struct ps_number ps_number_load(enum ps_dtype dtype, bool swapped, const void *src);

bool ps_dtype_is_float(enum ps_dtype dtype);

/* Arrays ------------------------------------------------------------------------------------------------- */

/* Conversion of arrays between element types. A value that the target type cannot hold stops the
 * conversion. Threads: any. Locks: none. Blocks: never. */

/* Converts n elements; src may have any alignment, dst must have that of its type. Returns the number of
 * converted elements: n, or the index of the first that cannot be converted exactly. */
PS_MUST_USE size_t ps_convert(
        enum ps_dtype from, bool swapped, const void *src, enum ps_dtype to, void *dst, size_t n);

/* The same, but a float type gets the nearest value (ties to even); a finite number beyond the type's range
 * stops the conversion. */
PS_MUST_USE size_t ps_convert_rounded(
        enum ps_dtype from, bool swapped, const void *src, enum ps_dtype to, void *dst, size_t n);

/* Writes n copies of the element at `value`. */
void ps_fill(enum ps_dtype dtype, const void *value, void *dst, size_t n);

#endif
