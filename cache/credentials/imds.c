/* Keys of an EC2 instance's role: the instance metadata service, version 2. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/strbuf.h"
#include "credentials/key_source.h"

#define ENDPOINT_V4 "http://169.254.169.254"
#define ENDPOINT_V6 "http://[fd00:ec2::254]"
#define ROLES "/latest/meta-data/iam/security-credentials/"
#define TOKEN_TTL_S "21600"
#define TIMEOUT_MS 1000 /* most machines that ask have no such service */
#define TRIES 2
#define ROLE_MAX_LEN 128

struct asking {
	struct ps_key_context *x;
	const char *endpoint;
	size_t nendpoint; /* without slashes at its end */
	char *token;      /* a header */
};

static int call(const struct asking *a, const char *method, const char *path, const char *header,
        struct ps_answer *ret, struct ps_error *err)
{
	ps_autofree char *url = NULL;
	int rc = 0;

	if (asprintf(&url, "%.*s%s", (int)a->nendpoint, a->endpoint, path) < 0) {
		url = NULL;
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	struct ps_call c = {.method = method,
	        .url = url,
	        .headers = {header},
	        .timeout_ms = TIMEOUT_MS,
	        .stop = &a->x->stop};
	for (int i = 0; i < TRIES; i++) {
		ps_answer_fini(ret);
		rc = ps_call_run(&c, ret, err);
		if (rc == -ECANCELED || (!rc && ret->status < 500))
			break;
	}
	if (rc && err)
		err->retryable = true;
	return rc;
}

static int get_token(struct asking *a, struct ps_error *err)
{
	ps_autoanswer struct ps_answer answer = {0};
	int rc = call(a, "PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: " TOKEN_TTL_S,
	        &answer, err);

	if (rc)
		return rc;
	if (answer.status != 200)
		return ps_key_fail_status(&answer, "instance metadata", "no session token is to be had", err);
	size_t n = strcspn(answer.body, " \t\r\n");
	if (!n || answer.body[n + strspn(answer.body + n, " \t\r\n")])
		return ps_error_set(err, EPROTO, "instance metadata: the session token is none");
	if (asprintf(&a->token, "X-aws-ec2-metadata-token: %.*s", (int)n, answer.body) < 0) {
		a->token = NULL;
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	return 0;
}

/* The path of the instance's role. */
static int get_role(const struct asking *a, char **ret, struct ps_error *err)
{
	ps_autoanswer struct ps_answer answer = {0};
	int rc = call(a, "GET", ROLES, a->token, &answer, err);

	if (rc)
		return rc;
	if (answer.status == 404)
		return ps_error_set(err, EACCES, "instance metadata: this instance has no role");
	if (answer.status != 200)
		return ps_key_fail_status(&answer, "instance metadata", "the role is not told", err);
	size_t n = strcspn(answer.body, "\r\n");
	if (!n || n > ROLE_MAX_LEN ||
	        strspn(answer.body, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+=,.@_-") <
	                n)
		return ps_error_set(err, EPROTO, "instance metadata: the role's name is none");
	if (asprintf(ret, ROLES "%.*s", (int)n, answer.body) < 0) {
		*ret = NULL;
		return ps_error_set(err, ENOMEM, "out of memory");
	}
	return 0;
}

static int load(struct asking *a, struct ps_key **ret, struct ps_error *err)
{
	static const struct ps_key_shape shape = {
	        "", "AccessKeyId", "SecretAccessKey", "Token", "Expiration", 0};
	ps_autoanswer struct ps_answer answer = {0};
	ps_autofree char *role = NULL;
	int rc = get_role(a, &role, err);

	if (!rc)
		rc = call(a, "GET", role, a->token, &answer, err);
	if (rc)
		return rc;
	if (answer.status != 200)
		return ps_key_fail_status(
		        &answer, "instance metadata", "the role's credentials are not told", err);
	rc = ps_key_from_json(answer.body, answer.nbytes, &shape, ret, err);
	return rc ? ps_error_prefix(err, "instance metadata") : 0;
}

int ps_key_from_imds(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	const char *disabled = ps_key_env(x, "AWS_EC2_METADATA_DISABLED"),
	           *mode = ps_key_env(x, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
	struct asking a = {.x = x, .endpoint = ps_key_env(x, "AWS_EC2_METADATA_SERVICE_ENDPOINT")};

	if (disabled && strcasecmp(disabled, "true") == 0)
		return -ENOENT;
	if (!a.endpoint)
		a.endpoint = mode && strcasecmp(mode, "ipv6") == 0 ? ENDPOINT_V6 : ENDPOINT_V4;
	a.nendpoint = strlen(a.endpoint);
	while (a.nendpoint && a.endpoint[a.nendpoint - 1] == '/')
		a.nendpoint--;
	int rc = get_token(&a, err);
	/* Silence means that this is no instance, unless it has spoken before. */
	if (rc && rc != -ECANCELED && !x->metadata_answered)
		return -ENOENT;
	x->metadata_answered = x->metadata_answered || !rc;
	if (!rc)
		rc = load(&a, ret, err);
	ps_secret_free(a.token);
	return rc;
}
