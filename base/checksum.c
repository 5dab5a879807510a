#include "base/checksum.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <isa-l/crc.h>
#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/size.h"

enum engine { ENGINE_EVP, ENGINE_CRC32, ENGINE_CRC32C, ENGINE_CRC64NVME };

struct kind {
	const char *name;
	size_t nhex;
	enum engine engine;
	const EVP_MD *(*evp)(void);
	bool git;
};

static const struct kind kinds[] = {
        {"md5", 32, ENGINE_EVP, EVP_md5, false},
        {"sha1", 40, ENGINE_EVP, EVP_sha1, false},
        {"sha256", 64, ENGINE_EVP, EVP_sha256, false},
        {"sha512", 128, ENGINE_EVP, EVP_sha512, false},
        {"gitblob", 40, ENGINE_EVP, EVP_sha1, true},
        {"crc32", 8, ENGINE_CRC32, NULL, false},
        {"crc32c", 8, ENGINE_CRC32C, NULL, false},
        {"crc64nvme", 16, ENGINE_CRC64NVME, NULL, false},
};

static const struct kind *find_kind(const char *word, size_t n)
{
	for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++)
		if (n == strlen(kinds[i].name) && strncasecmp(word, kinds[i].name, n) == 0)
			return &kinds[i];
	return NULL;
}

bool ps_checksum_parse(const char *word, char ret[static PS_CHECKSUM_LEN])
{
	size_t n = strcspn(word, ":");
	const struct kind *kind = word[n] ? find_kind(word, n) : NULL;
	const char *hex = word + n + 1;

	if (!kind || strlen(hex) != kind->nhex || strspn(hex, "0123456789abcdefABCDEF") != kind->nhex)
		return false;
	for (char *to = ret;; word++) {
		*to++ = (char)tolower((unsigned char)*word);
		if (!*word)
			return true;
	}
}

bool ps_checksum_from_raw(
        const char *algorithm, const uint8_t *raw, size_t n, char ret[static PS_CHECKSUM_LEN])
{
	const struct kind *kind = find_kind(algorithm, strlen(algorithm));
	int at;

	if (!kind || 2 * n != kind->nhex)
		return false;
	at = snprintf(ret, PS_CHECKSUM_LEN, "%s:", kind->name);
	for (size_t i = 0; i < n; i++)
		at += snprintf(ret + at, PS_CHECKSUM_LEN - (size_t)at, "%02x", raw[i]);
	return true;
}

int ps_checksum_init(struct ps_checksum *sum, const char *expected, uint64_t size)
{
	char text[PS_CHECKSUM_LEN], header[48];

	const struct kind *kind = find_kind(expected, strcspn(expected, ":"));
	if (!kind || !ps_checksum_parse(expected, text))
		return -EINVAL;
	*sum = (struct ps_checksum){.kind = kind};
	memcpy(sum->expected, text, sizeof(text));
	if (kind->engine != ENGINE_EVP) {
		sum->crc = kind->engine == ENGINE_CRC32C ? UINT32_MAX : 0;
		return 0;
	}
	sum->evp = EVP_MD_CTX_new();
	/* md5 may be forbidden on this machine. */
	if (!sum->evp || EVP_DigestInit_ex(sum->evp, kind->evp(), NULL) != 1) {
		int rc = sum->evp ? -EINVAL : -ENOMEM;

		EVP_MD_CTX_free(ps_steal_ptr(&sum->evp));
		return rc;
	}
	if (kind->git) {
		int n = snprintf(header, sizeof(header), "blob %" PRIu64, size);
		EVP_DigestUpdate(sum->evp, header, (size_t)n + 1);
	}
	return 0;
}

