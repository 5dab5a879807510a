/* Each source of credentials, with a server that behaves as the clouds' servers do (cloud.h), and the
 * renewal of keys. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cloud.h"
#include "credentials/credentials.h"
#include "tests/faults.h"

static struct ps_cloud cloud;

#define ENV_MAX 24
struct test {
	char *env[ENV_MAX + 1];
	size_t n;
	struct ps_credentials_options options;
	struct ps_credentials *c;
	struct ps_error err;
};

static void set(struct test *t, const char *name, const char *fmt, ...) PS_PRINTF(3, 4);
static void set(struct test *t, const char *name, const char *fmt, ...)
{
	char value[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	assert_true(t->n < ENV_MAX);
	assert_true(asprintf(&t->env[t->n++], "%s=%s", name, value) > 0);
}

/* A private home directory. Tests that would ask a metadata server set their own, or disable it. */
static int set_up(void **state)
{
	static const char *const files[] = {"hang.imds", "hang.sts", "hang.google", "say.imds", "say.sts",
	        "say.container", "fail.imds", "fail.sts", "fail.container", "fail.token", "fail.google",
	        "ttl", "token.container", "token.web", "token.refresh", "token.sso", "boto", "asked",
	        "external_id", "credentials", "config", "answer.json",
	        "application_default_credentials.json"};
	struct test *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	for (size_t i = 0; i < PS_ARRAY_LEN(files); i++)
		ps_cloud_put(&cloud, files[i], NULL);
	ps_cloud_put(&cloud, "log", "");
	set(t, "HOME", "%s", cloud.dir);
	set(t, "AWS_CONFIG_FILE", "%s/config", cloud.dir);
	set(t, "AWS_SHARED_CREDENTIALS_FILE", "%s/credentials", cloud.dir);
	set(t, "CLOUDSDK_CONFIG", "%s", cloud.dir);
	set(t, "AWS_ENDPOINT_URL_STS", "%s", cloud.http);
	t->options.env = (const char *const *)t->env;
	*state = t;
	return 0;
}

static void close_it(struct test *t)
{
	ps_credentials_free(t->c);
	t->c = NULL;
}

static int tear_down(void **state)
{
	struct test *t = *state;

	faults_end();

	close_it(t);
	for (size_t i = 0; i < t->n; i++)
		free(t->env[i]);
	free(t);
	return 0;
}

/* Opens the credentials again, waits for keys and returns the result. */
static int open_and_wait(struct test *t)
{
	close_it(t);
	memset(&t->err, 0, sizeof(t->err));
	assert_int_equal(ps_credentials_new(&t->options, &t->c, &t->err), 0);
	return ps_credentials_wait(t->c, NULL, &t->err);
}

static struct ps_key *key_of(struct test *t)
{
	struct ps_key *key = NULL;

	int rc = ps_credentials_get(t->c, &key, &t->err);
	if (rc)
		print_message("# %s\n", t->err.text);
	assert_int_equal(rc, 0);
	return key;
}

/* Opens the credentials: there is a key, and its access key or token begins with `start`. */
static void key_begins_with(struct test *t, const char *start)
{
	int rc = open_and_wait(t);

	if (rc)
		print_message("# %s\n", t->err.text);
	assert_int_equal(rc, 0);
	ps_autokey struct ps_key *key = key_of(t);
	assert_non_null(key);
	const char *seen = key->bearer ? key->bearer : key->access_key;
	if (strncmp(seen, start, strlen(start)) != 0)
		fail_msg("%s, not %s", seen, start);
	assert_true(key->bearer || key->secret);
}

/* Opens the credentials: there is no key, and the error's text contains a and b and no secret. */
static void fails(struct test *t, const char *a, const char *b)
{
	assert_int_equal(open_and_wait(t), -EACCES);
	if (!strstr(t->err.text, a) || !strstr(t->err.text, b))
		fail_msg("\"%s\" has no \"%s\" or no \"%s\"", t->err.text, a, b);
	assert_null(strstr(t->err.text, "hush"));
	assert_null(strstr(t->err.text, "never-to-be-seen"));
}

/* Removes the variable that was set last. */
static void unset(struct test *t)
{
	free(t->env[--t->n]);
	t->env[t->n] = NULL;
}

static void put_profile(const char *text)
{
	char config[1024];

	snprintf(config, sizeof(config), "[default]\n%s\n", text);
	ps_cloud_put(&cloud, "config", config);
}

/* Sets a credential_process whose output is this JSON. */
static void put_answer(const char *json)
{
	char line[512];

	ps_cloud_put(&cloud, "answer.json", json);
	snprintf(line, sizeof(line), "credential_process = cat %s/answer.json", cloud.dir);
	put_profile(line);
}

