/* The index of the cache directory: the objects that it holds, and the names that the datasets list. It
 * stores rows under sorted keys, and hands out numbers that are never used again.
 *
 * Files, from the top: table.c (get, put, walk), index.c (opening, the schema, numbers), rocksdb.c (the
 * only file that calls RocksDB), overlay.c (rows that a full disk refuses), rows.c (values and keys).
 * index_private.h is private to this folder.
 *
 * Keys (numbers big-endian, so that they sort):
 *   'M' name                     meta: schema, next node and dataset numbers, how the last run stopped
 *   'D' dataset id (16)          dataset row
 *   'N' node (8)                 node row: one (name, version) of a dataset; its number is never reused
 *   'C' parent node (8) name     number of the name's current node: directory contents, sorted by name
 *   'O' object id (16)           object row
 *   'B' object id (16) extent (4)  presence and CRC32C of 64 blocks
 *   'P' id of a URL (16)         pin row: this object is not evicted
 *   'V' view id (16)             view row: the decoded size of a compressed shard
 *   'F' view id (16)             where the shard's frames begin (decompress/frame.h)
 *   'G' id of an object version  grants for it (catalog/dataset.h)
 *   'T' node (8) [row (4)]       the members of a shard (members/members.h): their head, a row of members
 * Values are little-endian, each starts with a format byte; docs/format.md has the layout.
 *
 * Ownership: returned rows own their strings; ps_*_row_fini() frees them. Threads: any. Locks: none is held
 * over a callback. Errors: 0 or -errno; -ENOENT: no such row; -EBADMSG: a row that does not parse (logged
 * with its key); -EIO: an error of RocksDB (logged with its text). Durability: batches are atomic, and
 * written to the log without fsync: they survive a kill of the process, not a power cut. Blocks on disk. */
#ifndef PS_INDEX_INDEX_H
#define PS_INDEX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/remote.h"

#define PS_INDEX_SCHEMA 1
#define PS_EXTENT_BLOCKS 64
#define PS_ROW_CHUNKS 16   /* of a block */
#define PS_NODE_FIRST 1024 /* lower numbers are free for callers (root alias, virtual files) */

struct ps_index;
struct ps_index_batch;

struct ps_dataset_row {
	struct ps_id id; /* of (canonical source, credential fingerprint) */
	uint32_t number;
	char *source;      /* canonical, without secrets */
	uint64_t root;     /* node of its root directory */
	int64_t listed_ms; /* when the last complete listing was stored; 0: never */
	uint64_t nfiles;
	/* counts listings; a name that is not in the newest complete listing has vanished */
	uint64_t generation;
};

enum ps_node_kind { PS_NODE_DIR = 1, PS_NODE_FILE = 2 };

struct ps_node_row {
	uint64_t node;   /* permanent number of this (name, version) */
	uint64_t ino;    /* number of the name's first version: st_ino stays when the version changes */
	uint64_t parent; /* node of the directory; a root is its own parent */
	uint32_t dataset;
	enum ps_node_kind kind;
	bool superseded;     /* the name has another node now, or has vanished */
	uint64_t generation; /* the last listing that had this name */
	/* when a revalidation last confirmed the version; 0: the last listing confirms it */
	int64_t checked_ms;
	struct ps_remote remote;
	/* enum ps_coding: the file shows the shard's decoded content, while remote is of the shard. 0: not
	 * decoded */
	uint8_t coding;
	/* remote.checksum is from a list without versions: it also holds for the next version */
	bool sum_of_name;
	char *name;
	char *url; /* NULL for a directory */
};

struct ps_object_row {
	struct ps_id id;
	char *url;
	struct ps_remote remote;
	uint32_t dataset; /* the dataset that opened it last */
	uint64_t nblocks_present;
	uint64_t partial_nbytes;   /* stored chunks of partial blocks */
	uint64_t allocated_nbytes; /* st_blocks * 512 when last written */
	int64_t created_s, opened_s;
	int64_t data_mtime_ns; /* of the data file at the last commit */
	int64_t data_ctime_ns; /* ctime of the data file at that commit; 0: not known */
	/* the data file's inode; if the file has another one (in a copied directory), its blocks are
	 * unverified */
	uint64_t data_ino;
	bool by_extent;                 /* the file was never passed through: holes may be punched into it */
	char learned_etag[PS_ETAG_LEN]; /* of the first response, if the listing had none; else "" */
	char checksum[PS_CHECKSUM_LEN]; /* of the whole object, from the origin; "": none */
	bool sum_matched;               /* the object was compared with it, and matches */
};

