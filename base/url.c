#include "base/url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

static void cleanup_curlu(CURLU **h)
{
	curl_url_cleanup(*h);
}

static void cleanup_curl_string(char **s)
{
	curl_free(*s);
}

#define autocurlu __attribute__((cleanup(cleanup_curlu))) CURLU
#define autocurl __attribute__((cleanup(cleanup_curl_string))) char

/* True for a query parameter that must not be shown or stored. name has n bytes, up to "=". */
static bool is_signature(const char *name, size_t n)
{
	static const char *const prefixes[] = {"x-amz-", "x-goog-"};
	/* Names of secrets and their expiry in URLs of S3, GCS, Azure, CloudFront, Akamai and nginx's
	 * secure_link. The names of two to five letters from "se" on are Azure's: the fields that its
	 * signature covers, which change with each new signature. */
	static const char *const names[] = {"signature", "sig", "token", "access_token", "expires",
	        "awsaccesskeyid", "googleaccessid", "key-pair-id", "policy", "md5", "hdnts", "hdnea", "auth",
	        "apikey", "api_key", "password", "secret", "se", "sp", "sr", "st", "sv", "spr", "skoid",
	        "sktid", "skt", "ske", "sks", "skv"};

	for (size_t i = 0; i < PS_ARRAY_LEN(prefixes); i++)
		if (n > strlen(prefixes[i]) && strncasecmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
		if (n == strlen(names[i]) && strncasecmp(name, names[i], n) == 0)
			return true;
	return false;
}

#define SCHEME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-."

/* Where the authority ends in an absolute URL or a relative reference. 0: it has none. In a file: URL it
 * ends after "file:". As lenient about slashes as libcurl. */
static size_t authority_end(const char *text)
{
	size_t n = strspn(text, SCHEME_CHARS);

	if (text[n] == ':' && text[n + 1] == '/') {
		if (strncasecmp(text, "file:", 5) == 0)
			return n + 1;
		n++;
	} else if (strncmp(text, "//", 2) == 0) {
		n = 0;
	} else {
		return 0;
	}
	n += strspn(text + n, "/");
	return n + strcspn(text + n, "/?#");
}

char *ps_url_escape_raw(const char *text)
{
	struct ps_strbuf b = {0};
	size_t i = authority_end(text);
	const char *blank = "%20";

	ps_strbuf_addn(&b, text, i);
	for (; text[i]; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '?')
			blank = "+";
		if (c == ' ')
			ps_strbuf_add(&b, blank);
		else if (c >= 0x80)
			ps_strbuf_addf(&b, "%%%02x", c);
		else
			ps_strbuf_addc(&b, (char)c);
	}
	return ps_strbuf_take(&b);
}

/* Sets h to a URL, or to a reference relative to h's present URL. */
static CURLUcode set_url(CURLU *h, const char *text)
{
	ps_autofree char *escaped = ps_url_escape_raw(text);

	return escaped ? curl_url_set(h, CURLUPART_URL, escaped, CURLU_NON_SUPPORT_SCHEME)
	               : CURLUE_OUT_OF_MEMORY;
}

