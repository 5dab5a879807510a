/* The cache as fs/ sees it: attach a dataset, look up names, open, read. Knows nothing of FUSE.
 *
 * Ownership: a dataset belongs to its cache, handles to whoever opened them; close handles, then detach, then
 * close. Threads: everything from any thread, but ps_cache_open and ps_cache_close. Blocking: a call that
 * takes a callback never blocks on the network; it calls back once, before it returns or later from a thread
 * of the cache, with no lock held. The callback must not block for long. Calls without a callback say what
 * they block on. Errors: -errno in calls, positive errno in callbacks; the story is in the log and in
 * ps_node_info.error.
 *
 *   ENOENT      no such name
 *   ESTALE      the node was superseded: look the name up again
 *   EIO         origin or disk failed
 *   ETIMEDOUT   not there within the timeout
 *   EACCES      the origin refuses
 *   ECANCELED   cancelled */
#ifndef PS_CACHE_H
#define PS_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "base/latency.h"
#include "base/list.h"
#include "origin/origin.h"
#include "store/store.h"

struct ps_cache;
struct ps_dataset;
struct ps_handle;
struct ps_buf;

struct ps_cache_options {
	struct ps_store_options store;
	uint64_t memory_bytes; /* for data in flight; 0: the smaller of 512 MiB and 1/8 of the cgroup's limit
	                        */
	unsigned max_connections; /* to one origin, at most; 0: 64 */
	uint64_t max_bytes_per_s; /* from all origins; 0: no limit */
	uint64_t timeout_ms;      /* a read or lookup fails at most so long after it was issued; 0: 60 s */
	uint64_t grant_ttl_ms;    /* cached bytes are handed out so long after the origin has answered a request for their object
	                             under the same credentials, then it is asked again (without any credentials, when
	                             the version is confirmed, if that is later); 0: 15 min; PS_GRANT_TTL_OPEN_MS: no longer */
#define PS_GRANT_TTL_OPEN_MS 1
};

int ps_cache_open(
        const struct ps_cache_options *options, struct ps_cache **ret, struct ps_error *err) PS_MUST_USE;
/* Cancels transfers, answers every waiter (ECANCELED), writes what arrived, closes the store. Blocks on disk
 * only. */
void ps_cache_close(struct ps_cache *cache);
struct ps_store *ps_cache_store(struct ps_cache *cache);

/* {"started_at", "cache": ps_store_stats(), "memory", "origin": ps_fill_origin_stats(), "reads": ps_read_stats_json() of all reads with
 * "fetched_bytes" and "hit_bytes", "inflate", "plans"}; the caller owns it. Blocks never. */
json_t *ps_cache_stats(struct ps_cache *cache);

/* Datasets --------------------------------------------------------------------------------------- */

struct ps_dataset_options {
	struct ps_origin_options origin;
	uint64_t revalidate_ms; /* an open confirms the version at the origin if the last confirmation is
	                           older; 0: 1 h; UINT64_MAX: never */
	bool raw; /* compressed shards are shown as they are, not as what they hold */
	const char *const *include, *const *exclude; /* which files are shown: listing/filter.h; NULL-terminated, or NULL */
	const _Atomic bool *cancelled; /* set: the attach ends soon, with ECANCELED; NULL: it cannot be */
	/* Now and then while the attach waits for a listing, by its thread: so many files so far. NULL: nobody asks. */
	void (*listed)(void *arg, const char *source, uint64_t nfiles);
	void *listed_arg;
};

/* A source that is attached with the same credentials already is shared: the same dataset, with the
 * options of the first, until the last detach; it is listed again, unless that is under way, and the listing is
 * waited for as below. Otherwise: lists the source and stores the names; of a bucket that is
 * attached with other credentials, one page shows that these may list it, too. With a
 * stored listing of the same source and credentials (of a bucket: and a page of it) it waits at most PS_ATTACH_WAIT_MS for a fresh one (of
 * very many names PS_ATTACH_WAIT_MANY_MS: listing them takes longer than either), then goes on with the
 * stored one while the listing continues in the background, also when the origin is gone. Errors: a
 * listing that fails and none is stored; an empty one (ENOENT); a first object that is not there or
 * refused. Blocks on network and disk. */
