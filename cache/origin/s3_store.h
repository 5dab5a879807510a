/* Where an S3 store is: its endpoint, how buckets are addressed there, and in which region each is.
 *
 * Ownership: the caller's memory, init ... fini. Threads: any, after init. Locks: one, over the regions, for
 * a lookup. Blocks: never. Errors: -EINVAL with the story for options that make no sense, -ENOMEM. */
#ifndef PS_ORIGIN_S3_STORE_H
#define PS_ORIGIN_S3_STORE_H

#include <pthread.h>
#include <stdbool.h>

#include "origin/origin.h"
#include "base/bucket_url.h"
#include "credentials/sigv4.h"

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

#endif
