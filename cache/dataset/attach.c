/* Attaching a dataset, its thread, and its end. */
#include "dataset/dataset.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "dataset/merge.h"
#include "origin/credentials.h"
#include "origin/s3.h"
#include "origin/s3_url.h"

#define RETIRED_BATCH 2000
#define WAIT_MS 50
#define REVALIDATE_DEFAULT_MS (3600 * UINT64_C(1000))

void ps_dataset_note_error(struct ps_dataset *ds, uint64_t node, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return;
	PS_LOCK_SCOPE(&ds->lock);
	unsigned slot = ds->next_error;
	for (unsigned i = 0; i < PS_DATASET_ERRORS; i++)
		if (ds->errors[i].text && ds->errors[i].node == node)
			slot = i;
	if (slot == ds->next_error)
		ds->next_error = (ds->next_error + 1) % PS_DATASET_ERRORS;
	free(ds->errors[slot].text);
	ds->errors[slot].text = copy;
	ds->errors[slot].node = node;
}

/* The thread ------------------------------------------------------------------------------------- */

static int list_once(struct ps_dataset *ds, struct ps_error *err, uint64_t *ret_first_unsized)
{
	struct ps_merge *merge = ps_merge_new(ds);
	uint64_t nfiles = 0;

	if (!merge)
		return ps_error_set(err, ENOMEM, "out of memory for the listing");
	int rc = ds->origin->ops->list(ds->origin, ps_merge_add, merge, &ds->stop, err);
	if (rc == 0) {
		rc = ps_merge_finish(merge, &nfiles, ret_first_unsized);
		if (rc < 0)
			ps_error_set(err, -rc, "cannot store the listing in the index: %s", strerror(-rc));
		else if (nfiles == 0)
			rc = ps_error_set(err, ENOENT, "%s: no files found there", ds->row.source);
	} else if (!err->err) {
		ps_error_set(err, -rc, "listing %s: %s", ds->row.source, strerror(-rc));
	}
	ps_merge_free(merge);
	return rc;
}

static void *dataset_main(void *arg)
{
	struct ps_dataset *ds = arg;
	struct ps_error err = {0};
	uint64_t first_unsized = 0;

	int rc = list_once(ds, &err, &first_unsized);
	if (rc < 0 && rc != -ECANCELED)
		ps_log_warning("list: %s", err.text);
	{
		PS_LOCK_SCOPE(&ds->lock);
		ds->listing_done = true;
		ds->listing_ok = rc == 0;
		ds->listing_error = err;
		ds->first_unsized = first_unsized;
		pthread_cond_broadcast(&ds->cond);
	}
	if (first_unsized)
		ps_probe_sweep(ds);
	return NULL;
}

static void *prober_main(void *arg)
{
	struct ps_dataset *ds = arg;

	while (!atomic_load(&ds->stop)) {
		uint64_t wake = ps_probe_tick(ds, ps_clock_mono_ns());

		PS_LOCK_SCOPE(&ds->lock);
		if (!atomic_load(&ds->stop))
			ps_cond_wait_until(&ds->cond, &ds->lock, wake);
	}
	return NULL;
}

/* Retired nodes ----------------------------------------------------------------------------------- */

void ps_dataset_retire(struct ps_dataset *ds, uint64_t node)
{
	if (ds->nretired == ds->retired_cap) {
		size_t cap = ds->retired_cap ? ds->retired_cap * 2 : 256;
		uint64_t *retired = realloc(ds->retired, cap * sizeof *retired);

		if (!retired)
			return; /* its row stays: some bytes on disk */
		ds->retired = retired;
		ds->retired_cap = cap;
	}
	ds->retired[ds->nretired++] = node;
}

/* At this point nobody can ask for an old version by its number any more: kernel and handles are gone. */
static void delete_retired(struct ps_dataset *ds)
{
	struct ps_index_batch *batch = NULL;

	for (size_t i = 0; i < ds->nretired; i++) {
		struct ps_node_row row;

		if (ps_index_get_node(ds->index, ds->retired[i], &row) < 0)
			continue;
		/* Only if that it was superseded has come to the index. */
		if (row.superseded && (batch || (batch = ps_index_batch_new()))) {
			ps_index_batch_del_node(batch, row.node);
			if (row.coding)
				ps_inflate_forget(batch, row.url, &row.remote);
		}
		ps_node_row_fini(&row);
		if (batch && i % RETIRED_BATCH == RETIRED_BATCH - 1 &&
		        ps_index_batch_commit(ds->index, ps_steal_ptr(&batch)) < 0)
			return;
	}
	if (batch && ps_index_batch_commit(ds->index, batch) < 0)
		ps_log_debug("index: rows of old versions stay");
}

/* Attach ----------------------------------------------------------------------------------------- */

