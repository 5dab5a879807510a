/* The helper: the small process beside a daemon that does what needs privileges, so that the daemon has
 * none (docs/design/keeper.md). It is forked before the daemon reads anything from the network, ends with
 * the daemon, and does not trust it: it mounts on one folder only, unmounts penstock mounts only, opens one
 * log file only, and makes backing ids only of files in the cache, which it opens itself.
 *
 *   backing ids   an open waits for them: made at once, one after the other
 *   all else      may wait for the kernel: done in a child process, which has its own socket to answer */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "daemon/daemon_private.h"

#define ANSWER_S 10      /* for a backing id; a helper that is stopped for longer is given up */
#define SLOW_MS 60000    /* for mounting, which may go through fusermount3 */
#define OOM_SCORE "-900" /* the daemon uses the memory, and is to be killed first */

enum kind { BACKING_OPEN = 1, BACKING_CLOSE, MOUNT, DETACH, LOG };

struct request {
	uint32_t kind, nbytes; /* nbytes: of the text that follows */
	int32_t id;            /* BACKING_CLOSE */
	uint32_t silent;       /* BACKING_CLOSE: it is not answered */
	struct ps_mount_id mount;
	uint64_t dev, ino; /* BACKING_OPEN: of the file, whose name is the text */
};

struct ps_helper {
	int sock;
	unsigned nsilent;     /* closes since the last answer */
	pthread_mutex_t lock; /* covers both, and a request with its answer */
};

/* The helper's side -------------------------------------------------------------------------------------- */

struct job {
	const struct ps_mountfd_options *first; /* NULL: no mount is made */
	int cache_fd;
	uid_t owner; /* of the cache */
	struct request request;
	char text[4200];
	int fds[PS_FDS_MAX];
	size_t nfds;
};

static bool receive_rest(int sock, void *to, size_t nbytes)
{
	size_t n = 0;

	while (n < nbytes) {
		ssize_t got = recv(sock, (char *)to + n, nbytes - n, MSG_WAITALL);

		if (got == 0 || (got < 0 && errno != EINTR))
			return false;
		n += got > 0 ? (size_t)got : 0;
	}
	return true;
}

static bool receive(int sock, struct job *job)
{
	union ps_fds room;
	struct iovec iov = {&job->request, sizeof(job->request)};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = room.buf,
	        .msg_controllen = sizeof(room.buf)};
	ssize_t n;

	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return false;
	job->nfds = ps_fds_take(&msg, job->fds, PS_FDS_MAX);
	if (!receive_rest(sock, (char *)&job->request + n, sizeof(job->request) - (size_t)n) ||
	        job->request.nbytes >= sizeof(job->text) ||
	        !receive_rest(sock, job->text, job->request.nbytes))
		return false;
	job->text[job->request.nbytes] = '\0';
	return true;
}

static int mount_first(const struct job *job, int *ret_fd, struct ps_error *err)
{
	struct ps_mountfd_options options;

	if (!job->first)
		return ps_error_set(err, EPERM, "the helper: there is nothing to mount");
	options = *job->first;
	options.source = job->text;
	return ps_mountfd_mount(&options, ret_fd, err);
}

