/* Parses a text to a module: declarations and statements. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "parser.h"

#define PARTS_MOST 12u

/* Statements --------------------------------------------------------------------------------------------- */

static void facts_count(struct ptx_facts *f, const struct ptx_instr *in)
{
	const bool of_floats = ptx_is_float(in->type);

	f->ninstructions++;
	f->nfused += of_floats && (in->op == PTX_FMA || in->op == PTX_MAD);
	f->napproximate += in->approximate;
	f->nfree += of_floats && in->round == PTX_ROUND_NONE &&
	            (in->op == PTX_ADD || in->op == PTX_SUB || in->op == PTX_MUL);
}

static void instruction_add(struct ptx_parser *p, const struct ptx_instr *in)
{
	struct ptx_kernel *k = p->k;

	k->code = ptx_more(p, k->code, k->ncode, &k->code_cap, sizeof(*k->code));
	k->code[k->ncode++] = *in;
	facts_count(&k->facts, in);
}

static void instruction(struct ptx_parser *p)
{
	struct ptx_instr in = {.line = p->line, .source = p->source};
	const struct ptx_opcode *o;
	char word[PTX_WORD], *part[PARTS_MOST], *rest = word, text[160];
	const char *shape;
	uint32_t nparts = 0, bits;

	if (ptx_take(p, "@")) {
		in.guard_not = ptx_take(p, "!");
		in.guard = ptx_reg(p, 1, &bits);
	}
	strcpy(word, p->word);
	ptx_next(p);
	strsep(&rest, ".");
	while (rest && nparts < PARTS_MOST)
		part[nparts++] = strsep(&rest, ".");
	o = rest ? NULL : ptx_opcode_find(word, part, nparts, &in, text, sizeof(text));
	if (!o)
		ptx_wrong(p, "%s", rest ? "the instruction has too many parts" : text);
	shape = ptx_opcode_shape(o, &in);
	for (const char *c = shape; *c; c++) {
		if (c != shape)
			ptx_expect(p, ",");
		ptx_operand(p, &in, *c);
	}
	if (in.op == PTX_LD)
		in.used = p->used;
	p->used = PTX_ALL;
	ptx_expect(p, ";");
	instruction_add(p, &in);
}

/* .reg .b32 %r<9>, x; */
static void registers(struct ptx_parser *p)
{
	enum ptx_type type = ptx_type_of(p->word + 1);
	struct ptx_name *n;

	if (p->word[0] != '.' || type == PTX_NONE)
		ptx_wrong(p, "registers cannot have the type %s", p->word);
	ptx_next(p);
	do {
		n = ptx_name_add(p, p->word, PTX_REGISTERS);
		n->bits = ptx_bits(type);
		ptx_next(p);
		if (ptx_take(p, "<")) {
			n->n = (uint32_t)ptx_number(p);
			ptx_expect(p, ">");
		}
		n->slot = ptx_slots_new(p, n->n ? n->n : 1);
	} while (ptx_take(p, ","));
	ptx_expect(p, ";");
}

/* .align 16 .b8 name[n]: gives the variable the first aligned address from base + *io_nbytes on, and moves
 * *io_nbytes to its end. */
static struct ptx_name *variable(struct ptx_parser *p, uint32_t *io_nbytes, uint64_t base)
{
	uint32_t align = 0, one;
	uint64_t n = 1;
	struct ptx_name *name;

	if (ptx_take(p, ".align"))
		align = (uint32_t)ptx_number(p);
	one = ptx_bits(ptx_type_of(p->word + (p->word[0] == '.'))) / 8;
	if (one == 0)
		ptx_wrong(p, "variables cannot have the type %s", p->word);
	align = align ? align : one;
	ptx_next(p);
	name = ptx_name_add(p, p->word, PTX_ADDRESS);
	ptx_next(p);
	if (ptx_take(p, "[")) {
		n = ptx_number(p);
		ptx_expect(p, "]");
	}
	*io_nbytes = (*io_nbytes + align - 1) / align * align;
	name->value = base + *io_nbytes;
	if (n > 1 << 24 || n * one > (1 << 24) - (uint64_t)*io_nbytes)
		ptx_wrong(p, "a variable of %llu bytes is too large", (unsigned long long)n * one);
	*io_nbytes += (uint32_t)(n * one);
	return name;
}

