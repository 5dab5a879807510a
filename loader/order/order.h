/* Which sample stands where: arithmetic on seeds, lists of shards and counts, without a file or a thread.
 *
 * From the top down; each file uses those below it:
 *
 *   epoch.c      what is known of an epoch before it is read
 *   plan.c       the plan that a mount is given
 *   deal.c       which rank has which rows
 *   order.c      the shards of a lane, the samples of a block; where a run stands
 *   sequence.c   which lane is next; which rows are in a step
 *   select.c     which samples come, and how often: filters, weights, classes
 *   filter.c     an expression over the columns of an index
 *   numbers.c    sample numbers that the caller gives as the order
 *
 * select.c and filter.c read columns of indexes (shard/index/index.h); random numbers are random/random.h's.
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

#define PS_ENDLESS UINT64_MAX

struct ps_lane_set {
	uint32_t first, n; /* lanes; sets follow each other */
	uint64_t weight;   /* 1 to PS_MAX_WEIGHT */
};

#define PS_MAX_WEIGHT (UINT64_C(1) << 32)
#define PS_MAX_SETS 256

/* Any sample --------------------------------------------------------------------------------------------- */

struct ps_sequence;

/* `lengths` of all lanes, in samples. */
int ps_sequence_new(const struct ps_lane_set *sets, uint32_t nsets, const uint64_t *lengths,
        struct ps_sequence **ret_sequence) PS_MUST_USE;
void ps_sequence_free(struct ps_sequence *sequence); /* NULL is allowed */

/* Samples up to the end: PS_ENDLESS if there is none. */
uint64_t ps_sequence_total(const struct ps_sequence *sequence);

/* Where the index-th sample of a lane stands; index < its length. It may be after the end. */
uint64_t ps_sequence_position(const struct ps_sequence *sequence, uint32_t lane, uint64_t index);

/* In turn ------------------------------------------------------------------------------------------------ */

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

/* The sample of this turn was given. */
void ps_turns_advance(struct ps_turns *turns);

/* The same as n calls of advance(), in the time of the lanes that end meanwhile. Lengths must be known. */
void ps_turns_skip(struct ps_turns *turns, uint64_t n);

/* The current lane has ended: after its sample `index`, which was given, or before it. */
void ps_turns_finish(struct ps_turns *turns, bool given);

/* Makes it a lane's turn, in a sequence of one set, in about that round: to continue within an epoch whose
 * lengths are not known. */
void ps_turns_set_lane(struct ps_turns *turns, uint32_t lane, uint64_t position, uint64_t round);

/* How many samples of a lane come before the current turn; lengths must be known. */
uint64_t ps_turns_before(const struct ps_turns *turns, uint32_t lane);

/* A place between two turns of a set: all of its lanes have given their samples before `round`, those below
 * `lane` that of `round`, too, as far as they have that many. */
struct ps_mark {
	uint64_t round; /* PS_ENDLESS: all have ended */
	uint32_t lane;
};

/* The marks before the current turn, of each set. */
void ps_turns_mark(const struct ps_turns *turns, struct ps_mark *ret_marks);

/* Samples of a lane of the mark's set before it. */
static inline uint64_t ps_mark_before(const struct ps_mark *m, uint32_t lane, uint64_t length)
{
	return length <= m->round ? length : m->round + (lane < m->lane);
}

/* The round that a lane's set is in: no lane of it has given more than one sample more. */
uint64_t ps_turns_round(const struct ps_turns *turns, uint32_t lane);

/* Steps -------------------------------------------------------------------------------------------------- */

/* An epoch cut into steps: how many samples each rank's batch of each step holds.
 *
 * A step is one global batch: G = batch * world positions of the canonical sequence, of which each rank has
 * the same number, lower ranks one more where that is not even (which rows they are: see deals, below). Of M
 * positions F = floor(M / G) steps are full, R are left:
 *
 *   UNEVEN      F full, then R; ranks without a sample of these have a step less
 *   DROP_LAST   F full; R samples are not given
 *   PAD         F full, then R, each rank's batch filled up with rows that are not valid
 *   SPLIT       F full, then R, dealt so that every rank has one more batch; where R < world, the last full
 *               step gives `world` of its samples to the one after it, so that no rank's is empty. With
 *               batch 1, or less samples than ranks, that cannot be: a rank without one gets one row, not
 *               valid.
 *
 * So sizes differ by at most one, and each sample comes once.
 * Ownership: none.   Threads: any.   Locks: none.   Blocks: never. */

