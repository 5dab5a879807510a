/* Reads a shard and writes its index. */
#include "config.h"

#include "shard/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"

struct wanted {
	const struct ps_column_spec *columns;
	size_t n;
};

static bool is_wanted(void *ctx, const char *suffix, size_t len)
{
	const struct wanted *w = ctx;

	for (size_t i = 0; i < w->n; i++)
		if (strlen(w->columns[i].suffix) == len && memcmp(w->columns[i].suffix, suffix, len) == 0)
			return true;
	return false;
}

/* Sets the columns' values of the sample that was added to the writer last. */
static int values_take(struct ps_shard_index_writer *w, const struct wanted *wanted, struct ps_sample *s,
        struct ps_buf *scratch)
{
	int rc = 0;

	for (size_t i = 0; i < wanted->n && rc == 0 && !s->bad; i++) {
		const struct ps_column_spec *c = &wanted->columns[i];
		struct ps_sample_field *f = ps_sample_find(s, c->suffix, strlen(c->suffix));
		struct ps_column_value value;

		if (!f || !f->data)
			continue;
		rc = ps_column_spec_value(c, f->data, (size_t)f->size, scratch, &value);
		if (rc == 0)
			rc = ps_shard_index_writer_value(w, (int)i, &value);
	}
	return rc;
}

/* Reads the whole shard into the writer. */
static int shard_read(const char *path, struct ps_shard_index_writer *w, struct wanted *wanted,
        struct ps_shard_index_result *res, uint64_t *ret_nbytes, struct ps_error *err)
{
	struct ps_shard_options options = {.stream = {.buf_nbytes = 256 << 10, .wake_fd = -1},
	        .wants = is_wanted,
	        .wants_ctx = wanted,
	        .never_hold = wanted->n == 0,
	        .index_writer = w};
	struct ps_shard *shard = ps_shard_new(path, 0, &options, err);
	struct ps_buf scratch = {0};
	struct ps_sample *s;
	int r = shard ? 1 : -ENOMEM;

	while (r == 1 && (r = ps_shard_next(shard, &s, err)) == 1) {
		res->samples++;
		if (s->bad && res->bad++ == 0)
			ps_sample_error_set(&res->first_bad, s, s->reason);
		if (values_take(w, wanted, s, &scratch) < 0)
			r = ps_no_memory(err);
		ps_sample_free(s);
	}
	*ret_nbytes = shard ? ps_shard_offset(shard) : 0;
	ps_buf_fini(&scratch);
	ps_shard_free(shard);
	return r;
}

/* Reads the shard into a new writer, which the caller frees; NULL with err filled. */
static struct ps_shard_index_writer *writer_fill(const char *shard, const struct ps_column_spec *columns,
        size_t ncolumns, struct ps_shard_index_result *res, uint64_t *ret_plain, struct ps_error *err)
{
	struct wanted wanted = {.columns = columns, .n = ncolumns};
	struct ps_shard_index_writer *w = ps_shard_index_writer_new();
	int rc = 0;

	if (!w) {
		ps_no_memory(err);
		return NULL;
	}
	for (size_t i = 0; i < ncolumns && rc >= 0; i++)
		rc = ps_shard_index_writer_column(w, columns[i].name, columns[i].from);
	if (rc < 0)
		rc = ps_error_set(err, -rc, "too many columns: at most %d", PS_INDEX_MAX_COLUMNS);
	else
		rc = shard_read(shard, w, &wanted, res, ret_plain, err);
	if (rc == 0)
		return w;
	ps_shard_index_writer_free(w);
	return NULL;
}

int ps_shard_index_make(const char *shard, const char *dir, const struct ps_column_spec *columns,
        size_t ncolumns, const uint8_t *sha256, struct ps_shard_index_result *ret_result,
        struct ps_error *err)
{
	struct ps_error why = {0};
	struct ps_shard_index_version before;
	struct ps_shard_index_writer *w;
	uint64_t plain = 0;
	int rc = ps_shard_index_version_read(shard, &before, err);

	*ret_result = (struct ps_shard_index_result){0};
	if (rc < 0)
		return rc;
	w = writer_fill(shard, columns, ncolumns, ret_result, &plain, &why);
	if (!w)
		return ps_error_set(err, why.err ? why.err : EIO, "%s", why.text);
	ret_result->plain_nbytes = ps_shard_index_writer_plain(w, before.nbytes, plain);
	if (sha256)
		memcpy(ps_shard_index_writer_facts(w)->sha256, sha256, PS_PSX_SHA256);
	rc = ps_shard_index_writer_save(w, shard, dir, &before, plain, err);
	ps_shard_index_writer_free(w);
	return rc;
}

int ps_shard_index_make_mem(const char *shard, const struct ps_column_spec *columns, size_t ncolumns,
        struct ps_shard_index **ret_index, struct ps_error *err)
{
	struct ps_error why = {0};
	struct ps_shard_index_result res = {0};
	struct ps_shard_index_version version;
	struct ps_shard_index_writer *w;
	ps_autofree uint8_t *data = NULL;
	uint64_t plain = 0;
	size_t n = 0;
	int rc = ps_shard_index_version_read(shard, &version, err);

	if (rc < 0)
		return rc;
	w = writer_fill(shard, columns, ncolumns, &res, &plain, &why);
	if (!w)
		return ps_error_set(err, why.err ? why.err : EIO, "%s", why.text);
	rc = ps_shard_index_writer_finish(w, version.nbytes, plain, &data, &n, err);
	ps_shard_index_writer_free(w);
	return rc < 0 ? rc : ps_shard_index_open_mem(data, n, ret_index, err);
}

