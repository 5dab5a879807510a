/* The members of a tar as a tree of folders, and the order of its entries. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "members/members_private.h"

#define PATH_MAX_LEN 4095
/* Limit of the steps from component to component that all links of a shard take together. Links that are not
 * resolved by then are hidden. */
#define STEPS_MIN (UINT64_C(1) << 20)
#define STEPS_PER_ITEM 16
#define TEXT_MAX ((size_t)256 << 20) /* names and targets of a shard */
#define NONE UINT32_MAX
#define ROOT 0

/* An entry while the tree grows. */
struct item {
	uint32_t parent;
	uint32_t name, name_len; /* in `text` */
	uint32_t link, link_len; /* of a link: at first as in the tar, then as it is shown */
	uint32_t ordinal;
	uint32_t child, nchildren; /* of a folder: child is the first one's ordinal, after finish */
	uint32_t target;           /* of a link, once `resolved` */
	enum { UNRESOLVED, RESOLVING, RESOLVED } resolved;
	enum ps_member_kind kind;
	bool hidden;
	uint64_t offset, size;
	int64_t mtime_s;
};

struct ps_member_tree {
	struct item *items; /* items[ROOT] is the top folder */
	uint32_t nitems, cap;
	char *text;
	size_t ntext, text_cap;
	uint32_t *slots; /* a hash table of items by (parent, name); NONE: free */
	uint32_t nslots; /* a power of two, at least twice nitems */
	uint64_t seed;   /* of the hash, so that colliding names cannot be prepared */
	uint64_t nsteps; /* steps that links may still take */
	uint32_t *order; /* items by ordinal; after finish */
	uint32_t nentries;
	uint32_t nhidden;
	char *hidden;
	bool no_memory;
};

/* A component of a path. */
struct part {
	const char *s;
	size_t n;
};

/* Items -------------------------------------------------------------------------------------------------- */

static bool is_named(const struct ps_member_tree *t, uint32_t item, uint32_t parent, struct part name)
{
	const struct item *i = &t->items[item];

	return i->parent == parent && i->name_len == name.n && memcmp(t->text + i->name, name.s, name.n) == 0;
}

/* The slot of the item, or the free one where it belongs. */
static uint32_t *slot_of(const struct ps_member_tree *t, uint32_t parent, struct part name)
{
	uint64_t h = t->seed ^ parent;

	for (size_t i = 0; i < name.n; i++)
		h = (h ^ (uint8_t)name.s[i]) * 1099511628211u;
	h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
	uint32_t at = (uint32_t)(h >> 32) & (t->nslots - 1);
	while (t->slots[at] != NONE && !is_named(t, t->slots[at], parent, name))
		at = (at + 1) & (t->nslots - 1);
	return &t->slots[at];
}

static uint32_t find(const struct ps_member_tree *t, uint32_t parent, struct part name)
{
	return *slot_of(t, parent, name);
}

