/* doctor --decode: finds samples that do not decode, by a loader. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "batch/batch.h"
#include "penstock.h"
#include "shard/file/file.h"
#include "tools/doctor_find.h"

#define BATCH 32
#define SIDE 32 /* pixels of the resized images; they are decoded in full, whatever this is */

static const struct {
	const char *ends; /* after the last dot of a suffix */
	uint32_t kind;
} kinds[] = {
        {"jpg", PENSTOCK_IMAGE},
        {"jpeg", PENSTOCK_IMAGE},
        {"png", PENSTOCK_IMAGE},
        {"webp", PENSTOCK_IMAGE},
        {"ppm", PENSTOCK_IMAGE},
        {"pgm", PENSTOCK_IMAGE},
        {"cls", PENSTOCK_INT64},
        {"json", PENSTOCK_JSON},
        {"txt", PENSTOCK_TEXT},
        /* arrays of any shape, which no kind of field takes: checked by arrays_look() */
        {"npy", PENSTOCK_BYTES},
};

struct fields {
	struct penstock_field v[PS_CHART_MAX_FIELDS];
	char names[PS_CHART_MAX_FIELDS][128];
	uint32_t n;
	/* If `v` has a single field that some samples lack: offsets of the samples that have it, ascending.
	 * NULL: all samples are decoded. */
	uint64_t *have;
	size_t nhave;
};

/* The field's name and kind for a suffix; false: it is not decoded. */
static bool field_name(const char *suffix, char name[static 128], uint32_t *ret_kind)
{
	size_t len = strlen(suffix), packed = strlen(PS_UNPACK_SUFFIX);

	if (len > packed && strcmp(suffix + len - packed, PS_UNPACK_SUFFIX) == 0)
		len -= packed;
	if (len >= 128 || strcspn(suffix, ";:\\") < len)
		return false;
	memcpy(name, suffix, len);
	name[len] = 0;
	const char *dot = strrchr(name, '.');
	for (size_t k = 0; k < PS_ARRAY_LEN(kinds); k++) {
		if (strcmp(dot ? dot + 1 : name, kinds[k].ends) == 0) {
			*ret_kind = kinds[k].kind;
			return true;
		}
	}
	return false;
}

static void field_add(struct fields *f, const char *name, uint32_t kind)
{
	struct penstock_field *field = &f->v[f->n];

	for (uint32_t i = 0; i < f->n; i++)
		if (strcmp(f->names[i], name) == 0)
			return;
	strcpy(f->names[f->n], name);
	penstock_field_init(field, sizeof(*field), f->names[f->n++], kind);
	if (kind == PENSTOCK_IMAGE) {
		field->image_width = field->image_height = SIDE;
		field->dtype = PENSTOCK_U8;
		field->crop = PENSTOCK_CROP_NONE;
		field->hflip = 0;
	} else {
		field->optional = 1;
	}
}

static int by_value(const void *pa, const void *pb)
{
	const uint64_t *a = pa, *b = pb;

	return (*a > *b) - (*a < *b);
}

static bool is_in(const uint64_t *v, size_t n, uint64_t offset)
{
	return n > 0 && bsearch(&offset, v, n, sizeof(*v), by_value);
}

/* Parses the arrays of a field in a batch. */
static int arrays_look(struct ps_chart *c, const struct penstock_batch *batch, const char *name,
        struct penstock_error *error)
{
	struct penstock_tensor t, keys, valid;
	struct penstock_batch_info info;
	int rc = penstock_batch_field(batch, name, &t, error);

	if (rc == 0)
		rc = penstock_batch_field(batch, "__key__", &keys, error);
	if (rc == 0)
		rc = penstock_batch_field(batch, "__valid__", &valid, error);
	penstock_batch_info(batch, &info);
	for (uint32_t i = 0; rc == 0 && i < info.rows; i++) {
		const uint8_t *file = (const uint8_t *)t.data + t.offsets[i];
		size_t n = (size_t)(t.offsets[i + 1] - t.offsets[i]);
		struct ps_error err = {0};
		struct ps_npy npy;

		if (((const uint8_t *)valid.data)[i] && n > 0 && ps_npy_parse(file, n, &npy, &err) < 0)
			ps_chart_found(c, PS_FOUND_UNDECODABLE, "%.*s: field .%s: %s",
			        (int)(keys.offsets[i + 1] - keys.offsets[i]),
			        (const char *)keys.data + keys.offsets[i], name, err.text);
	}
	return rc;
}

static int batches_look(struct ps_chart *c, const struct fields *f, struct penstock_loader *loader,
        struct ps_tool_progress *progress, struct penstock_error *error)
{
	struct penstock_batch *batch;
	struct penstock_stats stats;
	struct penstock_batch_info info;
	struct penstock_bad bad;
	uint64_t before = 0, left = c->samples + c->nrefused;
	int rc = 0;