struct ps_steps {
	uint64_t samples; /* M; PS_ENDLESS: as many as `most` steps take */
	uint64_t most;    /* steps; PS_ENDLESS: as there are samples */
	uint32_t batch, world;
	enum penstock_end end;
};

/* Steps of a rank's epoch. */
uint64_t ps_steps_count(const struct ps_steps *steps, uint32_t rank);

/* The first position of a step, and that after its last; step < ps_steps_count() of any rank, or one more.
 */
uint64_t ps_steps_begin(const struct ps_steps *steps, uint64_t step);

/* Samples of a rank in a step: 0 to batch. */
uint32_t ps_steps_rows(const struct ps_steps *steps, uint64_t step, uint32_t rank);

/* Positions that are given at all. */
uint64_t ps_steps_end(const struct ps_steps *steps);

/* The order of lanes and blocks -------------------------------------------------------------------------- */

/* The order of an epoch: which shards a lane reads, and how the samples of its blocks change places.
 *
 * The shards of a set (all, or those of one dataset of a mix) are permuted (Fisher-Yates, numbers keyed by
 * seed, epoch, pass and set) and dealt to the set's lanes: lane l reads the shards at the permuted places l,
 * l + lanes, l + 2 * lanes ... one after the other, then those of its next pass. Lanes give samples in turn
 * (above): that is the canonical sequence of the epoch, the same for every world.
 *
 *   lane 0   | block 0 | block 1 | ...
 *   lane 1   | block 0 | block 1 | ...
 *   ...
 *
 * Each block of `window / lanes` samples (rounded up; counted along the lane, over the ends of shards; lanes:
 * those that have shards) is permuted in itself (Fisher-Yates, keyed by seed, epoch, lane and block).
 * Without sample shuffle a block is only a unit of work: its samples keep their order.
 *
 * A block must be complete before its first sample can be given, and so must the window of all lanes before
 * the first batch. From a distant origin that takes a second. So the first blocks are short: block 0, of n
 * samples, is cut at n/16, n/8, n/4 and n/2 (rounded down; at less places where n is below 16,
 * and at none where samples are sorted by length, below). The first batch then waits for a sixteenth of the
 * window.
 *
 * With `bucket` b > 1 the samples of a block are sorted by length, shorter first, ties as they were read; the
 * sorted block is cut into b runs; the runs change places by a permutation that all lanes share (keyed by
 * seed, epoch and block), and each is permuted in itself. So the samples that lanes give in the same turn are
 * of about the same length, and batches of different lengths come in any order.
 *
 * Homes: with H > 1 a permutation of the set's shards that is keyed by the seed alone gives each a place, and
 * so a home: the place mod H. The shards of a home are permuted among its places only, in each epoch and
 * pass. H divides the lanes, so a home's shards are dealt to the lanes that are its number mod H, in all
 * epochs.
 *
 * Ranks: rank r of W has the rows of each step that its deal gives it (shared): those of the lanes that
 * are r mod W first. That needs the lanes' lengths. Where they are not known before they are read, a rank has
 * the lanes that are r mod W, and gives their samples in turn (not shared): the same, as long as no lane has
 * ended and W divides the lanes; after that each rank goes on with its own.
 *
 * A position depends on the list of shards, the options and the counts of the shards read so far, and on
 * nothing else: no thread, no index, no memory limit.
 *
 * Ownership: an order belongs to its creator.   Threads: any.
 * Locks: its own, around the tables of permuted shards; calls no other code with it held.
 * Errors: 0 or -errno.   Blocks: on the processor only. */

#define PS_ORDER_MAX_LANES 16384
#define PS_ORDER_MAX_WINDOW (1u << 24)
#define PS_ORDER_PLAIN_BLOCK 16 /* samples of a block where blocks are not shuffled */

enum ps_order_mode {
	PS_ORDER_NONE = 0,        /* the list's order; one lane, or one for each rank that owns it */
	PS_ORDER_SHARDS = 1,      /* shards permuted */
	PS_ORDER_WINDOW = 2,      /* and blocks of samples */
	PS_ORDER_PERMUTATION = 3, /* all samples (random/random.h); position p is of lane p mod lanes */
	PS_ORDER_NUMBERS = 4,     /* the caller's (below), likewise; a block is one sample */
};

/* Lanes read samples wherever they are, not shards front to back. */
static inline bool ps_order_mode_scatters(enum ps_order_mode mode)
{
	return mode == PS_ORDER_PERMUTATION || mode == PS_ORDER_NUMBERS;
}

