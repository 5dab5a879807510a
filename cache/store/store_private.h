/* Types and functions that the files of the store share. These files are in layers; each uses only those
 * after it: store.c, recover.c, verify.c, object_checksum.c, admission.c, blocks.c (bytes), extent.c,
 * object.c (get, put, load), pins.c, commit.c (rows and syncs), evict.c (room), queues.c (objects that wait
 * for a thread; the last reference), presence.c (presence bits), quota.c, beside.c (another program's
 * folder); datafile.c and store_dir.c. There are three kinds of record:
 *
 *   item     the unit of quota and eviction: a whole data file, or an extent of one that is
 *            cached by extents (see Extents)
 *   entry    one for each data file: its items
 *   object   in memory while it is held or its rows are to be written: its blocks, its descriptor
 *
 * Life of an object (under store->lock):
 *
 *   LOADING ──loaded──▶ READY ──evict──▶ EVICTING ──rows deleted, file unlinked──▶ EVICTED
 *   └─ in store->objects: found by its id; a get waits while ──┘                   only its holders use it
 *      LOADING or EVICTING
 *
 * An object is freed when refs is 0: each caller holds one (counted in users, too), and each queue that it
 * is on (dirty, not synced, to be checked) holds one more. An entry that is being evicted is in
 * store->leaving instead of store->entries until its file is unlinked, whether an object exists or not.
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
#include "base/figures.h"
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

/* The bytes that the quota counts for an extent of a data file. */
struct ps_charge {
	uint64_t blocks;  /* bit set of blocks that are counted whole */
	uint16_t *chunks; /* counted chunks of the other blocks, PS_EXTENT_BLOCKS bit sets; NULL: none */
	uint32_t slot;    /* of its item; PS_NO_SLOT: it has none */
};

struct ps_entry {
	UT_hash_handle hh;
	struct ps_id id;
	uint32_t slot; /* of the whole file's item; PS_NO_SLOT: cached by extents */
	uint32_t nextents;
	/* only extents before this one may have rows in the index, which eviction deletes */
	uint32_t nrows;
	struct ps_charge *charges; /* one for each extent; NULL: the file is cached as a whole */
	uint32_t ncharged;         /* extents with an item */
	/* extents that are being evicted: meanwhile no thread may load, evict or convert the object */
	unsigned nleaving;
	bool seen;                /* found by the recovery's walk over data/ */
	bool pinned;              /* never chosen for eviction */
	struct ps_object *object; /* NULL: not held */
};

/* The entry and the extent that an item is for. */
struct ps_place {
	struct ps_entry *entry;
	uint32_t extent;
	bool leaving; /* the extent is being evicted */
};

/* An entry that is being evicted. If its rows cannot be deleted, it becomes a deleted entry. Until the rows
 * are deleted, no data file may be created for this id, because they would claim blocks that the new file
 * does not have. */
struct ps_leaving {
	UT_hash_handle hh;
	struct ps_id id;
	uint64_t nbytes;
	uint32_t nrows;
	struct ps_object *object; /* holds a ref, or NULL */
	/* the next entry that the same thread evicts, or the next deleted entry */
	struct ps_leaving *next;
	bool rows_left; /* the rows could not be deleted */
	bool in_batch;  /* a batch that deletes its rows is under way */
	bool named;     /* the object's last holder unlinks its file */
};

struct ps_extent {
	/* Read without the lock: present (acquire), then unverified. presence.c explains why this order is
	 * enough. */
	_Atomic uint64_t present, unverified;
	_Atomic(struct ps_extent_chunks *) chunks; /* of its partial blocks; presence.c */
	/* Used for objects cached by extents; see Extents. */
	_Atomic uint32_t nholds;
	_Atomic bool leaving;           /* none of its blocks counts as present; set under store->lock */
	_Atomic int64_t used_s;         /* when its last use was noted */
	int64_t saved_used_s;           /* used_s of its row, or of the row that is queued; store->lock */
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
	bool dirty;           /* on store->commit.dirty, which holds a reference */
	bool sync_queued;     /* on store->sync.queue, which holds a reference */
	bool committing;      /* its rows are being written; eviction waits for that */
	bool admitting;       /* a thread is making room for it */
	bool no_disk;         /* the index or the file could not be read: the object is streamed */
	bool after_deleted;   /* no_disk, until an earlier object's rows and file are deleted */
	bool failed;          /* a write failed and was logged */
	bool passed;          /* the kernel may read the file by itself */
	/* evicted, and on store->named: the last put unlinks its file */
	bool named;
	struct ps_object *next_named;
	/* some blocks were unverified in the index, and no background check was queued yet */
	bool unsure;
	/* the row in the index may have by_extent; it is cleared before the file is passed through */
	bool row_by_extent;
	struct ps_entry *entry; /* NULL: no file, or it is being evicted */
	uint64_t charge;        /* bytes that it still occupies after eviction */
	uint64_t refused_until_ns;
	uint32_t dataset;
	int64_t created_s, opened_s;

