/* Files of a mount that shows members. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/tar.h"
#include "fuse/fuse.h"
#include "fuse/member_ops.h"
#include "fuse/ops.h"

/* Forgetting --------------------------------------------------------------------------------------------- */

/* Only snapshots are freed. Other nodes stay valid whether the kernel knows them or not, so its lookups are
 * not counted. */
static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	(void)nlookup;
	if (ino >> PS_ALIAS_SHIFT == PS_ALIAS_SNAPSHOT)
		ps_snapshot_forget(ps_op_fs(req), ino & ((UINT64_C(1) << PS_ALIAS_SHIFT) - 1));
	fuse_reply_none(req);
}

/* Opens -------------------------------------------------------------------------------------------------- */

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino, (void)fi;
	fuse_reply_err(req, ENOSYS);
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

/* Reads -------------------------------------------------------------------------------------------------- */

struct read_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	struct ps_members *members;
	struct ps_member_shard *shard; /* NULL: it is being opened */
	pthread_t issuer;              /* a callback on this thread means that the read did not wait */
	/* The table, if an index made it: the member's header is then read first, and compared with the
	 * table. NULL: no check. */
	const struct ps_member_table *checks;
	uint64_t header, size; /* the header's offset in the shard; the member's size */
	struct ps_read header_read, read;
};

static void free_read_op(struct ps_inflight *inflight)
{
	free(PS_CONTAINER_OF(inflight, struct read_op, inflight));
}

static void cancel_read_op(struct ps_inflight *inflight)
{
	ps_read_cancel(&PS_CONTAINER_OF(inflight, struct read_op, inflight)->read);
}

/* Drops the data file's pages after they were copied: the kernel also caches the bytes as the member's. */
static void drop_pages(const struct ps_segment *segs, size_t nsegs)
{
	for (size_t i = 0; i < nsegs; i++)
		if (!segs[i].data)
			(void)posix_fadvise(
			        segs[i].fd, (off_t)segs[i].pos, (off_t)segs[i].nbytes, POSIX_FADV_DONTNEED);
}

static void reply_bytes(fuse_req_t req, const struct ps_segment *segs, size_t nsegs, bool late)
{
	if (nsegs == 0) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	ps_op_reply_segments(req, segs, nsegs, late);
	drop_pages(segs, nsegs);
}

static void reply_hit(void *arg, const struct ps_segment *segs, size_t nsegs)
{
	reply_bytes(arg, segs, nsegs, false);
}

/* The header before a member's data, if it is in the cache. */
struct header {
	uint64_t size; /* of the member */
	bool fits;
};

static void header_hit(void *arg, const struct ps_segment *segs, size_t nsegs)
{
	struct header *header = arg;

	header->fits = ps_member_header_fits(segs, nsegs, header->size);
}

static void read_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct read_op *op = PS_CONTAINER_OF(read, struct read_op, read);

	if (ps_inflight_claim(&op->inflight)) {
		if (errnum)
			fuse_reply_err(op->inflight.req, ps_fs_errno(errnum));
		else
			reply_bytes(
			        op->inflight.req, segs, nsegs, !pthread_equal(op->issuer, pthread_self()));
	}
	ps_member_close(op->shard, errnum != 0);
	ps_inflight_put(&op->inflight);
}

static void header_done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct read_op *op = PS_CONTAINER_OF(read, struct read_op, header_read);

	if (!errnum && !ps_member_header_fits(segs, nsegs, op->size)) {
		if (ps_member_view_enter(op->fs)) {
			ps_members_distrust(op->members, op->checks);
			ps_member_view_leave(op->fs);
		}
		errnum = EIO;
	}
	if (errnum)
		read_done(&op->read, errnum, NULL, 0);
	else
		ps_handle_read(&op->read);
}

static void read_opened(void *arg, int errnum, struct ps_member_shard *shard)
{
	struct read_op *op = arg;

	if (errnum) {
		if (ps_inflight_claim(&op->inflight))
			fuse_reply_err(op->inflight.req, ps_fs_errno(errnum));
		ps_inflight_put(&op->inflight);
		return;
	}
	op->shard = shard;
	op->read.handle = ps_member_handle(shard);
	if (op->checks) {
		op->header_read = (struct ps_read){.handle = op->read.handle,
		        .offset = op->header,
		        .nbytes = PS_TAR_BLOCK,
		        .whole_blocks = op->read.whole_blocks,
		        .done = header_done};
		ps_handle_read(&op->header_read);
	} else {
		ps_handle_read(&op->read);
	}
}

