#include "config.h"

#include "epoch_model.h"

#include <string.h>

#include "penstock.h"
#include "random/random.h"

uint32_t counts[SHARDS];
uint32_t lengths[SHARDS][16];

const char filter_text[] = "!(label == 1) && (w > 0.3 || label >= 3)";

static uint64_t rnd_state = 1;

uint32_t rnd(uint32_t below)
{
	rnd_state = rnd_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rnd_state >> 33) % below;
}

void rnd_seed(uint32_t seed)
{
	rnd_state = seed;
}

uint32_t label_of(uint32_t v)
{
	return (v / 100 + v % 100 * v % 7) % 4;
}

double weight_of(uint32_t v)
{
	return (double)(v * 13 % 9) / 4;
}

void add(struct list *l, uint32_t v)
{
	if (l->n < MOST)
		l->v[l->n++] = v;
}

static void shuffle(uint32_t *v, uint32_t n, const struct ps_rng_key *key, uint32_t op)
{
	for (uint32_t i = n; i-- > 1;) {
		uint32_t j = (uint32_t)ps_rng_below(key, op, i, i + 1u), t = v[i];

		v[i] = v[j];
		v[j] = t;
	}
}

static uint32_t length_of(uint32_t v)
{
	return lengths[v / 100][v % 100];
}

static bool filter_model(uint32_t v)
{
	return label_of(v) != 1 && (weight_of(v) > 0.3 || label_of(v) >= 3);
}

/* How often a sample comes in a pass, as order/select.c defines it. */
static uint32_t times_model(const struct setting *s, uint32_t v, uint64_t pass)
{
	struct ps_rng_key key = {.seed = s->seed,
	        .epoch = s->epoch,
	        .shard = v / 100,
	        .sample = v % 100,
	        .draw = (uint32_t)pass};
	double u = ps_rng_unit(&key, PS_RNG_SAMPLE_DRAW, 0);
	uint32_t classes[4] = {0}, n = 0, c = 0, least = UINT32_MAX;
	bool filtered = s->select == SELECT_FILTER || s->select == SELECT_BALANCE_FILTERED_AGAIN;

	if (filtered && !filter_model(v))
		return 0;
	if (s->select < SELECT_WEIGHTS)
		return 1;
	if (s->select == SELECT_WEIGHTS)
		return u < weight_of(v);
	if (s->select == SELECT_WEIGHTS_AGAIN)
		return (uint32_t)(weight_of(v) + u);
	for (uint32_t i = 0; i < s->nshards; i++)
		for (uint32_t j = 0; j < counts[i]; j++)
			if (!filtered || filter_model(i * 100 + j)) {
				classes[label_of(i * 100 + j)]++;
				n++;
			}
	for (uint32_t i = 0; i < 4; i++)
		if (classes[i] > 0) {
			least = classes[i] < least ? classes[i] : least;
			c++;
		}
	if (s->select == SELECT_BALANCE)
		return u < (double)least / classes[label_of(v)];
	return (uint32_t)((double)n / ((double)c * classes[label_of(v)]) + u);
}

static void add_times(const struct setting *s, struct list *l, uint32_t v, uint64_t pass)
{
	for (uint32_t n = times_model(s, v, pass); n > 0; n--)
		add(l, v);
}

/* The end of the block that begins at `at`. The first n samples are cut into shorter blocks, unless blocks
 * are sorted by length. */
static uint32_t block_end(const struct setting *s, uint32_t at, uint32_t n)
{
	for (uint32_t part = s->epoch ? 16 : 128; part > 1 && s->bucket <= 1; part /= 2)
		if (n / part > at)
			return n / part;
	return (at / n + 1) * n;
}

