/* Sources, URLs and response headers. A canonical URL stays as it is and has no user and no signature, a
 * redacted URL fits its buffer, and no header makes a wrong range acceptable. */
#include <stdlib.h>
#include <string.h>

#include "http/http.h"
#include "origin/origin.h"
#include "base/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_url(const char *text)
{
	char safe[PS_URL_TEXT_LEN];
	struct ps_url u;

	ps_url_redact(text, safe);
	if (strlen(safe) >= PS_URL_TEXT_LEN)
		abort();
	if (ps_url_parse(text, &u, NULL) < 0)
		return;
	char *once = ps_url_compose(&u), *twice = NULL;
	ps_url_fini(&u);
	if (once && ps_url_parse(once, &u, NULL) == 0) {
		if (u.user || u.signature)
			abort();
		twice = ps_url_compose(&u);
		ps_url_fini(&u);
		if (twice && strcmp(once, twice) != 0)
			abort();
	}
	free(once);
	free(twice);
}

static void try_source(const char *text)
{
	if (text[0] != '@' && text[0] != '/')
		free(ps_source_canonical(text, NULL));
}

static void try_headers(const char *text)
{
	struct ps_http_response r = {0};
	struct ps_remote expect = {.size = 1000, .mtime_s = -1, .etag = "\"v\""};

	while (*text) {
		size_t n = strcspn(text, "\n");

		ps_http_response_line(&r, text, n);
		text += n + (text[n] == '\n');
	}
	/* A 200 is also accepted as the range if its length is that of the range. */
	if (ps_http_response_check_range(&r, &expect, 100, 50, NULL) == 0 &&
	        ((r.status != 206 && (r.status != 200 || r.content_length != 50)) || r.range_first != 100 ||
	                r.range_nbytes != 50 || r.encoded))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	try_url(text);
	try_source(text);
	try_headers(text);
	free(text);
	return 0;
}
