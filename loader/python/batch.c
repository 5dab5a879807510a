#include "module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyObject *batch_new(struct loader_object *loader, struct open_loader *open, struct penstock_batch *batch)
{
	PyTypeObject *type = (PyTypeObject *)loader->state->batch_type;
	struct batch_object *b = (struct batch_object *)PyType_GenericAlloc(type, 0);

	if (b)
		b->held = held_new(open, batch);
	if (!b || !b->held) {
		penstock_batch_release(batch);
		Py_XDECREF((PyObject *)b);
		return PyErr_NoMemory();
	}
	b->state = loader->state;
	penstock_batch_info(batch, &b->info);
	return (PyObject *)b;
}

static void batch_dealloc(PyObject *self)
{
	struct batch_object *b = (struct batch_object *)self;
	PyTypeObject *type = Py_TYPE(self);

	if (b->held)
		let_go(b->held);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* Takes a hold for the time of a call, since another thread may release the batch meanwhile. NULL: an
 * exception. */
static struct held_batch *hold(struct batch_object *b)
{
	struct held_batch *held = NULL;

	GUARDED (b) {
		if (b->held)
			held = held_ref(b->held);
	}
	if (!held)
		PyErr_SetString(PyExc_ValueError, "this batch was released");
	return held;
}

/* A number of the batch, such as NAME:longest, which is in host memory whatever the device is. */
static PyObject *number_new(const struct penstock_tensor *t)
{
	int64_t number;

	memcpy(&number, t->host, sizeof(number));
	return PyLong_FromLongLong(number);
}

static PyObject *field_new(struct batch_object *b, struct held_batch *held, PyObject *arg)
{
	struct penstock_error error = {0};
	struct penstock_tensor t = {0};
	const char *name = PyUnicode_AsUTF8AndSize(arg, NULL); /* lives as long as `arg` */

	if (!name)
		return NULL;
	int rc = penstock_batch_field(held->batch, name, &t, &error);
	if (rc == -ENOENT) {
		PyErr_SetObject(PyExc_KeyError, arg);
		return NULL;
	}
	if (rc < 0)
		return raise_error(b->state, rc, &error);
	if (t.ndim == 0)
		return number_new(&t);
	PyObject *values = tensor_new(b, held, &t);
	if (!values || !t.offsets)
		return values;
	/* Positions are below 2^63, so the signed dtype fits; torch has no unsigned one. */
	const struct penstock_tensor at = {.data = t.offsets,
	        .host = t.host_offsets,
	        .memory = t.memory,
	        .device = t.device,
	        .dtype = PENSTOCK_I64,
	        .ndim = 1,
	        .shape = {(uint64_t)b->info.rows + 1}};
	PyObject *offsets = tensor_new(b, held, &at);
	if (!offsets) {
		Py_DECREF(values);
		return NULL;
	}
	return Py_BuildValue("(NN)", values, offsets);
}

/* A tensor; for a ragged field, the pair (values, offsets); a number of the batch as an int. */
static PyObject *batch_field(PyObject *self, PyObject *arg)
{
	struct batch_object *b = (struct batch_object *)self;
	struct held_batch *held = hold(b);
	PyObject *field = held ? field_new(b, held, arg) : NULL;

	if (held)
		let_go(held);
	return field;
}

/* Passes a dense field in host memory to `take`. Any other field gets None for now, and counts in *ret_left.
 * NULL: an exception. */
static PyObject *value_take(
        struct batch_object *b, struct held_batch *held, PyObject *name, PyObject *take, long *ret_left)
{
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	struct penstock_error error;
	struct penstock_tensor t;

	if (!text)
		return NULL;
	int rc = penstock_batch_field(held->batch, text, &t, &error);
	if (rc < 0)
		return raise_error(b->state, rc, &error);
	if (t.ndim == 0)
		return number_new(&t);
	if (t.offsets || !t.host || t.memory != PENSTOCK_MEMORY_HOST || t.ndim > PENSTOCK_MAX_DIMS ||
	        !dtype_name(t.dtype)) {
		(*ret_left)++;
		return Py_NewRef(Py_None);
	}
	PyObject *capsule = export_host(held, &t);
	if (!capsule)
		return NULL;
	PyObject *value = PyObject_CallFunctionObjArgs(take, capsule, NULL);
	Py_DECREF(capsule);
	return value;
}

static PyObject *fields_fill(
        struct batch_object *b, struct held_batch *held, PyObject *dict, PyObject *names, PyObject *take)
{
	long left = 0;
	Py_ssize_t n = PyTuple_Size(names);
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *name = PyTuple_GetItem(names, i), *value;
		bool other = PyTuple_Check(name);

		if (other) {
			name = PyTuple_GetItem(name, 0);
			left++;
		}
		value = !name ? NULL : other ? Py_NewRef(Py_None) : value_take(b, held, name, take, &left);
		if (!value)
			return NULL;
		int rc = PyDict_SetItem(dict, name, value);
		Py_DECREF(value);
		if (rc < 0)
			return NULL;
	}
	return n < 0 ? NULL : PyBool_FromLong(left == 0 && b->info.bad == 0);
}

