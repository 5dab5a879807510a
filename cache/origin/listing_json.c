#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "origin/json_array.h"
#include "origin/listing.h"

struct taker {
	ps_listing_fn fn;
	void *arg;
};

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
static int take_entry(void *arg, const json_t *j)
{
	const struct taker *taker = arg;
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
	return taker->fn(taker->arg, &entry);
}

int ps_listing_json_parse(const char *text, size_t nbytes, ps_listing_fn fn, void *arg, struct ps_error *err)
{
	struct taker taker = {.fn = fn, .arg = arg};
	size_t i = 0;

	while (i < nbytes && isspace((unsigned char)text[i]))
		i++;
	if (nbytes - i >= 4 && memcmp(text + i, "null", 4) == 0)
		return 0; /* an empty directory, to caddy */
	return ps_json_array_parse(text, nbytes, "not a directory listing", take_entry, &taker, err);
}
