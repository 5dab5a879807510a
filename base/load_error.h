/* An error with its story. Inside, functions return 0 or -errno; where errno would lose what happened (a
 * damaged sample, a bad option), they also fill a struct ps_load_error that the caller owns.
 *
 * The text is one line for a person: what failed, on what, what to do. Control characters in names from
 * outside are the caller's to escape. A NULL `err` is allowed everywhere: the story is then dropped.
 * Threads: any, on different errors. Blocks: never. */
#ifndef PS_BASE_LOAD_ERROR_H
#define PS_BASE_LOAD_ERROR_H

#include "base/cleanup.h"

#define PS_LOAD_ERROR_TEXT_LEN 1024 /* with the NUL; longer texts are cut, at a character's edge */

struct ps_load_error {
	int err; /* errno, positive; 0 means no error */
	char text[PS_LOAD_ERROR_TEXT_LEN];
};

/* Makes it no error. An initialiser would clear all of the text, which costs where nothing fails. */
static inline void ps_load_error_clear(struct ps_load_error *err)
{
	err->err = 0;
	err->text[0] = '\0';
}

/* Fills err with errno `errnum` (positive) and a formatted text; returns -errnum. The arguments may point
 * into err->text. */
int ps_load_error_set(struct ps_load_error *err, int errnum, const char *fmt, ...) PS_PRINTF(3, 4);

/* Puts "PREFIX: " in front of the text; for adding what the caller was doing. Returns -err->err, or 0 if err
 * is NULL: for `return` after a failure use the failure's own code. */
int ps_load_error_prefix(struct ps_load_error *err, const char *fmt, ...) PS_PRINTF(2, 3);

#endif
