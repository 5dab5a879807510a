/* The Hub: sources, patterns, rate limits and answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "listing/listing.h"
#include "origin/hub_private.h"
#include "credentials/credentials.h"
#include "http/http.h"

static void sources_are_parsed(void **state)
{
	static const struct {
		const char *source, *canonical, *rev, *path; /* NULL: refused */
	} rows[] = {
	        {"hf://datasets/o/n", "hf://datasets/o/n/", "main", ""},
	        {"hf://o/n", "hf://datasets/o/n/", "main", ""},
	        {"HF://o/n/", "hf://datasets/o/n/", "main", ""},
	        {"hf://o/n@main/a/b/", "hf://datasets/o/n/a/b", "main", "a/b"},
	        {"hf://models/o/n@v1.0/x", "hf://models/o/n@v1.0/x", "v1.0", "x"},
	        {"hf://datasets/o/n@refs/convert/parquet/default/x",
	                "hf://datasets/o/n@refs/convert/parquet/default/x", "refs/convert/parquet",
	                "default/x"},
	        {"hf://datasets/o/n@refs%2Fconvert%2Fparquet/x", "hf://datasets/o/n@refs/convert/parquet/x",
	                "refs/convert/parquet", "x"},
	        {"hf://o/n@refs/pr/12/x", "hf://datasets/o/n@refs/pr/12/x", "refs/pr/12", "x"},
	        {"hf://o/n@my%2Fbranch/x", "hf://datasets/o/n@my%2Fbranch/x", "my/branch", "x"},
	        {"hf://o/n@my/branch/x", "hf://datasets/o/n@my/branch/x", "my", "branch/x"},
	        {"hf://o/n/a b%20#?.tar", "hf://datasets/o/n/a b%20#?.tar", "main", "a b%20#?.tar"},
	        {"hf://datasets/n", "hf://datasets/n@main/", "main", ""},
	        {"hf://models/n/", "hf://models/n@main/", "main", ""},
	        {"hf://models/n@v1/x/y", "hf://models/n@v1/x/y", "v1", "x/y"},
	        {"hf://models/n@main/x", "hf://models/n@main/x", "main", "x"},
	        {"hf://models", NULL, NULL, NULL},
	        {"hf://models/", NULL, NULL, NULL},
	        {"hf://o", NULL, NULL, NULL},
	        {"hf://", NULL, NULL, NULL},
	        {"hf:///n", NULL, NULL, NULL},
	        {"hf://o/n@", NULL, NULL, NULL},
	        {"hf://o/n@/x", NULL, NULL, NULL},
	        {"hf://o/n@a..b/x", NULL, NULL, NULL},
	        {"hf://o/n@a%00b/x", NULL, NULL, NULL},
	        {"hf://o/n//x", NULL, NULL, NULL},
	        {"hf://o/n/../x", NULL, NULL, NULL},
	        {"hf://o/n/x\n", NULL, NULL, NULL},
	        {"hf://-o/n", NULL, NULL, NULL},
	        {"hf://o/n n", NULL, NULL, NULL},
	        {"hf://spaces/o/n", NULL, NULL, NULL},
	        {"hf://buckets/o/n", NULL, NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_error err = {0};
		struct ps_hf_source s;
		int rc = ps_hf_source_parse(rows[i].source, &s, &err);

		if (!rows[i].canonical) {
			assert_int_equal(rc, -EINVAL);
			assert_true(err.text[0]);
			continue;
		}
		assert_int_equal(rc, 0);
		assert_string_equal(s.canonical, rows[i].canonical);
		assert_string_equal(s.repo, strstr(rows[i].canonical, "o/n") ? "o/n" : "n");
		assert_string_equal(s.rev, rows[i].rev);
		assert_string_equal(s.path, rows[i].path);
		ps_hf_source_fini(&s);
	}
}

static void urls_are_encoded_as_the_hub_expects_them(void **state)
{
	struct ps_hf_source s;
	const char *e = "http://h:1";
	char *urls[5];

	(void)state;
	assert_int_equal(ps_hf_source_parse("hf://datasets/o/n@refs/pr/1", &s, NULL), 0);
	urls[0] = ps_hf_url_revision(&s, e);
	urls[1] = ps_hf_url_tree(&s, e, "refs/pr/1", "a/b c", true);
	urls[2] = ps_hf_url_resolve(&s, e, "refs/pr/1", "a/b c#%.tar");
	urls[3] = ps_hf_url_object(&s, e, "a/b?c");
	urls[4] = ps_hf_url_object(&s, PS_HF_ENDPOINT, "a/b?c");
	assert_string_equal(urls[0], "http://h:1/api/datasets/o/n/revision/refs%2Fpr%2F1?expand=sha");
	assert_string_equal(
	        urls[1], "http://h:1/api/datasets/o/n/tree/refs%2Fpr%2F1/a%2Fb%20c?recursive=true");
	assert_string_equal(urls[2], "http://h:1/datasets/o/n/resolve/refs%2Fpr%2F1/a/b%20c%23%25.tar");
	assert_string_equal(urls[3], "hf://datasets/o/n/a/b%3Fc?endpoint=http://h:1");
	assert_string_equal(urls[4], "hf://datasets/o/n/a/b%3Fc");
	for (unsigned i = 3; i < 5; i++) {
		char *path = ps_hf_path_of_object(&s, urls[i]);

		assert_string_equal(path, "a/b?c");
		free(path);
	}
	assert_null(ps_hf_path_of_object(&s, "hf://datasets/o/other/x"));
	assert_null(ps_hf_path_of_object(&s, "http://h/o/n/x"));
	for (unsigned i = 0; i < 5; i++)
		free(urls[i]);
	ps_hf_source_fini(&s);
}