static void pragma(struct ptx_parser *p)
{
	unsigned long long mask;

	if (sscanf(p->word, "\"used_bytes_mask %lli\"", (long long *)&mask) == 1)
		p->used = (uint32_t)mask;
	ptx_next(p);
	ptx_expect(p, ";");
}

/* .loc file line column, to the end of the line. */
static void location(struct ptx_parser *p)
{
	(void)ptx_number(p);
	p->source = (uint32_t)strtoul(p->word, NULL, 10);
	p->at += strcspn(p->at, "\n");
	ptx_next(p);
}

static void brace_close(struct ptx_parser *p)
{
	while (p->nnames > 0 && p->names[p->nnames - 1].depth == p->depth && p->depth > 1 &&
	        p->names[p->nnames - 1].kind != PTX_LABEL)
		p->nnames--;
	p->depth--;
}

static void statement(struct ptx_parser *p)
{
	if (ptx_take(p, "{")) {
		p->depth++;
	} else if (ptx_take(p, ".reg")) {
		registers(p);
	} else if (ptx_take(p, ".shared")) {
		(void)variable(p, &p->k->facts.shared_nbytes, PTX_SHARED_BASE);
		ptx_expect(p, ";");
	} else if (ptx_take(p, ".local")) {
		(void)variable(p, &p->k->local_nbytes, PTX_SHARED_BASE);
		ptx_expect(p, ";");
	} else if (ptx_take(p, ".pragma")) {
		pragma(p);
	} else if (ptx_take(p, ".loc")) {
		location(p);
	} else if (p->word[0] == '.') {
		ptx_wrong(p, "the directive %s is not known", p->word);
	} else if (*p->at == ':' && p->at[1] != ':') {
		ptx_name_add(p, p->word, PTX_LABEL)->value = p->k->ncode;
		ptx_next(p);
		ptx_expect(p, ":");
	} else {
		instruction(p);
	}
}

/* Functions and modules ---------------------------------------------------------------------------------- */

static void targets_set(struct ptx_parser *p)
{
	const uint32_t line = p->line;

	for (size_t i = 0; i < p->k->ncode; i++) {
		struct ptx_instr *in = &p->k->code[i];
		const struct ptx_name *n;
		uint32_t at;

		if (in->op != PTX_BRA)
			continue;
		n = ptx_name_find(p, p->labels[in->target], &at);
		p->line = in->line;
		if (!n || n->kind != PTX_LABEL)
			ptx_wrong(p, "there is no label %s", p->labels[in->target]);
		in->target = (uint32_t)n->value;
	}
	p->line = line;
}

static void limits(struct ptx_parser *p)
{
	struct ptx_kernel *k = p->k;

	k->facts.threads_most = 1024;
	while (!ptx_is(p, "{")) {
		const bool most = ptx_is(p, ".maxntid"), exact = ptx_is(p, ".reqntid");
		uint64_t n;

		if (!most && !exact && !ptx_is(p, ".minnctapersm") && !ptx_is(p, ".maxnreg"))
			ptx_wrong(p, "the directive %s is not known", p->word);
		ptx_next(p);
		n = ptx_number(p);
		while (ptx_take(p, ","))
			n *= ptx_number(p);
		if (most && n < k->facts.threads_most)
			k->facts.threads_most = (uint32_t)n;
		if (exact)
			k->threads_exact = (uint32_t)n;
	}
	ptx_next(p);
}

static void entry(struct ptx_parser *p)
{
	struct ptx_module *m = p->module;
	struct ptx_kernel *k;

	m->kernels = ptx_more(p, m->kernels, m->nkernels, &m->cap, sizeof(*m->kernels));
	k = p->k = &m->kernels[m->nkernels];
	*k = (struct ptx_kernel){.module = m, .nslots = PTX_SPECIAL_SLOT + PTX_NSPECIAL};
	m->nkernels++;
	p->nnames = p->nlabels = 0;
	p->depth = 0;
	if (strlen(p->word) >= sizeof(k->name))
		ptx_wrong(p, "the name %s is too long", p->word);
	strcpy(k->name, p->word);
	ptx_next(p);
	if (ptx_take(p, "(")) {
		while (!ptx_take(p, ")")) {
			ptx_expect(p, ".param");
			(void)variable(p, &k->facts.params_nbytes, 0);
			(void)ptx_take(p, ",");
		}
	}
	limits(p);
	p->depth = 1;
	p->source = 0;
	p->used = PTX_ALL;
	while (p->depth > 0) {
		if (p->word[0] == '\0')
			ptx_wrong(p, "%s has no end", k->name);
		if (ptx_is(p, "}")) {
			brace_close(p);
			ptx_next(p);
		} else {
			statement(p);
		}
	}
	instruction_add(p, &(struct ptx_instr){.op = PTX_RET, .line = p->line});
	k->facts.ninstructions--;
	targets_set(p);
}

