/* Probes: HEADs that find the size and the version of one file, shared by all waiters for the same node; or
 * GETs of one byte, which also prove that the file may be read.
 *
 *   HEAD ──the version is the known one, and a grant is wanted that HEADs do not give──▶ GET of one byte
 *     ▲                                                                                  │
 *     └──────────────────────────────another version─────────────────────────────────────┘
 */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "catalog/catalog_private.h"

#define UNANSWERED_S 5
#define ASK_FIRST_MS 1000
#define ASK_MAX_MS 30000

/* Revalidation while the origin does not answer: known versions count as valid.
 *
 *            no answer to a HEAD: connect, DNS, TLS, stall
 *   online ────────────────────────────────────────────────────▶ offline: opens do not wait. Requests in
 *      ▲                                                             │    the background: after 1 s, .. 30 s
 *      └──────────────── any HTTP answer ────────────────────────────┘
 *
 * An HTTP error of one object (500, 429) does not concern others: only for that object no request is sent
 * for a while.
 *
 * Threads: any. Locks: dataset.lock, as a leaf. Never blocks. */
static void offline_begin(struct ps_dataset *ds)
{
	unsigned tries = atomic_fetch_add(&ds->offline_tries, 1);
	uint64_t ms = PS_MIN((uint64_t)ASK_FIRST_MS << PS_MIN(tries, 5u), (uint64_t)ASK_MAX_MS);

	atomic_store(&ds->offline_ask_ns, ps_clock_mono_ns() + ms * PS_NS_PER_MS);
	if (!atomic_exchange(&ds->offline, true))
		ps_log_warning("origin: %s: the origin does not answer; cached versions are served without "
		               "revalidation",
		        ds->catalog->row.source);
}

/* A probe of the node failed. errnum 0: a known version is used instead, and no request is sent for a while.
 * Otherwise requests within PS_FILL_FAILED_MS get this error at once: else each would wait as long again, because
 * the kernel serialises lookups of one name. */
static void note(struct ps_dataset *ds, uint64_t node, int errnum)
{
	size_t i = node % PS_DATASET_UNANSWERED;
	uint64_t for_ns = errnum ? PS_FILL_FAILED_MS * PS_NS_PER_MS : UNANSWERED_S * PS_NS_PER_S;

	PS_LOCK_SCOPE(&ds->lock);
	ds->unanswered[i].node = node;
	ds->unanswered[i].errnum = errnum;
	ds->unanswered[i].until_ns = ps_clock_mono_ns() + for_ns;
}

/* True if note() was called for the node a short time ago; with the errnum. */
static bool noted(struct ps_dataset *ds, uint64_t node, int *ret_errnum)
{
	size_t i = node % PS_DATASET_UNANSWERED;

	PS_LOCK_SCOPE(&ds->lock);
	bool recent = ds->unanswered[i].node == node && ps_clock_mono_ns() < ds->unanswered[i].until_ns;
	*ret_errnum = recent ? ds->unanswered[i].errnum : 0;
	return recent;
}

/* True if the caller need not wait for the origin's answer for this node. *ret_ask: a request is due all
 * the same, in the background. */
static bool offline_now(struct ps_dataset *ds, uint64_t node, bool *ret_ask)
{
	uint64_t now_ns = ps_clock_mono_ns(), ask_ns = atomic_load(&ds->offline_ask_ns);
	int errnum;

	*ret_ask = false;
	if (atomic_load(&ds->offline)) {
		/* The next request may be sent when this one is answered, or at the latest after
		 * ASK_MAX_MS. */
		*ret_ask = now_ns >= ask_ns && atomic_compare_exchange_strong(&ds->offline_ask_ns, &ask_ns,
		                                       now_ns + ASK_MAX_MS * PS_NS_PER_MS);
		return true;
	}
	return noted(ds, node, &errnum);
}

/* Probes ------------------------------------------------------------------------------------------------- */

#define PROBE_BACKOFF_FIRST_MS 200
#define PROBE_BACKOFF_MAX_MS 5000
/* how often a probe may change from a HEAD that confirms the version to a GET that finds another, and
 * back */
#define PROBE_TURNS 2
/* a version that has come back this often in a row alternates with another one */
#define ALTERNATIONS_TOLD 3
#define ALTERNATION_MAX_MS 600000 /* if that takes longer, they are changes */
/* minimum time between requests for a file's grant or version ahead of its open */
#define ASK_AHEAD_MS 30000
/* no version is requested ahead of an open while this many probes run, those of the sweep not counted */
#define AHEAD_CONCURRENCY 16
#define REVALIDATE_WAIT_MS 5000 /* limit of an open's wait for the revalidation of a known version */

