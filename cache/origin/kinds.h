/* The kinds of origins, as origin.c opens them: each takes over what the source holds, also on failure.
 *
 * Ownership, threads, errors: those of origin.h. Blocks: on files of options and of the environment, never on the network. */
#ifndef PS_ORIGIN_KINDS_H
#define PS_ORIGIN_KINDS_H

#include "origin/origin.h"
#include "origin/source.h"

/* The origin of file:// sources and local directories: NFS, Lustre, a slow disk.
 *
 * A file's version is size, mtime (ns) and inode, told as a strong ETag, and compared before and after each
 * read. A file that is written to in place within the file system's clock tick of the read may escape it.
 *
 * Blocking: reads run on a few own threads; one that hangs in a dead NFS mount holds its thread, and close,
 * until the kernel lets go of it. */
#define PS_FILE_MAX_THREADS 8

int ps_file_open(struct ps_source *source, struct ps_origin **ret, struct ps_error *err) PS_MUST_USE;

/* The origin of http:// and https:// sources.
 *
 * HTTP/1.1 over many connections (object stores limit each one). Redirects are followed up to
 * PS_HTTP_MAX_REDIRECTS, never from https to http. Header options, user and password go to the source's own
 * scheme, host and port alone, over redirects and for the entries of a manifest too. Body bytes reach a get's
 * iov only once the response's header was found to be the asked range of the asked version. */
int ps_http_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

/* The origin of s3:// and gs:// sources, for the stores of Amazon, Ceph, MinIO, Cloudflare, Google and their
 * like.
 *
 * Transfers are those of http.h; s3_request.h addresses and signs them. No redirect is followed but to a
 * bucket's region. An object's version is its ETag, which need not be a hash of its bytes. */
int ps_s3_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

/* The store of a bucket, as options and environment name it; NULL: the scheme's own. Borrowed. */
const char *ps_s3_endpoint(const struct ps_origin_options *options, const char *url);

/* Azure Blob Storage: az://ACCOUNT/CONTAINER/PREFIX/. Listings and names are those of s3_list.h, requests those of
 * az.c. */
int ps_az_open(struct ps_source *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

/* The origin of hf:// sources: repositories of the Hugging Face Hub (or of a server that speaks its protocol, HF_ENDPOINT).
 *
 * A listing turns the branch into its commit, once, and lists that: a mount shows one state of the repository. An object's
 * version is its oid (of LFS the SHA-256, else git's), told by the listing and by HEAD in X-Linked-Etag; the CDN's ETag is
 * another. The token goes to the endpoint alone, over redirects too. The limits that the Hub tells are kept. */
int ps_hf_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

#endif
