/* Which pending signals end a process. Signals of a stopped process stay pending. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "fuse/requester.h"

static void handle(int signo)
{
	(void)signo;
}

enum how { DEFAULT, HANDLED, IGNORED, BLOCKED, TRACED };

/* A stopped process that treats `signo` like this. */
static pid_t stopped(int signo, enum how how)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		sigset_t set;

		sigemptyset(&set);
		sigaddset(&set, signo);
		signal(signo, how == HANDLED ? handle : how == IGNORED ? SIG_IGN : SIG_DFL);
		signal(SIGUSR1, handle);
		sigprocmask(how == BLOCKED ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
		if (how == TRACED)
			ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	return pid;
}

static void test_signals(void **state)
{
	const struct {
		int signo;
		enum how how;
		enum ps_requester expected;
	} rows[] = {
	        {SIGTERM, DEFAULT, PS_REQUESTER_ENDS},
	        {SIGQUIT, DEFAULT, PS_REQUESTER_ENDS}, /* with a core file */
	        {SIGRTMIN, DEFAULT, PS_REQUESTER_ENDS},
	        {SIGUSR2, DEFAULT, PS_REQUESTER_ENDS},
	        {SIGTERM, HANDLED, PS_REQUESTER_LIVES},
	        {SIGTERM, IGNORED, PS_REQUESTER_LIVES},
	        {SIGTERM, BLOCKED, PS_REQUESTER_LIVES},
	        {SIGTERM, TRACED, PS_REQUESTER_LIVES}, /* the debugger decides */
	        {SIGCHLD, DEFAULT, PS_REQUESTER_LIVES},
	        {SIGCHLD, HANDLED, PS_REQUESTER_LIVES},
	        {SIGWINCH, DEFAULT, PS_REQUESTER_LIVES},
	        {SIGTSTP, DEFAULT, PS_REQUESTER_LIVES},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		pid_t pid = stopped(rows[i].signo, rows[i].how);

		assert_int_equal(ps_requester_of(pid), PS_REQUESTER_LIVES);
		kill(pid, SIGUSR1);
		assert_int_equal(ps_requester_of(pid), PS_REQUESTER_LIVES);
		kill(pid, rows[i].signo);
		if (ps_requester_of(pid) != rows[i].expected)
			fail_msg("row %zu: signal %d", i, rows[i].signo);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
}

static void test_unknown(void **state)
{
	pid_t pid = stopped(SIGTERM, DEFAULT);

	(void)state;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(ps_requester_of(pid), PS_REQUESTER_UNKNOWN);
	assert_int_equal(ps_requester_of(0), PS_REQUESTER_UNKNOWN); /* in another PID namespace */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_signals),
	        cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests_name("requester", tests, NULL, NULL);
}
