#include "config.h"

#include "shard/index.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "shard/shard.h"

#define PS_INDEX_HEAD 56
#define PS_INDEX_ENTRY 16
#define PS_INDEX_BAD (UINT64_C(1) << 63)

static const char magic[8] = "PSINDEX1";

enum {
	AT_SIZE = 8,
	AT_MTIME = 16,
	AT_COUNT = 24,
	AT_FLAGS = 32,
	AT_ENTRIES_SUM = 40,
	AT_HEAD_SUM = 48,
};

#define FLAG_GLOBAL 1

static void u64_put(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static uint64_t u64_get(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static uint64_t hash(uint64_t h, const void *p, size_t n)
{
	const uint8_t *s = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * UINT64_C(0x100000001b3);
	return h;
}

static uint64_t mtime_ns(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

static int shard_stat(const char *shard, struct stat *ret_st, struct ps_load_error *err)
{
	if (stat(shard, ret_st) < 0)
		return ps_load_error_set(err, errno, "%s: cannot open: %s", shard, strerror(errno));
	if (!S_ISREG(ret_st->st_mode))
		return ps_load_error_set(err, EINVAL, "%s: only ordinary files can have an index", shard);
	return 0;
}

/* The index' path; NULL with err filled. */
static char *path_make(const char *shard, const char *dir, struct ps_load_error *err)
{
	const char *slash = strrchr(shard, '/');
	ps_autofree char *real = NULL;
	char *path = NULL;
	int n;

	if (!dir) {
		n = asprintf(&path, "%s" PS_INDEX_SUFFIX, shard);
	} else {
		real = realpath(shard, NULL);
		if (!real) {
			ps_load_error_set(err, errno, "%s: cannot open: %s", shard, strerror(errno));
			return NULL;
		}
		n = asprintf(&path, "%s/%s-%016jx" PS_INDEX_SUFFIX, dir, slash ? slash + 1 : shard,
		        (uintmax_t)hash(HASH_BEGIN, real, strlen(real)));
	}
	if (n < 0) {
		ps_load_error_set(err, ENOMEM, "out of memory");
		return NULL;
	}
	return path;
}

/* -- Reading ------------------------------------------------------------------------------------------- */

static int head_read(const char *path, uint8_t head[static PS_INDEX_HEAD], struct ps_load_error *err)
{
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return ps_load_error_set(
		        err, ENOENT, "%s: no such index; make it by penstock-loader index", path);
	if (fd < 0 || fstat(fd, &st) < 0 || (n = pread(fd, head, PS_INDEX_HEAD, 0)) < 0)
		return ps_load_error_set(err, errno, "%s: cannot read: %s", path, strerror(errno));
	if (n < PS_INDEX_HEAD || memcmp(head, magic, sizeof(magic)) != 0 ||
	        u64_get(head + AT_HEAD_SUM) != hash(HASH_BEGIN, head, AT_HEAD_SUM) ||
	        (uint64_t)st.st_size < PS_INDEX_HEAD ||
	        ((uint64_t)st.st_size - PS_INDEX_HEAD) % PS_INDEX_ENTRY != 0 ||
	        ((uint64_t)st.st_size - PS_INDEX_HEAD) / PS_INDEX_ENTRY != u64_get(head + AT_COUNT))
		return ps_load_error_set(err, EBADMSG,
		        "%s: damaged, or no index; make it anew by penstock-loader index", path);
	return 0;
}

int ps_index_count(const char *shard, const char *dir, uint64_t *ret_count, struct ps_load_error *err)
{
	ps_autofree char *path = NULL;
	uint8_t head[PS_INDEX_HEAD];
	struct stat st;
	int r = shard_stat(shard, &st, err);

	if (r < 0)
		return r;
	path = path_make(shard, dir, err);
	if (!path)
		return -err->err;
	r = head_read(path, head, err);
	if (r < 0)
		return r;
	if (u64_get(head + AT_SIZE) != (uint64_t)st.st_size || u64_get(head + AT_MTIME) != mtime_ns(&st))
		return ps_load_error_set(err, ESTALE,
		        "%s: the shard was changed since; make it anew by penstock-loader index", path);
	*ret_count = u64_get(head + AT_COUNT);
	return 0;
}

/* -- Making -------------------------------------------------------------------------------------------- */

/* An index being written, entry by entry. */
struct writer {
	FILE *f;
	uint64_t sum, count;
	bool global;
};

static int entry_write(struct writer *w, const struct ps_sample *s)
{
	uint8_t entry[PS_INDEX_ENTRY];
	uint64_t nbytes = 0;

	for (uint32_t i = 0; i < s->nfields; i++)
		nbytes += s->fields[i].size;
	u64_put(entry, s->offset | (s->bad ? PS_INDEX_BAD : 0));
	u64_put(entry + 8, nbytes);
	w->sum = hash(w->sum, entry, sizeof(entry));
	w->count++;
	w->global = w->global || (!s->bad && s->offset > 0 && s->resume_offset == 0);
	return fwrite(entry, sizeof(entry), 1, w->f) == 1 ? 0 : -EIO;
}

/* Writes the entries of all samples. */
static int entries_write(
        struct writer *w, const char *path, struct ps_index_result *res, struct ps_load_error *err)
{
	struct ps_shard_options options = {
	        .stream = {.buf_nbytes = 256 << 10, .wake_fd = -1}, .never_hold = true};
	struct ps_shard *shard = ps_shard_new(path, 0, &options, err);
	struct ps_sample *s;
	int r = shard ? 1 : -ENOMEM;

	while (r == 1 && (r = ps_shard_next(shard, &s, err)) == 1) {
		if (s->bad && res->bad++ == 0)
			ps_sample_error_set(&res->first_bad, s, s->reason);
		if (entry_write(w, s) < 0)
			r = ps_load_error_set(err, errno, "%s", strerror(errno));
		ps_sample_free(s);
	}
	ps_shard_free(shard);
	res->samples = w->count;
	return r;
}

static int head_write(struct writer *w, const struct stat *st)
{
	uint8_t head[PS_INDEX_HEAD];

	memcpy(head, magic, sizeof(magic));
	u64_put(head + AT_SIZE, (uint64_t)st->st_size);
	u64_put(head + AT_MTIME, mtime_ns(st));
	u64_put(head + AT_COUNT, w->count);
	u64_put(head + AT_FLAGS, w->global ? FLAG_GLOBAL : 0);
	u64_put(head + AT_ENTRIES_SUM, w->sum);
	u64_put(head + AT_HEAD_SUM, hash(HASH_BEGIN, head, AT_HEAD_SUM));
	rewind(w->f);
	return fwrite(head, sizeof(head), 1, w->f) == 1 && fflush(w->f) == 0 && fsync(fileno(w->f)) == 0
	               ? 0
	               : -EIO;
}

/* Writes all of the index to w->f. */
static int all_write(struct writer *w, const char *shard, const struct stat *before,
        struct ps_index_result *res, struct ps_load_error *err)
{
	static const uint8_t zeros[PS_INDEX_HEAD];
	struct stat after;
	int r;

	if (fwrite(zeros, sizeof(zeros), 1, w->f) != 1)
		return ps_load_error_set(err, errno, "cannot write: %s", strerror(errno));
	r = entries_write(w, shard, res, err);
	if (r == 0)
		r = shard_stat(shard, &after, err);
	if (r < 0)
		return r;
	if (after.st_size != before->st_size || mtime_ns(&after) != mtime_ns(before))
		return ps_load_error_set(err, EAGAIN, "%s: was changed while it was read; try again", shard);
	if (head_write(w, before) < 0)
		return ps_load_error_set(err, errno, "cannot write: %s", strerror(errno));
	return 0;
}

int ps_index_make(
        const char *shard, const char *dir, struct ps_index_result *ret_result, struct ps_load_error *err)
{
	ps_autofree char *path = NULL, *part = NULL;
	struct writer w = {.sum = HASH_BEGIN};
	struct stat st;
	int fd, r = shard_stat(shard, &st, err);

	*ret_result = (struct ps_index_result){0};
	if (r < 0)
		return r;
	path = path_make(shard, dir, err);
	if (!path)
		return -err->err;
	if (asprintf(&part, "%s.XXXXXX", path) < 0) {
		part = NULL;
		return ps_load_error_set(err, ENOMEM, "out of memory");
	}
	fd = mkostemp(part, O_CLOEXEC);
	if (fd < 0)
		return ps_load_error_set(err, errno, "%s: cannot write: %s%s", path, strerror(errno),
		        dir ? "" : "; --dir puts indexes into a folder of your own");
	(void)fchmod(fd, st.st_mode & 0666); /* who may read the shard may read its index */
	w.f = fdopen(fd, "w");
	if (!w.f) {
		close(fd);
		r = ps_load_error_set(err, ENOMEM, "out of memory");
	} else {
		r = all_write(&w, shard, &st, ret_result, err);
		if (fclose(w.f) != 0 && r == 0)
			r = ps_load_error_set(err, errno, "cannot write: %s", strerror(errno));
	}
	if (r == 0 && rename(part, path) < 0)
		r = ps_load_error_set(err, errno, "cannot write: %s", strerror(errno));
	if (r < 0) {
		(void)unlink(part);
		ps_load_error_prefix(err, "%s", path);
	}
	return r;
}
