/* The keeper: the small process that outlives its child, the daemon, and starts the next daemon.
 *
 *   state       the daemon                        when it dies
 *   STARTING    opens the cache, attaches         no mount is kept: the keeper ends in the same way
 *   SERVING     has given mounts to the keeper    a new daemon is started: RESUMING
 *   RESUMING    takes the mounts over             counts as a failed start; another daemon is started
 *   gave up     after STARTS_MAX failed starts, or GIVE_UP_MS: connections aborted, mounts detached
 *
 * A daemon that serves for less than PROVEN_MS counts as a failed start, too: otherwise a request that
 * kills daemons would be sent again for ever. The keeper has one thread, waits for nothing but its daemon,
 * and reads only the messages of keeper_wire.c. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "daemon/daemon_private.h"

#define STARTS_MAX 3
#define GIVE_UP_MS 10000
#define PROGRESS_MAX_MS 60000
#define PROVEN_MS 1000
#define ITEMS_MAX 65536 /* a daemon that an attacker has taken over must not use up the memory */
#define ITEMS_OF_FILES \
	4            /* the part of RLIMIT_NOFILE that items may use: the next daemon opens them all, too */
#define REAP_MS 1000 /* the longest wait for the end of a killed daemon, which may hang in the kernel */
#define REAP_STEP_MS 10
#define SEND_NBYTES (4 << 20) /* the kernel may lower this */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#define OOM_SCORE "-900" /* the daemon uses the memory, is to be killed first, and can be started again */

extern char **environ;

struct keeper {
	struct ps_daemonize *daemonize;
	int owner;
	/* old_exe: the earlier program, until the new one has served for PROVEN_MS; -1: none */
	int sock, signals, exe, old_exe;
	pid_t daemon;
	sigset_t mask;                /* as at the start of the process */
	struct sigaction broken_pipe; /* as at the start of the process */
	char oom_score[16];
	char unit[4096]; /* control group in which keeper and daemon have a group each; "": none */
	struct ps_keeper_item *v;
	size_t n, nsent; /* nsent: items that were sent to the resuming daemon */
	size_t nmax;
	bool resuming, stopping, held, sent_done;
	bool upgraded; /* a daemon of the new program was started */
	uint64_t down_ns, progress_ns, served_ns, starts;
	uint64_t start_ns; /* the earliest time of the next start */
	unsigned nfailed;
};

/* What is kept ------------------------------------------------------------------------------------------- */

static void remove_item(struct keeper *k, size_t i)
{
	if (k->v[i].fd >= 0)
		close(k->v[i].fd);
	k->v[i] = k->v[--k->n];
}

static void add_item(struct keeper *k, const struct ps_keeper_message *m, int fd)
{
	struct ps_keeper_item *v = k->n < k->nmax ? reallocarray(k->v, k->n + 1, sizeof(*v)) : NULL;

	if (!v) {
		ps_log_error("keeper: out of memory or space: a mount will end with its daemon");
		close(fd);
		return;
	}
	k->v = v;
	v[k->n++] = (struct ps_keeper_item){.message = *m, .fd = fd};
}

static void drop(struct keeper *k, uint64_t mount, uint64_t owner)
{
	for (size_t i = k->n; i-- > 0;) {
		const struct ps_keeper_message *m = &k->v[i].message;

		if (m->mount == mount && (!owner || (m->kind == PS_KEEPER_OWNER && m->owner == owner)))
			remove_item(k, i);
	}
}

static bool has_session(const struct keeper *k, uint64_t mount)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->v[i].message.kind == PS_KEEPER_SESSION && (!mount || k->v[i].message.mount == mount))
			return true;
	return false;
}

/* True if this device is a penstock mount, and the connection's, as the kernel says, and not only as the daemon
 * says. */
static bool is_penstock(dev_t dev, int fuse_fd)
{
	struct ps_mounts mounts;
	bool found = false;

	if (!ps_mountfd_is_connected(fuse_fd) || !ps_mountfd_may_be(fuse_fd, dev) ||
	        ps_mounts_read(NULL, false, &mounts) < 0)
		return false;
	for (size_t i = 0; i < mounts.n && !found; i++)
		found = makedev(mounts.v[i].dev_major, mounts.v[i].dev_minor) == dev;
	ps_mounts_fini(&mounts);
	return found;
}

