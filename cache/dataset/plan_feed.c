/* What a loader tells: lines to plans, names to nodes. */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "dataset/dataset.h"
#include "policy/plan_text.h"
#include "policy/plans.h"

#define LINE_MAX_NBYTES (16u << 20) /* 100,000 files of 160 bytes */
#define LINE_KEPT_NBYTES (64u << 10)

struct ps_plan_feed {
	struct ps_dataset *dataset;
	struct ps_plans *plans;
	struct ps_plan_teller teller;
	char *line; /* counted by the plans, as long as `cap` */
	size_t len, cap;
	bool skipping; /* the rest of a line that was refused */
	/* The folder of the name that was looked up last. */
	char folder[PATH_MAX];
	size_t folder_len;
	uint64_t folder_node;
};

int ps_plan_feed_new(struct ps_dataset *dataset, bool stranger, struct ps_plan_feed **ret)
{
	static _Atomic uint64_t feeds;
	struct ps_plans *plans = ps_store_plans(dataset->cache->store);
	struct ps_plan_feed *feed = plans ? calloc(1, sizeof *feed) : NULL;

	if (!feed)
		return plans ? -ENOMEM : -EOPNOTSUPP;
	feed->dataset = dataset;
	feed->plans = plans;
	feed->folder_node = dataset->row.root;
	feed->teller = (struct ps_plan_teller){.feed = atomic_fetch_add(&feeds, 1) + 1,
	        .dataset = dataset->row.number,
	        .stranger = stranger};
	*ret = feed;
	return 0;
}

/* Less never fails. */
static int set_cap(struct ps_plan_feed *feed, size_t cap)
{
	int e = ps_plans_charge(feed->plans, &feed->teller, (int64_t)cap - (int64_t)feed->cap);
	char *line = e == 0 && cap > 0 ? realloc(feed->line, cap) : NULL;

	if (e < 0)
		return e;
	if (cap == 0)
		free(feed->line);
	if (cap > 0 && !line)
		return ps_plans_charge(feed->plans, &feed->teller, (int64_t)feed->cap - (int64_t)cap) < 0
		               ? -ENOSPC
		               : -ENOMEM;
	feed->line = line;
	feed->cap = cap;
	return 0;
}

void ps_plan_feed_free(struct ps_plan_feed *feed)
{
	if (!feed)
		return;
	ps_plans_drop_feed(feed->plans, feed->teller.feed);
	(void)!set_cap(feed, 0);
	free(feed);
}

/* Names ------------------------------------------------------------------------------------------ */

/* The node of a path below a folder; each of its names is followed. */
static int walk(struct ps_plan_feed *feed, uint64_t from, const char *path, size_t len, uint64_t *ret)
{
	char name[NAME_MAX + 1];

	while (len > 0) {
		const char *slash = memchr(path, '/', len);
		size_t n = slash ? (size_t)(slash - path) : len;

		if (n == 0 || n > NAME_MAX)
			return -ENOENT;
		memcpy(name, path, n);
		name[n] = 0;
		int e = ps_index_get_child(feed->dataset->index, from, name, &from);
		if (e < 0)
			return e;
		path += PS_MIN(n + 1, len);
		len -= PS_MIN(n + 1, len);
	}
	*ret = from;
	return 0;
}

static int find_node(struct ps_plan_feed *feed, const char *path, uint64_t *ret)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	if (len >= sizeof feed->folder || (slash && len == 0))
		return -ENOENT;
	if (len != feed->folder_len || memcmp(path, feed->folder, len) != 0) {
		uint64_t node;
		int e = walk(feed, feed->dataset->row.root, path, len, &node);
		if (e < 0)
			return e;
		memcpy(feed->folder, path, len);
		feed->folder_len = len;
		feed->folder_node = node;
	}
	const char *name = slash ? slash + 1 : path;
	return walk(feed, feed->folder_node, name, strlen(name), ret);
}

/* The files of a line that there are. */
static int find_files(struct ps_plan_feed *feed, const struct ps_plan_line *line, struct ps_plan_file **ret,
        size_t *ret_n)
{
	struct ps_plan_file *files = calloc(PS_MAX(line->nfiles, (size_t)1), sizeof *files);
	const char *name = line->files;
	size_t n = 0;

	if (!files)
		return -ENOMEM;
	for (size_t i = 0; i < line->nfiles; i++) {
		if (find_node(feed, name, &files[n].node) == 0)
			n++;
		name += strlen(name) + 1;
	}
	*ret = files;
	*ret_n = n;
	return 0;
}

/* Lines ------------------------------------------------------------------------------------------ */

static int take_line(struct ps_plan_feed *feed, char *text, size_t len)
{
	double now_s = (double)ps_clock_real_ms() / 1000;
	struct ps_plan_file *files = NULL;
	struct ps_plan_line line;
	size_t n;

	if (strspn(text, " \t\r") == len)
		return 0;
	int e = memchr(text, 0, len) ? -EINVAL : ps_plan_line_parse(text, len, &line);
	if (e < 0 || line.kind == PS_PLAN_LINE_OTHER)
		return e;
	if (line.kind == PS_PLAN_LINE_POSITION) {
		e = ps_plans_position(feed->plans, &feed->teller, &line.who, line.files_done, now_s);
	} else {
		e = line.nfiles > PS_PLANS_MAX_FILES ? -E2BIG : find_files(feed, &line, &files, &n);
		if (e == 0)
			e = ps_plans_tell(feed->plans, &feed->teller, &line.who, files, n, now_s);
		free(files);
	}
	if (e == 0)
		ps_plan_ahead_told(feed->dataset->plan_ahead);
	return e;
}

static int add(struct ps_plan_feed *feed, const char *text, size_t n)
{
	int e = 0;

	if (feed->skipping)
		return 0;
	if (feed->len + n >= LINE_MAX_NBYTES)
		e = -E2BIG;
	else if (feed->len + n >= feed->cap)
		e = set_cap(feed, PS_MIN(PS_MAX(2 * feed->cap, feed->len + n + 1), (size_t)LINE_MAX_NBYTES));
	if (e < 0) {
		feed->skipping = true;
		return e;
	}
	memcpy(feed->line + feed->len, text, n);
	feed->len += n;
	return 0;
}

static int end_line(struct ps_plan_feed *feed)
{
	int e = 0;

	if (!feed->skipping && feed->len > 0) {
		feed->line[feed->len] = 0;
		e = take_line(feed, feed->line, feed->len);
	}
	feed->skipping = false;
	feed->len = 0;
	if (feed->cap > LINE_KEPT_NBYTES)
		(void)!set_cap(feed, 0);
	return e;
}

int ps_plan_feed_write(struct ps_plan_feed *feed, const char *text, size_t n)
{
	int first = 0;

	while (n > 0) {
		const char *newline = memchr(text, '\n', n);
		size_t len = newline ? (size_t)(newline - text) : n;
		int e = add(feed, text, len);

		first = first ? first : e;
		if (newline) {
			e = end_line(feed);
			first = first ? first : e;
			len++;
		}
		text += len;
		n -= len;
	}
	return first;
}
