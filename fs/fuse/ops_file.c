#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "fuse/fuse.h"
#include "fuse/ops.h"

/* Open and release --------------------------------------------------------------------------------------- */

struct open_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	fuse_ino_t ino;
	uint64_t number; /* ps_op_open_number() */
	struct fuse_file_info fi;
};

static void free_open_op(struct ps_inflight *inflight)
{
	free(PS_CONTAINER_OF(inflight, struct open_op, inflight));
}

uint64_t ps_op_open_number(struct ps_fs *fs)
{
	bool again;
	uint64_t number = ps_handshake_request(&again);

	if (again)
		ps_fs_open_again(fs, number);
	return number;
}

void ps_op_reply_open(fuse_req_t req, struct fuse_file_info *fi, const struct ps_open *like)
{
	struct ps_fs *fs = ps_op_fs(req);
	uint64_t number = ps_op_open_number(fs);
	struct ps_open *open = ps_fs_open_new(fs, like, 0, number);

	if (!open) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	fi->fh = open->fh;
	ps_fs_open_answered(fs, fi->fh, number, fuse_reply_open(req, fi));
}

/* True if a file that is not passed through is best opened for direct I/O. */
static bool wants_direct(struct ps_fs *fs, pid_t tid, bool complete)
{
	if (!atomic_load(&fs->passthrough.handshake.direct_mmap))
		return false;
	if (complete)
		return fs->options->cold_reads == PS_COLD_AUTO && !ps_passthrough_active(&fs->passthrough) &&
		       ps_access_pattern_reads_whole(&fs->access_pattern, tid);
	if (fs->options->cold_reads != PS_COLD_AUTO)
		return fs->options->cold_reads == PS_COLD_DIRECT;
	enum ps_access_pattern_kind kind = ps_access_pattern_guess(&fs->access_pattern, tid);
	return kind == PS_READS_LARGE || kind == PS_READS_WHOLE;
}

static void put_object(void *object)
{
	ps_object_put(object);
}

/* Opens the file in the mode that openmode.h chooses, and answers OPEN. */
static void reply_file(struct open_op *op, struct ps_handle *handle)
{
	struct ps_fs *fs = op->fs;
	fuse_req_t req = op->inflight.req;
	pid_t tid = fuse_req_ctx(req)->pid;
	struct ps_open like = {.kind = PS_OPEN_FILE,
	        .ino = op->ino,
	        .handle = handle,
	        .allowed = ps_handle_allowed(handle),
	        .reads = {.tid = tid}};
	char name[PS_DATA_NAME_LEN] = "";
	int fd = ps_handle_complete_fd(handle), backing_id = 0;

	if (fd >= 0)
		ps_object_data_name(ps_handle_object(handle), name);
	const struct ps_openmode_wish wish = {.ino = op->ino,
	        .tid = tid,
	        .complete_fd = fd,
	        .complete_name = name,
	        .keep = {.arg = fd >= 0 ? ps_object_ref(ps_handle_object(handle)) : NULL,
	                .put = fd >= 0 ? put_object : NULL},
	        .direct = wants_direct(fs, tid, fd >= 0)};

	int rc = ps_openmode_enter(&fs->openmodes, &fs->passthrough, req, &wish, &like.mode, &backing_id);
	like.in_mode = rc == 0;
	/* On failure ps_fs_open_new() frees the contents of `like` and uncounts its mode. */
	struct ps_open *open = rc == 0 ? ps_fs_open_new(fs, &like, backing_id, op->number) : NULL;
	if (!open) {
		if (rc < 0)
			ps_handle_close(handle);
		fuse_reply_err(req, rc < 0 ? -rc : ENOMEM);
		return;
	}
	op->fi.fh = open->fh;
	if (like.mode == PS_MODE_PASSED) {
		rc = ps_passthrough_reply_open(req, &op->fi, backing_id);
	} else {
		/* A node's pages are valid for ever. Without keep_cache an open would also wait for READs
		 * in flight. */
		op->fi.keep_cache = 1;
		op->fi.direct_io = like.mode == PS_MODE_DIRECT;
		rc = fuse_reply_open(req, &op->fi);
	}
	ps_fs_open_answered(fs, op->fi.fh, op->number, rc);
}

