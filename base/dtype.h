/* Element types and memory layouts of what lands in a batch. The numbers are stored (resume state, JSON):
 * new ones are added at the end. Threads: any. */
#ifndef PS_BASE_DTYPE_H
#define PS_BASE_DTYPE_H

#include <stddef.h>

enum ps_dtype {
	PS_U8 = 0,
	PS_F32 = 1,
	PS_F16 = 2,
	PS_BF16 = 3,
	PS_I32 = 4,
	PS_I64 = 5,
	PS_F64 = 6,
	PS_U16 = 7,
	PS_U32 = 8,
	PS_U64 = 9,
	PS_I8 = 10,
	PS_I16 = 11,
	PS_BOOL = 12, /* a byte, 0 or 1 */
	PS_NDTYPES,
};

enum ps_layout {
	PS_NCHW = 0, /* planes: all red values of an image, then green, then blue */
	PS_NHWC = 1, /* red, green, blue of a pixel side by side */
};

/* Bytes of one element; 0 for a number that is no dtype. */
static inline size_t ps_dtype_nbytes(enum ps_dtype dtype)
{
	switch (dtype) {
	case PS_U8:
	case PS_I8:
	case PS_BOOL:
		return 1;
	case PS_F16:
	case PS_BF16:
	case PS_U16:
	case PS_I16:
		return 2;
	case PS_F32:
	case PS_I32:
	case PS_U32:
		return 4;
	case PS_I64:
	case PS_F64:
	case PS_U64:
		return 8;
	case PS_NDTYPES:
		break;
	}
	return 0;
}

/* "u8", "f32", ...; "?" for a number that is no dtype. */
static inline const char *ps_dtype_name(enum ps_dtype dtype)
{
	static const char *const names[] = {"u8", "f32", "f16", "bf16", "i32", "i64", "f64", "u16",
	        "u32", "u64", "i8", "i16", "bool"};
	return (size_t)dtype < sizeof names / sizeof names[0] ? names[dtype] : "?";
}

#endif
