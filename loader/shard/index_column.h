/* A column of an index while it is written, and where its values come from.
 *
 * Ownership: the caller's, until fini.   Threads: one at a time.   Locks: none.   Blocks: never.
 * Errors: 0 or -errno. */
#ifndef PS_SHARD_INDEX_COLUMN_H
#define PS_SHARD_INDEX_COLUMN_H

#include "base/buf.h"
#include "shard/index.h"
#include "shard/sample.h"

struct ps_index_column_writer {
	char *name, *from;
	uint64_t count;           /* samples */
	struct ps_buf values;     /* a struct value each */
	struct ps_buf texts;      /* of text values */
	bool has_float, has_text; /* some value is one */
};

int ps_index_column_init(
        struct ps_index_column_writer *column, const char *name, const char *from) PS_MUST_USE;
void ps_index_column_fini(struct ps_index_column_writer *column);

/* One more sample, whose value is missing until it is set. */
int ps_index_column_extend(struct ps_index_column_writer *column) PS_MUST_USE;
int ps_index_column_set(
        struct ps_index_column_writer *column, const struct ps_column_value *value) PS_MUST_USE;

/* Its section and the section's detail. */
int ps_index_column_finish(
        struct ps_index_column_writer *column, struct ps_buf *ret_bytes, uint32_t *ret_detail) PS_MUST_USE;

/* -- Declarations -------------------------------------------------------------------------------------- */

/* "label=cls": the text of member .cls, a number if it reads as one; "h=json:height" or "json:meta.height": a
 * value inside of a JSON member, numbers, true and false (1, 0) and strings. Without "NAME=" the name is what
 * follows it. */
struct ps_column_spec {
	char *name, *suffix;
	char *from; /* "suffix" or "suffix:path": what an index keeps of where a column comes from */
	char *path; /* inside of JSON, its steps with zeros between and two behind; NULL: the member's text */
};

/* -EINVAL with a text. */
int ps_column_spec_parse(
        const char *text, struct ps_column_spec *ret_spec, struct ps_load_error *err) PS_MUST_USE;
void ps_column_spec_fini(struct ps_column_spec *spec);

/* Takes the value from a member's bytes; ret_value borrows from `scratch` and `data`, and is missing where
 * the bytes have none. -ENOMEM. */
int ps_column_spec_value(const struct ps_column_spec *spec, const uint8_t *data, size_t n,
        struct ps_buf *scratch, struct ps_column_value *ret_value) PS_MUST_USE;

#endif
