/* The FUSE callbacks. userdata is a struct ps_fs.
 *
 * ops.c: the table, and what needs no file of its own. names.c: node ids, names, attributes, folders.
 * ops_file.c: open, read, release, ioctl. ops_xattr.c: extended attributes. Threads: libfuse's workers call
 * them. A request that needs the network is answered by a thread of the cache; no callback blocks on the
 * network. */
#ifndef PS_FUSE_OPS_H
#define PS_FUSE_OPS_H

#include "fuse/fs.h"

/* members: the mount shows members (member_view.h). */
struct fuse_lowlevel_ops ps_ops(bool members);

static inline struct ps_fs *ps_op_fs(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* NULL: not the handle of an open file, as in a RELEASE that an earlier daemon had begun. */
static inline struct ps_open *ps_op_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	return ps_state_find(&ps_op_fs(req)->state, fi->fh);
}

/* True if the request comes from root or from the user that the daemon runs as. */
static inline bool ps_op_is_owner(fuse_req_t req)
{
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || uid == geteuid();
}

void ps_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void ps_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ps_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ps_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ps_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ps_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi); /* files and folders */
void ps_op_open_file(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ps_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ps_op_read_member(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ps_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
        unsigned flags, const void *in, size_t in_nbytes, size_t out_nbytes);
void ps_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void ps_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

/* The document of .penstock/stats; the caller owns it. owner: as for ps_virtual_text(). NULL: out of
 * memory. */
json_t *ps_stats_document(struct ps_fs *fs, bool owner);

/* Opens again what was open under an earlier daemon. Call before the loop. Reads of a file that cannot be
 * opened fail with EIO. */
void ps_fs_restore(struct ps_fs *fs);

/* The hidden folder .penstock/ of a mount: not listed in the root, but found by name.
 *
 *   .penstock/stats           JSON, as `penstock status --json` prints it (penstock(1) lists the fields)
 *   .penstock/metrics         the mount's metrics for Prometheus
 *   .penstock/cache_metrics   the daemon's own metrics: separate, so that no series appears twice
 *   .penstock/plan            the loaders' plans, as in stats; loaders send them by ioctl (fuse.h)
 *
 * The content of a file is made at open; its size is reported as 0, as in /proc. Threads: any. Blocks:
 * never on the network. */
bool ps_virtual_is(fuse_ino_t ino);
bool ps_virtual_is_plan(fuse_ino_t ino);
/* The virtual node of this name in this folder; 0: none. */
fuse_ino_t ps_virtual_lookup(fuse_ino_t parent, const char *name);
/* Also for the top folder (fs.h). */
void ps_virtual_attr(fuse_ino_t ino, struct ps_attr *ret);
/* The entry of .penstock/ at this position, or NULL past the end. */
const char *ps_virtual_entry(size_t pos, fuse_ino_t *ret_ino);
/* The text of a file; the caller frees it. owner: the reader is root or the mount's owner, and sees the
 * daemon's other mounts; other users see this mount only. -ENOMEM. */
int ps_virtual_text(struct ps_fs *fs, fuse_ino_t ino, bool owner, char **ret_text, size_t *ret_len);

#endif
