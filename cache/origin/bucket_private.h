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

/* An S3 store: its endpoint, how it addresses buckets, and the region of each bucket.
 *
 * Ownership: the caller's memory, init ... fini. Threads: any, after init. Locks: one, for the regions,
 * held for a lookup. Never blocks. Errors: -EINVAL with a text for invalid options, -ENOMEM. */

#define PS_S3_MAX_REGIONS 256 /* buckets whose region is remembered; a new one replaces the oldest */

struct ps_s3_store {
	char *scheme, *host; /* of the endpoint; host has its port; NULL: Amazon's host of the region */
	char *base;          /* a path that the endpoint has before the bucket: "" or "/x" */
	/* scheme://host/base of an endpoint that the user gave, for objects' URLs; NULL: none */
	char *identity;
	bool virtual_hosts;               /* use bucket.host if the bucket's name allows it */
	char region[PS_SIGV4_REGION_LEN]; /* for buckets whose region was not learned */

	pthread_mutex_t lock; /* protects: */
	struct ps_s3_region {
		char *bucket; /* NULL: free */
		char region[PS_SIGV4_REGION_LEN];
	} regions[PS_S3_MAX_REGIONS];
	unsigned next_region;
};

/* endpoint, region: the user's, or NULL. default_endpoint: the scheme's; NULL: Amazon's. */
int ps_s3_store_init(struct ps_s3_store *store, const char *endpoint, const char *region,
        const char *default_endpoint, enum ps_s3_addressing addressing, struct ps_error *err) PS_MUST_USE;
void ps_s3_store_fini(struct ps_s3_store *store);

/* Where a request is sent. */
struct ps_s3_place {
	struct ps_strbuf host, path; /* path: encoded, as signed and sent */
	char region[PS_SIGV4_REGION_LEN];
};
void ps_s3_place_fini(struct ps_s3_place *place);
/* key "": the bucket. Fills *ret, which was zeroed. */
int ps_s3_store_place(
        struct ps_s3_store *store, const char *bucket, const char *key, struct ps_s3_place *ret) PS_MUST_USE;

/* Records the region that the store gave for a bucket. True: it was not known; send the request again. */
bool ps_s3_store_learn(struct ps_s3_store *store, const char *bucket, const char *region);

/* S3: temporary redirects -------------------------------------------------------------------------------- */

/* Follows a store's temporary redirect (307 with a Location), which Amazon sends while a new bucket's name
 * spreads: the same request is signed again for that host. Credentials are only for the store, so a
 * redirect to another host is not followed.
 *
 * Ownership: the caller's. Threads: any. Never blocks. */

/* location: an absolute URL. It must have the store's scheme, and the endpoint's host, a host below that,
 * or (for Amazon) another name of S3. Fills in *ret and *ret_query (encoded, sorted), which were zeroed.
 * -EACCES: another host; -ENOMEM. */
int ps_s3_temporary_redirect(struct ps_s3_store *store, const char *bucket, const char *location,
        struct ps_s3_place *ret, struct ps_strbuf *ret_query) PS_MUST_USE;

/* S3: refusals ------------------------------------------------------------------------------------------- */

/* Refusals of an S3 store: parses the XML of its error document, and maps codes to errnos, texts and
 * remedies.
 *
 * Ownership: plain memory of the caller. Threads: any. Never blocks. */

struct ps_s3_refusal {
	char code[64]; /* "AccessDenied"; "" if the answer was not an error document */
	char message[200];
	char region[64]; /* the bucket's region, if the document has it */
};

/* Parses any bytes. It takes only these three elements, because others may repeat parts of the request. */
void ps_s3_refusal_parse(const char *text, size_t nbytes, struct ps_s3_refusal *ret);

/* A change with which the same request may succeed at once. */
enum ps_s3_remedy {
	PS_S3_NO_REMEDY,
	PS_S3_OTHER_REGION, /* sign for the bucket's region, and send it there */
	PS_S3_OTHER_CLOCK,  /* sign with the server's time */
	PS_S3_OTHER_KEY,    /* the key is unknown or has expired */
	PS_S3_OTHER_PLACE,  /* send it to the answer's Location */
};

/* A code of a store's refusals, and what it means. */
struct ps_s3_code {
	const char *code;
	int errnum;
	bool retryable;
	const char *text;
	enum ps_s3_remedy remedy;
};

/* Judges an answer without a document: one to a HEAD, or of a proxy in front of the store. */
typedef enum ps_s3_remedy (*ps_s3_judge)(int status, bool listing, struct ps_error *err);

/* As ps_s3_refusal_judge(), by the codes of another store. For a code that is not among them, the error by HTTP
 * status stays. */
enum ps_s3_remedy ps_s3_codes_judge(const struct ps_s3_code *codes, size_t n, ps_s3_judge by_status,
        const struct ps_s3_refusal *refusal, int status, bool listing, struct ps_error *err);

/* Fills in err for an answer of this status; http_status, retryable and retry_after_ms stay as they are
 * unless the code decides them. listing: the request was for a listing. */
