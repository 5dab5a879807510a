/* Errors with a text. Internal functions return 0 or -errno. Where errno alone would lose the cause (HTTP,
 * a listing, a config line, a damaged sample), they also fill an error that the caller owns.
 *
 * There are two structs, one for each program, with similar functions. The mount's ps_error also has what
 * only an origin knows (HTTP status, whether and when to retry). The cache keeps one with each dataset,
 * credential and decompressed object, so its text is short. The loader has a ps_load_error on the stack for
 * every sample: clearing it must be cheap (two stores), and its text must have room for a shard's path and a
 * member's name.
 *
 * Contract of both: the text is one line for a person: what failed, on what, what to do. It never holds a
 * secret: URLs go through ps_url_redact() first. The caller escapes control characters in names from
 * outside. A longer text is cut at a character boundary. The arguments of a format may point into
 * err->text. A NULL `err` is allowed everywhere: the text is then dropped, and the code is still returned.
 * Threads: any, on different errors. Blocks: never. */
#ifndef PS_BASE_ERROR_H
#define PS_BASE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

#define PS_ERROR_TEXT_LEN 512 /* with the NUL */

struct ps_error {
	int err;         /* errno, positive; 0 means no error */
	int http_status; /* of the last response, 0 if there was none */
	bool retryable;  /* set by origins, HTTP and credentials: the same request may succeed later */
	uint32_t retry_after_ms; /* the server's Retry-After, 0 if none */
	char text[PS_ERROR_TEXT_LEN];
};

/* Fills err with errno `errnum` (positive) and a formatted text; returns -errnum. */
int ps_error_set(struct ps_error *err, int errnum, const char *fmt, ...) PS_PRINTF(3, 4);
/* Puts "PREFIX: ", what the caller was doing, before the text; returns rc, the error code. */
int ps_error_prefix(struct ps_error *err, int rc, const char *fmt, ...) PS_PRINTF(3, 4);

#define PS_LOAD_ERROR_TEXT_LEN 1024 /* with the NUL */

struct ps_load_error {
	int err; /* errno, positive; 0 means no error */
	char text[PS_LOAD_ERROR_TEXT_LEN];
};

/* Sets "no error" without clearing the whole text. */
static inline void ps_load_error_clear(struct ps_load_error *err)
{
	err->err = 0;
	err->text[0] = '\0';
}

int ps_load_error_set(struct ps_load_error *err, int errnum, const char *fmt, ...) PS_PRINTF(3, 4);
int ps_load_error_prefix(struct ps_load_error *err, int rc, const char *fmt, ...) PS_PRINTF(3, 4);

#endif
