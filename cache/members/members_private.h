/* Types and functions that the files of members/ share. */
#ifndef PS_MEMBERS_MEMBERS_PRIVATE_H
#define PS_MEMBERS_MEMBERS_PRIVATE_H

#include <pthread.h>

#include "base/list.h"
#include "base/strbuf.h"
#include "base/tar.h"
#include "base/tree.h"
#include "catalog/dataset.h"
#include "members/members.h"

/* Rows --------------------------------------------------------------------------------------------------- */

/* A table in the index: a head and rows of PS_MEMBER_ROW entries (docs/format.md).
 *
 * Ownership: a decoded row belongs to its reader. Threads: any. Never blocks. Errors: decoders return 0,
 * -ENOMEM, or -EBADMSG for bytes that no encoder writes; encoders set buffer->failed. */

#define PS_MEMBER_ROW 128

struct ps_member_entry {
	enum ps_member_kind kind;
	uint32_t parent;
	uint32_t name, name_len; /* in the row's text */
	uint32_t link, link_len; /* target of a link */
	uint64_t offset, size;
	int64_t mtime_s;
	uint32_t child, nchildren;
};

struct ps_member_row {
	_Atomic unsigned refs;
	unsigned n;
	struct ps_member_entry v[PS_MEMBER_ROW];
	char text[]; /* names and targets, each zero-terminated */
};

/* Entries are added in the order of their ordinals. */
struct ps_member_row_writer {
	struct ps_strbuf b;
	uint64_t end; /* of the last file's data, padded */
	int64_t mtime_s;
	uint32_t parent;
	const char *name;
	size_t name_len;
	size_t ntext; /* bytes of the decoded row's text */
};
void ps_member_row_add(struct ps_member_row_writer *w, const struct ps_member_entry *entry, const char *name,
        const char *link);
/* Completes the row: w->b has its bytes. Call ps_member_row_begin() before the next row. */
void ps_member_row_end(struct ps_member_row_writer *w);
void ps_member_row_begin(struct ps_member_row_writer *w);

/* Entry i of the row is number `first_ordinal` + i of the table. */
int ps_member_row_decode(const void *bytes, size_t n, const struct ps_member_table *table,
        uint32_t first_ordinal, struct ps_member_row **ret) PS_MUST_USE;

void ps_member_head_encode(const struct ps_member_table *table, struct ps_strbuf *b);
/* Leaves table->shard as it is; `hidden` and `damage` are the caller's to free. */
int ps_member_head_decode(const void *bytes, size_t n, struct ps_member_table *table) PS_MUST_USE;

/* Trees -------------------------------------------------------------------------------------------------- */

/* The members of one tar, as a tree. Threads: one. Blocks: never. Errors: -ENOMEM; -E2BIG: more than
 * PS_MEMBERS_MAX entries. */

#define PS_MEMBERS_MAX (UINT32_C(4) << 20)

struct ps_member_tree;
struct ps_member_tree *ps_member_tree_new(void); /* NULL: out of memory */
void ps_member_tree_free(struct ps_member_tree *tree);
/* Adds a member, in the order of the tar; hides it if it cannot be shown. */
int ps_member_tree_add(struct ps_member_tree *tree, const struct ps_tar_member *member) PS_MUST_USE;
/* Call once, after the last member: resolves links and gives every entry its ordinal. Fills in n, nfiles,
 * nbytes, nhidden and `hidden` (the caller frees it) of *ret. */
int ps_member_tree_finish(struct ps_member_tree *tree, struct ps_member_table *ret) PS_MUST_USE;
/* Encodes the row of entries from `first` on. */
void ps_member_tree_row(const struct ps_member_tree *tree, uint32_t first, struct ps_member_row_writer *w);

/* Scans -------------------------------------------------------------------------------------------------- */

/* Reads a shard once, from its first header to its end mark, and adds its members to a tree.
 *
 * The shard is read as a stream, so that it is in the cache afterwards; only members' data of more than
 * PS_SCAN_SKIP_NBYTES is skipped. If the shard is complete in the cache already, only its headers are
 * read. */
#define PS_SCAN_SKIP_NBYTES (UINT64_C(8) << 20)

/* The part of a scan through which another thread may cancel it. */
struct ps_scan {
	pthread_mutex_t lock;
	bool cancelled;
	struct ps_read *waiting; /* the read that the scan waits for, or NULL */
	_Atomic uint64_t nread;  /* bytes */
};
void ps_scan_init(struct ps_scan *scan);
void ps_scan_fini(struct ps_scan *scan);
void ps_scan_cancel(struct ps_scan *scan);
/* Reads the shard's first byte: 0 if these credentials may read it. Blocks on the network. */
int ps_scan_prove(struct ps_scan *scan, struct ps_handle *handle) PS_MUST_USE;
/* 0: the tree has the members up to the end mark, or up to the damage that *ret_damage describes (NULL:
 * there is none; the caller frees it). -EBADMSG: not a tar, with a text. -ECANCELED. Blocks on the
 * network. */
