/* What a careful reader of penstock.h expects of the rows of all ranks together, for random numbers of samples and
 * ranks, sizes of batches, ends, policies and shards: each good sample is valid once, a rank without a sample repeats
 * that of another, and a row is blank only where samples are bad. PENSTOCK_TEST_SEED repeats a run. */
#include "config.h"

#include "epoch_fixture.h"

#include <errno.h>
#include <time.h>

#define COMBINATIONS 2000
#define MAX_WORLD 9

struct combination {
	struct setting s;
	uint32_t bad_of; /* one of so many samples is bad; 0: none */
	bool skip;       /* on_error */
};

struct row {
	uint32_t step, at; /* place in the rank's batch */
	uint32_t v;        /* shard * 100 + place, or BLANK */
	bool valid;
};

struct rank {
	struct row rows[MOST];
	uint32_t n;
	uint32_t nsteps;
	uint32_t own[MOST], bad[MOST]; /* samples of the rank, by step; and bad ones */
	uint64_t samples, repeats;     /* stats */
	int rc;                        /* of the last next() */
	char text[sizeof(((struct penstock_error *)NULL)->text)];
};

static struct rank ranks[MAX_WORLD];

static bool is_bad(const struct combination *c, uint64_t shard, uint64_t sample)
{
	return c->bad_of > 0 && (shard * 31 + sample * 17 + c->s.seed) % c->bad_of == 0;
}

static int transform(void *ctx, struct penstock_sample *sample)
{
	struct penstock_sample_info info;

	penstock_sample_info(sample, &info);
	return is_bad(ctx, info.shard_index, info.sample_index) ? penstock_sample_fail(sample, "marked") : 0;
}

static void combination_random(struct combination *c)
{
	struct setting *s = &c->s;

	*c = (struct combination){.skip = rnd(3) > 0};
	s->nshards = 1 + rnd(SHARDS);
	s->order = rnd(4);
	s->lanes = 1 + rnd(8);
	s->window = 1 + rnd(30);
	s->batch = 1 + rnd(rnd(2) ? 5 : 1);
	s->end = rnd(5);
	s->seed = rnd(1000);
	s->epoch = rnd(3);
	s->sets[1] = s->nshards;
	s->take = rnd(3) ? 1 + rnd(30) : 0;
	setting_world(s, 1 + rnd(MAX_WORLD));
	c->bad_of = rnd(2) ? 1 + rnd(rnd(2) ? 2 : 9) : 0;
}

static const void *tensor(const struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;

	assert_int_equal(penstock_batch_field(b, name, &t, NULL), 0);
	return t.data;
}

static void batch_note(struct rank *r, const struct penstock_batch *b)
{
	const int64_t *shards = tensor(b, "__shard__"), *samples = tensor(b, "__sample__");
	const uint8_t *valid = tensor(b, "__valid__");
	struct penstock_batch_info info;
	uint32_t nvalid = 0;

	penstock_batch_info(b, &info);
	assert_int_equal(info.index, r->nsteps);
	for (uint32_t i = 0; i < info.rows; i++) {
		assert_true(r->n < MOST);
		r->rows[r->n++] = (struct row){.step = r->nsteps,
		        .at = i,
		        .v = shards[i] < 0 ? BLANK : (uint32_t)(shards[i] * 100 + samples[i]),
		        .valid = valid[i]};
		nvalid += valid[i];
	}
	assert_int_equal(info.valid, nvalid);
	r->bad[r->nsteps++] = info.bad;
}

