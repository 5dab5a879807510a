/* XML answers, read with expat: no DTD, no entities but the five of XML itself, bounded in depth and in the
 * length of each text. Elements are named by their path, without namespaces: "ListBucketResult/Contents/Key".
 *
 * Ownership: strings are borrowed for the call. Threads: any. Blocks: never.
 * Errors: -EPROTO with the line for what is no such XML, -ENOMEM, what a function returned. */
#ifndef PS_BASE_XML_H
#define PS_BASE_XML_H

#include <stddef.h>

#include "base/error.h"

#define PS_XML_MAX_DEPTH 16
#define PS_XML_MAX_TEXT 65536 /* bytes in one element */

struct ps_xml_reader {
	/* An element has ended: its path, and the text in it (not that of elements below it), blanks and all.
	 * -errno ends the parse. */
	int (*end)(void *arg, const char *path, const char *text);
	/* An element begins; may be NULL. */
	void (*begin)(void *arg, const char *path);
};

int ps_xml_parse(const char *text, size_t nbytes, const struct ps_xml_reader *reader, void *arg,
        struct ps_error *err) PS_MUST_USE;

#endif