static int grow_slots(struct ps_member_tree *t)
{
	uint32_t n = t->nslots * 2;
	uint32_t *slots = malloc((size_t)n * sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	free(t->slots);
	t->slots = slots;
	t->nslots = n;
	memset(slots, 0xff, (size_t)n * sizeof(*slots));
	for (uint32_t i = ROOT + 1; i < t->nitems; i++) {
		const struct item *item = &t->items[i];

		*slot_of(t, item->parent, (struct part){t->text + item->name, item->name_len}) = i;
	}
	return 0;
}

static int add_text(struct ps_member_tree *t, const char *s, size_t n, uint32_t *ret)
{
	if (n >= TEXT_MAX || t->ntext > TEXT_MAX - n - 1)
		return -E2BIG;
	if (t->ntext + n + 1 > t->text_cap) {
		size_t cap = t->text_cap * 2 + n + 4096;
		char *text = realloc(t->text, cap);

		if (!text)
			return -ENOMEM;
		t->text = text;
		t->text_cap = cap;
	}
	if (n > 0)
		memcpy(t->text + t->ntext, s, n);
	t->text[t->ntext + n] = '\0';
	*ret = (uint32_t)t->ntext;
	t->ntext += n + 1;
	return 0;
}

static int add_item(
        struct ps_member_tree *t, uint32_t parent, struct part name, enum ps_member_kind kind, uint32_t *ret)
{
	uint32_t text;

	if (t->nitems == PS_MEMBERS_MAX)
		return -E2BIG;
	if (t->nitems == t->cap) {
		uint32_t cap = t->cap * 2;
		struct item *items = realloc(t->items, (size_t)cap * sizeof(*items));

		if (!items)
			return -ENOMEM;
		t->items = items;
		t->cap = cap;
	}
	if (t->nitems + 1 > t->nslots / 2 && grow_slots(t) < 0)
		return -ENOMEM;
	int rc = add_text(t, name.s, name.n, &text);
	if (rc < 0)
		return rc;
	*ret = t->nitems;
	t->items[t->nitems] =
	        (struct item){.parent = parent, .name = text, .name_len = (uint32_t)name.n, .kind = kind};
	*slot_of(t, parent, name) = t->nitems++;
	return 0;
}

struct ps_member_tree *ps_member_tree_new(void)
{
	struct ps_member_tree *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->seed = ps_clock_mono_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uintptr_t)t;
	t->cap = 256;
	t->nslots = 512;
	t->items = calloc(t->cap, sizeof(*t->items));
	t->slots = malloc(t->nslots * sizeof(*t->slots));
	if (!t->items || !t->slots) {
		ps_member_tree_free(t);
		return NULL;
	}
	memset(t->slots, 0xff, t->nslots * sizeof(*t->slots));
	t->items[ROOT].kind = PS_MEMBER_FOLDER;
	t->nitems = 1;
	if (add_text(t, "", 0, &t->items[ROOT].name) < 0) {
		ps_member_tree_free(t);
		return NULL;
	}
	return t;
}

void ps_member_tree_free(struct ps_member_tree *t)
{
	if (!t)
		return;
	free(t->items);
	free(t->slots);
	free(t->text);
	free(t->order);
	free(t->hidden);
	free(t);
}

/* Adding ------------------------------------------------------------------------------------------------- */

static int hide(struct ps_member_tree *t, const char *name, size_t name_len, const char *why)
{
	t->nhidden++;
	if (t->hidden)
		return 0;
	if (asprintf(&t->hidden, "%.*s%s: %s", (int)PS_MIN(name_len, (size_t)200), name,
	            name_len > 200 ? "..." : "", why) < 0) {
		t->hidden = NULL;
		return -ENOMEM;
	}
	for (char *c = t->hidden; *c; c++) /* the text is shown on terminals */
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return 0;
}

/* Takes the next component of a path that is not ".". False: there is none. */
static bool next_part(const char **path, struct part *ret)
{
	do {
		*path += strspn(*path, "/");
		*ret = (struct part){*path, strcspn(*path, "/")};
		*path += ret->n;
	} while (ret->n == 1 && ret->s[0] == '.');
	return ret->n > 0;
}

static bool is_up(struct part part)
{
	return part.n == 2 && memcmp(part.s, "..", 2) == 0;
}

/* Why a path cannot be shown; NULL: it can. */
static const char *wrong_path(const char *path, size_t len)
{
	struct part part;
	bool any = false;

	if (len > PATH_MAX_LEN)
		return "the name is longer than a path may be";
	while (next_part(&path, &part)) {
		any = true;
		if (is_up(part))
			return "the name has a component \"..\"";
		if (part.n > PS_MEMBER_NAME_MAX)
			return "a component of the name has more than 255 bytes";
	}
	return any ? NULL : "the name is empty";
}

/* The folder of this name, made if missing. A folder hides a file or link of its name. */
static int folder_in(struct ps_member_tree *t, uint32_t parent, struct part name, uint32_t *ret)
{
	int rc = 0;

	*ret = find(t, parent, name);
	if (*ret == NONE)
		return add_item(t, parent, name, PS_MEMBER_FOLDER, ret);
	if (t->items[*ret].kind != PS_MEMBER_FOLDER) {
		rc = hide(t, name.s, name.n, "a folder has the same name");
		t->items[*ret].kind = PS_MEMBER_FOLDER;
	}
	return rc;
}

