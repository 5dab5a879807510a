/* A web server's listing: HTML (html.c) or JSON. The beginning of the text decides which. */
#include "listing/listing.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "listing/listing_private.h"

struct ps_listing *ps_listing_new(
        bool is_json, const char *page_url, ps_listing_fn fn, void *arg, struct ps_error *err)
{
	struct ps_listing *l = calloc(1, sizeof(*l));

	if (l)
		*l = (struct ps_listing){
		        .is_json = is_json, .page_url = page_url, .fn = fn, .arg = arg, .err = err};
	return l;
}

void ps_listing_free(struct ps_listing *l)
{
	if (!l)
		return;
	ps_listing_html_fini(l);
	free(l);
}

static int64_t parse_time(const json_t *j)
{
	const char *s = json_string_value(j);

	if (!s)
		return -1;
	if (isdigit((unsigned char)s[0]))
		return ps_clock_parse_rfc3339(s);
	time_t t = curl_getdate(s, NULL);
	return t < 0 ? -1 : (int64_t)t;
}

/* nginx: {"name", "type": "file", "mtime", "size"}; caddy: {"name", "size", "mod_time", "is_dir", ...}. */
static int take_entry(void *arg, const json_t *j)
{
	const struct ps_listing *listing = arg;
	struct ps_listing_entry entry = {.remote = PS_REMOTE_UNKNOWN};
	const char *type = json_string_value(json_object_get(j, "type"));
	const json_t *is_dir = json_object_get(j, "is_dir"), *size = json_object_get(j, "size");
	const json_t *mtime = json_object_get(j, "mtime");
	const char *text = json_string_value(json_object_get(j, "name"));
	ps_autostrbuf struct ps_strbuf name = {0};

	if (json_is_string(j)) {
		entry.name = json_string_value(j);
		entry.why = PS_NOT_UNICODE;
		return listing->fn(listing->arg, &entry);
	}
	if (!text || (!type && !is_dir && !size))
		return 0;
	ps_strbuf_add(&name, text);
	if (name.failed)
		return -ENOMEM;
	entry.is_dir = type ? strcmp(type, "directory") == 0 : json_is_true(is_dir);
	if (type && !entry.is_dir && strcmp(type, "file") != 0)
		return 0; /* "other" is a device or a socket */
	if (entry.is_dir && name.len && name.s[name.len - 1] == '/')
		name.s[--name.len] = '\0';
	entry.name = ps_strbuf_peek(&name);
	if (!entry.is_dir && json_is_integer(size) && json_integer_value(size) >= 0)
		entry.remote.size = (uint64_t)json_integer_value(size);
	if (!entry.is_dir)
		entry.remote.mtime_s = parse_time(mtime ? mtime : json_object_get(j, "mod_time"));
	return listing->fn(listing->arg, &entry);
}

void ps_listing_json_init(struct ps_listing *l)
{
	l->json = (struct ps_json_array){
	        .what = "not a directory listing", .fn = take_entry, .arg = l, .err = l->err};
}

/* Decides by the text's beginning whether it is HTML or JSON. *ret_start: the offset of the first character
 * after the byte order mark and blanks. */
static int find_kind(struct ps_listing *l, const char *text, size_t n, size_t *ret_start)
{
	size_t i = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

	while (i < n && isspace((unsigned char)text[i]))
		i++;
	*ret_start = i;
	if (i < n && text[i] == '<') {
		l->kind = PS_LISTING_HTML;
		return ps_listing_html_init(l);
	}
	if (i < n && (text[i] == '[' || l->is_json)) {
		l->kind = PS_LISTING_JSON;
		/* caddy writes an empty directory as null. */
		bool empty = n - i >= 4 && memcmp(text + i, "null", 4) == 0;

		ps_listing_json_init(l);
		if (empty)
			l->json.expected = PS_JSON_END;
		return 0;
	}
	return ps_error_set(l->err, EPROTO, "not a directory listing (neither HTML nor JSON)");
}

int ps_listing_feed(void *listing, const char *text, size_t n, bool more, size_t *ret_used)
{
	struct ps_listing *l = listing;
	size_t start = 0, used = 0;
	int rc = l->kind == PS_LISTING_NEW ? find_kind(l, text, n, &start) : 0;

	if (rc)
		return rc;
	rc = l->kind == PS_LISTING_HTML ? ps_listing_html_feed(l, text + start, n - start, more, &used)
	                                : ps_json_array_feed(&l->json, text + start, n - start, more, &used);
	*ret_used = start + used;
	return rc;
}
