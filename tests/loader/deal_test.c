/* How the rows of steps are dealt to ranks, for the sizes of real runs: each sample comes once, the steps are
 * the same for any number of ranks, a batch has samples of many shards, and few ranks open a shard. The tests
 * call the order's code without shards. */
#include "config.h"

#include "order/order.h"

#include <stdio.h>
#include <string.h>

#include "make_tar.h"
#include "order_samples.h"

static uint64_t rnd_state = 7;

static uint32_t rnd(uint32_t below)
{
	rnd_state = rnd_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rnd_state >> 33) % below;
}

struct run {
	uint32_t nshards, batch, world, per_node, homes;
	uint32_t lanes; /* 0: the default */
	enum penstock_end end;
	uint64_t seed, epoch;
	const uint32_t *counts;
	const uint32_t *sets; /* where the second of two sets begins; NULL: one set */
	uint64_t skip;
};

static int count(
        void *ctx, uint64_t epoch, uint64_t pass, uint32_t shard, uint64_t *ret, struct ps_error *err)
{
	(void)epoch;
	(void)pass;
	(void)err;
	*ret = ((const uint32_t *)ctx)[shard];
	return 0;
}

struct rank {
	struct ps_order *order;
	struct ps_epochs *epochs;
	struct ps_epoch *epoch;
};

static const double three_two[] = {3, 2};
static const struct ps_share_stage mix_of_two = {.weights = three_two};

static void rank_open(const struct run *r, uint32_t rank, struct rank *ret)
{
	uint64_t global = (uint64_t)r->batch * r->world;
	struct ps_order_set sets[2] = {{.n = r->nshards, .weight = 3}, {.key = 1, .weight = 2}};
	struct ps_error err;

	if (r->sets) {
		sets[0].n = sets[1].first = *r->sets;
		sets[1].n = r->nshards - *r->sets;
	}
	ret->order =
	        ps_order_new(&(struct ps_order_options){.mode = PS_ORDER_WINDOW,
	                             .nshards = r->nshards,
	                             .lanes = r->lanes ? r->lanes : ps_order_lanes_auto(global, r->nshards),
	                             .window = ps_order_window_auto(global),
	                             .rank = rank,
	                             .world = r->world,
	                             .seed = r->seed,
	                             .repeat = 1,
	                             .shared = true,
	                             .sets = r->sets ? sets : NULL,
	                             .nsets = r->sets ? 2 : 0,
	                             .homes = r->homes},
	                &err);
	if (!ret->order)
		fail_msg("%s", err.text);
	ret->epochs = ps_epochs_new(&(struct ps_epochs_options){.order = ret->order,
	        .mode = PS_ORDER_WINDOW,
	        .known = true,
	        .repeat = 1,
	        .counts = {.count = count, .ctx = (void *)(uintptr_t)r->counts},
	        .nshards = r->nshards,
	        .seed = r->seed,
	        .skip = r->skip,
	        .take = PS_ENDLESS,
	        .steps = PS_ENDLESS,
	        .batch = r->batch,
	        .rank = rank,
	        .world = r->world,
	        .nodes = r->world / PS_MAX(r->per_node, 1u),
	        .end = r->end,
	        .samples = PS_ENDLESS,
	        .stages = &mix_of_two,
	        .nstages = 1});
	assert_non_null(ret->epochs);
	assert_int_equal(ps_epochs_get(ret->epochs, r->epoch, &ret->epoch, &err), 0);
}

static void rank_close(struct rank *r)
{
	ps_epoch_unref(r->epoch);
	ps_epochs_free(r->epochs);
	ps_order_free(r->order);
}

/* Every lane's samples, lane after lane. */
struct map {
	struct order_sample *v;
	uint64_t *begins; /* of the lanes, and the end of the last */
};

