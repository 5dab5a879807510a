/* The names of a dataset: attach a source, list it again, look names up. Part of the cache's facade: what
 * cache.h says of ownership, threads, blocking and errors holds here, too. */
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

#define PS_GRANT_TTL_OPEN_MS 1 /* of ps_cache_options.grant_ttl_ms: no longer than an open */

struct ps_dataset_options {
	struct ps_origin_options origin;
	uint64_t revalidate_ms; /* an open confirms the version at the origin if the last confirmation is
	                           older; 0: 1 h; UINT64_MAX: never */
	bool raw;               /* compressed shards are shown as they are, not as what they hold */
	/* which files are shown: listing/listing.h; NULL-terminated, or NULL */
	const char *const *include, *const *exclude;
	const _Atomic bool *cancelled; /* set: the attach ends soon, with ECANCELED; NULL: it cannot be */
	/* Now and then while the attach waits for a listing, by its thread: the number of files so far. NULL:
	 * no calls. */
	void (*listed)(void *arg, const char *source, uint64_t nfiles);
	void *listed_arg;
};

/* A source that is attached with the same credentials already is shared: the same dataset, with the options
 * of the first, until the last detach; it is listed again, unless that is under way, and the listing is
 * waited for as below. Otherwise: lists the source and stores the names; of a bucket that is attached with
 * other credentials, one page shows that these may list it, too. With a stored listing of the same source and
 * credentials (of a bucket: and a page of it) it waits at most PS_ATTACH_WAIT_MS for a fresh one (of very
 * many names PS_ATTACH_WAIT_MANY_MS: listing them takes longer than either), then goes on with the stored one
 * while the listing continues in the background, also when the origin is gone. Errors: a listing that fails
 * and none is stored; an empty one (ENOENT); a first object that is not there or refused. Blocks on network
 * and disk. */
#define PS_ATTACH_WAIT_MS 600
#define PS_ATTACH_WAIT_MANY_MS 100
#define PS_ATTACH_MANY 50000
int ps_dataset_attach(struct ps_cache *cache, const char *source, const struct ps_dataset_options *options,
        struct ps_dataset **ret, struct ps_error *err) PS_MUST_USE;
void ps_dataset_detach(struct ps_dataset *dataset);
/* The same text for sources that an attach would share: equal names, equal access. -EINVAL, -ENOMEM and a
 * text. Reads files of credentials; asks no origin. */
#define PS_DATASET_KEY_LEN 65
int ps_dataset_key(struct ps_cache *cache, const char *source, const struct ps_dataset_options *options,
        char ret[static PS_DATASET_KEY_LEN], struct ps_error *err) PS_MUST_USE;
uint64_t ps_dataset_root(const struct ps_dataset *dataset);
const char *ps_dataset_source(const struct ps_dataset *dataset); /* canonical, without secrets */
uint64_t ps_dataset_revalidate_ms(const struct ps_dataset *dataset);
/* {"source", "include", "exclude", "unmatched", "files", "cached_bytes", "listed_at", "next_listing_at",
 * "refresh_seconds", "listing", "listing_error", "offline", "opens", "missing", "missing_names",
 * "versionless"}; the caller owns it.
 * cached_bytes: ps_store_dataset_nbytes(), which mounts of the same source share.
 * next_listing_at: by ps_watch.refresh_ms, null if no watch has one; refresh_seconds: the smallest of them.
 * offline: the origin does not answer, and versions are taken as they are known.
 * missing: names of a brace expansion or a manifest that the origin turned out not to have, and the first few
 * of them.
 * versionless: ps_dataset_versionless(). unmatched: the patterns of ps_dataset_unmatched(). */
json_t *ps_dataset_stats(struct ps_dataset *dataset);

/* Listing again ------------------------------------------------------------------------------------------ */

/* Receives the names that have another node, are new, or are gone: after a listing, once the index has them.
 * The caller's until unwatch. */
struct ps_watch {
	struct ps_dataset *dataset;
	/* By a thread of the cache, with no lock held; may block for as long as a lookup takes. */
	void (*changed)(void *arg, uint64_t parent, const char *name);
	void *arg;
	/* The source is listed again when the last complete listing is so old (at random up to a tenth less);
	 * of several watches of the same names the smallest counts. Listings that fail are repeated later and
	 * later, up to an hour if this is less. 0: it is listed on request alone. */
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
/* Afterwards nothing is called back; refreshes of this watch are ended first (ECANCELED). Blocks on
 * `changed`. */
void ps_dataset_unwatch(struct ps_watch *watch);

struct ps_refreshed {
	uint64_t nfiles, nadded, nvanished;
};
/* One request; the caller's until done. */
struct ps_refresh {
	struct ps_watch *watch;
	/* Once, after all watches of these names have been called. An error: the names are what they were,
	 * and what the listing has found before it failed. */
	void (*done)(struct ps_refresh *refresh, int errnum, const struct ps_refreshed *result);
	void *arg;
	struct {
		struct ps_list link;
		uint64_t number;
	} priv;
};
/* Lists the source again; requests made before that listing begins share it. Names vanish by a complete
 * listing only. Open handles are not concerned. Never blocks. */
void ps_dataset_refresh(struct ps_refresh *refresh);

/* Names of the list that the origin turned out not to have, or that it did not answer for, as far as they are
 * known; waits at most wait_ms until all have been asked for, but for no listing that goes on in the
 * background; UINT64_MAX: as long as it takes. Returns their number (at most INT_MAX) with one line of text,
 * 0 if there are none, -EAGAIN: none so far, but some were not asked for yet; -ECANCELED: *cancelled, which
 * may be NULL. Blocks on the network for as long as it may wait. */
int ps_dataset_missing(struct ps_dataset *dataset, uint64_t wait_ms, const _Atomic bool *cancelled,
        char ret_text[static PS_ERROR_TEXT_LEN]) PS_MUST_USE;

/* A file of it has neither ETag nor Last-Modified, as far as the origin was asked. */
bool ps_dataset_versionless(const struct ps_dataset *dataset);
#define PS_VERSIONLESS_TEXT                                                                                \
	"the server gives no versions (neither ETag nor Last-Modified): that a file has changed there is " \
	"seen only in its "                                                                                \
	"size and its first 64 KiB"

/* Patterns to include or exclude that no name of a whole listing has matched; false: none, or none was listed
 * yet. */
bool ps_dataset_unmatched(const struct ps_dataset *dataset, char ret_text[static PS_ERROR_TEXT_LEN]);

struct ps_attr {
	uint64_t node; /* names this (object, version) for ever */
	uint64_t ino;  /* for st_ino; the same for all versions of a name */
	bool is_dir;
	/* Size and mtime are known. False: from ps_dir_read(), or of a compressed shard that cannot be
	 * decoded: it has a name and the reason in ps_node_info.error, but cannot be opened; its size is
	 * 0. */
	bool complete_attr;
	uint64_t size;
	int64_t mtime_s;
};

/* May need a HEAD if the listing gave no size; all waiters of one name share it. */
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
	/* of the shard, whose contents are shown: "zstd", "gzip"; "": it is shown as it is */
	const char *encoding;
	char *error; /* the last failure of this object, "" if none */
};
/* Blocks on the index. -ENOENT: no such node. */
int ps_node_info_get(struct ps_dataset *dataset, uint64_t node, struct ps_node_info *ret);
void ps_node_info_fini(struct ps_node_info *info);

#endif
