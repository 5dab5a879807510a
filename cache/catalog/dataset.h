/* A dataset as handles and prefetch see it, who start and read its files; fs/ sees catalog.h. So there are
 * two headers for others. catalog_private.h is the folder's own.
 *
 * Files, from the top: registry.c (datasets by name), attach.c (threads and refreshes of one), lookup.c
 * (names, nodes, folders), revalidation.c (HEADs), listing_merge.c, view.c (what a file shows), catalog.c
 * (names of a source, grants).
 *
 * A dataset has two threads. One lists the source, merges the listing into the index (listing_merge.c) and
 * asks for sizes the listing did not give (a sweep of HEADs); a listing may take minutes, so another one
 * keeps time for probes: HEADs on behalf of lookups and opens.
 *
 * Names and access are two things. A catalog is the names of a source, with their versions: rows of the
 * index, shared by all who list the same; it alone decides what stands for a name. A dataset is a catalog
 * seen with one access: its origin signs with the credentials of its mounts and of no other. Before a dataset
 * shows names that another access has listed, the origin has shown it one page of them. One dataset of a
 * catalog at a time lists it as a whole.
 *
 *   mount ─▶ dataset (catalog, access): origin, probes, read-ahead ─▶ catalog: names, versions
 *   mount ─▶ dataset (same catalog, other access) ──────────────────────┘
 *
 * When a version counts as confirmed: by a listing that gave size and version, or by a HEAD, since this
 * attach and (for an open) within the revalidation time. A read that meets another version, or none, makes it
 * doubtful: the next open asks.
 *
 * Locks: cache.lock, dataset.lock and catalog.lock are leaves. catalog.names_lock is held over "read the row,
 * decide, commit" so that a listing and a HEAD cannot both give a name its next version; it is held over
 * writes to the index, never over the network. What a listing has in its batch is committed by the next one
 * to decide (ps_merge_flush()).
 */
#ifndef PS_CATALOG_DATASET_H
#define PS_CATALOG_DATASET_H

#include <stdatomic.h>

#include "base/list.h"
#include "catalog/catalog.h"
#include "decompress/decompress.h"
#include "fetch/fill.h"
#include "index/index.h"

#define PS_DATASET_ERRORS 64 /* last failures kept for user.penstock.error */
#define PS_DATASET_MISSING 8 /* names reported of those that are missing */
#define PS_DATASET_UNANSWERED \
	256 /* objects whose revalidation failed; one that shares a place is asked again */

/* What starts files before they are opened stands above the catalog (prefetch/): made and ended with a
 * dataset. */
struct ps_prefetch_ops {
	int (*start)(struct ps_dataset *ds); /* sets ds->sequence and ds->plan_ahead; -ENOMEM */
	/* Both also after a failed start, in this order: no more lookups for plans; takes back what was
	 * begun, before ps_fill_drain(). */
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
	pthread_mutex_t lock;        /* what follows */
	pthread_cond_t cond;         /* an attach or a detach has ended; monotonic clock */
	struct ps_list attached;     /* registry.c */
	struct ps_list catalogs;     /* catalog.c */
	pthread_mutex_t grants_lock; /* dataset.h; leaf but for the index */
};

struct ps_catalog {
	struct ps_list link; /* cache.catalogs; with nrefs under cache.lock */
	unsigned nrefs;
	struct ps_cache *cache;
	struct ps_index *index;

	pthread_mutex_t names_lock; /* protects the index rows of this catalog, and: */
	bool loaded;
	struct ps_merge *merge; /* the listing under way, or NULL */
	/* Nodes superseded since it was loaded, and those that a later listing made: reported to watches in
	 * this order. A superseded node is deleted once no handle and no kernel names it. */
	uint64_t *changed;
	size_t nchanged, changed_cap;

