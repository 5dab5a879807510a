/* Keys of a role from AWS's Security Token Service. The request has the token of a web identity, or is
 * signed with other keys. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/sha.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "credentials/key_source.h"
#include "credentials/credentials.h"
#include "base/url.h"
#include "base/xml.h"

#define TIMEOUT_MS 10000
#define TRIES 3
#define DATE_LEN 40 /* of the header x-amz-date */
#define FORM "application/x-www-form-urlencoded; charset=utf-8"

/* The response ------------------------------------------------------------------------------------------- */

struct answer {
	char *access_key, *secret, *token, *expires, *code, *message;
};

static int take_element(void *arg, const char *path, const char *text)
{
	struct answer *a = arg;
	const struct {
		const char *path;
		char **to;
	} wanted[] = {
	        {"Credentials/AccessKeyId", &a->access_key},
	        {"Credentials/SecretAccessKey", &a->secret},
	        {"Credentials/SessionToken", &a->token},
	        {"Credentials/Expiration", &a->expires},
	        {"Error/Code", &a->code},
	        {"Error/Message", &a->message},
	};
	size_t n = strlen(path);

	for (size_t i = 0; i < PS_ARRAY_LEN(wanted); i++) {
		size_t len = strlen(wanted[i].path);

		if (n <= len || strcmp(path + n - len, wanted[i].path) != 0 || path[n - len - 1] != '/' ||
		        *wanted[i].to)
			continue;
		if (!(*wanted[i].to = strdup(text)))
			return -ENOMEM;
	}
	return 0;
}

static int refused(const struct ps_answer *answer, const struct answer *a, struct ps_error *err)
{
	char what[300];

	/* The message about an expired token names the role and times, never the token. */
	snprintf(what, sizeof(what), "%.80s%s%.200s", a->code ? a->code : "refused", a->message ? ": " : "",
	        a->message ? a->message : "");
	int rc = ps_key_fail_status(answer, "STS", what, err);
	if (a->code &&
	        (strcmp(a->code, "Throttling") == 0 || strcmp(a->code, "IDPCommunicationError") == 0) && err)
		err->retryable = true;
	return rc;
}

static int take_answer(const struct ps_answer *answer, struct ps_key **ret, struct ps_error *err)
{
	static const struct ps_xml_reader reader = {.end = take_element};
	struct answer a = {0};
	int rc = ps_xml_parse(answer->body, answer->nbytes, &reader, &a, err);

	if (answer->status != 200)
		rc = refused(answer, &a, err);
	else if (rc)
		ps_error_prefix(err, rc, "STS: the answer");
	else if (!a.access_key || !a.secret || !a.token || !a.expires)
		rc = ps_error_set(err, EPROTO, "STS: the answer has no credentials");
	else if (ps_clock_parse_rfc3339(a.expires) < 0)
		rc = ps_error_set(err, EPROTO, "STS: Expiration is not a time");
	else
		rc = ps_key_checked(
		        a.access_key, a.secret, a.token, NULL, ps_clock_parse_rfc3339(a.expires), ret, err);
	ps_secret_free(a.access_key);
	ps_secret_free(a.secret);
	ps_secret_free(a.token);
	free(a.expires);
	free(a.code);
	free(a.message);
	return rc;
}

/* The request -------------------------------------------------------------------------------------------- */

/* ret_variable: the variable with the user's endpoint; NULL: there is none. */
static int endpoint_of(
        const struct ps_key_context *x, const char *region, char **ret, const char **ret_variable)
{
	const char *variable = "AWS_ENDPOINT_URL_STS", *own = ps_key_env(x, variable);

	if (!own)
		own = ps_key_env(x, variable = "AWS_ENDPOINT_URL");
	*ret_variable = own ? variable : NULL;
	if (own)
		*ret = strdup(own);
	else if (!region || strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(region))
		*ret = strdup("https://sts.amazonaws.com");
	else if (asprintf(ret, "https://sts.%s.amazonaws.com%s", region,
	                 strncmp(region, "cn-", 3) == 0 ? ".cn" : "") < 0)
		*ret = NULL;
	return *ret ? 0 : -ENOMEM;
}

static void add_pair(struct ps_strbuf *b, const char *name, const char *value)
{
	if (!value)
		return;
	ps_strbuf_addf(b, "&%s=", name);
	ps_url_encode_strict(value, strlen(value), false, b);
}

/* Makes the form. Its buffer has full size from the start, because a buffer that grows leaves copies of the
 * token in freed memory. */
static char *compose(const struct ps_sts_role *role)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	char name[64];

	/* Enough for everything that is added. */
	size_t room = 1024 + 3 * (strlen(role->arn) + (role->token ? strlen(role->token) : 0) +
	                                 (role->external_id ? strlen(role->external_id) : 0) +
	                                 (role->session_name ? strlen(role->session_name) : 0));
	for (size_t i = 0; i < room; i++)
		ps_strbuf_addc(&b, ' ');
	ps_strbuf_reset(&b);
	snprintf(name, sizeof(name), "penstock-%lld", (long long)ps_clock_real_ms());
	ps_strbuf_addf(
	        &b, "Action=%s&Version=2011-06-15", role->token ? "AssumeRoleWithWebIdentity" : "AssumeRole");
	add_pair(&b, "RoleArn", role->arn);
	add_pair(&b, "RoleSessionName", role->session_name ? role->session_name : name);
	add_pair(&b, "ExternalId", role->external_id);
	add_pair(&b, "DurationSeconds", role->duration_s);
	add_pair(&b, "WebIdentityToken", role->token);
	return ps_strbuf_take(&b);
}

