/* Which operations happen to an image: each by a probability of its own, or in a group with others.
 *
 * An operation without a group happens if PS_RNG_<op>, index 0, unit < its probability. Of a group g (they are counted
 * from 0):
 *   apply   nothing happens unless PS_RNG_GROUP, index g, unit < the group's probability; then each operation as it
 *           would without: torchvision's RandomApply
 *   one     likewise; then one happens: that in whose share PS_RNG_GROUP, index 64 + g, unit falls, where shares are as
 *           the operations' probabilities are to each other, in the order below: Albumentations' OneOf
 * The order in which they are done is fixed all the same (transform.h).
 *
 * Groups as text: KIND:PROBABILITY=NAME,NAME...;...  as "apply:0.8=jitter,gray;one:0.5=blur,noise".
 *
 * Ownership: none.   Threads: any.   Errors: -EINVAL with a text.   Blocks: never. */
#ifndef PS_LOADER_IMAGE_CHOICE_H
#define PS_LOADER_IMAGE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/load_error.h"
#include "order/rng.h"

enum ps_choice_op {
	PS_CHOICE_HFLIP,
	PS_CHOICE_VFLIP,
	PS_CHOICE_AFFINE,
	PS_CHOICE_JITTER,
	PS_CHOICE_GRAY,
	PS_CHOICE_BLUR,
	PS_CHOICE_NOISE,
	PS_CHOICE_ERASE,
	PS_CHOICE_NOPS,
};

/* All zero: there are no groups. */
struct ps_choice_groups {
	uint32_t n;
	struct ps_choice_group {
		bool one;
		double probability;
		uint32_t ops; /* bits: 1 << enum ps_choice_op */
	} groups[PS_CHOICE_NOPS];
};

/* NULL: none. */
int ps_choice_parse(const char *text, struct ps_choice_groups *ret_groups, struct ps_load_error *err) PS_MUST_USE;

struct ps_image_spec;

/* Each operation of a group must have a probability. */
int ps_choice_check(const struct ps_image_spec *spec, struct ps_load_error *err) PS_MUST_USE;

bool ps_choice_happens(const struct ps_image_spec *spec, enum ps_choice_op op, const struct ps_rng_key *key);

#endif
