#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <string.h>

#include "base/overflow.h"

/* Appends `n` items of `nbytes` at the next page; sets where they begin. */
static bool place(size_t *total, size_t n, size_t nbytes, size_t *ret_at)
{
	size_t all;

	*ret_at = *total;
	return ps_size_mul(n, nbytes, &all) && ps_size_add(*total, all, &all) &&
	       ps_size_round_up(all, PS_DEVICE_PAGE, total);
}

struct layout {
	size_t fixed[PS_PLAN_MAX_FIELDS];
	size_t offsets[PS_PLAN_MAX_FIELDS + 1];
	size_t valid, shard_ids, sample_ids;
	size_t total;
};

static bool layout_make(const struct ps_plan *plan, uint32_t rows, struct layout *l)
{
	size_t n = rows;
	bool ok;

	*l = (struct layout){0};
	ok = place(&l->total, n + 1, sizeof(uint64_t), &l->offsets[PS_BATCH_KEYS]);
	for (uint32_t i = 0; i < plan->nfields && ok; i++) {
		size_t row = plan->fields[i].row_nbytes;

		ok = row ? place(&l->total, n, row, &l->fixed[i])
		         : place(&l->total, n + 1, sizeof(uint64_t), &l->offsets[i]);
	}
	return ok && place(&l->total, n, 1, &l->valid) &&
	       place(&l->total, n, sizeof(int64_t), &l->shard_ids) &&
	       place(&l->total, n, sizeof(int64_t), &l->sample_ids);
}

bool ps_batch_nbytes(const struct ps_plan *plan, uint32_t rows, size_t *ret_nbytes)
{
	struct layout l;

	if (!layout_make(plan, rows, &l))
		return false;
	*ret_nbytes = l.total;
	return true;
}

int ps_batch_init(struct penstock_batch *b, const struct ps_plan *plan, const struct ps_device_ops *device,
        uint32_t rows, struct ps_load_error *err)
{
	struct layout l;
	uint8_t *mem;

	*b = (struct penstock_batch){.plan = plan, .device = device, .cap = rows};
	if (!layout_make(plan, rows, &l))
		return ps_load_error_set(err, E2BIG, "a batch of %u rows is larger than memory can be", rows);
	b->rows = calloc(rows, sizeof(*b->rows));
	b->bad_rows = calloc(rows, sizeof(*b->bad_rows));
	mem = device->alloc(l.total);
	if (mem) {
		b->mem = mem;
		b->mem_nbytes = l.total;
	}
	if (!mem || !b->rows || !b->bad_rows) {
		ps_batch_fini(b);
		return ps_load_error_set(err, ENOMEM, "no memory for a batch of %zu bytes", l.total);
	}
	for (uint32_t i = 0; i < plan->nfields; i++) {
		if (plan->fields[i].row_nbytes)
			b->fixed[i] = mem + l.fixed[i];
		else
			b->ragged[i].offsets = (uint64_t *)(void *)(mem + l.offsets[i]);
	}
	b->ragged[PS_BATCH_KEYS].offsets = (uint64_t *)(void *)(mem + l.offsets[PS_BATCH_KEYS]);
	b->valid = mem + l.valid;
	b->shard_ids = (int64_t *)(void *)(mem + l.shard_ids);
	b->sample_ids = (int64_t *)(void *)(mem + l.sample_ids);
	return 0;
}

static void values_free(struct penstock_batch *b, struct ps_ragged *g)
{
	if (b->budget)
		ps_budget_give(b->budget, g->cap);
	free(g->values);
	g->values = NULL;
	g->cap = 0;
}

void ps_batch_fini(struct penstock_batch *b)
{
	if (b->rows)
		ps_batch_clear(b);
	for (uint32_t i = 0; i < PS_ARRAY_LEN(b->ragged); i++)
		values_free(b, &b->ragged[i]);
	free(b->rows);
	free(b->bad_rows);
	if (b->mem)
		b->device->free(b->mem, b->mem_nbytes);
	*b = (struct penstock_batch){0};
}

