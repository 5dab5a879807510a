#include "base/braces.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A pattern is a chain of parts that are concatenated (counts multiply). A part is a text, a range, or a
 * choice of patterns (counts add up). Counts are checked while parsing, so that the number of every result
 * fits in 64 bits. */
enum part_kind { TEXT, INTS, LETTERS, CHOICE };

struct ps_braces { /* a pattern */
	struct part *first, **last;
	uint64_t count;
	struct ps_braces *next; /* in a choice */
};

struct part {
	enum part_kind kind;
	struct part *next;
	uint64_t count;
	const char *text; /* TEXT, still with its backslashes */
	size_t nbytes;
	int64_t from, step; /* INTS: numbers; LETTERS: indexes into `alphabet` */
	int width;
	struct ps_braces *choices; /* CHOICE */
};

struct parser {
	uint64_t max;
	const char *whole;
	struct ps_error *err;
};

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static int parse_pattern(struct parser *p, const char *s, size_t n, int depth, struct ps_braces **ret);

static int fail(struct parser *p, int errnum, const char *why)
{
	return ps_error_set(p->err, errnum, "brace expansion: %s", why);
}

void ps_braces_free(struct ps_braces *b)
{
	while (b) {
		struct ps_braces *next = b->next;

		while (b->first) {
			struct part *part = b->first;

			b->first = part->next;
			ps_braces_free(part->choices);
			free(part);
		}
		free(b);
		b = next;
	}
}

/* The index after s[i]; an escaped character counts together with its backslash. */
static size_t step_over(const char *s, size_t i, size_t n)
{
	return s[i] == '\\' && i + 1 < n ? i + 2 : i + 1;
}

/* Appends a part and multiplies the count. Takes ownership of the part's choices. */
static int add_part(struct parser *p, struct ps_braces *b, const struct part *model)
{
	struct part *part = malloc(sizeof(*part));

	if (!part) {
		ps_braces_free(model->choices);
		return fail(p, ENOMEM, "out of memory");
	}
	*part = *model;
	part->next = NULL;
	*b->last = part;
	b->last = &part->next;
	if (__builtin_mul_overflow(b->count, part->count, &b->count) || b->count > p->max)
		return ps_error_set(
		        p->err, E2BIG, "brace expansion: stands for more than %" PRIu64 " names", p->max);
	return 0;
}

static int add_text(struct parser *p, struct ps_braces *b, const char *s, size_t n)
{
	return n ? add_part(p, b, &(struct part){.kind = TEXT, .count = 1, .text = s, .nbytes = n}) : 0;
}

/* Ranges ------------------------------------------------------------------------------------------------- */

/* Reads -?digits at *s and moves *s past them. 1: a number; 0: none; -ERANGE. */
static int take_int(const char **s, const char *end, int64_t *ret)
{
	const char *c = *s;
	bool negative = c < end && *c == '-';
	int64_t v = 0;

	c += negative;
	if (c == end || !isdigit((unsigned char)*c))
		return 0;
	for (; c < end && isdigit((unsigned char)*c); c++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, *c - '0', &v))
			return -ERANGE;
	/* v is the negated number, since the lowest number has no positive counterpart. */
	if (!negative && v == INT64_MIN)
		return -ERANGE;
	*ret = negative ? v : -v;
	*s = c;
	return 1;
}

static int take_letter(const char **s, const char *end, int64_t *ret)
{
	const char *at = *s < end && **s ? strchr(alphabet, **s) : NULL;

	if (!at)
		return 0;
	*ret = at - alphabet;
	(*s)++;
	return 1;
}

static bool take_dots(const char **s, const char *end)
{
	if (end - *s < 2 || memcmp(*s, "..", 2) != 0)
		return false;
	*s += 2;
	return true;
}

static bool is_padded(const char *s, size_t n)
{
	return (n > 1 && s[0] == '0') || (n > 2 && s[0] == '-' && s[1] == '0');
}

/* 1: [s, s+n) is a range; 0: it is not; -errno. */
static int parse_range(const char *s, size_t n, struct part *part)
{
	int (*take)(const char **, const char *, int64_t *) = take_int;
	const char *end = s + n, *at = s;
	int64_t from, to, step = 1;
	int rc = take(&at, end, &from);

	if (rc == 0) {
		take = take_letter;
		rc = take(&at, end, &from);
	}
	const char *second = at + 2;
	size_t nfirst = (size_t)(at - s);
	if (rc <= 0 || !take_dots(&at, end))
		return PS_MIN(rc, 0);
	rc = take(&at, end, &to);
	if (rc <= 0)
		return rc;
	size_t nsecond = (size_t)(at - second);
	if (at != end) {
		if (!take_dots(&at, end))
			return 0;
		rc = take_int(&at, end, &step);
		if (rc <= 0 || at != end)
			return PS_MIN(rc, 0);
	}
	*part = (struct part){.kind = take == take_int ? INTS : LETTERS};
	if (part->kind == INTS && (is_padded(s, nfirst) || is_padded(second, nsecond)))
		part->width = (int)PS_MIN(PS_MAX(nfirst, nsecond), 255u);
	uint64_t span = from < to ? (uint64_t)to - (uint64_t)from : (uint64_t)from - (uint64_t)to;
	uint64_t pace = step < 0 ? -(uint64_t)step : PS_MAX((uint64_t)step, 1u);
	if (pace > INT64_MAX)
		return -ERANGE;
	part->from = from;
	part->step = from < to ? (int64_t)pace : -(int64_t)pace;
	/* Saturates: a count of 2^64 exceeds any limit. */
	part->count = span / pace == UINT64_MAX ? UINT64_MAX : span / pace + 1;
	return 1;
}

