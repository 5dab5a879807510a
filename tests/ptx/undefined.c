/* Finds the bits of a result that depend on bits that were never written. The answer is exact where our
 * kernels need it; elsewhere all bits of the result count as unknown. A product is known if one factor is
 * known to be 0: resize_tile multiplies unwritten rows, past the last row of the image, by weights of 0. */
#include "config.h"

#include "ptx_private.h"

uint64_t ptx_permuted(uint64_t a, uint64_t b, uint64_t selector)
{
	const uint64_t all = ptx_low(a, 32) | b << 32;
	uint64_t r = 0;

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t nibble = (uint32_t)(selector >> 4 * i) & 15;
		uint64_t byte = all >> 8 * (nibble & 7) & 255;

		if (nibble & 8)
			byte = byte & 128 ? 255 : 0;
		r |= byte << 8 * i;
	}
	return r;
}

uint64_t ptx_extracted(enum ptx_type type, uint64_t a, uint64_t at, uint64_t n)
{
	const uint32_t bits = ptx_bits(type);
	uint64_t r = 0, sign;

	at &= 255;
	n &= 255;
	sign = ptx_is_signed(type) && n > 0 ? a >> (at + n - 1 < bits - 1 ? at + n - 1 : bits - 1) & 1 : 0;
	for (uint32_t i = 0; i < bits; i++)
		r |= (i < n && at + i < bits ? a >> (at + i) & 1 : sign) << i;
	return r;
}

uint64_t ptx_inserted(uint32_t bits, uint64_t a, uint64_t b, uint64_t at, uint64_t n)
{
	at &= 255;
	n &= 255;
	for (uint64_t i = 0; i < n && at + i < bits; i++)
		b = (b & ~((uint64_t)1 << (at + i))) | (a >> i & 1) << (at + i);
	return b;
}

/* a is the lower word. */
uint64_t ptx_funnelled(const struct ptx_instr *in, uint64_t a, uint64_t b, uint64_t n)
{
	const uint64_t both = ptx_low(a, 32) | b << 32;

	n = ptx_low(n, 32);
	n = in->clamp ? (n < 32 ? n : 32) : n & 31;
	return ptx_low(in->mode == PTX_LEFT ? both << n >> 32 : both >> n, 32);
}

/* The width of one of the first two operands; the count of a shift has 32 bits. */
static uint32_t operand_bits(const struct ptx_instr *in, uint32_t i)
{
	if (in->op == PTX_DP2A || (i == 1 && (in->op == PTX_SHL || in->op == PTX_SHR)))
		return 32;
	return ptx_bits(in->type);
}

/* The bits that a carry may reach: all from the lowest unknown bit on. */
static uint64_t carried(uint64_t unknown)
{
	return unknown ? -(unknown & -unknown) : 0;
}

static bool zero(uint64_t value, uint64_t unknown)
{
	return value == 0 && unknown == 0;
}

/* True if a 16 by 8 bit product of dp2a is unknown. */
static bool pair_unknown(const struct ptx_instr *in, uint32_t i, const uint64_t v[3], const uint64_t u[3])
{
	const uint32_t shift = 16 * i, byte = 8 * (i + (in->mode == PTX_HI ? 2 : 0));
	const uint64_t va = v[0] >> shift & 0xffff, ua = u[0] >> shift & 0xffff;
	const uint64_t vb = v[1] >> byte & 0xff, ub = u[1] >> byte & 0xff;

	return (ua | ub) && !zero(va, ua) && !zero(vb, ub);
}

/* The unknown bits of the result. v, u: the values and the unknown bits of the sources, within the type's
 * width. */
