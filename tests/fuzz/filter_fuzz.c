/* Any text as a filter: an error with a text, or a filter that decides the same each time for the same
 * values and whose negation decides the opposite. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order/filter.h"

#define NKINDS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static struct ps_column_value value_of_kind(uint32_t kind)
{
	static const struct ps_column_value values[NKINDS] = {
	        {.missing = true},
	        {.type = PS_COLUMN_INT, .integer = 3, .number = 3},
	        {.type = PS_COLUMN_INT, .integer = INT64_MIN, .number = -0x1p63},
	        {.type = PS_COLUMN_FLOAT, .number = 0.5},
	        {.type = PS_COLUMN_FLOAT, .number = (double)NAN},
	        {.type = PS_COLUMN_FLOAT, .number = (double)INFINITY},
	        {.type = PS_COLUMN_TEXT, .text = "", .text_len = 0},
	        {.type = PS_COLUMN_TEXT, .text = "cat", .text_len = 3},
	};

	return values[kind % NKINDS];
}

/* NULL: an error was reported. */
static struct ps_filter *make(const char *text)
{
	struct ps_error err = {0};
	struct ps_filter *f = NULL;
	int rc = ps_filter_new(text, &f, &err);

	must(rc == 0 ? f != NULL : rc == -EINVAL && f == NULL && err.text[0]);
	return f;
}

/* Each column gets a value of another kind; `kind` is that of the first column. */
static int test(const struct ps_filter *f, uint32_t kind)
{
	struct ps_column_value values[PS_FILTER_MAX_COLUMNS];
	struct ps_error err = {0};
	int rc;

	for (uint32_t i = 0; ps_filter_column(f, i); i++)
		values[i] = value_of_kind(kind + i);
	rc = ps_filter_test(f, values, &err);
	must(rc == 0 || rc == 1 || (rc == -EINVAL && err.text[0]));
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size), *negation = malloc(size + 4);
	struct ps_filter *f, *not_f;

	must(text && negation);
	snprintf(negation, size + 4, "!(%s)", text);
	f = make(text);
	not_f = make(negation); /* NULL if one more level, or three more bytes, are too many */
	must(f || !not_f || strchr(text, ')'));
	for (uint32_t kind = 0; f && kind < NKINDS; kind++) {
		int rc = test(f, kind);

		must(test(f, kind) == rc);
		must(!not_f || test(not_f, kind) == (rc < 0 ? rc : !rc));
	}
	ps_filter_free(not_f);
	ps_filter_free(f);
	free(negation);
	free(text);
	return 0;
}