static void open_done(void *arg, int errnum, struct ps_handle *handle)
{
	struct open_op *op = arg;

	if (!ps_inflight_claim(&op->inflight)) {
		if (handle)
			ps_handle_close(handle);
	} else if (errnum) {
		/* ESTALE makes the kernel look the name up again and open the version that the name has
		 * now. */
		if (errnum == ESTALE)
			ps_openmode_stale(&op->fs->openmodes, fuse_req_ctx(op->inflight.req)->pid);
		fuse_reply_err(op->inflight.req, ps_fs_errno(errnum));
	} else {
		reply_file(op, handle);
	}
	ps_inflight_put(&op->inflight);
}

bool ps_op_is_owner(fuse_req_t req)
{
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || uid == geteuid();
}

static void open_virtual(fuse_req_t req, struct ps_fs *fs, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ps_open like = {.kind = PS_OPEN_VIRTUAL, .ino = ino};
	int rc = ps_virtual_text(fs, ino, ps_op_is_owner(req), &like.text, &like.text_len);

	if (rc < 0) {
		fuse_reply_err(req, ps_fs_errno(-rc));
		return;
	}
	fi->direct_io = 1; /* read to the end of the text, whatever the size is */
	ps_op_reply_open(req, fi, &like);
}

void ps_op_open_file(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ps_fs *fs = ps_op_fs(req);

	if ((fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC) {
		fuse_reply_err(req, EROFS);
		return;
	}
	if (ps_virtual_is(ino)) {
		open_virtual(req, fs, ino, fi);
		return;
	}
	struct open_op *op = malloc(sizeof(*op));
	if (!op) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	op->fs = fs;
	op->ino = ino;
	op->number = ps_op_open_number(fs);
	op->fi = *fi;
	ps_inflight_init(&op->inflight, &fs->inflight, req, free_open_op, NULL);
	ps_handle_open(ps_fs_source(fs, ino)->dataset, ps_fs_node(fs, ino), open_done, op);
	ps_inflight_issued(&op->inflight);
}

void ps_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ps_open *open = ps_op_open(req, fi);

	(void)ino;
	/* NULL: an earlier daemon had begun to release the file. */
	if (open)
		ps_fs_open_free(ps_op_fs(req), open);
	fuse_reply_err(req, 0);
}

/* Read --------------------------------------------------------------------------------------------------- */

struct read_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	pthread_t issuer; /* a callback on this thread means that the read did not wait */
	struct ps_read read;
};

static void free_read_op(struct ps_inflight *inflight)
{
	free(PS_CONTAINER_OF(inflight, struct read_op, inflight));
}

static void cancel_read_op(struct ps_inflight *inflight)
{
	ps_read_cancel(&PS_CONTAINER_OF(inflight, struct read_op, inflight)->read);
}

/* Answers from memory, or from files by splice, without a copy. On a thread that is not the session's
 * (`late`) nothing is spliced: libfuse would keep a pipe for that thread, and the pipe would outlive the
 * session. */