static void nap(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

/* Waits until the server has logged n such requests: those that hung must end before the next test counts
 * requests. */
static void wait_for_log(const char *what, int n)
{
	for (int i = 0; i < 3000 && ps_cloud_seen(&cloud, what, "") < n; i++)
		nap(20);
	assert_int_equal(ps_cloud_seen(&cloud, what, ""), n);
}

/* The environment ---------------------------------------------------------------------------------------- */

static void keys_of_the_environment_come_first(void **state)
{
	struct test *t = *state;

	ps_cloud_put(
	        &cloud, "credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = hush\n");
	set(t, "AWS_ACCESS_KEY_ID", "ENV");
	fails(t, "AWS_ACCESS_KEY_ID is set", "AWS_SECRET_ACCESS_KEY is not");
	set(t, "AWS_SECRET_ACCESS_KEY", "hush");
	set(t, "AWS_SESSION_TOKEN", "session");
	key_begins_with(t, "ENV");
	ps_autokey struct ps_key *key = key_of(t);
	assert_string_equal(key->session_token, "session");
}

static void a_profile_by_option_comes_before_the_environment(void **state)
{
	struct test *t = *state;

	set(t, "AWS_ACCESS_KEY_ID", "ENV");
	set(t, "AWS_SECRET_ACCESS_KEY", "hush");
	ps_cloud_put(
	        &cloud, "credentials", "[other]\naws_access_key_id = FILE\naws_secret_access_key = hush\n");
	t->options.profile = "other";
	key_begins_with(t, "FILE");
	t->options.profile = "missing";
	fails(t, "missing", "credentials");
}

static void no_sign_request_means_no_key(void **state)
{
	struct test *t = *state;

	set(t, "AWS_ACCESS_KEY_ID", "ENV");
	set(t, "AWS_SECRET_ACCESS_KEY", "hush");
	t->options.no_sign_request = true;
	assert_int_equal(open_and_wait(t), 0);
	assert_null(key_of(t));
}

static void without_keys_the_error_says_where_they_may_be(void **state)
{
	struct test *t = *state;

	set(t, "AWS_EC2_METADATA_DISABLED", "true");
	fails(t, "AWS_ACCESS_KEY_ID", "--no-sign-request");
}

static void keys_that_would_break_a_header_are_refused(void **state)
{
	struct test *t = *state;

	set(t, "AWS_ACCESS_KEY_ID", "ENV\r\nX-Evil: 1");
	set(t, "AWS_SECRET_ACCESS_KEY", "hush");
	fails(t, "AWS_ACCESS_KEY_ID and its companions: ", "");
	unset(t);
	unset(t);
	set(t, "AWS_ACCESS_KEY_ID", "ENV ,Credential=other");
	set(t, "AWS_SECRET_ACCESS_KEY", "hush");
	fails(t, "AWS_ACCESS_KEY_ID and its companions: ", "");
}

static void half_a_key_is_reported_with_the_name_of_the_other_half(void **state)
{
	struct test *t = *state;

	set(t, "AWS_ACCESS_KEY_ID", "ENV");
	fails(t, "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not", "");
	unset(t);
	set(t, "AWS_SECRET_ACCESS_KEY", "hush");
	fails(t, "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not", "");
}

static void what_a_profile_lacks_is_reported(void **state)
{
	static const char *const profiles[][2] = {
	        {"role_arn = arn:aws:iam::1:role/x",
	                "role_arn without source_profile, credential_source or web_identity_token_file"},
	        {"aws_access_key_id = K", "only one of aws_access_key_id and aws_secret_access_key is set"},
	        {"sso_start_url = https://x/start\nsso_region = eu-west-1",
	                "sso_start_url, sso_region (letters, digits, -), sso_account_id and sso_role_name "
	                "must all "
	                "be set"},
	        {"credential_process = kill -9 $$", "killed by signal 9"},
	        {"credential_process = yes hush", "more than 64 KiB of output"},
	        {"credential_process = /nowhere/hushed", "no such command"},
	};
	static const char *const answers[][2] = {
	        {"hush, no JSON", "the answer is not a JSON object with credentials"},
	        {"{\"Version\": 1, \"Code\": \"Expired\", \"Message\": \"log in again\"}",
	                "the answer says: Expired: log in again"},
	        {"{\"Version\": 1, \"message\": \"log in again\"}", "the answer says: log in again"},
	        {"{\"Version\": 1}", "the answer has no AccessKeyId"},
	        {"{\"Version\": 1, \"AccessKeyId\": \"K\"}", "the answer has no SecretAccessKey"},
#define KEY_UNTIL(end) \
	"{\"Version\": 1, \"AccessKeyId\": \"K\", \"SecretAccessKey\": \"hush\", \"Expiration\": " end "}"
	        {KEY_UNTIL("true"), "Expiration is not a time"},
	        {KEY_UNTIL("0"), "Expiration is not a time"},
	        {KEY_UNTIL("\"tomorrow\""), "Expiration is not a time"},
	        {KEY_UNTIL("1000000000000"), "they ended at 2001-09-09T01:46:40Z"},
	        {KEY_UNTIL("\"2001-09-09T01:46:40Z\""), "they ended at 2001-09-09T01:46:40Z"},
	};
	struct test *t = *state;

	set(t, "PATH", "%s", "/usr/bin:/bin");
	for (size_t i = 0; i < PS_ARRAY_LEN(profiles); i++) {
		put_profile(profiles[i][0]);
		fails(t, profiles[i][1], "default");
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(answers); i++) {
		put_answer(answers[i][0]);
		fails(t, answers[i][1], strstr(answers[i][1], "ended") ? "K" : "credential_process");
	}
	t->options.profile = "absent";
	fails(t, "profile absent: neither in ", "/config");
}

/* Profiles ----------------------------------------------------------------------------------------------- */

static void profiles_are_read_from_both_files(void **state)
{
	struct test *t = *state;

	ps_cloud_put(&cloud, "config",
	        "\xef\xbb\xbf# comment\r\n[default]\r\nregion = eu-west-3\r\naws_access_key_id = CONFIG\r\n"
	        "aws_secret_access_key = hush\r\n\n[profile  \"two words\"]\nAWS_ACCESS_KEY_ID=TWO\n"
	        "aws_secret_access_key=hush==\ns3 =\n  max_concurrent_requests = 20\n  addressing_style = "
	        "path\n");
	key_begins_with(t, "CONFIG");
	ps_autofree char *region = ps_credentials_region(t->c);
	assert_string_equal(region, "eu-west-3");
	ps_cloud_put(&cloud, "credentials",
	        "[default]\naws_access_key_id = KEYS\naws_secret_access_key = hush\n"
	        "aws_session_token = it\n; comment\n");
	key_begins_with(t, "KEYS");
	set(t, "AWS_PROFILE", "two words");
	key_begins_with(t, "TWO");
	ps_autokey struct ps_key *key = key_of(t);
	assert_string_equal(key->secret, "hush==");
	ps_cloud_put(&cloud, "credentials", "[default]\nhush hush\n");
	fails(t, "credentials", "line 2");
	ps_cloud_put(&cloud, "credentials", "[two words]\naws_access_key_id = KEYS\n");
	fails(t, "two words", "aws_secret_access_key");
	ps_cloud_put(&cloud, "credentials", NULL);
	/* If a setting is given twice, the last one counts, as in other tools. A lone quote is a valid name
	 * of a profile. */
	set(t, "AWS_PROFILE", "\"");
	ps_cloud_put(&cloud, "config",
	        "[profile \"]\naws_access_key_id = FIRST\naws_secret_access_key = hush\n"
	        "aws_access_key_id = LAST\n");
	t->options.profile = "\"";
	key_begins_with(t, "LAST");
}

static void short_reads_still_read_the_whole_file(void **state)
{
	struct test *t = *state;

	char text[8192] = "[default]\naws_access_key_id = PIECES\n#";
	size_t n = strlen(text);

	/* The first piece of a read is large (faults_trickle()): another read takes it. */
	memset(text + n, '-', sizeof(text) - n);
	strcpy(text + sizeof(text) - 64, "\naws_secret_access_key = hush\n");
	ps_cloud_put(&cloud, "credentials", text);
	faults_trickle(true);
	ps_autofd int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(other, text, sizeof(text)), 0);
	key_begins_with(t, "PIECES");
	ps_autokey struct ps_key *key = key_of(t);
	assert_string_equal(key->secret, "hush");
}