/* Shards of the list that are one dataset of a mix. */
struct ps_order_set {
	uint32_t first, n;
	uint64_t weight; /* as in struct ps_lane_set */
};

struct ps_order_options {
	enum ps_order_mode mode;
	uint32_t nshards;
	uint32_t window; /* samples, over all lanes that have shards */
	uint32_t lanes;
	uint32_t rank, world;
	uint64_t seed;
	uint64_t repeat;                 /* passes over the shards; 0: one; PS_ENDLESS */
	bool shared;                     /* ranks share lanes */
	uint32_t bucket;                 /* runs of a block that is sorted by length; 0 or 1: not sorted */
	const struct ps_order_set *sets; /* one after the other, all shards; NULL: all are one; copied */
	uint32_t nsets;
	uint32_t homes; /* divides the lanes of each set; 0 or 1: none */
};

/* How many lanes, and samples of a window, where the caller does not say: by the global batch and the shards
 * alone, so that they are the same for any number of ranks. */
uint32_t ps_order_lanes_auto(uint64_t global_batch, uint64_t nshards);
uint32_t ps_order_window_auto(uint64_t global_batch);

struct ps_order;

/* NULL with err filled: -EINVAL, the text says which option, or -ENOMEM. */
struct ps_order *ps_order_new(const struct ps_order_options *options, struct ps_load_error *err);
void ps_order_free(struct ps_order *order); /* NULL is allowed */

/* The sets of lanes that this rank reads, numbered from 0: its own, or all. */
const struct ps_lane_set *ps_order_sets(const struct ps_order *order, uint32_t *ret_nsets);
uint32_t ps_order_nlanes(const struct ps_order *order); /* 1 at least */

/* Of those, the ones that this rank reads side by side, while none has ended: 1 at least. */
uint32_t ps_order_nactive(const struct ps_order *order);

/* True for those: their samples are this rank's as far as it may keep them. */
bool ps_order_owns(const struct ps_order *order, uint32_t lane);

/* A lane's number among those of all ranks. */
uint32_t ps_order_lane(const struct ps_order *order, uint32_t lane);

/* Lanes of all ranks. */
uint32_t ps_order_all_lanes(const struct ps_order *order);

/* True if the samples of a block change places. */
bool ps_order_shuffles(const struct ps_order *order);

/* True if their places depend on their lengths. */
bool ps_order_buckets(const struct ps_order *order);

/* Samples of a block: of all but the short ones at the beginning, and the lane's last. */
uint32_t ps_order_block_len(const struct ps_order *order);

/* Where a block begins in its lane; it ends where the next one does. */
uint64_t ps_order_block_begin(const struct ps_order *order, uint64_t block);

/* The block that holds the index-th sample of a lane. */
uint64_t ps_order_block_of(const struct ps_order *order, uint64_t index);

/* The k-th shard (its place in the list) of a lane, and in which pass: 1, or 0 after the last. -ENOMEM. */
int ps_order_shard(struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t k, uint32_t *ret_shard,
        uint64_t *ret_pass) PS_MUST_USE;

/* Shards of one pass of a lane. */
uint64_t ps_order_pass_len(const struct ps_order *order, uint32_t lane);

/* Where the samples of a block go: place i of the block gets its ret_from[i]-th sample. n: samples in it;
 * `nbytes`: their lengths, for buckets alone. -ENOMEM. */
int ps_order_block(const struct ps_order *order, uint64_t epoch, uint32_t lane, uint64_t block, uint32_t n,
        const uint64_t *nbytes, uint32_t *ret_from) PS_MUST_USE;

struct ps_order_sample {
	uint32_t shard; /* its place in the list */
	uint32_t ordinal;
};

/* All samples of a lane's epoch in their order, from the counts of all shards alone; for looking at orders:
 * not with `bucket` or PS_ENDLESS. ret_samples: room for all of them. -ENOMEM. */
int ps_order_samples(struct ps_order *order, uint64_t epoch, uint32_t lane, const uint32_t *counts,
        struct ps_order_sample *ret_samples, uint64_t *ret_n) PS_MUST_USE;

/* Deals: which rank has which rows ----------------------------------------------------------------------- */

