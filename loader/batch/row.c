/* Decoding one row: a sample's members are written to their places. */

#include "config.h"

#include "batch/batch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/size.h"
#include "batch/fields.h"
#include "batch/parts.h"
#include "device/device.h"
#include "random/random.h"

int ps_batch_worker_init(struct ps_batch_worker *w, const struct ps_batch_layout *layout, uint64_t seed,
        struct ps_image_gate *gate, struct ps_error *err)
{
	*w = (struct ps_batch_worker){.seed = seed, .ticket = {.gate = gate}, .layout = layout};
	for (uint32_t i = 0; i < layout->nfields; i++) {
		if (ps_picture_worker_init(w, layout, i, err) < 0) {
			ps_batch_worker_fini(w);
			return -ENOMEM;
		}
	}
	return 0;
}

void ps_batch_worker_fini(struct ps_batch_worker *w)
{
	if (w->called && w->layout->transform_leave)
		w->layout->transform_leave(w->layout->transform_ctx);
	free(w->call);
	ps_buf_fini(&w->row);
	ps_nvjpeg_worker_free(w->nvjpeg);
	for (uint32_t i = 0; i < PS_ARRAY_LEN(w->decoders); i++) {
		ps_image_decoder_free(w->decoders[i]);
		ps_mask_decoder_free(w->masks[i]);
		free(w->scratch[i].p);
	}
	*w = (struct ps_batch_worker){0};
}

static uint8_t *scratch(struct ps_batch_worker *w, uint32_t field, size_t nbytes)
{
	struct ps_scratch *s = &w->scratch[field];

	if (nbytes > s->nbytes || !s->p) {
		size_t size = nbytes + nbytes / 2 + 64;
		uint8_t *p = realloc(s->p, size);

		if (!p)
			return NULL;
		*s = (struct ps_scratch){p, size};
	}
	return s->p;
}

/* The elements of a late field's row, in the worker's memory; valid until the worker decodes the next row.
 * NULL: out of memory. */
static const void *late_peek(
        const struct penstock_batch *b, uint32_t i, uint32_t row, struct ps_batch_worker *w)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_piece *piece = &b->pieces[i][row];
	uint8_t *dst = scratch(w, i, (size_t)piece->items * f->item_nbytes);

	if (dst && piece->data)
		ps_batch_piece_write(b, i, row, piece, 0, dst);
	return dst;
}

uint64_t ps_batch_items(const struct penstock_batch *b, uint32_t i, uint32_t row)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	int64_t n;

	if (ps_field_is_late(f))
		return b->pieces[i][row].items;
	if (f->form == PS_FORM_FIXED)
		return f->row_items;
	memcpy(&n, b->mem + b->at.fields[i].lengths + row * sizeof(n), sizeof(n));
	return (uint64_t)n;
}

void ps_batch_piece_write(const struct penstock_batch *b, uint32_t i, uint32_t row,
        const struct ps_piece *piece, uint32_t plane, void *dst)
{
	const struct ps_layout_field *f = &b->layout->fields[i];

	if (piece->final) {
		ps_field_memory.write(f, piece, plane, dst);
		return;
	}
	f->ops->write(f, piece, plane, dst);
	if (f->kind == PENSTOCK_BOXES)
		ps_boxes_place(&b->boxes[i][row], f->box_format, dst, (size_t)piece->items);
}

/* Limits the piece to the field's max_items: cuts it, or fails. */
static int overflow_apply(const struct ps_layout_field *f, struct ps_piece *piece, struct ps_error *err)
{
	if (piece->items <= f->max_items)
		return 0;
	if (f->overflow == PENSTOCK_OVERFLOW_TRUNCATE) {
		piece->items = f->ops->cut ? f->ops->cut(piece, f->max_items) : f->max_items;
		return 0;
	}
	ps_error_set(err, f->overflow == PENSTOCK_OVERFLOW_BAD ? EBADMSG : PS_ROW_OVERFLOWS,
	        "%ju items, but at most %ju are allowed (pad_to or max_bytes)%s", (uintmax_t)piece->items,
	        (uintmax_t)f->max_items,
	        f->overflow == PENSTOCK_OVERFLOW_BAD
	                ? ""
	                : "; raise that limit, or set overflow to bad or truncate");
	return -err->err;
}

