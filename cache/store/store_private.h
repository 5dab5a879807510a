/* What the files of the store share. Three kinds of record:
 *
 *   item     what the quota counts and the policy chooses from: a whole data file, or an extent of one that is
 *            cached by extents (extent.h)
 *   entry    one a data file, for every object that has one: its items
 *   object   one that somebody holds (or that waits for the index): its blocks, its descriptor
 *
 * Life of an object (under store->lock):
 *
 *   LOADING ──loaded──▶ READY ──evict──▶ EVICTING ──rows deleted, file unlinked──▶ EVICTED
 *   └─ in store->objects: found by its id; a get waits while ──┘                   only its holders know it
 *      LOADING or EVICTING
 *
 * An object is freed when refs is 0: users are its callers, and each queue that it is on (of objects that are
 * dirty, not synced, to be checked) holds one more. An entry that is being evicted is in store->leaving
 * instead of the table, whether an object exists or not, until its file is unlinked.
 *
 * Locks: store->lock, then object->lock. Neither is held over disk, index or callback. */
#ifndef PS_STORE_STORE_PRIVATE_H
#define PS_STORE_STORE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/hashtable.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "policy/plans.h"
#include "policy/policy.h"
#include "index/index.h"
#include "store/store.h"

#define PS_SALT_LEN 32

#define PS_NO_SLOT UINT32_MAX

/* What an extent of a data file costs. */
struct ps_charge {
	uint64_t blocks;  /* counted by the quota: they may be on disk */
	uint16_t *chunks; /* of the other blocks, PS_EXTENT_BLOCKS of them; NULL: none */
	uint32_t slot;    /* of its item; PS_NO_SLOT: none counted */
};

struct ps_entry {
	UT_hash_handle hh;
	struct ps_id id;
	uint32_t slot;             /* of the item of the whole file; PS_NO_SLOT: by extents */
	uint32_t nextents;
	uint32_t nrows;            /* extents from this one on never had a row in the index: to be deleted with it */
	struct ps_charge *charges; /* one an extent; NULL: the file is cached as a whole */
	uint32_t ncharged;         /* extents with an item */
	unsigned nleaving;        /* of them on their way out: nobody may load, evict or convert the object */
	bool seen;                /* by the recovery's walk over data/ */
	bool pinned;              /* never chosen */
	struct ps_object *object; /* NULL: nobody holds it */
};

/* Where an item belongs. */
struct ps_place {
	struct ps_entry *entry;
	uint32_t extent;
	bool leaving; /* of an extent */
};

/* An entry on its way out. If its rows cannot be deleted, it stays as a tomb: no file of that name may be
 * made until they are, for they would vouch for blocks that are not there. */
struct ps_leaving {
	UT_hash_handle hh;
	struct ps_id id;
	uint64_t nbytes;
	uint32_t nrows;
	struct ps_object *object; /* holds a ref, or NULL */
	struct ps_leaving *next;  /* of those that one thread evicts together; of the tombs */
	bool rows_left;           /* becomes a tomb */
	bool in_batch;            /* a tomb that is being deleted */
	bool named;               /* the object's last holder unlinks its file */
};

struct ps_extent {
	/* Read without the lock: present (acquire), then unverified. See block.c for why this order is
	 * enough. */
	_Atomic uint64_t present, unverified;
	_Atomic(struct ps_extent_chunks *) chunks; /* of its partial blocks; chunk.c's */
	/* Of objects cached by extents; see extent.h. */
	_Atomic uint32_t nholds;
	_Atomic bool leaving;           /* nothing of it counts as present; set under store->lock */
	_Atomic int64_t used_s;         /* when its use was last noted */
	int64_t saved_used_s;           /* as far as its row tells, or will; store->lock */
	bool dirty;                     /* object->lock */
	uint32_t crc[PS_EXTENT_BLOCKS]; /* object->lock */
};

enum ps_object_state { PS_OBJECT_LOADING, PS_OBJECT_READY, PS_OBJECT_EVICTING, PS_OBJECT_EVICTED };

struct ps_object {
	/* Constant. */
	struct ps_store *store;
	struct ps_id id;
	char *url;
	struct ps_remote remote;
	uint64_t nblocks;
	uint32_t nextents;

