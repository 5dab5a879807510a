#include "config.h"

#include "shard/index/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "shard/index/format.h"

#define DALI_VERSION "v1.2"
#define BLOCK 512
#define PROBES 16 /* samples whose headers are checked, in addition to the last one */

char *ps_dali_path(const char *shard, const char *dir, struct ps_error *err)
{
	const char *slash = strrchr(shard, '/'), *name = slash ? slash + 1 : shard;
	const char *from = dir ? name : shard, *dot = strchr(name + (*name == '.'), '.');
	int len = (int)(dot ? dot - from : (ptrdiff_t)strlen(from));
	char *path;

	if (asprintf(&path, "%s%s%.*s.idx", dir ? dir : "", dir ? "/" : "", len, from) < 0) {
		ps_no_memory(err);
		return NULL;
	}
	return path;
}

/* Writing ------------------------------------------------------------------------------------------------ */

struct list {
	struct ps_buf text, key;
	uint64_t samples;
};

static int member_write(struct list *l, const struct ps_tar_member *m, const struct ps_name_parts *parts,
        struct ps_error *err)
{
	bool same = l->samples > 0 && l->key.n == parts->key_len &&
	            memcmp(l->key.p, m->name, parts->key_len) == 0;
	char numbers[64];
	int n = snprintf(numbers, sizeof(numbers), " %ju %ju ", (uintmax_t)m->offset, (uintmax_t)m->size);
	int rc = 0;

	if (parts->suffix_len == 0 || strpbrk(m->name, " \t\n\v\f\r"))
		return ps_error_set(err, EINVAL,
		        "member \"%.200s\": DALI's index cannot have names with white space, or without a "
		        "suffix",
		        m->name);
	if (!same) {
		l->key.n = 0;
		rc = ps_buf_add(&l->key, m->name, parts->key_len);
		l->samples++;
	}
	if (rc == 0 && l->text.n > 0)
		rc = ps_buf_add(&l->text, same ? " " : "\n", 1);
	if (rc == 0)
		rc = ps_buf_add(&l->text, parts->suffix, parts->suffix_len);
	if (rc == 0)
		rc = ps_buf_add(&l->text, numbers, (size_t)n);
	if (rc == 0)
		rc = ps_buf_add(&l->text, m->name, m->name_len);
	return rc < 0 ? ps_no_memory(err) : 0;
}

static int members_write(struct list *l, struct ps_tar *tar, struct ps_error *err)
{
	struct ps_name_parts parts;
	struct ps_tar_member m;
	int rc;

	while ((rc = ps_tar_next(tar, &m, err)) == 1) {
		if (!ps_tar_is_data(m.kind) || !ps_name_split(m.name, m.name_len, &parts))
			continue;
		if (m.kind == PS_TAR_SPARSE)
			return ps_error_set(err, EINVAL, "member \"%.200s\" is a sparse file", m.name);
		rc = member_write(l, &m, &parts, err);
		if (rc < 0)
			return rc;
	}
	return rc;
}

static int list_make(struct list *l, const char *shard, struct ps_error *err)
{
	const struct ps_stream_options options = {.buf_nbytes = 256 << 10, .wake_fd = -1};
	struct ps_stream *stream;
	struct ps_tar *tar;
	int rc = ps_stream_open(shard, &options, &stream, err);

	if (rc < 0)
		return rc;
	rc = ps_stream_inflate(&stream, err);
	tar = rc == 0 ? ps_stream_tar(stream) : NULL;
	if (rc == 0 && ps_stream_is_inflated(stream))
		rc = ps_error_set(
		        err, EINVAL, "is compressed, but DALI needs offsets in an uncompressed tar");
	else if (rc == 0 && !tar)
		rc = ps_no_memory(err);
	if (rc == 0)
		rc = members_write(l, tar, err);
	ps_tar_free(tar);
	ps_stream_free(stream);
	return rc;
}

