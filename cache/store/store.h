/* The store of one cache directory: object data in sparse files, presence and checksums in the index, the
 * quota.
 *
 * DIR is the given folder, or penstock-UID in it if other users may write to the given one
 * (ps_store_dir_find()).
 *
 *   DIR/penstock-cache   marker with the format's version; only a directory that has it is ever cleaned up
 *   DIR/lock             flock by the one process that serves this directory; holds its pid
 *   DIR/salt             32 random bytes, 0600: key for credential fingerprints
 *   DIR/index/           RocksDB (index.h)
 *   DIR/data/ab/abcdef.. sparse files named by object id, offsets equal to the object's own
 *
 * Ownership: objects are reference-counted; a held object stays readable (its descriptor is open) after its
 * eviction. Threads: any, except for open and close. Locks: store.lock, then object.lock; no callback is
 * called with either held. Errors: 0 or -errno. -EILSEQ: a block failed its checksum and was dropped.
 * -ENOSPC, -EDQUOT, -EROFS: the disk refuses the data, and the caller streams it. Durability: data is
 * written first (pwrite), the index second (in batches, at most PS_STORE_COMMIT_MS later, or by
 * ps_store_commit()). No read or fill waits for an fsync: a thread syncs PS_STORE_SYNC_MS later.
 * After a power cut, cached blocks are PS_BLOCK_UNVERIFIED; after a kill in the same boot, or a clean stop
 * (ps_store_close() did syncfs), they are present. */
#ifndef PS_STORE_STORE_H
#define PS_STORE_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/remote.h"

#define PS_BLOCK_SIZE (UINT64_C(1) << 20)
/* The unit of fetching for random readers: chunks of a block are stored and checked by themselves until the
 * block is whole. */
#define PS_CHUNK_SIZE (UINT64_C(1) << 16)
#define PS_BLOCK_CHUNKS 16
#define PS_STORE_COMMIT_MS 200

struct ps_store;
struct ps_index;
struct ps_object;
struct ps_plans;

struct ps_store_options {
	const char *dir; /* created 0700 if missing; its parent must exist; see ps_store_dir_find() */
	/* limit of the allocated bytes of data files; 0: the limit is folder_bytes */
	uint64_t limit_bytes;
	uint64_t folder_bytes; /* limit of the allocated bytes of all files in dir; 0: 80 % of the disk */
	/* space that always stays free on the disk; 0: the smaller of 1 GiB and 5 % */
	uint64_t min_free_bytes;
	const char *policy; /* "plan" (default, NULL), "lru" */
	/* pause before an object that failed its checksum is fetched again; 0: 60 s */
	uint64_t checksum_retry_ms;
	/* a folder of another program that shares the limit: the limit is lowered by the bytes that it takes;
	 * NULL: none */
	const char *beside;
	/* the folder's lock, which this process was given and takes over; 0: ps_store_open() takes it */
	int lock_fd;
	/* the process that gave the lock has looked for damage in the index, in this boot: see
	 * ps_index_open() */
	bool was_checked;
	bool must_exist; /* for verify and evict: -ENOENT instead of creating dir */
};

/* The umask sets the modes of the index's files. -EINVAL: the limit leaves no room for data beside the
 * index. -EBUSY: another process serves the directory (the text has its pid). -EPERM: the folder belongs to
 * another user. -ENOTEMPTY: the folder is not empty and has no marker. -EPROTO: a newer version wrote it.
 * An index that does not open is moved aside (index.broken-1), the data files are deleted, and one warning
 * is logged. Blocks on disk. */
int ps_store_open(
        const struct ps_store_options *options, struct ps_store **ret, struct ps_error *err) PS_MUST_USE;
/* Commits, calls syncfs, marks the stop as clean, frees the store. Precondition: all objects have been
 * put. */
void ps_store_close(struct ps_store *store);

/* The folder's lock; borrowed. If this process is killed, a process that has a copy of the lock still keeps
 * other processes from the folder. ps_store_close() releases the lock for all copies, unless
 * ps_store_keep_lock() was called. */
