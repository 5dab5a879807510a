
#include "image/image.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct ps_image_spec ps_image_spec_imagenet(uint32_t size)
{
	return (struct ps_image_spec){
	        .out_width = size,
	        .out_height = size,
	        .crop = PS_CROP_RANDOM_RESIZED,
	        .scale_min = 0.08,
	        .scale_max = 1,
	        .ratio_min = 3.0 / 4,
	        .ratio_max = 4.0 / 3,
	        .hflip_probability = 0.5,
	        .interpolation = PS_BILINEAR,
	        .dtype = PS_F32,
	        .layout = PS_NCHW,
	        .mean = {0.485f, 0.456f, 0.406f},
	        .std = {0.229f, 0.224f, 0.225f},
	};
}

static int check_size(const struct ps_image_spec *s, struct ps_load_error *err)
{
	if (s->out_width < 1 || s->out_width > PS_IMAGE_SIDE_MAX || s->out_height < 1 ||
	        s->out_height > PS_IMAGE_SIDE_MAX)
		return ps_load_error_set(err, EINVAL, "image: output size %u x %u: each side must be 1 to %u",
		        s->out_width, s->out_height, PS_IMAGE_SIDE_MAX);
	if (s->padding > PS_PAD_SYMMETRIC)
		return ps_load_error_set(err, EINVAL, "image: padding_mode %d: unknown", (int)s->padding);
	if (s->padding_x >= s->out_width || s->padding_y >= s->out_height)
		return ps_load_error_set(err, EINVAL, "image: padding %u x %u: must be less than the output, %u x %u",
		        s->padding_x, s->padding_y, s->out_width, s->out_height);
	if (s->resize_shorter && (s->resize_width || s->resize_height))
		return ps_load_error_set(err, EINVAL,
		        "image: resize_shorter %u has no effect beside resize_width and resize_height: leave one of "
		        "both out",
		        s->resize_shorter);
	if (!s->resize_width != !s->resize_height || s->resize_width > PS_IMAGE_SIDE_MAX ||
	        s->resize_height > PS_IMAGE_SIDE_MAX)
		return ps_load_error_set(err, EINVAL, "image: resize %u x %u: each side must be 1 to %u",
		        s->resize_width, s->resize_height, PS_IMAGE_SIDE_MAX);
	if (s->crop == PS_CROP_RANDOM && s->resize_shorter > PS_IMAGE_SIDE_MAX)
		return ps_load_error_set(err, EINVAL, "image: resize_shorter %u: must be at most %u",
		        s->resize_shorter, PS_IMAGE_SIDE_MAX);
	if (s->crop != PS_CROP_CENTER)
		return 0;
	if (s->resize_width && (s->resize_width < s->out_width || s->resize_height < s->out_height))
		return ps_load_error_set(err, EINVAL,
		        "image: resize %u x %u: must not be smaller than the output, %u x %u (a random_crop pads)",
		        s->resize_width, s->resize_height, s->out_width, s->out_height);
	if (s->resize_width)
		return 0;
	if (s->resize_shorter < PS_MAX(s->out_width, s->out_height) || s->resize_shorter > PS_IMAGE_SIDE_MAX)
		return ps_load_error_set(err, EINVAL,
		        "image: resize_shorter %u: must be at least the output's longer side (%u x %u) and "
		        "at most %u",
		        s->resize_shorter, s->out_width, s->out_height, PS_IMAGE_SIDE_MAX);
	return 0;
}

/* The comparisons are written so that a NaN fails them. */
static int check_random(const struct ps_image_spec *s, struct ps_load_error *err)
{
	if (!(s->hflip_probability >= 0 && s->hflip_probability <= 1))
		return ps_load_error_set(
		        err, EINVAL, "image: hflip_probability %g: must be 0 to 1", s->hflip_probability);
	if (!(s->vflip_probability >= 0 && s->vflip_probability <= 1))
		return ps_load_error_set(
		        err, EINVAL, "image: vflip_probability %g: must be 0 to 1", s->vflip_probability);
	if (s->views > PS_IMAGE_VIEWS_MAX)
		return ps_load_error_set(
		        err, EINVAL, "image: %u views: must be at most %u", s->views, PS_IMAGE_VIEWS_MAX);
	if (s->crop != PS_CROP_RANDOM_RESIZED)
		return 0;
	if (!(s->scale_min > 0 && s->scale_min <= s->scale_max && s->scale_max <= 1))
		return ps_load_error_set(err, EINVAL, "image: scale %g to %g: must be 0 < min <= max <= 1",
		        s->scale_min, s->scale_max);
	if (!(s->ratio_min >= 1e-3 && s->ratio_min <= s->ratio_max && s->ratio_max <= 1e3))
		return ps_load_error_set(err, EINVAL,
		        "image: ratio %g to %g: must be 0.001 <= min <= max <= 1000", s->ratio_min,
		        s->ratio_max);
	return 0;
}

