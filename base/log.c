#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

#define LOG_LINE_LEN 2048 /* longer messages are cut */
#define PATIENCE_MS 20    /* how long a write waits for the reader of a full pipe or queue */

static const struct sockaddr_un journal = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
static atomic_bool unlogged; /* a warning or an error was dropped, because there is no syslog */
static const struct sockaddr_un syslogd = {.sun_family = AF_UNIX, .sun_path = _PATH_LOG};

/* Set once by ps_log_open() before threads start; read-only afterwards. */
static struct {
	enum ps_log_level level;
	enum { TO_FD, TO_SYSLOG, TO_JOURNAL, TO_RELAY, TO_NOTHING } to;
	int fd;    /* not used for syslog */
	int relay; /* the writing end of the pipe of ps_log_relay_begin() */
	pid_t pid; /* whose messages these are; 0: this process's */
	const char *ident;
	char *path; /* of the log file, or NULL */
	bool stamp; /* begin each line with the time; only for a file */
} logger = {.level = PS_LOG_WARNING, .fd = STDERR_FILENO};

/* Messages before the log is open. Some programs never open it. */
static pthread_mutex_t early_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	enum ps_log_level level;
	char text[512];
} early[8];
static unsigned nearly;
static bool opened;

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static const int level_priorities[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

/* True if a socket of either type listens at addr. */
static bool listens(const struct sockaddr_un *addr)
{
	static const int types[] = {SOCK_DGRAM, SOCK_STREAM};

	for (size_t i = 0; i < PS_ARRAY_LEN(types); i++) {
		ps_autofd int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);

		if (fd >= 0 && connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0)
			return true;
	}
	return false;
}

/* Makes the journal the target, by the journal's own protocol: syslog's has no fields. */
static bool open_journal(void)
{
	const struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
	int fd = listens(&journal) ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;

	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	logger.fd = fd;
	logger.to = TO_JOURNAL;
	return true;
}

/* True if JOURNAL_STREAM names our stderr, as systemd sets it for services whose stderr is the journal. */
static bool stderr_is_journal(void)
{
	const char *announced = getenv("JOURNAL_STREAM");
	char own[48];
	struct stat st;

	if (!announced || fstat(STDERR_FILENO, &st) < 0)
		return false;
	snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(announced, own) == 0;
}

/* A daemon must not keep the stderr that it inherited: the reader of a pipe would wait for end of file
 * forever. The exception is a stderr that process 1 of a container also has: it stays open as long as the
 * container runs, and the container's log keeps the lines. */
static int open_container_log(void)
{
	struct stat own, first;

	if (fstat(STDERR_FILENO, &own) < 0 || stat("/proc/1/fd/2", &first) < 0 ||
	        own.st_dev != first.st_dev || own.st_ino != first.st_ino ||
	        (S_ISCHR(own.st_mode) && !isatty(STDERR_FILENO)))
		return -1;
	return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

static void open_syslog(void)
{
	int fd;

	if (open_journal())
		return;
	if (listens(&syslogd)) {
		openlog(logger.ident, LOG_PID | LOG_NDELAY, LOG_DAEMON);
		logger.to = TO_SYSLOG;
	} else if ((fd = open_container_log()) >= 0) {
		logger.fd = fd;
	} else {
		logger.to = TO_NOTHING;
	}
}

const char *ps_log_instead(void)
{
	return atomic_load(&unlogged)
	               ? "syslog is not running, so nothing is logged; use --log FILE, or mount with -f "
	                 "to log to stderr"
	               : NULL;
}

static int open_file(const char *path, struct ps_error *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);

	if (fd < 0)
		return ps_error_set(err, errno, "log file %s: %s", path, strerror(errno));
	if (logger.path) { /* the log was opened before: only tests open it twice */
		close(logger.fd);
		free(logger.path);
	}
	logger.fd = fd;
	logger.stamp = true;
	logger.path = strdup(path); /* if this fails for lack of memory, the file cannot be reopened */
	return 0;
}

