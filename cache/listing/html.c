/* HTML pages of web servers that list a directory. */
#include "listing/listing.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/strbuf.h"
#include "base/url.h"
#include "listing/listing_private.h"

/* A tolerant scanner, not an HTML parser: it looks for <a ... href=...> anywhere, and at the text after
 * it. */

/* A link is not parsed until this many bytes follow it, or the page has ended: room for its tag and for
 * nginx's text after it. Longer tags are not links. */
#define LINK_ROOM ((size_t)64 << 10)

/* Text --------------------------------------------------------------------------------------------------- */

/* Decodes an entity "&...;" at s. Returns its length; 0 if it is unknown: the caller then copies it as it
 * is. */
static size_t add_entity(const char *s, size_t n, struct ps_strbuf *out)
{
	static const struct {
		const char *text;
		char c;
	} known[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
	unsigned long c = 0;
	char utf8[4];
	size_t i = 2;

	for (size_t k = 0; k < PS_ARRAY_LEN(known); k++) {
		size_t len = strlen(known[k].text);

		if (n >= len && memcmp(s, known[k].text, len) == 0) {
			ps_strbuf_addc(out, known[k].c);
			return len;
		}
	}
	if (n < 4 || s[1] != '#')
		return 0;
	bool hex = s[2] == 'x' || s[2] == 'X';
	for (i += hex;
	        i < n && i < 12 && (hex ? isxdigit((unsigned char)s[i]) : isdigit((unsigned char)s[i]));
	        i++) {
		int digit =
		        isdigit((unsigned char)s[i]) ? s[i] - '0' : tolower((unsigned char)s[i]) - 'a' + 10;

		c = c * (hex ? 16 : 10) + (unsigned long)digit;
	}
	if (i == n || s[i] != ';' || c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	ps_strbuf_addn(out, utf8, (size_t)(ps_utf8_put(utf8, (uint32_t)c) - utf8));
	return i + 1;
}

static void add_unescaped(const char *s, size_t n, struct ps_strbuf *out)
{
	for (size_t i = 0; i < n;) {
		size_t step = s[i] == '&' ? add_entity(s + i, n - i, out) : 0;

		if (!step)
			ps_strbuf_addc(out, s[i++]);
		i += step;
	}
}

/* nginx puts "  02-Jan-2026 03:04      123456" after a link. Without a trailing K, M or G the size is
 * exact. */
static uint64_t size_after(const char *s, const char *end)
{
	static const char shape[] = "dd-aaa-dddd dd:dd";
	uint64_t v = 0;

	while (s < end && (*s == ' ' || *s == '\t'))
		s++;
	for (const char *p = shape; *p; p++, s++)
		if (s == end || (*p == 'd'          ? !isdigit((unsigned char)*s)
		                        : *p == 'a' ? !isalpha((unsigned char)*s)
		                                    : *s != *p))
			return PS_SIZE_UNKNOWN;
	while (s < end && *s == ' ')
		s++;
	if (s == end || !isdigit((unsigned char)*s))
		return PS_SIZE_UNKNOWN;
	for (; s < end && isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return PS_SIZE_UNKNOWN;
	return s < end && (*s == '\r' || *s == '\n') && v <= INT64_MAX ? v : PS_SIZE_UNKNOWN;
}

/* Links -------------------------------------------------------------------------------------------------- */

/* Strips scheme and host of a link to this host. NULL: it leads elsewhere. */
static const char *local_part(const struct ps_listing_html *scan, const char *href)
{
	const char *authority = ps_strbuf_peek(&scan->authority), *host = strstr(authority, "//");
	const char *p = href;

	if (href[0] == '/' && href[1] == '/') {
		authority = host;
	} else {
		while (isalnum((unsigned char)*p) || (p > href && strchr("+-.", *p) && *p))
			p++;
		if (*p != ':' || p == href || !isalpha((unsigned char)href[0]))
			return href;
	}
	size_t n = strlen(authority);
	return strncasecmp(href, authority, n) == 0 && href[n] == '/' ? href + n : NULL;
}

/* Decodes the link's name below the page's directory into scan->decoded. False: not an entry of this
 * directory. */
static bool name_of(struct ps_listing_html *scan, const char *href, bool *ret_is_dir, const char **ret_why)
{
	struct ps_strbuf *name = &scan->decoded;

	ps_strbuf_reset(name);
	href = local_part(scan, href);
	if (!href || !*href || strchr(href, '?'))
		return false; /* links such as "?C=N;O=D" sort the table */
	size_t n = strcspn(href, "#");
	while (n >= 2 && href[0] == '.' && href[1] == '/') {
		href += 2;
		n -= 2;
	}
	int rc = ps_url_decode(href, n, name);
	const char *slash = memchr(href, '/', n);
	if (rc == -EINVAL && slash && slash + 1 < href + n)
		return false;
	if (rc == -EINVAL) { /* the link's text is left in scan->decoded */
		ps_strbuf_reset(name);
		ps_strbuf_addn(name, href, n);
		*ret_why = "skipped: a broken %-escape";
		return !name->failed;
	}
	if (rc || !name->len)
		return false;
	if (name->s[0] == '/') {
		size_t cut = scan->dir.len;

		if (name->len <= cut || memcmp(name->s, scan->dir.s, cut) != 0)
			return false;
		memmove(name->s, name->s + cut, name->len - cut + 1);
		name->len -= cut;
	}
	*ret_is_dir = name->s[name->len - 1] == '/';
	if (*ret_is_dir)
		name->s[--name->len] = '\0';
	return name->len && !strchr(name->s, '/') && strcmp(name->s, ".") != 0 && strcmp(name->s, "..") != 0;
}

/* Finds the value of href in the tag [s, end), and stores it in scan->href, trimmed. */
static bool find_href(struct ps_listing_html *scan, const char *s, const char *end)
{
	while (s < end) {
		const char *name, *value;
		size_t nname, nvalue = 0;

		while (s < end && (isspace((unsigned char)*s) || *s == '/'))
			s++;
		for (name = s; s < end && !isspace((unsigned char)*s) && *s != '=' && *s != '/';)
			s++;
		nname = (size_t)(s - name);
		while (s < end && isspace((unsigned char)*s))
			s++;
		value = s;
		if (s < end && *s == '=') {
			for (s++; s < end && isspace((unsigned char)*s);)
				s++;
			char quote = s < end && (*s == '"' || *s == '\'') ? *s++ : '\0';

			for (value = s; s < end && (quote ? *s != quote : !isspace((unsigned char)*s));)
				s++;
			nvalue = (size_t)(s - value);
			s += quote && s < end;
		}
		if (nname != 4 || strncasecmp(name, "href", 4) != 0)
			continue;
		while (nvalue && isspace((unsigned char)*value)) {
			value++;
			nvalue--;
		}
		while (nvalue && isspace((unsigned char)value[nvalue - 1]))
			nvalue--;
		if (nvalue > PS_URL_MAX_LEN)
			return false;
		ps_strbuf_reset(&scan->href);
		add_unescaped(value, nvalue, &scan->href);
		return scan->href.len && !memchr(scan->href.s, '\0', scan->href.len);
	}
	return false;
}

/* The ">" that ends the tag at s, outside of quoted values. `end` if there is none. */
static const char *tag_end(const char *s, const char *end)
{
	char quote = '\0';

	for (char before = '\0'; s < end && (quote || *s != '>'); before = *s++) {
		if (quote && *s == quote)
			quote = '\0';
		else if (!quote && before == '=' && (*s == '"' || *s == '\''))
			quote = *s;
	}
	return s;
}

static bool is_tag(const char *s, const char *end, const char *name)
{
	size_t n = strlen(name);

	return (size_t)(end - s) > n && strncasecmp(s, name, n) == 0 && !isalnum((unsigned char)s[n]) &&
	       s[n] != '-';
}

/* Points after the first `what` at or after s. NULL if there is none. */
static const char *after(const char *s, const char *end, const char *what)
{
	size_t n = strlen(what);

	for (; (size_t)(end - s) >= n; s++)
		if (strncasecmp(s, what, n) == 0)
			return s + n;
	return NULL;
}

/* Some servers (aiohttp) link folders without a slash; only the link's text has it. */
static bool ends_in_slash(const char *s, const char *end)
{
	while (s < end && isspace((unsigned char)end[-1]))
		end--;
	return s < end && end[-1] == '/';
}

static int take_link(struct ps_listing *l, const char *tag, const char *close)
{
	struct ps_listing_html *scan = &l->html;
	struct ps_listing_entry entry = {.remote = PS_REMOTE_UNKNOWN};

	if (!find_href(scan, tag, close) || !name_of(scan, scan->href.s, &entry.is_dir, &entry.why))
		return scan->href.failed || scan->decoded.failed ? -ENOMEM : 0;
	entry.name = scan->decoded.s;
	/* The link's text ends at the next tag. Only if that is </a> is the text looked at. */
	const char *next_tag = close < scan->end ? memchr(close, '<', (size_t)(scan->end - close)) : NULL;
	entry.is_dir |= next_tag && is_tag(next_tag, scan->end, "</a") && ends_in_slash(close + 1, next_tag);
	if (!entry.is_dir && next_tag && is_tag(next_tag, scan->end, "</a") && scan->end - next_tag > 4)
		entry.remote.size = size_after(next_tag + 4, scan->end);
	return l->fn(l->arg, &entry);
}

/* Skips to the end of `what`, which may be in a later window, or begin in this one and end in the next. */
static void skip_to(struct ps_listing_html *scan, const char *what)
{
	const char *found = after(scan->s, scan->end, what);
	size_t left = (size_t)(scan->end - scan->s);

	scan->skip_to = found ? NULL : what;
	scan->s = found ? found : scan->end - (scan->more ? PS_MIN(left, strlen(what) - 1) : 0);
}

/* Scans the next tag. False: the window is used up. */
static bool scan_tag(struct ps_listing *l, int *rc)
{
	struct ps_listing_html *scan = &l->html;
	const char *tag = memchr(scan->s, '<', (size_t)(scan->end - scan->s));

	scan->s = tag ? tag : scan->end;
	if (!tag || (scan->more && (size_t)(scan->end - tag) < LINK_ROOM))
		return false;
	scan->s = tag + 1;
	if (scan->end - tag >= 4 && memcmp(tag, "<!--", 4) == 0) {
		scan->s = tag + 4;
		skip_to(scan, "-->");
	} else if (is_tag(tag, scan->end, "<script")) {
		skip_to(scan, "</script");
	} else if (is_tag(tag, scan->end, "<style")) {
		skip_to(scan, "</style");
	} else if (is_tag(tag, scan->end, "<a")) {
		const char *close = tag_end(tag + 2, scan->end);

		if (close < scan->end || !scan->more) {
			*rc = take_link(l, tag + 2, close);
			scan->s = close;
		}
	}
	return *rc == 0 && !scan->skip_to;
}

int ps_listing_html_init(struct ps_listing *l)
{
	const char *host = strstr(l->page_url, "://");
	const char *path = host ? host + 3 + strcspn(host + 3, "/?#") : NULL;
	size_t n = path ? strcspn(path, "?#") : 0;
	int rc = n ? 0 : -EINVAL;

	while (n && path[n - 1] != '/')
		n--; /* a path starts with "/" */
	if (n) {
		ps_strbuf_addn(&l->html.authority, l->page_url, (size_t)(path - l->page_url));
		rc = ps_url_decode(path, n, &l->html.dir);
	}
	return rc ? ps_error_set(l->err, -rc, "not a page's URL") : 0;
}

int ps_listing_html_feed(struct ps_listing *l, const char *text, size_t n, bool more, size_t *ret_used)
{
	struct ps_listing_html *scan = &l->html;
	int rc = 0;

	scan->s = text;
	scan->end = text + n;
	scan->more = more;
	if (scan->skip_to)
		skip_to(scan, scan->skip_to);
	while (!scan->skip_to && scan_tag(l, &rc)) {
	}
	*ret_used = (size_t)(scan->s - text);
	return rc == -ENOMEM ? ps_no_memory(l->err) : rc;
}

void ps_listing_html_fini(struct ps_listing *l)
{
	ps_strbuf_fini(&l->html.authority);
	ps_strbuf_fini(&l->html.dir);
	ps_strbuf_fini(&l->html.href);
	ps_strbuf_fini(&l->html.decoded);
}
