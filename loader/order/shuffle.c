#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <string.h>

#include "random/random.h"

/* Lanes are in one pass or the next, of one epoch or the next. More tables would only save recomputing. */
#define TABLES 4

/* cuts of the first block_len samples of a lane, at most */
#define MAX_CUTS 4
#define MAX_CUTS_EPOCH_0 7

struct ps_order {
	struct ps_order_options o;
	struct ps_order_set *sets;
	struct ps_lane_set *lanes; /* this rank's lanes, in sets */
	uint32_t all_lanes;        /* lanes of all ranks */
	uint32_t nlanes;           /* lanes of this rank */
	uint32_t block_len;
	/* number of cuts in a lane's first block_len samples, in epoch 0 and in others; block `cuts + 1`
	 * begins after these samples */
	uint32_t cuts_epoch_0, cuts;
	pthread_mutex_t lock; /* guards tables, clock */
	struct {
		uint64_t epoch, pass;
		uint64_t used;
		uint32_t *shards; /* NULL: not made yet */
	} tables[TABLES];
	uint64_t clock;
};

static int options_check(const struct ps_order_options *o, struct ps_error *err)
{
	if (o->nshards == 0)
		return ps_error_set(err, EINVAL, "no shards");
	if (o->world == 0 || o->rank >= o->world)
		return ps_error_set(
		        err, EINVAL, "rank %u of world %u: rank must be below world", o->rank, o->world);
	if (o->lanes == 0 || o->lanes > PS_ORDER_MAX_LANES)
		return ps_error_set(err, EINVAL, "lanes %u: must be 1 to %d", o->lanes, PS_ORDER_MAX_LANES);
	if (o->mode == PS_ORDER_WINDOW && (o->window == 0 || o->window > PS_ORDER_MAX_WINDOW))
		return ps_error_set(err, EINVAL, "shuffle window %u: must be 1 to %u samples", o->window,
		        PS_ORDER_MAX_WINDOW);
	if (!o->shared && o->world > o->nshards)
		return ps_error_set(err, EINVAL,
		        "world %u, but %u shard%s: each rank needs a shard of its own; write more, smaller "
		        "shards, or index them (penstock-loader index), so that ranks can share them",
		        o->world, o->nshards, o->nshards == 1 ? "" : "s");
	if (!o->shared && o->lanes < o->world)
		return ps_error_set(err, EINVAL,
		        "lanes %u: fewer than world %u, so some ranks would have no lane (not all shards "
		        "have an index); set lanes=%u, or a multiple of it",
		        o->lanes, o->world, o->world);
	return 0;
}

uint32_t ps_order_lanes_auto(uint64_t global_batch, uint64_t nshards)
{
	uint64_t g = global_batch * ((63 + global_batch) / global_batch), lanes = g;

	if (nshards < 2 * g)
		lanes = PS_MIN(nshards, PS_MAX(UINT64_C(64), g / 2));
	return (uint32_t)PS_MIN(PS_MAX(lanes, UINT64_C(1)), (uint64_t)PS_ORDER_MAX_LANES);
}

uint32_t ps_order_window_auto(uint64_t global_batch)
{
	return (uint32_t)PS_MIN(PS_MAX(UINT64_C(4096), 16 * global_batch), (uint64_t)PS_ORDER_MAX_WINDOW);
}

/* The number of lanes of a set: proportional to its weight, at least one, at most one for each shard; 0 for a
 * set without shards. */
static uint32_t set_lanes(const struct ps_order *order, uint32_t d)
{
	const struct ps_order_options *o = &order->o;
	uint64_t weights = 0, n;

	if (ps_order_mode_scatters(o->mode))
		return o->lanes;
	if (order->sets[d].lanes > 0)
		return PS_MIN(order->sets[d].lanes, order->sets[d].n);
	for (uint32_t i = 0; i < o->nsets; i++)
		weights += order->sets[i].weight;
	n = (o->lanes * (unsigned __int128)order->sets[d].weight + weights - 1) / weights;
	return (uint32_t)PS_MIN(PS_MAX(n, 1u), order->sets[d].n);
}

