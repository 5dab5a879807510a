/* JSON listings: any bytes give entries with single names, or an error. */
#include <stdlib.h>
#include <string.h>

#include "origin/listing_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(void *arg, const struct ps_listing_entry *e)
{
	(void)arg;
	if (!*e->name || strchr(e->name, '/') || (e->is_dir && e->remote.size != PS_SIZE_UNKNOWN))
		abort();
	return 0;
}

/* In windows of the text, as it would come from a server. */
static void feed(struct ps_listing *l,
        int (*fn)(struct ps_listing *l, const char *text, size_t n, bool more, size_t *ret_used), const char *text,
        size_t size)
{
	size_t step = size / 3 + 1, have = 0, used;
	int rc;

	do {
		have += step < size - have ? step : size - have;
		used = 0;
		rc = fn(l, text, have, have < size, &used);
		if (used > have)
			abort();
		text += used;
		size -= used;
		have -= used;
	} while (rc == 0 && have < size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_listing *l = ps_listing_new(true, "http://host:8080/a%20b/dir/", look, NULL, NULL);

	if (!l)
		abort();
	ps_listing_json_init(l);
	feed(l, ps_listing_json_feed, (const char *)data, size);
	ps_listing_free(l);
	return 0;
}
