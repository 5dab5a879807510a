#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <string.h>

#define HALF (PS_SHARE_ONE / 2)

/* Nodes of the tree: first the sets, in their order, then pairs, the root last. */
struct node {
	uint32_t left, right; /* of a pair */
	uint32_t parent;      /* the root's is the root */
	uint64_t given;       /* samples before the base */
};

struct stage {
	uint64_t at;     /* its first position */
	uint64_t *share; /* of each node */
	ps_u128 *sum;    /* A at its beginning */
};

struct ps_shares {
	uint32_t nsets, nnodes, nstages;
	struct node *nodes;
	struct stage *stages; /* constant ones */
	uint64_t gone;
	uint64_t *most; /* each set's largest share */
	uint64_t *shares;
	ps_u128 *sums;
};

/* Makes the sum of shares exactly one: what is missing after rounding goes to the largest. */
static void shares_complete(uint32_t n, uint64_t *share)
{
	uint64_t sum = 0;
	uint32_t largest = 0;

	for (uint32_t d = 0; d < n; d++) {
		sum += share[d];
		if (share[d] > share[largest])
			largest = d;
	}
	share[largest] += PS_SHARE_ONE - sum; /* modulo 2^64: the sum may be larger */
}

static void shares_scale(uint32_t n, const double *weights, uint64_t *ret_share)
{
	double sum = 0;

	for (uint32_t d = 0; d < n; d++)
		sum += weights[d];
	for (uint32_t d = 0; d < n; d++) {
		double scaled = weights[d] / sum * (double)PS_SHARE_ONE;

		ret_share[d] = weights[d] > 0 && scaled < 1 ? 1 : (uint64_t)scaled;
	}
	shares_complete(n, ret_share);
}

/* The number of constant stages that a stage is made of, with those of its staircase. */
static uint32_t stairs_of(const struct ps_share_stage *stages, uint32_t k)
{
	if (k == 0 || !stages[k].linear)
		return 0;
	return (uint32_t)PS_MIN(stages[k].at - stages[k - 1].at, UINT64_C(0) + PS_SHARES_STAIRS);
}

/* The shares in the middle of stair i of n, between those of two stages. */
static void stair_make(const struct ps_shares *s, const uint64_t *from, const uint64_t *to, uint64_t i,
        uint64_t n, uint64_t *ret_share)
{
	for (uint32_t d = 0; d < s->nsets; d++)
		ret_share[d] = (from[d] * (2 * (n - i) - 1) + to[d] * (2 * i + 1)) / (2 * n);
	shares_complete(s->nsets, ret_share);
}

/* Fills the constant stages. A linear stage replaces the one before it by its stairs. */
static void stages_fill(
        struct ps_shares *s, const struct ps_share_stage *stages, uint32_t nstages, uint64_t row)
{
	uint32_t at = 0;

	for (uint32_t k = 0; k < nstages; k++) {
		uint32_t n = stairs_of(stages, k);
		struct stage *before = &s->stages[at - (n > 0)];
		uint64_t *to = s->stages[at + n - (n > 0)].share;

		s->stages[at + n - (n > 0)].at = row + stages[k].at;
		shares_scale(s->nsets, stages[k].weights, to);
		for (uint32_t i = n; i-- > 0;) { /* the last first: the first is written over `before` */
			before[i].at = row + stages[k - 1].at +
			               (uint64_t)((ps_u128)(stages[k].at - stages[k - 1].at) * i / n);
			stair_make(s, before->share, to, i, n, before[i].share);
		}
		at += n + (n == 0);
	}
	s->nstages = at;
}

/* Sorts sets by their largest share, the largest first; of equal ones the lower number first. */
static void sets_sort(const struct ps_shares *s, uint32_t *ret_sets)
{
	for (uint32_t d = 0; d < s->nsets; d++) {
		uint32_t at = d;

		for (; at > 0 && s->most[ret_sets[at - 1]] < s->most[d]; at--)
			ret_sets[at] = ret_sets[at - 1];
		ret_sets[at] = d;
	}
}

