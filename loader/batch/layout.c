#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "batch/fields.h"
#include "batch/parts.h"
#include "option/option.h"

#define SPACES " \t\n"

/* The member names of the field `name`: those in `rename`, else the name itself. The caller frees the
 * copy. */
static char *source_names(const char *rename, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = rename; p && *p; p += strcspn(p, SPACES)) {
		p += strspn(p, SPACES);
		if (strncmp(p, name, len) == 0 && p[len] == '=')
			return strndup(p + len + 1, strcspn(p + len + 1, SPACES));
	}
	return strdup(name);
}

/* Checks `rename`: each word must be NAME=SUFFIXES, and each NAME a field. */
static int rename_check(const struct penstock_options *o, struct ps_error *err)
{
	for (const char *p = o->rename; p && *p; p += strcspn(p, SPACES)) {
		size_t len = strcspn(p += strspn(p, SPACES), SPACES "="), used = 0;

		if (*p == 0)
			break;
		for (uint32_t i = 0; i < o->nfields; i++)
			used += o->fields[i].name && strlen(o->fields[i].name) == len &&
			        memcmp(o->fields[i].name, p, len) == 0;
		if (p[len] != '=' || len == 0 || used == 0)
			return ps_error_set(err, EINVAL,
			        "rename \"%.*s\": must be NAME=SUFFIXES, where NAME is a field, as "
			        "image=jpg;png",
			        (int)PS_MIN(strcspn(p, SPACES), (size_t)100), p);
	}
	return 0;
}

/* Parses "jpg;JPEG" to "jpg\0jpeg\0", and "json:a.b" to "json\0" and the path "a.b". */
static int names_parse(struct ps_layout_field *f, const char *rename, struct ps_error *err)
{
	char *p, *colon;

	f->names = source_names(rename, f->member ? f->member : f->name);
	if (!f->names)
		return ps_no_memory(err);
	p = f->names;
	colon = strchr(p, ':');
	if (colon) {
		f->path = colon + 1;
		*colon = 0;
		if (!ps_json_path_ok(f->path))
			return ps_error_set(err, EINVAL,
			        "field \"%.100s\": the path after ':' must be names and array indexes, "
			        "separated by dots, as json:meta.size.0, shorter than %d bytes",
			        f->name, PS_JSON_MAX_PATH);
	}
	for (;;) {
		size_t len = strcspn(p, ";");
		bool more = p[len] == ';';

		if (len == 0 || f->n_names == PS_LAYOUT_MAX_ALTERNATIVES)
			return ps_error_set(err, EINVAL,
			        "field \"%.100s\": must be 1 to %d suffixes, separated by ';', as jpg;jpeg",
			        f->name, PS_LAYOUT_MAX_ALTERNATIVES);
		if (len > 2 && memcmp(p, "__", 2) == 0)
			return ps_error_set(err, EINVAL,
			        "field \"%.100s\": suffixes that begin with __ are reserved for the loader",
			        f->name);
		for (size_t i = 0; i < len; i++)
			if (p[i] >= 'A' && p[i] <= 'Z')
				p[i] = (char)(p[i] - 'A' + 'a');
		p[len] = 0;
		f->name_len[f->n_names++] = (uint32_t)len;
		p += len + 1;
		if (!more)
			return 0;
	}
}

static int companions_make(struct ps_layout_field *f, struct ps_error *err)
{
	const char *const all[] = {f->planes < 2    ? NULL
	                           : f->mixed_label ? "mix"
	                                            : "y",
	        ps_field_is_padded(f) ? "lengths" : NULL, f->parts & PS_PART_POSITIONS ? "positions" : NULL,
	        f->parts & PS_PART_SEGMENTS ? "segments" : NULL,
	        ps_field_is_padded(f) || f->parts & PS_PART_MASK ? "mask" : NULL,
	        f->parts & PS_PART_CU ? "cu" : NULL, f->parts & PS_PART_DOCUMENT ? "document" : NULL,
	        f->parts & PS_PART_CU ? "longest" : NULL};

	f->n_tensors = 1;
	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
		char **name = &f->companions[f->n_tensors - 1];

		if (all[i] && asprintf(name, "%s:%s", f->name, all[i]) < 0) {
			*name = NULL;
			return ps_no_memory(err);
		}
		f->n_tensors += all[i] != NULL;
	}
	return 0;
}