static void map_make(const struct run *r, const struct rank *rank, struct map *map)
{
	uint32_t nlanes = ps_order_nlanes(rank->order);
	uint64_t all = 0, n;

	for (uint32_t s = 0; s < r->nshards; s++)
		all += r->counts[s];
	map->v = malloc(PS_MAX(all, UINT64_C(1)) * sizeof(*map->v));
	map->begins = calloc(nlanes + 1, sizeof(*map->begins));
	assert_true(map->v && map->begins);
	for (uint32_t l = 0; l < nlanes; l++) {
		assert_int_equal(
		        order_samples(rank->order, r->epoch, l, r->counts, map->v + map->begins[l], &n), 0);
		map->begins[l + 1] = map->begins[l] + n;
	}
	assert_int_equal(map->begins[nlanes], all);
}

static void map_free(struct map *map)
{
	free(map->v);
	free(map->begins);
}

/* Sets step_of[i] to the step of the sample at place i of the map, or UINT32_MAX: none. Asserts that no
 * sample comes twice, but for repeats, and that ps_deal_wanted(), asked lane by lane, names the same samples
 * of each rank. */
static void steps_note(const struct run *r, uint32_t *step_of, uint64_t n, const struct map *map)
{
	ps_autofree struct ps_dealt *rows = malloc(r->batch * sizeof(*rows));
	ps_autofree bool *mine = malloc(PS_MAX(n, UINT64_C(1)));
	ps_autofree bool *wanted = malloc(PS_MAX(n, UINT64_C(1)));

	memset(step_of, 0xff, n * sizeof(*step_of));
	for (uint32_t i = 0; i < r->world; i++) {
		struct rank rank;

		rank_open(r, i, &rank);
		memset(mine, 0, n);
		for (uint64_t s = 0; s < ps_steps_count(&rank.epoch->steps, i); s++) {
			assert_int_equal(ps_deal_step(rank.epoch->deal, s, rows), 0);
			for (uint32_t k = 0; k < ps_epoch_rows(rank.epoch, s); k++) {
				uint64_t at = map->begins[rows[k].lane] + rows[k].index;

				assert_true(at < map->begins[rows[k].lane + 1]);
				assert_int_equal(
				        step_of[at], ps_epoch_repeats(rank.epoch, s) ? s : UINT32_MAX);
				step_of[at] = (uint32_t)s;
				mine[at] = true;
			}
		}
		rank_close(&rank); /* opened again: so the dealing is not cached for ps_deal_wanted() */
		rank_open(r, i, &rank);
		for (uint32_t l = 0; l < ps_order_nlanes(rank.order); l++) {
			uint32_t len = (uint32_t)(map->begins[l + 1] - map->begins[l]), to;

			for (uint32_t from = 0; from < len; from = to) { /* piece by piece, as blocks come */
				to = from + 1 + rnd(40);
				to = PS_MIN(to, len);
				assert_int_equal(ps_deal_wanted(rank.epoch->deal, l, from, to - from,
				                         wanted + map->begins[l] + from),
				        0);
			}
		}
		assert_memory_equal(mine, wanted, n);
		rank_close(&rank);
	}
}

static void counts_vary(uint32_t *counts, uint32_t n, uint32_t mean, uint32_t spread)
{
	for (uint32_t i = 0; i < n; i++)
		counts[i] = mean - spread + rnd(2 * spread + 1);
}

static void each_world_has_the_same_steps_and_each_sample_once(void **state)
{
	static const uint32_t worlds[] = {1, 2, 3, 4, 6, 8, 12, 24};
	static uint32_t counts[200], first[20000], other[20000];

	(void)state;
	for (int i = 0; i < 60; i++) {
		uint32_t half;
		struct run r = {.nshards = 1 + rnd(i % 3 ? 199 : 20),
		        .seed = rnd(100),
		        .epoch = rnd(9),
		        .end = i % 2 ? PENSTOCK_END_DROP_LAST : PENSTOCK_END_PAD,
		        .lanes = rnd(3) ? 0 : 1 + rnd(70),
		        .skip = rnd(4) ? 0 : rnd(50),
		        .counts = counts};
		uint32_t global = 24 * (1 + rnd(6));
		struct rank rank;
		struct map map;
		uint64_t n = 0;

		half = 1 + r.nshards / 3;
		if (r.nshards > 3 && rnd(4) == 0)
			r.sets = &half;
		counts_vary(counts, r.nshards, 40, rnd(3) * 20);
		for (uint32_t s = 0; s < r.nshards; s++)
			n += counts[s];
		for (size_t w = 0; w < PS_ARRAY_LEN(worlds); w++) {
			r.world = worlds[w];
			r.batch = global / r.world;
			do
				r.per_node = 1 + rnd(r.world);
			while (r.world % r.per_node);
			rank_open(&r, 0, &rank);
			map_make(&r, &rank, &map);
			rank_close(&rank);
			steps_note(&r, w ? other : first, n, &map);
			if (w > 0)
				assert_memory_equal(first, other, n * sizeof(*first));
			map_free(&map);
		}
		if (r.end == PENSTOCK_END_PAD && r.skip == 0 && !r.sets)
			for (uint64_t k = 0; k < n; k++)
				assert_true(first[k] != UINT32_MAX);
	}
}

