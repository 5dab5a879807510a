#include "config.h"

#include "shard/stream.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "shard/inflate.h"

/* Ends of large fields are read straight into their place from this size on, and with them what stands
 * behind, for the next headers: a call a field is cheaper than a copy of its bytes. As much as was taken of
 * it the last time: the head of the next large field would have to be copied. */
#define DIRECT_READ_MIN (32UL << 10)
#define BEHIND_MIN 1024UL
#define BEHIND_MAX (8UL << 10)

/* What nobody wants is passed over by seeking from this size on, and then so much is read at first, as at the
 * start: the next may be passed over, or be a large field, too. */
#define SEEK_MIN (256UL << 10)
#define READ_AFTER_SEEK PS_STREAM_BUF_MIN

struct ps_stream {
	struct ps_inflate *inflate; /* where the bytes come from instead of fd; NULL: nowhere else */
	bool is_input;              /* of an inflater: what it makes of the bytes is counted, not they */
	int fd;                     /* -1: memory */
	bool seekable;              /* an ordinary file: pread works, its size is known */
	bool eof;
	bool sought;     /* or as much was passed over, or it is the start; nothing was read since */
	size_t behind;   /* bytes to read behind a large field */
	int64_t size;    /* of the file when it was opened; -1: not an ordinary one */
	char *path;      /* until something was read; NULL: not an ordinary file */
	uint64_t offset; /* of buf[beg] in the file */
	uint8_t *buf;    /* with fd -1: the caller's memory */
	size_t cap, beg, end;
	struct ps_stream_options options;
};

static bool stopped(const struct ps_stream *s)
{
	return s->options.stop && atomic_load_explicit(s->options.stop, memory_order_relaxed);
}

/* Waits until a pipe has something to say or the stop flag is raised. */
static int pipe_wait(struct ps_stream *s, struct ps_load_error *err)
{
	struct pollfd fds[2] = {
	        {.fd = s->fd, .events = POLLIN}, {.fd = s->options.wake_fd, .events = POLLIN}};

	while (!stopped(s)) {
		int n = poll(fds, 2, -1);

		if (n < 0 && errno != EINTR)
			return ps_load_error_set(err, errno, "cannot wait for data: %s", strerror(errno));
		if (n > 0 && fds[0].revents)
			return 0;
	}
	return -ECANCELED;
}

/* The file changed where it comes from (a mount's origin, NFS) between its opening and the first read: nobody has a byte of it,
 * so the version of now is as good as if it had been opened a moment later. Once. */
static bool open_again(struct ps_stream *s)
{
	ps_autofree char *path = ps_steal_ptr(&s->path);
	ps_autofd int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	close(s->fd);
	s->fd = ps_steal_fd(&fd);
	s->size = (int64_t)st.st_size;
	return true;
}

/* One read() of up to n bytes at file offset `at`. Sets *ret_got, 0 at the end of the file. What does not fit
 * in dst any more goes to `behind`, up to nbehind bytes; a pipe gives none. */
static int file_read(struct ps_stream *s, void *dst, size_t n, void *behind, size_t nbehind, uint64_t at,
        size_t *ret_got, struct ps_load_error *err)
{
	struct iovec parts[2] = {{.iov_base = dst, .iov_len = n}, {.iov_base = behind, .iov_len = nbehind}};
	ssize_t got;

	for (;;) {
		if (stopped(s))
			return -ECANCELED;
		if (!s->seekable) {
			int r = pipe_wait(s, err);

			if (r < 0)
				return r;
		}
		got = s->seekable ? preadv(s->fd, parts, nbehind > 0 ? 2 : 1, (off_t)at)
		                  : read(s->fd, dst, n);
		if (got >= 0)
			break;
		int e = errno;
		if (e != EINTR && e != EAGAIN && !(e == ESTALE && at == 0 && open_again(s)))
			return ps_load_error_set(err, e, "cannot read at offset %ju: %s", (uintmax_t)at,
			        e == ESTALE ? "the file was replaced after it had been opened" : strerror(e));
	}
	if (s->path)
		free(ps_steal_ptr(&s->path));
	*ret_got = (size_t)got;
	return 0;
}

/* The same with its time; the input of a decompression leaves the count of bytes to that. */
static int file_read_metered(struct ps_stream *s, void *dst, size_t n, void *behind, size_t nbehind,
        uint64_t at, size_t *ret_got, struct ps_load_error *err)
{
	struct ps_stream_meter *m = s->options.meter;
	uint64_t wall, cpu;
	int r;

	if (!m)
		return file_read(s, dst, n, behind, nbehind, at, ret_got, err);
	wall = ps_clock_ns(CLOCK_MONOTONIC);
	cpu = ps_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	r = file_read(s, dst, n, behind, nbehind, at, ret_got, err);
	wall = ps_clock_ns(CLOCK_MONOTONIC) - wall;
	cpu = ps_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	m->nbytes += r == 0 && !s->is_input ? *ret_got : 0;
	m->wait_ns += wall > cpu ? wall - cpu : 0;
	return r;
}

