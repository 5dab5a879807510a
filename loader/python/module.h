/* The parts of the extension module penstock._penstock, a thin skin over penstock.h.
 *
 * Lifetime: a Tensor keeps its Batch, a Batch its Loader; what a consumer took through DLPack or NumPy's
 * array interface keeps the Tensor. So a batch goes back to its loader when nobody sees its memory any more,
 * and a loader that was closed ends when its last batch has come back. Threads: the GIL is let go while the
 * library blocks; a second thread in the same Loader is refused. Errors: a Python exception that carries the
 * library's text; see error.c for which. */
#ifndef PS_PYTHON_MODULE_H
#define PS_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "penstock.h"

struct module_state {
	PyObject *loader_type, *batch_type, *tensor_type;
	PyObject *error, *bad_sample, *busy, *stale, *changed, *unknown_length;
};

/* error.c: raises what a negative errno of the library means; gives NULL, for `return raise_error(...)`. */
int errors_init(PyObject *module, struct module_state *state);
PyObject *raise_error(struct module_state *state, int r, const struct penstock_error *error);
/* The same of reading samples, where ESTALE is a shard's. */
PyObject *raise_read_error(struct module_state *state, int r, const struct penstock_error *error);

/* Raises `type` with the error's text; gives NULL. */
PyObject *raise_text(PyObject *type, const struct penstock_error *error);

/* options.c: a dict of options, as penstock.h names them, and a list of dicts for the fields. */
struct parsed_options {
	struct penstock_options options;
	struct penstock_field *fields;
	const char **shards;
	size_t nshards;
	PyObject *keep; /* what the texts above are borrowed from */
};
bool options_parse(struct parsed_options *parsed, PyObject *shards, PyObject *options, PyObject *fields);
void options_free(struct parsed_options *parsed);
/* The names that options_parse() takes: {"options": {name: kind}, "fields": {...}, "values": {name: [...]}}.
 */
PyObject *options_names(PyObject *module, PyObject *unused);

/* A penstock_budget in a capsule, for the option `budget`. */
PyObject *budget_new(PyObject *module, PyObject *nbytes);
PyObject *budget_used(PyObject *module, PyObject *capsule);

/* loader.c */
struct loader_object {
	PyObject_HEAD struct module_state *state;
	struct penstock_loader *loader; /* NULL: closed */
	size_t nbatches;                /* that are out */
	bool busy;                      /* a thread is in it, with the GIL let go */
	bool closing;                   /* close() came while batches were out */
};
extern PyType_Spec loader_spec;
void loader_batch_gone(struct loader_object *loader);

/* batch.c */
struct batch_object {
	PyObject_HEAD struct module_state *state;
	struct loader_object *loader;
	struct penstock_batch *batch; /* NULL: given back */
	struct penstock_batch_info info;
	size_t ntensors; /* that point into it */
};
extern PyType_Spec batch_spec;
/* Takes the batch, also when it fails. */
PyObject *batch_new(struct loader_object *loader, struct penstock_batch *batch);

/* tensor.c */
struct tensor_object {
	PyObject_HEAD struct batch_object *batch;
	const void *data, *host; /* of penstock_tensor */
	uint32_t memory;
	int32_t device;
	uint32_t dtype;
	int ndim;
	int64_t shape[PENSTOCK_MAX_DIMS], strides[PENSTOCK_MAX_DIMS]; /* strides in elements */
};
extern PyType_Spec tensor_spec;
PyObject *tensor_new(struct batch_object *batch, const struct penstock_tensor *tensor);
/* The dtype's name in penstock.h, in lower case, or NULL. */
const char *dtype_name(uint32_t dtype);

#endif
