#include "credentials/credentials.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "base/url.h"

#define HEX_LEN (2 * SHA256_DIGEST_LENGTH)

/* Encoding ----------------------------------------------------------------------------------------------- */

static int encoded_cmp(const char *a, const char *b)
{
	ps_autostrbuf struct ps_strbuf x = {0}, y = {0};

	ps_url_encode_strict(a, strlen(a), false, &x);
	ps_url_encode_strict(b, strlen(b), false, &y);
	return strcmp(ps_strbuf_peek(&x), ps_strbuf_peek(&y));
}

static int pair_cmp(const void *a, const void *b)
{
	const struct ps_sigv4_pair *x = a, *y = b;
	int order = encoded_cmp(x->name, y->name);

	return order ? order : encoded_cmp(x->value, y->value);
}

void ps_sigv4_query(struct ps_sigv4_pair *pairs, size_t n, struct ps_strbuf *out)
{
	qsort(pairs, n, sizeof(*pairs), pair_cmp);
	for (size_t i = 0; i < n; i++) {
		if (i)
			ps_strbuf_addc(out, '&');
		ps_url_encode_strict(pairs[i].name, strlen(pairs[i].name), false, out);
		ps_strbuf_addc(out, '=');
		ps_url_encode_strict(pairs[i].value, strlen(pairs[i].value), false, out);
	}
}

