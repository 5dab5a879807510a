#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

void ps_id_of_strings(const char *const *strings, size_t n, struct ps_id *ret_id)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char digest[EVP_MAX_MD_SIZE];

	/* Only allocation can fail here. The process ends, since a wrong identity must not be returned. */
	if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1)
		abort();
	for (size_t i = 0; i < n; i++) {
		const char *s = strings[i] ? strings[i] : "";
		uint64_t len = strlen(s);
		uint8_t le[8];

		for (int k = 0; k < 8; k++)
			le[k] = (uint8_t)(len >> (8 * k));
		EVP_DigestUpdate(ctx, le, sizeof(le));
		EVP_DigestUpdate(ctx, s, len);
	}
	EVP_DigestFinal_ex(ctx, digest, NULL);
	EVP_MD_CTX_free(ctx);
	memcpy(ret_id->bytes, digest, PS_ID_LEN);
}

void ps_id_hex(const struct ps_id *id, char ret_hex[static PS_ID_HEX_LEN + 1])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < PS_ID_LEN; i++) {
		ret_hex[2 * i] = digits[id->bytes[i] >> 4];
		ret_hex[2 * i + 1] = digits[id->bytes[i] & 15];
	}
	ret_hex[PS_ID_HEX_LEN] = '\0';
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ps_id_parse(const char *hex, struct ps_id *ret_id)
{
	struct ps_id id;

	if (strlen(hex) != PS_ID_HEX_LEN)
		return -EINVAL;
	for (int i = 0; i < PS_ID_LEN; i++) {
		int hi = nibble(hex[2 * i]), lo = nibble(hex[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		id.bytes[i] = (uint8_t)(hi << 4 | lo);
	}
	*ret_id = id;
	return 0;
}

int ps_id_cmp(const struct ps_id *a, const struct ps_id *b)
{
	return memcmp(a->bytes, b->bytes, PS_ID_LEN);
}
