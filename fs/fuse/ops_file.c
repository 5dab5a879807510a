#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/tar.h"
#include "fuse/fuse.h"
#include "fuse/member_view.h"
#include "fuse/ops.h"

/* Open and release --------------------------------------------------------------------------------------- */

struct open_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	fuse_ino_t ino;
	uint64_t number; /* open_number() */
	struct fuse_file_info fi;
};

/* The number of the OPEN that this thread has read last. If the kernel has sent it to an earlier daemon, too,
 * closes what that one had opened. */
static uint64_t open_number(struct ps_fs *fs)
{
	bool again;
	uint64_t number = ps_handshake_request(&again);

	if (again)
		ps_fs_open_again(fs, number);
	return number;
}

/* Answers an open of a folder or a virtual file. The open file is a copy of `like`; the contents of `like` are
 * taken over. */
static void reply_open(fuse_req_t req, struct fuse_file_info *fi, const struct ps_open *like)
{
	struct ps_fs *fs = ps_op_fs(req);
	uint64_t number = open_number(fs);
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

void ps_op_open_file(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ps_fs *fs = ps_op_fs(req);

	if ((fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC) {
		fuse_reply_err(req, EROFS);
		return;
	}
	if (ps_virtual_is(ino)) {
		struct ps_open like = {.kind = PS_OPEN_VIRTUAL, .ino = ino};
		int rc = ps_virtual_text(fs, ino, ps_op_is_owner(req), &like.text, &like.text_len);

		fi->direct_io = 1; /* read to the end of the text, whatever the size is */
		if (rc < 0)
			fuse_reply_err(req, ps_fs_errno(-rc));
		else
			reply_open(req, fi, &like);
		return;
	}
	struct open_op *op = ps_inflight_new(sizeof(*op), &fs->inflight, req, NULL);
	if (!op)
		return;
	op->fs = fs;
	op->ino = ino;
	op->number = open_number(fs);
	op->fi = *fi;
	ps_handle_open(ps_fs_source(fs, ino)->dataset, ps_fs_node(fs, ino), open_done, op);
	ps_inflight_issued(&op->inflight);
}

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
	reply_open(req, fi, &like);
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

/* Where the bytes of a READ are: in an open file, or in a shard, whose handle the READ opens for itself. */
struct span {
	struct ps_handle *handle;       /* NULL: the shard is not open yet */
	struct ps_members *members;     /* of the shard; NULL: an open file */
	struct ps_member_shard *opened; /* the shard, if it is open: closed after the READ */
	uint64_t shard, offset;
	size_t nbytes;
	/* The table, if an index made it: the member's header is then read first, and compared with the
	 * table. NULL: no check. */
	const struct ps_member_table *checks;
	uint64_t header, size; /* the header's offset in the shard; the member's size */
	bool pages;            /* the kernel reads pages: it may send no INTERRUPT */
};

struct read_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	pthread_t issuer; /* a callback on this thread means that the read did not wait */
	struct span span;
	struct ps_read header_read, read;
};

static void cancel_read_op(struct ps_inflight *inflight)
{
	ps_read_cancel(&PS_CONTAINER_OF(inflight, struct read_op, inflight)->read);
}

/* Answers from memory, or from files by splice, without a copy. On a thread that is not the session's
 * (`late`) nothing is spliced: libfuse would keep a pipe for that thread, and the pipe would outlive the
 * session. Where members are shown, drops the data file's pages after they were copied: the kernel also caches
 * the bytes as the member's. */
static void reply_segments(fuse_req_t req, const struct ps_segment *segs, size_t nsegs, bool late)
{
	struct {
		struct fuse_bufvec vec;
		struct fuse_buf more[PS_READ_MAX_SEGMENTS - 1];
	} v = {.vec = {.count = nsegs}};
	struct iovec iov[PS_READ_MAX_SEGMENTS];
	bool in_files = false, members = ps_op_fs(req)->view;

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
	else if (nsegs > 0)
		fuse_reply_iov(req, iov, (int)nsegs);
	else
		fuse_reply_buf(req, NULL, 0);
	for (size_t i = 0; members && i < nsegs; i++)
		if (!segs[i].data)
			(void)posix_fadvise(
			        segs[i].fd, (off_t)segs[i].pos, (off_t)segs[i].nbytes, POSIX_FADV_DONTNEED);
}

static void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct read_op *op = PS_CONTAINER_OF(read, struct read_op, read);

	if (ps_inflight_claim(&op->inflight)) {
		if (errnum)
			fuse_reply_err(op->inflight.req, ps_fs_errno(errnum));
		else
			reply_segments(
			        op->inflight.req, segs, nsegs, !pthread_equal(op->issuer, pthread_self()));
	}
	if (op->span.opened)
		ps_member_close(op->span.opened, errnum != 0);
	ps_inflight_put(&op->inflight);
}

