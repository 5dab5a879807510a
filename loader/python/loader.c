#include "module.h"

#include <errno.h>
#include <string.h>

/* How long next() waits before it checks for Ctrl-C ... */
#ifdef Py_GIL_DISABLED
#define LOOK_MS 5 /* ... and for objects that other threads dropped; see look() */
#else
#define LOOK_MS 100
#endif
/* Garbage collections in a row: each frees what the one before released, from a dict to its array, tensor
 * and batch. */
#define COLLECTIONS 4
/* How long next() waits while all batches are held, before it makes another batch. */
#define PATIENCE_MS 100
/* Batches on a device are added in groups of this size: pinned memory is slow to allocate. */
#define PINNED_STEP 2

enum refusal { WELCOME, CLOSED, BUSY, INSIDE };

/* Called within GUARDED. */
static enum refusal refusal_of(const struct loader_object *l)
{
	if (!l->open)
		return CLOSED;
	if (l->busy || (l->nclaims > 0 && l->claimer != PyThread_get_thread_ident()))
		return BUSY;
	return l->open->map && map_is_inside(l->open->map) ? INSIDE : WELCOME;
}

static void refuse(enum refusal why)
{
	if (why == CLOSED)
		PyErr_SetString(PyExc_ValueError, "this loader was closed");
	if (why == BUSY)
		PyErr_SetString(PyExc_RuntimeError, "another thread is in this loader: let one thread at a "
		                                    "time call it, or give each its own");
	if (why == INSIDE)
		PyErr_SetString(
		        PyExc_RuntimeError, "a map or source cannot call its own loader, which waits for it");
}

/* The returned loader stays open until leave(). NULL: an exception. */
static struct open_loader *enter(struct loader_object *l)
{
	struct open_loader *o = NULL;
	enum refusal why = CLOSED;

	GUARDED (l) {
		why = refusal_of(l);
		if (why == WELCOME) {
			l->busy = true;
			o = l->open;
			atomic_fetch_add(&o->refs, 1);
		}
	}
	refuse(why);
	return o;
}

static void leave(struct loader_object *l, struct open_loader *o)
{
	GUARDED (l) {
		l->busy = false;
	}
	let_go_loader(o);
}

/* Begins a `with` block: several calls of this thread, between which calls of other threads are refused. */
static PyObject *loader_claim(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct loader_object *l = (struct loader_object *)self;
	enum refusal why = CLOSED;

	GUARDED (l) {
		why = refusal_of(l);
		if (why == WELCOME) {
			l->nclaims++;
			l->claimer = PyThread_get_thread_ident();
		}
	}
	refuse(why);
	return why == WELCOME ? Py_NewRef(self) : NULL;
}

static PyObject *loader_unclaim(PyObject *self, PyObject *Py_UNUSED(args))
{
	struct loader_object *l = (struct loader_object *)self;

	GUARDED (l) {
		l->nclaims -= l->nclaims > 0;
	}
	Py_RETURN_NONE;
}

/* Returns the map, with a reference, if this call closes the loader. NULL: there is no map, or the loader
 * is closed later, by the end of a call in progress or by the release of the last held batch. */
static struct map *close_now(struct loader_object *l)
{
	struct open_loader *o = NULL;
	PyObject *run = NULL, *source = NULL;

	GUARDED (l) {
		o = l->open;
		run = l->run;
		source = l->source;
		l->open = NULL;
		l->run = l->source = NULL;
	}
	struct map *map = o ? o->map : NULL;
	if (map) {
		map_stop(map);
		atomic_fetch_add(&map->refs, 1);
	}
	bool closes = o && let_go_loader(o);
	if (map && !closes) {
		map_unref(map);
		map = NULL;
	}
	Py_XDECREF(run);
	Py_XDECREF(source);
	return map;
}

static int loader_clear(PyObject *self)
{
	struct map *map = close_now((struct loader_object *)self);

	if (map)
		map_unref(map);
	return 0;
}