int ps_scan_shard(struct ps_scan *scan, struct ps_handle *handle, bool complete, struct ps_member_tree *tree,
        char **ret_damage, struct ps_error *err) PS_MUST_USE;

/* *ret_ends becomes true if a walk that begins with the header at `from` finds the member `last` and then
 * the end mark; last NULL: if it finds the end mark at once. Reads a few blocks, without read-ahead. Blocks
 * on the network. */
int ps_scan_ends(struct ps_scan *scan, struct ps_handle *handle, uint64_t from,
        const struct ps_tar_member *last, bool *ret_ends, struct ps_error *err) PS_MUST_USE;
/* Reads n bytes at `offset`, fewer at the end of the file; -errno without a text. alone: the bytes around
 * them are not expected to be read. Blocks on the network. */
int ps_scan_read(struct ps_scan *scan, struct ps_handle *handle, uint64_t offset, size_t n, bool alone,
        uint8_t *dst, size_t *ret_n) PS_MUST_USE;

/* Indexes ------------------------------------------------------------------------------------------------ */

/* The index of a shard (base/psx.h), which penstock-loader has made, as a list of the shard's members.
 *
 * An index lists the members that belong to samples, with suffixes in lower case. It counts as the list of
 * all members only if it says that the tar has no others (PS_PSX_NOTE_ALL), and if nothing in it contradicts
 * that. Any number of blocks may follow the last member, because a tar is padded, to 20 blocks or another
 * number: a scan, too, ends at the first block of zeros.
 *
 * Threads: any. ps_psx_members() never blocks. Errors: -EBADMSG: damaged; -ESTALE: the index belongs to
 * another shard, or to another version of the format; -ENODATA: it may not have all members; what fn
 * returned. All with a text. */

struct ps_psx_shard {
	uint64_t stored_nbytes; /* or PS_SIZE_UNKNOWN */
	uint64_t nbytes;        /* as it is shown */
	bool coded;             /* it is shown decoded */
	int64_t mtime_s;        /* of all members: an index has no times */
};

/* What the shard must have at its ends if the index belongs to it. */
struct ps_psx_end {
	uint64_t first_sum;            /* ps_psx_sum() of its first PS_PSX_FIRST bytes */
	bool any;                      /* it has members; of the last one: */
	uint64_t header, offset, size; /* where its first header and its data are */
	char *name;                    /* the caller frees it */
};

/* Called for each member, in the order of the tar; a negative result ends the walk. */
typedef int (*ps_psx_member_fn)(void *arg, const struct ps_tar_member *member);
int ps_psx_members(const void *bytes, size_t n, const struct ps_psx_shard *shard, ps_psx_member_fn fn,
        void *arg, struct ps_psx_end *ret, struct ps_error *err) PS_MUST_USE;

/* Tables ------------------------------------------------------------------------------------------------- */

/* The states of a table: tables.c. */
enum table_state { UNKNOWN, QUEUED, OPENING, SCANNING, KNOWN, FAILED };

struct table {
	struct ps_member_table t; /* once it is KNOWN it never changes */
	struct ps_members *of;
	struct ps_tree_item by_shard, by_last;
	enum table_state state;
	struct ps_list link; /* members.queue */
	struct ps_list waiters;
	struct ps_member_shard *shard; /* while the table is SCANNING */
	int errnum;                    /* of FAILED */
	char *error;                   /* the error's text, or NULL */
	uint64_t failed_ns;
	uint64_t round; /* the last look that found the shard among the names */
	uint64_t size;  /* of the shard, by that look */
};

void ps_table_free(struct table *table);
/* The lock is held for these three. find_or_add returns NULL if memory is short; set_known takes over the
 * texts of *t. */
struct table *ps_table_find(struct ps_members *members, uint64_t shard);
struct table *ps_table_find_or_add(struct ps_members *members, uint64_t shard);
void ps_table_set_known(struct ps_members *members, struct table *table, struct ps_member_table *t);
#define PS_MEMBERS_NO_INDEX (PS_MEMBERS_HEAD - 1) /* a row: the shard's index is not to be used */
/* Reads the head of a table from the index. -ENOENT: the index does not have it. */
int ps_table_load(struct ps_members *members, uint64_t shard, struct ps_member_table *ret) PS_MUST_USE;
/* True if the table of this shard could not be made. */
bool ps_members_has_failed(struct ps_members *members, uint64_t shard);