static int get_part(CURLU *h, CURLUPart part, unsigned flags, char **ret)
{
	autocurl *s = NULL;
	CURLUcode rc = curl_url_get(h, part, &s, flags);

	if (rc == CURLUE_NO_USER || rc == CURLUE_NO_PASSWORD || rc == CURLUE_NO_PORT ||
	        rc == CURLUE_NO_QUERY || rc == CURLUE_NO_HOST)
		return 0;
	if (rc != CURLUE_OK)
		return rc == CURLUE_OUT_OF_MEMORY ? -ENOMEM : -EINVAL;
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

static void lower(char *s)
{
	for (; s && *s; s++)
		*s = (char)tolower((unsigned char)*s);
}

static int take_query(CURLU *h, struct ps_url *u)
{
	ps_autofree char *query = NULL;
	ps_autostrbuf struct ps_strbuf plain = {0}, secret = {0};
	int rc = get_part(h, CURLUPART_QUERY, 0, &query);

	if (rc || !query)
		return rc;
	for (const char *s = query; *s;) {
		size_t n = strcspn(s, "&");
		struct ps_strbuf *to = is_signature(s, strcspn(s, "=&")) ? &secret : &plain;

		if (n) {
			if (to->len)
				ps_strbuf_addc(to, '&');
			ps_strbuf_addn(to, s, n);
		}
		s += n + (s[n] == '&');
	}
	if (plain.len && !(u->query = ps_strbuf_take(&plain)))
		return -ENOMEM;
	if (secret.len && !(u->signature = ps_strbuf_take(&secret)))
		return -ENOMEM;
	return 0;
}

static int take_parts(CURLU *h, struct ps_url *u)
{
	int rc = get_part(h, CURLUPART_SCHEME, 0, &u->scheme);

	if (!rc)
		rc = get_part(h, CURLUPART_USER, CURLU_URLDECODE, &u->user);
	if (!rc)
		rc = get_part(h, CURLUPART_PASSWORD, CURLU_URLDECODE, &u->password);
	if (!rc)
		rc = get_part(h, CURLUPART_HOST, 0, &u->host);
	if (!rc)
		rc = get_part(h, CURLUPART_PORT, CURLU_NO_DEFAULT_PORT, &u->port);
	if (!rc)
		rc = get_part(h, CURLUPART_PATH, 0, &u->path);
	if (!rc)
		rc = take_query(h, u);
	if (!rc && !u->host && !(u->host = strdup("")))
		rc = -ENOMEM;
	if (!rc && (!u->scheme || !u->path))
		rc = -EINVAL;
	lower(u->scheme);
	lower(u->host);
	return rc;
}

/* Checks that parsing the parsed host again gives the same host. libcurl has decoded the host once, so a
 * host with a percent sign left, or a number that libcurl reads as an IPv4 address, would give another one:
 * -EINVAL. Also -ENOMEM. */
static int check_host(const struct ps_url *u)
{
	autocurlu *h = curl_url();
	ps_autofree char *again = NULL;

	if (!u->host[0] || u->host[0] == '[')
		return 0;
	ps_autostrbuf struct ps_strbuf url = {0};
	ps_strbuf_addf(&url, "https://%s/", u->host);
	if (!h || url.failed)
		return -ENOMEM;
	CURLUcode uc = set_url(h, url.s);
	int rc = uc == CURLUE_OUT_OF_MEMORY ? -ENOMEM
	         : uc != CURLUE_OK          ? -EINVAL
	                                    : get_part(h, CURLUPART_HOST, 0, &again);
	if (rc < 0 || !again)
		return rc < 0 ? rc : -EINVAL;
	lower(again);
	return strcmp(again, u->host) == 0 ? 0 : -EINVAL;
}

static bool has_control(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return true;
	return false;
}

int ps_url_parse(const char *text, struct ps_url *ret, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];
	ps_autourl struct ps_url u = {0};
	autocurlu *h = curl_url();
	size_t n = strlen(text);

	if (!h)
		return ps_no_memory(err);
	if (n > PS_URL_MAX_LEN)
		return ps_error_set(
		        err, EINVAL, "%s: longer than %d bytes", ps_url_redact(text, safe), PS_URL_MAX_LEN);
	if (has_control(text))
		return ps_error_set(err, EINVAL, "%s: control character in a URL", ps_url_redact(text, safe));
	CURLUcode uc = set_url(h, text);
	if (uc == CURLUE_OUT_OF_MEMORY)
		return ps_no_memory(err);
	if (uc != CURLUE_OK)
		return ps_error_set(
		        err, EINVAL, "%s: not a URL (%s)", ps_url_redact(text, safe), curl_url_strerror(uc));
	int rc = take_parts(h, &u);
	if (rc == -ENOMEM)
		return ps_no_memory(err);
	if (rc)
		return ps_error_set(err, -rc, "%s: not a URL", ps_url_redact(text, safe));
	if (strcmp(u.scheme, "http") != 0 && strcmp(u.scheme, "https") != 0 && strcmp(u.scheme, "file") != 0)
		return ps_error_set(err, EINVAL, "%s: scheme %s is not http, https or file",
		        ps_url_redact(text, safe), u.scheme);
	rc = check_host(&u);
	if (rc == -ENOMEM)
		return ps_no_memory(err);
	if (rc < 0)
		return ps_error_set(err, EINVAL, "%s: the host in this URL is not a valid name",
		        ps_url_redact(text, safe));
	*ret = u;
	u = (struct ps_url){0};
	return 0;
}

void ps_url_fini(struct ps_url *u)
{
	free(u->scheme);
	free(u->user);
	free(u->password);
	free(u->host);
	free(u->port);
	free(u->path);
	free(u->query);
	free(u->signature);
	*u = (struct ps_url){0};
}

