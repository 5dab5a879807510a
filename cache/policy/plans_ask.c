/* What the plans tell those who ask: when an object is needed, and what comes next. */
#include <math.h>

#include "base/json.h"
#include "policy/plans_private.h"

/* How far before its turn the open of a file counts as its use in the next epoch. In the epoch under way any
 * does: how unevenly a rank's lanes advance is its own affair. */
#define EARLY_SHARE 4
#define EARLY_MIN 16
#define LOOKS_MAX 4096 /* at files of other datasets, for the next of one */

/* The functions below need the lock held ---------------------------------------------------------- */

/* How many uses of its rank are to come before this one; negative: it is late. */
static int64_t distance(const struct ps_plan_use *use)
{
	const struct ps_plan_epoch *epoch = use->epoch;
	const struct ps_list *head = &epoch->rank->epochs;
	int64_t n = (int64_t)(use - epoch->uses) - epoch->nover;

	for (const struct ps_list *l = head->next; l != &epoch->link; l = l->next)
		n += ps_plan_epoch_of(l)->nuses - ps_plan_epoch_of(l)->nover;
	return n;
}

/* Is all that comes before this epoch over? */
static bool is_under_way(const struct ps_plan_epoch *epoch)
{
	for (const struct ps_list *l = epoch->link.prev; l != &epoch->rank->epochs; l = l->prev)
		if (ps_plan_epoch_of(l)->nover < ps_plan_epoch_of(l)->nuses)
			return false;
	return true;
}

/* Would an open now be this use? */
static bool is_due(const struct ps_plan_use *use, int64_t far)
{
	return is_under_way(use->epoch) ||
	       far <= PS_MAX(use->epoch->nuses / EARLY_SHARE, (uint32_t)EARLY_MIN);
}

/* Which use of the object an open is: the nearest that is about due. */
static struct ps_plan_use *due_use(struct ps_plans *plans, const struct ps_id *object, bool *ret_known)
{
	struct ps_plan_use *due = NULL;
	int64_t nearest = INT64_MAX;
	struct ps_planned_file *file;
	size_t cursor = 0;

	while ((file = ps_planned_files_by_id(&plans->files, object, &cursor))) {
		*ret_known = true;
		for (struct ps_plan_use *use = file->uses; use; use = use->next) {
			int64_t d = distance(use);
			if (d < nearest && is_due(use, d)) {
				nearest = d;
				due = use;
			}
		}
	}
	return due;
}

/* The functions above need the lock held ---------------------------------------------------------- */

static bool reads_from(const struct ps_plan_rank *rank, uint32_t dataset)
{
	for (size_t i = 0; rank && i < rank->teller.ndatasets; i++)
		if (rank->teller.datasets[i] == dataset)
			return true;
	return false;
}

bool ps_plans_any(struct ps_plans *plans, uint32_t dataset)
{
	PS_LOCK_SCOPE(&plans->lock);

	for (size_t i = 0; plans->nranks > 0 && i < PS_PLANS_MAX_RANKS; i++)
		if (reads_from(plans->ranks[i], dataset))
			return true;
	return false;
}

void ps_plans_opened(struct ps_plans *plans, const struct ps_id *object, bool cached)
{
	PS_LOCK_SCOPE(&plans->lock);
	bool known = false;

	if (plans->nranks == 0)
		return;
	struct ps_plan_use *due = due_use(plans, object, &known);
	if (due) {
		plans->foreseen_opens++;
		plans->foreseen_hits += cached;
		ps_plan_use_end(plans, due);
	} else if (known) {
		plans->unforeseen_opens++;
	}
}

static void sooner(const struct ps_plan_epoch *epoch, struct ps_plan_need *ret)
{
	if (epoch->mid_s < ret->when_s)
		*ret = (struct ps_plan_need){.when_s = epoch->mid_s, .margin_s = epoch->margin_s};
}

enum ps_need ps_plans_need(struct ps_plans *plans, const struct ps_id *object, struct ps_plan_need *ret)
{
	PS_LOCK_SCOPE(&plans->lock);
	enum ps_need need = PS_NEED_UNKNOWN;
	struct ps_planned_file *file;
	size_t cursor = 0;

