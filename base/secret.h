/* Strings that must not lie around in memory once they are done with.
 *
 * Ownership: the caller's. Threads: any. */
#ifndef PS_BASE_SECRET_H
#define PS_BASE_SECRET_H

/* free(), wiped. NULL is allowed. */
void ps_secret_free(char *secret);

#define ps_autosecret __attribute__((cleanup(ps_cleanup_secret)))
void ps_cleanup_secret(char **secret);

#endif
