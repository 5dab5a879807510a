/* Compares the declarations of the driver's functions in device/kernels/cuda_driver.h with the toolkit's
 * cuda.h. The test is that this file compiles. Built where there is a toolkit. */
#include "config.h"

#include <cuda.h>

#define PS_CU_TYPES
typedef CUresult ps_cu_result;
typedef CUdevice ps_cu_device;
typedef CUcontext ps_cu_context;
typedef CUstream ps_cu_stream;
typedef CUevent ps_cu_event;
typedef CUmodule ps_cu_module;
typedef CUfunction ps_cu_function;
typedef CUfunction_attribute ps_cu_function_attribute;
typedef CUstreamCaptureMode ps_cu_capture_mode;
typedef CUdeviceptr ps_cu_pointer;

#include "device/kernels/cuda_driver.h"

#define DECLARE_AGAIN(name, symbol, args) ps_cu_result symbol args;
PS_CUDA_FUNCTIONS(DECLARE_AGAIN)

_Static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUdevice) == sizeof(int), "numbers");
_Static_assert(sizeof(CUdeviceptr) == sizeof(unsigned long long), "addresses");
_Static_assert(PS_CU_INVALID_VALUE == (int)CUDA_ERROR_INVALID_VALUE, "");
_Static_assert(PS_CU_OUT_OF_RESOURCES == (int)CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "");
_Static_assert(
        PS_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK == (int)CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "");
_Static_assert(PS_CU_OUT_OF_MEMORY == (int)CUDA_ERROR_OUT_OF_MEMORY, "");
_Static_assert(PS_CU_NOT_READY == (int)CUDA_ERROR_NOT_READY, "");
_Static_assert(sizeof(CUstreamCaptureMode) == sizeof(int), "numbers");
_Static_assert(PS_CU_CAPTURE_GLOBAL == (int)CU_STREAM_CAPTURE_MODE_GLOBAL, "");
_Static_assert(PS_CU_CAPTURE_RELAXED == (int)CU_STREAM_CAPTURE_MODE_RELAXED, "");
_Static_assert(PS_CU_STREAM_NON_BLOCKING == (int)CU_STREAM_NON_BLOCKING, "");
_Static_assert(PS_CU_EVENT_DEFAULT == (int)CU_EVENT_DEFAULT, "");
_Static_assert(PS_CU_EVENT_BLOCKING_SYNC == (int)CU_EVENT_BLOCKING_SYNC, "");
_Static_assert(PS_CU_EVENT_DISABLE_TIMING == (int)CU_EVENT_DISABLE_TIMING, "");
_Static_assert(PS_CU_HOST_REGISTER_PORTABLE == CU_MEMHOSTREGISTER_PORTABLE, "");

int main(void)
{
	return 0;
}
