/* The table of each shard: where it is, and the threads that make it.
 *
 *             asked for                 a thread is free         opened
 *   UNKNOWN ────────────────▶ QUEUED ─────────────────▶ OPENING ────────▶ SCANNING ──▶ KNOWN
 *      ▲                                                   │ └─ by its index ─┼──────────▲
 *      └── asked for again, after FAILED_NS ── FAILED ◀────┴──────────────────┘
 *
 * A table that the index has becomes KNOWN when it is first asked for. Waiters are called when a table
 * becomes KNOWN or FAILED, or with ECANCELED when the members stop. On disk a table is complete once it has
 * its head, which is written last. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/figures.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/thread.h"
#include "members/members_private.h"

#define FAILED_NS (10 * PS_NS_PER_S)
#define ROWS_PER_BATCH 64
#define CLOSE_EVERY_NS (10 * PS_NS_PER_S)
/* A listing reports its changes name by name; one look after this delay serves many of them. */
#define LOOK_DELAY_NS (PS_NS_PER_S / 5)

struct waiter {
	struct ps_list link;
	ps_member_table_fn fn;
	void *arg;
};

/* Waiting ------------------------------------------------------------------------------------------------ */

/* Queues a table that is not known; `first`: before the others, because a program waits for it. False: it
 * failed less than FAILED_NS ago. The lock is held. */
static bool enqueue(struct ps_members *m, struct table *table, bool first)
{
	if (table->state == FAILED && ps_clock_mono_ns() - table->failed_ns < FAILED_NS)
		return false;
	if (table->state != UNKNOWN && table->state != FAILED && table->state != QUEUED)
		return true;
	if (table->state == QUEUED && !first)
		return true;
	table->state = QUEUED;
	ps_list_remove(&table->link);
	if (first)
		ps_list_prepend(&m->queue, &table->link);
	else
		ps_list_append(&m->queue, &table->link);
	pthread_cond_broadcast(&m->wake);
	return true;
}

static void call_waiters(struct ps_list *waiters, int errnum, const struct ps_member_table *table)
{
	while (!ps_list_empty(waiters)) {
		struct waiter *w = PS_CONTAINER_OF(ps_list_take(waiters), struct waiter, link);
		w->fn(w->arg, errnum, errnum ? NULL : table);
		free(w);
	}
}

/* Making one --------------------------------------------------------------------------------------------- */

/* Writes a finished tree to the index. */
static int store(struct ps_members *m, const struct ps_member_tree *tree, struct ps_member_table *t)
{
	struct ps_member_row_writer w = {0};
	struct ps_index_batch *batch = NULL;
	ps_autostrbuf struct ps_strbuf head = {0};
	int rc = ps_index_new_nodes(m->index, t->n, &t->first);

	for (uint32_t first = 0; rc == 0 && first < t->n; first += PS_MEMBER_ROW) {
		if (!batch && !(batch = ps_index_batch_new()))
			rc = -ENOMEM;
		ps_member_tree_row(tree, first, &w);
		if (rc == 0 && w.b.failed)
			rc = -ENOMEM;
		if (rc == 0)
			ps_index_batch_put_members(batch, t->shard, first / PS_MEMBER_ROW, w.b.s, w.b.len);
		if (rc == 0 && first / PS_MEMBER_ROW % ROWS_PER_BATCH == ROWS_PER_BATCH - 1)
			rc = ps_index_batch_commit(m->index, ps_steal_ptr(&batch));
	}
	ps_strbuf_fini(&w.b);
	ps_member_head_encode(t, &head);
	if (rc == 0 && !batch && !(batch = ps_index_batch_new()))
		rc = -ENOMEM;
	if (rc == 0 && head.failed)
		rc = -ENOMEM;
	if (rc < 0) {
		ps_index_batch_free(batch);
		return rc;
	}
	ps_index_batch_put_members(batch, t->shard, PS_MEMBERS_HEAD, head.s, head.len);
	return ps_index_batch_commit(m->index, batch);
}

