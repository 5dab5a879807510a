/* Corrects the checksum of each block with the magic "ustar": otherwise hardly any input passes the first
 * header of a tar. A block whose checksum field does not begin with a digit keeps it. */
#ifndef PS_FUZZ_MEND_TAR_H
#define PS_FUZZ_MEND_TAR_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline void checksums_mend(uint8_t *data, size_t size)
{
	for (size_t at = 0; at + 512 <= size; at += 512) {
		uint8_t *h = data + at;
		unsigned sum = 0;
		char text[8];

		if (memcmp(h + 257, "ustar", 5) != 0 || h[148] < '0' || h[148] > '9')
			continue;
		memset(h + 148, ' ', 8);
		for (int i = 0; i < 512; i++)
			sum += h[i];
		snprintf(text, sizeof(text), "%06o", sum & 0777777);
		memcpy(h + 148, text, 7);
	}
}

#endif
