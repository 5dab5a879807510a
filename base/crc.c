#include "base/crc.h"

#include <pthread.h>

#include <isa-l/crc.h>

/* Polynomials over GF(2) modulo Castagnoli's, bit 31 being the coefficient of x^0. */
#define CASTAGNOLI 0x82f63b78u
#define ONE 0x80000000u
#define X_TO_8 0x00800000u

uint32_t ps_crc32c(const void *bytes, size_t nbytes)
{
	/* The library takes and gives the register, not its complement. */
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

/* Each byte that follows multiplies what came before by x^8. */
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

#define NVME UINT64_C(0x9a6c9329ac4bc9b5) /* bit 63 being the coefficient of x^0 */

/* tables[k][b]: what byte b does to the sum when k more bytes follow it. Eight bytes a step. */
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
