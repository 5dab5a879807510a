/* Manifests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "origin/manifest.h"
#include "origin/origin.h"

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
	        {"https://u:p@other/x?sig=1", "https://u:p@other/x?sig=1 "},
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
		int rc = ps_manifest_parse(
		        rows[i].text, strlen(rows[i].text), "http://h/d/list.txt", collect, &b, &err);

		if (rows[i].entries) {
			if (rc || strcmp(ps_strbuf_peek(&b), rows[i].entries) != 0)
				fail_msg("%s: %d %s: %s", rows[i].text, rc, err.text, ps_strbuf_peek(&b));
		} else {
			assert_int_equal(rc, -EINVAL);
			assert_non_null(strstr(err.text, "line 1"));
		}
	}
}

static void binary_and_endless_lines_are_refused(void **state)
{
	char *text = malloc(100000);
	ps_autostrbuf struct ps_strbuf b = {0};

	(void)state;
	memset(text, 'a', 100000);
	assert_int_equal(ps_manifest_parse(text, 100000, "http://h/", collect, &b, NULL), -EINVAL);
	assert_int_equal(ps_manifest_parse("a\0b", 3, "http://h/", collect, &b, NULL), -EINVAL);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(lines_are_read),
	        cmocka_unit_test(binary_and_endless_lines_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
