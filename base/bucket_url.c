#include "base/bucket_url.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/url.h"

#define BUCKET_MAX_LEN 255

bool ps_s3_url_is(const char *text)
{
	return strncasecmp(text, "s3://", 5) == 0 || strncasecmp(text, "gs://", 5) == 0 || ps_s3_url_is_azure(text);
}

bool ps_s3_url_is_azure(const char *text)
{
	return strncasecmp(text, "az://", 5) == 0;
}

/* Behind the scheme, up to the "/" before the key. */
static size_t bucket_len(const char *url)
{
	size_t n = strcspn(url + 5, "/");

	return ps_s3_url_is_azure(url) && url[5 + n] ? n + 1 + strcspn(url + 5 + n + 1, "/") : n;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int escaped(const char *s)
{
	int hi = s[0] == '%' ? hex(s[1]) : -1, lo = hi >= 0 ? hex(s[2]) : -1;

	return lo >= 0 ? hi * 16 + lo : -1;
}

/* NULL: a NUL in it, or out of memory. A "%" that starts no escape is one. */
static char *decode(const char *text, size_t n)
{
	char *s = malloc(n + 1), *out = s;

	for (size_t i = 0; s && i < n; i++) {
		int byte = n - i >= 3 ? escaped(text + i) : -1;

		if (byte == 0) {
			free(s);
			return NULL;
		}
		*out++ = byte > 0 ? (char)byte : text[i];
		i += byte > 0 ? 2 : 0;
	}
	if (s)
		*out = '\0';
	return s;
}

/* ACCOUNT/CONTAINER, as Azure lets them be called; $root and $web are containers, too. */
static bool is_container(const char *name, size_t n)
{
	size_t account = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789"), rest = n - PS_MIN(account + 1, n);
	const char *container = name + account + 1;

	if (account == 0 || account > 24 || rest == 0 || rest > 63 || name[account] != '/')
		return false;
	return strspn(container, "abcdefghijklmnopqrstuvwxyz0123456789-$") >= rest;
}

static bool is_bucket(const char *name, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)name[i];

		if (c >= 0x80 || !(isalnum(c) || strchr("-._", c)))
			return false;
	}
	return n > 0 && n <= BUCKET_MAX_LEN && strspn(name, ".") < n;
}

/* "versionId=" and "endpoint=", in any order. False: it is no such query, and belongs to the key. */
static bool take_query(struct ps_s3_url *u, const char *query)
{
	while (*query) {
		size_t n = strcspn(query, "&");
		char **to = strncmp(query, "versionId=", 10) == 0 ? &u->version
		            : strncmp(query, "endpoint=", 9) == 0 ? &u->endpoint
		                                                  : NULL;

		if (!to || *to)
			return false;
		size_t skip = strcspn(query, "=") + 1;
		if (skip < n && !(*to = decode(query + skip, n - skip)))
			return false;
		query += n + (query[n] == '&');
	}
	return true;
}

static void drop_query(struct ps_s3_url *u)
{
	free(ps_steal_ptr(&u->version));
	free(ps_steal_ptr(&u->endpoint));
}

int ps_s3_url_parse(const char *text, struct ps_s3_url *ret, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];
	ps_autos3url struct ps_s3_url u = {0};

	if (!ps_s3_url_is(text))
		return ps_error_set(err, EINVAL, "%s: not an s3:// or gs:// URL", ps_url_redact(text, safe));
	u.scheme[0] = (char)tolower((unsigned char)text[0]);
	u.scheme[1] = (char)tolower((unsigned char)text[1]);
	const char *bucket = text + 5;
	size_t nbucket = bucket_len(text);
	if (memchr(bucket, '@', nbucket))
		return ps_error_set(err, EINVAL,
		        "%s: keys do not belong into the source: set AWS_ACCESS_KEY_ID and "
		        "AWS_SECRET_ACCESS_KEY",
		        ps_url_redact(text, safe));
	if (ps_s3_url_is_azure(text)) {
		if (!is_container(bucket, nbucket))
			return ps_error_set(err, EINVAL, "%s: not of the form az://ACCOUNT/CONTAINER/PREFIX/",
			        ps_url_redact(text, safe));
	} else if (!is_bucket(bucket, nbucket))
		return ps_error_set(err, EINVAL, "%s: \"%.*s\" is no name of a bucket (%s://BUCKET/PREFIX/)",
		        ps_url_redact(text, safe), (int)PS_MIN(nbucket, 64u), bucket, u.scheme);
	const char *key = bucket + nbucket + (bucket[nbucket] == '/');
	size_t nkey = strlen(key);
	const char *query = strrchr(key, '?');
	if (query && query[1] && take_query(&u, query + 1))
		nkey = (size_t)(query - key);
	else
		drop_query(&u);
	u.bucket = strndup(bucket, nbucket);
	u.key = decode(key, nkey);
	if (!u.bucket || !u.key || strlen(u.key) > PS_S3_KEY_MAX_LEN)
		return ps_error_set(err, EINVAL, "%s: a key longer than %d bytes, or with a NUL",
		        ps_url_redact(text, safe), PS_S3_KEY_MAX_LEN);
	*ret = u;
	u = (struct ps_s3_url){0};
	return 0;
}