	char learned_etag[PS_ETAG_LEN]; /* of the first response, if the listing had none */
	char checksum[PS_CHECKSUM_LEN]; /* as the origin gave it; "": none */
	enum ps_checksums sum_policy;
	bool sum_matched;
	bool sum_warned; /* it does not match, and was reported: nothing more is done about it */
	bool sum_queued; /* on store->sum.queue, which holds a reference */
	struct ps_list sum_link;

	/* becomes false once the file may have been passed through, and stays false */
	_Atomic bool by_extent;
	_Atomic bool admitted;
	_Atomic bool corrupt;       /* never reset */
	_Atomic bool unsynced;      /* bytes were written since the last sync of the file */
	_Atomic uint64_t unwritten; /* bytes reserved for it and not written yet; part of store->unwritten */
	_Atomic uint64_t npresent, nunverified;
	_Atomic uint64_t ndropped;       /* blocks that were dropped as bad */
	_Atomic uint64_t partial_nbytes; /* in chunks of blocks that are not whole */
	_Atomic int fd;                  /* set once; stays open until the object is freed */
	/* another descriptor of the file, for direct writes; -1 if the file system has no O_DIRECT */
	_Atomic int direct_fd;

	/* protects dirty_first, dirty_end and the members of struct ps_extent whose comments name it */
	pthread_mutex_t lock;
	uint32_t dirty_first, dirty_end; /* extents; empty if first >= end */
	/* each allocated when first needed, and kept until the object is freed */
	_Atomic(struct ps_extent *) *extents;
};

struct ps_store {
	_Atomic uint64_t limit_nbytes; /* changes only if a folder shares the budget */
	/* Constant while open. */
	char *dir;
	int dir_fd, data_fd, index_fd, lock_fd;
	bool was_checked; /* as in the options */
	bool keeps_lock;  /* closing does not release it: another process has it, too */
	uint8_t salt[PS_SALT_LEN];
	struct ps_index *index;
	uint64_t min_free_nbytes;
	bool counts_folder; /* the limit is for all files in the folder; else for data files alone */
	bool is_small;
	uint64_t reserve_nbytes;
	/* the limit of data files when the store was opened; a file is large in proportion to it */
	uint64_t whole_nbytes;
	const struct ps_policy_ops *policy_ops;
	bool set_aside; /* the index was damaged: this start begins empty, and the log says so */
	struct ps_plans *plans;
	bool exact_mtimes; /* after the last stop, every row had its file's mtime */
	bool can_punch;    /* the file system can punch holes */

	pthread_mutex_t lock; /* protects all below that is not atomic */
	/* an object was loaded, evicted, committed or admitted; room was freed; a commit ended */
	pthread_cond_t changed;
	struct ps_object *objects;
	struct ps_entry *entries;
	struct ps_leaving *leaving;
	struct ps_leaving *deleted_entries; /* usually empty */
	struct ps_object *named;            /* usually empty; linked by next_named */
	struct ps_policy *policy;
	struct ps_policy_item *items; /* dense; places[i] has the entry of items[i] */
	struct ps_place *places;
	size_t *victims; /* as long as items; output of the policy's choose() */
	size_t nitems, items_cap;
	uint64_t open_seq;
	/* bytes of entries, of entries being evicted, and of evicted objects that are still open */
	uint64_t used_nbytes;
	uint64_t leaving_nbytes; /* part of used_nbytes that will be free soon */
	uint64_t held_nbytes;    /* part of used_nbytes that was evicted and is still open */
	struct ps_cache_counters counters;
	struct ps_pin *pins;
	uint64_t pinned_nbytes;
	bool pins_dirty; /* a pin's row is to be written */

	_Atomic uint64_t unwritten; /* reserved by admissions and not on disk yet */
	struct ps_log_rate no_file_rate, refusal_rate;
	_Atomic bool index_failed; /* the last commit failed: no object is admitted until one succeeds */
	bool failed_since;         /* another batch was refused since the commit under way began */

