#include "config.h"

#include "batch/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "batch/field.h"
#include "batch/json.h"

#define SPACES " \t\n"

/* What a field of that name is made of: what `rename` says, else itself. A copy. */
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

/* Each word must be NAME=SUFFIXES, and each NAME a field. */
static int rename_check(const struct penstock_options *o, struct ps_load_error *err)
{
	for (const char *p = o->rename; p && *p; p += strcspn(p, SPACES)) {
		size_t len = strcspn(p += strspn(p, SPACES), SPACES "="), used = 0;

		if (*p == 0)
			break;
		for (uint32_t i = 0; i < o->nfields; i++)
			used += o->fields[i].name && strlen(o->fields[i].name) == len &&
			        memcmp(o->fields[i].name, p, len) == 0;
		if (p[len] != '=' || len == 0 || used == 0)
			return ps_load_error_set(err, EINVAL,
			        "rename \"%.*s\": must be NAME=SUFFIXES with NAME a field, as image=jpg;png",
			        (int)PS_MIN(strcspn(p, SPACES), (size_t)100), p);
	}
	return 0;
}

/* "jpg;JPEG" to "jpg\0jpeg\0", and "json:a.b" to "json\0" and the path "a.b". */
static int names_parse(struct ps_plan_field *f, const char *rename, struct ps_load_error *err)
{
	char *p, *colon;

	f->names = source_names(rename, f->member ? f->member : f->name);
	if (!f->names)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	p = f->names;
	colon = strchr(p, ':');
	if (colon) {
		f->path = colon + 1;
		*colon = 0;
		if (!ps_json_path_ok(f->path))
			return ps_load_error_set(err, EINVAL,
			        "field \"%.100s\": behind the ':' must be names and places with dots "
			        "between, "
			        "as json:meta.size.0, of fewer than %d bytes",
			        f->name, PS_JSON_MAX_PATH);
	}
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

static int companion_add(struct ps_plan_field *f, const char *what, struct ps_load_error *err)
{
	if (asprintf(&f->companions[f->n_tensors - 1], "%s:%s", f->name, what) < 0) {
		f->companions[f->n_tensors - 1] = NULL;
		return ps_load_error_set(err, ENOMEM, "out of memory");
	}
	f->n_tensors++;
	return 0;
}

static int companions_make(struct ps_plan_field *f, struct ps_load_error *err)
{
	int r = 0;

	f->n_tensors = 1;
	if (f->planes > 1)
		r = companion_add(f, f->mixed_label ? "mix" : "y", err);
	if (r == 0 && ps_field_is_padded(f))
		r = companion_add(f, "lengths", err);
	if (r == 0 && ps_field_is_padded(f))
		r = companion_add(f, "mask", err);
	return r;
}

static int field_make(struct ps_plan_field *f, const struct penstock_field *in, const char *rename,
        struct ps_load_error *err)
{
	int r;

	if (!in->name)
		return ps_load_error_set(err, EINVAL, "a field without a name");
	*f = (struct ps_plan_field){.name = strdup(in->name),
	        .kind = (enum penstock_kind)in->kind,
	        .optional = in->optional != 0};
	f->member = in->member ? strdup(in->member) : NULL;
	r = f->name && (f->member || !in->member) ? names_parse(f, rename, err)
	                                          : ps_load_error_set(err, ENOMEM, "out of memory");
	if (r == 0)
		r = ps_plan_field_make(f, in, err);
	return r;
}

/* Batches are mixed; labels get a second plane. */
static int mix_plan(struct ps_plan *plan, const struct penstock_options *o, struct ps_load_error *err)
{
	const double alphas[] = {o->mixup_alpha, o->cutmix_alpha};

	for (int i = 0; i < 2; i++)
		if (!(alphas[i] == 0 || (alphas[i] >= 0.01 && alphas[i] <= 100)))
			return ps_load_error_set(err, EINVAL, "%s_alpha %g: must be 0 (off), or 0.01 to 100",
			        i ? "cutmix" : "mixup", alphas[i]);
	if (!(o->mix_probability >= 0 && o->mix_probability <= 1 && o->cutmix_share >= 0 &&
	              o->cutmix_share <= 1))
		return ps_load_error_set(err, EINVAL, "mix_probability %g, cutmix_share %g: must be 0 to 1",
		        o->mix_probability, o->cutmix_share);
	if (o->mix_probability != 1 && !(o->mixup_alpha > 0) && !(o->cutmix_alpha > 0))
		return ps_load_error_set(err, EINVAL,
		        "mix_probability %g has no effect: add mixup_alpha or cutmix_alpha", o->mix_probability);
	if (o->cutmix_share != 0.5 && !(o->mixup_alpha > 0 && o->cutmix_alpha > 0))
		return ps_load_error_set(err, EINVAL,
		        "cutmix_share %g has no effect: add mixup_alpha and cutmix_alpha", o->cutmix_share);
	plan->mixes = o->mixup_alpha > 0 || o->cutmix_alpha > 0;
	plan->seed = o->seed;
	plan->mix = (struct ps_mix_spec){.mixup_alpha = o->mixup_alpha,
	        .cutmix_alpha = o->cutmix_alpha,
	        .probability = o->mix_probability,
	        .cutmix_share = o->cutmix_share};
	for (uint32_t i = 0; i < plan->nfields && plan->mixes; i++) {
		struct ps_plan_field *f = &plan->fields[i];

		f->mixed_label = (f->kind == PENSTOCK_INT64 || f->kind == PENSTOCK_FLOAT) &&
		                 f->form == PS_FORM_FIXED;
		f->planes += f->mixed_label;
	}
	return 0;
}

/* Finds the field that add_offset_of names. */
static int offset_plan(struct ps_plan *plan, struct ps_plan_field *f, struct ps_load_error *err)
{
	const struct ps_plan_field *of;

	if (!f->offset_name)
		return 0;
	f->offset_of = ps_plan_lookup(plan, f->offset_name, strlen(f->offset_name));
	of = f->offset_of < 0 ? NULL : &plan->fields[f->offset_of];
	if (!of || of->form != PS_FORM_RAGGED)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: add_offset_of %.100s: must name a ragged field", f->name,
		        f->offset_name);
	if (f->form != PS_FORM_RAGGED || ps_dtype_is_float(f->dtype) || f->dtype == PS_BOOL ||
	        ps_dtype_nbytes(f->dtype) < 4 || f->planes > 1)
		return ps_load_error_set(err, EINVAL,
		        "field %.100s: add_offset_of: must be a ragged field of integers of 4 or 8 bytes",
		        f->name);
	f->offset_name = NULL;
	return 0;
}