	char route[PS_ID_HEX_LEN + 1]; /* of all its datasets' origins; "": the usual one */
	/* Once loaded, constant but for listed_ms, nfiles and generation of the row, and what follows
	 * (lock) */
	struct ps_dataset_row row;
	/* when a user last had something evicted, to have the origin's of now; 0: never */
	_Atomic int64_t evicted_ms;
	int64_t attached_ms; /* since when the origin is asked for what it has now: ps_catalog_attached() */
	pthread_mutex_t lock;
	const struct ps_dataset *lister; /* it lists all of it; NULL: none does */
	/* listings of all of it: begun since it was loaded; the last of these that was complete */
	uint64_t nbegun, nlisted;
	uint64_t nadded, nvanished; /* files, by that one */
	_Atomic uint64_t listed_ns; /* when that ended; monotonic */
	struct ps_list watches;
	pthread_cond_t watch_cond; /* no callback of a watch is under way any more */
	unsigned nsweeping;        /* datasets that list, or ask for what a listing did not give */
	uint64_t nunknown;         /* names that they got no answer for */
	/* names of the list that the origin does not have; the first of them, in order: */
	uint64_t nmissing;
	char *missing[PS_DATASET_MISSING];
	_Atomic bool versionless; /* a file was met of which the origin gives no version */
};

struct ps_dataset {
	struct ps_cache *cache;
	struct ps_index *index;
	struct ps_origin *origin;
	struct ps_listing_filter *filter; /* the origin's */
	atomic_bool told_unmatched;
	struct ps_next_shard *sequence;
	struct ps_plan_ahead *plan_ahead;
	struct ps_catalog *catalog;
	struct ps_id access; /* keyed: whose credentials the origin has */
	bool anonymous;      /* it has none */
	uint64_t revalidate_ms;
	bool raw;
	/* before shown_names: the names that others have listed with the first that this access is shown */
	bool compares;
	_Atomic bool shown_names; /* the origin has shown this access at least one name of the catalog */

	pthread_t thread, prober;
	bool thread_started, prober_started;
	_Atomic bool stop;
	_Atomic uint64_t nopens;
	_Atomic uint64_t nlisted; /* files of the listing under way */
	_Atomic bool asked_again; /* another listing is to begin: the sweep ends */
	_Atomic bool offline;     /* revalidation.c; when the origin is asked again, and how often it was */
	_Atomic uint64_t offline_ask_ns;
	_Atomic unsigned offline_tries;

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t cond;  /* asked, ended, or probes changed; monotonic clock */
	/* Listings by number: the last that was asked for (one more than begun, at most), begun, ended. */
	uint64_t asked, begun, ended;
	uint64_t since; /* of the catalog's listings, later ones are new enough for what was asked last */
	struct ps_list refreshes;
	uint64_t refresh_ms;      /* the smallest of its watches; 0: none has one */
	unsigned nfailed;         /* listings, one after another */
	uint64_t nmissing_logged; /* the dataset thread's */
	uint64_t ended_ns;        /* when the last ended */
	uint16_t jitter;          /* of the next one's time */
	bool listing_ok;          /* the last that ended */
	struct ps_error listing_error;
	uint64_t first_unsized; /* a node of the listing without a size in it; 0: none */
	struct ps_list probes;  /* under way, or waiting for another attempt */
	unsigned nprobes;       /* on the list, and being ended */
	unsigned nsweep;        /* of them on behalf of the sweep */
	struct {
		uint64_t node;
		char *text;
	} errors[PS_DATASET_ERRORS];
	unsigned next_error;
	struct {
		uint64_t node, until_ns; /* it is not asked about before: the last time failed, ... */
		int errnum;              /* ... with this, if nothing is known of it */
	} unanswered[PS_DATASET_UNANSWERED];
	struct {
		uint64_t node, until_ns; /* nothing is asked for ahead before */
	} asked_ahead[PS_DATASET_UNANSWERED];
};

/* Remembers a failure of a node for user.penstock.error. */
void ps_dataset_note_error(struct ps_dataset *dataset, uint64_t node, const char *text);