static void a_rewritten_file_is_read_again_when_its_keys_are_refused(void **state)
{
	struct test *t = *state;

	ps_cloud_put(
	        &cloud, "credentials", "[default]\naws_access_key_id = OLD\naws_secret_access_key = hush\n");
	key_begins_with(t, "OLD");
	ps_autokey struct ps_key *old = key_of(t);
	ps_cloud_put(
	        &cloud, "credentials", "[default]\naws_access_key_id = NEW\naws_secret_access_key = hush\n");
	uint64_t start = ps_clock_mono_ns();
	assert_true(ps_credentials_refused(t->c, old));
	for (int i = 0; i < 1000; i++) {
		ps_autokey struct ps_key *key = key_of(t);

		if (strcmp(key->access_key, "NEW") == 0) {
			/* A late refusal of the old key does not ask for a third one. */
			assert_true(ps_credentials_refused(t->c, old));
			/* A refusal of the new key right after its arrival is final. */
			bool again = ps_credentials_refused(t->c, key);
			if (ps_clock_mono_ns() - start < PS_CREDENTIALS_PAUSE_MS * PS_NS_PER_MS)
				assert_false(again);
			assert_string_equal(old->access_key, "OLD");
			return;
		}
		nap(20);
	}
	fail_msg("the new key never came");
}

static void a_command_gives_keys(void **state)
{
	struct test *t = *state;

	set(t, "PATH", "%s", "/usr/bin:/bin");
	set(t, "FROM_THE_SHELL", "%s", "COMMAND");
	ps_cloud_put(&cloud, "config",
	        "[default]\ncredential_process = echo \"{\\\"Version\\\": 1, \\\"AccessKeyId\\\": "
	        "\\\"$FROM_THE_SHELL\\\", "
	        "\\\"SecretAccessKey\\\": \\\"hush\\\", \\\"SessionToken\\\": \\\"s\\\", \\\"Expiration\\\": "
	        "\\\"2099-01-01T00:00:00Z\\\"}\"; echo hush >&2\n");
	key_begins_with(t, "COMMAND");
	ps_autokey struct ps_key *key = key_of(t);
	assert_int_equal(key->expires_s, 4070908800);
	ps_cloud_put(&cloud, "config", "[default]\ncredential_process = echo hush; exit 3\n");
	fails(t, "credential_process", "exit status 3");
	ps_cloud_put(&cloud, "config", "[default]\ncredential_process = echo '{\"Version\": 2}'\n");
	fails(t, "credential_process", "Version");
	ps_cloud_put(&cloud, "config", "[default]\ncredential_process = yes hush\n");
	fails(t, "credential_process", "64 KiB");
	ps_cloud_put(&cloud, "config", "[default]\ncredential_process = /nowhere/hushed\n");
	fails(t, "credential_process", "no such command");
	/* The command inherits none of our descriptors, and its output to stderr is not shown. */
	/* not close-on-exec, as a library's descriptor may be; not one of the command's own */
	int ours = fcntl(0, F_DUPFD, 20);
	assert_true(ours >= 0);
	ps_cloud_put(&cloud, "config",
	        "[default]\ncredential_process = test \"$(ls /proc/self/fd | tr -d '\\n')\" = 0123 || exit "
	        "9; test \"$(readlink /proc/self/fd/2)\" = /dev/null || exit 8; exit 4\n");
	fails(t, "credential_process", "exit status 4");
	close(ours);
}

/* The state of a process; 0: there is no such process. */
static char state_of(int pid)
{
	char path[64], state = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (f)
		fclose(f);
	return state;
}

static void the_children_of_a_command_that_is_killed_end_with_it(void **state)
{
	struct test *t = *state;
	char text[512];
	int pid = 0;

	set(t, "PATH", "%s", "/usr/bin:/bin");
	/* The command has a child that writes nothing and would not notice that its reader has gone. */
	snprintf(text, sizeof(text),
	        "credential_process = sleep 600 >/dev/null & echo $! >%s/asked; yes hush", cloud.dir);
	put_profile(text);
	fails(t, "credential_process", "64 KiB");
	snprintf(text, sizeof(text), "%s/asked", cloud.dir);
	FILE *f = fopen(text, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &pid), 1);
	fclose(f);
	for (int i = 0; i < 250 && state_of(pid) && state_of(pid) != 'Z'; i++)
		nap(20);
	bool lives = state_of(pid) && state_of(pid) != 'Z';
	if (lives)
		kill(pid, SIGKILL);
	assert_false(lives);
}

