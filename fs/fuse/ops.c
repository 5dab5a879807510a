#include "fuse/ops.h"

#include <errno.h>
#include <stdlib.h>

#include "base/size.h"
#include "fuse/member_view.h"

#define STATFS_BLOCK 4096

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct ps_fs *fs = userdata;

	/* With libfuse's default of 12, sixteen stuck read-aheads delayed the reads of a cached file by 7.5
	 * s. For mounts of ordinary users the kernel lowers this
	 * (/sys/module/fuse/parameters/max_user_bgreq). */
	conn->max_background = 4096;
	conn->congestion_threshold = 3072;
	conn->max_read = PS_FS_READ_NBYTES;
	conn->time_gran = 1000000000;
	conn->want |=
	        conn->capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_SPLICE_WRITE |
	                                FUSE_CAP_SPLICE_MOVE | FUSE_CAP_EXPLICIT_INVAL_DATA);
	/* A node's data never changes, so its pages are never stale. With asynchronous direct I/O the
	 * kernel does not interrupt an O_DIRECT read: a killed reader stayed until the timeout. */
	conn->want &= ~(unsigned)(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_SPLICE_READ |
	                          FUSE_CAP_ASYNC_DIO);
	ps_handshake_init_op(&fs->passthrough.handshake, conn);
}

/* Used: the dataset. Available: the room of the cache, but not less than the dataset, since programs that copy ask for
 * it although nothing of the mount's room limits them. */
static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct statvfs st = {
	        .f_bsize = PS_FS_BLKSIZE, .f_frsize = STATFS_BLOCK, .f_namemax = 255, .f_flag = ST_RDONLY};
	uint64_t limit, used, reserved;

	uint64_t nbytes = 0;

	(void)ino;
	for (size_t i = 0; i < fs->nsources; i++)
		nbytes += ps_dataset_nbytes(fs->sources[i].dataset);
	ps_store_room(ps_cache_store(fs->cache), &limit, &used, &reserved);
	st.f_bavail = st.f_bfree = PS_MAX(limit - PS_MIN(used + reserved, limit), nbytes) / STATFS_BLOCK;
	st.f_blocks = st.f_bfree + (nbytes + STATFS_BLOCK - 1) / STATFS_BLOCK;
	fuse_reply_statfs(req, &st);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct ps_place place;
	char *target = NULL;
	int rc = ps_place_of(ps_op_fs(req), ino, &place);

	if (rc == 0)
		rc = place.kind == PS_PLACE_MEMBER
		             ? ps_member_link(place.source->members, place.table, place.ordinal, &target)
		             : -EINVAL;
	if (rc < 0)
		fuse_reply_err(req, ps_fs_errno(-rc));
	else
		fuse_reply_readlink(req, target);
	free(target);
}

/* Only snapshots are freed. Other nodes stay valid whether the kernel knows them or not, so its lookups are
 * not counted. */
static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	(void)nlookup;
	if (ino >> PS_ALIAS_SHIFT == PS_ALIAS_SNAPSHOT)
		ps_snapshot_forget(ps_op_fs(req), ps_node_number(ino));
	fuse_reply_none(req);
}

static void op_open_nothing(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino, (void)fi;
	fuse_reply_err(req, ENOSYS);
}

/* The mount is read-only, so the kernel sends no writing request. If it is remounted writable, these refuse
 * them. */
#define REFUSES(name, ...)                            \
	static void name(fuse_req_t req, __VA_ARGS__) \
	{                                             \
		fuse_reply_err(req, EROFS);           \
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
REFUSES(op_setattr, fuse_ino_t ino, struct stat *attr, int set, struct fuse_file_info *fi)
REFUSES(op_mknod, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
REFUSES(op_mkdir, fuse_ino_t parent, const char *name, mode_t mode)
REFUSES(op_remove, fuse_ino_t parent, const char *name)
REFUSES(op_symlink, const char *link, fuse_ino_t parent, const char *name)
REFUSES(op_rename, fuse_ino_t from, const char *name, fuse_ino_t to, const char *newname, unsigned flags)
REFUSES(op_link, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
REFUSES(op_write, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
REFUSES(op_create, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
REFUSES(op_setxattr, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
REFUSES(op_removexattr, fuse_ino_t ino, const char *name)
REFUSES(op_fallocate, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
#pragma GCC diagnostic pop

/* Not implemented: forget (lookups are not counted), access (default_permissions), flush and fsync (nothing
 * is written), lseek and locks (the kernel's own are enough). */
static const struct fuse_lowlevel_ops ops = {
        .init = op_init,
        .lookup = ps_op_lookup,
        .getattr = ps_op_getattr,
        .readlink = op_readlink,
        .opendir = ps_op_opendir,
        .readdir = ps_op_readdir,
        .readdirplus = ps_op_readdirplus,
        .releasedir = ps_op_release,
        .open = ps_op_open_file,
        .read = ps_op_read,
        .release = ps_op_release,
        .statfs = op_statfs,
        .getxattr = ps_op_getxattr,
        .listxattr = ps_op_listxattr,
        .ioctl = ps_op_ioctl,
        .setattr = op_setattr,
        .mknod = op_mknod,
        .mkdir = op_mkdir,
        .unlink = op_remove,
        .rmdir = op_remove,
        .symlink = op_symlink,
        .rename = op_rename,
        .link = op_link,
        .write = op_write,
        .create = op_create,
        .setxattr = op_setxattr,
        .removexattr = op_removexattr,
        .fallocate = op_fallocate,
};

struct fuse_lowlevel_ops ps_ops(bool members)
{
	struct fuse_lowlevel_ops of_members = ops;

	of_members.forget = op_forget;
	of_members.open = of_members.opendir = op_open_nothing;
	of_members.release = of_members.releasedir = NULL; /* the kernel sends neither */
	of_members.read = ps_op_read_member;
	return members ? of_members : ops;
}
