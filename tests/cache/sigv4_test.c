/* Signatures, compared with those that Amazon publishes, and the encoding of queries. tests/fs/origins/s3_signer.py
 * compares with botocore. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "credentials/credentials.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct vector {
	const char *name, *access_key, *secret, *region, *service;
	struct ps_sigv4_request request;
	const char *signature;
};

#define HEADERS(...)                                            \
	.headers = (const struct ps_sigv4_pair[]){__VA_ARGS__}, \
	.nheaders = sizeof((const struct ps_sigv4_pair[]){__VA_ARGS__}) / sizeof(struct ps_sigv4_pair)

/* From "Signature Calculations for the Authorization Header" of the S3 API reference, and from the general
 * test suite of AWS. */
static const struct vector vectors[] = {
        {"S3: GET of a range", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "us-east-1", "s3",
                {.method = "GET",
                        .path = "/test.txt",
                        .query = "",
                        .payload = EMPTY_SHA256,
                        .time = "20130524T000000Z",
                        HEADERS({"host", "examplebucket.s3.amazonaws.com"}, {"range", "bytes=0-9"},
                                {"x-amz-content-sha256", EMPTY_SHA256}, {"x-amz-date", "20130524T000000Z"})},
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        {"S3: PUT with a key to encode", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "us-east-1", "s3",
                {.method = "PUT",
                        .path = "/test%24file.text",
                        .query = "",
                        .payload = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
                        .time = "20130524T000000Z",
                        HEADERS({"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                {"host", "examplebucket.s3.amazonaws.com"},
                                {"x-amz-content-sha256",
                                        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
                                {"x-amz-date", "20130524T000000Z"},
                                {"x-amz-storage-class", "REDUCED_REDUNDANCY"})},
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
        {"S3: a query without a value", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "us-east-1", "s3",
                {.method = "GET",
                        .path = "",
                        .query = "lifecycle=",
                        .payload = EMPTY_SHA256,
                        .time = "20130524T000000Z",
                        HEADERS({"host", "examplebucket.s3.amazonaws.com"},
                                {"x-amz-content-sha256", EMPTY_SHA256}, {"x-amz-date", "20130524T000000Z"})},
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {"S3: a listing", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1",
                "s3",
                {.method = "GET",
                        .path = "/",
                        .query = "max-keys=2&prefix=J",
                        .payload = EMPTY_SHA256,
                        .time = "20130524T000000Z",
                        HEADERS({"host", "examplebucket.s3.amazonaws.com"},
                                {"x-amz-content-sha256", EMPTY_SHA256}, {"x-amz-date", "20130524T000000Z"})},
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
        {"suite: get-vanilla", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1",
                "service",
                {.method = "GET",
                        .path = "/",
                        .query = "",
                        .payload = EMPTY_SHA256,
                        .time = "20150830T123600Z",
                        HEADERS({"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"})},
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"suite: get-vanilla-query-order-key-case", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                "us-east-1", "service",
                {.method = "GET",
                        .path = "/",
                        .query = "Param1=value1&Param2=value2",
                        .payload = EMPTY_SHA256,
                        .time = "20150830T123600Z",
                        HEADERS({"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"})},
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
        {"suite: get-unreserved", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1",
                "service",
                {.method = "GET",
                        .path = "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                        .query = "",
                        .payload = EMPTY_SHA256,
                        .time = "20150830T123600Z",
                        HEADERS({"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"})},
                "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
        {"suite: get-utf8", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "service",
                {.method = "GET",
                        .path = "/%E1%88%B4",
                        .query = "",
                        .payload = EMPTY_SHA256,
                        .time = "20150830T123600Z",
                        HEADERS({"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"})},
                "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
};

static void published_vectors_are_reproduced(void **state)
{
	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(vectors); i++) {
		const struct vector *v = &vectors[i];
		struct ps_sigv4_request request = v->request;
		uint8_t key[PS_SIGV4_KEY_LEN];
		struct ps_strbuf out = {0};

		request.region = v->region;
		request.service = v->service;
		assert_int_equal(ps_sigv4_derive(v->secret, request.time, v->region, v->service, key), 0);
		assert_int_equal(ps_sigv4_sign(&request, v->access_key, key, &out), 0);
		const char *signature = strstr(out.s, "Signature=");
		assert_non_null(signature);
		if (strcmp(signature + 10, v->signature) != 0)
			fail_msg("%s: %s", v->name, out.s);
		ps_strbuf_fini(&out);
	}
}

static void derived_keys_are_remembered_by_day_region_and_key(void **state)
{
	struct ps_sigv4_keys keys;
	struct ps_sigv4_request request = {
	        .time = "20130524T000000Z", .region = "us-east-1", .service = "s3"};
	struct ps_key *one = ps_key_new("a", "secret", NULL, NULL, 0),
	              *two = ps_key_new("a", "other", NULL, NULL, 0);
	uint8_t got[PS_SIGV4_KEY_LEN], want[PS_SIGV4_KEY_LEN];
	static const char *const times[] = {"20130524T000000Z", "20130524T235959Z", "20130525T000000Z"},
	                         *const regions[] = {"us-east-1", "eu-west-1", "auto"};

	(void)state;
	ps_sigv4_keys_init(&keys);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < 18; i++) {
			struct ps_key *key = i % 2 ? one : two;

			request.time = times[i / 2 % 3];
			request.region = regions[i / 6];
			assert_int_equal(ps_sigv4_keys_get(&keys, key, &request, got), 0);
			assert_int_equal(
			        ps_sigv4_derive(key->secret, request.time, request.region, "s3", want), 0);
			assert_memory_equal(got, want, sizeof(got));
		}
	}
	ps_key_unref(one);
	ps_key_unref(two);
	ps_sigv4_keys_fini(&keys);
}

static void times_are_utc(void **state)
{
	char text[PS_SIGV4_TIME_LEN];

	(void)state;
	ps_sigv4_time(1369353600, text);
	assert_string_equal(text, "20130524T000000Z");
	ps_sigv4_time(-5, text);
	assert_string_equal(text, "19700101T000000Z");
	ps_sigv4_time(INT64_MAX, text);
	assert_string_equal(text, "99991231T235959Z");
}

static void queries_are_sorted_by_their_encoded_names(void **state)
{
	struct ps_sigv4_pair pairs[] = {{"prefix", "a b/+"}, {"list-type", "2"}, {"a-b", ""}, {"a", "~"},
	        {"a", "!"}, {"\xc3\xa4", "x"}};
	struct ps_strbuf b = {0};

	(void)state;
	ps_sigv4_query(pairs, PS_ARRAY_LEN(pairs), &b);
	assert_string_equal(b.s, "%C3%A4=x&a=%21&a=~&a-b=&list-type=2&prefix=a%20b%2F%2B");
	ps_strbuf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(published_vectors_are_reproduced),
	        cmocka_unit_test(derived_keys_are_remembered_by_day_region_and_key),
	        cmocka_unit_test(times_are_utc),
	        cmocka_unit_test(queries_are_sorted_by_their_encoded_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
