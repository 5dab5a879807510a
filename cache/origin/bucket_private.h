#ifndef PS_ORIGIN_BUCKET_PRIVATE_H
#define PS_ORIGIN_BUCKET_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/url.h"
#include "base/error.h"
#include "credentials/credentials.h"
#include "http/http.h"
#include "origin/origin.h"
#include "origin/origin_private.h"

/* S3: the store ------------------------------------------------------------------------------------------ */

/* Where an S3 store is: its endpoint, how buckets are addressed there, and in which region each is.
 *
 * Ownership: the caller's memory, init ... fini. Threads: any, after init. Locks: one, over the regions, for
 * a lookup. Blocks: never. Errors: -EINVAL with the story for options that make no sense, -ENOMEM. */

#define PS_S3_MAX_REGIONS 256 /* buckets whose region is remembered; the oldest go first */

struct ps_s3_store {
	char *scheme, *host; /* of the endpoint, host with its port; host NULL: Amazon's, by region */
	char *base;          /* a path that the endpoint has before the bucket: "" or "/x" */
	char *identity; /* scheme://host/base of an endpoint of the user's own, for objects' URLs; NULL: none
	               */
	bool virtual_hosts;               /* bucket.host where the bucket's name allows it */
	char region[PS_SIGV4_REGION_LEN]; /* where no other was learned */

	pthread_mutex_t lock; /* protects: */
	struct ps_s3_region {
		char *bucket; /* NULL: free */
		char region[PS_SIGV4_REGION_LEN];
	} regions[PS_S3_MAX_REGIONS];
	unsigned next_region;
};

/* endpoint, region: of the user, NULL where he said nothing. default_endpoint: of the scheme; NULL: Amazon's.
 */
int ps_s3_store_init(struct ps_s3_store *store, const char *endpoint, const char *region,
        const char *default_endpoint, enum ps_s3_addressing addressing, struct ps_error *err) PS_MUST_USE;
void ps_s3_store_fini(struct ps_s3_store *store);

/* One request's place. */
struct ps_s3_place {
	struct ps_strbuf host, path; /* path: encoded, as signed and sent */
	char region[PS_SIGV4_REGION_LEN];
};
void ps_s3_place_fini(struct ps_s3_place *place);
/* key "": the bucket. Fills *ret, which was zeroed. */
int ps_s3_store_place(
        struct ps_s3_store *store, const char *bucket, const char *key, struct ps_s3_place *ret) PS_MUST_USE;

/* The store says that the bucket is in this region. True: that is news, ask again. */
bool ps_s3_store_learn(struct ps_s3_store *store, const char *bucket, const char *region);

/* S3: temporary redirects -------------------------------------------------------------------------------- */

/* Where a store's temporary redirect (307 with a Location) leads, as Amazon's do while a new bucket's name
 * spreads: the same request, signed again for that host. Credentials are for the store alone: what leads to
 * another is not followed.
 *
 * Ownership: the caller's. Threads: any. Blocks: never. */

/* Of an absolute URL; with the store's own scheme, and a host that is the endpoint's, below it, or (of
 * Amazon's) another name of S3. Fills *ret and *ret_query (encoded, sorted), which were zeroed. -EACCES: it
 * is elsewhere; -ENOMEM. */
int ps_s3_temporary_redirect(struct ps_s3_store *store, const char *bucket, const char *location,
        struct ps_s3_place *ret, struct ps_strbuf *ret_query) PS_MUST_USE;

/* S3: refusals ------------------------------------------------------------------------------------------- */

/* What an S3 store's refusals mean: the XML of its error document, and codes to errnos, texts and remedies.
 *
 * Ownership: plain memory of the caller. Threads: any. Blocks: never. */

struct ps_s3_refusal {
	char code[64]; /* "AccessDenied"; "" if the answer was no error document */
	char message[200];
	char region[64]; /* where the bucket is, if the document says so */
};

/* Of any bytes; takes those three elements alone: others may repeat what we sent. */
void ps_s3_refusal_parse(const char *text, size_t nbytes, struct ps_s3_refusal *ret);

