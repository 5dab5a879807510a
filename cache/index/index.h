/* The index: what the cache directory holds and what the datasets list. Rows and numbers over sorted keys.
 *
 * Files, from the top: table.c (get, put, walk), index.c (opening, the schema, numbers), rocksdb.c (which
 * alone knows RocksDB), overlay.c (rows that a full disk does not take), rows.c (values and keys).
 * index_private.h is the folder's own.
 *
 * Keys (numbers big-endian, so that they sort):
 *   'M' name                     meta: schema, next node and dataset numbers, how the last run stopped
 *   'D' dataset id (16)          dataset row
 *   'N' node (8)                 node row: one (name, version) of a dataset, for ever
 *   'C' parent node (8) name     number of the name's current node: directory contents, sorted by name
 *   'O' object id (16)           object row
 *   'B' object id (16) extent (4)  presence and CRC32C of 64 blocks
 *   'P' id of a URL (16)         pin row: this object must stay
 *   'V' view id (16)             view row: what was found out of a compressed shard
 *   'F' view id (16)             where its frames begin (decompress/frame.h)
 *   'G' id of an object version  who may read it, as the origin has shown (catalog/dataset.h)
 * Values are little-endian, each starts with a format byte; docs/format.md has the layout.
 *
 * Ownership: rows handed out own their strings; ps_*_row_fini() frees. Threads: any. Locks: none held while
 * calling out. Errors: 0 or -errno; -ENOENT no such row; -EBADMSG a row that does not parse (logged with its
 * key); -EIO RocksDB's own (logged with its text). Durability: batches are atomic, written to the log without
 * fsync: they survive a kill of the process, not a power cut. Blocks: on disk. */
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
#define PS_NODE_FIRST 1024 /* lower numbers are free for callers' own (root alias, virtual files) */

struct ps_index;
struct ps_index_batch;

struct ps_dataset_row {
	struct ps_id id; /* of (canonical source, credential fingerprint) */
	uint32_t number;
	char *source;      /* canonical, without secrets */
	uint64_t root;     /* node of its root directory */
	int64_t listed_ms; /* when the last whole listing was stored; 0: never */
	uint64_t nfiles;
	uint64_t generation; /* counts listings; a node not seen by the newest is gone */
};

enum ps_node_kind { PS_NODE_DIR = 1, PS_NODE_FILE = 2 };

struct ps_node_row {
	uint64_t node;   /* permanent number of this (name, version) */
	uint64_t ino;    /* number of the name's first version: st_ino stays when the version changes */
	uint64_t parent; /* node of the directory; a root is its own parent */
	uint32_t dataset;
	enum ps_node_kind kind;
	bool superseded;     /* another node stands for the name now, or the name is gone */
	uint64_t generation; /* the last listing that had it */
	int64_t checked_ms;  /* when the origin last confirmed the version; 0: never */
	struct ps_remote remote;
	/* enum ps_coding: what is shown is what the shard holds; remote is of the shard. 0: as it is */
	uint8_t coding;
	/* remote.checksum is of a list that knew no version: it holds for the next one, too */
	bool sum_of_name;
	char *name;
	char *url; /* NULL for a directory */
};

struct ps_object_row {
	struct ps_id id;
	char *url;
	struct ps_remote remote;
	uint32_t dataset; /* that opened it last */
	uint64_t nblocks_present;
	uint64_t partial_nbytes;   /* of blocks of which only parts are there */
	uint64_t allocated_nbytes; /* st_blocks * 512 when last written */
	int64_t created_s, opened_s;
	int64_t data_mtime_ns; /* of the data file at the last commit */
	int64_t data_ctime_ns; /* the same; 0: not known */
	uint64_t data_ino;     /* its inode: another one (a copied directory) makes the blocks unverified */
	bool by_extent;        /* the file was never passed through: holes may be punched into it */
	char learned_etag[PS_ETAG_LEN]; /* of the first response, where the listing had none; "" */
	char checksum[PS_CHECKSUM_LEN]; /* of all of it, as the origin gave it; "" */
	bool sum_matched;               /* and that it is */
};

struct ps_pin_row {
	struct ps_id url_id;    /* ps_pin_id() */
	struct ps_id object_id; /* the version that was opened last */
	uint64_t nbytes;        /* what that takes of the disk when it is all there */
	char *url;
};