	/* Below: each file writes its own. Of commit, sync, check and sum, queues.c fills the queues. */
	struct { /* evict.c: see "Disk state"; the first two sizes are also written under store->lock */
		pthread_mutex_t lock;
		/* the bytes that the quota counts besides data files: allocated_nbytes, and the growth that
		 * may follow */
		_Atomic uint64_t index_nbytes;
		/* disk space of all files but data files, as last measured */
		_Atomic uint64_t allocated_nbytes;
		/* bytes that may be written before ps_folder_look() measures again */
		_Atomic uint64_t slack_nbytes;
	} room;
	struct {                    /* evict.c */
		_Atomic int errnum; /* 0: the disk takes data */
		_Atomic int64_t refused_s;
		_Atomic uint64_t wanted_nbytes;
	} disk;
	struct {                      /* object_checksum.c */
		uint64_t retry_ms;    /* constant */
		struct ps_list queue; /* of struct ps_object.sum_link */
		struct ps_refused *refused;
		/* refusals that were forgotten (too many, or no memory) concerned nodes with lower numbers;
		 * 0: none was forgotten */
		uint64_t forgotten_below;
		/* main function of the thread, which starts when first needed; constant */
		void *(*main)(void *store);
		struct ps_worker worker;
		_Atomic bool stop;
		/* the last object that did not match its origin's checksum */
		char error[PS_ERROR_TEXT_LEN];
		int64_t error_s;
	} sum;
	struct { /* commit.c */
		struct ps_worker worker;
		bool running;
		bool told_of_refusal; /* the index's refusal was logged; used by the commit thread only */
		struct ps_list dirty; /* of struct ps_object.dirty_link */
		uint64_t ndirty_blocks;
		uint64_t dirty_since_ns, retry_at_ns;
	} commit;
	struct { /* commit.c */
		struct ps_worker worker;
		bool running;
		struct ps_list queue; /* of struct ps_object.sync_link */
		size_t nqueued;
		uint64_t since_ns; /* 0: all batches are synced */
		/* a data file's sync failed since the start: what the index names may be lost */
		bool failed;
	} sync;
	struct { /* verify.c */
		struct ps_worker worker;
		struct ps_list queue; /* of struct ps_object.check_link */
	} check;
	struct { /* beside.c */
		struct ps_worker worker;
		char *dir;              /* a folder that shares the budget; NULL: none */
		uint64_t budget_nbytes; /* of both */
	} beside;
};

/* object.c */

/* The size that is assumed for an object of unknown size: more than a quarter of any quota, and small
 * enough for its array of extents and for ext4. */
#define PS_OBJECT_UNSIZED_NBYTES (UINT64_C(1) << 43)

/* As ps_object_get() without `opened`, for an object that has a row; *ret NULL: it has none, or a damaged one.
 * *ret_any: the row has stored bytes. */
int ps_object_get_stored(
        struct ps_store *store, const struct ps_id *id, struct ps_object **ret, bool *ret_any) PS_MUST_USE;
/* The disk space that the complete object may take: its blocks and the file system's map of them. */
uint64_t ps_object_full_charge(const struct ps_object *object);
uint32_t ps_nextents_of_size(uint64_t size);
void ps_object_free(struct ps_object *object);
/* store->lock held; may be dropped to free the object. */
void ps_object_unref_locked(struct ps_object *object);

/* quota.c: store->lock is held for all functions. */

/* An entry with one item for the whole file. NULL: out of memory. */
struct ps_entry *ps_quota_add(
        struct ps_store *store, const struct ps_id *id, uint32_t nextents, uint64_t nbytes);
/* An entry cached by extents, none of which is charged yet. NULL: out of memory. */
struct ps_entry *ps_quota_add_by_extent(struct ps_store *store, const struct ps_id *id, uint32_t nextents);
struct ps_entry *ps_quota_find(struct ps_store *store, const struct ps_id *id);
/* Frees the entry. Its bytes are still counted in used_nbytes; the caller subtracts them. */
void ps_quota_remove(struct ps_store *store, struct ps_entry *entry);
/* The bytes of all its items. */
uint64_t ps_quota_nbytes(const struct ps_store *store, const struct ps_entry *entry);
/* The item of an entry that is cached as a whole. */
struct ps_policy_item *ps_quota_item(struct ps_store *store, const struct ps_entry *entry);
/* Sets the bytes of that item, and updates used_nbytes. */
void ps_quota_charge(struct ps_store *store, struct ps_entry *entry, uint64_t nbytes);
/* The item of an extent, or NULL. */
struct ps_policy_item *ps_quota_extent(struct ps_store *store, const struct ps_entry *entry, uint32_t extent);
/* The same, made with nothing charged if there is no item. NULL: out of memory. */
struct ps_policy_item *ps_quota_extent_make(struct ps_store *store, struct ps_entry *entry, uint32_t extent);
/* Removes the extent's item and its charge. */
void ps_quota_extent_drop(struct ps_store *store, struct ps_entry *entry, uint32_t extent);
/* From now on the file is charged as a whole. */
int ps_quota_make_whole(struct ps_store *store, struct ps_entry *entry) PS_MUST_USE;
/* Recomputes whether its items may be chosen for eviction; call it after a change of holders or pins. */
void ps_quota_update_busy(struct ps_store *store, const struct ps_entry *entry);
void ps_quota_free(struct ps_store *store);

/* The directory ------------------------------------------------------------------------------------------ */

/* The cache directory: creation, marker, lock and salt. Only the process that holds the lock may clean up
 * in it.
 *
 * Ownership: descriptors and paths are the caller's. Threads: one. Errors: -errno with a text for a person.
 * Blocks on disk; marker and salt are fsynced, once in a directory's life. */

#define PS_MARKER_NAME "penstock-cache"
#define PS_MARKER_FORMAT 2 /* 1: never released */

/* Opens a subfolder, created with mode 0700 if missing; refuses a symbolic link and another user's folder.
 * Returns the descriptor. */
