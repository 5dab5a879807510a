/* Texts with figures in them, as `penstock status` prints them:
 *
 *   {PATH}     the figure as its unit in base/figure_table.h says; "/" before PATH: of the daemon's document
 *   {#PATH}    the number alone, of a list how long it is; {#A+B}: a sum
 *   {%PATH}    a ratio as a percentage; {A%B}: the ratio of two figures
 *   [IF:TEXT]  TEXT if IF holds: PATH (a number above 0, a text that is not empty, true), PATH? (there is one),
 *              !PATH, PATH=TEXT, A>NUMBER, A<B (A and B as in {#A})
 *
 * Ownership: documents are the caller's. Threads: any. Blocks: never. */
#ifndef PS_CLI_FIGURE_TEXT_H
#define PS_CLI_FIGURE_TEXT_H

#include "base/figures.h"
#include "base/strbuf.h"

struct ps_figure_source {
	const json_t *doc;    /* the daemon's */
	const json_t *object; /* a mount in it, or an entry of a list */
	const char *list;     /* the section of that list, as in the table; NULL: a mount */
};

/* The number `name` in the object `part` of a document; 0: there is none. */
static inline json_int_t ps_figure_number(const json_t *doc, const char *part, const char *name)
{
	return json_integer_value(json_object_get(json_object_get(doc, part), name));
}

/* "": there is none. */
static inline const char *ps_figure_word(const json_t *object, const char *name)
{
	const char *s = json_string_value(json_object_get(object, name));

	return s ? s : "";
}

void ps_figure_text(struct ps_strbuf *b, const char *text, const struct ps_figure_source *source);

#endif
