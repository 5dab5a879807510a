#include "config.h"

#include "shard/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <stdbool.h>
#include <strings.h>
#include <unistd.h>

static bool ends_with(const char *p, size_t n, const char *end)
{
	size_t len = strlen(end);

	return n > len && strncasecmp(p + n - len, end, len) == 0;
}

/* The length of the path without the suffix of a compression format. */
static size_t plain_len(const char *path)
{
	static const char *const endings[] = {".zst", ".gz", ".lz4"};
	size_t n = strlen(path);

	for (size_t i = 0; i < PS_ARRAY_LEN(endings); i++)
		if (ends_with(path, n, endings[i]))
			return n - strlen(endings[i]);
	return n;
}

enum ps_shard_kind ps_shard_kind_of(
        enum ps_shard_kind asked, const struct ps_windows *windows, const char *path)
{
	size_t n = plain_len(path);

	if (asked != PS_SHARD_KIND_AUTO)
		return asked;
	if (ends_with(path, n, ".jsonl") || ends_with(path, n, ".txt"))
		return PS_SHARD_KIND_LINES;
	if (windows->nbytes > 0 && ends_with(path, n, ".bin"))
		return PS_SHARD_KIND_TOKENS;
	return PS_SHARD_KIND_TAR;
}

int ps_tokens_type(const char *path, const char **ret_type, struct ps_error *err)
{
	/* by the code in the index */
	static const char *const types[] = {NULL, "u8", "i8", "i16", "i32", "i64", "f64", "f32", "u16"};
	enum { AT = 17, HEAD = AT + 1 }; /* after the magic and a version of 8 bytes */
	ps_autofree char *index = NULL;
	ps_autofd int fd = -1;
	size_t n = plain_len(path);
	uint8_t head[HEAD];
	ssize_t got;

	*ret_type = NULL;
	if (!ends_with(path, n, ".bin"))
		return 0;
	index = ps_asprintf(err, "%.*s.idx", (int)(n - strlen(".bin")), path);
	if (!index)
		return -ENOMEM;
	fd = open(index, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	got = fd < 0 ? -1 : pread(fd, head, HEAD, 0);
	if (got < 0)
		return ps_error_set(err, errno, "%s: cannot read: %s", index, strerror(errno));
	if (got < HEAD || memcmp(head, "MMIDIDX\0\0", 9) != 0)
		return 0;
	if (head[AT] == 0 || head[AT] >= PS_ARRAY_LEN(types))
		return ps_error_set(err, EBADMSG, "%s: unknown type of tokens: %u", index, head[AT]);
	*ret_type = types[head[AT]];
	return 0;
}

bool ps_shard_is_compressed(const char *path)
{
	return plain_len(path) < strlen(path);
}

const char *ps_shard_line_suffix(const char *path)
{
	return ends_with(path, plain_len(path), ".jsonl") ? "json" : "txt";
}

int ps_shard_key(const char *path, struct ps_buf *ret_base)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = plain_len(path) - (size_t)(name - path);
	const char *dot = memrchr(name, '.', n);
	int rc;

	if (dot && dot > name)
		n = (size_t)(dot - name);
	ret_base->n = 0;
	rc = ps_buf_add(ret_base, name, n);
	return rc < 0 ? rc : ps_buf_add(ret_base, "-", 1);
}

int ps_shard_key_number(struct ps_buf *key, size_t base_len, uint64_t ordinal)
{
	char digits[20];
	size_t n = sizeof(digits);

	do
		digits[--n] = (char)('0' + ordinal % 10);
	while ((ordinal /= 10) > 0);
	key->n = base_len;
	return ps_buf_add(key, digits + n, sizeof(digits) - n);
}

uint64_t ps_tokens_count(const struct ps_windows *w, uint64_t nbytes)
{
	return nbytes < w->nbytes ? 0 : (nbytes - w->nbytes) / w->stride + 1;
}

/* True if the whole name or its first component is __NAME__. */
static bool is_meta(const char *name, size_t len)
{
	const char *slash = memchr(name, '/', len);
	size_t first = slash ? (size_t)(slash - name) : len;

	return first >= 4 && memcmp(name, "__", 2) == 0 && memcmp(name + first - 2, "__", 2) == 0;
}

/* WebDataset cuts at ^((?:.*<slash>|)[^.]+)[.]([^/]*)$: the key ends at the first dot of a component that
 * does not begin with a dot. A component that begins with a dot is joined to the component before it, if
 * that one has no dot. The starts of components are tried from the last to the first, as the expression
 * does. */
bool ps_name_split(const char *name, size_t len, struct ps_name_parts *ret_parts)
{
	size_t start = len;

	if (is_meta(name, len))
		return false;
	do {
		const char *dot;

		do
			start--;
		while (start > 0 && start <= len && name[start - 1] != '/');
		if (start > len)
			return false;
		dot = memchr(name + start, '.', len - start);
		if (!dot)
			continue;
		if (memchr(dot, '/', (size_t)(name + len - dot)))
			return false;
		if (dot > name + start) {
			ret_parts->key_len = (size_t)(dot - name);
			ret_parts->suffix = dot + 1;
			ret_parts->suffix_len = len - ret_parts->key_len - 1;
			return true;
		}
	} while (start > 0);
	return false;
}
