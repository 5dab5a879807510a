/* The public interface of a batch: its fields as tensors. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/range.h"
#include "batch/batch.h"
#include "random_access.h"
#include "pipeline/pipeline.h"
#include "public.h"

void penstock_batch_info(const struct penstock_batch *b, struct penstock_batch_info *ret_info)
{
	*ret_info = (struct penstock_batch_info){.epoch = b->epoch,
	        .index = b->index,
	        .rows = b->out_rows,
	        .bad = b->nbad,
	        .valid = b->repeats ? 0 : b->nrows - b->nbad,
	        .slot = b->mirror ? b->mirror->data : b->mem,
	        .slot_nbytes = b->used};
}

/* A tensor at offset `at` of the slot, and of its mirror. */
static struct penstock_tensor tensor_at(const struct penstock_batch *b, size_t at)
{
	return (struct penstock_tensor){.data = (b->mirror ? b->mirror->data : b->mem) + at,
	        .host = b->mem + at,
	        .memory = b->device->ops->type,
	        .device = (int32_t)b->device->ordinal};
}

static void offsets_at(const struct penstock_batch *b, struct penstock_tensor *t, uint32_t field)
{
	struct penstock_tensor offsets = tensor_at(b, b->at.fields[field].offsets);

	t->offsets = offsets.data;
	t->host_offsets = offsets.host;
}

static struct penstock_tensor column(const struct penstock_batch *b, size_t at, uint32_t dtype, uint64_t rows)
{
	struct penstock_tensor t = tensor_at(b, at);

	t.dtype = dtype;
	t.ndim = 1;
	t.shape[0] = rows;
	t.nbytes = rows * ps_dtype_nbytes((enum ps_dtype)dtype);
	return t;
}

/* The elements of a field: plane 0 is the tensor NAME, plane 1 the tensor NAME:y or NAME:mix. */
static struct penstock_tensor elements(const struct penstock_batch *b, uint32_t i, uint32_t plane)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_late *late = &b->late[i];
	struct penstock_tensor t =
	        tensor_at(b, ps_field_is_late(f) ? late->data[plane] : b->at.fields[i].data[plane]);

	if (f->made) {
		t.data = b->mirror->made + b->at.fields[i].made;
		t.host = NULL;
	}
	t.dtype = (uint32_t)f->dtype;
	if (f->form != PS_FORM_RAGGED)
		t.shape[t.ndim++] = b->out_rows;
	for (uint32_t d = 0; d < f->ndim; d++)
		t.shape[t.ndim++] = d > 0 || f->form == PS_FORM_FIXED ? f->shape[d]
		                    : f->form == PS_FORM_PADDED       ? f->row_items
		                                                      : late->items;
	t.nbytes = ps_dtype_nbytes(f->dtype);
	for (uint32_t d = 0; d < t.ndim; d++)
		t.nbytes *= t.shape[d];
	if (f->form == PS_FORM_RAGGED)
		offsets_at(b, &t, i);
	return t;
}

static struct penstock_tensor mask(const struct penstock_batch *b, uint32_t i)
{
	bool late = b->layout->fields[i].form == PS_FORM_LONGEST;
	uint64_t items = late ? b->late[i].items : b->layout->fields[i].row_items;

	struct penstock_tensor t = tensor_at(b, late ? b->late[i].mask : b->at.fields[i].mask);

	t.dtype = PENSTOCK_BOOL;
	t.ndim = 2;
	t.shape[0] = b->out_rows;
	t.shape[1] = items;
	t.nbytes = b->out_rows * items;
	return t;
}

/* A number for each token of packed rows. */
static struct penstock_tensor of_tokens(
        const struct penstock_batch *b, uint32_t i, size_t at, enum penstock_dtype dtype)
{
	struct penstock_tensor t = tensor_at(b, at);

	t.dtype = dtype;
	t.ndim = 2;
	t.shape[0] = b->out_rows;
	t.shape[1] = b->layout->fields[i].row_items;
	t.nbytes = t.shape[0] * t.shape[1] * ps_dtype_nbytes((enum ps_dtype)dtype);
	return t;
}

/* Finds a tensor that tells the parts of packed rows. */
static bool part(
        const struct penstock_batch *b, uint32_t i, const char *name, struct penstock_tensor *ret_tensor)
{
	const struct ps_slot_field *at = &b->at.fields[i];
	const struct ps_late *late = &b->late[i];
	uint32_t parts = b->layout->fields[i].parts;

	if (strcmp(name, "positions") == 0 && parts & PS_PART_POSITIONS)
		*ret_tensor = of_tokens(b, i, at->positions, PENSTOCK_I32);
	else if (strcmp(name, "segments") == 0 && parts & PS_PART_SEGMENTS)
		*ret_tensor = of_tokens(b, i, at->segments, PENSTOCK_I32);
	else if (strcmp(name, "mask") == 0 && parts & PS_PART_MASK)
		*ret_tensor = of_tokens(b, i, at->mask, PENSTOCK_U8);
	else if (strcmp(name, "cu") == 0 && parts & PS_PART_CU)
		*ret_tensor = column(b, late->data[0], PENSTOCK_I32, late->items + 1);
	else if (strcmp(name, "document") == 0 && parts & PS_PART_DOCUMENT)
		*ret_tensor = column(b, late->data[1], PENSTOCK_I64, late->items);
	else if (strcmp(name, "longest") == 0 && parts & PS_PART_CU)
		*ret_tensor = (struct penstock_tensor){.data = &late->longest,
		        .host = &late->longest,
		        .dtype = PENSTOCK_I64,
		        .nbytes = sizeof(late->longest),
		        .memory = PENSTOCK_MEMORY_HOST};
	else
		return false;
	return true;
}

