#include "config.h"

#include "shard/index/index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/io.h"
#include "shard/index/format.h"

#define MAGIC "penstock-shards "
#define FORMAT "1"
#define HINT "fetch it again, or make it again with penstock-loader index --catalogue"

static int damaged(const char *path, size_t line, struct ps_error *err)
{
	return ps_error_set(err, EBADMSG, "%s: damaged, at line %zu; " HINT, path, line);
}

/* Reading ------------------------------------------------------------------------------------------------ */

static bool hex_parse(const char *s, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < 2 * n; i++) {
		char c = s[i];
		int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (v < 0)
			return false;
		p[i / 2] = (uint8_t)(i % 2 ? p[i / 2] | v : v << 4);
	}
	return true;
}

/* Reads a decimal number without leading zeros, and the space after it. */
static bool number_take(char **at, uint64_t *ret)
{
	uint64_t v = 0;
	char *p = *at;

	if (*p == '0' && p[1] != ' ')
		return false;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
		        __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return false;
	if (p == *at || *p != ' ')
		return false;
	*at = p + 1;
	*ret = v;
	return true;
}

static bool word_take(char **at, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*at, word, n) != 0)
		return false;
	*at += n;
	return true;
}

static bool name_fits(const char *name)
{
	return name[0] && !strchr(name, '/') && !strchr(name, '\n');
}

static bool line_parse(char *line, struct ps_catalogue_entry *e)
{
	*e = (struct ps_catalogue_entry){0};
	if (!word_take(&line, "- ")) {
		if (strnlen(line, 65) < 65 || line[64] != ' ' ||
		        !hex_parse(line, e->sha256, sizeof(e->sha256)))
			return false;
		line += 65;
	}
	if (!number_take(&line, &e->nbytes) || !number_take(&line, &e->plain_nbytes) ||
	        !number_take(&line, &e->samples) || !number_take(&line, &e->bad) || e->bad > e->samples)
		return false;
	/* Limits, so that sums over a list of shards cannot overflow; a sample takes at least a byte. */
	if (e->plain_nbytes >> 62 || e->nbytes >> 62 || e->samples > e->plain_nbytes + 1)
		return false;
	e->lines = word_take(&line, "lines ");
	if (!e->lines && !word_take(&line, "tar "))
		return false;
	e->name = line;
	return name_fits(line);
}

/* Compares the last line with the checksum of what precedes it; *ret_end is where that line begins. */
static bool sum_check(const char *text, size_t n, size_t *ret_end)
{
	uint8_t want[8];
	uint64_t sum = 0;

	if (n < 21 || text[n - 1] != '\n' || memcmp(text + n - 21, "sum ", 4) != 0 ||
	        !hex_parse(text + n - 17, want, 8))
		return false;
	for (size_t i = 0; i < 8; i++)
		sum = sum << 8 | want[i];
	*ret_end = n - 21;
	return sum == ps_psx_sum(0, text, n - 21);
}

static int lines_parse(struct ps_catalogue *c, char *text, size_t end, struct ps_error *err)
{
	size_t cap = 0, line = 2;

	for (char *p = text, *next; p < text + end; p = next + 1, line++) {
		next = memchr(p, '\n', (size_t)(text + end - p));
		if (!next || memchr(p, 0, (size_t)(next - p)))
			return damaged(c->path, line, err);
		*next = 0;
		if (c->n == cap) {
			struct ps_catalogue_entry *grown;

			cap = PS_MAX(cap * 2, (size_t)64);
			grown = reallocarray(c->entries, cap, sizeof(*grown));
			if (!grown)
				return ps_no_memory(err);
			c->entries = grown;
		}
		if (!line_parse(p, &c->entries[c->n]) ||
		        (c->n > 0 && strcmp(c->entries[c->n - 1].name, c->entries[c->n].name) >= 0))
			return damaged(c->path, line, err);
		c->n++;
	}
	return 0;
}