int ps_log_open(const char *target, enum ps_log_level level, const char *ident, struct ps_error *err)
{
	bool repeat;
	int rc = 0;

	logger.ident = ident;
	if (strcmp(target, "syslog") == 0)
		open_syslog();
	else if (strcmp(target, "stderr") != 0)
		rc = open_file(target, err);
	else if (stderr_is_journal())
		open_journal();
	if (rc < 0)
		return rc;
	logger.level = level;
	opened = true;
	repeat = (logger.to != TO_FD && logger.to != TO_NOTHING) ||
	         logger.path; /* early messages went to stderr already */
	for (unsigned i = 0; i < nearly && repeat; i++)
		ps_log(early[i].level, "%s", early[i].text);
	nearly = 0;
	return 0;
}

const char *ps_log_early(unsigned i)
{
	return i < nearly ? early[i].text : NULL;
}

int ps_log_open_again(void)
{
	int fd = logger.path ? open(logger.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600)
	                     : -1;

	return fd < 0 && logger.path ? -errno : fd < 0 ? -ENOENT : fd;
}

int ps_log_take(int fd)
{
	/* dup2 keeps the descriptor's number: writers on other threads see one file or the other, never
	 * none. */
	int rc = dup2(fd, logger.fd) < 0 || fcntl(logger.fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

int ps_log_reopen(void)
{
	int fd = ps_log_open_again();

	return fd == -ENOENT && !logger.path ? 0 : fd < 0 ? fd : ps_log_take(fd);
}

/* The length of the first part of "call: object: reason", or 0. */
static int part_of(const char *text)
{
	const char *end = strstr(text, ": ");

	return end ? (int)(end - text) : 0;
}

static bool to_journal(enum ps_log_level level, const char *text, bool wait)
{
	char entry[2 * LOG_LINE_LEN + 256];
	int call = part_of(text), object, n;

	if (call != (int)strcspn(text, " :")) /* the text is a sentence, without a call */
		call = 0;
	object = call ? part_of(text + call + 2) : 0;
	n = snprintf(entry, sizeof(entry),
	        "PRIORITY=%d\nSYSLOG_FACILITY=%d\nSYSLOG_IDENTIFIER=%s\nSYSLOG_PID=%d\n",
	        level_priorities[level], LOG_DAEMON >> 3, logger.ident,
	        (int)(logger.pid ? logger.pid : getpid()));
	if (call)
		n += snprintf(entry + n, sizeof(entry) - (size_t)n, "PENSTOCK_CALL=%.*s\n", call, text);
	if (object)
		n += snprintf(entry + n, sizeof(entry) - (size_t)n, "PENSTOCK_OBJECT=%.*s\n", object,
		        text + call + 2);
	n += snprintf(entry + n, sizeof(entry) - (size_t)n, "MESSAGE=%s\n", text);
	return sendto(logger.fd, entry, (size_t)n, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT),
	               (const struct sockaddr *)&journal, sizeof(journal)) >= 0;
}

static bool to_fd(enum ps_log_level level, const char *text, bool wait)
{
	struct pollfd to = {.fd = logger.fd, .events = POLLOUT};
	char line[LOG_LINE_LEN + 64];
	size_t n = 0;

	if (poll(&to, 1, wait ? PATIENCE_MS : 0) == 0)
		return false;
	if (logger.stamp) {
		time_t now = time(NULL);
		struct tm tm;

		n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S%z ", localtime_r(&now, &tm));
	}
	n += (size_t)snprintf(line + n, sizeof(line) - n, "penstock: %s: %s\n", level_names[level], text);
	if (write(logger.fd, line, n) < 0) {
		/* There is no other place for the message. */
	}
	return true;
}

static bool to_relay(enum ps_log_level level, const char *text, bool wait)
{
	struct pollfd to = {.fd = logger.fd, .events = POLLOUT};
	char packet[LOG_LINE_LEN + 1] = {(char)level};
	size_t n = strnlen(text, LOG_LINE_LEN);

	if (poll(&to, 1, wait ? PATIENCE_MS : 0) == 0)
		return false;
	memcpy(packet + 1, text, n);
	return write(logger.fd, packet, 1 + n) > 0;
}

/* If the log's reader does not read (a pipe, a stopped terminal, a busy journal), callers must not block.
 * Lines are then lost, and their number is logged when the reader reads again. */
static void write_line(enum ps_log_level level, const char *text)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static unsigned long lost;
	bool (*const put)(enum ps_log_level, const char *, bool) = logger.to == TO_JOURNAL ? to_journal
	                                                           : logger.to == TO_RELAY ? to_relay
	                                                                                   : to_fd;
	char note[80];

	PS_LOCK_SCOPE(&lock);
	if (lost) {
		snprintf(note, sizeof(note), "%lu lines of this log are lost", lost);
		if (!put(PS_LOG_WARNING, note, false)) {
			lost++;
			return;
		}
		lost = 0;
	}
	if (!put(level, text, true))
		lost++;
}

