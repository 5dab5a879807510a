/* The parts of the extension module penstock._penstock, a thin skin over penstock.h.
 *
 * Lifetime: a Batch, its Tensors, and DLPack capsules hold the batch, which is released with the last hold;
 * an array taken through NumPy's array interface keeps the Tensor. A loader is closed when close() was
 * called or its object was freed, and all its batches are released. Holds are counted apart from Python's
 * objects, without the GIL, since frameworks drop tensors on threads of their own, under their own locks,
 * and while the interpreter ends. Threads: the GIL is released while the library blocks; a second thread in
 * the same Loader is refused. The same is true on a Python without a GIL: members that may change while
 * other threads have the object are atomic, or are read and written in GUARDED blocks; "with the GIL" then
 * means attached to the interpreter. Errors: a Python exception with the library's text; error.c chooses
 * its type. */
#ifndef PS_PYTHON_MODULE_H
#define PS_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "dlpack.h"
#include "penstock.h"

/* GUARDED(object) { ... }: only one thread at a time is in such a block for the same object; `return` may
 * leave the block. With a GIL any block that does not release the GIL excludes other threads. Without a GIL
 * the block holds Python's own lock of the object, which is released wherever the thread detaches from the
 * interpreter. So a block must neither wait nor run Python code. */
#ifdef Py_GIL_DISABLED
static inline PyCriticalSection *guard_begin(PyCriticalSection *guard, void *object)
{
	PyCriticalSection_Begin(guard, object);
	return guard;
}
#define GUARDED(object)                                                                \
	for (PyCriticalSection guard_ __attribute__((cleanup(PyCriticalSection_End))), \
	        *guard_once_ = guard_begin(&guard_, (object));                         \
	        guard_once_; guard_once_ = NULL)
#else
#define GUARDED(object)
#endif

struct module_state {
	PyObject *loader_type, *batch_type, *tensor_type, *writer_type, *unit_type;
	PyObject *error, *stale, *unknown_length, *made; /* of penstock.errors */
};

/* error.c: raises the exception for a negative errno, which a function of the library just returned on this
 * thread; returns NULL, for `return raise_error(...)`. The classes are Python code: penstock/errors.py. */
int errors_init(struct module_state *state);
PyObject *raise_error(struct module_state *state, int r, const struct penstock_error *error);

/* None, or the exception for a negative r. */
PyObject *none_or_error(struct module_state *state, int r, const struct penstock_error *error);

/* Raises `type` with the error's text; returns NULL. */
PyObject *raise_text(PyObject *type, const struct penstock_error *error);

/* Appends an item to a list and releases the item. NULL, an exception, and a failure make *list NULL. */
static inline void list_take(PyObject **list, PyObject *item)
{
	if (!item || PyList_Append(*list, item) < 0)
		Py_CLEAR(*list);
	Py_XDECREF(item);
}

