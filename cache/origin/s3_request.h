/* What makes an HTTP request one to an S3 store: a dialect of http/request.h.
 *
 * Objects are known by the URLs of base/bucket_url.h; each attempt is addressed and signed anew, with the key, the
 * region and the clock that are right then. What a refusal can teach (another region, another clock, newer
 * credentials) is learned, and the request sent once more. */
#ifndef PS_ORIGIN_S3_REQUEST_H
#define PS_ORIGIN_S3_REQUEST_H

#include <stdatomic.h>

#include "credentials/credentials.h"
#include "http/request.h"
#include "origin/s3_store.h"

struct ps_s3_signer {
	struct ps_s3_store store;
	struct ps_credentials *credentials;
	struct ps_sigv4_keys keys;
	_Atomic int64_t clock_off_s; /* the store's clock is ahead of ours by so much */
	bool request_payer;
	bool follow_redirects; /* to other hosts, without credentials */
};

/* arg of the client is the struct ps_s3_signer. */
extern const struct ps_http_dialect ps_s3_dialect;

/* A bucket's listing is asked for as the page "s3://BUCKET?QUERY", the query sorted and encoded. */

#endif
