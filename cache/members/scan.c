/* Reads a shard through the cache, as a tar. */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "members/members_private.h"

/* The size of a read: in a stream; after a skip; in a shard of which only the headers are read. */
#define BEHIND_NBYTES (64 * 1024) /* how far from the end mark something is looked for; tar pads to 10 KiB */
#define STREAM_NBYTES PS_READ_MAX_NBYTES
#define SKIPPED_NBYTES (UINT64_C(64) << 10)
#define HEADER_NBYTES (UINT64_C(4) << 10)

struct source {
	struct ps_scan *scan;
	struct ps_handle *handle;
	uint64_t size, pos; /* pos: of the next byte to be taken */
	uint8_t *buf;       /* PS_TAR_PEEK_MAX + STREAM_NBYTES bytes */
	uint64_t from;      /* the offset of buf[0] */
	size_t n;
	bool complete; /* only what is needed is read: the shard is in the cache, or its end is scanned */
	bool skipped;  /* the buffer does not follow what was read before */
	bool alone;    /* reads begin no read-ahead */
};

void ps_scan_init(struct ps_scan *scan)
{
	*scan = (struct ps_scan){0};
	pthread_mutex_init(&scan->lock, NULL);
}

void ps_scan_fini(struct ps_scan *scan)
{
	pthread_mutex_destroy(&scan->lock);
}

void ps_scan_cancel(struct ps_scan *scan)
{
	PS_LOCK_SCOPE(&scan->lock);
	scan->cancelled = true;
	if (scan->waiting)
		ps_read_cancel(scan->waiting);
}

/* Reading ------------------------------------------------------------------------------------------------ */

struct wait {
	struct ps_read read;
	uint8_t *dst;
	size_t n; /* bytes copied */
	int errnum;
	sem_t done;
};

static int copy_segments(uint8_t *dst, const struct ps_segment *segs, size_t nsegs, size_t *ret_n)
{
	*ret_n = 0;
	for (size_t i = 0; i < nsegs; i++) {
		for (size_t at = 0; at < segs[i].nbytes;) {
			size_t left = segs[i].nbytes - at;
			ssize_t n = (ssize_t)left;

			if (segs[i].data)
				memcpy(dst + *ret_n, (const uint8_t *)segs[i].data + at, left);
			else
				n = pread(segs[i].fd, dst + *ret_n, left, (off_t)(segs[i].pos + at));
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				return n < 0 ? errno : EIO;
			at += (size_t)n;
			*ret_n += (size_t)n;
		}
	}
	return 0;
}

bool ps_member_header_fits(const struct ps_segment *segs, size_t nsegs, uint64_t size)
{
	uint8_t block[PS_TAR_BLOCK];
	size_t nbytes = 0;

	for (size_t i = 0; i < nsegs; i++)
		nbytes += segs[i].nbytes;
	return nbytes == sizeof(block) && copy_segments(block, segs, nsegs, &nbytes) == 0 &&
	       ps_tar_header_fits(block, size);
}

static void hit(void *arg, const struct ps_segment *segs, size_t nsegs)
{
	struct wait *w = arg;

	w->errnum = copy_segments(w->dst, segs, nsegs, &w->n);
}

static void done(struct ps_read *read, int errnum, const struct ps_segment *segs, size_t nsegs)
{
	struct wait *w = PS_CONTAINER_OF(read, struct wait, read);

	w->errnum = errnum ? errnum : copy_segments(w->dst, segs, nsegs, &w->n);
	sem_post(&w->done);
}

int ps_scan_read(struct ps_scan *scan, struct ps_handle *handle, uint64_t offset, size_t n, bool alone,
        uint8_t *dst, size_t *ret_n)
{
	struct wait w = {
	        .read = {.handle = handle, .offset = offset, .nbytes = n, .alone = alone, .done = done},
	        .dst = dst};

	pthread_mutex_lock(&scan->lock);
	bool cancelled = scan->cancelled;
	pthread_mutex_unlock(&scan->lock);
	if (cancelled)
		return -ECANCELED;
	if (alone || !ps_handle_try_read(handle, offset, n, NULL, hit, &w)) {
		sem_init(&w.done, 0, 0);
		ps_handle_read(&w.read);
		/* From here on the read can be cancelled; it stays alive until `waiting` is reset. */
		pthread_mutex_lock(&scan->lock);
		scan->waiting = &w.read;
		if (scan->cancelled)
			ps_read_cancel(&w.read);
		pthread_mutex_unlock(&scan->lock);
		while (sem_wait(&w.done) < 0 && errno == EINTR) {
		}
		pthread_mutex_lock(&scan->lock);
		scan->waiting = NULL;
		pthread_mutex_unlock(&scan->lock);
		sem_destroy(&w.done);
	}
	*ret_n = w.n;
	atomic_fetch_add(&scan->nread, w.n);
	return -w.errnum;
}

