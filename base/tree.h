/* Intrusive ordered tree (a treap): items are ordered by a 64-bit key, and those with equal keys by
 * insertion. Insert, remove and find take logarithmic time and allocate nothing. Not thread-safe: the
 * owner's lock covers it.
 *
 * A zeroed struct ps_tree is an empty tree; a zeroed item is in no tree. ps_tree_remove() zeroes the item,
 * so it may be called twice. */
#ifndef PS_BASE_TREE_H
#define PS_BASE_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct ps_tree_item {
	struct ps_tree_item *up, *child[2];
	uint64_t key;
	uint64_t number; /* counts insertions; 0: in no tree */
	uint64_t weight; /* random; never larger than the parent's */
};

struct ps_tree {
	struct ps_tree_item *root;
	uint64_t ninserted;
};

static inline bool ps_tree_empty(const struct ps_tree *tree)
{
	return !tree->root;
}

static inline bool ps_tree_is_linked(const struct ps_tree_item *item)
{
	return item->number > 0;
}

/* The item must not be in a tree. */
void ps_tree_insert(struct ps_tree *tree, struct ps_tree_item *item, uint64_t key);
void ps_tree_remove(struct ps_tree *tree, struct ps_tree_item *item);
/* The first item whose key is at least `key`, or NULL. */
struct ps_tree_item *ps_tree_from(const struct ps_tree *tree, uint64_t key);
static inline struct ps_tree_item *ps_tree_first(const struct ps_tree *tree)
{
	return ps_tree_from(tree, 0);
}
/* The next item, or NULL. */
struct ps_tree_item *ps_tree_next(const struct ps_tree_item *item);

#endif
