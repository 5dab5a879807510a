/* Listings of buckets: S3, Google and Azure. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/url.h"
#include "http/http.h"
#include "listing/listing.h"
#include "origin/bucket_private.h"
#include "origin/origin_private.h"

/* Parts. A chain of pages is one page after another: 1,000 keys in each round trip. So a long listing is
 * split into parts, each of the keys after `start` up to `end`, with a chain of its own. Nothing is known of
 * the keys in advance: whenever this thread would have to wait for a page, the widest part is split at a text
 * that is guessed (ps_split_between()). A part without keys has cost a request, and has shown that its
 * neighbour ends earlier. One thread takes all pages, the oldest request's first.
 *
 * Each key is in one part, whatever the guesses are, as long as the store lists keys in the order of their
 * bytes. A store that does not, or that cannot begin after a text, is noticed by its first key out of order,
 * or by a border after which two parts see different keys; then all parts are dropped, and the bucket is
 * listed again in one chain.
 *
 * If a key p has the name of a folder, that folder is shown under another name (keep_apart()). So p must be
 * listed before the keys p/... in the folder. Suppose that the part which begins after `start` lists p/...,
 * and that another part lists p. Then p <= start < p/..., so `start` begins with p. `start` is a[0..k) x DEL,
 * where a is the last key that was listed before the split, and x a character. There are three cases. p ends
 * within a[0..k): then a begins with p, and p was listed before a, by the part that was split or (by the same
 * argument) earlier. p ends later, but is shorter than `start`: this is impossible, because the byte that
 * follows p in `start` is greater than a slash, so that p/... < start. p is `start`, a folder whose name ends
 * in DEL: buckets with such a folder are listed in one chain. */

#define PARTS_MAX 8

/* Where a part ends and the next one begins. Both parts may have listed the first key after this place: if it
 * was not the same key, the store does not list in the order of bytes, or cannot begin after a text. */
struct border {
	unsigned nparts;    /* that are not over yet */
	char *left, *right; /* that key, as seen by each part; NULL: it saw none */
};

struct part {
	struct part *next;
	char *start, *end;        /* keys k with start < k <= end; NULL: from the first, to the last */
	struct border *from, *to; /* at start and end; NULL: there is none */
	struct ps_http_page *page;
	struct ps_s3_page at; /* the page before it */
	char *first;          /* key; NULL: none was listed */
	struct ps_strbuf last;
	bool seen;  /* a key was listed */
	bool over;  /* a key after `end` was listed */
	bool whole; /* no text was found to split it at, for now */
};

struct walk {
	struct ps_http_client *client;
	struct ps_names *names;
	const char *endpoint; /* the source's */
	bool azure;
	struct ps_s3_url bucket; /* the source, with its prefix as key; borrowed */
	size_t nshown;           /* length of the key prefix that becomes the mount's root and is not shown */
	bool pin;
	const char *only; /* the only key that is wanted; NULL: all */
	uint64_t nkeys, nmarkers;

	struct part *parts, **parts_end; /* in the order of requests */
	unsigned nparts, nsplits;
	unsigned credit;   /* pages with keys so far, less one for each split; PARTS_MAX at most */
	bool chained;      /* one chain, no parts */
	bool disorder;     /* `chained` was set after a split: the listing begins again */
	struct part *part; /* whose page is taken */
	struct ps_split_alphabet alphabet;

	struct ps_strbuf url, key, path;
	struct ps_strbuf dir, shown; /* the folder of the last object, and its name in the mount */
};

/* Pages -------------------------------------------------------------------------------------------------- */

/* Requests the page that follows `after`, or (NULL) the first one after the key `start` (NULL: of all), as
 * bucket_private.h describes. */
static struct ps_http_page *ask(struct walk *walk, const struct ps_s3_page *after, const char *start)
{
	struct ps_sigv4_pair pairs[7];
	size_t n = 0;
	ps_autostrbuf struct ps_strbuf b = {0};