struct probe_waiter {
	struct probe_waiter *next;
	ps_attr_fn fn;
	void *arg;
};

struct probe {
	struct ps_list link; /* in dataset->probes; protected by the dataset's lock, like the fields below */
	struct ps_origin_head head;
	struct ps_origin_get get; /* of one byte, into `byte` */
	struct iovec iov;
	char byte;
	struct ps_dataset *dataset;
	struct ps_node_row row; /* as at the probe's beginning; changes only under the lock */
	struct probe_waiter *waiters;
	bool at_origin; /* a request is under way; else the probe waits until retry_ns */
	bool for_sweep;
	bool for_grant;
	bool ends;   /* waiters for a grant cannot join this probe any more */
	bool by_get; /* the next attempt is a GET; used only by the thread that has the probe */
	unsigned attempts, turns;
	uint64_t retry_ns, expires_ns;
	uint64_t answer_ns; /* when waiters get the known version; expires_ns if no version is known */
};

static void head_done(struct ps_origin_head *head, const struct ps_error *err);
static void byte_done(struct ps_origin_get *get, const struct ps_error *err);

static bool row_sized(const struct ps_node_row *row)
{
	return row->remote.size != PS_SIZE_UNKNOWN;
}

static int copy_row(const struct ps_node_row *from, struct ps_node_row *ret)
{
	*ret = *from;
	ret->name = strdup(from->name);
	ret->url = from->url ? strdup(from->url) : NULL;
	if (ret->name && (ret->url || !from->url))
		return 0;
	ps_node_row_fini(ret);
	return -ENOMEM;
}

static void byte_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	(void)get, (void)nbytes_so_far;
}

static void probe_submit(struct probe *probe)
{
	struct ps_dataset *ds = probe->dataset;

	if (probe->by_get) {
		probe->iov = (struct iovec){.iov_base = &probe->byte, .iov_len = 1};
		probe->get = (struct ps_origin_get){.url = probe->row.url,
		        .expect = probe->row.remote,
		        .nbytes = 1,
		        .iov = &probe->iov,
		        .niov = 1,
		        .fresh = probe->head.fresh,
		        .progress = byte_progress,
		        .done = byte_done};
		ds->origin->ops->get(ds->origin, &probe->get);
		return;
	}
	probe->head.url = probe->row.url;
	probe->head.done = head_done;
	probe->head.seen = PS_REMOTE_UNKNOWN;
	ds->origin->ops->head(ds->origin, &probe->head);
}

/* Takes the probe off the list, answers its waiters and frees it. No lock is held. */
static void probe_end(struct probe *probe, int errnum, const struct ps_attr *attr)
{
	struct ps_dataset *ds = probe->dataset;
	struct probe_waiter *waiters;
	{
		PS_LOCK_SCOPE(&ds->lock);
		ps_list_remove(&probe->link); /* no waiter can join it any more */
		waiters = ps_steal_ptr(&probe->waiters);
	}
	while (waiters) {
		struct probe_waiter *next = waiters->next;

		waiters->fn(waiters->arg, errnum, attr);
		free(waiters);
		waiters = next;
	}
	bool for_sweep = probe->for_sweep;
	ps_node_row_fini(&probe->row);
	free(probe);
	if (for_sweep && errnum && errnum != ENOENT) {
		PS_LOCK_SCOPE(&ds->catalog->lock);
		ds->catalog->nunknown++;
	}
	PS_LOCK_SCOPE(&ds->lock);
	ds->nprobes--;
	ds->nsweep -= for_sweep;
	pthread_cond_broadcast(&ds->cond);
}

/* Takes over what a HEAD has seen. same: the row has this version already. keep_sum: the row keeps its
 * checksum if it has one. */
static void take_seen(struct ps_node_row *row, const struct ps_remote *seen, bool same, bool keep_sum)
{
	struct ps_remote old = row->remote;

	if (!same)
		row->remote = *seen;
	if (keep_sum && old.checksum[0]) {
		memcpy(row->remote.checksum, old.checksum, sizeof(old.checksum));
	} else {
		row->sum_of_name = false;
		if (!ps_checksum_parse(seen->checksum, row->remote.checksum))
			row->remote.checksum[0] = '\0';
	}
}

static uint64_t version_hash(const struct ps_remote *remote)
{
	uint64_t h = ps_hash(PS_HASH_BEGIN, remote->etag, strlen(remote->etag));

	h = ps_hash(h, &remote->size, sizeof(remote->size));
	return ps_hash(h, &remote->mtime_s, sizeof(remote->mtime_s));
}

