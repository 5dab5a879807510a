#include "origin/json_array.h"

#include <ctype.h>
#include <errno.h>

static void cleanup_json(json_t **j)
{
	json_decref(*j);
}

static size_t skip_space(const char *text, size_t i, size_t nbytes)
{
	while (i < nbytes && isspace((unsigned char)text[i]))
		i++;
	return i;
}

static int bad(struct ps_error *err, const char *what, size_t at, const char *why)
{
	return ps_error_set(err, EPROTO, "%s: JSON, at byte %zu: %s", what, at, why);
}

int ps_json_array_parse(
        const char *text, size_t nbytes, const char *what, ps_json_fn fn, void *arg, struct ps_error *err)
{
	size_t i = skip_space(text, 0, nbytes);

	if (i == nbytes || text[i] != '[')
		return bad(err, what, i, "no array");
	i = skip_space(text, i + 1, nbytes);
	if (i < nbytes && text[i] == ']')
		return 0;
	for (;;) {
		json_error_t je = {0};
		json_t *j __attribute__((cleanup(cleanup_json))) =
		        json_loadb(text + i, nbytes - i, JSON_DISABLE_EOF_CHECK, &je);

		if (!j)
			return json_error_code(&je) == json_error_out_of_memory
			               ? ps_error_set(err, ENOMEM, "out of memory")
			               : bad(err, what, i, "no sound entry");
		if (!json_is_object(j) || je.position <= 0)
			return bad(err, what, i, "an entry that is no object");
		int rc = fn(arg, j);
		if (rc)
			return rc;
		i = skip_space(text, i + (size_t)je.position, nbytes);
		if (i < nbytes && text[i] == ']')
			return 0;
		if (i == nbytes || text[i] != ',')
			return bad(err, what, i, "the array is cut off");
		i = skip_space(text, i + 1, nbytes);
	}
}
