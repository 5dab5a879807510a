/* Variables of somebody's environment: a daemon mounts for others, so what an origin asks for is in theirs, not in
 * its own. Ownership: borrowed. Threads: any, while nobody changes it. Blocks: never. */
#ifndef PS_BASE_ENV_H
#define PS_BASE_ENV_H

/* A variable of env ("NAME=value", NULL-terminated; NULL: the process's own); NULL if it is not set or empty. */
const char *ps_env_get(const char *const *env, const char *name);

#endif
