/* `penstock status --watch` on a terminal: a screen that is drawn again at each interval, with the course of
 * the last of them.
 *
 * Threads: one. Blocks: until the user ends it with q or Ctrl-C, or a signal does; the terminal is then as it
 * was before. */
#ifndef PS_CLI_LIVE_H
#define PS_CLI_LIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Standard output is a terminal on which a cursor can be moved. */
bool ps_live_possible(void);

/* ask() is called for each screen. It adds to `list` {"doc": the document of a daemon, "mounts": those of it
 * that are to be shown} for each daemon, and {"mountpoint", "error"} for each mount that did not answer. Its
 * error ends the screen, and is returned. */
int ps_live_run(uint64_t every_ms, int (*ask)(void *arg, json_t *list, struct ps_error *err), void *arg,
        struct ps_error *err);

#endif
