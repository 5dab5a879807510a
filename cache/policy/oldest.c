#include "policy/oldest.h"

static bool older(const struct ps_policy_item *a, const struct ps_policy_item *b)
{
	if (a->opened_s != b->opened_s)
		return a->opened_s < b->opened_s;
	if (a->seq != b->seq)
		return a->seq < b->seq;
	return ps_id_cmp(&a->id, &b->id) < 0; /* the same on every run */
}

static void swap(size_t *a, size_t *b)
{
	size_t t = *a;
	*a = *b;
	*b = t;
}

/* A heap that stands on its head: the root is h[n - 1], the children of h[n - 1 - i] are h[n - 1 - (2i + 1)]
 * and the next. What is taken from the root then collects at the other end, h[0..), in the order it was
 * taken. */
static void sift_down(const struct ps_policy_item *items, size_t *root, size_t n, size_t i)
{
	for (;;) {
		size_t least = i, child = 2 * i + 1;

		for (size_t c = child; c < n && c < child + 2; c++)
			if (older(&items[root[-(ptrdiff_t)c]], &items[root[-(ptrdiff_t)least]]))
				least = c;
		if (least == i)
			return;
		swap(&root[-(ptrdiff_t)i], &root[-(ptrdiff_t)least]);
		i = least;
	}
}

size_t ps_oldest_first(const struct ps_policy_item *items, size_t *indexes, size_t n, uint64_t need_nbytes)
{
	uint64_t sum = 0;
	size_t taken = 0;

	for (size_t i = 0; i < n && sum < need_nbytes; i++)
		sum += items[indexes[i]].nbytes;
	if (n == 0 || sum < need_nbytes)
		return 0;
	size_t *root = &indexes[n - 1];
	for (size_t i = n / 2; i-- > 0;)
		sift_down(items, root, n, i);
	for (sum = 0; sum < need_nbytes; taken++) {
		size_t left = n - taken;

		/* The last leaf takes the root's place, the root the leaf's, which is indexes[taken]. */
		swap(root, &root[-(ptrdiff_t)(left - 1)]);
		sum += items[indexes[taken]].nbytes;
		sift_down(items, root, left - 1, 0);
	}
	return taken;
}
