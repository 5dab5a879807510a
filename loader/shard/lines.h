/* Lines of text as samples: a line is one member, "json" in .jsonl files and "txt" in others ("line" where a
 * field asks for that); its key is the file's name and its number, from 0. Its end, \n or \r\n, is not part
 * of it; the last one needs none. Blank lines of .jsonl files are passed over.
 *
 * Ownership: borrows stream and builder.   Threads: one at a time.   Locks: none.   Blocks: as the stream
 * does. Errors: 0 or -errno; a line that is too long is a bad sample, and the next one is read. */
#ifndef PS_SHARD_LINES_H
#define PS_SHARD_LINES_H

#include "shard/builder.h"

#define PS_LINES_MAX (256UL << 20) /* bytes of a line, where the options say nothing: longer is bad */

struct ps_lines;

/* NULL: out of memory. */
struct ps_lines *ps_lines_new(
        const char *path, struct ps_stream *stream, const struct ps_shard_options *options);
void ps_lines_free(struct ps_lines *lines); /* NULL is allowed */

/* The next line, as the builder's open sample; none at the end. */
int ps_lines_next(struct ps_lines *lines, struct ps_builder *builder, uint64_t ordinal, bool hold,
        struct ps_load_error *err) PS_MUST_USE;

#endif
