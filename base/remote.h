/* What is known of an object at its origin: its size, its version, its checksum. Pure.
 *
 * Ownership: the caller's memory. Threads: any. Blocks: never. */
#ifndef PS_BASE_REMOTE_H
#define PS_BASE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"

#define PS_ETAG_LEN 192 /* with quotes and W/; a longer one counts as none */

/* What an origin says of one object. Unknown parts are PS_SIZE_UNKNOWN, -1 and "". */
#define PS_SIZE_UNKNOWN UINT64_MAX
struct ps_remote {
	uint64_t size;
	int64_t mtime_s; /* Last-Modified, seconds since the epoch */
	char etag[PS_ETAG_LEN];
	/* Of the whole object's bytes, "sha256:HEX" (the forms of base/checksum.h; others are ignored).
	 * Compared when the object is complete. No part of the version. */
	char checksum[PS_CHECKSUM_LEN];
};
#define PS_REMOTE_UNKNOWN ((struct ps_remote){.size = PS_SIZE_UNKNOWN, .mtime_s = -1})

/* True if `seen` (a later answer) may be the same version as `known`: parts that both know must be equal;
 * ETags decide when both are strong. */
bool ps_remote_same_version(const struct ps_remote *known, const struct ps_remote *seen);

/* Neither ETag nor Last-Modified: the origin gives no versions. */
bool ps_remote_versionless(const struct ps_remote *remote);

/* Of such an object etag holds a mark of ours, never sent to anyone: a checksum of its first bytes, which a
 * head finds out. A get that covers them all compares them before it reports any: ESTALE. */
#define PS_MARKED_NBYTES ((size_t)64 * 1024) /* or all, if it has fewer */
bool ps_remote_is_marked(const struct ps_remote *remote);
void ps_remote_mark(struct ps_remote *remote, uint64_t crc64nvme);

#endif