/* Tells credentials apart: what one may list is not shown to another who mounts the same source. */
int ps_dataset_id(struct ps_store *store, const char *canonical, const char *source,
        const struct ps_dataset_options *options, struct ps_id *ret)
{
	/* Of the environment, what names an identity to a store; what changes with each hour's token does not. */
	static const char *const identity[] = {
	        "HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "HOME"};
	const char *const *env = strncmp(canonical, "hf:", 3) == 0 ? options->origin.env : NULL;
	ps_autostrbuf struct ps_strbuf secret = {0};
	char hex[PS_ID_HEX_LEN + 1];
	struct ps_id fingerprint;

	ps_strbuf_addf(&secret, "%s\n%s\n", source,
	        options->origin.user_password ? options->origin.user_password : "");
	const char *const files[] = {
	        options->origin.hf_token_file, options->origin.netrc_file, options->origin.client_cert};
	for (size_t i = 0; i < PS_ARRAY_LEN(files); i++)
		if (files[i])
			ps_strbuf_addf(&secret, "%zu %s\n", i, files[i]);
	for (const char *const *h = options->origin.headers; h && *h; h++)
		ps_strbuf_addf(&secret, "%s\n", *h);
	for (size_t i = 0; env && i < PS_ARRAY_LEN(identity); i++) {
		const char *value = ps_env_get(env, identity[i]);

		ps_strbuf_addf(&secret, "%s=%s\n", identity[i], value ? value : "");
	}
	if (ps_s3_url_is(canonical))
		ps_s3_fingerprint(&options->origin, &secret);
	if (options->raw) /* other names */
		ps_strbuf_addf(&secret, "raw\n");
	if (secret.failed)
		return -ENOMEM;
	ps_store_fingerprint(store, ps_strbuf_peek(&secret), &fingerprint);
	ps_id_hex(&fingerprint, hex);
	ps_id_of_strings((const char *[]){"dataset", canonical, hex}, 3, ret);
	return 0;
}

/* The dataset's row, made with its root directory the first time. */
static int load_row(struct ps_dataset *ds, const struct ps_id *id, const char *canonical)
{
	struct ps_index *index = ds->index;
	int rc = ps_index_get_dataset(index, id, &ds->row);

	if (rc != -ENOENT)
		return rc;
	struct ps_node_row root = {
	        .kind = PS_NODE_DIR, .remote = PS_REMOTE_UNKNOWN, .name = (char *)(uintptr_t) ""};
	ds->row = (struct ps_dataset_row){.id = *id, .source = strdup(canonical)};
	if (!ds->row.source)
		return -ENOMEM;
	rc = ps_index_new_dataset(index, &ds->row.number);
	if (rc == 0)
		rc = ps_index_new_node(index, &ds->row.root);
	if (rc < 0)
		return rc;
	root.node = root.ino = root.parent = ds->row.root;
	root.dataset = ds->row.number;
	struct ps_index_batch *batch = ps_index_batch_new();
	if (!batch)
		return -ENOMEM;
	ps_index_batch_put_dataset(batch, &ds->row);
	ps_index_batch_put_node(batch, &root);
	return ps_index_batch_commit(index, batch);
}

static void forget(struct ps_dataset *ds)
{
	ps_dataset_row_fini(&ds->row);
	for (size_t i = 0; i < PS_DATASET_ERRORS; i++)
		free(ds->errors[i].text);
	for (size_t i = 0; i < PS_DATASET_MISSING; i++)
		free(ds->missing[i]);
	free(ds->retired);
	pthread_mutex_destroy(&ds->lock);
	pthread_mutex_destroy(&ds->names_lock);
	pthread_cond_destroy(&ds->cond);
	free(ds);
}

/* Waits for something to happen, or until it is time to look whether this is still wanted. The dataset's
 * lock is held. */
static void wait_a_while(struct ps_dataset *ds)
{
	ps_cond_wait_until(&ds->cond, &ds->lock, ps_clock_mono_ns() + WAIT_MS * PS_NS_PER_MS);
}

/* Waits for the listing: for ever if there is no stored one. */
static int wait_listing(struct ps_dataset *ds, bool stored, const struct ps_dataset_options *options,
        uint64_t *ret_first_unsized, struct ps_error *err)
{
	PS_LOCK_SCOPE(&ds->lock);
	uint64_t wait_ms = ds->row.nfiles < PS_ATTACH_MANY ? PS_ATTACH_WAIT_MS : PS_ATTACH_WAIT_MANY_MS;
	uint64_t until_ns = ps_clock_mono_ns() + wait_ms * PS_NS_PER_MS;
	while (!ds->listing_done) {
		if (options->cancelled && atomic_load(options->cancelled))
			return ps_error_set(err, ECANCELED, "%s: interrupted", ds->row.source);
		wait_a_while(ds);
		if (options->listed) {
			pthread_mutex_unlock(&ds->lock);
			options->listed(options->listed_arg, ds->row.source, atomic_load(&ds->nlisted));
			pthread_mutex_lock(&ds->lock);
		}
		if (stored && !ds->listing_done && ps_clock_mono_ns() >= until_ns) {
			ps_log_info("list: %s: using the stored listing while the new one is on its way",
			        ds->row.source);
			return 0;
		}
	}
	*ret_first_unsized = ds->first_unsized;
	if (ds->listing_ok)
		return 0;
	/* Gone or refused is the origin's word; no answer is not. */
	if (stored && ds->listing_error.err != ENOENT && ds->listing_error.err != EACCES) {
		ps_log_warning(
		        "list: %s: the origin does not answer; using the stored listing", ds->row.source);
		return 0;
	}
	if (err)
		*err = ds->listing_error;
	return -ds->listing_error.err;
}

struct first_check {
	struct ps_dataset *dataset;
	bool done;
	int errnum;
};

static void first_checked(void *arg, int errnum, const struct ps_attr *attr)
{
	struct first_check *check = arg;

	(void)attr;
	PS_LOCK_SCOPE(&check->dataset->lock);
	check->errnum = errnum;
	check->done = true;
	pthread_cond_broadcast(&check->dataset->cond);
}

/* A source that nothing has confirmed yet (braces, a manifest): one file tells whether it is there at all. */
static int check_first(
        struct ps_dataset *ds, uint64_t node, const _Atomic bool *cancelled, struct ps_error *err)
{
	bool aborted = false;
	struct first_check check = {.dataset = ds};
	struct ps_node_info info = {0};
	struct ps_node_row row;
	int rc = ps_index_get_node(ds->index, node, &row);

	if (rc < 0)
		return rc == -ENOENT ? 0 : ps_error_set(err, -rc, "cannot read the index: %s", strerror(-rc));
	ps_probe(ds, &row, first_checked, &check);
	for (bool done = false; !done;) {
		if (!aborted && cancelled && atomic_load(cancelled)) {
			aborted = true;
			ps_probe_drain(ds);
		}
		PS_LOCK_SCOPE(&ds->lock);
		if (!check.done)
			wait_a_while(ds);
		done = check.done;
	}
	if (aborted)
		check.errnum = ECANCELED; /* whatever it found: the dataset's origin is good for nothing any more */
	if (check.errnum) {
		const char *why = strerror(check.errnum);

		if (check.errnum == ENOENT && strncmp(row.url, "file:", 5) != 0 && strchr(row.url, '*'))
			why = "not found at the origin (404); wildcards do not work here: write {000..127} "
			      "braces, or the folder's URL with a / at its end";
		else if (check.errnum == ENOENT)
			why = strncmp(row.url, "file:", 5) == 0
			              ? "there is no such file or folder"
			              : "not found at the origin (404); check the URL";
		else if (aborted)
			why = "interrupted";
		else if (check.errnum == EACCES && !ps_s3_url_is(row.url))
			why = "the origin refuses access; check the credentials (--user, --header)";
		else if (ps_node_info_get(ds, node, &info) == 0 && info.error && info.error[0])
			why = info.error;
		rc = ps_error_set(err, check.errnum, "%s: %s", row.url, why);
		ps_node_info_fini(&info);
	}
	ps_node_row_fini(&row);
	return rc;
}

/* The names of a source that turned out not to be there count as never listed: the next attach asks again. */
static void forget_listing(struct ps_dataset *ds)
{
	struct ps_index_batch *batch = ps_index_batch_new();

	PS_LOCK_SCOPE(&ds->names_lock);
	{
		PS_LOCK_SCOPE(&ds->lock);
		ds->row.listed_ms = 0;
		ps_index_batch_put_dataset(batch, &ds->row);
	}
	if (ps_index_batch_commit(ds->index, batch) < 0)
		ps_log_warning("index: the listing of %s stays", ds->row.source);
}

static int start_threads(struct ps_dataset *ds)
{
	int rc = ps_thread_start(&ds->thread, "dataset", dataset_main, ds);

	ds->thread_started = rc == 0;
	if (rc == 0) {
		rc = ps_thread_start(&ds->prober, "dataset-probes", prober_main, ds);
		ds->prober_started = rc == 0;
	}
	return rc;
}

int ps_dataset_new(struct ps_cache *cache, const char *source, const char *canonical, const struct ps_id *id,
        const struct ps_dataset_options *options, struct ps_dataset **ret, struct ps_error *err)
{
	struct ps_dataset *ds = calloc(1, sizeof *ds);
	uint64_t first_unsized = 0;

	if (!ds)
		return ps_error_set(err, ENOMEM, "out of memory");
	ds->cache = cache;
	ds->index = ps_store_index(cache->store);
	ds->revalidate_ms = options->revalidate_ms ? options->revalidate_ms : REVALIDATE_DEFAULT_MS;
	ds->raw = options->raw;
	ds->attached_ms = ps_clock_real_ms();
	ps_list_init(&ds->probes);
	pthread_mutex_init(&ds->lock, NULL);
	pthread_mutex_init(&ds->names_lock, NULL);
	ps_cond_init(&ds->cond);

	int rc = ps_sequence_new(ds, &ds->sequence);
	if (rc == 0)
		rc = ps_plan_ahead_new(ds, &ds->plan_ahead);
	if (rc < 0)
		ps_error_set(err, -rc, "out of memory");
	struct ps_origin_options origin = options->origin;
	/* The engine keeps to it by itself; HEADs and listings are to do so, too. */
	if (!origin.max_connections)
		origin.max_connections = ps_fill_max_connections(cache->fill);
	origin.reader_timeout_ms = ps_fill_timeout_ns(cache->fill) / PS_NS_PER_MS;
	if (rc == 0)
		rc = ps_origin_open(source, &origin, &ds->origin, err);
	if (rc < 0) {
		ps_plan_ahead_free(ds->plan_ahead);
		ps_sequence_free(ds->sequence);
		forget(ds);
		return rc;
	}
	rc = load_row(ds, id, canonical);
	if (rc < 0) {
		ps_error_set(err, -rc, "cannot use the index in %s: %s", ps_store_dir(cache->store),
		        strerror(-rc));
		ps_dataset_free(ds);
		return rc;
	}
	/* An earlier listing is never as new as this attach, not within one millisecond nor when the clock went back. */
	ds->attached_ms = PS_MAX(ds->attached_ms, ds->row.listed_ms + 1);
	bool stored = ds->row.listed_ms != 0;
	rc = start_threads(ds);
	if (rc < 0)
		ps_error_set(err, -rc, "cannot start a thread: %s", strerror(-rc));
	if (rc == 0)
		rc = wait_listing(ds, stored, options, &first_unsized, err);
	if (rc == 0 && first_unsized && !stored) {
		rc = check_first(ds, first_unsized, options->cancelled, err);
		if (rc < 0)
			forget_listing(ds);
	}
	if (rc < 0) {
		ps_dataset_free(ds);
		return rc;
	}
	*ret = ds;
	return 0;
}

void ps_dataset_free(struct ps_dataset *ds)
{
	{
		PS_LOCK_SCOPE(&ds->lock);
		atomic_store(&ds->stop, true);
		pthread_cond_broadcast(&ds->cond);
	}
	ps_probe_drain(ds);
	if (ds->thread_started)
		pthread_join(ds->thread, NULL);
	if (ds->prober_started)
		pthread_join(ds->prober, NULL);
	ps_probe_drain(ds); /* the sweep may have begun one more */
	ps_plan_ahead_free(ps_steal_ptr(&ds->plan_ahead));
	ps_sequence_free(ps_steal_ptr(&ds->sequence));
	ps_inflate_abort(ds->cache->inflate, ds->origin);
	ps_fill_drain(ds->cache->fill, ds->origin);
	ps_inflate_drain(ds->cache->inflate, ds->origin);
	ds->origin->ops->close(ds->origin);
	delete_retired(ds);
	forget(ds);
}

uint64_t ps_dataset_root(const struct ps_dataset *ds)
{
	return ds->row.root;
}

uint64_t ps_dataset_revalidate_ms(const struct ps_dataset *ds)
{
	return ds->revalidate_ms;
}

const char *ps_dataset_source(const struct ps_dataset *ds)
{
	return ds->row.source;
}

/* The dataset's lock is held. */
static json_t *missing_names(const struct ps_dataset *ds)
{
	json_t *names = json_array();

	for (size_t i = 0; i < PS_DATASET_MISSING; i++)
		if (ds->missing[i])
			json_array_append_new(names, ps_json_lossy(ds->missing[i]));
	return names;
}

json_t *ps_dataset_stats(struct ps_dataset *ds)
{
	PS_LOCK_SCOPE(&ds->lock);
	return json_pack("{s:o,s:I,s:I,s:b,s:o,s:b,s:I,s:I,s:o}", "source", ps_json_lossy(ds->row.source), "files",
	        (json_int_t)ds->row.nfiles, "listed_at", (json_int_t)(ds->row.listed_ms / 1000), "listing",
	        (int)!ds->listing_done, "listing_error",
	        ps_json_lossy(ds->listing_done && !ds->listing_ok ? ds->listing_error.text : ""), "offline",
	        (int)atomic_load(&ds->offline), "opens",
	        (json_int_t)atomic_load(&ds->nopens), "missing", (json_int_t)ds->nmissing, "missing_names",
	        missing_names(ds));
}