int ps_store_dir_sub(int dir_fd, const char *path, const char *name, struct ps_error *err) PS_MUST_USE;

/* Finds the directory (or creates it), takes its lock, checks its marker. given_lock_fd: a descriptor that
 * has the lock already, or 0. *ret_path is absolute, malloced. */
int ps_store_dir_open(const char *dir, bool must_exist, int given_lock_fd, int *ret_dir_fd, int *ret_lock_fd,
        char **ret_path, struct ps_error *err) PS_MUST_USE;
/* Releases the lock, also for copies of the descriptor, and closes the descriptor. */
void ps_store_dir_unlock(int fd);
/* Returns rc, with the text for a disk that is full. */
int ps_store_dir_no_room(const char *dir, int rc, uint64_t nbytes, struct ps_error *err);
/* Reads nbytes of salt, which is created if there is none. */
int ps_store_dir_salt(
        int dir_fd, const char *path, uint8_t *ret_salt, size_t nbytes, struct ps_error *err) PS_MUST_USE;
/* Renames a damaged index to index.broken-1, and logs this with err's text. The previous one becomes
 * index.broken-2; older ones are removed. */
int ps_store_dir_set_aside(int dir_fd, const char *path, struct ps_error *err) PS_MUST_USE;

/* Creates the reserve, a file of nbytes. Opening the index writes; if the disk is full then, the reserve is
 * deleted to make room. It is created only if the disk has room for twice its size, and replaced if its
 * size is not nbytes. nbytes 0: it is left as it is. */
#define PS_RESERVE_NBYTES (UINT64_C(16) << 20)
#define PS_RESERVE_SMALL_NBYTES (UINT64_C(4) << 20)
void ps_store_dir_reserve(int dir_fd, uint64_t nbytes);
/* False: there was no reserve. */
bool ps_store_dir_give_up_reserve(int dir_fd);

/* The disk space of the directory without data files. It includes the folders of data files and a reserve
 * of reserve_nbytes, whether they exist or not. *ret_sorted_nbytes: the disk space of the index's sorted
 * files (*.sst). */
uint64_t ps_store_dir_measure(int dir_fd, int data_fd, uint64_t reserve_nbytes, uint64_t *ret_sorted_nbytes);

/* Data files --------------------------------------------------------------------------------------------- */

/* Data files: the bytes of one object each, sparse, at data/ab/abcdef..., offsets equal to the object's
 * own.
 *
 * Ownership: descriptors belong to the caller. Threads: any; one file is created by one thread at a time.
 * Errors: 0 or -errno. Durability: page cache only. Blocks on disk. */

/* Creates a file of `size` bytes, all hole. An existing file of that name is a leftover: it is unlinked,
 * never truncated (it may still be read). */
int ps_datafile_create(int data_fd, const struct ps_id *id, uint64_t size, int *ret_fd) PS_MUST_USE;
/* Opens for reading and writing; on a read-only file system for reading only (*ret_writable). -ENOENT. */
int ps_datafile_open(int data_fd, const struct ps_id *id, int *ret_fd, bool *ret_writable) PS_MUST_USE;
/* A second descriptor, for direct writes past the page cache: so a cold stream does not fill memory with
 * bytes that its reader already has, and the kernel has nothing to write back (measured: 0.13 CPU s/GB
 * against 0.37, and 2.6 where the pages are fresh). -1 if the file system does not support it. */
int ps_datafile_open_direct(int data_fd, const struct ps_id *id);
/* Sets the kernel's read-ahead. While blocks are missing, the kernel must not read ahead into holes: it
 * would cache pages of zeros, which stay stale if they are in use while a direct write fills the block.
 * Whole files are read ahead as usual. */
void ps_datafile_read_ahead(int fd, bool whole);
int ps_datafile_unlink(int data_fd, const struct ps_id *id); /* 0 also if it is not there */

/* Writes through direct_fd if there is one and the alignment allows it, else through fd. */
int ps_datafile_write_direct(
        int direct_fd, int fd, const void *bytes, size_t nbytes, uint64_t offset) PS_MUST_USE;
/* Reads all of nbytes; else -ENODATA at the end of the file, or another -errno. */
int ps_datafile_read(int fd, void *ret_bytes, size_t nbytes, uint64_t offset) PS_MUST_USE;

/* Punches a hole: frees the blocks of a range, which reads as zeros afterwards. */
int ps_datafile_punch(int fd, uint64_t offset, uint64_t nbytes) PS_MUST_USE;
/* True if holes can be punched into files of this folder; tries it with a file. */
bool ps_datafile_can_punch(int data_fd);
int64_t ps_datafile_mtime_ns(const struct stat *st);
int64_t ps_datafile_ctime_ns(const struct stat *st);

/* Calls fn for every data file, and skips other files in data/. A non-zero return of fn ends the walk. fn
 * may unlink the file. */
int ps_datafile_each(int data_fd, int (*fn)(void *arg, const struct ps_id *id, const struct stat *st),
        void *arg) PS_MUST_USE;

