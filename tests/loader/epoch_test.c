/* Whole epochs of all ranks against a model that is made in the simplest way from the texts of penstock.h and
 * order/: whole lists in memory, no blocks, no turns, no arithmetic of positions. Many small random settings.
 */
#include "config.h"

#include "penstock.h"

#include <errno.h>
#include <sys/stat.h>

#include "make_tar.h"
#include "order/permutation.h"
#include "order/rng.h"
#include "shard/index.h"
#include "shard/index_column.h"

#define SHARDS 12
#ifdef __SANITIZE_THREAD__ /* many times slower */
#define TRIES(n) ((n) / 6)
#else
#define TRIES(n) (n)
#endif
#define MOST 4000 /* samples of an epoch */

static char folder[64];
static uint32_t counts[SHARDS]; /* shard i has i * 5 % 13 samples; some have none */
static uint32_t lengths[SHARDS][16];

static uint64_t rnd_state = 1;

static uint32_t rnd(uint32_t below)
{
	rnd_state = rnd_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rnd_state >> 33) % below;
}

static uint32_t label_of(uint32_t v)
{
	return (v / 100 + v % 100 * v % 7) % 4;
}

static double weight_of(uint32_t v)
{
	return (double)(v * 13 % 9) / 4;
}

static int setup(void **state)
{
	(void)state;
	folder_enter(folder);
	for (int s = 0; s < SHARDS; s++) {
		struct ps_index_result result;
		struct ps_column_spec columns[2];
		struct ps_load_error err;
		struct tar t = {0};
		char name[64], text[64];

		counts[s] = (uint32_t)s * 5 % 13;
		for (uint32_t i = 0; i < counts[s]; i++) {
			int n = snprintf(text, sizeof(text), "%*d", (int)(1 + (s * 31 + i * 17) % 40),
			        (int)(s * 100 + (int)i));

			lengths[s][i] = (uint32_t)n;
			snprintf(name, sizeof(name), "%02u.txt", i);
			tar_add_text(&t, name, text);
			snprintf(name, sizeof(name), "%02u.cls", i);
			snprintf(text, sizeof(text), "%u", label_of((uint32_t)s * 100 + i));
			tar_add_text(&t, name, text);
			snprintf(name, sizeof(name), "%02u.w", i);
			snprintf(text, sizeof(text), "%.2f", weight_of((uint32_t)s * 100 + i));
			tar_add_text(&t, name, text);
		}
		tar_end(&t);
		snprintf(name, sizeof(name), "s-%d.tar", s);
		tar_save(&t, name);
		if (ps_column_spec_parse("label=cls", &columns[0], &err) < 0 ||
		        ps_column_spec_parse("w", &columns[1], &err) < 0 ||
		        ps_index_make(name, NULL, columns, 2, &result, &err) < 0)
			fail_msg("%s", err.text);
		ps_column_spec_fini(&columns[0]);
		ps_column_spec_fini(&columns[1]);
	}
	assert_int_equal(mkdir("bare", 0700), 0);
	for (int s = 0; s < SHARDS; s++) {
		char name[64], to[64];

		snprintf(name, sizeof(name), "../s-%d.tar", s);
		snprintf(to, sizeof(to), "bare/s-%d.tar", s);
		assert_int_equal(symlink(name, to), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(chdir("bare"), 0);
	for (int s = 0; s < SHARDS; s++) {
		char name[64];

		snprintf(name, sizeof(name), "s-%d.tar", s);
		unlink(name);
	}
	assert_int_equal(chdir(".."), 0);
	rmdir("bare");
	folder_leave(folder);
	return 0;
}

/* -- The model ---------------------------------------------------------------------------------------- */

struct setting {
	uint32_t nshards, order, lanes, window, batch, world, end, bucket;
	uint64_t seed, epoch, repeat, steps, skip, take;
	uint32_t nmix, mix_end;
	double mix[3];
	uint32_t sets[4]; /* first shard of each dataset, and behind the last */
	uint32_t select;
	bool own; /* the model's: only lanes that are rank mod world */
	uint32_t rank;
};

struct list {
	uint32_t v[MOST]; /* shard * 100 + place */
	uint32_t n;
};

static void add(struct list *l, uint32_t v)
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

enum {
	SELECT_ALL,
	SELECT_FILTER,
	SELECT_WEIGHTS,
	SELECT_WEIGHTS_AGAIN,
	SELECT_BALANCE,
	SELECT_BALANCE_FILTERED_AGAIN,
	SELECT_NKINDS,
};

static const char filter_text[] = "!(label == 1) && (w > 0.3 || label >= 3)";

static bool filter_model(uint32_t v)
{
	return label_of(v) != 1 && (weight_of(v) > 0.3 || label_of(v) >= 3);
}

/* How often a sample comes, as select.h says. */
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

/* A block as order.h says. */
static void block_model(const struct setting *s, uint32_t lane, uint32_t block, uint32_t *v, uint32_t n)
{
	struct ps_rng_key key = {.seed = s->seed, .epoch = s->epoch, .shard = lane, .sample = block};
	struct ps_rng_key common = {.seed = s->seed, .epoch = s->epoch, .sample = block, .draw = 1};
	uint32_t runs = s->bucket < n ? s->bucket : n, order[256], out[512], at = 0;

	if (s->bucket < 2) {
		shuffle(v, n, &key, PS_RNG_SAMPLE_ORDER);
		return;
	}
	for (uint32_t i = 1; i < n; i++) /* insertion sort: stable */
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

/* One set's canonical sequence: its lanes are numbered from `number`, `all` there are. */
static void set_model(const struct setting *s, uint32_t d, uint32_t number, uint32_t nlanes, uint32_t all,
        uint64_t passes, struct list *ret)
{
	static struct list lanes[64];
	uint32_t first = s->sets[d], n = s->sets[d + 1] - first, block = (s->window + all - 1) / all;

	for (uint32_t l = 0; l < nlanes; l++)
		lanes[l].n = 0;
	for (uint32_t l = 0; l < nlanes; l++) {
		for (uint64_t pass = 0; pass < passes; pass++) {
			struct ps_rng_key key = {
			        .seed = s->seed, .epoch = s->epoch, .sample = d, .draw = (uint32_t)pass};
			uint32_t shards[SHARDS];

			for (uint32_t i = 0; i < n; i++)
				shards[i] = first + i;
			for (uint32_t i = 0; i < n; i++)
				shards[i] -= first;
			if (s->order != PENSTOCK_ORDER_NONE)
				shuffle(shards, n, &key, PS_RNG_SHARD_ORDER);
			for (uint32_t i = l; i < n; i += nlanes)
				for (uint32_t j = 0; j < counts[first + shards[i]]; j++)
					add_times(s, &lanes[l], (first + shards[i]) * 100 + j, pass);
		}
		for (uint32_t b = 0; b * block < lanes[l].n && s->order == PENSTOCK_ORDER_WINDOW; b++)
			block_model(s, number + l, b, lanes[l].v + b * block,
			        lanes[l].n - b * block < block ? lanes[l].n - b * block : block);
	}
	ret->n = 0;
	for (uint32_t round = 0; round < MOST; round++)
		for (uint32_t l = 0; l < nlanes; l++)
			if (round < lanes[l].n && (!s->own || l % s->world == s->rank))
				add(ret, lanes[l].v[round]);
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

/* The canonical sequence of an epoch: as with world 1, whatever the end is. */
static void canonical_model(const struct setting *s, struct list *ret)
{
	static struct list sets[3];
	bool endless = s->steps > 0 && s->repeat == 0;
	uint64_t passes = endless ? 400 : s->repeat ? s->repeat : 1;
	uint32_t nsets = s->nmix > 1 ? s->nmix : 1, nlanes[3], all = 0, given[3] = {0}, longest = 0;
	double sum = 0, weights[3] = {1, 1, 1};

	if (s->order == PENSTOCK_ORDER_PERMUTATION) {
		permutation_model(s, passes, ret);
		return;
	}
	for (uint32_t d = 0; d < nsets && nsets > 1; d++)
		sum += s->mix[d];
	for (uint32_t d = 0; d < nsets && nsets > 1; d++)
		weights[d] = (double)(int64_t)(s->mix[d] / sum * (1 << 24) + 0.5);
	for (uint32_t d = 0; d < nsets; d++) {
		uint32_t n = s->sets[d + 1] - s->sets[d], lanes = s->order != PENSTOCK_ORDER_NONE ? s->lanes
		                                                  : s->own                        ? s->world
		                                                                                  : 1;
		double total = 0;

		for (uint32_t e = 0; e < nsets; e++)
			total += weights[e];
		nlanes[d] = (uint32_t)((lanes * weights[d] + total - 1) / total);
		if (nlanes[d] < 1)
			nlanes[d] = 1;
		if (nlanes[d] > n)
			nlanes[d] = n;
		all += nlanes[d];
	}
	for (uint32_t d = 0, number = 0; d < nsets; number += nlanes[d++])
		set_model(s, d, number, nlanes[d], all, passes, &sets[d]);
	for (uint32_t d = 1; d < nsets; d++)
		if (sets[d].n / weights[d] > sets[longest].n / weights[longest])
			longest = d;
	if (nsets > 1 && s->mix_end == PENSTOCK_MIX_LONGEST && !endless)
		for (uint32_t d = 0, number = 0; d < nsets; number += nlanes[d++])
			if (d != longest)
				set_model(s, d, number, nlanes[d], all, 400, &sets[d]);
	ret->n = 0;
	while (ret->n < MOST) {
		uint32_t due = 0;

		for (uint32_t d = 1; d < nsets; d++)
			if ((2 * given[d] + 1) * weights[due] < (2 * given[due] + 1) * weights[d])
				due = d;
		if (given[due] == sets[due].n)
			return;
		add(ret, sets[due].v[given[due]++]);
	}
}

#define BLANK UINT32_MAX

/* What a rank's epoch gives: a list of rows, and of the sizes of its batches. */
struct course {
	struct list rows;
	struct list sizes;
};

/* The samples are dealt to the ranks by position (order.h): always, but with UNEVEN and nothing that needs
 * lengths, where each rank keeps to its own lanes. */
static bool is_shared(const struct setting *s)
{
	return s->world == 1 || s->order == PENSTOCK_ORDER_PERMUTATION || (s->steps && !s->repeat) ||
	       s->end != PENSTOCK_END_UNEVEN || s->skip || s->take || s->nmix > 1 || s->nshards < s->world ||
	       (s->order != PENSTOCK_ORDER_NONE && s->lanes % s->world);
}

static void own_model(const struct setting *setting, uint32_t rank, struct course *c)
{
	struct setting s = *setting;

	s.own = true;
	s.rank = rank;
	c->sizes.n = 0;
	canonical_model(&s, &c->rows);
	if (s.steps && c->rows.n > s.steps * s.batch)
		c->rows.n = (uint32_t)s.steps * s.batch;
	for (uint32_t at = 0; at < c->rows.n; at += s.batch)
		add(&c->sizes, c->rows.n - at < s.batch ? c->rows.n - at : s.batch);
}

static void course_model(const struct setting *s, uint32_t rank, struct course *c)
{
	static struct list all;
	bool endless = s->steps > 0 && s->repeat == 0;
	uint32_t global = s->batch * s->world, begin = 0, n, full, rest;

	if (!is_shared(s)) {
		own_model(s, rank, c);
		return;
	}
	c->rows.n = c->sizes.n = 0;
	canonical_model(s, &all);
	all.n = all.n > s->skip ? all.n - (uint32_t)s->skip : 0;
	memmove(all.v, all.v + s->skip, all.n * sizeof(*all.v));
	if (s->take && all.n > s->take)
		all.n = (uint32_t)s->take;
	n = all.n;
	full = n / global;
	rest = n % global;
	if (endless && !(s->take && n == s->take))
		rest = 0;
	for (uint32_t step = 0; step < full + (rest > 0); step++) {
		uint32_t len = step < full ? global : rest, size = 0;

		if (s->steps && step == s->steps)
			break;
		if (step == full && s->end == PENSTOCK_END_DROP_LAST)
			break;
		if (s->end == PENSTOCK_END_SPLIT && s->batch > 1 && full > 0 && rest > 0 && rest < s->world) {
			if (step == full - 1)
				len -= s->world;
			if (step == full)
				len += s->world;
		}
		for (uint32_t p = begin; p < begin + len; p++)
			if (p % s->world == rank) {
				add(&c->rows, all.v[p]);
				size++;
			}
		begin += len;
		if (s->end == PENSTOCK_END_PAD) {
			uint32_t have = size, first = c->rows.n - size;

			for (; size < s->batch; size++)
				add(&c->rows, have ? 100000 + c->rows.v[first + size % have] : BLANK);
		}
		if (s->end == PENSTOCK_END_SPLIT && size == 0) {
			add(&c->rows, BLANK);
			size++;
		}
		if (size > 0)
			add(&c->sizes, size);
	}
}

/* -- The loader --------------------------------------------------------------------------------------- */

static void options_fill(
        const struct setting *s, uint32_t rank, struct penstock_options *o, struct penstock_field *field)
{
	penstock_options_init(o, sizeof(*o));
	penstock_field_init(field, sizeof(*field), "txt", PENSTOCK_BYTES);
	o->fields = field;
	o->nfields = 1;
	o->batch = s->batch;
	o->order = s->order;
	o->shuffle_window = s->window;
	o->lanes = s->lanes;
	o->rank = rank;
	o->world = s->world;
	o->end = s->end;
	o->seed = s->seed;
	o->epoch = s->epoch;
	o->epochs = 2;
	o->repeat = s->repeat;
	o->steps = s->steps;
	o->skip = s->skip;
	o->take = s->take;
	o->bucket = s->bucket;
	o->nmix = s->nmix;
	o->mix = s->mix;
	o->mix_end = s->mix_end;
	if (s->select == SELECT_FILTER || s->select == SELECT_BALANCE_FILTERED_AGAIN)
		o->filter = filter_text;
	if (s->select == SELECT_WEIGHTS || s->select == SELECT_WEIGHTS_AGAIN)
		o->weights = "w";
	if (s->select >= SELECT_BALANCE)
		o->balance = "label";
	o->replacement = s->select == SELECT_WEIGHTS_AGAIN || s->select == SELECT_BALANCE_FILTERED_AGAIN;
	o->threads = 1 + rnd(3);
	o->depth = 2 + rnd(3);
}

static struct penstock_loader *open_setting(
        const struct setting *s, uint32_t rank, bool bare, const void *state, size_t nbytes)
{
	static char names[3][64 * SHARDS];
	const char *strings[3] = {names[0], names[1], names[2]};
	struct penstock_options o;
	struct penstock_field field;
	struct penstock_loader *l;
	struct penstock_error e;
	uint32_t nsets = s->nmix > 1 ? s->nmix : 1;

	for (uint32_t d = 0; d < nsets; d++) {
		names[d][0] = 0;
		for (uint32_t i = s->sets[d]; i < s->sets[d + 1]; i++)
			snprintf(names[d] + strlen(names[d]), 64, "%s%ss-%u.tar", i > s->sets[d] ? "::" : "",
			        bare ? "bare/" : "", i);
	}
	options_fill(s, rank, &o, &field);
	o.state = state;
	o.state_nbytes = nbytes;
	if (penstock_loader_open(&o, strings, nsets, &l, &e) < 0) {
		print_message("%s\n", e.text);
		return NULL;
	}
	return l;
}

static const void *tensor(struct penstock_batch *b, const char *name)
{
	struct penstock_tensor t;

	assert_int_equal(penstock_batch_field(b, name, &t, NULL), 0);
	return t.data;
}

/* The next batch, added to a course; false at the end of the epoch, or after a state that was of no use. */
static bool batch_take_or_stale(struct penstock_loader *l, struct course *c, bool *ret_stale)
{
	struct penstock_batch_info info;
	struct penstock_batch *b;
	struct penstock_error e;
	int r = penstock_loader_next(l, &b, &e);

	if (r == -ESTALE && ret_stale) {
		*ret_stale = true;
		return false;
	}
	if (r < 0)
		fail_msg("%s", e.text);
	if (r == 0)
		return false;
	penstock_batch_info(b, &info);
	const int64_t *shards = tensor(b, "__shard__"), *samples = tensor(b, "__sample__");
	const uint8_t *valid = tensor(b, "__valid__");

	for (uint32_t i = 0; i < info.rows; i++) {
		uint32_t v = shards[i] < 0 ? BLANK : (uint32_t)(shards[i] * 100 + samples[i]);

		add(&c->rows, v == BLANK ? v : v + (valid[i] ? 0 : 100000));
		if (v == BLANK)
			assert_int_equal(valid[i], 0);
	}
	add(&c->sizes, info.rows);
	penstock_batch_release(b);
	return true;
}

static bool batch_take(struct penstock_loader *l, struct course *c)
{
	return batch_take_or_stale(l, c, NULL);
}

static void setting_print(const struct setting *s)
{
	print_message(
	        "shards %u order %u lanes %u window %u batch %u world %u end %u bucket %u seed %ju epoch %ju "
	        "repeat %ju steps %ju skip %ju take %ju nmix %u mix_end %u select %u\n",
	        s->nshards, s->order, s->lanes, s->window, s->batch, s->world, s->end, s->bucket,
	        (uintmax_t)s->seed, (uintmax_t)s->epoch, (uintmax_t)s->repeat, (uintmax_t)s->steps,
	        (uintmax_t)s->skip, (uintmax_t)s->take, s->nmix, s->mix_end, s->select);
	for (uint32_t d = 0; d < s->nmix; d++)
		print_message("shards %u to %u weigh %g\n", s->sets[d], s->sets[d + 1] - 1, s->mix[d]);
}

static void same(const struct setting *s, uint32_t rank, const struct course *have, const struct course *want)
{
	if (have->rows.n == want->rows.n && have->sizes.n == want->sizes.n &&
	        memcmp(have->rows.v, want->rows.v, have->rows.n * sizeof(uint32_t)) == 0 &&
	        memcmp(have->sizes.v, want->sizes.v, have->sizes.n * sizeof(uint32_t)) == 0)
		return;
	setting_print(s);
	for (uint32_t i = 0; i < have->rows.n || i < want->rows.n; i++)
		if (i >= have->rows.n || i >= want->rows.n || have->rows.v[i] != want->rows.v[i]) {
			print_message("row %u: have %d of %u, want %d of %u\n", i,
			        i < have->rows.n ? (int)have->rows.v[i] : -2, have->rows.n,
			        i < want->rows.n ? (int)want->rows.v[i] : -2, want->rows.n);
			break;
		}
	fail_msg("rank %u: %u batches, want %u", rank, have->sizes.n, want->sizes.n);
}

static void setting_random(struct setting *s)
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
	if (s->nshards >= 3 && s->order != PENSTOCK_ORDER_PERMUTATION && rnd(3) == 0) {
		s->nmix = 2 + rnd(2);
		s->sets[1] = 1 + rnd(s->nshards - 2);
		s->sets[2] = s->nmix == 2 ? s->nshards : s->sets[1] + 1 + rnd(s->nshards - s->sets[1] - 1);
		s->sets[3] = s->nshards;
		s->mix_end = rnd(2);
		for (uint32_t d = 0; d < s->nmix; d++)
			s->mix[d] = 1 + rnd(4);
	}
}

/* The first shard is empty: a dataset of it alone cannot be read again and again. */
static bool is_barren(const struct setting *s)
{
	return s->sets[1] == 1 || s->select != SELECT_ALL;
}

static bool setting_wanted(const struct setting *s)
{
	bool endless = s->steps && !s->repeat;
	bool longest = s->nmix > 1 && s->mix_end == PENSTOCK_MIX_LONGEST;

	/* NONE does not deal shards anew: a lane may have the empty one alone. */
	return !(
	        (endless || longest) && (is_barren(s) || (s->order == PENSTOCK_ORDER_NONE && !is_shared(s))));
}

static void epochs_are_those_of_the_model(void **state)
{
	static struct course want, have;
	int tried = 0;

	(void)state;
	for (int i = 0; i < TRIES(1500); i++) {
		struct setting s;

		setting_random(&s);
		if (!setting_wanted(&s))
			continue;
		tried++;
		for (uint32_t rank = 0; rank < s.world; rank++) {
			struct penstock_loader *l = open_setting(&s, rank, false, NULL, 0);
			struct setting at = s;

			if (!l)
				setting_print(&s);
			assert_non_null(l);
			for (int epoch = 0; epoch < 2; epoch++, at.epoch++) {
				uint64_t samples, batches, rows = 0;
				struct penstock_error e;

				course_model(&at, rank, &want);
				have.rows.n = have.sizes.n = 0;
				while (batch_take(l, &have))
					;
				same(&at, rank, &have, &want);
				if (penstock_loader_length(l, at.epoch, &samples, &batches, &e) < 0)
					fail_msg("%s", e.text);
				for (uint32_t k = 0; k < have.rows.n; k++)
					rows += have.rows.v[k] < 100000;
				if (batches != have.sizes.n || samples != rows) {
					setting_print(&at);
					fail_msg("length %ju, %ju of %ju, %u", (uintmax_t)samples,
					        (uintmax_t)batches, (uintmax_t)rows, have.sizes.n);
				}
			}
			penstock_loader_close(l);
		}
	}
	assert_true(tried > TRIES(300));
}

/* -- Resuming ----------------------------------------------------------------------------------------- */

static uint8_t bytes[8192];

/* Runs rank `rank` for so many batches of the first epoch, and saves. Returns the state's bytes. */
static int run_and_save(const struct setting *s, uint32_t rank, bool bare, uint32_t batches)
{
	static struct course have;
	struct penstock_loader *l = open_setting(s, rank, bare, NULL, 0);
	struct penstock_error e;
	int n;

	assert_non_null(l);
	have.rows.n = have.sizes.n = 0;
	for (uint32_t i = 0; i < batches; i++)
		assert_true(batch_take(l, &have));
	n = penstock_loader_state_save(l, bytes, sizeof(bytes), &e);
	if (n < 0)
		fail_msg("%s", e.text);
	penstock_loader_close(l);
	return n;
}

/* The course without its first batches. */
static void course_cut(struct course *c, uint32_t batches)
{
	uint32_t rows = 0;

	for (uint32_t i = 0; i < batches; i++)
		rows += c->sizes.v[i];
	c->rows.n -= rows;
	c->sizes.n -= batches;
	memmove(c->rows.v, c->rows.v + rows, c->rows.n * sizeof(uint32_t));
	memmove(c->sizes.v, c->sizes.v + batches, c->sizes.n * sizeof(uint32_t));
}

/* All ranks of a world go on from the state in `bytes`. False: it was refused. */
static bool goes_on(const struct setting *s, bool bare, int n, uint32_t batches)
{
	static struct course want, have;
	bool stale = false;

	for (uint32_t rank = 0; rank < s->world; rank++) {
		struct penstock_loader *l = open_setting(s, rank, bare, NULL, 0);
		struct penstock_error e;
		int r;

		assert_non_null(l);
		r = penstock_loader_state_load(l, bytes, (size_t)n, &e);
		if (r < 0) {
			assert_int_equal(r, -ESTALE);
			penstock_loader_close(l);
			return false;
		}
		course_model(s, rank, &want);
		if (want.sizes.n < batches) { /* its epoch ended before */
			penstock_loader_close(l);
			continue;
		}
		course_cut(&want, batches);
		have.rows.n = have.sizes.n = 0;
		while (batch_take_or_stale(l, &have, &stale))
			;
		if (!stale)
			same(s, rank, &have, &want);
		penstock_loader_close(l);
		if (stale)
			return false;
	}
	return true;
}

/* A state of any rank of one world, with counts or endless: any other world goes on with the next sample. */
static void any_world_goes_on_where_another_was(void **state)
{
	static const uint32_t worlds[] = {1, 2, 3, 4, 6};
	uint32_t tried = 0, refused = 0;

	(void)state;
	for (int i = 0; i < TRIES(2500) && tried < TRIES(250); i++) {
		static struct course course;
		struct setting a, b;
		uint32_t rank, batches;
		int n;

		setting_random(&a);
		a.world = worlds[rnd(5)];
		a.batch = 12 / a.world;
		b = a;
		b.world = worlds[rnd(5)];
		b.batch = 12 / b.world;
		if (!setting_wanted(&a) || !setting_wanted(&b) || !is_shared(&a) || !is_shared(&b) ||
		        ((a.world == 1) != (b.world == 1) && a.end == PENSTOCK_END_UNEVEN && !a.steps))
			continue;
		rank = rnd(a.world);
		course_model(&a, rank, &course);
		if (course.sizes.n < 2)
			continue;
		batches = 1 + rnd(course.sizes.n - 1);
		n = run_and_save(&a, rank, false, batches);
		if (!goes_on(&b, false, n, batches)) {
			/* only at the end of an epoch, which another world cuts differently */
			if (a.world == b.world || batches + 2 < course.sizes.n) {
				setting_print(&a);
				print_message(
				        "from rank %u, batch %u of %u\n", rank, batches, course.sizes.n);
				setting_print(&b);
			}
			assert_true(a.world != b.world && batches + 2 >= course.sizes.n);
			refused++;
		}
		tried++;
	}
	assert_int_equal(tried, TRIES(250));
	assert_true(refused < TRIES(50));
}

/* Lanes of one length, no indexes: ranks keep to their lanes, which any world deals alike until they end. */
static void ranks_with_lanes_of_their_own_go_on_in_another_world(void **state)
{
	static const uint32_t worlds[] = {1, 2, 4};
	uint32_t refused = 0, went = 0;

	(void)state;
	for (int i = 0; i < TRIES(120); i++) {
		struct setting a = {.nshards = SHARDS,
		        .order = 1 + rnd(2),
		        .lanes = 4,
		        .window = 1 + rnd(30),
		        .seed = rnd(50),
		        .sets = {0, SHARDS}};
		struct setting b;
		static struct course course;
		uint32_t batches = 1 + rnd(3), rank;
		int n;

		a.world = worlds[rnd(3)];
		a.batch = 8 / a.world;
		b = a;
		b.world = worlds[rnd(3)];
		b.batch = 8 / b.world;
		rank = rnd(a.world);
		course_model(&a, rank, &course);
		batches = batches < course.sizes.n ? batches : course.sizes.n;
		n = run_and_save(&a, rank, true, batches);
		if (goes_on(&b, true, n, batches))
			went++;
		else
			refused++;
	}
	print_message("%u went on, %u were refused\n", went, refused);
	assert_true(went > TRIES(40));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(epochs_are_those_of_the_model),
	        cmocka_unit_test(any_world_goes_on_where_another_was),
	        cmocka_unit_test(ranks_with_lanes_of_their_own_go_on_in_another_world),
	};

	return cmocka_run_group_tests_name("epoch", tests, setup, teardown);
}
