/* Rows of Arrow's columns: arrays that contradict themselves are errors, and all that is taken is released. */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "penstock.h"
#include "shard/shard.h"

/* A source whose streams give one batch of a column "c" (and its items or dictionary), which tests change. */
static struct ArrowSchema schemas[3]; /* rows, c, and the items or the dictionary of c */
static struct ArrowArray arrays[3];
static int nheld; /* streams, schemas and arrays that are not released */
static int code;  /* what get_next returns */
static int given; /* batches */

static int32_t offsets[] = {0, 1, 3, 6, 6};
static int64_t large[] = {0, 1, 3, 6, 6};
static const uint8_t validity[] = {0x0b}; /* value 2 is null */
static const char bytes[] = "abcdef";
static int16_t numbers[] = {1, 2, 3, 4, 5, 6};
static int8_t places[] = {3, 0, 0, 1};

static void schema_release(struct ArrowSchema *s)
{
	nheld--;
	s->release = NULL;
}

static void array_release(struct ArrowArray *a)
{
	nheld--;
	a->release = NULL;
}

static void stream_release(struct ArrowArrayStream *s)
{
	nheld--;
	s->release = NULL;
}

static int get_schema(struct ArrowArrayStream *s, struct ArrowSchema *ret)
{
	(void)s;
	*ret = schemas[0];
	nheld++;
	return 0;
}

static int get_next(struct ArrowArrayStream *s, struct ArrowArray *ret)
{
	(void)s;
	if (code) { /* what a failed call leaves is not looked at */
		memset(ret, 0xff, sizeof(*ret));
		return code;
	}
	*ret = arrays[0];
	if (given++ > 0)
		ret->release = NULL;
	else
		nheld++;
	return 0;
}

static int unit_read(void *ctx, const char *unit, uint64_t row, const char *const *members, uint32_t nmembers,
        struct ArrowArrayStream *ret, uint64_t *ret_nbytes, struct penstock_error *error)
{
	(void)unit;
	(void)members;
	(void)nmembers;
	assert_int_equal(row, 0);
	if (ctx) {
		memset(error->text, 'x', sizeof(error->text)); /* without a zero at its end */
		return *(int *)ctx;
	}
	*ret = (struct ArrowArrayStream){
	        .get_schema = get_schema, .get_next = get_next, .release = stream_release};
	*ret_nbytes = 0;
	nheld++;
	return 0;
}

static int unit_count(void *ctx, const char *unit, uint64_t *ret_rows, struct penstock_error *error)
{
	(void)unit;
	(void)ret_rows;
	memset(error->text, 'y', sizeof(error->text));
	return *(int *)ctx;
}

/* Sets a column of four values in this format; `item` is the format of its items or of its dictionary. */
static void column_set(const char *format, const char *item, const void *second)
{
	static struct ArrowSchema *schema_children[] = {&schemas[1]}, *schema_items[] = {&schemas[2]};
	static struct ArrowArray *array_children[] = {&arrays[1]}, *array_items[] = {&arrays[2]};
	static const void *none[1], *of_column[3], *of_items[2];
	bool nested = format[0] == '+', text = strchr("uzUZ", format[0]) != NULL;

	of_column[0] = validity;
	of_column[1] = second;
	of_column[2] = bytes;
	of_items[1] = numbers;
	schemas[0] = (struct ArrowSchema){
	        .format = "+s", .n_children = 1, .children = schema_children, .release = schema_release};
	schemas[1] = (struct ArrowSchema){.format = format, .name = "C"};
	schemas[2] = (struct ArrowSchema){.format = item ? item : ""};
	arrays[0] = (struct ArrowArray){.length = 4,
	        .n_buffers = 1,
	        .buffers = none,
	        .n_children = 1,
	        .children = array_children,
	        .release = array_release};
	arrays[1] = (struct ArrowArray){.length = 4,
	        .n_buffers = text                       ? 3
	                     : strncmp(format, "+w", 2) ? 2
	                                                : 1,
	        .buffers = of_column};
	arrays[2] = (struct ArrowArray){.length = 6, .n_buffers = 2, .buffers = of_items};
	if (nested) {
		schemas[1].n_children = arrays[1].n_children = 1;
		schemas[1].children = schema_items;
		arrays[1].children = array_items;
	} else if (item) {
		schemas[1].dictionary = &schemas[2];
		arrays[1].dictionary = &arrays[2];
	}
	code = given = 0;
}

