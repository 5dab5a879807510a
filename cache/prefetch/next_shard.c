#include "prefetch/prefetch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "catalog/dataset.h"

#define EIGHTHS 8
#define PAUSE_MIN 16u
#define PAUSE_MAX 4096u

struct opened {
	uint64_t node;
	uint64_t after[PS_NEXT_SHARD_SIBLINGS]; /* the files that follow by name; 0: no more */
};

/* A shard that is expected to be opened, and is fetched ahead. */
struct start {
	struct ps_demand demand;
	struct ps_fill_file *file; /* a reference */
	uint64_t node;
	uint64_t opens; /* seq->opens at its start */
};

struct ps_next_shard {
	struct ps_dataset *dataset;
	pthread_mutex_t lock; /* protects what follows */
	uint64_t opens;
	unsigned eighths; /* how much may be fetched ahead in all, in eighths of a shard */
	unsigned pause;   /* opens without a guess after the last wrong guess, halved by each right one */
	uint64_t resume;  /* guessing resumes at this number of opens */
	struct opened recent[PS_NEXT_SHARD_RECENT];
	struct start *starts[PS_NEXT_SHARD_AHEAD]; /* NULL: free */
};

int ps_next_shard_new(struct ps_dataset *dataset, struct ps_next_shard **ret)
{
	struct ps_next_shard *seq = calloc(1, sizeof(*seq));

	if (!seq)
		return -ENOMEM;
	seq->dataset = dataset;
	seq->eighths = 1;
	pthread_mutex_init(&seq->lock, NULL);
	*ret = seq;
	return 0;
}

/* Frees a start. Its demand is cancelled before the file is released. */
static void start_free(struct start *start)
{
	if (!start)
		return;
	ps_demand_cancel(&start->demand);
	ps_fill_file_put(start->file);
	free(start);
}

void ps_next_shard_free(struct ps_next_shard *seq)
{
	if (!seq)
		return;
	for (size_t i = 0; i < PS_NEXT_SHARD_AHEAD; i++)
		start_free(seq->starts[i]);
	pthread_mutex_destroy(&seq->lock);
	free(seq);
}

static void find_siblings(struct ps_dataset *ds, const struct ps_node_row *row, struct opened *ret)
{
	struct ps_index_children *it;
	const char *name;
	size_t n = 0;

	*ret = (struct opened){.node = row->node};
	if (ps_index_children_open(ds->index, row->parent, &it) < 0)
		return;
	ps_index_children_seek_after(it, row->name);
	while (n < PS_NEXT_SHARD_SIBLINGS && ps_index_children_next(it, &name, &ret->after[n]))
		n++;
	if (n < PS_NEXT_SHARD_SIBLINGS)
		ret->after[n] = 0;
	ps_index_children_close(it);
}

/* The functions below need seq->lock held ---------------------------------------------------------------- */

/* The entry of a recently opened node. NULL: not opened recently. */
static struct opened *find_opened(struct ps_next_shard *seq, uint64_t node)
{
	for (size_t i = 0; i < PS_NEXT_SHARD_RECENT; i++)
		if (seq->recent[i].node == node)
			return &seq->recent[i];
	return NULL;
}

/* The distance, in names, from the nearest recently opened file whose name comes before this one's. 0: there
 * is none within reach. */
static unsigned find_stride(const struct ps_next_shard *seq, const struct ps_node_row *row)
{
	unsigned stride = 0;

	for (size_t i = 0; i < PS_NEXT_SHARD_RECENT; i++)
		for (unsigned j = 0; j < PS_NEXT_SHARD_SIBLINGS && seq->recent[i].after[j]; j++)
			if (seq->recent[i].after[j] == row->node && (!stride || j + 1 < stride))
				stride = j + 1;
	return stride;
}

/* Moves to ret[] the expected files that are opened now, and those that were not opened for so long that the
 * guess counts as wrong. */
static size_t take_ended(struct ps_next_shard *seq, uint64_t node, struct start **ret)
{
	size_t n = 0;

	for (size_t i = 0; i < PS_NEXT_SHARD_AHEAD; i++) {
		struct start *start = seq->starts[i];
		bool hit = start && start->node == node;

		if (!start || (!hit && seq->opens - start->opens <= PS_NEXT_SHARD_PATIENCE))
			continue;
		if (hit) {
			seq->eighths = PS_MIN(2 * seq->eighths, EIGHTHS * PS_NEXT_SHARD_AHEAD);
			seq->pause /= 2;
		} else {
			seq->eighths = 1;
			seq->pause = PS_MIN(PS_MAX(2 * seq->pause, PAUSE_MIN), PAUSE_MAX);
			seq->resume = seq->opens + seq->pause;
		}
		ret[n++] = ps_steal_ptr(&seq->starts[i]);
	}
	return n;
}