static int field_make(
        struct ps_layout_field *f, const struct penstock_field *in, const char *rename, struct ps_error *err)
{
	int rc;

	if (!in->name)
		return ps_error_set(err, EINVAL, "a field has no name");
	*f = (struct ps_layout_field){.name = strdup(in->name),
	        .kind = (enum penstock_kind)in->kind,
	        .optional = in->optional != 0,
	        .hidden = in->hidden != 0};
	f->member = in->member ? strdup(in->member) : NULL;
	rc = f->name && (f->member || !in->member) ? names_parse(f, rename, err) : ps_no_memory(err);
	if (rc == 0)
		rc = ps_layout_field_make(f, in, err);
	return rc;
}

/* Sets up mixing, if batches are mixed: labels get a second plane. */
static int mix_plan(struct ps_batch_layout *layout, const struct penstock_options *o, struct ps_error *err)
{
	const double alphas[] = {o->mixup_alpha, o->cutmix_alpha};

	for (int i = 0; i < 2; i++)
		if (!(alphas[i] == 0 || (alphas[i] >= 0.01 && alphas[i] <= 100)))
			return ps_error_set(err, EINVAL, "%s_alpha %g: must be 0 (off), or 0.01 to 100",
			        i ? "cutmix" : "mixup", alphas[i]);
	if (!(o->mix_probability >= 0 && o->mix_probability <= 1 && o->cutmix_share >= 0 &&
	            o->cutmix_share <= 1))
		return ps_error_set(err, EINVAL, "mix_probability %g, cutmix_share %g: must be 0 to 1",
		        o->mix_probability, o->cutmix_share);
	if (o->mix_probability != 1 && !(o->mixup_alpha > 0) && !(o->cutmix_alpha > 0))
		return ps_error_set(err, EINVAL,
		        "mix_probability %g has no effect: add mixup_alpha or cutmix_alpha",
		        o->mix_probability);
	if (o->cutmix_share != 0.5 && !(o->mixup_alpha > 0 && o->cutmix_alpha > 0))
		return ps_error_set(err, EINVAL,
		        "cutmix_share %g has no effect: add mixup_alpha and cutmix_alpha", o->cutmix_share);
	layout->mixes = o->mixup_alpha > 0 || o->cutmix_alpha > 0;
	layout->seed = o->seed;
	layout->mix = (struct ps_mix_spec){.mixup_alpha = o->mixup_alpha,
	        .cutmix_alpha = o->cutmix_alpha,
	        .probability = o->mix_probability,
	        .cutmix_share = o->cutmix_share};
	for (uint32_t i = 0; i < layout->nfields && layout->mixes; i++) {
		struct ps_layout_field *f = &layout->fields[i];

		f->mixed_label =
		        (f->kind == PENSTOCK_INT64 || f->kind == PENSTOCK_FLOAT) && f->form == PS_FORM_FIXED;
		f->planes += f->mixed_label;
	}
	return 0;
}

/* Finds the field that add_offset_of names. */
static int offset_plan(struct ps_batch_layout *layout, struct ps_layout_field *f, struct ps_error *err)
{
	const struct ps_layout_field *of;

	if (!f->offset_name)
		return 0;
	f->offset_of = ps_layout_lookup(layout, f->offset_name, strlen(f->offset_name));
	of = f->offset_of < 0 ? NULL : &layout->fields[f->offset_of];
	if (!of || of->form != PS_FORM_RAGGED || of->hidden)
		return ps_error_set(err, EINVAL,
		        "field %.100s: add_offset_of %.100s: must name a ragged field that is not hidden",
		        f->name, f->offset_name);
	if (f->form != PS_FORM_RAGGED || ps_dtype_is_float(f->dtype) || f->dtype == PS_BOOL ||
	        ps_dtype_nbytes(f->dtype) < 4 || f->planes > 1)
		return ps_error_set(err, EINVAL,
		        "field %.100s: add_offset_of needs this field to be ragged, with integers of 4 or 8 "
		        "bytes",
		        f->name);
	if (of->drops_with >= 0)
		return ps_error_set(err, EINVAL,
		        "field %.100s: add_offset_of %.100s: a field that drops items has other numbers of "
		        "items",
		        f->name, f->offset_name);
	f->offset_name = NULL;
	return 0;
}

