/* Messages of the control socket arrive whole, also if the socket transfers a few bytes at a time; bytes that
 * are not a message are an error; no descriptor stays open. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/faults.h"
#include "daemon/daemon_private.h"

static int pair[2];
static unsigned open_before;

static unsigned nopen(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int set_up(void **state)
{
	(void)state;
	open_before = nopen();
	return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static int tear_down(void **state)
{
	(void)state;
	faults_end();
	close(pair[0]);
	close(pair[1]);
	return nopen() == open_before ? 0 : -1;
}

static void message_make(struct ps_given *ret, size_t n)
{
	char value[32];

	*ret = (struct ps_given){0};
	assert_int_equal(ps_given_add(ret, "do", "mount", NULL), 0);
	assert_int_equal(ps_given_add(ret, "empty", "", NULL), 0);
	for (size_t i = 2; i < n; i++) {
		snprintf(value, sizeof(value), "value %zu \xff=", i);
		assert_int_equal(ps_given_add(ret, "name", value, NULL), 0);
	}
}

static void same(const struct ps_given *a, const struct ps_given *b)
{
	assert_int_equal(a->n, b->n);
	for (size_t i = 0; i < a->n; i++) {
		assert_string_equal(a->v[i].name, b->v[i].name);
		assert_string_equal(a->v[i].value, b->v[i].value);
	}
}

static void comes_over(bool asks_fd)
{
	struct ps_given message, got = {0};
	int fd = -1;

	message_make(&message, 300);
	assert_int_equal(ps_control_send(pair[0], &message, STDOUT_FILENO), 0);
	assert_int_equal(ps_control_receive(pair[1], 1000, &got, asks_fd ? &fd : NULL, NULL), 0);
	same(&message, &got);
	assert_string_equal(ps_control_get(&got, "do"), "mount");
	assert_string_equal(ps_control_get(&got, "empty"), "");
	assert_null(ps_control_get(&got, "nam"));
	assert_int_equal(fd >= 0, asks_fd);
	if (fd >= 0)
		close(fd);
	ps_given_fini(&message);
	ps_given_fini(&got);
}

static void a_message_arrives_as_it_was_sent_also_in_pieces(void **state)
{
	(void)state;
	for (int trickles = 0; trickles < 2; trickles++) {
		faults_trickle(trickles);
		comes_over(true);
		comes_over(false); /* a descriptor that was not asked for is closed */
	}
}

/* Sends one byte together with a descriptor. */
static void send_with_fd(const char *byte)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec part = {(void *)(uintptr_t)byte, 1};
	struct msghdr msg = {.msg_iov = &part,
	        .msg_iovlen = 1,
	        .msg_control = control.buf,
	        .msg_controllen = sizeof(control.buf)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	*c = (struct cmsghdr){
	        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(c), &(int){STDOUT_FILENO}, sizeof(int));
	assert_int_equal(sendmsg(pair[0], &msg, 0), 1);
}

static void one_of_many_descriptors_is_received_and_only_one_is_sent(void **state)
{
	struct ps_given message = {0}, got = {0};
	char bytes[64];
	int fd = -1;

	(void)state;
	assert_int_equal(ps_given_add(&message, "n", "v", NULL), 0);
	assert_int_equal(ps_control_send(pair[0], &message, -1), 0);
	ssize_t n = read(pair[1], bytes, sizeof(bytes));
	assert_int_equal(n, 16 + 4);
	for (ssize_t i = 0; i < n; i++)
		send_with_fd(bytes + i);
	assert_int_equal(ps_control_receive(pair[1], 1000, &got, &fd, NULL), 0);
	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(nopen(), open_before + 2);
	ps_given_fini(&got);

	faults_trickle(true);
	assert_int_equal(ps_control_send(pair[0], &message, STDOUT_FILENO), 0);
	faults_end();
	unsigned nfds = 0;
	for (ssize_t all = 0; all < n;) {
		char control[256];
		struct iovec part = {bytes, 1};
		struct msghdr msg = {.msg_iov = &part,
		        .msg_iovlen = 1,
		        .msg_control = control,
		        .msg_controllen = sizeof(control)};

		assert_int_equal(recvmsg(pair[1], &msg, 0), 1);
		all++;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
			close(fd);
			nfds++;
		}
	}
	assert_int_equal(nfds, 1);
	ps_given_fini(&message);
}

