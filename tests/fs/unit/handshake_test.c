/* The INIT exchange with kernels that offer more and less, through a mock of libfuse. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "fuse/handshake.h"

#if PS_FUSE_KNOWS_PASSTHROUGH

int main(void)
{
	puts("1..0 # SKIP this libfuse negotiates passthrough itself");
	return 0;
}

#else

#define OP_LOOKUP 1
#define OP_INIT 26
#define PARALLEL_DIROPS (UINT32_C(1) << 18)
#define INIT_EXT (UINT32_C(1) << 30)
#define ALLOW_MMAP (UINT32_C(1) << 4)
#define PASSTHROUGH (UINT32_C(1) << 5)
#define HAS_RESEND (UINT32_C(1) << 7)

static const struct fuse_custom_io *io;
static int fds[2]; /* ours, the kernel's */

int fuse_session_fd(struct fuse_session *session)
{
	(void)session;
	return fds[0];
}

int fuse_session_custom_io(struct fuse_session *session, const struct fuse_custom_io *given, int fd)
{
	(void)session;
	assert_int_equal(fd, fds[0]);
	io = given;
	return 0;
}

/* libfuse answers the INIT that it is given. */
static struct ps_handshake *replaying;
static bool answers;

void fuse_session_process_buf(struct fuse_session *session, const struct fuse_buf *buf)
{
	uint32_t header[4] = {80}, out[16] = {7, 38, 131072, INIT_EXT | 1};
	struct iovec iov[2] = {{header, sizeof(header)}, {out, sizeof(out)}};

	(void)session;
	memcpy(&header[2], (const char *)buf->mem + 8, 8);
	if (answers)
		assert_int_equal(io->writev(fds[0], iov, 2, replaying), 80);
}

static int setup(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds);
}

static int teardown(void **state)
{
	(void)state;
	close(fds[0]);
	close(fds[1]);
	return 0;
}

/* A request of `nwords` words after the header: major, minor, max_readahead, flags, flags2. */
static void kernel_sends(uint32_t opcode, uint64_t unique, uint32_t flags, uint32_t flags2, size_t nwords)
{
	uint32_t request[10 + 16] = {0};

	request[0] = (uint32_t)(10 + nwords) * 4;
	request[1] = opcode;
	memcpy(&request[2], &unique, sizeof(unique));
	request[10] = 7;
	request[11] = 45;
	request[13] = flags;
	request[14] = flags2;
	assert_int_equal(send(fds[1], request, (10 + nwords) * 4, 0), (10 + nwords) * 4);
}

/* Reads the request and answers it as libfuse would. ret[] gets the words that the kernel receives. */
static void exchange(struct ps_handshake *hs, uint64_t unique, int error, uint32_t ret[20])
{
	char buf[256];
	uint32_t header[4] = {error ? 16 : 80, (uint32_t)error}, out[16] = {7, 38, 131072, INIT_EXT | 1};
	struct iovec iov[2] = {{header, sizeof(header)}, {out, sizeof(out)}};

	memcpy(&header[2], &unique, sizeof(unique));
	assert_true(io->read(fds[0], buf, sizeof(buf), hs) > 0);
	assert_true(io->writev(fds[0], iov, error ? 1 : 2, hs) > 0);
	memset(ret, 0, 20 * sizeof(*ret));
	assert_true(recv(fds[1], ret, 20 * sizeof(*ret), 0) > 0);
	/* libfuse's own memory is not written to. */
	assert_int_equal(out[3], INIT_EXT | 1);
	assert_int_equal(out[8], 0);
}

/* Words of the answer: header 4, then major, minor, readahead, flags, background, max_write, time_gran,
 * pages, flags2, max_stack_depth. */
enum { OUT_FLAGS = 4 + 3, OUT_FLAGS2 = 4 + 8, OUT_STACK = 4 + 9 };

static void features_that_are_offered_and_wanted_are_agreed_to(void **state)
{
	static const struct {
		bool want;
		unsigned stacked;
		uint32_t flags, flags2;
		bool passthrough, direct_mmap;
	} rows[] = {
	        {true, 0, INIT_EXT, ALLOW_MMAP | PASSTHROUGH, true, true},
	        {true, 1, INIT_EXT, ALLOW_MMAP | PASSTHROUGH, true, true},
	        {false, 0, INIT_EXT, ALLOW_MMAP | PASSTHROUGH, false, true},
	        {true, 0, INIT_EXT, ALLOW_MMAP, false, true}, /* Linux 6.6 */
	        {true, 0, INIT_EXT, 0, false, false},         /* 6.1 */
	        {true, 0, INIT_EXT | PARALLEL_DIROPS, 0, false, false},
	        {true, 0, 0, ALLOW_MMAP | PASSTHROUGH, false, false}, /* flags2 does not count */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ps_handshake hs = {.want_passthrough = rows[i].want, .stacked = rows[i].stacked};
		uint32_t out[20];

		assert_int_equal(ps_handshake_install(&hs, NULL), 0);
		kernel_sends(OP_INIT, 2, rows[i].flags, rows[i].flags2, 16);
		exchange(&hs, 2, 0, out);
		assert_int_equal(atomic_load(&hs.passthrough), rows[i].passthrough);
		assert_int_equal(atomic_load(&hs.direct_mmap), rows[i].direct_mmap);
		assert_int_equal(!!(out[OUT_FLAGS2] & PASSTHROUGH), rows[i].passthrough);
		assert_int_equal(!!(out[OUT_FLAGS2] & ALLOW_MMAP), rows[i].direct_mmap);
		assert_int_equal(out[OUT_STACK], rows[i].passthrough ? rows[i].stacked + 1 : 0);
		assert_true(out[OUT_FLAGS] & 1);
		assert_int_equal(out[OUT_FLAGS] & PARALLEL_DIROPS, rows[i].flags & PARALLEL_DIROPS);
	}
}

