/* URLs: parse, compose, make canonical, redact for logs. The first part of this header is for http, https
 * and file, the second for objects in buckets.
 *
 * In a canonical URL, scheme and host are lower-case; a default port, dot segments, user:password@, the
 * fragment and all signature-like query parameters are removed; all characters that need it are
 * percent-encoded.
 *
 * Ownership: the caller frees returned strings with free(). Threads: any. Blocks: never. Errors: -EINVAL:
 * not a URL (the error's text holds no secrets); -ENOMEM. */
#ifndef PS_BASE_URL_H
#define PS_BASE_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

#define PS_URL_MAX_LEN 16384 /* longer URLs are refused */

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

/* The canonical form of a parsed URL. NULL: out of memory. */
char *ps_url_compose(const struct ps_url *u);

/* "https://host:port", which decides whether credentials may be sent with a request. NULL: out of
 * memory. */
char *ps_url_authority(const struct ps_url *u);

/* True if the host, in the form of ps_url_parse(), is always this machine, independent of name
 * resolution. */
bool ps_url_is_loopback(const char *host);

/* A URL or relative reference with blanks and bytes beyond ASCII percent-encoded, except in the authority.
 * libcurl 8 refuses blanks; libcurl 7 encodes them like this (lower-case digits; "+" for a blank in the
 * query), and the cache stores objects under such URLs. Everything else is unchanged. NULL: out of
 * memory. */
char *ps_url_escape_raw(const char *text);

/* Resolves rel, absolute or relative to base, as a browser does; *ret is not canonical. */
int ps_url_join(const char *base, const char *rel, char **ret, struct ps_error *err) PS_MUST_USE;

/* True if an absolute URL contains user:password@, or something that might be it. */
bool ps_url_has_user(const char *url);

/* The length of "https://host:port" or "s3://bucket" at the start of a source. 0: it is no URL. */
size_t ps_url_authority_len(const char *url);

#define PS_URL_TEXT_LEN 320
/* For logs and errors; also for texts that are not URLs. user:password@ is removed, values of
 * signature-like parameters become "...", and the result is cut to fit. Returns buf. */
const char *ps_url_redact(const char *url, char buf[static PS_URL_TEXT_LEN]);

/* Decodes %XX. -EINVAL for a broken escape, a NUL, or a "/" that was escaped (it would change the shape of
 * a path). */
int ps_url_decode(const char *text, size_t n, struct ps_strbuf *out) PS_MUST_USE;

/* Escapes all characters except unreserved ones, sub-delimiters, ":" and "@", and, if keep_slash, "/". */
void ps_url_encode(const char *bytes, size_t n, bool keep_slash, struct ps_strbuf *out);
/* Escapes all characters except unreserved ones, and, if keep_slash, "/", as AWS signatures require. */
void ps_url_encode_strict(const char *bytes, size_t n, bool keep_slash, struct ps_strbuf *out);

/* Buckets: s3://BUCKET/KEY, gs://BUCKET/KEY and az://ACCOUNT/CONTAINER/KEY, whose bucket is
 * "ACCOUNT/CONTAINER".
 *
 *   s3://bucket/dir/a%20b.tar?versionId=VERSION&endpoint=https%3A//minio:9000
 *
 * %XX stands for a byte, as in any URL; every other character belongs to the key, also "+", "#", "&", "//"
 * and "..". So does a "?", unless versionId= or endpoint= follows it. endpoint distinguishes equally named
 * buckets of two stores: cache/origin adds it; users set it by an option, not in a source. */
#define PS_S3_KEY_MAX_LEN 4096 /* stores allow 1,024 bytes */

struct ps_s3_url {
	char scheme[3]; /* "s3", "gs", "az" */
	char *bucket;
	char *key;      /* decoded; "" for the bucket itself; no NUL in it */
	char *version;  /* NULL: the current one */
	char *endpoint; /* NULL: the scheme's default */
};

bool ps_s3_url_is(const char *text); /* by its scheme */
bool ps_s3_url_is_azure(const char *text);
int ps_s3_url_parse(const char *text, struct ps_s3_url *ret, struct ps_error *err) PS_MUST_USE;
void ps_s3_url_fini(struct ps_s3_url *u);

#define ps_autos3url __attribute__((cleanup(ps_s3_url_fini)))

/* The canonical form of a URL, escaped as for a signature. */
void ps_s3_url_compose(const struct ps_s3_url *u, struct ps_strbuf *out);

/* Resolves rel, an entry of a manifest: a whole URL, or a path relative to base's folder; "/x" is key x of
 * the bucket. base has neither versionId= nor endpoint=: a "?" in it belongs to the key. There are no dot
 * segments: ".." is part of a key. NULL: out of memory. */
char *ps_s3_url_join(const char *base, const char *rel);

/* Turns a key, or the part of a key below the mounted prefix, into a path of file and folder names. The
 * names are those of the key, except for
 *
 *   control characters    %XX                       a part that is empty          %
 *   a part "." or ".."    %2E, %2E%2E               a first part ".penstock"      %2Epenstock
 *
 * A text in a key that looks like such an escape gets "25" after its %, so that different keys have
 * different paths: "a%0Ab" is shown as "a%250Ab", a part "%" as "%25", while "100%" and "a%20b" stay
 * unchanged. (If both "a" and "a/b" are keys, the listing names the folder "a%00".) */
void ps_s3_path(const char *key, struct ps_strbuf *out);
/* The same for one name of a folder or a listing, which has no slash. first: it is the path's first part. */
void ps_s3_part(const char *name, bool first, struct ps_strbuf *out);

#endif
