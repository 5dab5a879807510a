/* Kinds of fields: how a member's bytes become elements of a batch. Images are not among them: they are
 * decoded in place (image/).
 *
 * A field is taken in two steps. measure() checks the bytes and says how many items they make; write() puts
 * items into their place, which is known at once where rows are of one size, and else when all rows of the
 * batch were measured.
 *
 * Ownership: a piece points into the member's bytes, which must stay until it was written.
 * Threads: any.   Locks: none.   Blocks: never, but on the processor.
 * Errors: measure(): -EBADMSG with a text; -ENOENT: a JSON member without a value at the path (no text).
 * write() cannot fail: what could be wrong was found by measure(). */
#ifndef PS_BATCH_FIELD_H
#define PS_BATCH_FIELD_H

#include "batch/number.h"
#include "batch/plan.h"

struct ps_piece {
	const uint8_t *data; /* NULL: nothing to write */
	size_t nbytes;
	uint64_t items; /* may be lowered to write fewer */
	/* Arrays: */
	enum ps_dtype dtype;
	bool swapped;
	bool fortran;    /* the first index runs fastest, ... */
	uint64_t stride; /* ... over so many items */
};

struct ps_field_ops {
	int (*measure)(const struct ps_plan_field *field, const uint8_t *data, size_t nbytes,
	        struct ps_piece *ret_piece, struct ps_load_error *err);
	/* Writes piece->items items to dst, for plane 0 or 1. */
	void (*write)(
	        const struct ps_plan_field *field, const struct ps_piece *piece, uint32_t plane, void *dst);
	/* The most items, no more than `items`, that the piece may be cut to; NULL: any number. */
	uint64_t (*cut)(const struct ps_piece *piece, uint64_t items);
};

extern const struct ps_field_ops ps_field_bytes;        /* as they are */
extern const struct ps_field_ops ps_field_text;         /* checked to be UTF-8 */
extern const struct ps_field_ops ps_field_json;         /* checked to be JSON */
extern const struct ps_field_ops ps_field_json_text;    /* the text of a value in a JSON member */
extern const struct ps_field_ops ps_field_json_numbers; /* a number, or an array of them, in a JSON member */
extern const struct ps_field_ops ps_field_number;       /* a number as text */
extern const struct ps_field_ops ps_field_npy;
extern const struct ps_field_ops ps_field_tokens; /* raw or npy */
extern const struct ps_field_ops ps_field_boxes;  /* a .npy or text of n x 4 numbers */
extern const struct ps_field_ops ps_field_memory; /* elements of the field's own type */

/* What an element of the field must be to hold a value; false: it cannot. */
bool ps_field_store(const struct ps_plan_field *field, const struct ps_number *number, void *dst);

#endif
