#include "module.h"

#include <string.h>

PyObject *tensor_new(struct batch_object *batch, struct held_batch *held, const struct penstock_tensor *of)
{
	if (!dtype_name(of->dtype) || of->ndim > PENSTOCK_MAX_DIMS)
		return PyErr_Format(batch->state->error,
		        "libpenstock %s gives a tensor (dtype %u, %u dimensions) that this module does not "
		        "know: "
		        "install the module that came with it",
		        penstock_version(), (unsigned)of->dtype, (unsigned)of->ndim);
	PyTypeObject *type = (PyTypeObject *)batch->state->tensor_type;
	struct tensor_object *t = (struct tensor_object *)PyType_GenericAlloc(type, 0);
	if (!t)
		return NULL;
	Py_INCREF((PyObject *)batch);
	t->batch = batch;
	t->held = held_ref(held);
	t->data = of->data;
	t->host = of->host;
	t->memory = of->memory;
	t->device = of->device;
	t->dtype = of->dtype;
	t->ndim = (int)of->ndim;
	int64_t stride = 1;
	for (int i = (int)of->ndim - 1; i >= 0; i--) {
		t->shape[i] = (int64_t)of->shape[i];
		t->strides[i] = stride;
		stride *= t->shape[i];
	}
	return (PyObject *)t;
}

static void tensor_dealloc(PyObject *self)
{
	struct tensor_object *t = (struct tensor_object *)self;
	PyTypeObject *type = Py_TYPE(self);

	if (t->batch) {
		let_go(t->held);
		Py_DECREF(t->batch);
	}
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *tensor_shape(PyObject *self, void *Py_UNUSED(unused))
{
	struct tensor_object *t = (struct tensor_object *)self;

	return numbers_tuple(t->shape, (uint32_t)t->ndim, 1);
}

/* The strides in bytes, as NumPy counts them. */
static PyObject *strides_tuple(const struct tensor_object *t)
{
	return numbers_tuple(t->strides, (uint32_t)t->ndim, dtypes[t->dtype].dl.bits / 8);
}

static PyObject *tensor_dtype(PyObject *self, void *Py_UNUSED(unused))
{
	return PyUnicode_FromString(dtype_name(((struct tensor_object *)self)->dtype));
}

static int64_t nelements(const struct tensor_object *t)
{
	int64_t n = 1;

	for (int i = 0; i < t->ndim; i++)
		n *= t->shape[i];
	return n;
}

static PyObject *tensor_nbytes(PyObject *self, void *Py_UNUSED(unused))
{
	struct tensor_object *t = (struct tensor_object *)self;

	return PyLong_FromLongLong(nelements(t) * (dtypes[t->dtype].dl.bits / 8));
}

/* Checks that the tensor is also in host memory. False: an exception. */
static bool host_check(const struct tensor_object *t)
{
	if (t->host || nelements(t) == 0)
		return true;
	PyErr_SetString(PyExc_BufferError,
	        "this tensor was finished on the GPU and exists only there: take it "
	        "through DLPack there, or open the "
	        "loader with device_pixels=\"off\"");
	return false;
}

static PyObject *tensor_array_interface(PyObject *self, void *Py_UNUSED(unused))
{
	struct tensor_object *t = (struct tensor_object *)self;
	const char *type = dtypes[t->dtype].array_type;

	if (!host_check(t))
		return NULL;
	if (!type)
		return PyErr_Format(PyExc_TypeError,
		        "NumPy has no dtype %s: take the tensor through DLPack (torch, JAX), or ask for f32",
		        dtype_name(t->dtype));
	return Py_BuildValue("{s:i,s:s,s:N,s:N,s:(NO)}", "version", 3, "typestr", type, "shape",
	        tensor_shape(self, NULL), "strides", strides_tuple(t), "data",
	        PyLong_FromVoidPtr((void *)(uintptr_t)t->host), Py_False);
}

/* DLPack ------------------------------------------------------------------------------------------------- */

/* Sets whether the consumer wants the tensor in host memory. False: the tensor is not on the wanted
 * device. */
static bool device_choose(const struct tensor_object *t, PyObject *device, bool *ret_host)
{
	long type = 0, id = 0;

	*ret_host = t->memory == PENSTOCK_MEMORY_HOST;
	if (device == Py_None)
		return true;
	if (!PyArg_ParseTuple(device, "ll", &type, &id))
		return false;
	*ret_host = type == DL_CPU;
	return *ret_host || (type == (long)t->memory && id == t->device);
}

/* What DLPack's `stream` means on a device of ours: None and 1 the legacy default stream, 2 the thread's own
 * default one, -1 that the consumer waits by itself; other numbers are a stream's address. */
static bool stream_wait(struct tensor_object *t, PyObject *stream)
{
	struct penstock_error error = {0};
	long long number = stream == Py_None ? 1 : PyLong_AsLongLong(stream);
	int rc;

	if (number == -1 && !PyErr_Occurred())
		return true;
	if (number == 0)
		PyErr_SetString(PyExc_ValueError, "__dlpack__: stream 0 is ambiguous: give 1 or 2");
	if (PyErr_Occurred())
		return false;
	rc = penstock_batch_use(t->held->batch, (void *)(intptr_t)number, &error);
	if (rc < 0)
		raise_error(t->batch->state, rc, &error);
	return rc == 0;
}

static PyObject *tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char stream_name[] = "stream", version_name[] = "max_version", device_name[] = "dl_device",
	            copy_name[] = "copy";
	static char *names[] = {stream_name, version_name, device_name, copy_name, NULL};
	PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;

	if (!PyArg_ParseTupleAndKeywords(
	            args, kwargs, "|$OOOO:__dlpack__", names, &stream, &max_version, &device, &copy))
		return NULL;
	struct tensor_object *t = (struct tensor_object *)self;
	bool host;
	if (!device_choose(t, device, &host)) {
		if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_BufferError, "__dlpack__: this tensor is on device (%u, %d)",
			        (unsigned)t->memory, (int)t->device);
		return NULL;
	}
	if (host && stream != Py_None)
		return PyErr_Format(PyExc_ValueError, "__dlpack__: a tensor in host memory has no stream");
	if (!host && copy == Py_True)
		return PyErr_Format(
		        PyExc_BufferError, "__dlpack__: copies on a GPU are made by the consumer");
	if (host ? !host_check(t) : !stream_wait(t, stream))
		return NULL;
	long major = 0, minor = 0;
	if (max_version != Py_None && !PyArg_ParseTuple(max_version, "ll", &major, &minor))
		return NULL;
	const struct dl_tensor of = {.data = (void *)(uintptr_t)(host ? t->host : t->data),
	        .device = {host ? DL_CPU : (int32_t)t->memory, host ? 0 : t->device},
	        .ndim = t->ndim,
	        .dtype = dtypes[t->dtype].dl,
	        .shape = t->shape,
	        .strides = t->strides};
	if (copy != Py_True)
		return export_new(t->held, &of, major >= 1);
	return export_copy(&of, (size_t)nelements(t) * (dtypes[t->dtype].dl.bits / 8), major >= 1);
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *Py_UNUSED(unused))
{
	const struct tensor_object *t = (const struct tensor_object *)self;

	return Py_BuildValue("(ii)", (int)t->memory, (int)t->device);
}