/* Most of a framework's cost for each field is objects and calls. This function needs one call a batch. */
static PyObject *batch_fill(PyObject *self, PyObject *args)
{
	struct batch_object *b = (struct batch_object *)self;
	PyObject *dict, *names, *take, *all;
	struct held_batch *held;

	if (!PyArg_ParseTuple(args, "OOO:fill", &dict, &names, &take) || !(held = hold(b)))
		return NULL;
	all = fields_fill(b, held, dict, names, take);
	let_go(held);
	return all;
}

static PyObject *batch_names(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct held_batch *held = hold((struct batch_object *)self);
	const char *name;

	if (!held)
		return NULL;
	PyObject *list = PyList_New(0);
	for (uint32_t i = 0; list && (name = penstock_batch_name(held->batch, i)); i++)
		list_take(&list, PyUnicode_DecodeFSDefault(name));
	let_go(held);
	return list;
}

static PyObject *batch_bad(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct batch_object *b = (struct batch_object *)self;
	struct held_batch *held = hold(b);
	struct penstock_bad bad;

	if (!held)
		return NULL;
	PyObject *list = PyList_New(0);
	for (uint32_t i = 0; list && i < b->info.bad && penstock_batch_bad(held->batch, i, &bad) == 0; i++)
		list_take(&list,
		        Py_BuildValue("{s:I,s:N,s:N,s:K,s:N}", "row", (unsigned)bad.row, "shard",
		                PyUnicode_DecodeFSDefault(bad.shard), "key",
		                PyUnicode_DecodeFSDefault(bad.key), "offset", (unsigned long long)bad.offset,
		                "reason", PyUnicode_DecodeFSDefault(bad.reason)));
	let_go(held);
	return list;
}

static PyObject *batch_release(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct batch_object *b = (struct batch_object *)self;
	struct held_batch *held = NULL;
	size_t ntensors = 0;

	GUARDED (b) {
		ntensors = b->held ? atomic_load(&b->held->refs) - 1 : 0;
		if (!ntensors) {
			held = b->held;
			b->held = NULL;
		}
	}
	if (ntensors)
		return PyErr_Format(
		        PyExc_BufferError, "release(): %zu tensors of this batch are still in use", ntensors);
	if (held)
		let_go(held);
	Py_RETURN_NONE;
}

/* Takes a number, or an object that has one: torch's streams as cuda_stream, CuPy's as ptr. */
static bool stream_of(PyObject *object, void **ret_stream)
{
	static const char *const names[] = {"cuda_stream", "ptr"};
	PyObject *number = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !number && !PyLong_Check(object); i++) {
		number = PyObject_GetAttrString(object, names[i]);
		if (!number)
			PyErr_Clear();
	}
	*ret_stream = PyLong_AsVoidPtr(number ? number : object);
	Py_XDECREF(number);
	if (!PyErr_Occurred())
		return true;
	PyErr_Format(PyExc_TypeError, "a stream of torch or CuPy, or its address, is needed, not %R", object);
	return false;
}

