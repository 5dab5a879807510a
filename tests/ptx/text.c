/* The text's tokens and names. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "parser.h"

#define SLOTS_MOST 65535u

void ptx_wrong(struct ptx_parser *p, const char *format, ...)
{
	int n = snprintf(p->error, PTX_TEXT, "line %u: ", p->line);
	va_list args;

	va_start(args, format);
	vsnprintf(p->error + n, (size_t)(PTX_TEXT - n), format, args);
	va_end(args);
	longjmp(p->wrong, 1);
}

void *ptx_more(struct ptx_parser *p, void *all, size_t n, size_t *cap, size_t one)
{
	if (n < *cap)
		return all;
	*cap = *cap ? 2 * *cap : 64;
	all = realloc(all, *cap * one);
	if (!all)
		ptx_wrong(p, "no memory");
	return all;
}

/* Tokens ------------------------------------------------------------------------------------------------- */

static void blanks_skip(struct ptx_parser *p)
{
	for (;;) {
		if (*p->at == '\n')
			p->line++;
		if (isspace((unsigned char)*p->at)) {
			p->at++;
		} else if (p->at[0] == '/' && p->at[1] == '/') {
			p->at += strcspn(p->at, "\n");
		} else if (p->at[0] == '/' && p->at[1] == '*') {
			const char *end = strstr(p->at, "*/");

			if (!end)
				ptx_wrong(p, "a comment without an end");
			for (; p->at < end; p->at++)
				p->line += *p->at == '\n';
			p->at += 2;
		} else {
			return;
		}
	}
}

static bool in_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.' || c == ':';
}

void ptx_next(struct ptx_parser *p)
{
	size_t n = 1;

	blanks_skip(p);
	if (*p->at == '\0')
		n = 0;
	else if (*p->at == '"')
		n = strcspn(p->at + 1, "\"\n") + 2;
	else if (in_word(*p->at) || (*p->at == '-' && isdigit((unsigned char)p->at[1])))
		while (in_word(p->at[n]) && !(p->at[n] == ':' && p->at[n + 1] != ':' && p->at[n - 1] != ':'))
			n++;
	if (n >= PTX_WORD)
		ptx_wrong(p, "a word of %zu characters", n);
	memcpy(p->word, p->at, n);
	p->word[n] = '\0';
	p->at += n;
}

bool ptx_is(const struct ptx_parser *p, const char *word)
{
	return strcmp(p->word, word) == 0;
}

bool ptx_take(struct ptx_parser *p, const char *word)
{
	if (!ptx_is(p, word))
		return false;
	ptx_next(p);
	return true;
}

void ptx_expect(struct ptx_parser *p, const char *word)
{
	if (!ptx_take(p, word))
		ptx_wrong(p, "'%s' where '%s' should be", p->word, word);
}

bool ptx_number_of(const char *word, uint64_t *ret)
{
	char *end;

	if (word[0] == '0' && strchr("fFdD", word[1] ? word[1] : ' ')) {
		*ret = strtoull(word + 2, &end, 16);
		return *end == '\0' && strlen(word) == (tolower((unsigned char)word[1]) == 'f' ? 10 : 18);
	}
	if (!isdigit((unsigned char)word[0]) && word[0] != '-')
		return false;
	errno = 0;
	*ret = word[0] == '-' ? -strtoull(word + 1, &end, 0) : strtoull(word, &end, 0);
	if (*end == 'U')
		end++;
	return errno == 0 && *end == '\0';
}

uint64_t ptx_number(struct ptx_parser *p)
{
	uint64_t v;

	if (!ptx_number_of(p->word, &v))
		ptx_wrong(p, "'%s' where a number should be", p->word);
	ptx_next(p);
	return v;
}

/* Names -------------------------------------------------------------------------------------------------- */

struct ptx_name *ptx_name_add(struct ptx_parser *p, const char *text, enum ptx_name_kind kind)
{
	struct ptx_name *n = &p->names[p->nnames];

	if (p->nnames == PTX_NAMES_MOST || strlen(text) >= sizeof(n->text))
		ptx_wrong(p, "too many or too long names: %s", text);
	p->nnames++;
	*n = (struct ptx_name){.kind = kind, .depth = p->depth};
	strcpy(n->text, text);
	return n;
}

const struct ptx_name *ptx_name_find(const struct ptx_parser *p, const char *text, uint32_t *ret_at)
{
	size_t length = strlen(text), stem = length;

	while (stem > 0 && isdigit((unsigned char)text[stem - 1]))
		stem--;
	for (uint32_t i = p->nnames; i-- > 0;) {
		const struct ptx_name *n = &p->names[i];
		unsigned long at;

		*ret_at = 0;
		if (strcmp(n->text, text) == 0 && !(n->kind == PTX_REGISTERS && n->n > 0))
			return n;
		if (n->kind != PTX_REGISTERS || n->n == 0 || stem == length || strlen(n->text) != stem ||
		        strncmp(n->text, text, stem) != 0)
			continue;
		at = strtoul(text + stem, NULL, 10);
		*ret_at = (uint32_t)at;
		return at < n->n ? n : NULL;
	}
	return NULL;
}

uint16_t ptx_slots_new(struct ptx_parser *p, uint32_t n)
{
	uint32_t first = p->k->nslots;

	if (n > SLOTS_MOST - first)
		ptx_wrong(p, "too many registers");
	p->k->nslots += n;
	return (uint16_t)first;
}

uint16_t ptx_constant(struct ptx_parser *p, uint64_t value)
{
	struct ptx_kernel *k = p->k;

	for (size_t i = 0; i < k->nconstants; i++)
		if (k->constants[i].value == value)
			return k->constants[i].slot;
	k->constants = ptx_more(p, k->constants, k->nconstants, &k->constants_cap, sizeof(*k->constants));
	k->constants[k->nconstants] = (struct ptx_constant){value, ptx_slots_new(p, 1)};
	return k->constants[k->nconstants++].slot;
}

static const struct {
	const char *name;
	enum ptx_special first;
	bool axes;
} specials[] = {
        {"%tid", PTX_TID, true},
        {"%ntid", PTX_NTID, true},
        {"%ctaid", PTX_CTAID, true},
        {"%nctaid", PTX_NCTAID, true},
        {"%laneid", PTX_LANEID, false},
};

bool ptx_special_find(const char *word, uint16_t *ret_slot)
{
	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
		const size_t n = strlen(specials[i].name);
		const char *rest = word + n;
		uint32_t axis = 0;

		if (strncmp(word, specials[i].name, n) != 0)
			continue;
		if (specials[i].axes && rest[0] == '.' && strchr("xyz", rest[1] ? rest[1] : ' ') && !rest[2])
			axis = (uint32_t)(rest[1] - 'x');
		else if (specials[i].axes || *rest)
			continue;
		*ret_slot = (uint16_t)(PTX_SPECIAL_SLOT + specials[i].first + axis);
		return true;
	}
	return false;
}