static int sets_make(struct ps_order *order, struct ps_error *err)
{
	struct ps_order_options *o = &order->o;
	struct ps_order_set all = {.n = o->nshards, .weight = 1};
	const struct ps_order_set *sets = o->sets ? o->sets : &all;

	if (!o->sets)
		o->nsets = 1;
	order->sets = malloc(o->nsets * sizeof(*order->sets));
	order->lanes = malloc(o->nsets * sizeof(*order->lanes));
	if (!order->sets || !order->lanes)
		return ps_no_memory(err);
	memcpy(order->sets, sets, o->nsets * sizeof(*sets));
	o->sets = NULL; /* the caller's array is no longer valid */
	for (uint32_t d = 0; d < o->nsets; d++) {
		uint32_t n = set_lanes(order, d);

		if (o->homes > 1 && n % o->homes)
			return ps_error_set(err, EINVAL,
			        "homes %u: must divide the number of lanes, which is %u%s; set lanes to a "
			        "multiple of it",
			        o->homes, n, o->nsets > 1 ? " for a dataset of the mix" : "");
		order->all_lanes += n;
		if (!o->shared) /* without sharing there is only one set */
			n = (n - o->rank + o->world - 1) / o->world;
		order->lanes[d] = (struct ps_lane_set){.first = order->nlanes, .n = n};
		order->nlanes += n;
	}
	return 0;
}

struct ps_order *ps_order_new(const struct ps_order_options *options, struct ps_error *err)
{
	struct ps_order_options o = *options;
	struct ps_order *order;

	o.shared = o.shared || o.world == 1; /* equivalent for world 1, and needed for sets */
	if (o.mode == PS_ORDER_NONE)
		o.lanes = o.shared ? 1 : o.world;
	if (o.repeat == 0)
		o.repeat = 1;
	if (options_check(&o, err) < 0)
		return NULL;
	order = calloc(1, sizeof(*order));
	if (!order) {
		ps_no_memory(err);
		return NULL;
	}
	pthread_mutex_init(&order->lock, NULL);
	order->o = o;
	if (sets_make(order, err) < 0) {
		ps_order_free(order);
		return NULL;
	}
	order->block_len = o.mode == PS_ORDER_WINDOW && o.block_len > 0 ? o.block_len
	                   : o.mode == PS_ORDER_WINDOW  ? (o.window + order->all_lanes - 1) / order->all_lanes
	                   : o.mode == PS_ORDER_NUMBERS ? 1
	                                                : PS_ORDER_PLAIN_BLOCK;
	if (o.mode == PS_ORDER_WINDOW && !ps_order_buckets(order)) {
		while (order->block_len >> (order->cuts_epoch_0 + 1) > 0 &&
		        order->cuts_epoch_0 < MAX_CUTS_EPOCH_0)
			order->cuts_epoch_0++;
		order->cuts = PS_MIN(order->cuts_epoch_0, MAX_CUTS);
	}
	return order;
}

void ps_order_free(struct ps_order *order)
{
	if (!order)
		return;
	for (int i = 0; i < TABLES; i++)
		free(order->tables[i].shards);
	free(order->sets);
	free(order->lanes);
	pthread_mutex_destroy(&order->lock);
	free(order);
}

const struct ps_lane_set *ps_order_sets(const struct ps_order *order, uint32_t *ret_nsets)
{
	*ret_nsets = order->o.nsets;
	return order->lanes;
}

uint32_t ps_order_nlanes(const struct ps_order *order)
{
	return order->nlanes;
}

uint32_t ps_order_nactive(const struct ps_order *order)
{
	const struct ps_order_options *o = &order->o;

	if (!o->shared)
		return order->nlanes;
	return order->nlanes > o->rank ? (order->nlanes - o->rank - 1) / o->world + 1 : 1;
}

bool ps_order_owns(const struct ps_order *order, uint32_t lane)
{
	return !order->o.shared || lane % order->o.world == order->o.rank;
}

uint32_t ps_order_lane(const struct ps_order *order, uint32_t lane)
{
	return order->o.shared ? lane : order->o.rank + lane * order->o.world;
}

uint32_t ps_order_all_lanes(const struct ps_order *order)
{
	return order->all_lanes;
}

bool ps_order_scatters(const struct ps_order *order)
{
	return ps_order_mode_scatters(order->o.mode);
}

bool ps_order_shuffles(const struct ps_order *order)
{
	return order->o.mode == PS_ORDER_WINDOW;
}

bool ps_order_buckets(const struct ps_order *order)
{
	return order->o.mode == PS_ORDER_WINDOW && order->o.bucket > 1;
}

uint32_t ps_order_block_len(const struct ps_order *order)
{
	return order->block_len;
}

static uint32_t cuts_of(const struct ps_order *order, uint64_t epoch)
{
	return epoch == 0 ? order->cuts_epoch_0 : order->cuts;
}

