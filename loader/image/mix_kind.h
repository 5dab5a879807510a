/* How a batch is mixed: apart from mix.h for the kernels of GPUs. */
#ifndef PS_LOADER_IMAGE_MIX_KIND_H
#define PS_LOADER_IMAGE_MIX_KIND_H

enum ps_mix_kind {
	PS_MIX_NONE,
	PS_MIX_UP,
	PS_MIX_CUT,
};

#endif
