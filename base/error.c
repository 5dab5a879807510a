#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Removes an incomplete character, which JSON does not allow, from the end of a text that was cut. */
static void trim_to_character(char *text, size_t room)
{
	size_t n = room - 1;
	while (n > 0 && ((unsigned char)text[n - 1] & 0xc0) == 0x80)
		n--;
	if (n == 0)
		return;
	unsigned char lead = (unsigned char)text[n - 1];
	size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
	if (n - 1 + want > room - 1)
		text[n - 1] = '\0';
}

/* Formats into ret, and appends ": " and `then` unless `then` is NULL. No argument may point into ret. */
static void format(char *ret, size_t room, const char *fmt, va_list ap, const char *then)
{
	int n = vsnprintf(ret, room, fmt, ap);

	if (n < 0)
		n = snprintf(ret, room, "no text");
	if (then && (size_t)n < room)
		n += snprintf(ret + n, room - (size_t)n, ": %s", then);
	if ((size_t)n >= room)
		trim_to_character(ret, room);
}

int ps_error_set(struct ps_error *err, int errnum, const char *fmt, ...)
{
	char text[PS_ERROR_TEXT_LEN];
	va_list ap;

	if (!err)
		return -errnum;
	va_start(ap, fmt);
	format(text, sizeof(text), fmt, ap, NULL);
	va_end(ap);
	ps_error_clear(err);
	err->err = errnum;
	memcpy(err->text, text, strlen(text) + 1);
	return -errnum;
}

int ps_error_prefix(struct ps_error *err, int rc, const char *fmt, ...)
{
	char text[PS_ERROR_TEXT_LEN];
	int errnum = rc < 0 ? -rc : rc;
	va_list ap;

	if (!err)
		return rc;
	bool is_stale = err->err && err->err != errnum;
	va_start(ap, fmt);
	format(text, sizeof(text), fmt, ap, is_stale ? strerror(errnum) : err->err ? err->text : NULL);
	va_end(ap);
	if (is_stale || !err->err) {
		ps_error_clear(err);
		err->err = errnum;
	}
	memcpy(err->text, text, strlen(text) + 1);
	return rc;
}

void ps_error_append(struct ps_error *err, const char *fmt, ...)
{
	size_t n;
	va_list ap;

	if (!err)
		return;
	n = strlen(err->text);
	va_start(ap, fmt);
	format(err->text + n, sizeof(err->text) - n, fmt, ap, NULL);
	va_end(ap);
}

int ps_no_memory(struct ps_error *err)
{
	return ps_error_set(err, ENOMEM, "out of memory");
}

char *ps_asprintf(struct ps_error *err, const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
		ps_no_memory(err);
	}
	va_end(ap);
	return text;
}
