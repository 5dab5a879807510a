/* A model of whole epochs, made in the simplest way from the texts of penstock.h and order/: whole lists in
 * memory, no blocks, no turns, no arithmetic of positions; and random settings for it.
 *
 * Threads: one.   Errors: none: lists are cut at MOST. */
#ifndef PS_TESTS_LOADER_EPOCH_MODEL_H
#define PS_TESTS_LOADER_EPOCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define SHARDS 12
#define MOST 4000 /* samples of an epoch */
#define BLANK UINT32_MAX

/* What the shards hold, filled in by their maker: a sample is called shard * 100 + place. */
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
	uint32_t sets[4]; /* first shard of each dataset, and behind the last */
	uint32_t select;
	uint32_t ranks_per_node, homes;
	bool own; /* the model's: only lanes that are rank mod world */
	uint32_t rank;
};

struct list {
	uint32_t v[MOST]; /* shard * 100 + place */
	uint32_t n;
};

/* What a rank's epoch gives: a list of rows, and of the sizes of its batches. */
struct course {
	struct list rows;
	struct list sizes;
};

void add(struct list *l, uint32_t v);

/* The epoch's course of one rank. */
void course_model(const struct setting *s, uint32_t rank, struct course *c);

/* The rows of each step are dealt to the ranks (order/order.h): always, but with UNEVEN and nothing that needs
 * lengths, where each rank keeps to its own lanes. */
bool is_shared(const struct setting *s);

/* No rank has a sample: refused, where lengths are known. */
bool is_empty(const struct setting *s);

/* In [0, below), the same ones in each run. */
uint32_t rnd(uint32_t below);

void setting_random(struct setting *s);
void setting_world(struct setting *s, uint32_t world); /* on nodes of any size */

/* Whether it can be run: none that reads an empty dataset again and again. */
bool setting_wanted(const struct setting *s);

#endif
