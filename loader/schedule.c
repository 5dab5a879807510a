#include "config.h"

#include "schedule.h"
#include "shard/shard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/hash.h"
#include "base/size.h"

/* Counts ------------------------------------------------------------------------------------------------- */

static int shard_count(
        void *ctx, uint64_t epoch, uint64_t pass, uint32_t shard, uint64_t *ret_count, struct ps_error *err)
{
	struct ps_schedule *s = ctx;
	struct ps_select_view *view;
	int rc;

	if (s->select) {
		rc = ps_select_open(s->select, shard, epoch, pass, &view, err);
		if (rc < 0)
			return rc;
		rc = ps_select_count(view, 0, 0, ret_count, err);
		ps_select_close(view);
		return rc;
	}
	rc = ps_shard_indexes_count(s->indexes, shard, ret_count, err);
	return rc < 0 && rc != -ENOMEM ? ps_error_set(err, ENODATA, "%s", err ? err->text : "") : rc;
}

/* Checks that all shards' counts are known; if not, err names the first that is not, and why. */
static int counts_find(struct ps_schedule *s, struct ps_error *err)
{
	for (uint32_t i = 0; i < s->nshards; i++) {
		uint64_t n;
		int rc = ps_shard_indexes_count(s->indexes, i, &n, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Requirements of the options --------------------------------------------------------------------------- */

/* Why counts are needed: a text for "... needs the number of samples of every shard", or NULL. */
static const char *counts_reason(const struct penstock_options *o, bool endless)
{
	static const char *const ends[] = {[PENSTOCK_END_DROP_LAST] = "end drop_last with world > 1",
	        [PENSTOCK_END_PAD] = "end pad with world > 1",
	        [PENSTOCK_END_SPLIT] =
	                "world > 1 (end split, the default: the same number of batches on each rank)",
	        [PENSTOCK_END_GATHER] = "end gather with world > 1"};

	if (o->order == PENSTOCK_ORDER_PERMUTATION)
		return "order permutation";
	if (o->order == PENSTOCK_ORDER_NUMBERS)
		return "an order of sample numbers";
	if (endless)
		return NULL;
	if (o->nmix > 1 && o->mix_end == PENSTOCK_MIX_LONGEST)
		return "mix_end longest";
	if (o->world < 2)
		return NULL;
	if (o->end < PS_ARRAY_LEN(ends) && ends[o->end])
		return ends[o->end];
	if (o->nmix > 1)
		return "mix with world > 1";
	return o->skip || o->take ? "skip or take with world > 1" : NULL;
}

/* True if the options work without lengths, but something is refused or slow without them: with lengths a
 * rank can get a part of a shard, and skipped samples are not read. Lengths that only a state needs are found
 * when the state is loaded. */
static bool counts_help(const struct penstock_options *o, uint32_t nshards)
{
	if (o->world == 1)
		return o->skip > 0 || o->take > 0 || o->end == PENSTOCK_END_DROP_LAST ||
		       o->end == PENSTOCK_END_PAD || o->end == PENSTOCK_END_GATHER || o->nmix > 1;
	return nshards < o->world || (o->order != PENSTOCK_ORDER_NONE && o->lanes < o->world);
}

/* Finds whether lengths are known; if not, refuses options that need them. */
static int known_decide(struct ps_schedule *s, const struct penstock_options *o, bool endless,
        bool *ret_known, struct ps_error *err)
{
	const char *reason = counts_reason(o, endless);
	struct ps_error why = {0};
	int rc;

	*ret_known = endless;
	if (!reason && (endless || !counts_help(o, s->nshards)))
		return 0;
	rc = counts_find(s, &why);
	if (rc == -ENOMEM)
		return ps_no_memory(err);
	if (rc == 0) {
		*ret_known = true;
		return 0;
	}
	if (!reason)
		return 0;
	return ps_error_set(err, EINVAL, "%s needs the number of samples of every shard: %s%s", reason,
	        why.text,
	        o->order == PENSTOCK_ORDER_PERMUTATION ? ""
	        : o->order == PENSTOCK_ORDER_NUMBERS   ? PS_INDEX_AUTO_HINT
	                                               : PS_INDEX_AUTO_HINT
	                "; or give the number of batches of an epoch (steps= without repeat); or use "
	                "end=\"uneven\", which lets ranks have different numbers of batches; synchronous "
	                "training must then stop each epoch itself");
}

/* Mix ---------------------------------------------------------------------------------------------------- */

static uint64_t global_of(const struct penstock_options *o)
{
	return (uint64_t)o->batch * o->world;
}

uint64_t ps_run_name(const struct ps_options *options, uint32_t d)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", d);
	return ps_hash(PS_HASH_BEGIN, options->mix_names ? options->mix_names[d] : number,
	        strlen(options->mix_names ? options->mix_names[d] : number));
}

void ps_run_fini(struct ps_run *run)
{
	free(run->sets);
	free(run->bases);
	free(run->stages);
	*run = (struct ps_run){0};
}

/* Makes the stages of the mix, in rows. */
static int stages_make(struct ps_run *run, const struct ps_options *options, struct ps_error *err)
{
	uint32_t n = options->nstages;

	run->stages = calloc(n, sizeof(*run->stages));
	if (!run->stages)
		return ps_no_memory(err);
	run->nstages = n;
	for (uint32_t k = 0; k < n; k++) {
		const struct penstock_mix_stage *s = &options->stages[k];
		uint64_t at = s->start;

		/* mix_batch may be that of a state */
		if (!(s->flags & PENSTOCK_STAGE_ROWS) && !ps_u64_mul(at, run->mix_batch, &at))
			at = PS_SHARES_MAX_ROW;
		run->stages[k] = (struct ps_share_stage){
		        .at = at, .linear = s->flags & PENSTOCK_STAGE_LINEAR, .weights = s->weights};
		if (k > 0 && run->stages[k].at <= run->stages[k - 1].at)
			return ps_error_set(err, EINVAL,
			        "mix_stages: stage %u begins at row %ju, which is not after stage %u (row "
			        "%ju)",
			        k, (uintmax_t)run->stages[k].at, k - 1, (uintmax_t)run->stages[k - 1].at);
		if (run->stages[k].at >= PS_SHARES_MAX_ROW)
			return ps_error_set(err, EINVAL,
			        "mix_stages: stage %u begins at row %ju: must be below 2^60", k,
			        (uintmax_t)run->stages[k].at);
	}
	return 0;
}

/* Makes a set of the shards of each string. The set's lanes are those of the run, or follow from its largest
 * share. */
static int sets_make(const struct ps_options *options, const struct ps_run *run,
        struct ps_order_set **ret_sets, struct ps_error *err)
{
	const struct penstock_options *o = &options->o;
	struct ps_shares *shares;
	struct ps_order_set *sets;
	size_t at = 0;

	*ret_sets = NULL;
	if (!run->sets)
		return 0;
	sets = calloc(o->nmix, sizeof(*sets));
	if (!sets || ps_shares_new(o->nmix, run->stages, run->nstages, 0, 0, NULL, &shares) < 0) {
		free(sets);
		return ps_no_memory(err);
	}
	for (uint32_t i = 0; i < o->nmix; i++) {
		sets[i] = (struct ps_order_set){.first = (uint32_t)at,
		        .n = (uint32_t)(options->ends[i] - at),
		        .key = options->mix_names ? (uint32_t)run->sets[i].name : i,
		        .lanes = run->sets[i].lanes,
		        .weight = PS_MAX(ps_shares_most(shares, i), UINT64_C(1))};
		at = options->ends[i];
	}
	ps_shares_free(shares);
	*ret_sets = sets;
	return 0;
}

/* What a run begins with. */
static int run_make(struct ps_run *run, const struct ps_options *options, struct ps_error *err)
{
	const struct penstock_options *o = &options->o;

	*run = (struct ps_run){.first_batch = global_of(o),
	        .mix_batch = global_of(o),
	        .lanes = o->lanes,
	        .window = o->shuffle_window};
	if (o->nmix < 2)
		return 0;
	run->nsets = o->nmix;
	run->sets = calloc(o->nmix, sizeof(*run->sets));
	if (!run->sets)
		return ps_no_memory(err);
	for (uint32_t d = 0; d < o->nmix; d++)
		run->sets[d].name = ps_run_name(options, d);
	return 0;
}

/* The most samples of an epoch; PS_ENDLESS: no limit but the steps. `steps` are those of the first opening.
 * */
static uint64_t samples_most(const struct ps_options *options, const struct ps_run *run)
{
	const struct penstock_options *o = &options->o;

	if (o->steps == 0 || options->numbers || (run->first_batch == global_of(o) && run->from.batches == 0))
		return PS_ENDLESS;
	return o->steps * run->first_batch;
}

/* Permutation -------------------------------------------------------------------------------------------- */

#define REMOTE_CHUNK 65536u /* the least that a mount fetches for random reads */

/* Refuses an order that reads shards at random if shards would have to be fetched for it. */
static int resident_check(struct ps_schedule *s, const struct penstock_options *o, struct ps_error *err)
{
	const char *order = s->numbers ? "an order of sample numbers" : "order permutation";
	uint64_t nbytes = 0, samples = 0, mean;
	uint32_t remote = 0, nuses = s->uses.n ? s->uses.n : s->nshards;

	if (!s->files)
		return 0;
	for (uint32_t at = 0; at < nuses; at++) {
		uint32_t i = s->uses.n ? s->uses.shards[at] : at;
		char state[16] = "cached";
		struct stat st;
		uint64_t n = 0;
		ssize_t len;

		if (stat(s->files[i], &st) < 0)
			return ps_error_set(err, errno, "%s: cannot stat: %s", s->files[i], strerror(errno));
		if (!S_ISREG(st.st_mode))
			return ps_error_set(err, EINVAL,
			        "%s: %s is not an ordinary file, and cannot be read at any offset", order,
			        s->files[i]);
		len = getxattr(s->files[i], "user.penstock.state", state, sizeof(state) - 1);
		remote += len > 0 && strncmp(state, "cached", (size_t)len) != 0;
		nbytes += (uint64_t)st.st_size;
		samples += ps_shard_indexes_count(s->indexes, i, &n, NULL) == 0 ? n : 0;
	}
	mean = samples > 0 && nbytes > samples ? nbytes / samples : 1;
	if (remote == 0 || o->permute_remote)
		return 0;
	return ps_error_set(err, EINVAL,
	        "%s: %u of %u shards are not in the cache of their mount, and each sample, of %ju bytes, "
	        "would be "
	        "a request of its own, of at least %u bytes: up to %ju times the data; warm the mount "
	        "(penstock "
	        "warm), take order window, or allow it (permute_remote)",
	        order, remote, nuses, (uintmax_t)mean, REMOTE_CHUNK,
	        (uintmax_t)PS_MAX(REMOTE_CHUNK / mean, UINT64_C(1)));
}

/* Numbers ------------------------------------------------------------------------------------------------ */

/* Checks that all numbers are samples of the shards, and finds the shards that they are in. */
static int numbers_check(struct ps_schedule *s, uint64_t steps, struct ps_error *err)
{
	uint64_t sum = 0, n;
	int rc;

	s->ends = malloc(PS_MAX(s->nshards, 1u) * sizeof(*s->ends));
	if (!s->ends)
		return ps_no_memory(err);
	for (uint32_t i = 0; i < s->nshards; i++) {
		rc = ps_shard_indexes_count(s->indexes, i, &n, err);
		if (rc < 0)
			return rc;
		sum += n;
		s->ends[i] = sum;
	}
	rc = ps_numbers_check(s->numbers, sum, err);
	if (rc < 0 || ps_numbers_is_feed(s->numbers))
		return rc;
	rc = ps_numbers_uses(
	        s->numbers, steps ? steps * s->numbers->batch : UINT64_MAX, s->ends, s->nshards, &s->uses);
	return rc < 0 ? ps_no_memory(err) : 0;
}

/* Ranks -------------------------------------------------------------------------------------------------- */

/* Numbers the ranks so that those of node n of N are n, n + N, n + 2 N ...: they have the lanes l with l mod
 * N = n. */
static uint32_t rank_number(const struct penstock_options *o)
{
	uint32_t nodes = o->world / o->ranks_per_node;

	return o->rank % o->ranks_per_node * nodes + o->rank / o->ranks_per_node;
}

/* The schedule ------------------------------------------------------------------------------------------ */

static bool is_endless(const struct penstock_options *o)
{
	return o->steps > 0 && o->repeat == 0 && o->order != PENSTOCK_ORDER_NUMBERS;
}

int ps_schedule_order(const struct ps_schedule *s, const struct ps_options *options, struct ps_run *run,
        struct ps_order **ret_order, struct ps_error *err)
{
	const struct penstock_options *o = &options->o;
	bool endless = is_endless(o),
	     is_dealt = o->order == PENSTOCK_ORDER_SHARDS || o->order == PENSTOCK_ORDER_WINDOW;
	bool longest = o->nmix > 1 && o->mix_end == PENSTOCK_MIX_LONGEST && !endless;
	ps_autofree struct ps_order_set *sets = NULL;
	const struct ps_lane_set *lanes;
	uint32_t nsets;
	int rc = run->sets ? stages_make(run, options, err) : 0;

	if (rc == 0)
		rc = sets_make(options, run, &sets, err);
	if (rc < 0)
		return rc;
	*ret_order = ps_order_new(&(struct ps_order_options){.mode = (enum ps_order_mode)o->order,
	                                  .nshards = s->nshards,
	                                  .window = run->window,
	                                  .lanes = run->lanes,
	                                  .rank = s->numbers ? 0 : rank_number(o),
	                                  .world = s->numbers ? 1 : o->world,
	                                  .seed = o->seed,
	                                  .repeat = longest || endless ? PS_ENDLESS : PS_MAX(o->repeat, 1u),
	                                  .shared = s->known,
	                                  .bucket = o->bucket,
	                                  .sets = sets,
	                                  .nsets = o->nmix,
	                                  .homes = is_dealt ? o->homes : 0,
	                                  .block_len = run->block_len},
	        err);
	if (!*ret_order)
		return -err->err;
	lanes = ps_order_sets(*ret_order, &nsets);
	for (uint32_t d = 0; d < nsets && run->sets; d++)
		run->sets[d].lanes = lanes[d].n;
	run->block_len = run->sets ? ps_order_block_len(*ret_order) : 0;
	return 0;
}

struct ps_order *ps_schedule_resume(
        struct ps_schedule *s, const struct ps_options *options, struct ps_run *run, struct ps_order *order)
{
	struct ps_run before = s->run;
	struct ps_order *was = order ? s->order : NULL;

	s->run = *run;
	*run = (struct ps_run){0};
	if (order)
		s->order = order;
	ps_epochs_begin(s->epochs, s->order, samples_most(options, &s->run), s->run.stages, s->run.nstages,
	        &s->run.from);
	ps_run_fini(&before);
	return was;
}

void ps_schedule_restart(struct ps_schedule *s, const struct ps_options *options)
{
	s->run.from = (struct ps_epochs_from){0};
	ps_epochs_begin(s->epochs, s->order, samples_most(options, &s->run), s->run.stages, s->run.nstages,
	        &s->run.from);
}

int ps_schedule_make(struct ps_schedule *s, const struct ps_options *options,
        struct ps_shard_indexes *indexes, struct ps_error *err)
{
	const struct penstock_options *o = &options->o;
	bool endless = is_endless(o), known = false;
	bool longest = o->nmix > 1 && o->mix_end == PENSTOCK_MIX_LONGEST && !endless;
	uint32_t rank, world;
	int rc;

	*s = (struct ps_schedule){.indexes = indexes,
	        .shards = options->names,
	        .files = options->files,
	        .nshards = options->nnames,
	        .rank = o->rank,
	        .world = o->world,
	        .numbers = options->numbers};
	rc = run_make(&s->run, options, err);
	if (rc == 0)
		rc = ps_select_new(&(struct ps_select_options){.filter = o->filter,
		                           .weights = o->weights,
		                           .balance = o->balance,
		                           .replacement = o->replacement,
		                           .list = o->sample_weights,
		                           .nlist = o->nsample_weights,
		                           .draws = o->draws,
		                           .seed = o->seed,
		                           .indexes = indexes,
		                           .nshards = s->nshards},
		        &s->select, err);
	if (rc == 0)
		rc = known_decide(s, o, endless, &known, err);
	if (rc == 0 && s->numbers)
		rc = numbers_check(s, o->steps, err);
	if (rc == 0 && ps_order_mode_scatters((enum ps_order_mode)o->order))
		rc = resident_check(s, o, err);
	if (rc < 0)
		return rc;
	rank = s->numbers ? 0 : rank_number(o);
	world = s->numbers ? 1 : o->world;
	s->counted = known && (!endless || o->order == PENSTOCK_ORDER_PERMUTATION);
	s->known = known;
	rc = ps_schedule_order(s, options, &s->run, &s->order, err);
	if (rc < 0)
		return rc;
	s->epochs = ps_epochs_new(&(struct ps_epochs_options){.order = s->order,
	        .mode = (enum ps_order_mode)o->order,
	        .known = known,
	        .longest = longest,
	        .repeat = endless ? PS_ENDLESS : PS_MAX(o->repeat, 1u),
	        .counts = {.count = shard_count, .ctx = s},
	        .nshards = s->nshards,
	        .seed = o->seed,
	        .skip = o->skip,
	        .take = o->take ? o->take : PS_ENDLESS,
	        .steps = o->steps ? o->steps : PS_ENDLESS,
	        .batch = o->batch,
	        .rank = rank,
	        .world = world,
	        .nodes = s->numbers ? 1 : o->world / o->ranks_per_node,
	        .end = (enum penstock_end)o->end,
	        .numbers = s->numbers,
	        .samples = PS_ENDLESS,
	        .stages = s->run.stages,
	        .nstages = s->run.nstages});
	return s->epochs ? 0 : ps_no_memory(err);
}

int ps_schedule_check(struct ps_schedule *s, uint64_t number, struct ps_error *err)
{
	uint64_t all = 0, left, n;
	struct ps_epoch *epoch;
	int rc;

	if (!ps_epochs_options(s->epochs)->known)
		return 0;
	rc = ps_epochs_get(s->epochs, number, &epoch, err);
	if (rc < 0)
		return rc;
	left = epoch->steps.samples;
	ps_epoch_unref(epoch);
	if (left > 0)
		return 0;
	for (uint32_t i = 0; i < s->nshards; i++)
		all += ps_shard_indexes_count(s->indexes, i, &n, NULL) == 0 ? n : 0;
	if (all == 0)
		return ps_error_set(err, ENODATA,
		        "no samples: the indexes say that all shards are empty (penstock-loader doctor says "
		        "why)");
	return ps_error_set(err, ENODATA,
	        "no samples: epoch %ju includes none of the %ju in the shards; check filter, weights, skip "
	        "and take",
	        (uintmax_t)number, (uintmax_t)all);
}

void ps_schedule_fini(struct ps_schedule *s)
{
	ps_epochs_free(s->epochs);
	ps_order_free(s->order);
	ps_select_free(s->select);
	ps_run_fini(&s->run);
	ps_uses_fini(&s->uses);
	free(s->ends);
	*s = (struct ps_schedule){0};
}

int ps_schedule_length(struct ps_schedule *s, uint64_t epoch, uint64_t *ret_samples, uint64_t *ret_batches,
        uint64_t *ret_total, struct ps_error *err)
{
	struct ps_error why = {0};
	int rc = ps_epochs_length(s->epochs, epoch, ret_samples, ret_batches, ret_total, &why);

	if (rc == -ENODATA)
		return ps_error_set(err, ENODATA, "the length is not known: %s", why.text);
	return rc < 0 ? ps_error_set(err, -rc, "%s", why.text) : 0;
}
