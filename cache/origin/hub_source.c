#include "origin/hub_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "credentials/credentials.h"
#include "listing/listing.h"
#include "base/url.h"

#define SCHEME "hf://"
#define SCHEME_LEN 5
#define NAME_MAX_LEN 96 /* the Hub's limit, for owner and name alike */

bool ps_hf_is_source(const char *text)
{
	return strncasecmp(text, SCHEME, SCHEME_LEN) == 0;
}

bool ps_hf_is_commit(const char *rev)
{
	return strlen(rev) == 40 && rev[strspn(rev, "0123456789abcdef")] == '\0';
}

void ps_hf_source_fini(struct ps_hf_source *s)
{
	free(s->repo);
	free(s->rev);
	free(s->path);
	free(s->canonical);
	*s = (struct ps_hf_source){0};
}

/* Letters, digits, ".", "-" and "_"; no "." or "-" at either end. */
static bool is_name(const char *s, size_t n)
{
	if (!n || n > NAME_MAX_LEN || strchr("-.", s[0]) || strchr("-.", s[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("-._", s[i]))
			return false;
	return true;
}

/* The length of the revision at the beginning of s: refs/convert/NAME, refs/pr/N, else up to the next "/". */
static size_t rev_length(const char *s)
{
	static const char convert[] = "refs/convert/", pr[] = "refs/pr/";

	if (strncmp(s, convert, sizeof(convert) - 1) == 0)
		return sizeof(convert) - 1 + strcspn(s + sizeof(convert) - 1, "/");
	if (strncmp(s, pr, sizeof(pr) - 1) == 0)
		return sizeof(pr) - 1 + strspn(s + sizeof(pr) - 1, "0123456789");
	return strcspn(s, "/");
}

/* Decodes %2F and other escapes of a revision. */
static char *decode_rev(const char *s, size_t n)
{
	struct ps_strbuf b = {0};

	for (size_t i = 0; i < n; i++) {
		char digits[3] = {0};

		if (s[i] == '%' && n - i > 2)
			memcpy(digits, s + i + 1, 2);
		char c = (char)strtoul(digits, NULL, 16);
		/* Other "%" stay, and is_rev() refuses them. */
		ps_strbuf_addc(&b, c && isxdigit((unsigned char)digits[1]) ? c : s[i]);
		i += c && isxdigit((unsigned char)digits[1]) ? 2 : 0;
	}
	return ps_strbuf_take(&b);
}

/* True for roughly the names of refs that git allows; others could garble a URL or a log. */
static bool is_rev(const char *rev)
{
	for (const char *p = rev; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f || strchr("~^:?*[\\%", *p))
			return false;
	return rev[0] && rev[0] != '/' && rev[strlen(rev) - 1] != '/' && !strstr(rev, "..") &&
	       !strstr(rev, "//");
}

/* A folder may end in "/"; parts may not be empty, "." or "..". */
static bool is_path(const char *path)
{
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 0 || (p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.'))))
			return false;
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)p[i] < ' ' || p[i] == 0x7f)
				return false;
		p += n + (p[n] == '/');
	}
	return true;
}

static void add_encoded(struct ps_strbuf *b, const char *s, bool keep_slash)
{
	ps_url_encode(s, strlen(s), keep_slash, b);
}

static char *canonical(const struct ps_hf_source *s)
{
	struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, SCHEME "%s/%s", s->is_model ? "models" : "datasets", s->repo);
	/* Without an owner, the revision parts the name from the path. */
	if (strcmp(s->rev, "main") != 0 || !strchr(s->repo, '/')) {
		bool known = strncmp(s->rev, "refs/", 5) == 0 && rev_length(s->rev) == strlen(s->rev);

		ps_strbuf_addc(&b, '@');
		add_encoded(&b, s->rev, known);
	}
	ps_strbuf_addf(&b, "/%s", s->path);
	return ps_strbuf_take(&b);
}

/* Parses "[datasets/|models/]OWNER/NAME", or "datasets/NAME" or "models/NAME" without a path, at *s, and moves *s
 * past it. Repositories without an owner are old; the Hub redirects most of them to their new names. */
static int take_repo(const char **s, struct ps_hf_source *ret, struct ps_error *err)
{
	static const char *const others[] = {"spaces", "buckets", "kernels"};
	const char *p = *s;
	size_t first = strcspn(p, "/@");

	for (size_t i = 0; i < PS_ARRAY_LEN(others); i++)
		if (first == strlen(others[i]) && strncmp(p, others[i], first) == 0)
			return ps_error_set(err, EINVAL,
			        "hf://%s/...: only datasets and models can be mounted: "
			        "hf://datasets/OWNER/NAME, "
			        "hf://models/OWNER/NAME",
			        others[i]);
	ret->is_model = first == 6 && strncmp(p, "models", 6) == 0;
	bool kind = (ret->is_model || (first == 8 && strncmp(p, "datasets", 8) == 0)) && p[first] == '/';
	if (kind)
		p += first + 1;
	size_t owner = strcspn(p, "/@");
	size_t name = p[owner] == '/' ? strcspn(p + owner + 1, "/@") : 0;
	bool alone = kind && is_name(p, owner) && (!p[owner] || p[owner] == '@' || !p[owner + 1]);
	if (alone) {
		ret->repo = strndup(p, owner);
		*s = p + owner;
		return ret->repo ? 0 : ps_no_memory(err);
	}
	if (!is_name(p, owner) || !is_name(p + owner + 1, name))
		return ps_error_set(err, EINVAL,
		        "%.200s: not of the form hf://datasets/OWNER/NAME[@REV][/PATH] or "
		        "hf://models/OWNER/NAME[@REV][/PATH]",
		        *s - SCHEME_LEN);
	ret->repo = strndup(p, owner + 1 + name);
	*s = p + owner + 1 + name;
	return ret->repo ? 0 : ps_no_memory(err);
}

