/* A table of members as readers of the index see it: a tree is finished, all its rows are encoded and decoded
 * again, and what must hold for every table is checked. For tests and fuzz targets. */
#ifndef PS_TESTS_MEMBER_ROWS_H
#define PS_TESTS_MEMBER_ROWS_H

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "members/members_private.h"

#define MEMBER_NONE UINT32_MAX

struct member_rows {
	struct ps_member_table t;
	struct ps_member_row **v;
	uint32_t n;
};

static inline const struct ps_member_entry *member_at(const struct member_rows *r, uint32_t ordinal)
{
	return &r->v[ordinal / PS_MEMBER_ROW]->v[ordinal % PS_MEMBER_ROW];
}

static inline const char *member_name(const struct member_rows *r, uint32_t ordinal)
{
	return r->v[ordinal / PS_MEMBER_ROW]->text + member_at(r, ordinal)->name;
}

static inline const char *member_target(const struct member_rows *r, uint32_t ordinal)
{
	return r->v[ordinal / PS_MEMBER_ROW]->text + member_at(r, ordinal)->link;
}

static inline void member_rows_free(struct member_rows *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		free(r->v[i]);
	free(r->v);
	free(r->t.hidden);
	free(r->t.damage);
	*r = (struct member_rows){0};
}

/* Makes the rows of a tree, for a shard of this size. Returns 0, or the error of ps_member_tree_finish(). */
static inline int member_rows_make(struct ps_member_tree *tree, uint64_t size, struct member_rows *ret)
{
	struct ps_member_row_writer w = {0};
	int rc;

	*ret = (struct member_rows){.t = {.size = size}};
	rc = ps_member_tree_finish(tree, &ret->t);
	if (rc < 0)
		return rc;
	ret->t.damage = strdup("");
	ret->v = calloc(ret->t.n / PS_MEMBER_ROW + 1, sizeof(struct ps_member_row *));
	assert(ret->t.damage && ret->v);
	for (uint32_t first = 0; first < ret->t.n; first += PS_MEMBER_ROW) {
		ps_member_tree_row(tree, first, &w);
		assert(!w.b.failed);
		rc = ps_member_row_decode(w.b.s, w.b.len, &ret->t, first, &ret->v[ret->n++]);
		assert(rc == 0);
	}
	ps_strbuf_fini(&w.b);
	return 0;
}

/* As strcmp(), of names whose lengths are known. */
static inline int member_compare(const char *a, size_t na, const char *b, size_t nb)
{
	int c = memcmp(a, b, PS_MIN(na, nb));

	return c ? c : (na > nb) - (na < nb);
}

/* The entry of this name in a folder; MEMBER_NONE: there is none. */
static inline uint32_t member_find(const struct member_rows *r, uint32_t folder, const char *name, size_t n)
{
	const struct ps_member_entry *e = member_at(r, folder);
	uint32_t from = e->child, end = e->child + e->nchildren;

	if (e->kind != PS_MEMBER_FOLDER)
		return MEMBER_NONE;
	while (from < end) {
		uint32_t mid = from + (end - from) / 2;
		int c = member_compare(name, n, member_name(r, mid), member_at(r, mid)->name_len);

		if (c == 0)
			return mid;
		if (c < 0)
			end = mid;
		else
			from = mid + 1;
	}
	return MEMBER_NONE;
}

/* Follows a path from a folder, as the kernel does, but through no link and not above the top folder.
 * MEMBER_NONE: it leads nowhere. */
static inline uint32_t member_walk(const struct member_rows *r, uint32_t at, const char *path)
{
	for (;;) {
		size_t n = strcspn(path, "/");

		if (n == 0 || member_at(r, at)->kind != PS_MEMBER_FOLDER)
			return MEMBER_NONE;
		if (n == 2 && memcmp(path, "..", 2) == 0) {
			if (at == 0)
				return MEMBER_NONE;
			at = member_at(r, at)->parent;
		} else if (!(n == 1 && path[0] == '.')) {
			at = member_find(r, at, path, n);
		}
		if (at == MEMBER_NONE || !path[n])
			return at;
		path += n + 1;
	}
}

static inline void member_check_name(const char *name, size_t n)
{
	assert(n > 0 && n <= PS_MEMBER_NAME_MAX && strlen(name) == n && !strchr(name, '/'));
	assert(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
}

/* The rules of every table: see members.h. */
static inline void member_rows_check(const struct member_rows *r)
{
	uint32_t next = 1, nfiles = 0;
	uint64_t nbytes = 0;

	assert(r->t.n > 0 && member_at(r, 0)->kind == PS_MEMBER_FOLDER && member_at(r, 0)->parent == 0);
	assert(member_at(r, 0)->name_len == 0);
	assert((r->t.nhidden > 0) == (r->t.hidden[0] != 0));
	for (uint32_t i = 0; i < r->t.n; i++) {
		const struct ps_member_entry *e = member_at(r, i);

		if (i > 0) {
			const struct ps_member_entry *parent = member_at(r, e->parent);

			member_check_name(member_name(r, i), e->name_len);
			assert(e->parent < i && parent->kind == PS_MEMBER_FOLDER);
			assert(i >= parent->child && i - parent->child < parent->nchildren);
			if (i > parent->child)
				assert(member_compare(member_name(r, i - 1), member_at(r, i - 1)->name_len,
				               member_name(r, i), e->name_len) < 0);
			assert(member_find(r, e->parent, member_name(r, i), e->name_len) == i);
		}
		if (e->kind == PS_MEMBER_FOLDER && e->nchildren) {
			assert(e->child == next && e->nchildren <= r->t.n - next);
			next += e->nchildren;
		} else if (e->kind == PS_MEMBER_FILE) {
			assert(e->offset <= r->t.size && e->size <= r->t.size - e->offset);
			assert(e->mtime_s >= 0);
			nfiles++;
			nbytes += e->size;
		} else if (e->kind == PS_MEMBER_LINK) {
			uint32_t to = member_walk(r, e->parent, member_target(r, i));

			assert(strlen(member_target(r, i)) == e->link_len && e->link_len < 4096);
			assert(to != MEMBER_NONE && member_at(r, to)->kind != PS_MEMBER_LINK);
		}
	}
	assert(next == r->t.n && nfiles == r->t.nfiles && nbytes == r->t.nbytes);
}

#endif