static void header_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct read_op *op = PS_CONTAINER_OF(read, struct read_op, header_read);

	if (!errnum && !ps_member_header_fits(segs, nsegs, op->span.size)) {
		if (ps_member_view_enter(op->fs)) {
			ps_members_distrust(op->span.members, op->span.checks);
			ps_member_view_leave(op->fs);
		}
		errnum = EIO;
	}
	if (errnum)
		read_done(&op->read, errnum, NULL, 0);
	else
		ps_handle_read(&op->read);
}

/* The file is open, as it was all along for a file that is no member (shard NULL): reads the header, if it must be
 * checked, and then the data. */
static void read_begin(void *arg, int errnum, struct ps_member_shard *shard)
{
	struct read_op *op = arg;
	const struct span *span = &op->span;

	op->span.opened = shard;
	if (errnum) {
		read_done(&op->read, errnum, NULL, 0);
		return;
	}
	op->read.handle = shard ? ps_member_handle(shard) : span->handle;
	if (span->checks) {
		op->header_read = (struct ps_read){.handle = op->read.handle,
		        .offset = span->header,
		        .nbytes = PS_TAR_BLOCK,
		        .whole_blocks = op->read.whole_blocks,
		        .done = header_done};
		ps_handle_read(&op->header_read);
	} else {
		ps_handle_read(&op->read);
	}
}

static void reply_hit(void *arg, const struct ps_segment *segs, size_t nsegs)
{
	reply_segments(arg, segs, nsegs, false);
}

/* The header before a member's data, if it is in the cache. */
static void header_hit(void *arg, const struct ps_segment *segs, size_t nsegs)
{
	struct span *span = arg;

	if (ps_member_header_fits(segs, nsegs, span->size))
		span->checks = NULL;
}

/* Answers at once if the bytes are in the cache. */
static void read_span(fuse_req_t req, struct ps_fs *fs, struct span *span)
{
	/* The file is open, and no header must be checked before its data is read. Always true of a file that is no
	 * member. */
	bool ready = span->handle;

	if (ready && span->checks)
		ready = ps_handle_try_read(
		                span->handle, span->header, PS_TAR_BLOCK, NULL, header_hit, span) &&
		        !span->checks;
	if (ready &&
	        ps_handle_try_read(span->handle, span->offset, span->nbytes, &fs->reads, reply_hit, req)) {
		if (span->opened)
			ps_member_close(span->opened, false);
		return;
	}
	/* Only a read of the data itself is cancelled. */
	struct read_op *op = ps_inflight_new(sizeof(*op), &fs->inflight, req, ready ? cancel_read_op : NULL);
	if (!op) {
		if (span->opened)
			ps_member_close(span->opened, false);
		return;
	}
	op->fs = fs;
	op->issuer = pthread_self();
	op->span = *span;
	op->read = (struct ps_read){.offset = span->offset,
	        .nbytes = span->nbytes,
	        .whole_blocks = span->members && ps_members_fit(span->members),
	        .stats = &fs->reads,
	        .done = read_done};
	op->inflight.silent = span->pages;
	if (span->handle)
		read_begin(op, 0, span->opened);
	else
		ps_member_open(span->members, span->shard, read_begin, op);
	ps_inflight_issued(&op->inflight);
}

