/* Options from a table, on a command line and in -o lists. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#include "options/options.h"
#include "cli/walk.h"
#include "base/progress.h"

static const struct ps_opts opts = {
        .command = "mount",
        .usage = "SOURCE MOUNTPOINT",
        .about = "",
        .id = PS_CMD_MOUNT,
        .lists = true,
};

static int parse_list(const char *list, struct ps_mount_options *o, struct ps_error *err)
{
	ps_mount_options_init(o);
	return ps_opts_parse_list(&opts, o, list, err);
}

static int parse_args(struct ps_mount_options *o, struct ps_error *err, int *ret_nargs, int argc, char **argv)
{
	ps_mount_options_init(o);
	return ps_opts_parse(&opts, o, argc, argv, ret_nargs, err);
}

static void test_option_lists_set_options_of_every_kind(void **state)
{
	struct ps_mount_options o;
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(
	        parse_list("cache-dir=/c,cache-size=80%,policy=lru,min-free=2G,memory=64M,timeout=500ms,"
	                   "revalidate=never,grant-ttl=5m,max-bandwidth=1M,max-connections=3,insecure,uid=7,"
	                   "gid=8,"
	                   "file-mode=0440,dir-mode=550,allow_other,nonempty,log=/l,log-level=debug",
	                &o, &err),
	        0);
	assert_string_equal(o.cache_dir, "/c");
	assert_string_equal(o.cache_size, "80%");
	assert_string_equal(o.policy, "lru");
	assert_true(o.min_free == UINT64_C(2) << 30 && o.memory == 64 << 20 && o.timeout_ms == 500);
	assert_true(o.revalidate_ms == UINT64_MAX && o.max_bandwidth == 1 << 20 && o.max_connections == 3);
	assert_true(o.grant_ttl_ms == 5 * 60 * 1000);
	assert_true(o.insecure && o.allow_other && o.nonempty);
	assert_true(o.uid == 7 && o.gid == 8 && o.file_mode == 0440 && o.dir_mode == 0550);
	assert_string_equal(o.log, "/l");
	assert_int_equal(o.log_level, PS_LOG_DEBUG);
	ps_mount_options_fini(&o);
}

static void test_escapes_put_commas_into_values(void **state)
{
	struct ps_mount_options o;
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(parse_list("header=Accept: a\\,b\\\\c,ro,header=X: =y", &o, &err), 0);
	assert_int_equal(o.nheaders, 2);
	assert_string_equal(o.headers[0], "Accept: a,b\\c");
	assert_string_equal(o.headers[1], "X: =y");
	assert_null(o.headers[2]);
	ps_mount_options_fini(&o);
}

/* Each list with words that the error must have. */
static void test_bad_lists_are_refused(void **state)
{
	static const char *const bad[][2] = {
	        {"cache-size=12Q", "12Q"},
	        {"cache-size=0", "cache-size"},
	        {"cache-size=150%", "150%"},
	        {"cache-size=-5G", "-5G"},
	        {"cache-size=99999999999999999999G", "cache-size"},
	        {"cache-size", "cache-size"},
	        {"cache-dir=", "cache-dir"},
	        {"min-free=x", "min-free"},
	        {"memory=many", "many"},
	        {"policy=best", "plan, lru"},
	        {"timeout=soon", "soon"},
	        {"timeout=0", "timeout"},
	        {"revalidate=sometimes", "'sometimes' is neither 'never', 'open' nor a time such as 1h"},
	        {"grant-ttl=never", "'never' is neither 'open' nor a time such as 15m"},
	        {"grant-ttl=0", "0"},
	        {"max-connections=0", "max-connections"},
	        {"max-connections=-1", "max-connections"},
	        {"max-connections=65537", "65536"},
	        {"max-connections=3x", "3x"},
	        {"file-mode=0888", "octal"},
	        {"file-mode=1777", "octal"},
	        {"insecure=yes", "insecure"},
	        {"uid=no such user", "option uid: no user 'no such user'"},
	        {"uid=4294967295", "uid"},
	        {"gid=-1", "gid"},
	        {"gid=no such group", "option gid: no group 'no such group'"},
	        {"log=", "option log: the value is empty"},
	        {"log-level=loud", "loud"},
	        {"header=nonsense", "header"},
	        {"header=: x", "header"},
	        {"header=a b: x", "header"},
	        {"header=A: b\nC: d", "header"},
	        {"header=@/no/such/file", "/no/such/file"},
	        {"user=me", "NAME:PASSWORD"},
	        {"rw", "read-only"},
	        {"nosuchoption", "nosuchoption"},
	        {"nosuchoption=1", "nosuchoption"},
	        {"foreground", "foreground"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
		struct ps_mount_options o;
		struct ps_error err = {0};

		if (parse_list(bad[i][0], &o, &err) == 0 || !strstr(err.text, bad[i][1]))
			fail_msg("%s: '%s' lacks '%s'", bad[i][0], err.text, bad[i][1]);
		ps_mount_options_fini(&o);
	}
}

static void test_too_many_headers_are_refused(void **state)
{
	struct ps_mount_options o;
	struct ps_error err = {0};
	char list[65 * 12 + 1] = "";

	(void)state;
	for (size_t i = 0; i < 65; i++)
		snprintf(list + 12 * i, sizeof(list) - 12 * i, "header=A: b,");
	list[65 * 12 - 1] = '\0';
	assert_int_equal(parse_list(list, &o, &err), -EINVAL);
	assert_non_null(strstr(err.text, "option header: given more than 64 times"));
	ps_mount_options_fini(&o);
}

static void test_generic_mount_options_are_ignored(void **state)
{
	struct ps_mount_options o;
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(
	        parse_list("defaults,ro,,noauto,_netdev,nofail,user,x-systemd.automount,noatime,nosuid", &o,
	                &err),
	        0);
	assert_null(o.user);
	assert_true(o.mount_flags == (MS_NOEXEC | MS_NOATIME)); /* user implies noexec */
	ps_mount_options_fini(&o);
}

static void test_generic_mount_options_become_flags(void **state)
{
	static const struct {
		const char *list;
		unsigned long flags;
	} table[] = {{"noexec", MS_NOEXEC}, {"noexec,exec", 0}, {"user,exec", 0},
	        {"noatime,strictatime", MS_STRICTATIME}, {"strictatime,noatime", MS_NOATIME},
	        {"noatime,relatime", MS_RELATIME},
	        {"nodiratime,sync,dirsync,lazytime",
	                MS_NODIRATIME | MS_SYNCHRONOUS | MS_DIRSYNC | MS_LAZYTIME},
	        {"ro,nosuid,nodev,exec,async,atime", 0}};
	static const char *const refused[] = {
	        "noexec=1", "nosuch", "mand", "context", "context=", "context=x\"y"};
	struct ps_mount_options o;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(table); i++) {
		struct ps_error err = {0};

		assert_int_equal(parse_list(table[i].list, &o, &err), 0);
		assert_true(o.mount_flags == table[i].flags);
		ps_mount_options_fini(&o);
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(refused); i++) {
		struct ps_error err = {0};

		assert_int_equal(parse_list(refused[i], &o, &err), -EINVAL);
		ps_mount_options_fini(&o);
	}
}

