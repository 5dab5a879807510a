/* Which options and variables make the accesses, names and routes of two mounts the same or different. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "credentials/key_source.h"
#include "origin/origin.h"
#include "tests/cache/cache_test.h"

#define S3 "s3://bucket/dir/"
#define HTTP "https://h/dir/"
#define HUB "hf://datasets/o/n"

static const char *home; /* "HOME=DIR" */

static struct ps_identity of(
        const char *source, struct ps_origin_options options, const char *a, const char *b)
{
	const char *const env[] = {home, "PWD=/here", a ? a : "X=", b, NULL};
	struct ps_identity ret;

	options.http.env = env;
	assert_int_equal(ps_identity_of(source, source, &options, &ret), 0);
	return ret;
}

static bool same(const struct ps_id *a, const struct ps_id *b)
{
	return ps_id_cmp(a, b) == 0;
}

static void an_access_depends_on_all_that_decides_who_signs(void **state)
{
	static const char *const one_header[] = {"X-Token: one", NULL}, *const two_headers[] = {
	                                                                        "X-Token: two", NULL};
	static const struct {
		const char *what, *source;
		struct ps_origin_options a, b;
		const char *a_env[2], *b_env[2];
		bool same;
	} rows[] = {
	        {"nothing", S3, {.http = {0}}, {.http = {0}}, {0}, {0}, true},
	        {"a key", S3, {.http = {0}}, {.http = {0}}, {"AWS_ACCESS_KEY_ID=a"}, {"AWS_ACCESS_KEY_ID=b"},
	                false},
	        {"a secret", S3, {.http = {0}}, {.http = {0}},
	                {"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=a"},
	                {"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}, false},
	        {"a session's token", S3, {.http = {0}}, {.http = {0}}, {"AWS_SESSION_TOKEN=a"},
	                {"AWS_SESSION_TOKEN=b"}, false},
	        {"a role", S3, {.http = {0}}, {.http = {0}}, {"AWS_ROLE_ARN=a"}, {"AWS_ROLE_ARN=b"}, false},
	        {"a pod's agent", S3, {.http = {0}}, {.http = {0}}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI=a"},
	                {"AWS_CONTAINER_CREDENTIALS_FULL_URI=b"}, false},
	        {"the agent's token", S3, {.http = {0}}, {.http = {0}},
	                {"AWS_CONTAINER_AUTHORIZATION_TOKEN=a"}, {"AWS_CONTAINER_AUTHORIZATION_TOKEN=b"},
	                false},
	        {"a profile", S3, {.profile = "a"}, {.profile = "b"}, {0}, {0}, false},
	        {"no signature", S3, {.no_sign_request = true}, {.http = {0}}, {0}, {0}, false},
	        {"a key that signs nothing", S3, {.no_sign_request = true}, {.no_sign_request = true},
	                {"AWS_ACCESS_KEY_ID=a"}, {"AWS_ACCESS_KEY_ID=b"}, true},
	        {"who pays", S3, {.request_payer = true}, {.http = {0}}, {0}, {0}, false},
	        {"another program's variable", S3, {.http = {0}}, {.http = {0}}, {"TERM=a"}, {"TERM=b"},
	                true},
	        {"Google's key", "gs://bucket/", {.http = {0}}, {.http = {0}}, {"GS_SECRET_ACCESS_KEY=a"},
	                {"GS_SECRET_ACCESS_KEY=b"}, false},
	        {"a password", HTTP, {.http.user_password = "u:a"}, {.http.user_password = "u:b"}, {0}, {0},
	                false},
	        {"a header", HTTP, {.http.headers = one_header}, {.http.headers = two_headers}, {0}, {0},
	                false},
	        {"a bucket's key for HTTP", HTTP, {.http = {0}}, {.http = {0}}, {"AWS_ACCESS_KEY_ID=a"},
	                {"AWS_ACCESS_KEY_ID=b"}, true},
	        {"the Hub's token", HUB, {.http = {0}}, {.http = {0}}, {"HF_TOKEN=a"}, {"HF_TOKEN=b"}, false},
	        {"a proxy's password", HTTP, {.http.proxy = "http://u:a@p"}, {.http.proxy = "http://u:b@p"},
	                {0}, {0}, false},
	        {"a proxy of the environment", HTTP, {.http = {0}}, {.http = {0}}, {"https_proxy=a"},
	                {"https_proxy=b"}, false},
	        {"a password for a local folder", "file:///d/", {.http.user_password = "a"},
	                {.http.user_password = "b"}, {0}, {0}, true},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_identity a = of(rows[i].source, rows[i].a, rows[i].a_env[0], rows[i].a_env[1]);
		struct ps_identity b = of(rows[i].source, rows[i].b, rows[i].b_env[0], rows[i].b_env[1]);

		if (same(&a.access, &b.access) != rows[i].same)
			fail_msg("%s", rows[i].what);
	}
	/* A password in the source. */
	struct ps_identity a = of("https://u:a@h/", (struct ps_origin_options){0}, NULL, NULL);
	struct ps_identity b = of("https://u:b@h/", (struct ps_origin_options){0}, NULL, NULL);
	assert_false(same(&a.access, &b.access));
}

static void files_count_by_their_content(void **state)
{
	const char *dir = *state;
	static const struct {
		const char *file, *source;
	} rows[] = {{".aws/credentials", S3}, {".aws/config", S3}, {".boto", S3}, {".netrc", HTTP},
	        {".cache/huggingface/token", HUB},
	        {".config/gcloud/application_default_credentials.json", "gs://b/"}};

	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		char path[4096];

		for (const char *slash = strchr(rows[i].file, '/'); slash; slash = strchr(slash + 1, '/')) {
			snprintf(path, sizeof(path), "%s/%.*s", dir, (int)(slash - rows[i].file),
			        rows[i].file);
			mkdir(path, 0700);
		}
		struct ps_identity none = of(rows[i].source, (struct ps_origin_options){0}, NULL, NULL);
		test_write_file(dir, rows[i].file, "one");
		snprintf(path, sizeof(path), "%s/%s", dir, rows[i].file);
		assert_int_equal(chmod(path, 0600), 0);
		struct ps_identity one = of(rows[i].source, (struct ps_origin_options){0}, NULL, NULL);
		struct ps_identity still = of(rows[i].source, (struct ps_origin_options){0}, NULL, NULL);
		test_write_file(dir, rows[i].file, "two");
		struct ps_identity two = of(rows[i].source, (struct ps_origin_options){0}, NULL, NULL);
		if (same(&none.access, &one.access) || same(&one.access, &two.access) ||
		        !same(&one.access, &still.access))
			fail_msg("%s", rows[i].file);
		unlink(path);
	}
}

static bool differ(
        struct ps_origin_options a, struct ps_origin_options b, const char *a_env, const char *b_env)
{
	const char *const one[] = {a_env ? a_env : home, home, "PWD=/here", "TERM=a", NULL},
	                  *const two[] = {"TERM=b", b_env ? b_env : home, "PWD=/here", home, NULL};
	struct ps_identity x, y;

	a.http.env = one;
	b.http.env = two;
	assert_int_equal(ps_identity_of(S3, S3, &a, &x), 0);
	assert_int_equal(ps_identity_of(S3, S3, &b, &y), 0);
	return !same(&x.access, &y.access);
}

static void write_new(const char *path, const char *text)
{
	test_write_file("", path + 1, text);
	assert_int_equal(chmod(path, 0600), 0);
}

/* Checks a file that is named by its variable, by the option, or by nothing. */
static void check_file(const char *dir, const struct ps_key_file *f, bool usual)
{
	const char *below = f->below ? f->below : "", *name = f->variable ? f->variable : "the option";
	struct ps_origin_options one = {0}, two = {0};
	char folder[4096], path[8192], a[8192], b[8192];

	snprintf(folder, sizeof(folder), usual ? "%s%s" : "%s/given", dir, usual ? f->usual + 1 : "");
	snprintf(path, sizeof(path), "%s%s", folder, below);
	snprintf(a, sizeof(a), "%s=%s", name, folder);
	snprintf(b, sizeof(b), "%s=%s2", name, folder);
	for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = '\0';
		mkdir(path, 0700);
	}
	const char *env = usual || f->by_option ? NULL : a;
	one.credentials = two.credentials = f->by_option ? folder : NULL;
	write_new(path, "one");
	struct ps_identity first, second;
	const char *const vars[] = {env ? env : home, home, "PWD=/here", NULL};
	one.http.env = vars;
	assert_int_equal(ps_identity_of(S3, S3, &one, &first), 0);
	write_new(path, "two");
	assert_int_equal(ps_identity_of(S3, S3, &one, &second), 0);
	if (same(&first.access, &second.access) != f->is_token)
		fail_msg("the content of %s%s", path, usual ? "" : " (named)");
	two.credentials = f->by_option ? b + strlen(name) + 1 : NULL;
	if (!usual && !differ(one, two, env, f->by_option ? NULL : b))
		fail_msg("the path in %s", name);
	unlink(path);
	rmdir(folder);
}

