#include "config.h"

#include "options.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cpus.h"
#include "base/size.h"
#include "batch/batch.h"
#include "memory.h"
#include "order/order.h"
#include "shard/file/file.h"

#define MOST_NBYTES 65536u /* largest struct that a caller may pass */
#define MOST_STAGES 65536u

static struct penstock_options options_default(void)
{
	struct penstock_options o = {.size = sizeof(o)};

	for (size_t i = 0; i < ps_n_loader_options; i++)
		ps_option_init(&ps_loader_options[i], &o);
	return o;
}

void penstock_options_init(struct penstock_options *options, size_t size)
{
	const struct penstock_options defaults = options_default();

	memset(options, 0, size);
	memcpy(options, &defaults, PS_MIN(size, sizeof(defaults)));
	options->size = size;
}

#define FIELD_LEAST offsetof(struct penstock_field, image_width)

/* Replaces a text of the caller by a copy; false without memory. */
static bool text_copy(const char **text)
{
	const char *theirs = *text;

	*text = theirs ? strdup(theirs) : NULL;
	return !theirs || *text;
}

static const char **field_text(struct penstock_field *field, const struct ps_option *option)
{
	return option->type == PS_OPTION_TEXT ? (const char **)(void *)((char *)field + option->at) : NULL;
}

/* Copies the caller's texts, which are valid during the call only. */
static int texts_copy(struct ps_options *p, struct ps_error *err)
{
	bool ok = true;

	for (uint32_t i = 0; i < p->o.nfields; i++) {
		ok = text_copy(&p->fields[i].name) && ok;
		for (size_t k = 0; k < ps_n_field_options; k++) {
			const char **text = field_text(&p->fields[i], &ps_field_options[k]);

			ok = (!text || text_copy(text)) && ok;
		}
	}
	return ok ? 0 : ps_no_memory(err);
}

/* Checks a newer program's struct as the kernel does (copy_struct_from_user()): bytes that this library does
 * not know must be zero, since it cannot do what they ask for. */
static int unknown_check(const char *what, const void *p, size_t size, size_t known, struct ps_error *err)
{
	const uint8_t *bytes = p;

	if (size > MOST_NBYTES)
		return ps_error_set(
		        err, E2BIG, "%s: a struct of %zu bytes; fill it by its init function", what, size);
	for (size_t i = known; i < size; i++)
		if (bytes[i])
			return ps_error_set(err, E2BIG,
			        "%s: an option is set that libpenstock " PACKAGE_VERSION
			        " does not know (at byte %zu); install the libpenstock that the program was "
			        "built with, or a later one",
			        what, i);
	return 0;
}

/* Copies the caller's fields into structs of this library's size, or makes the default ones. */
static int fields_make(struct ps_options *p, const struct penstock_options *in, struct ps_error *err)
{
	uint32_t n = in->fields ? in->nfields : 2;
	char what[32];
	int rc;

	if (n == 0 || n > PS_LAYOUT_MAX_FIELDS)
		return ps_error_set(err, EINVAL, "%u fields: must be 1 to %d", n, PS_LAYOUT_MAX_FIELDS);
	p->fields = calloc(n, sizeof(*p->fields));
	if (!p->fields)
		return ps_no_memory(err);
	p->o.fields = p->fields;
	p->o.nfields = n;
	if (!in->fields) {
		penstock_field_init(&p->fields[0], sizeof(*p->fields), "jpg;jpeg", PENSTOCK_IMAGE);
		penstock_field_init(&p->fields[1], sizeof(*p->fields), "cls", PENSTOCK_INT64);
		p->fields[1].optional = 1;
	}
	for (uint32_t i = 0; i < n && in->fields; i++) {
		size_t size = in->fields->size; /* of each element: the stride of the caller's array */
		const struct penstock_field *f = (const void *)((const char *)in->fields + i * size);

		if (size < FIELD_LEAST || f->size != size) {
			p->o.nfields = 0; /* the names are still the caller's, and must not be freed */
			return ps_error_set(
			        err, EINVAL, "field %u was not filled by penstock_field_init()", i);
		}
		snprintf(what, sizeof(what), "field %u", i);
		rc = unknown_check(what, f, size, sizeof(*f), err);
		if (rc < 0) {
			p->o.nfields = 0;
			return rc;
		}
		penstock_field_init(&p->fields[i], sizeof(*f), NULL, f->kind);
		memcpy(&p->fields[i], f, PS_MIN(size, sizeof(*f)));
		p->fields[i].size = sizeof(*f);
	}
	return texts_copy(p, err);
}

