/* Private to the readers of a shard. */
#ifndef PS_SHARD_BUILDER_H
#define PS_SHARD_BUILDER_H

#include "base/buf.h"
#include "shard/shard.h"

/* A sample being put together, field by field: what the readers of tars, lines and tokens share.
 *
 *   ps_builder_begin(), [ps_builder_field() and its bytes are read]..., ps_builder_finish()
 *
 * Small samples are in slabs (shard/shard.h) with their names and bytes; what does not fit there, or beyond
 * the budget, has memory of its own, or stays in the file.
 *
 * Ownership: a builder belongs to its reader, and borrows options and file; samples are the caller's.
 * Threads: one at a time.   Locks: none.   Blocks: never.
 * Errors: 0 or -errno without a text, but finish. What is wrong with a sample is no error: it marks it. */

struct ps_builder_field {
	size_t suffix_at; /* in names */
	uint32_t suffix_len;
	uint64_t offset, size;
	uint8_t *data;
	bool owned; /* data is not in the slab */
	bool wanted;
	bool packed; /* its suffix says so, and a field wants it decompressed */
};

struct ps_builder {
	const struct ps_shard_options *options;
	struct ps_shard_file *file;
	uint32_t file_refs; /* taken ahead, so that not each sample costs an atomic operation */
	struct ps_slab *slab;
	size_t slab_used;    /* before the open sample */
	bool can_read_again; /* what is left in the file */

	bool open;
	bool dropped;  /* marked __bad__ by its writer: WebDataset leaves it out */
	bool left_out; /* bytes of a wanted field stay in the file */
	int bad;
	char *reason;
	uint64_t offset;
	uint64_t held;       /* bytes of wanted fields */
	struct ps_buf names; /* key, then a suffix a field, each with a zero after it */
	size_t key_len;
	uint32_t nfields, nwanted;
	struct ps_builder_field fields[PS_SAMPLE_MAX_FIELDS];
};

void ps_builder_init(
        struct ps_builder *builder, const struct ps_shard_options *options, struct ps_shard_file *file);
void ps_builder_fini(struct ps_builder *builder);

/* Forgets the open sample. */
void ps_builder_reset(struct ps_builder *builder);

int ps_builder_begin(
        struct ps_builder *builder, const char *key, size_t key_len, uint64_t offset) PS_MUST_USE;

/* A field's head, its name lowered. Sets where its `size` bytes are to be put, NULL: nowhere. `hold` false:
 * no caller will see the sample. */
int ps_builder_field(struct ps_builder *builder, const char *suffix, size_t suffix_len, uint64_t offset,
        uint64_t size, bool hold, uint8_t **ret_data) PS_MUST_USE;

/* Marks the open sample bad; the first reason stays. */
int ps_builder_bad(struct ps_builder *builder, int errnum, const char *reason) PS_MUST_USE;

/* The open sample, whole or bad. */
int ps_builder_finish(struct ps_builder *builder, uint64_t ordinal, uint64_t resume_offset,
        struct ps_sample **ret_sample, struct ps_load_error *err) PS_MUST_USE;

/* Lines of text ------------------------------------------------------------------------------------------ */

/* Lines of text as samples: a line is one member, "json" in .jsonl files and "txt" in others ("line" where a
 * field asks for that); its key is the file's name and its number, from 0. Its end, \n or \r\n, is not part
 * of it; the last one needs none. Blank lines of .jsonl files are passed over.
 *
 * Ownership: borrows stream and builder.   Threads: one at a time.   Locks: none.   Blocks: as the stream
 * does. Errors: 0 or -errno; a line that is too long is a bad sample, and the next one is read. */

#define PS_LINES_MAX (256UL << 20) /* bytes of a line, where the options say nothing: longer is bad */

struct ps_lines;

/* NULL: out of memory. */
struct ps_lines *ps_lines_new(
        const char *path, struct ps_stream *stream, const struct ps_shard_options *options);
void ps_lines_free(struct ps_lines *lines); /* NULL is allowed */

/* The next line, as the builder's open sample; none at the end. */
int ps_lines_next(struct ps_lines *lines, struct ps_builder *builder, uint64_t ordinal, bool hold,
        struct ps_load_error *err) PS_MUST_USE;

/* Windows of tokens -------------------------------------------------------------------------------------- */

/* Windows of a token stream as samples: a file of nothing but tokens, cut every `stride` bytes; a rest at
 * its end that is shorter than a window is left out. A sample has one member; its key is the file's name and
 * its number.
 *
 * Ownership: borrows stream and builder.   Threads: one at a time.   Locks: none.   Blocks: as the stream
 * does. Errors: 0 or -errno; -EBADMSG: the file does not hold whole tokens. */

struct ps_tokens;

/* NULL: out of memory. */
struct ps_tokens *ps_tokens_new(const char *path, struct ps_stream *stream, const struct ps_windows *windows);
void ps_tokens_free(struct ps_tokens *tokens); /* NULL is allowed */

/* The next window, as the builder's open sample; none at the end. */
int ps_tokens_next(struct ps_tokens *tokens, struct ps_builder *builder, uint64_t ordinal, bool hold,
        struct ps_load_error *err) PS_MUST_USE;

#endif
