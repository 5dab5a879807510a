/* Any bytes as a JPEG: an image or an error with a text, within the limits on memory and time. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "image/image.h"

#define GUARD 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* Outputs are small, so that most time is spent in the decoder. The 24 forms combine three crops, both
 * interpolations, the types U8 and F32, and both layouts. */
static struct ps_image_spec spec_of(unsigned form)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(24);
	spec.out_width = 31;
	spec.max_pixels = 1 << 20;
	spec.max_memory = 8 << 20;
	spec.crop = form % 3;
	spec.resize_shorter = 40;
	spec.interpolation = form / 3 % 2;
	spec.dtype = form / 6 % 2 ? PS_U8 : PS_F32;
	spec.layout = form / 12 % 2 ? PS_NHWC : PS_NCHW;
	return spec;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
	static struct ps_image_decoder *decoders[24];
	unsigned form = nbytes ? (data[nbytes - 1] ^ (unsigned)nbytes) % 24 : 0;
	struct ps_image_spec spec = spec_of(form);
	struct ps_error err = {0};
	struct ps_rng_key key = {.seed = nbytes, .sample = form};
	uint8_t dst[24 * 31 * 3 * sizeof(float) + GUARD] __attribute__((aligned(16)));
	size_t size = ps_image_nbytes(&spec);

	if (!decoders[form])
		decoders[form] = ps_image_decoder_new(&spec, &err);
	assert(decoders[form] && size + GUARD <= sizeof(dst));
	memset(dst + size, 0xcd, GUARD);
	int rc = ps_image_decode(decoders[form], data, nbytes, &key, dst, &err);
	assert(rc == 0 || rc == -EBADMSG || rc == -ENOMEM);
	assert(rc == 0 || (err.text[0] != '\0' && err.err == -rc));
	for (int i = 0; i < GUARD; i++)
		assert(dst[size + (size_t)i] == 0xcd);
	return 0;
}
