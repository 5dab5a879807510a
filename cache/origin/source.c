#include "origin/origin_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/braces.h"
#include "base/url.h"
#include "base/secret.h"
#include "base/strbuf.h"
#include "listing/listing.h"
#include "origin/origin.h"

/* Parsing sources ---------------------------------------------------------------------------------------- */

void ps_source_fini(struct ps_origin_source *s)
{
	free(s->url);
	ps_secret_free(s->sas);
	free(s->first);
	free(s->canonical);
	ps_packed_fini(&s->text);
	free(s->base);
	*s = (struct ps_origin_source){0};
}

static bool has_scheme(const char *text, const char *scheme)
{
	size_t n = strlen(scheme);

	return strncasecmp(text, scheme, n) == 0 && strncmp(text + n, "://", 3) == 0;
}

/* Makes "file:///a%20b/x" from "/a b/x". Braces are kept for the expansion, which works on the escaped
 * text. */
static char *file_url(const char *path)
{
	struct ps_strbuf b = {0};

	ps_strbuf_add(&b, "file://");
	for (; *path; path++) {
		if (strchr("{}\\", *path))
			ps_strbuf_addc(&b, *path);
		else
			ps_url_encode(path, 1, true, &b);
	}
	return ps_strbuf_take(&b);
}

/* The host of a pattern may have braces, which no URL allows: the URL is made canonical with a stand-in for
 * the host. */
static int canonical_pattern(const char *text, char **ret, struct ps_error *err)
{
	const char *host = strstr(text, "://") + 3;
	size_t nhost = strcspn(host, "/?#");
	ps_autostrbuf struct ps_strbuf b = {0};
	ps_autourl struct ps_url u = {0};
	bool braced = memchr(host, '{', nhost) != NULL;

	ps_strbuf_addn(&b, text, (size_t)(host - text));
	ps_strbuf_add(&b, braced ? "x" : host);
	ps_strbuf_add(&b, braced ? host + nhost : "");
	if (b.failed)
		return ps_no_memory(err);
	int rc = ps_url_parse(ps_strbuf_peek(&b), &u, err);
	if (rc)
		return rc;
	if (braced) {
		const char *at = memrchr(host, '@', nhost);
		const char *plain = at ? at + 1 : host;

		free(u.host);
		u.host = strndup(plain, nhost - (size_t)(plain - host));
		if (!u.host)
			return ps_no_memory(err);
	}
	*ret = ps_url_compose(&u);
	return *ret ? 0 : ps_no_memory(err);
}

static int parse_url_source(const char *text, struct ps_origin_source *s, struct ps_error *err)
{
	struct ps_braces *braces = NULL;
	ps_autofree char *path = strndup(text, strcspn(text, "?#"));
	ps_autostrbuf struct ps_strbuf first = {0};

	if (!path)
		return ps_no_memory(err);
	int rc = ps_braces_parse(text, PS_LIST_MAX_ENTRIES, &braces, err);
	if (rc)
		return rc;
	bool many = ps_braces_count(braces) > 1;
	ps_braces_add(braces, 0, &first);
	ps_braces_free(braces);
	if (first.failed)
		return ps_no_memory(err);

	size_t n = strlen(path);
	const char *after = strstr(path, "://") + 3;
	if (many)
		s->kind = PS_SOURCE_BRACES;
	else if (n && (path[n - 1] == '/' || !strchr(after, '/')))
		s->kind = PS_SOURCE_DIR;
	else if (n > 4 && strcasecmp(path + n - 4, ".txt") == 0)
		s->kind = PS_SOURCE_MANIFEST;
	else
		s->kind = PS_SOURCE_BRACES;
	/* The first expansion must be a URL; then the others most likely are, too. */
	ps_autourl struct ps_url u = {0};
	rc = ps_url_parse(ps_strbuf_peek(&first), &u, err);
	if (!rc)
		rc = canonical_pattern(text, &s->canonical, err);
	if (rc)
		return rc;
	s->is_pattern = many;
	s->origin = strcmp(u.scheme, "file") == 0 ? PS_SOURCE_FILE : PS_SOURCE_HTTP;
	s->url = strdup(text);
	s->base = strdup(text);
	s->first = ps_strbuf_take(&first);
	return s->url && s->base && s->first ? 0 : ps_no_memory(err);
}

