/* The loader's data, shared by its files:
 *
 *   loader_open.c    opening and closing
 *   loader_next.c    batches: next and by number; an epoch's position and length
 *   loader_state.c   writing and reading states
 *   loader_stats.c   statistics and reports
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
	struct ps_packing *packing; /* packed rows of token files; NULL: none */
	struct ps_batch_layout *layout;
	/* the layout of the pipeline if the device makes fields; NULL: it makes none */
	struct ps_batch_layout *made;
	const char *made_not; /* why the device makes no fields although the options allow it; else NULL */
	struct ps_device *device;
	struct ps_gpu_decode gpu;
	struct ps_pipeline *pipeline;
	uint64_t open_ns;
	struct penstock_budget *budget; /* shared; NULL: none */
	uint64_t budget_nbytes;         /* taken from it for batches and buffers */
	uint64_t batch_nbytes;          /* bytes of one batch, without late fields */
	uint64_t spare_nbytes;          /* bytes that further batches beyond `depth` may take */
	struct ps_profile *profile;     /* NULL: not kept */

	/* Used by the calling thread alone (next, set_epoch). */
	int failed;
	struct ps_error why;
	uint32_t bad_run;          /* consecutive bad samples up to the last row delivered */
	bool has_good;             /* a good sample of this epoch was delivered */
	struct ps_error first_bad; /* of the epoch, until a good one comes; err 0: none */
	/* the keys of `why`, of first_bad, and of the newest error of get(); NULL: none */
	char *key, *first_key, *got_key;

	struct ps_columns_source columns; /* calls NULL: shards are files */
	struct ps_shard_indexes *indexes;
	struct ps_random_access *random_access; /* NULL: not used yet */
	struct ps_planner *planner;             /* NULL: no mount takes plans */
	struct ps_state_print print;            /* fingerprint of shards and options; zero until needed */

	_Atomic uint64_t samples, batches, bad, blank, repeats, truncated; /* relaxed atomics: counters */
	struct ps_shard_errors lost;
};

/* Begins to judge the rank's share of an epoch, of which `batches` batches were delivered before; `bad_run`
 * must be set. */
void ps_share_begin(struct penstock_loader *loader, uint64_t batches);

/* What a loader continues with after a state. */
struct ps_resumed {
	struct ps_run run;
	struct ps_order *order; /* NULL: the present one stays */
	struct ps_position at;
	struct ps_offload offload;
	uint32_t bad_run;
};

/* Reads a state, and makes what this loader continues with; the loader is not changed. `flags`:
 * PENSTOCK_STATE_*. -EINVAL, -ESTALE, -ENOMEM. */
int ps_loader_state_read(struct penstock_loader *loader, const void *bytes, size_t size, uint32_t flags,
        struct ps_resumed *ret_resumed, struct ps_error *err) PS_MUST_USE;

/* Takes the run and the order. No thread may use the schedule. Returns the order before, which the caller
 * frees once nothing uses it; NULL: it stays. */
struct ps_order *ps_loader_resume(struct penstock_loader *loader, struct ps_resumed *resumed);

void ps_resumed_fini(struct ps_resumed *resumed);

/* NULL: no mount takes plans, or memory is lacking. A run does not need a planner. */
struct ps_planner *ps_loader_planner(struct penstock_loader *loader, const struct ps_position *at);

#endif
