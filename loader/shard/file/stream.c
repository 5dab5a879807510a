#include "config.h"

#include "shard/file/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <zstd_errors.h>

#include <zstd.h>
#ifdef HAVE_LISAL
#include <isa-l/igzip_lib.h>
#endif
#ifdef HAVE_LZ4
#include <lz4frame.h>
#endif

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"

#define FUSE_SUPER 0x65735546
/* Decompression of a shard while it is read: zstd and lz4 (any frames, skippable ones passed over; lz4's
 * legacy format is refused by name), gzip (any members).
 *
 * Damage is reported at its place: cut data, bytes after the last frame. A checksum follows its data, so bytes
 * have been handed out before a mismatch is found: it is noted (ps_stream_sum()), and reading continues.
 *
 * Memory, counted where there is a budget: zstd: the frame's window (2 to 8 MiB usually; more than
 * 2^PS_INFLATE_MAX_WINDOW_LOG is refused), gzip 0.1 MiB, lz4 up to 8 MiB. Ownership: a decompressor owns
 * its input. Threads: one at a time.   Locks: none. Blocks: as the input does.   Errors: -EBADMSG: damaged
 * or cut; -EFBIG: the window is too large; -ENOSYS: not built with that format; others: the input's. */
#define PS_INFLATE_MAX_WINDOW_LOG 27 /* 128 MiB: the limit of `zstd -d`, too */
#define PS_INFLATE_MAGIC 4           /* bytes that identify the format ... */
#define PS_INFLATE_SKIPPABLE 8       /* ... and those of a skippable frame's head */

/* If at least DIRECT_READ_MIN bytes of a field are still to be read, they are read straight into their place.
 * The same call reads some bytes after the field for the next headers: one call a field is cheaper than
 * copying the field. As many of these bytes are read as were used the last time; further ones would belong to
 * the next field and have to be copied. */
#define DIRECT_READ_MIN (32UL << 10)
#define AFTER_MIN 1024UL
#define AFTER_MAX (8UL << 10)

/* Unwanted stretches of at least SEEK_MIN bytes are skipped by seeking. The first read after a seek, and at
 * the start, is of READ_AFTER_SEEK bytes: what follows may be unwanted as well, or a large field. Later reads
 * double what was read since, so that the first samples need not wait for a far origin to bring a whole
 * buffer. */
#define SEEK_MIN (256UL << 10)
#define READ_AFTER_SEEK PS_STREAM_BUF_MIN

struct ps_stream {
	struct ps_inflate *inflate; /* decompresses the stream's bytes; NULL: they are read from fd */
	/* this stream is a decompressor's input: the meter counts the decompressed bytes instead */
	bool is_input;
	int fd;        /* -1: memory */
	int data_fd;   /* where the bytes of fd are read from; -1: from fd */
	bool seekable; /* an ordinary file: pread works, its size is known */
	bool eof;
	size_t after; /* bytes to read after a large field */
	int64_t size; /* size of the file when it was opened; -1: not an ordinary file */
	uint64_t run; /* offset of the first byte wanted, or of the first after SEEK_MIN bytes were skipped */
	/* path for open_again(); NULL once something was read, and for other than ordinary files */
	char *path;
	uint64_t offset; /* offset of buf[beg] in the file */
	uint8_t *buf;    /* with fd -1: the caller's memory */
	size_t cap, beg, end;
	struct ps_stream_options options;
};

/* Decompression ------------------------------------------------------------------------------------------ */

/* A piece of compressed bytes, and the memory for the decompressed ones. */
struct step {
	const uint8_t *in;
	size_t in_n;
	uint8_t *out;
	size_t out_n;
	size_t taken, made;
	bool ended; /* a frame (member) ended with `taken` ... */
	bool wrong; /* ... and its checksum does not match */
};

/* A frame (of gzip: member) of which bytes were read. */
struct frame {
	uint64_t begin; /* place of its first byte in the decompressed bytes */
	bool wrong;     /* its checksum does not match */
};

struct ps_inflate {
	struct ps_stream *in;
	enum ps_codec codec;
	bool inside;                   /* inside of a frame: the input must not end here */
	bool any, garbage;             /* any: a frame has ended; garbage: what follows is not a frame */
	struct ps_byte_budget *budget; /* NULL: not counted */
	size_t held;                   /* bytes that are counted in the budget */
	uint64_t made;                 /* decompressed bytes so far */
	struct ps_buf frames;          /* struct frame, in order */
	size_t frame_at;               /* the one that ps_stream_sum() begins with */
	size_t last;                   /* the last one that it looked at, ... */
	bool asked;                    /* ... whose checksum was not known to be wrong */
	/* zstd and lz4: bytes that the decoder asks for. It is given at most these, so that it takes a checksum by
	 * itself, ... */
	size_t hint;
	bool full; /* ... after all bytes before it were handed out: the last step had no room left */
	union {
		ZSTD_DCtx *zstd;
#ifdef HAVE_LISAL
		struct inflate_state *gzip;
#endif
#ifdef HAVE_LZ4
		LZ4F_dctx *lz4;
#endif
	};
};