int ps_store_lock_fd(const struct ps_store *store);
/* keep: ps_store_close() does not release the lock, because another process has a copy. Initially true if
 * lock_fd was given. */
void ps_store_keep_lock(struct ps_store *store, bool keep);
struct ps_index *ps_store_index(struct ps_store *store);
/* The plans of loaders; NULL if the eviction policy does not use them. Their lock may be taken under the
 * store's. */
struct ps_plans *ps_store_plans(struct ps_store *store);
uint64_t ps_store_limit(const struct ps_store *store);
const char *ps_store_dir(const struct ps_store *store);
/* HMAC of `secret` under the directory's salt: distinguishes credentials without storing them. */
void ps_store_fingerprint(struct ps_store *store, const char *secret, struct ps_id *ret_id);

/* Objects ------------------------------------------------------------------------------------------------ */

/* Id of (canonical URL, version, view). The version is the strong ETag and the size; without a strong ETag,
 * the weak one, Last-Modified and the size. */
void ps_object_id(const char *url, const struct ps_remote *remote, const char *view, struct ps_id *ret_id);

/* Gets the object, loaded from the index or made in memory (without a file until it is admitted, without a
 * row until the first block is written). remote->size must be known (-EINVAL) and at most
 * PS_OBJECT_MAX_NBYTES (-EFBIG). `opened`: counts as an open of `dataset` for the eviction policy, and has
 * unverified blocks checked in the background. Blocks on the index and, the first time, on stat of the data
 * file. If the file's size is not the object's, its blocks are dropped; if its inode and times are not
 * those of the index, its blocks are unverified. */
int ps_object_get(struct ps_store *store, const char *url, const struct ps_remote *remote, uint32_t dataset,
        bool opened, struct ps_object **ret) PS_MUST_USE;
#define PS_OBJECT_MAX_NBYTES (UINT64_C(1) << 44)
/* The same for another view of the object at `url`: `source` is the version at the origin; `id` and `size`
 * are the view's. */
int ps_object_get_view(struct ps_store *store, const char *url, const struct ps_remote *source,
        const struct ps_id *id, uint64_t size, uint32_t dataset, bool opened,
        struct ps_object **ret) PS_MUST_USE;
/* Gets a view whose size is not known yet: an object with a size that no view reaches, cached by extents.
 * The caller writes the view's blocks except the last one, puts the object, and then calls
 * ps_store_set_size(), which cuts it. -ENOTSUP: this disk cannot have such a file. */
int ps_object_get_unsized(struct ps_store *store, const char *url, const struct ps_remote *source,
        const struct ps_id *id, struct ps_object **ret) PS_MUST_USE;
/* Sets the size of a view that ps_object_get_unsized() made. Precondition: no caller holds the object.
 * Waits for threads of the store that use the object. Blocks on disk and index. */
int ps_store_set_size(struct ps_store *store, const struct ps_id *id, uint64_t size) PS_MUST_USE;
struct ps_object *ps_object_ref(struct ps_object *object);
void ps_object_put(struct ps_object *object);

const char *ps_object_url(const struct ps_object *object);
/* the id that ps_object_id() made, or a view's own */
const struct ps_id *ps_object_key(const struct ps_object *object);
const struct ps_remote *ps_object_remote(const struct ps_object *object);
uint64_t ps_object_size(const struct ps_object *object);
uint64_t ps_object_nblocks(const struct ps_object *object);
uint64_t ps_object_block_nbytes(
        const struct ps_object *object, uint64_t block); /* PS_BLOCK_SIZE, except for the last block */
uint64_t ps_object_cached_nbytes(struct ps_object *object);
bool ps_object_complete(struct ps_object *object); /* every block present (and verified) */