/* Each sample comes once if the ranks split the last samples. One size of batch is larger than the number of
 * samples that are dealt at a time. */
static void samples_of_the_last_steps_are_split_over_the_ranks(void **state)
{
	static const uint32_t batches[] = {2, 3, 8, 5000};
	static uint32_t counts[200], steps[30000];

	(void)state;
	for (uint32_t i = 0; i < 48; i++) {
		struct run r = {.nshards = 12 + rnd(40),
		        .world = 1 + rnd(12),
		        .batch = batches[i % 4],
		        .seed = i,
		        .end = PENSTOCK_END_SPLIT,
		        .lanes = rnd(2) ? 0 : 12 + rnd(30),
		        .per_node = 1,
		        .counts = counts};
		uint64_t n = 0, rest, global;
		struct rank rank;
		struct map map;

		if (r.batch == 5000)
			r.world = 1 + i / 4 % 2;
		rest = 1 + rnd(PS_MAX(r.world, 2u) - 1);
		global = (uint64_t)r.batch * r.world;
		counts_vary(counts, r.nshards, r.batch == 5000 ? 450 : 40, rnd(3) * 20);
		for (uint32_t s = 0; s < r.nshards; s++)
			n += counts[s];
		/* Fewer samples are left than there are ranks: the last step takes some from the step
		 * before. */
		for (; n % global != rest % global; n++)
			counts[rnd(r.nshards)]++;
		rank_open(&r, 0, &rank);
		map_make(&r, &rank, &map);
		rank_close(&rank);
		assert_true(n <= PS_ARRAY_LEN(steps));
		steps_note(&r, steps, n, &map);
		for (uint64_t k = 0; k < n; k++)
			assert_true(steps[k] != UINT32_MAX);
		map_free(&map);
	}
}

/* Lanes take turns: the computed places of their samples must equal places that are counted one by one. */
static void computed_places_equal_counted_ones(void **state)
{
	static const uint64_t lengths[][4] = {
	        {5, 6, 3, 6}, {6, 5, 5, 5}, {5, 6, 6, 5}, {1, 1, 9, 4}, {7, 7, 7, 7}};
	const struct ps_lane_set set = {.n = 4};
	struct ps_sequence *s;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(lengths); i++) {
		uint64_t place = 0;

		assert_int_equal(ps_sequence_new(&set, 1, NULL, lengths[i], &s), 0);
		for (uint64_t round = 0; round < 9; round++)
			for (uint32_t lane = 0; lane < 4; lane++)
				if (round < lengths[i][lane])
					assert_int_equal(ps_sequence_position(s, lane, round), place++);
		assert_int_equal(ps_sequence_total(s), place);
		ps_sequence_free(s);
	}
}

/* One stage with these weights; NULL: one set. */
static struct ps_shares *shares_of(uint32_t nsets, const double *weights)
{
	struct ps_shares *shares = NULL;

	if (nsets > 1)
		assert_int_equal(ps_shares_new(nsets, &(struct ps_share_stage){.weights = weights}, 1, 0, 0,
		                         NULL, &shares),
		        0);
	return shares;
}

/* Both turns are at the same place, or both are over. */
static void turns_same(const struct ps_turns *walked, const struct ps_turns *skipped)
{
	assert_int_equal(walked->over, skipped->over);
	if (walked->over)
		return;
	assert_int_equal(walked->position, skipped->position);
	assert_int_equal(walked->lane, skipped->lane);
	assert_int_equal(walked->index, skipped->index);
}