static int take_rev(const char **s, struct ps_hf_source *ret, struct ps_error *err)
{
	if (**s != '@') {
		ret->rev = strdup("main");
		return ret->rev ? 0 : ps_no_memory(err);
	}
	size_t n = rev_length(*s + 1);
	ret->rev = decode_rev(*s + 1, n);
	if (!ret->rev && n)
		return ps_no_memory(err);
	if (!ret->rev || !is_rev(ret->rev))
		return ps_error_set(err, EINVAL,
		        "hf://...%.200s: after @ comes a branch, a tag or a commit (a / in it as %%2F)", *s);
	*s += 1 + n;
	return 0;
}

static int take_path(const char *s, struct ps_hf_source *ret, struct ps_error *err)
{
	s += *s == '/';
	if (!is_path(s))
		return ps_error_set(err, EINVAL, "hf://.../%.200s: not a path within a repository", s);
	size_t n = strlen(s);
	bool is_folder = n && s[n - 1] == '/';
	ret->path = strndup(s, n - is_folder);
	if (!ret->path)
		return ps_no_memory(err);
	ret->is_pattern = ps_glob_is_pattern(ret->path);
	if (ret->is_pattern && is_folder)
		return ps_error_set(
		        err, EINVAL, "hf://.../%.200s: a pattern names files, not folders: end it in /**", s);
	return 0;
}

int ps_hf_source_parse(const char *text, struct ps_hf_source *ret, struct ps_error *err)
{
	struct ps_hf_source s = {0};
	const char *p = text + SCHEME_LEN;
	int rc = strlen(text) > PS_URL_MAX_LEN ? ps_error_set(err, EINVAL, "hf://...: too long") : 0;

	if (!rc)
		rc = take_repo(&p, &s, err);
	if (!rc)
		rc = take_rev(&p, &s, err);
	if (!rc)
		rc = take_path(p, &s, err);
	if (!rc && !(s.canonical = canonical(&s)))
		rc = ps_no_memory(err);
	if (rc) {
		ps_hf_source_fini(&s);
		return rc;
	}
	*ret = s;
	return 0;
}

/* URLs --------------------------------------------------------------------------------------------------- */

static const char *kind(const struct ps_hf_source *s)
{
	return s->is_model ? "models" : "datasets";
}

char *ps_hf_url_revision(const struct ps_hf_source *s, const char *endpoint)
{
	struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "%s/api/%s/%s/revision/", endpoint, kind(s), s->repo);
	add_encoded(&b, s->rev, false);
	/* Without this the answer lists all files of the repository. */
	ps_strbuf_add(&b, "?expand=sha");
	return ps_strbuf_take(&b);
}

char *ps_hf_url_tree(
        const struct ps_hf_source *s, const char *endpoint, const char *rev, const char *path, bool recursive)
{
	struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "%s/api/%s/%s/tree/", endpoint, kind(s), s->repo);
	add_encoded(&b, rev, false);
	if (*path) {
		ps_strbuf_addc(&b, '/');
		add_encoded(&b, path, false);
	}
	ps_strbuf_addf(&b, "?recursive=%s", recursive ? "true" : "false");
	return ps_strbuf_take(&b);
}

char *ps_hf_url_page(const struct ps_hf_source *s, const char *endpoint)
{
	struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "%s/%s%s", endpoint, s->is_model ? "" : "datasets/", s->repo);
	return ps_strbuf_take(&b);
}

char *ps_hf_url_resolve(const struct ps_hf_source *s, const char *endpoint, const char *rev, const char *path)
{
	struct ps_strbuf b = {0};

	ps_strbuf_addf(&b, "%s/%s%s/resolve/", endpoint, s->is_model ? "" : "datasets/", s->repo);
	add_encoded(&b, rev, false);
	ps_strbuf_addc(&b, '/');
	add_encoded(&b, path, true);
	return ps_strbuf_take(&b);
}

static void add_object(struct ps_strbuf *b, const struct ps_hf_source *s)
{
	ps_strbuf_addf(b, SCHEME "%s/%s/", kind(s), s->repo);
}

char *ps_hf_url_object(const struct ps_hf_source *s, const char *endpoint, const char *path)
{
	struct ps_strbuf b = {0};

	add_object(&b, s);
	add_encoded(&b, path, true);
	if (strcmp(endpoint, PS_HF_ENDPOINT) != 0)
		ps_strbuf_addf(&b, "?endpoint=%s", endpoint);
	return ps_strbuf_take(&b);
}

char *ps_hf_path_of_object(const struct ps_hf_source *s, const char *url)
{
	ps_autostrbuf struct ps_strbuf head = {0};
	struct ps_strbuf path = {0};

	add_object(&head, s);
	if (head.failed || strncmp(url, head.s, head.len) != 0)
		return NULL;
	url += head.len;
	if (ps_url_decode(url, strcspn(url, "?"), &path) < 0) {
		ps_strbuf_fini(&path);
		return NULL;
	}
	return ps_strbuf_take(&path);
}