/* Drops boxes of the row's field i, or the items of boxes that were dropped: *piece becomes what is left. */
static int some_keep(
        struct penstock_batch *b, uint32_t row, uint32_t i, struct ps_piece *piece, struct ps_error *err)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	struct ps_row *r = &b->rows[row];
	const struct ps_some *boxes = r->some;
	struct ps_some *some;
	size_t n = (size_t)piece->items, nbytes;

	while (boxes && boxes->field != (uint32_t)f->drops_with)
		boxes = boxes->next;
	if (f->kind != PENSTOCK_BOXES && n != (boxes ? boxes->n_all : 0))
		return ps_error_set(err, EBADMSG, "%zu items, but %ju boxes in %.100s", n,
		        (uintmax_t)(boxes ? boxes->n_all : 0), b->layout->fields[f->drops_with].name);
	if (!ps_size_mul(n, f->item_nbytes, &nbytes) || !ps_size_add(nbytes, sizeof(*some), &nbytes))
		return ps_error_set(err, ENOMEM, "too many boxes");
	some = calloc(1, nbytes);
	if (!some)
		return ps_error_set(err, ENOMEM, "no memory for %zu boxes", n);
	*some = (struct ps_some){.next = r->some, .field = i, .n_all = n};
	r->some = some;
	if (n > 0)
		f->ops->write(f, piece, 0, some->elements);
	if (f->kind == PENSTOCK_BOXES) {
		some->kept = calloc(n + 1, sizeof(*some->kept));
		if (!some->kept)
			return ps_error_set(err, ENOMEM, "no memory for %zu boxes", n);
		some->n = ps_boxes_place_some(&b->boxes[i][row], f->box_format, f->min_area, f->min_visible,
		        (float *)(void *)some->elements, n, some->kept);
	} else {
		some->n = boxes ? boxes->n : 0;
		for (size_t k = 0; k < some->n; k++)
			memmove(some->elements + k * f->item_nbytes,
			        some->elements + boxes->kept[k] * f->item_nbytes, f->item_nbytes);
	}
	*piece = (struct ps_piece){.data = some->elements, .items = some->n, .final = true};
	return 0;
}

/* Writes a measured piece to its place, or keeps the piece until the place is known. */
static void piece_put(struct penstock_batch *b, uint32_t row, uint32_t i, const struct ps_piece *piece)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	size_t rest = (size_t)(f->row_items - piece->items);
	int64_t n = (int64_t)piece->items;

	if (ps_field_is_late(f)) {
		b->pieces[i][row] = *piece;
		return;
	}
	for (uint32_t plane = 0; plane < f->planes; plane++) {
		uint8_t *dst = ps_batch_row(b, i, plane, row);

		if (piece->data)
			ps_batch_piece_write(b, i, row, piece, plane, dst);
		if (f->form == PS_FORM_PADDED)
			ps_fill(f->dtype, f->pad, dst + piece->items * f->item_nbytes,
			        rest * f->item_elements);
		else if (!piece->data)
			ps_fill(f->dtype, f->missing, dst, (size_t)f->row_items * f->item_elements);
	}
	if (f->form != PS_FORM_PADDED)
		return;
	memcpy(b->mem + b->at.fields[i].lengths + row * sizeof(n), &n, sizeof(n));
	memset(b->mem + b->at.fields[i].mask + row * f->row_items, 1, (size_t)piece->items);
	memset(b->mem + b->at.fields[i].mask + row * f->row_items + piece->items, 0, rest);
}

#define LISTED_NBYTES 200 /* bytes of the listed names of a sample's fields */

