/* Simulates the cache policies with the store's own code (policy, plans), without a disk, and compares them
 * with LRU and with the optimum, which knows the whole future (Belady). --help lists the options.
 *
 * A shard is of size 1, or of slices with --tiers; a node's cache is a share of the whole dataset; each epoch
 * deals all shards again, in another order, to all nodes. Only opens after the first epoch are counted. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "policy/policy.h"
#include "tier/tier_private.h"

#define DATASET 1
#define START_S 1000000000
#define POSITION_EVERY 8 /* opens */
#define TENTHS 10

/* One node's opens, in order. */
struct open {
	uint32_t object, dataset;
	int64_t now_s;
	uint32_t epoch;
};
struct trace {
	struct open *v;
	size_t n;
	uint32_t nobjects;
	uint32_t nepochs;
};

struct tally {
	uint64_t opens, hits; /* after the first epoch */
	uint64_t misses_in_tenth[TENTHS];
};

static struct ps_id id_of(uint32_t object)
{
	struct ps_id id;
	char text[16];

	snprintf(text, sizeof(text), "%u", object);
	ps_id_of_strings((const char *[]){text}, 1, &id);
	return id;
}

/* splitmix64 */
static uint64_t random64(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void *need(void *p)
{
	if (!p) {
		fputs("policy: out of memory\n", stderr);
		exit(1);
	}
	return p;
}

/* The trace of one node of `nodes`. */
static void deal(
        struct trace *t, uint32_t node, uint32_t nodes, uint32_t shards, uint32_t epochs, uint64_t seed)
{
	uint32_t *order = need(calloc(shards, sizeof(*order)));

	*t = (struct trace){.nobjects = shards, .nepochs = epochs};
	t->v = need(calloc((size_t)epochs * (shards / nodes + 1), sizeof(*t->v)));
	for (uint32_t e = 0; e < epochs; e++) {
		uint64_t rng = seed + 1000003 * (uint64_t)e;
		for (uint32_t i = 0; i < shards; i++)
			order[i] = i;
		for (uint32_t i = shards; i > 1; i--) {
			uint32_t j = (uint32_t)(random64(&rng) % i), k = order[i - 1];
			order[i - 1] = order[j];
			order[j] = k;
		}
		for (uint32_t i = node; i < shards; i += nodes) {
			t->v[t->n] = (struct open){.object = order[i],
			        .dataset = DATASET,
			        .now_s = START_S + (int64_t)t->n * 5,
			        .epoch = e};
			t->n++;
		}
	}
	free(order);
}

/* The store's policies ----------------------------------------------------------------------------------- */

struct cache {
	struct ps_policy_item *items;
	size_t *victims;
	uint32_t *slot_of; /* object → slot + 1; 0: not cached */
	uint32_t *object_at;
	size_t n, slots;
	uint64_t used, room; /* the sum of the items' nbytes, and what it may be */
	uint64_t seq;
};

static int by_slot_desc(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

static void cache_remove(struct cache *c, size_t slot)
{
	size_t last = --c->n;

	c->used -= c->items[slot].nbytes;
	c->slot_of[c->object_at[slot]] = 0;
	if (slot == last)
		return;
	c->items[slot] = c->items[last];
	c->object_at[slot] = c->object_at[last];
	c->slot_of[c->object_at[slot]] = (uint32_t)slot + 1;
}

/* Does what the store does at an open and, after a miss, at the admission. Returns whether it was a hit.
 * nbytes 0: an object of which nothing is kept here. */
static bool cache_open(struct cache *c, const struct ps_policy_ops *ops, struct ps_policy *policy,
        const struct open *open, const struct ps_id *id, uint64_t nbytes)
{
	uint32_t slot = c->slot_of[open->object];
	struct ps_policy_item *item = slot ? &c->items[slot - 1] : NULL;

	ops->opened(policy, open->dataset, id, item ? item->opened_s : 0, open->now_s);
	if (item) {
		item->opened_s = open->now_s;
		item->seq = c->seq++;
		return true;
	}
	if (nbytes == 0 || nbytes > c->room)
		return false;
	if (c->used + nbytes > c->room || c->n == c->slots) {
		const struct ps_policy_query query = {.items = c->items,
		        .n = c->n,
		        .need_nbytes = PS_MAX(c->used + nbytes, c->room + 1) - c->room,
		        .now_s = open->now_s,
		        .id = id,
		        .dataset = open->dataset};
		size_t n = ops->choose(policy, &query, c->victims);
		if (n == 0)
			return false;
		qsort(c->victims, n, sizeof(c->victims[0]), by_slot_desc);
		for (size_t i = 0; i < n; i++)
			cache_remove(c, c->victims[i]);
	}
	c->slot_of[open->object] = (uint32_t)c->n + 1;
	c->object_at[c->n] = open->object;
	c->items[c->n++] = (struct ps_policy_item){.id = *id,
	        .dataset = open->dataset,
	        .nbytes = nbytes,
	        .opened_s = open->now_s,
	        .seq = c->seq++};
	c->used += nbytes;
	return false;
}

static void tell_epoch(struct ps_plans *plans, const struct trace *t, const struct ps_id *ids, uint32_t epoch)
{
	const struct ps_plan_teller teller = {.feed = 1};
	const struct ps_plan_who who = {.job = "sim", .world = 1, .epoch = epoch};
	struct ps_plan_file *files = need(calloc(t->n, sizeof(*files)));
	double now_s = START_S;
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		if (t->v[i].epoch == epoch)
			files[n++] =
			        (struct ps_plan_file){.node = t->v[i].object + 1, .id = ids[t->v[i].object]};
	}
	int rc = ps_plans_tell(plans, &teller, &who, files, n, now_s);
	if (rc < 0)
		fprintf(stderr, "policy: an epoch was refused: %s\n", strerror(-rc));
	free(files);
}

static void tell_position(struct ps_plans *plans, uint32_t epoch, uint64_t done, int64_t now_s)
{
	const struct ps_plan_teller teller = {.feed = 1};
	const struct ps_plan_who who = {.job = "sim", .world = 1, .epoch = epoch};

	if (ps_plans_position(plans, &teller, &who, done, (double)now_s) < 0)
		fputs("policy: a position was refused\n", stderr);
}

/* A node that goes through its trace. */
struct node {
	const struct trace *t;
	const struct ps_policy_ops *ops;
	struct ps_plans *plans;
	struct ps_policy *policy;
	struct cache c;
	const struct ps_id *ids;
	uint32_t plan_epochs, told, epoch;
	size_t at, epoch_begin;
};

/* room: of its cache; an object takes about half of `unit` at least. */
static void node_init(struct node *node, const char *name, const struct trace *t, const struct ps_id *ids,
        uint64_t room, uint64_t unit, uint32_t plan_epochs)
{
	size_t slots = room / PS_MAX(unit / 2, 1u) + 1;

	*node = (struct node){.t = t,
	        .ids = ids,
	        .ops = ps_policy_find(name),
	        .plans = need(ps_plans_new()),
	        .plan_epochs = plan_epochs,
	        .epoch = UINT32_MAX,
	        .c = {.slots = slots,
	                .room = room,
	                .items = need(calloc(slots, sizeof(*node->c.items))),
	                .victims = need(calloc(slots, sizeof(*node->c.victims))),
	                .slot_of = need(calloc(t->nobjects, sizeof(*node->c.slot_of))),
	                .object_at = need(calloc(slots, sizeof(*node->c.object_at)))}};
	node->policy = need(node->ops->new (node->plans));
}

static void node_fini(struct node *node)
{
	node->ops->free(node->policy);
	ps_plans_free(node->plans);
	free(node->c.items);
	free(node->c.victims);
	free(node->c.slot_of);
	free(node->c.object_at);
}

/* The next open, of an object of nbytes: whether it was a hit. */
static bool node_step(struct node *node, uint64_t nbytes)
{
	const struct trace *t = node->t;
	const struct open *open = &t->v[node->at];

	if (open->epoch != node->epoch) {
		node->epoch = open->epoch;
		node->epoch_begin = node->at;
		for (; node->plan_epochs && node->told < PS_MIN(node->epoch + node->plan_epochs, t->nepochs);
		        node->told++)
			tell_epoch(node->plans, t, node->ids, node->told);
	}
	if (node->plan_epochs && (node->at - node->epoch_begin) % POSITION_EVERY == 0)
		tell_position(node->plans, node->epoch, node->at - node->epoch_begin, open->now_s);
	node->at++;
	return cache_open(&node->c, node->ops, node->policy, open, &node->ids[open->object], nbytes);
}

static struct ps_id *make_ids(uint32_t n)
{
	struct ps_id *ids = need(calloc(n, sizeof(*ids)));

	for (uint32_t i = 0; i < n; i++)
		ids[i] = id_of(i);
	return ids;
}

static void run(
        const char *name, const struct trace *t, size_t capacity, uint32_t plan_epochs, struct tally *tally)
{
	struct ps_id *ids = make_ids(t->nobjects);
	struct node node;

	node_init(&node, name, t, ids, capacity, 1, plan_epochs);
	for (size_t i = 0; i < t->n; i++) {
		bool hit = node_step(&node, 1);

		if (t->v[i].epoch == 0)
			continue;
		tally->opens++;
		tally->hits += hit;
		if (!hit && t->nepochs > 1)
			tally->misses_in_tenth[(i - node.epoch_begin) * TENTHS * t->nepochs / t->n %
			                       TENTHS]++;
	}
	node_fini(&node);
	free(ids);
}

/* Tiers: one on each node, which evicts the least recently used slice, as nginx does -------------------- */

#define STRIPE_SLICES ((uint32_t)(PS_TIER_STRIPE_NBYTES / PS_TIER_SLICE_NBYTES))

/* Each slice has one tier, so the lists of all tiers share one array. */
struct pool {
	uint32_t *prev, *next; /* by slice + 1; 0: the end */
	uint32_t *home;        /* its tier */
	bool *in;
	struct {
		uint32_t first, last; /* first: the most recently used */
		size_t n, capacity;
	} * tiers;
};

static void pool_unlink(struct pool *p, uint32_t k)
{
	uint32_t prev = p->prev[k], next = p->next[k];

	*(prev ? &p->next[prev] : &p->tiers[p->home[k]].first) = next;
	*(next ? &p->prev[next] : &p->tiers[p->home[k]].last) = prev;
}

/* Whether the slice's tier had it. */
static bool pool_ask(struct pool *p, uint32_t k)
{
	uint32_t tier = p->home[k];
	bool had = p->in[k];

	if (p->tiers[tier].capacity == 0)
		return false;
	if (had)
		pool_unlink(p, k);
	else if (p->tiers[tier].n == p->tiers[tier].capacity) {
		p->in[p->tiers[tier].last] = false;
		pool_unlink(p, p->tiers[tier].last);
	} else
		p->tiers[tier].n++;
	p->in[k] = true;
	p->prev[k] = 0;
	p->next[k] = p->tiers[tier].first;
	*(p->next[k] ? &p->prev[p->next[k]] : &p->tiers[tier].last) = k;
	p->tiers[tier].first = k;
	return had;
}

/* Tiers and objects have the names that tests/bench/nodes gives them, and so the same slices. */
static void pool_init(struct pool *p, uint32_t nodes, uint32_t shards, uint32_t slices, size_t capacity)
{
	size_t n = (size_t)shards * slices + 1;
	uint64_t *names = need(calloc(nodes, sizeof(*names)));

	*p = (struct pool){.prev = need(calloc(n, sizeof(*p->prev))),
	        .next = need(calloc(n, sizeof(*p->next))),
	        .home = need(calloc(n, sizeof(*p->home))),
	        .in = need(calloc(n, sizeof(*p->in))),
	        .tiers = need(calloc(nodes, sizeof(*p->tiers)))};
	for (uint32_t i = 0; i < nodes; i++) {
		char url[64];

		snprintf(url, sizeof(url), "http://10.99.%u.%u:8080", i / 249, i % 249 + 1);
		names[i] = ps_rendezvous_name(url);
		p->tiers[i].capacity = capacity;
	}
	for (uint32_t shard = 0; shard < shards; shard++) {
		char path[32];

		snprintf(path, sizeof(path), "/shard-%04u.tar", shard);
		uint64_t object = ps_tier_object("10.99.0.250", path, NULL);
		for (uint32_t s = 0; s < slices; s++)
			p->home[shard * slices + s + 1] =
			        (uint32_t)ps_rendezvous_choose(names, nodes, NULL, object, s / STRIPE_SLICES);
	}
	free(names);
}

static void pool_fini(struct pool *p)
{
	free(p->prev);
	free(p->next);
	free(p->home);
	free(p->in);
	free(p->tiers);
}

/* A node reads a shard: it asks the tiers for what its own cache does not have. Slices of its own tier are
 * not written to its cache as well. Gives how many slices leave the origin. */
static uint32_t read_shard(struct node *node, struct pool *pool, uint32_t self, bool tiers, uint32_t slices)
{
	uint32_t first = node->t->v[node->at].object * slices + 1, own = 0, left = 0;

	for (uint32_t s = 0; s < slices; s++)
		own += tiers && pool->home[first + s] == self;
	bool hit = node_step(node, slices - own);
	for (uint32_t s = 0; s < slices; s++)
		if (!hit || (tiers && pool->home[first + s] == self))
			left += !pool_ask(pool, first + s);
	return left;
}

/* All nodes at once. Gives the origin's share of the bytes that are read, in the first epoch and in later
 * ones. */
static void run_tiers(uint32_t nodes, uint32_t shards, uint32_t slices, uint32_t epochs, uint32_t plan_epochs,
        uint64_t seed, double tier_share, double own_share, double *ret_first, double *ret_later)
{
	struct trace *traces = need(calloc(nodes, sizeof(*traces)));
	struct node *all = need(calloc(nodes, sizeof(*all)));
	struct ps_id *ids = make_ids(shards);
	uint64_t asked[2] = {0}, left[2] = {0};
	struct pool pool;

	size_t tier_room = (size_t)(tier_share * shards * slices);
	pool_init(&pool, nodes, shards, slices, tier_room);
	for (uint32_t i = 0; i < nodes; i++) {
		deal(&traces[i], i, nodes, shards, epochs, seed);
		node_init(&all[i], "plan", &traces[i], ids,
		        PS_MAX((uint64_t)(own_share * shards * slices), slices), slices, plan_epochs);
	}
	for (uint32_t more = nodes; more > 0;) {
		more = 0;
		for (uint32_t i = 0; i < nodes; i++) {
			if (all[i].at == traces[i].n)
				continue;
			bool later = traces[i].v[all[i].at].epoch > 0;

			more++;
			asked[later] += slices;
			left[later] += read_shard(&all[i], &pool, i, tier_room > 0, slices);
		}
	}
	*ret_first = (double)left[0] / (double)asked[0];
	*ret_later = (double)left[1] / (double)asked[1];
	for (uint32_t i = 0; i < nodes; i++) {
		node_fini(&all[i]);
		free(traces[i].v);
	}
	pool_fini(&pool);
	free(traces);
	free(all);
	free(ids);
}

/* The optimum: evicts, of the cached objects and the new one, the one whose next open is the latest. */
static void run_optimum(const struct trace *t, size_t capacity, struct tally *tally)
{
	size_t *next = need(calloc(t->n, sizeof(*next))), *seen = need(calloc(t->nobjects, sizeof(*seen)));
	uint32_t *held = need(calloc(capacity + 1, sizeof(*held)));
	size_t *due = need(calloc(t->nobjects, sizeof(*due)));
	bool *in = need(calloc(t->nobjects, sizeof(*in)));
	size_t n = 0, epoch_begin = 0;

	for (size_t i = 0; i < t->nobjects; i++)
		seen[i] = SIZE_MAX;
	for (size_t i = t->n; i-- > 0;) {
		next[i] = seen[t->v[i].object];
		seen[t->v[i].object] = i;
	}
	for (size_t i = 0; i < t->n; i++) {
		uint32_t object = t->v[i].object;
		bool hit = in[object];

		if (i > 0 && t->v[i].epoch != t->v[i - 1].epoch)
			epoch_begin = i;
		due[object] = next[i];
		if (!hit) {
			in[object] = true;
			held[n++] = object;
			if (n > capacity) {
				size_t last = 0;
				for (size_t k = 1; k < n; k++)
					if (due[held[k]] > due[held[last]])
						last = k;
				in[held[last]] = false;
				held[last] = held[--n];
			}
		}
		if (t->v[i].epoch == 0)
			continue;
		tally->opens++;
		tally->hits += hit;
		if (!hit && t->nepochs > 1)
			tally->misses_in_tenth[(i - epoch_begin) * TENTHS * t->nepochs / t->n % TENTHS]++;
	}
	free(next);
	free(seen);
	free(held);
	free(due);
	free(in);
}

/* Cases -------------------------------------------------------------------------------------------------- */

struct options {
	uint32_t nodes, shards, slices, epochs, plan_epochs;
	uint64_t seed;
	double share, tier;
	bool json;
};

static void print_row(const struct options *o, const char *name, const struct tally *tally)
{
	double hits = tally->opens ? (double)tally->hits / (double)tally->opens : 0;
	uint64_t misses = tally->opens - tally->hits, most = 0;

	for (int i = 0; i < TENTHS; i++)
		most = PS_MAX(most, tally->misses_in_tenth[i]);
	/* The share of all misses that the worst tenth of the epoch has: 0.1 is even. */
	double worst = misses ? (double)most / (double)misses : 0;
	if (o->json)
		printf("{\"nodes\": %u, \"cache\": %g, \"policy\": \"%s\", \"hits\": %.4f, \"origin\": %.4f, "
		       "\"worst_tenth\": %.4f}\n",
		        o->nodes, o->share, name, hits, 1 - hits, worst);
	else
		printf("%-10s  %6.1f %%   %6.3f   %6.2f\n", name, 100 * hits, 1 - hits, worst);
}

static void simulate(const struct options *o)
{
	static const struct {
		const char *label, *policy; /* NULL: the optimum */
		bool plans;
	} rows[] = {{"lru", "lru", false}, {"no plans", "plan", false}, {"plan", "plan", true},
	        {"optimum", NULL, true}};
	size_t capacity = (size_t)lround(o->share * o->shards);

	if (!o->json)
		printf("\n%u node%s, %u shards dealt and shuffled again each epoch, %u epochs, cache of a "
		       "node %g of "
		       "the dataset, plans of %u epochs\n"
		       "policy         hits   origin   worst tenth's share of the misses\n",
		        o->nodes, o->nodes == 1 ? "" : "s", o->shards, o->epochs, o->share, o->plan_epochs);
	for (size_t r = 0; r < PS_ARRAY_LEN(rows); r++) {
		struct tally tally = {0};
		for (uint32_t node = 0; node < o->nodes; node++) {
			struct trace t;
			deal(&t, node, o->nodes, o->shards, o->epochs, o->seed);
			if (rows[r].policy)
				run(rows[r].policy, &t, capacity, rows[r].plans ? o->plan_epochs : 0, &tally);
			else
				run_optimum(&t, capacity, &tally);
			free(t.v);
		}
		print_row(o, rows[r].label, &tally);
	}
}

#define SPARE 1.05 /* of a tier, for hashing is not quite even */

/* Splits a node's share between its tier and its own cache in several ways: no tier, half of the share, and
 * sizes by the rule that all tiers together hold the dataset once (with SPARE). */
static void simulate_tiers(const struct options *o)
{
	double rule = SPARE / o->nodes, first, later;
	double splits[] = {0, 0.5 * o->share, rule, 1.1 * rule, 1.2 * rule, o->tier};

	if (rule >= o->share)
		rule = 0;
	printf("\n%u nodes, %u shards of %u slices, %u epochs, %g of the dataset on a node's disk; the "
	       "rule: T = %.3f\n"
	       "tier    own     origin, first epoch   later epochs\n",
	        o->nodes, o->shards, o->slices, o->epochs, o->share, rule);
	for (size_t i = 0; i < PS_ARRAY_LEN(splits); i++) {
		if (splits[i] > o->share || (i == PS_ARRAY_LEN(splits) - 1 && o->tier <= 0))
			continue;
		run_tiers(o->nodes, o->shards, o->slices, o->epochs, o->plan_epochs, o->seed, splits[i],
		        o->share - splits[i], &first, &later);
		printf("%.4f  %.4f  %19.3f   %12.3f\n", splits[i], o->share - splits[i], first, later);
	}
}

/* Which node reads which shard, in order. */
static void print_deal(const struct options *o)
{
	for (uint32_t node = 0; node < o->nodes; node++) {
		struct trace t;
		deal(&t, node, o->nodes, o->shards, o->epochs, o->seed);
		for (size_t i = 0; i < t.n; i++)
			printf("%u %u %u\n", node + 1, t.v[i].epoch, t.v[i].object);
		free(t.v);
	}
}

/* Reads a real trace: it has no plans, and every open is counted. */
static int read_trace(const char *path, struct trace *t)
{
	FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
	struct {
		char text[256];
	} *names = NULL;
	size_t cap = 0, names_cap = 0;
	double at_s;
	unsigned dataset;
	char name[256];

	*t = (struct trace){.nepochs = 1};
	if (!in) {
		fprintf(stderr, "policy: %s: %s\n", path, strerror(errno));
		return -1;
	}
	while (fscanf(in, "%lf %u %255s", &at_s, &dataset, name) == 3) {
		uint32_t k = 0;
		while (k < t->nobjects && strcmp(names[k].text, name) != 0)
			k++;
		if (k == t->nobjects) {
			if (t->nobjects == names_cap) {
				names_cap = names_cap ? 2 * names_cap : 256;
				names = need(reallocarray(names, names_cap, sizeof(*names)));
			}
			strcpy(names[t->nobjects++].text, name);
		}
		if (t->n == cap) {
			cap = cap ? 2 * cap : 1024;
			t->v = need(reallocarray(t->v, cap, sizeof(*t->v)));
		}
		t->v[t->n++] = (struct open){
		        .object = k, .dataset = dataset, .now_s = START_S + (int64_t)at_s, .epoch = 1};
	}
	free(names);
	if (in != stdin)
		fclose(in);
	return 0;
}

static int simulate_trace(const char *path, size_t capacity, const struct options *o)
{
	static const char *const names[] = {"lru", "plan"};
	struct tally optimum = {0};
	struct trace t;

	if (read_trace(path, &t) < 0)
		return 1;
	if (!o->json)
		printf("%zu opens of %u objects, a cache of %zu\npolicy         hits   origin\n", t.n,
		        t.nobjects, capacity);
	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
		struct tally tally = {0};
		run(names[i], &t, capacity, 0, &tally);
		print_row(o, names[i], &tally);
	}
	run_optimum(&t, capacity, &optimum);
	print_row(o, "optimum", &optimum);
	free(t.v);
	return 0;
}

