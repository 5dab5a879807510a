#include "config.h"

#include "order/select.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "order/rng.h"

/* A class and how many samples it has; sorted by the value. */
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
	uint64_t samples, least; /* in all classes; in the smallest */
};

struct ps_select_view {
	struct ps_select *select;
	struct ps_index *index;
	uint32_t shard;
	uint64_t epoch, pass;
	int weights, balance;
	int columns[PS_FILTER_MAX_COLUMNS]; /* of the filter */
};

/* -- Views -------------------------------------------------------------------------------------------- */

static int column_find(struct ps_index *index, const char *option, const char *name, uint32_t shard,
        int *ret_column, struct ps_load_error *err)
{
	*ret_column = ps_index_column(index, name);
	if (*ret_column >= 0)
		return 0;
	return ps_load_error_set(err, EINVAL,
	        "%s: the index of shard %u has no column \"%.100s\"; index the shards with it "
	        "(penstock-loader index "
	        "--column)",
	        option, shard, name);
}

int ps_select_open(struct ps_select *s, uint32_t shard, uint64_t epoch, uint64_t pass,
        struct ps_select_view **ret_view, struct ps_load_error *err)
{
	struct ps_select_view *v = calloc(1, sizeof(*v));
	const char *name;
	int r;

	if (!v)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	*v = (struct ps_select_view){
	        .select = s, .shard = shard, .epoch = epoch, .pass = pass, .weights = -1, .balance = -1};
	r = ps_indexes_get(s->o.indexes, shard, &v->index, err);
	if (r < 0 && r != -ENOMEM)
		r = ps_load_error_set(err, ENODATA,
		        "filter, weights and balance need an index of every shard: %s", err ? err->text : "");
	if (r == 0 && s->weights)
		r = column_find(v->index, "weights", s->weights, shard, &v->weights, err);
	if (r == 0 && s->balance)
		r = column_find(v->index, "balance", s->balance, shard, &v->balance, err);
	for (uint32_t i = 0; r == 0 && s->filter && (name = ps_filter_column(s->filter, i)); i++)
		r = column_find(v->index, "filter", name, shard, &v->columns[i], err);
	if (r < 0) {
		ps_select_close(v);
		return r;
	}
	*ret_view = v;
	return 0;
}

void ps_select_close(struct ps_select_view *v)
{
	if (!v)
		return;
	if (v->index)
		ps_indexes_put(v->select->o.indexes, v->index);
	free(v);
}

uint64_t ps_select_samples(const struct ps_select_view *v)
{
	return ps_index_samples(v->index);
}