void ps_op_reply_segments(fuse_req_t req, const struct ps_segment *segs, size_t nsegs, bool late)
{
	struct {
		struct fuse_bufvec vec;
		struct fuse_buf more[PS_READ_MAX_SEGMENTS - 1];
	} v = {.vec = {.count = nsegs}};
	struct iovec iov[PS_READ_MAX_SEGMENTS];
	bool in_files = false;

	for (size_t i = 0; i < nsegs; i++) {
		struct fuse_buf *buf = i == 0 ? &v.vec.buf[0] : &v.more[i - 1];
		void *data = (void *)(uintptr_t)segs[i].data;

		iov[i] = (struct iovec){data, segs[i].nbytes};
		*buf = (struct fuse_buf){.size = segs[i].nbytes,
		        .mem = data,
		        .fd = segs[i].fd,
		        .pos = (off_t)segs[i].pos,
		        .flags = data ? 0 : FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK};
		in_files |= !data;
	}
	if (in_files)
		fuse_reply_data(req, &v.vec, late ? FUSE_BUF_NO_SPLICE : FUSE_BUF_SPLICE_MOVE);
	else
		fuse_reply_iov(req, iov, (int)nsegs);
}

static void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct read_op *op = PS_CONTAINER_OF(read, struct read_op, read);

	if (ps_inflight_claim(&op->inflight)) {
		if (errnum)
			fuse_reply_err(op->inflight.req, ps_fs_errno(errnum));
		else if (nsegs == 0)
			fuse_reply_buf(op->inflight.req, NULL, 0);
		else
			ps_op_reply_segments(
			        op->inflight.req, segs, nsegs, !pthread_equal(op->issuer, pthread_self()));
	}
	ps_inflight_put(&op->inflight);
}

static void reply_hit(void *arg, const struct ps_segment *segs, size_t nsegs)
{
	if (nsegs == 0)
		fuse_reply_buf(arg, NULL, 0);
	else
		ps_op_reply_segments(arg, segs, nsegs, false);
}

static void read_virtual(fuse_req_t req, struct ps_open *open, size_t size, off_t off)
{
	PS_LOCK_SCOPE(&open->reader);
	size_t from = (size_t)PS_MIN((uint64_t)off, (uint64_t)open->text_len);
	size_t n = PS_MIN(size, open->text_len - from);
	/* Answers with a copy: as soon as the kernel has the answer, RELEASE may free the text. */
	ps_autofree char *copy = malloc(n + 1);

	if (!copy) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	memcpy(copy, open->text + from, n);
	fuse_reply_buf(req, copy, n);
}

/* Records the READ in the access pattern. The kernel sets a lock owner for read(2), and none for pages that
 * it reads for a mapping or sendfile(2). */
static void note_read(
        struct ps_fs *fs, struct ps_open *open, size_t size, uint64_t off, const struct fuse_file_info *fi)
{
	if (open->mode == PS_MODE_DIRECT) {
		if (fi->lock_owner == 0 && atomic_load(&open->reads.nmapped) == 0)
			ps_openmode_mapped(&fs->openmodes, open->ino);
		ps_access_pattern_direct_read(&fs->access_pattern, &open->reads, size, fi->lock_owner == 0);
	} else if (open->mode == PS_MODE_CACHED && off + size < ps_handle_size(open->handle)) {
		ps_access_pattern_cached_read(
		        &fs->access_pattern, &open->reads, size, atomic_load(&fs->read_ahead_nbytes));
	}
}

void ps_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_open *open = ps_op_open(req, fi);

	(void)ino;
	if (off < 0 || !open) {
		fuse_reply_err(req, open ? EINVAL : EBADF);
		return;
	}
	if (open->kind == PS_OPEN_VIRTUAL) {
		read_virtual(req, open, size, off);
		return;
	}
	if (!open->handle) { /* this daemon could not open it again */
		fuse_reply_err(req, EIO);
		return;
	}
	if (!atomic_load_explicit(&open->allowed, memory_order_relaxed))
		ps_fs_open_allowed(fs, open);
	note_read(fs, open, size, (uint64_t)off, fi);
	if (ps_handle_try_read(open->handle, (uint64_t)off, PS_MIN(size, PS_READ_MAX_NBYTES), &fs->reads,
	            reply_hit, req))
		return;
	struct read_op *op = malloc(sizeof(*op));
	if (!op) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	op->fs = fs;
	op->issuer = pthread_self();
	op->read = (struct ps_read){.handle = open->handle,
	        .offset = (uint64_t)off,
	        .nbytes = PS_MIN(size, PS_READ_MAX_NBYTES),
	        .stats = &fs->reads,
	        .done = read_done};
	ps_inflight_init(&op->inflight, &fs->inflight, req, free_read_op, cancel_read_op);
	op->inflight.silent = fi->lock_owner == 0; /* pages (note_read()) */
	ps_handle_read(&op->read);
	ps_inflight_issued(&op->inflight);
}