/* The list of sources is the product's: a new source is tested here without a line. */
static void each_input_of_each_source_distinguishes_two_users(void **state)
{
	const struct ps_origin_options plain = {0};
	size_t nvariables = 0, nfiles = 0;

	assert_false(differ(plain, plain, NULL, NULL));
	assert_false(differ(plain, plain, "TERMINAL=a", "TERMINAL=b"));
	for (const struct ps_key_source *const *source = ps_key_sources; *source; source++) {
		for (const char *const *v = (*source)->variables; *v; v++, nvariables++) {
			const char *rest = (*v)[strlen(*v) - 1] == '=' ? "" : "OF_A_TEST=";
			char a[256], b[256];

			snprintf(a, sizeof(a), "%s%sa", *v, rest);
			snprintf(b, sizeof(b), "%s%sb", *v, rest);
			if (!differ(plain, plain, a, b) || differ(plain, plain, a, a))
				fail_msg("%s", *v);
		}
		for (const struct ps_key_file *const *f = (*source)->files; *f; f++, nfiles++) {
			if ((*f)->by_option || (*f)->variable)
				check_file(*state, *f, false);
			if ((*f)->usual)
				check_file(*state, *f, true);
		}
	}
	assert_true(nvariables >= 8 && nfiles >= 8);
}

