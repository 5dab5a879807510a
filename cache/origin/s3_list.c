#include "origin/s3_list.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "origin/enumerate.h"
#include "origin/http_list.h"
#include "http/page.h"
#include "listing/names.h"
#include "listing/xml.h"
#include "base/url.h"

struct walk {
	struct ps_http_client *client;
	struct ps_names *names;
	const char *endpoint; /* the source's */
	bool azure;
	struct ps_s3_url bucket; /* the source, with its prefix as key; borrowed */
	size_t nshown;           /* bytes of a key that are above the mount's root */
	bool pin;
	const char *only; /* the key that is wanted, and no other; NULL: all */
	uint64_t nkeys, nmarkers;
	struct ps_strbuf url, key, path;
	struct ps_strbuf dir, shown; /* the folder of the last object, and as what it is shown */
};

static int out_of_memory(struct ps_names *names)
{
	return ps_error_set(names->err, ENOMEM, "listing: out of memory");
}

/* Pages ------------------------------------------------------------------------------------------- */

/* The page behind `after` (NULL: the first), asked for as s3_request.h says. */
static struct ps_http_page *ask(struct walk *walk, const struct ps_s3_page *after)
{
	struct ps_sigv4_pair pairs[6];
	size_t n = 0;
	ps_autostrbuf struct ps_strbuf b = {0};

	if (walk->azure) {
		pairs[n++] = (struct ps_sigv4_pair){"comp", "list"};
		pairs[n++] = (struct ps_sigv4_pair){"restype", "container"};
		pairs[n++] = (struct ps_sigv4_pair){"prefix", walk->bucket.key};
		if (after)
			pairs[n++] = (struct ps_sigv4_pair){"marker", after->token};
		ps_strbuf_addf(&b, "%s://%s?", walk->bucket.scheme, walk->bucket.bucket);
		ps_sigv4_query(pairs, n, &b);
		return b.failed ? NULL : ps_http_page_start(walk->client, b.s, PS_S3_PAGE_MAX_NBYTES);
	}
	if (walk->pin)
		pairs[n++] = (struct ps_sigv4_pair){"versions", ""};
	else
		pairs[n++] = (struct ps_sigv4_pair){"list-type", "2"};
	pairs[n++] = (struct ps_sigv4_pair){"encoding-type", "url"};
	pairs[n++] = (struct ps_sigv4_pair){"prefix", walk->bucket.key};
	if (walk->only)
		pairs[n++] = (struct ps_sigv4_pair){"max-keys", "1"};
	if (after && after->token) {
		pairs[n++] = (struct ps_sigv4_pair){"continuation-token", after->token};
	} else if (after) {
		pairs[n++] = (struct ps_sigv4_pair){"key-marker", after->key_marker};
		if (after->version_marker)
			pairs[n++] = (struct ps_sigv4_pair){"version-id-marker", after->version_marker};
	}
	ps_strbuf_addf(&b, "%s://%s?", walk->bucket.scheme, walk->bucket.bucket);
	ps_sigv4_query(pairs, n, &b);
	return b.failed ? NULL : ps_http_page_start(walk->client, b.s, PS_S3_PAGE_MAX_NBYTES);
}

/* Below a bucket "a" and "a/b" are two objects; below a root one of them must be called otherwise. What is listed first,
 * "a", stays; the folder becomes "a%00", which no key can be. */
static void keep_apart(struct walk *walk, const char *path)
{
	const char *name = strrchr(path, '/');
	size_t n = name ? (size_t)(name - path) : 0;

	if (name && (walk->dir.len != n || memcmp(ps_strbuf_peek(&walk->dir), path, n) != 0)) {
		ps_strbuf_reset(&walk->dir);
		ps_strbuf_addn(&walk->dir, path, n);
		ps_strbuf_reset(&walk->shown);
		for (const char *s = path, *end; s <= name; s = end + 1) {
			end = s + strcspn(s, "/");
			ps_strbuf_addn(&walk->shown, s, (size_t)(end - s));
			if (ps_names_is_file(walk->names, ps_strbuf_peek(&walk->shown), walk->shown.len))
				ps_strbuf_add(&walk->shown, "%00");
			ps_strbuf_addc(&walk->shown, '/');
		}
	}
	ps_strbuf_reset(&walk->path);
	if (name)
		ps_strbuf_add(&walk->path, ps_strbuf_peek(&walk->shown));
	ps_strbuf_add(&walk->path, name ? name + 1 : path);
}