static int read_some(
        struct ps_stream *s, void *dst, size_t n, uint64_t at, size_t *ret_got, struct ps_load_error *err)
{
	int r;

	if (!s->inflate)
		return file_read_metered(s, dst, n, NULL, 0, at, ret_got, err);
	if (stopped(s))
		return -ECANCELED;
	r = ps_inflate_read(s->inflate, dst, n, ret_got, err);
	if (r == 0 && s->options.meter)
		s->options.meter->nbytes += *ret_got;
	return r;
}

const char *ps_stream_path_hint(const char *path)
{
	if (strncmp(path, "pipe:", 5) == 0)
		return "pipe: is not read; mount the source (penstock mount), or give files";
	return strstr(path, "://") ? "it is a URL: mount it (penstock mount), and give the files" : NULL;
}

int ps_stream_open(const char *path, const struct ps_stream_options *options, struct ps_stream **ret_stream,
        struct ps_load_error *err)
{
	/* Not blocking, so that a pipe nobody writes to yet cannot hold us where no stop flag reaches. */
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct ps_stream *s;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		int e = errno;
		const char *hint = e == ENOENT ? ps_stream_path_hint(path) : NULL;

		return ps_load_error_set(
		        err, e, "cannot open: %s%s%s", strerror(e), hint ? "; " : "", hint ? hint : "");
	}
	if (S_ISDIR(st.st_mode))
		return ps_load_error_set(err, EISDIR, "is a folder, not a tar file");
	s = calloc(1, sizeof(*s));
	if (!s)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	s->options = *options;
	s->cap = PS_MIN(PS_MAX(options->buf_nbytes, PS_STREAM_BUF_MIN), PS_STREAM_BUF_MAX);
	s->seekable = S_ISREG(st.st_mode);
	s->size = s->seekable ? (int64_t)st.st_size : -1;
	s->buf = malloc(s->cap);
	s->path = s->seekable ? strdup(path) : NULL;
	if (!s->buf || (s->seekable && !s->path)) {
		free(s->path);
		free(s->buf);
		free(s);
		return ps_load_error_set(err, ENOMEM, "out of memory");
	}
	if (s->seekable)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	s->sought = s->seekable;
	s->behind = BEHIND_MAX;
	s->fd = ps_steal_fd(&fd);
	*ret_stream = s;
	return 0;
}

struct ps_stream *ps_stream_mem(const void *data, size_t nbytes)
{
	struct ps_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->fd = -1;
	s->size = -1;
	s->eof = true;
	s->buf = (uint8_t *)(uintptr_t)data; /* never written to: there is nothing more to read */
	s->cap = s->end = nbytes;
	s->options.wake_fd = -1;
	return s;
}

void ps_stream_free(struct ps_stream *s)
{
	if (!s)
		return;
	ps_inflate_free(s->inflate);
	if (s->fd >= 0)
		close(s->fd);
	if (s->fd >= 0 || s->inflate)
		free(s->buf);
	free(s->path);
	free(s);
}

int ps_stream_peek(
        struct ps_stream *s, size_t n, const uint8_t **ret_p, size_t *ret_n, struct ps_load_error *err)
{
	assert(n <= PS_STREAM_BUF_MIN);
	if (s->end - s->beg < n && !s->eof) {
		memmove(s->buf, s->buf + s->beg, s->end - s->beg);
		s->end -= s->beg;
		s->beg = 0;
	}
	while (s->end - s->beg < n && !s->eof) {
		size_t room = s->sought ? PS_MIN(s->cap - s->end, READ_AFTER_SEEK) : s->cap - s->end, got;
		int r = read_some(s, s->buf + s->end, room, s->offset + (s->end - s->beg), &got, err);

		if (r < 0)
			return r;
		s->eof = got == 0;
		s->sought = false;
		s->end += got;
	}
	*ret_p = s->buf + s->beg;
	*ret_n = PS_MIN(n, s->end - s->beg);
	return 0;
}

int ps_stream_peek_some(struct ps_stream *s, const uint8_t **ret_p, size_t *ret_n, struct ps_load_error *err)
{
	int r = ps_stream_peek(s, 1, ret_p, ret_n, err);

	*ret_n = s->end - s->beg;
	return r;
}

void ps_stream_take(struct ps_stream *s, size_t n)
{
	assert(n <= s->end - s->beg);
	s->beg += n;
	s->offset += n;
}

/* Reads up to n bytes into their place, with an empty buffer, which gets what stands behind them. */
static int direct_read(struct ps_stream *s, void *dst, size_t n, size_t *ret_got, struct ps_load_error *err)
{
	bool file = s->seekable && !s->inflate;
	size_t got;
	int r = file ? file_read_metered(s, dst, n, s->buf, s->behind, s->offset, &got, err)
	             : read_some(s, dst, n, s->offset, &got, err);

	if (r < 0)
		return r;
	s->eof = got == 0;
	s->beg = 0;
	s->end = got > n ? got - n : 0;
	*ret_got = PS_MIN(got, n);
	s->offset += *ret_got;
	return 0;
}