/* Where the bytes of a file are: the shard (or other file of the dataset), and the place in that. */
struct span {
	const struct ps_fs_source *source;
	uint64_t shard, offset, size;
	const struct ps_member_table *checks; /* as in struct read_op */
};

static int span_of(struct ps_fs *fs, const struct ps_place *place, struct span *ret)
{
	struct ps_member member;

	*ret = (struct span){.source = place->source, .shard = place->number, .size = UINT64_MAX};
	if (place->kind == PS_PLACE_NODE || place->kind == PS_PLACE_SHARD)
		return 0;
	if (place->kind != PS_PLACE_MEMBER)
		return -EISDIR;
	int rc = ps_member_get(place->source->members, place->table, place->ordinal, &member);
	if (rc < 0)
		return rc;
	(void)fs;
	ret->shard = place->table->shard;
	ret->offset = member.offset;
	ret->size = member.size;
	ret->checks = place->table->by_index ? place->table : NULL;
	return member.kind == PS_MEMBER_FILE ? 0 : -EISDIR;
}

static void read_snapshot(fuse_req_t req, struct ps_fs *fs, uint64_t number, size_t size, uint64_t off)
{
	/* The snapshot exists: the kernel does not forget a node while it reads it. */
	const struct ps_snapshot *snapshot = ps_snapshot_find(fs, number);
	size_t len = snapshot ? snapshot->len : 0, from = (size_t)PS_MIN(off, (uint64_t)len);

	fuse_reply_buf(req, snapshot ? snapshot->text + from : NULL, PS_MIN(size, len - from));
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_place place;
	struct span span;
	int rc = off < 0 ? -EINVAL : ps_place_of(fs, ino, &place);

	(void)fi;
	if (rc == 0 && place.kind == PS_PLACE_SNAPSHOT) {
		read_snapshot(req, fs, place.number, size, (uint64_t)off);
		return;
	}
	if (rc == 0)
		rc = span_of(fs, &place, &span);
	if (rc < 0) {
		fuse_reply_err(req, ps_fs_errno(-rc));
		return;
	}
	uint64_t from = PS_MIN((uint64_t)off, span.size);
	size_t nbytes = (size_t)PS_MIN(PS_MIN((uint64_t)size, PS_READ_MAX_NBYTES), span.size - from);
	if (nbytes == 0) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	struct ps_members *members = span.source->members;
	struct ps_member_shard *shard = ps_member_opened(members, span.shard);
	struct header header = {.size = span.size};
	bool checked = !span.checks;
	if (shard && !checked)
		checked = ps_handle_try_read(ps_member_handle(shard), span.offset - PS_TAR_BLOCK,
		                  PS_TAR_BLOCK, NULL, header_hit, &header) &&
		          header.fits;
	if (shard && checked &&
	        ps_handle_try_read(
	                ps_member_handle(shard), span.offset + from, nbytes, &fs->reads, reply_hit, req)) {
		ps_member_close(shard, false);
		return;
	}
	struct read_op *op = malloc(sizeof(*op));
	if (!op) {
		if (shard)
			ps_member_close(shard, false);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	op->fs = fs;
	op->members = members;
	op->issuer = pthread_self();
	op->read = (struct ps_read){.offset = span.offset + from,
	        .nbytes = nbytes,
	        .whole_blocks = ps_members_fit(members),
	        .stats = &fs->reads,
	        .done = read_done};
	/* Only a read of the data itself is cancelled. */
	op->checks = checked ? NULL : span.checks;
	op->header = span.offset - PS_TAR_BLOCK;
	op->size = span.size;
	bool reads = shard && checked;
	ps_inflight_init(&op->inflight, &fs->inflight, req, free_read_op, reads ? cancel_read_op : NULL);
	op->inflight.silent = true; /* the kernel reads pages, as there is no open for direct I/O */
	if (shard)
		read_opened(op, 0, shard);
	else
		ps_member_open(members, span.shard, read_opened, op);
	ps_inflight_issued(&op->inflight);
}

/* Requests by ioctl -------------------------------------------------------------------------------------- */

/* A request on a member acts on its shard. */
struct ioctl_op {
	struct ps_inflight inflight;
	struct ps_fs *fs;
	const struct ps_ioctl_request *request;
};

static void free_ioctl_op(struct ps_inflight *inflight)
{
	free(PS_CONTAINER_OF(inflight, struct ioctl_op, inflight));
}

/* Closes the shard at once: evicted bytes keep their disk space while it is open. The next read opens it
 * again. */
static void ioctl_done(void *shard)
{
	ps_member_close(shard, true);
}

static void ioctl_opened(void *arg, int errnum, struct ps_member_shard *shard)
{
	struct ioctl_op *op = arg;
	bool ours = ps_inflight_claim(&op->inflight),
	     goes_on = !errnum && ours && ps_member_view_enter(op->fs);

	if (goes_on) {
		ps_op_ioctl_handle(op->inflight.req, op->request, ps_member_handle(shard), ioctl_done, shard);
		ps_member_view_leave(op->fs);
	} else {
		if (ours)
			fuse_reply_err(op->inflight.req, errnum ? ps_fs_errno(errnum) : EINTR);
		if (shard)
			ps_member_close(shard, false);
	}
	ps_inflight_put(&op->inflight);
}

static void make_all(fuse_req_t req, struct ps_fs *fs)
{
	if (!ps_op_is_owner(req)) { /* making the tables may read all shards */
		fuse_reply_err(req, EPERM);
		return;
	}
	for (size_t i = 0; i < fs->nsources; i++)
		ps_members_make_all(fs->sources[i].members);
	fuse_reply_ioctl(req, 0, NULL, 0);
}

static void ioctl_plan(fuse_req_t req, struct ps_fs *fs, uint64_t number, const void *in, size_t in_nbytes)
{
	struct ps_snapshot *snapshot = ps_snapshot_find(fs, number);

	if (!snapshot || !ps_virtual_is_plan(snapshot->file)) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	ps_op_ioctl_plan(req, &snapshot->feed, in, in_nbytes);
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
        unsigned flags, const void *in, size_t in_nbytes, size_t out_nbytes)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_place place;
	struct span span;
	int rc;

	(void)arg, (void)fi, (void)flags;
	if (ino == FUSE_ROOT_ID && cmd == PS_IOC_REFRESH) {
		ps_op_ioctl_refresh(req);
		return;
	}
	if (ino == FUSE_ROOT_ID && cmd == PS_IOC_MEMBERS) {
		make_all(req, fs);
		return;
	}
	rc = ps_place_of(fs, ino, &place);
	if (rc == 0 && place.kind == PS_PLACE_SNAPSHOT && cmd == PS_IOC_PLAN) {
		ioctl_plan(req, fs, place.number, in, in_nbytes);
		return;
	}
	if (rc == 0)
		rc = span_of(fs, &place, &span);
	if (rc < 0) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	const struct ps_ioctl_request *request = ps_op_ioctl_find(req, cmd, out_nbytes);
	struct ioctl_op *op = request ? malloc(sizeof(*op)) : NULL;
	if (request && !op)
		fuse_reply_err(req, ENOMEM);
	if (!op)
		return;
	op->fs = fs;
	op->request = request;
	ps_inflight_init(&op->inflight, &fs->inflight, req, free_ioctl_op, NULL);
	ps_member_open(span.source->members, span.shard, ioctl_opened, op);
	ps_inflight_issued(&op->inflight);
}

