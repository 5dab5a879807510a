#include "config.h"

#include "tools/doctor_find.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "shard/sample.h"
#include "shard/stream.h"
#include "shard/tar.h"
#include "shard/tar_out.h"
#include "tools/doctor_jpeg.h"

#define MAX_MEMBER (UINT64_C(4) << 30)
#define BLOAT_LEAST_PERCENT 10 /* of the shard's bytes */

const char *const ps_finding_names[PS_FOUND_NKINDS] = {"truncated", "not_a_tar", "scattered", "duplicate",
        "clash", "progressive", "bloat", "missing_field", "no_sample"};

static void found(struct ps_chart *c, enum ps_finding_kind kind, const char *fmt, ...) PS_PRINTF(3, 4);

static void found(struct ps_chart *c, enum ps_finding_kind kind, const char *fmt, ...)
{
	struct ps_finding *f = &c->findings[kind];

	if (f->count++ > 0)
		return;
	va_list ap;
	va_start(ap, fmt);
	if (vasprintf(&f->first, fmt, ap) < 0)
		f->first = NULL;
	va_end(ap);
}

static struct ps_chart_member *member_add(struct ps_chart *c)
{
	if (c->n == c->cap) {
		size_t cap = PS_MAX(c->cap * 2, (size_t)1024);
		struct ps_chart_member *grown = reallocarray(c->members, cap, sizeof(*grown));

		if (!grown)
			return NULL;
		c->members = grown;
		c->cap = cap;
	}
	struct ps_chart_member *m = &c->members[c->n++];
	*m = (struct ps_chart_member){.order = c->n - 1};
	return m;
}

