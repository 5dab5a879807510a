/* The ordered tree, compared with a linear search in an array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/tree.h"

#define N 600

static struct ps_tree_item items[N];
static uint64_t model[N]; /* keys, 0: not in the tree */
static unsigned order[N]; /* of insertion */

/* The index in the model of the first item whose key is at least `key`; items with exactly this key count
 * only if they were inserted after number `after`. -1: none. */
static int model_from(uint64_t key, unsigned after)
{
	int best = -1;

	for (int i = 0; i < N; i++) {
		if (!model[i] || model[i] < key || (model[i] == key && order[i] <= after))
			continue;
		if (best < 0 || model[i] < model[best] || (model[i] == model[best] && order[i] < order[best]))
			best = i;
	}
	return best;
}

static void is_as_the_model(const struct ps_tree *tree)
{
	const struct ps_tree_item *item = ps_tree_first(tree);

	for (int i = model_from(0, 0); i >= 0; i = model_from(model[i], order[i])) {
		assert_ptr_equal(item, &items[i]);
		item = ps_tree_next(item);
	}
	assert_null(item);
}

static unsigned depth(const struct ps_tree_item *item)
{
	unsigned left = item ? depth(item->child[0]) : 0, right = item ? depth(item->child[1]) : 0;

	return item ? 1 + PS_MAX(left, right) : 0;
}

static void items_are_in_the_order_of_keys_then_of_insertion(void **state)
{
	struct ps_tree tree = {0};
	unsigned seed = 5, n = 0;

	(void)state;
	assert_null(ps_tree_first(&tree));
	for (int step = 0; step < 6000; step++) {
		int i = rand_r(&seed) % N;

		if (ps_tree_is_linked(&items[i])) {
			ps_tree_remove(&tree, &items[i]);
			model[i] = 0;
		} else {
			model[i] = 1 + (uint64_t)rand_r(&seed) % 200;
			order[i] = ++n;
			ps_tree_insert(&tree, &items[i], model[i]);
		}
		uint64_t key = (uint64_t)rand_r(&seed) % 220;
		int want = model_from(key, 0);
		assert_ptr_equal(ps_tree_from(&tree, key), want < 0 ? NULL : &items[want]);
		if (step % 100 == 0)
			is_as_the_model(&tree);
	}
	for (int i = 0; i < N; i++)
		ps_tree_remove(&tree, &items[i]);
	assert_true(ps_tree_empty(&tree));
}

static void a_tree_of_keys_in_order_is_not_deep(void **state)
{
	static struct ps_tree_item many[16384];
	struct ps_tree tree = {0};

	(void)state;
	for (uint64_t i = 0; i < PS_ARRAY_LEN(many); i++)
		ps_tree_insert(&tree, &many[i], i);
	assert_true(depth(tree.root) < 60); /* a random tree is about 2 x 14 deep, a list 16384 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(items_are_in_the_order_of_keys_then_of_insertion),
	        cmocka_unit_test(a_tree_of_keys_in_order_is_not_deep),
	};

	return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