/* Detaches the mount, but only if a penstock mount is at the place that the daemon has named. */
static void detach(const struct ps_keeper_item *session)
{
	const struct ps_keeper_message *m = &session->message;

	if (m->here && session->ours && ps_mount_id_same(m->id, ps_mounts_id(m->text)))
		(void)ps_mountfd_detach(m->text, m->id);
}

/* Removes mounts that have ended without a message from the daemon, and mounts of which the daemon sent only
 * some items. */
static void drop_unfinished(struct keeper *k)
{
	for (size_t i = k->n; i-- > 0;) {
		const struct ps_keeper_message *m = &k->v[i].message;

		if (m->kind != PS_KEEPER_SESSION || ps_mountfd_is_connected(k->v[i].fd))
			continue;
		detach(&k->v[i]); /* after an abort the dead mount is still there */
		remove_item(k, i);
	}
	for (size_t i = k->n; i-- > 0;)
		if (k->v[i].message.mount && !has_session(k, k->v[i].message.mount))
			remove_item(k, i);
}

/* Messages ----------------------------------------------------------------------------------------------- */

static void held(struct keeper *k)
{
	const struct ps_keeper_message done = {.kind = PS_KEEPER_DONE};

	if (!k->held) {
		k->held = true;
		if (k->owner >= 0)
			close(ps_steal_fd(&k->owner));
		ps_daemonize_keeper(k->daemonize);
	}
	(void)ps_keeper_send(k->sock, &done, -1, true);
}

/* The number of seccomp filters of the process; -1: unknown. A process in the daemon's sandbox has more than
 * the keeper. */
static int count_filters(pid_t pid)
{
	char path[40], line[256];
	int n = -1;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "Seccomp_filters: %d", &n) != 1) {
	}
	if (f)
		fclose(f);
	return n;
}

/* Opens the program that the client runs. The daemon may not name a program, since it could name a file that
 * it has written. */
static int program_of(int client, struct ps_error *err)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer), pidfd_len = sizeof(int);
	char path[40];
	int number = -1;

	if (client < 0 || getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0 ||
	        getsockopt(client, SOL_SOCKET, SO_PEERPIDFD, &number, &pidfd_len) < 0)
		return ps_error_set(err, EPERM, "it does not see the process that asks");
	ps_autofd int pidfd = number;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)peer.pid);
	ps_autofd int exe = open(path, O_RDONLY | O_CLOEXEC);
	int n = count_filters(peer.pid), own = count_filters(getpid());
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};
	if (exe < 0 || n < 0 || own < 0 || poll(&ended, 1, 0) != 0)
		return ps_error_set(err, EPERM, "the program of the process that asks cannot be opened");
	if ((peer.uid != 0 && peer.uid != geteuid()) || n > own)
		return ps_error_set(err, EPERM,
		        "the process that asks is another user's, or has more seccomp filters than the "
		        "keeper, as in the daemon's sandbox; run penstock upgrade outside of it");
	return ps_steal_fd(&exe);
}

static void upgrade(struct keeper *k, int client)
{
	struct ps_keeper_message answer = {.kind = PS_KEEPER_DONE};
	struct ps_error err = {0};
	int fd = program_of(client, &err);

	if (fd < 0) {
		answer.kind = PS_KEEPER_BUSY;
		snprintf(answer.text, sizeof(answer.text), "%s", err.text);
	}
	(void)ps_keeper_send(k->sock, &answer, -1, true);
	if (fd < 0)
		return;
	if (k->old_exe >= 0)
		close(k->exe);
	else
		k->old_exe = k->exe;
	k->exe = fd;
	k->upgraded = false;
}

/* Handles a message of the daemon. An attacker may have taken the daemon over, so no message gives it more
 * than the mounts that it has. */
