/* SHA-256 of a shard's bytes, as `sha256sum` prints it.
 *
 * Ownership: the caller's, until free.   Threads: one at a time.   Blocks: of a file, on the disk.
 * Errors: 0 or -errno with a text that names the file. */
#ifndef PS_TOOLS_DIGEST_H
#define PS_TOOLS_DIGEST_H

#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"

#define PS_DIGEST_NBYTES 32

struct ps_digest;

struct ps_digest *ps_digest_new(void); /* NULL: out of memory */
void ps_digest_add(struct ps_digest *digest, const void *p, size_t n);
void ps_digest_finish(struct ps_digest *digest, uint8_t ret_sha256[static PS_DIGEST_NBYTES]);
void ps_digest_free(struct ps_digest *digest); /* NULL is allowed */

/* Of a whole file. */
int ps_digest_file(const char *path, uint8_t ret_sha256[static PS_DIGEST_NBYTES], struct ps_load_error *err) PS_MUST_USE;

#endif
