/* The inside of a dataset, for the folders that open and read its files (handles and prefetch). fs/ uses
 * catalog.h. catalog_private.h is private to this folder.
 *
 * Files, from the top: registry.c (datasets by name), attach.c (attach and detach of one), dataset_stats.c,
 * listing_thread.c (its threads: listings, refreshes), lookup.c (names, nodes, folders), revalidation.c
 * (HEADs), listing_merge.c, view.c (what a file shows), catalog.c (names of a source, grants).
 *
 * A dataset has two threads. One lists the source, merges the listing into the index (listing_merge.c) and
 * requests the sizes that the listing did not give (a sweep of HEADs). A listing may take minutes, so the
 * other thread handles the deadlines and retries of probes: HEADs for lookups and opens.
 *
 * Names and access are two things. A catalog is the names of a source with their versions: rows of the
 * index, shared by all datasets of the same names. Only the catalog decides which node a name has. A
 * dataset is a catalog seen with one access: its origin signs only with the credentials of its own mounts.
 * Before a dataset shows names that another access has listed, the origin has shown this access one page of
 * them. Only one dataset of a catalog lists it as a whole at a time.
 *
 *   mount ─▶ dataset (catalog, access): origin, probes, read-ahead ─▶ catalog: names, versions
 *   mount ─▶ dataset (same catalog, other access) ──────────────────────┘
 *
 * A version counts as confirmed by a listing that gave size and version, or by a HEAD, since this attach
 * and (for an open) within the revalidation time. A read that meets another version, or no object, makes
 * the version doubtful: the next open asks the origin.
 *
 * Locks: cache.lock, dataset.lock and catalog.lock are leaves, but ps_cache_wake() takes each dataset.lock
 * under cache.lock. catalog.names_lock is held over "read the
 * row, decide, commit" so that a listing and a HEAD cannot both give a name its next version; it is held
 * over writes to the index, never over the network. Code that decides outside of a listing first commits
 * the batch of the listing under way (ps_merge_flush()). */
#ifndef PS_CATALOG_DATASET_H
#define PS_CATALOG_DATASET_H

#include <stdatomic.h>

#include "base/figures.h"
#include "base/list.h"
#include "catalog/catalog.h"
#include "decompress/decompress.h"
#include "fetch/fill.h"
#include "index/index.h"

#define PS_DATASET_ERRORS 64       /* last failures kept for user.penstock.error */
#define PS_DATASET_ALTERNATIONS 64 /* slots for names that change; a name replaces another one in its slot */
#define PS_DATASET_MISSING 8       /* missing names that are reported */
#define PS_DATASET_UNANSWERED \
	256 /* slots for nodes whose revalidation failed; a node replaces another one in its slot */

/* Prefetch is above the catalog (prefetch/), but starts and ends with a dataset. */
struct ps_prefetch_ops {
	int (*start)(struct ps_dataset *ds); /* sets ds->sequence and ds->plan_ahead; -ENOMEM */
	/* Both are also called after a failed start, in this order. stop_plans ends lookups for plans; stop
	 * cancels the demands of prefetch, before ps_fill_drain(). */
	void (*stop_plans)(struct ps_dataset *ds);
	void (*stop)(struct ps_dataset *ds);
};
struct ps_next_shard;
struct ps_plan_ahead;

struct ps_cache {
	const struct ps_prefetch_ops *prefetch;
	struct ps_store *store;
	struct ps_fill *fill;
	struct ps_decompress *decompress;
	int64_t opened_s;
	uint64_t grant_ttl_ms;
	pthread_mutex_t lock;        /* protects what follows */
	pthread_cond_t cond;         /* an attach or a detach has ended; monotonic clock */
	struct ps_list attached;     /* registry.c */
	struct ps_list catalogs;     /* catalog.c */
	struct ps_list datasets;     /* all, from the beginning of their attach to the end of their detach */
	pthread_mutex_t grants_lock; /* for rows of grants; only the index's locks are taken under it */
};