struct ps_pin_row {
	struct ps_id url_id;    /* ps_pin_id() */
	struct ps_id object_id; /* the version that was opened last */
	uint64_t nbytes;        /* disk space of that version when it is complete */
	char *url;
};

struct ps_extent_row {
	uint64_t present; /* bit i: block extent * 64 + i */
	uint64_t partial; /* blocks of which only some chunks are stored */
	/* blocks of both sets that must be checked: all, after a stop that may have lost written data */
	uint64_t unverified;
	int64_t used_s; /* when it was last read or written; 0: not known */
	uint32_t crc[PS_EXTENT_BLOCKS];
	uint16_t chunks[PS_EXTENT_BLOCKS]; /* stored chunks of the partial blocks; never 0 there */
	uint32_t chunk_crc[PS_EXTENT_BLOCKS][PS_ROW_CHUNKS];
};

/* The decoded view of one version of a compressed shard; the row's id is that of the decoded object. */
struct ps_view_row {
	uint64_t size;        /* of the decoded content; PS_SIZE_UNKNOWN: not found yet */
	bool declared;        /* the size is only what the first frame's header declares */
	uint64_t nodes_below; /* nodes with lower numbers showed another size, which was wrong */
};

/* The grants that were given last, newest first. */
#define PS_GRANTS_KEPT 8
struct ps_grants_row {
	unsigned n;
	struct {
		struct ps_id access;          /* a keyed hash */
		int64_t given_ms, expires_ms; /* expires_ms 0: given without a credential */
	} v[PS_GRANTS_KEPT];
};

void ps_dataset_row_fini(struct ps_dataset_row *row);
void ps_node_row_fini(struct ps_node_row *row);
void ps_object_row_fini(struct ps_object_row *row);
void ps_pin_row_fini(struct ps_pin_row *row);

/* For a small disk or quota: the index takes less room, and writes more. */
#define PS_INDEX_SMALL 1u
/* A process that has just died has checked the index for damage. It is not checked again, unless writes of
 * that process may be lost. */
#define PS_INDEX_WAS_CHECKED 2u
/* -EPROTO: a newer schema. -EIO: damaged (the text has the cause); the store moves the index aside. After
 * other errors (-ENOSPC, -EACCES, -EMFILE, -EBUSY...) the index is left as it is. */
int ps_index_open(const char *dir, unsigned flags, struct ps_index **ret, struct ps_error *err) PS_MUST_USE;
/* The disk space by which the index may grow, at its peak, while it sorts and compacts nbytes of new rows.
 * sorted_nbytes: the disk space of its sorted files now. */
uint64_t ps_index_peak_nbytes(struct ps_index *index, uint64_t sorted_nbytes, size_t nbytes);
/* The bytes that may be written to the index before its folder must be measured again. */
size_t ps_index_slack_nbytes(struct ps_index *index);
void ps_index_close(struct ps_index *index);

/* State of the last stop, read once at open and replaced by "dirty in this boot". */
/* true: the last run synced its data and then called ps_index_mark_clean() */
bool ps_index_was_clean(const struct ps_index *index);
/* true: the last run was in this boot, so readers of its passed-through files may still run */
bool ps_index_same_boot(const struct ps_index *index);
int ps_index_mark_clean(struct ps_index *index) PS_MUST_USE;

/* Opens RocksDB again, if a write has failed and the disk has room: until then RocksDB refuses every write.
 * -EBUSY: a snapshot is in use (an open directory, or a walk). After any error writes are still refused, and
 * the caller tries again later; rows can be read. Calls of other threads wait meanwhile. */
