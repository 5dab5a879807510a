/* Finding mounts in mountinfo, calls that may hang, and metrics. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/daemon.h"
#include "fuse/fuse.h"

static const char mountinfo[] = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
                                "\n"
                                "garbage\n"
                                "40 22 0:50 / /mnt/a\\040b ro,nosuid - fuse.penstock https://host/x\\054y/ "
                                "ro,user_id=1000,group_id=100\n"
                                "41 22 0:51 / /mnt/c ro shared:2 master:1 - fuse.sshfs me@host: rw\n"
                                "42 22 0:52 / /mnt/d ro - fuse.penstock first ro\n"
                                "43 42 0:53 / /mnt/d ro - fuse.penstock second ro\n";

static void write_mountinfo(char path[static 32])
{
	strcpy(path, "/tmp/penstock-test-XXXXXX");
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, mountinfo, sizeof(mountinfo) - 1), sizeof(mountinfo) - 1);
	close(fd);
}

static void test_only_penstock_mounts_are_listed_unescaped(void **state)
{
	struct ps_mounts mounts;
	char path[32];

	(void)state;
	write_mountinfo(path);
	assert_int_equal(ps_mounts_read(path, false, &mounts), 0);
	assert_int_equal(mounts.n, 3);
	assert_string_equal(mounts.v[0].mountpoint, "/mnt/a b");
	assert_string_equal(mounts.v[0].source, "https://host/x,y/");
	assert_int_equal(mounts.v[0].dev_minor, 50);
	assert_int_equal(mounts.v[0].mnt_id, 40);
	assert_int_equal(mounts.v[0].uid, 1000);
	assert_int_equal(mounts.v[0].gid, 100);
	assert_int_equal(mounts.v[1].uid, (uid_t)-1);
	ps_mounts_fini(&mounts);
	remove(path);
}

static void test_other_users_keep_their_mounts(void **state)
{
	struct ps_mounts mounts;
	char path[32];

	(void)state;
	write_mountinfo(path);
	assert_int_equal(ps_mounts_read(path, false, &mounts), 0);
	mounts.v[1].uid = 0;
	mounts.v[2].uid = 0;
	mounts.v[2].allow_other = true;
	if (geteuid() == 0) {
		assert_int_equal(ps_mounts_keep_own(&mounts), 0);
		assert_int_equal(mounts.n, 3);
		assert_int_equal(seteuid(1001), 0);
	}
	assert_int_equal(ps_mounts_keep_own(&mounts), 2);
	assert_int_equal(mounts.n, 1);
	assert_string_equal(mounts.v[0].source, "second");
	ps_mounts_fini(&mounts);
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
	remove(path);
}

static void test_the_topmost_mount_is_found(void **state)
{
	struct ps_mounts mounts;
	char path[32];

	(void)state;
	write_mountinfo(path);
	assert_int_equal(ps_mounts_read(path, true, &mounts), 0);
	assert_int_equal(mounts.n, 5);
	assert_string_equal(ps_mounts_find(&mounts, "/mnt/d")->source, "second");
	assert_string_equal(ps_mounts_find(&mounts, "/mnt/c")->fstype, "fuse.sshfs");
	assert_null(ps_mounts_find(&mounts, "/mnt"));
	ps_mounts_fini(&mounts);
	remove(path);
}

static void test_octal_escapes(void **state)
{
	static const char *const table[][2] = {{"plain", "plain"}, {"a\\040b", "a b"}, {"\\134", "\\"},
	        {"\\04", "\\04"}, {"\\999", "\\999"}, {"\\", "\\"}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(table); i++) {
		char buf[32];

		strcpy(buf, table[i][0]);
		ps_mounts_unescape(buf);
		assert_string_equal(buf, table[i][1]);
	}
}

static void test_paths_are_resolved_except_for_the_last_part(void **state)
{
	static const char *const table[][2] = {{"/usr/../tmp/x", "/tmp/x"}, {"/tmp/x///", "/tmp/x"},
	        {"/", "/"}, {"/x", "/x"}, {"/tmp/..", "/"}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(table); i++) {
		struct ps_error err = {0};
		ps_autofree char *path = NULL;

		assert_int_equal(ps_mounts_resolve(table[i][0], &path, &err), 0);
		assert_string_equal(path, table[i][1]);
	}
}

static void test_folders_that_are_not_mounts_are_refused(void **state)
{
	const struct ps_mount_info *info;
	struct ps_mounts mounts;
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(ps_mounts_lookup("/usr", &mounts, &info, &err), -EINVAL);
	assert_non_null(strstr(err.text, "not a penstock mount"));
	assert_int_equal(ps_mounts_lookup("/proc", &mounts, &info, &err), -EINVAL);
	assert_non_null(strstr(err.text, "type proc"));
}

static int hang(void *arg, int out)
{
	(void)arg, (void)out;
	pause();
	return 0;
}

static int speak(void *arg, int out)
{
	return write(out, arg, strlen(arg)) == (ssize_t)strlen(arg) ? 0 : -EIO;
}

static int speak_then_crash(void *arg, int out)
{
	(void)arg;
	if (write(out, "words", 5) != 5)
		return -EIO;
	abort();
}

static void test_a_hanging_call_is_given_up(void **state)
{
	uint64_t start = ps_clock_mono_ns();

	(void)state;
	assert_int_equal(ps_timed_run(hang, NULL, 200, NULL), -ETIMEDOUT);
	assert_true(ps_clock_mono_ns() - start < 2 * PS_NS_PER_S);
}

static void test_several_hanging_calls_take_as_long_as_one(void **state)
{
	char words[] = "words";
	struct ps_timed_call calls[] = {
	        {.fn = hang}, {.fn = speak, .arg = words}, {.fn = hang}, {.fn = hang}};
	uint64_t start = ps_clock_mono_ns();

	(void)state;
	ps_timed_run_all(calls, 4, 1000);
	assert_true(ps_clock_mono_ns() - start < 2 * PS_NS_PER_S);
	for (size_t i = 0; i < 4; i++) {
		ps_autofree char *text = ps_timed_take(&calls[i]);

		assert_int_equal(calls[i].rc, i == 1 ? 0 : -ETIMEDOUT);
		assert_string_equal(text, i == 1 ? "words" : "");
	}
}

static void test_a_crash_is_an_error(void **state)
{
	ps_autofree char *text = NULL;

	(void)state;
	assert_int_equal(ps_timed_run(speak_then_crash, NULL, 5000, &text), -EIO);
}

static void test_timed_calls_return_errors_and_results(void **state)
{
	char name[] = "sh", flag[] = "-c", script[] = "echo words >&2; exit 3",
	     none[] = "no-such-program-here";
	char *argv[] = {name, flag, script, NULL}, *missing[] = {none, NULL};
	ps_autofree char *text = NULL, *words = NULL, *nothing = NULL, *absent = NULL;
	mode_t mode = 0;

	(void)state;
	assert_int_equal(ps_timed_realpath("/usr/../usr", 5000, &text), 0);
	assert_string_equal(text, "/usr");
	assert_int_equal(ps_timed_realpath("/no/such", 5000, &absent), -ENOENT);
	assert_null(absent);
	assert_int_equal(ps_timed_stat("/", 5000, &mode), 0);
	assert_true(S_ISDIR(mode));
	assert_int_equal(ps_timed_exec(argv, 5000, &words), -EIO);
	assert_string_equal(words, "words\n");
	assert_int_equal(ps_timed_exec(missing, 5000, &nothing), -ENOENT);
}

static json_t *document(const char *dir, json_t *mounts)
{
	return json_pack("{s:s, s:i, s:o, s:{s:I, s:s, s:s}, s:{s:f, s:n, s:{s:{s:i, s:i}, s:f, s:i}}}",
	        "version", "1", "pid", 1, "mounts", mounts, "cache", "used_bytes", (json_int_t)5, "dir", dir,
	        "disk_error", "full", "reads", "stalled_seconds", 0.5, "hit_ratio", "latency_seconds",
	        "buckets", "0.1", 2, "+Inf", 3, "sum", 1.5, "count", 3);
}

static json_t *mount_at(const char *mountpoint, const char *device)
{
	return json_pack("{s:s, s:s, s:s, s:i, s:b}", "mountpoint", mountpoint, "source", "s", "device",
	        device, "files", 3, "offline", 1);
}

#define EVERYTHING (PS_METRICS_CACHE | PS_METRICS_MOUNTS)

static void test_metrics_name_types_and_escape_labels(void **state)
{
	json_t *docs = json_pack("[o]", document("/c", json_pack("[o]", mount_at("/m\"\\\n", "0:1"))));
	ps_autofree char *text = ps_metrics_text(docs, EVERYTHING, NULL);

	(void)state;
	assert_non_null(text);
	assert_non_null(strstr(text, "\n# TYPE penstock_cache_used_bytes gauge\n"
	                             "penstock_cache_used_bytes{cache_dir=\"/c\"} 5\n"));
	assert_non_null(strstr(text, "\n# TYPE penstock_reads_stalled_seconds_total counter\n"
	                             "penstock_reads_stalled_seconds_total{cache_dir=\"/c\"} 0.500000\n"));
	assert_non_null(strstr(text, "penstock_mount_files{cache_dir=\"/c\",mount=\"/m\\\"\\\\\\n\"} 3\n"));
	assert_non_null(strstr(text, "penstock_cache_disk_error{cache_dir=\"/c\"} 1\n"));
	assert_non_null(strstr(text, "penstock_reads_latency_seconds_bucket{cache_dir=\"/c\",le=\"0.1\"} 2\n"
	                             "penstock_reads_latency_seconds_bucket{cache_dir=\"/c\",le=\"+Inf\"} 3\n"
	                             "penstock_reads_latency_seconds_sum{cache_dir=\"/c\"} 1.500000\n"
	                             "penstock_reads_latency_seconds_count{cache_dir=\"/c\"} 3\n"));
	assert_null(strstr(text, "hit_ratio"));
	assert_null(strstr(text, "penstock_up"));
	json_decref(docs);
}

static size_t count(const char *text, const char *part)
{
	size_t n = 0;

	while ((text = strstr(text, part))) {
		text++;
		n++;
	}
	return n;
}

static void test_metrics_of_several_mounts_and_caches_are_grouped_by_name(void **state)
{
	json_t *docs = json_pack("[o, o]",
	        document("/c", json_pack("[o, o]", mount_at("/a", "0:1"), mount_at("/b", "0:2"))),
	        document("/d", json_pack("[o]", mount_at("/e", "0:3"))));
	json_t *up = json_pack("{s:b, s:b}", "/a", 1, "/gone", 0);
	ps_autofree char *text = ps_metrics_text(docs, EVERYTHING, up);
	ps_autofree char *own = ps_metrics_text(docs, PS_METRICS_MOUNT, NULL);
	ps_autofree char *daemons = ps_metrics_text(docs, PS_METRICS_CACHE, NULL);

	(void)state;
	assert_int_equal(count(text, "# TYPE penstock_mount_files gauge\n"), 1);
	assert_non_null(strstr(text, "penstock_mount_files{cache_dir=\"/c\",mount=\"/a\"} 3\n"
	                             "penstock_mount_files{cache_dir=\"/c\",mount=\"/b\"} 3\n"
	                             "penstock_mount_files{cache_dir=\"/d\",mount=\"/e\"} 3\n"));
	assert_non_null(strstr(text, "penstock_up{mount=\"/a\"} 1\npenstock_up{mount=\"/gone\"} 0\n"));
	assert_int_equal(count(own, "penstock_mount_files{"), 2);
	assert_int_equal(count(own, "penstock_cache"), 0);
	assert_int_equal(count(daemons, "penstock_cache_used_bytes{"), 2);
	assert_int_equal(count(daemons, "penstock_mount"), 0);
	json_decref(docs);
	json_decref(up);
}

static void test_metrics_distinguish_mounts_and_caches_of_one_path(void **state)
{
	json_t *docs = json_pack("[o, o]",
	        document("/c", json_pack("[o, o]", mount_at("/a", "0:1"), mount_at("/a", "0:2"))),
	        document("/c", json_pack("[o]", mount_at("/b", "0:3"))));
	ps_autofree char *text = ps_metrics_text(docs, EVERYTHING, NULL);

	(void)state;
	assert_non_null(strstr(text, "penstock_mount_files{cache_dir=\"/c\",mount=\"/a\",device=\"0:1\"} 3\n"
	                             "penstock_mount_files{cache_dir=\"/c\",mount=\"/a\",device=\"0:2\"} 3\n"
	                             "penstock_mount_files{cache_dir=\"/c\",mount=\"/b\"} 3\n"));
	assert_non_null(strstr(text, "penstock_cache_used_bytes{cache_dir=\"/c\",device=\"0:1\"} 5\n"
	                             "penstock_cache_used_bytes{cache_dir=\"/c\",device=\"0:3\"} 5\n"));
	json_decref(docs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_only_penstock_mounts_are_listed_unescaped),
	        cmocka_unit_test(test_other_users_keep_their_mounts),
	        cmocka_unit_test(test_the_topmost_mount_is_found),
	        cmocka_unit_test(test_octal_escapes),
	        cmocka_unit_test(test_paths_are_resolved_except_for_the_last_part),
	        cmocka_unit_test(test_folders_that_are_not_mounts_are_refused),
	        cmocka_unit_test(test_a_hanging_call_is_given_up),
	        cmocka_unit_test(test_several_hanging_calls_take_as_long_as_one),
	        cmocka_unit_test(test_a_crash_is_an_error),
	        cmocka_unit_test(test_timed_calls_return_errors_and_results),
	        cmocka_unit_test(test_metrics_name_types_and_escape_labels),
	        cmocka_unit_test(test_metrics_of_several_mounts_and_caches_are_grouped_by_name),
	        cmocka_unit_test(test_metrics_distinguish_mounts_and_caches_of_one_path),
	};

	return cmocka_run_group_tests_name("mounts", tests, NULL, NULL);
}