static PyObject *batch_use(PyObject *self, PyObject *object)
{
	struct batch_object *b = (struct batch_object *)self;
	struct penstock_error error = {0};
	struct held_batch *held = hold(b);
	void *stream;

	if (!held)
		return NULL;
	bool known = stream_of(object, &stream);
	int rc = known ? penstock_batch_use(held->batch, stream, &error) : 0;
	let_go(held);
	return known ? none_or_error(b->state, rc, &error) : NULL;
}

static PyObject *batch_sync(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct batch_object *b = (struct batch_object *)self;
	struct penstock_error error = {0};
	struct held_batch *held = hold(b);
	int rc;

	if (!held)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	rc = penstock_batch_sync(held->batch, &error);
	Py_END_ALLOW_THREADS
	let_go(held);
	return none_or_error(b->state, rc, &error);
}

static PyObject *batch_sheet(PyObject *self, PyObject *args)
{
	struct batch_object *b = (struct batch_object *)self;
	struct penstock_error error = {0};
	struct held_batch *held;
	unsigned most;
	size_t n = 0;
	void *png = NULL;
	int rc;

	if (!PyArg_ParseTuple(args, "I:sheet", &most) || !(held = hold(b)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	rc = penstock_batch_sheet(held->batch, most, &png, &n, &error);
	Py_END_ALLOW_THREADS
	let_go(held);
	PyObject *bytes =
	        rc < 0 ? raise_error(b->state, rc, &error) : PyBytes_FromStringAndSize(png, (Py_ssize_t)n);
	free(png);
	return bytes;
}

static PyObject *batch_number(PyObject *self, void *which)
{
	const struct batch_object *b = (const struct batch_object *)self;
	const unsigned long long numbers[] = {
	        b->info.epoch, b->info.index, b->info.rows, b->info.bad, b->info.valid};

	return PyLong_FromUnsignedLongLong(numbers[(uintptr_t)which]);
}

static PyMethodDef batch_methods[] = {
        {"field", batch_field, METH_O, "field(name): a Tensor, or (values, offsets) of a ragged field."},
        {"fill", batch_fill, METH_VARARGS,
                "fill(dict, names, take): dict[name] = take(capsule) for each name of the tuple; None for "
                "fields that are ragged, not in host memory, or given as (name,). Returns True if there are "
                "no such fields and no bad rows."},
        {"names", batch_names, METH_NOARGS,
                "The names of all tensors of the batch; the same for each batch of a loader."},
        {"bad_samples", batch_bad, METH_NOARGS,
                "A dict (row, shard, key, offset, reason) for each bad sample."},
        {"release", batch_release, METH_NOARGS, "Gives the batch back to its loader now."},
        {"sheet", batch_sheet, METH_VARARGS,
                "sheet(most): the images with their labels, as the bytes of a PNG."},
        {"record_stream", batch_use, METH_O,
                "record_stream(stream): later work on the stream waits for the batch; the batch's memory is "
                "used again only after all work that was queued on the stream before the release."},
        {"synchronize", batch_sync, METH_NOARGS, "Waits until the batch has arrived on its device."},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef batch_getset[] = {
        {"epoch", batch_number, NULL, "The batch's epoch.", (void *)0},
        {"index", batch_number, NULL, "The batch's place in the epoch, on this rank.", (void *)1},
        {"rows", batch_number, NULL, "The number of samples.", (void *)2},
        {"bad", batch_number, NULL, "Rows whose sample was bad.", (void *)3},
        {"valid", batch_number, NULL, "Rows that are valid: neither bad nor padding.", (void *)4},
        {NULL, NULL, NULL, NULL, NULL},
};

static char type_doc[] = "A batch. Its memory goes back to the loader when neither the batch nor one of its "
                         "tensors is in use.";

static PyType_Slot batch_slots[] = {
        {Py_tp_dealloc, batch_dealloc},
        {Py_tp_methods, batch_methods},
        {Py_tp_getset, batch_getset},
        {Py_tp_doc, type_doc},
        {0, NULL},
};

PyType_Spec batch_spec = {"penstock._penstock.Batch", sizeof(struct batch_object), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, batch_slots};
