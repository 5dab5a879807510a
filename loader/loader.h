/* What the files of a loader share:
 *
 *   loader_open.c    opening and closing
 *   loader_next.c    batches: next and by number; an epoch's position and length
 *   loader_state.c   states, written and read
 *   loader_stats.c   what it reports of itself
 *
 * Ownership, threads: as penstock.h says.   Locks: none of its own. */
#ifndef PS_LOADER_H
#define PS_LOADER_H

#include <sys/types.h>

#include "batch/batch.h"
#include "gpu_decode.h"
#include "memory.h"
#include "options.h"
#include "order/order.h"
#include "pipeline/pipeline.h"
#include "public.h"
#include "random_access.h"
#include "resume.h"
#include "shard_errors.h"
#include "state.h"

struct penstock_loader {
	pid_t pid;
	struct ps_options options;
	struct ps_schedule schedule;
	struct ps_batch_layout *layout;
	/* the same for the pipeline, with fields that the device makes; NULL: it makes none */
	struct ps_batch_layout *made;
	const char *made_not; /* why it makes none, though it may; NULL: it does, or may not */
	struct ps_device *device;
	struct ps_gpu_decode gpu;
	struct ps_pipeline *pipeline;
	uint64_t open_ns;
	struct penstock_budget *budget; /* shared; NULL: none */
	uint64_t budget_nbytes;         /* taken from it for batches and buffers */
	uint64_t batch_nbytes;          /* of one, late fields apart */
	uint64_t spare_nbytes;          /* that batches beside `depth` may still take */
	struct ps_profile *profile;     /* NULL: not kept */

	/* The calling thread's (next, set_epoch). */
	int failed;
	struct ps_load_error why;
	uint32_t bad_run; /* consecutive bad samples up to the last row delivered */

	struct ps_shard_indexes *indexes;
	struct ps_random_access *random_access; /* NULL: not asked for yet */
	struct ps_planner *planner;             /* NULL: no mount takes plans */
	struct ps_state_print print;            /* of shards and options; zero until it is needed */

	_Atomic uint64_t samples, batches, bad, blank; /* relaxed: counts */
	struct ps_shard_errors lost;
};

/* Where a state says that this loader shall stand; makes `at`. -EINVAL, -ESTALE, -ENOMEM. */
int ps_loader_state_read(struct penstock_loader *loader, const void *bytes, size_t size,
        struct ps_position *at, uint32_t *ret_bad_run, struct ps_offload *ret_offload,
        struct ps_load_error *err) PS_MUST_USE;

#endif
