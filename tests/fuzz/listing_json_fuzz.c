/* JSON listings: any bytes give entries with names of one component, or an error. */
#include <stdlib.h>
#include <string.h>

#include "listing/listing_private.h"
#include "windows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(void *arg, const struct ps_listing_entry *e)
{
	(void)arg;
	if (!*e->name || strchr(e->name, '/') || (e->is_dir && e->remote.size != PS_SIZE_UNKNOWN))
		abort();
	return 0;
}

static int feed(void *arg, const char *text, size_t n, bool more, size_t *ret_used)
{
	struct ps_listing *l = arg;

	return ps_json_array_feed(&l->json, text, n, more, ret_used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_listing *l = ps_listing_new(true, "http://host:8080/a%20b/dir/", look, NULL, NULL);

	if (!l)
		abort();
	ps_listing_json_init(l);
	feed_windows(feed, l, (const char *)data, size);
	ps_listing_free(l);
	return 0;
}
