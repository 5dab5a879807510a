#include "config.h"

#include "batch/plan.h"

#include <errno.h>
#include <string.h>

/* "jpg;JPEG" to "jpg\0jpeg\0". */
static int names_parse(struct ps_plan_field *f, struct ps_load_error *err)
{
	char *p;

	f->names = strdup(f->name);
	if (!f->names)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	p = f->names;
	for (;;) {
		size_t len = strcspn(p, ";");
		bool more = p[len] == ';';

		if (len == 0 || f->n_names == PS_PLAN_MAX_ALTERNATIVES)
			return ps_load_error_set(err, EINVAL,
			        "field \"%.100s\": must be 1 to %d suffixes with ';' between them, as "
			        "jpg;jpeg",
			        f->name, PS_PLAN_MAX_ALTERNATIVES);
		if (len > 2 && memcmp(p, "__", 2) == 0)
			return ps_load_error_set(
			        err, EINVAL, "field \"%.100s\": names with __ are the loader's own", f->name);
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

static int image_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	struct ps_image_spec *spec = &f->image;
	uint32_t longer = PS_MAX(in->image_width, in->image_height);

	if (in->crop > PENSTOCK_CROP_NONE || in->interpolation > PENSTOCK_BICUBIC ||
	        in->layout > PENSTOCK_NHWC || (in->dtype != PENSTOCK_U8 && in->dtype != PENSTOCK_F32))
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: unknown crop, interpolation, layout or dtype (images are u8 or f32)",
		        f->name);
	if (in->optional)
		return ps_load_error_set(err, EINVAL, "field %.100s: an image cannot be optional", f->name);
	*spec = ps_image_spec_imagenet(224);
	spec->out_width = in->image_width;
	spec->out_height = in->image_height;
	spec->crop = (enum ps_crop)in->crop;
	spec->resize_shorter = in->resize_shorter ? in->resize_shorter : longer + longer / 7;
	if (!in->resize_shorter && spec->resize_shorter > PS_IMAGE_SIDE_MAX)
		spec->resize_shorter = PS_IMAGE_SIDE_MAX;
	spec->scale_min = in->scale_min;
	spec->scale_max = in->scale_max;
	spec->ratio_min = in->ratio_min;
	spec->ratio_max = in->ratio_max;
	spec->hflip_probability = in->hflip;
	spec->interpolation = (enum ps_interpolation)in->interpolation;
	spec->dtype = (enum ps_dtype)in->dtype;
	spec->layout = (enum ps_layout)in->layout;
	memcpy(spec->mean, in->mean, sizeof(spec->mean));
	memcpy(spec->std, in->std, sizeof(spec->std));
	spec->max_pixels = in->max_pixels;
	if (ps_image_spec_check(spec, err) < 0)
		return ps_load_error_prefix(err, "field %.100s", f->name);
	f->row_nbytes = ps_image_nbytes(spec);
	return 0;
}

static int field_plan(struct ps_plan_field *f, const struct penstock_field *in, struct ps_load_error *err)
{
	int r;

	if (!in->name)
		return ps_load_error_set(err, EINVAL, "a field without a name");
	*f = (struct ps_plan_field){.name = strdup(in->name),
	        .kind = (enum penstock_kind)in->kind,
	        .optional = in->optional != 0,
	        .missing_value = in->missing_value};
	r = f->name ? names_parse(f, err) : ps_load_error_set(err, ENOMEM, "out of memory");
	if (r < 0)
		return r;
	switch (in->kind) {
	case PENSTOCK_IMAGE:
		return image_plan(f, in, err);
	case PENSTOCK_INT64:
		f->row_nbytes = sizeof(int64_t);
		return 0;
	case PENSTOCK_BYTES:
		return 0;
	}
	return ps_load_error_set(err, EINVAL, "field %.100s: unknown kind %u", f->name, in->kind);
}

int ps_plan_new(const struct penstock_options *o, struct ps_plan **ret_plan, struct ps_load_error *err)
{
	struct ps_plan *plan;

	if (o->nfields == 0 || o->nfields > PS_PLAN_MAX_FIELDS || !o->fields)
		return ps_load_error_set(
		        err, EINVAL, "%u fields: must be 1 to %d", o->nfields, PS_PLAN_MAX_FIELDS);
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < o->nfields; i++) {
		int r = field_plan(&plan->fields[i], &o->fields[i], err);

		plan->nfields++;
		for (uint32_t j = 0; j < i && r == 0; j++)
			if (strcmp(plan->fields[i].name, plan->fields[j].name) == 0)
				r = ps_load_error_set(
				        err, EINVAL, "field %.100s twice", plan->fields[i].name);
		if (r < 0) {
			ps_plan_free(plan);
			return r;
		}
	}
	*ret_plan = plan;
	return 0;
}

void ps_plan_free(struct ps_plan *plan)
{
	if (!plan)
		return;
	for (uint32_t i = 0; i < plan->nfields; i++) {
		free(plan->fields[i].names);
		free(plan->fields[i].name);
	}
	free(plan);
}

static bool has_name(const struct ps_plan_field *f, const char *suffix, size_t len)
{
	const char *p = f->names;

	for (uint32_t i = 0; i < f->n_names; p += f->name_len[i++] + 1)
		if (f->name_len[i] == len && memcmp(p, suffix, len) == 0)
			return true;
	return false;
}

bool ps_plan_wants(void *ctx, const char *suffix, size_t len)
{
	const struct ps_plan *plan = ctx;

	for (uint32_t i = 0; i < plan->nfields; i++)
		if (has_name(&plan->fields[i], suffix, len))
			return true;
	return false;
}

struct ps_sample_field *ps_plan_find(const struct ps_plan_field *f, struct ps_sample *sample)
{
	const char *p = f->names;

	for (uint32_t i = 0; i < f->n_names; p += f->name_len[i++] + 1) {
		struct ps_sample_field *field = ps_sample_find(sample, p, f->name_len[i]);

		if (field)
			return field;
	}
	return NULL;
}

int ps_plan_lookup(const struct ps_plan *plan, const char *name)
{
	for (uint32_t i = 0; i < plan->nfields; i++)
		if (strcmp(plan->fields[i].name, name) == 0)
			return (int)i;
	for (uint32_t i = 0; i < plan->nfields; i++)
		if (has_name(&plan->fields[i], name, strlen(name)))
			return (int)i;
	return -1;
}
