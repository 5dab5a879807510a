#include "base/crc32c.h"

#include <isa-l/crc.h>

/* Polynomials over GF(2) modulo Castagnoli's, bit 31 being the coefficient of x^0. */
#define POLYNOMIAL 0x82f63b78u
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
		b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
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
