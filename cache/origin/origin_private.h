/* What the origins share, and how each is opened. */
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

/* A SOURCE as the user writes it, taken apart.
 *
 *   https://host/dir/x-{000..127}.tar   PS_SOURCE_BRACES   (also without braces: one object)
 *   https://host/dir/                   PS_SOURCE_DIR
 *   https://host/dir/list.txt           PS_SOURCE_MANIFEST, fetched
 *   @list.txt                           PS_SOURCE_MANIFEST, read at once
 *   s3://bucket/dir/  s3://bucket        PS_SOURCE_DIR; also x-{000..127}.tar, list.txt, gs:// and az://
 *   file:///dir/  /dir/  file:///dir/x-{0..9}.tar the same for files (/dir too, if it is a directory)
 *
 * Ownership: the caller's. Threads: any. Blocks: on disk, for a local manifest or path. */

enum ps_source_kind { PS_SOURCE_BRACES, PS_SOURCE_DIR, PS_SOURCE_MANIFEST };

enum ps_source_origin { PS_SOURCE_HTTP, PS_SOURCE_FILE, PS_SOURCE_S3 /* all with buckets */ };

#define PS_MANIFEST_MAX_NBYTES (UINT64_C(512) << 20)

struct ps_origin_source {
	enum ps_source_kind kind;
	enum ps_source_origin origin;
	bool is_pattern; /* there are braces that expand */
	char *url;       /* the URL as written, whole, with its secrets; NULL for a local manifest */
	char *sas;   /* of az://, the shared access signature that was written after it; secret; NULL: none */
	char *first; /* the first URL that it stands for, with its secrets: whose host may see credentials */
	char *canonical;       /* without them */
	struct ps_packed text; /* a local manifest's, which is not empty; else it is */
	char *base;            /* what relative lines of a manifest are relative to */
	/* what is put into the URLs of objects in buckets (base/url.h); the origin's, or NULL */
	const char *endpoint;
};

int ps_source_parse(const char *text, struct ps_origin_source *ret, struct ps_error *err) PS_MUST_USE;
void ps_source_fini(struct ps_origin_source *s);

/* A manifest that was read from a local path when it was parsed. */
bool ps_source_is_local_list(const struct ps_origin_source *s);
/* Adds what it holds now. */
int ps_source_read_list(
        const struct ps_origin_source *s, struct ps_packed *ret, struct ps_error *err) PS_MUST_USE;
/* Adds a local list's whole text. -EINVAL: not a regular file, -EFBIG. Blocks on disk. */
int ps_source_read_file(const char *path, struct ps_packed *ret, struct ps_error *err) PS_MUST_USE;

/* Objects that a source names one by one ----------------------------------------------------------------- */

/* Sources that name their objects one by one, braces and manifests: to a listing, for every scheme alike.
 *
 * Two passes: what all names share is cut off, and that is known only after the last one. */

/* Receives every URL with signature parameters of its own. -errno ends it. */
typedef int (*ps_sign_fn)(void *arg, const char *url, const char *signature);

/* text: the manifest's, of a source of that kind; else NULL. An entry that is another origin's business (a
 * file in a list of URLs) is an error; what is wrong with a manifest is reported with its name and the
 * line. */
int ps_source_expand(const struct ps_origin_source *source, const struct ps_packed *text, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names) PS_MUST_USE;

/* Ranges and HEADs by HTTP ------------------------------------------------------------------------------- */

/* GET of a range and HEAD, as kinds of struct ps_http_request. Threads, errors: those of origin.h. */

void ps_http_get(struct ps_http_client *c, struct ps_origin_get *get);
/* What other kinds that fetch a ps_origin_get (the rq's work is embedded in one) do likewise. */
int ps_http_get_body(struct ps_http_request *rq, const char *bytes, size_t n);
void ps_http_get_report(struct ps_http_request *rq);
void ps_http_get_finish(struct ps_http_request *rq);
/* accept() of a response to [range_first, range_last]; if it gives only the beginning, range_last becomes its
 * end. */
int ps_http_get_check_range(struct ps_http_request *rq, const struct ps_remote *expect);
/* again(): true if the server has given the beginning of the range, and the rest is to be requested. A body
 * that ended too soon without Content-Length is no error to curl; it becomes one. */
bool ps_http_get_again(struct ps_http_request *rq);

void ps_http_head(struct ps_http_client *c, struct ps_origin_head *head);

/* Listings by HTTP --------------------------------------------------------------------------------------- */

/* The objects of an http source: braces expanded, a directory's pages walked, a manifest read. See struct
 * ps_origin_ops.list for the rules. */

#define PS_LIST_MAX_PAGE_NBYTES (UINT64_C(512) << 20) /* a longer page is an error */
#define PS_LIST_MAX_DIRS 200000                       /* of one source; more are an error */

/* Manifests of sources that HTTP serves: fetched, kept compressed while they are taken apart, and listed.
 *
 * Threads: one a call. Blocks: on the network, unless the manifest is a local one. */
/* sign, sign_arg: as ps_source_expand() takes them. */
int ps_http_manifest_list(struct ps_http_client *c, const struct ps_origin_source *source, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names) PS_MUST_USE;

/* Kinds of origins --------------------------------------------------------------------------------------- */

/* The kinds of origins, as origin.c opens them: each takes over what the source holds, also on failure.
 *
 * Ownership, threads, errors: those of origin.h. Blocks: on files of options and of the environment, never on
 * the network. */

/* The origin of file:// sources and local directories: NFS, Lustre, a slow disk.
 *
 * A file's version is size, mtime (ns) and inode, given as a strong ETag, and compared before and after each
 * read. A file that is written to in place within the file system's clock tick of the read may escape it.
 *
 * Blocking: reads run on a few own threads; one that hangs in a dead NFS mount holds its thread, and close,
 * until the kernel lets go of it. */
#define PS_FILE_MAX_THREADS 8

int ps_file_open(struct ps_origin_source *source, struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The origin of http:// and https:// sources.
 *
 * HTTP/1.1 over many connections (object stores limit each one). Redirects are followed up to
 * PS_HTTP_MAX_REDIRECTS, never from https to http. Header options, user and password go to the source's own
 * scheme, host and port alone, over redirects and for the entries of a manifest too. Body bytes reach a get's
 * iov only once the response's header was found to be the asked range of the asked version. */
int ps_http_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The origin of s3:// and gs:// sources, for the stores of Amazon, Ceph, MinIO, Cloudflare, Google and their
 * like.
 *
 * Transfers are those of http.h; bucket_private.h addresses and signs them. No redirect is followed but to a
 * bucket's region. An object's version is its ETag, which need not be a hash of its bytes. */
int ps_s3_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The store of a bucket, as options and environment name it; NULL: the scheme's own. Borrowed. */
const char *ps_s3_endpoint(const struct ps_origin_options *options, const char *url);

/* Azure Blob Storage: az://ACCOUNT/CONTAINER/PREFIX/. Listings and names are those of bucket_private.h,
 * requests those of az.c. */
int ps_az_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The origin of hf:// sources: repositories of the Hugging Face Hub (or of a server that speaks its protocol,
 * HF_ENDPOINT).
 *
 * A listing turns the branch into its commit, once, and lists that: a mount shows one state of the
 * repository. An object's version is its oid (of LFS the SHA-256, else git's), given by the listing and by
 * HEAD in X-Linked-Etag; the CDN's ETag is another. The token goes to the endpoint alone, over redirects too.
 * The Hub's limits are kept. */
int ps_hf_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

#endif