/* Options without effect --------------------------------------------------------------------------------- */

/* Options without effect are refused: the caller expects an effect. The text names what they need. */

/* in: the field as given. placed: the given field that determines the placement, which is `in`, or the
 * field that `in` follows. f: the resulting field. */
struct given {
	const struct penstock_field *in, *placed;
	const struct ps_layout_field *f;
};

/* Conditions --------------------------------------------------------------------------------------------- */

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
CONDITION(has_map, g->in->degrees > 0 || g->in->translate_x > 0 || g->in->translate_y > 0 ||
                           g->in->zoom_min > 0 || g->in->shear_x > 0 || g->in->shear_y > 0)
CONDITION(
        has_colours, g->in->brightness > 0 || g->in->contrast > 0 || g->in->saturation > 0 || g->in->hue > 0)
CONDITION(has_sigma, g->in->noise_sigma > 0 || g->in->noise_sigma_max > 0)
CONDITION(is_normalised, g->in->dtype != PENSTOCK_U8 && g->in->dtype != PENSTOCK_U16)
CONDITION(takes_mean, is_normalised(g) || (has_erase(g) && !has_levels(g)))
CONDITION(takes_std, is_normalised(g) || (has_erase(g) && g->in->erase_fill == PENSTOCK_ERASE_RANDOM))
CONDITION(is_bounded, g->f->max_items != UINT64_MAX)
CONDITION(is_longest, g->f->form == PS_FORM_LONGEST)
CONDITION(is_padded, ps_field_is_padded(g->f) || g->in->pack != PENSTOCK_PACK_NONE)
CONDITION(is_fixed, g->f->form == PS_FORM_FIXED)
CONDITION(is_packed, g->in->pack != PENSTOCK_PACK_NONE)
CONDITION(is_whole, g->in->pack == PENSTOCK_PACK_WHOLE)
CONDITION(has_cu, g->f->parts &PS_PART_CU)
CONDITION(is_array, g->in->kind != PENSTOCK_JSON || (g->f->path && g->in->dtype != PENSTOCK_U8))
CONDITION(has_path, g->in->kind != PENSTOCK_JSON || g->f->path)

/* True if pictures may need padding. False if all images are known to be at least as large as the crop. */
static bool may_pad(const struct given *g)
{
	const struct penstock_field *p = g->placed;

	if (p->crop == PENSTOCK_CROP_LETTERBOX)
		return true;
	if (p->crop != PENSTOCK_CROP_RANDOM_CROP)
		return false;
	if (p->padding_x || p->padding_y || (!p->resize_width && !p->resize_shorter))
		return true;
	if (p->resize_width)
		return p->resize_width < p->image_width || p->resize_height < p->image_height;
	return p->resize_shorter < PS_MAX(p->image_width, p->image_height);
}

CONDITION(is_filled,
        g->placed->affine > 0 || (may_pad(g) && g->placed->padding_mode == PENSTOCK_PADDING_CONSTANT))

/* What options need -------------------------------------------------------------------------------------- */

