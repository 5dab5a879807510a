/* The objects of an http source: braces expanded, a directory's pages walked, a manifest read. See struct
 * ps_origin_ops.list for the rules. */
#ifndef PS_ORIGIN_HTTP_LIST_H
#define PS_ORIGIN_HTTP_LIST_H

#include "http/request.h"
#include "origin/origin.h"
#include "origin/source.h"
#include "origin/enumerate.h"

#define PS_LIST_MAX_PAGE_NBYTES (UINT64_C(512) << 20) /* a longer page is an error */
#define PS_LIST_MAX_DIRS 200000                       /* of one source; more are an error */

int ps_http_list(struct ps_origin *o, struct ps_http_client *c, const struct ps_source *source, ps_list_fn fn,
        void *arg, const _Atomic bool *stop, struct ps_error *err) PS_MUST_USE;

/* Manifests of sources that HTTP serves: fetched, kept compressed while they are taken apart, and listed.
 *
 * Threads: one a call. Blocks: on the network, unless the manifest is a local one. */
/* sign, sign_arg: as ps_expand() takes them. */
int ps_http_manifest_list(struct ps_http_client *c, const struct ps_source *source, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names) PS_MUST_USE;

#endif
