/* What the files of the store share. They are a ladder, each uses those after it: store.c, recover.c,
 * verify.c, object_checksum.c, admission.c, blocks.c (bytes), extent.c, object.c (get, put, load), pins.c,
 * commit.c (rows and syncs), evict.c (room), queues.c (objects that wait for a thread; the last reference),
 * presence.c (what is there), quota.c; datafile.c and store_dir.c. Three kinds of record:
 *
 *   item     what the quota counts and the policy chooses from: a whole data file, or an extent of one that is
 *            cached by extents (see Extents)
 *   entry    one a data file, for every object that has one: its items
 *   object   one that is held (or that waits for the index): its blocks, its descriptor
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
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/hashtable.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "index/index.h"
#include "policy/policy.h"
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
	uint32_t slot; /* of the item of the whole file; PS_NO_SLOT: by extents */
	uint32_t nextents;
	/* extents from this one on never had a row in the index: to be deleted with it */
	uint32_t nrows;
	struct ps_charge *charges; /* one an extent; NULL: the file is cached as a whole */
	uint32_t ncharged;         /* extents with an item */
	/* of them on their way out: no thread may load, evict or convert the object */
	unsigned nleaving;
	bool seen;                /* by the recovery's walk over data/ */
	bool pinned;              /* never chosen */
	struct ps_object *object; /* NULL: not held */
};

/* Where an item belongs. */
struct ps_place {
	struct ps_entry *entry;
	uint32_t extent;
	bool leaving; /* of an extent */
};

/* An entry on its way out. If its rows cannot be deleted, it stays as a deleted entry: no file of that name
 * may be made until they are, for they would vouch for blocks that are not there. */
struct ps_leaving {
	UT_hash_handle hh;
	struct ps_id id;
	uint64_t nbytes;
	uint32_t nrows;
	struct ps_object *object; /* holds a ref, or NULL */
	struct ps_leaving *next;  /* of those that one thread evicts together; of the deleted entries */
	bool rows_left;           /* becomes a deleted entry */
	bool in_batch;            /* its rows are being deleted */
	bool named;               /* the object's last holder unlinks its file */
};

struct ps_extent {
	/* Read without the lock: present (acquire), then unverified. See blocks.c for why this order is
	 * enough. */
	_Atomic uint64_t present, unverified;
	_Atomic(struct ps_extent_chunks *) chunks; /* of its partial blocks; blocks.c's */
	/* Of objects cached by extents; see Extents. */
	_Atomic uint32_t nholds;
	_Atomic bool leaving;           /* nothing of it counts as present; set under store->lock */
	_Atomic int64_t used_s;         /* when its use was last noted */
	int64_t saved_used_s;           /* as far as its row says, or will; store->lock */
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
	/* evicted, and its file is unlinked when the last holder goes; on store->named */
	bool named;
	struct ps_object *next_named;
	bool unsure;            /* blocks came unverified from the index, and no check was asked for yet */
	bool row_by_extent;     /* the index may say so: it must not before the file is passed through */
	struct ps_entry *entry; /* NULL: no file, or on its way out */
	uint64_t charge;        /* what it still occupies after eviction */
	uint64_t refused_until_ns;
	uint32_t dataset;
	int64_t created_s, opened_s;

	char learned_etag[PS_ETAG_LEN]; /* of the first response, where the listing had none */
	char checksum[PS_CHECKSUM_LEN]; /* that the origin gave; "" */
	bool sum_matched;
	bool sum_queued; /* which holds a ref */
	struct ps_list sum_link;

	_Atomic bool by_extent; /* goes false when the file may have been passed through, and stays so */
	_Atomic bool admitted;
	_Atomic bool corrupt;       /* stays so */
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
	uint64_t whole_nbytes; /* what data files could have when it was opened: shows which are large */
	const struct ps_policy_ops *policy_ops;
	bool set_aside; /* the index was damaged: this start is an empty one, as was said */
	struct ps_plans *plans;
	bool exact_mtimes; /* the last stop left every row with its file's mtime */
	bool can_punch;    /* the file system makes holes */

