#include "config.h"

#include "resume.h"

#include <errno.h>

/* True if a state must have this lane. */
static bool is_told(const struct ps_schedule *s, const struct ps_position *at, uint32_t lane)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);

	return !ps_order_mode_scatters(o->mode) && (!o->known || at->lanes[lane].taken > 0);
}

uint32_t ps_resume_nlanes(const struct ps_schedule *s, const struct ps_position *at)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < at->nlanes; i++)
		n += is_told(s, at, i);
	return n;
}

uint32_t ps_resume_most(const struct ps_schedule *s)
{
	return ps_order_mode_scatters(ps_epochs_options(s->epochs)->mode) ? 0 : ps_order_nlanes(s->order);
}

int ps_resume_state(const struct ps_schedule *s, const struct ps_position *at, uint32_t bad_run,
        struct ps_state *ret_state, struct ps_error *err)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);
	struct ps_state state = {.epoch = at->epoch,
	        .batches = at->batches,
	        .bad_run = bad_run,
	        .turn = at->turn,
	        .rank = s->rank,
	        .world = s->world,
	        .known = o->known,
	        .nlanes = ps_resume_nlanes(s, at)};
	uint32_t n = 0;

	state.lanes = calloc(PS_MAX(state.nlanes, 1u), sizeof(*state.lanes));
	if (!state.lanes)
		return ps_no_memory(err);
	for (uint32_t i = 0; i < at->nlanes; i++)
		if (is_told(s, at, i))
			state.lanes[n++] = (struct ps_state_lane){
			        .lane = ps_order_lane(s->order, i), .at = at->lanes[i]};
	*ret_state = state;
	return 0;
}

/* The position of a lane in a state, or NULL. */
static const struct ps_lane_position *saved(const struct ps_state *state, uint32_t lane)
{
	uint32_t low = 0, high = state->nlanes;

	while (low < high) { /* lanes are in ascending order */
		uint32_t mid = low + (high - low) / 2;

		if (state->lanes[mid].lane < lane)
			low = mid + 1;
		else
			high = mid;
	}
	return low < state->nlanes && state->lanes[low].lane == lane ? &state->lanes[low].at : NULL;
}

/* The number of samples of the x-th of n lanes before position q, while no lane has ended. */
static uint64_t taken_of(uint64_t q, uint32_t x, uint32_t n)
{
	return q > x ? (q - x - 1) / n + 1 : 0;
}

/* Resumes where lengths are known, or were known to the ranks that saved the state. The number of steps gives
 * the position if the saving run and this one cut the epoch into the same steps. */
static int resume_known(const struct ps_schedule *s, const struct ps_state *state, struct ps_position *at,
        struct ps_error *err)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);
	struct ps_epoch *epoch;
	struct ps_steps theirs;
	int rc = ps_epochs_count(s->epochs, state->epoch, &epoch, err);

	if (rc == -ENODATA)
		return ps_error_set(err, ESTALE,
		        "the state was saved by rank %u of world %u, where every shard had an index; this "
		        "loader needs them, too: %s",
		        state->rank, state->world, err->text);
	if (rc < 0)
		return rc;
	at->known = true;
	theirs = epoch->steps;
	theirs.world = state->world;
	theirs.batch = (uint32_t)((uint64_t)o->batch * o->world / state->world);
	if (ps_steps_begin(&theirs, state->batches) != ps_steps_begin(&epoch->steps, state->batches) ||
	        (!state->known && state->batches > 0 && state->world > 1))
		rc = ps_error_set(err, ESTALE,
		        "the state was saved by rank %u of world %u at the end of an epoch, which world %u "
		        "cuts "
		        "into other batches; continue with world %u, or start the next epoch",
		        state->rank, state->world, o->world, state->world);
	ps_epoch_unref(epoch);
	for (uint32_t i = 0; i < at->nlanes && rc == 0; i++) {
		const struct ps_lane_position *l = saved(state, ps_order_lane(s->order, i));

		if (l)
			at->lanes[i] = *l;
		else
			at->lanes[i].k = PS_PLACE_UNKNOWN;
	}
	return rc;
}

/* True if no lane of the state had ended: each has delivered as many samples as strict turns give. */
static bool is_regular(const struct ps_schedule *s, const struct ps_state *state)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);
	uint64_t rows = state->batches * ((uint64_t)o->batch * o->world / state->world);

	for (uint32_t i = 0; i < state->nlanes; i++) {
		const struct ps_lane_position *l = &state->lanes[i].at;

		if (ps_order_block_begin(s->order, state->epoch, l->block) + l->taken !=
		        taken_of(rows, i, state->nlanes))
			return false;
	}
	return state->nlanes > 0;
}

