/* Decompression: compressed shards as origins of what they hold.
 *
 *   reader ─▶ fill engine ─▶ decompressing origin (of plain bytes) ─▶ decompressor: decoder ◀─ pieces ◀─ the real origin
 *                  │                                                   │
 *                  └───────▶ data file of the decoded object ◀─────────┘ what a frame holds beyond what was asked for
 *
 * To the fill engine a decoded object is an object like all others: its readers, single flight, deadlines,
 * disk, checksums, read-ahead and passthrough are those of every file. A decompressing origin answers its gets by
 * decoding; docs/design/decompress.md has the states.
 *
 * Ownership: a decompressing origin is reference-counted: whoever got it, the engine's file, a decompressor. Threads: any;
 * the stage's own decode, write and call back, neither FUSE's nor an origin's. Locks: one for the stage,
 * after the engine's; held over neither disk, index, decoding nor callbacks. Memory: a share of the engine's
 * budget, taken when the first such origin is made. Blocks: as each function says. Errors: as origins have them;
 * EIO with offset and cause for damaged data. */
#ifndef PS_DECOMPRESS_DECOMPRESS_H
#define PS_DECOMPRESS_DECOMPRESS_H

#include "fetch/fill.h"
#include "decompress/frame.h"
#include "store/store.h"

struct ps_decompress;
struct ps_decompressing;
struct ps_index_batch;

int ps_decompress_new(struct ps_store *store, struct ps_fill *fill, struct ps_decompress **ret) PS_MUST_USE;
/* Every inflater has been put, and drained. */
void ps_decompress_free(struct ps_decompress *inflate);

/* route: the origin's (struct ps_origin), or "".
 * The size of what this version of the shard holds, as far as that was found out before; PS_SIZE_UNKNOWN: it
 * was not. Nodes of numbers below *ret_nodes_below were shown with another one, that turned out wrong. Blocks
 * on the index. */
uint64_t ps_decompress_known_size(struct ps_store *store, const char *route, const char *url,
        const struct ps_remote *source, uint64_t *ret_nodes_below);
/* What was found out of this version of a shard goes from the index with the batch. */
void ps_decompress_forget(
        struct ps_index_batch *batch, const char *route, const char *url, const struct ps_remote *source);

/* The inflater of the shard `url` (as the origin has it) in the version `source`, shared by all who ask.
 * `name` is what it is shown as. -ENOMEM and errors of the index. Blocks on the index. */
int ps_decompressing_get(struct ps_decompress *inflate, struct ps_origin *base, const char *url, const char *name,
        const struct ps_remote *source, enum ps_coding coding, struct ps_decompressing **ret) PS_MUST_USE;
void ps_decompressing_put(struct ps_decompressing *inflater);
struct ps_origin *ps_decompressing_as_origin(struct ps_decompressing *inflater);
uint64_t ps_decompressing_known_size(struct ps_decompressing *inflater);
/* The decoded object; its size is known. Counts as an open if `opened`. Blocks as ps_object_get(). */
int ps_decompressing_object(
        struct ps_decompressing *inflater, uint32_t dataset, bool opened, struct ps_object **ret) PS_MUST_USE;

/* Finds out the size: by headers and seek table where they tell, else by decoding all of it into the cache,
 * once for all who wait. fn is called once, also when the engine's timeout is over (ETIMEDOUT; the work goes
 * on). Blocks never. */
typedef void (*ps_decompress_size_fn)(void *arg, int errnum, uint64_t size, const char *text);
void ps_decompressing_size(struct ps_decompressing *inflater, ps_decompress_size_fn fn, void *arg);
/* It was tried a short while ago, and cannot be decoded, whoever asks. */
bool ps_decompressing_damaged(struct ps_decompressing *inflater);

/* Of the inflaters on this origin: ends what they do (ECANCELED), and what they are asked from now on. Blocks
 * never. */
void ps_decompress_abort(struct ps_decompress *inflate, struct ps_origin *base);
/* Waits until none is left; after abort, and once the engine was drained. */
void ps_decompress_drain(struct ps_decompress *inflate, struct ps_origin *base);

/* {"unpackers", "memory_bytes", "plain_bytes", "packed_bytes", "errors"} */
json_t *ps_decompress_stats(struct ps_decompress *inflate);

#endif