	pthread_mutex_t lock; /* all below, unless it says atomic */
	/* an object loaded, evicted, committed, admitted; room came free; a commit ended */
	pthread_cond_t changed;
	struct ps_object *objects;
	struct ps_entry *entries;
	struct ps_leaving *leaving;
	struct ps_leaving *deleted_entries; /* seldom any */
	struct ps_object *named;            /* the same */
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
	struct ps_pin *pins;
	uint64_t pinned_nbytes;
	bool pins_dirty; /* a row of theirs is to be written */

	/* What the disk takes; index_nbytes and index_allocated_nbytes are written under lock, too */
	pthread_mutex_t index_lock;
	/* counted: what is there besides data files, and what may come */
	_Atomic uint64_t index_nbytes;
	_Atomic uint64_t index_allocated_nbytes; /* what is there */
	_Atomic uint64_t index_slack_nbytes;     /* may be written before the next look */

	_Atomic uint64_t unwritten; /* reserved by admissions and not on disk yet */
	_Atomic uint64_t write_errors, crc_errors, checksum_errors;
	struct ps_log_rate no_file_rate, refusal_rate;
	_Atomic bool index_failed; /* the last commit failed: nothing new is admitted until one succeeds */
	bool failed_since;         /* the commit that is under way began: another batch was refused */

	/* What the disk takes */
	_Atomic int disk_errnum; /* 0: it takes data */
	_Atomic int64_t disk_refused_s;
	_Atomic uint64_t disk_wanted_nbytes;

	/* object_checksum.c */
	uint64_t checksum_retry_ms; /* constant */
	struct ps_list sums;        /* of struct ps_object.sum_link */
	struct ps_refused *refused;
	void *(*sum_main)(void *store); /* the thread, which is started when it is needed first; constant */
	pthread_t summer;
	pthread_cond_t sums_wake;
	bool summer_started;
	_Atomic bool sums_stop;

	/* commit.c */
	struct ps_worker committer;
	bool commit_running;
	bool told_of_refusal; /* the index's, in the log; by the thread that commits */
	struct ps_list dirty; /* of struct ps_object.dirty_link */
	uint64_t ndirty_blocks;
	uint64_t dirty_since_ns, retry_at_ns;

	/* commit.c: syncs */
	struct ps_worker syncer;
	bool syncing;
	struct ps_list unsynced; /* of struct ps_object.sync_link */
	size_t nunsynced;
	uint64_t unsynced_since_ns; /* 0: all batches are safe */

	/* verify.c: checks */
	struct ps_worker checker;
	struct ps_list unchecked; /* of struct ps_object.check_link */
};

/* object.c */

/* What counts as the size of one whose size is not known: more than a quarter of any quota, and little enough
 * for the map of its extents and for ext4. */
#define PS_OBJECT_UNSIZED_NBYTES (UINT64_C(1) << 43)

/* As ps_object_get(), for an object that has a row; -ENOENT if it has none. Not an open. */
int ps_object_get_row(
        struct ps_store *store, const struct ps_object_row *row, struct ps_object **ret) PS_MUST_USE;
/* What the object may take of the disk when it is all there: its blocks and the file system's map of them. */
uint64_t ps_object_full_charge(const struct ps_object *object);
uint32_t ps_nextents_of_size(uint64_t size);
void ps_object_free(struct ps_object *object);
/* store->lock held; may drop it for freeing. */
void ps_object_unref_locked(struct ps_object *object);

/* quota.c: store->lock held in all. */

/* An entry with one item for the whole file. NULL: out of memory. */
struct ps_entry *ps_quota_add(
        struct ps_store *store, const struct ps_id *id, uint32_t nextents, uint64_t nbytes);
