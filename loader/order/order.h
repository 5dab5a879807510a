/* Which sample is at which position of an epoch: arithmetic on seeds, lists of shards and counts. No shard is
 * read; only the planner of plan.c has a thread.
 *
 * From the top down; each file uses those below it:
 *
 *   epoch.c       what is known of an epoch before it is read
 *   plan.c        the plan that a mount is given
 *   deal.c        which rank has which rows
 *   shuffle.c     the shards of a lane, the samples of a block; the position of a run
 *   lane_turns.c  which lane is next
 *   shares.c      which dataset of a mix is next
 *   steps.c       which samples are in a step, which ranks have rows of it, and how an epoch ends
 *   select.c      which samples come, and how often: filters, weights, classes
 *   filter.c      an expression over the columns of an index
 *   numbers.c     sample numbers that the caller gives as the order
 *
 * select.c and filter.c read columns of indexes (shard/index/index.h). Random numbers come from
 * random/random.h.
 * Ownership, threads, locks, errors, blocking: as each section says. */
#ifndef PS_ORDER_ORDER_H
#define PS_ORDER_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "penstock.h"
#include "random/random.h"

/* The canonical sequence --------------------------------------------------------------------------------- */

/* The canonical sequence of an epoch: which sample of which lane is at position p, and the position of a
 * given sample.
 *
 * Lanes are grouped into sets: one set, or one for each dataset of a mix. In each round every lane of a set
 * that has not ended gives one sample:
 *
 *   lane 0   0  3  6  8           position p of the set; lane 1 ends after two samples, lane 0 after four
 *   lane 1   1  4                 position of (lane, index):  sum over lanes of min(length, index)
 *   lane 2   2  5  7  9  10                                 + number of earlier lanes longer than index
 *
 * Sets take turns as their shares (below) say. A division gives the number of a set's samples before a given
 * time, so positions are computed without a walk. The sequence ends when the next set due has no lane left.
 *
 * Two views: ps_turns walks (and jumps) forward; where lengths are not known, the caller reports each
 * lane's end (ps_turns_finish()). ps_sequence gives the position of any sample, and needs all lengths
 * (PS_ENDLESS: a lane without end).
 *
 * Ownership: each belongs to its creator; the arrays passed at creation are not kept.
 * Threads: a sequence any, turns one at a time.   Locks: none.   Blocks: never.   Errors: -ENOMEM. */

#define PS_ENDLESS UINT64_MAX

struct ps_lane_set {
	uint32_t first, n; /* lanes; sets follow each other */
};

/* The number of the set that a lane is in. */
static inline uint32_t ps_lane_set_of(const struct ps_lane_set *sets, uint32_t lane)
{
	uint32_t d = 0;

	while (lane >= sets[d].first + sets[d].n)
		d++;
	return d;
}