static const char *const names[] = {"", "zstd", "gzip", "lz4", "lz4 (legacy format)"};

static bool is_lz4_legacy(const uint8_t *p)
{
	return p[0] == 0x02 && p[1] == 0x21 && p[2] == 0x4c && p[3] == 0x18;
}

static bool is_skippable(const uint8_t *p)
{
	return (p[0] & 0xf0) == 0x50 && p[1] == 0x2a && p[2] == 0x4d && p[3] == 0x18;
}

/* True if `head` begins a skippable frame; *ret_nbytes is its size, head included. */
static bool codec_skippable(const uint8_t head[static PS_INFLATE_SKIPPABLE], uint64_t *ret_nbytes)
{
	*ret_nbytes = PS_INFLATE_SKIPPABLE + ((uint64_t)head[4] | (uint64_t)head[5] << 8 |
	                                             (uint64_t)head[6] << 16 | (uint64_t)head[7] << 24);
	return is_skippable(head);
}

enum ps_codec ps_codec_detect(const uint8_t *p, size_t n)
{
	if (n < PS_INFLATE_MAGIC)
		return PS_CODEC_NONE;
	if (p[0] == 0x1f && p[1] == 0x8b && p[2] == 8)
		return PS_CODEC_GZIP;
	if (p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f && p[3] == 0xfd)
		return PS_CODEC_ZSTD;
	if (p[0] == 0x04 && p[1] == 0x22 && p[2] == 0x4d && p[3] == 0x18)
		return PS_CODEC_LZ4;
	if (is_lz4_legacy(p))
		return PS_CODEC_LZ4_LEGACY;
	return is_skippable(p) ? PS_CODEC_ZSTD : PS_CODEC_NONE;
}

/* zstd --------------------------------------------------------------------------------------------------- */

#define FIRST_HINT 5 /* bytes at the beginning of a frame from which the decoders know how to continue */

/* Ends a frame by its checksum, the `n` bytes at s->in, which does not match. */
static void sum_mismatches(struct ps_inflate *f, struct step *s, size_t n)
{
	s->taken = n;
	s->ended = s->wrong = true;
	f->hint = FIRST_HINT;
}

static int zstd_step(struct ps_inflate *f, struct step *s, struct ps_error *err)
{
	ZSTD_inBuffer in = {.src = s->in, .size = f->full ? 0 : PS_MIN(s->in_n, f->hint)};
	ZSTD_outBuffer out = {.dst = s->out, .size = s->out_n};
	size_t left = ZSTD_decompressStream(f->zstd, &out, &in);

	if (ZSTD_isError(left)) {
		uint64_t at = ps_stream_offset(f->in);

		if (ZSTD_getErrorCode(left) == ZSTD_error_checksum_wrong) {
			(void)ZSTD_DCtx_reset(f->zstd, ZSTD_reset_session_only);
			sum_mismatches(f, s, in.size);
			return 0;
		}
		if (ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge)
			return ps_error_set(err, EFBIG,
			        "zstd data with a window of more than 128 MiB; compress it without --long=28 "
			        "or more");
		if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
			return ps_error_set(err, ENOMEM, "no memory for decompression");
		return ps_error_set(err, EBADMSG, "damaged zstd data near byte %ju of the file: %s",
		        (uintmax_t)at, ZSTD_getErrorName(left));
	}
	s->taken = in.pos;
	s->made = out.pos;
	s->ended = left == 0;
	f->hint = left > 0 ? left : FIRST_HINT;
	return 0;
}

/* gzip --------------------------------------------------------------------------------------------------- */

#ifdef HAVE_LISAL
static void gzip_begin(struct ps_inflate *f)
{
	isal_inflate_init(f->gzip);
	f->gzip->crc_flag = ISAL_GZIP;
}

