#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

typedef unsigned __int128 u128;

/* Number of windows kept. Readers are a block ahead of the workers, which claim rows: in the same window, or
 * a few windows further. */
#define WINDOWS 8

/* Limits of a window: rows of this rank, steps, and turns of all ranks. A window has at least one step. */
#define WINDOW_ROWS 4096
#define WINDOW_STEPS 32
#define WINDOW_TURNS (1u << 17)

struct window {
	uint64_t number;
	uint64_t used;                   /* time of the last use; 0: the window is empty */
	struct ps_dealt *rows, *by_lane; /* sorted by step and position; sorted by lane and index */
	uint32_t *begins;                /* where each step begins in `rows`, and the end of the last */
	struct ps_mark *from, *to; /* marks of each set before the window's first step and after its last */
};

/* The rows of a step in one lane, and which rank gets them. */
struct share {
	uint32_t count;
	uint32_t keep;   /* the first rows, kept by the lane's own rank */
	uint64_t excess; /* number of the first surplus row within the surplus of its node */
	uint32_t seen;
};

struct gap {
	uint64_t from, n;
};

struct ps_deal {
	struct ps_deal_options o;
	struct ps_lane_set *sets;
	uint32_t nlanes;
	uint64_t regular; /* number of regular steps at the beginning */
	uint64_t nsteps;  /* steps of the rank that has most steps */
	uint32_t steps;   /* steps in a window */
	/* marks of each set, in one array: begin of the epoch, begin of the irregular steps, end */
	struct ps_mark *begin, *middle, *end;
	pthread_mutex_t lock; /* guards all below */
	struct ps_turns turns;
	uint64_t clock;
	struct window windows[WINDOWS];
	/* Scratch for dealing one step: */
	struct share *shares;    /* by lane */
	uint32_t *have;          /* by rank: rows that it keeps of its own lanes */
	uint64_t *over, *lack;   /* by node: surplus rows, and gaps */
	struct ps_dealt *walked; /* all rows of the step */
};

static uint64_t before(const struct ps_deal *d, const struct ps_mark *marks, uint32_t lane)
{
	return ps_mark_before(&marks[ps_lane_set_of(d->sets, lane)], lane, d->o.lengths[lane]);
}

/* Irregular steps ---------------------------------------------------------------------------------------- */

/* Counts surplus and gaps by node, and the rows that each lane's rank keeps. */
static void shares_find(struct ps_deal *d, uint64_t step)
{
	const struct ps_steps *s = &d->o.steps;
	uint32_t world = s->world, nodes = d->o.nodes;

	memset(d->have, 0, world * sizeof(*d->have));
	memset(d->over, 0, nodes * sizeof(*d->over));
	memset(d->lack, 0, nodes * sizeof(*d->lack));
	for (uint32_t l = 0; l < d->nlanes; l++) {
		struct share *share = &d->shares[l];
		uint32_t v = l % world, most = ps_steps_rows(s, step, v);

		share->keep = PS_MIN(share->count, most - d->have[v]);
		share->excess = d->over[v % nodes];
		share->seen = 0;
		d->have[v] += share->keep;
		d->over[v % nodes] += share->count - share->keep;
	}
	for (uint32_t v = 0; v < world; v++)
		d->lack[v % nodes] += ps_steps_rows(s, step, v) - d->have[v];
}

/* Finds the surplus rows that fill the gaps of rank `me`. *own: those of its node's surplus; *common: those
 * of the remaining surplus of all nodes. */
static void gaps_find(
        const struct ps_deal *d, uint64_t step, uint32_t me, struct gap *own, struct gap *common)
{
	uint32_t nodes = d->o.nodes, node = me % nodes;
	uint64_t n = ps_steps_rows(&d->o.steps, step, me) - d->have[me], at = 0;
	uint64_t matched = PS_MIN(d->over[node], d->lack[node]);

	for (uint32_t v = node; v < me; v += nodes)
		at += ps_steps_rows(&d->o.steps, step, v) - d->have[v];
	*own = (struct gap){.from = at, .n = at < matched ? PS_MIN(n, matched - at) : 0};
	*common = (struct gap){.from = at + own->n - matched, .n = n - own->n};
	for (uint32_t i = 0; i < node; i++)
		common->from += d->lack[i] - PS_MIN(d->over[i], d->lack[i]);
}

/* Changes the meaning of two arrays for row_is_of(). d->lack: number of rows of a node's surplus that fill
 * gaps of that node. d->over: the place of the node's first remaining row in the remaining surplus of all
 * nodes. */