static void read_text(fuse_req_t req, const char *text, size_t len, size_t size, off_t off)
{
	size_t from = (size_t)PS_MIN((uint64_t)off, (uint64_t)len);

	fuse_reply_buf(req, text ? text + from : NULL, PS_MIN(size, len - from));
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
		PS_LOCK_SCOPE(&open->reader);
		read_text(req, open->text, open->text_len, size, off);
		return;
	}
	if (!open->handle) { /* this daemon could not open it again */
		fuse_reply_err(req, EIO);
		return;
	}
	if (!atomic_load_explicit(&open->allowed, memory_order_relaxed))
		ps_fs_open_allowed(fs, open);
	note_read(fs, open, size, (uint64_t)off, fi);
	struct span span = {.handle = open->handle,
	        .offset = (uint64_t)off,
	        .nbytes = PS_MIN(size, PS_READ_MAX_NBYTES),
	        .pages = fi->lock_owner == 0};
	read_span(req, fs, &span);
}

/* The whole file of a node id. */
static int span_of(const struct ps_place *place, struct span *ret)
{
	struct ps_member member;

	if (place->kind != PS_PLACE_NODE && place->kind != PS_PLACE_SHARD && place->kind != PS_PLACE_MEMBER)
		return -EISDIR;
	*ret = (struct span){.members = place->source->members,
	        .shard = place->number,
	        .size = UINT64_MAX,
	        .pages = true}; /* as there is no open for direct I/O */
	if (place->kind != PS_PLACE_MEMBER)
		return 0;
	int rc = ps_member_get(ret->members, place->table, place->ordinal, &member);
	if (rc < 0)
		return rc;
	ret->shard = place->table->shard;
	ret->offset = member.offset;
	ret->header = member.offset - PS_TAR_BLOCK;
	ret->size = member.size;
	ret->checks = place->table->by_index ? place->table : NULL;
	return member.kind == PS_MEMBER_FILE ? 0 : -EISDIR;
}

void ps_op_read_member(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_place place;
	struct span span;
	int rc = off < 0 ? -EINVAL : ps_place_of(fs, ino, &place);

	(void)fi;
	if (rc == 0 && place.kind == PS_PLACE_SNAPSHOT) {
		/* The kernel does not forget a node while it reads it. */
		const struct ps_snapshot *snapshot = ps_snapshot_find(fs, place.number);

		read_text(req, snapshot ? snapshot->text : NULL, snapshot ? snapshot->len : 0, size, off);
		return;
	}
	if (rc == 0)
		rc = span_of(&place, &span);
	if (rc < 0) {
		fuse_reply_err(req, ps_fs_errno(-rc));
		return;
	}
	uint64_t from = PS_MIN((uint64_t)off, span.size);
	span.offset += from;
	span.nbytes = (size_t)PS_MIN(PS_MIN((uint64_t)size, PS_READ_MAX_NBYTES), span.size - from);
	if (span.nbytes == 0) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	span.opened = ps_member_opened(span.members, span.shard);
	span.handle = span.opened ? ps_member_handle(span.opened) : NULL;
	read_span(req, fs, &span);
}

/* Requests by ioctl -------------------------------------------------------------------------------------- */

/* A request on a file; one on a member acts on its shard. */
struct ioctl_request {
	unsigned cmd;
	int (*run)(struct ps_handle *handle, uint64_t *ret_nbytes); /* NULL: PS_IOC_DATA_FILE */
	bool for_all; /* allowed for any user who may read the file */
};

static int run_warm(struct ps_handle *handle, uint64_t *ret_nbytes)
{
	(void)ret_nbytes;
	return ps_handle_warm(handle);
}

