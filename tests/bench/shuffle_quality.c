/* shuffle_quality [OPTION...] SHARDS...: compares an order with the list's order and with a full permutation
 * of the same samples, or says how an order is dealt to many ranks. */
#include "config.h"

#include "tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "order/order.h"
#include "penstock.h"
#include "random/random.h"
#include "tests/loader/order_samples.h"

/* Many ranks --------------------------------------------------------------------------------------------- */

/* How an order deals an epoch to many ranks. This is computed with the order's own code from the shards'
 * counts only: nothing is read, and no rank runs. */
struct ps_ranks_quality {
	double shards; /* different shards in a batch of rank 0, on average */
	/* the fewest shards in a full batch while no lane has ended; 0: no such batch */
	uint32_t shards_whole;
	/* share of a batch's shards that are also in the batch before; below 0: only one batch */
	double overlap;
	/* the mean distance of rank 0's samples from their position in the list, relative to a full
	 * permutation */
	double distance;
	double correlation; /* correlation of the samples' positions in this epoch and the next */
	double opens;       /* ranks that read from a shard, on average */
	uint32_t lanes, window;
	uint64_t samples; /* samples of the epoch */
	uint64_t held;    /* the samples that rank 0 holds for shuffling */
};

struct rank {
	struct ps_order *order;
	struct ps_epochs *epochs;
	struct ps_epoch *epoch;
};

/* The samples of every lane, one lane after the other, and for each shard the number of samples in the
 * shards before it. */
