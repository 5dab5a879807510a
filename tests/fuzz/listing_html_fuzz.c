/* HTML listings: any bytes give entries with sound single names, or an error. */
#include <stdlib.h>
#include <string.h>

#include "origin/listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(void *arg, const struct ps_listing_entry *e)
{
	(void)arg;
	if (!*e->name || strchr(e->name, '/') || strcmp(e->name, "..") == 0 || strcmp(e->name, ".") == 0)
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)!ps_listing_html_parse(
	        (const char *)data, size, "http://host:8080/a%20b/dir/", look, NULL, NULL);
	return 0;
}
