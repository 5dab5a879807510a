/* The daemon that a keeper starts after the first one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "daemon/daemon_private.h"

#define ITEM_MS 10000 /* the keeper sends at once */

static int receive_items(int sock, struct ps_keeper_items *items)
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

static int set_up(struct ps_keeper_items *items, struct ps_mount_options *o, struct ps_error *err)
{
	ps_autofd int fd = ps_keeper_take(items, 0, PS_KEEPER_SETUP);
	struct ps_given message = {0};
	int rc = ps_keeper_read_memfd(fd, &message);

	if (rc < 0)
		return ps_error_set(err, -rc, "the daemon's options: %s", strerror(-rc));
	for (size_t i = 0; rc == 0 && i < message.n; i++) {
		const char *name = message.v[i].name, *value = message.v[i].value;

		if (strcmp(name, "cache-dir") == 0) {
			free(o->cache_dir);
			o->cache_dir = strdup(value);
			rc = o->cache_dir ? 0 : ps_error_set(err, ENOMEM, "out of memory");
		} else if (strcmp(name, "foreground") == 0) {
			o->foreground = true;
		} else if (strcmp(name, "serve") == 0) {
			o->serve = true;
		} else if (strcmp(name, "option") == 0) {
			const char *equals = strchr(value, '=');
			ps_autofree char *option =
			        equals ? strndup(value, (size_t)(equals - value)) : strdup(value);

			rc = option ? ps_options_set(o, option, equals ? equals + 1 : NULL, err)
			            : ps_error_set(err, ENOMEM, "out of memory");
		}
	}
	ps_given_fini(&message);
	return rc == 0 && !o->cache_dir ? ps_error_set(err, EPROTO, "the daemon's options: no cache") : rc;
}

int ps_daemon_resume(int sock)
{
	struct ps_keeper_items items = {0};
	struct ps_mount_options o;
	struct ps_daemonize none = {.pipe = -1, .notify = -1};
	struct ps_error err = {0};
	int code = PS_EXIT_FAILED;

	prctl(PR_SET_NAME, "penstock");
	ps_privileges_no_core();
	ps_mount_options_init(&o);
	int rc = receive_items(sock, &items);
	if (rc < 0)
		ps_error_set(&err, -rc, "the keeper: %s", strerror(-rc));
	if (rc == 0)
		rc = set_up(&items, &o, &err);
	if (rc == 0)
		rc = ps_log_open(o.log          ? o.log
		                 : o.foreground ? "stderr"
		                                : "syslog",
		        o.log_level, "penstock", &err);
	const struct ps_daemon_options options = {
	        .options = &o, .daemonize = &none, .keeper = sock, .resumed = &items, .owner = -1};
	if (rc == 0)
		rc = ps_daemon_run(&options, &code, &err);
	if (rc < 0)
		ps_log_error("the mounts cannot be taken over: %s", err.text);
	for (size_t i = 0; i < items.n; i++) {
		if (items.v[i]->fd >= 0)
			close(items.v[i]->fd);
		free(items.v[i]);
	}
	free(items.v);
	ps_mount_options_fini(&o);
	return rc < 0 ? PS_EXIT_FAILED : code;
}
