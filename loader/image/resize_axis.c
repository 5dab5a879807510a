#include "image/resize_axis.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/overflow.h"

#define BITS_MAX 22        /* 255 * sum |w| * 2^22 fits 32 bits as long as sum |w| <= 2: cubics reach 1.3 */
#define WEIGHT_MAX 32766.0 /* rounding of running sums may add one */
#define TAPS_UNIT 4u       /* see struct ps_resize_axis */

static double triangle(double x)
{
	x = fabs(x);
	return x < 1 ? 1 - x : 0;
}

static double cubic(double x)
{
	const double a = -0.5;
	x = fabs(x);
	if (x < 1)
		return ((a + 2) * x - (a + 3)) * x * x + 1;
	if (x < 2)
		return (((x - 5) * x + 8) * x - 4) * a;
	return 0;
}

struct filter {
	double support;
	double (*weight)(double);
};

static struct filter filter_of(enum ps_interpolation interpolation)
{
	if (interpolation == PS_BICUBIC)
		return (struct filter){2, cubic};
	return (struct filter){1, triangle};
}

static int reserve(void *array_of_anything, size_t *cap, size_t n, size_t size)
{
	void **array = array_of_anything;
	size_t nbytes;
	if (n <= *cap)
		return 0;
	if (!ps_size_mul(n, size, &nbytes))
		return -ENOMEM;
	void *grown = realloc(*array, nbytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*cap = n;
	return 0;
}

static int reserve_all(struct ps_resize_axis *axis)
{
	size_t total;
	size_t cap_first = axis->cap_n, cap_count = axis->cap_n;
	if (!ps_size_mul(axis->n, axis->taps, &total))
		return -ENOMEM;
	if (reserve(&axis->first, &cap_first, axis->n, sizeof *axis->first) < 0 ||
	        reserve(&axis->count, &cap_count, axis->n, sizeof *axis->count) < 0)
		return -ENOMEM;
	axis->cap_n = PS_MIN(cap_first, cap_count);
	if (reserve(&axis->weights, &axis->cap_weights, total, sizeof *axis->weights) < 0)
		return -ENOMEM;
	return reserve(&axis->exact, &axis->cap_exact, total, sizeof *axis->exact);
}

/* Weights of one output, as resize.h defines them; returns the largest by amount. */
static double exact_weights(const struct filter *filter, const struct ps_resize_window *w, uint32_t output,
        uint32_t *ret_first, uint32_t *ret_count, double *ret_weights)
{
	double scale = w->span / w->scaled;
	double f = scale > 1 ? scale : 1, support = filter->support * f, inverse = 1 / f;
	double center = w->begin + (output + 0.5) * scale;
	double begin = center - support + 0.5, end = center + support + 0.5;
	uint32_t first = begin > 0 ? (uint32_t)begin : 0;
	uint32_t count = (end < w->limit ? (uint32_t)end : w->limit) - first;
	double sum = 0, largest = 0;
	for (uint32_t j = 0; j < count; j++) {
		ret_weights[j] = filter->weight((first + j - center + 0.5) * inverse);
		sum += ret_weights[j];
	}
	for (uint32_t j = 0; j < count; j++) {
		ret_weights[j] /= sum;
		largest = fmax(largest, fabs(ret_weights[j]));
	}
	*ret_first = first;
	*ret_count = count;
	return largest;
}

/* Rounding the running sums, not the weights, keeps the total exact and its error from piling up. */
static void round_weights(const double *exact, uint32_t count, uint32_t taps, int bits, int16_t *ret_weights)
{
	const int32_t one = (int32_t)1 << bits;
	double sum = 0;
	int32_t before = 0;
	for (uint32_t j = 0; j < count; j++) {
		sum += exact[j];
		int32_t after = j + 1 == count ? one : (int32_t)floor(sum * one + 0.5);
		ret_weights[j] = (int16_t)(after - before);
		before = after;
	}
	memset(ret_weights + count, 0, (taps - count) * sizeof *ret_weights);
}

static int bits_for(double largest)
{
	int bits = BITS_MAX;
	while (bits > 8 && ldexp(largest, bits) > WEIGHT_MAX)
		bits--;
	return bits;
}

int ps_resize_axis_plan(
        struct ps_resize_axis *axis, const struct ps_resize_window *w, enum ps_interpolation interpolation)
{
	const struct filter filter = filter_of(interpolation);
	double scale = w->span / w->scaled;
	double most = 2 * ceil(filter.support * (scale > 1 ? scale : 1)) + 1;
	uint32_t taps = most < w->limit ? (uint32_t)most : w->limit;
	axis->n = w->size;
	axis->taps = (taps + TAPS_UNIT - 1) / TAPS_UNIT * TAPS_UNIT;
	if (reserve_all(axis) < 0)
		return -ENOMEM;

	double largest = 0;
	uint32_t begin = UINT32_MAX, end = 0, max_count = 0;
	for (uint32_t i = 0; i < axis->n; i++) {
		uint32_t output = w->offset + (w->reversed ? axis->n - 1 - i : i);
		double *exact = axis->exact + (size_t)i * axis->taps;
		largest = fmax(
		        largest, exact_weights(&filter, w, output, &axis->first[i], &axis->count[i], exact));
		begin = PS_MIN(begin, axis->first[i]);
		end = PS_MAX(end, axis->first[i] + axis->count[i]);
		max_count = PS_MAX(max_count, axis->count[i]);
	}
	axis->bits = bits_for(largest);
	axis->source = begin;
	axis->source_size = end - begin;

	/* Often fewer taps than the bound: the kernels' loops are that much shorter. */
	uint32_t used = (max_count + TAPS_UNIT - 1) / TAPS_UNIT * TAPS_UNIT;
	for (uint32_t i = 0; i < axis->n; i++) {
		axis->first[i] -= begin;
		round_weights(axis->exact + (size_t)i * axis->taps, axis->count[i], used, axis->bits,
		        axis->weights + (size_t)i * used);
	}
	axis->taps = used;
	axis->max_count = max_count;
	return 0;
}

void ps_resize_axis_fini(struct ps_resize_axis *axis)
{
	free(axis->first);
	free(axis->count);
	free(axis->weights);
	free(axis->exact);
	*axis = (struct ps_resize_axis){0};
}
