/* A loader's plans: lines to plans, names to nodes. */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "catalog/dataset.h"
#include "prefetch/prefetch.h"
#include "policy/policy.h"

#define LINE_MAX_NBYTES (16u << 20) /* 100,000 files of 160 bytes */
#define LINE_KEPT_NBYTES (64u << 10)

struct ps_plan_feed {
	struct ps_plan_source *sources;
	uint32_t *datasets; /* numbers of the sources' datasets */
	bool *told;         /* one for each source: a plan has named a file of it */
	size_t nsources;
	struct ps_plans *plans;
	struct ps_plan_teller teller;
	char *line; /* the incomplete line, in a buffer of `cap` bytes, which count as memory of the plans */
	size_t len, cap;
	bool skipping; /* the rest of a refused line is skipped */
	/* The folder of the last lookup. */
	char folder[PATH_MAX];
	size_t folder_len; /* SIZE_MAX: none yet */
	size_t folder_source;
	uint64_t folder_node;
};

int ps_plan_feed_new(
        const struct ps_plan_source *sources, size_t n, bool other_user, struct ps_plan_feed **ret)
{
	static _Atomic uint64_t feeds;
	struct ps_plans *plans = ps_store_plans(sources[0].dataset->cache->store);
	struct ps_plan_feed *feed = plans ? calloc(1, sizeof(*feed)) : NULL;

	if (!feed)
		return plans ? -ENOMEM : -EOPNOTSUPP;
	feed->plans = plans;
	feed->folder_len = SIZE_MAX;
	feed->nsources = n;
	feed->sources = calloc(n, sizeof(*sources));
	feed->datasets = calloc(n, sizeof(*feed->datasets));
	feed->told = calloc(n, sizeof(*feed->told));
	if (!feed->sources || !feed->datasets || !feed->told) {
		ps_plan_feed_free(feed);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		feed->sources[i] = sources[i];
		feed->datasets[i] = sources[i].dataset->catalog->row.number;
	}
	feed->teller = (struct ps_plan_teller){.feed = atomic_fetch_add(&feeds, 1) + 1,
	        .other_user = other_user,
	        .datasets = feed->datasets,
	        .ndatasets = n};
	*ret = feed;
	return 0;
}

/* Sets the line buffer's size. Shrinking never fails. */
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
	free(feed->sources);
	free(feed->datasets);
	free(feed->told);
	free(feed);
}

/* Names -------------------------------------------------------------------------------------------------- */

/* Finds the node of a path below a folder, name by name. */
static int walk(struct ps_dataset *ds, uint64_t from, const char *path, size_t len, uint64_t *ret)
{
	char name[NAME_MAX + 1];

	while (len > 0) {
		const char *slash = memchr(path, '/', len);
		size_t n = slash ? (size_t)(slash - path) : len;

		if (n == 0 || n > NAME_MAX)
			return -ENOENT;
		memcpy(name, path, n);
		name[n] = 0;
		int rc = ps_index_get_child(ds->index, from, name, &from);
		if (rc < 0)
			return rc;
		path += PS_MIN(n + 1, len);
		len -= PS_MIN(n + 1, len);
	}
	*ret = from;
	return 0;
}

/* The index of the source whose tree has the path; nsources: none. *ret_len: length of the path's part that
 * names the source. */
static size_t find_source(const struct ps_plan_feed *feed, const char *path, size_t *ret_len)
{
	for (size_t i = 0; i < feed->nsources; i++) {
		const char *name = feed->sources[i].name;
		size_t len = strlen(name);

		*ret_len = len > 0 ? len + 1 : 0;
		if (len == 0 || (strncmp(path, name, len) == 0 && path[len] == '/'))
			return i;
	}
	return feed->nsources;
}

/* Sets the fields feed->folder_* to the folder path[0..len). */
static int enter_folder(struct ps_plan_feed *feed, const char *path, size_t len)
{
	size_t skip = 0;
	uint64_t node;

	if (len == feed->folder_len && memcmp(path, feed->folder, len) == 0)
		return 0;
	size_t source = find_source(feed, path, &skip);
	if (source == feed->nsources || len >= sizeof(feed->folder))
		return -ENOENT;
	struct ps_dataset *ds = feed->sources[source].dataset;
	skip = PS_MIN(skip, len);
	int rc = walk(ds, ds->catalog->row.root, path + skip, len - skip, &node);
	if (rc < 0)
		return rc;
	memcpy(feed->folder, path, len);
	feed->folder_len = len;
	feed->folder_node = node;
	feed->folder_source = source;
	return 0;
}

