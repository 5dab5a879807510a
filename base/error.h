/* Errors with a text. Internal functions return 0 or -errno. Where errno alone would lose the cause (HTTP,
 * a listing, a config line, a damaged sample), they also fill an error that the caller owns.
 *
 * One struct serves both programs. The loader has one on the stack for every sample, so clearing it is a few
 * stores: the text is never cleared as a whole.
 *
 * The text is one line for a person: what failed, on what, what to do. It never holds a
 * secret: URLs go through ps_url_redact() first. The caller escapes control characters in names from
 * outside. A longer text is cut at a character boundary. The arguments of a format may point into
 * err->text. A NULL `err` is allowed everywhere: the text is then dropped, and the code is still returned.
 * Threads: any, on different errors. Blocks: never. */
#ifndef PS_BASE_ERROR_H
#define PS_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"

#define PS_ERROR_TEXT_LEN 1024 /* with the NUL: room for a shard's path and a member's name */

/* What a loader's error is about (penstock.h, enum penstock_cause). */
enum ps_cause {
	PS_CAUSE_OTHER = 0, /* errno says it */
	PS_CAUSE_SAMPLE,    /* a damaged sample, or one that does not fit its field */
	PS_CAUSE_FIELD,     /* a sample without a field */
	PS_CAUSE_SHARD,     /* a shard that is missing or cannot be read */
	PS_CAUSE_CHANGED,   /* a shard that was replaced */
	PS_CAUSE_OPTIONS,   /* options that are wrong, or do not fit each other */
};

struct ps_error {
	int err; /* errno, positive; 0 means no error */

	/* Set by origins, HTTP and credentials; else 0. */
	int http_status;         /* of the last response, 0 if there was none */
	bool retryable;          /* the same request may succeed later */
	uint32_t retry_after_ms; /* the server's Retry-After, 0 if none */

	/* Set by the loader; else 0. */
	enum ps_cause cause;
	bool advised;      /* the text says what to do */
	int storage;       /* errno of the storage that failed, where `err` has another; 0: none */
	uint64_t offset;   /* of the sample in the shard; with `key` */
	const char *shard; /* borrowed from the list of shards; NULL: none */
	const char *key;   /* borrowed from the sample; NULL: none */

	char text[PS_ERROR_TEXT_LEN];
};

/* Sets "no error" without clearing the text as a whole. */
static inline void ps_error_clear(struct ps_error *err)
{
	memset(err, 0, offsetof(struct ps_error, text) + 1);
}

/* Fills err with errno `errnum` (positive) and a formatted text, and clears all else; returns -errnum. */
int ps_error_set(struct ps_error *err, int errnum, const char *fmt, ...) PS_PRINTF(3, 4);
/* Puts "PREFIX: ", what the caller was doing, before the text; returns rc, the error code. If no error is set,
 * "PREFIX" becomes the text, and rc the error. An error of another code than rc is one of an earlier attempt: strerror()
 * of rc replaces its text. A step whose caller may pass an error of an earlier attempt clears it first. */
int ps_error_prefix(struct ps_error *err, int rc, const char *fmt, ...) PS_PRINTF(3, 4);
/* Appends to the text; all else is kept. */
void ps_error_append(struct ps_error *err, const char *fmt, ...) PS_PRINTF(2, 3);
/* "out of memory"; returns -ENOMEM. */
int ps_no_memory(struct ps_error *err);
/* A formatted text, which the caller frees. NULL: out of memory, as ps_no_memory() says. */
char *ps_asprintf(struct ps_error *err, const char *fmt, ...) PS_PRINTF(2, 3);

#endif