void ps_batch_clear(struct penstock_batch *b)
{
	for (uint32_t i = 0; i < b->nrows; i++) {
		ps_sample_free(b->rows[i].sample);
		free(b->rows[i].reason);
		b->rows[i] = (struct ps_row){0};
	}
	b->nrows = b->ndone = b->out_rows = b->nbad = 0;
	b->closed = b->drop = b->pad = false;
	b->failed = 0;
	atomic_store_explicit(&b->ragged_nbytes, 0, memory_order_relaxed);
}

/* -- Rows --------------------------------------------------------------------------------------------- */

int ps_batch_worker_init(
        struct ps_batch_worker *w, const struct ps_plan *plan, uint64_t seed, struct ps_load_error *err)
{
	*w = (struct ps_batch_worker){.seed = seed};
	for (uint32_t i = 0; i < plan->nfields; i++) {
		if (plan->fields[i].kind != PENSTOCK_IMAGE)
			continue;
		w->decoders[i] = ps_image_decoder_new(&plan->fields[i].image, err);
		if (!w->decoders[i]) {
			ps_batch_worker_fini(w);
			return -ENOMEM;
		}
	}
	return 0;
}

void ps_batch_worker_fini(struct ps_batch_worker *w)
{
	for (uint32_t i = 0; i < PS_ARRAY_LEN(w->decoders); i++)
		ps_image_decoder_free(w->decoders[i]);
	*w = (struct ps_batch_worker){0};
}