enum ps_s3_remedy ps_s3_refusal_judge(
        const struct ps_s3_refusal *refusal, int status, bool listing, struct ps_error *err);

/* S3: requests ------------------------------------------------------------------------------------------- */

/* Requests to an S3 store: a dialect of http/http.h. Objects have the URLs of base/url.h. Each attempt is
 * addressed and signed again, with the current key, region and clock. If a refusal shows another region,
 * another clock or expired credentials, that is recorded, and the request is sent again. */

struct ps_s3_signer {
	struct ps_s3_store store;
	struct ps_credentials *credentials;
	struct ps_sigv4_keys keys;
	_Atomic int64_t clock_off_s; /* the store's clock minus ours */
	bool request_payer;
	bool follow_redirects; /* to other hosts, without credentials */
};

/* The client's dialect_arg is the struct ps_s3_signer. */
extern const struct ps_http_dialect ps_s3_dialect;

/* What a request asks for. A bucket's listing is requested as the page "s3://BUCKET?QUERY", with the query sorted
 * and encoded. */
struct ps_s3_target {
	struct ps_s3_url url;
	const char *list; /* the query of a listing; NULL: an object is requested */
};
#define ps_autos3target __attribute__((cleanup(ps_cleanup_s3_target)))
static inline void ps_cleanup_s3_target(struct ps_s3_target *target)
{
	ps_s3_url_fini(&target->url);
}
/* has_account: the storage account comes before the bucket. */
int ps_s3_target_parse(
        const char *text, bool has_account, struct ps_s3_target *ret, struct ps_error *err) PS_MUST_USE;

/* What the dialects of all stores with buckets share. off_s: the store's clock minus ours. */
int ps_s3_out_of_memory(struct ps_http_request *rq);
/* Sends a header, which may be secret. */
int ps_s3_send_header(struct ps_http_request *rq, const char *name, const char *value) PS_MUST_USE;
/* Takes the store's clock from its answer. False: it has no date. */
bool ps_s3_clock_set(_Atomic int64_t *off_s, const struct ps_http_response *response);
/* True if the answer's date is so far off that the store refuses what we sign. */
bool ps_s3_clock_is_off(const _Atomic int64_t *off_s, const struct ps_http_response *response);

/* S3: listings ------------------------------------------------------------------------------------------- */

/* Lists the objects of an s3:// or gs:// source: a bucket or a prefix, page by page; one key; expanded
 * braces; or a manifest. struct ps_origin_ops.list has the rules. */

/* A page has 1,000 keys of up to 1,024 bytes, escaped; a longer page is an error. */
#define PS_S3_PAGE_MAX_NBYTES (UINT64_C(16) << 20)

/* pin: list versions, and name each object by its version. */
int ps_s3_list(struct ps_origin *o, struct ps_http_client *c, struct ps_credentials *credentials,
        const struct ps_origin_source *source, bool pin, ps_list_fn fn, void *arg, const _Atomic bool *stop,
        struct ps_error *err) PS_MUST_USE;

/* Azure: the storage account ----------------------------------------------------------------------------- */

/* A storage account, its place, and its credential: an account key (SharedKey), a shared access signature
 * (SAS), or none. The first of these that is set counts: --no-sign-request; the SAS of the source;
 * --credentials; AZURE_STORAGE_CONNECTION_STRING; AZURE_STORAGE_KEY; AZURE_STORAGE_SAS_TOKEN. If the
 * connection string or AZURE_STORAGE_ACCOUNT names another account, the last three are refused.
 *
 * Ownership: the caller's memory, init ... fini. Threads: any, after init. Locks: one, for the SAS, held
 * for a copy; the file is read without it. Blocking: init and refused block on disk. Errors: -EINVAL,
 * -EACCES with advice; no text holds a secret. */

#define PS_AZ_KEY_MAX_LEN 256 /* of a decoded key; keys of accounts have 64 bytes */

struct ps_az_store {
	char *account;
	char *root;     /* scheme://host[:port], with a path if the account is not in the host's name */
	char *identity; /* the same, for objects' URLs; NULL: Azure's public cloud */
	unsigned char key[PS_AZ_KEY_MAX_LEN]; /* secret */
	size_t nkey;                          /* 0: none */
	char *sas_file;
	pthread_mutex_t lock;
	char *sas;                   /* secret; NULL: none */
	_Atomic int64_t clock_off_s; /* the store's clock minus ours */
};

/* The `identity` of the source's store; the caller frees it. NULL: the public cloud. */
char *ps_az_endpoint(const char *canonical, const struct ps_origin_options *options);

/* As ps_credentials_inputs(), for a storage account. */
int ps_az_inputs(const struct ps_origin_options *options, ps_input_fn add, void *arg) PS_MUST_USE;

/* The options of the credentials for a bucket's store, all but their kind. Borrowed. */
struct ps_credentials_options ps_s3_credentials(const struct ps_origin_options *options);

#endif
