#include "daemon/daemon.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "daemon/daemon_private.h"
#include "fuse/fuse.h"

#define STOP_GRACE_MS 300 /* a detached mount without open files ends by itself within this time */
#define KICK_MS 20
#define FORGET_MS 1000
#define LEAVE_WAIT_MS 2000
#define LEAVE_COMMIT_MS 100 /* for the store to commit the rows that are due */
#define LARGE_NBYTES (256 * 1024)

/* The signal handler writes to this eventfd, which is async-signal-safe; the main thread polls it. */
static int signal_fd = -1;
static _Atomic int stop_signal, hangup; /* lock-free, so a handler may use them */

static void on_signal(int signo)
{
	uint64_t one = 1;
	int saved = errno;

	if (signo == SIGHUP)
		hangup = 1;
	else
		stop_signal = signo;
	if (write(signal_fd, &one, sizeof(one)) < 0) {
		/* The write fails only if the counter is at its maximum: then the main thread is woken
		 * anyway. */
	}
	errno = saved;
}

static int handle_signals(int wake_fd)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	signal_fd = wake_fd;
	ps_session_setup();
	return sigaction(SIGTERM, &act, NULL) < 0 || sigaction(SIGINT, &act, NULL) < 0 ||
	                       sigaction(SIGHUP, &act, NULL) < 0
	               ? -errno
	               : 0;
}

/* The first mount ---------------------------------------------------------------------------------------- */

/* Stats the mount through the kernel, as any program would. */
static int see_it_answer(const struct ps_mount *m, struct ps_error *err)
{
	struct stat st;

	if (stat(m->request.mountpoint, &st) < 0)
		return ps_error_set(err, errno, "the mount on %s does not answer: %s", m->request.mountpoint,
		        strerror(errno));
	if (!ps_mount_id_same(m->id, ps_mounts_id(m->request.mountpoint)))
		return ps_error_set(err, EIO, "the mount on %s was unmounted at once", m->request.mountpoint);
	return 0;
}

static int mount_here(struct ps_daemon *d, struct ps_mount *m, struct ps_error *err)
{
	const char *mountpoint = m->request.mountpoint;
	int fd;

	if (ps_daemonize_abandoned(d->daemonize))
		return ps_error_set(err, ECANCELED, "interrupted");
	int rc = ps_helper_mount(d->helper,
	        &(struct ps_mountfd_options){.source = m->device,
	                .mountpoint = mountpoint,
	                .allow_other = m->options->allow_other,
	                .flags = d->options->mount_flags,
	                .security = d->options->security},
	        &fd, err);
	if (rc < 0)
		return rc;
	struct ps_mount_id id = ps_mounts_id(mountpoint);
	rc = ps_daemon_start_mount(d, m, fd, id, err);
	bool started = rc == 0;
	if (started)
		rc = see_it_answer(m, err);
	if (rc < 0)
		ps_helper_detach(d->helper, mountpoint, id, ps_session_fd(&m->session));
	if (rc < 0 && started)
		ps_session_end(&m->session);
	return rc;
}

/* A daemon in the background prints the warnings to stderr. In the foreground they are only logged, since the
 * log may be the same stderr. */
static void print_warnings(const struct ps_daemon *d, const struct ps_mount *m, size_t from)
{
	for (size_t i = from; m && d->daemonize->background && i < m->warnings.n; i++)
		ps_cli_fail("mount", 0, "warning: %s", m->warnings.v[i].value);
}

