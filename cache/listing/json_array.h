/* An array of JSON objects, one at a time: jansson holds a whole document in memory, some ten times its text.
 * So the array is walked by hand, and each object parsed by itself. One that is not UTF-8 is skipped, with a warning.
 *
 * Ownership: an object is borrowed for the call. Threads: any. Blocks: never. */
#ifndef PS_LISTING_JSON_ARRAY_H
#define PS_LISTING_JSON_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"

/* What it returns other than 0 ends the walk. */
typedef int (*ps_json_fn)(void *arg, const json_t *object);

/* Of an array whose text comes window by window (base/packed.h). */
struct ps_json_array {
	const char *what; /* for errors: "not a directory listing" */
	ps_json_fn fn;
	void *arg;
	struct ps_error *err;
	uint64_t at; /* bytes of the text before the window */
	enum { PS_JSON_BEGIN, PS_JSON_FIRST, PS_JSON_ENTRY, PS_JSON_BEHIND, PS_JSON_END } expected;
};

/* A ps_window_fn, but for its first argument. -EPROTO ("WHAT: JSON, at byte N: ...") for what is no array of
 * objects, -ENOMEM, what fn returned. */
int ps_json_array_feed(
        struct ps_json_array *array, const char *text, size_t n, bool more, size_t *ret_used) PS_MUST_USE;

/* All of it at once. */
int ps_json_array_parse(const char *text, size_t nbytes, const char *what, ps_json_fn fn, void *arg,
        struct ps_error *err) PS_MUST_USE;

#endif
