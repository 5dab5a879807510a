/* Errors with their story. Inside, functions return 0 or -errno; where errno would lose what happened (HTTP,
 * a listing, a config line, a damaged sample), they also fill an error that the caller owns.
 *
 * There are two structs with the same functions, each in one of the programs. The mount's ps_error carries
 * what its origins alone know (HTTP status, whether to try again, when) and is kept for as long as an object
 * is remembered, so its text is short. The loader's ps_load_error is on the stack of every sample: it is
 * cleared in two stores, and its text is long enough for a shard's path and a member's name.
 *
 * Contract of both: the text is one line for a person: what failed, on what, what to do. It never holds a
 * secret: URLs go through ps_url_redact() first. Control characters in names from outside are the caller's to
 * escape. A longer text is cut, at a character's edge. The arguments of a format may point into err->text.
 * A NULL `err` is allowed everywhere: the story is then dropped, the code is returned all the same.
 * Threads: any, on different errors. Blocks: never. */
#ifndef PS_BASE_ERROR_H
#define PS_BASE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

#define PS_ERROR_TEXT_LEN 512 /* with the NUL */

struct ps_error {
	int err;                 /* errno, positive; 0 means no error */
	int http_status;         /* the last status line, 0 if there was none */
	bool retryable;          /* set by the origin layer alone: the same request may succeed later */
	uint32_t retry_after_ms; /* the server's Retry-After, 0 if none */
	char text[PS_ERROR_TEXT_LEN];
};

/* Fills err with errno `errnum` (positive) and a formatted text; returns -errnum. */
int ps_error_set(struct ps_error *err, int errnum, const char *fmt, ...) PS_PRINTF(3, 4);
/* Puts "PREFIX: " in front of the text, for adding what the caller was doing; returns rc, the code of the
 * failure. */
int ps_error_prefix(struct ps_error *err, int rc, const char *fmt, ...) PS_PRINTF(3, 4);

#define PS_LOAD_ERROR_TEXT_LEN 1024 /* with the NUL */

struct ps_load_error {
	int err; /* errno, positive; 0 means no error */
	char text[PS_LOAD_ERROR_TEXT_LEN];
};

/* Makes it no error, without clearing all of the text. */
static inline void ps_load_error_clear(struct ps_load_error *err)
{
	err->err = 0;
	err->text[0] = '\0';
}

int ps_load_error_set(struct ps_load_error *err, int errnum, const char *fmt, ...) PS_PRINTF(3, 4);
int ps_load_error_prefix(struct ps_load_error *err, int rc, const char *fmt, ...) PS_PRINTF(3, 4);

#endif
