/* Checksums of whole objects, which origins and manifests report, as "ALGORITHM:HEX" in lower case. Also
 * the CRCs of blocks and parts.
 *
 *   md5 sha1 sha256 sha512      of the bytes
 *   crc32 crc32c crc64nvme      the value, most significant digit first
 *   gitblob                     sha1 of "blob SIZE\0" and the bytes, as git names a file
 *
 * A checksum of parts (S3's "-N" and composite ones) cannot be compared with the whole object: callers drop
 * it.
 *
 * Ownership: a struct ps_checksum is in the caller's memory; every successful init needs a fini. Threads:
 * one at a time for one struct. Blocks: never. */
#ifndef PS_BASE_CHECKSUM_H
#define PS_BASE_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define PS_CHECKSUM_LEN 136 /* "sha512:" and 128 digits, with NUL */

/* Parses a word in the form above, whose letters may be of either case, and returns it in lower case; false:
 * malformed. */
bool ps_checksum_parse(const char *word, char ret[static PS_CHECKSUM_LEN]);
/* "ALGORITHM:" and the hex digits of raw bytes, such as decoded base64 headers; false: an unknown algorithm,
 * or the wrong length for it. */
bool ps_checksum_from_raw(
        const char *algorithm, const uint8_t *raw, size_t n, char ret[static PS_CHECKSUM_LEN]);

struct ps_checksum {
	const void *kind;
	void *evp;
	uint64_t crc;
	char expected[PS_CHECKSUM_LEN];
};
/* Begins the checksum of an object of `size` bytes, for comparison with `expected`. -EINVAL: unknown form,
 * or this machine forbids the algorithm (md5); -ENOMEM. */
int ps_checksum_init(struct ps_checksum *sum, const char *expected, uint64_t size) PS_MUST_USE;
void ps_checksum_update(struct ps_checksum *sum, const void *bytes, size_t n);
/* Call after the last byte. ret_seen: the checksum, in the same form. True: it equals the expected one. */
bool ps_checksum_final(struct ps_checksum *sum, char ret_seen[static PS_CHECKSUM_LEN]);
void ps_checksum_fini(struct ps_checksum *sum);

/* CRC32C (Castagnoli), as stored in the index. */
uint32_t ps_crc32c(const void *bytes, size_t nbytes);

/* The CRC of two parts in sequence, from their CRCs a and b and the length of the second part. So data that
 * arrived in parts need not be read again. */
uint32_t ps_crc32c_join(uint32_t a, uint32_t b, size_t nbytes_b);

/* CRC-64/NVME, which S3 stores for multipart uploads. Continues `crc` (0: no bytes yet) with these
 * bytes. */
uint64_t ps_crc64nvme(uint64_t crc, const void *bytes, size_t nbytes);

#endif
