/* The program's log: one line a message, to stderr, the journal or syslog, or a file.
 *
 * Form of a message: "call: object: reason". Logged once, where the cause is known. Never a secret.
 * Threads: any; lines are not torn. Blocks: on the target's write only. Before ps_log_open() messages of
 * level warning and above go to stderr; the first of them are repeated in the log that is opened then. */
#ifndef PS_BASE_LOG_H
#define PS_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

enum ps_log_level { PS_LOG_ERROR, PS_LOG_WARNING, PS_LOG_INFO, PS_LOG_DEBUG };

/* target: "stderr", "syslog", or an absolute path (opened for append, 0600). Called once, before threads
 * are started. ident is the name shown to syslog; it is kept.
 *
 * syslog is the journal of systemd where there is one, and so is a stderr that systemd has connected with it:
 * entries have PENSTOCK_CALL and PENSTOCK_OBJECT. Where neither listens, as in a container, lines go to the
 * stderr that process 1 has, too, else nowhere. */
int ps_log_open(const char *target, enum ps_log_level level, const char *ident, struct ps_error *err);

/* What of that has happened, for the user, or NULL. */
const char *ps_log_instead(void);

/* The message number i of those before; NULL: there are no more. */
const char *ps_log_early(unsigned i);

/* Opens the log file again, after it was moved away; nothing if the log is not a file. Any thread.
 * -errno: the old one stays in use. */
int ps_log_reopen(void);

void ps_log(enum ps_log_level level, const char *fmt, ...) PS_PRINTF(2, 3);

/* For what may fail a thousand times a second: a line each PS_LOG_RATE_S seconds, with the number of those
 * left out.
 * True: log one now. Zero at first; any thread. */
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
