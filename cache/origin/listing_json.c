/* jansson holds a whole document in memory, some ten times its text. So the outer array is walked by hand,
 * and each entry parsed by itself. */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>
#include <jansson.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "origin/listing.h"

static void cleanup_json(json_t **j)
{
	json_decref(*j);
}

static int64_t parse_time(const json_t *j)
{
	const char *s = json_string_value(j);

	if (!s)
		return -1;
	if (isdigit((unsigned char)s[0]))
		return ps_clock_parse_rfc3339(s);
	time_t t = curl_getdate(s, NULL);
	return t < 0 ? -1 : (int64_t)t;
}

/* nginx: {"name", "type": "file", "mtime", "size"}; caddy: {"name", "size", "mod_time", "is_dir", ...}. */
static int take_entry(const json_t *j, ps_listing_fn fn, void *arg)
{
	struct ps_listing_entry entry = {.remote = PS_REMOTE_UNKNOWN};
	const char *type = json_string_value(json_object_get(j, "type"));
	const json_t *is_dir = json_object_get(j, "is_dir"), *size = json_object_get(j, "size");
	const json_t *mtime = json_object_get(j, "mtime");
	const char *text = json_string_value(json_object_get(j, "name"));
	ps_autostrbuf struct ps_strbuf name = {0};

	if (!text || (!type && !is_dir && !size))
		return 0;
	ps_strbuf_add(&name, text);
	if (name.failed)
		return -ENOMEM;
	entry.is_dir = type ? strcmp(type, "directory") == 0 : json_is_true(is_dir);
	if (type && !entry.is_dir && strcmp(type, "file") != 0)
		return 0; /* "other": a device, a socket */
	if (entry.is_dir && name.len && name.s[name.len - 1] == '/')
		name.s[--name.len] = '\0';
	if (!name.len || strchr(name.s, '/'))
		return 0;
	entry.name = name.s;
	if (!entry.is_dir && json_is_integer(size) && json_integer_value(size) >= 0)
		entry.remote.size = (uint64_t)json_integer_value(size);
	if (!entry.is_dir)
		entry.remote.mtime_s = parse_time(mtime ? mtime : json_object_get(j, "mod_time"));
	return fn(arg, &entry);
}

static size_t skip_space(const char *text, size_t i, size_t nbytes)
{
	while (i < nbytes && isspace((unsigned char)text[i]))
		i++;
	return i;
}

static int bad(struct ps_error *err, size_t at, const char *why)
{
	return ps_error_set(err, EPROTO, "not a directory listing: JSON, at byte %zu: %s", at, why);
}

int ps_listing_json_parse(const char *text, size_t nbytes, ps_listing_fn fn, void *arg, struct ps_error *err)
{
	size_t i = skip_space(text, 0, nbytes);

	if (nbytes - i >= 4 && memcmp(text + i, "null", 4) == 0)
		return 0; /* an empty directory, to caddy */
	if (i == nbytes || text[i] != '[')
		return bad(err, i, "no array");
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
			               : bad(err, i, "no sound entry");
		if (!json_is_object(j) || je.position <= 0)
			return bad(err, i, "an entry that is no object");
		int rc = take_entry(j, fn, arg);
		if (rc)
			return rc;
		i = skip_space(text, i + (size_t)je.position, nbytes);
		if (i < nbytes && text[i] == ']')
			return 0;
		if (i == nbytes || text[i] != ',')
			return bad(err, i, "the array is cut off");
		i = skip_space(text, i + 1, nbytes);
	}
}
