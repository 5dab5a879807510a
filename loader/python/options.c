#include "module.h"

#include "option/option.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#define BUDGET_CAPSULE "penstock.budget"

/* The text in the file system's encoding (UTF-8, as a rule), in bytes that `keep` holds. NULL: an
 * exception. */
static const char *text_keep(PyObject *keep, PyObject *value, const char *what)
{
	PyObject *bytes = NULL;

	if (PyUnicode_FSConverter(value, &bytes) == 0) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError, "%s: a string is needed, not %R", what, value);
		return NULL;
	}
	const char *text = PyList_Append(keep, bytes) < 0 ? NULL : PyBytes_AsString(bytes);
	Py_DECREF(bytes);
	return text;
}

/* Raises a ConfigError; false. */
static bool value_refuse(const char *fmt, ...)
{
	PyObject *module = PyImport_ImportModule("penstock.errors"), *text, *type;
	va_list ap;

	va_start(ap, fmt);
	text = PyUnicode_FromFormatV(fmt, ap);
	va_end(ap);
	type = module ? PyObject_GetAttrString(module, "ConfigError") : NULL;
	if (text && type)
		PyErr_SetObject(type, text);
	Py_XDECREF(type);
	Py_XDECREF(text);
	Py_XDECREF(module);
	return false;
}

/* A list of the words, or NULL, an exception. */
static PyObject *words_list(const char *const *words)
{
	PyObject *list = PyList_New(0);

	for (size_t i = 0; list && words[i]; i++)
		list_take(&list, PyUnicode_FromString(words[i]));
	return list;
}

/* The question for the most similar of `names`, which are released, as penstock.errors.likely() gives it;
 * NULL: an exception. */
static PyObject *likely(PyObject *value, PyObject *names)
{
	PyObject *module = names ? PyImport_ImportModule("penstock.errors") : NULL;
	PyObject *like = module ? PyObject_CallMethod(module, "likely", "OO", value, names) : NULL;

	Py_XDECREF(module);
	Py_XDECREF(names);
	return like;
}

/* The number that a word stands for; -1: an exception. */
static long word_number(const struct ps_option *m, PyObject *value)
{
	PyObject *utf8 = PyUnicode_AsUTF8String(value);
	const char *word = utf8 ? PyBytes_AsString(utf8) : NULL;
	char all[512] = "";

	if (!word)
		return -1;
	for (long i = 0; m->words[i]; i++) {
		if (strcmp(m->words[i], word) == 0) {
			Py_DECREF(utf8);
			return i;
		}
		PyOS_snprintf(
		        all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "", m->words[i]);
	}
	Py_DECREF(utf8);
	PyObject *like = likely(value, words_list(m->words));
	if (like)
		value_refuse("%s: %R is none of: %s%U", m->name, value, all, like);
	Py_XDECREF(like);
	return -1;
}

static bool number_set(void *to, const struct ps_option *m, PyObject *value)
{
	PyObject *index = PyNumber_Index(value);
	int overflow = 0;
	long long signed_value = index ? PyLong_AsLongLongAndOverflow(index, &overflow) : -1;
	unsigned long long v = (unsigned long long)signed_value;
	bool fits = true;

	if (!index) {
		PyErr_Format(PyExc_TypeError, "%s: a whole number is needed, not %R", m->name, value);
		return false;
	}
	if (overflow > 0 && m->type == PS_OPTION_U64) {
		v = PyLong_AsUnsignedLongLong(index);
		fits = !PyErr_Occurred();
		PyErr_Clear();
	} else {
		fits = overflow == 0 && (m->type == PS_OPTION_I64 || signed_value >= 0) &&
		       (m->type != PS_OPTION_U32 || v <= UINT32_MAX);
	}
	Py_DECREF(index);
	if (!fits)
		return value_refuse("%s: %R is out of range", m->name, value);
	if (m->type == PS_OPTION_U32)
		*(uint32_t *)to = (uint32_t)v;
	else
		*(uint64_t *)to = v; /* I64 has the same bits */
	return true;
}

