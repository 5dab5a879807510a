/* Joining the daemon that serves a cache directory: this process mounts, in its own mount namespace and with its own
 * privileges, and the daemon serves. See daemon.h for the words that are exchanged.
 *
 * Threads: one. Blocks: as long as the daemon lists the sources; with `stay`, as long as the mount is there.
 * Errors: -errno and a text. */
#ifndef PS_DAEMON_CONTROL_CLIENT_H
#define PS_DAEMON_CONTROL_CLIENT_H

#include <jansson.h>

#include "daemon/request.h"

struct ps_join_options {
	bool allow_other;
	bool stay; /* until the mount is gone; SIGTERM, SIGINT and SIGHUP take it away */
	void (*ready)(void *arg); /* the mount answers */
	void *arg;
};

/* -ENOENT without a text: nobody serves the cache, or whoever did is just leaving. */
int ps_join_mount(const char *cache_dir, const struct ps_mount_request *request,
        const struct ps_join_options *options, struct ps_error *err) PS_MUST_USE;

/* What the daemon tells of all its mounts (ps_stats_daemon()); the caller owns it. -ENOENT, and a text: no daemon
 * serves the cache. */
int ps_join_status(const char *cache_dir, int timeout_ms, json_t **ret, struct ps_error *err) PS_MUST_USE;

/* Waits until the daemon serves nothing on this device any more. *ret_left: mounts that it still has. */
int ps_join_await_end(
        const char *cache_dir, dev_t dev, int timeout_ms, unsigned *ret_left, struct ps_error *err) PS_MUST_USE;

#endif
