/* The CUDA driver (libcuda.so.1), opened when it is first needed: it is not linked, so a machine without a
 * driver runs the same binary. Only the functions that the loader calls are declared. The declarations are
 * from the driver API's reference (CUDA 11 and later); tests/loader/cuda_abi.c compares them with cuda.h.
 *
 * Threads: any.   Ownership: the driver stays open until the process ends.   Blocks: the first call, on the
 * driver's own start (up to seconds).
 * Errors: -ENODEV with a text that names the remedy. */
#ifndef PS_DEVICE_CUDA_DRIVER_H
#define PS_DEVICE_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

#ifndef PS_CU_TYPES       /* defined where the types are those of cuda.h */
typedef int ps_cu_result; /* CUresult; 0: success */
typedef int ps_cu_device;
typedef struct CUctx_st *ps_cu_context;
typedef struct CUstream_st *ps_cu_stream;
typedef struct CUevent_st *ps_cu_event;
typedef struct CUmod_st *ps_cu_module;
typedef struct CUfunc_st *ps_cu_function;
typedef int ps_cu_function_attribute;
typedef int ps_cu_capture_mode;
typedef unsigned long long ps_cu_pointer; /* CUdeviceptr */
#endif

enum {
	PS_CU_INVALID_VALUE = 1,
	PS_CU_OUT_OF_MEMORY = 2,
	PS_CU_NOT_READY = 600,
	PS_CU_OUT_OF_RESOURCES = 701,
	PS_CU_CAPTURE_GLOBAL = 0, /* a thread's initial mode */
	PS_CU_CAPTURE_RELAXED = 2,
	PS_CU_STREAM_NON_BLOCKING = 1,
	PS_CU_EVENT_DEFAULT = 0,
	PS_CU_EVENT_BLOCKING_SYNC = 1,
	PS_CU_EVENT_DISABLE_TIMING = 2,
	PS_CU_HOST_REGISTER_PORTABLE = 1,
	PS_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
};

/* One row for each function: name in the struct, symbol of the library, type. */
#define PS_CUDA_FUNCTIONS(X)                                                                            \
	X(init, cuInit, (unsigned flags))                                                               \
	X(error_string, cuGetErrorString, (ps_cu_result error, const char **ret_text))                  \
	X(device_count, cuDeviceGetCount, (int *ret_count))                                             \
	X(device_get, cuDeviceGet, (ps_cu_device * ret_device, int ordinal))                            \
	X(device_bus_id, cuDeviceGetPCIBusId, (char *text, int len, ps_cu_device device))               \
	X(context_retain, cuDevicePrimaryCtxRetain, (ps_cu_context * ret_context, ps_cu_device device)) \
	X(context_release, cuDevicePrimaryCtxRelease_v2, (ps_cu_device device))                         \
	X(context_push, cuCtxPushCurrent_v2, (ps_cu_context context))                                   \
	X(context_pop, cuCtxPopCurrent_v2, (ps_cu_context * ret_context))                               \
	X(capture_mode, cuThreadExchangeStreamCaptureMode, (ps_cu_capture_mode * mode))                 \
	X(stream_create, cuStreamCreate, (ps_cu_stream * ret_stream, unsigned flags))                   \
	X(stream_create_urgent, cuStreamCreateWithPriority,                                             \
	        (ps_cu_stream * ret_stream, unsigned flags, int priority))                              \
	X(priorities, cuCtxGetStreamPriorityRange, (int *ret_least, int *ret_greatest))                 \
	X(stream_destroy, cuStreamDestroy_v2, (ps_cu_stream stream))                                    \
	X(stream_wait, cuStreamWaitEvent, (ps_cu_stream stream, ps_cu_event event, unsigned flags))     \
	X(stream_sync, cuStreamSynchronize, (ps_cu_stream stream))                                      \
	X(event_create, cuEventCreate, (ps_cu_event * ret_event, unsigned flags))                       \
	X(event_destroy, cuEventDestroy_v2, (ps_cu_event event))                                        \
	X(event_record, cuEventRecord, (ps_cu_event event, ps_cu_stream stream))                        \
	X(event_query, cuEventQuery, (ps_cu_event event))                                               \
	X(event_sync, cuEventSynchronize, (ps_cu_event event))                                          \
	X(event_elapsed, cuEventElapsedTime, (float *ret_ms, ps_cu_event from, ps_cu_event to))         \
	X(memory_alloc, cuMemAlloc_v2, (ps_cu_pointer * ret_pointer, size_t nbytes))                    \
	X(memory_free, cuMemFree_v2, (ps_cu_pointer pointer))                                           \
	X(copy_to_device, cuMemcpyHtoDAsync_v2,                                                         \
	        (ps_cu_pointer to, const void *from, size_t nbytes, ps_cu_stream stream))               \
	X(host_register, cuMemHostRegister_v2, (void *p, size_t nbytes, unsigned flags))                \
	X(host_unregister, cuMemHostUnregister, (void *p))                                              \
	X(module_load, cuModuleLoadData, (ps_cu_module * ret_module, const void *image))                \
	X(module_unload, cuModuleUnload, (ps_cu_module module))                                         \
	X(module_function, cuModuleGetFunction,                                                         \
	        (ps_cu_function * ret_function, ps_cu_module module, const char *name))                 \
	X(function_attribute, cuFuncGetAttribute,                                                       \
	        (int *ret_value, ps_cu_function_attribute attribute, ps_cu_function function))          \
	X(launch, cuLaunchKernel,                                                                       \
	        (ps_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,            \
	                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_nbytes,   \
	                ps_cu_stream stream, void **args, void **extra))

struct ps_cuda_driver {
#define PS_CUDA_MEMBER(name, symbol, args) ps_cu_result(*name) args;
	PS_CUDA_FUNCTIONS(PS_CUDA_MEMBER)
#undef PS_CUDA_MEMBER
};

int ps_cuda_driver_get(const struct ps_cuda_driver **ret_driver, struct ps_error *err) PS_MUST_USE;

/* Sets err to "WHAT: the driver's text (number)", and returns -ENOMEM or -EIO. */
int ps_cuda_error(
        const struct ps_cuda_driver *driver, ps_cu_result result, struct ps_error *err, const char *what);

/* Calls use the thread's current context: enter sets it, and leave restores the caller's. In between, the
 * thread's capture mode is relaxed. Otherwise querying an event or allocating memory would break another
 * thread's capture of a stream to a graph (torch.cuda.graph()), and fail here. */
int ps_cuda_context_enter(
        const struct ps_cuda_driver *driver, ps_cu_context context, struct ps_error *err) PS_MUST_USE;
void ps_cuda_context_leave(const struct ps_cuda_driver *driver);

/* Creates a stream whose work precedes that of streams without a priority (a model's). It is for short copies
 * and kernels, which would otherwise wait for the end of a training step. The context must be entered. */
ps_cu_result ps_cuda_urgent_stream_new(
        const struct ps_cuda_driver *driver, ps_cu_stream *ret_stream) PS_MUST_USE;

#endif