static int check_format(const struct ps_image_spec *s, struct ps_load_error *err)
{
	if (s->dtype != PS_U8 && s->dtype != PS_F32 && s->dtype != PS_F16 && s->dtype != PS_BF16)
		return ps_load_error_set(err, EINVAL, "image: dtype %s (%d): must be u8, f32, f16 or bf16",
		        ps_dtype_name(s->dtype), (int)s->dtype);
	if (s->layout != PS_NCHW && s->layout != PS_NHWC)
		return ps_load_error_set(
		        err, EINVAL, "image: layout %d: must be NCHW or NHWC", (int)s->layout);
	for (int c = 0; s->dtype != PS_U8 && c < 3; c++) {
		if (!isfinite(s->mean[c]) || !(s->std[c] >= 1e-6f && s->std[c] <= 1e6f))
			return ps_load_error_set(err, EINVAL,
			        "image: mean %g, std %g of channel %d: mean must be finite, std 1e-6 to 1e6",
			        (double)s->mean[c], (double)s->std[c], c);
	}
	return 0;
}

int ps_image_spec_check(const struct ps_image_spec *spec, struct ps_load_error *err)
{
	if (spec->crop != PS_CROP_RANDOM_RESIZED && spec->crop != PS_CROP_CENTER &&
	        spec->crop != PS_CROP_NONE && spec->crop != PS_CROP_RANDOM)
		return ps_load_error_set(err, EINVAL, "image: crop %d: unknown", (int)spec->crop);
	if (spec->interpolation != PS_BILINEAR && spec->interpolation != PS_BICUBIC)
		return ps_load_error_set(err, EINVAL, "image: interpolation %d: must be bilinear or bicubic",
		        (int)spec->interpolation);
	int rc = check_size(spec, err);
	if (rc == 0)
		rc = check_random(spec, err);
	if (rc == 0)
		rc = check_format(spec, err);
	if (rc == 0)
		rc = ps_transform_check(&spec->transforms, spec->out_width, spec->out_height, err);
	if (rc == 0)
		rc = ps_choice_check(spec, err);
	return rc;
}

size_t ps_image_nbytes(const struct ps_image_spec *spec)
{
	if (ps_image_spec_check(spec, NULL) < 0)
		return 0;
	/* At most 64 * 2^28 * 3 * 4. */
	return (size_t)spec->out_width * spec->out_height * 3 * ps_dtype_nbytes(spec->dtype) *
	       ps_image_views(spec);
}

uint32_t ps_image_views(const struct ps_image_spec *spec)
{
	return PS_MAX(spec->views, 1u);
}

/* -- Which operations happen ----------------------------------------------------------------------------- */

#define PICK_INDEX 64u

static const struct {
	const char *name;
	enum ps_rng_op rng;
	size_t probability; /* its place in the spec */
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
	memcpy(&p, (const char *)spec + ops[op].probability, sizeof p);
	return p;
}

/* -- The text ------------------------------------------------------------------------------------------- */

static int unsound(const char *text, struct ps_load_error *err)
{
	return ps_load_error_set(err, EINVAL,
	        "image: groups \"%.100s\": must be apply:PROBABILITY=NAME,NAME... or one:PROBABILITY=NAME,..., with "
	        "';' between groups, and names of hflip, vflip, affine, jitter, gray, blur, noise, erase, each once",
	        text);
}

/* The operation whose name stands at *p; behind it then. */
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

/* Digits and a point, whatever the locale; *p is behind them then. */
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

/* One group; *p is behind it then. */
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

int ps_choice_parse(const char *text, struct ps_choice_groups *ret_groups, struct ps_load_error *err)
{
	struct ps_choice_groups all = {0};
	uint32_t taken = 0;
	for (const char *p = text; p && *p; p += *p == ';') {
		/* Names come once, so there are no more groups than operations. */
		if (all.n == PS_CHOICE_NOPS || !group_parse(&p, &taken, &all.groups[all.n++]))
			return unsound(text, err);
	}
	*ret_groups = all;
	return 0;
}

int ps_choice_check(const struct ps_image_spec *spec, struct ps_load_error *err)
{
	const struct ps_choice_groups *all = &spec->transforms.groups;
	for (uint32_t g = 0; g < all->n; g++)
		for (uint32_t op = 0; op < PS_CHOICE_NOPS; op++)
			if (all->groups[g].ops & 1u << op && !(probability_of(spec, op) > 0))
				return ps_load_error_set(err, EINVAL,
				        "image: groups: %s is in a group, but its own probability is 0: set it (1: "
				        "whenever the group is)",
				        ops[op].name);
	return 0;
}

/* -- The draw ------------------------------------------------------------------------------------------- */

/* Whether it is the one of its group. */
static bool is_picked(const struct ps_image_spec *spec, uint32_t g, enum ps_choice_op op, const struct ps_rng_key *key)
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
	return last == (uint32_t)op; /* the last one also if sums were rounded */
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
