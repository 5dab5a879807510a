/* Mounts that last as long as processes, their owners: equal requests join one mount, which is unmounted
 * when its last owner ends.
 *
 *   owned     mount       owners    state
 *   listed    NULL        none      one thread makes the mount; equal requests wait for it
 *   listed    a mount     some      served; more may join
 *   unlisted  a mount     none      detached; an equal request makes another mount, at another place
 *   unlisted  NULL        none      the mount could not be made; waiting threads return its error
 *   freed                           the mount has ended or was not made, and no thread waits any more
 *
 * An owner is a socket whose other end the process and its forks have: the kernel closes that end with the
 * last of them, however they end. All changes are made with the daemon's lock held, so a last owner that
 * ends and a new one that joins are ordered. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/secret.h"
#include "base/strbuf.h"
#include "daemon/daemon_private.h"
#include "fuse/fuse.h"

#define EVENTS_MAX 64

struct owner {
	struct ps_list link; /* ps_owned.owners */
	uint64_t id;         /* never reused, unlike the number of a descriptor */
	int fd;
};

struct ps_owned {
	struct ps_list link; /* daemon.owned */
	char *key;           /* secret */
	struct ps_mount *mount;
	struct ps_list owners;
	size_t nowners;
	unsigned nwaiters; /* threads that wait until `mount` or `failed` is set */
	bool failed;
	/* if failed; empty: the request was cancelled, which is not an error for the waiters */
	struct ps_error error;
};

/* The key is equal for requests that one mount can serve: equal view of the file system, names, data,
 * credentials and mount options. */
static int key_of(struct ps_cache *cache, const struct ps_mount_request *r, char **ret, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	int rc = 0;

	ps_strbuf_add(&b, r->view);
	for (size_t i = 0; i < r->given.n; i++) {
		const struct ps_opt *opt = ps_options_find(r->given.v[i].name);

		if (opt && opt->scope != PS_SCOPE_DAEMON)
			ps_strbuf_addf(
			        &b, "\n%s=%s", opt->name, r->given.v[i].value ? r->given.v[i].value : "");
	}
	for (size_t i = 0; rc == 0 && i < r->nsources; i++) {
		struct ps_dataset_options options;
		struct ps_mount_options o;
		char key[PS_DATASET_KEY_LEN];

		rc = ps_request_options(r, &r->sources[i], &o, err);
		if (rc == 0)
			rc = ps_request_same_place(&r->sources[i], err);
		if (rc == 0) {
			ps_mount_options_dataset(&o, &options);
			options.origin.http.env = (const char *const *)r->env;
			rc = ps_dataset_key(cache, r->sources[i].source, &options, key, err);
		}
		ps_mount_options_fini(&o);
		if (rc == 0)
			ps_strbuf_addf(&b, "\n%s %s", r->sources[i].name, key);
	}
	bool failed = b.failed;
	*ret = rc == 0 && !failed ? strdup(ps_strbuf_peek(&b)) : NULL;
	if (b.s)
		explicit_bzero(b.s, b.len);
	if (rc < 0)
		return rc;
	return *ret ? 0 : ps_no_memory(err);
}

/* Watches the owner's socket from now on. A descriptor that epoll cannot watch (-EPERM) is a file, and
 * would be an owner for ever. id: the owner's at the keeper, which has the owner already; 0: a new owner. The
 * lock is held. */
static int watch_owner(struct ps_daemon *d, struct ps_owned *owned, int *fd, uint64_t id)
{
	struct owner *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	*o = (struct owner){.id = id ? id : ++d->owner_id, .fd = *fd};
	struct epoll_event event = {.events = EPOLLRDHUP, .data.u64 = o->id};
	if (epoll_ctl(d->owners_fd, EPOLL_CTL_ADD, *fd, &event) < 0) {
		int rc = -errno;

		free(o);
		return rc;
	}
	ps_steal_fd(fd);
	ps_list_append(&owned->owners, &o->link);
	owned->nowners++;
	if (!id)
		ps_keeper_new_owner(d, owned->mount, o->id, o->fd);
	return 0;
}

