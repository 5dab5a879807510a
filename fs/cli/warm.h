/* Warming: bring files into the cache, a few at a time, and watch until they are in.
 *
 * The engine knows no mount: a target lists files, starts them and reports how far they are. Two targets: a
 * mounted dataset, through its mount, and a source, through the cache of this process
 * (cmd_warm.c). Threads: one. Blocks: until all is in, has failed, or *stop is set. */
#ifndef PS_CLI_WARM_H
#define PS_CLI_WARM_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/daemon.h"
#include "options/options.h"

struct ps_warm_item {
	char *path;
	uint64_t size, cached; /* bytes */
	/* The target's: the open file. It stays open while it is fetched, since an error is known only as
	 * long. */
	int fd;                   /* of a mount; -1 */
	struct ps_handle *handle; /* of a source; NULL */
	uint64_t node;
	/* the engine's */
	enum { PS_WARM_WAITING, PS_WARM_STARTED, PS_WARM_DONE, PS_WARM_FAILED } state;
	uint64_t progress_ns, started_ns;
};

struct ps_warm_list {
	struct ps_warm_item *v;
	size_t n, cap;
};

struct ps_warm_target {
	void *ctx;
	/* Appends the wanted files with ps_warm_add(). */
	int (*list)(void *ctx, struct ps_warm_list *list, struct ps_error *err);
	/* Opens it, if it is not, and asks for what is missing; also again, after no progress. -ENOSPC: the
	 * cache has no room for it. */
	int (*start)(void *ctx, struct ps_warm_item *item);
	/* Fills item->cached and, when it is not known yet, item->size. *ret_error: the last failure or NULL;
	 * the caller frees it. */
	int (*look)(void *ctx, struct ps_warm_item *item, char **ret_error);
	/* Closes it, if it is open. */
	void (*end)(void *ctx, struct ps_warm_item *item);
	/* What ps_cache_stats() reports of the cache that is filled; NULL: it cannot be had. The caller's. */
	json_t *(*stats)(void *ctx);
};

struct ps_warm_options {
	unsigned jobs; /* files in progress at a time */
	bool quiet;
	volatile sig_atomic_t *stop;
};

/* Returns an exit code; prints failures on stderr, the sum on stdout. */
int ps_warm_run(const struct ps_warm_target *target, const struct ps_warm_options *options);
int ps_warm_add(struct ps_warm_list *list, const char *path, uint64_t size, uint64_t node);

#endif
