#include "base/xml.h"

#include <errno.h>
#include <string.h>

#include <expat.h>

#include "base/strbuf.h"

#define FEED_NBYTES ((size_t)1 << 20) /* expat takes an int */

struct parse {
	XML_Parser expat;
	const struct ps_xml_reader *reader;
	void *arg;
	struct ps_strbuf path, text;
	size_t depth, name_at[PS_XML_MAX_DEPTH]; /* by depth: the length of the parent's path */
	int rc;
};

static void stop(struct parse *p, int rc)
{
	if (!p->rc)
		p->rc = rc;
	XML_StopParser(p->expat, XML_FALSE);
}

static void cut(struct ps_strbuf *b, size_t len)
{
	b->len = len;
	if (b->s)
		b->s[len] = '\0';
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct parse *p = arg;
	const char *colon = strrchr(name, ':');

	(void)attributes;
	if (p->depth >= PS_XML_MAX_DEPTH || strlen(name) > PS_XML_MAX_TEXT) {
		stop(p, -EPROTO);
		return;
	}
	p->name_at[p->depth++] = p->path.len;
	if (p->path.len)
		ps_strbuf_addc(&p->path, '/');
	ps_strbuf_add(&p->path, colon ? colon + 1 : name);
	cut(&p->text, 0);
	if (p->path.failed)
		stop(p, -ENOMEM);
	else if (p->reader->begin)
		p->reader->begin(p->arg, p->path.s);
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
	struct parse *p = arg;

	(void)name;
	if (p->rc)
		return; /* the end of an empty element is reported even if its start has stopped the parser */
	if (p->text.failed) {
		stop(p, -ENOMEM);
		return;
	}
	int rc = p->reader->end(p->arg, ps_strbuf_peek(&p->path), ps_strbuf_peek(&p->text));
	cut(&p->path, p->name_at[--p->depth]);
	cut(&p->text, 0);
	if (rc)
		stop(p, rc);
}

static void XMLCALL on_text(void *arg, const XML_Char *s, int n)
{
	struct parse *p = arg;

	if (p->rc)
		return;
	if (n < 0 || p->text.len + (size_t)n > PS_XML_MAX_TEXT)
		stop(p, -EPROTO);
	else
		ps_strbuf_addn(&p->text, s, (size_t)n);
}

static void XMLCALL on_doctype(
        void *arg, const XML_Char *name, const XML_Char *system, const XML_Char *public, int has_subset)
{
	(void)name, (void)system, (void)public, (void)has_subset;
	stop(arg, -EPROTO);
}

static int feed(struct parse *p, const char *text, size_t nbytes)
{
	enum XML_Status status = XML_STATUS_OK;

	while (status == XML_STATUS_OK && nbytes > FEED_NBYTES) {
		status = XML_Parse(p->expat, text, (int)FEED_NBYTES, 0);
		text += FEED_NBYTES;
		nbytes -= FEED_NBYTES;
	}
	if (status == XML_STATUS_OK)
		status = XML_Parse(p->expat, text, (int)nbytes, 1);
	if (status == XML_STATUS_OK)
		return 0;
	if (!p->rc)
		p->rc = XML_GetErrorCode(p->expat) == XML_ERROR_NO_MEMORY ? -ENOMEM : -EPROTO;
	return p->rc;
}

int ps_xml_parse(
        const char *text, size_t nbytes, const struct ps_xml_reader *reader, void *arg, struct ps_error *err)
{
	struct parse p = {.expat = XML_ParserCreate(NULL), .reader = reader, .arg = arg};

	if (!p.expat)
		return ps_no_memory(err);
	if (err)
		ps_error_clear(
		        err); /* of an earlier attempt: below, an error is one that the reader has set */
	XML_SetUserData(p.expat, &p);
	XML_SetElementHandler(p.expat, on_start, on_end);
	XML_SetCharacterDataHandler(p.expat, on_text);
	XML_SetStartDoctypeDeclHandler(p.expat, on_doctype);
	int rc = feed(&p, text, nbytes);
	if (rc == -EPROTO && !(err && err->err))
		ps_error_set(err, EPROTO, "cannot parse the XML: line %lu: %s",
		        (unsigned long)XML_GetCurrentLineNumber(p.expat),
		        XML_ErrorString(XML_GetErrorCode(p.expat)));
	else if (rc == -ENOMEM)
		ps_no_memory(err);
	XML_ParserFree(p.expat);
	ps_strbuf_fini(&p.path);
	if (p.text.s)
		explicit_bzero(p.text.s, p.text.cap); /* it may contain a secret */
	ps_strbuf_fini(&p.text);
	return rc;
}
