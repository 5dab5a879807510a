/* A filter: an expression over the columns of an index, as "label == 3 && (h >= 256 || kind != 'gray')".
 *
 *   or   := and { "||" and }             op   := "==" "!=" "<" "<=" ">" ">="
 *   and  := not { "&&" not }             word := letters (any script) or _, then also digits . : -
 *   not  := "!" not | "(" or ")" | word op literal
 *   literal := number | 'text' | "text"  (no escapes)
 *
 * A comparison with a value that the sample does not have is false, whatever its operator. Texts are compared
 * byte by byte. A number compared with a text is an error: it would never be true.
 *
 * Ownership: a filter belongs to its creator; returned names belong to the filter.
 * Threads: any, once made.   Locks: none.   Blocks: never. Errors: -EINVAL with a text that says where;
 * -ENOMEM. */
#ifndef PS_ORDER_FILTER_H
#define PS_ORDER_FILTER_H

#include "base/cleanup.h"
#include "base/error.h"
#include "shard/index/index.h"

#define PS_FILTER_MAX_LEN 4096 /* bytes of the text; more: -EINVAL */
#define PS_FILTER_MAX_DEPTH 64 /* levels: nested parentheses and "!", and the comparison in them */
#define PS_FILTER_MAX_COLUMNS 32

struct ps_filter;

int ps_filter_new(const char *text, struct ps_filter **ret_filter, struct ps_error *err) PS_MUST_USE;
void ps_filter_free(struct ps_filter *filter); /* NULL is allowed */

/* The name of the nth column that the filter uses; NULL after the last. */
const char *ps_filter_column(const struct ps_filter *filter, uint32_t n);

/* 1: a sample with these values of the filter's columns passes; 0: it does not. -EINVAL: a number is
 * compared with a text. */
int ps_filter_test(const struct ps_filter *filter, const struct ps_column_value *values,
        struct ps_error *err) PS_MUST_USE;

#endif