static int take_object(void *arg, const struct ps_s3_object *object)
{
	struct walk *walk = arg;
	struct ps_s3_url url = walk->bucket;
	size_t n = strlen(object->key);

	if (walk->only && strcmp(object->key, walk->only) != 0)
		return 0;
	if (strncmp(object->key, walk->bucket.key, strlen(walk->bucket.key)) != 0)
		return ps_error_set(walk->names->err, EPROTO, "the store lists keys without the prefix");
	walk->nkeys++;
	/* What consoles leave as "folders": empty objects whose names end with a slash. */
	if (n && object->key[n - 1] == '/' && object->remote.size == 0) {
		walk->nmarkers++;
		return 0;
	}
	url.key = (char *)object->key;
	url.version = *object->version ? (char *)object->version : NULL;
	url.endpoint = (char *)walk->endpoint;
	ps_strbuf_reset(&walk->url);
	ps_s3_url_compose(&url, &walk->url);
	ps_strbuf_reset(&walk->key);
	ps_s3_path(object->key + walk->nshown, &walk->key);
	keep_apart(walk, ps_strbuf_peek(&walk->key));
	if (walk->url.failed || walk->key.failed || walk->path.failed || walk->dir.failed ||
	        walk->shown.failed)
		return out_of_memory(walk->names);
	struct ps_listed listed = {.path = walk->path.s, .url = walk->url.s, .remote = object->remote};
	return ps_names_add(walk->names, &listed);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Does the page lead on to where the one before did? A store that ignores what it is asked would be listed for ever. */
static bool leads_nowhere(const struct ps_s3_page *before, const struct ps_s3_page *page)
{
	return page->truncated && same_text(before->token, page->token) &&
	       same_text(before->key_marker, page->key_marker) &&
	       same_text(before->version_marker, page->version_marker);
}

/* The next page is on its way while this one goes into the index. */
static int take_page(struct walk *walk, struct ps_http_page **page, struct ps_s3_page *at)
{
	struct ps_names *names = walk->names;
	struct ps_http_page *next = NULL;
	struct ps_page_body body;
	struct ps_s3_page seen = {0};
	uint64_t nskipped = 0;
	int rc = ps_http_page_wait(*page, names->stop, &body, names->err);

	if (rc == 0)
		rc = ps_s3_page_parse(body.text, body.nbytes, &seen, names->err);
	if (rc)
		return rc;
	if (leads_nowhere(at, &seen))
		rc = ps_error_set(names->err, EPROTO, "the store lists the same page again and again");
	else if (seen.truncated && (!walk->only || (walk->azure && seen.nkeys == 0)) && !(next = ask(walk, &seen)))
		rc = out_of_memory(names);
	if (rc == 0)
		rc = ps_s3_page_objects(
		        body.text, body.nbytes, &seen, take_object, walk, &nskipped, names->err);
	if (nskipped)
		ps_names_warn(names, walk->bucket.bucket, "skipped: keys that are no text");
	ps_http_page_free(*page);
	*page = next;
	ps_s3_page_fini(at);
	*at = seen;
	return rc;
}

static int walk_pages(struct walk *walk)
{
	struct ps_http_page *page = ask(walk, NULL);
	struct ps_s3_page at = {0};
	int rc = page ? 0 : out_of_memory(walk->names);

	while (rc == 0 && page) {
		rc = take_page(walk, &page, &at);
		if (rc == 0)
			rc = ps_names_stopped(walk->names);
	}
	ps_http_page_free(page);
	ps_s3_page_fini(&at);
	ps_strbuf_fini(&walk->url);
	ps_strbuf_fini(&walk->key);
	ps_strbuf_fini(&walk->path);
	ps_strbuf_fini(&walk->dir);
	ps_strbuf_fini(&walk->shown);
	return rc;
}

/* Sources ----------------------------------------------------------------------------------------- */

static int list_prefix(struct walk *walk)
{
	walk->nshown = strlen(walk->bucket.key);
	int rc = walk_pages(walk);

	if (rc == 0 && walk->nkeys == 0)
		rc = ps_error_set(walk->names->err, ENOENT, "%s://%s/%s: there is no key that begins so",
		        walk->bucket.scheme, walk->bucket.bucket, walk->bucket.key);
	if (rc == 0 && walk->nkeys == walk->nmarkers)
		rc = ps_error_set(walk->names->err, ENOENT,
		        "%s://%s/%s: nothing but empty objects that stand for folders", walk->bucket.scheme,
		        walk->bucket.bucket, walk->bucket.key);
	return rc;
}

/* One name without a slash behind it: an object if there is one of that key, else a prefix whose slash was
 * left out. Who may read but not list is believed to mean an object. */
static int list_name(struct walk *walk, const struct ps_source *source)
{
	const char *slash = strrchr(walk->bucket.key, '/');
	ps_autostrbuf struct ps_strbuf dir = {0};

	walk->only = walk->bucket.key;
	walk->nshown = slash ? (size_t)(slash + 1 - walk->bucket.key) : 0;
	int rc = walk_pages(walk);
	if (rc == -EACCES) {
		ps_log_debug("list: %s", walk->names->err->text);
		*walk->names->err = (struct ps_error){0};
		return ps_expand(source, NULL, NULL, NULL, walk->names);
	}
	if (rc || walk->nkeys)
		return rc;
	ps_strbuf_addf(&dir, "%s/", walk->bucket.key);
	if (dir.failed)
		return out_of_memory(walk->names);
	walk->only = NULL;
	walk->bucket.key = dir.s;
	rc = list_prefix(walk);
	if (rc == -ENOENT && walk->nkeys == 0)
		ps_error_set(walk->names->err, ENOENT,
		        "%s: there is neither such an object nor a key that begins with it and a slash%s",
		        source->canonical,
		        strstr(source->canonical, "%2A") ? "; wildcards do not work here: write {000..127} "
		                                           "braces, or a prefix with a / at its end"
		                                         : "");
	return rc;
}

static int list(struct walk *walk, const struct ps_source *source)
{
	if (source->kind == PS_SOURCE_DIR)
		return list_prefix(walk);
	if (source->kind == PS_SOURCE_MANIFEST)
		return ps_http_manifest_list(walk->client, source, NULL, NULL, walk->names);
	if (source->is_pattern || walk->bucket.version)
		return ps_expand(source, NULL, NULL, NULL, walk->names);
	return list_name(walk, source);
}

int ps_s3_list(struct ps_origin *o, struct ps_http_client *c, struct ps_credentials *credentials,
        const struct ps_source *source, bool pin, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_names names;
	struct ps_error mine = {0};
	struct ps_s3_url url = {0};
	struct walk walk = {.client = c, .names = &names, .pin = pin, .endpoint = source->endpoint};

	if (!err)
		err = &mine;
	ps_names_init(&names, &o->lister, fn, arg, stop, err);
	int rc = credentials ? ps_credentials_wait(credentials, stop, err) : 0;
	if (rc == 0)
		rc = ps_s3_url_parse(source->first, &url, err);
	if (rc == 0) {
		walk.bucket = url;
		walk.azure = strcmp(url.scheme, "az") == 0;
		rc = list(&walk, source);
	}
	ps_s3_url_fini(&url);
	ps_names_fini(&names);
	return rc;
}
