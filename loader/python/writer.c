/* Writes a shard, for penstock.ShardWriter. */
#include "module.h"

struct writer_object {
	PyObject_HEAD struct module_state *state;
	struct penstock_shard_writer *_Atomic writer; /* NULL: finished, aborted, or a thread is in it */
};

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	struct module_state *state = PyType_GetModuleState(type);
	struct penstock_error error = {0};
	struct penstock_shard_writer *writer = NULL;
	struct writer_object *w;
	PyObject *path = NULL;
	int level, r;

	if (!state || !PyArg_ParseTuple(args, "O&i", PyUnicode_FSConverter, &path, &level))
		return NULL;
	w = (struct writer_object *)PyType_GenericAlloc(type, 0);
	if (!w) {
		Py_DECREF(path);
		return NULL;
	}
	w->state = state;
	r = penstock_shard_writer_open(PyBytes_AsString(path), level, &writer, &error);
	Py_DECREF(path);
	atomic_init(&w->writer, r == 0 ? writer : NULL);
	if (r == 0)
		return (PyObject *)w;
	Py_DECREF(w);
	return raise_error(state, r, &error);
}

static void writer_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	penstock_shard_writer_abort(atomic_load(&((struct writer_object *)self)->writer));
	PyObject_Free(self);
	Py_DECREF(type);
}

/* Takes the writer, which only the caller uses until it puts the writer back. */
static struct penstock_shard_writer *writer_take(struct writer_object *w)
{
	struct penstock_shard_writer *writer = atomic_exchange(&w->writer, NULL);

	if (!writer)
		PyErr_SetString(PyExc_ValueError, "this shard is finished, or another thread writes it");
	return writer;
}

static PyObject *writer_add(PyObject *self, PyObject *args)
{
	struct writer_object *w = (struct writer_object *)self;
	struct penstock_shard_writer *writer;
	struct penstock_error error = {0};
	Py_ssize_t n;
	const char *name, *data;
	int rc;

	if (!PyArg_ParseTuple(args, "sy#", &name, &data, &n) || !(writer = writer_take(w)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	rc = penstock_shard_writer_add(writer, name, data, (size_t)n, &error);
	Py_END_ALLOW_THREADS;
	atomic_store(&w->writer, writer);
	return none_or_error(w->state, rc, &error);
}

static PyObject *writer_finish(PyObject *self, PyObject *args)
{
	struct writer_object *w = (struct writer_object *)self;
	struct penstock_shard_writer *writer;
	struct penstock_error error = {0};
	int index, r;

	if (!PyArg_ParseTuple(args, "p", &index) || !(writer = writer_take(w)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = penstock_shard_writer_finish(writer, index, &error);
	Py_END_ALLOW_THREADS;
	return none_or_error(w->state, r, &error);
}

static PyObject *writer_abort(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct writer_object *w = (struct writer_object *)self;

	penstock_shard_writer_abort(atomic_exchange(&w->writer, NULL));
	Py_RETURN_NONE;
}

PyObject *member_nbytes(PyObject *Py_UNUSED(module), PyObject *args)
{
	unsigned long long n;
	const char *name;

	if (!PyArg_ParseTuple(args, "sK", &name, &n))
		return NULL;
	return PyLong_FromUnsignedLongLong(penstock_shard_writer_member_nbytes(name, n));
}

static PyMethodDef writer_methods[] = {
        {"add", writer_add, METH_VARARGS, "add(name, data): one more file."},
        {"finish", writer_finish, METH_VARARGS,
                "finish(index): ends the shard and renames the file to its name."},
        {"abort", writer_abort, METH_NOARGS, "Removes what was written."},
        {NULL, NULL, 0, NULL},
};

static char type_doc[] = "Shard(path, level): one shard of penstock.ShardWriter.";

static PyType_Slot writer_slots[] = {
        {Py_tp_new, writer_new},
        {Py_tp_dealloc, writer_dealloc},
        {Py_tp_methods, writer_methods},
        {Py_tp_doc, type_doc},
        {0, NULL},
};

PyType_Spec writer_spec = {
        "penstock._penstock.Shard", sizeof(struct writer_object), 0, Py_TPFLAGS_DEFAULT, writer_slots};
