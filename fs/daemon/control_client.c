#include "daemon/daemon_private.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/log.h"

#define ASK_MS 2000
#define WORD_MS 60000 /* for a message that a daemon can send at once; long, for busy machines */

/* Receives the daemon's next message, which must be `word` or `other`. */
static int expect_either(int sock, const char *word, const char *other, int timeout_ms, struct ps_given *ret,
        struct ps_error *err)
{
	uint32_t protocol = 0;
	int rc = ps_control_receive(sock, timeout_ms, ret, NULL, &protocol);

	if (rc == -EPROTONOSUPPORT)
		return ps_error_set(err, EPROTONOSUPPORT,
		        "the daemon that serves this cache has another version (protocol %u, this program "
		        "uses %d); unmount its mounts first, or use the program of its version",
		        (unsigned)protocol, PS_CONTROL_PROTOCOL);
	if (rc == -EPIPE)
		return ps_error_set(err, EPIPE,
		        "the daemon that serves this cache has died or has run out of memory (see its log)");
	if (rc < 0)
		return ps_error_set(err, -rc, "the daemon that serves this cache: %s", strerror(-rc));
	const char *said = ps_control_get(ret, PS_DO), *text = ps_control_get(ret, "text");
	if (said && (strcmp(said, word) == 0 || strcmp(said, other) == 0))
		return 0;
	if (said && text && strcmp(said, "error") == 0)
		rc = ps_error_set(err, EIO, "%s", text);
	else
		rc = ps_error_set(err, EPROTO, "the daemon that serves this cache says '%.32s', not '%s'",
		        said ? said : "", word);
	ps_given_fini(ret);
	return rc;
}

static int expect(int sock, const char *word, int timeout_ms, struct ps_given *ret, struct ps_error *err)
{
	return expect_either(sock, word, word, timeout_ms, ret, err);
}

static int ask(int sock, const struct ps_mount_request *request, int owner)
{
	struct ps_given message = {0};
	int rc = ps_given_add(&message, PS_DO, owner >= 0 ? "own" : "mount", NULL);

	if (rc == 0)
		rc = ps_request_encode(request, &message);
	for (unsigned i = 0; rc == 0 && ps_log_early(i); i++)
		rc = ps_given_add(&message, PS_WARNED, ps_log_early(i), NULL);
	if (rc == 0)
		rc = ps_control_send(sock, &message, owner);
	ps_given_fini(&message);
	return rc;
}

static const char *id_text(struct ps_mount_id id, char buf[static 48])
{
	snprintf(buf, 48, "%u:%u %" PRIu64, major(id.dev), minor(id.dev), id.number);
	return buf;
}

/* From "prepared" on: mounts, sends the descriptor, and checks that the mount answers. keeps: the daemon says
 * when its keeper has the mount, which then outlives the daemon. */
static int hand_over(int sock, const struct ps_mount_request *request,
        const struct ps_control_mount_options *options, const char *device, bool keeps,
        struct ps_mount_id *ret_id, struct ps_error *err)
{
	const char *mountpoint = request->mountpoint;
	struct ps_given message = {0};
	struct stat st;
	char text[48];
	ps_autofd int fd = -1;

	int rc = ps_mountfd_mount(&(struct ps_mountfd_options){.source = device,
	                                  .mountpoint = mountpoint,
	                                  .allow_other = options->allow_other,
	                                  .flags = options->flags,
	                                  .security = options->security},
	        &fd, err);
	if (rc < 0)
		return rc;
	struct ps_mount_id id = *ret_id = ps_mounts_id(mountpoint);
	rc = ps_control_say(sock, "mounted", "mount", id_text(id, text), fd);
	if (rc < 0)
		ps_error_set(err, -rc, "the daemon that serves this cache: %s", strerror(-rc));
	/* now only the daemon has the descriptor: when the daemon dies, the kernel fails all requests */
	close(ps_steal_fd(&fd));
	if (rc == 0)
		rc = expect(sock, "serving", WORD_MS, &message, err);
	const char *warning = rc == 0 ? ps_control_get(&message, "warning") : NULL;
	if (warning && *warning)
		ps_cli_fail("mount", 0, "warning: %s", warning);
	ps_given_fini(&message);
	if (rc == 0 && stat(mountpoint, &st) < 0)
		rc = ps_error_set(
		        err, errno, "the mount on %s does not answer: %s", mountpoint, strerror(errno));
	if (rc == 0 && !ps_mount_id_same(id, ps_mounts_id(mountpoint)))
		rc = ps_error_set(err, EIO, "the mount on %s was unmounted at once", mountpoint);
	if (rc == 0 && (rc = ps_control_say(sock, "answers", keeps ? PS_THEN : NULL, "kept", -1)) < 0)
		ps_error_set(err, -rc,
		        "the daemon that serves this cache has died or has run out of memory (see its log)");
	if (rc == 0 && keeps) {
		rc = expect(sock, "kept", WORD_MS, &message, err);
		ps_given_fini(&message);
	}
	if (rc < 0)
		ps_mountfd_detach(mountpoint, id);
	return rc;
}

