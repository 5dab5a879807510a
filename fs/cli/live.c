#include "cli/live.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "cli/figure_text.h"
#include "options/options.h"

/* The course of a value over the last intervals ---------------------------------------------------------- */

#define COURSE 60

struct course {
	double v[COURSE]; /* a ring; below 0: no value */
	unsigned n;       /* values added so far */
};

static void course_add(struct course *course, double value)
{
	course->v[course->n++ % COURSE] = value;
}

static double course_most(const struct course *course)
{
	double most = 0;

	for (unsigned i = 0; i < PS_MIN(course->n, COURSE); i++)
		most = PS_MAX(most, course->v[i]);
	return most;
}

/* The latest value; below 0: none. */
static double course_last(const struct course *course)
{
	return course->n ? course->v[(course->n - 1) % COURSE] : -1;
}

/* Draws the history in `width` columns, the latest on the right; a value of `most` fills its column. */
static void course_draw(
        struct ps_strbuf *line, const struct course *course, double most, unsigned width, bool utf8)
{
	static const char *const blocks[2][9] = {
	        {" ", "_", ".", "-", "=", "+", "*", "%", "#"}, {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}};

	width = PS_MIN(width, COURSE);
	for (unsigned i = 0; i < width; i++) {
		unsigned back = width - i; /* 1: the latest */
		double v = back <= PS_MIN(course->n, COURSE) ? course->v[(course->n - back) % COURSE] : -1;
		int level = v < 0 || most <= 0 ? v < 0 ? 0 : 1 : 1 + (int)(v / most * 7 + 0.5);

		ps_strbuf_add(line, blocks[utf8][PS_MIN(level, 8)]);
	}
}

/* What is shown ------------------------------------------------------------------------------------------ */

struct screen {
	unsigned rows, columns;
	bool utf8;
	unsigned drawn;        /* rows */
	struct ps_strbuf out;  /* the next screen */
	struct ps_strbuf line; /* its current line */
};

/* The state of a daemon between intervals. */
struct daemon {
	json_int_t pid;
	json_t *doc, *before; /* at the end of the last interval, and at its beginning; NULL: not yet */
	uint64_t at_ns;
	double seconds; /* the interval's */
	struct course origin, readers, hits;
};
#define DAEMONS_MAX 16 /* further daemons are not shown */

static const char *size(double nbytes, char buf[static PS_SIZE_TEXT_LEN])
{
	return ps_size_format(nbytes > 0 ? (uint64_t)nbytes : 0, buf);
}

/* Ends the line: cuts it to the width and replaces control characters, which names may have. Each UTF-8
 * character counts as one column. Rows that do not fit are only counted; draw() shows their number in the
 * last row. */
static void end_line(struct screen *s)
{
	const char *p = ps_strbuf_peek(&s->line);

	if (s->line.s)
		ps_utf8_blank(s->line.s);
	s->drawn++;
	if (s->drawn > 1 && s->drawn <= s->rows)
		ps_strbuf_add(&s->out, "\r\n");
	for (unsigned column = 0; s->drawn <= s->rows && *p; p++) {
		if (((unsigned char)*p & 0xc0) != 0x80 && ++column > s->columns)
			break;
		ps_strbuf_addc(&s->out, *p);
	}
	if (s->drawn <= s->rows)
		ps_strbuf_add(&s->out, "\033[K");
	ps_strbuf_reset(&s->line);
}

static json_int_t grown(const json_t *now, const json_t *before, const char *part, const char *name)
{
	return before ? ps_figure_number(now, part, name) - ps_figure_number(before, part, name) : 0;
}

/* The sum over a daemon's mounts of the number at the path a, b, c. */
static json_int_t mounts_sum(const json_t *doc, const char *a, const char *b, const char *c)
{
	const json_t *mount;
	json_int_t sum = 0;
	size_t i;

	json_array_foreach(json_object_get(doc, "mounts"), i, mount) sum +=
	        ps_figure_number(json_object_get(mount, a), b, c);
	return sum;
}

