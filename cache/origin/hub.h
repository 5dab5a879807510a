/* The origin of hf:// sources: repositories of the Hugging Face Hub (or of a server that speaks its protocol, HF_ENDPOINT).
 *
 * A listing turns the branch into its commit, once, and lists that: a mount shows one state of the repository. An object's
 * version is its oid (of LFS the SHA-256, else git's), told by the listing and by HEAD in X-Linked-Etag; the CDN's ETag is
 * another. The token goes to the endpoint alone, over redirects too. The limits that the Hub tells are kept. */
#ifndef PS_ORIGIN_HUB_H
#define PS_ORIGIN_HUB_H

#include "origin/origin.h"

int ps_hf_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

#endif