/* True if the mount's connection has ended. While it has not, this asks the daemon. */
static bool has_ended(const char *mountpoint)
{
	struct statx st;

	return statx(AT_FDCWD, mountpoint, AT_STATX_FORCE_SYNC | AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0 &&
	       (errno == ENOTCONN || errno == ECONNABORTED);
}

/* Detaches a mount whose connection the daemon has, or one that has ended. Once the daemon's connection has
 * ended, a mount of another cache may have its number. */
static int detach_ours(const struct job *job)
{
	int fuse_fd = job->nfds > 1 ? job->fds[1] : -1;

	if (!ps_mount_id_same(job->request.mount, ps_mounts_id(job->text)))
		return -ENOENT;
	if (ps_mountfd_is_fuse(fuse_fd) && ps_mountfd_is_connected(fuse_fd)
	                ? !ps_mountfd_may_be(fuse_fd, job->request.mount.dev)
	                : !has_ended(job->text))
		return -EPERM;
	return ps_mountfd_detach(job->text, job->request.mount);
}

static _Noreturn void do_slow(const struct job *job)
{
	struct ps_keeper_message answer = {.kind = PS_KEEPER_DONE};
	struct ps_error err = {0};
	int fd = -1, rc;

	signal(SIGCHLD, SIG_DFL); /* to be able to wait for fusermount3 */
	switch (job->request.kind) {
	case MOUNT:
		rc = mount_first(job, &fd, &err);
		break;
	case DETACH:
		rc = detach_ours(job);
		break;
	case LOG:
		rc = fd = ps_log_open_again();
		break;
	default:
		rc = -ENOSYS;
	}
	answer.owner = rc < 0 ? (uint64_t)-rc : 0;
	snprintf(answer.text, sizeof(answer.text), "%s", err.text);
	_exit(ps_keeper_send(job->fds[0], &answer, fd, false) < 0);
}

/* The daemon has died. The next one may have looked for lost backing ids before this one was opened: it must
 * not stay. (An id whose answer was sent is older than the end of the daemon, and so than the next one.) */
static _Noreturn void take_back(const struct job *job, int32_t id)
{
	if (job->request.kind == BACKING_OPEN && id > 0)
		ps_backing_close(job->fds[0], id);
	_exit(PS_EXIT_FAILED);
}

/* Opens a data file for the kernel to read. The kernel opens it again with the flags of a FUSE file, and with
 * the helper's privileges: on a mount of another program that may be for writing. So whatever the daemon asks
 * for, it must be a file that the daemon may change itself. */
static int open_in_cache(const struct job *job)
{
	const struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
	        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
	ps_autofd int fd = (int)syscall(SYS_openat2, job->cache_fd, job->text, &how, sizeof(how));
	struct stat st;

	if (fd < 0)
		return errno == ENOENT || errno == ELOOP || errno == ENOTDIR ? -ESTALE : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != job->owner ||
	        st.st_dev != job->request.dev || st.st_ino != job->request.ino)
		return -ESTALE;
	return ps_steal_fd(&fd);
}

static int backing(const struct job *job)
{
	if (job->nfds != 1 || !ps_mountfd_is_fuse(job->fds[0]))
		return -EPROTO;
	if (job->request.kind == BACKING_CLOSE)
		return ps_backing_close(job->fds[0], job->request.id);
	ps_autofd int fd = open_in_cache(job);
	return fd < 0 ? fd : ps_backing_open(job->fds[0], fd);
}