static void excess_number(struct ps_deal *d)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->o.nodes; i++) {
		uint64_t matched = PS_MIN(d->over[i], d->lack[i]), n = d->over[i] - matched;

		d->lack[i] = matched;
		d->over[i] = sum;
		sum += n;
	}
}

static bool gap_has(const struct gap *g, uint64_t x)
{
	return x >= g->from && x - g->from < g->n;
}

/* True if the next row of this lane in the step belongs to rank `me`. */
static bool row_is_of(
        struct ps_deal *d, uint32_t lane, uint32_t me, const struct gap *own, const struct gap *common)
{
	struct share *share = &d->shares[lane];
	uint32_t nodes = d->o.nodes, v = lane % d->o.steps.world, node = v % nodes;
	uint64_t x;

	if (share->seen++ < share->keep)
		return v == me;
	x = share->excess + (share->seen - 1 - share->keep);
	if (x < d->lack[node])
		return node == me % nodes && gap_has(own, x);
	return gap_has(common, d->over[node] + x - d->lack[node]);
}

/* Deals a step. d->turns must be at the step's beginning and is moved to its end. Returns the number of
 * rows of this rank's batch. */
static uint32_t step_deal(struct ps_deal *d, uint64_t step, struct ps_dealt *ret_rows)
{
	const struct ps_steps *s = &d->o.steps;
	uint64_t n = ps_steps_begin(s, step + 1) - ps_steps_begin(s, step);
	uint32_t me = ps_steps_source(s, step, d->o.rank), mine = 0;
	struct gap own, common;

	for (uint32_t l = 0; l < d->nlanes; l++)
		d->shares[l].count = 0;
	for (uint64_t i = 0; i < n; i++) {
		d->walked[i] = (struct ps_dealt){.lane = d->turns.lane, .index = d->turns.index};
		d->shares[d->turns.lane].count++;
		ps_turns_advance(&d->turns);
	}
	shares_find(d, step);
	gaps_find(d, step, me, &own, &common);
	excess_number(d);
	for (uint64_t i = 0; i < n; i++)
		if (row_is_of(d, d->walked[i].lane, me, &own, &common))
			ret_rows[mine++] = d->walked[i];
	return mine;
}

/* Windows ------------------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
	const struct ps_dealt *x = a, *y = b;

	if (x->lane != y->lane)
		return x->lane < y->lane ? -1 : 1;
	return (x->index > y->index) - (x->index < y->index);
}

static void window_free(struct window *w)
{
	free(w->rows);
	free(w->by_lane);
	free(w->begins);
	free(w->from);
	free(w->to);
	*w = (struct window){0};
}

static int window_alloc(const struct ps_deal *d, struct window *w)
{
	size_t rows = (size_t)d->steps * d->o.steps.batch;

	if (w->rows)
		return 0;
	w->rows = malloc(rows * sizeof(*w->rows));
	w->by_lane = malloc(rows * sizeof(*w->by_lane));
	w->begins = malloc((d->steps + 1) * sizeof(*w->begins));
	w->from = malloc(d->o.nsets * sizeof(*w->from));
	w->to = malloc(d->o.nsets * sizeof(*w->to));
	if (w->rows && w->by_lane && w->begins && w->from && w->to)
		return 0;
	window_free(w);
	return -ENOMEM;
}

/* Allocates the scratch for dealing, which only an epoch with irregular steps needs. */
static int scratch_alloc(struct ps_deal *d)
{
	const struct ps_steps *s = &d->o.steps;

	if (d->walked)
		return 0;
	free(d->shares);
	free(d->have);
	free(d->over);
	free(d->lack);
	d->shares = malloc(d->nlanes * sizeof(*d->shares));
	d->have = malloc(s->world * sizeof(*d->have));
	d->over = malloc(d->o.nodes * sizeof(*d->over));
	d->lack = malloc(d->o.nodes * sizeof(*d->lack));
	if (!d->shares || !d->have || !d->over || !d->lack)
		return -ENOMEM;
	d->walked = malloc((size_t)s->batch * s->world * sizeof(*d->walked));
	return d->walked ? 0 : -ENOMEM;
}

