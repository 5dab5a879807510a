/* CRC32C (Castagnoli), as stored in the index, and CRC-64/NVME, the checksum that S3 keeps of what was uploaded in
 * parts. Threads: any. Blocks: never. */
#ifndef PS_BASE_CRC_H
#define PS_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

uint32_t ps_crc32c(const void *bytes, size_t nbytes);

/* The checksum of a followed by b, from the checksums of both and the length of b: what arrived in parts need
 * not be read again. */
uint32_t ps_crc32c_join(uint32_t a, uint32_t b, size_t nbytes_b);

/* The sum of what `crc` is the sum of (0: nothing yet), followed by these bytes. */
uint64_t ps_crc64nvme(uint64_t crc, const void *bytes, size_t nbytes);

#endif