/* Measures a choice of victims, which the store makes with its lock held, in a cache of n objects that are
 * all in plans of 8 epochs: each open evicts one object and admits one. */
static void measure_cost(uint32_t n)
{
	static const char *const names[] = {"lru", "plan"};

	printf("a cache of %u objects of %u, an eviction for each open\npolicy      mean us   longest ms\n",
	        n, 2 * n);
	for (size_t k = 0; k < PS_ARRAY_LEN(names); k++) {
		const struct ps_policy_ops *ops = ps_policy_find(names[k]);
		struct ps_plans *plans = need(ps_plans_new());
		struct ps_policy *policy = need(ops->new (plans));
		struct ps_policy_item *items = need(calloc(n, sizeof(*items)));
		size_t *victims = need(calloc(n, sizeof(*victims)));
		struct trace t;
		struct ps_id *ids = need(calloc(2 * (size_t)n, sizeof(*ids)));
		uint64_t sum_ns = 0, most_ns = 0, rng = 1;
		enum { CHOICES = 20000 };

		for (uint32_t i = 0; i < 2 * n; i++)
			ids[i] = id_of(i);
		deal(&t, 0, 2, 2 * n, 8, 1);
		for (uint32_t e = 0; strcmp(names[k], "plan") == 0 && e < 8; e++)
			tell_epoch(plans, &t, ids, e);
		free(t.v);
		for (uint32_t i = 0; i < n; i++) /* long ago, so that any policy evicts them */
			items[i] = (struct ps_policy_item){.id = ids[i],
			        .dataset = DATASET,
			        .nbytes = 1,
			        .opened_s = START_S - 1000000 + i,
			        .seq = i};
		for (int c = 0; c < CHOICES; c++) {
			const struct ps_policy_query query = {.items = items,
			        .n = n,
			        .need_nbytes = 1,
			        .now_s = START_S + c / 2000, /* 2,000 a second */
			        .id = &ids[n + random64(&rng) % n],
			        .dataset = DATASET};
			struct timespec a, b;
			clock_gettime(CLOCK_MONOTONIC, &a);
			size_t chosen = ops->choose(policy, &query, victims);
			clock_gettime(CLOCK_MONOTONIC, &b);
			uint64_t ns = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000 + (uint64_t)b.tv_nsec -
			              (uint64_t)a.tv_nsec;
			sum_ns += ns;
			most_ns = PS_MAX(most_ns, ns);
			if (chosen > 0) {
				struct ps_policy_item *item = &items[victims[0]];
				item->id = *query.id;
				item->opened_s = query.now_s - 999999;
				item->seq = n + (uint64_t)c;
			}
		}
		printf("%-10s %8.1f %12.1f\n", names[k], (double)sum_ns / CHOICES / 1e3,
		        (double)most_ns / 1e6);
		ops->free(policy);
		ps_plans_free(plans);
		free(items);
		free(victims);
		free(ids);
	}
}

