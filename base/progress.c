#include "base/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"

#define BAR_WIDTH 24
#define REDRAW_NS (PS_NS_PER_S / 10)
#define ETA_MAX_S (100 * 3600) /* a longer estimate is not shown */

const char *ps_progress_text(uint64_t done, uint64_t total, uint64_t fresh_nbytes, uint64_t elapsed_ns,
        const char *note, char buf[static PS_PROGRESS_LEN])
{
	char bar[BAR_WIDTH + 1], a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN], c[PS_SIZE_TEXT_LEN], eta[32] = "";
	double share = total ? (double)done / (double)total : 1;
	double rate = elapsed_ns ? (double)fresh_nbytes * (double)PS_NS_PER_S / (double)elapsed_ns : 0;
	size_t full = (size_t)(share >= 1 ? BAR_WIDTH : share * BAR_WIDTH);

	memset(bar, '#', full);
	memset(bar + full, '.', BAR_WIDTH - full);
	bar[BAR_WIDTH] = '\0';
	if (done < total && rate >= 1) {
		double left = (double)(total - done) / rate;

		if (left < ETA_MAX_S)
			snprintf(eta, sizeof(eta), ", %d:%02d:%02d left", (int)left / 3600,
			        (int)left / 60 % 60, (int)left % 60);
	}
	snprintf(buf, PS_PROGRESS_LEN, "[%s] %3d%% %s of %s, %s/s%s%s%s", bar,
	        (int)(share >= 1 ? 100 : share * 100), ps_size_format(done, a), ps_size_format(total, b),
	        ps_size_format((uint64_t)rate, c), eta, *note ? ", " : "", note);
	return buf;
}

void ps_progress_init(struct ps_progress *p, bool wanted, uint64_t start_nbytes)
{
	*p = (struct ps_progress){.shown = wanted && isatty(STDERR_FILENO),
	        .start_ns = ps_clock_mono_ns(),
	        .start_nbytes = start_nbytes};
}

void ps_progress_update(struct ps_progress *p, uint64_t done, uint64_t total, const char *note)
{
	char text[PS_PROGRESS_LEN];
	uint64_t now = ps_clock_mono_ns();

	if (!p->shown || (p->drawn && done < total && now - p->drawn_ns < REDRAW_NS))
		return;
	p->drawn = true;
	p->drawn_ns = now;
	uint64_t fresh = done > p->start_nbytes ? done - p->start_nbytes : 0;
	fprintf(stderr, "\r%s\033[K", ps_progress_text(done, total, fresh, now - p->start_ns, note, text));
	fflush(stderr);
}

void ps_progress_count(struct ps_progress *p, const char *what, uint64_t nfiles)
{
	uint64_t now = ps_clock_mono_ns();

	if (!p->shown || (p->drawn && now - p->drawn_ns < REDRAW_NS))
		return;
	p->drawn = p->counts = true;
	p->drawn_ns = now;
	fprintf(stderr, "\r%.100s: %ju files\033[K", what, (uintmax_t)nfiles);
	fflush(stderr);
}

void ps_progress_end(struct ps_progress *p)
{
	if (p->drawn)
		fputs(p->counts ? "\r\033[K" : "\n", stderr);
	p->drawn = false;
}