static void *first_main(void *arg)
{
	struct ps_daemon *d = arg;
	struct ps_error err = {0};
	struct ps_mount *m = NULL;
	struct ps_owned *owned = NULL;
	ps_autofree char *joined = NULL;
	int rc = 0;

	pthread_setname_np(pthread_self(), "mount");
	if (d->first_owner >= 0)
		rc = ps_owned_enter(d, d->first, &d->first_owner, &d->first_cancelled, &owned, &joined, &err);
	if (rc < 0 || joined)
		ps_request_fini(d->first);
	else
		rc = ps_mount_new(d->cache, d->first, -1, &d->first_cancelled, &m, &err);
	print_warnings(d, m, 0);
	size_t nwarned = m ? m->warnings.n : 0;
	if (rc == 0 && m)
		rc = mount_here(d, m, &err);
	if (rc == 0)
		print_warnings(d, m, nwarned);
	if (rc < 0) {
		ps_owned_failed(d, owned, &err, atomic_load(&d->first_cancelled));
	} else if (owned) {
		rc = ps_owned_set_serving(d, owned, m, &d->first_owner, &err);
		if (rc < 0)
			ps_session_end(&m->session);
	}
	if (rc == 0 && m) {
		ps_session_now_answers(&m->session);
		ps_keeper_keep(d, m, -1, ps_owned_keep);
		ps_log_info("mount: %s on %s", m->device, m->request.mountpoint);
	}
	if (rc < 0)
		ps_log_error("mount: %s", err.text);
	if (rc == 0)
		ps_keeper_ready(d);
	{
		/* The main thread watches the pipe to the parent until `reported`. */
		PS_LOCK_SCOPE(&d->lock);
		d->reported = true;
		if (rc == 0)
			ps_daemonize_ready(d->daemonize);
		else
			d->exit_code = ps_daemonize_failed(d->daemonize, "mount", err.text);
	}
	if (m)
		ps_daemon_end_mount(d, m);
	ps_daemon_thread_ends(d);
	return NULL;
}

/* Stopping ----------------------------------------------------------------------------------------------- */

/* The mounts in the daemon's mount namespace. */
static size_t own_places(struct ps_daemon *d, struct ps_mounted **ret)
{
	size_t n = 0, max = 0;

	PS_LOCK_SCOPE(&d->lock);
	for (struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next)
		max++;
	*ret = calloc(max + 1, sizeof(**ret));
	for (struct ps_list *l = d->mounts.next; *ret && l != &d->mounts; l = l->next) {
		struct ps_mounted place = ps_mounted_of(PS_CONTAINER_OF(l, struct ps_mount, link));

		if (place.mountpoint)
			(*ret)[n++] = place;
	}
	return n;
}

static bool any_mounts(struct ps_daemon *d, bool kick)
{
	PS_LOCK_SCOPE(&d->lock);
	for (struct ps_list *l = d->mounts.next; kick && l != &d->mounts; l = l->next)
		ps_session_kick(&PS_CONTAINER_OF(l, struct ps_mount, link)->session);
	return !ps_list_empty(&d->mounts);
}

/* Ends all mounts without waiting for open files: their readers get ENOTCONN. */
static void stop(struct ps_daemon *d)
{
	struct ps_mounted *places = NULL;

	{
		PS_LOCK_SCOPE(&d->lock);
		d->stopping = true;
		ps_daemon_cancel(d, &d->first_cancelled);
		ps_clients_cancel(d);
	}
	size_t n = own_places(d, &places);
	for (size_t i = 0; i < n; i++) {
		ps_log_info("mount: %s: signal %d: unmounting", places[i].mountpoint, (int)stop_signal);
		ps_helper_detach(d->helper, places[i].mountpoint, places[i].id, places[i].fuse_fd);
		ps_mounted_fini(&places[i]);
	}
	free(places);
	for (int ms = 0; any_mounts(d, ms >= STOP_GRACE_MS); ms += KICK_MS)
		poll(NULL, 0, KICK_MS);
}

static void heed_signals(struct ps_daemon *d)
{
	const struct ps_mount_options *o = d->options;

	if (hangup) {
		hangup = 0;
		if (o->log && o->log[0] == '/')
			(void)ps_helper_reopen_log(d->helper);
		else if (o->foreground)
			stop_signal = SIGHUP; /* the terminal was closed */
	}
	if (stop_signal && !d->stopping)
		stop(d);
}

/* Kicks the sessions that must end but have not ended. True: there is such a session, and the caller calls
 * again soon, because one kick may have no effect. */
static bool kick_ending(struct ps_daemon *d)
{
	bool any = false;

	PS_LOCK_SCOPE(&d->lock);
	for (struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next) {
		struct ps_mount *m = PS_CONTAINER_OF(l, struct ps_mount, link);

		if (!m->ending || atomic_load(&m->session.ended))
			continue;
		ps_session_kick(&m->session);
		any = true;
	}
	return any;
}

