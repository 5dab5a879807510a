/* An array of JSON objects, one at a time: jansson holds a whole document in memory, some ten times its text. So the array
 * is walked by hand, and each object parsed by itself.
 *
 * Ownership: an object is borrowed for the call. Threads: any. Blocks: never. */
#ifndef PS_ORIGIN_JSON_ARRAY_H
#define PS_ORIGIN_JSON_ARRAY_H

#include <stddef.h>

#include <jansson.h>

#include "base/error.h"

/* What it returns other than 0 ends the walk. */
typedef int (*ps_json_fn)(void *arg, const json_t *object);

/* -EPROTO ("WHAT: JSON, at byte N: ...") for what is no array of objects, -ENOMEM, what fn returned. */
int ps_json_array_parse(const char *text, size_t nbytes, const char *what, ps_json_fn fn, void *arg,
        struct ps_error *err) PS_MUST_USE;

#endif
