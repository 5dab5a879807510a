/* URLs: taken apart, put together, made canonical, made fit for a log.
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

/* Is a host, as ps_url_parse() leaves it, this machine, whoever answers for names? */
bool ps_url_is_loopback(const char *host);

/* A URL or a relative reference with blanks and bytes beyond ASCII percent-encoded, but for the authority. libcurl
 * 8 refuses blanks; libcurl 7 encodes them like this (lower-case digits; "+" for a blank of the query), and
 * cached objects are known by such URLs. All else is as it was. NULL: out of memory. */
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

#endif
