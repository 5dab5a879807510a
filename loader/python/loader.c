#include "module.h"

#include <errno.h>
#include <string.h>

/* How long next() waits before it looks whether Ctrl-C was pressed. */
#define SIGNAL_CHECK_MS 100

/* Guarded by the GIL; see module.h. */
static bool enter(struct loader_object *l)
{
	if (!l->loader || l->closing) {
		PyErr_SetString(PyExc_ValueError, "this loader was closed");
		return false;
	}
	if (l->busy) {
		PyErr_SetString(PyExc_RuntimeError, "another thread is in this loader: let one thread at a "
		                                    "time call it, or give each its own");
		return false;
	}
	l->busy = true;
	return true;
}

static void close_now(struct loader_object *l)
{
	struct penstock_loader *loader = l->loader;

	l->loader = NULL;
	Py_BEGIN_ALLOW_THREADS
	penstock_loader_close(loader);
	Py_END_ALLOW_THREADS
}

void loader_batch_gone(struct loader_object *l)
{
	l->nbatches--;
	if (l->closing && l->nbatches == 0 && l->loader && !l->busy)
		close_now(l);
}

static void leave(struct loader_object *l)
{
	l->busy = false;
	if (l->closing && l->nbatches == 0 && l->loader)
		close_now(l);
}

static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *shards, *options, *fields;
	struct parsed_options parsed;
	struct penstock_error error = {0};
	struct penstock_loader *loader = NULL;
	int r;

	if (kwargs && PyDict_Size(kwargs) > 0)
		return PyErr_Format(PyExc_TypeError, "Loader(shards, options, fields) takes no keywords");
	if (!PyArg_ParseTuple(args, "OOO:Loader", &shards, &options, &fields) ||
	        !options_parse(&parsed, shards, options, fields))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = penstock_loader_open(&parsed.options, parsed.shards, parsed.nshards, &loader, &error);
	Py_END_ALLOW_THREADS
	options_free(&parsed);
	struct module_state *state = PyType_GetModuleState(type);
	if (r < 0)
		return state ? raise_error(state, r, &error) : NULL;
	struct loader_object *l = state ? (struct loader_object *)PyType_GenericAlloc(type, 0) : NULL;
	if (!l) {
		penstock_loader_close(loader);
		return NULL;
	}
	l->state = state;
	l->loader = loader;
	return (PyObject *)l;
}

static void loader_dealloc(PyObject *self)
{
	struct loader_object *l = (struct loader_object *)self;
	PyTypeObject *type = Py_TYPE(self);

	if (l->loader)
		close_now(l);
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *loader_next(PyObject *self, PyObject *unused)
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error; /* not cleared: it is a kilobyte */
	struct penstock_batch *batch = NULL;
	int r;

	(void)unused;
	if (!enter(l))
		return NULL;
	/* Where it is known what comes there is nothing to wait for, and the GIL stays. */
	r = penstock_loader_wait(l->loader, 0, &error);
	if (r > 0)
		r = penstock_loader_next(l->loader, &batch, &error) ?: 2;
	while (r == 0) {
		Py_BEGIN_ALLOW_THREADS
		r = penstock_loader_wait(l->loader, SIGNAL_CHECK_MS, &error);
		if (r > 0)
			r = penstock_loader_next(l->loader, &batch, &error) ?: 2;
		Py_END_ALLOW_THREADS
		if (r == 0 && PyErr_CheckSignals() < 0) {
			leave(l);
			return NULL;
		}
	}
	PyObject *result = NULL;
	if (r < 0)
		raise_read_error(l->state, r, &error);
	else if (batch)
		result = batch_new(l, batch);
	else
		result = Py_NewRef(Py_None);
	leave(l);
	return result;
}