/* One by extents, none of which is charged yet. NULL: out of memory. */
struct ps_entry *ps_quota_add_by_extent(struct ps_store *store, const struct ps_id *id, uint32_t nextents);
struct ps_entry *ps_quota_find(struct ps_store *store, const struct ps_id *id);
/* Frees it; what it occupied is still counted in used_nbytes: the caller's to settle. */
void ps_quota_remove(struct ps_store *store, struct ps_entry *entry);
/* What all its items count. */
uint64_t ps_quota_nbytes(const struct ps_store *store, const struct ps_entry *entry);
/* The item of an entry that is no entry by extents. */
struct ps_policy_item *ps_quota_item(struct ps_store *store, const struct ps_entry *entry);
/* Changes the bytes of that item and used_nbytes with them. */
void ps_quota_charge(struct ps_store *store, struct ps_entry *entry, uint64_t nbytes);
/* The item of an extent, or NULL. */
struct ps_policy_item *ps_quota_extent(struct ps_store *store, const struct ps_entry *entry, uint32_t extent);
/* The same, made with nothing charged if there is none. NULL: out of memory. */
struct ps_policy_item *ps_quota_extent_make(struct ps_store *store, struct ps_entry *entry, uint32_t extent);
/* Its item goes, and what it counted. */
void ps_quota_extent_drop(struct ps_store *store, struct ps_entry *entry, uint32_t extent);
/* From now on the file counts as a whole. */
int ps_quota_make_whole(struct ps_store *store, struct ps_entry *entry) PS_MUST_USE;
/* Who holds it or pinned it changed: may its items be chosen? */
void ps_quota_update_busy(struct ps_store *store, const struct ps_entry *entry);
void ps_quota_free(struct ps_store *store);

/* The directory ------------------------------------------------------------------------------------------ */

/* The cache directory as such: made, marked, locked, salted. Who owns the lock may clean up in it.
 *
 * Ownership: descriptors and paths are the caller's. Threads: one. Errors: -errno with a text for a person.
 * Blocks: on disk; marker and salt are fsynced, once in a directory's life. */

#define PS_MARKER_NAME "penstock-cache"
#define PS_MARKER_FORMAT 2 /* 1: of no release */

/* A folder in it, made 0700 if missing; never a link, nor another user's. Returns the descriptor. */
int ps_store_dir_sub(int dir_fd, const char *path, const char *name, struct ps_error *err) PS_MUST_USE;

/* Finds (and if need be makes) the directory, takes its lock, checks its marker. *ret_path is absolute,
 * malloced. */
int ps_store_dir_open(const char *dir, bool must_exist, int *ret_dir_fd, int *ret_lock_fd, char **ret_path,
        struct ps_error *err) PS_MUST_USE;
/* nbytes of salt, made if there is none. */
int ps_store_dir_salt(
        int dir_fd, const char *path, uint8_t *ret_salt, size_t nbytes, struct ps_error *err) PS_MUST_USE;
/* Renames a damaged index to index.broken-1, and says so with the text that err has. The one before becomes
 * index.broken-2; older ones are removed. */
int ps_store_dir_set_aside(int dir_fd, const char *path, struct ps_error *err) PS_MUST_USE;

/* A file of nbytes that is given up when the index, which writes when it is opened, finds the disk full; made
 * when there is room for it and as much again, and again if it has another size; 0: left as it is. */
#define PS_RESERVE_NBYTES (UINT64_C(16) << 20)
#define PS_RESERVE_SMALL_NBYTES (UINT64_C(4) << 20)
void ps_store_dir_reserve(int dir_fd, uint64_t nbytes);
/* False: there was none. */
bool ps_store_dir_give_up_reserve(int dir_fd);

/* What the directory takes of the disk besides data files, with the folders that these will be in and a
 * reserve of reserve_nbytes, be they there or not. *ret_sorted_nbytes: the index's sorted files (*.sst) among
 * it. */
uint64_t ps_store_dir_measure(int dir_fd, int data_fd, uint64_t reserve_nbytes, uint64_t *ret_sorted_nbytes);

/* Data files --------------------------------------------------------------------------------------------- */

/* Data files: the bytes of one object each, sparse, at data/ab/abcdef..., offsets equal to the object's own.
 *
 * Ownership: descriptors belong to the caller. Threads: any; one file is created by one thread at a time.
 * Errors: 0 or -errno. Durability: page cache only. Blocks: on disk. */

/* A new file of `size` bytes, all hole. One of that name that is there already is a leftover: it is unlinked,
 * never cut (it may still be read). */
