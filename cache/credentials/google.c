/* Google's credentials: bearer tokens (requested with a file of application default credentials, or from
 * the metadata server), and HMAC keys. */

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/ini.h"
#include "base/strbuf.h"
#include "base/url.h"
#include "credentials/key_source.h"
#include "credentials/credentials.h"

#define PS_GOOGLE_SCOPE "https://www.googleapis.com/auth/devstorage.read_only"
#define PS_GOOGLE_JWT_S 3600 /* the maximum */

#define TOKEN_HOST "https://oauth2.googleapis.com/token"
#define METADATA_HOST "metadata.google.internal"
#define METADATA_PATH "/computeMetadata/v1/instance/service-accounts/default/token"
#define TIMEOUT_MS 10000
#define METADATA_TIMEOUT_MS 1000
#define TRIES 3
#define FORM "application/x-www-form-urlencoded"

/* {"access_token", "expires_in": seconds}, or {"error", "error_description"}. */
static int take_token(
        const struct ps_answer *answer, const char *who, struct ps_key **ret, struct ps_error *err)
{
	ps_autosecretjson json_t *j = json_loadb(answer->body, answer->nbytes, 0, NULL);
	const char *token = ps_json_text(j, "access_token"), *error = ps_json_text(j, "error"),
	           *description = ps_json_text(j, "error_description");
	const json_t *expires_in = json_object_get(j, "expires_in");
	char what[300];

	if (answer->status != 200) {
		snprintf(what, sizeof(what), "%.80s%s%.200s", error ? error : "refused",
		        description ? ": " : "", description ? description : "");
		return ps_key_fail_status(answer, who, what, err);
	}
	if (!token || !json_is_integer(expires_in) || json_integer_value(expires_in) <= 0 ||
	        json_integer_value(expires_in) > 86400 * 366)
		return ps_error_set(err, EPROTO, "%s: the answer has no access_token or no expires_in", who);
	int rc = ps_key_checked(
	        NULL, NULL, NULL, token, ps_clock_real_s() + json_integer_value(expires_in), ret, err);
	return rc ? ps_error_prefix(err, rc, "%s", who) : 0;
}

/* JWTs --------------------------------------------------------------------------------------------------- */

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

/* Takes ownership of j. */
static void add_json(struct ps_strbuf *b, json_t *j)
{
	ps_autofree char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	if (text)
		add_base64url(b, text, strlen(text));
	else
		b->failed = true;
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

/* The signed assertion with which a service account requests a token: a JWT with RS256. *ret: for
 * ps_secret_free(). -EACCES for an invalid private key, -ENOMEM. */
static int make_assertion(const char *email, const char *pem, const char *key_id, const char *audience,
        char **ret, struct ps_error *err)
{
	ps_autostrbuf struct ps_strbuf b = {0}, signature = {0};
	BIO *bio = BIO_new_mem_buf(pem, -1);
	/* The empty password keeps OpenSSL from asking for one on a terminal. */
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"") : NULL;
	int64_t now_s = ps_clock_real_s();

	BIO_free(bio);
	ERR_clear_error();
	if (!key || EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA) {
		EVP_PKEY_free(key);
		return ps_error_set(err, EACCES, "private_key is not an RSA key in PEM");
	}
	add_json(&b, json_pack("{s:s, s:s, s:s*}", "alg", "RS256", "typ", "JWT", "kid", key_id));
	ps_strbuf_addc(&b, '.');
	add_json(&b,
	        json_pack("{s:s, s:s, s:s, s:I, s:I}", "iss", email, "scope", PS_GOOGLE_SCOPE, "aud",
	                audience, "iat", (json_int_t)now_s, "exp", (json_int_t)(now_s + PS_GOOGLE_JWT_S)));
	bool good = !b.failed && add_signature(&signature, key, b.s, b.len);
	EVP_PKEY_free(key);
	ps_strbuf_addc(&b, '.');
	ps_strbuf_add(&b, ps_strbuf_peek(&signature));
	if (!good || signature.failed || b.failed || !(*ret = ps_strbuf_take(&b)))
		return ps_error_set(err, ENOMEM, "the request to the token server cannot be signed");
	return 0;
}

/* Files -------------------------------------------------------------------------------------------------- */

/* A secret is sent to this URL, so it must use TLS or be on this machine. */
static int check_token_uri(const char *uri, struct ps_error *err)
{
	ps_autourl struct ps_url u = {0};
	int rc = ps_url_parse(uri, &u, err);

	if (rc)
		return ps_error_prefix(err, rc, "token_uri");
	if (strcmp(u.scheme, "https") == 0 || (strcmp(u.scheme, "http") == 0 && ps_url_is_loopback(u.host)))
		return 0;
	return ps_error_set(err, EACCES, "token_uri: %s is not https", u.host);
}

