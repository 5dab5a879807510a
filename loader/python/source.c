#include "module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Calls of the source ------------------------------------------------------------------------------------ */

/* Calls a method of the source, which returns (0, value, ...) or (errno, text), with the GIL held. Returns the
 * tuple, or NULL with *ret_rc and the error set. */
static PyObject *answer_get(
        PyObject *source, const char *method, PyObject *args, int *ret_rc, struct penstock_error *error)
{
	PyObject *function = args ? PyObject_GetAttrString(source, method) : NULL;
	PyObject *answer = function ? PyObject_CallObject(function, args) : NULL;
	PyObject *first = answer && PyTuple_Check(answer) ? PyTuple_GetItem(answer, 0) : NULL;
	long code = first ? PyLong_AsLong(first) : -1;
	const char *text;

	*ret_rc = 0;
	Py_XDECREF(function);
	if (code == 0)
		return answer;
	*ret_rc = -ENOMEM;
	if (code > 0) {
		PyObject *item = PyTuple_GetItem(answer, 1),
		         *bytes = item ? PyUnicode_AsUTF8String(item) : NULL;

		text = bytes ? PyBytes_AsString(bytes) : NULL;
		if (text) {
			*ret_rc = (int)-code;
			PyOS_snprintf(error->text, sizeof(error->text), "%s", text);
		}
		Py_XDECREF(bytes);
	}
	if (PyErr_Occurred()) /* the package's own code catches all that a source raises */
		PyErr_WriteUnraisable(source);
	Py_XDECREF(answer);
	return NULL;
}

/* Begins a call of Python code for the map's source. NULL: it is closed. */
static PyObject *call_begin(struct map *m, PyGILState_STATE *gil, struct map **outer)
{
	if (!map_enter(m))
		return NULL;
	*gil = PyGILState_Ensure();
	*outer = map_inside_set(m);
	pthread_mutex_lock(&m->lock);
	PyObject *source = m->source ? Py_NewRef(m->source) : NULL;
	pthread_mutex_unlock(&m->lock);
	if (source)
		return source;
	map_inside_set(*outer);
	PyGILState_Release(*gil);
	map_exit(m);
	return NULL;
}

static void call_end(struct map *m, PyObject *source, PyGILState_STATE gil, struct map *outer)
{
	Py_DECREF(source); /* may be the last reference */
	map_inside_set(outer);
	PyGILState_Release(gil);
	map_exit(m);
}

static int closed(struct penstock_error *error)
{
	PyOS_snprintf(error->text, sizeof(error->text), "the loader is closed");
	return -ECANCELED;
}

int source_count(void *ctx, const char *unit, uint64_t *ret_rows, struct penstock_error *error)
{
	struct map *m = ctx, *outer;
	PyGILState_STATE gil;
	PyObject *source = call_begin(m, &gil, &outer);
	int rc;

	if (!source)
		return closed(error);
	PyObject *args = Py_BuildValue("(N)", PyUnicode_DecodeFSDefault(unit));
	PyObject *answer = answer_get(source, "count", args, &rc, error);
	if (answer) {
		PyObject *rows = PyTuple_GetItem(answer, 1);

		*ret_rows = rows ? PyLong_AsUnsignedLongLong(rows) : 0;
		if (PyErr_Occurred()) {
			PyErr_WriteUnraisable(source);
			rc = -EINVAL;
		}
	}
	Py_XDECREF(answer);
	Py_XDECREF(args);
	call_end(m, source, gil, outer);
	return rc;
}

/* Streams ------------------------------------------------------------------------------------------------ */

/* A stream, schema or array of the source, whose functions may need the GIL: they are called only between
 * map_enter() and map_exit(), without the GIL. After the interpreter's end they are not freed. */
struct stream {
	struct ArrowArrayStream inner;
	struct map *map;
};

struct array {
	struct ArrowArray inner;
	struct map *map;
};

struct schema {
	struct ArrowSchema inner;
	struct map *map;
};

static bool inner_begin(struct map *m, struct map **outer)
{
	if (!map_enter(m))
		return false;
	*outer = map_inside_set(m);
	return true;
}

static void inner_end(struct map *m, struct map *outer)
{
	map_inside_set(outer);
	map_exit(m);
}

static void array_release(struct ArrowArray *a)
{
	struct array *w = a->private_data;
	struct map *outer;

	if (inner_begin(w->map, &outer)) {
		w->inner.release(&w->inner);
		inner_end(w->map, outer);
		free(w);
	}
	a->release = NULL;
}

static void schema_release(struct ArrowSchema *s)
{
	struct schema *w = s->private_data;
	struct map *outer;

	if (inner_begin(w->map, &outer)) {
		w->inner.release(&w->inner);
		inner_end(w->map, outer);
		free(w);
	}
	s->release = NULL;
}

