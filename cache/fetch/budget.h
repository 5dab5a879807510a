/* The memory for data in flight: a fixed number of block-sized, page-aligned buffers, reference-counted.
 *
 * A demand read may take the last buffer; read-ahead and warming leave a reserve for demand reads. No call
 * waits for a buffer. Buffers are kept for reuse while there is traffic, because touching fresh pages costs
 * more than the copy into them, and are given back to the system when idle. Two buffers share a huge page,
 * where the system has huge pages: with small pages, page faults and pinning for the disk took a third of a
 * cold read's CPU time.
 *
 * Ownership: a buffer lives as long as a reference is held. Threads: any. Locks: one, a leaf. Never
 * blocks. */
#ifndef PS_FETCH_BUDGET_H
#define PS_FETCH_BUDGET_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "store/store.h"

struct ps_budget;
struct ps_arena;

struct ps_block_memory {
	uint8_t *data; /* PS_BLOCK_SIZE bytes */
	atomic_uint refs;
	struct ps_budget *budget;
	struct ps_arena *arena; /* contains data */
	struct ps_block_memory *next_free;
};

enum ps_budget_class {
	PS_BUDGET_DEMAND, /* a reader waits for the bytes */
	PS_BUDGET_AHEAD,  /* a reader will soon need the bytes; keeps a quarter of the buffers free */
	PS_BUDGET_LATER,  /* a reader may need the bytes later; keeps half of the buffers free */
};

/* nbytes is rounded down to whole blocks; at least PS_BUDGET_MIN_BLOCKS. NULL: out of memory. */
#define PS_BUDGET_MIN_BLOCKS 16
struct ps_budget *ps_budget_new(uint64_t nbytes);
void ps_budget_free(struct ps_budget *budget); /* precondition: no buffer is referenced */

/* 1/8 of the machine's memory, or of the cgroup's memory limit (v2 or v1) if that is less; at most
 * 512 MiB. */
uint64_t ps_budget_default_bytes(void);
uint64_t ps_budget_limit_bytes(const struct ps_budget *budget);

/* Takes up to n buffers into ret[]; returns how many (0: none now). Each comes with one reference. */
size_t ps_budget_take(
        struct ps_budget *budget, enum ps_budget_class cls, size_t n, struct ps_block_memory **ret);
struct ps_block_memory *ps_block_memory_ref(struct ps_block_memory *buf);
void ps_block_memory_unref(struct ps_block_memory *buf);

/* Lowers the limit by nbytes, for good: another part of the cache uses that memory from now on. Buffers in
 * use are not taken away, so more than the new limit may be in use for a while. */
void ps_budget_give_up(struct ps_budget *budget, uint64_t nbytes);

/* Gives the memory of unused buffers back to the system. A timer calls it after a time without traffic. */
void ps_budget_trim(struct ps_budget *budget);

/* The section "memory"; the caller owns it. */
json_t *ps_budget_stats(struct ps_budget *budget);

#endif
