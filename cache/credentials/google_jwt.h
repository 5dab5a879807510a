/* The signed statement with which a service account of Google asks for a token: a JWT of RS256.
 *
 * Ownership: strings handed out are the caller's, for ps_secret_free(). Threads: any. Blocks: never.
 * Errors: -EACCES for a private key that is none, -ENOMEM. */
#ifndef PS_CREDENTIALS_GOOGLE_JWT_H
#define PS_CREDENTIALS_GOOGLE_JWT_H

#include <stdint.h>

#include "base/error.h"

#define PS_GOOGLE_SCOPE "https://www.googleapis.com/auth/devstorage.read_only"
#define PS_GOOGLE_JWT_S 3600 /* the longest that is taken */

struct ps_google_jwt {
	const char *email;       /* who */
	const char *private_key; /* PEM, RSA */
	const char *key_id;      /* NULL: not told */
	const char *audience;    /* the server that will be asked */
	int64_t now_s;
};

int ps_google_jwt(const struct ps_google_jwt *jwt, char **ret, struct ps_error *err) PS_MUST_USE;

#endif
