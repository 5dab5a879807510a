#include "base/npy.h"

#include <errno.h>
#include <string.h>

#include "base/size.h"

/* The header is a Python dictionary of three items in any order:
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   */
struct head {
	const char *p, *end;
};

static void spaces(struct head *h)
{
	while (h->p < h->end && (*h->p == ' ' || (*h->p >= '\t' && *h->p <= '\r')))
		h->p++;
}

/* Takes a character and the spaces before it. False: another character comes next. */
static bool mark(struct head *h, char c)
{
	spaces(h);
	if (h->p == h->end || *h->p != c)
		return false;
	h->p++;
	return true;
}

static bool word(struct head *h, const char *w)
{
	size_t n = strlen(w);

	spaces(h);
	if ((size_t)(h->end - h->p) < n || memcmp(h->p, w, n) != 0)
		return false;
	h->p += n;
	return true;
}

/* Takes a quoted text without escapes. */
static bool quoted(struct head *h, const char **ret_text, size_t *ret_len)
{
	const char *close;
	char quote;

	spaces(h);
	if (h->p == h->end || (*h->p != '\'' && *h->p != '"'))
		return false;
	quote = *h->p++;
	close = memchr(h->p, quote, (size_t)(h->end - h->p));
	if (!close || memchr(h->p, '\\', (size_t)(close - h->p)))
		return false;
	*ret_text = h->p;
	*ret_len = (size_t)(close - h->p);
	h->p = close + 1;
	return true;
}

static bool shape_parse(struct head *h, struct ps_npy *npy)
{
	if (!mark(h, '('))
		return false;
	while (!mark(h, ')')) {
		uint64_t v = 0;
		bool any = false;

		spaces(h);
		for (; h->p < h->end && *h->p >= '0' && *h->p <= '9'; h->p++, any = true)
			if (!ps_u64_mul(v, 10, &v) || !ps_u64_add(v, (uint64_t)(*h->p - '0'), &v))
				return false;
		if (h->p < h->end && *h->p == 'L') /* the suffix of Python 2's long integers */
			h->p++;
		if (!any || npy->ndim == PS_NPY_MAX_DIMS)
			return false;
		npy->shape[npy->ndim++] = v;
		if (!mark(h, ',')) {
			if (!mark(h, ')'))
				return false;
			break;
		}
	}
	return true;
}

static bool descr_parse(struct head *h, struct ps_npy *npy, struct ps_error *err)
{
	static const struct {
		char name[3];
		enum ps_dtype dtype;
	} types[] = {{"u1", PS_U8}, {"u2", PS_U16}, {"u4", PS_U32}, {"u8", PS_U64}, {"i1", PS_I8},
	        {"i2", PS_I16}, {"i4", PS_I32}, {"i8", PS_I64}, {"f2", PS_F16}, {"f4", PS_F32},
	        {"f8", PS_F64}, {"b1", PS_BOOL}};
	bool big = false;
	const char *text;
	size_t n;

	if (!quoted(h, &text, &n)) {
		ps_error_set(
		        err, EBADMSG, "the npy file holds structures; only arrays of numbers are supported");
		return false;
	}
	if (n == 3 && strchr("<>|=", *text)) {
		big = *text == '>';
		text++;
		n--;
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(types); i++) {
		if (n != 2 || memcmp(text, types[i].name, 2) != 0)
			continue;
		npy->dtype = types[i].dtype;
		npy->swapped =
		        big == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) && ps_dtype_nbytes(npy->dtype) > 1;
		return true;
	}
	ps_error_set(err, EBADMSG,
	        "the npy file has elements \"%.*s\"; only integers, floats and bools are supported",
	        (int)PS_MIN(n, 40u), text);
	return false;
}

/* Takes an item of the dictionary. False: invalid; err may have a text. */
static bool item_parse(struct head *h, struct ps_npy *npy, unsigned *seen, struct ps_error *err)
{
	const char *key;
	size_t n;
	unsigned which;
	bool ok;

	if (!quoted(h, &key, &n) || !mark(h, ':'))
		return false;
	if (n == 5 && memcmp(key, "descr", 5) == 0) {
		which = 1;
		ok = descr_parse(h, npy, err);
	} else if (n == 13 && memcmp(key, "fortran_order", 13) == 0) {
		which = 2;
		npy->fortran = word(h, "True");
		ok = npy->fortran || word(h, "False");
	} else if (n == 5 && memcmp(key, "shape", 5) == 0) {
		which = 4;
		ok = shape_parse(h, npy);
	} else {
		return false;
	}
	ok = ok && !(*seen & which);
	*seen |= which;
	return ok;
}

static int head_parse(struct head *h, struct ps_npy *npy, struct ps_error *err)
{
	struct ps_error why = {0};
	unsigned seen = 0;
	bool ok = mark(h, '{');

	while (ok && !mark(h, '}')) {
		ok = item_parse(h, npy, &seen, &why);
		if (ok && !mark(h, ',')) {
			ok = mark(h, '}');
			break;
		}
	}
	spaces(h);
	if (ok && seen == 7 && h->p == h->end)
		return 0;
	return ps_error_set(err, EBADMSG, "%s", why.err ? why.text : "the npy file's header is damaged");
}

int ps_npy_parse(const void *file, size_t nbytes, struct ps_npy *ret_npy, struct ps_error *err)
{
	const uint8_t *p = file;
	struct ps_npy npy = {0};
	struct head h;
	size_t at, len, all;
	uint32_t large = 0;

	if (nbytes < 12 || memcmp(p, "\x93NUMPY", 6) != 0)
		return ps_error_set(err, EBADMSG, "not an npy file");
	if (p[6] < 1 || p[6] > 3)
		return ps_error_set(
		        err, EBADMSG, "the npy file has format version %u; 1 to 3 are supported", p[6]);
	at = p[6] == 1 ? 10 : 12;
	len = p[8] | (size_t)p[9] << 8;
	if (p[6] > 1)
		len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
	if (len > nbytes - at)
		return ps_error_set(err, EBADMSG, "the npy file is truncated in its header");
	h = (struct head){(const char *)p + at, (const char *)p + at + len};
	if (head_parse(&h, &npy, err) < 0)
		return -EBADMSG;
	npy.count = 1;
	for (uint32_t i = 0; i < npy.ndim; i++) {
		large += npy.shape[i] > 1;
		if (!ps_u64_mul(npy.count, npy.shape[i], &npy.count))
			return ps_error_set(err, EBADMSG, "the npy file's array has 2^64 elements or more");
	}
	npy.fortran = npy.fortran && large > 1;
	npy.data = p + at + len;
	nbytes -= at + len;
	if (!ps_size_mul(npy.count, ps_dtype_nbytes(npy.dtype), &all) || all > nbytes)
		return ps_error_set(err, EBADMSG,
		        "the npy file is truncated: its array has %ju elements of %zu bytes, "
		        "but %zu bytes are there",
		        (uintmax_t)npy.count, ps_dtype_nbytes(npy.dtype), nbytes);
	if (all < nbytes)
		return ps_error_set(err, EBADMSG, "the npy file has %zu bytes after its array", nbytes - all);
	*ret_npy = npy;
	return 0;
}
