/* The form of a table in the index. Numbers are varints: seven bits a byte, the lowest first. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "members/members_private.h"

#define ROW_FORMAT 2
#define ROW_FORMAT_TIMELESS 1 /* folders and links have no times */
#define HEAD_FORMAT 1
#define TEXT_MAX ((uint64_t)PS_MEMBER_ROW * (PS_MEMBER_NAME_MAX + 1 + 4096))
#define LINK_MAX 4095

static void put_number(struct ps_strbuf *b, uint64_t v)
{
	uint8_t bytes[10];
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		bytes[n++] = (uint8_t)(v | 0x80);
	bytes[n++] = (uint8_t)v;
	ps_strbuf_addn(b, bytes, n);
}

/* Small positive and negative numbers are short: 0, -1, 1, -2 ... become 0, 1, 2, 3. */
static void put_signed(struct ps_strbuf *b, int64_t v)
{
	put_number(b, (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0));
}

struct reader {
	const uint8_t *p, *end;
	bool bad; /* sticky; every later number is 0 */
};

static uint64_t get_number(struct reader *r)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64 && r->p < r->end; shift += 7) {
		uint8_t c = *r->p++;

		if (shift == 63 && c > 1)
			break;
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80))
			return v;
	}
	r->bad = true;
	return 0;
}

static int64_t get_signed(struct reader *r)
{
	uint64_t v = get_number(r);

	return (int64_t)(v >> 1 ^ (v & 1 ? UINT64_MAX : 0));
}

/* A number of at most `most`. */
static uint64_t get_at_most(struct reader *r, uint64_t most)
{
	uint64_t v = get_number(r);

	r->bad |= v > most;
	return r->bad ? 0 : v;
}

static const char *get_bytes(struct reader *r, uint64_t n)
{
	const char *at = (const char *)r->p;

	if (r->bad || n > (uint64_t)(r->end - r->p)) {
		r->bad = true;
		return NULL;
	}
	r->p += n;
	return at;
}

/* Rows --------------------------------------------------------------------------------------------------- */

static uint64_t padded(uint64_t n)
{
	return (n + PS_TAR_BLOCK - 1) & ~(uint64_t)(PS_TAR_BLOCK - 1);
}

void ps_member_row_begin(struct ps_member_row_writer *w)
{
	ps_strbuf_reset(&w->b);
	w->end = 0;
	w->mtime_s = 0;
	w->parent = 0;
	w->name = "";
	w->name_len = w->ntext = 0;
}

void ps_member_row_add(
        struct ps_member_row_writer *w, const struct ps_member_entry *e, const char *name, const char *link)
{
	size_t shared = 0;

	while (shared < PS_MIN(w->name_len, (size_t)e->name_len) && w->name[shared] == name[shared])
		shared++;
	put_number(&w->b, e->kind);
	put_number(&w->b, e->parent - w->parent);
	put_number(&w->b, shared);
	put_number(&w->b, e->name_len - shared);
	ps_strbuf_addn(&w->b, name + shared, e->name_len - shared);
	if (e->kind == PS_MEMBER_FILE) {
		put_signed(&w->b, (int64_t)(e->offset - w->end));
		put_number(&w->b, e->size);
		w->end = padded(e->offset + e->size);
	} else if (e->kind == PS_MEMBER_FOLDER) {
		put_number(&w->b, e->child);
		put_number(&w->b, e->nchildren);
	} else {
		put_number(&w->b, e->link_len);
		ps_strbuf_addn(&w->b, link, e->link_len);
		w->ntext += e->link_len + 1;
	}
	put_signed(&w->b, (int64_t)((uint64_t)e->mtime_s - (uint64_t)w->mtime_s));
	w->mtime_s = e->mtime_s;
	w->parent = e->parent;
	w->name = name;
	w->name_len = e->name_len;
	w->ntext += e->name_len + 1;
}

void ps_member_row_end(struct ps_member_row_writer *w)
{
	struct ps_strbuf whole = {0};

	ps_strbuf_addc(&whole, ROW_FORMAT);
	put_number(&whole, w->ntext);
	ps_strbuf_addn(&whole, w->b.s, w->b.len);
	whole.failed |= w->b.failed;
	ps_strbuf_fini(&w->b);
	w->b = whole;
}

/* True if it can be a name in a folder. */
static bool is_name(const char *name, size_t n)
{
	return n > 0 && n <= PS_MEMBER_NAME_MAX && !memchr(name, '/', n) && !memchr(name, 0, n) &&
	       !(n <= 2 && memcmp(name, "..", n) == 0);
}

/* Reads the name into the row's text. The first bytes of the name are those of the previous name. */
static void get_name(struct reader *r, struct ps_member_row *row, const struct ps_member_entry *last,
        bool top, struct ps_member_entry *e, size_t *text)
{
	uint64_t shared = get_at_most(r, last ? last->name_len : 0);
	uint64_t n = get_at_most(r, PS_MEMBER_NAME_MAX - shared);
	const char *rest = get_bytes(r, n);

	if (r->bad)
		return;
	e->name = (uint32_t)*text;
	e->name_len = (uint32_t)(shared + n);
	if (shared)
		memcpy(row->text + *text, row->text + last->name, shared);
	memcpy(row->text + *text + shared, rest, n);
	*text += shared + n;
	row->text[(*text)++] = '\0';
	r->bad = top ? e->name_len > 0 : !is_name(row->text + e->name, e->name_len);
}

static void get_file(
        struct reader *r, const struct ps_member_table *table, struct ps_member_entry *e, uint64_t *end)
{
	e->offset = *end + (uint64_t)get_signed(r);
	e->size = get_number(r);
	r->bad |= e->offset > table->size || e->size > table->size - e->offset;
	*end = r->bad ? 0 : padded(e->offset + e->size);
}