	if (walk->azure) {
		pairs[n++] = (struct ps_sigv4_pair){"comp", "list"};
		pairs[n++] = (struct ps_sigv4_pair){"restype", "container"};
		pairs[n++] = (struct ps_sigv4_pair){"prefix", walk->bucket.key};
		if (after)
			pairs[n++] = (struct ps_sigv4_pair){"marker", after->token};
	} else {
		pairs[n++] = walk->pin ? (struct ps_sigv4_pair){"versions", ""}
		                       : (struct ps_sigv4_pair){"list-type", "2"};
		pairs[n++] = (struct ps_sigv4_pair){"encoding-type", "url"};
		pairs[n++] = (struct ps_sigv4_pair){"prefix", walk->bucket.key};
	}
	if (walk->only && !walk->azure)
		pairs[n++] = (struct ps_sigv4_pair){"max-keys", "1"};
	if (walk->azure) {
		/* its pages have no other parameters */
	} else if (after && after->token) {
		pairs[n++] = (struct ps_sigv4_pair){"continuation-token", after->token};
	} else if (after) {
		pairs[n++] = (struct ps_sigv4_pair){"key-marker", after->key_marker};
		if (after->version_marker)
			pairs[n++] = (struct ps_sigv4_pair){"version-id-marker", after->version_marker};
	} else if (start) {
		pairs[n++] = (struct ps_sigv4_pair){"start-after", (char *)start};
	}
	ps_strbuf_addf(&b, "%s://%s?", walk->bucket.scheme, walk->bucket.bucket);
	ps_sigv4_query(pairs, n, &b);
	return b.failed ? NULL : ps_http_page_start(walk->client, b.s, PS_S3_PAGE_MAX_NBYTES, false);
}

/* In a bucket "a" and "a/b" may both be objects, but in the mount "a" cannot be both a file and a folder.
 * "a" is listed first and keeps its name; the folder is shown as "a%00", which cannot be a key. */
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

/* Checks what parts depend on. False: the key is not this part's, or the listing begins again. */
static bool take_key(struct walk *walk, const char *key)
{
	struct part *part = walk->part;
	const char *last = part->last.len ? part->last.s : part->start;

	if ((last && strcmp(key, last) <= 0) || strstr(key, "\x7f/")) {
		walk->chained = true;
		walk->disorder = walk->nsplits > 0;
		return !walk->disorder;
	}
	if (!part->seen && part->from)
		part->from->right = strdup(key);
	part->seen = true;
	ps_strbuf_reset(&part->last);
	ps_strbuf_add(&part->last, key);
	if (part->end && strcmp(key, part->end) > 0) {
		if (!part->over && part->to)
			part->to->left = strdup(key);
		part->over = true;
		return false;
	}
	if (!part->first)
		part->first = strdup(key); /* without it the part is not split */
	ps_split_note(&walk->alphabet, key);
	return true;
}