static bool is_space(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Decimal digits with an optional sign and white space around, as Python's int() takes them. */
static int int64_decode(const uint8_t *p, size_t n, int64_t *ret_value, struct ps_load_error *err)
{
	const uint8_t *end = p + n;
	bool negative;
	int64_t v = 0;

	while (p < end && is_space(*p))
		p++;
	while (end > p && is_space(end[-1]))
		end--;
	negative = p < end && *p == '-';
	if (p < end && (*p == '-' || *p == '+'))
		p++;
	if (p == end)
		return ps_load_error_set(err, EBADMSG, "not an integer: it has no digits");
	for (; p < end; p++) {
		if (*p < '0' || *p > '9')
			return ps_load_error_set(err, EBADMSG, "not an integer: it has the byte 0x%02x", *p);
		if (__builtin_mul_overflow(v, 10, &v) ||
		        __builtin_add_overflow(v, negative ? '0' - *p : *p - '0', &v))
			return ps_load_error_set(err, EBADMSG, "an integer beyond 64 bits");
	}
	*ret_value = v;
	return 0;
}

/* Counts what a ragged field will copy. False: the batch holds too much, and will fail. */
static bool ragged_count(struct penstock_batch *b, uint64_t nbytes)
{
	uint64_t before = atomic_fetch_add_explicit(&b->ragged_nbytes, nbytes, memory_order_relaxed);

	return !b->max_ragged_nbytes ||
	       (before <= b->max_ragged_nbytes && nbytes <= b->max_ragged_nbytes - before);
}

/* One field of one row. */
static int field_decode(struct penstock_batch *b, uint32_t row, uint32_t i, struct ps_batch_worker *w,
        struct ps_load_error *err)
{
	const struct ps_plan_field *f = &b->plan->fields[i];
	struct ps_sample *s = b->rows[row].sample;
	struct ps_sample_field *in = ps_plan_find(f, s);
	uint8_t *dst = f->row_nbytes ? (uint8_t *)b->fixed[i] + (size_t)row * f->row_nbytes : NULL;
	struct ps_rng_key key = {
	        .seed = w->seed, .epoch = b->epoch, .shard = s->file->shard, .sample = s->ordinal};
	int r;

	if (!in && f->optional) {
		if (dst)
			memcpy(dst, &f->missing_value, sizeof(f->missing_value));
		return 0;
	}
	if (!in)
		return ps_load_error_set(err, EBADMSG, "has no field .%.100s", f->name);
	if (f->kind == PENSTOCK_BYTES && !ragged_count(b, in->size))
		return 0;
	w->reread += !in->data && in->size > 0;
	r = ps_sample_load(s, in, err);
	if (r < 0)
		return r;
	switch (f->kind) {
	case PENSTOCK_IMAGE:
		r = ps_image_decode(w->decoders[i], in->data, (size_t)in->size, &key, dst, err);
		break;
	case PENSTOCK_INT64: {
		int64_t value = 0;

		r = int64_decode(in->data, (size_t)in->size, &value, err);
		if (r == 0)
			memcpy(dst, &value, sizeof(value));
		break;
	}
	case PENSTOCK_BYTES: /* copied when all rows are known, by ps_batch_finish() */
		break;
	}
	if (r < 0)
		ps_load_error_prefix(err, "field .%.100s", in->suffix);
	return r;
}

/* Lets go of a sample's bytes, or only of those that ragged fields do not need. */
static void bytes_drop(struct penstock_batch *b, struct ps_sample *s, bool all)
{
	for (uint32_t j = 0; j < s->nfields; j++) {
		struct ps_sample_field *in = &s->fields[j];
		bool ragged = false;

		for (uint32_t i = 0; i < b->plan->nfields && !all && in->data; i++)
			ragged = ragged || (b->plan->fields[i].kind == PENSTOCK_BYTES &&
			                           ps_plan_find(&b->plan->fields[i], s) == in);
		if (ragged || !in->data)
			continue;
		if (s->budget)
			ps_budget_give(s->budget, in->size);
		free(ps_steal_ptr(&in->data));
	}
}

void ps_batch_decode(struct penstock_batch *b, uint32_t row, struct ps_batch_worker *w)
{
	struct ps_row *r = &b->rows[row];
	struct ps_load_error err = {0};

	r->bad = r->sample->bad;
	for (uint32_t i = 0; i < b->plan->nfields && !r->bad; i++) {
		int e = field_decode(b, row, i, w, &err);

		if (e < 0) {
			r->bad = -e;
			r->reason = strdup(err.text);
		}
	}
	bytes_drop(b, r->sample, r->bad != 0);
}

const char *ps_batch_reason(const struct penstock_batch *b, uint32_t row)
{
	const struct ps_row *r = &b->rows[row];

	if (r->reason)
		return r->reason;
	if (r->sample->reason)
		return r->sample->reason;
	return "out of memory";
}

/* -- The whole ---------------------------------------------------------------------------------------- */

static void fail(struct penstock_batch *b, int errnum, const char *text)
{
	b->failed = -errnum;
	b->out_rows = 0;
	if (text)
		ps_load_error_set(&b->why, errnum, "%s", text);
}

/* The good row that stands for row i: itself, or the next one, cyclic over the rows that have a sample. */
static uint32_t source_of(const struct penstock_batch *b, uint32_t i)
{
	i %= b->nrows;
	while (b->rows[i].bad)
		i = i + 1 == b->nrows ? 0 : i + 1;
	return i;
}

/* What row `src` adds to ragged field f. */
static void ragged_piece(
        const struct penstock_batch *b, uint32_t f, uint32_t src, const uint8_t **ret_p, size_t *ret_n)
{
	struct ps_sample *s = b->rows[src].sample;
	const struct ps_sample_field *in;

	if (f == PS_BATCH_KEYS) {
		*ret_p = (const uint8_t *)s->key;
		*ret_n = s->key_len;
		return;
	}
	in = ps_plan_find(&b->plan->fields[f], s);
	*ret_p = in ? in->data : NULL;
	*ret_n = in ? (size_t)in->size : 0;
}

static int ragged_fill(struct penstock_batch *b, uint32_t f, const uint32_t *sources)
{
	struct ps_ragged *g = &b->ragged[f];
	uint64_t total = 0;
	const uint8_t *p;
	size_t n;

	for (uint32_t i = 0; i < b->out_rows; i++) {
		ragged_piece(b, f, sources[i], &p, &n);
		g->offsets[i] = total;
		total += n;
	}
	g->offsets[b->out_rows] = total;
	if (b->max_ragged_nbytes && total > b->max_ragged_nbytes)
		return -E2BIG;
	if (total > g->cap || !g->values) {
		size_t cap = (size_t)total + (size_t)total / 4 + 64;

		values_free(b, g);
		g->values = malloc(cap);
		if (!g->values)
			return -ENOMEM;
		g->cap = cap;
		if (b->budget)
			ps_budget_force(b->budget, cap);
	}
	for (uint32_t i = 0; i < b->out_rows; i++) {
		ragged_piece(b, f, sources[i], &p, &n);
		if (n > 0)
			memcpy(g->values + g->offsets[i], p, n);
	}
	return 0;
}

static void fixed_fill(struct penstock_batch *b, const uint32_t *sources)
{
	for (uint32_t i = 0; i < b->out_rows; i++) {
		const struct ps_sample *s = b->rows[sources[i]].sample;

		b->valid[i] = sources[i] == i;
		b->shard_ids[i] = s->file->shard;
		b->sample_ids[i] = (int64_t)s->ordinal;
		for (uint32_t f = 0; f < b->plan->nfields && sources[i] != i; f++) {
			size_t n = b->plan->fields[f].row_nbytes;

			if (n)
				memcpy((uint8_t *)b->fixed[f] + i * n,
				        (uint8_t *)b->fixed[f] + sources[i] * n, n);
		}
	}
}

static int rows_fill(struct penstock_batch *b)
{
	ps_autofree uint32_t *sources = calloc(b->out_rows, sizeof(*sources));
	int r;

	if (!sources)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->out_rows; i++)
		sources[i] = source_of(b, i);
	fixed_fill(b, sources);
	r = ragged_fill(b, PS_BATCH_KEYS, sources);
	for (uint32_t f = 0; f < b->plan->nfields && r == 0; f++)
		if (b->plan->fields[f].kind == PENSTOCK_BYTES)
			r = ragged_fill(b, f, sources);
	return r;
}