static bool double_get(const struct ps_option *m, PyObject *value, double *ret)
{
	*ret = PyFloat_AsDouble(value);
	if (*ret != -1 || !PyErr_Occurred())
		return true;
	PyErr_Format(PyExc_TypeError, "%s: a number is needed, not %R", m->name, value);
	return false;
}

/* One number for all channels, or one for each. */
static bool triple_set(float *to, const struct ps_option *m, PyObject *value)
{
	double d;

	if (!PySequence_Check(value)) {
		if (!double_get(m, value, &d))
			return false;
		to[0] = to[1] = to[2] = (float)d;
		return true;
	}
	if (PySequence_Size(value) != 3)
		return value_refuse("%s: one number or three are needed, not %R", m->name, value);
	for (Py_ssize_t i = 0; i < 3; i++) {
		PyObject *item = PySequence_GetItem(value, i);
		bool ok = item && double_get(m, item, &d);

		Py_XDECREF(item);
		if (!ok)
			return false;
		to[i] = (float)d;
	}
	return true;
}

/* Sets ndim and shape of a field. */
static bool shape_set(struct penstock_field *field, const struct ps_option *m, PyObject *value)
{
	static const struct ps_option item = {.name = "shape", .type = PS_OPTION_U64};
	Py_ssize_t n = PySequence_Size(value);

	if (n < 0 || n > (Py_ssize_t)(sizeof(field->shape) / sizeof(field->shape[0])))
		return value_refuse("%s: must be at most %zu numbers, not %R", m->name,
		        sizeof(field->shape) / sizeof(field->shape[0]), value);
	field->ndim = n == 0 && field->kind == PENSTOCK_NPY ? PENSTOCK_NDIM_SCALAR : (uint32_t)n;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *number = PySequence_GetItem(value, i);
		bool ok = number && number_set(&field->shape[i], &item, number);

		Py_XDECREF(number);
		if (!ok)
			return false;
	}
	return true;
}

/* Sets a list of weights, which `keep` holds, and their number. */
static bool weights_set(
        const double **to, uint32_t *ret_n, const struct ps_option *m, PyObject *value, PyObject *keep)
{
	Py_ssize_t n = PySequence_Size(value);
	PyObject *bytes = n < 0 ? NULL : PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(double));
	double *numbers = bytes ? (double *)(void *)PyBytes_AsString(bytes) : NULL;
	bool ok = numbers && PyList_Append(keep, bytes) == 0;

	Py_XDECREF(bytes);
	for (Py_ssize_t i = 0; ok && i < n; i++) {
		PyObject *item = PySequence_GetItem(value, i);

		ok = item && double_get(m, item, &numbers[i]);
		Py_XDECREF(item);
	}
	*to = numbers;
	*ret_n = (uint32_t)n;
	return ok;
}

/* Sets mix_stages: tuples of start, flags and weights (mix.py). */
static bool stages_set(
        struct penstock_options *options, const struct ps_option *m, PyObject *value, PyObject *keep)
{
	static const struct ps_option start = {.name = "mix_stages", .type = PS_OPTION_U64};
	Py_ssize_t n = PySequence_Size(value);
	PyObject *bytes =
	        n < 0 ? NULL : PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(*options->mix_stages));
	struct penstock_mix_stage *stages = bytes ? (void *)PyBytes_AsString(bytes) : NULL;
	bool ok = stages && PyList_Append(keep, bytes) == 0;

	Py_XDECREF(bytes);
	for (Py_ssize_t i = 0; ok && i < n; i++) {
		PyObject *item = PySequence_GetItem(value, i), *number, *weights;
		unsigned int flags = 0;
		uint32_t before = options->nmix;

		stages[i] = (struct penstock_mix_stage){0};
		ok = item && PyArg_ParseTuple(item, "OIO", &number, &flags, &weights) &&
		     number_set(&stages[i].start, &start, number) &&
		     weights_set(&stages[i].weights, &options->nmix, m, weights, keep);
		if (ok && i > 0 && options->nmix != before)
			ok = value_refuse("%s: stages with different numbers of weights: %R", m->name, value);
		stages[i].flags = flags;
		Py_XDECREF(item);
	}
	options->mix_stages = stages;
	options->nmix_stages = (uint32_t)n;
	return ok;
}