static void window_deal(struct ps_deal *d, struct window *w, uint64_t number)
{
	uint64_t first = d->regular + number * d->steps;
	uint64_t begin = d->o.begin + ps_steps_begin(&d->o.steps, first);
	uint32_t n = 0;

	if (d->turns.position > begin)
		ps_turns_reset(&d->turns, d->o.lengths, d->o.shares);
	ps_turns_skip(&d->turns, begin - d->turns.position);
	ps_turns_mark(&d->turns, w->from);
	for (uint32_t i = 0; i <= d->steps; i++) {
		w->begins[i] = n;
		if (i < d->steps && first + i < d->nsteps)
			n += step_deal(d, first + i, w->rows + n);
	}
	ps_turns_mark(&d->turns, w->to);
	memcpy(w->by_lane, w->rows, n * sizeof(*w->rows));
	qsort(w->by_lane, n, sizeof(*w->by_lane), compare);
	w->number = number;
}

/* Finds a window by its number, or deals its steps into the oldest window. d->lock must be held. NULL: out of
 * memory. */
static struct window *window_get(struct ps_deal *d, uint64_t number)
{
	struct window *oldest = &d->windows[0];

	for (int i = 0; i < WINDOWS; i++) {
		struct window *w = &d->windows[i];

		if (w->used && w->number == number) {
			w->used = ++d->clock;
			return w;
		}
		if (w->used < oldest->used)
			oldest = w;
	}
	if (window_alloc(d, oldest) < 0 || scratch_alloc(d) < 0)
		return NULL;
	window_deal(d, oldest, number);
	oldest->used = ++d->clock;
	return oldest;
}

/* The window that contains a lane's sample of an irregular step. */
static struct window *window_of(struct ps_deal *d, uint32_t lane, uint64_t index)
{
	const struct ps_steps *s = &d->o.steps;
	uint64_t q, step;

	for (int i = 0; i < WINDOWS; i++)
		if (d->windows[i].used && before(d, d->windows[i].from, lane) <= index &&
		        before(d, d->windows[i].to, lane) > index)
			return &d->windows[i];
	q = ps_sequence_position(d->o.sequence, lane, index) - d->o.begin;
	step = ps_steps_of(s, q);
	return window_get(d, (step - d->regular) / d->steps);
}

/* An epoch ----------------------------------------------------------------------------------------------- */

/* The number of regular steps at the beginning: no lane has ended, and each rank gets the rows of its own
 * lanes. */
static uint64_t regular_steps(const struct ps_deal *d)
{
	const struct ps_steps *s = &d->o.steps;
	uint64_t least = PS_ENDLESS, global = (uint64_t)s->batch * s->world, full,
	         first = d->o.begin + s->from;
	u128 to;

	if (d->o.nsets > 1 || d->nlanes % s->world)
		return 0;
	for (uint32_t l = 0; l < d->nlanes; l++)
		least = PS_MIN(least, d->o.lengths[l]);
	if (least == PS_ENDLESS && s->samples == PS_ENDLESS)
		return s->most;
	to = (u128)least * d->nlanes;
	full = to > first ? (uint64_t)PS_MIN((to - first) / global, (u128)PS_ENDLESS - s->done) : 0;
	/* With PENSTOCK_END_SPLIT the last full step may have one row less for each rank; it is still
	 * regular. */
	if (s->samples != PS_ENDLESS)
		full = PS_MIN(full, (s->samples - PS_MIN(s->samples, s->from)) / global);
	return PS_MIN(s->done + full, s->most);
}

static void marks_find(struct ps_deal *d)
{
	uint64_t middle =
	        d->regular >= d->nsteps ? d->o.end : d->o.begin + ps_steps_begin(&d->o.steps, d->regular);
	struct {
		uint64_t at;
		struct ps_mark *marks;
	} all[] = {{d->o.begin + d->o.steps.from, d->begin}, {middle, d->middle}, {d->o.end, d->end}};

	ps_turns_reset(&d->turns, d->o.lengths, d->o.shares);
	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
		if (all[i].at == PS_ENDLESS) {
			for (uint32_t s = 0; s < d->o.nsets; s++)
				all[i].marks[s] = (struct ps_mark){.round = PS_ENDLESS};
			continue;
		}
		ps_turns_skip(&d->turns, all[i].at - d->turns.position);
		ps_turns_mark(&d->turns, all[i].marks);
	}
}

