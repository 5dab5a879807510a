#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void ps_strbuf_fini(struct ps_strbuf *b)
{
	free(b->s);
	*b = (struct ps_strbuf){.max = b->max};
}

static bool reserve(struct ps_strbuf *b, size_t n)
{
	if (b->failed)
		return false;
	if (n > (size_t)-1 / 4 - b->len || (b->max && b->len + n > b->max)) {
		b->failed = true;
		return false;
	}
	size_t need = b->len + n + 1;
	if (need <= b->cap)
		return true;
	size_t cap = b->cap ? b->cap : 64;
	while (cap < need)
		cap *= 2;
	char *s = realloc(b->s, cap);
	if (!s) {
		b->failed = true;
		return false;
	}
	b->s = s;
	b->cap = cap;
	return true;
}

void ps_strbuf_addn(struct ps_strbuf *b, const void *bytes, size_t n)
{
	if (!reserve(b, n))
		return;
	if (n)
		memcpy(b->s + b->len, bytes, n);
	b->len += n;
	b->s[b->len] = '\0';
}

void ps_strbuf_add(struct ps_strbuf *b, const char *s)
{
	ps_strbuf_addn(b, s, strlen(s));
}

void ps_strbuf_addc(struct ps_strbuf *b, char c)
{
	ps_strbuf_addn(b, &c, 1);
}

void ps_strbuf_addf(struct ps_strbuf *b, const char *fmt, ...)
{
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		b->failed = true;
	else if (reserve(b, (size_t)n)) {
		vsnprintf(b->s + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
}

void ps_strbuf_add_printable(struct ps_strbuf *b, const char *s)
{
	for (size_t n; *s; s += n) {
		if (!ps_utf8_control(s, &n))
			ps_strbuf_addn(b, s, n);
		else if (*s == '\n' || *s == '\r' || *s == '\t')
			ps_strbuf_addf(b, "\\%c", *s == '\n' ? 'n' : *s == '\r' ? 'r' : 't');
		else
			ps_strbuf_addf(b, "\\x%02x", (unsigned char)s[n - 1]);
	}
}

const char *ps_strbuf_peek(const struct ps_strbuf *b)
{
	return b->s ? b->s : "";
}

char *ps_strbuf_take(struct ps_strbuf *b)
{
	char *s = NULL;

	if (!b->failed) {
		reserve(b, 0);
		s = b->s;
		if (s)
			s[b->len] = '\0';
		b->s = NULL;
	}
	ps_strbuf_fini(b);
	return s;
}

void ps_strbuf_reset(struct ps_strbuf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->s)
		b->s[0] = '\0';
}

int ps_text_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

char *ps_utf8_put(char *out, uint32_t c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | c >> 6);
		*out++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	} else {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 0x3f));
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	}
	return out;
}