/* Extended attributes ------------------------------------------------------------------------------------ */

/* A member has user.penstock.shard (the shard's URL), key (the path in the shard), offset, size and state
 * (the shard's). The folder of a shard has the attributes that the shard has as a file. */

static const char prefix[] = "user.penstock.";
static const char error_name[] = "user.penstock.error";
static const char entry_names[] = "user.penstock.shard\0user.penstock.key\0user.penstock.state";
static const char member_names[] = "user.penstock.shard\0user.penstock.key\0user.penstock.offset\0"
                                   "user.penstock.size\0user.penstock.state";

/* The text of a member's attribute; the caller frees it. -ENODATA: it has no such attribute. */
static int member_value(const struct ps_place *place, const char *name, char **ret)
{
	struct ps_node_info info = {0};
	struct ps_member member;
	int rc = ps_member_get(place->source->members, place->table, place->ordinal, &member);

	if (rc < 0)
		return rc;
	bool of_file = member.kind == PS_MEMBER_FILE;
	if (strcmp(name, "key") == 0)
		return ps_member_path(place->source->members, place->table, place->ordinal, ret);
	if (of_file && strcmp(name, "offset") == 0)
		rc = asprintf(ret, "%llu", (unsigned long long)member.offset);
	else if (of_file && strcmp(name, "size") == 0)
		rc = asprintf(ret, "%llu", (unsigned long long)member.size);
	else if (strcmp(name, "shard") != 0 && strcmp(name, "state") != 0)
		return -ENODATA;
	else
		rc = ps_node_info_get(place->source->dataset, place->table->shard, &info);
	if (rc == 0 && info.url)
		*ret = strdup(name[1] == 'h' ? info.url : info.state);
	ps_node_info_fini(&info);
	return rc < 0 ? -ENOMEM : *ret ? 0 : -ENODATA;
}

