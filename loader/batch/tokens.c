/* Packed rows of tokens, written to their places: x and y, and the tensors that tell their parts. */

#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/size.h"
#include "batch/parts.h"

/* Where the parts of a row are written. */
struct places {
	uint8_t *x, *y, *mask; /* mask NULL: not wanted, as the next two */
	int32_t *positions, *segments;
};

/* Loops over tokens, which GCC vectorises at -O3 only ------------------------------------------------------ */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

/* True if a token is not below `vocab`, as an unsigned number: a negative one never is. Compared as signed numbers with the
 * highest bit flipped, which all vector units can. */
#define IS_ABOVE(name, type, signed_type)                                               \
	static bool name(const uint8_t *p, size_t n, uint64_t vocab)                    \
	{                                                                               \
		const type top = (type)((type)1 << (8 * sizeof(type) - 1));             \
		const signed_type last = (signed_type)((type)(vocab - 1) ^ top);        \
		signed_type above = 0;                                                  \
                                                                                        \
		for (size_t i = 0; i < n; i++) {                                        \
			type v;                                                         \
                                                                                        \
			memcpy(&v, p + i * sizeof(v), sizeof(v));                       \
			above |= (signed_type)((signed_type)(v ^ top) > last ? -1 : 0); \
		}                                                                       \
		return above != 0;                                                      \
	}

IS_ABOVE(is_above_u8, uint8_t, int8_t)
IS_ABOVE(is_above_u16, uint16_t, int16_t)
IS_ABOVE(is_above_u32, uint32_t, int32_t)
IS_ABOVE(is_above_u64, uint64_t, int64_t)

/* True if one of n tokens may not be below `vocab`, which is not 0. */
static bool is_above(size_t size, const uint8_t *p, size_t n, uint64_t vocab)
{
	if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
		return true; /* bad_find() looks */
	if (size < 8 && vocab >> (8 * size))
		return false;
	return size == 1   ? is_above_u8(p, n, vocab)
	       : size == 2 ? is_above_u16(p, n, vocab)
	       : size == 4 ? is_above_u32(p, n, vocab)
	                   : is_above_u64(p, n, vocab);
}

static void numbers_write(const struct places *to, size_t at, uint32_t len, int32_t segment)
{
	int32_t *positions = to->positions + at, *segments = to->segments + at;

	for (uint32_t k = 0; to->positions && k < len; k++)
		positions[k] = (int32_t)k;
	for (uint32_t k = 0; to->segments && k < len; k++)
		segments[k] = segment;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/* Parts --------------------------------------------------------------------------------------------------- */

/* The place of the first of n tokens that is not below `vocab`; n: none. */
static size_t bad_find(enum ps_dtype dtype, const uint8_t *p, size_t n, uint64_t vocab)
{
	const bool swapped = __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__;

	for (size_t i = 0; i < n; i++) {
		struct ps_number v = ps_number_load(dtype, swapped, p + i * ps_dtype_nbytes(dtype));

		if (v.magnitude >= vocab || v.negative)
			return i;
	}
	return n;
}

/* A token that is wrong: the text names the document, the token in the file and its value. */
static int token_refuse(const struct ps_layout_field *f, enum ps_dtype dtype,
        const struct ps_token_part *part, const uint8_t *p, size_t i, struct ps_error *err)
{
	struct ps_number v = ps_number_load(
	        dtype, __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__, p + i * ps_dtype_nbytes(dtype));
	char limit[64] = "";

	if (f->vocab > 0 && (v.negative || v.magnitude >= f->vocab))
		snprintf(limit, sizeof(limit), "vocab is %ju", (uintmax_t)f->vocab);
	else
		snprintf(limit, sizeof(limit), "%s cannot hold it", ps_dtype_name(f->dtype));
	return ps_error_set(err, EBADMSG, "document %ju: token %ju of the file is %s%ju, but %s",
	        (uintmax_t)part->document, (uintmax_t)(part->at + i), v.negative ? "-" : "",
	        (uintmax_t)v.magnitude, limit);
}

static struct places places_of(const struct penstock_batch *b, uint32_t i, uint32_t row)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_slot_field *at = &b->at.fields[i];
	size_t first = (size_t)row * f->row_items;

	return (struct places){.x = ps_batch_row(b, i, 0, row),
	        .y = ps_batch_row(b, i, 1, row),
	        .mask = f->parts & PS_PART_MASK ? b->mem + at->mask + first : NULL,
	        .positions = f->parts & PS_PART_POSITIONS
	                             ? (int32_t *)(void *)(b->mem + at->positions) + first
	                             : NULL,
	        .segments = f->parts & PS_PART_SEGMENTS ? (int32_t *)(void *)(b->mem + at->segments) + first
	                                                : NULL};
}

