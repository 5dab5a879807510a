#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define LOG_LINE_LEN 2048 /* longer messages are cut */
#define PATIENCE_MS 20    /* with a reader whose pipe is full */

/* Set once by ps_log_open() before threads start; read-only afterwards. */
static struct {
	enum ps_log_level level;
	int fd;
	bool to_syslog;
	char *path; /* of the log file, or NULL */
	bool stamp; /* a terminal's or a pipe's reader has its own clock; a file has none */
} logger = {.level = PS_LOG_WARNING, .fd = STDERR_FILENO};

/* What is said before the log is open, which in some programs it never is. */
static pthread_mutex_t early_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	enum ps_log_level level;
	char text[512];
} early[8];
static unsigned nearly;
static bool opened;

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static const int level_priorities[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

int ps_log_open(const char *target, enum ps_log_level level, const char *ident, struct ps_error *err)
{
	if (strcmp(target, "syslog") == 0) {
		openlog(ident, LOG_PID | LOG_NDELAY, LOG_DAEMON);
		logger.to_syslog = true;
	} else if (strcmp(target, "stderr") != 0) {
		int fd = open(target, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);

		if (fd < 0)
			return ps_error_set(err, errno, "log file %s: %s", target, strerror(errno));
		if (logger.path) { /* the log was opened before */
			close(logger.fd);
			free(logger.path);
		}
		logger.fd = fd;
		logger.stamp = true;
		logger.path = strdup(target); /* without memory it cannot be opened again, no more */
	}
	logger.level = level;
	opened = true;
	for (unsigned i = 0; i < nearly && strcmp(target, "stderr") != 0; i++)
		ps_log(early[i].level, "%s", early[i].text);
	nearly = 0;
	return 0;
}

const char *ps_log_early(unsigned i)
{
	return i < nearly ? early[i].text : NULL;
}

int ps_log_reopen(void)
{
	if (!logger.path)
		return 0;
	int fd = open(logger.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
	if (fd < 0)
		return -errno;
	/* In place of the old number: writers on other threads see one file or the other, never none. */
	int rc = dup2(fd, logger.fd) < 0 || fcntl(logger.fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

/* A reader of the log who does not read (a pipe, a stopped terminal) must not stop who logs: lines are lost
 * then, and that is said once he reads again. */
static void write_line(const char *line, size_t n)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static unsigned long lost;

	PS_LOCK_SCOPE(&lock);
	struct pollfd to = {.fd = logger.fd, .events = POLLOUT};
	if (poll(&to, 1, lost ? 0 : PATIENCE_MS) == 0) {
		lost++;
		return;
	}
	if (lost) {
		char note[80];
		int m = snprintf(
		        note, sizeof(note), "penstock: warning: %lu lines of this log are lost\n", lost);

		lost = 0;
		if (write(logger.fd, note, (size_t)m) < 0)
			return;
	}
	if (write(logger.fd, line, n) < 0) {
		/* There is no other place for the message. */
	}
}

void ps_log(enum ps_log_level level, const char *fmt, ...)
{
	char line[LOG_LINE_LEN];
	size_t n = 0;
	va_list ap;

	if (level > logger.level)
		return;
	if (!opened) {
		PS_LOCK_SCOPE(&early_lock);
		va_start(ap, fmt);
		if (nearly < PS_ARRAY_LEN(early)) {
			vsnprintf(early[nearly].text, sizeof(early[0].text), fmt, ap);
			early[nearly++].level = level;
		}
		va_end(ap);
	}
	va_start(ap, fmt);
	if (logger.to_syslog) {
		vsyslog(level_priorities[level], fmt, ap);
		va_end(ap);
		return;
	}
	if (logger.stamp) {
		time_t now = time(NULL);
		struct tm tm;

		n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S%z ", localtime_r(&now, &tm));
	}
	n += (size_t)snprintf(line + n, sizeof(line) - n, "penstock: %s: ", level_names[level]);
	int m = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	if (m > 0)
		n += PS_MIN((size_t)m, sizeof(line) - n - 2);
	/* A name from an origin may hold a newline; it must not be able to forge a line of the log. */
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[n++] = '\n';
	write_line(line, n);
}

bool ps_log_rate_pass(struct ps_log_rate *rate, unsigned *ret_left_out)
{
	uint64_t now = ps_clock_mono_ns(), next = atomic_load(&rate->next_ns);

	if (now < next ||
	        !atomic_compare_exchange_strong(&rate->next_ns, &next, now + PS_LOG_RATE_S * PS_NS_PER_S)) {
		atomic_fetch_add(&rate->left_out, 1);
		return false;
	}
	*ret_left_out = atomic_exchange(&rate->left_out, 0);
	return true;
}