static int gzip_step(struct ps_inflate *f, struct step *s, struct ps_error *err)
{
	size_t in_n = PS_MIN(s->in_n, (size_t)1 << 30), out_n = PS_MIN(s->out_n, (size_t)1 << 30);
	int rc;

	if (!f->inside) {
		size_t zeros = 0;

		while (zeros < s->in_n && s->in[zeros] == 0) /* padding from tapes and block devices */
			zeros++;
		if (zeros > 0) {
			s->taken = zeros;
			s->ended = true;
			return 0;
		}
		gzip_begin(f);
	}
	f->gzip->next_in = (uint8_t *)(uintptr_t)s->in; /* it is not written to */
	f->gzip->avail_in = (uint32_t)in_n;
	f->gzip->next_out = s->out;
	f->gzip->avail_out = (uint32_t)out_n;
	rc = isal_inflate(f->gzip);
	s->wrong = rc == ISAL_INCORRECT_CHECKSUM;
	if ((rc < 0 && !s->wrong) || rc == ISAL_NEED_DICT)
		return ps_error_set(err, EBADMSG, "damaged gzip data near byte %ju of the file: invalid gzip",
		        (uintmax_t)ps_stream_offset(f->in));
	s->taken = in_n - f->gzip->avail_in;
	s->made = out_n - f->gzip->avail_out;
	s->ended = s->wrong || f->gzip->block_state == ISAL_BLOCK_FINISH;
	return 0;
}
#endif

/* lz4 ---------------------------------------------------------------------------------------------------- */

#ifdef HAVE_LZ4
static int lz4_step(struct ps_inflate *f, struct step *s, struct ps_error *err)
{
	size_t given = f->full ? 0 : PS_MIN(s->in_n, f->hint), in_n = given, out_n = s->out_n,
	       left = LZ4F_decompress(f->lz4, s->out, &out_n, s->in, &in_n, NULL);

	if (LZ4F_isError(left) && strcmp(LZ4F_getErrorName(left), "ERROR_contentChecksum_invalid") == 0) {
		LZ4F_resetDecompressionContext(f->lz4);
		sum_mismatches(f, s, given);
		return 0;
	}
	if (LZ4F_isError(left))
		return ps_error_set(err, EBADMSG, "damaged lz4 data near byte %ju of the file: %s",
		        (uintmax_t)ps_stream_offset(f->in), LZ4F_getErrorName(left));
	s->taken = in_n;
	s->made = out_n;
	s->ended = left == 0;
	f->hint = left > 0 ? left : FIRST_HINT;
	return 0;
}

/* The library does not report its memory. An estimate: two blocks, and the output that later blocks refer
 * to. */
static size_t lz4_nbytes(const struct ps_inflate *f)
{
	static const size_t blocks[] = {[LZ4F_max64KB] = 64UL << 10,
	        [LZ4F_max256KB] = 256UL << 10,
	        [LZ4F_max1MB] = 1UL << 20,
	        [LZ4F_max4MB] = 4UL << 20};
	LZ4F_frameInfo_t info;
	size_t none = 0;

	if (!f->inside || LZ4F_isError(LZ4F_getFrameInfo(f->lz4, &info, NULL, &none)) ||
	        (size_t)info.blockSizeID >= PS_ARRAY_LEN(blocks))
		return f->held;
	return 2 * blocks[info.blockSizeID] + (128UL << 10);
}
#endif

/* All ---------------------------------------------------------------------------------------------------- */

static int unsupported(enum ps_codec codec, const char *library, struct ps_error *err)
{
	return ps_error_set(err, ENOSYS,
	        "is compressed by %s, which this build cannot read: install %s and build penstock again",
	        names[codec], library);
}

static int legacy_refuse(struct ps_error *err)
{
	return ps_error_set(err, ENOSYS,
	        "is compressed in lz4's legacy format, which is not read; compress it again with lz4 without "
	        "-l");
}

/* Makes the decoder. */
static int codec_new(struct ps_inflate *f, struct ps_error *err)
{
	bool made = false;

	f->hint = FIRST_HINT;
	switch (f->codec) {
	case PS_CODEC_ZSTD:
		f->zstd = ZSTD_createDCtx();
		made = f->zstd;
		if (made)
			(void)ZSTD_DCtx_setParameter(f->zstd, ZSTD_d_windowLogMax, PS_INFLATE_MAX_WINDOW_LOG);
		break;
	case PS_CODEC_GZIP:
#ifdef HAVE_LISAL
		f->gzip = malloc(sizeof(*f->gzip));
		made = f->gzip;
		if (made)
			gzip_begin(f);
		break;
#else
		return unsupported(f->codec, "libisal-dev", err);
#endif
	case PS_CODEC_LZ4:
#ifdef HAVE_LZ4
		made = !LZ4F_isError(LZ4F_createDecompressionContext(&f->lz4, LZ4F_VERSION));
		break;
#else
		return unsupported(f->codec, "liblz4-dev", err);
#endif
	case PS_CODEC_LZ4_LEGACY:
		return legacy_refuse(err);
	case PS_CODEC_NONE:
		return unsupported(PS_CODEC_NONE, "", err);
	}
	return made ? 0 : ps_error_set(err, ENOMEM, "no memory for decompression");
}

