/* A parser for XML answers, on expat: no DTD, no entities except XML's own five, bounded depth and text
 * length. Elements are named by their path, without namespaces: "ListBucketResult/Contents/Key".
 *
 * Ownership: strings are borrowed for the call. Threads: any. Blocks: never. Errors: -EPROTO with the line
 * if the XML is malformed or not allowed; -ENOMEM; or what a callback returned. */
#ifndef PS_BASE_XML_H
#define PS_BASE_XML_H

#include <stddef.h>

#include "base/error.h"

#define PS_XML_MAX_DEPTH 16
#define PS_XML_MAX_TEXT 65536 /* bytes in one element */

struct ps_xml_reader {
	/* Called at the end of an element. path: the element's; text: its own, including blanks, from the
	 * end of the last element inside it on. -errno ends the parse. */
	int (*end)(void *arg, const char *path, const char *text);
	/* Called at the beginning of an element; may be NULL. */
	void (*begin)(void *arg, const char *path);
};

int ps_xml_parse(const char *text, size_t nbytes, const struct ps_xml_reader *reader, void *arg,
        struct ps_error *err) PS_MUST_USE;

#endif
