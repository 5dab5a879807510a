/* Windows of a token stream as samples: a file of nothing but tokens, cut every `stride` bytes; what is left
 * at its end and makes no window is left out. A sample has one member; its key is the file's name and its
 * number.
 *
 * Ownership: borrows stream and builder.   Threads: one at a time.   Locks: none.   Blocks: as the stream
 * does. Errors: 0 or -errno; -EBADMSG: the file does not hold whole tokens. */
#ifndef PS_SHARD_TOKENS_H
#define PS_SHARD_TOKENS_H

#include "shard/builder.h"

struct ps_tokens;

/* NULL: out of memory. */
struct ps_tokens *ps_tokens_new(const char *path, struct ps_stream *stream, const struct ps_windows *windows);
void ps_tokens_free(struct ps_tokens *tokens); /* NULL is allowed */

/* The next window, as the builder's open sample; none at the end. */
int ps_tokens_next(struct ps_tokens *tokens, struct ps_builder *builder, uint64_t ordinal, bool hold,
        struct ps_load_error *err) PS_MUST_USE;

/* How many windows so many bytes make. */
uint64_t ps_tokens_count(const struct ps_windows *windows, uint64_t nbytes);

#endif
