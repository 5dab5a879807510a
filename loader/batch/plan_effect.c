/* Options that would do nothing are refused: who sets one expects something of it. */
#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "batch/plan.h"

enum {
	IMAGE = 1u << PENSTOCK_IMAGE,
	INT64 = 1u << PENSTOCK_INT64,
	BYTES = 1u << PENSTOCK_BYTES,
	NPY = 1u << PENSTOCK_NPY,
	JSON = 1u << PENSTOCK_JSON,
	TEXT = 1u << PENSTOCK_TEXT,
	MASK = 1u << PENSTOCK_MASK,
	BOXES = 1u << PENSTOCK_BOXES,
	TOKENS = 1u << PENSTOCK_TOKENS,
	FLOAT = 1u << PENSTOCK_FLOAT,
	OUTPUT = 1u << PENSTOCK_OUTPUT,
	ITEMS = BYTES | NPY | JSON | TEXT | BOXES | TOKENS | OUTPUT,
	ALL = IMAGE | INT64 | MASK | FLOAT | ITEMS,
};

/* A field as it was given, the one that says how it is placed (itself, or the one that it follows), and what was made
 * of it. */
struct given {
	const struct penstock_field *in, *placed;
	const struct ps_plan_field *f;
};

/* -- Conditions ------------------------------------------------------------------------------------------ */

#define CONDITION(name, condition)              \
	static bool name(const struct given *g) \
	{                                       \
		return condition;               \
	}

CONDITION(is_random, g->in->crop == PENSTOCK_CROP_RANDOM)
CONDITION(is_random_crop, g->in->crop == PENSTOCK_CROP_RANDOM_CROP)
CONDITION(is_sized, g->in->crop == PENSTOCK_CROP_CENTER || g->in->crop == PENSTOCK_CROP_RANDOM_CROP)
CONDITION(is_resized, !is_random_crop(g) || g->in->resize_width || g->in->resize_shorter)
CONDITION(has_affine, g->in->affine > 0)
CONDITION(has_jitter, g->in->jitter > 0)
CONDITION(has_blur, g->in->blur > 0)
CONDITION(has_noise, g->in->noise > 0)
CONDITION(has_erase, g->in->erase > 0)
CONDITION(has_levels, has_erase(g) && g->in->erase_fill == PENSTOCK_ERASE_LEVELS)
CONDITION(has_map, g->in->degrees > 0 || g->in->translate_x > 0 || g->in->translate_y > 0 || g->in->zoom_min > 0 ||
                           g->in->shear_x > 0 || g->in->shear_y > 0)
CONDITION(has_colours,
        g->in->brightness > 0 || g->in->contrast > 0 || g->in->saturation > 0 || g->in->hue > 0)
CONDITION(has_sigma, g->in->noise_sigma > 0 || g->in->noise_sigma_max > 0)
CONDITION(takes_mean, g->in->dtype != PENSTOCK_U8 || (has_erase(g) && !has_levels(g)))
CONDITION(takes_std, g->in->dtype != PENSTOCK_U8 || (has_erase(g) && g->in->erase_fill == PENSTOCK_ERASE_RANDOM))
CONDITION(is_bounded, g->f->max_items != UINT64_MAX)
CONDITION(is_longest, g->f->form == PS_FORM_LONGEST)
CONDITION(is_padded, ps_field_is_padded(g->f))
CONDITION(is_fixed, g->f->form == PS_FORM_FIXED)
CONDITION(is_array, g->in->kind != PENSTOCK_JSON || (g->f->path && g->in->dtype != PENSTOCK_U8))
CONDITION(has_path, g->in->kind != PENSTOCK_JSON || g->f->path)

/* Images that are no smaller than the crop need none where none is asked for. */
static bool may_pad(const struct given *g)
{
	const struct penstock_field *p = g->placed;

	if (p->crop != PENSTOCK_CROP_RANDOM_CROP)
		return false;
	if (p->padding_x || p->padding_y || (!p->resize_width && !p->resize_shorter))
		return true;
	if (p->resize_width)
		return p->resize_width < p->image_width || p->resize_height < p->image_height;
	return p->resize_shorter < PS_MAX(p->image_width, p->image_height);
}

CONDITION(is_filled, g->placed->affine > 0 || (may_pad(g) && g->placed->padding_mode == PENSTOCK_PADDING_CONSTANT))