/* The same memory with its dimensions in another order. */
static PyObject *tensor_permute(PyObject *self, PyObject *dims)
{
	struct tensor_object *t = (struct tensor_object *)self;
	const struct penstock_tensor same = {.data = t->data,
	        .host = t->host,
	        .memory = t->memory,
	        .device = t->device,
	        .dtype = t->dtype,
	        .ndim = (uint32_t)t->ndim};
	unsigned seen = 0;
	Py_ssize_t n = PyTuple_Size(dims);

	struct tensor_object *p =
	        n == t->ndim ? (struct tensor_object *)tensor_new(t->batch, t->held, &same) : NULL;
	for (Py_ssize_t i = 0; p && i < n; i++) {
		long d = PyLong_AsLong(PyTuple_GetItem(dims, i));

		if (d < 0 || d >= n || seen & 1u << d) {
			Py_CLEAR(p);
			break;
		}
		seen |= 1u << d;
		p->shape[i] = t->shape[d];
		p->strides[i] = t->strides[d];
	}
	if (!p && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError)))
		PyErr_Format(PyExc_ValueError, "permute%R: each of the %d dimensions is needed once", dims,
		        t->ndim);
	return (PyObject *)p;
}

/* The bytes of elements [from, to) of the first dimension. */
static PyObject *tensor_tobytes(PyObject *self, PyObject *args)
{
	struct tensor_object *t = (struct tensor_object *)self;
	int64_t n = t->ndim ? t->shape[0] : 1;
	long long from = 0, to = n;

	if (!PyArg_ParseTuple(args, "|LL:tobytes", &from, &to))
		return NULL;
	if (!host_check(t))
		return NULL;
	int64_t stride = 1;
	for (int i = t->ndim - 1; i >= 0; stride *= t->shape[i--])
		if (t->shape[i] > 1 && t->strides[i] != stride)
			return PyErr_Format(
			        PyExc_ValueError, "tobytes() of a permuted tensor: take it through NumPy");
	if (from < 0 || to < from || to > n)
		return PyErr_Format(PyExc_IndexError, "tobytes(%lld, %lld): the first dimension has %lld",
		        from, to, (long long)n);
	/* Not strides[0], which may have any value in a dense view of one element. */
	int64_t one = dtypes[t->dtype].dl.bits / 8;
	for (int i = 1; i < t->ndim; i++)
		one *= t->shape[i];
	return PyBytes_FromStringAndSize((const char *)t->host + from * one, (Py_ssize_t)((to - from) * one));
}