/* Missing indexes of a list of shards ------------------------------------------------------------------- */

#define LOCK_NAME ".penstock-index.lock"
#define REMOTE_RATE 1e8 /* bytes a second, to estimate the time of a fetch */

struct lacking {
	uint32_t *shards;
	size_t n, nremote;
	uint64_t nbytes, nremote_bytes;
};

/* Finds the shards without a sound index. */
static int lacking_find(struct ps_shard_indexes *xs, char *const *shards, size_t nshards, struct lacking *l,
        struct ps_error *err)
{
	l->n = l->nremote = 0;
	l->nbytes = l->nremote_bytes = 0;
	for (size_t i = 0; i < nshards; i++) {
		struct ps_error why = {0};
		struct stat st;
		uint64_t count;
		int rc = ps_shard_indexes_count(xs, (uint32_t)i, &count, &why);

		if (rc == 0)
			continue;
		if (rc != -ENOENT && rc != -ESTALE && rc != -EBADMSG)
			return ps_error_set(err, -rc, "%s", why.text);
		if (stat(shards[i], &st) < 0)
			return ps_error_set(err, errno, "%s: cannot open: %s", shards[i], strerror(errno));
		l->shards[l->n++] = (uint32_t)i;
		l->nbytes += (uint64_t)st.st_size;
		if (ps_shard_index_shard_is_here(shards[i]))
			continue;
		l->nremote++;
		l->nremote_bytes += (uint64_t)st.st_size;
	}
	return 0;
}

/* Makes all missing indexes, or fails early if that would take too long. */
static int lacking_make(const struct lacking *l, char *const *shards, const char *dir, struct ps_error *err)
{
	uint64_t begin = ps_clock_mono_ns(), done = 0;

	for (size_t i = 0; i < l->n; i++) {
		const char *shard = shards[l->shards[i]];
		struct ps_shard_index_result res;
		struct stat st;
		double s, all;
		int rc = ps_shard_index_make(shard, dir, NULL, 0, NULL, &res, err);

		if (rc < 0)
			return ps_error_set(err, -rc, "index=\"make\": %s%s", err ? err->text : "",
			        dir ? "" : "; index_dir puts indexes into a folder of your own");
		done += stat(shard, &st) == 0 ? (uint64_t)st.st_size : 0;
		s = (double)(ps_clock_mono_ns() - begin) / 1e9;
		all = done > 0 ? s / (double)done * (double)l->nbytes : 0;
		if (all > PS_INDEX_AUTO_S && i + 1 < l->n)
			return ps_error_set(err, EINVAL,
			        "index=\"make\": walking over the %zu shards without an index, %.1f GB, "
			        "would take about %.0f s, "
			        "more than %d (%zu indexes are made by now); make the others once: "
			        "penstock-loader index%s",
			        l->n, (double)l->nbytes / 1e9, all, PS_INDEX_AUTO_S, i + 1,
			        dir ? " --dir DIR, with index_dir as DIR" : "");
	}
	return 0;
}

int ps_shard_index_auto(struct ps_shard_indexes *xs, char *const *shards, size_t nshards, const char *dir,
        struct ps_error *err)
{
	struct lacking l = {.shards = calloc(nshards + 1, sizeof(*l.shards))};
	ps_autofree uint32_t *all = l.shards;
	const char *first, *slash;
	ps_autofree char *path = NULL;
	ps_autofd int fd = -1;
	int rc;

	if (dir && mkdir(dir, 0777) < 0 && errno != EEXIST)
		return ps_error_set(err, errno, "index_dir %s: cannot make it: %s", dir, strerror(errno));
	rc = all ? lacking_find(xs, shards, nshards, &l, err) : ps_no_memory(err);
	if (rc < 0 || l.n == 0)
		return rc;
	if (l.nremote > 0)
		return ps_error_set(err, EINVAL,
		        "index=\"make\": %zu of %zu shards have no index and are not local, nor in the cache "
		        "of their mount: "
		        "walking over them could fetch %.1f MB, %.1f s at 100 MB/s; get the indexes from the "
		        "shards' publisher (made with pack --index), warm the mount (penstock warm), or make "
		        "them once by penstock-loader "
		        "index --dir",
		        l.nremote, nshards, (double)l.nremote_bytes / 1e6,
		        (double)l.nremote_bytes / REMOTE_RATE);
	/* One process at a time makes the indexes of a folder. */
	first = shards[l.shards[0]];
	slash = strrchr(first, '/');
	path = dir ? ps_asprintf(err, "%s/" LOCK_NAME, dir)
	           : ps_asprintf(err, "%.*s" LOCK_NAME, slash ? (int)(slash - first + 1) : 0, first);
	if (!path)
		return -ENOMEM;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return ps_error_set(err, errno, "index=\"make\": %s: cannot write: %s%s", path,
		        strerror(errno), dir ? "" : "; index_dir puts indexes into a folder of your own");
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return ps_error_set(
			        err, errno, "index=\"make\": %s: cannot lock: %s", path, strerror(errno));
	rc = lacking_find(xs, shards, nshards, &l, err); /* another process may have made them */
	if (rc == 0)
		rc = lacking_make(&l, shards, dir, err);
	/* After this, a waiter holds the lock of the removed file, and another process may lock a new one: if
	 * indexes are still missing, both may make them. */
	(void)unlink(path);
	return rc;
}
