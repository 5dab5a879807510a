#include "config.h"

#include "shard/source.h"

#include <string.h>
#include <stdbool.h>
#include <strings.h>

static bool ends_with(const char *p, size_t n, const char *end)
{
	size_t len = strlen(end);

	return n > len && strncasecmp(p + n - len, end, len) == 0;
}

/* The length of the path without what says that it is compressed. */
static size_t plain_len(const char *path)
{
	static const char *const endings[] = {".zst", ".gz", ".lz4"};
	size_t n = strlen(path);

	for (size_t i = 0; i < PS_ARRAY_LEN(endings); i++)
		if (ends_with(path, n, endings[i]))
			return n - strlen(endings[i]);
	return n;
}

enum ps_source ps_source_of(enum ps_source asked, const struct ps_windows *windows, const char *path)
{
	size_t n = plain_len(path);

	if (asked != PS_SOURCE_AUTO)
		return asked;
	if (ends_with(path, n, ".jsonl") || ends_with(path, n, ".txt"))
		return PS_SOURCE_LINES;
	if (windows->nbytes > 0 && ends_with(path, n, ".bin"))
		return PS_SOURCE_TOKENS;
	return PS_SOURCE_TAR;
}

bool ps_source_is_compressed(const char *path)
{
	return plain_len(path) < strlen(path);
}

const char *ps_source_line_suffix(const char *path)
{
	return ends_with(path, plain_len(path), ".jsonl") ? "json" : "txt";
}

int ps_source_key(const char *path, struct ps_buf *ret_base)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = plain_len(path) - (size_t)(name - path);
	const char *dot = memrchr(name, '.', n);
	int r;

	if (dot && dot > name)
		n = (size_t)(dot - name);
	ret_base->n = 0;
	r = ps_buf_add(ret_base, name, n);
	return r < 0 ? r : ps_buf_add(ret_base, "-", 1);
}

int ps_source_key_number(struct ps_buf *key, size_t base_len, uint64_t ordinal)
{
	char digits[20];
	size_t n = sizeof(digits);

	do
		digits[--n] = (char)('0' + ordinal % 10);
	while ((ordinal /= 10) > 0);
	key->n = base_len;
	return ps_buf_add(key, digits + n, sizeof(digits) - n);
}