/* Takes over the table that the index has. -ENOENT: it has none. */
static int take_stored(struct ps_members *m, struct ps_member_table *t)
{
	struct ps_member_table stored;
	int rc = ps_table_load(m, t->shard, &stored);

	if (rc < 0)
		return rc;
	free(t->hidden);
	free(t->damage);
	*t = stored;
	return 0;
}

/* Gives a complete tree its numbers, and stores the table. */
static int finish(struct ps_members *m, struct ps_member_tree *tree, struct ps_member_table *t)
{
	int rc = t->damage || (t->damage = strdup("")) ? 0 : -ENOMEM;

	if (rc == 0)
		rc = ps_member_tree_finish(tree, t);
	if (rc < 0)
		return rc;
	/* Two mounts may make the table of one shard at once. Their tables would have different numbers, so
	 * the second one takes the stored table. */
	PS_LOCK_SCOPE(&m->dataset->catalog->tables_lock);
	rc = take_stored(m, t);
	return rc == -ENOENT ? store(m, tree, t) : rc;
}

/* Scans an open shard and stores its table. */
static int make(struct ps_members *m, struct ps_scan *scan, struct ps_member_shard *shard,
        struct ps_member_table *t, struct ps_error *err)
{
	struct ps_handle *handle = ps_member_handle(shard);
	bool complete = ps_object_complete(ps_handle_object(handle));

	/* The index may have the table already: another mount has made it, or it was made before these
	 * credentials proved that they may read the shard. */
	int rc = take_stored(m, t);
	if (rc == 0)
		return ps_scan_prove(scan, handle);
	struct ps_member_tree *tree = ps_member_tree_new();
	rc = tree ? ps_scan_shard(scan, handle, complete, tree, &t->damage, err) : -ENOMEM;
	t->size = ps_handle_size(handle);
	if (rc == 0)
		rc = finish(m, tree, t);
	ps_member_tree_free(tree);
	return rc;
}

/* Ends the making of a table, which becomes KNOWN (t) or FAILED (rc < 0), and calls its waiters. */
static void ended(
        struct ps_members *m, struct table *table, struct ps_member_table *t, int rc, const char *text)
{
	struct ps_list waiters;

	ps_list_init(&waiters);
	pthread_mutex_lock(&m->lock);
	if (rc == 0) {
		ps_table_set_known(m, table, t);
	} else {
		table->state = FAILED;
		table->errnum = -rc;
		table->failed_ns = ps_clock_mono_ns();
		free(table->error);
		table->error = strdup(text);
	}
	ps_list_splice(&waiters, &table->waiters);
	m->nmaking--;
	/* After the last table the merged tree can perhaps be made. */
	m->look |= m->merges && m->nmaking == 0 && ps_list_empty(&m->queue);
	pthread_cond_broadcast(&m->wake);
	pthread_mutex_unlock(&m->lock);
	call_waiters(&waiters, rc < 0 ? -rc : 0, &table->t);
}

static void scan_begin(struct ps_members *m, unsigned number, struct ps_scan *scan)
{
	ps_scan_init(scan);
	PS_LOCK_SCOPE(&m->lock);
	m->scans[number] = scan;
	scan->cancelled = atomic_load(&m->stopping);
}

static void scan_end(struct ps_members *m, unsigned number, struct ps_scan *scan)
{
	pthread_mutex_lock(&m->lock);
	m->scans[number] = NULL;
	pthread_mutex_unlock(&m->lock);
	atomic_fetch_add(&m->nread, atomic_load(&scan->nread));
	ps_scan_fini(scan);
}

static bool is_distrusted(struct ps_members *m, uint64_t shard)
{
	ps_autostrbuf struct ps_strbuf bytes = {0};

	return ps_index_get_members(m->index, shard, PS_MEMBERS_NO_INDEX, &bytes) == 0;
}

