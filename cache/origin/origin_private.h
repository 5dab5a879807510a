/* Types and functions that the origins share, and the functions that open them. */
#ifndef PS_ORIGIN_ORIGIN_PRIVATE_H
#define PS_ORIGIN_ORIGIN_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/packed.h"
#include "http/http.h"
#include "listing/listing.h"
#include "origin/origin.h"

/* Sources ------------------------------------------------------------------------------------------------ */

/* Parses a SOURCE as the user writes it.
 *
 *   https://host/dir/x-{000..127}.tar   PS_SOURCE_BRACES   (also without braces: one object)
 *   https://host/dir/                   PS_SOURCE_DIR
 *   https://host/dir/list.txt           PS_SOURCE_MANIFEST, fetched
 *   @list.txt                           PS_SOURCE_MANIFEST, read when it is parsed
 *   s3://bucket/dir/  s3://bucket        PS_SOURCE_DIR; also x-{000..127}.tar, list.txt, gs:// and az://
 *   file:///dir/  /dir/  file:///dir/x-{0..9}.tar the same for files (/dir too, if it is a directory)
 *
 * Ownership: the caller's. Threads: any. Blocks on disk, for a local manifest or path. */

enum ps_source_kind { PS_SOURCE_BRACES, PS_SOURCE_DIR, PS_SOURCE_MANIFEST };

enum ps_source_origin { PS_SOURCE_HTTP, PS_SOURCE_FILE, PS_SOURCE_S3 /* all stores with buckets */ };

#define PS_MANIFEST_MAX_NBYTES (UINT64_C(512) << 20)

struct ps_origin_source {
	enum ps_source_kind kind;
	enum ps_source_origin origin;
	bool is_pattern; /* the URL has braces that expand */
	char *url;       /* the whole URL as written, with its secrets; NULL for a local manifest */
	char *sas;       /* for az://, the shared access signature in the source; secret; NULL: none */
	/* the first URL that the source expands to, with its secrets; its host may see credentials */
	char *first;
	char *canonical;       /* without secrets */
	struct ps_packed text; /* of a local manifest; empty for other sources */
	char *base;            /* base URL of relative lines in a manifest */
	/* the endpoint in URLs of objects in buckets (base/url.h); the origin's, or NULL */
	const char *endpoint;
};

int ps_source_parse(const char *text, struct ps_origin_source *ret, struct ps_error *err) PS_MUST_USE;
void ps_source_fini(struct ps_origin_source *s);

/* Appends the whole text of a local list. -EINVAL: not a regular file, -EFBIG. Blocks on disk. */
int ps_source_read_file(const char *path, struct ps_packed *ret, struct ps_error *err) PS_MUST_USE;

/* Objects that a source names one by one ----------------------------------------------------------------- */

/* Lists the sources that name their objects one by one, braces and manifests, for every scheme. There are
 * two passes, because the names' common prefix is cut off, and it is known only after the last name. */

/* Receives each listed URL that has signature parameters of its own. -errno ends the listing. */
typedef int (*ps_sign_fn)(void *arg, const char *url, const char *signature);

/* text: the manifest's text; NULL for other kinds of sources, and for a local list, which is read again. An
 * entry of another kind of origin (a file in a list of URLs) is an error. Errors in a manifest are reported with
 * its name and the line. */
int ps_source_expand(const struct ps_origin_source *source, const struct ps_packed *text, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names) PS_MUST_USE;

/* Ranges and HEADs by HTTP ------------------------------------------------------------------------------- */

/* GET of a range and HEAD, as kinds of struct ps_http_request. Threads, errors: those of origin.h. */

void ps_http_get(struct ps_http_client *c, struct ps_origin_get *get);
/* Functions shared with other kinds that fetch a ps_origin_get (in which the request's work is embedded). */
int ps_http_get_body(struct ps_http_request *rq, const char *bytes, size_t n);
void ps_http_get_report(struct ps_http_request *rq);
void ps_http_get_drop(struct ps_http_request *rq);
void ps_http_get_finish(struct ps_http_request *rq);
/* For accept(): checks a response to [range_first, range_last]. If the response has only the beginning of
 * that range, sets range_last to the last byte that it has. */
int ps_http_get_check_range(struct ps_http_request *rq, const struct ps_remote *expect);
/* For again(): true if the server has given only the beginning of the range, and the rest is to be
 * requested. A body that ended too soon without Content-Length, which curl accepts, becomes an error. */
bool ps_http_get_again(struct ps_http_request *rq);

void ps_http_head(struct ps_http_client *c, struct ps_origin_head *head);

/* An origin with one client, whose URLs are those of its objects: the first member of its private struct. */
struct ps_http_origin {
	struct ps_origin origin; /* first */
	struct ps_http_client client;
	struct ps_origin_source source;
};

