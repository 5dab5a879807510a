/* The origin of s3:// and gs:// sources, for the stores of Amazon, Ceph, MinIO, Cloudflare, Google and their
 * like.
 *
 * Transfers are those of http.h; s3_request.h addresses and signs them. No redirect is followed but to a
 * bucket's region. An object's version is its ETag, which need not be a hash of its bytes. */
#ifndef PS_ORIGIN_S3_H
#define PS_ORIGIN_S3_H

#include "origin/origin.h"
#include "origin/source.h"

/* Takes the source's contents over, also on failure. Reads the AWS configuration files. */
int ps_s3_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

/* The store of a bucket, as options and environment name it; NULL: the scheme's own. Borrowed. */
const char *ps_s3_endpoint(const struct ps_origin_options *options, const char *url);

#endif
