/* Types and functions that the files of the catalog share, besides dataset.h. */
#ifndef PS_CATALOG_CATALOG_PRIVATE_H
#define PS_CATALOG_CATALOG_PRIVATE_H

#include "catalog/dataset.h"

/* The identity of a dataset: its names and its access. */
struct ps_dataset_id {
	struct ps_id catalog, access;
	bool anonymous;
	/* An object store at its own endpoint may have a bucket of this name for each tenant. If the listing
	 * for an access has other names than the catalog (it ends with -EREMCHG), the access gets its own
	 * catalog, own_catalog. */
	bool may_be_another;
	struct ps_id own_catalog;
	char route[PS_ID_HEX_LEN + 1];      /* part of catalog and access, too; "": the usual route */
	char route_text[PS_ROUTE_TEXT_LEN]; /* for people */
};

/* attach.c: the first ps_dataset_attach() of a dataset, and its last ps_dataset_detach() */
int ps_dataset_id(struct ps_store *store, const char *canonical, const char *source,
        const struct ps_dataset_options *options, struct ps_dataset_id *ret) PS_MUST_USE;
int ps_dataset_new(struct ps_cache *cache, const char *source, const char *canonical,
        const struct ps_dataset_id *id, const struct ps_dataset_options *options, struct ps_dataset **ret,
        struct ps_error *err) PS_MUST_USE;
/* For another mount: lists the dataset again, or joins the listing under way, and waits for it as an attach
 * does. */
int ps_dataset_rejoin(struct ps_dataset *dataset, const struct ps_dataset_options *options,
        struct ps_error *err) PS_MUST_USE;
void ps_dataset_free(struct ps_dataset *dataset);

/* listing_thread.c */
/* Starts both threads. The listing that ds->asked counts is the first one's first work. */
int ps_dataset_start_threads(struct ps_dataset *dataset, struct ps_error *err) PS_MUST_USE;
/* Requests a listing and returns its number. With `joins`, a listing that is in progress satisfies the
 * request. refresh: ends with that listing; may be NULL. */
uint64_t ps_dataset_ask(struct ps_dataset *dataset, bool joins, struct ps_refresh *refresh);
/* The time of the next listing by interval; UINT64_MAX: never. A listing by another dataset of the catalog
 * counts. The dataset's lock is held. */
uint64_t ps_dataset_due_ns(const struct ps_dataset *dataset);
/* The number of listed files. *ret_listed_ms 0: the source was never listed. */
uint64_t ps_dataset_listed_files(struct ps_dataset *dataset, int64_t *ret_listed_ms);

/* catalog.c */
/* The catalog of this id, with a new reference. Blocks on the index. */
int ps_catalog_get(struct ps_cache *cache, const struct ps_dataset_id *id, const char *source,
        struct ps_catalog **ret) PS_MUST_USE;
void ps_catalog_put(struct ps_catalog *catalog);
/* True if when_ms is in the future: the wall clock was set back since. */
bool ps_catalog_is_ahead(int64_t when_ms, int64_t now_ms);
/* Returns attached_ms. If the wall clock was set back since, attached_ms becomes now_ms first: otherwise no
 * version would count as confirmed until the clock has caught up. catalog->lock is held. */
int64_t ps_catalog_attached(struct ps_catalog *catalog, int64_t now_ms);
/* True if the catalog has this file in this version. Blocks on the index. */
bool ps_catalog_has(struct ps_catalog *catalog, const struct ps_listed *listed);
/* The number of listings of the whole catalog that have begun. With `joins`, a listing under way is not
 * counted. */
uint64_t ps_catalog_listings(struct ps_catalog *catalog, bool joins);
/* Returns true if the caller must list the whole catalog, and then call ps_catalog_list_end(). Returns false
 * and sets *ret_listed if a listing is complete that began after the first `since` listings. Returns false
 * and clears *ret_listed while another dataset lists the catalog. */
bool ps_catalog_list_begin(
        struct ps_catalog *catalog, const struct ps_dataset *dataset, uint64_t since, bool *ret_listed);