static void test_labels_of_selinux(void **state)
{
	static const char list[] = "context=\"system_u:object_r:x_t:s0:c1,c2\",rootcontext=a:b:c,uid=3";
	struct ps_mount_options o;
	struct ps_error err = {0};
	int rc = parse_list(list, &o, &err);

	(void)state;
	if (access("/sys/fs/selinux/enforce", F_OK) < 0) {
		assert_int_equal(rc, -EINVAL);
		assert_string_equal(err.text, "option context: SELinux is not enabled here; leave it out");
	} else {
		assert_int_equal(rc, 0);
		assert_string_equal(
		        o.security, "context=\"system_u:object_r:x_t:s0:c1,c2\",rootcontext=\"a:b:c\"");
		assert_int_equal(o.uid, 3);
	}
	ps_mount_options_fini(&o);
}

static void test_rw_from_mount8_is_ignored(void **state)
{
	struct ps_mount_options o;
	struct ps_error err = {0};

	(void)state;
	ps_mount_options_init(&o);
	o.lenient = true;
	assert_int_equal(ps_opts_parse_list(&opts, &o, "rw,cache-dir=/c", &err), 0);
	ps_mount_options_fini(&o);
}

static void test_arguments_and_options_mix(void **state)
{
	char a[][32] = {
	        "mount", "--cache-dir=/c", "src", "-f", "--timeout", "2m", "-oro,uid=3", "mnt", "--", "-x"};
	char *argv[] = {a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], NULL};
	struct ps_mount_options o;
	struct ps_error err = {0};
	int nargs = 0;

	(void)state;
	assert_int_equal(parse_args(&o, &err, &nargs, 10, argv), 0);
	assert_int_equal(nargs, 3);
	assert_string_equal(argv[1], "src");
	assert_string_equal(argv[2], "mnt");
	assert_string_equal(argv[3], "-x");
	assert_true(o.foreground && o.timeout_ms == 120000 && o.uid == 3);
	ps_mount_options_fini(&o);
}