static const char usage[] =
        "Usage: policy [OPTION...]\n"
        "Runs the cache policies over simulated opens: share of hits after the first epoch, bytes from the "
        "origin for\n"
        "each byte read, and how uneven the misses are. Without options, the cases of RESULTS.md.\n\n"
        "  --nodes N          nodes that share the dataset (1)\n"
        "  --shards N         shards of the dataset, all of one size (200)\n"
        "  --cache SHARE      share of the dataset that each node's cache holds (0.5)\n"
        "  --epochs N         epochs to simulate (5)\n"
        "  --plan-epochs N    epochs that are announced ahead (8)\n"
        "  --seed S           seed of the shuffling (1)\n"
        "  --trace FILE       opens to replay, a line each: SECONDS DATASET NAME; needs --objects\n"
        "  --objects N        objects of the trace that the cache holds\n"
        "  --cost N           measure instead what choices cost in a cache of N objects\n"
        "  --tiers            instead: a tier on each node; tier and cache split the node's share\n"
        "  --tier SHARE       as --tiers, with one more split: this share for the tier\n"
        "  --slices N         slices of 4 MiB of a shard, with --tiers (64)\n"
        "  --deal             print instead, a line a shard: node (from 1), epoch (from 0), shard\n"
        "  --json             a line of JSON a row\n"
        "  --help\n";

