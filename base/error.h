/* An error with its story. Inside, functions return 0 or -errno; where errno would lose what happened
 * (HTTP, a listing, a config line), they also fill a struct ps_error that the caller owns.
 *
 * The text is one line for a person: what failed, on what, what to do. It never holds a secret: URLs go
 * through ps_url_redact() first. A NULL `err` is allowed everywhere: the story is then dropped. */
#ifndef PS_BASE_ERROR_H
#define PS_BASE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

#define PS_ERROR_TEXT_LEN 512 /* longer texts are cut, at a character's edge */

struct ps_error {
	int err;                 /* errno, positive; 0 means no error */
	int http_status;         /* the last status line, 0 if there was none */
	bool retryable;          /* set by the origin layer alone: the same request may succeed later */
	uint32_t retry_after_ms; /* the server's Retry-After, 0 if none */
	char text[PS_ERROR_TEXT_LEN];
};

/* Fills err with errno `errnum` (positive) and a formatted text; returns -errnum. */
int ps_error_set(struct ps_error *err, int errnum, const char *fmt, ...) PS_PRINTF(3, 4);

/* Puts "PREFIX: " in front of the text; for adding what the caller was doing. Returns -err->err. */
int ps_error_prefix(struct ps_error *err, const char *fmt, ...) PS_PRINTF(2, 3);

#endif
