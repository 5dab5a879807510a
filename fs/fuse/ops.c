#include "fuse/ops.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/size.h"

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

/* An incomplete attribute is asked for again soon. */
static double attr_timeout_s(const struct ps_attr *attr)
{
	return attr->complete_attr ? PS_FS_TIMEOUT_S : PS_FS_NEGATIVE_TIMEOUT_S;
}

void ps_op_entry(struct ps_fs *fs, const struct ps_fs_source *source, const struct ps_attr *attr,
        struct fuse_entry_param *ret)
{
	double timeout_s = attr_timeout_s(attr);

	*ret = (struct fuse_entry_param){.ino = source ? ps_fs_ino(fs, source, attr->node) : attr->node,
	        .attr_timeout = timeout_s,
	        .entry_timeout = timeout_s};
	ps_fs_stat(fs, source, attr, &ret->attr);
}

/* A LOOKUP or GETATTR, which may wait for a HEAD. */
struct attr_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	const struct ps_fs_source *source;
};

static void free_attr_op(struct ps_inflight *inflight)
{
	free(PS_CONTAINER_OF(inflight, struct attr_op, inflight));
}

static struct attr_op *new_attr_op(fuse_req_t req, fuse_ino_t ino)
{
	struct attr_op *op = malloc(sizeof(*op));

	if (!op) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	op->fs = ps_op_fs(req);
	op->source = ps_fs_source(op->fs, ino);
	ps_inflight_init(&op->inflight, &op->fs->inflight, req, free_attr_op, NULL);
	return op;
}

static void reply_entry(fuse_req_t req, struct ps_fs *fs, const struct ps_fs_source *source, int errnum,
        const struct ps_attr *attr)
{
	struct fuse_entry_param entry = {.entry_timeout = PS_FS_NEGATIVE_TIMEOUT_S};

	if (errnum && errnum != ENOENT) {
		fuse_reply_err(req, ps_fs_errno(errnum));
		return;
	}
	if (!errnum)
		ps_op_entry(fs, source, attr, &entry);
	fuse_reply_entry(req, &entry);
}

static void reply_attr(fuse_req_t req, const struct ps_fs *fs, const struct ps_fs_source *source, int errnum,
        const struct ps_attr *attr)
{
	struct stat st;

	if (errnum) {
		fuse_reply_err(req, ps_fs_errno(errnum));
		return;
	}
	ps_fs_stat(fs, source, attr, &st);
	fuse_reply_attr(req, &st, attr_timeout_s(attr));
}

static void lookup_done(void *arg, int errnum, const struct ps_attr *attr)
{
	struct attr_op *op = arg;

	if (ps_inflight_claim(&op->inflight))
		reply_entry(op->inflight.req, op->fs, op->source, errnum, attr);
	ps_inflight_put(&op->inflight);
}

static void getattr_done(void *arg, int errnum, const struct ps_attr *attr)
{
	struct attr_op *op = arg;

	if (ps_inflight_claim(&op->inflight))
		reply_attr(op->inflight.req, op->fs, op->source, errnum, attr);
	ps_inflight_put(&op->inflight);
}

static void lookup_source(fuse_req_t req, struct ps_fs *fs, const char *name)
{
	const struct ps_fs_source *source = fs->sources;
	struct ps_attr attr;

	while (source < fs->sources + fs->nsources && strcmp(source->name, name) != 0)
		source++;
	if (source == fs->sources + fs->nsources) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	ps_fs_root_attr(source, &attr);
	reply_entry(req, fs, source, 0, &attr);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ps_fs *fs = ps_op_fs(req);
	fuse_ino_t virtual = ps_virtual_lookup(parent, name);
	struct ps_attr attr;

	if (virtual || ps_virtual_is(parent)) {
		if (virtual)
			ps_virtual_attr(virtual, &attr);
		reply_entry(req, fs, NULL, virtual ? 0 : ENOENT, &attr);
		return;
	}
	if (ps_fs_is_top(fs, parent)) {
		lookup_source(req, fs, name);
		return;
	}
	struct attr_op *op = new_attr_op(req, parent);
	if (!op)
		return;
	ps_dataset_lookup(op->source->dataset, ps_fs_node(fs, parent), name, lookup_done, op);
	ps_inflight_issued(&op->inflight);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_attr attr;

	(void)fi;
	if (ps_virtual_is(ino) || ps_fs_is_top(fs, ino)) {
		ps_virtual_attr(ino, &attr);
		reply_attr(req, fs, NULL, 0, &attr);
		return;
	}
	struct attr_op *op = new_attr_op(req, ino);
	if (!op)
		return;
	ps_dataset_getattr(op->source->dataset, ps_fs_node(fs, ino), getattr_done, op);
	ps_inflight_issued(&op->inflight);
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
	(void)ino;
	fuse_reply_err(req, EINVAL);
}

/* The mount is read-only, so the kernel sends no writing request. If it is remounted writable, these refuse
 * them. */

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set, struct fuse_file_info *fi)
{
	(void)ino, (void)attr, (void)set, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	(void)parent, (void)name, (void)mode, (void)dev;
	fuse_reply_err(req, EROFS);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	fuse_reply_err(req, EROFS);
}