static int ask_token(struct ps_key_context *x, const char *uri, const char *form, struct ps_key **ret,
        struct ps_error *err)
{
	bool is_google = strncmp(uri, TOKEN_HOST, strlen(TOKEN_HOST)) == 0;
	struct ps_http_call call = {.method = "POST",
	        .url = uri,
	        .headers = {"Content-Type: " FORM, "Accept: application/json"},
	        .body = form,
	        .timeout_ms = TIMEOUT_MS,
	        .access = &x->access,
	        .ca_file = is_google ? NULL : x->ca_file,
	        .stop = &x->stop};
	int rc = check_token_uri(uri, err);

	for (int i = 0; !rc && i < TRIES; i++) {
		ps_autoanswer struct ps_answer answer = {0};

		rc = ps_http_call_run(&call, &answer, err);
		if (rc && err)
			err->retryable = rc != -EINVAL;
		if (!rc)
			return take_token(&answer, "the token server", ret, err);
		if (rc == -ECANCELED)
			break;
		rc = i + 1 < TRIES ? 0 : rc;
	}
	return rc;
}

static int from_service_account(
        struct ps_key_context *x, const json_t *j, struct ps_key **ret, struct ps_error *err)
{
	const char *uri = ps_json_text(j, "token_uri"), *email = ps_json_text(j, "client_email"),
	           *pem = ps_json_text(j, "private_key"), *audience = uri ? uri : TOKEN_HOST;
	ps_autosecret char *assertion = NULL, *form = NULL;

	if (!email || !pem)
		return ps_error_set(err, EACCES, "the service account has no client_email or no private_key");
	int rc = make_assertion(email, pem, ps_json_text(j, "private_key_id"), audience, &assertion, err);
	if (rc)
		return rc;
	/* An assertion has no character that needs an escape. */
	if (asprintf(&form,
	            "grant_type=urn%%3Aietf%%3Aparams%%3Aoauth%%3Agrant-type%%3Ajwt-bearer&assertion=%s",
	            assertion) < 0) {
		form = NULL;
		return ps_no_memory(err);
	}
	return ask_token(x, audience, form, ret, err);
}

static int from_user(struct ps_key_context *x, const json_t *j, struct ps_key **ret, struct ps_error *err)
{
	const char *names[] = {"client_id", "client_secret", "refresh_token"};
	const char *host = ps_key_env(x, "CLOUDSDK_AUTH_TOKEN_HOST");
	struct ps_strbuf b = {0};

	ps_strbuf_add(&b, "grant_type=refresh_token");
	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
		const char *value = ps_json_text(j, names[i]);

		if (!value) {
			ps_strbuf_fini(&b);
			return ps_error_set(err, EACCES,
			        "no %s in it: run gcloud auth application-default login", names[i]);
		}
		ps_strbuf_addf(&b, "&%s=", names[i]);
		ps_url_encode_strict(value, strlen(value), false, &b);
	}
	ps_autosecret char *form = ps_strbuf_take(&b);
	if (!form)
		return ps_no_memory(err);
	return ask_token(x, host ? host : TOKEN_HOST, form, ret, err);
}

static int from_file(struct ps_key_context *x, const char *path, struct ps_key **ret, struct ps_error *err)
{
	ps_autosecret char *text = NULL;
	size_t n = 0;
	int rc = ps_key_read_file(path, &text, &n, err);

	if (rc)
		return rc;
	ps_autosecretjson json_t *j = json_loadb(text, n, 0, NULL);
	const char *type = ps_json_text(j, "type");
	if (!type)
		rc = ps_error_set(err, EACCES, "not a JSON file of Google credentials");
	else if (strcmp(type, "service_account") == 0)
		rc = from_service_account(x, j, ret, err);
	else if (strcmp(type, "authorized_user") == 0)
		rc = from_user(x, j, ret, err);
	else
		rc = ps_error_set(err, EACCES,
		        "credentials of type %.40s are not supported; service_account and authorized_user "
		        "are",
		        type);
	return rc ? ps_error_prefix(err, rc, "%s", path) : 0;
}

static const struct ps_key_file by_option = {.by_option = true};
static const struct ps_key_file by_variable = {.variable = "GOOGLE_APPLICATION_CREDENTIALS"};
/* Where `gcloud auth application-default login` stores credentials. */
static const struct ps_key_file by_gcloud = {.variable = "CLOUDSDK_CONFIG",
        .below = "/application_default_credentials.json",
        .usual = "~/.config/gcloud"};

static int from_found_file(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	bool named = x->google_file || ps_key_env(x, by_variable.variable);
	ps_autofree char *path = ps_key_file(x, x->google_file ? &by_option
	                                        : named        ? &by_variable
	                                                       : &by_gcloud);

	if (!path)
		return ps_no_memory(err);
	int rc = from_file(x, path, ret, err);
	if (named && rc == -ENOENT)
		return ps_error_set(err, EACCES, "%s: no such file (%s)", path,
		        x->google_file ? "--credentials" : "GOOGLE_APPLICATION_CREDENTIALS");
	return rc;
}

