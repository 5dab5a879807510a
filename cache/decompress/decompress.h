/* The inflating stage: compressed shards as origins of what they hold.
 *
 *   reader ─▶ fill engine ─▶ inflater (an origin of plain bytes) ─▶ unpacker: decoder ◀─ pieces ◀─ the real origin
 *                  │                                                   │
 *                  └───────▶ data file of the decoded object ◀─────────┘ what a frame holds beyond what was asked for
 *
 * To the fill engine a decoded object is an object like all others: its readers, single flight, deadlines,
 * disk, checksums, read-ahead and passthrough are those of every file. An inflater answers its gets by
 * decoding; HACKING.md has the states.
 *
 * Ownership: an inflater is reference-counted: whoever got it, the engine's file, an unpacker. Threads: any;
 * the stage's own decode, write and call back, neither FUSE's nor an origin's. Locks: one for the stage,
 * after the engine's; held over neither disk, index, decoding nor callbacks. Memory: a share of the engine's
 * budget, taken when the first inflater is made. Blocks: as each function says. Errors: as origins have them;
 * EIO with offset and cause for damaged data. */
#ifndef PS_DECOMPRESS_DECOMPRESS_H
#define PS_DECOMPRESS_DECOMPRESS_H

#include "fetch/fill.h"
#include "decompress/frame.h"
#include "store/store.h"

struct ps_inflate;
struct ps_inflater;
struct ps_index_batch;

int ps_inflate_new(struct ps_store *store, struct ps_fill *fill, struct ps_inflate **ret) PS_MUST_USE;
/* Every inflater has been put, and drained. */
void ps_inflate_free(struct ps_inflate *inflate);

/* route: the origin's (struct ps_origin), or "".
 * The size of what this version of the shard holds, as far as that was found out before; PS_SIZE_UNKNOWN: it
 * was not. Nodes of numbers below *ret_nodes_below were shown with another one, that turned out wrong. Blocks
 * on the index. */
uint64_t ps_inflate_known_size(struct ps_store *store, const char *route, const char *url,
        const struct ps_remote *source, uint64_t *ret_nodes_below);
/* What was found out of this version of a shard goes from the index with the batch. */
void ps_inflate_forget(
        struct ps_index_batch *batch, const char *route, const char *url, const struct ps_remote *source);

/* The inflater of the shard `url` (as the origin has it) in the version `source`, shared by all who ask.
 * `name` is what it is shown as. -ENOMEM and errors of the index. Blocks on the index. */
int ps_inflater_get(struct ps_inflate *inflate, struct ps_origin *base, const char *url, const char *name,
        const struct ps_remote *source, enum ps_coding coding, struct ps_inflater **ret) PS_MUST_USE;
void ps_inflater_put(struct ps_inflater *inflater);
struct ps_origin *ps_inflater_origin(struct ps_inflater *inflater);
uint64_t ps_inflater_known_size(struct ps_inflater *inflater);
/* The decoded object; its size is known. Counts as an open if `opened`. Blocks as ps_object_get(). */
int ps_inflater_object(
        struct ps_inflater *inflater, uint32_t dataset, bool opened, struct ps_object **ret) PS_MUST_USE;

/* Finds out the size: by headers and seek table where they tell, else by decoding all of it into the cache,
 * once for all who wait. fn is called once, also when the engine's timeout is over (ETIMEDOUT; the work goes
 * on). Blocks never. */
typedef void (*ps_inflate_size_fn)(void *arg, int errnum, uint64_t size, const char *text);
void ps_inflater_size(struct ps_inflater *inflater, ps_inflate_size_fn fn, void *arg);
/* It was tried a short while ago, and cannot be decoded, whoever asks. */
bool ps_inflater_damaged(struct ps_inflater *inflater);

/* Of the inflaters on this origin: ends what they do (ECANCELED), and what they are asked from now on. Blocks
 * never. */
void ps_inflate_abort(struct ps_inflate *inflate, struct ps_origin *base);
/* Waits until none is left; after abort, and once the engine was drained. */
void ps_inflate_drain(struct ps_inflate *inflate, struct ps_origin *base);

/* {"unpackers", "memory_bytes", "plain_bytes", "packed_bytes", "errors"} */
json_t *ps_inflate_stats(struct ps_inflate *inflate);

#endif
