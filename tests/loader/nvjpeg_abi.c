/* Compares the declarations of nvJPEG's functions in device/nvjpeg_library.h with the library's own
 * nvjpeg.h. The test is that this file compiles. Built where configure found nvjpeg.h, in the toolkit or by
 * NVJPEG_CFLAGS. */
#include "config.h"

#include <cuda.h>
#include <nvjpeg.h>

#define PS_CU_TYPES
typedef CUresult ps_cu_result;
typedef CUdevice ps_cu_device;
typedef CUcontext ps_cu_context;
typedef CUstream ps_cu_stream;
typedef CUevent ps_cu_event;
typedef CUdeviceptr ps_cu_pointer;
typedef CUmodule ps_cu_module;
typedef CUfunction ps_cu_function;
typedef CUfunction_attribute ps_cu_function_attribute;
typedef CUstreamCaptureMode ps_cu_capture_mode;

#define PS_NVJPEG_TYPES
typedef nvjpegStatus_t ps_nvj_status;
typedef nvjpegBackend_t ps_nvj_backend;
typedef nvjpegOutputFormat_t ps_nvj_output;
typedef nvjpegChromaSubsampling_t ps_nvj_chroma;
typedef libraryPropertyType ps_nvj_property;
typedef nvjpegHandle_t ps_nvj_handle;
typedef nvjpegJpegState_t ps_nvj_state;
typedef nvjpegJpegStream_t ps_nvj_stream;
typedef nvjpegJpegDecoder_t ps_nvj_decoder;
typedef nvjpegDecodeParams_t ps_nvj_params;
typedef nvjpegBufferPinned_t ps_nvj_pinned;
typedef nvjpegBufferDevice_t ps_nvj_buffer;
typedef nvjpegImage_t ps_nvj_image;
typedef nvjpegDevAllocator_t ps_nvj_dev_allocator;
typedef nvjpegPinnedAllocator_t ps_nvj_pinned_allocator;

#include "device/nvjpeg_library.h"

#define DECLARE_AGAIN(name, symbol, args) ps_nvj_status symbol args;
PS_NVJPEG_FUNCTIONS(DECLARE_AGAIN)

_Static_assert(sizeof(nvjpegStatus_t) == sizeof(int) && sizeof(nvjpegBackend_t) == sizeof(int), "numbers");
_Static_assert(
        sizeof(nvjpegOutputFormat_t) == sizeof(int) && sizeof(libraryPropertyType) == sizeof(int), "numbers");
_Static_assert(sizeof(nvjpegImage_t) == 4 * sizeof(void *) + 4 * sizeof(size_t), "an image");
_Static_assert(PS_NVJ_BAD_JPEG == (int)NVJPEG_STATUS_BAD_JPEG, "");
_Static_assert(PS_NVJ_NOT_SUPPORTED == (int)NVJPEG_STATUS_JPEG_NOT_SUPPORTED, "");
_Static_assert(PS_NVJ_ALLOCATOR_FAILURE == (int)NVJPEG_STATUS_ALLOCATOR_FAILURE, "");
_Static_assert(PS_NVJ_EXECUTION_FAILED == (int)NVJPEG_STATUS_EXECUTION_FAILED, "");
_Static_assert(PS_NVJ_INCOMPLETE == (int)NVJPEG_STATUS_INCOMPLETE_BITSTREAM, "");
_Static_assert(PS_NVJ_BACKEND_DEFAULT == (int)NVJPEG_BACKEND_DEFAULT, "");
_Static_assert(PS_NVJ_BACKEND_HYBRID == (int)NVJPEG_BACKEND_HYBRID, "");
_Static_assert(PS_NVJ_BACKEND_HARDWARE == (int)NVJPEG_BACKEND_HARDWARE, "");
_Static_assert(sizeof(nvjpegChromaSubsampling_t) == sizeof(int), "numbers");
_Static_assert(PS_NVJ_CHROMA_444 == (int)NVJPEG_CSS_444, "");
_Static_assert(PS_NVJ_OUTPUT_RGBI == (int)NVJPEG_OUTPUT_RGBI, "");
_Static_assert(PS_NVJ_PROPERTY_MAJOR == (int)MAJOR_VERSION, "");
_Static_assert(PS_NVJ_PROPERTY_MINOR == (int)MINOR_VERSION, "");
_Static_assert(PS_NVJ_PROPERTY_PATCH == (int)PATCH_LEVEL, "");
#ifdef NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION /* CUDA 12.1 */
_Static_assert(PS_NVJ_INTERPOLATE == (NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION), "");
#endif

int main(void)
{
	return 0;
}
