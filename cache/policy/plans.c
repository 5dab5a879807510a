#include "policy/plans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/plans_private.h"

#define FILE_UNKNOWN_S \
	1.0 /* the pace of a rank that was not seen to advance yet; tells its own uses apart only */
#define PACE_WEIGHT 0.3
struct ps_plans *ps_plans_new(void)
{
	struct ps_plans *plans = calloc(1, sizeof *plans);

	if (plans)
		pthread_mutex_init(&plans->lock, NULL);
	return plans;
}

/* The functions below need the lock held ---------------------------------------------------------- */

/* Uses and epochs -------------------------------------------------------------------------------- */

static void note_first(struct ps_planned_file *file)
{
	file->first = file->uses ? file->uses->epoch : NULL;
}

void ps_plan_use_end(struct ps_plans *plans, struct ps_plan_use *use)
{
	struct ps_plan_epoch *epoch = use->epoch;

	if (use->over)
		return; /* and its file may be forgotten */
	struct ps_planned_file *file = &plans->files.v[use->file];
	*use->link = use->next;
	if (use->next)
		use->next->link = use->link;
	else
		file->tail = use->link;
	note_first(file);
	use->over = true;
	epoch->nover++;
	while (epoch->first < epoch->nuses && epoch->uses[epoch->first].over)
		epoch->first++;
}

static void use_begin(struct ps_plans *plans, struct ps_plan_use *use)
{
	struct ps_planned_file *file = &plans->files.v[use->file];

	if (file->named_in == use->epoch->serial) { /* once an epoch is enough */
		use->over = true;
		use->epoch->nover++;
		return;
	}
	use->link = file->tail;
	*use->link = use;
	file->tail = &use->next;
	file->named_in = use->epoch->serial;
	file->last = use->epoch->rank->serial;
	note_first(file);
}

static void epoch_free(struct ps_plans *plans, struct ps_plan_epoch *epoch)
{
	for (uint32_t i = 0; i < epoch->nuses; i++)
		ps_plan_use_end(plans, &epoch->uses[i]);
	ps_list_remove(&epoch->link);
	plans->nbytes -= epoch->nbytes;
	if (epoch->rank->teller.stranger)
		plans->strangers_nbytes -= epoch->nbytes;
	free(epoch);
}

/* Where the epoch of this number is, or belongs: before it. */
static struct ps_list *epoch_place(struct ps_plan_rank *rank, uint64_t number)
{
	struct ps_list *l = rank->epochs.next;

	while (l != &rank->epochs && ps_plan_epoch_of(l)->number < number)
		l = l->next;
	return l;
}

/* When the epochs will be read, at the rank's pace. */
static void schedule(struct ps_plan_rank *rank, double now_s)
{
	double file_s = rank->file_s > 0 ? rank->file_s : FILE_UNKNOWN_S;

	for (struct ps_list *l = rank->epochs.next; l != &rank->epochs; l = l->next) {
		struct ps_plan_epoch *epoch = ps_plan_epoch_of(l);
		double left_s = (epoch->nuses - epoch->nover) * file_s;

		epoch->mid_s = now_s + left_s / 2;
		epoch->margin_s = epoch->nuses * file_s / 4;
		now_s += left_s;
	}
}

/* Ranks ------------------------------------------------------------------------------------------ */

static bool rank_gone(const void *arg, uint64_t serial)
{
	const struct ps_plans *plans = arg;
	const struct ps_plan_rank *rank = plans->ranks[serial % PS_PLANS_MAX_RANKS];

	return !rank || rank->serial != serial;
}

static struct ps_plan_rank *rank_find(
        const struct ps_plans *plans, const struct ps_plan_teller *teller, const struct ps_plan_who *who)
{
	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++) {
		struct ps_plan_rank *rank = plans->ranks[i];
		if (rank && rank->teller.feed == teller->feed && rank->who.rank == who->rank &&
		        strcmp(rank->who.job, who->job) == 0)
			return rank;
	}
	return NULL;
}

static int rank_make(struct ps_plans *plans, const struct ps_plan_teller *teller,
        const struct ps_plan_who *who, double now_s, struct ps_plan_rank **ret)
{
	size_t slot = 0;

	while (slot < PS_PLANS_MAX_RANKS && plans->ranks[slot])
		slot++;
	if (slot == PS_PLANS_MAX_RANKS ||
	        (teller->stranger && plans->nstrangers >= PS_PLANS_MAX_RANKS / PS_PLANS_STRANGERS_SHARE))
		return -ENOSPC;
	struct ps_plan_rank *rank = calloc(1, sizeof *rank);
	if (!rank)
		return -ENOMEM;
	*rank = (struct ps_plan_rank){.teller = *teller, .who = *who, .heard_s = now_s, .moved_s = now_s};
	rank->serial = ++plans->serials * PS_PLANS_MAX_RANKS + slot;
	ps_list_init(&rank->epochs);
	plans->ranks[slot] = rank;
	plans->nranks++;
	plans->nstrangers += teller->stranger;
	*ret = rank;
	return 0;
}