static void add_version(struct ps_strbuf *b, const struct ps_remote *remote)
{
	char date[32] = "";
	time_t t = (time_t)remote->mtime_s;
	struct tm tm;

	if (remote->mtime_s >= 0 && gmtime_r(&t, &tm))
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	ps_strbuf_addf(b, "%s%s%s (%" PRIu64 " bytes)", remote->etag,
	        remote->etag[0] && date[0] ? " of " : "", date, remote->size);
}

/* A version that comes back again and again is not a change: several replicas answer, and disagree about ETags
 * or times. Then the reader needs another text than "the object has changed".
 *
 * Called for a name whose version was `old` and is now `seen`, or whose version the origin confirms (NULL)
 * although a read has just met another one. names_lock held. */
static void note_version(struct ps_dataset *ds, const struct ps_node_row *old, const struct ps_remote *seen)
{
	uint64_t url = ps_hash(PS_HASH_BEGIN, old->url, strlen(old->url)) | 1, now_ns = ps_clock_mono_ns();
	struct ps_alternation *a = &ds->alternations[url / 2 % PS_DATASET_ALTERNATIONS];
	bool recent = a->url == url && now_ns - a->at_ns < ALTERNATION_MAX_MS * PS_NS_PER_MS;
	bool back = !seen || (recent && a->before == version_hash(seen));
	ps_autostrbuf struct ps_strbuf text = {0};

	free(a->text);
	*a = (struct ps_alternation){.url = url,
	        .before = seen     ? version_hash(&old->remote)
	                  : recent ? a->before
	                           : 0,
	        .times = back ? (recent ? a->times : 0) + 1 : 0,
	        .at_ns = now_ns};
	if (seen && a->times < ALTERNATIONS_TOLD)
		ps_log_info("changed: %s: the origin has a new version", old->url);
	if (a->times < ALTERNATIONS_TOLD)
		return;
	ps_strbuf_add(&text, "the origin alternates between versions: ");
	add_version(&text, &old->remote);
	ps_strbuf_add(&text, " and ");
	if (seen)
		add_version(&text, seen);
	else
		ps_strbuf_add(&text, "another one");
	ps_strbuf_add(&text, "; if these are replicas with the same bytes, mount with --version-by size");
	if (a->times == ALTERNATIONS_TOLD)
		ps_log_warning("changed: %s: %s", old->url, ps_strbuf_peek(&text));
	ps_fill_note_error(ds->cache->fill, ps_strbuf_peek(&text));
	a->text = ps_strbuf_take(&text);
}

void ps_dataset_alternation(struct ps_dataset *ds, const char *url_text, char *ret, size_t cap)
{
	uint64_t url = ps_hash(PS_HASH_BEGIN, url_text, strlen(url_text)) | 1;

	PS_LOCK_SCOPE(&ds->catalog->names_lock);
	const struct ps_alternation *a = &ds->alternations[url / 2 % PS_DATASET_ALTERNATIONS];
	if (a->url == url && a->text && ps_clock_mono_ns() - a->at_ns < ALTERNATION_MAX_MS * PS_NS_PER_MS)
		snprintf(ret, cap, "%s", a->text);
}

/* Applies an answer to the name, in the index. *row becomes the name's present node; -ENOENT: the name has
 * none. -EAGAIN: *row is another file, without a known version. */
