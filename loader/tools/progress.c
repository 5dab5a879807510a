#include "config.h"

#include "tools/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define REDRAW_SECONDS 0.2

static double now(void)
{
	return (double)ps_clock_mono_ns() / 1e9;
}

void ps_progress_begin(struct ps_progress *p, const char *what, const char *unit, uint64_t total)
{
	*p = (struct ps_progress){.shown = isatty(STDERR_FILENO) == 1,
	        .what = what,
	        .unit = unit,
	        .total = total,
	        .began = now()};
	pthread_mutex_init(&p->lock, NULL);
}

static void draw(const struct ps_progress *p, double t)
{
	double seconds = t - p->began;
	char of[32] = "";

	if (p->total > 0)
		snprintf(of, sizeof(of), "/%ju", (uintmax_t)p->total);
	fprintf(stderr, "\r%s: %ju%s %s, %.1f MB, %.0f MB/s\033[K", p->what, (uintmax_t)p->done, of, p->unit,
	        (double)p->nbytes / 1e6, seconds > 0 ? (double)p->nbytes / 1e6 / seconds : 0);
}

void ps_progress_add(struct ps_progress *p, uint64_t units, uint64_t nbytes)
{
	if (!p->shown)
		return;
	PS_LOCK_SCOPE(&p->lock);
	double t = now();
	p->done += units;
	p->nbytes += nbytes;
	if (t - p->drawn < REDRAW_SECONDS)
		return;
	p->drawn = t;
	draw(p, t);
}

void ps_progress_wipe(struct ps_progress *p)
{
	if (p->shown)
		fprintf(stderr, "\r\033[K");
}

void ps_progress_end(struct ps_progress *p)
{
	ps_progress_wipe(p);
	pthread_mutex_destroy(&p->lock);
}
