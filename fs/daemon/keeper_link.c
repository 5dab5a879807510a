/* The daemon's connection to its keeper: gives the keeper what the next daemon needs. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "daemon/daemon_private.h"

#define DONE_MS 5000
#define SEND_MS 1000
#define SURELY_MS 10000
#define AGAIN_MS 50

/* Sends a message. Waits once for a keeper that does not read, and not again until it reads. The keeper_lock
 * is held, and maybe the daemon's lock, too. */
static int send_locked(struct ps_daemon *d, const struct ps_keeper_message *m, int fd)
{
	int rc = d->keeper >= 0 ? ps_keeper_send(d->keeper, m, fd, true) : -EPIPE;

	if (rc == -EAGAIN && !d->keeper_stuck) {
		struct pollfd p = {.fd = d->keeper, .events = POLLOUT};

		(void)poll(&p, 1, SEND_MS);
		rc = ps_keeper_send(d->keeper, m, fd, true);
		if (rc == -EAGAIN)
			ps_log_warning("keeper: the keeper does not answer");
	}
	d->keeper_stuck = rc == -EAGAIN;
	if (rc == -EPIPE && d->keeper >= 0) {
		ps_log_warning("keeper: the keeper has exited: mounts will end with this daemon");
		close(ps_steal_fd(&d->keeper));
	}
	return rc;
}

static int send_one(struct ps_daemon *d, const struct ps_keeper_message *m, int fd)
{
	PS_LOCK_SCOPE(&d->keeper_lock);
	return send_locked(d, m, fd);
}

/* Tries again for a while. Call without the daemon's lock. */
static int send_surely(struct ps_daemon *d, enum ps_keeper_kind kind, uint64_t mount)
{
	const struct ps_keeper_message m = {.kind = kind, .mount = mount};
	int rc = send_one(d, &m, -1);

	for (int ms = 0; rc < 0 && rc != -EPIPE && ms < SURELY_MS; ms += AGAIN_MS) {
		poll(NULL, 0, AGAIN_MS);
		rc = send_one(d, &m, -1);
	}
	return rc;
}

static int send_kind(struct ps_daemon *d, enum ps_keeper_kind kind, uint64_t mount, int fd)
{
	return send_one(d, &(struct ps_keeper_message){.kind = kind, .mount = mount}, fd);
}

void ps_keeper_hold(struct ps_daemon *d)
{
	struct ps_keeper_message m;
	int fd, rc;

	if (d->keeper < 0)
		return;
	rc = send_kind(d, PS_KEEPER_LOCK, 0, ps_store_lock_fd(ps_cache_store(d->cache)));
	/* When the keeper answers, it has closed its copies of the terminal. */
	if (rc == 0)
		rc = ps_keeper_receive(d->keeper, DONE_MS, &m, &fd);
	if (rc < 0)
		ps_log_warning("keeper: %s: mounts will end with this daemon", strerror(-rc));
}

void ps_keeper_ready(struct ps_daemon *d)
{
	d->daemonize->kept = send_surely(d, PS_KEEPER_READY, 0) == 0;
}

void ps_keeper_serving(struct ps_daemon *d)
{
	(void)send_surely(d, PS_KEEPER_SERVING, 0);
}

void ps_keeper_progress(struct ps_daemon *d)
{
	(void)send_kind(d, PS_KEEPER_PROGRESS, 0, -1);
}

static int request_memfd(const struct ps_mount_request *request)
{
	struct ps_given message = {0};
	int rc = ps_request_encode(request, &message);

	if (rc == 0 && request->view[0])
		rc = ps_given_add(&message, "mountpoint", request->mountpoint, NULL);
	int fd = rc == 0 ? ps_keeper_memfd(&message) : rc;
	ps_given_fini(&message);
	return fd;
}

/* Has the keeper forget the items that it got of the mount. The lock is held. */
static void forget(struct ps_daemon *d, struct ps_mount *m)
{
	int rc = send_kind(d, PS_KEEPER_DROP, m->kept, -1);

	m->unkept = rc < 0 && rc != -EPIPE;
	if (!m->unkept)
		m->kept = 0;
}

/* The lock is held. */
static void keep_not(struct ps_daemon *d, struct ps_mount *m, int rc)
{
	ps_log_warning(
	        "mount: %s: ends with its daemon: the keeper: %s", m->request.mountpoint, strerror(-rc));
	forget(d, m);
}

bool ps_keeper_forget(struct ps_daemon *d)
{
	bool any = false;

	PS_LOCK_SCOPE(&d->lock);
	for (struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next) {
		struct ps_mount *m = PS_CONTAINER_OF(l, struct ps_mount, link);

		if (m->unkept)
			forget(d, m);
		any |= m->unkept;
	}
	return any;
}