	*ret = (struct ps_plan_need){.when_s = INFINITY};
	while ((file = ps_planned_files_by_id(&plans->files, object, &cursor))) {
		if (need == PS_NEED_UNKNOWN)
			need = PS_NEED_NEVER; /* swept when its last rank has gone */
		if (!file->first)
			continue;
		need = PS_NEED_PLANNED;
		sooner(file->first, ret);
		/* Those of one rank are in order. */
		bool sorted = plans->nranks == 1 && !file->first->rank->out_of_order;
		for (const struct ps_plan_use *use = file->uses; !sorted && use; use = use->next)
			sooner(use->epoch, ret);
	}
	return need;
}

/* The nth file of the rank that is still to be opened; false: it has told of no more. */
static bool upcoming(
        struct ps_plan_epoch **epoch, uint32_t *place, const struct ps_list *end, uint32_t *ret_file)
{
	while (&(*epoch)->link != end) {
		for (; *place < (*epoch)->nuses; ++*place)
			if (!(*epoch)->uses[*place].over) {
				*ret_file = (*epoch)->uses[(*place)++].file;
				return true;
			}
		*epoch = ps_plan_epoch_of((*epoch)->link.next);
		if (&(*epoch)->link != end)
			*place = (*epoch)->first;
	}
	return false;
}

size_t ps_plans_next(struct ps_plans *plans, uint32_t dataset, uint64_t *ret_nodes, size_t max)
{
	PS_LOCK_SCOPE(&plans->lock);
	struct {
		struct ps_plan_epoch *epoch;
		uint32_t place;
		const struct ps_list *end;
	} at[PS_PLANS_MAX_RANKS];
	size_t nat = 0, n = 0, nlooks = 0;

	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++) {
		struct ps_plan_rank *rank = plans->ranks[i];
		if (!reads_from(rank, dataset) || ps_list_empty(&rank->epochs))
			continue;
		at[nat].epoch = ps_plan_epoch_of(rank->epochs.next);
		at[nat].place = at[nat].epoch->first;
		at[nat++].end = &rank->epochs;
	}
	/* Of each rank in turn: nobody's next file waits for another's tenth. */
	for (bool more = true; more && n < max && nlooks < LOOKS_MAX;) {
		more = false;
		for (size_t i = 0; i < nat && n < max; i++) {
			uint32_t file;
			if (!upcoming(&at[i].epoch, &at[i].place, at[i].end, &file))
				continue;
			more = true;
			nlooks++;
			if (plans->files.v[file].dataset == dataset)
				ret_nodes[n++] = plans->files.v[file].node;
		}
	}
	return n;
}

static json_t *rank_stats(const struct ps_plan_rank *rank, double now_s)
{
	json_int_t nepochs = 0, nfiles = 0;

	for (const struct ps_list *l = rank->epochs.next; l != &rank->epochs; l = l->next) {
		nepochs++;
		nfiles += ps_plan_epoch_of(l)->nuses;
	}
	return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "job", ps_json_lossy(rank->who.job), "rank",
	        (json_int_t)rank->who.rank, "world", (json_int_t)rank->who.world, "epoch",
	        (json_int_t)rank->who.epoch, "files_done", (json_int_t)rank->files_done, "epochs", nepochs,
	        "files", nfiles, "age_seconds", PS_MAX(now_s - rank->heard_s, 0.0));
}

json_t *ps_plans_stats(struct ps_plans *plans, double now_s)
{
	PS_LOCK_SCOPE(&plans->lock);
	json_t *ranks = json_array();

	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++)
		if (plans->ranks[i])
			json_array_append_new(ranks, rank_stats(plans->ranks[i], now_s));
	return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ranks", ranks, "active",
	        (json_int_t)plans->nranks, "memory_bytes", (json_int_t)plans->nbytes, "foreseen_opens",
	        (json_int_t)plans->foreseen_opens, "foreseen_hits", (json_int_t)plans->foreseen_hits,
	        "unforeseen_opens", (json_int_t)plans->unforeseen_opens, "expired",
	        (json_int_t)plans->expired, "refused", (json_int_t)plans->refused);
}