static const struct {
	bool (*acts)(const struct given *g);
	const char *add; /* if acts() is false: why the option has no effect, or what to change */
} needs[PS_NNEEDS] = {
        [PS_NEEDS_PATH] = {has_path, "name a value in the JSON, as json:boxes"},
        [PS_NEEDS_ARRAY] = {is_array,
                "name a value in the JSON, as json:boxes, and its dtype, other than u8"},
        [PS_NEEDS_FIXED] = {is_fixed, "ragged rows are empty where there is no value"},
        [PS_NEEDS_LONGEST] = {is_longest, "add pad_to longest"},
        [PS_NEEDS_BOUND] = {is_bounded, "add max_bytes, or pad_to with a number"},
        [PS_NEEDS_PADDING] = {is_padded, "add pad_to"},
        [PS_NEEDS_RANDOM] = {is_random, "take crop random"},
        [PS_NEEDS_RANDOM_CROP] = {is_random_crop, "take crop random_crop"},
        [PS_NEEDS_CROP] = {is_sized, "take crop center or random_crop"},
        [PS_NEEDS_RESIZE] = {is_resized, "add a resize before the random_crop"},
        [PS_NEEDS_PADDED_CROP] = {may_pad,
                "take crop letterbox, or random_crop with padding or without a resize"},
        [PS_NEEDS_OUTSIDE] = {is_filled,
                "add affine, or take crop letterbox or random_crop, padded with a constant"},
        [PS_NEEDS_MEAN] = {takes_mean, "u8 and u16 are not normalised; take dtype f32, f16 or bf16"},
        [PS_NEEDS_STD] = {takes_std, "u8 and u16 are not normalised; take dtype f32, f16 or bf16"},
        [PS_NEEDS_AFFINE] = {has_affine, "add affine, its probability"},
        [PS_NEEDS_MAP] = {has_map,
                "add degrees, translate_x, translate_y, zoom_min and zoom_max, shear_x or shear_y"},
        [PS_NEEDS_JITTER] = {has_jitter, "add jitter, its probability"},
        [PS_NEEDS_COLOURS] = {has_colours, "add brightness, contrast, saturation or hue"},
        [PS_NEEDS_BLUR] = {has_blur, "add blur, its probability"},
        [PS_NEEDS_NOISE] = {has_noise, "add noise, its probability"},
        [PS_NEEDS_SIGMA] = {has_sigma, "add noise_sigma, its standard deviation in levels"},
        [PS_NEEDS_ERASE] = {has_erase, "add erase, its probability"},
        [PS_NEEDS_LEVELS] = {has_levels, "add erase, its probability, and erase_fill levels"},
        [PS_NEEDS_PACK] = {is_packed, "add pack: concat, fit or whole"},
        [PS_NEEDS_WHOLE] = {is_whole, "the other ways to pack cut such documents; take pack whole"},
        [PS_NEEDS_CU] = {has_cu, "add cu to parts"},
};

static bool is_same(
        const struct ps_option *option, const struct penstock_field *a, const struct penstock_field *b)
{
	return memcmp((const char *)a + option->at, (const char *)b + option->at, option->nbytes) == 0;
}

static int option_check(const struct ps_option *option, const struct given *g, struct ps_error *err)
{
	if (option->gone)
		return ps_error_set(err, EINVAL, "field %.100s: %s no longer exists: %s", g->f->name,
		        option->name, option->gone);
	if (!(option->kinds & 1u << g->in->kind))
		return ps_error_set(err, EINVAL,
		        "field %.100s: %s has no effect: %s fields have no such option", g->f->name,
		        option->name, ps_layout_kind_name(g->in->kind));
	if (g->placed != g->in && option->placing)
		return is_same(option, g->in, g->placed) ? 0
		                                         : ps_error_set(err, EINVAL,
		                                                   "field %.100s: %s has no effect: this "
		                                                   "field follows field %.100s; set it there",
		                                                   g->f->name, option->name, g->placed->name);
	if (option->need && !needs[option->need].acts(g))
		return ps_error_set(err, EINVAL, "field %.100s: %s has no effect: %s", g->f->name,
		        option->name, needs[option->need].add);
	return 0;
}