struct ps_extent_row {
	uint64_t present;    /* bit i: block extent * 64 + i */
	uint64_t partial;    /* blocks that are not whole, but some of their chunks are there */
	uint64_t unverified; /* of both; a stop that may have lost written data adds all of them */
	int64_t used_s;      /* when it was last read or written; 0: not known */
	uint32_t crc[PS_EXTENT_BLOCKS];
	uint16_t chunks[PS_EXTENT_BLOCKS]; /* of the partial ones; never 0 there */
	uint32_t chunk_crc[PS_EXTENT_BLOCKS][PS_ROW_CHUNKS];
};

/* Of a version of a compressed shard; its id is that of the decoded object. */
struct ps_view_row {
	uint64_t size;        /* of what it holds; PS_SIZE_UNKNOWN: not found out yet */
	bool declared;        /* by the first frame's header alone */
	uint64_t nodes_below; /* nodes of lower numbers showed another size, which turned out wrong */
};

/* Those that were given last; the newest first. */
#define PS_GRANTS_KEPT 8
struct ps_grants_row {
	unsigned n;
	struct {
		struct ps_id access;          /* keyed */
		int64_t given_ms, expires_ms; /* expires_ms 0: with no credential */
	} v[PS_GRANTS_KEPT];
};

void ps_dataset_row_fini(struct ps_dataset_row *row);
void ps_node_row_fini(struct ps_node_row *row);
void ps_object_row_fini(struct ps_object_row *row);
void ps_pin_row_fini(struct ps_pin_row *row);

/* -EPROTO: a newer schema. -EIO: damaged (text says why); the store moves it aside. Other errors (-ENOSPC,
 * -EACCES, -EMFILE, -EBUSY...) are no fault of the index: it is left alone. */
int ps_index_open(const char *dir, struct ps_index **ret, struct ps_error *err) PS_MUST_USE;
/* The same for a small disk or quota: it takes less room, and more writing. */
int ps_index_open_small(const char *dir, struct ps_index **ret, struct ps_error *err) PS_MUST_USE;
/* What it may take of the disk beyond what is there when nothing more is written but nbytes: while it sorts
 * and compacts. */
uint64_t ps_index_peak_nbytes(struct ps_index *index, uint64_t sorted_nbytes, size_t nbytes);
/* What may be written between two looks at its folder. */
size_t ps_index_slack_nbytes(struct ps_index *index);
void ps_index_close(struct ps_index *index);

/* State of the last stop, read once at open and replaced by "dirty in this boot". */
bool ps_index_was_clean(const struct ps_index *index); /* data was synced, then ps_index_mark_clean() */
bool ps_index_same_boot(const struct ps_index *index); /* readers of a killed process may still be there */
int ps_index_mark_clean(struct ps_index *index) PS_MUST_USE;

/* RocksDB refuses every write after one has failed, until it is opened again: this does that, if it has to
 * and the disk has room. -EBUSY while directory iterators are open; any error: still refusing, try again
 * later; what was written is still read. Calls of other threads wait meanwhile. */
int ps_index_reopen(struct ps_index *index, struct ps_error *err) PS_MUST_USE;

/* All batches so far are on the disk itself. */
int ps_index_sync(struct ps_index *index) PS_MUST_USE;

/* fn is called, with nothing held, after a batch was refused (e: -errno): the index has to be opened again.
 * Set before others use the index. */
void ps_index_on_failure(struct ps_index *index, void (*fn)(void *arg, int e), void *arg);

/* room is asked, with nothing held, before a batch that puts rows of nbytes is written: 0, or -errno and it
 * is not. Not for batches that are ps_index_batch_unasked(). Set before others use the index. */
void ps_index_on_growth(struct ps_index *index, int (*room)(void *arg, size_t nbytes), void *arg);

/* A number never given out before, also over restarts and kills. */
int ps_index_new_node(struct ps_index *index, uint64_t *ret_node) PS_MUST_USE;
int ps_index_new_dataset(struct ps_index *index, uint32_t *ret_number) PS_MUST_USE;

int ps_index_get_dataset(
        struct ps_index *index, const struct ps_id *id, struct ps_dataset_row *ret) PS_MUST_USE;
int ps_index_get_node(struct ps_index *index, uint64_t node, struct ps_node_row *ret) PS_MUST_USE;
int ps_index_get_child(
        struct ps_index *index, uint64_t parent, const char *name, uint64_t *ret_node) PS_MUST_USE;
int ps_index_get_object(
        struct ps_index *index, const struct ps_id *id, struct ps_object_row *ret) PS_MUST_USE;
int ps_index_get_extent(struct ps_index *index, const struct ps_id *id, uint32_t extent,
        struct ps_extent_row *ret) PS_MUST_USE;