/* The rows of each step of an epoch, dealt to the ranks, home first.
 *
 * A step is a stretch of the canonical sequence; struct ps_steps says how many of its rows each rank
 * has. Lane l is at home with rank l mod W, and rank v is on node v mod N.
 *
 *   1. A rank keeps the rows of its own lanes, lowest lanes first, up to its share.
 *   2. What is left over on a node, by lane and place in it, goes to the ranks of that node that have less
 *      than their share, by rank: the i-th row to the i-th gap.
 *   3. What is left over then, by node, goes to the gaps that are left, by node, likewise.
 *
 * A rank's rows are in the order of their positions. While all lanes of a single set go on, and W divides
 * their number and that of the step's rows, each rank has exactly its own lanes: such steps, at the beginning
 * of an epoch, are regular, and dealt by arithmetic. Others are dealt one by one, by walking over all rows of
 * the step; this rank's part of some hundred steps is kept ("a window").
 *
 * Ownership: a deal belongs to its creator, and borrows lengths and sequence.
 * Threads: any.   Locks: its own, a leaf, over the dealing of a window (G turns a step).
 * Errors: -ENOMEM.   Blocks: on the processor only. */

struct ps_deal_options {
	const struct ps_lane_set *sets; /* copied */
	uint32_t nsets;
	const uint64_t *lengths; /* of the lanes */
	const struct ps_sequence *sequence;
	struct ps_steps steps;
	uint64_t begin, end;  /* canonical positions that are given: `end` is after the last, or PS_ENDLESS */
	uint32_t rank, nodes; /* this is rank of steps.world; nodes divides that */
};

struct ps_dealt {
	uint64_t index; /* of the lane's samples */
	uint32_t lane;
};

struct ps_deal;

int ps_deal_new(const struct ps_deal_options *options, struct ps_deal **ret_deal) PS_MUST_USE;
void ps_deal_free(struct ps_deal *deal); /* NULL is allowed */

/* The rows of this rank in a step: ps_steps_rows() of them. */
int ps_deal_step(struct ps_deal *deal, uint64_t step, struct ps_dealt *ret_rows) PS_MUST_USE;

enum {
	PS_DEAL_NONE = 0,  /* there is none any more in this epoch */
	PS_DEAL_FOUND = 1, /* it is *ret_index */
	PS_DEAL_LATER = 2, /* there is none before *ret_index: ask again from there */
};

/* Which sample of a lane, from `index` on, is the next of this rank. */
int ps_deal_next(struct ps_deal *deal, uint32_t lane, uint64_t index, uint64_t *ret_index) PS_MUST_USE;

/* Which of n samples of a lane, from `index` on, are of this rank. */
int ps_deal_wanted(
        struct ps_deal *deal, uint32_t lane, uint64_t index, uint32_t n, bool *ret_wanted) PS_MUST_USE;

/* Sample numbers as the order ---------------------------------------------------------------------------- */

/* Sample numbers that the caller gives as the order: all at once (an array), or batch by batch (a feed).
 *
 * They are this rank's, in the order in which it gets them, and are cut into batches: an array into runs of
 * `batch` numbers, or where the caller says; a feed as it is fed. Step s has the places [s * batch, (s + 1) *
 * batch), of which it uses as many as it has numbers: the others are holes. So a place is arithmetic for
 * batches of any length, and resuming at a step needs no search.
 *
 *   place          0 1 2 3   4 5 6 7   8 9 ...        batches of 4, 2 and 4 numbers, `batch` 4: the holes
 *                  are 6 and 7
 *   number         9 2 2 7   5 1 - -   3 8 ...
 *
 * A feed keeps `depth` batches: batch s is overwritten by s + depth, which is taken once s was delivered
 * (pipeline/pipeline.h). A thread that learnt under the pipeline's lock that a step was fed may look at its
 * numbers without it, until that batch is delivered.
 *
 * Ownership: copies what it is given.   Threads: an array any; a feed as above.   Locks: none; of a feed
 * `epoch`, `fed` and `over` are guarded by the pipeline's.   Errors: -EINVAL, -ERANGE, -ENOMEM with a text.
 * Blocks: never. */

struct ps_numbers {
	uint32_t batch;  /* numbers of a step at most */
	uint64_t n;      /* of an array */
	int64_t *values; /* of an array, or the feed's last batches */
	uint64_t *ends;  /* of an array's batches, in `values`; NULL: runs of `batch` */
	uint64_t nends;
	uint64_t hash; /* of an array */

	uint32_t depth;   /* of a feed; 0: an array */
	uint32_t *sizes;  /* of its last batches */
	uint64_t samples; /* numbers are below; a feed's are compared with it as they come */
	uint64_t epoch;   /* that is fed */
	uint64_t fed;     /* steps of it, also those that a resumed run does not ask for */
	bool over;        /* no more come in this epoch */
};