static int find_file(struct ps_plan_feed *feed, const char *path, struct ps_plan_file *ret)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	int rc = slash == path ? -ENOENT : enter_folder(feed, path, slash ? (size_t)(slash - path) : 0);

	*ret = (struct ps_plan_file){0};
	if (rc < 0 || !*name)
		return -ENOENT;
	struct ps_dataset *ds = feed->sources[feed->folder_source].dataset;
	feed->told[feed->folder_source] = true;
	ret->dataset = ds->catalog->row.number;
	return walk(ds, feed->folder_node, name, strlen(name), &ret->node);
}

/* Finds the files of a line; those that do not exist are skipped. */
static int find_files(
        struct ps_plan_feed *feed, const struct ps_plan_line *line, struct ps_plan_file **ret, size_t *ret_n)
{
	struct ps_plan_file *files = calloc(PS_MAX(line->nfiles, (size_t)1), sizeof(*files));
	const char *name = line->files;
	size_t n = 0;

	if (!files)
		return -ENOMEM;
	for (size_t i = 0; i < line->nfiles; i++) {
		if (find_file(feed, name, &files[n]) == 0)
			n++;
		name += strlen(name) + 1;
	}
	*ret = files;
	*ret_n = n;
	return 0;
}

/* Lines -------------------------------------------------------------------------------------------------- */

static int take_reads(struct ps_plan_feed *feed, const struct ps_plan_line *line)
{
	struct ps_plan_read reads[PS_PLAN_READS];
	const char *name = line->files;
	struct ps_plan_file file;
	size_t n = 0;

	for (size_t i = 0; i < PS_MIN(line->nfiles, PS_ARRAY_LEN(reads)); i++) {
		if (find_file(feed, name, &file) == 0)
			reads[n++] = (struct ps_plan_read){.node = file.node,
			        .dataset = file.dataset,
			        .from = i < line->nfrom ? line->from[i] : 0,
			        .nbytes = line->nbytes};
		name += strlen(name) + 1;
	}
	for (size_t i = 0; n > 0 && i < feed->nsources; i++)
		if (feed->told[i])
			ps_plan_ahead_reads(feed->sources[i].dataset->plan_ahead, reads, n);
	return 0;
}

static int take_line(struct ps_plan_feed *feed, char *text, size_t len)
{
	double now_s = (double)ps_clock_real_ms() / 1000;
	struct ps_plan_file *files = NULL;
	struct ps_plan_line line;
	size_t n;

	while (len > 0 && memchr(" \t\r", text[len - 1], 3))
		len--;
	if (len == 0)
		return 0;
	ps_plans_expire(feed->plans, now_s);
	int rc = memchr(text, 0, len) ? -EINVAL : ps_plan_line_parse(text, len, &line);
	if (rc < 0 || line.kind == PS_PLAN_LINE_OTHER)
		return rc;
	if (line.kind == PS_PLAN_LINE_READS)
		return take_reads(feed, &line);
	if (line.kind == PS_PLAN_LINE_POSITION) {
		rc = ps_plans_position(feed->plans, &feed->teller, &line.who, line.files_done, now_s);
	} else {
		rc = line.nfiles > PS_PLANS_MAX_FILES ? -E2BIG : find_files(feed, &line, &files, &n);
		if (rc == 0)
			rc = ps_plans_tell(feed->plans, &feed->teller, &line.who, files, n, now_s);
		if (rc == 0 && line.files_done > 0)
			rc = ps_plans_position(feed->plans, &feed->teller, &line.who, line.files_done, now_s);
		free(files);
	}
	for (size_t i = 0; rc == 0 && i < feed->nsources; i++)
		if (feed->told[i])
			ps_plan_ahead_told(feed->sources[i].dataset->plan_ahead);
	return rc;
}

static int add(struct ps_plan_feed *feed, const char *text, size_t n)
{
	int rc = 0;

	if (feed->skipping || n == 0)
		return 0;
	if (feed->len + n > LINE_MAX_NBYTES)
		rc = -E2BIG;
	else if (feed->len + n > feed->cap)
		rc = set_cap(feed, PS_MIN(PS_MAX(2 * feed->cap, feed->len + n), (size_t)LINE_MAX_NBYTES));
	if (rc < 0) {
		feed->skipping = true;
		return rc;
	}
	memcpy(feed->line + feed->len, text, n);
	feed->len += n;
	return 0;
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
			e = feed->skipping || feed->len == 0 ? 0 : take_line(feed, feed->line, feed->len);
			first = first ? first : e;
			feed->skipping = false;
			feed->len = 0;
			if (feed->cap > LINE_KEPT_NBYTES)
				(void)!set_cap(feed, 0);
			len++;
		}
		text += len;
		n -= len;
	}
	return first;
}
