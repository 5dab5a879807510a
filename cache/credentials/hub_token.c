#include "credentials/credentials.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/strbuf.h"
#include "base/url.h"

/* Removes surrounding blanks and line ends. *ret is NULL if nothing is left. */
static int take(const char *text, const char *where, char **ret, struct ps_error *err)
{
	int rc = ps_secret_token(text, ret);

	if (rc == -EINVAL)
		return ps_error_set(err, EINVAL, "%s: not a token of the Hugging Face Hub", where);
	return rc ? ps_no_memory(err) : 0;
}

static int read_file(const char *path, char **ret, struct ps_error *err)
{
	static const struct ps_secret_file kind = {
	        .what = "token file", .max_nbytes = PS_HF_TOKEN_MAX_NBYTES};
	ps_autosecret char *text = NULL;
	int rc = ps_secret_file_read(path, &kind, &text, NULL, err);

	return rc ? rc : take(text, path, ret, err);
}

/* Expands a leading "~/" to HOME, as HF_HOME allows. */
static void add_expanded(struct ps_strbuf *b, const char *const *env, const char *path)
{
	const char *home = ps_env_get(env, "HOME");

	if (path[0] == '~' && (path[1] == '/' || !path[1]) && home) {
		ps_strbuf_add(b, home);
		path++;
	}
	ps_strbuf_add(b, path);
}

static char *default_file(const char *const *env)
{
	const char *path = ps_env_get(env, "HF_TOKEN_PATH"), *hf_home = ps_env_get(env, "HF_HOME"),
	           *xdg = ps_env_get(env, "XDG_CACHE_HOME");
	struct ps_strbuf b = {0};

	if (path) {
		add_expanded(&b, env, path);
	} else if (hf_home) {
		add_expanded(&b, env, hf_home);
		ps_strbuf_add(&b, "/token");
	} else {
		add_expanded(&b, env, xdg ? xdg : "~/.cache");
		ps_strbuf_add(&b, "/huggingface/token");
	}
	return ps_strbuf_take(&b);
}

int ps_hf_token_find(const char *const *env, const char *file, char **ret, struct ps_error *err)
{
	static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
	char *token = NULL;
	int rc = 0;

	if (file) {
		rc = read_file(file, &token, err);
		if (!rc && !token)
			rc = ps_error_set(err, EINVAL, "token file %s: empty", file);
		/* The same option names credentials of other services, which the Hub must not see. */
		if (!rc && strpbrk(token, "{&")) {
			ps_secret_free(ps_steal_ptr(&token));
			rc = ps_error_set(err, EINVAL, "%s: this is not a token of the Hub", file);
		}
	}
	for (size_t i = 0; !file && !rc && !token && i < PS_ARRAY_LEN(names); i++)
		if (ps_env_get(env, names[i]))
			rc = take(ps_env_get(env, names[i]), names[i], &token, err);
	if (!file && !rc && !token) {
		ps_autofree char *path = default_file(env);

		if (!path)
			return ps_no_memory(err);
		/* A missing file (no login) and an unreadable one (another user's) are no errors. */
		if (access(path, R_OK) == 0)
			rc = read_file(path, &token, err);
	}
	if (!rc)
		*ret = token;
	return rc;
}

int ps_hf_endpoint_parse(const char *text, char **ret, struct ps_error *err)
{
	ps_autourl struct ps_url u = {0};
	int rc = ps_url_parse(text && *text ? text : PS_HF_ENDPOINT, &u, err);

	if (!rc && strncmp(u.scheme, "http", 4) != 0)
		rc = ps_error_set(err, EINVAL, "not an http or https URL");
	if (rc)
		return ps_error_prefix(err, rc, "HF_ENDPOINT");
	char *endpoint = ps_url_compose(&u);
	if (!endpoint)
		return ps_no_memory(err);
	for (size_t n = strlen(endpoint); n && endpoint[n - 1] == '/';)
		endpoint[--n] = '\0';
	*ret = endpoint;
	return 0;
}