int ps_dali_write(const char *shard, const char *path, uint64_t *ret_samples, struct ps_error *err)
{
	struct ps_shard_index_version version;
	struct ps_buf out = {0};
	struct list l = {0};
	char head[64];
	int rc = ps_shard_index_version_read(shard, &version, err);

	if (rc < 0)
		return rc;
	rc = list_make(&l, shard, err);
	if (rc < 0)
		ps_error_prefix(err, rc, "%s", shard);
	if (rc == 0)
		rc = ps_buf_add(&out, head,
		        (size_t)snprintf(head, sizeof(head), DALI_VERSION " %ju\n", (uintmax_t)l.samples));
	if (rc == 0)
		rc = ps_buf_add(&out, l.text.p, l.text.n);
	if (rc == 0 && l.text.n > 0)
		rc = ps_buf_add(&out, "\n", 1);
	if (rc == 0)
		rc = ps_shard_index_file_write(path, version.mode, out.p, out.n, err);
	*ret_samples = l.samples;
	ps_buf_fini(&out);
	ps_buf_fini(&l.text);
	ps_buf_fini(&l.key);
	return rc;
}

/* Reading ------------------------------------------------------------------------------------------------ */

struct import {
	const char *path; /* path of the index, for error texts */
	FILE *f;
	int shard_fd;
	uint64_t shard_nbytes;
	struct ps_shard_index_writer *w;
	uint64_t end;   /* end of the members that were read so far */
	uint64_t count; /* samples that the first line announces ... */
	uint64_t line;  /* ... and read */
};

static int damaged(const struct import *im, const char *what, struct ps_error *err)
{
	return ps_error_set(err, EBADMSG, "%s:%ju: %s; make the index by penstock-loader index", im->path,
	        (uintmax_t)im->line + 2, what);
}

static bool number_parse(const char *text, uint64_t *ret_value)
{
	uint64_t v = 0;

	if (*text == 0 || strlen(text) > 18)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		v = v * 10 + (uint64_t)(*text - '0');
	}
	*ret_value = v;
	return true;
}

/* Checks that the shard has a member of this size at this offset, by its header. */
static int header_check(const struct import *im, uint64_t offset, uint64_t size, struct ps_error *err)
{
	uint8_t h[2 * BLOCK] = {0};
	struct ps_stream *stream;
	struct ps_tar_member m;
	struct ps_tar *tar;
	int rc;

	if (pread(im->shard_fd, h, BLOCK, (off_t)(offset - BLOCK)) != BLOCK)
		return damaged(im, "the shard cannot be read where a member should be", err);
	stream = ps_stream_mem(h, sizeof(h));
	tar = stream ? ps_stream_tar(stream) : NULL;
	rc = tar ? ps_tar_next(tar, &m, NULL) : -ENOMEM;
	if (rc == -ENOMEM)
		rc = ps_no_memory(err);
	else if (rc != 1 || m.kind != PS_TAR_FILE || m.size != size)
		rc = damaged(im, "the shard has another member there", err);
	else
		rc = 0;
	ps_tar_free(tar);
	ps_stream_free(stream);
	return rc;
}

static void lower(char *text)
{
	for (; *text; text++)
		if (*text >= 'A' && *text <= 'Z')
			*text = (char)(*text - 'A' + 'a');
}

/* Parses one member of a line: four words. */
static int member_parse(struct import *im, char **at, bool probe, struct ps_shard_index_member *m,
        char **ret_name, struct ps_name_parts *ret_parts, struct ps_error *err)
{
	char *words[4];

	for (int i = 0; i < 4; i++) {
		words[i] = strsep(at, " ");
		if (!words[i])
			return damaged(im, "not four words a member (only format v1.2 is read)", err);
	}
	if (!number_parse(words[1], &m->offset) || !number_parse(words[2], &m->size))
		return damaged(im, "a field is not a number", err);
	if (m->offset % BLOCK != 0 || m->offset < im->end + BLOCK || m->offset > im->shard_nbytes ||
	        m->size > im->shard_nbytes - m->offset)
		return damaged(im, "a member that is not after the previous one, or not in the shard", err);
	if (!ps_name_split(words[3], strlen(words[3]), ret_parts) || strcmp(ret_parts->suffix, words[0]) != 0)
		return damaged(
		        im, "a member whose name does not end with its suffix, or belongs to no sample", err);
	im->end = m->offset + (m->size + BLOCK - 1) / BLOCK * BLOCK;
	lower(words[0]);
	m->suffix = words[0];
	*ret_name = words[3];
	return probe ? header_check(im, m->offset, m->size, err) : 0;
}