int ps_scan_prove(struct ps_scan *scan, struct ps_handle *handle)
{
	uint8_t byte;
	size_t n;

	return ps_handle_size(handle) ? ps_scan_read(scan, handle, 0, 1, true, &byte, &n) : 0;
}

static uint64_t end_of(const struct source *s)
{
	return s->from + s->n;
}

/* Reads the bytes that follow the buffer, and keeps those of the buffer from pos on. If pos is outside of the
 * buffer, reads the bytes at pos, and keeps none. */
static int fill(struct source *s, struct ps_error *err)
{
	size_t keep = 0, n = 0;

	if (s->pos >= s->from && s->pos <= end_of(s)) {
		keep = (size_t)(end_of(s) - s->pos);
		memmove(s->buf, s->buf + s->n - keep, keep);
	} else {
		s->skipped = true;
	}
	s->from = s->pos;
	s->n = keep;
	size_t want = (size_t)(s->complete ? HEADER_NBYTES : s->skipped ? SKIPPED_NBYTES : STREAM_NBYTES);
	s->skipped = false;
	uint64_t at = end_of(s);
	want = (size_t)PS_MIN((uint64_t)want, s->size - PS_MIN(at, s->size));
	int rc = want ? ps_scan_read(s->scan, s->handle, at, want, s->alone, s->buf + keep, &n) : 0;
	s->n += n;
	if (rc < 0)
		return ps_error_set(
		        err, -rc, "reading at offset %llu: %s", (unsigned long long)at, strerror(-rc));
	return 0;
}

static int peek(void *arg, size_t n, const uint8_t **ret_p, size_t *ret_n, struct ps_error *err)
{
	struct source *s = arg;
	uint64_t end = PS_MIN(s->pos + n, s->size);
	int rc = 0;

	while (rc == 0 && (s->pos < s->from || end_of(s) < end))
		rc = fill(s, err);
	if (rc < 0)
		return rc;
	size_t have = s->pos < end ? (size_t)(end - s->pos) : 0;
	*ret_p = s->buf + (have ? s->pos - s->from : 0);
	*ret_n = have;
	return 0;
}

static void take(void *arg, size_t n)
{
	struct source *s = arg;

	s->pos += n;
}

static int skip(void *arg, uint64_t n, struct ps_error *err)
{
	struct source *s = arg;
	uint64_t to = s->pos + n;
	int rc = 0;

	if (n > s->size || s->pos > s->size - n)
		return -ENODATA;
	while (rc == 0 && !s->complete && n <= PS_SCAN_SKIP_NBYTES && end_of(s) < to) {
		s->pos = end_of(s);
		rc = fill(s, err);
	}
	s->pos = to;
	return rc;
}

static int read_bytes(void *arg, void *dst, size_t n, struct ps_error *err)
{
	uint8_t *to = dst;

	while (n > 0) {
		const uint8_t *p;
		size_t have;
		int rc = peek(arg, PS_MIN(n, (size_t)PS_TAR_PEEK_MAX), &p, &have, err);

		if (rc < 0)
			return rc;
		if (have == 0)
			return -ENODATA;
		memcpy(to, p, have);
		take(arg, have);
		to += have;
		n -= have;
	}
	return 0;
}

static uint64_t offset(void *arg)
{
	return ((struct source *)arg)->pos;
}

static const struct ps_tar_source ops = {
        .peek = peek, .take = take, .read = read_bytes, .skip = skip, .offset = offset};

/* The walk ----------------------------------------------------------------------------------------------- */

