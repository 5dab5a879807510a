#include "passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

/* The kernel's ABI, as far as it is needed. The headers of Debian 12 are older than passthrough.
 * ------------------- */

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

struct kernel_init_out {
	uint32_t major, minor, max_readahead, flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write, time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2, max_stack_depth;
	uint16_t request_timeout, unused[11];
};
_Static_assert(sizeof(struct kernel_init_out) == 64, "struct fuse_init_out of protocol 7.23 and later");

struct kernel_open_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};

struct kernel_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define KERNEL_OP_INIT 26
#define KERNEL_INIT_EXT (UINT32_C(1) << 30)
#define KERNEL_PASSTHROUGH2 (UINT32_C(1) << (37 - 32)) /* FUSE_PASSTHROUGH, in flags2 */
#define KERNEL_FOPEN_PASSTHROUGH (UINT32_C(1) << 7)
#define KERNEL_BACKING_OPEN _IOW(229, 1, struct kernel_backing_map)
#define KERNEL_BACKING_CLOSE _IOW(229, 2, uint32_t)

#define OVERLAYFS_MAGIC 0x794c7630

/* The INIT exchange
 * ------------------------------------------------------------------------------------------------ */

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
	struct ps_passthrough *pt = ps_passthrough_of(userdata);
	ssize_t n = read(fd, buf, len);
	const struct kernel_in_header *header = buf;

	if (n < (ssize_t)(sizeof *header + sizeof(struct kernel_init_in)) || header->opcode != KERNEL_OP_INIT)
		return n;
	const struct kernel_init_in *init = (const void *)(header + 1);
	atomic_store(&pt->offered, (init->flags & KERNEL_INIT_EXT) && (init->flags2 & KERNEL_PASSTHROUGH2));
	atomic_store(&pt->init_unique, header->unique);
	return n;
}

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct ps_passthrough *pt = ps_passthrough_of(userdata);
	const struct kernel_out_header *header = iov[0].iov_base;
	struct kernel_init_out init;

	if (!atomic_load_explicit(&pt->init_unique, memory_order_relaxed) ||
	        header->unique != atomic_load(&pt->init_unique))
		return writev(fd, iov, count);
	atomic_store(&pt->init_unique, 0);
	if (!pt->wanted || !atomic_load(&pt->offered) || header->error || count != 2 ||
	        iov[1].iov_len != sizeof init)
		return writev(fd, iov, count);
	memcpy(&init, iov[1].iov_base, sizeof init);
	init.flags |= KERNEL_INIT_EXT;
	init.flags2 |= KERNEL_PASSTHROUGH2;
	init.max_stack_depth = pt->stack_depth;
	struct iovec patched[2] = {iov[0], {&init, sizeof init}};
	return writev(fd, patched, 2);
}

static ssize_t io_splice_send(
        int fd_in, off_t *off_in, int fd_out, off_t *off_out, size_t len, unsigned flags, void *userdata)
{
	(void)userdata;
	return splice(fd_in, off_in, fd_out, off_out, len, flags);
}

int ps_passthrough_install(
        struct ps_passthrough *pt, struct fuse_session *session, const char *cache_dir, bool wanted)
{
	static const struct fuse_custom_io io = {
	        .read = io_read, .writev = io_writev, .splice_send = io_splice_send};
	struct statfs st;

	pt->wanted = wanted;
	pt->cache_dir = cache_dir;
	pt->dev_fd = fuse_session_fd(session);
	/* A deeper announcement than needed would forbid others to stack on this mount. */
	pt->stack_depth = statfs(cache_dir, &st) == 0 && (uint32_t)st.f_type == OVERLAYFS_MAGIC ? 2 : 1;
	atomic_store(&pt->reason, wanted ? "the mount has not begun" : "turned off (passthrough=no)");
	if (!wanted)
		return 0;
	int rc = fuse_session_custom_io(session, &io, pt->dev_fd);
	if (rc < 0)
		atomic_store(&pt->reason, "this libfuse does not let us see the INIT exchange");
	return rc < 0 ? -ENOTSUP : 0;
}

/* Backing files
 * ---------------------------------------------------------------------------------------------------- */

static void turn_off(struct ps_passthrough *pt, const char *reason)
{
	atomic_store(&pt->reason, reason);
	atomic_store(&pt->active, false);
	ps_log_info("passthrough is off: %s", reason);
}

static const char *refusal(int errnum)
{
	switch (errnum) {
	case EPERM:
		return "it needs CAP_SYS_ADMIN in the initial user namespace (run as root, outside of a "
		       "container)";
	case ELOOP:
		return "the cache directory is on a stacked file system; put it on ext4 or xfs";
	case ENOTTY:
	case EINVAL:
	case ENOSYS:
		return "the kernel does not know it (Linux 6.9 or later, CONFIG_FUSE_PASSTHROUGH)";
	case EOPNOTSUPP:
		return "the cache directory's file system cannot be passed through; put it on ext4 or xfs";
	default:
		return NULL;
	}
}

void ps_passthrough_probe(struct ps_passthrough *pt)
{
	char path[4096];

	if (!pt->wanted)
		return;
	if (!atomic_load(&pt->offered)) {
		turn_off(pt, "the kernel does not offer it (Linux 6.9 or later, CONFIG_FUSE_PASSTHROUGH)");
		return;
	}
	snprintf(path, sizeof path, "%s/penstock-cache", pt->cache_dir);
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		turn_off(pt, "the cache directory's marker cannot be opened");
		return;
	}
	atomic_store(&pt->active, true);
	int id = ps_passthrough_backing_open(pt, fd);
	if (id > 0)
		ps_passthrough_backing_close(pt, id);
	else if (atomic_load(&pt->active))
		turn_off(pt, "the kernel refuses a backing file");
}

bool ps_passthrough_active(const struct ps_passthrough *pt)
{
	return atomic_load(&pt->active);
}

const char *ps_passthrough_reason(const struct ps_passthrough *pt)
{
	return atomic_load(&pt->active) ? "" : atomic_load(&pt->reason);
}

int ps_passthrough_backing_open(struct ps_passthrough *pt, int fd)
{
	struct kernel_backing_map map = {.fd = fd};
	int id = ioctl(pt->dev_fd, KERNEL_BACKING_OPEN, &map);

	if (id > 0)
		return id;
	int errnum = id < 0 ? errno : EINVAL;
	const char *reason = refusal(errnum);
	if (reason)
		turn_off(pt, reason);
	else
		ps_log_warning("passthrough: backing file: %s", strerror(errnum));
	return -errnum;
}

void ps_passthrough_backing_close(struct ps_passthrough *pt, int backing_id)
{
	uint32_t id = (uint32_t)backing_id;

	if (ioctl(pt->dev_fd, KERNEL_BACKING_CLOSE, &id) < 0)
		ps_log_debug("passthrough: closing a backing file: %s", strerror(errno));
}

int ps_passthrough_reply_open(fuse_req_t req, uint64_t fh, int backing_id)
{
	struct kernel_open_out out = {
	        .fh = fh, .open_flags = KERNEL_FOPEN_PASSTHROUGH, .backing_id = backing_id};

	return fuse_reply_buf(req, (const char *)&out, sizeof out);
}