/* 1: the filter lets the sample pass. */
static int passes(struct ps_select_view *v, uint64_t sample, struct ps_load_error *err)
{
	const struct ps_filter *f = v->select->filter;
	struct ps_column_value values[PS_FILTER_MAX_COLUMNS];

	if (!f)
		return 1;
	for (uint32_t i = 0; ps_filter_column(f, i); i++) {
		int r = ps_index_value(v->index, v->columns[i], sample, &values[i], err);

		if (r < 0)
			return r;
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

/* Where a class is, or would be put. */
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

/* What balances the class that a value is of; 0: it is of none. */
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

static int weight_of(struct ps_select_view *v, uint64_t sample, double *ret_weight, struct ps_load_error *err)
{
	struct ps_column_value value;
	int r;

	*ret_weight = 1;
	if (v->weights >= 0) {
		r = ps_index_value(v->index, v->weights, sample, &value, err);
		if (r < 0)
			return r;
		if (!value.missing && (value.type == PS_COLUMN_TEXT || !(value.number >= 0)))
			return ps_load_error_set(err, EINVAL,
			        "weights: sample %ju of shard %u has a weight that is no number from 0 on",
			        (uintmax_t)sample, v->shard);
		*ret_weight = value.missing ? 0 : value.number;
	}
	if (v->balance >= 0) {
		r = ps_index_value(v->index, v->balance, sample, &value, err);
		if (r < 0)
			return r;
		*ret_weight *= balance_of(v->select, &value);
	}
	return 0;
}

int ps_select_times(struct ps_select_view *v, uint64_t sample, struct ps_load_error *err)
{
	const struct ps_select *s = v->select;
	struct ps_rng_key key = {.seed = s->o.seed,
	        .epoch = v->epoch,
	        .shard = v->shard,
	        .sample = sample,
	        .draw = (uint32_t)v->pass};
	double w, u;
	int r = passes(v, sample, err);

	if (r <= 0 || (v->weights < 0 && v->balance < 0))
		return r;
	r = weight_of(v, sample, &w, err);
	if (r < 0)
		return r;
	u = ps_rng_unit(&key, PS_RNG_SAMPLE_DRAW, 0);
	if (!s->o.replacement)
		return u < w;
	w = floor(w + u);
	return w < PS_SELECT_MAX_TIMES ? (int)w : PS_SELECT_MAX_TIMES;
}

int ps_select_count(struct ps_select_view *v, uint64_t sample, uint32_t copy, uint64_t *ret_count,
        struct ps_load_error *err)
{
	uint64_t sum = 0, n = ps_select_samples(v);

	for (; sample < n; sample++) {
		int r = ps_select_times(v, sample, err);

		if (r < 0)
			return r;
		sum += (uint32_t)r > copy ? (uint32_t)r - copy : 0;
		copy = 0;
	}
	*ret_count = sum;
	return 0;
}

int ps_select_skip(
        struct ps_select_view *v, uint64_t *sample, uint32_t *copy, uint64_t n, struct ps_load_error *err)
{
	uint64_t all = ps_select_samples(v);

	while (n > 0 && *sample < all) {
		int r = ps_select_times(v, *sample, err);
		uint64_t left;

		if (r < 0)
			return r;
		left = (uint32_t)r > *copy ? (uint32_t)r - *copy : 0;
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

/* -- Making ------------------------------------------------------------------------------------------- */

static int class_add(struct ps_select *s, const struct ps_column_value *v, struct ps_load_error *err)
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
		return ps_load_error_set(err, EINVAL, "balance: column \"%s\" has more than %d classes",
		        s->balance, PS_SELECT_MAX_CLASSES);
	if (s->nclasses == s->cap) {
		size_t cap = PS_MAX(s->cap * 2, 64u);
		struct class *classes = realloc(s->classes, cap * sizeof(*classes));

		if (!classes)
			return ps_load_error_set(err, ENOMEM, "out of memory");
		s->classes = classes;
		s->cap = cap;
	}
	if (c.type == PS_COLUMN_TEXT && !(c.text = strndup(v->text, v->text_len)))
		return ps_load_error_set(err, ENOMEM, "out of memory");
	c.samples = 1;
	memmove(s->classes + at + 1, s->classes + at, (s->nclasses - at) * sizeof(c));
	s->classes[at] = c;
	s->nclasses++;
	return 0;
}

/* Counts the classes of a shard's samples, of those that pass the filter. */
static int classes_count(struct ps_select *s, uint32_t shard, struct ps_load_error *err)
{
	struct ps_select_view *v;
	int r = ps_select_open(s, shard, 0, 0, &v, err);

	if (r < 0)
		return r;
	for (uint64_t i = 0; i < ps_select_samples(v) && r >= 0; i++) {
		struct ps_column_value value;

		r = passes(v, i, err);
		if (r <= 0)
			continue;
		r = ps_index_value(v->index, v->balance, i, &value, err);
		if (r == 0 && !value.missing)
			r = class_add(s, &value, err);
	}
	ps_select_close(v);
	return r < 0 ? r : 0;
}

static int classes_make(struct ps_select *s, struct ps_load_error *err)
{
	for (uint32_t i = 0; i < s->o.nshards; i++) {
		int r = classes_count(s, i, err);

		if (r < 0)
			return r;
	}
	s->least = s->samples;
	for (size_t i = 0; i < s->nclasses; i++)
		s->least = PS_MIN(s->least, s->classes[i].samples);
	return 0;
}

/* A wrong column is better found now than by the first reader. */
static int first_try(struct ps_select *s, struct ps_load_error *err)
{
	struct ps_select_view *v;
	int r = s->o.nshards > 0 ? ps_select_open(s, 0, 0, 0, &v, err) : 0;

	if (r < 0 || s->o.nshards == 0)
		return r;
	if (ps_select_samples(v) > 0)
		r = ps_select_times(v, 0, err);
	ps_select_close(v);
	return r < 0 ? r : 0;
}

int ps_select_new(const struct ps_select_options *o, struct ps_select **ret_select, struct ps_load_error *err)
{
	struct ps_select *s;
	int r = 0;

	*ret_select = NULL;
	if (!o->filter && !o->weights && !o->balance)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	s->o = *o;
	if ((o->weights && !(s->weights = strdup(o->weights))) ||
	        (o->balance && !(s->balance = strdup(o->balance))))
		r = ps_load_error_set(err, ENOMEM, "out of memory");
	if (r == 0 && o->filter)
		r = ps_filter_new(o->filter, &s->filter, err);
	if (r == 0)
		r = first_try(s, err);
	if (r == 0 && s->balance)
		r = classes_make(s, err);
	if (r < 0) {
		ps_select_free(s);
		return r;
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
	free(s);
}
