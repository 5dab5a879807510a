#include "config.h"

#include "shard/index_writer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shard/index_column.h"

/* Bytes a sample on average, before samples lose their members. */
#define SAMPLE_NBYTES 15.5

/* A shape as it stands in the file. */
struct shape {
	size_t at, n; /* in shape_bytes */
	uint64_t sum;
};

struct ps_index_writer {
	uint64_t count, bad;
	uint32_t flags;
	uint64_t first;
	uint8_t sha256[PS_INDEX_SHA256];
	uint64_t end; /* of the last sample */
	struct ps_buf marks, samples, key_marks, keys, shape_bytes;
	struct shape *shapes;
	uint32_t nshapes;
	uint32_t last_shape; /* most samples look like the one before */
	struct ps_index_column_writer columns[PS_INDEX_MAX_COLUMNS];
	uint32_t ncolumns;
	int failed;
};

struct ps_index_writer *ps_index_writer_new(void)
{
	struct ps_index_writer *w = calloc(1, sizeof(*w));

	if (w)
		w->shapes = calloc(PS_INDEX_MAX_SHAPES, sizeof(*w->shapes));
	if (!w || !w->shapes) {
		free(w);
		return NULL;
	}
	return w;
}

void ps_index_writer_free(struct ps_index_writer *w)
{
	if (!w)
		return;
	for (uint32_t i = 0; i < w->ncolumns; i++)
		ps_index_column_fini(&w->columns[i]);
	ps_buf_fini(&w->marks);
	ps_buf_fini(&w->samples);
	ps_buf_fini(&w->key_marks);
	ps_buf_fini(&w->keys);
	ps_buf_fini(&w->shape_bytes);
	free(w->shapes);
	free(w);
}

void ps_index_writer_flag(struct ps_index_writer *w, uint32_t flags)
{
	w->flags |= flags;
}

void ps_index_writer_first(struct ps_index_writer *w, uint64_t first)
{
	w->first = first;
}

void ps_index_writer_sha256(struct ps_index_writer *w, const uint8_t sha256[static PS_INDEX_SHA256])
{
	memcpy(w->sha256, sha256, PS_INDEX_SHA256);
}

static uint64_t unit_of(const struct ps_index_writer *w)
{
	return w->flags & PS_INDEX_FLAG_LINES ? 1 : 512;
}

/* -- Shapes -------------------------------------------------------------------------------------------- */

#define MAX_SHAPE_NBYTES 4096

/* The shape of a sample, as bytes; 0: it cannot be told as one. Sets where the sample ends. */
static size_t shape_make(const struct ps_index_writer *w, uint64_t offset,
        const struct ps_index_member *members, uint32_t n, uint8_t p[static MAX_SHAPE_NBYTES],
        uint64_t *ret_end)
{
	uint64_t unit = unit_of(w), at = offset;
	size_t len = ps_put_varint(p, n);
	bool fits = n > 0 && n <= PS_INDEX_MAX_MEMBERS;

	for (uint32_t i = 0; i < n; i++) {
		const struct ps_index_member *m = &members[i];
		size_t suffix = strlen(m->suffix);

		fits = fits && m->offset >= at && (m->offset - at) % unit == 0 && suffix < MAX_SHAPE_NBYTES &&
		       len + suffix + 24 <= MAX_SHAPE_NBYTES;
		if (fits) {
			len += ps_put_varint(p + len, (m->offset - at) / unit);
			len += ps_put_varint(p + len, suffix);
			memcpy(p + len, m->suffix, suffix + 1);
			len += suffix + 1;
		}
		at = m->offset + (m->size + unit - 1) / unit * unit;
	}
	*ret_end = PS_MAX(at, offset);
	return fits ? len : 0;
}

static bool shape_is(const struct ps_index_writer *w, uint32_t i, const uint8_t *p, size_t n, uint64_t sum)
{
	const struct shape *s = &w->shapes[i];

	return s->sum == sum && s->n == n && memcmp(w->shape_bytes.p + s->at, p, n) == 0;
}

/* The number of a shape from 1 on, a new one if it was not seen yet; 0: there is no room for more. */
static int shape_number(struct ps_index_writer *w, const uint8_t *p, size_t n, uint32_t *ret_number)
{
	uint64_t sum = ps_index_sum(0, p, n);
	uint32_t i = w->last_shape;
	int r;

	if (i >= w->nshapes || !shape_is(w, i, p, n, sum))
		for (i = 0; i < w->nshapes && !shape_is(w, i, p, n, sum);)
			i++;
	if (i == PS_INDEX_MAX_SHAPES) {
		*ret_number = 0;
		return 0;
	}
	if (i == w->nshapes) {
		w->shapes[i] = (struct shape){.at = w->shape_bytes.n, .n = n, .sum = sum};
		r = ps_buf_add(&w->shape_bytes, p, n);
		if (r < 0)
			return r;
		w->nshapes++;
	}
	w->last_shape = i;
	*ret_number = i + 1;
	return 0;
}

