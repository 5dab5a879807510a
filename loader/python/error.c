#include "module.h"

#include <string.h>

/* The module whose classes and function made() are used; penstock._penstock is imported by its package. */
static const char errors_module[] = "penstock.errors";

int errors_init(struct module_state *s)
{
	PyObject *module = PyImport_ImportModule(errors_module);

	if (!module)
		return -1;
	s->made = PyObject_GetAttrString(module, "made");
	s->error = PyObject_GetAttrString(module, "Error");
	s->stale = PyObject_GetAttrString(module, "StateError");
	s->unknown_length = PyObject_GetAttrString(module, "UnknownLengthError");
	Py_DECREF(module);
	return s->made && s->error && s->stale && s->unknown_length ? 0 : -1;
}

/* A text may contain a path that is not UTF-8, or end in the middle of a character. */
static PyObject *error_text(const struct penstock_error *error)
{
	const char *text = error->text[0] ? error->text : "libpenstock failed without a text";

	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

/* A name from the detail of an error; None: there is none. */
static PyObject *name_of(const char *name)
{
	return name ? PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "surrogateescape")
	            : Py_NewRef(Py_None);
}

PyObject *raise_error(struct module_state *s, int r, const struct penstock_error *error)
{
	struct penstock_error_detail d = {0};
	PyObject *e;

	(void)penstock_error_detail(&d, sizeof(d));
	e = PyObject_CallFunction(s->made, "iNINNK", d.cause == PENSTOCK_CAUSE_SHARD ? (int)d.code : -r,
	        error_text(error), (unsigned)d.cause, name_of(d.shard), name_of(d.key),
	        (unsigned long long)d.offset);
	if (e)
		PyErr_SetObject((PyObject *)Py_TYPE(e), e);
	Py_XDECREF(e);
	return NULL;
}

PyObject *none_or_error(struct module_state *s, int r, const struct penstock_error *error)
{
	return r < 0 ? raise_error(s, r, error) : Py_NewRef(Py_None);
}

PyObject *raise_text(PyObject *type, const struct penstock_error *error)
{
	PyObject *text = error_text(error);

	if (text)
		PyErr_SetObject(type, text);
	Py_XDECREF(text);
	return NULL;
}
