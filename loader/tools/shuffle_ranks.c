#include "config.h"

#include "tools/shuffle_ranks.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "order/epoch.h"

struct rank {
	struct ps_order *order;
	struct ps_epochs *epochs;
	struct ps_epoch *epoch;
};

/* Every lane's samples, one lane behind the other, and how many samples the shards before each have. */
struct map {
	struct ps_order_sample *v;
	uint64_t *begins;
	uint64_t *before;
	uint64_t n;
};

static int count(void *ctx, uint64_t epoch, uint64_t pass, uint32_t shard, uint64_t *ret, struct ps_load_error *err)
{
	(void)epoch;
	(void)pass;
	(void)err;
	*ret = ((const uint32_t *)ctx)[shard];
	return 0;
}

static void rank_close(struct rank *r)
{
	ps_epoch_unref(r->epoch);
	ps_epochs_free(r->epochs);
	ps_order_free(r->order);
	*r = (struct rank){0};
}

static int rank_open(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards, uint32_t rank,
        uint64_t epoch, struct rank *ret, struct ps_load_error *err)
{
	uint64_t global = (uint64_t)o->batch * o->world;
	uint32_t lanes = o->lanes ? o->lanes : ps_order_lanes_auto(global, nshards);
	uint32_t per_node = PS_MAX(o->ranks_per_node, 1u);
	int r;

	if (!o->lanes && o->homes > 1 && lanes >= o->homes)
		lanes -= lanes % o->homes;
	*ret = (struct rank){.order = ps_order_new(
	                             &(struct ps_order_options){.mode = (enum ps_order_mode)o->order,
	                                     .nshards = nshards,
	                                     .window = o->shuffle_window ? o->shuffle_window
	                                                                 : ps_order_window_auto(global),
	                                     .lanes = lanes,
	                                     .rank = rank,
	                                     .world = o->world,
	                                     .seed = o->seed,
	                                     .repeat = 1,
	                                     .shared = true,
	                                     .homes = o->homes},
	                             err)};
	if (!ret->order)
		return -err->err;
	ret->epochs = ps_epochs_new(&(struct ps_epochs_options){.order = ret->order,
	        .mode = (enum ps_order_mode)o->order,
	        .known = true,
	        .repeat = 1,
	        .counts = {.count = count, .ctx = (void *)(uintptr_t)counts},
	        .nshards = nshards,
	        .seed = o->seed,
	        .take = PS_ENDLESS,
	        .steps = PS_ENDLESS,
	        .batch = o->batch,
	        .rank = rank,
	        .world = o->world,
	        .nodes = o->world / per_node,
	        .end = PENSTOCK_END_SPLIT});
	r = ret->epochs ? ps_epochs_get(ret->epochs, epoch, &ret->epoch, err)
	                : ps_load_error_set(err, ENOMEM, "out of memory");
	if (r < 0)
		rank_close(ret);
	return r;
}

static void map_free(struct map *map)
{
	free(map->v);
	free(map->begins);
	free(map->before);
	*map = (struct map){0};
}

static int map_make(const struct rank *rank, uint64_t epoch, const uint32_t *counts, uint32_t nshards, struct map *map)
{
	uint32_t nlanes = ps_order_nlanes(rank->order);
	int r = 0;

	*map = (struct map){.begins = calloc((size_t)nlanes + 1, sizeof(*map->begins)),
	        .before = calloc((size_t)nshards + 1, sizeof(*map->before))};
	for (uint32_t s = 0; s < nshards && map->before; s++)
		map->before[s + 1] = map->n += counts[s];
	map->v = malloc(PS_MAX(map->n, UINT64_C(1)) * sizeof(*map->v));
	if (!map->v || !map->begins || !map->before)
		r = -ENOMEM;
	for (uint32_t l = 0; l < nlanes && r == 0; l++) {
		uint64_t n;

		r = ps_order_samples(rank->order, epoch, l, counts, map->v + map->begins[l], &n);
		if (r == 0)
			map->begins[l + 1] = map->begins[l] + n;
	}
	if (r < 0)
		map_free(map);
	return r;
}

/* The position of each sample, by its place in the list. */
static int times_find(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards, uint64_t epoch,
        uint64_t *ret_times, struct ps_load_error *err)
{
	const struct ps_lane_set *sets;
	struct ps_turns turns = {0};
	struct map map = {0};
	struct rank rank;
	uint32_t nsets;
	int r = rank_open(o, counts, nshards, 0, epoch, &rank, err);

	if (r < 0)
		return r;
	sets = ps_order_sets(rank.order, &nsets);
	r = map_make(&rank, epoch, counts, nshards, &map);
	if (r == 0)
		r = ps_turns_init(&turns, sets, nsets);
	if (r == 0) {
		ps_turns_reset(&turns, rank.epoch->lengths);
		for (; !turns.over; ps_turns_advance(&turns)) {
			const struct ps_order_sample *s = &map.v[map.begins[turns.lane] + turns.index];

			ret_times[map.before[s->shard] + s->ordinal] = turns.position;
		}
		ps_turns_fini(&turns);
	}
	map_free(&map);
	rank_close(&rank);
	return r < 0 ? ps_load_error_set(err, ENOMEM, "out of memory") : 0;
}

