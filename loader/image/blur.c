/* The blur and the noise of transform.h. */
#include <math.h>
#include <string.h>

#include "image/fixed_math.h"
#include "image/pixel.h"
#include "image/transform.h"

#define ONE14 16384
#define PAIR 2

static uint32_t weights_of(double sigma, uint32_t size, int32_t *q)
{
	uint32_t reach = size / 2;
	double w[PS_BLUR_REACH_MAX + 1], sum = 0;
	int32_t rest = ONE14;
	for (uint32_t i = 0; i <= reach; i++) {
		double x = i / sigma;
		w[i] = x > 30 ? 0 : ps_fixed_exp(-0.5 * x * x);
		sum += i ? PAIR * w[i] : w[i];
	}
	for (uint32_t i = 1; i <= reach; i++) {
		q[i] = (int32_t)floor(w[i] / sum * ONE14 + 0.5);
		rest -= PAIR * q[i];
	}
	q[0] = rest;
	while (reach > 0 && q[reach] == 0) /* nothing there, at a small sigma */
		reach--;
	return reach;
}

uint32_t ps_blur_weights(double sigma, uint32_t size, int32_t ret_weights[static PS_BLUR_REACH_MAX + 1])
{
	return weights_of(sigma, size, ret_weights);
}

#define CHUNK 256u /* columns at a time: sums stay in the nearest cache */

/* n columns from x on, with mirrored surroundings of `reach` to each side. */
static void chunk_padded(
        const uint8_t *row, uint32_t width, uint32_t x, uint32_t n, uint32_t reach, uint8_t *to)
{
	int64_t begin = (int64_t)x - reach, end = (int64_t)x + n + reach;
	uint32_t left = begin < 0 ? (uint32_t)-begin : 0, right = end > width ? (uint32_t)(end - width) : 0;
	uint32_t middle = n + 2 * reach - left - right;
	for (uint32_t i = 0; i < left; i++)
		to[i] = row[ps_pixel_mirrored(begin + i, width)];
	memcpy(to + left, row + begin + left, middle);
	for (uint32_t i = 0; i < right; i++)
		to[left + middle + i] = row[ps_pixel_mirrored((int64_t)width + i, width)];
}

/* GCC makes vectors of such loops at -O3 only: half the time. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

static void across(const int32_t *q, uint32_t reach, const uint8_t *row, uint32_t width, int16_t *to)
{
	uint8_t padded[CHUNK + PS_BLUR_SIZE_MAX];
	int32_t sums[CHUNK];
	for (uint32_t x = 0; x < width; x += CHUNK) {
		uint32_t n = PS_MIN(CHUNK, width - x);
		chunk_padded(row, width, x, n, reach, padded);
		for (uint32_t i = 0; i < n; i++)
			sums[i] = q[0] * padded[reach + i] + 128;
		for (uint32_t k = 1; k <= reach; k++) {
			const uint8_t *left = padded + reach - k, *right = padded + reach + k;
			for (uint32_t i = 0; i < n; i++)
				sums[i] += q[k] * (left[i] + right[i]);
		}
		for (uint32_t i = 0; i < n; i++)
			to[x + i] = (int16_t)(sums[i] >> 8);
	}
}

static void down(const int32_t *q, uint32_t reach, const int16_t *rows, uint32_t width, uint32_t height,
        uint32_t y, uint8_t *to)
{
	int32_t sums[CHUNK];
	for (uint32_t x = 0; x < width; x += CHUNK) {
		uint32_t n = PS_MIN(CHUNK, width - x);
		const int16_t *middle = rows + (size_t)y * width + x;
		for (uint32_t i = 0; i < n; i++)
			sums[i] = q[0] * middle[i] + (1 << 19);
		for (uint32_t k = 1; k <= reach; k++) {
			const int16_t *above =
			        rows + (size_t)ps_pixel_mirrored((int64_t)y - k, height) * width + x;
			const int16_t *below =
			        rows + (size_t)ps_pixel_mirrored((int64_t)y + k, height) * width + x;
			for (uint32_t i = 0; i < n; i++)
				sums[i] += q[k] * (above[i] + below[i]);
		}
		for (uint32_t i = 0; i < n; i++)
			to[x + i] = (uint8_t)(sums[i] >> 20);
	}
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/* One plane at a time: its rows between the passes are 16 bits, and take two of the spare's three planes. */
void ps_blur_apply(double sigma, uint32_t size, const struct ps_planes *planes, uint8_t *spare)
{
	uint32_t width = planes->width, height = planes->height;
	int32_t q[PS_BLUR_REACH_MAX + 1];
	int16_t *between = (int16_t *)(void *)spare;
	const uint32_t reach = weights_of(sigma, size, q);
	for (size_t c = 0; c < 3; c++) {
		uint8_t *plane = planes->p + c * width * height;
		for (uint32_t y = 0; y < height; y++)
			across(q, reach, plane + (size_t)y * width, width, between + (size_t)y * width);
		for (uint32_t y = 0; y < height; y++)
			down(q, reach, between, width, height, y, plane + (size_t)y * width);
	}
}

#define FOUR_BYTES_SIGMA 147.80054127 /* sqrt(4 * (256^2 - 1) / 12) */

int32_t ps_noise_factor(double sigma)
{
	return (int32_t)floor(sigma / FOUR_BYTES_SIGMA * 65536 + 0.5);
}

void ps_noise_apply(uint64_t noise_key, double sigma, const struct ps_planes *planes)
{
	size_t n = (size_t)planes->width * planes->height * 3;
	int32_t factor = ps_noise_factor(sigma);
	for (size_t i = 0; i < n; i += 4) {
		uint32_t words[4];
		ps_pixel_noise(noise_key, (uint32_t)(i / 4), words);
		for (size_t j = 0; j < 4 && i + j < n; j++)
			planes->p[i + j] = ps_pixel_noised(planes->p[i + j], words[j], factor);
	}
}
