#include "module.h"

#include <errno.h>
#include <string.h>

static PyObject *exception_new(
        PyObject *module, const char *name, const char *doc, PyObject *base, PyObject *also)
{
	char full[64];
	PyObject *bases = also ? PyTuple_Pack(2, base, also) : PyTuple_Pack(1, base);

	if (!bases)
		return NULL;
	PyOS_snprintf(full, sizeof(full), "penstock.%s", name);
	PyObject *e = PyErr_NewExceptionWithDoc(full, doc, bases, NULL);
	Py_DECREF(bases);
	if (!e)
		return NULL;
	Py_INCREF(e);
	if (PyModule_AddObject(module, name, e) < 0) {
		Py_DECREF(e);
		Py_CLEAR(e);
	}
	return e;
}

int errors_init(PyObject *module, struct module_state *s)
{
	s->error = exception_new(
	        module, "Error", "An error of libpenstock; `errno` has its kind.", PyExc_RuntimeError, NULL);
	if (!s->error)
		return -1;
	s->bad_sample = exception_new(module, "BadSampleError",
	        "A sample is damaged (on_error=\"fail\"), or too many are.", s->error, PyExc_ValueError);
	s->busy = exception_new(module, "BatchesHeldError",
	        "All batches are still in use, and memory_budget has no room for another: see copy=True.",
	        s->error, NULL);
	s->stale = exception_new(module, "StateError",
	        "A saved state is damaged, or belongs to other shards or options.", s->error,
	        PyExc_ValueError);
	s->changed = exception_new(module, "ShardChangedError",
	        "A shard was replaced after it was opened, indexed or saved in a state.", s->bad_sample,
	        NULL);
	s->unknown_length = exception_new(module, "UnknownLengthError",
	        "The number of samples is not known: a shard has no index.", s->error, PyExc_TypeError);
	return s->bad_sample && s->busy && s->stale && s->changed && s->unknown_length ? 0 : -1;
}

static PyObject *exception_type(const struct module_state *s, int errnum)
{
	switch (errnum) {
	case EBADMSG:
		return s->bad_sample;
	case EBUSY:
		return s->busy;
	case ESTALE:
		return s->stale;
	case EINVAL:
	case E2BIG:
		return PyExc_ValueError;
	case ENOMEM:
		return PyExc_MemoryError;
	case ERANGE:
		return PyExc_IndexError;
	case ENOENT:
	case EACCES:
	case EIO:
	case EMFILE:
	case ENFILE:
		return PyExc_OSError;
	}
	return s->error;
}

/* A text may contain a path that is not UTF-8, or end in the middle of a character. */
static PyObject *error_text(const struct penstock_error *error)
{
	const char *text = error->text[0] ? error->text : "libpenstock failed without a text";

	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

static PyObject *raise_as(PyObject *type, int r, const struct penstock_error *error)
{
	PyObject *text = error_text(error), *e = NULL;

	if (text)
		e = type == PyExc_OSError ? PyObject_CallFunction(type, "iO", -r, text)
		                          : PyObject_CallFunctionObjArgs(type, text, NULL);
	Py_XDECREF(text);
	if (!e)
		return NULL;
	if (type != PyExc_OSError && type != PyExc_MemoryError && type != PyExc_ValueError &&
	        type != PyExc_IndexError) {
		PyObject *n = PyLong_FromLong(-r);

		if (!n || PyObject_SetAttrString(e, "errno", n) < 0)
			PyErr_Clear();
		Py_XDECREF(n);
	}
	PyErr_SetObject(type, e);
	Py_DECREF(e);
	return NULL;
}

PyObject *raise_error(struct module_state *s, int r, const struct penstock_error *error)
{
	return raise_as(exception_type(s, -r), r, error);
}

PyObject *raise_read_error(struct module_state *s, int r, const struct penstock_error *error)
{
	return raise_as(r == -ESTALE ? s->changed : exception_type(s, -r), r, error);
}

PyObject *raise_text(PyObject *type, const struct penstock_error *error)
{
	PyObject *text = error_text(error);

	if (text)
		PyErr_SetObject(type, text);
	Py_XDECREF(text);
	return NULL;
}