void ps_members_distrust(struct ps_members *m, const struct ps_member_table *table)
{
	struct ps_index_batch *batch = ps_index_batch_new();
	struct ps_node_row row = {0};
	static const char text[] =
	        "the index beside the shard belongs to another version of the shard; remove the index "
	        "or make it again, and mount again";

	if (is_distrusted(m, table->shard)) {
		ps_index_batch_free(batch);
		return;
	}
	ps_index_batch_del_members(m->index, batch, table->shard);
	ps_index_batch_put_members(batch, table->shard, PS_MEMBERS_NO_INDEX, "", 1);
	int rc = ps_index_batch_commit(m->index, batch);
	if (rc == 0)
		rc = ps_index_get_node(m->index, table->shard, &row);
	ps_log_error("members: %s: %s", row.url ? row.url : "a shard", text);
	ps_dataset_note_error(m->dataset, table->shard, EBADMSG, text);
	ps_node_row_fini(&row);
	if (rc < 0)
		ps_log_error("members: the table of that shard cannot be dropped: %s", strerror(-rc));
}

/* Makes the table from the index beside the shard. False: there is no such index, or it cannot be used. */
static bool make_by_index(struct ps_members *m, unsigned number, struct table *table)
{
	struct ps_member_table t = {.shard = table->t.shard};
	struct ps_member_tree *tree = ps_member_tree_new();
	struct ps_node_row row = {0};
	struct ps_error err;
	struct ps_scan scan;

	ps_error_clear(&err);
	scan_begin(m, number, &scan);
	int rc = tree ? ps_index_get_node(m->index, t.shard, &row) : -ENOMEM;
	if (rc == 0 && is_distrusted(m, t.shard))
		rc = -ENOENT;
	if (rc == 0) {
		t.mtime_s = PS_MAX(row.remote.mtime_s, 0);
		t.by_index = true;
		rc = ps_by_index(m, &scan, &row, tree, &t.size, &err);
	}
	if (rc == 0)
		rc = finish(m, tree, &t);
	scan_end(m, number, &scan);
	ps_member_tree_free(tree);
	if (rc == 0) {
		atomic_fetch_add(&m->nby_index, 1);
		ended(m, table, &t, 0, "");
	} else if (rc != -ENOENT && rc != -ECANCELED) {
		ps_log_info("members: %s: the shard is read, because its index cannot be used: %s",
		        row.url ? row.url : "a shard", err.text[0] ? err.text : strerror(-rc));
	}
	free(t.hidden);
	free(t.damage);
	ps_node_row_fini(&row);
	return rc == 0;
}

static void scan_table(struct ps_members *m, unsigned number, struct table *table)
{
	struct ps_member_table t = {.shard = table->t.shard};
	struct ps_error err;
	struct ps_node_row row = {0};
	struct ps_scan scan;

	ps_error_clear(&err);
	scan_begin(m, number, &scan);
	int rc = ps_index_get_node(m->index, t.shard, &row);
	if (rc == 0) {
		t.mtime_s = PS_MAX(row.remote.mtime_s, 0);
		rc = make(m, &scan, table->shard, &t, &err);
		rc = rc == -EBADMSG ? -EIO : rc; /* not a tar */
		if (rc < 0 && !err.text[0])
			ps_error_set(&err, -rc, "its table cannot be made: %s", strerror(-rc));
	}
	scan_end(m, number, &scan);
	ps_member_close(ps_steal_ptr(&table->shard), rc < 0);
	if (rc < 0 && rc != -ECANCELED) {
		ps_log_warning("members: %s: %s", row.url ? row.url : "a shard", err.text);
		ps_dataset_note_error(m->dataset, t.shard, err.err, err.text);
	} else if (rc == 0 && t.damage[0]) {
		ps_log_warning("members: %s: %s; the members before it are shown", row.url, t.damage);
	}
	ended(m, table, &t, rc, err.text);
	free(t.hidden);
	free(t.damage);
	ps_node_row_fini(&row);
}

