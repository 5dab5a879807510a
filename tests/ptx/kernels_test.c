/* Kernels in nvcc's PTX give the same bytes as the same lines compiled as C. These tests run kernels and
 * arguments that whole runs (device_pixels_test) do not reach. MOCK_CUDA_PTX names the PTX. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/loader/kernel_lines.h"
#include "tests/ptx/mock.h"

#define PIECES_MOST 5

/* Device memory that a kernel sees. */
struct piece {
	uint8_t *now, *before, *want;
	size_t nbytes;
	void *shadow;
};

static struct piece pieces[PIECES_MOST];
static uint32_t npieces;
static uint32_t noise = 1;

static uint32_t random_word(void)
{
	noise = noise * 1664525 + 1013904223;
	return noise >> 8;
}

static void *piece_new(size_t nbytes)
{
	struct piece *p = &pieces[npieces++];
	void *now = NULL;

	assert_true(npieces <= PIECES_MOST);
	assert_int_equal(posix_memalign(&now, 256, nbytes), 0);
	*p = (struct piece){.now = now, .before = malloc(nbytes), .want = malloc(nbytes), .nbytes = nbytes};
	assert_true(p->before && p->want);
	for (size_t i = 0; i < nbytes; i++)
		p->now[i] = (uint8_t)random_word();
	return now;
}

static void pieces_free(void)
{
	while (npieces > 0) {
		struct piece *p = &pieces[--npieces];

		free(p->now);
		free(p->before);
		free(p->want);
		free(p->shadow);
	}
}

static const struct kernel *kernel_of(const char *name)
{
	size_t i = 0;

	while (i < PS_NKERNELS - 1 && strcmp(kernels[i].name, name) != 0)
		i++;
	assert_string_equal(kernels[i].name, name);
	return &kernels[i];
}

/* Runs the kernel as C and as PTX on the same memory and compares the results. The memory keeps the results
 * of the PTX. */
static void same(const char *name, const void *args, uint32_t nblocks)
{
	const struct kernel *k = kernel_of(name);
	struct ptx_kernel *ptx = mock_ptx_kernel(name, k->args_nbytes);
	struct ptx_range ranges[PIECES_MOST];
	const struct ptx_launch launch = {.grid = {nblocks, 1, 1},
	        .block = {PS_KERNEL_THREADS, 1, 1},
	        .shared_most = 48 << 10,
	        .params = args,
	        .ranges = ranges,
	        .nranges = npieces};

	assert_non_null(ptx);
	for (uint32_t i = 0; i < npieces; i++) {
		ranges[i] = (struct ptx_range){(char *)pieces[i].now, pieces[i].nbytes, &pieces[i].shadow};
		memcpy(pieces[i].before, pieces[i].now, pieces[i].nbytes);
	}
	k->run(args, nblocks);
	for (uint32_t i = 0; i < npieces; i++) {
		memcpy(pieces[i].want, pieces[i].now, pieces[i].nbytes);
		memcpy(pieces[i].now, pieces[i].before, pieces[i].nbytes);
	}
	if (!mock_ptx_launch(ptx, &launch))
		fail_msg("%s failed", name);
	for (uint32_t i = 0; i < npieces; i++)
		for (size_t at = 0; at < pieces[i].nbytes; at++)
			if (pieces[i].now[at] != pieces[i].want[at])
				fail_msg("%s: piece %u, byte %zu: %u, should be %u", name, i, at,
				        pieces[i].now[at], pieces[i].want[at]);
}

static void matrix_products(void **state)
{
	/* More than one tile: only with scripts/check --all, as this takes eight times as long. */
	const uint32_t most = getenv("PENSTOCK_TEST_LONG") ? 128 : 64;

	(void)state;
	for (uint32_t n = 64; n <= most; n += 64) {
		float *a = piece_new(n * n * 4), *b = piece_new(n * n * 4), *c = piece_new(n * n * 4);
		struct ps_gemm_args args = {a, b, c, n};

		for (uint32_t i = 0; i < n * n; i++) {
			a[i] = (float)(int32_t)(random_word() % 2001 - 1000) / 77;
			b[i] = (float)(int32_t)(random_word() % 2001 - 1000) / 1234567;
		}
		same("ps_kernel_gemm", &args, ps_gemm_blocks(n));
		pieces_free();
	}
}

static const struct {
	uint32_t width, height;
} sizes[] = {{16, 4}, {17, 13}, {8, 3}, {96, 33}, {1, 1}, {3, 1}, {70, 20}};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))
#define NIMAGES 4u

static struct ps_images images_new(uint32_t width, uint32_t height, bool with_ops)
{
	const uint32_t npixels = width * height;
	struct ps_images im = {.planes = piece_new((size_t)NIMAGES * 3 * npixels),
	        .nimages = NIMAGES,
	        .width = width,
	        .height = height,
	        .npixels = npixels};

	if (with_ops) {
		im.moved = piece_new((size_t)NIMAGES * 3 * npixels);
		im.ops = piece_new(NIMAGES * sizeof(*im.ops));
		memset(im.ops, 0, NIMAGES * sizeof(*im.ops));
		for (uint32_t i = 0; i < NIMAGES; i++)
			im.ops[i].what = i % 2 ? PS_IMAGE_AFFINE : 0;
	}
	return im;
}

