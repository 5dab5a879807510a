/* Sample numbers that the caller gives as the order: all at once (an array), or batch by batch (a feed).
 *
 * They are this rank's, in the order in which it gets them, and are cut into batches: an array into runs of `batch`
 * numbers, or where the caller says; a feed as it is fed. Step s has the places [s * batch, (s + 1) * batch), of which
 * it uses as many as it has numbers: the others are holes. So a place is arithmetic for batches of any length, and
 * resuming at a step needs no search.
 *
 *   place          0 1 2 3   4 5 6 7   8 9 ...        batches of 4, 2 and 4 numbers, `batch` 4: the holes are 6 and 7
 *   number         9 2 2 7   5 1 - -   3 8 ...
 *
 * A feed keeps `depth` batches: batch s is overwritten by s + depth, which is taken once s was delivered
 * (pipeline/pipeline.h). So whoever was told under the pipeline's lock that a step was fed may look at its numbers
 * without it, until that batch is delivered.
 *
 * Ownership: copies what it is given.   Threads: an array any; a feed as above.   Locks: none; of a feed `epoch`, `fed`
 * and `over` are guarded by the pipeline's.   Errors: -EINVAL, -ERANGE, -ENOMEM with a text.   Blocks: never. */
#ifndef PS_ORDER_NUMBERS_H
#define PS_ORDER_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"

struct ps_numbers {
	uint32_t batch;  /* numbers of a step at most */
	uint64_t n;      /* of an array */
	int64_t *values; /* of an array, or the feed's last batches */
	uint64_t *ends;  /* of an array's batches, in `values`; NULL: runs of `batch` */
	uint64_t nends;
	uint64_t hash; /* of an array */

	uint32_t depth;  /* of a feed; 0: an array */
	uint32_t *sizes; /* of its last batches */
	uint64_t samples; /* numbers are below; a feed's are compared with it as they come */
	uint64_t epoch;  /* that is fed */
	uint64_t fed;    /* steps of it, also those that a resumed run does not ask for */
	bool over;       /* no more come in this epoch */
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
	uint64_t *over; /* the first i + 1 of them are over behind so many places */
	uint32_t n;
};

/* `ends`: of the shards, in sample numbers; all numbers were checked. -ENOMEM. */
int ps_numbers_uses(const struct ps_numbers *numbers, uint64_t places, const uint64_t *ends, uint32_t nshards,
        struct ps_uses *ret_uses) PS_MUST_USE;
void ps_uses_fini(struct ps_uses *uses);

/* How many of them, from the first on, are over behind so many places. */
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

/* -- A feed: the pipeline's lock must be held below this line ------------------------------------------- */

/* The next step of the epoch; n 0: there is none. `delivered`: steps that were. -EBUSY: `depth` batches are ahead. */
int ps_numbers_give(struct ps_numbers *numbers, uint64_t delivered, const int64_t *values, uint32_t n,
        struct ps_load_error *err) PS_MUST_USE;

/* Begins an epoch, `steps` of which were delivered. */
void ps_numbers_begin(struct ps_numbers *numbers, uint64_t epoch, uint64_t steps);

#endif
