/* Rows and heads of tables of members from a damaged or hostile index. The first byte says which: 'H' a head;
 * any other a row, preceded by three numbers (lowest byte first): how many entries its table has (3 bytes),
 * the row's first ordinal (3) and the size of the shard (6). What is accepted is within its bounds, and stays
 * the same when it is encoded and decoded. */
#include "tests/cache/member_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t number(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

static void try_head(const uint8_t *bytes, size_t n)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_member_table t = {.shard = 7}, again = {.shard = 7};

	if (ps_member_head_decode(bytes, n, &t) < 0)
		return;
	assert(t.shard == 7 && t.n > 0 && t.n <= PS_MEMBERS_MAX && t.nfiles <= t.n);
	assert(t.first < PS_MERGED_FOLDER);
	ps_member_head_encode(&t, &b);
	assert(!b.failed && ps_member_head_decode(b.s, b.len, &again) == 0);
	assert(t.first == again.first && t.n == again.n && t.nfiles == again.nfiles);
	assert(t.nbytes == again.nbytes && t.nhidden == again.nhidden && t.size == again.size);
	assert(t.mtime_s == again.mtime_s && strcmp(t.hidden, again.hidden) == 0);
	assert(strcmp(t.damage, again.damage) == 0);
	free(t.hidden);
	free(t.damage);
	free(again.hidden);
	free(again.damage);
}

static void check_entry(
        const struct ps_member_row *row, unsigned i, const struct ps_member_table *t, uint32_t first)
{
	const struct ps_member_entry *e = &row->v[i];

	assert(strlen(row->text + e->name) == e->name_len);
	if (first + i == 0)
		assert(e->kind == PS_MEMBER_FOLDER && e->parent == 0 && e->name_len == 0);
	else
		member_check_name(row->text + e->name, e->name_len);
	assert(first + i == 0 || e->parent < first + i);
	if (e->kind == PS_MEMBER_FILE)
		assert(e->offset <= t->size && e->size <= t->size - e->offset);
	else if (e->kind == PS_MEMBER_FOLDER)
		assert(e->child <= t->n && e->nchildren <= t->n - e->child &&
		        (e->nchildren == 0 || e->child > first + i));
	else
		assert(e->kind == PS_MEMBER_LINK && e->link_len > 0 &&
		        strlen(row->text + e->link) == e->link_len);
}

static void must_equal(const struct ps_member_row *a, const struct ps_member_row *b, unsigned i)
{
	const struct ps_member_entry *x = &a->v[i], *y = &b->v[i];

	assert(x->kind == y->kind && x->parent == y->parent && x->offset == y->offset && x->size == y->size);
	assert(x->mtime_s == y->mtime_s && x->child == y->child && x->nchildren == y->nchildren);
	assert(strcmp(a->text + x->name, b->text + y->name) == 0);
	assert(x->kind != PS_MEMBER_LINK || strcmp(a->text + x->link, b->text + y->link) == 0);
}

static void try_row(const uint8_t *bytes, size_t n)
{
	struct ps_member_row_writer w = {0};
	struct ps_member_row *row, *again;

	if (n < 12)
		return;
	const struct ps_member_table t = {.n = (uint32_t)number(bytes, 3), .size = number(bytes + 6, 6)};
	uint32_t first = (uint32_t)number(bytes + 3, 3);
	if (ps_member_row_decode(bytes + 12, n - 12, &t, first, &row) < 0)
		return;
	assert(row->n > 0 && row->n == PS_MIN(t.n - first, (uint32_t)PS_MEMBER_ROW));
	ps_member_row_begin(&w);
	for (unsigned i = 0; i < row->n; i++) {
		const struct ps_member_entry *e = &row->v[i];

		check_entry(row, i, &t, first);
		ps_member_row_add(&w, e, row->text + e->name, row->text + e->link);
	}
	ps_member_row_end(&w);
	assert(!w.b.failed && ps_member_row_decode(w.b.s, w.b.len, &t, first, &again) == 0);
	for (unsigned i = 0; i < row->n; i++)
		must_equal(row, again, i);
	ps_strbuf_fini(&w.b);
	free(again);
	free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0 && data[0] == 'H')
		try_head(data + 1, size - 1);
	else if (size > 0)
		try_row(data + 1, size - 1);
	return 0;
}
