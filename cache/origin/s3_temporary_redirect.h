/* Where a store's temporary redirect (307 with a Location) leads, as Amazon's do while a new bucket's name
 * spreads: the same request, signed anew for that host. Credentials are for the store alone: what leads to
 * another is not followed.
 *
 * Ownership: the caller's. Threads: any. Blocks: never. */
#ifndef PS_ORIGIN_S3_TEMPORARY_REDIRECT_H
#define PS_ORIGIN_S3_TEMPORARY_REDIRECT_H

#include "origin/s3_store.h"

/* Of an absolute URL; with the store's own scheme, and a host that is the endpoint's, below it, or (of
 * Amazon's) another name of S3. Fills *ret and *ret_query (encoded, sorted), which were zeroed. -EACCES: it
 * is elsewhere; -ENOMEM. */
int ps_s3_elsewhere(struct ps_s3_store *store, const char *bucket, const char *location,
        struct ps_s3_place *ret, struct ps_strbuf *ret_query) PS_MUST_USE;

#endif
