#include "fuse/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/log.h"
#include "fuse/member_view.h"
#include "fuse/ops.h"

#define THREADS_MIN 8
#define THREADS_MAX 64
/* the kernel's default, 128, costs eight round trips through the daemon for each MiB */
#define READ_AHEAD_KIB 4096
#define READ_AHEAD_DEFAULT_KIB 128
#define MERGED_WAIT_MS 5000
#define KICK_MS 20
#define CANCEL_WAIT_MS 3000 /* a limit only: cancelled reads are normally answered at once */

/* SIGUSR2 only interrupts libfuse's wait in the thread that runs a loop. */
static void on_wakeup(int signo)
{
	(void)signo;
}

__attribute__((format(printf, 2, 0))) static void fuse_logs(
        enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[512];
	int state;

	/* libfuse logs also where its threads may be cancelled, which would leave the log locked. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	ps_log(level <= FUSE_LOG_ERR        ? PS_LOG_ERROR
	        : level == FUSE_LOG_WARNING ? PS_LOG_WARNING
	                                    : PS_LOG_DEBUG,
	        "%s", text);
	pthread_setcancelstate(state, &state);
}

void ps_session_setup(void)
{
	struct sigaction wakeup = {.sa_handler = on_wakeup}, ignore = {.sa_handler = SIG_IGN};

	sigaction(SIGUSR2, &wakeup, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	fuse_set_log_func(fuse_logs);
}

/* Returns the resulting read-ahead in bytes. */
static size_t raise_read_ahead(dev_t dev)
{
	char path[96], value[32];
	unsigned long now = READ_AHEAD_DEFAULT_KIB;

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	ps_autofd int readable = open(path, O_RDONLY | O_CLOEXEC), fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = readable < 0 ? -1 : read(readable, value, sizeof(value) - 1);
	if (n > 0) {
		value[n] = '\0';
		now = strtoul(value, NULL, 10);
	}
	n = snprintf(value, sizeof(value), "%d", READ_AHEAD_KIB);
	/* Without permission to change it the mount works, with smaller requests. */
	if (now < READ_AHEAD_KIB && fd >= 0) {
		if (pwrite(fd, value, (size_t)n, 0) == n)
			now = READ_AHEAD_KIB;
		else
			ps_log_info("mount: read-ahead stays at %lu KiB: %s", now, strerror(errno));
	}
	return now * 1024;
}

static int new_session(struct ps_fs *fs, int fd, struct ps_error *err)
{
	char name[] = "penstock", flag[] = "-o", max_read[48], fd_path[32];
	char *argv[] = {name, flag, max_read, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);

	snprintf(max_read, sizeof(max_read), "max_read=%u", PS_FS_READ_NBYTES);
	snprintf(fd_path, sizeof(fd_path), "/dev/fd/%d", fd);
	const struct fuse_lowlevel_ops ops = ps_ops(fs->options->members != PS_SHOW_SHARDS);

	fs->session = fuse_session_new(&args, &ops, sizeof(ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->session || fuse_session_mount(fs->session, fd_path) != 0)
		return ps_error_set(err, ENOMEM, "libfuse: no session (see the log)");
	if (ps_passthrough_install(&fs->passthrough, fs->session, ps_store_dir(ps_cache_store(fs->cache)),
	            !fs->options->no_passthrough) < 0)
		ps_log_info("mount: %s", ps_passthrough_reason(&fs->passthrough));
	return 0;
}

/* Brings a new session to the state of the earlier daemon's session. Call before the loop reads requests. */
static int resume(struct ps_fs *fs, struct ps_error *err)
{
	int rc = ps_handshake_replay(&fs->passthrough.handshake, fs->session);

	if (rc < 0)
		return ps_error_set(err, -rc, "the mount's state has no INIT");
	ps_passthrough_probe(&fs->passthrough);
	ps_fs_restore(fs);
	return 0;
}

static void *run_loop(void *arg)
{
	struct ps_session *s = arg;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned threads = (unsigned)PS_MAX(THREADS_MIN, PS_MIN(THREADS_MAX, 2 * cpus));
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	pthread_setname_np(pthread_self(), "fuse-loop");
	s->rc = config ? 0 : -ENOMEM;
	if (config) {
		/* A request that was read through a cloned descriptor ends with that, and so with the daemon:
		 * then it could not be sent again. */
		fuse_loop_cfg_set_clone_fd(config, !s->fs->kept);
		/* No thread sleeps on the network, so a few are enough. Keeping idle threads is cheaper than
		 * ending and starting them. */
		fuse_loop_cfg_set_max_threads(config, threads);
		fuse_loop_cfg_set_idle_threads(config, threads);
		s->rc = fuse_session_loop_mt(s->fs->session, config);
		fuse_loop_cfg_destroy(config);
	}
	atomic_store(&s->ended, true);
	sem_post(&s->end);
	return NULL;
}

static int no_thread(int rc, struct ps_error *err)
{
	return ps_error_set(err, -rc, "no thread can be started: %s", strerror(-rc));
}

int ps_session_start(struct ps_session *s, struct ps_fs *fs, int fd, dev_t dev, struct ps_error *err)
{
	*s = (struct ps_session){.fs = fs, .dev = dev};
	sem_init(&s->end, 0, 0);
	int rc = new_session(fs, fd, err);
	if (rc < 0) {
		close(fd); /* libfuse has not taken it over */
		return rc;
	}
	rc = ps_background_start(&fs->background);
	if (rc == 0)
		rc = ps_inflight_watch(&fs->inflight);
	if (rc == 0)
		rc = ps_member_view_start(fs);
	if (rc < 0)
		rc = no_thread(rc, err);
	else if (fs->resumed)
		rc = resume(fs, err);
	bool owed = fs->resumed && atomic_exchange(&fs->state.head->names_owed, false);
	ps_fs_watch(fs);
	if (rc == 0 && owed)
		ps_handshake_forget_names(fuse_session_fd(fs->session));
	if (rc == 0 && fs->resumed && (rc = ps_handshake_resend(fuse_session_fd(fs->session))) < 0)
		ps_error_set(err, -rc, "the kernel does not send requests again: %s", strerror(-rc));
	if (rc == 0 && (rc = -pthread_create(&s->thread, NULL, run_loop, s)) < 0)
		no_thread(rc, err);
	s->started = rc == 0;
	if (rc < 0) {
		ps_member_view_end(fs);
		ps_fs_unwatch(fs);
		ps_member_view_stop(fs);
		ps_background_stop(&fs->background);
		ps_inflight_unwatch(&fs->inflight);
	}
	return rc;
}

void ps_session_now_answers(struct ps_session *s)
{
	if (s->dev)
		atomic_store(&s->fs->read_ahead_nbytes, raise_read_ahead(s->dev));
	ps_passthrough_probe(&s->fs->passthrough);
}

int ps_session_fd(const struct ps_session *s)
{
	return s->fs && s->fs->session ? fuse_session_fd(s->fs->session) : -1;
}

bool ps_session_can_be_kept(const struct ps_session *s)
{
	return s->fs->kept && atomic_load(&s->fs->passthrough.handshake.resends);
}

void ps_session_leave(struct ps_session *s, uint64_t until_ns)
{
	uint64_t now;

	while ((now = ps_clock_mono_ns()) < until_ns && !atomic_load(&s->ended)) {
		ps_session_kick(s);
		poll(NULL, 0, KICK_MS);
	}
	(void)ps_inflight_drain(
	        &s->fs->inflight, false, now < until_ns ? (unsigned)((until_ns - now) / PS_NS_PER_MS) : 0);
}

void ps_session_settle(struct ps_session *s)
{
	for (size_t i = 0; i < s->fs->nsources; i++)
		if (s->fs->options->members == PS_SHOW_MEMBERS_MERGED)
			ps_members_await(s->fs->sources[i].members, MERGED_WAIT_MS);
}

char *ps_session_merge_advice(const struct ps_session *s)
{
	json_int_t nunknown = 0;
	bool waits = false;
	char *text = NULL;

	for (size_t i = 0; i < s->fs->nsources; i++) {
		json_t *stats =
		        s->fs->sources[i].members ? ps_members_stats(s->fs->sources[i].members) : NULL;

		if (json_is_true(json_object_get(stats, "merges")) &&
		        !json_is_true(json_object_get(stats, "merged"))) {
			waits = true;
			nunknown += json_integer_value(json_object_get(stats, "shards")) -
			            json_integer_value(json_object_get(stats, "known"));
		}
		json_decref(stats);
	}
	if (waits && asprintf(&text,
	                     "the merged tree cannot be read yet (EAGAIN), because the members of %lld "
	                     "shards are not known; run penstock warm --members %s",
	                     (long long)nunknown, s->fs->mountpoint) < 0)
		text = NULL;
	return text;
}

void ps_session_kick(struct ps_session *s)
{
	if (atomic_load(&s->ended) || !ps_fs_hush(s->fs))
		return;
	fuse_session_exit(s->fs->session);
	pthread_kill(s->thread, SIGUSR2);
}

void ps_session_end(struct ps_session *s)
{
	while (!atomic_load(&s->ended)) {
		ps_session_kick(s);
		poll(NULL, 0, KICK_MS);
	}
}

void ps_session_await(struct ps_session *s)
{
	while (sem_wait(&s->end) < 0 && errno == EINTR) {
	}
}

int ps_session_finish(struct ps_session *s)
{
	pthread_join(s->thread, NULL);
	s->started = false;
	(void)ps_fs_hush(s->fs);
	ps_member_view_end(s->fs);
	ps_fs_unwatch(s->fs);
	ps_background_stop(&s->fs->background);
	ps_member_view_stop(s->fs);
	ps_inflight_unwatch(&s->fs->inflight);
	ps_inflight_cancel_all(&s->fs->inflight);
	if (!ps_inflight_drain(&s->fs->inflight, true, CANCEL_WAIT_MS))
		return -EDEADLK;
	ps_fs_close_all(s->fs);
	return s->rc < 0 ? s->rc : 0;
}

void ps_session_free(struct ps_session *s)
{
	if (s->fs && s->fs->session)
		fuse_session_destroy(s->fs->session);
	if (s->fs) {
		ps_member_view_free(s->fs);
		s->fs->session = NULL;
		sem_destroy(&s->end);
	}
}