static void take_message(struct keeper *k, const struct ps_keeper_message *m, int fd)
{
	switch (m->kind) {
	case PS_KEEPER_DROP:
		if (m->mount) /* items that belong to no mount are never dropped */
			drop(k, m->mount, 0);
		break;
	case PS_KEEPER_DROP_OWNER:
		if (m->mount && m->owner)
			drop(k, m->mount, m->owner);
		break;
	case PS_KEEPER_READY:
		if (*k->unit)
			ps_cgroup_die_together(k->unit, "daemon");
		ps_daemonize_keeper_ready(k->daemonize);
		break;
	case PS_KEEPER_SERVING:
		k->served_ns = ps_clock_mono_ns();
		if (k->resuming)
			ps_log_info("keeper: the mounts are served again after %llu ms",
			        (unsigned long long)((k->served_ns - k->down_ns) / PS_NS_PER_MS));
		k->resuming = false;
		break;
	case PS_KEEPER_PROGRESS:
		k->progress_ns = ps_clock_mono_ns();
		break;
	case PS_KEEPER_UPGRADE:
		upgrade(k, fd);
		break;
	case PS_KEEPER_LOCK:
		if (fd >= 0 && !k->held)
			add_item(k, m, ps_steal_fd(&fd));
		held(k);
		break;
	case PS_KEEPER_SESSION:
		if (m->mount && ps_mountfd_is_fuse(fd)) {
			bool ours = is_penstock(m->id.dev, fd);
			size_t n = k->n;

			add_item(k, m, ps_steal_fd(&fd));
			if (k->n > n)
				k->v[n].ours = ours;
		}
		break;
	case PS_KEEPER_REQUEST:
	case PS_KEEPER_STATE:
	case PS_KEEPER_CLIENT:
	case PS_KEEPER_OWNER:
		if (fd >= 0 && m->mount)
			add_item(k, m, ps_steal_fd(&fd));
		break;
	default:
		break;
	}
	if (fd >= 0)
		close(fd);
}

/* Returns -EBUSY and the text if the daemon found the cache in use. A daemon that has the cache's lock is not
 * believed that. */
static int take_messages(struct keeper *k, struct ps_error *err)
{
	struct ps_keeper_message m;
	int fd;

	while (k->sock >= 0) {
		int rc = ps_keeper_receive(k->sock, 0, &m, &fd);

		if (rc == -ETIMEDOUT)
			return 0;
		if (rc < 0 && rc != -EPROTO) {
			close(ps_steal_fd(&k->sock)); /* the daemon has ended, or closed its socket */
			return 0;
		}
		if (rc == 0 && m.kind == PS_KEEPER_BUSY && !k->held)
			return ps_error_set(err, EBUSY, "%s", m.text);
		if (rc == 0)
			take_message(k, &m, fd);
	}
	return 0;
}

/* Sends the resuming daemon as many items as the socket takes now. */
static void send_items(struct keeper *k)
{
	while (k->sock >= 0 && !k->sent_done) {
		const struct ps_keeper_message done = {.kind = PS_KEEPER_DONE, .starts = k->starts};
		bool last = k->nsent == k->n;
		int rc = last ? ps_keeper_send(k->sock, &done, -1, true)
		              : ps_keeper_send(k->sock, &k->v[k->nsent].message, k->v[k->nsent].fd, true);

		if (rc < 0)
			return;
		k->nsent += !last;
		k->sent_done = last;
	}
}

/* The daemon --------------------------------------------------------------------------------------------- */

/* In the child. */
static void become_daemon(const struct keeper *k, pid_t parent)
{
	/* If a supervisor kills the process that it started, the mount must end, as it would without a
	 * keeper. */
	if (!k->daemonize->background) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(PS_EXIT_FAILED);
	}
	ps_oom_score_write(k->oom_score);
	if (*k->unit)
		ps_cgroup_enter_part(k->unit, "daemon");
	sigaction(SIGPIPE, &k->broken_pipe, NULL);
	sigprocmask(SIG_SETMASK, &k->mask, NULL);
}

static int fork_daemon(struct keeper *k, int *ret_sock, struct ps_error *err)
{
	pid_t self = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return ps_error_set(err, errno, "socketpair: %s", strerror(errno));
	for (int i = 0; i < 2; i++)
		(void)setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &(int){SEND_NBYTES}, sizeof(int));
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		int rc = ps_error_set(err, errno, "fork: %s", strerror(errno));

		close(ends[0]);
		close(ends[1]);
		return rc;
	}
	if (pid == 0) {
		close(ends[0]);
		*ret_sock = ends[1];
		become_daemon(k, self);
		return 0;
	}
	close(ends[1]);
	k->sock = ends[0];
	k->daemon = pid;
	return 1;
}