int ps_index_reopen(struct ps_index *index, struct ps_error *err) PS_MUST_USE;

/* Syncs all batches so far to the disk. */
int ps_index_sync(struct ps_index *index) PS_MUST_USE;

/* Sets fn, which is called without locks after the disk or `room` (below) refused a batch (e: -errno): the
 * index may have to be opened again. Call it before other threads use the index. */
void ps_index_on_failure(struct ps_index *index, void (*fn)(void *arg, int e), void *arg);

/* Sets room, which is called without locks before a batch that puts rows of nbytes is written. If it returns
 * -errno, the batch is not written. It is not called for batches marked with ps_index_batch_unasked(). Call
 * it before other threads use the index. */
void ps_index_on_growth(struct ps_index *index, int (*room)(void *arg, size_t nbytes), void *arg);

/* A number that was never used before, also over restarts and kills. */
int ps_index_new_node(struct ps_index *index, uint64_t *ret_node) PS_MUST_USE;
/* The same for n consecutive numbers, n > 0; the first of them is returned. */
int ps_index_new_nodes(struct ps_index *index, uint64_t n, uint64_t *ret_first) PS_MUST_USE;
int ps_index_new_dataset(struct ps_index *index, uint32_t *ret_number) PS_MUST_USE;

int ps_index_get_dataset(
        struct ps_index *index, const struct ps_id *id, struct ps_dataset_row *ret) PS_MUST_USE;
int ps_index_get_node(struct ps_index *index, uint64_t node, struct ps_node_row *ret) PS_MUST_USE;
int ps_index_get_child(
        struct ps_index *index, uint64_t parent, const char *name, uint64_t *ret_node) PS_MUST_USE;
int ps_index_get_object(
        struct ps_index *index, const struct ps_id *id, struct ps_object_row *ret) PS_MUST_USE;
int ps_index_get_view(struct ps_index *index, const struct ps_id *id, struct ps_view_row *ret) PS_MUST_USE;
int ps_index_get_grants(
        struct ps_index *index, const struct ps_id *id, struct ps_grants_row *ret) PS_MUST_USE;
struct ps_strbuf;
/* Appends to *ret the bytes that ps_index_batch_put_frames() was given. */
int ps_index_get_frames(struct ps_index *index, const struct ps_id *id, struct ps_strbuf *ret) PS_MUST_USE;
/* Replaces the content of *ret by the bytes that ps_index_batch_put_members() was given. */
#define PS_MEMBERS_HEAD UINT32_MAX /* as `row`: the head */
int ps_index_get_members(
        struct ps_index *index, uint64_t node, uint32_t row, struct ps_strbuf *ret) PS_MUST_USE;
/* Calls fn for every extent row of one object, in order, over a snapshot. A row that does not parse is left
 * out (and logged). A non-zero return of fn ends the walk. */
int ps_index_each_extent(struct ps_index *index, const struct ps_id *id,
        int (*fn)(void *arg, uint32_t extent, const struct ps_extent_row *row), void *arg) PS_MUST_USE;

/* Batches: built by one thread, applied atomically. Commit returns -ENOMEM if a put ran out of memory, and
 * for a NULL batch: the caller need not check the results of new and of puts. commit frees the batch,
 * whatever it returns. -ENOSPC, -EDQUOT, -EROFS: the disk refused it. */
struct ps_index_batch *ps_index_batch_new(void);
void ps_index_batch_free(struct ps_index_batch *batch);
void ps_index_batch_put_dataset(struct ps_index_batch *batch, const struct ps_dataset_row *row);
void ps_index_batch_put_node(struct ps_index_batch *batch, const struct ps_node_row *row);
void ps_index_batch_del_node(struct ps_index_batch *batch, uint64_t node);
void ps_index_batch_put_child(struct ps_index_batch *batch, uint64_t parent, const char *name, uint64_t node);
void ps_index_batch_del_child(struct ps_index_batch *batch, uint64_t parent, const char *name);
void ps_index_batch_put_object(struct ps_index_batch *batch, const struct ps_object_row *row);
/* Also deletes its extents [0, nextents). */
void ps_index_batch_del_object(struct ps_index_batch *batch, const struct ps_id *id, uint32_t nextents);
void ps_index_batch_put_extent(struct ps_index *index, struct ps_index_batch *batch, const struct ps_id *id,
        uint32_t extent, const struct ps_extent_row *row);