/* Counts the decoder's memory in the budget, even beyond it; the sample window gets the rest. */
static void held_count(struct ps_inflate *f)
{
	size_t held = f->held;

	if (!f->budget)
		return;
	if (f->codec == PS_CODEC_ZSTD)
		held = ZSTD_sizeof_DCtx(f->zstd);
#ifdef HAVE_LISAL
	if (f->codec == PS_CODEC_GZIP)
		held = sizeof(*f->gzip);
#endif
#ifdef HAVE_LZ4
	if (f->codec == PS_CODEC_LZ4)
		held = lz4_nbytes(f);
#endif
	if (held > f->held)
		ps_byte_budget_force(f->budget, held - f->held);
	else if (held < f->held)
		ps_byte_budget_give(f->budget, f->held - held);
	f->held = held;
}

/* On failure `in` is still the caller's. */
static int inflate_new(
        enum ps_codec codec, struct ps_stream *in, struct ps_inflate **ret_inflate, struct ps_error *err)
{
	struct ps_inflate *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return ps_no_memory(err);
	f->codec = codec;
	rc = codec_new(f, err);
	if (rc < 0) {
		free(f);
		return rc;
	}
	f->in = in;
	f->budget = in->options.budget;
	*ret_inflate = f;
	return 0;
}

static void inflate_free(struct ps_inflate *f)
{
	if (!f)
		return;
	if (f->held > 0)
		ps_byte_budget_give(f->budget, f->held);
	switch (f->codec) {
	case PS_CODEC_ZSTD:
		ZSTD_freeDCtx(f->zstd);
		break;
	case PS_CODEC_GZIP:
#ifdef HAVE_LISAL
		free(f->gzip);
#endif
		break;
	case PS_CODEC_LZ4:
#ifdef HAVE_LZ4
		LZ4F_freeDecompressionContext(f->lz4);
#endif
		break;
	case PS_CODEC_LZ4_LEGACY:
	case PS_CODEC_NONE:
		break;
	}
	ps_stream_free(f->in);
	ps_buf_fini(&f->frames);
	free(f);
}

static int step_make(struct ps_inflate *f, struct step *s, struct ps_error *err)
{
	switch (f->codec) {
	case PS_CODEC_ZSTD:
		return zstd_step(f, s, err);
#ifdef HAVE_LISAL
	case PS_CODEC_GZIP:
		return gzip_step(f, s, err);
#endif
#ifdef HAVE_LZ4
	case PS_CODEC_LZ4:
		return lz4_step(f, s, err);
#endif
	default:
		return -ENOSYS;
	}
}

/* True if the n bytes after a frame may begin another one; n may be less than a magic number. */
static bool may_begin(enum ps_codec codec, const uint8_t *p, size_t n)
{
	static const uint8_t magics[][4] = {[PS_CODEC_ZSTD] = {0x28, 0xb5, 0x2f, 0xfd},
	        [PS_CODEC_GZIP] = {0x1f, 0x8b, 8},
	        [PS_CODEC_LZ4] = {0x04, 0x22, 0x4d, 0x18}};

	if (codec == PS_CODEC_GZIP)
		return p[0] == 0 || memcmp(p, magics[codec], PS_MIN(n, (size_t)3)) == 0;
	return memcmp(p, magics[codec], PS_MIN(n, (size_t)4)) == 0 ||
	       ((p[0] & 0xf0) == 0x50 && memcmp(p + 1, "\x2a\x4d\x18", PS_MIN(n - 1, (size_t)3)) == 0);
}

static struct frame *frames_of(const struct ps_inflate *f)
{
	return (struct frame *)(void *)f->frames.p;
}

/* Notes where a frame begins. One without a byte is replaced by the next, unless its checksum is wrong. Forgets
 * frames that are no longer asked about. */
static int frame_begin(struct ps_inflate *f)
{
	struct frame frame = {.begin = f->made};
	size_t n = f->frames.n / sizeof(frame);

	if (f->frame_at > n / 2) {
		n -= f->frame_at;
		memmove(f->frames.p, &frames_of(f)[f->frame_at], n * sizeof(frame));
		f->frames.n = n * sizeof(frame);
		f->last -= f->frame_at;
		f->frame_at = 0;
	}
	if (n > 0 && frames_of(f)[n - 1].begin == f->made && !frames_of(f)[n - 1].wrong)
		return 0;
	return ps_buf_add(&f->frames, &frame, sizeof(frame));
}

