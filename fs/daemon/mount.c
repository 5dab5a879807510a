#include "daemon/daemon_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/stats.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "daemon/daemon.h"
#include "base/progress.h"
#include "fuse/fuse.h"

#define DEVICE_MAX_NBYTES 2000 /* mount(2) takes a page */
#define MISSING_WAIT_MS 1000

static void detach_all(struct ps_mount *m)
{
	for (size_t i = 0; i < m->nsources; i++)
		ps_dataset_detach(ps_steal_ptr(&m->sources[i].dataset));
}

static void free_all(struct ps_mount *m)
{
	for (size_t i = 0; m->options && i < m->nsources; i++)
		ps_mount_options_fini(&m->options[i]);
	free(m->options);
	free(m->sources);
	free(m->device);
	ps_request_fini(&m->request);
	ps_given_fini(&m->warnings);
	free(m);
}

/* Checks for listed files that are missing at the origin. They are logged in any case; the mounting process
 * also gets a warning if the check reports them soon. */
static int look_for_missing(struct ps_mount *m, size_t i, const _Atomic bool *cancelled, struct ps_error *err)
{
	bool fail = m->options[i].missing == PS_MISSING_FAIL;
	char text[PS_ERROR_TEXT_LEN];
	/* No wait for owners: an owner is a program that waits for its first batch. */
	uint64_t wait_ms = fail ? UINT64_MAX : m->request.view[0] ? 0 : MISSING_WAIT_MS;
	int n = ps_dataset_missing(m->sources[i].dataset, wait_ms, cancelled, text);

	if (n == -ECANCELED)
		return ps_error_set(
		        err, ECANCELED, "%s: interrupted", ps_dataset_source(m->sources[i].dataset));
	if (n > 0 && fail)
		return ps_error_set(err, ENOENT, "%s: %s", ps_dataset_source(m->sources[i].dataset), text);
	return n > 0 ? ps_given_add(&m->warnings, "warning", text, err) : 0;
}

static void listed(void *arg, const char *source, uint64_t nfiles)
{
	char what[128];

	snprintf(what, sizeof(what), "listing %.100s", source);
	ps_progress_count(arg, what, nfiles);
}

static int attach(struct ps_mount *m, struct ps_cache *cache, size_t i, bool resumes,
        const _Atomic bool *cancelled, struct ps_error *err)
{
	const struct ps_source_request *source = &m->request.sources[i];
	struct ps_dataset_options options;
	struct ps_progress progress;
	char text[PS_ERROR_TEXT_LEN];

	m->sources[i].name = source->name;
	int rc = ps_request_options(&m->request, source, &m->options[i], err);
	if (rc == 0)
		rc = ps_request_same_place(source, err);
	if (rc < 0)
		return rc;
	ps_mount_options_dataset(&m->options[i], &options);
	options.origin.http.env = (const char *const *)m->request.env;
	options.cancelled = cancelled;
	options.resumes = resumes;
	/* Shows nothing once the daemon is in the background, since its stderr is then not a terminal. */
	ps_progress_init(&progress, true, 0);
	options.listed = listed;
	options.listed_arg = &progress;
	rc = ps_dataset_attach(cache, source->source, &options, &m->sources[i].dataset, err);
	ps_progress_end(&progress);
	if (rc < 0) {
		m->sources[i].dataset = NULL;
		return source->name[0] ? ps_error_prefix(err, rc, "%s", source->name) : rc;
	}
	m->sources[i].root = ps_dataset_root(m->sources[i].dataset);
	if (options.revalidate_ms && ps_dataset_revalidate_ms(m->sources[i].dataset) != options.revalidate_ms)
		ps_log_warning("mount: %s: the --revalidate of another mount of the same source applies",
		        ps_dataset_source(m->sources[i].dataset));
	if (resumes) /* the first daemon has given all warnings */
		return 0;
	rc = look_for_missing(m, i, cancelled, err);
	if (rc == 0 && ps_dataset_versionless(m->sources[i].dataset))
		rc = ps_given_add(&m->warnings, "warning", PS_VERSIONLESS_TEXT, err);
	if (rc == 0 && ps_dataset_unranged(m->sources[i].dataset))
		rc = ps_given_add(&m->warnings, "warning", PS_UNRANGED_TEXT, err);
	if (rc == 0 && ps_dataset_unmatched(m->sources[i].dataset, text))
		rc = ps_given_add(&m->warnings, "warning", text, err);
	return rc;
}