static Py_ssize_t tensor_len(PyObject *self)
{
	struct tensor_object *t = (struct tensor_object *)self;

	return t->ndim ? (Py_ssize_t)t->shape[0] : 1;
}

static PyObject *tensor_repr(PyObject *self)
{
	struct tensor_object *t = (struct tensor_object *)self;
	PyObject *shape = tensor_shape(self, NULL);
	PyObject *text = shape ? PyUnicode_FromFormat(
	                                 "penstock.Tensor(shape=%R, dtype=%s)", shape, dtype_name(t->dtype))
	                       : NULL;

	Py_XDECREF(shape);
	return text;
}

/* For consumers without DLPack. The stream that they will use is not known, so the legacy default stream
 * waits. */
static PyObject *tensor_cuda_array_interface(PyObject *self, void *Py_UNUSED(unused))
{
	struct tensor_object *t = (struct tensor_object *)self;
	const char *type = dtypes[t->dtype].array_type;

	if (t->memory != PENSTOCK_MEMORY_CUDA || !type)
		return PyErr_Format(PyExc_AttributeError, "__cuda_array_interface__: the tensor %s",
		        type ? "is in host memory" : "has a dtype that this interface lacks");
	if (!stream_wait(t, Py_None))
		return NULL;
	return Py_BuildValue("{s:i,s:s,s:N,s:N,s:(NO),s:i}", "version", 3, "typestr", type, "shape",
	        tensor_shape(self, NULL), "strides", strides_tuple(t), "data",
	        PyLong_FromVoidPtr((void *)(uintptr_t)t->data), Py_False, "stream", 1);
}

static PyMethodDef tensor_methods[] = {
        {"__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack, METH_VARARGS | METH_KEYWORDS,
                "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None): a capsule, without "
                "a copy unless copy is True, which is for host memory only. On a GPU, stream 2 is this "
                "thread's own default stream (release the batch on this "
                "thread, too), and with -1 nothing waits: neither your work until the batch has "
                "arrived, nor the release for your work."},
        {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS,
                "(1, 0): host memory; (2, N): the Nth NVIDIA GPU."},
        {"permute", tensor_permute, METH_VARARGS,
                "permute(*dims): a view with its dimensions in that order."},
        {"tobytes", tensor_tobytes, METH_VARARGS,
                "tobytes(start=0, stop=len): a copy of these elements of the first dimension."},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef tensor_getset[] = {
        {"shape", tensor_shape, NULL, "A tuple of ints.", NULL},
        {"dtype", tensor_dtype, NULL, "u8, f32, f16, bf16, i64, ...", NULL},
        {"nbytes", tensor_nbytes, NULL, "Bytes of all elements.", NULL},
        {"__array_interface__", tensor_array_interface, NULL, "What NumPy takes without a copy.", NULL},
        {"__cuda_array_interface__", tensor_cuda_array_interface, NULL,
                "What CuPy and Numba take without a copy.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static char type_doc[] =
        "Memory of a batch, dense and in C order (except after permute()). torch.from_dlpack(), "
        "jax.dlpack.from_dlpack() and "
        "numpy.asarray() take it without a copy; what they return keeps the batch.";

static PyType_Slot tensor_slots[] = {
        {Py_tp_dealloc, tensor_dealloc},
        {Py_tp_methods, tensor_methods},
        {Py_tp_getset, tensor_getset},
        {Py_tp_repr, tensor_repr},
        {Py_sq_length, tensor_len},
        {Py_tp_doc, type_doc},
        {0, NULL},
};

PyType_Spec tensor_spec = {"penstock.Tensor", sizeof(struct tensor_object), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, tensor_slots};