static void rank_free(struct ps_plans *plans, struct ps_plan_rank *rank)
{
	while (!ps_list_empty(&rank->epochs))
		epoch_free(plans, ps_plan_epoch_of(rank->epochs.next));
	plans->ranks[rank->serial % PS_PLANS_MAX_RANKS] = NULL;
	plans->nranks--;
	plans->nstrangers -= rank->teller.stranger;
	free(rank);
}

static void drop_ranks(struct ps_plans *plans, bool (*goes)(const struct ps_plan_rank *rank, const void *arg),
        const void *arg)
{
	unsigned before = plans->nranks;

	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++)
		if (plans->ranks[i] && goes(plans->ranks[i], arg))
			rank_free(plans, plans->ranks[i]);
	if (plans->nranks < before)
		ps_planned_files_sweep(&plans->files, rank_gone, plans);
}

static void learn_pace(struct ps_plan_rank *rank, double now_s)
{
	uint64_t done = rank->epochs_done + rank->files_done;

	if (done <= rank->moved_done || now_s <= rank->moved_s)
		return;
	double file_s = (now_s - rank->moved_s) / (double)(done - rank->moved_done);
	rank->file_s = rank->file_s > 0 ? rank->file_s + PACE_WEIGHT * (file_s - rank->file_s) : file_s;
	rank->moved_done = done;
	rank->moved_s = now_s;
}

/* Telling ---------------------------------------------------------------------------------------- */

static struct ps_plan_epoch *epoch_new(struct ps_plan_rank *rank, uint64_t number, size_t n, uint64_t nbytes)
{
	struct ps_plan_epoch *epoch = malloc(sizeof *epoch + n * sizeof epoch->uses[0]);

	if (epoch)
		*epoch = (struct ps_plan_epoch){
		        .rank = rank, .number = number, .nuses = (uint32_t)n, .nbytes = nbytes};
	return epoch;
}

/* How many files the epoch names that no plan does yet. */
static size_t count_new(struct ps_plans *plans, const struct ps_plan_file *files, size_t n)
{
	size_t nnew = 0;

	for (size_t i = 0; i < n; i++)
		nnew += ps_planned_files_by_node(&plans->files, files[i].node) == NULL;
	return nnew;
}

static bool has_room(const struct ps_plans *plans, const struct ps_plan_teller *teller, uint64_t nbytes)
{
	if (teller->stranger &&
	        plans->strangers_nbytes + nbytes > PS_PLANS_MAX_NBYTES / PS_PLANS_STRANGERS_SHARE)
		return false;
	return plans->nbytes + nbytes <= PS_PLANS_MAX_NBYTES;
}

static void fill_epoch(struct ps_plans *plans, struct ps_plan_epoch *epoch, const struct ps_plan_file *files)
{
	for (uint32_t i = 0; i < epoch->nuses; i++) {
		struct ps_plan_use *use = &epoch->uses[i];

		*use = (struct ps_plan_use){
		        .epoch = epoch, .file = ps_planned_files_add(&plans->files, &files[i])};
		use_begin(plans, use);
	}
}

/* What was told of the same epoch, is replaced; and what of it is over, is. */
static int tell(struct ps_plans *plans, struct ps_plan_rank *rank, const struct ps_plan_who *who,
        const struct ps_plan_file *files, size_t n, double now_s)
{
	struct ps_list *place = epoch_place(rank, who->epoch);
	struct ps_plan_epoch *old = NULL, *epoch;
	unsigned nepochs = 0;

	for (const struct ps_list *l = rank->epochs.next; l != &rank->epochs; l = l->next)
		nepochs++;
	if (place != &rank->epochs && ps_plan_epoch_of(place)->number == who->epoch)
		old = ps_plan_epoch_of(place);
	if (!old && nepochs >= PS_PLANS_MAX_EPOCHS)
		return -E2BIG;
	uint64_t nbytes = sizeof *epoch + n * sizeof epoch->uses[0] +
	                  count_new(plans, files, n) * sizeof(struct ps_planned_file);
	if (!has_room(plans, &rank->teller, nbytes))
		return -ENOSPC;
	if (ps_planned_files_reserve(&plans->files, n) < 0 ||
	        !(epoch = epoch_new(rank, who->epoch, n, nbytes)))
		return -ENOMEM;
	if (old) {
		place = old->link.next;
		epoch_free(plans, old);
	}
	rank->out_of_order |= place != &rank->epochs;
	ps_list_append(place, &epoch->link);
	plans->nbytes += nbytes;
	if (rank->teller.stranger)
		plans->strangers_nbytes += nbytes;
	epoch->serial = ++plans->serials;
	fill_epoch(plans, epoch, files);
	if (who->epoch == rank->who.epoch)
		for (uint64_t i = 0; i < PS_MIN(rank->files_done, n); i++)
			ps_plan_use_end(plans, &epoch->uses[i]);
	rank->who.world = who->world;
	rank->heard_s = now_s;
	schedule(rank, now_s);
	return 0;
}