/* Delays the next start after failed ones: their cause, such as a lack of memory, may pass. */
static void pause_before_start(struct keeper *k)
{
	static const unsigned ms[STARTS_MAX] = {0, 500, 2000};

	k->start_ns = ps_clock_mono_ns() + ms[PS_MIN(k->nfailed, STARTS_MAX - 1)] * PS_NS_PER_MS;
}

static void start_next(struct keeper *k)
{
	struct ps_error err = {0};
	char number[16];
	int sock;

	k->nsent = 0;
	k->sent_done = false;
	k->starts++;
	k->upgraded = k->old_exe >= 0;
	if (k->sock >= 0)
		close(ps_steal_fd(&k->sock));
	int rc = fork_daemon(k, &sock, &err);
	if (rc < 0) {
		ps_log_error("keeper: %s", err.text);
		k->nfailed++;
		k->daemon = -1;
		pause_before_start(k);
	}
	if (rc != 0)
		return;
	snprintf(number, sizeof(number), "%d", sock);
	fcntl(sock, F_SETFD, 0);
	char *argv[] = {(char *)(uintptr_t) "penstock", (char *)(uintptr_t) "resume", number, NULL};
	fexecve(k->exe, argv, environ);
	_exit(127);
}

/* Giving up ---------------------------------------------------------------------------------------------- */

/* Once our connection has ended, another mount may have its number. So the abort file is opened before the
 * check: if we are still connected then, the open file belongs to our connection, and stays so. The number is
 * the daemon's word, and a daemon in foreign hands could name another program's mount: so only a number that
 * was a penstock mount when it arrived, and is one now, is used. The others end with their descriptors. */
static void abort_connection(const struct ps_keeper_item *session)
{
	unsigned number = minor(session->message.id.dev);
	char path[64];

	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", number);
	ps_autofd int fd = number && session->ours ? open(path, O_WRONLY | O_CLOEXEC) : -1;
	if (fd >= 0 && is_penstock(session->message.id.dev, session->fd) && write(fd, "1", 1) < 0)
		ps_log_debug("keeper: %s: %s", path, strerror(errno));
}

/* Ends all mounts: readers get errors, and do not hang. A connection ends with its last descriptor, which a
 * hung daemon may still have; so the connections are aborted first. */
static _Noreturn void give_up(struct keeper *k, int code)
{
	if (k->daemon > 0)
		kill(k->daemon, SIGKILL);
	for (int ms = 0; ms < REAP_MS && k->daemon > 0 && waitpid(k->daemon, NULL, WNOHANG) == 0;
	        ms += REAP_STEP_MS)
		poll(NULL, 0, REAP_STEP_MS);
	for (size_t i = 0; i < k->n; i++) {
		if (k->v[i].message.kind != PS_KEEPER_SESSION)
			continue;
		abort_connection(&k->v[i]);
		close(ps_steal_fd(&k->v[i].fd));
	}
	for (size_t i = 0; i < k->n; i++)
		if (k->v[i].message.kind == PS_KEEPER_SESSION)
			detach(&k->v[i]);
	_exit(code);
}

/* Ends as the daemon did. */
static _Noreturn void end_like(int status)
{
	const struct rlimit none = {0, 0};

	if (WIFSIGNALED(status)) {
		sigset_t set;

		setrlimit(RLIMIT_CORE, &none);
		signal(WTERMSIG(status), SIG_DFL);
		sigemptyset(&set);
		sigaddset(&set, WTERMSIG(status));
		raise(WTERMSIG(status));
		sigprocmask(SIG_UNBLOCK, &set, NULL);
	}
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : PS_EXIT_FAILED);
}

/* While no daemon serves: the time at which the keeper gives up. */
static uint64_t give_up_ns(const struct keeper *k)
{
	return PS_MIN(PS_MAX(k->down_ns, k->progress_ns) + GIVE_UP_MS * PS_NS_PER_MS,
	        k->down_ns + PROGRESS_MAX_MS * PS_NS_PER_MS);
}

/* True: too many starts have failed, or they took too long. If a new program failed in this way, switches
 * back to the old program, which gets as many starts, and returns false. */