static int apply_seen(struct ps_dataset *ds, struct ps_node_row *row, const struct ps_remote *seen, bool gone)
{
	struct ps_index_batch *batch = ps_index_batch_new();
	bool confirmed = !gone && row_sized(row) && ps_remote_same_version(&row->remote, seen);
	uint64_t current;

	if (!batch)
		return -ENOMEM;
	PS_LOCK_SCOPE(&ds->catalog->names_lock);
	(void)ps_merge_flush(ds); /* if the disk refuses the batch, the listing that it belongs to fails */
	int rc = ps_index_get_child(ds->index, row->parent, row->name, &current);
	if (rc == 0 && current != row->node) { /* a listing was faster */
		ps_index_batch_free(batch);
		ps_node_row_fini(row);
		rc = ps_index_get_node(ds->index, current, row);
		return rc == 0 && row->kind == PS_NODE_FILE && !row_sized(row) ? -EAGAIN : rc;
	}
	if (rc < 0) {
		ps_index_batch_free(batch);
		return rc;
	}
	if (gone) {
		row->superseded = true;
		ps_index_batch_put_node(batch, row);
		ps_index_batch_del_child(batch, row->parent, row->name);
		ps_catalog_changed(ds->catalog, row->node);
	} else if (!row_sized(row) || ps_remote_same_version(&row->remote, seen)) {
		if (row->checked_ms == PS_CHECKED_DOUBTFUL && row_sized(row))
			note_version(ds, row, NULL);
		/* A known version keeps its strings: they are part of the object's id. */
		take_seen(row, seen, row_sized(row), true);
		row->checked_ms = ps_clock_real_ms();
		ps_index_batch_put_node(batch, row);
	} else {
		row->superseded = true;
		ps_index_batch_put_node(batch, row);
		ps_catalog_changed(ds->catalog, row->node);
		note_version(ds, row, seen);
		row->superseded = false;
		take_seen(row, seen, false, row->sum_of_name);
		row->checked_ms = ps_clock_real_ms();
		rc = ps_index_new_node(ds->index, &row->node);
		if (rc < 0) {
			ps_index_batch_free(batch);
			return rc;
		}
		ps_index_batch_put_node(batch, row);
		ps_index_batch_put_child(batch, row->parent, row->name, row->node);
	}
	rc = ps_index_batch_commit_or_keep(ds->index, batch);
	/* On a full disk a known version stays valid. Its confirmation cannot be stored, so the origin is
	 * asked again next time. */
	if (confirmed)
		return 0;
	return rc == 0 && gone ? -ENOENT : rc;
}

/* Counts a missing name: a manifest or a brace expansion has it, and the origin has never confirmed it. */
static void note_missing(struct ps_catalog *catalog, const char *name)
{
	char *copy = strdup(name);

	PS_LOCK_SCOPE(&catalog->lock);
	catalog->nmissing++;
	for (size_t i = 0; i < PS_DATASET_MISSING && copy; i++) {
		char *other = catalog->missing[i];

		if (other && strcmp(other, copy) <= 0)
			continue;
		catalog->missing[i] = copy;
		copy = other;
	}
	free(copy);
}

static bool probe_retry(struct probe *probe, const struct ps_error *err)
{
	struct ps_dataset *ds = probe->dataset;
	uint64_t ms = PROBE_BACKOFF_FIRST_MS;

	if (!err->retryable || atomic_load(&ds->stop))
		return false;
	PS_LOCK_SCOPE(&ds->lock);
	/* If the version is known already, a failed probe is not retried: the known version is used. The
	 * exception is a waiter for a grant, which needs an answer: EAGAIN (a busy server, or credentials
	 * that are being fetched) is not one, and is retried. */
	if (row_sized(&probe->row) && !(probe->for_grant && err->err == EAGAIN && probe->waiters))
		return false;
	for (unsigned i = 0; i < probe->attempts && ms < PROBE_BACKOFF_MAX_MS; i++)
		ms *= 2;
	probe->attempts++;
	probe->head.fresh = err->err == ETIMEDOUT || !err->http_status;
	probe->at_origin = false;
	probe->retry_ns = ps_clock_mono_ns() + PS_MAX(ms, err->retry_after_ms) * PS_NS_PER_MS;
	if (probe->retry_ns >= probe->expires_ns) {
		probe->at_origin = true; /* the probe ends now */
		return false;
	}
	pthread_cond_broadcast(&ds->cond);
	return true;
}

/* A listing gave the name to another file meanwhile: the probe goes on with that file. Takes over the row. */
static bool probe_turn_to(struct probe *probe, struct ps_node_row *row)
{
	struct ps_node_row old;
	{
		PS_LOCK_SCOPE(&probe->dataset->lock);
		if (atomic_load(&probe->dataset->stop) || ps_clock_mono_ns() >= probe->expires_ns)
			return false;
		old = probe->row;
		probe->row = *row;
		probe->by_get = probe->ends = false;
	}
	ps_node_row_fini(&old);
	probe_submit(probe);
	return true;
}

/* If the old version is identified only by its first bytes ("marked"), requests for it cannot carry a
 * condition. Then nothing more of it is fetched, because an open file could get bytes of both versions. Its
 * cached bytes are dropped, too, because the last of them may be of the new version. */
static void end_marked(struct ps_dataset *ds, const struct ps_node_row *old)
{
	struct ps_object *object;

	if (!ps_remote_is_marked(&old->remote) || ps_view_object(ds, old, false, &object) < 0)
		return;
	ps_fill_object_doubt(ds->cache->fill, object);
	if (ps_object_retire(object) < 0)
		ps_log_warning("%s: the old version stays in the cache", old->url);
	ps_object_put(object);
}

