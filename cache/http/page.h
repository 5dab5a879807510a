/* GET of a whole small body: a directory listing, a manifest. With retries, backoff and a stop flag.
 *
 * Ownership: a page is made by start and freed by free, which ends it first if need be.
 * Threads: the one that started it. Blocks: start never, wait on the network. */
#ifndef PS_HTTP_PAGE_H
#define PS_HTTP_PAGE_H

#include <stdbool.h>

#include "base/packed.h"
#include "http/request.h"

/* A retryable error is one after so many tries, or when so much time has passed: a person waits for the
 * mount. */
#define PS_PAGE_MAX_TRIES 6
#define PS_PAGE_UNREACHABLE_TRIES 3 /* of a host that is not there: most likely a mistyped one */
#define PS_PAGE_MAX_MS 20000

struct ps_http_page;

/* NULL: out of memory. max_nbytes: a longer body is EFBIG. */
struct ps_http_page *ps_http_page_start(struct ps_http_client *c, const char *url, uint64_t max_nbytes);
/* One whose text may be very long: it is kept compressed. */
struct ps_http_page *ps_http_page_start_packed(
        struct ps_http_client *c, const char *url, uint64_t max_nbytes);

/* What came of it; the strings are the page's. */
struct ps_page_body {
	const char *text; /* NULL: see packed */
	size_t nbytes;
	const struct ps_packed *packed; /* NULL: see text */
	const char *url; /* after redirects */
	bool is_json;
	const char *next; /* Link: <...>; rel="next", as it stands; NULL: the last page, or the only one */
};
int ps_http_page_wait(struct ps_http_page *page, const _Atomic bool *stop, struct ps_page_body *ret,
        struct ps_error *err) PS_MUST_USE;
void ps_http_page_free(struct ps_http_page *page);

#endif
