/* JSON with secrets in it: jansson does not wipe what it frees.
 *
 * Ownership: a document is its holder's; texts are borrowed from it. Threads: one a document. Blocks: never.
 */
#ifndef PS_CREDENTIALS_JSON_H
#define PS_CREDENTIALS_JSON_H

#include <jansson.h>

#define ps_autosecretjson __attribute__((cleanup(ps_cleanup_secret_json)))
void ps_cleanup_secret_json(json_t **j);

/* A member that is a text. NULL: not there, another type, or empty; also for name NULL and j NULL. */
const char *ps_json_text(const json_t *j, const char *name);

#endif