static void a_skip_of_n_equals_n_single_steps_also_beyond_the_end(void **state)
{
	static const struct {
		struct ps_lane_set sets[3];
		double weights[3];
		uint32_t nsets;
		uint64_t lengths[6];
	} rows[] = {
	        {{{.n = 3}}, {1}, 1, {4, 0, 7}},
	        {{{.n = 1}, {.first = 1, .n = 1}}, {1, 1}, 2, {1, 100}},
	        {{{.n = 1}, {.first = 1, .n = 2}}, {1, 1000}, 2, {1, 3000, 2500}},
	        {{{.n = 2}, {.first = 2, .n = 1}, {.first = 3, .n = 3}}, {5, 2, 90}, 3,
	                {20, 30, 4, 100, 900, 333}},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_shares *shares = shares_of(rows[i].nsets, rows[i].weights);
		struct ps_turns walked, skipped;
		uint64_t n = 0;

		assert_int_equal(ps_turns_init(&walked, rows[i].sets, rows[i].nsets), 0);
		assert_int_equal(ps_turns_init(&skipped, rows[i].sets, rows[i].nsets), 0);
		ps_turns_reset(&walked, rows[i].lengths, shares);
		for (uint64_t over = 0; over < 3000; over += walked.over ? 7 : 0) {
			ps_turns_reset(&skipped, rows[i].lengths, shares);
			ps_turns_skip(&skipped, n / 3); /* in two parts; below in one */
			ps_turns_skip(&skipped, n - n / 3);
			turns_same(&walked, &skipped);
			ps_turns_reset(&skipped, rows[i].lengths, shares);
			ps_turns_skip(&skipped, n);
			turns_same(&walked, &skipped);
			n += walked.over ? 7 : 1;
			ps_turns_advance(&walked);
		}
		ps_turns_fini(&walked);
		ps_turns_fini(&skipped);
		ps_shares_free(shares);
	}
}

/* Lanes whose ends are found while reading take the same turns, in the same rounds, as lanes of known
 * lengths. */
static void lanes_take_the_same_turns_with_known_and_with_found_lengths(void **state)
{
	static const uint64_t lengths[][4] = {
	        {5, 6, 3, 6}, {6, 5, 5, 5}, {5, 6, 6, 5}, {1, 1, 9, 4}, {7, 7, 7, 7}, {0, 2, 0, 1}};
	const struct ps_lane_set set = {.n = 4};

	(void)state;
	for (size_t i = 0; i < 2 * PS_ARRAY_LEN(lengths); i++) {
		const uint64_t *of = lengths[i / 2];
		bool at_once = i % 2; /* the end is found with the last sample, or only at the next turn */
		uint64_t given[4] = {0};
		struct ps_turns known, found;

		assert_int_equal(ps_turns_init(&known, &set, 1), 0);
		assert_int_equal(ps_turns_init(&found, &set, 1), 0);
		ps_turns_reset(&known, of, NULL);
		ps_turns_reset(&found, NULL, NULL);
		for (;;) {
			while (!found.over && given[found.lane] == of[found.lane])
				ps_turns_finish(&found, false);
			assert_int_equal(found.over, known.over);
			if (known.over)
				break;
			assert_int_equal(found.lane, known.lane);
			assert_int_equal(found.index, known.index);
			assert_int_equal(found.position, known.position);
			assert_int_equal(ps_turns_round(&found, 0), known.index);
			ps_turns_advance(&known);
			if (++given[found.lane] == of[found.lane] && at_once)
				ps_turns_finish(&found, true);
			else
				ps_turns_advance(&found);
		}
		ps_turns_fini(&known);
		ps_turns_fini(&found);
	}
}

/* The rows that a set should have before row t, by the stages' weights alone: trapezoids of linear changes.
 * */
