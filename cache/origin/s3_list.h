/* The objects of an s3:// or gs:// source: a bucket or a prefix listed page by page, one key, braces
 * expanded, a manifest read. See struct ps_origin_ops.list for the rules. */
#ifndef PS_ORIGIN_S3_LIST_H
#define PS_ORIGIN_S3_LIST_H

#include "origin/s3_request.h"
#include "origin/source.h"

/* A page has 1,000 keys of up to 1,024 bytes, escaped; a longer one is an error. */
#define PS_S3_PAGE_MAX_NBYTES (UINT64_C(16) << 20)

/* pin: list versions, and name each object by its version. */
int ps_s3_list(struct ps_origin *o, struct ps_http_client *c, struct ps_credentials *credentials,
        const struct ps_source *source, bool pin, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err) PS_MUST_USE;

#endif
