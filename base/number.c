#include "config.h"

#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <string.h>

#define FLOAT_TEXT_MAX 1024 /* longer texts are rejected */

void ps_number_trim(const uint8_t **p, size_t *n)
{
	while (*n > 0 && (**p == ' ' || (**p >= '\t' && **p <= '\r'))) {
		++*p;
		--*n;
	}
	while (*n > 0 && ((*p)[*n - 1] == ' ' || ((*p)[*n - 1] >= '\t' && (*p)[*n - 1] <= '\r')))
		--*n;
}

const char *ps_number_integer(const uint8_t *p, size_t n, struct ps_number *ret_number)
{
	struct ps_number v = {0};

	if (n > 0 && (*p == '-' || *p == '+')) {
		v.negative = *p == '-';
		p++;
		n--;
	}
	if (n == 0)
		return "not an integer: it has no digits";
	for (; n > 0; p++, n--) {
		if (*p < '0' || *p > '9')
			return "not an integer (digits, with or without a sign)";
		if (__builtin_mul_overflow(v.magnitude, 10, &v.magnitude) ||
		        __builtin_add_overflow(v.magnitude, *p - '0', &v.magnitude))
			return "an integer beyond 64 bits";
	}
	v.negative = v.negative && v.magnitude > 0;
	*ret_number = v;
	return NULL;
}

/* Fast path: up to 19 digits whose integer is at most 2^53, divided by a small power of ten. Both are exact
 * doubles, so the one division rounds correctly. */
static bool float_short(const uint8_t *p, size_t n, double *ret_value)
{
	static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12,
	        1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
	const uint8_t *end = p + n;
	bool negative = *p == '-';
	uint64_t m = 0;
	int digits = 0, fraction = 0;
	bool point = false;

	p += *p == '-' || *p == '+';
	for (; p < end; p++) {
		if (*p == '.' && !point) {
			point = true;
			continue;
		}
		if (*p < '0' || *p > '9' || ++digits > 19)
			return false;
		m = m * 10 + (uint64_t)(*p - '0');
		fraction += point;
	}
	if (digits == 0 || m > UINT64_C(1) << 53 || fraction > 22)
		return false;
	*ret_value = (double)m / powers[fraction];
	if (negative)
		*ret_value = -*ret_value;
	return true;
}

const char *ps_number_float(const uint8_t *p, size_t n, struct ps_number *ret_number)
{
	struct ps_number v = {.is_float = true};
	char text[FLOAT_TEXT_MAX + 1], *end;
	locale_t c;

	if (n == 0)
		return "not a number: it is empty";
	if (!float_short(p, n, &v.value)) {
		if (n > FLOAT_TEXT_MAX)
			return "not a number: it is longer than 1024 bytes";
		/* strtod() also accepts hexadecimal, nan(...), white space, and any bytes after a zero
		 * byte */
		for (size_t i = 0; i < n; i++)
			if (!strchr("0123456789+-.eEinfatyINFATY", p[i]) || p[i] == 0)
				return "not a number";
		memcpy(text, p, n);
		text[n] = 0;
		c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* cheap: glibc returns a static object */
		if (!c)
			return "no memory to read a number";
		v.value = strtod_l(text, &end, c);
		freelocale(c);
		if (*end || end == text)
			return "not a number";
	}
	*ret_number = v;
	return NULL;
}

/* Elements ----------------------------------------------------------------------------------------------- */

bool ps_dtype_is_float(enum ps_dtype t)
{
	return t == PS_F32 || t == PS_F16 || t == PS_BF16 || t == PS_F64;
}

static bool is_signed(enum ps_dtype t)
{
	return t == PS_I8 || t == PS_I16 || t == PS_I32 || t == PS_I64;
}

/* The number of an integer type's value bits, without the sign. */
static unsigned bits_of(enum ps_dtype t)
{
	return t == PS_BOOL ? 1 : (unsigned)ps_dtype_nbytes(t) * 8 - is_signed(t);
}

static double half_to_double(uint16_t h)
{
	int e = h >> 10 & 31;
	double m = h & 1023, v;

	if (e == 31)
		v = m > 0 ? (double)NAN : (double)INFINITY;
	else
		v = e ? ldexp(m + 1024, e - 25) : ldexp(m, -24);
	return h & 0x8000 ? -v : v;
}

/* Rounds to the nearest, ties to even. */
static uint16_t half_from_double(double v)
{
	uint16_t sign = signbit(v) ? 0x8000 : 0;
	double a = fabs(v), m;
	int e;

	if (isnan(v))
		return 0x7e00;
	if (a < 0x1p-14)
		/* A result of 1024 is the smallest normal number. */
		return (uint16_t)(sign | (unsigned)nearbyint(a * 0x1p24));
	m = frexp(a, &e);
	if (isinf(a) || e > 16)
		return sign | 0x7c00;
	/* A fraction rounded up to 2048 carries into the exponent, and for the largest exponent into
	 * infinity. */
	return (uint16_t)(sign | (((unsigned)(e + 14) << 10) + ((unsigned)nearbyint(m * 2048) - 1024)));
}