/* An array: `ends` are those of its batches, or NULL. */
int ps_numbers_array(uint32_t batch, const int64_t *values, uint64_t n, const uint64_t *ends, uint64_t nends,
        struct ps_numbers **ret_numbers, struct ps_load_error *err) PS_MUST_USE;

/* A feed; ps_numbers_feed_keep() makes room for its batches. */
int ps_numbers_feed(uint32_t batch, struct ps_numbers **ret_numbers, struct ps_load_error *err) PS_MUST_USE;
int ps_numbers_feed_keep(struct ps_numbers *numbers, uint32_t depth, struct ps_load_error *err) PS_MUST_USE;
void ps_numbers_free(struct ps_numbers *numbers); /* NULL is allowed */

bool ps_numbers_is_feed(const struct ps_numbers *numbers);

/* -ERANGE: one of an array is not below `samples`, or negative; the text says which. */
int ps_numbers_check(struct ps_numbers *numbers, uint64_t samples, struct ps_load_error *err) PS_MUST_USE;

/* The shards that an array's first `places` places need, by their first use. */
struct ps_uses {
	uint32_t *shards;
	uint64_t *over; /* the first i + 1 of them are over after that many places */
	uint32_t n;
};

/* `ends`: of the shards, in sample numbers; all numbers were checked. -ENOMEM. */
int ps_numbers_uses(const struct ps_numbers *numbers, uint64_t places, const uint64_t *ends, uint32_t nshards,
        struct ps_uses *ret_uses) PS_MUST_USE;
void ps_uses_fini(struct ps_uses *uses);

/* How many of them, from the first on, are over after that many places. */
uint32_t ps_uses_over(const struct ps_uses *uses, uint64_t places);

/* Which shard holds a sample; `ends` as above, and the number is below the last. */
uint32_t ps_shard_of_number(const uint64_t *ends, uint32_t nshards, uint64_t number);

/* Places of an epoch, with holes; PS_ENDLESS of a feed. */
uint64_t ps_numbers_places(const struct ps_numbers *numbers);

/* Numbers of a step: of a feed, one that was fed. */
uint32_t ps_numbers_rows(const struct ps_numbers *numbers, uint64_t step);

/* Numbers in the first `steps` steps of an array. */
uint64_t ps_numbers_before(const struct ps_numbers *numbers, uint64_t steps);

/* The number at a place, or -1: it is a hole. */
int64_t ps_numbers_at(const struct ps_numbers *numbers, uint64_t place);

/* A feed: the pipeline's lock must be held below this line ----------------------------------------------- */

/* The next step of the epoch; n 0: there is none. `delivered`: steps that were. -EBUSY: `depth` batches are
 * ahead. */
int ps_numbers_give(struct ps_numbers *numbers, uint64_t delivered, const int64_t *values, uint32_t n,
        struct ps_load_error *err) PS_MUST_USE;

/* Begins an epoch, `steps` of which were delivered. */
void ps_numbers_begin(struct ps_numbers *numbers, uint64_t epoch, uint64_t steps);

/* Epochs ------------------------------------------------------------------------------------------------- */

/* What is known of an epoch before it is read: the lanes' lengths, and with them each rank's positions.
 *
 * Known, where all lengths can be computed: every shard has an index, or the shards are read again and again
 * (repeat PS_ENDLESS) and the number of steps ends the epoch. Then ranks share lanes by position, and claim
 * and fill by arithmetic alone. Unknown: ends are found as they come.
 *
 * Ownership: an epoch is counted: give it back with unref. Threads: any.
 * Locks: its own, over the making of an epoch (arithmetic over all shards, and pages of indexes where samples
 * are filtered or weighted).   Errors: 0 or -errno with a text.   Blocks: as the lock says. */

/* How many samples a shard gives in a pass of an epoch. */
struct ps_counts_ops {
	int (*count)(void *ctx, uint64_t epoch, uint64_t pass, uint32_t shard, uint64_t *ret_count,
	        struct ps_load_error *err);
	void *ctx;
};

struct ps_epochs_options {
	struct ps_order *order;
	enum ps_order_mode mode;
	bool known;      /* lengths can be computed; else the next are not used */
	bool longest;    /* a mix ends with the set that lasts longest; else with the first to end */
	uint64_t repeat; /* as the order's */
	struct ps_counts_ops counts; /* count NULL: none is needed */
	uint32_t nshards;
	uint64_t seed;
	uint64_t skip, take; /* positions that are not given, and then given; PS_ENDLESS */
	uint64_t steps;      /* at most; PS_ENDLESS */
	uint32_t batch, rank, world;
	uint32_t nodes; /* that the ranks are on, rank v on node v mod nodes; 0: one each */
	enum penstock_end end;
	struct ps_numbers *numbers; /* borrowed; mode NUMBERS */
};