/* -- The table ------------------------------------------------------------------------------------------- */

#define CROP_SIZED "take crop center or random_crop"
#define CROP_RANDOM "take crop random"
#define ADD_AFFINE "add affine, its probability"
#define ADD_JITTER "add jitter, its probability"
#define ADD_BLUR "add blur, its probability"
#define ADD_NOISE "add noise, its probability"
#define ADD_ERASE "add erase, its probability"
#define NORMALISED "u8 is not normalised; take dtype f32, f16 or bf16"

/* All members of a field but its name and kind. */
static const struct rule {
	const char *name;
	size_t at, nbytes;
	uint32_t kinds; /* that have it */
	bool placing;   /* of an image that follows another one it is that one's */
	bool (*acts)(const struct given *g); /* NULL: always */
	const char *add;                     /* else, so that it does */
} rules[] = {
#define AT(member) offsetof(struct penstock_field, member), sizeof(((struct penstock_field *)0)->member)
#define RULE(member, kinds, acts, add) {#member, AT(member), kinds, false, acts, add}
#define PLACING(member, acts, add) {#member, AT(member), IMAGE, true, acts, add}
        PLACING(image_width, NULL, NULL),
        PLACING(image_height, NULL, NULL),
        RULE(dtype, ALL & ~(BYTES | TEXT), has_path, "name a value in the JSON, as json:boxes"),
        RULE(layout, IMAGE, NULL, NULL),
        PLACING(crop, NULL, NULL),
        RULE(interpolation, IMAGE, is_resized, "add a resize before the random_crop"),
        PLACING(resize_shorter, is_sized, CROP_SIZED),
        PLACING(scale_min, is_random, CROP_RANDOM),
        PLACING(scale_max, is_random, CROP_RANDOM),
        PLACING(ratio_min, is_random, CROP_RANDOM),
        PLACING(ratio_max, is_random, CROP_RANDOM),
        PLACING(hflip, NULL, NULL),
        RULE(mean, IMAGE, takes_mean, NORMALISED),
        RULE(std, IMAGE, takes_std, NORMALISED),
        RULE(max_pixels, IMAGE | MASK, NULL, NULL),
        RULE(optional, ALL, NULL, NULL),
        RULE(missing_value, ALL & ~(IMAGE | FLOAT), is_fixed, "ragged rows are empty where there is no value"),
        {"shape", AT(ndim), NPY | JSON | TOKENS | BOXES | OUTPUT, false, is_array,
                "name a value in the JSON, as json:boxes, and its dtype, other than u8"},
        RULE(pad_to, ITEMS | INT64 | FLOAT, NULL, NULL),
        RULE(pad_multiple, ITEMS, is_longest, "add pad_to longest"),
        RULE(overflow, ITEMS, is_bounded, "add max_bytes, or pad_to with a number"),
        RULE(pad_value, ITEMS, is_padded, "add pad_to"),
        RULE(max_bytes, ITEMS | INT64 | FLOAT, NULL, NULL),
        RULE(add_offset_of, ITEMS | INT64 | FLOAT, NULL, NULL),
        RULE(source_dtype, TOKENS, NULL, NULL),
        RULE(orient, IMAGE | MASK, NULL, NULL),
        RULE(member, ALL, NULL, NULL),
        RULE(follow, IMAGE | MASK | BOXES, NULL, NULL),
        PLACING(views, NULL, NULL),
        PLACING(dct_scale, is_resized, "add a resize before the random_crop"),
        RULE(max_memory, IMAGE | MASK, NULL, NULL),
        RULE(max_scans, IMAGE, NULL, NULL),
        RULE(fill, IMAGE | MASK, is_filled, "add affine, or a random_crop that is padded with a constant"),
        PLACING(vflip, NULL, NULL),
        PLACING(affine, has_map, "add degrees, translate_x, translate_y, zoom_min and zoom_max, shear_x or shear_y"),
        PLACING(degrees, has_affine, ADD_AFFINE),
        PLACING(translate_x, has_affine, ADD_AFFINE),
        PLACING(translate_y, has_affine, ADD_AFFINE),
        PLACING(zoom_min, has_affine, ADD_AFFINE),
        PLACING(zoom_max, has_affine, ADD_AFFINE),
        PLACING(shear_x, has_affine, ADD_AFFINE),
        PLACING(shear_y, has_affine, ADD_AFFINE),
        RULE(jitter, IMAGE, has_colours, "add brightness, contrast, saturation or hue"),
        RULE(brightness, IMAGE, has_jitter, ADD_JITTER),
        RULE(contrast, IMAGE, has_jitter, ADD_JITTER),
        RULE(saturation, IMAGE, has_jitter, ADD_JITTER),
        RULE(hue, IMAGE, has_jitter, ADD_JITTER),
        RULE(jitter_order, IMAGE, has_jitter, ADD_JITTER),
        RULE(gray, IMAGE, NULL, NULL),
        RULE(blur, IMAGE, NULL, NULL),
        RULE(blur_sigma_min, IMAGE, has_blur, ADD_BLUR),
        RULE(blur_sigma_max, IMAGE, has_blur, ADD_BLUR),
        RULE(blur_size, IMAGE, has_blur, ADD_BLUR),
        RULE(blur_size_max, IMAGE, has_blur, ADD_BLUR),
        RULE(noise, IMAGE, has_sigma, "add noise_sigma, its standard deviation in levels"),
        RULE(noise_sigma, IMAGE, has_noise, ADD_NOISE),
        RULE(noise_sigma_max, IMAGE, has_noise, ADD_NOISE),
        RULE(box_format, BOXES, NULL, NULL),
        RULE(box_shares, BOXES, NULL, NULL),
        PLACING(resize_width, is_sized, CROP_SIZED),
        PLACING(resize_height, is_sized, CROP_SIZED),
        PLACING(padding_x, is_random_crop, "take crop random_crop"),
        PLACING(padding_y, is_random_crop, "take crop random_crop"),
        PLACING(padding_mode, may_pad, "take crop random_crop, with padding or without a resize"),
        RULE(erase, IMAGE, NULL, NULL),
        RULE(erase_scale_min, IMAGE, has_erase, ADD_ERASE),
        RULE(erase_scale_max, IMAGE, has_erase, ADD_ERASE),
        RULE(erase_ratio_min, IMAGE, has_erase, ADD_ERASE),
        RULE(erase_ratio_max, IMAGE, has_erase, ADD_ERASE),
        RULE(erase_fill, IMAGE, has_erase, ADD_ERASE),
        RULE(erase_levels, IMAGE, has_levels, "add erase, its probability, and erase_fill levels"),
        RULE(groups, IMAGE, NULL, NULL),
#undef PLACING
#undef RULE
#undef AT
};

