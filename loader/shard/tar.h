/* A walk over the members of a tar file, front to back, in bounded memory.
 *
 * Reads v7, ustar (with its prefix field), GNU (long names, base-256 numbers) and pax (path, size and the name of a
 * sparse file, per file and global). One block of zeros ends the archive; a file that stops before it is truncated, since a
 * tar cut between two members looks like a shorter one otherwise.
 *
 * Ownership: borrows the stream; a member's name is valid until the next call.
 * Threads: one at a time.   Locks: none.
 * Errors: -EBADMSG: damaged or truncated, the text names the offset; else what the stream says. After an
 * error every further call fails the same way. Blocks: as the stream does. */
#ifndef PS_SHARD_TAR_H
#define PS_SHARD_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"
#include "shard/stream.h"

#define PS_TAR_BLOCK 512
#define PS_TAR_MAX_NAME (16UL << 10) /* a longer name is damage */
#define PS_TAR_MAX_PAX (1UL << 20)   /* a larger pax header is damage */

enum ps_tar_kind {
	PS_TAR_FILE,   /* an ordinary file: its bytes follow */
	PS_TAR_SPARSE, /* a file with holes, whose bytes are not stored as they are: skipped */
	PS_TAR_OTHER,  /* folder, link, device, unknown: skipped */
};

struct ps_tar_member {
	const char *name; /* ends with a zero, holds none; bytes as they are in the tar */
	size_t name_len;
	enum ps_tar_kind kind;
	uint64_t size;          /* of the data */
	uint64_t offset;        /* of the data in the tar */
	uint64_t header_offset; /* of the member's first header block, long-name and pax blocks included */
};

struct ps_tar;

/* NULL: out of memory. */
struct ps_tar *ps_tar_new(struct ps_stream *stream);

void ps_tar_free(struct ps_tar *tar);

/* 1 and the next member, whatever is left of the last one skipped; 0 at the end of the archive. */
int ps_tar_next(struct ps_tar *tar, struct ps_tar_member *ret_member, struct ps_load_error *err) PS_MUST_USE;

/* True if a global pax header was read that says something about the members behind it: these cannot be read
 * from the middle of the archive. */
bool ps_tar_has_global(const struct ps_tar *tar);

/* Copies all data of the member that ps_tar_next() gave to dst. Once a member. */
int ps_tar_read(struct ps_tar *tar, void *dst, struct ps_load_error *err) PS_MUST_USE;

#endif