#define PS_ATTACH_WAIT_MS 600
#define PS_ATTACH_WAIT_MANY_MS 100
#define PS_ATTACH_MANY 50000
int ps_dataset_attach(struct ps_cache *cache, const char *source, const struct ps_dataset_options *options,
        struct ps_dataset **ret, struct ps_error *err) PS_MUST_USE;
void ps_dataset_detach(struct ps_dataset *dataset);
uint64_t ps_dataset_root(const struct ps_dataset *dataset);
const char *ps_dataset_source(const struct ps_dataset *dataset); /* canonical, without secrets */
uint64_t ps_dataset_revalidate_ms(const struct ps_dataset *dataset);
/* {"source", "include", "exclude", "unmatched", "files", "listed_at", "next_listing_at", "refresh_seconds", "listing", "listing_error", "offline", "opens", "missing",
 * "missing_names", "versionless"}; the caller owns it.
 * next_listing_at: by ps_watch.refresh_ms, null if no watch has one; refresh_seconds: the smallest of them.
 * offline: the origin does not answer, and versions are taken as they are known.
 * missing: names of a brace expansion or a manifest that the origin turned out not to have, and the first few of them.
 * versionless: ps_dataset_versionless(). unmatched: the patterns of ps_dataset_unmatched(). */
json_t *ps_dataset_stats(struct ps_dataset *dataset);

/* Listing again ------------------------------------------------------------------------------------ */

/* Hears of names that other nodes stand for, that are new, or that are gone: after a listing, in the index already.
 * The caller's until unwatch. */
struct ps_watch {
	struct ps_dataset *dataset;
	/* By a thread of the cache, with no lock held; may block for as long as a lookup takes. */
	void (*changed)(void *arg, uint64_t parent, const char *name);
	void *arg;
	/* The source is listed again when the last complete listing is so old (at random up to a tenth less); of several watches
	 * of the same names the smallest counts. Listings that fail are repeated later and later, up to an hour if this is less.
	 * 0: it is listed when somebody asks. */
	uint64_t refresh_ms;
	struct { /* the cache's */
		struct ps_list link;
		size_t ntold;
		uint64_t round;
		bool busy;
		_Atomic bool ending;
	} priv;
};
void ps_dataset_watch(struct ps_watch *watch);
/* Afterwards nothing is called back; refreshes of this watch are ended first (ECANCELED). Blocks on `changed`. */
void ps_dataset_unwatch(struct ps_watch *watch);

struct ps_refreshed {
	uint64_t nfiles, nadded, nvanished;
};
/* One request; the caller's until done. */
struct ps_refresh {
	struct ps_watch *watch;
	/* Once, after all watches of these names have been called. An error: the names are what they were, and what the
	 * listing has found before it failed. */
	void (*done)(struct ps_refresh *refresh, int errnum, const struct ps_refreshed *result);
	void *arg;
	struct {
		struct ps_list link;
		uint64_t number;
	} priv;
};
/* Lists the source again; requests made before that listing begins share it. Names vanish by a complete listing only. Open
 * handles are not concerned. Never blocks. */
void ps_dataset_refresh(struct ps_refresh *refresh);

/* Names of the list that the origin turned out not to have, or that it did not answer for, as far as they are known; waits
 * at most wait_ms until all have been asked for, but for no listing that goes on in the background; UINT64_MAX: as long as
 * it takes. Returns their number (at most INT_MAX)
 * with one line of text, 0 if there are none, -EAGAIN: none so far, but some were not asked for yet; -ECANCELED:
 * *cancelled, which may be NULL. Blocks on the network for as long as it may wait. */
int ps_dataset_missing(struct ps_dataset *dataset, uint64_t wait_ms, const _Atomic bool *cancelled,
        char ret_text[static PS_ERROR_TEXT_LEN]) PS_MUST_USE;

/* A file of it has neither ETag nor Last-Modified, as far as the origin was asked. */
bool ps_dataset_versionless(const struct ps_dataset *dataset);
#define PS_VERSIONLESS_TEXT \
	"the server gives no versions (neither ETag nor Last-Modified): that a file has changed there is seen only in its " \
	"size and its first 64 KiB"