static int stream_schema(struct ArrowArrayStream *s, struct ArrowSchema *ret)
{
	struct stream *w = s->private_data;
	struct schema *held = malloc(sizeof(*held));
	struct map *outer;
	int rc = held ? 0 : ENOMEM;

	if (rc == 0 && !inner_begin(w->map, &outer))
		rc = ECANCELED;
	if (rc != 0) {
		free(held);
		return rc;
	}
	rc = w->inner.get_schema(&w->inner, ret);
	inner_end(w->map, outer);
	if (rc != 0 || !ret->release) {
		free(held);
		return rc;
	}
	*held = (struct schema){.inner = *ret, .map = w->map};
	ret->release = schema_release;
	ret->private_data = held;
	return 0;
}

static int stream_next(struct ArrowArrayStream *s, struct ArrowArray *ret)
{
	struct stream *w = s->private_data;
	struct array *held = malloc(sizeof(*held));
	struct map *outer;
	int rc = held ? 0 : ENOMEM;

	if (rc == 0 && !inner_begin(w->map, &outer))
		rc = ECANCELED;
	if (rc != 0) {
		free(held);
		return rc;
	}
	rc = w->inner.get_next(&w->inner, ret);
	inner_end(w->map, outer);
	if (rc != 0 || !ret->release) {
		free(held);
		return rc;
	}
	*held = (struct array){.inner = *ret, .map = w->map};
	ret->release = array_release;
	ret->private_data = held;
	return 0;
}

static const char *stream_error(struct ArrowArrayStream *s)
{
	struct stream *w = s->private_data;
	const char *text = NULL;
	struct map *outer;

	if (w->inner.get_last_error && inner_begin(w->map, &outer)) {
		text = w->inner.get_last_error(&w->inner);
		inner_end(w->map, outer);
	}
	return text;
}

static void stream_release(struct ArrowArrayStream *s)
{
	struct stream *w = s->private_data;
	struct map *outer;

	if (inner_begin(w->map, &outer)) {
		w->inner.release(&w->inner);
		inner_end(w->map, outer);
		free(w);
	}
	s->release = NULL;
}

/* Moves the stream out of its capsule. */
static int stream_take(struct map *m, PyObject *capsule, struct ArrowArrayStream *ret)
{
	struct ArrowArrayStream *from = capsule ? PyCapsule_GetPointer(capsule, "arrow_array_stream") : NULL;
	struct stream *w = from && from->release ? malloc(sizeof(*w)) : NULL;

	if (!w)
		return -ENOMEM;
	*w = (struct stream){.inner = *from, .map = m};
	from->release = NULL;
	*ret = (struct ArrowArrayStream){.get_schema = stream_schema,
	        .get_next = stream_next,
	        .get_last_error = stream_error,
	        .release = stream_release,
	        .private_data = w};
	return 0;
}

int source_read(void *ctx, const char *unit, uint64_t row, const char *const *members, uint32_t nmembers,
        struct ArrowArrayStream *ret_stream, uint64_t *ret_nbytes, struct penstock_error *error)
{
	struct map *m = ctx, *outer;
	PyGILState_STATE gil;
	PyObject *source = call_begin(m, &gil, &outer);
	int rc;

	if (!source)
		return closed(error);
	PyObject *names = PyList_New(0);
	for (uint32_t i = 0; names && i < nmembers; i++)
		list_take(&names, PyUnicode_DecodeFSDefault(members[i]));
	PyObject *args = names ? Py_BuildValue("(NNK)", PyUnicode_DecodeFSDefault(unit), names,
	                                 (unsigned long long)row)
	                       : NULL;
	PyObject *answer = answer_get(source, "read", args, &rc, error);
	if (answer) {
		PyObject *held = PyTuple_GetItem(answer, 2);

		*ret_nbytes = held ? PyLong_AsUnsignedLongLong(held) : 0;
		if (!PyErr_Occurred())
			rc = stream_take(m, PyTuple_GetItem(answer, 1), ret_stream);
		if (PyErr_Occurred()) {
			PyErr_WriteUnraisable(source);
			rc = -EINVAL;
		}
	}
	Py_XDECREF(answer);
	Py_XDECREF(args);
	call_end(m, source, gil, outer);
	return rc;
}

PyObject *shards_expand(PyObject *module, PyObject *pattern)
{
	struct penstock_error error = {0};
	PyObject *bytes = NULL, *list = NULL;
	char *names = NULL;
	size_t nbytes = 0;
	int rc;

	if (PyUnicode_FSConverter(pattern, &bytes) == 0)
		return NULL;
	const char *text = PyBytes_AsString(bytes);
	Py_BEGIN_ALLOW_THREADS
	rc = penstock_shards_expand(text, &names, &nbytes, &error);
	Py_END_ALLOW_THREADS
	Py_DECREF(bytes);
	if (rc < 0)
		return raise_error(PyModule_GetState(module), rc, &error);
	list = PyList_New(0);
	for (size_t at = 0; list && at < nbytes; at += strlen(names + at) + 1)
		list_take(&list, PyUnicode_DecodeFSDefault(names + at));
	free(names);
	return list;
}