enum ps_block_state { PS_BLOCK_ABSENT, PS_BLOCK_PARTIAL, PS_BLOCK_UNVERIFIED, PS_BLOCK_PRESENT };
/* Never blocks. PS_BLOCK_PRESENT promises that ps_object_fd() has the bytes. */
enum ps_block_state ps_object_block(struct ps_object *object, uint64_t block);
/* The chunks of the block whose bytes ps_object_fd() has (bit i: chunk i); none while it is unverified.
 * Never blocks. */
uint16_t ps_object_chunks(struct ps_object *object, uint64_t block);
int ps_object_fd(struct ps_object *object); /* borrowed while the object is held; -1 before it was admitted */

/* A large object (one that takes more than a quarter of the limit) is cached and evicted by extents of 64
 * blocks, any other as a whole. A large object's extents may be evicted while the object is held. So a
 * thread that reads its descriptor takes a hold of the range before it calls ps_object_block(), and
 * releases it after it has read the bytes. Until then a block that was PS_BLOCK_PRESENT stays so. For an
 * object that is cached as a whole (also if ps_object_pass_fd() has converted it), a hold holds no extents.
 * A hold keeps the object alive. Never blocks. -ENOMEM. */
struct ps_extent;
struct ps_hold {
	struct ps_object *object; /* NULL: nothing is held */
	struct ps_extent *extents[2];
	bool borrowed; /* the hold has no reference of the object */
};
/* nbytes: at most 64 MiB. */
int ps_object_hold(
        struct ps_object *object, uint64_t offset, uint64_t nbytes, struct ps_hold *ret) PS_MUST_USE;
/* The same, but without a reference: the caller keeps the object until the release. Takes the store's lock
 * at most once a second for each extent. */
int ps_object_hold_borrowed(
        struct ps_object *object, uint64_t offset, uint64_t nbytes, struct ps_hold *ret) PS_MUST_USE;
void ps_object_release(struct ps_hold *hold);

/* The descriptor of a complete, verified data file, for passthrough from now on; borrowed while the object
 * is held. -1: the file is not complete, or is still being compared with its origin's checksum, or is large
 * and not pinned (a large file that was passed through is evicted as a whole from then on). Blocks on the
 * index the first time for a large file. If the object is evicted while it is held, the file keeps its name
 * until the last put, and reads of callers that get the object meanwhile are streamed: unlinking the file
 * would wait for reads of the kernel's, and these may wait for the daemon. */
int ps_object_pass_fd(struct ps_object *object);
#define PS_DATA_NAME_LEN (5 + 2 + 1 + PS_ID_HEX_LEN + 1) /* data/ab/abcdef... */
/* The name of the data file below the cache directory. */
void ps_object_data_name(const struct ps_object *object, char ret_name[static PS_DATA_NAME_LEN]);
/* The absolute name of the data file, as this process sees it. After ps_object_pass_fd() it is the file's
 * name until the last put. -ENAMETOOLONG. Never blocks. */
int ps_object_data_path(const struct ps_object *object, char *ret_path, size_t nbytes) PS_MUST_USE;

/* Pinned objects are not evicted by policy, in this run and later ones. A pin belongs to a URL and follows
 * the version that was opened last. -ENOSPC: all pinned objects together would exceed the limit. Blocks on
 * the index. */
int ps_object_pin(struct ps_object *object, uint64_t *ret_nbytes) PS_MUST_USE;
int ps_object_unpin(struct ps_object *object, uint64_t *ret_nbytes) PS_MUST_USE;
bool ps_object_pinned(struct ps_object *object);
/* True if the object's URL is pinned, for this version or another. */
bool ps_object_url_pinned(struct ps_object *object);
/* The bytes that a pin of the object would add to "pinned_bytes"; 0: the object is pinned already. */
uint64_t ps_object_pin_nbytes(struct ps_object *object);

/* The ETag that came with data, for an object whose listing had none; "": none yet. Kept with the object.
 * Never blocks. */
void ps_object_learned_etag(struct ps_object *object, char ret[static PS_ETAG_LEN]);
void ps_object_learn_etag(struct ps_object *object, const char *etag);

/* Callers that share an object share its policy: the last call counts. */
void ps_object_checksum_policy(struct ps_object *object, enum ps_checksums policy);

