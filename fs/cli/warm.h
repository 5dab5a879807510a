/* Warming: fetches files into the cache, a few at a time, until all are complete.
 *
 * The engine does not depend on mounts: a target lists files, starts them and reports their progress. There
 * are two targets: a mounted dataset, through its mount, and a source, through the cache of this process
 * (cmd_warm.c). Threads: one. Blocks: until every file is cached or has failed, or *stop is set. */
#ifndef PS_CLI_WARM_H
#define PS_CLI_WARM_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/daemon.h"
#include "options/options.h"

#define PS_WARM_INTERRUPTED "interrupted; fetched data is kept: run the command again to resume"

struct ps_warm_item {
	char *path;
	uint64_t size, cached; /* bytes */
	/* The target's members: the open file. The target keeps it open during the fetch, since the cache
	 * reports a file's errors only while the file is open. */
	int fd;                   /* of a mount's file, or -1 */
	struct ps_handle *handle; /* of a source's file, or NULL */
	uint64_t node;
	/* the engine's members */
	enum { PS_WARM_WAITING, PS_WARM_STARTED, PS_WARM_DONE, PS_WARM_FAILED } state;
	uint64_t progress_ns, started_ns;
};

struct ps_warm_list {
	struct ps_warm_item *v;
	size_t n, cap;
};

struct ps_warm_target {
	void *ctx;
	/* Appends the requested files with ps_warm_add(). */
	int (*list)(void *ctx, struct ps_warm_list *list, struct ps_error *err);
	/* Opens the file if necessary, and requests its missing bytes. Sets item->size if it was not known.
	 * Called again if there is no progress. -ENOSPC: the cache has no room for the file. */
	int (*start)(void *ctx, struct ps_warm_item *item);
	/* Sets item->cached. *ret_error: the text of the last failure, which the caller frees, or NULL. */
	int (*look)(void *ctx, struct ps_warm_item *item, char **ret_error);
	/* Closes the file if it is open. */
	void (*end)(void *ctx, struct ps_warm_item *item);
	/* The result of ps_cache_stats() for the cache that is filled, owned by the caller; NULL: not
	 * available. */
	json_t *(*stats)(void *ctx);
};

struct ps_warm_options {
	unsigned jobs; /* files that are fetched at a time */
	bool quiet;
	const _Atomic int *stop;
};

/* Returns an exit code; prints failures on stderr and a summary on stdout. */
int ps_warm_run(const struct ps_warm_target *target, const struct ps_warm_options *options);
void ps_warm_add(struct ps_warm_list *list, const char *path, uint64_t size, uint64_t node);

/* Waits until the tables of members are made. stats_of(ctx) returns the object of ps_members_stats(), which
 * is freed here; NULL: no answer. Returns the command's exit code. */
int ps_warm_members(
        json_t *(*stats_of)(void *ctx), void *ctx, bool merges, const struct ps_warm_options *options);

#endif
