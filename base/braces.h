/* Brace expansion as WebDataset does it (Python's braceexpand): {000..127} (leading zeros are kept),
 * {a..e}, {0..10..2}, {9..0}, {a,b}, nested. "\" makes a brace or comma an ordinary character; {x} and {}
 * stay as they are. Unlike braceexpand, a "}" without its "{" is an error.
 *
 * Ownership: ps_braces_parse() makes a pattern, ps_braces_free() frees it. Threads: any number may read a
 * parsed pattern. Errors: -EINVAL unbalanced or too deep, -E2BIG more than `max` results, -ERANGE a number
 * past 64 bits, -ENOMEM. */
#ifndef PS_BASE_BRACES_H
#define PS_BASE_BRACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

#define PS_BRACES_MAX_DEPTH 32

struct ps_braces;

/* The result borrows the text. */
int ps_braces_parse(const char *text, uint64_t max, struct ps_braces **ret, struct ps_error *err) PS_MUST_USE;
void ps_braces_free(struct ps_braces *b);

/* The number of strings in the expansion; 1 if there is nothing to expand. */
uint64_t ps_braces_count(const struct ps_braces *b);

/* Adds the i-th string, the last brace varying fastest; i < count. */
void ps_braces_add(const struct ps_braces *b, uint64_t i, struct ps_strbuf *out);

#endif