static void add_authority(const struct ps_url *u, struct ps_strbuf *b)
{
	ps_strbuf_addf(b, "%s://%s", u->scheme, u->host);
	if (u->port)
		ps_strbuf_addf(b, ":%s", u->port);
}

char *ps_url_authority(const struct ps_url *u)
{
	struct ps_strbuf b = {0};

	add_authority(u, &b);
	return ps_strbuf_take(&b);
}

char *ps_url_compose(const struct ps_url *u)
{
	struct ps_strbuf b = {0};

	add_authority(u, &b);
	ps_strbuf_add(&b, u->path);
	if (u->query) {
		ps_strbuf_addc(&b, '?');
		ps_strbuf_add(&b, u->query);
	}
	return ps_strbuf_take(&b);
}

bool ps_url_is_loopback(const char *host)
{
	struct in_addr a;

	return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
	       (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

int ps_url_join(const char *base, const char *rel, char **ret, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];
	autocurlu *h = curl_url();
	autocurl *s = NULL;

	if (!h)
		return ps_no_memory(err);
	/* libcurl 8 escapes control characters of a relative reference; libcurl 7 refuses them. */
	if (strlen(rel) > PS_URL_MAX_LEN || has_control(rel))
		return ps_error_set(err, EINVAL, "%s: not a URL", ps_url_redact(rel, safe));
	CURLUcode uc = set_url(h, base);
	if (uc == CURLUE_OK)
		uc = set_url(h, rel);
	if (uc == CURLUE_OK)
		uc = curl_url_get(h, CURLUPART_URL, &s, 0);
	if (uc == CURLUE_OUT_OF_MEMORY)
		return ps_no_memory(err);
	if (uc != CURLUE_OK)
		return ps_error_set(err, EINVAL, "%s: not a URL", ps_url_redact(rel, safe));
	char *joined = strdup(s);
	if (!joined)
		return ps_no_memory(err);
	*ret = joined;
	return 0;
}

/* Where the authority of a URL starts, which may follow "@" (@https://host/list). 0: there is no scheme. As
 * lenient about slashes as libcurl, which takes one to three. */
static size_t authority_start(const char *text)
{
	const char *slashes = strstr(text, "://");
	size_t n = text[0] == '@';

	n += strspn(text + n, SCHEME_CHARS);
	if (text[n] == ':' && text[n + 1] == '/')
		slashes = text + n;
	if (!slashes)
		return 0;
	n = (size_t)(slashes - text) + 1;
	return n + strspn(text + n, "/");
}

/* True if an authority that ends at text[n] has something else than a port after its host. So "/", "?" or "#"
 * at text[n] may be a part of a password. */
static bool is_cut_password(const char *text, size_t n)
{
	size_t colon = text[0] == '[' ? strcspn(text, "]") : 0;

	colon += strcspn(text + colon, ":");
	return colon < n && strspn(text + colon + 1, "0123456789") < n - colon - 1;
}

/* Finds user:password@ in a URL, or in what might be one. False: there is none. */
static bool find_userinfo(const char *url, size_t *ret_start, size_t *ret_end)
{
	size_t start = authority_start(url);
	size_t n = start + strcspn(url + start, "/?#");

	if (start > 0 && is_cut_password(url + start, n - start) && !memchr(url + start, '@', n - start))
		n = strlen(url);
	/* Without a scheme the text may start with "@": @list.txt */
	for (size_t i = n; i > start + 1; i--) {
		if (url[i - 1] == '@') {
			*ret_start = start;
			*ret_end = i;
			return true;
		}
	}
	return false;
}

bool ps_url_has_user(const char *url)
{
	size_t start, end;

	return authority_start(url) > 0 && find_userinfo(url, &start, &end);
}

size_t ps_url_authority_len(const char *url)
{
	size_t start = authority_start(url);

	if (strncasecmp(url, "file:", 5) == 0)
		return 5;
	return start > 0 ? start + strcspn(url + start, "/?#") : 0;
}

struct fixed {
	char *s;
	size_t len, cap;
};

static void put(struct fixed *f, const char *s, size_t n)
{
	for (size_t i = 0; i < n && f->len + 1 < f->cap; i++)
		f->s[f->len++] = (unsigned char)s[i] < ' ' || s[i] == 0x7f ? '?' : s[i];
	f->s[f->len] = '\0';
}

const char *ps_url_redact(const char *url, char buf[static PS_URL_TEXT_LEN])
{
	const bool is_store = strncmp(url, "s3://", 5) == 0 || strncmp(url, "gs://", 5) == 0 ||
	                      strncmp(url, "az://", 5) == 0 || strncmp(url, "hf://", 5) == 0;
	struct fixed f = {.s = buf, .cap = PS_URL_TEXT_LEN};
	size_t start, end;

	buf[0] = '\0';
	if (find_userinfo(url, &start, &end)) {
		put(&f, url, start);
		url += end;
	}
	size_t n = strcspn(url, "?#");
	n += url[n] != '\0';
	put(&f, url, n);
	for (url += n; *url;) {
		size_t name = strcspn(url, "=&#"), whole = strcspn(url, "&#");

		if (name < whole && is_signature(url, name)) {
			put(&f, url, name + 1);
			put(&f, "...", 3);
		} else if (is_store && f.len > 0 && strncmp(url, "endpoint=", 9) == 0) {
			/* Penstock adds this parameter to distinguish stores. It is left out, because the
			 * user gave the endpoint as an option. */
			url += whole;
			if (*url == '&')
				url++;
			else
				buf[--f.len] = '\0';
			continue;
		} else {
			put(&f, url, whole);
		}
		url += whole;
		if (*url)
			put(&f, url++, 1);
	}
	if (f.len + 1 == f.cap)
		memcpy(buf + f.cap - 4, "...", 4);
	return buf;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ps_url_decode(const char *text, size_t n, struct ps_strbuf *out)
{
	for (size_t i = 0; i < n; i++) {
		if (text[i] != '%') {
			ps_strbuf_addc(out, text[i]);
			continue;
		}
		if (n - i < 3)
			return -EINVAL;
		int hi = hex(text[i + 1]), lo = hex(text[i + 2]);
		if (hi < 0 || lo < 0 || (hi | lo) == 0 || hi * 16 + lo == '/')
			return -EINVAL;
		ps_strbuf_addc(out, (char)(hi * 16 + lo));
		i += 2;
	}
	return out->failed ? -ENOMEM : 0;
}

void ps_url_encode(const char *bytes, size_t n, bool keep_slash, struct ps_strbuf *out)
{
	static const char raw[] = "-._~!$&'()*+,;=:@";

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)bytes[i];

		if (isalnum(c) ? c < 0x80 : (c && strchr(raw, c)) || (c == '/' && keep_slash))
			ps_strbuf_addc(out, (char)c);
		else
			ps_strbuf_addf(out, "%%%02X", c);
	}
}

