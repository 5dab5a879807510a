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

/* A query parameter that must not be shown or stored? name is of n bytes, up to "=". */
static bool is_signature(const char *name, size_t n)
{
	static const char *const prefixes[] = {"x-amz-", "x-goog-"};
	/* Names that S3, GCS, Azure, CloudFront, Akamai and nginx's secure_link give to secrets and their
	 * expiry. The short ones are Azure's: part of what is signed, and they change with it. */
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

/* Calls add to one of two buffers for each parameter. */
static void split_query(const char *query, struct ps_strbuf *plain, struct ps_strbuf *secret)
{
	while (*query) {
		size_t n = strcspn(query, "&");
		struct ps_strbuf *to = is_signature(query, strcspn(query, "=&")) ? secret : plain;

		if (n) {
			if (to->len)
				ps_strbuf_addc(to, '&');
			ps_strbuf_addn(to, query, n);
		}
		query += n + (query[n] == '&');
	}
}

/* Where the authority ends in an absolute URL or a relative reference; 0 if there is none. As generous with
 * slashes as libcurl. */
static size_t authority_end(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");

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

/* Gives h a URL, or a reference relative to the one it has. */
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
	split_query(query, &plain, &secret);
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

/* It was decoded once, and read again it would be another one: a percent sign in it, or a number that stands
 * for an address. */
static bool host_stays(const struct ps_url *u)
{
	autocurlu *h = curl_url();
	ps_autofree char *again = NULL;

	if (!u->host[0] || u->host[0] == '[')
		return true;
	ps_autostrbuf struct ps_strbuf url = {0};
	ps_strbuf_addf(&url, "https://%s/", u->host);
	if (!h || url.failed || set_url(h, url.s) != CURLUE_OK ||
	        get_part(h, CURLUPART_HOST, 0, &again) < 0 || !again)
		return false;
	lower(again);
	return strcmp(again, u->host) == 0;
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
		return ps_error_set(err, ENOMEM, "out of memory");
	if (n > PS_URL_MAX_LEN)
		return ps_error_set(
		        err, EINVAL, "%s: longer than %d bytes", ps_url_redact(text, safe), PS_URL_MAX_LEN);
	if (has_control(text))
		return ps_error_set(err, EINVAL, "%s: control character in a URL", ps_url_redact(text, safe));
	CURLUcode uc = set_url(h, text);
	if (uc == CURLUE_OUT_OF_MEMORY)
		return ps_error_set(err, ENOMEM, "out of memory");
	if (uc != CURLUE_OK)
		return ps_error_set(
		        err, EINVAL, "%s: not a URL (%s)", ps_url_redact(text, safe), curl_url_strerror(uc));
	int rc = take_parts(h, &u);
	if (rc == -ENOMEM)
		return ps_error_set(err, ENOMEM, "out of memory");
	if (rc)
		return ps_error_set(err, -rc, "%s: not a URL", ps_url_redact(text, safe));
	if (strcmp(u.scheme, "http") != 0 && strcmp(u.scheme, "https") != 0 && strcmp(u.scheme, "file") != 0)
		return ps_error_set(err, EINVAL, "%s: scheme %s is not http, https or file",
		        ps_url_redact(text, safe), u.scheme);
	if (!host_stays(&u))
		return ps_error_set(err, EINVAL, "%s: not a host's name", ps_url_redact(text, safe));
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
		return ps_error_set(err, ENOMEM, "out of memory");
	/* libcurl 8 escapes those of a relative reference, libcurl 7 refuses them. */
	if (strlen(rel) > PS_URL_MAX_LEN || has_control(rel) || set_url(h, base) != CURLUE_OK ||
	        set_url(h, rel) != CURLUE_OK || curl_url_get(h, CURLUPART_URL, &s, 0) != CURLUE_OK)
		return ps_error_set(err, EINVAL, "%s: not a URL", ps_url_redact(rel, safe));
	char *joined = strdup(s);
	if (!joined)
		return ps_error_set(err, ENOMEM, "out of memory");
	*ret = joined;
	return 0;
}

/* Where user:password@ stands in a URL, or in what might be one. False: nowhere. */
static bool find_userinfo(const char *url, size_t *ret_start, size_t *ret_end)
{
	const char *slashes = strstr(url, "://");
	size_t start = slashes ? (size_t)(slashes - url) + 3 : 0;
	size_t n = start + strcspn(url + start, "/?#");

	/* Without a scheme an "@" may stand at the start: @list.txt */
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

	return strstr(url, "://") && find_userinfo(url, &start, &end);
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
	const char *query = strchr(url, '?');
	size_t n = query ? (size_t)(query - url) + 1 : strlen(url);
	put(&f, url, n);
	for (url += n; *url;) {
		size_t name = strcspn(url, "=&#"), whole = strcspn(url, "&#");

		if (name < whole && is_signature(url, name)) {
			put(&f, url, name + 1);
			put(&f, "...", 3);
		} else if (is_store && f.len > 0 && strncmp(url, "endpoint=", 9) == 0) {
			url += whole; /* ours, to distinguish stores: the user named it by an option */
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

		/* Not isalnum() alone: it is the locale's. */
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
