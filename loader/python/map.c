#include "module.h"

#include "option/option.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const uint8_t sizes[] = {[PENSTOCK_U8] = 1,
        [PENSTOCK_F32] = 4,
        [PENSTOCK_F16] = 2,
        [PENSTOCK_BF16] = 2,
        [PENSTOCK_I32] = 4,
        [PENSTOCK_I64] = 8,
        [PENSTOCK_F64] = 8,
        [PENSTOCK_U16] = 2,
        [PENSTOCK_U32] = 4,
        [PENSTOCK_U64] = 8,
        [PENSTOCK_I8] = 1,
        [PENSTOCK_I16] = 2,
        [PENSTOCK_BOOL] = 1};

/* The Python thread state of a decoding thread, kept from its first call until its end, so that
 * threading.local() keeps what a map stored there. */
static _Thread_local PyThreadState *own_state;
static _Thread_local struct map *inside; /* the map that this thread runs */

/* Maps that may still call Python, for the interpreter's end. */
static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER;
static struct map *maps;
static bool finished; /* the interpreter ends: no map is made any more */

struct map *map_new(PyObject *run, PyObject *source, const struct penstock_field *fields, size_t nfields)
{
	struct map *m = calloc(1, sizeof(*m) + nfields * sizeof(m->outputs[0]));

	if (!m) {
		PyErr_NoMemory();
		return NULL;
	}
	m->run = run;
	m->source = source;
	m->pid = getpid();
	atomic_init(&m->refs, 1);
	pthread_mutex_init(&m->lock, NULL);
	for (size_t i = 0; i < nfields; i++) {
		const struct penstock_field *f = &fields[i];
		struct map_output *o = &m->outputs[m->noutputs];

		if (f->kind != PENSTOCK_OUTPUT || f->dtype > PENSTOCK_BOOL)
			continue; /* not an output, or the library refuses it */
		PyOS_snprintf(o->name, sizeof(o->name), "%s", f->name);
		o->item_nbytes = sizes[f->dtype];
		o->ragged = f->ndim > 0 ? f->shape[0] == 0 : f->pad_to || f->max_bytes;
		for (uint32_t d = o->ragged; d < f->ndim; d++)
			o->item_nbytes *= (size_t)f->shape[d];
		m->noutputs++;
	}
	pthread_mutex_lock(&maps_lock);
	bool late = finished;
	if (!late) {
		m->next = maps;
		if (maps)
			maps->link = &m->next;
		m->link = &maps;
		maps = m;
	}
	pthread_mutex_unlock(&maps_lock);
	if (!late)
		return m;
	map_unref(m);
	PyErr_SetString(PyExc_RuntimeError,
	        "the interpreter is ending: no loader with a map or a source can be opened");
	return NULL;
}

void map_unref(struct map *m)
{
	if (atomic_fetch_sub(&m->refs, 1) > 1)
		return;
	if (m->pid == getpid()) {
		pthread_mutex_lock(&maps_lock);
		if (m->link)
			*m->link = m->next;
		if (m->link && m->next)
			m->next->link = m->link;
		pthread_mutex_unlock(&maps_lock);
	}
	pthread_mutex_destroy(&m->lock);
	free(m);
}

void map_stop(struct map *m)
{
	pthread_mutex_lock(&m->lock);
	m->run = m->source = NULL;
	pthread_mutex_unlock(&m->lock);
}

bool map_enter(struct map *m)
{
	/* Must precede the test of `finalising`, which maps_finish() sets before it waits until no thread is
	 * between this function and map_exit(). */
	atomic_fetch_add(&m->running, 1);
	if (!atomic_load(&m->finalising))
		return true;
	map_exit(m);
	return false;
}

void map_exit(struct map *m)
{
	atomic_fetch_sub(&m->running, 1);
}

struct map *map_inside_set(struct map *m)
{
	struct map *outer = inside;

	inside = m;
	return outer;
}

bool map_is_inside(const struct map *m)
{
	return m ? inside == m : inside != NULL;
}

/* A unit of rows ----------------------------------------------------------------------------------------- */

