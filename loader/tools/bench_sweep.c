/* bench --sweep: every combination of threads, batch and device, and which is best. */

#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/cpus.h"
#include "tools/bench.h"
#include "tools/tools.h"

#define SECONDS 3.0 /* seconds of a point, by default */
/* points with this share of the best rate are as good: the one with the fewest threads is chosen */
#define AS_GOOD 0.97

/* Fills in ranges that the command line does not give. */
static void ranges_fill(struct ps_bench_options *o)
{
	static const uint32_t batches[] = {32, 64, 128, 256};
	uint32_t cpus = ps_cpus_usable();

	for (uint32_t n = 1; !o->nthreads || o->threads[o->nthreads - 1] < cpus; n *= 2) {
		if (o->nthreads > 0 && n == 1)
			break; /* the command line has them */
		if (o->nthreads == PS_BENCH_MAX_SWEEP)
			break;
		o->threads[o->nthreads++] = PS_MIN(n, cpus);
	}
	if (o->nbatches == 0) {
		memcpy(o->batches, batches, sizeof(batches));
		o->nbatches = PS_ARRAY_LEN(batches);
	}
	if (o->ndevices == 0)
		o->devices[o->ndevices++] = (char *)(uintptr_t)(o->loader.device ? o->loader.device : "cpu");
	if (o->max_seconds == 0)
		o->max_seconds = SECONDS;
	o->quiet = true;
	o->loader.profile = 0;
}

/* The rate from the first batch on: before that batch, threads are started and files are opened. */
static double rate_of(const struct ps_bench_point *p)
{
	uint64_t samples = p->result.stats.samples, first = PS_MIN(samples, p->batch);
	double seconds = p->result.seconds - p->result.first_batch_seconds;

	if (p->error.code)
		return 0;
	if (samples == first || seconds <= 0)
		return p->result.seconds > 0 ? (double)samples / p->result.seconds : 0;
	return (double)(samples - first) / seconds;
}

static double cpu_rate(const struct ps_bench_point *p)
{
	return p->result.cpu_seconds > 0 ? (double)p->result.stats.samples / p->result.cpu_seconds : 0;
}

static const struct ps_bench_point *best_of(const struct ps_bench_point *points, size_t n)
{
	const struct ps_bench_point *best = NULL;
	double most = 0;

	for (size_t i = 0; i < n; i++)
		most = fmax(most, rate_of(&points[i]));
	for (size_t i = 0; i < n; i++) {
		const struct ps_bench_point *p = &points[i];

		if (rate_of(p) <= 0 || rate_of(p) < AS_GOOD * most)
			continue;
		if (!best || p->threads < best->threads ||
		        (p->threads == best->threads && p->batch < best->batch))
			best = p;
	}
	return best;
}

static void point_run(const struct ps_bench_options *options, struct ps_bench_point *p)
{
	struct ps_bench_options o = *options;
	ps_autofree struct ps_bench_result *epochs = ps_need(calloc(o.loader.epochs, sizeof(*epochs)));

	o.loader.fields = o.fields;
	o.loader.threads = p->threads;
	o.loader.batch = p->batch;
	o.loader.device = p->device;
	if (ps_bench_run(&o, &p->result, epochs, &p->error) == 0)
		p->error.code = 0;
}

static void row_print(const struct ps_bench_point *p, const struct ps_bench_point *best)
{
	printf("%7u %7u %-8s ", p->threads, p->batch, p->device);
	if (p->error.code)
		printf("failed: %s\n", p->error.text);
	else
		printf("%11.0f %13.0f %9.3f  %-9s%s\n", rate_of(p), cpu_rate(p),
		        p->result.first_batch_seconds, p->result.stats.bottleneck, p == best ? " best" : "");
}

static void report_table(const struct ps_bench_point *points, size_t n, const struct ps_bench_point *best)
{
	printf("%7s %7s %-8s %11s %13s %9s  %s\n", "threads", "batch", "device", "samples/s", "samples/CPU s",
	        "first s", "bottleneck");
	for (size_t i = 0; i < n; i++)
		row_print(&points[i], best);
	if (best)
		printf("\nbest: --threads %u --batch %u --device %s (%.0f samples/s)\n", best->threads,
		        best->batch, best->device, rate_of(best));
}

