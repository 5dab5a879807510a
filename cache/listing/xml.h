/* A page of a bucket's listing: the XML of ListObjectsV2, of ListObjectVersions and of Azure's List Blobs.
 *
 * Ownership: the caller's. Threads: any. Blocks: never. Errors: -EPROTO for what is no listing, -ENOMEM, what
 * fn returned. */
#ifndef PS_LISTING_XML_H
#define PS_LISTING_XML_H

#include "base/remote.h"

/* What a page says of the whole. */
struct ps_s3_page {
	bool truncated;
	bool encoded; /* keys are: the server did as encoding-type=url asks */
	uint64_t nkeys;
	char *token;                       /* NextContinuationToken, opaque; NULL: none */
	char *key_marker, *version_marker; /* of a listing of versions, as they are to be sent */
};
void ps_s3_page_fini(struct ps_s3_page *page);

struct ps_s3_object {
	const char *key;     /* decoded */
	const char *version; /* "" in a listing of keys */
	struct ps_remote remote;
};
/* Returns 0 to go on. */
typedef int (*ps_s3_object_fn)(void *arg, const struct ps_s3_object *object);

/* Reads the page's own part first: *ret is right, and the whole known to be sound, before fn is called.
 * Delete markers and versions that are not the latest are left out; a key with a NUL or of a broken escape,
 * too, and counted in *ret_nskipped. */
int ps_s3_page_parse(
        const char *text, size_t nbytes, struct ps_s3_page *ret, struct ps_error *err) PS_MUST_USE;
int ps_s3_page_objects(const char *text, size_t nbytes, const struct ps_s3_page *page, ps_s3_object_fn fn,
        void *arg, uint64_t *ret_nskipped, struct ps_error *err) PS_MUST_USE;

#endif