/* True if the origin has answered, and has refused this request. Such an answer revokes a grant; a missing
 * answer, a 5xx, a request to wait, and a part of the object that cannot be used do not. */
static bool is_refusal(const struct ps_error *err)
{
	int status = err->http_status;

	return err->err == EACCES || (status > 0 && status < 500 && status != 206 && status != 408 &&
	                                     status != 425 && status != 429 && err->err != EAGAIN);
}

/* The request failed, and is not repeated: waiters get the known version or the error. */
static void end_failed(struct probe *probe, const struct ps_error *err)
{
	struct ps_dataset *ds = probe->dataset;
	const struct ps_node_row *row = &probe->row;
	bool known = row_sized(row), cancelled = err->err == ECANCELED;
	struct ps_attr attr;

	if (known && ds->origin->proved && is_refusal(err)) {
		struct ps_id of;

		ps_grant_id_of_file(ds, row->url, &row->remote, &of);
		ps_grant_revoke(ds, &of);
	}
	if (known && err->err != EACCES && !cancelled) {
		if (err->http_status || err->err == ENOMEM)
			note(ds, row->node, 0);
		else
			offline_begin(ds);
		ps_log_warning("revalidate: %s: %s; the known version is served", row->url, err->text);
		ps_attr_of_row(ds, row, &attr);
		probe_end(probe, 0, &attr);
		return;
	}
	int errnum = cancelled || err->err == EACCES || err->err == ETIMEDOUT ? err->err : EIO;
	ps_dataset_note_error(ds, row->node, err->err, err->text);
	if (!cancelled) {
		ps_log_warning("head: %s: %s", row->url, err->text);
		ps_fill_note_error(ds->cache->fill, err->text);
		note(ds, row->node, errnum);
	}
	probe_end(probe, errnum, NULL);
}

/* The origin has the version `seen`, or (err is ENOENT) no such file: the name is shown so from now on.
 * proves: the answer proves that this access may read the version. */
static void end_seen(struct probe *probe, const struct ps_remote *seen, const struct ps_error *err,
        bool proves, int64_t key_expires_s)
{
	struct ps_dataset *ds = probe->dataset;
	bool gone = err->err == ENOENT;
	struct ps_node_row row;
	struct ps_attr attr;

	if (copy_row(&probe->row, &row) < 0) {
		probe_end(probe, ENOMEM, NULL);
		return;
	}
	if (gone)
		ps_log_warning("head: %s: %s; the name is no longer shown", row.url, err->text);
	else
		ps_catalog_note_remote(ds->catalog, seen);
	if (gone && !row_sized(&row))
		note_missing(ds->catalog, row.name);
	int rc = apply_seen(ds, &row, seen, gone);
	if (rc == -EAGAIN && probe_turn_to(probe, &row))
		return;
	if (rc == -EAGAIN) /* there is no time left for another request */
		rc = -ETIMEDOUT;
	if (rc == 0 && row.node != probe->row.node)
		end_marked(ds, &probe->row);
	/* The answer is a proof for this version only: a listing may have given the name another one
	 * meanwhile. */
	if (rc == 0 && proves && row.remote.size > 0 && ps_remote_same_version(&row.remote, seen))
		ps_grant_proved(ds, row.url, &row.remote, key_expires_s);
	if (rc == 0)
		ps_attr_of_row(ds, &row, &attr);
	probe_end(probe, -rc, rc == 0 ? &attr : NULL);
	ps_node_row_fini(&row);
}

/* What the origin answered decides how the probe goes on: with another attempt, with a GET that proves the
 * right to read, or to its end. */
static void answered(
        struct probe *probe, struct ps_remote *seen, const struct ps_error *err, int64_t key_expires_s)
{
	struct ps_dataset *ds = probe->dataset;
	uint64_t stated = ps_remote_stated_size(&probe->row.remote);
	char why[128] = "";

