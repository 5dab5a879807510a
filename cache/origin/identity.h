/* Who asks an origin, and by which way: what of source, options, environment and files decides that, as digests.
 *
 * Two mounts with the same access send the same requests with the same credentials. More is taken in than may count (the
 * whole of a profile file, say): another digest costs an access of its own, a wrong one would lend out credentials. What a
 * role's or a container's token is at the moment is no part of it, where it is read from is: such credentials renew
 * themselves.
 *
 * Ownership: the caller's. Threads: any. Blocks: on disk, for files of credentials. */
#ifndef PS_ORIGIN_IDENTITY_H
#define PS_ORIGIN_IDENTITY_H

#include "base/hash.h"
#include "origin/origin.h"

/* Unkeyed digests of secrets: only keyed ones (ps_store_fingerprint()) may be written down. */
struct ps_identity {
	struct ps_id access;
	struct ps_id names;  /* what a listing depends on beside the source: whoever has the same may share its names */
	bool names_for_all;  /* these are the same whoever asks: a bucket's listing */
	bool has_endpoint;   /* of a store that was named: its tenants may have buckets of the same name */
	struct ps_id route;  /* proxy and trusted CAs: by another one another server may answer for a host */
	bool anonymous;      /* no credentials at all, and the usual route: whoever asks is answered so */
	bool has_route;      /* not the usual one: no proxy, the system's CAs */
};

/* canonical: ps_source_canonical(source). -ENOMEM. */
int ps_identity_of(const char *source, const char *canonical, const struct ps_origin_options *options,
        struct ps_identity *ret) PS_MUST_USE;

#endif
