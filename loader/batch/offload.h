/* Which samples a GPU decodes (device/nvjpeg.h), the processor the others.
 *
 * A sample's engine is a pure function of (seed, shard, sample) and of the share in force for its batch: a
 * 16-bit number of its own is below it, or not. So neither threads, nor world size, nor where a run was
 * stopped change it, and a larger share takes all samples of a smaller one.
 *
 * The share is given, or found: batches begin with one half, both engines' times are measured, and then the
 * share with which both would be busy to the end is frozen, from the next batch on that is begun; state.c
 * keeps it.
 *
 *   tuning ── ps_offload_settle() says so ──▶ frozen, from (epoch, batch) on; before that the half
 *
 * Threads: counting any; the rest one at a time (the pipeline's lock).   Errors: none.   Blocks: never. */
#ifndef PS_BATCH_OFFLOAD_H
#define PS_BATCH_OFFLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PS_OFFLOAD_ALL 65536u /* of 65536: every sample that can be */
#define PS_OFFLOAD_HALF 32768u

/* What is kept of it. All zero: the processor decodes everything. */
struct ps_offload {
	bool tuning;    /* not frozen yet: the half */
	uint32_t share; /* 0 to PS_OFFLOAD_ALL, where it is frozen: ... */
	uint64_t epoch; /* ... from this epoch's ... */
	uint64_t batch; /* ... batch on; before it the half was in force */
};

/* What the engines took so far. Relaxed: counts. */
struct ps_offload_times {
	_Atomic uint64_t cpu_rows, cpu_ns; /* the processor's: rows, and its threads' time ... */
	_Atomic uint64_t gpu_rows, gpu_ns; /* ... and for rows that it gave to the GPU */
};

/* These, and what the GPU took, at one time. */
struct ps_offload_meter {
	uint64_t cpu_rows, cpu_ns, gpu_rows, gpu_ns;
	uint64_t engine_rows, hybrid_rows; /* by the engine alone; with threads of the processor */
	uint64_t timed_rows, timed_ns;     /* of the engine */
};

/* A row was decoded, or given to the GPU. */
void ps_offload_count(struct ps_offload_times *times, bool given, uint64_t ns);

struct ps_offload_meter ps_offload_read(const struct ps_offload_times *times);

/* The share in force for a batch. */
uint32_t ps_offload_at(const struct ps_offload *offload, uint64_t epoch, uint64_t batch);

bool ps_offload_takes(uint32_t share, uint64_t seed, uint64_t shard, uint64_t sample) __attribute__((const));

/* What a row costs: an engine's seconds of one row; cpu_give: the processor's for a row that the GPU decodes.
 * 0: not known. */
struct ps_offload_costs {
	double cpu, cpu_give, gpu;
};

/* Between two times; an engine with fewer rows than `least` is not known. */
struct ps_offload_costs ps_offload_costs_of(
        const struct ps_offload_meter *from, const struct ps_offload_meter *to, uint64_t least);

/* The share with which `threads` and the GPU are through at the same time. */
uint32_t ps_offload_balance(const struct ps_offload_costs *costs, uint32_t threads);

#define PS_OFFLOAD_COLD 4u  /* batches that are not counted: libraries start */
#define PS_OFFLOAD_LEAST 8u /* batches before it is frozen, ... */
#define PS_OFFLOAD_MOST 64u /* ... and where an engine had no rows by then, it gets none */
#define PS_OFFLOAD_ROWS 64u /* of each engine, that a cost is known by */

/* Freezes it if enough is known after so many batches; it is tuning. (epoch, batch): of the next one that
 * begins. */
void ps_offload_settle(struct ps_offload *offload, uint64_t nbatches, const struct ps_offload_costs *costs,
        uint32_t threads, uint64_t epoch, uint64_t batch);

#endif
