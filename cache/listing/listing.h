/* Listings: parsing what servers and manifests list of a source, and choosing which of these names are
 * shown.
 *
 * Files, from the top: listing.c (JSON of web servers) uses html.c and json_array.c; names.c (checking
 * names) uses patterns.c (--include, --exclude, globs); manifest.c, bucket_xml.c (S3, Azure) and split.c use
 * none of them. No network. Each section describes ownership, threads and errors. */
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

/* Shown files -------------------------------------------------------------------------------------------- */

/* Which files of a listing are shown: --include and --exclude, the same for every kind of source.
 *
 * A pattern is compared with a file's path below its source, as the origin names it ("a/x.tar.zst"), and
 * with the last part of that path. It is compared with each folder above the file in the same way: a
 * pattern that matches a folder covers everything below it. "*" and "?" also match "/", "[...]" is a set,
 * braces are those of braces.h. A file is shown if it matches an include (or there are no includes) and no
 * exclude. Indexes follow their shards: NAME.psx is shown with NAME, and SHARDS.psc if an include could
 * match a file beside it.
 *
 * Ownership: ps_listing_filter_new() ... ps_listing_filter_free(). Threads: any; after new, only the flags
 * that record which patterns have matched are changed. Never blocks. */

#define PS_LISTING_FILTER_MAX_NAMES 1000000 /* limit of the names that the braces of one pattern expand to */
/* expansions with "*", "?" or "[": each is compared with each file */
#define PS_LISTING_FILTER_MAX_WILD 1000

struct ps_listing_filter;

/* include and exclude are NULL-terminated lists, or NULL. If both are empty, *ret is NULL: all files are
 * shown. Errors: -EINVAL, -E2BIG, -ENOMEM. */
int ps_listing_filter_new(const char *const *include, const char *const *exclude,
        struct ps_listing_filter **ret, struct ps_error *err) PS_MUST_USE;
void ps_listing_filter_free(struct ps_listing_filter *filter);

/* True if the file is shown; filter NULL: always. */
bool ps_listing_filter_shows(struct ps_listing_filter *filter, const char *path);
/* False: no file below this folder is shown, so it need not be listed. dir ends in "/". */
bool ps_listing_filter_enters(struct ps_listing_filter *filter, const char *dir);

/* True if the file is a catalogue of the shards beside it. */
bool ps_listing_filter_is_catalogue(const char *path);

/* Call it once all names of a listing were compared: from now on *ret_unmatched below is valid. */
void ps_listing_filter_listed(struct ps_listing_filter *filter);
/* The ith pattern as it was given, includes first; NULL: no more, or filter is NULL. *ret_unmatched: no
 * name of a complete listing matched it. */
const char *ps_listing_filter_pattern(
        const struct ps_listing_filter *filter, size_t i, bool *ret_exclude, bool *ret_unmatched);

/* Names -------------------------------------------------------------------------------------------------- */

/* The names of a listing: checked, made unique, counted and passed on to fn.
 *
 * A name is skipped with a warning if it cannot be shown (ps_path_check), comes a second time, or would be
 * both a file and a directory. PS_NAMES_MAX_WARNINGS warnings are logged, the rest is counted.
 *
 * Ownership: the caller's, on its stack. Threads: one. Blocks if fn does. */

#define PS_NAMES_MAX_WARNINGS 10
#define PS_LIST_MAX_ENTRIES 20000000
/* A listing ends with an error after this many pages in a row, or this time, without a new name. Many: a store
 * may have millions of deleted keys in a row. */
#define PS_LIST_IDLE_PAGES 2000
#define PS_LIST_IDLE_MS 600000
#define PS_LIST_MAX_DEPTH 64
#define PS_NAMES_TABLES 256

/* One object of a listing. The strings are borrowed for the duration of the call. */
struct ps_listed {
	const char *path; /* below the mount's root, already checked by ps_path_check(): "train/0001.tar" */
	/* for get and head; without credentials or signatures, which the origin remembers */
	const char *url;
	struct ps_remote remote; /* as the listing gave it; if the size is unknown, a head is needed */
	/* "sha256:HEX" and the like (base/checksum.h); NULL: remote.checksum has it, or there is none. */
	const char *checksum;
	bool stated; /* remote.size is what the user's list says, not what the origin has said */
	/* The origin could not list this path: known names at it and below it stay. No other member but
	 * path is set. */
	bool unread;
	/* The path is a directory with no entry that is shown. No other member but path is set. */
	bool is_dir;
};

/* Return 0 to go on, -errno to stop the listing with that error. */
typedef int (*ps_list_fn)(void *arg, const struct ps_listed *listed);

