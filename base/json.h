/* Strings of the system's in JSON: paths and names are bytes, JSON takes UTF-8 only, and a document with one
 * string of another code cannot be written at all.
 *
 * Threads: any. Blocks: never. */
#ifndef PS_BASE_JSON_H
#define PS_BASE_JSON_H

#include <jansson.h>

/* The text; of one that is not UTF-8, with U+FFFD for each byte that is not ASCII. NULL: out of memory. */
json_t *ps_json_lossy(const char *text);

#endif
