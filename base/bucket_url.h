/* URLs of objects in buckets: s3://BUCKET/KEY, gs://BUCKET/KEY and az://ACCOUNT/CONTAINER/KEY, whose bucket is "ACCOUNT/CONTAINER".
 *
 *   s3://bucket/dir/a%20b.tar?versionId=VERSION&endpoint=https%3A//minio:9000
 *
 * %XX stands for a byte, as in any URL; everything else is the key's own, also "+", "#", "&", "//" and "..".
 * A "?" is the key's, too, unless versionId= or endpoint= follows it. endpoint tells objects of equally named
 * buckets of two stores apart; it is put there by the origin, and no part of what users write.
 *
 * Ownership: strings handed out are the caller's, to free(). Threads: any. Blocks: never.
 * Errors: -EINVAL for what is no such URL (text without secrets), -ENOMEM. */
#ifndef PS_BASE_BUCKET_URL_H
#define PS_BASE_BUCKET_URL_H

#include <stdbool.h>

#include "base/error.h"
#include "base/strbuf.h"

#define PS_S3_KEY_MAX_LEN 4096 /* stores take 1,024 bytes */

struct ps_s3_url {
	char scheme[3]; /* "s3", "gs", "az" */
	char *bucket;
	char *key;      /* decoded; "" for the bucket itself; no NUL in it */
	char *version;  /* NULL: the current one */
	char *endpoint; /* NULL: the scheme's own */
};

bool ps_s3_url_is(const char *text); /* by its scheme */
bool ps_s3_url_is_azure(const char *text);
int ps_s3_url_parse(const char *text, struct ps_s3_url *ret, struct ps_error *err) PS_MUST_USE;
void ps_s3_url_fini(struct ps_s3_url *u);

#define ps_autos3url __attribute__((cleanup(ps_s3_url_fini)))

/* The one form of a URL, escaped as it would be signed. */
void ps_s3_url_compose(const struct ps_s3_url *u, struct ps_strbuf *out);

/* rel, a whole URL or relative to base's folder, as a list names it; "/x" is the bucket's x. No dot segments:
 * ".." is a key's own. NULL: out of memory. */
char *ps_s3_url_join(const char *base, const char *rel);

/* A key, or the part of one below what is mounted, as a path that can be shown: its parts are names of files
 * and folders as they are, but for
 *
 *   control characters    %XX                       a part that is empty          %
 *   a part "." or ".."    %2E, %2E%2E               a first part ".penstock"      %2Epenstock
 *
 * What looks like such an escape in a key gets another "25" behind its %, so that no two keys meet: "a%0Ab"
 * is shown as "a%250Ab", a part "%" as "%25", while "100%" and "a%20b" stay what they are.
 * (Where both "a" and "a/b" are keys, the listing calls the folder "a%00".) */
void ps_s3_path(const char *key, struct ps_strbuf *out);

#endif
