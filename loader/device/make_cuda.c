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

ps_cu_result ps_make_launch(const struct ps_kernels *k, const struct ps_make *m,
        const struct ps_make_places *at, ps_cu_stream stream)
{
	struct ps_images images = {.planes = at->slot + m->planes,
	        .nimages = m->nimages,
	        .width = m->width,
	        .height = m->height,
	        .npixels = m->width * m->height};

	return finish(k, m, &images, at->made + m->to, stream);
}