static void an_allocation_that_fails_is_enomem_and_leaves_no_descriptor(void **state)
{
	bool hit = true;

	(void)state;
	for (long n = 1; hit; n++) {
		struct ps_given message, got = {0};
		int fd = -1;

		message_make(&message, 20);
		faults_fail(FAULTS_ALLOCATION, n, ENOMEM);
		int rc = ps_control_send(pair[0], &message, STDOUT_FILENO);
		if (rc == 0)
			rc = ps_control_receive(pair[1], 1000, &got, &fd, NULL);
		hit = faults_hit(FAULTS_ALLOCATION);
		faults_end();
		assert_int_equal(rc, hit ? -ENOMEM : 0);
		assert_int_equal(fd >= 0, !hit);
		if (fd >= 0)
			close(fd);
		ps_given_fini(&message);
		ps_given_fini(&got);
		/* The socket may hold the rest of the message. */
		close(pair[0]);
		close(pair[1]);
		assert_int_equal(nopen(), open_before);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	}
}

static int receive_bytes(const void *bytes, size_t n, bool hang_up, uint32_t *ret_protocol)
{
	struct ps_given got = {0};

	assert_int_equal(write(pair[0], bytes, n), n);
	if (hang_up)
		shutdown(pair[0], SHUT_WR);
	int rc = ps_control_receive(pair[1], 50, &got, NULL, ret_protocol);
	if (rc == 0)
		ps_given_fini(&got);
	close(pair[0]);
	close(pair[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	return rc;
}

struct bytes {
	char magic[8];
	uint32_t protocol, nbytes;
	char body[32];
};

static void malformed_messages_are_refused(void **state)
{
	struct bytes m = {
	        .magic = "penstoc", .protocol = PS_CONTROL_PROTOCOL, .nbytes = 8, .body = "a\0b\0c\0d"};
	const struct bytes sound = {
	        {'p', 'e', 'n', 's', 't', 'o', 'c', 'k'}, PS_CONTROL_PROTOCOL, 8, "a\0b\0c\0d"};
	uint32_t protocol = 0;

	(void)state;
	assert_int_equal(receive_bytes(&sound, 16 + 8, false, &protocol), 0);
	assert_int_equal(protocol, PS_CONTROL_PROTOCOL);
	assert_int_equal(receive_bytes(&m, 16 + 8, false, NULL), -EPROTO); /* a wrong magic */
	m = sound;
	m.protocol = 77;
	assert_int_equal(receive_bytes(&m, 16, false, &protocol), -EPROTONOSUPPORT);
	assert_int_equal(protocol, 77);
	m = sound;
	m.nbytes = 7; /* the last value has no end */
	assert_int_equal(receive_bytes(&m, 16 + 7, false, NULL), -EPROTO);
	m.nbytes = 6; /* a name without a value */
	assert_int_equal(receive_bytes(&m, 16 + 6, false, NULL), -EPROTO);
	m.nbytes = 0;
	assert_int_equal(receive_bytes(&m, 16, false, NULL), 0);
	m.nbytes = PS_CONTROL_MAX_NBYTES + 1;
	assert_int_equal(receive_bytes(&m, 16, true, NULL), -EPROTO);
	m.nbytes = UINT32_MAX;
	assert_int_equal(receive_bytes(&m, 16, true, NULL), -EPROTO);
	m.nbytes = PS_CONTROL_MAX_NBYTES;
	assert_int_equal(receive_bytes(&m, 16, true, NULL), -EPIPE);
	/* The message is cut at each byte: the other end hangs up, or is late. */
	for (size_t n = 0; n < 16 + 8; n++) {
		assert_int_equal(receive_bytes(&sound, n, true, NULL), -EPIPE);
		if (n % 8 == 3)
			assert_int_equal(receive_bytes(&sound, n, false, NULL), -ETIMEDOUT);
	}
}

static void a_message_that_is_too_long_is_not_sent(void **state)
{
	struct ps_given message = {0};
	char *value = malloc(PS_CONTROL_MAX_NBYTES + 1);

	(void)state;
	memset(value, 'x', PS_CONTROL_MAX_NBYTES);
	value[PS_CONTROL_MAX_NBYTES] = '\0';
	assert_int_equal(ps_given_add(&message, "n", value, NULL), 0);
	assert_int_equal(ps_control_send(pair[0], &message, -1), -EPROTO);
	ps_given_fini(&message);
	free(value);
	message = (struct ps_given){0};
	close(pair[1]);
	assert_int_equal(ps_given_add(&message, "n", "", NULL), 0);
	assert_int_equal(ps_control_send(pair[0], &message, -1), -EPIPE);
	ps_given_fini(&message);
	pair[1] = dup(pair[0]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(a_message_arrives_as_it_was_sent_also_in_pieces),
	        TEST(one_of_many_descriptors_is_received_and_only_one_is_sent),
	        TEST(an_allocation_that_fails_is_enomem_and_leaves_no_descriptor),
	        TEST(malformed_messages_are_refused),
	        TEST(a_message_that_is_too_long_is_not_sent),
	};

	return cmocka_run_group_tests_name("control_protocol", tests, NULL, NULL);
}
