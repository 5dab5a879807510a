/* Opens a loader from its options, and closes it. */
#include "config.h"

#include "loader.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "batch/batch.h"
#include "image/image.h"
#include "shard/shard.h"
#include "shard_errors.h"

const char *penstock_version(void)
{
	return PACKAGE_VERSION;
}

static char libraries[256];

static void libraries_find(void)
{
	ps_image_libraries(libraries, sizeof(libraries));
}

const char *penstock_libraries(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, libraries_find);
	return libraries;
}

/* Makes the pipeline's own layout, if the device finishes fields. The device must be open. */
static int pipeline_plan(struct penstock_loader *l, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	const struct ps_device_ops *ops = l->device->ops;
	int rc;

	if (!ops->mirror_new || !ops->cannot_make || o->device_pixels == PENSTOCK_PIXELS_OFF)
		return 0;
	l->made_not = o->transform || o->transform_unit || o->profile
	                      ? "a transform or a profile reads the pixels"
	                      : ops->cannot_make(l->device);
	if (l->made_not)
		return 0;
	rc = ps_batch_layout_new(o, &l->made, err);
	if (rc == 0)
		ps_make_layout(l->made, o->gpu_decode != 0);
	return rc;
}

static int pipeline_make(struct penstock_loader *l, const struct ps_position *at, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct ps_pipeline_options p = {.shards = l->options.names,
	        .rows = o->batch,
	        .threads = o->threads,
	        /* Readers of a mount wait for its origin: the more at once, the sooner the first batch. */
	        .readers = l->options.tune_readers && l->planner ? PS_OPTIONS_READERS : o->readers,
	        .tune_threads = l->options.tune_threads,
	        .tune_readers = l->options.tune_readers,
	        .seed = o->seed,
	        .end_epoch = o->epochs ? o->epoch + o->epochs : UINT64_MAX,
	        .end = (enum penstock_end)o->end,
	        .max_sample_nbytes = o->memory_budget / 2};
	struct ps_memory m;
	size_t batch_nbytes;
	int rc;

	p.device = l->device;
	p.nvjpeg = l->gpu.nvjpeg;
	p.offload = l->gpu.offload;
	p.layout = l->made ? l->made : l->layout;
	p.columns = l->columns.calls ? &l->columns : NULL;
	rc = ps_batch_nbytes(p.layout, o->batch, &batch_nbytes, err);
	if (rc < 0)
		return rc;
	rc = ps_memory_plan(o, batch_nbytes, ps_order_nactive(l->schedule.order), &m, err);
	if (rc < 0)
		return rc;
	p.order = l->schedule.order;
	p.epochs = l->schedule.epochs;
	p.indexes = l->indexes;
	p.select = l->schedule.select;
	p.nshards = l->schedule.nshards;
	p.source = (enum ps_shard_kind)o->source;
	p.index_dir = o->index_dir;
	rc = ps_layout_windows(l->layout, o->token_stride, &p.windows, err);
	if (rc < 0)
		return rc;
	p.packing = l->packing;
	p.depth = m.depth;
	if (l->options.numbers && ps_numbers_is_feed(l->options.numbers)) {
		rc = ps_numbers_feed_keep(l->options.numbers, m.depth, err);
		if (rc < 0)
			return rc;
	}
	p.open_files = m.open_files;
	p.buf_nbytes = m.buf_nbytes;
	p.image_nbytes = m.image_nbytes;
	p.window_nbytes = m.window_nbytes;
	p.max_ragged_nbytes = o->memory_budget / 2 / m.depth;
	l->batch_nbytes = batch_nbytes;
	l->spare_nbytes = m.window_nbytes / 2; /* the rest is for samples that are being read */
	if (o->budget) { /* it is shared: this loader reserves its batches and buffers there */
		rc = ps_public_budget_reserve(o->budget, o->memory_budget - m.window_nbytes, err);
		if (rc < 0)
			return rc;
		l->budget = ps_public_budget_ref(o->budget);
		l->budget_nbytes = o->memory_budget - m.window_nbytes;
		p.shared = &l->budget->count;
	}
	if (o->profile) {
		l->profile = ps_profile_new(l->layout);
		if (!l->profile)
			return ps_no_memory(err);
		p.profile = l->profile;
	}
	return ps_pipeline_new(&p, at, &l->pipeline, err);
}

/* Makes the pipeline at a position. Reports missing shards and an epoch without samples, before the
 * pipeline's threads find them. */
static int pipeline_put(struct penstock_loader *l, const struct ps_position *at, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	int rc = 0;

	if (o->epochs == 0 || at->epoch - o->epoch < o->epochs)
		rc = ps_schedule_check(&l->schedule, at->epoch, err);
	if (rc == 0 && o->on_error == PENSTOCK_FAIL && l->options.files &&
	        !l->packing) /* those were opened */
		rc = ps_shards_missing_check(
		        l->schedule.order, at, l->options.files, l->schedule.nshards, err);
	if (rc == 0 && l->options.files)
		l->planner = ps_loader_planner(l, at);
	return rc < 0 ? rc : pipeline_make(l, at, err);
}

