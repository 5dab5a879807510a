/* Intrusive ordered tree: items by a key of 64 bits, and those of one key in the order in which they were
 * inserted. Inserting, removing and finding take time with the logarithm of the number of items (a treap),
 * and allocate nothing. Not thread-safe: the owner's lock covers it.
 *
 * An item that is zeroed is in no tree, so ps_tree_remove() may be called twice. An empty tree is zeroed. */
#ifndef PS_BASE_TREE_H
#define PS_BASE_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct ps_tree_item {
	struct ps_tree_item *up, *child[2];
	uint64_t key;
	uint64_t number; /* of the insertion; 0: in no tree */
	uint64_t weight; /* by chance; no item has one above that of the item over it */
};

struct ps_tree {
	struct ps_tree_item *root;
	uint64_t ninserted;
};

static inline bool ps_tree_empty(const struct ps_tree *tree)
{
	return !tree->root;
}

static inline bool ps_tree_has(const struct ps_tree_item *item)
{
	return item->number > 0;
}

/* The item is in no tree. */
void ps_tree_insert(struct ps_tree *tree, struct ps_tree_item *item, uint64_t key);
void ps_tree_remove(struct ps_tree *tree, struct ps_tree_item *item);
/* The first item whose key is at least `key`; NULL: there is none. */
struct ps_tree_item *ps_tree_from(const struct ps_tree *tree, uint64_t key);
static inline struct ps_tree_item *ps_tree_first(const struct ps_tree *tree)
{
	return ps_tree_from(tree, 0);
}
/* The item after this one; NULL: it is the last. */
struct ps_tree_item *ps_tree_next(const struct ps_tree_item *item);

#endif
