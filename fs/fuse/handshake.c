#include "fuse/handshake.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"

/* The parts of the kernel's ABI (linux/fuse.h, protocol 7.40) that are needed here: Debian 12's headers are
 * older. */

struct kernel_in_header {
	uint32_t len, opcode;
	uint64_t unique, nodeid;
	uint32_t uid, gid, pid;
	uint16_t total_extlen, padding;
};

struct kernel_out_header {
	uint32_t len;
	int32_t error;
	uint64_t unique;
};

struct kernel_init_in {
	uint32_t major, minor, max_readahead, flags, flags2, unused[11];
};

#define KERNEL_OP_INIT 26
#define KERNEL_PARALLEL_DIROPS (UINT32_C(1) << 18)
#define KERNEL_INIT_EXT (UINT32_C(1) << 30)
/* Of flags2: */
#define KERNEL_DIRECT_IO_ALLOW_MMAP (UINT32_C(1) << (36 - 32))
#define KERNEL_PASSTHROUGH (UINT32_C(1) << (37 - 32))
#define KERNEL_HAS_RESEND (UINT32_C(1) << (39 - 32))

#define KERNEL_NOTIFY_RESEND 7
#define KERNEL_NOTIFY_INC_EPOCH 8 /* protocol 7.44 */
#define KERNEL_UNIQUE_RESEND (UINT64_C(1) << 63)

static __thread uint64_t last_unique;

uint64_t ps_handshake_request(bool *ret_again)
{
	*ret_again = last_unique & KERNEL_UNIQUE_RESEND;
	return last_unique & ~KERNEL_UNIQUE_RESEND;
}

static void keep(struct ps_handshake *hs, const void *request, size_t nbytes)
{
	struct ps_state_head *kept = hs->kept;

	if (!kept || nbytes > sizeof(kept->init))
		return;
	memcpy(kept->init, request, nbytes);
	kept->init_nbytes = (uint32_t)nbytes;
	atomic_store(&kept->passthrough, atomic_load(&hs->passthrough));
	atomic_store(&kept->direct_mmap, atomic_load(&hs->direct_mmap));
	atomic_store(&kept->parallel_dirops, atomic_load(&hs->parallel_dirops));
	atomic_store(&kept->resends, atomic_load(&hs->resends));
}

static void see_init(struct ps_handshake *hs, const struct kernel_in_header *header, size_t nbytes)
{
	const struct kernel_init_in *init = (const void *)(header + 1);
	uint32_t offer = init->flags & KERNEL_INIT_EXT ? init->flags2 : 0;

	atomic_store(&hs->passthrough, hs->want_passthrough && (offer & KERNEL_PASSTHROUGH));
	atomic_store(&hs->direct_mmap, offer & KERNEL_DIRECT_IO_ALLOW_MMAP);
	atomic_store(&hs->parallel_dirops, init->flags & KERNEL_PARALLEL_DIROPS);
	atomic_store(&hs->resends, offer & KERNEL_HAS_RESEND);
	keep(hs, header, nbytes);
	atomic_store(&hs->init_unique, header->unique);
}

/* For most errors libfuse prints a message while its thread may be cancelled. A thread that is cancelled
 * while it prints keeps the lock of stderr for ever. So only the errors for which libfuse prints nothing are
 * passed on; for the others the message is logged here, and ENODEV ends the loop. */
static ssize_t read_failed(ssize_t n)
{
	int errnum = n < 0 ? errno : EIO, state;

	if (n == 0 || errnum == EINTR || errnum == EAGAIN || errnum == ENOENT || errnum == ENODEV)
		return n;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	ps_log_error("mount: reading from the kernel: %s", strerror(errnum));
	pthread_setcancelstate(state, &state);
	errno = ENODEV;
	return -1;
}

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
	ssize_t n = read(fd, buf, len);
	const struct kernel_in_header *header = buf;

	if (n < (ssize_t)sizeof(*header))
		return read_failed(n);
	last_unique = header->unique;
	if (header->opcode == KERNEL_OP_INIT &&
	        n >= (ssize_t)(sizeof(*header) + sizeof(struct kernel_init_in)))
		see_init(userdata, header, (size_t)n);
	return n;
}

static ssize_t io_splice_send(
        int fd_in, off_t *off_in, int fd_out, off_t *off_out, size_t len, unsigned flags, void *userdata)
{
	(void)userdata;
	return splice(fd_in, off_in, fd_out, off_out, len, flags);
}

static ssize_t swallow(const struct iovec *iov, int count)
{
	ssize_t n = 0;

	for (int i = 0; i < count; i++)
		n += (ssize_t)iov[i].iov_len;
	return n;
}