static void a_command_that_hangs_does_not_delay_the_end(void **state)
{
	struct test *t = *state;
	struct ps_key *key = NULL;

	ps_cloud_put(&cloud, "config", "[default]\ncredential_process = sleep 1000 | sleep 1000\n");
	assert_int_equal(ps_credentials_new(&t->options, &t->c, &t->err), 0);
	assert_int_equal(ps_credentials_get(t->c, &key, &t->err), -EAGAIN);
	assert_true(t->err.retryable);
	nap(300);
	uint64_t start = ps_clock_mono_ns();
	close_it(t);
	assert_true(ps_clock_mono_ns() - start < 20 * PS_NS_PER_S);
}

static void roles_are_assumed_with_the_keys_of_another_profile(void **state)
{
	struct test *t = *state;

	ps_cloud_put(&cloud, "keys", "AKIABASE hush/base+key\n");
	ps_cloud_put(&cloud, "external_id", "ext=1");
	ps_cloud_put(&cloud, "config",
	        "[profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = hush/base+key\n"
	        "[profile one]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = base\nexternal_id = "
	        "ext=1\n"
	        "[profile two]\nrole_arn = arn:aws:iam::1:role/two\nsource_profile = one\nexternal_id = "
	        "ext=1\n"
	        "role_session_name = me@here\nregion = eu-west-1\n"
	        "[profile round]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = turn\n"
	        "[profile turn]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = round\n"
	        "[profile code]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = base\nmfa_serial = x\n"
	        "[profile bare]\nrole_arn = arn:aws:iam::1:role/x\n"
	        "[profile wrong]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = base\nexternal_id = "
	        "other\n"
	        "[profile env]\nrole_arn = arn:aws:iam::1:role/x\ncredential_source = "
	        "Environment\nexternal_id = ext=1\n"
	        "[profile 1]\nrole_arn = r\nsource_profile = 2\n[profile 2]\nrole_arn = r\nsource_profile = "
	        "3\n"
	        "[profile 3]\nrole_arn = r\nsource_profile = 4\n[profile 4]\nrole_arn = r\nsource_profile = "
	        "5\n"
	        "[profile 5]\nrole_arn = r\nsource_profile = 6\n[profile 6]\nrole_arn = r\nsource_profile = "
	        "7\n"
	        "[profile 7]\nrole_arn = r\nsource_profile = 8\n[profile 8]\nrole_arn = r\nsource_profile = "
	        "9\n"
	        "[profile 9]\nrole_arn = r\nsource_profile = missing\n");
	t->options.profile = "one";
	key_begins_with(t, "ASIASTS");
	t->options.profile = "two";
	key_begins_with(t, "ASIASTS");
	assert_int_equal(ps_cloud_seen(&cloud, "POST / ", "200"), 3);
	t->options.profile = "round";
	fails(t, "refers to itself", "round");
	t->options.profile = "1";
	fails(t, "profile 9: more than 8 profiles refer to each other", "");
	t->options.profile = "code";
	fails(t, "mfa_serial", "code");
	t->options.profile = "bare";
	fails(t, "role_arn", "source_profile");
	t->options.profile = "wrong";
	fails(t, "AccessDenied", "external id");
	t->options.profile = "env";
	fails(t, "credential_source", "Environment");
}

