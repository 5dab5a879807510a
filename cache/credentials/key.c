/* Keys: snapshots that are shared and wiped. */
#include <string.h>

#include "base/secret.h"
#include "credentials/credentials.h"

static void key_free(struct ps_key *key)
{
	ps_secret_free(key->access_key);
	ps_secret_free(key->secret);
	ps_secret_free(key->session_token);
	ps_secret_free(key->bearer);
	free(key);
}

static bool copy(const char *text, char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return !text || *ret;
}

struct ps_key *ps_key_new(const char *access_key, const char *secret, const char *session_token,
        const char *bearer, int64_t expires_s)
{
	struct ps_key *key = calloc(1, sizeof *key);

	if (!key)
		return NULL;
	key->expires_s = expires_s;
	atomic_init(&key->nrefs, 1);
	if (!copy(access_key, &key->access_key) || !copy(secret, &key->secret) ||
	        !copy(session_token, &key->session_token) || !copy(bearer, &key->bearer)) {
		key_free(key);
		return NULL;
	}
	return key;
}

struct ps_key *ps_key_ref(struct ps_key *key)
{
	atomic_fetch_add(&key->nrefs, 1);
	return key;
}

void ps_key_unref(struct ps_key *key)
{
	if (key && atomic_fetch_sub(&key->nrefs, 1) == 1)
		key_free(key);
}