static void patterns_match_paths(void **state)
{
	static const struct {
		const char *pattern, *dir;
		bool deep;
		const char *yes, *no; /* paths, separated by blanks */
	} rows[] = {
	        {"*.tar", "", false, "a.tar b.tar", "a/b.tar a.txt .a.tar"},
	        {"data/x-*.tar", "data", false, "data/x-1.tar", "data/y-1.tar data/a/x-1.tar x-1.tar"},
	        {"data/{a,b}/*.tar", "data", true, "data/a/1.tar data/b/2.tar",
	                "data/c/1.tar data/a/b/1.tar"},
	        {"x-{00..03}.tar", "", false, "x-00.tar x-03.tar", "x-04.tar x-0.tar"},
	        {"**/*.tar", "", true, "a.tar a/b.tar a/b/c.tar", "a.txt a/b.txt"},
	        {"a/**", "a", true, "a/b a/b/c a/.x", "a b/a"},
	        {"a/**/b/*.tar", "a", true, "a/b/1.tar a/x/b/1.tar a/b/b/1.tar a/x/b/y/b/1.tar",
	                "a/1.tar a/x/1.tar a/b/x/1.tar b/1.tar"},
	        {"**/a/**/b", "", true, "a/b x/a/y/b a/a/b", "a b b/a"},
	        {"x[0-9].?ar", "", false, "x1.tar", "xa.tar x1.ar"},
	        {"a[*]b", "", false, "a*b", "axb"},
	        {"a\\{b\\}{c,d}", "", false, "a{b}c a{b}d", "abc"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_glob *glob;

		assert_true(ps_glob_is_pattern(rows[i].pattern));
		assert_int_equal(ps_glob_new(rows[i].pattern, &glob, NULL), 0);
		assert_string_equal(ps_glob_dir(glob), rows[i].dir);
		assert_int_equal(ps_glob_is_deep(glob), rows[i].deep);
		for (int yes = 0; yes < 2; yes++) {
			char *paths = strdup(yes ? rows[i].yes : rows[i].no), *save;

			for (char *p = strtok_r(paths, " ", &save); p; p = strtok_r(NULL, " ", &save))
				if (ps_glob_match(glob, p) != yes)
					fail_msg("%s %s %s", rows[i].pattern,
					        yes ? "does not match" : "matches", p);
			free(paths);
		}
		ps_glob_free(glob);
	}
}

static void missing_names_of_braces_are_counted(void **state)
{
	struct ps_glob *glob;
	char *first;

	(void)state;
	assert_int_equal(ps_glob_new("x-{0..9}.tar", &glob, NULL), 0);
	assert_true(ps_glob_match(glob, "x-0.tar"));
	assert_true(ps_glob_match(glob, "x-4.tar"));
	assert_int_equal(ps_glob_unmatched(glob, &first), 8);
	assert_string_equal(first, "x-1.tar");
	free(first);
	ps_glob_free(glob);
	assert_int_equal(ps_glob_new("x-{0..9", &glob, NULL), -EINVAL);
}

static void headers_of_the_hub_are_parsed(void **state)
{
	static const char *const lines[] = {"HTTP/1.1 302 Found", "X-Linked-Size: 497764107",
	        "X-Linked-ETag: \"d88b\"", "RateLimit: \"resolvers\";r=2;t=55", "X-Error-Code: GatedRepo"};
	static const struct {
		const char *line;
		int64_t left;
	} limits[] = {{"ratelimit: \"api\"; r=0 ; t=55", 0},
	        {"RateLimit: \"api\";t=9;r=41, \"day\";r=1;t=5", 41}, {"RateLimit: api;r=1;t=1", -1},
	        {"RateLimit: \"api\"", -1}, {"RateLimit: \"api\";r=-1;t=x", -1},
	        {"RateLimit: \"a name that is much too long\";r=1;t=1", -1},
	        {"RateLimit: \"api\";r=99999999999999999999;t=1", -1}};
	struct ps_http_response r = {0};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(lines); i++)
		ps_http_response_line(&r, lines[i], strlen(lines[i]));
	assert_int_equal(r.linked_size, 497764107);
	assert_string_equal(r.linked_etag, "\"d88b\"");
	assert_string_equal(r.error_code, "GatedRepo");
	assert_string_equal(r.limit_class, "resolvers");
	assert_int_equal(r.limit_left, 2);
	assert_int_equal(r.limit_reset_s, 55);
	for (size_t i = 0; i < PS_ARRAY_LEN(limits); i++) {
		r = (struct ps_http_response){0};
		ps_http_response_line(&r, lines[0], strlen(lines[0]));
		ps_http_response_line(&r, limits[i].line, strlen(limits[i].line));
		assert_int_equal(r.limit_class[0] != '\0', limits[i].left >= 0);
		if (r.limit_class[0])
			assert_int_equal(r.limit_left, limits[i].left);
	}
}