static void single_sign_on_gives_keys(void **state)
{
	struct test *t = *state;
	char path[256];

	ps_cloud_put(&cloud, "config",
	        "[default]\nsso_session = my\nsso_account_id = 123456789012\nsso_role_name = reader\n"
	        "[sso-session my]\nsso_region = us-east-1\nsso_start_url = https://my.example/start\n");
	set(t, "AWS_ENDPOINT_URL_SSO", "%s", cloud.http);
	fails(t, "aws sso login", "default");
	static const char *const dirs[] = {".aws", ".aws/sso", ".aws/sso/cache"};
	for (size_t i = 0; i < PS_ARRAY_LEN(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", cloud.dir, dirs[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	ps_cloud_put(&cloud, "token.sso", "sso-token");
	char command[600];
	snprintf(command, sizeof(command),
	        "cd %s/.aws/sso/cache && echo '{\"accessToken\": \"sso-token\", \"expiresAt\": "
	        "\"2099-01-01T00:00:00Z\"}' >"
	        "$(printf my | sha1sum | cut -c1-40).json",
	        cloud.dir);
	assert_int_equal(system(command), 0);
	key_begins_with(t, "ASIASSO");
	ps_cloud_put(&cloud, "token.sso", "another");
	fails(t, "SSO", "401");
	snprintf(command, sizeof(command), "sed -i s/2099/2001/ %s/.aws/sso/cache/*.json", cloud.dir);
	assert_int_equal(system(command), 0);
	fails(t, "expired", "aws sso login");
}

/* Tokens of pods, agents, machines ----------------------------------------------------------------------- */

static void a_web_identity_gives_keys(void **state)
{
	struct test *t = *state;

	set(t, "AWS_WEB_IDENTITY_TOKEN_FILE", "%s/token.web", cloud.dir);
	fails(t, "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not", "");
	set(t, "AWS_ROLE_ARN", "arn:aws:iam::1:role/pod");
	fails(t, "token.web", "No such file");
	ps_cloud_put(&cloud, "token.web", "hush-jwt.1\n");
	key_begins_with(t, "ASIASTS");
	/* The file is read again each time. */
	ps_cloud_put(&cloud, "token.web", "hush-jwt.2\n");
	key_begins_with(t, "ASIASTS");
	ps_cloud_put(&cloud, "fail.sts", "503");
	assert_int_equal(open_and_wait(t), -EAGAIN);
	assert_true(t->err.retryable);
	ps_cloud_put(&cloud, "fail.sts", NULL);
	ps_cloud_put(&cloud, "say.sts", "<AssumeRoleResponse><hush");
	fails(t, "STS: the answer", "");
	ps_cloud_put(&cloud, "say.sts", "<AssumeRoleResponse></AssumeRoleResponse>");
	fails(t, "STS: the answer has no credentials", "");
	ps_cloud_put(&cloud, "say.sts",
	        "<R><Credentials><AccessKeyId>K</AccessKeyId><SecretAccessKey>hush</SecretAccessKey>"
	        "<SessionToken>hush</SessionToken></Credentials></R>");
	fails(t, "STS: the answer has no credentials", "");
	ps_cloud_put(&cloud, "say.sts",
	        "<R><PackedCredentials><AccessKeyId>OTHER</AccessKeyId></PackedCredentials><Credentials>"
	        "<AccessKeyId>MINE</AccessKeyId><SecretAccessKey>hush</SecretAccessKey><SessionToken>hush"
	        "</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>");
	key_begins_with(t, "MINE");
	ps_cloud_put(&cloud, "say.sts", NULL);
	for (size_t i = 0; i < t->n; i++) {
		if (strncmp(t->env[i], "AWS_ENDPOINT_URL_STS=", 21) != 0)
			continue;
		strcpy(t->env[i], "AWS_ENDPOINT_URL_STS=ftp:");
		fails(t, "AWS_ENDPOINT_URL_STS: not a URL", "");
		strcpy(t->env[i], "AWS_ENDPOINT_URL=ftp:");
		fails(t, "AWS_ENDPOINT_URL: not a URL", "");
	}
}

static void a_refused_web_identity_is_reported_with_its_code(void **state)
{
	struct test *t = *state;
	char path[128];

	set(t, "AWS_WEB_IDENTITY_TOKEN_FILE", "%s/mine", cloud.dir);
	set(t, "AWS_ROLE_ARN", "arn:aws:iam::1:role/pod");
	snprintf(path, sizeof(path), "%s/mine", cloud.dir);
	ps_cloud_put(&cloud, "mine", "hush");
	ps_cloud_put(&cloud, "token.web", "expected");
	fails(t, "InvalidIdentityToken", "role/pod");
}

static void a_container_s_agent_gives_keys(void **state)
{
	struct test *t = *state;

	set(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "%s/agent/creds", cloud.http);
	key_begins_with(t, "ASIAAGENT");
	ps_cloud_put(&cloud, "token.container", "Bearer hush");
	fails(t, "container credentials", "401");
	ps_cloud_put(&cloud, "say.container", "hush");
	fails(t, "container credentials: the answer is not a JSON object with credentials", "");
	ps_cloud_put(&cloud, "say.container", NULL);
	ps_cloud_put(&cloud, "fail.container", "500");
	assert_int_equal(open_and_wait(t), -EAGAIN);
	ps_cloud_put(&cloud, "fail.container", NULL);
	set(t, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "%s/token.container", cloud.dir);
	fails(t, "token.container", "not a token"); /* the token has a blank in it */
	ps_cloud_put(&cloud, "token.container", "hush");
	key_begins_with(t, "ASIAAGENT");
}

static void the_token_is_sent_to_no_other_host_than_the_agent(void **state)
{
	static const char *const elsewhere[] = {"http://example.com/x", "http://128.0.0.1/",
	        "http://169.254.170.3/", "http://127.0.0.1.example.com/", "ftp://127.0.0.1/",
	        "http://user@10.0.0.1/"};
	struct test *t = *state;

	set(t, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush");
	for (size_t i = 0; i < PS_ARRAY_LEN(elsewhere); i++) {
		set(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "%s", elsewhere[i]);
		fails(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI: ",
		        elsewhere[i][0] == 'h' ? "http:// is for loopback and the agents' own addresses"
		                               : "ftp");
		unset(t);
	}
	unset(t);
	set(t, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ".example.com/x");
	fails(t, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with /", "");
	unset(t);
	set(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "%s/agent/creds", cloud.http);
	set(t, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush\r\nX-Evil: 1");
	fails(t, "AWS_CONTAINER_AUTHORIZATION_TOKEN has a line end in it", "");
}

static void an_instance_s_role_gives_keys(void **state)
{
	struct test *t = *state;

	set(t, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "%s/", cloud.http);
	key_begins_with(t, "ASIAIMDS");
	ps_autokey struct ps_key *key = key_of(t);
	assert_non_null(key->session_token);
	assert_true(key->expires_s > ps_clock_real_s() + 3000);
	ps_cloud_put(&cloud, "fail.imds", NULL);
	ps_cloud_put(&cloud, "say.imds", "{ hush }");
	fails(t, "instance metadata: the role's name is not valid", "");
	char longest[200];
	memset(longest, 'r', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	ps_cloud_put(&cloud, "say.imds", longest);
	fails(t, "instance metadata: the role's name is not valid", "");
	ps_cloud_put(&cloud, "say.imds", NULL);
	ps_cloud_put(&cloud, "norole", "");
	fails(t, "instance metadata: this instance has no role", "");
	ps_cloud_put(&cloud, "norole", NULL);
	ps_cloud_put(&cloud, "say.imds", "other-role");
	fails(t, "instance metadata: the answer is not a JSON object with credentials", "");
	ps_cloud_put(&cloud, "say.imds", NULL);
	set(t, "AWS_EC2_METADATA_DISABLED", "TRUE");
	fails(t, "no credentials", "instance");
}

static void a_metadata_server_that_hangs_is_given_up(void **state)
{
	struct test *t = *state;

	ps_cloud_put(&cloud, "hang.imds", "");
	set(t, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "%s", cloud.http);
	uint64_t start = ps_clock_mono_ns();
	fails(t, "no credentials", "instance");
	assert_true(ps_clock_mono_ns() - start < 30 * PS_NS_PER_S);
	ps_cloud_put(&cloud, "hang.imds", NULL);
	wait_for_log("PUT /latest/api/token", 2);
}

/* Renewal ------------------------------------------------------------------------------------------------ */

static bool is_new(struct test *t, const struct ps_key *old)
{
	ps_autokey struct ps_key *key = NULL;

	return ps_credentials_get(t->c, &key, NULL) == 0 && strcmp(key->access_key, old->access_key) != 0;
}

static void keys_are_renewed_before_they_expire(void **state)
{
	struct test *t = *state;

	ps_cloud_put(&cloud, "ttl", "8");
	set(t, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "%s", cloud.http);
	key_begins_with(t, "ASIAIMDS");
	ps_autokey struct ps_key *old = key_of(t);
	ps_cloud_put(&cloud, "ttl", "3600");
	for (int i = 0; i < 1000 && !is_new(t, old); i++) {
		ps_autokey struct ps_key *key = NULL;
		int rc = ps_credentials_get(t->c, &key, &t->err);

		/* There is a valid key at any moment, unless all threads were descheduled for seconds. */
		if (ps_clock_real_s() < old->expires_s)
			assert_int_equal(rc, 0);
		nap(20);
	}
	assert_true(is_new(t, old));
	/* One request renewed the key, and none follows for most of the hour. */
	nap(2500);
	assert_in_range(ps_cloud_seen(&cloud, "PUT /latest/api/token", "200"), 2, 3);
}

static void a_failed_renewal_leaves_the_old_keys_until_they_expire(void **state)
{
	struct test *t = *state;
	struct ps_key *none = NULL;

	ps_cloud_put(&cloud, "ttl", "6");
	set(t, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "%s", cloud.http);
	key_begins_with(t, "ASIAIMDS");
	ps_autokey struct ps_key *old = key_of(t);
	ps_cloud_put(&cloud, "fail.imds", "500");
	while (ps_clock_real_ms() < old->expires_s * 1000 - 500) {
		ps_autokey struct ps_key *key = NULL;
		int rc = ps_credentials_get(t->c, &key, &t->err);

		/* Unless this thread was descheduled meanwhile. */
		if (ps_clock_real_s() < old->expires_s)
			assert_int_equal(rc, 0);
		nap(20);
	}
	for (int i = 0; i < 1000 && !ps_cloud_seen(&cloud, "PUT /latest/api/token", "500"); i++)
		nap(20);
	assert_true(ps_cloud_seen(&cloud, "PUT /latest/api/token", "500") > 0);
	while (ps_clock_real_s() <= old->expires_s)
		nap(20);
	assert_int_equal(ps_credentials_get(t->c, &none, &t->err), -EAGAIN);
	assert_true(t->err.retryable);
	assert_null(strstr(t->err.text, "no credentials")); /* the instance is known as the source */
	ps_cloud_put(&cloud, "fail.imds", NULL);
	for (int i = 0; i < 1000 && !is_new(t, old); i++)
		nap(20);
	assert_true(is_new(t, old));
}

/* A caller whose key was refused asks for another one. The answer must be that there is none, or the caller
 * asks for ever. */
static void the_same_key_loaded_again_does_not_count_as_new(void **state)
{
	struct test *t = *state;
	bool another = true;

	set(t, "AWS_ACCESS_KEY_ID", "SAME");
	set(t, "AWS_SECRET_ACCESS_KEY", "hush");
	key_begins_with(t, "SAME");
	ps_autokey struct ps_key *key = key_of(t);
	uint64_t start = ps_clock_mono_ns();
	assert_true(ps_credentials_refused(t->c, key));
	while (another && ps_clock_mono_ns() - start < PS_CREDENTIALS_PAUSE_MS * PS_NS_PER_MS) {
		nap(5);
		another = ps_credentials_refused(t->c, key);
	}
	assert_false(another);
	ps_autokey struct ps_key *after = key_of(t);
	assert_ptr_equal(after, key);
}

static void put_command(time_t end)
{
	char text[512], when[64];
	struct tm tm;

	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&end, &tm));
	snprintf(text, sizeof(text),
	        "[default]\ncredential_process = echo \"{\\\"Version\\\": 1, \\\"AccessKeyId\\\": \\\"K\\\", "
	        "\\\"SecretAccessKey\\\": \\\"hush\\\", \\\"Expiration\\\": \\\"%s\\\"}\"\n",
	        when);
	ps_cloud_put(&cloud, "config", text);
}

static void a_key_whose_expiration_was_extended_is_valid_longer(void **state)
{
	struct test *t = *state;
	time_t now = (time_t)ps_clock_real_s();

	set(t, "PATH", "%s", "/usr/bin:/bin");
	put_command(now + 3600);
	key_begins_with(t, "K");
	ps_autokey struct ps_key *key = key_of(t);
	assert_int_equal(key->expires_s, now + 3600);
	put_command(now + 7200);
	assert_true(ps_credentials_refused(t->c, key));
	for (int i = 0; i < 500; i++) {
		ps_autokey struct ps_key *later = key_of(t);

		if (later->expires_s == now + 7200)
			return;
		nap(10);
	}
	fail_msg("the time is the old one");
}

/* Renewal comes after half of the remaining time, but at most once a second: otherwise the command would run
 * without a pause shortly before the end. */
static void a_key_near_its_end_is_requested_at_most_once_a_second(void **state)
{
	struct test *t = *state;
	char text[512], line[64];
	struct ps_key *key = NULL;
	unsigned n = 0;
	time_t end = (time_t)ps_clock_real_s() + 2;
	struct tm tm;

	strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&end, &tm));
	snprintf(text, sizeof(text),
	        "[default]\ncredential_process = echo >>%s/asked; echo \"{\\\"Version\\\": 1, "
	        "\\\"AccessKeyId\\\": \\\"K\\\", \\\"SecretAccessKey\\\": \\\"hush\\\", "
	        "\\\"Expiration\\\": \\\"%s\\\"}\"\n",
	        cloud.dir, line);
	set(t, "PATH", "%s", "/usr/bin:/bin");
	ps_cloud_put(&cloud, "asked", NULL);
	ps_cloud_put(&cloud, "config", text);
	key_begins_with(t, "K");
	while (ps_credentials_get(t->c, &key, &t->err) == 0) {
		ps_key_unref(key);
		nap(10);
	}
	snprintf(text, sizeof(text), "%s/asked", cloud.dir);
	FILE *f = fopen(text, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n++;
	fclose(f);
	assert_in_range(n, 1, 3);
}

/* Keys expire by the wall clock, which may be set meanwhile. */
static void keys_survive_steps_of_the_wall_clock(void **state)
{
	static const int64_t to[] = {-86400, 1800, -1800, 0};
	struct test *t = *state;
	struct ps_key *none = NULL;

	set(t, "PATH", "%s", "/usr/bin:/bin");
	put_command((time_t)ps_clock_real_s() + 3600);
	key_begins_with(t, "K");
	for (size_t i = 0; i < PS_ARRAY_LEN(to); i++) {
		faults_step_clock(to[i]);
		ps_autokey struct ps_key *key = key_of(t);
		assert_string_equal(key->access_key, "K");
	}
	/* After their end the keys are requested again. By the wrong clock the new ones have expired,
	 * too. */
	faults_step_clock(86400);
	assert_int_equal(ps_credentials_wait(t->c, NULL, &t->err), -EACCES);
	if (!strstr(t->err.text, "have expired: they ended at 20") ||
	        !strstr(t->err.text, ", and this machine's clock says 20"))
		fail_msg("\"%s\"", t->err.text);
	/* Once the clock is right again, the old keys are valid at once. */
	faults_step_clock(0);
	ps_autokey struct ps_key *key = key_of(t);
	assert_string_equal(key->access_key, "K");
	faults_step_clock(86400);
	assert_int_equal(ps_credentials_get(t->c, &none, &t->err) < 0, 1);
	faults_step_clock(-86400);
	close_it(t); /* its thread must not wait for a time by the wrong clock */
}

static void asking_for_keys_never_waits(void **state)
{
	struct test *t = *state;
	struct ps_key *none = NULL;

	ps_cloud_put(&cloud, "hang.sts", "");
	ps_cloud_put(&cloud, "token.web", "jwt");
	set(t, "AWS_WEB_IDENTITY_TOKEN_FILE", "%s/token.web", cloud.dir);
	set(t, "AWS_ROLE_ARN", "arn:aws:iam::1:role/pod");
	assert_int_equal(ps_credentials_new(&t->options, &t->c, &t->err), 0);
	for (int i = 0; i < 200; i++)
		assert_int_equal(ps_credentials_get(t->c, &none, &t->err), -EAGAIN);
	_Atomic bool stop = true;
	assert_int_equal(ps_credentials_wait(t->c, &stop, &t->err), -ECANCELED);
	uint64_t start = ps_clock_mono_ns();
	close_it(t);
	assert_true(ps_clock_mono_ns() - start < 25 * PS_NS_PER_S);
	ps_cloud_put(&cloud, "hang.sts", NULL);
}

/* Google ------------------------------------------------------------------------------------------------- */

static void a_google_service_account_gives_a_token(void **state)
{
	struct test *t = *state;
	char command[2048];

	t->options.kind = PS_CREDENTIALS_GOOGLE;
	snprintf(command, sizeof(command),
	        "cd %s && openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out sa.pem "
	        "2>/dev/null && "
	        "openssl rsa -in sa.pem -noout -modulus | cut -d= -f2 >modulus && /usr/bin/python3 -c "
	        "'import json; "
	        "print(json.dumps({\"type\": \"service_account\", \"client_email\": \"me@project.example\", "
	        "\"private_key_id\": "
	        "\"1\", \"token_uri\": \"%s/token\", \"private_key\": open(\"sa.pem\").read()}))' >sa.json",
	        cloud.dir, cloud.http);
	assert_int_equal(system(command), 0);
	set(t, "GOOGLE_APPLICATION_CREDENTIALS", "%s/sa.json", cloud.dir);
	key_begins_with(t, "ya29.");
	ps_autokey struct ps_key *key = key_of(t);
	assert_null(key->access_key);
	assert_true(key->expires_s > ps_clock_real_s() + 3000);
	ps_cloud_put(&cloud, "modulus", "d5e3");
	fails(t, "sa.json", "invalid_grant");
	/* A host name that begins with a loopback address is not this machine. */
	snprintf(command, sizeof(command),
	        "sed -i 's|http://127.0.0.1:|http://127.0.0.1.example.com:|' %s/sa.json", cloud.dir);
	assert_int_equal(system(command), 0);
	fails(t, "sa.json", "token_uri: 127.0.0.1.example.com is not https");
	snprintf(command, sizeof(command), "sed -i 's/BEGIN/begin/' %s/sa.json", cloud.dir);
	assert_int_equal(system(command), 0);
	fails(t, "sa.json", "private_key is not an RSA key in PEM");
}

static void a_user_of_gcloud_gets_a_token(void **state)
{
	struct test *t = *state;

	t->options.kind = PS_CREDENTIALS_GOOGLE;
	ps_cloud_put(&cloud, "token.refresh", "1//hush");
	ps_cloud_put(&cloud, "application_default_credentials.json",
	        "{\"type\": \"authorized_user\", \"client_id\": \"a\", \"client_secret\": \"hush&\", "
	        "\"refresh_token\": \"1//hush\"}");
	set(t, "CLOUDSDK_AUTH_TOKEN_HOST", "%s/token", cloud.http);
	key_begins_with(t, "ya29.");
	ps_cloud_put(&cloud, "application_default_credentials.json", "{\"type\": \"external_account\"}");
	fails(t,
	        "credentials of type external_account are not supported; service_account and authorized_user "
	        "are",
	        "");
	ps_cloud_put(&cloud, "application_default_credentials.json", "hush {");
	fails(t, "not a JSON file of Google credentials", "application_default_credentials.json");
	ps_cloud_put(&cloud, "application_default_credentials.json",
	        "{\"type\": \"authorized_user\", \"client_id\": \"a\"}");
	fails(t, "no client_secret in it: run gcloud auth application-default login", "");
	set(t, "GOOGLE_APPLICATION_CREDENTIALS", "%s/nowhere.json", cloud.dir);
	fails(t, "nowhere.json", "GOOGLE_APPLICATION_CREDENTIALS");
	/* A file given on the command line comes before everything in the environment. */
	char path[512];
	snprintf(path, sizeof(path), "%s/given.json", cloud.dir);
	ps_cloud_put(&cloud, "given.json",
	        "{\"type\": \"authorized_user\", \"client_id\": \"a\", \"client_secret\": \"hush&\", "
	        "\"refresh_token\": \"1//hush\"}");
	set(t, "GS_ACCESS_KEY_ID", "GOOGown");
	set(t, "GS_SECRET_ACCESS_KEY", "hush");
	key_begins_with(t, "GOOGown");
	t->options.google_file = path;
	key_begins_with(t, "ya29.");
}

static void hmac_keys_for_google_come_in_their_order(void **state)
{
	struct test *t = *state;

	t->options.kind = PS_CREDENTIALS_GOOGLE;
	set(t, "GCE_METADATA_HOST", "127.0.0.1:1"); /* no server listens there */
	/* gsutil's file counts; an id without its secret, or a key in another section, does not. */
	set(t, "BOTO_CONFIG", "%s/boto", cloud.dir);
	ps_cloud_put(&cloud, "boto",
	        "[Boto]\ngs_access_key_id = GOOGnot\ngs_secret_access_key = hush\n[Credentials]\n"
	        "# mine\ngs_access_key_id = GOOGboto\ngs_secret_access_key = hush\n");
	key_begins_with(t, "GOOGboto");
	ps_cloud_put(&cloud, "boto", "[Credentials]\ngs_access_key_id = GOOGboto\n");
	assert_int_not_equal(open_and_wait(t), 0);
	ps_cloud_put(&cloud, "boto", NULL);
	/* The AWS tools' variables count if the key is one of Google's. */
	set(t, "AWS_SECRET_ACCESS_KEY", "hush");
	set(t, "AWS_ACCESS_KEY_ID", "GOOGaws");
	key_begins_with(t, "GOOGaws");
	set(t, "GS_ACCESS_KEY_ID", "GOOGown");
	fails(t, "only one of GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY is set", "");
	set(t, "GS_SECRET_ACCESS_KEY", "hush");
	key_begins_with(t, "GOOGown");
	/* A named profile comes before all of these. */
	t->options.profile = "hmac";
	ps_cloud_put(&cloud, "credentials",
	        "[hmac]\naws_access_key_id = GOOGprofile\naws_secret_access_key = hush\n");
	key_begins_with(t, "GOOGprofile");
}

static void a_google_instance_gives_a_token(void **state)
{
	struct test *t = *state;

	t->options.kind = PS_CREDENTIALS_GOOGLE;
	set(t, "GCE_METADATA_HOST", "127.0.0.1:%d", cloud.port);
	key_begins_with(t, "ya29.");
	set(t, "GS_ACCESS_KEY_ID", "GOOG1EHMAC");
	set(t, "GS_SECRET_ACCESS_KEY", "hush");
	key_begins_with(t, "GOOG1EHMAC");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(keys_of_the_environment_come_first),
	        TEST(a_profile_by_option_comes_before_the_environment),
	        TEST(no_sign_request_means_no_key),
	        TEST(without_keys_the_error_says_where_they_may_be),
	        TEST(keys_that_would_break_a_header_are_refused),
	        TEST(half_a_key_is_reported_with_the_name_of_the_other_half),
	        TEST(what_a_profile_lacks_is_reported),
	        TEST(profiles_are_read_from_both_files),
	        TEST(short_reads_still_read_the_whole_file),
	        TEST(a_rewritten_file_is_read_again_when_its_keys_are_refused),
	        TEST(a_command_gives_keys),
	        TEST(the_children_of_a_command_that_is_killed_end_with_it),
	        TEST(a_command_that_hangs_does_not_delay_the_end),
	        TEST(roles_are_assumed_with_the_keys_of_another_profile),
	        TEST(single_sign_on_gives_keys),
	        TEST(a_web_identity_gives_keys),
	        TEST(a_refused_web_identity_is_reported_with_its_code),
	        TEST(a_container_s_agent_gives_keys),
	        TEST(the_token_is_sent_to_no_other_host_than_the_agent),
	        TEST(an_instance_s_role_gives_keys),
	        TEST(a_metadata_server_that_hangs_is_given_up),
	        TEST(keys_are_renewed_before_they_expire),
	        TEST(a_failed_renewal_leaves_the_old_keys_until_they_expire),
	        TEST(the_same_key_loaded_again_does_not_count_as_new),
	        TEST(a_key_whose_expiration_was_extended_is_valid_longer),
	        TEST(a_key_near_its_end_is_requested_at_most_once_a_second),
	        TEST(keys_survive_steps_of_the_wall_clock),
	        TEST(asking_for_keys_never_waits),
	        TEST(a_google_service_account_gives_a_token),
	        TEST(a_user_of_gcloud_gets_a_token),
	        TEST(hmac_keys_for_google_come_in_their_order),
	        TEST(a_google_instance_gives_a_token),
	};

	if (!ps_cloud_start(&cloud)) {
		puts("1..0 # SKIP there is no python3");
		return 0;
	}
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	ps_cloud_stop(&cloud);
	return failed;
}