/* State that successive listings of one source share. */
#define PS_LIST_SKIPS_LOGGED 64
struct ps_lister {
	struct ps_listing_filter *filter; /* borrowed; NULL: all files are shown */
	/* the listing was not requested by a user: skips that an earlier listing logged are not logged
	 * again */
	bool quiet;
	uint64_t skips_logged[PS_LIST_SKIPS_LOGGED]; /* hashes of names whose skip was logged */
	unsigned nskips_logged;
	_Atomic uint64_t nskipped; /* entries that the last listing had and that are not shown */
};

/* Checks that an untrusted name may be shown below the mount's root. -EINVAL for an empty name, "." or ".."
 * parts, an absolute path, empty parts ("a//b"), control characters, parts past 255 or paths past 4095
 * bytes, or a first part ".penstock". */
int ps_path_check(const char *path);

struct ps_names {
	struct ps_lister *lister; /* or NULL */
	struct ps_listing_filter *filter;
	ps_list_fn fn;
	void *arg;
	const _Atomic bool *stop;
	struct ps_error *err;
	uint64_t nfiles;
	uint64_t idle_pages, idle_ns; /* pages in a row without a new name, and when they began */

	/* Hashes of paths, in a table for each first byte of a hash, so that only a small part is copied when
	 * one grows. The lowest bit distinguishes files from directories; 0: free. */
	struct ps_names_table {
		uint64_t *slots;
		uint64_t nused, nslots;
	} tables[PS_NAMES_TABLES];
	struct ps_strbuf last_dir; /* the last directory that was added, with its parents */
	unsigned nwarnings;
	uint64_t nskipped;
	bool quiet; /* log no warnings */
	bool again; /* the listing has begun again: names that were passed on are skipped without a warning */
};

/* lister: has the filter; NULL: all names are passed on. */
void ps_names_init(struct ps_names *names, struct ps_lister *lister, ps_list_fn fn, void *arg,
        const _Atomic bool *stop, struct ps_error *err);
void ps_names_fini(struct ps_names *names); /* logs the number of warnings that were not logged */

/* 0: passed on, or skipped. -errno with *names->err: the listing is over. */
int ps_names_add(struct ps_names *names, const struct ps_listed *listed) PS_MUST_USE;

/* The same for a directory in which no entry is shown; path may end in "/". at_origin: it has no entry at all;
 * else, it is passed on only if no pattern chooses files. Directories of files need no call. */
int ps_names_add_dir(struct ps_names *names, const char *path, bool at_origin) PS_MUST_USE;

/* The path (with or without "/" at its end) could not be listed: names at it and below it stay. Logs why.
 * Returns as ps_names_add(). */
int ps_names_unread(struct ps_names *names, const char *path, const char *why) PS_MUST_USE;
/* False: no file below this folder is shown. dir ends in "/". */
bool ps_names_enters(const struct ps_names *names, const char *dir);

/* A page of the listing was taken; brought: it had names that no page before it had. -EPROTO, -ETIMEDOUT: see
 * PS_LIST_IDLE_PAGES. */
int ps_names_page(struct ps_names *names, bool brought) PS_MUST_USE;

/* True if path[0..n) was passed on as a file. */
bool ps_names_is_file(const struct ps_names *names, const char *path, size_t n);

/* Counts a skipped entry and logs "list: WHAT: WHY", up to the limit of warnings; both texts may be untrusted. */
#define PS_NOT_UNICODE "skipped: its name is not Unicode, as JSON requires"
void ps_names_warn(struct ps_names *names, const char *what, const char *why);

/* -ECANCELED with a text if *stop is set. */
int ps_names_stopped(struct ps_names *names) PS_MUST_USE;
/* "listing: out of memory"; returns -ENOMEM. */
int ps_names_no_memory(struct ps_names *names);

/* The common prefix of many URLs, up to a "/": "host/dir/". Names are shown below it. The key of a URL is
 * its host, port and decoded path. */
struct ps_common_prefix {
	struct ps_strbuf dir;
	bool any;
};
/* Writes the key of a canonical URL. -EINVAL: its path cannot be decoded. */
int ps_common_prefix_key(const char *url, struct ps_strbuf *ret_key) PS_MUST_USE;
void ps_common_prefix_add(struct ps_common_prefix *common, const char *key);
/* The part of the key that is shown; borrowed from key. Precondition: the key was added. */
const char *ps_common_prefix_below(const struct ps_common_prefix *common, const char *key);
void ps_common_prefix_fini(struct ps_common_prefix *common);

/* Patterns of a source ----------------------------------------------------------------------------------- */

