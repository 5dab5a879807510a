/* CRC-64/NVME, the sum that S3 keeps of what was uploaded in parts. Threads: any. Blocks: never. */
#ifndef PS_BASE_CRC64_H
#define PS_BASE_CRC64_H

#include <stddef.h>
#include <stdint.h>

/* The sum of what `crc` is the sum of (0: nothing yet), followed by these bytes. */
uint64_t ps_crc64nvme(uint64_t crc, const void *bytes, size_t nbytes);

#endif