/* A tuple of n numbers, each times `factor`. */
static inline PyObject *numbers_tuple(const void *numbers, uint32_t n, int64_t factor)
{
	PyObject *tuple = PyTuple_New((Py_ssize_t)n);

	for (uint32_t i = 0; tuple && i < n; i++) {
		PyObject *number = PyLong_FromLongLong(((const int64_t *)numbers)[i] * factor);

		if (!number || PyTuple_SetItem(tuple, (Py_ssize_t)i, number) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

/* options.c: parses a dict of options, as penstock.h names them, and a list of dicts for the fields. */
struct parsed_options {
	struct penstock_options options;
	struct penstock_field *fields;
	const char **shards;
	size_t nshards;
	PyObject *keep; /* owns the texts above */
};
bool options_parse(struct parsed_options *parsed, PyObject *shards, PyObject *options, PyObject *fields);
void options_free(struct parsed_options *parsed);
/* The names that options_parse() takes, as a pair of dicts: those of the loader's options and of the options
 * of fields. Each entry is (words or None, type, default, kinds of field, description). */
PyObject *options_names(PyObject *module, PyObject *unused);

/* A penstock_budget in a capsule, for the option `budget`. */
PyObject *budget_new(PyObject *module, PyObject *nbytes);
PyObject *budget_used(PyObject *module, PyObject *capsule);

/* held.c: a loader of the library, which stays open while something refers to it, and its held batches.
 * Threads: any. */
struct open_loader {
	struct penstock_loader *loader;
	struct map *map;       /* one reference to the map; NULL: no Python runs in the loader's threads */
	pid_t pid;             /* process that opened it */
	_Atomic size_t refs;   /* references of the Loader, of calls in progress, and of each batch */
	_Atomic size_t nholds; /* of all batches together */
	pthread_mutex_t lock;  /* guards the list: */
	struct held_batch *held;
};
/* Takes ownership of the loader and of the map, unless the call fails; NULL: out of memory. */
struct open_loader *open_loader_new(struct penstock_loader *loader, struct map *map);
/* True: that was the last reference, and the caller must close the loader. */
bool open_loader_unref(struct open_loader *open);
/* Blocks until reads, decodes and maps in progress have ended. */
void open_loader_close(struct open_loader *open);
/* Called after the last unref, on any thread: closes the loader now, or, with a map, which may need what
 * this thread holds, on another thread. */
void open_loader_end(struct open_loader *open);

struct held_batch {
	struct penstock_batch *batch;
	struct open_loader *of;
	_Atomic size_t refs;
	uint64_t epoch, index;
	struct held_batch *next, **link;
};
/* Returns a batch with one hold. Takes ownership of the batch unless it fails; NULL: out of memory. */
struct held_batch *held_new(struct open_loader *open, struct penstock_batch *batch);
struct held_batch *held_ref(struct held_batch *held);
/* The last hold releases the batch. Returns a loader that the caller must close, or NULL. */
struct open_loader *held_unref(struct held_batch *held);

struct held_summary {
	size_t nbatches;
	uint64_t epoch, index; /* of the oldest ... */
	size_t noldest;        /* ... and its holds */
};
void held_summary(struct open_loader *open, struct held_summary *ret_summary);

/* As held_unref() and open_loader_unref(), for a thread with the GIL, which is released while a loader is
 * closed. True: a loader was closed. */
void let_go(struct held_batch *held);
bool let_go_loader(struct open_loader *open);

/* map.c: Python code that the loader's threads call for each unit of rows.
 *
 *   map_call()     running++ ─▶ finalising? ─▶ GIL ─▶ run? ─▶ Python code ─▶ GIL released ─▶ running--
 *   map_stop()     sets `run` and `source` to NULL: no further calls begin; a call in progress continues
 *   maps_finish()  sets `finalising` of all maps, then waits until `running` is 0: later no thread asks for
 *                  the GIL
 *
 * Ownership: references are counted: one of the open loader, and one of a close() that waits. `run` is the
 * Loader's reference, which the garbage collector sees in the Loader. Threads: any; map_call() and
 * map_leave() without the GIL. Locks: `lock`, which guards `run` alone. The GIL is never requested under a
 * lock. Blocks: map_call() on the GIL. */
struct map_output {
	char name[128];
	size_t item_nbytes; /* bytes of a row, if its shape is fixed; else of an item */
	bool ragged;
};
struct map {
	pthread_mutex_t lock; /* guards: */
	PyObject *run;        /* NULL: stopped, or there is no map */
	PyObject *source;     /* as `run`, for the source of columns */
	PyObject *unit_type;
	_Atomic uint32_t running;
	atomic_bool finalising, closed;
	_Atomic size_t refs;
	pid_t pid;
	struct penstock_columns columns; /* what the library calls for the source */
	struct map *next, **link;        /* of all maps; link NULL: in no list */
	size_t noutputs;
	struct map_output outputs[];
};
/* run, source: NULL is allowed. NULL: raised. */
struct map *map_new(PyObject *run, PyObject *source, const struct penstock_field *fields, size_t nfields);
void map_unref(struct map *map);
void map_stop(struct map *map);
/* True if this thread runs the map; NULL: any map. */
bool map_is_inside(const struct map *map);
/* Begins and ends what may need the interpreter. False: it ends, or has ended. */
bool map_enter(struct map *map);
void map_exit(struct map *map);
/* Sets the map that this thread runs, and returns the one before. */
struct map *map_inside_set(struct map *map);
int map_call(void *map, struct penstock_sample *const *samples, uint32_t n);
void map_leave(void *map);
/* Called when the map's loader is closed: drops the loader's reference. */
void map_closed(struct map *map);
/* Waits until the loader is closed; after 5 s it warns and returns. -1: an exception. */
int map_wait_closed(struct map *map);
PyObject *maps_finish(PyObject *module, PyObject *unused);
extern PyType_Spec unit_spec;

/* source.c: a source of columns in Python, the functions of a struct penstock_columns whose ctx is the map. They
 * call the package's own code (penstock/source.py), as map_call() does. The streams and arrays that the code
 * returns may need the GIL at any call, so they are wrapped: their functions run between map_enter() and
 * map_exit(), without the GIL and without a lock.
 *
 * Ownership: streams and arrays are freed before the loader is closed, which keeps the map. Threads: any. */
int source_count(void *map, const char *unit, uint64_t *ret_rows, struct penstock_error *error);
int source_read(void *map, const char *unit, uint64_t row, const char *const *members, uint32_t nmembers,
        struct ArrowArrayStream *ret_stream, uint64_t *ret_nbytes, struct penstock_error *error);
/* The names that a pattern of shards expands to. */
PyObject *shards_expand(PyObject *module, PyObject *pattern);

/* loader.c */
struct loader_object {
	PyObject_HEAD struct module_state *state;
	/* GUARDED: */
	struct open_loader *open; /* NULL: closed */
	PyObject *run, *source;   /* the map's function; the source of columns */
	bool busy;                /* a thread is in a call */
	uint32_t nclaims;         /* `with` blocks ... */
	unsigned long claimer;    /* ... of this thread; other threads are refused */
	/* For the thread that is in a call: */
	bool pinned;             /* batches are in pinned memory, which is slow to allocate */
	uint32_t patience_ms;    /* how long next() waits while all batches are held */
	_Atomic uint32_t nadded; /* added batches; stats() reads the number on any thread */
};
extern PyType_Spec loader_spec;

/* batch.c */
struct batch_object {
	PyObject_HEAD struct module_state *state;
	struct held_batch *held; /* GUARDED; NULL: released */
	struct penstock_batch_info info;
};
extern PyType_Spec batch_spec;
/* Takes ownership of the batch, also on failure. */
PyObject *batch_new(struct loader_object *loader, struct open_loader *open, struct penstock_batch *batch);

/* tensor.c */
struct tensor_object {
	PyObject_HEAD struct batch_object *batch;
	struct held_batch *held;
	const void *data, *host; /* of penstock_tensor */
	uint32_t memory;
	int32_t device;
	uint32_t dtype;
	int ndim;
	int64_t shape[PENSTOCK_MAX_DIMS], strides[PENSTOCK_MAX_DIMS]; /* strides in elements */
};
extern PyType_Spec tensor_spec;
/* held: the batch's hold, which the caller keeps during the call. */
PyObject *tensor_new(
        struct batch_object *batch, struct held_batch *held, const struct penstock_tensor *tensor);

/* writer.c */
extern PyType_Spec writer_spec;
PyObject *member_nbytes(PyObject *module, PyObject *args);

/* Exports ------------------------------------------------------------------------------------------------ */

/* Memory of a batch as DLPack's capsules, which a consumer may keep for any time.
 *
 * Ownership: an export takes a hold of its own, and does not keep the tensor object that it may come from; a
 * batch with exports is not released. Threads: with the GIL, but consumers free a capsule on any thread,
 * with or without the GIL. Errors: NULL, and an exception. */

/* A capsule of the memory. Shape and strides of `of` are copied, the memory is not. versioned: the capsule
 * has the form of DLPack 1.0. */
PyObject *export_new(struct held_batch *held, const struct dl_tensor *of, bool versioned);

/* The same for a copy of `nbytes` of dense host memory, which keeps no batch. */
PyObject *export_copy(const struct dl_tensor *of, size_t nbytes, bool versioned);

/* As export_new(), legacy, for a dense tensor in host memory. */
PyObject *export_host(struct held_batch *held, const struct penstock_tensor *of);

/* Element types, by enum penstock_dtype. */
struct dtype {
	const char *name;       /* in penstock.h, in lower case */
	const char *array_type; /* of NumPy's array interface; NULL: NumPy has none */
	struct dl_type dl;
};
extern const struct dtype dtypes[];

/* The type's name; NULL: this module does not know the type. */
const char *dtype_name(uint32_t dtype);

#endif