/* Patterns over the paths of a listing: "*" and "?" do not match "/", "[...]" is a set, a part "**" matches
 * any number of parts, braces are those of braces.h. "[*]" matches a "*".
 *
 * Ownership: ps_glob_new() ... ps_glob_free(). Threads: one. Never blocks. Errors: -EINVAL, -E2BIG,
 * -ENOMEM. */

#define PS_GLOB_MAX_NAMES 2000000 /* limit of the names that the braces expand to; they are kept in memory */

struct ps_glob;

bool ps_glob_is_pattern(const char *text);

int ps_glob_new(const char *text, struct ps_glob **ret, struct ps_error *err) PS_MUST_USE;
void ps_glob_free(struct ps_glob *glob);

/* The deepest folder that contains all possible matches, without "/" at its end; "" is the top. */
const char *ps_glob_dir(const struct ps_glob *glob);
/* True if files in folders below ps_glob_dir() can match. */
bool ps_glob_is_deep(const struct ps_glob *glob);

bool ps_glob_match(struct ps_glob *glob, const char *path);

/* Returns the number of names without "*", "?" or "[", after braces were expanded, that have not matched.
 * *ret_first: the first of them, which the caller frees, or NULL. */
uint64_t ps_glob_unmatched(struct ps_glob *glob, char **ret_first);

/* Listings of web servers -------------------------------------------------------------------------------- */

/* Parses directory listings of web servers: the HTML of nginx, Apache, lighttpd, caddy, Python's
 * http.server and rclone serve; the JSON of nginx (autoindex_format json) and caddy.
 *
 * Sizes and times are reported only if they are exact: those of JSON, and in nginx's HTML sizes in bytes. A
 * rounded size counts as unknown.
 *
 * The text comes window by window, because a page of a million names has a hundred megabytes. Ownership:
 * entries are borrowed for the call. Threads: any. Never blocks. Errors: -EPROTO if the text is not a
 * listing, -ENOMEM, and what fn returned. */

struct ps_listing_entry {
	const char *name; /* decoded; not yet checked by ps_path_check() */
	const char
	        *why; /* NULL, or why the entry has no name that can be shown; name is a text for the log */
	bool is_dir;
	struct ps_remote remote;
};

struct ps_listing;

typedef int (*ps_listing_fn)(void *arg, const struct ps_listing_entry *entry);

/* page_url: the canonical URL of the page after redirects; links to other places are skipped. is_json: the
 * Content-Type is that of JSON; this counts only if the text begins with neither "<" nor "[". page_url and
 * err are borrowed. NULL: out of memory. */
struct ps_listing *ps_listing_new(
        bool is_json, const char *page_url, ps_listing_fn fn, void *arg, struct ps_error *err);
void ps_listing_free(struct ps_listing *listing);
/* A ps_window_fn (base/packed.h); arg is the listing. */
int ps_listing_feed(void *listing, const char *text, size_t n, bool more, size_t *ret_used) PS_MUST_USE;

/* JSON arrays -------------------------------------------------------------------------------------------- */

/* Reads an array of JSON objects one at a time. jansson keeps a whole document in memory, about ten times
 * the size of its text, so the array is walked by hand, and each object is parsed by itself. In place of an
 * object with a text that is not Unicode, fn gets a JSON string: the object's text as far as it is printable.
 *
 * Ownership: an object is borrowed for the call. Threads: any. Never blocks. */

/* A non-zero return ends the walk. */
typedef int (*ps_json_fn)(void *arg, const json_t *object);

/* The walk over an array whose text comes window by window (base/packed.h). */
struct ps_json_array {
	const char *what; /* for errors: "not a directory listing" */
	ps_json_fn fn;
	void *arg;
	struct ps_error *err;
	uint64_t at; /* bytes of the text before the window */
	enum { PS_JSON_BEGIN, PS_JSON_FIRST, PS_JSON_ENTRY, PS_JSON_BEHIND, PS_JSON_END } expected;
};

/* A ps_window_fn, except for its first argument. -EPROTO ("WHAT: JSON, at byte N: ...") if the text is not
 * an array of objects, -ENOMEM, and what fn returned. */
int ps_json_array_feed(
        struct ps_json_array *array, const char *text, size_t n, bool more, size_t *ret_used) PS_MUST_USE;

/* The same for a whole text. */
int ps_json_array_parse(const char *text, size_t nbytes, const char *what, ps_json_fn fn, void *arg,
        struct ps_error *err) PS_MUST_USE;

/* Listings of buckets ------------------------------------------------------------------------------------ */

/* A page of a bucket's listing: the XML of ListObjectsV2, of ListObjectVersions and of Azure's List Blobs.
 *
 * Ownership: the caller's. Threads: any. Never blocks. Errors: -EPROTO if the text is not a listing,
 * -ENOMEM, and what fn returned. */