/* Shuffles a block as order/order.h defines it. */
static void block_model(const struct setting *s, uint64_t lane, uint32_t block, uint32_t *v, uint32_t n)
{
	struct ps_rng_key key = {.seed = s->seed, .epoch = s->epoch, .shard = lane, .sample = block};
	struct ps_rng_key common = {.seed = s->seed, .epoch = s->epoch, .sample = block, .draw = 1};
	uint32_t runs = s->bucket < n ? s->bucket : n, order[256], out[512], at = 0;

	if (s->bucket < 2) {
		shuffle(v, n, &key, PS_RNG_SAMPLE_ORDER);
		return;
	}
	for (uint32_t i = 1; i < n; i++) /* insertion sort is stable */
		for (uint32_t j = i; j > 0 && length_of(v[j - 1]) > length_of(v[j]); j--) {
			uint32_t t = v[j];

			v[j] = v[j - 1];
			v[j - 1] = t;
		}
	for (uint32_t i = 0; i < runs; i++)
		order[i] = i;
	shuffle(order, runs, &common, PS_RNG_SAMPLE_ORDER);
	for (uint32_t i = 0; i < runs; i++) {
		uint32_t begin = n * order[i] / runs, end = n * (order[i] + 1) / runs;

		memcpy(out + at, v + begin, (end - begin) * sizeof(*v));
		key.draw = 2 + i;
		shuffle(out + at, end - begin, &key, PS_RNG_SAMPLE_ORDER);
		at += end - begin;
	}
	memcpy(v, out, n * sizeof(*v));
}

/* Samples and their lanes. */
struct sequence {
	struct list samples, lanes;
};

/* A rank's number in the dealing: the rank with number v is on node v mod the number of nodes. */
static uint32_t number_of(const struct setting *s, uint32_t rank)
{
	uint32_t k = s->ranks_per_node > 1 ? s->ranks_per_node : 1;

	return rank % k * (s->world / k) + rank / k;
}

/* The shards of a set in the order of a pass, numbered from 0. */
static void shards_model(const struct setting *s, uint32_t d, uint32_t n, uint64_t pass, uint32_t *shards)
{
	struct ps_rng_key key = {.seed = s->seed, .epoch = s->epoch, .sample = d, .draw = (uint32_t)pass};
	struct ps_rng_key run = {.seed = s->seed, .sample = d};

	for (uint32_t i = 0; i < n; i++)
		shards[i] = i;
	if (s->order == PENSTOCK_ORDER_NONE)
		return;
	if (s->homes < 2) {
		shuffle(shards, n, &key, PS_RNG_SHARD_ORDER);
		return;
	}
	shuffle(shards, n, &run, PS_RNG_SHARD_HOME);
	for (uint32_t h = 0; h < s->homes; h++) {
		uint32_t own[SHARDS], m = 0;

		for (uint32_t i = h; i < n; i += s->homes)
			own[m++] = shards[i];
		key.shard = h;
		shuffle(own, m, &key, PS_RNG_SHARD_ORDER);
		while (m-- > 0)
			shards[h + m * s->homes] = own[m];
	}
}

/* One set's canonical sequence. The set's lanes are numbered from `number` on; `all` is the number of lanes
 * of all sets together. */
static void set_model(const struct setting *s, uint32_t d, uint32_t number, uint32_t nlanes, uint32_t all,
        uint64_t passes, struct sequence *ret)
{
	static struct list lanes[64];
	uint32_t first = s->sets[d], n = s->sets[d + 1] - first, block = (s->window + all - 1) / all;

	for (uint32_t l = 0; l < nlanes; l++)
		lanes[l].n = 0;
	for (uint32_t l = 0; l < nlanes; l++) {
		for (uint64_t pass = 0; pass < passes; pass++) {
			uint32_t shards[SHARDS];

			shards_model(s, d, n, pass, shards);
			for (uint32_t i = l; i < n; i += nlanes)
				for (uint32_t j = 0; j < counts[first + shards[i]]; j++)
					add_times(s, &lanes[l], (first + shards[i]) * 100 + j, pass);
		}
		for (uint32_t b = 0, at = 0; at < lanes[l].n && s->order == PENSTOCK_ORDER_WINDOW; b++) {
			uint32_t end = block_end(s, at, block);

			end = end < lanes[l].n ? end : lanes[l].n;
			block_model(s, s->nmix > 1 ? (uint64_t)d << 32 | l : l, b, lanes[l].v + at, end - at);
			at = end;
		}
	}
	ret->samples.n = ret->lanes.n = 0;
	for (uint32_t round = 0; round < MOST; round++)
		for (uint32_t l = 0; l < nlanes; l++)
			if (round < lanes[l].n && (!s->own || l % s->world == s->rank)) {
				add(&ret->samples, lanes[l].v[round]);
				add(&ret->lanes, number + l);
			}
}