static PyObject *loader_set_epoch(PyObject *self, PyObject *arg)
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error = {0};
	unsigned long long epoch = PyLong_AsUnsignedLongLong(arg);
	int r;

	if ((epoch == (unsigned long long)-1 && PyErr_Occurred()) || !enter(l))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = penstock_loader_set_epoch(l->loader, epoch, &error);
	Py_END_ALLOW_THREADS
	leave(l);
	if (r < 0)
		return raise_error(l->state, r, &error);
	Py_RETURN_NONE;
}

static PyObject *loader_length(PyObject *self, PyObject *arg)
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error = {0};
	unsigned long long epoch = PyLong_AsUnsignedLongLong(arg);
	uint64_t samples = 0, batches = 0;
	int r;

	if ((epoch == (unsigned long long)-1 && PyErr_Occurred()) || !enter(l))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = penstock_loader_length(l->loader, epoch, &samples, &batches, &error);
	Py_END_ALLOW_THREADS
	leave(l);
	if (r == -ENODATA)
		return raise_text(l->state->unknown_length, &error);
	if (r < 0)
		return raise_error(l->state, r, &error);
	return Py_BuildValue("(KK)", (unsigned long long)samples, (unsigned long long)batches);
}

/* An array of `sequence`'s numbers for PyMem_Free(), or NULL with an exception. */
static uint64_t *numbers_of(PyObject *sequence, uint32_t *ret_n)
{
	Py_ssize_t n = PySequence_Size(sequence);

	if (n < 0)
		return NULL;
	if (n > UINT32_MAX) {
		PyErr_SetString(PyExc_ValueError, "get: too many numbers");
		return NULL;
	}
	uint64_t *numbers = PyMem_Calloc((size_t)n + 1, sizeof(*numbers));
	if (!numbers)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; numbers && i < n; i++) {
		PyObject *item = PySequence_GetItem(sequence, i);
		PyObject *index = item ? PyNumber_Index(item) : NULL;

		numbers[i] = index ? PyLong_AsUnsignedLongLong(index) : 0;
		Py_XDECREF(item);
		Py_XDECREF(index);
		if (PyErr_Occurred()) {
			PyMem_Free(numbers);
			numbers = NULL;
		}
	}
	*ret_n = (uint32_t)n;
	return numbers;
}

static PyObject *loader_feed(PyObject *self, PyObject *bytes)
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error = {0};
	char *data;
	Py_ssize_t n;
	int r;

	if (PyBytes_AsStringAndSize(bytes, &data, &n) < 0 || !enter(l))
		return NULL;
	if (n / (Py_ssize_t)sizeof(int64_t) > UINT32_MAX) {
		leave(l);
		return PyErr_Format(PyExc_ValueError, "order: a batch of too many numbers");
	}
	/* It waits for nothing, so the GIL stays. */
	r = penstock_loader_feed(l->loader, (const int64_t *)(const void *)data,
	        (uint32_t)((size_t)n / sizeof(int64_t)), &error);
	leave(l);
	if (r < 0)
		return raise_error(l->state, r, &error);
	return PyBool_FromLong(r);
}

static PyObject *loader_get(PyObject *self, PyObject *sequence)
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error = {0};
	struct penstock_batch *batch = NULL;
	uint32_t n = 0;
	uint64_t *numbers = numbers_of(sequence, &n);
	int r;

	if (!numbers || !enter(l)) {
		PyMem_Free(numbers);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	r = penstock_loader_get(l->loader, numbers, n, &batch, &error);
	Py_END_ALLOW_THREADS
	PyMem_Free(numbers);
	PyObject *result = NULL;
	if (r == -ENODATA)
		PyErr_SetString(l->state->unknown_length, error.text);
	else if (r < 0)
		raise_read_error(l->state, r, &error);
	else
		result = batch_new(l, batch);
	leave(l);
	return result;
}