/* How many of n ascending numbers are at most x. */
static inline uint32_t ps_count_up_to(const uint64_t *v, uint32_t n, uint64_t x)
{
	uint32_t low = 0, high = n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (v[mid] <= x)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

#define PS_MAX_SETS 256

/* Shares of sets ----------------------------------------------------------------------------------------- */

/* How the datasets of a mix take turns: by shares of the rows, which may change in stages.
 *
 * Time is the position in the epoch's order. A_d(t) is the number of rows, in 2^-32 rows, that set d should
 * have before time t: the sum of its shares. In each stage the shares are constant and their sum is one row,
 * so the sum of all A_d(t) is t. Between two sets, sample j (from 0) of set d is due when A_d reaches j +
 * 1/2, and the earliest comes first, that of the left set among equals. So each set is within half a row of
 * its share of the two.
 *
 * With many sets the halves would add up: so sets are the leaves of a binary tree. A pair of nodes is merged
 * in this way, its A being the sum of theirs, and so are pairs of pairs. Sets are sorted by their largest
 * share (ties: the lower number first), and a list is cut where the sums of both parts differ least (at the
 * first such place); the front part is the left one.
 *
 *                  o               A set that has a fraction r of its parent's share has half a row, and r times
 *               /     \            the deviation of its parent: about one row in all, however many sets there are.
 *          0.5 web      o
 *                    /     \      A set whose share is 0 waits until its share is larger. If a pair is due and
 *           0.3 code    0.2 math   neither of its nodes ever is, the one that lacks least of a sample gives one.
 *
 * A stage whose shares change linearly is a staircase of at most PS_SHARES_STAIRS constant stages.
 *
 *   A_d(t)        ___/  share 0.2         Sample j is due at time t_k + (j + 1/2 - A_d(t_k)) / share, where
 *             ___/                        t_k is the beginning of stage k: a fraction, compared by
 *   _________/          share 0           cross-multiplication in 128 bits.
 *
 * The shares of an epoch may begin in its middle (`base`), where a run was resumed with other stages: at a
 * position, with what A_d was then, and with the samples that each set had given. Samples that were due
 * before that and were not given come first.
 *
 * Ownership: shares belong to their creator; the arrays passed at creation are copied.
 * Threads: any.   Locks: none.   Blocks: never.   Errors: -ENOMEM. */

typedef unsigned __int128 ps_u128;

#define PS_SHARE_ONE (UINT64_C(1) << 32)
#define PS_SHARES_STAIRS 256
#define PS_SHARES_MAX_ROW (UINT64_C(1) << 60) /* stages begin before it; no later sample is ever due */

struct ps_share_stage {
	uint64_t at; /* its first row, counted from the base; ascending, the first is 0 */
	/* the shares change to these, beginning with the stage before this one, and have reached them here */
	bool linear;
	const double *weights; /* of the sets; 0 or more, and not all 0 */
};

/* Where a set is at the base. */
struct ps_share_base {
	ps_u128 sum;    /* A_d */
	uint64_t given; /* its samples before the base */
};

struct ps_shares;

/* `base` NULL: at row 0, where no set has given a sample. `gone`: samples before `row` of sets that are no
 * longer in the mix. */
int ps_shares_new(uint32_t nsets, const struct ps_share_stage *stages, uint32_t nstages, uint64_t row,
        uint64_t gone, const struct ps_share_base *base, struct ps_shares **ret_shares) PS_MUST_USE;
void ps_shares_free(struct ps_shares *shares); /* NULL is allowed */

/* The set's largest share in any stage. */
uint64_t ps_shares_most(const struct ps_shares *shares, uint32_t set);

/* Each set's place after the first `position` positions, which must not be below the base. */
void ps_shares_at(const struct ps_shares *shares, uint64_t position, struct ps_share_base *ret_places);

/* The position of sample j of a set; PS_ENDLESS - 1: it never comes. */
uint64_t ps_shares_position(const struct ps_shares *shares, uint32_t set, uint64_t j);

/* The first position. */
uint64_t ps_shares_begin(const struct ps_shares *shares);

/* When a sample of a node of the tree is due. */
struct ps_share_time {
	uint32_t stage; /* PS_SHARES_NEVER: never */
	ps_u128 x;      /* the node's share in that stage, times the time since the stage's beginning */
};

#define PS_SHARES_NEVER UINT32_MAX

/* Walks through the sets in turn. */
struct ps_share_walk {
	const struct ps_shares *shares; /* borrowed */
	uint64_t *given;                /* samples of each node ... */
	struct ps_share_time *due;      /* ... and when its next one is due */
};

int ps_share_walk_init(struct ps_share_walk *walk, uint32_t nsets) PS_MUST_USE;
void ps_share_walk_fini(struct ps_share_walk *walk);

void ps_share_walk_begin(struct ps_share_walk *walk, const struct ps_shares *shares, uint64_t position);

/* The set that has the next sample. */
uint32_t ps_share_walk_next(const struct ps_share_walk *walk);

/* That set gave its sample. */
void ps_share_walk_give(struct ps_share_walk *walk, uint32_t set);

/* Any sample --------------------------------------------------------------------------------------------- */

struct ps_sequence;

/* `lengths` of all lanes, in samples. `shares` are borrowed; NULL if there is one set. */
int ps_sequence_new(const struct ps_lane_set *sets, uint32_t nsets, const struct ps_shares *shares,
        const uint64_t *lengths, struct ps_sequence **ret_sequence) PS_MUST_USE;
void ps_sequence_free(struct ps_sequence *sequence); /* NULL is allowed */

/* Samples up to the end: PS_ENDLESS if there is none. */
uint64_t ps_sequence_total(const struct ps_sequence *sequence);

/* The position of a lane's index-th sample; index < the lane's length. The position may be after the end. */
uint64_t ps_sequence_position(const struct ps_sequence *sequence, uint32_t lane, uint64_t index);

/* In turn ------------------------------------------------------------------------------------------------ */

struct ps_turns_set;

struct ps_turns {
	uint32_t nsets, nlanes;
	struct ps_turns_set *sets;
	/* the lanes that have not ended: a list for each set, from the index of the set's first lane on */
	uint32_t *alive;
	uint64_t *lengths;
	uint32_t set;
	bool beyond; /* a skip went past the end */
	const struct ps_shares *shares;
	struct ps_share_walk walk; /* with `shares` */
	/* The current turn. */
	bool over;
	uint32_t lane;
	uint64_t index; /* of the lane's sample */
	uint64_t position;
};

int ps_turns_init(struct ps_turns *turns, const struct ps_lane_set *sets, uint32_t nsets) PS_MUST_USE;
void ps_turns_fini(struct ps_turns *turns);

/* Begins an epoch, at the first position of `shares`, which are borrowed until the next reset; NULL if there
 * is one set. `lengths` NULL: no length is known. */
void ps_turns_reset(struct ps_turns *turns, const uint64_t *lengths, const struct ps_shares *shares);

/* Moves to the next turn: the sample of the current one was given. */
void ps_turns_advance(struct ps_turns *turns);

/* The same as n calls of ps_turns_advance(), in time proportional to the number of lanes that end
 * meanwhile. Lengths must be known. */
void ps_turns_skip(struct ps_turns *turns, uint64_t n);

/* The current lane has ended: after its sample `index`, which was given, or before it. */
void ps_turns_finish(struct ps_turns *turns, bool given);

/* Gives the turn to a lane, to continue within an epoch whose lengths are not known. `round`: the current
 * round; one less is allowed, too, because a caller that knows only how many samples the lanes have given
 * cannot tell. The sequence must have one set, and no lane may have ended in `turns`. */
void ps_turns_set_lane(struct ps_turns *turns, uint32_t lane, uint64_t position, uint64_t round);

/* How many samples of a lane come before the current turn; lengths must be known. */
uint64_t ps_turns_before(const struct ps_turns *turns, uint32_t lane);

/* A place between two turns of a set. Before the place are the first `round` samples of each lane of the set,
 * and one more sample of each lane below `lane`. Of a lane that is shorter, all samples are before it. */
struct ps_mark {
	uint64_t round; /* PS_ENDLESS: all lanes have ended */
	uint32_t lane;
};

/* Each set's mark before the current turn. */
void ps_turns_mark(const struct ps_turns *turns, struct ps_mark *ret_marks);

/* How many samples of a lane come before the mark of its set. */
static inline uint64_t ps_mark_before(const struct ps_mark *m, uint32_t lane, uint64_t length)
{
	return length <= m->round ? length : m->round + (lane < m->lane);
}

/* The current round of a lane's set: no lane of the set has given more than `round` + 1 samples. */
uint64_t ps_turns_round(const struct ps_turns *turns, uint32_t lane);

/* Steps -------------------------------------------------------------------------------------------------- */

/* An epoch cut into steps: how many samples each rank's batch of each step holds.
 *
 * A step is one global batch: G = batch * world positions of the canonical sequence, shared equally among
 * the ranks; where a step's rows do not divide evenly, lower ranks have one more. Deals (below) say which
 * rows a rank has. M positions make F = floor(M / G) full steps and a remainder of R positions:
 *
 *   UNEVEN      F full steps, then R; ranks without a sample of R have one step less
 *   DROP_LAST   F full steps; R samples are not given
 *   PAD         F full steps, then R; each rank's last batch is filled up with rows that are not valid
 *   GATHER      likewise, but of R the first rank has `batch` rows, then the next one, until none is left
 *   SPLIT       F full steps, then R, dealt so that every rank has one more batch. Where R < world, the last
 *               full step gives `world` of its samples to the one after it, so that no rank's batch is empty
 *               (impossible with batch 1, or fewer samples than ranks)
 *
 * Repeats: with PAD and SPLIT a rank r without a sample in a step of n samples gets the row of rank r mod n,
 * the same draw of the same sample, as a row that is not valid. With GATHER it gets the rows of rank r mod n,
 * of n ranks that have samples in this step.
 *
 * So but for GATHER the ranks' batches differ by at most one row in each step, and no sample is valid twice.
 * Ownership: none. Threads: any. Locks: none. Blocks: never. */

struct ps_steps {
	uint64_t samples; /* M; PS_ENDLESS: as many as `most` steps need */
	uint64_t most;    /* steps; PS_ENDLESS: as many as there are samples for */
	uint32_t batch, world;
	uint32_t nodes; /* as in struct ps_epochs_options; for GATHER, which goes by the caller's ranks */
	enum penstock_end end;
	/* Of an epoch in which a run was resumed, perhaps with another batch: steps that were delivered
	 * before, and their samples. The samples after them are cut like an epoch of their own. */
	uint64_t done, from;
};

/* Number of steps of a rank's epoch. */
uint64_t ps_steps_count(const struct ps_steps *steps, uint32_t rank);

/* The first position of a step; the step ends where the next one begins. `step` is at most the largest
 * ps_steps_count() of all ranks. */
uint64_t ps_steps_begin(const struct ps_steps *steps, uint64_t step);

/* The step that has position q, which is not before `from`. */
uint64_t ps_steps_of(const struct ps_steps *steps, uint64_t q);

/* Samples of a rank in a step: 0 to batch. */
uint32_t ps_steps_rows(const struct ps_steps *steps, uint64_t step, uint32_t rank);

/* The rank whose samples a rank's batch of a step has: the rank itself, or, for a repeat, another one, which
 * has one sample in this step (with GATHER up to `batch`). */
uint32_t ps_steps_source(const struct ps_steps *steps, uint64_t step, uint32_t rank);

/* Number of positions that are given in the epoch. */
uint64_t ps_steps_end(const struct ps_steps *steps);

/* The order of lanes and blocks -------------------------------------------------------------------------- */

/* The order of an epoch: which shards a lane reads, and how the samples of its blocks are permuted.
 *
 * The shards of a set (all, or those of one dataset of a mix) are permuted (Fisher-Yates, numbers keyed by
 * seed, epoch, pass and the set's key) and dealt to the set's lanes: lane l reads the shards at the permuted
 * places l, l + lanes, l + 2 * lanes ... one after the other, then those of its next pass. Lanes give samples
 * in turn (above): that is the canonical sequence of the epoch, the same for every world size.
 *
 *   lane 0   | block 0 | block 1 | ...
 *   lane 1   | block 0 | block 1 | ...
 *   ...
 *
 * Each block of `window / lanes` samples (rounded up; counted along the lane, across shards; `lanes`: those
 * that have shards) is permuted separately (Fisher-Yates, keyed by seed, epoch, lane and block; in a mix by
 * the set's key and the lane's number in the set, so a set has the same order whatever the other sets are).
 * Without sample shuffle a block is only a unit of work: its samples keep their order.
 *
 * A block must be complete before its first sample can be given, so the first batch would wait for the window
 * of all lanes, which takes a second from a distant origin. The first blocks are therefore short: block 0, of
 * n samples, is cut at n/16, n/8, n/4 and n/2 (rounded down; at fewer places where n is below 16, and at none
 * where samples are sorted by length, below). The first batch then waits for a sixteenth of the window. Epoch
 * 0, with which most runs begin, is cut at n/128, n/64 and n/32, too: its first samples are mixed less, but
 * they come after a few round trips.
 *
 * With `bucket` b > 1 the samples of a block are sorted by length: shorter first, ties as they were read. The
 * sorted block is cut into b runs. The runs are permuted by a permutation that all lanes share (keyed by
 * seed, epoch and block), and then the samples of each run among themselves. So the samples that lanes give
 * in the same turn are of about the same length, while batches of different lengths come in random order.
 *
 * Homes: with H > 1 a permutation of the set's shards, keyed by the seed alone, gives each shard a place. The
 * shard's home is that place mod H. In each epoch and pass the shards of a home are permuted among the places
 * of this home only. H divides the number of lanes, so the shards of home h are dealt to the lanes l with l
 * mod H = h, in all epochs. So where the number of machines divides H, each machine reads the same shards
 * in every epoch, from its own cache.
 *
 * Ranks: if ranks share lanes (`shared`), rank r of W has the rows of each step that its deal gives it: first
 * those of the lanes l with l mod W = r. That needs the lanes' lengths. Where lengths are not known before
 * reading, ranks share no lanes: a rank has the lanes with l mod W = r alone, and gives their samples in
 * turn. The result is the same as long as no lane has ended and W divides the lanes; after that each rank
 * continues with its own lanes.
 *
 * A position depends only on the list of shards, the options and the counts of the shards read so far: not
 * on threads, indexes or memory limits.
 *
 * Ownership: an order belongs to its creator.   Threads: any.
 * Locks: its own, around the tables of permuted shards; no other code is called with it held.
 * Errors: 0 or -errno.   Blocks: on the processor only. */

#define PS_ORDER_MAX_LANES 16384
#define PS_ORDER_MAX_WINDOW (1u << 24)
#define PS_ORDER_PLAIN_BLOCK 16 /* samples of a block that is not shuffled */

enum ps_order_mode {
	PS_ORDER_NONE = 0,   /* the list's order; one lane that ranks share, or one lane for each rank */
	PS_ORDER_SHARDS = 1, /* shards permuted */
	PS_ORDER_WINDOW = 2, /* shards and blocks of samples permuted */
	/* all samples permuted (random/random.h); position p is in lane p mod lanes */
	PS_ORDER_PERMUTATION = 3,
	/* the caller's numbers (below) in place of the permutation; a block is one sample */
	PS_ORDER_NUMBERS = 4,
};

/* True where lanes read samples from any shard, in place of whole shards front to back. */
static inline bool ps_order_mode_scatters(enum ps_order_mode mode)
{
	return mode == PS_ORDER_PERMUTATION || mode == PS_ORDER_NUMBERS;
}

/* One dataset of a mix: a range of the list of shards. */
struct ps_order_set {
	uint32_t first, n;
	uint32_t key;    /* of its random numbers, so that its order does not depend on the other sets */
	uint32_t lanes;  /* 0: in proportion to the weights */
	uint64_t weight; /* at least 1 */
};

struct ps_order_options {
	enum ps_order_mode mode;
	uint32_t nshards;
	uint32_t window; /* samples, over all lanes that have shards */
	uint32_t lanes;
	uint32_t rank, world;
	uint64_t seed;
	uint64_t repeat;                 /* passes over the shards; 0: one; PS_ENDLESS: without end */
	bool shared;                     /* ranks share lanes */
	uint32_t bucket;                 /* runs of a block that is sorted by length; 0 or 1: not sorted */
	const struct ps_order_set *sets; /* adjacent, together all shards; NULL: one set; copied */
	uint32_t nsets;
	uint32_t homes;     /* must divide the lanes of each set; 0 or 1: none */
	uint32_t block_len; /* samples of a block, in mode WINDOW; 0: from window and lanes */
};

/* The number of lanes, and the samples of a window, where the caller sets none: computed from the global
 * batch and the number of shards alone, so that they are the same for any world size. */
uint32_t ps_order_lanes_auto(uint64_t global_batch, uint64_t nshards);
uint32_t ps_order_window_auto(uint64_t global_batch);

struct ps_order;

/* NULL on error, with err filled: -EINVAL (the text names the option) or -ENOMEM. */
struct ps_order *ps_order_new(const struct ps_order_options *options, struct ps_error *err);
void ps_order_free(struct ps_order *order); /* NULL is allowed */

/* The sets of lanes that this rank reads (its own, or all), with lanes numbered from 0. */
const struct ps_lane_set *ps_order_sets(const struct ps_order *order, uint32_t *ret_nsets);
uint32_t ps_order_nlanes(const struct ps_order *order); /* 1 at least */

/* How many of the sets' lanes belong to this rank (ps_order_owns()): 1 at least. Once lanes have ended, it
 * may also read others. */
uint32_t ps_order_nactive(const struct ps_order *order);

/* True if the lane belongs to this rank: its samples are this rank's, up to the rank's share of a step. */
bool ps_order_owns(const struct ps_order *order, uint32_t lane);

/* A lane's number among those of all ranks. */
uint32_t ps_order_lane(const struct ps_order *order, uint32_t lane);

/* Lanes of all ranks. */
uint32_t ps_order_all_lanes(const struct ps_order *order);

/* True if lanes read samples from any shard: ps_order_mode_scatters(). */
bool ps_order_scatters(const struct ps_order *order);

/* True if the samples of a block are permuted. */
bool ps_order_shuffles(const struct ps_order *order);

/* True if the permutation depends on the samples' lengths. */
bool ps_order_buckets(const struct ps_order *order);

/* Samples of a block, except the short blocks at the beginning and the lane's last. */
uint32_t ps_order_block_len(const struct ps_order *order);

/* The first sample of a block in its lane; the block ends where the next one begins. */
uint64_t ps_order_block_begin(const struct ps_order *order, uint64_t epoch, uint64_t block);

/* The block that holds the index-th sample of a lane. */
uint64_t ps_order_block_of(const struct ps_order *order, uint64_t epoch, uint64_t index);

/* The k-th shard of a lane (its place in the list), and the pass that it is read in. 1: found; 0: k is
 * after the last; -ENOMEM. */
int ps_order_shard(struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t k, uint32_t *ret_shard,
        uint64_t *ret_pass) PS_MUST_USE;

/* Number of shards in one pass of a lane. */
uint64_t ps_order_pass_len(const struct ps_order *order, uint32_t lane);

/* The permutation of a block: place i of the block gets its ret_from[i]-th sample. n: samples in the block;
 * `nbytes`: their lengths, used by buckets alone. -ENOMEM. */
int ps_order_block(const struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t block, uint32_t n,
        const uint64_t *nbytes, uint32_t *ret_from) PS_MUST_USE;

/* Deals: which rank has which rows ----------------------------------------------------------------------- */

/* The rows of each step of an epoch, dealt to the ranks: first to the rank that a row's lane belongs to.
 *
 * A step is a stretch of the canonical sequence; struct ps_steps says how many of its rows each rank has.
 * Lane l belongs to rank l mod W; rank v is on node v mod N.
 *
 *   1. A rank keeps the rows of its own lanes, lowest lanes first, up to its share.
 *   2. Surplus rows of a node, ordered by lane and place in the lane, fill the gaps of the node's ranks that
 *      have less than their share, ordered by rank: the i-th row fills the i-th gap.
 *   3. The remaining surplus, ordered by node, fills the remaining gaps, ordered by node, likewise.
 *   4. A rank that has no row gets the row that its repeat (above) names.
 *
 * A rank's rows are in the order of their positions. If there is one set, no lane has ended, and W divides
 * both the number of lanes and the rows of the step, each rank has exactly the rows of its own lanes. Such
 * steps, at the beginning of an epoch, are regular: they are dealt by arithmetic. All others are dealt one
 * by one, by a walk over all rows of the step; this rank's rows of the last steps dealt are kept (a
 * window).
 *
 * Ownership: a deal belongs to its creator, and borrows lengths, shares and sequence.
 * Threads: any.   Locks: its own, a leaf, held while a window is dealt (G turns a step).
 * Errors: -ENOMEM.   Blocks: on the processor only. */

struct ps_deal_options {
	const struct ps_lane_set *sets; /* copied */
	uint32_t nsets;
	const struct ps_shares *shares; /* NULL if there is one set */
	const uint64_t *lengths;        /* of the lanes */
	const struct ps_sequence *sequence;
	struct ps_steps steps;
	uint64_t begin, end;  /* canonical positions that are given: `end` is after the last, or PS_ENDLESS */
	uint32_t rank, nodes; /* this rank, of steps.world; `nodes` divides steps.world */
};

struct ps_dealt {
	uint64_t index; /* of the sample in its lane */
	uint32_t lane;
};

struct ps_deal;

int ps_deal_new(const struct ps_deal_options *options, struct ps_deal **ret_deal) PS_MUST_USE;
void ps_deal_free(struct ps_deal *deal); /* NULL is allowed */

/* The rows of this rank's batch of a step, a repeat included; ret_rows has room for a batch. */
int ps_deal_step(struct ps_deal *deal, uint64_t step, struct ps_dealt *ret_rows) PS_MUST_USE;

enum {
	PS_DEAL_NONE = 0,  /* no further sample in this epoch */
	PS_DEAL_FOUND = 1, /* the sample is *ret_index */
	PS_DEAL_LATER = 2, /* no sample before *ret_index: ask again from *ret_index on */
};

/* This rank's next sample of a lane, or a repeat, from `index` on: one of the results above, or -ENOMEM. */
int ps_deal_next(struct ps_deal *deal, uint32_t lane, uint64_t index, uint64_t *ret_index) PS_MUST_USE;

/* Which of n samples of a lane, from `index` on, are this rank's, or repeats. */
int ps_deal_wanted(
        struct ps_deal *deal, uint32_t lane, uint64_t index, uint32_t n, bool *ret_wanted) PS_MUST_USE;

/* Sample numbers as the order ---------------------------------------------------------------------------- */

/* Sample numbers that the caller gives as the order: all at once (an array), or batch by batch (a feed).
 *
 * The numbers are this rank's alone, in the order of delivery. They are cut into batches: an array into
 * runs of `batch` numbers, or at the ends that the caller gives; a feed as it is fed. Step s has the places
 * [s * batch, (s + 1) * batch) and uses as many as it has numbers; the others are holes. So places are
 * arithmetic for batches of any length, and resuming at a step needs no search.
 *
 *   place          0 1 2 3   4 5 6 7   8 9 ...        batches of 4, 2 and 4 numbers, `batch` 4:
 *                                                     places 6 and 7 are holes
 *   number         9 2 2 7   5 1 - -   3 8 ...
 *
 * A feed keeps `depth` batches: batch s + depth overwrites batch s, and is accepted only after s was
 * delivered (pipeline/pipeline.h). A thread that has seen under the pipeline's lock that a step was fed may
 * read its numbers without the lock until that batch is delivered.
 *
 * Ownership: the caller's numbers are copied.   Threads: an array any; a feed as above.   Locks: none; a
 * feed's `epoch`, `fed` and `over` are guarded by the pipeline's lock.   Errors: -EINVAL, -ERANGE, -ENOMEM
 * with a text.
 * Blocks: never. */

struct ps_numbers {
	uint32_t batch;  /* most numbers of a step */
	uint64_t n;      /* length of an array */
	int64_t *values; /* an array's numbers, or the last batches of a feed */
	uint64_t *ends;  /* ends of an array's batches in `values`; NULL: runs of `batch` */
	uint64_t nends;
	uint64_t hash; /* of an array */

	uint32_t depth;   /* batches that a feed keeps */
	uint32_t *sizes;  /* lengths of those batches; NULL: an array */
	uint64_t samples; /* all numbers must be below this; a feed's are checked as they are fed */
	uint64_t epoch;   /* the epoch that is fed */
	uint64_t fed;     /* steps of that epoch, including those before the step where a run resumed */
	bool over;        /* no further steps in this epoch */
};

/* An array. `ends`: the ends of its batches, or NULL. */
int ps_numbers_array(uint32_t batch, const int64_t *values, uint64_t n, const uint64_t *ends, uint64_t nends,
        struct ps_numbers **ret_numbers, struct ps_error *err) PS_MUST_USE;

/* A feed; ps_numbers_feed_keep() makes room for its batches. */
int ps_numbers_feed(uint32_t batch, struct ps_numbers **ret_numbers, struct ps_error *err) PS_MUST_USE;
int ps_numbers_feed_keep(struct ps_numbers *numbers, uint32_t depth, struct ps_error *err) PS_MUST_USE;
void ps_numbers_free(struct ps_numbers *numbers); /* NULL is allowed */

bool ps_numbers_is_feed(const struct ps_numbers *numbers);

/* Sets the number of samples and checks an array against it. -ERANGE: a number is negative or not below
 * `samples`; the text names it. */
int ps_numbers_check(struct ps_numbers *numbers, uint64_t samples, struct ps_error *err) PS_MUST_USE;

/* The shards that an array's first `places` places read, in the order of first use. */
struct ps_uses {
	uint32_t *shards;
	/* over[i]: the number of places after which the first i + 1 shards are no longer needed */
	uint64_t *over;
	uint32_t n;
};

/* `ends`: each shard's end in sample numbers. The numbers must have been checked. -ENOMEM. */
int ps_numbers_uses(const struct ps_numbers *numbers, uint64_t places, const uint64_t *ends, uint32_t nshards,
        struct ps_uses *ret_uses) PS_MUST_USE;
void ps_uses_fini(struct ps_uses *uses);

/* How many shards, from the first on, are no longer needed after `places` places. */
static inline uint32_t ps_uses_over(const struct ps_uses *uses, uint64_t places)
{
	return ps_count_up_to(uses->over, uses->n, places);
}

/* The shard that holds a sample; `ends` as above. The number must be below the last end. */
static inline uint32_t ps_shard_of_number(const uint64_t *ends, uint32_t nshards, uint64_t number)
{
	return ps_count_up_to(ends, nshards - 1, number);
}

/* Places of an epoch, holes included; PS_ENDLESS for a feed. */
uint64_t ps_numbers_places(const struct ps_numbers *numbers);

/* Numbers of a step; a feed's step must have been fed. */
uint32_t ps_numbers_rows(const struct ps_numbers *numbers, uint64_t step);

/* Numbers in the first `steps` steps of an array. */
uint64_t ps_numbers_before(const struct ps_numbers *numbers, uint64_t steps);

/* The number at a place; -1: a hole. */
int64_t ps_numbers_at(const struct ps_numbers *numbers, uint64_t place);

/* A feed: the pipeline's lock must be held below this line ----------------------------------------------- */

/* Feeds the next step of the epoch; n 0: the epoch ends. `delivered`: steps delivered so far. -EBUSY:
 * `depth` batches are fed and not delivered. */
int ps_numbers_give(struct ps_numbers *numbers, uint64_t delivered, const int64_t *values, uint32_t n,
        struct ps_error *err) PS_MUST_USE;

/* Begins an epoch of which `steps` steps were delivered. */
void ps_numbers_begin(struct ps_numbers *numbers, uint64_t epoch, uint64_t steps);

/* Epochs ------------------------------------------------------------------------------------------------- */

/* Epochs before they are read: the lanes' lengths where they can be computed, and from them each rank's
 * positions.
 *
 * Lengths are known where all can be computed: every shard has an index, or the shards are repeated without
 * end (repeat PS_ENDLESS) and the number of steps ends the epoch. Then ranks share lanes by position, and
 * rows are claimed and blocks filled by arithmetic alone. Where lengths are unknown, ends are found while
 * reading.
 *
 * Ownership: an epoch is reference-counted: drop it with ps_epoch_unref().   Threads: any.   Locks: its
 * own, held while an epoch is made (arithmetic over all shards, and reads of index pages where samples are
 * filtered or weighted).   Errors: 0 or -errno with a text.   Blocks: while an epoch is made. */

/* How many samples a shard gives in a pass of an epoch. */
struct ps_counts_ops {
	int (*count)(void *ctx, uint64_t epoch, uint64_t pass, uint32_t shard, uint64_t *ret_count,
	        struct ps_error *err);
	void *ctx;
};

/* Where a run was resumed. */
struct ps_epochs_from {
	uint64_t epoch;
	uint64_t batches, rows; /* delivered in that epoch, over all ranks; 0: none */
	/* of a mix: where its stages begin in that epoch; borrowed; `base` NULL: at the epoch's beginning */
	const struct ps_share_base *base;
	uint64_t row, gone; /* as in ps_shares_new() */
};

struct ps_epochs_options {
	struct ps_order *order;
	enum ps_order_mode mode;
	bool known;      /* lengths can be computed; if not, ps_epochs_get() makes epochs without them */
	bool longest;    /* a mix ends with its longest set; else with the first set that ends */
	uint64_t repeat; /* as in struct ps_order_options */
	struct ps_counts_ops counts; /* count NULL: not needed */
	uint32_t nshards;
	uint64_t seed;
	uint64_t skip, take; /* positions that are skipped, and that are given after them; PS_ENDLESS: all */
	uint64_t steps;      /* most steps; PS_ENDLESS: no limit */
	uint32_t batch, rank, world;
	uint32_t nodes; /* nodes of the ranks: rank v is on node v mod nodes; 0: one node for each rank */
	enum penstock_end end;
	struct ps_numbers *numbers; /* mode NUMBERS; borrowed */
	uint64_t samples;           /* most samples of an epoch, over all ranks; PS_ENDLESS: no limit */
	/* of a mix; borrowed: the stages, counted in samples that are given */
	const struct ps_share_stage *stages;
	uint32_t nstages;
	struct ps_epochs_from from;
};

struct ps_epoch {
	uint64_t number;
	bool known;
	struct ps_sequence *sequence; /* known only */
	uint64_t *lengths;            /* lengths of the lanes; known only */
	/* positions count from `skip`; if lengths are not known, in the rank's own lanes alone (world 1) */
	struct ps_steps steps;
	uint64_t begin, end;      /* range of canonical positions that are given; known only */
	uint32_t rank, world;     /* the rank that has these positions; known only */
	struct ps_shares *shares; /* of a mix; else NULL */
	struct ps_deal *deal;     /* known only; NULL in an epoch that ps_epochs_count() makes */
	struct ps_permutation permutation;
	const struct ps_numbers *numbers; /* mode NUMBERS */
	/* each shard's end in sample numbers (sums of counts); modes PERMUTATION and NUMBERS */
	uint64_t *ends;
	_Atomic uint32_t refs;
};

struct ps_epochs;

struct ps_epochs *ps_epochs_new(const struct ps_epochs_options *options); /* NULL: out of memory */
void ps_epochs_free(struct ps_epochs *epochs);                            /* NULL is allowed */

const struct ps_epochs_options *ps_epochs_options(const struct ps_epochs *epochs);

/* Makes an epoch, or returns one of the last few made. */
int ps_epochs_get(struct ps_epochs *epochs, uint64_t epoch, struct ps_epoch **ret_epoch,
        struct ps_error *err) PS_MUST_USE;
void ps_epoch_unref(struct ps_epoch *epoch); /* NULL is allowed */

/* As ps_epochs_get(), but with lengths and steps in any case. If lengths are not `known`, the counts of
 * this rank's own lanes are read now, and the epoch is not kept. -ENODATA: a count is not available. */
int ps_epochs_count(struct ps_epochs *epochs, uint64_t epoch, struct ps_epoch **ret_epoch,
        struct ps_error *err) PS_MUST_USE;

/* The shares of the datasets in an epoch; *ret_shares is NULL if there is one dataset. */
int ps_epochs_shares(
        const struct ps_epochs *epochs, uint64_t epoch, struct ps_shares **ret_shares) PS_MUST_USE;

/* Sets the order, the limit of samples, the stages (borrowed) and where the run was resumed, for epochs made
 * from now on. While no other thread gets epochs. */
void ps_epochs_begin(struct ps_epochs *epochs, struct ps_order *order, uint64_t samples,
        const struct ps_share_stage *stages, uint32_t nstages, const struct ps_epochs_from *from);

/* Epochs made from now on have lengths; ps_epochs_count() must have succeeded. For world 1 only, and while no
 * other thread gets epochs. */
void ps_epochs_know(struct ps_epochs *epochs);

/* How many samples and batches this rank's epoch has; counts and errors as in ps_epochs_count(). */
int ps_epochs_length(struct ps_epochs *epochs, uint64_t epoch, uint64_t *ret_samples, uint64_t *ret_batches,
        uint64_t *ret_total, struct ps_error *err) PS_MUST_USE;

/* Rows of this rank's batch of a step, a repeat included; a feed's step must have been fed. */
uint32_t ps_epoch_rows(const struct ps_epoch *epoch, uint64_t step);

/* True if the rank has no sample in the step: the batch's row is a repeat. */
bool ps_epoch_repeats(const struct ps_epoch *epoch, uint64_t step);

/* True if there is no sample at this position (numbers only). The position must be before the epoch's
 * end. */
bool ps_epoch_is_hole(const struct ps_epoch *epoch, uint64_t position);

/* The sample at a position of an epoch of mode PERMUTATION or NUMBERS. */
void ps_epoch_permuted(const struct ps_epoch *epoch, uint32_t nshards, uint64_t position, uint32_t *ret_shard,
        uint64_t *ret_ordinal, uint64_t *ret_pass);

/* Selections: how often samples are drawn ---------------------------------------------------------------- */

/* How often each sample is drawn: a filter, and weights, read from columns of the indexes.
 *
 * The draws of a sample are consecutive, at its place in the lane. Number of draws of a sample that passes
 * the filter:
 *
 *   with replacement       floor(w + u)
 *   without                1 if u < w, else 0
 *
 * u is uniform in [0, 1), keyed by seed, epoch, shard, sample and pass (op SAMPLE_DRAW). So a sample is
 * drawn w times on average. w is the product of
 *
 *   weights    the value of this column; 1 without such a column, 0 for a sample without a value
 *   balance    a weight that makes all classes of this column equally frequent. With replacement
 *              n / (c * m), for n samples in c classes, in a class of m samples; without,
 *              (smallest m of all classes) / m. 0 for a sample without a value
 *
 * One count for each class is kept in memory; any stretch of the order can be computed again.
 *
 * With a list of weights, or `draws` N, the number of draws is exact (systematic resampling). The weights are
 * scaled to integers w_i (by a power of two: the largest has up to 62 bits). C_i is the sum of the weights
 * before sample i in the list of shards, S is the sum of all, and V is a number below S that is keyed by
 * seed, epoch and pass. Sample i is drawn T(C_i + w_i) - T(C_i) times, T(C) = floor((N C + V) / S). T(0) is 0
 * and T(S) is N, so there are N draws in all, and each sample is drawn N w_i / S times, rounded up or down.
 * All of it is integer arithmetic in 128 bits. The sums C of each 256th sample are kept in memory.
 *
 *   weights   1    3      0  2        N = 3, S = 6: a sample is drawn once for each mark in its part;
 *           |---|---------||------|   marks are S / N apart, and V gives the place of the first
 *               ^      ^      ^
 *
 * ps_select_draw() draws each sample independently instead, for order permutation.
 *
 * Ownership: a selection belongs to its creator and borrows the indexes. A view belongs to the caller that
 * opened it. Threads: a selection any, once made; a view one at a time.   Locks: none of its own. Blocks:
 * ps_select_new() with `balance` or an exact number of draws, on all indexes; views, on pages of an index.
 * Errors: -EINVAL: no such column, a negative weight, a wrong filter; -ENODATA: a shard without index;
 * -ENOMEM. */

#define PS_SELECT_MAX_CLASSES 1000000
#define PS_SELECT_MAX_TIMES 65535 /* most draws of a sample */

struct ps_select_options {
	const char *filter, *weights, *balance; /* NULL: none */
	bool replacement;
	const double *list; /* weights of all samples; borrowed; NULL: none */
	uint64_t nlist;
	/* exact number of draws in a pass; 0: with a list as many as samples pass the filter, else not
	 * exact */
	uint64_t draws;
	uint64_t seed;
	struct ps_shard_indexes *indexes;
	uint32_t nshards;
};

struct ps_select;

/* *ret_select is NULL if the options have no filter, weights, balance or list. */
int ps_select_new(const struct ps_select_options *options, struct ps_select **ret_select,
        struct ps_error *err) PS_MUST_USE;
void ps_select_free(struct ps_select *select); /* NULL is allowed */

/* True if the number of draws is exact. */
bool ps_select_is_exact(const struct ps_select *select);

/* The sample of draw n of an epoch, chosen by weight, independent of the other draws. The selection must be
 * exact. */
int ps_select_draw(struct ps_select *select, uint64_t epoch, uint64_t n, uint32_t *ret_shard,
        uint64_t *ret_sample, struct ps_error *err) PS_MUST_USE;

struct ps_select_view;

/* Opens a view of one shard in one pass of an epoch. */
int ps_select_open(struct ps_select *select, uint32_t shard, uint64_t epoch, uint64_t pass,
        struct ps_select_view **ret_view, struct ps_error *err) PS_MUST_USE;
void ps_select_close(struct ps_select_view *view); /* NULL is allowed */

uint64_t ps_select_samples(const struct ps_select_view *view); /* samples of the shard */

/* How often a sample is drawn: 0 to PS_SELECT_MAX_TIMES. */
int ps_select_times(struct ps_select_view *view, uint64_t sample, struct ps_error *err) PS_MUST_USE;

/* The number of draws from the given copy of a sample to the end of the shard. */
int ps_select_count(struct ps_select_view *view, uint64_t sample, uint32_t copy, uint64_t *ret_count,
        struct ps_error *err) PS_MUST_USE;

/* Moves *sample and *copy on by `n` draws; n is at most ps_select_count(). */
int ps_select_skip(struct ps_select_view *view, uint64_t *sample, uint32_t *copy, uint64_t n,
        struct ps_error *err) PS_MUST_USE;

/* Positions ---------------------------------------------------------------------------------------------- */

/* The consumer's position: what has been delivered, lane by lane. Runs are resumed from it.
 *
 * A lane's position is its block and how many of the block's samples were delivered; it also has the place of
 * the first sample that was read for the block, so that the block can be read again. Resuming reads the
 * blocks in progress and nothing before them. The last row's lane decides which lane is next. Lanes that have
 * ended are found by reading: they give no samples.
 *
 * Where the lanes' lengths are known, the number of batches is sufficient; the lanes' places only save the
 * search for them.
 *
 * Ownership: a position owns its lanes.   Threads: one at a time.   Locks: none.   Blocks: never. */

#define PS_PLACE_UNKNOWN UINT64_MAX /* not known: found by counting from the lane's beginning */

struct ps_lane_position {
	uint64_t block; /* in the lane's epoch */
	/* which of the lane's shards the block's first sample is in, or PS_PLACE_UNKNOWN ... */
	uint64_t k;
	uint64_t ordinal; /* ... the sample's place in that shard ... */
	/* ... and its offset in the file; 0: found by reading the shard from its beginning */
	uint64_t offset;
	uint32_t taken;  /* samples of the block that were delivered */
	uint32_t copy;   /* which draw of the block's first sample, where a sample is drawn more than once */
	uint64_t nbytes; /* size of that shard's file; 0: not known */
};

struct ps_position {
	uint64_t epoch;
	uint64_t batches; /* delivered batches of the epoch */
	uint64_t rows;    /* and rows of these, where all but the last are full; if lengths are not known */
	/* the lane after that of the last row; if it has ended, the next row is of the first lane after it
	 * that has not */
	uint32_t turn;
	uint32_t nlanes;
	bool known; /* the lengths of lanes were known, so the run must continue with known lengths */
	struct ps_lane_position *lanes;
};

int ps_position_init(struct ps_position *position, uint32_t nlanes) PS_MUST_USE; /* -ENOMEM */
void ps_position_fini(struct ps_position *position);

/* Sets the position to the beginning of an epoch. */
void ps_position_begin(struct ps_position *position, uint64_t epoch);

/* The plan that a mount is given ------------------------------------------------------------------------- */

/* The plan: the shards that a run will read, announced to the penstock mount that holds them. The mount
 * prefetches what comes next and keeps what is read again.
 *
 * The plan is written to MOUNT/.penstock/plan. Where the kernel mounted the file system read-only, it is
 * sent by ioctl on a descriptor of that file that is open for reading (fs/fuse/fuse.h). JSON lines:
 *
 *   {"penstock_plan": 1, "job": "NAME", "rank": 0, "world": 8, "epoch": 3, "files": ["a/x.tar", "a/y.tar"]}
 *   {"penstock_position": 1, "job": "NAME", "rank": 0, "epoch": 3, "files_done": 17}
 *   {"penstock_reads": 1, "files": ["a/x.tar", "a/y.tar"], "from": [0, 81920], "bytes": 3000000}
 *
 * A plan line lists the files that the rank reads, relative to the mount, in about the order in which they
 * are needed. It replaces the plan of the same job, rank and epoch. A position line, or "files_done" in a
 * plan line, gives the number of the epoch's files that the rank no longer needs. A reads line, which is sent
 * before anything is read and after a state was loaded, names the shards that the lanes are in,
 * PS_PLANNER_READS at most: "from" is the offset at which reading goes on in each, and "bytes" about how many
 * bytes of each are needed before the next batch (0: not known). Its write returns when the mount has queued
 * fetches of these, or after 50 ms. The mount ignores lines and members that it does not know. Epochs before
 * a rank's position are over. The shard of a repeat, which another rank's lane has, is last; as it is known
 * once the epoch is made, the plan of an epoch with a repeat is sent again when the epoch begins.
 *
 * With an order of sample numbers the files are those that hold the numbers, by first use. An array has the
 * same files in each epoch; a file is done after its last number. A feed has the files of the numbers fed
 * so far; the plan is sent again (at most once a second) when files are added. No file of a feed counts as
 * done, as later numbers are not known.
 *
 * A thread of the planner writes the lines: the plans of the next epochs at the start (8 by default), and one
 * more at the beginning of each epoch. It writes the position at most once a second if it has changed, else
 * every PS_PLANNER_BEAT_S seconds. Repeating the position keeps the plan valid while a run pauses, for a
 * validation for example. If the mount has dropped the plan (ESTALE: the process was stopped for long), it is
 * sent again. If the shards are on no penstock mount, or the mount takes no plans, nothing is written and
 * there is no thread.
 *
 * Ownership: a planner belongs to its creator and borrows order and names.
 * Threads: ps_planner_at() and ps_planner_reads() one at a time, concurrently with the planner's own thread.
 * Locks: its own, a leaf.
 * Errors: none: a run does not need a plan.   Blocks: ps_planner_new() and ps_planner_reads() on the
 * file system of the first shard; ps_planner_at() never; ps_planner_free() until a write in progress has ended. */

#define PS_PLANNER_EPOCHS 8
#define PS_PLANNER_BEAT_S 15        /* a quarter of the time after which a mount drops a plan */
#define PS_PLANNER_MAX_FILES 100000 /* most files of an epoch; more are left out */
#define PS_PLANNER_READS 64         /* files of a line that says what is read */

/* Shards of the order that are parts of files: packed token files (shard/tokens/packing.h). */
struct ps_planner_parts {
	const uint32_t *files; /* by shard: its file; NULL: each shard is a file of its own */
	uint32_t nfiles;
	/* The offset in its file and the number of bytes that the lane reads for the sample `ordinal` of a
	 * shard. */
	void (*place)(void *ctx, uint32_t shard, uint64_t epoch, uint64_t pass, uint64_t ordinal,
	        uint64_t *ret_offset, uint64_t *ret_nbytes);
	void *ctx;
};

struct ps_planner_options {
	struct ps_order *order;
	char *const *shards;
	uint32_t nshards;
	/* a file is listed once in an epoch, and is done at its end if it has several shards */
	struct ps_planner_parts parts;
	const char *job; /* copied */
	uint32_t rank, world;
	uint64_t end_epoch;
	uint32_t epochs; /* epochs announced at the start */
	/* of an array of sample numbers; borrowed; NULL: the files come from the lanes */
	const struct ps_uses *uses;
	uint32_t batch; /* with `uses`: the places of a batch */
	bool fed;       /* the files are those given to ps_planner_use() */
	struct ps_epochs
	        *repeats_of;    /* in which the rank's repeats are looked up; borrowed; NULL: none are */
	const uint32_t *repeat; /* for ps_plan_text(): the shard of the epoch's repeat; NULL: none */
};

struct ps_planner;

/* Call before the pipeline begins to read at the position (without lanes: at the beginning of its epoch).
 * Announces what it reads first. NULL: no mount takes plans, or out of memory. */
struct ps_planner *ps_planner_new(
        const struct ps_planner_options *options, const struct ps_position *position);
void ps_planner_free(struct ps_planner *planner); /* NULL is allowed */

/* Announces what the pipeline reads first at a position that it goes on from. Does nothing where lanes read
 * samples from any shard. */
void ps_planner_reads(struct ps_planner *planner, const struct ps_position *position);

/* Reports the run's position. Cheap enough to call for each batch. */
void ps_planner_at(struct ps_planner *planner, const struct ps_position *position);

/* Reports sample numbers that were fed for an epoch. `ends`: each shard's end in sample numbers. Called by
 * the thread that calls ps_planner_at(). */
void ps_planner_use(
        struct ps_planner *planner, uint64_t epoch, const uint64_t *ends, const int64_t *numbers, uint32_t n);

/* For tests: the lines above as text, which the caller frees; NULL: out of memory. `root`: the mount's
 * path, with a slash at its end. */
char *ps_plan_text(
        const struct ps_planner_options *options, const char *root, uint64_t epoch, uint64_t files_done);
char *ps_plan_reads_text(
        const struct ps_planner_options *options, const char *root, const struct ps_position *position);
char *ps_plan_position_text(const struct ps_planner_options *options, uint64_t epoch, uint64_t files_done);

#endif
