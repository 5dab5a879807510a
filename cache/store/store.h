/* The store of one cache directory: object data in sparse files, presence and checksums in the index, the
 * quota.
 *
 * DIR is the folder given, or penstock-UID in it if others may write to that (ps_store_dir_find()).
 *
 *   DIR/penstock-cache   marker with the format's version; only a directory that has it is ever cleaned up
 *   DIR/lock             flock by the one process that serves this directory; holds its pid
 *   DIR/salt             32 random bytes, 0600: key for credential fingerprints
 *   DIR/index/           RocksDB (index.h)
 *   DIR/data/ab/abcdef.. sparse files named by object id, offsets equal to the object's own
 *
 * Ownership: objects are reference-counted; a handle's object stays readable (its fd open) though evicted.
 * Threads: any, but open and close.   Locks: store.lock, then object.lock; nothing is called with either held.
 * Errors: 0 or -errno. -EILSEQ: a block failed its checksum and was dropped. -ENOSPC, -EDQUOT, -EROFS: the
 * disk does not take it; the caller streams. Durability: data first (pwrite), index second (batched, at most
 * PS_STORE_COMMIT_MS later, or by ps_store_commit()). No fsync on any read or fill path: a thread syncs
 * PS_STORE_SYNC_MS (commit.c) later. After a power cut blocks come back as PS_BLOCK_UNVERIFIED; after a kill
 * in the same boot, or a clean stop (ps_store_close() did syncfs), as present. */
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
/* What a random reader fetches: parts of a block, which are kept and checked by themselves until it is whole.
 */
#define PS_CHUNK_SIZE (UINT64_C(1) << 16)
#define PS_BLOCK_CHUNKS 16
#define PS_STORE_COMMIT_MS 200

struct ps_store;
struct ps_index;
struct ps_object;
struct ps_plans;

struct ps_store_options {
	const char *dir; /* created 0700 if missing; its parent must exist; see ps_store_dir_find() */
	/* allocated bytes of data files never exceed it; 0: the limit is folder_bytes */
	uint64_t limit_bytes;
	uint64_t folder_bytes;   /* allocated bytes of all in dir never exceed it; 0: 80 % of the disk */
	uint64_t min_free_bytes; /* nor is the disk filled past this floor; 0: the smaller of 1 GiB and 5 % */
	const char *policy;      /* "plan" (default, NULL), "scan", "lru" */
	uint64_t checksum_retry_ms; /* before what did not match its checksum is fetched again; 0: 60 s */
	bool must_exist;            /* for verify and evict: -ENOENT instead of creating */
};

/* The modes of the index's files are the umask's to set. -EINVAL: no data fits beside the index. -EBUSY:
 * served by another process (its pid in the text). -EPERM: the folder is another user's. -ENOTEMPTY: not
 * empty and no marker. -EPROTO:
 * written by a newer version. An index that will not open is moved aside (index.broken-1), data files without
 * an index deleted, one warning logged. Blocks on disk. */
int ps_store_open(
        const struct ps_store_options *options, struct ps_store **ret, struct ps_error *err) PS_MUST_USE;
/* Commits, syncfs, marks the stop as clean, frees. All objects must have been put. */
void ps_store_close(struct ps_store *store);

struct ps_index *ps_store_index(struct ps_store *store);
/* What loaders have announced; NULL if the policy does not follow it. Below the store's lock. */
struct ps_plans *ps_store_plans(struct ps_store *store);
uint64_t ps_store_limit(const struct ps_store *store);
const char *ps_store_dir(const struct ps_store *store);
/* HMAC of `secret` under the directory's salt: distinguishes credentials without storing them. */
void ps_store_fingerprint(struct ps_store *store, const char *secret, struct ps_id *ret_id);

/* Objects ------------------------------------------------------------------------------------------------ */

/* Id of (canonical URL, version, view): version is the strong ETag and the size, else the weak one,
 * Last-Modified and size. */
void ps_object_id(const char *url, const struct ps_remote *remote, const char *view, struct ps_id *ret_id);

/* The object, loaded from the index or made in memory (no file until it is admitted, no row until the first
 * block is written). remote->size must be known (-EINVAL) and at most PS_OBJECT_MAX_NBYTES (-EFBIG). Counts
 * as an open of `dataset` for the policy if `opened`, and then has blocks that are not verified checked in
 * the background. Blocks on the index and, the first time, on stat of the data file, whose size must be the
 * object's, else its blocks are dropped, and whose inode and times must be those of the index, else they are
 * not verified. */
