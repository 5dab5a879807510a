/* Directory listings as common HTTP servers write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/packed.h"
#include "listing/listing.h"

static int collect(void *arg, const struct ps_listing_entry *e)
{
	struct ps_strbuf *b = arg;

	if (e->why) {
		ps_strbuf_add(b, "? ");
		return 0;
	}
	ps_strbuf_addf(b, "%s%s", e->name, e->is_dir ? "/" : "");
	if (e->remote.size != PS_SIZE_UNKNOWN)
		ps_strbuf_addf(b, "=%" PRIu64, e->remote.size);
	if (e->remote.mtime_s >= 0)
		ps_strbuf_addf(b, "@%" PRId64, e->remote.mtime_s);
	ps_strbuf_addc(b, ' ');
	return 0;
}

static const struct {
	const char *what, *text, *entries; /* NULL: no listing */
} pages[] = {
        {"nginx, exact sizes",
                "<html>\r\n<head><title>Index of /d/</title></head>\r\n<body>\r\n<h1>Index of "
                "/d/</h1><hr><pre>"
                "<a href=\"../\">../</a>\r\n"
                "<a href=\"sub/\">sub/</a>                 02-Jan-2026 03:04                   -\r\n"
                "<a href=\"a%20b.tar\">a b.tar</a>         02-Jan-2026 03:04             3000000\r\n"
                "<a href=\"long-name.tar\">long-na..&gt;</a> 02-Jan-2026 03:04      "
                "0\r\n</pre><hr></body></html>",
                "sub/ a b.tar=3000000 long-name.tar=0 "},
        {"nginx, rounded sizes", "<pre><a href=\"x.tar\">x.tar</a>   02-Jan-2026 03:04    12K\r\n</pre>",
                "x.tar "},
        {"Apache, fancy",
                "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\">\n<table><tr><th><a "
                "href=\"?C=N;O=D\">Name</a></th>"
                "<th><a href=\"?C=M;O=A\">Last modified</a></th></tr>"
                "<tr><td><img src=\"/icons/back.gif\" alt=\"[PARENTDIR]\"></td><td><a href=\"/\">Parent "
                "Directory</a></td></tr>\n"
                "<tr><td><a href=\"one.tar\">one.tar</a></td><td align=\"right\">2026-01-02 03:04  "
                "</td><td>1.0K</td></tr>\n"
                "<tr><td><a href=\"q&amp;a.tar\">q&amp;a.tar</a></td></tr></table>",
                "one.tar q&a.tar "},
        {"aiohttp, folders without a slash",
                "<h1>Index of /.</h1>\n<ul>\n<li><a href=\"/d/np\">np/</a></li>\n<li><a "
                "href=\"/d/a.npy\">a.npy</a></li>\n</ul>",
                "np/ a.npy "},
        {"JSON with half of a surrogate pair",
                "[{\"name\":\"\\ud83d\\ude00\",\"size\":1},{\"name\":\"\\uDCE4\",\"size\":2},"
                "{\"name\":\"\\ud83d\\n\",\"size\":3},{\"name\":\"\\u0000\",\"size\":4},"
                "{\"name\":\"z\",\"size\":5}]",
                "\xf0\x9f\x98\x80=1 ? ? ? z=5 "},
        {"JSON with a pair, broken elsewhere", "[{\"name\":\"\\ud83d\\ude00\" \"size\":1}]", NULL},
        {"JSON with names that are not UTF-8",
                "[{\"name\":\"a.tar\",\"type\":\"file\",\"size\":1}, "
                "{\"name\":\"b\xe4}{\\\"\\\\\",\"type\":\"file\",\"x\":{},\"size\":2},"
                "{\"name\":\"c\xff\"},{\"name\":\"d.tar\",\"type\":\"file\",\"size\":4}]",
                "a.tar=1 ? ? d.tar=4 "},
        {"lighttpd",
                "<table><tbody><tr class=\"d\"><td class=\"n\"><a href=\"../\">..</a>/</td></tr>"
                "<tr><td class=\"n\"><a href=\"%c3%a4.tar\">\xc3\xa4.tar</a></td><td "
                "class=\"s\">0.2K</td></tr></tbody></table>",
                "\xc3\xa4.tar "},
        {"Python",
                "<ul>\n<li><a href=\"a%26b.tar\">a&amp;b.tar</a></li>\n<li><a href=\"d/\">d/</a></li>\n</ul>",
                "a&b.tar d/ "},
        {"caddy",
                "<a href=\"./?sort=name&order=desc\">Name</a><tr class=\"file\"><td><a href=\"./x.tar\">"
                "<svg><use xlink:href=\"#file\"></use></svg><span class=\"name\">x.tar</span></a></td></tr>"
                "<a href=\"./d/\">d</a>",
                "x.tar d/ "},
        {"rclone", "<a href=\"x.tar\" class=\"name\">x.tar</a><a href='./'>.</a>", "x.tar "},
        {"absolute links",
                "<a href=\"/d/x.tar\">x</a><a href=\"http://h:8080/d/y.tar\">y</a><a "
                "href=\"//h:8080/d/z.tar\">z</a>",
                "x.tar y.tar z.tar "},
        {"links elsewhere",
                "<a href=\"/e/x.tar\">x</a><a href=\"http://other/d/y\">y</a><a "
                "href=\"http://h:8081/d/y\">y</a><a href=\"//h/d/z\">z</a>"
                "<a href=\"../q\">q</a><a href=\"a/b.tar\">deep</a><a href=\"mailto:x@y\">m</a><a "
                "href=\"javascript:x()\">j</a>"
                "<a href=\"/d/\">self</a><a href=\"/d\">s</a><a href=\"#top\">t</a><a href=\"\">e</a><a "
                "name=\"x\">n</a>",
                ""},
        {"escapes that would leave the folder",
                "<a href=\"%2e%2e/\">x</a><a href=\"..%2fx\">x</a><a href=\"%00\">x</a><a href=\"%\">x</a>"
                "<a href=\"q/%\">x</a>",
                "? ? ? "},
        {"entities", "<a href=\"a&#32;b&#x41;&quot;&#39;&bogus;&amp\">x</a>", "a bA\"'&bogus;&amp "},
        {"odd markup",
                "<!-- <a href=\"no\"> --><script>'<a href=\"no\">'</script><A\nHREF = up.tar >u</A><a "
                "class='a>b' href='q.tar'>q</a>"
                "<abbr href=\"no\"></abbr><a href=\"cut",
                "up.tar q.tar cut "},
        {"no links", "<html></html>", ""},
        {"nginx JSON",
                "[\n{ \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"Thu, 01 Jan 1970 00:00:05 GMT\" "
                "},\n"
                "{ \"name\":\"x.tar\", \"type\":\"file\", \"mtime\":\"Thu, 01 Jan 1970 00:01:00 GMT\", "
                "\"size\":123 },\n"
                "{ \"name\":\"s\", \"type\":\"other\" }\n]",
                "d/ x.tar=123@60 "},
        {"caddy JSON",
                "[{\"name\":\"d/\",\"size\":4096,\"url\":\"./d/"
                "\",\"mod_time\":\"2026-01-02T03:04:05Z\",\"is_dir\":true},"
                "{\"name\":\"x.tar\",\"size\":5,\"mod_time\":\"1970-01-01T01:00:01.5+01:00\",\"is_dir\":"
                "false}]",
                "d/ x.tar=5@1 "},
        {"JSON, odd entries",
                "[{}, "
                "{\"name\":\"a/"
                "b\",\"size\":1},{\"name\":7},{\"name\":\"n\",\"size\":-1},{\"name\":\"m\",\"size\":\"7\"}]",
                "a/b=1 n m "},
        {"empty JSON", " [ ] ", ""},
        {"JSON cut off", "[{\"name\":\"a\",\"size\":1}", NULL},
        {"JSON without objects", "[1,2]", NULL},
        {"JSON broken", "[{]", NULL},
        {"text", "hello", NULL},
        {"no text", "", NULL},
};

