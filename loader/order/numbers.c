#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define MOST (UINT64_C(1) << 40) /* most numbers of an array */

/* FNV-1a by words in place of bytes, for speed: an array may be long. */
static uint64_t hash_words(uint64_t h, const void *words, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t w;

		memcpy(&w, (const uint8_t *)words + i * sizeof(w), sizeof(w));
		h = (h ^ w) * UINT64_C(0x100000001b3);
		h ^= h >> 32;
	}
	return h;
}

static int ends_check(const struct ps_numbers *a, struct ps_error *err)
{
	uint64_t last = 0;

	for (uint64_t i = 0; i < a->nends; i++) {
		if (a->ends[i] <= last)
			return ps_error_set(
			        err, EINVAL, "order: batch %ju has no numbers; leave it out", (uintmax_t)i);
		if (a->ends[i] - last > a->batch)
			return ps_error_set(err, EINVAL,
			        "order: batch %ju has %ju numbers, but batches have %u rows at most; raise "
			        "batch",
			        (uintmax_t)i, (uintmax_t)(a->ends[i] - last), a->batch);
		last = a->ends[i];
	}
	if (last != a->n)
		return ps_error_set(err, EINVAL, "order: batch_ends cover %ju numbers, but there are %ju",
		        (uintmax_t)last, (uintmax_t)a->n);
	return 0;
}

int ps_numbers_array(uint32_t batch, const int64_t *values, uint64_t n, const uint64_t *ends, uint64_t nends,
        struct ps_numbers **ret_numbers, struct ps_error *err)
{
	struct ps_numbers *a;
	int rc = 0;

	if (n == 0)
		return ps_error_set(err, EINVAL, "order: no numbers are given");
	if (n > MOST || nends > MOST)
		return ps_error_set(err, EINVAL, "order: more than 2^40 numbers");
	a = calloc(1, sizeof(*a));
	if (!a)
		return ps_no_memory(err);
	*a = (struct ps_numbers){.batch = batch,
	        .n = n,
	        .nends = ends ? nends : 0,
	        .values = malloc(n * sizeof(*values)),
	        .ends = ends ? malloc(PS_MAX(nends, UINT64_C(1)) * sizeof(*ends)) : NULL};
	if (!a->values || (ends && !a->ends)) {
		rc = ps_error_set(err, ENOMEM, "no memory for the %ju numbers of order", (uintmax_t)n);
	} else {
		memcpy(a->values, values, n * sizeof(*values));
		if (ends)
			memcpy(a->ends, ends, nends * sizeof(*ends));
		a->hash = hash_words(hash_words(PS_HASH_BEGIN, values, n), ends, a->nends);
		rc = ends ? ends_check(a, err) : 0;
	}
	if (rc < 0)
		ps_numbers_free(a);
	else
		*ret_numbers = a;
	return rc;
}

int ps_numbers_feed(uint32_t batch, struct ps_numbers **ret_numbers, struct ps_error *err)
{
	struct ps_numbers *f = calloc(1, sizeof(*f));

	if (!f)
		return ps_no_memory(err);
	f->batch = batch;
	f->sizes = calloc(1, sizeof(*f->sizes)); /* not NULL: this marks a feed */
	*ret_numbers = f;
	if (f->sizes)
		return 0;
	ps_numbers_free(f);
	return ps_no_memory(err);
}

int ps_numbers_feed_keep(struct ps_numbers *f, uint32_t depth, struct ps_error *err)
{
	free(f->sizes);
	free(f->values);
	f->depth = depth;
	f->sizes = calloc(depth, sizeof(*f->sizes));
	f->values = calloc((size_t)depth * f->batch, sizeof(*f->values));
	return f->sizes && f->values ? 0 : ps_no_memory(err);
}

void ps_numbers_free(struct ps_numbers *a)
{
	if (!a)
		return;
	free(a->values);
	free(a->ends);
	free(a->sizes);
	free(a);
}

bool ps_numbers_is_feed(const struct ps_numbers *a)
{
	return a->sizes;
}

static int number_refuse(int64_t number, uint64_t place, uint64_t samples, struct ps_error *err)
{
	if (samples == 0)
		return ps_error_set(
		        err, ERANGE, "order: sample %jd, but the shards hold no samples", (intmax_t)number);
	return ps_error_set(err, ERANGE,
	        "order: number %ju is sample %jd, but the shards hold %ju samples: numbers are 0 to %ju",
	        (uintmax_t)place, (intmax_t)number, (uintmax_t)samples, (uintmax_t)samples - 1);
}