	if (ds->by_size && seen->size != PS_SIZE_UNKNOWN)
		ps_remote_by_size(seen);
	ps_fill_count_request(ds->cache->fill, err->err && err->err != ECANCELED);
	if (!err->err || err->http_status) {
		atomic_store(&ds->offline_tries, 0);
		if (atomic_exchange(&ds->offline, false))
			ps_log_warning("origin: %s: it answers again", ds->catalog->row.source);
	}
	if (err->err && err->err != ENOENT) {
		if (!probe_retry(probe, err))
			end_failed(probe, err);
		return;
	}
	if (!err->err && seen->size == PS_SIZE_UNKNOWN)
		snprintf(why, sizeof(why), "the origin does not report its size");
	else if (!err->err && stated != PS_SIZE_UNKNOWN && stated != seen->size)
		snprintf(why, sizeof(why), "the list says %" PRIu64 " bytes, the origin has %" PRIu64, stated,
		        seen->size);
	if (why[0]) { /* the file cannot be shown as the origin reports it */
		ps_log_warning("head: %s: %s", probe->row.url, why);
		ps_dataset_note_error(ds, probe->row.node, EIO, why);
		if (seen->size != PS_SIZE_UNKNOWN)
			ps_fill_note_error(ds->cache->fill, why);
		probe_end(probe, EIO, NULL);
		return;
	}
	/* A version that is identified by its first bytes comes from a GET, which proves that the file may
	 * be read. */
	bool proves =
	        ds->origin->proved && (probe->by_get || ds->origin->heads_prove || ps_remote_is_marked(seen));
	bool wanted = false;
	if (!err->err && !proves && ds->origin->proved) {
		PS_LOCK_SCOPE(&ds->lock);
		wanted = probe->for_grant;
		probe->ends = !wanted; /* waiters that want a grant start another probe from now on */
	}
	if (wanted && row_sized(&probe->row) && ps_remote_same_version(&probe->row.remote, seen)) {
		probe->by_get = true;
		probe_submit(probe);
		return;
	}
	end_seen(probe, seen, err, proves, key_expires_s);
}

static void head_done(struct ps_origin_head *head, const struct ps_error *err)
{
	answered(PS_CONTAINER_OF(head, struct probe, head), &head->seen, err, head->work.key_expires_s);
}

static void byte_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct probe *probe = PS_CONTAINER_OF(get, struct probe, get);
	struct ps_error outcome = *err;

	if (err->err == ESTALE && ++probe->turns >= PROBE_TURNS) {
		ps_error_set(&outcome, EIO, "HEAD and GET report different versions of it");
		outcome.http_status = err->http_status ? err->http_status : 412;
	} else if (err->err == ESTALE) {
		/* Ask for the present version. */
		ps_fill_count_request(probe->dataset->cache->fill, false);
		probe->by_get = false;
		probe_submit(probe);
		return;
	}
	/* A server that ignores ranges sends the whole file: in the right version, that is a proof, too. */
	if (err->err == EPROTO && err->http_status == 200 && get->seen.size == probe->row.remote.size &&
	        ps_remote_same_version(&probe->row.remote, &get->seen))
		outcome = (struct ps_error){0};
	probe->head.seen = get->seen;
	probe->head.seen.size = probe->row.remote.size; /* the request was for this version */
	answered(probe, &probe->head.seen, &outcome, get->work.key_expires_s);
}

/* Joins a probe of this node or starts one. Returns false if there is no memory. */
static bool probe_begin(struct ps_dataset *ds, const struct ps_node_row *row, struct probe_waiter *waiter,
        bool for_sweep, bool for_grant)
{
	struct probe *probe = NULL;
	{
		PS_LOCK_SCOPE(&ds->lock);
		for (struct ps_list *l = ds->probes.next; l != &ds->probes; l = l->next) {
			struct probe *other = PS_CONTAINER_OF(l, struct probe, link);

			if (other->row.node != row->node || (for_grant && other->ends))
				continue;
			other->for_grant |= for_grant;
			if (waiter) {
				waiter->next = other->waiters;
				other->waiters = waiter;
			}
			return true;
		}
		probe = calloc(1, sizeof(*probe));
		if (!probe || copy_row(row, &probe->row) < 0) {
			free(probe);
			return false;
		}
		probe->dataset = ds;
		probe->waiters = waiter;
		probe->at_origin = true;
		probe->for_sweep = for_sweep;
		probe->for_grant = for_grant;
		/* If the first bytes identify the version, a single byte is not enough. */
		probe->by_get = for_grant && ds->origin->proved && !ds->origin->heads_prove &&
		                row_sized(row) && row->remote.size > 0 && !ps_remote_is_marked(&row->remote);
		probe->expires_ns = ps_clock_mono_ns() + ps_fill_timeout_ns(ds->cache->fill);
		probe->answer_ns = probe->expires_ns;
		if (row_sized(row))
			probe->answer_ns = PS_MIN(
			        probe->answer_ns, ps_clock_mono_ns() + REVALIDATE_WAIT_MS * PS_NS_PER_MS);
		ps_list_append(&ds->probes, &probe->link);
		ds->nprobes++;
		ds->nsweep += for_sweep;
	}
	probe_submit(probe);
	return true;
}