/* Handing over to another program ------------------------------------------------------------------------ */

/* Answers the requests that were read, and ends the process. All mounts stay, and the keeper starts the next
 * daemon. Bytes that are not in the cache yet are fetched again, as after a kill. */
static void leave(struct ps_daemon *d)
{
	uint64_t until_ns = ps_clock_mono_ns() + LEAVE_WAIT_MS * PS_NS_PER_MS;

	(void)any_mounts(d, true);
	{
		PS_LOCK_SCOPE(&d->lock);
		for (struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next)
			ps_session_leave(&PS_CONTAINER_OF(l, struct ps_mount, link)->session, until_ns);
	}
	ps_log_info("the daemon hands its mounts over");
	poll(NULL, 0, LEAVE_COMMIT_MS);
	_exit(PS_EXIT_OK);
}

/* The main thread ---------------------------------------------------------------------------------------- */

#define POLL_FIXED 5

static void main_loop(struct ps_daemon *d)
{
	struct pollfd p[POLL_FIXED + 2 * PS_CLIENTS_MAX];
	uint64_t count;

	for (;;) {
		size_t n = POLL_FIXED;
		bool resuming;
		if ((!d->options->serve || d->stopping) && ps_thread_group_count(&d->threads) == 0) {
			ps_thread_group_join(&d->threads);
			return;
		}
		{
			PS_LOCK_SCOPE(&d->lock);
			resuming = atomic_load(&d->resuming);
			/* Watches for the end of the parent, of the first owner, and of clients that
			 * wait. */
			bool waits = !d->reported && !atomic_load(&d->first_cancelled);
			p[2] = (struct pollfd){.fd = waits ? d->daemonize->pipe : -1};
			p[3] = (struct pollfd){.fd = waits ? d->first_owner : -1, .events = POLLRDHUP};
			n += ps_clients_poll(d, p + POLL_FIXED);
		}
		p[0] = (struct pollfd){.fd = d->wake_fd, .events = POLLIN};
		/* While mounts resume, no client is accepted: the listing of a new mount would change the
		 * stored names that a resuming mount relies on. */
		p[1] = (struct pollfd){.fd = resuming ? -1 : d->listen_fd, .events = POLLIN};
		p[4] = (struct pollfd){.fd = d->owners_fd, .events = POLLIN};
		int wait_ms = kick_ending(d) ? KICK_MS : ps_keeper_forget(d) ? FORGET_MS : -1;
		if (poll(p, n, wait_ms) < 0 && errno != EINTR)
			poll(NULL, 0, KICK_MS); /* the kernel is out of memory: try again */
		if (p[0].revents)
			(void)!read(d->wake_fd, &count, sizeof(count));
		heed_signals(d);
		if (atomic_load(&d->leaving))
			leave(d);
		if ((p[2].fd >= 0 && p[2].revents) || p[3].revents & (POLLRDHUP | POLLHUP | POLLERR)) {
			PS_LOCK_SCOPE(&d->lock);
			ps_daemon_cancel(d, &d->first_cancelled);
		}
		if (p[4].revents)
			ps_owners_remove_gone(d);
		ps_clients_gone(d, p + POLL_FIXED, n - POLL_FIXED);
		if (p[1].revents)
			ps_client_accept(d);
	}
}

/* Warns if the user gave a cache size beyond what the disk can hold. */
static void report_reach(const struct ps_daemon *d)
{
	struct ps_store *store = ps_cache_store(d->cache);
	uint64_t limit = ps_store_limit(store), reachable = ps_store_reachable(store);
	const char *given = d->options->cache_size;
	bool exact = given && !strchr(given, '%');
	char text[PS_ERROR_TEXT_LEN], a[PS_SIZE_TEXT_LEN], b[PS_SIZE_TEXT_LEN];

	if (reachable >= limit)
		return;
	snprintf(text, sizeof(text), "cache %.300s: the limit is %s, but the disk has room for %s",
	        ps_store_dir(store), ps_size_format(limit, a), ps_size_format(reachable, b));
	ps_log(exact ? PS_LOG_WARNING : PS_LOG_INFO, "%s", text);
	if (exact && d->daemonize->background)
		ps_cli_fail("mount", 0, "warning: %s", text);
}