	/* Under store->lock. */
	UT_hash_handle hh;
	struct ps_list dirty_link, sync_link, check_link;
	enum ps_object_state state;
	unsigned refs, users; /* users are counted in refs */
	bool dirty;           /* on the queue, which holds a ref */
	bool sync_queued;     /* on that queue, the same */
	bool committing;      /* its rows are being written: eviction waits */
	bool admitting;       /* a thread is making room for it */
	bool no_disk;         /* the index or the file could not be read: stream it */
	bool failed;          /* a write failed, and that was logged */
	bool passed;          /* the kernel may read the file by itself */
	bool named;           /* evicted, and its file is unlinked when the last holder goes; on store->named */
	struct ps_object *next_named;
	bool unsure;        /* blocks came unverified from the index, and nobody has asked for a check yet */
	bool row_by_extent; /* the index may say so: it must not before the file is passed through */
	struct ps_entry *entry; /* NULL: no file, or on its way out */
	uint64_t charge;        /* what it still occupies after eviction */
	uint64_t refused_until_ns;
	uint32_t dataset;
	int64_t created_s, opened_s;

	char learned_etag[PS_ETAG_LEN]; /* of the first response, where the listing had none */
	char checksum[PS_CHECKSUM_LEN]; /* that the origin told; "" */
	bool sum_matched;
	bool sum_queued; /* which holds a ref */
	struct ps_list sum_link;

	_Atomic bool by_extent; /* goes false when the file may have been passed through, and stays so */
	_Atomic bool admitted;
	_Atomic bool corrupt; /* stays so */
	_Atomic bool unsynced;      /* bytes were written since the file was synced */
	_Atomic uint64_t unwritten; /* of what was reserved for it; also in store->unwritten */
	_Atomic uint64_t npresent, nunverified;
	_Atomic uint64_t ndropped;       /* blocks that were bad */
	_Atomic uint64_t partial_nbytes; /* of chunks of blocks that are not whole */
	_Atomic int fd;                  /* set once, after which it stays until the object is freed */
	_Atomic int direct_fd;           /* the same, for writing; -1 where the file system has no O_DIRECT */

	pthread_mutex_t lock;                 /* the two below and what struct ps_extent says */
	uint32_t dirty_first, dirty_end;      /* extents; empty if first >= end */
	_Atomic(struct ps_extent *) *extents; /* each made when first needed, then there for good */
};

struct ps_store {
	/* Constant while open. */
	char *dir;
	int dir_fd, data_fd, index_fd, lock_fd;
	uint8_t salt[PS_SALT_LEN];
	struct ps_index *index;
	uint64_t limit_nbytes, min_free_nbytes;
	bool counts_folder; /* the limit is of all that is in the folder; else of data files alone */
	bool is_small;
	uint64_t reserve_nbytes;
	uint64_t whole_nbytes; /* what data files could have when it was opened: tells which are large */
	const struct ps_policy_ops *policy_ops;
	bool set_aside;    /* the index was damaged: this start is an empty one, as was said */
	struct ps_plans *plans;
	bool exact_mtimes; /* the last stop left every row with its file's mtime */
	bool can_punch;    /* the file system makes holes */

	pthread_mutex_t lock; /* all below, unless it says atomic */
	pthread_cond_t
	        changed; /* an object loaded, evicted, committed, admitted; room came free; a commit ended */
	struct ps_object *objects;
	struct ps_entry *entries;
	struct ps_leaving *leaving;
	struct ps_leaving *tombs; /* seldom any */
	struct ps_object *named;  /* the same */
	struct ps_policy *policy;
	struct ps_policy_item *items; /* dense; places[i] says whose items[i] is */
	struct ps_place *places;
	size_t *victims; /* as long as items: choose()'s */
	size_t nitems, items_cap;
	uint64_t open_seq;
	uint64_t used_nbytes;    /* entries, leaving, and evicted objects that are still open */
	uint64_t leaving_nbytes; /* part of it that is about to come free */
	uint64_t held_nbytes;    /* part of it that was evicted and is still open */
	uint64_t evicted_objects, evicted_extents, evicted_nbytes;
	struct ps_pin *pins; /* pins.h */
	uint64_t pinned_nbytes;
	bool pins_dirty; /* a row of theirs is behind */

	/* disk.h; index_nbytes and index_allocated_nbytes are written under lock, too */
	pthread_mutex_t index_lock;
	_Atomic uint64_t index_nbytes;           /* counted: what is there besides data files, and what may come */
	_Atomic uint64_t index_allocated_nbytes; /* what is there */
	_Atomic uint64_t index_slack_nbytes;     /* may be written before the next look */

