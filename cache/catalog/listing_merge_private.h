/* A listing on its way into the index, inside: listing_merge.c puts what is listed into batches, listing_merge_names.c
 * says under which names, listing_merge_vanished.c takes out what was not listed. names_lock of the dataset is held over
 * all of it but where it is said.
 *
 * Threads: one. Blocks: on the index. */
#ifndef PS_CATALOG_LISTING_MERGE_PRIVATE_H
#define PS_CATALOG_LISTING_MERGE_PRIVATE_H

#include "base/hashtable.h"
#include "catalog/listing_merge.h"

#define PS_MERGE_BATCHED_BITS 65536

/* A compressed shard whose shown name is another file's, of which the listing has not told yet. */
struct ps_merge_later {
	struct ps_merge_later *next;
	uint64_t parent;
	char *name, *url; /* as it is listed */
	struct ps_remote remote;
};

struct ps_merge_dir {
	char *path; /* below the root; "" is the root */
	uint64_t node;
	UT_hash_handle hh;
};

struct ps_merge {
	struct ps_dataset *dataset;
	struct ps_merge_dir *dirs; /* by path */
	struct ps_index_batch *batch;
	size_t nbatched;
	uint64_t *seen; /* nodes of this listing; sorted by finish */
	size_t nseen, seen_cap;
	size_t nsorted; /* the first of them, in order already */
	uint64_t nfiles, first_unsized;
	bool relists;                /* names are known: what is new is reported */
	uint64_t nadded, nvanished; /* files */
	uint64_t first_number; /* nodes made since this merge began have higher ones */
	int64_t begun_ms;
	int failed; /* a commit, by whomever */
	uint8_t batched[PS_MERGE_BATCHED_BITS /
	                8]; /* hashes of the names that the batch has, and the index not yet */
	struct ps_merge_later *later;
	bool told_clash;
};

/* Writes the batch, if it is large by now. */
int ps_merge_commit_full(struct ps_merge *m) PS_MUST_USE;
/* What stands for the name now, in this listing too; -ENOENT: nothing. */
int ps_merge_get_named(
        struct ps_merge *m, uint64_t parent, const char *name, struct ps_node_row *ret) PS_MUST_USE;
/* Gives the name what is listed; old: what ps_merge_get_named() found, or NULL. */
int ps_merge_file(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed,
        enum ps_coding coding, struct ps_node_row *old) PS_MUST_USE;
void ps_merge_supersede(struct ps_merge *m, struct ps_node_row *row);

/* listing_merge_names.c */
/* Under what name and as what a listed file is shown; `last`: the listing is over. */
int ps_merge_named(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed,
        bool last) PS_MUST_USE;
/* Something else has the name by which this node was shown: a shard of this listing is shown as it is. */
int ps_merge_give_way(struct ps_merge *m, const struct ps_node_row *view) PS_MUST_USE;
int ps_merge_compare(const void *a, const void *b); /* nodes, for qsort() and bsearch() */
/* What was put off to the end. Takes names_lock. */
int ps_merge_later(struct ps_merge *m) PS_MUST_USE;
void ps_merge_forget_later(struct ps_merge *m);

/* listing_merge_vanished.c */
int ps_merge_remove_children(struct ps_merge *m, uint64_t dir, int depth) PS_MUST_USE;
/* Names of the directories of this listing that are not in it. Sorts m->seen. Takes names_lock, for each
 * name. */
int ps_merge_remove_vanished(struct ps_merge *m) PS_MUST_USE;

#endif
