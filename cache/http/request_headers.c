/* The headers of a request: its range, its condition, the user's own. */
#include "http/http_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

int ps_http_request_header(struct ps_http_request *rq, const char *header)
{
	return ps_slist_add(&rq->slist, header);
}

bool ps_http_date(int64_t s, char ret[static PS_HTTP_DATE_LEN])
{
	/* Not strftime: its names depend on the locale. */
	static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t t = (time_t)s;
	struct tm tm;

	if (!gmtime_r(&t, &tm))
		return false;
	snprintf(ret, PS_HTTP_DATE_LEN, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * tm.tm_wday,
	        tm.tm_mday % 32, months + 3 * tm.tm_mon, (tm.tm_year + 1900) % 10000, tm.tm_hour % 24,
	        tm.tm_min % 60, tm.tm_sec % 61);
	return true;
}

bool ps_http_request_condition(
        const struct ps_http_request *rq, const char **ret_name, char ret_value[static PS_HTTP_CONDITION_LEN])
{
	if (!rq->expect || ps_remote_is_by_size(rq->expect))
		return false;
	bool has_etag = ps_etag_is_strong(rq->expect->etag);
	*ret_name = has_etag ? "If-Match" : "If-Unmodified-Since";
	if (!has_etag)
		return rq->expect->mtime_s >= 0 && ps_http_date(rq->expect->mtime_s, ret_value);
	snprintf(ret_value, PS_HTTP_CONDITION_LEN, "%s", rq->expect->etag);
	return true;
}

int ps_http_request_headers(struct ps_http_request *rq, bool is_own)
{
	char value[PS_HTTP_CONDITION_LEN], header[PS_HTTP_CONDITION_LEN + 64];
	const char *name, *encoding = rq->client->accept_encoding;

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
	/* Asks the server to refuse another version, if it can. The answer's version is compared in any case. */
	if (!rc && ps_http_request_condition(rq, &name, value)) {
		snprintf(header, sizeof(header), "%s: %s", name, value);
		rc = ps_http_request_header(rq, header);
	}
	for (const struct curl_slist *h = rq->client->headers; !rc && is_own && h; h = h->next)
		rc = ps_http_request_header(rq, h->data);
	return rc;
}