/* The object that the package's code gets for one call; not valid after the call. */
struct unit_object {
	PyObject_HEAD struct map *map;
	struct penstock_sample *const *samples; /* NULL: the call is over */
	uint32_t n;
};

static struct penstock_sample *sample_of(PyObject *self, Py_ssize_t i)
{
	struct unit_object *u = (struct unit_object *)self;

	if (u->samples && i >= 0 && i < (Py_ssize_t)u->n)
		return u->samples[i];
	PyErr_SetString(PyExc_ValueError, "the map's call is over");
	return NULL;
}

static bool field_of(PyObject *self, Py_ssize_t i, const char *name, struct penstock_tensor *ret)
{
	struct penstock_sample *s = sample_of(self, i);
	int rc = s ? penstock_sample_field(s, name, ret) : 0;

	if (rc == -ENOMEM)
		PyErr_NoMemory();
	else if (rc < 0)
		PyErr_SetString(PyExc_KeyError, name);
	return s && rc == 0;
}

/* (dtype, shape) of a sample's field. */
static PyObject *unit_look(PyObject *self, PyObject *args)
{
	Py_ssize_t i;
	const char *name;
	struct penstock_tensor t;

	if (!PyArg_ParseTuple(args, "ns:look", &i, &name) || !field_of(self, i, name, &t))
		return NULL;
	return Py_BuildValue("(sN)", ps_dtype_words[t.dtype], numbers_tuple(t.shape, t.ndim, 1));
}

static PyObject *unit_bytes(PyObject *self, PyObject *args)
{
	Py_ssize_t i;
	const char *name;
	struct penstock_tensor t;

	if (!PyArg_ParseTuple(args, "ns:bytes", &i, &name) || !field_of(self, i, name, &t))
		return NULL;
	return PyBytes_FromStringAndSize(t.data, (Py_ssize_t)t.nbytes);
}

/* Copies a field into a buffer of its size. */
static PyObject *unit_read(PyObject *self, PyObject *args)
{
	Py_ssize_t i;
	const char *name;
	PyObject *into;
	struct penstock_tensor t;
	Py_buffer view;

	if (!PyArg_ParseTuple(args, "nsO:read", &i, &name, &into) || !field_of(self, i, name, &t) ||
	        PyObject_GetBuffer(into, &view, PyBUF_CONTIG) < 0)
		return NULL;
	bool fits = (uint64_t)view.len == t.nbytes;
	if (fits && t.nbytes > 0)
		memcpy(view.buf, t.data, (size_t)t.nbytes);
	PyBuffer_Release(&view);
	if (!fits)
		return PyErr_Format(PyExc_ValueError, "%s: the buffer has another size than the field", name);
	Py_RETURN_NONE;
}

/* The bytes of a row of an output, or of another field of fixed shape; for a ragged output, the bytes of an
 * item. */
static bool row_nbytes(const struct unit_object *u, struct penstock_sample *s, const char *name, size_t *ret,
        bool *ret_ragged)
{
	struct penstock_tensor t;

	*ret_ragged = false;
	for (size_t i = 0; i < u->map->noutputs; i++) {
		const struct map_output *o = &u->map->outputs[i];

		if (strcmp(o->name, name) == 0) {
			*ret = o->item_nbytes;
			*ret_ragged = o->ragged;
			return true;
		}
	}
	if (penstock_sample_field(s, name, &t) < 0)
		return false;
	*ret = (size_t)t.nbytes;
	return true;
}

/* write(i, name, buffer): writes a row of an output, or of another field of fixed shape. Returns None; if the
 * buffer has more items than fit, writes nothing and returns how many fit. */
