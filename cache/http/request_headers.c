/* The headers of a request: its range, its condition, the user's own. */
#include "http/http_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

int ps_http_request_header(struct ps_http_request *rq, const char *header)
{
	struct curl_slist *more = curl_slist_append(rq->slist, header);

	if (!more)
		return -ENOMEM;
	rq->slist = more;
	return 0;
}

bool ps_http_request_condition(
        const struct ps_http_request *rq, const char **ret_name, char ret_value[static PS_HTTP_CONDITION_LEN])
{
	time_t t = rq->expect ? (time_t)rq->expect->mtime_s : 0;
	struct tm tm;

	if (!rq->expect || ps_remote_is_by_size(rq->expect))
		return false;
	if (ps_etag_is_strong(rq->expect->etag)) {
		*ret_name = "If-Match";
		snprintf(ret_value, PS_HTTP_CONDITION_LEN, "%s", rq->expect->etag);
	} else if (rq->expect->mtime_s >= 0 && gmtime_r(&t, &tm)) {
		/* Not strftime: its names of days and months depend on the locale. */
		static const char days[] = "SunMonTueWedThuFriSat",
		                  months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

		*ret_name = "If-Unmodified-Since";
		snprintf(ret_value, PS_HTTP_CONDITION_LEN, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
		        days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900,
		        tm.tm_hour, tm.tm_min, tm.tm_sec);
	} else {
		return false;
	}
	return true;
}

/* Asks the server to refuse another version, if it can. The answer's version is compared in any case. */
static int add_condition(struct ps_http_request *rq)
{
	char value[PS_HTTP_CONDITION_LEN], header[PS_HTTP_CONDITION_LEN + 32];
	const char *name;

	if (!ps_http_request_condition(rq, &name, value))
		return 0;
	snprintf(header, sizeof(header), "%s: %s", name, value);
	return ps_http_request_header(rq, header);
}

int ps_http_request_headers(struct ps_http_request *rq, bool is_own)
{
	char header[64];
	const char *encoding = rq->client->accept_encoding;

	snprintf(header, sizeof(header), "Accept-Encoding: %s",
	        encoding && !rq->want_listing ? encoding : "identity");
	int rc = ps_http_request_header(rq, header);

	if (!rc && rq->want_listing)
		rc = ps_http_request_header(rq, "Accept: application/json, text/html;q=0.9, */*;q=0.5");
	if (!rc && rq->ranged) {
		snprintf(header, sizeof(header), "Range: bytes=%" PRIu64 "-%" PRIu64, rq->range_first,
		        rq->range_last);
		rc = ps_http_request_header(rq, header);
	}
	if (!rc && rq->expect)
		rc = add_condition(rq);
	for (const struct curl_slist *h = rq->client->headers; !rc && is_own && h; h = h->next)
		rc = ps_http_request_header(rq, h->data);
	return rc;
}