/* The object's checksum as its origin gave it, in a form of base/checksum.h (other forms are ignored). A
 * thread of the store compares it once the object is complete. `sure`: it replaces another one that was
 * given before, and the object is compared again. Kept with the object. Never blocks. */
void ps_object_expect(struct ps_object *object, const char *checksum, bool sure);
enum ps_sum { PS_SUM_NONE, PS_SUM_PENDING, PS_SUM_MATCHED, PS_SUM_CORRUPT };
enum ps_sum ps_object_sum(struct ps_object *object);
/* True if the bytes did not match the checksum: the object was dropped, and must not be read any more.
 * Never blocks. */
bool ps_object_corrupt(const struct ps_object *object);
/* True if data of this id failed its checksum. now: the object must not be fetched again yet. nodes_below:
 * the kernel may have pages of the bad data for nodes with lower numbers. If failures were forgotten (too
 * many, or no memory), the result is true with text "" for every id, because any may have failed. False: no
 * failure is known. Never blocks. */
struct ps_refusal {
	bool now;
	uint64_t nodes_below;
	char text[PS_ERROR_TEXT_LEN];
};
bool ps_object_refusal(struct ps_object *object, struct ps_refusal *ret);

/* Takes room for the whole object under the quota and the floor of free space, evicting by policy objects
 * that are not open. 0: blocks may be written until the object is put or evicted. -ENOSPC: stream it
 * without the disk. Both results are remembered (-ENOSPC for PS_STORE_REFUSED_MS), so repeated calls are
 * cheap. Blocks on creating the file and on unlinking others. A large object is always admitted: each of
 * its blocks takes its room when it is written. */
#define PS_STORE_REFUSED_MS 1000
int ps_object_admit(struct ps_object *object) PS_MUST_USE;
/* True if the object was evicted or retired: no more of it is written, and its room is free once all
 * holders have put it. Never blocks. */
bool ps_object_gone(struct ps_object *object);
/* The limit, the bytes stored, and the further bytes reserved: for objects that are being fetched and, if
 * the limit is the folder's, for the index. Never blocks. */
void ps_store_room(struct ps_store *store, uint64_t *ret_limit_nbytes, uint64_t *ret_used_nbytes,
        uint64_t *ret_reserved_nbytes);
/* The bytes within the limit that are stored or that the disk has room for. Blocks on statvfs. */
uint64_t ps_store_reachable(struct ps_store *store);
/* True if an admitted object's room is reserved: it is not a large one. */
bool ps_object_is_reserved(struct ps_object *object);
/* True if the cache could hold all of the object. */
bool ps_object_fits(struct ps_object *object);
/* Writes a block: computes its CRC32C, writes the bytes (pwrite), sets its presence bit, queues its row for
 * the index. Returns 0 at once if the block is present already. Any number of threads, on different blocks.
 * -ENOSPC also if the object is not admitted (any more). Blocks on disk. A disk error (ENOSPC, EDQUOT,
 * EROFS, EIO) also ends the admission, and is logged once for each object. */
int ps_object_write_block(struct ps_object *object, uint64_t block, const void *data) PS_MUST_USE;
/* The same for chunks [first, first + n) of a block, n > 0; data has the bytes from chunk `first` on. Once
 * its last missing chunk is written, the block is present. */
int ps_object_write_chunks(
        struct ps_object *object, uint64_t block, unsigned first, unsigned n, const void *data) PS_MUST_USE;
/* Reads an unverified block, or its stored chunks, into buf (of the block's nbytes) and checks them. 0: they
 * are verified from now on. -EILSEQ: the block or its bad chunks were dropped; a read error drops them, too.
 * -ENOENT: nothing of the block is stored. Blocks on disk. */
int ps_object_verify_block(struct ps_object *object, uint64_t block, void *buf) PS_MUST_USE;
/* Drops blocks and file. Readers that hold the object can read the old descriptor until they put it; later
 * gets of the same id start empty. A large object's extents are evicted at once. *ret_nbytes: the bytes
 * that it occupied. */
