#include <errno.h>
#include <string.h>

#include "fuse/ops.h"
#include "fuse/virtual.h"

#define READDIR_MAX_NBYTES (1u << 20) /* a larger buffer is filled so far */

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

/* Entry `pos` of an open folder, with "." and ".." first: 1, 0 past the end, -errno; *ret_source is whose it
 * is, NULL for a virtual one. */
static int entry_at(struct ps_fs *fs, struct ps_open *open, uint64_t pos, bool plus, const char **ret_name,
        struct ps_attr *ret, const struct ps_fs_source **ret_source)
{
	fuse_ino_t ino;

	*ret_source = open->dir ? ps_fs_source(fs, open->ino) : NULL;
	if (pos < 2) {
		/* The number of ".." is not worth a lookup: no program goes by it, and the kernel knows the
		 * parent. */
		*ret_name = pos ? ".." : ".";
		*ret = (struct ps_attr){.ino = open->ino, .is_dir = true};
		*ret_source = NULL; /* its bits are in the number */
		return 1;
	}
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
		/* Node 0: the kernel takes the number and the kind, and looks the name up when it needs more.
		 */
		ps_fs_stat(fs, source, attr, &entry.attr);
	}
	return plus ? fuse_add_direntry_plus(req, buf, room, name, &entry, next)
	            : fuse_add_direntry(req, buf, room, name, &entry.attr, next);
}

static void read_dir(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_open *open = ps_op_open(fi);
	size_t room = PS_MIN(size, READDIR_MAX_NBYTES), used = 0;
	ps_autofree char *buf = malloc(room ? room : 1);
	const struct ps_fs_source *source;
	struct ps_attr attr;
	const char *name;
	int rc;

	if (!buf || off < 0) {
		fuse_reply_err(req, buf ? EINVAL : ENOMEM);
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
	/* What there is before an error is told first; who goes on hears of it. */
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