/* Staying ------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t stop_signal;

static void on_signal(int signo)
{
	stop_signal = signo;
}

/* Waits until the daemon reports the end of the mount. Signals are unblocked only during the wait. */
static int stay(int sock, const struct ps_mount_request *request, struct ps_mount_id id,
        const sigset_t *unblocked, struct ps_error *err)
{
	struct ps_given message = {0};
	bool detached = false;

	for (;;) {
		struct pollfd p = {.fd = sock, .events = POLLIN};

		if (stop_signal && !detached) {
			ps_mountfd_detach(request->mountpoint, id);
			detached = true;
		}
		if (ppoll(&p, 1, NULL, unblocked) > 0)
			break;
	}
	int rc = expect(sock, "ended", WORD_MS, &message, err);
	ps_given_fini(&message);
	if (rc < 0)
		ps_mountfd_detach(request->mountpoint, id); /* the daemon has died */
	return rc;
}

static void block_signals(sigset_t *ret_unblocked)
{
	struct sigaction act = {.sa_handler = on_signal};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, ret_unblocked);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
}

int ps_control_mount(const char *cache_dir, const struct ps_mount_request *request,
        const struct ps_control_mount_options *options, struct ps_error *err)
{
	struct ps_given message = {0};
	ps_autofd int sock = -1;
	sigset_t unblocked;
	struct ps_mount_id id;
	pid_t pid;
	int rc = ps_control_connect(cache_dir, &sock, &pid, err);

	if (rc < 0)
		return rc;
	rc = ask(sock, request, options->owner);
	/* if the daemon refused us and closed the connection, its reason may still be unread */
	if ((rc == 0 || rc == -EPIPE) && options->owner >= 0) {
		rc = expect_either(sock, "where", "joined", -1, &message, err);
		bool joined = rc == 0 && strcmp(ps_control_get(&message, PS_DO), "joined") == 0;

		ps_given_fini(&message);
		if (joined) {
			options->ready(options->arg);
			return 0;
		}
		if (rc == 0 && (rc = options->place(options->arg, err)) < 0)
			return rc;
		if (rc == 0)
			rc = ps_control_say(sock, "here", "mountpoint", request->mountpoint, -1);
	}
	if (rc == 0)
		ps_cli_wait(sock, "mount", "the daemon to list the source");
	if (rc == 0 || rc == -EPIPE)
		rc = expect(sock, "prepared", -1, &message, err);
	if (rc == -EPIPE) {
		*err = (struct ps_error){0}; /* the daemon was ending */
		return -ENOENT;
	}
	if (rc < 0)
		return err->err ? rc
		                : ps_error_set(
		                          err, -rc, "the daemon that serves this cache: %s", strerror(-rc));
	for (size_t i = 0; i < message.n; i++)
		if (strcmp(message.v[i].name, "warning") == 0)
			ps_cli_fail("mount", 0, "warning: %s", message.v[i].value);
	const char *device = ps_control_get(&message, "device");
	/* From here on a signal would leave a mount without a daemon, so signals are blocked. */
	block_signals(&unblocked);
	rc = hand_over(sock, request, options, device ? device : "penstock",
	        ps_control_get(&message, PS_THEN) != NULL, &id, err);
	ps_given_fini(&message);
	if (rc < 0)
		return rc;
	options->ready(options->arg);
	return options->stay ? stay(sock, request, id, &unblocked, err) : 0;
}

/* Questions ---------------------------------------------------------------------------------------------- */