/* Drops the daemon's privileges, and starts the helper, which keeps those that are still needed. Takes the
 * cache's lock first: a process that does not get it (-EBUSY) may become a client, and needs its
 * privileges. */
static int confine(struct ps_daemon *d, struct ps_error *err)
{
	const struct ps_mountfd_options first = {.mountpoint = d->first ? d->first->mountpoint : NULL,
	        .allow_other = d->options->allow_other,
	        .flags = d->options->mount_flags,
	        .security = d->options->security};
	ps_autofd int dir = -1;
	int rc = ps_store_dir_lock(d->options->cache_dir, &dir, &d->lock_fd, err);

	if (rc < 0)
		return rc;
	if (!d->resumed && d->daemonize->background)
		ps_cgroup_leave();
	d->listen_fd = ps_control_socket();
	if (d->listen_fd < 0)
		return ps_error_set(err, errno, "socket: %s", strerror(errno));
	if (!d->resumed && d->keeper < 0)
		ps_daemonize_sandboxed(d->daemonize);
	if (d->options->no_sandbox) {
		ps_privileges_drop(PS_PRIVILEGES_ALONE);
		ps_stats_set_sandbox(false, "turned off (--no-sandbox)");
		return 0;
	}
	int log_fd = geteuid() == 0 ? ps_log_relay_begin() : -1;
	rc = ps_helper_start(d->first ? &first : NULL, dir, log_fd, &d->helper, err);
	if (rc < 0)
		return rc;
	ps_log_relay_end(log_fd);
	const char *lacks = ps_sandbox_enter(dir);
	if (*lacks)
		ps_log_warning("sandbox incomplete: %s", lacks);
	ps_stats_set_sandbox(true, lacks);
	return 0;
}

static int open_all(struct ps_daemon *d, struct ps_error *err)
{
	struct ps_mount_options options = *d->options; /* a shallow copy, in which defaults are filled in */
	struct ps_cache_options cache;
	int rc = ps_mount_options_cache(&options, &cache, err);

#ifdef M_MMAP_THRESHOLD
	/* With a fixed threshold, large buffers are returned to the system when they are freed. Otherwise
	 * malloc raises the threshold once a large buffer is freed, and then each thread's arena keeps
	 * freed buffers: several times --memory. */
	mallopt(M_MMAP_THRESHOLD, LARGE_NBYTES);
#endif
	if (rc == 0)
		rc = confine(d, err);
	/* Threads that were there before the sandbox would be outside of it. */
	if (rc == 0 && d->resumed && (rc = ps_keeper_progress_begin(d)) < 0)
		ps_error_set(err, -rc, "thread: %s", strerror(-rc));
	cache.store.lock_fd = d->lock_fd;
	cache.store.was_checked = d->resumed != NULL;
	if (rc == 0)
		rc = ps_cache_open(&cache, &d->cache, err);
	if (rc < 0)
		return rc;
	if (!d->resumed)
		report_reach(d);
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->owners_fd = epoll_create1(EPOLL_CLOEXEC);
	if (d->wake_fd < 0 || d->owners_fd < 0)
		rc = ps_error_set(err, errno, "eventfd: %s", strerror(errno));
	if (rc == 0)
		rc = ps_control_listen(d->options->cache_dir, d->listen_fd, err);
	if (rc == 0 && (rc = handle_signals(d->wake_fd)) < 0)
		ps_error_set(err, -rc, "signals: %s", strerror(-rc));
	if (rc == 0 && !d->resumed)
		ps_keeper_hold(d);
	return rc;
}

/* failed: the cache's lock stays, since the keeper has it, too, and starts another daemon. */
static void close_all(struct ps_daemon *d, bool failed)
{
	/* Remove the socket before the cache's lock is released, so that a new daemon's socket is not
	 * removed. A client that has connected without an answer finds the connection closed, and
	 * retries. */
	if (d->listen_fd >= 0) {
		ps_control_remove(d->options->cache_dir);
		close(d->listen_fd);
	}
	if (d->cache && !failed)
		ps_store_keep_lock(ps_cache_store(d->cache), false);
	if (!atomic_load(&d->leaked))
		ps_cache_close(d->cache);
}

