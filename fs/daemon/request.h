/* What is asked of a daemon: one mount, with its sources, options and the environment its credentials come from.
 *
 * Whoever asks resolves what only it can: paths are absolute, names of users are numbers, files of headers are
 * read. A local source is told with device and inode, since the daemon may live in another mount namespace, where
 * the same path is another folder.
 *
 * Ownership: the request's own; secret, wiped by fini. Threads: one. Errors: -errno and a text. */
#ifndef PS_DAEMON_REQUEST_H
#define PS_DAEMON_REQUEST_H

#include "options/options.h"
#include "daemon/control_protocol.h"

#define PS_SOURCES_MAX 256 /* of one mount: eight bits of a node id (fs.h) */

struct ps_source_request {
	char *name;            /* of its folder below the mount; "": it is the mount */
	char *source;          /* absolute, with its secrets */
	struct ps_given given; /* its own options, which come after those of the mount */
	char identity[48];     /* "DEVICE:INODE" of a local source as who asks sees it; "": it is not local */
};

struct ps_mount_request {
	char *mountpoint;
	struct ps_given given;
	char **env; /* "NAME=value", NULL-terminated; never NULL */
	struct ps_source_request *sources;
	size_t nsources;
};

void ps_request_fini(struct ps_mount_request *request);
/* name is a folder's, or "". The source is made absolute, and must make sense. */
int ps_request_add_source(
        struct ps_mount_request *request, const char *name, const char *source, struct ps_error *err) PS_MUST_USE;
/* The options of the mount and the environment, from what was parsed and finished. */
int ps_request_take_options(
        struct ps_mount_request *request, const struct ps_mount_options *o, struct ps_error *err) PS_MUST_USE;
/* Options of one source alone. */
int ps_request_give_source(struct ps_source_request *source, const struct ps_mount_options *o) PS_MUST_USE;
/* Names that are not told apart, secrets that would be sent to the hosts of all sources. */
int ps_request_check(const struct ps_mount_request *request, struct ps_error *err) PS_MUST_USE;

/* "NAME=SOURCE"? A scheme, or a slash before the "=", says no. On true *ret_name_len is the name's length. */
bool ps_source_has_name(const char *arg, size_t *ret_name_len);

int ps_request_encode(const struct ps_mount_request *request, struct ps_given *ret) PS_MUST_USE;
int ps_request_decode(const struct ps_given *message, struct ps_mount_request *ret, struct ps_error *err) PS_MUST_USE;

/* Is a local source here what it is to who asked? */
int ps_request_same_place(const struct ps_source_request *source, struct ps_error *err) PS_MUST_USE;

/* The options of one source of the request: those of the mount, then its own. fini in any case. */
int ps_request_options(const struct ps_mount_request *request, const struct ps_source_request *source,
        struct ps_mount_options *ret, struct ps_error *err) PS_MUST_USE;

#endif