/* Sets mix_names; `keep` holds them. */
static bool names_set(
        struct penstock_options *options, const struct ps_option *m, PyObject *value, PyObject *keep)
{
	Py_ssize_t n = PySequence_Size(value);
	PyObject *bytes = n < 0 ? NULL : PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(char *));
	const char **names = bytes ? (const char **)(void *)PyBytes_AsString(bytes) : NULL;
	bool ok = names && PyList_Append(keep, bytes) == 0;

	Py_XDECREF(bytes);
	for (Py_ssize_t i = 0; ok && i < n; i++) {
		PyObject *item = PySequence_GetItem(value, i);

		ok = item && (names[i] = text_keep(keep, item, m->name));
		Py_XDECREF(item);
	}
	options->mix_names = names;
	return ok;
}

/* Sets an array of 8-byte words, and the next member, which is its length. The words are given as bytes in
 * native byte order; `keep` holds the bytes. */
static bool words_set(char *to, const struct ps_option *m, PyObject *value, PyObject *keep)
{
	const void **array = (const void **)(void *)to;
	uint64_t *count = (uint64_t *)(void *)(to + sizeof(*array));
	Py_ssize_t n;
	char *data;

	if (PyBytes_AsStringAndSize(value, &data, &n) < 0 || PyList_Append(keep, value) < 0)
		return false;
	if (n % 8)
		return value_refuse("%s: words of 8 bytes are needed", m->name);
	*array = data;
	*count = (uint64_t)n / 8;
	return true;
}

/* Sets an option in `base`, a struct penstock_options or penstock_field. */
static bool member_set(char *base, const struct ps_option *m, PyObject *value, PyObject *keep)
{
	void *to = base + m->at;

	if (value == Py_None)
		return true; /* the default */
	if (m->words && PyUnicode_Check(value)) {
		long n = word_number(m, value);

		*(uint32_t *)to = (uint32_t)n;
		return n >= 0;
	}
	switch (m->type) {
	case PS_OPTION_U32:
	case PS_OPTION_U64:
	case PS_OPTION_I64:
		return number_set(to, m, value);
	case PS_OPTION_F64:
		return double_get(m, value, to);
	case PS_OPTION_F32X3:
		return triple_set(to, m, value);
	case PS_OPTION_TEXT:
		return (*(const char **)to = text_keep(keep, value, m->name)) != NULL;
	case PS_OPTION_SHAPE:
		return shape_set((struct penstock_field *)(void *)base, m, value);
	case PS_OPTION_MIX: {
		struct penstock_options *options = (struct penstock_options *)(void *)base;

		return weights_set(&options->mix, &options->nmix, m, value, keep);
	}
	case PS_OPTION_STAGES:
		return stages_set((struct penstock_options *)(void *)base, m, value, keep);
	case PS_OPTION_NAMES:
		return names_set((struct penstock_options *)(void *)base, m, value, keep);
	case PS_OPTION_WORDS:
		return words_set(to, m, value, keep);
	case PS_OPTION_BUDGET:
		/* The loader takes a reference of its own. */
		*(struct penstock_budget **)to = PyCapsule_GetPointer(value, BUDGET_CAPSULE);
		return !PyErr_Occurred();
	case PS_OPTION_BLOB: {
		char *data;
		Py_ssize_t n;

		if (PyBytes_AsStringAndSize(value, &data, &n) < 0 || PyList_Append(keep, value) < 0)
			return false;
		((struct penstock_options *)(void *)base)->state = data;
		((struct penstock_options *)(void *)base)->state_nbytes = (size_t)n;
		return true;
	}
	}
	return false;
}