void ps_s3_url_fini(struct ps_s3_url *u)
{
	free(u->bucket);
	free(u->key);
	free(u->version);
	free(u->endpoint);
	*u = (struct ps_s3_url){0};
}

static void add_parameter(struct ps_strbuf *out, char between, const char *name, const char *value)
{
	ps_strbuf_addf(out, "%c%s=", between, name);
	ps_url_encode_strict(value, strlen(value), true, out);
}

void ps_s3_url_compose(const struct ps_s3_url *u, struct ps_strbuf *out)
{
	ps_strbuf_addf(out, "%s://%s/", u->scheme, u->bucket);
	ps_url_encode_strict(u->key, strlen(u->key), true, out);
	if (u->version)
		add_parameter(out, '?', "versionId", u->version);
	if (u->endpoint)
		add_parameter(out, u->version ? '&' : '?', "endpoint", u->endpoint);
}

char *ps_s3_url_join(const char *base, const char *rel)
{
	struct ps_strbuf b = {0};
	const char *path = base + 5, *colon = strstr(rel, "://");

	if (!colon || memchr(rel, '/', (size_t)(colon - rel))) {
		size_t nbucket = bucket_len(base), n = nbucket;

		for (const char *s = strchr(path + nbucket, '/'); rel[0] != '/' && s; s = strchr(s + 1, '/'))
			n = (size_t)(s - path);
		ps_strbuf_addn(&b, base, 5 + (rel[0] == '/' ? nbucket : n));
		if (rel[0] != '/')
			ps_strbuf_addc(&b, '/');
	}
	ps_strbuf_add(&b, rel);
	return ps_strbuf_take(&b);
}

/* Names ------------------------------------------------------------------------------------------- */

static bool is_control(unsigned char c)
{
	return c < ' ' || c == 0x7f;
}

/* How many bytes "%", "%25", "%2525" ... at s are, up to end. */
static size_t percents(const char *s, const char *end)
{
	size_t n = 1;

	while (end - s >= (ptrdiff_t)n + 2 && s[n] == '2' && s[n + 1] == '5')
		n += 2;
	return n;
}

/* Is there "%0A", "%250A" ... at s: an escaped control character, or what looks like one? */
static bool looks_escaped(const char *s, const char *end)
{
	size_t n = percents(s, end);

	if (end - s < (ptrdiff_t)n + 2)
		return false;
	int hi = hex(s[n]), lo = hex(s[n + 1]);
	return hi >= 0 && lo >= 0 && !islower((unsigned char)s[n + 1]) &&
	       is_control((unsigned char)(hi * 16 + lo));
}

static bool is_part(const char *s, const char *end, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(end - s) == n && memcmp(s, word, n) == 0;
}

/* A whole part that needs an escape in front: *ret_skip bytes of it are replaced by *ret. */
static bool whole_part(const char *s, const char *end, bool first, const char **ret, size_t *ret_skip)
{
	static const char *const rests[] = {"", "2E", "2E%2E", "2Epenstock"};
	size_t n = s < end && *s == '%' ? percents(s, end) : 0;

	*ret_skip = 1;
	*ret = "%2E";
	if (is_part(s, end, ".") || is_part(s, end, "..") || (first && is_part(s, end, ".penstock")))
		return true;
	*ret = "%";
	*ret_skip = 0;
	if (s == end)
		return true;
	*ret = "%25";
	*ret_skip = 1;
	for (size_t i = 0; n && i < PS_ARRAY_LEN(rests); i++)
		if (is_part(s + n, end, rests[i]) && (first || i < 3))
			return true;
	return false;
}

static void add_part(const char *s, const char *end, bool first, struct ps_strbuf *out)
{
	const char *start;
	size_t skip;

	if (whole_part(s, end, first, &start, &skip)) {
		ps_strbuf_add(out, start);
		if (is_part(s, end, "..")) {
			ps_strbuf_add(out, start);
			return;
		}
		s += skip;
	}
	for (; s < end; s++) {
		if (is_control((unsigned char)*s))
			ps_strbuf_addf(out, "%%%02X", (unsigned char)*s);
		else if (*s == '%' && looks_escaped(s, end))
			ps_strbuf_add(out, "%25");
		else
			ps_strbuf_addc(out, *s);
	}
}

void ps_s3_path(const char *key, struct ps_strbuf *out)
{
	for (const char *s = key, *end;; s = end + 1) {
		end = s + strcspn(s, "/");
		add_part(s, end, s == key, out);
		if (!*end)
			return;
		ps_strbuf_addc(out, '/');
	}
}