static PyObject *loader_state_save(PyObject *self, PyObject *unused)
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error = {0};

	(void)unused;
	if (!enter(l))
		return NULL;
	int r = penstock_loader_state_save(l->loader, NULL, 0, &error);
	PyObject *bytes = r < 0 ? NULL : PyBytes_FromStringAndSize(NULL, r);
	if (bytes)
		r = penstock_loader_state_save(l->loader, PyBytes_AsString(bytes), (size_t)r, &error);
	leave(l);
	if (r < 0) {
		Py_XDECREF(bytes);
		return raise_error(l->state, r, &error);
	}
	PyObject *whole = bytes ? PyBytes_FromStringAndSize(PyBytes_AsString(bytes), r) : NULL;
	Py_XDECREF(bytes);
	return whole;
}

static PyObject *loader_state_load(PyObject *self, PyObject *arg)
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error = {0};
	char *data;
	Py_ssize_t n;
	int r;

	if (PyBytes_AsStringAndSize(arg, &data, &n) < 0 || !enter(l))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = penstock_loader_state_load(l->loader, data, (size_t)n, &error);
	Py_END_ALLOW_THREADS
	leave(l);
	if (r == -EINVAL)
		return raise_text(l->state->stale, &error);
	if (r < 0)
		return raise_error(l->state, r, &error);
	Py_RETURN_NONE;
}

static PyObject *gpu_decode_dict(const struct penstock_stats *s)
{
	return Py_BuildValue("{s:d,s:K,s:K,s:K,s:d,s:d,s:s,s:s,s:s}", "share", s->gpu_share, "engine_images",
	        (unsigned long long)s->gpu_engine_images, "hybrid_images",
	        (unsigned long long)s->gpu_hybrid_images, "cpu_images", (unsigned long long)s->cpu_images,
	        "gpu_images_per_second", s->gpu_images_per_second, "cpu_images_per_second",
	        s->cpu_images_per_second, "why_not", s->gpu_decode_why, "library", s->gpu_library, "refused",
	        s->gpu_refused);
}

static PyObject *stage_dict(const struct penstock_stage *stage)
{
	return Py_BuildValue("{s:s,s:I,s:d,s:d,s:d}", "name", stage->name, "threads",
	        (unsigned)stage->threads, "busy", stage->busy, "waiting_input", stage->waiting_input,
	        "waiting_output", stage->waiting_output);
}

/* (shard, reason) of each shard lost that is told of. */
static PyObject *lost_list(struct loader_object *l)
{
	PyObject *list = PyList_New(0);
	struct penstock_lost lost;

	for (uint64_t n = 0; list && penstock_loader_lost(l->loader, n, &lost) == 0; n++) {
		PyObject *reason = PyUnicode_DecodeFSDefault(lost.reason), *pair = NULL;

		if (reason)
			pair = Py_BuildValue("(NN)", PyUnicode_DecodeFSDefault(lost.shard), reason);
		if (!pair || PyList_Append(list, pair) < 0)
			Py_CLEAR(list);
		Py_XDECREF(pair);
	}
	return list;
}

static PyObject *loader_stats(PyObject *self, PyObject *unused)
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error = {0};
	struct penstock_stats s = {0};

	(void)unused;
	if (!l->loader)
		return PyErr_Format(PyExc_ValueError, "this loader was closed");
	int r = penstock_loader_stats(l->loader, &s, sizeof(s), &error);
	if (r < 0)
		return raise_error(l->state, r, &error);
	PyObject *stages = PyList_New(0);
	for (int i = 0; stages && i < PENSTOCK_NSTAGES; i++) {
		PyObject *stage = stage_dict(&s.stages[i]);

		if (!stage || PyList_Append(stages, stage) < 0)
			Py_CLEAR(stages);
		Py_XDECREF(stage);
	}
	if (!stages)
		return NULL;
	return Py_BuildValue(
	        "{s:K,s:K,s:K,s:K,s:K,s:d,s:N,s:d,s:d,s:d,s:s,s:s,s:K,s:d,s:s,s:s,s:N,s:K,s:N,s:K,s:K}",
	        "samples", (unsigned long long)s.samples, "batches", (unsigned long long)s.batches, "bad",
	        (unsigned long long)s.bad, "bytes_read", (unsigned long long)s.bytes_read, "reread",
	        (unsigned long long)s.reread, "seconds", s.seconds, "stages", stages, "wait_storage",
	        s.wait_storage, "wait_read", s.wait_read, "wait_decode", s.wait_decode, "bottleneck",
	        s.bottleneck, "advice", s.advice, "copied_bytes", (unsigned long long)s.copied_bytes,
	        "copy_seconds", s.copy_seconds, "pixels", s.pixels, "jpeg_decoder", s.jpeg_decoder,
	        "gpu_decode", gpu_decode_dict(&s), "shards_lost", (unsigned long long)s.shards_lost, "lost",
	        lost_list(l), "blank_batches", (unsigned long long)s.blank_batches, "empty_epochs",
	        (unsigned long long)s.empty_epochs);
}

