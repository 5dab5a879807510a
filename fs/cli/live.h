/* `penstock status --watch` on a terminal: a screen that is redrawn at each interval, with a history of the
 * last intervals.
 *
 * Threads: one. Blocks: until the user presses q or Ctrl-C, or a signal arrives; then restores the
 * terminal. */
#ifndef PS_CLI_LIVE_H
#define PS_CLI_LIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* True if standard output is a terminal with cursor movement. */
bool ps_live_possible(void);

/* Calls ask() at each interval. ask() appends to `list`: for each daemon {"doc": its document, "mounts": its
 * mounts to show}, and for each mount that did not answer {"mountpoint", "error"}. An error of ask() ends
 * the display and is returned. */
int ps_live_run(uint64_t every_ms, int (*ask)(void *arg, json_t *list, struct ps_error *err), void *arg,
        struct ps_error *err);

#endif
