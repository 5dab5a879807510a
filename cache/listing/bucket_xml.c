/* Pages of a bucket: ListObjectsV2 and ListObjectVersions of S3, List Blobs of Azure. */
#include "listing/listing.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include <curl/curl.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "base/xml.h"

void ps_s3_page_fini(struct ps_s3_page *page)
{
	free(page->last_key);
	free(page->token);
	free(page->key_marker);
	free(page->version_marker);
	*page = (struct ps_s3_page){0};
}

/* The path below the root element, whichever kind of listing it is. NULL: not a listing. */
static const char *below_root(const char *path)
{
	static const char *const roots[] = {"ListBucketResult", "ListVersionsResult", "EnumerationResults"};

	for (size_t i = 0; i < PS_ARRAY_LEN(roots); i++) {
		size_t n = strlen(roots[i]);

		if (strncmp(path, roots[i], n) == 0 && (path[n] == '/' || !path[n]))
			return path + n + (path[n] == '/');
	}
	return NULL;
}

/* The page ----------------------------------------------------------------------------------------------- */

static int keep(char **to, const char *text)
{
	free(*to);
	*to = *text ? strdup(text) : NULL;
	return *text && !*to ? -ENOMEM : 0;
}

static int page_end(void *arg, const char *path, const char *text)
{
	struct ps_s3_page *page = arg;
	const char *name = below_root(path);

	if (!name)
		return -EPROTO;
	if (strcmp(name, "IsTruncated") == 0)
		page->truncated = strcmp(text, "true") == 0;
	else if (strcmp(name, "EncodingType") == 0)
		page->encoded = strcmp(text, "url") == 0;
	else if (strcmp(name, "NextMarker") == 0 && strncmp(path, "Enum", 4) == 0) {
		page->truncated = *text != '\0';
		return keep(&page->token, text);
	} else if (strcmp(name, "Contents/Key") == 0) {
		page->nkeys++;
		return keep(&page->last_key, text);
	} else if (strcmp(name, "Version/Key") == 0 || strcmp(name, "Blobs/Blob/Name") == 0)
		page->nkeys++;
	else if (strcmp(name, "NextContinuationToken") == 0)
		return keep(&page->token, text);
	else if (strcmp(name, "NextKeyMarker") == 0)
		return keep(&page->key_marker, text);
	else if (strcmp(name, "NextVersionIdMarker") == 0)
		return keep(&page->version_marker, text);
	return 0;
}

/* Objects ------------------------------------------------------------------------------------------------ */

struct objects {
	const struct ps_s3_page *page;
	ps_s3_object_fn fn;
	void *arg;
	uint64_t nskipped;
	int rc; /* what fn returned */

	/* The object that is being parsed. */
	struct ps_strbuf key, version;
	struct ps_remote remote;
	bool old, bad; /* old: not the current version, or a folder; bad: cannot be decoded */
};

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* encoding-type=url is the encoding of forms: servers write a blank as "+" or %20, and a plus always as
 * %2B. */
static bool decode_key(const char *text, struct ps_strbuf *out)
{
	for (; *text; text++) {
		int hi = *text == '%' ? hex(text[1]) : -1, lo = hi >= 0 ? hex(text[2]) : -1;

		if (*text != '%') {
			ps_strbuf_addc(out, *text == '+' ? ' ' : *text);
			continue;
		}
		if (lo < 0 || hi + lo == 0)
			return false;
		ps_strbuf_addc(out, (char)(hi * 16 + lo));
		text += 2;
	}
	return true;
}