int ps_plan_new(const struct penstock_options *o, struct ps_plan **ret_plan, struct ps_load_error *err)
{
	struct ps_plan *plan;
	int r;

	if (o->nfields == 0 || o->nfields > PS_PLAN_MAX_FIELDS || !o->fields)
		return ps_load_error_set(
		        err, EINVAL, "%u fields: must be 1 to %d", o->nfields, PS_PLAN_MAX_FIELDS);
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	plan->transform = o->transform;
	plan->transform_ctx = o->transform_ctx;
	r = rename_check(o, err);
	if (r < 0) {
		ps_plan_free(plan);
		return r;
	}
	for (uint32_t i = 0; i < o->nfields; i++) {
		r = field_make(&plan->fields[i], &o->fields[i], o->rename, err);
		plan->nfields++;
		if (r == 0 && o->fields[i].kind == PENSTOCK_OUTPUT && !o->transform)
			r = ps_load_error_set(err, EINVAL,
			        "field %.100s: an output needs options.transform, which writes it",
			        plan->fields[i].name);
		for (uint32_t j = 0; j < i && r == 0; j++)
			if (strcmp(plan->fields[i].name, plan->fields[j].name) == 0)
				r = ps_load_error_set(
				        err, EINVAL, "field %.100s twice", plan->fields[i].name);
		if (r < 0) {
			ps_plan_free(plan);
			return r;
		}
	}
	r = ps_plan_images_join(plan, o->fields, err);
	if (r == 0)
		r = ps_plan_effects_check(plan, o->fields, err);
	if (r == 0)
		r = mix_plan(plan, o, err);
	for (uint32_t i = 0; i < plan->nfields && r == 0; i++)
		r = offset_plan(plan, &plan->fields[i], err);
	for (uint32_t i = 0; i < plan->nfields && r == 0; i++)
		r = companions_make(&plan->fields[i], err);
	if (r < 0) {
		ps_plan_free(plan);
		return r;
	}
	*ret_plan = plan;
	return 0;
}

void ps_plan_free(struct ps_plan *plan)
{
	if (!plan)
		return;
	for (uint32_t i = 0; i < plan->nfields; i++) {
		for (size_t k = 0; k < PS_ARRAY_LEN(plan->fields[i].companions); k++)
			free(plan->fields[i].companions[k]);
		free(plan->fields[i].names);
		free(plan->fields[i].member);
		free(plan->fields[i].name);
	}
	free(plan);
}

int ps_plan_windows(const struct ps_plan *plan, uint64_t stride, struct ps_windows *ret_windows,
        struct ps_load_error *err)
{
	*ret_windows = (struct ps_windows){0};
	for (uint32_t i = 0; i < plan->nfields; i++) {
		const struct ps_plan_field *f = &plan->fields[i];
		size_t item = ps_dtype_nbytes(f->source_dtype);

		if (f->kind != PENSTOCK_TOKENS || f->shape[0] == 0)
			continue;
		stride = stride ? stride : f->shape[0];
		if (f->shape[0] > PS_WINDOWS_MAX_NBYTES / item || stride > PS_WINDOWS_MAX_STRIDE)
			return ps_load_error_set(err, EINVAL,
			        "field %.100s: windows of %ju tokens, %ju apart: must be below 2^28 and 2^40",
			        f->name, (uintmax_t)f->shape[0], (uintmax_t)stride);
		*ret_windows = (struct ps_windows){.nbytes = (f->shape[0] + 1) * item,
		        .stride = stride * item,
		        .item = (uint32_t)item,
		        .suffix = f->names};
		return 0;
	}
	return 0;
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
		if (plan->fields[i].kind != PENSTOCK_OUTPUT && has_name(&plan->fields[i], suffix, len))
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

int ps_plan_lookup(const struct ps_plan *plan, const char *name, size_t len)
{
	for (uint32_t i = 0; i < plan->nfields; i++)
		if (strlen(plan->fields[i].name) == len && memcmp(plan->fields[i].name, name, len) == 0)
			return (int)i;
	for (uint32_t i = 0; i < plan->nfields; i++)
		if (!plan->fields[i].path && has_name(&plan->fields[i], name, len))
			return (int)i;
	return -1;
}