int ps_datafile_create(int data_fd, const struct ps_id *id, uint64_t size, int *ret_fd) PS_MUST_USE;
/* For reading and writing; only for reading on a read-only file system (*ret_writable). -ENOENT. */
int ps_datafile_open(int data_fd, const struct ps_id *id, int *ret_fd, bool *ret_writable) PS_MUST_USE;
/* A second descriptor, for writing past the page cache: a cold stream then neither fills memory with what its
 * reader has already nor makes the kernel write back after it (measured: 0.13 CPU s/GB against 0.37, and 2.6
 * where the pages are fresh). -1 where the file system cannot. */
int ps_datafile_open_direct(int data_fd, const struct ps_id *id);
/* While blocks are missing, the kernel must not read ahead into holes: pages of zeros beside a block that a
 * direct write fills are stale after it if they are held at that moment. Whole files are read ahead as
 * usual. */
void ps_datafile_read_ahead(int fd, bool whole);
int ps_datafile_unlink(int data_fd, const struct ps_id *id); /* 0 also if it is not there */

/* Through direct_fd if there is one and the alignment allows it, else through fd. */
int ps_datafile_write_direct(
        int direct_fd, int fd, const void *bytes, size_t nbytes, uint64_t offset) PS_MUST_USE;
/* All of nbytes, or -ENODATA at the end of the file, or -EIO... */
int ps_datafile_read(int fd, void *ret_bytes, size_t nbytes, uint64_t offset) PS_MUST_USE;

/* Frees the blocks of a range; it reads as zeros afterwards. */
int ps_datafile_punch(int fd, uint64_t offset, uint64_t nbytes) PS_MUST_USE;
/* Can files in this folder have holes punched? Makes one to find out. */
bool ps_datafile_can_punch(int data_fd);
int64_t ps_datafile_mtime_ns(const struct stat *st);
int64_t ps_datafile_ctime_ns(const struct stat *st);

/* Every data file. Other files in data/ are left out and left alone. A non-zero return of
 * fn ends the walk. fn may unlink. */
int ps_datafile_each(int data_fd, int (*fn)(void *arg, const struct ps_id *id, const struct stat *st),
        void *arg) PS_MUST_USE;

/* Which data files there are ----------------------------------------------------------------------------- */

/* Which data files there are, and how much of the disk each takes: looked up by a thread of its own while the
 * index is opened, for of a hundred thousand files a start would wait for that as long again.
 *
 * Ownership: start makes, free ends. Threads: the one that starts. Blocks: each and free, on the disk. */

struct ps_scan;

/* data_fd stays the caller's. NULL: out of memory. */
struct ps_scan *ps_scan_start(int data_fd);
void ps_scan_free(struct ps_scan *scan);

/* What is there (presence.c) ----------------------------------------------------------------------------- */

static inline uint64_t ps_block_bit(uint64_t block)
{
	return UINT64_C(1) << (block % PS_EXTENT_BLOCKS);
}

/* NULL: nothing of it is there. */
static inline struct ps_extent *ps_extent_of(struct ps_object *object, uint64_t block)
{
	return atomic_load_explicit(&object->extents[block / PS_EXTENT_BLOCKS], memory_order_acquire);
}

struct ps_extent_chunks {
	_Atomic uint16_t there[PS_EXTENT_BLOCKS];
	uint32_t *crcs[PS_EXTENT_BLOCKS]; /* PS_BLOCK_CHUNKS each, made when first needed; object->lock */
};

struct ps_extent *ps_extent_make(struct ps_object *object, uint64_t block); /* takes object->lock */
void ps_extent_free(struct ps_extent *extent);                              /* NULL is fine */
/* The extent's row is to be written. */
void ps_object_dirty_extent(struct ps_object *object, uint32_t extent);

