#include "config.h"

#include "shard/file/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/io.h"

#define BUF_NBYTES (1UL << 20)
#define FRAME_NBYTES (4UL << 20) /* bytes of the tar in one zstd frame */
#define SEEKABLE_MAGIC 0x8F92EAB1u
#define SKIPPABLE_MAGIC 0x184D2A5Eu

struct frame {
	uint32_t compressed, whole;
};

struct ps_tar_out {
	int fd;
	bool own_fd;
	char *path, *tmp; /* tmp: NULL for the caller's descriptor */
	uint64_t left;    /* bytes of the member's data that are still to come */
	uint32_t pad;     /* bytes of padding after the data */
	uint8_t *buf;     /* bytes that were not written to the disk, or given to zstd, yet */
	size_t buf_n, buf_cap;
	uint64_t file_nbytes;
	void (*on_bytes)(void *ctx, const void *p, size_t n); /* NULL: none */
	void *on_bytes_ctx;

	ZSTD_CCtx *zstd; /* NULL: not compressed */
	uint8_t *zbuf;
	size_t zbuf_cap;
	struct frame *frames;
	size_t nframes, frames_cap;
};

/* Writing to the disk ------------------------------------------------------------------------------------ */

static int write_all(struct ps_tar_out *o, const void *data, size_t n, struct ps_error *err)
{
	int rc;

	if (o->on_bytes)
		o->on_bytes(o->on_bytes_ctx, data, n);
	o->file_nbytes += n;
	rc = ps_write_all(o->fd, data, n);
	return rc < 0 ? ps_error_set(err, -rc, "%s: cannot write: %s", o->path, strerror(-rc)) : 0;
}

/* Compresses what is in the buffer as one frame. */
static int frame_write(struct ps_tar_out *o, struct ps_error *err)
{
	size_t n = ZSTD_compress2(o->zstd, o->zbuf, o->zbuf_cap, o->buf, o->buf_n);

	if (ZSTD_isError(n))
		return ps_error_set(err, EIO, "%s: zstd: %s", o->path, ZSTD_getErrorName(n));
	if (o->nframes == o->frames_cap) {
		size_t cap = PS_MAX(o->frames_cap * 2, (size_t)64);
		struct frame *grown = reallocarray(o->frames, cap, sizeof(*grown));

		if (!grown)
			return ps_no_memory(err);
		o->frames = grown;
		o->frames_cap = cap;
	}
	o->frames[o->nframes++] = (struct frame){(uint32_t)n, (uint32_t)o->buf_n};
	return write_all(o, o->zbuf, n, err);
}

static int flush(struct ps_tar_out *o, struct ps_error *err)
{
	int rc = 0;

	if (o->buf_n > 0)
		rc = o->zstd ? frame_write(o, err) : write_all(o, o->buf, o->buf_n, err);
	o->buf_n = 0;
	return rc;
}

static int put(struct ps_tar_out *o, const void *data, size_t n, struct ps_error *err)
{
	const uint8_t *p = data;
	int rc = 0;

	while (n > 0 && rc == 0) {
		size_t now = PS_MIN(n, o->buf_cap - o->buf_n);

		memcpy(o->buf + o->buf_n, p, now);
		o->buf_n += now;
		p += now;
		n -= now;
		if (o->buf_n == o->buf_cap)
			rc = flush(o, err);
	}
	return rc;
}

static int put_zeros(struct ps_tar_out *o, size_t n, struct ps_error *err)
{
	static const uint8_t zeros[2 * PS_TAR_BLOCK];

	assert(n <= sizeof(zeros));
	return put(o, zeros, n, err);
}

static void le32(uint8_t *to, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(v >> (8 * i));
}

/* Writes the seek table, in a skippable frame of its own. */
static int table_write(struct ps_tar_out *o, struct ps_error *err)
{
	size_t nbytes = 8 + 8 * o->nframes + 9;
	ps_autofree uint8_t *table = malloc(nbytes);

	if (!table)
		return ps_no_memory(err);
	le32(table, SKIPPABLE_MAGIC);
	le32(table + 4, (uint32_t)(nbytes - 8));
	for (size_t i = 0; i < o->nframes; i++) {
		le32(table + 8 + 8 * i, o->frames[i].compressed);
		le32(table + 12 + 8 * i, o->frames[i].whole);
	}
	le32(table + nbytes - 9, (uint32_t)o->nframes);
	table[nbytes - 5] = 0; /* the table has no checksums: frames have their own */
	le32(table + nbytes - 4, SEEKABLE_MAGIC);
	return write_all(o, table, nbytes, err);
}

