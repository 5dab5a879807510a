/* bench: fields from the command line. */
#include "config.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "tools/bench.h"
#include "tools/tools.h"

static const struct {
	const char *name;
	uint32_t kind;
} kinds[] = {
        {"image", PENSTOCK_IMAGE},
        {"int64", PENSTOCK_INT64},
        {"float", PENSTOCK_FLOAT},
        {"bytes", PENSTOCK_BYTES},
        {"text", PENSTOCK_TEXT},
        {"json", PENSTOCK_JSON},
        {"npy", PENSTOCK_NPY},
        {"tokens", PENSTOCK_TOKENS},
};

static bool kind_find(const char *text, size_t n, uint32_t *ret_kind)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++) {
		if (strlen(kinds[i].name) == n && memcmp(kinds[i].name, text, n) == 0) {
			*ret_kind = kinds[i].kind;
			return true;
		}
	}
	return false;
}

static bool dtype_find(const char *text, uint32_t *ret_dtype)
{
	for (uint32_t i = 0; i < PS_NDTYPES; i++) {
		if (strcmp(ps_dtype_name((enum ps_dtype)i), text) == 0) {
			*ret_dtype = i;
			return true;
		}
	}
	return false;
}

bool ps_bench_field_take(struct ps_bench_options *o, const char *text)
{
	const char *kind = strrchr(text, '='), *dtype = kind ? strchr(kind, ':') : NULL;
	size_t name_len = kind ? (size_t)(kind - text) : 0;
	struct penstock_field *f = &o->fields[o->nnamed];
	char *name = o->names[o->nnamed];
	uint32_t k;

	if (o->nnamed == PS_BENCH_MAX_FIELDS) {
		ps_complain("--field %s: more than %d fields", text, PS_BENCH_MAX_FIELDS);
		return false;
	}
	if (name_len == 0 || name_len >= sizeof(o->names[0]) ||
	        !kind_find(kind + 1, dtype ? (size_t)(dtype - kind - 1) : strlen(kind + 1), &k)) {
		ps_complain("--field %s: must be NAME=KIND or NAME=KIND:DTYPE, with a KIND of image, int64, "
		            "float, "
		            "bytes, text, json, npy or tokens",
		        text);
		return false;
	}
	memcpy(name, text, name_len);
	name[name_len] = 0;
	penstock_field_init(f, sizeof(*f), name, k);
	if (dtype && !dtype_find(dtype + 1, &f->dtype)) {
		ps_complain("--field %s: no such dtype; as f32, i64, u8", text);
		return false;
	}
	o->nnamed++;
	return true;
}

bool ps_bench_fields_finish(struct ps_bench_options *o)
{
	bool any = false;

	if (o->nnamed == 0) {
		o->fields[0] = o->image;
		return true;
	}
	o->loader.nfields = o->nnamed;
	for (uint32_t i = 0; i < o->nnamed; i++) {
		struct penstock_field *f = &o->fields[i], given = *f;

		if (f->kind != PENSTOCK_IMAGE)
			continue;
		*f = o->image;
		f->name = given.name;
		f->dtype = given.dtype != PENSTOCK_F32 ? given.dtype : f->dtype;
		any = true;
	}
	if (any || !o->image_set)
		return true;
	ps_complain("--image, --crop, --dtype, --layout and --image-option have no effect: no --field is an image; add "
	            "one, as --field jpg=image");
	return false;
}

/* -- What is done to images ----------------------------------------------------------------------------- */

enum type { REAL, NUMBER, TEXT };

#define REALS(X)                                                                                             \
	X(hflip) X(vflip) X(affine) X(degrees) X(translate_x) X(translate_y) X(zoom_min) X(zoom_max) X(shear_x) \
	X(shear_y) X(jitter) X(brightness) X(contrast) X(saturation) X(hue) X(gray) X(blur) X(blur_sigma_min)    \
	X(blur_sigma_max) X(noise) X(noise_sigma) X(noise_sigma_max) X(erase) X(erase_scale_min)                 \
	X(erase_scale_max) X(erase_ratio_min) X(erase_ratio_max) X(scale_min) X(scale_max) X(ratio_min) X(ratio_max)
#define NUMBERS(X)                                                                                           \
	X(views) X(orient) X(dct_scale) X(fill) X(blur_size) X(blur_size_max) X(resize_shorter) X(resize_width)  \
	X(resize_height) X(padding_x) X(padding_y) X(padding_mode) X(jitter_order) X(erase_fill) X(erase_levels)

static const struct {
	const char *name;
	enum type type;
	size_t at;
} members[] = {
#define ROW(name, type) {#name, type, offsetof(struct penstock_field, name)},
#define REAL_ROW(name) ROW(name, REAL)
#define NUMBER_ROW(name) ROW(name, NUMBER)
        REALS(REAL_ROW) NUMBERS(NUMBER_ROW) ROW(groups, TEXT)
};

static bool member_set(struct penstock_field *f, size_t i, const char *value)
{
	char *end = NULL;

	if (members[i].type == TEXT) {
		memcpy((char *)f + members[i].at, &value, sizeof(value));
	} else if (members[i].type == REAL) {
		double v = strtod(value, &end);

		memcpy((char *)f + members[i].at, &v, sizeof(v));
	} else {
		unsigned long v = strtoul(value, &end, 0);
		uint32_t u = (uint32_t)v;

		if (v > UINT32_MAX || *value == '-')
			return false;
		memcpy((char *)f + members[i].at, &u, sizeof(u));
	}
	return !end || (end != value && *end == 0);
}

bool ps_bench_image_take(struct penstock_field *image, const char *text)
{
	const char *value = strchr(text, '=');
	size_t n = value ? (size_t)(value - text) : 0;

	if (!value) {
		ps_complain("--image-option %s: must be NAME=VALUE, as jitter=0.8", text);
		return false;
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(members); i++) {
		if (strlen(members[i].name) != n || memcmp(members[i].name, text, n) != 0)
			continue;
		if (member_set(image, i, value + 1))
			return true;
		ps_complain("--image-option %s: must be a number", text);
		return false;
	}
	ps_complain("--image-option %s: no such option of images; libpenstock(3) names them, as jitter, erase, groups",
	        text);
	return false;
}