static PyObject *unit_write(PyObject *self, PyObject *args)
{
	struct unit_object *u = (struct unit_object *)self;
	Py_ssize_t i;
	const char *name;
	PyObject *from;
	Py_buffer view;
	uint64_t room = 0;
	size_t each = 0;
	bool ragged = false;

	if (!PyArg_ParseTuple(args, "nsO:write", &i, &name, &from))
		return NULL;
	struct penstock_sample *s = sample_of(self, i);
	void *to = s ? penstock_sample_output(s, name, &room) : NULL;
	if (!s)
		return NULL;
	if (!to || !row_nbytes(u, s, name, &each, &ragged))
		return PyErr_Format(PyExc_KeyError, "%s", name);
	if (PyObject_GetBuffer(from, &view, PyBUF_C_CONTIGUOUS) < 0)
		return NULL;
	size_t nbytes = (size_t)view.len;
	uint64_t items = ragged && each > 0 ? nbytes / each : 0;
	bool fits = ragged ? each > 0 && nbytes % each == 0 && items <= room : nbytes == each;
	if (fits && nbytes > 0)
		memcpy(to, view.buf, nbytes);
	PyBuffer_Release(&view);
	if (!fits && ragged)
		return PyLong_FromUnsignedLongLong(room);
	if (!fits)
		return PyErr_Format(
		        PyExc_ValueError, "%s: the buffer has %zu bytes, not %zu", name, nbytes, each);
	if (ragged)
		penstock_sample_set_items(s, name, items);
	Py_RETURN_NONE;
}

static PyObject *unit_fail(PyObject *self, PyObject *args)
{
	Py_ssize_t i;
	const char *text;

	if (!PyArg_ParseTuple(args, "ns:fail", &i, &text))
		return NULL;
	struct penstock_sample *s = sample_of(self, i);
	if (!s)
		return NULL;
	penstock_sample_fail(s, text);
	Py_RETURN_NONE;
}

/* (key, shard, epoch, shard's place, sample's place, random) */
static PyObject *unit_info(PyObject *self, PyObject *arg)
{
	struct penstock_sample_info info;
	struct penstock_sample *s = sample_of(self, PyLong_AsSsize_t(arg));

	if (!s)
		return NULL;
	penstock_sample_info(s, &info);
	return Py_BuildValue("(NNKKKK)", PyUnicode_DecodeFSDefault(info.key),
	        PyUnicode_DecodeFSDefault(info.shard), (unsigned long long)info.epoch,
	        (unsigned long long)info.shard_index, (unsigned long long)info.sample_index,
	        (unsigned long long)info.random);
}

static Py_ssize_t unit_len(PyObject *self)
{
	return (Py_ssize_t)((struct unit_object *)self)->n;
}

static void unit_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_Free(self);
	Py_DECREF(type);
}

static PyMethodDef unit_methods[] = {
        {"look", unit_look, METH_VARARGS, "look(i, name): (dtype, shape) of sample i's field."},
        {"bytes", unit_bytes, METH_VARARGS, "bytes(i, name): a copy of the field."},
        {"read", unit_read, METH_VARARGS, "read(i, name, buffer): copies the field."},
        {"write", unit_write, METH_VARARGS,
                "write(i, name, buffer): writes a row of an output. Returns None; if the buffer has more "
                "items than fit, writes nothing and returns how many fit."},
        {"fail", unit_fail, METH_VARARGS, "fail(i, text): the sample is bad."},
        {"info", unit_info, METH_O, "info(i): (key, shard, epoch, shard's place, sample's place, random)."},
        {NULL, NULL, 0, NULL},
};

static char unit_doc[] = "The rows of one call of a map.";

static PyType_Slot unit_slots[] = {
        {Py_tp_dealloc, unit_dealloc},
        {Py_tp_methods, unit_methods},
        {Py_sq_length, unit_len},
        {Py_tp_doc, unit_doc},
        {0, NULL},
};

PyType_Spec unit_spec = {"penstock._penstock.Unit", sizeof(struct unit_object), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, unit_slots};

/* Calls -------------------------------------------------------------------------------------------------- */

