/* The clients of the control socket: one thread each, from the first message to the end of the mount that
 * it requested. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/log.h"
#include "config.h"
#include "daemon/daemon_private.h"
#include "fuse/fuse.h"

#define WORD_MS 10000    /* for a message that a client can send at once */
#define MOUNTED_MS 60000 /* for mounting, which may go through fusermount3 */
#define KICK_MS 20
#define LINGER_MS 1000 /* for a client to read the last message and close the socket */

struct client {
	struct ps_list link; /* daemon.clients */
	struct ps_daemon *daemon;
	int sock;
	int owner; /* the requested mount's owner, until the mount has it; -1: none */
	/* no thread reads from the client now, so the main thread watches for its end; daemon.lock */
	bool attaching;
	_Atomic bool cancelled; /* the client ended, or the daemon stops */
};

static int say(const struct client *c, const char *word, const char *name, const char *value)
{
	int rc = ps_control_say(c->sock, word, name, value, -1);

	if (rc < 0 && rc != -ENOMEM)
		ps_log_debug("control: a client went away");
	return rc;
}

static void say_error(const struct client *c, const char *text)
{
	(void)say(c, "error", "text", text);
}

static void say_ended(int sock)
{
	if (ps_control_say(sock, "ended", NULL, NULL, -1) < 0)
		ps_log_debug("control: the client did not wait for the end");
}

/* The last answer: an error if there is no memory for it. */
static void answer(const struct client *c, const char *word, const char *name, const char *value)
{
	if ((name && !value) || say(c, word, name, value) == -ENOMEM)
		say_error(c, "out of memory");
}

static int went_away(int rc, struct ps_error *err)
{
	return ps_error_set(err, -rc, rc == -ENOMEM ? "out of memory" : "the process that mounts went away");
}

/* Receives the client's next message, which must be `word`. */
static int expect(const struct client *c, const char *word, int timeout_ms, struct ps_given *ret, int *ret_fd)
{
	int rc = ps_control_receive(c->sock, timeout_ms, ret, ret_fd, NULL);
	const char *said = rc < 0 ? NULL : ps_control_get(ret, PS_DO);

	if (rc == 0 && (!said || strcmp(said, word) != 0)) {
		ps_given_fini(ret);
		rc = -EPROTO;
	}
	return rc;
}

/* Warns of daemon options whose value differs from the first mount's. */
static int add_warnings(const struct ps_daemon *d, const struct ps_given *given, struct ps_given *reply)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < given->n; i++) {
		const char *name = given->v[i].name, *value = given->v[i].value, *ours = NULL;
		const struct ps_opt *opt = ps_options_find(name);
		char text[256];

		if (!opt || opt->scope != PS_SCOPE_DAEMON)
			continue;
		for (size_t j = 0; j < d->given->n; j++)
			if (strcmp(d->given->v[j].name, name) == 0)
				ours = d->given->v[j].value;
		if (ours && value && strcmp(ours, value) == 0)
			continue;
		snprintf(text, sizeof(text),
		        "--%s is ignored: the daemon of this cache runs with %.100s until its last mount "
		        "is gone",
		        name, ours ? ours : "the default");
		rc = ps_given_add(reply, "warning", text, NULL);
	}
	return rc;
}

static int say_prepared(const struct client *c, const struct ps_mount *m)
{
	struct ps_given reply = {0};
	int rc = ps_given_add(&reply, PS_DO, "prepared", NULL);

	if (rc == 0)
		rc = ps_given_add(&reply, "device", m->device, NULL);
	if (rc == 0)
		rc = ps_given_add(&reply, PS_THEN, "kept", NULL);
	if (rc == 0)
		rc = add_warnings(c->daemon, &m->request.given, &reply);
	for (size_t i = 0; rc == 0 && i < m->warnings.n; i++)
		rc = ps_given_add(&reply, "warning", m->warnings.v[i].value, NULL);
	if (rc == 0)
		rc = ps_control_send(c->sock, &reply, -1);
	ps_given_fini(&reply);
	return rc;
}

static int parse_id(const char *text, struct ps_mount_id *ret)
{
	unsigned major, minor;
	uint64_t number;

	if (!text || sscanf(text, "%u:%u %" SCNu64, &major, &minor, &number) != 3)
		return -EPROTO;
	*ret = (struct ps_mount_id){makedev(major, minor), number};
	return 0;
}