static void test_secrets_are_removed_from_argv(void **state)
{
	char a[][64] = {
	        "mount", "--user", "me:geheim", "--header=Authorization: geheim", "-o", "ro,user=me:geheim"};
	char *argv[] = {a[0], a[1], a[2], a[3], a[4], a[5], NULL};
	struct ps_mount_options o;
	struct ps_error err = {0};
	int nargs = 0;

	(void)state;
	assert_int_equal(parse_args(&o, &err, &nargs, 6, argv), 0);
	assert_string_equal(o.user, "me:geheim");
	assert_string_equal(o.headers[0], "Authorization: geheim");
	for (size_t i = 0; i < PS_ARRAY_LEN(a); i++)
		assert_null(strstr(a[i], "geheim"));
	ps_mount_options_fini(&o);
}

static void test_missing_values_are_reported(void **state)
{
	char a[][32] = {"mount", "--cache-dir"}, b[][32] = {"mount", "-o"};
	char *argv_a[] = {a[0], a[1], NULL}, *argv_b[] = {b[0], b[1], NULL};
	struct ps_mount_options o;
	struct ps_error err = {0};
	int nargs = 0;

	(void)state;
	assert_int_equal(parse_args(&o, &err, &nargs, 2, argv_a), -EINVAL);
	assert_non_null(strstr(err.text, "needs DIR"));
	ps_mount_options_fini(&o);
	assert_int_equal(parse_args(&o, &err, &nargs, 2, argv_b), -EINVAL);
	assert_non_null(strstr(err.text, "needs OPTION"));
	ps_mount_options_fini(&o);
}

static void test_globs_match_path_or_last_part(void **state)
{
	(void)state;
	assert_true(ps_match("*.tar", "train/a.tar"));
	assert_true(ps_match("train/*", "train/a.tar"));
	assert_true(ps_match("/train/a.tar", "train/a.tar"));
	assert_true(ps_match("a.*", "a.tar"));
	assert_true(ps_match("a.*", "train/a.tar"));
	assert_false(ps_match("train", "train/a.tar"));
	assert_false(ps_match("*.zip", "train/a.tar"));
}

static void test_progress_shows_share_rate_and_time_left(void **state)
{
	char buf[PS_PROGRESS_LEN];

	(void)state;
	ps_progress_text(UINT64_C(512) << 20, UINT64_C(1) << 30, UINT64_C(256) << 20, UINT64_C(2000000000),
	        "note", buf);
	assert_non_null(strstr(buf, " 50% 512.0 MiB of 1.0 GiB, 128.0 MiB/s, 0:00:04 left, note"));
	ps_progress_text(0, 0, 0, 0, "", buf);
	assert_non_null(strstr(buf, "100% 0 B of 0 B"));
	ps_progress_text(1, UINT64_MAX / 2, 1, UINT64_C(1000000000), "", buf);
	assert_null(strstr(buf, "left"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_option_lists_set_options_of_every_kind),
	        cmocka_unit_test(test_escapes_put_commas_into_values),
	        cmocka_unit_test(test_bad_lists_are_refused),
	        cmocka_unit_test(test_too_many_headers_are_refused),
	        cmocka_unit_test(test_generic_mount_options_are_ignored),
	        cmocka_unit_test(test_generic_mount_options_become_flags),
	        cmocka_unit_test(test_labels_of_selinux),
	        cmocka_unit_test(test_rw_from_mount8_is_ignored),
	        cmocka_unit_test(test_arguments_and_options_mix),
	        cmocka_unit_test(test_secrets_are_removed_from_argv),
	        cmocka_unit_test(test_missing_values_are_reported),
	        cmocka_unit_test(test_globs_match_path_or_last_part),
	        cmocka_unit_test(test_progress_shows_share_rate_and_time_left),
	};

	return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
