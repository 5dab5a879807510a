/* Keys of a container's or pod's agent (ECS, EKS Pod Identity). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "credentials/key_source.h"
#include "base/url.h"

#define AGENT "http://169.254.170.2"
#define TIMEOUT_MS 2000
#define TRIES 3

/* Without TLS, a token may go to this machine and to the agents' own addresses only. */
static bool may_go_unencrypted(const char *host)
{
	static const char *const agents[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};

	for (size_t i = 0; i < PS_ARRAY_LEN(agents); i++)
		if (strcmp(host, agents[i]) == 0)
			return true;
	return ps_url_is_loopback(host);
}

static int find_url(const struct ps_key_context *x, char **ret, struct ps_error *err)
{
	const char *relative = ps_key_env(x, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
	           *full = ps_key_env(x, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
	ps_autourl struct ps_url u = {0};
	ps_autostrbuf struct ps_strbuf b = {0};

	if (relative) {
		if (relative[0] != '/')
			return ps_error_set(
			        err, EINVAL, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with /");
		ps_strbuf_addf(&b, AGENT "%s", relative);
	} else if (full) {
		int rc = ps_url_parse(full, &u, err);

		if (rc)
			return ps_error_prefix(err, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
		if (strcmp(u.scheme, "https") != 0 &&
		        (strcmp(u.scheme, "http") != 0 || !may_go_unencrypted(u.host)))
			return ps_error_set(err, EINVAL,
			        "AWS_CONTAINER_CREDENTIALS_FULL_URI: http:// is for loopback and the agents' "
			        "own addresses "
			        "(169.254.170.2, 169.254.170.23, [fd00:ec2::23]) only, not for %s",
			        u.host);
		ps_strbuf_add(&b, full);
	} else {
		return -ENOENT;
	}
	*ret = ps_strbuf_take(&b);
	return *ret ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

/* "Authorization: TOKEN", or NULL where none is wanted. */
static int find_authorization(const struct ps_key_context *x, char **ret, struct ps_error *err)
{
	const char *file = ps_key_env(x, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
	           *token = ps_key_env(x, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
	ps_autosecret char *read = NULL;

	*ret = NULL;
	if (file) {
		ps_autofree char *path = ps_key_path(x, file);
		int rc = path ? ps_key_read_token(path, &read, err)
		              : ps_error_set(err, ENOMEM, "out of memory");

		if (rc)
			return rc == -ENOENT
			               ? ps_error_set(err, EACCES,
			                         "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %s: no such file",
			                         path)
			               : rc;
		token = read;
	}
	if (!token)
		return 0;
	if (strpbrk(token, "\r\n"))
		return ps_error_set(err, EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN has a line end in it");
	return asprintf(ret, "Authorization: %s", token) < 0 ? ps_error_set(err, ENOMEM, "out of memory") : 0;
}

int ps_key_from_container(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	static const struct ps_key_shape shape = {
	        "", "AccessKeyId", "SecretAccessKey", "Token", "Expiration", 0};
	ps_autofree char *url = NULL;
	ps_autosecret char *authorization = NULL;
	ps_autoanswer struct ps_answer answer = {0};
	int rc = find_url(x, &url, err);

	if (!rc)
		rc = find_authorization(x, &authorization, err);
	if (rc)
		return rc;
	struct ps_call call = {.method = "GET",
	        .url = url,
	        .headers = {"Accept: application/json", authorization},
	        .timeout_ms = TIMEOUT_MS,
	        .ca_file = x->ca_file,
	        .stop = &x->stop};
	for (int i = 0; i < TRIES; i++) {
		ps_answer_fini(&answer);
		rc = ps_call_run(&call, &answer, err);
		if (rc == -ECANCELED || (!rc && answer.status < 500))
			break;
	}
	if (rc) {
		if (err)
			err->retryable = true;
		return ps_error_prefix(err, "container credentials");
	}
	if (answer.status != 200)
		return ps_key_fail_status(&answer, "container credentials", "the agent refuses", err);
	rc = ps_key_from_json(answer.body, answer.nbytes, &shape, ret, err);
	return rc ? ps_error_prefix(err, "container credentials") : 0;
}
