/* Requests and messages of the control socket, suggested names, and the control groups that daemons move
 * to. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "daemon/daemon_private.h"
#include "base/suggest.h"

static void a_message_arrives_as_it_was_sent_with_its_descriptor(void **state)
{
	struct ps_given message = {0}, got = {0};
	int ends[2], fd = -1, other[2];
	char byte;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(pipe(other), 0);
	assert_int_equal(ps_given_add(&message, "do", "it", NULL), 0);
	assert_int_equal(ps_given_add(&message, "path", "\xff/a b\n=", NULL), 0);
	assert_int_equal(ps_given_add(&message, "flag", NULL, NULL), 0);
	assert_int_equal(ps_control_send(ends[0], &message, other[0]), 0);
	assert_int_equal(ps_control_receive(ends[1], 1000, &got, &fd, NULL), 0);
	assert_int_equal(got.n, 3);
	assert_string_equal(ps_control_get(&got, "path"), "\xff/a b\n=");
	assert_string_equal(ps_control_get(&got, "flag"), "");
	assert_null(ps_control_get(&got, "none"));
	assert_true(fd >= 0);
	close(other[0]);
	assert_int_equal(write(other[1], "y", 1), 1);
	assert_int_equal(read(fd, &byte, 1), 1);
	assert_int_equal(byte, 'y');
	ps_given_fini(&message);
	ps_given_fini(&got);
	/* A descriptor that was not requested is closed; without a message, receiving times out. */
	assert_int_equal(ps_control_send(ends[0], &message, fd), 0);
	assert_int_equal(ps_control_receive(ends[1], 1000, &got, NULL, NULL), 0);
	assert_int_equal(ps_control_receive(ends[1], 20, &got, NULL, NULL), -ETIMEDOUT);
	close(ends[0]);
	assert_int_equal(ps_control_receive(ends[1], 1000, &got, NULL, NULL), -EPIPE);
	assert_int_equal(ps_control_send(ends[1], &message, -1), -EPIPE);
	close(ends[1]);
	close(other[1]);
	close(fd);
}

static void messages_of_another_form_and_version_give_different_errors(void **state)
{
	static const char wrong[16] = "penstick";
	struct ps_given got = {0};
	uint32_t protocol = 0;
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(write(ends[0], wrong, sizeof(wrong)), sizeof(wrong));
	assert_int_equal(ps_control_receive(ends[1], 1000, &got, NULL, NULL), -EPROTO);
	const uint32_t later[4] = {0x736e6570, 0x6b636f74, PS_CONTROL_PROTOCOL + 1, 0};
	assert_int_equal(write(ends[0], later, sizeof(later)), sizeof(later));
	assert_int_equal(ps_control_receive(ends[1], 1000, &got, NULL, &protocol), -EPROTONOSUPPORT);
	assert_int_equal(protocol, PS_CONTROL_PROTOCOL + 1);
	const uint32_t huge[4] = {0x736e6570, 0x6b636f74, PS_CONTROL_PROTOCOL, PS_CONTROL_MAX_NBYTES + 1};
	assert_int_equal(write(ends[0], huge, sizeof(huge)), sizeof(huge));
	assert_int_equal(ps_control_receive(ends[1], 1000, &got, NULL, NULL), -EPROTO);
	close(ends[0]);
	close(ends[1]);
}

static void incomplete_messages_are_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
		int rc;
	} table[] = {
	        {"", 0, 0}, {"a\0b\0", 4, 0}, {"a\0b", 3, -EPROTO}, /* no NUL at the end */
	        {"a\0", 2, -EPROTO},                                /* a name without a value */
	        {"a\0b\0c\0", 6, -EPROTO},                          /* the second name has no value */
	        {"\0\0", 2, 0},                                     /* both empty */
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(table); i++) {
		struct ps_given got = {0};

		assert_int_equal(ps_control_decode(table[i].bytes, table[i].n, &got), table[i].rc);
		ps_given_fini(&got);
	}
}