/* The upper bound, as text, of the histogram bucket at which `share` of the counts since `before` is
 * reached; "" if there were none. */
static const char *quantile(const json_t *now, const json_t *before, double share, char buf[static 32])
{
	const json_t *buckets = json_object_get(now, "buckets"), *count;
	const json_t *old = json_object_get(before, "buckets");
	const char *bound;
	json_int_t all = json_integer_value(json_object_get(now, "count")) -
	                 json_integer_value(json_object_get(before, "count"));

	buf[0] = '\0';
	json_object_foreach((json_t *)buckets, bound, count)
	{
		json_int_t n = json_integer_value(count) - json_integer_value(json_object_get(old, bound));
		double s = strtod(bound, NULL);

		if (all <= 0 || (double)n < share * (double)all)
			continue;
		if (isinf(s))
			snprintf(buf, 32, "over 100 s");
		else
			snprintf(buf, 32, "%g %s", s < 1 ? s * 1000 : s, s < 1 ? "ms" : "s");
		break;
	}
	return buf;
}

static void add_latency(struct screen *s, const char *name, const json_t *now, const json_t *before)
{
	char p50[32], p99[32], most[32];
	const json_t *h = json_object_get(now, "latency_seconds"),
	             *was = json_object_get(before, "latency_seconds");

	ps_strbuf_addf(&s->line, "  %-8s ", name);
	if (!before || !*quantile(h, was, 0.5, p50))
		ps_strbuf_add(&s->line, "-");
	else
		ps_strbuf_addf(&s->line, "slowest %s, p99 %s, p50 %s", quantile(h, was, 1, most),
		        quantile(h, was, 0.99, p99), p50);
	end_line(s);
}

static void add_rate(struct screen *s, const char *name, const struct course *course, unsigned width)
{
	double now = course_last(course), most = course_most(course);
	char a[PS_SIZE_TEXT_LEN];

	ps_strbuf_addf(&s->line, "  %-8s %9s/s  ", name, now < 0 ? "-" : size(now, a));
	course_draw(&s->line, course, most, width, s->utf8);
	ps_strbuf_addf(&s->line, "  at most %s/s", size(most, a));
	end_line(s);
}

static void add_bar(struct ps_strbuf *line, double share, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		ps_strbuf_addc(line, i < (unsigned)(PS_MIN(share, 1) * width + 0.5) ? '#' : '.');
}

/* Draws a line with figures in it; none if there is nothing to show. */
static void draw_figures(struct screen *s, const char *line, const json_t *doc, const json_t *mount)
{
	ps_figure_text(&s->line, line, &(struct ps_figure_source){.doc = doc, .object = mount});
	if (s->line.len > 0)
		end_line(s);
}

/* Updates the daemon's state at the end of an interval. */
static void observe(struct daemon *daemon, json_t *doc)
{
	uint64_t now_ns = ps_clock_mono_ns();
	json_int_t nbytes;

	json_decref(daemon->before);
	daemon->before = daemon->doc;
	daemon->doc = json_incref(doc);
	daemon->seconds = (double)(now_ns - daemon->at_ns) / (double)PS_NS_PER_S;
	daemon->at_ns = now_ns;
	if (!daemon->before || daemon->seconds <= 0)
		return;
	nbytes = grown(doc, daemon->before, "reads", "bytes");
	course_add(&daemon->origin, (double)grown(doc, daemon->before, "origin", "bytes") / daemon->seconds);
	course_add(&daemon->readers, (double)nbytes / daemon->seconds);
	course_add(&daemon->hits,
	        nbytes > 0 ? 100 * (double)grown(doc, daemon->before, "reads", "hit_bytes") / (double)nbytes
	                   : -1);
}

