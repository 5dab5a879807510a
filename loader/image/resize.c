#include "image/picture.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/size.h"

/* The weights of an axis --------------------------------------------------------------------------------- */

/* `span` source pixels from `begin` on (a fraction of the first pixel, 0 to 1) become `scaled` pixels. Of
 * those, outputs offset .. offset + size - 1 are computed, in reverse order if reversed. Source pixels from
 * `limit` on have no weight. */
struct ps_resize_window {
	double begin, span;
	uint32_t limit, scaled, offset, size;
	bool reversed;
};

#define BITS_MAX 22        /* 255 * sum |w| * 2^22 fits 32 bits as long as sum |w| <= 2: cubics reach 1.3 */
#define WEIGHT_MAX 32766.0 /* rounding of running sums may add one */
#define TAPS_UNIT 4u       /* counts of weights are rounded up to this (struct ps_resize_axis) */

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

int ps_image_reserve(void *array_of_anything, size_t *cap, size_t n, size_t size)
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
	if (ps_image_reserve(&axis->first, &cap_first, axis->n, sizeof(*axis->first)) < 0 ||
	        ps_image_reserve(&axis->count, &cap_count, axis->n, sizeof(*axis->count)) < 0)
		return -ENOMEM;
	axis->cap_n = PS_MIN(cap_first, cap_count);
	if (ps_image_reserve(&axis->weights, &axis->cap_weights, total, sizeof(*axis->weights)) < 0)
		return -ENOMEM;
	return ps_image_reserve(&axis->exact, &axis->cap_exact, total, sizeof(*axis->exact));
}

/* Computes the weights of one output, as picture.h defines them; returns the largest absolute value. */
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

/* Rounds the running sums instead of the weights: the total stays exact, and errors do not add up. */
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
	memset(ret_weights + count, 0, (taps - count) * sizeof(*ret_weights));
}

static int axis_plan(
        struct ps_resize_axis *axis, const struct ps_resize_window *w, enum ps_interpolation interpolation)
{
	const struct filter filter =
	        interpolation == PS_BICUBIC ? (struct filter){2, cubic} : (struct filter){1, triangle};
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
	for (axis->bits = BITS_MAX; axis->bits > 8 && ldexp(largest, axis->bits) > WEIGHT_MAX;)
		axis->bits--;
	axis->source = begin;
	axis->source_size = end - begin;

