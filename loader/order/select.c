#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "order/filter.h"
#include "random/random.h"

typedef unsigned __int128 u128;

#define MARK 256 /* samples between two kept sums */
#define MOST_BITS 62

/* A class and its number of samples; sorted by value. */
struct class
{
	enum ps_column_type type;
	int64_t integer;
	double number;
	char *text;
	size_t text_len;
	uint64_t samples;
};

struct ps_select {
	struct ps_select_options o;
	struct ps_filter *filter;
	char *weights, *balance;
	struct class *classes;
	size_t nclasses, cap;
	uint64_t samples, least; /* number in all classes; in the smallest class */
	/* For an exact number of draws: */
	bool exact;
	int scale; /* weight w becomes the integer w * 2^scale */
	uint64_t draws;
	u128 sum;          /* sum of all weights */
	uint64_t *first;   /* number of each shard's first sample, and the end of the last shard */
	uint64_t *mark_of; /* index of each shard's first mark; the mark after the last is `sum` */
	u128 *marks;       /* sums of the weights before each MARK-th sample of a shard */
};

struct ps_select_view {
	struct ps_select *select;
	struct ps_shard_index *index;
	uint32_t shard;
	uint64_t epoch, pass;
	int weights, balance;
	int columns[PS_FILTER_MAX_COLUMNS]; /* columns of the filter */
	u128 offset;                        /* V of order.h */
	uint64_t at;                        /* a sample, and ... */
	u128 before;                        /* ... the sum of the weights before it */
};

/* Views -------------------------------------------------------------------------------------------------- */

static int column_find(struct ps_shard_index *index, const char *option, const char *name, uint32_t shard,
        int *ret_column, struct ps_error *err)
{
	*ret_column = ps_shard_index_column(index, name);
	if (*ret_column >= 0)
		return 0;
	return ps_error_set(err, EINVAL,
	        "%s: the index of shard %u has no column \"%.100s\"; index the shards with it "
	        "(penstock-loader index "
	        "--column)",
	        option, shard, name);
}

/* A number below the sum of the weights, from 64 random bits. */
static u128 below_sum(const struct ps_select *s, uint64_t bits)
{
	return (s->sum >> 64) * bits + (((s->sum & UINT64_MAX) * bits) >> 64);
}

int ps_select_open(struct ps_select *s, uint32_t shard, uint64_t epoch, uint64_t pass,
        struct ps_select_view **ret_view, struct ps_error *err)
{
	struct ps_select_view *v = calloc(1, sizeof(*v));
	const char *name;
	int rc;

	if (!v)
		return ps_no_memory(err);
	*v = (struct ps_select_view){
	        .select = s, .shard = shard, .epoch = epoch, .pass = pass, .weights = -1, .balance = -1};
	rc = ps_shard_indexes_get(s->o.indexes, shard, &v->index, err);
	if (rc < 0 && rc != -ENOMEM)
		rc = ps_error_set(err, ENODATA,
		        "filter, weights and balance need an index of every shard: %s", err ? err->text : "");
	if (rc == 0 && s->weights)
		rc = column_find(v->index, "weights", s->weights, shard, &v->weights, err);
	if (rc == 0 && s->balance)
		rc = column_find(v->index, "balance", s->balance, shard, &v->balance, err);
	for (uint32_t i = 0; rc == 0 && s->filter && (name = ps_filter_column(s->filter, i)); i++)
		rc = column_find(v->index, "filter", name, shard, &v->columns[i], err);
	if (rc < 0) {
		ps_select_close(v);
		return rc;
	}
	if (s->marks) {
		struct ps_rng_key key = {.seed = s->o.seed, .epoch = epoch, .draw = (uint32_t)pass};

		v->offset = below_sum(s, ps_rng_u64(&key, PS_RNG_SAMPLE_DRAW, 1));
		v->before = s->marks[s->mark_of[shard]];
	}
	*ret_view = v;
	return 0;
}

void ps_select_close(struct ps_select_view *v)
{
	if (!v)
		return;
	if (v->index)
		ps_shard_indexes_put(v->select->o.indexes, v->index);
	free(v);
}

