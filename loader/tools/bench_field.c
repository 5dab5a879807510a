/* bench: fields from the command line. */
#include "config.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option/option.h"
#include "tools/bench.h"
#include "tools/tools.h"

/* Finds a kind by its name (also Python's), among those whose fields follow no other field. */
static bool kind_find(const char *text, size_t n, uint32_t *ret_kind)
{
	static const struct {
		const char *name;
		uint32_t kind;
	} python[] = {{"int", PENSTOCK_INT64}, {"array", PENSTOCK_NPY}};

	for (size_t i = 0; i < PS_ARRAY_LEN(python); i++) {
		if (strlen(python[i].name) == n && memcmp(python[i].name, text, n) == 0) {
			*ret_kind = python[i].kind;
			return true;
		}
	}
	for (uint32_t i = 0; i < PENSTOCK_OUTPUT; i++) {
		if (i == PENSTOCK_MASK || i == PENSTOCK_BOXES || strlen(ps_kind_words[i]) != n ||
		        memcmp(ps_kind_words[i], text, n) != 0)
			continue;
		*ret_kind = i;
		return true;
	}
	return false;
}

static bool dtype_find(const char *text, uint32_t *ret_dtype)
{
	for (uint32_t i = 0; ps_dtype_words[i]; i++) {
		if (strcmp(ps_dtype_words[i], text) == 0) {
			*ret_dtype = i;
			return true;
		}
	}
	return false;
}

void ps_bench_fields_init(struct ps_bench_options *o)
{
	penstock_field_init(&o->image, sizeof(o->image), "jpg;jpeg;png;webp", PENSTOCK_IMAGE);
	penstock_field_init(&o->fields[1], sizeof(o->fields[1]), "cls", PENSTOCK_INT64);
	o->fields[1].optional = 1;
	o->loader.fields = o->fields;
	o->loader.nfields = 2;
}

bool ps_bench_take_field(void *ctx, char *text)
{
	struct ps_bench_options *o = ctx;
	const char *kind = strrchr(text, '='), *dtype = kind ? strchr(kind, ':') : NULL;
	size_t name_len = kind ? (size_t)(kind - text) : 0;
	struct penstock_field *f = &o->fields[o->nnamed];
	char *name = o->names[o->nnamed];
	uint32_t k;

	if (o->nnamed == PS_BENCH_MAX_FIELDS)
		return ps_complain("--field %s: more than %d fields", text, PS_BENCH_MAX_FIELDS);
	if (name_len == 0 || name_len >= sizeof(o->names[0]) ||
	        !kind_find(kind + 1, dtype ? (size_t)(dtype - kind - 1) : strlen(kind + 1), &k))
		return ps_complain(
		        "--field %s: must be SUFFIX=KIND or SUFFIX=KIND:DTYPE, with a KIND of image, int, "
		        "float, bytes, text, json, array or tokens",
		        text);
	memcpy(name, text, name_len);
	name[name_len] = 0;
	penstock_field_init(f, sizeof(*f), name, k);
	if (dtype && !dtype_find(dtype + 1, &f->dtype))
		return ps_complain("--field %s: no such dtype; examples are f32, i64 and u8", text);
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
	return ps_complain(
	        "--image, --crop, --dtype, --layout and --image-option have no effect: no --field is an "
	        "image; add "
	        "one, as --field jpg=image");
}

/* Options of images ------------------------------------------------------------------------------------- */

static bool member_set(struct penstock_field *f, const struct ps_option *o, const char *value)
{
	char *end = NULL, *to = (char *)f + o->at;

	if (o->type == PS_OPTION_TEXT) {
		memcpy(to, &value, sizeof(value));
	} else if (o->type == PS_OPTION_F64) {
		double v = strtod(value, &end);

		memcpy(to, &v, sizeof(v));
	} else {
		uint64_t word = 0;

		while (ps_option_word(o, word) && strcmp(ps_option_word(o, word), value) != 0)
			word++;
		if (ps_option_word(o, word)) {
			memcpy(to, &(uint32_t){(uint32_t)word}, sizeof(uint32_t)); /* enums are uint32_t */
			return true;
		}
		unsigned long v = strtoul(value, &end, 0);
		uint32_t u = (uint32_t)v;
		uint64_t u64 = v;

		if (v > ps_option_most(&(struct ps_option){.nbytes = o->nbytes}) || *value == '-')
			return false;
		memcpy(to, o->nbytes == sizeof(u) ? (void *)&u : (void *)&u64, o->nbytes);
	}
	return !end || (end != value && *end == 0);
}

