/* HTML listings: any bytes give entries with valid names of one component, or an error. */
#include <stdlib.h>
#include <string.h>

#include "listing/listing_private.h"
#include "windows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(void *arg, const struct ps_listing_entry *e)
{
	(void)arg;
	if (!*e->name || strchr(e->name, '/') || strcmp(e->name, "..") == 0 || strcmp(e->name, ".") == 0)
		abort();
	return 0;
}

static int feed(void *l, const char *text, size_t n, bool more, size_t *ret_used)
{
	return ps_listing_html_feed(l, text, n, more, ret_used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_listing *l = ps_listing_new(false, "http://host:8080/a%20b/dir/", look, NULL, NULL);

	if (!l || ps_listing_html_init(l) < 0)
		abort();
	feed_windows(feed, l, (const char *)data, size);
	ps_listing_free(l);
	return 0;
}