static uint16_t bfloat_from_double(double v)
{
	uint32_t bits;
	float f = (float)v; /* the first of two roundings; see below */

	memcpy(&bits, &f, sizeof(bits));
	if (isnan(v))
		return (uint16_t)(bits >> 16 | 0x40);
	/* The first rounding may have turned a number that is no tie into a tie. */
	if ((bits & 0xffff) == 0x8000 && (double)f != v) {
		bool up = fabs(v) > fabs((double)f);

		return (uint16_t)((bits >> 16) + up);
	}
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double bfloat_to_double(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return (double)f;
}

struct ps_number ps_number_load(enum ps_dtype t, bool swapped, const void *src)
{
	size_t n = ps_dtype_nbytes(t);
	uint64_t bits = 0;
	int64_t v;
	union {
		uint16_t h;
		float f;
		double d;
		uint64_t bits;
		uint32_t word;
	} u;

	/* from the lowest byte on, whatever the byte orders of src and of this machine */
	for (size_t i = 0; i < n; i++) {
		bool little = (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) != swapped;

		bits |= (uint64_t)((const uint8_t *)src)[little ? i : n - 1 - i] << 8 * i;
	}
	switch (t) {
	case PS_F64:
		u.bits = bits;
		return (struct ps_number){.is_float = true, .value = u.d};
	case PS_F32:
		u.word = (uint32_t)bits;
		return (struct ps_number){.is_float = true, .value = (double)u.f};
	case PS_F16:
		return (struct ps_number){.is_float = true, .value = half_to_double((uint16_t)bits)};
	case PS_BF16:
		return (struct ps_number){.is_float = true, .value = bfloat_to_double((uint16_t)bits)};
	case PS_BOOL:
		return (struct ps_number){.magnitude = bits != 0};
	default:
		break;
	}
	if (!is_signed(t))
		return (struct ps_number){.magnitude = bits};
	v = (int64_t)(bits << (64 - 8 * n)) >> (64 - 8 * n);
	return (struct ps_number){.negative = v < 0, .magnitude = v < 0 ? -(uint64_t)v : (uint64_t)v};
}

static void float_put(double v, enum ps_dtype t, void *dst)
{
	float f = (float)v;
	uint16_t h = t == PS_F16 ? half_from_double(v) : bfloat_from_double(v);

	if (t == PS_F64)
		memcpy(dst, &v, sizeof(v));
	else if (t == PS_F32)
		memcpy(dst, &f, sizeof(f));
	else
		memcpy(dst, &h, sizeof(h));
}

/* Stores an integer in an integer type. */
static bool integer_put(bool negative, uint64_t m, enum ps_dtype t, void *dst)
{
	unsigned bits = bits_of(t);
	uint64_t most = bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
	uint64_t v = negative ? -m : m;

	if (negative ? !is_signed(t) || m > most + 1 : m > most)
		return false;
	switch (ps_dtype_nbytes(t)) {
	case 1:
		*(uint8_t *)dst = (uint8_t)v;
		return true;
	case 2:
		memcpy(dst, &(uint16_t){(uint16_t)v}, 2);
		return true;
	case 4:
		memcpy(dst, &(uint32_t){(uint32_t)v}, 4);
		return true;
	}
	memcpy(dst, &v, 8);
	return true;
}

static double as_double(const struct ps_number *v)
{
	return v->is_float ? v->value : v->negative ? -(double)v->magnitude : (double)v->magnitude;
}

bool ps_number_store(const struct ps_number *v, enum ps_dtype t, void *dst)
{
	uint8_t element[8];
	struct ps_number back;

	if (!ps_dtype_is_float(t)) {
		double whole;

		if (!v->is_float)
			return integer_put(v->negative, v->magnitude, t, dst);
		if (modf(v->value, &whole) != 0.0 || fabs(v->value) >= 0x1p64)
			return false; /* also NaN: its comparison with 0.0 is unequal */
		return integer_put(v->value < 0, (uint64_t)fabs(v->value), t, dst);
	}
	float_put(as_double(v), t, element);
	back = ps_number_load(t, false, element);
	if (!v->is_float) {
		/* beyond 2^53 the double may be rounded */
		if (fabs(back.value) >= 0x1p64 || (uint64_t)fabs(back.value) != v->magnitude)
			return false;
	} else if (back.value != v->value && !(isnan(v->value) && isnan(back.value))) {
		return false;
	}
	memcpy(dst, element, ps_dtype_nbytes(t));
	return true;
}

bool ps_number_store_rounded(const struct ps_number *v, enum ps_dtype t, void *dst)
{
	struct ps_number n = *v;

	if (!ps_dtype_is_float(t))
		return ps_number_store(v, t, dst);
	/* Rounding a large integer twice, to a double and then to t, could produce a false tie. So the bits
	 * that a double may not hold are merged into one sticky bit. */
	if (!n.is_float && t != PS_F64 && n.magnitude >> 53)
		n.magnitude = (n.magnitude & ~UINT64_C(0x7ff)) | (n.magnitude & 0x7ff ? 0x800 : 0);
	float_put(as_double(&n), t, dst);
	return true;
}

/* Arrays ------------------------------------------------------------------------------------------------- */

/* GCC vectorises these loops at -O3 only. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

/* Fast loops for common conversions that are always exact; all others convert element by element. */
#define WIDEN(from, to)                                                     \
	static void from##_to_##to(const uint8_t *src, void *dst, size_t n) \
	{                                                                   \
		to *out = dst;                                              \
                                                                            \
		for (size_t i = 0; i < n; i++) {                            \
			from v;                                             \
                                                                            \
			memcpy(&v, src + i * sizeof(v), sizeof(v));         \
			out[i] = (to)v;                                     \
		}                                                           \
	}

WIDEN(uint8_t, int32_t)
WIDEN(uint8_t, int64_t)
WIDEN(uint16_t, int32_t)
WIDEN(uint16_t, int64_t)
WIDEN(int16_t, int64_t)
WIDEN(uint32_t, int64_t)
WIDEN(int32_t, int64_t)
WIDEN(uint8_t, float)
WIDEN(float, double)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

static const struct {
	enum ps_dtype from, to;
	void (*run)(const uint8_t *src, void *dst, size_t n);
} widens[] = {
        {PS_U8, PS_I32, uint8_t_to_int32_t},
        {PS_U8, PS_I64, uint8_t_to_int64_t},
        {PS_U16, PS_I32, uint16_t_to_int32_t},
        {PS_U16, PS_I64, uint16_t_to_int64_t},
        {PS_I16, PS_I64, int16_t_to_int64_t},
        {PS_U32, PS_I64, uint32_t_to_int64_t},
        {PS_I32, PS_I64, int32_t_to_int64_t},
        {PS_U8, PS_F32, uint8_t_to_float},
        {PS_F32, PS_F64, float_to_double},
};

size_t ps_convert(enum ps_dtype from, bool swapped, const void *src, enum ps_dtype to, void *dst, size_t n)
{
	size_t in = ps_dtype_nbytes(from), out = ps_dtype_nbytes(to);

	if (n == 0)
		return 0;
	swapped = swapped && in > 1;
	if (from == to && !swapped && from != PS_BOOL) {
		memcpy(dst, src, n * in);
		return n;
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(widens) && !swapped; i++) {
		if (widens[i].from == from && widens[i].to == to) {
			widens[i].run(src, dst, n);
			return n;
		}
	}
	for (size_t i = 0; i < n; i++) {
		struct ps_number v = ps_number_load(from, swapped, (const uint8_t *)src + i * in);

		if (!ps_number_store(&v, to, (uint8_t *)dst + i * out))
			return i;
	}
	return n;
}

size_t ps_convert_rounded(
        enum ps_dtype from, bool swapped, const void *src, enum ps_dtype to, void *dst, size_t n)
{
	const uint8_t *in = src;
	uint16_t *halves = dst;
	float f;

	if (from == to || !ps_dtype_is_float(to))
		return ps_convert(from, swapped, src, to, dst, n);
	if (from != PS_F32 || swapped || (to != PS_F16 && to != PS_BF16)) {
		for (size_t i = 0; i < n; i++) {
			struct ps_number v = ps_number_load(from, swapped, in + i * ps_dtype_nbytes(from));

			void *out = (uint8_t *)dst + i * ps_dtype_nbytes(to);

			if (!ps_number_store_rounded(&v, to, out) ||
			        (!isfinite(ps_number_load(to, false, out).value) &&
			                !(v.is_float && !isfinite(v.value))))
				return i;
		}
		return n;
	}
	for (size_t i = 0; i < n; i++) {
		memcpy(&f, in + i * sizeof(f), sizeof(f));
		halves[i] = to == PS_F16 ? ps_f16_of(f) : ps_bf16_of(f);
		if (isfinite(f) && (halves[i] & 0x7fff) == (to == PS_F16 ? 0x7c00 : 0x7f80))
			return i;
	}
	return n;
}

void ps_fill(enum ps_dtype dtype, const void *value, void *dst, size_t n)
{
	size_t size = ps_dtype_nbytes(dtype);

	if (size == 1)
		memset(dst, *(const uint8_t *)value, n);
	else
		for (size_t i = 0; i < n; i++)
			memcpy((uint8_t *)dst + i * size, value, size);
}