/* True if --image-option sets this option: not if the command line has an option of its own for it, or if it
 * names other fields. */
static bool is_offered(const struct ps_option *o)
{
	static const char *const others[] = {
	        "image_width", "image_height", "dtype", "layout", "crop", "optional", "member", "follow"};

	for (size_t i = 0; i < PS_ARRAY_LEN(others); i++)
		if (strcmp(o->name, others[i]) == 0)
			return false;
	return o->kinds & 1u << PENSTOCK_IMAGE && o->type != PS_OPTION_F32X3;
}

/* Takes the options that stand for two: resize=256 (the shorter side), resize=256x320 (height, width); padding=4,
 * padding=4x8 (left and right, above and below). False: the value is none of these. */
static bool pair_take(struct penstock_field *image, bool resize, const char *value)
{
	unsigned a, b;
	int one = -1, two = -1, n = sscanf(value, "%u%nx%u%n", &a, &one, &b, &two);

	if (n < 1 || value[n == 2 ? two : one] || !isdigit((unsigned char)*value))
		return false;
	if (!resize) {
		image->padding_x = a;
		image->padding_y = n == 2 ? b : a;
	} else if (n == 2) {
		image->resize_height = a;
		image->resize_width = b;
	} else {
		image->resize_shorter = a;
	}
	return true;
}

static bool image_option_take(struct penstock_field *image, const char *text)
{
	const char *value = strchr(text, '=');
	size_t n = value ? (size_t)(value - text) : 0;

	if (!value)
		return ps_complain("--image-option %s: must be NAME=VALUE, such as jitter=0.8", text);
	bool resize = strncmp(text, "resize=", 7) == 0;
	if (resize || strncmp(text, "padding=", 8) == 0) {
		if (pair_take(image, resize, value + 1))
			return true;
		return ps_complain("--image-option %s: must be %s", text,
		        resize ? "the shorter side, or HEIGHTxWIDTH"
		               : "pixels, or left and rightxabove and below");
	}
	if (strncmp(text, "resize_", 7) == 0 || strncmp(text, "padding_x", 9) == 0 ||
	        strncmp(text, "padding_y", 9) == 0)
		return ps_complain("--image-option %s no longer exists: write %s", text,
		        *text == 'r' ? "resize=SHORTER, or resize=HEIGHTxWIDTH"
		                     : "padding=N, or padding=XxY");
	const struct ps_option *o = ps_field_option(text, n);
	if (o && o->gone)
		return ps_complain("--image-option %s no longer exists: %s", text, o->gone);
	if (o && is_offered(o)) {
		if (member_set(image, o, value + 1))
			return true;
		char range[128] = "";

		if (o->words)
			ps_option_range(o, range, sizeof(range));
		return ps_complain("--image-option %s: must be %s", text, o->words ? range : "a number");
	}
	return ps_complain(
	        "--image-option %s: no such option of images; penstock_field_init(3) lists them, such as "
	        "jitter, "
	        "erase, groups",
	        text);
}

bool ps_bench_take_image_option(void *ctx, char *value)
{
	struct ps_bench_options *o = ctx;

	return o->image_set = image_option_take(&o->image, value);
}

bool ps_bench_take_side(void *ctx, char *value)
{
	struct ps_bench_options *o = ctx;
	uint64_t side;

	if (!ps_arg_u64("--image", value, 1, 16384, &side))
		return false;
	o->image.image_width = o->image.image_height = (uint32_t)side;
	return o->image_set = true;
}

bool ps_bench_take_crop(void *ctx, char *value)
{
	static const char *const crops[] = {"random", "center", "none", "random_crop", "letterbox"};
	struct ps_bench_options *o = ctx;

	if (!ps_arg_choice("--crop", value, crops, PS_ARRAY_LEN(crops), &o->image.crop))
		return false;
	o->image.hflip =
	        o->image.crop == PENSTOCK_CROP_RANDOM || o->image.crop == PENSTOCK_CROP_RANDOM_CROP ? 0.5 : 0;
	return o->image_set = true;
}