/* Walks to the last component of the member's name, and makes the folders before it. */
static int walk(struct ps_member_tree *t, const char *path, uint32_t *ret_parent, struct part *ret_name)
{
	struct part next;
	int rc = 0;

	*ret_parent = ROOT;
	next_part(&path, ret_name);
	while (rc == 0 && next_part(&path, &next)) {
		rc = folder_in(t, *ret_parent, *ret_name, ret_parent);
		*ret_name = next;
	}
	return rc;
}

/* Puts a file or link at its place. */
static int put_leaf(struct ps_member_tree *t, const struct ps_tar_member *m, uint32_t parent,
        struct part name, const struct item *like)
{
	uint32_t at = find(t, parent, name);
	int rc = 0;

	if (at == NONE)
		rc = add_item(t, parent, name, like->kind, &at);
	else if (t->items[at].kind == PS_MEMBER_FOLDER)
		return hide(t, m->name, m->name_len, "a folder has the same name");
	else
		rc = hide(t, m->name, m->name_len, "a later member has the same name");
	if (rc < 0)
		return rc;
	struct item *item = &t->items[at];
	item->kind = like->kind;
	item->link = like->link;
	item->link_len = like->link_len;
	item->offset = like->offset;
	item->size = like->size;
	item->mtime_s = like->mtime_s;
	return 0;
}

int ps_member_tree_add(struct ps_member_tree *t, const struct ps_tar_member *m)
{
	struct item like = {
	        .kind = PS_MEMBER_FILE, .offset = m->offset, .size = m->size, .mtime_s = m->mtime_s};
	const char *why = m->name_too_long           ? "the name is longer than a path may be"
	                  : m->kind == PS_TAR_SPARSE ? "a sparse file, whose bytes are not in one piece"
	                  : m->kind == PS_TAR_OTHER  ? "a device or FIFO, or of an unknown kind"
	                                             : wrong_path(m->name, m->name_len);
	uint32_t parent, target;
	struct part name;

	if (m->kind == PS_TAR_FOLDER && why && !m->name_too_long && strspn(m->name, "./") == m->name_len &&
	        !strstr(m->name, ".."))
		return 0; /* "./": the top folder itself */
	if (!why && m->kind == PS_TAR_HARDLINK) {
		const char *path = m->link;

		target = wrong_path(m->link, m->link_len) ? NONE : ROOT;
		while (target != NONE && next_part(&path, &name))
			target = t->items[target].kind == PS_MEMBER_FOLDER ? find(t, target, name) : NONE;
		if (target == NONE || t->items[target].kind != PS_MEMBER_FILE)
			why = "a hard link to a file that is not shown, or comes later";
		else
			like = t->items[target];
	}
	if (!why && m->kind == PS_TAR_SYMLINK && m->link_len > PATH_MAX_LEN)
		why = "the target of a link is longer than a path may be";
	if (why)
		return hide(t, m->name, m->name_len, why);
	int rc = walk(t, m->name, &parent, &name);
	if (rc == 0 && m->kind == PS_TAR_FOLDER) {
		rc = folder_in(t, parent, name, &target);
		if (rc == 0)
			t->items[target].mtime_s = m->mtime_s;
		return rc;
	}
	if (rc == 0 && m->kind == PS_TAR_SYMLINK) {
		like.kind = PS_MEMBER_LINK;
		like.link_len = (uint32_t)m->link_len;
		rc = add_text(t, m->link, m->link_len, &like.link);
	}
	return rc < 0 ? rc : put_leaf(t, m, parent, name, &like);
}

/* Links -------------------------------------------------------------------------------------------------- */

/* How far the resolution of a link is. */
struct frame {
	uint32_t link, at; /* at: the folder, or at last the target */
	const char *rest;  /* what is left of the link's path */
};

struct frames {
	struct frame *v;
	size_t n, cap;
};

static int push(struct ps_member_tree *t, struct frames *frames, uint32_t link)
{
	struct item *item = &t->items[link];

	if (!ps_grow(&frames->v, frames->n, &frames->cap, sizeof(*frames->v)))
		return -ENOMEM;
	item->resolved = RESOLVING;
	frames->v[frames->n++] =
	        (struct frame){.link = link, .at = item->parent, .rest = t->text + item->link};
	return 0;
}