	_Atomic uint64_t unwritten; /* reserved by admissions and not on disk yet */
	_Atomic uint64_t write_errors, crc_errors, checksum_errors;
	struct ps_log_rate no_file_rate, refusal_rate;
	_Atomic bool index_failed; /* the last commit failed: nothing new is admitted until one succeeds */
	bool failed_since; /* the commit that is under way began: a batch of somebody else was refused */

	/* disk.h */
	_Atomic int disk_errnum; /* 0: it takes data */
	_Atomic int64_t disk_refused_s;
	_Atomic uint64_t disk_wanted_nbytes;

	/* object_checksum.c */
	uint64_t checksum_retry_ms; /* constant */
	struct ps_list sums;        /* of struct ps_object.sum_link */
	struct ps_refused *refused;
	pthread_t summer;
	pthread_cond_t sums_wake;
	bool summer_started;
	_Atomic bool sums_stop;

	/* commit.c */
	struct ps_worker committer;
	bool commit_running;
	bool told_of_refusal; /* the index's, in the log; whoever runs the commit */
	struct ps_list dirty; /* of struct ps_object.dirty_link */
	uint64_t ndirty_blocks;
	uint64_t dirty_since_ns, retry_at_ns;

	/* sync.c */
	struct ps_worker syncer;
	bool syncing;
	struct ps_list unsynced; /* of struct ps_object.sync_link */
	size_t nunsynced;
	uint64_t unsynced_since_ns; /* 0: all batches are safe */

	/* check.c */
	struct ps_worker checker;
	struct ps_list unchecked; /* of struct ps_object.check_link */
};

/* block.c: the extent's row is behind. */
void ps_object_dirty_extent(struct ps_object *object, uint32_t extent);

/* object.c */

/* What counts as the size of one whose size is not known: more than a quarter of any quota, and little enough for the map of
 * its extents and for ext4. */
#define PS_OBJECT_UNSIZED_NBYTES (UINT64_C(1) << 43)

/* As ps_object_get(), for an object that has a row; -ENOENT if it has none. Not an open. */
int ps_object_get_row(
        struct ps_store *store, const struct ps_object_row *row, struct ps_object **ret) PS_MUST_USE;
/* What the object may take of the disk when it is all there: its blocks and the file system's map of them. */
uint64_t ps_object_full_charge(const struct ps_object *object);
uint32_t ps_nextents_of_size(uint64_t size);
/* store->lock held; may drop it for freeing. */
void ps_object_unref_locked(struct ps_object *object);

/* quota.c: store->lock held in all. */

/* An entry with one item for the whole file. NULL: out of memory. */
struct ps_entry *ps_table_add(
        struct ps_store *store, const struct ps_id *id, uint32_t nextents, uint64_t nbytes);
/* One by extents, none of which is charged yet. NULL: out of memory. */
struct ps_entry *ps_table_add_by_extent(struct ps_store *store, const struct ps_id *id, uint32_t nextents);
struct ps_entry *ps_table_find(struct ps_store *store, const struct ps_id *id);
/* Frees it; what it occupied is still counted in used_nbytes: the caller's to settle. */
void ps_table_remove(struct ps_store *store, struct ps_entry *entry);
/* What all its items count. */
uint64_t ps_table_nbytes(const struct ps_store *store, const struct ps_entry *entry);
/* The item of an entry that is no entry by extents. */
struct ps_policy_item *ps_table_item(struct ps_store *store, const struct ps_entry *entry);
/* Changes the bytes of that item and used_nbytes with them. */
void ps_table_charge(struct ps_store *store, struct ps_entry *entry, uint64_t nbytes);
/* The item of an extent, or NULL. */
struct ps_policy_item *ps_table_extent(struct ps_store *store, const struct ps_entry *entry, uint32_t extent);
/* The same, made with nothing charged if there is none. NULL: out of memory. */
struct ps_policy_item *ps_table_extent_make(struct ps_store *store, struct ps_entry *entry, uint32_t extent);
/* Its item goes, and what it counted. */
void ps_table_extent_drop(struct ps_store *store, struct ps_entry *entry, uint32_t extent);
/* From now on the file counts as a whole. */
int ps_table_make_whole(struct ps_store *store, struct ps_entry *entry) PS_MUST_USE;
/* Who holds it or pinned it changed: may its items be chosen? */
void ps_table_update_busy(struct ps_store *store, const struct ps_entry *entry);
void ps_table_free(struct ps_store *store);

#endif