struct ps_stream_sum ps_stream_sum(struct ps_stream *s, uint64_t from, uint64_t to)
{
	struct ps_inflate *f = s->inflate;
	const struct frame *frames = frames_of(f);
	size_t n = f->frames.n / sizeof(*frames);
	struct ps_stream_sum sum = {0};

	if (f->asked && frames[f->last].wrong)
		sum.passed = (f->last + 1 < n ? frames[f->last + 1].begin : f->made) <= from;
	while (f->frame_at + 1 < n && frames[f->frame_at + 1].begin <= from)
		f->frame_at++;
	f->last = f->frame_at;
	for (size_t i = f->frame_at; i < n && frames[i].begin < to; i++) {
		f->last = i;
		sum.last = frames[i].begin;
		if (!frames[i].wrong)
			continue;
		sum.wrong = true;
		if (i == f->frame_at)
			sum.wrong_before = frames[i].begin < from;
	}
	f->asked = n > 0 && !frames[f->last].wrong;
	return sum;
}

/* Reads up to n bytes; *ret_got is 0 at the end. */
static int inflate_read(struct ps_inflate *f, void *dst, size_t n, size_t *ret_got, struct ps_error *err)
{
	struct step s = {.out = dst, .out_n = n};

	*ret_got = 0;
	while (s.made == 0) {
		bool at_end;
		int rc = ps_stream_peek_some(f->in, &s.in, &s.in_n, err);

		if (rc < 0)
			return rc;
		at_end = s.in_n == 0;
		if (at_end && !f->inside)
			return 0;
		f->garbage = !f->inside && f->any && !may_begin(f->codec, s.in, s.in_n);
		if (f->garbage && s.in_n >= PS_INFLATE_MAGIC && is_lz4_legacy(s.in))
			return legacy_refuse(err);
		if (f->garbage)
			return ps_error_set(err, EBADMSG,
			        "garbage after the end of the %s data, at byte %ju of the file; write the "
			        "file again without it",
			        names[f->codec], (uintmax_t)ps_stream_offset(f->in));
		s.taken = 0;
		s.ended = s.wrong = false;
		if (!f->inside && frame_begin(f) < 0)
			return ps_no_memory(err);
		/* also at the end of the input: the decoder may hold output that had no room yet */
		rc = step_make(f, &s, err);
		if (rc < 0)
			return rc;
		if (s.taken == 0 && s.made == 0 && f->full) {
			f->full = false; /* nothing was left to be handed out */
			continue;
		}
		f->full = s.made == n;
		f->made += s.made;
		if (s.wrong)
			frames_of(f)[f->frames.n / sizeof(struct frame) - 1].wrong = true;
		ps_stream_take(f->in, s.taken);
		f->inside = !s.ended;
		f->any = f->any || s.ended;
		held_count(f);
		if (at_end && s.made == 0 && f->inside)
			return ps_error_set(err, EBADMSG,
			        "truncated: the %s data end inside of a frame, at byte %ju of the file",
			        names[f->codec], (uintmax_t)ps_stream_offset(f->in));
		if (!at_end && s.taken == 0 && s.made == 0)
			return ps_error_set(err, EBADMSG,
			        "damaged %s data at byte %ju of the file: no progress", names[f->codec],
			        (uintmax_t)ps_stream_offset(f->in));
	}
	*ret_got = s.made;
	return 0;
}

/* Reading ------------------------------------------------------------------------------------------------ */

static bool stopped(const struct ps_stream *s)
{
	return s->options.stop && atomic_load_explicit(s->options.stop, memory_order_relaxed);
}

/* Waits until a pipe is readable or the stop flag is raised. */
static int pipe_wait(struct ps_stream *s, struct ps_error *err)
{
	struct pollfd fds[2] = {
	        {.fd = s->fd, .events = POLLIN}, {.fd = s->options.wake_fd, .events = POLLIN}};

	while (!stopped(s)) {
		int n = poll(fds, 2, -1);

		if (n < 0 && errno != EINTR)
			return ps_error_set(err, errno, "cannot wait for data: %s", strerror(errno));
		if (n > 0 && fds[0].revents)
			return 0;
	}
	return -ECANCELED;
}

/* Opens the file again, once, after it changed at its origin (of a mount, or NFS) between open and first
 * read. No byte was read yet, so the result is the same as if the file had been opened a moment later. */
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
 * in dst is stored in `after`, up to nafter bytes; a read from a pipe stores nothing in it. */