struct reported {
	char text[512];
};

static void note(void *arg, const char *name, const void *bytes, size_t n)
{
	struct reported *r = arg;
	size_t at = strlen(r->text);

	snprintf(r->text + at, sizeof(r->text) - at, "%s:%.*s;", name ? name : "", (int)n,
	        (const char *)bytes);
}

/* A source that somebody adds: it reads what it reports, and what it does not report it cannot read. */
static void a_source_cannot_read_what_it_does_not_report(void **state)
{
	static const struct ps_key_file file = {.variable = "TEST_FILE"}, hidden = {.usual = "/hidden"};
	static const struct ps_key_source added = {.variables = {"TEST_"}, .files = {&file}};
	const struct ps_key_source *const sources[] = {&added, NULL};
	char named[4096], expected[8192];
	const char *env[] = {"TEST_KEY=k", "OTHER_KEY=o", "PWD=/here", named, NULL};
	const struct ps_key_context x = {.sources = sources, .env = (char **)env};
	struct reported got = {0};

	test_write_file(*state, "added", "content");
	snprintf(named, sizeof(named), "TEST_FILE=%s/added", (char *)*state);
	assert_string_equal(ps_key_env(&x, "TEST_KEY"), "k");
	assert_null(ps_key_env(&x, "OTHER_KEY"));
	assert_null(ps_key_env(&x, "AWS_ACCESS_KEY_ID"));
	ps_autofree char *path = ps_key_file(&x, &file);
	assert_string_equal(path, named + strlen("TEST_FILE="));
	assert_null(ps_key_file(&x, &hidden));
	assert_null(ps_credentials_env(env, "OTHER_KEY"));
	const struct ps_credentials_options options = {.env = env};
	assert_int_equal(ps_key_inputs(sources, &options, note, &got), 0);
	snprintf(expected, sizeof(expected), "env:%s;env:TEST_KEY=k;file:%s;:content;", named, path);
	assert_string_equal(got.text, expected);
}

/* The token changes each hour; the access stays the same. */
static void a_token_file_counts_by_its_path(void **state)
{
	const char *dir = *state;
	char var[4096];

	test_write_file(dir, "token", "one");
	snprintf(var, sizeof(var), "AWS_WEB_IDENTITY_TOKEN_FILE=%s/token", dir);
	struct ps_identity one = of(S3, (struct ps_origin_options){0}, var, "AWS_ROLE_ARN=a");
	test_write_file(dir, "token", "two");
	struct ps_identity two = of(S3, (struct ps_origin_options){0}, var, "AWS_ROLE_ARN=a");
	assert_true(same(&one.access, &two.access));
	strcat(var, "2");
	struct ps_identity other = of(S3, (struct ps_origin_options){0}, var, "AWS_ROLE_ARN=a");
	assert_false(same(&one.access, &other.access));
}

/* A relative path of a token, and a command of a profile, depend on the working directory; the command depends
 * on every variable. */