static void set_attaching(struct client *c, bool attaching)
{
	{
		PS_LOCK_SCOPE(&c->daemon->lock);
		c->attaching = attaching;
	}
	ps_daemon_wake(c->daemon);
}

/* Exchanges the messages from "prepared" to "answers". *ret_waits: the client waits for "kept". */
static int hand_over(struct client *c, struct ps_mount *m, bool *ret_waits, struct ps_error *err)
{
	struct ps_given message = {0};
	ps_autofd int fd = -1;
	struct ps_mount_id id = {0};
	int rc = say_prepared(c, m);

	if (rc == 0)
		rc = expect(c, "mounted", MOUNTED_MS, &message, &fd);
	if (rc == 0)
		rc = parse_id(ps_control_get(&message, "mount"), &id);
	ps_given_fini(&message);
	if (rc == 0 && fd < 0)
		rc = -EPROTO;
	if (rc < 0)
		return went_away(rc, err);
	size_t nwarned = m->warnings.n;
	rc = ps_daemon_start_mount(c->daemon, m, ps_steal_fd(&fd), id, err);
	if (rc < 0)
		return rc;
	rc = say(c, "serving", "warning", m->warnings.n > nwarned ? m->warnings.v[nwarned].value : "");
	if (rc == 0)
		rc = expect(c, "answers", WORD_MS, &message, NULL);
	*ret_waits = rc == 0 && ps_control_get(&message, PS_THEN);
	ps_given_fini(&message);
	if (rc == 0)
		return 0;
	ps_session_end(&m->session);
	return went_away(rc, err);
}

/* For a client with an owner: sets *ret_joined (the mountpoint of an existing mount), or *ret_new and the
 * request's mountpoint. Returns early if the owner ends. */
static int enter(struct client *c, struct ps_mount_request *request, struct ps_owned **ret_new,
        char **ret_joined, struct ps_error *err)
{
	struct ps_given message = {0};

	set_attaching(c, true);
	int rc = ps_owned_enter(c->daemon, request, &c->owner, &c->cancelled, ret_new, ret_joined, err);
	set_attaching(c, false);
	if (rc < 0 || *ret_joined)
		return rc;
	rc = say(c, "where", NULL, NULL);
	if (rc == 0)
		rc = expect(c, "here", WORD_MS, &message, NULL);
	const char *where = rc == 0 ? ps_control_get(&message, "mountpoint") : NULL;
	if (rc == 0 && (!where || where[0] != '/'))
		rc = -EPROTO;
	if (rc == 0) {
		free(request->mountpoint);
		request->mountpoint = strdup(where);
		rc = request->mountpoint ? 0 : -ENOMEM;
	}
	ps_given_fini(&message);
	return rc < 0 ? went_away(rc, err) : 0;
}

/* False: the client or its owner has ended, which may be why the mount failed. */
static bool peer_is_there(const struct client *c)
{
	struct pollfd p[] = {{.fd = c->sock, .events = POLLRDHUP}, {.fd = c->owner, .events = POLLRDHUP}};

	return poll(p, PS_ARRAY_LEN(p), 0) <= 0;
}

static void end_mounting(struct ps_daemon *d)
{
	PS_LOCK_SCOPE(&d->lock);
	d->nmounting--;
}