int ps_deal_new(const struct ps_deal_options *options, struct ps_deal **ret_deal)
{
	struct ps_deal *d = calloc(1, sizeof(*d));
	uint32_t nsets = options->nsets;

	if (!d)
		return -ENOMEM;
	d->o = *options;
	pthread_mutex_init(&d->lock, NULL);
	d->sets = malloc(nsets * sizeof(*d->sets));
	d->begin = malloc(3 * nsets * sizeof(*d->begin));
	if (!d->sets || !d->begin || ps_turns_init(&d->turns, options->sets, nsets) < 0) {
		ps_deal_free(d);
		return -ENOMEM;
	}
	d->middle = d->begin + nsets;
	d->end = d->middle + nsets;
	memcpy(d->sets, options->sets, nsets * sizeof(*d->sets));
	d->o.sets = NULL; /* the caller's array is no longer valid */
	d->nlanes = d->turns.nlanes;
	d->nsteps = ps_steps_count(&d->o.steps, 0);
	d->regular = regular_steps(d);
	d->steps = PS_MIN(WINDOW_STEPS, WINDOW_ROWS / d->o.steps.batch);
	d->steps = (uint32_t)PS_MIN(d->steps, WINDOW_TURNS / ((uint64_t)d->o.steps.batch * d->o.steps.world));
	d->steps = PS_MAX(d->steps, 1u);
	marks_find(d);
	*ret_deal = d;
	return 0;
}

void ps_deal_free(struct ps_deal *d)
{
	if (!d)
		return;
	for (int i = 0; i < WINDOWS; i++)
		window_free(&d->windows[i]);
	ps_turns_fini(&d->turns);
	pthread_mutex_destroy(&d->lock);
	free(d->sets);
	free(d->begin);
	free(d->shares);
	free(d->have);
	free(d->over);
	free(d->lack);
	free(d->walked);
	free(d);
}

int ps_deal_step(struct ps_deal *d, uint64_t step, struct ps_dealt *ret_rows)
{
	const struct ps_steps *s = &d->o.steps;
	uint32_t n = ps_steps_rows(s, step, ps_steps_source(s, step, d->o.rank));
	struct window *w;

	if (step < d->regular) {
		uint64_t p = d->o.begin + ps_steps_begin(s, step);
		uint32_t own = (uint32_t)(p % d->nlanes % s->world);

		p += (d->o.rank + s->world - own) % s->world;
		for (uint32_t i = 0; i < n; i++, p += s->world)
			ret_rows[i] =
			        (struct ps_dealt){.lane = (uint32_t)(p % d->nlanes), .index = p / d->nlanes};
		return 0;
	}
	step -= d->regular;
	PS_LOCK_SCOPE(&d->lock);
	w = window_get(d, step / d->steps);
	if (!w)
		return -ENOMEM;
	memcpy(ret_rows, w->rows + w->begins[step % d->steps], n * sizeof(*ret_rows));
	return 0;
}

/* The window's first row of the lane at or after `index`; NULL: none. */
static const struct ps_dealt *row_find(
        const struct ps_deal *d, const struct window *w, uint32_t lane, uint64_t index)
{
	const struct ps_dealt key = {.lane = lane, .index = index};
	uint32_t low = 0, n = w->begins[d->steps], high = n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (compare(&w->by_lane[mid], &key) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n && w->by_lane[low].lane == lane ? &w->by_lane[low] : NULL;
}

int ps_deal_next(struct ps_deal *d, uint32_t lane, uint64_t index, uint64_t *ret_index)
{
	uint64_t end = before(d, d->end, lane), middle = before(d, d->middle, lane);
	const struct ps_dealt *row;
	struct window *w;

	index = PS_MAX(index, before(d, d->begin, lane));
	if (index < middle && lane % d->o.steps.world != d->o.rank)
		index = middle;
	if (index >= end)
		return PS_DEAL_NONE;
	*ret_index = index;
	if (index < middle || d->o.steps.world == 1)
		return PS_DEAL_FOUND;
	PS_LOCK_SCOPE(&d->lock);
	w = window_of(d, lane, index);
	if (!w)
		return -ENOMEM;
	row = row_find(d, w, lane, index);
	*ret_index = row ? row->index : before(d, w->to, lane);
	return row ? PS_DEAL_FOUND : *ret_index < end ? PS_DEAL_LATER : PS_DEAL_NONE;
}

int ps_deal_wanted(struct ps_deal *d, uint32_t lane, uint64_t index, uint32_t n, bool *ret_wanted)
{
	uint64_t at = index, next;
	int rc;

	memset(ret_wanted, 0, n * sizeof(*ret_wanted));
	while (at < index + n && (rc = ps_deal_next(d, lane, at, &next)) != PS_DEAL_NONE) {
		if (rc < 0)
			return rc;
		at = next;
		if (rc == PS_DEAL_LATER || at >= index + n)
			continue;
		ret_wanted[at++ - index] = true;
	}
	return 0;
}