static void each_way_to_finish(void **state)
{
	static const char *const types[] = {"u8", "f32", "f16", "bf16"}, *const layouts[] = {"nchw", "nhwc"};

	(void)state;
	for (uint32_t i = 0; i < NSIZES * 4 * 2 * 3; i++) {
		const uint32_t type = i % 4, layout = i / 4 % 2, mix = i / 8 % 3;
		const uint32_t width = sizes[i / 24].width, height = sizes[i / 24].height;
		struct ps_finish_args a = {.images = images_new(width, height, i / 24 % 2),
		        .to = piece_new((size_t)NIMAGES * 3 * width * height * 4),
		        .mix = mix,
		        .weight = random_word() % 65537,
		        .nviews = 1 + i % 2,
		        .box = {width / 4, height / 3, width - width / 5, height - height / 4}};
		char name[64];

		for (uint32_t c = 0; c < 3; c++) {
			a.scale[c] = (float)(1 + random_word() % 1000) / 54321;
			a.bias[c] = (float)(int32_t)(random_word() % 2001 - 1000) / 300;
		}
		snprintf(name, sizeof(name), "ps_kernel_finish_%s_%s", types[type], layouts[layout]);
		same(name, &a,
		        NIMAGES * ps_finish_blocks(
		                          (enum ps_dtype)type, (enum ps_layout)layout, width * height));
		pieces_free();
	}
}

/* Reaches 0 to 9, 68 and the largest, with rows that are mirrored as a whole, and with tiles that have
 * neighbours. */
static void each_reach_of_a_blur(void **state)
{
	(void)state;
	for (uint32_t reach = 0; reach <= PS_IMAGE_REACH_MAX; reach += reach < 9 ? 1 : 59) {
		const uint32_t width = reach + 1 + 70 * (reach % 2), height = reach + 1 + 19 * (reach % 3);
		struct ps_transform_args a = {.images = images_new(width, height, true)};

		a.between = piece_new((size_t)NIMAGES * 3 * width * height * sizeof(*a.between));
		for (uint32_t i = 0; i < NIMAGES; i++) {
			struct ps_image_ops *ops = &a.images.ops[i];

			ops->what |= i == 2 ? 0 : PS_IMAGE_BLUR;
			ops->reach = reach;
			for (uint32_t k = 0; k <= reach; k++)
				ops->blur[k] = (int16_t)(random_word() % (16384 / (2 * reach + 1)));
		}
		same("ps_kernel_blur_across", &a, NIMAGES * ps_blur_tiles(width, height));
		same("ps_kernel_blur_down", &a, NIMAGES * ps_blur_tiles(width, height));
		pieces_free();
	}
}

static void each_order_of_the_jitter(void **state)
{
	static const uint32_t last[] = {0x3, 0x2, 0x1, 0x0};

	(void)state;
	for (uint32_t s = 0; s < 3; s++) {
		for (uint32_t from = 0; from < 24; from += NIMAGES) {
			struct ps_transform_args a = {
			        .images = images_new(sizes[s].width, sizes[s].height, true)};

			for (uint32_t i = 0; i < NIMAGES; i++) {
				struct ps_image_ops *ops = &a.images.ops[i];
				uint32_t left[] = {0, 1, 2, 3}, r = from + i,
				         picks[] = {r / 6, r / 2 % 3, r % 2, 0};

				ops->what |= PS_IMAGE_CONTRAST | (random_word() & PS_IMAGE_COLORS);
				ops->brightness = 2048 + random_word() % 4096;
				ops->contrast = 2048 + random_word() % 4096;
				ops->saturation = 2048 + random_word() % 4096;
				ops->turn = (int32_t)(random_word() % 200000) - 100000;
				for (uint32_t k = 0; k < 4; k++) {
					ops->order |= left[picks[k]] << 4 * k;
					memmove(&left[picks[k]], &left[picks[k] + 1],
					        last[picks[k]] * sizeof(*left));
				}
			}
			same("ps_kernel_gray", &a, NIMAGES * ps_transform_blocks(a.images.npixels));
			same("ps_kernel_colors", &a, NIMAGES * ps_transform_blocks(a.images.npixels));
			pieces_free();
		}
	}
}

static void each_way_to_erase(void **state)
{
	(void)state;
	for (uint32_t s = 0; s < NSIZES; s++) {
		const uint32_t width = sizes[s].width, height = sizes[s].height;
		struct ps_transform_args a = {.images = images_new(width, height, true)};

		for (uint32_t i = 0; i < NIMAGES; i++) {
			struct ps_image_ops *ops = &a.images.ops[i];

			ops->what |= i == 2 ? 0 : PS_IMAGE_ERASE;
			ops->erase = (struct ps_erase){.key = random_word(),
			        .x0 = width / 4,
			        .y0 = i == 1 ? 0 : height / 3,
			        .x1 = width - width / 5,
			        .y1 = height,
			        .random = i % 2,
			        .factor = {9000, 20000, 25000},
			        .level = {1, 128, 255}};
		}
		same("ps_kernel_erase", &a, NIMAGES * ps_transform_blocks(3 * width * height));
		pieces_free();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(matrix_products),
	        cmocka_unit_test(each_way_to_finish),
	        cmocka_unit_test(each_reach_of_a_blur),
	        cmocka_unit_test(each_order_of_the_jitter),
	        cmocka_unit_test(each_way_to_erase),
	};

	if (!mock_ptx_wanted()) {
		puts("1..0 # SKIP no PTX: MOCK_CUDA_PTX names none");
		return 0;
	}
	return cmocka_run_group_tests_name("ptx-kernels", tests, NULL, NULL);
}