/* This call may come after the members were stopped; they are freed only after it. */
static void opened(void *arg, int errnum, struct ps_member_shard *shard)
{
	struct table *table = arg;
	struct ps_members *m = table->of;

	pthread_mutex_lock(&m->lock);
	bool late = atomic_load(&m->stopping);
	if (!late && !errnum) {
		table->shard = ps_steal_ptr(&shard);
		table->state = SCANNING;
	}
	pthread_mutex_unlock(&m->lock);
	if (shard)
		ps_member_close(shard, false);
	if (!late && errnum)
		ended(m, table, NULL, -errnum, "the shard cannot be opened");
	PS_LOCK_SCOPE(&m->lock);
	m->nopening--;
	pthread_cond_broadcast(&m->wake);
}

/* Makes the first table of the queue. The lock is held, and dropped meanwhile. */
static void make_next(struct ps_members *m, unsigned number)
{
	struct table *table = PS_CONTAINER_OF(ps_list_take(&m->queue), struct table, link);
	table->state = OPENING;
	m->nmaking++;
	pthread_mutex_unlock(&m->lock);
	bool made = make_by_index(m, number, table);
	pthread_mutex_lock(&m->lock);
	if (made || atomic_load(&m->stopping))
		return;
	m->nopening++;
	pthread_mutex_unlock(&m->lock);
	ps_member_open(m, table->t.shard, opened, table);
	pthread_mutex_lock(&m->lock);
	/* A stop does not wait for an origin that does not answer. */
	while (table->state == OPENING && !atomic_load(&m->stopping))
		pthread_cond_wait(&m->wake, &m->lock);
	if (!table->shard)
		return;
	pthread_mutex_unlock(&m->lock);
	scan_table(m, number, table);
	pthread_mutex_lock(&m->lock);
}

/* Looking at all shards ---------------------------------------------------------------------------------- */

struct look {
	struct ps_members *members;
	uint64_t nbytes;
	bool retries; /* also shards that have failed */
};

static int look_at(void *arg, uint64_t node, uint64_t size)
{
	struct look *look = arg;
	struct ps_members *m = look->members;

	look->nbytes += size;
	(void)ps_members_known(m, node);
	PS_LOCK_SCOPE(&m->lock);
	struct table *table = ps_table_find_or_add(m, node);
	if (!table)
		return -ENOMEM;
	table->round = m->round + 1;
	table->size = size;
	if (m->wants_all && table->state != KNOWN && (table->state != FAILED || look->retries))
		(void)enqueue(m, table, false);
	return 0;
}

/* Looks at all shards, and makes the merged tree. The lock is held, and dropped meanwhile. */
static void look(struct ps_members *m)
{
	struct look all = {.members = m, .retries = m->retries};

	m->look = m->retries = false;
	m->looks = true;
	pthread_mutex_unlock(&m->lock);
	int rc = ps_members_each_shard(m, look_at, &all);
	if (rc == 0) {
		atomic_store(&m->shards_nbytes, all.nbytes);
		PS_LOCK_SCOPE(&m->lock);
		m->round++;
	}
	if (rc == 0 && m->merges)
		rc = ps_merged_make(m);
	bool merged = rc == 0 && m->merges;
	if (rc < 0 && rc != -ECANCELED && rc != -EAGAIN)
		ps_log_warning("members: %s: %s", ps_dataset_source(m->dataset), strerror(-rc));
	pthread_mutex_lock(&m->lock);
	m->looks = false;
	m->trouble = rc == -ECANCELED || rc == -EAGAIN ? 0 : rc;
	/* From now on shards that a listing adds are merged, too. */
	m->wants_all |= merged;
	pthread_cond_broadcast(&m->wake);
}

/* Threads ------------------------------------------------------------------------------------------------ */

