/* The cache as fs/ sees it: attach a dataset, look up names, open, read. Knows nothing of FUSE.
 *
 * Ownership: a dataset belongs to its cache, a handle to its opener. Close the handles first, then detach
 * the datasets, then close the cache. Threads: all calls from any thread, except ps_cache_open and
 * ps_cache_close. Blocking: a call that takes a callback never blocks on the network. It calls back once,
 * before it returns or later from a thread of the cache, with no lock held. The callback must not block for
 * long. The comments of the other calls say what they block on. Errors: calls return -errno, callbacks get
 * a positive errno; the log and ps_node_info.error have the text.
 *
 *   ENOENT      no such name
 *   ESTALE      the node was superseded: look the name up again
 *   EIO         origin or disk failed
 *   ETIMEDOUT   the bytes did not arrive within the timeout
 *   EACCES      the origin refuses
 *   ECANCELED   cancelled */
#ifndef PS_CACHE_H
#define PS_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "catalog/catalog.h"
#include "fetch/fill.h"
#include "prefetch/prefetch.h"
#include "store/store.h"

struct ps_cache;
struct ps_handle;

struct ps_cache_options {
	struct ps_store_options store;
	uint64_t memory_bytes; /* for data in flight; 0: the smaller of 512 MiB and 1/8 of the cgroup's limit
	                      */
	/* maximum of concurrent range requests in all, and of requests to one origin; 0: 64 */
	unsigned max_connections;
	uint64_t max_bytes_per_s; /* limit over all origins; 0: none */
	uint64_t timeout_ms;      /* deadline of a read or lookup, from its issue; 0: 60 s */
	/* How long a grant is valid. After that time, an open asks the origin again whether these
	 * credentials may read an object's cached bytes. Without credentials, a grant is valid at least
	 * until the next revalidation. 0: 15 min; PS_GRANT_TTL_OPEN_MS: asked at each open. */
	uint64_t grant_ttl_ms;
};

int ps_cache_open(
        const struct ps_cache_options *options, struct ps_cache **ret, struct ps_error *err) PS_MUST_USE;
/* Cancels transfers, answers every waiter with ECANCELED, writes the bytes that arrived, closes the store.
 * Blocks on disk only. */
void ps_cache_close(struct ps_cache *cache);
struct ps_store *ps_cache_store(struct ps_cache *cache);

/* {"started_at", "cache": ps_store_stats(), "memory", "origin": ps_fill_origin_stats(), "reads":
 * ps_read_stats_json() of all reads with "fetched_bytes" and "hit_bytes", "inflate", "plans"}; the caller
 * owns it. Blocks on statvfs. */
json_t *ps_cache_stats(struct ps_cache *cache);

/* Files -------------------------------------------------------------------------------------------------- */

/* handle is NULL if errnum is not 0. ESTALE: the name has another version now. */
typedef void (*ps_open_fn)(void *arg, int errnum, struct ps_handle *handle);
void ps_handle_open(struct ps_dataset *dataset, uint64_t node, ps_open_fn fn, void *arg);
/* Opens a file that was open before this process was started: asks the origin nothing, and opens a
 * superseded version, too. allowed: ps_handle_allowed() of the handle that was open. -EAGAIN: the size of
 * a decoded shard is not known any more. Blocks on the index. */
int ps_handle_reopen(
        struct ps_dataset *dataset, uint64_t node, bool allowed, struct ps_handle **ret) PS_MUST_USE;
/* True if the origin has shown that the dataset's credentials may read the file. */
bool ps_handle_allowed(const struct ps_handle *handle);
/* Precondition: all reads of the handle have called back. Blocks on the index if a read found that the
 * origin has another version. */
void ps_handle_close(struct ps_handle *handle);

/* For a file that is opened for another purpose than to read shards in sequence: excludes this open from the
 * guess of which shard is read next. Call it in the open's callback. */
void ps_handle_not_read(struct ps_handle *handle);

uint64_t ps_handle_size(const struct ps_handle *handle);

/* Answers a read whose bytes are all in memory or on disk: calls fn before it returns, with segments like
 * those of ps_read.done, and allocates nothing. The handle may be closed once fn was called. The read is
 * counted in `stats` (or NULL) before fn. False: nothing has happened; call ps_handle_read(). */
typedef void (*ps_hit_fn)(void *arg, const struct ps_segment *segs, size_t nsegs);
bool ps_handle_try_read(struct ps_handle *handle, uint64_t offset, size_t nbytes, struct ps_read_stats *stats,
        ps_hit_fn fn, void *arg) PS_MUST_USE;

/* Calls read->done, before it returns or later. */
void ps_handle_read(struct ps_read *read);
/* Makes a waiting read call `done` with ECANCELED soon, from this or another thread. No effect on a read
 * that is already answered. The read must be alive: by a lock of its own, the caller keeps it from being
 * freed meanwhile. `done` may be called from here, so it must not wait for that lock. */
void ps_read_cancel(struct ps_read *read);

/* The descriptor of the file's data file if it is complete and verified, else -1; borrowed while the handle
 * is open. */
int ps_handle_complete_fd(struct ps_handle *handle);

/* The data file of an open file, for a process that reads it itself. While the handle is open the data file
 * keeps its bytes, its name and its inode, and counts in the quota, also if the object is evicted.
 *
 * -ENODATA: ps_handle_complete_fd() has none. -EACCES: the grant has expired, or was revoked. Other errors
 * are those of the index. Blocks on the index. */
struct ps_data_file {
	uint64_t dev, ino, nbytes;
	char path[4096];
};
int ps_handle_data_file(struct ps_handle *handle, struct ps_data_file *ret) PS_MUST_USE;

/* The object that the descriptor of ps_handle_complete_fd() belongs to; borrowed while the handle is open. */
struct ps_object *ps_handle_object(struct ps_handle *handle);

/* Fetches the file's missing bytes at low priority; ps_node_info_get() shows the progress. -ENOSPC: the
 * cache has no room for the file, and nothing is fetched; this is remembered for PS_STORE_REFUSED_MS.
 * Blocks on disk. */
int ps_handle_warm(struct ps_handle *handle) PS_MUST_USE;
/* Drops the file's data from the cache, unless the file is pinned. Open handles can still read the cached
 * bytes. Blocks on disk. */
int ps_handle_evict(struct ps_handle *handle, uint64_t *ret_nbytes);
/* pin protects the file's data from the eviction policy: see ps_object_pin(). *ret_nbytes: the bytes that
 * the pin reserves, 0 if the file was pinned already. All three block on the index. */
int ps_handle_pin(struct ps_handle *handle, uint64_t *ret_nbytes) PS_MUST_USE;
int ps_handle_unpin(struct ps_handle *handle, uint64_t *ret_nbytes) PS_MUST_USE;
int ps_handle_pin_nbytes(struct ps_handle *handle, uint64_t *ret_nbytes) PS_MUST_USE;

#endif
