/* The state of a run as bytes: its position, and a fingerprint ("print") of all that determines its order
 * and its pixels.
 *
 *   64-bit words, little endian: the head (see state.c), then eight for each lane in the state, then nine for each
 *   dataset of a mix, then, where a GPU decodes, four for that
 *
 * The print consists of separate words, so that the refusal of a state can name what differs. Rank and world
 * are not in the print: a state has the number of steps and of rows, which is the same on all ranks. The
 * global batch is in it, but not compared, and a loader takes lanes and window of the state if it was not
 * given others. The weights of a mix are not in it: the state has how far each dataset is. States of version
 * 5 (0.3) are read: they have the number of steps alone, and no datasets. The places of lanes that are in a
 * state need not be searched for (resume.h).
 *
 * Ownership: a state owns its lanes.   Threads: any.   Locks: none.   Blocks: never.
 * Errors: -EINVAL: not a state, or damaged; -ESTALE: a state of another run; the text says what differs;
 * -ENOMEM. */
#ifndef PS_STATE_H
#define PS_STATE_H

#include <stddef.h>
#include <stdio.h>

#include "batch/batch.h"
#include "options.h"
#include "order/order.h"
#include "schedule.h"

#define PS_STATE_NPRINT 18
#define PS_STATE_MAX_BATCHES (UINT64_C(1) << 40) /* a state with more is damaged */

#define PS_STATE_NO_ROWS UINT64_MAX

struct ps_state_print {
	uint64_t words[PS_STATE_NPRINT];
	uint64_t sampling_5; /* the word of sampling in states of version 5, with the weights of a mix */
	uint32_t world;      /* not part of the print: for the advice in refusals */
};

struct ps_state_lane {
	uint32_t lane; /* its number among those of all ranks */
	struct ps_lane_position at;
};

struct ps_state {
	uint64_t epoch;
	uint64_t batches; /* delivered batches of the epoch, on each rank */
	uint32_t bad_run; /* consecutive bad samples */
	uint32_t turn;    /* if lengths were not known: the next lane, by its place among the rank's lanes */
	uint32_t rank, world;
	bool known; /* lengths were known */
	uint32_t nlanes;
	struct ps_state_lane *lanes;
	/* samples of the epoch delivered on all ranks; PS_STATE_NO_ROWS: a state of version 5, in which
	 * `batches` and first_batch say it */
	uint64_t rows;
	/* As in struct ps_run; the datasets' `at` is the state's place: */
	uint64_t first_batch, mix_batch;
	uint64_t mix_row; /* the position where the stages begin in this epoch; 0: at its beginning */
	uint32_t block_len;
	uint32_t order_lanes, order_window; /* of the print */
	uint32_t nsets;
	struct ps_run_set *sets;
	bool decodes; /* a GPU decodes, or may decode; if so, the state also has ... */
	struct ps_offload offload;
	uint64_t decoder; /* ... the decoder's fingerprint: another decoder may give other pixels */
};

/* Makes the print of completed options; does nothing if it was made already. Reads all shard names: the print
 * includes their count and the shortest tails that distinguish them, so that a run can continue where the
 * same files are stored under another path. When a shard is opened in which the state has a lane, its size is
 * compared, to check that it is the same file. */
int ps_state_print_make(
        struct ps_state_print *print, const struct ps_options *options, struct ps_error *err) PS_MUST_USE;

/* Takes lanes and window of the options into a print that was made. */
void ps_state_print_lanes(struct ps_state_print *print, const struct ps_options *options);

/* Prints the words as named members of a JSON object; `out` NULL: prints nothing. Returns a hash of all
 * words. */
uint64_t ps_state_print_show(const struct ps_state_print *print, FILE *out);

/* A hash of the names of a dataset's shards. -ENOMEM. */
int ps_state_set_hash(const struct ps_options *options, uint32_t set, uint64_t *ret_hash) PS_MUST_USE;

size_t ps_state_nbytes(uint32_t nlanes, uint32_t nsets, bool decodes);

/* Writes ps_state_nbytes() bytes. */
void ps_state_write(const struct ps_state_print *print, const struct ps_state *state, void *ret_bytes);

/* `flags`: PENSTOCK_STATE_*. */
int ps_state_read(const struct ps_state_print *print, const struct ps_options *options, const void *bytes,
        size_t nbytes, uint32_t flags, struct ps_state *ret_state, struct ps_error *err) PS_MUST_USE;
void ps_state_fini(struct ps_state *state);

#endif
