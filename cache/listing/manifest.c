#include "listing/listing.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/strbuf.h"
#include "base/braces.h"
#include "base/url.h"

#define LINE_MAX_NBYTES (2 * PS_URL_MAX_LEN)

struct ps_manifest {
	const char *base;
	ps_manifest_fn fn;
	void *arg;
	struct ps_error *err;
	uint64_t nentries;
	unsigned long nlines; /* parsed so far */
	bool begun;           /* a byte order mark can no longer follow */
	char line[LINE_MAX_NBYTES + 1];
};

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
	return v <= INT64_MAX; /* no file can be larger */
}

static int emit(struct ps_manifest *m, const char *name, struct ps_manifest_entry *entry)
{
	ps_autofree char *url = NULL;
	int rc = 0;

	if (ps_url_has_user(name))
		return ps_error_set(m->err, EINVAL,
		        "a user and password do not belong in a manifest: give them by --user, "
		        "PENSTOCK_USER_PASSWORD or --netrc-file");
	if (!ps_s3_url_is(name) && !ps_s3_url_is(m->base))
		rc = ps_url_join(m->base, name, &url, m->err);
	else if (!(url = ps_s3_url_join(m->base, name)))
		rc = ps_no_memory(m->err);
	if (rc)
		return rc;
	if (++m->nentries > PS_LIST_MAX_ENTRIES)
		return ps_error_set(m->err, E2BIG, "more than %d entries", PS_LIST_MAX_ENTRIES);
	entry->url = url;
	return m->fn(m->arg, entry);
}

static int expand(struct ps_manifest *m, const char *name, struct ps_manifest_entry *entry)
{
	struct ps_braces *braces;
	ps_autostrbuf struct ps_strbuf b = {0};
	int rc = ps_braces_parse(name, PS_LIST_MAX_ENTRIES, &braces, m->err);

	if (rc)
		return rc;
	uint64_t n = ps_braces_count(braces);
	if (n > 1 && (entry->checksum || entry->size != PS_SIZE_UNKNOWN))
		rc = ps_error_set(m->err, EINVAL, "a line with braces cannot have a size or checksum");
	for (uint64_t i = 0; i < n && !rc; i++) {
		ps_strbuf_reset(&b);
		ps_braces_add(braces, i, &b);
		rc = b.failed ? ps_no_memory(m->err) : emit(m, ps_strbuf_peek(&b), entry);
	}
	ps_braces_free(braces);
	return rc;
}

/* Parses m->line, and cuts it into words. */
static int parse_line(struct ps_manifest *m)
{
	struct ps_manifest_entry entry = {.size = PS_SIZE_UNKNOWN};
	char *rest = m->line, *name = NULL, *word, sum[PS_CHECKSUM_LEN];

	while ((word = strtok_r(NULL, " \t", &rest))) {
		if (word[0] == '#')
			break;
		if (!name)
			name = word;
		else if (!entry.checksum && ps_checksum_parse(word, sum))
			entry.checksum = sum; /* in lower case */
		else if (entry.size != PS_SIZE_UNKNOWN || !is_size(word, &entry.size))
			return ps_error_set(m->err, EINVAL,
			        "after the name come a size in bytes and a checksum (sha256:HEX); a blank in "
			        "a name is %%20");
	}
	return name ? expand(m, name, &entry) : 0;
}

int ps_manifest_feed(void *manifest, const char *text, size_t n, bool more, size_t *ret_used)
{
	static const char mark[] = {'\xef', '\xbb', '\xbf'};
	struct ps_manifest *m = manifest;
	size_t at = 0;

	if (!m->begun) {
		if (more && n < sizeof(mark))
			return 0;
		m->begun = true;
		at = n >= sizeof(mark) && memcmp(text, mark, sizeof(mark)) == 0 ? sizeof(mark) : 0;
	}
	while (at < n) {
		const char *end = memchr(text + at, '\n', n - at);
		size_t nline = end ? (size_t)(end - text) - at : n - at;

		/* A line that is already too long need not be waited for. */
		if (!end && more && nline <= LINE_MAX_NBYTES + 1)
			break;
		size_t len = nline && text[at + nline - 1] == '\r' ? nline - 1 : nline;
		m->nlines++;
		if (len > LINE_MAX_NBYTES || memchr(text + at, '\0', len))
			return ps_error_set(m->err, EINVAL, "line %lu: too long, or not text", m->nlines);
		memcpy(m->line, text + at, len);
		m->line[len] = '\0';
		if (m->err)
			m->err->err = 0;
		int rc = parse_line(m);
		/* An error of fn has its own text. */
		if (rc && m->err && m->err->err == EINVAL)
			ps_error_prefix(m->err, rc, "line %lu", m->nlines);
		if (rc)
			return rc;
		at += nline + (end != NULL);
	}
	*ret_used = at;
	return 0;
}

struct ps_manifest *ps_manifest_new(const char *base, ps_manifest_fn fn, void *arg, struct ps_error *err)
{
	struct ps_manifest *m = calloc(1, sizeof(*m));

	if (!m) {
		ps_no_memory(err);
		return NULL;
	}
	m->base = base;
	m->fn = fn;
	m->arg = arg;
	m->err = err;
	return m;
}

void ps_manifest_free(struct ps_manifest *m)
{
	free(m);
}

int ps_manifest_parse(
        const struct ps_packed *text, const char *base, ps_manifest_fn fn, void *arg, struct ps_error *err)
{
	struct ps_manifest *m = ps_manifest_new(base, fn, arg, err);
	int rc = m ? ps_packed_each(text, ps_manifest_feed, m) : -ENOMEM;

	ps_manifest_free(m);
	/* ps_packed_each() itself sets no error text. */
	return rc == -ENOMEM ? ps_no_memory(err) : rc;
}