/* Scan of the data files --------------------------------------------------------------------------------- */

/* The data files, and how much of the disk each takes. A separate thread looks them up while the index is
 * opened: with a hundred thousand files, a start without it would take twice as long.
 *
 * Ownership: start makes the scan, free ends it. Threads: the one that starts the store. ps_recover(), which
 * reads the scan, and ps_scan_free() wait for that thread, and so for the disk. */

struct ps_scan;

/* data_fd stays the caller's. NULL: out of memory. */
struct ps_scan *ps_scan_start(int data_fd);
void ps_scan_free(struct ps_scan *scan);

/* Presence (presence.c) ---------------------------------------------------------------------------------- */

static inline uint64_t ps_block_bit(uint64_t block)
{
	return UINT64_C(1) << (block % PS_EXTENT_BLOCKS);
}

/* NULL: no byte of the extent was ever there. */
static inline struct ps_extent *ps_extent_of(struct ps_object *object, uint64_t block)
{
	return atomic_load_explicit(&object->extents[block / PS_EXTENT_BLOCKS], memory_order_acquire);
}

struct ps_extent_chunks {
	_Atomic uint16_t there[PS_EXTENT_BLOCKS];
	/* PS_BLOCK_CHUNKS each, allocated when first needed; object->lock */
	uint32_t *crcs[PS_EXTENT_BLOCKS];
};

struct ps_extent *ps_extent_make(struct ps_object *object, uint64_t block); /* takes object->lock */
void ps_extent_free(struct ps_extent *extent);                              /* NULL is allowed */
/* The extent's row is to be written. */
void ps_object_dirty_extent(struct ps_object *object, uint32_t extent);

/* Stored bytes of the block, verified or not. */
uint64_t ps_object_block_cached_nbytes(struct ps_object *object, uint64_t block);
uint64_t ps_chunk_nbytes(const struct ps_object *object, uint64_t block, unsigned chunk);
uint64_t ps_chunks_nbytes(const struct ps_object *object, uint64_t block, uint16_t set);
/* The set of all chunks of the block, in an object of `size` bytes (the last block may have fewer). */
uint16_t ps_chunks_all_of(uint64_t size, uint64_t block);
uint16_t ps_chunks_all(const struct ps_object *object, uint64_t block);
/* The stored chunks of a partial block; 0: none. Not defined for a whole block. */
uint16_t ps_chunks_there(const struct ps_extent *extent, uint64_t block);
struct ps_extent_chunks *ps_chunks_of(const struct ps_extent *extent);

/* Below: object->lock is held, or no other thread has the object. */

/* The extent's row is to be written; ps_commit_queue_locked() has to follow without the object's lock. */
void ps_extent_touch(struct ps_object *object, struct ps_extent *extent, uint64_t block);
/* ps_chunks_load() takes the chunks of partial blocks from a row, except for blocks that are not in `mask`;
 * ps_chunks_store() fills them into a row. */
int ps_chunks_load(struct ps_object *object, struct ps_extent *extent, uint32_t number,
        const struct ps_extent_row *row, uint64_t mask) PS_MUST_USE;
void ps_chunks_store(const struct ps_extent *extent, struct ps_extent_row *row);
/* The CRCs of a block's chunks, allocated if necessary; NULL: out of memory. */
uint32_t *ps_chunks_crcs_make(struct ps_extent *extent, uint64_t block);
/* Sets which chunks of the block are stored. Precondition: the block is not whole. */
void ps_chunks_set(struct ps_object *object, struct ps_extent *extent, uint64_t block, uint16_t set);
/* All chunks are stored: makes the block a whole one. */
void ps_chunks_join(struct ps_object *object, struct ps_extent *extent, uint64_t block);
/* The block has become whole, or absent (drop); call these before its bit in `present` changes. */
void ps_chunks_whole(struct ps_object *object, struct ps_extent *extent, uint64_t block);
void ps_chunks_drop(struct ps_object *object, struct ps_extent *extent, uint64_t block);

/* Extents ------------------------------------------------------------------------------------------------ */

/* Large objects, which take more than a quarter of the quota, are cached and evicted by extents of 64
 * blocks. So no file need be evicted as a whole to make room for a part of another.
 *
 * Each block takes its room when it is written. To the eviction policy an extent is like a file: its
 * "opens" are its uses, noted once a second. Evicting an extent deletes its row, then punches a hole into
 * the data file. Threads that use the bytes hold the extent:
 *
 *   reader, verifier   hold, look if the block is present, read, release
 *   writer             take (room, and a hold), write, present, release
 *   eviction           leaving (none of its blocks is present from now on, none is written), wait until
 *                      it is not held and no batch with its row is under way, delete the row, punch, gone
 *
 * A hole in a file that the kernel reads by itself would silently read as zeros. So a file that was ever
 * passed through is cached as a whole from then on, and evicted by unlinking (ps_object_pass_fd()). The
 * object's row keeps this, because readers survive a killed daemon; they do not survive a reboot.
 *
 * A kill between the deletion of the row and the hole leaves bytes that no row describes; the next start
 * punches them out.
 *
 * Threads: any. Locks: takes store->lock, then object->lock; neither over disk or index. */

