/* Texts at which the listing of a bucket is split. */
#include "listing/listing.h"

#include <string.h>

#define DEL 0x7f
#define CODE_MAX 0x10ffffu
#define SURROGATES_BEGIN 0xd800u
#define SURROGATES_END 0xe000u

/* The character at s, and its length. A byte that is not UTF-8 counts as a character of its own. */
static uint32_t code_at(const char *s, size_t *ret_n)
{
	const unsigned char *u = (const unsigned char *)s;
	size_t n = u[0] < 0xc2 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : u[0] < 0xf5 ? 4 : 1;
	uint32_t code = n == 1 ? u[0] : u[0] & (0xffu >> (n + 1));

	for (size_t i = 1; i < n; i++) {
		if ((u[i] & 0xc0) != 0x80) {
			*ret_n = 1;
			return u[0];
		}
		code = code << 6 | (u[i] & 0x3fu);
	}
	*ret_n = n;
	return code;
}

void ps_split_note(struct ps_split_alphabet *alphabet, const char *key)
{
	for (size_t n; *key; key += n) {
		uint32_t code = (unsigned char)*key;

		n = 1;
		if (code >= 0x80)
			code = code_at(key, &n);
		if (code < 0x80)
			alphabet->ascii[code] = true;
		else if (code > alphabet->max)
			alphabet->max = code;
	}
}

/* Splits the characters from `low` to below `top` in two halves, and returns the last one of the first half.
 * The second half begins with the median of the ASCII characters that were seen. If none of these was seen,
 * returns `low` itself, so that a listing after `low` shows whether there are other characters; if `low` is
 * beyond ASCII, returns the middle. */
static uint32_t half_of(const struct ps_split_alphabet *alphabet, uint32_t low, uint32_t top)
{
	uint32_t nseen = 0, others = PS_MIN(alphabet->max + 1, top);

	for (uint32_t c = low + 1; c < top && c < DEL; c++)
		nseen += alphabet->ascii[c];
	if (nseen > 0) {
		uint32_t c = low + 1;

		for (uint32_t n = nseen / 2 + 1; n > 0; c++)
			n -= alphabet->ascii[c];
		return c - 2; /* c is past the median */
	}
	if (others > low + 1 && low >= 0x80)
		low += (others - low) / 2;
	return low >= SURROGATES_BEGIN && low < SURROGATES_END ? SURROGATES_BEGIN - 1 : low;
}

/* Makes the text of at[0..n), the character that half_of() gives, and DEL. False: it is not between `at` and
 * `end`, it is too long, or there is no memory. */
static bool split_at(const struct ps_split_alphabet *alphabet, const char *at, const char *end, size_t n,
        struct ps_strbuf *ret)
{
	char utf8[4];
	size_t len;
	uint32_t low = at[n] ? code_at(at + n, &len) : ' ', top = CODE_MAX + 1;

	if (end && strncmp(at, end, n) == 0)
		top = code_at(end + n, &len);
	if (low < ' ')
		low = ' ';
	if (top <= low + 1)
		return false;
	ps_strbuf_reset(ret);
	ps_strbuf_addn(ret, at, n);
	ps_strbuf_addn(ret, utf8, (size_t)(ps_utf8_put(utf8, half_of(alphabet, low, top)) - utf8));
	ps_strbuf_addc(ret, DEL);
	return !ret->failed && ret->len <= PS_SPLIT_KEY_MAX_LEN && strcmp(at, ret->s) < 0 &&
	       (!end || strcmp(ret->s, end) < 0);
}

static bool is_inside(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* Keys vary at the place where `at` and `end` differ, and at the place after the common beginning of the keys
 * so far; at the places between they may vary. The middle place is tried first. If keys do not vary there,
 * the next call has half as many places between. */
bool ps_split_between(const struct ps_split_alphabet *alphabet, const char *at, const char *end,
        size_t nprefix, size_t ncommon, struct ps_strbuf *ret)
{
	size_t len = strlen(at), from = nprefix;

	for (; end && at[from] && at[from] == end[from]; from++)
		;
	size_t n = from + (ncommon > from ? (ncommon - from) / 2 : 0);
	while (n > nprefix && n < len && is_inside(at[n]))
		n--;
	for (; n <= len; n++)
		if ((n == len || !is_inside(at[n])) && split_at(alphabet, at, end, n, ret))
			return true;
	return false;
}