static void rate_limits_are_kept(void **state)
{
	struct ps_hf_limit l;
	uint64_t now = 1000 * PS_NS_PER_S;

	(void)state;
	ps_hf_limit_init(&l);
	/* Nothing is known yet. */
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(ps_hf_limit_take(&l, PS_HF_API, now), 0);
	for (unsigned i = 0; i < 100; i++)
		ps_hf_limit_put(&l, PS_HF_API);
	/* Three requests are left: three may be sent before any answer comes, and the fourth waits. */
	assert_int_equal(ps_hf_limit_told(&l, "api", 3, 55, false, now), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ps_hf_limit_take(&l, PS_HF_API, now), 0);
	assert_int_equal(ps_hf_limit_take(&l, PS_HF_API, now), 1000);
	assert_int_equal(ps_hf_limit_take(&l, PS_HF_RESOLVERS, now), 0);
	/* The answers come in another order. */
	assert_int_equal(ps_hf_limit_told(&l, "api", 0, 54, false, now + PS_NS_PER_S), 55000);
	ps_hf_limit_told(&l, "api", 2, 54, false, now + PS_NS_PER_S);
	for (unsigned i = 0; i < 3; i++)
		ps_hf_limit_put(&l, PS_HF_API);
	assert_int_equal(ps_hf_limit_take(&l, PS_HF_API, now + 5 * PS_NS_PER_S), 51000);
	/* A second after the window's end, requests are allowed again. */
	assert_int_not_equal(ps_hf_limit_take(&l, PS_HF_API, now + 55 * PS_NS_PER_S), 0);
	assert_int_equal(ps_hf_limit_take(&l, PS_HF_API, now + 57 * PS_NS_PER_S), 0);
	/* A refusal counts, whatever number is said to be left. */
	assert_int_equal(ps_hf_limit_told(&l, "resolvers", 7, 10, true, now), 11000);
	assert_int_equal(ps_hf_limit_told(&l, "unheard-of", 7, 10, true, now), 11000);
	assert_int_not_equal(ps_hf_limit_take(&l, PS_HF_RESOLVERS, now), 0);
	/* No server can stop our requests for longer than a day. */
	assert_int_equal(ps_hf_limit_told(&l, "resolvers", 0, INT64_MAX, true, now), (24 * 3600 + 1) * 1000);
	assert_int_equal(ps_hf_limit_told(&l, "others", 0, INT64_MAX, true, now), (24 * 3600 + 1) * 1000);
	ps_hf_limit_fini(&l);
}

static void endpoints_are_urls(void **state)
{
	static const struct {
		const char *text, *endpoint;
	} rows[] = {{NULL, PS_HF_ENDPOINT}, {"", PS_HF_ENDPOINT},
	        {"https://hub.example/hf/", "https://hub.example/hf"},
	        {"http://127.0.0.1:80", "http://127.0.0.1"}, {"hub.example", NULL}, {"file:///x", NULL}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_error err = {0};
		char *endpoint = NULL;

		assert_int_equal(
		        ps_hf_endpoint_parse(rows[i].text, &endpoint, &err), rows[i].endpoint ? 0 : -EINVAL);
		if (rows[i].endpoint)
			assert_string_equal(endpoint, rows[i].endpoint);
		free(endpoint);
	}
}

static void tokens_are_trimmed(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *token;
	} rows[] = {{"hf_abc\n", 0, "hf_abc"}, {"  hf_abc \r\n\n", 0, "hf_abc"}, {"", -EINVAL, NULL},
	        {"two words", -EINVAL, NULL}, {"hf_\x01", -EINVAL, NULL}};
	char path[] = "/tmp/penstock-token-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_error err = {0};
		char *token = NULL;

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, rows[i].text, strlen(rows[i].text), 0), strlen(rows[i].text));
		assert_int_equal(ps_hf_token_find(NULL, path, &token, &err), rows[i].rc);
		if (rows[i].token)
			assert_string_equal(token, rows[i].token);
		else
			assert_null(strstr(err.text, "hf_"));
		free(token);
	}
	close(fd);
	unlink(path);
	assert_int_equal(ps_hf_token_find(NULL, path, &(char *){NULL}, NULL), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sources_are_parsed),
	        cmocka_unit_test(urls_are_encoded_as_the_hub_expects_them),
	        cmocka_unit_test(patterns_match_paths),
	        cmocka_unit_test(missing_names_of_braces_are_counted),
	        cmocka_unit_test(headers_of_the_hub_are_parsed),
	        cmocka_unit_test(rate_limits_are_kept),
	        cmocka_unit_test(endpoints_are_urls),
	        cmocka_unit_test(tokens_are_trimmed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