/* The rest of a row, which is a part of its own without a document. */
static void padding_write(const struct ps_layout_field *f, const struct places *to, size_t at, uint32_t len)
{
	size_t size = f->item_nbytes;

	ps_fill(f->dtype, f->pad, to->x + at * size, len);
	ps_fill(f->dtype, f->pad, to->y + at * size, len);
	numbers_write(to, at, len, 0);
	if (to->mask)
		memset(to->mask + at, 0, len);
}

static int part_write(const struct ps_layout_field *f, const struct ps_token_part *part, enum ps_dtype dtype,
        const uint8_t *src, const uint8_t *loss, const struct places *to, size_t at, int32_t segment,
        struct ps_error *err)
{
	const bool swapped = __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__;
	size_t size = ps_dtype_nbytes(dtype), n = (size_t)part->len + !part->ends, done;
	uint8_t *x = to->x + at * f->item_nbytes, *y = to->y + at * f->item_nbytes;

	if (f->vocab > 0 && is_above(size, src, n, f->vocab)) {
		done = bad_find(dtype, src, n, f->vocab);
		if (done < n)
			return token_refuse(f, dtype, part, src, done, err);
	}
	done = ps_convert(dtype, swapped, src, f->dtype, x, part->len);
	if (done < part->len)
		return token_refuse(f, dtype, part, src, done, err);
	/* y is x, one token later */
	memcpy(y, x + f->item_nbytes, (part->len - 1) * f->item_nbytes);
	y += (part->len - 1) * f->item_nbytes;
	if (part->ends)
		memcpy(y, f->pad, f->item_nbytes);
	else if (ps_convert(dtype, swapped, src + part->len * size, f->dtype, y, 1) < 1)
		return token_refuse(f, dtype, part, src, part->len, err);
	numbers_write(to, at, part->len, segment);
	if (!to->mask)
		return 0;
	if (loss) /* that of the token which y has */
		for (uint32_t k = 0; k + 1 < n; k++)
			to->mask[at + k] = loss[k + 1] != 0;
	else
		memset(to->mask + at, 1, n - 1);
	if (part->ends)
		to->mask[at + part->len - 1] = 0;
	return 0;
}

/* Asks for the first bytes of a part that is written soon. */
static void tokens_fetch(const uint8_t *p, size_t n)
{
	enum { LINE = 64, MOST = 2048 };

	for (size_t i = 0; i < n && i < MOST; i += LINE)
		__builtin_prefetch(p + i);
}

int ps_packed_put(
        struct penstock_batch *b, uint32_t row, uint32_t i, struct ps_batch_worker *w, struct ps_error *err)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	struct ps_row *r = &b->rows[row];
	struct ps_sample *s = r->sample;
	const struct places to = places_of(b, i, row);
	enum ps_dtype dtype = s->piece->file->dtype;
	size_t size = ps_dtype_nbytes(dtype), at = 0, from = 0;
	ps_autofd int own = -1;
	struct ps_token_row in;
	int fd = -1, rc = 0;

	if (!s->piece->tokens) {
		fd = ps_shard_file_open(s->file, &own, err);
		if (fd < 0)
			return fd;
		w->reread++;
	}
	rc = ps_token_row_read(s->piece, s->row, fd, &w->row, &in, err);
	if (rc < 0) {
		r->lost = ps_errno_is_lost(-rc);
		return rc;
	}
	free(r->parts);
	r->nparts = 0;
	r->parts = malloc((in.nparts + 1) * sizeof(*r->parts));
	if (!r->parts)
		return ps_error_set(err, ENOMEM, "no memory for a row of %u parts", in.nparts);
	for (uint32_t k = 0; k < in.nparts && rc == 0; k++) {
		const struct ps_token_part *part = &in.parts[k];
		size_t place = in.gathered ? from : (size_t)(part->at - in.from);

		/* parts of a row are anywhere in their piece */
		if (k + 1 < in.nparts && !in.gathered)
			tokens_fetch(in.tokens + (size_t)(part[1].at - in.from) * size, part[1].len * size);
		rc = part_write(f, part, dtype, in.tokens + place * size, in.loss ? in.loss + place : NULL,
		        &to, at, (int32_t)k + 1, err);
		r->parts[r->nparts++] =
		        (struct ps_row_part){.document = (int64_t)part->document, .len = part->len};
		at += part->len;
		from += (size_t)part->len + !part->ends;
	}
	if (rc == 0 && at < f->row_items) {
		uint32_t rest = (uint32_t)(f->row_items - at);

		padding_write(f, &to, at, rest);
		r->parts[r->nparts++] = (struct ps_row_part){.document = -1, .len = rest};
	}
	return rc;
}