static bool is_same(const struct rule *rule, const struct penstock_field *a, const struct penstock_field *b)
{
	return memcmp((const char *)a + rule->at, (const char *)b + rule->at, rule->nbytes) == 0;
}

static int rule_check(const struct rule *rule, const struct given *g, struct ps_load_error *err)
{
	if (!(rule->kinds & 1u << g->in->kind))
		return ps_load_error_set(err, EINVAL, "field %.100s: %s has no effect: %s fields have no such option",
		        g->f->name, rule->name, ps_plan_kind_name(g->in->kind));
	if (g->placed != g->in && rule->placing)
		return is_same(rule, g->in, g->placed)
		               ? 0
		               : ps_load_error_set(err, EINVAL,
		                         "field %.100s: %s has no effect: it is that of field %.100s, which this "
		                         "one follows; set it there",
		                         g->f->name, rule->name, g->placed->name);
	if (rule->acts && !rule->acts(g))
		return ps_load_error_set(err, EINVAL, "field %.100s: %s has no effect: %s", g->f->name,
		        rule->name, rule->add);
	return 0;
}

int ps_plan_effects_check(const struct ps_plan *plan, const struct penstock_field *in, struct ps_load_error *err)
{
	for (uint32_t i = 0; i < plan->nfields; i++) {
		const struct ps_plan_field *f = &plan->fields[i];
		struct given g = {.in = &in[i], .placed = &in[f->leader >= 0 ? (uint32_t)f->leader : i], .f = f};
		struct penstock_field unset;

		penstock_field_init(&unset, sizeof(unset), in[i].name, in[i].kind);
		for (size_t k = 0; k < PS_ARRAY_LEN(rules); k++) {
			int r = is_same(&rules[k], &in[i], &unset) ? 0 : rule_check(&rules[k], &g, err);

			if (r < 0)
				return r;
		}
	}
	return 0;
}
