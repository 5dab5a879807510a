#include "config.h"

#include "tools/doctor_find.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "shard/file/file.h"
#include "shard/shard.h"

#define MAX_MEMBER (UINT64_C(4) << 30)
#define BLOAT_LEAST_PERCENT 10 /* percent of the shard's size */

const char *const ps_finding_names[PS_FOUND_NKINDS] = {"truncated", "no_end_mark", "not_a_tar", "refused",
        "undecodable", "scattered", "duplicate", "clash", "progressive", "bloat", "hard_link",
        "missing_field", "no_sample"};

void ps_chart_found(struct ps_chart *c, enum ps_finding_kind kind, const char *fmt, ...)
{
	struct ps_finding *f = &c->findings[kind];

	if (f->count++ > 0)
		return;
	va_list ap;
	va_start(ap, fmt);
	ps_need(vasprintf(&f->first, fmt, ap) < 0 ? NULL : f);
	va_end(ap);
}

/* State of a walk over a shard's members. */
struct look {
	struct ps_chart *chart;
	struct ps_tool_progress *progress;
	uint8_t *buf;
	size_t cap;
	size_t sample_at; /* the first member of the sample that the shard returns next */
};

static struct ps_chart_member *member_add(struct ps_chart *c)
{
	if (c->n == c->cap) {
		size_t cap = PS_MAX(c->cap * 2, (size_t)1024);

		c->members = ps_need(reallocarray(c->members, cap, sizeof(*c->members)));
		c->cap = cap;
	}
	struct ps_chart_member *m = &c->members[c->n++];
	*m = (struct ps_chart_member){.order = c->n - 1, .sample = UINT64_MAX};
	return m;
}

/* Counts the member's field. */
static void field_count(struct ps_chart *c, const struct ps_chart_member *m)
{
	const char *suffix = m->name + m->key_len + 1;
	size_t f = 0;

	while (f < c->nfields && strcasecmp(c->fields[f].suffix, suffix) != 0)
		f++;
	if (f == PS_CHART_MAX_FIELDS)
		return;
	if (f == c->nfields) {
		char *lower = ps_need(strdup(suffix));

		for (char *p = lower; *p; p++)
			if (*p >= 'A' && *p <= 'Z')
				*p = (char)(*p - 'A' + 'a');
		c->fields[c->nfields++].suffix = lower;
	}
	c->fields[f].count++;
}

/* Reads a member for the chart: its checksum, and whether it is a progressive JPEG. Members over MAX_MEMBER
 * are not read. */
static int member_read(struct look *l, struct ps_tar *tar, struct ps_chart_member *m, struct ps_error *err)
{
	int rc;

	if (m->size > MAX_MEMBER)
		return 0;
	if (l->cap < m->size) {
		l->buf = ps_need(realloc(l->buf, m->size));
		l->cap = m->size;
	}
	rc = ps_tar_read(tar, l->buf, err);
	if (rc < 0)
		return rc;
	ps_tool_progress_add(l->progress, 0, m->size);
	m->crc = 0x811c9dc5u; /* FNV-1a of 32 bits; before a duplicate is left out, its bytes are compared */
	for (uint64_t i = 0; i < m->size; i++)
		m->crc = (m->crc ^ l->buf[i]) * 0x01000193u;
	m->progressive = ps_jpeg_is_progressive(l->buf, m->size);
	if (m->progressive)
		ps_chart_found(l->chart, PS_FOUND_PROGRESSIVE, "%s", m->name);
	return 0;
}

static int member_see(void *ctx, struct ps_tar *tar, const struct ps_tar_member *t, struct ps_error *err)
{
	struct look *l = ctx;
	struct ps_chart *c = l->chart;
	struct ps_name_parts parts;
	struct ps_chart_member *m = member_add(c);
	int rc = 0;

	m->name = ps_need(strdup(t->name));
	m->name_len = t->name_len;
	m->offset = t->offset;
	m->size = t->size;
	m->sparse = t->kind == PS_TAR_SPARSE;
	m->key_len = ps_name_split(m->name, m->name_len, &parts) ? parts.key_len : 0;
	if (t->kind == PS_TAR_HARDLINK)
		ps_chart_found(c, PS_FOUND_HARD_LINK, "%s is a link to %s", t->name, t->link);
	else if (!m->sparse)
		rc = member_read(l, tar, m, err);
	if (rc < 0) {
		free(m->name);
		c->n--;
		return rc;
	}
	if (m->key_len == 0) {
		ps_chart_found(c, PS_FOUND_NO_SAMPLE, "%s", m->name);
	} else {
		field_count(c, m);
		m->place = c->nplaced++;
	}
	if (t->kind == PS_TAR_FILE) {
		uint64_t body = (t->size + PS_TAR_BLOCK - 1) / PS_TAR_BLOCK * PS_TAR_BLOCK;

		c->header_nbytes += t->offset - t->header_offset;
		c->needed_nbytes += ps_tar_out_member_nbytes(m->name_len, m->name, m->size) - body;
	}
	return 0;
}