int ps_handshake_replay(struct ps_handshake *hs, struct fuse_session *session)
{
	const struct ps_state_head *kept = hs->kept;
	struct fuse_buf buf = {.mem = (void *)(uintptr_t)kept->init, .size = kept->init_nbytes};
	const struct kernel_in_header *header = buf.mem;

	if (kept->init_nbytes < sizeof(*header) + sizeof(struct kernel_init_in) ||
	        header->opcode != KERNEL_OP_INIT)
		return -EPROTO;
	atomic_store(&hs->passthrough, atomic_load(&kept->passthrough));
	atomic_store(&hs->direct_mmap, atomic_load(&kept->direct_mmap));
	atomic_store(&hs->parallel_dirops, atomic_load(&kept->parallel_dirops));
	atomic_store(&hs->resends, atomic_load(&kept->resends));
	hs->replays = true;
	atomic_store(&hs->init_unique, header->unique);
	fuse_session_process_buf(session, &buf);
	return atomic_load(&hs->init_unique) ? -EPROTO : 0;
}

static int notify(int fd, int32_t code)
{
	const struct kernel_out_header out = {.len = sizeof(out), .error = code};

	return write(fd, &out, sizeof(out)) == sizeof(out) ? 0 : -errno;
}

void ps_handshake_forget_names(int fd)
{
	(void)notify(fd, KERNEL_NOTIFY_INC_EPOCH);
}

int ps_handshake_resend(int fd)
{
	return notify(fd, KERNEL_NOTIFY_RESEND);
}

#if PS_FUSE_KNOWS_PASSTHROUGH

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct ps_handshake *hs = userdata;
	const struct kernel_out_header *header = iov[0].iov_base;

	if (!atomic_load_explicit(&hs->init_unique, memory_order_relaxed) ||
	        header->unique != atomic_load(&hs->init_unique))
		return writev(fd, iov, count);
	atomic_store(&hs->init_unique, 0);
	return hs->replays ? swallow(iov, count) : writev(fd, iov, count);
}

void ps_handshake_init_op(struct ps_handshake *hs, struct fuse_conn_info *conn)
{
	bool passthrough = hs->want_passthrough && (conn->capable & FUSE_CAP_PASSTHROUGH);
	bool direct_mmap = conn->capable & FUSE_CAP_DIRECT_IO_ALLOW_MMAP;

	conn->want |=
	        (passthrough ? FUSE_CAP_PASSTHROUGH : 0) | (direct_mmap ? FUSE_CAP_DIRECT_IO_ALLOW_MMAP : 0);
	conn->max_backing_stack_depth = hs->stacked;
}

#else

struct kernel_init_out {
	uint32_t major, minor, max_readahead, flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write, time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2, max_stack_depth;
	uint16_t request_timeout, unused[11];
};
_Static_assert(sizeof(struct kernel_init_out) == 64, "struct fuse_init_out of protocol 7.23 and later");

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct ps_handshake *hs = userdata;
	const struct kernel_out_header *header = iov[0].iov_base;
	struct kernel_init_out init;

	if (!atomic_load_explicit(&hs->init_unique, memory_order_relaxed) ||
	        header->unique != atomic_load(&hs->init_unique))
		return writev(fd, iov, count);
	atomic_store(&hs->init_unique, 0);
	if (hs->replays)
		return swallow(iov, count);
	if (header->error || count != 2 || iov[1].iov_len != sizeof(init)) {
		atomic_store(&hs->passthrough, false);
		atomic_store(&hs->direct_mmap, false);
		atomic_store(&hs->resends, false);
		return writev(fd, iov, count);
	}
	memcpy(&init, iov[1].iov_base, sizeof(init));
	/* This libfuse defines the flag but does not send it. Without the flag, a lookup that waits for the
	 * origin blocks all other lookups in its folder. */
	if (atomic_load(&hs->parallel_dirops))
		init.flags |= KERNEL_PARALLEL_DIROPS;
	if (atomic_load(&hs->direct_mmap)) {
		init.flags |= KERNEL_INIT_EXT;
		init.flags2 |= KERNEL_DIRECT_IO_ALLOW_MMAP;
	}
	if (atomic_load(&hs->passthrough)) {
		init.flags |= KERNEL_INIT_EXT;
		init.flags2 |= KERNEL_PASSTHROUGH;
		init.max_stack_depth = hs->stacked + 1; /* the kernel counts this mount as well */
	}
	struct iovec completed[2] = {iov[0], {&init, sizeof(init)}};
	return writev(fd, completed, 2);
}

void ps_handshake_init_op(struct ps_handshake *hs, struct fuse_conn_info *conn)
{
	(void)hs, (void)conn; /* this libfuse rejects flags that it does not know */
}

#endif

int ps_handshake_install(struct ps_handshake *hs, struct fuse_session *session)
{
	static const struct fuse_custom_io io = {
	        .read = io_read, .writev = io_writev, .splice_send = io_splice_send};

	(void)hs;
	return fuse_session_custom_io(session, &io, fuse_session_fd(session)) < 0 ? -ENOTSUP : 0;
}
