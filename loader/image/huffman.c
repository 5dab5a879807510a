#include "image/huffman.h"

#include <endian.h>
#include <string.h>

#include "base/cleanup.h"

/* An entry of `look`, by the next PEEK bits:
 *
 *   bits 0-5    how many bits it consumes: the code, and, if WHOLE, the number after it
 *        6      WHOLE: the number is in bits 16-31
 *        8-11   zeros before the number (AC)
 *        12-15  if not WHOLE: how many bits the number has
 *   all 0       no code, or one of more than PEEK bits */
#define WHOLE 64u
#define LENGTH(e) ((int)((e)&63))
#define RUN(e) ((e) >> 8 & 15)
#define SIZE(e) ((e) >> 12 & 15)
#define VALUE(e) ((int16_t)((e) >> 16))

#define NEED 32 /* bits of the longest code and its number together, and one more */

/* Zigzag order to row order. A damaged run may lead up to 15 places beyond the last one; these map to the
 * last place, as in libjpeg. */
static const uint8_t order[64 + 16] = {0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33,
        40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37,
        44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63,
        63, 63, 63, 63, 63, 63, 63, 63, 63};

/* The value of a number of n bits, 1 to 15: the lower half of them are negative. */
static int32_t extended(uint32_t bits, uint32_t n)
{
	int32_t v = (int32_t)bits;
	return bits < 1u << (n - 1) ? v - (int32_t)(1u << n) + 1 : v;
}

/* Fills all entries that begin with this code of `length` bits for `symbol`. */
static void code_enter(struct ps_huffman_table *t, uint32_t code, uint32_t length, uint8_t symbol)
{
	uint32_t run = symbol >> 4, size = symbol & 15, rest = PS_HUFFMAN_PEEK - length;
	for (uint32_t i = 0; i < 1u << rest; i++) {
		uint32_t e = length | run << 8 | size << 12;
		if (size > 0 && size <= rest) {
			uint32_t number = i >> (rest - size);
			e = (length + size) | WHOLE | run << 8 |
			    (uint32_t)(uint16_t)extended(number, size) << 16;
		}
		t->look[code << rest | i] = e;
	}
}

void ps_huffman_table_make(
        struct ps_huffman *h, uint32_t table, const uint8_t bits[17], const uint8_t *values)
{
	struct ps_huffman_table *t = &h->tables[table];
	uint32_t code = 0, n = 0;
	if (t->made && !memcmp(t->bits + 1, bits + 1, 16) && !memcmp(t->values, values, sizeof(t->values)))
		return;
	memset(t->look, 0, sizeof(t->look));
	memcpy(t->bits, bits, sizeof(t->bits));
	memcpy(t->values, values, sizeof(t->values));
	for (uint32_t length = 1; length <= 16; length++, code <<= 1) {
		t->offset[length] = (int32_t)n - (int32_t)code;
		for (uint32_t i = 0; i < bits[length] && n < 256; i++, n++, code++) {
			if (length <= PS_HUFFMAN_PEEK && code < 1u << length)
				code_enter(t, code, length, values[n]);
		}
		t->limit[length] = code << (16 - length);
	}
	t->made = true;
}

void ps_huffman_begin(struct ps_huffman *h, const uint8_t *scan, size_t nbytes)
{
	h->p = scan;
	h->end = scan + nbytes;
	h->buffer = 0;
	h->nbits = h->npadding = 0;
	memset(h->last_dc, 0, sizeof(h->last_dc));
}

/* The state that changes with every code, kept in registers. */
struct reader {
	const uint8_t *p, *end;
	uint64_t buffer;
	int nbits, npadding;
};

/* Refills byte by byte: 0xff 0 is the byte 0xff; a marker, or the end, is followed by any number of zeros. */
static __attribute__((noinline)) void refill_slowly(struct reader *r)
{
	for (; r->nbits <= 56; r->nbits += 8) {
		const uint8_t *p = r->p;
		uint64_t byte = 0;
		bool data = p < r->end;
		if (data && *p == 0xff) {
			while (p < r->end && *p == 0xff)
				p++;
			data = p < r->end && *p == 0;
			byte = 0xff;
		} else if (data) {
			byte = *p;
		}
		if (!data) {
			r->npadding += 8;
			continue;
		}
		r->p = p + 1;
		r->buffer |= byte << (56 - r->nbits);
	}
}

