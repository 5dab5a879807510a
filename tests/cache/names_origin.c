#include "tests/cache/names_origin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "tests/cache/pattern_origin.h"

struct job {
	struct ps_list link;
	struct ps_origin_get *get; /* or head */
	struct ps_origin_head *head;
	bool cancelled;
};

struct impl {
	pthread_t thread;
	struct ps_list jobs;
	bool stop, aborted;
};

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static struct ps_remote remote_of(const struct ps_names_entry *e)
{
	struct ps_remote remote = {.size = e->size, .mtime_s = (int64_t)e->version};

	snprintf(remote.etag, sizeof(remote.etag), "\"%" PRIu64 "%.*s\"", e->version,
	        (int)PS_MIN(e->rewritten, 9u), "rrrrrrrrr");
	return remote;
}

/* lock held */
static struct ps_names_entry *find(struct ps_names_origin *o, const char *path)
{
	for (int i = 0; i < TEST_NAMES; i++)
		if (strcmp(o->entries[i].path, path) == 0)
			return &o->entries[i];
	return NULL;
}

void ps_names_origin_set(struct ps_names_origin *o, const char *path, uint64_t size, uint64_t version)
{
	PS_LOCK_SCOPE(&o->lock);
	struct ps_names_entry *e = find(o, path);

	if (!e)
		e = find(o, "");
	if (!e)
		abort();
	*e = (struct ps_names_entry){.size = size, .version = version};
	if (size != PS_SIZE_UNKNOWN)
		snprintf(e->path, sizeof(e->path), "%s", path);
}

/* File number i of those that list_many adds. */
static struct ps_names_entry one_of_many(int i)
{
	struct ps_names_entry e = {.version = 1, .size = 1000};

	snprintf(e.path, sizeof(e.path), "many/%07d.tar.gz", i);
	return e;
}

static int names_list(
        struct ps_origin *origin, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_names_origin *o = (struct ps_names_origin *)origin;
	int n = 0;

	*err = (struct ps_error){0};
	atomic_fetch_add(&o->nlists, 1);
	int nmany = (int)atomic_load(&o->list_many);
	for (int i = 0; i <= TEST_NAMES + nmany; i++) {
		struct ps_names_entry e = {0};
		char url[128];

		while (atomic_load(&o->list_stalls) && !atomic_load(stop))
			nap();
		if (atomic_load(stop))
			return ps_error_set(err, ECANCELED, "stopped");
		if (n == atomic_load(&o->list_fails_at))
			return ps_error_set(err, atomic_load(&o->list_errno), "as the test wants");
		if (i < TEST_NAMES) {
			PS_LOCK_SCOPE(&o->lock);
			e = o->entries[i];
		} else if (i > TEST_NAMES) {
			e = one_of_many(i - TEST_NAMES - 1);
		}
		if (!e.path[0] || e.unlisted)
			continue;
		snprintf(url, sizeof(url), "http://names/%s%s",
		        atomic_load(&o->list_elsewhere) ? "elsewhere/" : "", e.path);
		struct ps_listed listed = {.path = e.path,
		        .url = url,
		        .remote = atomic_load(&o->list_sizes) ? remote_of(&e) : PS_REMOTE_UNKNOWN};
		listed.checksum = e.checksum[0] ? e.checksum : NULL;
		if (atomic_load(&o->list_no_etags))
			listed.remote.etag[0] = '\0';
		if (atomic_load(&o->list_no_dates))
			listed.remote.mtime_s = -1;
		listed.unread = e.unread;
		int rc = fn(arg, &listed);
		if (rc < 0)
			return ps_error_set(err, -rc, "the caller's error");
		n++;
	}
	return 0;
}

static int look_up(struct ps_names_origin *o, const char *url, struct ps_remote *ret, unsigned *ret_rewritten,
        struct ps_error *err)
{
	PS_LOCK_SCOPE(&o->lock);
	struct ps_names_entry *e = find(o, url + strlen("http://names/"));

	if (!e || e->gone)
		return ps_error_set(err, ENOENT, "%s: 404", url);
	*ret = remote_of(e);
	*ret_rewritten = e->rewritten;
	return 0;
}

static void serve_get(struct ps_names_origin *o, struct ps_origin_get *get, struct ps_error *err)
{
	unsigned rewritten;
	size_t at = 0;

	if (look_up(o, get->url, &get->seen, &rewritten, err) < 0)
		return;
	if (atomic_load(&o->etag_changes))
		snprintf(get->seen.etag, sizeof(get->seen.etag), "\"%u\"", o->nserved++);
	if (!ps_remote_same_version(&get->expect, &get->seen)) {
		ps_error_set(err, ESTALE, "%s: 412", get->url);
		return;
	}
	for (int i = 0; i < get->niov; i++)
		for (size_t k = 0; k < get->iov[i].iov_len; k++, at++)
			((uint8_t *)get->iov[i].iov_base)[k] =
			        (uint8_t)(ps_pattern_byte(get->offset + at) + (uint64_t)get->seen.mtime_s +
			                  rewritten);
	get->progress(get, at);
	get->nbytes_done = get->wire_nbytes = at;
}

