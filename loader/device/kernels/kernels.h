/* The kernels that a GPU runs for a batch, and their launch; the CUDA driver.
 *
 *   kernels.c, kernels_image.c                      loading and launching; the compiled kernels
 *   finish.h, transforms.h, resize_tile.h           what kernels do; kernels.cu compiles them
 *   cuda_driver.c                                   opening the driver; contexts and streams
 *
 * A new kernel is a header with its arguments (one struct, passed by value) and the code of a block, in the
 * language of kernel_code.h; and a row below. nvcc makes an entry ps_kernel_NAME of each row (kernels.cu),
 * and the tests' driver (tests/loader/mock_cuda.c) runs the same row over host memory.
 *
 * The kernels are compiled into one fatbin, which is part of the library (kernels_image.c). It has machine
 * code for the architectures of --with-cuda-arch, and PTX of the oldest, which the driver compiles on all
 * others. Builds without nvcc have no fatbin. If PENSTOCK_CUDA_KERNELS in the environment is set and not
 * empty, the file that it names is used instead.
 *
 * Ownership: kernels belong to the caller that loads them.   Threads: any.   Blocks: loading, on the driver's
 * compiler. The context must be current on the calling thread.   Errors: the driver's; loading has a text. */
#ifndef PS_DEVICE_KERNELS_H
#define PS_DEVICE_KERNELS_H

#include "device/kernels/finish.h"
#include "device/kernels/kernel_code.h"
#include "device/kernels/resize_tile.h"
#include "device/kernels/transforms.h"

/* Name, struct of arguments, bytes of shared memory of a block, code of a block (uses `a`, `block`,
 * `shared`). */
#define PS_KERNELS(X)                                                                                     \
	X(gemm, ps_gemm_args, 0, ps_gemm_block(&a, block, shared))                                        \
	X(affine, ps_transform_args, 0, ps_affine_block(&a, block))                                       \
	X(gray, ps_transform_args, PS_GRAY_SHARED, ps_gray_block(&a, block, shared))                      \
	X(colors, ps_transform_args, 16, ps_colors_block(&a, block, shared))                              \
	X(blur_across, ps_transform_args, PS_BLUR_ACROSS_SHARED, ps_blur_across_block(&a, block, shared)) \
	X(blur_down, ps_transform_args, PS_BLUR_DOWN_SHARED, ps_blur_down_block(&a, block, shared))       \
	X(noise, ps_transform_args, 0, ps_noise_block(&a, block))                                         \
	X(erase, ps_transform_args, 0, ps_erase_block(&a, block))                                         \
	X(finish_u8_nchw, ps_finish_args, 0, ps_finish_block(&a, PS_U8, PS_NCHW, block, shared))          \
	X(finish_u8_nhwc, ps_finish_args, PS_FINISH_SHARED,                                               \
	        ps_finish_block(&a, PS_U8, PS_NHWC, block, shared))                                       \
	X(finish_f32_nchw, ps_finish_args, 0, ps_finish_block(&a, PS_F32, PS_NCHW, block, shared))        \
	X(finish_f32_nhwc, ps_finish_args, PS_FINISH_SHARED,                                              \
	        ps_finish_block(&a, PS_F32, PS_NHWC, block, shared))                                      \
	X(finish_f16_nchw, ps_finish_args, 0, ps_finish_block(&a, PS_F16, PS_NCHW, block, shared))        \
	X(finish_f16_nhwc, ps_finish_args, PS_FINISH_SHARED,                                              \
	        ps_finish_block(&a, PS_F16, PS_NHWC, block, shared))                                      \
	X(finish_bf16_nchw, ps_finish_args, 0, ps_finish_block(&a, PS_BF16, PS_NCHW, block, shared))      \
	X(finish_bf16_nhwc, ps_finish_args, PS_FINISH_SHARED,                                             \
	        ps_finish_block(&a, PS_BF16, PS_NHWC, block, shared))                                     \
	X(resize_tile, ps_tile_args, PS_TILE_SHARED, ps_tile_block(&a, block, shared))                    \
	X(move, ps_move_args, 0, ps_move_block(&a, block, shared))

enum ps_kernel {
#define PS_KERNEL_NUMBER(name, args, shared_nbytes, call) PS_KERNEL_##name,
	PS_KERNELS(PS_KERNEL_NUMBER)
#undef PS_KERNEL_NUMBER
	        PS_NKERNELS,
};

#ifndef __CUDACC__
#include "device/kernels/cuda_driver.h"

struct ps_kernels {
	const struct ps_cuda_driver *cu;
	ps_cu_module module;
	ps_cu_function functions[PS_NKERNELS];
};

/* -ENODEV: the build has no kernels, or the driver cannot run them; the text says which. */
int ps_kernels_load(const struct ps_cuda_driver *driver, struct ps_kernels *ret_kernels,
        struct ps_error *err) PS_MUST_USE;
void ps_kernels_unload(struct ps_kernels *kernels); /* a zeroed struct is allowed */

/* Launches `nblocks` blocks (0: none) on the stream; `args` is the kernel's struct, which is copied. */
ps_cu_result ps_kernel_launch(const struct ps_kernels *kernels, enum ps_kernel which, uint64_t nblocks,
        const void *args, ps_cu_stream stream) PS_MUST_USE;

/* The fatbin that is part of the library; NULL: none. */
const void *ps_kernels_image(size_t *ret_nbytes);
#endif

#endif