/* Makes the tree of a list of sets: it is cut where the sums of both parts differ least. Returns the root. */
static uint32_t tree_make(struct ps_shares *s, const uint32_t *sets, uint32_t n)
{
	uint64_t all = 0, sum = 0, least = UINT64_MAX;
	uint32_t cut = 1, left, right;

	if (n == 1)
		return sets[0];
	for (uint32_t i = 0; i < n; i++)
		all += s->most[sets[i]];
	for (uint32_t i = 1; i < n; i++) {
		uint64_t off;

		sum += s->most[sets[i - 1]];
		off = sum > all - sum ? sum - (all - sum) : all - sum - sum;
		if (off < least) {
			least = off;
			cut = i;
		}
	}
	left = tree_make(s, sets, cut);
	right = tree_make(s, sets + cut, n - cut);
	s->nodes[s->nnodes] = (struct node){.left = left,
	        .right = right,
	        .parent = s->nnodes,
	        .given = s->nodes[left].given + s->nodes[right].given};
	s->nodes[left].parent = s->nodes[right].parent = s->nnodes;
	for (uint32_t k = 0; k < s->nstages; k++)
		s->stages[k].share[s->nnodes] = s->stages[k].share[left] + s->stages[k].share[right];
	s->stages[0].sum[s->nnodes] = s->stages[0].sum[left] + s->stages[0].sum[right];
	return s->nnodes++;
}

/* Sums the shares up to each stage. */
static void sums_fill(struct ps_shares *s)
{
	for (uint32_t k = 0; k < s->nstages; k++)
		for (uint32_t d = 0; d < s->nnodes; d++) {
			const struct stage *before = &s->stages[k - (k > 0)];

			if (k > 0)
				s->stages[k].sum[d] = before->sum[d] + (ps_u128)before->share[d] *
				                                               (s->stages[k].at - before->at);
		}
}

int ps_shares_new(uint32_t nsets, const struct ps_share_stage *stages, uint32_t nstages, uint64_t row,
        uint64_t gone, const struct ps_share_base *base, struct ps_shares **ret_shares)
{
	struct ps_shares *s = calloc(1, sizeof(*s));
	uint32_t sorted[PS_MAX_SETS];
	size_t n = nstages;

	if (!s)
		return -ENOMEM;
	for (uint32_t k = 0; k < nstages; k++)
		n += stairs_of(stages, k);
	*s = (struct ps_shares){.nsets = nsets,
	        .nnodes = nsets,
	        .gone = gone,
	        .nodes = calloc(2 * (size_t)nsets, sizeof(*s->nodes)),
	        .stages = calloc(n, sizeof(*s->stages)),
	        .shares = calloc(n * 2 * nsets, sizeof(*s->shares)),
	        .sums = calloc(n * 2 * nsets, sizeof(*s->sums)),
	        .most = calloc(nsets, sizeof(*s->most))};
	if (!s->nodes || !s->stages || !s->shares || !s->sums || !s->most) {
		ps_shares_free(s);
		return -ENOMEM;
	}
	for (size_t k = 0; k < n; k++) {
		s->stages[k].share = s->shares + k * 2 * nsets;
		s->stages[k].sum = s->sums + k * 2 * nsets;
	}
	for (uint32_t d = 0; d < nsets && base; d++) {
		s->stages[0].sum[d] = base[d].sum;
		s->nodes[d].given = base[d].given;
	}
	stages_fill(s, stages, nstages, row);
	for (uint32_t k = 0; k < s->nstages; k++)
		for (uint32_t d = 0; d < nsets; d++)
			s->most[d] = PS_MAX(s->most[d], s->stages[k].share[d]);
	sets_sort(s, sorted);
	(void)tree_make(s, sorted, nsets);
	sums_fill(s);
	*ret_shares = s;
	return 0;
}

void ps_shares_free(struct ps_shares *s)
{
	if (!s)
		return;
	free(s->stages);
	free(s->shares);
	free(s->sums);
	free(s->nodes);
	free(s->most);
	free(s);
}

uint64_t ps_shares_most(const struct ps_shares *s, uint32_t set)
{
	return s->most[set];
}

uint64_t ps_shares_begin(const struct ps_shares *s)
{
	return s->stages[0].at;
}

/* Times -------------------------------------------------------------------------------------------------- */

/* When sample j of a node is due: once A has reached j + 1/2. */
static struct ps_share_time due(const struct ps_shares *s, uint32_t node, uint64_t j)
{
	ps_u128 level = ((ps_u128)j << 32) + HALF, sum;
	uint32_t low = 0, high = s->nstages - 1;