static void permutation_model(const struct setting *s, uint64_t passes, struct list *ret)
{
	static struct list all;
	struct ps_permutation p;

	all.n = ret->n = 0;
	for (uint32_t i = 0; i < s->nshards; i++)
		for (uint32_t j = 0; j < counts[i]; j++)
			add_times(s, &all, i * 100 + j, 0);
	for (uint64_t pass = 0; pass < passes; pass++) {
		ps_permutation_init(&p, all.n, s->seed, s->epoch, (uint32_t)pass);
		for (uint32_t i = 0; i < all.n; i++)
			add(ret, all.v[ps_permutation_at(&p, i)]);
	}
}

/* Shares of the datasets by row, in 2^-32 rows, and their sums up to each row: whole tables. */
#define ROWS (MOST + 1000)

typedef unsigned __int128 u128;

static uint64_t shares[3][ROWS];
static u128 sums[3][ROWS + 1];

/* Gives what is missing to one to the largest. */
static void shares_round(uint32_t n, const u128 *parts, uint32_t row)
{
	uint64_t sum = 0;
	uint32_t largest = 0;

	for (uint32_t d = 0; d < n; d++) {
		shares[d][row] = (uint64_t)parts[d];
		sum += shares[d][row];
		if (shares[d][row] > shares[largest][row])
			largest = d;
	}
	shares[largest][row] += (UINT64_C(1) << 32) - sum;
}

static void weights_scale(uint32_t n, const double *weights, uint32_t row)
{
	double sum = 0;
	u128 parts[3];

	for (uint32_t d = 0; d < n; d++)
		sum += weights[d];
	for (uint32_t d = 0; d < n; d++) {
		double part = weights[d] / sum * 4294967296.0;

		parts[d] = weights[d] > 0 && part < 1 ? 1 : (uint64_t)part;
	}
	shares_round(n, parts, row);
}

/* Fills the tables, row by row. A linear change of r rows is a staircase of r steps, 256 at most, each with
 * the shares of its middle. */
static void shares_model(const struct setting *s)
{
	uint32_t n = s->nmix;
	uint64_t begins[4] = {0}, ends[2][3];

	for (uint32_t k = 0; k < s->nstages; k++)
		begins[k + 1] = s->starts[k] + s->skip;
	for (uint32_t row = 0; row < ROWS; row++) {
		uint32_t k = 0;

		while (k < s->nstages && row >= begins[k + 1])
			k++;
		if (k < s->nstages && s->linear[k]) {
			uint64_t r = begins[k + 1] - begins[k], stairs = r < 256 ? r : 256, i = 0;
			u128 parts[3];

			while (i + 1 < stairs && row >= begins[k] + r * (i + 1) / stairs)
				i++;
			for (uint32_t e = 0; e < 2; e++) {
				weights_scale(n, k + e > 0 ? s->stages[k + e - 1] : s->mix, row);
				for (uint32_t d = 0; d < n; d++)
					ends[e][d] = shares[d][row];
			}
			for (uint32_t d = 0; d < n; d++)
				parts[d] = ((u128)ends[0][d] * (2 * (stairs - i) - 1) +
				                   (u128)ends[1][d] * (2 * i + 1)) /
				           (2 * stairs);
			shares_round(n, parts, row);
		} else {
			weights_scale(n, k > 0 ? s->stages[k - 1] : s->mix, row);
		}
	}
	for (uint32_t d = 0; d < n; d++)
		for (uint32_t row = 0; row < ROWS; row++)
			sums[d][row + 1] = sums[d][row] + shares[d][row];
}

/* When sample j of a group of datasets (bits) is due, that is when its A reaches j + 1/2: in a row, `x` parts
 * of `of` after its beginning. */
struct due {
	uint32_t row; /* ROWS: never, as far as the tables go */
	u128 x, of;
};

static struct due due_model(uint32_t group, uint32_t j)
{
	u128 level = ((u128)j << 32) + (UINT64_C(1) << 31), before = 0, sum = 0;
	struct due due = {.of = 1};