/* Bytes of the block that are there, checked or not. */
uint64_t ps_object_block_cached_nbytes(struct ps_object *object, uint64_t block);
uint64_t ps_chunk_nbytes(const struct ps_object *object, uint64_t block, unsigned chunk);
uint64_t ps_chunks_nbytes(const struct ps_object *object, uint64_t block, uint16_t set);
/* All chunks of the block. */
uint16_t ps_chunks_all(const struct ps_object *object, uint64_t block);
/* Those of the block that are there; 0 if none. Of a whole block it says nothing of use. */
uint16_t ps_chunks_there(const struct ps_extent *extent, uint64_t block);
struct ps_extent_chunks *ps_chunks_of(const struct ps_extent *extent);

/* Below: object->lock is held, or no other thread has the object. */

/* The extent's row is to be written; ps_commit_queue_locked() has to follow without the object's lock. */
void ps_extent_touch(struct ps_object *object, struct ps_extent *extent, uint64_t block);
/* From the row, and into it; blocks that are not in `mask` are left out. */
int ps_chunks_load(struct ps_object *object, struct ps_extent *extent, uint32_t number,
        const struct ps_extent_row *row, uint64_t mask) PS_MUST_USE;
void ps_chunks_store(const struct ps_extent *extent, struct ps_extent_row *row);
/* The checksums of a block's chunks, made if need be; NULL: out of memory. */
uint32_t *ps_chunks_crcs_make(struct ps_extent *extent, uint64_t block);
/* These are there now. Only while the block is not whole. */
void ps_chunks_set(struct ps_object *object, struct ps_extent *extent, uint64_t block, uint16_t set);
/* All chunks are there: a block like all others. */
void ps_chunks_join(struct ps_object *object, struct ps_extent *extent, uint64_t block);
/* The block is whole now, or nothing of it is there; before its bit in `present` says so. */
void ps_chunks_whole(struct ps_object *object, struct ps_extent *extent, uint64_t block);
void ps_chunks_drop(struct ps_object *object, struct ps_extent *extent, uint64_t block);

/* Extents ------------------------------------------------------------------------------------------------ */

/* Large objects, cached and evicted by extents of 64 blocks: those that take more than a quarter of the
 * quota, so that no file need be evicted as a whole to make room for a part of another.
 *
 * Each block takes its room when it is written; the policy sees an extent as it sees a file: its "opens" are
 * its uses, noted once a second. Evicting an extent deletes its row, then punches a hole into the data file.
 * A thread that may look at the bytes meanwhile holds the extent:
 *
 *   reader, verifier   hold, look if the block is present, read, release
 *   writer             take (room, and a hold), write, present, release
 *   eviction           leaving (none of its blocks is present from now on, none is written), wait until
 *                      it is not held and no batch with its row is under way, delete the row, punch, gone
 *
 * A hole in a file that the kernel reads by itself gives zeros to its readers, silently: so a file that was
 * ever passed through is cached as a whole from then on, and evicted by unlinking (ps_object_pass_fd()). The
 * object's row remembers: readers outlive a killed daemon, but no reboot.
 *
 * A kill between row and hole leaves bytes that no row describes; the next start punches them out.
 *
 * Threads: any. Locks: takes store->lock, then object->lock; neither over disk or index. */

#define PS_EXTENT_NBYTES (PS_EXTENT_BLOCKS * PS_BLOCK_SIZE)

/* Is a file of this size cached by extents? Not one that has a single extent and fits: by that there is
 * nothing to gain, and it could not be passed through. */
bool ps_extents_apply(const struct ps_store *store, uint64_t size);

/* Of the file system's map of a file, the share of one extent at most. */
#define PS_EXTENT_MAP_NBYTES UINT64_C(16384)

/* At the start, store->lock held: the item of an extent, charged with what its row says. */
int ps_extent_add(struct ps_store *store, struct ps_entry *entry, const struct ps_object_row *object,
        uint32_t extent, const struct ps_extent_row *row) PS_MUST_USE;

/* Room for chunks of a block that are about to be written, and a hold of their extent, *ret_extent. -ENOSPC:
 * no room, which is remembered for PS_STORE_REFUSED_MS. -ENOMEM. The object is admitted; one that is not
 * cached by extents has its room already. Blocks on evictions: index and disk. */
int ps_extent_take(
        struct ps_object *object, uint64_t block, uint16_t chunks, struct ps_extent **ret_extent) PS_MUST_USE;