/* Words of torch's DataLoader, WebDataset and DALI that are not spelled like ours, and the answers. */
static const char *const elsewhere[][2] = {
        {"batch_size", "did you mean \"batch\"?"},
        {"num_workers", "did you mean \"threads\"?"},
        {"workers", "did you mean \"threads\"?"},
        {"num_threads", "did you mean \"threads\"?"},
        {"prefetch_factor", "did you mean \"depth\"?"},
        {"prefetch_queue_depth", "did you mean \"depth\"?"},
        {"world_size", "did you mean \"world\"?"},
        {"num_shards", "did you mean \"world\"?"},
        {"shard_id", "did you mean \"rank\"?"},
        {"shuffle", "did you mean \"order\"? Batches are shuffled by default; order=\"none\" ends that"},
        {"shardshuffle", "did you mean \"order\"? Shards are shuffled by default; order=\"none\" ends that"},
        {"shuffle_buffer", "did you mean \"shuffle_window\"?"},
        {"initial_fill", "did you mean \"shuffle_window\"?"},
        {"drop_last", "did you mean end=\"drop_last\"?"},
        {"sampler", "did you mean \"order\"? It takes a sampler"},
        {"batch_sampler", "did you mean \"order\"? It takes a batch sampler"},
        {"resampled", "did you mean \"replacement\", with weights=? Or repeat=, for passes of an epoch"},
        {"generator", "did you mean \"seed\"?"},
        {"collate_fn", "did you mean \"transform\"? It gets the batch, which C has put together"},
        {"handler", "did you mean on_error=\"skip\"?"},
        {"empty_check", "an epoch without samples gives a warning; if indexes show it, opening is an error"},
        {"nodesplitter", "ranks share the samples by rank= and world=, which launchers set by default"},
        {"workersplitter", "there are no worker processes: \"threads\" share one loader"},
        {"worker_init_fn", "there are no worker processes: \"threads\" share one loader"},
        {"persistent_workers", "there are no worker processes: \"threads\" live as long as the loader"},
        {"multiprocessing_context", "there are no worker processes: \"threads\" share one loader"},
        {"timeout", "there are no worker processes to wait for; --timeout of the mount is for slow storage"},
        {"pin_memory", "with device=\"cuda\" batches go through pinned memory by themselves"},
        {"pin_memory_device", "did you mean \"device\"?"},
        {"cache_dir", "the mount has the cache: penstock mount --cache-dir"},
};

static void member_refuse(const char *name, bool is_field)
{
	const char *kind = is_field ? "field option" : "option";
	const struct ps_option *options = is_field ? ps_field_options : ps_loader_options;
	PyObject *names, *value, *like = NULL;

	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(*elsewhere); i++) {
		if (!is_field && strcmp(name, elsewhere[i][0]) == 0) {
			PyErr_Format(
			        PyExc_TypeError, "there is no %s \"%s\"; %s", kind, name, elsewhere[i][1]);
			return;
		}
	}
	names = PyList_New(0);
	for (size_t i = 0; names && i < (is_field ? ps_n_field_options : ps_n_loader_options); i++)
		if (!options[i].gone)
			list_take(&names, PyUnicode_FromString(options[i].name));
	value = PyUnicode_FromString(name);
	if (value)
		like = likely(value, names);
	else
		Py_XDECREF(names);
	if (like && PyUnicode_GetLength(like) > 0)
		PyErr_Format(PyExc_TypeError, "there is no %s \"%s\"%U", kind, name, like);
	else if (like)
		PyErr_Format(PyExc_TypeError, "there is no %s \"%s\"; help(penstock.%s) lists them", kind,
		        name, is_field ? "Image" : "Loader");
	Py_XDECREF(value);
	Py_XDECREF(like);
}

/* Stores every entry of a dict in a struct. A field's name and kind were read before. */
static bool dict_set(char *base, PyObject *dict, PyObject *keep, bool is_field)
{
	PyObject *key, *value;
	Py_ssize_t at = 0;

	while (PyDict_Next(dict, &at, &key, &value)) {
		PyObject *utf8 = PyUnicode_AsUTF8String(key);
		const char *name = utf8 ? PyBytes_AsString(utf8) : NULL;
		const struct ps_option *m = !name      ? NULL
		                            : is_field ? ps_field_option(name, strlen(name))
		                                       : ps_loader_option(name, strlen(name));
		bool ok = name && is_field && (strcmp(name, "name") == 0 || strcmp(name, "kind") == 0);

		if (m)
			ok = member_set(base, m, value, keep);
		else if (name && !ok)
			member_refuse(name, is_field);
		Py_XDECREF(utf8);
		if (!ok)
			return false;
	}
	return true;
}