int main(int argc, char **argv)
{
	static const struct option known[] = {{"nodes", 1, NULL, 'n'}, {"shards", 1, NULL, 's'},
	        {"cache", 1, NULL, 'c'}, {"epochs", 1, NULL, 'e'}, {"plan-epochs", 1, NULL, 'p'},
	        {"seed", 1, NULL, 'r'}, {"trace", 1, NULL, 't'}, {"objects", 1, NULL, 'o'},
	        {"cost", 1, NULL, 'k'}, {"tiers", 0, NULL, 'T'}, {"tier", 1, NULL, 'i'},
	        {"slices", 1, NULL, 'l'}, {"deal", 0, NULL, 'd'}, {"json", 0, NULL, 'j'},
	        {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
	struct options o = {.nodes = 1,
	        .shards = 200,
	        .slices = 64,
	        .epochs = 5,
	        .plan_epochs = 8,
	        .seed = 1,
	        .share = 0.5};
	const char *trace = NULL;
	size_t objects = 0;
	uint32_t cost = 0;
	bool own_case = false, tiers = false, prints_deal = false;

	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) >= 0;) {
		uint32_t number = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
		own_case |= strchr("nscepr", c) != NULL;
		switch (c) {
		case 'n':
			o.nodes = number;
			break;
		case 's':
			o.shards = number;
			break;
		case 'c':
			o.share = strtod(optarg, NULL);
			break;
		case 'e':
			o.epochs = number;
			break;
		case 'p':
			o.plan_epochs = number;
			break;
		case 'r':
			o.seed = number;
			break;
		case 't':
			trace = optarg;
			break;
		case 'o':
			objects = number;
			break;
		case 'k':
			cost = number;
			break;
		case 'i':
			o.tier = strtod(optarg, NULL);
			/* fall through */
		case 'T':
			tiers = true;
			break;
		case 'l':
			o.slices = number;
			break;
		case 'd':
			prints_deal = true;
			break;
		case 'j':
			o.json = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (optind < argc || o.nodes == 0 || o.slices == 0 || o.shards < o.nodes || o.epochs < 2 ||
	        (trace && objects == 0) || lround(o.share * o.shards) < 1) {
		fputs(usage, stderr);
		return 2;
	}
	if (cost > 0) {
		measure_cost(cost);
		return 0;
	}
	if (trace)
		return simulate_trace(trace, objects, &o);
	if (prints_deal) {
		print_deal(&o);
		return 0;
	}
	if (tiers) {
		simulate_tiers(&o);
		return 0;
	}
	simulate(&o);
	if (own_case)
		return 0;
	o.nodes = 8;
	o.shards = 2000;
	o.epochs = 40;
	o.share = 0.05;
	simulate(&o);
	o.share = 0.2;
	simulate(&o);
	return 0;
}