static uint64_t result_unknown(const struct ptx_instr *in, const uint64_t v[4], const uint64_t u[4])
{
	const uint32_t bits = ptx_bits(in->type);
	const uint64_t any = u[0] | u[1] | u[2] | u[3];

	switch (in->op) {
	case PTX_NOT:
	case PTX_CVTA:
		return u[0];
	case PTX_AND:
		return (u[0] & u[1]) | (u[0] & v[1]) | (u[1] & v[0]);
	case PTX_OR:
		return (u[0] & u[1]) | (u[0] & ~v[1]) | (u[1] & ~v[0]);
	case PTX_XOR:
		return u[0] | u[1];
	case PTX_SHL:
		return u[1] ? UINT64_MAX : v[1] >= bits ? 0 : u[0] << v[1];
	case PTX_SHR:
		if (u[1])
			return UINT64_MAX;
		if (ptx_is_signed(in->type))
			return (uint64_t)(ptx_signed(u[0], bits) >> (v[1] < 63 ? v[1] : 63));
		return v[1] >= bits ? 0 : u[0] >> v[1];
	case PTX_SHF:
		return u[2] ? UINT64_MAX : ptx_funnelled(in, u[0], u[1], v[2]);
	case PTX_PRMT:
		return u[2] ? UINT64_MAX : ptx_permuted(u[0], u[1], v[2]);
	case PTX_BFE:
		return u[1] | u[2] ? UINT64_MAX : ptx_extracted((enum ptx_type)in->type, u[0], v[1], v[2]);
	case PTX_BFI:
		return u[2] | u[3] ? UINT64_MAX : ptx_inserted(bits, u[0], u[1], v[2], v[3]);
	case PTX_SELP:
		return u[2] ? UINT64_MAX : u[v[2] ? 0 : 1];
	case PTX_CVT:
		if (ptx_is_float(in->type) || ptx_is_float(in->from) || in->sat)
			return any ? UINT64_MAX : 0;
		return ptx_extended(u[0], (enum ptx_type)in->from);
	case PTX_ADD:
	case PTX_SUB:
		return ptx_is_float(in->type) ? (any ? UINT64_MAX : 0) : carried(any);
	case PTX_MUL:
	case PTX_MAD:
		if (ptx_is_float(in->type))
			return any ? UINT64_MAX : 0;
		if ((u[0] | u[1]) && !zero(v[0], u[0]) && !zero(v[1], u[1]))
			return UINT64_MAX;
		return carried(u[2]);
	case PTX_DP2A:
		return pair_unknown(in, 0, v, u) || pair_unknown(in, 1, v, u) ? UINT64_MAX : carried(u[2]);
	default:
		return any ? UINT64_MAX : 0;
	}
}

static void unknown_set(struct ptx_warp *w, uint32_t slot, uint32_t lane, uint64_t unknown)
{
	if (slot == 0)
		return;
	w->defined[slot] &= ~(1u << lane);
	if (unknown) {
		w->partly[slot] |= 1u << lane;
		w->unknown[(size_t)slot * PTX_LANES + lane] = unknown;
	} else {
		w->defined[slot] |= 1u << lane;
	}
}

/* A mov of parts to one register, or of one register to parts. */
static void moved(struct ptx_warp *w, const struct ptx_instr *in, uint32_t lane)
{
	const uint32_t bits = ptx_bits(in->type);
	uint64_t all = 0;

	for (uint32_t i = 0; i < in->nsrc; i++)
		all |= ptx_low(ptx_unknown(w, in->s[i], lane), bits / in->nsrc) << (bits / in->nsrc * i);
	for (uint32_t i = 0; i < in->ndst; i++)
		unknown_set(w, in->d[i], lane, ptx_low(all >> (bits / in->ndst * i), bits / in->ndst));
}

void ptx_undefined(struct ptx_warp *w, const struct ptx_instr *in, uint32_t lanes)
{
	for (uint32_t m = lanes; m; m &= m - 1) {
		const uint32_t lane = (uint32_t)__builtin_ctz(m);
		uint64_t v[4] = {0}, u[4] = {0}, r;

		if (in->op == PTX_MOV) {
			moved(w, in, lane);
			continue;
		}
		for (uint32_t i = 0; i < in->nsrc && i < 4; i++) {
			v[i] = ptx_slot(w, in->s[i])[lane];
			u[i] = ptx_unknown(w, in->s[i], lane);
			if (in->op == PTX_CVT)
				u[i] = ptx_low(u[i], ptx_bits(in->from));
			if (i < 2 && in->op != PTX_CVT)
				u[i] = ptx_low(u[i], operand_bits(in, i));
		}
		r = ptx_low(result_unknown(in, v, u), in->d_bits);
		for (uint32_t i = 0; i < in->ndst; i++)
			unknown_set(w, in->d[i], lane, r);
	}
}