static void a_working_directory_counts_where_credentials_depend_on_it(void **state)
{
	static const struct {
		const char *config, *a[2], *b[2];
		bool same;
	} rows[] = {
	        {"", {"PWD=/a"}, {"PWD=/b"}, true},
	        {"", {"PWD=/a", "AWS_WEB_IDENTITY_TOKEN_FILE=t"}, {"PWD=/b", "AWS_WEB_IDENTITY_TOKEN_FILE=t"},
	                false},
	        {"", {"PWD=/a", "AWS_WEB_IDENTITY_TOKEN_FILE=/t"},
	                {"PWD=/b", "AWS_WEB_IDENTITY_TOKEN_FILE=/t"}, true},
	        {"credential_process = ./c", {"PWD=/a"}, {"PWD=/b"}, false},
	        {"credential_process = ./c", {"PWD=/a", "TERM=a"}, {"PWD=/a", "TERM=b"}, false},
	        {"web_identity_token_file = t", {"PWD=/a"}, {"PWD=/b"}, false},
	};

	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		char config[4096];
		struct ps_origin_options options = {0};
		struct ps_identity a, b;

		test_write_file(*state, "config", rows[i].config);
		snprintf(config, sizeof(config), "AWS_CONFIG_FILE=%s/config", (char *)*state);
		const char *const one[] = {home, config, rows[i].a[0], rows[i].a[1], NULL},
		                  *const two[] = {home, config, rows[i].b[0], rows[i].b[1], NULL};
		options.http.env = one;
		assert_int_equal(ps_identity_of(S3, S3, &options, &a), 0);
		options.http.env = two;
		assert_int_equal(ps_identity_of(S3, S3, &options, &b), 0);
		if (same(&a.access, &b.access) != rows[i].same)
			fail_msg("row %zu", i);
	}
}

static void the_names_of_a_bucket_are_the_same_for_all_accesses(void **state)
{
	const struct ps_origin_options pinned = {.pin_versions = true}, plain = {0},
	                               elsewhere = {.endpoint = "http://e"};
	struct ps_identity one = of(S3, plain, "AWS_ACCESS_KEY_ID=a", NULL),
	                   two = of(S3, plain, "AWS_ACCESS_KEY_ID=b", NULL);

	(void)state;
	assert_true(one.names_for_all && same(&one.names, &two.names));
	two = of(S3, pinned, "AWS_ACCESS_KEY_ID=a", NULL);
	assert_false(same(&one.names, &two.names));
	two = of(S3, elsewhere, "AWS_ACCESS_KEY_ID=a", NULL);
	assert_false(same(&one.names, &two.names));
	assert_true(of("s3://bucket", plain, NULL, NULL).names_for_all);
	/* Names that come from no listing of a bucket, and origins that may answer each user differently. */
	static const char *const own[] = {
	        "s3://b/x.tar", "s3://b/{0..9}/", "s3://b/k?versionId=1/", HTTP, HUB};
	for (size_t i = 0; i < PS_ARRAY_LEN(own); i++)
		assert_false(of(own[i], plain, NULL, NULL).names_for_all);
}

static void another_route_to_the_origin_is_distinguished(void **state)
{
	const struct ps_origin_options plain = {0}, none = {.http.proxy = "none"},
	                               proxy = {.http.proxy = "http://p:1"},
	                               with_user = {.http.proxy = "http://u:p@p:1"},
	                               ca = {.http.ca_file = "/ca.pem"}, insecure = {.http.insecure = true};

	(void)state;
	assert_false(of(S3, plain, NULL, NULL).has_route);
	assert_false(of(S3, plain, "no_proxy=h", NULL).has_route);
	assert_false(of(S3, none, "http_proxy=p", NULL).has_route);
	assert_true(of(S3, plain, "http_proxy=p", NULL).has_route);
	assert_true(of(HTTP, plain, "SSL_CERT_FILE=/dev/null", NULL).has_route);
	assert_true(of(S3, plain, "AWS_CA_BUNDLE=/x", NULL).has_route);
	assert_true(of(HTTP, ca, NULL, NULL).has_route);
	assert_true(of(HUB, insecure, NULL, NULL).has_route);
	struct ps_identity a = of(S3, proxy, NULL, NULL), b = of(S3, with_user, NULL, NULL);
	assert_true(a.has_route && same(&a.route, &b.route));
	b = of(S3, plain, NULL, NULL);
	assert_false(same(&a.names, &b.names));
}

