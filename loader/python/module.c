#include "module.h"

#include <errno.h>

#include "base/npy.h"

static PyObject *version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
	return PyUnicode_FromString(penstock_version());
}

static PyObject *libraries(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
	return PyUnicode_FromString(penstock_libraries());
}

/* What differs between two profiles, as lines. */
static PyObject *profile_drift(PyObject *module, PyObject *args)
{
	struct module_state *state = PyModule_GetState(module);
	struct penstock_error error = {0};
	const char *was, *now;
	PyObject *text = NULL;
	char *buf = NULL;
	int rc;

	if (!PyArg_ParseTuple(args, "ss", &was, &now))
		return NULL;
	rc = penstock_profile_drift(was, now, NULL, 0, &error);
	if (rc >= 0) {
		buf = PyMem_Malloc((size_t)rc + 1);
		rc = buf ? penstock_profile_drift(was, now, buf, (size_t)rc + 1, &error) : -ENOMEM;
	}
	if (rc >= 0)
		text = PyUnicode_DecodeUTF8(buf, rc, "surrogateescape");
	PyMem_Free(buf);
	return rc < 0 ? raise_error(state, rc, &error) : text;
}

/* The shape of a sound .npy file of numbers; None: the bytes are not such a file. */
static PyObject *npy_shape(PyObject *Py_UNUSED(module), PyObject *bytes)
{
	struct ps_npy npy;
	Py_ssize_t n;
	char *p;

	if (PyBytes_AsStringAndSize(bytes, &p, &n) < 0)
		return NULL;
	if (ps_npy_parse(p, (size_t)n, &npy, NULL) < 0)
		Py_RETURN_NONE;
	return numbers_tuple(npy.shape, npy.ndim, 1);
}

static PyMethodDef functions[] = {
        {"profile_drift", profile_drift, METH_VARARGS,
                "profile_drift(was, now): a line for each difference."},
        {"member_nbytes", member_nbytes, METH_VARARGS,
                "member_nbytes(name, nbytes): the bytes that such a file takes in a tar."},
        {"npy_shape", npy_shape, METH_O,
                "npy_shape(bytes): the shape of the array in a .npy file; None: not a sound one."},
        {"shards_expand", shards_expand, METH_O, "The names that a pattern of shards expands to."},
        {"version", version, METH_NOARGS, "The version of libpenstock."},
        {"libraries", libraries, METH_NOARGS, "The libraries that decode images, with versions."},
        {"budget_new", budget_new, METH_O, "A budget of that many bytes, for the option budget."},
        {"maps_finish", maps_finish, METH_NOARGS,
                "Stops all calls of maps, and waits for those in progress."},
        {"budget_used", budget_used, METH_O, "The bytes taken from a budget."},
        {"option_names", options_names, METH_NOARGS,
                "(options, field options): dicts of names to (words or None, type, default, kinds of field, "
                "description)."},
        {NULL, NULL, 0, NULL},
};

static PyObject *type_add(PyObject *module, const char *name, PyType_Spec *spec)
{
	PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);

	if (!type || PyModule_AddObjectRef(module, name, type) < 0)
		return NULL;
	return type;
}

static int module_exec(PyObject *module)
{
	struct module_state *state = PyModule_GetState(module);

	state->loader_type = type_add(module, "Loader", &loader_spec);
	state->batch_type = type_add(module, "Batch", &batch_spec);
	state->tensor_type = type_add(module, "Tensor", &tensor_spec);
	state->writer_type = type_add(module, "Shard", &writer_spec);
	state->unit_type = type_add(module, "Unit", &unit_spec);
	if (state->loader_type && state->batch_type && state->tensor_type && state->writer_type &&
	        state->unit_type && errors_init(state) == 0)
		return 0;
	return -1;
}

static PyModuleDef_Slot slots[] = {
        {Py_mod_exec, (void *)module_exec},
#ifdef Py_mod_gil
        {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
        {0, NULL}, /* set by PyInit__penstock() */
        {0, NULL},
};

static struct PyModuleDef penstock_module = {
        PyModuleDef_HEAD_INIT,
        .m_name = "penstock._penstock",
        .m_doc = "libpenstock; use the package penstock.",
        .m_size = sizeof(struct module_state),
        .m_methods = functions,
        .m_slots = slots,
};

#define PYTHON_3_12 0x030C0000u
#define MULTIPLE_INTERPRETERS 3 /* Py_mod_multiple_interpreters, which 3.11's limited API does not name ... */
#define NOT_SUPPORTED NULL      /* ... and Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED */

/* A loader's threads enter the main interpreter, so a subinterpreter with a GIL of its own must not get the
 * module. Python 3.12 and later ask for this slot; 3.11 has no such interpreters, and refuses unknown
 * slots.
 */
PyMODINIT_FUNC PyInit__penstock(void);
PyMODINIT_FUNC PyInit__penstock(void)
{
	if (Py_Version >= PYTHON_3_12)
		slots[sizeof(slots) / sizeof(slots[0]) - 2] =
		        (PyModuleDef_Slot){MULTIPLE_INTERPRETERS, NOT_SUPPORTED};
	return PyModuleDef_Init(&penstock_module);
}