/* The request, if this user may make it; else answers and returns NULL. */
static const struct ioctl_request *find_request(fuse_req_t req, unsigned cmd, size_t out_nbytes)
{
	static const struct ioctl_request requests[] = {
	        {PS_IOC_WARM, run_warm, true},
	        {PS_IOC_EVICT, ps_handle_evict, false},
	        {PS_IOC_PIN, ps_handle_pin, false},
	        {PS_IOC_UNPIN, ps_handle_unpin, false},
	        {PS_IOC_PIN_NBYTES, ps_handle_pin_nbytes, true},
	        {PS_IOC_DATA_FILE, NULL, false},
	};
	/* Where members are shown, the kernel's page cache holds the files, and no data file is handed over. */
	size_t i = 0, n = PS_ARRAY_LEN(requests) - (ps_op_fs(req)->view ? 1 : 0);

	while (i < n && requests[i].cmd != cmd)
		i++;
	int errnum = i == n                                         ? ENOTTY
	             : !requests[i].for_all && !ps_op_is_owner(req) ? EPERM
	             : _IOC_SIZE(cmd) > out_nbytes                  ? EINVAL
	                                                            : 0;
	if (errnum)
		fuse_reply_err(req, errnum);
	return errnum ? NULL : &requests[i];
}

/* Runs on the background thread. The kernel releases no file with a request in flight, so the handle lives
 * until the answer. */
struct ioctl_op {
	struct ps_job job;
	struct ps_fs *fs;
	fuse_req_t req;
	struct ps_handle *handle;
	struct ps_member_shard *shard; /* of the handle; NULL: of an open file */
	const struct ioctl_request *request;
	union {
		uint64_t nbytes;
		struct ps_ioc_data_file file;
	} out;
};

static int data_file(struct ioctl_op *op)
{
	ps_autofree struct ps_data_file *file = malloc(sizeof(*file));
	int rc = file ? ps_handle_data_file(op->handle, file) : -ENOMEM;

	if (rc < 0)
		return rc;
	op->out.file = (struct ps_ioc_data_file){.dev = file->dev, .ino = file->ino, .nbytes = file->nbytes};
	memcpy(op->out.file.path, file->path, sizeof(op->out.file.path));
	atomic_fetch_add(&op->fs->nhanded_over, 1);
	return 0;
}

static void run_ioctl(struct ps_job *job)
{
	ps_autofree struct ioctl_op *op = PS_CONTAINER_OF(job, struct ioctl_op, job);
	int rc = op->request->run ? op->request->run(op->handle, &op->out.nbytes) : data_file(op);

	if (rc < 0) /* ps_fs_errno() has neither ENOSPC nor ENODATA, which the commands report */
		fuse_reply_err(op->req, rc == -ENOSPC || rc == -ENODATA ? -rc : ps_fs_errno(-rc));
	else
		fuse_reply_ioctl(op->req, 0, &op->out, _IOC_SIZE(op->request->cmd));
	/* Closes the shard at once: evicted bytes keep their disk space while it is open. The next read
	 * opens it again. */
	if (op->shard)
		ps_member_close(op->shard, true);
}

static void begin_ioctl(fuse_req_t req, struct ps_fs *fs, const struct ioctl_request *request,
        struct ps_handle *handle, struct ps_member_shard *shard)
{
	struct ioctl_op *op = malloc(sizeof(*op));

	if (!op) {
		fuse_reply_err(req, ENOMEM);
		if (shard)
			ps_member_close(shard, true);
		return;
	}
	*op = (struct ioctl_op){.job.run = run_ioctl,
	        .fs = fs,
	        .req = req,
	        .handle = handle,
	        .shard = shard,
	        .request = request};
	ps_background_add(&fs->background, &op->job);
}

struct shard_ioctl_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	const struct ioctl_request *request;
};

