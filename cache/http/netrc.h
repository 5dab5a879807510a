/* .netrc: users and passwords for hosts, as ftp, curl and git read them.
 *
 *   machine data.example.org login me password "a b\"c"      default login anonymous password x
 *
 * The first entry that names the host, or "default", is the one; tokens may be quoted, "#" starts a comment where a token
 * could start, macros and accounts are skipped.
 *
 * Ownership: the caller's; what is found is secret. Threads: any. Blocks: ps_netrc_user_password() on disk. */
#ifndef PS_HTTP_NETRC_H
#define PS_HTTP_NETRC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"
#include "http/access.h"

#define PS_NETRC_MAX_NBYTES 65536

/* True: there is an entry with a login; "login:password" is added to ret. */
bool ps_netrc_find(const char *text, size_t nbytes, const char *host, struct ps_strbuf *ret);

/* From options->netrc_file (it must be readable; "" is no file), else of the environment $NETRC or ~/.netrc.
 * *ret NULL: nothing is known of the host; else for ps_secret_free(). */
int ps_netrc_user_password(const struct ps_http_options *options, const char *host, char **ret,
        struct ps_error *err) PS_MUST_USE;

#endif
