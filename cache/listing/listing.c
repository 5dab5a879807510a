#include "listing/listing.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "listing/listing_private.h"

struct ps_listing *ps_listing_new(
        bool is_json, const char *page_url, ps_listing_fn fn, void *arg, struct ps_error *err)
{
	struct ps_listing *l = calloc(1, sizeof *l);

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

/* By how the text begins; *ret_start: what comes before that. */
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
		ps_listing_json_init(l);
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
	                                : ps_listing_json_feed(l, text + start, n - start, more, &used);
	*ret_used = start + used;
	return rc;
}
