/* What is known of an object at its origin: size, version, checksum. Without I/O.
 *
 * Ownership: the caller's memory. Threads: any. Blocks: never. */
#ifndef PS_BASE_REMOTE_H
#define PS_BASE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"

#define PS_ETAG_LEN 192 /* with quotes and W/; a longer ETag is ignored */

/* What an origin reports of one object. Unknown members are PS_SIZE_UNKNOWN, -1 and "". */
#define PS_SIZE_UNKNOWN UINT64_MAX
struct ps_remote {
	uint64_t size;
	int64_t mtime_s; /* Last-Modified, seconds since the epoch */
	char etag[PS_ETAG_LEN];
	/* Of the whole object's bytes, "sha256:HEX" (the forms of base/checksum.h; others are ignored).
	 * Compared when the object is complete. Not part of the version. */
	char checksum[PS_CHECKSUM_LEN];
};
#define PS_REMOTE_UNKNOWN ((struct ps_remote){.size = PS_SIZE_UNKNOWN, .mtime_s = -1})

/* What is done about bytes that do not match their origin's checksum. */
enum ps_checksums {
	PS_CHECKSUMS_VERIFY, /* they are dropped, and reads fail */
	PS_CHECKSUMS_WARN,   /* they are counted and logged, and stay */
	PS_CHECKSUMS_OFF,    /* they are not compared */
};

/* True if `seen` (a later answer) may be the same version as `known`. Sizes that are known in both must be
 * equal. Then, if both ETags are strong, they alone decide; otherwise ETags (without W/) and mtime_s must each
 * be equal if both sides know them. The checksum is not compared. */
bool ps_remote_same_version(const struct ps_remote *known, const struct ps_remote *seen);

/* Versions of a source whose replicas disagree about ETags and times are told apart by their size alone:
 * etag holds a mark of our own, which is never sent, and ps_remote_same_version() compares sizes only. */
void ps_remote_by_size(struct ps_remote *remote);
bool ps_remote_is_by_size(const struct ps_remote *remote);

/* The size that a list states for an object whose version it does not know: size is unknown until the origin
 * has reported it, and etag holds a mark of our own, which is never sent. PS_SIZE_UNKNOWN: none is stated. */
void ps_remote_state_size(struct ps_remote *remote, uint64_t size);
uint64_t ps_remote_stated_size(const struct ps_remote *remote);

/* True if there is neither ETag nor Last-Modified: the origin reports no versions. */
bool ps_remote_versionless(const struct ps_remote *remote);

/* For an object without versions, etag holds a mark of our own, which is never sent: a checksum of the
 * object's first bytes, which head() computes. A get of a range that includes all of these bytes compares
 * them with the mark before it reports any byte; a difference is ESTALE. */
#define PS_MARKED_NBYTES ((size_t)64 * 1024) /* or the whole object, if that is shorter */
bool ps_remote_is_marked(const struct ps_remote *remote);
void ps_remote_mark(struct ps_remote *remote, uint64_t crc64nvme);

#endif