static int file_read(struct ps_stream *s, void *dst, size_t n, void *after, size_t nafter, uint64_t at,
        size_t *ret_got, struct ps_error *err)
{
	struct iovec parts[2] = {{.iov_base = dst, .iov_len = n}, {.iov_base = after, .iov_len = nafter}};
	ssize_t got;

	for (;;) {
		if (stopped(s))
			return -ECANCELED;
		if (!s->seekable) {
			int rc = pipe_wait(s, err);

			if (rc < 0)
				return rc;
		}
		int fd = s->data_fd >= 0 ? s->data_fd : s->fd;
		got = s->seekable ? preadv(fd, parts, nafter > 0 ? 2 : 1, (off_t)at) : read(fd, dst, n);
		if (got >= 0)
			break;
		int e = errno;
		if (s->data_fd >= 0) {
			/* The mount may get the bytes from the origin. */
			close(ps_steal_fd(&s->data_fd));
			continue;
		}
		if (e != EINTR && e != EAGAIN && !(e == ESTALE && at == 0 && open_again(s)))
			return ps_error_set(err, e, "cannot read at offset %ju: %s", (uintmax_t)at,
			        e == ESTALE ? "the file was replaced after it had been opened" : strerror(e));
	}
	if (s->path)
		free(ps_steal_ptr(&s->path));
	*ret_got = (size_t)got;
	return 0;
}

/* Does file_read() and counts its time; its bytes are counted unless they are a decompressor's input. */
static int file_read_metered(struct ps_stream *s, void *dst, size_t n, void *after, size_t nafter,
        uint64_t at, size_t *ret_got, struct ps_error *err)
{
	struct ps_stream_meter *m = s->options.meter;
	uint64_t wall, cpu;
	int rc;

	if (!m)
		return file_read(s, dst, n, after, nafter, at, ret_got, err);
	wall = ps_clock_ns(CLOCK_MONOTONIC);
	cpu = ps_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	rc = file_read(s, dst, n, after, nafter, at, ret_got, err);
	wall = ps_clock_ns(CLOCK_MONOTONIC) - wall;
	cpu = ps_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	m->nbytes += rc == 0 && !s->is_input ? *ret_got : 0;
	m->wait_ns += wall > cpu ? wall - cpu : 0;
	return rc;
}

static int read_some(
        struct ps_stream *s, void *dst, size_t n, uint64_t at, size_t *ret_got, struct ps_error *err)
{
	int rc;

	if (!s->inflate)
		return file_read_metered(s, dst, n, NULL, 0, at, ret_got, err);
	if (stopped(s))
		return -ECANCELED;
	rc = inflate_read(s->inflate, dst, n, ret_got, err);
	if (rc == 0 && s->options.meter)
		s->options.meter->nbytes += *ret_got;
	return rc;
}

const char *ps_stream_path_hint(const char *path)
{
	if (strncmp(path, "pipe:", 5) == 0)
		return "pipe: is not read; mount the source (penstock mount), or give files";
	return strstr(path, "://") ? "it is a URL: mount it (penstock mount), and give the files" : NULL;
}

bool ps_path_is_on_mount(const char *shard)
{
	ps_autofree char *folder = strdup(shard);
	char *slash = folder ? strrchr(folder, '/') : NULL;
	struct statfs fs;

	if (statfs(shard, &fs) == 0)
		return (uint32_t)fs.f_type == FUSE_SUPER;
	if (errno == ENOTCONN)
		return true;
	if (slash)
		slash[slash == folder] = 0;
	return statfs(slash ? folder : ".", &fs) == 0 ? (uint32_t)fs.f_type == FUSE_SUPER : errno == ENOTCONN;
}

int ps_stream_open(const char *path, const struct ps_stream_options *options, struct ps_stream **ret_stream,
        struct ps_error *err)
{
	/* Not blocking: opening a pipe without a writer would hang, and the stop flag could not end that. */
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct ps_stream *s;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		int e = errno;
		const char *hint = e == ENOENT ? ps_stream_path_hint(path) : NULL;

		return ps_error_set(
		        err, e, "cannot open: %s%s%s", strerror(e), hint ? "; " : "", hint ? hint : "");
	}
	if (S_ISDIR(st.st_mode))
		return ps_error_set(err, EISDIR, "is a folder, not a tar file");
	s = calloc(1, sizeof(*s));
	if (!s)
		return ps_no_memory(err);
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
		return ps_no_memory(err);
	}
	if (s->seekable)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	s->after = AFTER_MAX;
	s->fd = ps_steal_fd(&fd);
	s->data_fd = s->seekable ? ps_data_file_open(s->fd) : -1;
	if (s->data_fd >= 0)
		(void)posix_fadvise(s->data_fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	*ret_stream = s;
	return 0;
}

