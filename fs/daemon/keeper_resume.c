/* Takes the mounts of an earlier daemon over. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "daemon/daemon_private.h"

#define ITEM_MS 10000 /* the keeper sends at once */
#define OWNERS_MAX 1024
#define PROGRESS_MS 1000

/* Takes a descriptor out of the items; -1: there is none of this kind. mount 0: items that belong to no
 * mount. */
static int take(struct ps_keeper_items *items, uint64_t mount, enum ps_keeper_kind kind)
{
	for (size_t i = 0; i < items->n; i++)
		if (items->v[i]->message.kind == kind && items->v[i]->message.mount == mount)
			return ps_steal_fd(&items->v[i]->fd);
	return -1;
}

/* Decodes the content of a memfd of ps_keeper_memfd(). -EPROTO, -ENOMEM. */
static int read_memfd(int fd, struct ps_given *ret)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size > PS_CONTROL_MAX_NBYTES)
		return -EPROTO;
	size_t n = (size_t)st.st_size;
	char *body = malloc(n + 1);
	int rc = !body ? -ENOMEM : pread(fd, body, n, 0) == (ssize_t)n ? 0 : -EPROTO;
	if (rc == 0)
		rc = ps_control_decode(body, n, ret);
	if (body)
		explicit_bzero(body, n);
	free(body);
	return rc;
}

int ps_keeper_receive_items(int sock, struct ps_keeper_items *items)
{
	for (;;) {
		struct ps_keeper_item *item = calloc(1, sizeof(*item));
		struct ps_keeper_item **v = reallocarray(items->v, items->n + 1, sizeof(*v));

		if (v)
			items->v = v;
		int rc = item && v ? ps_keeper_receive(sock, ITEM_MS, &item->message, &item->fd) : -ENOMEM;
		if (rc < 0 || item->message.kind == PS_KEEPER_DONE) {
			items->starts = rc < 0 ? 0 : item->message.starts;
			free(item);
			return rc;
		}
		items->v[items->n++] = item;
	}
}

int ps_keeper_set_up(struct ps_keeper_items *items, struct ps_mount_options *o, struct ps_error *err)
{
	ps_autofd int fd = take(items, 0, PS_KEEPER_SETUP);
	struct ps_given message = {0};
	int rc = read_memfd(fd, &message);

	if (rc < 0)
		return ps_error_set(err, -rc, "the daemon's options: %s", strerror(-rc));
	for (size_t i = 0; rc == 0 && i < message.n; i++) {
		const char *name = message.v[i].name, *value = message.v[i].value;

		if (strcmp(name, "cache-dir") == 0) {
			free(o->cache_dir);
			o->cache_dir = strdup(value);
			rc = o->cache_dir ? 0 : ps_no_memory(err);
		} else if (strcmp(name, "foreground") == 0) {
			o->foreground = true;
		} else if (strcmp(name, "serve") == 0) {
			o->serve = true;
		} else if (strcmp(name, "option") == 0) {
			const char *equals = strchr(value, '=');
			ps_autofree char *option =
			        equals ? strndup(value, (size_t)(equals - value)) : strdup(value);

			rc = option ? ps_options_set(o, option, equals ? equals + 1 : NULL, err)
			            : ps_no_memory(err);
		}
	}
	ps_given_fini(&message);
	return rc == 0 && !o->cache_dir ? ps_error_set(err, EPROTO, "the daemon's options: no cache") : rc;
}

int ps_keeper_take_lock(struct ps_keeper_items *items)
{
	int fd = take(items, 0, PS_KEEPER_LOCK);

	return fd < 0 ? 0 : fd;
}

/* Progress ----------------------------------------------------------------------------------------------- */

/* RocksDB does not say how far it has come while it opens. A slow disk shows in what was read from it. */
static uint64_t steps(const struct ps_daemon *d)
{
	struct rusage used = {0};

	getrusage(RUSAGE_SELF, &used);
	return (uint64_t)used.ru_inblock + (uint64_t)used.ru_oublock - atomic_load(&d->nresuming);
}

static void *progress_main(void *arg)
{
	struct ps_daemon *d = arg;

	/* Without the daemon's lock: it is held while the files of a mount are opened again. */
	for (uint64_t last = steps(d); atomic_load(&d->resuming);) {
		poll(NULL, 0, PROGRESS_MS);
		uint64_t now = steps(d);
		if (now != last)
			ps_keeper_progress(d);
		last = now;
	}
	return NULL;
}

int ps_keeper_progress_begin(struct ps_daemon *d)
{
	atomic_store(&d->resuming, true);
	int rc = ps_thread_start(&d->progress, "progress", progress_main, d);
	if (rc < 0)
		d->progress = 0;
	return rc;
}

void ps_keeper_progress_end(struct ps_daemon *d)
{
	atomic_store(&d->resuming, false);
	if (d->progress)
		pthread_join(d->progress, NULL);
}

/* One mount ---------------------------------------------------------------------------------------------- */

struct resume {
	struct ps_daemon *daemon;
	struct ps_keeper_message session;
	int session_fd, request_fd, state_fd, client;
	int owners[OWNERS_MAX];
	uint64_t owner_ids[OWNERS_MAX];
	size_t nowners;
};