static char *device_text(const struct ps_mount *m)
{
	ps_autostrbuf struct ps_strbuf b = {0};

	for (size_t i = 0; i < m->nsources; i++) {
		const char *name = m->sources[i].name, *source = ps_dataset_source(m->sources[i].dataset);

		if (i > 0 && b.len + strlen(name) + strlen(source) > DEVICE_MAX_NBYTES) {
			ps_strbuf_add(&b, " ...");
			break;
		}
		ps_strbuf_addf(&b, "%s%s%s%s", i ? " " : "", name, *name ? "=" : "", source);
	}
	return ps_strbuf_take(&b);
}

static json_t *all_mounts(void *arg)
{
	struct ps_mount *m = arg;

	/* Not under the daemon's lock, which ps_daemon_mounts() takes: it would hold up all mounts. So the others have
	 * what was counted when they were asked last. */
	for (size_t i = 0; i < m->nsources; i++)
		ps_dataset_count(m->sources[i].dataset);
	return m->daemon ? ps_daemon_mounts(m->daemon, m) : json_array();
}

int ps_mount_new(struct ps_cache *cache, struct ps_mount_request *request, int state_fd,
        const _Atomic bool *cancelled, struct ps_mount **ret, struct ps_error *err)
{
	struct ps_mount *m = calloc(1, sizeof(*m));
	ps_autofd int state = state_fd;
	int rc = 0;

	if (!m) {
		ps_request_fini(request);
		return ps_no_memory(err);
	}
	m->request = *request;
	*request = (struct ps_mount_request){0};
	ps_list_init(&m->link);
	m->nsources = m->request.nsources;
	m->sources = calloc(m->nsources, sizeof(*m->sources));
	m->options = calloc(m->nsources, sizeof(*m->options));
	if (!m->sources || !m->options)
		rc = ps_no_memory(err);
	for (size_t i = 0; rc == 0 && i < m->nsources; i++)
		rc = attach(m, cache, i, state >= 0, cancelled, err);
	if (rc == 0 && !(m->device = device_text(m)))
		rc = ps_no_memory(err);
	if (rc == 0)
		m->fs = ps_fs_new(cache, m->sources, m->nsources, m->options, m->request.mountpoint,
		        ps_steal_fd(&state), all_mounts, m);
	if (rc == 0 && !m->fs)
		rc = ps_no_memory(err);
	if (rc < 0) {
		if (m->sources)
			detach_all(m);
		free_all(m);
		return rc;
	}
	*ret = m;
	return 0;
}

/* {"mountpoint", "mounted_at", "source", "files", ...; "sources" if they have names} */
static json_t *mount_json(struct ps_mount *m)
{
	json_t *doc = json_object(), *sources = json_array();
	bool named = m->sources[0].name[0];
	char device[24];

	for (size_t i = 0; i < m->nsources; i++) {
		json_t *one = ps_dataset_stats(m->sources[i].dataset);

		ps_figures_add(PS_SECTION_mount, doc, one, named);
		json_object_set_new(one, "name", ps_json_lossy(m->sources[i].name));
		json_array_append_new(sources, one);
	}
	json_object_set_new(doc, "source", ps_json_lossy(m->device));
	if (m->owned)
		json_object_set_new(doc, "owners", json_integer((json_int_t)ps_owned_count(m)));
	snprintf(device, sizeof(device), "%u:%u", major(m->session.dev), minor(m->session.dev));
	json_object_set_new(doc, "device", json_string(device));
	if (named)
		json_object_set(doc, "sources", sources);
	json_decref(sources);
	ps_stats_add_mount(m->fs, doc);
	return doc;
}

/* Mounts of the daemon ----------------------------------------------------------------------------------- */

json_t *ps_daemon_mounts(struct ps_daemon *d, struct ps_mount *first)
{
	json_t *list = json_array();

	PS_LOCK_SCOPE(&d->lock);
	if (first && !ps_list_empty(&first->link))
		json_array_append_new(list, mount_json(first));
	for (struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next) {
		struct ps_mount *m = PS_CONTAINER_OF(l, struct ps_mount, link);

		if (m != first)
			json_array_append_new(list, mount_json(m));
	}
	return list;
}