	for (due.row = 0; due.row < ROWS; due.row++, before = sum) {
		sum = 0;
		for (uint32_t d = 0; d < 3; d++)
			sum += group & 1u << d ? sums[d][due.row + 1] : 0;
		if (sum >= level)
			break;
	}
	if (due.row < ROWS) {
		due.x = level - before;
		due.of = sum - before;
	} else {
		due.x = level - sum; /* what it lacks */
	}
	return due;
}

static bool due_before(struct due a, struct due b)
{
	/* at the end of a row, or at the beginning of the next */
	if (a.x == a.of)
		a = (struct due){.row = a.row + 1, .of = 1};
	if (b.x == b.of)
		b = (struct due){.row = b.row + 1, .of = 1};
	return a.row != b.row ? a.row < b.row : a.x * b.of < b.x * a.of;
}

/* The dataset of a group that gives the next sample, of up to three: the largest and the other two, or the
 * larger two and the smallest; `given` samples so far. */
static uint32_t next_model(const uint64_t *most, uint32_t nsets, const uint32_t *given)
{
	uint32_t v[3] = {0, 1, 2}, left, right, counts_of[8];

	if (nsets == 1)
		return 0;
	for (uint32_t i = 0; i < nsets; i++) /* the largest first, the lower number first among equals */
		for (uint32_t j = i + 1; j < nsets; j++)
			if (most[v[j]] > most[v[i]] || (most[v[j]] == most[v[i]] && v[j] < v[i])) {
				uint32_t t = v[i];

				v[i] = v[j];
				v[j] = t;
			}
	for (uint32_t group = 0; group < 8; group++) {
		counts_of[group] = 0;
		for (uint32_t d = 0; d < nsets; d++)
			counts_of[group] += group & 1u << d ? given[d] : 0;
	}
	left = 1u << v[0];
	right = 1u << v[1];
	if (nsets == 3) {
		uint64_t a = most[v[0]], bc = most[v[1]] + most[v[2]], ab = most[v[0]] + most[v[1]],
		         c = most[v[2]];
		uint64_t first = a > bc ? a - bc : bc - a, second = ab > c ? ab - c : c - ab;

		if (first <= second)
			right |= 1u << v[2];
		else {
			left |= right;
			right = 1u << v[2];
		}
	}
	for (uint32_t group = left, other = right;;) {
		uint32_t chosen =
		        due_before(due_model(other, counts_of[other]), due_model(group, counts_of[group]))
		                ? other
		                : group;
		uint32_t only = chosen == 1 ? 0 : chosen == 2 ? 1 : 2;

		if (chosen == 1u << only)
			return only;
		/* a pair: the larger one is the left */
		group = 1u << (chosen & 1u << v[0] ? v[0] : v[1]);
		other = chosen & ~group;
	}
}

/* The canonical sequence of an epoch: the sequence of world size 1, for any `end`; with `own`, the lanes of
 * one rank. */
