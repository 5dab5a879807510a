/* S3 without a server: names of objects, pages of listings, refusals, and where requests are sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "origin/bucket_private.h"
#include "listing/listing.h"
#include "base/url.h"
#include "base/xml.h"

/* Names -------------------------------------------------------------------------------------------------- */

static void keys_are_shown_as_safe_paths(void **state)
{
	static const struct {
		const char *key, *path;
	} rows[] = {
	        {"train/0001.tar", "train/0001.tar"},
	        {"a b+c=d~e#f?g&h@i:j;k,l*m!n'o(p)q$r[s]", "a b+c=d~e#f?g&h@i:j;k,l*m!n'o(p)q$r[s]"},
	        {"\xc3\xa4/\xe6\x97\xa5", "\xc3\xa4/\xe6\x97\xa5"},
	        {"100%", "100%"},
	        {"a%20b", "a%20b"},
	        {"a%2Fb", "a%2Fb"},
	        {"tab\there", "tab%09here"},
	        {"\x7f", "%7F"},
	        {"a//b", "a/%/b"},
	        {"/a", "%/a"},
	        {"a/", "a/%"},
	        {"./a/../b", "%2E/a/%2E%2E/b"},
	        {"...", "..."},
	        {".penstock/x", "%2Epenstock/x"},
	        {"a/.penstock", "a/.penstock"},
	        {"%", "%25"},
	        {"%/%25", "%25/%2525"},
	        {"%2E", "%252E"},
	        {"%2E%2E/%2E", "%252E%2E/%252E"},
	        {"%2Epenstock", "%252Epenstock"},
	        {"x/%2Epenstock", "x/%2Epenstock"},
	        {"a%0Ab%0ab", "a%250Ab%0ab"},
	        {"a%250Ab", "a%25250Ab"},
	        {"a%00", "a%2500"},
	};
	struct ps_strbuf b = {0};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		ps_strbuf_reset(&b);
		ps_s3_path(rows[i].key, &b);
		assert_string_equal(ps_strbuf_peek(&b), rows[i].path);
		assert_int_equal(ps_path_check(ps_strbuf_peek(&b)), 0);
	}
	ps_strbuf_fini(&b);
}

/* All keys of LEN of the characters that matter: no two have the same path, and each path is valid. */
static void no_two_keys_share_a_path(void **state)
{
	static const char letters[] = "%25E0A./\n";
	enum { LEN = 6, BASE = sizeof(letters) - 1, COUNT = BASE * BASE * BASE * BASE * BASE * BASE };
	char(*paths)[LEN * 4 + 16] = calloc(COUNT, sizeof(*paths));

	(void)state;
	assert_non_null(paths);
	for (int i = 0; i < COUNT; i++) {
		char key[LEN + 1] = "";
		struct ps_strbuf b = {0};

		for (int j = 0, rest = i; j < LEN; j++, rest /= BASE)
			key[j] = letters[rest % BASE];
		ps_s3_path(key, &b);
		assert_true(b.len < sizeof(*paths));
		assert_int_equal(ps_path_check(b.s), 0);
		memcpy(paths[i], b.s, b.len + 1);
		ps_strbuf_fini(&b);
	}
	qsort(paths, COUNT, sizeof(*paths), (int (*)(const void *, const void *))strcmp);
	for (int i = 1; i < COUNT; i++)
		if (strcmp(paths[i - 1], paths[i]) == 0)
			fail_msg("two keys are both shown as %s", paths[i]);
	free(paths);
}