/* lookup.c */
/* This node was shown with a size that turned out wrong. Blocks on the index. */
bool ps_view_disproved(struct ps_dataset *dataset, const struct ps_node_row *row);
/* Finds out the size of a compressed shard, then calls fn with the attributes. */
void ps_view_ask(struct ps_dataset *dataset, const struct ps_node_row *row, ps_attr_fn fn, void *arg);
/* The id of what is shown of a file that is no compressed shard. Its size is known. */
void ps_view_raw_id(const struct ps_dataset *dataset, const struct ps_node_row *row, struct ps_id *ret);
/* What of the file is in the cache. */
uint64_t ps_view_cached_nbytes(struct ps_dataset *dataset, const struct ps_node_row *row);
/* The object that is shown; -EAGAIN: its size is not known yet. With `file`, also the engine's file of it:
 * then that has to be put, not the object. granted: its readers may have what is cached. */
int ps_view_object(struct ps_dataset *dataset, const struct ps_node_row *row, bool opened,
        struct ps_object **ret) PS_MUST_USE;
int ps_view_file(struct ps_dataset *dataset, const struct ps_node_row *row, bool opened, bool granted,
        struct ps_fill_file **ret) PS_MUST_USE;
/* Is the version of this file confirmed? max_age_ms UINT64_MAX: since the attach is enough. */
bool ps_dataset_confirmed(struct ps_dataset *dataset, const struct ps_node_row *row, uint64_t max_age_ms);
/* False: nothing of the file is cached, and the origin's last word on its version is old, or older than a
 * user's evict. Better ask than have the first read find another version, where it is too late to take it.
 * Blocks on the index. */
bool ps_dataset_settled(struct ps_dataset *dataset, const struct ps_node_row *row);
#define PS_CHECKED_DOUBTFUL 1 /* a row's checked_ms: not confirmed, whatever a listing said */
/* From now on the version of this node needs confirming. Blocks on the index. */
void ps_dataset_doubt(struct ps_dataset *dataset, uint64_t node);
/* Gives the name a new node of the same version, so that the kernel's pages of the old one are not taken for
 * it. -ESTALE: another node stands for the name already. Blocks on the index. */
int ps_dataset_renew(struct ps_dataset *dataset, const struct ps_node_row *row) PS_MUST_USE;

/* revalidation.c */
/* Asks the origin for size and version of a file row, as ps_revalidate() (catalog_private.h) does, in a way
 * that gives a grant if this access may read the file, and takes it if the origin says anything else: by a
 * GET of one byte where a HEAD says nothing of that. */
void ps_revalidate_grant(struct ps_dataset *dataset, const struct ps_node_row *row, ps_attr_fn fn, void *arg);
/* The same without a waiter, ahead of an open that will want it. */
void ps_revalidate_grant_ahead(struct ps_dataset *dataset, const struct ps_node_row *row);
/* Asks without a waiter, as an open would, whether the version of a planned file still is the origin's: few
 * at once, and not while the origin does not answer. Blocks on the index. */
void ps_revalidate_version_ahead(struct ps_dataset *dataset, const struct ps_node_row *row);
/* Grants ------------------------------------------------------------------------------------------------- */

/* Grants: that an access may read an object version (or list a catalog), as the origin has shown by an answer
 * of 2xx under its credentials. Cached bytes are served to accesses that have one; a listing grants no bytes.
 *
 *            2xx                        --grant-ttl is over, or the credential's own time
 *   NONE ─────────▶ VALID ◀──────────────────────────────────────────────▶ OLD
 *     ▲               │ any other answer about this object (401, 403 ..)    │ the same
 *     └───────────────┴─────────────────────────────────────────────────────┘
 *
 * NONE and OLD are asked at the origin when they are needed (revalidation.c). OLD holds while the origin
 * gives no answer; NONE does not. Kept in the index, by keyed hashes of the access and of the version.
 *
 * Threads: any. Locks: cache.grants_lock, held over reading and writing one row of the index. Blocks: on the
 * index. */

enum ps_grant { PS_GRANT_NONE, PS_GRANT_OLD, PS_GRANT_VALID };

/* VALID where the origin needs none, and for a file that has no bytes. */
enum ps_grant ps_grant_of_row(struct ps_dataset *dataset, const struct ps_node_row *row);
#endif