static const char too_large[] =
        "the ragged fields of one batch are larger than half of memory_budget / depth; "
        "raise it, or lower batch or depth";

void ps_batch_finish(struct penstock_batch *b)
{
	int r;

	b->nbad = 0;
	b->failed = 0;
	for (uint32_t i = 0; i < b->nrows; i++) {
		if (b->rows[i].bad == ENOMEM)
			fail(b, ENOMEM, "no memory to decode a sample");
		if (b->rows[i].bad)
			b->bad_rows[b->nbad++] = i;
	}
	b->out_rows = b->pad ? b->cap : b->nrows;
	if (b->failed) {
		b->out_rows = 0;
	} else if (b->max_ragged_nbytes &&
	           atomic_load_explicit(&b->ragged_nbytes, memory_order_relaxed) > b->max_ragged_nbytes) {
		fail(b, E2BIG, too_large);
	} else if (b->nbad == b->nrows) {
		const struct ps_sample *s = b->rows[0].sample;

		b->failed = -EBADMSG;
		b->out_rows = 0;
		ps_sample_error_set(&b->why, s, ps_batch_reason(b, 0));
		ps_load_error_prefix(&b->why, "no sample of the batch is sound; the first");
	} else {
		r = rows_fill(b);
		if (r == -E2BIG)
			fail(b, E2BIG, too_large);
		else if (r < 0)
			fail(b, -r, "no memory for a ragged field");
	}
	for (uint32_t i = 0; i < b->nrows; i++)
		bytes_drop(b, b->rows[i].sample, true);
}
