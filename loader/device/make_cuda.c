#include "config.h"

#include "device/make_cuda.h"

#include <string.h>

static ps_cu_result finish(const struct ps_kernels *k, const struct ps_make *m,
        const struct ps_images *images, void *to, ps_cu_stream stream)
{
	static const enum ps_kernel which[][2] = {
	        [PS_U8] = {PS_KERNEL_finish_u8_nchw, PS_KERNEL_finish_u8_nhwc},
	        [PS_F32] = {PS_KERNEL_finish_f32_nchw, PS_KERNEL_finish_f32_nhwc},
	        [PS_F16] = {PS_KERNEL_finish_f16_nchw, PS_KERNEL_finish_f16_nhwc},
	        [PS_BF16] = {PS_KERNEL_finish_bf16_nchw, PS_KERNEL_finish_bf16_nhwc},
	};
	struct ps_finish_args a = {
	        .images = *images, .to = to, .mix = m->mix, .weight = m->weight, .nviews = m->nviews};
	uint64_t nblocks = (uint64_t)ps_finish_blocks(m->dtype, m->layout, images->npixels) * m->nimages;

	memcpy(a.scale, m->scale, sizeof(a.scale));
	memcpy(a.bias, m->bias, sizeof(a.bias));
	memcpy(a.box, m->box, sizeof(a.box));
	return ps_kernel_launch(k, which[m->dtype][m->layout], nblocks, &a, stream);
}

/* Each step that some image has, in order. */
static ps_cu_result transform(
        const struct ps_kernels *k, uint32_t what, const struct ps_transform_args *a, ps_cu_stream stream)
{
	const struct ps_images *im = &a->images;
	const uint64_t n = im->nimages, pixels = ps_transform_blocks(im->npixels) * n;
	const uint64_t values = ps_transform_blocks(3 * im->npixels) * n;
	const uint64_t tiles = ps_blur_tiles(im->width, im->height) * n;
	const struct {
		uint32_t what;
		enum ps_kernel kernel;
		uint64_t nblocks;
	} steps[] = {
	        {PS_IMAGE_AFFINE, PS_KERNEL_affine, pixels},
	        {PS_IMAGE_CONTRAST, PS_KERNEL_gray, pixels},
	        {PS_IMAGE_COLORS, PS_KERNEL_colors, pixels},
	        {PS_IMAGE_BLUR, PS_KERNEL_blur_across, tiles},
	        {PS_IMAGE_BLUR, PS_KERNEL_blur_down, tiles},
	        {PS_IMAGE_NOISE, PS_KERNEL_noise, values},
	        {PS_IMAGE_ERASE, PS_KERNEL_erase, values},
	};
	ps_cu_result r = 0;

	for (size_t i = 0; i < PS_ARRAY_LEN(steps) && r == 0; i++)
		if (what & steps[i].what)
			r = ps_kernel_launch(k, steps[i].kernel, steps[i].nblocks, a, stream);
	return r;
}

ps_cu_result ps_make_launch(const struct ps_kernels *k, const struct ps_make *m,
        const struct ps_make_places *at, ps_cu_stream stream)
{
	struct ps_images images = {.planes = at->slot + m->planes,
	        .nimages = m->nimages,
	        .width = m->width,
	        .height = m->height,
	        .npixels = m->width * m->height};

	struct ps_transform_args a;
	ps_cu_result r = 0;

	if (m->ops != PS_MAKE_NO_OPS && m->what != 0) {
		images.ops = (struct ps_image_ops *)(void *)(at->slot + m->ops);
		images.moved = at->scratch;
		a = (struct ps_transform_args){.images = images,
		        .between = (int16_t *)(void *)(at->scratch + ps_make_moved_nbytes(m->what, m->nimages,
		                                                             m->width, m->height))};
		r = transform(k, m->what, &a, stream);
	}
	return r == 0 ? finish(k, m, &images, at->made + m->to, stream) : r;
}