void ps_sigv4_time(int64_t unix_s, char ret[static PS_SIGV4_TIME_LEN])
{
	time_t t = (time_t)PS_MIN(PS_MAX(unix_s, 0), INT64_C(253402300799));
	struct tm tm = {0};
	char text[80];

	gmtime_r(&t, &tm);
	snprintf(text, sizeof(text), "%04d%02d%02dT%02d%02d%02dZ", tm.tm_year + 1900, tm.tm_mon + 1,
	        tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
	memcpy(ret, text, PS_SIGV4_TIME_LEN);
}

/* Signing ------------------------------------------------------------------------------------------------ */

static void to_hex(const uint8_t digest[static SHA256_DIGEST_LENGTH], char ret[static HEX_LEN + 1])
{
	for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
		snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

static bool hmac(
        const void *key, size_t nkey, const char *text, size_t n, uint8_t ret[static PS_SIGV4_KEY_LEN])
{
	return HMAC(EVP_sha256(), key, (int)nkey, (const uint8_t *)text, n, ret, NULL) != NULL;
}

int ps_sigv4_derive(const char *secret, const char *time, const char *region, const char *service,
        uint8_t ret[static PS_SIGV4_KEY_LEN])
{
	ps_autostrbuf struct ps_strbuf start = {0};
	uint8_t key[PS_SIGV4_KEY_LEN];

	ps_strbuf_add(&start, "AWS4");
	ps_strbuf_add(&start, secret);
	bool good = !start.failed && hmac(ps_strbuf_peek(&start), start.len, time, 8, key) &&
	            hmac(key, sizeof(key), region, strlen(region), key) &&
	            hmac(key, sizeof(key), service, strlen(service), key) &&
	            hmac(key, sizeof(key), "aws4_request", 12, key);
	if (start.s)
		explicit_bzero(start.s, start.len);
	if (good)
		memcpy(ret, key, sizeof(key));
	explicit_bzero(key, sizeof(key));
	return good ? 0 : -ENOMEM;
}

static void add_signed_headers(const struct ps_sigv4_request *rq, struct ps_strbuf *out)
{
	for (size_t i = 0; i < rq->nheaders; i++)
		ps_strbuf_addf(out, "%s%s", i ? ";" : "", rq->headers[i].name);
}

static void add_scope(const struct ps_sigv4_request *rq, struct ps_strbuf *out)
{
	ps_strbuf_addf(out, "%.8s/%s/%s/aws4_request", rq->time, rq->region, rq->service);
}

int ps_sigv4_sign(const struct ps_sigv4_request *rq, const char *access_key,
        const uint8_t signing_key[static PS_SIGV4_KEY_LEN], struct ps_strbuf *out)
{
	ps_autostrbuf struct ps_strbuf text = {0}, to_sign = {0};
	uint8_t digest[SHA256_DIGEST_LENGTH];
	char hex[HEX_LEN + 1];

	/* The canonical request, one line each: METHOD, path, query, headers, names of the headers, hash of the
	 * body. */
	ps_strbuf_addf(&text, "%s\n", rq->method);
	ps_strbuf_add(&text, *rq->path ? rq->path : "/");
	ps_strbuf_addc(&text, '\n');
	ps_strbuf_add(&text, rq->query);
	ps_strbuf_addc(&text, '\n');
	for (size_t i = 0; i < rq->nheaders; i++) {
		ps_strbuf_add(&text, rq->headers[i].name);
		ps_strbuf_addc(&text, ':');
		ps_strbuf_add(&text, rq->headers[i].value);
		ps_strbuf_addc(&text, '\n');
	}
	ps_strbuf_addc(&text, '\n');
	add_signed_headers(rq, &text);
	ps_strbuf_addf(&text, "\n%s", rq->payload);
	if (text.failed)
		return -ENOMEM;
	SHA256((const uint8_t *)text.s, text.len, digest);
	to_hex(digest, hex);
	ps_strbuf_addf(&to_sign, "AWS4-HMAC-SHA256\n%s\n", rq->time);
	add_scope(rq, &to_sign);
	ps_strbuf_addf(&to_sign, "\n%s", hex);
	if (to_sign.failed || !hmac(signing_key, PS_SIGV4_KEY_LEN, to_sign.s, to_sign.len, digest))
		return -ENOMEM;
	to_hex(digest, hex);
	ps_strbuf_addf(out, "AWS4-HMAC-SHA256 Credential=%s/", access_key);
	add_scope(rq, out);
	ps_strbuf_add(out, ", SignedHeaders=");
	add_signed_headers(rq, out);
	ps_strbuf_addf(out, ", Signature=%s", hex);
	return out->failed ? -ENOMEM : 0;
}

/* Derived keys ------------------------------------------------------------------------------------------- */

void ps_sigv4_keys_init(struct ps_sigv4_keys *keys)
{
	*keys = (struct ps_sigv4_keys){0};
	pthread_mutex_init(&keys->lock, NULL);
}

void ps_sigv4_keys_fini(struct ps_sigv4_keys *keys)
{
	for (size_t i = 0; i < PS_SIGV4_KEYS; i++)
		ps_key_unref(keys->derived[i].key);
	pthread_mutex_destroy(&keys->lock);
	explicit_bzero(keys->derived, sizeof(keys->derived));
}

int ps_sigv4_keys_get(struct ps_sigv4_keys *keys, struct ps_key *key, const struct ps_sigv4_request *rq,
        uint8_t ret[static PS_SIGV4_KEY_LEN])
{
	PS_LOCK_SCOPE(&keys->lock);
	for (size_t i = 0; i < PS_SIGV4_KEYS; i++) {
		const struct ps_sigv4_derived *d = &keys->derived[i];

		if (d->key == key && strncmp(d->day, rq->time, 8) == 0 &&
		        strcmp(d->region, rq->region) == 0 && strcmp(d->service, rq->service) == 0) {
			memcpy(ret, d->bytes, PS_SIGV4_KEY_LEN);
			return 0;
		}
	}
	int rc = ps_sigv4_derive(key->secret, rq->time, rq->region, rq->service, ret);
	if (rc < 0 || strlen(rq->region) >= PS_SIGV4_REGION_LEN || strlen(rq->service) >= 8)
		return rc;
	struct ps_sigv4_derived *d = &keys->derived[keys->next++ % PS_SIGV4_KEYS];
	ps_key_unref(d->key);
	d->key = ps_key_ref(key);
	memcpy(d->bytes, ret, PS_SIGV4_KEY_LEN);
	snprintf(d->day, sizeof(d->day), "%.8s", rq->time);
	snprintf(d->region, sizeof(d->region), "%s", rq->region);
	snprintf(d->service, sizeof(d->service), "%s", rq->service);
	return 0;
}
