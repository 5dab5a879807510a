/* The HTTP origin: secrets are sent to their host only, and TLS is verified. */
#include "http_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Secrets ------------------------------------------------------------------------------------------------ */

static void credentials_stay_with_their_host(void **state)
{
	const char *const headers[] = {"X-Secret: sesame", NULL};
	struct ps_origin_options options = {.http.headers = headers, .http.user_password = "user:pass:word"};
	struct ps_origin *o = open_origin(server.http, "/", &options);
	char url[128];
	struct call c;

	(void)state;
	snprintf(url, sizeof(url), "%s/basic/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	snprintf(url, sizeof(url), "%s/secret/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	/* Another host is reached by a redirect, and by a URL as from a manifest. */
	snprintf(url, sizeof(url), "%s/redirother/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	snprintf(url, sizeof(url), "http://localhost:%d/object.bin", server.port);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	assert_true(ps_web_server_seen(&server, "GET localhost /object.bin", "") >= 2);
	assert_int_equal(ps_web_server_seen(&server, " localhost ", "auth=Basic"), 0);
	assert_int_equal(ps_web_server_seen(&server, " localhost ", "secret=sesame"), 0);
	assert_true(ps_web_server_seen(&server, " 127.0.0.1 /basic/", "auth=Basic") >= 1);
	/* After a redirect to their own host the credentials are sent again. */
	snprintf(url, sizeof(url), "%s/redir/secret/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	o->ops->close(o);
}

static void a_url_may_have_a_user_and_a_password(void **state)
{
	char base[128], url[128];
	struct call c;

	(void)state;
	snprintf(base, sizeof(base), "http://user:pass%%3aword@127.0.0.1:%d", server.port);
	struct ps_origin *o = open_origin(base, "/basic/object.bin", NULL);
	snprintf(url, sizeof(url), "%s/basic/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	o->ops->close(o);
}

static void errors_contain_no_secret(void **state)
{
	char base[160], url[160];
	struct call c;

	(void)state;
	snprintf(base, sizeof(base), "http://user:hunter2@127.0.0.1:%d", server.port);
	struct ps_origin *o = open_origin(base, "/signed/object.bin?sig=hunter3&v=1", NULL);
	snprintf(url, sizeof(url), "%s/signed/object.bin?v=1", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, EACCES);
	assert_null(strstr(c.err.text, "hunter"));
	call_end(&c);
	o->ops->close(o);
}

static void a_signature_in_the_source_is_sent_with_each_request(void **state)
{
	struct ps_origin *o = open_origin(server.http, "/signed/object.bin?sig=good", NULL);
	char url[128];
	struct call c;

	(void)state;
	snprintf(url, sizeof(url), "%s/signed/object.bin", server.http);
	fetch(o, &c, url, 0, 100);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	ask_head(o, &c, server.http, "/signed/object.bin");
	assert_int_equal(c.err.err, 0);
	o->ops->close(o);
}

static void header_options_are_checked(void **state)
{
	static const char *const bad[] = {
	        "no colon", "Range: bytes=0-1", "X: a\r\nY: b", ": x", "Sp ace: x", "host: evil"};
	struct ps_origin *o;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *const headers[] = {bad[i], NULL};
		struct ps_origin_options options = {.http.headers = headers};
		struct ps_error err = {0};

		assert_int_equal(ps_origin_open("http://127.0.0.1/x", &options, &o, &err), -EINVAL);
		assert_null(strstr(err.text, "evil"));
	}
}

/* TLS ---------------------------------------------------------------------------------------------------- */

static void tls_needs_a_known_ca(void **state)
{
	struct ps_origin_options with_ca = {.http.ca_file = server.ca}, insecure = {.http.insecure = true};
	const struct {
		const struct ps_origin_options *options;
		int errnum;
	} cases[] = {{&with_ca, 0}, {&insecure, 0}, {NULL, EHOSTUNREACH}};
	char url[128];
	struct call c;

	(void)state;
	snprintf(url, sizeof(url), "%s/object.bin", server.https);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ps_origin *o = open_origin(server.https, "/", cases[i].options);

		fetch(o, &c, url, 0, 1000);
		if (c.err.err != cases[i].errnum)
			fail_msg("case %zu: %s", i, c.err.text);
		if (c.err.err) {
			assert_false(c.err.retryable);
			assert_non_null(strstr(c.err.text, "certificate"));
			assert_non_null(strstr(c.err.text, "CA"));
		}
		call_end(&c);
		o->ops->close(o);
	}
}

static void the_name_in_the_certificate_must_match(void **state)
{
	struct ps_origin_options options = {.http.ca_file = server.ca};
	char base[64], url[128];
	struct call c;

	(void)state;
	snprintf(base, sizeof(base), "https://127.0.0.1:%d", server.tls_port);
	snprintf(url, sizeof(url), "%s/object.bin", base);
	struct ps_origin *o = open_origin(base, "/", &options);
	fetch(o, &c, url, 0, 1000);
	assert_int_equal(c.err.err, EHOSTUNREACH);
	call_end(&c);
	o->ops->close(o);
}

static void no_redirect_leads_from_https_to_http(void **state)
{
	struct ps_origin_options options = {.http.ca_file = server.ca};
	struct ps_origin *o = open_origin(server.https, "/", &options);
	char url[128];
	struct call c;

	(void)state;
	snprintf(url, sizeof(url), "%s/redirplain/object.bin", server.https);
	fetch(o, &c, url, 0, 1000);
	assert_int_equal(c.err.err, EPROTO);
	assert_non_null(strstr(c.err.text, "redirected from https to http: refused"));
	call_end(&c);
	/* A redirect from http to https is followed. */
	snprintf(url, sizeof(url), "%s/redirtls/object.bin", server.http);
	fetch(o, &c, url, 0, 1000);
	assert_int_equal(c.err.err, 0);
	call_end(&c);
	o->ops->close(o);
}

static void a_missing_ca_file_is_an_error(void **state)
{
	struct ps_origin_options options = {.http.ca_file = "/no/such/file.pem"};
	struct ps_origin *o;
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(ps_origin_open("https://localhost/x", &options, &o, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/no/such/file.pem"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(credentials_stay_with_their_host),
	        cmocka_unit_test(a_url_may_have_a_user_and_a_password),
	        cmocka_unit_test(errors_contain_no_secret),
	        cmocka_unit_test(a_signature_in_the_source_is_sent_with_each_request),
	        cmocka_unit_test(header_options_are_checked),
	        cmocka_unit_test(tls_needs_a_known_ca),
	        cmocka_unit_test(the_name_in_the_certificate_must_match),
	        cmocka_unit_test(no_redirect_leads_from_https_to_http),
	        cmocka_unit_test(a_missing_ca_file_is_an_error),
	};

	return http_tests_run(tests, PS_ARRAY_LEN(tests), NULL);
}
