/* JSON listings: any bytes give entries with single names, or an error. */
#include <stdlib.h>
#include <string.h>

#include "origin/listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(void *arg, const struct ps_listing_entry *e)
{
	(void)arg;
	if (!*e->name || strchr(e->name, '/') || (e->is_dir && e->remote.size != PS_SIZE_UNKNOWN))
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)!ps_listing_json_parse((const char *)data, size, look, NULL, NULL);
	return 0;
}
