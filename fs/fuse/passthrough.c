#include "fuse/passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fuse/fuse.h"

/* The parts of the kernel's ABI (linux/fuse.h, protocol 7.40) that are needed here: Debian 12's headers are
 * older. */

struct kernel_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define KERNEL_BACKING_OPEN _IOW(229, 1, struct kernel_backing_map)
#define KERNEL_BACKING_CLOSE _IOW(229, 2, uint32_t)

#define MARKER "penstock-cache" /* a file that each cache directory has */
#define OVERLAYFS_MAGIC 0x794c7630

int ps_passthrough_install(
        struct ps_passthrough *pt, struct fuse_session *session, const char *cache_dir, bool wanted)
{
	struct statfs st;

	pt->cache_dir = cache_dir;
	pt->dev_fd = fuse_session_fd(session);
	pt->handshake.want_passthrough = wanted;
	/* Announcing more depth than needed would keep other file systems from stacking on this mount. */
	pt->handshake.stacked = statfs(cache_dir, &st) == 0 && (uint32_t)st.f_type == OVERLAYFS_MAGIC;
	atomic_store(&pt->reason, wanted ? "the mount has not begun" : "turned off (--no-passthrough)");
	int rc = ps_handshake_install(&pt->handshake, session);
	if (rc < 0 && wanted)
		atomic_store(&pt->reason, "this libfuse does not let us see the INIT exchange");
	return rc;
}

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
	case EPIPE:
		return "the daemon's helper has ended";
	case EXDEV:
		return "a folder of the cache directory is a mountpoint; mount all of the cache directory "
		       "instead";
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

int ps_backing_open(int dev_fd, int fd)
{
	struct kernel_backing_map map = {.fd = fd};
	int id = ioctl(dev_fd, KERNEL_BACKING_OPEN, &map);

	return id > 0 ? id : id < 0 ? -errno : -EINVAL;
}

int ps_backing_close(int dev_fd, int id)
{
	uint32_t number = (uint32_t)id;

	return ioctl(dev_fd, KERNEL_BACKING_CLOSE, &number) < 0 ? -errno : 0;
}

/* Returns a backing id or -errno; a permanent error also turns passthrough off. */
static int backing_open(struct ps_passthrough *pt, int fd, const char *name)
{
	int id = pt->backing ? pt->backing->open(pt->backing_arg, pt->dev_fd, fd, name)
	                     : ps_backing_open(pt->dev_fd, fd);

	if (id > 0)
		return id;
	int errnum = -id;
	const char *reason = refusal(errnum);
	if (reason)
		turn_off(pt, reason);
	else if (errnum == ESTALE) /* evicted meanwhile */
		ps_log_debug("passthrough: %s is another file by now", name);
	else
		ps_log_warning("passthrough: backing file: %s", strerror(errnum));
	return -errnum;
}

/* Not fuse_passthrough_close(): it takes a request, and the one that opened the backing id may have been
 * answered already. */
void ps_passthrough_backing_close(struct ps_passthrough *pt, int backing_id)
{
	int rc = pt->backing ? pt->backing->close(pt->backing_arg, pt->dev_fd, backing_id)
	                     : ps_backing_close(pt->dev_fd, backing_id);

	if (rc < 0)
		ps_log_debug("passthrough: closing a backing file: %s", strerror(-rc));
}

void ps_passthrough_probe(struct ps_passthrough *pt)
{
	char path[4096];

	if (!pt->handshake.want_passthrough)
		return;
	if (!atomic_load(&pt->handshake.passthrough)) {
		turn_off(pt, "the kernel does not offer it (Linux 6.9 or later, CONFIG_FUSE_PASSTHROUGH)");
		return;
	}
	snprintf(path, sizeof(path), "%s/" MARKER, pt->cache_dir);
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		turn_off(pt, "the cache directory's marker cannot be opened");
		return;
	}
	/* Not through libfuse: its function does not return the kernel's error. */
	atomic_store(&pt->active, true);
	int id = backing_open(pt, fd, MARKER);
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

#if PS_FUSE_KNOWS_PASSTHROUGH

int ps_passthrough_backing_open(struct ps_passthrough *pt, fuse_req_t req, int fd, const char *name)
{
	int id = pt->backing ? 0 : fuse_passthrough_open(req, fd);

	/* libfuse returns no error code: the second attempt, by ioctl, finds the reason. */
	return id > 0 ? id : backing_open(pt, fd, name);
}

int ps_passthrough_reply_open(fuse_req_t req, struct fuse_file_info *fi, int backing_id)
{
	fi->backing_id = backing_id;
	return fuse_reply_open(req, fi);
}

#else

struct kernel_open_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};
#define KERNEL_FOPEN_PASSTHROUGH (UINT32_C(1) << 7)

int ps_passthrough_backing_open(struct ps_passthrough *pt, fuse_req_t req, int fd, const char *name)
{
	(void)req;
	return backing_open(pt, fd, name);
}

int ps_passthrough_reply_open(fuse_req_t req, struct fuse_file_info *fi, int backing_id)
{
	struct kernel_open_out out = {
	        .fh = fi->fh, .open_flags = KERNEL_FOPEN_PASSTHROUGH, .backing_id = backing_id};

	return fuse_reply_buf(req, (const char *)&out, sizeof(out));
}

#endif
