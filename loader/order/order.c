#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <string.h>

#include "order/rng.h"

/* Lanes are in one epoch or the next; more tables would only save a recomputation. */
#define TABLES 2

struct ps_order {
	struct ps_order_options o;
	uint32_t nlanes;
	uint32_t block_len;
	pthread_mutex_t lock; /* tables, latest */
	struct {
		uint64_t epoch;
		uint32_t *shards; /* NULL: not made yet */
	} tables[TABLES];
	int latest; /* the table that was made last */
};

static int options_check(const struct ps_order_options *o, struct ps_load_error *err)
{
	if (o->nshards == 0)
		return ps_load_error_set(err, EINVAL, "no shards");
	if (o->world == 0 || o->rank >= o->world)
		return ps_load_error_set(
		        err, EINVAL, "rank %u of world %u: rank must be below world", o->rank, o->world);
	if (o->world > o->nshards)
		return ps_load_error_set(err, EINVAL,
		        "world %u, but %u shard%s: each rank needs a shard of its own; write more, smaller "
		        "shards",
		        o->world, o->nshards, o->nshards == 1 ? "" : "s");
	if (o->lanes == 0 || o->lanes > PS_ORDER_MAX_LANES)
		return ps_load_error_set(
		        err, EINVAL, "lanes %u: must be 1 to %d", o->lanes, PS_ORDER_MAX_LANES);
	if (o->lanes % o->world)
		return ps_load_error_set(err, EINVAL, "lanes %u: must be a multiple of world %u, as %u is",
		        o->lanes, o->world, (o->lanes / o->world + 1) * o->world);
	if (o->mode == PS_ORDER_WINDOW && (o->window == 0 || o->window > PS_ORDER_MAX_WINDOW))
		return ps_load_error_set(err, EINVAL, "shuffle window %u: must be 1 to %u samples", o->window,
		        PS_ORDER_MAX_WINDOW);
	return 0;
}

struct ps_order *ps_order_new(const struct ps_order_options *options, struct ps_load_error *err)
{
	struct ps_order_options o = *options;
	struct ps_order *order;
	uint32_t active;

	if (o.mode == PS_ORDER_NONE)
		o.lanes = o.world;
	if (options_check(&o, err) < 0)
		return NULL;
	order = calloc(1, sizeof(*order));
	if (!order) {
		ps_load_error_set(err, ENOMEM, "out of memory");
		return NULL;
	}
	pthread_mutex_init(&order->lock, NULL);
	active = PS_MIN(o.lanes, o.nshards);
	order->o = o;
	order->nlanes = (active - o.rank + o.world - 1) / o.world;
	order->block_len =
	        o.mode == PS_ORDER_WINDOW ? (o.window + active - 1) / active : PS_ORDER_PLAIN_BLOCK;
	return order;
}

void ps_order_free(struct ps_order *order)
{
	if (!order)
		return;
	for (int i = 0; i < TABLES; i++)
		free(order->tables[i].shards);
	pthread_mutex_destroy(&order->lock);
	free(order);
}

uint32_t ps_order_nlanes(const struct ps_order *order)
{
	return order->nlanes;
}

bool ps_order_shuffles(const struct ps_order *order)
{
	return order->o.mode == PS_ORDER_WINDOW;
}

uint32_t ps_order_block_len(const struct ps_order *order)
{
	return order->block_len;
}

/* Fisher-Yates from the end: place i changes with a place of [0, i], the number's index is i. */
static void permute(const struct ps_rng_key *key, uint32_t op, uint32_t n, uint32_t *v)
{
	for (uint32_t i = 0; i < n; i++)
		v[i] = i;
	for (uint32_t i = n; i-- > 1;) {
		uint32_t j = (uint32_t)ps_rng_below(key, op, i, (uint64_t)i + 1);
		uint32_t t = v[i];

		v[i] = v[j];
		v[j] = t;
	}
}

/* The permuted shards of an epoch, from the table; order->lock is held. NULL: out of memory. */
static const uint32_t *epoch_shards(struct ps_order *order, uint64_t epoch)
{
	struct ps_rng_key key = {.seed = order->o.seed, .epoch = epoch};
	int i;

	for (i = 0; i < TABLES; i++)
		if (order->tables[i].shards && order->tables[i].epoch == epoch)
			return order->tables[i].shards;
	i = (order->latest + 1) % TABLES;
	if (!order->tables[i].shards)
		order->tables[i].shards = malloc(order->o.nshards * sizeof(uint32_t));
	if (!order->tables[i].shards)
		return NULL;
	permute(&key, PS_RNG_SHARD_ORDER, order->o.nshards, order->tables[i].shards);
	order->tables[i].epoch = epoch;
	order->latest = i;
	return order->tables[i].shards;
}

int ps_order_shard(struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t k, uint32_t *ret_shard)
{
	const struct ps_order_options *o = &order->o;
	uint64_t first = o->rank + (uint64_t)lane * o->world; /* the lane's number among all */
	const uint32_t *shards;

	if (k >= o->nshards || first + k * o->lanes >= o->nshards)
		return 0;
	if (o->mode == PS_ORDER_NONE) {
		*ret_shard = (uint32_t)(first + k * o->lanes);
		return 1;
	}
	PS_LOCK_SCOPE(&order->lock);
	shards = epoch_shards(order, epoch);
	if (!shards)
		return -ENOMEM;
	*ret_shard = shards[first + k * o->lanes];
	return 1;
}

void ps_order_block(const struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t block, uint32_t n,
        uint32_t *ret_from)
{
	const struct ps_order_options *o = &order->o;
	struct ps_rng_key key = {.seed = o->seed,
	        .epoch = epoch,
	        .shard = o->rank + (uint64_t)lane * o->world,
	        .sample = block};

	if (o->mode == PS_ORDER_WINDOW) {
		permute(&key, PS_RNG_SAMPLE_ORDER, n, ret_from);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		ret_from[i] = i;
}

/* -- Turns -------------------------------------------------------------------------------------------- */

int ps_turns_init(struct ps_turns *t, uint32_t n)
{
	*t = (struct ps_turns){.n = n, .alive = n, .done = calloc(n, sizeof(bool))};
	return t->done ? 0 : -ENOMEM;
}

void ps_turns_fini(struct ps_turns *t)
{
	free(t->done);
	*t = (struct ps_turns){0};
}

void ps_turns_reset(struct ps_turns *t)
{
	memset(t->done, 0, t->n * sizeof(bool));
	t->at = 0;
	t->alive = t->n;
}

void ps_turns_advance(struct ps_turns *t)
{
	if (t->alive == 0)
		return;
	do
		t->at = t->at + 1 == t->n ? 0 : t->at + 1;
	while (t->done[t->at]);
}

void ps_turns_finish(struct ps_turns *t)
{
	t->done[t->at] = true;
	t->alive--;
	ps_turns_advance(t);
}