static void canonical_model(const struct setting *s, struct sequence *ret)
{
	static struct sequence sets[3];
	bool endless = s->steps > 0 && s->repeat == 0;
	uint64_t passes = endless ? 400 : s->repeat ? s->repeat : 1;
	uint32_t nsets = s->nmix > 1 ? s->nmix : 1, nlanes[3], all = 0, given[3] = {0}, longest = 0;
	uint64_t weights[3] = {1, 1, 1}, total = 0;

	if (s->order == PENSTOCK_ORDER_PERMUTATION) {
		permutation_model(s, passes, &ret->samples);
		ret->lanes.n = 0;
		for (uint32_t i = 0; i < ret->samples.n; i++)
			add(&ret->lanes, i % s->lanes);
		return;
	}
	if (nsets > 1)
		shares_model(s);
	for (uint32_t d = 0; d < nsets; d++) {
		for (uint32_t row = 0; row < ROWS && nsets > 1; row++)
			weights[d] = shares[d][row] > weights[d] ? shares[d][row] : weights[d];
		total += weights[d];
	}
	for (uint32_t d = 0; d < nsets; d++) {
		uint32_t n = s->sets[d + 1] - s->sets[d], lanes = s->order != PENSTOCK_ORDER_NONE ? s->lanes
		                                                  : s->own                        ? s->world
		                                                                                  : 1;

		nlanes[d] = (uint32_t)((lanes * (u128)weights[d] + total - 1) / total);
		if (nlanes[d] < 1)
			nlanes[d] = 1;
		if (nlanes[d] > n)
			nlanes[d] = n;
		all += nlanes[d];
	}
	for (uint32_t d = 0, number = 0; d < nsets; number += nlanes[d++])
		set_model(s, d, number, nlanes[d], all, passes, &sets[d]);
	/* the longest is the one that is asked last for a sample that it does not have */
	for (uint32_t p = 0, ended = 0; p < ROWS / 2 && nsets > 1 && ended != (1u << nsets) - 1; p++) {
		uint32_t d = next_model(weights, nsets, given);

		if (given[d] == sets[d].samples.n) {
			ended |= 1u << d;
			longest = d;
		}
		given[d]++;
	}
	memset(given, 0, sizeof(given));
	if (nsets > 1 && s->mix_end == PENSTOCK_MIX_LONGEST && !endless)
		for (uint32_t d = 0, number = 0; d < nsets; number += nlanes[d++])
			if (d != longest)
				set_model(s, d, number, nlanes[d], all, 400, &sets[d]);
	ret->samples.n = ret->lanes.n = 0;
	while (ret->samples.n < MOST) {
		uint32_t due = next_model(weights, nsets, given);

		if (given[due] == sets[due].samples.n)
			return;
		add(&ret->samples, sets[due].samples.v[given[due]]);
		add(&ret->lanes, sets[due].lanes.v[given[due]++]);
	}
}

bool is_shared(const struct setting *s)
{
	return s->world == 1 || s->order == PENSTOCK_ORDER_PERMUTATION || (s->steps && !s->repeat) ||
	       s->end != PENSTOCK_END_UNEVEN || s->skip || s->take || s->nmix > 1 || s->nshards < s->world ||
	       (s->order != PENSTOCK_ORDER_NONE && s->lanes < s->world);
}

static void own_model(const struct setting *setting, uint32_t rank, struct course *c)
{
	static struct sequence all;
	struct setting s = *setting;

	s.own = true;
	s.rank = number_of(setting, rank);
	c->sizes.n = 0;
	canonical_model(&s, &all);
	c->rows = all.samples;
	if (s.steps && c->rows.n > s.steps * s.batch)
		c->rows.n = (uint32_t)s.steps * s.batch;
	for (uint32_t at = 0; at < c->rows.n; at += s.batch)
		add(&c->sizes, c->rows.n - at < s.batch ? c->rows.n - at : s.batch);
}

/* Gives rows that have no owner yet, and whose lanes belong to node `node`, to ranks of that node that lack
 * rows; both in ascending order. */
static void gaps_fill(const struct setting *s, const uint32_t *lanes, uint32_t n, uint32_t *owner,
        const uint32_t *share, uint32_t *have, uint32_t node, uint32_t nodes)
{
	for (uint32_t l = 0, v = node; l < 64; l++)
		for (uint32_t i = 0; i < n; i++) {
			if (lanes[i] != l || owner[i] != BLANK || l % s->world % nodes != node)
				continue;
			while (v < s->world && have[v] == share[v])
				v += nodes;
			if (v >= s->world)
				return;
			owner[i] = v;
			have[v]++;
		}
}