static void do_one(int sock, struct job *job)
{
	int32_t answer;

	switch (job->request.kind) {
	case BACKING_OPEN:
	case BACKING_CLOSE:
		answer = backing(job);
		if (!job->request.silent && send(sock, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
			take_back(job, answer);
		break;
	default:
		if (job->nfds > 0 && fork() == 0)
			do_slow(job);
		if (job->request.kind == MOUNT)
			job->first = NULL; /* it is made once */
	}
	for (size_t i = 0; i < job->nfds; i++)
		close(job->fds[i]);
}

/* Also replaces the arguments: a search for the daemon's arguments must not find the helper. */
static void write_name(void)
{
	static const char name[] = "penstock-helper";
	char buf[4096];
	size_t room = 0;
	ssize_t n;
	ps_autofd int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

	prctl(PR_SET_NAME, name);
	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		room += (size_t)n;
	if (room < sizeof(name))
		return;
	memset(program_invocation_name, 0, room);
	memcpy(program_invocation_name, name, sizeof(name));
}

#define SOCK_FD (STDERR_FILENO + 1)
#define CACHE_FD (STDERR_FILENO + 2)
#define LOG_FD (STDERR_FILENO + 3)

/* Closes what the helper has inherited, but for the socket and the cache directory, which become SOCK_FD and
 * CACHE_FD. Returns 0 or -errno. */
static int let_go(int sock, int cache_fd, int log_fd)
{
	int high = fcntl(cache_fd, F_DUPFD_CLOEXEC, LOG_FD + 1);
	int log = log_fd >= 0 ? fcntl(log_fd, F_DUPFD_CLOEXEC, LOG_FD + 1) : LOG_FD;
	ps_autofd int null = open("/dev/null", O_RDWR);

	if (high < 0 || log < 0 || null < 0 || chdir("/") < 0)
		return -errno;
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	if (dup2(sock, SOCK_FD) < 0 || dup2(high, CACHE_FD) < 0 || (log_fd >= 0 && dup2(log, LOG_FD) < 0) ||
	        close_range(log_fd >= 0 ? LOG_FD + 1 : LOG_FD, ~0u, 0) < 0)
		return -errno;
	(void)ps_steal_fd(&null);
	return fcntl(SOCK_FD, F_SETFD, FD_CLOEXEC) < 0 || fcntl(CACHE_FD, F_SETFD, FD_CLOEXEC) < 0 ? -errno
	                                                                                           : 0;
}

/* Writes the daemon's log, as long as there is one. Without that process the daemon does not start. */
static void fork_log(void)
{
	pid_t pid = fork();

	if (pid < 0)
		_exit(PS_EXIT_FAILED);
	if (pid > 0) {
		close(LOG_FD);
		return;
	}
	close(SOCK_FD);
	close(CACHE_FD);
	prctl(PR_SET_NAME, "penstock-log");
	ps_privileges_drop(PS_PRIVILEGES_NONE);
	ps_log_relay_serve(LOG_FD);
	_exit(PS_EXIT_OK);
}

static _Noreturn void serve(int sock, const struct ps_mountfd_options *first, int cache_fd, int log_fd)
{
	static struct job job = {.cache_fd = CACHE_FD};
	struct stat st;

	write_name();
	ps_oom_score_write(OOM_SCORE);
	/* The helper ends when the daemon's end of the socket is closed, not by a signal: a signal to the
	 * process group reaches both, and the daemon still needs the helper to unmount. */
	for (int signo = 1; signo < SIGRTMIN; signo++)
		if (signo == SIGTERM || signo == SIGINT || signo == SIGHUP || signo == SIGQUIT ||
		        signo == SIGCHLD || signo == SIGPIPE)
			signal(signo, SIG_IGN);
	if (let_go(sock, cache_fd, log_fd) < 0 || fstat(CACHE_FD, &st) < 0)
		_exit(PS_EXIT_FAILED);
	job.owner = st.st_uid;
	if (log_fd >= 0)
		fork_log();
	ps_privileges_drop(PS_PRIVILEGES_HELPER);
	job.first = first;
	while (receive(SOCK_FD, &job))
		do_one(SOCK_FD, &job);
	_exit(PS_EXIT_OK);
}

/* The daemon's side -------------------------------------------------------------------------------------- */

int ps_helper_start(const struct ps_mountfd_options *first, int cache_fd, int log_fd, struct ps_helper **ret,
        struct ps_error *err)
{
	const struct timeval patience = {.tv_sec = ANSWER_S};
	struct ps_helper *h = calloc(1, sizeof(*h));
	int ends[2];

	if (!h)
		return ps_no_memory(err);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		free(h);
		return ps_error_set(err, errno, "socketpair: %s", strerror(errno));
	}
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		serve(ends[1], first, cache_fd, log_fd);
	int rc = pid < 0 ? ps_error_set(err, errno, "fork: %s", strerror(errno)) : 0;
	close(ends[1]);
	if (rc < 0) {
		close(ends[0]);
		free(h);
		return rc;
	}
	setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	h->sock = ends[0];
	pthread_mutex_init(&h->lock, NULL);
	*ret = h;
	return 0;
}

void ps_helper_free(struct ps_helper *h)
{
	if (!h)
		return;
	if (h->sock >= 0)
		close(h->sock);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

/* Closes the socket after an error: later answers could not be matched to their requests. The lock is
 * held. */
static int give_up(struct ps_helper *h)
{
	if (h->sock >= 0) {
		ps_log_error("helper: the helper has exited: no more files are passed through, and mounts "
		             "cannot be unmounted");
		close(ps_steal_fd(&h->sock));
	}
	return -EPIPE;
}

/* The lock is held. */
static int send_request(
        struct ps_helper *h, const struct request *request, const char *text, const int *fds, size_t nfds)
{
	union ps_fds room;
	struct iovec iov[] = {
	        {(void *)(uintptr_t)request, sizeof(*request)}, {(void *)(uintptr_t)text, request->nbytes}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = PS_ARRAY_LEN(iov)};
	ssize_t n;

	ps_fds_put(&msg, &room, fds, nfds);
	/* A message this short is sent in one piece. */
	if (h->sock < 0)
		return -EPIPE;
	do
		n = sendmsg(h->sock, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	/* If sendmsg() failed otherwise, such as for too many descriptors under way, nothing was sent. */
	if (n < 0 && errno != EPIPE && errno != ECONNRESET && errno != EAGAIN)
		return -errno;
	return n == (ssize_t)(sizeof(*request) + request->nbytes) ? 0 : give_up(h);
}

static int call_backing(struct ps_helper *h, struct request request, const char *name, int dev_fd)
{
	int32_t answer;
	ssize_t n;

	PS_LOCK_SCOPE(&h->lock);
	request.silent = request.kind == BACKING_CLOSE && h->nsilent < PS_BACKING_CLOSES;
	int rc = send_request(h, &request, name, &dev_fd, 1);
	if (rc < 0)
		return rc;
	if (request.silent) {
		h->nsilent++;
		return 0;
	}
	do
		n = recv(h->sock, &answer, sizeof(answer), MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(answer))
		return give_up(h);
	h->nsilent = 0;
	return answer;
}

static int backing_open(void *arg, int dev_fd, int fd, const char *name)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return call_backing(arg,
	        (struct request){.kind = BACKING_OPEN,
	                .nbytes = (uint32_t)strlen(name),
	                .dev = st.st_dev,
	                .ino = st.st_ino},
	        name, dev_fd);
}

/* Most closes are not waited for: on two processors a wait made the opens of small files a tenth slower. */
static int backing_close(void *arg, int dev_fd, int id)
{
	return call_backing(arg, (struct request){.kind = BACKING_CLOSE, .id = id}, NULL, dev_fd);
}

const struct ps_backing_ops ps_helper_backing = {backing_open, backing_close};

/* Sends a request whose answer comes through a socket of its own. with_fd: a descriptor to send, or -1. *ret_fd:
 * the descriptor that came with the answer, or -1. */
static int call(struct ps_helper *h, struct request request, const char *text, int with_fd, int *ret_fd,
        struct ps_error *err)
{
	struct ps_keeper_message answer;
	int ends[2], fd = -1, rc;

	request.nbytes = (uint32_t)strlen(text);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return ps_error_set(err, errno, "socketpair: %s", strerror(errno));
	ps_autofd int ours = ends[0];
	{
		PS_LOCK_SCOPE(&h->lock);
		rc = send_request(h, &request, text, (const int[]){ends[1], with_fd}, 1 + (with_fd >= 0));
	}
	close(ends[1]);
	if (rc == 0)
		rc = ps_keeper_receive(ours, SLOW_MS, &answer, &fd);
	if (rc < 0)
		return ps_error_set(err, -rc, "the daemon's helper: %s", strerror(-rc));
	if (answer.owner) {
		if (fd >= 0)
			close(fd);
		rc = -(int)answer.owner;
		return ps_error_set(err, -rc, "%s", *answer.text ? answer.text : strerror(-rc));
	}
	*ret_fd = fd;
	return 0;
}

int ps_helper_mount(
        struct ps_helper *h, const struct ps_mountfd_options *options, int *ret_fd, struct ps_error *err)
{
	int fd = -1;

	if (!h)
		return ps_mountfd_mount(options, ret_fd, err);
	int rc = call(h, (struct request){.kind = MOUNT}, options->source, -1, &fd, err);
	if (rc == 0 && fd < 0)
		rc = ps_error_set(err, EPROTO, "the daemon's helper: no descriptor came");
	if (rc == 0)
		*ret_fd = fd;
	return rc;
}

int ps_helper_detach(struct ps_helper *h, const char *mountpoint, struct ps_mount_id id, int fuse_fd)
{
	struct ps_error err = {0};
	int fd = -1;

	if (!h)
		return ps_mountfd_detach(mountpoint, id);
	if (!id.number || strlen(mountpoint) >= sizeof(((struct job *)0)->text))
		return -ENOENT;
	int rc = call(h, (struct request){.kind = DETACH, .mount = id}, mountpoint, fuse_fd, &fd, &err);
	if (fd >= 0)
		close(fd);
	return rc;
}

int ps_helper_reopen_log(struct ps_helper *h)
{
	struct ps_error err = {0};
	int fd = -1;

	if (!h)
		return ps_log_reopen();
	int rc = call(h, (struct request){.kind = LOG}, "", -1, &fd, &err);
	return rc < 0 || fd < 0 ? rc : ps_log_take(fd);
}