/* The order of the environment, of headers and of lists means nothing, and only what requests use counts. */
static void the_same_source_is_the_same_dataset(void **state)
{
	static const char *const headers[] = {"X-A: 1", "X-B: 2", NULL}, *const swapped[] = {
	                                                                         "X-B: 2", "X-A: 1", NULL};
	static const char *const repeated[] = {"X-A: 1", "X-A: 2", NULL}, *const other[] = {
	                                                                          "X-A: 2", "X-A: 1", NULL};
	static const struct {
		const char *what, *source;
		struct ps_origin_options a, b;
		const char *a_env[2], *b_env[2];
		bool route, access; /* the same? */
	} rows[] = {
	        {"two bundles, swapped", HTTP, {.http = {0}}, {.http = {0}},
	                {"SSL_CERT_FILE=/dev/null", "CURL_CA_BUNDLE=/dev/zero"},
	                {"CURL_CA_BUNDLE=/dev/zero", "SSL_CERT_FILE=/dev/null"}, true, true},
	        {"a bundle that another one hides", HTTP, {.http = {0}}, {.http = {0}},
	                {"CURL_CA_BUNDLE=/dev/zero", "SSL_CERT_FILE=/dev/null"},
	                {"CURL_CA_BUNDLE=/dev/zero", NULL}, true, true},
	        {"a bundle by another variable", HTTP, {.http = {0}}, {.http = {0}},
	                {"CURL_CA_BUNDLE=/dev/null"}, {"SSL_CERT_FILE=/dev/null"}, true, true},
	        {"a bundle by option", HTTP, {.http.ca_file = "/dev/null"}, {.http = {0}}, {0},
	                {"SSL_CERT_FILE=/dev/null"}, true, true},
	        {"a bundle that does not exist", HTTP, {.http = {0}}, {.http = {0}},
	                {"SSL_CERT_FILE=/nonexistent"}, {0}, true, true},
	        {"another bundle", HTTP, {.http = {0}}, {.http = {0}}, {"SSL_CERT_FILE=/dev/null"},
	                {"SSL_CERT_FILE=/dev/zero"}, false, false},
	        {"a folder of certificates", HTTP, {.http = {0}}, {.http = {0}}, {"SSL_CERT_DIR=/tmp"}, {0},
	                false, false},
	        {"a bundle without TLS", "http://h/dir/", {.http = {0}}, {.http = {0}},
	                {"SSL_CERT_FILE=/dev/null"}, {0}, true, true},
	        {"a bundle for a list that may name https", "http://h/list.txt", {.http = {0}}, {.http = {0}},
	                {"SSL_CERT_FILE=/dev/null"}, {0}, false, false},
	        {"a bundle for a store without TLS", S3, {.endpoint = "http://e"}, {.endpoint = "http://e"},
	                {"SSL_CERT_FILE=/dev/null"}, {0}, true, true},
	        {"a bundle for a store", S3, {.endpoint = "https://e"}, {.endpoint = "https://e"},
	                {"AWS_CA_BUNDLE=/dev/null"}, {0}, false, false},
	        {"a store's bundle for a web server", HTTP, {.http = {0}}, {.http = {0}},
	                {"AWS_CA_BUNDLE=/dev/null"}, {0}, true, true},
	        {"a variable that stands twice", S3, {.http = {0}}, {.http = {0}},
	                {"AWS_PROFILE=a", "AWS_PROFILE=b"}, {"AWS_PROFILE=a"}, true, true},
	        {"keys, swapped", S3, {.http = {0}}, {.http = {0}},
	                {"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s"},
	                {"AWS_SECRET_ACCESS_KEY=s", "AWS_ACCESS_KEY_ID=a"}, true, true},
	        {"an Azure key, swapped", "az://acc/con/", {.http = {0}}, {.http = {0}},
	                {"AZURE_STORAGE_ACCOUNT=a", "AZURE_STORAGE_KEY=aw=="},
	                {"AZURE_STORAGE_KEY=aw==", "AZURE_STORAGE_ACCOUNT=a"}, true, true},
	        {"a proxy's variable in capitals", HTTP, {.http = {0}}, {.http = {0}}, {"https_proxy=p"},
	                {"HTTPS_PROXY=p"}, true, true},
	        {"hosts without a proxy, swapped", HTTP, {.http = {0}}, {.http = {0}},
	                {"https_proxy=p", "no_proxy=a,b"}, {"no_proxy=b, a,b", "https_proxy=p"}, true, true},
	        {"other hosts without a proxy", HTTP, {.http = {0}}, {.http = {0}},
	                {"https_proxy=p", "no_proxy=a"}, {"https_proxy=p", "no_proxy=b"}, false, false},
	        {"tiers, swapped", HTTP, {.http.tiers.list = "http://a,http://b"},
	                {.http.tiers.list = "http://b,http://a"}, {0}, {0}, true, true},
	        {"headers, swapped", HTTP, {.http.headers = headers}, {.http.headers = swapped}, {0}, {0},
	                true, true},
	        {"values of one header, swapped", HTTP, {.http.headers = repeated}, {.http.headers = other},
	                {0}, {0}, true, false},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_identity a = of(rows[i].source, rows[i].a, rows[i].a_env[0], rows[i].a_env[1]);
		struct ps_identity b = of(rows[i].source, rows[i].b, rows[i].b_env[0], rows[i].b_env[1]);

		if ((same(&a.route, &b.route) && a.has_route == b.has_route) != rows[i].route)
			fail_msg("%s: the route", rows[i].what);
		if (same(&a.access, &b.access) != rows[i].access)
			fail_msg("%s: the access", rows[i].what);
	}
}

