#include "origin/listing.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

int ps_listing_parse(const char *text, size_t nbytes, bool is_json, const char *page_url, ps_listing_fn fn,
        void *arg, struct ps_error *err)
{
	size_t i = nbytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

	while (i < nbytes && isspace((unsigned char)text[i]))
		i++;
	text += i;
	nbytes -= i;
	if (nbytes && text[0] == '<')
		return ps_listing_html_parse(text, nbytes, page_url, fn, arg, err);
	if (nbytes && (text[0] == '[' || is_json))
		return ps_listing_json_parse(text, nbytes, fn, arg, err);
	return ps_error_set(err, EPROTO, "not a directory listing (neither HTML nor JSON)");
}