static double share_before(
        const struct ps_share_stage *stages, uint32_t nstages, uint32_t n, uint32_t d, double t)
{
	double rows = 0;

	for (uint32_t k = 0; k < nstages; k++) {
		bool ramp = k + 1 < nstages && stages[k + 1].linear;
		double begin = (double)stages[k].at, end = k + 1 < nstages ? (double)stages[k + 1].at : 1e18;
		double sum = 0, next = 0, at, to, x;

		for (uint32_t e = 0; e < n; e++) {
			sum += stages[k].weights[e];
			next += ramp ? stages[k + 1].weights[e] : 0;
		}
		at = stages[k].weights[d] / sum;
		to = ramp ? stages[k + 1].weights[d] / next : at;
		x = (t < end ? t : end) - begin;
		if (x <= 0)
			break;
		rows += x * (at + (to - at) * x / (end - begin) / 2);
	}
	return rows;
}

#define MIX_MOST 59
#define MIX_STAGES 5

struct mix {
	struct ps_lane_set sets[MIX_MOST];
	double weights[MIX_STAGES][MIX_MOST];
	struct ps_share_stage stages[MIX_STAGES];
	uint32_t n, nstages;
};

/* A mix of `n` sets; `kind`: random weights, a large and many small ones, or falling ones; some are 0. */
static void mix_random(struct mix *m, uint32_t n, uint32_t nstages, uint32_t kind)
{
	*m = (struct mix){.n = n, .nstages = nstages};
	for (uint32_t d = 0; d < n; d++)
		m->sets[d] = (struct ps_lane_set){.first = d, .n = 1};
	for (uint32_t k = 0; k < nstages; k++) {
		for (uint32_t d = 0; d < n; d++) {
			double weights[] = {
			        1 + rnd(1u << 24), d ? 1 : n - 1, (double)(1u << 24) / (1 + rnd(n))};

			m->weights[k][d] = nstages > 1 && rnd(4) == 0 && d != k % n ? 0 : weights[kind % 3];
		}
		m->stages[k] = (struct ps_share_stage){.at = k ? m->stages[k - 1].at + 1 + rnd(2500) : 0,
		        .linear = k > 0 && rnd(2),
		        .weights = m->weights[k]};
	}
}

/* Walks a mix, and returns the largest deviation of a prefix. Computed places and skips equal the walk. */
static double mix_walk(const struct mix *m, uint64_t nrows, uint32_t one)
{
	static uint64_t lengths[MIX_MOST], given[MIX_MOST];
	static struct ps_share_base places[MIX_MOST];
	struct ps_sequence *sequence;
	struct ps_turns t, skipped;
	struct ps_shares *shares;
	double worst = 0;

	memset(lengths, 0xff, sizeof(lengths)); /* PS_ENDLESS */
	memset(given, 0, sizeof(given));
	assert_int_equal(ps_shares_new(m->n, m->stages, m->nstages, 0, 0, NULL, &shares), 0);
	assert_int_equal(ps_turns_init(&t, m->sets, m->n), 0);
	assert_int_equal(ps_turns_init(&skipped, m->sets, m->n), 0);
	assert_int_equal(ps_sequence_new(m->sets, m->n, shares, lengths, &sequence), 0);
	ps_turns_reset(&t, lengths, shares);
	for (uint64_t p = 0; p < nrows; p++) {
		assert_false(t.over);
		if (p % 601 == one) {
			ps_turns_reset(&skipped, lengths, shares);
			ps_turns_skip(&skipped, p);
			turns_same(&t, &skipped);
			ps_shares_at(shares, p, places);
			for (uint32_t d = 0; d < m->n; d++)
				assert_int_equal(places[d].given, given[d]);
		}
		assert_int_equal(ps_sequence_position(sequence, t.lane, t.index), p);
		given[t.lane]++;
		for (uint32_t d = 0; d < m->n && p % 7 == 0; d++) {
			double share = share_before(m->stages, m->nstages, m->n, d, (double)(p + 1));
			double off = (double)given[d] > share ? (double)given[d] - share
			                                      : share - (double)given[d];

			worst = PS_MAX(worst, off);
		}
		ps_turns_advance(&t);
	}
	ps_sequence_free(sequence);
	ps_turns_fini(&t);
	ps_turns_fini(&skipped);
	ps_shares_free(shares);
	return worst;
}