/* Looks whether there is more than zeros after the end mark, as in archives that were joined. Readers of tars
 * ignore it; *ret_text says so. */
static int look_behind(struct source *s, char **ret_text, struct ps_error *err)
{
	static const uint8_t zeros[PS_TAR_BLOCK];
	uint64_t until = s->pos + PS_MIN((uint64_t)BEHIND_NBYTES, s->size - PS_MIN(s->pos, s->size));
	const uint8_t *p;
	size_t have;

	while (s->pos < until) {
		int rc = peek(s, PS_TAR_BLOCK, &p, &have, err);

		if (rc < 0)
			return rc;
		if (memcmp(p, zeros, have) != 0)
			return asprintf(ret_text,
			               "%llu bytes after the end mark, at offset %llu, are not shown (tar "
			               "--ignore-zeros reads them)",
			               (unsigned long long)(s->size - s->pos), (unsigned long long)s->pos) < 0
			               ? ps_no_memory(err)
			               : 0;
		take(s, have);
	}
	return 0;
}

int ps_scan_shard(struct ps_scan *scan, struct ps_handle *handle, bool complete, struct ps_member_tree *tree,
        char **ret_damage, struct ps_error *err)
{
	struct source s = {
	        .scan = scan, .handle = handle, .size = ps_handle_size(handle), .complete = complete};
	struct ps_tar *tar = ps_tar_new(&ops, &s, true);
	struct ps_tar_member member;
	int rc;

	*ret_damage = NULL;
	s.buf = malloc(PS_TAR_PEEK_MAX + STREAM_NBYTES);
	if (!tar || !s.buf) {
		rc = ps_no_memory(err);
	} else {
		bool any = false;

		while ((rc = ps_tar_next(tar, &member, err)) == 1) {
			/* The last member's data may be cut off. */
			if (member.size > s.size || member.offset > s.size - member.size) {
				rc = ps_error_set(err, EBADMSG,
				        "truncated: the shard ends within a member at offset %llu",
				        (unsigned long long)member.offset);
				break;
			}
			rc = ps_member_tree_add(tree, &member);
			if (rc < 0) {
				ps_error_set(err, -rc,
				        rc == -E2BIG ? "more than 4,194,304 members, or 256 MiB of names"
				                     : "out of memory");
				break;
			}
			any = true;
		}
		if (rc == 0 && any && !ps_tar_has_end(tar))
			rc = ps_error_set(err, EBADMSG, "no end mark: complete up to byte %llu, or cut there",
			        (unsigned long long)s.pos);
		if (rc == -EBADMSG && any) {
			*ret_damage = strdup(err->text);
			rc = *ret_damage ? 0 : ps_no_memory(err);
		} else if (rc == 0) {
			rc = look_behind(&s, ret_damage, err);
		}
	}
	ps_tar_free(tar);
	free(s.buf);
	return rc;
}

int ps_scan_ends(struct ps_scan *scan, struct ps_handle *handle, uint64_t from,
        const struct ps_tar_member *last, bool *ret_ends, struct ps_error *err)
{
	struct source s = {.scan = scan,
	        .handle = handle,
	        .size = ps_handle_size(handle),
	        .pos = from,
	        .complete = true,
	        .alone = true};
	struct ps_tar *tar = ps_tar_new(&ops, &s, true);
	struct ps_tar_member member;
	int rc = 1;

	s.buf = malloc(PS_TAR_PEEK_MAX + STREAM_NBYTES);
	if (!tar || !s.buf)
		rc = ps_no_memory(err);
	if (rc == 1 && last) {
		rc = ps_tar_next(tar, &member, err);
		if (rc == 1 && (member.kind != last->kind || member.offset != last->offset ||
		                       member.size != last->size || member.name_len != last->name_len ||
		                       memcmp(member.name, last->name, last->name_len) != 0))
			rc = 0;
	}
	bool found = rc == 1;
	if (found)
		rc = ps_tar_next(tar, &member, err);
	/* If the bytes there are not a tar, the shard does not end there as expected. */
	if (rc >= 0 || rc == -EBADMSG) {
		*ret_ends = found && rc == 0 && ps_tar_has_end(tar);
		rc = 0;
	}
	ps_tar_free(tar);
	free(s.buf);
	return rc;
}