/* FNV-1a over 32 bits. Who leaves a duplicate out compares the bytes before. */
static uint32_t sum_of(const uint8_t *p, uint64_t n)
{
	uint32_t h = 0x811c9dc5u;

	for (uint64_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x01000193u;
	return h;
}

static int member_take(struct ps_chart *c, struct ps_tar *tar, const struct ps_tar_member *t, uint8_t **buf,
        size_t *buf_cap, struct ps_load_error *err)
{
	struct ps_name_parts parts;
	struct ps_chart_member *m = member_add(c);

	if (m && *buf_cap < t->size) {
		uint8_t *grown = t->size <= MAX_MEMBER ? realloc(*buf, t->size) : NULL;

		if (!grown)
			return ps_load_error_set(
			        err, ENOMEM, "out of memory for a member of %ju bytes", (uintmax_t)t->size);
		*buf = grown;
		*buf_cap = t->size;
	}
	if (!m || !(m->name = strdup(t->name)))
		return ps_load_error_set(err, ENOMEM, "out of memory");
	m->name_len = t->name_len;
	m->offset = t->offset;
	m->size = t->size;
	m->key_len = ps_name_split(m->name, m->name_len, &parts) ? parts.key_len : 0;
	uint64_t body = (t->size + PS_TAR_BLOCK - 1) / PS_TAR_BLOCK * PS_TAR_BLOCK;
	c->header_nbytes += t->offset - t->header_offset;
	c->needed_nbytes += ps_tar_out_member_nbytes(m->name_len, m->name, m->size) - body;
	int r = ps_tar_read(tar, *buf, err);
	if (r < 0) {
		free(m->name);
		c->n--;
		return r;
	}
	m->crc = sum_of(*buf, m->size);
	m->progressive = ps_jpeg_is_progressive(*buf, m->size);
	if (m->progressive)
		found(c, PS_FOUND_PROGRESSIVE, "%s", m->name);
	if (m->key_len == 0)
		found(c, PS_FOUND_NO_SAMPLE, "%s", m->name);
	return 0;
}

/* -- Once all members are known ----------------------------------------------------------------------- */

static bool same_key(const struct ps_chart_member *a, const struct ps_chart_member *b)
{
	return a->key_len == b->key_len && memcmp(a->name, b->name, a->key_len) == 0;
}

static int by_key(const void *pa, const void *pb)
{
	const struct ps_chart_member *a = pa, *b = pb;
	int c = memcmp(a->name, b->name, PS_MIN(a->key_len, b->key_len));

	if (c == 0)
		c = (a->key_len > b->key_len) - (a->key_len < b->key_len);
	return c ? c : (a->order > b->order) - (a->order < b->order);
}

struct run {
	size_t first, n; /* of the members by key */
	uint64_t order;  /* of its first member in the tar */
};

static int by_order(const void *pa, const void *pb)
{
	const struct run *a = pa, *b = pb;

	return (a->order > b->order) - (a->order < b->order);
}

/* In a run of one key, in the order of the tar: what comes twice. A loader takes PS_SAMPLE_MAX_FIELDS members
 * at most, so nobody misses what lies far beyond. */
static void duplicates_find(struct ps_chart *c, const struct run *run)
{
	struct ps_chart_member *m = &c->members[run->first];

	for (size_t i = 1; i < PS_MIN(run->n, 2 * (size_t)PS_SAMPLE_MAX_FIELDS); i++) {
		for (size_t j = 0; j < i; j++) {
			if (m[j].drop || strcmp(m[i].name, m[j].name) != 0)
				continue;
			m[i].drop = m[i].size == m[j].size && m[i].crc == m[j].crc;
			found(c, m[i].drop ? PS_FOUND_DUPLICATE : PS_FOUND_CLASH, "%s", m[i].name);
			break;
		}
	}
}

/* Puts each key's members behind each other, at the place of the first; members without one stay each by
 * itself. */
static int members_group(struct ps_chart *c, struct ps_load_error *err)
{
	ps_autofree struct run *runs = calloc(c->n + 1, sizeof(*runs));
	struct ps_chart_member *sorted = calloc(c->n + 1, sizeof(*sorted));
	size_t nruns = 0, at = 0;

	if (!runs || !sorted) {
		free(sorted);
		return ps_load_error_set(err, ENOMEM, "out of memory");
	}
	qsort(c->members, c->n, sizeof(*c->members), by_key);
	for (size_t i = 0; i < c->n; i++) {
		struct ps_chart_member *m = &c->members[i];

		if (i == 0 || m->key_len == 0 || !same_key(m, m - 1))
			runs[nruns++] = (struct run){.first = i, .order = m->order};
		runs[nruns - 1].n++;
	}
	for (size_t i = 0; i < nruns; i++) {
		const struct ps_chart_member *first = &c->members[runs[i].first];

		if (first->key_len == 0)
			continue;
		c->samples++;
		if (first[runs[i].n - 1].order - first->order >= runs[i].n)
			found(c, PS_FOUND_SCATTERED, "%.*s", (int)first->key_len, first->name);
		duplicates_find(c, &runs[i]);
	}
	qsort(runs, nruns, sizeof(*runs), by_order);
	for (size_t i = 0; i < nruns; i++)
		for (size_t j = 0; j < runs[i].n; j++)
			sorted[at++] = c->members[runs[i].first + j];
	free(c->members);
	c->members = sorted;
	c->cap = c->n;
	return 0;
}

/* The fields that nine of ten samples have, and the samples that lack one. */
static void missing_find(struct ps_chart *c)
{
	struct {
		const char *suffix;
		uint64_t count;
	} fields[64];
	size_t nfields = 0;

	for (size_t i = 0; i < c->n; i++) {
		const struct ps_chart_member *m = &c->members[i];
		const char *suffix = m->name + m->key_len + 1;
		size_t f = 0;

		if (m->key_len == 0 || m->drop)
			continue;
		while (f < nfields && strcmp(fields[f].suffix, suffix) != 0)
			f++;
		if (f == nfields && nfields < PS_ARRAY_LEN(fields)) {
			fields[nfields].suffix = suffix;
			fields[nfields++].count = 0;
		}
		if (f < nfields)
			fields[f].count++;
	}
	for (size_t i = 0, end; i < c->n; i = end) {
		const struct ps_chart_member *m = &c->members[i];

		for (end = i + 1; end < c->n && m->key_len > 0 && same_key(&c->members[end], m); end++)
			;
		for (size_t f = 0; f < nfields && m->key_len > 0 && !m->drop; f++) {
			bool has = fields[f].count == c->samples || fields[f].count * 10 < c->samples * 9;

			for (size_t j = i; j < end && !has; j++)
				has = strcmp(c->members[j].name + m->key_len + 1, fields[f].suffix) == 0;
			if (!has)
				found(c, PS_FOUND_MISSING, "%.*s has no .%s", (int)m->key_len, m->name,
				        fields[f].suffix);
		}
	}
}

/* The sample that was cut off may lack members: none of it is kept. */
static void last_drop(struct ps_chart *c)
{
	const struct ps_chart_member *last = c->n ? &c->members[c->n - 1] : NULL;

	for (size_t i = 0; last && last->key_len > 0 && i < c->n; i++)
		if (same_key(&c->members[i], last))
			c->members[i].drop = true;
}

static int walk(const char *path, struct ps_chart *c, struct ps_stream *stream, struct ps_tar *tar,
        struct ps_load_error *err)
{
	ps_autofree uint8_t *buf = malloc(1);
	size_t cap = 1;
	struct ps_tar_member t;
	bool garbage = false;
	int r;

	if (!buf)
		return ps_load_error_set(err, ENOMEM, "out of memory");
	while ((r = ps_tar_next(tar, &t, err)) == 1) {
		if (t.kind == PS_TAR_SPARSE)
			found(c, PS_FOUND_NO_SAMPLE, "%s, a file with holes", t.name);
		if (t.kind != PS_TAR_FILE)
			continue;
		r = member_take(c, tar, &t, &buf, &cap, err);
		if (r < 0)
			break;
	}
	if (r == 0)
		r = ps_stream_drain(stream, &garbage, err); /* as a loader does */
	if (r != -EBADMSG)
		return r < 0 ? ps_load_error_prefix(err, "%s", path), r : 0;
	found(c, c->n ? PS_FOUND_TRUNCATED : PS_FOUND_NOT_TAR, "%s", err->text);
	if (!garbage)
		last_drop(c);
	return 0;
}

int ps_chart_make(const char *path, struct ps_chart *c, struct ps_load_error *err)
{
	static const struct ps_stream_options options = {.buf_nbytes = 1UL << 20, .wake_fd = -1};
	struct ps_stream *stream = NULL;
	struct ps_tar *tar = NULL;
	int r = ps_stream_open(path, &options, &stream, err);

	if (r == 0)
		r = ps_stream_inflate(&stream, err);
	if (r < 0)
		ps_load_error_prefix(err, "%s", path);
	else if (!(tar = ps_tar_new(stream)))
		r = ps_load_error_set(err, ENOMEM, "out of memory");
	else
		r = walk(path, c, stream, tar, err);
	uint64_t nbytes = stream ? ps_stream_offset(stream) : 0;
	ps_tar_free(tar);
	ps_stream_free(stream);
	if (r == 0 && c->n > 0)
		r = members_group(c, err);
	if (r < 0)
		return r;
	missing_find(c);
	if (c->header_nbytes > c->needed_nbytes &&
	        (c->header_nbytes - c->needed_nbytes) * 100 >= nbytes * BLOAT_LEAST_PERCENT)
		found(c, PS_FOUND_BLOAT, "%ju of %ju bytes are headers that tell a loader nothing",
		        (uintmax_t)(c->header_nbytes - c->needed_nbytes), (uintmax_t)nbytes);
	return 0;
}

void ps_chart_fini(struct ps_chart *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->members[i].name);
	for (int i = 0; i < PS_FOUND_NKINDS; i++)
		free(c->findings[i].first);
	free(c->members);
	*c = (struct ps_chart){0};
}