uint64_t ps_select_samples(const struct ps_select_view *v)
{
	return ps_shard_index_samples(v->index);
}

/* 1: the sample passes the filter; 0: it does not. */
static int passes(struct ps_select_view *v, uint64_t sample, struct ps_error *err)
{
	const struct ps_filter *f = v->select->filter;
	struct ps_column_value values[PS_FILTER_MAX_COLUMNS];

	if (!f)
		return 1;
	for (uint32_t i = 0; ps_filter_column(f, i); i++) {
		int rc = ps_shard_index_value(v->index, v->columns[i], sample, &values[i], err);

		if (rc < 0)
			return rc;
	}
	return ps_filter_test(f, values, err);
}

static int class_compare(const struct class *a, const struct class *b)
{
	size_t n = PS_MIN(a->text_len, b->text_len);
	int c;

	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	if (a->type == PS_COLUMN_INT)
		return (a->integer > b->integer) - (a->integer < b->integer);
	if (a->type == PS_COLUMN_FLOAT)
		return (a->number > b->number) - (a->number < b->number);
	c = n > 0 ? memcmp(a->text, b->text, n) : 0;
	return c ? c : (a->text_len > b->text_len) - (a->text_len < b->text_len);
}

static struct class class_of(const struct ps_column_value *v)
{
	return (struct class){.type = v->type,
	        .integer = v->type == PS_COLUMN_INT ? v->integer : 0,
	        .number = v->type == PS_COLUMN_FLOAT ? v->number : 0,
	        .text = v->type == PS_COLUMN_TEXT ? (char *)(uintptr_t)v->text : NULL, /* never written to */
	        .text_len = v->type == PS_COLUMN_TEXT ? v->text_len : 0};
}