static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *shards, *options, *fields, *run = Py_None, *source = Py_None, *ranges = NULL;
	struct map *map = NULL;
	struct parsed_options parsed;
	struct penstock_error error = {0};
	struct penstock_loader *loader = NULL;
	int rc;

	if (kwargs && PyDict_Size(kwargs) > 0)
		return PyErr_Format(
		        PyExc_TypeError, "Loader(shards, options, fields, map, source): no keywords");
	struct module_state *state = PyType_GetModuleState(type);
	if (!state || !PyArg_ParseTuple(args, "OOO|OO:Loader", &shards, &options, &fields, &run, &source) ||
	        !options_parse(&parsed, shards, options, fields))
		return NULL;
	if (run != Py_None || source != Py_None) {
		map = map_new(run != Py_None ? run : NULL, source != Py_None ? source : NULL, parsed.fields,
		        parsed.options.nfields);
		if (!map) {
			options_free(&parsed);
			return NULL;
		}
		map->unit_type = state->unit_type;
	}
	if (source != Py_None) {
		PyObject *files = PyObject_GetAttrString(source, "files");

		map->columns = (struct penstock_columns){.size = sizeof(map->columns),
		        .ctx = map,
		        .count = source_count,
		        .read = source_read,
		        .files = files && PyObject_IsTrue(files) == 1};
		Py_XDECREF(files);
		ranges = PyObject_GetAttrString(source, "ranges");
		if (ranges && ranges != Py_None) {
			map->columns.ranges = (const uint64_t *)(const void *)PyBytes_AsString(ranges);
			map->columns.nranges = (uint64_t)PyBytes_Size(ranges) / (2 * sizeof(uint64_t));
		}
		parsed.options.columns = &map->columns;
		if (PyErr_Occurred()) {
			Py_XDECREF(ranges);
			map_unref(map);
			options_free(&parsed);
			return NULL;
		}
	}
	if (run != Py_None) {
		parsed.options.transform_unit = map_call;
		parsed.options.transform_leave = map_leave;
		parsed.options.transform_ctx = map;
	}
	Py_BEGIN_ALLOW_THREADS
	rc = penstock_loader_open(&parsed.options, parsed.shards, parsed.nshards, &loader, &error);
	Py_END_ALLOW_THREADS
	if (map) {
		map->columns.ranges = NULL; /* copied */
		Py_XDECREF(ranges);
	}
	bool pinned = parsed.options.device && strncmp(parsed.options.device, "cuda", 4) == 0;
	options_free(&parsed);
	if (rc < 0 && map)
		map_unref(map);
	if (rc < 0)
		return raise_error(state, rc, &error);
	struct loader_object *l = (struct loader_object *)PyType_GenericAlloc(type, 0);
	if (l)
		l->open = open_loader_new(loader, map);
	if (!l || !l->open) {
		Py_BEGIN_ALLOW_THREADS
		penstock_loader_close(loader);
		Py_END_ALLOW_THREADS
		if (map)
			map_unref(map);
		Py_XDECREF((PyObject *)l);
		return PyErr_NoMemory();
	}
	l->state = state;
	l->run = run != Py_None ? Py_NewRef(run) : NULL;
	l->source = source != Py_None ? Py_NewRef(source) : NULL;
	l->pinned = pinned;
	l->patience_ms = PATIENCE_MS;
	return (PyObject *)l;
}

static void loader_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_GC_UnTrack(self);
	(void)loader_clear(self);
	PyObject_GC_Del(self);
	Py_DECREF(type);
}

/* A map may refer to its own loader. */
static int loader_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct loader_object *)self)->run);
	Py_VISIT(((struct loader_object *)self)->source);
	return 0;
}

/* Called before the garbage collector clears anything of the map. */
static void loader_finalize(PyObject *self)
{
	struct loader_object *l = (struct loader_object *)self;

	GUARDED (l) {
		if (l->open && l->open->map)
			map_stop(l->open->map);
	}
}

/* Makes another batch; of pinned ones, which are slow to make, several if there is room. *ret_n: the number
 * made. */
static int batches_add(
        struct penstock_loader *loader, bool pinned, uint32_t *ret_n, struct penstock_error *error)
{
	int rc = penstock_loader_add_batch(loader, error);

	*ret_n = rc == 0;
	while (rc == 0 && pinned && *ret_n < PINNED_STEP && penstock_loader_add_batch(loader, NULL) == 0)
		++*ret_n;
	return rc;
}

/* Raises an error with the summary of held batches before the library's text. */
static int raise_held(struct loader_object *l, const struct held_summary *s, struct penstock_error *error)
{
	struct penstock_error full;

	PyOS_snprintf(full.text, sizeof(full.text),
	        "all %zu batches are held, the oldest (batch %llu of epoch %llu) by %zu tensors, arrays or "
	        "Batch objects; keep "
	        "copies (copy=True), or drop what is not needed; %s",
	        s->nbatches, (unsigned long long)s->index, (unsigned long long)s->epoch, s->noldest,
	        error->text);
	raise_error(l->state, -EBUSY, &full);
	return -1;
}

