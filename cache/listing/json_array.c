#include "listing/listing.h"

#include <ctype.h>
#include <errno.h>

#include "base/size.h"

#define ENTRY_MAX_NBYTES ((size_t)1 << 20) /* longer entries are invalid */

static size_t skip_space(const char *text, size_t i, size_t nbytes)
{
	while (i < nbytes && isspace((unsigned char)text[i]))
		i++;
	return i;
}

static int bad(const struct ps_json_array *a, size_t at, const char *why)
{
	return ps_error_set(
	        a->err, EPROTO, "%s: JSON, at byte %llu: %s", a->what, (unsigned long long)(a->at + at), why);
}

/* The index after the object at text[i]. 0: it does not end in the window, or is not an object. */
static size_t object_end(const char *text, size_t i, size_t n)
{
	bool quoted = false;
	unsigned depth = 0;

	if (text[i] != '{')
		return 0;
	for (; i < n; i++) {
		char c = text[i];

		if (quoted && c == '\\')
			i++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && c == '{')
			depth++;
		else if (!quoted && c == '}' && --depth == 0)
			return i + 1;
	}
	return 0;
}

/* The digit x of an escape \uDx.. at s, in lower case; 0: s is another text. \uD8.. to \uDB.. are the first
 * halves of surrogate pairs, \uDC.. to \uDF.. the second ones. */
static char surrogate_at(const char *s, const char *end)
{
	return end - s >= 6 && s[0] == '\\' && s[1] == 'u' && (s[2] | ' ') == 'd' ? (char)(s[3] | ' ') : '\0';
}

/* True if the text has half of a surrogate pair, as Python writes for a byte that is not UTF-8. */
static bool has_half_pair(const char *s, const char *end)
{
	for (; s < end; s += *s == '\\' ? 2 : 1) {
		char first = surrogate_at(s, end), second = first ? surrogate_at(s + 6, end) : '\0';

		if ((first >= 'c' && first <= 'f') || (first >= '8' && !(second >= 'c' && second <= 'f')))
			return true;
		s += first >= '8' ? 10 : 0;
	}
	return false;
}

/* Parses the entry at *i. *ret_cut: its end has not arrived yet. */
static int take_entry(
        struct ps_json_array *a, const char *text, size_t n, bool more, size_t *i, bool *ret_cut)
{
	json_error_t je = {0};
	json_auto_t *j = json_loadb(text + *i, n - *i, JSON_DISABLE_EOF_CHECK, &je);

	if (!j && json_error_code(&je) == json_error_out_of_memory)
		return ps_no_memory(a->err);
	size_t end = j ? 0 : object_end(text, *i, n), start = *i;
	enum json_error_code code = json_error_code(&je);
	/* A text in the entry is not Unicode: bytes that are not UTF-8, which nginx writes unchanged; a NUL; half of
	 * a surrogate pair. One such name must not hide the other files. */
	if (end > 0 && (code == json_error_invalid_utf8 || code == json_error_null_character ||
	                       has_half_pair(text + start, text + end))) {
		char shown[300];
		size_t len = PS_MIN(end - start, sizeof(shown));

		for (size_t k = 0; k < len; k++)
			shown[k] = isprint((unsigned char)text[start + k]) ? text[start + k] : '?';
		json_auto_t *foreign = json_stringn(shown, len);
		*i = end;
		return foreign ? a->fn(a->arg, foreign) : ps_no_memory(a->err);
	}
	*ret_cut = !j && more && n - *i < ENTRY_MAX_NBYTES;
	if (*ret_cut)
		return 0;
	if (!j)
		return bad(a, *i, "not a valid entry");
	if (!json_is_object(j) || je.position <= 0)
		return bad(a, *i, "an entry is not an object");
	*i += (size_t)je.position;
	return a->fn(a->arg, j);
}

int ps_json_array_feed(struct ps_json_array *a, const char *text, size_t n, bool more, size_t *ret_used)
{
	size_t i = skip_space(text, 0, n);
	bool cut = false;
	int rc = 0;

	for (; rc == 0 && !cut && a->expected != PS_JSON_END && (i < n || !more);
	        i = skip_space(text, i, n)) {
		char c = i < n ? text[i] : '\0';

		switch (a->expected) {
		case PS_JSON_BEGIN:
			if (c != '[')
				return bad(a, i, "not an array");
			a->expected = PS_JSON_FIRST;
			i++;
			continue;
		case PS_JSON_FIRST:
			a->expected = c == ']' ? PS_JSON_END : PS_JSON_ENTRY;
			continue;
		case PS_JSON_ENTRY:
			rc = take_entry(a, text, n, more, &i, &cut);
			if (rc == 0 && !cut)
				a->expected = PS_JSON_BEHIND;
			continue;
		case PS_JSON_BEHIND:
			if (c != ',' && c != ']')
				return bad(a, i, "the array is cut off");
			a->expected = c == ']' ? PS_JSON_END : PS_JSON_ENTRY;
			i++;
			continue;
		case PS_JSON_END:
			break;
		}
	}
	*ret_used = a->expected == PS_JSON_END ? n : i;
	a->at += *ret_used;
	return rc;
}

int ps_json_array_parse(
        const char *text, size_t nbytes, const char *what, ps_json_fn fn, void *arg, struct ps_error *err)
{
	struct ps_json_array array = {.what = what, .fn = fn, .arg = arg, .err = err};
	size_t used;

	return ps_json_array_feed(&array, text, nbytes, false, &used);
}
