/* The structures of DLPack's capsules, legacy and 1.0, for memory that two libraries share. Numbers and
 * field orders are those of the specification at dmlc.github.io/dlpack. */
#ifndef PS_PYTHON_DLPACK_H
#define PS_PYTHON_DLPACK_H

#include <stdint.h>

enum dl_device_type {
	DL_CPU = 1,
	DL_CUDA = 2,
	DL_CUDA_HOST = 3,
};

enum dl_type_code {
	DL_INT = 0,
	DL_UINT = 1,
	DL_FLOAT = 2,
	DL_BFLOAT = 4,
	DL_BOOL = 6,
};

struct dl_device {
	int32_t type;
	int32_t id;
};

struct dl_type {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
};

struct dl_tensor {
	void *data;
	struct dl_device device;
	int32_t ndim;
	struct dl_type dtype;
	int64_t *shape;
	int64_t *strides; /* in elements */
	uint64_t byte_offset;
};

/* Capsule "dltensor"; the consumer renames it to "used_dltensor" and calls the deleter. */
struct dl_managed {
	struct dl_tensor tensor;
	void *ctx;
	void (*deleter)(struct dl_managed *self);
};

#define DL_IS_COPIED 2u /* a flag: the consumer alone has this memory */

/* Capsule "dltensor_versioned". */
struct dl_managed_versioned {
	struct {
		uint32_t major, minor;
	} version;
	void *ctx;
	void (*deleter)(struct dl_managed_versioned *self);
	uint64_t flags; /* 1: read-only; DL_IS_COPIED */
	struct dl_tensor tensor;
};

#endif
