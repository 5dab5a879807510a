#include "base/load_error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A cut UTF-8 character would make the whole text invalid for whoever prints it as JSON. */
static void trim_to_character(char text[static PS_LOAD_ERROR_TEXT_LEN])
{
	size_t n = PS_LOAD_ERROR_TEXT_LEN - 1;
	while (n > 0 && ((unsigned char)text[n - 1] & 0xc0) == 0x80)
		n--;
	if (n == 0)
		return;
	unsigned char lead = (unsigned char)text[n - 1];
	size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
	if (n - 1 + want > PS_LOAD_ERROR_TEXT_LEN - 1)
		text[n - 1] = '\0';
}

int ps_load_error_set(struct ps_load_error *err, int errnum, const char *fmt, ...)
{
	if (!err)
		return -errnum;
	char text[PS_LOAD_ERROR_TEXT_LEN];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (n < 0)
		snprintf(text, sizeof text, "error %d", errnum);
	else if ((size_t)n >= sizeof text)
		trim_to_character(text);
	err->err = errnum;
	memcpy(err->text, text, strlen(text) + 1);
	return -errnum;
}

int ps_load_error_prefix(struct ps_load_error *err, const char *fmt, ...)
{
	if (!err)
		return 0;
	char prefix[PS_LOAD_ERROR_TEXT_LEN];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(prefix, sizeof prefix, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -err->err;
	if ((size_t)n >= sizeof prefix)
		trim_to_character(prefix);
	return ps_load_error_set(err, err->err, "%s: %s", prefix, err->text);
}