/* With the GIL. 0, or a negative errno. */
static int unit_call(struct map *m, PyObject *run, struct penstock_sample *const *samples, uint32_t n)
{
	struct unit_object *u = (struct unit_object *)PyType_GenericAlloc((PyTypeObject *)m->unit_type, 0);
	PyObject *ret = NULL;
	int rc = -ENOMEM;

	if (u) {
		u->map = m;
		u->samples = samples;
		u->n = n;
		ret = PyObject_CallFunctionObjArgs(run, (PyObject *)u, NULL);
		u->samples = NULL;
		rc = ret && PyObject_IsTrue(ret) == 1 ? 0 : -ECANCELED;
	}
	if (!ret)
		/* `run` is the package's own code, which catches all that a map raises. */
		PyErr_WriteUnraisable(run);
	Py_XDECREF(ret);
	Py_XDECREF((PyObject *)u);
	return rc;
}

/* Called on any thread, without locks of the library. A thread that is not Python's creates a thread state,
 * and keeps it. */
int map_call(void *ctx, struct penstock_sample *const *samples, uint32_t n)
{
	struct map *m = ctx;
	int rc = -ECANCELED;

	if (map_enter(m)) {
		if (!PyGILState_GetThisThreadState()) {
			(void)PyGILState_Ensure();
			own_state = PyEval_SaveThread();
		}
		PyGILState_STATE gil = PyGILState_Ensure();
		struct map *outer = inside;
		pthread_mutex_lock(&m->lock);
		PyObject *run = m->run ? Py_NewRef(m->run) : NULL;
		pthread_mutex_unlock(&m->lock);
		inside = m;
		if (run)
			rc = unit_call(m, run, samples, n);
		Py_XDECREF(run); /* may be the last reference, and free what the map uses */
		inside = outer;
		PyGILState_Release(gil);
		map_exit(m);
	}
	return rc;
}

void map_leave(void *ctx)
{
	struct map *m = ctx;

	if (!own_state)
		return;
	if (map_enter(m)) {
		PyEval_RestoreThread(own_state);
		inside = m; /* what threading.local() had is freed, and may be a loader */
		PyGILState_Release(PyGILState_UNLOCKED);
		inside = NULL;
		map_exit(m);
	}
	own_state = NULL;
}

/* Ends --------------------------------------------------------------------------------------------------- */

void map_closed(struct map *m)
{
	atomic_store(&m->closed, true);
	map_unref(m);
}

#define WAIT_MS 10
#define LONGEST_MS 5000

/* Waits, without the GIL, until over() is true. 1: it is; 0: not in time; -1: a signal's exception. */
static int wait_for(bool (*over)(void *arg), void *arg)
{
	for (int ms = 0; ms < LONGEST_MS; ms += WAIT_MS) {
		const struct timespec step = {.tv_nsec = WAIT_MS * 1000000L};

		if (over(arg))
			return 1;
		Py_BEGIN_ALLOW_THREADS
		nanosleep(&step, NULL);
		Py_END_ALLOW_THREADS
		if (PyErr_CheckSignals() < 0)
			return -1;
	}
	return over(arg);
}

static bool is_closed(void *arg)
{
	return atomic_load(&((struct map *)arg)->closed);
}

int map_wait_closed(struct map *m)
{
	int rc = wait_for(is_closed, m);

	if (rc != 0)
		return rc < 0 ? -1 : 0;
	return PyErr_WarnEx(PyExc_RuntimeWarning,
	        "close(): the map or source still runs, after 5 s; the loader's threads end once it returns",
	        1);
}

static bool all_left(void *Py_UNUSED(unused))
{
	bool left = true;

	pthread_mutex_lock(&maps_lock);
	for (struct map *m = maps; m; m = m->next)
		left = left && (m->pid != getpid() || atomic_load(&m->running) == 0);
	pthread_mutex_unlock(&maps_lock);
	return left;
}

/* Called by atexit, while Python still works: afterwards no thread of a loader enters Python. */
PyObject *maps_finish(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
	pthread_mutex_lock(&maps_lock);
	finished = true;
	for (struct map *m = maps; m; m = m->next)
		atomic_store(&m->finalising, true);
	pthread_mutex_unlock(&maps_lock);
	int rc = wait_for(all_left, NULL);
	if (rc < 0)
		return NULL;
	if (rc == 0)
		PySys_WriteStderr(
		        "penstock: a map or source still runs, after 5 s; the program ends without it\n");
	Py_RETURN_NONE;
}
