/* Files in the format of AWS's configuration: "[section]" lines, "key = value" lines below them, "#" or ";"
 * starts a comment line. An indented line belongs to the key above it: "s3 =" followed by " endpoint_url =
 * x" is the key "s3.endpoint_url"; if the key above has a value, the indented line is skipped. Keys are
 * reported in lower case, values without surrounding blanks; a byte order mark and CRLF are accepted.
 *
 * Ownership: the text is the caller's; fn borrows its arguments for the call. Threads: any. Blocks: never.
 * Errors: -EINVAL with the line's number, never its text (it may be a secret); or what fn returned. */
#ifndef PS_BASE_INI_H
#define PS_BASE_INI_H

#include <stddef.h>

#include "base/error.h"

#define PS_INI_NAME_LEN 256 /* of sections and keys; longer ones are an error */

struct ps_ini_entry {
	const char *section, *key, *value;
	unsigned line;
};

typedef int (*ps_ini_fn)(void *arg, const struct ps_ini_entry *entry);

/* Calls fn for every key, in order, and with key NULL for every section. A result other than 0 ends the
 * parse and is returned. The text is changed in place; text[nbytes] must be writable. */
int ps_ini_parse(char *text, size_t nbytes, ps_ini_fn fn, void *arg, struct ps_error *err) PS_MUST_USE;

#endif
