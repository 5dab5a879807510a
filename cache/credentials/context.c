/* What every source needs: the environment, files, and keys made of what was read. */
#include "credentials/key_source.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>

#include "base/env.h"
#include "base/secret.h"
#include "base/strbuf.h"

extern char **environ;

static int copy_env(struct ps_key_context *x, const char *const *env)
{
	size_t n = 0;

	if (!env)
		env = (const char *const *)environ;
	while (env && env[n])
		n++;
	x->env = calloc(n + 1, sizeof *x->env);
	for (size_t i = 0; x->env && i < n; i++)
		if (!(x->env[i] = strdup(env[i])))
			return -ENOMEM;
	return x->env ? 0 : -ENOMEM;
}

static int copy_text(char **to, const char *text)
{
	*to = text && *text ? strdup(text) : NULL;
	return *to || !text || !*text ? 0 : -ENOMEM;
}

int ps_key_context_init(
        struct ps_key_context *x, const struct ps_credentials_options *options, struct ps_error *err)
{
	const char *pwd = options->env ? ps_env_get(options->env, "PWD") : NULL;

	*x = (struct ps_key_context){.cwd = pwd && pwd[0] == '/' ? strdup(pwd) : getcwd(NULL, 0)};
	int rc = copy_env(x, options->env);

	if (!rc)
		rc = copy_text(&x->profile, options->profile);
	if (!rc)
		rc = copy_text(&x->region, options->region);
	if (!rc)
		rc = copy_text(&x->ca_file, options->ca_file);
	if (!rc)
		rc = copy_text(&x->google_file, options->google_file);
	const struct ps_http_options access = {.env = (const char *const *)x->env, .proxy = options->proxy};
	if (rc)
		ps_error_set(err, ENOMEM, "out of memory");
	else
		rc = ps_http_access_init(&x->access, &access, err);
	if (rc)
		ps_key_context_fini(x);
	return rc;
}

void ps_key_context_fini(struct ps_key_context *x)
{
	for (char **v = x->env; v && *v; v++)
		ps_secret_free(*v);
	free(x->env);
	ps_http_access_fini(&x->access);
	free(x->cwd);
	free(x->profile);
	free(x->region);
	free(x->ca_file);
	free(x->google_file);
	*x = (struct ps_key_context){0};
}

const char *ps_key_env(const struct ps_key_context *x, const char *name)
{
	return ps_env_get((const char *const *)x->env, name);
}

/* The home folder, in a buffer of the caller where it is not in the environment. */
static const char *home_of(const struct ps_key_context *x, char *buf, size_t n)
{
	const char *home = ps_key_env(x, "HOME");
	struct passwd pw, *found = NULL;

	if (home || getpwuid_r(geteuid(), &pw, buf, n, &found) != 0 || !found)
		return home ? home : "/";
	return found->pw_dir;
}

char *ps_key_path(const struct ps_key_context *x, const char *path)
{
	struct ps_strbuf b = {0};
	char buf[2048];

	if (path[0] == '~' && (path[1] == '/' || !path[1]))
		ps_strbuf_addf(&b, "%s%s", home_of(x, buf, sizeof buf), path + 1);
	else if (path[0] == '/' || !x->cwd)
		ps_strbuf_add(&b, path);
	else
		ps_strbuf_addf(&b, "%s/%s", x->cwd, path);
	return ps_strbuf_take(&b);
}

int ps_key_read_file(const char *path, char **ret, size_t *ret_nbytes, struct ps_error *err)
{
	static const struct ps_secret_file kind = {.max_nbytes = PS_CREDENTIALS_FILE_MAX_NBYTES};

	return ps_secret_file_read(path, &kind, ret, ret_nbytes, err);
}

int ps_key_read_token(const char *path, char **ret, struct ps_error *err)
{
	static const struct ps_secret_file kind = {
	        .max_nbytes = PS_CREDENTIALS_FILE_MAX_NBYTES, .is_shared = true};
	ps_autosecret char *text = NULL, *token = NULL;
	int rc = ps_secret_file_read(path, &kind, &text, NULL, err);

	if (rc)
		return rc;
	rc = ps_secret_token(text, &token);
	if (rc == -EINVAL)
		return ps_error_set(err, EINVAL, "%s: not a token: blanks or control characters in it", path);
	if (rc)
		return ps_error_set(err, ENOMEM, "out of memory");
	if (!token)
		return ps_error_set(err, EINVAL, "%s: empty", path);
	*ret = ps_steal_ptr(&token);
	return 0;
}

int ps_key_fail_status(
        const struct ps_answer *answer, const char *who, const char *what, struct ps_error *err)
{
	bool busy = answer->status >= 500 || answer->status == 429 || answer->status == 408;
	int rc = ps_error_set(
	        err, busy ? EAGAIN : EACCES, "%s: HTTP %d%s%s", who, answer->status, *what ? ": " : "", what);

	if (err) {
		err->retryable = busy;
		err->http_status = answer->status;
	}
	return rc;
}

static bool can_be_sent(const char *text)
{
	for (; text && *text; text++)
		if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 0x7f)
			return false;
	return true;
}

int ps_key_checked(const char *access_key, const char *secret, const char *session_token, const char *bearer,
        int64_t expires_s, struct ps_key **ret, struct ps_error *err)
{
	if (!can_be_sent(access_key) || !can_be_sent(secret) || !can_be_sent(session_token) ||
	        !can_be_sent(bearer))
		return ps_error_set(err, EPROTO, "credentials with blanks or control characters in them");
	struct ps_key *key = ps_key_new(access_key, secret, session_token, bearer, expires_s);
	if (!key)
		return ps_error_set(err, ENOMEM, "out of memory");
	*ret = key;
	return 0;
}