/* Patterns to include or exclude that no name of a whole listing has matched; false: none, or none was listed yet. */
bool ps_dataset_unmatched(const struct ps_dataset *dataset, char ret_text[static PS_ERROR_TEXT_LEN]);

struct ps_attr {
	uint64_t node; /* names this (object, version) for ever */
	uint64_t ino;  /* for st_ino; the same for all versions of a name */
	bool is_dir;
	/* Size and mtime are known. False: from ps_dir_read(), or of a compressed shard that cannot be decoded: it has a name
	 * and the reason in ps_node_info.error, but cannot be opened; its size is 0. */
	bool complete_attr;
	uint64_t size;
	int64_t mtime_s;
};

/* May need a HEAD when the listing told no size; all waiters of one name share it. */
typedef void (*ps_attr_fn)(void *arg, int errnum, const struct ps_attr *attr);
void ps_dataset_lookup(
        struct ps_dataset *dataset, uint64_t parent, const char *name, ps_attr_fn fn, void *arg);
void ps_dataset_getattr(struct ps_dataset *dataset, uint64_t node, ps_attr_fn fn, void *arg);

/* A directory's entries in name order, without "." and "..", from a snapshot. Blocks on the index. */
struct ps_dir;
int ps_dir_open(struct ps_dataset *dataset, uint64_t node, struct ps_dir **ret) PS_MUST_USE;
/* The entry at position `pos` (0 first): 1, 0 past the end, or -errno. Sequential positions are cheap, going
 * back is not. *ret_name is borrowed until the next call. want_attr: fill size and mtime where they are known
 * without the network. */
int ps_dir_read(struct ps_dir *dir, uint64_t pos, bool want_attr, const char **ret_name,
        struct ps_attr *ret_attr) PS_MUST_USE;
void ps_dir_close(struct ps_dir *dir);

struct ps_node_info {
	char *url;  /* without credentials; NULL for a directory */
	char *etag; /* "" if none */
	uint64_t size, cached_nbytes;
	const char *state; /* "remote", "partial", "cached" */
	bool pinned;       /* its URL, whatever the version */
	const char *encoding; /* of the shard, whose contents are shown: "zstd", "gzip"; "": it is shown as it is */
	char *error;       /* the last failure of this object, "" if none */
};
/* Blocks on the index. -ENOENT: no such node. */
int ps_node_info_get(struct ps_dataset *dataset, uint64_t node, struct ps_node_info *ret);
void ps_node_info_fini(struct ps_node_info *info);

/* What a loader tells of the files it will read; policy/plan_text.h has the form. A feed is one teller; what it told
 * is dropped with it, or when it was silent for PS_PLANS_SILENT_S. */
struct ps_plan_feed;
/* Where its names lie: a folder of the mount, or "" where the mount shows one dataset. */
struct ps_plan_source {
	const char *name; /* borrowed as long as the feed */
	struct ps_dataset *dataset;
};
/* n > 0, of one cache. stranger: neither the mount's owner nor root; may tell less. -EOPNOTSUPP: the policy follows no
 * plans. */
int ps_plan_feed_new(const struct ps_plan_source *sources, size_t n, bool stranger,
        struct ps_plan_feed **ret) PS_MUST_USE;
/* The next bytes of its lines, cut anywhere; one call at a time. All lines in them are taken, and the first error is
 * returned: -EINVAL: a line is not of the form; -E2BIG: a line, or the files or epochs of a rank; -ENOSPC: too much
 * is told by all; -ESTALE: a position of a rank that was dropped: tell it anew. Blocks on the index. */
int ps_plan_feed_write(struct ps_plan_feed *feed, const char *text, size_t n) PS_MUST_USE;
void ps_plan_feed_free(struct ps_plan_feed *feed);

/* Files ------------------------------------------------------------------------------------------ */

/* errnum ESTALE: another version stands for the name now. The handle is then NULL. */
typedef void (*ps_open_fn)(void *arg, int errnum, struct ps_handle *handle);
void ps_handle_open(struct ps_dataset *dataset, uint64_t node, ps_open_fn fn, void *arg);
/* All its reads have called back. Blocks on the index if one of them found another version. */
void ps_handle_close(struct ps_handle *handle);