	/* the stage at whose end A has first reached the level */
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (s->stages[mid + 1].sum[node] >= level)
			high = mid;
		else
			low = mid + 1;
	}
	sum = s->stages[low].sum[node];
	if (level <= sum) /* of the base: due at once */
		return (struct ps_share_time){.stage = low};
	return (struct ps_share_time){
	        .stage = s->stages[low].share[node] > 0 ? low : PS_SHARES_NEVER, .x = level - sum};
}

/* True if the sample of the left node that is due at `a` comes before one of the right node, due at `b`. */
static bool is_left(const struct ps_shares *s, const struct node *pair, const struct ps_share_time *a,
        const struct ps_share_time *b)
{
	const uint64_t *share = a->stage == PS_SHARES_NEVER ? NULL : s->stages[a->stage].share;

	if (a->stage != b->stage)
		return a->stage < b->stage;
	if (!share) /* which one lacks least */
		return a->x <= b->x;
	if (a->x == 0 || b->x == 0)
		return a->x == 0;
	return a->x * share[pair->right] <= b->x * share[pair->left];
}

/* The number of samples with a level of at most v / of, in 2^-32 rows; `below`: below that. */
static uint64_t levels(ps_u128 v, uint64_t of, bool below)
{
	ps_u128 first = (ps_u128)HALF * of, n;

	if (v < first || (below && v == first))
		return 0;
	n = (v - first - below) / ((ps_u128)of << 32) + 1;
	return n > UINT64_MAX ? UINT64_MAX : (uint64_t)n;
}

/* The number of samples of a node before that of the other node of its pair, which is due at `time`. Of
 * samples due at the same time, the left one comes first. */
static uint64_t count_before(
        const struct ps_shares *s, uint32_t node, uint32_t other, const struct ps_share_time *time)
{
	const struct stage *last = &s->stages[s->nstages - 1], *k = &s->stages[time->stage];
	bool is_left = s->nodes[s->nodes[node].parent].left == node;
	uint64_t n;

	if (time->stage == PS_SHARES_NEVER)
		n = last->share[node] > 0 ? UINT64_MAX : levels(last->sum[node] + time->x, 1, !is_left);
	else if (time->x == 0) /* at the base */
		n = is_left ? levels(k->sum[node], 1, false) : 0;
	else
		n = levels(k->sum[node] * k->share[other] + k->share[node] * time->x, k->share[other],
		        !is_left && k->share[node] > 0);
	return PS_MAX(n, s->nodes[node].given);
}

uint64_t ps_shares_position(const struct ps_shares *s, uint32_t set, uint64_t j)
{
	ps_u128 i = j;

	for (uint32_t node = set; s->nodes[node].parent != node; node = s->nodes[node].parent) {
		const struct node *pair = &s->nodes[s->nodes[node].parent];
		uint32_t other = pair->left == node ? pair->right : pair->left;
		struct ps_share_time time;

		if (i >= PS_SHARES_MAX_ROW)
			return PS_ENDLESS - 1;
		time = due(s, node, (uint64_t)i);
		i += count_before(s, other, node, &time);
	}
	return i + s->gone >= PS_SHARES_MAX_ROW ? PS_ENDLESS - 1 : (uint64_t)i + s->gone;
}

/* Places ------------------------------------------------------------------------------------------------- */

static const struct stage *stage_of(const struct ps_shares *s, uint64_t row)
{
	uint32_t low = 0, high = s->nstages - 1;

	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (s->stages[mid].at <= row)
			low = mid;
		else
			high = mid - 1;
	}
	return &s->stages[low];
}

/* The number of samples of a node that are due at a row, or before it. */
static uint64_t due_by(const struct ps_shares *s, uint32_t node, uint64_t row)
{
	const struct stage *k = stage_of(s, row);
	uint64_t n = levels(k->sum[node] + (ps_u128)k->share[node] * (row - k->at), 1, false);

	return PS_MAX(n, s->nodes[node].given);
}

static uint64_t both_due_by(const struct ps_shares *s, const struct node *pair, uint64_t row)
{
	return due_by(s, pair->left, row) + due_by(s, pair->right, row);
}

/* The last row by which at most n samples of a pair are due; the base, if there are more even then. It is
 * near the row at which the pair's own sample n is due. */
