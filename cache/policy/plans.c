#include "policy/policy.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "base/stats.h"
#include "base/list.h"

struct ps_plan_use {
	/* The place in the file's list of uses that are not over; *link points to this use. */
	struct ps_plan_use *next, **link;
	struct ps_plan_epoch *epoch;
	uint32_t file;
	bool over;
};

struct ps_plan_epoch {
	struct ps_list link; /* in its rank, ordered by number */
	struct ps_plan_rank *rank;
	uint64_t number, nbytes, serial;
	uint32_t nuses, nover;
	uint32_t first; /* all uses before uses[first] are over */
	double mid_s;   /* when its uses are needed, on average */
	double margin_s;
	struct ps_plan_use uses[];
};

struct ps_plan_rank {
	struct ps_plan_teller teller;
	struct ps_plan_who who; /* who.epoch: of the last position */
	uint64_t serial;        /* unique; modulo PS_PLANS_MAX_RANKS, its slot in ranks[] */
	uint64_t files_done;
	struct ps_list epochs;
	bool out_of_order; /* an epoch was announced after a later one */
	double heard_s;
	/* Its pace: when it last advanced, the seconds that it takes for a file, how many files of all
	 * epochs it had read by moved_s, and the files of its past epochs. */
	double moved_s, file_s;
	uint64_t moved_done, epochs_done;
};

struct ps_planned_file {
	struct ps_id id;
	uint64_t node; /* 0: free */
	uint64_t last; /* serial of the last rank that named it */
	/* Uses in the order of their announcement, and the end of the list. */
	struct ps_plan_use *uses, **tail;
	/* The epoch of the first use, to save a memory access; NULL: none. */
	struct ps_plan_epoch *first;
	uint64_t named_in; /* serial of the last epoch that named it */
	uint32_t dataset;
	bool named; /* the id is known */
};

/* Open addressing: a slot is 0 or the file's place + 1. Entries are removed only by rebuilding the table. */
struct ps_plan_table {
	uint32_t *slots;
	size_t cap; /* a power of two */
};

struct ps_planned_files {
	struct ps_planned_file *v;
	size_t n, cap, nfree, nnameless;
	uint32_t free_from; /* no place before it is free */
	struct ps_plan_table by_node, by_id;
};

struct ps_plans {
	pthread_mutex_t lock; /* protects all that follows */
	struct ps_plan_rank *ranks[PS_PLANS_MAX_RANKS];
	unsigned nranks, nother_users;
	uint64_t serials;
	uint64_t nbytes, other_users_nbytes; /* of epochs */
	struct ps_planned_files files;
	struct ps_plans_counters counters;
};

static inline struct ps_plan_epoch *plan_epoch_of(const struct ps_list *link)
{
	return PS_CONTAINER_OF(link, struct ps_plan_epoch, link);
}

/* The files that plans name ------------------------------------------------------------------------------ */

/* All under the lock. */

#define TABLE_MIN 1024

static const struct ps_id no_id;

static uint64_t hash_of_id(const struct ps_id *id)
{
	uint64_t h;

	memcpy(&h, id->bytes, sizeof(h)); /* an id is a hash already */
	return h;
}

static uint64_t hash_of_node(uint64_t node)
{
	node *= UINT64_C(0x9e3779b97f4a7c15);
	return node ^ node >> 32;
}

static void table_add(struct ps_plan_table *t, uint64_t hash, uint32_t place)
{
	size_t i = hash & (t->cap - 1);

	while (t->slots[i])
		i = (i + 1) & (t->cap - 1);
	t->slots[i] = place + 1;
}

static void fill_tables(struct ps_planned_files *f)
{
	memset(f->by_node.slots, 0, f->by_node.cap * sizeof(*f->by_node.slots));
	memset(f->by_id.slots, 0, f->by_id.cap * sizeof(*f->by_id.slots));
	for (size_t i = 0; i < f->n; i++) {
		if (!f->v[i].node)
			continue;
		table_add(&f->by_node, hash_of_node(f->v[i].node), (uint32_t)i);
		if (f->v[i].named)
			table_add(&f->by_id, hash_of_id(&f->v[i].id), (uint32_t)i);
	}
}

static void planned_files_fini(struct ps_planned_files *f)
{
	free(f->v);
	free(f->by_node.slots);
	free(f->by_id.slots);
	*f = (struct ps_planned_files){0};
}