/* Lists the fields of the sample, as ".jpg, .cls", as far as there is room. */
static void fields_list(const struct ps_sample *s, char to[static LISTED_NBYTES])
{
	const char *end = s->key + s->names_nbytes;
	size_t n = 0;

	to[0] = 0;
	for (const char *p = s->key + s->key_len + 1; p < end && n < LISTED_NBYTES; p += strlen(p) + 1)
		if (*p)
			n += (size_t)snprintf(to + n, LISTED_NBYTES - n, "%s.%s", n > 0 ? ", " : "", p);
	if (n >= LISTED_NBYTES)
		memcpy(to + LISTED_NBYTES - 4, "...", 4);
}

/* The end of an error text about a missing field: a note if the fields are the default ones; else "". */
static const char *defaults_tell(const struct ps_batch_layout *layout)
{
	const struct ps_layout_field *image = &layout->fields[0], *label = &layout->fields[1];
	bool python = image->member && strcmp(image->name, "jpg") == 0; /* Python's default has this name */

	if (layout->nfields != 2 || (image->member && !python) ||
	        strcmp(image->member ? image->member : image->name, "jpg;jpeg") != 0 || label->member ||
	        strcmp(label->name, "cls") != 0 || !label->optional)
		return "";
	return "; jpg;jpeg and cls are the default fields, give your own";
}

/* True if one edit makes a text the other (two edits, if `name` has 5 characters or more): a character more,
 * less, or another one, or two neighbours swapped. */
static bool is_like(const char *name, size_t n, const char *other)
{
	enum { MOST = 32 };
	uint8_t d[MOST + 1][MOST + 1];
	size_t m = strlen(other);

	if (n > MOST || m > MOST)
		return false;
	for (size_t i = 0; i <= n; i++) {
		for (size_t j = 0; j <= m; j++) {
			if (i == 0 || j == 0) {
				d[i][j] = (uint8_t)(i + j);
				continue;
			}
			d[i][j] = (uint8_t)PS_MIN(PS_MIN(d[i - 1][j], d[i][j - 1]) + 1,
			        d[i - 1][j - 1] + (name[i - 1] != other[j - 1]));
			if (i > 1 && j > 1 && name[i - 1] == other[j - 2] && name[i - 2] == other[j - 1])
				d[i][j] = PS_MIN(d[i][j], (uint8_t)(d[i - 2][j - 2] + 1));
		}
	}
	return d[n][m] <= (n < 5 ? 1 : 2);
}

static bool is_image_suffix(const char *suffix, size_t n)
{
	static const char *const all[] = {"jpg", "jpeg", "png", "webp", "ppm", "pgm"};

	for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
		if (strlen(all[i]) == n && memcmp(suffix, all[i], n) == 0)
			return true;
	return false;
}

/* Writes the name that a field of the sample suggests in place of `name`. False: none does. */
static bool likely_name(const struct ps_sample *s, const char *name, bool image, char *ret, size_t room)
{
	const char *end = s->key + s->names_nbytes;

	for (const char *p = s->key + s->key_len + 1; p < end; p += strlen(p) + 1)
		for (const char *one = name; *p && *one; one += *one == ';') {
			size_t n = strcspn(one, ";");

			if (is_like(one, n, p))
				return snprintf(ret, room, "%s", p) > 0;
			one += n;
		}
	image = image && is_image_suffix(name, strcspn(name, ";")); /* "seg.png" is meant as it is */
	for (const char *p = s->key + s->key_len + 1; p < end && image; p += strlen(p) + 1)
		if (is_image_suffix(p, strlen(p)))
			return snprintf(ret, room, "%.100s;%s", name, p) > 0;
	return false;
}

/* Handles a field that the sample does not have. */
static int missing_put(struct penstock_batch *b, uint32_t row, uint32_t i, struct ps_error *err)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	const struct ps_piece none = {0};
	const char *name = f->member ? f->member : f->name;
	char listed[LISTED_NBYTES], like[128];

	if (!f->optional) {
		fields_list(b->rows[row].sample, listed);
		ps_error_set(err, EBADMSG, "has no %s .%.100s; it has %s%s", f->path ? "value" : "field",
		        name, listed, defaults_tell(b->layout));
		err->cause = PS_CAUSE_FIELD;
		b->rows[row].lacking = i;
		err->advised = !f->path && likely_name(b->rows[row].sample, name, f->kind == PENSTOCK_IMAGE,
		                                   like, sizeof(like));
		if (err->advised)
			ps_error_append(err, "; did you mean \"%s\"?", like);
		return -EBADMSG;
	}
	piece_put(b, row, i, &none);
	return 0;
}