static bool has_failed(struct keeper *k)
{
	bool late = k->resuming && ps_clock_mono_ns() > give_up_ns(k);

	if (!late && k->nfailed < STARTS_MAX)
		return false;
	if (k->old_exe < 0)
		return true;
	ps_log_error("keeper: the new program does not start; the old one continues");
	close(k->exe);
	k->exe = ps_steal_fd(&k->old_exe);
	k->nfailed = 0;
	k->down_ns = ps_clock_mono_ns();
	if (k->daemon > 0)
		kill(k->daemon, SIGKILL); /* SIGCHLD starts the next one */
	return false;
}

static void give_up_if_failed(struct keeper *k)
{
	if (!has_failed(k))
		return;
	if (k->nfailed >= STARTS_MAX)
		ps_log_error("keeper: the daemon could not be started in %u attempts; its mounts end now",
		        k->nfailed);
	else
		ps_log_error("keeper: no daemon has served the mounts for %llu s; they end now",
		        (unsigned long long)((ps_clock_mono_ns() - k->down_ns) / PS_NS_PER_S));
	give_up(k, PS_EXIT_FAILED);
}

static void daemon_died(struct keeper *k, int status)
{
	uint64_t now = ps_clock_mono_ns();
	bool proven = !k->resuming && (!k->served_ns || now - k->served_ns >= PROVEN_MS * PS_NS_PER_MS);
	bool planned = k->old_exe >= 0 && !k->upgraded;

	k->daemon = -1;
	(void)ps_log_reopen(); /* the log file may have been renamed since */
	drop_unfinished(k);
	if (!has_session(k, 0))
		end_like(status);
	if (k->stopping)
		give_up(k, PS_EXIT_OK);
	if (WIFSIGNALED(status))
		ps_log_error("keeper: the daemon was killed by signal %d%s", WTERMSIG(status),
		        k->resuming ? " before it served" : "");
	else if (!planned)
		ps_log_error(
		        "keeper: the daemon exited with status %d while it had mounts", WEXITSTATUS(status));
	k->nfailed = proven || planned ? 0 : k->nfailed + 1;
	if (!k->resuming)
		k->down_ns = now;
	k->resuming = true;
	give_up_if_failed(k);
	pause_before_start(k);
}

/* The loop ----------------------------------------------------------------------------------------------- */

static void take_signals(struct keeper *k)
{
	struct signalfd_siginfo info;

	while (read(k->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		k->stopping |= info.ssi_signo != SIGHUP;
		if (k->daemon > 0)
			kill(k->daemon, (int)info.ssi_signo);
	}
}

static int wait_ms(const struct keeper *k)
{
	uint64_t now = ps_clock_mono_ns(), until;

	if (!k->resuming)
		return k->old_exe >= 0 ? PROVEN_MS : -1;
	until = give_up_ns(k);
	if (k->daemon < 0)
		until = PS_MIN(until, k->start_ns);
	return now >= until ? 0 : (int)((until - now) / PS_NS_PER_MS) + 1;
}

/* Returns only if another daemon has the cache: -EBUSY. */
static int keep(struct keeper *k, struct ps_error *err)
{
	for (;;) {
		bool sends = k->resuming && !k->sent_done;
		struct pollfd p[] = {{.fd = k->sock, .events = (short)(POLLIN | (sends ? POLLOUT : 0))},
		        {.fd = k->signals, .events = POLLIN}};
		int status;

		(void)poll(p, PS_ARRAY_LEN(p), wait_ms(k));
		take_signals(k);
		pid_t dead = k->daemon > 0 ? waitpid(k->daemon, &status, WNOHANG) : 0;
		/* Messages that the daemon sent before it ended are handled first. */
		int rc = take_messages(k, err);
		if (rc < 0) {
			while (dead <= 0 && waitpid(k->daemon, &status, 0) < 0 && errno == EINTR) {
			}
			return rc;
		}
		if (dead > 0)
			daemon_died(k, status);
		if (k->resuming && k->daemon < 0 && k->stopping)
			give_up(k, PS_EXIT_OK);
		if (k->resuming && k->daemon < 0 && ps_clock_mono_ns() >= k->start_ns)
			start_next(k);
		if (k->resuming)
			send_items(k);
		if (k->old_exe >= 0 && k->upgraded && !k->resuming &&
		        ps_clock_mono_ns() - k->served_ns >= PROVEN_MS * PS_NS_PER_MS)
			close(ps_steal_fd(&k->old_exe));
		give_up_if_failed(k);
	}
}

/* True if this kernel may be able to send requests again: from Linux 6.10 on. Whether it can for a mount is
 * decided by FUSE_HAS_RESEND in the mount's INIT. */
static bool kernel_can(void)
{
	struct utsname name;
	unsigned major, minor;

	return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 10));
}