/* Requests on a file ------------------------------------------------------------------------------------- */

static int run_warm(struct ps_handle *handle, uint64_t *ret_nbytes)
{
	*ret_nbytes = 0;
	return ps_handle_warm(handle);
}

/* The kernel releases no file with a request in flight, so the handle lives until the answer. */
struct ioctl_op {
	struct ps_job job;
	fuse_req_t req;
	struct ps_handle *handle;
	const struct ps_ioctl_request *request;
	void (*done)(void *arg);
	void *arg;
};

static void run_ioctl(struct ps_job *job)
{
	ps_autofree struct ioctl_op *op = PS_CONTAINER_OF(job, struct ioctl_op, job);
	uint64_t nbytes = 0;
	int rc = op->request->run(op->handle, &nbytes);

	if (rc < 0) /* ps_fs_errno() has no ENOSPC, which the commands report */
		fuse_reply_err(op->req, rc == -ENOSPC ? ENOSPC : ps_fs_errno(-rc));
	else
		fuse_reply_ioctl(op->req, 0, &nbytes, op->request->run == run_warm ? 0 : sizeof(nbytes));
	if (op->done)
		op->done(op->arg);
}

struct data_file_op {
	struct ps_job job;
	fuse_req_t req;
	struct ps_fs *fs;
	struct ps_handle *handle;
};

static void run_data_file(struct ps_job *job)
{
	ps_autofree struct data_file_op *op = PS_CONTAINER_OF(job, struct data_file_op, job);
	ps_autofree struct ps_data_file *file = malloc(sizeof(*file));
	ps_autofree struct ps_ioc_data_file *out = calloc(1, sizeof(*out));
	int rc = file && out ? ps_handle_data_file(op->handle, file) : -ENOMEM;

	if (rc < 0) { /* ps_fs_errno() has no ENODATA */
		fuse_reply_err(op->req, rc == -ENODATA ? ENODATA : ps_fs_errno(-rc));
		return;
	}
	out->dev = file->dev;
	out->ino = file->ino;
	out->nbytes = file->nbytes;
	memcpy(out->path, file->path, sizeof(out->path));
	atomic_fetch_add(&op->fs->nhanded_over, 1);
	fuse_reply_ioctl(op->req, 0, out, sizeof(*out));
}

static void ioctl_data_file(fuse_req_t req, const struct ps_open *open, size_t out_nbytes)
{
	int errnum = !open->handle                  ? EIO /* not opened again after a takeover */
	             : !ps_op_is_owner(req)         ? EPERM
	             : open->mode == PS_MODE_PASSED ? ENODATA
	             : out_nbytes < sizeof(struct ps_ioc_data_file) ? EINVAL
	                                                            : 0;
	struct data_file_op *op = errnum ? NULL : malloc(sizeof(*op));

	if (!op) {
		fuse_reply_err(req, errnum ? errnum : ENOMEM);
		return;
	}
	*op = (struct data_file_op){
	        .job.run = run_data_file, .req = req, .fs = ps_op_fs(req), .handle = open->handle};
	ps_background_add(&op->fs->background, &op->job);
}

struct plan_op {
	struct ps_job job;
	fuse_req_t req;
	struct ps_fs *fs;
	struct ps_plan_feed **feed;
	bool other_user;
	struct ps_ioc_text text;
};