/* Checks the range of an integer option. */
static int range_check(const struct ps_option *option, const struct penstock_options *o, struct ps_error *err)
{
	uint64_t v = ps_option_number(option, o), least = (uint64_t)option->least,
	         most = ps_option_most(option);

	if (v == (uint64_t)option->initial || (v >= least && v <= most))
		return 0;
	return ps_error_set(err, EINVAL, "%s %ju: must be %ju to %ju", option->name, (uintmax_t)v,
	        (uintmax_t)least, (uintmax_t)most);
}

static int ranges_check(const struct penstock_options *o, struct ps_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < ps_n_loader_options && rc == 0; i++) {
		const struct ps_option *option = &ps_loader_options[i];

		if (option->gone && ps_option_number(option, o) != (uint64_t)option->initial)
			return ps_error_set(
			        err, EINVAL, "%s no longer exists: %s", option->name, option->gone);
		if (option->type == PS_OPTION_U32 || option->type == PS_OPTION_U64)
			rc = range_check(option, o, err);
	}
	if (rc == 0 && o->epochs > UINT64_MAX - o->epoch)
		return ps_error_set(err, EINVAL, "epoch + epochs is beyond 64 bits");
	if (rc == 0 && o->nmix > PS_MAX_SETS)
		return ps_error_set(err, EINVAL, "nmix %u: must be 0 to %d", o->nmix, PS_MAX_SETS);
	if (rc == 0 && o->gpu_decode != PENSTOCK_GPU_DECODE_AUTO &&
	        !(o->gpu_decode >= 0 && o->gpu_decode <= 1))
		return ps_error_set(err, EINVAL,
		        "gpu_decode %g: must be 0 to 1, or auto (PENSTOCK_GPU_DECODE_AUTO)", o->gpu_decode);
	if (rc == 0 && o->bucket > 1 && o->order != PENSTOCK_ORDER_WINDOW)
		return ps_error_set(err, EINVAL, "bucket %u: needs order window", o->bucket);
	if (rc == 0 && o->nmix > 1 && o->order == PENSTOCK_ORDER_PERMUTATION)
		return ps_error_set(err, EINVAL, "mix: not possible with order permutation");
	return rc;
}

/* Checks world and rank, and computes the batch from global_batch. */
static int ranks_make(struct penstock_options *o, struct ps_error *err)
{
	int rc = range_check(ps_loader_option("world", strlen("world")), o, err);

	if (rc < 0)
		return rc;
	if (o->rank >= o->world)
		return ps_error_set(
		        err, EINVAL, "rank %u of world %u: rank must be below world", o->rank, o->world);
	if (o->ranks_per_node == 0)
		o->ranks_per_node = 1;
	if (o->world % o->ranks_per_node)
		return ps_error_set(err, EINVAL,
		        "ranks_per_node %u: must divide world %u; set it to the ranks of each node, or to 1",
		        o->ranks_per_node, o->world);
	if (o->global_batch == 0)
		return 0;
	if (o->global_batch % o->world)
		return ps_error_set(err, EINVAL, "global_batch %u: must be a multiple of world %u",
		        o->global_batch, o->world);
	o->batch = o->global_batch / o->world;
	return 0;
}

#define LANES_COMPRESSED 256u /* a quarter of a process's usual limit of descriptors */