int ps_object_get(struct ps_store *store, const char *url, const struct ps_remote *remote, uint32_t dataset,
        bool opened, struct ps_object **ret) PS_MUST_USE;
#define PS_OBJECT_MAX_NBYTES (UINT64_C(1) << 44)
/* The same of another view of what is at `url`: `source` is the version at the origin, `id` and `size` are
 * the view's. */
int ps_object_get_view(struct ps_store *store, const char *url, const struct ps_remote *source,
        const struct ps_id *id, uint64_t size, uint32_t dataset, bool opened,
        struct ps_object **ret) PS_MUST_USE;
/* A view whose size is not known yet: an object that is longer than the view can be, cached by extents. It
 * is written block by block up to where the view ends, but for the last block; then it is put, and
 * ps_store_set_size() cuts it. -ENOTSUP: there can be no such file here. */
int ps_object_get_unsized(struct ps_store *store, const char *url, const struct ps_remote *source,
        const struct ps_id *id, struct ps_object **ret) PS_MUST_USE;
/* The view of ps_object_get_unsized() turned out to be so long. No thread holds the object; one that only
 * looks at it is waited for. Blocks on disk and index. */
int ps_store_set_size(struct ps_store *store, const struct ps_id *id, uint64_t size) PS_MUST_USE;
struct ps_object *ps_object_ref(struct ps_object *object);
void ps_object_put(struct ps_object *object);

const char *ps_object_url(const struct ps_object *object);
/* what ps_object_id() made, or a view did */
const struct ps_id *ps_object_key(const struct ps_object *object);
const struct ps_remote *ps_object_remote(const struct ps_object *object);
uint64_t ps_object_size(const struct ps_object *object);
uint64_t ps_object_nblocks(const struct ps_object *object);
uint64_t ps_object_block_nbytes(
        const struct ps_object *object, uint64_t block); /* PS_BLOCK_SIZE but the last */
uint64_t ps_object_cached_nbytes(struct ps_object *object);
bool ps_object_complete(struct ps_object *object); /* every block present (and verified) */

enum ps_block_state { PS_BLOCK_ABSENT, PS_BLOCK_PARTIAL, PS_BLOCK_UNVERIFIED, PS_BLOCK_PRESENT };
/* Blocks never. PS_BLOCK_PRESENT promises that ps_object_fd() has the bytes. */
enum ps_block_state ps_object_block(struct ps_object *object, uint64_t block);
/* The chunks of the block whose bytes ps_object_fd() has (bit i: chunk i); none while it is unverified.
 * Blocks never. */
uint16_t ps_object_chunks(struct ps_object *object, uint64_t block);
int ps_object_fd(
        struct ps_object *object); /* borrowed, valid while the object is held; -1 before it was admitted */

/* A large object (one that takes more than a quarter of the limit) is cached and evicted by extents of 64
 * blocks, and others as a whole. While one is held, its extents may be evicted: who reads its descriptor by
 * the answer of ps_object_block() holds for the range, from before asking until the bytes are read;
 * PS_BLOCK_PRESENT is true so long. Of other objects (and of one converted by ps_object_pass_fd()) it holds
 * nothing. A hold keeps the object alive. Blocks never. -ENOMEM.
 */
struct ps_extent;
struct ps_hold {
	struct ps_object *object; /* NULL: nothing is held */
	struct ps_extent *extents[2];
	bool borrowed; /* it does not keep the object */
};
/* At most 64 MiB. */
int ps_object_hold(
        struct ps_object *object, uint64_t offset, uint64_t nbytes, struct ps_hold *ret) PS_MUST_USE;
/* The same while the caller keeps the object until the release. Takes no lock of the store, but once a second
 * for each extent. */
int ps_object_hold_borrowed(
        struct ps_object *object, uint64_t offset, uint64_t nbytes, struct ps_hold *ret) PS_MUST_USE;
void ps_object_release(struct ps_hold *hold);

