#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "daemon/daemon_private.h"
#include "store/store.h"

static const char magic[8] = "penstock";

struct head {
	char magic[8];
	uint32_t protocol, nbytes;
};
_Static_assert(sizeof(struct head) == 16, "the part that never changes");

void ps_fds_put(struct msghdr *msg, union ps_fds *room, const int *fds, size_t n)
{
	*room = (union ps_fds){.align = {.cmsg_level = SOL_SOCKET,
	                               .cmsg_type = SCM_RIGHTS,
	                               .cmsg_len = CMSG_LEN(n * sizeof(int))}};
	memcpy(CMSG_DATA(&room->align), fds, n * sizeof(int));
	msg->msg_control = room->buf;
	msg->msg_controllen = CMSG_SPACE(n * sizeof(int));
}

size_t ps_fds_take(struct msghdr *msg, int *ret, size_t max)
{
	size_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
			int got;

			memcpy(&got, CMSG_DATA(c) + i * sizeof(got), sizeof(got));
			if (n < max)
				ret[n++] = got;
			else
				close(got);
		}
	}
	return n;
}

const char *ps_control_get(const struct ps_given *message, const char *name)
{
	for (size_t i = 0; i < message->n; i++)
		if (strcmp(message->v[i].name, name) == 0)
			return message->v[i].value;
	return NULL;
}

/* Waits for `events`; -ETIMEDOUT past the deadline (0: none). */
static int await(int sock, short events, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now = ps_clock_mono_ns();
		struct pollfd p = {.fd = sock, .events = events};

		if (deadline_ns && now >= deadline_ns)
			return -ETIMEDOUT;
		int n = poll(&p, 1, deadline_ns ? (int)((deadline_ns - now) / PS_NS_PER_MS) + 1 : -1);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static uint64_t deadline_after(int timeout_ms)
{
	return timeout_ms < 0 ? 0 : ps_clock_mono_ns() + (uint64_t)timeout_ms * PS_NS_PER_MS;
}

int ps_control_encode(const struct ps_given *message, struct ps_strbuf *ret)
{
	size_t before = ret->len;

	for (size_t i = 0; i < message->n; i++) {
		const char *value = message->v[i].value ? message->v[i].value : "";

		ps_strbuf_addn(ret, message->v[i].name, strlen(message->v[i].name) + 1);
		ps_strbuf_addn(ret, value, strlen(value) + 1);
	}
	if (ret->failed)
		return -ENOMEM;
	return ret->len - before > PS_CONTROL_MAX_NBYTES || message->n > PS_CONTROL_MAX_PAIRS ? -EPROTO : 0;
}

int ps_control_send(int sock, const struct ps_given *message, int fd)
{
	uint64_t deadline_ns = deadline_after(PS_CONTROL_SEND_MS);
	struct head head = {.protocol = PS_CONTROL_PROTOCOL};
	struct ps_strbuf b = {0};
	union ps_fds room;

	memcpy(head.magic, magic, sizeof(magic));
	ps_strbuf_addn(&b, &head, sizeof(head));
	int rc = ps_control_encode(message, &b);
	for (size_t sent = 0; rc == 0 && sent < b.len;) {
		head.nbytes = (uint32_t)(b.len - sizeof(head));
		memcpy(b.s, &head, sizeof(head));
		struct iovec iov = {b.s + sent, b.len - sent};
		struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

		if (fd >= 0 && sent == 0)
			ps_fds_put(&msg, &room, &fd, 1);
		ssize_t n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n >= 0)
			sent += (size_t)n;
		else if (errno == EAGAIN)
			rc = await(sock, POLLOUT, deadline_ns);
		else if (errno != EINTR)
			rc = errno == ECONNRESET ? -EPIPE : -errno;
	}
	if (b.s)
		explicit_bzero(b.s, b.len);
	ps_strbuf_fini(&b);
	return rc;
}

int ps_control_say(int sock, const char *word, const char *name, const char *value, int fd)
{
	struct ps_given message = {0};
	int rc = ps_given_add(&message, PS_DO, word, NULL);

	if (rc == 0 && name)
		rc = ps_given_add(&message, name, value, NULL);
	if (rc == 0)
		rc = ps_control_send(sock, &message, fd);
	ps_given_fini(&message);
	return rc;
}

static int receive_all(int sock, void *to, size_t nbytes, uint64_t deadline_ns, int *fd)
{
	for (size_t got = 0; got < nbytes;) {
		union ps_fds room;
		struct iovec iov = {(char *)to + got, nbytes - got};
		struct msghdr msg = {.msg_iov = &iov,
		        .msg_iovlen = 1,
		        .msg_control = room.buf,
		        .msg_controllen = sizeof(room.buf)};
		int rc = await(sock, POLLIN, deadline_ns);

		if (rc < 0)
			return rc;
		ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return -EPIPE;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0) {
			(void)ps_fds_take(&msg, fd, *fd < 0);
			got += (size_t)n;
		}
	}
	return 0;
}