/* Once all members are known ----------------------------------------------------------------------------- */

static bool same_key(const struct ps_chart_member *a, const struct ps_chart_member *b)
{
	return a->key_len == b->key_len && memcmp(a->name, b->name, a->key_len) == 0;
}

bool ps_chart_same(const struct ps_chart_member *a, const struct ps_chart_member *b)
{
	return same_key(a, b) && strcasecmp(a->name + a->key_len, b->name + b->key_len) == 0;
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
	size_t first, n; /* range of the members, which are sorted by key */
	uint64_t order;  /* place of its first member in the tar */
};

static int by_order(const void *pa, const void *pb)
{
	const struct run *a = pa, *b = pb;

	return (a->order > b->order) - (a->order < b->order);
}

/* Finds repeated members in a run of one key, in the order of the tar; returns their number. A loader takes
 * PS_SAMPLE_MAX_FIELDS members at most, so members far beyond that need no check. */
static size_t duplicates_find(struct ps_chart *c, const struct run *run)
{
	struct ps_chart_member *m = &c->members[run->first];
	size_t n = 0;

	for (size_t i = 1; i < PS_MIN(run->n, 2 * (size_t)PS_SAMPLE_MAX_FIELDS); i++) {
		for (size_t j = 0; j < i; j++) {
			if (m[i].drop || m[j].drop || m[i].sparse || !ps_chart_same(&m[i], &m[j]))
				continue;
			m[i].drop = m[i].size == m[j].size && m[i].crc == m[j].crc && m[i].size <= MAX_MEMBER;
			ps_chart_found(c, m[i].drop ? PS_FOUND_DUPLICATE : PS_FOUND_CLASH, "%s", m[i].name);
			n++;
			break;
		}
	}
	return n;
}

/* Finds a run that a loader refuses for another reason than repeated members. */
static void refused_find(struct ps_chart *c, const struct run *run, size_t ntwice)
{
	const struct ps_chart_member *m = &c->members[run->first];
	const char *why = NULL;
	bool sparse = false;
	size_t kept = 0;

	for (size_t i = 0; i < run->n; i++) {
		why = why ? why : m[i].refused;
		sparse = sparse || m[i].sparse;
		kept += !m[i].drop;
	}
	if (kept > PS_SAMPLE_MAX_FIELDS && !why)
		why = "more than 1024 fields in all";
	if (why && (ntwice == 0 || sparse || kept > PS_SAMPLE_MAX_FIELDS))
		ps_chart_found(c, PS_FOUND_REFUSED, "%.*s: %s", (int)m->key_len, m->name, why);
}

/* Makes each key's members consecutive, at the place of the first. Members without a key keep their
 * places. */
static void members_group(struct ps_chart *c)
{
	ps_autofree struct run *runs = ps_need(calloc(c->n + 1, sizeof(*runs)));
	struct ps_chart_member *sorted = ps_need(calloc(c->n + 1, sizeof(*sorted)));
	size_t nruns = 0, at = 0;

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
		c->keys++;
		if (first[runs[i].n - 1].place - first->place >= runs[i].n)
			ps_chart_found(c, PS_FOUND_SCATTERED, "%.*s", (int)first->key_len, first->name);
		refused_find(c, &runs[i], duplicates_find(c, &runs[i]));
	}
	qsort(runs, nruns, sizeof(*runs), by_order);
	for (size_t i = 0; i < nruns; i++)
		for (size_t j = 0; j < runs[i].n; j++)
			sorted[at++] = c->members[runs[i].first + j];
	free(c->members);
	c->members = sorted;
	c->cap = c->n;
}

/* Finds the samples that lack a field that at least nine of ten samples have. */
static void missing_find(struct ps_chart *c)
{
	for (size_t i = 0, end; i < c->n; i = end) {
		const struct ps_chart_member *m = &c->members[i];

		for (end = i + 1; end < c->n && m->key_len > 0 && same_key(&c->members[end], m); end++)
			;
		for (size_t f = 0; f < c->nfields && m->key_len > 0 && !m->drop; f++) {
			const struct ps_chart_field *field = &c->fields[f];
			bool has = field->count * 10 < c->keys * 9;

			for (size_t j = i; j < end && !has; j++)
				has = strcasecmp(c->members[j].name + m->key_len + 1, field->suffix) == 0;
			if (!has)
				ps_chart_found(c, PS_FOUND_MISSING, "%.*s has no .%s", (int)m->key_len,
				        m->name, field->suffix);
		}
	}
}