/* A page's data about the whole listing. */
struct ps_s3_page {
	bool truncated;
	bool encoded; /* keys are URL-encoded, as encoding-type=url requests */
	uint64_t nkeys;
	char *last_key; /* of a listing of keys; decoded; NULL: there is no key, or it cannot be decoded */
	char *token;    /* NextContinuationToken, opaque; NULL: none */
	char *key_marker, *version_marker; /* where the next page of a listing of versions begins; decoded */
};
void ps_s3_page_fini(struct ps_s3_page *page);

struct ps_s3_object {
	const char *key;     /* decoded */
	const char *version; /* "" in a listing of keys */
	struct ps_remote remote;
};
/* Returns 0 to go on. */
typedef int (*ps_s3_object_fn)(void *arg, const struct ps_s3_object *object);

/* Call parse first: it checks the whole page and fills in *ret. Then objects calls fn for each object.
 * Delete markers and versions that are not the latest are left out. Keys with a NUL or a broken escape are
 * left out, too, and counted in *ret_nskipped. */
int ps_s3_page_parse(
        const char *text, size_t nbytes, struct ps_s3_page *ret, struct ps_error *err) PS_MUST_USE;
int ps_s3_page_objects(const char *text, size_t nbytes, const struct ps_s3_page *page, ps_s3_object_fn fn,
        void *arg, uint64_t *ret_nskipped, struct ps_error *err) PS_MUST_USE;

/* Splitting a listing ------------------------------------------------------------------------------------ */

/* A key that splits what is left of a listing in two, guessed from the keys so far.
 *
 * A store lists keys in the order of their bytes, and can begin after any text. But its answers have neither
 * the number of keys nor the last key. A bad guess costs a request without keys.
 *
 * Ownership: the caller's. Threads: any. Never blocks. */

#define PS_SPLIT_KEY_MAX_LEN 1024 /* longest key of a store */

/* The characters that were seen in keys. */
struct ps_split_alphabet {
	bool ascii[128];
	uint32_t max; /* the greatest other code point; 0: none */
};
void ps_split_note(struct ps_split_alphabet *alphabet, const char *key);

/* Finds a text between `at` (the last key that was listed) and `end` (NULL: there is no limit), excluding
 * both. All keys begin with at[0..nprefix); the keys listed so far begin with at[0..ncommon). False: none was
 * found, or there is no memory.
 *
 * The text is UTF-8 if `at` is, and ends in DEL: hardly any folder has a name that ends so. With such texts,
 * a key is listed before the keys of a folder of the same name (origin/bucket_list.c has the proof). */
bool ps_split_between(const struct ps_split_alphabet *alphabet, const char *at, const char *end,
        size_t nprefix, size_t ncommon, struct ps_strbuf *ret) PS_MUST_USE;

/* Manifests ---------------------------------------------------------------------------------------------- */

/* Manifests: each line has a URL or relative path, then optionally its size in bytes and a checksum
 * (sha256:HEX and the like), in any order, separated by blanks. "#" starts a comment at the start of a line
 * or after a blank. Lines may end in CRLF, a byte order mark is skipped. Braces expand; size and checksum
 * are then not allowed.
 *
 * The text comes window by window, because a manifest of a million names has a hundred megabytes.
 * Ownership: an entry's strings are borrowed for the call. Threads: any. Never blocks. Errors: -EINVAL with
 * the line's number, -E2BIG beyond PS_LIST_MAX_ENTRIES, -ENOMEM, and what fn returned. */

struct ps_manifest_entry {
	const char *url;      /* absolute, as written, with its secrets */
	uint64_t size;        /* PS_SIZE_UNKNOWN if not given */
	const char *checksum; /* "sha256:0123..." in lower case, NULL if not given */
};

typedef int (*ps_manifest_fn)(void *arg, const struct ps_manifest_entry *entry);

/* Calls fn for every entry, in order; a non-zero return ends the parse. base: the manifest's own URL. */
int ps_manifest_parse(const struct ps_packed *text, const char *base, ps_manifest_fn fn, void *arg,
        struct ps_error *err) PS_MUST_USE;

/* The same for a text that is fed window by window. base and err are borrowed until free. NULL: out of
 * memory. */
struct ps_manifest;
struct ps_manifest *ps_manifest_new(const char *base, ps_manifest_fn fn, void *arg, struct ps_error *err);
void ps_manifest_free(struct ps_manifest *m);
/* A ps_window_fn (base/packed.h); arg is the manifest. */
int ps_manifest_feed(void *manifest, const char *text, size_t n, bool more, size_t *ret_used) PS_MUST_USE;

#endif