uint64_t ps_order_block_begin(const struct ps_order *order, uint64_t epoch, uint64_t block)
{
	uint32_t cuts = cuts_of(order, epoch);

	if (block > cuts)
		return (block - cuts) * order->block_len;
	return block == 0 ? 0 : order->block_len >> (cuts + 1 - block);
}

uint64_t ps_order_block_of(const struct ps_order *order, uint64_t epoch, uint64_t index)
{
	uint64_t block = 0;

	if (index >= order->block_len)
		return index / order->block_len + cuts_of(order, epoch);
	while (ps_order_block_begin(order, epoch, block + 1) <= index)
		block++;
	return block;
}

/* Fisher-Yates from the end: place i is swapped with a place in [0, i]; i is the index of the random
 * number. Places are `stride` numbers apart. */
static void permute(const struct ps_rng_key *key, uint32_t op, uint32_t n, uint32_t stride, uint32_t *v)
{
	for (uint32_t i = n; i-- > 1;) {
		uint32_t j = (uint32_t)ps_rng_below(key, op, i, (uint64_t)i + 1);
		uint32_t *a = &v[(size_t)i * stride], *b = &v[(size_t)j * stride], t = *a;

		*a = *b;
		*b = t;
	}
}

static void count_up(uint32_t n, uint32_t *v)
{
	for (uint32_t i = 0; i < n; i++)
		v[i] = i;
}

/* The permuted shards of a pass, from the tables. order->lock must be held. NULL: out of memory. */
static const uint32_t *pass_shards(struct ps_order *order, uint64_t epoch, uint64_t pass)
{
	int oldest = 0;

	for (int i = 0; i < TABLES; i++) {
		if (order->tables[i].shards && order->tables[i].epoch == epoch &&
		        order->tables[i].pass == pass) {
			order->tables[i].used = ++order->clock;
			return order->tables[i].shards;
		}
		if (order->tables[i].used < order->tables[oldest].used)
			oldest = i;
	}
	if (!order->tables[oldest].shards)
		order->tables[oldest].shards = malloc(order->o.nshards * sizeof(uint32_t));
	if (!order->tables[oldest].shards)
		return NULL;
	count_up(order->o.nshards, order->tables[oldest].shards);
	for (uint32_t d = 0; d < order->o.nsets; d++) {
		uint32_t *shards = order->tables[oldest].shards + order->sets[d].first;
		struct ps_rng_key key = {.seed = order->o.seed,
		        .epoch = epoch,
		        .sample = order->sets[d].key,
		        .draw = (uint32_t)pass};

		uint32_t n = order->sets[d].n, homes = order->o.homes;

		count_up(n, shards);
		if (homes > 1) /* then the places that are h mod `homes` are those of the shards of home h */
			permute(&(struct ps_rng_key){.seed = key.seed, .sample = key.sample},
			        PS_RNG_SHARD_HOME, n, 1, shards);
		for (uint32_t h = 0; h < PS_MAX(homes, 1u); h++) {
			key.shard = h;
			permute(&key, PS_RNG_SHARD_ORDER, n > h ? (n - h - 1) / PS_MAX(homes, 1u) + 1 : 0,
			        PS_MAX(homes, 1u), shards + h);
		}
		for (uint32_t i = 0; i < n; i++)
			shards[i] += order->sets[d].first;
	}
	order->tables[oldest].epoch = epoch;
	order->tables[oldest].pass = pass;
	order->tables[oldest].used = ++order->clock;
	return order->tables[oldest].shards;
}

struct lane_place {
	uint32_t set;
	uint32_t at; /* the lane's number among the set's lanes of all ranks */
	uint32_t of; /* number of these lanes */
};

static struct lane_place place_of(const struct ps_order *order, uint32_t lane)
{
	struct lane_place p = {0};

	while (lane >= order->lanes[p.set].first + order->lanes[p.set].n)
		p.set++;
	p.at = ps_order_lane(order, lane) - (order->o.shared ? order->lanes[p.set].first : 0);
	p.of = order->o.shared ? order->lanes[p.set].n : order->all_lanes;
	return p;
}

uint64_t ps_order_pass_len(const struct ps_order *order, uint32_t lane)
{
	struct lane_place p = place_of(order, lane);

	return (order->sets[p.set].n - p.at + p.of - 1) / p.of;
}

