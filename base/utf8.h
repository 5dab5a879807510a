/* UTF-8. Threads: any. */
#ifndef PS_BASE_UTF8_H
#define PS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The length of the character at p, with n > 0 bytes available; 0: not a valid character (surrogates and
 * overlong forms are not valid). */
static inline size_t ps_utf8_len(const uint8_t *p, size_t n)
{
	size_t len = p[0] < 0x80                   ? 1
	             : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
	             : (p[0] & 0xf0) == 0xe0       ? 3
	             : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
	                                           : 0;

	if (len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
	        (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return len;
}

/* Index of the first byte that is not valid UTF-8; n: all bytes are valid. */
static inline size_t ps_utf8_check(const uint8_t *p, size_t n)
{
	size_t i = 0;

	while (i < n) {
		uint64_t eight;
		size_t len;

		/* Most text is ASCII: eight bytes at once. */
		if (n - i >= sizeof(eight)) {
			memcpy(&eight, p + i, sizeof(eight));
			if (!(eight & UINT64_C(0x8080808080808080))) {
				i += sizeof(eight);
				continue;
			}
		}
		if (p[i] < 0x80) {
			i++;
			continue;
		}
		len = ps_utf8_len(p + i, n - i);
		if (len == 0)
			return i;
		i += len;
	}
	return n;
}

/* True if the NUL-terminated text, which is not empty, begins with a control character, which a terminal may
 * obey: C0, DEL, or C1, also as a single byte. *ret_nbytes: the length of its first character. */
static inline bool ps_utf8_control(const char *text, size_t *ret_nbytes)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t len = ps_utf8_len(p, strnlen(text, 4));

	*ret_nbytes = len ? len : 1;
	if (len == 0)
		return p[0] < 0xa0;
	return p[0] < ' ' || p[0] == 0x7f || (p[0] == 0xc2 && p[1] < 0xa0);
}

/* Replaces each byte of a control character by '?', in place. */
static inline void ps_utf8_blank(char *text)
{
	for (size_t n; *text; text += n)
		if (ps_utf8_control(text, &n))
			memset(text, '?', n);
}

/* The largest length up to n at which a longer text can be cut without splitting a character. */
static inline size_t ps_utf8_cut(const uint8_t *text, size_t n)
{
	while (n > 0 && (text[n] & 0xc0) == 0x80)
		n--;
	return n;
}

#endif