/* Datasets take turns in proportion to their weights, which may change in stages, at once or linearly, and
 * may be 0: no prefix of the order has 3 samples more or less of one than its share. */
static void mixes_stay_near_their_shares(void **state)
{
	double worst = 0;

	(void)state;
	for (uint32_t i = 0; i < 60; i++) {
		static struct mix m;

		mix_random(&m, 2 + rnd(MIX_MOST - 1), i % 2 ? 1 : 2 + rnd(MIX_STAGES - 1), i / 2);
		worst = PS_MAX(worst, mix_walk(&m, 6000, i));
	}
	print_message("largest deviation of a prefix: %.2f\n", worst);
	assert_true(worst <= 3);
}

/* The mix is changed at each of 100 steps, some sets leave it, and come back: each set gives its samples in
 * their order, none twice and none left out, in proportion to all its shares. */
static void a_mix_that_is_changed_at_each_step_loses_and_repeats_nothing(void **state)
{
	enum { SETS = 12, STEP = 64, STEPS = 100 };
	static uint64_t lengths[SETS];
	struct ps_share_base where[SETS] = {{0}};
	uint64_t given[SETS] = {0};
	double wanted[SETS] = {0};

	(void)state;
	memset(lengths, 0xff, sizeof(lengths));
	for (uint32_t step = 0; step < STEPS; step++) {
		uint32_t here[SETS], n = 0;
		struct ps_lane_set sets[SETS];
		struct ps_share_base base[SETS];
		double weights[SETS], sum = 0;
		struct ps_shares *shares;
		struct ps_turns t;
		uint64_t gone = 0;

		for (uint32_t d = 0; d < SETS; d++) {
			if (n >= 2 && rnd(4) == 0) { /* not in this mix */
				gone += given[d];
				continue;
			}
			sets[n] = (struct ps_lane_set){.first = n, .n = 1};
			weights[n] = 1 + rnd(50);
			sum += weights[n];
			base[n] = where[d];
			here[n++] = d;
		}
		assert_int_equal(ps_shares_new(n, &(struct ps_share_stage){.weights = weights}, 1,
		                         (uint64_t)step * STEP, gone, base, &shares),
		        0);
		assert_int_equal(ps_turns_init(&t, sets, n), 0);
		ps_turns_reset(&t, lengths, shares);
		assert_int_equal(t.position, step * STEP);
		for (uint32_t row = 0; row < STEP; row++, ps_turns_advance(&t))
			assert_int_equal(t.index, given[here[t.lane]]++);
		ps_shares_at(shares, (uint64_t)(step + 1) * STEP, base);
		for (uint32_t i = 0; i < n; i++) {
			where[here[i]] = base[i];
			wanted[here[i]] += STEP * weights[i] / sum;
			assert_int_equal(base[i].given, given[here[i]]);
		}
		for (uint32_t d = 0; d < SETS; d++)
			assert_true(wanted[d] - (double)given[d] < 4 && (double)given[d] - wanted[d] < 4);
		ps_turns_fini(&t);
		ps_shares_free(shares);
	}
}

/* The large dataset has half of the weight, 50 small ones share the rest: each step has 32 rows of the large
 * one, two more or less. */
static void equal_datasets_do_not_come_in_bursts(void **state)
{
	static struct ps_lane_set sets[51];
	static uint64_t lengths[51];
	static double weights[51];
	struct ps_shares *shares;
	struct ps_turns t;

	(void)state;
	memset(lengths, 0xff, sizeof(lengths));
	for (uint32_t d = 0; d < 51; d++) {
		sets[d] = (struct ps_lane_set){.first = d, .n = 1};
		weights[d] = d ? 1 : 50;
	}
	shares = shares_of(51, weights);
	assert_int_equal(ps_turns_init(&t, sets, 51), 0);
	ps_turns_reset(&t, lengths, shares);
	for (int step = 0; step < 20; step++) {
		int large = 0;

		for (int row = 0; row < 64; row++, ps_turns_advance(&t))
			large += t.lane == 0;
		assert_in_range(large, 30, 34);
	}
	ps_turns_fini(&t);
	ps_shares_free(shares);
}