static bool is_of(const struct ps_chart_member *m, const struct ps_sample *s)
{
	return m->key_len == s->key_len && memcmp(m->name, s->key, s->key_len) == 0;
}

/* Records a bad sample of the shard. */
static void bad_take(struct look *l, const struct ps_shard *shard, const struct ps_sample *s)
{
	struct ps_chart *c = l->chart;
	bool garbage;

	c->refused = ps_need(reallocarray(c->refused, c->nrefused + 1, sizeof(*c->refused)));
	c->refused[c->nrefused++] = s->offset;
	if (ps_shard_failed(shard, &garbage) < 0) {
		ps_chart_found(
		        c, c->n || !c->is_tar ? PS_FOUND_TRUNCATED : PS_FOUND_NOT_TAR, "%s", s->reason);
		/* a sample that was cut off may lack members */
		for (size_t i = 0; !garbage && s->key_len > 0 && i < c->n; i++)
			if (is_of(&c->members[i], s))
				c->members[i].drop = true;
		return;
	}
	for (size_t i = l->sample_at; i < c->n; i++) {
		struct ps_chart_member *m = &c->members[i];

		if (!is_of(m, s))
			continue;
		m->refused = ps_need(strdup(s->reason));
		return;
	}
	/* a line of text: it has no members */
	ps_chart_found(c, PS_FOUND_REFUSED, "%s: %s", s->key, s->reason);
}

static int samples_walk(const char *path, struct look *l, struct ps_shard *shard, struct ps_error *err)
{
	struct ps_sample *s;
	bool garbage;
	int rc;

	while ((rc = ps_shard_next(shard, &s, err)) == 1) {
		if (s->bad && ps_shard_failed(shard, &garbage) < 0 && s->bad != EBADMSG)
			rc = ps_error_set(err, s->bad, "%s: %s", path, s->reason);
		else if (s->bad)
			bad_take(l, shard, s);
		for (size_t i = l->sample_at; i < l->chart->n; i++)
			if (is_of(&l->chart->members[i], s))
				l->chart->members[i].sample = s->offset;
		l->chart->samples += s->bad == 0;
		l->sample_at = l->chart->n;
		ps_sample_free(s);
		if (rc < 0)
			break;
	}
	if (rc == 0 && ps_shard_has_no_end(shard))
		ps_chart_found(l->chart, PS_FOUND_NO_END, "complete up to byte %ju, or cut there",
		        (uintmax_t)ps_shard_offset(shard));
	return rc;
}

static const struct ps_shard_options walk_options = {
        .stream = {.buf_nbytes = 1UL << 20, .wake_fd = -1}, .never_hold = true};

int ps_chart_make(
        const char *path, struct ps_chart *c, struct ps_tool_progress *progress, struct ps_error *err)
{
	struct look l = {.chart = c, .progress = progress};
	struct ps_shard_options options = walk_options;

	options.on_member = member_see;
	options.on_member_ctx = &l;
	c->is_tar = ps_shard_kind_of(options.source, &options.windows, path) == PS_SHARD_KIND_TAR;
	struct ps_shard *shard = ps_need(ps_shard_new(path, 0, &options, err));
	int rc = samples_walk(path, &l, shard, err);
	uint64_t nbytes = ps_shard_offset(shard);
	ps_shard_free(shard);
	free(l.buf);
	if (rc < 0)
		return rc;
	if (c->n > 0)
		members_group(c);
	missing_find(c);
	if (c->header_nbytes > c->needed_nbytes &&
	        (c->header_nbytes - c->needed_nbytes) * 100 >= nbytes * BLOAT_LEAST_PERCENT)
		ps_chart_found(c, PS_FOUND_BLOAT, "%ju of %ju bytes are headers that no loader uses",
		        (uintmax_t)(c->header_nbytes - c->needed_nbytes), (uintmax_t)nbytes);
	return 0;
}

int ps_chart_samples(const char *path, uint64_t *ret_samples, struct ps_error *err)
{
	struct ps_shard *shard = ps_need(ps_shard_new(path, 0, &walk_options, err));
	struct ps_sample *s;
	uint64_t n = 0;
	int rc;

	while ((rc = ps_shard_next(shard, &s, err)) == 1) {
		if (s->bad)
			rc = ps_sample_error_set(err, s, s->reason);
		ps_sample_free(s);
		if (rc < 0)
			break;
		n++;
	}
	ps_shard_free(shard);
	if (rc == 0)
		*ret_samples = n;
	return rc;
}

void ps_chart_fini(struct ps_chart *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->members[i].name);
		free(c->members[i].refused);
	}
	for (int i = 0; i < PS_FOUND_NKINDS; i++)
		free(c->findings[i].first);
	for (size_t i = 0; i < c->nfields; i++)
		free(c->fields[i].suffix);
	free(c->members);
	free(c->refused);
	*c = (struct ps_chart){0};
}