static int feed_new(struct ps_fs *fs, bool other_user, struct ps_plan_feed **ret)
{
	struct ps_plan_source *sources = calloc(fs->nsources, sizeof(*sources));
	int rc = sources ? 0 : -ENOMEM;

	for (size_t i = 0; sources && i < fs->nsources; i++)
		sources[i] = (struct ps_plan_source){fs->sources[i].name, fs->sources[i].dataset};
	if (rc == 0)
		rc = ps_plan_feed_new(sources, fs->nsources, other_user, ret);
	free(sources);
	return rc;
}

static void run_plan(struct ps_job *job)
{
	ps_autofree struct plan_op *op = PS_CONTAINER_OF(job, struct plan_op, job);
	int rc = 0;

	/* Where OPEN is answered ENOSYS (--members), a plan ends when the kernel forgets the node. The
	 * kernel does that at the close of the last descriptor if it has dropped the name before. */
	if (!*op->feed && op->fs->view)
		ps_fs_invalidate(
		        op->fs, ps_virtual_lookup(FUSE_ROOT_ID, ".penstock"), "plan", strlen("plan"));
	if (!*op->feed)
		rc = feed_new(op->fs, op->other_user, op->feed);
	if (rc == 0)
		rc = ps_plan_feed_write(*op->feed, op->text.text, op->text.nbytes);
	if (rc < 0)
		fuse_reply_err(op->req, rc == -EOPNOTSUPP ? ENOTTY : -rc);
	else
		fuse_reply_ioctl(op->req, 0, NULL, 0);
}

void ps_op_ioctl_plan(fuse_req_t req, struct ps_plan_feed **feed, const void *in, size_t in_nbytes)
{
	struct plan_op *op = in_nbytes == sizeof(op->text) ? malloc(sizeof(*op)) : NULL;

	if (!op) {
		fuse_reply_err(req, in_nbytes == sizeof(op->text) ? ENOMEM : EINVAL);
		return;
	}
	*op = (struct plan_op){.job.run = run_plan,
	        .req = req,
	        .fs = ps_op_fs(req),
	        .feed = feed,
	        .other_user = !ps_op_is_owner(req)};
	memcpy(&op->text, in, sizeof(op->text));
	if (op->text.nbytes > sizeof(op->text.text)) {
		free(op);
		fuse_reply_err(req, EINVAL);
		return;
	}
	ps_background_add(&ps_op_fs(req)->background, &op->job);
}

/* Listing again ------------------------------------------------------------------------------------------ */

struct refresh_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	/* sources without a result, and one for the issuer; fs.lock covers this and the next two */
	size_t nleft;
	int errnum; /* the first failure */
	struct ps_ioc_refreshed sum;
	struct ps_refresh of[]; /* one for each source */
};

static void free_refresh_op(struct ps_inflight *inflight)
{
	free(PS_CONTAINER_OF(inflight, struct refresh_op, inflight));
}

/* Counts the result of one source, or (result NULL) that every source has been asked. The last one
 * answers. */
static void count_refreshed(struct refresh_op *op, int errnum, const struct ps_refreshed *result)
{
	struct ps_fs *fs = op->fs;

	pthread_mutex_lock(&fs->lock);
	if (errnum && !op->errnum)
		op->errnum = errnum;
	if (result) {
		op->sum.nfiles += result->nfiles;
		op->sum.nadded += result->nadded;
		op->sum.nvanished += result->nvanished;
	}
	bool last = --op->nleft == 0;
	pthread_mutex_unlock(&fs->lock);
	if (!last)
		return;
	if (ps_inflight_claim(&op->inflight)) {
		if (op->errnum)
			fuse_reply_err(op->inflight.req, ps_fs_errno(op->errnum));
		else
			fuse_reply_ioctl(op->inflight.req, 0, &op->sum, sizeof(op->sum));
	}
	ps_inflight_put(&op->inflight);
}