/* Runs one epoch of a rank. */
static void rank_run(const struct combination *c, uint32_t number, struct rank *r)
{
	static char names[64 * SHARDS];
	const char *list = names;
	struct penstock_options o;
	struct penstock_field field;
	struct penstock_loader *l;
	struct penstock_batch *b;
	struct penstock_stats stats;
	struct penstock_error e = {0};

	*r = (struct rank){0};
	snprintf(names, sizeof(names), "s-{0..%u}.tar", c->s.nshards - 1);
	penstock_options_init(&o, sizeof(o));
	penstock_field_init(&field, sizeof(field), "txt", PENSTOCK_BYTES);
	o.fields = &field;
	o.nfields = 1;
	o.batch = c->s.batch;
	o.order = c->s.order;
	o.shuffle_window = c->s.window;
	o.lanes = c->s.lanes;
	o.rank = number;
	o.world = c->s.world;
	o.ranks_per_node = c->s.ranks_per_node;
	o.end = c->s.end;
	o.seed = c->s.seed;
	o.epoch = c->s.epoch;
	o.take = c->s.take;
	o.on_error = c->skip ? PENSTOCK_SKIP : PENSTOCK_FAIL;
	o.transform = transform;
	o.transform_ctx = (void *)(uintptr_t)c;
	o.threads = 1 + rnd(3);
	o.depth = 2;
	r->rc = penstock_loader_open(&o, &list, 1, &l, &e);
	if (r->rc < 0) {
		snprintf(r->text, sizeof(r->text), "%s", e.text);
		return;
	}
	while ((r->rc = penstock_loader_next(l, &b, &e)) == 1) {
		batch_note(r, b);
		penstock_batch_release(b);
	}
	snprintf(r->text, sizeof(r->text), "%s", r->rc < 0 ? e.text : "");
	assert_int_equal(penstock_loader_stats(l, &stats, sizeof(stats), NULL), 0);
	r->samples = stats.samples;
	r->repeats = stats.repeats;
	penstock_loader_close(l);
}

#define CHECK(ok)                                                                                           \
	do {                                                                                                \
		if (!(ok)) {                                                                                \
			setting_print(&c->s);                                                               \
			print_message("bad_of %u, skip %d\n", c->bad_of, c->skip);                          \
			for (uint32_t r_ = 0; r_ < c->s.world; r_++)                                        \
				print_message("rank %u: %u rows in %u steps, rc %d, %s\n", r_, ranks[r_].n, \
				        ranks[r_].nsteps, ranks[r_].rc, ranks[r_].text);                    \
			fail_msg("%s", #ok);                                                                \
		}                                                                                           \
	} while (0)

/* The samples that all ranks have in a step of an epoch of n samples, from the contract in penstock.h alone. */
static uint32_t step_samples(const struct setting *s, uint32_t n, uint32_t step)
{
	uint32_t global = s->batch * s->world, full = n / global, rest = n % global;
	bool borrows =
	        s->end == PENSTOCK_END_SPLIT && s->batch > 1 && full > 0 && rest > 0 && rest < s->world;

	if (step < full)
		return global - (borrows && step == full - 1 ? s->world : 0);
	return step > full || s->end == PENSTOCK_END_DROP_LAST ? 0 : rest + (borrows ? s->world : 0);
}

/* The number that a rank has in the dealing: the ranks of node m are m, m + nodes, ... */
static uint32_t number_of(const struct setting *s, uint32_t rank)
{
	return rank % s->ranks_per_node * (s->world / s->ranks_per_node) + rank / s->ranks_per_node;
}

/* A rank's samples in a step in which all ranks have `all`. */
static uint32_t share(const struct setting *s, uint32_t rank, uint32_t all)
{
	uint32_t below = rank * s->batch;

	if (s->end == PENSTOCK_END_GATHER)
		return all <= below ? 0 : all - below < s->batch ? all - below : s->batch;
	return all / s->world + (number_of(s, rank) < all % s->world);
}

/* The rank whose samples a rank without any repeats. */
static uint32_t source(const struct setting *s, uint32_t rank, uint32_t all)
{
	if (s->end == PENSTOCK_END_GATHER)
		return rank % ((all + s->batch - 1) / s->batch);
	for (uint32_t other = 0;; other++)
		if (number_of(s, other) == number_of(s, rank) % all)
			return other;
}

static const struct row *step_row(const struct rank *r, uint32_t step)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->rows[i].step == step)
			return &r->rows[i];
	return NULL;
}

/* Whether the row is of a sample that comes for the first time. */
static void samples_are_distinct(const struct combination *c, uint32_t *ret_nvalid)
{
	static uint8_t seen[SHARDS * 100];

	memset(seen, 0, sizeof(seen));
	*ret_nvalid = 0;
	for (uint32_t r = 0; r < c->s.world; r++)
		for (uint32_t i = 0; i < ranks[r].n; i++) {
			const struct row *row = &ranks[r].rows[i];

			if (!row->valid)
				continue;
			CHECK(row->v != BLANK && !seen[row->v] && !is_bad(c, row->v / 100, row->v % 100));
			seen[row->v] = 1;
			++*ret_nvalid;
		}
}

/* One rank's batches: as many rows as the step has for it; the rows that are not valid are those of bad samples, of
 * padding and of repeats, and none is blank as long as a sample of its step is good. */
