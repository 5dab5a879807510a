/* Manifests. */
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

#include "base/strbuf.h"
#include "listing/listing.h"
#include "origin/origin.h"
#include "base/url.h"

static int collect(void *arg, const struct ps_manifest_entry *e)
{
	struct ps_strbuf *b = arg;

	ps_strbuf_add(b, e->url);
	if (e->size != PS_SIZE_UNKNOWN)
		ps_strbuf_addf(b, "=%" PRIu64, e->size);
	if (e->checksum)
		ps_strbuf_addf(b, "#%s", e->checksum);
	ps_strbuf_addc(b, ' ');
	return 0;
}

static int parse(const char *text, size_t n, const char *base, struct ps_strbuf *ret, struct ps_error *err)
{
	ps_autopacked struct ps_packed packed = {0};

	ps_packed_add(&packed, text, n);
	return ps_manifest_parse(&packed, base, collect, ret, err);
}

#define MD5 "0123456789abcdef0123456789ABCDEF"
#define MD5_LOWER "0123456789abcdef0123456789abcdef"

static void lines_are_read(void **state)
{
	static const struct {
		const char *text, *entries; /* NULL: refused */
	} rows[] = {
	        {"", ""},
	        {"\n\r\n  \n# comment\n", ""},
	        {"a.tar\n", "http://h/d/a.tar "},
	        {"a.tar", "http://h/d/a.tar "},
	        {"\xef\xbb\xbf"
	         "a.tar\r\nb.tar\r\n",
	                "http://h/d/a.tar http://h/d/b.tar "},
	        {"a.tar 12 # twelve", "http://h/d/a.tar=12 "},
	        {"a#b 12", "http://h/d/a#b=12 "},
	        {"a.tar 12 MD5:" MD5, "http://h/d/a.tar=12#md5:" MD5_LOWER " "},
	        {"a.tar\tmd5:" MD5 "\t12", "http://h/d/a.tar=12#md5:" MD5_LOWER " "},
	        {"https://other/x?sig=1", "https://other/x?sig=1 "},
	        {"https://u:p@other/x?sig=1", NULL},
	        {"https://u@other/x", NULL},
	        {"u@other/x:y", "http://h/d/u@other/x:y "},
	        {"/x\n../y", "http://h/x http://h/y "},
	        {"x-{0..2}", "http://h/d/x-0 http://h/d/x-1 http://h/d/x-2 "},
	        {"x-{0..2} 12", NULL},
	        {"a 12 13", NULL},
	        {"a twelve", NULL},
	        {"a -1", NULL},
	        {"a 99999999999999999999", NULL},
	        {"a md5:123", NULL},
	        {"a md7:" MD5, NULL},
	        {"{a", NULL},
	        {"a b c d", NULL},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		ps_autostrbuf struct ps_strbuf b = {0};
		struct ps_error err = {0};
		int rc = parse(rows[i].text, strlen(rows[i].text), "http://h/d/list.txt", &b, &err);

		if (rows[i].entries) {
			if (rc || strcmp(ps_strbuf_peek(&b), rows[i].entries) != 0)
				fail_msg("%s: %d %s: %s", rows[i].text, rc, err.text, ps_strbuf_peek(&b));
		} else {
			assert_int_equal(rc, -EINVAL);
			assert_non_null(strstr(err.text, "line 1"));
			if (strcmp(rows[i].text, "x-{0..2} 12") == 0)
				assert_non_null(strstr(
				        err.text, "a line with braces cannot have a size or checksum"));
		}
	}
}

static void binary_and_endless_lines_are_refused(void **state)
{
	char *text = malloc(100000);
	ps_autostrbuf struct ps_strbuf b = {0};

	(void)state;
	memset(text, 'a', 100000);
	assert_int_equal(parse(text, 100000, "http://h/", &b, NULL), -EINVAL);
	assert_int_equal(parse("a\0b", 3, "http://h/", &b, NULL), -EINVAL);
	free(text);
}