/* The place of a class, or where it would be inserted. */
static size_t class_find(const struct ps_select *s, const struct class *c, bool *ret_found)
{
	size_t low = 0, high = s->nclasses;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (class_compare(&s->classes[mid], c) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret_found = low < s->nclasses && class_compare(&s->classes[low], c) == 0;
	return low;
}

/* The balancing weight of a value's class; 0: the value has none. */
static double balance_of(const struct ps_select *s, const struct ps_column_value *v)
{
	struct class c = class_of(v);
	bool found = false;
	size_t at = v->missing ? 0 : class_find(s, &c, &found);

	if (!found)
		return 0;
	if (s->o.replacement)
		return (double)s->samples / ((double)s->nclasses * (double)s->classes[at].samples);
	return (double)s->least / (double)s->classes[at].samples;
}

static int weight_of(struct ps_select_view *v, uint64_t sample, double *ret_weight, struct ps_error *err)
{
	struct ps_column_value value;
	int rc;

	*ret_weight = 1;
	if (v->weights >= 0) {
		rc = ps_shard_index_value(v->index, v->weights, sample, &value, err);
		if (rc < 0)
			return rc;
		if (!value.missing && (value.type == PS_COLUMN_TEXT || !(value.number >= 0)))
			return ps_error_set(err, EINVAL,
			        "weights: the weight of sample %ju of shard %u is not a number of 0 or more",
			        (uintmax_t)sample, v->shard);
		*ret_weight = value.missing ? 0 : value.number;
	}
	if (v->select->o.list)
		*ret_weight = v->select->o.list[v->select->first[v->shard] + sample];
	if (v->balance >= 0) {
		rc = ps_shard_index_value(v->index, v->balance, sample, &value, err);
		if (rc < 0)
			return rc;
		*ret_weight *= balance_of(v->select, &value);
	}
	return 0;
}

/* An exact number of draws ------------------------------------------------------------------------------- */

/* The weight of a sample; 0 also if it does not pass the filter. */
static int weight_exact(struct ps_select_view *v, uint64_t sample, uint64_t *ret_weight, struct ps_error *err)
{
	double w;
	int rc = passes(v, sample, err);

	*ret_weight = 0;
	if (rc <= 0)
		return rc;
	rc = weight_of(v, sample, &w, err);
	if (rc == 0)
		*ret_weight = (uint64_t)(ldexp(w, v->select->scale) + 0.5);
	return rc;
}

/* The number of draws before a point of the sums: T(sum). */
static uint64_t draws_before(const struct ps_select_view *v, u128 sum)
{
	return (uint64_t)((v->select->draws * sum + v->offset) / v->select->sum);
}

static u128 shard_end(const struct ps_select_view *v)
{
	return v->select->marks[v->select->mark_of[v->shard + 1]];
}

/* Moves to a mark of the shard. */
static void mark_go(struct ps_select_view *v, uint64_t mark)
{
	v->at = mark * MARK;
	v->before = v->select->marks[v->select->mark_of[v->shard] + mark];
}

/* Moves to a sample; v->before becomes the sum of the weights before it. */
static int sample_go(struct ps_select_view *v, uint64_t sample, struct ps_error *err)
{
	uint64_t w;
	int rc = 0;

	if (sample < v->at || sample / MARK != v->at / MARK)
		mark_go(v, sample / MARK);
	while (v->at < sample && (rc = weight_exact(v, v->at, &w, err)) >= 0) {
		v->before += w;
		v->at++;
	}
	return rc < 0 ? rc : 0;
}

/* Moves to the sample of this shard that contains `point`: a number of draws (`by_draws`), or a point of
 * the sums. */
static int point_go(struct ps_select_view *v, bool by_draws, u128 point, struct ps_error *err)
{
	const struct ps_select *s = v->select;
	uint64_t low = s->mark_of[v->shard], high = s->mark_of[v->shard + 1] - 1, first = low, w;
	int rc;

	while (low < high) { /* the last mark at or before `point` */
		uint64_t mid = low + (high - low + 1) / 2;

		if ((by_draws ? draws_before(v, s->marks[mid]) : s->marks[mid]) <= point)
			low = mid;
		else
			high = mid - 1;
	}
	mark_go(v, low - first);
	while ((rc = weight_exact(v, v->at, &w, err)) >= 0 && v->at + 1 < ps_select_samples(v) &&
	        (by_draws ? draws_before(v, v->before + w) : v->before + w) <= point) {
		v->before += w;
		v->at++;
	}
	return rc < 0 ? rc : 0;
}

static int times_exact(struct ps_select_view *v, uint64_t sample, struct ps_error *err)
{
	uint64_t w, from;
	int rc = sample_go(v, sample, err);

	if (rc == 0)
		rc = weight_exact(v, sample, &w, err);
	if (rc < 0)
		return rc;
	from = draws_before(v, v->before);
	v->before += w;
	v->at++;
	return (int)(draws_before(v, v->before) - from);
}

static int count_exact(
        struct ps_select_view *v, uint64_t sample, uint32_t copy, uint64_t *ret_count, struct ps_error *err)
{
	int r = 0, times = 0;

	*ret_count = 0;
	if (sample >= ps_select_samples(v))
		return 0;
	if (copy > 0)
		times = times_exact(v, sample, err);
	if (times >= 0)
		r = sample_go(v, sample, err);
	if (times < 0 || r < 0)
		return PS_MIN(times, r);
	*ret_count =
	        draws_before(v, shard_end(v)) - draws_before(v, v->before) - PS_MIN(copy, (uint32_t)times);
	return 0;
}

static int skip_exact(
        struct ps_select_view *v, uint64_t *sample, uint32_t *copy, uint64_t n, struct ps_error *err)
{
	uint64_t to;
	int rc;

	if (n == 0 || *sample >= ps_select_samples(v))
		return 0;
	rc = sample_go(v, *sample, err);
	if (rc < 0)
		return rc;
	to = draws_before(v, v->before) + *copy + n;
	*copy = 0;
	if (to >= draws_before(v, shard_end(v))) {
		*sample = ps_select_samples(v);
		return 0;
	}
	rc = point_go(v, true, to, err);
	if (rc < 0)
		return rc;
	*sample = v->at;
	*copy = (uint32_t)(to - draws_before(v, v->before));
	return 0;
}

bool ps_select_is_exact(const struct ps_select *s)
{
	return s->exact;
}

int ps_select_draw(struct ps_select *s, uint64_t epoch, uint64_t n, uint32_t *ret_shard, uint64_t *ret_sample,
        struct ps_error *err)
{
	struct ps_rng_key key = {.seed = s->o.seed, .epoch = epoch, .sample = n};
	u128 point = below_sum(s, ps_rng_u64(&key, PS_RNG_SAMPLE_DRAW, 2));
	uint32_t low = 0, high = s->o.nshards - 1;
	struct ps_select_view *v;
	int rc;

	while (low < high) { /* the last shard that begins at or before `point` */
		uint32_t mid = low + (high - low + 1) / 2;

		if (s->marks[s->mark_of[mid]] <= point)
			low = mid;
		else
			high = mid - 1;
	}
	rc = ps_select_open(s, low, epoch, 0, &v, err);
	if (rc < 0)
		return rc;
	rc = point_go(v, false, point, err);
	*ret_shard = low;
	*ret_sample = v->at;
	ps_select_close(v);
	return rc;
}

/* Times -------------------------------------------------------------------------------------------------- */

int ps_select_times(struct ps_select_view *v, uint64_t sample, struct ps_error *err)
{
	const struct ps_select *s = v->select;
	struct ps_rng_key key = {.seed = s->o.seed,
	        .epoch = v->epoch,
	        .shard = v->shard,
	        .sample = sample,
	        .draw = (uint32_t)v->pass};
	double w, u;
	int rc;

	if (s->exact)
		return times_exact(v, sample, err);
	rc = passes(v, sample, err);
	if (rc <= 0 || (v->weights < 0 && v->balance < 0))
		return rc;
	rc = weight_of(v, sample, &w, err);
	if (rc < 0)
		return rc;
	u = ps_rng_unit(&key, PS_RNG_SAMPLE_DRAW, 0);
	if (!s->o.replacement)
		return u < w;
	w = floor(w + u);
	return w < PS_SELECT_MAX_TIMES ? (int)w : PS_SELECT_MAX_TIMES;
}

int ps_select_count(
        struct ps_select_view *v, uint64_t sample, uint32_t copy, uint64_t *ret_count, struct ps_error *err)
{
	uint64_t sum = 0, n = ps_select_samples(v);

	if (v->select->exact)
		return count_exact(v, sample, copy, ret_count, err);
	for (; sample < n; sample++) {
		int rc = ps_select_times(v, sample, err);

		if (rc < 0)
			return rc;
		sum += (uint32_t)rc > copy ? (uint32_t)rc - copy : 0;
		copy = 0;
	}
	*ret_count = sum;
	return 0;
}

int ps_select_skip(
        struct ps_select_view *v, uint64_t *sample, uint32_t *copy, uint64_t n, struct ps_error *err)
{
	uint64_t all = ps_select_samples(v);

	if (v->select->exact)
		return skip_exact(v, sample, copy, n, err);
	while (n > 0 && *sample < all) {
		int rc = ps_select_times(v, *sample, err);
		uint64_t left;

		if (rc < 0)
			return rc;
		left = (uint32_t)rc > *copy ? (uint32_t)rc - *copy : 0;
		if (left > n) {
			*copy += (uint32_t)n;
			return 0;
		}
		n -= left;
		++*sample;
		*copy = 0;
	}
	return 0;
}

/* Making ------------------------------------------------------------------------------------------------- */

static int class_add(struct ps_select *s, const struct ps_column_value *v, struct ps_error *err)
{
	struct class c = class_of(v);
	bool found;
	size_t at = class_find(s, &c, &found);

	s->samples++;
	if (found) {
		s->classes[at].samples++;
		return 0;
	}
	if (s->nclasses == PS_SELECT_MAX_CLASSES)
		return ps_error_set(err, EINVAL, "balance: column \"%s\" has more than %d classes",
		        s->balance, PS_SELECT_MAX_CLASSES);
	if (s->nclasses == s->cap) {
		size_t cap = PS_MAX(s->cap * 2, 64u);
		struct class *classes = realloc(s->classes, cap * sizeof(*classes));

		if (!classes)
			return ps_no_memory(err);
		s->classes = classes;
		s->cap = cap;
	}
	if (c.type == PS_COLUMN_TEXT && !(c.text = strndup(v->text, v->text_len)))
		return ps_no_memory(err);
	c.samples = 1;
	memmove(s->classes + at + 1, s->classes + at, (s->nclasses - at) * sizeof(c));
	s->classes[at] = c;
	s->nclasses++;
	return 0;
}

/* Counts the samples of each class that pass the filter. */
static int classes_make(struct ps_select *s, struct ps_error *err)
{
	int rc = 0;

	for (uint32_t shard = 0; shard < s->o.nshards && rc >= 0; shard++) {
		struct ps_select_view *v;

		rc = ps_select_open(s, shard, 0, 0, &v, err);
		if (rc < 0)
			return rc;
		for (uint64_t i = 0; i < ps_select_samples(v) && rc >= 0; i++) {
			struct ps_column_value value;

			rc = passes(v, i, err);
			if (rc <= 0)
				continue;
			rc = ps_shard_index_value(v->index, v->balance, i, &value, err);
			if (rc == 0 && !value.missing)
				rc = class_add(s, &value, err);
		}
		ps_select_close(v);
	}
	s->least = s->samples;
	for (size_t i = 0; i < s->nclasses; i++)
		s->least = PS_MIN(s->least, s->classes[i].samples);
	return PS_MIN(rc, 0);
}

static int bits_of(uint64_t n)
{
	return n > 0 ? 64 - __builtin_clzll(n) : 0;
}

/* Finds the largest weight of all samples, the number of samples that pass the filter, and where each
 * shard's samples and marks begin. */
static int weights_look(struct ps_select *s, double *ret_most, uint64_t *ret_passed, struct ps_error *err)
{
	uint64_t samples = 0, marks = 0;
	int rc = 0;

	for (uint32_t i = 0; i < s->o.nshards && rc == 0; i++) {
		struct ps_select_view *v;
		uint64_t n;

		s->first[i] = samples;
		s->mark_of[i] = marks;
		rc = ps_select_open(s, i, 0, 0, &v, err);
		if (rc < 0)
			return rc;
		n = ps_select_samples(v);
		if (s->o.list && s->o.nlist < samples + n)
			n = 0; /* refused below */
		for (uint64_t k = 0; k < n && rc >= 0; k++) {
			double w = 0;

			rc = passes(v, k, err);
			if (rc <= 0)
				continue;
			rc = weight_of(v, k, &w, err);
			if (rc == 0 && !(w >= 0 && w <= 1e300))
				rc = ps_error_set(err, EINVAL,
				        "weights: sample %ju has the weight %g; weights must be numbers, 0 "
				        "or more",
				        (uintmax_t)(samples + k), w);
			*ret_most = PS_MAX(*ret_most, w);
			++*ret_passed;
		}
		rc = PS_MIN(rc, 0);
		samples += ps_select_samples(v);
		marks += ps_select_samples(v) / MARK + 1;
		ps_select_close(v);
	}
	s->first[s->o.nshards] = samples;
	s->mark_of[s->o.nshards] = marks;
	if (rc == 0 && s->o.list && s->o.nlist != samples)
		return ps_error_set(err, EINVAL, "weights: %ju are given, but the shards hold %ju samples",
		        (uintmax_t)s->o.nlist, (uintmax_t)samples);
	if (rc == 0 && *ret_passed == 0)
		return ps_error_set(err, EINVAL, "weights: no sample passes the filter");
	if (rc == 0 && !(*ret_most > 0))
		return ps_error_set(err, EINVAL,
		        "weights: all %ju samples that pass have the weight 0; at least one must be above 0",
		        (uintmax_t)*ret_passed);
	return rc;
}

static int weights_sum(struct ps_select *s, u128 *marks, struct ps_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < s->o.nshards && rc == 0; i++) {
		struct ps_select_view *v;

		rc = ps_select_open(s, i, 0, 0, &v, err);
		if (rc < 0)
			return rc;
		for (uint64_t k = 0; k < ps_select_samples(v) && rc == 0; k++) {
			uint64_t w = 0;

			if (k % MARK == 0)
				marks[s->mark_of[i] + k / MARK] = s->sum;
			rc = PS_MIN(weight_exact(v, k, &w, err), 0);
			s->sum += w;
		}
		/* the mark at the end; also of a shard without samples */
		if (ps_select_samples(v) % MARK == 0)
			marks[s->mark_of[i] + ps_select_samples(v) / MARK] = s->sum;
		ps_select_close(v);
	}
	marks[s->mark_of[s->o.nshards]] = s->sum;
	return rc;
}