/* Continues until the link is resolved (f->at is its target, or NONE), or until another link, *ret_link, has
 * to be resolved first. */
static void walk_link(struct ps_member_tree *t, struct frame *f, uint32_t *ret_link)
{
	struct part part;

	*ret_link = NONE;
	if (f->rest[0] == '/' && f->rest == t->text + t->items[f->link].link)
		f->at = NONE; /* an absolute path */
	while (f->at != NONE && next_part(&f->rest, &part)) {
		const struct item *folder = &t->items[f->at];

		if (folder->kind != PS_MEMBER_FOLDER || (is_up(part) && f->at == ROOT) || t->nsteps == 0) {
			f->at = NONE;
			return;
		}
		t->nsteps--;
		f->at = is_up(part) ? folder->parent : find(t, f->at, part);
		if (f->at == NONE || t->items[f->at].kind != PS_MEMBER_LINK)
			continue;
		const struct item *link = &t->items[f->at];
		if (link->resolved == UNRESOLVED) {
			*ret_link = f->at;
			return;
		}
		f->at = link->resolved == RESOLVED ? link->target : NONE; /* NONE: a loop */
	}
}

/* Resolves a link, and each link on its way: `target` becomes the item that it leads to, which is not a
 * link. NONE: it leads nowhere, out of the shard, or to itself. */
static int resolve(struct ps_member_tree *t, uint32_t link, struct frames *frames)
{
	int rc = push(t, frames, link);

	while (rc == 0 && frames->n > 0) {
		struct frame *f = &frames->v[frames->n - 1];
		uint32_t next;

		walk_link(t, f, &next);
		if (next != NONE) {
			rc = push(t, frames, next);
			continue;
		}
		t->items[f->link].resolved = RESOLVED;
		t->items[f->link].target = f->at;
		if (--frames->n > 0)
			f[-1].at = f->at;
	}
	return rc;
}

static unsigned depth_of(const struct ps_member_tree *t, uint32_t at)
{
	unsigned depth = 0;

	for (; at != ROOT; at = t->items[at].parent)
		depth++;
	return depth;
}

/* Writes the path from a folder to an item, from the end of buf. The path goes through folders only, never
 * through a link, so the kernel arrives where resolve() did. NULL: the path is too long. */
static const char *relative(const struct ps_member_tree *t, uint32_t from, uint32_t to,
        char buf[static PATH_MAX_LEN + 1], size_t *ret_len)
{
	unsigned nfrom = depth_of(t, from), nto = depth_of(t, to);
	char *end = buf + PATH_MAX_LEN, *p = end;
	unsigned nups = 0;

	*end = '\0';
	while (from != to) {
		if (nto >= nfrom) {
			const struct item *item = &t->items[to];

			if ((size_t)(p - buf) < item->name_len + 1)
				return NULL;
			p -= item->name_len;
			memcpy(p, t->text + item->name, item->name_len);
			*--p = '/';
			to = item->parent;
			nto--;
		} else {
			from = t->items[from].parent;
			nfrom--;
			nups++;
		}
	}
	if ((size_t)(p - buf) < 3 * (size_t)nups + 2)
		return NULL;
	for (; nups > 0; nups--)
		p = memcpy(p - 3, "/..", 3);
	if (p == end)
		p = memcpy(p - 2, "/.", 2);
	*ret_len = (size_t)(end - p) - 1;
	return p + 1;
}

/* Finds the targets of all links, and then replaces their paths by those that are shown. */
static int resolve_links(struct ps_member_tree *t)
{
	char buf[PATH_MAX_LEN + 1];
	struct frames frames = {0};
	int rc = 0;

	t->nsteps = STEPS_MIN + STEPS_PER_ITEM * (uint64_t)t->nitems;
	for (uint32_t i = ROOT + 1; rc == 0 && i < t->nitems; i++)
		if (t->items[i].kind == PS_MEMBER_LINK && t->items[i].resolved == UNRESOLVED)
			rc = resolve(t, i, &frames);
	free(frames.v);
	for (uint32_t i = ROOT + 1; rc == 0 && i < t->nitems; i++) {
		struct item *item = &t->items[i];
		const char *path = NULL;
		size_t len;

		if (item->kind != PS_MEMBER_LINK)
			continue;
		if (item->target != NONE && item->link_len > 0)
			path = relative(t, item->parent, item->target, buf, &len);
		if (path) {
			rc = add_text(t, path, len, &item->link);
			item->link_len = (uint32_t)len;
		} else {
			item->hidden = true;
			rc = hide(t, t->text + item->name, item->name_len,
			        "a link that leads out of the shard, or to nothing that is shown");
		}
	}
	return rc;
}