static void op_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	(void)link, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
        const char *newname, unsigned flags)
{
	(void)parent, (void)name, (void)newparent, (void)newname, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	(void)ino, (void)newparent, (void)newname;
	fuse_reply_err(req, EROFS);
}

static void op_write(
        fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino, (void)buf, (void)size, (void)off, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void op_create(
        fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void op_setxattr(
        fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	(void)ino, (void)name, (void)value, (void)size, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	(void)ino, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_fallocate(
        fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
	(void)ino, (void)mode, (void)offset, (void)length, (void)fi;
	fuse_reply_err(req, EROFS);
}

/* Not implemented: forget (lookups are not counted), access (default_permissions), flush and fsync (nothing
 * is written), lseek and locks (the kernel's own are enough). */
const struct fuse_lowlevel_ops ps_ops = {
        .init = op_init,
        .lookup = op_lookup,
        .getattr = op_getattr,
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

/* Directories -------------------------------------------------------------------------------------------- */

#define READDIR_MAX_NBYTES (1u << 20) /* a larger buffer is filled up to this */

void ps_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_open like = {.kind = PS_OPEN_DIR, .ino = ino};

	if (!ps_virtual_is(ino) && !ps_fs_is_top(fs, ino)) {
		int rc = ps_dir_open(ps_fs_source(fs, ino)->dataset, ps_fs_node(fs, ino), &like.dir);
		if (rc < 0) {
			fuse_reply_err(req, ps_fs_errno(-rc));
			return;
		}
	}
	ps_op_reply_open(req, fi, &like);
}

/* Finds entry `pos` of an open folder; "." and ".." come first. Returns 1, 0 past the end, or -errno.
 * *ret_source: the entry's source, NULL for a virtual entry. */
static int entry_at(struct ps_fs *fs, struct ps_open *open, uint64_t pos, bool plus, const char **ret_name,
        struct ps_attr *ret, const struct ps_fs_source **ret_source)
{
	fuse_ino_t ino;

	*ret_source = open->dir ? ps_fs_source(fs, open->ino) : NULL;
	if (pos < 2) {
		/* The inode number of ".." is not looked up: no program uses it, and the kernel knows the
		 * parent. */
		*ret_name = pos ? ".." : ".";
		*ret = (struct ps_attr){.ino = open->ino, .is_dir = true};
		*ret_source = NULL; /* open->ino includes the source's bits already */
		return 1;
	}
	if (!open->dir && !ps_virtual_is(open->ino) && !ps_fs_is_top(fs, open->ino))
		return -EIO; /* this daemon could not open it again */
	if (open->dir)
		return ps_dir_read(open->dir, pos - 2, plus, ret_name, ret);
	if (ps_fs_is_top(fs, open->ino)) {
		if (pos - 2 >= fs->nsources)
			return 0;
		*ret_source = &fs->sources[pos - 2];
		*ret_name = (*ret_source)->name;
		ps_fs_root_attr(*ret_source, ret);
		return 1;
	}
	*ret_name = ps_virtual_entry(pos - 2, &ino);
	if (*ret_name)
		ps_virtual_attr(ino, ret);
	return *ret_name != NULL;
}

static size_t add_entry(fuse_req_t req, char *buf, size_t room, bool plus, const char *name,
        const struct ps_fs_source *source, const struct ps_attr *attr, off_t next)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct fuse_entry_param entry = {0};

	if (plus && attr->node && attr->complete_attr) {
		ps_op_entry(fs, source, attr, &entry);
	} else {
		/* Node 0: the kernel takes the inode number and the file type only, and looks the name up
		 * if it needs more. */
		ps_fs_stat(fs, source, attr, &entry.attr);
	}
	return plus ? fuse_add_direntry_plus(req, buf, room, name, &entry, next)
	            : fuse_add_direntry(req, buf, room, name, &entry.attr, next);
}

static void read_dir(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_open *open = ps_op_open(req, fi);
	size_t room = PS_MIN(size, READDIR_MAX_NBYTES), used = 0;
	ps_autofree char *buf = malloc(room ? room : 1);
	const struct ps_fs_source *source;
	struct ps_attr attr;
	const char *name;
	int rc;

	if (!buf || off < 0 || !open) {
		fuse_reply_err(req, !buf ? ENOMEM : open ? EINVAL : EBADF);
		return;
	}
	pthread_mutex_lock(&open->reader);
	for (uint64_t pos = (uint64_t)off; (rc = entry_at(fs, open, pos, plus, &name, &attr, &source)) > 0;
	        pos++) {
		size_t n = add_entry(req, buf + used, room - used, plus, name, source, &attr, (off_t)pos + 1);

		if (n > room - used)
			break;
		used += n;
	}
	pthread_mutex_unlock(&open->reader);
	/* Entries before an error are returned first; the next READDIR gets the error. */
	if (rc < 0 && used == 0)
		fuse_reply_err(req, ps_fs_errno(-rc));
	else
		fuse_reply_buf(req, buf, used);
}

void ps_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	read_dir(req, size, off, fi, false);
}

void ps_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	read_dir(req, size, off, fi, true);
}