static void module(struct ptx_parser *p)
{
	ptx_next(p);
	while (p->word[0]) {
		if (ptx_take(p, ".version") || ptx_take(p, ".target") || ptx_take(p, ".address_size")) {
			ptx_next(p);
			while (ptx_take(p, ","))
				ptx_next(p);
		} else if (ptx_take(p, ".file")) {
			(void)ptx_number(p);
			p->at += strcspn(p->at, "\n");
			ptx_next(p);
		} else if (ptx_take(p, ".visible") || ptx_take(p, ".weak")) {
			if (!ptx_is(p, ".entry"))
				ptx_wrong(p, "%s is not known", p->word);
		} else if (ptx_take(p, ".entry")) {
			entry(p);
		} else {
			ptx_wrong(p, "'%s' is not known", p->word);
		}
	}
}

/* False: the text is not a module; p->error has the reason. */
static bool module_try(struct ptx_parser *p)
{
	if (setjmp(p->wrong) != 0)
		return false;
	module(p);
	return true;
}

int ptx_module_parse(
        const char *text, size_t nbytes, struct ptx_module **ret_module, char error[static PTX_TEXT])
{
	struct ptx_parser *p = calloc(1, sizeof(*p));
	struct ptx_module *m = calloc(1, sizeof(*m));
	int rc = -ENOMEM;

	snprintf(error, PTX_TEXT, "no memory");
	if (p && m) {
		m->text = malloc(nbytes + 1);
		p->names = calloc(PTX_NAMES_MOST, sizeof(*p->names));
		p->labels = calloc(PTX_NAMES_MOST, sizeof(*p->labels));
	}
	if (p && m && m->text && p->names && p->labels) {
		memcpy(m->text, text, nbytes);
		m->text[nbytes] = '\0';
		p->at = m->text;
		p->line = 1;
		p->module = m;
		p->error = error;
		rc = module_try(p) ? 0 : -EINVAL;
	}
	if (p) {
		free(p->names);
		free(p->labels);
	}
	free(p);
	if (rc == 0)
		*ret_module = m;
	else
		ptx_module_free(m);
	return rc;
}

void ptx_module_free(struct ptx_module *m)
{
	for (size_t i = 0; m && i < m->nkernels; i++) {
		struct ptx_kernel *k = &m->kernels[i];

		for (uint32_t n = 0; n < k->nwarps; n++) {
			free(k->warps[n].r);
			free(k->warps[n].unknown);
			free(k->warps[n].defined);
			free(k->warps[n].partly);
		}
		free(k->warps);
		free(k->code);
		free(k->constants);
	}
	if (m) {
		free(m->kernels);
		free(m->text);
	}
	free(m);
}

struct ptx_kernel *ptx_module_find(struct ptx_module *m, const char *name)
{
	for (size_t i = 0; i < m->nkernels; i++)
		if (strcmp(m->kernels[i].name, name) == 0)
			return &m->kernels[i];
	return NULL;
}

struct ptx_facts ptx_kernel_facts(const struct ptx_kernel *kernel)
{
	return kernel->facts;
}

void ptx_module_coverage(const struct ptx_module *m, FILE *to)
{
	for (size_t i = 0; i < m->nkernels; i++) {
		const struct ptx_kernel *k = &m->kernels[i];
		uint32_t ran = 0, missed = 0;

		for (size_t at = 0; at + 1 < k->ncode; at++)
			ran += k->code[at].ran;
		fprintf(to, "%s %u %u ", k->name, ran, k->facts.ninstructions);
		for (size_t at = 0; at + 1 < k->ncode; at++)
			if (!k->code[at].ran)
				fprintf(to, "%s%u", missed++ ? "," : "", k->code[at].line);
		fprintf(to, "%s\n", missed ? "" : "-");
	}
}
