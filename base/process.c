#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct {
	int signo;
	void (*handler)(int);
} actions[] = {{SIGCHLD, SIG_DFL}, {SIGPIPE, SIG_IGN}, {SIGXFSZ, SIG_IGN}};
#define NACTIONS (sizeof(actions) / sizeof(actions[0]))

static struct sigaction inherited[NACTIONS];
static sigset_t inherited_mask;
static bool begun;

void ps_process_begin(void)
{
	sigset_t none;
	int fd;

	/* Not close-on-exec: the programs that we start need them as well. */
	while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
	}
	if (fd < 0 && (fcntl(0, F_GETFD) < 0 || fcntl(1, F_GETFD) < 0 || fcntl(2, F_GETFD) < 0))
		_exit(EXIT_FAILURE);
	if (fd >= 0)
		close(fd);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, &inherited_mask);
	for (size_t i = 0; i < NACTIONS; i++) {
		struct sigaction action = {.sa_handler = actions[i].handler};

		sigaction(actions[i].signo, &action, &inherited[i]);
	}
	begun = true;
}

void ps_process_give_back(void)
{
	if (!begun)
		return;
	for (size_t i = 0; i < NACTIONS; i++)
		sigaction(actions[i].signo, &inherited[i], NULL);
	sigprocmask(SIG_SETMASK, &inherited_mask, NULL);
}

static const char *command_name;

void ps_command_begin(const char *command)
{
	command_name = command;
}

const char *ps_command_name(void)
{
	return command_name ? command_name : program_invocation_short_name;
}

void *ps_need(void *memory)
{
	if (memory)
		return memory;
	fprintf(stderr, "%s: out of memory\n", ps_command_name());
	fflush(stdout);
	_exit(EXIT_FAILURE); /* other threads may run, whose data exit() would free */
}

size_t ps_process_small_as(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
	        limit.rlim_cur >= PS_PROCESS_AS_NBYTES)
		return 0;
	return (size_t)limit.rlim_cur;
}