	/* The loader is not asked for the epoch's end, which is an error if no sample was good. */
	while (left > 0 && (rc = penstock_loader_next(loader, &batch, error)) == 1) {
		penstock_batch_info(batch, &info);
		left -= PS_MIN(left, (uint64_t)info.rows);
		rc = 0;
		for (uint32_t i = 0; penstock_batch_bad(batch, i, &bad) == 0; i++)
			if (!is_in(c->refused, c->nrefused, bad.offset) &&
			        (!f->have || is_in(f->have, f->nhave, bad.offset)))
				ps_chart_found(c, PS_FOUND_UNDECODABLE, "%s: %s", bad.key, bad.reason);
		for (uint32_t i = 0; i < f->n && rc == 0; i++)
			if (f->v[i].kind == PENSTOCK_BYTES)
				rc = arrays_look(c, batch, f->names[i], error);
		penstock_batch_release(batch);
		if (rc == 0)
			rc = penstock_loader_stats(loader, &stats, sizeof(stats), error);
		if (rc < 0)
			break;
		ps_tool_progress_add(progress, 0, stats.bytes_read - before);
		before = stats.bytes_read;
	}
	return rc;
}

static int fields_decode(const char *path, struct ps_chart *c, const struct fields *f,
        struct ps_tool_progress *progress, struct ps_error *err)
{
	struct penstock_options options;
	struct penstock_loader *loader;
	struct penstock_error error;

	if (f->n == 0)
		return 0;
	penstock_options_init(&options, sizeof(options));
	options.fields = f->v;
	options.nfields = f->n;
	options.batch = BATCH;
	options.epochs = 1;
	options.order = PENSTOCK_ORDER_NONE;
	options.on_error = PENSTOCK_SKIP;
	options.max_bad = UINT32_MAX;
	int rc = penstock_loader_open(&options, (const char *const[]){path}, 1, &loader, &error);
	if (rc == 0) {
		rc = batches_look(c, f, loader, progress, &error);
		penstock_loader_close(loader);
	}
	return rc < 0 ? ps_error_set(err, -rc, "%s", error.text) : 0;
}

/* Finds the sound samples that have the field of that suffix. */
static void have_find(const struct ps_chart *c, const char *suffix, struct fields *f)
{
	f->nhave = 0;
	f->have = ps_need(calloc(c->n + 1, sizeof(*f->have)));
	for (size_t i = 0; i < c->n; i++) {
		const struct ps_chart_member *m = &c->members[i];

		if (m->sample != UINT64_MAX && strcasecmp(m->name + m->key_len + 1, suffix) == 0 &&
		        !is_in(c->refused, c->nrefused, m->sample))
			f->have[f->nhave++] = m->sample;
	}
	qsort(f->have, f->nhave, sizeof(*f->have), by_value);
}

int ps_chart_decode(
        const char *path, struct ps_chart *c, struct ps_tool_progress *progress, struct ps_error *err)
{
	ps_autofree struct fields *all = ps_need(calloc(1, sizeof(*all)));
	ps_autofree struct fields *one = ps_need(calloc(1, sizeof(*one)));
	char name[128];
	uint32_t kind;
	int rc = 0;

	if (c->samples == 0)
		return rc;
	/* Empty arrays: in a batch these look like absent ones. */
	for (size_t i = 0; i < c->n; i++) {
		const struct ps_chart_member *m = &c->members[i];

		if (m->key_len > 0 && m->size == 0 && strcasecmp(strrchr(m->name, '.'), ".npy") == 0)
			ps_chart_found(c, PS_FOUND_UNDECODABLE, "%s: an empty file", m->name);
	}
	/* A loader requires an image field in all samples. A field that some samples lack is decoded by a
	 * loader of its own, which skips these samples. */
	for (size_t i = 0; i < c->nfields && rc == 0; i++) {
		const struct ps_chart_field *field = &c->fields[i];

		if (!field_name(field->suffix, name, &kind))
			continue;
		if (kind != PENSTOCK_IMAGE) {
			field_add(all, name, kind);
			continue;
		}
		have_find(c, field->suffix, one);
		one->n = 0;
		field_add(one->nhave == c->samples ? all : one, name, kind);
		rc = fields_decode(path, c, one, progress, err);
		free(ps_steal_ptr(&one->have));
	}
	if (!c->is_tar && field_name(ps_shard_line_suffix(path), name, &kind))
		field_add(all, name, kind);
	return rc == 0 ? fields_decode(path, c, all, progress, err) : rc;
}