/* Reads the rows. Returns them as text: the members in order, "-" without one; for a bad row "!" and why. */
static const char *rows_read(int *fail)
{
	static char text[8192];
	const struct penstock_columns calls = {.size = sizeof(calls), .ctx = fail, .read = unit_read};
	const struct ps_columns_source source = {.calls = &calls};
	struct ps_shard_options o = {.stream = {.wake_fd = -1}, .columns = &source};
	struct ps_error err = {0};
	struct ps_shard *shard = ps_shard_new("folder/unit", 0, &o, &err);
	struct ps_sample *s;
	size_t n = 0;
	int rc;

	assert_non_null(shard);
	while ((rc = ps_shard_next(shard, &s, &err)) == 1) {
		if (s->bad)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "!%d %s ", s->bad, s->reason);
		else if (s->nfields == 0)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "- ");
		else if (s->fields[0].size > 128) /* an .npy file of i16 */
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%zu:%d ",
			        (size_t)(s->fields[0].size - 128) / 2, s->fields[0].data[128]);
		else
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%.*s ", (int)s->fields[0].size,
			        s->fields[0].size ? (const char *)s->fields[0].data : "");
		assert_true(n < sizeof(text));
		ps_sample_free(s);
	}
	ps_shard_free(shard);
	assert_int_equal(nheld, 0);
	if (rc < 0)
		snprintf(text, sizeof(text), "error %d %s", rc, err.text);
	else
		text[n] = 0;
	return text;
}

#define READS(expected) assert_string_equal(rows_read(NULL), expected)

/* Sets the column, changes something, and expects that all rows are lost for a reason with this text. */
#define REFUSED(format, item, second, change, expected) \
	do {                                            \
		column_set(format, item, second);       \
		change;                                 \
		refused(expected);                      \
	} while (0)

static void refused(const char *expected)
{
	const char *text = rows_read(NULL);

	if (strncmp(text, "!74 ", 4) != 0 || !strstr(text, expected))
		fail_msg("\"%s\" instead of \"%s\"", text, expected);
}

static void sound_columns_are_read(void **state)
{
	(void)state;
	column_set("u", NULL, offsets);
	READS("a bc -  ");
	column_set("Z", NULL, large);
	READS("a bc -  ");
	column_set("u", NULL, offsets);
	arrays[0].length = 2;
	arrays[0].offset = 1; /* holds for the children, too */
	READS("bc - ");
	column_set("s", NULL, numbers);
	READS("1 2 - 4 ");
	column_set("w:2", NULL, bytes);
	arrays[1].length = 3;
	arrays[0].length = 3;
	READS("ab cd - ");
	column_set("+l", "s", offsets);
	arrays[0].length = 2;
	READS("1:1 2:2 ");
	column_set("+w:1", "s", NULL);
	READS("1:1 1:2 - 1:4 ");
	column_set("c", "s", places);
	READS("4 1 - 2 ");
	column_set("n", NULL, NULL);
	arrays[1].n_buffers = 0;
	READS("- - - - ");
}