/* Enlarges the tables so that they are at most half full. */
static int tables_grow(struct ps_planned_files *f, size_t want)
{
	size_t cap = PS_MAX(f->by_node.cap, (size_t)TABLE_MIN);

	while (cap / 2 < want)
		cap *= 2;
	if (cap == f->by_node.cap)
		return 0;
	uint32_t *by_node = calloc(cap, sizeof(*by_node)), *by_id = calloc(cap, sizeof(*by_id));
	if (!by_node || !by_id) {
		free(by_node);
		free(by_id);
		return -ENOMEM;
	}
	free(f->by_node.slots);
	free(f->by_id.slots);
	f->by_node = (struct ps_plan_table){by_node, cap};
	f->by_id = (struct ps_plan_table){by_id, cap};
	fill_tables(f);
	return 0;
}

/* Reserves room for n more, so that adding them cannot fail. -ENOMEM. */
static int planned_files_reserve(struct ps_planned_files *f, size_t n)
{
	size_t want = f->n + (n > f->nfree ? n - f->nfree : 0);

	if (want > UINT32_MAX / 4)
		return -ENOMEM;
	if (want > f->cap) {
		size_t cap = PS_MAX(want, f->cap + f->cap / 2);
		struct ps_planned_file *v = reallocarray(f->v, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		f->v = v;
		f->cap = cap;
		/* The heads of the files' lists have moved. */
		for (size_t i = 0; i < f->n; i++) {
			if (f->v[i].uses)
				f->v[i].uses->link = &f->v[i].uses;
			else
				f->v[i].tail = &f->v[i].uses;
		}
	}
	return tables_grow(f, want);
}

/* NULL: there is none. */
static struct ps_planned_file *planned_files_by_node(struct ps_planned_files *f, uint64_t node)
{
	if (f->by_node.cap == 0)
		return NULL;
	for (size_t i = hash_of_node(node);; i++) {
		uint32_t place = f->by_node.slots[i & (f->by_node.cap - 1)];
		if (!place)
			return NULL;
		if (f->v[place - 1].node == node)
			return &f->v[place - 1];
	}
}

/* NULL: there is no (other) one. Nodes of two datasets may show one object: *cursor, initially 0, iterates
 * over them. */
static struct ps_planned_file *planned_files_by_id(
        struct ps_planned_files *f, const struct ps_id *id, size_t *cursor)
{
	if (f->by_id.cap == 0)
		return NULL;
	for (;;) {
		uint32_t place = f->by_id.slots[(hash_of_id(id) + (*cursor)++) & (f->by_id.cap - 1)];
		if (!place)
			return NULL;
		if (ps_id_cmp(&f->v[place - 1].id, id) == 0)
			return &f->v[place - 1];
	}
}

static void planned_files_name(
        struct ps_planned_files *f, struct ps_planned_file *file, const struct ps_id *id)
{
	if (file->named || ps_id_cmp(id, &no_id) == 0)
		return; /* a node shows one object forever */
	file->id = *id;
	file->named = true;
	f->nnameless--;
	table_add(&f->by_id, hash_of_id(id), (uint32_t)(file - f->v));
}

/* The place of the file, which is added if it is new; room has been reserved. */
static uint32_t planned_files_add(struct ps_planned_files *f, const struct ps_plan_file *file)
{
	struct ps_planned_file *found = planned_files_by_node(f, file->node);

	if (!found) {
		while (f->nfree > 0 && f->v[f->free_from].node)
			f->free_from++;
		found = f->nfree > 0 ? &f->v[f->free_from++] : &f->v[f->n++];
		f->nfree -= f->nfree > 0;
		*found = (struct ps_planned_file){.node = file->node, .dataset = file->dataset};
		found->tail = &found->uses;
		f->nnameless++;
		table_add(&f->by_node, hash_of_node(file->node), (uint32_t)(found - f->v));
	}
	planned_files_name(f, found, &file->id);
	return (uint32_t)(found - f->v);
}

/* Forgets files that have no use and whose last rank has ended. */
static void planned_files_sweep(struct ps_plans *plans)
{
	struct ps_planned_files *f = &plans->files;
	size_t nleft = 0;

	f->free_from = 0;
	for (size_t i = 0; i < f->n; i++) {
		struct ps_planned_file *file = &f->v[i];

		if (!file->node)
			continue;
		const struct ps_plan_rank *last = plans->ranks[file->last % PS_PLANS_MAX_RANKS];
		if (file->uses || (last && last->serial == file->last)) {
			nleft++;
			continue;
		}
		f->nnameless -= !file->named;
		f->nfree++;
		*file = (struct ps_planned_file){0};
	}
	if (nleft == 0)
		planned_files_fini(f);
	else
		fill_tables(f);
}

/* The assumed pace of a rank that has not advanced yet. It only puts that rank's own uses in order. */
#define FILE_UNKNOWN_S 1.0
#define PACE_WEIGHT 0.3

struct ps_plans *ps_plans_new(void)
{
	struct ps_plans *plans = calloc(1, sizeof(*plans));

	if (plans)
		pthread_mutex_init(&plans->lock, NULL);
	return plans;
}

/* The functions below need the lock held ----------------------------------------------------------------- */

/* Uses and epochs ---------------------------------------------------------------------------------------- */

/* Ends a use. */
static void plan_use_end(struct ps_plans *plans, struct ps_plan_use *use)
{
	struct ps_plan_epoch *epoch = use->epoch;

	if (use->over)
		return; /* its file may have been forgotten */
	struct ps_planned_file *file = &plans->files.v[use->file];
	*use->link = use->next;
	if (use->next)
		use->next->link = use->link;
	else
		file->tail = use->link;
	file->first = file->uses ? file->uses->epoch : NULL;
	use->over = true;
	epoch->nover++;
	while (epoch->first < epoch->nuses && epoch->uses[epoch->first].over)
		epoch->first++;
}

static void use_begin(struct ps_plans *plans, struct ps_plan_use *use)
{
	struct ps_planned_file *file = &plans->files.v[use->file];

	if (file->named_in == use->epoch->serial) { /* the epoch names this file already: one use is enough */
		use->over = true;
		use->epoch->nover++;
		return;
	}
	use->link = file->tail;
	*use->link = use;
	file->tail = &use->next;
	file->named_in = use->epoch->serial;
	file->last = use->epoch->rank->serial;
	file->first = file->uses->epoch;
}

static void epoch_free(struct ps_plans *plans, struct ps_plan_epoch *epoch)
{
	for (uint32_t i = 0; i < epoch->nuses; i++)
		plan_use_end(plans, &epoch->uses[i]);
	ps_list_remove(&epoch->link);
	plans->nbytes -= epoch->nbytes;
	if (epoch->rank->teller.other_user)
		plans->other_users_nbytes -= epoch->nbytes;
	free(epoch);
}

/* The link of the epoch with this number, or of the first later epoch, or the list's head. */
static struct ps_list *epoch_place(struct ps_plan_rank *rank, uint64_t number)
{
	struct ps_list *l = rank->epochs.next;

	while (l != &rank->epochs && plan_epoch_of(l)->number < number)
		l = l->next;
	return l;
}

/* Estimates when the epochs will be read, at the rank's pace. */
static void schedule(struct ps_plan_rank *rank, double now_s)
{
	double file_s = rank->file_s > 0 ? rank->file_s : FILE_UNKNOWN_S;

	for (struct ps_list *l = rank->epochs.next; l != &rank->epochs; l = l->next) {
		struct ps_plan_epoch *epoch = plan_epoch_of(l);
		double left_s = (epoch->nuses - epoch->nover) * file_s;

		epoch->mid_s = now_s + left_s / 2;
		epoch->margin_s = epoch->nuses * file_s / 4;
		now_s += left_s;
	}
}

/* Ranks -------------------------------------------------------------------------------------------------- */

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
	        (teller->other_user &&
	                plans->nother_users >= PS_PLANS_MAX_RANKS / PS_PLANS_OTHER_USERS_SHARE))
		return -ENOSPC;
	struct ps_plan_rank *rank = calloc(1, sizeof(*rank));
	if (!rank)
		return -ENOMEM;
	*rank = (struct ps_plan_rank){.teller = *teller, .who = *who, .heard_s = now_s, .moved_s = now_s};
	rank->serial = ++plans->serials * PS_PLANS_MAX_RANKS + slot;
	ps_list_init(&rank->epochs);
	plans->ranks[slot] = rank;
	plans->nranks++;
	plans->nother_users += teller->other_user;
	*ret = rank;
	return 0;
}