void ps_log(enum ps_log_level level, const char *fmt, ...)
{
	char text[LOG_LINE_LEN] = "";
	va_list ap;

	if (level > logger.level)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A name from an origin may hold a newline; it must not be able to forge a line of the log. */
	ps_utf8_blank(text);
	if (!opened) {
		PS_LOCK_SCOPE(&early_lock);
		if (nearly < PS_ARRAY_LEN(early)) {
			snprintf(early[nearly].text, sizeof(early[0].text), "%.*s",
			        (int)sizeof(early[0].text) - 1, text);
			early[nearly++].level = level;
		}
	}
	if (logger.to == TO_NOTHING) {
		if (level <= PS_LOG_WARNING)
			atomic_store(&unlogged, true);
		return;
	}
	if (logger.to == TO_SYSLOG)
		syslog(level_priorities[level], "%s", text);
	else
		write_line(level, text);
}

/* The relay ---------------------------------------------------------------------------------------------- */

int ps_log_relay_begin(void)
{
	int ends[2];

	if (logger.to != TO_SYSLOG && logger.to != TO_JOURNAL)
		return -1;
	if (pipe2(ends, O_CLOEXEC | O_DIRECT) < 0) { /* a packet is a message */
		ps_log_warning("log: pipe: %s", strerror(errno));
		return -1;
	}
	/* A page each, and 16 by default: a burst of lines is longer. Without the right to more it stays so. */
	(void)fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
	/* Its number may be another descriptor's in the process that serves, which would close that. */
	if (logger.to == TO_SYSLOG)
		closelog();
	logger.relay = ends[1];
	logger.pid = getpid();
	return ends[0];
}

void ps_log_relay_serve(int from)
{
	char packet[LOG_LINE_LEN + 1], ident[64];
	ssize_t n;

	if (logger.to == TO_JOURNAL) {
		logger.to = TO_NOTHING;
		open_journal();
	} else {
		snprintf(ident, sizeof(ident), "%s[%d]", logger.ident, (int)logger.pid);
		openlog(ident, 0,
		        LOG_DAEMON); /* syslog() opens its socket again after syslog was restarted */
	}
	while ((n = read(from, packet, sizeof(packet) - 1)) > 0 || (n < 0 && errno == EINTR)) {
		packet[PS_MAX(n, 0)] = '\0';
		if (n > 1 && packet[0] >= PS_LOG_ERROR && packet[0] <= PS_LOG_DEBUG)
			ps_log(packet[0], "%s", packet + 1);
	}
}

void ps_log_relay_end(int from)
{
	if (from < 0)
		return;
	if (logger.to == TO_SYSLOG)
		closelog();
	else
		close(logger.fd);
	close(from);
	logger.fd = logger.relay;
	logger.to = TO_RELAY;
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
