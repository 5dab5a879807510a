/* CRC32C (Castagnoli), as stored in the index. Threads: any. Blocks: never. */
#ifndef PS_BASE_CRC32C_H
#define PS_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ps_crc32c(const void *bytes, size_t nbytes);

/* The checksum of a followed by b, from the checksums of both and the length of b: what arrived in parts need
 * not be read again. */
uint32_t ps_crc32c_join(uint32_t a, uint32_t b, size_t nbytes_b);

#endif