/* What may make the same request succeed, at once. */
enum ps_s3_remedy {
	PS_S3_NO_REMEDY,
	PS_S3_OTHER_REGION, /* sign for the bucket's own, ask there */
	PS_S3_OTHER_CLOCK,  /* sign with the server's */
	PS_S3_OTHER_KEY,    /* it is unknown or has expired */
	PS_S3_OTHER_PLACE,  /* ask where the answer's Location says */
};

/* Fills err (http_status, retryable and retry_after_ms stay where the code says nothing of them) for an
 * answer of this status; listing: it was asked for one. */
enum ps_s3_remedy ps_s3_refusal_judge(
        const struct ps_s3_refusal *refusal, int status, bool listing, struct ps_error *err);

/* S3: requests ------------------------------------------------------------------------------------------- */

/* What makes an HTTP request one to an S3 store: a dialect of http/http.h.
 *
 * Objects are known by the URLs of base/url.h; each attempt is addressed and signed again, with the key, the
 * region and the clock that are right then. What a refusal can teach (another region, another clock, newer
 * credentials) is learned, and the request sent once more. */

struct ps_s3_signer {
	struct ps_s3_store store;
	struct ps_credentials *credentials;
	struct ps_sigv4_keys keys;
	_Atomic int64_t clock_off_s; /* the store's clock is ahead of ours by so much */
	bool request_payer;
	bool follow_redirects; /* to other hosts, without credentials */
};

/* arg of the client is the struct ps_s3_signer. */
extern const struct ps_http_dialect ps_s3_dialect;

/* A bucket's listing is asked for as the page "s3://BUCKET?QUERY", the query sorted and encoded. */

/* S3: listings ------------------------------------------------------------------------------------------- */

/* The objects of an s3:// or gs:// source: a bucket or a prefix listed page by page, one key, braces
 * expanded, a manifest read. See struct ps_origin_ops.list for the rules. */

/* A page has 1,000 keys of up to 1,024 bytes, escaped; a longer one is an error. */
#define PS_S3_PAGE_MAX_NBYTES (UINT64_C(16) << 20)

/* pin: list versions, and name each object by its version. */
int ps_s3_list(struct ps_origin *o, struct ps_http_client *c, struct ps_credentials *credentials,
        const struct ps_origin_source *source, bool pin, ps_list_fn fn, void *arg, const _Atomic bool *stop,
        struct ps_error *err) PS_MUST_USE;

/* Azure: the storage account ----------------------------------------------------------------------------- */

/* Which storage account, where it is, and by which right it is read: an account key (SharedKey), a shared
 * access signature (SAS), or nothing.
 *
 * The first of these that there is: --no-sign-request; the SAS of the source; --az-sas-file;
 * AZURE_STORAGE_CONNECTION_STRING; AZURE_STORAGE_KEY; AZURE_STORAGE_SAS_TOKEN. The last three count for the
 * account that they, or AZURE_STORAGE_ACCOUNT, name.
 *
 * Ownership: the caller's memory, init ... fini. Threads: any, after init. Locks: one, over the SAS, for a
 * copy; the file is read without it. Blocks: init and refused on disk. Errors: -EINVAL, -EACCES with what to
 * do; no text holds a secret. */

#define PS_AZ_KEY_MAX_LEN 256 /* decoded; accounts have 64 bytes */

struct ps_az_store {
	char *account;
	char *root;     /* scheme://host[:port], and a path where the account is not in the host's name */
	char *identity; /* the same if it is not Azure's public cloud, for objects' URLs; else NULL */
	unsigned char key[PS_AZ_KEY_MAX_LEN]; /* secret */
	size_t nkey;                          /* 0: none */
	char *sas_file;
	pthread_mutex_t lock;
	char *sas;                   /* secret; NULL: none */
	_Atomic int64_t clock_off_s; /* the store's clock is ahead of ours by so much */
};

/* What distinguishes stores, as `identity`; the caller frees it. NULL: the public cloud. */
char *ps_az_endpoint(const char *canonical, const struct ps_origin_options *options);

#endif