/* Takes an ETag in the form of a response header: in quotes, which some stores omit in listings. */
static void take_etag(struct ps_remote *remote, const char *text)
{
	size_t n = strlen(text);
	bool quoted = text[0] == '"' || strncmp(text, "W/", 2) == 0;

	if (n == 0 || n + 3 > PS_ETAG_LEN)
		return;
	for (const char *s = text; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return;
	char *to = remote->etag;
	if (!quoted)
		*to++ = '"';
	memcpy(to, text, n);
	memcpy(to + n, quoted ? "" : "\"", quoted ? 1 : 2);
}

static bool take_size(struct ps_remote *remote, const char *text)
{
	uint64_t v = 0;

	if (!*text)
		return false;
	for (; *text; text++)
		if (!isdigit((unsigned char)*text) || __builtin_mul_overflow(v, 10, &v) ||
		        __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
			return false;
	remote->size = v;
	return v <= INT64_MAX;
}

static void object_begin(void *arg, const char *path)
{
	struct objects *o = arg;
	const char *name = below_root(path);

	if (!name || (strcmp(name, "Contents") != 0 && strcmp(name, "Version") != 0 &&
	                     strcmp(name, "Blobs/Blob") != 0))
		return;
	ps_strbuf_reset(&o->key);
	ps_strbuf_reset(&o->version);
	o->remote = PS_REMOTE_UNKNOWN;
	o->old = o->bad = false;
}

/* Takes a field of an Azure blob: "Name", "Properties/Etag" ... Accounts with a hierarchical namespace list
 * folders, too. */
static void take_blob_part(struct objects *o, const char *part, const char *text)
{
	if (strcmp(part, "Name") == 0) {
		ps_strbuf_reset(&o->key);
		ps_strbuf_add(&o->key, text);
	} else if (strcmp(part, "Properties/Last-Modified") == 0) {
		time_t t = curl_getdate(text, NULL);

		o->remote.mtime_s = t < 0 ? -1 : (int64_t)t;
	} else if (strcmp(part, "Properties/Etag") == 0) {
		take_etag(&o->remote, text);
	} else if (strcmp(part, "Properties/Content-Length") == 0) {
		o->bad = o->bad || !take_size(&o->remote, text);
	} else if (strcmp(part, "Properties/ResourceType") == 0) {
		o->old = strcmp(text, "directory") == 0;
	}
}

static int object_end(void *arg, const char *path, const char *text)
{
	struct objects *o = arg;
	const char *name = below_root(path), *field = name ? strchr(name, '/') : NULL;

	if (!name)
		return -EPROTO;
	if (strcmp(name, "Contents") == 0 || strcmp(name, "Version") == 0 ||
	        strcmp(name, "Blobs/Blob") == 0) {
		struct ps_s3_object object = {.key = ps_strbuf_peek(&o->key),
		        .version = ps_strbuf_peek(&o->version),
		        .remote = o->remote};

		if (o->key.failed || o->version.failed)
			return -ENOMEM;
		bool skipped = !o->old && (o->bad || !o->key.len);
		o->nskipped += skipped;
		if (!o->old && !skipped)
			o->rc = o->fn(o->arg, &object);
		return o->rc;
	}
	if (strncmp(name, "Blobs/Blob/", 11) == 0) {
		take_blob_part(o, name + 11, text);
		return 0;
	}
	if (!field || (strncmp(name, "Contents/", 9) != 0 && strncmp(name, "Version/", 8) != 0))
		return 0;
	field++;
	if (strcmp(field, "Key") == 0) {
		ps_strbuf_reset(&o->key);
		if (!o->page->encoded)
			ps_strbuf_add(&o->key, text);
		else if (!decode_key(text, &o->key))
			o->bad = true;
	} else if (strcmp(field, "VersionId") == 0) {
		ps_strbuf_reset(&o->version);
		ps_strbuf_add(&o->version, text);
	} else if (strcmp(field, "IsLatest") == 0) {
		o->old = strcmp(text, "true") != 0;
	} else if (strcmp(field, "LastModified") == 0) {
		o->remote.mtime_s = ps_clock_parse_rfc3339(text);
	} else if (strcmp(field, "ETag") == 0) {
		take_etag(&o->remote, text);
	} else if (strcmp(field, "Size") == 0) {
		o->bad = o->bad || !take_size(&o->remote, text);
	}
	return 0;
}

/* Pages, parsed ------------------------------------------------------------------------------------------ */

static int not_a_listing(int rc, struct ps_error *err)
{
	if (rc == -EPROTO)
		ps_error_prefix(err, rc, "not the listing of a bucket");
	return rc;
}

/* Replaces an encoded key of the page by the decoded one. -EPROTO: the key cannot be decoded. -ENOMEM. After
 * an error *text is NULL. */
static int decode_text(char **text)
{
	struct ps_strbuf b = {0};
	bool good = decode_key(*text, &b);

	free(*text);
	*text = ps_strbuf_take(&b);
	if (!*text)
		return -ENOMEM;
	if (!good)
		free(ps_steal_ptr(text));
	return good ? 0 : -EPROTO;
}

int ps_s3_page_parse(const char *text, size_t nbytes, struct ps_s3_page *ret, struct ps_error *err)
{
	static const struct ps_xml_reader reader = {.end = page_end};
	struct ps_s3_page page = {0};
	int rc = ps_xml_parse(text, nbytes, &reader, &page, err);

	if (rc == 0 && page.encoded && page.last_key)
		(void)decode_text(&page.last_key);
	if (rc == 0 && page.encoded && page.key_marker)
		rc = decode_text(&page.key_marker);
	if (rc == 0 && page.truncated && !page.token && !page.key_marker)
		rc = ps_error_set(err, EPROTO,
		        "the server says that there is more, but gives no marker for the next page");
	if (rc) {
		ps_s3_page_fini(&page);
		return not_a_listing(rc, err);
	}
	*ret = page;
	return 0;
}

int ps_s3_page_objects(const char *text, size_t nbytes, const struct ps_s3_page *page, ps_s3_object_fn fn,
        void *arg, uint64_t *ret_nskipped, struct ps_error *err)
{
	static const struct ps_xml_reader reader = {.begin = object_begin, .end = object_end};
	struct objects o = {.page = page, .fn = fn, .arg = arg};
	struct ps_error mine = {0};
	int rc = ps_xml_parse(text, nbytes, &reader, &o, &mine);

	ps_strbuf_fini(&o.key);
	ps_strbuf_fini(&o.version);
	*ret_nskipped = o.nskipped;
	if (o.rc)
		return o.rc; /* the callback has set err */
	if (rc && err)
		*err = mine;
	return not_a_listing(rc, err);
}