static int correlation_find(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards, uint64_t n,
        double *ret, struct ps_load_error *err)
{
	uint64_t *times = calloc(PS_MAX(n, UINT64_C(1)), 2 * sizeof(*times));
	double squares = 0, count_of = (double)n;
	int r = times ? times_find(o, counts, nshards, 0, times, err)
	              : ps_load_error_set(err, ENOMEM, "out of memory");

	if (r == 0)
		r = times_find(o, counts, nshards, 1, times + n, err);
	for (uint64_t i = 0; i < n && r == 0; i++) {
		double d = (double)times[i] - (double)times[n + i];

		squares += d * d;
	}
	free(times);
	*ret = n > 1 ? 1 - 6 * squares / (count_of * (count_of * count_of - 1)) : 1;
	return r;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static uint32_t unique(uint32_t *v, uint32_t n)
{
	uint32_t m = 0;

	qsort(v, n, sizeof(*v), compare);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || v[i] != v[m - 1])
			v[m++] = v[i];
	return m;
}

static uint32_t common(const uint32_t *a, uint32_t n, const uint32_t *b, uint32_t m)
{
	uint32_t both = 0;

	for (uint32_t i = 0, j = 0; i < n && j < m;)
		if (a[i] == b[j]) {
			both++;
			i++;
			j++;
		} else if (a[i] < b[j]) {
			i++;
		} else {
			j++;
		}
	return both;
}

/* What rank 0's batches are of. */
static int batches_look(const struct penstock_options *o, const struct rank *rank, const struct map *map,
        struct ps_ranks_quality *q)
{
	const struct ps_steps *steps = &rank->epoch->steps;
	uint64_t nsteps = ps_steps_count(steps, 0), least = PS_ENDLESS, mine = 0, noverlaps = 0;
	ps_autofree struct ps_dealt *rows = malloc(o->batch * sizeof(*rows));
	ps_autofree uint32_t *shards = malloc(2 * (size_t)o->batch * sizeof(*shards));
	uint32_t *now = shards, *last = shards ? shards + o->batch : NULL, nlast = 0;

	if (!rows || !shards)
		return -ENOMEM;
	for (uint32_t l = 0; l < ps_order_nlanes(rank->order); l++)
		least = PS_MIN(least, rank->epoch->lengths[l]);
	for (uint64_t s = 0; s < nsteps; s++) {
		uint32_t n = ps_steps_rows(steps, s, 0), different, *swap;
		bool whole = n == o->batch;

		if (ps_deal_step(rank->epoch->deal, s, rows) < 0)
			return -ENOMEM;
		for (uint32_t i = 0; i < n; i++, mine++) {
			const struct ps_order_sample *x = &map->v[map->begins[rows[i].lane] + rows[i].index];

			now[i] = x->shard;
			whole = whole && rows[i].index < least;
			q->distance += fabs((double)(map->before[x->shard] + x->ordinal) / (double)map->n -
			                    (double)(s * o->batch + i) / ((double)nsteps * o->batch));
		}
		different = unique(now, n);
		q->shards += different;
		if (whole && (q->shards_whole == 0 || different < q->shards_whole))
			q->shards_whole = different;
		if (s > 0 && different > 0) {
			q->overlap += (double)common(now, different, last, nlast) / different;
			noverlaps++;
		}
		nlast = different;
		swap = now;
		now = last;
		last = swap;
	}
	q->shards /= (double)PS_MAX(nsteps, UINT64_C(1));
	q->overlap = noverlaps > 0 ? q->overlap / (double)noverlaps : -1;
	q->distance = mine > 0 ? q->distance / (double)mine * 3 : 0;
	return 0;
}

/* Counts the shards that a rank reads of. */
static int opens_count(const struct rank *rank, const struct map *map, uint32_t number, uint32_t *seen, uint64_t *opens)
{
	const struct ps_steps *steps = &rank->epoch->steps;
	ps_autofree struct ps_dealt *rows = malloc(steps->batch * sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	for (uint64_t s = 0; s < ps_steps_count(steps, number); s++) {
		if (ps_deal_step(rank->epoch->deal, s, rows) < 0)
			return -ENOMEM;
		for (uint32_t i = 0; i < ps_steps_rows(steps, s, number); i++) {
			uint32_t shard = map->v[map->begins[rows[i].lane] + rows[i].index].shard;

			*opens += seen[shard] != number + 1;
			seen[shard] = number + 1;
		}
	}
	return 0;
}

int ps_ranks_look(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards,
        struct ps_ranks_quality *ret, struct ps_load_error *err)
{
	ps_autofree uint32_t *seen = calloc(PS_MAX(nshards, 1u), sizeof(*seen));
	struct ps_ranks_quality q = {0};
	struct map map = {0};
	uint64_t opens = 0;
	int r = seen ? 0 : ps_load_error_set(err, ENOMEM, "out of memory");

	for (uint32_t i = 0; i < o->world && r == 0; i++) {
		struct rank rank;

		r = rank_open(o, counts, nshards, i, 0, &rank, err);
		if (r < 0)
			break;
		if (i == 0) {
			q.lanes = ps_order_nlanes(rank.order);
			q.window = ps_order_block_len(rank.order) * q.lanes;
			for (uint32_t l = 0; l < q.lanes; l += o->world)
				q.held += PS_MIN((uint64_t)ps_order_block_len(rank.order), rank.epoch->lengths[l]);
			r = map_make(&rank, 0, counts, nshards, &map);
			if (r == 0)
				r = batches_look(o, &rank, &map, &q);
		}
		if (r == 0)
			r = opens_count(&rank, &map, i, seen, &opens);
		if (r < 0)
			ps_load_error_set(err, ENOMEM, "out of memory");
		rank_close(&rank);
	}
	if (r == 0)
		r = correlation_find(o, counts, nshards, map.n, &q.correlation, err);
	q.samples = map.n;
	map_free(&map);
	q.opens = (double)opens / PS_MAX(nshards, 1u);
	*ret = q;
	return r;
}
