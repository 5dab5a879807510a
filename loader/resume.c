#include "config.h"

#include "resume.h"

#include <errno.h>
#include <stdio.h>

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

uint32_t ps_resume_nsets(const struct ps_schedule *s)
{
	return s->run.nsets + s->run.ngone;
}

/* Samples that were delivered before a position, on all ranks. */
static int rows_of(
        const struct ps_schedule *s, const struct ps_position *at, uint64_t *ret_rows, struct ps_error *err)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);
	struct ps_epoch *epoch;
	int rc;

	*ret_rows = 0;
	if (at->batches == 0)
		return 0;
	if (!o->known) {
		*ret_rows = at->rows * o->world;
		return 0;
	}
	rc = ps_epochs_get(s->epochs, at->epoch, &epoch, err);
	if (rc < 0)
		return rc;
	*ret_rows = ps_steps_begin(&epoch->steps, at->batches);
	ps_epoch_unref(epoch);
	return 0;
}

/* Fills in where the datasets of a mix are after `rows` samples of an epoch. */
static int places_find(
        const struct ps_schedule *s, uint64_t epoch, uint64_t rows, struct ps_share_base *ret_places)
{
	struct ps_shares *shares;

	if (ps_epochs_shares(s->epochs, epoch, &shares) < 0)
		return -ENOMEM;
	ps_shares_at(shares, ps_epochs_options(s->epochs)->skip + rows, ret_places);
	ps_shares_free(shares);
	return 0;
}

int ps_resume_state(const struct ps_schedule *s, const struct ps_position *at, uint32_t bad_run,
        struct ps_state *ret_state, struct ps_error *err)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);
	const struct ps_run *run = &s->run;
	bool based = run->from.base && at->epoch == run->from.epoch;
	struct ps_share_base places[PS_MAX_SETS];
	struct ps_state state = {.epoch = at->epoch,
	        .batches = at->batches,
	        .bad_run = bad_run,
	        .turn = at->turn,
	        .rank = s->rank,
	        .world = s->world,
	        .known = o->known,
	        .nlanes = ps_resume_nlanes(s, at),
	        .first_batch = run->first_batch,
	        .mix_batch = run->mix_batch,
	        .mix_row = based ? run->from.row : 0,
	        .block_len = run->block_len,
	        .nsets = ps_resume_nsets(s)};
	uint32_t n = 0;
	int rc = rows_of(s, at, &state.rows, err);

	if (rc == 0 && run->nsets > 0 && places_find(s, at->epoch, state.rows, places) < 0)
		rc = ps_no_memory(err);
	if (rc < 0)
		return rc;
	state.lanes = calloc(PS_MAX(state.nlanes, 1u), sizeof(*state.lanes));
	state.sets = calloc(PS_MAX(state.nsets, 1u), sizeof(*state.sets));
	if (!state.lanes || !state.sets) {
		ps_state_fini(&state);
		return ps_no_memory(err);
	}
	for (uint32_t i = 0; i < at->nlanes; i++)
		if (is_told(s, at, i))
			state.lanes[n++] = (struct ps_state_lane){
			        .lane = ps_order_lane(s->order, i), .at = at->lanes[i]};
	for (uint32_t d = 0; d < state.nsets; d++) {
		struct ps_run_set *set = &state.sets[d];

		*set = run->sets[d];
		if (!based)
			set->base = (struct ps_share_base){0};
		set->at = d < run->nsets ? places[d] : set->base;
	}
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

/* The samples that were delivered before the state, on all ranks; in a state of version 5 the number of steps
 * says it. */
static uint64_t delivered(
        const struct ps_schedule *s, const struct ps_state *state, const struct ps_epoch *epoch)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);
	struct ps_steps theirs = {.samples = PS_ENDLESS, .world = state->world, .end = o->end};
	uint64_t total = epoch && epoch->known ? ps_sequence_total(epoch->sequence) : PS_ENDLESS;

	if (state->rows != PS_STATE_NO_ROWS)
		return state->rows;
	theirs.batch = (uint32_t)(state->first_batch / state->world);
	if (total != PS_ENDLESS)
		theirs.samples = PS_MIN(total > o->skip ? total - o->skip : 0, o->take);
	return ps_steps_begin(&theirs, state->batches);
}

/* Resumes where lengths are known, or were known to the ranks that saved the state: the number of rows gives
 * the position. */