static int parse(const char *text, const char *page_url, ps_listing_fn fn, void *arg, struct ps_error *err)
{
	struct ps_listing *listing = ps_listing_new(false, page_url, fn, arg, err);
	size_t used;

	assert_non_null(listing);
	int rc = ps_listing_feed(listing, text, strlen(text), false, &used);
	ps_listing_free(listing);
	return rc;
}

static void listings_are_read(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(pages); i++) {
		ps_autostrbuf struct ps_strbuf b = {0};
		struct ps_error err = {0};
		int rc = parse(pages[i].text, "http://h:8080/d/", collect, &b, &err);

		if (pages[i].entries) {
			if (rc || strcmp(ps_strbuf_peek(&b), pages[i].entries) != 0)
				fail_msg("%s: %d %s: %s", pages[i].what, rc, err.text, ps_strbuf_peek(&b));
		} else {
			assert_int_equal(rc, -EPROTO);
			assert_true(err.text[0]);
			if (strcmp(pages[i].what, "JSON broken") == 0)
				assert_non_null(strstr(err.text, ": JSON, at byte "));
		}
	}
}

static int refuse(void *arg, const struct ps_listing_entry *e)
{
	(void)e;
	++*(int *)arg;
	return -ECANCELED;
}

static void the_callback_may_end_the_parsing(void **state)
{
	const char *const texts[] = {"<a href=a>a</a><a href=b>b</a>",
	        "[{\"name\":\"a\",\"size\":1},{\"name\":\"b\",\"size\":1}]"};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
		int n = 0;

		assert_int_equal(parse(texts[i], "http://h/", refuse, &n, NULL), -ECANCELED);
		assert_int_equal(n, 1);
	}
}

