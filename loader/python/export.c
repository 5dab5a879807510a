#include "module.h"

#include <stdlib.h>
#include <string.h>

#define COPY_ALIGN 64u /* JAX copies memory of a smaller alignment */

const struct dtype dtypes[] = {
        {"u8", "|u1", {DL_UINT, 8, 1}},
        {"f32", "<f4", {DL_FLOAT, 32, 1}},
        {"f16", "<f2", {DL_FLOAT, 16, 1}},
        {"bf16", NULL, {DL_BFLOAT, 16, 1}},
        {"i32", "<i4", {DL_INT, 32, 1}},
        {"i64", "<i8", {DL_INT, 64, 1}},
        {"f64", "<f8", {DL_FLOAT, 64, 1}},
        {"u16", "<u2", {DL_UINT, 16, 1}},
        {"u32", "<u4", {DL_UINT, 32, 1}},
        {"u64", "<u8", {DL_UINT, 64, 1}},
        {"i8", "|i1", {DL_INT, 8, 1}},
        {"i16", "<i2", {DL_INT, 16, 1}},
        {"bool", "|b1", {DL_BOOL, 8, 1}},
};

const char *dtype_name(uint32_t dtype)
{
	return dtype < sizeof(dtypes) / sizeof(dtypes[0]) ? dtypes[dtype].name : NULL;
}

/* One allocation for either structure, and the shape and strides after it. */
struct export
{
	union {
		struct dl_managed legacy;
		struct dl_managed_versioned versioned;
	} u;
	struct held_batch *held; /* NULL: the export has memory of its own, ... */
	void *copy;              /* ... which is this */
	int64_t numbers[];       /* shape, strides */
};

/* Consumers call this on any thread, with or without the GIL, under their locks, and after the interpreter
 * has ended, so it must not use Python. */
static void export_free(struct export *e)
{
	struct open_loader *last = e->held ? held_unref(e->held) : NULL;

	if (last)
		open_loader_end(last);
	free(e->copy);
	free(e);
}

static void delete_legacy(struct dl_managed *m)
{
	export_free(m->ctx);
}

static void delete_versioned(struct dl_managed_versioned *m)
{
	export_free(m->ctx);
}

/* Frees a capsule that was not consumed. */
static void capsule_free(PyObject *capsule)
{
	const char *name = PyCapsule_GetName(capsule);

	if (name && strcmp(name, "dltensor") == 0) {
		struct dl_managed *m = PyCapsule_GetPointer(capsule, name);

		m->deleter(m);
	} else if (name && strcmp(name, "dltensor_versioned") == 0) {
		struct dl_managed_versioned *m = PyCapsule_GetPointer(capsule, name);

		m->deleter(m);
	}
}

/* An export without memory yet. NULL: an exception. */
static struct export *export_make(const struct dl_tensor *of, bool versioned, uint64_t flags)
{
	size_t n = (size_t)of->ndim;
	struct export *e = malloc(sizeof(*e) + 2 * n * sizeof(int64_t));

	if (!e) {
		PyErr_NoMemory();
		return NULL;
	}
	struct dl_tensor *dl = versioned ? &e->u.versioned.tensor : &e->u.legacy.tensor;
	if (versioned)
		e->u.versioned = (struct dl_managed_versioned){
		        .version = {1, 0}, .ctx = e, .deleter = delete_versioned, .flags = flags};
	else
		e->u.legacy = (struct dl_managed){.ctx = e, .deleter = delete_legacy};
	e->held = NULL;
	e->copy = NULL;
	*dl = *of;
	dl->shape = e->numbers;
	dl->strides = e->numbers + n;
	memcpy(dl->shape, of->shape, n * sizeof(int64_t));
	memcpy(dl->strides, of->strides, n * sizeof(int64_t));
	return e;
}

static PyObject *export_capsule(struct export *e, bool versioned)
{
	PyObject *capsule = PyCapsule_New(&e->u, versioned ? "dltensor_versioned" : "dltensor", capsule_free);

	if (!capsule)
		export_free(e);
	return capsule;
}

PyObject *export_new(struct held_batch *held, const struct dl_tensor *of, bool versioned)
{
	struct export *e = export_make(of, versioned, 0);

	if (!e)
		return NULL;
	e->held = held_ref(held);
	return export_capsule(e, versioned);
}

PyObject *export_copy(const struct dl_tensor *of, size_t nbytes, bool versioned)
{
	struct export *e = export_make(of, versioned, DL_IS_COPIED);

	if (!e)
		return NULL;
	e->copy = aligned_alloc(COPY_ALIGN, (nbytes + COPY_ALIGN) / COPY_ALIGN * COPY_ALIGN);
	if (!e->copy) {
		export_free(e);
		return PyErr_NoMemory();
	}
	if (nbytes)
		memcpy(e->copy, of->data, nbytes);
	*(versioned ? &e->u.versioned.tensor.data : &e->u.legacy.tensor.data) = e->copy;
	return export_capsule(e, versioned);
}

PyObject *export_host(struct held_batch *held, const struct penstock_tensor *of)
{
	int64_t shape[PENSTOCK_MAX_DIMS], strides[PENSTOCK_MAX_DIMS], stride = 1;

	for (int i = (int)of->ndim - 1; i >= 0; i--) {
		shape[i] = (int64_t)of->shape[i];
		strides[i] = stride;
		stride *= shape[i];
	}
	return export_new(held,
	        &(struct dl_tensor){.data = (void *)(uintptr_t)of->host,
	                .device = {DL_CPU, 0},
	                .ndim = (int32_t)of->ndim,
	                .dtype = dtypes[of->dtype].dl,
	                .shape = shape,
	                .strides = strides},
	        false);
}