/* The descriptor of a complete, verified data file for the kernel to read by itself from now on; borrowed
 * while the object is held. -1: the file is not complete, or is still compared with its origin's checksum, or
 * is a large one that is not pinned (a large file that was passed through is evicted as a whole from then
 * on). Blocks on the index the first time for a large one. If the object is evicted while it is held, the
 * file keeps its name until the last put, and a reader that gets the object meanwhile is streamed: to unlink
 * the file would wait for reads of the kernel's, and these may wait for us. */
int ps_object_pass_fd(struct ps_object *object);

/* Pinned objects are not evicted by policy, in this run and later ones; a pin is of a URL and follows its
 * version that was opened last. -ENOSPC: all that is pinned would not fit under the limit. Blocks on the
 * index. */
int ps_object_pin(struct ps_object *object, uint64_t *ret_nbytes) PS_MUST_USE;
int ps_object_unpin(struct ps_object *object, uint64_t *ret_nbytes) PS_MUST_USE;
bool ps_object_pinned(struct ps_object *object);
/* Is there a pin of its URL, though it may stand for another version still? */
bool ps_object_url_pinned(struct ps_object *object);
/* What pinning it would add to "pinned_bytes"; 0: it is pinned already. */
uint64_t ps_object_pin_nbytes(struct ps_object *object);

/* An ETag that came with data, of an object whose listing had none; "": none yet. Kept with the object.
 * Blocks never. */
void ps_object_learned_etag(struct ps_object *object, char ret[static PS_ETAG_LEN]);
void ps_object_learn_etag(struct ps_object *object, const char *etag);

/* What the origin says that the object's bytes sum up to, in a form of base/checksum.h (others are ignored):
 * compared when all of it is here, by a thread of the store. `sure`: in place of another one that was given
 * before, and then it is compared again. Kept with the object. Blocks never. */
void ps_object_expect(struct ps_object *object, const char *checksum, bool sure);
enum ps_sum { PS_SUM_NONE, PS_SUM_PENDING, PS_SUM_MATCHED, PS_SUM_CORRUPT };
enum ps_sum ps_object_sum(struct ps_object *object);
/* Its bytes did not match, it was dropped: nothing of it may be read any more. Blocks never. */
bool ps_object_corrupt(const struct ps_object *object);
/* Data of this id did not match their checksum. now: they are not to be fetched again yet. Nodes of numbers
 * below nodes_below may stand for such bytes in the kernel. False: not that we know. Blocks never. */
struct ps_refusal {
	bool now;
	uint64_t nodes_below;
	char text[PS_ERROR_TEXT_LEN];
};
bool ps_object_refusal(struct ps_object *object, struct ps_refusal *ret);

/* Room for the whole object under quota and floor, evicting by policy what is not open. 0: blocks may be
 * written until the object is put or evicted; -ENOSPC: stream it without the disk. Both are remembered, the
 * refusal for PS_STORE_REFUSED_MS: cheap when repeated. Blocks on creating the file and on unlinking others.
 * A large object is always admitted: each of its blocks takes its room when it is written.
 */
#define PS_STORE_REFUSED_MS 1000
int ps_object_admit(struct ps_object *object) PS_MUST_USE;
/* Was it evicted or retired? Nothing of it will be written any more, and its room is free once it is put.
 * Blocks never. */
bool ps_object_gone(struct ps_object *object);
/* What the limit is, how much is stored, and how much more is reserved: for what is being fetched and, where
 * the limit is the folder's, by the index. Blocks never. */
void ps_store_room(struct ps_store *store, uint64_t *ret_limit_nbytes, uint64_t *ret_used_nbytes,
        uint64_t *ret_reserved_nbytes);
/* Of the limit, what is there and what the disk has room for. Blocks on statvfs. */
uint64_t ps_store_reachable(struct ps_store *store);
/* Could the cache hold all of it? */
bool ps_object_fits(struct ps_object *object);
/* CRC32C, pwrite, present, queue for the index; 0 at once if the block is present already. Any number of
 * threads, on different blocks. -ENOSPC also if the object is not admitted (or not any more). Blocks on disk.
 * A disk error (ENOSPC, EDQUOT, EROFS, EIO) also ends the admission and is logged once an object. */
int ps_object_write_block(struct ps_object *object, uint64_t block, const void *data) PS_MUST_USE;
/* The same of chunks [first, first + n) of a block, n > 0; data is where the first begins. With its last one
 * the block is present. */
int ps_object_write_chunks(
        struct ps_object *object, uint64_t block, unsigned first, unsigned n, const void *data) PS_MUST_USE;