/* The pages that these servers sent for one folder, without styles and images. */
static void pages_of_real_servers_give_the_same_entries(void **state)
{
	static const char *const servers[] = {
	        "apache", "apache-fancy", "lighttpd", "caddy", "rclone", "python"};
	static const char *const names[] = {"a b.tar ", "amp&.tar ", "\xc3\xbc.tar ", "quest?.tar ",
	        "per%41.tar ", "quote\".tar ", "sub dir/ "};
	const char *top = getenv("top_srcdir");
	char path[4096], page[65536];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(servers); i++) {
		ps_autostrbuf struct ps_strbuf seen = {0};
		size_t expected = 0;

		snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/listing_html/server-%s", top ? top : ".",
		        servers[i]);
		FILE *f = fopen(path, "r");
		assert_non_null(f);
		page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
		fclose(f);
		assert_int_equal(parse(page, "http://h/", collect, &seen, NULL), 0);
		for (size_t k = 0; k < PS_ARRAY_LEN(names); k++) {
			if (!strstr(ps_strbuf_peek(&seen), names[k]))
				fail_msg("%s: %s is missing in %s", servers[i], names[k],
				        ps_strbuf_peek(&seen));
			expected += strlen(names[k]);
		}
		assert_int_equal(seen.len, expected);
	}
}

/* A page as nginx writes it, longer than several windows. In HTML some links are in comments and thus not
 * entries. */
static void write_page(struct ps_strbuf *b, bool json)
{
	ps_strbuf_add(b, json ? "[\n" : "<html><pre>\n");
	for (int i = 0; i < 20000; i++) {
		if (json) {
			ps_strbuf_addf(b, "%s{ \"name\":\"x-%d.tar\", \"type\":\"file\", \"size\":%d }",
			        i ? ",\r\n" : "", i, i);
			continue;
		}
		ps_strbuf_addf(b, "<a href=\"x-%d.tar\">x-%d.tar</a>    21-Nov-2026 16:41 %19d\r\n", i, i, i);
		if (i % 1000 == 0)
			ps_strbuf_addf(b, "<!-- %*s<a href=\"no\"> -->", i * 4, "");
	}
	ps_strbuf_add(b, json ? "\n]\n" : "</pre>\n");
}

static void a_long_page_gives_the_same_entries_in_windows(void **state)
{
	(void)state;
	for (int json = 0; json < 2; json++) {
		ps_autostrbuf struct ps_strbuf page = {0}, whole = {0}, windows = {0};
		ps_autopacked struct ps_packed packed = {0};
		struct ps_error err = {0};

		write_page(&page, json);
		assert_false(page.failed);
		assert_true(page.len > 4 * PS_PACKED_BLOCK_NBYTES);
		for (size_t at = 0, n; at < page.len; at += n) {
			n = PS_MIN(page.len - at, (size_t)16411);
			ps_packed_add(&packed, page.s + at, n);
		}
		assert_int_equal(packed.nbytes, page.len);
		assert_true(packed.frames.len + packed.tail.len < page.len / 2);
		struct ps_listing *listing = ps_listing_new(json, "http://h/", collect, &windows, &err);
		assert_non_null(listing);
		assert_int_equal(ps_packed_each(&packed, ps_listing_feed, listing), 0);
		ps_listing_free(listing);
		assert_int_equal(parse(page.s, "http://h/", collect, &whole, &err), 0);
		assert_string_equal(windows.s, whole.s);
		assert_non_null(strstr(windows.s, "x-19999.tar=19999 "));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(listings_are_read),
	        cmocka_unit_test(the_callback_may_end_the_parsing),
	        cmocka_unit_test(a_long_page_gives_the_same_entries_in_windows),
	        cmocka_unit_test(pages_of_real_servers_give_the_same_entries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
