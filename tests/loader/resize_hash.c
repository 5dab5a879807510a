/* Prints a hash of many resizes to every dtype and layout by one vector unit. The line must be the same on
 * every machine. The program needs only the resize's own files, so that it can be cross-compiled.
 *
 *   resize_hash portable|avx2|neon          exit code 77: this processor or build has no such unit */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/picture.h"

#define CASES 150
#define SIDE 160u
#define SLACK 4096u
#define EXIT_SKIP 77

static uint64_t noise_state = 1;

static uint32_t noise(uint32_t low, uint32_t high)
{
	noise_state = noise_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return low + (uint32_t)(noise_state >> 33) % (high - low + 1);
}

/* FNV-1a. */
static uint64_t hash(uint64_t h, const uint8_t *bytes, size_t nbytes)
{
	for (size_t i = 0; i < nbytes; i++)
		h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
	return h;
}

static void random_geometry(struct ps_resize_geometry *g)
{
	uint32_t shrunk = 1u << noise(0, 2), side = SIDE * shrunk;
	*g = (struct ps_resize_geometry){.box_w = noise(1, side),
	        .box_h = noise(1, side),
	        .scaled_w = noise(1, SIDE),
	        .scaled_h = noise(1, SIDE),
	        .flip = noise(0, 1),
	        .flip_v = noise(0, 1),
	        .shrunk = shrunk};
	g->box_x = noise(0, side - g->box_w);
	g->box_y = noise(0, side - g->box_h);
	g->window_w = noise(1, g->scaled_w);
	g->window_h = noise(1, g->scaled_h);
	g->window_x = noise(0, g->scaled_w - g->window_w);
	g->window_y = noise(0, g->scaled_h - g->window_h);
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"portable", "avx2", "neon"};
	static uint8_t pixels[SIDE * SIDE * 3 + SLACK], out[SIDE * SIDE * 3 * sizeof(float)];
	struct ps_resize *r = NULL;
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	for (unsigned i = 0; argc == 2 && i < PS_ARRAY_LEN(names); i++) {
		if (!strcmp(argv[1], names[i]))
			r = ps_resize_new((enum ps_resize_cpu)i);
	}
	if (!r)
		return EXIT_SKIP;
	for (size_t i = 0; i < sizeof(pixels); i++)
		pixels[i] = (uint8_t)(i % 7 ? noise(0, 255) : 255);
	for (int n = 0; n < CASES; n++) {
		struct ps_resize_geometry g;
		struct ps_region region;
		struct ps_resize_sink sink = {.dst = out,
		        .dtype = (enum ps_dtype)(n % 4),
		        .layout = (enum ps_layout)(n / 4 % 2),
		        .scale = {0.0171f, 0.0175f, 3.2e-6f},
		        .bias = {-2.1f, -2.03f, 0}};
		random_geometry(&g);
		if (ps_resize_plan(r, &g, (enum ps_interpolation)(n / 8 % 2)) < 0)
			return 1;
		ps_resize_source(r, &region);
		ps_resize_begin(r, &sink);
		for (uint32_t y = region.y; y < region.y + region.height; y++)
			ps_resize_row(r, pixels + ((size_t)y * SIDE + region.x) * 3);
		h = hash(h, out, (size_t)g.window_w * g.window_h * 3 * ps_dtype_nbytes(sink.dtype));
	}
	ps_resize_free(r);
	printf("%016llx\n", (unsigned long long)h);
	return 0;
}
