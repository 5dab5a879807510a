/* Azure Blob Storage: az://ACCOUNT/CONTAINER/PREFIX/. Listings and names are those of s3_list.h, requests those of
 * az_request.h. */
#ifndef PS_ORIGIN_AZ_H
#define PS_ORIGIN_AZ_H

#include "origin/origin.h"
#include "origin/source.h"

/* Takes over what the source holds, also on failure. */
int ps_az_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

#endif
