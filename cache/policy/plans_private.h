/* What the files of the plans share. plans.c: who tells what. plans_ask.c: what follows from it.
 * plans_files.c: the files that are named. */
#ifndef PS_POLICY_PLANS_PRIVATE_H
#define PS_POLICY_PLANS_PRIVATE_H

#include <pthread.h>

#include "base/list.h"
#include "policy/plans.h"

struct ps_plan_use {
	struct ps_plan_use *next, **link; /* of the file, none of which is over; link points at it */
	struct ps_plan_epoch *epoch;
	uint32_t file;
	bool over;
};

struct ps_plan_epoch {
	struct ps_list link; /* of its rank, by number */
	struct ps_plan_rank *rank;
	uint64_t number, nbytes, serial;
	uint32_t nuses, nover;
	uint32_t first; /* those before it are over */
	double mid_s;   /* when its uses are needed, on average */
	double margin_s;
	struct ps_plan_use uses[];
};

struct ps_plan_rank {
	struct ps_plan_teller teller;
	struct ps_plan_who who; /* who.epoch: of the position */
	uint64_t serial;        /* its slot, and how often that was used */
	uint64_t files_done;
	struct ps_list epochs;
	bool out_of_order; /* an epoch was told after a later one */
	double heard_s;
	/* Its pace: when it was last seen to advance, and through how many files of all it was then. */
	double moved_s, file_s;
	uint64_t moved_done, epochs_done;
};

struct ps_planned_file {
	struct ps_id id;
	uint64_t node;                    /* 0: free */
	uint64_t last;                    /* serial of the rank that named it last */
	struct ps_plan_use *uses, **tail; /* as they were told; the list and where it ends */
	struct ps_plan_epoch *first; /* of uses, so that asking needs one look at memory less; NULL: none */
	uint64_t named_in;           /* serial of the last epoch that named it */
	uint32_t dataset;
	bool named; /* the id is known */
};

/* Open addressing; a slot is 0 or the file's place + 1. Nothing is removed but by making it anew. */
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
	pthread_mutex_t lock; /* all below */
	struct ps_plan_rank *ranks[PS_PLANS_MAX_RANKS];
	unsigned nranks, nstrangers;
	uint64_t serials;
	uint64_t nbytes, strangers_nbytes; /* of epochs */
	struct ps_planned_files files;
	uint64_t foreseen_opens, foreseen_hits, unforeseen_opens, expired, refused;
};

static inline struct ps_plan_epoch *ps_plan_epoch_of(const struct ps_list *link)
{
	return PS_CONTAINER_OF(link, struct ps_plan_epoch, link);
}

/* plans.c: the use is over. The lock is held. */
void ps_plan_use_end(struct ps_plans *plans, struct ps_plan_use *use);

/* plans_files.c; the lock is held in all. */
void ps_planned_files_fini(struct ps_planned_files *files);
/* Room for n more, so that adding them does not fail. -ENOMEM. */
int ps_planned_files_reserve(struct ps_planned_files *files, size_t n) PS_MUST_USE;
/* The place of the file, made if there is none; room has been reserved. */
uint32_t ps_planned_files_add(struct ps_planned_files *files, const struct ps_plan_file *file);
/* NULL: there is none. */
struct ps_planned_file *ps_planned_files_by_node(struct ps_planned_files *files, uint64_t node);
/* NULL: there is none (more). Nodes of two datasets may show one object: *cursor, 0 at first, goes through
 * them. */
struct ps_planned_file *ps_planned_files_by_id(
        struct ps_planned_files *files, const struct ps_id *id, size_t *cursor);
void ps_planned_files_name(
        struct ps_planned_files *files, struct ps_planned_file *file, const struct ps_id *id);
/* Forgets those that have no use and whose last rank is gone. */
void ps_planned_files_sweep(
        struct ps_planned_files *files, bool (*gone)(const void *arg, uint64_t serial), const void *arg);

#endif