static int warn_added(const struct held_summary *s)
{
	PyObject *module = PyImport_ImportModule("penstock.loader");
	PyObject *done = module ? PyObject_CallMethod(module, "_warn_added", "nKKn", (Py_ssize_t)s->nbatches,
	                                  (unsigned long long)s->index, (unsigned long long)s->epoch,
	                                  (Py_ssize_t)s->noldest)
	                        : NULL;

	Py_XDECREF(module);
	Py_XDECREF(done);
	return done ? 0 : -1;
}

/* What a waiting thread must do meanwhile: handle Ctrl-C; and, without a GIL, free the objects that it made
 * and other threads dropped, such as batches: Python leaves that to the thread that made them, when it runs
 * Python code. False: an exception. */
static bool look(void)
{
	if (PyErr_CheckSignals() < 0)
		return false;
#ifdef Py_GIL_DISABLED
	PyObject *module = PyImport_ImportModule("penstock.loader");
	PyObject *done = module ? PyObject_CallMethod(module, "_look", NULL) : NULL;

	Py_XDECREF(module);
	Py_XDECREF(done);
	return done;
#else
	return true;
#endif
}

/* 1: not all batches are held; 0: all were held until the patience ended; -1: an exception. */
static int released_wait(struct loader_object *l, struct open_loader *o)
{
	struct penstock_error error = {0};
	int rc = 0;

	for (uint32_t ms, left = l->patience_ms; rc == 0 && left > 0; left -= ms) {
		ms = left < LOOK_MS ? left : LOOK_MS;
		Py_BEGIN_ALLOW_THREADS
		rc = penstock_loader_wait_released(o->loader, ms, &error);
		Py_END_ALLOW_THREADS
		if (rc < 0)
			raise_error(l->state, rc, &error);
		if (rc < 0 || !look())
			return -1;
	}
	return rc;
}

/* Without a GIL, the thread that must free dropped batches (see look()) may be blocked; a garbage
 * collection frees them. True: a batch was freed. */
static bool collect(struct open_loader *o)
{
#ifdef Py_GIL_DISABLED
	bool released = false;

	for (int i = 0; i < COLLECTIONS && !released; i++) {
		PyGC_Collect();
		released = penstock_loader_wait_released(o->loader, 0, NULL) > 0;
	}
	return released;
#else
	(void)o;
	return false;
#endif
}

/* Called when all batches are held. Waits as long as holds become fewer, then makes another batch. After a
 * wait without effect the next one is half as long: batches that are kept look like batches that a
 * framework is about to drop. 0: next() can continue; -1: an exception. */
static int held_wait(struct loader_object *l, struct open_loader *o)
{
	struct penstock_error error = {0};
	struct held_summary summary;
	size_t before, now = atomic_load(&o->nholds);
	uint32_t n;
	int rc;

	do {
		before = now;
		rc = released_wait(l, o);
		if (rc > 0)
			l->patience_ms = PATIENCE_MS;
		if (rc != 0)
			return rc < 0 ? -1 : 0;
		now = atomic_load(&o->nholds);
	} while (now < before);
	if (collect(o))
		return 0;
	l->patience_ms = l->patience_ms > 1 ? l->patience_ms / 2 : 1;
	held_summary(o, &summary);
	bool first = atomic_load(&l->nadded) == 0;
	Py_BEGIN_ALLOW_THREADS
	rc = batches_add(o->loader, l->pinned, &n, &error);
	Py_END_ALLOW_THREADS
	atomic_fetch_add(&l->nadded, n);
	if (rc < 0)
		return raise_held(l, &summary, &error);
	return first ? warn_added(&summary) : 0;
}

/* 1: a batch; 0: the end of an epoch; -1: an exception. */
static int batch_take(struct loader_object *l, struct open_loader *o, struct penstock_batch **ret_batch)
{
	struct penstock_error error; /* not cleared: it is a kilobyte */
	/* If the result is known, next() does not wait, and the GIL is kept. */
	int r = penstock_loader_wait(o->loader, 0, &error);
	bool waits = r == 0;

	if (r > 0)
		r = penstock_loader_next(o->loader, ret_batch, &error);
	while (waits) {
		Py_BEGIN_ALLOW_THREADS
		r = penstock_loader_wait(o->loader, LOOK_MS, &error);
		waits = r == 0;
		if (r > 0)
			r = penstock_loader_next(o->loader, ret_batch, &error);
		Py_END_ALLOW_THREADS
		if (waits && !look())
			return -1;
	}
	if (r == -EBUSY)
		return held_wait(l, o) < 0 ? -1 : batch_take(l, o, ret_batch);
	if (r < 0)
		raise_error(l->state, r, &error);
	return r < 0 ? -1 : r;
}

