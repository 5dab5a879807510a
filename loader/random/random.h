/* Random numbers and permutations as pure functions of seed, epoch, shard, sample and purpose. All folders
 * of the loader that need random numbers use this one.
 *
 * Ownership: the caller's.   Threads: any.   Locks: none.   Errors: none.   Blocks: never. */
#ifndef PS_RANDOM_RANDOM_H
#define PS_RANDOM_RANDOM_H

#include <stdint.h>

/* Numbers ------------------------------------------------------------------------------------------------ */

/* Counter-based random numbers: a number is a pure function of (key, op, index), so neither threads, nor the
 * order of calls, nor the machine matter, and no state is kept or saved.
 *
 * Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011), three blocks chained, since a key has more bits than one block takes:
 *
 *   A = philox(counter = {epoch.lo, epoch.hi, shard.lo, shard.hi},              key = {seed.lo, seed.hi})
 *   B = philox(counter = {sample.lo ^ A2, sample.hi ^ A3, draw, view},          key = {A0, A1})
 *   N = philox(counter = {op, index, B2, B3},                                   key = {B0, B1 ^ attempt})
 *   u64 = N0 | N1 << 32                         attempt: 0, but counts rejections in ps_rng_below()
 *
 * This text is the definition; the state that a run is resumed from depends on it. A change needs a new
 * version number in that state (ORDER_VERSION, PIXELS_VERSION). Threads: any. Errors: none. Blocks: never;
 * about 50 ns for each number. */

/* The subject of a random decision. shard and sample are ordinals: of the shard in the dataset's list, of
 * the sample in its shard; so a duplicate of a sample in another place gets other numbers. Decisions that are
 * not about a single sample set unused members to 0. */
struct ps_rng_key {
	uint64_t seed;
	uint64_t epoch;
	uint64_t shard;
	uint64_t sample;
	uint32_t draw; /* distinguishes the draws of this sample in this epoch */
	uint32_t view; /* the nth view made from one decode */
};

/* The purpose of a random number: two decisions with one key must not share numbers. The values are part of
 * the definition: never renumber them, add new ones at the end. */
enum ps_rng_op {
	PS_RNG_SHARD_ORDER = 1,  /* order of the shards of an epoch */
	PS_RNG_SAMPLE_ORDER = 2, /* order of samples in the window, or in a full permutation */
	PS_RNG_SAMPLE_DRAW = 3,  /* weighted sampling */
	PS_RNG_PERMUTATION = 4,  /* the permutations below */
	PS_RNG_SHARD_HOME = 5,   /* a shard's home, in all epochs: see order/order.h */
	PS_RNG_PIECE_ORDER = 6,  /* order of the pieces of a token file: see shard/tokens/packing.h */
	PS_RNG_PACK = 7,         /* order of the documents and rows of a piece */
	PS_RNG_CROP = 16,        /* index: see image/picture.h */
	PS_RNG_HFLIP = 17,
	PS_RNG_VFLIP = 18,
	PS_RNG_AFFINE = 19, /* indexes of this and the following ops: see image/image.h */
	PS_RNG_JITTER = 20,
	PS_RNG_GRAY = 21,
	PS_RNG_BLUR = 22,
	PS_RNG_NOISE = 23,
	PS_RNG_MIX = 24,    /* CutMix and MixUp, for whole batches: see batch/parts.h */
	PS_RNG_ENGINE = 25, /* which engine decodes a sample, in all epochs: see batch/batch.h */
	PS_RNG_ERASE = 26,
	PS_RNG_GROUP = 27,     /* see image/image.h */
	PS_RNG_TRANSFORM = 64, /* random numbers for the caller's transform */
};

/* 64 uniform bits. */
uint64_t ps_rng_u64(const struct ps_rng_key *key, uint32_t op, uint32_t index) __attribute__((nonnull));

/* Uniform in [0, bound), without bias: the high half of u64 * bound, redrawn (attempt + 1) while the low half
 * is below 2^64 mod bound. bound must not be 0. */
uint64_t ps_rng_below(const struct ps_rng_key *key, uint32_t op, uint32_t index, uint64_t bound)
        __attribute__((nonnull));

/* Uniform in [0, 1): the upper 53 bits of u64 times 2^-53. */
double ps_rng_unit(const struct ps_rng_key *key, uint32_t op, uint32_t index) __attribute__((nonnull));

/* The block function itself, for tests: replaces counter by its image. */
void ps_rng_philox4x32(uint32_t counter[static 4], const uint32_t key[static 2]);

/* Permutations ------------------------------------------------------------------------------------------- */

/* A permutation of 0 ... n - 1 without a table: a Feistel network over pairs, with cycle walking.
 *
 * A number x is the pair (x div b, x mod b) of Z_a x Z_b, a = ceil(sqrt(n)), b = ceil(n / a). Round i of 8
 * adds F(i, second) mod a to the first (i even), or F(i, first) mod b to the second. A result of n or above
 * is permuted again until it is below n: fewer than a pairs are that large, so this is rarely needed.
 *
 *   F(i, v) = philox(counter = {v.lo, v.hi, i, pass}, key = {A0, A1}), the first two words
 *   A       = philox(counter = {epoch.lo, epoch.hi, op, 0}, key = {seed.lo, seed.hi}), op PS_RNG_PERMUTATION
 *
 * This text is the definition; states depend on it. Threads: any.   Errors: none.   Blocks: never. */

struct ps_permutation {
	uint64_t n, a, b;
	uint32_t key[2];
	uint32_t pass;
};

void ps_permutation_init(
        struct ps_permutation *permutation, uint64_t n, uint64_t seed, uint64_t epoch, uint32_t pass);

/* The image of x < n. */
uint64_t ps_permutation_at(const struct ps_permutation *permutation, uint64_t x);

#endif
