/* Any bytes as an image of any format, which is turned, shrunk, cut into views and transformed, and as a
 * mask that follows another image: pixels, or an error with a text, within the limits on memory. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "image/image.h"

#define GUARD 16
#define WIDTH 27u
#define HEIGHT 22u
#define VIEWS 2u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static struct ps_image_spec spec_of(unsigned form)
{
	struct ps_image_spec spec = ps_image_spec_imagenet(HEIGHT);
	spec.out_width = WIDTH;
	spec.views = VIEWS;
	spec.max_pixels = 1 << 18;
	spec.max_memory = 2 << 20;
	spec.orient = form & 1;
	spec.dct_scale = form & 2;
	spec.truncated = form & 4;
	spec.dtype = form & 4 ? PS_BF16 : PS_F16;
	spec.transforms = (struct ps_transform_spec){.affine = 0.5,
	        .degrees = 50,
	        .jitter = 0.5,
	        .brightness = 1,
	        .contrast = 1,
	        .saturation = 1,
	        .hue = 0.5,
	        .gray = 0.3,
	        .blur = 0.5,
	        .noise = 0.5,
	        .noise_sigma = 9};
	return spec;
}

/* The same with RGBA or gray, as u16 or bf16, with other crops, and without transforms. */
static struct ps_image_spec wide_of(unsigned form)
{
	struct ps_image_spec spec = spec_of(form);
	spec.transforms = (struct ps_transform_spec){.fill = 9};
	spec.crop = form & 2 ? PS_CROP_LETTERBOX : PS_CROP_RANDOM_RESIZED;
	spec.dct_scale = false;
	spec.channels = form & 4 ? PS_CHANNELS_RGBA : PS_CHANNELS_GRAY;
	spec.dtype = form & 1 ? PS_U16 : PS_BF16;
	return spec;
}

static void check(int rc, const struct ps_error *err, const uint8_t *guard)
{
	assert(rc == 0 || rc == -EBADMSG || rc == -ENOMEM);
	assert(rc == 0 || (err->text[0] != '\0' && err->err == -rc));
	for (int i = 0; i < GUARD; i++)
		assert(guard[i] == 0xcd);
}

static void as_mask(const uint8_t *data, size_t nbytes, unsigned form)
{
	static struct ps_mask_decoder *decoders[2];
	const struct ps_mask_spec spec = {.dtype = form & 2 ? PS_U16 : PS_U8,
	        .orient = form & 1,
	        .max_pixels = 1 << 18,
	        .max_memory = 2 << 20};
	uint8_t dst[WIDTH * HEIGHT * 2 + GUARD] __attribute__((aligned(16)));
	size_t size = WIDTH * HEIGHT * ps_dtype_nbytes(spec.dtype);
	struct ps_error err = {0};
	/* Corpus files are 24 x 16: a mask of that size is accepted. */
	struct ps_image_view view = {.geometry = {.box_x = 3,
	                                     .box_y = 2,
	                                     .box_w = 19,
	                                     .box_h = 13,
	                                     .scaled_w = WIDTH,
	                                     .scaled_h = HEIGHT,
	                                     .window_w = WIDTH,
	                                     .window_h = HEIGHT,
	                                     .flip = true,
	                                     .flip_v = form & 4},
	        .transform = {.affine = form & 4, .map = {{1.1, 0.2, -3, -0.2, 0.9, 4}}}};
	struct ps_image_placement placement = {24, 16, 1, &view};
	struct ps_mask_decoder *m = decoders[form & 1];

	if (!m || form & 2)
		m = ps_mask_decoder_new(&spec);
	assert(m);
	memset(dst + size, 0xcd, GUARD);
	check(ps_mask_decode(m, &placement, data, nbytes, dst, &err), &err, dst + size);
	if (form & 2)
		ps_mask_decoder_free(m);
	else
		decoders[form & 1] = m;
}

static void as_wide(const uint8_t *data, size_t nbytes, unsigned form)
{
	static struct ps_image_decoder *decoders[8];
	struct ps_image_spec spec = wide_of(form);
	struct ps_error err = {0};
	struct ps_rng_key key = {.seed = nbytes, .sample = form};
	uint8_t dst[WIDTH * HEIGHT * 4 * VIEWS * 2 + GUARD] __attribute__((aligned(16)));
	size_t size = ps_image_nbytes(&spec);

	if (!decoders[form])
		decoders[form] = ps_image_decoder_new(&spec, &err);
	assert(decoders[form] && size + GUARD <= sizeof(dst));
	memset(dst + size, 0xcd, GUARD);
	check(ps_image_decode(decoders[form], data, nbytes, &key, dst, &err), &err, dst + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
	static struct ps_image_decoder *decoders[8];
	unsigned form = nbytes ? (data[nbytes - 1] ^ (unsigned)nbytes) % 8 : 0;
	struct ps_image_spec spec = spec_of(form);
	struct ps_error err = {0};
	struct ps_rng_key key = {.seed = nbytes, .sample = form};
	uint8_t dst[WIDTH * HEIGHT * 3 * VIEWS * 2 + GUARD] __attribute__((aligned(16)));
	size_t size = ps_image_nbytes(&spec);

	if (!decoders[form])
		decoders[form] = ps_image_decoder_new(&spec, &err);
	assert(decoders[form] && size + GUARD == sizeof(dst));
	memset(dst + size, 0xcd, GUARD);
	check(ps_image_decode(decoders[form], data, nbytes, &key, dst, &err), &err, dst + size);
	as_wide(data, nbytes, form);
	as_mask(data, nbytes, form);
	return 0;
}
