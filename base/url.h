/* URLs: taken apart, put together, made canonical, made fit for a log. First those of http, https and file,
 * then those of objects in buckets.
 *
 * A URL is canonical when scheme and host are lower-case, a default port, dot segments, user:password@, the
 * fragment and all signature-like query parameters are gone, and what must be percent-encoded is.
 *
 * Ownership: strings handed out are the caller's, to free(). Threads: any. Blocks: never.
 * Errors: -EINVAL for what is no URL (text without secrets), -ENOMEM. */
#ifndef PS_BASE_URL_H
#define PS_BASE_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

#define PS_URL_MAX_LEN 16384 /* longer ones are refused */

struct ps_url {
	char *scheme;    /* lower-case */
	char *user;      /* decoded; NULL if there was none */
	char *password;  /* decoded; NULL if there was none */
	char *host;      /* lower-case; IPv6 in brackets; "" for file: */
	char *port;      /* NULL if it is the scheme's default */
	char *path;      /* encoded, without dot segments, starts with "/" */
	char *query;     /* encoded, without signatures; NULL if none is left */
	char *signature; /* the signature-like parameters, joined by "&"; NULL if there were none */
};

/* Schemes http, https and file only. */
int ps_url_parse(const char *text, struct ps_url *ret, struct ps_error *err) PS_MUST_USE;
void ps_url_fini(struct ps_url *u);

#define ps_autourl __attribute__((cleanup(ps_url_fini)))

/* The canonical form, of what was parsed. NULL: out of memory. */
char *ps_url_compose(const struct ps_url *u);

/* "https://host:port", what decides whether credentials may be sent along. NULL: out of memory. */
char *ps_url_authority(const struct ps_url *u);

/* Is a host, as ps_url_parse() leaves it, this machine, whatever answers for names? */
bool ps_url_is_loopback(const char *host);

/* A URL or a relative reference with blanks and bytes beyond ASCII percent-encoded, but for the authority.
 * libcurl 8 refuses blanks; libcurl 7 encodes them like this (lower-case digits; "+" for a blank of the
 * query), and cached objects are known by such URLs. All else is as it was. NULL: out of memory. */
char *ps_url_escape_raw(const char *text);

/* rel, absolute or relative to base, as a browser would; not canonical. */
int ps_url_join(const char *base, const char *rel, char **ret, struct ps_error *err) PS_MUST_USE;

/* Does an absolute URL hold user:password@, or what might be that? */
bool ps_url_has_user(const char *url);

#define PS_URL_TEXT_LEN 320
/* For logs and errors, also of what is no URL at all: user:password@ cut out, values of signature-like
 * parameters replaced by "...", cut to fit. Returns buf. */
const char *ps_url_redact(const char *url, char buf[static PS_URL_TEXT_LEN]);

/* Undoes %XX. -EINVAL for a broken escape, a NUL, or a "/" that was escaped (it would change the shape of a
 * path). */
int ps_url_decode(const char *text, size_t n, struct ps_strbuf *out) PS_MUST_USE;

/* Escapes all but unreserved characters, sub-delimiters, ":" and "@", and "/" if keep_slash. */
void ps_url_encode(const char *bytes, size_t n, bool keep_slash, struct ps_strbuf *out);
/* All but unreserved characters, and "/" if keep_slash: as AWS's signatures want it. */
void ps_url_encode_strict(const char *bytes, size_t n, bool keep_slash, struct ps_strbuf *out);

/* Buckets: s3://BUCKET/KEY, gs://BUCKET/KEY and az://ACCOUNT/CONTAINER/KEY, whose bucket is
 * "ACCOUNT/CONTAINER".
 *
 *   s3://bucket/dir/a%20b.tar?versionId=VERSION&endpoint=https%3A//minio:9000
 *
 * %XX stands for a byte, as in any URL; everything else is the key's own, also "+", "#", "&", "//" and "..".
 * A "?" is the key's, too, unless versionId= or endpoint= follows it. endpoint distinguishes objects of
 * equally named buckets of two stores apart; it is put there by the origin, and no part of what users
 * write. */
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
 * What looks like such an escape in a key gets another "25" after its %, so that no two keys meet: "a%0Ab"
 * is shown as "a%250Ab", a part "%" as "%25", while "100%" and "a%20b" stay what they are.
 * (Where both "a" and "a/b" are keys, the listing calls the folder "a%00".) */
void ps_s3_path(const char *key, struct ps_strbuf *out);

#endif
