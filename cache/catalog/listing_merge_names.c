/* Names of compressed shards: x.tar.zst is shown as x.tar, unless another file is called so. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "catalog/listing_merge_private.h"

static struct ps_merge_later *take_later(struct ps_merge *m)
{
	struct ps_merge_later *later = m->later;

	m->later = later->next;
	return later;
}

static void free_later(struct ps_merge_later *later)
{
	free(later->name);
	free(later->url);
	free(later);
}

#define TAIL 1024 /* of seen nodes that are not sorted yet */

/* Sorts the tail into the rest, from behind. Without memory for that all of it stays a tail, which takes time
 * only. */
static void sort_seen(struct ps_merge *m)
{
	size_t nsorted = m->nsorted, ntail = m->nseen - nsorted, to = m->nseen;
	uint64_t *tail = reallocarray(NULL, ntail, sizeof *tail);

	if (!tail)
		return;
	memcpy(tail, m->seen + nsorted, ntail * sizeof *tail);
	qsort(tail, ntail, sizeof *tail, ps_merge_compare);
	while (ntail > 0)
		m->seen[--to] = nsorted > 0 && m->seen[nsorted - 1] > tail[ntail - 1] ? m->seen[--nsorted]
		                                                                      : tail[--ntail];
	m->nsorted = m->nseen;
	free(tail);
}

/* Where all files have moved, each name asks so. */
static bool was_listed(struct ps_merge *m, uint64_t node)
{
	if (m->nseen - m->nsorted > TAIL)
		sort_seen(m);
	for (size_t i = m->nseen; i > m->nsorted; i--)
		if (m->seen[i - 1] == node)
			return true;
	return m->nsorted > 0 && bsearch(&node, m->seen, m->nsorted, sizeof node, ps_merge_compare);
}

static int merge_as_it_is(
        struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed)
{
	struct ps_node_row old = {0};

	if (!m->told_clash)
		ps_log_info(
		        "list: %s: shown as it is: another file has the name that its contents would have",
		        listed->url);
	m->told_clash = true;
	int rc = ps_merge_get_named(m, parent, name, &old);
	if (rc == 0 || rc == -ENOENT)
		rc = ps_merge_file(m, parent, name, listed, PS_CODING_NONE, rc == 0 ? &old : NULL);
	ps_node_row_fini(&old);
	return rc;
}

/* The name under which a compressed shard is listed, by its URL, of which a view is shown as `shown`. */
static char *listed_name(const char *shown, const char *url, enum ps_coding coding)
{
	static const char *const shorts[] = {"", ".tzst", ".tgz", ".lz4"},
	                         *const longs[] = {"", ".zst", ".gz", ".lz4"};
	size_t len = strcspn(url, "?"), n = strlen(shorts[coding]), stem = strlen(shown) - strlen(".tar");
	bool is_short = coding != PS_CODING_LZ4 && len > n && strncasecmp(url + len - n, shorts[coding], n) == 0;
	char *name;

	if (asprintf(&name, "%.*s%s", (int)(is_short ? stem : strlen(shown)), shown,
	            is_short ? shorts[coding] : longs[coding]) < 0)
		return NULL;
	return name;
}

int ps_merge_give_way(struct ps_merge *m, const struct ps_node_row *view)
{
	if (!view->coding || !was_listed(m, view->node))
		return 0;
	ps_autofree char *name = listed_name(view->name, view->url, (enum ps_coding)view->coding);
	const struct ps_listed listed = {.url = view->url, .remote = view->remote};

	m->nfiles--; /* it is counted again */
	return name ? merge_as_it_is(m, view->parent, name, &listed) : -ENOMEM;
}

static int put_off(struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed)
{
	struct ps_merge_later *later = calloc(1, sizeof *later);

	if (!later)
		return -ENOMEM;
	*later = (struct ps_merge_later){.next = m->later,
	        .parent = parent,
	        .name = strdup(name),
	        .url = strdup(listed->url),
	        .remote = listed->remote};
	m->later = later;
	return later->name && later->url ? 0 : -ENOMEM;
}

int ps_merge_named(
        struct ps_merge *m, uint64_t parent, const char *name, const struct ps_listed *listed, bool last)
{
	size_t len = 0;
	bool tar = false;
	enum ps_coding coding = m->dataset->raw ? PS_CODING_NONE : ps_coding_of_name(name, &len, &tar);
	ps_autofree char *shown = NULL;
	struct ps_node_row old = {0};

	if (asprintf(&shown, "%.*s%s", coding ? (int)len : (int)strlen(name), name, tar ? ".tar" : "") < 0) {
		shown = NULL;
		return -ENOMEM;
	}
	int rc = ps_merge_get_named(m, parent, shown, &old);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	struct ps_node_row *found = rc == 0 ? &old : NULL;
	bool other = found && (old.kind == PS_NODE_DIR || strcmp(old.url, listed->url) != 0);
	bool now = other && coding && was_listed(m, old.node);
	if (!coding) {
		rc = ps_merge_file(m, parent, name, listed, coding, found);
		if (rc == 0 && other)
			rc = ps_merge_give_way(m, &old);
	} else if (now) {
		rc = merge_as_it_is(m, parent, name, listed);
	} else if (other && old.coding == PS_CODING_NONE && !last) {
		rc = put_off(m, parent, name, listed);
	} else {
		rc = ps_merge_file(m, parent, shown, listed, coding, found);
	}
	ps_node_row_fini(&old);
	return rc;
}

/* As they were listed: of two that want one name the first has it, in each listing. */
static void reverse_later(struct ps_merge *m)
{
	struct ps_merge_later *reversed = NULL;

	while (m->later) {
		struct ps_merge_later *later = take_later(m);

		later->next = reversed;
		reversed = later;
	}
	m->later = reversed;
}

int ps_merge_later(struct ps_merge *m)
{
	int rc = 0;

	PS_LOCK_SCOPE(&m->dataset->catalog->names_lock);
	reverse_later(m);
	while (m->later && rc == 0) {
		struct ps_merge_later *later = take_later(m);
		const struct ps_listed listed = {.url = later->url, .remote = later->remote};

		rc = ps_merge_named(m, later->parent, later->name, &listed, true);
		free_later(later);
	}
	return rc;
}

void ps_merge_forget_later(struct ps_merge *m)
{
	while (m->later)
		free_later(take_later(m));
}