static int parse_s3_source(const char *text, struct ps_origin_source *s, struct ps_error *err)
{
	/* "?sv=...&sig=..." comes after the last question mark, since keys may have question marks, too. */
	const char *sas = ps_s3_url_is_azure(text) ? strrchr(text, '?') : NULL;
	if (sas && strncmp(sas + 1, "sig=", 4) != 0 && !strstr(sas, "&sig="))
		sas = NULL;
	ps_autofree char *bare = sas ? strndup(text, (size_t)(sas - text)) : NULL;

	if (sas) {
		s->sas = strdup(sas + 1);
		if (!s->sas || !bare)
			return ps_no_memory(err);
		text = bare;
	}
	struct ps_braces *braces = NULL;
	ps_autostrbuf struct ps_strbuf first = {0};
	ps_autos3url struct ps_s3_url u = {0};
	int rc = ps_braces_parse(text, PS_LIST_MAX_ENTRIES, &braces, err);

	if (rc)
		return rc;
	s->is_pattern = ps_braces_count(braces) > 1;
	ps_braces_add(braces, 0, &first);
	ps_braces_free(braces);
	if (first.failed)
		return ps_no_memory(err);
	rc = ps_s3_url_parse(ps_strbuf_peek(&first), &u, err);
	if (rc)
		return rc;
	if (u.endpoint)
		return ps_error_set(
		        err, EINVAL, "%s: give the endpoint as an option: --endpoint %s", text, u.endpoint);
	size_t n = strlen(u.key);
	bool objects = s->is_pattern || u.version;
	if (!objects && (n == 0 || u.key[n - 1] == '/'))
		s->kind = PS_SOURCE_DIR;
	else if (!objects && n > 4 && strcasecmp(u.key + n - 4, ".txt") == 0)
		s->kind = PS_SOURCE_MANIFEST;
	else
		s->kind = PS_SOURCE_BRACES;
	s->origin = PS_SOURCE_S3;
	/* A pattern is kept as it was written: which of its braces belong to keys is known only after the
	 * expansion. */
	struct ps_strbuf canonical = {0};
	if (s->is_pattern)
		ps_strbuf_addf(&canonical, "%s%s", u.scheme, text + strlen(u.scheme));
	else
		ps_s3_url_compose(&u, &canonical);
	s->canonical = ps_strbuf_take(&canonical);
	s->url = strdup(text);
	s->first = ps_strbuf_take(&first);
	s->base = s->canonical ? strdup(s->canonical) : NULL;
	return s->url && s->first && s->base ? 0 : ps_no_memory(err);
}

/* Local manifests ---------------------------------------------------------------------------------------- */

int ps_source_read_file(const char *path, struct ps_packed *ret, struct ps_error *err)
{
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return ps_error_set(err, errno, "list %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ps_error_set(err, EINVAL, "list %s: not a regular file", path);
	ps_autofree char *block = malloc(PS_PACKED_BLOCK_NBYTES);
	if (!block)
		return ps_no_memory(err);
	for (ssize_t n; (n = read(fd, block, PS_PACKED_BLOCK_NBYTES)) != 0;) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ps_error_set(err, errno, "list %s: %s", path, strerror(errno));
		ps_packed_add(ret, block, (size_t)n);
		if (ret->failed)
			return ps_no_memory(err);
		if (ret->nbytes > PS_MANIFEST_MAX_NBYTES)
			return ps_error_set(err, EFBIG, "list %s: larger than 512 MiB", path);
	}
	ps_packed_settle(ret);
	return 0;
}

struct first_entry {
	char *url;
	int rc;
};

static int take_first(void *arg, const struct ps_manifest_entry *entry)
{
	struct first_entry *first = arg;

	first->url = strdup(entry->url);
	first->rc = first->url ? 0 : -ENOMEM;
	return -ECANCELED; /* the first entry is enough */
}