static void options_arrive_as_they_were_given(void **state)
{
	struct ps_mount_request r = {.mountpoint = strdup("/mnt")}, got = {0};
	struct ps_mount_options o, there;
	struct ps_given message = {0};
	struct ps_error err = {0};

	(void)state;
	ps_mount_options_init(&o);
	o.uid = 12;
	assert_int_equal(ps_given_add(&o.given, "revalidate", "open", NULL), 0);
	assert_int_equal(ps_given_add(&o.given, "allow_other", NULL, NULL), 0);
	/* A user that may not exist for the daemon. */
	assert_int_equal(ps_given_add(&o.given, "uid", "nobody-here", NULL), 0);
	assert_int_equal(ps_given_add(&o.given, "cache-dir", "/ours", NULL), 0);
	assert_int_equal(ps_request_take_options(&r, &o, &err), 0);
	assert_int_equal(ps_request_add_source(&r, "a", "https://h/x/", &err), 0);
	assert_int_equal(ps_request_add_source(&r, "b", "https://h/y/", &err), 0);
	assert_int_equal(ps_given_add(&r.sources[1].given, "header", "X: y=z", NULL), 0);
	assert_int_equal(ps_request_encode(&r, &message), 0);
	assert_int_equal(ps_request_decode(&message, &got, &err), 0);
	assert_int_equal(got.nsources, 2);
	assert_int_equal(ps_request_options(&got, &got.sources[0], &there, &err), 0);
	assert_int_equal(there.uid, 12);
	assert_int_equal(there.revalidate_ms, 1);
	assert_true(there.allow_other);
	assert_int_equal(there.nheaders, 0);
	assert_null(there.cache_dir);
	ps_mount_options_fini(&there);
	assert_int_equal(ps_request_options(&got, &got.sources[1], &there, &err), 0);
	assert_int_equal(there.nheaders, 1);
	assert_string_equal(there.headers[0], "X: y=z");
	ps_mount_options_fini(&there);
	ps_mount_options_fini(&o);
	ps_given_fini(&message);
	ps_request_fini(&r);
	ps_request_fini(&got);
}

static void a_name_before_a_source_is_distinguished_from_a_url(void **state)
{
	static const struct {
		const char *arg;
		size_t n; /* 0: none */
	} table[] = {
	        {"train=https://h/", 5},
	        {"a.b-c_1=/dir/", 7},
	        {"https://h/?a=b", 0},
	        {"/dir/a=b", 0},
	        {"./a=b", 0},
	        {"a=", 0},
	        {"=x", 0},
	        {"photos", 0},
	        {"@a=b", 0},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(table); i++) {
		size_t n = 0;

		assert_int_equal(ps_source_has_name(table[i].arg, &n), table[i].n > 0);
		if (table[i].n)
			assert_int_equal(n, table[i].n);
	}
}

static void the_word_that_was_probably_meant_is_suggested(void **state)
{
	static const char *const words[] = {
	        "cache-dir", "cache-size", "uid", "gid", "header", "policy", "netrc-file", "warm"};
	static const struct {
		const char *word, *meant;
	} table[] = {
	        {"cache-siez", "cache-size"},
	        {"chache-dir", "cache-dir"},
	        {"Policy", "policy"},
	        {"udi", "uid"},
	        {"CACHE_SIZE", "cache-size"},
	        {"wram", "warm"},
	        {"form", NULL},  /* two letters of four */
	        {"cache", NULL}, /* two words begin with it */
	        {"netrc", "netrc-file"},
	        {"net", NULL},
	        {"header-file", "header"},
	        {"headers", "header"},
	        {"headerfile", NULL},
	        {"completely-else", NULL},
	        {"x", NULL},
	        {"udx", NULL},
	        {"", NULL},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(table); i++) {
		struct ps_guess guess = {.word = table[i].word, .len = strlen(table[i].word)};

		for (size_t j = 0; j < PS_ARRAY_LEN(words); j++)
			ps_guess_offer(&guess, words[j]);
		if (table[i].meant) {
			assert_non_null(guess.best);
			assert_string_equal(guess.best, table[i].meant);
		} else {
			assert_null(guess.best);
		}
	}
}

static void a_daemon_leaves_groups_that_end(void **state)
{
	static const struct {
		const char *own;
		uid_t uid;
		const char *target;
	} table[] = {
	        {"/user.slice/user-0.slice/session-3.scope", 0, "/penstock"},
	        {"/system.slice/data-imagenet.mount", 0, "/penstock"},
	        {"/penstock", 0, ""},
	        {"/", 0, ""}, /* a container's, or no systemd */
	        {"", 0, ""},
	        {"/user.slice/user-7.slice/session-3.scope", 7, ""}, /* a user may not leave this group */
	        {"/user.slice/user-7.slice/user@7.service/app.slice/x.scope", 7,
	                "/user.slice/user-7.slice/user@7.service/penstock"},
	        {"/user.slice/user-7.slice/user@7.service/penstock", 7, ""},
	        {"/user.slice/user-7.slice/user@7.service/app.slice/x.scope", 8, ""},
	};
	char target[256];

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(table); i++) {
		ps_cgroup_target(table[i].own, table[i].uid, target, sizeof(target));
		assert_string_equal(target, table[i].target);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_message_arrives_as_it_was_sent_with_its_descriptor),
	        cmocka_unit_test(messages_of_another_form_and_version_give_different_errors),
	        cmocka_unit_test(incomplete_messages_are_refused),
	        cmocka_unit_test(options_arrive_as_they_were_given),
	        cmocka_unit_test(a_name_before_a_source_is_distinguished_from_a_url),
	        cmocka_unit_test(the_word_that_was_probably_meant_is_suggested),
	        cmocka_unit_test(a_daemon_leaves_groups_that_end),
	};

	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