static int sign(const struct ps_key *key, const char *region, const struct ps_url *u, const char *body,
        char ret_date[static DATE_LEN], char **ret_authorization, char **ret_token)
{
	char time[PS_SIGV4_TIME_LEN], hash[2 * SHA256_DIGEST_LENGTH + 1];
	uint8_t signing[PS_SIGV4_KEY_LEN], digest[SHA256_DIGEST_LENGTH];
	ps_autostrbuf struct ps_strbuf authorization = {0}, host = {0};

	ps_strbuf_addf(&host, u->port ? "%s:%s" : "%s", u->host, u->port);
	if (host.failed)
		return -ENOMEM;
	ps_sigv4_time(ps_clock_real_s(), time);
	SHA256((const uint8_t *)body, strlen(body), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(hash + 2 * i, 3, "%02x", digest[i]);
	struct ps_sigv4_pair headers[] = {{"content-type", FORM}, {"host", host.s}, {"x-amz-date", time},
	        {"x-amz-security-token", key->session_token}};
	struct ps_sigv4_request request = {.method = "POST",
	        .path = u->path,
	        .query = "",
	        .headers = headers,
	        .nheaders = key->session_token ? 4 : 3,
	        .payload = hash,
	        .time = time,
	        .region = region ? region : "us-east-1",
	        .service = "sts"};
	int rc = ps_sigv4_derive(key->secret, time, request.region, "sts", signing);
	if (!rc)
		rc = ps_sigv4_sign(&request, key->access_key, signing, &authorization);
	explicit_bzero(signing, sizeof(signing));
	if (rc)
		return rc;
	snprintf(ret_date, DATE_LEN, "x-amz-date: %s", time);
	if (asprintf(ret_authorization, "Authorization: %s", authorization.s) < 0)
		*ret_authorization = NULL;
	if (key->session_token && asprintf(ret_token, "x-amz-security-token: %s", key->session_token) < 0)
		*ret_token = NULL;
	return *ret_authorization && (*ret_token || !key->session_token) ? 0 : -ENOMEM;
}

static int ask(struct ps_key_context *x, const struct ps_sts_role *role, const char *region, const char *body,
        struct ps_key **ret, struct ps_error *err)
{
	ps_autofree char *url = NULL;
	ps_autosecret char *signature = NULL, *session = NULL;
	char date[DATE_LEN];
	ps_autourl struct ps_url u = {0};
	const char *variable = NULL;

	int rc = endpoint_of(x, region, &url, &variable);
	if (!rc)
		rc = ps_url_parse(url, &u, NULL);
	if (!rc && !role->token)
		rc = sign(role->key, region, &u, body, date, &signature, &session);
	if (rc == -EINVAL && variable)
		return ps_error_set(err, EINVAL, "%s: not a URL", variable);
	if (rc)
		return ps_error_set(err, -rc, "%s", strerror(-rc));
	const char *bundle = ps_key_env(x, "AWS_CA_BUNDLE");
	struct ps_http_call call = {.method = "POST",
	        .url = url,
	        .headers = {"Content-Type: " FORM, "Accept: text/xml", signature ? date : NULL, signature,
	                session},
	        .body = body,
	        .timeout_ms = TIMEOUT_MS,
	        .access = &x->access,
	        .ca_file = variable && x->ca_file ? x->ca_file : bundle,
	        .stop = &x->stop};
	for (int i = 0; i < TRIES; i++) {
		ps_autoanswer struct ps_answer answer = {0};

		rc = ps_http_call_run(&call, &answer, err);
		if (rc && err)
			err->retryable = rc != -EINVAL;
		if (!rc)
			rc = take_answer(&answer, ret, err);
		if (!rc || rc == -ECANCELED || (err && !err->retryable))
			break;
	}
	return rc;
}

int ps_key_from_sts(
        struct ps_key_context *x, const struct ps_sts_role *role, struct ps_key **ret, struct ps_error *err)
{
	ps_autofree char *region = ps_profile_region(x);
	ps_autosecret char *body = compose(role);
	struct ps_error mine = {0};

	if (!body)
		return ps_no_memory(err);
	err = err ? err : &mine;
	int rc = ask(x, role, region, body, ret, err);
	return rc ? ps_error_prefix(err, rc, "role %.200s", role->arn) : 0;
}

/* Web identity ------------------------------------------------------------------------------------------- */

static const struct ps_key_file token_file = {.variable = "AWS_WEB_IDENTITY_TOKEN_FILE", .is_token = true};

int ps_key_from_token_file(struct ps_key_context *x, const char *file, const char *arn,
        const char *session_name, struct ps_key **ret, struct ps_error *err)
{
	ps_autofree char *path = ps_key_path(x, file);
	ps_autosecret char *token = NULL;
	int rc = path ? ps_key_read_token(path, &token, err) : ps_no_memory(err);

	if (rc) {
		ps_error_prefix(err, rc, "web identity");
		return rc == -ENOENT ? -EACCES : rc;
	}
	struct ps_sts_role role = {.arn = arn, .session_name = session_name, .token = token};
	return ps_key_from_sts(x, &role, ret, err);
}

static int from_web_identity(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	const char *file = ps_key_env(x, token_file.variable), *arn = ps_key_env(x, "AWS_ROLE_ARN");

	if (!file)
		return -ENOENT;
	if (!arn)
		return ps_error_set(
		        err, EACCES, "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not");
	return ps_key_from_token_file(x, file, arn, ps_key_env(x, "AWS_ROLE_SESSION_NAME"), ret, err);
}

const struct ps_key_source ps_key_web_identity = {
        .load = from_web_identity, .variables = {"AWS_", "HOME="}, .files = {&token_file}};
