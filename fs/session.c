#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/sysmacros.h>

#include "base/log.h"
#include "mountfd.h"
#include "mounts.h"
#include "ops.h"

#define THREADS_MIN 8
#define THREADS_MAX 64
#define READ_AHEAD_KIB 4096 /* the kernel's own is 128: four round trips through the daemon for each MiB */
#define READ_AHEAD_DEFAULT_KIB 128
#define STOP_GRACE_MS 300   /* for users without open files, whose detached mount ends by itself */
#define CANCEL_WAIT_MS 3000 /* a cancelled read answers at once; this bounds our trust in that */

struct session {
	struct ps_fs *fs;
	const struct ps_session_events *events;
	pthread_t main_thread;
	_Atomic bool ended; /* the loop has returned */
	bool greeted;       /* the watcher's until it is joined */
	dev_t dev;          /* of the mount; 0: unknown */
};

/* Written by the handler: async-signal-safe, and poll()ed by the watching thread. */
static int signal_fd = -1;
static _Atomic int stop_signal, hangup; /* lock-free, so fit for a handler */

static void on_signal(int signo)
{
	uint64_t one = 1;
	int saved = errno;

	if (signo == SIGHUP)
		hangup = 1;
	else
		stop_signal = signo;
	if (write(signal_fd, &one, sizeof one) < 0) {
		/* An eventfd refuses only when it is readable already. */
	}
	errno = saved;
}

/* Its only use is to interrupt libfuse's wait in the main thread. */
static void on_wakeup(int signo)
{
	(void)signo;
}

int ps_session_signals(struct ps_error *err)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART},
	                 wakeup = {.sa_handler = on_wakeup}, ignore = {.sa_handler = SIG_IGN};

	signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (signal_fd < 0)
		return ps_error_set(err, errno, "eventfd: %s", strerror(errno));
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	sigaction(SIGUSR2, &wakeup, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	return 0;
}

__attribute__((format(printf, 2, 0))) static void fuse_logs(
        enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[512];

	vsnprintf(text, sizeof text, fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	ps_log(level <= FUSE_LOG_ERR        ? PS_LOG_ERROR
	        : level == FUSE_LOG_WARNING ? PS_LOG_WARNING
	                                    : PS_LOG_DEBUG,
	        "%s", text);
}

/* The watching thread -------------------------------------------------------------------------------- */

/* Returns what it is now, in bytes. */
static size_t raise_read_ahead(dev_t dev)
{
	char path[96], value[32];
	unsigned long now = READ_AHEAD_DEFAULT_KIB;

	snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	ps_autofd int readable = open(path, O_RDONLY | O_CLOEXEC), fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = readable < 0 ? -1 : read(readable, value, sizeof value - 1);
	if (n > 0) {
		value[n] = '\0';
		now = strtoul(value, NULL, 10);
	}
	n = snprintf(value, sizeof value, "%d", READ_AHEAD_KIB);
	/* It may not be ours to change: the mount works, with smaller requests. */
	if (now < READ_AHEAD_KIB && fd >= 0) {
		if (pwrite(fd, value, (size_t)n, 0) == n)
			now = READ_AHEAD_KIB;
		else
			ps_log_info("mount: read-ahead stays at %lu KiB: %s", now, strerror(errno));
	}
	return now * 1024;
}

/* Asks the mount for its root, through the kernel, as any program would. */
static bool greet(struct session *s)
{
	struct stat st;

	if (stat(s->fs->mountpoint, &st) < 0) {
		ps_log_error("mount: %s: %s", s->fs->mountpoint, strerror(errno));
		return false;
	}
	if (!s->dev || st.st_dev != s->dev) {
		ps_log_error("mount: %s: unmounted at once", s->fs->mountpoint);
		return false;
	}
	atomic_store(&s->fs->read_ahead_nbytes, raise_read_ahead(st.st_dev));
	ps_passthrough_probe(&s->fs->passthrough);
	if (s->events->ready)
		s->events->ready(s->events->arg);
	return true;
}

static void stop(struct session *s)
{
	if (stop_signal)
		ps_log_info("mount: %s: signal %d: unmounting", s->fs->mountpoint, (int)stop_signal);
	if (s->dev && ps_mountfd_detach(s->fs->mountpoint, s->dev) == 0)
		for (int ms = 0; ms < STOP_GRACE_MS && !atomic_load(&s->ended); ms += 10)
			poll(NULL, 0, 10);
	/* Somebody has files open. They get ENOTCONN: an order to stop is not to wait for them. The signal
	 * may come just before libfuse begins to wait, so it is repeated. */
	while (!atomic_load(&s->ended)) {
		fuse_session_exit(s->fs->session);
		pthread_kill(s->main_thread, SIGUSR2);
		poll(NULL, 0, 20);
	}
}

static void *watch(void *arg)
{
	struct session *s = arg;
	const struct ps_mount_options *o = s->fs->options;
	uint64_t count;

	s->greeted = greet(s);
	if (!s->greeted) {
		stop(s);
		return NULL;
	}
	for (;;) {
		struct pollfd p = {.fd = signal_fd, .events = POLLIN};

		if (poll(&p, 1, -1) > 0 && read(signal_fd, &count, sizeof count) < 0 && errno != EAGAIN)
			return NULL;
		if (atomic_load(&s->ended))
			return NULL;
		if (hangup) {
			hangup = 0;
			if (o->log && o->log[0] == '/')
				ps_log_reopen();
			else if (o->foreground)
				stop_signal = SIGHUP; /* the terminal is gone */
		}
		if (stop_signal) {
			stop(s);
			return NULL;
		}
	}
}

/* The loop ------------------------------------------------------------------------------------------- */

static int new_session(struct ps_fs *fs, int fd, struct ps_error *err)
{
	char name[] = "penstock", flag[] = "-o", max_read[48], fd_path[32];
	char *argv[] = {name, flag, max_read, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);

	snprintf(max_read, sizeof max_read, "max_read=%u", PS_FS_READ_NBYTES);
	snprintf(fd_path, sizeof fd_path, "/dev/fd/%d", fd);
	fuse_set_log_func(fuse_logs);
	fs->session = fuse_session_new(&args, &ps_ops, sizeof ps_ops, fs);
	fuse_opt_free_args(&args);
	if (!fs->session || fuse_session_mount(fs->session, fd_path) != 0)
		return ps_error_set(err, ENOMEM, "libfuse: no session (see the log)");
	if (ps_passthrough_install(&fs->passthrough, fs->session, ps_store_dir(ps_cache_store(fs->cache)),
	            !fs->options->no_passthrough) < 0)
		ps_log_info("mount: %s", ps_passthrough_reason(&fs->passthrough));
	return 0;
}

static int loop(struct ps_fs *fs)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned threads = (unsigned)PS_MAX(THREADS_MIN, PS_MIN(THREADS_MAX, 2 * cpus));
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	if (!config)
		return -ENOMEM;
	/* No thread sleeps on the network, so a few do; ending and starting them costs more than keeping
	 * them. */
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, threads);
	fuse_loop_cfg_set_idle_threads(config, threads);
	int rc = fuse_session_loop_mt(fs->session, config);
	fuse_loop_cfg_destroy(config);
	return rc;
}