static void draw_daemon(struct screen *s, const struct daemon *daemon, const json_t *mounts)
{
	const json_t *doc = daemon->doc, *before = daemon->before, *mount;
	unsigned width = s->columns > 60   ? PS_MIN(s->columns - 46, COURSE)
	                 : s->columns > 32 ? s->columns - 24
	                                   : 8;
	double hits = course_last(&daemon->hits), seconds = daemon->seconds;
	json_int_t passed = mounts_sum(doc, "modes", "passed", "opens");
	double limit = (double)ps_figure_number(doc, "cache", "limit_bytes");
	double used = (double)ps_figure_number(doc, "cache", "used_bytes");
	size_t i;

	end_line(s);
	draw_figures(s, "{/cache.dir}  (penstock {/version}, pid {#/pid})", doc, NULL);
	add_rate(s, "origin", &daemon->origin, width);
	add_rate(s, "readers", &daemon->readers, width);
	if (hits >= 0)
		ps_strbuf_addf(&s->line, "  hits     %7.1f %%    ", hits);
	else
		ps_strbuf_add(&s->line, "  hits           -      ");
	course_draw(&s->line, &daemon->hits, 100, width, s->utf8);
	end_line(s);
	if (passed > 0) {
		ps_strbuf_addf(&s->line, "  kernel   %7.1f opens/s served straight from the cache, %lld open",
		        before ? (double)(passed - mounts_sum(before, "modes", "passed", "opens")) / seconds
		               : 0,
		        (long long)mounts_sum(doc, "modes", "passed", "open"));
		end_line(s);
	}
	ps_strbuf_addf(&s->line, "  cache    %7.1f %%    [", limit > 0 ? 100 * used / limit : 0);
	add_bar(&s->line, limit > 0 ? used / limit : 0, PS_MIN(width, 16));
	ps_strbuf_add(&s->line, "] ");
	draw_figures(s, "{/cache.used_bytes} of {/cache.limit_bytes}, {/cache.objects}", doc, NULL);
	add_latency(s, "requests", json_object_get(doc, "origin"), json_object_get(before, "origin"));
	add_latency(s, "reads", json_object_get(doc, "reads"), json_object_get(before, "reads"));
	draw_figures(s, "[/origin.errors:  {/origin.errors}: {/origin.last_error}]", doc, NULL);
	json_array_foreach(mounts, i, mount) draw_figures(s,
	        "  {mountpoint}: [offline:OFFLINE, ]{files}, {cached_bytes} cached, "
	        "{#modes.passed.open+modes.direct.open+modes.cached.open} open, {#reads.waiting} waiting"
	        "[listing_error:, listing failed]",
	        doc, mount);
}

static struct daemon *daemon_of(struct daemon daemons[static DAEMONS_MAX], const json_t *doc)
{
	json_int_t pid = json_integer_value(json_object_get(doc, "pid"));

	for (size_t i = 0; i < DAEMONS_MAX; i++) {
		if (daemons[i].pid == pid || daemons[i].pid == 0) {
			daemons[i].pid = pid;
			return &daemons[i];
		}
	}
	return NULL;
}

static void draw(
        struct screen *s, struct daemon daemons[static DAEMONS_MAX], const json_t *list, uint64_t every_ms)
{
	char clock[16] = "";
	const json_t *one;
	struct winsize window;
	struct tm tm;
	time_t now = time(NULL);
	size_t i;

	s->rows = 24;
	s->columns = 80;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row && window.ws_col) {
		s->rows = window.ws_row;
		s->columns = window.ws_col;
	}
	s->drawn = 0;
	ps_strbuf_reset(&s->out);
	ps_strbuf_add(&s->out, "\033[H");
	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &tm));
	ps_strbuf_addf(&s->line, "penstock %s, every %g s; q ends", clock, (double)every_ms / 1000);
	end_line(s);
	if (json_array_size(list) == 0) {
		ps_strbuf_add(&s->line, "no penstock mounts");
		end_line(s);
	}
	json_array_foreach(list, i, one)
	{
		json_t *doc = json_object_get(one, "doc");
		const struct daemon *daemon = doc ? daemon_of(daemons, doc) : NULL;

		if (daemon) {
			draw_daemon(s, daemon, json_object_get(one, "mounts"));
		} else if (!doc) {
			ps_strbuf_addf(&s->line, "%s: %s", ps_figure_word(one, "mountpoint"),
			        ps_figure_word(one, "error"));
			end_line(s);
		}
	}
	if (s->drawn > s->rows)
		ps_strbuf_addf(&s->out, "\r... %u more lines\033[K", s->drawn - s->rows + 1);
	else
		ps_strbuf_add(&s->out, "\033[J");
	fputs(ps_strbuf_peek(&s->out), stdout);
	fflush(stdout);
}

