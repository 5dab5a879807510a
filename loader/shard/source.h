/* What a shard is: a tar, lines of text, or a stream of tokens; and the names of samples that have none.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Blocks: never. */
#ifndef PS_SHARD_SOURCE_H
#define PS_SHARD_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* As enum penstock_source. */
enum ps_source {
	PS_SOURCE_AUTO =
	        0, /* by the name, without .zst, .gz, .lz4: .jsonl and .txt lines, .bin tokens, else a tar */
	PS_SOURCE_TAR = 1,
	PS_SOURCE_LINES = 2,
	PS_SOURCE_TOKENS = 3,
};

#define PS_WINDOWS_MAX_NBYTES (UINT64_C(1) << 28)
#define PS_WINDOWS_MAX_STRIDE (UINT64_C(1) << 40) /* tokens */

/* Windows of a token stream; all in bytes. */
struct ps_windows {
	uint64_t nbytes;    /* of a window; 0: none were asked for, and .bin is a tar as any other name */
	uint64_t stride;    /* from one's beginning to the next one's */
	uint32_t item;      /* of a token */
	const char *suffix; /* of the sample's one member */
};

/* AUTO made one of the others. */
enum ps_source ps_source_of(enum ps_source asked, const struct ps_windows *windows, const char *path);

/* By its name: the size of such a file says nothing of what is in it. */
bool ps_source_is_compressed(const char *path);

/* ".json" of lines that are JSON, ".txt" of others; without the dot. */
const char *ps_source_line_suffix(const char *path);

/* "train-007" and '-', of /data/train-007.jsonl.zst: what a sample's number is put behind. */
int ps_source_key(const char *path, struct ps_buf *ret_base) PS_MUST_USE;

/* The key of sample number `ordinal`; what stood behind the first base_len bytes is gone. */
int ps_source_key_number(struct ps_buf *key, size_t base_len, uint64_t ordinal) PS_MUST_USE;

#endif
