/* Chooses which operations are applied to an image. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image/image.h"

#define PICK_INDEX 64u

static const struct {
	const char *name;
	enum ps_rng_op rng;
	size_t probability; /* its offset in the spec */
} ops[] = {
#define ROW(NAME, name, member) \
	[PS_CHOICE_##NAME] = {#name, PS_RNG_##NAME, offsetof(struct ps_image_spec, member)}
        ROW(HFLIP, hflip, hflip_probability),
        ROW(VFLIP, vflip, vflip_probability),
        ROW(AFFINE, affine, transforms.affine),
        ROW(JITTER, jitter, transforms.jitter),
        ROW(GRAY, gray, transforms.gray),
        ROW(BLUR, blur, transforms.blur),
        ROW(NOISE, noise, transforms.noise),
        ROW(ERASE, erase, transforms.erase),
#undef ROW
};

static double probability_of(const struct ps_image_spec *spec, uint32_t op)
{
	double p;
	memcpy(&p, (const char *)spec + ops[op].probability, sizeof(p));
	return p;
}

/* The text ----------------------------------------------------------------------------------------------- */

/* The operation whose name begins at *p, which moves past it. */
static uint32_t op_parse(const char **p)
{
	size_t n = strcspn(*p, ",;");
	for (uint32_t op = 0; op < PS_CHOICE_NOPS; op++) {
		if (strlen(ops[op].name) == n && !memcmp(ops[op].name, *p, n)) {
			*p += n;
			return op;
		}
	}
	return PS_CHOICE_NOPS;
}

/* Reads digits and a point, in any locale; *p moves past them. */
static bool decimal_parse(const char **p, double *ret_value)
{
	uint64_t digits = 0, power = 1;
	bool point = false;
	const char *s = *p;
	for (; (*s >= '0' && *s <= '9') || (*s == '.' && !point); s++) {
		if (*s == '.') {
			point = true;
		} else if (digits < UINT64_C(100000000000000)) {
			digits = digits * 10 + (uint64_t)(*s - '0');
			power *= point ? 10 : 1;
		}
	}
	*ret_value = (double)digits / (double)power;
	bool any = s != *p;
	*p = s;
	return any;
}

/* Reads one group; *p moves past it. */
static bool group_parse(const char **p, uint32_t *taken, struct ps_choice_group *g)
{
	g->one = !strncmp(*p, "one:", 4);
	if (!g->one && strncmp(*p, "apply:", 6) != 0)
		return false;
	*p += g->one ? 4 : 6;
	if (!decimal_parse(p, &g->probability) || g->probability > 1 || **p != '=')
		return false;
	do {
		++*p;
		uint32_t op = op_parse(p);
		if (op == PS_CHOICE_NOPS || *taken & 1u << op)
			return false;
		*taken |= 1u << op;
		g->ops |= 1u << op;
	} while (**p == ',');
	return true;
}

int ps_choice_parse(const char *text, struct ps_choice_groups *ret_groups, struct ps_error *err)
{
	struct ps_choice_groups all = {0};
	uint32_t taken = 0;
	for (const char *p = text; p && *p; p += *p == ';') {
		/* Each name may appear once, so there are no more groups than operations. */
		if (all.n == PS_CHOICE_NOPS || !group_parse(&p, &taken, &all.groups[all.n++]))
			return ps_error_set(err, EINVAL,
			        "image: groups \"%.100s\": must be apply:PROBABILITY=NAME,NAME... or "
			        "one:PROBABILITY=NAME,..., with ';' between groups; each NAME is hflip, "
			        "vflip, affine, jitter, gray, blur, noise or erase, at most once",
			        text);
	}
	*ret_groups = all;
	return 0;
}

int ps_choice_check(const struct ps_image_spec *spec, struct ps_error *err)
{
	const struct ps_choice_groups *all = &spec->transforms.groups;
	for (uint32_t g = 0; g < all->n; g++)
		for (uint32_t op = 0; op < PS_CHOICE_NOPS; op++)
			if (all->groups[g].ops & 1u << op && !(probability_of(spec, op) > 0))
				return ps_error_set(err, EINVAL,
				        "image: groups: %s is in a group, but its own probability is 0: set "
				        "it (apply: its probability in the group; one: its share)",
				        ops[op].name);
	return 0;
}

/* The draw ----------------------------------------------------------------------------------------------- */

/* True if `op` is the operation that its group ("one:") picks. */
static bool is_picked(
        const struct ps_image_spec *spec, uint32_t g, enum ps_choice_op op, const struct ps_rng_key *key)
{
	uint32_t of = spec->transforms.groups.groups[g].ops, last = 0;
	double sum = 0, at = 0;
	for (uint32_t i = 0; i < PS_CHOICE_NOPS; i++)
		sum += of & 1u << i ? probability_of(spec, i) : 0;
	sum *= ps_rng_unit(key, PS_RNG_GROUP, PICK_INDEX + g);
	for (uint32_t i = 0; i < PS_CHOICE_NOPS; i++) {
		if (!(of & 1u << i))
			continue;
		at += probability_of(spec, i);
		last = i;
		if (sum < at)
			break;
	}
	/* if rounding keeps `at` below `sum`, `last` is the group's last operation */
	return last == (uint32_t)op;
}

bool ps_choice_happens(const struct ps_image_spec *spec, enum ps_choice_op op, const struct ps_rng_key *key)
{
	const struct ps_choice_groups *all = &spec->transforms.groups;
	double p = probability_of(spec, op);
	if (!(p > 0))
		return false;
	for (uint32_t g = 0; g < all->n; g++) {
		if (!(all->groups[g].ops & 1u << op))
			continue;
		if (!(ps_rng_unit(key, PS_RNG_GROUP, g) < all->groups[g].probability))
			return false;
		if (all->groups[g].one)
			return is_picked(spec, g, op, key);
	}
	return ps_rng_unit(key, ops[op].rng, 0) < p;
}
