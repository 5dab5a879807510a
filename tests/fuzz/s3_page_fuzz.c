/* Any bytes as a page of a bucket's listing: they give objects whose keys have valid paths, or an error. */
#include <stdlib.h>
#include <string.h>

#include "listing/listing.h"
#include "base/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int look(void *arg, const struct ps_s3_object *o)
{
	struct ps_strbuf path = {0};
	size_t longest = 0;

	(void)arg;
	ps_s3_path(o->key, &path);
	for (const char *s = ps_strbuf_peek(&path); *s; s += strcspn(s, "/"), s += *s == '/')
		longest = strcspn(s, "/") > longest ? strcspn(s, "/") : longest;
	if (!*o->key || (o->remote.size > INT64_MAX && o->remote.size != PS_SIZE_UNKNOWN))
		abort();
	if (longest <= 255 && path.len <= 4095 && ps_path_check(path.s) < 0)
		abort();
	ps_strbuf_fini(&path);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ps_s3_page page;
	uint64_t nskipped;

	if (ps_s3_page_parse((const char *)data, size, &page, NULL) < 0)
		return 0;
	if (page.truncated && !page.token && !page.key_marker)
		abort();
	if (ps_s3_page_objects((const char *)data, size, &page, look, NULL, &nskipped, NULL) < 0)
		abort(); /* the page as a whole was found valid */
	ps_s3_page_fini(&page);
	return 0;
}