/* False: the job stalls. */
static bool serve(struct ps_names_origin *o, struct job *job, bool cancelled)
{
	struct ps_error err = {0};
	int head_errno = atomic_load(&o->head_errno);
	unsigned rewritten;

	if (!cancelled && job->get && atomic_load(&o->gets_stall))
		return false;

	if (!cancelled && job->head && atomic_load(&o->heads_stall))
		return false;
	if (cancelled)
		ps_error_set(&err, ECANCELED, "cancelled");
	else if (job->head && head_errno)
		ps_error_set(&err, head_errno, "as the test wants");
	err.retryable = err.err == head_errno;
	err.http_status = err.err == head_errno ? atomic_load(&o->head_status) : 0;
	err.retry_after_ms = err.err ? atomic_load(&o->head_retry_after_ms) : 0;
	int get_errno = cancelled || !job->get ? 0 : atomic_load(&o->get_errno);
	if (get_errno) {
		ps_error_set(&err, get_errno, "as the test wants");
		int status = atomic_load(&o->get_status);
		err.http_status = status ? status : get_errno == EACCES ? 403 : 0;
	}
	if (job->get) {
		job->get->nbytes_done = job->get->wire_nbytes = 0;
		if (!err.err)
			serve_get(o, job->get, &err);
		job->get->done(job->get, &err);
	} else {
		if (!err.err)
			look_up(o, job->head->url, &job->head->seen, &rewritten, &err);
		job->head->done(job->head, &err);
	}
	free(job);
	return true;
}

static void *main_loop(void *arg)
{
	struct ps_names_origin *o = arg;
	struct impl *impl = o->impl;

	for (;;) {
		struct ps_list batch;
		bool aborted;

		ps_list_init(&batch);
		{
			PS_LOCK_SCOPE(&o->lock);
			if (ps_list_empty(&impl->jobs) && impl->stop)
				return NULL;
			ps_list_splice(&batch, &impl->jobs);
			aborted = impl->aborted;
		}
		for (struct ps_list *l = batch.next, *next; l != &batch; l = next) {
			struct job *job = PS_CONTAINER_OF(l, struct job, link);

			next = l->next;
			ps_list_remove(l);
			if (!serve(o, job, aborted)) {
				PS_LOCK_SCOPE(&o->lock);
				ps_list_append(&impl->jobs, &job->link);
			}
		}
		nap();
	}
}

static void submit(struct ps_names_origin *o, struct ps_origin_get *get, struct ps_origin_head *head)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		abort();
	job->get = get;
	job->head = head;
	atomic_fetch_add(get ? &o->ngets : &o->nheads, 1);
	PS_LOCK_SCOPE(&o->lock);
	ps_list_append(&((struct impl *)o->impl)->jobs, &job->link);
}

static void names_get(struct ps_origin *origin, struct ps_origin_get *get)
{
	submit((struct ps_names_origin *)origin, get, NULL);
}

static void names_head(struct ps_origin *origin, struct ps_origin_head *head)
{
	submit((struct ps_names_origin *)origin, NULL, head);
}

static void names_cancel(struct ps_origin *origin, struct ps_origin_get *get)
{
	(void)origin, (void)get; /* only abort, or gets_stall that becomes false, ends a stall */
}

static void names_abort(struct ps_origin *origin)
{
	struct ps_names_origin *o = (struct ps_names_origin *)origin;

	PS_LOCK_SCOPE(&o->lock);
	((struct impl *)o->impl)->aborted = true;
}

static void names_close(struct ps_origin *origin)
{
	struct ps_names_origin *o = (struct ps_names_origin *)origin;
	struct impl *impl = o->impl;
	{
		PS_LOCK_SCOPE(&o->lock);
		impl->stop = impl->aborted = true;
	}
	pthread_join(impl->thread, NULL);
	pthread_mutex_destroy(&o->lock);
	free(impl);
	free(o);
}

static const struct ps_origin_ops names_ops = {
        .name = "names",
        .list = names_list,
        .head = names_head,
        .get = names_get,
        .cancel = names_cancel,
        .abort = names_abort,
        .close = names_close,
};

struct ps_names_origin *ps_names_origin_new(void)
{
	struct ps_names_origin *o = calloc(1, sizeof(*o));
	struct impl *impl = calloc(1, sizeof(*impl));

	if (!o || !impl)
		abort();
	o->origin.ops = &names_ops;
	o->impl = impl;
	atomic_store(&o->list_sizes, true);
	atomic_store(&o->list_fails_at, -1);
	atomic_store(&o->list_errno, EHOSTUNREACH);
	ps_list_init(&impl->jobs);
	pthread_mutex_init(&o->lock, NULL);
	if (pthread_create(&impl->thread, NULL, main_loop, o) != 0)
		abort();
	return o;
}
