#include "config.h"

#include "batch/batch.h"

#include "base/cleanup.h"
#include "random/random.h"

uint32_t ps_offload_at(const struct ps_offload *s, uint64_t epoch, uint64_t batch)
{
	bool before = epoch < s->epoch || (epoch == s->epoch && batch < s->batch);

	return s->tuning || before ? PS_OFFLOAD_HALF : s->share;
}

bool ps_offload_takes(uint32_t share, uint64_t seed, uint64_t shard, uint64_t sample)
{
	const struct ps_rng_key key = {.seed = seed, .shard = shard, .sample = sample};

	if (share == 0 || share >= PS_OFFLOAD_ALL)
		return share > 0;
	return ps_rng_u64(&key, PS_RNG_ENGINE, 0) >> 48 < share;
}

void ps_offload_count(struct ps_offload_times *t, bool given, uint64_t ns)
{
	atomic_fetch_add_explicit(given ? &t->gpu_rows : &t->cpu_rows, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(given ? &t->gpu_ns : &t->cpu_ns, ns, memory_order_relaxed);
}

struct ps_offload_meter ps_offload_read(const struct ps_offload_times *t)
{
	return (struct ps_offload_meter){
	        .cpu_rows = atomic_load_explicit(&t->cpu_rows, memory_order_relaxed),
	        .cpu_ns = atomic_load_explicit(&t->cpu_ns, memory_order_relaxed),
	        .gpu_rows = atomic_load_explicit(&t->gpu_rows, memory_order_relaxed),
	        .gpu_ns = atomic_load_explicit(&t->gpu_ns, memory_order_relaxed),
	};
}

static double cost(uint64_t rows, uint64_t ns, uint64_t least)
{
	return rows < least || rows == 0 ? 0 : (double)PS_MAX(ns, 1u) / 1e9 / (double)rows;
}

/* Hybrid decoding (with CPU threads) takes almost no time of the GPU. */
#define HYBRID_COST 1e-9

struct ps_offload_costs ps_offload_costs_of(
        const struct ps_offload_meter *from, const struct ps_offload_meter *to, uint64_t least)
{
	bool hybrid = to->hybrid_rows - from->hybrid_rows > to->engine_rows - from->engine_rows;

	return (struct ps_offload_costs){
	        .cpu = cost(to->cpu_rows - from->cpu_rows, to->cpu_ns - from->cpu_ns, least),
	        .cpu_give = cost(to->gpu_rows - from->gpu_rows, to->gpu_ns - from->gpu_ns, least),
	        .gpu = hybrid ? HYBRID_COST
	                      : cost(to->timed_rows - from->timed_rows, to->timed_ns - from->timed_ns,
	                                least)};
}

uint32_t ps_offload_balance(const struct ps_offload_costs *c, uint32_t threads)
{
	double saved = c->cpu - c->cpu_give, share;

	if (c->cpu <= 0 || c->gpu <= 0 || saved <= 0)
		return 0;
	/* share * gpu = ((1 - share) * cpu + share * cpu_give) / threads */
	share = c->cpu / (threads * c->gpu + saved);
	return share >= 1 ? PS_OFFLOAD_ALL : (uint32_t)(share * PS_OFFLOAD_ALL + 0.5);
}

void ps_offload_settle(struct ps_offload *s, uint64_t nbatches, const struct ps_offload_costs *costs,
        uint32_t threads, uint64_t epoch, uint64_t batch)
{
	bool known = costs->cpu > 0 && costs->gpu > 0;

	if (nbatches < PS_OFFLOAD_LEAST || (!known && nbatches < PS_OFFLOAD_MOST))
		return;
	*s = (struct ps_offload){.share = ps_offload_balance(costs, threads), .epoch = epoch, .batch = batch};
}