#define PS_EXTENT_NBYTES (PS_EXTENT_BLOCKS * PS_BLOCK_SIZE)

/* True if a file of this size is cached by extents. A file that fits and has a single extent is not:
 * nothing would be gained, and it could not be passed through. */
bool ps_extents_apply(const struct ps_store *store, uint64_t size);

/* The maximum size of one extent's part of the file system's map of the file. */
#define PS_EXTENT_MAP_NBYTES UINT64_C(16384)

/* For the start: creates an extent's item, which counts the chunks that the extent's row names. store->lock
 * held. */
int ps_extent_add(struct ps_store *store, struct ps_entry *entry, const struct ps_object_row *object,
        uint32_t extent, const struct ps_extent_row *row) PS_MUST_USE;

/* Takes room for chunks of a block that are about to be written, and a hold of their extent, *ret_extent.
 * -ENOSPC: no room, which is remembered for PS_STORE_REFUSED_MS. -ENOMEM. Precondition: the object is
 * admitted. An object that is not cached by extents has its room already. Blocks on evictions: index and
 * disk. */
int ps_extent_take(
        struct ps_object *object, uint64_t block, uint16_t chunks, struct ps_extent **ret_extent) PS_MUST_USE;
void ps_extent_release(struct ps_object *object, struct ps_extent *extent);

/* The disk space of these chunks of a block, in a file of `size` bytes. */
uint64_t ps_chunks_disk_nbytes(uint64_t size, uint64_t block, uint16_t set);

/* evict.c: an extent that is being evicted. */
struct ps_extent_out {
	struct ps_entry *entry; /* is not freed while entry->nleaving > 0 */
	/* holds a reference; NULL: the object is not open, and cannot be opened until the eviction is
	 * over */
	struct ps_object *object;
	uint32_t extent;
	uint64_t nbytes;
	struct ps_extent_out *next;
	bool done;
};
/* Evicts all extents of an object that the caller holds; *ret_nbytes: the bytes that they occupied. */
int ps_extents_evict(struct ps_object *object, uint64_t *ret_nbytes) PS_MUST_USE;

/* For the start, once the entries are filled from the rows: punches out the bytes of a data file that no
 * row names. */
int ps_extents_recover(struct ps_store *store, const struct ps_entry *entry) PS_MUST_USE;

/* Checksums of objects ----------------------------------------------------------------------------------- */

/* Checksums of whole objects, as their origins gave them. A thread of low priority compares an object once
 * all of its blocks are stored, so that no read waits for it. An object with a checksum is not passed
 * through before it has matched.
 *
 *                complete                 equal
 *   (unknown) ──────────────▶ queued ───────────────▶ matched (saved in its row; until a block is dropped)
 *       ▲                        │ unequal
 *       └── another checksum     ▼
 *                             corrupt: retired, its holders' reads fail, its id is not fetched for a while,
 *                             longer each time: PS_SUM_RETRY_MS, doubled up to PS_SUM_RETRY_MAX_MS
 *
 * An object that is cached by extents is compared only if all of its extents are stored at the same time.
 *
 * Threads: any. Locks: store->lock. */

#define PS_SUM_RETRY_MS 60000
#define PS_SUM_RETRY_MAX_MS (3600 * 1000)
/* ids remembered; beyond that the oldest is forgotten, and may be fetched again at once */
#define PS_SUM_REFUSED 4096

/* Call it after blocks of the object were written or dropped: queues a comparison if the object is complete
 * and not compared yet. store->lock held. */
void ps_object_checksum_look(struct ps_object *object);
/* Compares the object now, if it is complete and has not matched yet. 0: it matched, or there is nothing to
 * compare. -EBADMSG: it is corrupt, and retired. Blocks on disk. */
int ps_object_checksum_check(struct ps_object *object);
void ps_object_checksum_init(struct ps_store *store);
/* Ends the thread; queued objects are compared when they are loaded again. */
void ps_object_checksum_stop(struct ps_store *store);
void ps_object_checksum_free(struct ps_store *store);

/* Disk state --------------------------------------------------------------------------------------------- */

/* Records whether the disk takes data: the result of the last write, reservation or commit. If the limit is
 * the folder's, also measures the space that the folder takes besides data files.
 *
 * Most of that space is the index, which grows with each name, and which writes new files before it deletes
 * those that they replace. So the quota counts the size to which the index may grow (index_nbytes), and
 * data is evicted before the index takes the room.
 *
 * Threads: any. Locks: index_lock, held while the folder is measured and data is evicted; then store.lock. */