static int resume_known(const struct ps_schedule *s, const struct ps_state *state, struct ps_position *at,
        uint64_t *ret_rows, struct ps_error *err)
{
	struct ps_epoch *epoch;
	int rc = ps_epochs_count(s->epochs, state->epoch, &epoch, err);

	if (rc == -ENODATA)
		return ps_error_set(err, ESTALE,
		        "the state was saved by rank %u of world %u, where every shard had an index; this "
		        "loader needs them, too: %s",
		        state->rank, state->world, err->text);
	if (rc < 0)
		return rc;
	at->known = true;
	*ret_rows = delivered(s, state, epoch);
	ps_epoch_unref(epoch);
	if (!state->known && state->world > 1)
		return ps_error_set(err, ESTALE,
		        "the state was saved by rank %u of world %u, where each rank had its own shards; "
		        "continue "
		        "without the shards' indexes, or start the next epoch",
		        state->rank, state->world);
	for (uint32_t i = 0; i < at->nlanes; i++) {
		const struct ps_lane_position *l = saved(state, ps_order_lane(s->order, i));

		if (l)
			at->lanes[i] = *l;
		else
			at->lanes[i].k = PS_PLACE_UNKNOWN;
	}
	return 0;
}

/* True if no lane of the state had ended: each has delivered as many samples as strict turns give. */
static bool is_regular(const struct ps_schedule *s, const struct ps_state *state)
{
	uint64_t rows = delivered(s, state, NULL) / state->world;

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
	uint64_t rows = delivered(s, state, NULL) / o->world;
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

/* Sets the position at which this rank continues, and the rows delivered before it, on all ranks. */
static int position_find(const struct ps_schedule *s, const struct ps_state *state, struct ps_position *at,
        uint64_t *ret_rows, struct ps_error *err)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);

	ps_position_begin(at, state->epoch);
	at->batches = state->batches;
	*ret_rows = 0;
	if (o->numbers && state->world != s->world)
		return ps_error_set(err, ESTALE,
		        "the state was saved by rank %u of world %u, and order gives each rank its own "
		        "numbers: this "
		        "is rank %u of world %u; continue with world %u, or start the next epoch",
		        state->rank, state->world, s->rank, s->world, state->world);
	if (state->batches == 0)
		return 0;
	if (!o->numbers && state->rows == PS_STATE_NO_ROWS && state->first_batch % state->world)
		return ps_error_set(err, EINVAL, "the state is damaged");
	*ret_rows = delivered(s, state, NULL);
	if (o->numbers)
		return resume_numbers(s, state, at, err);
	if (o->known || (o->world == 1 && state->known))
		return resume_known(s, state, at, ret_rows, err);
	if (s->run.nsets > 0)
		return ps_error_set(err, ESTALE,
		        "a mix can be resumed in the middle of an epoch if the number of samples of every "
		        "shard is "
		        "known: index the shards (penstock-loader index, or index=\"make\"), or start the "
		        "next epoch");
	at->rows = *ret_rows / o->world;
	if (!is_own(s, state, at))
		return resume_other(s, state, at, err);
	if (state->turn >= at->nlanes)
		return ps_error_set(err, EINVAL, "the state is damaged");
	at->turn = state->turn;
	for (uint32_t i = 0; i < at->nlanes; i++)
		at->lanes[i] = *saved(state, ps_order_lane(s->order, i));
	return 0;
}

/* Mixes -------------------------------------------------------------------------------------------------- */

static const struct ps_run_set *set_find(const struct ps_state *state, uint64_t name)
{
	for (uint32_t i = 0; i < state->nsets; i++)
		if (state->sets[i].name == name)
			return &state->sets[i];
	return NULL;
}

static const char *name_of(const struct ps_options *options, uint32_t d, char buf[static 16])
{
	snprintf(buf, 16, "%u", d);
	return options->mix_names ? options->mix_names[d] : buf;
}