/* The first entry decides the kind of origin, and which host may see credentials. */
static int parse_local_manifest(const char *name, struct ps_origin_source *s, struct ps_error *err)
{
	char path[PATH_MAX];
	struct first_entry first = {.rc = -ENOENT};

	if (!realpath(name, path))
		return ps_error_set(err, errno, "list %s: %s", name, strerror(errno));
	s->kind = PS_SOURCE_MANIFEST;
	int rc = ps_source_read_file(path, &s->text, err);
	if (rc)
		return rc;
	s->base = file_url(path);
	struct ps_strbuf b = {0};
	ps_strbuf_addf(&b, "@%s", path);
	s->canonical = ps_strbuf_take(&b);
	if (!s->base || !s->canonical)
		return ps_no_memory(err);
	rc = ps_manifest_parse(&s->text, s->base, take_first, &first, err);
	if (rc == 0)
		return ps_error_set(err, EINVAL, "list %s: it has no entries", path);
	if (rc && rc != -ECANCELED)
		return ps_error_prefix(err, rc, "list %s", path);
	if (first.rc)
		return ps_no_memory(err);
	s->first = first.url;
	s->origin = has_scheme(s->first, "file") ? PS_SOURCE_FILE
	            : ps_s3_url_is(s->first)     ? PS_SOURCE_S3
	                                         : PS_SOURCE_HTTP;
	return 0;
}

static int parse(const char *text, struct ps_origin_source *s, struct ps_error *err)
{
	char safe[PS_URL_TEXT_LEN];

	if (!*text)
		return ps_error_set(err, EINVAL, "empty source: give a URL, a directory or @list.txt");
	if (text[0] == '@')
		return parse_local_manifest(text + 1, s, err);
	if (text[0] == '/') {
		ps_autostrbuf struct ps_strbuf whole = {0};
		struct stat st;

		/* The trailing "/" of a directory may be omitted. */
		ps_strbuf_add(&whole, text);
		if (text[strlen(text) - 1] != '/' && stat(text, &st) == 0 && S_ISDIR(st.st_mode))
			ps_strbuf_addc(&whole, '/');
		ps_autofree char *url = whole.failed ? NULL : file_url(whole.s);

		return url ? parse_url_source(url, s, err) : ps_no_memory(err);
	}
	if (has_scheme(text, "http") || has_scheme(text, "https") || has_scheme(text, "file"))
		return parse_url_source(text, s, err);
	if (ps_s3_url_is(text))
		return parse_s3_source(text, s, err);
	if (strstr(text, "://"))
		return ps_error_set(err, EINVAL,
		        "%s: unknown scheme; known are https, http, s3, gs, az, hf and file",
		        ps_url_redact(text, safe));
	return ps_error_set(err, EINVAL,
	        "%s: neither a URL (https://..., s3://..., gs://..., az://..., hf://..., file:///...), a "
	        "folder "
	        "(/dir, ./dir) nor @list.txt",
	        ps_url_redact(text, safe));
}

int ps_source_parse(const char *text, struct ps_origin_source *ret, struct ps_error *err)
{
	struct ps_origin_source s = {0};
	int rc = parse(text, &s, err);

	if (rc) {
		ps_source_fini(&s);
		return rc;
	}
	*ret = s;
	return 0;
}

/* Objects that a source lists by name -------------------------------------------------------------------- */

struct expansion {
	const struct ps_origin_source *source;
	struct ps_names *names;
	ps_sign_fn sign;
	void *sign_arg;
	struct ps_common_prefix common;
	struct ps_strbuf key, url, path;
	bool second; /* true in the second pass */
};

/* Takes the object of x->key. The first pass finds the common prefix, the second one reports the object. */
static int take_key(
        struct expansion *x, const char *signature, const char *url, const struct ps_manifest_entry *entry)
{
	if (!x->second) {
		ps_common_prefix_add(&x->common, ps_strbuf_peek(&x->key));
		return x->common.dir.failed ? ps_names_no_memory(x->names) : 0;
	}
	ps_strbuf_reset(&x->path);
	ps_s3_path(ps_common_prefix_below(&x->common, ps_strbuf_peek(&x->key)), &x->path);
	if (x->path.failed)
		return ps_names_no_memory(x->names);
	struct ps_listed listed = {.path = x->path.s,
	        .url = url,
	        .remote = PS_REMOTE_UNKNOWN,
	        .checksum = entry->checksum,
	        .stated = true};

	listed.remote.size = entry->size;
	if (signature && x->sign && x->sign(x->sign_arg, url, signature) < 0)
		return ps_names_no_memory(x->names);
	return ps_names_add(x->names, &listed);
}

