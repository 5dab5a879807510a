#include "config.h"

#include "random_access.h"

#include <errno.h>
#include <unistd.h>

#include "order/order.h"

struct ps_random_access {
	struct ps_random_access_options o;
	struct ps_batch_worker worker;
	bool ready;     /* the worker is initialised */
	uint64_t *ends; /* running sums of the shards' counts */
};

int ps_random_access_new(const struct ps_random_access_options *options, struct ps_random_access **ret_access,
        struct ps_error *err)
{
	struct ps_random_access *g = calloc(1, sizeof(*g));
	uint64_t sum = 0;
	int rc = 0;

	if (!g)
		return ps_no_memory(err);
	g->o = *options;
	g->o.reading.budget = NULL;
	g->o.reading.slabs = NULL;
	g->o.reading.stream.budget = NULL;
	g->o.reading.stream.stop = NULL;
	g->o.reading.stream.wake_fd = -1;
	g->o.reading.stream.buf_nbytes = PS_STREAM_BUF_MIN;
	g->ends = malloc(PS_MAX(g->o.nshards, 1u) * sizeof(uint64_t));
	if (!g->ends)
		rc = ps_no_memory(err);
	for (uint32_t i = 0; i < g->o.nshards && rc == 0; i++) {
		uint64_t n = 0;

		rc = ps_shard_indexes_count(g->o.indexes, i, &n, err);
		if (rc < 0 && rc != -ENOMEM)
			rc = ps_error_set(err, ENODATA,
			        "samples by number need an index of every shard (penstock-loader index): %s",
			        err ? err->text : "");
		sum += n;
		g->ends[i] = sum;
	}
	if (rc == 0)
		rc = ps_batch_worker_init(&g->worker, g->o.layout, g->o.seed, NULL, err);
	g->ready = rc == 0;
	if (rc < 0) {
		ps_random_access_free(g);
		return rc;
	}
	*ret_access = g;
	return 0;
}

void ps_random_access_free(struct ps_random_access *g)
{
	if (!g)
		return;
	if (g->ready)
		ps_batch_worker_fini(&g->worker);
	free(g->ends);
	free(g);
}

/* The number of samples of all shards. */
static uint64_t total(const struct ps_random_access *g)
{
	return g->o.nshards > 0 ? g->ends[g->o.nshards - 1] : 0;
}

/* Reads sample `ordinal` of a shard at its place in the index, and compares it with the index. */
static int place_read(struct ps_random_access *g, uint32_t shard, uint64_t ordinal,
        struct ps_shard_index *index, struct ps_sample **ret_sample, struct ps_error *err)
{
	struct ps_shard_options options = g->o.reading;
	struct ps_shard_index_place place;
	struct ps_shard *reader;
	int rc = ps_shard_index_place(index, ordinal, &place, NULL, err);

	if (rc < 0)
		return rc;
	options.check = index;
	reader = ps_shard_new(g->o.shards[shard], shard, &options, err);
	if (!reader)
		return -ENOMEM;
	ps_shard_start_at(reader, ordinal, place.resume_offset);
	rc = ps_shard_next(reader, ret_sample, err);
	ps_shard_free(reader);
	return rc;
}

/* Reads a packed row as the first epoch packs it. */
static int packed_read(struct ps_random_access *g, uint32_t stretch, uint64_t ordinal,
        struct ps_sample **ret_sample, struct ps_error *err)
{
	struct ps_shard_options options = g->o.reading;
	struct ps_shard *reader;
	int rc;

	options.stretch = stretch;
	options.epoch = g->o.epoch;
	options.single = true;
	reader = ps_shard_new(g->o.shards[stretch], options.packing->stretches[stretch].file, &options, err);
	if (!reader)
		return -ENOMEM;
	ps_shard_start_at(reader, ordinal, 0);
	rc = ps_shard_next(reader, ret_sample, err);
	ps_shard_free(reader);
	return PS_MIN(rc, 0);
}

static int sample_read(
        struct ps_random_access *g, uint64_t number, struct ps_sample **ret_sample, struct ps_error *err)
{
	uint32_t shard = ps_shard_of_number(g->ends, g->o.nshards, number);
	uint64_t ordinal = number - (shard > 0 ? g->ends[shard - 1] : 0);
	struct ps_shard_index *index;
	int rc;

	if (g->o.reading.packing)
		return packed_read(g, shard, ordinal, ret_sample, err);
	rc = ps_shard_indexes_get(g->o.indexes, shard, &index, err);

	if (rc < 0)
		return rc;
	rc = place_read(g, shard, ordinal, index, ret_sample, err);
	ps_shard_indexes_put(g->o.indexes, index);
	if (rc < 0)
		return rc;
	if (rc == 1 && (*ret_sample)->ordinal == ordinal)
		return 0;
	if (rc == 1)
		ps_sample_free(ps_steal_ptr(ret_sample));
	ps_error_set(err, ESTALE,
	        "%s: it has no sample %ju, but its index lists one; index it again (penstock-loader index)",
	        g->o.shards[shard], (uintmax_t)ordinal);
	err->cause = PS_CAUSE_CHANGED;
	err->shard = g->o.shards[shard];
	return -ESTALE;
}

int ps_random_access_read(struct ps_random_access *g, const uint64_t *numbers, uint32_t n,
        struct penstock_batch **ret_batch, struct ps_error *err)
{
	struct penstock_batch *b;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		if (numbers[i] >= total(g))
			return ps_error_set(err, ERANGE, "sample %ju: there are %ju samples, counted from 0",
			        (uintmax_t)numbers[i], (uintmax_t)total(g));
	b = calloc(1, sizeof(*b));
	if (!b)
		return ps_no_memory(err);
	rc = ps_batch_init(b, g->o.layout, ps_device_host(), n, err);
	if (rc < 0) {
		free(b);
		return rc;
	}
	b->pid = getpid();
	b->max_ragged_nbytes = g->o.max_ragged_nbytes;
	b->epoch = g->o.epoch;
	b->want = n;
	b->closed = true;
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		rc = sample_read(g, numbers[i], &b->rows[i].sample, err);
		if (rc == 0) {
			b->nrows++;
			ps_batch_decode(b, i, &g->worker);
		}
	}
	if (rc < 0) {
		ps_random_access_give_back(b);
		return rc;
	}
	ps_batch_transform(b, 0, b->nrows, &g->worker);
	ps_batch_finish(b);
	*ret_batch = b;
	return 0;
}

void ps_random_access_give_back(struct penstock_batch *b)
{
	ps_batch_fini(b);
	free(b);
}
