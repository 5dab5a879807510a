/* Listings: what servers and manifests say of the objects of a source, and which of these names are shown.
 *
 * Files, from the top: listing.c (JSON of web servers) uses html.c and json_array.c; names.c (names on their
 * way to the mount) uses patterns.c (--include, --exclude, globs); manifest.c and bucket_xml.c (S3, Azure)
 * use none of them. No network.
 * Ownership, threads and errors: each section. */
#ifndef PS_LISTING_LISTING_H
#define PS_LISTING_LISTING_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/packed.h"
#include "base/remote.h"
#include "base/strbuf.h"

/* Which files are shown ---------------------------------------------------------------------------------- */

/* Which files of a listing are shown: --include and --exclude, the same for every kind of source.
 *
 * A pattern is compared with a file's path below its source and with its last part, as the origin calls it
 * ("a/x.tar.zst"), and so with each folder above the file: it means all below a folder that it matches. "*"
 * and "?" also stand for "/", "[...]" is a set, braces are those of braces.h. Shown is what matches an
 * include, or anything if there is none, and no exclude. Indexes go with what they are of: NAME.psx with
 * NAME; SHARDS.psc is shown where an include could match its neighbours.
 *
 * Ownership: ps_listing_filter_new() ... ps_listing_filter_free(). Threads: any; it notes what has matched,
 * nothing else changes.
 * Blocks: never. */

#define PS_LISTING_FILTER_MAX_NAMES 1000000 /* that the braces of one pattern stand for */
#define PS_LISTING_FILTER_MAX_WILD 1000     /* of these with "*", "?" or "["; each is tried for each file */

struct ps_listing_filter;

/* NULL-terminated lists, or NULL. *ret is NULL if both are empty: all is shown. -EINVAL, -E2BIG, -ENOMEM with
 * the pattern. */
int ps_listing_filter_new(const char *const *include, const char *const *exclude,
        struct ps_listing_filter **ret, struct ps_error *err) PS_MUST_USE;
void ps_listing_filter_free(struct ps_listing_filter *filter);

/* filter NULL: all is. */
bool ps_listing_filter_shows(struct ps_listing_filter *filter, const char *path);
/* False: nothing below this folder is shown, so that it need not be listed. dir ends in "/". */
bool ps_listing_filter_enters(struct ps_listing_filter *filter, const char *dir);

/* The file is only there for others: a catalogue of the shards beside it. */
bool ps_listing_filter_is_catalogue(const char *path);

/* All of a listing has been asked of it: from now on ps_listing_filter_unmatched() answers. */
void ps_listing_filter_listed(struct ps_listing_filter *filter);
/* The ith pattern as it was given, includes first; NULL: there are no more (also of filter NULL).
 * *ret_unmatched: no name of a whole listing matched it. */
const char *ps_listing_filter_pattern(
        const struct ps_listing_filter *filter, size_t i, bool *ret_exclude, bool *ret_unmatched);

/* Names -------------------------------------------------------------------------------------------------- */

/* The names of a listing on their way to the mount: checked, made unique, counted, handed on.
 *
 * What cannot be shown (ps_path_check), comes twice, or would be a file and a directory at once is skipped
 * with a warning; of the warnings PS_NAMES_MAX_WARNINGS are logged, the rest counted. Of a name that comes
 * twice the first one stays.
 *
 * Ownership: the caller's, on its stack. Threads: one. Blocks: on what fn blocks on. */

#define PS_NAMES_MAX_WARNINGS 10
#define PS_LIST_MAX_ENTRIES 2000000
#define PS_LIST_MAX_DEPTH 32

/* One object of a listing. The strings are borrowed for the duration of the call. */
struct ps_listed {
	const char *path; /* below the mount's root, already checked by ps_path_check(): "train/0001.tar" */
	/* without credentials or signatures (the origin remembers those); for get and head */
	const char *url;
	struct ps_remote remote; /* what the listing gave; size unknown: a head is needed */
	/* "sha256:HEX" and the like (base/checksum.h); NULL: remote.checksum has it, or there is none. */
	const char *checksum;
	/* The origin did not show what is at this path, or below it: what is known of that stays. Nothing
	 * else is set. */
	bool unread;
};

/* Return 0 to go on, -errno to stop the listing with that error. */
typedef int (*ps_list_fn)(void *arg, const struct ps_listed *listed);

/* What listings of one source have in common, from one to the next. */
#define PS_LIST_SKIPS_LOGGED 64
struct ps_lister {
	struct ps_listing_filter *filter; /* NULL: all is shown. Borrowed */
	/* the listing was not asked for: what was skipped by an earlier one, too, is not logged again */
	bool quiet;
	uint64_t skips_logged[PS_LIST_SKIPS_LOGGED]; /* hashes; with the above the lister's */
	unsigned nskips_logged;
};