/* Makes the pipeline at the beginning, or at the position of the options' state. */
static int pipeline_begin(struct penstock_loader *l, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	struct ps_resumed r;
	int rc;

	if (!o->state)
		return pipeline_put(l, &(struct ps_position){.epoch = o->epoch}, err);
	rc = ps_loader_state_read(l, o->state, o->state_nbytes, o->state_flags, &r, err);
	l->options.o.state = NULL; /* the caller's memory is not used after the call */
	if (rc < 0)
		return rc;
	l->gpu.offload = r.offload;
	ps_order_free(ps_loader_resume(l, &r));
	rc = pipeline_put(l, &r.at, err);
	ps_resumed_fini(&r);
	return rc;
}

/* Takes the type of a token stream's tokens from the index beside its first file, unless the field has one.
 * The other files are compared when they are opened. */
static int token_type_take(struct penstock_loader *l, const struct ps_windows *windows, struct ps_error *err)
{
	static const enum ps_dtype types[] = {PS_U8, PS_U16, PS_U32, PS_I32, PS_I64};
	const struct ps_shard_list *shards = &l->options.shards;
	enum ps_shard_kind source = (enum ps_shard_kind)l->options.o.source;
	struct penstock_field *given = l->options.fields;
	struct ps_layout_field *f = l->layout->fields;
	const char *type;
	size_t i = 0;
	int rc;

	while (i < shards->n && ps_shard_kind_of(source, windows, shards->names[i]) != PS_SHARD_KIND_TOKENS)
		i++;
	if (windows->nbytes == 0 || i == shards->n)
		return 0;
	rc = ps_tokens_type(shards->names[i], &type, err);
	if (rc < 0 || !type)
		return rc;
	while (f->names != windows->suffix)
		f++;
	while (strcmp(given->name, f->name) != 0)
		given++;
	if (given->source_dtype != 0 && strcmp(type, windows->type) != 0)
		return ps_error_set(err, EINVAL,
		        "field %.100s: source_dtype %s, but the .idx beside %s says that its tokens are %s",
		        f->name, windows->type, shards->names[i], type);
	for (size_t k = 0; k < PS_ARRAY_LEN(types); k++) {
		if (strcmp(type, ps_dtype_name(types[k])) == 0) {
			given->source_dtype = types[k] == PS_U8 ? PENSTOCK_SOURCE_U8 : (uint32_t)types[k];
			f->source_dtype = types[k];
			return 0;
		}
	}
	return ps_error_set(err, EINVAL,
	        "%s: the .idx beside it says that its tokens are %s; they must be u8, u16, u32, i32 or i64",
	        shards->names[i], type);
}

/* Packs token files into rows, if a field asks for it. */
static int packing_make(struct penstock_loader *l, const struct ps_layout_field *f, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	const struct penstock_field *given = l->options.fields;
	size_t all = l->options.shards.n;
	int rc;

	while (strcmp(given->name, f->name) != 0)
		given++;
	if (o->token_stride)
		return ps_error_set(err, EINVAL,
		        "token_stride has no effect: it is for windows, but field %.100s has pack", f->name);
	if (o->columns || (o->source != PENSTOCK_SOURCE_AUTO && o->source != PENSTOCK_SOURCE_TOKENS))
		return ps_error_set(
		        err, EINVAL, "field %.100s: pack needs token files: source tokens", f->name);
	if (f->parts & PS_PART_CU && f->shape[0] * o->batch > INT32_MAX)
		return ps_error_set(err, EINVAL,
		        "field %.100s: cu counts the tokens of a batch in 32 bits, but %u rows have %ju: "
		        "lower "
		        "batch or length",
		        f->name, o->batch, (uintmax_t)f->shape[0] * o->batch);
	rc = ps_packing_new(&(struct ps_packing_options){.pack = f->pack,
	                            .long_documents = (enum ps_long_documents)given->long_documents,
	                            .length = (uint32_t)f->shape[0],
	                            .end_token = given->end_token,
	                            .dtype = f->source_dtype,
	                            .typed = given->source_dtype != 0,
	                            .given = o->source == PENSTOCK_SOURCE_TOKENS,
	                            .seed = o->seed,
	                            .suffix = f->names},
	        l->options.shards.names, all, l->options.ends ? l->options.ends : &all,
	        l->options.ends ? o->nmix : 1, &l->packing, err);
	if (rc == 0)
		ps_options_stretch(&l->options, l->packing->names, l->packing->nstretches);
	return rc;
}

static int count_rows(void *source, const char *unit, uint64_t *ret_rows, struct ps_error *err)
{
	return ps_columns_count(source, unit, ret_rows, err);
}