struct map {
	struct order_sample *v;
	uint64_t *begins;
	uint64_t *before;
	uint64_t n;
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

static void rank_close(struct rank *r)
{
	ps_epoch_unref(r->epoch);
	ps_epochs_free(r->epochs);
	ps_order_free(r->order);
	*r = (struct rank){0};
}

static int rank_open(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards,
        uint32_t rank, uint64_t epoch, struct rank *ret, struct ps_error *err)
{
	uint64_t global = (uint64_t)o->batch * o->world;
	uint32_t lanes = o->lanes ? o->lanes : ps_order_lanes_auto(global, nshards);
	uint32_t per_node = PS_MAX(o->ranks_per_node, 1u);
	int rc;

	if (!o->lanes && o->homes > 1 && lanes >= o->homes)
		lanes -= lanes % o->homes;
	*ret = (struct rank){
	        .order = ps_order_new(&(struct ps_order_options){.mode = (enum ps_order_mode)o->order,
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
	        .samples = PS_ENDLESS,
	        .batch = o->batch,
	        .rank = rank,
	        .world = o->world,
	        .nodes = o->world / per_node,
	        .end = PENSTOCK_END_SPLIT});
	rc = ret->epochs ? ps_epochs_get(ret->epochs, epoch, &ret->epoch, err) : ps_no_memory(err);
	if (rc < 0)
		rank_close(ret);
	return rc;
}

static void map_free(struct map *map)
{
	free(map->v);
	free(map->begins);
	free(map->before);
	*map = (struct map){0};
}

static int map_make(
        const struct rank *rank, uint64_t epoch, const uint32_t *counts, uint32_t nshards, struct map *map)
{
	uint32_t nlanes = ps_order_nlanes(rank->order);
	int rc = 0;

	*map = (struct map){.begins = calloc((size_t)nlanes + 1, sizeof(*map->begins)),
	        .before = calloc((size_t)nshards + 1, sizeof(*map->before))};
	for (uint32_t s = 0; s < nshards && map->before; s++)
		map->before[s + 1] = map->n += counts[s];
	map->v = malloc(PS_MAX(map->n, UINT64_C(1)) * sizeof(*map->v));
	if (!map->v || !map->begins || !map->before)
		rc = -ENOMEM;
	for (uint32_t l = 0; l < nlanes && rc == 0; l++) {
		uint64_t n;

		rc = order_samples(rank->order, epoch, l, counts, map->v + map->begins[l], &n);
		if (rc == 0)
			map->begins[l + 1] = map->begins[l] + n;
	}
	if (rc < 0)
		map_free(map);
	return rc;
}

/* Finds the position in the epoch of each sample, indexed by its place in the list. */
static int times_find(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards,
        uint64_t epoch, uint64_t *ret_times, struct ps_error *err)
{
	const struct ps_lane_set *sets;
	struct ps_turns turns = {0};
	struct map map = {0};
	struct rank rank;
	uint32_t nsets;
	int rc = rank_open(o, counts, nshards, 0, epoch, &rank, err);

	if (rc < 0)
		return rc;
	sets = ps_order_sets(rank.order, &nsets);
	rc = map_make(&rank, epoch, counts, nshards, &map);
	if (rc == 0)
		rc = ps_turns_init(&turns, sets, nsets);
	if (rc == 0) {
		ps_turns_reset(&turns, rank.epoch->lengths, rank.epoch->shares);
		for (; !turns.over; ps_turns_advance(&turns)) {
			const struct order_sample *s = &map.v[map.begins[turns.lane] + turns.index];

			ret_times[map.before[s->shard] + s->ordinal] = turns.position;
		}
		ps_turns_fini(&turns);
	}
	map_free(&map);
	rank_close(&rank);
	return rc < 0 ? ps_no_memory(err) : 0;
}

static int correlation_find(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards,
        uint64_t n, double *ret, struct ps_error *err)
{
	uint64_t *times = calloc(PS_MAX(n, UINT64_C(1)), 2 * sizeof(*times));
	double squares = 0, count_of = (double)n;
	int rc = times ? times_find(o, counts, nshards, 0, times, err) : ps_no_memory(err);

	if (rc == 0)
		rc = times_find(o, counts, nshards, 1, times + n, err);
	for (uint64_t i = 0; i < n && rc == 0; i++) {
		double d = (double)times[i] - (double)times[n + i];

		squares += d * d;
	}
	free(times);
	*ret = n > 1 ? 1 - 6 * squares / (count_of * (count_of * count_of - 1)) : 1;
	return rc;
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

/* Measures rank 0's batches: their shards, overlap and distance. */
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
			const struct order_sample *x = &map->v[map->begins[rows[i].lane] + rows[i].index];

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

/* Adds the number of shards that the rank reads from. */
static int opens_count(
        const struct rank *rank, const struct map *map, uint32_t number, uint32_t *seen, uint64_t *opens)
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

/* Uses these members of `o`: order, batch, world, seed, lanes, shuffle_window, ranks_per_node, homes.
 * -ENOMEM, or an error of the order, with a text. */
static int ranks_look(const struct penstock_options *o, const uint32_t *counts, uint32_t nshards,
        struct ps_ranks_quality *ret, struct ps_error *err)
{
	ps_autofree uint32_t *seen = calloc(PS_MAX(nshards, 1u), sizeof(*seen));
	struct ps_ranks_quality q = {0};
	struct map map = {0};
	uint64_t opens = 0;
	int rc = seen ? 0 : ps_no_memory(err);

	for (uint32_t i = 0; i < o->world && rc == 0; i++) {
		struct rank rank;

		rc = rank_open(o, counts, nshards, i, 0, &rank, err);
		if (rc < 0)
			break;
		if (i == 0) {
			q.lanes = ps_order_nlanes(rank.order);
			q.window = ps_order_block_len(rank.order) * q.lanes;
			for (uint32_t l = 0; l < q.lanes; l += o->world)
				q.held += PS_MIN(
				        (uint64_t)ps_order_block_len(rank.order), rank.epoch->lengths[l]);
			rc = map_make(&rank, 0, counts, nshards, &map);
			if (rc == 0)
				rc = batches_look(o, &rank, &map, &q);
		}
		if (rc == 0)
			rc = opens_count(&rank, &map, i, seen, &opens);
		if (rc < 0)
			ps_no_memory(err);
		rank_close(&rank);
	}
	if (rc == 0)
		rc = correlation_find(o, counts, nshards, map.n, &q.correlation, err);
	q.samples = map.n;
	map_free(&map);
	q.opens = (double)opens / PS_MAX(nshards, 1u);
	*ret = q;
	return rc;
}

/* One loader --------------------------------------------------------------------------------------------- */

struct quality {
	double neighbours; /* share of consecutive samples that are neighbours in the list, too */
	/* mean distance from the position in the list, relative to a permutation's (N / 3) */
	double distance;
	double correlation; /* correlation of places in the list and in the order (Spearman) */
	double shards;      /* different shards in a batch, on average */
};

/* The order: for each position, the sample's place in the list. */
struct places {
	uint64_t *v, n, cap;
	uint32_t *shards; /* the samples' shards, by place in the list */
};

static bool measure(const struct places *p, uint32_t batch, struct quality *q)
{
	uint32_t *shards = malloc(batch * sizeof(*shards));
	double n = (double)p->n, squares = 0, way = 0, different = 0, next = 0;

	if (!shards)
		return false;
	for (uint64_t i = 0; i < p->n; i++) {
		double d = (double)p->v[i] - (double)i;

		way += fabs(d);
		squares += d * d;
		next += i > 0 && (p->v[i] == p->v[i - 1] + 1 || p->v[i] + 1 == p->v[i - 1]);
	}
	for (uint64_t at = 0; at < p->n; at += batch) {
		uint32_t m = (uint32_t)PS_MIN(batch, p->n - at);

		for (uint32_t i = 0; i < m; i++)
			shards[i] = p->shards[p->v[at + i]];
		qsort(shards, m, sizeof(*shards), compare);
		for (uint32_t i = 0; i < m; i++)
			different += i == 0 || shards[i] != shards[i - 1];
	}
	free(shards);
	*q = (struct quality){.neighbours = n > 1 ? next / (n - 1) : 0,
	        .distance = n > 1 ? way / n / (n / 3) : 0,
	        .correlation = n > 1 ? 1 - 6 * squares / (n * (n * n - 1)) : 1,
	        .shards = n > 0 ? different / ceil(n / batch) : 0};
	return true;
}

/* Runs an epoch in the given order and records its samples: shard and sample number in one integer. */
static int collect(const struct penstock_options *options, char **names, size_t nnames, struct places *p,
        struct penstock_error *error)
{
	struct penstock_loader *l;
	struct penstock_batch *b;
	int rc = penstock_loader_open(options, (const char *const *)names, nnames, &l, error);

	if (rc < 0)
		return rc;
	while ((rc = penstock_loader_next(l, &b, error)) == 1) {
		struct penstock_tensor shards, samples;

		penstock_batch_field(b, "__shard__", &shards, NULL);
		penstock_batch_field(b, "__sample__", &samples, NULL);
		if (p->n + shards.shape[0] > p->cap) {
			uint64_t cap = (p->n + shards.shape[0]) * 2;
			uint64_t *v = realloc(p->v, cap * sizeof(*v));

			if (!v) {
				penstock_loader_close(l);
				return -ENOMEM;
			}
			p->v = v;
			p->cap = cap;
		}
		for (uint64_t i = 0; i < shards.shape[0]; i++)
			p->v[p->n++] = (uint64_t)((const int64_t *)shards.data)[i] << 40 |
			               (uint64_t)((const int64_t *)samples.data)[i];
		penstock_batch_release(b);
	}
	penstock_loader_close(l);
	return rc;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Replaces the recorded integers by places in the list. */
static bool places_find(struct places *p)
{
	uint64_t *sorted = malloc(PS_MAX(p->n, 1u) * sizeof(*sorted));

	p->shards = malloc(PS_MAX(p->n, 1u) * sizeof(*p->shards));
	if (!sorted || !p->shards) {
		free(sorted);
		return false;
	}
	if (p->n > 0)
		memcpy(sorted, p->v, p->n * sizeof(*sorted));
	qsort(sorted, p->n, sizeof(*sorted), compare_u64);
	for (uint64_t i = 0; i < p->n; i++) {
		uint64_t *at = bsearch(&p->v[i], sorted, p->n, sizeof(*sorted), compare_u64);

		uint32_t shard = (uint32_t)(p->v[i] >> 40);

		p->v[i] = at ? (uint64_t)(at - sorted) : 0; /* always found */
		p->shards[p->v[i]] = shard;
	}
	free(sorted);
	return true;
}

static void quality_print(const char *name, const struct quality *q, bool json)
{
	printf(json ? "\"%s\": {\"neighbours_kept\": %.6f, \"distance\": %.4f, \"rank_correlation\": %.4f, "
	              "\"shards_in_batch\": %.2f}"
	            : "%-12s %10.4f %% %10.3f %12.4f %10.1f\n",
	        name, json ? q->neighbours : 100 * q->neighbours, q->distance, q->correlation, q->shards);
}

static int run(const struct penstock_options *o, char **names, size_t n, bool json)
{
	struct penstock_error error = {0};
	struct quality mine, full;
	struct places p = {0};
	struct ps_permutation permutation;
	int r = collect(o, names, n, &p, &error);
	bool ok = r == 0 && places_find(&p) && measure(&p, o->batch, &mine);

	if (ok) {
		ps_permutation_init(&permutation, p.n, o->seed, 0, 0);
		for (uint64_t i = 0; i < p.n; i++)
			p.v[i] = ps_permutation_at(&permutation, i);
		ok = measure(&p, o->batch, &full);
	}
	if (ok && json) {
		printf("{\"samples\": %ju, ", (uintmax_t)p.n);
		quality_print("order", &mine, true);
		fputs(", ", stdout);
		quality_print("permutation", &full, true);
		puts("}");
	} else if (ok) {
		printf("%ju samples   neighbours   distance  correlation     shards\n"
		       "                  kept  (1: full)   with list   in a batch\n",
		        (uintmax_t)p.n);
		quality_print("this order", &mine, false);
		quality_print("permutation", &full, false);
	} else {
		ps_loader_complain("", r < 0 && error.text[0] ? error.text : "out of memory");
	}
	free(p.v);
	free(p.shards);
	return ok ? PS_EXIT_OK : PS_EXIT_FAILED;
}

/* Many ranks --------------------------------------------------------------------------------------------- */

struct many {
	uint32_t nshards, samples, spread; /* simulated */
	bool simulated;
};

static bool simulate_parse(const char *text, struct many *m)
{
	char x, end;

	m->simulated = sscanf(text, "%u%c%u%c", &m->nshards, &x, &m->samples, &end) == 3 && x == 'x' &&
	               m->nshards > 0 && m->nshards <= 10000000 && m->samples > 0 && m->samples <= 100000000;
	if (!m->simulated)
		ps_complain("--simulate %s: must be SHARDSxSAMPLES, as 512x200", text);
	return m->simulated;
}

/* Random counts, the same in each run. */
static uint32_t *counts_simulate(const struct many *m)
{
	uint32_t *counts = calloc(m->nshards, sizeof(*counts));
	uint64_t state = 1, spread = (uint64_t)m->samples * m->spread / 100;

	for (uint32_t i = 0; i < m->nshards && counts; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		counts[i] = (uint32_t)(m->samples - spread + (state >> 33) % (2 * spread + 1));
	}
	return counts;
}

/* Counts the samples of the shards by reading them. */
static uint32_t *counts_read(
        const struct penstock_options *options, char **names, size_t n, uint32_t *ret_nshards)
{
	struct penstock_options o = *options;
	struct penstock_error error = {0};
	struct places p = {0};
	uint32_t *counts = NULL;

	o.order = PENSTOCK_ORDER_NONE;
	o.world = 1;
	o.lanes = o.homes = o.ranks_per_node = 0;
	*ret_nshards = 0;
	if (collect(&o, names, n, &p, &error) == 0 && p.n > 0) {
		for (uint64_t i = 0; i < p.n; i++)
			*ret_nshards = PS_MAX(*ret_nshards, (uint32_t)(p.v[i] >> 40) + 1);
		counts = calloc(*ret_nshards, sizeof(*counts));
		for (uint64_t i = 0; i < p.n && counts; i++)
			counts[p.v[i] >> 40]++;
	}
	if (!counts)
		ps_loader_complain("", error.text[0] ? error.text
		                       : p.n == 0    ? "no samples"
		                                     : "out of memory");
	free(p.v);
	return counts;
}

/* The recommended minimum of shards for each rank. With fewer, either a batch has samples of few shards, or
 * each lane has few shards, so that a sample comes at about the same time in every epoch. */
#define SHARDS_A_RANK 32u

static void many_print(
        const struct penstock_options *o, const struct ps_ranks_quality *q, uint32_t nshards, bool json)
{
	uint64_t global = (uint64_t)o->batch * o->world, advised = (uint64_t)SHARDS_A_RANK * o->world;
	const char *none = json ? "null" : "-";
	char least[24] = "", overlap[24] = "";

	if (q->shards_whole > 0)
		snprintf(least, sizeof(least), "%u", q->shards_whole);
	if (q->overlap >= 0)
		snprintf(overlap, sizeof(overlap), json ? "%.4f" : "%.3f", q->overlap);
	printf(json ? "{\"world\": %u, \"lanes\": %u, \"shuffle_window\": %u, \"shards_in_batch\": %.2f, "
	              "\"shards_in_batch_least\": %s, \"batch_overlap\": %s, \"distance\": %.4f, "
	              "\"epoch_correlation\": %.4f, \"ranks_per_shard\": %.3f, \"samples_held\": %ju, "
	              "\"shards\": %u, \"shards_advised\": %ju}\n"
	            : "world %u: %u lanes, a window of %u samples over all ranks\n"
	              "shards in a batch of rank 0               %10.1f\n"
	              "  at least, while no lane has ended       %10s\n"
	              "of them in the batch before, too          %10s\n"
	              "distance from the list (1: permutation)   %10.3f\n"
	              "a sample's time in two epochs, correlated %10.3f\n"
	              "ranks that read from a shard              %10.2f\n"
	              "samples that a rank holds to shuffle      %10ju\n",
	        o->world, q->lanes, q->window, q->shards, least[0] ? least : none,
	        overlap[0] ? overlap : none, q->distance, q->correlation, q->opens, (uintmax_t)q->held,
	        nshards, (uintmax_t)advised);
	if (!json && nshards < advised && o->world > 1)
		printf("%u shards are fewer than %u for each rank: batches have samples of few shards, or a "
		       "sample comes at about the same time in every epoch; to avoid both, split the same "
		       "samples into %ju shards\n",
		        nshards, SHARDS_A_RANK, (uintmax_t)advised);
	if (!json && q->samples < global)
		printf("%ju samples are less than a global batch of %ju: no batch is full; take a smaller "
		       "--batch\n",
		        (uintmax_t)q->samples, (uintmax_t)global);
}

static int run_many(const struct penstock_options *o, struct many *m, char **names, size_t n, bool json)
{
	uint32_t *counts = m->simulated ? counts_simulate(m) : counts_read(o, names, n, &m->nshards);
	struct ps_error err = {0};
	struct ps_ranks_quality q;
	int rc;

	if (!counts)
		return PS_EXIT_FAILED;
	rc = ranks_look(o, counts, m->nshards, &q, &err);
	free(counts);
	if (rc < 0) {
		ps_loader_complain("", err.text);
		return PS_EXIT_FAILED;
	}
	many_print(o, &q, m->nshards, json);
	return PS_EXIT_OK;
}

struct asked {
	struct penstock_options o;
	struct many many;
	bool json, ranks;
};

static bool world_take(void *ctx, char *value)
{
	struct asked *q = ctx;
	uint64_t v;

	q->ranks = ps_arg_u64("--world", value, 1, 65536, &v);
	q->o.world = q->ranks ? (uint32_t)v : 1;
	return q->ranks;
}

static bool simulate_take(void *ctx, char *value)
{
	struct asked *q = ctx;

	return simulate_parse(value, &q->many);
}

static const struct ps_flag flags[] = {
        {.name = "order"},
        {.name = "shuffle-window"},
        {.name = "lanes"},
        {.name = "batch"},
        {"world", PS_FLAG_CALL, 0, "W", "analyse how an epoch is dealt to W ranks, without running them",
                .take = world_take},
        {.name = "ranks-per-node", .text = "with --world: ranks of a machine (1)"},
        {.name = "homes", .text = "with --world: groups of shards that keep their lanes (1: none)"},
        {"simulate", PS_FLAG_CALL, 0, "SxN", "with --world: S shards of N samples that need not exist",
                .take = simulate_take},
        {"spread", PS_FLAG_U32, offsetof(struct asked, many.spread), "PERCENT",
                "with --simulate: the counts vary by up to this much each way (0)", 0, 100},
        {.name = "seed"},
        {.name = "index-dir"},
        {"json", PS_FLAG_SET, offsetof(struct asked, json), .text = "print the result as JSON"},
};

int main(int argc, char **argv)
{
	static const struct ps_flags command = {
	        "Usage: shuffle_quality [OPTION...] SHARDS...\n\n"
	        "Runs one epoch without decoding anything, and says how well its order is shuffled, "
	        "compared with a full\n"
	        "permutation of the same samples.\n",
	        "Examples:\n"
	        "  shuffle_quality 'train-{000..127}.tar'\n"
	        "  shuffle_quality --shuffle-window 65536 train-*.tar\n"
	        "  shuffle_quality --world 64 --batch 32 --simulate 512x200 --spread 10\n",
	        flags, PS_ARRAY_LEN(flags), offsetof(struct asked, o)};
	struct penstock_field field;
	struct asked q = {0};
	int rc;

	ps_command_begin("shuffle_quality");
	penstock_options_init(&q.o, sizeof(q.o));
	penstock_field_init(&field, sizeof(field), "no.such.field", PENSTOCK_BYTES);
	field.optional = 1;
	q.o.fields = &field;
	q.o.nfields = 1;
	q.o.epochs = 1;
	q.o.on_error = PENSTOCK_SKIP;
	rc = ps_flags_read(&command, &q, argc, argv);
	if (rc >= 0)
		return rc;
	if ((q.many.simulated || q.o.ranks_per_node || q.o.homes) && !q.ranks) {
		ps_complain("--simulate, --ranks-per-node and --homes need --world");
		return PS_EXIT_USAGE;
	}
	if (q.ranks && (q.o.order == PENSTOCK_ORDER_NONE || q.o.order == PENSTOCK_ORDER_PERMUTATION)) {
		ps_complain("--world works with orders window and shards only");
		return PS_EXIT_USAGE;
	}
	if (q.o.ranks_per_node && q.o.world % q.o.ranks_per_node) {
		ps_complain("--ranks-per-node %u: must divide --world %u", q.o.ranks_per_node, q.o.world);
		return PS_EXIT_USAGE;
	}
	if (q.many.simulated && optind < argc) {
		ps_complain("--simulate reads no shards, but %s is given", argv[optind]);
		return PS_EXIT_USAGE;
	}
	if (q.ranks && (q.many.simulated || optind < argc))
		return run_many(&q.o, &q.many, argv + optind, (size_t)(argc - optind), q.json);
	if (optind == argc) {
		ps_complain("no shards (see shuffle_quality --help)");
		return PS_EXIT_USAGE;
	}
	return run(&q.o, argv + optind, (size_t)(argc - optind), q.json);
}