/* Of samples that are due at the same time that of the larger set comes first, in the walk and by arithmetic.
 * */
static void of_two_that_are_due_the_larger_set_comes_first(void **state)
{
	/* sample 0 of set 1 is due at 1/2 / 1, sample 1 of set 0 at 3/2 / 3 */
	const struct ps_lane_set sets[2] = {{.n = 1}, {.first = 1, .n = 1}};
	const double weights[2] = {3, 1};
	struct ps_shares *shares = shares_of(2, weights);
	const uint64_t lengths[2] = {PS_ENDLESS, PS_ENDLESS};
	static const uint32_t want[] = {0, 0, 1};
	struct ps_sequence *s;
	struct ps_turns t;

	(void)state;
	assert_int_equal(ps_turns_init(&t, sets, 2), 0);
	assert_int_equal(ps_sequence_new(sets, 2, shares, lengths, &s), 0);
	ps_turns_reset(&t, lengths, shares);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(t.lane, want[i]);
		assert_int_equal(ps_sequence_position(s, t.lane, t.index), i);
		ps_turns_advance(&t);
	}
	ps_turns_fini(&t);
	ps_sequence_free(s);
	ps_shares_free(shares);
}

/* Two datasets of the same, largest weight alternate; steps may begin after row 2^32. */
static void large_numbers_do_not_overflow(void **state)
{
	const struct ps_lane_set sets[2] = {{.n = 1}, {.first = 1, .n = 1}};
	const double weights[2] = {1, 1};
	struct ps_shares *shares = shares_of(2, weights);
	const uint64_t lengths[2] = {PS_ENDLESS, PS_ENDLESS};
	const struct ps_steps steps = {
	        .samples = PS_ENDLESS, .most = PS_ENDLESS, .batch = 1u << 16, .world = 1u << 17};
	struct ps_sequence *s;

	(void)state;
	assert_int_equal(ps_sequence_new(sets, 2, shares, lengths, &s), 0);
	for (uint32_t bits = 10; bits < 50; bits++)
		assert_true(ps_sequence_position(s, 0, UINT64_C(1) << bits) == UINT64_C(2) << bits);
	ps_sequence_free(s);
	ps_shares_free(shares);
	assert_true(ps_steps_begin(&steps, 3) == UINT64_C(3) << 33);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

struct found {
	double shards;  /* different shards in a batch of rank 0: the mean ... */
	uint32_t least; /* ... and the minimum while no lane has ended */
	double opens;   /* ranks that read from a shard: the mean */
};

/* `all`: counts all ranks, which `opens` needs, instead of rank 0 alone. */
static struct found look(const struct run *r, bool all)
{
	ps_autofree struct ps_dealt *rows = malloc(r->batch * sizeof(*rows));
	ps_autofree uint32_t *shards = malloc(r->batch * sizeof(*shards));
	ps_autofree uint32_t *opened = calloc(r->nshards, sizeof(*opened)); /* a shard's last rank, + 1 */
	struct found f = {.least = UINT32_MAX};
	uint64_t nbatches = 0, opens = 0;
	struct map map = {0};

	for (uint32_t i = 0; i < (all ? r->world : 1); i++) {
		struct rank rank;
		uint64_t least = PS_ENDLESS;

		rank_open(r, i, &rank);
		if (i == 0)
			map_make(r, &rank, &map);
		for (uint32_t l = 0; l < ps_order_nlanes(rank.order); l++)
			least = PS_MIN(least, rank.epoch->lengths[l]);
		for (uint64_t s = 0; s < ps_steps_count(&rank.epoch->steps, i); s++) {
			uint32_t n = ps_steps_rows(&rank.epoch->steps, s, i), different = 0;
			bool whole = n == r->batch;

			assert_int_equal(ps_deal_step(rank.epoch->deal, s, rows), 0);
			for (uint32_t k = 0; k < n; k++) {
				shards[k] = map.v[map.begins[rows[k].lane] + rows[k].index].shard;
				opens += opened[shards[k]] != i + 1;
				opened[shards[k]] = i + 1;
				whole = whole && rows[k].index < least;
			}
			qsort(shards, n, sizeof(*shards), compare);
			for (uint32_t k = 0; k < n; k++)
				different += k == 0 || shards[k] != shards[k - 1];
			if (i == 0) {
				f.shards += different;
				nbatches++;
				if (whole)
					f.least = PS_MIN(f.least, different);
			}
		}
		rank_close(&rank);
	}
	f.shards /= (double)nbatches;
	f.opens = (double)opens / r->nshards;
	map_free(&map);
	return f;
}

/* With at least 32 shards a rank, and until the first lane ends, a batch of b samples is from at least
 * min(b / 2, shards / world) shards. */
static void a_batch_has_samples_of_many_shards(void **state)
{
	static const struct {
		uint32_t nshards, count, world, batch;
	} rows[] = {{512, 200, 8, 32}, {512, 200, 16, 32}, {2048, 50, 64, 32}, {2048, 50, 64, 64},
	        {4096, 30, 64, 32}, {1000, 60, 25, 20}, {1000, 60, 30, 64}, {10000, 20, 64, 32},
	        {8192, 20, 256, 32}, {1024, 100, 1, 64}, {333, 100, 10, 16}, {4096, 20, 128, 256}};
	static uint32_t counts[10000];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct run r = {.nshards = rows[i].nshards,
		        .world = rows[i].world,
		        .batch = rows[i].batch,
		        .counts = counts};
		uint32_t want = PS_MIN(r.batch / 2, r.nshards / r.world);
		struct found f;

		counts_vary(counts, r.nshards, rows[i].count, rows[i].count / 10);
		f = look(&r, false);
		print_message("%u shards, world %u, batch %u: %.1f shards, %u at least (%u)\n", r.nshards,
		        r.world, r.batch, f.shards, f.least, want);
		assert_true(f.least != UINT32_MAX && f.least >= want);
	}
}

