/* The messages between the keeper and its daemon. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/strbuf.h"
#include "daemon/daemon_private.h"

union control {
	char buf[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

int ps_keeper_send(int sock, const struct ps_keeper_message *message, int fd, bool dontwait)
{
	union control control = {0};
	struct iovec iov = {
	        (void *)(uintptr_t)message, offsetof(struct ps_keeper_message, text) +
	                                            strnlen(message->text, sizeof(message->text) - 1) + 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fd >= 0) {
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		*c = (struct cmsghdr){
		        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd))};
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | (dontwait ? MSG_DONTWAIT : 0));
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	return errno == EAGAIN ? -EAGAIN : errno == ECONNRESET ? -EPIPE : -errno;
}

/* The first descriptor of a message, or -1. There may be a second one: the control buffer has room for it, so
 * the kernel has opened it. */
static int take_fd(struct msghdr *msg)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	int fds[2];

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return -1;
	size_t n = PS_MIN((c->cmsg_len - CMSG_LEN(0)) / sizeof(int), PS_ARRAY_LEN(fds));
	memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	for (size_t i = 1; i < n; i++)
		close(fds[i]);
	return n > 0 ? fds[0] : -1;
}

int ps_keeper_receive(int sock, int timeout_ms, struct ps_keeper_message *ret, int *ret_fd)
{
	union control control;
	struct iovec iov = {ret, sizeof(*ret) - 1};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = control.buf,
	        .msg_controllen = sizeof(control.buf)};
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
	*ret_fd = take_fd(&msg);
	if (n >= (ssize_t)offsetof(struct ps_keeper_message, text))
		return 0;
	if (*ret_fd >= 0)
		close(ps_steal_fd(ret_fd));
	return -EPROTO;
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
