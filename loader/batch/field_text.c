/* Fields of bytes and texts, and numbers as text. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "batch/field.h"
#include "batch/json.h"
#include "batch/number.h"
#include "base/utf8.h"

static int bytes_measure(const struct ps_plan_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	(void)f;
	(void)err;
	*ret_piece = (struct ps_piece){.data = data, .nbytes = n, .items = n};
	return 0;
}

static void bytes_write(
        const struct ps_plan_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	(void)f;
	(void)plane;
	if (piece->items > 0)
		memcpy(dst, piece->data, (size_t)piece->items);
}

const struct ps_field_ops ps_field_bytes = {.measure = bytes_measure, .write = bytes_write};

static int text_measure(const struct ps_plan_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	size_t sound = ps_utf8_check(data, n);

	if (sound < n)
		return ps_load_error_set(err, EBADMSG, "not UTF-8: byte %zu is 0x%02x", sound, data[sound]);
	return bytes_measure(f, data, n, ret_piece, err);
}

static uint64_t text_cut(const struct ps_piece *piece, uint64_t items)
{
	return ps_utf8_cut(piece->data, (size_t)items);
}

const struct ps_field_ops ps_field_text = {.measure = text_measure, .write = bytes_write, .cut = text_cut};

static int json_measure(const struct ps_plan_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	struct ps_json all;
	int r = ps_json_find(data, n, NULL, &all, err);

	return r < 0 ? r : bytes_measure(f, data, n, ret_piece, err);
}

const struct ps_field_ops ps_field_json = {.measure = json_measure, .write = bytes_write};

/* -- Elements of the field's own type: what a transform wrote ------------------------------------------ */

static void memory_write(
        const struct ps_plan_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	(void)plane;
	if (piece->items > 0)
		memcpy(dst, piece->data, (size_t)piece->items * f->item_nbytes);
}

const struct ps_field_ops ps_field_memory = {.write = memory_write};

/* -- Numbers ------------------------------------------------------------------------------------------- */

bool ps_field_store(const struct ps_plan_field *f, const struct ps_number *v, void *dst)
{
	return f->rounds ? ps_number_store_rounded(v, f->dtype, dst) : ps_number_store(v, f->dtype, dst);
}

#define TEXT_SHOWN 40u /* bytes of what is no number */

static const char *number_parse(
        const struct ps_plan_field *f, const uint8_t *data, size_t n, struct ps_number *ret_number)
{
	ps_number_trim(&data, &n);
	return f->kind == PENSTOCK_FLOAT ? ps_number_float(data, n, ret_number)
	                                 : ps_number_integer(data, n, ret_number);
}

static int number_measure(const struct ps_plan_field *f, const uint8_t *data, size_t n,
        struct ps_piece *ret_piece, struct ps_load_error *err)
{
	struct ps_number v;
	const char *wrong = number_parse(f, data, n, &v);
	uint8_t element[8];

	if (wrong) {
		ps_number_trim(&data, &n);
		return ps_load_error_set(err, EBADMSG, "%s: \"%.*s%s\"", wrong, (int)PS_MIN(n, TEXT_SHOWN),
		        (const char *)data, n > TEXT_SHOWN ? "..." : "");
	}
	if (!ps_field_store(f, &v, element))
		return ps_load_error_set(
		        err, EBADMSG, "an integer that %s cannot hold", ps_dtype_name(f->dtype));
	*ret_piece = (struct ps_piece){.data = data, .nbytes = n, .items = 1};
	return 0;
}

static void number_write(
        const struct ps_plan_field *f, const struct ps_piece *piece, uint32_t plane, void *dst)
{
	struct ps_number v;

	(void)plane;
	if (!number_parse(f, piece->data, piece->nbytes, &v))
		(void)!ps_field_store(f, &v, dst);
}

const struct ps_field_ops ps_field_number = {.measure = number_measure, .write = number_write};