/* Which rank gets which rows of a step, as order/order.h defines it. */
static void deal_model(const struct setting *s, const uint32_t *lanes, uint32_t n, uint32_t *owner)
{
	uint32_t share[64], have[64] = {0}, k = s->ranks_per_node > 1 ? s->ranks_per_node : 1;
	uint32_t nodes = s->world / k;

	for (uint32_t v = 0; v < s->world; v++)
		share[v] = n / s->world + (v < n % s->world);
	for (uint32_t i = 0; i < n; i++)
		owner[i] = BLANK;
	for (uint32_t l = 0; l < 64; l++)
		for (uint32_t i = 0; i < n; i++)
			if (lanes[i] == l && have[l % s->world] < share[l % s->world]) {
				owner[i] = l % s->world;
				have[l % s->world]++;
			}
	for (uint32_t node = 0; node < nodes; node++)
		gaps_fill(s, lanes, n, owner, share, have, node, nodes);
	/* Last, over all nodes: rows of the first node, and ranks of the first node that lack rows, come
	 * first. */
	for (uint32_t node = 0, to = 0, v = 0; node < nodes; node++)
		for (uint32_t l = 0; l < 64; l++)
			for (uint32_t i = 0; i < n; i++) {
				if (lanes[i] != l || owner[i] != BLANK || l % s->world % nodes != node)
					continue;
				while (have[v] == share[v]) {
					v += nodes;
					if (v >= s->world)
						v = ++to;
				}
				owner[i] = v;
				have[v]++;
			}
}

/* Samples of a step. */
static uint32_t len_model(const struct setting *s, uint32_t step, uint32_t full, uint32_t rest)
{
	uint32_t len = step < full ? s->batch * s->world : rest;

	if (s->end == PENSTOCK_END_SPLIT && s->batch > 1 && full > 0 && rest > 0 && rest < s->world) {
		len -= step == full - 1 ? s->world : 0;
		len += step == full ? s->world : 0;
	}
	return len;
}

/* How many samples an epoch has in all, as far as steps= goes. */
static uint32_t total_model(const struct setting *s, const struct sequence *all)
{
	uint32_t n = all->samples.n > s->skip ? all->samples.n - (uint32_t)s->skip : 0;
	uint64_t first = s->first ? s->first : (uint64_t)s->batch * s->world;

	if (s->take && n > s->take)
		n = (uint32_t)s->take;
	if (s->steps && n > s->steps * first)
		n = (uint32_t)(s->steps * first);
	return n;
}

uint64_t rows_model(const struct setting *s, uint32_t batches)
{
	static struct sequence both;
	uint32_t n, global = s->batch * s->world;
	uint64_t rows = s->from;

	canonical_model(s, &both);
	n = total_model(s, &both);
	n = n > s->from ? n - (uint32_t)s->from : 0;
	for (uint32_t step = 0; step < batches; step++)
		rows += len_model(s, step, n / global, n % global);
	return rows;
}

void course_model(const struct setting *s, uint32_t rank, struct course *c)
{
	static struct sequence both;
	struct list *const lanes = &both.lanes;
	static uint32_t owner[MOST];
	bool endless = s->steps > 0 && s->repeat == 0;
	uint32_t global = s->batch * s->world, begin = 0, n, full, rest;
	uint64_t opened = s->first ? s->first : global;
	bool capped = s->steps > 0 && (s->from > 0 || opened != global);

	if (!is_shared(s)) {
		own_model(s, rank, c);
		return;
	}
	c->rows.n = c->sizes.n = 0;
	canonical_model(s, &both);
	n = both.samples.n > s->skip ? both.samples.n - (uint32_t)s->skip : 0;
	if (s->take && n > s->take)
		n = (uint32_t)s->take;
	if (capped)
		n = total_model(s, &both);
	memmove(both.samples.v, both.samples.v + s->skip, n * sizeof(uint32_t));
	memmove(lanes->v, lanes->v + s->skip, n * sizeof(uint32_t));
	n = n > s->from ? n - (uint32_t)s->from : 0;
	memmove(both.samples.v, both.samples.v + s->from, n * sizeof(uint32_t));
	memmove(lanes->v, lanes->v + s->from, n * sizeof(uint32_t));
	rank = number_of(s, rank);
	full = n / global;
	rest = n % global;
	if (endless && !capped && !(s->take && n == s->take))
		rest = 0;
	for (uint32_t step = 0; step < full + (rest > 0); step++) {
		uint32_t len = len_model(s, step, full, rest), size = 0, repeat = BLANK;

		if (s->steps && !capped && step == s->steps)
			break;
		if (step == full && s->end == PENSTOCK_END_DROP_LAST)
			break;
		deal_model(s, lanes->v + begin, len, owner);
		for (uint32_t p = begin; p < begin + len; p++)
			if (owner[p - begin] == rank) {
				add(&c->rows, both.samples.v[p]);
				size++;
			} else if (owner[p - begin] == rank % len) {
				repeat = 100000 + both.samples.v[p]; /* used if the rank has no sample */
			}
		begin += len;
		if (s->end == PENSTOCK_END_PAD) {
			uint32_t have = size, first = c->rows.n - size;

			for (; size < s->batch; size++)
				add(&c->rows, have ? 100000 + c->rows.v[first + size % have] : repeat);
		}
		if (s->end == PENSTOCK_END_SPLIT && size == 0) {
			add(&c->rows, repeat);
			size++;
		}
		if (size > 0)
			add(&c->sizes, size);
	}
}