int ps_object_evict(struct ps_object *object, uint64_t *ret_nbytes);
/* The same, but always as a whole: callers that hold this object never see data that is fetched for its id
 * from now on. */
int ps_object_retire(struct ps_object *object) PS_MUST_USE;

/* Writes all queued rows to the index. Blocks on disk. */
int ps_store_commit(struct ps_store *store);

/* The whole directory ------------------------------------------------------------------------------------ */

struct ps_verify_result {
	uint64_t objects, blocks, nbytes;   /* checked */
	uint64_t bad_blocks, missing_files; /* dropped from the index */
	uint64_t bad_objects;               /* failed their origin's checksum; dropped */
};
/* Checks every cached block against its CRC, and complete objects that were not compared yet against their
 * origin's checksum. Bad blocks and objects are dropped. progress may be NULL. Blocks on disk for long;
 * `stop` ends it with -ECANCELED. */
int ps_store_verify(struct ps_store *store,
        void (*progress)(void *arg, uint64_t done_nbytes, uint64_t total_nbytes), void *arg,
        const _Atomic bool *stop, struct ps_verify_result *ret);

/* Pins (or unpins) every cached object, or pinned URL, that matches a glob as in ps_store_evict();
 * *ret_nbytes: their size. -ENOSPC: with them, all pinned objects would take *ret_nbytes, which exceeds the
 * limit; nothing is changed. */
int ps_store_pin(struct ps_store *store, const char *const *globs, size_t n, bool pin, uint64_t *ret_objects,
        uint64_t *ret_nbytes);

/* Reports, in order, every pinned URL that matches a glob as in ps_store_evict(): the size of its pinned
 * version (or, if that is not known, the reserved bytes), and this version's cached bytes. fn returns 0 to go
 * on. Blocks on disk. */
int ps_store_each_pin(struct ps_store *store, const char *const *globs, size_t n,
        int (*fn)(void *arg, const char *url, uint64_t nbytes, uint64_t cached_nbytes),
        void *arg) PS_MUST_USE;

/* Evicts every object that is neither open nor pinned and matches a glob (fnmatch) with its whole URL or
 * with the last component of the URL's path. n == 0: all. */
int ps_store_evict(struct ps_store *store, const char *const *globs, size_t n, uint64_t *ret_objects,
        uint64_t *ret_nbytes);

/* The section "cache"; the caller owns it. Blocks on statvfs. */
json_t *ps_store_stats(struct ps_store *store);

/* The bytes that are stored of the objects that were last opened through this dataset, without those reserved. An
 * estimate while objects are added and evicted, because the lock is not held over all of them. */
uint64_t ps_store_dataset_nbytes(struct ps_store *store, uint32_t dataset);
/* True if objects were last opened through other datasets than this one. */
bool ps_store_has_others(struct ps_store *store, uint32_t dataset);

/* The directory ------------------------------------------------------------------------------------------ */

/* Finds and opens the folder that holds the cache of `dir`. This is `dir` itself, if only this user may
 * write to it, else penstock-UID in it, because other users could put links and files into `dir`. make: a
 * missing folder is created, but not the folders above `dir`. -EPERM: `dir` belongs to neither this user
 * nor root (also if this user is root), or other users may write to penstock-UID. -ENOENT. *ret_path is
 * absolute, malloced, and only for messages: a user who may rename a folder above may replace it. */
int ps_store_dir_find(
        const char *dir, bool make, int *ret_fd, char **ret_path, struct ps_error *err) PS_MUST_USE;
/* Takes the lock of the cache folder, for ps_store_options.lock_fd; makes the folder if it is missing.
 * *lock_fd: before the call, a descriptor that has the lock already, or 0; afterwards the lock. -EBUSY:
 * another process has it. */
int ps_store_dir_lock(const char *dir, int *ret_dir_fd, int *lock_fd, struct ps_error *err) PS_MUST_USE;

#endif