void ps_stream_free(struct ps_stream *s)
{
	if (!s)
		return;
	inflate_free(s->inflate);
	if (s->data_fd >= 0)
		close(s->data_fd);
	if (s->fd >= 0)
		close(s->fd);
	if (s->fd >= 0 || s->inflate)
		free(s->buf);
	free(s->path);
	free(s);
}

/* The size of the next read into the buffer. */
static size_t read_nbytes(const struct ps_stream *s)
{
	size_t room = s->cap - s->end;
	uint64_t at = s->offset + (s->end - s->beg);

	return s->seekable && at >= s->run ? (size_t)PS_MIN(room, PS_MAX(at - s->run, READ_AFTER_SEEK))
	                                   : room;
}

int ps_stream_peek(struct ps_stream *s, size_t n, const uint8_t **ret_p, size_t *ret_n, struct ps_error *err)
{
	assert(n <= PS_STREAM_BUF_MIN);
	if (s->end - s->beg < n && !s->eof) {
		memmove(s->buf, s->buf + s->beg, s->end - s->beg);
		s->end -= s->beg;
		s->beg = 0;
	}
	while (s->end - s->beg < n && !s->eof) {
		size_t got;
		int rc = read_some(
		        s, s->buf + s->end, read_nbytes(s), s->offset + (s->end - s->beg), &got, err);

		if (rc < 0)
			return rc;
		s->eof = got == 0;
		s->end += got;
	}
	*ret_p = s->buf + s->beg;
	*ret_n = PS_MIN(n, s->end - s->beg);
	return 0;
}

int ps_stream_peek_some(struct ps_stream *s, const uint8_t **ret_p, size_t *ret_n, struct ps_error *err)
{
	int rc = ps_stream_peek(s, 1, ret_p, ret_n, err);

	*ret_n = s->end - s->beg;
	return rc;
}

void ps_stream_take(struct ps_stream *s, size_t n)
{
	assert(n <= s->end - s->beg);
	s->beg += n;
	s->offset += n;
}

/* Reads up to n bytes into their place. The buffer is empty, and receives the bytes after them. */
static int direct_read(struct ps_stream *s, void *dst, size_t n, size_t *ret_got, struct ps_error *err)
{
	bool file = s->seekable && !s->inflate;
	size_t got;
	int rc = file ? file_read_metered(s, dst, n, s->buf, s->after, s->offset, &got, err)
	              : read_some(s, dst, n, s->offset, &got, err);

	if (rc < 0)
		return rc;
	s->eof = got == 0;
	s->beg = 0;
	s->end = got > n ? got - n : 0;
	*ret_got = PS_MIN(got, n);
	s->offset += *ret_got;
	return 0;
}