void ps_checksum_update(struct ps_checksum *sum, const void *bytes, size_t n)
{
	const struct kind *kind = sum->kind;

	switch (kind->engine) {
	case ENGINE_EVP:
		EVP_DigestUpdate(sum->evp, bytes, n);
		break;
	case ENGINE_CRC32:
		sum->crc = crc32_gzip_refl((uint32_t)sum->crc, bytes, n);
		break;
	case ENGINE_CRC32C:
		while (n > 0) { /* the library takes an int */
			size_t part = PS_MIN(n, (size_t)1 << 30);

			sum->crc =
			        crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)part, (uint32_t)sum->crc);
			bytes = (const char *)bytes + part;
			n -= part;
		}
		break;
	case ENGINE_CRC64NVME:
		sum->crc = ps_crc64nvme(sum->crc, bytes, n);
		break;
	}
}

bool ps_checksum_final(struct ps_checksum *sum, char ret_seen[static PS_CHECKSUM_LEN])
{
	const struct kind *kind = sum->kind;
	uint8_t raw[EVP_MAX_MD_SIZE];

	if (kind->engine == ENGINE_EVP) {
		EVP_DigestFinal_ex(sum->evp, raw, NULL);
	} else {
		uint64_t v = kind->engine == ENGINE_CRC32C ? ~(uint32_t)sum->crc & UINT32_MAX : sum->crc;

		for (size_t i = 0; i < kind->nhex / 2; i++)
			raw[i] = (uint8_t)(v >> (8 * (kind->nhex / 2 - 1 - i)));
	}
	(void)ps_checksum_from_raw(kind->name, raw, kind->nhex / 2, ret_seen);
	return strcmp(ret_seen, sum->expected) == 0;
}

void ps_checksum_fini(struct ps_checksum *sum)
{
	EVP_MD_CTX_free(sum->evp);
	sum->evp = NULL;
}

/* CRCs --------------------------------------------------------------------------------------------------- */

/* Polynomials over GF(2) modulo Castagnoli's, bit 31 being the coefficient of x^0. */
#define CASTAGNOLI 0x82f63b78u
#define ONE 0x80000000u
#define X_TO_8 0x00800000u

uint32_t ps_crc32c(const void *bytes, size_t nbytes)
{
	/* isa-l takes and returns the CRC register; the checksum is its complement. */
	return ~crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)nbytes, ~0u);
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		if (a & ONE)
			product ^= b;
		b = b & 1 ? b >> 1 ^ CASTAGNOLI : b >> 1;
	}
	return product;
}

/* Each byte that follows multiplies the checksum by x^8. */
uint32_t ps_crc32c_join(uint32_t a, uint32_t b, size_t nbytes_b)
{
	uint32_t factor = ONE, square = X_TO_8;

	for (; nbytes_b; nbytes_b >>= 1) {
		if (nbytes_b & 1)
			factor = multiply(square, factor);
		square = multiply(square, square);
	}
	return multiply(factor, a) ^ b;
}

#define NVME UINT64_C(0x9a6c9329ac4bc9b5) /* bit 63 is the coefficient of x^0 */

/* tables[k][b]: the effect of byte b on the checksum when k more bytes follow. ps_crc64nvme() handles eight
 * bytes a step. */
static uint64_t tables[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (unsigned b = 0; b < 256; b++) {
		uint64_t v = b;

		for (int i = 0; i < 8; i++)
			v = v & 1 ? v >> 1 ^ NVME : v >> 1;
		tables[0][b] = v;
	}
	for (unsigned b = 0; b < 256; b++)
		for (int k = 1; k < 8; k++)
			tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 255];
}

uint64_t ps_crc64nvme(uint64_t crc, const void *bytes, size_t nbytes)
{
	const uint8_t *p = bytes;

	pthread_once(&once, make_tables);
	crc = ~crc;
	for (; nbytes >= 8; nbytes -= 8, p += 8) {
		uint64_t next = 0;

		for (int i = 0; i < 8; i++)
			next ^= tables[7 - i][p[i] ^ (uint8_t)(crc >> (8 * i))];
		crc = next;
	}
	for (; nbytes > 0; nbytes--, p++)
		crc = crc >> 8 ^ tables[0][(crc ^ *p) & 255];
	return ~crc;
}