static void urls_of_objects_keep_every_byte_of_the_key(void **state)
{
	static const struct {
		const char *url, *bucket, *key, *version, *endpoint;
	} rows[] = {
	        {"s3://b/a+b%20c%2Fd", "b", "a+b c/d", NULL, NULL},
	        {"s3://b/a%zz%4", "b", "a%zz%4", NULL, NULL},
	        {"s3://b/a?b=c", "b", "a?b=c", NULL, NULL},
	        {"s3://b/a?versionId=", "b", "a", NULL, NULL},
	        {"s3://b/a?versionId=1&x=2", "b", "a?versionId=1&x=2", NULL, NULL},
	        {"s3://b/a?endpoint=http%3A//h:1&versionId=v%2F", "b", "a", "v/", "http://h:1"},
	        {"s3://b/../x/./y//z/", "b", "../x/./y//z/", NULL, NULL},
	        {"gs://b_c.d", "b_c.d", "", NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_s3_url u = {0}, again = {0};
		struct ps_strbuf b = {0};

		assert_int_equal(ps_s3_url_parse(rows[i].url, &u, NULL), 0);
		ps_s3_url_compose(&u, &b);
		assert_int_equal(ps_s3_url_parse(b.s, &again, NULL), 0);
		for (int round = 0; round < 2; round++) {
			const struct ps_s3_url *seen = round ? &again : &u;

			assert_string_equal(seen->bucket, rows[i].bucket);
			assert_string_equal(seen->key, rows[i].key);
			assert_string_equal(
			        seen->version ? seen->version : "", rows[i].version ? rows[i].version : "");
			assert_string_equal(seen->endpoint ? seen->endpoint : "",
			        rows[i].endpoint ? rows[i].endpoint : "");
		}
		ps_strbuf_fini(&b);
		ps_s3_url_fini(&u);
		ps_s3_url_fini(&again);
	}
}

static void names_in_a_manifest_are_relative_to_it(void **state)
{
	static const struct {
		const char *base, *rel, *joined;
	} rows[] = {
	        {"s3://b/dir/list.txt", "x.tar", "s3://b/dir/x.tar"},
	        {"s3://b/list.txt", "x.tar", "s3://b/x.tar"},
	        {"s3://b/dir/list.txt", "/x.tar", "s3://b/x.tar"},
	        {"s3://b/dir/list.txt", "../x.tar", "s3://b/dir/../x.tar"},
	        {"s3://b/dir/list.txt", "s3://c/x", "s3://c/x"},
	        {"file:///home/list.txt", "gs://c/x", "gs://c/x"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		char *joined = ps_s3_url_join(rows[i].base, rows[i].rel);

		assert_string_equal(joined, rows[i].joined);
		free(joined);
	}
}

/* Pages -------------------------------------------------------------------------------------------------- */

static int note(void *arg, const struct ps_s3_object *o)
{
	ps_strbuf_addf(arg, "%s|%s|%lld|%lld|%s\n", o->key, o->version, (long long)o->remote.size,
	        (long long)o->remote.mtime_s, o->remote.etag);
	return 0;
}

static int refuse(void *arg, const struct ps_s3_object *o)
{
	(void)arg, (void)o;
	return -ECANCELED;
}

static void a_page_of_keys_is_read(void **state)
{
	static const char text[] =
	        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	        "<ListBucketResult "
	        "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>p/</Prefix>"
	        "<KeyCount>3</KeyCount><IsTruncated>true</IsTruncated><NextContinuationToken>1ue&lt;/+&#9;x"
	        "</NextContinuationToken><EncodingType>url</EncodingType>"
	        "<Contents><Key>p/a+b%2Bc%0A</Key><LastModified>2026-11-21T10:00:00.500Z</LastModified>"
	        "<ETag>&quot;abc-2&quot;</ETag><Size>123456789012</Size><Owner><ID>x</ID></Owner></Contents>"
	        "<Contents><Key>p/%C3%A4</Key><ETag>plain</ETag><Size>0</Size></Contents>"
	        "<Contents><Key>p/%00</Key><Size>1</Size></Contents>"
	        "<Contents><Key>p/big</Key><Size>99999999999999999999</Size></Contents>"
	        "<CommonPrefixes><Prefix>p/q/</Prefix></CommonPrefixes></ListBucketResult>";
	struct ps_strbuf b = {0};
	struct ps_s3_page page;
	struct ps_error err = {0};
	uint64_t nskipped;

	(void)state;
	assert_int_equal(ps_s3_page_parse(text, sizeof(text) - 1, &page, &err), 0);
	assert_true(page.truncated && page.encoded);
	assert_string_equal(page.token, "1ue</+\tx");
	assert_int_equal(page.nkeys, 4);
	assert_int_equal(ps_s3_page_objects(text, sizeof(text) - 1, &page, note, &b, &nskipped, &err), 0);
	assert_string_equal(
	        b.s, "p/a b+c\n||123456789012|1795255200|\"abc-2\"\np/\xc3\xa4||0|-1|\"plain\"\n");
	assert_int_equal(nskipped, 2);
	assert_int_equal(
	        ps_s3_page_objects(text, sizeof(text) - 1, &page, refuse, NULL, &nskipped, &err), -ECANCELED);
	/* Keys are not decoded if the server did not encode them. */
	page.encoded = false;
	ps_strbuf_reset(&b);
	assert_int_equal(ps_s3_page_objects(text, sizeof(text) - 1, &page, note, &b, &nskipped, &err), 0);
	assert_non_null(strstr(b.s, "p/a+b%2Bc%0A|"));
	ps_strbuf_fini(&b);
	ps_s3_page_fini(&page);
}

static void a_page_of_versions_is_read(void **state)
{
	static const char text[] =
	        "<ListVersionsResult><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>"
	        "<NextKeyMarker>k%2B1</NextKeyMarker><NextVersionIdMarker>v9</NextVersionIdMarker>"
	        "<Version><Key>a</Key><VersionId>v2</VersionId><IsLatest>true</IsLatest><Size>2</Size></"
	        "Version>"
	        "<Version><Key>a</Key><VersionId>v1</VersionId><IsLatest>false</IsLatest><Size>1</Size></"
	        "Version>"
	        "<DeleteMarker><Key>b</Key><VersionId>v3</VersionId><IsLatest>true</IsLatest></DeleteMarker>"
	        "<Version><Key>b</Key><VersionId>v2</VersionId><IsLatest>false</IsLatest><Size>1</Size></"
	        "Version>"
	        "</ListVersionsResult>";
	struct ps_strbuf b = {0};
	struct ps_s3_page page;
	uint64_t nskipped;

	(void)state;
	assert_int_equal(ps_s3_page_parse(text, sizeof(text) - 1, &page, NULL), 0);
	assert_string_equal(page.key_marker, "k+1");
	assert_string_equal(page.version_marker, "v9");
	assert_int_equal(ps_s3_page_objects(text, sizeof(text) - 1, &page, note, &b, &nskipped, NULL), 0);
	assert_string_equal(b.s, "a|v2|2|-1|\n");
	ps_strbuf_fini(&b);
	ps_s3_page_fini(&page);
}

static void a_document_that_is_not_a_page_is_refused(void **state)
{
	static const char *const texts[] = {
	        "",
	        "<html><body>hello</body></html>",
	        "<ListBucketResult>",
	        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
	        "<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult>&a;</ListBucketResult>",
	        "<Error><Code>AccessDenied</Code></Error>",
	        "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a></"
	        "a></a></a>"
	        "</a></a></a></a></a>",
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
		struct ps_error err = {.err = EAGAIN, .text = "of an earlier attempt"};
		struct ps_s3_page page;

		assert_int_equal(ps_s3_page_parse(texts[i], strlen(texts[i]), &page, &err), -EPROTO);
		assert_non_null(strstr(err.text, "not the listing of a bucket"));
		assert_null(strstr(err.text, "of an earlier attempt"));
		assert_int_equal(err.err, EPROTO);
	}
}

/* Refusals ----------------------------------------------------------------------------------------------- */

/* Parsers report the end of an empty element even if its beginning has stopped them. */
static void elements_beyond_the_limits_end_the_page(void **state)
{
	ps_autostrbuf struct ps_strbuf wide = {0}, deep = {0};
	struct ps_s3_page page = {0};

	(void)state;
	ps_strbuf_addc(&wide, '<');
	for (int i = 0; i <= PS_XML_MAX_TEXT; i++)
		ps_strbuf_addc(&wide, 'a');
	ps_strbuf_add(&wide, "/>");
	for (int i = 0; i < PS_XML_MAX_DEPTH; i++)
		ps_strbuf_add(&deep, "<ListBucketResult>");
	ps_strbuf_add(&deep, "<a/>");
	const struct ps_strbuf *const pages[] = {&wide, &deep};
	for (size_t i = 0; i < PS_ARRAY_LEN(pages); i++) {
		struct ps_error err = {0};

		assert_int_equal(ps_s3_page_parse(pages[i]->s, pages[i]->len, &page, &err), -EPROTO);
		assert_true(err.text[0]);
	}
}

static void refusals_give_an_errno_and_a_text(void **state)
{
	static const struct {
		const char *document;
		int status, errnum;
		bool retryable;
		enum ps_s3_remedy remedy;
		const char *words;
	} rows[] = {
	        {"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>secret</StringToSign></Error>", 403,
	                EACCES, false, PS_S3_NO_REMEDY, "permission denied"},
	        {"<Error><Code>AccessDenied</Code></Error>", 403, EACCES, false, PS_S3_NO_REMEDY,
	                "AccessDenied"},
	        {"<Error><Code>ExpiredToken</Code></Error>", 400, EACCES, false, PS_S3_OTHER_KEY,
	                "ExpiredToken"},
	        {"<Error><Code>NoSuchBucket</Code></Error>", 404, ENOENT, false, PS_S3_NO_REMEDY,
	                "no bucket"},
	        {"<Error><Code>NoSuchKey</Code></Error>", 404, ENOENT, false, PS_S3_NO_REMEDY,
	                "no such object"},
	        {"<Error><Code>RequestTimeTooSkewed</Code></Error>", 403, EACCES, false, PS_S3_OTHER_CLOCK,
	                "clock"},
	        {"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>", 400,
	                EACCES, false, PS_S3_OTHER_REGION, "region"},
	        {"<Error><Code>PermanentRedirect</Code></Error>", 301, EIO, false, PS_S3_OTHER_REGION,
	                "elsewhere"},
	        {"<Error><Code>SlowDown</Code></Error>", 503, EAGAIN, true, PS_S3_NO_REMEDY, "SlowDown"},
	        {"<Error><Code>InternalError</Code></Error>", 500, EIO, true, PS_S3_NO_REMEDY,
	                "InternalError"},
	        {"<Error><Code>Strange</Code><Message>why\nnot</Message></Error>", 418, EIO, false,
	                PS_S3_NO_REMEDY, "Strange: why not"},
	        {"<Error><Code>Strange</Code><Mess", 400, EIO, false, PS_S3_NO_REMEDY, "Strange"},
	        {"", 403, EACCES, false, PS_S3_NO_REMEDY, "permission denied"},
	        {"", 307, EIO, false, PS_S3_OTHER_REGION, "elsewhere"},
	        {"", 302, EPROTO, false, PS_S3_NO_REMEDY, "--follow-redirects"},
	        {"<html>busy</html>", 418, EIO, false, PS_S3_NO_REMEDY, "refuses"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_error err = {.err = EIO,
		        .http_status = rows[i].status,
		        .retry_after_ms = 77,
		        .text = "HTTP 4xx: the server refuses the request"};
		struct ps_s3_refusal refusal;

		ps_s3_refusal_parse(rows[i].document, strlen(rows[i].document), &refusal);
		assert_int_equal(ps_s3_refusal_judge(&refusal, rows[i].status, false, &err), rows[i].remedy);
		assert_int_equal(err.err, rows[i].errnum);
		assert_int_equal(err.retryable, rows[i].retryable);
		assert_int_equal(err.http_status, rows[i].status);
		assert_int_equal(err.retry_after_ms, 77);
		assert_null(strstr(err.text, "secret>"));
		if (!strstr(err.text, rows[i].words))
			fail_msg("%s: %s", rows[i].document, err.text);
	}
}

/* Places ------------------------------------------------------------------------------------------------- */

static void requests_are_sent_to_the_store_s_host(void **state)
{
	static const struct {
		const char *endpoint, *region;
		enum ps_s3_addressing addressing;
		const char *bucket, *key, *scheme, *host, *path;
	} rows[] = {
	        {NULL, NULL, PS_S3_ADDRESSING_AUTO, "bucket", "a b", NULL,
	                "bucket.s3.us-east-1.amazonaws.com", "/a%20b"},
	        {NULL, "cn-north-1", PS_S3_ADDRESSING_AUTO, "bucket", "", NULL,
	                "bucket.s3.cn-north-1.amazonaws.com.cn", "/"},
	        {NULL, "eu-west-1", PS_S3_ADDRESSING_AUTO, "b.with.dots", "x/../y", NULL,
	                "s3.eu-west-1.amazonaws.com", "/b.with.dots/x/../y"},
	        {NULL, "eu-west-1", PS_S3_ADDRESSING_PATH, "bucket", "", NULL, "s3.eu-west-1.amazonaws.com",
	                "/bucket"},
	        {"http://127.0.0.1:9000", NULL, PS_S3_ADDRESSING_AUTO, "bucket", "/x", "http",
	                "127.0.0.1:9000", "/bucket//x"},
	        {"https://Store.Example:443/", NULL, PS_S3_ADDRESSING_VIRTUAL, "bucket", "x", "https",
	                "bucket.store.example", "/x"},
	        {"https://store.example", NULL, PS_S3_ADDRESSING_VIRTUAL, "Not_A_Host", "x", "https",
	                "store.example", "/Not_A_Host/x"},
	        {"https://h/base/", NULL, PS_S3_ADDRESSING_AUTO, "bucket", "x", "https", "h",
	                "/base/bucket/x"},
	        {"account.r2.cloudflarestorage.com", "auto", PS_S3_ADDRESSING_AUTO, "bucket", "x", "https",
	                "account.r2.cloudflarestorage.com", "/bucket/x"},
	        {"https://s3.dualstack.eu-west-1.amazonaws.com", NULL, PS_S3_ADDRESSING_AUTO, "bucket", "x",
	                "https", "bucket.s3.dualstack.eu-west-1.amazonaws.com", "/x"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_s3_place place = {0};
		struct ps_s3_store *store = malloc(sizeof(*store));

		assert_int_equal(ps_s3_store_init(store, rows[i].endpoint, rows[i].region, NULL,
		                         rows[i].addressing, NULL),
		        0);
		assert_int_equal(ps_s3_store_place(store, rows[i].bucket, rows[i].key, &place), 0);
		assert_string_equal(ps_strbuf_peek(&place.host), rows[i].host);
		assert_string_equal(ps_strbuf_peek(&place.path), rows[i].path);
		assert_string_equal(store->scheme ? store->scheme : "", rows[i].scheme ? rows[i].scheme : "");
		ps_s3_place_fini(&place);
		ps_s3_store_fini(store);
		free(store);
	}
}

static void redirects_are_followed_within_the_store_only(void **state)
{
	static const struct {
		const char *endpoint, *location;
		const char *host, *path, *query, *region; /* host NULL: not followed */
	} rows[] = {
	        {NULL, "https://bucket.s3-us-west-2.amazonaws.com/photos/p%20q.jpg?rk=e2c69a31",
	                "bucket.s3-us-west-2.amazonaws.com", "/photos/p%20q.jpg", "rk=e2c69a31", "us-west-2"},
	        {NULL, "https://bucket.s3.eu-south-1.amazonaws.com/?prefix=a%2Fb&list-type=2",
	                "bucket.s3.eu-south-1.amazonaws.com", "/", "list-type=2&prefix=a%2Fb", "eu-south-1"},
	        {NULL, "https://s3.dualstack.eu-west-1.amazonaws.com/bucket/x",
	                "s3.dualstack.eu-west-1.amazonaws.com", "/bucket/x", "", "eu-west-1"},
	        {NULL, "https://b.s3.amazonaws.com/x", "b.s3.amazonaws.com", "/x", "", "us-east-1"},
	        {NULL, "https://s3.cn-north-1.amazonaws.com.cn/b/x", "s3.cn-north-1.amazonaws.com.cn", "/b/x",
	                "", "cn-north-1"},
	        {NULL, "http://bucket.s3.amazonaws.com/x", NULL, NULL, NULL, NULL},
	        {NULL, "https://bucket.s3.amazonaws.com:8443/x", NULL, NULL, NULL, NULL},
	        {NULL, "https://evil.example/x", NULL, NULL, NULL, NULL},
	        {NULL, "https://s3.amazonaws.com.evil.example/x", NULL, NULL, NULL, NULL},
	        {NULL, "https://evils3.amazonaws.com/x", NULL, NULL, NULL, NULL},
	        {NULL, "https://ec2-1-2-3-4.compute.amazonaws.com/x", NULL, NULL, NULL, NULL},
	        {NULL, "https://s3.execute-api.us-east-1.amazonaws.com/x", NULL, NULL, NULL, NULL},
	        {NULL, "https://b.s3-website.us-east-1.amazonaws.com/x", NULL, NULL, NULL, NULL},
	        {NULL, "https://u:p@bucket.s3.amazonaws.com/x", NULL, NULL, NULL, NULL},
	        {NULL, "ftp://bucket.s3.amazonaws.com/x", NULL, NULL, NULL, NULL},
	        {NULL, "", NULL, NULL, NULL, NULL},
	        {"http://127.0.0.1:9000", "http://127.0.0.1:9000/bucket/x?rk=1", "127.0.0.1:9000",
	                "/bucket/x", "rk=1", "us-east-1"},
	        {"http://127.0.0.1:9000", "http://127.0.0.1:9001/bucket/x", NULL, NULL, NULL, NULL},
	        {"http://127.0.0.1:9000", "http://localhost:9000/bucket/x", NULL, NULL, NULL, NULL},
	        {"https://store.example", "https://zone2.store.example/bucket/x", "zone2.store.example",
	                "/bucket/x", "", "us-east-1"},
	        {"https://store.example", "https://evilstore.example/bucket/x", NULL, NULL, NULL, NULL},
	        {"https://store.example", "https://bucket.s3.amazonaws.com/x", NULL, NULL, NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_s3_place place = {0};
		struct ps_s3_store *store = malloc(sizeof(*store));
		ps_autostrbuf struct ps_strbuf query = {0};

		assert_int_equal(
		        ps_s3_store_init(store, rows[i].endpoint, NULL, NULL, PS_S3_ADDRESSING_AUTO, NULL),
		        0);
		int rc = ps_s3_temporary_redirect(store, "bucket", rows[i].location, &place, &query);
		if (rc != (rows[i].host ? 0 : -EACCES))
			fail_msg("%s: %d", rows[i].location, rc);
		if (rows[i].host) {
			assert_string_equal(ps_strbuf_peek(&place.host), rows[i].host);
			assert_string_equal(ps_strbuf_peek(&place.path), rows[i].path);
			assert_string_equal(ps_strbuf_peek(&query), rows[i].query);
			assert_string_equal(place.region, rows[i].region);
		}
		ps_s3_place_fini(&place);
		ps_s3_store_fini(store);
		free(store);
	}
}

static void a_learned_region_applies_to_its_bucket_only(void **state)
{
	struct ps_s3_store *store = malloc(sizeof(*store));
	struct ps_s3_place place = {0};

	(void)state;
	assert_int_equal(ps_s3_store_init(store, NULL, "us-east-1", NULL, PS_S3_ADDRESSING_AUTO, NULL), 0);
	assert_false(ps_s3_store_learn(store, "far", "us-east-1"));
	assert_false(ps_s3_store_learn(store, "far", "evil.example/#"));
	assert_true(ps_s3_store_learn(store, "far", "ap-south-2"));
	assert_false(ps_s3_store_learn(store, "far", "ap-south-2"));
	assert_int_equal(ps_s3_store_place(store, "far", "", &place), 0);
	assert_string_equal(place.region, "ap-south-2");
	assert_string_equal(place.host.s, "far.s3.ap-south-2.amazonaws.com");
	ps_s3_place_fini(&place);
	place = (struct ps_s3_place){0};
	for (int i = 0; i < 2 * PS_S3_MAX_REGIONS; i++) {
		char bucket[32];

		snprintf(bucket, sizeof(bucket), "b%d", i);
		assert_true(ps_s3_store_learn(store, bucket, "eu-west-3"));
	}
	assert_int_equal(ps_s3_store_place(store, "near", "", &place), 0);
	assert_string_equal(place.region, "us-east-1");
	ps_s3_place_fini(&place);
	ps_s3_store_fini(store);
	free(store);
}

static void invalid_endpoints_are_refused(void **state)
{
	static const char *const endpoints[] = {
	        "file:///x", "https://", "https://u:secret@h", "https://h?x=1", "ftp://h"};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(endpoints); i++) {
		struct ps_s3_store *store = malloc(sizeof(*store));
		struct ps_error err = {0};

		assert_int_equal(
		        ps_s3_store_init(store, endpoints[i], NULL, NULL, PS_S3_ADDRESSING_AUTO, &err),
		        -EINVAL);
		assert_null(strstr(err.text, "secret"));
		assert_int_equal(
		        ps_s3_store_init(store, NULL, "no region", NULL, PS_S3_ADDRESSING_AUTO, &err),
		        -EINVAL);
		free(store);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(keys_are_shown_as_safe_paths),
	        cmocka_unit_test(no_two_keys_share_a_path),
	        cmocka_unit_test(urls_of_objects_keep_every_byte_of_the_key),
	        cmocka_unit_test(names_in_a_manifest_are_relative_to_it),
	        cmocka_unit_test(a_page_of_keys_is_read),
	        cmocka_unit_test(a_page_of_versions_is_read),
	        cmocka_unit_test(a_document_that_is_not_a_page_is_refused),
	        cmocka_unit_test(elements_beyond_the_limits_end_the_page),
	        cmocka_unit_test(refusals_give_an_errno_and_a_text),
	        cmocka_unit_test(requests_are_sent_to_the_store_s_host),
	        cmocka_unit_test(redirects_are_followed_within_the_store_only),
	        cmocka_unit_test(a_learned_region_applies_to_its_bucket_only),
	        cmocka_unit_test(invalid_endpoints_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