/* Takes ownership of `text`, which has one byte more than n. */
static int text_parse(
        const char *path, char *text, size_t n, struct ps_catalogue **ret_catalogue, struct ps_error *err)
{
	struct ps_catalogue *c = calloc(1, sizeof(*c));
	size_t end, head = strlen(MAGIC FORMAT "\n");
	int rc;

	if (!c || !(c->path = strdup(path))) {
		free(c);
		free(text);
		return ps_no_memory(err);
	}
	c->text = text;
	if (n > strlen(MAGIC) && memcmp(text, MAGIC, strlen(MAGIC)) == 0 &&
	        (n < head || memcmp(text, MAGIC FORMAT "\n", head) != 0))
		rc = ps_error_set(err, ESTALE, "%s: belongs to another version of penstock; " HINT, path);
	else if (n < head || memcmp(text, MAGIC FORMAT "\n", head) != 0 || !sum_check(text, n, &end) ||
	         end < head)
		rc = ps_error_set(err, EBADMSG, "%s: damaged, or not a catalogue; " HINT, path);
	else
		rc = lines_parse(c, text + head, end - head, err);
	if (rc < 0) {
		ps_catalogue_free(c);
		return rc;
	}
	*ret_catalogue = c;
	return 0;
}

int ps_catalogue_read(const char *dir, struct ps_catalogue **ret_catalogue, struct ps_error *err)
{
	ps_autofree char *path = ps_asprintf(err, "%s%s" PS_CATALOGUE_NAME, dir, dir[0] ? "/" : "");
	ps_autofree char *text = NULL;
	ps_autofd int fd = -1;
	struct stat st;
	ssize_t n;

	if (!path)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return ps_error_set(err, errno, "%s: cannot read: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > PS_CATALOGUE_MAX_FILE)
		return ps_error_set(err, EBADMSG, "%s: not a catalogue, or larger than 1 GiB", path);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return ps_no_memory(err);
	n = ps_pread_all(fd, text, (size_t)st.st_size, 0);
	if (n < 0)
		return ps_error_set(err, (int)-n, "%s: cannot read: %s", path, strerror((int)-n));
	text[n] = 0;
	return text_parse(path, ps_steal_ptr(&text), (size_t)n, ret_catalogue, err);
}

void ps_catalogue_free(struct ps_catalogue *c)
{
	if (!c)
		return;
	free(c->entries);
	free(c->text);
	free(c->path);
	free(c);
}

const struct ps_catalogue_entry *ps_catalogue_find(const struct ps_catalogue *c, const char *name)
{
	size_t low = 0, high = c->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(c->entries[mid].name, name);

		if (order == 0)
			return &c->entries[mid];
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

const struct ps_catalogue_entry *ps_catalogue_match(
        const struct ps_catalogue *c, const char *name, uint64_t nbytes)
{
	static const char *const codings[] = {".zst", ".gz"};
	const struct ps_catalogue_entry *e = ps_catalogue_find(c, name);

	for (size_t i = 0; !e && i < PS_ARRAY_LEN(codings); i++) {
		ps_autofree char *packed = ps_asprintf(NULL, "%s%s", name, codings[i]);

		if (!packed)
			return NULL;
		e = ps_catalogue_find(c, packed);
		if (e && e->plain_nbytes != nbytes)
			e = NULL;
	}
	return e;
}

/* Writing ------------------------------------------------------------------------------------------------ */

static int entry_compare(const void *a, const void *b)
{
	return strcmp(
	        ((const struct ps_catalogue_entry *)a)->name, ((const struct ps_catalogue_entry *)b)->name);
}

static int entry_write(struct ps_buf *out, const struct ps_catalogue_entry *e)
{
	char hex[2 * PS_PSX_SHA256 + 1] = "-";
	ps_autofree char *line = NULL;

	for (size_t i = 0; i < PS_PSX_SHA256 && ps_shard_index_sha256_known(e->sha256); i++)
		snprintf(hex + 2 * i, 3, "%02x", e->sha256[i]);
	line = ps_asprintf(NULL, "%s %ju %ju %ju %ju %s %s\n", hex, (uintmax_t)e->nbytes,
	        (uintmax_t)e->plain_nbytes, (uintmax_t)e->samples, (uintmax_t)e->bad,
	        e->lines ? "lines" : "tar", e->name);
	return line ? ps_buf_add(out, line, strlen(line)) : -ENOMEM;
}

/* True if a shard of the old catalogue still exists with that size, or if memory is lacking. */
static bool is_there(const char *dir, const struct ps_catalogue_entry *e)
{
	ps_autofree char *path = ps_asprintf(NULL, "%s%s%s", dir, dir[0] ? "/" : "", e->name);
	struct stat st;

	return !path || (stat(path, &st) == 0 && (uint64_t)st.st_size == e->nbytes);
}

/* Writes the entries of the old catalogue and the new ones, sorted by name; a new one replaces the old. */
static int merge(struct ps_buf *out, const char *dir, const struct ps_catalogue *old,
        const struct ps_catalogue_entry *entries, size_t n)
{
	size_t o = 0, i = 0;
	int rc = ps_buf_add(out, MAGIC FORMAT "\n", strlen(MAGIC FORMAT "\n"));

	while (rc == 0 && (i < n || (old && o < old->n))) {
		int order = i == n                ? -1
		            : !old || o == old->n ? 1
		                                  : strcmp(old->entries[o].name, entries[i].name);

		if (order < 0) {
			if (is_there(dir, &old->entries[o]))
				rc = entry_write(out, &old->entries[o]);
		} else {
			rc = entry_write(out, &entries[i++]);
		}
		o += order <= 0;
	}
	return rc;
}

int ps_catalogue_update(
        const char *dir, struct ps_catalogue_entry *entries, size_t n, bool is_part, struct ps_error *err)
{
	const char *slash = dir[0] ? "/" : "";
	ps_autofree char *path = ps_asprintf(err, "%s%s" PS_CATALOGUE_NAME, dir, slash);
	ps_autofree char *lock = ps_asprintf(err, "%s%s." PS_CATALOGUE_NAME ".lock", dir, slash);
	struct ps_catalogue *old = NULL;
	struct ps_buf out = {0};
	char last[32];
	ps_autofd int fd = -1, lock_fd = -1;
	int rc;

	for (size_t i = 0; i < n; i++)
		if (!name_fits(entries[i].name))
			return ps_error_set(err, EINVAL,
			        "%s: a catalogue cannot hold this name; rename the shard", entries[i].name);
	if (!path || !lock)
		return -ENOMEM;
	if (is_part) {
		lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (lock_fd < 0 || flock(lock_fd, LOCK_EX) < 0)
			return ps_error_set(err, errno, "%s: cannot be locked: %s", lock, strerror(errno));
	}
	/* Concurrent packs on one machine lock the folder itself, which leaves no lock file. */
	fd = open(dir[0] ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || (flock(fd, LOCK_EX) < 0 && !is_part))
		return ps_error_set(err, errno, "%s: cannot lock its folder: %s", path, strerror(errno));
	qsort(entries, n, sizeof(*entries), entry_compare);
	(void)!ps_catalogue_read(dir, &old, NULL); /* a damaged one is replaced */
	rc = merge(&out, dir, old, entries, n);
	if (rc == 0) {
		snprintf(last, sizeof(last), "sum %016jx\n", (uintmax_t)ps_psx_sum(0, out.p, out.n));
		rc = ps_buf_add(&out, last, strlen(last));
	}
	rc = rc < 0 ? ps_no_memory(err) : ps_shard_index_file_write(path, 0644, out.p, out.n, err);
	ps_catalogue_free(old);
	ps_buf_fini(&out);
	return rc;
}