/* Computes options of the order that the caller did not set, from values that are the same in every world. */
static void order_make(struct ps_options *p)
{
	struct penstock_options *o = &p->o;
	uint64_t global = (uint64_t)o->batch * o->world, n = PS_MAX(p->nnames, 1u);

	p->auto_window = o->shuffle_window == 0;
	p->auto_lanes = o->lanes == 0;
	if (o->shuffle_window == 0)
		o->shuffle_window = ps_order_window_auto(global);
	if (o->lanes > 0)
		return;
	o->lanes = ps_order_lanes_auto(global, n);
	/* Shards that can only be read sequentially stay open, each with a descriptor and buffers of its
	 * own. */
	for (size_t i = 0; i < p->shards.n && o->lanes > LANES_COMPRESSED; i++)
		if (o->columns || ps_shard_is_compressed(p->shards.names[i]))
			o->lanes = PS_MAX(LANES_COMPRESSED, PS_MIN(o->world, o->lanes));
	if (o->order == PENSTOCK_ORDER_NUMBERS) /* the numbers are this rank's alone */
		o->lanes = ps_order_lanes_auto(1, UINT64_MAX);
	else if (o->order == PENSTOCK_ORDER_PERMUTATION) /* a permutation does not depend on lanes */
		o->lanes = PS_MIN(ps_order_lanes_auto(o->world, UINT64_MAX), PS_ORDER_MAX_LANES);
	else if (o->homes > 1 && o->lanes >= o->homes)
		o->lanes -= o->lanes % o->homes;
}

/* Takes the caller's numbers, which alone decide the order. */
static int numbers_make(struct ps_options *p, struct ps_error *err)
{
	const struct penstock_options *o = &p->o;
	const struct {
		const char *name;
		bool given;
	} others[] = {{"filter", o->filter}, {"weights", o->weights || o->sample_weights},
	        {"balance", o->balance}, {"draws", o->draws > 0}, {"mix", o->nmix > 1}, {"skip", o->skip > 0},
	        {"take", o->take > 0}, {"repeat", o->repeat > 0}};

	if (o->order != PENSTOCK_ORDER_NUMBERS)
		return o->numbers || o->batch_ends ? ps_error_set(err, EINVAL, "numbers: need order NUMBERS")
		                                   : 0;
	for (size_t i = 0; i < PS_ARRAY_LEN(others); i++)
		if (others[i].given)
			return ps_error_set(err, EINVAL,
			        "%s: not possible with an order of sample numbers, which alone decide the "
			        "order; choose the numbers accordingly",
			        others[i].name);
	if (!o->numbers)
		return ps_numbers_feed(o->batch, &p->numbers, err);
	return ps_numbers_array(
	        o->batch, o->numbers, o->nnumbers, o->batch_ends, o->nbatch_ends, &p->numbers, err);
}

static int sample_weights_make(struct ps_options *p, struct ps_error *err)
{
	const struct penstock_options *o = &p->o;

	if (o->sample_weights && o->weights)
		return ps_error_set(
		        err, EINVAL, "weights: both a column and an array are given; give only one");
	if (o->draws > 0 && !o->sample_weights && !o->weights && !o->balance)
		return ps_error_set(
		        err, EINVAL, "draws: needs weights or balance; without them, steps limits an epoch");
	if (!o->sample_weights)
		return 0;
	if (o->nsample_weights > UINT64_C(1) << 40)
		return ps_error_set(err, EINVAL, "weights: more than 2^40");
	p->sample_weights = malloc(PS_MAX(o->nsample_weights, UINT64_C(1)) * sizeof(double));
	if (!p->sample_weights)
		return ps_error_set(err, ENOMEM, "no memory for %ju weights", (uintmax_t)o->nsample_weights);
	memcpy(p->sample_weights, o->sample_weights, o->nsample_weights * sizeof(double));
	return 0;
}