/* Order -------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b, void *arg)
{
	const struct ps_member_tree *t = arg;
	const struct item *x = &t->items[*(const uint32_t *)a], *y = &t->items[*(const uint32_t *)b];
	int c = memcmp(t->text + x->name, t->text + y->name, PS_MIN(x->name_len, y->name_len));

	return c ? c : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

/* Gives the entries their ordinals, folder by folder, so that the entries of a folder are next to each
 * other. */
static int give_ordinals(struct ps_member_tree *t)
{
	uint32_t *children = malloc((size_t)t->nitems * sizeof(*children)), at = 0;

	t->order = malloc((size_t)t->nitems * sizeof(*t->order));
	if (!children || !t->order) {
		free(children);
		return -ENOMEM;
	}
	for (uint32_t i = ROOT + 1; i < t->nitems; i++)
		t->items[t->items[i].parent].nchildren += !t->items[i].hidden;
	for (uint32_t i = ROOT; i < t->nitems; i++) {
		t->items[i].child = at;
		at += t->items[i].nchildren;
		t->items[i].nchildren = 0;
	}
	for (uint32_t i = ROOT + 1; i < t->nitems; i++) {
		struct item *parent = &t->items[t->items[i].parent];

		if (!t->items[i].hidden)
			children[parent->child + parent->nchildren++] = i;
	}
	t->order[0] = ROOT;
	t->nentries = 1;
	for (uint32_t k = 0; k < t->nentries; k++) {
		struct item *item = &t->items[t->order[k]];

		item->ordinal = k;
		if (item->nchildren == 0)
			continue;
		qsort_r(children + item->child, item->nchildren, sizeof(*children), by_name, t);
		memcpy(t->order + t->nentries, children + item->child, item->nchildren * sizeof(*children));
		item->child = t->nentries;
		t->nentries += item->nchildren;
	}
	free(children);
	return 0;
}

int ps_member_tree_finish(struct ps_member_tree *t, struct ps_member_table *ret)
{
	int rc = resolve_links(t);

	if (rc == 0)
		rc = give_ordinals(t);
	if (rc == 0 && !t->hidden && !(t->hidden = strdup("")))
		rc = -ENOMEM;
	if (rc < 0)
		return rc;
	ret->n = t->nentries;
	ret->nfiles = 0;
	ret->nbytes = 0;
	for (uint32_t k = 0; k < t->nentries; k++) {
		const struct item *item = &t->items[t->order[k]];

		ret->nfiles += item->kind == PS_MEMBER_FILE;
		ret->nbytes += item->kind == PS_MEMBER_FILE ? item->size : 0;
	}
	ret->nhidden = t->nhidden;
	ret->hidden = ps_steal_ptr(&t->hidden);
	return 0;
}

void ps_member_tree_row(const struct ps_member_tree *t, uint32_t first, struct ps_member_row_writer *w)
{
	uint32_t end = PS_MIN(t->nentries, first + PS_MEMBER_ROW);

	ps_member_row_begin(w);
	for (uint32_t k = first; k < end; k++) {
		const struct item *item = &t->items[t->order[k]];
		const struct ps_member_entry entry = {.kind = item->kind,
		        .parent = t->items[item->parent].ordinal,
		        .name_len = item->name_len,
		        .link_len = item->link_len,
		        .offset = item->offset,
		        .size = item->size,
		        .mtime_s = item->mtime_s,
		        .child = item->nchildren ? item->child : 0,
		        .nchildren = item->nchildren};

		ps_member_row_add(w, &entry, t->text + item->name, t->text + item->link);
	}
	ps_member_row_end(w);
}