static int effects_check(
        const struct ps_batch_layout *layout, const struct penstock_field *in, struct ps_error *err)
{
	for (uint32_t i = 0; i < layout->nfields; i++) {
		const struct ps_layout_field *f = &layout->fields[i];
		struct given g = {
		        .in = &in[i], .placed = &in[f->leader >= 0 ? (uint32_t)f->leader : i], .f = f};
		struct penstock_field unset;

		penstock_field_init(&unset, sizeof(unset), in[i].name, in[i].kind);
		for (size_t k = 0; k < ps_n_field_options; k++) {
			const struct ps_option *o = &ps_field_options[k];
			int rc = is_same(o, &in[i], &unset) ? 0 : option_check(o, &g, err);

			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

/* The whole layout --------------------------------------------------------------------------------------- */

int ps_batch_layout_new(
        const struct penstock_options *o, struct ps_batch_layout **ret_layout, struct ps_error *err)
{
	struct ps_batch_layout *layout;
	int rc;

	if (o->nfields == 0 || o->nfields > PS_LAYOUT_MAX_FIELDS || !o->fields)
		return ps_error_set(
		        err, EINVAL, "%u fields: must be 1 to %d", o->nfields, PS_LAYOUT_MAX_FIELDS);
	layout = calloc(1, sizeof(*layout));
	if (!layout)
		return ps_no_memory(err);
	layout->transform = o->transform;
	layout->transform_ctx = o->transform_ctx;
	layout->transform_unit = o->transform_unit;
	layout->transform_leave = o->transform_leave;
	rc = rename_check(o, err);
	if (rc == 0 && o->transform && o->transform_unit)
		rc = ps_error_set(err, EINVAL, "transform and transform_unit exclude each other");
	for (uint32_t i = 0; i < o->nfields && rc == 0; i++) {
		rc = field_make(&layout->fields[i], &o->fields[i], o->rename, err);
		layout->nfields++;
		if (rc == 0 && o->fields[i].kind == PENSTOCK_OUTPUT && !o->transform && !o->transform_unit)
			rc = ps_error_set(err, EINVAL,
			        "field %.100s: an output needs options.transform or transform_unit, which "
			        "writes it",
			        layout->fields[i].name);
		for (uint32_t j = 0; j < i && rc == 0; j++)
			if (strcmp(layout->fields[i].name, layout->fields[j].name) == 0)
				rc = ps_error_set(
				        err, EINVAL, "field %.100s is given twice", layout->fields[i].name);
	}
	if (rc == 0)
		rc = ps_layout_images_join(layout, o->fields, err);
	if (rc == 0)
		rc = effects_check(layout, o->fields, err);
	if (rc == 0)
		rc = mix_plan(layout, o, err);
	for (uint32_t i = 0; i < layout->nfields && rc == 0; i++)
		rc = offset_plan(layout, &layout->fields[i], err);
	for (uint32_t i = 0; i < layout->nfields && rc == 0; i++)
		rc = layout->fields[i].hidden ? 0 : companions_make(&layout->fields[i], err);
	if (rc < 0) {
		ps_batch_layout_free(layout);
		return rc;
	}
	*ret_layout = layout;
	return 0;
}

void ps_batch_layout_free(struct ps_batch_layout *layout)
{
	if (!layout)
		return;
	for (uint32_t i = 0; i < layout->nfields; i++) {
		for (size_t k = 0; k < PS_ARRAY_LEN(layout->fields[i].companions); k++)
			free(layout->fields[i].companions[k]);
		free(layout->fields[i].names);
		free(layout->fields[i].member);
		free(layout->fields[i].name);
	}
	free(layout);
}

const struct ps_layout_field *ps_layout_packed(const struct ps_batch_layout *layout)
{
	for (uint32_t i = 0; i < layout->nfields; i++)
		if (layout->fields[i].pack != PS_PACK_NONE)
			return &layout->fields[i];
	return NULL;
}

int ps_layout_windows(const struct ps_batch_layout *layout, uint64_t stride, struct ps_windows *ret_windows,
        struct ps_error *err)
{
	*ret_windows = (struct ps_windows){0};
	for (uint32_t i = 0; i < layout->nfields; i++) {
		const struct ps_layout_field *f = &layout->fields[i];
		size_t item = ps_dtype_nbytes(f->source_dtype);

		if (f->kind != PENSTOCK_TOKENS || f->shape[0] == 0)
			continue;
		stride = stride ? stride : f->shape[0];
		if (f->shape[0] > PS_WINDOWS_MAX_NBYTES / item || stride > PS_WINDOWS_MAX_STRIDE)
			return ps_error_set(err, EINVAL,
			        "field %.100s: windows of %ju tokens, %ju apart: must be at most %ju tokens "
			        "(256 MiB), at most 2^40 apart",
			        f->name, (uintmax_t)f->shape[0], (uintmax_t)stride,
			        (uintmax_t)(PS_WINDOWS_MAX_NBYTES / item));
		*ret_windows = (struct ps_windows){.nbytes = (f->shape[0] + 1) * item,
		        .stride = stride * item,
		        .item = (uint32_t)item,
		        .type = ps_dtype_name(f->source_dtype),
		        .suffix = f->names};
		return 0;
	}
	return 0;
}