/* Checks a stage of a mix. */
static int stage_check(const struct ps_options *p, uint32_t k, uint64_t global, struct ps_error *err)
{
	const struct penstock_mix_stage *s = &p->stages[k];
	uint64_t unit = s->flags & PENSTOCK_STAGE_ROWS ? 1 : global;
	double sum = 0;

	if (s->flags & ~(uint32_t)(PENSTOCK_STAGE_LINEAR | PENSTOCK_STAGE_ROWS))
		return ps_error_set(err, EINVAL, "mix_stages: stage %u has unknown flags %#x", k, s->flags);
	if (k == 0 && (s->start != 0 || s->flags & PENSTOCK_STAGE_LINEAR))
		return ps_error_set(err, EINVAL,
		        "mix_stages: stage 0 begins at %ju%s: the first stage must begin at 0, and not "
		        "change linearly",
		        (uintmax_t)s->start, s->flags & PENSTOCK_STAGE_LINEAR ? ", linearly" : "");
	if (s->start >= (UINT64_C(1) << 60) / unit)
		return ps_error_set(err, EINVAL,
		        "mix_stages: stage %u begins at %ju: must be below 2^60 rows", k,
		        (uintmax_t)s->start);
	for (uint32_t i = 0; i < p->o.nmix; i++) {
		if (!(s->weights[i] >= 0 && s->weights[i] < 1e12))
			return ps_error_set(err, EINVAL,
			        "mix: weight %g of dataset %u: must be 0 or more, and below 1e12",
			        s->weights[i], i);
		sum += s->weights[i];
	}
	return sum > 0 ? 0
	               : ps_error_set(
	                         err, EINVAL, "mix: all weights of stage %u are 0; one must be above 0", k);
}

/* The order of stages is checked where all are in rows (schedule.c). */
static int stages_copy(struct ps_options *p, struct ps_error *err)
{
	const struct penstock_mix_stage one = {.weights = p->o.mix}, *given = p->o.mix_stages;
	uint32_t n = p->o.nmix, nstages = given ? p->o.nmix_stages : 1;
	uint64_t global = (uint64_t)p->o.batch * p->o.world;
	int rc = 0;

	if (nstages > MOST_STAGES)
		return ps_error_set(err, EINVAL, "mix_stages: %u stages: at most %u", nstages, MOST_STAGES);
	p->stages = calloc(nstages, sizeof(*p->stages));
	p->mix = calloc((size_t)nstages * n, sizeof(*p->mix));
	if (!p->stages || !p->mix)
		return ps_no_memory(err);
	p->nstages = nstages;
	for (uint32_t k = 0; k < nstages && rc == 0; k++) {
		p->stages[k] = given ? given[k] : one;
		memcpy(p->mix + (size_t)k * n, p->stages[k].weights, n * sizeof(*p->mix));
		p->stages[k].weights = p->mix + (size_t)k * n;
		rc = stage_check(p, k, global, err);
	}
	return rc;
}

static int names_copy(struct ps_options *p, struct ps_error *err)
{
	uint32_t n = p->o.nmix;

	if (!p->o.mix_names)
		return 0;
	p->mix_names = calloc(n, sizeof(*p->mix_names));
	if (!p->mix_names)
		return ps_no_memory(err);
	for (uint32_t i = 0; i < n; i++) {
		const char *name = p->o.mix_names[i];

		if (!name || !*name)
			return ps_error_set(err, EINVAL, "mix_names: dataset %u has no name", i);
		for (uint32_t k = 0; k < i; k++)
			if (strcmp(name, p->mix_names[k]) == 0)
				return ps_error_set(err, EINVAL,
				        "mix_names: datasets %u and %u are both called \"%.200s\"", k, i,
				        name);
		p->mix_names[i] = strdup(name);
		if (!p->mix_names[i])
			return ps_no_memory(err);
	}
	return 0;
}

/* Copies the weights of the datasets that are mixed; shards_add() fills `ends`. */
static int mix_make(struct ps_options *p, size_t nshards, struct ps_error *err)
{
	uint32_t n = p->o.nmix;
	int rc;

	if (p->o.mix && p->o.mix_stages)
		return ps_error_set(err, EINVAL, "mix and mix_stages are both given; give only one");
	if (p->o.mix_stages && p->o.nmix_stages == 0)
		return ps_error_set(err, EINVAL, "mix_stages: there is no stage");
	if ((!p->o.mix && !p->o.mix_stages) || n == 0) {
		p->o.nmix = 0;
		return 0;
	}
	if (n != nshards)
		return ps_error_set(err, EINVAL,
		        "mix: %u weights for %zu strings of shards; each string is a dataset and needs one",
		        n, nshards);
	p->ends = calloc(n, sizeof(*p->ends));
	if (!p->ends)
		return ps_no_memory(err);
	rc = stages_copy(p, err);
	if (rc == 0)
		rc = names_copy(p, err);
	p->o.mix = p->mix;
	p->o.mix_stages = NULL; /* borrowed no longer */
	p->o.mix_names = NULL;
	return rc;
}