/* Reads an unverified block, or what there is of it, into buf (its nbytes) and checks it: 0 and it is present
 * from now on; -EILSEQ and it is absent; a read error drops it too. Blocks on disk. */
int ps_object_verify_block(struct ps_object *object, uint64_t block, void *buf) PS_MUST_USE;
/* Drops blocks and file; readers that hold the object keep the old fd's bytes until they put it, and later
 * gets of the same id start empty. Of a large object the extents go at once. *ret_nbytes: what it occupied.
 */
int ps_object_evict(struct ps_object *object, uint64_t *ret_nbytes);
/* The same as a whole, however it is cached: what is fetched from now on under its id never comes to who
 * holds it. */
int ps_object_retire(struct ps_object *object) PS_MUST_USE;

/* Makes everything written so far part of the index. Blocks on disk. */
int ps_store_commit(struct ps_store *store);

/* The whole directory ------------------------------------------------------------------------------------ */

struct ps_verify_result {
	uint64_t objects, blocks, nbytes;   /* checked */
	uint64_t bad_blocks, missing_files; /* dropped from the index */
	uint64_t bad_objects;               /* whose origin gave another checksum; dropped */
};
/* Every cached block against its checksum, and whole objects against the one that their origin gave, where
 * that has not been done; bad ones are dropped. progress may be NULL. Blocks on disk for long; `stop` ends it
 * with -ECANCELED. */
int ps_store_verify(struct ps_store *store,
        void (*progress)(void *arg, uint64_t done_nbytes, uint64_t total_nbytes), void *arg,
        const _Atomic bool *stop, struct ps_verify_result *ret);

/* Pins (or unpins) every cached object, or pinned URL, that matches as ps_store_evict() has it; *ret_nbytes:
 * of those. -ENOSPC: pinned they would take *ret_nbytes, more than the limit; nothing is changed. */
int ps_store_pin(struct ps_store *store, const char *const *globs, size_t n, bool pin, uint64_t *ret_objects,
        uint64_t *ret_nbytes);

/* Reports every pinned URL that matches as ps_store_evict() has it, in their order: its size (what it takes
 * of the disk, if nothing of it is known but that), and the bytes of that version which are in the cache. fn
 * returns 0 to go on. Blocks on disk. */
int ps_store_each_pin(struct ps_store *store, const char *const *globs, size_t n,
        int (*fn)(void *arg, const char *url, uint64_t nbytes, uint64_t cached_nbytes),
        void *arg) PS_MUST_USE;

/* Evicts every object not in use (nor pinned) whose URL path's last component, or whole URL, matches a glob
 * (fnmatch); n
 * == 0: all. */
int ps_store_evict(struct ps_store *store, const char *const *globs, size_t n, uint64_t *ret_objects,
        uint64_t *ret_nbytes);

/* {"dir","limit_bytes","used_bytes": by data,"index_bytes": by the index and all else; 0 where the limit is
 * of data, "reachable_bytes": of the limit, what the disk has room
 * for,"reserved_bytes","min_free_bytes","objects","policy","evicted_objects","evicted_bytes",
 * "evicted_extents","pinned_objects","pinned_bytes","write_errors","crc_errors","checksum_errors",
 * "held_bytes": evicted and still open, "synced": all of it is safe from a power cut}; the caller owns it.
 * Blocks never. */
json_t *ps_store_stats(struct ps_store *store);

/* What objects take of the quota that were opened last by that dataset, with what is reserved for them. While
 * objects come and go it is an estimate: the lock is not held over all of them. */
uint64_t ps_store_dataset_nbytes(struct ps_store *store, uint32_t dataset);

/* The directory ------------------------------------------------------------------------------------------ */

/* Which folder holds the cache of `dir`, opened: `dir`, if it is ours alone to write to; else penstock-UID in
 * it, for what others may write to they may also fill with links and files of their own. make: what is not
 * there is made, but for the folders above `dir`. Refused with -EPERM: what belongs to neither us nor root
 * (also where we are root), and a penstock-UID that is not ours alone. -ENOENT. *ret_path is absolute,
 * malloced; for messages, as who may rename folders above may put another in its place. */
int ps_store_dir_find(
        const char *dir, bool make, int *ret_fd, char **ret_path, struct ps_error *err) PS_MUST_USE;

#endif