/* Also sends the owner the mountpoint. The lock is held. */
static int add_owner(struct ps_daemon *d, struct ps_owned *owned, int *fd)
{
	const char *where = owned->mount->request.mountpoint;

	if (send(*fd, where, strlen(where) + 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EPIPE &&
	        errno != ECONNRESET)
		return -errno;
	return watch_owner(d, owned, fd, 0);
}

int ps_owned_keep(struct ps_daemon *d, const struct ps_mount *m)
{
	int rc = 0;

	for (struct ps_list *l = m->owned ? m->owned->owners.next : NULL;
	        rc == 0 && l && l != &m->owned->owners; l = l->next) {
		const struct owner *o = PS_CONTAINER_OF(l, struct owner, link);

		rc = ps_keeper_give_owner(d, m, o->id, o->fd);
	}
	return rc;
}

/* The lock is held. */
static void remove_owner(struct ps_daemon *d, struct ps_owned *owned, struct owner *o)
{
	epoll_ctl(d->owners_fd, EPOLL_CTL_DEL, o->fd, NULL);
	if (owned->mount)
		ps_keeper_drop_owner(d, owned->mount, o->id);
	close(o->fd);
	ps_list_remove(&o->link);
	owned->nowners--;
	free(o);
}

static struct ps_owned *find(struct ps_daemon *d, const char *key)
{
	for (struct ps_list *l = d->owned.next; l != &d->owned; l = l->next) {
		struct ps_owned *owned = PS_CONTAINER_OF(l, struct ps_owned, link);

		if (strcmp(owned->key, key) == 0)
			return owned;
	}
	return NULL;
}

/* Takes over the key, also on failure. */
static struct ps_owned *owned_new(char *key)
{
	struct ps_owned *owned = key ? calloc(1, sizeof(*owned)) : NULL;

	if (!owned) {
		ps_secret_free(key);
		return NULL;
	}
	owned->key = key;
	ps_list_init(&owned->link);
	ps_list_init(&owned->owners);
	return owned;
}

/* Unlists it, and frees it unless threads wait for it: then the last of them does. */
static void owned_free(struct ps_owned *owned)
{
	ps_list_remove(&owned->link);
	if (owned->nwaiters)
		return;
	ps_secret_free(owned->key);
	free(owned);
}

/* Waits while another thread makes the mount, until something has changed. If that thread failed, returns its
 * error. `owned` may be freed by then. The lock is held. */
static int await_maker(struct ps_daemon *d, struct ps_owned *owned, struct ps_error *err)
{
	owned->nwaiters++;
	pthread_cond_wait(&d->ended, &d->lock);
	owned->nwaiters--;
	/* A mount whose last owner has ended is not on the list, but frees it when it ends. */
	if (!ps_list_empty(&owned->link) || owned->mount)
		return 0;
	/* The mount failed, or it was made and has ended. */
	int rc = owned->failed ? -owned->error.err : 0;

	if (rc < 0)
		*err = owned->error;
	owned_free(owned);
	return rc;
}

int ps_owned_enter(struct ps_daemon *d, const struct ps_mount_request *request, int *owner,
        const _Atomic bool *cancelled, struct ps_owned **ret_new, char **ret_mountpoint, struct ps_error *err)
{
	char *key = NULL;
	int rc = key_of(d->cache, request, &key, err);

	if (rc < 0)
		return rc;
	PS_LOCK_SCOPE(&d->lock);
	struct ps_owned *found = NULL;
	while (rc == 0 && (found = find(d, key)) &&
	        (!found->mount || atomic_load(&found->mount->session.ended)) && !atomic_load(cancelled) &&
	        !d->stopping)
		rc = await_maker(d, found, err);
	if (rc < 0) {
		ps_secret_free(key);
		return rc;
	}
	if (atomic_load(cancelled) || d->stopping) {
		ps_secret_free(key);
		return ps_error_set(err, ECANCELED, d->stopping ? "the daemon is stopping" : "interrupted");
	}
	if (found) {
		ps_secret_free(key);
		*ret_mountpoint = strdup(found->mount->request.mountpoint);
		rc = *ret_mountpoint ? add_owner(d, found, owner) : -ENOMEM;
		if (rc == 0)
			return 0;
		free(*ret_mountpoint);
		*ret_mountpoint = NULL;
		return ps_error_set(err, -rc, "option owner: %s", strerror(-rc));
	}
	struct ps_owned *owned = owned_new(key);
	if (!owned)
		return ps_no_memory(err);
	ps_list_append(&d->owned, &owned->link);
	*ret_new = owned;
	return 0;
}

/* The lock is held. */
static void fail(struct ps_daemon *d, struct ps_owned *owned, const struct ps_error *err, bool called_off)
{
	owned->mount = NULL;
	owned->failed = true;
	if (!called_off)
		owned->error = *err;
	owned_free(owned);
	pthread_cond_broadcast(&d->ended);
}

void ps_owned_failed(struct ps_daemon *d, struct ps_owned *owned, const struct ps_error *err, bool called_off)
{
	if (!owned)
		return;
	PS_LOCK_SCOPE(&d->lock);
	fail(d, owned, err, called_off);
}

int ps_owned_set_serving(
        struct ps_daemon *d, struct ps_owned *owned, struct ps_mount *m, int *owner, struct ps_error *err)
{
	PS_LOCK_SCOPE(&d->lock);
	owned->mount = m;
	int rc = add_owner(d, owned, owner);
	if (rc < 0) {
		ps_error_set(err, -rc, "option owner: %s", strerror(-rc));
		fail(d, owned, err, true); /* not the waiters' error: another owner's socket may work */
		return rc;
	}
	m->owned = owned;
	pthread_cond_broadcast(&d->ended);
	return 0;
}

int ps_owned_restore(struct ps_daemon *d, struct ps_mount *m, int *fds, const uint64_t *ids, size_t n,
        struct ps_error *err)
{
	char *key = NULL;
	int rc = key_of(d->cache, &m->request, &key, err);
	struct ps_owned *owned = rc == 0 ? owned_new(key) : NULL;

	if (!owned)
		return rc < 0 ? rc : ps_no_memory(err);
	PS_LOCK_SCOPE(&d->lock);
	owned->mount = m;
	ps_list_append(&d->owned, &owned->link);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = watch_owner(d, owned, &fds[i], ids[i]);
	m->owned = owned;
	pthread_cond_broadcast(&d->ended);
	return rc < 0 ? ps_error_set(err, -rc, "its owners: %s", strerror(-rc)) : 0;
}

void ps_owned_end(struct ps_daemon *d, struct ps_mount *m)
{
	struct ps_owned *owned = ps_steal_ptr(&m->owned);

	if (!owned)
		return;
	while (!ps_list_empty(&owned->owners))
		remove_owner(d, owned, PS_CONTAINER_OF(owned->owners.next, struct owner, link));
	owned->mount = NULL;
	owned_free(owned);
	pthread_cond_broadcast(&d->ended);
}

size_t ps_owned_count(const struct ps_mount *m)
{
	return m->owned ? m->owned->nowners : 0;
}

struct ps_mounted ps_mounted_of(const struct ps_mount *m)
{
	if (!m->here)
		return (struct ps_mounted){.fuse_fd = -1};
	return (struct ps_mounted){.mountpoint = strdup(m->request.mountpoint),
	        .id = m->id,
	        .fuse_fd = fcntl(ps_session_fd(&m->session), F_DUPFD_CLOEXEC, 0)};
}

void ps_mounted_fini(struct ps_mounted *place)
{
	free(place->mountpoint);
	if (place->fuse_fd >= 0)
		close(place->fuse_fd);
}

/* Once the last owner has ended, no process can join the mount any more. A mount in our own mount namespace is
 * returned, to be detached without the lock; in another namespace only its session can be ended. The lock is
 * held. */
static struct ps_mounted owner_left(struct ps_daemon *d, uint64_t id)
{
	for (struct ps_list *l = d->owned.next; l != &d->owned; l = l->next) {
		struct ps_owned *owned = PS_CONTAINER_OF(l, struct ps_owned, link);

		for (struct ps_list *k = owned->owners.next; k != &owned->owners; k = k->next) {
			struct owner *o = PS_CONTAINER_OF(k, struct owner, link);

			if (o->id != id)
				continue;
			remove_owner(d, owned, o);
			if (owned->nowners)
				return (struct ps_mounted){0};
			ps_list_remove(&owned->link);
			pthread_cond_broadcast(&d->ended);
			ps_log_info("mount: %s: its last owner is gone", owned->mount->request.mountpoint);
			struct ps_mounted place = ps_mounted_of(owned->mount);
			owned->mount->ending = !place.mountpoint;
			return place;
		}
	}
	return (struct ps_mounted){0}; /* its mount has ended already */
}

/* Ends the session of a mount that cannot be unmounted: reads fail from now on. */
static void end_session(struct ps_daemon *d, struct ps_mount_id id)
{
	PS_LOCK_SCOPE(&d->lock);
	for (struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next) {
		struct ps_mount *m = PS_CONTAINER_OF(l, struct ps_mount, link);

		if (ps_mount_id_same(m->id, id))
			m->ending = true;
	}
}

void ps_owners_remove_gone(struct ps_daemon *d)
{
	struct epoll_event events[EVENTS_MAX];
	int n = epoll_wait(d->owners_fd, events, EVENTS_MAX, 0);

	for (int i = 0; i < n; i++) {
		struct ps_mounted place;

		pthread_mutex_lock(&d->lock);
		place = owner_left(d, events[i].data.u64);
		pthread_mutex_unlock(&d->lock);
		if (!place.mountpoint)
			continue;
		int rc = ps_helper_detach(d->helper, place.mountpoint, place.id, place.fuse_fd);
		if (rc < 0 && rc != -ENOENT) {
			ps_log_warning("mount: %s: cannot be unmounted: %s", place.mountpoint, strerror(-rc));
			end_session(d, place.id);
		}
		ps_mounted_fini(&place);
	}
}
