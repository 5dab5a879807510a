/* A shard as it is written: the same members give the same bytes, on any machine and in any year.
 *
 * Members are ordinary files of ustar: mode 0444, no owner, no time. A name or size that ustar cannot hold
 * gets a pax header before it. A shard is written beside its name and renamed once it is whole and on the
 * disk.
 *
 * With a zstd level the file is in the seekable format (frames of 4 MiB, each with its checksum, and a table
 * at the end; github.com/facebook/zstd, contrib/seekable_format): any zstd reads it front to back, and who
 * knows the table reads from the middle.
 *
 * Ownership: belongs to its creator.   Threads: one at a time for one shard.
 * Errors: 0 or -errno with a text that names the file; then only ps_tar_out_abort() is left to call.
 * Blocks: on the disk. */
#ifndef PS_SHARD_TAR_OUT_H
#define PS_SHARD_TAR_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/load_error.h"

#define PS_TAR_OUT_MAX_LEVEL 19

struct ps_tar_out;

/* level: of zstd, 0: not compressed. */
int ps_tar_out_open(
        const char *path, int level, struct ps_tar_out **ret_out, struct ps_load_error *err) PS_MUST_USE;

/* The same into a descriptor that stays the caller's, such as standard output; `path` is for texts. */
int ps_tar_out_fd(int fd, const char *path, int level, struct ps_tar_out **ret_out,
        struct ps_load_error *err) PS_MUST_USE;

/* Has each piece of the file shown as it is written; before the first member. */
void ps_tar_out_watch(
        struct ps_tar_out *out, void (*on_bytes)(void *ctx, const void *p, size_t n), void *ctx);

/* Begins a member; exactly `size` bytes of data follow, by one or more calls of ps_tar_out_data(). */
int ps_tar_out_member(struct ps_tar_out *out, const char *name, size_t name_len, uint64_t size,
        struct ps_load_error *err) PS_MUST_USE;
int ps_tar_out_data(
        struct ps_tar_out *out, const void *data, size_t n, struct ps_load_error *err) PS_MUST_USE;

/* Bytes that a member takes in the tar, its headers and padding included. */
uint64_t ps_tar_out_member_nbytes(size_t name_len, const char *name, uint64_t size);

/* Ends the archive and gives the file its name. Frees `out` on success. *ret_nbytes: of the file; may be
 * NULL. */
int ps_tar_out_finish(struct ps_tar_out *out, uint64_t *ret_nbytes, struct ps_load_error *err) PS_MUST_USE;

/* Leaves nothing behind. NULL is allowed. */
void ps_tar_out_abort(struct ps_tar_out *out);

#endif
