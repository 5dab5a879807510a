/* The least that a FUSE daemon can do for a read: one file, whose bytes are spliced from another file's
 * page cache. No names, no cache, no locks. The cost of a hit that is not passed through, less this
 * program's cost, is Penstock's own. */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INO 2
#define READ_NBYTES (512u * 1024) /* as the mount's: PS_FS_READ_NBYTES */

static int data_fd;
static int direct;
static off_t size;

static void attr(fuse_ino_t ino, struct stat *ret)
{
	*ret = (struct stat){.st_ino = ino,
	        .st_nlink = 1,
	        .st_mode = ino == INO ? S_IFREG | 0444 : S_IFDIR | 0555,
	        .st_size = ino == INO ? size : 0};
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = {.ino = INO, .attr_timeout = 1e6, .entry_timeout = 1e6};

	if (parent != FUSE_ROOT_ID || strcmp(name, "file") != 0) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	attr(INO, &entry.attr);
	fuse_reply_entry(req, &entry);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	attr(ino, &st);
	fuse_reply_attr(req, &st, 1e6);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->keep_cache = !direct;
	fi->direct_io = direct;
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t nbytes, off_t off, struct fuse_file_info *fi)
{
	struct fuse_bufvec v = FUSE_BUFVEC_INIT(off < size ? (size_t)(size - off) : 0);

	(void)ino, (void)fi;
	if (v.buf[0].size > nbytes)
		v.buf[0].size = nbytes;
	v.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	v.buf[0].fd = data_fd;
	v.buf[0].pos = off;
	fuse_reply_data(req, &v, FUSE_BUF_SPLICE_MOVE);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->max_read = READ_NBYTES;
	conn->max_background = 4096;
	conn->congestion_threshold = 3072;
	conn->want |= conn->capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	conn->want &= ~(unsigned)(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_SPLICE_READ | FUSE_CAP_ASYNC_DIO);
}

int main(int argc, char **argv)
{
	static const struct fuse_lowlevel_ops ops = {.init = op_init,
	        .lookup = op_lookup,
	        .getattr = op_getattr,
	        .open = op_open,
	        .read = op_read};
	char name[] = "bare_fuse", flag[] = "-o", max_read[64];
	char *words[] = {name, flag, max_read, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, words);
	struct stat st;

	if (argc != 3 && !(argc == 4 && strcmp(argv[3], "direct") == 0)) {
		fprintf(stderr, "Usage: bare_fuse FILE MOUNTPOINT [direct]\n"
		                "Shows FILE as MOUNTPOINT/file, until it is unmounted.\n");
		return 2;
	}
	direct = argc == 4;
	data_fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (data_fd < 0 || fstat(data_fd, &st) < 0) {
		fprintf(stderr, "bare_fuse: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	size = st.st_size;
	snprintf(max_read, sizeof(max_read), "max_read=%u", READ_NBYTES);
	struct fuse_session *session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!session || fuse_session_mount(session, argv[2]) != 0)
		return 1;
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, 8);
	fuse_loop_cfg_set_idle_threads(config, 8);
	int rc = fuse_session_loop_mt(session, config);
	fuse_loop_cfg_destroy(config);
	fuse_session_unmount(session);
	fuse_session_destroy(session);
	return rc != 0;
}
