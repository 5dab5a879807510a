#include "base/crc64.h"

#include <pthread.h>

#define POLYNOMIAL UINT64_C(0x9a6c9329ac4bc9b5) /* bit 63 being the coefficient of x^0 */

/* tables[k][b]: what byte b does to the sum when k more bytes follow it. Eight bytes a step. */
static uint64_t tables[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (unsigned b = 0; b < 256; b++) {
		uint64_t v = b;

		for (int i = 0; i < 8; i++)
			v = v & 1 ? v >> 1 ^ POLYNOMIAL : v >> 1;
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
