#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/secret.h"
#include "base/url.h"
#include "http/http.h"
#include "listing/listing.h"
#include "origin/origin_private.h"

/* Listing ------------------------------------------------------------------------------------------------ */

#define PAGES_AHEAD 8 /* directories that are requested at the same time */

/* A stack of directories still to be read; the uppermost PAGES_AHEAD have been requested. */
struct dir {
	struct dir *below;
	struct ps_http_page *page;
	unsigned depth;
	char *url;                 /* canonical, ends in "/" */
	char *path;                /* in the mount, "" or ends in "/" */
	uint64_t nentries, nshown; /* of its page */
};

struct walk {
	struct ps_names *names;
	struct dir *top;
	unsigned nasked;
	uint64_t ndirs;

	/* About the page that is being parsed. */
	struct dir *dir;
	const char *base; /* its URL after redirects, up to the last "/" */
	struct ps_strbuf url, path;
};

static void dir_free(struct walk *walk, struct dir *dir)
{
	walk->nasked -= dir->page != NULL;
	ps_http_page_free(dir->page);
	free(dir->url);
	free(dir->path);
	free(dir);
}

static int push(struct walk *walk, const char *url, const char *path, unsigned depth)
{
	struct dir *dir;

	if (depth > PS_LIST_MAX_DEPTH) {
		ps_names_warn(walk->names, path, "skipped: directories nested too deep");
		return 0;
	}
	if (++walk->ndirs > PS_LIST_MAX_DIRS)
		return ps_error_set(
		        walk->names->err, E2BIG, "listing: more than %d directories", PS_LIST_MAX_DIRS);
	dir = calloc(1, sizeof(*dir));
	if (!dir || !(dir->url = strdup(url)) || !(dir->path = strdup(path))) {
		if (dir)
			dir_free(walk, dir);
		return ps_names_no_memory(walk->names);
	}
	dir->depth = depth;
	dir->below = walk->top;
	walk->top = dir;
	return 0;
}

static int take_entry(void *arg, const struct ps_listing_entry *entry)
{
	struct walk *walk = arg;

	walk->dir->nentries++;
	if (entry->why || !*entry->name || strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0 ||
	        strchr(entry->name, '/')) {
		ps_names_warn(walk->names, entry->name,
		        entry->why ? entry->why : "skipped: not a name that can be shown");
		return 0;
	}
	ps_strbuf_reset(&walk->url);
	ps_strbuf_add(&walk->url, walk->base);
	ps_url_encode(entry->name, strlen(entry->name), false, &walk->url);
	ps_strbuf_reset(&walk->path);
	ps_strbuf_add(&walk->path, walk->dir->path);
	ps_s3_part(entry->name, walk->dir->depth == 0, &walk->path);
	if (entry->is_dir) {
		ps_strbuf_addc(&walk->url, '/');
		ps_strbuf_addc(&walk->path, '/');
	}
	if (walk->url.failed || walk->path.failed)
		return ps_names_no_memory(walk->names);
	if (entry->is_dir && !ps_names_enters(walk->names, walk->path.s))
		return 0;
	walk->dir->nshown++;
	if (entry->is_dir)
		return push(walk, walk->url.s, walk->path.s, walk->dir->depth + 1);
	struct ps_listed listed = {.path = walk->path.s, .url = walk->url.s, .remote = entry->remote};
	return ps_names_add(walk->names, &listed);
}

/* The directory of a page: its URL after redirects (to "dir/", to a mirror), up to the last "/". The page's
 * entries are relative to it. */
static char *base_of(const char *url)
{
	ps_autourl struct ps_url u = {0};

	if (ps_url_parse(url, &u, NULL) < 0)
		return NULL;
	char *slash = strrchr(u.path, '/');
	slash[1] = '\0';
	free(u.query);
	u.query = NULL;
	return ps_url_compose(&u);
}

static int read_dir(struct walk *walk, struct dir *dir)
{
	char safe[PS_URL_TEXT_LEN];
	struct ps_names *names = walk->names;
	struct ps_error err = {0};
	struct ps_page_body body;
	int rc = ps_http_page_wait(dir->page, names->stop, &body, &err);

	if (rc && dir->depth && (rc == -ENOENT || rc == -EACCES)) {
		if (rc == -EACCES)
			return ps_names_unread(names, dir->path, "forbidden: shown as far as it is known");
		ps_names_warn(names, dir->path, "skipped: not found");
		return 0;
	}
	if (rc) {
		if (names->err)
			*names->err = err;
		return rc;
	}
	ps_autofree char *base = base_of(body.url);
	if (!base)
		return ps_names_no_memory(names);
	walk->dir = dir;
	walk->base = base;
	struct ps_listing *listing = ps_listing_new(body.is_json, base, take_entry, walk, names->err);
	rc = listing ? ps_packed_each(body.packed, ps_listing_feed, listing) : -ENOMEM;
	ps_listing_free(listing);
	if (rc == -ENOMEM)
		return ps_names_no_memory(names);
	if (rc == 0 && dir->depth && dir->nshown == 0)
		return ps_names_add_dir(names, dir->path, dir->nentries == 0);
	if (rc == -EPROTO || rc == -EINVAL)
		ps_error_prefix(names->err, rc, "%s", ps_url_redact(dir->url, safe));
	return rc;
}

