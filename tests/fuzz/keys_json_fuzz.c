/* Any bytes as an answer of a metadata server, a command or SSO (the first byte chooses which): keys that are
 * accepted can be sent in a header. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "credentials/key_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text)
{
	for (; text && *text; text++)
		if (*text <= ' ' || *text >= 0x7f)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct ps_key_shape shapes[] = {
	        {"", "AccessKeyId", "SecretAccessKey", "Token", "Expiration", 0},
	        {"", "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration", 1},
	        {"roleCredentials", "accessKeyId", "secretAccessKey", "sessionToken", "expiration", 0},
	};
	struct ps_key *key = NULL;
	struct ps_error err = {0};

	if (!size)
		return 0;
	int rc = ps_key_from_json(
	        (const char *)data + 1, size - 1, &shapes[data[0] % PS_ARRAY_LEN(shapes)], &key, &err);
	if (rc ? key || !err.text[0] || strlen(err.text) >= sizeof(err.text) : !key)
		abort();
	if (!key)
		return 0;
	if (!key->access_key || !key->secret || key->expires_s < 0)
		abort();
	check(key->access_key);
	check(key->secret);
	check(key->session_token);
	ps_key_unref(key);
	return 0;
}
