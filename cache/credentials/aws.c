#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "base/url.h"
#include "credentials/key_source.h"
#include "credentials/credentials.h"

/* Containers and pods ------------------------------------------------------------------------------------ */

/* Keys of a container's or pod's agent (ECS, EKS Pod Identity). */

#define AGENT "http://169.254.170.2"
#define CONTAINER_TIMEOUT_MS 2000
#define CONTAINER_TRIES 3

/* Without TLS, a token may be sent only to this machine and to the agents' own addresses. */
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
			return ps_error_prefix(err, rc, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
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
	return *ret ? 0 : ps_no_memory(err);
}

static const struct ps_key_file token_file = {
        .variable = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", .is_token = true};

/* Sets *ret to "Authorization: TOKEN", or to NULL if no token is configured. */
static int find_authorization(const struct ps_key_context *x, char **ret, struct ps_error *err)
{
	const char *file = ps_key_env(x, token_file.variable),
	           *token = ps_key_env(x, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
	ps_autosecret char *read = NULL;

	*ret = NULL;
	if (file) {
		ps_autofree char *path = ps_key_file(x, &token_file);
		int rc = path ? ps_key_read_token(path, &read, err) : ps_no_memory(err);

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
	return asprintf(ret, "Authorization: %s", token) < 0 ? ps_no_memory(err) : 0;
}

static int from_container(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
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
	struct ps_http_call call = {.method = "GET",
	        .url = url,
	        .headers = {"Accept: application/json", authorization},
	        .timeout_ms = CONTAINER_TIMEOUT_MS,
	        .ca_file = x->ca_file,
	        .stop = &x->stop};
	for (int i = 0; i < CONTAINER_TRIES; i++) {
		ps_answer_fini(&answer);
		rc = ps_http_call_run(&call, &answer, err);
		if (rc == -ECANCELED || (!rc && answer.status < 500))
			break;
	}
	if (rc) {
		if (err)
			err->retryable = true;
		return ps_error_prefix(err, rc, "container credentials");
	}
	if (answer.status != 200)
		return ps_key_fail_status(&answer, "container credentials", "the agent refuses", err);
	rc = ps_key_from_json(answer.body, answer.nbytes, &shape, ret, err);
	return rc ? ps_error_prefix(err, rc, "container credentials") : 0;
}

const struct ps_key_source ps_key_container = {
        .load = from_container, .variables = {"AWS_", "HOME="}, .files = {&token_file}};

/* EC2 ---------------------------------------------------------------------------------------------------- */

/* Keys of an EC2 instance's role: the instance metadata service, version 2. */

#define ENDPOINT_V4 "http://169.254.169.254"
#define ENDPOINT_V6 "http://[fd00:ec2::254]"
#define ROLES "/latest/meta-data/iam/security-credentials/"
#define TOKEN_TTL_S "21600"
#define IMDS_TIMEOUT_MS 1000 /* short, since most machines have no such service */
#define IMDS_TRIES 2
#define ROLE_MAX_LEN 128

struct asking {
	struct ps_key_context *x;
	const char *endpoint;
	size_t nendpoint; /* without trailing slashes */
	char *token;      /* a header */
};

static int call(const struct asking *a, const char *method, const char *path, const char *header,
        struct ps_answer *ret, struct ps_error *err)
{
	ps_autofree char *url = NULL;
	int rc = 0;

	if (asprintf(&url, "%.*s%s", (int)a->nendpoint, a->endpoint, path) < 0) {
		url = NULL;
		return ps_no_memory(err);
	}
	struct ps_http_call c = {.method = method,
	        .url = url,
	        .headers = {header},
	        .timeout_ms = IMDS_TIMEOUT_MS,
	        .stop = &a->x->stop};
	for (int i = 0; i < IMDS_TRIES; i++) {
		ps_answer_fini(ret);
		rc = ps_http_call_run(&c, ret, err);
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
		return ps_key_fail_status(&answer, "instance metadata", "it returned no session token", err);
	size_t n = strcspn(answer.body, " \t\r\n");
	if (!n || answer.body[n + strspn(answer.body + n, " \t\r\n")])
		return ps_error_set(err, EPROTO, "instance metadata: the session token is not valid");
	if (asprintf(&a->token, "X-aws-ec2-metadata-token: %.*s", (int)n, answer.body) < 0) {
		a->token = NULL;
		return ps_no_memory(err);
	}
	return 0;
}

/* Sets *ret to the URL path of the keys of the instance's role. */
static int get_role(const struct asking *a, char **ret, struct ps_error *err)
{
	ps_autoanswer struct ps_answer answer = {0};
	int rc = call(a, "GET", ROLES, a->token, &answer, err);

	if (rc)
		return rc;
	if (answer.status == 404)
		return ps_error_set(err, EACCES, "instance metadata: this instance has no role");
	if (answer.status != 200)
		return ps_key_fail_status(
		        &answer, "instance metadata", "it did not return the role's name", err);
	size_t n = strcspn(answer.body, "\r\n");
	if (!n || n > ROLE_MAX_LEN ||
	        strspn(answer.body, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+=,.@_-") <
	                n)
		return ps_error_set(err, EPROTO, "instance metadata: the role's name is not valid");
	if (asprintf(ret, ROLES "%.*s", (int)n, answer.body) < 0) {
		*ret = NULL;
		return ps_no_memory(err);
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
		        &answer, "instance metadata", "it did not return the role's credentials", err);
	rc = ps_key_from_json(answer.body, answer.nbytes, &shape, ret, err);
	return rc ? ps_error_prefix(err, rc, "instance metadata") : 0;
}

static int from_imds(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
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
	/* Without a session token this machine does not count as an instance, unless the service has
	 * answered before. */
	if (rc && rc != -ECANCELED && !x->metadata_answered)
		return -ENOENT;
	x->metadata_answered = x->metadata_answered || !rc;
	if (!rc)
		rc = load(&a, ret, err);
	ps_secret_free(a.token);
	return rc;
}

const struct ps_key_source ps_key_imds = {.load = from_imds, .variables = {"AWS_"}};

/* Commands ----------------------------------------------------------------------------------------------- */

/* Keys that a command prints: credential_process of a profile. */

#define LIMIT_MS 30000u
#define OUTPUT_MAX_NBYTES ((size_t)64 * 1024)
#define LOOK_MS 50 /* how often stop is checked */

#define END_FD 3

/* A process in the command's process group waits until the other end of END_FD is closed, and then kills the
 * group, if the command still runs. In the daemon's sandbox, where landlock does not limit signals (before Linux
 * 6.12), no process may send a signal to another one, but only to its own group. */
#define WITH_END                                                                                    \
	"({ read -r _ <&3; [ -d /proc/$$ ] && kill -KILL 0; } </dev/null >/dev/null 2>&1 3<&3 &)\n" \
	"exec 3<&-\n"                                                                               \
	"exec /bin/sh -c \"$1\""

/* Starts the command in its own session, so that it can be killed with its children. The command inherits
 * none of our descriptors. Its stderr is discarded, because it may contain a secret. `end`: closing its other
 * end kills the command. */
static int start(const struct ps_key_context *x, const char *command, int out, int end, pid_t *ret_pid)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)WITH_END, (char *)"sh", (char *)command, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&how);
	int rc = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(&files, out, 1);
	if (!rc)
		rc = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(&files, end, END_FD);
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(&files, END_FD + 1);
	if (!rc && x->cwd)
		rc = posix_spawn_file_actions_addchdir_np(&files, x->cwd);
	if (!rc)
		rc = posix_spawnattr_setsigmask(&how, &none);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(&how, &all);
	if (!rc)
		rc = posix_spawnattr_setflags(
		        &how, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!rc)
		rc = posix_spawn(ret_pid, "/bin/sh", &files, &how, argv, x->env);
	posix_spawnattr_destroy(&how);
	posix_spawn_file_actions_destroy(&files);
	return -rc;
}

struct output {
	char *text; /* has OUTPUT_MAX_NBYTES + 1 bytes */
	size_t n;
};

/* Reads the command's output to its end. */
static int read_output(const struct ps_key_context *x, int in, struct output *out, struct ps_error *err)
{
	uint64_t until = ps_clock_mono_ns() + LIMIT_MS * PS_NS_PER_MS;

	for (;;) {
		struct pollfd p = {.fd = in, .events = POLLIN};

		if (atomic_load(&x->stop))
			return ps_error_set(err, ECANCELED, "cancelled");
		if (ps_clock_mono_ns() >= until)
			return ps_error_set(err, ETIMEDOUT, "the command's output did not end within %u s",
			        LIMIT_MS / 1000);
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		ssize_t got = read(in, out->text + out->n, OUTPUT_MAX_NBYTES - out->n);
		if (got == 0)
			break;
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return ps_error_set(
			        err, errno, "the command's output cannot be read: %s", strerror(errno));
		out->n += got > 0 ? (size_t)got : 0;
		if (out->n == OUTPUT_MAX_NBYTES)
			return ps_error_set(err, EFBIG, "more than 64 KiB of output");
	}
	out->text[out->n] = '\0';
	return 0;
}

/* Waits for a command that has closed its output, and kills it if it does not end within LIMIT_MS; at_once:
 * kills it without waiting. *end is closed then. */
static int reap(const struct ps_key_context *x, pid_t pid, int *end, bool at_once, struct ps_error *err)
{
	uint64_t until = ps_clock_mono_ns() + (at_once ? 0 : LIMIT_MS * PS_NS_PER_MS);
	int status = 0;

	for (;;) {
		/* Kills the command with its children, by process group. The process number cannot be
		 * reused before waitpid(). */
		if (ps_clock_mono_ns() >= until || atomic_load(&x->stop)) {
			kill(-pid, SIGKILL);
			if (*end >= 0)
				close(ps_steal_fd(end));
		}
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			break;
		if (got < 0 && errno != EINTR)
			return ps_error_set(
			        err, errno, "waiting for the command failed: %s", strerror(errno));
		struct timespec nap = {.tv_nsec = LOOK_MS / 5 * (long)PS_NS_PER_MS};
		nanosleep(&nap, NULL);
	}
	if (at_once || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
		return 0;
	if (WIFSIGNALED(status))
		return ps_error_set(err, EACCES, "killed by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status) == 127)
		return ps_error_set(err, EACCES, "no such command (exit status 127)");
	return ps_error_set(err, EACCES, "exit status %d; run it by hand to see why", WEXITSTATUS(status));
}

static int run(const struct ps_key_context *x, const char *command, struct output *out, struct ps_error *err)
{
	int ends[2], other[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return ps_error_set(err, errno, "pipe: %s", strerror(errno));
	ps_autofd int in = ends[0], out_fd = ends[1];
	if (pipe2(other, O_CLOEXEC) < 0)
		return ps_error_set(err, errno, "pipe: %s", strerror(errno));
	ps_autofd int their_end = other[0], end = other[1];
	int rc = start(x, command, out_fd, their_end, &pid);
	close(ps_steal_fd(&out_fd));
	if (rc)
		return ps_error_set(err, -rc, "cannot be started: %s", strerror(-rc));
	rc = read_output(x, in, out, err);
	int ended = reap(x, pid, &end, rc, err);
	return rc ? rc : ended;
}

/* Keys from a command that a profile names. */
static int key_from_process(
        struct ps_key_context *x, const char *command, struct ps_key **ret, struct ps_error *err)
{
	static const struct ps_key_shape shape = {
	        "", "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration", 1};
	struct output out = {.text = malloc(OUTPUT_MAX_NBYTES + 1)};

	if (!out.text)
		return ps_no_memory(err);
	int rc = run(x, command, &out, err);
	if (!rc)
		rc = ps_key_from_json(out.text, out.n, &shape, ret, err);
	OPENSSL_cleanse(out.text, out.n);
	free(out.text);
	return rc;
}

/* SSO ---------------------------------------------------------------------------------------------------- */

/* Keys of IAM Identity Center: `aws sso login` leaves a token on disk, which is exchanged for keys of a
 * role. */

#define SSO_TIMEOUT_MS 10000

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
	        "%s: sso_start_url, sso_region (letters, digits, -), sso_account_id and sso_role_name must "
	        "all "
	        "be set",
	        all->config_path);
}

/* The path ~/.aws/sso/cache/SHA1.json. SHA1 is that of the session's name or, if the profile has no session,
 * of the start URL. */
static char *token_path(const struct ps_key_context *x, const struct sso *s)
{
	const char *name = s->session ? s->session : s->start_url;
	uint8_t digest[SHA_DIGEST_LENGTH];
	ps_autostrbuf struct ps_strbuf b = {0};

	SHA1((const uint8_t *)name, strlen(name), digest);
	ps_strbuf_add(&b, "~/.aws/sso/cache/");
	for (size_t i = 0; i < sizeof(digest); i++)
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
		return ps_error_set(err, EACCES, "%s does not exist: run aws sso login", path);
	if (rc)
		return rc;
	ps_autosecretjson json_t *j = json_loadb(text, n, 0, NULL);
	const char *token = ps_json_text(j, "accessToken"), *expires = ps_json_text(j, "expiresAt");
	int64_t until = expires ? ps_clock_parse_rfc3339(expires) : -1;
	if (!token || until < 0)
		rc = ps_error_set(err, EACCES, "%s has no SSO token: run aws sso login", path);
	else if (until <= ps_clock_real_s())
		rc = ps_error_set(err, EACCES, "%s: the SSO session has expired: run aws sso login", path);
	else if (strpbrk(token, "\r\n") || asprintf(ret, "x-amz-sso_bearer_token: %s", token) < 0)
		rc = ps_error_set(err, EACCES, "%s: the SSO token is damaged: run aws sso login", path);
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

/* Keys for the token that `aws sso login` has stored in ~/.aws/sso/cache. */
static int key_from_sso(struct ps_key_context *x, const struct ps_profiles *all, const char *profile,
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
		return ps_no_memory(err);
	rc = read_token(path, &header, err);
	if (rc)
		return rc;
	struct ps_http_call call = {.method = "GET",
	        .url = url,
	        .headers = {"Accept: application/json", header},
	        .timeout_ms = SSO_TIMEOUT_MS,
	        .access = &x->access,
	        .ca_file = ps_key_env(x, "AWS_CA_BUNDLE"),
	        .stop = &x->stop};
	rc = ps_http_call_run(&call, &answer, err);
	if (rc && err)
		err->retryable = true;
	if (rc)
		return rc;
	if (answer.status != 200)
		return ps_key_fail_status(&answer, "SSO",
		        "refused: run aws sso login, and check sso_account_id and sso_role_name", err);
	rc = ps_key_from_json(answer.body, answer.nbytes, &shape, ret, err);
	return rc ? ps_error_prefix(err, rc, "SSO") : 0;
}

/* Profiles ----------------------------------------------------------------------------------------------- */

/* Keys of a profile: its own, those of its command or of SSO, or those of a role, which are requested with
 * the keys of another profile. */

#define CHAIN_MAX 8 /* maximum of profiles that refer to each other */

struct chain {
	struct ps_key_context *x;
	const struct ps_profiles *all;
	const char *names[CHAIN_MAX];
	unsigned n;
};

static int from_profile(struct chain *chain, const char *name, struct ps_key **ret, struct ps_error *err);

static int own_keys(const struct ps_profiles *all, enum ps_profile_kind kind, const char *name,
        struct ps_key **ret, struct ps_error *err)
{
	const char *access_key = ps_profiles_get(all, kind, name, "aws_access_key_id"),
	           *secret = ps_profiles_get(all, kind, name, "aws_secret_access_key");

	if (!access_key && !secret)
		return -ENOENT;
	if (!access_key || !secret)
		return ps_error_set(err, EACCES,
		        "%s: only one of aws_access_key_id and aws_secret_access_key is set",
		        kind == PS_PROFILE_KEYS ? all->keys_path : all->config_path);
	return ps_key_checked(
	        access_key, secret, ps_profiles_get(all, kind, name, "aws_session_token"), NULL, 0, ret, err);
}

/* Loads the keys that sign the request for a role, from the source that credential_source names:
 * Ec2InstanceMetadata, EcsContainer or Environment. */
static int from_named_source(
        struct chain *chain, const char *source, struct ps_key **ret, struct ps_error *err)
{
	static const struct {
		const char *name;
		const struct ps_key_source *source;
	} sources[] = {{"Ec2InstanceMetadata", &ps_key_imds}, {"EcsContainer", &ps_key_container},
	        {"Environment", &ps_key_environment}};

	for (size_t i = 0; i < PS_ARRAY_LEN(sources); i++) {
		if (strcmp(source, sources[i].name) != 0)
			continue;
		int rc = sources[i].source->load(chain->x, ret, err);
		return rc == -ENOENT
		               ? ps_error_set(err, EACCES,
		                         "credential_source = %s, but that source has no credentials", source)
		               : rc;
	}
	return ps_error_set(err, EACCES,
	        "credential_source = %.40s is none of Ec2InstanceMetadata, EcsContainer, Environment",
	        source);
}

static int from_role(
        struct chain *chain, const char *name, const char *arn, struct ps_key **ret, struct ps_error *err)
{
	const struct ps_profiles *all = chain->all;
	const char *source = ps_profiles_find(all, name, "source_profile"),
	           *named = ps_profiles_find(all, name, "credential_source"),
	           *file = ps_profiles_find(all, name, PS_PROFILE_TOKEN_FILE);
	ps_autokey struct ps_key *key = NULL;
	struct ps_sts_role role = {.arn = arn,
	        .session_name = ps_profiles_find(all, name, "role_session_name"),
	        .external_id = ps_profiles_find(all, name, "external_id"),
	        .duration_s = ps_profiles_find(all, name, "duration_seconds")};
	int rc;

	if (file)
		return ps_key_from_token_file(chain->x, file, arn, role.session_name, ret, err);
	if (ps_profiles_find(all, name, "mfa_serial"))
		return ps_error_set(err, EACCES,
		        "mfa_serial: a mount cannot ask for a code; use credential_process, or keys of a "
		        "session");
	if (source && strcmp(source, name) == 0) {
		rc = own_keys(all, PS_PROFILE_KEYS, name, &key, err);
		if (rc == -ENOENT)
			rc = own_keys(all, PS_PROFILE_CONFIG, name, &key, err);
		if (rc == -ENOENT)
			rc = ps_error_set(err, EACCES, "is its own source_profile, but has no keys");
	} else if (source) {
		rc = from_profile(chain, source, &key, err);
	} else if (named) {
		rc = from_named_source(chain, named, &key, err);
	} else {
		rc = ps_error_set(err, EACCES,
		        "role_arn without source_profile, credential_source or web_identity_token_file");
	}
	if (rc)
		return rc;
	role.key = key;
	return ps_key_from_sts(chain->x, &role, ret, err);
}

/* Loads the keys of one profile. -ENOENT: the profile configures no credentials. */
static int from_section(struct chain *chain, const char *name, struct ps_key **ret, struct ps_error *err)
{
	const struct ps_profiles *all = chain->all;
	const char *arn = ps_profiles_find(all, name, "role_arn"),
	           *command = ps_profiles_find(all, name, PS_PROFILE_COMMAND);
	int rc;

	if (arn)
		return from_role(chain, name, arn, ret, err);
	rc = key_from_sso(chain->x, all, name, ret, err);
	if (rc == -ENOENT)
		rc = own_keys(all, PS_PROFILE_KEYS, name, ret, err);
	if (rc == -ENOENT && command) {
		rc = key_from_process(chain->x, command, ret, err);
		if (rc)
			ps_error_prefix(err, rc, "credential_process");
		return rc == -ENOENT ? -EACCES : rc;
	}
	if (rc == -ENOENT)
		rc = own_keys(all, PS_PROFILE_CONFIG, name, ret, err);
	return rc;
}

static int from_profile(struct chain *chain, const char *name, struct ps_key **ret, struct ps_error *err)
{
	const struct ps_profiles *all = chain->all;
	int rc;

	for (unsigned i = 0; i < chain->n; i++)
		if (strcmp(chain->names[i], name) == 0)
			return ps_error_set(
			        err, EACCES, "profile %.100s: refers to itself by source_profile", name);
	if (chain->n == CHAIN_MAX)
		return ps_error_set(err, EACCES, "profile %.100s: more than %d profiles refer to each other",
		        name, CHAIN_MAX);
	chain->names[chain->n++] = name;
	if (!ps_profiles_have(all, name))
		return ps_error_set(err, EACCES, "profile %.100s: neither in %.150s nor in %.150s", name,
		        all->keys_path, all->config_path);
	rc = from_section(chain, name, ret, err);
	if (rc == -ENOENT)
		return ps_error_set(err, EACCES,
		        "profile %.100s: no credentials in it (looked in %.150s and %.150s)", name,
		        all->keys_path, all->config_path);
	return rc ? ps_error_prefix(err, rc, "profile %.100s", name) : 0;
}

static int from_chosen_profile(struct ps_key_context *x, struct ps_key **ret, struct ps_error *err)
{
	ps_autoprofiles struct ps_profiles all = {0};
	struct chain chain = {.x = x, .all = &all};
	bool chosen;
	const char *name = ps_profile_name(x, &chosen);
	int rc = ps_profiles_read(x, &all, err);

	if (rc)
		return rc;
	/* The user has not chosen a profile, so it is no error if "default" has no credentials. */
	if (!chosen) {
		rc = ps_profiles_have(&all, name) ? from_section(&chain, name, ret, err) : -ENOENT;
		return rc && rc != -ENOENT ? ps_error_prefix(err, rc, "profile %s", name) : rc;
	}
	return from_profile(&chain, name, ret, err);
}

const struct ps_key_source ps_key_profile = {.load = from_chosen_profile,
        .variables = {"AWS_", "HOME="},
        .files = {&ps_profile_keys, &ps_profile_config}};