int ps_stream_read(struct ps_stream *s, void *dst, size_t n, struct ps_error *err)
{
	uint8_t *out = dst;

	/* Where a large field begins, the bytes left in the buffer were read after the last field and not used. */
	if (n >= DIRECT_READ_MIN && s->beg == s->end)
		s->after = AFTER_MAX; /* all bytes were used: more may have been needed */
	else if (n >= DIRECT_READ_MIN && s->end <= AFTER_MAX)
		s->after = PS_MAX(s->beg, AFTER_MIN);
	while (n > 0) {
		size_t have = PS_MIN(n, s->end - s->beg);
		size_t got;
		int rc;

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
			rc = direct_read(s, out, n, &got, err);
			if (rc < 0)
				return rc;
			out += got;
			n -= got;
		} else {
			const uint8_t *p;

			rc = ps_stream_peek(s, 1, &p, &got, err);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

int ps_stream_read_at(struct ps_stream *s, void *dst, size_t n, uint64_t offset, struct ps_error *err)
{
	uint8_t *to = dst;

	while (n > 0) {
		size_t got;
		int rc = file_read_metered(s, to, n, NULL, 0, offset, &got, err);

		if (rc < 0)
			return rc;
		if (got == 0)
			return -ENODATA;
		to += got;
		n -= got;
		offset += got;
	}
	return 0;
}

int ps_stream_skip(struct ps_stream *s, uint64_t n, struct ps_error *err)
{
	if (n >= SEEK_MIN)
		s->run = s->offset + n;
	while (n > 0) {
		size_t have = (size_t)PS_MIN(n, (uint64_t)(s->end - s->beg));
		const uint8_t *p;
		int rc;

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
			s->offset += n; /* the buffer is empty: the next read starts at this offset */
			return 0;
		}
		rc = ps_stream_peek(s, 1, &p, &have, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int ps_stream_inflate(struct ps_stream **stream, struct ps_error *err)
{
	struct ps_stream *in = *stream, *s;
	enum ps_codec codec;
	const uint8_t *p;
	uint64_t skippable;
	bool passed = false;
	size_t n;
	int rc;

	for (;; passed = true) {
		rc = ps_stream_peek(in, PS_INFLATE_SKIPPABLE, &p, &n, err);
		if (rc < 0)
			return rc;
		if (n < PS_INFLATE_SKIPPABLE || !codec_skippable(p, &skippable))
			break;
		rc = ps_stream_skip(in, skippable, err);
		if (rc == -ENODATA)
			return ps_error_set(err, EBADMSG,
			        "truncated: the compressed data end inside of a skippable frame, at byte %ju "
			        "of "
			        "the file",
			        (uintmax_t)in->offset);
		if (rc < 0)
			return rc;
	}
	codec = ps_codec_detect(p, n);
	if (codec == PS_CODEC_NONE && passed)
		codec = PS_CODEC_ZSTD; /* its decoder reports the damage, unless the file ends here */
	if (codec == PS_CODEC_NONE)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ps_no_memory(err);
	s->fd = s->data_fd = -1;
	s->size = in->size;
	s->options = in->options;
	s->cap = PS_MAX(in->fd >= 0 ? in->cap : 0, PS_STREAM_BUF_MIN);
	s->buf = malloc(s->cap);
	rc = s->buf ? inflate_new(codec, in, &s->inflate, err) : ps_no_memory(err);
	if (rc < 0) {
		free(s->buf);
		free(s);
		return rc;
	}
	in->is_input = true;
	if (in->options.meter)
		/* the compressed bytes read to find the format do not count */
		in->options.meter->nbytes -= in->end - in->beg;
	*stream = s;
	return 0;
}

#define DRAIN_MAX (1UL << 20)

int ps_stream_drain(struct ps_stream *s, bool *ret_garbage, struct ps_error *err)
{
	size_t n = 1;

	*ret_garbage = false;
	for (size_t all = 0; s->inflate && n > 0 && all < DRAIN_MAX; all += n) {
		const uint8_t *p;
		int rc = ps_stream_peek_some(s, &p, &n, err);

		if (rc < 0) {
			*ret_garbage = s->inflate->garbage;
			return rc;
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

/* Members that are compressed by themselves -------------------------------------------------------------- */

#define FIRST_GUESS 4 /* assumed decompressed bytes for each compressed one, where the frame lacks its size */

static int damaged(const char *what, struct ps_error *err)
{
	return ps_error_set(err, EBADMSG, "damaged zstd data: %s", what);
}

static int unpack(ZSTD_DCtx *d, ZSTD_inBuffer *in, uint64_t max, struct ps_buf *out, struct ps_error *err)
{
	size_t left = 1;

	while (in->pos < in->size || left > 0) {
		ZSTD_outBuffer room = {.dst = out->p, .size = out->cap, .pos = out->n};
		size_t before = in->pos;

		left = ZSTD_decompressStream(d, &room, in);
		if (ZSTD_isError(left))
			return damaged(ZSTD_getErrorName(left), err);
		if (left > 0 && in->pos == in->size && room.pos == out->n && before == in->pos &&
		        room.pos < room.size)
			return damaged("it is cut off", err);
		out->n = room.pos;
		if (out->n > max)
			return ps_error_set(err, EFBIG,
			        "larger than the memory a sample may take (%ju bytes) when decompressed",
			        (uintmax_t)max);
		if (out->n == out->cap && (in->pos < in->size || left > 0) &&
		        ps_buf_reserve(out, out->n + 1) < 0)
			return ps_error_set(err, ENOMEM, "no memory to decompress %zu bytes", in->size);
	}
	return 0;
}

int ps_unpack(const uint8_t *data, size_t n, uint64_t max, struct ps_buf *ret_bytes, struct ps_error *err)
{
	ZSTD_inBuffer in = {.src = data, .size = n};
	unsigned long long size = ZSTD_getFrameContentSize(data, n);
	ZSTD_DCtx *d;
	int rc;

	if (size == ZSTD_CONTENTSIZE_ERROR)
		return damaged("it does not begin with a zstd frame", err);
	if (size == ZSTD_CONTENTSIZE_UNKNOWN || size > max)
		size = n <= max / FIRST_GUESS ? n * FIRST_GUESS : max;
	d = ZSTD_createDCtx();
	if (!d || ps_buf_reserve(ret_bytes, (size_t)size + 1) < 0) {
		ZSTD_freeDCtx(d);
		return ps_error_set(err, ENOMEM, "no memory to decompress %zu bytes", n);
	}
	(void)ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, PS_INFLATE_MAX_WINDOW_LOG);
	rc = unpack(d, &in, max, ret_bytes, err);
	ZSTD_freeDCtx(d);
	return rc;
}
