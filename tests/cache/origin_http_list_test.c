/* The HTTP origin: listings and manifests of a real nginx. */
#include "http_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Listings ----------------------------------------------------------------------------------------------- */

struct names {
	char text[4096];
	int n;
	uint64_t known; /* sum of the listed sizes */
};

static int collect(void *arg, const struct ps_listed *listed)
{
	struct names *names = arg;

	assert_int_equal(ps_path_check(listed->path), 0);
	assert_null(strchr(listed->url, '@'));
	snprintf(names->text + strlen(names->text), sizeof(names->text) - strlen(names->text), "%s\n",
	        listed->path);
	names->n++;
	if (listed->remote.size != PS_SIZE_UNKNOWN)
		names->known += listed->remote.size;
	return 0;
}

static int list(
        const char *path, const struct ps_origin_options *options, struct names *names, struct ps_error *err)
{
	struct ps_origin *o = open_origin(server.http, path, options);
	int rc = o->ops->list(o, collect, names, NULL, err);

	o->ops->close(o);
	return rc;
}

static void a_directory_is_listed_with_its_subdirectories(void **state)
{
	static const char *const paths[] = {"/tree/", "/json/tree/", "/flaky/tree/", "/redir/tree/"};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct names names = {0};
		struct ps_error err = {0};

		if (list(paths[i], NULL, &names, &err) < 0)
			fail_msg("%s: %s", paths[i], err.text);
		assert_int_equal(names.n, 4);
		assert_int_equal(names.known, 7);
		assert_non_null(strstr(names.text, "a b&c'<>.tar\n"));
		assert_non_null(strstr(names.text, "sub/deep/x.tar\n"));
		assert_non_null(strstr(names.text, "sub/%41#?.tar\n"));
		assert_non_null(strstr(names.text, "\xc3\xa4.tar\n"));
	}
}

static void listed_urls_are_readable(void **state)
{
	struct call c;

	(void)state;
	ask_head(origin, &c, server.http, "/tree/sub/%2541%23%3F.tar");
	assert_int_equal(c.err.err, 0);
	assert_int_equal(c.head.seen.size, 2);
}

static void a_page_that_is_not_a_listing_is_refused(void **state)
{
	struct names names = {0};
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(list("/none/", NULL, &names, &err), -ENOENT);
	assert_int_equal(list("/basic/", NULL, &names, &err), -EACCES);
	assert_int_equal(list("/index/", NULL, &names, &err), -EPROTO);
	assert_int_equal(names.n, 0);
}

static void manifest_is_fetched_and_read(void **state)
{
	struct names names = {0};
	struct ps_error err = {0};

	(void)state;
	if (list("/lists/list.txt", NULL, &names, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(names.text, "one.tar\nsub/two-0.tar\nsub/two-1.tar\n");
	assert_int_equal(names.known, 11);
	assert_int_equal(list("/lists/bad.txt", NULL, &names, &err), -EINVAL);
	assert_non_null(strstr(err.text, "/lists/bad.txt: line 2"));
}

/* The manifest's Content-Length is enough to refuse it. */
static void a_manifest_that_is_too_long_is_refused(void **state)
{
	struct names names = {0};
	struct ps_error err = {0};
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/www/lists/huge.txt", server.dir);
	assert_int_equal(truncate(path, (512 << 20) + 1), 0);
	assert_int_equal(list("/lists/huge.txt", NULL, &names, &err), -EFBIG);
	assert_non_null(strstr(err.text, "longer than 536870912 bytes"));
	assert_int_equal(names.n, 0);
}

static void a_stopped_listing_ends_soon(void **state)
{
	struct ps_origin *o = open_origin(server.http, "/silent/", NULL);
	_Atomic bool stop = true;
	struct names names = {0};
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(o->ops->list(o, collect, &names, &stop, &err), -ECANCELED);
	o->ops->close(o);
}

/* Puts the files to list on the server. */
static void put_trees(void)
{
	ps_web_server_put(&server, "tree/a b&c'<>.tar", "1", 1);
	ps_web_server_put(&server, "tree/\xc3\xa4.tar", "333", 3);
	ps_web_server_put(&server, "tree/sub/%41#?.tar", "22", 2);
	ps_web_server_put(&server, "tree/sub/deep/x.tar", "1", 1);
	ps_web_server_put(&server, "index/index.html", "no markup here", 14);
	const char *list_text = "# shards\none.tar 11\r\n\nsub/two-{0,1}.tar\none.tar 11\n";
	ps_web_server_put(&server, "lists/list.txt", list_text, strlen(list_text));
	ps_web_server_put(&server, "lists/huge.txt", "", 0);
	ps_web_server_put(&server, "lists/bad.txt", "one.tar\ntwo.tar twelve\n", 23);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_directory_is_listed_with_its_subdirectories),
	        cmocka_unit_test(listed_urls_are_readable),
	        cmocka_unit_test(a_page_that_is_not_a_listing_is_refused),
	        cmocka_unit_test(manifest_is_fetched_and_read),
	        cmocka_unit_test(a_manifest_that_is_too_long_is_refused),
	        cmocka_unit_test(a_stopped_listing_ends_soon),
	};

	return http_tests_run(tests, PS_ARRAY_LEN(tests), put_trees);
}