/* However a text is cut into windows, its entries are the same, and a bad line is reported with its
 * number. */
static void entries_do_not_depend_on_windows(void **state)
{
	static const char text[] =
	        "\xef\xbb\xbf# names\r\na.tar 12\r\n\n  \nx-{0..2}\n\nb.tar md5:" MD5 "\nlast bad";
	static const char entries[] = "http://h/d/a.tar=12 http://h/d/x-0 http://h/d/x-1 http://h/d/x-2 "
	                              "http://h/d/b.tar#md5:" MD5_LOWER " ";
	const size_t n = sizeof(text) - 1;

	(void)state;
	for (size_t step = 1; step <= n; step++) {
		ps_autostrbuf struct ps_strbuf b = {0};
		struct ps_error err = {0};
		struct ps_manifest *m = ps_manifest_new("http://h/d/list.txt", collect, &b, &err);
		int rc = 0;

		assert_non_null(m);
		for (size_t at = 0, end = 0; rc == 0 && end < n;) {
			size_t used = 0;

			end = PS_MIN(end + step, n);
			rc = ps_manifest_feed(m, text + at, end - at, end < n, &used);
			assert_true(used <= end - at);
			at += used;
		}
		ps_manifest_free(m);
		assert_int_equal(rc, -EINVAL);
		assert_string_equal(ps_strbuf_peek(&b), entries);
		assert_non_null(strstr(err.text, "line 8"));
	}
}

static int count(void *arg, const struct ps_manifest_entry *e)
{
	uint64_t *n = arg;
	char url[64];

	snprintf(url, sizeof(url), "http://h/d/shard-%07" PRIu64 ".tar", *n);
	if (strcmp(e->url, url) != 0 || e->size != *n)
		fail_msg("entry %" PRIu64 ": %s", *n, e->url);
	++*n;
	return 0;
}

/* Blocks of the packed text end in the middle of lines. */
static void a_long_manifest_is_read_line_by_line(void **state)
{
	ps_autopacked struct ps_packed packed = {0};
	struct ps_error err = {0};
	uint64_t n = 0;
	char line[64];

	(void)state;
	for (int i = 0; i < 100000; i++) {
		snprintf(line, sizeof(line), "shard-%07d.tar %d\n", i, i);
		ps_packed_add(&packed, line, strlen(line));
	}
	assert_true(packed.nbytes > 4 * PS_PACKED_BLOCK_NBYTES);
	assert_int_equal(ps_manifest_parse(&packed, "http://h/d/", count, &n, &err), 0);
	assert_int_equal(n, 100000);
	n = 0;
	ps_packed_add(&packed, "a b\n", 4);
	assert_int_equal(ps_manifest_parse(&packed, "http://h/d/", count, &n, &err), -EINVAL);
	assert_int_equal(n, 100000);
	assert_non_null(strstr(err.text, "line 100001:"));
}

/* A line that never ends is reported as soon as it is too long. */
static void a_line_without_end_is_reported_when_it_is_too_long(void **state)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_manifest *m = ps_manifest_new("http://h/", collect, &b, NULL);
	size_t used = 0, n = 2 * PS_URL_MAX_LEN + 2;
	char *text = malloc(n);

	(void)state;
	assert_non_null(m);
	assert_non_null(text);
	memset(text, 'a', n);
	assert_int_equal(ps_manifest_feed(m, text, n - 1, true, &used), 0);
	assert_int_equal(used, 0);
	assert_int_equal(ps_manifest_feed(m, text, n, true, &used), -EINVAL);
	ps_manifest_free(m);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(lines_are_read),
	        cmocka_unit_test(binary_and_endless_lines_are_refused),
	        cmocka_unit_test(entries_do_not_depend_on_windows),
	        cmocka_unit_test(a_long_manifest_is_read_line_by_line),
	        cmocka_unit_test(a_line_without_end_is_reported_when_it_is_too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