static int options_texts_copy(struct ps_options *p, struct ps_error *err)
{
	size_t n = 0;

	for (size_t i = 0; i < ps_n_loader_options; i++) {
		const char **text = (const char **)(void *)((char *)&p->o + ps_loader_options[i].at);

		if (ps_loader_options[i].type != PS_OPTION_TEXT)
			continue;
		assert(n < PS_ARRAY_LEN(p->texts));
		if (!text_copy(text))
			return ps_no_memory(err);
		p->texts[n++] = (char *)(uintptr_t)*text;
	}
	return 0;
}

/* Adds the units in a string, one per line. */
static int units_add(struct ps_options *p, const char *units, struct ps_error *err)
{
	int rc = 0;

	while (*units && rc == 0) {
		size_t len = strcspn(units, "\n");

		if (len > 0)
			rc = ps_shard_list_take(&p->shards, strndup(units, len), err);
		units += len + (units[len] == '\n');
	}
	return rc;
}

/* Adds the shards of the caller's string i. */
static int shards_add(struct ps_options *p, const char *shards, size_t i, struct ps_error *err)
{
	size_t before = p->shards.n;
	int rc = p->o.columns ? units_add(p, shards, err) : ps_shard_list_add(&p->shards, shards, err);

	if (ps_errno_is_lost(-rc)) {
		err->cause = PS_CAUSE_SHARD;
		err->shard = shards;
	}
	if (rc < 0 || !p->ends)
		return rc;
	p->ends[i] = p->shards.n;
	if (p->shards.n == before)
		return ps_error_set(err, EINVAL, "mix: dataset %zu (\"%.200s\") has no shards", i, shards);
	return 0;
}

void ps_options_stretch(struct ps_options *p, char *const *names, uint32_t nnames)
{
	p->names = names;
	if (!p->o.columns)
		p->files = names;
	p->nnames = nnames;
	p->o.lanes = p->given_lanes;
	order_make(p);
}

static int columns_check(const struct penstock_options *o, struct ps_error *err)
{
	const struct penstock_columns *c = o->columns;

	if (c->size < sizeof(*c) || !c->count || !c->read)
		return ps_error_set(err, EINVAL, "columns: needs its size and both functions");
	if (o->source)
		return ps_error_set(err, EINVAL, "source: not possible with columns, which are no files");
	if (o->filter || o->weights || o->balance)
		return ps_error_set(err, EINVAL,
		        "%s: not possible with columns, which have no index: select rows in the source",
		        o->filter    ? "filter"
		        : o->weights ? "weights by a column"
		                     : "balance");
	return 0;
}

/* Names the files of the shards. */
static int files_make(struct ps_options *p, struct ps_error *err)
{
	const struct penstock_columns *c = p->o.columns;
	char *const *units = p->shards.names;
	char *last = NULL;

	p->files = units;
	if (!c)
		return 0;
	p->files = NULL;
	if (p->shards.n == 0)
		return ps_error_set(err, EINVAL, "columns: no unit is named");
	if (!c->files)
		return 0;
	if (c->ranges && c->nranges != p->shards.n)
		return ps_error_set(
		        err, EINVAL, "columns: %ju ranges for %zu units", (uintmax_t)c->nranges, p->shards.n);
	p->unit_files = calloc(p->shards.n, sizeof(*p->unit_files));
	p->file_of = calloc(p->shards.n, sizeof(*p->file_of));
	if (c->ranges)
		p->ranges = malloc(2 * p->shards.n * sizeof(*p->ranges));
	if (!p->unit_files || !p->file_of || (c->ranges && !p->ranges))
		return ps_no_memory(err);
	if (c->ranges)
		memcpy(p->ranges, c->ranges, 2 * p->shards.n * sizeof(*p->ranges));
	p->files = p->unit_files;
	for (size_t i = 0; i < p->shards.n; i++) {
		size_t len = ps_columns_file_len(units[i]);

		if (!last || strlen(last) != len || memcmp(last, units[i], len) != 0) {
			last = strndup(units[i], len);
			p->nfiles++;
		}
		if (!last)
			return ps_no_memory(err);
		p->unit_files[i] = last;
		p->file_of[i] = p->nfiles - 1;
	}
	return 0;
}