/* Prepares the source of columns: lists the members that fields read. */
static int columns_make(struct penstock_loader *l, struct ps_error *err)
{
	const struct ps_batch_layout *layout = l->layout;
	const char **members;
	uint32_t n = 0;

	for (uint32_t i = 0; i < layout->nfields; i++)
		n += layout->fields[i].n_names;
	members = calloc(n + 1, sizeof(*members));
	if (!members)
		return ps_no_memory(err);
	l->columns = (struct ps_columns_source){.calls = l->options.o.columns, .members = members};
	for (uint32_t i = 0; i < layout->nfields; i++) {
		const struct ps_layout_field *f = &layout->fields[i];
		const char *p = f->names;

		for (uint32_t k = 0; f->kind != PENSTOCK_OUTPUT && k < f->n_names; p += f->name_len[k++] + 1)
			members[l->columns.nmembers++] = p;
	}
	ps_shard_indexes_set_columns(l->indexes, count_rows, &l->columns);
	return 0;
}

static int loader_make(struct penstock_loader *l, const struct penstock_options *options,
        const char *const *shards, size_t nshards, struct ps_error *err)
{
	const struct penstock_options *o = &l->options.o;
	const struct ps_layout_field *packed;
	struct ps_windows windows;
	int rc = ps_options_make(&l->options, options, shards, nshards, err);

	if (rc < 0)
		return rc;
	if (ps_shard_errors_init(&l->lost, l->options.shards.n) < 0)
		return ps_no_memory(err);
	rc = ps_batch_layout_new(o, &l->layout, err);
	packed = rc == 0 ? ps_layout_packed(l->layout) : NULL;
	if (packed)
		rc = packing_make(l, packed, err);
	if (rc == 0)
		rc = ps_layout_windows(l->layout, o->token_stride, &windows, err);
	if (rc < 0)
		return rc;
	l->indexes = ps_shard_indexes_new(l->options.names, l->options.nnames, o->index_dir);
	if (!l->indexes)
		return ps_no_memory(err);
	ps_shard_indexes_set_packing(l->indexes, l->packing);
	if (o->columns)
		rc = columns_make(l, err);
	else if (!packed)
		rc = token_type_take(l, &windows, err);
	if (rc == 0) /* now with the type */
		rc = ps_layout_windows(l->layout, o->token_stride, &windows, err);
	if (rc < 0)
		return rc;
	ps_shard_indexes_set_source(l->indexes, (enum ps_shard_kind)o->source, &windows);
	if (o->index == PENSTOCK_INDEX_MAKE && !packed && !o->columns)
		rc = ps_shard_index_auto(
		        l->indexes, l->options.shards.names, l->options.shards.n, o->index_dir, err);
	if (rc == 0)
		rc = ps_schedule_make(&l->schedule, &l->options, l->indexes, err);
	if (rc == 0)
		rc = ps_device_open(o->device, &l->device, err);
	if (rc == 0)
		rc = pipeline_plan(l, err);
	if (rc == 0)
		rc = ps_gpu_decode_open(o, l->made, l->made_not, l->device, &l->gpu, err);
	if (rc == 0)
		rc = pipeline_begin(l, err);
	if (rc == 0 && l->planner)
		ps_planner_at(l->planner, ps_pipeline_position(l->pipeline));
	return rc;
}

int penstock_loader_open(const struct penstock_options *options, const char *const *shards, size_t nshards,
        struct penstock_loader **ret_loader, struct penstock_error *error)
{
	struct ps_error err = {0};
	struct penstock_loader *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return ps_give_error(error, -ENOMEM, &err);
	l->pid = getpid();
	l->open_ns = ps_clock_mono_ns();
	rc = loader_make(l, options, shards, nshards, &err);
	if (rc < 0) {
		if (!err.cause && (rc == -EINVAL || rc == -E2BIG))
			err.cause = PS_CAUSE_OPTIONS;
		ps_give_error(error, rc, &err); /* before names of shards are freed */
		penstock_loader_close(l);
		return rc;
	}
	*ret_loader = l;
	return 0;
}

void penstock_loader_close(struct penstock_loader *l)
{
	if (!l)
		return;
	if (l->pid != getpid()) {
		ps_pipeline_abandon(l->pipeline); /* its threads may have held any lock at the fork */
		return;
	}
	ps_planner_free(l->planner);
	ps_random_access_free(l->random_access);
	ps_pipeline_free(l->pipeline);
	ps_gpu_decode_close(&l->gpu);
	ps_device_close(l->device);
	ps_schedule_fini(&l->schedule);
	ps_profile_free(l->profile);
	ps_batch_layout_free(l->layout);
	ps_batch_layout_free(l->made);
	if (l->budget)
		ps_public_budget_release(l->budget, l->budget_nbytes);
	ps_public_budget_unref(l->budget);
	ps_shard_errors_fini(&l->lost);
	ps_options_fini(&l->options);
	ps_shard_indexes_free(l->indexes);
	ps_packing_free(l->packing);
	free((void *)(uintptr_t)l->columns.members);
	free(l->key);
	free(l->first_key);
	free(l->got_key);
	free(l);
}
