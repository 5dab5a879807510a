/* What all sources of keys share: reading the environment and files, and making a key from the values. */

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/crypto.h>

#include "base/clock.h"
#include "base/secret.h"
#include "base/strbuf.h"
#include "credentials/key_source.h"

extern char **environ;

static int copy_env(struct ps_key_context *x, const char *const *env)
{
	size_t n = 0;

	if (!env)
		env = (const char *const *)environ;
	while (env && env[n])
		n++;
	x->env = calloc(n + 1, sizeof(*x->env));
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

static char *cwd_of(const char *const *env)
{
	const char *pwd = env ? ps_env_get(env, "PWD") : NULL;

	return pwd && pwd[0] == '/' ? strdup(pwd) : getcwd(NULL, 0);
}

int ps_key_context_init(
        struct ps_key_context *x, const struct ps_credentials_options *options, struct ps_error *err)
{
	*x = (struct ps_key_context){.cwd = cwd_of(options->env)};
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
		ps_no_memory(err);
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

/* True if a source reports the variable: in text its name is followed by "=". */
static bool is_reported(const struct ps_key_source *const *sources, const char *text)
{
	for (; *sources; sources++)
		for (const char *const *v = (*sources)->variables; *v; v++)
			if (strncmp(text, *v, strlen(*v)) == 0)
				return true;
	return false;
}

const char *ps_key_env(const struct ps_key_context *x, const char *name)
{
	char text[128];

	snprintf(text, sizeof(text), "%s=", name);
	return is_reported(x->sources, text) ? ps_env_get((const char *const *)x->env, name) : NULL;
}

char *ps_key_path(const struct ps_key_context *x, const char *path)
{
	const char *home = ps_env_get((const char *const *)x->env, "HOME");
	struct passwd pw, *found = NULL;
	struct ps_strbuf b = {0};
	char buf[2048];

	if (path[0] == '~' && (path[1] == '/' || !path[1])) {
		if (!home && getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &found) == 0 && found)
			home = found->pw_dir;
		ps_strbuf_addf(&b, "%s%s", home ? home : "/", path + 1);
	} else if (path[0] == '/' || !x->cwd) {
		ps_strbuf_add(&b, path);
	} else {
		ps_strbuf_addf(&b, "%s/%s", x->cwd, path);
	}
	return ps_strbuf_take(&b);
}

/* What names a file, borrowed; NULL: nothing does. */
static const char *name_of(const struct ps_key_context *x, const struct ps_key_file *file)
{
	const char *name = file->by_option  ? x->google_file
	                   : file->variable ? ps_key_env(x, file->variable)
	                                    : NULL;

	return name ? name : file->usual;
}

static bool has_file(const struct ps_key_source *const *sources, const struct ps_key_file *file)
{
	for (; *sources; sources++)
		for (const struct ps_key_file *const *f = (*sources)->files; *f; f++)
			if (*f == file)
				return true;
	return false;
}

char *ps_key_file(const struct ps_key_context *x, const struct ps_key_file *file)
{
	const char *name = name_of(x, file);
	ps_autostrbuf struct ps_strbuf b = {0};

	if (!name || !has_file(x->sources, file))
		return NULL;
	ps_strbuf_addf(&b, "%s%s", name, file->below ? file->below : "");
	return b.failed ? NULL : ps_key_path(x, b.s);
}

/* Inputs ------------------------------------------------------------------------------------------------- */

/* True if a variable of the same name stands before env[i]: programs see only the first. */
static bool is_shadowed(const char *const *env, size_t i)
{
	size_t n = strcspn(env[i], "=");

	for (size_t k = 0; k < i; k++)
		if (strncmp(env[k], env[i], n) == 0 && (env[k][n] == '=' || !env[k][n]))
			return true;
	return false;
}

/* Adds the variables that one of the sources reports. They are sorted, because the order of an environment
 * means nothing and differs between a shell, cron and a job's prolog. */
static int add_env(
        const char *const *env, const struct ps_key_source *const *sources, ps_input_fn add, void *arg)
{
	size_t nenv = 0, nchosen = 0;

	env = env ? env : (const char *const *)environ;
	while (env && env[nenv])
		nenv++;
	ps_autofree const char **chosen = calloc(nenv + 1, sizeof(*chosen));
	if (!chosen)
		return -ENOMEM;
	for (size_t i = 0; i < nenv; i++)
		if (is_reported(sources, env[i]) && !is_shadowed(env, i))
			chosen[nchosen++] = env[i];
	qsort(chosen, nchosen, sizeof(*chosen), ps_text_compare);
	for (size_t i = 0; i < nchosen; i++)
		add(arg, "env", chosen[i], strlen(chosen[i]));
	return 0;
}

int ps_input_env(const char *const *env, const char *beginning, ps_input_fn add, void *arg)
{
	const struct ps_key_source source = {.variables = {beginning}};

	return add_env(env, (const struct ps_key_source *const[]){&source, NULL}, add, arg);
}

/* ret_elsewhere (may be NULL): set if the file names a command or a token file. */
static int add_file(const char *path, ps_input_fn add, void *arg, bool *ret_elsewhere)
{
	struct stat st;

	add(arg, "file", path, strlen(path));
	ps_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	        st.st_size > (off_t)PS_CREDENTIALS_FILE_MAX_NBYTES)
		return 0; /* such a file is not used for credentials */
	ps_autosecret char *text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	ssize_t n = read(fd, text, (size_t)st.st_size);
	text[PS_MAX(n, 0)] = '\0';
	add(arg, NULL, text, (size_t)PS_MAX(n, 0));
	if (ret_elsewhere)
		*ret_elsewhere |= strstr(text, PS_PROFILE_COMMAND) || strstr(text, PS_PROFILE_TOKEN_FILE);
	OPENSSL_cleanse(text, (size_t)st.st_size);
	return 0;
}

