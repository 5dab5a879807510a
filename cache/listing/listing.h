/* Directory listings of web servers, taken apart: the HTML of nginx, Apache, lighttpd, caddy, Python's
 * http.server and rclone serve; the JSON of nginx (autoindex_format json) and caddy.
 *
 * Sizes and times are told only where they are exact: JSON's, and in nginx's HTML a size in bytes; a rounded
 * one is unknown.
 *
 * The text comes window by window, for a page of a million names takes a hundred megabytes.
 *
 * Ownership: entries are borrowed for the call. Threads: any. Blocks: never.
 * Errors: -EPROTO for what is no listing, -ENOMEM, what fn returned. */
#ifndef PS_LISTING_LISTING_H
#define PS_LISTING_LISTING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/remote.h"

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

#endif