/* Headers ------------------------------------------------------------------------------------------------ */

#define NAME_MAX_USTAR 100
#define PREFIX_MAX_USTAR 155
#define SIZE_MAX_USTAR 077777777777ull

/* The place of the slash at which a name is split into prefix and name; 0: it fits unsplit; -1: it never
 * fits. */
static int name_cut(const char *name, size_t len)
{
	if (len <= NAME_MAX_USTAR)
		return 0;
	for (size_t i = PS_MIN(len - 1, (size_t)PREFIX_MAX_USTAR + 1); i-- > 1;)
		if (name[i] == '/' && i <= PREFIX_MAX_USTAR && len - i - 1 <= NAME_MAX_USTAR)
			return len - i - 1 > 0 ? (int)i : -1;
	return -1;
}

static void header_make(
        uint8_t h[PS_TAR_BLOCK], char type, const char *name, size_t len, int cut, uint64_t size)
{
	char number[16];
	unsigned sum = 0;

	memset(h, 0, PS_TAR_BLOCK);
	if (cut > 0) {
		memcpy(h + 345, name, (size_t)cut);
		memcpy(h, name + cut + 1, len - (size_t)cut - 1);
	} else {
		memcpy(h, name, PS_MIN(len, (size_t)NAME_MAX_USTAR));
	}
	memcpy(h + 100, "0000444", 7);
	memcpy(h + 108, "0000000", 7);
	memcpy(h + 116, "0000000", 7);
	snprintf(number, sizeof(number), "%011jo", (uintmax_t)PS_MIN(size, (uint64_t)SIZE_MAX_USTAR));
	memcpy(h + 124, number, 11);
	memcpy(h + 136, "00000000000", 11);
	memset(h + 148, ' ', 8);
	h[156] = (uint8_t)type;
	memcpy(h + 257, "ustar", 6);
	memcpy(h + 263, "00", 2);
	memcpy(h + 329, "0000000", 7);
	memcpy(h + 337, "0000000", 7);
	for (int i = 0; i < PS_TAR_BLOCK; i++)
		sum += h[i];
	snprintf(number, sizeof(number), "%06o", sum);
	memcpy(h + 148, number, 7);
}

/* Length of a pax record "LENGTH KEY=VALUE\n" whose length counts itself. */
static size_t record_len(size_t key_len, size_t value_len)
{
	size_t rest = key_len + value_len + 3, len = rest + 1;

	for (size_t digits = 1, ten = 10; len >= ten; digits++, ten *= 10)
		len = rest + digits + 1;
	return len;
}

struct needs {
	bool path, size;
	size_t pax_len; /* length of the pax data; 0: no pax header */
	int cut;
	char size_text[24];
};

static struct needs needs_of(const char *name, size_t len, uint64_t size)
{
	struct needs n = {.cut = name_cut(name, len), .size = size > SIZE_MAX_USTAR};

	n.path = n.cut < 0;
	snprintf(n.size_text, sizeof(n.size_text), "%ju", (uintmax_t)size);
	if (n.path)
		n.pax_len += record_len(4, len);
	if (n.size)
		n.pax_len += record_len(4, strlen(n.size_text));
	return n;
}

static uint64_t padded(uint64_t n)
{
	return (n + PS_TAR_BLOCK - 1) & ~(uint64_t)(PS_TAR_BLOCK - 1);
}

uint64_t ps_tar_out_member_nbytes(size_t name_len, const char *name, uint64_t size)
{
	struct needs n = needs_of(name, name_len, size);

	return PS_TAR_BLOCK + padded(size) + (n.pax_len ? PS_TAR_BLOCK + padded(n.pax_len) : 0);
}

static int pax_write(
        struct ps_tar_out *o, const struct needs *n, const char *name, size_t len, struct ps_error *err)
{
	uint8_t h[PS_TAR_BLOCK];
	ps_autofree char *text = malloc(n->pax_len + 1);
	size_t at = 0;

	if (!text)
		return ps_no_memory(err);
	if (n->path)
		at = (size_t)sprintf(text, "%zu path=%.*s\n", record_len(4, len), (int)len, name);
	if (n->size)
		at += (size_t)sprintf(
		        text + at, "%zu size=%s\n", record_len(4, strlen(n->size_text)), n->size_text);
	assert(at == n->pax_len);
	header_make(h, 'x', "PaxHeader", 9, 0, at);
	int rc = put(o, h, sizeof(h), err);
	if (rc == 0)
		rc = put(o, text, at, err);
	return rc == 0 ? put_zeros(o, (size_t)(padded(at) - at), err) : rc;
}

