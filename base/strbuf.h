/* A growing string, NUL-terminated after the first addition. A failed allocation is remembered and reported
 * at the end, so that the caller checks once:
 *
 *   struct ps_strbuf b = {0};
 *   ps_strbuf_add(&b, "GET "); ps_strbuf_addf(&b, "%d", n);
 *   char *text = ps_strbuf_take(&b);     NULL if any step ran out of memory or over the limit
 *
 * Ownership: the buffer owns the text until ps_strbuf_take(). Threads: one at a time. */
#ifndef PS_BASE_STRBUF_H
#define PS_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct ps_strbuf {
	char *s; /* NULL before the first addition */
	size_t len, cap;
	size_t max; /* the greatest length, 0: no limit; a longer text sets `failed` */
	bool failed;
};

#define ps_autostrbuf __attribute__((cleanup(ps_strbuf_fini)))

void ps_strbuf_fini(struct ps_strbuf *b);
void ps_strbuf_addn(struct ps_strbuf *b, const void *bytes, size_t n);
void ps_strbuf_add(struct ps_strbuf *b, const char *s);
void ps_strbuf_addc(struct ps_strbuf *b, char c);
/* Adds a text of others for a terminal: control characters become \n, \r, \t or \x1b. */
void ps_strbuf_add_printable(struct ps_strbuf *b, const char *s);
void ps_strbuf_addf(struct ps_strbuf *b, const char *fmt, ...) PS_PRINTF(2, 3);

/* The text so far ("" if nothing was added); valid until the next call. */
const char *ps_strbuf_peek(const struct ps_strbuf *b);

/* The caller now owns the text (free()); the buffer is empty and usable again. NULL after a failure. */
char *ps_strbuf_take(struct ps_strbuf *b);

/* Empties the text and keeps the memory. */
void ps_strbuf_reset(struct ps_strbuf *b);

/* For qsort() of an array of texts. */
int ps_text_compare(const void *a, const void *b);

/* Writes a character of Unicode in UTF-8, up to 4 bytes. Returns what follows it. */
char *ps_utf8_put(char *out, uint32_t c);

#endif