void ps_index_batch_del_extent(struct ps_index_batch *batch, const struct ps_id *id, uint32_t extent);
void ps_index_batch_put_pin(struct ps_index_batch *batch, const struct ps_pin_row *row);
void ps_index_batch_del_pin(struct ps_index_batch *batch, const struct ps_id *url_id);
void ps_index_batch_put_view(
        struct ps_index_batch *batch, const struct ps_id *id, const struct ps_view_row *row);
void ps_index_batch_put_frames(
        struct ps_index_batch *batch, const struct ps_id *id, const void *bytes, size_t nbytes);
/* Also deletes its frames. */
void ps_index_batch_del_view(struct ps_index_batch *batch, const struct ps_id *id);
void ps_index_batch_put_grants(
        struct ps_index_batch *batch, const struct ps_id *id, const struct ps_grants_row *row);
void ps_index_batch_del_grants(struct ps_index_batch *batch, const struct ps_id *id);
void ps_index_batch_put_members(
        struct ps_index_batch *batch, uint64_t node, uint32_t row, const void *bytes, size_t nbytes);
/* Deletes the head and the rows that the index has now. */
void ps_index_batch_del_members(struct ps_index *index, struct ps_index_batch *batch, uint64_t node);
/* Marks the batch so that its commit does not call `room`: the caller makes the room for it. */
void ps_index_batch_unasked(struct ps_index_batch *batch);
int ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch) PS_MUST_USE;
/* The same for rows that must be visible even while the disk refuses writes: the rows are then kept in
 * memory, within bounds (index/index_private.h), and written with the next batch that succeeds. Reads, and
 * walks that begin later, see them. */
int ps_index_batch_commit_or_keep(struct ps_index *index, struct ps_index_batch *batch) PS_MUST_USE;

/* Directory contents in name order, over a snapshot taken at open. `name` is borrowed until the next call. */
struct ps_index_children;
int ps_index_children_open(
        struct ps_index *index, uint64_t parent, struct ps_index_children **ret) PS_MUST_USE;
/* Call it before the first next: the walk begins after this name, which need not exist. */
void ps_index_children_seek_after(struct ps_index_children *it, const char *name);
/* False: the end, or an error (status). */
bool ps_index_children_next(struct ps_index_children *it, const char **ret_name, uint64_t *ret_node);
int ps_index_children_status(const struct ps_index_children *it) PS_MUST_USE; /* 0, -EIO, -ENOMEM */
void ps_index_children_close(struct ps_index_children *it);

/* Node rows, for callers that need many rows. If the nodes are asked for in rising order without large gaps,
 * a few steps of an iterator give each row, from a snapshot taken at open; otherwise ps_index_get_node()
 * reads the present row. One thread at a time. */
struct ps_index_nodes;
int ps_index_nodes_open(struct ps_index *index, struct ps_index_nodes **ret) PS_MUST_USE;
int ps_index_nodes_get(struct ps_index_nodes *it, uint64_t node, struct ps_node_row *ret) PS_MUST_USE;
void ps_index_nodes_close(struct ps_index_nodes *it);

/* Calls fn for every object row, in id order, over a snapshot. The row is borrowed during fn; a non-zero
 * return ends the walk. bad, if not NULL, is called for rows that do not parse. */
int ps_index_each_object(struct ps_index *index, int (*fn)(void *arg, const struct ps_object_row *row),
        void (*bad)(void *arg, const struct ps_id *id), void *arg) PS_MUST_USE;
/* Calls fn for every pin row; one that does not parse is left out (and logged). The row is borrowed during
 * fn. */
int ps_index_each_pin(
        struct ps_index *index, int (*fn)(void *arg, const struct ps_pin_row *row), void *arg) PS_MUST_USE;

#endif
