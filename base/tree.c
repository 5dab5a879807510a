#include "base/tree.h"

#include <stddef.h>

/* The finaliser of splitmix64: weights are like random numbers, but the same in each run. */
static uint64_t weight_of(uint64_t number)
{
	uint64_t x = number * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static struct ps_tree_item **link_to(struct ps_tree *tree, const struct ps_tree_item *item)
{
	struct ps_tree_item *up = item->up;

	return up ? &up->child[up->child[1] == item] : &tree->root;
}

static void put_at(struct ps_tree_item **link, struct ps_tree_item *up, struct ps_tree_item *item)
{
	*link = item;
	if (item)
		item->up = up;
}

/* Rotates the item above its parent. */
static void rotate_up(struct ps_tree *tree, struct ps_tree_item *item)
{
	struct ps_tree_item *up = item->up;
	int side = up->child[1] == item;

	put_at(link_to(tree, up), up->up, item);
	put_at(&up->child[side], up, item->child[!side]);
	put_at(&item->child[!side], item, up);
}

void ps_tree_insert(struct ps_tree *tree, struct ps_tree_item *item, uint64_t key)
{
	struct ps_tree_item **link = &tree->root, *up = NULL;

	while (*link) {
		up = *link;
		link = &up->child[key >= up->key]; /* after those of the same key */
	}
	*item = (struct ps_tree_item){.up = up, .key = key, .number = ++tree->ninserted};
	item->weight = weight_of(item->number);
	*link = item;
	while (item->up && item->up->weight < item->weight)
		rotate_up(tree, item);
}

void ps_tree_remove(struct ps_tree *tree, struct ps_tree_item *item)
{
	if (!ps_tree_is_linked(item))
		return;
	while (item->child[0] && item->child[1])
		rotate_up(tree, item->child[item->child[0]->weight < item->child[1]->weight]);
	put_at(link_to(tree, item), item->up, item->child[item->child[0] ? 0 : 1]);
	*item = (struct ps_tree_item){0};
}

struct ps_tree_item *ps_tree_from(const struct ps_tree *tree, uint64_t key)
{
	struct ps_tree_item *item = tree->root, *found = NULL;

	while (item) {
		if (item->key >= key)
			found = item;
		item = item->child[item->key < key];
	}
	return found;
}

struct ps_tree_item *ps_tree_next(const struct ps_tree_item *item)
{
	if (item->child[1]) {
		struct ps_tree_item *next = item->child[1];

		while (next->child[0])
			next = next->child[0];
		return next;
	}
	while (item->up && item->up->child[1] == item)
		item = item->up;
	return item->up;
}