int ps_order_shard(struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t k, uint32_t *ret_shard,
        uint64_t *ret_pass)
{
	struct lane_place p = place_of(order, lane);
	uint64_t len = (order->sets[p.set].n - p.at + p.of - 1) / p.of, pass = k / len;
	uint64_t place = order->sets[p.set].first + p.at + k % len * p.of;
	const uint32_t *shards;

	if (pass >= order->o.repeat)
		return 0;
	*ret_pass = pass;
	if (order->o.mode == PS_ORDER_NONE) {
		*ret_shard = (uint32_t)place;
		return 1;
	}
	PS_LOCK_SCOPE(&order->lock);
	shards = pass_shards(order, epoch, pass);
	if (!shards)
		return -ENOMEM;
	*ret_shard = shards[place];
	return 1;
}

/* Blocks ------------------------------------------------------------------------------------------------- */

/* A merge sort, which is stable: the order is the same on every machine. */
static void sort_by_length(uint32_t n, const uint64_t *nbytes, uint32_t *v, uint32_t *spare)
{
	uint32_t half = n / 2, a = 0, b = half, i = 0;

	if (n < 2)
		return;
	sort_by_length(half, nbytes, v, spare);
	sort_by_length(n - half, nbytes, v + half, spare);
	memcpy(spare, v, n * sizeof(*v));
	while (a < half || b < n)
		v[i++] = b == n || (a < half && nbytes[spare[a]] <= nbytes[spare[b]]) ? spare[a++]
		                                                                      : spare[b++];
}

#define MAX_BUCKETS 256

/* Sorts the samples by length and cuts them into runs. Permutes the runs, in the same way in all lanes, and
 * then the samples within each run. */
static int block_bucket(const struct ps_order *order, const struct ps_rng_key *key, uint32_t n,
        const uint64_t *nbytes, uint32_t *from)
{
	struct ps_rng_key common = {.seed = key->seed, .epoch = key->epoch, .sample = key->sample, .draw = 1};
	uint32_t runs = PS_MIN(PS_MIN(order->o.bucket, MAX_BUCKETS), PS_MAX(n, 1u));
	uint32_t places[MAX_BUCKETS], at = 0;
	ps_autofree uint32_t *spare = malloc(PS_MAX(n, 1u) * sizeof(*spare));

	if (!spare)
		return -ENOMEM;
	sort_by_length(n, nbytes, from, spare);
	memcpy(spare, from, n * sizeof(*from));
	count_up(runs, places);
	permute(&common, PS_RNG_SAMPLE_ORDER, runs, 1, places);
	for (uint32_t i = 0; i < runs; i++) {
		uint32_t begin = (uint32_t)((uint64_t)n * places[i] / runs);
		uint32_t len = (uint32_t)((uint64_t)n * (places[i] + 1) / runs) - begin;
		struct ps_rng_key own = *key;

		own.draw = 2 + i;
		memcpy(from + at, spare + begin, len * sizeof(*from));
		permute(&own, PS_RNG_SAMPLE_ORDER, len, 1, from + at);
		at += len;
	}
	return 0;
}

int ps_order_block(const struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t block, uint32_t n,
        const uint64_t *nbytes, uint32_t *ret_from)
{
	const struct ps_order_options *o = &order->o;
	struct ps_rng_key key = {
	        .seed = o->seed, .epoch = epoch, .shard = ps_order_lane(order, lane), .sample = block};

	if (o->nsets > 1) {
		struct lane_place p = place_of(order, lane);

		key.shard = (uint64_t)order->sets[p.set].key << 32 | p.at;
	}
	count_up(n, ret_from);
	if (ps_order_buckets(order))
		return block_bucket(order, &key, n, nbytes, ret_from);
	if (o->mode == PS_ORDER_WINDOW)
		permute(&key, PS_RNG_SAMPLE_ORDER, n, 1, ret_from);
	return 0;
}

/* Positions ---------------------------------------------------------------------------------------------- */

int ps_position_init(struct ps_position *p, uint32_t nlanes)
{
	*p = (struct ps_position){.nlanes = nlanes, .lanes = calloc(nlanes, sizeof(*p->lanes))};
	return p->lanes ? 0 : -ENOMEM;
}

void ps_position_fini(struct ps_position *p)
{
	free(p->lanes);
	*p = (struct ps_position){0};
}

void ps_position_begin(struct ps_position *p, uint64_t epoch)
{
	p->epoch = epoch;
	p->batches = p->rows = 0;
	p->turn = 0;
	memset(p->lanes, 0, p->nlanes * sizeof(*p->lanes));
}