int ps_index_get_view(struct ps_index *index, const struct ps_id *id, struct ps_view_row *ret) PS_MUST_USE;
int ps_index_get_grants(
        struct ps_index *index, const struct ps_id *id, struct ps_grants_row *ret) PS_MUST_USE;
struct ps_strbuf;
/* Appends to *ret what ps_index_batch_put_frames() was given. */
int ps_index_get_frames(struct ps_index *index, const struct ps_id *id, struct ps_strbuf *ret) PS_MUST_USE;
/* Every extent row of one object, in order, over a snapshot; a row that does not parse is left out (and
 * logged). A non-zero return ends the walk. */
int ps_index_each_extent(struct ps_index *index, const struct ps_id *id,
        int (*fn)(void *arg, uint32_t extent, const struct ps_extent_row *row), void *arg) PS_MUST_USE;

/* Batches: built by one thread, applied atomically. A put that runs out of memory makes commit fail
 * (-ENOMEM); so does a NULL batch, so that new need not be checked. commit frees, whatever it returns.
 * -ENOSPC, -EDQUOT, -EROFS: the disk. */
struct ps_index_batch *ps_index_batch_new(void);
void ps_index_batch_free(struct ps_index_batch *batch);
void ps_index_batch_put_dataset(struct ps_index_batch *batch, const struct ps_dataset_row *row);
void ps_index_batch_put_node(struct ps_index_batch *batch, const struct ps_node_row *row);
void ps_index_batch_del_node(struct ps_index_batch *batch, uint64_t node);
void ps_index_batch_put_child(struct ps_index_batch *batch, uint64_t parent, const char *name, uint64_t node);
void ps_index_batch_del_child(struct ps_index_batch *batch, uint64_t parent, const char *name);
void ps_index_batch_put_object(struct ps_index_batch *batch, const struct ps_object_row *row);
/* And its extents [0, nextents). */
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
/* And its frames. */
void ps_index_batch_del_view(struct ps_index_batch *batch, const struct ps_id *id);
void ps_index_batch_put_grants(
        struct ps_index_batch *batch, const struct ps_id *id, const struct ps_grants_row *row);
void ps_index_batch_del_grants(struct ps_index_batch *batch, const struct ps_id *id);
/* Its room is there already, or will be when it is written. */
void ps_index_batch_unasked(struct ps_index_batch *batch);
int ps_index_batch_commit(struct ps_index *index, struct ps_index_batch *batch) PS_MUST_USE;
/* The same for what must be known even while the disk takes nothing: it is kept in memory then, within bounds
 * (index/index_private.h), and written with the next batch that is taken. What is read, and walks that begin
 * later, see it all the same. */
int ps_index_batch_commit_or_keep(struct ps_index *index, struct ps_index_batch *batch) PS_MUST_USE;

/* Directory contents in name order, over a snapshot taken at open. `name` is borrowed until the next call. */
struct ps_index_children;
int ps_index_children_open(
        struct ps_index *index, uint64_t parent, struct ps_index_children **ret) PS_MUST_USE;
/* Before the first next: begins after this name, which need not be there. */
void ps_index_children_seek_after(struct ps_index_children *it, const char *name);
/* False: the end, or an error (status). */
bool ps_index_children_next(struct ps_index_children *it, const char **ret_name, uint64_t *ret_node);
int ps_index_children_status(const struct ps_index_children *it) PS_MUST_USE; /* 0, -EIO, -ENOMEM */
void ps_index_children_close(struct ps_index_children *it);

/* Node rows over a snapshot taken at open, for one who asks for many: in rising order each costs a step, else
 * what ps_index_get_node() does. One thread at a time. */
struct ps_index_nodes;
int ps_index_nodes_open(struct ps_index *index, struct ps_index_nodes **ret) PS_MUST_USE;
int ps_index_nodes_get(struct ps_index_nodes *it, uint64_t node, struct ps_node_row *ret) PS_MUST_USE;
void ps_index_nodes_close(struct ps_index_nodes *it);

/* Every object row, in id order, over a snapshot. The row is borrowed during fn; a non-zero return ends the
 * walk. bad, if not NULL, receives the rows that do not parse. */
int ps_index_each_object(struct ps_index *index, int (*fn)(void *arg, const struct ps_object_row *row),
        void (*bad)(void *arg, const struct ps_id *id), void *arg) PS_MUST_USE;
/* Every pin row; one that does not parse is left out (and logged). The row is borrowed during fn. */
int ps_index_each_pin(
        struct ps_index *index, int (*fn)(void *arg, const struct ps_pin_row *row), void *arg) PS_MUST_USE;

#endif
