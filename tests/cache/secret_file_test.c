/* Files of tokens, passwords and keys: what is accepted, what is refused, and that all readers of such files
 * refuse the same. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/secret.h"
#include "credentials/key_source.h"
#include "credentials/credentials.h"
#include "http/http.h"
#include "tests/faults.h"

#define MAX_NBYTES 2048

static char dir[64], path[128], log_path[128];
static const struct ps_secret_file kind = {.what = "secret file", .max_nbytes = MAX_NBYTES};

static void write_file(const char *text, size_t n, mode_t mode)
{
	ps_autofd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), n);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void empty_log(void)
{
	assert_int_equal(truncate(log_path, 0), 0);
}

static bool is_logged(const char *words)
{
	char text[4096];
	ps_autofd int fd = open(log_path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	assert_true(n >= 0);
	text[n] = '\0';
	return strstr(text, words) != NULL;
}

static int set_up(void **state)
{
	struct ps_error err;

	(void)state;
	strcpy(dir, "/tmp/penstock-secret-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/secret", dir);
	snprintf(log_path, sizeof(log_path), "%s/log", dir);
	return ps_log_open(log_path, PS_LOG_WARNING, "test", &err);
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	unlink(log_path);
	return rmdir(dir);
}

static void a_file_is_read_whole(void **state)
{
	char text[MAX_NBYTES];
	ps_autosecret char *read = NULL;
	size_t n = 0;

	(void)state;
	memset(text, 'x', sizeof(text));
	write_file(text, sizeof(text), 0600);
	assert_int_equal(ps_secret_file_read(path, &kind, &read, &n, NULL), 0);
	assert_int_equal(n, sizeof(text));
	assert_memory_equal(read, text, n);
	assert_int_equal(read[n], '\0');
}

/* Reads are short and interrupted by signals. */
static void short_reads_still_read_the_whole_file(void **state)
{
	char text[MAX_NBYTES];
	ps_autosecret char *read = NULL;
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)('a' + i % 26);
	write_file(text, sizeof(text), 0600);
	faults_trickle(true);
	int rc = ps_secret_file_read(path, &kind, &read, &n, NULL);
	faults_end();
	assert_int_equal(rc, 0);
	assert_int_equal(n, sizeof(text));
	assert_memory_equal(read, text, n);
}

static void files_without_a_size_are_read(void **state)
{
	ps_autosecret char *read = NULL;
	size_t n = 0;

	(void)state;
	assert_int_equal(ps_secret_file_read("/proc/self/status",
	                         &(struct ps_secret_file){.max_nbytes = 1 << 16}, &read, &n, NULL),
	        0);
	assert_true(n > 0);
	assert_int_equal(n, strlen(read));
}

static void files_open_to_other_users_are_logged(void **state)
{
	static const struct {
		mode_t mode;
		const char *logged; /* NULL: nothing */
	} rows[] = {{0600, NULL}, {0640, NULL}, {0660, NULL}, {0644, "may read it"}, {0602, "may write it"},
	        {0604, "may read it"}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++)
		for (int shared = 0; shared < 2; shared++) {
			struct ps_secret_file k = kind;
			ps_autosecret char *read = NULL;

			k.is_shared = shared;
			write_file("hush", 4, rows[i].mode);
			empty_log();
			assert_int_equal(ps_secret_file_read(path, &k, &read, NULL, NULL), 0);
			assert_string_equal(read, "hush");
			if (rows[i].logged && !shared)
				assert_true(is_logged(rows[i].logged) && is_logged(path));
			else
				assert_false(is_logged(path));
			assert_false(is_logged("hush"));
			empty_log();
			ps_secret_free(ps_steal_ptr(&read));
			assert_int_equal(ps_secret_file_read(path, &k, &read, NULL, NULL), 0);
			assert_false(is_logged(path)); /* logged once only */
		}
}

static void a_key_that_another_library_reads_is_logged_too(void **state)
{
	static const char *const no_env[] = {NULL};
	const struct ps_http_options rows[] = {{.env = no_env, .client_cert = log_path, .client_key = path},
	        {.env = no_env, .client_cert = path}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_http_access access;

		/* modes that no other test here uses: a file and mode are logged once only */
		write_file("hush", 4, i ? 0666 : 0664);
		empty_log();
		assert_int_equal(ps_http_access_init(&access, &rows[i], NULL), 0);
		ps_http_access_fini(&access);
		assert_true(is_logged("client key") && is_logged(path) && is_logged("may read it"));
	}
}

static void a_pipe_is_read_only_where_one_is_allowed(void **state)
{
	struct ps_secret_file k = kind;
	ps_autosecret char *read = NULL;
	char name[32];
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(write(fds[1], "hush", 4), 4);
	close(fds[1]);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fds[0]);
	assert_int_equal(ps_secret_file_read(name, &kind, &read, NULL, NULL), -EINVAL);
	k.may_be_pipe = true;
	assert_int_equal(ps_secret_file_read(name, &k, &read, NULL, NULL), 0);
	assert_string_equal(read, "hush");
	close(fds[0]);
}