static bool field_parse(struct penstock_field *field, PyObject *dict, PyObject *keep)
{
	static const struct ps_option kind_member = {
	        .name = "kind", .type = PS_OPTION_U32, .words = ps_kind_words};
	PyObject *name = PyDict_Check(dict) ? PyDict_GetItemString(dict, "name") : NULL;
	PyObject *kind = name ? PyDict_GetItemString(dict, "kind") : NULL;
	uint32_t kind_number = 0;

	if (!name || !kind) {
		PyErr_SetString(PyExc_TypeError, "a field is a dict with a name and a kind");
		return false;
	}
	const char *text = text_keep(keep, name, "a field's name");
	if (!text || !member_set((char *)&kind_number, &kind_member, kind, keep))
		return false;
	penstock_field_init(field, sizeof(*field), text, kind_number);
	return dict_set((char *)field, dict, keep, true);
}

static bool shards_parse(struct parsed_options *p, PyObject *shards)
{
	Py_ssize_t n = PySequence_Size(shards);

	if (n < 0)
		return false;
	p->shards = PyMem_Calloc((size_t)n + 1, sizeof(*p->shards));
	if (!p->shards)
		return PyErr_NoMemory() != NULL;
	for (; p->nshards < (size_t)n; p->nshards++) {
		PyObject *shard = PySequence_GetItem(shards, (Py_ssize_t)p->nshards);

		p->shards[p->nshards] = shard ? text_keep(p->keep, shard, "a shard") : NULL;
		Py_XDECREF(shard);
		if (!p->shards[p->nshards])
			return false;
	}
	return true;
}

static bool fields_parse(struct parsed_options *p, PyObject *fields)
{
	if (fields == Py_None)
		return true;
	Py_ssize_t n = PySequence_Size(fields);
	if (n < 0)
		return false;
	p->fields = PyMem_Calloc((size_t)n + 1, sizeof(*p->fields));
	if (!p->fields)
		return PyErr_NoMemory() != NULL;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *dict = PySequence_GetItem(fields, i);
		bool ok = dict && field_parse(&p->fields[i], dict, p->keep);

		Py_XDECREF(dict);
		if (!ok)
			return false;
	}
	p->options.fields = p->fields;
	p->options.nfields = (uint32_t)n;
	return true;
}

bool options_parse(struct parsed_options *p, PyObject *shards, PyObject *options, PyObject *fields)
{
	*p = (struct parsed_options){.keep = PyList_New(0)};
	if (!p->keep)
		return false;
	penstock_options_init(&p->options, sizeof(p->options));
	if (!PyDict_Check(options)) {
		PyErr_SetString(PyExc_TypeError, "options: a dict is needed");
	} else if (shards_parse(p, shards) && fields_parse(p, fields) &&
	           dict_set((char *)&p->options, options, p->keep, false)) {
		return true;
	}
	options_free(p);
	return false;
}

void options_free(struct parsed_options *p)
{
	PyMem_Free(p->shards);
	PyMem_Free(p->fields);
	Py_CLEAR(p->keep);
}

static void budget_capsule_free(PyObject *capsule)
{
	penstock_budget_free(PyCapsule_GetPointer(capsule, BUDGET_CAPSULE));
}

PyObject *budget_new(PyObject *Py_UNUSED(module), PyObject *nbytes)
{
	unsigned long long n = PyLong_AsUnsignedLongLong(nbytes);

	if (n == (unsigned long long)-1 && PyErr_Occurred())
		return NULL;
	struct penstock_budget *budget = penstock_budget_new(n);
	if (!budget)
		return PyErr_NoMemory();
	PyObject *capsule = PyCapsule_New(budget, BUDGET_CAPSULE, budget_capsule_free);
	if (!capsule)
		penstock_budget_free(budget);
	return capsule;
}

