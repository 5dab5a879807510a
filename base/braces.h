/* Brace expansion as WebDataset spells it (Python's braceexpand): {000..127} keeps its zeros, {a..e},
 * {0..10..2}, {9..0}, {a,b}, nested, "\" takes away a brace's or comma's meaning; {x} and {} stay as they
 * are. Unlike there, a "}" without its "{" is an error.
 *
 * Ownership: ps_braces_parse() makes, ps_braces_free() frees. Threads: a parsed pattern may be read by many.
 * Errors: -EINVAL unbalanced or too deep, -E2BIG more than `max` results, -ERANGE a number past 64 bits,
 * -ENOMEM. */
#ifndef PS_BASE_BRACES_H
#define PS_BASE_BRACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

#define PS_BRACES_MAX_DEPTH 16

struct ps_braces;

/* The text must be alive as long as the result. */
int ps_braces_parse(const char *text, uint64_t max, struct ps_braces **ret, struct ps_error *err) PS_MUST_USE;
void ps_braces_free(struct ps_braces *b);

/* How many strings it stands for; 1 if there is nothing to expand. */
uint64_t ps_braces_count(const struct ps_braces *b);

/* Adds the i-th of them, the last brace varying fastest; i < count. */
void ps_braces_add(const struct ps_braces *b, uint64_t i, struct ps_strbuf *out);

#endif
