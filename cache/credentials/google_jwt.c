#include "credentials/google_jwt.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/strbuf.h"

static void add_base64url(struct ps_strbuf *b, const void *bytes, size_t n)
{
	unsigned char *text = malloc(n / 3 * 4 + 5);

	if (!text) {
		b->failed = true;
		return;
	}
	size_t len = (size_t)EVP_EncodeBlock(text, bytes, (int)n);
	for (size_t i = 0; i < len && text[i] != '='; i++)
		ps_strbuf_addc(b, text[i] == '+' ? '-' : text[i] == '/' ? '_' : (char)text[i]);
	free(text);
}

/* Takes j over. */
static void add_json(struct ps_strbuf *b, json_t *j)
{
	ps_autofree char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	if (text)
		add_base64url(b, text, strlen(text));
	else
		b->failed = true;
}

static EVP_PKEY *read_key(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	/* No callback that would ask a terminal for a password. */
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"") : NULL;

	BIO_free(bio);
	if (key && EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA) {
		EVP_PKEY_free(key);
		key = NULL;
	}
	ERR_clear_error();
	return key;
}

static bool add_signature(struct ps_strbuf *b, EVP_PKEY *key, const char *text, size_t ntext)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char *bytes = NULL;
	size_t n = 0;
	bool good = ctx && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
	            EVP_DigestSign(ctx, NULL, &n, (const unsigned char *)text, ntext) == 1 &&
	            (bytes = malloc(n)) &&
	            EVP_DigestSign(ctx, bytes, &n, (const unsigned char *)text, ntext) == 1;

	if (good)
		add_base64url(b, bytes, n);
	free(bytes);
	EVP_MD_CTX_free(ctx);
	ERR_clear_error();
	return good;
}

int ps_google_jwt(const struct ps_google_jwt *jwt, char **ret, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf b = {0}, signature = {0};
	EVP_PKEY *key = read_key(jwt->private_key);

	if (!key)
		return ps_error_set(err, EACCES, "private_key is not an RSA key in PEM");
	add_json(&b, json_pack("{s:s, s:s, s:s*}", "alg", "RS256", "typ", "JWT", "kid", jwt->key_id));
	ps_strbuf_addc(&b, '.');
	add_json(&b, json_pack("{s:s, s:s, s:s, s:I, s:I}", "iss", jwt->email, "scope", PS_GOOGLE_SCOPE,
	                     "aud", jwt->audience, "iat", (json_int_t)jwt->now_s, "exp",
	                     (json_int_t)(jwt->now_s + PS_GOOGLE_JWT_S)));
	bool good = !b.failed && add_signature(&signature, key, b.s, b.len);
	EVP_PKEY_free(key);
	ps_strbuf_addc(&b, '.');
	ps_strbuf_add(&b, ps_strbuf_peek(&signature));
	if (!good || signature.failed || b.failed || !(*ret = ps_strbuf_take(&b)))
		return ps_error_set(err, ENOMEM, "the statement to the token server cannot be signed");
	return 0;
}