static int exact_make(struct ps_select *s, struct ps_error *err)
{
	ps_autofree u128 *marks = NULL;
	uint64_t passed = 0;
	double most = 0;
	int exponent, r;

	s->first = malloc(((size_t)s->o.nshards + 1) * sizeof(*s->first));
	s->mark_of = malloc(((size_t)s->o.nshards + 1) * sizeof(*s->mark_of));
	if (!s->first || !s->mark_of)
		return ps_no_memory(err);
	r = weights_look(s, &most, &passed, err);
	if (r < 0)
		return r;
	s->draws = s->o.draws ? s->o.draws : passed;
	(void)frexp(most, &exponent);
	s->scale = PS_MIN(MOST_BITS, 126 - bits_of(passed) - bits_of(s->draws)) - exponent;
	marks = calloc(s->mark_of[s->o.nshards] + 1, sizeof(*marks));
	if (!marks)
		return ps_error_set(err, ENOMEM, "no memory for the sums of the weights");
	r = weights_sum(s, marks, err);
	if (r < 0)
		return r;
	s->marks = ps_steal_ptr(&marks);
	if (s->draws * (u128)ldexp(most, s->scale) / s->sum >= PS_SELECT_MAX_TIMES)
		return ps_error_set(err, EINVAL,
		        "weights: a sample of weight %g would come more than %d times in an epoch of "
		        "%ju draws; lower the weight, or draws",
		        most, PS_SELECT_MAX_TIMES, (uintmax_t)s->draws);
	return 0;
}