static void rank_free(struct ps_plans *plans, struct ps_plan_rank *rank)
{
	while (!ps_list_empty(&rank->epochs))
		epoch_free(plans, plan_epoch_of(rank->epochs.next));
	plans->ranks[rank->serial % PS_PLANS_MAX_RANKS] = NULL;
	plans->nranks--;
	plans->nother_users -= rank->teller.other_user;
	free(rank);
}

static void rank_end(struct ps_plans *plans, struct ps_plan_rank *rank)
{
	rank_free(plans, rank);
	planned_files_sweep(plans);
}

/* Announcements ------------------------------------------------------------------------------------------ */

static bool has_room(const struct ps_plans *plans, const struct ps_plan_teller *teller, uint64_t nbytes)
{
	if (teller->other_user &&
	        plans->other_users_nbytes + nbytes > PS_PLANS_MAX_NBYTES / PS_PLANS_OTHER_USERS_SHARE)
		return false;
	return plans->nbytes + nbytes <= PS_PLANS_MAX_NBYTES;
}

static void fill_epoch(struct ps_plans *plans, struct ps_plan_epoch *epoch, const struct ps_plan_file *files)
{
	for (uint32_t i = 0; i < epoch->nuses; i++) {
		struct ps_plan_use *use = &epoch->uses[i];

		*use = (struct ps_plan_use){
		        .epoch = epoch, .file = planned_files_add(&plans->files, &files[i])};
		use_begin(plans, use);
	}
}