/* From mountinfo, since the mount cannot answer yet. */
static dev_t device_of(const char *mountpoint)
{
	struct ps_mounts mounts;
	dev_t dev = 0;

	if (ps_mounts_read(NULL, false, &mounts) < 0)
		return 0;
	const struct ps_mount_info *info = ps_mounts_find(&mounts, mountpoint);
	if (info)
		dev = makedev(info->dev_major, info->dev_minor);
	ps_mounts_fini(&mounts);
	return dev;
}

static void end(struct session *s, pthread_t watcher)
{
	uint64_t one = 1;

	atomic_store(&s->ended, true);
	if (write(signal_fd, &one, sizeof one) < 0) {
		/* Readable already: the watcher is on its way. */
	}
	pthread_join(watcher, NULL);
	/* After an abort the dead mount is still there. */
	if (s->dev)
		ps_mountfd_detach(s->fs->mountpoint, s->dev);
	ps_background_stop(&s->fs->background);
	ps_pending_cancel_all(&s->fs->pending);
	if (!ps_pending_drain(&s->fs->pending, true, CANCEL_WAIT_MS)) {
		/* Files cannot be closed under their reads. The cache survives a process that ends anywhere.
		 */
		ps_log_error("mount: %s: reads do not end; leaving without closing", s->fs->mountpoint);
		_exit(PS_EXIT_FAILED);
	}
	ps_fs_close_all(s->fs);
}

int ps_session_run(struct ps_fs *fs, const struct ps_session_events *events, struct ps_error *err)
{
	struct session s = {.fs = fs, .events = events, .main_thread = pthread_self()};
	pthread_t watcher;
	int fd, rc;

	rc = ps_mountfd_mount(&(struct ps_mountfd_options){.source = ps_dataset_source(fs->dataset),
	                              .mountpoint = fs->mountpoint,
	                              .allow_other = fs->options->allow_other,
	                              .max_read = PS_FS_READ_NBYTES},
	        &fd, err);
	if (rc < 0)
		return rc;
	s.dev = device_of(fs->mountpoint);
	rc = new_session(fs, fd, err);
	if (rc == 0) {
		rc = ps_background_start(&fs->background);
		if (rc == 0)
			rc = -pthread_create(&watcher, NULL, watch, &s);
		if (rc < 0)
			ps_error_set(err, -rc, "thread: %s", strerror(-rc));
	}
	if (rc < 0) {
		ps_background_stop(&fs->background);
		ps_mountfd_detach(fs->mountpoint, s.dev);
		return rc;
	}
	rc = loop(fs);
	end(&s, watcher);
	if (rc >= 0 && !s.greeted)
		return ps_error_set(err, EIO, "the mount on %s did not answer (see the log)", fs->mountpoint);
	return rc < 0 ? ps_error_set(err, -rc, "serving %s: %s", fs->mountpoint, strerror(-rc)) : 0;
}

void ps_session_free(struct ps_fs *fs)
{
	if (!fs->session)
		return;
	fuse_session_destroy(fs->session);
	fs->session = NULL;
}