static int sample_import(struct import *im, char *line, struct ps_error *err)
{
	struct ps_shard_index_member members[PS_PSX_MAX_MEMBERS];
	uint64_t begin = im->end, every = im->count / PROBES + 1;
	bool probe = im->line % every == 0 || im->line + 1 == im->count;
	struct ps_name_parts parts, first = {0};
	char *name = NULL, *key = NULL;
	uint32_t n = 0;

	while (line) {
		int rc;

		if (n == PS_PSX_MAX_MEMBERS)
			return damaged(im, "a sample of more than 64 members", err);
		rc = member_parse(im, &line, probe, &members[n], &name, &parts, err);
		if (rc < 0)
			return rc;
		if (n > 0 && (parts.key_len != first.key_len || memcmp(name, key, first.key_len) != 0))
			return damaged(im, "members of two samples in one line", err);
		for (uint32_t i = 0; i < n; i++)
			if (strcmp(members[i].suffix, members[n].suffix) == 0)
				return damaged(im, "a suffix occurs twice", err);
		if (n++ == 0) {
			key = name;
			first = parts;
		}
	}
	if (ps_shard_index_writer_add(im->w, begin, false, key, first.key_len, members, n) < 0)
		return ps_no_memory(err);
	return 0;
}

/* Checks that the tar ends after its last member, and does not begin with a global header. */
static int ends_check(const struct import *im, struct ps_error *err)
{
	static const uint8_t zeros[BLOCK];
	uint8_t block[BLOCK];

	if (pread(im->shard_fd, block, BLOCK, 0) != BLOCK || block[156] == 'g')
		return ps_error_set(err, EINVAL,
		        "%s: its shard has global headers, which this index does not list; use "
		        "penstock-loader "
		        "index",
		        im->path);
	if (pread(im->shard_fd, block, BLOCK, (off_t)im->end) != BLOCK || memcmp(block, zeros, BLOCK) != 0)
		return damaged(im, "the shard does not end after the last member", err);
	return 0;
}

static int lines_import(struct import *im, struct ps_error *err)
{
	ps_autofree char *line = NULL;
	size_t cap = 0;
	ssize_t n = getline(&line, &cap, im->f);

	if (n < 2 || strncmp(line, DALI_VERSION " ", strlen(DALI_VERSION) + 1) != 0)
		return ps_error_set(
		        err, EBADMSG, "%s: not an index of DALI's, format " DALI_VERSION, im->path);
	line[n - 1] = 0;
	if (!number_parse(line + strlen(DALI_VERSION) + 1, &im->count))
		return ps_error_set(err, EBADMSG, "%s: its number of samples is missing", im->path);
	while ((n = getline(&line, &cap, im->f)) > 0) {
		int rc;

		if (line[n - 1] != '\n' || memchr(line, 0, (size_t)n) || im->line == im->count)
			return damaged(im, "the file is cut off, or has more lines than samples", err);
		line[n - 1] = 0;
		rc = sample_import(im, line, err);
		if (rc < 0)
			return rc;
		im->line++;
	}
	if (im->line < im->count)
		return damaged(im, "fewer lines than samples", err);
	return ends_check(im, err);
}

int ps_dali_import(const char *shard, const char *path, const char *index_dir, uint64_t *ret_samples,
        struct ps_error *err)
{
	struct ps_shard_index_version version;
	struct import im = {.path = path, .shard_fd = -1};
	uint64_t first = 0;
	struct stat st;
	int rc = ps_shard_index_version_read(shard, &version, err);

	if (rc < 0)
		return rc;
	im.shard_nbytes = version.nbytes;
	im.w = ps_shard_index_writer_new();
	im.f = fopen(path, "re");
	if (im.f)
		im.shard_fd = open(shard, O_RDONLY | O_CLOEXEC);
	if (!im.f || im.shard_fd < 0 || fstat(fileno(im.f), &st) < 0)
		rc = ps_error_set(err, errno, "%s: cannot read: %s", im.f ? shard : path, strerror(errno));
	else if ((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec < version.mtime_ns)
		rc = ps_error_set(
		        err, ESTALE, "%s: is older than its shard; use penstock-loader index", path);
	else if (!im.w)
		rc = ps_no_memory(err);
	else
		rc = lines_import(&im, err);
	if (rc == 0)
		rc = ps_shard_index_first_read(shard, &first, err);
	if (rc == 0)
		ps_shard_index_writer_first(im.w, first);
	if (rc == 0)
		rc = ps_shard_index_writer_save(im.w, shard, index_dir, &version, version.nbytes, err);
	*ret_samples = im.line;
	ps_shard_index_writer_free(im.w);
	if (im.shard_fd >= 0)
		close(im.shard_fd);
	if (im.f)
		fclose(im.f);
	return rc;
}
