/* JSON members, compared with jansson: what jansson accepts, we accept with the same values. The first line
 * of the input is the path. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "batch/fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare(const json_t *theirs, const struct ps_json *ours)
{
	struct ps_number number;

	if (json_is_string(theirs)) {
		size_t n = json_string_length(theirs), cut = n / 2;
		uint8_t *text = malloc(n + 1);

		if (ours->type != PS_JSON_STRING || ps_json_string(ours, NULL, SIZE_MAX) != n ||
		        ps_json_string(ours, text, n) != n ||
		        memcmp(text, json_string_value(theirs), n) != 0 ||
		        ps_json_string(ours, NULL, cut) > cut)
			abort();
		free(text);
	} else if (json_is_number(theirs)) {
		if (ours->type != PS_JSON_NUMBER || ps_json_number(ours, &number))
			abort();
		if (number.is_float && json_number_value(theirs) != number.value)
			abort();
	} else if (json_is_array(theirs)) {
		struct ps_json item = {0};
		size_t n = 0;

		while (ps_json_next(ours, &item))
			compare(json_array_get(theirs, n++), &item);
		if (n != json_array_size(theirs))
			abort();
	} else if (json_is_object(theirs) != (ours->type == PS_JSON_OBJECT)) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *line = memchr(data, '\n', size);
	struct ps_json value, all;
	json_t *theirs;
	char *path;
	size_t n;
	int rc;

	if (!line)
		return 0;
	path = strndup((const char *)data, (size_t)(line - data));
	n = size - (size_t)(line + 1 - data);
	rc = ps_json_find(line + 1, n, NULL, &all, NULL);
	if (path && ps_json_path_ok(path) && ps_json_find(line + 1, n, path, &value, NULL) == 0) {
		if (rc < 0 || value.p < line + 1 || value.end > data + size)
			abort();
		if (value.type == PS_JSON_STRING)
			(void)ps_json_string(&value, NULL, SIZE_MAX);
	}
	free(path);
	if (memchr(line, 0, size - (size_t)(line - data)))
		return 0; /* jansson would end the text at a zero byte */
	theirs = json_loadb((const char *)line + 1, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (theirs && rc < 0 && !memchr(line, '[', size - (size_t)(line - data)) &&
	        !memchr(line, '{', size - (size_t)(line - data)))
		abort(); /* with brackets, the text may be nested too deep for us */
	if (theirs && rc == 0)
		compare(theirs, &all);
	json_decref(theirs);
	return 0;
}
