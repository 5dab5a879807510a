/* The commands. */
#ifndef PS_CLI_COMMANDS_H
#define PS_CLI_COMMANDS_H

#include "options/options.h"
#include "store/store.h"

extern const struct ps_opts ps_cmd_mount, ps_cmd_umount, ps_cmd_warm, ps_cmd_status, ps_cmd_metrics,
        ps_cmd_verify, ps_cmd_plan, ps_cmd_refresh, ps_cmd_evict, ps_cmd_pin, ps_cmd_unpin, ps_cmd_upgrade;

/* argv[0] is the command's name. They return an exit code. */
int ps_cmd_mount_helper(int argc, char **argv); /* as mount(8) calls mount.penstock */
int ps_cmd_resume(int argc, char **argv);       /* for the keeper */

/* For commands that use a cache directory themselves: opens it. On failure prints the reason (with the
 * mount that serves the cache) and returns the exit code. */
int ps_open_unserved_store(const char *command, const char *cache_dir, struct ps_store **ret);

#endif