uint64_t ps_handle_size(const struct ps_handle *handle);

/* Bytes in memory (data) or in a file (data NULL: fd at pos). */
struct ps_segment {
	const void *data;
	int fd;
	uint64_t pos;
	size_t nbytes;
};
#define PS_READ_MAX_NBYTES (UINT64_C(1) << 20)
#define PS_READ_MAX_SEGMENTS 17 /* each chunk that it touches may be in memory or in the file */

/* What the reads around a read look like; decides how much more than its own bytes is worth fetching. */
enum ps_access {
	PS_ACCESS_STREAM, /* the next of a sequence, or the head of the file: what follows is wanted, too */
	PS_ACCESS_RANDOM, /* nothing near it was read lately: its own bytes are all that is known to be wanted */
};

/* What became of reads: of all, or of those of one mount. */
struct ps_read_stats {
	_Atomic uint64_t bytes, ready_bytes; /* answered; of these, without waiting */
	struct ps_waits waits;
	struct ps_histogram latency; /* of all but cancelled ones */
};
void ps_read_stats_init(struct ps_read_stats *stats);
void ps_read_stats_fini(struct ps_read_stats *stats);
/* {"bytes", "ready_bytes", "stalled_seconds": in which a read waited, "waiting", "latency_seconds": ps_histogram_json()};
 * the caller owns it. */
json_t *ps_read_stats_json(struct ps_read_stats *stats);

/* One read; the caller owns it, fills the first part and keeps it until done. */
struct ps_read {
	struct ps_handle *handle;
	uint64_t offset;
	size_t nbytes; /* at most PS_READ_MAX_NBYTES; cut at the end of the file */
	struct ps_read_stats *stats; /* counted here, too, before done; NULL: only with all others */
	/* Once, as soon as the bytes are there, from whatever source. The segments are valid during the call
	 * only. nsegs 0 with errnum 0: at or past the end of the file. The read may be freed inside. */
	void (*done)(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs);

	struct { /* the cache's; under the file's lock while it waits */
		struct ps_list link;
		enum ps_access access; /* set before ps_fill_read() */
		bool waiting;
		bool waited; /* or still does */
		int errnum;
		uint64_t issued_ns, expires_ns;
		size_t nsegs;
		struct ps_segment segs[PS_READ_MAX_SEGMENTS];
		struct ps_buf *bufs[PS_READ_MAX_SEGMENTS]; /* what holds the memory of a segment, or NULL */
		struct ps_hold hold;                       /* and what those in the file */
	} priv;
};
void ps_handle_read(struct ps_read *read);
/* Makes a waiting read call done with ECANCELED, soon, from this or another thread; no effect on one already
 * answered, but the read must still be alive: call it before done has returned (the caller's own lock
 * decides). */
void ps_read_cancel(struct ps_read *read);

/* The descriptor of the file's data file if it is complete and verified, else -1; borrowed while the handle is open. */
int ps_handle_complete_fd(struct ps_handle *handle);

/* Whose descriptor that is; borrowed while the handle is open. */
struct ps_object *ps_handle_object(struct ps_handle *handle);

/* Fetches what is missing of the file at low priority; progress shows in ps_node_info_get(). -ENOSPC: the cache
 * has no room for the file, nothing is fetched; remembered for PS_STORE_REFUSED_MS. Blocks on disk. */
int ps_handle_warm(struct ps_handle *handle) PS_MUST_USE;
/* Drops the file's data from the cache, unless it is pinned. Open readers keep what they have. Blocks on disk. */
int ps_handle_evict(struct ps_handle *handle, uint64_t *ret_nbytes);
/* Keeps the file's data in the cache, whatever the policy: ps_object_pin(). *ret_nbytes: what that reserves, 0 if it was
 * pinned already. Block on the index. */
int ps_handle_pin(struct ps_handle *handle, uint64_t *ret_nbytes) PS_MUST_USE;
int ps_handle_unpin(struct ps_handle *handle, uint64_t *ret_nbytes) PS_MUST_USE;
int ps_handle_pin_nbytes(struct ps_handle *handle, uint64_t *ret_nbytes) PS_MUST_USE;

#endif