/* The disk refused data, for lack of wanted_nbytes or for another reason. e: -errno. */
void ps_disk_refused(struct ps_store *store, int e, uint64_t wanted_nbytes);
/* The disk took data. */
void ps_disk_took(struct ps_store *store);
/* The disk's free space above the floor, by statvfs; UINT64_MAX if that fails. */
uint64_t ps_disk_room(const struct ps_store *store);
/* 0, or the errno of the refusal, and its time in seconds since 1970. Looks at the disk: a full one may
 * have room by now. */
int ps_disk_error(struct ps_store *store, int64_t *ret_since_s);

/* Measures the folder, and counts the size to which its index may grow. Call it once before other threads
 * use the store, and before each commit, while no object is marked as committing: an eviction waits until
 * its object's commit has ended. -EDQUOT: the limit is too low, whatever is evicted. Blocks on disk. */
int ps_folder_look(struct ps_store *store) PS_MUST_USE;
/* The callback for ps_index_on_growth(). */
int ps_folder_room(void *store, size_t nbytes) PS_MUST_USE;
/* The part of the limit that data files may use. */
uint64_t ps_store_data_limit(const struct ps_store *store);

/* Room and eviction -------------------------------------------------------------------------------------- */

/* Room on disk: the quota, the floor of free space, and evictions where they do not suffice.
 *
 * While a data file is being filled, the quota counts the size to which it may grow (reserved at
 * admission), otherwise the space that it occupies. An evicted file is counted until its last holder has
 * put it. Room is taken before the first byte is written and given back after the file is unlinked and
 * closed, so that the limit holds at every instant. The floor is compared with the free space of statvfs
 * less the bytes that are reserved and not yet written.
 *
 * Threads: any. Locks: takes store->lock, never over disk. Blocks on the index and on unlink. */

/* A request for room. */
struct ps_wish {
	uint64_t add;                   /* bytes that the quota does not count yet */
	uint64_t unwritten;             /* bytes that are neither on disk nor in store->unwritten yet */
	const struct ps_object *object; /* the object whose data needs it; NULL: none */
	bool pinned;                    /* may evict objects that are in use, but not open */
};
/* State of an attempt to make room: rounds of look (without the lock) and try (with it). */
struct ps_room {
	uint64_t disk, first_disk, freed;
	bool looked;
};
void ps_room_look(struct ps_store *store, struct ps_room *room);
/* 0: there is room, as long as store->lock stays held. -EAGAIN: something was evicted, look again. -ENOSPC:
 * no room. store->lock held; dropped during evictions. */
int ps_room_try(struct ps_store *store, struct ps_room *room, const struct ps_wish *wish) PS_MUST_USE;

/* Reserves room for the whole object, evicting by policy; makes its entry if there is none. -ENOSPC: no
 * room. The caller holds the object and has marked it as admitting. Without store->lock. */
int ps_room_take(struct ps_object *object) PS_MUST_USE;

/* Call it when the last holder has put the object: from now on the quota counts the space that the object
 * occupies. Without store->lock; the caller has a reference. */
void ps_room_settle(struct ps_object *object);

/* Begins the eviction of an entry, none of whose extents is leaving: takes it out of the table; its object
 * (if any) becomes EVICTING. store->lock held. NULL: out of memory. The caller passes the result, or a list
 * of them (by next), to ps_leaving_finish(). */
struct ps_leaving *ps_leaving_begin(struct ps_store *store, struct ps_entry *entry) PS_MUST_USE;
/* Deletes rows, unlinks files, gives the room back. Without store->lock. */
void ps_leaving_finish(struct ps_store *store, struct ps_leaving *list);

/* For a limit that was lowered, between two runs or by a folder that shares it: evicts objects that are not
 * open, in use or not, pinned ones last, until the limit holds. */
void ps_room_trim(struct ps_store *store);

/* True if this is the id of an evicted object whose rows or file still exist. Reads of it are streamed
 * meanwhile. store->lock held. */
bool ps_deleted_entry_find(struct ps_store *store, const struct ps_id *id);
/* Tries again to delete the rows of deleted entries. One thread at a time (the one that commits). Without
 * store->lock. */
int ps_deleted_entries_clear(struct ps_store *store);

/* Commits ------------------------------------------------------------------------------------------------ */

/* The queue of objects whose rows are to be written. A thread writes them to the index, in a batch every
 * PS_STORE_COMMIT_MS, or sooner after PS_STORE_BATCH_BLOCKS new blocks.
 *
 * If the index refuses a write (a full disk), store->index_failed stops admissions, and the thread tries
 * every few seconds to open the index again and to write. The queue stays in memory until then.
 *
 * Threads: any. Locks: takes store->lock, then object->lock, neither over the index. */

int ps_commit_start(struct ps_store *store) PS_MUST_USE;
/* Writes the rest of the queue and ends the thread. 0: the index has everything. */
int ps_commit_stop(struct ps_store *store) PS_MUST_USE;

/* Queues the object: nblocks blocks were stored that its rows do not have yet (0: only its object row has
 * to be written). store->lock held. */
void ps_commit_queue_locked(struct ps_object *object, uint64_t nblocks);