int ps_numbers_check(struct ps_numbers *a, uint64_t samples, struct ps_error *err)
{
	a->samples = samples;
	for (uint64_t i = 0; i < a->n; i++)
		if ((uint64_t)a->values[i] >= samples)
			return number_refuse(a->values[i], i, samples, err);
	return 0;
}

int ps_numbers_uses(const struct ps_numbers *a, uint64_t places, const uint64_t *ends, uint32_t nshards,
        struct ps_uses *ret_uses)
{
	/* for each shard its place among the uses, counted from 1; 0: not used */
	ps_autofree uint32_t *at = calloc(nshards, sizeof(*at));
	struct ps_uses u = {
	        .shards = malloc(nshards * sizeof(*u.shards)), .over = malloc(nshards * sizeof(*u.over))};

	if (!at || !u.shards || !u.over) {
		ps_uses_fini(&u);
		return -ENOMEM;
	}
	places = PS_MIN(places, ps_numbers_places(a));
	for (uint64_t p = 0; p < places; p++) {
		int64_t number = ps_numbers_at(a, p);
		uint32_t shard;

		if (number < 0)
			continue;
		shard = ps_shard_of_number(ends, nshards, (uint64_t)number);
		if (at[shard] == 0) {
			u.shards[u.n++] = shard;
			at[shard] = u.n;
		}
		u.over[at[shard] - 1] = p + 1;
	}
	for (uint32_t i = 1; i < u.n; i++)
		u.over[i] = PS_MAX(u.over[i], u.over[i - 1]);
	*ret_uses = u;
	return 0;
}

void ps_uses_fini(struct ps_uses *u)
{
	free(u->shards);
	free(u->over);
	*u = (struct ps_uses){0};
}

uint64_t ps_numbers_places(const struct ps_numbers *a)
{
	if (ps_numbers_is_feed(a))
		return PS_ENDLESS;
	return a->ends ? a->nends * a->batch : a->n;
}

uint32_t ps_numbers_rows(const struct ps_numbers *a, uint64_t step)
{
	uint64_t begin = step * a->batch;

	if (ps_numbers_is_feed(a))
		return a->sizes[step % a->depth];
	if (a->ends)
		return step < a->nends ? (uint32_t)(a->ends[step] - (step > 0 ? a->ends[step - 1] : 0)) : 0;
	return begin < a->n ? (uint32_t)PS_MIN(a->n - begin, (uint64_t)a->batch) : 0;
}

uint64_t ps_numbers_before(const struct ps_numbers *a, uint64_t steps)
{
	if (steps == 0)
		return 0;
	if (a->ends)
		return a->ends[PS_MIN(steps, a->nends) - 1];
	return steps > a->n / a->batch ? a->n : steps * a->batch;
}

int64_t ps_numbers_at(const struct ps_numbers *a, uint64_t place)
{
	uint64_t step = place / a->batch;
	uint32_t row = (uint32_t)(place % a->batch);

	if (row >= ps_numbers_rows(a, step))
		return -1;
	if (ps_numbers_is_feed(a))
		return a->values[step % a->depth * a->batch + row];
	return a->values[a->ends ? (step > 0 ? a->ends[step - 1] : 0) + row : place];
}

/* A feed: the pipeline's lock must be held below this line ----------------------------------------------- */

int ps_numbers_give(
        struct ps_numbers *f, uint64_t delivered, const int64_t *values, uint32_t n, struct ps_error *err)
{
	uint64_t slot = f->fed % f->depth;

	if (f->over)
		return ps_error_set(err, EINVAL,
		        "feed: epoch %ju was ended; next() must return its end first", (uintmax_t)f->epoch);
	if (n == 0) {
		f->over = true;
		return 0;
	}
	if (f->fed - delivered >= f->depth)
		return ps_error_set(err, EBUSY, "feed: %u batches are ahead; take one first", f->depth);
	if (n > f->batch)
		return ps_error_set(err, EINVAL,
		        "order: a batch of %u numbers, but batches have %u rows at most; raise batch", n,
		        f->batch);
	for (uint32_t i = 0; i < n; i++)
		if ((uint64_t)values[i] >= f->samples)
			return number_refuse(values[i], i, f->samples, err);
	memcpy(f->values + slot * f->batch, values, n * sizeof(*values));
	f->sizes[slot] = n;
	f->fed++;
	return 0;
}

void ps_numbers_begin(struct ps_numbers *f, uint64_t epoch, uint64_t steps)
{
	f->epoch = epoch;
	f->fed = steps;
	f->over = false;
}