/* Takes the datasets of a state into the run: those of this loader, then those that it does not have. */
static int sets_take(struct ps_run *run, const struct ps_schedule *s, const struct ps_options *options,
        const struct ps_state *state, bool new_mix, struct ps_error *err)
{
	uint32_t n = s->run.nsets, found = 0;
	char buf[16];

	run->nsets = n;
	run->sets = calloc(n + state->nsets, sizeof(*run->sets));
	run->bases = calloc(n, sizeof(*run->bases));
	if (!run->sets || !run->bases)
		return ps_no_memory(err);
	for (uint32_t d = 0; d < n; d++) {
		const struct ps_run_set *set = set_find(state, s->run.sets[d].name);

		run->sets[d] =
		        (struct ps_run_set){.name = s->run.sets[d].name, .shards = s->run.sets[d].shards};
		if (!set)
			continue;
		found++;
		if (set->shards != run->sets[d].shards)
			return ps_error_set(err, ESTALE,
			        "the state was saved with other shards of dataset \"%.200s\"; open the "
			        "loader with "
			        "those, or give the new dataset another name",
			        name_of(options, d, buf));
		run->sets[d] = *set;
	}
	if (state->nsets > 0 && found < n && !new_mix)
		return ps_error_set(err, ESTALE,
		        "the state was saved by a loader with other datasets; open this loader with those of "
		        "the state, or "
		        "begin another mix at the state's place (mix=\"new\", PENSTOCK_STATE_NEW_MIX)");
	for (uint32_t i = 0; i < state->nsets; i++) {
		bool mine = false;

		for (uint32_t d = 0; d < n && !mine; d++)
			mine = s->run.sets[d].name == state->sets[i].name;
		if (!mine)
			run->sets[n + run->ngone++] = state->sets[i];
	}
	return 0;
}

static int lane_compare(const void *a, const void *b)
{
	const struct ps_state_lane *x = a, *y = b;

	return (x->lane > y->lane) - (x->lane < y->lane);
}

/* Numbers the lanes of a state as the run's order does: a dataset may have another place in the list, or be
 * gone. */
static void lanes_renumber(const struct ps_run *run, const struct ps_order *order,
        const struct ps_state *state, struct ps_state_lane *ret_lanes, uint32_t *ret_n)
{
	uint32_t nsets, n = 0;
	const struct ps_lane_set *sets = ps_order_sets(order, &nsets);

	for (uint32_t i = 0, set = 0, first = 0; i < state->nlanes; i++) {
		uint32_t lane = state->lanes[i].lane, d = 0;

		while (set < state->nsets &&
		        lane >= first + state->sets[set].lanes) /* lanes are in ascending order */
			first += state->sets[set++].lanes;
		while (set < state->nsets && d < nsets && run->sets[d].name != state->sets[set].name)
			d++;
		if (set == state->nsets || d == nsets || lane - first >= sets[d].n)
			continue;
		ret_lanes[n] = state->lanes[i];
		ret_lanes[n++].lane = sets[d].first + (lane - first);
	}
	qsort(ret_lanes, n, sizeof(*ret_lanes), lane_compare);
	*ret_n = n;
}

/* What depends on the other datasets cannot go on with others: random choices by a shard's number in the
 * list. */
static int new_mix_check(const struct ps_schedule *s, const struct ps_options *options,
        const struct ps_state *state, struct ps_error *err)
{
	bool packed = options->names != options->shards.names && !options->o.columns;
	bool moved = false, other = s->run.nsets != state->nsets;

	for (uint32_t d = 0; d < s->run.nsets; d++) {
		const struct ps_run_set *set = set_find(state, s->run.sets[d].name);

		moved = moved || (set && set != &state->sets[d]);
		other = other || !set;
	}
	if (s->select && (moved || other))
		return ps_error_set(err, ESTALE,
		        "the state was saved by a loader with other datasets, or in another order: with "
		        "filter, weights, "
		        "balance or draws only their weights in the mix may change");
	if (packed && moved)
		return ps_error_set(err, ESTALE,
		        "the state was saved by a loader with its datasets in another order: packed datasets "
		        "keep their "
		        "places in the list; add new ones at its end, and give weight 0 to one that is not "
		        "wanted");
	return 0;
}

/* Refuses a state unless the mix of the run gives the same place for each dataset. */
static int places_check(const struct ps_schedule *next, const struct ps_options *options,
        const struct ps_state *state, uint64_t rows, struct ps_error *err)
{
	struct ps_share_base places[PS_MAX_SETS];
	char buf[16];

	if (places_find(next, state->epoch, rows, places) < 0)
		return ps_no_memory(err);
	for (uint32_t d = 0; d < next->run.nsets; d++) {
		const struct ps_share_base *theirs = &next->run.sets[d].at;

		if (places[d].given != theirs->given || places[d].sum != theirs->sum)
			return ps_error_set(err, ESTALE,
			        "the state was saved by a loader with another mix: dataset \"%.200s\" had "
			        "given %ju of %ju "
			        "rows, and by this mix it would have given %ju; open the loader with the mix "
			        "of the state, "
			        "or begin this one at the state's place (mix=\"new\", "
			        "PENSTOCK_STATE_NEW_MIX)",
			        name_of(options, d, buf), (uintmax_t)theirs->given, (uintmax_t)rows,
			        (uintmax_t)places[d].given);
	}
	return 0;
}