static int list_dir(struct ps_http_client *c, const char *url, struct ps_names *names)
{
	struct walk walk = {.names = names};
	int rc = push(&walk, url, "", 0);

	while (!rc && walk.top) {
		rc = ps_names_stopped(names);
		for (struct dir *dir = walk.top; dir && !rc; dir = dir->below) {
			if (dir->page)
				continue;
			if (dir != walk.top && walk.nasked >= PAGES_AHEAD)
				break;
			dir->page = ps_http_page_start(c, dir->url, PS_LIST_MAX_PAGE_NBYTES, true);
			if (dir->page)
				walk.nasked++;
			else
				rc = ps_names_no_memory(names);
		}
		if (rc)
			break;
		struct dir *dir = walk.top;
		walk.top = dir->below;
		rc = read_dir(&walk, dir);
		dir_free(&walk, dir);
	}
	for (struct dir *dir; (dir = walk.top);) {
		walk.top = dir->below;
		dir_free(&walk, dir);
	}
	ps_strbuf_fini(&walk.url);
	ps_strbuf_fini(&walk.path);
	return rc;
}

int ps_http_manifest_list(struct ps_http_client *c, const struct ps_origin_source *source, ps_sign_fn sign,
        void *sign_arg, struct ps_names *names)
{
	struct ps_page_body body;

	if (source->canonical[0] == '@')
		return ps_source_expand(source, NULL, sign, sign_arg, names);
	struct ps_http_page *page = ps_http_page_start(c, source->canonical, PS_MANIFEST_MAX_NBYTES, true);
	if (!page)
		return ps_names_no_memory(names);
	int rc = ps_http_page_wait(page, names->stop, &body, names->err);
	if (!rc)
		rc = ps_source_expand(source, body.packed, sign, sign_arg, names);
	ps_http_page_free(page);
	return rc;
}

/* The origin --------------------------------------------------------------------------------------------- */

static int sign(void *arg, const char *url, const char *signature)
{
	return ps_http_client_sign(arg, url, signature);
}

static int list(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop, struct ps_error *err)
{
	struct ps_http_origin *http = PS_CONTAINER_OF(o, struct ps_http_origin, origin);
	const struct ps_origin_source *source = &http->source;
	struct ps_names names;
	struct ps_error mine = {0};
	int rc;

	ps_names_init(&names, &o->lister, fn, arg, stop, err ? err : &mine);
	if (source->kind == PS_SOURCE_DIR)
		rc = list_dir(&http->client, source->canonical, &names);
	else if (source->kind == PS_SOURCE_MANIFEST)
		rc = ps_http_manifest_list(&http->client, source, sign, &http->client, &names);
	else
		rc = ps_source_expand(source, NULL, sign, &http->client, &names);
	ps_names_fini(&names);
	return rc;
}

static void http_close(struct ps_origin *o)
{
	struct ps_http_origin *http = PS_CONTAINER_OF(o, struct ps_http_origin, origin);

	ps_http_client_fini(&http->client);
	ps_source_fini(&http->source);
	free(http);
}

static const struct ps_origin_ops http_ops = {
        .name = "http",
        .list = list,
        .close = http_close,
        PS_HTTP_ORIGIN_OPS,
};

/* The URLs of a local manifest may have signatures. These must be known before the first get, even if the
 * source is not listed before. */
static int ignore(void *arg, const struct ps_listed *listed)
{
	(void)arg, (void)listed;
	return 0;
}

/* Looks for a "?" in the text. -ECANCELED: found. */
static int find_query(void *arg, const char *text, size_t n, bool more, size_t *ret_used)
{
	(void)arg, (void)more;
	*ret_used = n;
	return memchr(text, '?', n) ? -ECANCELED : 0;
}

static int learn_signatures(struct ps_http_origin *http, struct ps_error *err)
{
	const struct ps_origin_source *source = &http->source;
	struct ps_names names;

	int rc = ps_packed_each(&source->text, find_query, NULL);

	if (rc != -ECANCELED)
		return rc ? ps_no_memory(err) : 0;
	ps_names_init(&names, NULL, ignore, NULL, NULL, err);
	names.quiet = true;
	rc = ps_source_expand(source, &source->text, sign, &http->client, &names);
	ps_names_fini(&names);
	return rc;
}

int ps_http_open(struct ps_origin_source *source, const struct ps_origin_options *options,
        struct ps_origin **ret, struct ps_error *err)
{
	struct ps_http_origin *http = ps_http_origin_new(sizeof(*http), &http_ops, source, err);

	if (!http)
		return -ENOMEM;
	ps_autourl struct ps_url u = {0};
	struct ps_http_options mine = options->http;
	ps_autosecret char *found = NULL;
	int rc = ps_url_parse(http->source.first, &u, err);
	bool authorized = mine.user_password || u.user;
	for (const char *const *h = mine.headers; h && *h; h++)
		authorized = authorized || strncasecmp(*h, "authorization:", 14) == 0;
	/* If there are no other credentials, those of .netrc are used. */
	if (rc == 0 && !authorized)
		rc = ps_netrc_user_password(&options->http, u.host, &found, err);
	if (found)
		mine.user_password = found;
	if (rc == 0)
		rc = ps_http_client_init(&http->client, http->source.first, &mine, err);
	if (rc) {
		ps_source_fini(&http->source);
		free(http);
		return rc;
	}
	ps_origin_has_tiers(&http->origin, &http->client);
	rc = learn_signatures(http, err);
	if (rc) {
		http_close(&http->origin);
		return rc;
	}
	*ret = &http->origin;
	return 0;
}