/* An announcement replaces the previous one of its epoch. Files before the rank's position are over at
 * once. */
static int announce(struct ps_plans *plans, struct ps_plan_rank *rank, const struct ps_plan_who *who,
        const struct ps_plan_file *files, size_t n, double now_s)
{
	struct ps_list *place = epoch_place(rank, who->epoch);
	struct ps_plan_epoch *old = NULL, *epoch;
	unsigned nepochs = 0;

	for (const struct ps_list *l = rank->epochs.next; l != &rank->epochs; l = l->next)
		nepochs++;
	if (place != &rank->epochs && plan_epoch_of(place)->number == who->epoch)
		old = plan_epoch_of(place);
	if (!old && nepochs >= PS_PLANS_MAX_EPOCHS)
		return -E2BIG;
	uint64_t nbytes = sizeof(*epoch) + n * sizeof(epoch->uses[0]);
	for (size_t i = 0; i < n; i++)
		if (!planned_files_by_node(&plans->files, files[i].node))
			nbytes += sizeof(struct ps_planned_file);
	if (!has_room(plans, &rank->teller, nbytes))
		return -ENOSPC;
	if (planned_files_reserve(&plans->files, n) < 0 ||
	        !(epoch = malloc(sizeof(*epoch) + n * sizeof(epoch->uses[0]))))
		return -ENOMEM;
	*epoch = (struct ps_plan_epoch){
	        .rank = rank, .number = who->epoch, .nuses = (uint32_t)n, .nbytes = nbytes};
	if (old) {
		place = old->link.next;
		epoch_free(plans, old);
	}
	rank->out_of_order |= place != &rank->epochs;
	ps_list_append(place, &epoch->link);
	plans->nbytes += nbytes;
	if (rank->teller.other_user)
		plans->other_users_nbytes += nbytes;
	epoch->serial = ++plans->serials;
	fill_epoch(plans, epoch, files);
	if (who->epoch == rank->who.epoch)
		for (uint64_t i = 0; i < PS_MIN(rank->files_done, n); i++)
			plan_use_end(plans, &epoch->uses[i]);
	rank->who.world = who->world;
	rank->heard_s = now_s;
	schedule(rank, now_s);
	return 0;
}

static void advance(struct ps_plans *plans, struct ps_plan_rank *rank, uint64_t number, uint64_t files_done)
{
	while (!ps_list_empty(&rank->epochs) && plan_epoch_of(rank->epochs.next)->number < number) {
		rank->epochs_done += plan_epoch_of(rank->epochs.next)->nuses;
		epoch_free(plans, plan_epoch_of(rank->epochs.next));
	}
	rank->who.epoch = number;
	rank->files_done = files_done;
	struct ps_plan_epoch *epoch = ps_list_empty(&rank->epochs) ? NULL : plan_epoch_of(rank->epochs.next);
	if (!epoch || epoch->number != number)
		return;
	for (uint32_t i = epoch->first; i < PS_MIN(files_done, epoch->nuses); i++)
		plan_use_end(plans, &epoch->uses[i]);
}

/* The functions above need the lock held ----------------------------------------------------------------- */

