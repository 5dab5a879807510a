#include "origin/manifest.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/strbuf.h"
#include "origin/braces.h"
#include "origin/origin.h"
#include "origin/s3_url.h"
#include "origin/url.h"

#define LINE_MAX_NBYTES (2 * PS_URL_MAX_LEN)

struct parser {
	const char *base;
	ps_manifest_fn fn;
	void *arg;
	struct ps_error *err;
	uint64_t nentries;
};

/* "sha256:HEX" made lower-case in place. */
static bool is_checksum(char *word)
{
	char sum[PS_CHECKSUM_LEN];

	if (!ps_checksum_parse(word, sum))
		return false;
	memcpy(word, sum, strlen(sum));
	return true;
}

static bool is_size(const char *word, uint64_t *ret)
{
	uint64_t v = 0;

	if (!*word)
		return false;
	for (; *word; word++)
		if (!isdigit((unsigned char)*word) || __builtin_mul_overflow(v, 10, &v) ||
		        __builtin_add_overflow(v, (uint64_t)(*word - '0'), &v))
			return false;
	*ret = v;
	return v <= INT64_MAX; /* no file is larger */
}

static int emit(struct parser *p, const char *name, struct ps_manifest_entry *entry)
{
	ps_autofree char *url = NULL;
	int rc = 0;

	if (!ps_s3_url_is(name) && !ps_s3_url_is(p->base))
		rc = ps_url_join(p->base, name, &url, p->err);
	else if (!(url = ps_s3_url_join(p->base, name)))
		rc = ps_error_set(p->err, ENOMEM, "out of memory");
	if (rc)
		return rc;
	if (++p->nentries > PS_LIST_MAX_ENTRIES)
		return ps_error_set(p->err, E2BIG, "more than %d entries", PS_LIST_MAX_ENTRIES);
	entry->url = url;
	return p->fn(p->arg, entry);
}

static int expand(struct parser *p, const char *name, struct ps_manifest_entry *entry)
{
	struct ps_braces *braces;
	ps_autostrbuf struct ps_strbuf b = {0};
	int rc = ps_braces_parse(name, PS_LIST_MAX_ENTRIES, &braces, p->err);

	if (rc)
		return rc;
	uint64_t n = ps_braces_count(braces);
	if (n > 1 && (entry->checksum || entry->size != PS_SIZE_UNKNOWN))
		rc = ps_error_set(p->err, EINVAL, "braces and a size or checksum on one line");
	for (uint64_t i = 0; i < n && !rc; i++) {
		ps_strbuf_reset(&b);
		ps_braces_add(braces, i, &b);
		rc = b.failed ? ps_error_set(p->err, ENOMEM, "out of memory")
		              : emit(p, ps_strbuf_peek(&b), entry);
	}
	ps_braces_free(braces);
	return rc;
}

/* A line without its end, NUL-terminated, that may be written to. */
static int parse_line(struct parser *p, char *line)
{
	struct ps_manifest_entry entry = {.size = PS_SIZE_UNKNOWN};
	char *rest = line, *name = NULL, *word;

	while ((word = strtok_r(NULL, " \t", &rest))) {
		if (word[0] == '#')
			break;
		if (!name)
			name = word;
		else if (!entry.checksum && is_checksum(word))
			entry.checksum = word;
		else if (entry.size != PS_SIZE_UNKNOWN || !is_size(word, &entry.size))
			return ps_error_set(p->err, EINVAL,
			        "after the name come a size in bytes and a checksum (sha256:HEX); a blank in "
			        "a name is %%20");
	}
	return name ? expand(p, name, &entry) : 0;
}

int ps_manifest_parse(
        const char *text, size_t nbytes, const char *base, ps_manifest_fn fn, void *arg, struct ps_error *err)
{
	struct parser p = {.base = base, .fn = fn, .arg = arg, .err = err};
	ps_autofree char *line = malloc(LINE_MAX_NBYTES + 1);
	unsigned long number = 0;

	if (!line)
		return ps_error_set(err, ENOMEM, "out of memory");
	if (nbytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		nbytes -= 3;
	}
	while (nbytes) {
		const char *end = memchr(text, '\n', nbytes);
		size_t n = end ? (size_t)(end - text) : nbytes, step = end ? n + 1 : n;

		number++;
		if (n && text[n - 1] == '\r')
			n--;
		if (n > LINE_MAX_NBYTES || memchr(text, '\0', n))
			return ps_error_set(err, EINVAL, "line %lu: too long, or not text", number);
		memcpy(line, text, n);
		line[n] = '\0';
		if (err)
			err->err = 0;
		int rc = parse_line(&p, line);
		if (rc) {
			/* What fn refused has its own story. */
			if (err && err->err == EINVAL)
				ps_error_prefix(err, "line %lu", number);
			return rc;
		}
		text += step;
		nbytes -= step;
	}
	return 0;
}