/* Choices ------------------------------------------------------------------------------------------------ */

/* 1: [s, s+n) has a comma outside of inner braces, and part is a choice; 0: it has none; -errno. */
static int parse_choice(struct parser *p, const char *s, size_t n, int depth, struct part *part)
{
	struct ps_braces **last = &part->choices;
	size_t start = 0, ncommas = 0;
	int inner = 0, rc = 0;

	*part = (struct part){.kind = CHOICE};
	for (size_t i = 0; i <= n && !rc; i = i < n ? step_over(s, i, n) : n + 1) {
		if (i < n && s[i] == '{')
			inner++;
		else if (i < n && s[i] == '}')
			inner--;
		if (i < n && (inner || s[i] != ','))
			continue;
		if (i == n && !ncommas)
			break;
		ncommas++;
		rc = parse_pattern(p, s + start, i - start, depth + 1, last);
		if (!rc && __builtin_add_overflow(part->count, (*last)->count, &part->count))
			rc = fail(p, E2BIG, "stands for too many names");
		if (*last)
			last = &(*last)->next;
		start = i + 1;
	}
	if (rc) {
		ps_braces_free(part->choices);
		part->choices = NULL;
		return rc;
	}
	return ncommas > 0;
}

/* Adds the text between an outer "{" and its "}". */
static int add_braced(struct parser *p, struct ps_braces *b, const char *s, size_t n, int depth)
{
	struct part part;
	int rc = parse_range(s, n, &part);

	if (rc == -ERANGE)
		return fail(p, ERANGE, "a number is too large");
	if (rc == 0)
		rc = parse_choice(p, s, n, depth, &part);
	if (rc < 0)
		return rc;
	if (rc == 1)
		return add_part(p, b, &part);
	/* Neither: the braces are literal, but patterns inside still expand. */
	part = (struct part){.kind = CHOICE};
	rc = parse_pattern(p, s, n, depth + 1, &part.choices);
	if (rc)
		return rc;
	part.count = part.choices->count;
	rc = add_text(p, b, s - 1, 1);
	if (rc) {
		ps_braces_free(part.choices);
		return rc;
	}
	rc = add_part(p, b, &part);
	return rc ? rc : add_text(p, b, s + n, 1);
}

static int parse_pattern(struct parser *p, const char *s, size_t n, int depth, struct ps_braces **ret)
{
	if (depth > PS_BRACES_MAX_DEPTH)
		return fail(p, EINVAL, "braces nested too deep");
	struct ps_braces *b = calloc(1, sizeof(*b));
	if (!b)
		return fail(p, ENOMEM, "out of memory");
	b->last = &b->first;
	b->count = 1;
	size_t start = 0;
	int inner = 0, rc = 0;
	for (size_t i = 0; i < n && !rc; i = step_over(s, i, n)) {
		if (s[i] == '{' && inner++ == 0) {
			rc = add_text(p, b, s + start, i - start);
			start = i + 1;
		} else if (s[i] == '}' && --inner <= 0) {
			rc = inner < 0 ? fail(p, EINVAL,
			                         "a \"}\" without its \"{\" (write \\} for the character)")
			               : add_braced(p, b, s + start, i - start, depth);
			start = i + 1;
		}
	}
	if (!rc && inner)
		rc = fail(p, EINVAL, "a \"{\" without its \"}\" (write \\{ for the character)");
	if (!rc)
		rc = add_text(p, b, s + start, n - start);
	if (rc) {
		ps_braces_free(b);
		return rc;
	}
	*ret = b;
	return 0;
}

int ps_braces_parse(const char *text, uint64_t max, struct ps_braces **ret, struct ps_error *err)
{
	struct parser p = {.max = max, .whole = text, .err = err};

	return parse_pattern(&p, text, strlen(text), 0, ret);
}

/* Expanding ---------------------------------------------------------------------------------------------- */

uint64_t ps_braces_count(const struct ps_braces *b)
{
	return b->count;
}

/* The distance of a result from `from` may need 64 bits, hence the unsigned arithmetic; the result itself
 * fits. */
static int64_t in_range(const struct part *part, uint64_t i)
{
	return (int64_t)((uint64_t)part->from + i * (uint64_t)part->step);
}

static void add_part_text(const struct part *part, uint64_t i, struct ps_strbuf *out)
{
	const struct ps_braces *choice = part->choices;

	switch (part->kind) {
	case TEXT:
		for (size_t k = 0; k < part->nbytes; k++) {
			k += part->text[k] == '\\' && k + 1 < part->nbytes;
			ps_strbuf_addc(out, part->text[k]);
		}
		break;
	case INTS:
		ps_strbuf_addf(out, "%0*" PRId64, part->width, in_range(part, i));
		break;
	case LETTERS:
		ps_strbuf_addc(out, alphabet[in_range(part, i)]);
		break;
	case CHOICE:
		while (i >= choice->count) {
			i -= choice->count;
			choice = choice->next;
		}
		ps_braces_add(choice, i, out);
		break;
	}
}

void ps_braces_add(const struct ps_braces *b, uint64_t i, struct ps_strbuf *out)
{
	uint64_t following = b->count;

	for (const struct part *part = b->first; part; part = part->next) {
		following /= part->count;
		add_part_text(part, i / following, out);
		i %= following;
	}
}