void ps_plans_free(struct ps_plans *plans)
{
	if (!plans)
		return;
	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++)
		if (plans->ranks[i])
			rank_free(plans, plans->ranks[i]);
	planned_files_fini(&plans->files);
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
	int rc = rank ? 0 : rank_make(plans, teller, who, now_s, &rank);

	if (rc == 0)
		rc = announce(plans, rank, who, files, n, now_s);
	plans->counters.refused += rc < 0;
	if (rank && ps_list_empty(&rank->epochs))
		rank_end(plans, rank);
	return rc;
}

int ps_plans_position(struct ps_plans *plans, const struct ps_plan_teller *teller,
        const struct ps_plan_who *who, uint64_t files_done, double now_s)
{
	PS_LOCK_SCOPE(&plans->lock);
	struct ps_plan_rank *rank = rank_find(plans, teller, who);

	if (!rank)
		return -ESTALE;
	if (who->epoch < rank->who.epoch) {
		/* The rank is back in an earlier epoch, as a resumed run is: the files that are over must
		 * be announced again. */
		rank_end(plans, rank);
		return -ESTALE;
	}
	advance(plans, rank, who->epoch, files_done);
	rank->heard_s = now_s;
	uint64_t done = rank->epochs_done + rank->files_done;
	if (done > rank->moved_done && now_s > rank->moved_s) { /* learns its pace */
		double file_s = (now_s - rank->moved_s) / (double)(done - rank->moved_done);

		rank->file_s =
		        rank->file_s > 0 ? rank->file_s + PACE_WEIGHT * (file_s - rank->file_s) : file_s;
		rank->moved_done = done;
		rank->moved_s = now_s;
	}
	schedule(rank, now_s);
	return 0;
}

void ps_plans_drop_feed(struct ps_plans *plans, uint64_t feed)
{
	PS_LOCK_SCOPE(&plans->lock);
	unsigned before = plans->nranks;

	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++)
		if (plans->ranks[i] && plans->ranks[i]->teller.feed == feed)
			rank_free(plans, plans->ranks[i]);
	if (plans->nranks < before)
		planned_files_sweep(plans);
}

void ps_plans_expire(struct ps_plans *plans, double now_s)
{
	PS_LOCK_SCOPE(&plans->lock);
	unsigned before = plans->nranks;

	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++)
		if (plans->ranks[i] && now_s - plans->ranks[i]->heard_s > PS_PLANS_SILENT_S)
			rank_free(plans, plans->ranks[i]);
	if (plans->nranks < before)
		planned_files_sweep(plans);
	plans->counters.expired += before - plans->nranks;
}

int ps_plans_charge(struct ps_plans *plans, const struct ps_plan_teller *teller, int64_t nbytes)
{
	PS_LOCK_SCOPE(&plans->lock);

	if (nbytes > 0 && !has_room(plans, teller, (uint64_t)nbytes)) {
		plans->counters.refused++;
		return -ENOSPC;
	}
	plans->nbytes += (uint64_t)nbytes;
	if (teller->other_user)
		plans->other_users_nbytes += (uint64_t)nbytes;
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
	struct ps_planned_file *file = planned_files_by_node(&plans->files, named->node);

	if (file)
		planned_files_name(&plans->files, file, &named->id);
}

/* What follows from plans -------------------------------------------------------------------------------- */

/* In the next epoch, an open counts as a use only if few of the rank's uses come before it: 1 / EARLY_SHARE
 * of the epoch, or EARLY_MIN if that is more. In the present epoch any open counts, since a rank's lanes
 * may advance unevenly. */
#define EARLY_SHARE 4
#define EARLY_MIN 16
/* Limit on the files that are looked at to find those of one dataset. */
#define LOOKS_MAX 4096

/* The functions below need the lock held ----------------------------------------------------------------- */

/* The number of uses that the rank still makes before this one, if it reads in order; negative: later uses
 * were made first. */
static int64_t distance(const struct ps_plan_use *use)
{
	const struct ps_plan_epoch *epoch = use->epoch;
	const struct ps_list *head = &epoch->rank->epochs;
	int64_t n = (int64_t)(use - epoch->uses) - epoch->nover;

	for (const struct ps_list *l = head->next; l != &epoch->link; l = l->next)
		n += plan_epoch_of(l)->nuses - plan_epoch_of(l)->nover;
	return n;
}

/* True if all earlier epochs of the rank are over. */
static bool is_under_way(const struct ps_plan_epoch *epoch)
{
	for (const struct ps_list *l = epoch->link.prev; l != &epoch->rank->epochs; l = l->prev)
		if (plan_epoch_of(l)->nover < plan_epoch_of(l)->nuses)
			return false;
	return true;
}