int ps_input_file(const char *path, ps_input_fn add, void *arg)
{
	return add_file(path, add, arg, NULL);
}

int ps_key_inputs(const struct ps_key_source *const *sources, const struct ps_credentials_options *options,
        ps_input_fn add, void *arg)
{
	ps_autofree char *cwd = cwd_of(options->env);
	const struct ps_key_context x = {.sources = sources,
	        .env = (char **)options->env,
	        .cwd = cwd,
	        .google_file = (char *)options->google_file};
	bool elsewhere = false;
	size_t ncwd = 0;

	if (options->profile)
		add(arg, "profile", options->profile, strlen(options->profile));
	if (options->region) /* it chooses the STS */
		add(arg, "region", options->region, strlen(options->region));
	int rc = add_env(options->env, sources, add, arg);
	for (; *sources; sources++) {
		for (const struct ps_key_file *const *f = (*sources)->files; *f && rc == 0; f++) {
			const char *name = name_of(&x, *f);
			ps_autofree char *path = name && !(*f)->is_token ? ps_key_file(&x, *f) : NULL;

			/* The path of a token is in its variable. */
			ncwd += name && (*f)->is_token && name[0] != '/';
			if (name && !(*f)->is_token)
				rc = path ? add_file(
				                    path, add, arg, (*f)->names_elsewhere ? &elsewhere : NULL)
				          : -ENOMEM;
		}
	}
	for (ncwd += elsewhere; cwd && ncwd > 0; ncwd--)
		add(arg, "cwd", cwd, strlen(cwd));
	/* A command may depend on any part of the environment, and a path may be relative. */
	return rc == 0 && elsewhere ? ps_input_env(options->env, "", add, arg) : rc;
}

/* Reading ------------------------------------------------------------------------------------------------ */

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
		return ps_error_set(
		        err, EINVAL, "%s: not a token: it contains blanks or control characters", path);
	if (rc)
		return ps_no_memory(err);
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
		return ps_error_set(err, EPROTO, "the credentials contain blanks or control characters");
	struct ps_key *key = ps_key_new(access_key, secret, session_token, bearer, expires_s);
	if (!key)
		return ps_no_memory(err);
	*ret = key;
	return 0;
}

/* Parses keys as metadata servers, commands and SSO send them: a JSON object. */

