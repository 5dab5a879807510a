/* The parts of the HTTP client. request.c uses tier_attempt.c, redirects.c, request_headers.c and client.c; the
 * caller is the thread of the request's transfer. */
#ifndef PS_HTTP_HTTP_PRIVATE_H
#define PS_HTTP_HTTP_PRIVATE_H

#include <errno.h>

#include "http/http.h"

/* Returned from a write callback. Curl never offers this length, so it ends the transfer. */
#define PS_HTTP_END_TRANSFER ((size_t)0xfffffff)

/* The bytes of the attempt's range that have not come. */
static inline uint64_t ps_http_request_lacking(const struct ps_http_request *rq)
{
	return rq->range_last + 1 - rq->range_first - rq->body_nbytes;
}

/* Appends a copy of the text. -ENOMEM: the list stays as it is. */
static inline int ps_slist_add(struct curl_slist **list, const char *text)
{
	struct curl_slist *more = curl_slist_append(*list, text);

	*list = more ? more : *list;
	return more ? 0 : -ENOMEM;
}

/* request.c: what a CURLcode means. */
int ps_http_curl_errnum(int code);

/* tier_attempt.c ----------------------------------------------------------------------------------------- */

/* Decides whether this attempt asks the origin or a tier, and for which part of the range. For a tier, sets
 * *whole (to free()) to the tier's URL: it has the path and query of `url`; the header Host names the origin.
 * -ENOMEM. */
int ps_tier_attempt_begin(struct ps_http_request *rq, const char *url, bool is_own, char **whole) PS_MUST_USE;
/* The whole header is there. Only this counts as an answer: a tier that sends header lines slowly, or one 103
 * after another, is late. */
void ps_tier_attempt_header(struct ps_http_request *rq);
/* Curl's write callback. */
size_t ps_tier_attempt_body(struct ps_http_request *rq, const char *bytes, size_t n) PS_MUST_USE;
/* No byte, or too few, came within the transfer's stall_ns. True: the attempt ends. It is looked at again and
 * again: it ends when ps_tiers_waits() advises to ask the origin instead, or after attempt_ns. */
bool ps_tier_attempt_stalled(struct ps_http_request *rq, uint64_t idle_ns) PS_MUST_USE;
/* Judges a tier's attempt. True: the request goes on, at the origin or with the next slice. */
bool ps_tier_attempt_end(struct ps_http_request *rq, int rc) PS_MUST_USE;
/* Judges a tier's failure by the origin's answer that followed it. This request asks tiers again only if the
 * failed one was late, but is alive. */
void ps_tier_attempt_judge(struct ps_http_request *rq);

/* redirects.c -------------------------------------------------------------------------------------------- */

void ps_redirects_init(struct ps_redirects *all);
void ps_redirects_fini(struct ps_redirects *all);
/* True for a redirect that must be followed. */
bool ps_http_is_redirect(const struct ps_http_request *rq) PS_MUST_USE;
/* Takes the URL to which the response redirects. 0: that URL must be requested; 1: no request is needed;
 * -errno with rq->error. */
int ps_http_follow(struct ps_http_request *rq, CURL *curl) PS_MUST_USE;
/* Sets rq->location. */
void ps_http_note_location(struct ps_http_request *rq, CURL *curl);

/* request_headers.c, client.c ---------------------------------------------------------------------------- */

/* Adds the headers of the attempt; the user's if is_own. -ENOMEM. */
int ps_http_request_headers(struct ps_http_request *rq, bool is_own) PS_MUST_USE;
/* Makes the URL to send from a canonical URL: adds the signature parameters of that URL or, if it has none
 * and is_own, those of the source. -ENOMEM. */
int ps_http_client_url(struct ps_http_client *c, const char *url, bool is_own, char **ret) PS_MUST_USE;

#endif