void ps_revalidate(
        struct ps_dataset *ds, const struct ps_node_row *row, bool with_grant, ps_attr_fn fn, void *arg)
{
	enum ps_grant grant = with_grant ? ps_grant_of_row(ds, row) : PS_GRANT_VALID;
	bool for_grant = grant != PS_GRANT_VALID, ask = false;
	struct ps_attr attr;
	int errnum = 0;

	if (for_grant || !row_sized(row))
		(void)noted(ds, row->node, &errnum);
	/* An access that never had a grant, or was just refused, has to wait for an answer. */
	bool content = row_sized(row) && !(for_grant && (grant == PS_GRANT_NONE || errnum));
	if (content && offline_now(ds, row->node, &ask)) {
		if (ask)
			(void)probe_begin(ds, row, NULL, false, for_grant);
		ps_attr_of_row(ds, row, &attr);
		fn(arg, 0, &attr);
		return;
	}
	if (errnum && !row_sized(row)) {
		fn(arg, errnum, NULL);
		return;
	}
	struct probe_waiter *waiter = calloc(1, sizeof(*waiter));
	if (waiter) {
		waiter->fn = fn;
		waiter->arg = arg;
	}
	if (!waiter || !probe_begin(ds, row, waiter, false, for_grant)) {
		free(waiter);
		fn(arg, ENOMEM, NULL);
	}
}

/* False if the node was asked for ahead of an open a short time ago; else notes that it is now (mark). */
static bool may_ask_ahead(struct ps_dataset *ds, uint64_t node, unsigned max_probes, bool mark)
{
	size_t i = node % PS_DATASET_UNANSWERED;
	uint64_t now_ns = ps_clock_mono_ns();

	PS_LOCK_SCOPE(&ds->lock);
	if ((ds->asked_ahead[i].node == node && now_ns < ds->asked_ahead[i].until_ns) ||
	        ds->nprobes - ds->nsweep >= max_probes)
		return false;
	if (mark) {
		ds->asked_ahead[i].node = node;
		ds->asked_ahead[i].until_ns = now_ns + ASK_AHEAD_MS * PS_NS_PER_MS;
	}
	return true;
}

void ps_revalidate_grant_ahead(struct ps_dataset *ds, const struct ps_node_row *row)
{
	if (!may_ask_ahead(ds, row->node, UINT_MAX, true))
		return;
	(void)probe_begin(ds, row, NULL, false, true);
}

void ps_revalidate_version_ahead(struct ps_dataset *ds, const struct ps_node_row *row)
{
	bool ask;

	/* A doubtful version stays doubtful for the next open, which acts on that: it is not revalidated
	 * ahead. */
	if (row->checked_ms == PS_CHECKED_DOUBTFUL ||
	        !may_ask_ahead(ds, row->node, AHEAD_CONCURRENCY, false) ||
	        (offline_now(ds, row->node, &ask) && !ask) || !may_ask_ahead(ds, row->node, UINT_MAX, true))
		return;
	(void)probe_begin(ds, row, NULL, false, ps_grant_of_row(ds, row) != PS_GRANT_VALID);
}

/* Answers waiters with the known version, or with the error. No lock is held, because the size of a
 * compressed shard is looked up in the index. */
static void answer_expired(
        struct ps_dataset *ds, struct probe_waiter *expired, const struct ps_node_row *row, int errnum)
{
	struct ps_attr attr;

	if (!errnum) {
		offline_begin(ds);
		ps_attr_of_row(ds, row, &attr);
	} else if (errnum == ETIMEDOUT) {
		note(ds, row->node, ETIMEDOUT);
	}
	while (expired) {
		struct probe_waiter *w = expired;

		expired = w->next;
		w->fn(w->arg, errnum, errnum ? NULL : &attr);
		free(w);
	}
}