	/* Often fewer taps than the bound are used, which makes the kernels' loops shorter. */
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

static void axis_fini(struct ps_resize_axis *axis)
{
	free(axis->first);
	free(axis->count);
	free(axis->weights);
	free(axis->exact);
	*axis = (struct ps_resize_axis){0};
}

/* The resize --------------------------------------------------------------------------------------------- */

#define FRACTION_MAX 6 /* fraction bits between the passes: 255 << 6 fits 16 bits, and so does a sum of two */
#define BITS_TOTAL 22  /* bits of weights and fraction together, in the vertical pass */
#define PACKED_ALIGN 32

struct buffer {
	void *p;
	size_t cap;
};

/* Rows between the passes are in a ring: row r of the region is in place r % ring_rows, as three planes of
 * `stride` columns. An output row is finished as soon as its last source row is there, so the ring needs
 * one place for each weight of an output row (v.max_count). */
struct ps_resize {
	const struct ps_resize_kernels *kernels;
	struct ps_resize_geometry geometry;
	struct ps_resize_axis h, v;
	struct buffer packed; /* the kernel's form of h's weights */
	struct buffer ring;   /* int16_t [ring_rows][3][stride] */
	struct buffer rows;   /* const int16_t *[v.max_count + 1]: arguments of a vertical kernel */
	struct buffer planes; /* float or uint8_t [3][stride]: a finished row before interleaving */
	uint32_t ring_rows;
	size_t stride;
	int fraction;
	struct ps_resize_sink sink;
	uint32_t next_row; /* row of the region that is fed next */
	uint32_t next_out; /* output row to be finished */
};

static const struct {
	const char *name;
	const struct ps_resize_kernels *kernels; /* NULL: not in this build */
} cpus[] = {
        [PS_RESIZE_PORTABLE] = {"portable", &ps_resize_portable},
#ifdef PS_RESIZE_HAVE_AVX2
        [PS_RESIZE_AVX2] = {"avx2", &ps_resize_avx2},
#endif
#ifdef PS_RESIZE_HAVE_NEON
        [PS_RESIZE_NEON] = {"neon", &ps_resize_neon},
#endif
};

static const struct ps_resize_kernels *kernels_of(enum ps_resize_cpu cpu)
{
#ifdef PS_RESIZE_HAVE_AVX2
	/* all CPUs with AVX2 have F16C, which clang cannot test for */
	if (cpu == PS_RESIZE_AVX2 && !__builtin_cpu_supports("avx2"))
		return NULL;
#endif
	return (size_t)cpu < PS_ARRAY_LEN(cpus) ? cpus[cpu].kernels : NULL;
}

enum ps_resize_cpu ps_resize_cpu_best(void)
{
	const char *wanted = getenv("PENSTOCK_ISA");
	enum ps_resize_cpu best = PS_RESIZE_PORTABLE;
	for (size_t i = 0; i < PS_ARRAY_LEN(cpus); i++) {
		if (!kernels_of((enum ps_resize_cpu)i))
			continue;
		best = (enum ps_resize_cpu)i;
		if (wanted && !strcmp(wanted, cpus[i].name))
			break;
	}
	return best;
}

struct ps_resize *ps_resize_new(enum ps_resize_cpu cpu)
{
	const struct ps_resize_kernels *kernels = kernels_of(cpu);
	struct ps_resize *r = kernels ? calloc(1, sizeof(*r)) : NULL;
	if (r)
		r->kernels = kernels;
	return r;
}

void ps_resize_free(struct ps_resize *r)
{
	if (!r)
		return;
	axis_fini(&r->h);
	axis_fini(&r->v);
	free(r->packed.p);
	free(r->ring.p);
	free(r->rows.p);
	free(r->planes.p);
	free(r);
}

/* Grows a buffer to at least nbytes, aligned for vector loads; the old content is lost. It is zeroed, since
 * kernels read (and then ignore) columns that were never written. */
static int buffer_reserve(struct buffer *b, size_t nbytes)
{
	size_t cap;
	if (nbytes <= b->cap)
		return 0;
	if (!ps_size_round_up(nbytes, PACKED_ALIGN, &cap))
		return -ENOMEM;
	free(b->p);
	b->cap = 0;
	b->p = aligned_alloc(PACKED_ALIGN, cap);
	if (!b->p)
		return -ENOMEM;
	memset(b->p, 0, cap);
	b->cap = cap;
	return 0;
}

static int reserve_buffers(struct ps_resize *r)
{
	size_t stride, row, ring, rows;
	if (!ps_size_round_up(r->h.n, PS_RESIZE_LANES, &stride) ||
	        !ps_size_mul(stride, 3 * sizeof(int16_t), &row) || !ps_size_mul(row, r->v.max_count, &ring) ||
	        !ps_size_mul((size_t)r->v.max_count + 1, sizeof(int16_t *), &rows))
		return -ENOMEM;
	r->stride = stride;
	r->ring_rows = r->v.max_count;
	if (r->kernels->pack && buffer_reserve(&r->packed, r->kernels->packed_nbytes(&r->h)) < 0)
		return -ENOMEM;
	if (buffer_reserve(&r->ring, ring) < 0 || buffer_reserve(&r->rows, rows) < 0)
		return -ENOMEM;
	return buffer_reserve(&r->planes, stride * 3 * sizeof(float));
}

/* The window of one axis, in pixels of the shrunken source. */
static struct ps_resize_window window_of(const struct ps_resize_geometry *g, uint32_t box, uint32_t nbox,
        uint32_t scaled, uint32_t offset, uint32_t size, bool reversed)
{
	uint32_t d = PS_MAX(g->shrunk, 1u), first = box / d;
	return (struct ps_resize_window){.begin = (double)(box % d) / d,
	        .span = (double)nbox / d,
	        .limit = (uint32_t)(((uint64_t)box + nbox + d - 1) / d) - first,
	        .scaled = scaled,
	        .offset = offset,
	        .size = size,
	        .reversed = reversed};
}

int ps_resize_plan(
        struct ps_resize *r, const struct ps_resize_geometry *g, enum ps_interpolation interpolation)
{
	const struct ps_resize_window across =
	        window_of(g, g->box_x, g->box_w, g->scaled_w, g->window_x, g->window_w, g->flip);
	const struct ps_resize_window down =
	        window_of(g, g->box_y, g->box_h, g->scaled_h, g->window_y, g->window_h, false);
	if (axis_plan(&r->h, &across, interpolation) < 0 || axis_plan(&r->v, &down, interpolation) < 0 ||
	        reserve_buffers(r) < 0)
		return -ENOMEM;
	r->geometry = *g;
	r->fraction = PS_MIN(FRACTION_MAX, BITS_TOTAL - r->v.bits);
	if (r->kernels->pack)
		r->kernels->pack(&r->h, r->packed.p);
	return 0;
}

void ps_resize_source(const struct ps_resize *r, struct ps_region *ret_region)
{
	uint32_t d = PS_MAX(r->geometry.shrunk, 1u);
	ret_region->x = r->geometry.box_x / d + r->h.source;
	ret_region->y = r->geometry.box_y / d + r->v.source;
	ret_region->width = r->h.source_size;
	ret_region->height = r->v.source_size;
}

void ps_resize_tables(const struct ps_resize *r, struct ps_resize_tables *ret_tables)
{
	*ret_tables = (struct ps_resize_tables){
	        .h = &r->h, .v = &r->v, .fraction = r->fraction, .flip_v = r->geometry.flip_v};
}

size_t ps_resize_slack(const struct ps_resize *r)
{
	/* The last output's weights may be padded to a whole group, and a load is of 16 bytes. */
	return (size_t)r->h.taps * 3 + 16;
}

void ps_resize_begin(struct ps_resize *r, const struct ps_resize_sink *sink)
{
	r->sink = *sink;
	r->next_row = 0;
	r->next_out = 0;
}

/* Interleaves three planes of n elements of esize (1, 2 or 4) bytes. */
static void interleave(const void *planes, size_t stride, uint32_t n, size_t esize, void *dst)
{
	for (uint32_t c = 0; c < 3; c++) {
		for (uint32_t x = 0; x < n; x++) {
			if (esize == 1)
				((uint8_t *)dst)[3 * x + c] = ((const uint8_t *)planes)[c * stride + x];
			else if (esize == 2)
				((uint16_t *)dst)[3 * x + c] = ((const uint16_t *)planes)[c * stride + x];
			else
				((uint32_t *)dst)[3 * x + c] = ((const uint32_t *)planes)[c * stride + x];
		}
	}
}

/* Multiplies the ring's rows by the weights of output row `out`, into planes that are `plane` elements
 * apart. */
static void vertical(struct ps_resize *r, uint32_t out, void *dst, size_t plane)
{
	const int16_t **rows = r->rows.p, *ring = r->ring.p;
	const int16_t *weights = r->v.weights + (size_t)out * r->v.taps;
	uint32_t count = r->v.count[out], npairs = (count + 1) / 2;
	int shift = r->v.bits + r->fraction;
	for (uint32_t k = 0; k < 2 * npairs; k++) {
		/* an odd count is padded with a weight of 0 */
		uint32_t row = r->v.first[out] + (k < count ? k : 0);
		rows[k] = ring + row % r->ring_rows * 3 * r->stride;
	}
	for (int c = 0; c < 3; c++) {
		r->kernels->vertical[r->sink.dtype](rows, weights, npairs, shift, r->h.n, r->sink.scale[c],
		        r->sink.bias[c], (uint8_t *)dst + c * plane * ps_dtype_nbytes(r->sink.dtype));
		for (uint32_t k = 0; k < 2 * npairs; k++)
			rows[k] += r->stride;
	}
}

static void finish_row(struct ps_resize *r, uint32_t out)
{
	size_t esize = ps_dtype_nbytes(r->sink.dtype), n = r->h.n;
	uint32_t row = r->geometry.flip_v ? r->v.n - 1 - out : out;
	uint8_t *dst = r->sink.dst;
	if (r->sink.layout == PS_NCHW) {
		vertical(r, out, dst + row * n * esize, n * r->v.n);
		return;
	}
	vertical(r, out, r->planes.p, r->stride);
	interleave(r->planes.p, r->stride, r->h.n, esize, dst + row * n * 3 * esize);
}

void ps_resize_row(struct ps_resize *r, const uint8_t *rgb)
{
	int16_t *slot = (int16_t *)r->ring.p + r->next_row % r->ring_rows * 3 * r->stride;
	r->kernels->horizontal(
	        &r->h, r->packed.p, rgb, r->h.bits - r->fraction, 255 << r->fraction, slot, r->stride);
	r->next_row++;
	while (r->next_out < r->v.n && r->v.first[r->next_out] + r->v.count[r->next_out] <= r->next_row)
		finish_row(r, r->next_out++);
}