/* A large field begins: what is left in the buffer was read behind the last one in vain. */
static void behind_learn(struct ps_stream *s)
{
	if (s->beg == s->end)
		s->behind = BEHIND_MAX; /* it may have been too little */
	else if (s->end <= BEHIND_MAX)
		s->behind = PS_MAX(s->beg, BEHIND_MIN);
}

int ps_stream_read(struct ps_stream *s, void *dst, size_t n, struct ps_load_error *err)
{
	uint8_t *out = dst;

	if (n >= DIRECT_READ_MIN)
		behind_learn(s);
	while (n > 0) {
		size_t have = PS_MIN(n, s->end - s->beg);
		size_t got;
		int r;

		if (have > 0) {
			memcpy(out, s->buf + s->beg, have);
			ps_stream_take(s, have);
			out += have;
			n -= have;
			continue;
		}
		if (s->eof)
			return -ENODATA;
		if (n >= DIRECT_READ_MIN) {
			r = direct_read(s, out, n, &got, err);
			if (r < 0)
				return r;
			out += got;
			n -= got;
		} else {
			const uint8_t *p;

			r = ps_stream_peek(s, 1, &p, &got, err);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int ps_stream_skip(struct ps_stream *s, uint64_t n, struct ps_load_error *err)
{
	s->sought = s->sought || n >= SEEK_MIN;
	while (n > 0) {
		size_t have = (size_t)PS_MIN(n, (uint64_t)(s->end - s->beg));
		const uint8_t *p;
		int r;

		ps_stream_take(s, have);
		n -= have;
		if (n == 0)
			break;
		if (s->eof)
			return -ENODATA;
		if (s->seekable && n >= PS_MIN(s->cap, SEEK_MIN)) {
			uint64_t size = (uint64_t)s->size;

			if (s->offset > size || n > size - s->offset) {
				s->offset = PS_MAX(s->offset, size);
				s->eof = true;
				return -ENODATA;
			}
			s->offset += n; /* the buffer is empty here: the next read starts there */
			return 0;
		}
		r = ps_stream_peek(s, 1, &p, &have, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int ps_stream_inflate(struct ps_stream **stream, struct ps_load_error *err)
{
	struct ps_stream *in = *stream, *s;
	enum ps_codec codec;
	const uint8_t *p;
	uint64_t skippable;
	bool passed = false;
	size_t n;
	int r;

	for (;; passed = true) {
		r = ps_stream_peek(in, PS_INFLATE_SKIPPABLE, &p, &n, err);
		if (r < 0)
			return r;
		if (n < PS_INFLATE_SKIPPABLE || !ps_codec_skippable(p, &skippable))
			break;
		r = ps_stream_skip(in, skippable, err);
		if (r == -ENODATA)
			return ps_load_error_set(err, EBADMSG,
			        "truncated: the compressed data end inside of a skippable frame, at byte %ju "
			        "of "
			        "the file",
			        (uintmax_t)in->offset);
		if (r < 0)
			return r;
	}
	codec = ps_codec_detect(p, n);
	if (codec == PS_CODEC_NONE && passed)
		codec = PS_CODEC_ZSTD; /* which says what is wrong, if it is not the end */
	if (codec == PS_CODEC_NONE)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	s->fd = -1;
	s->size = in->size;
	s->options = in->options;
	s->cap = PS_MAX(in->fd >= 0 ? in->cap : 0, PS_STREAM_BUF_MIN);
	s->buf = malloc(s->cap);
	r = s->buf ? ps_inflate_new(codec, in, in->options.budget, &s->inflate, err)
	           : ps_load_error_set(err, ENOMEM, "out of memory");
	if (r < 0) {
		free(s->buf);
		free(s);
		return r;
	}
	in->is_input = true;
	if (in->options.meter)
		in->options.meter->nbytes -= in->end - in->beg; /* what it showed for its format */
	*stream = s;
	return 0;
}

#define DRAIN_MAX (1UL << 20)

int ps_stream_drain(struct ps_stream *s, bool *ret_garbage, struct ps_load_error *err)
{
	size_t n = 1;

	*ret_garbage = false;
	for (size_t all = 0; s->inflate && n > 0 && all < DRAIN_MAX; all += n) {
		const uint8_t *p;
		int r = ps_stream_peek_some(s, &p, &n, err);

		if (r < 0) {
			*ret_garbage = ps_inflate_has_garbage(s->inflate);
			return r;
		}
		ps_stream_take(s, n);
	}
	return 0;
}

bool ps_stream_is_inflated(const struct ps_stream *s)
{
	return s->inflate != NULL;
}

uint64_t ps_stream_offset(const struct ps_stream *s)
{
	return s->offset;
}

int64_t ps_stream_size(const struct ps_stream *s)
{
	return s->size;
}

int ps_stream_fd(const struct ps_stream *s)
{
	return s->seekable ? s->fd : -1;
}