/* The members of their struct ps_origin_ops that all of them share. */
#define PS_HTTP_ORIGIN_OPS                                                                       \
	.head = ps_http_origin_head, .get = ps_http_origin_get, .cancel = ps_http_origin_cancel, \
	.abort = ps_http_origin_abort
void ps_http_origin_head(struct ps_origin *o, struct ps_origin_head *head);
void ps_http_origin_get(struct ps_origin *o, struct ps_origin_get *get);
void ps_http_origin_cancel(struct ps_origin *o, struct ps_origin_get *get);
void ps_http_origin_abort(struct ps_origin *o);

/* Allocates the private struct, zeroed, and takes over the source, also on failure. NULL: out of memory. */
void *ps_http_origin_new(size_t nbytes, const struct ps_origin_ops *ops, struct ps_origin_source *source,
        struct ps_error *err);

/* Listings by HTTP --------------------------------------------------------------------------------------- */

/* Lists the objects of an http source: expanded braces, a directory's pages, or a manifest. struct
 * ps_origin_ops.list has the rules. */

#define PS_LIST_MAX_PAGE_NBYTES (UINT64_C(512) << 20) /* a longer page is an error */
#define PS_LIST_MAX_DIRS 200000                       /* of one source; more are an error */

/* Lists the manifest of a source that HTTP serves. A fetched manifest is kept compressed while it is
 * parsed. Threads: the caller's. Blocks on the network, unless the manifest is local. */
/* sign, sign_arg: as for ps_source_expand(). */
int ps_http_manifest_list(struct ps_http_client *c, const struct ps_origin_source *source, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names) PS_MUST_USE;

/* If a tier has answered the get and a comparison is due, compares a sample of the tier's bytes with the
 * origin's. Call it while the get's buffers still have the bytes. */
void ps_tier_compare(const struct ps_http_request *rq, const struct ps_origin_get *get);

/* Gives the origin the tiers of its client. */
static inline void ps_origin_has_tiers(struct ps_origin *o, struct ps_http_client *c)
{
	c->owner = o;
	o->tiers = c->tiers;
	o->slice_nbytes = c->tiers ? PS_TIER_SLICE_NBYTES : 0;
}

/* Kinds of origins --------------------------------------------------------------------------------------- */

/* The kinds of origins, which origin.c opens. Each open takes over the members of a struct ps_origin_source,
 * also on failure.
 *
 * Ownership, threads, errors: those of origin.h. Blocks on files of options and of the environment, never
 * on the network. */

/* The origin of file:// sources and local directories: NFS, Lustre, a slow disk.
 *
 * A file's version is size, mtime (ns) and inode, given as a strong ETag, and compared before and after
 * each read. A change in place within the file system's clock tick of the read may be missed.
 *
 * Blocking: reads run on a few threads of the origin. A read that hangs in a dead NFS mount blocks its
 * thread, and close, until the kernel ends it. */
int ps_file_open(struct ps_origin_source *source, struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The origin of http:// and https:// sources.
 *
 * HTTP/1.1 over many connections (object stores limit the rate of each). Redirects are followed up to
 * PS_HTTP_MAX_REDIRECTS, never from https to http. Header options, user and password are sent to the
 * source's own scheme, host and port only, also after redirects and for the entries of a manifest. Body
 * bytes reach a get's iov only after the header was checked: it must have the requested range and version. */
int ps_http_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The origin of s3:// and gs:// sources, for the stores of Amazon, Ceph, MinIO, Cloudflare, Google and
 * compatible ones.
 *
 * Transfers are those of http.h; bucket_private.h addresses and signs them. A redirect is followed to the
 * bucket's region, to another host of the store and, if options->follow_redirects is set, to any other
 * host, which gets no credentials. An object's version is its ETag, which need not be a hash of its bytes. */
int ps_s3_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The endpoint of a bucket's store, from options or environment; NULL: the scheme's own. Borrowed. */
const char *ps_s3_endpoint(const struct ps_origin_options *options, const char *url);

/* The HTTP options of a bucket's store: like Amazon's own tools, the store trusts AWS_CA_BUNDLE. Borrowed. */
struct ps_http_options ps_s3_http_options(const struct ps_origin_options *options);

/* Azure Blob Storage: az://ACCOUNT/CONTAINER/PREFIX/. Listings and names are those of bucket_private.h,
 * requests those of az.c. */
int ps_az_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The origin of hf:// sources: repositories of the Hugging Face Hub (or of a server that speaks its
 * protocol, HF_ENDPOINT).
 *
 * A listing turns the branch into its commit, once, and lists that: a mount shows one state of the
 * repository. An object's version is its oid (for LFS files the SHA-256, else git's), given by the listing
 * and by HEAD in X-Linked-Etag; the CDN's ETag differs from it. The token is sent to the endpoint only, also
 * after redirects. The Hub's rate limits are kept. */
int ps_hf_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

#endif
