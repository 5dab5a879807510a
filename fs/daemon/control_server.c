/* A process at the control socket: one thread each, from its first word to the end of what it asked for. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/log.h"
#include "config.h"
#include "daemon/control.h"
#include "daemon/daemon_private.h"
#include "fuse/stats.h"

#define WORD_MS 10000    /* for what a guest can say at once */
#define MOUNTED_MS 60000 /* for mounting, which may go through fusermount3 */
#define KICK_MS 20
#define LINGER_MS 1000 /* for a guest to hear the last word and go */

struct guest {
	struct ps_list link; /* daemon.guests */
	struct ps_daemon *daemon;
	int sock;
	bool attaching; /* nothing is read from it now, but it matters whether it is there; daemon.lock */
	_Atomic bool cancelled; /* it went away, or the daemon stops */
};

static int say(const struct guest *g, const char *word, const char *name, const char *value)
{
	struct ps_given message = {0};
	int rc = ps_given_add(&message, PS_DO, word, NULL);

	if (rc == 0 && name)
		rc = ps_given_add(&message, name, value, NULL);
	if (rc == 0)
		rc = ps_wire_send(g->sock, &message, -1);
	ps_given_fini(&message);
	return rc;
}

/* Nobody can be told that telling failed. */
static void say_error(const struct guest *g, const char *text)
{
	if (say(g, "error", "text", text) < 0)
		ps_log_debug("control: a guest went away");
}

/* The answer that could not be made or told. */
static void say_failure(const struct guest *g, int rc)
{
	if (rc == -ENOMEM)
		say_error(g, "out of memory");
	else
		ps_log_debug("control: a guest went away");
}

/* The next word of the guest, which must be this one. */
static int expect(const struct guest *g, const char *word, int timeout_ms, struct ps_given *ret, int *ret_fd)
{
	int rc = ps_wire_receive(g->sock, timeout_ms, ret, ret_fd, NULL);
	const char *said = rc < 0 ? NULL : ps_wire_get(ret, PS_DO);

	if (rc == 0 && (!said || strcmp(said, word) != 0)) {
		ps_given_fini(ret);
		rc = -EPROTO;
	}
	return rc;
}

/* Options that are the daemon's and were given another value than the first mount's. */
static int add_warnings(const struct ps_daemon *d, const struct ps_given *given, struct ps_given *reply)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < given->n; i++) {
		const char *name = given->v[i].name, *value = given->v[i].value, *ours = NULL;
		const struct ps_opt *opt = ps_options_find(name);
		char text[256];

		if (!opt || !(opt->flags & PS_OPT_SHARED))
			continue;
		for (size_t j = 0; j < d->given->n; j++)
			if (strcmp(d->given->v[j].name, name) == 0)
				ours = d->given->v[j].value;
		if (ours && value && strcmp(ours, value) == 0)
			continue;
		snprintf(text, sizeof text,
		        "--%s is ignored: the daemon of this cache runs with %.100s until its last mount "
		        "is gone",
		        name, ours ? ours : "the default");
		rc = ps_given_add(reply, "warning", text, NULL);
	}
	return rc;
}