/* Reports changes to the watches; listed: the listing was complete. Blocks on the index and on the
 * watches. */
void ps_catalog_list_end(struct ps_catalog *catalog, bool listed);
/* Notes a node that was superseded, or that was made for a new name. A superseded node's row is deleted
 * with the catalog's last dataset. names_lock is held. */
void ps_catalog_changed(struct ps_catalog *catalog, uint64_t node);

/* Checks whether `remote`, which the origin reported for a file now or earlier, has a version. The first
 * file without a version is logged and sets `versionless`. */
void ps_catalog_note_remote(struct ps_catalog *catalog, const struct ps_remote *remote);

/* Forgets the missing names of the previous listing. Call it when a new listing begins. */
void ps_catalog_none_missing(struct ps_catalog *catalog);

/* Calls done() of these refreshes; no lock is held. */
void ps_refreshes_end(struct ps_list *refreshes, int errnum, const struct ps_refreshed *result);

/* view.c */
/* The shown size. PS_SIZE_UNKNOWN: the origin's size is not known yet, or the decoded size of a compressed
 * shard is not. Blocks on the index. */
uint64_t ps_view_size(struct ps_dataset *dataset, const struct ps_node_row *row);
void ps_attr_of_row(struct ps_dataset *dataset, const struct ps_node_row *row, struct ps_attr *ret_attr);

/* revalidation.c */
/* Handles retries and deadlines that are due; returns when to call again. Called by the dataset's thread for
 * probes. */
uint64_t ps_revalidate_tick(struct ps_dataset *dataset, uint64_t now_ns);
/* Ends all probes with ECANCELED and waits for those at the origin. */
void ps_revalidate_drain(struct ps_dataset *dataset);

/* Sends HEADs for every file of unknown size, a few at a time; returns when the last are under way or the
 * dataset stops. */
void ps_revalidate_sizes(struct ps_dataset *dataset);

/* catalog.c: grants */
/* The id that a grant is stored under. */
void ps_grant_id_of_names(const struct ps_catalog *catalog, struct ps_id *ret);
void ps_grant_id_of_file(const struct ps_dataset *dataset, const char *url, const struct ps_remote *version,
        struct ps_id *ret);
/* For ps_origin.proved; arg is the dataset. */
void ps_grant_proved(void *arg, const char *url, const struct ps_remote *version, int64_t key_expires_s);

enum ps_grant ps_grant_look(struct ps_dataset *dataset, const struct ps_id *of);
/* expires_s: expiry of the credential that was used; 0: none. */
void ps_grant_give(struct ps_dataset *dataset, const struct ps_id *of, int64_t expires_s);
void ps_grant_revoke(struct ps_dataset *dataset, const struct ps_id *of);

/* Merging listings into the index ------------------------------------------------------------------------ */

/* The merge of a listing into the index: names get nodes, changed versions get new nodes, vanished names
 * are removed.
 *
 * Rows are committed in batches as the listing arrives. So a listing of a million names needs little memory:
 * its directories, and a set of node numbers (at most 1 byte a name if the nodes were made one after
 * another), with which ps_merge_finish() finds the vanished names. If a HEAD was answered while the listing
 * ran, its answer takes precedence: the listing may have been made earlier.
 *
 * Threads: one. Locks: the catalog's names_lock, for each name. Blocks on the index. */

struct ps_merge;

struct ps_merge *ps_merge_new(struct ps_dataset *dataset); /* NULL: out of memory */
void ps_merge_free(struct ps_merge *merge);
/* A ps_list_fn; arg is the merge. */
int ps_merge_add(void *merge, const struct ps_listed *listed);
/* Removes the names that were not in the listing, and updates the dataset row. Call it after a complete
 * listing. An empty listing changes nothing: it is more likely a fault of the origin than the loss of all
 * files. */
int ps_merge_finish(struct ps_merge *merge, uint64_t *ret_nfiles, uint64_t *ret_first_unsized);
/* Commits the batch of the listing under way, if there is one. names_lock is held. */
int ps_merge_flush(struct ps_dataset *dataset);

#endif