/* Where the stages of the mix begin in the state's epoch. */
static void bases_set(struct ps_run *run, const struct ps_state *state, uint64_t begin, bool new_mix)
{
	run->from.row = new_mix ? begin : state->mix_row;
	if (new_mix)
		run->mix_batch = 0;
	for (uint32_t d = 0; d < run->nsets + run->ngone; d++) {
		if (new_mix)
			run->sets[d].base = run->sets[d].at;
		if (d < run->nsets)
			run->bases[d] = run->sets[d].base;
		else
			run->from.gone += run->sets[d].base.given;
	}
	run->from.base = run->from.row > 0 ? run->bases : NULL;
}

/* True if the order of the run is the present one. */
static bool is_same_order(const struct ps_schedule *s, const struct ps_run *run)
{
	bool same = run->lanes == s->run.lanes && run->window == s->run.window &&
	            run->block_len == s->run.block_len && run->nsets == s->run.nsets;

	for (uint32_t d = 0; d < run->nsets && same; d++)
		same = run->sets[d].lanes == s->run.sets[d].lanes; /* their names are the loader's */
	return same;
}

int ps_resume(const struct ps_schedule *s, const struct ps_options *options, const struct ps_state *state,
        uint32_t flags, struct ps_run *ret_run, struct ps_order **ret_order, struct ps_position *ret_at,
        struct ps_error *err)
{
	const struct ps_epochs_options *o = ps_epochs_options(s->epochs);
	bool dealt = o->mode == PS_ORDER_WINDOW || o->mode == PS_ORDER_SHARDS;
	bool new_mix = (flags & PENSTOCK_STATE_NEW_MIX) && s->run.nsets > 0;
	struct ps_run run = {.first_batch = state->first_batch,
	        .mix_batch = state->mix_batch,
	        .lanes = dealt && state->order_lanes > 0 ? state->order_lanes : s->run.lanes,
	        .window = dealt && state->order_window > 0 ? state->order_window : s->run.window,
	        .block_len = state->block_len,
	        .from = {.epoch = state->epoch, .batches = state->batches}};
	struct ps_schedule next = *s;
	struct ps_order *order = NULL;
	struct ps_state here = *state; /* with lanes as this order numbers them */
	ps_autofree struct ps_state_lane *lanes = NULL;
	int rc = 0;

	*ret_at = (struct ps_position){0};
	if (options->numbers)
		run.first_batch = run.mix_batch = s->run.first_batch;
	if (s->run.nsets > 0)
		rc = sets_take(&run, s, options, state, new_mix, err);
	if (rc == 0 && new_mix)
		rc = new_mix_check(s, options, state, err);
	if (rc == 0 && s->run.nsets > 0) {
		bases_set(
		        &run, state, o->skip + (state->rows == PS_STATE_NO_ROWS ? 0 : state->rows), new_mix);
		if (new_mix || state->nsets == 0)
			run.mix_batch = (uint64_t)o->batch * o->world;
	}
	if (rc == 0)
		rc = ps_schedule_order(s, options, &run, &order, err);
	if (rc == 0)
		next.order = order;
	if (rc == 0 && ps_position_init(ret_at, ps_order_nlanes(next.order)) < 0)
		rc = ps_no_memory(err);
	if (rc == 0 && state->nsets > 0 && s->run.nsets > 0) {
		here.lanes = lanes = calloc(PS_MAX(state->nlanes, 1u), sizeof(*lanes));
		if (lanes)
			lanes_renumber(&run, order, state, lanes, &here.nlanes);
		else
			rc = ps_no_memory(err);
	}
	if (rc == 0)
		rc = position_find(&next, &here, ret_at, &run.from.rows, err);
	if (rc == 0 && state->nsets > 0 && s->run.nsets > 0) {
		struct ps_epochs *epochs = ps_epochs_new(o);

		next.run = run;
		next.epochs = epochs;
		if (epochs)
			ps_epochs_begin(epochs, next.order, PS_ENDLESS, run.stages, run.nstages, &run.from);
		rc = epochs ? places_check(&next, options, state, run.from.rows, err) : ps_no_memory(err);
		ps_epochs_free(epochs);
	}
	if (rc < 0) {
		ps_position_fini(ret_at);
		ps_order_free(order);
		ps_run_fini(&run);
		return rc;
	}
	if (is_same_order(s, &run)) {
		ps_order_free(order);
		order = NULL;
	}
	*ret_run = run;
	*ret_order = order;
	return 0;
}