int ps_control_decode(const char *bytes, size_t nbytes, struct ps_given *ret)
{
	struct ps_given message = {0};
	int rc = nbytes && bytes[nbytes - 1] ? -EPROTO : 0;

	for (size_t pos = 0; rc == 0 && pos < nbytes;) {
		const char *name = bytes + pos;
		size_t value = pos + strlen(name) + 1;

		if (value >= nbytes || message.n == PS_CONTROL_MAX_PAIRS)
			rc = -EPROTO;
		else
			rc = ps_given_add(&message, name, bytes + value, NULL);
		if (rc == 0)
			pos = value + strlen(bytes + value) + 1;
	}
	if (rc < 0)
		ps_given_fini(&message);
	else
		*ret = message;
	return rc;
}

int ps_control_receive(int sock, int timeout_ms, struct ps_given *ret, int *ret_fd, uint32_t *ret_protocol)
{
	uint64_t deadline_ns = deadline_after(timeout_ms);
	ps_autofd int fd = -1;
	struct head head;
	int rc = receive_all(sock, &head, sizeof(head), deadline_ns, &fd);

	if (rc < 0)
		return rc;
	if (memcmp(head.magic, magic, sizeof(magic)) != 0)
		return -EPROTO;
	if (ret_protocol)
		*ret_protocol = head.protocol;
	if (head.protocol != PS_CONTROL_PROTOCOL)
		return -EPROTONOSUPPORT;
	if (head.nbytes > PS_CONTROL_MAX_NBYTES)
		return -EPROTO;
	char *body = malloc(head.nbytes + (size_t)1);
	if (!body)
		return -ENOMEM;
	rc = receive_all(sock, body, head.nbytes, deadline_ns, &fd);
	if (rc == 0)
		rc = ps_control_decode(body, head.nbytes, ret);
	explicit_bzero(body, head.nbytes);
	free(body);
	if (rc == 0 && ret_fd)
		*ret_fd = ps_steal_fd(&fd);
	return rc;
}

/* The socket --------------------------------------------------------------------------------------------- */

static const char name[] = "control";
#define BACKLOG 128

/* The socket's address, as a path below /proc/self/fd of the open folder: the folder's own path may be too
 * long for sun_path. */
static int address(const char *cache_dir, int *ret_dir_fd, struct sockaddr_un *ret, struct ps_error *err)
{
	ps_autofree char *path = NULL;
	int fd;
	int rc = ps_store_dir_find(cache_dir, false, &fd, &path, err);

	if (rc < 0)
		return rc;
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", fd, name);
	*ret_dir_fd = fd;
	return 0;
}

int ps_control_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int ps_control_listen(const char *cache_dir, int fd, struct ps_error *err)
{
	ps_autofd int dir = -1;
	struct sockaddr_un addr;
	int rc = address(cache_dir, &dir, &addr, err);

	if (rc < 0)
		return rc;
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return ps_error_set(err, errno, "cache %s: %s: %s", cache_dir, name, strerror(errno));
	mode_t old = umask(0177);
	rc = bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, BACKLOG) < 0 ? -errno : 0;
	umask(old);
	return rc < 0 ? ps_error_set(err, -rc, "cache %s: %s: %s", cache_dir, name, strerror(-rc)) : 0;
}

void ps_control_remove(const char *cache_dir)
{
	ps_autofd int dir = -1;
	struct sockaddr_un addr;

	if (address(cache_dir, &dir, &addr, NULL) == 0)
		unlinkat(dir, name, 0);
}

bool ps_control_trusts(int sock, struct ucred *ret_peer)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return false;
	if (ret_peer)
		*ret_peer = peer;
	return peer.uid == 0 || peer.uid == geteuid();
}

int ps_control_connect(const char *cache_dir, int *ret_fd, pid_t *ret_pid, struct ps_error *err)
{
	ps_autofd int dir = -1;
	struct sockaddr_un addr;
	struct ucred peer;
	int rc = address(cache_dir, &dir, &addr, err);

	if (rc == -ENOENT || rc == -ENOTDIR) {
		*err = (struct ps_error){0};
		return -ENOENT; /* the attempt to make the cache folder will report why */
	}
	if (rc == -EACCES)
		return ps_error_set(err, EACCES,
		        "the cache %s belongs to another user; choose another --cache-dir, or ask root to "
		        "mount",
		        cache_dir);
	if (rc < 0)
		return rc;
	ps_autofd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return ps_error_set(err, errno, "socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return -ENOENT;
		if (errno == EACCES)
			return ps_error_set(err, EACCES,
			        "the cache %s is served for another user; choose another --cache-dir, or ask "
			        "root to "
			        "mount",
			        cache_dir);
		return ps_error_set(err, errno, "cache %s: %s: %s", cache_dir, name, strerror(errno));
	}
	if (!ps_control_trusts(fd, &peer))
		return ps_error_set(err, EACCES,
		        "the cache %s is served by a process of another user (uid %u); choose another "
		        "--cache-dir",
		        cache_dir, (unsigned)peer.uid);
	*ret_fd = ps_steal_fd(&fd);
	*ret_pid = peer.pid;
	return 0;
}