int ps_select_new(const struct ps_select_options *o, struct ps_select **ret_select, struct ps_error *err)
{
	struct ps_select *s;
	int rc = 0;

	*ret_select = NULL;
	if (!o->filter && !o->weights && !o->balance && !o->list)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ps_no_memory(err);
	s->o = *o;
	s->exact = o->list || o->draws > 0;
	if ((o->weights && !(s->weights = strdup(o->weights))) ||
	        (o->balance && !(s->balance = strdup(o->balance))))
		rc = ps_no_memory(err);
	if (rc == 0 && o->filter)
		rc = ps_filter_new(o->filter, &s->filter, err);
	if (rc == 0 && !s->exact &&
	        o->nshards > 0) { /* checks the columns, before the first reader uses them */
		struct ps_select_view *v;

		rc = ps_select_open(s, 0, 0, 0, &v, err);
		if (rc == 0) {
			rc = ps_select_samples(v) > 0 ? PS_MIN(ps_select_times(v, 0, err), 0) : 0;
			ps_select_close(v);
		}
	}
	if (rc == 0 && s->balance)
		rc = classes_make(s, err);
	if (rc == 0 && s->exact)
		rc = exact_make(s, err);
	if (rc < 0) {
		ps_select_free(s);
		return rc;
	}
	*ret_select = s;
	return 0;
}

void ps_select_free(struct ps_select *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->nclasses; i++)
		free(s->classes[i].text);
	free(s->classes);
	ps_filter_free(s->filter);
	free(s->weights);
	free(s->balance);
	free(s->first);
	free(s->mark_of);
	free(s->marks);
	free(s);
}
