#include "config.h"

#include "batch/batch.h"

#include "batch/fields.h"

#include <errno.h>
#include <string.h>

#include "base/utf8.h"

struct scan {
	const uint8_t *begin, *p, *end;
	const char *wrong; /* the first error */
	int depth;
	struct ps_json found;
	bool have;
};

static bool value_scan(struct scan *s, const char *path);

static bool wrong(struct scan *s, const char *text)
{
	if (!s->wrong)
		s->wrong = text;
	return false;
}

static void spaces(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
		s->p++;
}

static bool take(struct scan *s, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return false;
	s->p += n;
	return true;
}

/* Strings ------------------------------------------------------------------------------------------------ */

/* The value of four hexadecimal digits; -1: invalid. */
static int32_t hex4(const uint8_t *p, const uint8_t *end)
{
	int32_t v = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int c = p[i] | 0x20;

		if (p[i] >= '0' && p[i] <= '9')
			v = v * 16 + p[i] - '0';
		else if (c >= 'a' && c <= 'f')
			v = v * 16 + c - 'a' + 10;
		else
			return -1;
	}
	return v;
}

/* Takes the escape at *p, which follows a backslash, and moves *p past it. Returns the character, which may
 * be a lone surrogate; -1: invalid. */
static int32_t escape_take(const uint8_t **p, const uint8_t *end)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *known;
	int32_t c, low;

	if (*p == end)
		return -1;
	known = **p ? strchr(from, **p) : NULL;
	if (known) {
		++*p;
		return to[known - from];
	}
	if (*(*p)++ != 'u' || (c = hex4(*p, end)) < 0)
		return -1;
	*p += 4;
	if (c < 0xd800 || c > 0xdfff)
		return c;
	if (c > 0xdbff || end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
		return c;
	low = hex4(*p + 2, end);
	if (low < 0xdc00 || low > 0xdfff)
		return c;
	*p += 6;
	return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

static bool string_scan(struct scan *s)
{
	s->p++;
	while (s->p < s->end) {
		size_t len;

		if (*s->p == '"') {
			s->p++;
			return true;
		}
		if (*s->p < 0x20)
			return wrong(s, "a control character in a string");
		if (*s->p == '\\') {
			s->p++;
			if (escape_take(&s->p, s->end) < 0)
				return wrong(s, "an invalid escape");
			continue;
		}
		len = ps_utf8_len(s->p, (size_t)(s->end - s->p));
		if (len == 0)
			return wrong(s, "bytes that are not UTF-8");
		s->p += len;
	}
	return wrong(s, "a string without an end");
}

static size_t utf8_put(int32_t c, uint8_t *dst)
{
	if (c < 0x80) {
		dst[0] = (uint8_t)c;
		return 1;
	}
	if (c < 0x800) {
		dst[0] = (uint8_t)(0xc0 | c >> 6);
		dst[1] = (uint8_t)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		dst[0] = (uint8_t)(0xe0 | c >> 12);
		dst[1] = (uint8_t)(0x80 | (c >> 6 & 63));
		dst[2] = (uint8_t)(0x80 | (c & 63));
		return 3;
	}
	dst[0] = (uint8_t)(0xf0 | c >> 18);
	dst[1] = (uint8_t)(0x80 | (c >> 12 & 63));
	dst[2] = (uint8_t)(0x80 | (c >> 6 & 63));
	dst[3] = (uint8_t)(0x80 | (c & 63));
	return 4;
}

bool ps_json_has_surrogate(const struct ps_json *v)
{
	const uint8_t *p = v->p, *end = v->end;

	while ((p = memchr(p, '\\', (size_t)(end - p)))) {
		int32_t c;

		p++;
		c = escape_take(&p, end);
		if (c >= 0xd800 && c <= 0xdfff)
			return true;
	}
	return false;
}

size_t ps_json_string(const struct ps_json *v, uint8_t *dst, size_t most)
{
	const uint8_t *p = v->p + 1, *end = v->end - 1;
	size_t n = 0;

	while (p < end) {
		uint8_t escaped[4];
		const uint8_t *from = p;
		size_t len;

		if (*p == '\\') {
			p++;
			len = utf8_put(escape_take(&p, end), escaped);
			from = escaped;
		} else {
			while (p < end && *p != '\\')
				p++;
			len = (size_t)(p - from);
		}
		if (len > most - n) {
			len = from == escaped ? 0 : ps_utf8_cut(from, most - n);
			p = end;
		}
		if (dst && len > 0)
			memcpy(dst + n, from, len);
		n += len;
	}
	return n;
}

/* Numbers ------------------------------------------------------------------------------------------------ */

static bool digits(struct scan *s)
{
	const uint8_t *from = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return s->p > from;
}

static bool number_scan(struct scan *s)
{
	bool negative = take(s, "-");

	if (take(s, "Infinity") || (!negative && take(s, "NaN")))
		return true;
	if (!take(s, "0") && !digits(s))
		return wrong(s, "a value is missing");
	if (take(s, ".") && !digits(s))
		return wrong(s, "a number that ends with its point");
	if (take(s, "e") || take(s, "E")) {
		(void)(take(s, "+") || take(s, "-"));
		if (!digits(s))
			return wrong(s, "a number without its exponent");
	}
	return true;
}

const char *ps_json_number(const struct ps_json *v, struct ps_number *ret_number)
{
	size_t n = (size_t)(v->end - v->p);
	bool whole = true;

	if (v->type == PS_JSON_BOOL) {
		*ret_number = (struct ps_number){.magnitude = *v->p == 't'};
		return NULL;
	}
	if (v->type != PS_JSON_NUMBER)
		return "not a number";
	for (size_t i = 0; i < n; i++)
		whole = whole && (v->p[i] == '-' || (v->p[i] >= '0' && v->p[i] <= '9'));
	if (whole && !ps_number_integer(v->p, n, ret_number))
		return NULL;
	return ps_number_float(v->p, n, ret_number);
}

/* Paths -------------------------------------------------------------------------------------------------- */

/* Copies the first part of a path into `part`, with its escapes resolved. Returns the part's length;
 * *ret_rest: where the rest of the path begins, or NULL. */
static size_t part_take(const char *path, uint8_t part[static PS_JSON_MAX_PATH], const char **ret_rest)
{
	size_t n = 0;

	for (; *path && *path != '.' && n < PS_JSON_MAX_PATH; path++) {
		if (*path == '\\' && path[1])
			path++;
		part[n++] = (uint8_t)*path;
	}
	*ret_rest = *path == '.' ? path + 1 : NULL;
	return n;
}

bool ps_json_path_ok(const char *path)
{
	uint8_t part[PS_JSON_MAX_PATH];

	if (strlen(path) >= PS_JSON_MAX_PATH)
		return false;
	while (path)
		if (part_take(path, part, &path) == 0)
			return false;
	return true;
}

static bool name_is(const struct ps_json *name, const uint8_t *part, size_t n)
{
	uint8_t plain[PS_JSON_MAX_PATH];
	size_t raw = (size_t)(name->end - name->p) - 2;

	if (raw == n && memcmp(name->p + 1, part, n) == 0 && !memchr(part, '\\', n))
		return true;
	return raw > n && ps_json_string(name, NULL, SIZE_MAX) == n && ps_json_string(name, plain, n) == n &&
	       memcmp(plain, part, n) == 0;
}

/* Values ------------------------------------------------------------------------------------------------- */

/* True if a part of a path is the array index `place`: digits without a leading zero. */
static bool place_is(const uint8_t *part, size_t n, uint64_t place)
{
	struct ps_number v;

	return n > 0 && (n == 1 || part[0] != '0') && part[0] != '-' && part[0] != '+' &&
	       !ps_number_integer(part, n, &v) && v.magnitude == place;
}

static bool container_scan(struct scan *s, bool object, const char *path)
{
	const char *close = object ? "}" : "]", *rest = NULL;
	uint8_t part[PS_JSON_MAX_PATH];
	size_t n = path ? part_take(path, part, &rest) : 0;

	s->p++;
	spaces(s);
	if (take(s, close))
		return true;
	for (uint64_t i = 0;; i++) {
		struct ps_json name = {.p = s->p};
		bool this;

		if (object) {
			if (s->p == s->end || *s->p != '"' || !string_scan(s))
				return wrong(s, "an object's name is missing");
			name.end = s->p;
			this = path && name_is(&name, part, n);
			/* Of equal names only the last counts: a value found under an earlier one is dropped,
			 * even if the last lacks the path. */
			if (this)
				s->have = false;
			spaces(s);
			if (!take(s, ":"))
				return wrong(s, "a colon is missing");
		} else {
			this = path && place_is(part, n, i);
		}
		if (!value_scan(s, this ? rest ? rest : "" : NULL))
			return false;
		if (take(s, close))
			return true;
		if (!take(s, ","))
			return wrong(s, object ? "a comma or a closing brace is missing"
			                       : "a comma or a closing bracket is missing");
		spaces(s);
	}
}

/* Scans a value, and finds the value at `path` inside it. path NULL: only scans; "": the scanned value
 * itself is found. */
static bool value_scan(struct scan *s, const char *path)
{
	struct ps_json v;
	const char *inside = path && *path ? path : NULL;
	bool ok;

	spaces(s);
	if (s->p == s->end)
		return wrong(s, "the text ends where a value is expected");
	if (++s->depth > PS_JSON_MAX_DEPTH)
		return wrong(s, "nested deeper than 256");
	v.p = s->p;
	if (*s->p == '{' || *s->p == '[') {
		v.type = *s->p == '{' ? PS_JSON_OBJECT : PS_JSON_ARRAY;
		ok = container_scan(s, *s->p == '{', inside);
	} else if (*s->p == '"') {
		v.type = PS_JSON_STRING;
		ok = string_scan(s);
	} else if (take(s, "true") || take(s, "false")) {
		v.type = PS_JSON_BOOL;
		ok = true;
	} else if (take(s, "null")) {
		v.type = PS_JSON_NULL;
		ok = true;
	} else {
		v.type = PS_JSON_NUMBER;
		ok = number_scan(s);
	}
	v.end = s->p;
	s->depth--;
	if (!ok)
		return false;
	if (path && !*path) {
		s->found = v;
		s->have = true;
	}
	spaces(s);
	return true;
}

int ps_json_find(
        const void *text, size_t n, const char *path, struct ps_json *ret_value, struct ps_error *err)
{
	struct scan s = {.begin = text, .p = text, .end = (const uint8_t *)text + n};

	(void)take(&s, "\xef\xbb\xbf"); /* a byte order mark, which Python skips */
	if (value_scan(&s, path ? path : "") && s.p < s.end)
		(void)wrong(&s, "there is more text after the value");
	if (s.wrong)
		return ps_error_set(
		        err, EBADMSG, "not JSON: at byte %zu: %s", (size_t)(s.p - s.begin), s.wrong);
	if (!s.have)
		return -ENOENT;
	*ret_value = s.found;
	return 0;
}

bool ps_json_next(const struct ps_json *array, struct ps_json *item)
{
	struct scan s = {.p = item->p ? item->end : array->p, .end = array->end};

	spaces(&s);
	if (take(&s, "]"))
		return false;
	s.p++; /* skips the opening bracket, or a comma */
	spaces(&s);
	if (take(&s, "]"))
		return false;
	(void)value_scan(&s, ""); /* the text was checked: this only finds where the value ends */
	*item = s.found;
	return true;
}