static int new_mount(struct resume *r, struct ps_mount **ret, struct ps_error *err)
{
	struct ps_given message = {0};
	struct ps_mount_request request = {0};
	int rc = read_memfd(r->request_fd, &message);

	if (rc < 0)
		ps_error_set(err, -rc, "its request: %s", strerror(-rc));
	if (rc == 0)
		rc = ps_request_decode(&message, &request, err);
	ps_given_fini(&message);
	if (rc == 0 && (!request.mountpoint || r->state_fd < 0)) {
		ps_request_fini(&request);
		rc = ps_error_set(err, EPROTO, "the keeper has only a part of what it needs");
	}
	if (rc < 0)
		return rc;
	return ps_mount_new(
	        r->daemon->cache, &request, ps_steal_fd(&r->state_fd), &r->daemon->first_cancelled, ret, err);
}

static void count_resumed(struct ps_daemon *d)
{
	bool last;

	{
		PS_LOCK_SCOPE(&d->lock);
		last = atomic_fetch_sub(&d->nresuming, 1) == 1;
		if (last)
			atomic_store(&d->resuming, false);
	}
	if (!last)
		return;
	ps_keeper_serving(d);
	ps_daemon_wake(d);
}

static void drop_unserved(struct resume *r, const struct ps_error *err)
{
	struct ps_daemon *d = r->daemon;
	struct ps_mount gone = {.kept = r->session.mount};

	ps_log_error("mount: %s: cannot be served again: %s", r->session.text, err->text);
	if (r->session_fd >= 0)
		close(ps_steal_fd(&r->session_fd));
	ps_keeper_drop(d, &gone);
}

static void *resume_main(void *arg)
{
	struct resume *r = arg;
	struct ps_daemon *d = r->daemon;
	struct ps_error err = {0};
	struct ps_mount *m = NULL;

	pthread_setname_np(pthread_self(), "mount");
	int rc = new_mount(r, &m, &err);
	if (rc == 0) {
		m->kept = r->session.mount;
		rc = ps_daemon_start_mount(d, m, ps_steal_fd(&r->session_fd), r->session.id, &err);
	}
	/* Owners that ended meanwhile are noticed now. */
	if (rc == 0 && r->nowners > 0)
		rc = ps_owned_restore(d, m, r->owners, r->owner_ids, r->nowners, &err);
	for (size_t i = 0; i < r->nowners; i++)
		if (r->owners[i] >= 0)
			close(r->owners[i]);
	if (rc == 0) {
		ps_session_now_answers(&m->session);
		ps_log_info("mount: %s on %s: served again", m->device, m->request.mountpoint);
	} else {
		drop_unserved(r, &err);
		if (m && m->session.started)
			ps_session_end(&m->session);
	}
	count_resumed(d);
	/* Only now, since this waits if the mountpoint is in a folder on a dead server: the other mounts are
	 * served meanwhile. */
	if (rc < 0 && r->session.here)
		(void)ps_helper_detach(
		        d->helper, r->session.text, r->session.id, m ? ps_session_fd(&m->session) : -1);
	if (m)
		ps_daemon_end_mount(d, m);
	if (r->client >= 0)
		ps_client_say_ended(r->client);
	if (r->request_fd >= 0)
		close(r->request_fd);
	if (r->state_fd >= 0)
		close(r->state_fd);
	free(r);
	ps_daemon_thread_ends(d);
	return NULL;
}

static struct resume *resume_new(struct ps_daemon *d, const struct ps_keeper_item *session)
{
	struct ps_keeper_items *items = d->resumed;
	uint64_t number = session->message.mount;
	struct resume *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	*r = (struct resume){.daemon = d,
	        .session = session->message,
	        .session_fd = take(items, number, PS_KEEPER_SESSION),
	        .request_fd = take(items, number, PS_KEEPER_REQUEST),
	        .state_fd = take(items, number, PS_KEEPER_STATE),
	        .client = take(items, number, PS_KEEPER_CLIENT)};
	for (size_t i = 0; i < items->n && r->nowners < OWNERS_MAX; i++) {
		struct ps_keeper_item *item = items->v[i];

		if (item->message.kind != PS_KEEPER_OWNER || item->message.mount != number)
			continue;
		d->owner_id = PS_MAX(d->owner_id, item->message.owner);
		r->owner_ids[r->nowners] = item->message.owner;
		r->owners[r->nowners++] = ps_steal_fd(&item->fd);
	}
	return r;
}

int ps_keeper_resume(struct ps_daemon *d)
{
	struct ps_keeper_items *items = d->resumed;
	int rc = 0;

	ps_stats_set_restarts(items->starts);
	{
		PS_LOCK_SCOPE(&d->lock);
		for (size_t i = 0; i < items->n; i++) {
			d->nresuming += items->v[i]->message.kind == PS_KEEPER_SESSION;
			d->kept_number = PS_MAX(d->kept_number, items->v[i]->message.mount);
		}
	}
	for (size_t i = 0; rc == 0 && i < items->n; i++) {
		if (items->v[i]->message.kind != PS_KEEPER_SESSION)
			continue;
		struct resume *r = resume_new(d, items->v[i]);
		rc = r ? ps_daemon_thread(d, resume_main, r) : -ENOMEM;
	}
	return rc;
}