/* True if an open now would count as this use. */
static bool is_due(const struct ps_plan_use *use, int64_t far)
{
	return is_under_way(use->epoch) ||
	       far <= PS_MAX(use->epoch->nuses / EARLY_SHARE, (uint32_t)EARLY_MIN);
}

/* The use that an open of the object counts as: of those that are due, the one with the smallest distance. */
static struct ps_plan_use *due_use(struct ps_plans *plans, const struct ps_id *object, bool *ret_known)
{
	struct ps_plan_use *due = NULL;
	int64_t nearest = INT64_MAX;
	struct ps_planned_file *file;
	size_t cursor = 0;

	while ((file = planned_files_by_id(&plans->files, object, &cursor))) {
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

/* The functions above need the lock held ----------------------------------------------------------------- */

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
		plans->counters.foreseen_opens++;
		plans->counters.foreseen_hits += cached;
		plan_use_end(plans, due);
	} else if (known) {
		plans->counters.unforeseen_opens++;
	}
}

static void sooner(const struct ps_plan_epoch *epoch, struct ps_plan_need *ret)
{
	if (epoch->mid_s < ret->when_s)
		*ret = (struct ps_plan_need){.when_s = epoch->mid_s, .margin_s = epoch->margin_s};
}

enum ps_policy_need ps_plans_need(
        struct ps_plans *plans, const struct ps_id *object, struct ps_plan_need *ret)
{
	PS_LOCK_SCOPE(&plans->lock);
	enum ps_policy_need need = PS_NEED_UNKNOWN;
	struct ps_planned_file *file;
	size_t cursor = 0;

	*ret = (struct ps_plan_need){.when_s = INFINITY};
	while ((file = planned_files_by_id(&plans->files, object, &cursor))) {
		if (need == PS_NEED_UNKNOWN)
			/* a file stays known until the last rank that named it has ended */
			need = PS_NEED_NEVER;
		if (!file->first)
			continue;
		need = PS_NEED_PLANNED;
		sooner(file->first, ret);
		/* The uses of a single rank are in order of need, so the first one is the soonest. */
		bool sorted = plans->nranks == 1 && !file->first->rank->out_of_order;
		for (const struct ps_plan_use *use = file->uses; !sorted && use; use = use->next)
			sooner(use->epoch, ret);
	}
	return need;
}

/* The rank's next file that is not opened yet. False: no more files are announced. */
static bool upcoming(
        struct ps_plan_epoch **epoch, uint32_t *place, const struct ps_list *end, uint32_t *ret_file)
{
	while (&(*epoch)->link != end) {
		for (; *place < (*epoch)->nuses; ++*place)
			if (!(*epoch)->uses[*place].over) {
				*ret_file = (*epoch)->uses[(*place)++].file;
				return true;
			}
		*epoch = plan_epoch_of((*epoch)->link.next);
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
		at[nat].epoch = plan_epoch_of(rank->epochs.next);
		at[nat].place = at[nat].epoch->first;
		at[nat++].end = &rank->epochs;
	}
	/* Takes one file of each rank in turn, so that the next file of every rank comes before the second
	 * of any. */
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
		nfiles += plan_epoch_of(l)->nuses;
	}
	return ps_figures_json(PS_SECTION_rank, NULL, "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "job",
	        ps_json_lossy(rank->who.job), "rank", (json_int_t)rank->who.rank, "world",
	        (json_int_t)rank->who.world, "epoch", (json_int_t)rank->who.epoch, "files_done",
	        (json_int_t)rank->files_done, "epochs", nepochs, "files", nfiles, "age_seconds",
	        PS_MAX(now_s - rank->heard_s, 0.0));
}

json_t *ps_plans_stats(struct ps_plans *plans, double now_s)
{
	PS_LOCK_SCOPE(&plans->lock);
	json_t *ranks = json_array();

	for (size_t i = 0; i < PS_PLANS_MAX_RANKS; i++)
		if (plans->ranks[i])
			json_array_append_new(ranks, rank_stats(plans->ranks[i], now_s));
	return ps_figures_json(PS_SECTION_plans, &plans->counters, "{s:o, s:I, s:I}", "ranks", ranks,
	        "active", (json_int_t)plans->nranks, "memory_bytes", (json_int_t)plans->nbytes);
}