void ps_url_encode_strict(const char *bytes, size_t n, bool keep_slash, struct ps_strbuf *out)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)bytes[i];

		/* Not isalnum() alone: it depends on the locale. */
		if ((c < 0x80 && isalnum(c)) || c == '-' || c == '.' || c == '_' || c == '~' ||
		        (c == '/' && keep_slash)) {
			ps_strbuf_addc(out, (char)c);
		} else {
			ps_strbuf_addc(out, '%');
			ps_strbuf_addc(out, digits[c >> 4]);
			ps_strbuf_addc(out, digits[c & 15]);
		}
	}
}

/* Buckets ------------------------------------------------------------------------------------------------ */

#define BUCKET_MAX_LEN 255

bool ps_s3_url_is(const char *text)
{
	return strncasecmp(text, "s3://", 5) == 0 || strncasecmp(text, "gs://", 5) == 0 ||
	       ps_s3_url_is_azure(text);
}

bool ps_s3_url_is_azure(const char *text)
{
	return strncasecmp(text, "az://", 5) == 0;
}

/* The length of the part after the scheme, up to the "/" before the key. */
static size_t bucket_len(const char *url)
{
	size_t n = strcspn(url + 5, "/");

	return ps_s3_url_is_azure(url) && url[5 + n] ? n + 1 + strcspn(url + 5 + n + 1, "/") : n;
}

static int escaped(const char *s)
{
	int hi = s[0] == '%' ? hex(s[1]) : -1, lo = hi >= 0 ? hex(s[2]) : -1;

	return lo >= 0 ? hi * 16 + lo : -1;
}

/* Decodes escapes. NULL: errno is EINVAL (the decoded text has a NUL) or ENOMEM. A "%" that starts no
 * escape stands for itself. */