static void *run(void *arg)
{
	struct ps_members *m = arg;

	pthread_mutex_lock(&m->lock);
	unsigned number = m->nrunning++;
	while (!atomic_load(&m->stopping)) {
		uint64_t now = ps_clock_mono_ns();

		if (m->look && !m->looks && now >= m->look_ns) {
			look(m);
		} else if (!ps_list_empty(&m->queue)) {
			make_next(m, number);
		} else if (number > 0 && !m->look) {
			pthread_cond_wait(&m->wake, &m->lock);
		} else {
			ps_cond_wait_until(
			        &m->wake, &m->lock, m->look && !m->looks ? m->look_ns : now + CLOSE_EVERY_NS);
			pthread_mutex_unlock(&m->lock);
			ps_shards_open_close_old(m->open);
			pthread_mutex_lock(&m->lock);
		}
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

int ps_members_new(struct ps_dataset *dataset, bool merges, void (*changed)(void *arg, const char *name),
        void *arg, struct ps_members **ret)
{
	struct ps_members *m = calloc(1, sizeof(*m));
	int rc = m ? 0 : -ENOMEM;

	if (rc < 0)
		return rc;
	m->dataset = dataset;
	m->index = dataset->index;
	m->merges = merges;
	m->merged_changed = changed;
	m->merged_arg = arg;
	m->look = true;
	ps_list_init(&m->queue);
	pthread_mutex_init(&m->lock, NULL);
	ps_cond_init(&m->wake);
	m->rows = ps_member_rows_new();
	rc = m->rows ? ps_shards_open_new(dataset, &m->open) : -ENOMEM;
	while (rc == 0 && m->nthreads < PS_MEMBERS_WORKERS) {
		rc = ps_thread_start(&m->threads[m->nthreads], "members", run, m);
		m->nthreads += rc == 0;
	}
	if (rc < 0) {
		ps_members_stop(m);
		ps_members_free(m);
	} else {
		*ret = m;
	}
	return rc;
}

void ps_members_stop(struct ps_members *m)
{
	struct ps_list waiters;

	ps_list_init(&waiters);
	pthread_mutex_lock(&m->lock);
	atomic_store(&m->stopping, true);
	for (unsigned i = 0; i < m->nthreads; i++)
		if (m->scans[i])
			ps_scan_cancel(m->scans[i]);
	pthread_cond_broadcast(&m->wake);
	pthread_mutex_unlock(&m->lock);
	for (unsigned i = 0; i < m->nthreads; i++)
		pthread_join(m->threads[i], NULL);
	m->nthreads = 0;
	pthread_mutex_lock(&m->lock);
	for (struct ps_tree_item *i = ps_tree_first(&m->by_shard); i; i = ps_tree_next(i))
		ps_list_splice(&waiters, &PS_CONTAINER_OF(i, struct table, by_shard)->waiters);
	pthread_mutex_unlock(&m->lock);
	call_waiters(&waiters, ECANCELED, NULL);
	if (m->open)
		ps_shards_open_close(m->open);
}

void ps_members_free(struct ps_members *m)
{
	struct ps_tree_item *item;

	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	while (m->nopening > 0)
		pthread_cond_wait(&m->wake, &m->lock);
	pthread_mutex_unlock(&m->lock);
	while ((item = ps_tree_first(&m->by_shard))) {
		ps_tree_remove(&m->by_shard, item);
		ps_table_free(PS_CONTAINER_OF(item, struct table, by_shard));
	}
	ps_member_rows_free(m->rows);
	ps_shards_open_free(m->open);
	pthread_cond_destroy(&m->wake);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

/* Requests ----------------------------------------------------------------------------------------------- */

void ps_members_await(struct ps_members *m, uint64_t timeout_ms)
{
	uint64_t until_ns = ps_clock_mono_ns() + timeout_ms * PS_NS_PER_MS;

	PS_LOCK_SCOPE(&m->lock);
	while ((m->look || m->looks) && !atomic_load(&m->stopping) && ps_clock_mono_ns() < until_ns)
		ps_cond_wait_until(&m->wake, &m->lock, until_ns);
}

void ps_members_look(struct ps_members *m)
{
	PS_LOCK_SCOPE(&m->lock);
	if (m->look)
		return;
	m->look = m->retries = true;
	m->look_ns = ps_clock_mono_ns() + LOOK_DELAY_NS;
	pthread_cond_broadcast(&m->wake);
}

void ps_members_make_all(struct ps_members *m)
{
	PS_LOCK_SCOPE(&m->lock);
	m->wants_all = m->look = m->retries = true;
	m->look_ns = 0;
	pthread_cond_broadcast(&m->wake);
}

void ps_members_table(struct ps_members *m, uint64_t shard, ps_member_table_fn fn, void *arg)
{
	const struct ps_member_table *known = ps_members_known(m, shard);
	struct waiter *w = known ? NULL : malloc(sizeof(*w));
	int errnum = 0;

	if (known || !w) {
		fn(arg, known ? 0 : ENOMEM, known);
		return;
	}
	*w = (struct waiter){.fn = fn, .arg = arg};
	{
		PS_LOCK_SCOPE(&m->lock);
		struct table *table = ps_table_find_or_add(m, shard);

		if (!table)
			errnum = ENOMEM;
		else if (atomic_load(&m->stopping))
			errnum = ECANCELED;
		else if (table->state == KNOWN)
			known = &table->t;
		else if (!enqueue(m, table, true))
			errnum = table->errnum;
		else
			ps_list_append(&table->waiters, &ps_steal_ptr(&w)->link);
	}
	if (!w)
		return;
	free(w);
	fn(arg, errnum, known);
}

bool ps_members_fit(struct ps_members *m)
{
	uint64_t limit, used, reserved, nbytes = atomic_load(&m->shards_nbytes);

	ps_store_room(ps_cache_store(m->dataset->cache), &limit, &used, &reserved);
	return nbytes > 0 && nbytes <= limit / 10 * 9;
}

json_t *ps_members_stats(struct ps_members *m)
{
	uint64_t nshards = 0, nknown = 0, nmaking = 0, nfailed = 0, unknown_nbytes = 0, nfiles = 0,
	         nhidden = 0;
	const char *hidden = "";
	uint64_t root;
	bool merged = m->merges && ps_merged_root(m, &root) == 0;

	PS_LOCK_SCOPE(&m->lock);
	for (struct ps_tree_item *i = ps_tree_first(&m->by_shard); i; i = ps_tree_next(i)) {
		const struct table *table = PS_CONTAINER_OF(i, struct table, by_shard);

		if (table->round < m->round || table->round == 0)
			continue;
		nshards++;
		nknown += table->state == KNOWN;
		nfailed += table->state == FAILED;
		nmaking += table->state == QUEUED || table->state == OPENING || table->state == SCANNING;
		unknown_nbytes += table->state == KNOWN ? 0 : table->size;
		if (table->state != KNOWN)
			continue;
		nfiles += table->t.nfiles;
		nhidden += table->t.nhidden;
		if (table->t.nhidden && !hidden[0])
			hidden = table->t.hidden;
	}
	return ps_figures_json(PS_SECTION_members, NULL,
	        "{s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:I, s:I, s:b}", "merges",
	        (int)m->merges, "looking", m->round == 0 || m->look || m->looks, "shards",
	        (json_int_t)nshards, "known", (json_int_t)nknown, "making", (json_int_t)nmaking, "failed",
	        (json_int_t)nfailed, "unknown_bytes", (json_int_t)unknown_nbytes, "files", (json_int_t)nfiles,
	        "hidden", (json_int_t)nhidden, "hidden_reason", ps_json_lossy(hidden), "trouble",
	        m->trouble ? strerror(-m->trouble) : "", "made_bytes", (json_int_t)atomic_load(&m->nread),
	        "by_index", (json_int_t)atomic_load(&m->nby_index), "merged", (int)merged);
}