bool is_empty(const struct setting *s)
{
	struct setting all = *s;
	static struct course course;

	setting_world(&all, 1);
	all.batch = 1;
	all.end = PENSTOCK_END_UNEVEN;
	course_model(&all, 0, &course);
	return course.rows.n == 0;
}

void setting_world(struct setting *s, uint32_t world)
{
	s->world = world;
	do
		s->ranks_per_node = 1 + rnd(world);
	while (world % s->ranks_per_node);
}

void setting_random(struct setting *s)
{
	*s = (struct setting){.nshards = 1 + rnd(SHARDS),
	        .order = rnd(4),
	        .lanes = 1 + rnd(10),
	        .window = 1 + rnd(60),
	        .batch = 1 + rnd(7),
	        .world = 1 + rnd(6),
	        .end = rnd(4),
	        .seed = rnd(1000),
	        .epoch = rnd(5)};
	if (rnd(4) == 0)
		s->repeat = 1 + rnd(3);
	if (rnd(4) == 0)
		s->steps = 1 + rnd(9);
	if (rnd(4) == 0)
		s->skip = rnd(30);
	if (rnd(4) == 0)
		s->take = 1 + rnd(40);
	if (rnd(3) == 0)
		s->select = rnd(SELECT_NKINDS);
	if (s->order == PENSTOCK_ORDER_WINDOW && rnd(3) == 0)
		s->bucket = 2 + rnd(5);
	s->sets[1] = s->nshards;
	setting_world(s, s->world);
	if (s->nshards >= 3 && s->order != PENSTOCK_ORDER_PERMUTATION && rnd(3) == 0) {
		s->nmix = 2 + rnd(2);
		s->sets[1] = 1 + rnd(s->nshards - 2);
		s->sets[2] = s->nmix == 2 ? s->nshards : s->sets[1] + 1 + rnd(s->nshards - s->sets[1] - 1);
		s->sets[3] = s->nshards;
		s->mix_end = rnd(2);
		s->nstages = rnd(3);
		for (uint32_t d = 0; d < s->nmix; d++)
			s->mix[d] = 1 + rnd(4);
		for (uint32_t k = 0; k < s->nstages; k++) {
			s->starts[k] = (k > 0 ? s->starts[k - 1] : 0) + 1 + rnd(40);
			s->linear[k] = rnd(2);
			for (uint32_t d = 0; d < s->nmix; d++)
				s->stages[k][d] = d == k % s->nmix ? 1 + rnd(3) : rnd(4);
		}
	} else if ((s->order == PENSTOCK_ORDER_WINDOW || s->order == PENSTOCK_ORDER_SHARDS) && rnd(3) == 0) {
		uint32_t lanes = s->lanes < s->nshards ? s->lanes : s->nshards;

		do
			s->homes = 1 + rnd(lanes);
		while (lanes % s->homes);
	}
}

/* The first shard is empty: a dataset, or a home, of that shard alone cannot be repeated without end. */
static bool may_have_no_sample(const struct setting *s)
{
	return s->sets[1] == 1 || s->select != SELECT_ALL || s->homes > 1;
}

bool setting_wanted(const struct setting *s)
{
	bool endless = s->steps && !s->repeat;
	bool longest = s->nmix > 1 && s->mix_end == PENSTOCK_MIX_LONGEST;

	/* Order NONE does not shuffle the shards of each pass: a lane may have the empty shard alone. */
	return !((endless || longest) &&
	         (may_have_no_sample(s) || (s->order == PENSTOCK_ORDER_NONE && !is_shared(s))));
}