static bool own_field(const struct penstock_batch *b, const char *name, struct penstock_tensor *ret_tensor)
{
	if (strcmp(name, "__key__") == 0) {
		*ret_tensor = column(b, b->late[PS_SLOT_KEYS(b->layout)].data[0], PENSTOCK_U8,
		        b->late[PS_SLOT_KEYS(b->layout)].items);
		offsets_at(b, ret_tensor, PS_SLOT_KEYS(b->layout));
	} else if (strcmp(name, "__valid__") == 0) {
		*ret_tensor = column(b, b->at.valid, PENSTOCK_U8, b->out_rows);
	} else if (strcmp(name, "__shard__") == 0) {
		*ret_tensor = column(b, b->at.shards, PENSTOCK_I64, b->out_rows);
	} else if (strcmp(name, "__sample__") == 0) {
		*ret_tensor = column(b, b->at.samples, PENSTOCK_I64, b->out_rows);
	} else if (b->layout->mixes && strcmp(name, "__mix_lambda__") == 0) {
		*ret_tensor = column(b, b->at.mix_lambda, PENSTOCK_F32, b->out_rows);
	} else if (b->layout->mixes && strcmp(name, "__mix_row__") == 0) {
		*ret_tensor = column(b, b->at.mix_row, PENSTOCK_I64, b->out_rows);
	} else {
		return false;
	}
	return true;
}

/* Finds a tensor that belongs to a field: NAME:mix, NAME:y, NAME:lengths, NAME:mask. */
static bool companion(const struct penstock_batch *b, const char *name, struct penstock_tensor *ret_tensor)
{
	const char *colon = strrchr(name, ':');
	int i = colon ? ps_layout_lookup(b->layout, name, (size_t)(colon - name)) : -1;
	const struct ps_layout_field *f = i < 0 ? NULL : &b->layout->fields[i];

	if (!f || f->hidden)
		return false;
	if (strcmp(colon, f->mixed_label ? ":mix" : ":y") == 0 && f->planes > 1)
		*ret_tensor = elements(b, (uint32_t)i, 1);
	else if (strcmp(colon, ":lengths") == 0 && ps_field_is_padded(f))
		*ret_tensor = column(b, b->at.fields[i].lengths, PENSTOCK_I64, b->out_rows);
	else if (strcmp(colon, ":mask") == 0 && ps_field_is_padded(f))
		*ret_tensor = mask(b, (uint32_t)i);
	else
		return part(b, (uint32_t)i, colon + 1, ret_tensor);
	return true;
}

int penstock_batch_field(const struct penstock_batch *b, const char *name, struct penstock_tensor *ret_tensor,
        struct penstock_error *error)
{
	struct ps_error err; /* not cleared: clearing it took most of the time of a successful call */
	int i = ps_layout_lookup(b->layout, name, strlen(name));

	if (i >= 0 && !b->layout->fields[i].hidden) {
		*ret_tensor = elements(b, (uint32_t)i, 0);
		return 0;
	}
	if (own_field(b, name, ret_tensor) || companion(b, name, ret_tensor))
		return 0;
	ps_error_set(&err, ENOENT, "the batch has no field \"%.100s\"", name);
	return ps_give_error(error, -ENOENT, &err);
}

const char *penstock_batch_name(const struct penstock_batch *b, uint32_t n)
{
	static const char *const own[] = {
	        "__key__", "__valid__", "__shard__", "__sample__", "__mix_lambda__", "__mix_row__"};
	const size_t nown = PS_ARRAY_LEN(own) - (b->layout->mixes ? 0 : 2);

	for (uint32_t i = 0; i < b->layout->nfields; i++) {
		const struct ps_layout_field *f = &b->layout->fields[i];

		if (n < f->n_tensors)
			return n == 0 ? f->name : f->companions[n - 1];
		n -= f->n_tensors;
	}
	return n < nown ? own[n] : NULL;
}

int penstock_batch_bad(const struct penstock_batch *b, uint32_t n, struct penstock_bad *ret_bad)
{
	const struct ps_sample *s;

	if (n >= b->nbad)
		return -ENOENT;
	s = b->rows[b->bad_rows[n]].sample;
	*ret_bad = (struct penstock_bad){.row = b->bad_rows[n],
	        .shard = s->file->path,
	        .key = s->key,
	        .offset = s->offset,
	        .reason = ps_batch_reason(b, b->bad_rows[n])};
	return 0;
}

int penstock_batch_use(struct penstock_batch *b, void *stream, struct penstock_error *error)
{
	struct ps_error err = {0};
	int rc = b->mirror ? ps_opener_check(b->pid, &err) : 0;

	if (rc == 0 && b->mirror)
		rc = b->device->ops->use(b->mirror, stream, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

void *penstock_batch_event(const struct penstock_batch *b)
{
	return b->mirror ? b->device->ops->event(b->mirror) : NULL;
}

int penstock_batch_sync(struct penstock_batch *b, struct penstock_error *error)
{
	struct ps_error err = {0};
	int rc = b->mirror ? ps_opener_check(b->pid, &err) : 0;

	if (rc == 0)
		rc = ps_batch_wait(b, &err);
	return rc < 0 ? ps_give_error(error, rc, &err) : 0;
}

void penstock_batch_release(struct penstock_batch *b)
{
	if (!b || b->pid != getpid())
		return;
	PS_RANGE_SCOPE("release");
	if (b->pipeline)
		ps_pipeline_release(b);
	else
		ps_random_access_give_back(b);
}