struct ps_catalog {
	struct ps_list link; /* in cache.catalogs; link and nrefs are under cache.lock */
	unsigned nrefs;
	struct ps_cache *cache;
	struct ps_index *index;

	pthread_mutex_t tables_lock; /* held while a table of members is stored */
	pthread_mutex_t names_lock;  /* protects the index rows of this catalog, and: */
	bool loaded;
	struct ps_merge *merge; /* the listing under way, or NULL */
	/* Nodes that were superseded since the catalog was loaded, and those that a later listing made, in
	 * the order in which watches get them. The rows of superseded nodes are deleted with the catalog's
	 * last dataset: until then a handle or the kernel may use them. */
	uint64_t *changed;
	size_t nchanged, changed_cap;

	char route[PS_ID_HEX_LEN + 1]; /* the route (origin/origin.h) of its datasets; "": the usual one */
	/* Constant once loaded, except for the row's listed_ms, nfiles and generation, which `lock`
	 * protects */
	struct ps_dataset_row row;
	/* when a user last had an object evicted, which means that the origin's present version is wanted;
	 * 0: never */
	_Atomic int64_t evicted_ms;
	int64_t attached_ms; /* confirmations since then count: ps_catalog_attached() */
	pthread_mutex_t lock;
	const struct ps_dataset *lister; /* the dataset that lists the whole catalog; NULL: none */
	/* listings of the whole catalog: number begun since it was loaded; number of the last complete one */
	uint64_t nbegun, nlisted;
	uint64_t nadded, nvanished; /* files, by the last complete listing */
	_Atomic uint64_t listed_ns; /* when that listing ended; monotonic clock */
	struct ps_list watches;
	pthread_cond_t watch_cond; /* a callback of a watch has returned */
	unsigned nsweeping;        /* datasets that list, or request sizes that a listing did not give */
	uint64_t nunknown;         /* names for which that sweep got an error other than ENOENT */
	/* nmissing: number of listed names that the origin does not have; missing: the first of them, in
	 * name order */
	uint64_t nmissing;
	char *missing[PS_DATASET_MISSING];
	_Atomic bool versionless; /* the origin gave no version for a file */
};

struct ps_dataset {
	struct ps_cache *cache;
	struct ps_list link; /* in cache.datasets, under cache.lock */
	struct ps_index *index;
	struct ps_origin *origin;
	struct ps_listing_filter *filter; /* the origin's */
	atomic_bool told_unmatched;
	struct ps_next_shard *sequence;
	struct ps_plan_ahead *plan_ahead;
	struct ps_catalog *catalog;
	struct ps_id access; /* keyed hash of the origin's credentials */
	bool anonymous;      /* the origin has no credentials */
	uint64_t revalidate_ms;
	bool raw;
	char *whole; /* the option --whole, or NULL */
	char route_text[PS_ROUTE_TEXT_LEN];
	/* sums over its files, and when they are counted again; under lock */
	struct ps_counted {
		uint64_t nbytes, again_ns;
	} shown, cached;
	bool by_size; /* see ps_origin_options */
	enum ps_checksums checksums;
	/* before shown_names is set: compare the first names shown to this access with the catalog's */
	bool compares;
	pthread_mutex_t merge_lock;     /* held while the merged tree is made (members/merge.c) */
	_Atomic uint64_t merged_oldest; /* the top folder of the oldest tree that is kept; 0: not known */
	_Atomic bool shown_names; /* the origin has shown this access at least one name of the catalog */