static int question(const char *cache_dir, const char *word, const char *name, const char *value,
        const char *answer, int timeout_ms, struct ps_given *ret, struct ps_error *err)
{
	ps_autofd int sock = -1;
	pid_t pid;
	int rc = ps_control_connect(cache_dir, &sock, &pid, err);

	if (rc < 0)
		return rc;
	rc = ps_control_say(sock, word, name, value, -1);
	if (rc < 0)
		return ps_error_set(err, -rc, "the daemon that serves %s: %s", cache_dir, strerror(-rc));
	return expect(sock, answer, timeout_ms, ret, err);
}

int ps_control_status(const char *cache_dir, int timeout_ms, json_t **ret, struct ps_error *err)
{
	struct ps_given message = {0};
	int rc = question(cache_dir, "status", NULL, NULL, "status", timeout_ms, &message, err);

	if (rc == -ENOENT && !err->err)
		return ps_error_set(err, ENOENT, "%s: no daemon serves it", cache_dir);
	if (rc < 0)
		return rc;
	const char *text = ps_control_get(&message, "json");
	json_t *doc = text ? json_loads(text, 0, NULL) : NULL;
	ps_given_fini(&message);
	if (!json_is_object(doc)) {
		json_decref(doc);
		return ps_error_set(err, EPROTO, "%s: its daemon's answer is not JSON", cache_dir);
	}
	*ret = doc;
	return 0;
}

/* The pid of the daemon that serves the cache. */
static int who(const char *cache_dir, int timeout_ms, pid_t *ret_pid, struct ps_error *err)
{
	json_t *doc;
	int rc = ps_control_status(cache_dir, timeout_ms, &doc, err);

	if (rc < 0)
		return rc;
	*ret_pid = (pid_t)json_integer_value(json_object_get(doc, "pid"));
	json_decref(doc);
	return 0;
}

int ps_control_upgrade(const char *cache_dir, int exe, int timeout_ms, pid_t *ret_pid, struct ps_error *err)
{
	uint64_t until_ns = ps_clock_mono_ns() + (uint64_t)timeout_ms * PS_NS_PER_MS;
	struct ps_given message = {0};
	struct ps_error ignored = {0};
	struct stat ours, theirs;
	char path[40];
	pid_t old, now = 0;
	int rc = who(cache_dir, timeout_ms, &old, err);

	if (rc < 0)
		return rc;
	ps_autofd int sock = -1;
	rc = ps_control_connect(cache_dir, &sock, &now, err);
	if (rc == 0 && (rc = ps_control_say(sock, "upgrade", NULL, NULL, -1)) < 0)
		ps_error_set(err, -rc, "the daemon that serves %s: %s", cache_dir, strerror(-rc));
	if (rc == 0)
		rc = expect(sock, "leaving", timeout_ms, &message, err);
	ps_given_fini(&message);
	if (rc == -ENOENT && !err->err)
		return ps_error_set(err, ENOENT, "%s: no daemon serves it", cache_dir);
	if (rc < 0)
		return rc;
	for (now = old; now == old && ps_clock_mono_ns() < until_ns; poll(NULL, 0, 20))
		if (who(cache_dir, ASK_MS, &now, &ignored) < 0)
			now = old;
	if (now == old)
		return ps_error_set(
		        err, ETIMEDOUT, "%s: no new daemon serves it yet (see its log)", cache_dir);
	ps_autofd int again = -1;
	pid_t seen = 0; /* its number in this process's namespace */
	if (ps_control_connect(cache_dir, &again, &seen, &ignored) < 0)
		seen = 0;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)seen);
	if (fstat(exe, &ours) == 0 && stat(path, &theirs) == 0 &&
	        (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino))
		return ps_error_set(err, EIO,
		        "%s: the new program did not start; the old one continues to serve it (see its log)",
		        cache_dir);
	*ret_pid = now;
	return 0;
}

int ps_control_await_end(
        const char *cache_dir, dev_t dev, int timeout_ms, unsigned *ret_left, struct ps_error *err)
{
	struct ps_given message = {0};
	char text[48];
	int rc = question(cache_dir, "wait", "mount", id_text((struct ps_mount_id){.dev = dev}, text),
	        "ended", timeout_ms, &message, err);

	if (rc < 0)
		return rc;
	const char *left = ps_control_get(&message, "mounts");
	*ret_left = left ? (unsigned)strtoul(left, NULL, 10) : 0;
	ps_given_fini(&message);
	return 0;
}
