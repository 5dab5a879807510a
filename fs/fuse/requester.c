#include "fuse/requester.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define BIT(signo) (UINT64_C(1) << ((signo)-1))

/* The default action of these signals does not end the process. */
static const uint64_t harmless = BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGSTOP) |
                                 BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU);

static bool proc_is_ours;

static void look_at_proc(void)
{
	char self[24];
	ssize_t n = readlink("/proc/self", self, sizeof(self) - 1);

	self[n < 0 ? 0 : n] = '\0';
	proc_is_ours = strtol(self, NULL, 10) == getpid();
}

/* Of /proc/TID/status. */
struct status {
	uint64_t tracer, pending, shared, blocked, ignored, caught;
};

/* False: a line is missing. The lines are in this order. */
static bool read_status(FILE *file, struct status *ret)
{
	const struct {
		const char *name;
		int base;
		uint64_t *value;
	} lines[] = {
	        {"TracerPid:", 10, &ret->tracer},
	        {"SigPnd:", 16, &ret->pending},
	        {"ShdPnd:", 16, &ret->shared},
	        {"SigBlk:", 16, &ret->blocked},
	        {"SigIgn:", 16, &ret->ignored},
	        {"SigCgt:", 16, &ret->caught},
	};
	ps_autofree char *line = NULL;
	size_t cap = 0, found = 0;

	while (found < PS_ARRAY_LEN(lines) && getline(&line, &cap, file) > 0) {
		size_t len = strlen(lines[found].name);

		if (strncmp(line, lines[found].name, len) != 0)
			continue;
		*lines[found].value = strtoull(line + len, NULL, lines[found].base);
		found++;
	}
	return found == PS_ARRAY_LEN(lines);
}

enum ps_requester ps_requester_of(pid_t tid)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct status status;
	char path[40];

	pthread_once(&once, look_at_proc);
	if (tid <= 0 || !proc_is_ours)
		return PS_REQUESTER_UNKNOWN;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	FILE *file = fopen(path, "re");
	if (!file)
		return PS_REQUESTER_UNKNOWN;
	bool known = read_status(file, &status);
	fclose(file);
	if (!known)
		return PS_REQUESTER_UNKNOWN;
	uint64_t pending = status.pending | status.shared;
	uint64_t ends = ~(status.blocked | status.ignored | status.caught | harmless);

	/* A debugger decides what becomes of a signal, except SIGKILL. */
	if (status.tracer)
		ends = 0;
	return pending & (ends | BIT(SIGKILL)) ? PS_REQUESTER_ENDS : PS_REQUESTER_LIVES;
}