static int another_origin(struct expansion *x, const char *url)
{
	char safe[PS_URL_TEXT_LEN];

	return ps_error_set(x->names->err, EINVAL,
	        "%s: a list may name only one of files, URLs and objects in buckets",
	        ps_url_redact(url, safe));
}

static int take_s3(struct expansion *x, const struct ps_manifest_entry *entry)
{
	ps_autos3url struct ps_s3_url u = {0};
	int rc = ps_s3_url_parse(entry->url, &u, x->names->err);

	if (rc)
		return rc;
	if (u.endpoint)
		return ps_error_set(x->names->err, EINVAL,
		        "%s: give the endpoint as an option, not in a source", entry->url);
	u.endpoint = (char *)x->source->endpoint;
	ps_strbuf_reset(&x->key);
	ps_strbuf_addf(&x->key, "%s/%s", u.bucket, u.key);
	ps_strbuf_reset(&x->url);
	ps_s3_url_compose(&u, &x->url);
	u.endpoint = NULL;
	if (x->key.failed || x->url.failed)
		return ps_names_no_memory(x->names);
	return take_key(x, NULL, x->url.s, entry);
}

static int take(void *arg, const struct ps_manifest_entry *entry)
{
	struct expansion *x = arg;
	char safe[PS_URL_TEXT_LEN];
	ps_autourl struct ps_url u = {0};
	int rc = ps_names_stopped(x->names);

	if (rc)
		return rc;
	if (ps_s3_url_is(entry->url) != (x->source->origin == PS_SOURCE_S3))
		return another_origin(x, entry->url);
	if (x->source->origin == PS_SOURCE_S3)
		return take_s3(x, entry);
	rc = ps_url_parse(entry->url, &u, x->names->err);
	if (rc)
		return rc;
	if ((strcmp(u.scheme, "file") == 0) != (x->source->origin == PS_SOURCE_FILE))
		return another_origin(x, entry->url);
	ps_autofree char *url = ps_url_compose(&u);
	if (!url)
		return ps_names_no_memory(x->names);
	rc = ps_common_prefix_key(url, &x->key);
	if (rc == -ENOMEM)
		return ps_names_no_memory(x->names);
	if (rc) {
		if (x->second)
			ps_names_warn(x->names, ps_url_redact(url, safe), "skipped: a broken %-escape");
		return 0;
	}
	return take_key(x, u.signature, url, entry);
}

static int expand_braces(struct expansion *x)
{
	struct ps_braces *braces = NULL;
	ps_autostrbuf struct ps_strbuf b = {0};
	int rc = ps_braces_parse(x->source->url, PS_LIST_MAX_ENTRIES, &braces, x->names->err);

	for (uint64_t i = 0; !rc && i < ps_braces_count(braces); i++) {
		struct ps_manifest_entry entry = {.size = PS_SIZE_UNKNOWN};

		ps_strbuf_reset(&b);
		ps_braces_add(braces, i, &b);
		entry.url = ps_strbuf_peek(&b);
		rc = b.failed ? ps_names_no_memory(x->names) : take(x, &entry);
	}
	ps_braces_free(braces);
	return rc;
}

int ps_source_expand(const struct ps_origin_source *source, const struct ps_packed *text, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names)
{
	struct expansion x = {.source = source, .names = names, .sign = sign, .sign_arg = sign_arg};
	const char *name = source->canonical + (source->canonical[0] == '@');
	ps_autopacked struct ps_packed own = {0};
	char safe[PS_URL_TEXT_LEN];
	int rc = 0;

	if (source->kind == PS_SOURCE_MANIFEST && !text) {
		rc = ps_source_read_file(name, &own, names->err);
		text = &own;
	}
	for (int pass = 0; pass < 2 && !rc; pass++) {
		x.second = pass == 1;
		if (source->kind == PS_SOURCE_BRACES)
			rc = expand_braces(&x);
		else
			rc = ps_manifest_parse(text, source->base, take, &x, names->err);
		if (rc == -EINVAL && source->kind == PS_SOURCE_MANIFEST)
			ps_error_prefix(names->err, rc, "list %s", ps_url_redact(name, safe));
	}
	ps_common_prefix_fini(&x.common);
	ps_strbuf_fini(&x.key);
	ps_strbuf_fini(&x.url);
	ps_strbuf_fini(&x.path);
	return rc;
}