static void ioctl_opened(void *arg, int errnum, struct ps_member_shard *shard)
{
	struct shard_ioctl_op *op = arg;
	bool ours = ps_inflight_claim(&op->inflight),
	     goes_on = !errnum && ours && ps_member_view_enter(op->fs);

	if (goes_on) {
		begin_ioctl(op->inflight.req, op->fs, op->request, ps_member_handle(shard), shard);
		ps_member_view_leave(op->fs);
	} else {
		if (ours)
			fuse_reply_err(op->inflight.req, errnum ? ps_fs_errno(errnum) : EINTR);
		if (shard)
			ps_member_close(shard, false);
	}
	ps_inflight_put(&op->inflight);
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

/* *feed: made if it is NULL. */
static void ioctl_plan(fuse_req_t req, struct ps_plan_feed **feed, const void *in, size_t in_nbytes)
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

static void ioctl_refresh(fuse_req_t req)
{
	struct ps_fs *fs = ps_op_fs(req);

	if (!ps_op_is_owner(req)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	struct refresh_op *op =
	        ps_inflight_new(sizeof(*op) + fs->nsources * sizeof(*op->of), &fs->inflight, req, NULL);

	if (!op)
		return;
	op->fs = fs;
	op->nleft = fs->nsources + 1;
	op->errnum = 0;
	op->sum = (struct ps_ioc_refreshed){0};
	for (size_t i = 0; i < fs->nsources; i++) {
		op->of[i] = (struct ps_refresh){.watch = &fs->sources[i].watch, .done = refreshed, .arg = op};
		ps_dataset_refresh(&op->of[i]);
	}
	count_refreshed(op, 0, NULL);
	ps_inflight_issued(&op->inflight);
}

static void ioctl_members(fuse_req_t req, struct ps_fs *fs)
{
	if (!ps_op_is_owner(req)) { /* making the tables may read all shards */
		fuse_reply_err(req, EPERM);
		return;
	}
	for (size_t i = 0; i < fs->nsources; i++)
		ps_members_make_all(fs->sources[i].members);
	fuse_reply_ioctl(req, 0, NULL, 0);
}

/* Where members are shown, a request names a node only. */
static void ioctl_of_node(
        fuse_req_t req, fuse_ino_t ino, unsigned cmd, const void *in, size_t in_nbytes, size_t out_nbytes)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_place place;
	struct span span;
	int rc = ps_place_of(fs, ino, &place);

	if (rc == 0 && place.kind == PS_PLACE_SNAPSHOT && cmd == PS_IOC_PLAN) {
		struct ps_snapshot *snapshot = ps_snapshot_find(fs, place.number);

		if (snapshot && ps_virtual_is_plan(snapshot->file))
			ioctl_plan(req, &snapshot->feed, in, in_nbytes);
		else
			fuse_reply_err(req, ENOTTY);
		return;
	}
	if (rc < 0 || span_of(&place, &span) < 0) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	const struct ioctl_request *request = find_request(req, cmd, out_nbytes);
	struct shard_ioctl_op *op = request ? ps_inflight_new(sizeof(*op), &fs->inflight, req, NULL) : NULL;
	if (!op)
		return;
	op->fs = fs;
	op->request = request;
	ps_member_open(span.members, span.shard, ioctl_opened, op);
	ps_inflight_issued(&op->inflight);
}

void ps_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
        unsigned flags, const void *in, size_t in_nbytes, size_t out_nbytes)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_open *open = fs->view ? NULL : ps_op_open(req, fi);
	const struct ioctl_request *request;

	(void)arg;
	if (!open && !fs->view)
		fuse_reply_err(req, EBADF);
	else if (ino == FUSE_ROOT_ID && cmd == PS_IOC_REFRESH)
		ioctl_refresh(req);
	else if (ino == FUSE_ROOT_ID && cmd == PS_IOC_MEMBERS && fs->view)
		ioctl_members(req, fs);
	else if (fs->view)
		ioctl_of_node(req, ino, cmd, in, in_nbytes, out_nbytes);
	else if (ps_virtual_is_plan(ino) && cmd == PS_IOC_PLAN)
		ioctl_plan(req, &open->feed, in, in_nbytes);
	else if (flags & FUSE_IOCTL_DIR || open->kind != PS_OPEN_FILE)
		fuse_reply_err(req, ENOTTY);
	else if ((request = find_request(req, cmd, out_nbytes)) && !open->handle)
		fuse_reply_err(req, EIO); /* not opened again after a takeover */
	else if (request && !request->run && open->mode == PS_MODE_PASSED)
		fuse_reply_err(req, ENODATA);
	else if (request)
		begin_ioctl(req, fs, request, open->handle, NULL);
}
