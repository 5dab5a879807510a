/* Globs of a command line against the files of a mount. Threads: any. */
#ifndef PS_CLI_MATCH_H
#define PS_CLI_MATCH_H

#include <stdbool.h>

/* True if the glob matches the path below the mount, or its last part; "*" matches "/" too. */
bool ps_match(const char *glob, const char *path);

#endif