static void get_link(
        struct reader *r, struct ps_member_row *row, size_t ntext, struct ps_member_entry *e, size_t *text)
{
	uint64_t n = get_at_most(r, LINK_MAX);
	const char *target = get_bytes(r, n);

	if (r->bad || n == 0 || memchr(target, 0, n) || *text + n + 1 > ntext) {
		r->bad = true;
		return;
	}
	e->link = (uint32_t)*text;
	e->link_len = (uint32_t)n;
	memcpy(row->text + *text, target, n);
	*text += n;
	row->text[(*text)++] = '\0';
}

static void get_entry(struct reader *r, const struct ps_member_table *table, uint32_t ordinal, size_t ntext,
        struct ps_member_row *row, size_t *text, uint64_t *end, int64_t *mtime_s, bool timeless)
{
	const struct ps_member_entry *last = row->n ? &row->v[row->n - 1] : NULL;
	struct ps_member_entry *e = &row->v[row->n];
	uint64_t kind = get_at_most(r, PS_MEMBER_LINK);

	*e = (struct ps_member_entry){.kind = (enum ps_member_kind)kind};
	e->parent = (last ? last->parent : 0) + (uint32_t)get_at_most(r, UINT32_MAX);
	/* Folders come before what is in them. */
	r->bad |= kind == 0 || (ordinal ? e->parent >= ordinal : e->parent != 0 || kind != PS_MEMBER_FOLDER);
	get_name(r, row, last, ordinal == 0, e, text);
	if (r->bad)
		return;
	if (kind == PS_MEMBER_FILE) {
		get_file(r, table, e, end);
	} else if (kind == PS_MEMBER_FOLDER) {
		e->child = (uint32_t)get_at_most(r, table->n);
		e->nchildren = (uint32_t)get_at_most(r, table->n - e->child);
		r->bad |= e->nchildren && e->child <= ordinal;
	} else {
		get_link(r, row, ntext, e, text);
	}
	if (timeless && kind != PS_MEMBER_FILE)
		return;
	e->mtime_s = (int64_t)((uint64_t)*mtime_s + (uint64_t)get_signed(r));
	*mtime_s = e->mtime_s;
}

int ps_member_row_decode(const void *bytes, size_t n, const struct ps_member_table *table,
        uint32_t first_ordinal, struct ps_member_row **ret)
{
	struct reader r = {.p = bytes, .end = (const uint8_t *)bytes + n};
	unsigned count = PS_MIN(table->n - first_ordinal, (uint32_t)PS_MEMBER_ROW);
	uint64_t end = 0;
	int64_t mtime_s = 0;
	size_t text = 0;

	uint64_t format = get_number(&r);
	if (first_ordinal >= table->n || (format != ROW_FORMAT && format != ROW_FORMAT_TIMELESS))
		return -EBADMSG;
	size_t ntext = (size_t)get_at_most(&r, TEXT_MAX);
	if (r.bad)
		return -EBADMSG;
	/* A name is written before its length is compared with ntext. */
	struct ps_member_row *row = malloc(sizeof(*row) + ntext + PS_MEMBER_NAME_MAX + 1);
	if (!row)
		return -ENOMEM;
	atomic_init(&row->refs, 1);
	for (row->n = 0; row->n < count && !r.bad; row->n++) {
		get_entry(&r, table, first_ordinal + row->n, ntext, row, &text, &end, &mtime_s,
		        format == ROW_FORMAT_TIMELESS);
		r.bad |= text > ntext;
	}
	if (r.bad || r.p != r.end || text != ntext) {
		free(row);
		return -EBADMSG;
	}
	*ret = row;
	return 0;
}

/* Heads -------------------------------------------------------------------------------------------------- */

static void put_text(struct ps_strbuf *b, const char *text)
{
	put_number(b, strlen(text));
	ps_strbuf_add(b, text);
}

static char *get_text(struct reader *r)
{
	uint64_t n = get_at_most(r, PS_ERROR_TEXT_LEN);
	const char *at = get_bytes(r, n);

	return r->bad || memchr(at, 0, n) ? NULL : strndup(at, n);
}

void ps_member_head_encode(const struct ps_member_table *table, struct ps_strbuf *b)
{
	ps_strbuf_addc(b, HEAD_FORMAT);
	put_number(b, table->first);
	put_number(b, table->n);
	put_number(b, table->nfiles);
	put_number(b, table->nbytes);
	put_number(b, table->nhidden);
	put_number(b, table->by_index);
	put_number(b, table->size);
	put_signed(b, table->mtime_s);
	put_text(b, table->hidden);
	put_text(b, table->damage);
}

int ps_member_head_decode(const void *bytes, size_t n, struct ps_member_table *table)
{
	struct reader r = {.p = bytes, .end = (const uint8_t *)bytes + n};
	struct ps_member_table t = *table;

	r.bad = get_number(&r) != HEAD_FORMAT;
	t.first = get_at_most(&r, PS_MERGED_FOLDER - 1);
	t.n = (uint32_t)get_at_most(&r, PS_MEMBERS_MAX);
	t.nfiles = (uint32_t)get_at_most(&r, t.n);
	t.nbytes = get_number(&r);
	t.nhidden = (uint32_t)get_at_most(&r, UINT32_MAX);
	t.by_index = get_at_most(&r, 1);
	t.size = get_number(&r);
	t.mtime_s = get_signed(&r);
	t.hidden = get_text(&r);
	t.damage = get_text(&r);
	if (r.bad || r.p != r.end || t.n == 0 || !t.hidden || !t.damage) {
		free(t.hidden);
		free(t.damage);
		return -EBADMSG;
	}
	*table = t;
	return 0;
}
