/* bench: the run. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "public.h"
#include "tools/bench.h"
#include "tools/tools.h"

#define PROGRESS_SECONDS 0.2
#define NEXT_PLACES 65536u /* the last calls of next() whose times are kept */
#define NEXT_WARM 16u      /* first calls that are not counted: their batches are still being made */

static double now(void)
{
	return (double)ps_clock_mono_ns() / 1e9;
}

static double seconds_of(struct timeval tv)
{
	return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return seconds_of(u.ru_utime) + seconds_of(u.ru_stime);
}

/* a - b of all counters. */
static struct penstock_stats stats_minus(const struct penstock_stats *a, const struct penstock_stats *b)
{
	struct penstock_stats d = *a;

	d.samples -= b->samples;
	d.batches -= b->batches;
	d.bad -= b->bad;
	d.bytes_read -= b->bytes_read;
	d.reread -= b->reread;
	d.truncated -= b->truncated;
	d.seconds -= b->seconds;
	d.wait_storage -= b->wait_storage;
	d.wait_read -= b->wait_read;
	d.wait_decode -= b->wait_decode;
	d.copied_bytes -= b->copied_bytes;
	d.copy_seconds -= b->copy_seconds;
	d.gpu_engine_images -= b->gpu_engine_images;
	d.gpu_hybrid_images -= b->gpu_hybrid_images;
	d.cpu_images -= b->cpu_images;
	d.shards_lost -= b->shards_lost;
	d.blank_batches -= b->blank_batches;
	d.empty_epochs -= b->empty_epochs;
	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		d.stages[i].busy -= b->stages[i].busy;
		d.stages[i].waiting_input -= b->stages[i].waiting_input;
		d.stages[i].waiting_output -= b->stages[i].waiting_output;
	}
	ps_stats_judge(&d);
	return d;
}

/* A point in the run. A part of the run is measured between two points. */
struct mark {
	double time, cpu;
	struct penstock_stats stats;
};

static int mark_take(struct penstock_loader *loader, struct mark *m, struct penstock_error *error)
{
	m->time = now();
	m->cpu = cpu();
	return penstock_loader_stats(loader, &m->stats, sizeof(m->stats), error);
}

static void result_make(struct ps_bench_result *res, const struct mark *from, const struct mark *to,
        uint64_t epoch, double first)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	*res = (struct ps_bench_result){.epoch = epoch,
	        .stats = stats_minus(&to->stats, &from->stats),
	        .seconds = to->time - from->time,
	        .cpu_seconds = to->cpu - from->cpu,
	        .first_batch_seconds = first > 0 ? first - from->time : 0,
	        .peak_rss_nbytes = (uint64_t)u.ru_maxrss * 1024};
}

/* Prints progress. total: samples of the epoch; 0: not known. */
static void progress(uint64_t epoch, uint64_t samples, uint64_t total, double seconds)
{
	double rate = seconds > 0 ? (double)samples / seconds : 0;

	fprintf(stderr, "\repoch %ju: %ju", (uintmax_t)epoch, (uintmax_t)samples);
	if (total > 0)
		fprintf(stderr, " of %ju", (uintmax_t)total);
	fprintf(stderr, " samples, %.0f/s", rate);
	if (total > samples && rate > 0)
		fprintf(stderr, ", %.0f s left", (double)(total - samples) / rate);
	fputs("\033[K", stderr);
}

/* The consumer of the batches. */
struct consumer {
	struct penstock_loader *loader;
	struct ps_bench_step *step; /* NULL: none */
	bool talk, quiet;
	double until;   /* time at which the run ends; 0: with the epochs */
	float *next_us; /* duration of each next(), in a ring */
	uint64_t nnext;
	uint64_t nlost; /* lost shards that were reported */
	uint64_t total; /* samples of the epoch; 0: not known */
};

#define LOST_LINES 16

/* Reports each shard that was lost since the last call. */
static void lost_tell(struct consumer *c)
{
	struct penstock_lost lost;

	for (; penstock_loader_lost(c->loader, c->nlost, &lost) == 0; c->nlost++) {
		if (c->quiet || c->nlost > LOST_LINES)
			continue;
		if (c->talk)
			fprintf(stderr, "\r\033[K");
		if (c->nlost == LOST_LINES)
			ps_complain("more shards were lost; they are counted, but not listed");
		else
			ps_complain("lost shard %s: %s", lost.shard, lost.reason);
	}
}

/* Calls penstock_loader_next(), and stores how long it took. */
static int next(struct consumer *c, struct penstock_batch **ret_batch, struct penstock_error *error)
{
	double begin = now();
	int rc;

	if (c->until > 0 && begin >= c->until)
		return 0;
	rc = penstock_loader_next(c->loader, ret_batch, error);
	if (rc == 1)
		c->next_us[c->nnext++ % NEXT_PLACES] = (float)((now() - begin) * 1e6);
	return rc;
}

/* Runs one epoch. `from` is the end of the last epoch, and is set to the end of this one. */
static int epoch_run(struct consumer *c, uint64_t epoch, struct mark *from,
        struct ps_bench_result *ret_result, struct penstock_error *error)
{
	struct penstock_batch *batch;
	uint64_t samples = 0, total, batches;
	double first = 0, talked = from->time;
	struct mark to;
	int rc;

