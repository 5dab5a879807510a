/* Manifests: any bytes give entries with absolute URLs, or an error. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "origin/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Braces may stand for millions: enough have been seen after some. */
static int look(void *arg, const struct ps_manifest_entry *e)
{
	if (!strstr(e->url, ":"))
		abort();
	return ++*(int *)arg > 200 ? -ECANCELED : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int n = 0;

	(void)!ps_manifest_parse((const char *)data, size, "https://host/dir/list.txt", look, &n, NULL);
	return 0;
}