/* A text that says why the merged tree cannot be shown yet; the caller frees it. */
static char *merged_error(const struct ps_fs *fs, const struct ps_place *place)
{
	json_t *stats = ps_members_stats(place->source->members);
	json_int_t left = json_integer_value(json_object_get(stats, "shards")) -
	                  json_integer_value(json_object_get(stats, "known"));
	char *text = NULL;

	if (asprintf(&text, "the members of %lld shards are not known yet: penstock warm --members %s",
	            (long long)left, fs->mountpoint) < 0)
		text = NULL;
	json_decref(stats);
	return text;
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct ps_fs *fs = ps_op_fs(req);
	struct ps_place place;
	char *value = NULL, text[PS_ERROR_TEXT_LEN];
	int rc = ps_place_of(fs, ino, &place);

	if (strncmp(name, "user.", 5) != 0) {
		fuse_reply_err(req, EOPNOTSUPP);
	} else if (rc == -EAGAIN && strcmp(name, error_name) == 0 && (value = merged_error(fs, &place))) {
		ps_op_reply_xattr(req, value, strlen(value), size);
	} else if (rc == 0 && place.kind == PS_PLACE_MEMBER &&
	           strncmp(name, prefix, sizeof(prefix) - 1) == 0) {
		rc = member_value(&place, name + sizeof(prefix) - 1, &value);
		if (rc < 0)
			fuse_reply_err(req, rc == -ENODATA ? ENODATA : ps_fs_errno(-rc));
		else
			ps_op_reply_xattr(req, value, strlen(value), size);
	} else if (rc == 0 && place.kind == PS_PLACE_SHARD && strcmp(name, error_name) == 0 &&
	           (ps_members_error(place.source->members, place.number, text), text[0])) {
		ps_op_reply_xattr(req, text, strlen(text), size);
	} else if (rc == 0 && (place.kind == PS_PLACE_NODE || place.kind == PS_PLACE_SHARD ||
	                              place.kind == PS_PLACE_TOP)) {
		ps_op_getxattr(req, ps_node_number(ino), name, size);
	} else {
		fuse_reply_err(req, ENODATA);
	}
	free(value);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct ps_place place;
	struct ps_member member;
	int rc = ps_place_of(ps_op_fs(req), ino, &place);

	if (rc == 0 && place.kind == PS_PLACE_MEMBER &&
	        ps_member_get(place.source->members, place.table, place.ordinal, &member) == 0 &&
	        member.kind == PS_MEMBER_FILE)
		ps_op_reply_xattr(req, member_names, sizeof(member_names), size);
	else if (rc == 0 && place.kind == PS_PLACE_MEMBER)
		ps_op_reply_xattr(req, entry_names, sizeof(entry_names), size);
	else if (rc == 0 &&
	         (place.kind == PS_PLACE_NODE || place.kind == PS_PLACE_SHARD || place.kind == PS_PLACE_TOP))
		ps_op_listxattr(req, ps_node_number(ino), size);
	else
		ps_op_reply_xattr(req, "", 0, size);
}

/* Callbacks ---------------------------------------------------------------------------------------------- */

struct fuse_lowlevel_ops ps_member_ops(void)
{
	struct fuse_lowlevel_ops ops = ps_ops;

	ops.lookup = ps_member_lookup;
	ops.forget = op_forget;
	ops.getattr = ps_member_getattr;
	ops.readlink = op_readlink;
	ops.opendir = op_open;
	ops.readdir = ps_member_readdir;
	ops.readdirplus = ps_member_readdirplus;
	ops.open = op_open;
	ops.read = op_read;
	ops.ioctl = op_ioctl;
	ops.getxattr = op_getxattr;
	ops.listxattr = op_listxattr;
	/* The kernel sends neither: opens are answered with ENOSYS. */
	ops.release = NULL;
	ops.releasedir = NULL;
	return ops;
}