	if (c->talk && penstock_loader_length(c->loader, epoch, &total, &batches, NULL) == 0)
		c->total = total; /* else the same as in the epoch before */
	while ((rc = next(c, &batch, error)) == 1) {
		struct penstock_batch_info info;
		double t = now();

		penstock_batch_info(batch, &info);
		if (info.bad > 0)
			lost_tell(c);
		rc = c->step ? c->step->ops->take(c->step, batch, error) : 0;
		penstock_batch_release(batch);
		if (rc < 0)
			break;
		samples += info.rows;
		if (first == 0)
			first = t;
		if (c->talk && t - talked >= PROGRESS_SECONDS) {
			progress(epoch, samples, c->total, t - from->time);
			talked = t;
		}
	}
	if (rc >= 0)
		rc = mark_take(c->loader, &to, error);
	if (c->talk)
		fprintf(stderr, "\r\033[K");
	if (rc < 0)
		return rc;
	result_make(ret_result, from, &to, epoch, first);
	/* Not the difference of the marks: the next epoch's first shards may be read already. */
	ret_result->stats.bytes_read = ps_loader_epoch_nbytes(c->loader, epoch);
	c->total = samples;
	*from = to;
	return 0;
}

/* The loader's profile as a text. The profile may grow between two calls, as long as batches are read
 * ahead. */
static int profile_take(struct penstock_loader *loader, char **ret_profile, struct penstock_error *error)
{
	size_t size = 0;
	char *text = NULL;
	int rc;

	do {
		rc = penstock_loader_profile(loader, NULL, 0, error);
		if (rc < 0)
			break;
		size = (size_t)rc + (size_t)rc / 2 + 64;
		free(text);
		text = ps_need(malloc(size));
		rc = penstock_loader_profile(loader, text, size, error);
	} while (rc == -ENOBUFS);
	if (rc < 0) {
		free(text);
		return rc;
	}
	*ret_profile = text;
	return 0;
}

/* Makes the report of the whole run. */
static int all_judge(struct consumer *c, const struct ps_bench_options *o, const struct mark *start,
        const struct mark *end, struct ps_bench_result *ret_all, struct penstock_error *error)
{
	uint64_t n = PS_MIN(c->nnext, NEXT_PLACES),
	         skip = c->nnext <= NEXT_PLACES ? PS_MIN(n / 2, NEXT_WARM) : 0;
	struct penstock_lost lost;
	int rc = 0;

	result_make(ret_all, start, end, 0, 0);
	/* names and numbers of threads are those of the last mark */
	for (int i = 0; i < PENSTOCK_NSTAGES; i++) {
		ret_all->stats.stages[i].name = end->stats.stages[i].name;
		ret_all->stats.stages[i].threads = end->stats.stages[i].threads;
	}
	if (n > skip) {
		ret_all->next_p50_us = ps_bench_quantile(c->next_us + skip, n - skip, 0.5);
		ret_all->next_p99_us = ps_bench_quantile(c->next_us + skip, n - skip, 0.99);
	}
	if (penstock_loader_lost(c->loader, 0, &lost) == 0)
		snprintf(ret_all->lost_first, sizeof(ret_all->lost_first), "%s: %s", lost.shard, lost.reason);
	if (c->step) {
		rc = ps_bench_step_end(c->step, &ret_all->idle, error);
		if (rc < 0)
			return rc;
		ret_all->has_idle = true;
		ps_bench_step_judge(&ret_all->idle, &ret_all->stats);
	}
	return o->loader.profile ? profile_take(c->loader, &ret_all->profile, error) : 0;
}

static int epochs_run(struct consumer *c, const struct ps_bench_options *o, struct ps_bench_result *ret_all,
        struct ps_bench_result *ret_epochs, struct penstock_error *error)
{
	const struct mark start = {.time = now(), .cpu = cpu()};
	struct mark from = start;
	int rc = penstock_loader_open(&o->loader, o->shards, o->nshards, &c->loader, error);

	if (rc < 0)
		return rc;
	c->until = o->max_seconds > 0 ? start.time + o->max_seconds : 0;
	for (uint64_t i = 0; i < o->loader.epochs && rc == 0; i++)
		rc = epoch_run(c, o->loader.epoch + i, &from, &ret_epochs[i], error);
	if (rc == 0)
		rc = all_judge(c, o, &start, &from, ret_all, error);
	if (rc == 0)
		ret_all->first_batch_seconds = ret_epochs[0].first_batch_seconds;
	return rc;
}

int ps_bench_run(const struct ps_bench_options *o, struct ps_bench_result *ret_all,
        struct ps_bench_result *ret_epochs, struct penstock_error *error)
{
	ps_autofree float *next_us = ps_need(calloc(NEXT_PLACES, sizeof(*next_us)));
	struct consumer c = {
	        .quiet = o->quiet, .talk = !o->quiet && isatty(STDERR_FILENO) != 0, .next_us = next_us};
	int rc = 0;

	if (o->step_ms > 0) /* before the loader is opened, so a step is measured alone */
		rc = ps_bench_step_new(o->loader.device, o->step_ms, &c.step, error);
	if (rc == 0)
		rc = epochs_run(&c, o, ret_all, ret_epochs, error);
	/* The loader is closed first: its batches refer to the step's stream. */
	penstock_loader_close(c.loader);
	ps_bench_step_free(c.step);
	return rc;
}
