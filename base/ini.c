#include "base/ini.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

struct parser {
	ps_ini_fn fn;
	void *arg;
	struct ps_error *err;
	unsigned line;
	char section[PS_INI_NAME_LEN];
	char parent[PS_INI_NAME_LEN]; /* the key above if it had no value, else "" */
	bool in_section, has_key;
};

static int bad(const struct parser *p, const char *why)
{
	return ps_error_set(p->err, EINVAL, "line %u: %s", p->line, why);
}

/* Trims blanks at both ends, in place. */
static char *trim(char *s)
{
	s += strspn(s, " \t");
	size_t n = strlen(s);
	while (n && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
		s[--n] = '\0';
	return s;
}

static int take_section(struct parser *p, char *line)
{
	char *end = strchr(line, ']');

	if (!end)
		return bad(p, "a section's name without its ]");
	*end = '\0';
	const char *after = trim(end + 1), *name = trim(line + 1);
	if (*after && *after != '#' && *after != ';')
		return bad(p, "text after a section's name");
	if (!*name || strlen(name) >= sizeof(p->section))
		return bad(p, "a section's name is empty or too long");
	memcpy(p->section, name, strlen(name) + 1);
	p->in_section = true;
	p->has_key = false;
	p->parent[0] = '\0';
	struct ps_ini_entry entry = {.section = p->section, .line = p->line};
	return p->fn(p->arg, &entry);
}

static int take_key(struct parser *p, char *line, bool nested)
{
	char full[2 * PS_INI_NAME_LEN];
	char *equals = strchr(line, '=');

	if (!equals)
		return bad(p, "neither [section] nor key = value");
	*equals = '\0';
	char *key = trim(line), *value = trim(equals + 1);
	size_t n = strlen(key), nparent = 0;
	if (!n || n >= PS_INI_NAME_LEN)
		return bad(p, "a key that is empty or too long");
	for (char *c = key; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (nested) {
		nparent = strlen(p->parent) + 1;
		memcpy(full, p->parent, nparent - 1);
		full[nparent - 1] = '.';
	} else {
		p->has_key = true;
		memcpy(p->parent, *value ? "" : key, *value ? 1 : n + 1);
	}
	memcpy(full + nparent, key, n + 1);
	struct ps_ini_entry entry = {.section = p->section, .key = full, .value = value, .line = p->line};
	return p->fn(p->arg, &entry);
}

int ps_ini_parse(char *text, size_t nbytes, ps_ini_fn fn, void *arg, struct ps_error *err)
{
	struct parser p = {.fn = fn, .arg = arg, .err = err};
	char *end = text + nbytes;

	if (memchr(text, '\0', nbytes))
		return ps_error_set(err, EINVAL, "not a text file");
	if (nbytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		text += 3;
	while (text < end) {
		char *eol = memchr(text, '\n', (size_t)(end - text));
		if (!eol)
			eol = end;
		*eol = '\0';
		p.line++;
		bool indented = *text == ' ' || *text == '\t';
		char *line = trim(text);
		int rc = 0;
		if (*line == '[' && !indented)
			rc = take_section(&p, line);
		else if (!*line || *line == '#' || *line == ';')
			rc = 0;
		else if (!p.in_section)
			rc = bad(&p, "a key before the first [section]");
		else if (!indented || !p.has_key)
			rc = take_key(&p, line, false);
		else if (p.parent[0])
			rc = take_key(&p, line, true);
		/* Under a key with a value the line continues that value. No caller needs that: it is skipped. */
		if (rc)
			return rc;
		text = eol + 1;
	}
	return 0;
}
