/* The messages between the keeper and its daemon. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/strbuf.h"
#include "daemon/daemon_private.h"

int ps_keeper_send(int sock, const struct ps_keeper_message *message, int fd, bool dontwait)
{
	union ps_fds room;
	struct iovec iov = {
	        (void *)(uintptr_t)message, offsetof(struct ps_keeper_message, text) +
	                                            strnlen(message->text, sizeof(message->text) - 1) + 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fd >= 0)
		ps_fds_put(&msg, &room, &fd, 1);
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | (dontwait ? MSG_DONTWAIT : 0));
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	return errno == EAGAIN ? -EAGAIN : errno == ECONNRESET ? -EPIPE : -errno;
}

int ps_keeper_receive(int sock, int timeout_ms, struct ps_keeper_message *ret, int *ret_fd)
{
	union ps_fds room;
	struct iovec iov = {ret, sizeof(*ret) - 1};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = room.buf,
	        .msg_controllen = sizeof(room.buf)};
	struct pollfd p = {.fd = sock, .events = POLLIN};
	ssize_t n;
	int ready;

	do
		ready = poll(&p, 1, timeout_ms);
	while (ready < 0 && errno == EINTR);
	if (ready <= 0)
		return ready < 0 ? -errno : -ETIMEDOUT;
	memset(ret, 0, sizeof(*ret));
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n == 0 || errno == ECONNRESET ? -EPIPE : -errno;
	*ret_fd = -1;
	(void)ps_fds_take(&msg, ret_fd, 1);
	if (n >= (ssize_t)offsetof(struct ps_keeper_message, text))
		return 0;
	if (*ret_fd >= 0)
		close(ps_steal_fd(ret_fd));
	return -EPROTO;
}

void ps_oom_score_write(const char *score)
{
	ps_autofd int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, score, strlen(score)) < 0)
		return; /* not allowed: the kernel's default holds */
}

int ps_keeper_memfd(const struct ps_given *message)
{
	ps_autofd int fd = ps_secret_memfd("penstock-kept");
	struct ps_strbuf b = {0};
	int rc = ps_control_encode(message, &b);

	if (fd < 0)
		rc = fd;
	if (rc == 0 && write(fd, b.s ? b.s : "", b.len) != (ssize_t)b.len)
		rc = -ENOSPC;
	if (b.s)
		explicit_bzero(b.s, b.len);
	ps_strbuf_fini(&b);
	return rc < 0 ? rc : ps_steal_fd(&fd);
}
