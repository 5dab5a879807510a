#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* vsnprintf cuts anywhere; a cut UTF-8 sequence would be rubbish at the end of a log line. */
static void cut_at_character(char *text, size_t cap, int wanted)
{
	if (wanted < 0 || (size_t)wanted < cap)
		return;
	size_t n = strlen(text);
	while (n > 0 && ((unsigned char)text[n - 1] & 0xc0) == 0x80)
		n--;
	if (n > 0 && (unsigned char)text[n - 1] >= 0xc0)
		text[n - 1] = '\0';
}

int ps_error_set(struct ps_error *err, int errnum, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -errnum;
	*err = (struct ps_error){.err = errnum};
	va_start(ap, fmt);
	cut_at_character(err->text, sizeof err->text, vsnprintf(err->text, sizeof err->text, fmt, ap));
	va_end(ap);
	return -errnum;
}

int ps_error_prefix(struct ps_error *err, const char *fmt, ...)
{
	char old[PS_ERROR_TEXT_LEN];
	va_list ap;

	if (!err)
		return -1;
	memcpy(old, err->text, sizeof old);
	va_start(ap, fmt);
	int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof err->text) {
		size_t room = sizeof err->text - (size_t)n;
		cut_at_character(err->text, sizeof err->text, n + snprintf(err->text + n, room, ": %s", old));
	}
	return -err->err;
}