struct ps_epoch {
	uint64_t number;
	bool known;
	struct ps_sequence *sequence; /* known only */
	uint64_t *lengths;            /* of the lanes; known only */
	struct ps_steps steps; /* positions are counted from `skip`; of a rank for itself, if not known */
	uint64_t begin, end;   /* canonical positions that are given; known only */
	uint32_t rank, world;  /* which of them are meant; known only */
	struct ps_deal *deal;  /* known only, and not of ps_epochs_count() */
	struct ps_permutation permutation;
	const struct ps_numbers *numbers; /* mode NUMBERS */
	uint64_t *ends; /* of shards in the permuted numbers: sums of counts; modes PERMUTATION and NUMBERS */
	_Atomic uint32_t refs;
};

struct ps_epochs;

struct ps_epochs *ps_epochs_new(const struct ps_epochs_options *options); /* NULL: out of memory */
void ps_epochs_free(struct ps_epochs *epochs);                            /* NULL is allowed */

const struct ps_epochs_options *ps_epochs_options(const struct ps_epochs *epochs);

/* Makes it, or finds it among the last that were asked for. */
int ps_epochs_get(struct ps_epochs *epochs, uint64_t epoch, struct ps_epoch **ret_epoch,
        struct ps_load_error *err) PS_MUST_USE;
void ps_epoch_unref(struct ps_epoch *epoch); /* NULL is allowed */

/* The same with lengths and steps: where they are not known to claim and fill by, the counts are asked for
 * now (of this rank's own lanes, and the epoch is not kept); they may fail with -ENODATA. */
int ps_epochs_count(struct ps_epochs *epochs, uint64_t epoch, struct ps_epoch **ret_epoch,
        struct ps_load_error *err) PS_MUST_USE;

/* From now on lengths are known, as ps_epochs_count() found. With world 1, while no other thread asks for
 * epochs. */
void ps_epochs_know(struct ps_epochs *epochs);

/* How many samples and batches this rank's epoch has; as ps_epochs_count(). */
int ps_epochs_length(struct ps_epochs *epochs, uint64_t epoch, uint64_t *ret_samples, uint64_t *ret_batches,
        struct ps_load_error *err) PS_MUST_USE;

/* Rows of this rank in a step; of a feed, one that was fed. */
uint32_t ps_epoch_rows(const struct ps_epoch *epoch, uint64_t step);

/* No sample is at a position before the epoch's end. */
bool ps_epoch_is_hole(const struct ps_epoch *epoch, uint64_t position);

/* Which sample stands at a position of an epoch of mode PERMUTATION or NUMBERS. */
void ps_epoch_permuted(const struct ps_epoch *epoch, uint32_t nshards, uint64_t position, uint32_t *ret_shard,
        uint64_t *ret_ordinal, uint64_t *ret_pass);

/* Which samples come, and how often ---------------------------------------------------------------------- */

/* Which samples come, and how often: a filter, and weights, by columns of the indexes.
 *
 * A sample that passes the filter is drawn that many times, one after the other, in its place of the lane:
 *
 *   with replacement       floor(w + u)
 *   without                1 if u < w, else 0
 *
 * u is uniform in [0, 1): a number keyed by seed, epoch, shard, sample and pass (op SAMPLE_DRAW). So a sample
 * comes w times on average. w is the product of
 *
 *   weights    the value of this column; 1 without such a column, 0 for a sample that has no value
 *   balance    a weight by which all classes of this column come equally often. With replacement
 *              n / (c * m), for n samples in c classes and a sample of a class of m; without,
 *              least m of all classes / m. 0 for a sample that has no value
 *
 * Nothing is kept but a count a class, and any stretch of the order can be made again.
 *
 * With a list of weights, or `draws` N, the number of draws is exact (systematic resampling): the weights are
 * scaled to integers w_i (by a power of two: the largest has up to 62 bits), C_i is the sum of those before
 * sample i in the list of shards, S that of all, V a number below S that is keyed by seed, epoch and pass.
 * Sample i comes T(C_i + w_i) - T(C_i) times, T(C) = floor((N C + V) / S). T(0) is 0 and T(S) is N, so N are
 * drawn in all, and each sample N w_i / S times, rounded up or down. All of it is integer arithmetic in 128
 * bits. Kept are the sums C of each 256th sample.
 *
 *   weights   1    3      0  2        N = 3, S = 6: a sample comes once for each mark in its part,
 *           |---|---------||------|   marks are S / N apart, and V says where the first is
 *               ^      ^      ^
 *
 * ps_select_draw() draws independently instead, for orders that take samples from anywhere.
 *
 * Ownership: a selection belongs to its creator and borrows the indexes. A view belongs to its opener.
 * Threads: a selection any, once made; a view one at a time.   Locks: none of its own.
 * Blocks: making, with `balance`, on all indexes; opening and testing on pages of an index.
 * Errors: -EINVAL: no such column, a negative weight, a wrong filter; -ENODATA: a shard without index;
 * -ENOMEM. */