/* A text that may grow from one call to the next. */
static PyObject *text_take(PyObject *self,
        int (*ask)(struct penstock_loader *loader, char *buf, size_t size, struct penstock_error *error))
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_error error = {0};
	PyObject *text = NULL;
	char *buf = NULL;
	int r;

	if (!enter(l))
		return NULL;
	do {
		r = ask(l->loader, NULL, 0, &error);
		if (r < 0)
			break;
		size_t cap = (size_t)r * 2 + 1;
		PyMem_Free(buf);
		buf = PyMem_Malloc(cap);
		r = buf ? ask(l->loader, buf, cap, &error) : -ENOMEM;
	} while (r == -ENOBUFS);
	if (r >= 0)
		text = PyUnicode_DecodeUTF8(buf, r, "surrogateescape");
	PyMem_Free(buf);
	leave(l);
	return r < 0 ? raise_error(l->state, r, &error) : text;
}

static PyObject *loader_profile(PyObject *self, PyObject *unused)
{
	(void)unused;
	return text_take(self, penstock_loader_profile);
}

static PyObject *loader_fingerprint(PyObject *self, PyObject *unused)
{
	(void)unused;
	return text_take(self, penstock_loader_fingerprint);
}

static PyObject *loader_close(PyObject *self, PyObject *unused)
{
	struct loader_object *l = (struct loader_object *)self;

	(void)unused;
	l->closing = true;
	if (l->loader && l->nbatches == 0 && !l->busy)
		close_now(l);
	Py_RETURN_NONE;
}

static PyMethodDef loader_methods[] = {
        {"next", loader_next, METH_NOARGS, "The next Batch, or None at the end of an epoch."},
        {"set_epoch", loader_set_epoch, METH_O, "Goes to the beginning of an epoch."},
        {"get", loader_get, METH_O, "get(numbers): a Batch of these samples."},
        {"feed", loader_feed, METH_O, "feed(numbers): the next batch's sample numbers, as bytes of int64; b\"\": the end."},
        {"length", loader_length, METH_O, "length(epoch): (samples, batches) of this rank."},
        {"state_save", loader_state_save, METH_NOARGS, "Where the loader stands, as bytes."},
        {"state_load", loader_state_load, METH_O, "Goes to where a state was saved."},
        {"stats", loader_stats, METH_NOARGS, "Counts, and what each stage's threads did."},
        {"profile", loader_profile, METH_NOARGS, "What the batches held, as JSON (option profile)."},
        {"fingerprint", loader_fingerprint, METH_NOARGS, "What data and order come from, as JSON."},
        {"close", loader_close, METH_NOARGS, "Ends the loader once no batch is in use."},
        {NULL, NULL, 0, NULL},
};

static char type_doc[] = "Loader(shards, options, fields): see penstock.Loader.";

static PyType_Slot loader_slots[] = {
        {Py_tp_new, loader_new},
        {Py_tp_dealloc, loader_dealloc},
        {Py_tp_methods, loader_methods},
        {Py_tp_doc, type_doc},
        {0, NULL},
};

PyType_Spec loader_spec = {
        "penstock._penstock.Loader", sizeof(struct loader_object), 0, Py_TPFLAGS_DEFAULT, loader_slots};