void ps_extent_release(struct ps_object *object, struct ps_extent *extent);

/* What these chunks of a block take of the disk, in a file of `size` bytes. */
uint64_t ps_chunks_disk_nbytes(uint64_t size, uint64_t block, uint16_t set);

/* evict.c: an extent on its way out. */
struct ps_extent_out {
	struct ps_entry *entry;   /* stays while entry->nleaving > 0 */
	struct ps_object *object; /* holds a ref, or NULL: not open, and cannot be opened until we are done */
	uint32_t extent;
	uint64_t nbytes;
	struct ps_extent_out *next;
	bool done;
};
/* All extents of an object that is held; *ret_nbytes: what they occupied. */
int ps_extents_evict(struct ps_object *object, uint64_t *ret_nbytes) PS_MUST_USE;

/* At the start, with the table filled from the rows: what a data file has beyond its rows is punched out. */
int ps_extents_recover(struct ps_store *store, const struct ps_entry *entry) PS_MUST_USE;

/* Checksums of objects ----------------------------------------------------------------------------------- */

/* Checksums of whole objects that their origin gave: compared once all blocks are there, by a thread of low
 * priority, so that no read waits for it; an object that has one is not passed through before it has matched.
 *
 *                complete                 equal
 *   (unknown) ──────────────▶ queued ───────────────▶ matched (in its row; until a block is dropped)
 *       ▲                        │ unequal
 *       └── another is given     ▼
 *                             corrupt: retired, its holders' reads fail, nothing of its id is fetched for a while,
 *                             longer each time: PS_SUM_RETRY_MS, doubled up to PS_SUM_RETRY_MAX_MS
 *
 * An object that is cached by extents is compared if all of it ever is there at once.
 *
 * Threads: any. Locks: store->lock. */

#define PS_SUM_RETRY_MS 60000
#define PS_SUM_RETRY_MAX_MS (3600 * 1000)
#define PS_SUM_REFUSED 4096 /* ids remembered; beyond, the oldest is tried again at once */

/* Blocks of the object came or went: is there something to compare? store->lock held. */
void ps_object_checksum_look(struct ps_object *object);
/* Compares now, if the object is complete and has not matched yet: 0, also if there is nothing to compare;
 * -EBADMSG: it is corrupt, and retired. Blocks on disk. */
int ps_object_checksum_check(struct ps_object *object);
void ps_object_checksum_init(struct ps_store *store);
/* Ends the thread; what is queued is compared when it is loaded again. */
void ps_object_checksum_stop(struct ps_store *store);
void ps_object_checksum_free(struct ps_store *store);

/* What the disk takes ------------------------------------------------------------------------------------ */

/* Whether the disk takes data: what a write, a reservation or the index last said of it; and what the folder
 * takes besides data files, where the limit is the folder's.
 *
 * That is the index for the most part, which grows with each name, and writes files twice before it deletes
 * what it read. What it may come to is counted by the quota before it is written (index_nbytes), and data is
 * evicted for it.
 *
 * Threads: any. Locks: index_lock, over a look at the folder and evictions; then store.lock. */

/* It does not, for want of wanted_nbytes or for another reason. e: -errno. */
void ps_disk_refused(struct ps_store *store, int e, uint64_t wanted_nbytes);
/* It did. */
void ps_disk_took(struct ps_store *store);
/* 0, or the errno, and since when in seconds since 1970. Looks at the disk: what was full may have room by
 * now. */
int ps_disk_error(struct ps_store *store, int64_t *ret_since_s);

/* Counts what the folder takes and its index may come to. To be called once before others use the store, and
 * before each commit, but with no object marked as committing: evictions wait for those. -EDQUOT: the limit
 * does not allow for it, whatever may be evicted. Blocks on disk. */
int ps_folder_look(struct ps_store *store) PS_MUST_USE;
/* For ps_index_on_growth(). */
int ps_folder_room(void *store, size_t nbytes) PS_MUST_USE;
/* Of the limit, what data files may have. */
uint64_t ps_store_data_limit(const struct ps_store *store);

/* Room and eviction -------------------------------------------------------------------------------------- */