/* True if the state has all lanes of this rank. */
static bool is_own(const struct ps_schedule *s, const struct ps_state *state, const struct ps_position *at)
{
	if (state->known || state->world != ps_epochs_options(s->epochs)->world ||
	        state->nlanes != at->nlanes)
		return false;
	for (uint32_t i = 0; i < at->nlanes; i++)
		if (!saved(state, ps_order_lane(s->order, i)))
			return false;
	return true;
}

/* The position of a lane after `taken` delivered samples. It counts from the block of `saved`. If there is no
 * saved place, or its block begins after the position, it counts from the position's own block, and the place
 * in the shards is unknown. */
static void lane_position(const struct ps_order *order, uint64_t epoch, uint64_t taken,
        const struct ps_lane_position *saved, struct ps_lane_position *ret)
{
	uint64_t block = ps_order_block_of(order, epoch, taken);
	uint64_t begin = ps_order_block_begin(order, epoch, block);

	*ret = (struct ps_lane_position){
	        .block = block, .k = PS_PLACE_UNKNOWN, .taken = (uint32_t)(taken - begin)};
	if (!saved)
		return;
	begin = ps_order_block_begin(order, epoch, saved->block);
	if (begin <= taken && taken - begin <= UINT32_MAX) {
		*ret = *saved;
		ret->taken = (uint32_t)(taken - begin);
	}
}

/* Resumes where lengths are not known, and the state is of another rank or world. */
static int resume_other(const struct ps_schedule *s, const struct ps_state *state, struct ps_position *at,
        struct ps_error *err)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);
	uint64_t rows = state->batches * o->batch;
	uint32_t all = ps_order_all_lanes(s->order);
	const char *why = NULL;

	if (state->known)
		why = ", where the lengths of lanes were known (by indexes, for example)";
	else if (!is_regular(s, state))
		why = " when lanes had begun to end";
	else if (state->world != o->world && (all % state->world || all % o->world))
		why = ", and lanes are dealt differently in the two worlds";
	if (why)
		return ps_error_set(err, ESTALE,
		        "the state was saved by rank %u of world %u%s: this is rank %u of world "
		        "%u; continue with each rank's own state, or index the shards and take another end "
		        "than uneven",
		        state->rank, state->world, why, s->rank, o->world);
	at->turn = (uint32_t)(rows % at->nlanes);
	for (uint32_t i = 0; i < at->nlanes; i++) {
		uint64_t taken = taken_of(rows, i, at->nlanes);
		const struct ps_lane_position *l = saved(state, ps_order_lane(s->order, i));

		lane_position(s->order, state->epoch, taken, l, &at->lanes[i]);
	}
	return 0;
}

/* Resumes an order of sample numbers: the number of steps gives the position. */
static int resume_numbers(const struct ps_schedule *s, const struct ps_state *state, struct ps_position *at,
        struct ps_error *err)
{
	struct ps_epoch *epoch;
	int rc = ps_epochs_get(s->epochs, state->epoch, &epoch, err);

	if (rc < 0)
		return rc;
	if (state->batches > ps_steps_count(&epoch->steps, 0))
		rc = ps_error_set(err, EINVAL, "the state is damaged");
	ps_epoch_unref(epoch);
	for (uint32_t i = 0; i < at->nlanes; i++)
		at->lanes[i].k = PS_PLACE_UNKNOWN;
	return rc;
}

int ps_resume_position(const struct ps_schedule *s, const struct ps_state *state, struct ps_position *at,
        struct ps_error *err)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);

	ps_position_begin(at, state->epoch);
	at->batches = state->batches;
	if (o->numbers && state->world != s->world)
		return ps_error_set(err, ESTALE,
		        "the state was saved by rank %u of world %u, and order gives each rank its own "
		        "numbers: this "
		        "is rank %u of world %u; continue with world %u, or start the next epoch",
		        state->rank, state->world, s->rank, s->world, state->world);
	if (state->batches == 0)
		return 0;
	if (o->numbers)
		return resume_numbers(s, state, at, err);
	if (o->known || (o->world == 1 && state->known))
		return resume_known(s, state, at, err);
	if (!is_own(s, state, at))
		return resume_other(s, state, at, err);
	if (state->turn >= at->nlanes)
		return ps_error_set(err, EINVAL, "the state is damaged");
	at->turn = state->turn;
	for (uint32_t i = 0; i < at->nlanes; i++)
		at->lanes[i] = *saved(state, ps_order_lane(s->order, i));
	return 0;
}