static json_t *point_json(const struct ps_bench_point *p)
{
	if (p->error.code)
		return json_pack("{s:i, s:i, s:s, s:s}", "threads", (int)p->threads, "batch", (int)p->batch,
		        "device", p->device, "error", p->error.text);
	return json_pack("{s:i, s:i, s:s, s:I, s:f, s:f, s:f, s:f, s:s, s:s}", "threads", (int)p->threads,
	        "batch", (int)p->batch, "device", p->device, "samples", (json_int_t)p->result.stats.samples,
	        "seconds", p->result.seconds, "samples_per_second", rate_of(p), "samples_per_cpu_second",
	        cpu_rate(p), "first_batch_seconds", p->result.first_batch_seconds, "bottleneck",
	        p->result.stats.bottleneck, "advice", p->result.stats.advice);
}

static void report_json(const struct ps_bench_point *points, size_t n, const struct ps_bench_point *best)
{
	json_t *list = json_array(), *root;

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, point_json(&points[i]));
	root = ps_need(json_pack("{s:o, s:o}", "sweep", list, "best", best ? point_json(best) : json_null()));
	json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(root);
}

/* Plots -------------------------------------------------------------------------------------------------- */

enum {
	WIDTH = 760,
	HEIGHT = 440,
	LEFT = 80, /* LEFT to BOTTOM: the edges of the drawing itself */
	RIGHT = 600,
	TOP = 30,
	BOTTOM = 380,
};

struct plot {
	FILE *out;
	double tick, top_rate; /* the distance of ticks; the first tick above the highest rate */
	uint32_t least_threads, most_threads;
};

/* A line's label: where the line ends, and where the label is. */
struct label {
	const struct ps_bench_point *last;
	const char *colour;
	double y;
};

/* The distance of ticks: 1, 2 or 5 times a power of ten, and not below v / 5. */
static double tick_of(double v)
{
	double unit = pow(10, floor(log10(v / 5)));

	return v / 5 <= unit ? unit : v / 5 <= 2 * unit ? 2 * unit : v / 5 <= 5 * unit ? 5 * unit : 10 * unit;
}

/* Counts of threads have a logarithmic axis, as they are powers of two. */
static double x_of(const struct plot *p, uint32_t threads)
{
	double span = log2(p->most_threads) - log2(p->least_threads);

	return span > 0 ? LEFT + (RIGHT - LEFT) * (log2(threads) - log2(p->least_threads)) / span
	                : (LEFT + RIGHT) / 2.0;
}

static double y_of(const struct plot *p, double rate)
{
	return BOTTOM - (BOTTOM - TOP) * rate / p->top_rate;
}

static void axes(const struct plot *p, const struct ps_bench_point *points, size_t n)
{
	for (double v = 0; v <= p->top_rate * 1.001; v += p->tick) {
		fprintf(p->out, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>", LEFT, y_of(p, v), RIGHT);
		fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8,
		        y_of(p, v) + 4, v);
	}
	for (size_t i = 0;
	        i < n && points[i].batch == points[0].batch && points[i].device == points[0].device; i++)
		fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n",
		        x_of(p, points[i].threads), BOTTOM + 20, points[i].threads);
	fprintf(p->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">decoding threads</text>\n",
	        (LEFT + RIGHT) / 2, BOTTOM + 44);
	fprintf(p->out, "<text x=\"%d\" y=\"%d\">samples a second</text>\n", LEFT, TOP - 12);
}

/* Draws the line of the points that share the first one's batch and device; returns their number. last is NULL
 * if no run of them worked. */
static size_t line(const struct plot *p, const struct ps_bench_point *points, size_t n, const char *colour,
        struct label *ret_label)
{
	size_t k = 0;

	*ret_label = (struct label){.colour = colour};
	fprintf(p->out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"", colour);
	for (; k < n && points[k].batch == points[0].batch && points[k].device == points[0].device; k++) {
		if (rate_of(&points[k]) <= 0)
			continue;
		fprintf(p->out, "%c%.1f %.1f", ret_label->last ? 'L' : 'M', x_of(p, points[k].threads),
		        y_of(p, rate_of(&points[k])));
		ret_label->last = &points[k];
	}
	fprintf(p->out, "\"/>\n");
	for (size_t i = 0; i < k; i++)
		if (rate_of(&points[i]) > 0)
			fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
			        x_of(p, points[i].threads), y_of(p, rate_of(&points[i])), colour);
	if (ret_label->last)
		ret_label->y = y_of(p, rate_of(ret_label->last));
	return k;
}

static int by_height(const void *a, const void *b)
{
	const struct label *l = a, *m = b;

	return (l->y > m->y) - (l->y < m->y);
}