static void wipe(json_t *j)
{
	const char *name;
	json_t *value;

	json_object_foreach(j, name, value)
	{
		if (json_is_string(value))
			OPENSSL_cleanse((char *)json_string_value(value), json_string_length(value));
		else if (json_is_object(value))
			wipe(value);
	}
}

void ps_cleanup_secret_json(json_t **j)
{
	if (*j)
		wipe(*j);
	json_decref(*j);
}

const char *ps_json_text(const json_t *j, const char *name)
{
	const char *text = name ? json_string_value(json_object_get(j, name)) : NULL;

	return text && *text ? text : NULL;
}

int ps_key_from_json(const char *text, size_t nbytes, const struct ps_key_shape *shape, struct ps_key **ret,
        struct ps_error *err)
{
	ps_autosecretjson json_t *whole = json_loadb(text, nbytes, 0, NULL);
	const json_t *j = *shape->object ? json_object_get(whole, shape->object) : whole;
	int64_t expires_s = 0;

	if (!json_is_object(j))
		return ps_error_set(err, EPROTO, "the answer is not a JSON object with credentials");
	if (shape->version && json_integer_value(json_object_get(j, "Version")) != shape->version)
		return ps_error_set(err, EPROTO, "the answer does not have \"Version\": %d", shape->version);
	const char *access_key = ps_json_text(j, shape->access_key), *secret = ps_json_text(j, shape->secret);
	if (!access_key || !secret) {
		const char *code = ps_json_text(j, "Code"), *message = ps_json_text(j, "Message");

		if (!code)
			code = ps_json_text(j, "code");
		if (!message)
			message = ps_json_text(j, "message");
		if (code || message)
			return ps_error_set(err, EPROTO, "the answer says: %.80s%s%.200s", code ? code : "",
			        code && message ? ": " : "", message ? message : "");
		return ps_error_set(
		        err, EPROTO, "the answer has no %s", access_key ? shape->secret : shape->access_key);
	}
	/* RFC 3339, or milliseconds since the epoch. */
	const json_t *expires = json_object_get(j, shape->expires);
	const char *when = json_string_value(expires);
	if (json_is_integer(expires))
		expires_s = json_integer_value(expires) / 1000;
	else if (when && *when)
		expires_s = ps_clock_parse_rfc3339(when);
	else if (expires && !json_is_null(expires) && !when)
		expires_s = -1;
	if (expires_s < 0 || (json_is_integer(expires) && expires_s == 0))
		return ps_error_set(err, EPROTO, "%s is not a time", shape->expires);
	return ps_key_checked(access_key, secret, ps_json_text(j, shape->token), NULL, expires_s, ret, err);
}

/* Keys --------------------------------------------------------------------------------------------------- */

static void key_free(struct ps_key *key)
{
	ps_secret_free(key->access_key);
	ps_secret_free(key->secret);
	ps_secret_free(key->session_token);
	ps_secret_free(key->bearer);
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
	struct ps_key *key = calloc(1, sizeof(*key));

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

/* Keys of the environment -------------------------------------------------------------------------------- */

static int from_env(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	const char *access_key = ps_key_env(x, "AWS_ACCESS_KEY_ID"),
	           *secret = ps_key_env(x, "AWS_SECRET_ACCESS_KEY");

	/* A profile that the command line names takes precedence. */
	if (x->profile || (!access_key && !secret))
		return -ENOENT;
	if (!access_key || !secret)
		return ps_error_set(err, EACCES, "AWS_%s is set, but AWS_%s is not",
		        access_key ? "ACCESS_KEY_ID" : "SECRET_ACCESS_KEY",
		        access_key ? "SECRET_ACCESS_KEY" : "ACCESS_KEY_ID");
	int rc = ps_key_checked(access_key, secret, ps_key_env(x, "AWS_SESSION_TOKEN"), NULL, 0, ret, err);
	return rc ? ps_error_prefix(err, rc, "AWS_ACCESS_KEY_ID and its companions") : 0;
}

const struct ps_key_source ps_key_environment = {.load = from_env, .variables = {"AWS_", "HOME="}};
