#include "config.h"

#include "order/filter.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/number.h"

enum node_kind {
	NODE_OR,
	NODE_AND,
	NODE_NOT,
	NODE_COMPARE,
};

enum op {
	OP_EQ,
	OP_NE,
	OP_LE,
	OP_GE,
	OP_LT,
	OP_GT,
};

struct node {
	enum node_kind kind;
	uint32_t a, b; /* operand nodes; COMPARE: a is the column */
	enum op op;
	bool is_text, is_integer;
	int64_t integer;
	double number;
	uint32_t text, text_len; /* offset and length in the filter's text */
};

struct ps_filter {
	char *text;
	struct node *nodes;
	uint32_t nnodes, root;
	char *columns[PS_FILTER_MAX_COLUMNS];
	uint32_t ncolumns;
};

/* Parsing ------------------------------------------------------------------------------------------------ */

struct parser {
	struct ps_filter *f;
	size_t at;
	uint32_t depth;
	struct ps_error *err;
};

static int complain(struct parser *p, const char *what)
{
	return ps_error_set(
	        p->err, EINVAL, "filter \"%.200s\": at character %zu: %s", p->f->text, p->at + 1, what);
}

static void spaces_skip(struct parser *p)
{
	while (p->f->text[p->at] == ' ' || (p->f->text[p->at] >= '\t' && p->f->text[p->at] <= '\r'))
		p->at++;
}

/* Takes `word` if it comes next. */
static bool take(struct parser *p, const char *word)
{
	spaces_skip(p);
	if (strncmp(p->f->text + p->at, word, strlen(word)) != 0)
		return false;
	p->at += strlen(word);
	return true;
}

/* Adds a node. The array has room for one node for each character of the text. */
static uint32_t node_add(struct parser *p, const struct node *node)
{
	p->f->nodes[p->f->nnodes] = *node;
	return p->f->nnodes++;
}

static bool in_word(char c, bool first)
{
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80)
		return true;
	return !first && ((c >= '0' && c <= '9') || c == '.' || c == ':' || c == '-');
}

static int column_parse(struct parser *p, uint32_t *ret_column)
{
	struct ps_filter *f = p->f;
	size_t start, len;

	spaces_skip(p);
	start = p->at;
	while (in_word(f->text[p->at], p->at == start))
		p->at++;
	len = p->at - start;
	if (len == 0)
		return complain(p, "the name of a column is expected here");
	for (uint32_t i = 0; i < f->ncolumns; i++)
		if (strlen(f->columns[i]) == len && memcmp(f->columns[i], f->text + start, len) == 0) {
			*ret_column = i;
			return 0;
		}
	if (f->ncolumns == PS_FILTER_MAX_COLUMNS)
		return complain(p, "more than 32 columns");
	f->columns[f->ncolumns] = strndup(f->text + start, len);
	if (!f->columns[f->ncolumns])
		return ps_no_memory(p->err);
	*ret_column = f->ncolumns++;
	return 0;
}

/* Length of a number: as strtod() in the C locale, but without names (nan, inf) and hexadecimal numbers. */
static size_t number_len(const char *p)
{
	size_t n = *p == '-' || *p == '+', digits = 0;

	for (; (p[n] >= '0' && p[n] <= '9') || p[n] == '.'; n++)
		digits += p[n] != '.';
	if (digits == 0)
		return 0;
	if (p[n] == 'e' || p[n] == 'E') {
		size_t e = n + 1;

		e += p[e] == '-' || p[e] == '+';
		if (p[e] >= '0' && p[e] <= '9') {
			while (p[e] >= '0' && p[e] <= '9')
				e++;
			n = e;
		}
	}
	return n;
}

static int literal_parse(struct parser *p, struct node *node)
{
	struct ps_number number;
	const char *text;
	size_t n;

	spaces_skip(p);
	text = p->f->text + p->at;
	if (*text == '\'' || *text == '"') {
		n = strcspn(text + 1, *text == '"' ? "\"" : "'");
		node->is_text = true;
		node->text = (uint32_t)p->at + 1;
		node->text_len = (uint32_t)n;
		p->at += n + 1;
		if (!text[n + 1])
			return complain(p, "a quote is not closed");
		p->at++;
		return 0;
	}
	n = number_len(text);
	if (n == 0 || in_word(text[n], true) || ps_number_float((const uint8_t *)text, n, &number))
		return complain(p, "a number or a 'text' is expected here");
	node->number = number.value;
	node->is_integer = memchr(text, '.', n) == NULL && memchr(text, 'e', n) == NULL &&
	                   memchr(text, 'E', n) == NULL && n < 19;
	if (node->is_integer)
		node->integer = strtoll(text, NULL, 10);
	p->at += n;
	return 0;
}

static int compare_parse(struct parser *p, uint32_t *ret_node)
{
	static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
	struct node node = {.kind = NODE_COMPARE};
	uint32_t op = 0;
	int rc = column_parse(p, &node.a);

	if (rc < 0)
		return rc;
	while (op < PS_ARRAY_LEN(ops) && !take(p, ops[op]))
		op++;
	if (op == PS_ARRAY_LEN(ops))
		return complain(p, "one of == != < <= > >= is expected here");
	node.op = (enum op)op;
	rc = literal_parse(p, &node);
	if (rc == 0)
		*ret_node = node_add(p, &node);
	return rc;
}