static char *decode(const char *text, size_t n)
{
	char *s = malloc(n + 1), *out = s;

	for (size_t i = 0; s && i < n; i++) {
		int byte = n - i >= 3 ? escaped(text + i) : -1;

		if (byte == 0) {
			free(s);
			errno = EINVAL;
			return NULL;
		}
		*out++ = byte > 0 ? (char)byte : text[i];
		i += byte > 0 ? 2 : 0;
	}
	if (s)
		*out = '\0';
	return s;
}

/* True for ACCOUNT/CONTAINER in the characters and within the lengths of Azure's names; "$" is for the
 * containers $root and $web. */
static bool is_container(const char *name, size_t n)
{
	size_t account = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789"),
	       rest = n - PS_MIN(account + 1, n);
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

/* Parses "versionId=" and "endpoint=", in any order. 0: the query has other parameters, so it belongs to
 * the key. -ENOMEM. */
static int take_bucket_query(struct ps_s3_url *u, const char *query)
{
	while (*query) {
		size_t n = strcspn(query, "&");
		char **to = strncmp(query, "versionId=", 10) == 0 ? &u->version
		            : strncmp(query, "endpoint=", 9) == 0 ? &u->endpoint
		                                                  : NULL;

		if (!to || *to)
			return 0;
		size_t skip = strcspn(query, "=") + 1;
		if (skip < n && !(*to = decode(query + skip, n - skip)))
			return errno == ENOMEM ? -ENOMEM : 0;
		query += n + (query[n] == '&');
	}
	return 1;
}

int ps_s3_url_parse(const char *text, struct ps_s3_url *ret, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];
	ps_autos3url struct ps_s3_url u = {0};

	if (!ps_s3_url_is(text))
		return ps_error_set(
		        err, EINVAL, "%s: not an s3://, gs:// or az:// URL", ps_url_redact(text, safe));
	u.scheme[0] = (char)tolower((unsigned char)text[0]);
	u.scheme[1] = (char)tolower((unsigned char)text[1]);
	const char *bucket = text + 5;
	size_t nbucket = bucket_len(text);
	if (memchr(bucket, '@', nbucket))
		return ps_error_set(err, EINVAL, "%s: credentials do not belong in a source%s",
		        ps_url_redact(text, safe),
		        u.scheme[0] == 's' ? ": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" : "");
	if (ps_s3_url_is_azure(text)) {
		if (!is_container(bucket, nbucket))
			return ps_error_set(err, EINVAL, "%s: not of the form az://ACCOUNT/CONTAINER/PREFIX/",
			        ps_url_redact(text, safe));
	} else if (!is_bucket(bucket, nbucket))
		return ps_error_set(err, EINVAL,
		        "%s: \"%.*s\" is not the name of a bucket (%s://BUCKET/PREFIX/)",
		        ps_url_redact(text, safe), (int)PS_MIN(nbucket, 64u), bucket, u.scheme);
	const char *key = bucket + nbucket + (bucket[nbucket] == '/');
	size_t nkey = strlen(key);
	const char *query = strrchr(key, '?');
	int rc = query && query[1] ? take_bucket_query(&u, query + 1) : 0;
	if (rc < 0)
		return ps_no_memory(err);
	if (rc) {
		nkey = (size_t)(query - key);
	} else {
		free(ps_steal_ptr(&u.version));
		free(ps_steal_ptr(&u.endpoint));
	}
	u.bucket = strndup(bucket, nbucket);
	u.key = decode(key, nkey);
	if (!u.bucket || (!u.key && errno == ENOMEM))
		return ps_no_memory(err);
	if (!u.key || strlen(u.key) > PS_S3_KEY_MAX_LEN)
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

/* Names -------------------------------------------------------------------------------------------------- */

static bool is_control(unsigned char c)
{
	return c < ' ' || c == 0x7f;
}

/* The length of "%", "%25", "%2525" ... at s, up to end. */
static size_t percents(const char *s, const char *end)
{
	size_t n = 1;

	while (end - s >= (ptrdiff_t)n + 2 && s[n] == '2' && s[n + 1] == '5')
		n += 2;
	return n;
}

/* True if "%0A", "%250A" ... is at s: an escaped control character, or a text that looks like one. */
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

/* True if a whole part of a path (what is between two slashes) must be escaped: it is empty, ".", ".." or a
 * first ".penstock", or looks like the escape of one of these (ps_s3_path()). *ret is then written in place
 * of the part's first *ret_skip bytes; for ".." it is written once for each dot instead. `first`: the path's
 * first part. */
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

void ps_s3_part(const char *name, bool first, struct ps_strbuf *out)
{
	add_part(name, name + strlen(name), first, out);
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
