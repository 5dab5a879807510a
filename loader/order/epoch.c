#include "config.h"

#include "order/order.h"

#include <errno.h>
#include <string.h>

/* Number of epochs kept: readers, and workers that claim rows, are in one epoch or the next. */
#define KEPT 4

struct ps_epochs {
	struct ps_epochs_options o;
	pthread_mutex_t lock; /* guards kept, next */
	struct ps_epoch *kept[KEPT];
	uint32_t next;
};

struct ps_epochs *ps_epochs_new(const struct ps_epochs_options *options)
{
	struct ps_epochs *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->o = *options;
	pthread_mutex_init(&e->lock, NULL);
	return e;
}

void ps_epochs_free(struct ps_epochs *e)
{
	if (!e)
		return;
	for (int i = 0; i < KEPT; i++)
		ps_epoch_unref(e->kept[i]);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

const struct ps_epochs_options *ps_epochs_options(const struct ps_epochs *e)
{
	return &e->o;
}

void ps_epoch_unref(struct ps_epoch *e)
{
	if (!e || atomic_fetch_sub(&e->refs, 1) > 1)
		return;
	ps_deal_free(e->deal);
	ps_sequence_free(e->sequence);
	ps_shares_free(e->shares);
	free(e->lengths);
	free(e->ends);
	free(e);
}

/* The number of samples of a lane, over all passes. */
static int lane_length(
        struct ps_epochs *e, uint64_t epoch, uint32_t lane, uint64_t *ret_length, struct ps_error *err)
{
	uint64_t sum = 0, pass, n = e->o.repeat;
	uint32_t shard;
	int rc = 0;

	if (e->o.repeat == PS_ENDLESS) {
		*ret_length = PS_ENDLESS;
		return 0;
	}
	n *= ps_order_pass_len(e->o.order, lane);
	for (uint64_t k = 0; k < n && (rc = ps_order_shard(e->o.order, epoch, lane, k, &shard, &pass)) == 1;
	        k++) {
		uint64_t count = 0;

		rc = e->o.counts.count(e->o.counts.ctx, epoch, pass, shard, &count, err);
		if (rc < 0)
			return rc;
		sum += count;
	}
	*ret_length = sum;
	return rc < 0 ? ps_error_set(err, ENOMEM, "no memory for the order of the shards") : 0;
}

int ps_epochs_shares(const struct ps_epochs *e, uint64_t number, struct ps_shares **ret_shares)
{
	const struct ps_epochs_from *from = &e->o.from;
	ps_autofree struct ps_share_stage *stages = NULL;
	uint32_t nsets;

	(void)ps_order_sets(e->o.order, &nsets);
	*ret_shares = NULL;
	if (nsets == 1)
		return 0;
	if (from->base && number == from->epoch)
		return ps_shares_new(
		        nsets, e->o.stages, e->o.nstages, from->row, from->gone, from->base, ret_shares);
	stages = malloc(e->o.nstages * sizeof(*stages));
	if (!stages)
		return -ENOMEM;
	memcpy(stages, e->o.stages, e->o.nstages * sizeof(*stages));
	for (uint32_t k = 1; k < e->o.nstages; k++)
		stages[k].at += e->o.skip;
	return ps_shares_new(nsets, stages, e->o.nstages, 0, 0, NULL, ret_shares);
}

void ps_epochs_begin(struct ps_epochs *e, struct ps_order *order, uint64_t samples,
        const struct ps_share_stage *stages, uint32_t nstages, const struct ps_epochs_from *from)
{
	PS_LOCK_SCOPE(&e->lock);
	e->o.order = order;
	e->o.samples = samples;
	e->o.stages = stages;
	e->o.nstages = nstages;
	e->o.from = *from;
	for (int i = 0; i < KEPT; i++)
		ps_epoch_unref(ps_steal_ptr(&e->kept[i]));
}

/* Sets how an epoch is cut into steps, for `world` ranks; `samples`: those that there are. */
static struct ps_steps steps_of(
        const struct ps_epochs_options *o, uint64_t number, uint64_t samples, uint32_t world)
{
	bool resumed = o->from.batches > 0 && number == o->from.epoch;
	uint64_t cap = o->samples == PS_ENDLESS ? PS_ENDLESS : o->samples / (o->world / world);

	return (struct ps_steps){.samples = PS_MIN(samples, cap),
	        .most = o->samples == PS_ENDLESS ? o->steps : PS_ENDLESS,
	        .batch = o->batch,
	        .world = world,
	        .nodes = world > 1 ? o->nodes : 0,
	        .end = o->end,
	        .done = resumed ? o->from.batches : 0,
	        .from = resumed ? o->from.rows / (o->world / world) : 0};
}

/* For a mix that ends with its longest set: the other sets are repeated until then. */
static void sets_lengthen(const struct ps_epochs *e, struct ps_epoch *epoch)
{
	uint32_t nsets, longest = 0;
	const struct ps_lane_set *sets = ps_order_sets(e->o.order, &nsets);
	uint64_t most = 0;

	for (uint32_t d = 0; d < nsets; d++) {
		uint64_t n = 0, end;

		for (uint32_t i = 0; i < sets[d].n; i++)
			n += epoch->lengths[sets[d].first + i];
		end = ps_shares_position(epoch->shares, d, n);
		if (end < PS_ENDLESS - 1 && end >= most) { /* it does come to its end */
			longest = d;
			most = end;
		}
	}
	for (uint32_t d = 0; d < nsets; d++)
		for (uint32_t i = 0; i < sets[d].n && d != longest; i++)
			epoch->lengths[sets[d].first + i] = PS_ENDLESS;
}

/* For orders by sample number: the samples of all shards are numbered consecutively, in the order of the list
 * of shards. */
static int permuted_make(struct ps_epochs *e, struct ps_epoch *epoch, struct ps_error *err)
{
	uint32_t nlanes = ps_order_nlanes(e->o.order);
	uint64_t sum = 0, total;

	epoch->ends = malloc(e->o.nshards * sizeof(uint64_t));
	if (!epoch->ends)
		return ps_no_memory(err);
	for (uint32_t s = 0; s < e->o.nshards; s++) {
		uint64_t n = 0;
		int rc = e->o.counts.count(e->o.counts.ctx, epoch->number, 0, s, &n, err);

		if (rc < 0)
			return rc;
		sum += n;
		epoch->ends[s] = sum;
	}
	if (e->o.numbers) {
		epoch->numbers = e->o.numbers;
		total = ps_numbers_places(e->o.numbers);
	} else {
		if (sum == 0 && e->o.repeat == PS_ENDLESS)
			return ps_error_set(err, ENODATA, "no shard holds a sample");
		ps_permutation_init(&epoch->permutation, sum, e->o.seed, epoch->number, 0);
		total = e->o.repeat == PS_ENDLESS ? PS_ENDLESS : sum * e->o.repeat;
	}
	for (uint32_t l = 0; l < nlanes; l++)
		epoch->lengths[l] = total == PS_ENDLESS ? PS_ENDLESS
		                    : total > l         ? (total - l + nlanes - 1) / nlanes
		                                        : 0;
	return 0;
}

static int lengths_make(struct ps_epochs *e, struct ps_epoch *epoch, struct ps_error *err)
{
	uint32_t n = ps_order_nlanes(e->o.order);

	epoch->lengths = calloc(n, sizeof(uint64_t));
	if (!epoch->lengths)
		return ps_no_memory(err);
	if (ps_order_mode_scatters(e->o.mode))
		return permuted_make(e, epoch, err);
	for (uint32_t l = 0; l < n; l++) {
		int rc = lane_length(e, epoch->number, l, &epoch->lengths[l], err);

		if (rc < 0)
			return rc;
	}
	if (e->o.longest)
		sets_lengthen(e, epoch);
	return 0;
}

/* Computes lengths and steps; `world` 1: of this rank's own lanes alone. */
static int known_fill(struct ps_epochs *e, struct ps_epoch *epoch, uint32_t world, struct ps_error *err)
{
	const struct ps_epochs_options *o = &e->o;
	const struct ps_lane_set *sets;
	uint64_t total, end;
	uint32_t nsets;
	int rc = ps_epochs_shares(e, epoch->number, &epoch->shares) < 0 ? ps_no_memory(err) : 0;

	if (rc == 0)
		rc = lengths_make(e, epoch, err);
	if (rc < 0)
		return rc;
	sets = ps_order_sets(o->order, &nsets);
	if (ps_sequence_new(sets, nsets, epoch->shares, epoch->lengths, &epoch->sequence) < 0)
		return ps_no_memory(err);
	total = ps_sequence_total(epoch->sequence);
	if (total != PS_ENDLESS)
		total = total > o->skip ? total - o->skip : 0;
	epoch->steps = steps_of(o, epoch->number, PS_MIN(total, o->take), world);
	end = ps_steps_end(&epoch->steps);
	epoch->begin = o->skip;
	epoch->end = end >= PS_ENDLESS - o->skip ? PS_ENDLESS : o->skip + end;
	epoch->rank = world > 1 ? o->rank : 0;
	epoch->world = world;
	return 0;
}

void ps_epochs_know(struct ps_epochs *e)
{
	PS_LOCK_SCOPE(&e->lock);
	e->o.known = true;
	for (int i = 0; i < KEPT; i++)
		ps_epoch_unref(ps_steal_ptr(&e->kept[i]));
}

int ps_epochs_count(struct ps_epochs *e, uint64_t number, struct ps_epoch **ret_epoch, struct ps_error *err)
{
	struct ps_epoch *epoch;
	int rc;

	if (e->o.known)
		return ps_epochs_get(e, number, ret_epoch, err);
	epoch = calloc(1, sizeof(*epoch));
	if (!epoch)
		return ps_no_memory(err);
	epoch->number = number;
	atomic_init(&epoch->refs, 1);
	rc = known_fill(e, epoch, 1, err);
	if (rc < 0)
		ps_epoch_unref(epoch);
	else
		*ret_epoch = epoch;
	return rc;
}

int ps_epochs_length(struct ps_epochs *e, uint64_t number, uint64_t *ret_samples, uint64_t *ret_batches,
        uint64_t *ret_total, struct ps_error *err)
{
	struct ps_epoch *epoch;
	uint64_t steps;
	int rc = ps_epochs_count(e, number, &epoch, err);

	if (rc < 0)
		return rc;
	*ret_total = ps_steps_end(&epoch->steps);
	*ret_batches = steps = ps_steps_count(&epoch->steps, epoch->rank);
	/* All steps but the last one or two have the same rows on all ranks. */
	*ret_samples = steps > 2 ? (steps - 2) * epoch->steps.batch : 0;
	for (uint64_t s = steps > 2 ? steps - 2 : 0; s < steps; s++)
		*ret_samples += ps_steps_rows(&epoch->steps, s, epoch->rank);
	if (epoch->numbers && ps_numbers_is_feed(epoch->numbers))
		rc = ps_error_set(err, ENODATA, "the length is not known: batches are fed one by one");
	else if (epoch->numbers)
		*ret_total = *ret_samples = ps_numbers_before(epoch->numbers, *ret_batches);
	ps_epoch_unref(epoch);
	return rc;
}

uint32_t ps_epoch_rows(const struct ps_epoch *e, uint64_t step)
{
	return e->numbers ? ps_numbers_rows(e->numbers, step)
	                  : ps_steps_rows(&e->steps, step, ps_steps_source(&e->steps, step, e->rank));
}

bool ps_epoch_repeats(const struct ps_epoch *e, uint64_t step)
{
	return !e->numbers && ps_steps_source(&e->steps, step, e->rank) != e->rank;
}

bool ps_epoch_is_hole(const struct ps_epoch *e, uint64_t position)
{
	return e->numbers && ps_numbers_at(e->numbers, position) < 0;
}

int ps_epochs_get(struct ps_epochs *e, uint64_t number, struct ps_epoch **ret_epoch, struct ps_error *err)
{
	struct ps_epoch *epoch;
	int rc = 0;

	PS_LOCK_SCOPE(&e->lock);
	for (int i = 0; i < KEPT; i++) {
		if (!e->kept[i] || e->kept[i]->number != number)
			continue;
		atomic_fetch_add(&e->kept[i]->refs, 1);
		*ret_epoch = e->kept[i];
		return 0;
	}
	epoch = calloc(1, sizeof(*epoch));
	if (!epoch)
		return ps_no_memory(err);
	epoch->number = number;
	epoch->known = e->o.known;
	atomic_init(&epoch->refs, 2); /* the caller's and ours */
	if (epoch->known)
		rc = known_fill(e, epoch, e->o.world, err);
	else
		epoch->steps = steps_of(&e->o, number, PS_ENDLESS, 1);
	if (!epoch->known && ps_epochs_shares(e, number, &epoch->shares) < 0)
		rc = ps_no_memory(err);
	if (rc == 0 && epoch->known) {
		struct ps_deal_options o = {.lengths = epoch->lengths,
		        .shares = epoch->shares,
		        .sequence = epoch->sequence,
		        .steps = epoch->steps,
		        .begin = epoch->begin,
		        .end = epoch->end,
		        .rank = epoch->rank,
		        .nodes = e->o.nodes && epoch->world > 1 ? e->o.nodes : epoch->world};

		o.sets = ps_order_sets(e->o.order, &o.nsets);
		rc = ps_deal_new(&o, &epoch->deal) < 0 ? ps_no_memory(err) : 0;
	}
	if (rc < 0) {
		atomic_store(&epoch->refs, 1);
		ps_epoch_unref(epoch);
		return rc;
	}
	ps_epoch_unref(e->kept[e->next]);
	e->kept[e->next] = epoch;
	e->next = (e->next + 1) % KEPT;
	*ret_epoch = epoch;
	return 0;
}

void ps_epoch_permuted(const struct ps_epoch *e, uint32_t nshards, uint64_t position, uint32_t *ret_shard,
        uint64_t *ret_ordinal, uint64_t *ret_pass)
{
	struct ps_permutation permutation = e->permutation;
	uint32_t shard;
	uint64_t n;

	if (e->numbers) {
		*ret_pass = 0;
		n = (uint64_t)ps_numbers_at(e->numbers, position);
	} else {
		*ret_pass = position / permutation.n;
		permutation.pass = (uint32_t)*ret_pass;
		n = ps_permutation_at(&permutation, position % permutation.n);
	}
	shard = ps_shard_of_number(e->ends, nshards, n);
	*ret_shard = shard;
	*ret_ordinal = n - (shard > 0 ? e->ends[shard - 1] : 0);
}