int ps_daemon_start_mount(
        struct ps_daemon *d, struct ps_mount *m, int fd, struct ps_mount_id id, struct ps_error *err)
{
	m->daemon = d;
	if (d->keeper >= 0)
		ps_fs_set_kept(m->fs);
	if (d->helper)
		ps_fs_set_backing(m->fs, &ps_helper_backing, d->helper);
	{
		/* Under the lock: a stop that comes now must find the mount on the list. */
		PS_LOCK_SCOPE(&d->lock);
		if (d->stopping) {
			close(fd);
			return ps_error_set(err, ECANCELED, "the daemon is stopping");
		}
		m->id = id;
		m->here = ps_mount_id_same(id, ps_mounts_id(m->request.mountpoint));
		int rc = ps_session_start(&m->session, m->fs, fd, id.dev, err);
		if (rc < 0)
			return rc;
		ps_list_append(&d->mounts, &m->link);
	}
	ps_session_settle(&m->session);
	ps_autofree char *advice = ps_session_merge_advice(&m->session);
	if (advice) {
		ps_log_warning("mount: %s: %s", m->request.mountpoint, advice);
		(void)ps_given_add(&m->warnings, "warning", advice, NULL);
	}
	return 0;
}

void ps_daemon_end_mount(struct ps_daemon *d, struct ps_mount *m)
{
	ps_autofree char *mountpoint = strdup(m->request.mountpoint);
	bool served = m->session.started;

	if (served) {
		ps_session_await(&m->session);
		while (atomic_load(&d->leaving)) /* the mount goes on without this process */
			pause();
		ps_keeper_drop(d, m);
		/* After an abort the dead mount is still in the namespace. */
		if (m->here)
			ps_helper_detach(d->helper, m->request.mountpoint, m->id, ps_session_fd(&m->session));
	}
	{
		PS_LOCK_SCOPE(&d->lock);
		ps_list_remove(&m->link);
		ps_owned_end(d, m);
	}
	bool leaks = served && ps_session_finish(&m->session) == -EDEADLK;
	if (leaks) {
		/* Nothing can be freed; the process exits without closing the cache, which survives
		 * that. */
		ps_log_error("mount: %s: reads do not end; it stays in memory", m->request.mountpoint);
		atomic_store(&d->leaked, true);
	} else {
		detach_all(m);
	}
	{
		PS_LOCK_SCOPE(&d->lock);
		pthread_cond_broadcast(&d->ended);
	}
	if (served && mountpoint)
		ps_log_info("mount: %s: unmounted", mountpoint);
	if (leaks)
		return;
	/* A late lookup may still wait for a dataset that another mount keeps. */
	while (!ps_fs_drain(m->fs, 1000))
		ps_log_debug("mount: %s: waiting for the last answers", m->request.mountpoint);
	ps_session_free(&m->session);
	ps_stats_mount_ends(m->fs);
	ps_fs_free(m->fs);
	free_all(m);
}

static bool serves_device(struct ps_daemon *d, dev_t dev)
{
	for (struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next)
		if (PS_CONTAINER_OF(l, struct ps_mount, link)->id.dev == dev)
			return true;
	return false;
}

unsigned ps_daemon_await_end(struct ps_daemon *d, dev_t dev)
{
	unsigned left = d->options->serve; /* then the daemon stays, as if there were one more mount */

	PS_LOCK_SCOPE(&d->lock);
	while (serves_device(d, dev))
		pthread_cond_wait(&d->ended, &d->lock);
	for (struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next)
		left++;
	return left;
}

/* Threads and their end ---------------------------------------------------------------------------------- */

void ps_daemon_wake(struct ps_daemon *d)
{
	uint64_t one = 1;

	if (write(d->wake_fd, &one, sizeof(one)) < 0) {
		/* wake_fd is readable already. */
	}
}

void ps_daemon_cancel(struct ps_daemon *d, _Atomic bool *cancelled)
{
	atomic_store(cancelled, true);
	ps_cache_wake(d->cache);
	pthread_cond_broadcast(&d->ended);
}

int ps_daemon_thread(struct ps_daemon *d, void *(*fn)(void *), void *arg)
{
	return ps_thread_group_start(&d->threads, fn, arg);
}

static void thread_leaves(void *arg)
{
	ps_daemon_wake(arg);
}

void ps_daemon_thread_ends(struct ps_daemon *d)
{
	ps_thread_group_leave(&d->threads, thread_leaves, d);
}
