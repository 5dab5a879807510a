#include "config.h"

#include "shard/shard.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"

struct entry {
	uint64_t hash;
	size_t text; /* its place in `texts` */
	size_t len;
	uint64_t offset, size;
	enum ps_tar_kind kind; /* PS_TAR_FILE: a target */
};

struct ps_links {
	struct ps_buf texts;
	struct entry *entries;
	uint32_t n, cap;
	uint32_t *
	        slots; /* numbers of entries, from 1; 0: free. Their number is a power of two, at least 2 * n */
	uint32_t nslots;
};

struct ps_links *ps_links_new(void)
{
	return calloc(1, sizeof(struct ps_links));
}

void ps_links_free(struct ps_links *l)
{
	if (!l)
		return;
	ps_buf_fini(&l->texts);
	free(l->entries);
	free(l->slots);
	free(l);
}

/* Appends the name to the texts, without parts that do not count. */
static int name_put(struct ps_links *l, const char *name, size_t *ret_len)
{
	size_t begin = l->texts.n;
	int rc = 0;

	while (*name && rc == 0) {
		size_t n = strcspn(name, "/");

		if (n > 0 && !(n == 1 && name[0] == '.')) {
			if (l->texts.n > begin)
				rc = ps_buf_add(&l->texts, "/", 1);
			if (rc == 0)
				rc = ps_buf_add(&l->texts, name, n);
		}
		name += n + (name[n] == '/');
	}
	*ret_len = l->texts.n - begin;
	return rc;
}

/* The slot of a name, or the free one where it belongs. */
static uint32_t *slot_of(const struct ps_links *l, uint64_t hash, size_t text, size_t len)
{
	for (uint32_t i = (uint32_t)hash;; i++) {
		uint32_t *slot = &l->slots[i & (l->nslots - 1)];
		const struct entry *e = &l->entries[*slot ? *slot - 1 : 0];

		if (*slot == 0 || (e->hash == hash && e->len == len &&
		                          memcmp(l->texts.p + e->text, l->texts.p + text, len) == 0))
			return slot;
	}
}

static int grow(struct ps_links *l)
{
	uint32_t cap = l->cap ? 2 * l->cap : 256;
	struct entry *entries;
	uint32_t *slots;

	if (l->n >= PS_LINKS_MAX || l->texts.n > PS_LINKS_MAX_TEXT)
		return -E2BIG;
	if (l->n < l->cap)
		return 0;
	entries = reallocarray(l->entries, cap, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	l->entries = entries;
	l->cap = cap;
	slots = calloc(2 * (size_t)cap, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(l->slots);
	l->slots = slots;
	l->nslots = 2 * cap;
	for (uint32_t i = 0; i < l->n; i++)
		*slot_of(l, entries[i].hash, entries[i].text, entries[i].len) = i + 1;
	return 0;
}

int ps_links_add(struct ps_links *l, struct ps_tar_member *m)
{
	struct entry *target = NULL, e;
	uint32_t *slot;
	size_t begin = l->texts.n, len;
	int rc = m->kind == PS_TAR_HARDLINK ? name_put(l, m->link, &len) : 0;

	if (m->kind == PS_TAR_HARDLINK && rc == 0 && l->n > 0) {
		slot = slot_of(l, ps_hash(PS_HASH_BEGIN, l->texts.p + begin, len), begin, len);
		target = *slot ? &l->entries[*slot - 1] : NULL;
	}
	l->texts.n = begin;
	if (m->kind == PS_TAR_HARDLINK && target && target->kind == PS_TAR_FILE) {
		m->offset = target->offset;
		m->size = target->size;
	} else if (m->kind == PS_TAR_HARDLINK) {
		m->kind = PS_TAR_OTHER;
	}
	if (rc == 0)
		rc = grow(l);
	e = (struct entry){.text = l->texts.n,
	        .offset = m->offset,
	        .size = m->size,
	        .kind = m->kind == PS_TAR_HARDLINK ? PS_TAR_FILE : m->kind};
	if (rc == 0)
		rc = name_put(l, m->name, &e.len);
	if (rc < 0)
		return rc;
	if (e.len == 0)
		return 0;
	e.hash = ps_hash(PS_HASH_BEGIN, l->texts.p + e.text, e.len);
	slot = slot_of(l, e.hash, e.text, e.len);
	if (*slot) { /* the later member counts */
		l->texts.n = e.text;
		e.text = l->entries[*slot - 1].text;
	} else {
		*slot = ++l->n;
	}
	l->entries[*slot - 1] = e;
	return 0;
}