static PyObject *loader_next(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct loader_object *l = (struct loader_object *)self;
	struct penstock_batch *batch = NULL;
	struct open_loader *o = enter(l);

	if (!o)
		return NULL;
	int rc = batch_take(l, o, &batch);
	PyObject *result = rc < 0 ? NULL : rc > 0 ? batch_new(l, o, batch) : Py_NewRef(Py_None);
	leave(l, o);
	return result;
}

static PyObject *loader_set_epoch(PyObject *self, PyObject *arg)
{
	struct loader_object *l = (struct loader_object *)self;
	struct open_loader *o;
	struct penstock_error error = {0};
	unsigned long long epoch = PyLong_AsUnsignedLongLong(arg);
	int rc;

	if ((epoch == (unsigned long long)-1 && PyErr_Occurred()) || !(o = enter(l)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	rc = penstock_loader_set_epoch(o->loader, epoch, &error);
	Py_END_ALLOW_THREADS
	leave(l, o);
	return none_or_error(l->state, rc, &error);
}

static PyObject *loader_length(PyObject *self, PyObject *arg)
{
	struct loader_object *l = (struct loader_object *)self;
	struct open_loader *o;
	struct penstock_error error = {0};
	unsigned long long epoch = PyLong_AsUnsignedLongLong(arg);
	uint64_t samples = 0, batches = 0, total = 0;
	int rc;

	if ((epoch == (unsigned long long)-1 && PyErr_Occurred()) || !(o = enter(l)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	rc = penstock_loader_length(o->loader, epoch, &samples, &batches, &error);
	if (rc == 0)
		rc = penstock_loader_total(o->loader, epoch, &total, &error);
	Py_END_ALLOW_THREADS
	leave(l, o);
	if (rc == -ENODATA)
		return raise_text(l->state->unknown_length, &error);
	if (rc < 0)
		return raise_error(l->state, rc, &error);
	return Py_BuildValue(
	        "(KKK)", (unsigned long long)samples, (unsigned long long)batches, (unsigned long long)total);
}

/* An array of `sequence`'s numbers for PyMem_Free(), or NULL with an exception. */
static uint64_t *numbers_of(PyObject *sequence, uint32_t *ret_n)
{
	Py_ssize_t n = PySequence_Check(sequence) ? PySequence_Size(sequence) : -1;

	if (n < 0) {
		PyErr_Format(
		        PyExc_TypeError, "get: a list of sample numbers is needed, as [5], not %R", sequence);
		return NULL;
	}
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
		if (index && PyErr_Occurred())
			PyErr_Format(PyExc_IndexError, "sample %R: samples are counted from 0", index);
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
	struct open_loader *o;
	struct penstock_error error = {0};
	char *data;
	Py_ssize_t n;
	int rc;

	if (PyBytes_AsStringAndSize(bytes, &data, &n) < 0 || !(o = enter(l)))
		return NULL;
	if (n / (Py_ssize_t)sizeof(int64_t) > UINT32_MAX) {
		leave(l, o);
		return PyErr_Format(PyExc_ValueError, "order: a batch of too many numbers");
	}
	/* The call never waits, so the GIL is kept. */
	rc = penstock_loader_feed(o->loader, (const int64_t *)(const void *)data,
	        (uint32_t)((size_t)n / sizeof(int64_t)), &error);
	leave(l, o);
	if (rc < 0)
		return raise_error(l->state, rc, &error);
	return PyBool_FromLong(rc);
}

static PyObject *loader_get(PyObject *self, PyObject *sequence)
{
	struct loader_object *l = (struct loader_object *)self;
	struct open_loader *o;
	struct penstock_error error = {0};
	struct penstock_batch *batch = NULL;
	uint32_t n = 0;
	uint64_t *numbers = numbers_of(sequence, &n);
	int rc;

	if (!numbers || !(o = enter(l))) {
		PyMem_Free(numbers);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	rc = penstock_loader_get(o->loader, numbers, n, &batch, &error);
	Py_END_ALLOW_THREADS
	PyMem_Free(numbers);
	PyObject *result = NULL;
	if (rc == -ENODATA)
		raise_text(l->state->unknown_length, &error);
	else if (rc < 0)
		raise_error(l->state, rc, &error);
	else
		result = batch_new(l, o, batch);
	leave(l, o);
	return result;
}

static PyObject *loader_state_save(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct loader_object *l = (struct loader_object *)self;
	struct open_loader *o;
	struct penstock_error error = {0};

	if (!(o = enter(l)))
		return NULL;
	int rc = penstock_loader_state_save(o->loader, NULL, 0, &error);
	PyObject *bytes = rc < 0 ? NULL : PyBytes_FromStringAndSize(NULL, rc);
	if (bytes)
		rc = penstock_loader_state_save(o->loader, PyBytes_AsString(bytes), (size_t)rc, &error);
	leave(l, o);
	if (rc < 0) {
		Py_XDECREF(bytes);
		return raise_error(l->state, rc, &error);
	}
	PyObject *whole = bytes ? PyBytes_FromStringAndSize(PyBytes_AsString(bytes), rc) : NULL;
	Py_XDECREF(bytes);
	return whole;
}

static PyObject *loader_state_load(PyObject *self, PyObject *args)
{
	struct loader_object *l = (struct loader_object *)self;
	struct open_loader *o;
	struct penstock_error error = {0};
	unsigned int flags = 0;
	PyObject *bytes;
	char *data;
	Py_ssize_t n;
	int rc;

	if (!PyArg_ParseTuple(args, "O|I", &bytes, &flags) || PyBytes_AsStringAndSize(bytes, &data, &n) < 0 ||
	        !(o = enter(l)))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	rc = penstock_loader_state_load_as(o->loader, data, (size_t)n, flags, &error);
	Py_END_ALLOW_THREADS
	leave(l, o);
	if (rc == -EINVAL)
		return raise_text(l->state->stale, &error);
	return none_or_error(l->state, rc, &error);
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

/* (shard, reason) of each lost shard that is listed. */
static PyObject *lost_list(struct open_loader *o)
{
	PyObject *list = PyList_New(0);
	struct penstock_lost lost;

	for (uint64_t n = 0; list && penstock_loader_lost(o->loader, n, &lost) == 0; n++)
		list_take(&list, Py_BuildValue("(NN)", PyUnicode_DecodeFSDefault(lost.shard),
		                         PyUnicode_DecodeFSDefault(lost.reason)));
	return list;
}

static PyObject *stats_dict(struct loader_object *l, struct open_loader *o)
{
	struct penstock_error error = {0};
	struct penstock_stats s = {0};

	int rc = penstock_loader_stats(o->loader, &s, sizeof(s), &error);
	if (rc < 0)
		return raise_error(l->state, rc, &error);
	PyObject *stages = PyList_New(0);
	for (int i = 0; stages && i < PENSTOCK_NSTAGES; i++) {
		const struct penstock_stage *stage = &s.stages[i];

		list_take(&stages, Py_BuildValue("{s:s,s:I,s:d,s:d,s:d}", "name", stage->name, "threads",
		                           (unsigned)stage->threads, "busy", stage->busy, "waiting_input",
		                           stage->waiting_input, "waiting_output", stage->waiting_output));
	}
	if (!stages)
		return NULL;
	return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:d,s:N,s:d,s:d,s:d,s:s,s:s,s:K,s:d,s:s,s:s,s:N,s:K,s:N,s:"
	                     "K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:s,s:I}",
	        "samples", (unsigned long long)s.samples, "batches", (unsigned long long)s.batches, "bad",
	        (unsigned long long)s.bad, "bytes_read", (unsigned long long)s.bytes_read, "reread",
	        (unsigned long long)s.reread, "seconds", s.seconds, "stages", stages, "wait_storage",
	        s.wait_storage, "wait_read", s.wait_read, "wait_decode", s.wait_decode, "bottleneck",
	        s.bottleneck, "advice", s.advice, "copied_bytes", (unsigned long long)s.copied_bytes,
	        "copy_seconds", s.copy_seconds, "pixels", s.pixels, "jpeg_decoder", s.jpeg_decoder,
	        "gpu_decode", gpu_decode_dict(&s), "shards_lost", (unsigned long long)s.shards_lost, "lost",
	        lost_list(o), "blank_batches", (unsigned long long)s.blank_batches, "empty_epochs",
	        (unsigned long long)s.empty_epochs, "repeats", (unsigned long long)s.repeats, "truncated",
	        (unsigned long long)s.truncated, "tokens", (unsigned long long)s.tokens, "tokens_left_out",
	        (unsigned long long)s.tokens_left_out, "long_documents", (unsigned long long)s.long_documents,
	        "empty_documents", (unsigned long long)s.empty_documents, "tokens_warning", s.tokens_warning,
	        "added_batches", (unsigned)atomic_load(&l->nadded));
}

static PyObject *loader_stats(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct loader_object *l = (struct loader_object *)self;
	struct open_loader *o = NULL;

	/* Without enter(): may run during other calls, and during close(). */
	GUARDED (l) {
		o = l->open;
		if (o)
			atomic_fetch_add(&o->refs, 1);
	}
	if (!o) {
		refuse(CLOSED);
		return NULL;
	}
	PyObject *dict = stats_dict(l, o);
	let_go_loader(o);
	return dict;
}

/* A text that may grow from one call to the next. */
static PyObject *text_take(PyObject *self,
        int (*ask)(struct penstock_loader *loader, char *buf, size_t size, struct penstock_error *error))
{
	struct loader_object *l = (struct loader_object *)self;
	struct open_loader *o;
	struct penstock_error error = {0};
	PyObject *text = NULL;
	char *buf = NULL;
	int rc;

	if (!(o = enter(l)))
		return NULL;
	do {
		rc = ask(o->loader, NULL, 0, &error);
		if (rc < 0)
			break;
		size_t cap = (size_t)rc * 2 + 1;
		PyMem_Free(buf);
		buf = PyMem_Malloc(cap);
		rc = buf ? ask(o->loader, buf, cap, &error) : -ENOMEM;
	} while (rc == -ENOBUFS);
	if (rc >= 0)
		text = PyUnicode_DecodeUTF8(buf, rc, "surrogateescape");
	PyMem_Free(buf);
	leave(l, o);
	return rc < 0 ? raise_error(l->state, rc, &error) : text;
}

static PyObject *loader_profile(PyObject *self, PyObject *Py_UNUSED(unused))
{
	return text_take(self, penstock_loader_profile);
}

static PyObject *loader_fingerprint(PyObject *self, PyObject *Py_UNUSED(unused))
{
	return text_take(self, penstock_loader_fingerprint);
}

static PyObject *loader_close(PyObject *self, PyObject *Py_UNUSED(unused))
{
	struct map *map = close_now((struct loader_object *)self);
	int rc = 0;

	if (map && !map_is_inside(NULL))
		rc = map_wait_closed(map);
	if (map)
		map_unref(map);
	return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef loader_methods[] = {
        {"next", loader_next, METH_NOARGS, "The next Batch, or None at the end of an epoch."},
        {"set_epoch", loader_set_epoch, METH_O, "Moves to the beginning of an epoch."},
        {"get", loader_get, METH_O, "get(numbers): a Batch of these samples."},
        {"feed", loader_feed, METH_O,
                "feed(numbers): the next batch's sample numbers, as bytes of int64; b\"\": the end."},
        {"length", loader_length, METH_O, "length(epoch): samples and batches of this rank, samples of all."},
        {"state_save", loader_state_save, METH_NOARGS, "The loader's position, as bytes."},
        {"state_load", loader_state_load, METH_VARARGS,
                "Moves to the position of a saved state; flags: how the state may differ."},
        {"stats", loader_stats, METH_NOARGS, "Counts, and what each stage's threads did."},
        {"profile", loader_profile, METH_NOARGS, "What the batches held, as JSON (option profile)."},
        {"fingerprint", loader_fingerprint, METH_NOARGS, "A fingerprint of data and order, as JSON."},
        {"close", loader_close, METH_NOARGS, "Ends the loader once no batch is in use."},
        {"__enter__", loader_claim, METH_NOARGS, "Until the end of the `with` other threads are refused."},
        {"__exit__", loader_unclaim, METH_VARARGS, "Ends what __enter__ began."},
        {NULL, NULL, 0, NULL},
};

static char type_doc[] = "Loader(shards, options, fields[, map[, source]]): see penstock.Loader.";

static PyType_Slot loader_slots[] = {
        {Py_tp_new, loader_new},
        {Py_tp_dealloc, loader_dealloc},
        {Py_tp_traverse, loader_traverse},
        {Py_tp_clear, loader_clear},
        {Py_tp_finalize, loader_finalize},
        {Py_tp_methods, loader_methods},
        {Py_tp_doc, type_doc},
        {0, NULL},
};

PyType_Spec loader_spec = {"penstock._penstock.Loader", sizeof(struct loader_object), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, loader_slots};