/* Decodes one field of one row from an existing member. */
static int field_decode(struct penstock_batch *b, uint32_t row, uint32_t i, struct ps_sample_field *in,
        struct ps_batch_worker *w, struct ps_error *err)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	struct ps_sample *s = b->rows[row].sample;
	struct ps_piece piece;
	int rc;

	if (f->pack)
		return ps_packed_put(b, row, i, w, err);
	if (ps_field_is_late(f)) {
		/* beyond its limit the batch will fail, so its late fields need not be decoded */
		uint64_t before =
		        atomic_fetch_add_explicit(&b->ragged_nbytes, in->size, memory_order_relaxed);

		b->pieces[i][row] = (struct ps_piece){0};
		if (b->max_ragged_nbytes &&
		        (before > b->max_ragged_nbytes || in->size > b->max_ragged_nbytes - before))
			return 0;
	}
	w->reread += !in->data && in->size > 0;
	rc = ps_sample_load(s, in, err);
	if (rc < 0) {
		b->rows[row].lost = ps_errno_is_lost(-rc);
		return rc;
	}
	if (f->kind == PENSTOCK_IMAGE || f->kind == PENSTOCK_MASK)
		return ps_picture_decode(b, row, i, in, w, err);
	if (f->kind == PENSTOCK_BOXES)
		ps_picture_boxes(b, row, i, w);
	/* an empty member has no bytes, but is not missing */
	rc = f->ops->measure(f, in->data ? in->data : (const uint8_t *)"", (size_t)in->size, &piece, err);
	if (rc == -ENOENT)
		return missing_put(b, row, i, err);
	if (rc == 0 && f->drops_with >= 0)
		rc = some_keep(b, row, i, &piece, err);
	if (rc == 0)
		rc = overflow_apply(f, &piece, err);
	if (rc == 0)
		piece_put(b, row, i, &piece);
	return rc;
}

/* Checks add_offset_of: each number of the row must be the index of one of the row's items in the field that
 * add_offset_of names. */
static int indexes_check(
        struct penstock_batch *b, uint32_t row, uint32_t i, struct ps_batch_worker *w, struct ps_error *err)
{
	const struct ps_layout_field *f = &b->layout->fields[i];
	uint64_t items = ps_batch_items(b, (uint32_t)f->offset_of, row);
	size_t n = (size_t)b->pieces[i][row].items * f->item_elements, size = ps_dtype_nbytes(f->dtype);
	const uint8_t *p = late_peek(b, i, row, w);

	if (!p)
		return ps_error_set(err, ENOMEM, "no memory for %zu numbers", n);
	for (size_t k = 0; k < n; k++) {
		struct ps_number v = ps_number_load(f->dtype, false, p + k * size);

		if (v.negative || v.magnitude >= items)
			return ps_error_set(err, EBADMSG, "%s%ju names none of the %ju items of %.100s",
			        v.negative ? "-" : "", (uintmax_t)v.magnitude, (uintmax_t)items,
			        b->layout->fields[f->offset_of].name);
	}
	return 0;
}

/* The caller's transform --------------------------------------------------------------------------------- */

/* The caller's transform: options.transform, called for each sound row on the thread that decoded it.
 *
 * Ownership: a penstock_sample is in the worker's memory, and valid during the call; its outputs are in the
 * batch.
 * Threads: the callback runs on all decoding threads at once.   Locks: none are held.
 * Errors: an error of the callback makes the row bad, with a text; -ENOMEM fails the batch. */

#define CALL_ROWS 256 /* at most this many rows in one call of options.transform_unit */

struct penstock_sample {
	struct penstock_batch *batch;
	uint32_t row;
	bool bad; /* penstock_sample_fail() */
	struct ps_batch_worker *worker;
	uint64_t *items; /* by field: items of outputs without a fixed shape */
	char text[256];
};