void ps_packed_repeat(struct penstock_batch *b, uint32_t i, uint32_t to, uint32_t from)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct places a = places_of(b, i, to), c = places_of(b, i, from);
	size_t n = (size_t)f->row_items;

	if (a.mask)
		memcpy(a.mask, c.mask, n);
	if (a.positions)
		memcpy(a.positions, c.positions, n * sizeof(int32_t));
	if (a.segments)
		memcpy(a.segments, c.segments, n * sizeof(int32_t));
}

void ps_packed_blank(struct penstock_batch *b, uint32_t i)
{
	const struct ps_layout_field *f = &b->layout->fields[i];

	for (uint32_t row = 0; row < b->out_rows; row++) {
		const struct places to = places_of(b, i, row);

		padding_write(f, &to, 0, (uint32_t)f->row_items);
	}
}

/* The parts of the row that is delivered as row k; a blank row is one part. */
static const struct ps_row_part *parts_of(
        const struct penstock_batch *b, uint32_t k, const struct ps_row_part *blank, uint32_t *ret_n)
{
	const struct ps_row *r = &b->rows[b->sources[k]];

	*ret_n = b->blank ? 1 : r->nparts;
	return b->blank ? blank : r->parts;
}

int ps_packed_size(struct penstock_batch *b, uint32_t i, size_t *used, struct ps_error *err)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_row_part blank = {.document = -1, .len = (uint32_t)f->row_items};
	struct ps_late *late = &b->late[i];
	bool ok = true;
	uint64_t n = 0;
	uint32_t more;

	for (uint32_t k = 0; k < b->out_rows; k++) {
		(void)parts_of(b, k, &blank, &more);
		n += more;
	}
	if (f->cu_pad > 0 && n > f->cu_pad)
		return ps_error_set(err, E2BIG,
		        "field %.100s: the batch has %ju parts, but cu_pad is %u; raise cu_pad", f->name,
		        (uintmax_t)n, f->cu_pad);
	late->items = f->cu_pad ? f->cu_pad : n;
	if (f->parts & PS_PART_CU)
		ok = ps_slot_place(used, (size_t)late->items + 1, sizeof(int32_t), &late->data[0]);
	if (f->parts & PS_PART_DOCUMENT)
		ok = ok && ps_slot_place(used, (size_t)late->items, sizeof(int64_t), &late->data[1]);
	return ok ? 0 : -E2BIG;
}

void ps_packed_write(struct penstock_batch *b, uint32_t i)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_row_part blank = {.document = -1, .len = (uint32_t)f->row_items};
	struct ps_late *late = &b->late[i];
	int32_t *cu = f->parts & PS_PART_CU ? (int32_t *)(void *)(b->mem + late->data[0]) : NULL;
	int64_t *document = f->parts & PS_PART_DOCUMENT ? (int64_t *)(void *)(b->mem + late->data[1]) : NULL;
	uint64_t n = 0;
	int32_t at = 0;

	late->longest = 0;
	for (uint32_t k = 0; k < b->out_rows; k++) {
		uint32_t more;
		const struct ps_row_part *parts = parts_of(b, k, &blank, &more);

		for (uint32_t j = 0; j < more; j++, n++) {
			if (cu)
				cu[n] = at;
			if (document)
				document[n] = parts[j].document;
			at += (int32_t)parts[j].len;
			late->longest = PS_MAX(late->longest, (int64_t)parts[j].len);
		}
	}
	for (; n < late->items; n++) {
		if (cu)
			cu[n] = at;
		if (document)
			document[n] = -1;
	}
	if (cu)
		cu[n] = at;
}