static void files_free(struct ps_options *p)
{
	for (size_t i = 0; p->unit_files && i < p->shards.n; i++)
		if (i + 1 == p->shards.n || p->unit_files[i] != p->unit_files[i + 1])
			free(p->unit_files[i]);
	free(p->unit_files);
	free(p->file_of);
	free(p->ranges);
}

int ps_options_make(struct ps_options *p, const struct penstock_options *in, const char *const *shards,
        size_t nshards, struct ps_error *err)
{
	int rc;

	*p = (struct ps_options){.o = options_default()};
	if (in->size < offsetof(struct penstock_options, device))
		return ps_error_set(err, EINVAL, "options were not filled by penstock_options_init()");
	rc = unknown_check("options", in, in->size, sizeof(*in), err);
	if (rc < 0)
		return rc;
	memcpy(&p->o, in, PS_MIN(in->size, sizeof(p->o)));
	p->o.size = sizeof(p->o);
	rc = ranks_make(&p->o, err);
	if (rc == 0)
		rc = ranges_check(&p->o, err);
	if (rc == 0)
		rc = mix_make(p, nshards, err);
	if (rc == 0)
		rc = numbers_make(p, err);
	if (rc == 0)
		rc = sample_weights_make(p, err);
	if (rc == 0 && p->o.columns)
		rc = columns_check(&p->o, err);
	p->o.sample_weights = p->sample_weights;
	p->o.numbers = NULL; /* borrowed no longer */
	p->o.batch_ends = NULL;
	if (rc == 0)
		rc = options_texts_copy(p, err);
	if (rc == 0)
		rc = fields_make(p, in, err);
	for (size_t i = 0; i < nshards && rc == 0; i++)
		rc = shards_add(p, shards[i], i, err);
	if (rc == 0)
		rc = files_make(p, err);
	if (rc < 0) {
		ps_options_fini(p);
		return rc;
	}
	p->given_lanes = p->o.lanes;
	ps_options_stretch(p, p->shards.names, (uint32_t)p->shards.n);
	if (p->o.budget)
		p->o.memory_budget = PS_MIN(p->o.memory_budget, p->o.budget->count.limit);
	p->tune_threads = p->o.threads == 0;
	p->tune_readers = p->o.readers == 0;
	if (p->o.threads == 0)
		p->o.threads = PS_MIN(ps_cpus_usable(), PS_OPTIONS_MAX_THREADS);
	if (p->o.readers == 0)
		p->o.readers = PS_MIN(PS_MAX(p->o.threads, 2u), PS_OPTIONS_READERS);
	/* One thread more than CPUs: while a thread waits for a lock of the caller's code, such as Python's
	 * GIL, another one uses its CPU. */
	if (p->tune_threads && p->o.transform_unit && p->o.threads < PS_OPTIONS_MAX_THREADS)
		p->o.threads++;
	return 0;
}

void ps_options_fini(struct ps_options *p)
{
	for (uint32_t i = 0; i < p->o.nfields && p->fields; i++) {
		free((char *)(uintptr_t)p->fields[i].name);
		for (size_t k = 0; k < ps_n_field_options; k++) {
			const char **text = field_text(&p->fields[i], &ps_field_options[k]);

			if (text)
				free((char *)(uintptr_t)*text);
		}
	}
	free(p->fields);
	for (size_t i = 0; i < PS_ARRAY_LEN(p->texts); i++)
		free(p->texts[i]);
	for (uint32_t i = 0; i < p->o.nmix && p->mix_names; i++)
		free(p->mix_names[i]);
	free(p->mix_names);
	free(p->stages);
	free(p->mix);
	free(p->ends);
	ps_numbers_free(p->numbers);
	free(p->sample_weights);
	files_free(p);
	ps_shard_list_fini(&p->shards);
	*p = (struct ps_options){0};
}
