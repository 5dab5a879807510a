/* The names of a listing on their way to the mount: checked, made unique, counted, handed on.
 *
 * What cannot be shown (ps_path_check), comes twice, or would be a file and a directory at once is skipped
 * with a warning; of the warnings PS_NAMES_MAX_WARNINGS are logged, the rest counted. Of a name that comes
 * twice the first one stays.
 *
 * Ownership: the caller's, on its stack. Threads: one. Blocks: on what fn blocks on. */
#ifndef PS_LISTING_NAMES_H
#define PS_LISTING_NAMES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/strbuf.h"
#include "listing/filter.h"
#include "origin/origin.h"

#define PS_NAMES_MAX_WARNINGS 10

struct ps_names {
	struct ps_origin *origin; /* or NULL */
	struct ps_filter *filter;
	ps_list_fn fn;
	void *arg;
	const _Atomic bool *stop;
	struct ps_error *err;
	uint64_t nfiles;

	uint64_t *table; /* hashes of paths, the lowest bit tells a file from a directory; 0: free */
	uint64_t nused, nslots;
	struct ps_strbuf last_dir; /* whose parents are known to be in the table */
	unsigned nwarnings;
	bool quiet; /* no warnings */
};

/* origin: whose filter counts; NULL: all is handed on. */
void ps_names_init(struct ps_names *names, struct ps_origin *origin, ps_list_fn fn, void *arg,
        const _Atomic bool *stop, struct ps_error *err);
void ps_names_fini(struct ps_names *names); /* logs how many warnings were not */

/* 0: handed on, or skipped. -errno with *names->err: the listing is over. */
int ps_names_add(struct ps_names *names, const struct ps_listed *listed) PS_MUST_USE;

/* What lies at the path ("/" at its end or not) could not be listed, and stays as it is known; logs why. As ps_names_add(). */
int ps_names_unread(struct ps_names *names, const char *path, const char *why) PS_MUST_USE;
/* False: nothing below this folder is shown. dir ends in "/". */
bool ps_names_enters(const struct ps_names *names, const char *dir);

/* Was path[0..n) handed on as a file? */
bool ps_names_is_file(const struct ps_names *names, const char *path, size_t n);

/* Logs "list: WHAT: WHY" if there were not too many; both may come from outside. */
void ps_names_warn(struct ps_names *names, const char *what, const char *why);

/* -ECANCELED with the story if *stop is set. */
int ps_names_stopped(struct ps_names *names) PS_MUST_USE;

/* The part of many URLs that all share, up to a "/": "host/dir/"; shown are the names below it. The key of a
 * URL is its host, port and decoded path. */
struct ps_common {
	struct ps_strbuf dir;
	bool any;
};
/* Writes the key of a canonical URL. -EINVAL: its path cannot be decoded. */
int ps_common_key(const char *url, struct ps_strbuf *ret_key) PS_MUST_USE;
void ps_common_add(struct ps_common *common, const char *key);
/* What to show of this key, which was added before; borrowed from key. */
const char *ps_common_below(const struct ps_common *common, const char *key);
void ps_common_fini(struct ps_common *common);

#endif
