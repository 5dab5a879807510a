/* The names of a dataset: attach a source, list it again, look names up. Part of the cache's facade: the
 * rules of cache.h for ownership, threads, blocking and errors apply here, too. */
#ifndef PS_CATALOG_CATALOG_H
#define PS_CATALOG_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "base/list.h"
#include "origin/origin.h"

struct ps_cache;
struct ps_dataset;

/* value of ps_cache_options.grant_ttl_ms: each grant holds for one open only */
#define PS_GRANT_TTL_OPEN_MS 1

struct ps_dataset_options {
	struct ps_origin_options origin;
	/* an open revalidates a version whose last confirmation is older; 0: 1 h; UINT64_MAX: never */
	uint64_t revalidate_ms;
	bool raw; /* compressed shards are shown raw, not decoded */
	/* names (fnmatch(3)) of files that are fetched as a whole with their first read; "none": and no file for
	 * scattered readers; NULL: none is named */
	const char *whole;
	enum ps_checksums checksums;
	/* The mount was attached by a process before this one, and the kernel has node numbers of it. The
	 * attach uses the stored listing and waits for no new one: see ps_watch.resumed_s. -ESTALE: there is
	 * no stored listing, so those numbers name nothing. */
	bool resumes;
	/* which files are shown: listing/listing.h; NULL-terminated, or NULL */
	const char *const *include, *const *exclude;
	/* Set to true, and ps_cache_wake() called, it ends the attach at once, with ECANCELED. May be NULL. */
	const _Atomic bool *cancelled;
	/* While the attach waits for a listing, its caller's thread calls this from time to time, with the
	 * number of files so far. May be NULL. */
	void (*listed)(void *arg, const char *source, uint64_t nfiles);
	void *listed_arg;
};

/* Has all waiting attaches, and calls of ps_dataset_missing(), look again whether they are cancelled. Never
 * blocks. */
void ps_cache_wake(struct ps_cache *cache);

/* If the source is already attached with the same credentials, the dataset is shared, with the options of
 * its first attach, until the last detach. It is listed again, unless a listing is under way, and the
 * attach waits for that listing as below. Otherwise the attach lists the source and stores the names. While
 * a dataset with other credentials lists the same bucket, the attach lists only one page, with its own
 * credentials, which proves that these may list the bucket, too; then it waits for the other listing. If
 * the index has a listing of this source that these credentials may see, the attach waits for a fresh
 * listing for PS_ATTACH_WAIT_MS at most. With PS_ATTACH_MANY names or more it waits for
 * PS_ATTACH_WAIT_MANY_MS only, because listing so many names takes longer than either limit. After that
 * time the attach uses the stored listing, and the fresh listing continues in the background. If the origin
 * does not answer, the attach uses the stored listing, too. Errors: the listing fails, and none is stored;
 * the listing is empty (ENOENT); the first object is missing or refused. Blocks on network and disk. */
#define PS_ATTACH_WAIT_MS 600
#define PS_ATTACH_WAIT_MANY_MS 100
#define PS_ATTACH_MANY 50000
int ps_dataset_attach(struct ps_cache *cache, const char *source, const struct ps_dataset_options *options,
        struct ps_dataset **ret, struct ps_error *err) PS_MUST_USE;
void ps_dataset_detach(struct ps_dataset *dataset);
/* Writes a text that identifies the dataset: two sources have the same text if ps_dataset_attach() would
 * share one dataset between them, because their names and their access are the same. -EINVAL, -ENOMEM with
 * a text. Reads files of credentials; sends no requests. */
#define PS_DATASET_KEY_LEN 65
int ps_dataset_key(struct ps_cache *cache, const char *source, const struct ps_dataset_options *options,
        char ret[static PS_DATASET_KEY_LEN], struct ps_error *err) PS_MUST_USE;
