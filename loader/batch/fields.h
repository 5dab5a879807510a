/* Private to this folder: how a member's bytes become elements. */
#ifndef PS_BATCH_FIELDS_H
#define PS_BATCH_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/number.h"
#include "batch/batch.h"

/* Kinds of fields: how a member's bytes become elements of a batch. Images are handled elsewhere: they are
 * decoded in place (image/).
 *
 * A member is converted in two steps. measure() checks the bytes and returns the number of items. write()
 * writes the items to their place, which is known at once where all rows have one size, and otherwise when
 * all rows of the batch were measured.
 *
 * Ownership: a piece points into the member's bytes, which must be kept until the piece was written.
 * Threads: any.   Locks: none.   Blocks: never.
 * Errors: measure(): -EBADMSG with a text; -ENOENT: a JSON member without a value at the path (no text).
 * write() cannot fail: measure() finds all errors. */

struct ps_piece {
	const uint8_t *data; /* NULL: nothing to write */
	size_t nbytes;
	uint64_t items; /* the caller may lower it to write fewer */
	bool final;     /* `data` has elements of the field's own type, to be copied as they are */
	/* Arrays: */
	enum ps_dtype dtype;
	bool swapped;
	bool fortran;    /* the first index varies fastest; ... */
	uint64_t stride; /* ... the array has this many items along it, also if `items` was lowered */
};

struct ps_field_ops {
	int (*measure)(const struct ps_layout_field *field, const uint8_t *data, size_t nbytes,
	        struct ps_piece *ret_piece, struct ps_error *err);
	/* Writes piece->items items to dst, for plane 0 or 1. */
	void (*write)(
	        const struct ps_layout_field *field, const struct ps_piece *piece, uint32_t plane, void *dst);
	/* The largest number of items, up to `items`, to which the piece may be cut; NULL: any number. */
	uint64_t (*cut)(const struct ps_piece *piece, uint64_t items);
};

extern const struct ps_field_ops ps_field_bytes;        /* bytes as they are */
extern const struct ps_field_ops ps_field_text;         /* checked to be UTF-8 */
extern const struct ps_field_ops ps_field_json;         /* checked to be JSON */
extern const struct ps_field_ops ps_field_json_text;    /* the text of a value in a JSON member */
extern const struct ps_field_ops ps_field_json_numbers; /* a number, or an array of them, in a JSON member */
extern const struct ps_field_ops ps_field_number;       /* a number as text */
extern const struct ps_field_ops ps_field_npy;
extern const struct ps_field_ops ps_field_tokens; /* raw or npy */
extern const struct ps_field_ops ps_field_boxes;  /* a .npy or text of n x 4 numbers */
extern const struct ps_field_ops ps_field_memory; /* elements of the field's own type */

/* JSON --------------------------------------------------------------------------------------------------- */

/* JSON, scanned in place: nothing is allocated and nothing copied.
 *
 * It accepts what Python's json.loads() accepts as UTF-8 bytes, so NaN and Infinity are numbers, and a string
 * may have the escape of a lone surrogate (half of a UTF-16 pair). Of equal names in an object the last one
 * counts.
 * Ownership: values point into the caller's bytes.   Threads: any.   Locks: none.   Blocks: never. */

#define PS_JSON_MAX_DEPTH 256 /* deeper nesting is refused */
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

/* Checks the text and finds the value at a path: names and array indexes, separated by dots ("meta.size.0";
 * a dot in a name is "\."); NULL: the whole text. -EBADMSG: damaged, with a text that says where; -ENOENT:
 * valid, but there is no value at the path (no text). */
int ps_json_find(const void *text, size_t nbytes, const char *path, struct ps_json *ret_value,
        struct ps_error *err) PS_MUST_USE;

/* False if the path is empty, too long or has an empty part. */
bool ps_json_path_ok(const char *path);

/* True if a string has the escape of a lone surrogate, so its value is not UTF-8. */
bool ps_json_has_surrogate(const struct ps_json *string);

/* Writes a string's value to dst, if dst is not NULL: whole characters, up to `most` bytes. Returns the
 * number of bytes. */
size_t ps_json_string(const struct ps_json *string, uint8_t *dst, size_t most);

/* The value of a number; 0 or 1 for a boolean. Returns NULL, or a text that says what is wrong. */
PS_MUST_USE const char *ps_json_number(const struct ps_json *value, struct ps_number *ret_number);

/* Moves *item to the next item of an array, or to the first if *item is all zero. False after the last. */
bool ps_json_next(const struct ps_json *array, struct ps_json *item);

#endif
