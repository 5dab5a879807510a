/* What the files of the catalog share beyond dataset.h. */
#ifndef PS_CATALOG_CATALOG_PRIVATE_H
#define PS_CATALOG_CATALOG_PRIVATE_H

#include "catalog/dataset.h"

/* Which names, and whose requests. */
struct ps_dataset_id {
	struct ps_id catalog, access;
	bool anonymous;
	/* A site's own store may have a bucket of this name for each of its tenants: who is shown other
	 * names than those of the catalog (-EREMCHG of a listing) has one of its own. */
	bool may_be_another;
	struct ps_id own_catalog;
	char route[PS_ID_HEX_LEN + 1]; /* part of both; "": the usual one */
};

/* attach.c: what ps_dataset_attach() does the first time, and ps_dataset_detach() the last */
int ps_dataset_id(struct ps_store *store, const char *canonical, const char *source,
        const struct ps_dataset_options *options, struct ps_dataset_id *ret) PS_MUST_USE;
int ps_dataset_new(struct ps_cache *cache, const char *source, const char *canonical,
        const struct ps_dataset_id *id, const struct ps_dataset_options *options, struct ps_dataset **ret,
        struct ps_error *err) PS_MUST_USE;
/* For one more mount: lists again, or joins the listing under way, and waits for it as an attach does. */
int ps_dataset_rejoin(struct ps_dataset *dataset, const struct ps_dataset_options *options,
        struct ps_error *err) PS_MUST_USE;
void ps_dataset_free(struct ps_dataset *dataset);

/* catalog.c */
/* The catalog of this id, with one more reference. Blocks on the index. */
int ps_catalog_get(struct ps_cache *cache, const struct ps_dataset_id *id, const char *source,
        struct ps_catalog **ret) PS_MUST_USE;
void ps_catalog_put(struct ps_catalog *catalog);
/* A time without meaning: the clock of the day was set back since. */
bool ps_catalog_is_ahead(int64_t when_ms, int64_t now_ms);
/* attached_ms, which goes back with the clock: nothing would be confirmed until it has caught up. With the
 * lock. */
int64_t ps_catalog_attached(struct ps_catalog *catalog, int64_t now_ms);
/* Does it have this file, in this very version? Blocks on the index. */
bool ps_catalog_has(struct ps_catalog *catalog, const struct ps_listed *listed);
/* How many listings of all of it have begun; with `joins`, one that is under way does not count. */
uint64_t ps_catalog_listings(struct ps_catalog *catalog, bool joins);
/* True: the caller lists the whole of it, and then calls end. False: *ret_listed, one that began after that
 * many was complete; or another dataset is at it. */
bool ps_catalog_list_begin(
        struct ps_catalog *catalog, const struct ps_dataset *dataset, uint64_t since, bool *ret_listed);
/* Reports to the watches what has changed, complete or not. Blocks on the index and on the watches. */
void ps_catalog_list_end(struct ps_catalog *catalog, bool listed);
/* The node has been superseded: its row is deleted with the catalog's last dataset. Or it stands for a new
 * name. names_lock is held. */
void ps_catalog_changed(struct ps_catalog *catalog, uint64_t node);

/* What the origin said of a file, now or earlier: the first file without a version is logged. */
void ps_catalog_note_remote(struct ps_catalog *catalog, const struct ps_remote *remote);

/* A new listing: what was missing of the one before does not count. */
void ps_catalog_none_missing(struct ps_catalog *catalog);

/* What its watches want of it has changed. */
void ps_dataset_set_refresh(struct ps_dataset *dataset, uint64_t refresh_ms);
/* Answers them; no lock is held. */
void ps_refreshes_end(struct ps_list *refreshes, int errnum, const struct ps_refreshed *result);

/* view.c */
/* The size that is shown; PS_SIZE_UNKNOWN: of a compressed shard, not found out yet. Blocks on the index. */
uint64_t ps_view_size(struct ps_dataset *dataset, const struct ps_node_row *row);
/* As ps_view_ask() for who only looks at it: what cannot be decoded has attributes that are not complete. */
void ps_view_show(struct ps_dataset *dataset, const struct ps_node_row *row, ps_attr_fn fn, void *arg);
void ps_attr_of_row(struct ps_dataset *dataset, const struct ps_node_row *row, struct ps_attr *ret_attr);

/* revalidation.c */
/* Asks the origin for size and version of a file row and calls fn with what stands for the name now: the same
 * node (its version confirmed or its size learned), a new node, or ENOENT. Probes of one node are shared. If
 * the origin does not answer and `row` has a known version, that is given. Blocks never. */
void ps_revalidate(struct ps_dataset *dataset, const struct ps_node_row *row, ps_attr_fn fn, void *arg);
/* Retries and deadlines that are due; returns when to call again. From the dataset's thread. */
uint64_t ps_revalidate_tick(struct ps_dataset *dataset, uint64_t now_ns);
/* Ends all probes with ECANCELED and waits for those at the origin. */
void ps_revalidate_drain(struct ps_dataset *dataset);

/* HEADs for every file of unknown size, a few at a time; returns when the last are under way or the dataset
 * stops. */
void ps_revalidate_sizes(struct ps_dataset *dataset);

/* catalog.c: grants */
/* What a grant is of. */
void ps_grant_id_of_names(const struct ps_catalog *catalog, struct ps_id *ret);
void ps_grant_id_of_file(const struct ps_dataset *dataset, const char *url, const struct ps_remote *version,
        struct ps_id *ret);
/* For ps_origin.proved; arg is the dataset. */
void ps_grant_proved(void *arg, const char *url, const struct ps_remote *version, int64_t key_expires_s);

enum ps_grant ps_grant_look(struct ps_dataset *dataset, const struct ps_id *of);
/* expires_s: when the credential that was used ends; 0: it does not. */
void ps_grant_give(struct ps_dataset *dataset, const struct ps_id *of, int64_t expires_s);
void ps_grant_revoke(struct ps_dataset *dataset, const struct ps_id *of);

/* Listings on their way into the index ------------------------------------------------------------------- */

/* A listing on its way into the index: names get nodes, changed versions get new ones, vanished names go.
 *
 * Rows are committed in batches as the listing comes, so a listing of a million names needs little memory: 8
 * bytes a name to know at the end which are gone, and the directories. A HEAD that was answered while the
 * listing ran is believed before it: the listing may have been written down earlier.
 *
 * Threads: one. Locks: names_lock of the dataset, for each name. Blocks: on the index. */

struct ps_merge;

struct ps_merge *ps_merge_new(struct ps_dataset *dataset); /* NULL: out of memory */
void ps_merge_free(struct ps_merge *merge);
/* A ps_list_fn; arg is the merge. */
int ps_merge_add(void *merge, const struct ps_listed *listed);
/* After a whole listing: names that were not in it are removed, the dataset row is updated. An empty one
 * changes nothing: more likely something is missing at the origin than everything is gone. */
int ps_merge_finish(struct ps_merge *merge, uint64_t *ret_nfiles, uint64_t *ret_first_unsized);
/* Commits what the listing under way, if there is one, has decided. names_lock is held. */
int ps_merge_flush(struct ps_dataset *dataset);

#endif