/* The options of the next daemons. The keeper makes them itself: no daemon must decide where the next one
 * writes. They are sealed, since each of these daemons gets the descriptor. */
static int setup_memfd(const struct ps_mount_options *o)
{
	struct ps_given message = {0};
	int rc = ps_given_add(&message, "cache-dir", o->cache_dir, NULL);

	if (rc == 0 && o->foreground)
		rc = ps_given_add(&message, "foreground", "", NULL);
	if (rc == 0 && o->serve)
		rc = ps_given_add(&message, "serve", "", NULL);
	for (size_t i = 0; rc == 0 && i < o->given.n; i++) {
		const struct ps_opt *opt = ps_options_find(o->given.v[i].name);
		ps_autostrbuf struct ps_strbuf b = {0};

		if (!opt || opt->scope != PS_SCOPE_DAEMON || opt->flags & PS_OPT_LOCAL)
			continue;
		ps_strbuf_addf(&b, "%s%s%s", opt->name, o->given.v[i].value ? "=" : "",
		        o->given.v[i].value ? o->given.v[i].value : "");
		rc = b.failed ? -ENOMEM : ps_given_add(&message, "option", ps_strbuf_peek(&b), NULL);
	}
	ps_autofd int fd = rc == 0 ? ps_keeper_memfd(&message) : rc;
	ps_given_fini(&message);
	if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return fd < 0 ? fd : -errno;
	return ps_steal_fd(&fd);
}

int ps_keeper_begin(struct ps_daemonize *daemonize, const struct ps_mount_options *options, int owner,
        int *ret_sock, struct ps_error *err)
{
	struct keeper k = {.daemonize = daemonize, .owner = owner, .sock = -1, .old_exe = -1};
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	*ret_sock = -1;
	k.exe = kernel_can() ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC) : -1;
	if (k.exe < 0)
		return 0;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &k.mask);
	/* A log line to a closed stderr must not end the keeper. */
	sigaction(SIGPIPE, &ignore, &k.broken_pipe);
	k.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	{
		ps_autofd int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);

		if (fd >= 0 && read(fd, k.oom_score, sizeof(k.oom_score) - 1) < 0)
			k.oom_score[0] = '\0';
	}
	if (options->serve)
		ps_cgroup_of_unit(k.unit, sizeof(k.unit));
	if (*k.unit)
		ps_cgroup_enter_part(k.unit, "keeper");
	int rc = k.signals < 0 ? ps_error_set(err, errno, "signalfd: %s", strerror(errno))
	                       : fork_daemon(&k, ret_sock, err);
	if (rc > 0) {
		struct rlimit files = {.rlim_cur = 1024};

		prctl(PR_SET_NAME, "penstock-keeper");
		ps_oom_score_write(OOM_SCORE);
		if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
			files.rlim_cur = files.rlim_max;
			setrlimit(RLIMIT_NOFILE, &files);
		}
		k.nmax = PS_MIN(files.rlim_cur / ITEMS_OF_FILES, ITEMS_MAX);
		ps_privileges_drop(PS_PRIVILEGES_KEEPER);
		int setup = setup_memfd(options);
		if (setup < 0)
			ps_log_error("keeper: the daemon's options: %s", strerror(-setup));
		else
			add_item(&k, &(struct ps_keeper_message){.kind = PS_KEEPER_SETUP}, setup);
		rc = keep(&k, err);
		while (k.n > 0)
			remove_item(&k, k.n - 1);
		free(k.v);
		prctl(PR_SET_NAME, "penstock");
		ps_oom_score_write(k.oom_score);
	}
	close(k.exe);
	if (k.signals >= 0)
		close(k.signals);
	if (k.sock >= 0)
		close(k.sock);
	sigaction(SIGPIPE, &k.broken_pipe, NULL);
	sigprocmask(SIG_SETMASK, &k.mask, NULL);
	return rc;
}
