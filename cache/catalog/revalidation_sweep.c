/* The sweep: sizes that a listing did not tell are asked for, file by file, before anybody wants them. */
#include "catalog/dataset.h"

#include <string.h>

#include "base/clock.h"
#include "base/thread.h"

#define SWEEP_CONCURRENCY 16
#define SWEEP_AT_ONCE 256 /* names that are taken from the index together */

static bool is_over(struct ps_dataset *ds)
{
	return atomic_load(&ds->stop) || atomic_load(&ds->asked_again);
}

static void sweep_node(struct ps_dataset *ds, uint64_t node, int depth);

/* The next nodes of a directory, behind the name *after (NULL: from its beginning), which becomes that of the
 * last of them. Fewer than there is room for: no more come. */
static size_t take_children(
        struct ps_dataset *ds, uint64_t dir, char **after, uint64_t ret[static SWEEP_AT_ONCE])
{
	struct ps_index_children *it;
	const char *name;
	size_t n = 0;

	if (ps_index_children_open(ds->index, dir, &it) < 0)
		return 0;
	if (*after)
		ps_index_children_seek(it, *after);
	while (n < SWEEP_AT_ONCE && ps_index_children_next(it, &name, &ret[n])) {
		if (*after && strcmp(name, *after) == 0)
			continue;
		if (++n == SWEEP_AT_ONCE) {
			free(*after);
			*after = strdup(name);
		}
	}
	ps_index_children_close(it);
	/* Without memory for the name: the others are asked for when they are wanted. */
	return *after || n < SWEEP_AT_ONCE ? n : 0;
}

/* No snapshot is held while the origin is asked, which may take hours: see ps_index_reopen(). */
static void sweep_dir(struct ps_dataset *ds, uint64_t dir, int depth)
{
	uint64_t nodes[SWEEP_AT_ONCE];
	ps_autofree char *after = NULL;
	size_t n = SWEEP_AT_ONCE;

	if (depth > PS_LIST_MAX_DEPTH)
		return;
	while (n == SWEEP_AT_ONCE) {
		n = take_children(ds, dir, &after, nodes);
		for (size_t i = 0; i < n && !is_over(ds); i++)
			sweep_node(ds, nodes[i], depth);
		if (is_over(ds))
			return;
	}
}

static void sweep_node(struct ps_dataset *ds, uint64_t node, int depth)
{
	struct ps_node_row row;

	if (ps_index_get_node(ds->index, node, &row) < 0)
		return;
	if (row.kind == PS_NODE_DIR) {
		sweep_dir(ds, node, depth + 1);
	} else if (row.remote.size == PS_SIZE_UNKNOWN && !row.superseded) {
		bool full = true;

		while (full && !is_over(ds)) {
			PS_LOCK_SCOPE(&ds->lock);
			full = ds->nsweep >= SWEEP_CONCURRENCY;
			if (full)
				ps_cond_wait_until(&ds->cond, &ds->lock, ps_clock_mono_ns() + 100 * PS_NS_PER_MS);
		}
		if (!is_over(ds))
			ps_probe_unasked(ds, &row);
	}
	ps_node_row_fini(&row);
}

void ps_probe_sweep(struct ps_dataset *ds)
{
	sweep_dir(ds, ds->catalog->row.root, 0);
}
