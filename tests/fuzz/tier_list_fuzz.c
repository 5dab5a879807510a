/* A list of tiers: any text gives URLs of scheme, host and port alone, or an error with a text. */
#include <stdlib.h>
#include <string.h>

#include "tier/tier_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_tier_urls urls = {0};
	struct ps_error err = {0};
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	int rc = ps_tier_list_parse(text, &urls, &err);
	if ((rc != 0) != (err.err != 0))
		abort();
	for (size_t i = 0; i < urls.n; i++) {
		const char *host = strstr(urls.v[i], "://");

		if (!host || strpbrk(host + 3, "/?#@"))
			abort();
	}
	ps_tier_urls_fini(&urls);
	free(text);
	return 0;
}