static int say_prepared(const struct guest *g, const struct ps_mount *m)
{
	struct ps_given reply = {0};
	int rc = ps_given_add(&reply, PS_DO, "prepared", NULL);

	if (rc == 0)
		rc = ps_given_add(&reply, "device", m->device, NULL);
	if (rc == 0)
		rc = add_warnings(g->daemon, &m->request.given, &reply);
	for (size_t i = 0; rc == 0 && i < m->warnings.n; i++)
		rc = ps_given_add(&reply, "warning", m->warnings.v[i].value, NULL);
	if (rc == 0)
		rc = ps_wire_send(g->sock, &reply, -1);
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

static void set_attaching(struct guest *g, bool attaching)
{
	uint64_t one = 1;

	{
		PS_LOCK_SCOPE(&g->daemon->lock);
		g->attaching = attaching;
	}
	if (write(g->daemon->wake_fd, &one, sizeof one) < 0) {
		/* Readable already. */
	}
}

/* From "prepared" to "answers". */
static int hand_over(struct guest *g, struct ps_mount *m, struct ps_error *err)
{
	struct ps_given message = {0};
	ps_autofd int fd = -1;
	struct ps_mount_id id = {0};
	int rc = say_prepared(g, m);

	if (rc == 0)
		rc = expect(g, "mounted", MOUNTED_MS, &message, &fd);
	if (rc == 0)
		rc = parse_id(ps_wire_get(&message, "mount"), &id);
	ps_given_fini(&message);
	if (rc == 0 && fd < 0)
		rc = -EPROTO;
	if (rc < 0)
		return ps_error_set(err, -rc, rc == -ENOMEM ? "out of memory" : "the process that mounts went away");
	rc = ps_daemon_start_mount(g->daemon, m, ps_steal_fd(&fd), id, err);
	if (rc < 0)
		return rc;
	rc = say(g, "serving", NULL, NULL);
	if (rc == 0)
		rc = expect(g, "answers", WORD_MS, &message, NULL);
	ps_given_fini(&message);
	if (rc == 0)
		return 0;
	while (!atomic_load(&m->session.ended)) {
		ps_session_kick(&m->session);
		poll(NULL, 0, KICK_MS);
	}
	return ps_error_set(err, -rc, rc == -ENOMEM ? "out of memory" : "the process that mounts went away");
}

static void serve_mount(struct guest *g, const struct ps_given *message)
{
	struct ps_mount_request request = {0};
	struct ps_error err = {0};
	struct ps_mount *m = NULL;
	int rc = ps_request_decode(message, &request, &err);

	for (size_t i = 0; rc == 0 && i < message->n; i++)
		if (strcmp(message->v[i].name, PS_WARNED) == 0)
			ps_log_warning("%s", message->v[i].value);
	if (rc == 0) {
		set_attaching(g, true);
		rc = ps_mount_new(g->daemon->cache, &request, &g->cancelled, &m, &err);
		set_attaching(g, false);
	}
	if (rc == 0)
		rc = hand_over(g, m, &err);
	if (rc == 0) {
		ps_session_answers(&m->session);
		ps_log_info("mount: %s on %s%s", m->device, m->request.mountpoint,
		        m->here ? "" : " (of another mount namespace)");
	} else {
		ps_log_warning("mount: %s", err.text);
		say_error(g, err.text);
	}
	if (m)
		ps_daemon_end_mount(g->daemon, m);
	if (rc == 0 && say(g, "ended", NULL, NULL) < 0)
		ps_log_debug("control: nobody waits for that");
}

static void serve_status(struct guest *g)
{
	ps_autofree char *text =
	        ps_stats_text(ps_stats_daemon(g->daemon->cache, ps_daemon_mounts(g->daemon, NULL)));

	int rc = text ? say(g, "status", "json", text) : -ENOMEM;
	if (rc < 0)
		say_failure(g, rc);
}

static void serve_wait(struct guest *g, const struct ps_given *message)
{
	char left[16];
	struct ps_mount_id id;

	if (parse_id(ps_wire_get(message, "mount"), &id) < 0) {
		say_error(g, "wait for which mount?");
		return;
	}
	snprintf(left, sizeof left, "%u", ps_daemon_await_end(g->daemon, id.dev));
	int rc = say(g, "ended", "mounts", left);
	if (rc < 0)
		say_failure(g, rc);
}

static void refuse_protocol(struct guest *g, uint32_t protocol)
{
	char text[256];

	snprintf(text, sizeof text,
	        "this cache is served by penstock %s (pid %d, protocol %d), which does not speak protocol "
	        "%u; unmount "
	        "what it serves first, or use the same version",
	        PACKAGE_VERSION, (int)getpid(), PS_WIRE_PROTOCOL, (unsigned)protocol);
	say_error(g, text);
}

static void serve(struct guest *g)
{
	struct ps_given message = {0};
	uint32_t protocol = 0;
	struct ucred peer = {0};

	if (!ps_control_trusts(g->sock, &peer)) {
		ps_log_warning(
		        "control: refused a process of uid %u (pid %d)", (unsigned)peer.uid, (int)peer.pid);
		say_error(g, "this cache is served for another user; choose another --cache-dir, or ask root "
		             "to mount");
		return;
	}
	int rc = ps_wire_receive(g->sock, WORD_MS, &message, NULL, &protocol);
	if (rc == -EPROTONOSUPPORT)
		refuse_protocol(g, protocol);
	else if (rc < 0 && rc != -EPIPE)
		say_error(g, rc == -ENOMEM ? "out of memory" : "the request makes no sense");
	if (rc < 0)
		return;
	const char *word = ps_wire_get(&message, PS_DO);
	if (word && strcmp(word, "mount") == 0)
		serve_mount(g, &message);
	else if (word && strcmp(word, "status") == 0)
		serve_status(g);
	else if (word && strcmp(word, "wait") == 0)
		serve_wait(g, &message);
	else
		say_error(g, "unknown request");
	ps_given_fini(&message);
}

/* Closing on words that were not read would take back the answer to them. */
static void hang_up(int sock)
{
	uint64_t until_ns = ps_clock_mono_ns() + LINGER_MS * PS_NS_PER_MS, now;
	char heap[4096];

	shutdown(sock, SHUT_WR);
	while ((now = ps_clock_mono_ns()) < until_ns) {
		struct pollfd p = {.fd = sock, .events = POLLIN};

		if (poll(&p, 1, (int)((until_ns - now) / PS_NS_PER_MS) + 1) > 0 &&
		        recv(sock, heap, sizeof heap, MSG_DONTWAIT) <= 0)
			break;
	}
	close(sock);
}

static void *guest_main(void *arg)
{
	struct guest *g = arg;
	struct ps_daemon *d = g->daemon;

	pthread_setname_np(pthread_self(), "mount");
	serve(g);
	{
		PS_LOCK_SCOPE(&d->lock);
		ps_list_remove(&g->link);
		d->nguests--;
	}
	hang_up(g->sock);
	free(g);
	ps_daemon_thread_ends(d);
	return NULL;
}

void ps_guest_accept(struct ps_daemon *d)
{
	ps_autofd int sock = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct guest *g = sock >= 0 ? calloc(1, sizeof *g) : NULL;

	if (!g) {
		/* Without descriptors or memory it stays in the queue, and poll() would say so again at once. */
		if (sock >= 0 || (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED))
			poll(NULL, 0, KICK_MS);
		return;
	}
	*g = (struct guest){.daemon = d, .sock = sock};
	{
		PS_LOCK_SCOPE(&d->lock);
		if (d->nguests >= PS_GUESTS_MAX || d->stopping) {
			free(g);
			return;
		}
		d->nguests++;
		ps_list_append(&d->guests, &g->link);
	}
	if (ps_daemon_thread(d, guest_main, g) < 0) {
		PS_LOCK_SCOPE(&d->lock);
		ps_list_remove(&g->link);
		d->nguests--;
		free(g);
		return;
	}
	ps_steal_fd(&sock);
}

void ps_guests_cancel(struct ps_daemon *d)
{
	for (struct ps_list *l = d->guests.next; l != &d->guests; l = l->next) {
		struct guest *g = PS_CONTAINER_OF(l, struct guest, link);

		atomic_store(&g->cancelled, true);
		shutdown(g->sock,
		        SHUT_RD); /* who waits for a word waits no more; the last one can still be said */
	}
}

size_t ps_guests_poll(struct ps_daemon *d, struct pollfd p[static PS_GUESTS_MAX])
{
	size_t n = 0;

	for (struct ps_list *l = d->guests.next; l != &d->guests; l = l->next) {
		const struct guest *g = PS_CONTAINER_OF(l, struct guest, link);

		if (g->attaching && !atomic_load(&g->cancelled))
			p[n++] = (struct pollfd){.fd = g->sock, .events = POLLRDHUP};
	}
	return n;
}

void ps_guests_gone(struct ps_daemon *d, const struct pollfd *p, size_t n)
{
	PS_LOCK_SCOPE(&d->lock);
	for (size_t i = 0; i < n; i++) {
		if (!(p[i].revents & (POLLRDHUP | POLLHUP | POLLERR)))
			continue;
		for (struct ps_list *l = d->guests.next; l != &d->guests; l = l->next) {
			struct guest *g = PS_CONTAINER_OF(l, struct guest, link);

			/* It may have been closed meanwhile, and its number be another's: that one is asked
			 * again. */
			if (g->sock == p[i].fd && g->attaching)
				atomic_store(&g->cancelled, true);
		}
	}
}
