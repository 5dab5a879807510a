/* A model of whole epochs, written in the simplest way from the contracts in penstock.h and order/order.h:
 * whole lists in memory, no queues, no arithmetic of positions; and random settings for it.
 *
 * Threads: one.   Errors: none; lists are cut at MOST. */
#ifndef PS_TESTS_LOADER_EPOCH_MODEL_H
#define PS_TESTS_LOADER_EPOCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define SHARDS 12
#define MOST 4000 /* samples of an epoch */
#define BLANK UINT32_MAX

/* The shards' samples, filled in by shards_make(): the name of a sample is shard * 100 + place. */
extern uint32_t counts[SHARDS];
extern uint32_t lengths[SHARDS][16];
uint32_t label_of(uint32_t v);
double weight_of(uint32_t v);

enum {
	SELECT_ALL,
	SELECT_FILTER,
	SELECT_WEIGHTS,
	SELECT_WEIGHTS_AGAIN,
	SELECT_BALANCE,
	SELECT_BALANCE_FILTERED_AGAIN,
	SELECT_NKINDS,
};

extern const char filter_text[]; /* of SELECT_FILTER */

struct setting {
	uint32_t nshards, order, lanes, window, batch, world, end, bucket;
	uint64_t seed, epoch, repeat, steps, skip, take;
	uint32_t nmix, mix_end;
	double mix[3];
	uint32_t sets[4]; /* first shard of each dataset, and the end of the last */
	/* further stages of the mix: their first rows, whether they are linear, and their weights */
	uint32_t nstages;
	uint64_t starts[2];
	bool linear[2];
	double stages[2][3];
	/* Of a resumed run: rows of the epoch that were delivered before, and the global batch of the first
	 * opening; 0: it was this one. */
	uint64_t from, first;
	bool automatic; /* the options leave lanes and window to the library */
	uint32_t select;
	uint32_t ranks_per_node, homes;
	bool own; /* inside the model: only the lanes that are `rank` mod `world` */
	uint32_t rank;
};

struct list {
	uint32_t v[MOST]; /* shard * 100 + place */
	uint32_t n;
};

/* One epoch of one rank: its rows, and the sizes of its batches. */
struct course {
	struct list rows;
	struct list sizes;
};

void add(struct list *l, uint32_t v);

/* The epoch's course of one rank. */
void course_model(const struct setting *s, uint32_t rank, struct course *c);

/* Samples that all ranks together have had after so many batches, with `from`. */
uint64_t rows_model(const struct setting *s, uint32_t batches);

/* Whether the rows of each step are dealt to the ranks (order/order.h). They are not if each of several ranks
 * has a shard and a lane, the end is UNEVEN, the epoch is not endless, and no option needs lengths: then each
 * rank reads its own lanes. */
bool is_shared(const struct setting *s);

/* Whether no rank has a sample: refused if lengths are known. */
bool is_empty(const struct setting *s);

/* A random number in [0, below); the same sequence in each run. */
uint32_t rnd(uint32_t below);
void rnd_seed(uint32_t seed); /* for another sequence */

void setting_random(struct setting *s);
void setting_world(struct setting *s, uint32_t world); /* on nodes of any size */

/* Whether a setting can be run: not if it might repeat an empty dataset without end. */
bool setting_wanted(const struct setting *s);

#endif
