/* Integers, predicates and moves. */
#include "config.h"

#include "ptx_private.h"

/* Integers ----------------------------------------------------------------------------------------------- */

static uint64_t high(uint64_t a, uint64_t b, enum ptx_type type)
{
	const uint32_t bits = ptx_bits(type);

	if (ptx_is_signed(type))
		return (uint64_t)(((__int128)(int64_t)a * (int64_t)b) >> bits);
	return (uint64_t)(((unsigned __int128)a * b) >> bits);
}

/* The product of values that are already extended by the type. */
static uint64_t product(const struct ptx_instr *in, uint64_t a, uint64_t b)
{
	return in->mode == PTX_HI ? high(a, b, (enum ptx_type)in->type) : a * b;
}

static void multiply(struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const enum ptx_type type = (enum ptx_type)in->type;
	const uint32_t bits = ptx_bits(type), width = in->mode == PTX_WIDE ? 2 * bits : bits;
	const uint64_t *a = ptx_slot(w, in->s[0]), *b = ptx_slot(w, in->s[1]);
	const uint64_t *c = in->op == PTX_MAD ? ptx_slot(w, in->s[2]) : NULL;
	uint64_t *d = ptx_slot(w, in->d[0]);

	if (in->mode == PTX_LO && c)
		PTX_EACH(mask, ptx_low(a[i] * b[i] + c[i], bits));
	else if (in->mode == PTX_LO)
		PTX_EACH(mask, ptx_low(a[i] * b[i], bits));
	else if (c)
		PTX_EACH(mask, ptx_low(product(in, ptx_extended(a[i], type), ptx_extended(b[i], type)) + c[i],
		                       width));
	else
		PTX_EACH(mask,
		        ptx_low(product(in, ptx_extended(a[i], type), ptx_extended(b[i], type)), width));
}

static uint64_t quotient(const struct ptx_instr *in, uint64_t a, uint64_t b)
{
	if (!ptx_is_signed(in->type))
		return in->op == PTX_DIV ? a / b : a % b;
	if (b == UINT64_MAX) /* -1: the least number's quotient would overflow */
		return in->op == PTX_DIV ? -a : 0;
	return (uint64_t)(in->op == PTX_DIV ? (int64_t)a / (int64_t)b : (int64_t)a % (int64_t)b);
}

static void divide(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const enum ptx_type type = (enum ptx_type)in->type;
	const uint64_t *a = ptx_slot(w, in->s[0]), *b = ptx_slot(w, in->s[1]);
	uint64_t *d = ptx_slot(w, in->d[0]);

	for (uint32_t m = mask; m; m &= m - 1) {
		const uint32_t i = (uint32_t)__builtin_ctz(m);

		if (b[i] == 0) {
			ptx_fault(run, w, in, i, "a division by zero");
			return;
		}
		d[i] = ptx_low(
		        quotient(in, ptx_extended(a[i], type), ptx_extended(b[i], type)), ptx_bits(type));
	}
}

static uint64_t looked_up(uint64_t a, uint64_t b, uint64_t c, uint64_t table)
{
	uint64_t r = 0;

	for (uint32_t k = 0; k < 8; k++)
		if (table >> k & 1)
			r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
	return ptx_low(r, 32);
}

static uint64_t reversed(uint64_t a, uint32_t bits)
{
	uint64_t r = 0;

	for (uint32_t i = 0; i < bits; i++)
		r |= (a >> i & 1) << (bits - 1 - i);
	return r;
}

static uint64_t leading_zeros(uint64_t a, uint32_t bits)
{
	return a == 0 ? bits : (uint64_t)__builtin_clzll(a) - (64 - bits);
}

/* c plus the products of a's parts and b's bytes: dp4a multiplies four bytes, dp2a two halves by bytes 0 and
 * 1, or 2 and 3. */
static uint64_t dot(const struct ptx_instr *in, uint64_t a, uint64_t b, uint64_t c)
{
	const bool two = in->op == PTX_DP2A, signed_a = ptx_is_signed(in->type),
	           signed_b = ptx_is_signed(in->from);
	const uint32_t parts = two ? 2 : 4, wide = 32 / parts, skip = two && in->mode == PTX_HI ? 2 : 0;

	for (uint32_t i = 0; i < parts; i++) {
		uint64_t x = ptx_low(a >> wide * i, wide), y = b >> 8 * (i + skip) & 255;

		c += (signed_a ? (uint64_t)ptx_signed(x, wide) : x) *
		     (signed_b ? (uint64_t)ptx_signed(y, 8) : y);
	}
	return ptx_low(c, 32);
}

static uint64_t distance(const struct ptx_instr *in, uint64_t a, uint64_t b, uint64_t c)
{
	const bool below = ptx_is_signed(in->type) ? (int64_t)a < (int64_t)b : a < b;

	return (below ? b - a : a - b) + c;
}

