/* Memory of a batch as DLPack's capsules, which a consumer keeps as long as it likes.
 *
 * Ownership: an export keeps its batch, not the tensor object that it may come from; a batch with exports is
 * not released.   Threads: with the GIL, but consumers let go from any thread, with or without it.   Errors:
 * NULL, and an exception. */
#ifndef PS_PYTHON_EXPORT_H
#define PS_PYTHON_EXPORT_H

#include "dlpack.h"
#include "module.h"

/* A capsule of the memory; what `of` points at is copied. versioned: as of DLPack 1.0. */
PyObject *export_new(struct batch_object *batch, const struct dl_tensor *of, bool versioned);

/* The same of a copy of `nbytes` of dense host memory, which keeps no batch. */
PyObject *export_copy(const struct dl_tensor *of, size_t nbytes, bool versioned);

/* As export_new(), legacy, of a dense tensor in host memory. */
PyObject *export_host(struct batch_object *batch, const struct penstock_tensor *of);

/* tensor.c: how DLPack calls an enum penstock_dtype that dtype_name() knows. */
struct dl_type dtype_of_dlpack(uint32_t dtype);

#endif
