/* The program's log: one line a message, to stderr, the journal or syslog, or a file.
 *
 * A message has the form "call: object: reason". It is logged once, where the cause is known, and never
 * holds a secret. Threads: any; each line is written whole. Blocks: on the target's write only. Before
 * ps_log_open() messages of level warning and above go to stderr; if the log is then opened elsewhere, it
 * repeats the first eight. */
#ifndef PS_BASE_LOG_H
#define PS_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

enum ps_log_level { PS_LOG_ERROR, PS_LOG_WARNING, PS_LOG_INFO, PS_LOG_DEBUG };

/* target: "stderr", "syslog", or an absolute path (opened for append, 0600). Called once, before threads
 * are started. ident is the name shown to syslog; the pointer is kept.
 *
 * If systemd's journal runs, "syslog" writes to the journal, and so does "stderr" if systemd has connected
 * it with the journal; entries then have PENSTOCK_CALL and PENSTOCK_OBJECT. If neither journal nor syslog
 * listens, as in a container, lines go to stderr if process 1 has the same stderr; otherwise they are
 * dropped. */
int ps_log_open(const char *target, enum ps_log_level level, const char *ident, struct ps_error *err);

/* A text for the user if a warning or an error was dropped since ps_log_open(), because nothing listens; else NULL. */
const char *ps_log_instead(void);

/* While the log is not open: message number i of the first eight; NULL: there are no more. */
const char *ps_log_early(unsigned i);

/* Reopens the log file after it was renamed; does nothing if the log is not a file. Any thread. -errno: the
 * old file stays in use. */
int ps_log_reopen(void);
/* The two halves of ps_log_reopen(), for a process that may not open the file itself. */
/* Returns a new descriptor of the log file; -ENOENT: the log is not a file. */
int ps_log_open_again(void);
/* Makes `fd` the log file from now on. Takes it over, also on failure. */
int ps_log_take(int fd);

/* For a process that must not keep a datagram socket, since that reaches any service's. If the log goes to syslog or
 * the journal, begin() returns the reading end of a pipe; -1: it does not, or -errno is logged. A process outside calls
 * serve() with it, which returns once no process has the writing end. After end() this process writes its log to the
 * pipe. Call before any thread is started. */
int ps_log_relay_begin(void);
void ps_log_relay_serve(int from);
void ps_log_relay_end(int from);

void ps_log(enum ps_log_level level, const char *fmt, ...) PS_PRINTF(2, 3);

/* For errors that may come a thousand times a second: one line every PS_LOG_RATE_S seconds, with the number
 * of lines left out. True: log a line now. Initialise with zeros; any thread. */
#define PS_LOG_RATE_S 10
struct ps_log_rate {
	_Atomic uint64_t next_ns;
	atomic_uint left_out;
};
bool ps_log_rate_pass(struct ps_log_rate *rate, unsigned *ret_left_out);

#define ps_log_error(...) ps_log(PS_LOG_ERROR, __VA_ARGS__)
#define ps_log_warning(...) ps_log(PS_LOG_WARNING, __VA_ARGS__)
#define ps_log_info(...) ps_log(PS_LOG_INFO, __VA_ARGS__)
#define ps_log_debug(...) ps_log(PS_LOG_DEBUG, __VA_ARGS__)

#endif
