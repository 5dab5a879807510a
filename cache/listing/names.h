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
#include "base/remote.h"

#define PS_NAMES_MAX_WARNINGS 10
#define PS_LIST_MAX_ENTRIES 2000000
#define PS_LIST_MAX_DEPTH 32

/* One object of a listing. The strings are borrowed for the duration of the call. */
struct ps_listed {
	const char *path; /* below the mount's root, already checked by ps_path_check(): "train/0001.tar" */
	const char
	        *url; /* without credentials or signatures (the origin remembers those); for get and head */
	struct ps_remote remote; /* what the listing told; size unknown: a head is needed */
	/* "sha256:HEX" and the like (base/checksum.h); NULL: remote.checksum has it, or there is none. */
	const char *checksum;
	/* The origin did not show what lies at this path, or below it: what is known of that stays. Nothing else is set. */
	bool unread;
};

/* Return 0 to go on, -errno to stop the listing with that error. */
typedef int (*ps_list_fn)(void *arg, const struct ps_listed *listed);

/* What listings of one source have in common, from one to the next. */
#define PS_LIST_SKIPS_LOGGED 64
struct ps_lister {
	struct ps_filter *filter; /* NULL: all is shown. Borrowed */
	bool quiet; /* nobody asked for the listing: what was skipped by an earlier one, too, is not logged again */
	uint64_t skips_logged[PS_LIST_SKIPS_LOGGED]; /* hashes; with the above the lister's */
	unsigned nskips_logged;
};

/* A name from outside, fit to be shown below the mount's root? -EINVAL for an empty name, "." or ".." parts,
 * an absolute path, empty parts ("a//b"), control characters, parts past 255 or paths past 4095 bytes, or a
 * first part ".penstock". */
int ps_path_check(const char *path);

struct ps_names {
	struct ps_lister *lister; /* or NULL */
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

/* lister: whose filter counts; NULL: all is handed on. */
void ps_names_init(struct ps_names *names, struct ps_lister *lister, ps_list_fn fn, void *arg,
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