/* True if no row is queued. store->lock held. */
bool ps_commit_idle_locked(const struct ps_store *store);
#define PS_STORE_BATCH_BLOCKS 512 /* a batch of this many new blocks does not wait for PS_STORE_COMMIT_MS */
/* Appends an object to the queue. Preconditions: its `dirty` is set, and no batch under way has it.
 * store->lock held. */
void ps_commit_append_locked(struct ps_object *object);
/* True if the index has everything. store->lock held. */
bool ps_commit_done_locked(const struct ps_store *store);

/* Has the commit thread write a pin's row. store->lock held. */
void ps_commit_pins_locked(struct ps_store *store);

/* Takes an evicted object off the queue, so that its bytes are freed when the last holder puts it.
 * store->lock held; the caller has a reference of its own, and no batch under way has the object. */
void ps_commit_unqueue_locked(struct ps_object *object);

/* The index refused a write: no object is admitted until a later one succeeds. store->lock held. */
void ps_commit_retry_locked(struct ps_store *store);

/* Syncs -------------------------------------------------------------------------------------------------- */

/* Syncs data and index in the background, so that a power cut costs only seconds of data. A thread syncs
 * the data files that were written to, then the index's log, PS_STORE_SYNC_MS after the first batch that is
 * not synced. No thread waits for it. After a power cut, blocks that were not synced are found by their
 * CRCs (blocks.c).
 *
 * Threads: any. Locks: takes store->lock, not over the disk. */

#define PS_STORE_SYNC_MS 2000

/* From now on the limit is lowered by the bytes that `dir` takes; NULL: it is not lowered. Blocks on disk. */
int ps_beside_start(struct ps_store *store, const char *dir) PS_MUST_USE;
void ps_beside_stop(struct ps_store *store);

int ps_sync_start(struct ps_store *store) PS_MUST_USE;
/* Ends the thread; the caller syncs the rest. */
void ps_sync_stop(struct ps_store *store);

/* True if everything in the index is synced. store->lock held. */
bool ps_sync_done_locked(const struct ps_store *store);
/* Takes an evicted object off the queue: it need not be synced. store->lock held; the caller has a
 * reference of its own. */
void ps_sync_unqueue_locked(struct ps_object *object);

/* Checks in the background ------------------------------------------------------------------------------- */

/* Checks, in the background, the unverified blocks of objects that were opened. Meanwhile the daemon serves
 * an object's readers, and checks each block before they get its bytes; later opens get passthrough.
 *
 * Threads: any. Locks: takes store->lock, not over the disk. */

int ps_check_start(struct ps_store *store) PS_MUST_USE;
void ps_check_stop(struct ps_store *store);

/* Call it when the object was opened: queues the check of its unverified blocks. store->lock held. */
void ps_check_queue_locked(struct ps_object *object);

/* Pins --------------------------------------------------------------------------------------------------- */

/* Pins: objects that stay in the cache whatever the eviction policy says.
 *
 * A pin belongs to a URL, and covers the version that was opened last: with the first open of a new
 * version, the pin covers that version, and the old one may be evicted. A pin outlives its data: an object
 * that was lost (a bad disk, a lowered quota) is pinned again once it is fetched again. A pin is made only
 * if all pins together fit under the quota.
 *
 * Threads: any. Locks: "locked" functions need store->lock. Durability: rows go to the index with the next
 * batch. */

struct ps_pin {
	UT_hash_handle hh;
	struct ps_pin_row row;
	bool deleted;   /* freed once its row is deleted */
	bool dirty;     /* the row is to be written */
	bool collected; /* its row is in the batch under way */
};

/* For the start: reads the rows and marks the entries. */
int ps_pins_load(struct ps_store *store) PS_MUST_USE;
void ps_pins_free(struct ps_store *store);

/* Locked. The pin of a URL; NULL: none. */
struct ps_pin *ps_pin_find(const struct ps_store *store, const char *url);
void ps_pin_free(struct ps_store *store, struct ps_pin *pin);
void ps_pin_id(const char *url, struct ps_id *ret);
/* Locked. True if this version is pinned. */
bool ps_pin_holds(const struct ps_object *object);
/* Locked. This version was opened: the pin of its URL covers it from now on. */
void ps_pin_follow(struct ps_object *object);
/* Locked. The number of pins. */
unsigned ps_pins_count(const struct ps_store *store);

/* Unpins all URLs that match; without the lock. */
int ps_store_unpin(struct ps_store *store, bool (*matches)(const void *arg, const char *url), const void *arg,
        uint64_t *ret_objects, uint64_t *ret_nbytes);

/* Recovery ----------------------------------------------------------------------------------------------- */

/* Recovery at a start: compares rows and data files before any read is served. Blocks on disk. */

/* Fills the entries from the index. Deletes data files that no row names, and rows whose file is missing or
 * that do not parse. Only for a directory with Penstock's marker. */
int ps_recover(struct ps_store *store, struct ps_scan *scan, struct ps_error *err) PS_MUST_USE;

#endif
