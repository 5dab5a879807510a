/* What a program inherits from the process that starts it: descriptors, signals and limits. All our code
 * relies on the state that ps_process_begin() makes, so main() of each program calls it first. */
#ifndef PS_BASE_PROCESS_H
#define PS_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed: otherwise the next file, pipe or
 * socket would be taken for stdin, stdout or stderr. Unblocks all signals, gives SIGCHLD its default action
 * (children could not be waited for), and ignores SIGPIPE and SIGXFSZ: the write fails with EPIPE or EFBIG
 * instead. Exits if /dev/null cannot be opened. */
void ps_process_begin(void);

/* Restores the inherited signal mask and actions. Call right before exec of a program that is not ours. */
void ps_process_give_back(void);

/* The least address space that our programs are made for. */
#define PS_PROCESS_AS_NBYTES ((size_t)1 << 30)
/* The limit of the address space (RLIMIT_AS) if it is below PS_PROCESS_AS_NBYTES, else 0. */
size_t ps_process_small_as(void);

/* Sets the name for messages: "penstock-loader bench"; the program's name before. Borrowed. */
void ps_command_begin(const char *command);
const char *ps_command_name(void);

/* For commands: returns `memory`, the result of an allocation. If it is NULL, prints "NAME: out of memory" and ends
 * the program with exit code 1. Not for daemons and libraries. */
void *ps_need(void *memory);

#endif
