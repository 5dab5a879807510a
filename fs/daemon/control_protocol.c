#include "daemon/control_protocol.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/strbuf.h"

static const char magic[8] = "penstock";

struct head {
	char magic[8];
	uint32_t protocol, nbytes;
};
_Static_assert(sizeof(struct head) == 16, "the part that never changes");

union control {
	char buf[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

const char *ps_wire_get(const struct ps_given *message, const char *name)
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

int ps_wire_send(int sock, const struct ps_given *message, int fd)
{
	uint64_t deadline_ns = deadline_after(PS_WIRE_SEND_MS);
	struct head head = {.protocol = PS_WIRE_PROTOCOL};
	struct ps_strbuf b = {0};
	union control control = {0};
	int rc = 0;

	memcpy(head.magic, magic, sizeof magic);
	ps_strbuf_addn(&b, &head, sizeof head);
	for (size_t i = 0; i < message->n; i++) {
		const char *value = message->v[i].value ? message->v[i].value : "";

		ps_strbuf_addn(&b, message->v[i].name, strlen(message->v[i].name) + 1);
		ps_strbuf_addn(&b, value, strlen(value) + 1);
	}
	if (b.failed || b.len - sizeof head > PS_WIRE_MAX_NBYTES || message->n > PS_WIRE_MAX_PAIRS)
		rc = b.failed ? -ENOMEM : -EPROTO;
	for (size_t sent = 0; rc == 0 && sent < b.len;) {
		head.nbytes = (uint32_t)(b.len - sizeof head);
		memcpy(b.s, &head, sizeof head);
		struct iovec iov = {b.s + sent, b.len - sent};
		struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

		if (fd >= 0 && sent == 0) {
			msg.msg_control = control.buf;
			msg.msg_controllen = sizeof control.buf;
			struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
			*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
			        .cmsg_type = SCM_RIGHTS,
			        .cmsg_len = CMSG_LEN(sizeof fd)};
			memcpy(CMSG_DATA(c), &fd, sizeof fd);
		}
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

/* Descriptors that nobody asked for are closed. */
static void take_fds(struct msghdr *msg, int *fd)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
			int got;

			memcpy(&got, CMSG_DATA(c) + i * sizeof got, sizeof got);
			if (*fd >= 0)
				close(got);
			else
				*fd = got;
		}
	}
}

static int receive_all(int sock, void *to, size_t nbytes, uint64_t deadline_ns, int *fd)
{
	for (size_t got = 0; got < nbytes;) {
		union control control;
		struct iovec iov = {(char *)to + got, nbytes - got};
		struct msghdr msg = {.msg_iov = &iov,
		        .msg_iovlen = 1,
		        .msg_control = control.buf,
		        .msg_controllen = sizeof control.buf};
		int rc = await(sock, POLLIN, deadline_ns);

		if (rc < 0)
			return rc;
		ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return -EPIPE;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0) {
			take_fds(&msg, fd);
			got += (size_t)n;
		}
	}
	return 0;
}

int ps_wire_decode(const char *bytes, size_t nbytes, struct ps_given *ret)
{
	struct ps_given message = {0};
	int rc = nbytes && bytes[nbytes - 1] ? -EPROTO : 0;

	for (size_t pos = 0; rc == 0 && pos < nbytes;) {
		const char *name = bytes + pos;
		size_t value = pos + strlen(name) + 1;

		if (value >= nbytes || message.n == PS_WIRE_MAX_PAIRS)
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

int ps_wire_receive(int sock, int timeout_ms, struct ps_given *ret, int *ret_fd, uint32_t *ret_protocol)
{
	uint64_t deadline_ns = deadline_after(timeout_ms);
	ps_autofd int fd = -1;
	struct head head;
	int rc = receive_all(sock, &head, sizeof head, deadline_ns, &fd);

	if (rc < 0)
		return rc;
	if (memcmp(head.magic, magic, sizeof magic) != 0)
		return -EPROTO;
	if (ret_protocol)
		*ret_protocol = head.protocol;
	if (head.protocol != PS_WIRE_PROTOCOL)
		return -EPROTONOSUPPORT;
	if (head.nbytes > PS_WIRE_MAX_NBYTES)
		return -EPROTO;
	char *body = malloc(head.nbytes + (size_t)1);
	if (!body)
		return -ENOMEM;
	rc = receive_all(sock, body, head.nbytes, deadline_ns, &fd);
	if (rc == 0)
		rc = ps_wire_decode(body, head.nbytes, ret);
	explicit_bzero(body, head.nbytes);
	free(body);
	if (rc == 0 && ret_fd)
		*ret_fd = ps_steal_fd(&fd);
	return rc;
}