static void an_old_kernels_short_init_is_left_alone(void **state)
{
	struct ps_handshake hs = {.want_passthrough = true};
	uint32_t out[20];

	(void)state;
	assert_int_equal(ps_handshake_install(&hs, NULL), 0);
	kernel_sends(OP_INIT, 2, INIT_EXT, 0, 4);
	exchange(&hs, 2, 0, out);
	assert_false(atomic_load(&hs.passthrough) || atomic_load(&hs.direct_mmap));
	assert_int_equal(out[OUT_FLAGS2], 0);
}

static void a_refused_init_agrees_to_nothing(void **state)
{
	struct ps_handshake hs = {.want_passthrough = true};
	uint32_t out[20];

	(void)state;
	assert_int_equal(ps_handshake_install(&hs, NULL), 0);
	kernel_sends(OP_INIT, 2, INIT_EXT, ALLOW_MMAP | PASSTHROUGH, 16);
	exchange(&hs, 2, -71, out);
	assert_false(atomic_load(&hs.passthrough) || atomic_load(&hs.direct_mmap));
}

static void other_answers_pass_as_they_are(void **state)
{
	struct ps_handshake hs = {.want_passthrough = true};
	uint32_t out[20];

	(void)state;
	assert_int_equal(ps_handshake_install(&hs, NULL), 0);
	kernel_sends(OP_INIT, 2, INIT_EXT, ALLOW_MMAP | PASSTHROUGH, 16);
	exchange(&hs, 2, 0, out);
	/* This answer is as long as one to INIT, and even has the same number. */
	kernel_sends(OP_LOOKUP, 2, INIT_EXT, ALLOW_MMAP | PASSTHROUGH, 16);
	exchange(&hs, 2, 0, out);
	assert_int_equal(out[OUT_FLAGS2], 0);
	assert_true(atomic_load(&hs.passthrough));
}

/* The next daemon's session agrees on the same, and the kernel is sent nothing. */
static void the_kept_exchange_is_repeated_without_the_kernel(void **state)
{
	struct ps_state_head kept = {0};
	struct ps_handshake first = {.want_passthrough = true, .kept = &kept};
	struct ps_handshake next = {.want_passthrough = true, .kept = &kept};
	uint32_t out[20];
	char byte;

	(void)state;
	assert_int_equal(ps_handshake_install(&first, NULL), 0);
	kernel_sends(OP_INIT, 2, INIT_EXT | PARALLEL_DIROPS, ALLOW_MMAP | PASSTHROUGH | HAS_RESEND, 16);
	exchange(&first, 2, 0, out);
	assert_int_equal(kept.init_nbytes, 104);

	assert_int_equal(ps_handshake_install(&next, NULL), 0);
	replaying = &next;
	answers = false; /* libfuse refuses it */
	assert_int_equal(ps_handshake_replay(&next, NULL), -EPROTO);
	answers = true;
	assert_int_equal(ps_handshake_replay(&next, NULL), 0);
	assert_true(atomic_load(&next.passthrough) && atomic_load(&next.direct_mmap));
	assert_true(atomic_load(&next.parallel_dirops) && atomic_load(&next.resends));
	assert_int_equal(recv(fds[1], &byte, 1, MSG_DONTWAIT), -1);
	kept.init_nbytes = 40;
	assert_int_equal(ps_handshake_replay(&next, NULL), -EPROTO);
}

static void a_request_is_known_by_its_number_when_it_comes_again(void **state)
{
	struct ps_handshake hs = {0};
	uint32_t out[20];
	bool again;

	(void)state;
	assert_int_equal(ps_handshake_install(&hs, NULL), 0);
	kernel_sends(OP_LOOKUP, 6, 0, 0, 0);
	exchange(&hs, 6, -2, out);
	assert_int_equal(ps_handshake_request(&again), 6);
	assert_false(again);
	kernel_sends(OP_LOOKUP, 6 | UINT64_C(1) << 63, 0, 0, 0);
	exchange(&hs, 6 | UINT64_C(1) << 63, -2, out);
	assert_int_equal(ps_handshake_request(&again), 6);
	assert_true(again);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(features_that_are_offered_and_wanted_are_agreed_to),
	        TEST(an_old_kernels_short_init_is_left_alone),
	        TEST(a_refused_init_agrees_to_nothing),
	        TEST(other_answers_pass_as_they_are),
	        TEST(the_kept_exchange_is_repeated_without_the_kernel),
	        TEST(a_request_is_known_by_its_number_when_it_comes_again),
	};

	return cmocka_run_group_tests_name("handshake", tests, NULL, NULL);
}

#endif