/* Writes the labels at the height where their lines end, or as near to it as the others allow. */
static void labels_write(const struct plot *p, struct label *labels, size_t n)
{
	double apart = fmin(16, (double)(BOTTOM - TOP) / (double)n);

	qsort(labels, n, sizeof(*labels), by_height);
	for (size_t i = 1; i < n; i++)
		labels[i].y = fmax(labels[i].y, labels[i - 1].y + apart);
	for (size_t i = n; i-- > 0;)
		labels[i].y = fmin(labels[i].y, i + 1 < n ? labels[i + 1].y - apart : BOTTOM);
	for (size_t i = 0; i < n; i++) {
		const struct ps_bench_point *last = labels[i].last;

		fprintf(p->out, "<path stroke=\"%s\" d=\"M%.1f %.1fL%d %.1f\"/>\n", labels[i].colour,
		        x_of(p, last->threads), y_of(p, rate_of(last)), RIGHT + 14, labels[i].y);
		fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">batch %u, ", RIGHT + 18,
		        labels[i].y + 4, labels[i].colour, last->batch);
		for (const char *c = last->device; *c; c++)
			putc(*c == '<' || *c == '&' ? '?' : *c, p->out);
		fprintf(p->out, "</text>\n");
	}
}

/* Circles the best point, and names it above the drawing. */
static void best_mark(const struct plot *p, const struct ps_bench_point *best)
{
	fprintf(p->out,
	        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"none\" stroke=\"black\" "
	        "stroke-width=\"2\"/>\n",
	        x_of(p, best->threads), y_of(p, rate_of(best)));
	fprintf(p->out,
	        "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">best (circled): %u thread%s, batch %u</text>\n",
	        WIDTH - 20, TOP - 12, best->threads, ps_plural(best->threads), best->batch);
}

/* Draws samples a second over threads as SVG, with a line for each batch size and device; `best` (NULL: none) is
 * marked. False: the file cannot be written, with errno set. */
static bool plot_write(
        const char *path, const struct ps_bench_point *points, size_t n, const struct ps_bench_point *best)
{
	static const char *const colours[] = {
	        "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
	struct plot p = {.out = fopen(path, "we"), .least_threads = UINT32_MAX, .most_threads = 1};
	ps_autofree struct label *labels = ps_need(calloc(n, sizeof(*labels)));
	size_t nlines = 0, nlabels = 0;
	double most = 1;
	bool ok;

	if (!p.out)
		return false;
	for (size_t i = 0; i < n; i++) {
		most = fmax(most, rate_of(&points[i]));
		p.least_threads = PS_MIN(p.least_threads, points[i].threads);
		p.most_threads = PS_MAX(p.most_threads, points[i].threads);
	}
	p.tick = tick_of(most);
	p.top_rate = (floor(most / p.tick) + 1) * p.tick;
	fprintf(p.out,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
	        "font-family=\"sans-serif\" "
	        "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
	        WIDTH, HEIGHT);
	axes(&p, points, n);
	for (size_t i = 0; i < n; nlines++) {
		i += line(&p, points + i, n - i, colours[nlines % PS_ARRAY_LEN(colours)], &labels[nlabels]);
		nlabels += labels[nlabels].last != NULL;
	}
	labels_write(&p, labels, nlabels);
	if (best)
		best_mark(&p, best);
	fprintf(p.out, "</svg>\n");
	ok = !ferror(p.out);
	return fclose(p.out) == 0 && ok;
}

/* The command ---------------------------------------------------------------------------------------------- */

int ps_bench_sweep(const struct ps_bench_options *options)
{
	struct ps_bench_options o = *options;
	ps_autofree struct ps_bench_point *points = NULL;
	const struct ps_bench_point *best;
	size_t n = 0, all;

	ranges_fill(&o);
	all = (size_t)o.nthreads * o.nbatches * o.ndevices;
	points = ps_need(calloc(all, sizeof(*points)));
	for (; n < all; n++) {
		struct ps_bench_point *p = &points[n];

		p->device = o.devices[n / o.nthreads / o.nbatches];
		p->batch = o.batches[n / o.nthreads % o.nbatches];
		p->threads = o.threads[n % o.nthreads];
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "\r%zu of %zu: threads %u, batch %u, %s \033[K", n + 1, all,
			        p->threads, p->batch, p->device);
		point_run(&o, p);
	}
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
	best = best_of(points, n);
	if (o.json)
		report_json(points, n, best);
	else
		report_table(points, n, best);
	if (o.plot && !plot_write(o.plot, points, n, best))
		return ps_fail(PS_EXIT_FAILED, "--plot %s: %s", o.plot, strerror(errno));
	if (best)
		return PS_EXIT_OK;
	ps_loader_complain("bench: no run of the sweep worked: ",
	        points[0].error.code ? points[0].error.text : points[0].result.stats.advice);
	return PS_EXIT_FAILED;
}