/* Refills the buffer to at least 56 bits. The reader's address is never taken, so it stays in registers. */
static inline __attribute__((always_inline)) void refill(struct reader *r)
{
	uint64_t bytes;
	if (r->end - r->p >= 8) {
		memcpy(&bytes, r->p, sizeof(bytes));
		/* True if none of the bytes is 0xff: a zero byte of ~bytes would borrow. */
		if (!((~bytes - UINT64_C(0x0101010101010101)) & bytes & UINT64_C(0x8080808080808080))) {
			r->buffer |= be64toh(bytes) >> r->nbits;
			r->p += (63 - r->nbits) >> 3;
			r->nbits |= 56;
			return;
		}
	}
	struct reader slow = *r;
	refill_slowly(&slow);
	*r = slow;
}

static inline __attribute__((always_inline)) void skip(struct reader *r, int n)
{
	r->buffer <<= n;
	r->nbits -= n;
}

static inline __attribute__((always_inline)) uint32_t look(
        const struct ps_huffman_table *t, const struct reader *r)
{
	return t->look[r->buffer >> (64 - PS_HUFFMAN_PEEK)];
}

/* An entry, as in `look`, for a code of more than PEEK bits; 0: there is none. */
static uint32_t look_further(const struct ps_huffman_table *t, const struct reader *r)
{
	uint32_t next = (uint32_t)(r->buffer >> 48);
	for (uint32_t n = PS_HUFFMAN_PEEK + 1; n <= 16; n++) {
		if (next < t->limit[n]) {
			uint8_t symbol = t->values[((int32_t)(next >> (16 - n)) + t->offset[n]) & 255];
			return n | (uint32_t)(symbol >> 4) << 8 | (uint32_t)(symbol & 15) << 12;
		}
	}
	return 0;
}

/* Consumes the code of an entry that is not WHOLE, and its number. */
static inline __attribute__((always_inline)) int32_t number(struct reader *r, uint32_t e)
{
	uint32_t size = SIZE(e);
	skip(r, LENGTH(e));
	if (size == 0)
		return 0;
	uint32_t bits = (uint32_t)(r->buffer >> (64 - size));
	skip(r, (int)size);
	return extended(bits, size);
}

static inline __attribute__((always_inline)) bool block_read(struct reader *r,
        const struct ps_huffman_table *dc, const struct ps_huffman_table *ac, int32_t *last_dc,
        int16_t *block)
{
	if (r->nbits < NEED)
		refill(r);
	uint32_t e = look(dc, r);
	if (e & WHOLE) {
		skip(r, LENGTH(e));
		*last_dc = (int32_t)((uint32_t)*last_dc + (uint32_t)VALUE(e));
	} else {
		if (e == 0 && (e = look_further(dc, r)) == 0)
			return false;
		*last_dc = (int32_t)((uint32_t)*last_dc + (uint32_t)number(r, e));
	}
	block[0] = (int16_t)*last_dc;
	for (uint32_t k = 1; k < 64;) {
		refill(r);
		/* The bits suffice for two short codes and a third of any length. */
		e = look(ac, r);
		for (int i = 0; i < 3 && e & WHOLE; i++) {
			skip(r, LENGTH(e));
			k += RUN(e);
			block[order[k++]] = VALUE(e);
			if (k >= 64 || i == 2)
				break;
			e = look(ac, r);
		}
		if (e & WHOLE)
			continue;
		if (e == 0 && (e = look_further(ac, r)) == 0)
			return false;
		int32_t v = number(r, e);
		if (SIZE(e) == 0 && RUN(e) < 15)
			break; /* the rest is zeros */
		k += RUN(e);
		if (SIZE(e) > 0)
			block[order[k]] = (int16_t)v;
		k++;
	}
	return true;
}

enum ps_huffman_end ps_huffman_mcu(struct ps_huffman *h, int16_t *const *blocks)
{
	struct reader r = {h->p, h->end, h->buffer, h->nbits, h->npadding};
	int16_t unwanted[64];
	bool sound = true;
	for (uint32_t i = 0; i < h->nblocks && sound; i++)
		sound = block_read(&r, h->blocks[i].dc, h->blocks[i].ac, &h->last_dc[h->blocks[i].component],
		        blocks ? blocks[i] : unwanted);
	h->p = r.p;
	h->buffer = r.buffer;
	h->nbits = r.nbits;
	h->npadding = r.npadding;
	if (r.npadding > r.nbits)
		return PS_HUFFMAN_TRUNCATED;
	return sound ? PS_HUFFMAN_SOUND : PS_HUFFMAN_BAD_CODE;
}
