/* Manifests: any bytes give entries with absolute URLs, or an error. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "listing/listing.h"
#include "windows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Braces may stand for millions of names: some of them are enough. */
static int look(void *arg, const struct ps_manifest_entry *e)
{
	if (!strstr(e->url, ":"))
		abort();
	return ++*(int *)arg > 200 ? -ECANCELED : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int n = 0;
	struct ps_manifest *m = ps_manifest_new("https://host/dir/list.txt", look, &n, NULL);

	if (!m)
		abort();
	feed_windows(ps_manifest_feed, m, (const char *)data, size);
	ps_manifest_free(m);
	return 0;
}