/* If each shard's count is within a tenth of the mean count, the mean number of ranks that read a shard is at
 * most 2. */
static void few_ranks_read_a_shard(void **state)
{
	static const struct {
		uint32_t nshards, count, spread, world, batch, per_node;
	} rows[] = {{512, 200, 20, 64, 32, 1}, {512, 200, 20, 64, 32, 8}, {512, 200, 20, 8, 32, 1},
	        {2048, 200, 20, 64, 32, 1}, {1000, 200, 20, 64, 32, 1}, {512, 200, 0, 64, 32, 1},
	        {512, 200, 20, 64, 64, 8}, {1024, 200, 20, 256, 32, 8}};
	static uint32_t counts[2048];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct run r = {.nshards = rows[i].nshards,
		        .world = rows[i].world,
		        .batch = rows[i].batch,
		        .per_node = rows[i].per_node,
		        .counts = counts};
		struct found f;

		counts_vary(counts, r.nshards, rows[i].count, rows[i].spread);
		f = look(&r, true);
		print_message("%u shards of %u +- %u, world %u, batch %u, %u a node: read by %.2f ranks\n",
		        r.nshards, rows[i].count, rows[i].spread, r.world, r.batch, r.per_node, f.opens);
		assert_true(f.opens <= 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_world_has_the_same_steps_and_each_sample_once),
	        cmocka_unit_test(samples_of_the_last_steps_are_split_over_the_ranks),
	        cmocka_unit_test(computed_places_equal_counted_ones),
	        cmocka_unit_test(a_skip_of_n_equals_n_single_steps_also_beyond_the_end),
	        cmocka_unit_test(lanes_take_the_same_turns_with_known_and_with_found_lengths),
	        cmocka_unit_test(mixes_stay_near_their_shares),
	        cmocka_unit_test(a_mix_that_is_changed_at_each_step_loses_and_repeats_nothing),
	        cmocka_unit_test(equal_datasets_do_not_come_in_bursts),
	        cmocka_unit_test(of_two_that_are_due_the_larger_set_comes_first),
	        cmocka_unit_test(large_numbers_do_not_overflow),
	        cmocka_unit_test(a_batch_has_samples_of_many_shards),
	        cmocka_unit_test(few_ranks_read_a_shard),
	};

	return cmocka_run_group_tests_name("deal", tests, NULL, NULL);
}