static int take_object(void *arg, const struct ps_s3_object *object)
{
	struct walk *walk = arg;
	struct ps_s3_url url = walk->bucket;
	size_t n = strlen(object->key);

	if (walk->disorder || (!walk->chained && !take_key(walk, object->key)))
		return 0;
	if (walk->only && strcmp(object->key, walk->only) != 0)
		return 0;
	if (strncmp(object->key, walk->bucket.key, strlen(walk->bucket.key)) != 0)
		return ps_error_set(walk->names->err, EPROTO, "the store lists keys without the prefix");
	walk->nkeys++;
	/* Consoles make "folders": empty objects whose names end in a slash. */
	if (n && object->key[n - 1] == '/' && object->remote.size == 0) {
		walk->nmarkers++;
		ps_strbuf_reset(&walk->key);
		ps_s3_path(object->key + walk->nshown, &walk->key);
		if (walk->key.failed)
			return ps_names_no_memory(walk->names);
		/* "x/" is shown as the directory "x". The path of "x//" ends in "/%". */
		char *end = walk->key.len > 1 ? strrchr(walk->key.s, '/') : NULL;
		if (!end || strcmp(end, "/%") != 0)
			return 0;
		end[1] = '\0';
		return ps_names_enters(walk->names, walk->key.s)
		               ? ps_names_add_dir(walk->names, walk->key.s, true)
		               : 0;
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
	        walk->shown.failed || walk->part->last.failed)
		return ps_names_no_memory(walk->names);
	struct ps_listed listed = {.path = walk->path.s, .url = walk->url.s, .remote = object->remote};
	return ps_names_add(walk->names, &listed);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* True if this page names the same next page as the page before it did: the store ignores the token or marker
 * of the request, and would be listed forever. */
static bool leads_nowhere(const struct ps_s3_page *before, const struct ps_s3_page *page)
{
	return page->truncated && same_text(before->token, page->token) &&
	       same_text(before->key_marker, page->key_marker) &&
	       same_text(before->version_marker, page->version_marker);
}

/* Parts -------------------------------------------------------------------------------------------------- */

static void border_leave(struct walk *walk, struct border *border)
{
	if (!border || --border->nparts > 0)
		return;
	if (border->left && !same_text(border->left, border->right))
		walk->chained = walk->disorder = true;
	free(border->left);
	free(border->right);
	free(border);
}

static void part_free(struct walk *walk, struct part *part)
{
	border_leave(walk, part->from);
	border_leave(walk, part->to);
	ps_http_page_free(part->page);
	ps_s3_page_fini(&part->at);
	ps_strbuf_fini(&part->last);
	free(part->first);
	free(part->start);
	free(part->end);
	free(part);
}

static void append(struct walk *walk, struct part *part)
{
	part->next = NULL;
	*walk->parts_end = part;
	walk->parts_end = &part->next;
	walk->nparts++;
}

static struct part *take_first(struct walk *walk)
{
	struct part *part = walk->parts;

	walk->parts = part->next;
	if (!walk->parts)
		walk->parts_end = &walk->parts;
	walk->nparts--;
	return part;
}

/* Adds a part and requests its first page. The part takes over all that is given. */
static int add_part(struct walk *walk, char *start, char *end, struct border *from, struct border *to)
{
	struct part *part = calloc(1, sizeof(*part));

	if (!part) {
		free(start);
		free(end);
		border_leave(walk, from);
		border_leave(walk, to);
		return ps_names_no_memory(walk->names);
	}
	part->start = start;
	part->end = end;
	part->from = from;
	part->to = to;
	part->page = ask(walk, NULL, start);
	if (!part->page) {
		part_free(walk, part);
		return ps_names_no_memory(walk->names);
	}
	append(walk, part);
	return 0;
}

static size_t same_bytes(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

/* The part that seems to span the widest range of keys: its last key and its end differ in the earliest byte,
 * or among equals by most in that byte. NULL: no part can be split. */
static struct part *widest_part(const struct walk *walk)
{
	struct part *widest = NULL;
	size_t depth = 0;
	int gap = 0;

	for (struct part *part = walk->parts; part; part = part->next) {
		if (part->whole || part->over || !part->first)
			continue;
		size_t d = part->end ? same_bytes(part->last.s, part->end) : strlen(walk->bucket.key);
		int g = (part->end ? (unsigned char)part->end[d] : 256) - (unsigned char)part->last.s[d];

		if (!widest || d < depth || (d == depth && g > gap)) {
			widest = part;
			depth = d;
			gap = g;
		}
	}
	return widest;
}

/* Splits the widest part that can be split, if any. */
static int split(struct walk *walk, bool *ret_split)
{
	struct part *part;

	*ret_split = false;
	if (walk->chained || walk->nparts >= PARTS_MAX || walk->credit < 2)
		return 0;
	while ((part = widest_part(walk))) {
		ps_autostrbuf struct ps_strbuf at = {0};

		if (!ps_split_between(&walk->alphabet, part->last.s, part->end, strlen(walk->bucket.key),
		            same_bytes(part->first, part->last.s), &at)) {
			part->whole = true;
			continue;
		}
		char *start = strdup(at.s);
		struct border *border = calloc(1, sizeof(*border));
		if (!start || !border) {
			free(start);
			free(border);
			return ps_names_no_memory(walk->names);
		}
		border->nparts = 2;
		int rc = add_part(walk, start, part->end, border, part->to);
		part->end = rc == 0 ? ps_strbuf_take(&at) : NULL;
		part->to = border;
		walk->credit--;
		walk->nsplits++;
		*ret_split = true;
		return rc;
	}
	return 0;
}

/* Waits for the part's page; meanwhile splits what is left. Some stores refuse a start-after. */
static int wait_page(struct walk *walk, struct part *part, struct ps_page_body *ret)
{
	struct ps_names *names = walk->names;
	bool more = true;
	int rc = 0;

	while (rc == 0 && more && !ps_http_page_is_done(part->page))
		rc = split(walk, &more);
	if (rc == 0)
		rc = ps_http_page_wait(part->page, names->stop, ret, names->err);
	if (rc && part->start && !part->at.token && rc != -ENOMEM && rc != -ECANCELED) {
		ps_log_debug("list: the store refuses to begin after a key: %s", names->err->text);
		*names->err = (struct ps_error){0};
		walk->chained = walk->disorder = true;
		return 0;
	}
	return rc;
}

/* True if the part has more pages after this one. */
static bool goes_on(const struct walk *walk, const struct part *part, const struct ps_s3_page *page)
{
	bool beyond = part->end && page->last_key && strcmp(page->last_key, part->end) > 0;

	return page->truncated && !beyond && (!walk->only || (walk->azure && page->nkeys == 0));
}

/* True if the page's last key comes after that of the page before it. */
static bool advances(const struct ps_s3_page *before, const struct ps_s3_page *page)
{
	const char *old = before->key_marker ? before->key_marker : before->last_key;
	const char *last = page->key_marker ? page->key_marker : page->last_key;

	return page->nkeys && (!old || !last || strcmp(last, old) > 0);
}

/* Takes the part's page, and requests the next one while this one is merged into the index. */
static int take_page(struct walk *walk, struct part *part)
{
	struct ps_names *names = walk->names;
	struct ps_http_page *next = NULL;
	struct ps_page_body body;
	struct ps_s3_page seen = {0};
	uint64_t nskipped = 0, nfiles = names->nfiles;
	int rc = wait_page(walk, part, &body);

	if (rc == 0 && !walk->disorder)
		rc = ps_s3_page_parse(body.text, body.nbytes, &seen, names->err);
	if (rc || walk->disorder)
		return rc;
	if (leads_nowhere(&part->at, &seen))
		rc = ps_error_set(names->err, EPROTO, "the store lists the same page again and again");
	else if (goes_on(walk, part, &seen) && !(next = ask(walk, &seen, NULL)))
		rc = ps_names_no_memory(names);
	walk->part = part;
	if (rc == 0)
		rc = ps_s3_page_objects(
		        body.text, body.nbytes, &seen, take_object, walk, &nskipped, names->err);
	if (rc == 0)
		rc = ps_names_page(names, names->nfiles > nfiles || advances(&part->at, &seen));
	if (nskipped) {
		names->nskipped += nskipped - 1;
		ps_names_warn(names, walk->bucket.bucket, "skipped: keys that are not text");
	}
	walk->credit = PS_MIN(walk->credit + (seen.nkeys > 0), (unsigned)PARTS_MAX);
	ps_http_page_free(part->page);
	part->page = next;
	part->whole = false;
	ps_s3_page_fini(&part->at);
	part->at = seen;
	return rc;
}

static void drop_parts(struct walk *walk)
{
	while (walk->parts)
		part_free(walk, take_first(walk));
}

static int walk_parts(struct walk *walk)
{
	int rc = add_part(walk, NULL, NULL, NULL, NULL);

	while (rc == 0 && walk->parts && !walk->disorder) {
		/* The first part stays in the list meanwhile, so that it can be split. */
		rc = take_page(walk, walk->parts);
		struct part *part = take_first(walk);
		if (part->page && !part->over)
			append(walk, part);
		else
			part_free(walk, part);
		if (rc == 0)
			rc = ps_names_stopped(walk->names);
	}
	drop_parts(walk);
	return rc;
}

static int walk_pages(struct walk *walk)
{
	walk->parts_end = &walk->parts;
	walk->chained = walk->azure || walk->pin || walk->only;
	int rc = walk_parts(walk);
	if (rc == 0 && walk->disorder) {
		ps_log_info(
		        "list: %s://%s: listed again, page by page: the store lists keys out of order, or "
		        "cannot begin after a key, or a folder's name ends in a control character",
		        walk->bucket.scheme, walk->bucket.bucket);
		walk->disorder = false;
		walk->names->again = true;
		walk->nkeys = walk->nmarkers = walk->names->nskipped = 0;
		ps_strbuf_reset(&walk->dir);
		ps_strbuf_reset(&walk->shown);
		rc = walk_parts(walk);
	} else if (walk->nsplits) {
		ps_log_debug("list: %s://%s: in %u parts", walk->bucket.scheme, walk->bucket.bucket,
		        walk->nsplits + 1);
	}
	ps_strbuf_fini(&walk->url);
	ps_strbuf_fini(&walk->key);
	ps_strbuf_fini(&walk->path);
	ps_strbuf_fini(&walk->dir);
	ps_strbuf_fini(&walk->shown);
	return rc;
}

/* Sources ------------------------------------------------------------------------------------------------ */

static int list_prefix(struct walk *walk)
{
	walk->nshown = strlen(walk->bucket.key);
	int rc = walk_pages(walk);

	if (rc == 0 && walk->nkeys == 0)
		rc = ps_error_set(walk->names->err, ENOENT, "%s://%s/%s: there is no key with this prefix",
		        walk->bucket.scheme, walk->bucket.bucket, walk->bucket.key);
	if (rc == 0 && walk->nkeys == walk->nmarkers)
		rc = ps_error_set(walk->names->err, ENOENT,
		        "%s://%s/%s: nothing but empty objects that stand for folders", walk->bucket.scheme,
		        walk->bucket.bucket, walk->bucket.key);
	return rc;
}

/* Lists a name without a trailing slash: an object if that key exists, otherwise a prefix whose slash was
 * left out. If listing is denied, the name is taken for an object. */
static int list_name(struct walk *walk, const struct ps_origin_source *source)
{
	const char *slash = strrchr(walk->bucket.key, '/');
	ps_autostrbuf struct ps_strbuf dir = {0};

	walk->only = walk->bucket.key;
	walk->nshown = slash ? (size_t)(slash + 1 - walk->bucket.key) : 0;
	int rc = walk_pages(walk);
	if (rc == -EACCES) {
		ps_log_debug("list: %s", walk->names->err->text);
		*walk->names->err = (struct ps_error){0};
		return ps_source_expand(source, NULL, NULL, NULL, walk->names);
	}
	if (rc || walk->nkeys)
		return rc;
	ps_strbuf_addf(&dir, "%s/", walk->bucket.key);
	if (dir.failed)
		return ps_names_no_memory(walk->names);
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

static int list(struct walk *walk, const struct ps_origin_source *source)
{
	if (source->kind == PS_SOURCE_DIR)
		return list_prefix(walk);
	if (source->kind == PS_SOURCE_MANIFEST)
		return ps_http_manifest_list(walk->client, source, NULL, NULL, walk->names);
	if (source->is_pattern || walk->bucket.version)
		return ps_source_expand(source, NULL, NULL, NULL, walk->names);
	return list_name(walk, source);
}

int ps_s3_list(struct ps_origin *o, struct ps_http_client *c, struct ps_credentials *credentials,
        const struct ps_origin_source *source, bool pin, ps_list_fn fn, void *arg, const _Atomic bool *stop,
        struct ps_error *err)
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