/* All readers of such files ------------------------------------------------------------------------------ */

static int by_itself(struct ps_error *err)
{
	ps_autosecret char *text = NULL;

	return ps_secret_file_read(path, &kind, &text, NULL, err);
}

static int as_hub_token(struct ps_error *err)
{
	ps_autosecret char *token = NULL;

	return ps_hf_token_find(NULL, path, &token, err);
}

static int as_netrc(struct ps_error *err)
{
	const struct ps_http_options options = {.netrc_file = path};
	ps_autosecret char *found = NULL;

	return ps_netrc_user_password(&options, "h", &found, err);
}

static int as_password(struct ps_error *err)
{
	static const char *const no_env[] = {NULL};
	const struct ps_http_options options = {
	        .env = no_env, .client_cert = log_path, .client_key_password_file = path};
	struct ps_http_access access;
	int rc = ps_http_access_init(&access, &options, err);

	if (!rc)
		ps_http_access_fini(&access);
	return rc;
}

static int as_keys(struct ps_error *err)
{
	ps_autosecret char *text = NULL;
	size_t n;

	return ps_key_read_file(path, &text, &n, err);
}

static int as_token(struct ps_error *err)
{
	ps_autosecret char *token = NULL;

	return ps_key_read_token(path, &token, err);
}

static int (*const readers[])(struct ps_error *err) = {
        by_itself, as_hub_token, as_netrc, as_password, as_keys, as_token};

static void all_refuse(int errnum, const char *why)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(readers); i++) {
		struct ps_error err = {0};
		int rc = readers[i](&err);

		if (rc != -errnum || !strstr(err.text, why) || !strstr(err.text, path) ||
		        strstr(err.text, "hush"))
			fail_msg("reader %zu: %d: %s", i, rc, err.text);
	}
}

static void a_missing_file_is_named_in_the_error(void **state)
{
	(void)state;
	unlink(path);
	all_refuse(ENOENT, "No such file");
}

static void directories_and_fifos_are_refused(void **state)
{
	(void)state;
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	all_refuse(EINVAL, "not a regular file");
	assert_int_equal(rmdir(path), 0);
	/* A FIFO is not waited for. */
	assert_int_equal(mkfifo(path, 0600), 0);
	all_refuse(EINVAL, "not a regular file");
	unlink(path);
}

static void a_file_that_is_not_text_is_refused(void **state)
{
	(void)state;
	write_file("hush\0hush", 9, 0600);
	all_refuse(EINVAL, "not text");
}

static void a_long_file_is_refused(void **state)
{
	size_t n = PS_CREDENTIALS_FILE_MAX_NBYTES + 1;
	char *text = malloc(n);

	(void)state;
	assert_non_null(text);
	memset(text, 'h', n);
	write_file(text, n, 0600);
	free(text);
	all_refuse(EFBIG, "longer than");
}

static void a_short_text_file_is_accepted_by_all_readers(void **state)
{
	(void)state;
	write_file("hush\n", 5, 0600);
	for (size_t i = 0; i < PS_ARRAY_LEN(readers); i++)
		assert_int_equal(readers[i](NULL), 0);
}

static void tokens_have_no_blanks(void **state)
{
	static const struct {
		const char *text, *token; /* NULL: none */
		int rc;
	} rows[] = {
	        {"hush", "hush", 0},
	        {" \thush\r\n\n", "hush", 0},
	        {"", NULL, 0},
	        {" \n", NULL, 0},
	        {"two words", NULL, -EINVAL},
	        {"two\nlines", NULL, -EINVAL},
	        {"del\x7f", NULL, -EINVAL},
	        {"\x01hush", NULL, -EINVAL},
	        {"caf\xc3\xa9", NULL, -EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		ps_autosecret char *token = NULL;

		assert_int_equal(ps_secret_token(rows[i].text, &token), rows[i].rc);
		if (rows[i].token)
			assert_string_equal(token, rows[i].token);
		else
			assert_null(token);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_file_is_read_whole),
	        cmocka_unit_test(short_reads_still_read_the_whole_file),
	        cmocka_unit_test(files_without_a_size_are_read),
	        cmocka_unit_test(files_open_to_other_users_are_logged),
	        cmocka_unit_test(a_key_that_another_library_reads_is_logged_too),
	        cmocka_unit_test(a_pipe_is_read_only_where_one_is_allowed),
	        cmocka_unit_test(a_missing_file_is_named_in_the_error),
	        cmocka_unit_test(directories_and_fifos_are_refused),
	        cmocka_unit_test(a_file_that_is_not_text_is_refused),
	        cmocka_unit_test(a_long_file_is_refused),
	        cmocka_unit_test(a_short_text_file_is_accepted_by_all_readers),
	        cmocka_unit_test(tokens_have_no_blanks),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