void ps_keeper_keep(struct ps_daemon *d, struct ps_mount *m, int client,
        int (*give_owners)(struct ps_daemon *d, const struct ps_mount *m))
{
	struct ps_keeper_message session = {.kind = PS_KEEPER_SESSION, .id = m->id, .here = m->here};

	if (d->keeper < 0 || !ps_session_can_be_kept(&m->session) ||
	        strlen(m->request.mountpoint) >= sizeof(session.text))
		return;
	snprintf(session.text, sizeof(session.text), "%s", m->request.mountpoint);
	ps_autofd int request = request_memfd(&m->request);
	PS_LOCK_SCOPE(&d->lock);
	uint64_t number = session.mount = ++d->kept_number;
	int rc = request < 0 ? request : send_kind(d, PS_KEEPER_REQUEST, number, request);
	if (rc == 0)
		rc = send_kind(d, PS_KEEPER_STATE, number, ps_fs_state_fd(m->fs));
	if (rc == 0 && client >= 0)
		rc = send_kind(d, PS_KEEPER_CLIENT, number, client);
	m->kept = number;
	if (rc == 0)
		rc = give_owners(d, m);
	if (rc == 0)
		rc = send_one(d, &session, ps_session_fd(&m->session));
	if (rc < 0)
		keep_not(d, m, rc);
}

void ps_keeper_drop(struct ps_daemon *d, struct ps_mount *m)
{
	uint64_t number;

	{
		PS_LOCK_SCOPE(&d->lock);
		number = m->kept;
		m->kept = 0;
	}
	if (number)
		(void)send_surely(d, PS_KEEPER_DROP, number);
}

int ps_keeper_give_owner(struct ps_daemon *d, const struct ps_mount *m, uint64_t owner, int fd)
{
	if (!m->kept || m->unkept)
		return 0;
	return send_one(d,
	        &(struct ps_keeper_message){.kind = PS_KEEPER_OWNER, .mount = m->kept, .owner = owner}, fd);
}

void ps_keeper_new_owner(struct ps_daemon *d, struct ps_mount *m, uint64_t owner, int fd)
{
	int rc = ps_keeper_give_owner(d, m, owner, fd);

	if (rc < 0)
		keep_not(d, m, rc);
}

void ps_keeper_drop_owner(struct ps_daemon *d, const struct ps_mount *m, uint64_t owner)
{
	if (m->kept)
		(void)send_one(d,
		        &(struct ps_keeper_message){
		                .kind = PS_KEEPER_DROP_OWNER, .mount = m->kept, .owner = owner},
		        -1);
}

/* -EBUSY: mounts would end with this daemon. The lock is held. */
static int check_all_kept(const struct ps_daemon *d, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf names = {0};
	bool any = false;

	if (d->nmounting || !d->reported)
		return ps_error_set(err, EBUSY, "a mount is just being made; try again");
	for (const struct ps_list *l = d->mounts.next; l != &d->mounts; l = l->next) {
		const struct ps_mount *m = PS_CONTAINER_OF(l, struct ps_mount, link);

		if (atomic_load(&m->session.ended))
			continue;
		any = true;
		if (!m->kept || m->unkept)
			ps_strbuf_addf(&names, "%s%s", names.len ? ", " : "", m->request.mountpoint);
	}
	if (!any)
		return ps_error_set(
		        err, EBUSY, "it has no mount that could be handed over; start it again instead");
	if (!names.len && !names.failed)
		return 0;
	return ps_error_set(err, EBUSY,
	        "the keeper does not have these mounts, which would end; unmount them first: %s",
	        ps_strbuf_peek(&names));
}

/* Sends the keeper the client's socket: the keeper trusts no daemon, and finds the client's program itself.
 * The daemon's lock is held. */
static int ask_for_upgrade(struct ps_daemon *d, int client, struct ps_error *err)
{
	struct ps_keeper_message answer;
	int fd = -1;

	PS_LOCK_SCOPE(&d->keeper_lock);
	/* An answer that came too late for an earlier request is not the answer to this one. */
	while (ps_keeper_receive(d->keeper, 0, &answer, &fd) == 0)
		if (fd >= 0)
			close(ps_steal_fd(&fd));
	int rc = send_locked(d, &(struct ps_keeper_message){.kind = PS_KEEPER_UPGRADE}, client);
	if (rc == 0)
		rc = ps_keeper_receive(d->keeper, DONE_MS, &answer, &fd);
	if (fd >= 0)
		close(fd);
	if (rc == 0 && answer.kind != PS_KEEPER_DONE)
		return ps_error_set(err, EPERM, "the keeper: %s", answer.text);
	return rc;
}

int ps_keeper_upgrade(struct ps_daemon *d, int client, struct ps_error *err)
{
	PS_LOCK_SCOPE(&d->lock);
	int rc = d->keeper < 0 ? -EPIPE : check_all_kept(d, err);
	if (rc == 0)
		rc = ask_for_upgrade(d, client, err);
	if (rc == -EBUSY || rc == -EPERM)
		return rc;
	if (rc == -EPIPE)
		return ps_error_set(err, ENOTSUP,
		        "this daemon has no keeper (needs Linux 6.10 or later, and no --no-keeper), so its "
		        "mounts end with it; unmount them first");
	if (rc < 0)
		return ps_error_set(err, -rc, "the keeper: %s", strerror(-rc));
	atomic_store(&d->leaving, true);
	return 0;
}

void ps_keeper_busy(int sock, const struct ps_error *err)
{
	struct ps_keeper_message m = {.kind = PS_KEEPER_BUSY};

	snprintf(m.text, sizeof(m.text), "%s", err->text);
	(void)ps_keeper_send(sock, &m, -1, false);
	_exit(PS_EXIT_FAILED);
}