/* Memory for one unit: samples, pointers to them, and their items. */
struct ps_transform_call {
	struct penstock_sample *list[CALL_ROWS];
	struct penstock_sample samples[CALL_ROWS];
	uint64_t items[];
};

static uint8_t *output_at(const struct penstock_sample *s, uint32_t i)
{
	const struct ps_layout_field *f = &s->batch->layout->fields[i];

	if (!ps_field_is_late(f))
		return ps_batch_row(s->batch, i, 0, s->row);
	return s->batch->outputs[i] + s->row * (size_t)f->max_items * f->item_nbytes;
}

/* Completes outputs: lengths, padding and masks, or pieces to be written when the batch is complete. */
static void outputs_end(struct penstock_sample *s)
{
	for (uint32_t i = 0; i < s->batch->layout->nfields; i++) {
		const struct ps_layout_field *f = &s->batch->layout->fields[i];
		const struct ps_slot_field *at = &s->batch->at.fields[i];
		uint64_t n = s->items[i];

		if (f->kind != PENSTOCK_OUTPUT)
			continue;
		if (ps_field_is_late(f)) {
			s->batch->pieces[i][s->row] = (struct ps_piece){.data = output_at(s, i), .items = n};
		} else if (f->form == PS_FORM_PADDED) {
			uint8_t *mask = s->batch->mem + at->mask + s->row * f->row_items;

			ps_fill(f->dtype, f->pad, output_at(s, i) + n * f->item_nbytes,
			        (size_t)(f->row_items - n) * f->item_elements);
			memcpy(s->batch->mem + at->lengths + s->row * sizeof(n), &n, sizeof(n));
			memset(mask, 1, (size_t)n);
			memset(mask + n, 0, (size_t)(f->row_items - n));
		}
	}
}

static struct ps_transform_call *call_get(struct ps_batch_worker *w)
{
	if (!w->call)
		w->call = malloc(
		        sizeof(*w->call) + (size_t)CALL_ROWS * w->layout->nfields * sizeof(*w->call->items));
	return w->call;
}

static struct penstock_sample *sample_begin(
        struct ps_batch_worker *w, uint32_t i, struct penstock_batch *b, uint32_t row)
{
	struct penstock_sample *s = &w->call->samples[i];

	s->batch = b;
	s->row = row;
	s->bad = false;
	s->worker = w;
	s->items = w->call->items + (size_t)i * w->layout->nfields;
	s->text[0] = 0;
	/* Memory is reused: outputs that the callback does not set must not be those of another sample. */
	for (uint32_t k = 0; k < b->layout->nfields; k++) {
		const struct ps_layout_field *f = &b->layout->fields[k];

		s->items[k] = 0;
		if (f->kind == PENSTOCK_OUTPUT && f->form == PS_FORM_FIXED)
			memset(output_at(s, k), 0, f->row_nbytes);
	}
	return s;
}

static int transform_run(
        struct penstock_batch *b, uint32_t row, struct ps_batch_worker *w, struct ps_error *err)
{
	struct penstock_sample *s;
	int rc;

	if (!call_get(w))
		return ps_error_set(err, ENOMEM, "no memory for a transform");
	s = sample_begin(w, 0, b, row);
	rc = b->layout->transform(b->layout->transform_ctx, s);
	if (rc >= 0) {
		outputs_end(s);
		return 0;
	}
	ps_error_set(
	        err, rc == -ENOMEM ? ENOMEM : EBADMSG, "transform: %s", s->text[0] ? s->text : strerror(-rc));
	err->advised = true;
	return -err->err;
}

static void row_refuse(struct penstock_batch *b, uint32_t row, int errnum, const char *text)
{
	b->rows[row].bad = errnum;
	b->rows[row].advised = true; /* the caller's own text */
	b->rows[row].reason = strdup(text);
}