static uint64_t row_find(const struct ps_shares *s, uint32_t node, uint64_t n)
{
	const struct node *pair = &s->nodes[node];
	struct ps_share_time time = due(s, node, n);
	uint64_t begin = s->stages[0].at, low = begin, high = 2 * PS_SHARES_MAX_ROW, step = 2;

	if (time.stage != PS_SHARES_NEVER) {
		const struct stage *k = &s->stages[time.stage];
		ps_u128 at = k->at + (time.x > 0 ? time.x / k->share[node] : 0);

		low = high = (uint64_t)PS_MIN(at, (ps_u128)high);
		for (; low > begin && both_due_by(s, pair, low) > n; step *= 2)
			low = low - begin > step ? low - step : begin;
		for (step = 2; high < 2 * PS_SHARES_MAX_ROW && both_due_by(s, pair, high) <= n; step *= 2)
			high = PS_MIN(high + step, 2 * PS_SHARES_MAX_ROW);
	}
	while (high - low > 1) {
		uint64_t mid = low + (high - low) / 2;

		if (both_due_by(s, pair, mid) <= n)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/* Divides the first n samples of a node among its sets. */
static void places_fill(const struct ps_shares *s, uint32_t node, uint64_t n, struct ps_share_base *ret)
{
	const struct node *pair = &s->nodes[node];
	struct ps_share_time a, b;
	uint64_t row, left, right;

	if (node < s->nsets) {
		ret[node].given = n;
		return;
	}
	row = row_find(s, node, n);
	left = due_by(s, pair->left, row);
	right = due_by(s, pair->right, row);
	if (left + right > n) { /* more are due at the base than were given */
		left = s->nodes[pair->left].given;
		right = s->nodes[pair->right].given;
	}
	a = due(s, pair->left, left);
	b = due(s, pair->right, right);
	while (left + right < n) /* only a few */
		if (is_left(s, pair, &a, &b))
			a = due(s, pair->left, ++left);
		else
			b = due(s, pair->right, ++right);
	places_fill(s, pair->left, left, ret);
	places_fill(s, pair->right, right, ret);
}

void ps_shares_at(const struct ps_shares *s, uint64_t position, struct ps_share_base *ret)
{
	uint64_t at = PS_MIN(position, PS_SHARES_MAX_ROW);
	const struct stage *k = stage_of(s, at);

	places_fill(s, s->nnodes - 1, at - s->gone, ret);
	for (uint32_t d = 0; d < s->nsets; d++)
		ret[d].sum = k->sum[d] + (ps_u128)k->share[d] * (at - k->at);
}

/* In turn ------------------------------------------------------------------------------------------------ */

int ps_share_walk_init(struct ps_share_walk *w, uint32_t nsets)
{
	*w = (struct ps_share_walk){.given = calloc(2 * (size_t)nsets, sizeof(*w->given)),
	        .due = calloc(2 * (size_t)nsets, sizeof(*w->due))};
	if (w->given && w->due)
		return 0;
	ps_share_walk_fini(w);
	return -ENOMEM;
}

void ps_share_walk_fini(struct ps_share_walk *w)
{
	free(w->given);
	free(w->due);
	*w = (struct ps_share_walk){0};
}

void ps_share_walk_begin(struct ps_share_walk *w, const struct ps_shares *s, uint64_t position)
{
	struct ps_share_base places[PS_MAX_SETS];

	w->shares = s;
	ps_shares_at(s, position, places);
	for (uint32_t i = 0; i < s->nnodes; i++) {
		const struct node *node = &s->nodes[i];

		w->given[i] = i < s->nsets ? places[i].given : w->given[node->left] + w->given[node->right];
		w->due[i] = due(s, i, w->given[i]);
	}
}

uint32_t ps_share_walk_next(const struct ps_share_walk *w)
{
	const struct ps_shares *s = w->shares;
	uint32_t i = s->nnodes - 1;

	while (i >= s->nsets) {
		const struct node *pair = &s->nodes[i];

		i = is_left(s, pair, &w->due[pair->left], &w->due[pair->right]) ? pair->left : pair->right;
	}
	return i;
}

void ps_share_walk_give(struct ps_share_walk *w, uint32_t set)
{
	const struct ps_shares *s = w->shares;
	uint32_t i = set;

	for (;; i = s->nodes[i].parent) {
		w->given[i]++;
		if (s->nodes[i].parent == i)
			return;
		w->due[i] = due(s, i, w->given[i]);
	}
}