static void arrays_that_contradict_themselves_are_refused(void **state)
{
	static int32_t negative[] = {-1, 1, 3, 6, 6}, descend[] = {0, 3, 1, 6, 6}, beyond[] = {0, 1, 3, 6, 7};
	static int8_t outside[] = {0, 6, 0, -1};

	(void)state;
	REFUSED("u", NULL, negative, (void)0, "a negative offset");
	REFUSED("u", NULL, descend, (void)0, "offsets that do not ascend");
	REFUSED("+l", "s", descend, (void)0, "offsets that do not ascend");
	REFUSED("+l", "s", beyond, (void)0, "an offset beyond its values");
	REFUSED("u", NULL, NULL, (void)0, "no offsets");
	REFUSED("u", NULL, offsets, arrays[1].buffers[2] = NULL, "no values");
	REFUSED("s", NULL, NULL, (void)0, "no values");
	REFUSED("+l", "s", offsets, arrays[2].buffers[1] = NULL, "no values");
	REFUSED("u", NULL, offsets, arrays[1].n_buffers = 2, "another number of buffers");
	REFUSED("u", NULL, offsets, arrays[1].buffers = NULL, "another number of buffers");
	REFUSED("u", NULL, offsets, arrays[1].length = 3, "fewer values than there are rows");
	REFUSED("u", NULL, offsets, arrays[1].length = -1, "fewer values than there are rows");
	REFUSED("u", NULL, offsets, arrays[0].offset = 1, "fewer values than there are rows");
	REFUSED("u", NULL, offsets, arrays[1].offset = -1, "length or offset out of range");
	REFUSED("u", NULL, offsets, arrays[1].offset = INT64_MAX, "length or offset out of range");
	REFUSED("u", NULL, offsets, arrays[0].length = -1, "length or offset out of range");
	REFUSED("w:2147483647", NULL, bytes, arrays[1].offset = INT64_MAX / 32,
	        "length or offset out of range");
	REFUSED("u", NULL, offsets, arrays[0].n_children = 0, "fewer columns than its schema has");
	REFUSED("u", NULL, offsets, arrays[0].children = NULL, "fewer columns than its schema has");
	REFUSED("+l", "s", offsets, arrays[1].n_children = 0, "a list without values");
	REFUSED("+w:2", "s", NULL, (void)0, "fewer values than its lists have");
	REFUSED("c", "s", places, arrays[1].dictionary = NULL, "no dictionary");
	REFUSED("c", "u", places, arrays[2].n_buffers = 3; arrays[2].buffers = arrays[1].buffers;
	        arrays[2].length = -1, "length or offset out of range");
	column_set("c", "s", outside);
	READS("1 !74 column C: a place that its dictionary does not have - !74 column C: a place that its "
	      "dictionary does not have ");
	column_set("+l", "s", offsets);
	arrays[0].length = 2;
	arrays[2].buffers[0] = validity;
	READS("1:1 !74 column C: a list with a null in it ");
	arrays[2].buffers[0] = NULL;
}

static void schemas_that_cannot_be_read_are_refused(void **state)
{
	(void)state;
	REFUSED("u", NULL, offsets, schemas[0].format = "u", "a stream of string, not of rows");
	REFUSED("u", NULL, offsets, schemas[0].format = NULL, "a stream of nothing, not of rows");
	REFUSED("u", NULL, offsets, schemas[0].n_children = -1, "a schema with -1 columns");
	REFUSED("u", NULL, offsets, schemas[0].children = NULL, "a schema with 1 columns");
	REFUSED("u", NULL, offsets, schemas[1].format = NULL, "a column of no type");
	column_set("tdD", NULL, offsets);
	assert_non_null(strstr(rows_read(NULL), "column C has the type date, which cannot be a member"));
	column_set("+l", "u", offsets);
	assert_non_null(strstr(rows_read(NULL), "column C has the type list of string"));
	column_set("u", "u", offsets);
	assert_non_null(strstr(rows_read(NULL), "column C has the type dictionary of string"));
}

/* -ECANCELED ends a reader without a word, so from a source that was not told to stop it is an error. */
static void errors_of_a_source_are_told(void **state)
{
	int rc = -ECANCELED;
	const struct penstock_columns calls = {.size = sizeof(calls), .ctx = &rc, .count = unit_count};
	const struct ps_columns_source source = {.calls = &calls};
	struct ps_error err = {0};
	uint64_t rows;

	(void)state;
	assert_int_equal(strncmp(rows_read(&rc), "!5 xxxx", 7), 0);
	rc = -EBADMSG;
	assert_int_equal(strncmp(rows_read(&rc), "!74 xxxx", 8), 0);
	assert_int_equal(ps_columns_count(&source, "unit", &rows, &err), -EBADMSG);
	assert_int_equal(strncmp(err.text, "unit: cannot count its rows: yyyy", 33), 0);
	column_set("u", NULL, offsets);
	code = ECANCELED;
	assert_int_equal(strncmp(rows_read(NULL), "!5 ", 3), 0);
	code = EINVAL; /* Arrow's word for damage */
	assert_int_equal(strncmp(rows_read(NULL), "!74 ", 4), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sound_columns_are_read),
	        cmocka_unit_test(arrays_that_contradict_themselves_are_refused),
	        cmocka_unit_test(schemas_that_cannot_be_read_are_refused),
	        cmocka_unit_test(errors_of_a_source_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