static void advance(struct ps_plans *plans, struct ps_plan_rank *rank, uint64_t number, uint64_t files_done)
{
	while (!ps_list_empty(&rank->epochs) && ps_plan_epoch_of(rank->epochs.next)->number < number) {
		rank->epochs_done += ps_plan_epoch_of(rank->epochs.next)->nuses;
		epoch_free(plans, ps_plan_epoch_of(rank->epochs.next));
	}
	rank->who.epoch = number;
	rank->files_done = files_done;
	struct ps_plan_epoch *epoch =
	        ps_list_empty(&rank->epochs) ? NULL : ps_plan_epoch_of(rank->epochs.next);
	if (!epoch || epoch->number != number)
		return;
	for (uint32_t i = epoch->first; i < PS_MIN(files_done, epoch->nuses); i++)
		ps_plan_use_end(plans, &epoch->uses[i]);
}

/* The functions above need the lock held ---------------------------------------------------------- */

void ps_plans_free(struct ps_plans *plans)
{
	if (!plans)
		return;
	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++)
		if (plans->ranks[i])
			rank_free(plans, plans->ranks[i]);
	ps_planned_files_fini(&plans->files);
	pthread_mutex_destroy(&plans->lock);
	free(plans);
}

int ps_plans_tell(struct ps_plans *plans, const struct ps_plan_teller *teller, const struct ps_plan_who *who,
        const struct ps_plan_file *files, size_t n, double now_s)
{
	if (n > PS_PLANS_MAX_FILES)
		return -E2BIG;
	PS_LOCK_SCOPE(&plans->lock);
	struct ps_plan_rank *rank = rank_find(plans, teller, who);
	int e = rank ? 0 : rank_make(plans, teller, who, now_s, &rank);

	if (e == 0)
		e = tell(plans, rank, who, files, n, now_s);
	plans->refused += e < 0;
	if (rank && ps_list_empty(&rank->epochs))
		rank_free(plans, rank);
	return e;
}

int ps_plans_position(struct ps_plans *plans, const struct ps_plan_teller *teller,
        const struct ps_plan_who *who, uint64_t files_done, double now_s)
{
	PS_LOCK_SCOPE(&plans->lock);
	struct ps_plan_rank *rank = rank_find(plans, teller, who);

	if (!rank)
		return -ESTALE;
	if (who->epoch <
	        rank->who.epoch) { /* it went back, as a resumed run does: what is over must be told anew */
		rank_free(plans, rank);
		ps_planned_files_sweep(&plans->files, rank_gone, plans);
		return -ESTALE;
	}
	advance(plans, rank, who->epoch, files_done);
	rank->heard_s = now_s;
	learn_pace(rank, now_s);
	schedule(rank, now_s);
	return 0;
}

static bool of_feed(const struct ps_plan_rank *rank, const void *feed)
{
	return rank->teller.feed == *(const uint64_t *)feed;
}

void ps_plans_drop_feed(struct ps_plans *plans, uint64_t feed)
{
	PS_LOCK_SCOPE(&plans->lock);
	drop_ranks(plans, of_feed, &feed);
}

static bool is_silent(const struct ps_plan_rank *rank, const void *now_s)
{
	return *(const double *)now_s - rank->heard_s > PS_PLANS_SILENT_S;
}

void ps_plans_expire(struct ps_plans *plans, double now_s)
{
	PS_LOCK_SCOPE(&plans->lock);
	unsigned before = plans->nranks;

	drop_ranks(plans, is_silent, &now_s);
	plans->expired += before - plans->nranks;
}

int ps_plans_charge(struct ps_plans *plans, const struct ps_plan_teller *teller, int64_t nbytes)
{
	PS_LOCK_SCOPE(&plans->lock);

	if (nbytes > 0 && !has_room(plans, teller, (uint64_t)nbytes)) {
		plans->refused++;
		return -ENOSPC;
	}
	plans->nbytes += (uint64_t)nbytes;
	if (teller->stranger)
		plans->strangers_nbytes += (uint64_t)nbytes;
	return 0;
}

size_t ps_plans_nameless(
        struct ps_plans *plans, uint32_t dataset, size_t *cursor, uint64_t *ret_nodes, size_t max)
{
	PS_LOCK_SCOPE(&plans->lock);
	size_t n = 0;

	for (; plans->files.nnameless > 0 && *cursor < plans->files.n && n < max; ++*cursor) {
		const struct ps_planned_file *file = &plans->files.v[*cursor];
		if (file->node && !file->named && file->dataset == dataset)
			ret_nodes[n++] = file->node;
	}
	return n;
}

void ps_plans_name(struct ps_plans *plans, const struct ps_plan_file *named)
{
	PS_LOCK_SCOPE(&plans->lock);
	struct ps_planned_file *file = ps_planned_files_by_node(&plans->files, named->node);

	if (file)
		ps_planned_files_name(&plans->files, file, &named->id);
}
