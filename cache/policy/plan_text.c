#include "policy/policy.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/strbuf.h"

/* The part of a text that is not parsed yet. */
struct text {
	char *at, *end;
};

static char peek(struct text *t)
{
	while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\r' || *t->at == '\n'))
		t->at++;
	return t->at < t->end ? *t->at : 0;
}

static bool accept(struct text *t, char c)
{
	if (peek(t) != c)
		return false;
	t->at++;
	return true;
}

/* Strings ------------------------------------------------------------------------------------------------ */

static bool hex4(struct text *t, uint32_t *ret)
{
	uint32_t value = 0;

	if (t->end - t->at < 4)
		return false;
	for (int i = 0; i < 4; i++) {
		int c = tolower((unsigned char)*t->at++);
		if (!isxdigit(c))
			return false;
		value = value << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	*ret = value;
	return true;
}

/* Parses the digits after "\u"; a surrogate pair is one character. */
static bool unicode(struct text *t, char **out)
{
	uint32_t c, low;

	if (!hex4(t, &c) || c == 0 || (c >= 0xdc00 && c < 0xe000))
		return false;
	if (c >= 0xd800 && c < 0xdc00) {
		if (t->end - t->at < 2 || *t->at++ != '\\' || *t->at++ != 'u' || !hex4(t, &low) ||
		        low < 0xdc00 || low >= 0xe000)
			return false;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	*out = ps_utf8_put(*out, c);
	return true;
}

static bool escape(struct text *t, char **out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";

	if (t->at == t->end)
		return false;
	char c = *t->at++;
	if (c == 'u')
		return unicode(t, out);
	const char *known = c ? strchr(from, c) : NULL;
	if (!known)
		return false;
	*(*out)++ = to[known - from];
	return true;
}

/* Decodes a string to `out`, which is at or before the text, and ends it with NUL; the result is never
 * longer than the string with its quotes. NULL: not a string. */
static char *string(struct text *t, char *out)
{
	if (!accept(t, '"'))
		return NULL;
	while (t->at < t->end && *t->at != '"') {
		char c = *t->at++;
		if (c == '\\') {
			if (!escape(t, &out))
				return NULL;
		} else if ((unsigned char)c < 0x20) {
			return NULL;
		} else {
			*out++ = c;
		}
	}
	if (t->at == t->end)
		return NULL;
	t->at++;
	*out++ = 0;
	return out;
}

/* Other values ------------------------------------------------------------------------------------------- */

static bool number(struct text *t, uint64_t *ret)
{
	uint64_t value = 0;
	const char *begin;

	peek(t);
	begin = t->at;
	while (t->at < t->end && isdigit((unsigned char)*t->at))
		if (__builtin_mul_overflow(value, 10, &value) ||
		        __builtin_add_overflow(value, (uint64_t)(*t->at++ - '0'), &value))
			return false;
	*ret = value;
	return t->at > begin;
}

static bool word(struct text *t)
{
	const char *begin = t->at;

	while (t->at < t->end && (isalnum((unsigned char)*t->at) || strchr("+-.", *t->at)))
		t->at++;
	return t->at > begin;
}

/* Skips a value of any kind. Commas and colons inside it are not checked, as its members are not used. */
static bool skip(struct text *t)
{
	unsigned depth = 0;

	do {
		switch (peek(t)) {
		case '{':
		case '[':
			t->at++;
			if (++depth > PS_PLAN_DEPTH)
				return false;
			break;
		case '}':
		case ']':
			if (depth == 0)
				return false;
			t->at++;
			depth--;
			break;
		case ',':
		case ':':
			if (depth == 0)
				return false;
			t->at++;
			break;
		case '"':
			if (!string(t, t->at))
				return false;
			break;
		case 0:
			return false;
		default:
			if (!word(t))
				return false;
		}
	} while (depth > 0);
	return true;
}

static bool names(struct text *t, struct ps_plan_line *line)
{
	char *out = t->at;

	if (!accept(t, '['))
		return false;
	line->files = out;
	line->nfiles = 0;
	if (accept(t, ']'))
		return true;
	do {
		out = string(t, out);
		if (!out)
			return false;
		line->nfiles++;
	} while (accept(t, ','));
	return accept(t, ']');
}

static bool offsets(struct text *t, struct ps_plan_line *line)
{
	uint64_t from;

	line->nfrom = 0;
	if (!accept(t, '['))
		return false;
	if (accept(t, ']'))
		return true;
	do {
		if (!number(t, &from))
			return false;
		if (line->nfrom < PS_PLAN_READS)
			line->from[line->nfrom++] = from;
	} while (accept(t, ','));
	return accept(t, ']');
}

/* Lines -------------------------------------------------------------------------------------------------- */

enum member { JOB = 1, RANK = 2, EPOCH = 4, FILES = 8, FILES_DONE = 16 };

static bool small_number(struct text *t, uint32_t *ret)
{
	uint64_t value;

	if (!number(t, &value) || value > UINT32_MAX)
		return false;
	*ret = (uint32_t)value;
	return true;
}

static bool job(struct text *t, struct ps_plan_line *line)
{
	char *name = t->at, *end = string(t, name);

	if (!end || (size_t)(end - name) > sizeof(line->who.job))
		return false;
	memcpy(line->who.job, name, (size_t)(end - name));
	return true;
}

/* Parses the value of a member. *have: the set of members that were found, to be compared with those that a
 * line must have. */
static bool member(struct text *t, const char *key, struct ps_plan_line *line, unsigned *have)
{
	if (strcmp(key, "penstock_plan") == 0 || strcmp(key, "penstock_position") == 0) {
		line->kind = key[9] == 'p' && key[10] == 'l' ? PS_PLAN_LINE_EPOCH : PS_PLAN_LINE_POSITION;
		return skip(t);
	}
	if (strcmp(key, "penstock_reads") == 0)
		return line->kind = PS_PLAN_LINE_READS, skip(t);
	if (strcmp(key, "job") == 0)
		return *have |= JOB, job(t, line);
	if (strcmp(key, "rank") == 0)
		return *have |= RANK, small_number(t, &line->who.rank);
	if (strcmp(key, "world") == 0)
		return small_number(t, &line->who.world);
	if (strcmp(key, "epoch") == 0)
		return *have |= EPOCH, number(t, &line->who.epoch);
	if (strcmp(key, "files_done") == 0)
		return *have |= FILES_DONE, number(t, &line->files_done);
	if (strcmp(key, "from") == 0)
		return offsets(t, line);
	if (strcmp(key, "bytes") == 0)
		return number(t, &line->nbytes);
	if (strcmp(key, "files") == 0)
		return *have |= FILES, names(t, line);
	return skip(t);
}

static bool object(struct text *t, struct ps_plan_line *line, unsigned *have)
{
	if (!accept(t, '{'))
		return false;
	if (accept(t, '}'))
		return true;
	do {
		peek(t);
		char *key = t->at;
		if (!string(t, key) || !accept(t, ':') || !member(t, key, line, have))
			return false;
	} while (accept(t, ','));
	return accept(t, '}');
}

int ps_plan_line_parse(char *text, size_t n, struct ps_plan_line *ret)
{
	struct ps_plan_line line = {0};
	struct text t = {.at = text, .end = text + n};
	unsigned have = 0, all = 0;

	if (!object(&t, &line, &have) || peek(&t) != 0)
		return -EINVAL;
	if (line.kind == PS_PLAN_LINE_EPOCH)
		all = JOB | RANK | EPOCH | FILES;
	else if (line.kind == PS_PLAN_LINE_POSITION)
		all = JOB | RANK | EPOCH | FILES_DONE;
	else if (line.kind == PS_PLAN_LINE_READS)
		all = FILES;
	if ((have & all) != all)
		return -EINVAL;
	*ret = line;
	return 0;
}
