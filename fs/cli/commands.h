/* The commands: each takes its own argv (argv[0] is its name) and returns an exit code of
 * options/options.h. */
#ifndef PS_CLI_COMMANDS_H
#define PS_CLI_COMMANDS_H

#include "options/options.h"
#include "store/store.h"

int ps_cmd_mount(int argc, char **argv);
int ps_cmd_mount_helper(int argc, char **argv); /* as mount(8) calls mount.penstock */
int ps_cmd_umount(int argc, char **argv);
int ps_cmd_warm(int argc, char **argv);
int ps_cmd_status(int argc, char **argv);
int ps_cmd_metrics(int argc, char **argv);
int ps_cmd_verify(int argc, char **argv);
int ps_cmd_plan(int argc, char **argv);
int ps_cmd_refresh(int argc, char **argv);
int ps_cmd_evict(int argc, char **argv);
int ps_cmd_pin(int argc, char **argv);
int ps_cmd_unpin(int argc, char **argv);
int ps_cmd_upgrade(int argc, char **argv);
int ps_cmd_resume(int argc, char **argv); /* for the keeper */

/* For commands that use a cache directory themselves: opens it. On failure prints the reason (with the
 * mount that serves the cache) and returns the exit code. */
int ps_open_unserved_store(const char *command, const char *cache_dir, struct ps_store **ret);

#endif