	pthread_t thread, prober;
	bool thread_started, prober_started;
	_Atomic bool stop;
	struct ps_mount_counters counters;
	_Atomic uint64_t nlisted; /* files of the listing under way */
	_Atomic bool asked_again; /* another listing is due: the sweep ends */
	/* revalidation.c. offline: the origin does not answer; offline_ask_ns: when it is asked again;
	 * offline_tries: how many requests it has left unanswered since its last answer */
	_Atomic bool offline;
	_Atomic uint64_t offline_ask_ns;
	_Atomic unsigned offline_tries;

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t cond;  /* asked, ended, nwakes, or probes changed; monotonic clock */
	uint64_t nwakes;      /* calls of ps_cache_wake() */
	/* Numbers of listings: the last one requested (at most one more than begun), begun, ended. */
	uint64_t asked, begun, ended;
	/* attached with `resumes`: the first listing waits for the first watch, which must see its changes */
	bool lists_when_watched, watched;
	uint64_t since; /* listings of the catalog after this number satisfy the last request */
	struct ps_list refreshes;
	uint64_t refresh_ms;      /* smallest interval of its watches; 0: none */
	unsigned nfailed;         /* failed listings in a row */
	uint64_t nmissing_logged; /* used by the dataset's thread only */
	uint64_t ended_ns;        /* when the last listing ended */
	uint16_t jitter;          /* random part of the next listing's time */
	bool listing_ok;          /* the last listing succeeded */
	struct ps_error listing_error;
	uint64_t first_unsized; /* first node without a size in the listing; 0: none */
	struct ps_list probes;  /* under way, or waiting for another attempt */
	unsigned nprobes;       /* probes on the list, and those that are ending */
	unsigned nsweep;        /* how many of nprobes belong to the sweep */
	struct {
		uint64_t node;
		int errnum;
		char *text;
	} errors[PS_DATASET_ERRORS];
	unsigned next_error;
	/* Names whose versions come and go: see note_version(). Under names_lock of the catalog. */
	struct ps_alternation {
		uint64_t url;    /* a hash; 0: empty */
		uint64_t before; /* a hash of the version before the present one */
		unsigned times;  /* in a row, the version before came back */
		uint64_t at_ns;  /* the last time */
		char *text;      /* why its files fail with ESTALE; NULL: it does not alternate */
	} alternations[PS_DATASET_ALTERNATIONS];
	struct {
		uint64_t node, until_ns; /* not asked for before this time, because the last attempt failed */
		int errnum;              /* error of that attempt, if no version is known */
	} unanswered[PS_DATASET_UNANSWERED];
	struct {
		uint64_t node, until_ns; /* no request ahead of an open before this time */
	} asked_ahead[PS_DATASET_UNANSWERED];
	/* files that were fetched as a whole for scattered readers, and what was cached of them then */
	struct ps_noted_whole {
		uint64_t node, nbytes;
	} wholes[PS_DATASET_UNANSWERED];
};

/* Remembers a failure of a node for user.penstock.error and .errno. */
void ps_dataset_note_error(struct ps_dataset *dataset, uint64_t node, int errnum, const char *text);

/* view.c and lookup.c */
/* True if this node was shown with a size that was wrong. Blocks on the index. */
bool ps_view_disproved(struct ps_dataset *dataset, const struct ps_node_row *row);
/* Finds the size of a compressed shard, then calls fn with the attributes. shows: a shard that cannot be decoded
 * gets incomplete attributes instead of an error. */
void ps_view_ask(
        struct ps_dataset *dataset, const struct ps_node_row *row, bool shows, ps_attr_fn fn, void *arg);
/* The id of the object of a file that is not a decoded shard. Its size is known. */
void ps_view_raw_id(const struct ps_dataset *dataset, const struct ps_node_row *row, struct ps_id *ret);
/* Cached bytes of the file. */
uint64_t ps_view_cached_nbytes(struct ps_dataset *dataset, const struct ps_node_row *row);
/* ps_view_object() gives the shown object; -EAGAIN: its size is not known yet. ps_view_file() gives the
 * fill engine's file of that object; the caller puts the file, and has no reference of the object. granted:
 * readers of the file may have cached bytes. */
int ps_view_object(struct ps_dataset *dataset, const struct ps_node_row *row, bool opened,
        struct ps_object **ret) PS_MUST_USE;
