/* JSON, scanned in place: nothing is allocated and nothing copied.
 *
 * Accepted is what Python's json.loads() takes of bytes in UTF-8 (so NaN and Infinity are numbers), but
 * for halves of surrogate pairs, which no UTF-8 can hold. Of equal names in an object the last counts.
 * Ownership: values point into the caller's bytes.   Threads: any.   Locks: none.   Blocks: never. */
#ifndef PS_BATCH_JSON_H
#define PS_BATCH_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "batch/number.h"

#define PS_JSON_MAX_DEPTH 256 /* deeper texts are refused */
#define PS_JSON_MAX_PATH 512  /* bytes */

enum ps_json_type {
	PS_JSON_NULL,
	PS_JSON_BOOL,
	PS_JSON_NUMBER,
	PS_JSON_STRING,
	PS_JSON_ARRAY,
	PS_JSON_OBJECT,
};

struct ps_json {
	enum ps_json_type type;
	const uint8_t *p; /* its text, from the first byte ... */
	const uint8_t *end;
};

/* Checks the text and finds the value at a path: names and places in arrays with dots between ("meta.size.0";
 * a dot in a name as "\."); NULL: the whole. -EBADMSG: damaged, with a text that says where; -ENOENT: sound,
 * but nothing is there (no text). */
int ps_json_find(const void *text, size_t nbytes, const char *path, struct ps_json *ret_value,
        struct ps_load_error *err) PS_MUST_USE;

/* False if the path is empty, too long or has an empty part. */
bool ps_json_path_ok(const char *path);

/* Bytes of a string's value, of whole characters and `most` at most; writes them where dst is not NULL. */
size_t ps_json_string(const struct ps_json *string, uint8_t *dst, size_t most);

/* A number's value, or 0 and 1 for a boolean. NULL, or what is wrong. */
PS_MUST_USE const char *ps_json_number(const struct ps_json *value, struct ps_number *ret_number);

/* The items of an array: begin with the array and *item zero. False behind the last. */
bool ps_json_next(const struct ps_json *array, struct ps_json *item);

#endif
