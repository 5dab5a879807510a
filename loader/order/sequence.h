/* The canonical sequence of an epoch: which sample of which lane stands at position p, and back.
 *
 * Lanes are in sets: one, or one for each dataset of a mix. The lanes of a set that have not ended give a
 * sample each, in turn:
 *
 *   lane 0   0  3  6  8           position p of the set; lane 1 ends after two samples, lane 0 after four.
 *   lane 1   1  4                 (lane, index) stands at  sum over lanes of min(length, index)
 *   lane 2   2  5  7  9  10                                + the lanes before it that are longer than index
 *
 * Sets take turns by stride scheduling: sample j (from 0) of a set of weight w is due at (2j + 1) / w; the
 * earliest comes first, the set with the lower number among equals. How many of a set come before a time is a
 * division, so a position needs no walk. The sequence is over when a set is due whose lanes have all ended.
 *
 * Two views: ps_turns walks (and jumps) forward, finding ends as it goes where lengths are not known;
 * ps_sequence answers for any sample, and needs all lengths (PS_ENDLESS: never ends).
 *
 * Ownership: each belongs to its creator; neither keeps the arrays it was made of.
 * Threads: a sequence any, turns one at a time.   Locks: none.   Blocks: never.   Errors: -ENOMEM. */
#ifndef PS_ORDER_SEQUENCE_H
#define PS_ORDER_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

#define PS_ENDLESS UINT64_MAX

struct ps_lane_set {
	uint32_t first, n; /* lanes; sets follow each other */
	uint64_t weight;   /* 1 to PS_MAX_WEIGHT */
};

#define PS_MAX_WEIGHT (UINT64_C(1) << 32)
#define PS_MAX_SETS 256

/* -- Any sample --------------------------------------------------------------------------------------- */

struct ps_sequence;

/* `lengths` of all lanes, in samples. */
int ps_sequence_new(const struct ps_lane_set *sets, uint32_t nsets, const uint64_t *lengths,
        struct ps_sequence **ret_sequence) PS_MUST_USE;
void ps_sequence_free(struct ps_sequence *sequence); /* NULL is allowed */

/* Samples up to the end: PS_ENDLESS if there is none. */
uint64_t ps_sequence_total(const struct ps_sequence *sequence);

/* Where the index-th sample of a lane stands; index < its length. It may be behind the end. */
uint64_t ps_sequence_position(const struct ps_sequence *sequence, uint32_t lane, uint64_t index);

/* -- In turn ------------------------------------------------------------------------------------------ */

struct ps_turns_set;

struct ps_turns {
	uint32_t nsets, nlanes;
	struct ps_turns_set *sets;
	uint32_t *alive; /* the sets' lists of lanes, each at its first lane's place */
	uint64_t *lengths;
	uint32_t set;
	bool beyond; /* skipped over the end */
	/* Whose turn it is. */
	bool over;
	uint32_t lane;
	uint64_t index; /* of the lane's sample */
	uint64_t position;
};

int ps_turns_init(struct ps_turns *turns, const struct ps_lane_set *sets, uint32_t nsets) PS_MUST_USE;
void ps_turns_fini(struct ps_turns *turns);

/* A new epoch. NULL: no length is known. */
void ps_turns_reset(struct ps_turns *turns, const uint64_t *lengths);

/* The sample whose turn it was was given. */
void ps_turns_advance(struct ps_turns *turns);

/* As n times advance(), at the cost of the lanes that end meanwhile. Lengths must be known. */
void ps_turns_skip(struct ps_turns *turns, uint64_t n);

/* The lane whose turn it is has ended: behind its sample `index`, which was given, or before it. */
void ps_turns_finish(struct ps_turns *turns, bool given);

/* The turn of a lane comes now, in a sequence of one set, about in that round; for going on somewhere in an epoch
 * whose lengths are not known. */
void ps_turns_set_lane(struct ps_turns *turns, uint32_t lane, uint64_t position, uint64_t round);

/* How many samples of a lane come before the turn that it is; lengths must be known. */
uint64_t ps_turns_before(const struct ps_turns *turns, uint32_t lane);

/* A place between two turns of a set: all of its lanes have given their samples before `round`, those below
 * `lane` that of `round`, too, as far as they have so many. */
struct ps_mark {
	uint64_t round; /* PS_ENDLESS: all have ended */
	uint32_t lane;
};

/* Before the turn that it is, of each set. */
void ps_turns_mark(const struct ps_turns *turns, struct ps_mark *ret_marks);

/* Samples of a lane of the mark's set before it. */
static inline uint64_t ps_mark_before(const struct ps_mark *m, uint32_t lane, uint64_t length)
{
	return length <= m->round ? length : m->round + (lane < m->lane);
}

/* The round that a lane's set is in: no lane of it has given more than one sample more. */
uint64_t ps_turns_round(const struct ps_turns *turns, uint32_t lane);

#endif