uint64_t ps_revalidate_tick(struct ps_dataset *ds, uint64_t now_ns)
{
	for (;;) {
		struct probe *due = NULL;
		struct probe_waiter *expired = NULL;
		struct ps_node_row row = {0}; /* a copy, as the probe may end meanwhile */
		int errnum = 0;
		uint64_t next = now_ns + PS_NS_PER_S;
		{
			PS_LOCK_SCOPE(&ds->lock);
			for (struct ps_list *l = ds->probes.next; l != &ds->probes && !due && !expired;
			        l = l->next) {
				struct probe *probe = PS_CONTAINER_OF(l, struct probe, link);

				/* Waiters whose time is up: at the deadline if the origin does not answer the
				 * HEAD, and sooner if the version is known. The probe itself goes on until the
				 * origin ends it. */
				expired = now_ns < probe->answer_ns ? NULL : ps_steal_ptr(&probe->waiters);
				if (expired && row_sized(&probe->row))
					errnum = -copy_row(&probe->row, &row);
				else if (expired)
					errnum = ETIMEDOUT;
				if (expired)
					row.node = probe->row.node;
				if (!probe->at_origin && probe->retry_ns <= now_ns)
					due = probe;
				else if (!probe->at_origin)
					next = PS_MIN(next, probe->retry_ns);
				if (probe->waiters)
					next = PS_MIN(next, probe->answer_ns);
			}
			if (due)
				due->at_origin = true;
		}
		if (!due && !expired)
			return next;
		if (expired)
			answer_expired(ds, expired, &row, errnum);
		ps_node_row_fini(&row);
		if (due)
			probe_submit(due);
	}
}

void ps_revalidate_drain(struct ps_dataset *ds)
{
	if (!ds->origin)
		return; /* the attach failed before it was opened */
	ds->origin->ops->abort(ds->origin);
	for (;;) {
		struct probe *idle = NULL;
		{
			PS_LOCK_SCOPE(&ds->lock);
			for (struct ps_list *l = ds->probes.next; l != &ds->probes && !idle; l = l->next) {
				struct probe *probe = PS_CONTAINER_OF(l, struct probe, link);

				if (!probe->at_origin)
					idle = probe;
			}
			if (!idle) {
				if (ds->nprobes == 0)
					return;
				pthread_cond_wait(&ds->cond, &ds->lock);
				continue;
			}
			idle->at_origin = true;
		}
		probe_end(idle, ECANCELED, NULL);
	}
}

/* The sweep: requests the sizes that a listing did not give, file by file, before readers need them. */

#define SWEEP_CONCURRENCY 16
#define SWEEP_AT_ONCE 256 /* names that are read from the index at once */

static bool is_over(struct ps_dataset *ds)
{
	return atomic_load(&ds->stop) || atomic_load(&ds->asked_again);
}

/* Gets the next nodes of a directory after the name *after (NULL: from its beginning), and their number.
 * *after becomes the name of the last one. Fewer than SWEEP_AT_ONCE: the directory has no more. */
static size_t take_children(
        struct ps_dataset *ds, uint64_t dir, char **after, uint64_t ret[static SWEEP_AT_ONCE])
{
	struct ps_index_children *it;
	const char *name;
	size_t n = 0;

	if (ps_index_children_open(ds->index, dir, &it) < 0)
		return 0;
	if (*after)
		ps_index_children_seek_after(it, *after);
	while (n < SWEEP_AT_ONCE && ps_index_children_next(it, &name, &ret[n])) {
		if (++n == SWEEP_AT_ONCE) {
			free(*after);
			*after = strdup(name);
		}
	}
	ps_index_children_close(it);
	/* Without memory for the name, the sweep ends: the other sizes are requested when readers need
	 * them. */
	return *after || n < SWEEP_AT_ONCE ? n : 0;
}

/* No snapshot is held during the requests, which may take hours: see ps_index_reopen(). */
static void sweep_dir(struct ps_dataset *ds, uint64_t dir, int depth)
{
	uint64_t nodes[SWEEP_AT_ONCE];
	ps_autofree char *after = NULL;

	for (size_t n = SWEEP_AT_ONCE; n == SWEEP_AT_ONCE && depth <= PS_LIST_MAX_DEPTH && !is_over(ds);) {
		n = take_children(ds, dir, &after, nodes);
		for (size_t i = 0; i < n && !is_over(ds); i++) {
			struct ps_node_row row;

			if (ps_index_get_node(ds->index, nodes[i], &row) < 0)
				continue;
			if (row.kind == PS_NODE_DIR) {
				sweep_dir(ds, nodes[i], depth + 1);
			} else if (row.remote.size == PS_SIZE_UNKNOWN && !row.superseded) {
				{
					PS_LOCK_SCOPE(&ds->lock);
					while (ds->nsweep >= SWEEP_CONCURRENCY && !is_over(ds))
						pthread_cond_wait(&ds->cond, &ds->lock);
				}
				if (!is_over(ds))
					(void)probe_begin(ds, &row, NULL, true, false);
			}
			ps_node_row_fini(&row);
		}
	}
}

void ps_revalidate_sizes(struct ps_dataset *ds)
{
	sweep_dir(ds, ds->catalog->row.root, 0);
}