#define PS_SELECT_MAX_CLASSES 1000000
#define PS_SELECT_MAX_TIMES 65535 /* a sample is drawn at most this often */

struct ps_select_options {
	const char *filter, *weights, *balance; /* NULL: none */
	bool replacement;
	const double *list; /* weights of all samples; borrowed; NULL: none */
	uint64_t nlist;
	uint64_t draws; /* exactly this many in a pass; 0: as above, with a list as many as pass the filter */
	uint64_t seed;
	struct ps_shard_indexes *indexes;
	uint32_t nshards;
};

struct ps_select;

/* *ret_select: NULL if nothing is asked for. */
int ps_select_new(const struct ps_select_options *options, struct ps_select **ret_select,
        struct ps_load_error *err) PS_MUST_USE;
void ps_select_free(struct ps_select *select); /* NULL is allowed */

/* The number of draws is exact. */
bool ps_select_is_exact(const struct ps_select *select);

/* Of an exact one: the sample of draw n of an epoch, by its weight alone. */
int ps_select_draw(struct ps_select *select, uint64_t epoch, uint64_t n, uint32_t *ret_shard,
        uint64_t *ret_sample, struct ps_load_error *err) PS_MUST_USE;

struct ps_select_view;

/* One shard, in one pass of an epoch. */
int ps_select_open(struct ps_select *select, uint32_t shard, uint64_t epoch, uint64_t pass,
        struct ps_select_view **ret_view, struct ps_load_error *err) PS_MUST_USE;
void ps_select_close(struct ps_select_view *view); /* NULL is allowed */

uint64_t ps_select_samples(const struct ps_select_view *view); /* of the shard */

/* How often a sample comes: 0 to PS_SELECT_MAX_TIMES. */
int ps_select_times(struct ps_select_view *view, uint64_t sample, struct ps_load_error *err) PS_MUST_USE;

/* How often all samples of the shard come, from the given copy of a sample on. */
int ps_select_count(struct ps_select_view *view, uint64_t sample, uint32_t copy, uint64_t *ret_count,
        struct ps_load_error *err) PS_MUST_USE;

/* Moves `n` drawings on from the given copy of a sample; n is at most ps_select_count(). */
int ps_select_skip(struct ps_select_view *view, uint64_t *sample, uint32_t *copy, uint64_t n,
        struct ps_load_error *err) PS_MUST_USE;

/* Positions ---------------------------------------------------------------------------------------------- */

/* Where the consumer stands: what has been delivered, lane by lane; what a run is resumed from.
 *
 * A lane's position is its block and how many of the block's samples were delivered; a block is found again
 * by the place of the first sample that was read for it. So resuming reads the blocks under way and nothing
 * before them. Whose turn it is follows from the last row; which lanes have ended is found again, since they
 * give no more samples.
 *
 * Where the lanes' lengths are known, the number of batches says all; the lanes' places only
 * spare the search for them.
 *
 * Ownership: a position owns its lanes.   Threads: one at a time.   Locks: none.   Blocks: never. */

#define PS_PLACE_UNKNOWN UINT64_MAX /* found by counting, from the lane's beginning */

struct ps_lane_position {
	uint64_t block; /* in the lane's epoch */
	uint64_t k;     /* of the lane's shards: that of the block's first sample, or PS_PLACE_UNKNOWN ... */
	uint64_t ordinal; /* ... its place in that shard ... */
	uint64_t offset;  /* ... and in the file; 0: only to be found from the shard's beginning */
	uint32_t taken;   /* samples of the block that were delivered */
	uint32_t copy;    /* of the block's first sample, where a sample comes more than once */
	uint64_t nbytes;  /* of that shard's file; 0: not known */
};