static void an_access_with_a_possible_secret_is_not_anonymous(void **state)
{
	static const char *const header[] = {"X-Any: thing", NULL}, *const no_headers[] = {NULL};
	static const struct {
		const char *what, *source;
		struct ps_origin_options options;
		const char *env;
		bool anonymous;
	} rows[] = {
	        {"nothing", HTTP, {.http.headers = no_headers}, NULL, true},
	        {"braces", "https://h/x-{0..9}.tar", {.http = {0}}, NULL, true},
	        {"a header", HTTP, {.http.headers = header}, NULL, false},
	        {"a user", HTTP, {.http.user_password = "u:p"}, NULL, false},
	        {"a user in the source", "https://u:p@h/dir/", {.http = {0}}, NULL, false},
	        {"a query", "https://h/dir/?sig=x", {.http = {0}}, NULL, false},
	        {"a list that may have secrets", "https://h/dir/list.txt", {.http = {0}}, NULL, false},
	        {"a local list", "@/dir/list", {.http = {0}}, NULL, false},
	        {"a certificate", HTTP, {.http.client_cert = "/c"}, NULL, false},
	        {"a proxy", HTTP, {.http.proxy = "http://p"}, NULL, false},
	        {"a proxy of the environment", HTTP, {.http = {0}}, "http_proxy=http://p", false},
	        {"a netrc file", HTTP, {.http.netrc_file = "/dev/null"}, NULL, false},
	        {"a missing netrc file", HTTP, {.http.netrc_file = "/nonexistent"}, NULL, true},
	        {"no netrc file", HTTP, {.http.netrc_file = ""}, NULL, true},
	        {"a bucket's own credentials", S3, {.http = {0}}, NULL, false},
	        {"a bucket without signatures", S3, {.no_sign_request = true}, NULL, true},
	        {"a header for a bucket", S3, {.no_sign_request = true, .http.headers = header}, NULL, false},
	        {"the Hub", HUB, {.http = {0}}, NULL, false},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		const char *const env[] = {home, "PWD=/here", rows[i].env, NULL};
		struct ps_origin_options options = rows[i].options;
		struct ps_identity ret;

		options.http.env = env;
		assert_int_equal(ps_identity_of(rows[i].source, rows[i].source, &options, &ret), 0);
		if (ret.anonymous != rows[i].anonymous)
			fail_msg("%s", rows[i].what);
	}
}

static int setup(void **state)
{
	static char variable[4096];

	if (test_dir_setup(state) < 0)
		return -1;
	snprintf(variable, sizeof(variable), "HOME=%s", (char *)*state);
	home = variable;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(an_access_depends_on_all_that_decides_who_signs),
	        cmocka_unit_test(files_count_by_their_content),
	        cmocka_unit_test(each_input_of_each_source_distinguishes_two_users),
	        cmocka_unit_test(a_source_cannot_read_what_it_does_not_report),
	        cmocka_unit_test(a_token_file_counts_by_its_path),
	        cmocka_unit_test(a_working_directory_counts_where_credentials_depend_on_it),
	        cmocka_unit_test(the_names_of_a_bucket_are_the_same_for_all_accesses),
	        cmocka_unit_test(another_route_to_the_origin_is_distinguished),
	        cmocka_unit_test(the_same_source_is_the_same_dataset),
	        cmocka_unit_test(an_access_with_a_possible_secret_is_not_anonymous),
	};

	return cmocka_run_group_tests(tests, setup, test_dir_teardown);
}
