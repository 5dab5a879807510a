/* Manifests of sources that HTTP serves: fetched, kept compressed while they are taken apart, and listed.
 *
 * Threads: one a call. Blocks: on the network, unless the manifest is a local one. */
#ifndef PS_ORIGIN_HTTP_MANIFEST_H
#define PS_ORIGIN_HTTP_MANIFEST_H

#include "origin/enumerate.h"
#include "http/request.h"

/* sign, sign_arg: as ps_expand() takes them. */
int ps_http_manifest_list(struct ps_http_client *c, const struct ps_source *source, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names) PS_MUST_USE;

#endif
