/* The two kinds of web listings: HTML in html.c, JSON in listing.c, which recognizes the kind. */
#ifndef PS_LISTING_LISTING_PRIVATE_H
#define PS_LISTING_LISTING_PRIVATE_H

#include "base/strbuf.h"
#include "listing/listing.h"

struct ps_listing_html {
	const char *s, *end; /* the part of the window that is not parsed yet */
	/* end of the comment, script or style that the scanner is in; NULL: in markup */
	const char *skip_to;
	struct ps_strbuf authority; /* of the page: "https://host:port" */
	struct ps_strbuf dir;       /* of the page: decoded path up to the last "/" */
	struct ps_strbuf href, decoded;
	bool more; /* more text follows `end` */
};

struct ps_listing {
	enum { PS_LISTING_NEW, PS_LISTING_HTML, PS_LISTING_JSON } kind;
	bool is_json;
	const char *page_url;
	ps_listing_fn fn;
	void *arg;
	struct ps_error *err;
	struct ps_listing_html html;
	struct ps_json_array json;
};

int ps_listing_html_init(struct ps_listing *l) PS_MUST_USE;
void ps_listing_html_fini(struct ps_listing *l);
int ps_listing_html_feed(
        struct ps_listing *l, const char *text, size_t n, bool more, size_t *ret_used) PS_MUST_USE;

void ps_listing_json_init(struct ps_listing *l);

#endif