PyObject *budget_used(PyObject *Py_UNUSED(module), PyObject *capsule)
{
	struct penstock_budget *budget = PyCapsule_GetPointer(capsule, BUDGET_CAPSULE);

	return budget ? PyLong_FromUnsignedLongLong(penstock_budget_used(budget)) : NULL;
}

/* The kinds of field that have an option, a tuple of their words. */
static PyObject *kinds_of(const struct ps_option *option)
{
	PyObject *list = PyList_New(0);

	for (size_t i = 0; list && ps_kind_words[i]; i++)
		if (option->kinds & 1u << i)
			list_take(&list, PyUnicode_FromString(ps_kind_words[i]));
	PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
	Py_XDECREF(list);
	return tuple;
}

/* The default that Python shows: None if the default is a rule or nothing. */
static PyObject *default_of(const struct ps_option *option)
{
	if (option->unset)
		return Py_NewRef(Py_None);
	if (option->words)
		return PyUnicode_FromString(option->words[(size_t)option->initial]);
	switch (option->type) {
	case PS_OPTION_U32:
	case PS_OPTION_U64:
	case PS_OPTION_I64:
		return PyLong_FromLongLong((long long)option->initial);
	case PS_OPTION_F64:
		return PyFloat_FromDouble(option->initial);
	default:
		return Py_NewRef(Py_None);
	}
}

/* A dict by name: a tuple of words (None: the option has none), type, default, kinds of field, and
 * description. */
static PyObject *names_of(const struct ps_option *options, size_t n)
{
	static const char *const types[] = {[PS_OPTION_U32] = "int",
	        [PS_OPTION_U64] = "int",
	        [PS_OPTION_I64] = "int",
	        [PS_OPTION_F64] = "float",
	        [PS_OPTION_F32X3] = "floats",
	        [PS_OPTION_TEXT] = "str",
	        [PS_OPTION_SHAPE] = "ints",
	        [PS_OPTION_MIX] = "floats",
	        [PS_OPTION_STAGES] = "stages",
	        [PS_OPTION_NAMES] = "names",
	        [PS_OPTION_WORDS] = "bytes",
	        [PS_OPTION_BLOB] = "bytes",
	        [PS_OPTION_BUDGET] = "Budget"};
	PyObject *dict = PyDict_New();
	char text[512];

	for (size_t i = 0; dict && i < n; i++) {
		if (options[i].gone)
			continue;
		PyObject *words = options[i].words ? words_list(options[i].words) : Py_NewRef(Py_None),
		         *entry;

		ps_option_describe(&options[i], text, sizeof(text));
		PyObject *initial = default_of(&options[i]), *kinds = kinds_of(&options[i]);

		const char *type = types[options[i].type];

		entry = words ? Py_BuildValue("(NsNNs)", words, type, initial, kinds, text) : NULL;
		if (!entry || PyDict_SetItemString(dict, options[i].name, entry) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(entry);
	}
	return dict;
}

/* A dict of the options that have gone: what to do instead. */
static PyObject *gone_of(const struct ps_option *options, size_t n)
{
	PyObject *dict = PyDict_New();

	for (size_t i = 0; dict && i < n; i++) {
		PyObject *text = options[i].gone ? PyUnicode_FromString(options[i].gone) : NULL;

		if (options[i].gone && (!text || PyDict_SetItemString(dict, options[i].name, text) < 0))
			Py_CLEAR(dict);
		Py_XDECREF(text);
	}
	return dict;
}

PyObject *options_names(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
	PyObject *options = names_of(ps_loader_options, ps_n_loader_options);
	PyObject *fields = names_of(ps_field_options, ps_n_field_options);

	PyObject *gone = gone_of(ps_field_options, ps_n_field_options);

	if (!options || !fields || !gone) {
		Py_XDECREF(options);
		Py_XDECREF(fields);
		Py_XDECREF(gone);
		return NULL;
	}
	return Py_BuildValue("(NNN)", options, fields, gone);
}
