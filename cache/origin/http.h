/* The origin of http:// and https:// sources.
 *
 * HTTP/1.1 over many connections (object stores limit each one). Redirects are followed up to
 * PS_HTTP_MAX_REDIRECTS, never from https to http. Header options, user and password go to the source's own
 * scheme, host and port alone, over redirects and for the entries of a manifest too. Body bytes reach a get's
 * iov only once the response's header was found to be the asked range of the asked version. */
#ifndef PS_ORIGIN_HTTP_H
#define PS_ORIGIN_HTTP_H

#include "origin/origin.h"
#include "origin/source.h"

/* Takes the source's contents over, also on failure. */
int ps_http_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

#endif