/* The rows that were read last, in memory. */
struct ps_member_rows;
struct ps_member_rows *ps_member_rows_new(void); /* NULL: out of memory */
void ps_member_rows_free(struct ps_member_rows *rows);
/* The row that has this entry, from memory or from the index. The caller puts it. */
int ps_member_row_get(struct ps_members *members, const struct ps_member_table *table, uint32_t ordinal,
        struct ps_member_row **ret) PS_MUST_USE;
void ps_member_row_put(struct ps_member_row *row);

/* Calls fn for each shard of the dataset, in the order of paths. A result other than 0 ends the walk.
 * Blocks on the index. */
int ps_members_each_shard(
        struct ps_members *members, int (*fn)(void *arg, uint64_t node, uint64_t size), void *arg);

/* Adds the members of a shard to a new tree, from the index beside the shard, if the index gives what a scan
 * would. Reads the index and a few blocks of the shard. *ret_size: the size of the shard, as it is shown.
 * -ENOENT: there is no index, or the shard is complete in the cache. Other errors have a text that says why
 * the index cannot be used; "it" in the text is the index. After an error the tree cannot be used. Blocks on
 * the network; ps_members_stop() and ps_scan_cancel() end it. */
int ps_by_index(struct ps_members *members, struct ps_scan *scan, const struct ps_node_row *shard,
        struct ps_member_tree *tree, uint64_t *ret_size, struct ps_error *err) PS_MUST_USE;

/* Reads -------------------------------------------------------------------------------------------------- */

struct ps_shards_open;
int ps_shards_open_new(struct ps_dataset *dataset, struct ps_shards_open **ret) PS_MUST_USE;
/* Closes the shards that have no references; the others are closed with their last reference. */
void ps_shards_open_close(struct ps_shards_open *open);
/* Closes the shards that have no references and were opened long ago: an evicted object keeps its disk space
 * while it is open. */
void ps_shards_open_close_old(struct ps_shards_open *open);
/* Precondition: closed, and all opens have called back. */
void ps_shards_open_free(struct ps_shards_open *open);

/* Merging ------------------------------------------------------------------------------------------------ */

/* Makes the merged tree if it is not current. -EAGAIN: tables are missing. -ECANCELED: the members are
 * stopping. One call at a time. Blocks on the index, for long. */
int ps_merged_make(struct ps_members *members) PS_MUST_USE;
/* The number of the row, among those of the dataset's root node, that has the head of the merged tree.
 * Datasets of one catalog share that node; each has its own tree, because they may see the members of
 * different shards. */
uint32_t ps_merged_head_row(const struct ps_members *members);

/* The members of one mount ------------------------------------------------------------------------------- */

#define PS_MEMBERS_WORKERS 4

struct ps_members {
	struct ps_dataset *dataset;
	struct ps_index *index;
	struct ps_member_rows *rows; /* those that were read last */
	struct ps_shards_open *open;
	bool merges;                  /* the merged tree is made once all tables are known */
	_Atomic uint64_t merged_root; /* of the merged tree that this mount shows; 0: none */
	void (*merged_changed)(void *arg, const char *name);
	void *merged_arg;
	_Atomic bool stopping;
	_Atomic uint64_t nread;         /* bytes that ended scans have read, and those of indexes */
	_Atomic uint64_t nby_index;     /* tables that were made by indexes */
	_Atomic uint64_t shards_nbytes; /* of all shards, by the last look; 0: not known */

	pthread_mutex_t lock;    /* protects what follows */
	pthread_cond_t wake;     /* work for a thread, or a change that one waits for */
	struct ps_tree by_shard; /* all tables */
	struct ps_tree by_last;  /* the known tables, by the last number of their run */
	struct ps_list queue;    /* tables to be made */
	pthread_t threads[PS_MEMBERS_WORKERS];
	struct ps_scan *scans[PS_MEMBERS_WORKERS]; /* under way, or NULL */
	unsigned nthreads, nopening, nmaking;
	unsigned nrunning; /* threads that have taken their number */
	bool wants_all;    /* ps_members_make_all() was called */
	bool retries;      /* the next look retries shards that have failed */
	bool looks;        /* a thread looks at all shards */
	int trouble;       /* -errno of the last look or of the merged tree; 0: none */
	uint64_t look_ns;  /* the next look does not begin before this time */
	bool look;         /* a look is requested */
	uint64_t round;    /* number of complete looks */
};

#endif