uint64_t ps_dataset_root(const struct ps_dataset *dataset);
/* The sum of its files' sizes, as far as they are known; 0 with more than 20,000 names, which take too long. Blocks on
 * the index: several microseconds a name, unless it was counted a short time ago. */
uint64_t ps_dataset_nbytes(struct ps_dataset *dataset);
/* Counts what its files have in the cache, for ps_dataset_stats(), unless it was counted a short time ago. Blocks on
 * the index: some 20 microseconds a name. So call it without a lock. */
void ps_dataset_count(struct ps_dataset *dataset);
/* When a listing last changed the names in the root; 0: not known. Blocks on the index. */
int64_t ps_dataset_root_mtime_s(const struct ps_dataset *dataset);
const char *ps_dataset_source(const struct ps_dataset *dataset); /* canonical, without secrets */
uint64_t ps_dataset_revalidate_ms(const struct ps_dataset *dataset);
/* The section "mount"; the caller owns it.
 * cached_bytes: what its files have in the cache, whichever mount read them, as ps_dataset_count() has counted it
 * last. Before the first count, and with more than 20,000 names: of the files that were last opened through it.
 * next_listing_at: when ps_watch.refresh_ms next requires a listing; null if no watch sets it.
 * refresh_seconds: the smallest refresh_ms of all watches, in seconds. */
json_t *ps_dataset_stats(struct ps_dataset *dataset);

/* Listing again ------------------------------------------------------------------------------------------ */

/* A watch. After a listing, once the index has the changes, its callback gets each name that is new, has
 * vanished, or has another node. The caller keeps the struct until unwatch. */
struct ps_watch {
	struct ps_dataset *dataset;
	/* Called by a thread of the cache, with no lock held; may block for as long as a lookup takes. */
	void (*changed)(void *arg, uint64_t parent, const char *name);
	void *arg;
	/* The source is listed again once the last complete listing is this old (less a random part of up
	 * to a tenth). If there are several watches of the same names, the smallest interval counts. After
	 * repeated failures the interval doubles each time, up to an hour; a longer interval stays as it
	 * is. 0: the source is listed on request only. */
	uint64_t refresh_ms;
	/* True while `changed` has not been called for all names that a listing has changed; or NULL */
	_Atomic bool *owed;
	int64_t resumed_s; /* of a dataset that was attached with `resumes`: when it was mounted; else 0 */
	struct {           /* the cache's */
		struct ps_list link;
		size_t ntold;
		uint64_t round;
		bool busy;
		_Atomic bool ending;
	} priv;
};
void ps_dataset_watch(struct ps_watch *watch);
/* Ends the watch: waits until `changed` returns, if it is being called, and ends the watch's refreshes with
 * ECANCELED. `changed` is not called after that; `done` of a refresh whose listing has just ended may be. */
void ps_dataset_unwatch(struct ps_watch *watch);

struct ps_refreshed {
	uint64_t nfiles, nadded, nvanished;
};
/* One request; the caller keeps it until done. */
struct ps_refresh {
	struct ps_watch *watch;
	/* Called once, after the callbacks of all watches of these names. After an error the names are the
	 * previous ones, with the changes that the listing had found before it failed. */
	void (*done)(struct ps_refresh *refresh, int errnum, const struct ps_refreshed *result);
	void *arg;
	struct {
		struct ps_list link;
		uint64_t number;
	} priv;
};
/* Lists the source again; requests made before that listing begins share it. Names vanish only after a
 * complete listing. Open handles are not affected. Never blocks. */
void ps_dataset_refresh(struct ps_refresh *refresh);

/* Reports the listed names for which the origin has answered that it has no such object, or has not
 * answered. Waits at most wait_ms (UINT64_MAX: without limit) until all names have been requested. With a
 * limit, it does not wait for a listing that goes on in the background. Returns their number (at most
 * INT_MAX) with one line of text; 0: none; -EAGAIN: none so far, but some were not requested yet;
 * -ECANCELED: *cancelled is set, see ps_dataset_options (cancelled may be NULL). Blocks on the network for as long as it may
 * wait. */
