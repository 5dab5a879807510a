/* The fatbin as a part of the library. */
#include "config.h"

#include "device/kernels/kernels.h"

#ifdef HAVE_CUDA_KERNELS
/* The fatbin's path is relative to the top of the build, where compilers are run. */
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "ps_kernels_fatbin:\n"
        ".incbin \"loader/device/kernels/kernels.fatbin\"\n"
        "ps_kernels_fatbin_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const uint8_t ps_kernels_fatbin[] __attribute__((visibility("hidden")));
extern const uint8_t ps_kernels_fatbin_end[] __attribute__((visibility("hidden")));

const void *ps_kernels_image(size_t *ret_nbytes)
{
	*ret_nbytes = (size_t)(ps_kernels_fatbin_end - ps_kernels_fatbin);
	return ps_kernels_fatbin;
}
#else
const void *ps_kernels_image(size_t *ret_nbytes)
{
	*ret_nbytes = 0;
	return NULL;
}
#endif
