/* Floats, and conversions of all types. A NaN result always has the same bits, taken to be those of GPUs: all
 * ones except the sign. */
#include "config.h"

#include <fenv.h>
#include <math.h>

#include "ptx_private.h"

#pragma GCC diagnostic ignored "-Wfloat-equal"

static float f32(uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	float f;

	memcpy(&f, &low, sizeof(f));
	return f;
}

static double f64(uint64_t bits)
{
	double f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static uint64_t bits_f32(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return isnan(f) ? 0x7fffffff : bits;
}

static uint64_t bits_f64(double f)
{
	uint64_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return isnan(f) ? 0x7fffffffffffffff : bits;
}

/* Sets the rounding direction, until the caller resets it to FE_TONEAREST. Values computed meanwhile must be
 * volatile. */
static void direction_set(enum ptx_round round)
{
	fesetround(round == PTX_RZ || round == PTX_RZI   ? FE_TOWARDZERO
	           : round == PTX_RM || round == PTX_RMI ? FE_DOWNWARD
	           : round == PTX_RP || round == PTX_RPI ? FE_UPWARD
	                                                 : FE_TONEAREST);
}

/* Arithmetic --------------------------------------------------------------------------------------------- */

/* least() returns the lesser of two, most() the greater; if one is NaN, the other. -0 is below 0. */
static double least(double a, double b)
{
	return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}

static double most(double a, double b)
{
	return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}

#define ARITHMETIC(name, type, fma, sqrt)                                                               \
	static type name(const struct ptx_instr *in, volatile type a, volatile type b, volatile type c) \
	{                                                                                               \
		switch (in->op) {                                                                       \
		case PTX_ADD:                                                                           \
			return a + b;                                                                   \
		case PTX_SUB:                                                                           \
			return a - b;                                                                   \
		case PTX_MUL:                                                                           \
			return a * b;                                                                   \
		case PTX_MAD:                                                                           \
		case PTX_FMA:                                                                           \
			return fma(a, b, c);                                                            \
		case PTX_DIV:                                                                           \
			return a / b;                                                                   \
		case PTX_RCP:                                                                           \
			return 1 / a;                                                                   \
		case PTX_SQRT:                                                                          \
			return sqrt(a);                                                                 \
		case PTX_RSQRT:                                                                         \
			return (type)(1 / sqrt((double)a));                                             \
		case PTX_EX2:                                                                           \
			return (type)exp2((double)a);                                                   \
		case PTX_LG2:                                                                           \
			return (type)log2((double)a);                                                   \
		case PTX_SIN:                                                                           \
			return (type)sin((double)a);                                                    \
		case PTX_COS:                                                                           \
			return (type)cos((double)a);                                                    \
		case PTX_MIN:                                                                           \
			return (type)least((double)a, (double)b);                                       \
		default: /* PTX_MAX */                                                                  \
			return (type)most((double)a, (double)b);                                        \
		}                                                                                       \
	}
ARITHMETIC(arithmetic32, float, fmaf, sqrtf)
ARITHMETIC(arithmetic64, double, fma, sqrt)

void ptx_float_compute(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const bool is_single = in->type == PTX_F32, nearest = in->round <= PTX_RN;
	const uint64_t *a = ptx_slot(w, in->s[0]), *b = ptx_slot(w, in->s[1]), *c = ptx_slot(w, in->s[2]);
	const uint64_t sign = (uint64_t)1 << (ptx_bits(in->type) - 1);
	uint64_t *d = ptx_slot(w, in->d[0]);

	(void)run;
	if (in->op == PTX_ABS) {
		PTX_EACH(mask, a[i] & ~sign);
	} else if (in->op == PTX_NEG) {
		PTX_EACH(mask, a[i] ^ sign);
	} else if (is_single && nearest && in->op == PTX_ADD) {
		PTX_EACH(mask, bits_f32(f32(a[i]) + f32(b[i])));
	} else if (is_single && nearest && in->op == PTX_MUL) {
		PTX_EACH(mask, bits_f32(f32(a[i]) * f32(b[i])));
	} else {
		direction_set((enum ptx_round)in->round);
		if (is_single)
			PTX_EACH(mask, bits_f32(arithmetic32(in, f32(a[i]), f32(b[i]), f32(c[i]))));
		else
			PTX_EACH(mask, bits_f64(arithmetic64(in, f64(a[i]), f64(b[i]), f64(c[i]))));
		fesetround(FE_TONEAREST);
	}
}

bool ptx_float_compare(enum ptx_type type, enum ptx_compare compare, uint64_t a, uint64_t b)
{
	const double x = type == PTX_F32 ? (double)f32(a) : f64(a),
	             y = type == PTX_F32 ? (double)f32(b) : f64(b);
	const bool unordered = isnan(x) || isnan(y);

	switch (compare) {
	case PTX_EQ:
		return x == y;
	case PTX_NE:
		return !unordered && x != y;
	case PTX_LT:
		return x < y;
	case PTX_LE:
		return x <= y;
	case PTX_GT:
		return x > y;
	case PTX_GE:
		return x >= y;
	case PTX_NUM:
		return !unordered;
	case PTX_NAN:
		return unordered;
	default:
		return unordered ||
		       ptx_float_compare(type, (enum ptx_compare)(compare - PTX_EQU + PTX_EQ), a, b);
	}
}

/* Conversions -------------------------------------------------------------------------------------------- */

/* The bits of x as a small float with `fraction` fraction bits and the least normal exponent
 * `least_exponent`. Only for rounding to nearest or towards 0. */
static uint64_t bits_small(double x, int fraction, int least_exponent, uint64_t nan)
{
	const int greatest = 1 - least_exponent; /* the greatest exponent */
	int exponent;
	double scaled;
	uint64_t sign = signbit(x) ? (uint64_t)1 << 15 : 0, whole;

	if (isnan(x))
		return nan;
	if (x == 0) /* frexp() gives exponent 0 for 0 */
		return sign;
	(void)frexp(x, &exponent); /* x is 0.5 to 1 times 2^exponent */
	exponent = exponent - 1 < least_exponent ? least_exponent : exponent - 1;
	if (isinf(x) || (exponent > greatest && fegetround() != FE_TOWARDZERO))
		return sign | (uint64_t)(2 * greatest + 1) << fraction;
	if (exponent > greatest)
		return sign | (((uint64_t)(2 * greatest + 1) << fraction) - 1);
	scaled = nearbyint(ldexp(fabs(x), fraction - exponent));
	whole = (uint64_t)scaled; /* its leading 1 adds to the exponent, as does a carry */
	return sign | (((uint64_t)(exponent - least_exponent) << fraction) + whole);
}

static double small(uint64_t bits, int fraction, int least_exponent)
{
	const int most_exponent = 2 * (1 - least_exponent) + 1;
	const int exponent = (int)(bits >> fraction) & most_exponent;
	const double part = (double)ptx_low(bits, (uint32_t)fraction);
	double x;

	if (exponent == most_exponent)
		x = part > 0 ? NAN : INFINITY;
	else if (exponent == 0)
		x = ldexp(part, least_exponent - fraction);
	else
		x = ldexp(part + ldexp(1, fraction), exponent - 1 + least_exponent - fraction);
	return bits >> 15 & 1 ? -x : x;
}

static double value_of(uint64_t bits, enum ptx_type type)
{
	return type == PTX_F32    ? (double)f32(bits)
	       : type == PTX_F64  ? f64(bits)
	       : type == PTX_F16  ? small(bits, 10, -14)
	       : type == PTX_BF16 ? small(bits, 7, -126)
	                          : 0;
}

/* The bits of x in `type`, rounded in the current direction. x must hold the source value exactly (an integer
 * of up to 53 bits does), so that the value is rounded only once. */
static uint64_t bits_of(double x, enum ptx_type type)
{
	volatile double from = x;
	volatile float single;

	if (type == PTX_F16)
		return bits_small(from, 10, -14, 0x7fff);
	if (type == PTX_BF16)
		return bits_small(from, 7, -126, 0x7fff);
	if (type == PTX_F64)
		return bits_f64(from);
	single = (float)from;
	return bits_f32(single);
}

static uint64_t integer_of(double x, enum ptx_type type)
{
	const uint32_t bits = ptx_bits(type);
	const bool is_signed = ptx_is_signed(type);
	const double low = is_signed ? -ldexp(1, (int)bits - 1) : 0,
	             beyond = ldexp(1, is_signed ? (int)bits - 1 : (int)bits);
	volatile double rounded;

	if (isnan(x))
		return 0;
	rounded = nearbyint(x);
	if (rounded < low)
		return ptx_low((uint64_t)(int64_t)low, bits);
	if (rounded >= beyond)
		return is_signed ? ptx_low(~(uint64_t)0, bits - 1) : ptx_low(~(uint64_t)0, bits);
	return ptx_low(is_signed ? (uint64_t)(int64_t)rounded : (uint64_t)rounded, bits);
}

static uint64_t float_of_integer(uint64_t v, enum ptx_type from, enum ptx_type to)
{
	volatile float single;
	volatile double wide;

	if (to == PTX_F32) {
		single = ptx_is_signed(from) ? (float)(int64_t)v : (float)v;
		return bits_f32(single);
	}
	wide = ptx_is_signed(from) ? (double)(int64_t)v : (double)v;
	return bits_of(wide, to);
}

static uint64_t saturated(uint64_t v, enum ptx_type from, enum ptx_type to)
{
	const uint32_t bits = ptx_bits(to);
	const bool below = ptx_is_signed(from) && (int64_t)v < 0;

	if (!ptx_is_signed(to))
		return below ? 0 : v > ptx_low(UINT64_MAX, bits) ? ptx_low(UINT64_MAX, bits) : v;
	if (below)
		return (int64_t)v < -((int64_t)1 << (bits - 1)) ? (uint64_t)1 << (bits - 1) : v;
	return v > ptx_low(UINT64_MAX, bits - 1) ? ptx_low(UINT64_MAX, bits - 1) : v;
}

static double saturated_float(double x)
{
	return isnan(x) || x < 0 ? 0 : x > 1 ? 1 : x;
}

/* The converted value in the low bits of the result; the caller cuts or extends it. */
static uint64_t converted(const struct ptx_instr *in, uint64_t a)
{
	const enum ptx_type to = (enum ptx_type)in->type, from = (enum ptx_type)in->from;
	const uint64_t v = ptx_is_float(from) ? 0 : ptx_extended(a, from);
	double x;

	if (!ptx_is_float(from) && !ptx_is_float(to))
		return in->sat ? saturated(v, from, to) : v;
	if (!ptx_is_float(from))
		return float_of_integer(v, from, to);
	x = value_of(a, from);
	if (!ptx_is_float(to))
		return integer_of(x, to);
	if (in->round >= PTX_RNI && from == to) {
		volatile double whole = nearbyint(x);
		x = whole;
	}
	return bits_of(in->sat ? saturated_float(x) : x, to);
}

void ptx_convert(struct ptx_run *run, struct ptx_warp *w, const struct ptx_instr *in, uint32_t mask)
{
	const enum ptx_type to = (enum ptx_type)in->type, from = (enum ptx_type)in->from;
	const uint64_t *a = ptx_slot(w, in->s[0]);
	uint64_t *d = ptx_slot(w, in->d[0]);

	(void)run;
	if (!ptx_is_float(to) && !ptx_is_float(from) && !in->sat) {
		PTX_EACH(mask, ptx_low(ptx_extended(ptx_extended(a[i], from), to), in->d_bits));
		return;
	}
	if (to == PTX_F32 && from == PTX_U32 && in->round == PTX_RN) {
		PTX_EACH(mask, bits_f32((float)(uint32_t)a[i]));
		return;
	}
	direction_set((enum ptx_round)in->round);
	PTX_EACH(mask, ptx_low(ptx_is_float(to) ? converted(in, a[i]) : ptx_extended(converted(in, a[i]), to),
	                       in->d_bits));
	fesetround(FE_TONEAREST);
}