static void serve_mount(struct client *c, const struct ps_given *message, bool for_owner)
{
	struct ps_mount_request request = {0};
	struct ps_error err = {0};
	struct ps_mount *m = NULL;
	struct ps_owned *owned = NULL;
	ps_autofree char *joined = NULL;
	bool waits = false;
	{
		/* If the daemon is handing its mounts over, the client finds its connection closed, and asks
		 * the next daemon. */
		PS_LOCK_SCOPE(&c->daemon->lock);
		if (atomic_load(&c->daemon->leaving))
			return;
		c->daemon->nmounting++;
	}
	int rc = ps_request_decode(message, &request, &err);

	/* Requests for a mount with owners have a view, others none. */
	if (rc == 0 && for_owner != (request.view[0] != '\0'))
		rc = ps_error_set(&err, EPROTO, "the request makes no sense");
	for (size_t i = 0; rc == 0 && i < message->n; i++)
		if (strcmp(message->v[i].name, PS_WARNED) == 0)
			ps_log_warning("%s", message->v[i].value);
	if (rc == 0 && for_owner)
		rc = enter(c, &request, &owned, &joined, &err);
	if (joined) {
		ps_request_fini(&request);
		end_mounting(c->daemon);
		(void)say(c, "joined", NULL, NULL);
		return;
	}
	if (rc < 0)
		ps_request_fini(&request);
	if (rc == 0) {
		set_attaching(c, true);
		rc = ps_mount_new(c->daemon->cache, &request, -1, &c->cancelled, &m, &err);
		set_attaching(c, false);
	}
	if (rc == 0)
		rc = hand_over(c, m, &waits, &err);
	if (rc < 0)
		ps_owned_failed(c->daemon, owned, &err, atomic_load(&c->cancelled) || !peer_is_there(c));
	else if (owned && (rc = ps_owned_set_serving(c->daemon, owned, m, &c->owner, &err)) < 0)
		ps_session_end(&m->session);
	if (rc == 0) {
		ps_session_now_answers(&m->session);
		ps_keeper_keep(c->daemon, m, c->sock, ps_owned_keep);
		ps_log_info("mount: %s on %s%s", m->device, m->request.mountpoint,
		        m->here ? "" : " (of another mount namespace)");
		if (waits)
			(void)say(c, "kept", NULL, NULL);
	} else {
		ps_log_warning("mount: %s", err.text);
		say_error(c, err.text);
	}
	end_mounting(c->daemon);
	if (m)
		ps_daemon_end_mount(c->daemon, m);
	if (rc == 0)
		say_ended(c->sock);
}

static void serve_status(struct client *c)
{
	ps_autofree char *text =
	        ps_stats_text(ps_stats_daemon(c->daemon->cache, ps_daemon_mounts(c->daemon, NULL)));

	answer(c, "status", "json", text);
}

static void serve_wait(struct client *c, const struct ps_given *message)
{
	char left[16];
	struct ps_mount_id id;

	if (parse_id(ps_control_get(message, "mount"), &id) < 0) {
		say_error(c, "the request names no mount to wait for");
		return;
	}
	snprintf(left, sizeof(left), "%u", ps_daemon_await_end(c->daemon, id.dev));
	answer(c, "ended", "mounts", left);
}

static void serve_upgrade(struct client *c)
{
	struct ps_error err = {0};
	int rc = ps_keeper_upgrade(c->daemon, c->sock, &err);

	if (rc < 0) {
		say_error(c, err.text);
		return;
	}
	(void)say(c, "leaving", NULL, NULL);
	ps_daemon_wake(c->daemon);
}

static void refuse_protocol(struct client *c, uint32_t protocol)
{
	char text[256];

	snprintf(text, sizeof(text),
	        "this cache is served by penstock %s (pid %d, protocol %d), which does not speak protocol "
	        "%u; unmount "
	        "what it serves first, or use the same version",
	        PACKAGE_VERSION, (int)getpid(), PS_CONTROL_PROTOCOL, (unsigned)protocol);
	say_error(c, text);
}

static void serve(struct client *c)
{
	struct ps_given message = {0};
	uint32_t protocol = 0;
	struct ucred peer = {0};

	if (!ps_control_trusts(c->sock, &peer)) {
		ps_log_warning(
		        "control: refused a process of uid %u (pid %d)", (unsigned)peer.uid, (int)peer.pid);
		say_error(c, "this cache is served for another user; choose another --cache-dir, or ask root "
		             "to mount");
		return;
	}
	int rc = ps_control_receive(c->sock, WORD_MS, &message, &c->owner, &protocol);
	if (rc == -EPROTONOSUPPORT)
		refuse_protocol(c, protocol);
	else if (rc < 0 && rc != -EPIPE)
		say_error(c, rc == -ENOMEM ? "out of memory" : "the request makes no sense");
	if (rc < 0)
		return;
	const char *word = ps_control_get(&message, PS_DO);
	if (word && strcmp(word, "mount") == 0)
		serve_mount(c, &message, false);
	else if (word && strcmp(word, "own") == 0 && c->owner >= 0)
		serve_mount(c, &message, true);
	else if (word && strcmp(word, "status") == 0)
		serve_status(c);
	else if (word && strcmp(word, "upgrade") == 0)
		serve_upgrade(c);
	else if (word && strcmp(word, "wait") == 0)
		serve_wait(c, &message);
	else
		say_error(c, "unknown request");
	ps_given_fini(&message);
}

