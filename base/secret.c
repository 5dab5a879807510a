#include "base/secret.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

void ps_secret_free(char *secret)
{
	if (secret)
		OPENSSL_cleanse(secret, strlen(secret));
	free(secret);
}

void ps_cleanup_secret(char **secret)
{
	ps_secret_free(*secret);
}