/* A name from outside, fit to be shown below the mount's root? -EINVAL for an empty name, "." or ".." parts,
 * an absolute path, empty parts ("a//b"), control characters, parts past 255 or paths past 4095 bytes, or a
 * first part ".penstock". */
int ps_path_check(const char *path);

struct ps_names {
	struct ps_lister *lister; /* or NULL */
	struct ps_listing_filter *filter;
	ps_list_fn fn;
	void *arg;
	const _Atomic bool *stop;
	struct ps_error *err;
	uint64_t nfiles;

	uint64_t *table; /* hashes of paths, the lowest bit distinguishes files and directories; 0: free */
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

/* What is at the path ("/" at its end or not) could not be listed, and stays as it is known; logs why. As
 * ps_names_add(). */
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
struct ps_common_prefix {
	struct ps_strbuf dir;
	bool any;
};
/* Writes the key of a canonical URL. -EINVAL: its path cannot be decoded. */
int ps_common_prefix_key(const char *url, struct ps_strbuf *ret_key) PS_MUST_USE;
void ps_common_prefix_add(struct ps_common_prefix *common, const char *key);
/* What to show of this key, which was added before; borrowed from key. */
const char *ps_common_prefix_below(const struct ps_common_prefix *common, const char *key);
void ps_common_prefix_fini(struct ps_common_prefix *common);

/* Patterns of a source ----------------------------------------------------------------------------------- */

/* Patterns over the paths of a listing: "*" and "?" stay within a part, "[...]" is a set, a part of "**"
 * stands for any number of parts, braces as in braces.h. "[*]" is a "*".
 *
 * Ownership: ps_glob_new() ... ps_glob_free(). Threads: one. Blocks: never. Errors: -EINVAL, -E2BIG,
 * -ENOMEM. */

struct ps_glob;

bool ps_glob_is_pattern(const char *text);

int ps_glob_new(const char *text, struct ps_glob **ret, struct ps_error *err) PS_MUST_USE;
void ps_glob_free(struct ps_glob *glob);

/* The folder, without "/" at its end, below which all that matches lies; "" is the top. */
const char *ps_glob_dir(const struct ps_glob *glob);
/* Can something match in folders below that one? */
bool ps_glob_is_deep(const struct ps_glob *glob);

bool ps_glob_match(struct ps_glob *glob, const char *path);

/* Names that the braces spell out and that have not been matched, and the first of them in ret (NULL if
 * none); to free(). */
uint64_t ps_glob_unmatched(struct ps_glob *glob, char **ret_first);

/* Listings of web servers -------------------------------------------------------------------------------- */

/* Directory listings of web servers, taken apart: the HTML of nginx, Apache, lighttpd, caddy, Python's
 * http.server and rclone serve; the JSON of nginx (autoindex_format json) and caddy.
 *
 * Sizes and times are given only where they are exact: JSON's, and in nginx's HTML a size in bytes; a rounded
 * one is unknown.
 *
 * The text comes window by window, for a page of a million names takes a hundred megabytes.
 *
 * Ownership: entries are borrowed for the call. Threads: any. Blocks: never.
 * Errors: -EPROTO for what is no listing, -ENOMEM, what fn returned. */

struct ps_listing_entry {
	const char *name; /* decoded, one part of a path; not yet checked by ps_path_check() */
	bool is_dir;
	struct ps_remote remote;
};

struct ps_listing;

typedef int (*ps_listing_fn)(void *arg, const struct ps_listing_entry *entry);

/* page_url: where the text really came from, canonical; links elsewhere are skipped. is_json: what
 * Content-Type said; the text decides in the end. Both strings and err are borrowed. NULL: out of memory. */
struct ps_listing *ps_listing_new(
        bool is_json, const char *page_url, ps_listing_fn fn, void *arg, struct ps_error *err);
void ps_listing_free(struct ps_listing *listing);
/* A ps_window_fn (base/packed.h); arg is the listing. */
int ps_listing_feed(void *listing, const char *text, size_t n, bool more, size_t *ret_used) PS_MUST_USE;

/* JSON arrays -------------------------------------------------------------------------------------------- */

/* An array of JSON objects, one at a time: jansson holds a whole document in memory, some ten times its text.
 * So the array is walked by hand, and each object parsed by itself. One that is not UTF-8 is skipped, with a
 * warning.
 *
 * Ownership: an object is borrowed for the call. Threads: any. Blocks: never. */

/* What it returns other than 0 ends the walk. */
typedef int (*ps_json_fn)(void *arg, const json_t *object);

/* Of an array whose text comes window by window (base/packed.h). */
struct ps_json_array {
	const char *what; /* for errors: "not a directory listing" */
	ps_json_fn fn;
	void *arg;
	struct ps_error *err;
	uint64_t at; /* bytes of the text before the window */
	enum { PS_JSON_BEGIN, PS_JSON_FIRST, PS_JSON_ENTRY, PS_JSON_BEHIND, PS_JSON_END } expected;
};

/* A ps_window_fn, but for its first argument. -EPROTO ("WHAT: JSON, at byte N: ...") for what is no array of
 * objects, -ENOMEM, what fn returned. */
int ps_json_array_feed(
        struct ps_json_array *array, const char *text, size_t n, bool more, size_t *ret_used) PS_MUST_USE;

/* All of it at once. */
int ps_json_array_parse(const char *text, size_t nbytes, const char *what, ps_json_fn fn, void *arg,
        struct ps_error *err) PS_MUST_USE;

/* Listings of buckets ------------------------------------------------------------------------------------ */

/* A page of a bucket's listing: the XML of ListObjectsV2, of ListObjectVersions and of Azure's List Blobs.
 *
 * Ownership: the caller's. Threads: any. Blocks: never. Errors: -EPROTO for what is no listing, -ENOMEM, what
 * fn returned. */

/* What a page says of the whole. */
struct ps_s3_page {
	bool truncated;
	bool encoded; /* keys are: the server did as encoding-type=url asks */
	uint64_t nkeys;
	char *token;                       /* NextContinuationToken, opaque; NULL: none */
	char *key_marker, *version_marker; /* of a listing of versions, as they are to be sent */
};
void ps_s3_page_fini(struct ps_s3_page *page);

struct ps_s3_object {
	const char *key;     /* decoded */
	const char *version; /* "" in a listing of keys */
	struct ps_remote remote;
};
/* Returns 0 to go on. */
typedef int (*ps_s3_object_fn)(void *arg, const struct ps_s3_object *object);

/* Reads the page's own part first: *ret is right, and the whole known to be sound, before fn is called.
 * Delete markers and versions that are not the latest are left out; a key with a NUL or of a broken escape,
 * too, and counted in *ret_nskipped. */
int ps_s3_page_parse(
        const char *text, size_t nbytes, struct ps_s3_page *ret, struct ps_error *err) PS_MUST_USE;
int ps_s3_page_objects(const char *text, size_t nbytes, const struct ps_s3_page *page, ps_s3_object_fn fn,
        void *arg, uint64_t *ret_nskipped, struct ps_error *err) PS_MUST_USE;

/* Manifests ---------------------------------------------------------------------------------------------- */

/* Manifests: a URL or relative path a line, then optionally its size in bytes and a checksum (sha256:HEX and
 * the like), in any order, separated by blanks. "#" starts a comment at the start of a line or after a blank.
 * Lines may end in CRLF, a byte order mark is skipped. Braces expand; size and checksum are then not allowed.
 *
 * The text comes window by window, for one of a million names takes a hundred megabytes.
 *
 * Ownership: an entry's strings are borrowed for the call. Threads: any. Blocks: never.
 * Errors: -EINVAL with the line's number, -E2BIG past PS_LIST_MAX_ENTRIES, -ENOMEM, what fn returned. */

struct ps_manifest_entry {
	const char *url;      /* absolute, as written: with its secrets */
	uint64_t size;        /* PS_SIZE_UNKNOWN if not given */
	const char *checksum; /* "sha256:0123..." in lower case, NULL if not given */
};

typedef int (*ps_manifest_fn)(void *arg, const struct ps_manifest_entry *entry);

/* Calls fn for every entry, in order; what it returns other than 0 ends the parse. base: the manifest's own
 * URL. */
int ps_manifest_parse(const struct ps_packed *text, const char *base, ps_manifest_fn fn, void *arg,
        struct ps_error *err) PS_MUST_USE;

/* The same for a text that comes otherwise: base and err are borrowed until free. NULL: out of memory. */
struct ps_manifest;
struct ps_manifest *ps_manifest_new(const char *base, ps_manifest_fn fn, void *arg, struct ps_error *err);
void ps_manifest_free(struct ps_manifest *m);
/* A ps_window_fn (base/packed.h); arg is the manifest. */
int ps_manifest_feed(void *manifest, const char *text, size_t n, bool more, size_t *ret_used) PS_MUST_USE;

#endif
