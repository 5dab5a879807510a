/* Private to the readers of a shard. */
#ifndef PS_SHARD_BUILDER_H
#define PS_SHARD_BUILDER_H

#include "base/buf.h"
#include "shard/shard.h"

/* A sample being built, field by field; shared by the readers of tars, lines, tokens and columns.
 *
 *   ps_builder_begin(), [ps_builder_field() and its bytes are read]..., ps_builder_finish()
 *
 * Small samples are in slabs (shard/shard.h), with their names and bytes. Data that does not fit there has
 * memory of its own, or stays in the file if it is beyond the budget.
 *
 * Ownership: a builder belongs to its reader, and borrows options and file; samples are the caller's.
 * Threads: one at a time.   Locks: none.   Blocks: never.
 * Errors: 0 or -errno without a text, except ps_builder_finish(). Damage of a sample is not an error: it
 * marks the sample bad. */

struct ps_builder_field {
	size_t suffix_at; /* offset in `names` */
	uint32_t suffix_len;
	uint64_t offset, size;
	uint8_t *data;
	bool owned; /* data has memory of its own, not in the slab */
	bool wanted;
	bool packed; /* its suffix is that of a compressed file, and a field asks for the decompressed data */
};

struct ps_builder {
	const struct ps_shard_options *options;
	struct ps_shard_file *file;
	uint32_t file_refs; /* references taken ahead, to save an atomic operation for each sample */
	struct ps_slab *slab;
	size_t slab_used;    /* bytes used before the open sample */
	bool can_read_again; /* data left in the file can be read later */

	bool open;
	bool dropped;  /* marked __bad__ by its writer, so that WebDataset skips it */
	bool left_out; /* bytes of a wanted field stay in the file */
	int bad;
	char *reason;
	uint64_t offset;
	uint64_t held;       /* bytes of wanted fields */
	struct ps_buf names; /* key, then a suffix for each field; each is zero-terminated */
	size_t key_len;
	uint32_t nfields, nwanted;
	struct ps_builder_field fields[PS_SAMPLE_MAX_FIELDS];
};

void ps_builder_init(
        struct ps_builder *builder, const struct ps_shard_options *options, struct ps_shard_file *file);
void ps_builder_fini(struct ps_builder *builder);

/* Drops the open sample. */
void ps_builder_reset(struct ps_builder *builder);

int ps_builder_begin(
        struct ps_builder *builder, const char *key, size_t key_len, uint64_t offset) PS_MUST_USE;

/* Adds a field; its suffix is converted to lower case. *ret_data: where the caller must put the field's
 * `size` bytes; NULL: nowhere. `hold` false: the sample's bytes are not needed. */
int ps_builder_field(struct ps_builder *builder, const char *suffix, size_t suffix_len, uint64_t offset,
        uint64_t size, bool hold, uint8_t **ret_data) PS_MUST_USE;

/* Marks the open sample bad; the first reason is kept. */
int ps_builder_bad(struct ps_builder *builder, int errnum, const char *reason) PS_MUST_USE;

/* Returns the open sample, complete or bad, and closes it. */
int ps_builder_finish(struct ps_builder *builder, uint64_t ordinal, uint64_t resume_offset,
        struct ps_sample **ret_sample, struct ps_error *err) PS_MUST_USE;

/* Lines of text ------------------------------------------------------------------------------------------ */

/* Lines of text as samples: a line is one member, "json" in .jsonl files and "txt" in others ("line" where a
 * field asks for that); its key is the file's name and the line's number, from 0. The line end
 * (LF or CR LF) is not part of the data, and may be missing at the end of the file. Blank lines of .jsonl
 * files are skipped.
 *
 * Ownership: borrows stream and builder.   Threads: one at a time.   Locks: none.   Blocks: as the stream
 * does. Errors: 0 or -errno; a line that is too long is a bad sample, and the next one is read. */

#define PS_LINES_MAX (256UL << 20) /* limit of a line's bytes if the options set none; a longer line is bad */

struct ps_lines;

/* NULL: out of memory. */
struct ps_lines *ps_lines_new(
        const char *path, struct ps_stream *stream, const struct ps_shard_options *options);
void ps_lines_free(struct ps_lines *lines); /* NULL is allowed */

/* Reads the next line into the builder's open sample. At the end of the shard it leaves no sample open. */
int ps_lines_next(struct ps_lines *lines, struct ps_builder *builder, uint64_t ordinal, bool hold,
        struct ps_error *err) PS_MUST_USE;

/* Windows of tokens -------------------------------------------------------------------------------------- */

/* Windows of a token stream as samples: a file that contains only tokens, cut every `stride` bytes. A
 * remainder shorter than a window is dropped. A sample has one member; its key is the file's name and the
 * window's number.
 *
 * Ownership: borrows stream and builder.   Threads: one at a time.   Locks: none.   Blocks: as the stream
 * does. Errors: 0 or -errno; -EBADMSG: the file ends within a token. */

struct ps_tokens;

/* NULL: out of memory. */
struct ps_tokens *ps_tokens_new(const char *path, struct ps_stream *stream, const struct ps_windows *windows);
void ps_tokens_free(struct ps_tokens *tokens); /* NULL is allowed */

/* Reads the next window into the builder's open sample. At the end of the shard it leaves no sample open. */
int ps_tokens_next(struct ps_tokens *tokens, struct ps_builder *builder, uint64_t ordinal, bool hold,
        struct ps_error *err) PS_MUST_USE;

/* Rows of columns ---------------------------------------------------------------------------------------- */

/* The rows of a unit as samples, from Arrow's C data interface. The key is the unit's name without folders
 * and the row's number.
 *
 * Ownership: borrows the unit's name and the options.   Threads: one at a time.   Locks: none, and the
 * source's functions are called without any.   Blocks: as the source does.
 * Errors: 0 or -errno; -EINVAL: a column's type; -EBADMSG: arrays that contradict their schema or
 * themselves. Offsets, lengths and places in dictionaries are checked before bytes are read. Arrow's arrays do
 * not tell the sizes of their buffers, so the source is trusted for those. */

struct ps_columns;

/* NULL: out of memory. */
struct ps_columns *ps_columns_new(const char *unit, const struct ps_shard_options *options);
void ps_columns_free(struct ps_columns *columns); /* NULL is allowed */

/* Opens the unit at a row. */
int ps_columns_open(struct ps_columns *columns, uint64_t row, struct ps_error *err) PS_MUST_USE;

/* Reads the next row into the builder's open sample. At the end of the unit it leaves no sample open. */
int ps_columns_next(struct ps_columns *columns, struct ps_builder *builder, uint64_t ordinal, bool hold,
        struct ps_error *err) PS_MUST_USE;

#endif