/* Frees bytes that only the transform needed. */
static void hidden_drop(struct penstock_batch *b, uint32_t row)
{
	struct ps_sample_field *keep[PS_LAYOUT_MAX_FIELDS];
	struct ps_sample *s = b->rows[row].sample;

	for (uint32_t i = 0; i < b->layout->nfields; i++) {
		const struct ps_layout_field *f = &b->layout->fields[i];
		bool late = ps_field_is_late(f) && f->kind != PENSTOCK_OUTPUT;
		struct ps_sample_field *in = late ? ps_layout_find(f, s) : NULL;

		keep[i] = f->hidden ? NULL : in;
		if (!in || !f->hidden)
			continue;
		b->pieces[i][row] = (struct ps_piece){0};
		atomic_fetch_sub_explicit(&b->ragged_nbytes, in->size, memory_order_relaxed);
	}
	ps_batch_bytes_drop(b->layout, s, b->rows[row].bad ? NULL : keep);
}

static void unit_transform(struct penstock_batch *b, uint32_t first, uint32_t n, struct ps_batch_worker *w)
{
	struct ps_transform_call *call = w->call;
	uint32_t count = 0;
	int rc;

	for (uint32_t row = first; row < first + n; row++)
		if (!b->rows[row].bad) {
			call->list[count] = sample_begin(w, count, b, row);
			count++;
		}
	if (count == 0)
		return;
	w->called = true;
	rc = b->layout->transform_unit(b->layout->transform_ctx, call->list, count);
	for (uint32_t i = 0; i < count; i++) {
		struct penstock_sample *s = &call->samples[i];

		if (rc < 0)
			row_refuse(b, s->row, rc == -ENOMEM ? ENOMEM : PS_ROW_CANCELS,
			        call->samples[0].text[0] ? call->samples[0].text : strerror(-rc));
		else if (s->bad)
			row_refuse(b, s->row, EBADMSG, s->text);
		else
			outputs_end(s);
		hidden_drop(b, s->row);
	}
}

void ps_batch_transform(struct penstock_batch *b, uint32_t first, uint32_t n, struct ps_batch_worker *w)
{
	if (!b->layout->transform_unit)
		return;
	if (!call_get(w)) {
		for (uint32_t i = 0; i < n; i++)
			if (!b->rows[first + i].bad)
				row_refuse(b, first + i, ENOMEM, "out of memory");
		return;
	}
	for (uint32_t at = 0; at < n; at += CALL_ROWS)
		unit_transform(b, first + at, PS_MIN(n - at, (uint32_t)CALL_ROWS), w);
}

/* A row -------------------------------------------------------------------------------------------------- */

/* Decodes all fields of a row; `used` gets each field's member. */
static int row_decode(struct penstock_batch *b, uint32_t row, struct ps_batch_worker *w,
        struct ps_sample_field **used, struct ps_error *err)
{
	struct ps_sample *s = b->rows[row].sample;
	int rc = 0;

	for (uint32_t i = 0; i < b->layout->nfields && rc == 0; i++) {
		const struct ps_layout_field *f = &b->layout->fields[i];

		used[i] = NULL;
		if (f->kind == PENSTOCK_OUTPUT)
			continue;
		used[i] = ps_layout_find(f, s);
		rc = used[i] ? field_decode(b, row, i, used[i], w, err) : missing_put(b, row, i, err);
		if (rc < 0 && used[i])
			ps_error_prefix(err, rc, "field .%.100s", used[i]->suffix);
	}
	for (uint32_t i = 0; i < b->layout->nfields && rc == 0; i++) {
		if (b->layout->fields[i].offset_of < 0)
			continue;
		rc = indexes_check(b, row, i, w, err);
		if (rc < 0)
			ps_error_prefix(err, rc, "field .%.100s", b->layout->fields[i].name);
	}
	if (rc == 0 && b->layout->transform)
		rc = transform_run(b, row, w, err);
	return rc;
}