/* -- Samples ------------------------------------------------------------------------------------------- */

static int marks_add(struct ps_index_writer *w)
{
	uint8_t mark[16];
	int r;

	if (w->count % PS_INDEX_MARK != 0)
		return 0;
	ps_put_u64(mark, w->end);
	ps_put_u64(mark + 8, w->samples.n);
	r = ps_buf_add(&w->marks, mark, 16);
	ps_put_u64(mark, w->keys.n);
	return r < 0 ? r : ps_buf_add(&w->key_marks, mark, 8);
}

static int sample_add(struct ps_index_writer *w, uint64_t offset, bool bad,
        const struct ps_index_member *members, uint32_t n)
{
	uint8_t shape[MAX_SHAPE_NBYTES], line[32 + 10 * PS_INDEX_MAX_MEMBERS];
	uint64_t unit = unit_of(w), end, gap = (offset - w->end) / unit;
	size_t shape_n = shape_make(w, offset, members, n, shape, &end), len;
	uint32_t number = 0;
	int r;

	if (shape_n > 0 && !bad) {
		r = shape_number(w, shape, shape_n, &number);
		if (r < 0)
			return r;
	}
	for (;;) {
		len = ps_put_varint(line, (uint64_t)number << 2 | (bad ? 2 : 0) | (gap > 0));
		if (gap > 0)
			len += ps_put_varint(line + len, gap);
		if (number == 0) {
			len += ps_put_varint(line + len, (end - offset) / unit);
			end = offset + (end - offset) / unit * unit;
			break;
		}
		for (uint32_t i = 0; i < n; i++)
			len += ps_put_varint(line + len, members[i].size);
		if ((double)(w->samples.n + len) <= SAMPLE_NBYTES * (double)(w->count + 1))
			break;
		number = 0;
	}
	w->end = end + (unit == 1 && number > 0);
	return ps_buf_add(&w->samples, line, len);
}

static int text_add(struct ps_buf *out, const char *text, size_t len)
{
	uint8_t head[10];
	int r = ps_buf_add(out, head, ps_put_varint(head, len));

	return r < 0 ? r : ps_buf_add(out, text, len);
}

int ps_index_writer_add(struct ps_index_writer *w, uint64_t offset, bool bad, const char *key, size_t key_len,
        const struct ps_index_member *members, uint32_t n)
{
	if (w->failed)
		return w->failed;
	if (offset < w->end || (offset - w->end) % unit_of(w) != 0) {
		if (!bad)
			return w->failed = -EINVAL;
		offset = w->end; /* of a hole only the place in the order counts */
	}
	w->failed = marks_add(w);
	if (w->failed == 0)
		w->failed = sample_add(w, offset, bad, members, n);
	if (w->failed == 0)
		w->failed = text_add(&w->keys, key, key_len);
	w->count++;
	w->bad += bad;
	for (uint32_t i = 0; i < w->ncolumns && w->failed == 0; i++)
		w->failed = ps_index_column_extend(&w->columns[i]);
	return w->failed;
}

int ps_index_writer_column(struct ps_index_writer *w, const char *name, const char *from)
{
	int r;

	assert(w->count == 0);
	if (w->ncolumns == PS_INDEX_MAX_COLUMNS)
		return -E2BIG;
	r = ps_index_column_init(&w->columns[w->ncolumns], name, from);
	return r < 0 ? r : (int)w->ncolumns++;
}

int ps_index_writer_value(struct ps_index_writer *w, int column, const struct ps_column_value *value)
{
	if (!w->failed && !value->missing)
		w->failed = ps_index_column_set(&w->columns[column], value);
	return w->failed;
}

/* -- The file ------------------------------------------------------------------------------------------ */

struct file {
	struct ps_buf out, table;
};

/* A section of up to two pieces. */
static int section_add(
        struct file *f, uint32_t kind, uint32_t detail, const struct ps_buf *a, const struct ps_buf *b)
{
	static const uint8_t zeros[8];
	uint8_t entry[PS_INDEX_SECTION];
	size_t at = f->out.n, n = a->n + (b ? b->n : 0);
	int r = ps_buf_add(&f->out, a->p, a->n);

	if (r == 0 && b)
		r = ps_buf_add(&f->out, b->p, b->n);
	if (r < 0)
		return r;
	ps_put_u32(entry, kind);
	ps_put_u32(entry + 4, detail);
	ps_put_u64(entry + 8, at);
	ps_put_u64(entry + 16, n);
	ps_put_u64(entry + 24, ps_index_sum(0, f->out.p + at, n));
	r = ps_buf_add(&f->out, zeros, ps_index_pad8(n) - n);
	return r < 0 ? r : ps_buf_add(&f->table, entry, sizeof(entry));
}

