/* The system calls of Linux, and which of them a daemon in its sandbox may make (docs/design/keeper.md).
 *
 * Every call up to Linux 6.18 is in the table. Calls that are not in it, such as those of later kernels, are
 * answered ENOSYS: a C library that knows them then uses older ones, as it does on an older kernel. So the
 * table lists what is allowed, and still does not break with the next C library.
 *
 * Ownership: constant data. Threads: any. Errors: -errno. */
#ifndef PS_DAEMON_SANDBOX_CALLS_H
#define PS_DAEMON_SANDBOX_CALLS_H

#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ps_call_class {
	PS_CALL_NEEDED,       /* allowed: the daemon, its libraries or its commands of credentials make it */
	PS_CALL_HARMLESS,     /* allowed: it concerns the process itself, or only tells something */
	PS_CALL_LIMITED,      /* allowed with some arguments only */
	PS_CALL_ROOT_LIMITED, /* the same, but only for root's daemon; others may make it */
	PS_CALL_ROOT_DENIED,  /* EPERM for root's daemon: to other users the kernel refuses it anyway */
	PS_CALL_DENIED,       /* EPERM */
	PS_CALL_ABSENT,       /* ENOSYS: no kernel has it any more, or a caller then uses another call */
};

struct ps_call_group {
	enum ps_call_class class;
	const char *why;
	const char *names; /* separated by blanks */
};

extern const struct ps_call_group ps_call_groups[];
extern const size_t ps_call_ngroups;

/* The last call of the newest kernel whose calls are all in the table. */
#define PS_CALL_LAST 469

/* The number of the call on this machine; -1: it does not have it. */
int ps_call_number(const char *name);

/* Calls fn for each name of the group. */
void ps_call_each(const struct ps_call_group *group, void (*fn)(void *arg, const char *name), void *arg);

/* What the process is. It decides about the calls with limits. */
struct ps_call_limits {
	bool root;
	bool scoped;      /* landlock refuses signals to other processes (Linux 6.12) */
	bool no_truncate; /* landlock does not refuse to truncate a file (before Linux 6.2) */
};

/* Makes the filter of a machine's system calls (SCMP_ARCH_X86_64 and so on; 0: this machine). For another machine it
 * lacks the calls that libseccomp does not know. The caller releases it; NULL: out of memory, or a rule failed. */
scmp_filter_ctx ps_call_filter_new(const struct ps_call_limits *limits, uint32_t machine);

/* Sets this machine's filter for this process and its children. Sets NoNewPrivs. */
int ps_call_filter(const struct ps_call_limits *limits);

#endif
