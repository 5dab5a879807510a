/* Reads a shard and writes its index. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "shard/index_column.h"
#include "shard/index_writer.h"
#include "shard/shard.h"

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

/* The columns' values of the sample that the writer has seen last. */
static int values_take(
        struct ps_index_writer *w, const struct wanted *wanted, struct ps_sample *s, struct ps_buf *scratch)
{
	int r = 0;

	for (size_t i = 0; i < wanted->n && r == 0 && !s->bad; i++) {
		const struct ps_column_spec *c = &wanted->columns[i];
		struct ps_sample_field *f = ps_sample_find(s, c->suffix, strlen(c->suffix));
		struct ps_column_value value;

		if (!f || !f->data)
			continue;
		r = ps_column_spec_value(c, f->data, (size_t)f->size, scratch, &value);
		if (r == 0)
			r = ps_index_writer_value(w, (int)i, &value);
	}
	return r;
}

/* Reads all of the shard into the writer. */
static int shard_read(const char *path, struct ps_index_writer *w, struct wanted *wanted,
        struct ps_index_result *res, uint64_t *ret_nbytes, struct ps_load_error *err)
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
			r = ps_load_error_set(err, ENOMEM, "out of memory");
		ps_sample_free(s);
	}
	*ret_nbytes = shard ? ps_shard_offset(shard) : 0;
	ps_buf_fini(&scratch);
	ps_shard_free(shard);
	return r;
}

/* Reads the shard into a writer, which is the caller's; NULL with err filled. */
static struct ps_index_writer *writer_fill(const char *shard, const struct ps_column_spec *columns,
        size_t ncolumns, struct ps_index_result *res, uint64_t *ret_plain, struct ps_load_error *err)
{
	struct wanted wanted = {.columns = columns, .n = ncolumns};
	struct ps_index_writer *w = ps_index_writer_new();
	int r = 0;

	if (!w) {
		ps_load_error_set(err, ENOMEM, "out of memory");
		return NULL;
	}
	for (size_t i = 0; i < ncolumns && r >= 0; i++)
		r = ps_index_writer_column(w, columns[i].name, columns[i].from);
	if (r < 0)
		r = ps_load_error_set(err, -r, "too many columns: at most %d", PS_INDEX_MAX_COLUMNS);
	else
		r = shard_read(shard, w, &wanted, res, ret_plain, err);
	if (r == 0)
		return w;
	ps_index_writer_free(w);
	return NULL;
}

static int index_write(const char *shard, const char *dir, const struct ps_column_spec *columns, size_t ncolumns,
        const uint8_t *sha256, struct ps_index_result *ret_result, struct ps_load_error *err)
{
	struct ps_load_error why = {0};
	struct ps_index_version before;
	struct ps_index_writer *w;
	uint64_t plain = 0;
	int r = ps_index_version_read(shard, &before, err);

	*ret_result = (struct ps_index_result){0};
	if (r < 0)
		return r;
	w = writer_fill(shard, columns, ncolumns, ret_result, &plain, &why);
	if (!w)
		return ps_load_error_set(err, why.err ? why.err : EIO, "%s", why.text);
	ret_result->plain_nbytes = ps_index_writer_plain(w, before.nbytes, plain);
	if (sha256)
		ps_index_writer_sha256(w, sha256);
	r = ps_index_writer_save(w, shard, dir, &before, plain, err);
	ps_index_writer_free(w);
	return r;
}

int ps_index_make(const char *shard, const char *dir, const struct ps_column_spec *columns, size_t ncolumns,
        struct ps_index_result *ret_result, struct ps_load_error *err)
{
	return index_write(shard, dir, columns, ncolumns, NULL, ret_result, err);
}

int ps_index_make_hashed(const char *shard, const struct ps_column_spec *columns, size_t ncolumns,
        const uint8_t sha256[static 32], struct ps_index_result *ret_result, struct ps_load_error *err)
{
	return index_write(shard, NULL, columns, ncolumns, sha256, ret_result, err);
}

int ps_index_make_mem(const char *shard, const struct ps_column_spec *columns, size_t ncolumns,
        struct ps_index **ret_index, struct ps_load_error *err)
{
	struct ps_load_error why = {0};
	struct ps_index_result res = {0};
	struct ps_index_version version;
	struct ps_index_writer *w;
	ps_autofree uint8_t *data = NULL;
	uint64_t plain = 0;
	size_t n = 0;
	int r = ps_index_version_read(shard, &version, err);

	if (r < 0)
		return r;
	w = writer_fill(shard, columns, ncolumns, &res, &plain, &why);
	if (!w)
		return ps_load_error_set(err, why.err ? why.err : EIO, "%s", why.text);
	r = ps_index_writer_finish(w, version.nbytes, plain, &data, &n, err);
	ps_index_writer_free(w);
	return r < 0 ? r : ps_index_open_mem(data, n, ret_index, err);
}