/* The shard ---------------------------------------------------------------------------------------------- */

static struct ps_tar_out *out_new(const char *path, int level)
{
	struct ps_tar_out *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->fd = -1;
	o->path = strdup(path);
	o->buf_cap = BUF_NBYTES;
	bool whole = o->path;
	if (level != 0) {
		o->buf_cap = FRAME_NBYTES;
		o->zbuf_cap = ZSTD_compressBound(FRAME_NBYTES);
		o->zbuf = malloc(o->zbuf_cap);
		o->zstd = ZSTD_createCCtx();
		whole = whole && o->zbuf && o->zstd;
	}
	if (o->zstd) {
		ZSTD_CCtx_setParameter(o->zstd, ZSTD_c_compressionLevel, level);
		ZSTD_CCtx_setParameter(o->zstd, ZSTD_c_checksumFlag, 1);
	}
	o->buf = malloc(o->buf_cap);
	if (whole && o->buf)
		return o;
	ps_tar_out_abort(o);
	return NULL;
}

int ps_tar_out_fd(int fd, const char *path, int level, struct ps_tar_out **ret_out, struct ps_error *err)
{
	struct ps_tar_out *o = out_new(path, level);

	if (!o)
		return ps_no_memory(err);
	o->fd = fd;
	*ret_out = o;
	return 0;
}

int ps_tar_out_open(const char *path, int level, struct ps_tar_out **ret_out, struct ps_error *err)
{
	struct ps_tar_out *o = out_new(path, level);

	if (o)
		o->tmp = ps_asprintf(err, "%s.tmp-%ld", path, (long)getpid());
	if (!o || !o->tmp) {
		ps_tar_out_abort(o);
		return ps_no_memory(err);
	}
	o->fd = open(o->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (o->fd < 0) {
		int rc = ps_error_set(err, errno, "%s: cannot create: %s", o->tmp, strerror(errno));

		free(ps_steal_ptr(&o->tmp));
		ps_tar_out_abort(o);
		return rc;
	}
	o->own_fd = true;
	*ret_out = o;
	return 0;
}

void ps_tar_out_watch(struct ps_tar_out *o, void (*on_bytes)(void *ctx, const void *p, size_t n), void *ctx)
{
	o->on_bytes = on_bytes;
	o->on_bytes_ctx = ctx;
}

int ps_tar_out_member(
        struct ps_tar_out *o, const char *name, size_t name_len, uint64_t size, struct ps_error *err)
{
	struct needs n = needs_of(name, name_len, size);
	uint8_t h[PS_TAR_BLOCK];
	int rc = 0;

	assert(o->left == 0);
	if (n.pax_len > 0)
		rc = pax_write(o, &n, name, name_len, err);
	if (rc < 0)
		return rc;
	header_make(h, '0', name, name_len, PS_MAX(n.cut, 0), size);
	o->left = size;
	o->pad = (uint32_t)(padded(size) - size);
	return put(o, h, sizeof(h), err);
}

int ps_tar_out_data(struct ps_tar_out *o, const void *data, size_t n, struct ps_error *err)
{
	assert(n <= o->left);
	o->left -= n;
	int rc = put(o, data, n, err);
	if (rc == 0 && o->left == 0 && n > 0)
		rc = put_zeros(o, o->pad, err);
	return rc;
}

int ps_tar_out_finish(struct ps_tar_out *o, uint64_t *ret_nbytes, struct ps_error *err)
{
	assert(o->left == 0);
	int rc = put_zeros(o, 2 * PS_TAR_BLOCK, err);
	if (rc == 0)
		rc = flush(o, err);
	if (rc == 0 && o->zstd)
		rc = table_write(o, err);
	if (rc == 0 && o->tmp && (fsync(o->fd) < 0 || rename(o->tmp, o->path) < 0))
		rc = ps_error_set(err, errno, "%s: cannot finish it: %s", o->path, strerror(errno));
	if (rc < 0)
		return rc;
	if (ret_nbytes)
		*ret_nbytes = o->file_nbytes;
	free(ps_steal_ptr(&o->tmp));
	ps_tar_out_abort(o);
	return 0;
}

void ps_tar_out_abort(struct ps_tar_out *o)
{
	if (!o)
		return;
	if (o->own_fd)
		close(o->fd);
	if (o->tmp)
		unlink(o->tmp);
	ZSTD_freeCCtx(o->zstd);
	free(o->tmp);
	free(o->path);
	free(o->buf);
	free(o->zbuf);
	free(o->frames);
	free(o);
}
