#include "origin/credentials.h"

#include <errno.h>
#include <string.h>

struct ps_credentials {
	struct ps_key *key; /* NULL: requests go unsigned, if anonymous */
	bool anonymous;
	char *region;
};

const char *ps_env_get(const char *const *env, const char *name)
{
	size_t n = strlen(name);
	const char *value = NULL;

	if (!env)
		value = getenv(name);
	for (; !value && env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			value = *env + n + 1;
	return value && *value ? value : NULL;
}

/* Keys --------------------------------------------------------------------------------------------- */

static void free_secret(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

static void key_free(struct ps_key *key)
{
	free_secret(key->access_key);
	free_secret(key->secret);
	free_secret(key->session_token);
	free_secret(key->bearer);
	free(key);
}

static bool copy(const char *text, char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return !text || *ret;
}

struct ps_key *ps_key_new(const char *access_key, const char *secret, const char *session_token,
        const char *bearer, int64_t expires_s)
{
	struct ps_key *key = calloc(1, sizeof *key);

	if (!key)
		return NULL;
	key->expires_s = expires_s;
	atomic_init(&key->nrefs, 1);
	if (!copy(access_key, &key->access_key) || !copy(secret, &key->secret) ||
	        !copy(session_token, &key->session_token) || !copy(bearer, &key->bearer)) {
		key_free(key);
		return NULL;
	}
	return key;
}

struct ps_key *ps_key_ref(struct ps_key *key)
{
	atomic_fetch_add(&key->nrefs, 1);
	return key;
}

void ps_key_unref(struct ps_key *key)
{
	if (key && atomic_fetch_sub(&key->nrefs, 1) == 1)
		key_free(key);
}

/* The provider ------------------------------------------------------------------------------------- */

static int from_env(struct ps_credentials *c, const char *const *env, struct ps_error *err)
{
	const char *access_key = ps_env_get(env, "AWS_ACCESS_KEY_ID"),
	           *secret = ps_env_get(env, "AWS_SECRET_ACCESS_KEY");

	if (!access_key || !secret)
		return 0;
	c->key = ps_key_new(access_key, secret, ps_env_get(env, "AWS_SESSION_TOKEN"), NULL, 0);
	return c->key ? 0 : ps_error_set(err, ENOMEM, "out of memory");
}

int ps_credentials_new(
        const struct ps_credentials_options *options, struct ps_credentials **ret, struct ps_error *err)
{
	struct ps_credentials *c = calloc(1, sizeof *c);

	if (!c)
		return ps_error_set(err, ENOMEM, "out of memory");
	c->anonymous = options->no_sign_request;
	int rc = c->anonymous ? 0 : from_env(c, options->env, err);
	if (rc) {
		ps_credentials_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void ps_credentials_free(struct ps_credentials *c)
{
	if (!c)
		return;
	ps_key_unref(c->key);
	free(c->region);
	free(c);
}

int ps_credentials_get(struct ps_credentials *c, struct ps_key **ret, struct ps_error *err)
{
	if (!c->key && !c->anonymous)
		return ps_error_set(err, EACCES,
		        "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give "
		        "--no-sign-request for a public bucket");
	*ret = c->key ? ps_key_ref(c->key) : NULL;
	return 0;
}

int ps_credentials_wait(struct ps_credentials *c, const _Atomic bool *stop, struct ps_error *err)
{
	ps_autokey struct ps_key *key = NULL;

	(void)stop;
	return ps_credentials_get(c, &key, err);
}

bool ps_credentials_refused(struct ps_credentials *c, const struct ps_key *key)
{
	(void)c, (void)key;
	return false;
}

char *ps_credentials_region(struct ps_credentials *c)
{
	return c->region ? strdup(c->region) : NULL;
}