int ps_daemon_run(const struct ps_daemon_options *options, int *ret_exit, struct ps_error *err)
{
	struct ps_daemon d = {.options = options->options,
	        .given = &options->options->given,
	        .first = options->request,
	        .daemonize = options->daemonize,
	        .listen_fd = -1,
	        .wake_fd = -1,
	        .owners_fd = -1,
	        .keeper = options->keeper,
	        .resumed = options->resumed,
	        .reported = options->resumed,
	        .first_owner = options->owner};

	d.lock_fd = d.resumed ? ps_keeper_take_lock(d.resumed) : 0;
	pthread_mutex_init(&d.lock, NULL);
	ps_cond_init(&d.ended);
	ps_list_init(&d.mounts);
	ps_list_init(&d.clients);
	ps_list_init(&d.owned);
	ps_thread_group_init(&d.threads);
	pthread_mutex_init(&d.keeper_lock, NULL);
	int rc = open_all(&d, err);
	if (rc == 0 && d.resumed && (rc = ps_keeper_resume(&d)) < 0)
		ps_error_set(err, -rc, "thread: %s", strerror(-rc));
	if (rc == 0 && d.first && (rc = ps_daemon_thread(&d, first_main, &d)) < 0)
		ps_error_set(err, -rc, "thread: %s", strerror(-rc));
	if (rc == 0 && !d.resumed && !d.first) { /* it serves the mounts of other processes */
		ps_keeper_ready(&d);
		d.reported = true;
		ps_daemonize_ready(d.daemonize);
		ps_log_info("serve: cache %s", ps_store_dir(ps_cache_store(d.cache)));
	}
	if (rc == 0) {
		main_loop(&d);
		*ret_exit = d.exit_code;
	}
	ps_keeper_progress_end(&d);
	if (rc < 0 && d.resumed && ps_thread_group_count(&d.threads))
		_exit(PS_EXIT_FAILED); /* threads that resume mounts still use `d` */
	close_all(&d, rc < 0);
	if (atomic_load(&d.leaked))
		_exit(PS_EXIT_FAILED);
	if (d.wake_fd >= 0)
		close(d.wake_fd);
	if (d.owners_fd >= 0)
		close(d.owners_fd);
	if (rc == 0 && d.first_owner >= 0)
		close(d.first_owner);
	ps_helper_free(d.helper);
	ps_thread_group_fini(&d.threads);
	pthread_mutex_destroy(&d.keeper_lock);
	pthread_cond_destroy(&d.ended);
	pthread_mutex_destroy(&d.lock);
	return rc;
}

int ps_daemon_resume(int sock)
{
	struct ps_keeper_items items = {0};
	struct ps_mount_options o;
	struct ps_daemonize none = {.pipe = -1, .notify = -1};
	struct ps_error err = {0};
	int code = PS_EXIT_FAILED;

	prctl(PR_SET_NAME, "penstock");
	ps_privileges_no_core();
	ps_mount_options_init(&o);
	int rc = ps_keeper_receive_items(sock, &items);
	if (rc < 0)
		ps_error_set(&err, -rc, "the keeper: %s", strerror(-rc));
	if (rc == 0)
		rc = ps_keeper_set_up(&items, &o, &err);
	if (rc == 0)
		rc = ps_log_open(o.log          ? o.log
		                 : o.foreground ? "stderr"
		                                : "syslog",
		        o.log_level, "penstock", &err);
	const struct ps_daemon_options options = {
	        .options = &o, .daemonize = &none, .keeper = sock, .resumed = &items, .owner = -1};
	if (rc == 0)
		rc = ps_daemon_run(&options, &code, &err);
	if (rc < 0)
		ps_log_error("the mounts cannot be taken over: %s", err.text);
	for (size_t i = 0; i < items.n; i++) {
		if (items.v[i]->fd >= 0)
			close(items.v[i]->fd);
		free(items.v[i]);
	}
	free(items.v);
	ps_mount_options_fini(&o);
	return rc < 0 ? PS_EXIT_FAILED : code;
}