/* Predicates --------------------------------------------------------------------------------------------- */

#define COMPARE_ALL(what)                                 \
	switch (in->compare) {                            \
	case PTX_EQ:                                      \
		PTX_EACH(mask, what(a[i]) == what(b[i])); \
		break;                                    \
	case PTX_NE:                                      \
		PTX_EACH(mask, what(a[i]) != what(b[i])); \
		break;                                    \
	case PTX_LT:                                      \
		PTX_EACH(mask, what(a[i]) < what(b[i]));  \
		break;                                    \
	case PTX_LE:                                      \
		PTX_EACH(mask, what(a[i]) <= what(b[i])); \
		break;                                    \
	case PTX_GT:                                      \
		PTX_EACH(mask, what(a[i]) > what(b[i]));  \
		break;                                    \
	default:                                          \
		PTX_EACH(mask, what(a[i]) >= what(b[i])); \
		break;                                    \
	}
#define UNSIGNED(x) ptx_low(x, bits)
#define SIGNED(x) ptx_signed(x, bits)

static void combine(struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask, uint64_t *d)
{
	const uint64_t *c = ptx_slot(w, in->s[2]);

	for (uint32_t m = mask; m; m &= m - 1) {
		const uint32_t i = (uint32_t)__builtin_ctz(m);
		const uint64_t other = c[i] ^ (in->predicate_not ? 1 : 0), own = d[i], not = !own;
		uint64_t *q = in->ndst > 1 && in->d[1] ? ptx_slot(w, in->d[1]) + i : NULL;

		d[i] = in->combine == PTX_AND  ? own & other
		       : in->combine == PTX_OR ? own | other
		                               : own ^ other;
		if (q)
			*q = in->combine == PTX_AND  ? not &other
			     : in->combine == PTX_OR ? not | other
			                             : not ^other;
	}
}

static void compare(struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const uint32_t bits = ptx_bits(in->type);
	const uint64_t *a = ptx_slot(w, in->s[0]), *b = ptx_slot(w, in->s[1]);
	uint64_t result[PTX_LANES], *d = result;

	if (ptx_is_float(in->type))
		PTX_EACH(mask, ptx_float_compare(
		                       (enum ptx_type)in->type, (enum ptx_compare)in->compare, a[i], b[i]));
	else if (ptx_is_signed(in->type))
		COMPARE_ALL(SIGNED)
	else
		COMPARE_ALL(UNSIGNED)
	if (in->combine != PTX_NOP) {
		combine(w, in, mask, result);
	} else if (in->ndst > 1 && in->d[1]) {
		d = ptx_slot(w, in->d[1]);
		PTX_EACH(mask, !result[i]);
	}
	if (in->d[0]) {
		d = ptx_slot(w, in->d[0]);
		PTX_EACH(mask, result[i]);
	}
}

/* Moves -------------------------------------------------------------------------------------------------- */

static void move(struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const uint32_t bits = ptx_bits(in->type), from = bits / in->nsrc, to = bits / in->ndst;
	const uint64_t *a = ptx_slot(w, in->s[0]);
	uint64_t *d = ptx_slot(w, in->d[0]);

	if (in->nsrc == 1 && in->ndst == 1) {
		PTX_EACH(mask, a[i]);
		return;
	}
	for (uint32_t m = mask; m; m &= m - 1) {
		const uint32_t i = (uint32_t)__builtin_ctz(m);
		uint64_t all = 0;

		for (uint32_t k = 0; k < in->nsrc; k++)
			all |= ptx_low(ptx_slot(w, in->s[k])[i], from) << from * k;
		for (uint32_t k = 0; k < in->ndst; k++)
			if (in->d[k])
				ptx_slot(w, in->d[k])[i] = ptx_low(all >> to * k, to);
	}
}

/* Converts between a space's addresses and generic ones. */
static void convert_address(
        struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const uint64_t window = in->space == PTX_GLOBAL ? 0 : PTX_WINDOW(in->space);
	const uint64_t *a = ptx_slot(w, in->s[0]);
	uint64_t *d = ptx_slot(w, in->d[0]);

	for (uint32_t m = mask; m; m &= m - 1) {
		const uint32_t i = (uint32_t)__builtin_ctz(m);

		if (in->to && (a[i] & ~(PTX_WINDOW(1) - 1)) != window) {
			ptx_fault(run, w, in, i, "0x%llx is no address in that space",
			        (unsigned long long)a[i]);
			return;
		}
		d[i] = a[i] ^ window;
	}
}

/* All instructions --------------------------------------------------------------------------------------- */

