/* nvJPEG (libnvjpeg.so.13, .12 or .11) is NVIDIA's decoder of JPEG files on GPUs. It is not linked, but
 * opened when it is first needed. Only the functions that the loader calls are declared. The declarations
 * are from the library's reference; tests/loader/nvjpeg_abi.c compares them with the toolkit's nvjpeg.h.
 *
 * The first library that has all functions and starts on the GPU is used: a library that is newer than the
 * driver opens, but does not start. If PENSTOCK_NVJPEG is set in the environment, only the library that it
 * names is tried. Otherwise the search goes in this order: a library that the process has loaded already
 * (torch's, for example); where the dynamic linker looks; folders of CUDA toolkits (CUDA_HOME, CUDA_PATH,
 * /usr/local/cuda); folders of the Python packages nvidia-nvjpeg, nvidia-nvjpeg-cu12 and torchvision, in
 * the environments given by VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH, PATH and the usual folders of Python. All
 * these folders are searched for libnvjpeg.so.13 first, then for .12, then for .11.
 *
 * Threads: any.   Ownership: libraries stay open until the process ends.   Locks: one, a leaf.   Blocks: on
 * the disk, and the start of libraries. Errors: -ENODEV with a text that names the refused libraries, why
 * each was refused, and the remedy. */
#ifndef PS_DEVICE_NVJPEG_LIBRARY_H
#define PS_DEVICE_NVJPEG_LIBRARY_H

#include "device/kernels/kernels.h"

#ifndef PS_NVJPEG_TYPES    /* defined where the types are those of nvjpeg.h */
typedef int ps_nvj_status; /* nvjpegStatus_t; 0: success */
typedef int ps_nvj_backend;
typedef int ps_nvj_output;
typedef int ps_nvj_chroma;   /* nvjpegChromaSubsampling_t */
typedef int ps_nvj_property; /* libraryPropertyType */
typedef struct nvjpegHandle *ps_nvj_handle;
typedef struct nvjpegJpegState *ps_nvj_state;
typedef struct nvjpegJpegStream *ps_nvj_stream;
typedef struct nvjpegJpegDecoder *ps_nvj_decoder;
typedef struct nvjpegDecodeParams *ps_nvj_params;
typedef struct nvjpegBufferPinned *ps_nvj_pinned;
typedef struct nvjpegBufferDevice *ps_nvj_buffer;
typedef struct {
	unsigned char *channel[4];
	size_t pitch[4]; /* bytes from row to row */
} ps_nvj_image;
typedef void ps_nvj_dev_allocator, ps_nvj_pinned_allocator; /* NULL: the library's own */
#endif

enum {
	PS_NVJ_BAD_JPEG = 3,
	PS_NVJ_NOT_SUPPORTED = 4,
	PS_NVJ_ALLOCATOR_FAILURE = 5,
	PS_NVJ_EXECUTION_FAILED = 6,
	PS_NVJ_INCOMPLETE = 10,
	PS_NVJ_BACKEND_DEFAULT = 0,
	PS_NVJ_BACKEND_HYBRID = 1,   /* Huffman codes on the CPU, the rest on the GPU */
	PS_NVJ_BACKEND_HARDWARE = 3, /* the GPU's engine for JPEG */
	PS_NVJ_CHROMA_444 = 0,
	PS_NVJ_OUTPUT_RGBI = 5, /* pixels of three bytes, in channel 0 */
	/* flag: chroma is interpolated, nearly as by libjpeg's "fancy upsampling" */
	PS_NVJ_INTERPOLATE = 1 << 5,
	PS_NVJ_PROPERTY_MAJOR = 0,
	PS_NVJ_PROPERTY_MINOR = 1,
	PS_NVJ_PROPERTY_PATCH = 2,
};