struct ps_position {
	uint64_t epoch;
	uint64_t batches; /* of the epoch that were delivered */
	uint32_t turn;    /* the lane of the next row, or before it if that has ended */
	uint32_t nlanes;
	bool known; /* it was found by lengths: the run goes on by them */
	struct ps_lane_position *lanes;
};

int ps_position_init(struct ps_position *position, uint32_t nlanes) PS_MUST_USE; /* -ENOMEM */
void ps_position_fini(struct ps_position *position);

/* Puts it at the beginning of an epoch. */
void ps_position_begin(struct ps_position *position, uint64_t epoch);

/* The next row that was delivered stood in `lane`, at `at`. */
static inline void ps_position_take(
        struct ps_position *position, uint32_t lane, const struct ps_lane_position *at)
{
	position->lanes[lane] = *at;
	position->turn = lane + 1 == position->nlanes ? 0 : lane + 1;
}

/* The plan that a mount is given ------------------------------------------------------------------------- */

/* The plan: which shards a run will read, announced to the penstock mount that they are on, so that it can
 * fetch what comes and keep what comes again.
 *
 * Written to MOUNT/.penstock/plan, or, where the mount is read-only to the kernel as well, sent by ioctl on a
 * descriptor of it that is open for reading (fs/fuse/fuse.h has that). JSON lines:
 *
 *   {"penstock_plan": 1, "job": "NAME", "rank": 0, "world": 8, "epoch": 3, "files": ["a/x.tar", "a/y.tar"]}
 *   {"penstock_position": 1, "job": "NAME", "rank": 0, "epoch": 3, "files_done": 17}
 *
 * A plan line replaces what was announced before for the same job, rank and epoch: the files below the mount
 * that the rank reads, in about the order in which it needs them. A position line says how many of the
 * epoch's files it is through with. A reader ignores lines and members that it does not know. Epochs before
 * that of a rank's position are over.
 *
 * Where the order is of sample numbers, the files are those that the numbers are in, by first use: of an
 * array the same in each epoch, and through with as the numbers are; of a feed those of what was fed so far,
 * announced again (at most once a second) where more files came, and none through with, since what comes is
 * not known.
 *
 * Written by a thread of its own: at the start the epochs that can be named (8 by default), one
 * more at the beginning of each epoch, and the position, where it has changed, at most once a second, else
 * every PS_PLANNER_BEAT_S seconds: a run that pauses for a validation continues afterwards, so the plan is
 * kept as long as the loader lives. A mount that has forgotten (ESTALE: the process was stopped for long) is
 * sent the plan again. Where the shards are on no such mount, or it takes no plans, nothing is written, and
 * there is no thread.
 *
 * Ownership: a planner belongs to its creator and borrows order and names.
 * Threads: ps_planner_at() one at a time, beside the planner's own.   Locks: its own, a leaf.
 * Errors: none: a run does not need it.   Blocks: new on the file systems of the first shard; at never; free
 * until a write under way is over. */

#define PS_PLANNER_EPOCHS 8
#define PS_PLANNER_BEAT_S 15        /* a quarter of what a mount waits for */
#define PS_PLANNER_MAX_FILES 100000 /* of an epoch; more are left out */

struct ps_planner_options {
	struct ps_order *order;
	char *const *shards;
	uint32_t nshards;
	const char *job; /* copied */
	uint32_t rank, world;
	uint64_t epoch, end_epoch;
	uint32_t epochs;            /* that are announced at once */
	const struct ps_uses *uses; /* borrowed: of an array of sample numbers, and ... */
	uint32_t batch;             /* ... the places of a batch; NULL: by lanes */
	bool fed;                   /* the files are those that ps_planner_use() names */
};

struct ps_planner;

/* NULL: no mount takes plans, or no memory. */
struct ps_planner *ps_planner_new(const struct ps_planner_options *options);
void ps_planner_free(struct ps_planner *planner); /* NULL is allowed */

/* The run is there now. Cheap: for each batch. */
void ps_planner_at(struct ps_planner *planner, const struct ps_position *position);

/* Sample numbers of an epoch were fed, in shards that end at these numbers. By the thread that calls
 * ps_planner_at(). */
void ps_planner_use(
        struct ps_planner *planner, uint64_t epoch, const uint64_t *ends, const int64_t *numbers, uint32_t n);

/* For tests: the texts above, to be freed; NULL: out of memory. `root`: of the mount, with a slash at its
 * end. */
char *ps_plan_text(const struct ps_planner_options *options, const char *root, uint64_t epoch);
char *ps_plan_position_text(const struct ps_planner_options *options, uint64_t epoch, uint64_t files_done);

#endif