int ps_dataset_missing(struct ps_dataset *dataset, uint64_t wait_ms, const _Atomic bool *cancelled,
        char ret_text[static PS_ERROR_TEXT_LEN]) PS_MUST_USE;

/* True if the origin has answered for a file with neither ETag nor Last-Modified. */
bool ps_dataset_versionless(const struct ps_dataset *dataset);
#define PS_VERSIONLESS_TEXT                                                                                 \
	"the server sends no versions (neither ETag nor Last-Modified): a changed file is recognised only " \
	"by its size and its first 64 KiB"

/* True if the origin seems to answer no Range requests, without which only small files can be read. */
bool ps_dataset_unranged(const struct ps_dataset *dataset);
#define PS_UNRANGED_TEXT                                                                                    \
	"the server does not answer Range requests, like Python's http.server, so files cannot be read in " \
	"parts and most reads will fail; serve them by nginx, Apache or Caddy"

/* The include and exclude patterns that no name of a complete listing has matched. False: there are none,
 * or no listing was complete yet. */
bool ps_dataset_unmatched(const struct ps_dataset *dataset, char ret_text[static PS_ERROR_TEXT_LEN]);

struct ps_attr {
	uint64_t node; /* permanent number of this (name, version) */
	uint64_t ino;  /* for st_ino; the same for all versions of a name */
	bool is_dir;
	/* Size and mtime are known. False from ps_dir_read() without want_attr or while the size is not
	 * known yet, and for a compressed shard that cannot be decoded: its size is 0, it cannot be opened,
	 * and ps_node_info.error has the reason. */
	bool complete_attr;
	uint64_t size;
	int64_t mtime_s;
};

/* Look up a name or a node. If the listing gave no size, that takes a HEAD, which all waiters of one name
 * share. */
typedef void (*ps_attr_fn)(void *arg, int errnum, const struct ps_attr *attr);
void ps_dataset_lookup(
        struct ps_dataset *dataset, uint64_t parent, const char *name, ps_attr_fn fn, void *arg);
/* True if the folder has this name. Blocks on the index. */
bool ps_dataset_has(struct ps_dataset *dataset, uint64_t parent, const char *name);
void ps_dataset_getattr(struct ps_dataset *dataset, uint64_t node, ps_attr_fn fn, void *arg);

/* A directory's entries in name order, without "." and "..", from a snapshot. Blocks on the index. */
struct ps_dir;
int ps_dir_open(struct ps_dataset *dataset, uint64_t node, struct ps_dir **ret) PS_MUST_USE;
/* Reads the entry at position `pos`, from 0 on. Returns 1, 0 past the end, or -errno. Sequential positions
 * are cheap, going back is not. *ret_name is borrowed until the next call. want_attr: also fill in size and
 * mtime, if they are known without the network. */
int ps_dir_read(struct ps_dir *dir, uint64_t pos, bool want_attr, const char **ret_name,
        struct ps_attr *ret_attr) PS_MUST_USE;
void ps_dir_close(struct ps_dir *dir);

struct ps_node_info {
	char *url;  /* without credentials; NULL for a directory */
	char *etag; /* "" if none */
	uint64_t size, cached_nbytes;
	const char *state; /* "remote", "partial", "cached" */
	bool pinned;       /* its URL is pinned, whatever the version */
	/* coding of a shard that is shown decoded: "zstd", "gzip"; "": not decoded */
	const char *encoding;
	char *error; /* the last failure of this object, "" if none ... */
	int errnum;  /* ... and its errno, as the origin gave it, 0 if none */
};
/* Blocks on the index. -ENOENT: no such node. */
int ps_node_info_get(struct ps_dataset *dataset, uint64_t node, struct ps_node_info *ret);
void ps_node_info_fini(struct ps_node_info *info);

#endif
