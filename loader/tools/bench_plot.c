/* bench --sweep --plot: an SVG of samples a second over threads, a line a batch and device. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "tools/bench.h"

enum {
	WIDTH = 760,
	HEIGHT = 440,
	LEFT = 80, /* of the drawing itself */
	RIGHT = 600,
	TOP = 30,
	BOTTOM = 380,
};

struct plot {
	FILE *out;
	double most_rate;
	uint32_t least_threads, most_threads;
};

/* A value of 1, 2 or 5 times a power of ten that is not below v / 5. */
static double tick_of(double v)
{
	double unit = pow(10, floor(log10(v / 5)));

	return v / 5 <= unit ? unit : v / 5 <= 2 * unit ? 2 * unit : v / 5 <= 5 * unit ? 5 * unit : 10 * unit;
}

/* Threads are spread by their logarithm: they come as powers of two. */
static double x_of(const struct plot *p, uint32_t threads)
{
	double span = log2(p->most_threads) - log2(p->least_threads);

	return span > 0 ? LEFT + (RIGHT - LEFT) * (log2(threads) - log2(p->least_threads)) / span
	                : (LEFT + RIGHT) / 2.0;
}

static double y_of(const struct plot *p, double rate)
{
	return BOTTOM - (BOTTOM - TOP) * rate / p->most_rate;
}

static void axes(const struct plot *p, const struct ps_bench_point *points, size_t n)
{
	double tick = tick_of(p->most_rate);

	for (double v = 0; v <= p->most_rate * 1.001; v += tick) {
		fprintf(p->out, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>", LEFT, y_of(p, v), RIGHT);
		fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8,
		        y_of(p, v) + 4, v);
	}
	for (size_t i = 0; i < n; i++) /* those of later lines are the same, and drawn over */
		fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n",
		        x_of(p, points[i].threads), BOTTOM + 20, points[i].threads);
	fprintf(p->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">decoding threads</text>\n",
	        (LEFT + RIGHT) / 2, BOTTOM + 44);
	fprintf(p->out, "<text x=\"%d\" y=\"%d\">samples a second</text>\n", LEFT, TOP - 12);
}

/* The points that share the first one's batch and device; returns how many. */
static size_t line(const struct plot *p, const struct ps_bench_point *points, size_t n, unsigned number)
{
	static const char *const colours[] = {
	        "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
	const char *colour = colours[number % PS_ARRAY_LEN(colours)];
	size_t k = 0;

	fprintf(p->out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"", colour);
	for (char move = 'M';
	        k < n && points[k].batch == points[0].batch && points[k].device == points[0].device; k++) {
		if (ps_bench_rate(&points[k]) <= 0)
			continue;
		fprintf(p->out, "%c%.1f %.1f", move, x_of(p, points[k].threads),
		        y_of(p, ps_bench_rate(&points[k])));
		move = 'L';
	}
	fprintf(p->out, "\"/>\n");
	for (size_t i = 0; i < k; i++)
		if (ps_bench_rate(&points[i]) > 0)
			fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
			        x_of(p, points[i].threads), y_of(p, ps_bench_rate(&points[i])), colour);
	fprintf(p->out, "<text x=\"%d\" y=\"%u\" fill=\"%s\">batch %u, ", RIGHT + 16, TOP + 10 + 20 * number,
	        colour, points[0].batch);
	for (const char *c = points[0].device; *c; c++)
		putc(*c == '<' || *c == '&' ? '?' : *c, p->out);
	fprintf(p->out, "</text>\n");
	return k;
}

bool ps_bench_plot(const char *path, const struct ps_bench_point *points, size_t n)
{
	struct plot p = {.out = fopen(path, "we"), .least_threads = UINT32_MAX, .most_threads = 1};
	unsigned number = 0;
	bool ok;

	if (!p.out)
		return false;
	for (size_t i = 0; i < n; i++) {
		p.most_rate = fmax(p.most_rate, ps_bench_rate(&points[i]));
		p.least_threads = PS_MIN(p.least_threads, points[i].threads);
		p.most_threads = PS_MAX(p.most_threads, points[i].threads);
	}
	p.most_rate = fmax(p.most_rate, 1);
	fprintf(p.out,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
	        "font-family=\"sans-serif\" "
	        "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
	        WIDTH, HEIGHT);
	axes(&p, points, n);
	for (size_t i = 0; i < n;)
		i += line(&p, points + i, n - i, number++);
	fprintf(p.out, "</svg>\n");
	ok = !ferror(p.out);
	return fclose(p.out) == 0 && ok;
}