/* The terminal ------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t ended, resized;

static void on_signal(int number)
{
	if (number == SIGWINCH)
		resized = 1;
	else
		ended = number;
}

bool ps_live_possible(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

/* Sets the terminal so that keys arrive at once and are not shown. Ctrl-Z is disabled: it would leave the
 * screen as it is. False: no keyboard. */
static bool take_keyboard(struct termios *ret_before)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, ret_before) < 0)
		return false;
	raw = *ret_before;
	raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
	raw.c_cc[VSUSP] = _POSIX_VDISABLE;
	return tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

/* Waits until until_ns, a signal or the key q. True: the display is to end. */
static bool pause_until(uint64_t until_ns, bool keyboard, const sigset_t *unblocked)
{
	struct pollfd key = {.fd = keyboard ? STDIN_FILENO : -1, .events = POLLIN};

	while (!ended && !resized) {
		uint64_t now = ps_clock_mono_ns(), left = until_ns > now ? until_ns - now : 0;
		struct timespec wait = {
		        .tv_sec = (time_t)(left / PS_NS_PER_S), .tv_nsec = (long)(left % PS_NS_PER_S)};
		char c;

		if (left == 0)
			return false;
		if (ppoll(&key, 1, &wait, unblocked) > 0 &&
		        (read(STDIN_FILENO, &c, 1) <= 0 || c == 'q' || c == 'Q'))
			return true;
	}
	return ended != 0;
}

int ps_live_run(uint64_t every_ms, int (*ask)(void *arg, json_t *list, struct ps_error *err), void *arg,
        struct ps_error *err)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
	const struct sigaction action = {.sa_handler = on_signal};
	struct daemon daemons[DAEMONS_MAX] = {0};
	struct screen s = {0};
	struct termios before;
	sigset_t blocked, unblocked;
	json_t *list = NULL, *one, *doc;
	struct daemon *daemon;
	int rc = 0;
	size_t i;

	setlocale(LC_CTYPE, "");
	s.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	sigemptyset(&blocked);
	for (i = 0; i < PS_ARRAY_LEN(signals); i++) {
		sigaddset(&blocked, signals[i]);
		sigaction(signals[i], &action, NULL);
	}
	sigprocmask(SIG_BLOCK, &blocked, &unblocked);
	bool keyboard = take_keyboard(&before), shown = false;
	for (uint64_t next_ns = ps_clock_mono_ns();;) {
		resized = 0;
		if (ps_clock_mono_ns() >= next_ns) {
			json_decref(list);
			list = json_array();
			next_ns = ps_clock_mono_ns() + every_ms * PS_NS_PER_MS;
			rc = ask(arg, list, err);
			json_array_foreach(list, i, one)
			{
				doc = json_object_get(one, "doc");
				daemon = doc ? daemon_of(daemons, doc) : NULL;
				if (daemon)
					observe(daemon, doc);
			}
		}
		if (rc < 0)
			break;
		if (!shown)
			/* the alternate screen, without a cursor */
			fputs("\033[?1049h\033[?25l\033[2J", stdout);
		shown = true;
		draw(&s, daemons, list, every_ms);
		if (ferror(stdout) || pause_until(next_ns, keyboard, &unblocked))
			break;
	}
	if (shown)
		fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	if (keyboard)
		tcsetattr(STDIN_FILENO, TCSANOW, &before);
	json_decref(list);
	for (i = 0; i < DAEMONS_MAX; i++) {
		json_decref(daemons[i].doc);
		json_decref(daemons[i].before);
	}
	ps_strbuf_fini(&s.out);
	ps_strbuf_fini(&s.line);
	return rc;
}