int ps_view_file(struct ps_dataset *dataset, const struct ps_node_row *row, bool opened, bool granted,
        struct ps_fill_file **ret) PS_MUST_USE;
/* True if the version of this file is confirmed. max_age_ms UINT64_MAX: any time since the attach is
 * enough. */
bool ps_dataset_confirmed(struct ps_dataset *dataset, const struct ps_node_row *row, uint64_t max_age_ms);
/* False: no byte of the file is cached, and its version was last confirmed long ago, or before a user's
 * evict. Then the open has to ask the origin for the version: a change that only the first read found would
 * come too late, since an open file cannot switch to another version. Blocks on the index. */
bool ps_dataset_settled(struct ps_dataset *dataset, const struct ps_node_row *row);
#define PS_CHECKED_DOUBTFUL 1 /* a row's checked_ms: not confirmed, whatever a listing has */
/* From now on the version of this node must be confirmed. Blocks on the index. */
void ps_dataset_doubt(struct ps_dataset *dataset, uint64_t node);
/* Gives the name a new node of the same version, so that the kernel does not use its pages of the old node.
 * -ESTALE: the name already has another node. Blocks on the index. */
int ps_dataset_renew(struct ps_dataset *dataset, const struct ps_node_row *row) PS_MUST_USE;
/* Fills in ret if the versions of the file at this URL alternate; leaves it otherwise. */
void ps_dataset_alternation(struct ps_dataset *dataset, const char *url, char *ret, size_t cap);

/* revalidation.c */
/* Asks the origin for size and version of a file row, and calls fn with the name's node: the same one (its
 * version is confirmed, or its size is known now), a new one, or ENOENT. Probes of one node are shared. If
 * the origin does not answer, and `row` has a known version, fn gets that one. Never blocks.
 *
 * with_grant: the grant is decided, too. An answer of 2xx gives this access a grant for the file, a refusal (401,
 * 403 ...) revokes it. If a HEAD does not prove that the access may read the file, a GET of one byte is sent; and
 * the index is read. */
void ps_revalidate(
        struct ps_dataset *dataset, const struct ps_node_row *row, bool with_grant, ps_attr_fn fn, void *arg);
/* Asks for the grant without a waiter, ahead of an expected open. */
void ps_revalidate_grant_ahead(struct ps_dataset *dataset, const struct ps_node_row *row);
/* Revalidates the version of a planned file as an open would, without a waiter. Sends few requests at once;
 * while the origin does not answer, only the background request that is due. Blocks on the index. */
void ps_revalidate_version_ahead(struct ps_dataset *dataset, const struct ps_node_row *row);

/* Grants ------------------------------------------------------------------------------------------------- */

/* A grant is the proof that an access may read an object version (or list a catalog): an answer of 2xx to a
 * request with its credentials. Cached bytes are served only to accesses with a grant. A listing gives no
 * grant for bytes.
 *
 *            2xx                        --grant-ttl is over, or the credential's own time
 *   NONE ─────────▶ VALID ◀──────────────────────────────────────────────▶ OLD
 *     ▲               │ any other answer about this object (401, 403 ..)    │ the same
 *     └───────────────┴─────────────────────────────────────────────────────┘
 *
 * When an open needs a grant that is NONE or OLD, the origin is asked (revalidation.c). While the origin
 * does not answer, OLD suffices and NONE does not. Grants are kept in the index, by keyed hashes of the
 * access and of the version.
 *
 * Threads: any. Locks: cache.grants_lock, held while one row of the index is read and written. Blocks on
 * the index. */

enum ps_grant { PS_GRANT_NONE, PS_GRANT_OLD, PS_GRANT_VALID };

/* VALID if the origin needs no grants, and for an empty file. */
enum ps_grant ps_grant_of_row(struct ps_dataset *dataset, const struct ps_node_row *row);
#endif