static void rank_check(const struct combination *c, uint32_t rank, uint32_t n)
{
	const struct setting *s = &c->s;
	const struct rank *r = &ranks[rank];
	bool pads = s->end == PENSTOCK_END_PAD || s->end == PENSTOCK_END_GATHER;
	uint32_t at = 0, nrepeats = 0, mine = 0, nbad = 0;

	for (uint32_t step = 0; step < r->nsteps; step++) {
		uint32_t all = step_samples(s, n, step), own = share(s, rank, all), other, have;
		uint32_t valid = 0, rows = 0;

		CHECK(all > 0);
		other = own ? rank : source(s, rank, all);
		have = share(s, other, all);
		for (; at < r->n && r->rows[at].step == step; at++, rows++) {
			valid += r->rows[at].valid;
			CHECK((r->rows[at].v == BLANK) == (r->bad[step] == have));
		}
		CHECK(rows == (pads ? s->batch : have));
		mine += own;
		nbad += own ? r->bad[step] : 0;
		if (own) {
			CHECK(valid == own - r->bad[step]);
			continue;
		}
		CHECK(pads || s->end == PENSTOCK_END_SPLIT);
		CHECK(valid == 0);
		nrepeats += have;
		for (uint32_t i = 0; i < rows && ranks[other].nsteps > step; i++)
			CHECK(r->rows[at - rows + i].v == step_row(&ranks[other], step)[i].v);
	}
	CHECK(r->samples == mine && r->repeats == nrepeats);
	if (!c->skip)
		return;
	if (mine > 0 && nbad == mine)
		CHECK(r->rc == -EBADMSG && strstr(r->text, "had no good sample") &&
		        strstr(r->text, "marked"));
	else
		CHECK(r->rc == 0);
}

static uint32_t steps_of(const struct setting *s, uint32_t rank, uint32_t n)
{
	uint32_t steps = 0, all;

	while ((all = step_samples(s, n, steps)) > 0 &&
	        (s->end != PENSTOCK_END_UNEVEN || all > number_of(s, rank)))
		steps++;
	return steps;
}

static void combination_check(const struct combination *c)
{
	const struct setting *s = &c->s;
	uint32_t n = 0, delivered = 0, good = 0, nvalid, step;

	for (uint32_t i = 0; i < s->nshards; i++)
		n += counts[i];
	n = s->take && s->take < n ? (uint32_t)s->take : n;
	for (uint32_t r = 0; r < s->world; r++)
		rank_run(c, r, &ranks[r]);
	if (n == 0) {
		for (uint32_t r = 0; r < s->world; r++)
			CHECK(ranks[r].n == 0);
		return;
	}
	for (uint32_t r = 0; r < s->world; r++) {
		if (!is_shared(s)) /* each rank has its own lanes */
			break;
		rank_check(c, r, n);
		if (c->skip)
			CHECK(ranks[r].nsteps == steps_of(s, r, n));
		else /* it ends with the first batch that has a bad sample */
			CHECK(ranks[r].rc == 0 ? ranks[r].nsteps == steps_of(s, r, n)
			                       : ranks[r].rc == -EBADMSG && c->bad_of > 0 &&
			                                 ranks[r].nsteps < steps_of(s, r, n));
	}
	samples_are_distinct(c, &nvalid);
	if (!c->skip && c->bad_of > 0)
		return;
	for (step = 0; step_samples(s, n, step) > 0; step++)
		delivered += step_samples(s, n, step);
	for (uint32_t r = 0; r < s->world; r++)
		good += (uint32_t)ranks[r].samples;
	CHECK(good == delivered);
	for (uint32_t r = 0; r < s->world; r++)
		for (uint32_t i = 0; i < ranks[r].nsteps && is_shared(s); i++)
			good -= share(s, r, step_samples(s, n, i)) > 0 ? ranks[r].bad[i] : 0;
	if (is_shared(s))
		CHECK(nvalid == good);
	if (c->bad_of == 0)
		CHECK(nvalid == delivered);
}

static void the_rows_of_all_ranks_are_as_promised(void **state)
{
	const char *given = getenv("PENSTOCK_TEST_SEED");
	uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)time(NULL);

	(void)state;
	print_message("# PENSTOCK_TEST_SEED=%u\n", seed);
	rnd_seed(seed);
	for (int i = 0; i < TRIES(3 * COMBINATIONS); i++) {
		struct combination c;

		combination_random(&c);
		combination_check(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_rows_of_all_ranks_are_as_promised),
	};

	return cmocka_run_group_tests_name("rows", tests, shards_make, shards_remove);
}
