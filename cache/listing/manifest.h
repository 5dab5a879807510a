/* Manifests: a URL or relative path a line, then optionally its size in bytes and a checksum (sha256:HEX and
 * the like), in any order, separated by blanks. "#" starts a comment at the start of a line or after a blank.
 * Lines may end in CRLF, a byte order mark is skipped. Braces expand; size and checksum are then not allowed.
 *
 * The text comes window by window, for one of a million names takes a hundred megabytes.
 *
 * Ownership: an entry's strings are borrowed for the call. Threads: any. Blocks: never.
 * Errors: -EINVAL with the line's number, -E2BIG past PS_LIST_MAX_ENTRIES, -ENOMEM, what fn returned. */
#ifndef PS_LISTING_MANIFEST_H
#define PS_LISTING_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/packed.h"

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
