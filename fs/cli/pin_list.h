/* penstock pin --list: which files are pinned, of mounts or of a cache at rest.
 *
 * Threads: one. Blocks: on the mounts, or on the disk of the cache. They return exit codes of options/command_line.h;
 * errors are on stderr. */
#ifndef PS_CLI_PIN_LIST_H
#define PS_CLI_PIN_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* arg NULL: of every mount. Globs are matched as ps_match() has it. */
int ps_pin_list_mount(const char *arg, const char *const *globs, size_t nglobs, bool json);
int ps_pin_list_cache(const char *cache_dir, const char *const *globs, size_t nglobs, bool json);

#endif