/* Room on disk: what fits under the quota and the floor of free space, and who goes when it does not.
 *
 * The quota counts, for each data file, what it may grow to while it is being filled (reserved at admission)
 * and what it occupies otherwise, and goes on counting an evicted file until its last holder has put it. Room
 * is taken before the first byte is written and given back after the file is unlinked and closed, so that the
 * limit holds at every instant. The floor is checked against statvfs less what is reserved and not yet
 * written.
 *
 * Threads: any. Locks: takes store->lock, never over disk. Blocks: on the index and on unlink. */

/* What room is wanted for. */
struct ps_wish {
	uint64_t add;                   /* not yet counted by the quota */
	uint64_t unwritten;             /* not yet on disk, and not yet in store->unwritten */
	const struct ps_object *object; /* whose data it is for; NULL: no object's */
	bool pinned;                    /* may drive out what is in use, but not open */
};
/* A try at it: rounds of look (without the lock) and try (with it). */
struct ps_room {
	uint64_t disk, first_disk, freed;
	bool looked;
};
void ps_room_look(struct ps_store *store, struct ps_room *room);
/* 0: there is room, as long as store->lock stays held. -EAGAIN: something went, look again. -ENOSPC: no.
 * store->lock held; dropped over evictions. */
int ps_room_try(struct ps_store *store, struct ps_room *room, const struct ps_wish *wish) PS_MUST_USE;

/* Reserves for the object's whole size (its entry is made if need be), evicting by policy. -ENOSPC: no room.
 * The object is held and marked as admitting by the caller. Without store->lock. */
int ps_room_take(struct ps_object *object) PS_MUST_USE;

/* The last holder is gone: from now on the object counts what it occupies. Without store->lock; the caller
 * has a ref.
 */
void ps_room_settle(struct ps_object *object);

/* Takes an entry, none of whose extents is leaving, out of the table; its object (if any) becomes EVICTING.
 * store->lock held. NULL: out of memory. The caller then passes it, or a list of such (by next), to
 * ps_leaving_finish(). */
struct ps_leaving *ps_leaving_begin(struct ps_store *store, struct ps_entry *entry) PS_MUST_USE;
/* Deletes rows, unlinks files, gives the room back. Without store->lock. */
void ps_leaving_finish(struct ps_store *store, struct ps_leaving *list);

/* Evicts what is not held until the limit holds, whether in use or not, and pinned last: when it was lowered
 * between two runs. */
void ps_room_trim(struct ps_store *store);

/* Is this the id of an evicted object whose rows or file are still there? Who gets it then is streamed.
 * store->lock held. */
bool ps_deleted_entry_find(struct ps_store *store, const struct ps_id *id);
/* Tries again to delete those rows. One thread at a time (the one that commits). Without store->lock. */
int ps_deleted_entries_clear(struct ps_store *store);

/* Commits ------------------------------------------------------------------------------------------------ */

/* The queue of objects whose rows are to be written: a thread writes them to the index, a batch every
 * PS_STORE_COMMIT_MS or sooner when much has come together.
 *
 * When the index takes no more (a full disk), store->index_failed stops admissions, the queue waits, and the
 * thread tries again every few seconds, opening the index again; what is on the queue stays in memory until
 * then.
 *
 * Threads: any. Locks: takes store->lock, then object->lock, neither over the index. */

int ps_commit_start(struct ps_store *store) PS_MUST_USE;
/* Writes what is left and ends the thread. 0: the index has everything. */
int ps_commit_stop(struct ps_store *store) PS_MUST_USE;

/* The object's rows lack nblocks new blocks (0: the object row alone is to be written). store->lock held. */
void ps_commit_queue_locked(struct ps_object *object, uint64_t nblocks);

/* Is no row to be written? store->lock held. */
bool ps_commit_idle_locked(const struct ps_store *store);
#define PS_STORE_BATCH_BLOCKS 512 /* this many new blocks do not wait for the time to pass */
/* An object with `dirty` set that no batch has. store->lock held. */
void ps_commit_append_locked(struct ps_object *object);
/* Is all in the index? store->lock held. */
bool ps_commit_done_locked(const struct ps_store *store);