static void refreshed(struct ps_refresh *refresh, int errnum, const struct ps_refreshed *result)
{
	count_refreshed(refresh->arg, errnum, result);
}

void ps_op_ioctl_refresh(fuse_req_t req)
{
	struct ps_fs *fs = ps_op_fs(req);

	if (!ps_op_is_owner(req)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	struct refresh_op *op = malloc(sizeof(*op) + fs->nsources * sizeof(*op->of));

	if (!op) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	*op = (struct refresh_op){.fs = fs, .nleft = fs->nsources + 1};
	ps_inflight_init(&op->inflight, &fs->inflight, req, free_refresh_op, NULL);
	for (size_t i = 0; i < fs->nsources; i++) {
		op->of[i] = (struct ps_refresh){.watch = &fs->sources[i].watch, .done = refreshed, .arg = op};
		ps_dataset_refresh(&op->of[i]);
	}
	count_refreshed(op, 0, NULL);
	ps_inflight_issued(&op->inflight);
}

const struct ps_ioctl_request *ps_op_ioctl_find(fuse_req_t req, unsigned cmd, size_t out_nbytes)
{
	static const struct ps_ioctl_request requests[] = {
	        {PS_IOC_WARM, run_warm, true},
	        {PS_IOC_EVICT, ps_handle_evict, false},
	        {PS_IOC_PIN, ps_handle_pin, false},
	        {PS_IOC_UNPIN, ps_handle_unpin, false},
	        {PS_IOC_PIN_NBYTES, ps_handle_pin_nbytes, true},
	};
	size_t i = 0;

	while (i < PS_ARRAY_LEN(requests) && requests[i].cmd != cmd)
		i++;
	int errnum = i == PS_ARRAY_LEN(requests)                    ? ENOTTY
	             : !requests[i].for_all && !ps_op_is_owner(req) ? EPERM
	             : _IOC_SIZE(cmd) > out_nbytes                  ? EINVAL
	                                                            : 0;
	if (errnum)
		fuse_reply_err(req, errnum);
	return errnum ? NULL : &requests[i];
}

void ps_op_ioctl_handle(fuse_req_t req, const struct ps_ioctl_request *request, struct ps_handle *handle,
        void (*done)(void *arg), void *arg)
{
	struct ioctl_op *op = malloc(sizeof(*op));

	if (!op) {
		fuse_reply_err(req, ENOMEM);
		if (done)
			done(arg);
		return;
	}
	*op = (struct ioctl_op){.job.run = run_ioctl,
	        .req = req,
	        .handle = handle,
	        .request = request,
	        .done = done,
	        .arg = arg};
	ps_background_add(&ps_op_fs(req)->background, &op->job);
}

void ps_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
        unsigned flags, const void *in, size_t in_nbytes, size_t out_nbytes)
{
	struct ps_open *open = ps_op_open(req, fi);

	(void)arg;
	if (!open) {
		fuse_reply_err(req, EBADF);
		return;
	}
	if (flags & FUSE_IOCTL_DIR && ino == FUSE_ROOT_ID && cmd == PS_IOC_REFRESH) {
		ps_op_ioctl_refresh(req);
		return;
	}
	if (!(flags & FUSE_IOCTL_DIR) && ps_virtual_is_plan(ino) && cmd == PS_IOC_PLAN) {
		ps_op_ioctl_plan(req, &open->feed, in, in_nbytes);
		return;
	}
	if (flags & FUSE_IOCTL_DIR || open->kind != PS_OPEN_FILE) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	if (cmd == PS_IOC_DATA_FILE) {
		ioctl_data_file(req, open, out_nbytes);
		return;
	}
	const struct ps_ioctl_request *request = ps_op_ioctl_find(req, cmd, out_nbytes);
	if (request && !open->handle)
		fuse_reply_err(req, EIO);
	else if (request)
		ps_op_ioctl_handle(req, request, open->handle, NULL, NULL);
}