static void compute_bits(struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const enum ptx_type type = (enum ptx_type)in->type;
	const uint32_t bits = ptx_bits(type);
	const uint64_t *a = ptx_slot(w, in->s[0]), *b = ptx_slot(w, in->s[1]), *c = ptx_slot(w, in->s[2]);
	const uint64_t *e = ptx_slot(w, in->s[3]);
	uint64_t *d = ptx_slot(w, in->d[0]);

	switch (in->op) {
	case PTX_AND:
		PTX_EACH(mask, a[i] & b[i]);
		break;
	case PTX_OR:
		PTX_EACH(mask, a[i] | b[i]);
		break;
	case PTX_XOR:
		PTX_EACH(mask, a[i] ^ b[i]);
		break;
	case PTX_NOT:
		PTX_EACH(mask, ptx_low(~a[i], bits));
		break;
	case PTX_SHL:
		PTX_EACH(mask, b[i] >= bits ? 0 : ptx_low(a[i] << b[i], bits));
		break;
	case PTX_SHR:
		if (ptx_is_signed(type))
			PTX_EACH(mask,
			        ptx_low((uint64_t)(ptx_signed(a[i], bits) >> (b[i] < 63 ? b[i] : 63)), bits));
		else
			PTX_EACH(mask, b[i] >= bits ? 0 : a[i] >> b[i]);
		break;
	case PTX_SHF:
		PTX_EACH(mask, ptx_funnelled(in, a[i], b[i], c[i]));
		break;
	case PTX_BFE:
		PTX_EACH(mask, ptx_extracted(type, a[i], b[i], c[i]));
		break;
	case PTX_BFI:
		PTX_EACH(mask, ptx_inserted(bits, a[i], b[i], c[i], e[i]));
		break;
	case PTX_PRMT:
		PTX_EACH(mask, ptx_permuted(a[i], b[i], c[i]));
		break;
	case PTX_LOP3:
		PTX_EACH(mask, looked_up(a[i], b[i], c[i], e[i]));
		break;
	case PTX_POPC:
		PTX_EACH(mask, __builtin_popcountll(a[i]));
		break;
	case PTX_CLZ:
		PTX_EACH(mask, leading_zeros(a[i], bits));
		break;
	case PTX_BREV:
		PTX_EACH(mask, reversed(a[i], bits));
		break;
	default: /* PTX_SELP */
		if (in->predicate_not)
			PTX_EACH(mask, c[i] ? b[i] : a[i]);
		else
			PTX_EACH(mask, c[i] ? a[i] : b[i]);
		break;
	}
}

#define X(v) ptx_extended(v, type)

static void compute_integers(struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const enum ptx_type type = (enum ptx_type)in->type;
	const uint32_t bits = ptx_bits(type);
	const bool is_signed = ptx_is_signed(type);
	const uint64_t *a = ptx_slot(w, in->s[0]), *b = ptx_slot(w, in->s[1]), *c = ptx_slot(w, in->s[2]);
	uint64_t *d = ptx_slot(w, in->d[0]);

	switch (in->op) {
	case PTX_ADD:
		PTX_EACH(mask, ptx_low(a[i] + b[i], bits));
		break;
	case PTX_SUB:
		PTX_EACH(mask, ptx_low(a[i] - b[i], bits));
		break;
	case PTX_NEG:
		PTX_EACH(mask, ptx_low(-a[i], bits));
		break;
	case PTX_ABS:
		PTX_EACH(mask, ptx_low((int64_t)X(a[i]) < 0 ? -a[i] : a[i], bits));
		break;
	case PTX_MIN:
		PTX_EACH(mask, (is_signed ? (int64_t)X(a[i]) < (int64_t)X(b[i]) : a[i] < b[i]) ? a[i] : b[i]);
		break;
	case PTX_MAX:
		PTX_EACH(mask, (is_signed ? (int64_t)X(a[i]) > (int64_t)X(b[i]) : a[i] > b[i]) ? a[i] : b[i]);
		break;
	case PTX_SAD:
		PTX_EACH(mask, ptx_low(distance(in, X(a[i]), X(b[i]), c[i]), bits));
		break;
	default: /* PTX_DP2A, PTX_DP4A */
		PTX_EACH(mask, dot(in, a[i], b[i], c[i]));
		break;
	}
}

void ptx_compute(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	switch (in->op) {
	case PTX_CVT:
		ptx_convert(run, w, in, mask);
		return;
	case PTX_CVTA:
		convert_address(run, w, in, mask);
		return;
	case PTX_MOV:
		move(w, in, mask);
		return;
	case PTX_SETP:
		compare(w, in, mask);
		return;
	default:
		break;
	}
	if ((in->op >= PTX_AND && in->op <= PTX_BREV) || in->op == PTX_SELP)
		compute_bits(w, in, mask);
	else if (ptx_is_float(in->type))
		ptx_float_compute(run, w, in, mask);
	else if (in->op == PTX_MUL || in->op == PTX_MAD)
		multiply(w, in, mask);
	else if (in->op == PTX_DIV || in->op == PTX_REM)
		divide(run, w, in, mask);
	else
		compute_integers(w, in, mask);
}