const struct ps_key_source ps_key_google_file = {.load = from_found_file,
        .variables = {"GOOGLE_", "CLOUDSDK_", "HOME=", "STORAGE_EMULATOR_HOST=" /* where s3.c sends keys */},
        .files = {&by_option, &by_variable, &by_gcloud}};

/* HMAC keys ---------------------------------------------------------------------------------------------- */

struct boto {
	char *access_key, *secret;
};

static int take_boto(void *arg, const struct ps_ini_entry *entry)
{
	struct boto *b = arg;
	char **to = NULL;

	if (!entry->key || strcasecmp(entry->section, "Credentials") != 0)
		return 0;
	if (strcmp(entry->key, "gs_access_key_id") == 0)
		to = &b->access_key;
	else if (strcmp(entry->key, "gs_secret_access_key") == 0)
		to = &b->secret;
	if (!to || !*entry->value)
		return 0;
	ps_secret_free(*to);
	*to = strdup(entry->value);
	return *to ? 0 : -ENOMEM;
}

static const struct ps_key_file boto_file = {.variable = "BOTO_CONFIG", .usual = "~/.boto"};

static int from_boto(const struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	ps_autofree char *path = ps_key_file(x, &boto_file);
	ps_autosecret char *text = NULL;
	struct boto b = {0};
	size_t n = 0;

	if (!path)
		return ps_no_memory(err);
	/* The file is gsutil's and may have syntax that we do not know: a syntax error is ignored, and only
	 * the entries before it count. */
	if (ps_key_read_file(path, &text, &n, NULL) == 0)
		(void)!ps_ini_parse(text, n, take_boto, &b, NULL);
	int rc = b.access_key && b.secret ? ps_key_checked(b.access_key, b.secret, NULL, NULL, 0, ret, err)
	                                  : -ENOENT;
	ps_secret_free(b.access_key);
	ps_secret_free(b.secret);
	return rc && rc != -ENOENT ? ps_error_prefix(err, rc, "%s", path) : rc;
}

static int from_hmac(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	const char *access_key = ps_key_env(x, "GS_ACCESS_KEY_ID"),
	           *secret = ps_key_env(x, "GS_SECRET_ACCESS_KEY"), *aws = ps_key_env(x, "AWS_ACCESS_KEY_ID");

	/* Options of the command line take precedence. */
	if (x->google_file)
		return -ENOENT;
	if (x->profile)
		return ps_key_profile.load(x, ret, err);
	if (access_key && secret)
		return ps_key_checked(access_key, secret, NULL, NULL, 0, ret, err);
	if (access_key || secret)
		return ps_error_set(
		        err, EACCES, "only one of GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY is set");
	/* Google's HMAC keys begin with GOOG. Users of AWS tools put them into AWS's variables. */
	if (aws && strncmp(aws, "GOOG", 4) == 0)
		return ps_key_environment.load(x, ret, err);
	/* A file that the environment names takes precedence over a file in a standard place. */
	return ps_key_env(x, "GOOGLE_APPLICATION_CREDENTIALS") ? -ENOENT : from_boto(x, ret, err);
}

const struct ps_key_source ps_key_google_hmac = {
        .load = from_hmac, .variables = {"GS_", "AWS_", "BOTO_CONFIG=", "HOME="}, .files = {&boto_file}};

/* The metadata server ------------------------------------------------------------------------------------ */

static int from_metadata(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	const char *host = ps_key_env(x, "GCE_METADATA_HOST"), *no_check = ps_key_env(x, "NO_GCE_CHECK");
	ps_autoanswer struct ps_answer answer = {0};
	ps_autofree char *url = NULL;
	int rc = 0;

	if (no_check && strcasecmp(no_check, "true") == 0)
		return -ENOENT;
	if (asprintf(&url, "http://%s" METADATA_PATH, host ? host : METADATA_HOST) < 0) {
		url = NULL;
		return ps_no_memory(err);
	}
	struct ps_http_call call = {.method = "GET",
	        .url = url,
	        .headers = {"Metadata-Flavor: Google"},
	        .timeout_ms = METADATA_TIMEOUT_MS,
	        .stop = &x->stop};
	for (int i = 0; i < TRIES; i++) {
		ps_answer_fini(&answer);
		rc = ps_http_call_run(&call, &answer, err);
		if (rc == -ECANCELED || rc == -EHOSTUNREACH || (!rc && answer.status < 500))
			break;
	}
	if (rc == -ECANCELED)
		return rc;
	/* No answer means that this is not a machine of Google's, unless the server has answered before or
	 * the environment names it. */
	if (rc && !x->metadata_answered && !host)
		return -ENOENT;
	if (rc) {
		if (err)
			err->retryable = true;
		return ps_error_prefix(err, rc, "metadata server");
	}
	x->metadata_answered = true;
	return take_token(&answer, "metadata server", ret, err);
}

const struct ps_key_source ps_key_google_metadata = {
        .load = from_metadata, .variables = {"GCE_", "NO_GCE_CHECK="}};
