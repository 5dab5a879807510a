/* Operands: what an instruction reads and writes, with checks of the widths. */
#include "config.h"

#include "parser.h"

uint16_t ptx_reg(struct ptx_parser *p, uint32_t bits, uint32_t *ret_bits)
{
	uint32_t at;
	const struct ptx_name *n = ptx_name_find(p, p->word, &at);

	if (!n || n->kind != PTX_REGISTERS)
		ptx_wrong(p, "'%s' where a register should be", p->word);
	if (bits && n->bits != bits)
		ptx_wrong(p, "%s has %u bits, not %u", p->word, n->bits, bits);
	*ret_bits = n->bits;
	ptx_next(p);
	return (uint16_t)(n->slot + at);
}

/* Parses a register, number, special register or address that is read. wider: the register may be wider than
 * the type. */
static uint16_t source(struct ptx_parser *p, enum ptx_type type, bool wider)
{
	const uint32_t bits = ptx_bits(type);
	uint32_t at, width;
	const struct ptx_name *n;
	uint64_t value;
	uint16_t slot;

	if (ptx_number_of(p->word, &value)) {
		ptx_next(p);
		return ptx_constant(p, ptx_low(value, bits));
	}
	if (ptx_special_find(p->word, &slot)) {
		if (bits != 32)
			ptx_wrong(p, "%s has 32 bits", p->word);
		ptx_next(p);
		return slot;
	}
	n = ptx_name_find(p, p->word, &at);
	if (n && n->kind == PTX_ADDRESS) {
		value = n->value;
		ptx_next(p);
		if (ptx_take(p, "+"))
			value += ptx_number(p);
		return ptx_constant(p, ptx_low(value, bits));
	}
	slot = ptx_reg(p, wider ? 0 : bits, &width);
	if (width < bits)
		ptx_wrong(p, "a register of %u bits where %u are read", width, bits);
	return slot;
}

static void destination(struct ptx_parser *p, struct ptx_instr *in, uint32_t bits)
{
	uint32_t width = in->d_bits;

	if (in->ndst == PTX_OPERANDS)
		ptx_wrong(p, "too many operands");
	if (ptx_take(p, "_"))
		in->d[in->ndst++] = 0;
	else
		in->d[in->ndst++] = ptx_reg(p, bits, &width);
	in->d_bits = (uint16_t)width;
}

static void source_add(struct ptx_parser *p, struct ptx_instr *in, enum ptx_type type, bool wider)
{
	if (in->nsrc == PTX_OPERANDS)
		ptx_wrong(p, "too many operands");
	in->s[in->nsrc++] = source(p, type, wider);
}

static void predicate_add(struct ptx_parser *p, struct ptx_instr *in)
{
	in->predicate_not = ptx_take(p, "!");
	source_add(p, in, PTX_PRED, false);
}

static void address(struct ptx_parser *p, struct ptx_instr *in)
{
	uint64_t value = 0;
	uint32_t at, bits;
	const struct ptx_name *n;

	ptx_expect(p, "[");
	n = ptx_name_find(p, p->word, &at);
	if (ptx_number_of(p->word, &value)) {
		in->s[in->nsrc++] = ptx_constant(p, value);
		ptx_next(p);
	} else if (n && n->kind == PTX_ADDRESS) {
		in->s[in->nsrc++] = ptx_constant(p, n->value);
		ptx_next(p);
	} else {
		in->s[in->nsrc++] = ptx_reg(p, 0, &bits);
		if (bits < 32)
			ptx_wrong(p, "an address of %u bits", bits);
	}
	if (ptx_take(p, "+") || p->word[0] == '-')
		in->offset = (int64_t)ptx_number(p);
	ptx_expect(p, "]");
}

static void label(struct ptx_parser *p, struct ptx_instr *in)
{
	if (p->nlabels == PTX_NAMES_MOST || strlen(p->word) >= sizeof(p->labels[0]))
		ptx_wrong(p, "too many or too long labels");
	in->target = p->nlabels;
	strcpy(p->labels[p->nlabels++], p->word);
	ptx_next(p);
}

/* Parses {one, or, more} registers of a load, a store or a mov; the type of `in` gives their width. */
static void several(struct ptx_parser *p, struct ptx_instr *in, bool written)
{
	const bool is_mov = in->op == PTX_MOV, braces = ptx_take(p, "{");
	enum ptx_type type = (enum ptx_type)in->type;
	uint32_t n = braces && !is_mov ? in->nvec : 1;

	if (braces && is_mov) {
		for (const char *c = p->at; *c && *c != '}'; c++)
			n += *c == ',';
		type = ptx_bits(type) / n == 8    ? PTX_B8
		       : ptx_bits(type) / n == 16 ? PTX_B16
		       : ptx_bits(type) / n == 32 ? PTX_B32
		                                  : PTX_NONE;
		if (type == PTX_NONE)
			ptx_wrong(p, "a mov of %u parts", n);
	}
	if (!braces && in->nvec > 1)
		ptx_wrong(p, "one register where there should be %u", in->nvec);
	for (uint32_t i = 0; i < n; i++) {
		if (i > 0)
			ptx_expect(p, ",");
		if (written)
			destination(p, in, is_mov ? ptx_bits(type) : 0);
		else
			source_add(p, in, type, !is_mov);
	}
	if (braces)
		ptx_expect(p, "}");
	if (written && !is_mov && in->d_bits < ptx_bits(type) && in->d_bits)
		ptx_wrong(p, "a register of %u bits where %u are loaded", in->d_bits, ptx_bits(type));
}

static enum ptx_type doubled(enum ptx_type type)
{
	return ptx_bits(type) == 16 ? PTX_B32 : PTX_B64;
}

void ptx_operand(struct ptx_parser *p, struct ptx_instr *in, char shape)
{
	const enum ptx_type type = (enum ptx_type)in->type;

	switch (shape) {
	case 'd':
		destination(p, in, in->op == PTX_CVT ? 0 : ptx_bits(type));
		if (in->d_bits < ptx_bits(type) && in->d[0])
			ptx_wrong(p, "a register of %u bits gets %u", in->d_bits, ptx_bits(type));
		break;
	case 'w':
		destination(p, in, 2 * ptx_bits(type));
		break;
	case 'D':
		destination(p, in, 32);
		break;
	case 'P':
		destination(p, in, 1);
		if (ptx_take(p, "|"))
			destination(p, in, 1);
		break;
	case 's':
		source_add(p, in, type, false);
		break;
	case 'W':
		source_add(p, in, doubled(type), false);
		break;
	case 'u':
		source_add(p, in, PTX_U32, false);
		break;
	case 'f':
		source_add(p, in, (enum ptx_type)in->from, true);
		break;
	case 'p':
		predicate_add(p, in);
		break;
	case 'v':
	case 'x':
		several(p, in, shape == 'v');
		break;
	case 'a':
		address(p, in);
		break;
	case 'l':
		label(p, in);
		break;
	default:
		if (ptx_number(p) != 0)
			ptx_wrong(p, "a barrier other than 0");
	}
}
