/* Keys of IAM Identity Center: `aws sso login` leaves a token, which is exchanged for those of a role. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/sha.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "base/url.h"
#include "credentials/key_source.h"
#include "credentials/profile.h"
#include "credentials/sigv4.h"

#define TIMEOUT_MS 10000

struct sso {
	const char *session, *start_url, *region, *account, *role;
};

static int find_settings(
        const struct ps_profiles *all, const char *profile, struct sso *s, struct ps_error *err)
{
	s->session = ps_profiles_get(all, PS_PROFILE_CONFIG, profile, "sso_session");
	s->account = ps_profiles_get(all, PS_PROFILE_CONFIG, profile, "sso_account_id");
	s->role = ps_profiles_get(all, PS_PROFILE_CONFIG, profile, "sso_role_name");
	enum ps_profile_kind kind = s->session ? PS_PROFILE_SSO : PS_PROFILE_CONFIG;
	const char *section = s->session ? s->session : profile;
	s->start_url = ps_profiles_get(all, kind, section, "sso_start_url");
	s->region = ps_profiles_get(all, kind, section, "sso_region");
	if (!s->start_url && !s->account)
		return -ENOENT;
	if (s->start_url && s->region && s->account && s->role &&
	        strspn(s->region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(s->region))
		return 0;
	return ps_error_set(err, EACCES,
	        "%s: sso_start_url, sso_region, sso_account_id and sso_role_name are not all there",
	        all->config_path);
}

/* ~/.aws/sso/cache/SHA1.json, of the session's name, or in the older form of the URL. */
static char *token_path(const struct ps_key_context *x, const struct sso *s)
{
	const char *name = s->session ? s->session : s->start_url;
	uint8_t digest[SHA_DIGEST_LENGTH];
	ps_autostrbuf struct ps_strbuf b = {0};

	SHA1((const uint8_t *)name, strlen(name), digest);
	ps_strbuf_add(&b, "~/.aws/sso/cache/");
	for (size_t i = 0; i < sizeof digest; i++)
		ps_strbuf_addf(&b, "%02x", digest[i]);
	ps_strbuf_add(&b, ".json");
	return b.failed ? NULL : ps_key_path(x, b.s);
}

static int read_token(const char *path, char **ret, struct ps_error *err)
{
	ps_autosecret char *text = NULL;
	size_t n = 0;
	int rc = ps_key_read_file(path, &text, &n, err);

	if (rc == -ENOENT)
		return ps_error_set(err, EACCES, "%s is not there: run aws sso login", path);
	if (rc)
		return rc;
	ps_autosecretjson json_t *j = json_loadb(text, n, 0, NULL);
	const char *token = ps_json_text(j, "accessToken"), *expires = ps_json_text(j, "expiresAt");
	int64_t until = expires ? ps_clock_parse_rfc3339(expires) : -1;
	if (!token || until < 0)
		rc = ps_error_set(err, EACCES, "%s: no token of SSO in it: run aws sso login", path);
	else if (until <= ps_clock_real_s())
		rc = ps_error_set(err, EACCES, "%s: the session of SSO has expired: run aws sso login", path);
	else if (strpbrk(token, "\r\n") || asprintf(ret, "x-amz-sso_bearer_token: %s", token) < 0)
		rc = ps_error_set(err, EACCES, "%s: a broken token", path);
	return rc;
}

static char *compose_url(const struct ps_key_context *x, const struct sso *s)
{
	const char *own = ps_key_env(x, "AWS_ENDPOINT_URL_SSO");
	struct ps_strbuf b = {0};

	if (own)
		ps_strbuf_add(&b, own);
	else
		ps_strbuf_addf(&b, "https://portal.sso.%s.amazonaws.com%s", s->region,
		        strncmp(s->region, "cn-", 3) == 0 ? ".cn" : "");
	ps_strbuf_add(&b, "/federation/credentials?role_name=");
	ps_url_encode_strict(s->role, strlen(s->role), false, &b);
	ps_strbuf_add(&b, "&account_id=");
	ps_url_encode_strict(s->account, strlen(s->account), false, &b);
	return ps_strbuf_take(&b);
}

int ps_key_from_sso(struct ps_key_context *x, const struct ps_profiles *all, const char *profile,
        struct ps_key **ret, struct ps_error *err)
{
	static const struct ps_key_shape shape = {
	        "roleCredentials", "accessKeyId", "secretAccessKey", "sessionToken", "expiration", 0};
	ps_autoanswer struct ps_answer answer = {0};
	ps_autosecret char *header = NULL;
	struct sso s = {0};
	int rc = find_settings(all, profile, &s, err);

	if (rc)
		return rc;
	ps_autofree char *path = token_path(x, &s), *url = compose_url(x, &s);
	if (!path || !url)
		return ps_error_set(err, ENOMEM, "out of memory");
	rc = read_token(path, &header, err);
	if (rc)
		return rc;
	struct ps_call call = {.method = "GET",
	        .url = url,
	        .headers = {"Accept: application/json", header},
	        .timeout_ms = TIMEOUT_MS,
	        .access = &x->access,
	        .ca_file = ps_key_env(x, "AWS_CA_BUNDLE"),
	        .stop = &x->stop};
	rc = ps_call_run(&call, &answer, err);
	if (rc && err)
		err->retryable = true;
	if (rc)
		return rc;
	if (answer.status != 200)
		return ps_key_fail_status(&answer, "SSO",
		        "refused: run aws sso login, and check sso_account_id and sso_role_name", err);
	rc = ps_key_from_json(answer.body, answer.nbytes, &shape, ret, err);
	return rc ? ps_error_prefix(err, "SSO") : 0;
}
