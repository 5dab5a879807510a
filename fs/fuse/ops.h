/* The FUSE callbacks. userdata is a struct ps_fs.
 *
 * ops.c: names, attributes, directories. ops_file.c: open, read, release, ioctl. ops_xattr.c: extended
 * attributes. Threads: libfuse's workers call them. A request that needs the network is answered by a
 * thread of the cache; no callback blocks on the network. */
#ifndef PS_FUSE_OPS_H
#define PS_FUSE_OPS_H

#include "fuse/fs.h"

extern const struct fuse_lowlevel_ops ps_ops;

static inline struct ps_fs *ps_op_fs(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* NULL: not the handle of an open file, as in a RELEASE that an earlier daemon had begun. */
static inline struct ps_open *ps_op_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	return ps_fs_open_find(ps_op_fs(req), fi->fh);
}

/* The number of the OPEN that this thread has read last. If the kernel has sent it to an earlier daemon, too,
 * closes what that one had opened. */
uint64_t ps_op_open_number(struct ps_fs *fs);

/* True if the request comes from root or from the user that the daemon runs as. */
bool ps_op_is_owner(fuse_req_t req);

/* Fills in the entry of a node for the kernel. */
void ps_op_entry(struct ps_fs *fs, const struct ps_fs_source *source, const struct ps_attr *attr,
        struct fuse_entry_param *ret);

/* Answers an open of a folder or a virtual file. The open file is a copy of `like`; the contents of `like`
 * are taken over. */
void ps_op_reply_open(fuse_req_t req, struct fuse_file_info *fi, const struct ps_open *like);

/* Answers a READ from memory, or from files by splice, without a copy. late: the thread is not the
 * session's. */
void ps_op_reply_segments(fuse_req_t req, const struct ps_segment *segs, size_t nsegs, bool late);
/* Answers PS_IOC_REFRESH, and PS_IOC_PLAN. *feed: the file's feed; made if it is NULL. */
void ps_op_ioctl_refresh(fuse_req_t req);
void ps_op_ioctl_plan(fuse_req_t req, struct ps_plan_feed **feed, const void *in, size_t in_nbytes);
/* One of the other requests on a file: ps_op_ioctl_find() finds it in a table, ps_op_ioctl_handle()
 * answers. */
struct ps_ioctl_request {
	unsigned cmd;
	int (*run)(struct ps_handle *handle, uint64_t *ret_nbytes);
	bool for_all; /* allowed for any user who may read the file */
};
/* The request, if this user may make it; else answers and returns NULL. */
const struct ps_ioctl_request *ps_op_ioctl_find(fuse_req_t req, unsigned cmd, size_t out_nbytes);
/* Runs it on the background thread, answers, and calls done(arg), which may be NULL. */
void ps_op_ioctl_handle(fuse_req_t req, const struct ps_ioctl_request *request, struct ps_handle *handle,
        void (*done)(void *arg), void *arg);
/* Answers a GETXATTR or LISTXATTR with these bytes. size: the reader's room; 0: it asks for n. */
void ps_op_reply_xattr(fuse_req_t req, const char *bytes, size_t n, size_t size);

void ps_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ps_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ps_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ps_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi); /* files and folders */
void ps_op_open_file(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ps_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
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