void ps_batch_decode(struct penstock_batch *b, uint32_t row, struct ps_batch_worker *w)
{
	struct ps_sample_field *used[PS_LAYOUT_MAX_FIELDS];
	struct ps_row *r = &b->rows[row];
	struct ps_error err;

	ps_error_clear(&err);
	r->bad = r->sample->bad;
	r->lost = ps_errno_is_lost(r->bad);
	if (!r->bad) {
		int rc = row_decode(b, row, w, used, &err);

		if (rc < 0) {
			r->bad = -rc;
			r->lacks = err.cause == PS_CAUSE_FIELD;
			r->advised = err.advised;
			r->reason = strdup(err.text);
		}
	}
	for (uint32_t i = 0; i < b->layout->nfields && !r->bad; i++)
		if (!ps_field_is_late(&b->layout->fields[i]))
			used[i] = NULL; /* its elements are written: the bytes are not needed */
	ps_batch_bytes_drop(b->layout, r->sample, r->bad ? NULL : used);
	ps_sample_piece_drop(r->sample);
}

/* Functions for the callback ----------------------------------------------------------------------------- */

void penstock_sample_info(const struct penstock_sample *s, struct penstock_sample_info *ret_info)
{
	const struct ps_sample *in = s->batch->rows[s->row].sample;
	const struct ps_rng_key key = ps_picture_key(s->batch, s->row, s->worker);

	*ret_info = (struct penstock_sample_info){.key = in->key,
	        .shard = in->file->path,
	        .epoch = s->batch->epoch,
	        .shard_index = in->file->shard,
	        .sample_index = in->file->first + in->ordinal,
	        .random = ps_rng_u64(&key, PS_RNG_TRANSFORM, 0)};
}

static int field_find(const struct penstock_sample *s, const char *name)
{
	return ps_layout_lookup(s->batch->layout, name, strlen(name));
}

int penstock_sample_field(struct penstock_sample *s, const char *name, struct penstock_tensor *ret_tensor)
{
	int i = field_find(s, name);
	const struct ps_layout_field *f = i < 0 ? NULL : &s->batch->layout->fields[i];
	struct penstock_tensor t = {0};

	if (!f || f->kind == PENSTOCK_OUTPUT)
		return -ENOENT;
	t.data = ps_field_is_late(f) ? late_peek(s->batch, (uint32_t)i, s->row, s->worker)
	                             : ps_batch_row(s->batch, (uint32_t)i, 0, s->row);
	if (!t.data)
		return -ENOMEM;
	t.host = t.data;
	t.memory = PENSTOCK_MEMORY_HOST;
	t.dtype = (uint32_t)f->dtype;
	t.ndim = f->ndim;
	for (uint32_t d = 0; d < f->ndim; d++)
		t.shape[d] = f->shape[d];
	if (f->form != PS_FORM_FIXED)
		t.shape[0] = ps_batch_items(s->batch, (uint32_t)i, s->row);
	t.nbytes = f->form == PS_FORM_FIXED ? f->row_nbytes : t.shape[0] * f->item_nbytes;
	*ret_tensor = t;
	return 0;
}

void *penstock_sample_output(struct penstock_sample *s, const char *name, uint64_t *ret_items)
{
	int i = field_find(s, name);
	const struct ps_layout_field *f = i < 0 ? NULL : &s->batch->layout->fields[i];

	if (!f || (f->kind != PENSTOCK_OUTPUT && (f->form != PS_FORM_FIXED || f->planes > 1)))
		return NULL;
	if (ret_items)
		*ret_items = f->form == PS_FORM_FIXED ? f->row_items : f->max_items;
	return output_at(s, (uint32_t)i);
}

int penstock_sample_set_items(struct penstock_sample *s, const char *name, uint64_t items)
{
	int i = field_find(s, name);
	const struct ps_layout_field *f = i < 0 ? NULL : &s->batch->layout->fields[i];

	if (!f || f->kind != PENSTOCK_OUTPUT)
		return -ENOENT;
	if (f->form == PS_FORM_FIXED ? items != f->row_items : items > f->max_items)
		return -EINVAL;
	s->items[i] = items;
	return 0;
}

int penstock_sample_fail(struct penstock_sample *s, const char *text)
{
	s->bad = true;
	snprintf(s->text, sizeof(s->text), "%s", text);
	return -EBADMSG;
}