static int sources_write(struct ps_index_writer *w, struct file *f)
{
	struct ps_buf bytes = {0};
	int r = 0;

	for (uint32_t i = 0; i < w->ncolumns && r == 0; i++)
		r = text_add(&bytes, w->columns[i].from, strlen(w->columns[i].from));
	if (r == 0)
		r = section_add(f, PS_INDEX_SOURCES, 0, &bytes, NULL);
	ps_buf_fini(&bytes);
	return r;
}

static int sections_write(struct ps_index_writer *w, struct file *f)
{
	uint8_t head[10];
	struct ps_buf nshapes = {.p = head, .n = ps_put_varint(head, w->nshapes)};
	int r = section_add(f, PS_INDEX_SHAPES, 0, &nshapes, &w->shape_bytes);

	if (r == 0)
		r = section_add(f, PS_INDEX_SAMPLES, 0, &w->marks, &w->samples);
	if (r == 0)
		r = section_add(f, PS_INDEX_KEYS, 0, &w->key_marks, &w->keys);
	for (uint32_t i = 0; i < w->ncolumns && r == 0; i++) {
		struct ps_buf bytes = {0};
		uint32_t detail;

		r = ps_index_column_finish(&w->columns[i], &bytes, &detail);
		if (r == 0)
			r = section_add(f, PS_INDEX_COLUMN, detail, &bytes, NULL);
		ps_buf_fini(&bytes);
	}
	return r == 0 && w->ncolumns > 0 ? sources_write(w, f) : r;
}

static void head_write(const struct ps_index_writer *w, uint64_t nbytes, uint64_t plain, struct file *f)
{
	uint8_t *h = f->out.p;

	memcpy(h, PS_INDEX_MAGIC, 8);
	ps_put_u64(h + PS_INDEX_AT_SIZE, nbytes);
	ps_put_u64(h + PS_INDEX_AT_PLAIN, plain);
	ps_put_u64(h + PS_INDEX_AT_COUNT, w->count);
	ps_put_u64(h + PS_INDEX_AT_BAD, w->bad);
	ps_put_u32(h + PS_INDEX_AT_FLAGS, w->flags);
	ps_put_u16(h + PS_INDEX_AT_NSECTIONS, (uint16_t)(f->table.n / PS_INDEX_SECTION));
	ps_put_u64(h + PS_INDEX_AT_FIRST, w->first);
	memcpy(h + PS_INDEX_AT_SHA256, w->sha256, PS_INDEX_SHA256);
	memcpy(h + PS_INDEX_HEAD, f->table.p, f->table.n);
	ps_put_u64(h + PS_INDEX_AT_SUM, ps_index_head_sum(h, f->table.n / PS_INDEX_SECTION));
}

uint64_t ps_index_writer_plain(const struct ps_index_writer *w, uint64_t nbytes, uint64_t read)
{
	return w->flags & PS_INDEX_FLAG_COMPRESSED ? read : nbytes;
}

int ps_index_writer_finish(struct ps_index_writer *w, uint64_t nbytes, uint64_t read, uint8_t **ret_data,
        size_t *ret_nbytes, struct ps_load_error *err)
{
	size_t head = PS_INDEX_HEAD + (3u + (w->ncolumns > 0) + w->ncolumns) * PS_INDEX_SECTION;
	struct file f = {0};
	int r = w->failed ? w->failed : ps_buf_add_zeros(&f.out, head);

	if (r == 0)
		r = sections_write(w, &f);
	if (r == 0) {
		head_write(w, nbytes, ps_index_writer_plain(w, nbytes, read), &f);
		*ret_nbytes = f.out.n;
		*ret_data = ps_steal_ptr(&f.out.p);
	}
	ps_buf_fini(&f.out);
	ps_buf_fini(&f.table);
	if (r == -ENOMEM)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	if (r < 0)
		return ps_load_error_set(err, -r, "its samples cannot be indexed: %s", strerror(-r));
	return 0;
}

int ps_index_writer_save(struct ps_index_writer *w, const char *shard, const char *dir,
        const struct ps_index_version *v, uint64_t read, struct ps_load_error *err)
{
	ps_autofree char *path = ps_index_path(shard, dir, v->nbytes, w->first, err);
	ps_autofree uint8_t *data = NULL;
	struct ps_index_version now;
	size_t nbytes = 0;
	int r = path ? ps_index_version_read(shard, &now, err) : -ENOMEM;

	if (r == 0 && !ps_index_version_same(&now, v))
		r = ps_load_error_set(err, EAGAIN, "%s: was changed while it was read; try again", shard);
	if (r == 0)
		r = ps_index_writer_finish(w, v->nbytes, read, &data, &nbytes, err);
	if (r == 0)
		r = ps_index_file_write(path, v->mode, data, nbytes, err);
	return r;
}
