/* Decompression: compressed shards as origins of their decoded content.
 *
 *   reader ─▶ fill engine ─▶ decompressing origin (plain bytes) ─▶ decompressor ◀─ pieces ◀─ the real origin
 *                  │                                                    │
 *                  └───────▶ data file of the decoded object ◀──────────┘ bytes that no get asked for
 *
 * To the fill engine a decoded object is an object like all others: its readers, single flight, deadlines,
 * disk, checksums, read-ahead and passthrough are those of every file. A decompressing origin answers its
 * gets by decoding; docs/design/decompress.md has the states.
 *
 * Ownership: a decompressing origin is reference-counted; the engine's file and each caller of
 * ps_decompressing_get() hold a reference. Threads: any. All decompressing origins of a cache share the stage
 * (struct ps_decompress): only its own threads decode, write and answer gets, never those of FUSE or of an
 * origin. Locks: one for the stage, taken after the engine's; not held over the disk, the index, a request to
 * an origin, decoding or a callback. Memory: a share of the engine's budget, taken when the first
 * decompressing origin is made. Blocking: see each function. Errors: those of origins; EIO with offset and
 * cause for damaged data. */
#ifndef PS_DECOMPRESS_DECOMPRESS_H
#define PS_DECOMPRESS_DECOMPRESS_H

#include "decompress/frame.h"
#include "fetch/fill.h"
#include "store/store.h"

struct ps_decompress;
struct ps_decompressing;
struct ps_index_batch;

int ps_decompress_new(struct ps_store *store, struct ps_fill *fill, struct ps_decompress **ret) PS_MUST_USE;
/* Precondition: all decompressing origins have been put and drained. */
void ps_decompress_free(struct ps_decompress *stage);

/* The decoded size of this version of the shard, from the index; PS_SIZE_UNKNOWN: the index has none. Nodes
 * with numbers below *ret_nodes_below were shown with another size, which was wrong. route: the origin's
 * (struct ps_origin), or "". Blocks on the index. */
uint64_t ps_decompress_known_size(struct ps_store *store, const char *route, const char *url,
        const struct ps_remote *source, uint64_t *ret_nodes_below);
/* Adds to the batch the deletion of the size and the frames of this version of a shard. */
void ps_decompress_forget(
        struct ps_index_batch *batch, const char *route, const char *url, const struct ps_remote *source);

/* The decompressing origin of the shard `url` of the origin `base`, in the version `source`, shared by all
 * callers. `name` is the shard's shown name. -ENOMEM and errors of the index. Blocks on the index. */
int ps_decompressing_get(struct ps_decompress *stage, struct ps_origin *base, const char *url,
        const char *name, const struct ps_remote *source, enum ps_coding coding,
        struct ps_decompressing **ret) PS_MUST_USE;
void ps_decompressing_put(struct ps_decompressing *shard);
struct ps_origin *ps_decompressing_as_origin(struct ps_decompressing *shard);
uint64_t ps_decompressing_known_size(struct ps_decompressing *shard);
/* The decoded object; its size is known. Counts as an open if `opened`. Blocks as ps_object_get(). */
int ps_decompressing_object(
        struct ps_decompressing *shard, uint32_t dataset, bool opened, struct ps_object **ret) PS_MUST_USE;

/* Finds the size, once for all waiters: by headers and seek table if these have it, else by decoding the
 * whole shard into the cache. fn is called once, before this returns if the result is known already. If the
 * engine's timeout passes first, fn gets ETIMEDOUT, and the work goes on. Never blocks. */
typedef void (*ps_decompress_size_fn)(void *arg, int errnum, uint64_t size, const char *text);
void ps_decompressing_size(struct ps_decompressing *shard, ps_decompress_size_fn fn, void *arg);
/* True if decoding failed recently, and is not tried again yet. */
bool ps_decompressing_damaged(struct ps_decompressing *shard);

/* Ends all work of the decompressing origins based on this origin with ECANCELED, also that of later
 * requests. Never blocks. */
void ps_decompress_abort(struct ps_decompress *stage, struct ps_origin *base);
/* Waits until no decompressing origin based on `base` is left. Call it after ps_decompress_abort(), and
 * after the engine was drained. */
void ps_decompress_drain(struct ps_decompress *stage, struct ps_origin *base);

/* The section "inflate"; the caller owns it. */
json_t *ps_decompress_stats(struct ps_decompress *stage);

#endif
