#include "config.h"

#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/size.h"
#include "shard/shard.h"

/* Budgets that loaders share ---------------------------------------------------------------------------- */

struct penstock_budget *penstock_budget_new(uint64_t nbytes)
{
	struct penstock_budget *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->count.limit = b->reserved.limit = nbytes;
	atomic_store(&b->refs, 1);
	return b;
}

uint64_t penstock_budget_used(const struct penstock_budget *b)
{
	return atomic_load_explicit(&b->count.used, memory_order_relaxed);
}

void penstock_budget_free(struct penstock_budget *b)
{
	ps_public_budget_unref(b);
}

/* Bytes as MiB, rounded up. */
static uint64_t mib(uint64_t n)
{
	return (n >> 20) + ((n & ((1 << 20) - 1)) != 0);
}

int ps_public_budget_reserve(struct penstock_budget *b, uint64_t nbytes, struct ps_error *err)
{
	if (!ps_byte_budget_take(&b->reserved, nbytes))
		return ps_error_set(err, E2BIG,
		        "budget of %ju MiB, shared with other loaders: their batches hold %ju MiB, and this "
		        "loader's "
		        "batches and read buffers need %ju MiB; raise the budget, or lower batch, depth or "
		        "lanes",
		        (uintmax_t)(b->count.limit >> 20), (uintmax_t)(atomic_load(&b->reserved.used) >> 20),
		        (uintmax_t)mib(nbytes));
	ps_byte_budget_force(&b->count, nbytes);
	return 0;
}

void ps_public_budget_release(struct penstock_budget *b, uint64_t nbytes)
{
	ps_byte_budget_give(&b->reserved, nbytes);
	ps_byte_budget_give(&b->count, nbytes);
}

struct penstock_budget *ps_public_budget_ref(struct penstock_budget *b)
{
	if (b)
		atomic_fetch_add(&b->refs, 1);
	return b;
}

void ps_public_budget_unref(struct penstock_budget *b)
{
	if (b && atomic_fetch_sub(&b->refs, 1) == 1)
		free(b);
}

/* Division of a loader's budget ------------------------------------------------------------------------- */

#define DEPTH_AUTO 4
#define BUF_NBYTES (1UL << 20)
#define IMAGES_MAX (64UL << 20)
#define IMAGES_BEYOND (24UL << 20) /* part of the 64 MiB by which a process may exceed its budget */

/* The number of shards that stay open: all lanes that the rank reads, but with at most a quarter of the
 * process's descriptors, and with read buffers of at most an eighth of the budget. */
static uint32_t open_files_most(const struct penstock_options *o, uint32_t nlanes)
{
	uint64_t most = o->memory_budget / 8 / PS_STREAM_BUF_MIN;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		most = PS_MIN(most, (uint64_t)limit.rlim_cur / 4);
	return (uint32_t)PS_MIN(PS_MAX(most, UINT64_C(1)), (uint64_t)nlanes);
}

int ps_memory_plan(const struct penstock_options *o, size_t batch_nbytes, uint32_t nlanes,
        struct ps_memory *ret_memory, struct ps_error *err)
{
	struct ps_memory m = {
	        .depth = o->depth ? o->depth : DEPTH_AUTO, .open_files = open_files_most(o, nlanes)};
	uint64_t share = o->memory_budget / 8 / m.open_files;
	uint64_t batches, bufs, all;

	while (!o->depth && m.depth > 2 && batch_nbytes > o->memory_budget / 2 / m.depth)
		m.depth--;
	m.buf_nbytes = (size_t)PS_MIN(PS_MAX(share, PS_STREAM_BUF_MIN), BUF_NBYTES);
	if (!ps_u64_mul(batch_nbytes, m.depth, &batches) || !ps_u64_mul(m.buf_nbytes, m.open_files, &bufs) ||
	        !ps_u64_add(batches, bufs, &all))
		return ps_error_set(err, E2BIG, "batches are larger than the address space");
	if (all > o->memory_budget)
		return ps_error_set(err, E2BIG,
		        "memory_budget of %ju MiB: %u batches of %ju MiB and %u read buffers need %ju MiB; "
		        "raise memory_budget, or lower batch, depth, the image size or lanes",
		        (uintmax_t)(o->memory_budget >> 20), m.depth, (uintmax_t)mib(batch_nbytes),
		        m.open_files, (uintmax_t)mib(all));
	m.window_nbytes = o->memory_budget - all;
	/* Only progressive and interlaced images, WebP, and those to be turned need image_nbytes. Most
	 * datasets have few of them, but where there are any, many may be decoded at once. */
	m.image_nbytes = PS_MIN(m.window_nbytes / 4, IMAGES_MAX);
	m.window_nbytes -= m.image_nbytes;
	m.image_nbytes += IMAGES_BEYOND;
	*ret_memory = m;
	return 0;
}