/* Closes the socket after reading what the client still sends: closing with unread data would discard our
 * answer. */
static void hang_up(int sock)
{
	uint64_t until_ns = ps_clock_mono_ns() + LINGER_MS * PS_NS_PER_MS, now;
	char heap[4096];

	shutdown(sock, SHUT_WR);
	while ((now = ps_clock_mono_ns()) < until_ns) {
		struct pollfd p = {.fd = sock, .events = POLLIN};

		if (poll(&p, 1, (int)((until_ns - now) / PS_NS_PER_MS) + 1) > 0 &&
		        recv(sock, heap, sizeof(heap), MSG_DONTWAIT) <= 0)
			break;
	}
	close(sock);
}

void ps_client_say_ended(int sock)
{
	say_ended(sock);
	hang_up(sock);
}

static void *client_main(void *arg)
{
	struct client *c = arg;
	struct ps_daemon *d = c->daemon;

	pthread_setname_np(pthread_self(), "mount");
	serve(c);
	{
		PS_LOCK_SCOPE(&d->lock);
		ps_list_remove(&c->link);
		d->nclients--;
	}
	hang_up(c->sock);
	if (c->owner >= 0)
		close(c->owner);
	free(c);
	ps_daemon_thread_ends(d);
	return NULL;
}

void ps_client_accept(struct ps_daemon *d)
{
	ps_autofd int sock = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct client *c = sock >= 0 ? calloc(1, sizeof(*c)) : NULL;

	if (!c) {
		/* Without descriptors or memory the connection stays in the queue, and poll() would return
		 * at once. */
		if (sock >= 0 || (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED))
			poll(NULL, 0, KICK_MS);
		return;
	}
	*c = (struct client){.daemon = d, .sock = sock, .owner = -1};
	{
		PS_LOCK_SCOPE(&d->lock);
		if (d->nclients >= PS_CLIENTS_MAX || d->stopping) {
			free(c);
			return;
		}
		d->nclients++;
		ps_list_append(&d->clients, &c->link);
	}
	if (ps_daemon_thread(d, client_main, c) < 0) {
		PS_LOCK_SCOPE(&d->lock);
		ps_list_remove(&c->link);
		d->nclients--;
		free(c);
		return;
	}
	ps_steal_fd(&sock);
}

void ps_clients_cancel(struct ps_daemon *d)
{
	for (struct ps_list *l = d->clients.next; l != &d->clients; l = l->next) {
		struct client *c = PS_CONTAINER_OF(l, struct client, link);

		ps_daemon_cancel(d, &c->cancelled);
		/* wakes threads that wait for a message; the last answer can still be sent */
		shutdown(c->sock, SHUT_RD);
	}
}

size_t ps_clients_poll(struct ps_daemon *d, struct pollfd p[static 2 * PS_CLIENTS_MAX])
{
	size_t n = 0;

	for (struct ps_list *l = d->clients.next; l != &d->clients; l = l->next) {
		const struct client *c = PS_CONTAINER_OF(l, struct client, link);

		if (!c->attaching || atomic_load(&c->cancelled))
			continue;
		p[n++] = (struct pollfd){.fd = c->sock, .events = POLLRDHUP};
		if (c->owner >= 0)
			p[n++] = (struct pollfd){.fd = c->owner, .events = POLLRDHUP};
	}
	return n;
}

void ps_clients_gone(struct ps_daemon *d, const struct pollfd *p, size_t n)
{
	PS_LOCK_SCOPE(&d->lock);
	for (size_t i = 0; i < n; i++) {
		if (!(p[i].revents & (POLLRDHUP | POLLHUP | POLLERR)))
			continue;
		for (struct ps_list *l = d->clients.next; l != &d->clients; l = l->next) {
			struct client *c = PS_CONTAINER_OF(l, struct client, link);
			struct pollfd now = {.fd = p[i].fd, .events = POLLRDHUP};

			/* The descriptor may have been closed since, and another client may have its
			 * number. */
			if (c->attaching && (c->sock == now.fd || c->owner == now.fd) && poll(&now, 1, 0) > 0)
				ps_daemon_cancel(d, &c->cancelled);
		}
	}
}