/* A pin's row is to be written. store->lock held. */
void ps_commit_pins_locked(struct ps_store *store);

/* Takes an evicted object off the queue, so that nothing but its holders keeps its bytes. store->lock held,
 * and the caller has a ref of its own; no batch has it. */
void ps_commit_unqueue_locked(struct ps_object *object);

/* The index refused something: nothing is admitted until a later try succeeds. store->lock held. */
void ps_commit_retry_locked(struct ps_store *store);

/* Syncs -------------------------------------------------------------------------------------------------- */

/* Brings what the index names to the disk itself, in the background, so that a power cut costs seconds: a
 * thread syncs the data files that were written to, then the index's log, PS_STORE_SYNC_MS after the first
 * batch that is not yet safe. No thread waits for it, and what it has not reached is found by checksum
 * (blocks.c).
 *
 * Threads: any. Locks: takes store->lock, not over the disk. */

#define PS_STORE_SYNC_MS 2000

int ps_sync_start(struct ps_store *store) PS_MUST_USE;
/* Ends the thread; what is left is the caller's to sync. */
void ps_sync_stop(struct ps_store *store);

/* Is all that is in the index safe? store->lock held. */
bool ps_sync_done_locked(const struct ps_store *store);
/* An evicted object need not be safe. store->lock held, and the caller has a ref of its own. */
void ps_sync_unqueue_locked(struct ps_object *object);

/* Checks in the background ------------------------------------------------------------------------------- */

/* Checks what came unverified from the index, in the background, once the object was opened: its
 * readers are served by the daemon meanwhile, which checks the blocks they ask for first, and who opens it
 * afterwards gets it passed through.
 *
 * Threads: any. Locks: takes store->lock, not over the disk. */

int ps_check_start(struct ps_store *store) PS_MUST_USE;
void ps_check_stop(struct ps_store *store);

/* The object was opened. store->lock held. */
void ps_check_queue_locked(struct ps_object *object);

/* Pins --------------------------------------------------------------------------------------------------- */

/* Pins: what must stay in the cache though the policy would let it go.
 *
 * A pin is of a URL, and stands for the version of it that was opened last: when the origin has a new one,
 * the first open of that takes the pin over, and the old version may go. It outlives the data: what was
 * pinned and lost (a bad disk, a lowered quota) is pinned again when it comes back. All pins together fit
 * under the quota when they are made.
 *
 * Threads: any. Locks: "locked" functions need store->lock. Durability: rows go to the index with the next
 * batch. */

struct ps_pin {
	UT_hash_handle hh;
	struct ps_pin_row row;
	bool deleted;   /* goes when its row has gone */
	bool dirty;     /* the row is to be written */
	bool collected; /* the batch under way has it */
};

/* At the start: reads the rows and marks the entries. */
int ps_pins_load(struct ps_store *store) PS_MUST_USE;
void ps_pins_free(struct ps_store *store);

/* Locked. NULL: none of this URL. */
struct ps_pin *ps_pin_find(const struct ps_store *store, const char *url);
void ps_pin_free(struct ps_store *store, struct ps_pin *pin);
void ps_pin_id(const char *url, struct ps_id *ret);
/* Locked: is this version pinned? */
bool ps_pin_holds(const struct ps_object *object);
/* Locked: this version was opened. */
void ps_pin_follow(struct ps_object *object);
/* Locked. */
unsigned ps_pins_count(const struct ps_store *store);

/* Unpins what matches; without the lock. */
int ps_store_unpin(struct ps_store *store, bool (*matches)(const void *arg, const char *url), const void *arg,
        uint64_t *ret_objects, uint64_t *ret_nbytes);

/* Recovery ----------------------------------------------------------------------------------------------- */

/* What a start finds: rows and data files are brought together before anybody is served. Blocks on disk. */

/* Fills the table from the index; deletes data files that no row names, and rows whose file is gone or whose
 * text is damaged. Only for a directory with our marker. */
int ps_recover(struct ps_store *store, struct ps_scan *scan, struct ps_error *err) PS_MUST_USE;

#endif