/* The slot with a start of this node; else a free slot; NULL if there is none. */
static struct start **find_place(struct ps_next_shard *seq, uint64_t node)
{
	struct start **place = NULL;

	for (size_t i = 0; i < PS_NEXT_SHARD_AHEAD; i++) {
		if (seq->starts[i] && seq->starts[i]->node == node)
			return &seq->starts[i];
		if (!seq->starts[i])
			place = &seq->starts[i];
	}
	return place;
}

/* The functions above need seq->lock held ---------------------------------------------------------------- */

/* Demands this many eighths of the file; returns their number of bytes. Takes over the reference. */
static uint64_t start_begin(
        struct ps_next_shard *seq, struct ps_fill_file *file, uint64_t node, unsigned eighths)
{
	uint64_t nblocks = ps_object_nblocks(ps_fill_file_object(file));
	uint64_t end = PS_MAX(nblocks * eighths / EIGHTHS, 1u);
	{
		PS_LOCK_SCOPE(&seq->lock);
		struct start **place = find_place(seq, node);

		if (place && !*place && (*place = malloc(sizeof(**place)))) {
			**place = (struct start){.file = file, .node = node, .opens = seq->opens};
			ps_demand_init(&(*place)->demand, file, PS_DEMAND_NEXT);
			file = NULL; /* the start has the reference */
		}
		if (place && *place)
			ps_demand_extend(&(*place)->demand, 0, end * PS_BLOCK_CHUNKS, end * PS_BLOCK_CHUNKS);
	}
	ps_fill_file_put(file);
	return end * PS_BLOCK_SIZE;
}

/* Demands the files that follow `opened` at this stride. */
static void expect(struct ps_next_shard *seq, const struct opened *opened, unsigned stride, unsigned eighths)
{
	struct ps_fill *fill = seq->dataset->cache->fill;
	uint64_t room = ps_fill_memory_bytes(fill) / 2;

	for (unsigned i = stride - 1; i < PS_NEXT_SHARD_SIBLINGS && opened->after[i] && eighths;
	        i += stride) {
		struct ps_fill_file *file = ps_planned_file(seq->dataset, opened->after[i], false);
		unsigned part = PS_MIN(eighths, EIGHTHS);

		eighths -= part;
		if (!file)
			continue;
		uint64_t nbytes = start_begin(seq, file, opened->after[i], part);
		if (nbytes >= room)
			break;
		room -= nbytes;
	}
	ps_fill_pump(fill);
}

bool ps_next_shard_begin(struct ps_next_shard *seq, uint64_t node)
{
	PS_LOCK_SCOPE(&seq->lock);
	if (seq->recent[(seq->opens + PS_NEXT_SHARD_RECENT - 1) % PS_NEXT_SHARD_RECENT].node == node)
		return false; /* opened again */
	struct opened *earlier = find_opened(seq, node);

	if (earlier)
		*earlier = (struct opened){0};
	seq->recent[seq->opens++ % PS_NEXT_SHARD_RECENT] = (struct opened){.node = node};
	return true;
}

void ps_next_shard_opened(struct ps_next_shard *seq, const struct ps_node_row *row)
{
	struct start *ended[PS_NEXT_SHARD_AHEAD];
	struct opened opened;
	unsigned stride, eighths;
	size_t nended;

	/* While there are plans for the dataset, nothing is guessed. */
	if (ps_plan_ahead_opened(seq->dataset->plan_ahead))
		return;
	find_siblings(seq->dataset, row, &opened);
	{
		PS_LOCK_SCOPE(&seq->lock);
		struct opened *place = find_opened(seq, row->node);

		if (!place)
			return;
		stride = find_stride(seq, row);
		*place = opened;
		nended = take_ended(seq, row->node, ended);
		eighths = seq->opens >= seq->resume ? seq->eighths : 0;
	}
	for (size_t i = 0; i < nended; i++)
		start_free(ended[i]);
	if (stride && eighths)
		expect(seq, &opened, stride, eighths);
}

void ps_next_shard_forget(struct ps_next_shard *seq, uint64_t node)
{
	PS_LOCK_SCOPE(&seq->lock);
	struct opened *place = find_opened(seq, node);

	if (place)
		*place = (struct opened){0};
}