static int binary_parse(struct parser *p, bool is_or, uint32_t *ret_node);

static int not_parse(struct parser *p, uint32_t *ret_node)
{
	uint32_t inner;
	int rc;

	if (p->depth == PS_FILTER_MAX_DEPTH)
		return complain(p, "nested too deep");
	p->depth++;
	if (take(p, "!")) {
		rc = not_parse(p, &inner);
		if (rc == 0)
			*ret_node = node_add(p, &(struct node){.kind = NODE_NOT, .a = inner});
	} else if (take(p, "(")) {
		rc = binary_parse(p, true, ret_node);
		if (rc == 0 && !take(p, ")"))
			rc = complain(p, "a ) is expected here");
	} else {
		rc = compare_parse(p, ret_node);
	}
	p->depth--;
	return rc;
}

/* Parses operands between "||", which are joined by "&&", or (is_or false) these. */
static int binary_parse(struct parser *p, bool is_or, uint32_t *ret_node)
{
	int rc = is_or ? binary_parse(p, false, ret_node) : not_parse(p, ret_node);

	while (rc == 0 && take(p, is_or ? "||" : "&&")) {
		struct node node = {.kind = is_or ? NODE_OR : NODE_AND, .a = *ret_node};

		rc = is_or ? binary_parse(p, false, &node.b) : not_parse(p, &node.b);
		if (rc == 0)
			*ret_node = node_add(p, &node);
	}
	return rc;
}

int ps_filter_new(const char *text, struct ps_filter **ret_filter, struct ps_error *err)
{
	struct ps_filter *f;
	struct parser p = {.err = err};
	int rc;

	if (strlen(text) > PS_FILTER_MAX_LEN)
		return ps_error_set(err, EINVAL, "filter: longer than %d bytes", PS_FILTER_MAX_LEN);
	f = calloc(1, sizeof(*f));
	if (!f)
		return ps_no_memory(err);
	f->text = strdup(text);
	f->nodes = calloc(strlen(text) + 1, sizeof(*f->nodes));
	p.f = f;
	rc = f->text && f->nodes ? binary_parse(&p, true, &f->root) : ps_no_memory(err);
	if (rc == 0)
		spaces_skip(&p);
	if (rc == 0 && f->text[p.at])
		rc = complain(&p, "&&, || or the end is expected here");
	if (rc < 0) {
		ps_filter_free(f);
		return rc;
	}
	*ret_filter = f;
	return 0;
}

void ps_filter_free(struct ps_filter *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; i < f->ncolumns; i++)
		free(f->columns[i]);
	free(f->nodes);
	free(f->text);
	free(f);
}

const char *ps_filter_column(const struct ps_filter *f, uint32_t n)
{
	return n < f->ncolumns ? f->columns[n] : NULL;
}

/* Testing ------------------------------------------------------------------------------------------------ */

static bool op_holds(enum op op, int c)
{
	switch (op) {
	case OP_EQ:
		return c == 0;
	case OP_NE:
		return c != 0;
	case OP_LE:
		return c <= 0;
	case OP_GE:
		return c >= 0;
	case OP_LT:
		return c < 0;
	default:
		return c > 0;
	}
}

static int compare(const struct ps_filter *f, const struct node *n, const struct ps_column_value *v,
        struct ps_error *err)
{
	if (v->missing)
		return 0;
	if ((v->type == PS_COLUMN_TEXT) != n->is_text)
		return ps_error_set(err, EINVAL, "filter \"%.200s\": column \"%s\" holds %s, which %s",
		        f->text, f->columns[n->a], n->is_text ? "numbers" : "texts",
		        n->is_text ? "no 'text' equals" : "no number equals; put the number in quotes");
	if (n->is_text) {
		size_t len = PS_MIN(v->text_len, (size_t)n->text_len);
		int c = len > 0 ? memcmp(v->text, f->text + n->text, len) : 0;

		return op_holds(n->op, c ? c : (v->text_len > n->text_len) - (v->text_len < n->text_len));
	}
	if (v->type == PS_COLUMN_INT && n->is_integer)
		return op_holds(n->op, (v->integer > n->integer) - (v->integer < n->integer));
	if (isnan(v->number))
		return n->op == OP_NE;
	return op_holds(n->op, (v->number > n->number) - (v->number < n->number));
}

static int node_test(const struct ps_filter *f, const struct node *n, const struct ps_column_value *values,
        struct ps_error *err)
{
	int rc;

	if (n->kind == NODE_COMPARE)
		return compare(f, n, &values[n->a], err);
	rc = node_test(f, &f->nodes[n->a], values, err);
	if (rc < 0)
		return rc;
	if (n->kind == NODE_NOT)
		return !rc;
	if (n->kind == NODE_AND ? !rc : rc)
		return rc;
	return node_test(f, &f->nodes[n->b], values, err);
}

int ps_filter_test(const struct ps_filter *f, const struct ps_column_value *values, struct ps_error *err)
{
	return node_test(f, &f->nodes[f->root], values, err);
}