/* One row for each function: name in the struct, symbol of the library, type. */
#define PS_NVJPEG_FUNCTIONS(X)                                                                            \
	X(property, nvjpegGetProperty, (ps_nvj_property which, int *ret_value))                           \
	X(create, nvjpegCreateEx,                                                                         \
	        (ps_nvj_backend backend, ps_nvj_dev_allocator * device, ps_nvj_pinned_allocator * pinned, \
	                unsigned flags, ps_nvj_handle *ret_handle))                                       \
	X(destroy, nvjpegDestroy, (ps_nvj_handle handle))                                                 \
	X(state_create, nvjpegJpegStateCreate, (ps_nvj_handle handle, ps_nvj_state * ret_state))          \
	X(state_destroy, nvjpegJpegStateDestroy, (ps_nvj_state state))                                    \
	X(batched_init, nvjpegDecodeBatchedInitialize,                                                    \
	        (ps_nvj_handle handle, ps_nvj_state state, int n, int threads, ps_nvj_output output))     \
	X(batched, nvjpegDecodeBatched,                                                                   \
	        (ps_nvj_handle handle, ps_nvj_state state, const unsigned char *const *data,              \
	                const size_t *nbytes, ps_nvj_image *to, ps_cu_stream stream))                     \
	X(batched_allocate, nvjpegDecodeBatchedPreAllocate,                                               \
	        (ps_nvj_handle handle, ps_nvj_state state, int n, int width, int height,                  \
	                ps_nvj_chroma chroma, ps_nvj_output output))                                      \
	X(batched_supported, nvjpegDecodeBatchedSupported,                                                \
	        (ps_nvj_handle handle, ps_nvj_stream file, int *ret_is_not))                              \
	X(stream_create, nvjpegJpegStreamCreate, (ps_nvj_handle handle, ps_nvj_stream * ret_file))        \
	X(stream_destroy, nvjpegJpegStreamDestroy, (ps_nvj_stream file))                                  \
	X(stream_parse, nvjpegJpegStreamParse,                                                            \
	        (ps_nvj_handle handle, const unsigned char *data, size_t nbytes, int save_metadata,       \
	                int save_stream, ps_nvj_stream file))                                             \
	X(stream_size, nvjpegJpegStreamGetFrameDimensions,                                                \
	        (ps_nvj_stream file, unsigned *ret_width, unsigned *ret_height))                          \
	X(decoder_create, nvjpegDecoderCreate,                                                            \
	        (ps_nvj_handle handle, ps_nvj_backend backend, ps_nvj_decoder * ret_decoder))             \
	X(decoder_destroy, nvjpegDecoderDestroy, (ps_nvj_decoder decoder))                                \
	X(decoder_supported, nvjpegDecoderJpegSupported,                                                  \
	        (ps_nvj_decoder decoder, ps_nvj_stream file, ps_nvj_params params, int *ret_is_not))      \
	X(decoder_state_create, nvjpegDecoderStateCreate,                                                 \
	        (ps_nvj_handle handle, ps_nvj_decoder decoder, ps_nvj_state * ret_state))                 \
	X(pinned_create, nvjpegBufferPinnedCreate,                                                        \
	        (ps_nvj_handle handle, ps_nvj_pinned_allocator * allocator, ps_nvj_pinned * ret_buffer))  \
	X(pinned_destroy, nvjpegBufferPinnedDestroy, (ps_nvj_pinned buffer))                              \
	X(buffer_create, nvjpegBufferDeviceCreate,                                                        \
	        (ps_nvj_handle handle, ps_nvj_dev_allocator * allocator, ps_nvj_buffer * ret_buffer))     \
	X(buffer_destroy, nvjpegBufferDeviceDestroy, (ps_nvj_buffer buffer))                              \
	X(pinned_attach, nvjpegStateAttachPinnedBuffer, (ps_nvj_state state, ps_nvj_pinned buffer))       \
	X(buffer_attach, nvjpegStateAttachDeviceBuffer, (ps_nvj_state state, ps_nvj_buffer buffer))       \
	X(params_create, nvjpegDecodeParamsCreate, (ps_nvj_handle handle, ps_nvj_params * ret_params))    \
	X(params_destroy, nvjpegDecodeParamsDestroy, (ps_nvj_params params))                              \
	X(params_output, nvjpegDecodeParamsSetOutputFormat, (ps_nvj_params params, ps_nvj_output output)) \
	X(params_region, nvjpegDecodeParamsSetROI,                                                        \
	        (ps_nvj_params params, int x, int y, int width, int height))                              \
	X(decode_host, nvjpegDecodeJpegHost,                                                              \
	        (ps_nvj_handle handle, ps_nvj_decoder decoder, ps_nvj_state state, ps_nvj_params params,  \
	                ps_nvj_stream file))                                                              \
	X(decode_transfer, nvjpegDecodeJpegTransferToDevice,                                              \
	        (ps_nvj_handle handle, ps_nvj_decoder decoder, ps_nvj_state state, ps_nvj_stream file,    \
	                ps_cu_stream stream))                                                             \
	X(decode_device, nvjpegDecodeJpegDevice,                                                          \
	        (ps_nvj_handle handle, ps_nvj_decoder decoder, ps_nvj_state state, ps_nvj_image * to,     \
	                ps_cu_stream stream))

struct ps_nvjpeg_library {
#define PS_NVJPEG_MEMBER(name, symbol, args) ps_nvj_status(*name) args;
	PS_NVJPEG_FUNCTIONS(PS_NVJPEG_MEMBER)
#undef PS_NVJPEG_MEMBER
	/* Found when the library was opened: */
	int version; /* 1000000 major + 1000 minor + patch */
	char path[256];
};

/* Starts a library. 0: the library is used. -ENODEV, with a text: it cannot be used; the callback has freed
 * what it made, and the next library is tried. Any other error ends the search. */
typedef int (*ps_nvjpeg_starts)(void *arg, const struct ps_nvjpeg_library *library, struct ps_error *err);

/* Finds the library. `starts` NULL: the first one that has all functions. *ret_refused (may be NULL): its
 * text lists the libraries that were found but not used, each with the reason; "": none. */
int ps_nvjpeg_library_find(ps_nvjpeg_starts starts, void *arg, const struct ps_nvjpeg_library **ret_library,
        struct ps_error *ret_refused, struct ps_error *err) PS_MUST_USE;

/* The meaning of a status, for error texts. */
const char *ps_nvjpeg_status(ps_nvj_status status);

#endif
